"""One function per use of a kernel: its launch shape, temporaries and results, from raw arrays.

`launch` is a Launcher (or, in tests, its stand-in on the simulator): called with name, grid, block,
arguments; offers `empty`, `zeros`, `address`, `sms`. All
arrays are C-contiguous, of one dtype where not said otherwise, and not empty; the registrations in
`ops/cuda_kernels.py` see to that. Rows have at most
2^30 columns.
"""

from __future__ import annotations

from math import prod
from typing import Any

from .launch import accumulator
from .specs import NORM_SHAPES, NORM_SHAPES_64

Arrays = tuple[Any, ...]
_SCALAR = ("LUCID_SCALAR",)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def per_pack(dtype: Any) -> int:
    """Elements in 16 bytes."""
    return 16 // int(dtype.itemsize)


def form(launch: Any, *arrays: Any, cols: int = 0) -> tuple[str, ...]:
    """The macros of the vector form, or of the scalar one when an address or the row length is no multiple of
    16 bytes.
    """
    given = [x for x in arrays if x is not None]
    if cols % per_pack(given[0].dtype) or any(launch.address(x) % 16 for x in given):
        return _SCALAR
    return ()


def _step(dtype: Any, macros: tuple[str, ...]) -> int:
    return 1 if "LUCID_SCALAR" in macros else per_pack(dtype)


def flat(launch: Any, n: int, per_thread: int) -> tuple[tuple[int], tuple[int]]:
    """Grid and block of a loop over n elements.

    256 threads, at most 16 blocks per multiprocessor (two rounds of full occupancy).
    """
    return (max(1, min(_ceil(n, 256 * per_thread), 16 * launch.sms)),), (256,)


def row_threads(cols: int) -> int:
    """Threads that share a row: a warp up to 1024 columns, then a block."""
    return 32 if cols <= 1024 else 256 if cols <= 4096 else 512


def by_rows(launch: Any, rows: int, threads: int, per_sm: int = 16) -> tuple[tuple[int], tuple[int, ...]]:
    """Grid and block of a loop over rows."""
    at_once = 8 if threads == 32 else 1
    return (max(1, min(_ceil(rows, at_once), per_sm * launch.sms)),), (32, 8) if threads == 32 else (threads,)


