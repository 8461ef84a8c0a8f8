"""Resizing, and moving elements between channels and space."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from . import functional as F
from ._table import REQUIRED, FunctionModule
from .module import Module


class Upsample(Module):
    """The input [N, C, ...] resized to `size` or by `scale_factor`; see nn.functional.interpolate."""

    def __init__(self, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                 align_corners: bool | None = None, recompute_scale_factor: bool | None = None) -> None:
        super().__init__()
        self.size, self.mode, self.align_corners = size, mode, align_corners
        if isinstance(scale_factor, (tuple, list)):
            self.scale_factor: Any = tuple(map(float, scale_factor))
        else:
            self.scale_factor = None if scale_factor is None else float(scale_factor)
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners,
                             recompute_scale_factor=self.recompute_scale_factor)

    def extra_repr(self) -> str:
        scaled = self.scale_factor is not None
        what = f"scale_factor={self.scale_factor!r}" if scaled else f"size={self.size!r}"
        return f"{what}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """The input resized by repeating the nearest element."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """The input resized by bilinear interpolation between corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(FunctionModule, function="pixel_shuffle", upscale_factor=REQUIRED):
    """[N, C r^2, H, W] -> [N, C, H r, W r] (Shi et al. 2016)."""


class PixelUnshuffle(FunctionModule, function="pixel_unshuffle", downscale_factor=REQUIRED):
    """[N, C, H r, W r] -> [N, C r^2, H, W]: the inverse of PixelShuffle."""


class ChannelShuffle(FunctionModule, function="channel_shuffle", groups=REQUIRED):
    """The channels of [N, C, ...] interleaved over groups (Zhang et al. 2018)."""


class Unfold(FunctionModule, function="unfold", kernel_size=REQUIRED, dilation=1, padding=0, stride=1):
    """The windows of [N, C, H, W] as columns: [N, C kh kw, windows]."""


class Fold(FunctionModule, function="fold", output_size=REQUIRED, kernel_size=REQUIRED, dilation=1, padding=0,
           stride=1):
    """Windows summed back to [N, C, H, W]: the adjoint of Unfold."""
