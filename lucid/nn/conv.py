"""Convolutions and transposed convolutions in one to three dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..errors import ShapeError
from ..tensor import Tensor
from . import functional as F
from . import init
from ._make import empty_parameter
from .lazy import LazyModuleMixin
from .module import Module
from .parameter import UninitializedParameter

Size = int | Sequence[int]

_MODES = ("zeros", "reflect", "replicate", "circular")


def tuple_of(n: int, value: Any) -> tuple[int, ...]:
    """`value` as `n` numbers: repeated if it is one."""
    value = tuple(value) if isinstance(value, (tuple, list)) else (value,) * n
    if len(value) != n:
        raise ShapeError(f"expected one number or {n}, got {value}")
    return value


class _ConvNd(Module):
    """What the convolutions share: sizes, parameters, and their initial values."""

    nd: ClassVar[int]
    weight: Any
    bias: Any
    transposed: ClassVar[bool] = False

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size,
                 padding: Size | str, dilation: Size, output_padding: Size, groups: int, bias: bool,
                 padding_mode: str, device: Any, dtype: Any) -> None:
        super().__init__()
        name, n = type(self).__name__, self.nd
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise ShapeError(f"{name}: in_channels={in_channels} and out_channels={out_channels} must be "
                             f"multiples of groups={groups}")
        if padding_mode not in _MODES or (self.transposed and padding_mode != "zeros"):
            raise ShapeError(f"{name}: padding_mode must be "
                             f"{'zeros' if self.transposed else 'one of ' + ', '.join(_MODES)}, got "
                             f"{padding_mode!r}")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ShapeError(f"{name}: padding must be a number, a tuple, 'same' or 'valid', got {padding!r}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.groups, self.padding_mode = groups, padding_mode
        self.kernel_size, self.stride, self.dilation = (tuple_of(n, v)
                                                        for v in (kernel_size, stride, dilation))
        self.output_padding = tuple_of(n, output_padding)
        self.padding: Any = padding if isinstance(padding, str) else tuple_of(n, padding)
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ShapeError(f"{name}: padding='same' needs stride 1, got {self.stride}")
        self._border = self._border_sizes()
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        self.weight = empty_parameter((first, second // groups, *self.kernel_size), device, dtype)
        self.register_parameter("bias", empty_parameter((out_channels,), device, dtype) if bias else None)
        self.reset_parameters()

    def _border_sizes(self) -> list[int]:
        # For F.pad: last dimension first, (low, high) of each.
        sizes: list[int] = []
        for i in reversed(range(self.nd)):
            if self.padding == "valid":
                sizes += [0, 0]
            elif self.padding == "same":
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                sizes += [total // 2, total - total // 2]
            else:
                sizes += [self.padding[i], self.padding[i]]
        return sizes

    def reset_parameters(self) -> None:
        """Nothing; draws the parameters anew: uniform in +-1 / sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def _conv(self, function: Any, input: Tensor) -> Tensor:
        if self.padding_mode == "zeros":
            return function(input, self.weight, self.bias, self.stride, self.padding, self.dilation,
                            self.groups)
        input = F.pad(input, self._border, mode=self.padding_mode)
        return function(input, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}"
        text += f", kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self.nd:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.nd:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * self.nd:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class _Conv(_ConvNd):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1,
                 padding: Size | str = 0, dilation: Size = 1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", device: Any = None, dtype: Any = None) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias,
                         padding_mode, device, dtype)


class Conv1d(_Conv):
    """Cross-correlation [N, in, L] -> [N, out, L']; weight [out, in / groups, k].

    L' = (L + 2 padding - dilation (k - 1) - 1) // stride + 1. Formula and errors: `nn.functional.conv2d`.
    weight and bias are uniform in +-1 / sqrt(in / groups * k) at first. padding_mode: "zeros", "reflect",
    "replicate" or "circular".

    >>> import lucid
    >>> lucid.nn.Conv1d(3, 8, kernel_size=3, stride=2)(lucid.zeros(2, 3, 9)).shape
    (2, 8, 4)
    """

    nd = 1

    def forward(self, input: Tensor) -> Tensor:
        return self._conv(F.conv1d, input)


class Conv2d(_Conv):
    """Cross-correlation [N, in, H, W] -> [N, out, H', W']; weight [out, in / groups, kh, kw].

    Sizes and arguments as of Conv1d. Raises ShapeError for channels that do not fit groups or the input.

    >>> import lucid
    >>> lucid.nn.Conv2d(3, 8, kernel_size=3, padding=1)(lucid.zeros(2, 3, 5, 5)).shape
    (2, 8, 5, 5)
    """

    nd = 2

    def forward(self, input: Tensor) -> Tensor:
        return self._conv(F.conv2d, input)


class Conv3d(_Conv):
    """Cross-correlation [N, in, D, H, W] -> [N, out, D', H', W']; weight [out, in / groups, kd, kh, kw].

    Sizes and arguments as of Conv1d.

    >>> import lucid
    >>> lucid.nn.Conv3d(3, 8, kernel_size=3)(lucid.zeros(2, 3, 5, 5, 5)).shape
    (2, 8, 3, 3, 3)
    """

    nd = 3

    def forward(self, input: Tensor) -> Tensor:
        return self._conv(F.conv3d, input)


