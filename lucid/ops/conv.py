"""Convolution in any number of dimensions, and the two products that are its derivatives.

`convolution`, `conv_transpose` and `conv_weight` are bilinear and closed under differentiation: the
derivative of each is one of the other two, so every order follows from three formulas. Padding is one (low,
high) pair per dimension; negative values crop.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from ..errors import DtypeError, ShapeError
from ..kernel.products import matmul_of
from .common import Shape, is_low
from .registry import Sample, op

Pairs = tuple[tuple[int, int], ...]

# Columns are built for as many samples as fit in this many bytes: few to stay in the cache for the product,
# many for all threads (bench_conv: conv 3x3 forward on two threads takes 7.7 ms with 2 MB, 8.8 with 1 MB and
# 18 in one piece). A GPU has no such cache to stay in.
_BLOCK_BYTES = {"numpy": 1 << 21}
_GPU_BLOCK_BYTES = 1 << 28

# Fewer rows than this make a matrix product per kernel row slower than building all columns.
_MIN_ROWS = 16


def pad_spatial(xp: Any, x: Any, padding: Pairs, value: float = 0) -> Any:
    """`x` with (low, high) cells of `value` around its last dimensions; negative numbers cut cells off.

    A view where nothing is added.
    """
    lead = x.ndim - len(padding)
    if any(low < 0 or high < 0 for low, high in padding):
        cut = tuple(
            slice(max(-low, 0), n - max(-high, 0))
            for n, (low, high) in zip(x.shape[lead:], padding, strict=True)
        )
        x = x[(..., *cut)]
        padding = tuple((max(low, 0), max(high, 0)) for low, high in padding)
    if not any(low or high for low, high in padding):
        return x
    size = tuple(n + low + high for n, (low, high) in zip(x.shape[lead:], padding, strict=True))
    shape = (*x.shape[:lead], *size)
    out = xp.zeros(shape, x.dtype) if not value else xp.full(shape, value, x.dtype)
    out[(..., *(slice(low, low + n) for n, (low, _) in zip(x.shape[lead:], padding, strict=True)))] = x
    return out


def window_count(size: Shape, kernel: Shape, stride: Shape, padding: Pairs, dilation: Shape) -> Shape:
    """How many windows fit in each dimension (0 or less: none)."""
    return tuple(
        (n + low + high - d * (k - 1) - 1) // s + 1
        for n, k, s, (low, high), d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def tight(size: Shape, kernel: Shape, stride: Shape, padding: Pairs, dilation: Shape) -> Pairs:
    """`padding` without the cells on the high side that no window reaches."""
    return tuple(
        (low, high - (n + low + high - d * (k - 1) - 1) % s)
        for n, k, s, (low, high), d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def window_slices(position: Shape, count: Shape, stride: Shape, dilation: Shape) -> tuple[slice, ...]:
    """What cell `position` of every window covers in the padded array."""
    return tuple(
        slice(i * d, i * d + (n - 1) * s + 1, s)
        for i, n, s, d in zip(position, count, stride, dilation, strict=True)
    )


def windows(xp: Any, x: Any, kernel: Shape, count: Shape, stride: Shape, dilation: Shape) -> Any:
    """A view [..., *kernel, *count] of the windows over the last dimensions of `x`."""
    n = len(kernel)
    steps = x.strides[x.ndim - n :]
    strides = (
        *x.strides[: x.ndim - n],
        *(t * d for t, d in zip(steps, dilation, strict=True)),
        *(t * s for t, s in zip(steps, stride, strict=True)),
    )
    return xp.lib.stride_tricks.as_strided(x, (*x.shape[: x.ndim - n], *kernel, *count), strides)


class _Columns:
    """The columns (im2col) of a padded input, made block by block over the batch.

    A block's matrix has one row per channel and kernel cell, and one column per output cell, ordered (first
    dimension, sample, others): one product per block, large enough for every thread. Where the first
    dimension has stride 1 its windows are not written out: kernel row `i` is the slice of the columns that
    starts `i * dilation` rows later, a matrix that BLAS takes as it is. A 3x3 kernel then copies the input 3
    times instead of 9.
    """

    __slots__ = ("xp", "view", "groups", "first", "dilation", "depth", "count", "inner", "samples", "block")

    def __init__(
        self, xp: Any, x: Any, kernel: Shape, count: Shape, stride: Shape, dilation: Shape, groups: int
    ) -> None:
        batch, channels = x.shape[:2]
        n, per_group = len(kernel), channels // groups
        x = x.reshape(batch, groups, per_group, *x.shape[2:])
        rows = stride[0] == 1 and per_group * prod(kernel[1:]) >= _MIN_ROWS
        written = (1, *kernel[1:]) if rows else kernel
        view = windows(xp, x, written, (x.shape[3], *count[1:]) if rows else count, stride, dilation)
        order = (1, 2, *range(3, 4 + n), 0, *range(4 + n, 3 + 2 * n))
        self.xp, self.view, self.groups, self.samples = xp, view.transpose(order), groups, batch
        self.first, self.dilation = (kernel[0], dilation[0]) if rows else (1, 0)
        self.depth, self.count, self.inner = per_group * prod(written), count[0], prod(count[1:])
        sample = prod(self.view.shape) // max(batch, 1) * x.itemsize
        self.block = max(1, _BLOCK_BYTES.get(xp.__name__, _GPU_BLOCK_BYTES) // max(sample, 1))

    def blocks(self) -> Any:
        """(samples, a matrix [groups, depth, columns] per kernel row) for each block of the batch."""
        axis = (self.view.ndim + 3) // 2  # of the samples, after [groups, channels, *kernel, first]
        for start in range(0, self.samples, self.block):
            stop = min(start + self.block, self.samples)
            part = self.view[(slice(None),) * axis + (slice(start, stop),)]
            width = prod(part.shape[axis - 1 :])
            columns = self.xp.ascontiguousarray(part).reshape(self.groups, self.depth, width)
            row = (stop - start) * self.inner
            starts = [i * self.dilation * row for i in range(self.first)]
            yield slice(start, stop), [columns[..., i : i + self.count * row] for i in starts]

    def split(self, weight: Any) -> list[Any]:
        """`weight` [out, in / groups, *kernel] as one matrix [groups, out / groups, depth] per kernel row."""
        cells = prod(weight.shape[2:]) // self.first
        w = weight.reshape(self.groups, weight.shape[0] // self.groups, weight.shape[1], self.first, cells)
        shape = (self.groups, w.shape[1], self.depth)
        return [self.xp.ascontiguousarray(w[:, :, :, i]).reshape(shape) for i in range(self.first)]

    def join(self, rows: list[Any], shape: Shape) -> Any:
        """The inverse of `split`."""
        each = (self.groups, shape[0] // self.groups, shape[1], prod(shape[2:]) // self.first)
        parts = [r.reshape(each) for r in rows]
        return self.xp.stack(parts, 3).reshape(shape)

    def gather(self, y: Any) -> Any:
        """Samples [b, groups, channels, count, inner] as a matrix [groups, channels, columns]."""
        matrix = (*y.shape[1:3], y.shape[0] * prod(y.shape[3:]))
        return self.xp.ascontiguousarray(y.transpose(1, 2, 3, 0, 4)).reshape(matrix)


def _correlate(xp: Any, x: Any, weight: Any, stride: Shape, dilation: Shape, groups: int) -> Any:
    """Convolution without padding or bias."""
    kernel, batch = weight.shape[2:], x.shape[0]
    count = window_count(x.shape[2:], kernel, stride, ((0, 0),) * len(kernel), dilation)
    shape = (batch, weight.shape[0], *count)
    if prod(kernel) == prod(stride) == 1:
        w = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1])
        return matmul_of(xp)(w, x.reshape(batch, groups, weight.shape[1], prod(count))).reshape(shape)
    columns = _Columns(xp, x, kernel, count, stride, dilation, groups)
    first, *others = columns.split(weight)
    out = xp.empty((batch, groups, weight.shape[0] // groups, count[0], columns.inner), x.dtype)
    for samples, (head, *rest) in columns.blocks():
        part = matmul_of(xp)(first, head)
        for w, c in zip(others, rest, strict=True):
            part += matmul_of(xp)(w, c)
        shaped = part.reshape(groups, out.shape[2], count[0], samples.stop - samples.start, columns.inner)
        out[samples] = shaped.transpose(3, 0, 1, 2, 4)
    return out.reshape(shape)


def _add_columns(
    xp: Any, x: Any, weight: Any, size: Shape, stride: Shape, dilation: Shape, groups: int
) -> Any:
    """The transposed convolution with strides.

    Each input cell adds its weighted kernel to the output (col2im).
    """
    batch, channels, *count = x.shape
    kernel = weight.shape[2:]
    w = weight.reshape(groups, channels // groups, prod(weight.shape[1:])).swapaxes(1, 2)
    flat = x.reshape(batch, groups, channels // groups, prod(count))
    out = xp.zeros((batch, groups * weight.shape[1], *size), x.dtype)
    sample = w.shape[0] * w.shape[1] * flat.shape[-1] * x.itemsize
    block = max(1, _BLOCK_BYTES.get(xp.__name__, _GPU_BLOCK_BYTES) // max(sample, 1))
    for start in range(0, batch, block):
        part = flat[start : start + block]
        columns = matmul_of(xp)(w, part).reshape(part.shape[0], out.shape[1], *kernel, *count)
        target = out[start : start + block]
        for position in product(*map(range, kernel)):
            target[(..., *window_slices(position, tuple(count), stride, dilation))] += columns[
                (slice(None), slice(None), *position)
            ]
    return out


def _flip(weight: Any, groups: int) -> Any:
    """`weight` [in, out / groups, *kernel] of a transposed convolution as that of the equal plain one.

    Turned over, channels swapped.
    """
    w = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:]).swapaxes(1, 2)
    w = w[(..., *(slice(None, None, -1),) * (weight.ndim - 2))]
    return w.reshape(groups * weight.shape[1], weight.shape[0] // groups, *weight.shape[2:])


def _check(
    name: str, x: Any, weight: Any, bias: Any, stride: Shape, groups: int, transposed: bool = False
) -> None:
    n = len(stride)
    if x.ndim != n + 2 or weight.ndim != n + 2:
        raise ShapeError(
            f"{name}: expected input [batch, channels, {n} sizes] and weight of {n + 2} dimensions, got "
            f"{x.shape} and "
            f"{weight.shape}; add the missing dimensions with unsqueeze"
        )
    if groups < 1 or weight.shape[0] % groups:
        raise ShapeError(
            f"{name}: groups={groups} must divide weight.shape[0] = {weight.shape[0]}; choose another number "
            "of channels or groups"
        )
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if x.shape[1] != expected:
        formula = (
            "weight.shape[0]" if transposed else f"weight.shape[1] * groups = {weight.shape[1]} * {groups}"
        )
        raise ShapeError(
            f"{name}: expected an input of {expected} channels ({formula}), got {x.shape[1]} in input "
            f"{x.shape} with weight "
            f"{weight.shape}; channels stand in dimension 1"
        )
    if x.dtype != weight.dtype or (bias is not None and bias.dtype != weight.dtype):
        raise DtypeError(
            f"{name}: expected one dtype, got input {x.dtype.name}, weight {weight.dtype.name}"
            + ("" if bias is None else f" and bias {bias.dtype.name}")
            + "; convert one of them, or use autocast"
        )
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and bias.shape != (channels,):
        raise ShapeError(
            f"{name}: expected a bias of shape ({channels},), got {bias.shape}; give one number per output "
            "channel"
        )


def _low(xp: Any, function: Any, *arrays: Any) -> Any:
    # 16-bit floats: NumPy has no BLAS for them, and the sum over kernel rows must not be rounded on its way.
    if not is_low(arrays[0].dtype):
        return function(*arrays)
    return function(*(a.astype("float32") for a in arrays)).astype(arrays[0].dtype)


def _add_bias(out: Any, bias: Any) -> Any:
    if bias is not None:
        out += bias.reshape(-1, *(1,) * (out.ndim - 2))
    return out


def _conv_reference(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = (1,),
    padding: Any = ((0, 0),),
    dilation: Any = (1,),
    groups: int = 1,
) -> Any:
    """The definition: every output cell is one sum of products."""
    import numpy as np

    x = np.pad(x, ((0, 0), (0, 0), *padding))
    per = weight.shape[1]
    count = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], weight.shape[2:], stride, dilation, strict=True)
    ]
    out = np.zeros((x.shape[0], weight.shape[0], *count), x.dtype)
    for cell in np.ndindex(*count):
        at = tuple(
            slice(i * s, i * s + d * (k - 1) + 1, d)
            for i, s, d, k in zip(cell, stride, dilation, weight.shape[2:], strict=True)
        )
        for o in range(weight.shape[0]):
            first = o // (weight.shape[0] // groups) * per
            out[(slice(None), o, *cell)] = (
                (x[(slice(None), slice(first, first + per), *at)] * weight[o]).reshape(len(x), -1).sum(1)
            )
    return out if bias is None else out + bias.reshape(-1, *(1,) * len(count))


@op(
    amp="low",
    public=False,
    reference=_conv_reference,
    samples=[
        Sample((2, 3, 7), (4, 3, 3), (4,), (2,), ((1, 0),), (2,), 1),
        Sample((2, 4, 5, 6), (6, 2, 3, 2), None, (1, 1), ((1, 1), (0, 1)), (1, 1), 2, complex=True),
        Sample((1, 2, 4, 3, 4), (3, 2, 2, 2, 2), (3,), (1, 2, 1), ((0, 0), (1, 1), (0, 0)), (1, 1, 2), 1),
        Sample((1, 16, 4, 4), (2, 16, 3, 3), (2,), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ],
)
def convolution(
    xp,
    x,
    weight,
    bias=None,
    stride: tuple = (1,),
    padding: tuple = ((0, 0),),
    dilation: tuple = (1,),
    groups: int = 1,
):
    """Cross-correlation of `x` with `weight`:

    out[b, o, p] = sum over c, k of x[b, c, p * stride + k * dilation - low] * weight[o, c, k].

    x: [batch, in, *sizes]; weight: [out, in / groups, *kernel]; bias: [out]. Returns [batch, out, *sizes']
    with sizes' = (sizes + low + high - dilation * (kernel - 1) - 1) // stride + 1. Channels of one group see
    only that group. Raises ShapeError for channels that do not fit and for a kernel larger than the padded
    input.
    """
    _check("convolution", x, weight, bias, stride, groups)
    count = window_count(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    if min(count) < 1:
        padded = tuple(n + low + high for n, (low, high) in zip(x.shape[2:], padding, strict=True))
        extent = tuple(d * (k - 1) + 1 for k, d in zip(weight.shape[2:], dilation, strict=True))
        raise ShapeError(
            f"convolution: the kernel spans {extent} but the padded input is only {padded} (input {x.shape}, "
            "weight "
            f"{weight.shape}, padding {padding}, dilation {dilation}); use more padding or a smaller kernel"
        )

    def run(x: Any, weight: Any, *bias: Any) -> Any:
        out = _correlate(xp, pad_spatial(xp, x, padding), weight, stride, dilation, groups)
        return _add_bias(out, *(bias or (None,)))

    return _low(xp, run, x, weight, *(() if bias is None else (bias,)))


def transposed_size(count: Shape, kernel: Shape, stride: Shape, padding: Pairs, dilation: Shape) -> Shape:
    """The output size of `conv_transpose`: what a convolution must have read to give `count` cells."""
    return tuple(
        (n - 1) * s - low - high + d * (k - 1) + 1
        for n, k, s, (low, high), d in zip(count, kernel, stride, padding, dilation, strict=True)
    )


@op(
    amp="low",
    public=False,
    samples=[
        Sample((2, 4, 5), (4, 3, 3), (3,), (2,), ((1, 0),), (2,), 1),
        Sample((2, 4, 4, 3), (4, 3, 3, 2), None, (1, 1), ((1, 1), (0, 1)), (1, 1), 2, complex=True),
        Sample((1, 2, 2, 3, 2), (2, 3, 2, 2, 2), (3,), (1, 2, 1), ((0, 0), (1, 0), (0, -1)), (1, 1, 2), 1),
    ],
)
def conv_transpose(
    xp,
    x,
    weight,
    bias=None,
    stride: tuple = (1,),
    padding: tuple = ((0, 0),),
    dilation: tuple = (1,),
    groups: int = 1,
):
    """Transposed convolution: every cell of `x` adds its weighted copy of the kernel to the output.

    x: [batch, in, *sizes]; weight: [in, out / groups, *kernel]; bias: [out]. Returns [batch, out, *sizes']
    with sizes' = (sizes - 1) * stride - low - high + dilation * (kernel - 1) + 1. It is the derivative of
    `convolution` with respect to its input.
    """
    _check("conv_transpose", x, weight, bias, stride, groups, transposed=True)
    kernel = weight.shape[2:]
    size = transposed_size(x.shape[2:], kernel, stride, padding, dilation)
    if min(size) < 1:
        raise ShapeError(
            f"conv_transpose: the output would have size {size} (input {x.shape}, weight {weight.shape}, "
            f"stride {stride}, "
            f"padding {padding}); use less padding"
        )

    def run(x: Any, weight: Any, *bias: Any) -> Any:
        if prod(stride) == 1:
            reach = tuple(d * (k - 1) for k, d in zip(kernel, dilation, strict=True))
            around = tuple((r - low, r - high) for r, (low, high) in zip(reach, padding, strict=True))
            out = _correlate(xp, pad_spatial(xp, x, around), _flip(weight, groups), stride, dilation, groups)
        else:
            full = tuple(n + low + high for n, (low, high) in zip(size, padding, strict=True))
            out = _add_columns(xp, x, weight, full, stride, dilation, groups)
            out = pad_spatial(xp, out, tuple((-low, -high) for low, high in padding))
        return _add_bias(out, *(bias or (None,)))

    return _low(xp, run, x, weight, *(() if bias is None else (bias,)))


@op(
    amp="low",
    dtype="promote",
    public=False,
    samples=[
        Sample((2, 3, 7), (2, 4, 2), (3,), (2,), ((1, 0),), (2,), 1),
        Sample((2, 4, 5, 6), (2, 6, 5, 6), (3, 2), (1, 1), ((1, 1), (0, 1)), (1, 1), 2, complex=True),
        Sample((1, 16, 4, 4), (1, 2, 4, 4), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ],
)
def conv_weight(
    xp,
    x,
    y,
    kernel: tuple,
    stride: tuple = (1,),
    padding: tuple = ((0, 0),),
    dilation: tuple = (1,),
    groups: int = 1,
):
    """The correlation of an input with an output gradient.

    The derivative of `convolution` with respect to its weight.

    x: [batch, in, *sizes]; y: [batch, out, *sizes'], as a convolution of x with these settings would give.
    Returns [out, in / groups, *kernel].
    """
    count = y.shape[2:]
    shape = (y.shape[1], x.shape[1] // groups, *kernel)

    def run(x: Any, y: Any) -> Any:
        columns = _Columns(xp, pad_spatial(xp, x, padding), kernel, count, stride, dilation, groups)
        y = y.reshape(y.shape[0], groups, y.shape[1] // groups, count[0], columns.inner)
        total = [xp.zeros((groups, y.shape[2], columns.depth), x.dtype) for _ in range(columns.first)]
        for samples, rows in columns.blocks():
            part = columns.gather(y[samples])
            for row, c in zip(total, rows, strict=True):
                row += matmul_of(xp)(part, c.swapaxes(-1, -2))
        return columns.join(total, shape)

    return _low(xp, run, x, y)


def _input_grad(F, g, x_shape, weight, stride, padding, dilation, groups):
    padding = tight(x_shape[2:], weight.shape[2:], stride, padding, dilation)
    return F.conv_transpose(g, F.conj(weight), None, stride, padding, dilation, groups)


def _weight_grad(F, g, x, weight_shape, stride, padding, dilation, groups):
    return F.conv_weight(F.conj(x), g, weight_shape[2:], stride, padding, dilation, groups)


def _bias_grad(F, g):
    return F.sum(g, (0, *range(2, g.ndim)))


convolution.grad(x=_input_grad, weight=_weight_grad, bias=_bias_grad)

conv_transpose.grad(
    x=lambda F, g, weight, stride, padding, dilation, groups: F.convolution(
        g, F.conj(weight), None, stride, padding, dilation, groups
    ),
    weight=lambda F, g, x, weight_shape, stride, padding, dilation, groups: F.conv_weight(
        g, F.conj(x), weight_shape[2:], stride, padding, dilation, groups
    ),
    bias=_bias_grad,
)


def _first_grad(F, g, x_shape, y, kernel, stride, padding, dilation, groups):
    padding = tight(x_shape[2:], kernel, stride, padding, dilation)
    return F.conv_transpose(F.conj(y), g, None, stride, padding, dilation, groups)


conv_weight.grad(
    x=_first_grad,
    y=lambda F, g, x, stride, padding, dilation, groups: F.convolution(
        F.conj(x), g, None, stride, padding, dilation, groups
    ),
)
