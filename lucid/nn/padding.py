"""Padding layers.

Sizes are (left, right), (left, right, top, bottom), ... from the last dimension on; a number pads all sides.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..tensor import Tensor
from . import functional as F
from .conv import tuple_of
from .module import Module


class _Pad(Module):
    nd: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = tuple_of(2 * self.nd, padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


_ROWS = {1: "lucid.tensor([[1.0, 2.0, 3.0]])", 2: "lucid.zeros(1, 3, 3)", 3: "lucid.zeros(1, 3, 3, 3)"}


def _layer(nd: int, base: type[_Pad], name: str, mode: str, does: str, result: str) -> type[_Pad]:
    space = "[N, C, L]", "[N, C, H, W]", "[N, C, D, H, W]"
    arguments = "1, 7.0" if base is _ConstantPad else "1"
    call = f">>> lucid.nn.{name}{nd}d({arguments})({_ROWS[nd]})"
    example = f"{call}\n{result}" if nd == 1 else f"{call}.shape\n{(1, *[5] * nd)}"
    doc = (
        f"The input {space[nd - 1]}, or without batch, {does}.\n\n"
        "padding: a number for all sides, or (low, high) of each dimension, the last one first.\n\n"
        f">>> import lucid\n{example}"
    )
    return type(f"{name}{nd}d", (base,), {"nd": nd, "mode": mode, "__doc__": doc, "__module__": __name__})


_CONSTANT = (_ConstantPad, "ConstantPad", "constant", "padded with `value`", "tensor([[7., 1., 2., 3., 7.]])")
ConstantPad1d = _layer(1, *_CONSTANT)
ConstantPad2d = _layer(2, *_CONSTANT)
ConstantPad3d = _layer(3, *_CONSTANT)
_ZERO = (_ZeroPad, "ZeroPad", "constant", "padded with zeros", "tensor([[0., 1., 2., 3., 0.]])")
ZeroPad1d = _layer(1, *_ZERO)
ZeroPad2d = _layer(2, *_ZERO)
ZeroPad3d = _layer(3, *_ZERO)
_REFLECTION = (_Pad, "ReflectionPad", "reflect", "mirrored at the border elements",
               "tensor([[2., 1., 2., 3., 2.]])")
ReflectionPad1d = _layer(1, *_REFLECTION)
ReflectionPad2d = _layer(2, *_REFLECTION)
ReflectionPad3d = _layer(3, *_REFLECTION)
_REPLICATION = (_Pad, "ReplicationPad", "replicate", "padded with the border elements",
                "tensor([[1., 1., 2., 3., 3.]])")
ReplicationPad1d = _layer(1, *_REPLICATION)
ReplicationPad2d = _layer(2, *_REPLICATION)
ReplicationPad3d = _layer(3, *_REPLICATION)
_CIRCULAR = (_Pad, "CircularPad", "circular", "padded as if it were periodic",
             "tensor([[3., 1., 2., 3., 1.]])")
CircularPad1d = _layer(1, *_CIRCULAR)
CircularPad2d = _layer(2, *_CIRCULAR)
CircularPad3d = _layer(3, *_CIRCULAR)
