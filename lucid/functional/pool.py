"""Pooling under PyTorch's names, argument orders and defaults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import ShapeError
from ..ops.interpolate import longest_window
from ..tensor import Tensor
from .conv import Size, sizes
from .registry import public


def _check(name: str, x: Tensor, n: int) -> None:
    if x.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"{name}: expected an input [batch, channels, {n} sizes] or [channels, {n} sizes], got shape "
            f"{x.shape}; "
            "add or remove dimensions with unsqueeze or squeeze"
        )


def _max_pool(
    name: str,
    n: int,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    _check(name, x, n)
    kernel = sizes(name, "kernel_size", kernel_size, n)
    stride = kernel if stride is None or stride == () or stride == [] else sizes(name, "stride", stride, n)
    padding, dilation = sizes(name, "padding", padding, n), sizes(name, "dilation", dilation, n)
    out, window = F.max_pool(x, kernel, stride, padding, dilation, ceil_mode)
    if not return_indices:
        return out
    return out, F.max_pool_index(window, x.shape[x.ndim - n :], kernel, stride, padding, dilation)


@public("max_pool1d", "nn.functional.max_pool1d")
def max_pool1d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window over one dimension; arguments and errors as of `max_pool2d`.

    x: [batch, channels, length] or without batch.

    >>> import lucid
    >>> lucid.max_pool1d(lucid.tensor([[1.0, 3.0, 2.0, 4.0]]), 2)
    tensor([[3., 4.]])
    """
    return _max_pool("max_pool1d", 1, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@public("max_pool2d", "nn.functional.max_pool2d")
def max_pool2d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window over two dimensions.

    x: [batch, channels, height, width] or without batch. stride: the kernel's size when None. The padding
    never wins; NaN does. The gradient goes to the first of equal elements. return_indices: also its place in
    the flattened image, int64. Each size becomes (size + 2 * padding - dilation * (kernel - 1) - 1) // stride
    + 1, rounded up with `ceil_mode`. Raises ShapeError for windows that do not fit.

    >>> import lucid
    >>> lucid.max_pool2d(lucid.tensor([[[1., 2.], [4., 3.]]]), 2)
    tensor([[[4.]]])
    """
    return _max_pool("max_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@public("max_pool3d", "nn.functional.max_pool3d")
def max_pool3d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window over three dimensions; arguments and errors as of `max_pool2d`.

    x: [batch, channels, depth, height, width] or without batch.

    >>> import lucid
    >>> lucid.max_pool3d(lucid.ones(1, 4, 4, 4), 2).shape
    (1, 2, 2, 2)
    """
    return _max_pool("max_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _with_indices(n: int) -> None:
    name = f"max_pool{n}d_with_indices"

    def pool(
        x: Tensor,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        ceil_mode: bool = False,
        return_indices: bool = True,
    ) -> Any:
        return _max_pool(name, n, x, kernel_size, stride, padding, dilation, ceil_mode, True)

    pool.__name__, pool.__doc__ = name, (
        f"(values, indices): `max_pool{n}d` with `return_indices`.\n\n>>> import lucid\n"
        f">>> values, indices = lucid.nn.functional.{name}(lucid.ones{(1, *[2] * n)}, 2)\n"
        f">>> indices.shape\n{(1, *[1] * n)}"
    )
    public(*((name,) if n == 1 else ()), f"nn.functional.{name}")(pool)


for _n in (1, 2, 3):
    _with_indices(_n)


def _avg_pool(
    name: str,
    n: int,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    _check(name, x, n)
    kernel = sizes(name, "kernel_size", kernel_size, n)
    stride = kernel if stride is None or stride == () or stride == [] else sizes(name, "stride", stride, n)
    if divisor_override == 0:
        raise ShapeError(
            f"{name}: divisor_override must not be 0; leave it None to divide by the number of cells"
        )
    return F.avg_pool(
        x,
        kernel,
        stride,
        sizes(name, "padding", padding, n),
        ceil_mode,
        count_include_pad,
        divisor_override or 0,
    )


@public("avg_pool1d", "nn.functional.avg_pool1d")
def avg_pool1d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window over one dimension; arguments and errors as of `nn.functional.avg_pool2d`.

    x: [batch, channels, length] or without batch.

    >>> import lucid
    >>> lucid.avg_pool1d(lucid.tensor([[1.0, 3.0, 2.0, 4.0]]), 2)
    tensor([[2., 3.]])
    """
    return _avg_pool("avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@public("nn.functional.avg_pool2d")
def avg_pool2d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window over two dimensions.

    x: [batch, channels, height, width] or without batch. stride: the kernel's size when None.
    count_include_pad: whether padding counts as zeros. divisor_override: divides the sum instead of the
    number of cells. Sizes as of `max_pool2d`. Raises ShapeError for windows that do not fit and a divisor of
    0.

    >>> import lucid
    >>> lucid.nn.functional.avg_pool2d(lucid.tensor([[[1.0, 2.0], [4.0, 3.0]]]), 2)
    tensor([[[2.5]]])
    """
    return _avg_pool(
        "avg_pool2d", 2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@public("nn.functional.avg_pool3d")
def avg_pool3d(
    x: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window over three dimensions; arguments and errors as of `avg_pool2d`.

    x: [batch, channels, depth, height, width] or without batch.

    >>> import lucid
    >>> lucid.nn.functional.avg_pool3d(lucid.ones(1, 4, 4, 4), 2).shape
    (1, 2, 2, 2)
    """
    return _avg_pool(
        "avg_pool3d", 3, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _lp_pool(
    name: str, n: int, x: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Tensor:
    kernel = sizes(name, "kernel_size", kernel_size, n)
    if not norm_type:
        raise ShapeError(f"{name}: norm_type must not be 0; the mean of powers 0 has no root")
    if math.isinf(norm_type):
        sign = math.copysign(1.0, norm_type)
        pooled = _max_pool(f"max_pool{n}d", n, F.abs(x) * sign, kernel, stride, 0, 1, ceil_mode, False)
        return pooled * sign
    cells = 1
    for k in kernel:
        cells *= k
    mean = _avg_pool(name, n, F.pow(x, float(norm_type)), kernel, stride, 0, ceil_mode, True, None)
    # An odd power of negative numbers: the sum's sign is kept off the root, as PyTorch does.
    total = F.sign(mean) * F.relu(F.abs(mean)) * float(cells)
    zero = F.eq(total, 0.0)  # where the root has no derivative, the gradient is 0
    return F.where(zero, 0.0, F.pow(F.where(zero, 1.0, total), 1.0 / norm_type))


@public("nn.functional.lp_pool1d")
def lp_pool1d(
    x: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum x^p)^(1/p) of each window over one dimension, p = norm_type; sizes as of `max_pool2d`.

    >>> import lucid
    >>> lucid.nn.functional.lp_pool1d(lucid.tensor([[3.0, 4.0]]), 2, kernel_size=2)
    tensor([[5.]])
    """
    return _lp_pool("lp_pool1d", 1, x, norm_type, kernel_size, stride, ceil_mode)


@public("nn.functional.lp_pool2d")
def lp_pool2d(
    x: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum x^p)^(1/p) of each window over two dimensions, p = norm_type; sizes as of `max_pool2d`.

    >>> import lucid
    >>> lucid.nn.functional.lp_pool2d(lucid.ones(1, 2, 2), 2, kernel_size=2)
    tensor([[[2.]]])
    """
    return _lp_pool("lp_pool2d", 2, x, norm_type, kernel_size, stride, ceil_mode)


@public("nn.functional.lp_pool3d")
def lp_pool3d(
    x: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum x^p)^(1/p) of each window over three dimensions, p = norm_type; sizes as of `max_pool2d`.

    >>> import lucid
    >>> lucid.nn.functional.lp_pool3d(lucid.ones(1, 4, 4, 4), 2, kernel_size=2).shape
    (1, 2, 2, 2)
    """
    return _lp_pool("lp_pool3d", 3, x, norm_type, kernel_size, stride, ceil_mode)


# ---- adaptive pooling ----


def _targets(name: str, n: int, x: Tensor, output_size: Any) -> tuple[int, ...]:
    _check(name, x, n)
    own = x.shape[x.ndim - n :]
    if output_size is None or isinstance(output_size, int):
        output_size = (output_size,) * n
    if len(output_size) == 1:
        output_size = tuple(output_size) * n
    if len(output_size) != n:
        raise ShapeError(
            f"{name}: output_size must be an int or {n} ints (None keeps a size), got {output_size}"
        )
    target = tuple(m if o is None else int(o) for o, m in zip(output_size, own, strict=True))
    if min(target) < 0 or not all(own):
        raise ShapeError(
            f"{name}: expected a non-empty input and an output_size that is not negative, got {x.shape} and "
            f"{output_size}"
        )
    return target


def _adaptive_avg(name: str, n: int, x: Tensor, output_size: Any) -> Tensor:
    target = _targets(name, n, x, output_size)
    own = x.shape[x.ndim - n :]
    if all(target) and not any(m % t for m, t in zip(own, target, strict=True)):
        kernel = tuple(m // t for m, t in zip(own, target, strict=True))
        return F.avg_pool(x, kernel, kernel, (0,) * n)
    for axis, (m, t) in enumerate(zip(own, target, strict=True)):
        if m != t:
            x = F.resample_beside(x, x.ndim - n + axis, ("area", m, t))
    return x


@public("adaptive_avg_pool1d", "nn.functional.adaptive_avg_pool1d")
def adaptive_avg_pool1d(x: Tensor, output_size: Size) -> Tensor:
    """The means of `output_size` windows that share one dimension evenly; see `adaptive_avg_pool2d`.

    x: [batch, channels, length] or without batch.

    >>> import lucid
    >>> lucid.adaptive_avg_pool1d(lucid.tensor([[1.0, 3.0, 2.0, 4.0]]), 2)
    tensor([[2., 3.]])
    """
    return _adaptive_avg("adaptive_avg_pool1d", 1, x, output_size)


@public("nn.functional.adaptive_avg_pool2d")
def adaptive_avg_pool2d(x: Tensor, output_size: int | None | Sequence[int | None]) -> Tensor:
    """The means of windows that share each dimension evenly.

    Window i of m over n cells is [floor(i n / m), ceil((i + 1) n / m)). x: [batch, channels, height, width]
    or without batch. output_size: an int for both, or two; None keeps a size. Raises ShapeError for another
    number of sizes, negative ones and an empty input.

    >>> import lucid
    >>> lucid.nn.functional.adaptive_avg_pool2d(lucid.ones(1, 3, 7, 9), (2, None)).shape
    (1, 3, 2, 9)
    """
    return _adaptive_avg("adaptive_avg_pool2d", 2, x, output_size)


@public("nn.functional.adaptive_avg_pool3d")
def adaptive_avg_pool3d(x: Tensor, output_size: int | None | Sequence[int | None]) -> Tensor:
    """The means of windows that share three dimensions evenly; see `adaptive_avg_pool2d`.

    >>> import lucid
    >>> lucid.nn.functional.adaptive_avg_pool3d(lucid.ones(1, 3, 7, 9, 5), 2).shape
    (1, 3, 2, 2, 2)
    """
    return _adaptive_avg("adaptive_avg_pool3d", 3, x, output_size)


def _adaptive_max(name: str, n: int, x: Tensor, output_size: Any, return_indices: bool) -> Any:
    target = _targets(name, n, x, output_size)
    own = x.shape[x.ndim - n :]
    if not all(target):
        out = _adaptive_avg(name, n, x, target)
        return (out, F.cast(F.detach(out), "int64")) if return_indices else out
    cells, uneven, wide = F.arange_cells(x, own) if return_indices else None, False, x
    kernel = tuple(longest_window(m, t) for m, t in zip(own, target, strict=True))
    for axis, (m, t, k) in enumerate(zip(own, target, kernel, strict=True)):
        if m != k * t:
            # Windows of different lengths or that overlap are written out side by side.
            wide, uneven = F.resample(wide, x.ndim - n + axis, ("spread", m, k * t, t)), True
            cells = F.resample(cells, axis, ("spread", m, k * t, t)) if return_indices else None
    size, zero, one = wide.shape[x.ndim - n :], (0,) * n, (1,) * n
    out, window = F.max_pool(wide, kernel, kernel, zero, one)
    if not return_indices:
        return out
    index = F.max_pool_index(window, size, kernel, kernel, zero, one)
    return out, F.take(cells, index) if uneven else index


def _define_adaptive_max(n: int) -> None:
    name = f"adaptive_max_pool{n}d"

    def adaptive_max_pool(x: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return _adaptive_max(name, n, x, output_size, return_indices)

    def with_indices(x: Tensor, output_size: Any, return_indices: bool = True) -> Any:
        return _adaptive_max(name, n, x, output_size, True)

    def example(function: str, shape: str) -> str:
        call = f">>> lucid.nn.functional.{function}(lucid.ones{(1, *[5] * n)}, 2){shape}"
        return f">>> import lucid\n{call}\n{(1, *[2] * n)}"

    adaptive_max_pool.__name__, with_indices.__name__ = name, f"{name}_with_indices"
    adaptive_max_pool.__doc__ = (
        f"The largest element of each of the windows that share {n} dimension{'s' * (n > 1)} evenly.\n\n"
        "Arguments and errors as of `adaptive_avg_pool2d`. return_indices: also its place in the flattened\n"
        f"input, int64.\n\n{example(name, '.shape')}"
    )
    with_indices.__doc__ = (
        f"(values, indices): `{name}` with `return_indices`.\n\n"
        f"{example(name + '_with_indices', '[1].shape')}"
    )
    public(*((name,) if n == 1 else ()), f"nn.functional.{name}")(adaptive_max_pool)
    public(f"nn.functional.{name}_with_indices")(with_indices)


for _n in (1, 2, 3):
    _define_adaptive_max(_n)


# ---- unpooling ----


def _unpool(
    name: str,
    n: int,
    x: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    output_size: Any,
) -> Tensor:
    _check(name, x, n)
    kernel = sizes(name, "kernel_size", kernel_size, n)
    stride = kernel if stride is None else sizes(name, "stride", stride, n)
    padding = sizes(name, "padding", padding, n)
    default = tuple(
        (m - 1) * s + k - 2 * p
        for m, s, k, p in zip(x.shape[x.ndim - n :], stride, kernel, padding, strict=True)
    )
    if min(kernel) < 1 or min(stride) < 1 or min(padding) < 0:
        raise ShapeError(
            f"{name}: kernel_size and stride must be positive and padding not negative, got {kernel}, "
            f"{stride} and {padding}"
        )
    if output_size is None:
        return F.max_unpool(x, indices, default)
    size = tuple(int(v) for v in output_size)[-n:]
    for have, want, s in zip(default, size, stride, strict=True):
        if not have - s < want < have + s:
            raise ShapeError(
                f"{name}: output_size {size} is not within one stride {stride} of {default}, the size that "
                "these windows cover; "
                "give the size of the pooled input"
            )
    return F.max_unpool(x, indices, size)


def _define_unpool(n: int) -> None:
    name = f"max_unpool{n}d"

    def max_unpool(
        x: Tensor,
        indices: Tensor,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        return _unpool(name, n, x, indices, kernel_size, stride, padding, output_size)

    max_unpool.__name__ = name
    max_unpool.__doc__ = (
        f"Zeros with each element of `x` at the place in the flattened {n}-d output that `indices` names.\n\n"
        f"indices: from `max_pool{n}d(return_indices=True)`. output_size: that of the pooled input, where\n"
        "the windows leave it open. Raises ShapeError for one that does not fit.\n\n"
        ">>> import lucid\n>>> F = lucid.nn.functional\n"
        f">>> x, indices = F.max_pool{n}d(lucid.ones{(1, *[4] * n)}, 2, return_indices=True)\n"
        f">>> F.max_unpool{n}d(x, indices, 2).shape\n{(1, *[4] * n)}"
    )
    public(f"nn.functional.{name}")(max_unpool)


for _n in (1, 2, 3):
    _define_unpool(_n)
