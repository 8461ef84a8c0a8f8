"""`out=`: results written into tensors that the caller gives, by PyTorch's rules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import DeviceError, DtypeError, GradError, ShapeError
from ..storage.dtype import category
from ..storage.storage import Storage
from .impl import TensorImpl, describe
from .inplace import check_writable
from .mode import GRAD, mode


def written(name: str, out: Any, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """`out`, a tensor or a tuple of several, after the results of `function(*args, **kwargs)` were written.

    Nothing is recorded: GradError when grad mode is on and an input or `out` requires grad.
    """
    outs = out if isinstance(out, (tuple, list)) else (out,)
    for o in outs:
        if not isinstance(o, TensorImpl):
            raise DtypeError(f"{name}: expected out to be a tensor, got {describe(o)}")
    if mode.flags & GRAD:
        for t in _tensors((*args, *kwargs.values(), *outs)):
            if t.requires_grad:
                raise GradError(
                    f"{name}: out= records no derivative, but a tensor ({describe(t)}) requires grad; leave "
                    "out= away, or compute inside lucid.no_grad()"
                )
    before = mode.flags
    mode.flags = before & ~GRAD
    try:
        results = function(*args, **kwargs)
    finally:
        mode.flags = before
    found = results if isinstance(results, tuple) else (results,)
    if len(found) != len(outs):
        raise ShapeError(f"{name}: expected {len(found)} tensors in out, got {len(outs)}")
    for o, result in zip(outs, found, strict=True):
        place(name, o, result)
    if out is outs and isinstance(results, tuple):
        return type(results)._make(outs) if hasattr(results, "_make") else tuple(outs)
    return out


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    for v in values:
        if isinstance(v, TensorImpl):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _tensors(v)


def place(name: str, out: Any, result: Any) -> None:
    """Nothing; copies `result` into `out`: cast to its dtype where the kind of number allows it, and `out`
    gets other memory where its shape differs, with a warning unless it was empty.
    """
    array = result.array
    if out.backend is not result.backend:
        raise DeviceError(
            f"{name}: the result is on {result.backend.device} and out on {out.backend.device}; give an out "
            "on the device of the inputs"
        )
    if category(array.dtype) > category(out.array.dtype):
        raise DtypeError(
            f"{name}: a result of {array.dtype.name} cannot be stored in an out of {out.array.dtype.name}; "
            f"give an out of {array.dtype.name}"
        )
    if out.array.shape == array.shape:
        check_writable(out, name)
        out.backend.quietly(out.array.__setitem__, ..., array)
        out.storage.version += 1
        return
    if out.array.size:
        warnings.warn(
            f"{name}: out has shape {tuple(out.array.shape)} and the result {tuple(array.shape)}; out gets "
            "new memory. Give an out of the result's shape, or an empty one",
            UserWarning,
            stacklevel=4,
        )
    backend, version = out.backend, out.storage.version
    out.storage = Storage(backend.quietly(backend.xp.array, array, dtype=out.array.dtype), backend)
    out.storage.version, out.base = version + 1, None
