"""Copies, casts and questions about tensors."""

from __future__ import annotations

from typing import Any

from ..autograd.record import RECORDED as F
from ..storage.dtype import as_dtype, category
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