def by_columns(launch: Any, rows: int, cols: int, step: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Grid (tiles of columns, ranges of rows) and block of a column reduction.

    Enough blocks for 8 per multiprocessor, but at least 64 rows in each: the partial sums are then at most
    1/24 of what is read.
    """
    tiles = _ceil(cols, 32 * step)
    return (tiles, max(1, min(_ceil(rows, 64), _ceil(8 * launch.sms, tiles), 65535))), (32, 8)


def _finish_columns(launch: Any, partial: Any, outputs: int, parts: int, cols: int, dtype: Any) -> Arrays:
    outs = tuple(launch.empty(cols, dtype) for _ in range(outputs))
    launch(
        "column_sum_finish",
        (_ceil(cols, 32), outputs),
        (32, 8),
        (partial, outs[0], outs[-1] if outputs == 2 else None, parts, cols),
        dtype,
        outputs=outputs,
    )
    return outs


# ---- element by element ----


def activation(launch: Any, name: str, x: Any, slope: float = 0.0) -> Any:
    """f(x) for "sigmoid", "silu", "gelu", "gelu_tanh", "leaky_relu"."""
    out, macros = launch.empty(x.shape, x.dtype), form(launch, x)
    launch(
        f"{name}_forward",
        *flat(launch, x.size, _step(x.dtype, macros)),
        (x, out, slope, x.size),
        x.dtype,
        macros,
    )
    return out


def activation_backward(launch: Any, name: str, g: Any, v: Any, slope: float = 0.0) -> Any:
    """g f'(v); v is the output of "relu", "tanh", "sigmoid" and the input of "silu", "gelu", "gelu_tanh",
    "leaky_relu".
    """
    dx, macros = launch.empty(g.shape, g.dtype), form(launch, g, v)
    launch(
        f"{name}_backward",
        *flat(launch, g.size, _step(g.dtype, macros)),
        (g, v, dx, slope, g.size),
        g.dtype,
        macros,
    )
    return dx


def activation_bias_grad(launch: Any, name: str, g: Any, v: Any, slope: float = 0.0) -> tuple[Any, Any]:
    """(dz, dbias) of bias + activation.

    Dz = g f'(v) and its sum over all dimensions but the last, in one pass over g and v.
    """
    cols = g.shape[-1]
    rows, dz, macros = g.size // cols, launch.empty(g.shape, g.dtype), form(launch, g, v, cols=cols)
    grid, block = by_columns(launch, rows, cols, _step(g.dtype, macros))
    partial = launch.empty((grid[1], cols), accumulator(g.dtype))
    launch(
        f"{name}_bias_grad", grid, block, (g, v, dz, partial, slope, rows, cols), g.dtype, macros, G=grid[1]
    )
    return dz, _finish_columns(launch, partial, 1, grid[1], cols, g.dtype)[0]


def column_sum(launch: Any, g: Any) -> Any:
    """The sum of g over all dimensions but the last, in a fixed order."""
    cols = g.shape[-1]
    rows, macros = g.size // cols, form(launch, g, cols=cols)
    grid, block = by_columns(launch, rows, cols, _step(g.dtype, macros))
    partial = launch.empty((grid[1], cols), accumulator(g.dtype))
    launch("column_sum", grid, block, (g, partial, rows, cols), g.dtype, macros, G=grid[1])
    return _finish_columns(launch, partial, 1, grid[1], cols, g.dtype)[0]


def masked_scale(launch: Any, x: Any, mask: Any, scale: float) -> Any:
    """x scale where the mask (bool, x's shape) is True, x 0 elsewhere."""
    out, macros = launch.empty(x.shape, x.dtype), form(launch, x)
    launch(
        "masked_scale",
        *flat(launch, x.size, _step(x.dtype, macros)),
        (x, mask, out, scale, x.size),
        x.dtype,
        macros,
    )
    return out


def copy(launch: Any, x: Any) -> Any:
    """A copy of x: what the benchmarks call the bandwidth of the device."""
    out, macros = launch.empty(x.shape, x.dtype), form(launch, x)
    launch("copy", *flat(launch, x.size, _step(x.dtype, macros)), (x, out, x.size), x.dtype, macros)
    return out


# ---- dropout ----


def threshold_of(keep: float) -> int:
    """The word below which an element is kept, as Generator.bernoulli_mask rounds it."""
    return round(keep * 2.0**32)


def dropout(launch: Any, x: Any, state: Any, keep: float, skip: int = 0) -> Any:
    """x / keep where word i of the stream `state` (uint64 [seed, offset] on the device), `skip` blocks on,
    keeps element i, x 0 elsewhere.
    """
    out, macros = launch.empty(x.shape, x.dtype), form(launch, x)
    launch(
        "dropout",
        *flat(launch, x.size, max(4, _step(x.dtype, macros))),
        (x, out, state, skip, threshold_of(keep), 1.0 / keep, x.size),
        x.dtype,
        macros,
    )
    return out


def dropout_mask(launch: Any, shape: Any, state: Any, keep: float, dtype: Any, skip: int = 0) -> Any:
    """The bool mask of `dropout`.

    Generator.bernoulli_mask(shape, keep) of the same stream. dtype: any floating one (it names the build).
    """
    mask = launch.empty(shape, "bool")
    launch(
        "dropout_mask",
        *flat(launch, mask.size, 4),
        (mask, state, skip, threshold_of(keep), mask.size),
        dtype,
        () if launch.address(mask) % 4 == 0 else _SCALAR,
    )
    return mask


# ---- rows ----


def softmax(launch: Any, name: str, x: Any) -> Any:
    """ "softmax" or "log_softmax" of x along its last dimension."""
    cols, out = x.shape[-1], launch.empty(x.shape, x.dtype)
    threads, rows = row_threads(cols), x.size // cols
    launch(
        name,
        *by_rows(launch, rows, threads),
        (x, out, rows, cols),
        x.dtype,
        (f"LUCID_THREADS={threads}", *form(launch, x, cols=cols)),
    )
    return out


def softmax_backward(launch: Any, name: str, g: Any, out: Any) -> Any:
    """The gradient of "softmax" or "log_softmax" along the last dimension, from its output."""
    cols, dx = g.shape[-1], launch.empty(g.shape, g.dtype)
    threads, rows = row_threads(cols), g.size // cols
    launch(
        f"{name}_backward",
        *by_rows(launch, rows, threads),
        (g, out, dx, rows, cols),
        g.dtype,
        (f"LUCID_THREADS={threads}", *form(launch, g, out, cols=cols)),
    )
    return dx


def _column_grid(launch: Any, outer: int, inner: int, step: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (_ceil(inner, 32 * step), min(outer, 65535)), (32, 8)


def columns_pay(launch: Any, shape: tuple[int, ...], dim: int, itemsize: int) -> bool:
    """Whether the columns along `dim` are to be read where they lie, and not moved into rows.

    Rows cost two copies and a pass, 6 elements moved per element; columns 3 at most, but a pack (16 bytes) of
    them is half of what memory delivers at once, so less than a pack costs more than rows do. And there must
    be tiles for a quarter of the multiprocessors, unless the columns are short: a block passes 512 rows of a
    tile in about the time of two launches (arithmetic, not measured).
    """
    outer, n, inner = prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :])
    tiles = outer * _ceil(inner * itemsize, 512)
    return inner * itemsize >= 16 and (n <= 512 or 4 * tiles >= launch.sms)


def softmax_columns(launch: Any, name: str, x: Any, dim: int) -> Any:
    """ "softmax" or "log_softmax" of x along `dim`, which is not the last dimension."""
    outer, n, inner = prod(x.shape[:dim]), x.shape[dim], prod(x.shape[dim + 1 :])
    out, macros = launch.empty(x.shape, x.dtype), form(launch, x, cols=inner)
    launch(
        f"{name}_columns",
        *_column_grid(launch, outer, inner, _step(x.dtype, macros)),
        (x, out, outer, n, inner),
        x.dtype,
        macros,
    )
    return out


def softmax_backward_columns(launch: Any, name: str, g: Any, out: Any, dim: int) -> Any:
    """The gradient of "softmax" or "log_softmax" along `dim`, from its output."""
    outer, n, inner = prod(g.shape[:dim]), g.shape[dim], prod(g.shape[dim + 1 :])
    dx, macros = launch.empty(g.shape, g.dtype), form(launch, g, out, cols=inner)
    launch(
        f"{name}_backward_columns",
        *_column_grid(launch, outer, inner, _step(g.dtype, macros)),
        (g, out, dx, outer, n, inner),
        g.dtype,
        macros,
    )
    return dx


def softmax_backward_inplace(launch: Any, g: Any, out: Any) -> Any:
    """g, turned into the gradient of "softmax" along the last dimension, from its output."""
    cols = g.shape[-1]
    threads, rows = row_threads(cols), g.size // cols
    launch(
        "softmax_backward_inplace",
        *by_rows(launch, rows, threads),
        (g, out, rows, cols),
        g.dtype,
        (f"LUCID_THREADS={threads}", *form(launch, g, out, cols=cols)),
    )
    return g


def cross_entropy(
    launch: Any, x: Any, target: Any, weight: Any, ignore_index: int, smoothing: float, reduction: str
) -> tuple[Any, Any, Any]:
    """(loss, saved, flag): x [rows, cols], target int64 [rows], weight [cols] or None. saved: [2 rows + 1] in
    the accumulator's dtype, for the backward pass ([2 rows] for "none").

    loss is 0-d, or [rows] for "none". flag: uint64 [1]: 0, or the bits of a target out of range, whose loss
    and gradient are NaN.
    """
    rows, cols = x.shape
    wide, threads = accumulator(x.dtype), row_threads(cols)
    saved, losses, counted = (
        launch.empty(2 * rows + (reduction != "none"), wide),
        launch.empty(rows, wide),
        launch.empty(rows, wide),
    )
    flag = launch.zeros(1, "uint64")
    launch(
        "cross_entropy",
        *by_rows(launch, rows, threads),
        (
            x,
            target,
            weight,
            losses,
            counted,
            saved[:rows],
            saved[rows : 2 * rows],
            flag,
            smoothing,
            ignore_index,
            rows,
            cols,
        ),
        x.dtype,
        (f"LUCID_THREADS={threads}", *form(launch, x, weight, cols=cols)),
    )
    if reduction == "none":
        return losses.astype(x.dtype, copy=False), saved, flag
    out = launch.empty((), x.dtype)
    launch(
        "cross_entropy_finish",
        (1,),
        (512,),
        (losses, counted, out, saved[2 * rows :], int(reduction == "mean"), rows),
        x.dtype,
        ("LUCID_THREADS=512",),
    )
    return out, saved, flag


def cross_entropy_backward(
    launch: Any,
    g: Any,
    x: Any,
    target: Any,
    weight: Any,
    saved: Any,
    ignore_index: int,
    smoothing: float,
    reduction: str,
) -> Any:
    """The gradient of `cross_entropy` with respect to x; g is 0-d, or [rows] for "none"."""
    rows, cols = x.shape
    threads, dx = row_threads(cols), launch.empty(x.shape, x.dtype)
    per_row = reduction == "none"
    launch(
        "cross_entropy_backward",
        *by_rows(launch, rows, threads),
        (
            g,
            x,
            target,
            weight,
            saved[:rows],
            saved[rows : 2 * rows],
            None if per_row else saved[2 * rows :],
            dx,
            smoothing,
            ignore_index,
            int(per_row),
            rows,
            cols,
        ),
        x.dtype,
        (f"LUCID_THREADS={threads}", *form(launch, x, weight, cols=cols)),
    )
    return dx


def cross_entropy_gradient(
    launch: Any,
    g: Any,
    x: Any,
    target: Any,
    weight: Any,
    ignore_index: int,
    smoothing: float,
    inplace: bool = False,
) -> tuple[Any, Any, Any]:
    """(losses [rows], dx, flag) in one pass, for a known gradient g [1] (accumulator's dtype) of every row's
    loss. inplace: dx overwrites x.
    """
    rows, cols = x.shape
    threads, losses, dx = (
        row_threads(cols),
        launch.empty(rows, accumulator(x.dtype)),
        x if inplace else launch.empty(x.shape, x.dtype),
    )
    flag = launch.zeros(1, "uint64")
    launch(
        "cross_entropy_gradient",
        *by_rows(launch, rows, threads),
        (g, x, target, weight, losses, dx, flag, smoothing, ignore_index, rows, cols),
        x.dtype,
        (f"LUCID_THREADS={threads}", *form(launch, x, weight, cols=cols)),
    )
    return losses, dx, flag


# ---- norms ----


def norm(
    launch: Any, name: str, x: Any, weight: Any, bias: Any, eps: float, cols: int
) -> tuple[Any, Any, Any]:
    """(out, mean, rstd) of "layer_norm", or (out, None, rstd) of "rms_norm", over the last `cols` elements.

    mean, rstd: [rows], accumulator's dtype.
    """
    rows, threads, wide = x.size // cols, row_threads(cols), accumulator(x.dtype)
    out, rstd = launch.empty(x.shape, x.dtype), launch.empty(rows, wide)
    mean = None if name == "rms_norm" else launch.empty(rows, wide)
    launch(
        name,
        *by_rows(launch, rows, threads),
        (x, weight, bias, out, mean, rstd, eps, rows, cols),
        x.dtype,
        (f"LUCID_THREADS={threads}", *form(launch, x, weight, bias, cols=cols)),
    )
    return out, mean, rstd


def norm_shape(dtype: Any, cols: int) -> tuple[int, int] | None:
    """(threads, elements per thread) of norm_backward for rows of `cols` elements.

    None when they do not fit in registers.
    """
    shapes = NORM_SHAPES_64 if dtype.itemsize == 8 else NORM_SHAPES
    return next(((t, e) for t, e in shapes if cols <= t * e), None)


def norm_backward(
    launch: Any,
    name: str,
    g: Any,
    x: Any,
    weight: Any,
    mean: Any,
    rstd: Any,
    cols: int,
    needs: tuple[bool, bool, bool],
    join: Any = None,
) -> Arrays:
    """(dx, dweight, dbias), None where not needed. join: of x's shape, added to dx on the way, or None.

    One pass over g and x where a row fits in registers, else two.
    """
    rows, dtype = x.size // cols, x.dtype
    shape, macros = norm_shape(dtype, cols), form(launch, g, x, weight, join, cols=cols)
    dx = launch.empty(x.shape, dtype) if needs[0] else None
    outputs = (2 if needs[2] else 1) if needs[1] or needs[2] else 0
    if shape is not None:
        threads, elements = shape
        grid, block = by_rows(
            launch, rows, threads, per_sm=4 if threads <= 128 else 2 if threads == 256 else 1
        )
        partial, parts = (
            launch.empty((outputs, grid[0], cols), accumulator(dtype)) if outputs else None,
            grid[0],
        )
        launch(
            f"{name}_backward",
            grid,
            block,
            (g, x, weight, mean, rstd, join, dx, partial, int(outputs == 2), rows, cols),
            dtype,
            (f"LUCID_THREADS={threads}", f"LUCID_ELEMENTS={elements}", *macros),
            G=parts,
        )
    else:
        if dx is not None:
            threads = row_threads(cols)
            launch(
                f"{name}_backward_x",
                *by_rows(launch, rows, threads),
                (g, x, weight, mean, rstd, join, dx, rows, cols),
                dtype,
                (f"LUCID_THREADS={threads}", *macros),
            )
        if outputs:
            tiles, block2 = by_columns(launch, rows, cols, _step(dtype, macros))
            parts, partial = tiles[1], launch.empty((outputs, tiles[1], cols), accumulator(dtype))
            launch(
                "norm_backward_weight",
                tiles,
                block2,
                (g, x, mean, rstd, partial, int(outputs == 2), rows, cols),
                dtype,
                macros,
                G=parts,
            )
    if not outputs:
        return dx, None, None
    sums = _finish_columns(launch, partial, outputs, parts, cols, dtype)
    return dx, sums[0] if needs[1] else None, sums[1] if outputs == 2 else None
