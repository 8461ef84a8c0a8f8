"""Copies, casts, dtypes and their limits, questions about tensors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..autograd.record import RECORDED as F
from ..errors import DtypeError
from ..storage.dtype import REAL_OF, as_dtype, bfloat16, category, get_default_dtype
from ..storage.dtype import promote_types as _promote_types
from ..storage.dtype import result_type as _result_type
from ..tensor import Tensor
from .registry import public


@public()
def clone(x: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy of `x` with the same history."""
    return F.clone(x)


@public()
def detach(x: Tensor) -> Tensor:
    """The data of `x` without history; shares memory."""
    return x.detach()


@public()
def numel(x: Tensor) -> int:
    """The number of elements of `x`."""
    return x.numel()


@public()
def is_floating_point(x: Tensor) -> bool:
    """Whether `x` has a real floating dtype."""
    return x.is_floating_point()


@public()
def is_complex(x: Tensor) -> bool:
    """Whether `x` has a complex dtype."""
    return x.is_complex()


@public()
def promote_types(a: Any, b: Any) -> Any:
    """The dtype of an operation on tensors of dtypes `a` and `b` (PyTorch's rules)."""
    return _promote_types(as_dtype(a), as_dtype(b))


@public()
def result_type(a: Any, b: Any) -> Any:
    """The dtype of an operation on `a` and `b`, tensors or numbers (PyTorch's rules)."""
    return _result_type(
        [(v.dtype, 2 if v.ndim else 1) if isinstance(v, Tensor) else (as_dtype(type(v)), 0) for v in (a, b)]
    )


@public()
def can_cast(from_: Any, to: Any) -> bool:
    """Whether a value of dtype `from_` may be stored in dtype `to` by an in-place operation."""
    return category(as_dtype(from_)) <= category(as_dtype(to))


# ---- limits of dtypes ----


class FloatInfo:
    """The limits of a floating dtype as Python floats: bits, eps, max, min, tiny, smallest_normal,
    resolution, dtype.
    """

    __slots__ = ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype")

    def __init__(self, dtype: Any) -> None:
        real: Any = REAL_OF.get(dtype, dtype)
        info: Any = ml_dtypes.finfo(real) if real == bfloat16 else np.finfo(real)
        self.bits, self.dtype = info.bits, real.name
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = float(info.resolution)

    def __repr__(self) -> str:
        return f"finfo({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


class IntInfo:
    """The limits of an integer dtype: bits, max, min, dtype."""

    __slots__ = ("bits", "max", "min", "dtype")

    def __init__(self, dtype: Any) -> None:
        info = np.iinfo(dtype)
        self.bits, self.max, self.min, self.dtype = info.bits, int(info.max), int(info.min), dtype.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


@public()
def finfo(dtype: Any = None) -> FloatInfo:
    """The limits of a floating (or complex) dtype; of the default dtype when None.

    >>> import lucid
    >>> lucid.finfo(lucid.bfloat16).eps
    0.0078125
    """
    dtype = get_default_dtype() if dtype is None else as_dtype(dtype)
    if category(dtype) < 2:
        raise DtypeError(f"finfo: expected a floating dtype, got {dtype.name}; use iinfo")
    return FloatInfo(dtype)


@public()
def iinfo(dtype: Any) -> IntInfo:
    """The limits of an integer dtype."""
    dtype = as_dtype(dtype)
    if category(dtype) != 1:
        raise DtypeError(f"iinfo: expected an integer dtype, got {dtype.name}; use finfo")
    return IntInfo(dtype)
