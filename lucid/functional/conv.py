"""Convolutions under PyTorch's names, argument orders and defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..ops.conv import window_count
from ..tensor import Tensor
from .registry import public

Size = int | Sequence[int]


def sizes(name: str, argument: str, value: Any, n: int) -> tuple[int, ...]:
    """`value` as n ints: one int stands for all dimensions."""
    if isinstance(value, (tuple, list)):
        value = tuple(int(v) for v in value)
        if len(value) == 1:
            return value * n
        if len(value) != n:
            raise ShapeError(
                f"{name}: {argument} must be an int or {n} ints (one per spatial dimension), got {value}"
            )
        return value
    try:
        return (value.__index__(),) * n
    except AttributeError:
        raise DtypeError(f"{name}: {argument} must be an int or {n} ints, got {value!r}") from None


def batched(name: str, x: Tensor, n: int) -> tuple[Tensor, bool]:
    """`x` with a batch dimension, and whether it had one."""
    if x.ndim == n + 2:
        return x, True
    if x.ndim != n + 1:
        raise ShapeError(
            f"{name}: expected an input [batch, channels, {n} sizes] or [channels, {n} sizes], got shape "
            f"{x.shape}; "
            "add or remove dimensions with unsqueeze or squeeze"
        )
    return F.reshape(x, (1, *x.shape)), False


def unbatched(run: Callable[[Tensor], Tensor], name: str, x: Tensor, n: int) -> Tensor:
    """`run` on a batch, or on one sample."""
    x, has_batch = batched(name, x, n)
    out = run(x)
    return out if has_batch else F.reshape(out, out.shape[1:])


def _padding(
    name: str, padding: Any, kernel: Sequence[int], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding == "same":
        if max(stride) > 1:
            raise ShapeError(
                f"{name}: padding='same' needs stride 1, got {stride}; give the padding as numbers"
            )
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((t // 2, t - t // 2) for t in total)
    if isinstance(padding, str):
        raise ShapeError(f"{name}: padding must be 'same', 'valid' or numbers, got {padding!r}")
    pad = sizes(name, "padding", padding, len(kernel))
    if min(pad, default=0) < 0:
        raise ShapeError(
            f"{name}: padding must not be negative, got {pad}; cut the input with narrow instead"
        )
    return tuple((p, p) for p in pad)


def _settings(name: str, n: int, stride: Any, dilation: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    stride, dilation = sizes(name, "stride", stride, n), sizes(name, "dilation", dilation, n)
    if min(stride) < 1 or min(dilation) < 1:
        raise ShapeError(f"{name}: stride and dilation must be positive, got {stride} and {dilation}")
    return stride, dilation


def _conv(
    name: str,
    n: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    if weight.ndim != n + 2:
        raise ShapeError(f"{name}: expected a weight [out, in / groups, {n} sizes], got shape {weight.shape}")
    stride, dilation = _settings(name, n, stride, dilation)
    pad = _padding(name, padding, weight.shape[2:], stride, dilation)
    if x.ndim == n + 2:
        return F.convolution(x, weight, bias, stride, pad, dilation, groups)
    return unbatched(lambda v: F.convolution(v, weight, bias, stride, pad, dilation, groups), name, x, n)


def _transposed(
    name: str,
    n: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    if weight.ndim != n + 2:
        raise ShapeError(f"{name}: expected a weight [in, out / groups, {n} sizes], got shape {weight.shape}")
    stride, dilation = _settings(name, n, stride, dilation)
    pad, extra = sizes(name, "padding", padding, n), sizes(name, "output_padding", output_padding, n)
    if min(pad) < 0:
        raise ShapeError(f"{name}: padding must not be negative, got {pad}; pad the result instead")
    for e, s, d in zip(extra, stride, dilation, strict=True):
        if not 0 <= e < max(s, d):
            raise ShapeError(
                f"{name}: output_padding must be smaller than stride or dilation, got {extra} with stride "
                f"{stride} and "
                f"dilation {dilation}"
            )
    pairs = tuple((p, p - e) for p, e in zip(pad, extra, strict=True))
    return unbatched(lambda v: F.conv_transpose(v, weight, bias, stride, pairs, dilation, groups), name, x, n)


@public("conv1d", "nn.functional.conv1d")
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over one dimension; formula, arguments and errors as of `conv2d`.

    x: [batch, in, length] or [in, length]; weight: [out, in / groups, kernel]; bias: [out]. Returns [batch,
    out, length'].

    >>> import lucid
    >>> lucid.conv1d(lucid.tensor([[1.0, 2.0, 3.0, 4.0]]), lucid.tensor([[[1.0, -1.0]]]))
    tensor([[-1., -1., -1.]])
    """
    return _conv("conv1d", 1, x, weight, bias, stride, padding, dilation, groups)


