"""Resizing, and moving elements between channels and space."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from . import functional as F
from ._table import REQUIRED, FunctionModule
from .module import Module


class Upsample(Module):
    """The input [N, C, ...] resized to `size` or by `scale_factor`; see nn.functional.interpolate.

    >>> import lucid
    >>> lucid.nn.Upsample(scale_factor=2)(lucid.tensor([[[1.0, 3.0]]]))
    tensor([[[1., 1., 3., 3.]]])
    """

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
    """The input [N, C, H, W] resized by repeating the nearest element.

    >>> import lucid
    >>> lucid.nn.UpsamplingNearest2d(scale_factor=2)(lucid.tensor([[[[1.0, 3.0]]]]))
    tensor([[[[1., 1., 3., 3.],
              [1., 1., 3., 3.]]]])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """The input [N, C, H, W] resized by bilinear interpolation between corners.

    >>> import lucid
    >>> lucid.nn.UpsamplingBilinear2d(size=(1, 3))(lucid.tensor([[[[1.0, 3.0]]]]))
    tensor([[[[1., 2., 3.]]]])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(FunctionModule, function="pixel_shuffle", upscale_factor=REQUIRED):
    """[N, C r^2, H, W] -> [N, C, H r, W r] (Shi et al. 2016, arXiv:1609.05158).

    >>> import lucid
    >>> lucid.nn.PixelShuffle(2)(lucid.zeros(1, 12, 4, 4)).shape
    (1, 3, 8, 8)
    """


class PixelUnshuffle(FunctionModule, function="pixel_unshuffle", downscale_factor=REQUIRED):
    """[N, C, H r, W r] -> [N, C r^2, H, W]: the inverse of PixelShuffle.

    >>> import lucid
    >>> lucid.nn.PixelUnshuffle(2)(lucid.zeros(1, 3, 8, 8)).shape
    (1, 12, 4, 4)
    """


class ChannelShuffle(FunctionModule, function="channel_shuffle", groups=REQUIRED):
    """The channels of [N, C, ...] interleaved over groups (Zhang et al. 2017, arXiv:1707.01083).

    >>> import lucid
    >>> lucid.nn.ChannelShuffle(2)(lucid.arange(4).reshape(1, 4, 1)).flatten()
    tensor([0, 2, 1, 3])
    """


class Unfold(FunctionModule, function="unfold", kernel_size=REQUIRED, dilation=1, padding=0, stride=1):
    """The windows of [N, C, H, W] as columns: [N, C kh kw, windows].

    >>> import lucid
    >>> lucid.nn.Unfold(2)(lucid.zeros(1, 3, 4, 4)).shape
    (1, 12, 9)
    """


class Fold(FunctionModule, function="fold", output_size=REQUIRED, kernel_size=REQUIRED, dilation=1, padding=0,
           stride=1):
    """Windows summed back to [N, C, H, W]: the adjoint of Unfold.

    >>> import lucid
    >>> lucid.nn.Fold(output_size=3, kernel_size=2)(lucid.ones(1, 4, 4))
    tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]])
    """
