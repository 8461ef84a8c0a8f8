"""Pooling layers."""

from __future__ import annotations

from typing import Any, ClassVar

from ..errors import ShapeError
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
    """The maximum over windows of [N, C, L]; with return_indices, (maxima, their places).

    stride: kernel_size when None. Sizes and errors: `nn.functional.max_pool2d`.

    >>> import lucid
    >>> lucid.nn.MaxPool1d(2)(lucid.tensor([[1.0, 3.0, 2.0, 4.0]]))
    tensor([[3., 4.]])
    """


class MaxPool2d(_Pool, function="max_pool2d", shown=_MAX_SHOWN, **_MAX):
    """The maximum over windows of [N, C, H, W]; with return_indices, (maxima, their places).

    stride: kernel_size when None. Sizes and errors: `nn.functional.max_pool2d`.

    >>> import lucid
    >>> lucid.nn.MaxPool2d(2)(lucid.zeros(1, 3, 4, 4)).shape
    (1, 3, 2, 2)
    """


class MaxPool3d(_Pool, function="max_pool3d", shown=_MAX_SHOWN, **_MAX):
    """The maximum over windows of [N, C, D, H, W]; with return_indices, (maxima, their places).

    stride: kernel_size when None. Sizes and errors: `nn.functional.max_pool2d`.

    >>> import lucid
    >>> lucid.nn.MaxPool3d(2)(lucid.zeros(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """


class AvgPool1d(_Pool, function="avg_pool1d", shown=_AVG_SHOWN, **_AVG):
    """The mean over windows of [N, C, L]. stride: kernel_size when None.

    >>> import lucid
    >>> lucid.nn.AvgPool1d(2)(lucid.tensor([[1.0, 3.0, 2.0, 4.0]]))
    tensor([[2., 3.]])
    """

    nd = 1


class AvgPool2d(_Pool, function="avg_pool2d", shown=_AVG_SHOWN, **_AVG, divisor_override=None):
    """The mean over windows of [N, C, H, W]; `divisor_override` replaces the window's size as divisor.

    >>> import lucid
    >>> lucid.nn.AvgPool2d(2)(lucid.zeros(1, 3, 4, 4)).shape
    (1, 3, 2, 2)
    """


class AvgPool3d(_Pool, function="avg_pool3d", shown=_AVG_SHOWN, **_AVG, divisor_override=None):
    """The mean over windows of [N, C, D, H, W]. stride: kernel_size when None.

    >>> import lucid
    >>> lucid.nn.AvgPool3d(2)(lucid.zeros(1, 3, 4, 4, 4)).shape
    (1, 3, 2, 2, 2)
    """


class LPPool1d(FunctionModule, function="lp_pool1d", norm_type=REQUIRED, kernel_size=REQUIRED, stride=None,
               ceil_mode=False):
    """The p-norm over windows of [N, C, L], p = norm_type.

    >>> import lucid
    >>> lucid.nn.LPPool1d(2, kernel_size=2)(lucid.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """


class LPPool2d(FunctionModule, function="lp_pool2d", norm_type=REQUIRED, kernel_size=REQUIRED, stride=None,
               ceil_mode=False):
    """The p-norm over windows of [N, C, H, W], p = norm_type.

    >>> import lucid
    >>> lucid.nn.LPPool2d(2, kernel_size=2)(lucid.ones(1, 1, 2, 2))
    tensor([[[[2.]]]])
    """


class LPPool3d(FunctionModule, function="lp_pool3d", norm_type=REQUIRED, kernel_size=REQUIRED, stride=None,
               ceil_mode=False):
    """The p-norm over windows of [N, C, D, H, W], p = norm_type.

    >>> import lucid
    >>> lucid.nn.LPPool3d(2, kernel_size=2)(lucid.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """


class AdaptiveAvgPool1d(FunctionModule, function="adaptive_avg_pool1d", output_size=REQUIRED):
    """The mean over as many windows of [N, C, L] as `output_size` says.

    >>> import lucid
    >>> lucid.nn.AdaptiveAvgPool1d(2)(lucid.tensor([[1.0, 3.0, 2.0, 4.0]]))
    tensor([[2., 3.]])
    """


class AdaptiveAvgPool2d(FunctionModule, function="adaptive_avg_pool2d", output_size=REQUIRED):
    """The mean over windows of [N, C, H, W] such that the output has `output_size` (None keeps a size).

    >>> import lucid
    >>> lucid.nn.AdaptiveAvgPool2d((1, None))(lucid.zeros(1, 3, 7, 9)).shape
    (1, 3, 1, 9)
    """


class AdaptiveAvgPool3d(FunctionModule, function="adaptive_avg_pool3d", output_size=REQUIRED):
    """The mean over windows of [N, C, D, H, W] such that the output has `output_size`.

    >>> import lucid
    >>> lucid.nn.AdaptiveAvgPool3d(1)(lucid.zeros(1, 3, 7, 9, 5)).shape
    (1, 3, 1, 1, 1)
    """


class AdaptiveMaxPool1d(FunctionModule, function="adaptive_max_pool1d", shown=("output_size",),
                        output_size=REQUIRED, return_indices=False):
    """The maximum over as many windows of [N, C, L] as `output_size` says.

    >>> import lucid
    >>> lucid.nn.AdaptiveMaxPool1d(2)(lucid.tensor([[1.0, 3.0, 2.0, 4.0]]))
    tensor([[3., 4.]])
    """


