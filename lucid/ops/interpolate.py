"""Padding, resampling and reordering of cells.

A row of `TABLES` says which input cells make up each output cell along one dimension, and with what weights.
The transposed table serves the derivative, so interpolation of every kind and its derivatives of every order
are one op: gather, scale, add.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ..errors import IndexRangeError, ShapeError
from ..kernel.products import matmul_of
from .common import is_low, normalize_dim
from .conv import pad_spatial, window_count, window_slices, windows
from .registry import A, Sample, op
from .rows import sum_rows

# (kind, input size, output size, *settings): see TABLES.
Spec = tuple[Any, ...]
Table = tuple[np.ndarray, np.ndarray | None]

# Beyond this many gathers per output cell one product with the dense matrix is cheaper.
_MAX_TAPS = 8


def _source(n: int, m: int, align_corners: bool, scale: float) -> np.ndarray:
    """The input coordinate of each of m output cells.

    Scale: output size over input size as the user gave it, or 0.
    """
    i = np.arange(m, dtype=np.float64)
    if align_corners:
        return i * ((n - 1) / (m - 1)) if m > 1 else i * 0.0
    return (i + 0.5) * (1.0 / scale if scale > 0 else n / m) - 0.5


def _linear(n: int, m: int, align_corners: bool, scale: float) -> Table:
    x = np.maximum(_source(n, m, align_corners, scale), 0.0)
    low = np.minimum(x.astype(np.int64), n - 1)
    t = np.clip(x - low, 0.0, 1.0)
    return np.stack([low, np.minimum(low + 1, n - 1)]), np.stack([1 - t, t])


def _keys(t: np.ndarray, a: float = -0.75) -> np.ndarray:
    """Keys' cubic kernel (IEEE ASSP 29, 1981) at distance t.

    A = -0.75 is PyTorch's choice, -0.5 its choice with antialiasing.
    """
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def _cubic(n: int, m: int, align_corners: bool, scale: float) -> Table:
    x = _source(n, m, align_corners, scale)
    cells = np.floor(x).astype(np.int64) + np.arange(-1, 3)[:, None]
    return np.clip(cells, 0, n - 1), _keys(x - cells)


def _nearest(n: int, m: int, scale: float, offset: float) -> Table:
    # In float32 as PyTorch computes it: the rounding decides which of two cells is taken.
    step = np.float32(1.0 / scale) if scale > 0 else np.float32(n) / np.float32(m)
    x = np.floor((np.arange(m, dtype=np.float32) + np.float32(offset)) * step).astype(np.int64)
    return np.minimum(x, n - 1)[None], None


def _antialias(n: int, m: int, align_corners: bool, scale: float, cubic: bool) -> Table:
    """Pillow's resampling.

    The kernel is stretched by the reduction factor, and the weights of each cell are divided by their sum.
    """
    step = 1.0 / scale if scale > 0 else n / m
    if align_corners:
        step = (n - 1) / (m - 1) if m > 1 else 0.0
    wide = max(step, 1.0)
    support = (2.0 if cubic else 1.0) * wide
    centre = step * (np.arange(m) + 0.5)
    start = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    stop = np.minimum((centre + support + 0.5).astype(np.int64), n)
    taps = np.arange((stop - start).max(initial=1))[:, None]
    t = (start + taps - centre + 0.5) / wide
    weight = _keys(t, -0.5) if cubic else np.maximum(1 - np.abs(t), 0.0)
    weight = np.where(taps < stop - start, weight, 0.0)
    return np.minimum(start + taps, n - 1), weight / weight.sum(0)


def _area_windows(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Start and length of the m windows of adaptive pooling: [floor(i n / m), ceil((i + 1) n / m))."""
    i = np.arange(m)
    start = i * n // max(m, 1)
    return start, -(-(i + 1) * n // max(m, 1)) - start


def _area(n: int, m: int) -> Table:
    start, length = _area_windows(n, m)
    taps = np.arange(length.max(initial=1))[:, None]
    return np.minimum(start + taps, n - 1), (taps < length) / length


def longest_window(n: int, m: int) -> int:
    """The length of the longest of the m windows of adaptive pooling over n cells."""
    return int(_area_windows(n, m)[1].max(initial=1))


def _spread(n: int, m: int, count: int) -> Table:
    """The `count` windows of adaptive pooling side by side, each filled up with its last cell."""
    start, length = _area_windows(n, count)
    taps = np.arange(m // count)
    return (start[:, None] + np.minimum(taps, length[:, None] - 1)).reshape(1, -1), None


def _pad(n: int, m: int, low: int, mode: str) -> Table:
    i = np.arange(m) - low
    if mode == "reflect":
        i = n - 1 - np.abs(n - 1 - i % max(2 * (n - 1), 1))
    else:
        i = i % n if mode == "circular" else np.clip(i, 0, n - 1)
    return i[None], None


# kind -> (input size, output size, *settings) -> (cells [taps, output], weights [taps, output] or None for
# ones)
TABLES: dict[str, Callable[..., Table]] = {
    "linear": _linear,
    "cubic": _cubic,
    "nearest": _nearest,
    "antialias": _antialias,
    "area": _area,
    "spread": _spread,
    "pad": _pad,
}


def _transpose(index: np.ndarray, weight: np.ndarray | None, n: int) -> Table:
    """The table that sends each output cell's share back to the n input cells."""
    taps, m = index.shape
    weight = np.ones(index.shape) if weight is None else weight
    rows, values, targets = index.reshape(-1), weight.reshape(-1), np.tile(np.arange(m), taps)
    used = values != 0
    rows, values, targets = rows[used], values[used], targets[used]
    order = np.argsort(rows, kind="stable")
    rows, values, targets = rows[order], values[order], targets[order]
    slot = np.arange(rows.size) - np.searchsorted(rows, rows)
    cells = np.zeros((int(slot.max(initial=0)) + 1, n), np.int64)
    shares = np.zeros(cells.shape)
    cells[slot, rows], shares[slot, rows] = targets, values
    return cells, shares


@lru_cache(512)
def _table(spec: Spec, transposed: bool) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """(cells, weights, None), or (cells, weights, dense matrix) where there are many taps."""
    kind, n, m, *settings = spec
    index, weight = TABLES[kind](n, m, *settings)
    if transposed:
        index, weight = _transpose(index, weight, n)
    if len(index) <= _MAX_TAPS or weight is None:
        return index, weight, None
    dense = np.zeros((index.shape[1], m if transposed else n))
    np.add.at(dense, (np.broadcast_to(np.arange(index.shape[1]), index.shape), index), weight)
    return index, weight, dense


def _resample_reference(x: Any, dim: int, spec: Any, transposed: bool = False) -> Any:
    index, weight = TABLES[spec[0]](*spec[1:])
    dense = np.zeros((spec[2], spec[1]))
    for row, share in zip(index, np.ones(index.shape) if weight is None else weight, strict=True):
        for i, (j, w) in enumerate(zip(row, share, strict=True)):
            dense[i, j] += w
    return np.moveaxis(np.tensordot(dense.T if transposed else dense, x, (1, dim)), 0, dim)


@op(
    public=False,
    amp="promote",
    reference=_resample_reference,
    samples=[
        Sample((2, 5, 3), 1, ("linear", 5, 8, False, 0.0)),
        Sample((2, 8, 3), 1, ("linear", 5, 8, True, 0.0), True),
        Sample((2, 6), 1, ("cubic", 6, 4, False, 0.0)),
        Sample((4, 2), 0, ("nearest", 4, 7, 0.0, 0.5)),
        Sample((2, 7), -1, ("nearest", 4, 7, 0.0, 0.0), True),
        Sample((2, 30), 1, ("area", 30, 2)),
        Sample((2, 5), 1, ("antialias", 12, 5, False, 0.0, True), True),
        Sample((5, 2), 0, ("pad", 5, 9, 3, "reflect")),
        Sample((5, 2), 0, ("pad", 5, 9, 3, "circular")),
        Sample((9, 2), 0, ("pad", 5, 9, 3, "edge"), True),
    ],
)
def resample(xp, x, dim: int, spec: tuple, transposed: bool = False):
    """`x` with dimension `dim` replaced by weighted sums of its cells:

    `spec` names a row of `TABLES`, the sizes and the settings.

    spec: (kind, n, m, ...) takes a dimension of size n to m, or with `transposed` from m back to n (the
    derivative).
    """
    dim = normalize_dim("resample", dim, x.ndim)
    size = spec[2] if transposed else spec[1]
    if x.shape[dim] != size:
        raise ShapeError(f"resample: {spec[0]} expects size {size} in dimension {dim}, got shape {x.shape}")
    index, weight, dense = _table(spec, transposed)
    if weight is None:
        return xp.take(x, xp.asarray(index[0]), axis=dim)
    wide = x.astype("float32") if is_low(x.dtype) else x
    kind = wide.real.dtype if wide.dtype.kind in "fc" else "float64"
    if dense is not None:
        cells = xp.swapaxes(wide, dim, -1)
        out = xp.swapaxes(matmul_of(xp)(cells, xp.asarray(dense.T.astype(kind))), dim, -1)
        return out.astype(x.dtype, copy=False)
    weights = xp.asarray(weight.astype(kind)).reshape(len(weight), -1, *(1,) * (x.ndim - dim - 1))
    out = xp.take(wide, xp.asarray(index[0]), axis=dim) * weights[0]
    for row, w in zip(index[1:], weights[1:], strict=True):
        out += xp.take(wide, xp.asarray(row), axis=dim) * w
    return out.astype(x.dtype, copy=False)


resample.grad(x=lambda F, g, dim, spec, transposed: F.resample(g, dim, spec, not transposed))


@op(
    public=False,
    amp="promote",
    samples=[Sample((5, 2), 0, ("pad", 5, 9, 3, "reflect")), Sample((2, 5), 1, ("area", 5, 3))],
)
def resample_beside(xp, x, dim: int, spec: tuple):
    """`resample` whose derivative stays in the graph (see `beside`).

    For the modes of which PyTorch's does.
    """
    return resample.forward(xp, x, dim, spec)


resample_beside.grad(x=lambda F, g, x, dim, spec: F.beside(F.resample(g, dim, spec, True), x))


@op(
    public=False,
    samples=[Sample((2, 3, 4), (1, 2, 0, 1)), Sample((3, 4), (-1, 2), 1.5), Sample((3,), (2, -1))],
)
def pad_constant(xp, x, pad: tuple, value: float = 0.0):
    """`x` with cells of `value` around it; negative numbers cut cells off.

    pad: (low, high) of the last dimension, then of the one before it, and so on.
    """
    pairs = tuple((pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2))
    for (low, high), n in zip(pairs, x.shape[x.ndim - len(pairs) :], strict=True):
        if n + low + high < 0 or -low > n or -high > n:
            raise ShapeError(
                f"pad: cannot cut {pad} off an input of shape {x.shape}; the sizes would be negative"
            )
    out = pad_spatial(xp, x, pairs, value)
    return out.copy() if xp.may_share_memory(out, x) else out


pad_constant.grad(x=lambda F, g, pad: F.pad_constant(g, tuple(-p for p in pad)))


def _unfold_reference(x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    count = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, d, s in zip(x.shape[2:], kernel, dilation, stride, strict=True)
    ]
    out = np.empty((*x.shape[:2], *kernel, *count))
    for at in np.ndindex(*count):
        part = tuple(
            slice(i * s, i * s + d * (k - 1) + 1, d)
            for i, s, d, k in zip(at, stride, dilation, kernel, strict=True)
        )
        out[(..., *at)] = x[(..., *part)]
    return out.reshape(x.shape[0], -1, prod(count))


@op(
    public=False,
    reference=_unfold_reference,
    samples=[
        Sample((2, 3, 5, 6), (2, 3), (1, 1), (0, 1), (1, 2)),
        Sample((1, 2, 6, 6), (2, 2), (2, 1), (1, 0), (2, 2)),
    ],
)
def im2col(xp, x, kernel: tuple, dilation: tuple, padding: tuple, stride: tuple):
    """The windows of `x` as columns.

    x: [batch, channels, *sizes]. Returns [batch, channels * prod(kernel), windows].
    """
    pairs = tuple((p, p) for p in padding)
    count = window_count(x.shape[2:], kernel, stride, pairs, dilation)
    if min(count) < 1:
        raise ShapeError(
            f"unfold: the windows {kernel} (dilation {dilation}) do not fit in the input {x.shape} padded by "
            f"{padding}; use a smaller kernel"
        )
    view = windows(xp, pad_spatial(xp, x, pairs), kernel, count, stride, dilation)
    return xp.ascontiguousarray(view).reshape(x.shape[0], x.shape[1] * prod(kernel), prod(count))


@op(
    public=False,
    samples=[
        Sample((2, 18, 12), (5, 6), (2, 3), (1, 1), (0, 1), (1, 2)),
        Sample((1, 8, 4), (6, 5), (2, 2), (2, 1), (0, 0), (2, 2)),
    ],
)
def col2im(xp, x, size: tuple, kernel: tuple, dilation: tuple, padding: tuple, stride: tuple):
    """The columns of `im2col` added back where they came from: its transpose.

    x: [batch, channels * prod(kernel), windows]. Returns [batch, channels, *size].
    """
    count = window_count(size, kernel, stride, tuple((p, p) for p in padding), dilation)
    if x.ndim != 3 or x.shape[1] % prod(kernel) or x.shape[2] != prod(count):
        raise ShapeError(
            f"fold: expected [batch, a multiple of {prod(kernel)}, {prod(count)}] (kernel {kernel}, windows "
            f"{count} for output_size {size}), "
            f"got {x.shape}; kernel, stride, padding and dilation must be those of unfold"
        )
    channels = x.shape[1] // prod(kernel)
    columns = x.reshape(x.shape[0], channels, *kernel, *count)
    out = xp.zeros((x.shape[0], channels, *(n + 2 * p for n, p in zip(size, padding, strict=True))), x.dtype)
    for position in product(*map(range, kernel)):
        out[(..., *window_slices(position, count, stride, dilation))] += columns[
            (slice(None), slice(None), *position)
        ]
    return pad_spatial(xp, out, tuple((-p, -p) for p in padding)).copy()


im2col.grad(
    x=lambda F, g, x_shape, kernel, dilation, padding, stride: F.col2im(
        g, x_shape[2:], kernel, dilation, padding, stride
    )
)
col2im.grad(x=lambda F, g, kernel, dilation, padding, stride: F.im2col(g, kernel, dilation, padding, stride))


def _cells(xp: Any, index: Any, channels: int, size: int) -> Any:
    """The positions of [batch, channels, points] in a flattened [batch, channels, size]."""
    rows = xp.arange(index.shape[0] * channels).reshape(index.shape[0], channels, 1) * size
    return (rows + index[:, None, :]).reshape(-1)


_POINTS = A((2, 4), dtype="int64", low=0, high=5)


@op(public=False, samples=[Sample((2, 3, 5), _POINTS)])
def take_cells(xp, x, index):
    """The cells of `x` [batch, channels, size] at `index` [batch, points], the same for all channels:

    [batch, channels, points].
    """
    if xp.__name__ == "numpy" and index.size and not 0 <= index.min() <= index.max() < x.shape[2]:
        raise IndexRangeError(
            f"take_cells: expected indices in [0, {x.shape[2]}), got {index.min()} to {index.max()}"
        )
    return xp.take(x.reshape(-1), _cells(xp, index, x.shape[1], x.shape[2])).reshape(*x.shape[:2], -1)


@op(public=False, samples=[Sample((2, 3, 4), _POINTS, 5)])
def add_cells(xp, x, index, size: int):
    """Zeros [batch, channels, size] with `x` [batch, channels, points] added at `index` [batch, points].

    The transpose of `take_cells`.
    """
    planes = x.shape[0] * x.shape[1]
    out = sum_rows(xp, planes * size, _cells(xp, index, x.shape[1], size), x.reshape(-1, 1))
    return out.reshape(*x.shape[:2], size)


take_cells.grad(x=lambda F, g, index, x: F.beside(F.add_cells(g, index, x.shape[2]), x))
add_cells.grad(x=lambda F, g, index: F.take_cells(g, index))
