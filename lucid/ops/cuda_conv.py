"""CUDA paths of convolutions: columns by kernel, products by `kernel.products`; see cuda_kernels.py.

The columns of up to 256 MB of samples are one matrix [depth, samples * cells] for one product, at a time.
Without groups the products are of two matrices, transposed or not, which cuBLAS takes as they lie and in 16
bits too; with groups they are a batch, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from ..kernel import calls_spatial as calls
from ..kernel import products
from ..kernel.launch import accumulator
from .common import Shape, is_low
from .conv import _GPU_BLOCK_BYTES, Pairs, _check, transposed_size, window_count
from .cuda_kernels import _solid, attempt, launch_for
from .registry import OPS


class _Settings:
    """What the three products of a convolution share: the sizes of its input and output, and its windows."""

    __slots__ = ("size", "count", "windows", "kernel", "groups", "depth", "plain")

    def __init__(
        self,
        size: Shape,
        count: Shape,
        kernel: Shape,
        stride: Shape,
        padding: Pairs,
        dilation: Shape,
        groups: int,
    ) -> None:
        self.size, self.count, self.kernel, self.groups = size, count, kernel, groups
        self.windows = (count, kernel, stride, tuple(low for low, _ in padding), dilation)
        self.depth = prod(kernel)
        # A kernel of one cell that sees every cell once: the input is its own columns.
        self.plain = self.depth == prod(stride) == 1 and size == count and not any(map(any, padding))

    def blocks(self, batch: int, channels: int, itemsize: int) -> Iterator[slice]:
        """Ranges of samples whose columns stay within the limit."""
        sample = channels * self.depth * prod(self.count) * itemsize
        step = max(1, _GPU_BLOCK_BYTES // max(sample, 1))
        return (slice(i, min(i + step, batch)) for i in range(0, batch, step))

    def columns(self, launch: Any, x: Any) -> Any:
        """[groups, depth of a group, samples * cells] of x [samples, channels, *size]."""
        cells = x.shape[0] * prod(self.count)
        if self.plain and x.shape[0] == 1:
            return x.reshape(self.groups, -1, cells)
        return calls.im2col(launch, x, *self.windows, True).reshape(self.groups, -1, cells)


def _product(launch: Any, a: Any, b: Any, shape: Shape) -> Any:
    """The products of two stacks of matrices [groups, n, k] and [groups, k, m], as an array of `shape`.

    Written into an array of that shape: a view would be copied where it becomes a leaf's gradient.
    """
    out = launch.empty(shape, a.dtype)
    stack = a.shape[:-2] if a.ndim > b.ndim else b.shape[:-2]
    products.matmul(a, b, out.reshape(*stack, a.shape[-2], b.shape[-1]))
    return out


def _gathered(xp: Any, y: Any, groups: int) -> Any:
    """[groups, channels of a group, samples * cells] of y [samples, channels, *count]: a copy unless it is
    one sample.
    """
    flat = y.reshape(*y.shape[:2], -1)
    if flat.shape[0] > 1:
        flat = xp.ascontiguousarray(flat.swapaxes(0, 1))
    return flat.reshape(groups, y.shape[1] // groups, -1)


def _scatter(xp: Any, y: Any, out: Any, bias: Any) -> None:
    """Nothing; writes y [groups, channels of a group, samples * cells], and the bias added, to out [samples,
    channels, *count].
    """
    flat = out.reshape(*out.shape[:2], -1)
    turned = y.reshape(out.shape[1], out.shape[0], -1).swapaxes(0, 1)
    if bias is None:
        flat[...] = turned
    else:
        xp.add(turned, bias[:, None], out=flat)


def _biased(out: Any, bias: Any) -> Any:
    """`out` [samples, channels, *sizes], to which the bias was added in place."""
    if bias is not None:
        out += bias.reshape(-1, *(1,) * (out.ndim - 2))
    return out


def _forward(launch: Any, x: Any, weight: Any, bias: Any, s: _Settings) -> Any:
    xp, batch = launch.xp, x.shape[0]
    w = weight.reshape(s.groups, weight.shape[0] // s.groups, -1)
    shape = (batch, weight.shape[0], *s.count)
    if batch == 1:
        return _biased(_product(launch, w, s.columns(launch, x), shape), bias)
    if s.plain and not is_low(x.dtype):
        return _biased(_product(launch, w, x.reshape(batch, s.groups, w.shape[2], -1), shape), bias)
    out = launch.empty(shape, x.dtype)
    for part in s.blocks(batch, x.shape[1], x.dtype.itemsize):
        columns = s.columns(launch, x[part])
        y = _product(launch, w, columns, (s.groups, w.shape[1], columns.shape[2]))
        _scatter(xp, y, out[part], bias)
    return out


def _backward_x(launch: Any, y: Any, weight: Any, bias: Any, s: _Settings) -> Any:
    # y [batch, channels, *count] -> [batch, ..., *size]: the transposed convolution.
    xp, batch, channels = launch.xp, y.shape[0], weight.shape[1] * s.groups
    w = weight.reshape(s.groups, weight.shape[0] // s.groups, -1).swapaxes(1, 2)
    shape = (batch, channels, *s.size)
    if s.plain and batch == 1:
        return _biased(_product(launch, w, y.reshape(s.groups, w.shape[2], -1), shape), bias)
    if s.plain and not is_low(y.dtype):
        return _biased(_product(launch, w, y.reshape(batch, s.groups, w.shape[2], -1), shape), bias)
    out = launch.empty(shape, y.dtype)
    for part in s.blocks(batch, channels, y.dtype.itemsize):
        given = _gathered(xp, y[part], s.groups)
        columns = _product(launch, w, given, (channels * s.depth, given.shape[2]))
        if s.plain:
            _scatter(xp, columns, out[part], bias)
        else:
            calls.col2im(launch, columns, s.size, *s.windows, True, out[part])
    return out if s.plain else _biased(out, bias)


def _backward_weight(launch: Any, x: Any, y: Any, s: _Settings) -> Any:
    xp, batch = launch.xp, x.shape[0]
    total: Any = None
    shape = (y.shape[1], x.shape[1] // s.groups, *s.kernel)
    for part in s.blocks(batch, x.shape[1], x.dtype.itemsize):
        columns, given = s.columns(launch, x[part]), _gathered(xp, y[part], s.groups)
        found = _product(launch, given, columns.swapaxes(1, 2), shape)
        if part != slice(0, batch):
            found = found.astype(accumulator(x.dtype), copy=False)
        total = found if total is None else xp.add(total, found, out=total)
    return total.astype(x.dtype, copy=False)


def _run(function: Any, s: _Settings, first: Any, second: Any, bias: Any = None) -> Any:
    """function(launch, first, second, [bias,] s), or None where it does not apply to the arrays."""
    if len(s.kernel) > 3 or min(s.count) < 1 or min(s.size) < 1:
        return None
    first, second, bias = _solid(first), _solid(second), _solid(bias)
    launch = launch_for(first, second, bias)
    if launch is None:
        return None
    dtype = first.dtype
    if s.groups > 1 and is_low(dtype):
        first, second = first.astype("float32"), second.astype("float32")
        bias = None if bias is None else bias.astype("float32")
    rest = (s,) if function is _backward_weight else (bias, s)
    out = attempt(function, launch, first, second, *rest)
    return None if out is None else out.astype(dtype, copy=False)


def _convolution(
    xp, x, weight, bias=None, stride=(1,), padding=((0, 0),), dilation=(1,), groups=1
):
    _check("convolution", x, weight, bias, stride, groups)
    kernel = weight.shape[2:]
    count = window_count(x.shape[2:], kernel, stride, padding, dilation)
    s = _Settings(x.shape[2:], count, kernel, stride, padding, dilation, groups)
    out = _run(_forward, s, x, weight, bias)
    if out is None:
        return OPS["convolution"].forward(xp, x, weight, bias, stride, padding, dilation, groups)
    return out


def _conv_transpose(
    xp, x, weight, bias=None, stride=(1,), padding=((0, 0),), dilation=(1,), groups=1
):
    _check("conv_transpose", x, weight, bias, stride, groups, transposed=True)
    kernel = weight.shape[2:]
    size = transposed_size(x.shape[2:], kernel, stride, padding, dilation)
    s = _Settings(size, x.shape[2:], kernel, stride, padding, dilation, groups)
    out = _run(_backward_x, s, x, weight, bias)
    if out is None:
        return OPS["conv_transpose"].forward(xp, x, weight, bias, stride, padding, dilation, groups)
    return out


def _conv_weight(xp, x, y, kernel, stride=(1,), padding=((0, 0),), dilation=(1,), groups=1):
    s = _Settings(x.shape[2:], y.shape[2:], kernel, stride, padding, dilation, groups)
    out = _run(_backward_weight, s, x, y)
    if out is None:
        return OPS["conv_weight"].forward(xp, x, y, kernel, stride, padding, dilation, groups)
    return out


OPS["convolution"].accelerate("cuda", _convolution)
OPS["conv_transpose"].accelerate("cuda", _conv_transpose)
OPS["conv_weight"].accelerate("cuda", _conv_weight)


# ---- columns as such: unfold and fold ----


def _im2col(xp, x, kernel, dilation, padding, stride):
    pairs = tuple((p, p) for p in padding)
    count = window_count(x.shape[2:], kernel, stride, pairs, dilation)
    out = None
    if min(count) > 0:
        solid = _solid(x)
        out = attempt(calls.im2col, launch_for(solid), solid, count, kernel, stride, padding, dilation)
    return OPS["im2col"].forward(xp, x, kernel, dilation, padding, stride) if out is None else out


def _col2im(xp, x, size, kernel, dilation, padding, stride):
    count = window_count(size, kernel, stride, tuple((p, p) for p in padding), dilation)
    out = None
    if x.ndim == 3 and x.shape[1] % prod(kernel) == 0 and x.shape[2] == prod(count) and prod(size):
        solid = _solid(x)
        out = attempt(calls.col2im, launch_for(solid), solid, size, count, kernel, stride, padding, dilation)
    return OPS["col2im"].forward(xp, x, size, kernel, dilation, padding, stride) if out is None else out


OPS["im2col"].accelerate("cuda", _im2col)
OPS["col2im"].accelerate("cuda", _col2im)