class _ConvTranspose(_ConvNd):
    transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1,
                 padding: Size = 0, output_padding: Size = 0, groups: int = 1, bias: bool = True,
                 dilation: Size = 1, padding_mode: str = "zeros", device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding,
                         groups, bias, padding_mode, device, dtype)

    def _extra(self, input: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        # The output padding that gives `output_size`, or the layer's own.
        if output_size is None:
            return self.output_padding
        n = self.nd
        wanted = tuple(output_size)[-n:]
        sizes = input.shape[-n:]
        least = [(sizes[i] - 1) * self.stride[i] - 2 * self.padding[i] + self.dilation[i]
                 * (self.kernel_size[i] - 1) + 1 for i in range(n)]
        if len(wanted) != n or any(not a <= b < a + s for a, b,
                                   s in zip(least, wanted, self.stride, strict=True)):
            raise ShapeError(f"{type(self).__name__}: output_size must lie between {least} and "
                             f"{[a + s - 1 for a, s in zip(least, self.stride, strict=True)]}, got "
                             f"{list(wanted)}")
        return tuple(b - a for a, b in zip(least, wanted, strict=True))

    def _apply_conv(self, function: Any, input: Tensor, output_size: Sequence[int] | None) -> Tensor:
        return function(input, self.weight, self.bias, self.stride, self.padding,
                        self._extra(input, output_size), self.groups, self.dilation)


class ConvTranspose1d(_ConvTranspose):
    """The adjoint of a cross-correlation: [N, in, L] -> [N, out, L']; weight [in, out / groups, k].

    L' = (L - 1) stride - 2 padding + dilation (k - 1) + output_padding + 1; or forward's output_size, which
    must lie within one stride of it.

    >>> import lucid
    >>> lucid.nn.ConvTranspose1d(3, 8, kernel_size=3, stride=2)(lucid.zeros(2, 3, 4)).shape
    (2, 8, 9)
    """

    nd = 1

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._apply_conv(F.conv_transpose1d, input, output_size)


class ConvTranspose2d(_ConvTranspose):
    """The adjoint of a cross-correlation: [N, in, H, W] -> [N, out, H', W'].

    weight: [in, out / groups, kh, kw]. Sizes as of ConvTranspose1d.

    >>> import lucid
    >>> up = lucid.nn.ConvTranspose2d(3, 8, kernel_size=3, stride=2, padding=1)
    >>> up(lucid.zeros(2, 3, 4, 4), output_size=(8, 8)).shape
    (2, 8, 8, 8)
    """

    nd = 2

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._apply_conv(F.conv_transpose2d, input, output_size)


class ConvTranspose3d(_ConvTranspose):
    """The adjoint of a cross-correlation: [N, in, D, H, W] -> [N, out, D', H', W'].

    weight: [in, out / groups, kd, kh, kw]. Sizes as of ConvTranspose1d.

    >>> import lucid
    >>> lucid.nn.ConvTranspose3d(3, 8, kernel_size=3)(lucid.zeros(2, 3, 4, 4, 4)).shape
    (2, 8, 6, 6, 6)
    """

    nd = 3

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self._apply_conv(F.conv_transpose3d, input, output_size)


class _LazyConv(LazyModuleMixin):
    """Takes `in_channels` from the first input."""

    def __init__(self, out_channels: int, kernel_size: Size, *args: Any, bias: bool = True,
                 device: Any = None, dtype: Any = None, **kwargs: Any) -> None:
        # Sizes as if there were as many input channels as groups; the weight has no shape until the first
        # call.
        groups = kwargs.get("groups", args[_GROUPS_AT] if len(args) > _GROUPS_AT else 1)
        super().__init__(groups, out_channels, kernel_size, *args, bias=False, **kwargs)
        self.in_channels = 0
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def initialize_parameters(self: Any, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Nothing; gives the parameters their shapes."""
        self.in_channels = input.shape[-self.nd - 1]
        if self.in_channels % self.groups:
            raise ShapeError(f"{type(self).__name__}: the input's {self.in_channels} channels must be a "
                             f"multiple of groups={self.groups}")
        if not self.has_uninitialized_params():
            return
        first, second = (self.in_channels, self.out_channels) if self.transposed else (self.out_channels,
                                                                                       self.in_channels)
        self.weight.materialize((first, second // self.groups, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


# Where `groups` stands behind kernel_size: (stride, padding, dilation, groups) and (stride, padding,
# output_padding, groups).
_GROUPS_AT = 3


class LazyConv1d(_LazyConv, Conv1d):
    """A Conv1d that takes `in_channels` from its first input.

    >>> import lucid
    >>> lucid.nn.LazyConv1d(8, kernel_size=3)(lucid.zeros(2, 3, 9)).shape
    (2, 8, 7)
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A Conv2d that takes `in_channels` from its first input.

    >>> import lucid
    >>> layer = lucid.nn.LazyConv2d(8, kernel_size=3)
    >>> layer(lucid.zeros(2, 3, 5, 5)).shape, layer.in_channels
    ((2, 8, 3, 3), 3)
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A Conv3d that takes `in_channels` from its first input.

    >>> import lucid
    >>> lucid.nn.LazyConv3d(8, kernel_size=3)(lucid.zeros(2, 3, 5, 5, 5)).shape
    (2, 8, 3, 3, 3)
    """

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConv, ConvTranspose1d):
    """A ConvTranspose1d that takes `in_channels` from its first input.

    >>> import lucid
    >>> lucid.nn.LazyConvTranspose1d(8, kernel_size=3)(lucid.zeros(2, 3, 5)).shape
    (2, 8, 7)
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConv, ConvTranspose2d):
    """A ConvTranspose2d that takes `in_channels` from its first input.

    >>> import lucid
    >>> lucid.nn.LazyConvTranspose2d(8, kernel_size=3)(lucid.zeros(2, 3, 5, 5)).shape
    (2, 8, 7, 7)
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConv, ConvTranspose3d):
    """A ConvTranspose3d that takes `in_channels` from its first input.

    >>> import lucid
    >>> lucid.nn.LazyConvTranspose3d(8, kernel_size=3)(lucid.zeros(2, 3, 5, 5, 5)).shape
    (2, 8, 7, 7, 7)
    """

    cls_to_become = ConvTranspose3d
