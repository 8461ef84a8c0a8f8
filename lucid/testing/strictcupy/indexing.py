"""Indices: from CuPy's to NumPy's, and the refusal of those whose effect on a device is undefined."""

from __future__ import annotations

from typing import Any

import numpy as np

from .state import COUNT, UndefinedOnDevice


def index(k: Any, shape: tuple[int, ...]) -> tuple[Any, bool]:
    """(the index for NumPy, whether it makes a copy); refuses arrays that point outside: CuPy wraps them."""
    parts = k if isinstance(k, tuple) else (k,)
    advanced, out, axis = False, [], 0
    n_axes = sum(_consumed(e) for e in parts)
    for e in parts:
        if e is Ellipsis:
            axis += len(shape) - n_axes
            out.append(e)
            continue
        a = e
        if hasattr(e, "_a"):
            if e._a.dtype.kind not in "biu":
                raise IndexError("arrays used as indices must be of integer or boolean type")
            a = e._a
        elif isinstance(e, (list, np.ndarray)):
            a = np.asarray(e, dtype=np.intp) if isinstance(e, list) and not e else np.asarray(e)
            COUNT.h2d_bytes += a.nbytes
        if isinstance(a, np.ndarray):
            advanced = True
            if a.dtype.kind in "iu" and a.size and axis < len(shape):
                check_range(a, shape[axis])
        elif isinstance(a, (bool, np.bool_)):
            advanced = True
        out.append(a)
        axis += _consumed(e)
    return (tuple(out) if isinstance(k, tuple) else out[0]), advanced


def _consumed(e: Any) -> int:
    if e is None or e is Ellipsis or isinstance(e, (bool, np.bool_)):
        return 0
    if getattr(e, "dtype", None) == np.bool_:
        return e.ndim
    return 1


def check_range(indices: np.ndarray, n: int) -> None:
    """Refuses indices outside [-n, n)."""
    if indices.size and (int(indices.max()) >= n or int(indices.min()) < -n):
        raise UndefinedOnDevice(
            f"an index array points outside an axis of length {n}: CuPy wraps it around without a word"
        )


def has_mask(k: Any) -> bool:
    return any(
        isinstance(e, np.ndarray) and e.dtype.kind == "b" for e in (k if isinstance(k, tuple) else (k,))
    )


def refuse_duplicates(k: Any, shape: tuple[int, ...]) -> None:
    """Writes of several values to one element: which one wins is undefined on the device."""
    if has_mask(k):
        return
    arrays = [e for e in (k if isinstance(k, tuple) else (k,)) if isinstance(e, np.ndarray)]
    n_axes = sum(_consumed(e) for e in (k if isinstance(k, tuple) else (k,)))
    flat: Any = 0
    axis = 0
    for e in k if isinstance(k, tuple) else (k,):
        if isinstance(e, np.ndarray):
            n = shape[axis]
            flat = (
                flat * n
                + np.broadcast_to(e % n if n else e, np.broadcast_shapes(*(a.shape for a in arrays))).ravel()
            )
        axis += len(shape) - n_axes if e is Ellipsis else _consumed(e)
    if np.unique(flat).size != np.size(flat):
        raise UndefinedOnDevice(
            "x[indices] = values with an index that occurs twice: which value wins is undefined in "
            "CuPy; use cupy.add.at, or indices without repetition"
        )
