"""Batch norm, pooling, the columns of a convolution, sums by index.

As `calls`, on arrays with channels, windows or indices.
"""

from __future__ import annotations

from math import prod
from typing import Any

from .calls import Arrays, _ceil, _step, by_columns, flat, form
from .launch import accumulator
from .loader import Unavailable

Shape = tuple[int, ...]

# Blocks in the second dimension of a grid.
_MOST_TILES = 65535
# Elements of a channel per block: 32 KB of float32, so that the second pass over them stays in cache.
_RANGE = 8192


# ---- batch norm of x [batch, channels, ...] ----


def _channels(x: Any) -> tuple[int, int, int]:
    channels, inner = x.shape[1], prod(x.shape[2:])
    return channels, x.size // channels, inner


def _channel_form(launch: Any, inner: int, channels: int, *arrays: Any) -> tuple[str, ...]:
    # A pack must stay within a channel, or (inner 1) within a row.
    return form(launch, *arrays, cols=channels if inner == 1 else inner)


def _channel_grid(launch: Any, count: int, channels: int, inner: int, step: int) -> tuple[Any, Any]:
    if inner == 1:
        return by_columns(launch, count, channels, step)
    return (channels, max(1, min(_ceil(count, _RANGE), 65535))), (256,)


def batch_norm(launch: Any, x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """(out, mean, var): the batch's own mean and biased variance per channel, [channels] in the accumulator's
    dtype.
    """
    channels, count, inner = _channels(x)
    dtype, wide = x.dtype, accumulator(x.dtype)
    macros = _channel_form(launch, inner, channels, x)
    grid, block = _channel_grid(launch, count, channels, inner, _step(dtype, macros))
    partial = launch.empty((3, grid[1], channels), wide)
    if inner == 1:
        launch(
            "batch_norm_partial_columns", grid, block, (x, partial, count, channels), dtype, macros, G=grid[1]
        )
    else:
        launch(
            "batch_norm_partial",
            grid,
            block,
            (x, partial, channels, count, inner),
            dtype,
            ("LUCID_THREADS=256", *macros),
            G=grid[1],
        )
    mean, var, scale = (launch.empty(channels, wide) for _ in range(3))
    launch(
        "batch_norm_statistics",
        (_ceil(channels, 128),),
        (128,),
        (partial, weight, mean, var, scale, eps, grid[1], channels),
        dtype,
    )
    out = launch.empty(x.shape, dtype)
    launch(
        "batch_norm_apply",
        *flat(launch, x.size, _step(dtype, macros)),
        (x, mean, scale, bias, out, channels, inner, x.size),
        dtype,
        macros,
    )
    return out, mean, var


def batch_norm_backward(
    launch: Any,
    g: Any,
    x: Any,
    weight: Any,
    mean: Any,
    var: Any,
    eps: float,
    needs_x: bool = True,
    out: Any = None,
) -> Arrays:
    """(dx, dweight, dbias); dx is None when not needed. mean, var as `batch_norm` gives them.

    out: the output of a relu behind the norm, or None: g counts except where it is 0.
    """
    channels, count, inner = _channels(x)
    dtype, wide = x.dtype, accumulator(x.dtype)
    macros = _channel_form(launch, inner, channels, g, x, out)
    partial = _backward_partial(launch, g, x, out, mean, None, None, None, True, eps, macros)
    dweight, dbias, coefficients = (
        launch.empty(channels, dtype),
        launch.empty(channels, dtype),
        launch.empty((3, channels), wide),
    )
    _backward_finish(launch, partial, weight, var, dweight, dbias, coefficients, eps, count)
    if not needs_x:
        return None, dweight, dbias
    dx = launch.empty(x.shape, dtype)
    launch(
        "batch_norm_backward_apply",
        *flat(launch, x.size, _step(dtype, macros)),
        (g, x, out, mean, coefficients, dx, channels, inner, x.size),
        dtype,
        macros,
    )
    return dx, dweight, dbias


def batch_norm_eval_backward(
    launch: Any, g: Any, x: Any, out: Any, weight: Any, mean: Any, var: Any, eps: float, needs: Any
) -> Arrays:
    """(dx, dweight, dbias) of a norm by fixed statistics, None where not needed: one pass for all.

    x and mean are read for dweight alone. out: as in `batch_norm_backward`. mean, var: [channels] in the
    accumulator's dtype.
    """
    if not needs[1]:
        x = mean = None
    channels, count, inner = _channels(g)
    macros = _channel_form(launch, inner, channels, g, x, out)
    dx = launch.empty(g.shape, g.dtype) if needs[0] else None
    summed = needs[1] or needs[2]
    partial = _backward_partial(launch, g, x, out, mean, var, weight, dx, summed, eps, macros)
    if not summed:
        return dx, None, None
    dweight, dbias = launch.empty(channels, g.dtype), launch.empty(channels, g.dtype)
    _backward_finish(launch, partial, weight, var, dweight, dbias, None, eps, count)
    return dx, dweight if needs[1] else None, dbias if needs[2] else None


def _backward_partial(
    launch: Any,
    g: Any,
    x: Any,
    out: Any,
    mean: Any,
    var: Any,
    weight: Any,
    dx: Any,
    summed: bool,
    eps: float,
    macros: tuple[str, ...],
) -> Any:
    """[2, G, channels], the sums of g and of g (x - mean) over G ranges (None where not `summed`); writes
    dx where it is given.
    """
    channels, count, inner = _channels(g)
    grid, block = _channel_grid(launch, count, channels, inner, _step(g.dtype, macros))
    partial = launch.empty((2, grid[1], channels), accumulator(g.dtype)) if summed else None
    arrays = (g, x, out, mean, var if dx is not None else None, weight, dx, partial, eps)
    if inner == 1:
        name, numbers = "batch_norm_backward_partial_columns", (count, channels)
    else:
        name, numbers = "batch_norm_backward_partial", (channels, count, inner)  # type: ignore[assignment]
        macros = ("LUCID_THREADS=256", *macros)
    launch(name, grid, block, (*arrays, *numbers), g.dtype, macros, G=grid[1])
    return partial


def _backward_finish(
    launch: Any,
    partial: Any,
    weight: Any,
    var: Any,
    dweight: Any,
    dbias: Any,
    coefficients: Any,
    eps: float,
    count: int,
) -> None:
    """Nothing; adds the ranges up and writes what the channels get."""
    channels = dbias.shape[0]
    launch(
        "batch_norm_backward_finish",
        (_ceil(channels, 128),),
        (128,),
        (partial, weight, var, dweight, dbias, coefficients, eps, count, partial.shape[1], channels),
        dbias.dtype,
    )


# ---- sums by index ----


def segment_sum(
    launch: Any,
    src: Any,
    order: Any,
    ordered: Any,
    rows: int,
    base: Any = None,
    alpha: float = 1.0,
    skip: int = -1,
    by_count: bool = False,
) -> Any:
    """[rows, cols]: base + alpha times the sum of the rows of src [n, cols] with each index, in a fixed
    order.

    order, ordered: int64 [n], the stable order that sorts the indices, and the sorted indices, all in [0,
    rows). skip: an index whose rows are left
    out; by_count: the mean in place of the sum.

    Raises Unavailable for rows of more than 65535 tiles (2 097 120 elements at odd addresses).
    """
    n, cols = src.shape
    dtype = src.dtype
    start, out = launch.empty(rows + 1, "int64"), launch.empty((rows, cols), dtype)
    launch("segment_bounds", (_ceil(rows + 1, 256),), (256,), (ordered, start, rows, n), dtype)
    if cols == 1 and skip < 0 and not by_count:
        launch(
            "segment_sum_flat",
            (_ceil(rows, 256),),
            (256,),
            (src, order, start, base, out, alpha, rows),
            dtype,
            n=n,
        )
        return out
    macros = form(launch, src, base, cols=cols)
    grid = (_ceil(rows, 8), _ceil(cols, 32 * _step(dtype, macros)))
    if grid[1] > _MOST_TILES:
        raise Unavailable(f"kernel segment_sum: takes rows of {_MOST_TILES} tiles, got {grid[1]}")
    launch(
        "segment_sum",
        grid,
        (32, 8),
        (src, order, start, base, out, alpha, skip, int(by_count), rows, cols),
        dtype,
        macros,
        n=n,
    )
    return out


def index_add_atomic(launch: Any, src: Any, index: Any, out: Any, alpha: float = 1.0) -> None:
    """Nothing; adds alpha times the rows of src [n, cols] to the rows index [n] of out, in the accumulator's
    dtype, in no fixed order.
    """
    n, cols = src.shape
    launch(
        "index_add_atomic",
        *flat(launch, src.size, 1),
        (src, index, out, alpha, n, out.shape[0], cols),
        src.dtype,
    )


# ---- windows over the last one to three dimensions ----


def _three(values: Shape, filler: int) -> Shape:
    return (filler,) * (3 - len(values)) + tuple(values)


def _windows(
    size: Shape, count: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape
) -> Shape:
    return (
        *_three(size, 1),
        *_three(count, 1),
        *_three(kernel, 1),
        *_three(stride, 1),
        *_three(padding, 0),
        *_three(dilation, 1),
    )


def _over_windows(
    launch: Any,
    name: str,
    given: Arrays,
    out: Any,
    options: Shape,
    windows: Shape,
    extra: Arrays = (),
    macros: tuple[str, ...] = (),
    **sizes: int,
) -> None:
    launch(
        name,
        *flat(launch, out.size, 1),
        (*given, out, *extra, *options, out.size, *windows),
        out.dtype,
        macros,
        **sizes,
    )


def _cells(window: Any) -> tuple[str, ...]:
    return ("LUCID_SMALL",) if window.dtype.itemsize == 1 else ()


def max_pool(
    launch: Any, x: Any, count: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape
) -> tuple[Any, Any]:
    """(out, window): the largest cell of each window and its number within the window, int8 for windows of up
    to 127 cells, else int32.
    """
    n = len(kernel)
    out = launch.empty((*x.shape[: x.ndim - n], *count), x.dtype)
    window = launch.empty(out.shape, "int8" if prod(kernel) <= 127 else "int32")
    _over_windows(
        launch,
        "max_pool",
        (x,),
        out,
        (),
        _windows(x.shape[x.ndim - n :], count, kernel, stride, padding, dilation),
        (window,),
        _cells(window),
        inputs=x.size,
    )
    return out, window


def max_pool_backward(
    launch: Any,
    g: Any,
    window: Any,
    size: Shape,
    kernel: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
) -> Any:
    """dx [..., *size]: g at the cells that the windows found largest. window: int8 or int32."""
    n = len(kernel)
    dx = launch.empty((*g.shape[: g.ndim - n], *size), g.dtype)
    _over_windows(
        launch,
        "max_pool_backward",
        (g, window),
        dx,
        (),
        _windows(size, g.shape[g.ndim - n :], kernel, stride, padding, dilation),
        (),
        _cells(window),
        outputs=g.size,
    )
    return dx


def avg_pool(
    launch: Any,
    x: Any,
    count: Shape,
    kernel: Shape,
    stride: Shape,
    padding: Shape,
    padded: bool,
    divisor: int,
) -> Any:
    """The mean of each window.

    padded: cells of the padding count as zeros; divisor: divides the sums in place of the number of cells (0:
    not).
    """
    n = len(kernel)
    out = launch.empty((*x.shape[: x.ndim - n], *count), x.dtype)
    _over_windows(
        launch,
        "avg_pool",
        (x,),
        out,
        (int(padded), divisor),
        _windows(x.shape[x.ndim - n :], count, kernel, stride, padding, (1,) * n),
        inputs=x.size,
    )
    return out


def avg_pool_backward(
    launch: Any, g: Any, size: Shape, kernel: Shape, stride: Shape, padding: Shape, padded: bool, divisor: int
) -> Any:
    """dx [..., *size]: the shares of g of the windows that contain each cell."""
    n = len(kernel)
    dx = launch.empty((*g.shape[: g.ndim - n], *size), g.dtype)
    _over_windows(
        launch,
        "avg_pool_backward",
        (g,),
        dx,
        (int(padded), divisor),
        _windows(size, g.shape[g.ndim - n :], kernel, stride, padding, (1,) * n),
        outputs=g.size,
    )
    return dx


def _columns(
    launch: Any, name: str, given: Any, out: Any, planes: tuple[int, int], per_plane: int, windows: Shape
) -> None:
    # planes: batch and channels as the kernel calls them; per_plane: columns, or cells, of a sample.
    tiles = _ceil(planes[0] * per_plane, 256)
    ranges = max(1, min(planes[1], 65535, _ceil(16 * launch.sms, tiles)))
    launch(
        name,
        (tiles, ranges),
        (256,),
        (given, out, *planes, *windows),
        out.dtype,
        inputs=given.size,
        n=out.size,
    )


def im2col(
    launch: Any,
    x: Any,
    count: Shape,
    kernel: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    inside: bool = False,
) -> Any:
    """[batch, channels * prod(kernel), prod(count)]; inside: [channels * prod(kernel), batch * prod(count)].

    What each cell of the kernel sees of x [batch, channels, *size]. padding: the low one, negative where
    cells are cut off.
    """
    batch, channels = x.shape[:2]
    depth, cells = channels * prod(kernel), prod(count)
    out = launch.empty((depth, batch * cells) if inside else (batch, depth, cells), x.dtype)
    windows = _windows(x.shape[2:], count, kernel, stride, padding, dilation)
    planes = (batch, channels) if inside else (1, batch * channels)
    _columns(launch, "im2col", x, out, planes, cells, windows)
    return out


def col2im(
    launch: Any,
    columns: Any,
    size: Shape,
    count: Shape,
    kernel: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    inside: bool = False,
    out: Any = None,
) -> Any:
    """[batch, channels, *size]: the adjoint of `im2col`. out: where to write it."""
    depth = columns.shape[0 if inside else 1]
    batch, channels = columns.size // (depth * prod(count)), depth // prod(kernel)
    out = launch.empty((batch, channels, *size), columns.dtype) if out is None else out
    windows = _windows(size, count, kernel, stride, padding, dilation)
    planes = (batch, channels) if inside else (1, batch * channels)
    _columns(launch, "col2im", columns, out, planes, prod(size), windows)
    return out


__all__ = [
    "avg_pool",
    "avg_pool_backward",
    "batch_norm",
    "batch_norm_backward",
    "batch_norm_eval_backward",
    "col2im",
    "im2col",
    "index_add_atomic",
    "max_pool",
    "max_pool_backward",
    "segment_sum",
]
