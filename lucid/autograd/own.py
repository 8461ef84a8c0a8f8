"""When a gradient's buffer may be kept as it is, and when it must be copied."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import DeviceError
from ..storage.backend import device_of

getrefcount = sys.getrefcount


def own(g: Any, backend: Any, like: Any) -> Any:
    """An array that nobody else holds, with the dtype and shape of `like`: `g` itself when that is
    true of it, else a copy.

    Copying every gradient would cost a pass over all parameters per step; a reference count tells that the
    caller holds the only reference (`_SOLE` is that count, measured by calling this function once at import,
    so it follows the interpreter's version).
    """
    if (
        type(g) is backend.ndarray
        and g.dtype is like.dtype
        and getrefcount(g) <= _SOLE
        and g.base is None
        and g.flags.c_contiguous
    ):
        return g
    if type(g) is not backend.ndarray and device_of(g) != backend.device:
        raise DeviceError(
            f"accumulate_grad: expected a gradient on {backend.device}, got one on {device_of(g)}; move it "
            f"with .to({str(backend.device)!r})"
        )
    if like.dtype.kind != "c" and g.dtype.kind == "c":
        g = g.real
    return backend.xp.array(g, dtype=like.dtype, order="C", copy=True)


_SOLE = -1


def _calibrate() -> int:
    import numpy as np

    class Backend:
        ndarray, xp = np.ndarray, np

    def caller(box: list[Any], like: Any) -> Any:
        g = box.pop()
        return own(g, Backend, like)

    # The smallest limit for which a sole owner's buffer is kept, in a frame like AccumulateGrad.write's.
    global _SOLE
    like = np.zeros(2, np.float32)
    for limit in range(1, 10):
        _SOLE = limit
        box = [np.ones(2, np.float32)]
        address = box[0].ctypes.data
        keep = np.ones(2, np.float32)  # would be reused for the copy only if the first were freed
        if caller(box, like).ctypes.data == address and keep is not None:
            return limit
    return -1


_SOLE = _calibrate()
