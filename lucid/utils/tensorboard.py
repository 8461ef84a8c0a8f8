"""`SummaryWriter`: the ecosystem's TensorBoard writer, with lucid's tensors as values.

Needs the tensorboardX package (`pip install tensorboardX`), or an installed PyTorch with tensorboard.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from ..tensor import Tensor

_WRITERS = ("tensorboardX", "torch.utils.tensorboard")


def _plain(value: Any) -> Any:
    """`value` with NumPy arrays in place of tensors."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    return value


def _writer() -> Any:
    for name in _WRITERS:
        try:
            return importlib.import_module(name).SummaryWriter
        except ImportError:
            continue
    raise ImportError("SummaryWriter: no TensorBoard writer is installed; pip install tensorboardX")


class SummaryWriter:
    """The installed writer's SummaryWriter; every method takes lucid's tensors.

    Arguments and methods are the writer's own (`add_scalar`, `add_histogram`, `add_image`, `flush`, `close`,
    ...). Raises ImportError naming the package when none is installed.

    >>> with SummaryWriter("runs/first") as writer:                                    # doctest: +SKIP
    ...     writer.add_scalar("loss", loss, global_step=3)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._own = _writer()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_own":
            raise AttributeError(name)
        found = getattr(self._own, name)
        if not callable(found):
            return found

        @functools.wraps(found)
        def method(*args: Any, **kwargs: Any) -> Any:
            return found(*_plain(args), **_plain(kwargs))

        return method

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._own.close()