class AdaptiveMaxPool2d(FunctionModule, function="adaptive_max_pool2d", shown=("output_size",),
                        output_size=REQUIRED, return_indices=False):
    """The maximum over windows of [N, C, H, W] such that the output has `output_size`.

    >>> import lucid
    >>> lucid.nn.AdaptiveMaxPool2d((1, None))(lucid.zeros(1, 3, 7, 9)).shape
    (1, 3, 1, 9)
    """


class AdaptiveMaxPool3d(FunctionModule, function="adaptive_max_pool3d", shown=("output_size",),
                        output_size=REQUIRED, return_indices=False):
    """The maximum over windows of [N, C, D, H, W] such that the output has `output_size`.

    >>> import lucid
    >>> lucid.nn.AdaptiveMaxPool3d(1)(lucid.zeros(1, 3, 7, 9, 5)).shape
    (1, 3, 1, 1, 1)
    """


class _Unpool(_Pool):
    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return getattr(F, self.function)(input, indices, self.kernel_size, self.stride, self.padding,
                                         output_size)


class MaxUnpool1d(_Unpool, function="max_unpool1d", kernel_size=REQUIRED, stride=None, padding=0):
    """Maxima put back to the places that MaxPool1d gave; zeros elsewhere.

    forward(input, indices, output_size=None); output_size: where the windows leave it open.

    >>> import lucid
    >>> values, indices = lucid.nn.MaxPool1d(2, return_indices=True)(lucid.tensor([[1.0, 3.0, 2.0, 4.0]]))
    >>> lucid.nn.MaxUnpool1d(2)(values, indices)
    tensor([[0., 3., 0., 4.]])
    """

    nd = 1


class MaxUnpool2d(_Unpool, function="max_unpool2d", kernel_size=REQUIRED, stride=None, padding=0):
    """Maxima put back to the places that MaxPool2d gave; zeros elsewhere. See MaxUnpool1d.

    >>> import lucid
    >>> pooled = lucid.nn.MaxPool2d(2, return_indices=True)(lucid.ones(1, 3, 4, 4))
    >>> lucid.nn.MaxUnpool2d(2)(*pooled).shape
    (1, 3, 4, 4)
    """

    nd = 2


class MaxUnpool3d(_Unpool, function="max_unpool3d", kernel_size=REQUIRED, stride=None, padding=0):
    """Maxima put back to the places that MaxPool3d gave; zeros elsewhere. See MaxUnpool1d.

    >>> import lucid
    >>> pooled = lucid.nn.MaxPool3d(2, return_indices=True)(lucid.ones(1, 3, 4, 4, 4))
    >>> lucid.nn.MaxUnpool3d(2)(*pooled).shape
    (1, 3, 4, 4, 4)
    """

    nd = 3


_FRACTIONAL: dict[str, Any] = {"kernel_size": REQUIRED, "output_size": None, "output_ratio": None,
                               "return_indices": False, "_random_samples": None}


class _Fractional(FunctionModule):
    nd: ClassVar[int]
    kernel_size: Any
    output_size: Any
    output_ratio: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kernel_size = tuple_of(self.nd, self.kernel_size)
        if self.output_size is not None:
            self.output_size = tuple_of(self.nd, self.output_size)
        if self.output_ratio is not None:
            self.output_ratio = tuple_of(self.nd, self.output_ratio)
        if (self.output_size is None) == (self.output_ratio is None):
            raise ShapeError(f"{type(self).__name__}: expected one of output_size and output_ratio, got "
                             f"output_size={self.output_size} and output_ratio={self.output_ratio}")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ShapeError(f"{type(self).__name__}: expected an output_ratio in (0, 1), got "
                             f"{self.output_ratio}")
        # A buffer, so that .to() moves it and a state_dict holds it.
        self.register_buffer("_random_samples", self.__dict__.pop("_random_samples"))

    def forward(self, *inputs: Tensor) -> Any:
        return getattr(F, self.function)(*inputs, **{n: getattr(self, n) for n in self.passed})


class FractionalMaxPool2d(_Fractional, function="fractional_max_pool2d", shown=(), **_FRACTIONAL):
    """The maximum over windows at random places of [N, C, H, W]: `nn.functional.fractional_max_pool2d`.

    Either output_size or output_ratio (in (0, 1)) is given, else ShapeError.

    >>> import lucid
    >>> lucid.nn.FractionalMaxPool2d(2, output_ratio=0.5)(lucid.zeros(1, 3, 8, 8)).shape
    (1, 3, 4, 4)
    """

    nd = 2


class FractionalMaxPool3d(_Fractional, function="fractional_max_pool3d", shown=(), **_FRACTIONAL):
    """The maximum over windows at random places of [N, C, D, H, W]: `nn.functional.fractional_max_pool3d`.

    Either output_size or output_ratio (in (0, 1)) is given, else ShapeError.

    >>> import lucid
    >>> lucid.nn.FractionalMaxPool3d(2, output_size=2)(lucid.zeros(1, 3, 8, 8, 8)).shape
    (1, 3, 2, 2, 2)
    """

    nd = 3
