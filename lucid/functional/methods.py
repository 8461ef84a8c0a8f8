"""What the ops give to `Tensor`: methods, operators, in-place forms, conversions, from literal tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..autograd import inplace as _inplace
from ..autograd.record import recorder
from ..ops.registry import OPS, Op
from ..tensor import Tensor

_OPERATORS = {
    "add": ("__add__", "__radd__"),
    "sub": ("__sub__",),
    "mul": ("__mul__", "__rmul__"),
    "div": ("__truediv__",),
    "neg": ("__neg__",),
    "pow": ("__pow__",),
    "abs": ("__abs__",),
    "matmul": ("__matmul__",),
    "eq": ("__eq__",),
    "ne": ("__ne__",),
    "lt": ("__lt__",),
    "le": ("__le__",),
    "gt": ("__gt__",),
    "ge": ("__ge__",),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "bitwise_not": ("__invert__",),
    "left_shift": ("__lshift__",),
    "right_shift": ("__rshift__",),
}
_INPLACE_OPERATORS = {
    "__iadd__": "add",
    "__isub__": "sub",
    "__imul__": "mul",
    "__itruediv__": "div",
    "__ipow__": "pow",
    "__iand__": "bitwise_and",
    "__ior__": "bitwise_or",
    "__ixor__": "bitwise_xor",
    "__ifloordiv__": "floor_divide",
    "__imod__": "remainder",
}


_CONVERSIONS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16",
    "long": "int64", "int": "int32", "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool",
    "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip


def _conversion(name: str, dtype: str) -> Callable[[Tensor], Tensor]:
    def convert(self: Tensor, memory_format: Any = None) -> Tensor:
        return self.to(dtype=dtype)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = (
        f"The tensor in {dtype}; itself when it has that dtype already.\n\n"
        f">>> import lucid\n>>> lucid.tensor([1]).{name}().dtype.name\n{dtype!r}"
    )
    return convert


for _name, _dtype in _CONVERSIONS.items():
    setattr(Tensor, _name, _conversion(_name, _dtype))


class LazyMethod:
    """Stands for an op's method until its first use: generating all recorders at import would cost 60 ms."""

    __slots__ = ("name", "make")

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self.make = name, make

    def __get__(self, instance: Any, owner: Any) -> Any:
        function = self.make()
        if vars(Tensor).get(self.name) is self:
            setattr(Tensor, self.name, function)
        return function if instance is None else function.__get__(instance, owner)


def _written(op: Op) -> Callable[..., Any]:
    return _inplace.method(recorder(op), f"{op.name}_")


def attach() -> None:
    """Nothing; gives `Tensor` the methods and operators of the ops."""
    for op in OPS.values():
        if op.method and op.method not in vars(Tensor):
            setattr(Tensor, op.method, LazyMethod(op.method, partial(recorder, op)))
        if op.inplace and f"{op.name}_" not in vars(Tensor):
            setattr(Tensor, f"{op.name}_", LazyMethod(f"{op.name}_", partial(_written, op)))
    for name, methods in _OPERATORS.items():
        for m in methods:
            # Python calls x.__radd__(y) for y + x; these ops are symmetric, so both are the op itself.
            setattr(Tensor, m, LazyMethod(m, partial(recorder, OPS[name])))
    for m, name in _INPLACE_OPERATORS.items():
        setattr(Tensor, m, LazyMethod(m, partial(_written, OPS[name])))


attach()
