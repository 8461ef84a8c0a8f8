"""Names of older or compiled PyTorch scripts: typed tensor constructors, and `compile`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..storage.backend import backend_of
from ..storage.dtype import as_dtype, float16, float32, float64, int32, int64
from ..tensor import Tensor, _wrap, tensor
from .registry import public


def _constructor(name: str, dtype: Any) -> None:
    def make(*data: Any, device: Any = None) -> Tensor:
        if len(data) == 1 and not isinstance(data[0], int):
            return tensor(data[0], dtype=dtype, device=device)
        backend = backend_of(device)
        return _wrap(backend.xp.zeros(data, dtype=dtype), backend)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = (
        f"A {as_dtype(dtype).name} tensor: `{name}([1, 2])` of given values, `{name}(2, 3)` of a shape "
        f"(zeros).\n\nNew code writes lucid.tensor(..., dtype=lucid.{as_dtype(dtype).name}).\n\n"
        f">>> import lucid\n>>> lucid.{name}([1, 2]).dtype\ndtype('{as_dtype(dtype).name}')"
    )
    public(name)(make)


for _name, _dtype in (
    ("FloatTensor", float32),
    ("DoubleTensor", float64),
    ("HalfTensor", float16),
    ("LongTensor", int64),
    ("IntTensor", int32),
):
    _constructor(_name, _dtype)


@public("compile")
def compile_(model: Any = None, **options: Any) -> Any:
    """`model` itself, a module or a function: there is nothing to compile.

    Fusion happens as the model runs (lucid.fusion). Options of PyTorch's are accepted and have no effect.
    Also a decorator.

    >>> import lucid
    >>> layer = lucid.nn.Linear(2, 2)
    >>> lucid.compile(layer, mode="max-autotune") is layer
    True
    """
    if model is None:
        same: Callable[[Any], Any] = lambda function: function
        return same
    return model
