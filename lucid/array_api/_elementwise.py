"""Element by element, from tables: the standard's name and the op that computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.record import RECORDED as F
from ..storage.dtype import category
from ..tensor import Tensor
from ._dtypes import result_type, together

_UNARY = {
    "abs": "abs",
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atanh": "atanh",
    "bitwise_invert": "bitwise_not",
    "cos": "cos",
    "cosh": "cosh",
    "exp": "exp",
    "expm1": "expm1",
    "isfinite": "isfinite",
    "isinf": "isinf",
    "isnan": "isnan",
    "log": "log",
    "log1p": "log1p",
    "log2": "log2",
    "log10": "log10",
    "logical_not": "logical_not",
    "negative": "neg",
    "reciprocal": "reciprocal",
    "sign": "sgn",
    "signbit": "signbit",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "square": "square",
    "tan": "tan",
    "tanh": "tanh",
}
# Integers are their own floor, ceil, trunc and round; real numbers their own conjugate and real part.
_WHOLE = {"ceil": "ceil", "floor": "floor", "round": "round", "trunc": "trunc"}
_BINARY = {
    "add": "add",
    "atan2": "atan2",
    "bitwise_and": "bitwise_and",
    "bitwise_left_shift": "left_shift",
    "bitwise_or": "bitwise_or",
    "bitwise_right_shift": "right_shift",
    "bitwise_xor": "bitwise_xor",
    "copysign": "copysign",
    "divide": "div",
    "equal": "eq",
    "floor_divide": "floor_divide",
    "greater": "gt",
    "greater_equal": "ge",
    "hypot": "hypot",
    "less": "lt",
    "less_equal": "le",
    "logaddexp": "logaddexp",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
    "logical_xor": "logical_xor",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "mul",
    "nextafter": "nextafter",
    "not_equal": "ne",
    "pow": "pow",
    "remainder": "remainder",
    "subtract": "sub",
}

__all__ = [*_UNARY, *_WHOLE, *_BINARY, "clip", "conj", "imag", "positive", "real"]  # noqa: PLE0604


def _unary(name: str, op: str) -> Callable[..., Tensor]:
    def function(x: Tensor, /) -> Tensor:
        return getattr(F, op)(x)

    return _named(function, name, f"`lucid.{op}` of each element of `x`.")


def _whole(name: str, op: str) -> Callable[..., Tensor]:
    def function(x: Tensor, /) -> Tensor:
        return F.clone(x) if category(x.dtype) < 2 else getattr(F, op)(x)

    return _named(function, name, f"`lucid.{op}` of each element of `x`; integers stay as they are.")


def _binary(name: str, op: str) -> Callable[..., Tensor]:
    def function(x1: Tensor | complex, x2: Tensor | complex, /) -> Tensor:
        return getattr(F, op)(*together(x1, x2))

    return _named(function, name, f"`lucid.{op}` of x1 and x2, broadcast; one may be a Python number.")


def _named(function: Callable[..., Tensor], name: str, doc: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


globals().update({name: _unary(name, op) for name, op in _UNARY.items()})
globals().update({name: _whole(name, op) for name, op in _WHOLE.items()})
globals().update({name: _binary(name, op) for name, op in _BINARY.items()})


def positive(x: Tensor, /) -> Tensor:
    """A copy of `x`."""
    return F.clone(x)


def conj(x: Tensor, /) -> Tensor:
    """The complex conjugate."""
    return F.conj(x) if x.is_complex() else F.clone(x)


def real(x: Tensor, /) -> Tensor:
    """The real part."""
    return F.real(x) if x.is_complex() else F.clone(x)


def imag(x: Tensor, /) -> Tensor:
    """The imaginary part of a complex tensor."""
    return F.imag(x)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """`x` held between `min` and `max` (tensors, numbers or None), in x's dtype."""
    out = x
    for bound, op in ((min, "maximum"), (max, "minimum")):
        if bound is not None:
            beside = result_type(x, bound)
            out = getattr(F, op)(*together(out, bound))
            out = out if beside == x.dtype else F.cast(out, x.dtype)
    return F.clone(x) if out is x else out
