"""New parameters and buffers on a device."""

from __future__ import annotations

from typing import Any

from ..storage.backend import backend_of
from ..storage.dtype import as_dtype, get_default_dtype
from ..tensor import Parameter, Tensor, _wrap


def _new(make: str, shape: tuple[int, ...], device: Any, dtype: Any) -> Tensor:
    backend = backend_of(device)
    dtype = get_default_dtype() if dtype is None else as_dtype(dtype)
    return _wrap(getattr(backend.xp, make)(shape, dtype=dtype), backend)


def empty_parameter(shape: tuple[int, ...], device: Any = None, dtype: Any = None) -> Parameter:
    """A parameter whose values are not set."""
    return Parameter(_new("empty", tuple(shape), device, dtype))


def zeros(shape: tuple[int, ...], device: Any = None, dtype: Any = None) -> Tensor:
    """A tensor of zeros."""
    return _new("zeros", tuple(shape), device, dtype)


def ones(shape: tuple[int, ...], device: Any = None, dtype: Any = None) -> Tensor:
    """A tensor of ones."""
    return _new("ones", tuple(shape), device, dtype)
