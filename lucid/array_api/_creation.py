"""New tensors by the standard's signatures."""

from __future__ import annotations

from typing import Any

from ..functional import convert as _v
from ..functional import creation as _c
from ..functional import join as _j
from ..storage.dtype import as_dtype, get_default_dtype
from ..tensor import Tensor
from .linalg import tril_triu

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """`obj` (numbers, nested sequences, arrays) as a tensor; copied only where needed, or as `copy` says."""
    if copy and isinstance(obj, Tensor):
        out = _v.as_tensor(obj, dtype, device)
        return out.clone() if out is obj else out
    return _v.asarray(obj, dtype=dtype, device=device, copy=copy)


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """start, start + step, ... before `stop`; empty where the step leads away from it."""
    start, stop = (0, start) if stop is None else (start, stop)
    if (stop - start) * step < 0:
        whole = all(isinstance(v, int) for v in (start, stop, step))
        start, stop, step = (0, 0, 1) if whole else (0.0, 0.0, 1.0)
    return _c.arange(start, stop, step, dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros."""
    return _c.zeros(_size(shape), dtype=dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones."""
    return _c.ones(_size(shape), dtype=dtype, device=device)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Whatever the memory holds."""
    return _c.empty(_size(shape), dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`fill_value` everywhere."""
    return _c.full(_size(shape), fill_value, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros of x's shape, dtype and device."""
    return _c.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones of x's shape, dtype and device."""
    return _c.ones_like(x, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Memory of x's shape, dtype and device."""
    return _c.empty_like(x, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """`fill_value` in x's shape, dtype and device."""
    return _c.full_like(x, fill_value, dtype=dtype, device=device)


def _size(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Tensor:
    """Ones on the k-th diagonal of [n_rows, n_cols], zeros elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    rows, cols = _c.arange(n_rows, device=device), _c.arange(columns, device=device)
    on = rows.reshape(n_rows, 1) + k == cols.reshape(1, columns)
    return on.to(dtype=get_default_dtype() if dtype is None else as_dtype(dtype))


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` numbers at equal distances from start to stop, which is left out without `endpoint`."""
    if endpoint:
        return _c.linspace(start, stop, num, dtype=dtype, device=device)
    return _c.linspace(start, stop, num + 1, dtype=dtype, device=device)[:-1]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """One grid per vector; "xy": the first two dimensions are exchanged against "ij"."""
    return list(_j.meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The last two dimensions' elements on and below the k-th diagonal."""
    return tril_triu("tril", x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The last two dimensions' elements on and above the k-th diagonal."""
    return tril_triu("triu", x, k)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of `x`, an object with `__dlpack__`; a copy on another device or with `copy`."""
    out = _v.from_dlpack(x)
    moved = out if device is None else out.to(device)
    if copy is False and moved is not out:
        raise ValueError(f"from_dlpack: copy=False, but {out.device} to {moved.device} needs a copy")
    return moved.clone() if copy and moved is out else moved
