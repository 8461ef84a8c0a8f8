"""Pooling: the largest, the mean or a chosen element of each window.

Windows are never written out: a kernel of k cells is k strided slices of the input, read in the forward pass
and written in the backward pass, so nothing is scattered and every sum has a fixed order.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from ..errors import DtypeError, ShapeError
from .bounds import clamped, in_range
from .common import Shape, is_low, need_order
from .conv import Pairs, pad_spatial, window_slices
from .registry import A, Sample, op


def pooled_size(
    name: str, size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool
) -> Shape:
    """The number of windows in each dimension, by PyTorch's rule.

    With `ceil_mode` a last window may reach beyond the padded input, but it must
    start inside the input or its low padding."""
    out = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        if k < 1 or s < 1 or d < 1 or p < 0:
            raise ShapeError(
                f"{name}: kernel_size, stride and dilation must be positive and padding not negative, got "
                f"{kernel}, {stride}, "
                f"{dilation} and {padding}"
            )
        if 2 * p > d * (k - 1) + 1:
            raise ShapeError(
                f"{name}: padding may be at most half the kernel, got padding {padding} for kernel_size "
                f"{kernel}; "
                "pad the input with nn.functional.pad instead"
            )
        count = (n + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (count - 1) * s >= n + p:
            count -= 1
        out.append(count)
    if min(out) < 1:
        raise ShapeError(
            f"{name}: the windows {kernel} (dilation {dilation}) do not fit in the input {size} padded by "
            f"{padding}; "
            "use a smaller kernel or more padding"
        )
    return tuple(out)


def _around(
    size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, count: Shape
) -> Pairs:
    """The padding that makes `count` windows fit exactly."""
    return tuple(
        (p, (c - 1) * s + d * (k - 1) + 1 - n - p)
        for n, k, s, p, d, c in zip(size, kernel, stride, padding, dilation, count, strict=True)
    )


def _window_dtype(kernel: Shape) -> str:
    return "int8" if prod(kernel) <= 127 else "int32"


def _lowest(xp: Any, dtype: Any) -> Any:
    return xp.iinfo(dtype).min if dtype.kind in "iu" else -float("inf")


def _max_pool_reference(
    x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool = False
) -> Any:
    import numpy as np

    n = len(kernel)
    count = pooled_size("reference", x.shape[-n:], kernel, stride, padding, dilation, ceil_mode)
    out, where = np.empty((*x.shape[:-n], *count)), np.empty((*x.shape[:-n], *count), "int64")
    for cell in np.ndindex(*out.shape):
        lead, at = cell[:-n], cell[-n:]
        best, index = -np.inf, 0
        for i, position in enumerate(product(*map(range, kernel))):
            q = tuple(
                a * s - p + j * d
                for a, s, p, j, d in zip(at, stride, padding, position, dilation, strict=True)
            )
            if all(0 <= v < m for v, m in zip(q, x.shape[-n:], strict=True)) and x[(*lead, *q)] > best:
                best, index = x[(*lead, *q)], i
        out[cell], where[cell] = best, index
    return out, where


@op(
    outputs=("out", "window"),
    diff=("out",),
    public=False,
    reference=_max_pool_reference,
    samples=[
        Sample((2, 3, 6), (2,), (2,), (0,), (1,)),
        Sample((2, 2, 5, 6), (3, 2), (2, 1), (1, 0), (1, 2), True),
        Sample((1, 4, 4, 3), (2, 2, 3), (2, 1, 1), (1, 0, 1), (1, 1, 1)),
    ],
)
def max_pool(xp, x, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple, ceil_mode: bool = False):
    """The largest element of each window over the last len(kernel) dimensions, and which cell it is.

    x: [..., *sizes]. Returns out [..., *sizes'] and window (the cell's number in the window, row by row). The
    padding never wins; the first of equal elements does; a window that holds NaN gives NaN.
    """
    need_order("max_pool", x)
    n = len(kernel)
    size = x.shape[x.ndim - n :]
    count = pooled_size("max_pool", size, kernel, stride, padding, dilation, ceil_mode)
    x = pad_spatial(xp, x, _around(size, kernel, stride, padding, dilation, count), _lowest(xp, x.dtype))
    positions = list(product(*map(range, kernel)))
    best = x[(..., *window_slices(positions[0], count, stride, dilation))].copy()
    window = xp.zeros(best.shape, _window_dtype(kernel))
    if any(padding):
        window += xp.asarray(_first_inside(kernel, stride, padding, dilation, count), window.dtype)
    nans = x.dtype.kind not in "iub"
    for i, position in enumerate(positions[1:], 1):
        # A contiguous copy: every pass over a strided cell costs five times as much (bench_conv: max_pool).
        cell = xp.ascontiguousarray(x[(..., *window_slices(position, count, stride, dilation))])
        larger = cell > best
        if nans:
            larger |= cell != cell
        # Numbers only grow, so the maximum replaces a masked assignment, which is forty times slower.
        window = xp.maximum(window, larger.astype(window.dtype) * window.dtype.type(i))
        best = xp.maximum(best, cell)
    return best, window


@lru_cache(256)
def _first_inside(kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, count: Shape) -> Any:
    """The number of each window's first cell that is not padding.

    What a window of nothing but -inf points to.
    """
    import numpy as np

    total: Any = 0
    for k, s, p, d, c in zip(kernel, stride, padding, dilation, count, strict=True):
        start = np.arange(c) * s - p
        total = np.asarray(total)[..., None] * k + -(np.minimum(start, 0) // d)
    return total


_WINDOWS = Sample((2, 3), A(value=[[0, 1, 1], [1, 0, 0]], dtype="int8"), (6,), (2,), (2,), (0,), (1,))


@op(public=False, samples=[_WINDOWS])
def max_pool_spread(
    xp, x, window, size: tuple, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple
):
    """`x` put back where the windows found their largest elements, zeros elsewhere.

    The derivative of `max_pool`.

    x, window: [..., *sizes']. Returns [..., *size].
    """
    n = len(kernel)
    count = x.shape[x.ndim - n :]
    full, crop = _buffer(size, kernel, stride, padding, dilation, count)
    out = xp.zeros((*x.shape[: x.ndim - n], *full), x.dtype)
    apart = all(s >= d * (k - 1) + 1 for s, k, d in zip(stride, kernel, dilation, strict=True))
    for i, position in enumerate(product(*map(range, kernel))):
        cells = (..., *window_slices(position, count, stride, dilation))
        share = x * (window == i)
        if apart:
            out[cells] = share
        else:
            out[cells] += share
    return pad_spatial(xp, out, crop)


def _buffer(
    size: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, count: Shape
) -> tuple[Shape, Pairs]:
    """The size that holds the padded input and every window, and the (negative) padding that cuts it back."""
    around = _around(size, kernel, stride, padding, dilation, count)
    full = tuple(low + n + max(high, 0) for n, (low, high) in zip(size, around, strict=True))
    return full, tuple((-low, -max(high, 0)) for low, high in around)


@op(
    public=False,
    samples=[Sample((2, 6), A(value=[[0, 1, 1], [1, 0, 0]], dtype="int8"), (2,), (2,), (0,), (1,))],
)
def max_pool_pick(xp, x, window, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple):
    """The elements of `x` at the cells that `window` names: the derivative of `max_pool_spread`.

    x: [..., *sizes]; window: [..., *sizes']. Returns window's shape.
    """
    n = len(kernel)
    count = window.shape[window.ndim - n :]
    x = pad_spatial(xp, x, _around(x.shape[x.ndim - n :], kernel, stride, padding, dilation, count))
    out = xp.zeros(window.shape, x.dtype)
    for i, position in enumerate(product(*map(range, kernel))):
        out += x[(..., *window_slices(position, count, stride, dilation))] * (window == i)
    return out


def _spatial(shape: Shape, kernel: Shape) -> Shape:
    return shape[len(shape) - len(kernel) :]


max_pool.grad(
    x=lambda F, g, window, x, kernel, stride, padding, dilation: F.beside(
        F.max_pool_spread(g, window, _spatial(x.shape, kernel), kernel, stride, padding, dilation), x
    )
)
max_pool_spread.grad(
    x=lambda F, g, window, kernel, stride, padding, dilation: F.max_pool_pick(
        g, window, kernel, stride, padding, dilation
    )
)
max_pool_pick.grad(
    x=lambda F, g, window, x_shape, kernel, stride, padding, dilation: F.max_pool_spread(
        g, window, _spatial(x_shape, kernel), kernel, stride, padding, dilation
    )
)


@op(
    public=False,
    diff=(),
    samples=[Sample(A(value=[[0, 1, 1], [1, 0, 0]], dtype="int8"), (6,), (2,), (2,), (0,), (1,))],
)
def max_pool_index(xp, window, size: tuple, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple):
    """The place of each window's largest element in the flattened input [*size] (`return_indices`).

    window: [..., *sizes'] as `max_pool` gives it. Returns int64.
    """
    flat: Any = 0
    n = len(kernel)
    rest = window.astype("int64")
    cells = []
    for k in reversed(kernel):
        cells.append(rest % k)
        rest = rest // k
    for axis, (cell, m, s, p, d) in enumerate(
        zip(reversed(cells), size, stride, padding, dilation, strict=True)
    ):
        start = xp.arange(window.shape[window.ndim - n + axis]).reshape(-1, *(1,) * (n - axis - 1)) * s - p
        flat = flat * m + start + cell * d
    return flat


def _sum_windows(xp: Any, x: Any, kernel: Shape, stride: Shape, count: Shape) -> Any:
    """The sum of each window, one dimension after the other:

    2k additions for a k x k kernel instead of k * k.
    """
    lead = x.ndim - len(kernel)
    for axis, (k, s, c) in enumerate(zip(kernel, stride, count, strict=True)):
        before = (slice(None),) * (lead + axis)
        total = x[(*before, slice(0, (c - 1) * s + 1, s))].copy()
        for i in range(1, k):
            total += x[(*before, slice(i, i + (c - 1) * s + 1, s))]
        x = total
    return x


def _spread_windows(xp: Any, x: Any, kernel: Shape, stride: Shape, full: Shape) -> Any:
    """The transpose of `_sum_windows`: each element added to every cell of its window."""
    lead = x.ndim - len(kernel)
    for axis, (k, s, n) in enumerate(zip(kernel, stride, full, strict=True)):
        before, c = (slice(None),) * (lead + axis), x.shape[lead + axis]
        out = xp.zeros((*x.shape[: lead + axis], n, *x.shape[lead + axis + 1 :]), x.dtype)
        for i in range(k):
            out[(*before, slice(i, i + (c - 1) * s + 1, s))] += x
        x = out
    return x


@lru_cache(256)
def _divisors(
    size: Shape,
    kernel: Shape,
    stride: Shape,
    padding: Shape,
    count: Shape,
    count_include_pad: bool,
    divisor: int,
) -> Any:
    """What each window's sum is divided by: one number, or an array [*count]."""
    import numpy as np

    if divisor:
        return divisor
    total: Any = np.ones((), "int64")
    for n, k, s, p, c in zip(size, kernel, stride, padding, count, strict=True):
        start = np.arange(c) * s - p
        stop = np.minimum(start + k, n + p)
        length = stop - start if count_include_pad else np.minimum(stop, n) - np.maximum(start, 0)
        total = total[..., None] * length
    return int(total.flat[0]) if (total == total.flat[0]).all() else total


def _avg_reference(
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int = 0,
) -> Any:
    import numpy as np

    n = len(kernel)
    size = x.shape[-n:]
    count = pooled_size("reference", size, kernel, stride, padding, (1,) * n, ceil_mode)
    out = np.empty((*x.shape[:-n], *count))
    for cell in np.ndindex(*count):
        start = [i * s - p for i, s, p in zip(cell, stride, padding, strict=True)]
        stop = [min(a + k, m + p) for a, k, m, p in zip(start, kernel, size, padding, strict=True)]
        inside = tuple(slice(max(a, 0), min(b, m)) for a, b, m in zip(start, stop, size, strict=True))
        part = x[(..., *inside)].reshape(*x.shape[:-n], -1)
        number = divisor or (
            prod(b - a for a, b in zip(start, stop, strict=True)) if count_include_pad else part.shape[-1]
        )
        out[(..., *cell)] = part.sum(-1) / number
    return out


_AVG = [
    Sample((2, 3, 6), (2,), (2,), (0,)),
    Sample((2, 2, 5, 6), (3, 2), (2, 1), (1, 0), True, False),
    Sample((4, 5, 4), (3, 3), (2, 2), (1, 1), False, True, 5),
    Sample((1, 4, 4, 3), (2, 2, 3), (2, 1, 1), (1, 0, 1)),
]


@op(dtype="float", public=False, samples=_AVG, reference=_avg_reference)
def avg_pool(
    xp,
    x,
    kernel: tuple,
    stride: tuple,
    padding: tuple,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int = 0,
):
    """The mean of each window over the last len(kernel) dimensions.

    x: [..., *sizes]. Returns [..., *sizes']. count_include_pad: whether padding counts as zeros; divisor:
    divides the sum instead of the number of cells (0: not set).
    """
    size = _spatial(x.shape, kernel)
    ones = (1,) * len(kernel)
    count = pooled_size("avg_pool", size, kernel, stride, padding, ones, ceil_mode)
    wide = x.astype("float32") if is_low(x.dtype) else x
    out = _sum_windows(
        xp, pad_spatial(xp, wide, _around(size, kernel, stride, padding, ones, count)), kernel, stride, count
    )
    return _divide(xp, out, size, kernel, stride, padding, count, count_include_pad, divisor).astype(
        x.dtype, copy=False
    )


def _divide(
    xp: Any,
    x: Any,
    size: Shape,
    kernel: Shape,
    stride: Shape,
    padding: Shape,
    count: Shape,
    include: bool,
    divisor: int,
) -> Any:
    number = _divisors(size, kernel, stride, padding, count, include, divisor)
    return x / (number if isinstance(number, int) else xp.asarray(number.astype(x.real.dtype)))


@op(
    public=False,
    samples=[
        Sample((2, 3, 3), (6,), (2,), (2,), (0,)),
        Sample((2, 2, 3), (4, 5), (3, 3), (2, 2), (1, 1), False),
    ],
)
def avg_pool_spread(
    xp,
    x,
    size: tuple,
    kernel: tuple,
    stride: tuple,
    padding: tuple,
    count_include_pad: bool = True,
    divisor: int = 0,
):
    """Each element's share added to every cell of its window: the derivative of `avg_pool`.

    x: [..., *sizes']. Returns [..., *size].
    """
    count = _spatial(x.shape, kernel)
    wide = x.astype("float32") if is_low(x.dtype) else x
    share = _divide(xp, wide, size, kernel, stride, padding, count, count_include_pad, divisor)
    full, crop = _buffer(size, kernel, stride, padding, (1,) * len(kernel), count)
    return pad_spatial(xp, _spread_windows(xp, share, kernel, stride, full), crop).astype(x.dtype, copy=False)


def _avg_spread_grad(F, g, x_shape, size, kernel, stride, padding, count_include_pad, divisor):
    ceil_mode = pooled_size("avg_pool", size, kernel, stride, padding, (1,) * len(kernel), False) != _spatial(
        x_shape, kernel
    )
    return F.avg_pool(g, kernel, stride, padding, ceil_mode, count_include_pad, divisor)


avg_pool.grad(
    x=lambda F, g, x, kernel, stride, padding, count_include_pad, divisor: F.beside(
        F.avg_pool_spread(g, _spatial(x.shape, kernel), kernel, stride, padding, count_include_pad, divisor),
        x,
    )
)
avg_pool_spread.grad(x=_avg_spread_grad)


def _unpool_check(name: str, x: Any, index: Any, n: int) -> None:
    if index.shape != x.shape:
        raise ShapeError(
            f"{name}: expected indices of the input's shape {x.shape}, got {index.shape}; pass what max_pool "
            "returned"
        )
    if index.dtype != "int64":
        raise DtypeError(
            f"{name}: expected int64 indices, got {index.dtype.name}; pass what "
            "max_pool(return_indices=True) returned"
        )


@op(public=False, samples=[Sample((2, 3), A(value=[[0, 3, 5], [1, 2, 4]], dtype="int64"), (6,))])
def max_unpool(xp, x, index, size: tuple):
    """Zeros with each element of `x` at its index: the partial inverse of max pooling.

    x, index: [..., *sizes']; index counts in the flattened [*size]. Returns [..., *size]. Of elements with
    one index the last wins.
    """
    n = len(size)
    _unpool_check("max_unpool", x, index, n)
    lead = x.shape[: x.ndim - n]
    out = xp.zeros((prod(lead), prod(size)), x.dtype)
    index = index.reshape(prod(lead), -1)
    index = in_range(
        xp,
        index,
        0,
        prod(size),
        lambda bad: ShapeError(
            f"max_unpool: an index lies outside the output size {size} (found {bad}); "
            "give the output_size of the pooled input"
        ),
    )
    if xp.__name__ == "numpy":
        out[xp.arange(prod(lead))[:, None], index] = x.reshape(index.shape)
        return out.reshape(*lead, *size)
    # On a GPU no write is the last: which one it is, is found out first.
    places = (xp.arange(prod(lead))[:, None] * prod(size) + index).reshape(-1)
    last = xp.full(out.size, -1, "int64")
    xp.maximum.at(last, places, xp.arange(places.size))
    if places.size:
        out = xp.where(last < 0, x.dtype.type(0), x.reshape(-1)[last])
    return out.reshape(*lead, *size)


@op(public=False, samples=[Sample((2, 6), A(value=[[0, 3, 5], [1, 2, 4]], dtype="int64"), 1)])
def max_unpool_pick(xp, x, index, n: int):
    """The elements of `x` [..., *size] at `index` [..., *sizes'] into the last n dimensions flattened.

    The derivative of `max_unpool`.
    """
    size = prod(x.shape[x.ndim - n :])
    rows = clamped(xp, index.reshape(prod(index.shape[: index.ndim - n]), -1), 0, size)
    return x.reshape(rows.shape[0], -1)[xp.arange(rows.shape[0])[:, None], rows].reshape(index.shape)


max_unpool.grad(x=lambda F, g, index, size: F.max_unpool_pick(g, index, len(size)))
max_unpool_pick.grad(x=lambda F, g, index, x_shape, n: F.max_unpool(g, index, x_shape[len(x_shape) - n :]))


@op(public=False, diff=(), samples=[Sample((2, 3), (3, 4))])
def arange_cells(xp, x, size: tuple):
    """The numbers of the cells of an array [*size], row by row, on the device of `x`: int64."""
    return xp.arange(prod(size)).reshape(size)
