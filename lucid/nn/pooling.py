"""Pooling layers."""

from __future__ import annotations

from typing import Any, ClassVar

from ..tensor import Tensor
from . import functional as F
from ._table import REQUIRED, FunctionModule
from .conv import tuple_of


class _Pool(FunctionModule):
    # The stride is the kernel size where none is given; `nd` makes tuples of sizes, where PyTorch does.
    nd: ClassVar[int | None] = None
    kernel_size: Any
    stride: Any
    padding: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.stride is None:
            self.stride = self.kernel_size
        if self.nd is not None:
            sizes = (self.kernel_size, self.stride, self.padding)
            self.kernel_size, self.stride, self.padding = (tuple_of(self.nd, v) for v in sizes)


_MAX: dict[str, Any] = {"kernel_size": REQUIRED, "stride": None, "padding": 0, "dilation": 1,
                        "return_indices": False, "ceil_mode": False}
_MAX_SHOWN = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
_AVG: dict[str, Any] = {"kernel_size": REQUIRED, "stride": None, "padding": 0, "ceil_mode": False,
                        "count_include_pad": True}
_AVG_SHOWN = ("kernel_size", "stride", "padding")


class MaxPool1d(_Pool, function="max_pool1d", shown=_MAX_SHOWN, **_MAX):
    """The maximum over windows of [N, C, L]; with return_indices, (maxima, their places)."""


class MaxPool2d(_Pool, function="max_pool2d", shown=_MAX_SHOWN, **_MAX):
    """The maximum over windows of [N, C, H, W]; with return_indices, (maxima, their places)."""


class MaxPool3d(_Pool, function="max_pool3d", shown=_MAX_SHOWN, **_MAX):
    """The maximum over windows of [N, C, D, H, W]; with return_indices, (maxima, their places)."""


class AvgPool1d(_Pool, function="avg_pool1d", shown=_AVG_SHOWN, **_AVG):
    """The mean over windows of [N, C, L]."""

    nd = 1


class AvgPool2d(_Pool, function="avg_pool2d", shown=_AVG_SHOWN, **_AVG, divisor_override=None):
    """The mean over windows of [N, C, H, W]; `divisor_override` replaces the window's size as divisor."""


class AvgPool3d(_Pool, function="avg_pool3d", shown=_AVG_SHOWN, **_AVG, divisor_override=None):
    """The mean over windows of [N, C, D, H, W]."""


class LPPool1d(FunctionModule, function="lp_pool1d", norm_type=REQUIRED, kernel_size=REQUIRED, stride=None,
               ceil_mode=False):
    """The p-norm over windows of [N, C, L]."""


class LPPool2d(FunctionModule, function="lp_pool2d", norm_type=REQUIRED, kernel_size=REQUIRED, stride=None,
               ceil_mode=False):
    """The p-norm over windows of [N, C, H, W]."""


class LPPool3d(FunctionModule, function="lp_pool3d", norm_type=REQUIRED, kernel_size=REQUIRED, stride=None,
               ceil_mode=False):
    """The p-norm over windows of [N, C, D, H, W]."""


class AdaptiveAvgPool1d(FunctionModule, function="adaptive_avg_pool1d", output_size=REQUIRED):
    """The mean over as many windows of [N, C, L] as `output_size` says."""


class AdaptiveAvgPool2d(FunctionModule, function="adaptive_avg_pool2d", output_size=REQUIRED):
    """The mean over windows of [N, C, H, W] such that the output has `output_size` (None keeps a size)."""


class AdaptiveAvgPool3d(FunctionModule, function="adaptive_avg_pool3d", output_size=REQUIRED):
    """The mean over windows of [N, C, D, H, W] such that the output has `output_size`."""


class AdaptiveMaxPool1d(FunctionModule, function="adaptive_max_pool1d", shown=("output_size",),
                        output_size=REQUIRED, return_indices=False):
    """The maximum over as many windows of [N, C, L] as `output_size` says."""


class AdaptiveMaxPool2d(FunctionModule, function="adaptive_max_pool2d", shown=("output_size",),
                        output_size=REQUIRED, return_indices=False):
    """The maximum over windows of [N, C, H, W] such that the output has `output_size`."""


class AdaptiveMaxPool3d(FunctionModule, function="adaptive_max_pool3d", shown=("output_size",),
                        output_size=REQUIRED, return_indices=False):
    """The maximum over windows of [N, C, D, H, W] such that the output has `output_size`."""


class _Unpool(_Pool):
    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return getattr(F, self.function)(input, indices, self.kernel_size, self.stride, self.padding,
                                         output_size)


class MaxUnpool1d(_Unpool, function="max_unpool1d", kernel_size=REQUIRED, stride=None, padding=0):
    """Maxima put back to the places that MaxPool1d gave; zeros elsewhere."""

    nd = 1


class MaxUnpool2d(_Unpool, function="max_unpool2d", kernel_size=REQUIRED, stride=None, padding=0):
    """Maxima put back to the places that MaxPool2d gave; zeros elsewhere."""

    nd = 2


class MaxUnpool3d(_Unpool, function="max_unpool3d", kernel_size=REQUIRED, stride=None, padding=0):
    """Maxima put back to the places that MaxPool3d gave; zeros elsewhere."""

    nd = 3
