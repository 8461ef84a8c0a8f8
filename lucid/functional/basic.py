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
    """A copy of `x` with the same history: gradients flow to `x`.

    x: any shape and dtype. memory_format is accepted and not used.

    >>> import lucid
    >>> x = lucid.tensor([1.0, 2.0])
    >>> y = x.clone()
    >>> y.add_(1), x
    (tensor([2., 3.]), tensor([1., 2.]))
    """
    return F.clone(x)


@public()
def detach(x: Tensor) -> Tensor:
    """The data of `x` without history; shares memory and version with `x`.

    >>> import lucid
    >>> x = lucid.tensor([1.0], requires_grad=True)
    >>> lucid.detach(x).requires_grad
    False
    """
    return x.detach()


@public()
def numel(x: Tensor) -> int:
    """The number of elements of `x`.

    >>> import lucid
    >>> lucid.numel(lucid.zeros(2, 3))
    6
    """
    return x.numel()


@public()
def is_floating_point(x: Tensor) -> bool:
    """Whether `x` has a real floating dtype.

    >>> import lucid
    >>> lucid.is_floating_point(lucid.tensor([1.0])), lucid.is_floating_point(lucid.tensor([1j]))
    (True, False)
    """
    return x.is_floating_point()


@public()
def is_complex(x: Tensor) -> bool:
    """Whether `x` has a complex dtype.

    >>> import lucid
    >>> lucid.is_complex(lucid.tensor([1j]))
    True
    """
    return x.is_complex()


@public()
def promote_types(a: Any, b: Any) -> Any:
    """The dtype of an operation on tensors of dtypes `a` and `b` (PyTorch's rules).

    >>> import lucid
    >>> lucid.promote_types(lucid.int64, lucid.float16)
    dtype('float16')
    """
    return _promote_types(as_dtype(a), as_dtype(b))


@public()
def result_type(a: Any, b: Any) -> Any:
    """The dtype of an operation on `a` and `b`, tensors or numbers (PyTorch's rules).

    A 0-d tensor or a number raises the dtype of a tensor with dimensions only when it is of a higher kind
    (bool, integer, float, complex).

    >>> import lucid
    >>> lucid.result_type(lucid.tensor([1, 2]), 1.5)
    dtype('float32')
    """
    return _result_type(
        [(v.dtype, 2 if v.ndim else 1) if isinstance(v, Tensor) else (as_dtype(type(v)), 0) for v in (a, b)]
    )


@public()
def can_cast(from_: Any, to: Any) -> bool:
    """Whether a value of dtype `from_` may be stored in dtype `to` by an in-place operation.

    Within a kind (bool, integer, float, complex) and upwards: float64 to float32 may, float to integer not.

    >>> import lucid
    >>> lucid.can_cast(lucid.float64, lucid.float32), lucid.can_cast(lucid.float32, lucid.int64)
    (True, False)
    """
    return category(as_dtype(from_)) <= category(as_dtype(to))


# ---- limits of dtypes ----


class FloatInfo:
    """The limits of a floating dtype as Python floats.

    bits, eps, max, min, tiny, smallest_normal, resolution, dtype. Made by `finfo`.

    >>> import lucid
    >>> lucid.finfo(lucid.float16).max
    65504.0
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
    """The limits of an integer dtype: bits, max, min, dtype. Made by `iinfo`.

    >>> import lucid
    >>> lucid.iinfo(lucid.int8)
    iinfo(min=-128, max=127, dtype=int8)
    """

    __slots__ = ("bits", "max", "min", "dtype")

    def __init__(self, dtype: Any) -> None:
        info = np.iinfo(dtype)
        self.bits, self.max, self.min, self.dtype = info.bits, int(info.max), int(info.min), dtype.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


@public()
def finfo(dtype: Any = None) -> FloatInfo:
    """The limits of a floating (or complex) dtype; of the default dtype when None.

    Raises DtypeError for other dtypes.

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
    """The limits of an integer dtype. Raises DtypeError for other dtypes.

    >>> import lucid
    >>> lucid.iinfo(lucid.int16).max
    32767
    """
    dtype = as_dtype(dtype)
    if category(dtype) != 1:
        raise DtypeError(f"iinfo: expected an integer dtype, got {dtype.name}; use finfo")
    return IntInfo(dtype)
