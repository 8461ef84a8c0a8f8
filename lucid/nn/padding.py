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


def _layer(name: str, base: type[_Pad], nd: int, mode: str, doc: str) -> type[_Pad]:
    return type(name, (base,), {"nd": nd, "mode": mode, "__doc__": doc, "__module__": __name__})


ConstantPad1d = _layer("ConstantPad1d", _ConstantPad, 1, "constant", "Pads [N, C, L] with `value`.")
ConstantPad2d = _layer("ConstantPad2d", _ConstantPad, 2, "constant", "Pads [N, C, H, W] with `value`.")
ConstantPad3d = _layer("ConstantPad3d", _ConstantPad, 3, "constant", "Pads [N, C, D, H, W] with `value`.")
ZeroPad1d = _layer("ZeroPad1d", _ZeroPad, 1, "constant", "Pads [N, C, L] with zeros.")
ZeroPad2d = _layer("ZeroPad2d", _ZeroPad, 2, "constant", "Pads [N, C, H, W] with zeros.")
ZeroPad3d = _layer("ZeroPad3d", _ZeroPad, 3, "constant", "Pads [N, C, D, H, W] with zeros.")
ReflectionPad1d = _layer("ReflectionPad1d", _Pad, 1, "reflect",
                         "Pads [N, C, L] by reflection at the border element.")
ReflectionPad2d = _layer("ReflectionPad2d", _Pad, 2, "reflect",
                         "Pads [N, C, H, W] by reflection at the border elements.")
ReflectionPad3d = _layer("ReflectionPad3d", _Pad, 3, "reflect",
                         "Pads [N, C, D, H, W] by reflection at the border elements.")
ReplicationPad1d = _layer("ReplicationPad1d", _Pad, 1, "replicate", "Pads [N, C, L] with the border element.")
ReplicationPad2d = _layer("ReplicationPad2d", _Pad, 2, "replicate",
                          "Pads [N, C, H, W] with the border elements.")
ReplicationPad3d = _layer("ReplicationPad3d", _Pad, 3, "replicate",
                          "Pads [N, C, D, H, W] with the border elements.")
CircularPad1d = _layer("CircularPad1d", _Pad, 1, "circular", "Pads [N, C, L] as if it were periodic.")
CircularPad2d = _layer("CircularPad2d", _Pad, 2, "circular", "Pads [N, C, H, W] as if it were periodic.")
CircularPad3d = _layer("CircularPad3d", _Pad, 3, "circular", "Pads [N, C, D, H, W] as if it were periodic.")
