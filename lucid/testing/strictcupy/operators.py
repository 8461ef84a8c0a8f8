"""Operators and methods of `ndarray` that are functions of the module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .array import SCALARS, is_scalar, ndarray
from .state import api, names

_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "matmul": "matmul",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
    "divmod": "divmod",
}
_UNARY = {"neg": "negative", "abs": "absolute", "invert": "invert", "pos": "positive"}
_METHODS = names(
    """
    sum prod mean var std max min argmax argmin all any cumsum cumprod ravel take dot clip round conj
    conjugate nonzero repeat argsort argpartition trace diagonal choose compress searchsorted
    """
)


def _operator(
    name: str, f: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    def forward(self: ndarray, other: Any) -> Any:
        if (
            type(other) is not ndarray
            and not isinstance(other, (np.ndarray, *SCALARS))
            and not is_scalar(other)
        ):
            return NotImplemented
        return f(self, other)

    def reverse(self: ndarray, other: Any) -> Any:
        return f(other, self)

    def inplace(self: ndarray, other: Any) -> Any:
        return f(self, other, out=self)

    return forward, reverse, inplace


def _unary(f: Callable[..., Any]) -> Callable[[ndarray], Any]:
    return lambda self: f(self)


def install_operators(module: Any, check_call: Callable[..., None]) -> None:
    """Gives `ndarray` the operators and methods of cupy.ndarray, as calls of the functions of `module`."""
    methods = api()["classes"]["cupy.ndarray"]
    for op, name in _BINARY.items():
        fwd, rev, inp = _operator(op, getattr(module, name))
        for dunder, fn in ((f"__{op}__", fwd), (f"__r{op}__", rev), (f"__i{op}__", inp)):
            if dunder in methods and not (op in ("lt", "le", "gt", "ge", "eq", "ne") and fn is not fwd):
                fn.__name__ = dunder
                setattr(ndarray, dunder, fn)
    for op, name in _UNARY.items():
        setattr(ndarray, f"__{op}__", _unary(getattr(module, name)))
    for name in _METHODS:
        if name in methods:
            setattr(ndarray, name, _method(name, module, methods[name], check_call))


def _method(
    name: str, module: Any, parameters: list[str] | None, check_call: Callable[..., None]
) -> Callable[..., Any]:
    if name == "conj" or name == "conjugate":
        return lambda self: module.conjugate(self) if self.dtype.kind == "c" else self
    f = getattr(module, name)

    def method(self: ndarray, *args: Any, **kw: Any) -> Any:
        if parameters:
            check_call(f"ndarray.{name}", parameters, (self, *args), kw)
        return f(self, *args, **kw)

    method.__name__ = name
    return method