@public("conv2d", "nn.functional.conv2d")
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over two dimensions:

    out[b, o, p] = bias[o] + sum over c, k of x[b, c, p * stride + k * dilation - padding] * weight[o, c, k].

    x: [batch, in, height, width] or [in, height, width]; weight: [out, in / groups, kernel height, kernel
    width]; bias: [out]. padding: zeros on both sides, 'valid' (none) or 'same' (output as large as the input;
    stride 1). Each size becomes (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1. Raises
    ShapeError for channels that do not fit.

    >>> import lucid
    >>> lucid.conv2d(lucid.ones(1, 1, 4, 4), lucid.ones(2, 1, 3, 3), padding=1).shape
    (1, 2, 4, 4)
    """
    return _conv("conv2d", 2, x, weight, bias, stride, padding, dilation, groups)


@public("conv3d", "nn.functional.conv3d")
def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation over three dimensions; formula, arguments and errors as of `conv2d`.

    x: [batch, in, depth, height, width] or without batch; weight: [out, in / groups, 3 kernel sizes]; bias:
    [out].

    >>> import lucid
    >>> lucid.conv3d(lucid.ones(1, 1, 4, 4, 4), lucid.ones(2, 1, 3, 3, 3)).shape
    (1, 2, 2, 2, 2)
    """
    return _conv("conv3d", 3, x, weight, bias, stride, padding, dilation, groups)


@public("conv_transpose1d", "nn.functional.conv_transpose1d")
def conv_transpose1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """Transposed convolution over one dimension; see `conv_transpose2d`.

    x: [batch, in, length] or without batch; weight: [in, out / groups, kernel]; bias: [out].

    >>> import lucid
    >>> lucid.conv_transpose1d(lucid.tensor([[1.0, 2.0]]), lucid.tensor([[[1.0, 10.0]]]), stride=2)
    tensor([[ 1., 10.,  2., 20.]])
    """
    return _transposed(
        "conv_transpose1d", 1, x, weight, bias, stride, padding, output_padding, groups, dilation
    )


@public("conv_transpose2d", "nn.functional.conv_transpose2d")
def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """Transposed convolution over two dimensions.

    Every cell of `x` adds its weighted copy of the kernel to the output.

    x: [batch, in, height, width] or without batch; weight: [in, out / groups, kernel height, kernel width];
    bias: [out]. Each size becomes (size - 1) * stride - 2 * padding + dilation * (kernel - 1) +
    output_padding + 1. It is the derivative of `conv2d` with respect to its input. Raises ShapeError for
    channels that do not fit.

    >>> import lucid
    >>> lucid.conv_transpose2d(lucid.ones(1, 2, 4, 4), lucid.ones(2, 3, 3, 3), stride=2).shape
    (1, 3, 9, 9)
    """
    return _transposed(
        "conv_transpose2d", 2, x, weight, bias, stride, padding, output_padding, groups, dilation
    )


@public("conv_transpose3d", "nn.functional.conv_transpose3d")
def conv_transpose3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """Transposed convolution over three dimensions; see `conv_transpose2d`.

    x: [batch, in, depth, height, width] or without batch; weight: [in, out / groups, 3 kernel sizes]; bias:
    [out].

    >>> import lucid
    >>> lucid.conv_transpose3d(lucid.ones(1, 1, 2, 2, 2), lucid.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 4, 4, 4)
    """
    return _transposed(
        "conv_transpose3d", 3, x, weight, bias, stride, padding, output_padding, groups, dilation
    )


@public("conv_tbc", "nn.functional.conv_tbc")
def conv_tbc(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """`conv1d` on [length, batch, channels] with a weight [kernel, in, out]: [length', batch, out].

    >>> import lucid
    >>> lucid.conv_tbc(lucid.ones(5, 1, 2), lucid.ones(3, 2, 4), lucid.zeros(4)).shape
    (3, 1, 4)
    """
    out = conv1d(F.permute(x, (1, 2, 0)), F.permute(weight, (2, 1, 0)), bias, padding=pad)
    return F.permute(out, (2, 0, 1))


def _images(name: str, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> list[tuple[int, ...]]:
    given = dict(kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)
    settings = {argument: sizes(name, argument, value, 2) for argument, value in given.items()}
    for argument, value in settings.items():
        if min(value) < (argument != "padding"):
            raise ShapeError(f"{name}: {argument} must be at least {int(argument != 'padding')}, got {value}")
    return [*settings.values()]


@public("nn.functional.unfold")
def unfold(x: Tensor, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> Tensor:
    """The sliding windows of images as columns (im2col).

    x: [batch, channels, height, width] or without batch. Returns [batch, channels * kernel height * kernel
    width, windows]. Raises ShapeError for windows that do not fit.

    >>> import lucid
    >>> lucid.nn.functional.unfold(lucid.arange(9.0).reshape(1, 3, 3), (2, 2))[:, 0]    # the first window
    tensor([0., 1., 3., 4.])
    """
    settings = _images("unfold", kernel_size, dilation, padding, stride)
    return unbatched(lambda v: F.im2col(v, *settings), "unfold", x, 2)


@public("nn.functional.fold")
def fold(
    x: Tensor, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
) -> Tensor:
    """Columns added back where `unfold` took them from (col2im).

    x: [batch, channels * prod(kernel_size), windows] or without batch. Returns [batch, channels,
    *output_size]. Cells that lie in several windows are summed. Raises ShapeError for columns that do not
    fit.

    >>> import lucid
    >>> lucid.nn.functional.fold(lucid.ones(1, 4, 4), output_size=3, kernel_size=2)
    tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]])
    """
    size = sizes("fold", "output_size", output_size, 2)
    settings = _images("fold", kernel_size, dilation, padding, stride)
    if min(window_count(size, settings[0], settings[3], tuple((p, p) for p in settings[2]), settings[1])) < 1:
        raise ShapeError(
            f"fold: no window of kernel_size {settings[0]} fits in output_size {size}; check padding and "
            "dilation"
        )
    return unbatched(lambda v: F.col2im(v, size, *settings), "fold", x, 1)
