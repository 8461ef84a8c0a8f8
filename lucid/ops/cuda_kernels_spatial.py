"""CUDA paths of ops with channels, windows and indices; see cuda_kernels.py."""

from __future__ import annotations

from math import prod
from typing import Any

from ..kernel import calls_spatial as calls
from ..kernel.launch import accumulator
from ..storage.order import fixed_order
from .bounds import ascending_in_range
from .cuda_kernels import _solid, attempt, launch_for
from .embedding import index_error
from .index import _slices, check_range
from .pool import _spatial, pooled_size
from .registry import OPS
from .rows import ROW_SUMS

# A kernel takes the index of an element of these apart in 32 bits.
_MOST_ELEMENTS = 1 << 31


# ---- batch norm ----


def _batch_norm(xp, x, weight=None, bias=None, eps=1e-5):
    fits = (
        x.ndim > 1
        and x.size < _MOST_ELEMENTS
        and all(v is None or v.shape == x.shape[1:2] for v in (weight, bias))
    )
    found = attempt(calls.batch_norm, launch_for(x, weight, bias), x, weight, bias, eps) if fits else None
    return OPS["batch_norm"].forward(xp, x, weight, bias, eps) if found is None else found


def _batch_norm_grads(F, g, x, weight, eps, mean, var, needs):
    grads, solid = None, _solid(g)
    if x.size < _MOST_ELEMENTS:
        grads = attempt(
            calls.batch_norm_backward,
            launch_for(solid, x, weight),
            solid,
            x,
            weight,
            mean,
            var,
            eps,
            needs[0],
        )
    if grads is None:
        return OPS["batch_norm"].formulas["x"].function(F, g, x, weight, eps, needs)
    return tuple(v if need else None for v, need in zip(grads, needs, strict=True))


OPS["batch_norm"].accelerate("cuda", _batch_norm, {("x", "weight", "bias"): _batch_norm_grads})


# ---- sums by index: in a fixed order, where the array library's `add.at` adds by atomics in any order ----


def _segments(
    launch: Any,
    src: Any,
    index: Any,
    rows: int,
    base: Any = None,
    alpha: float = 1.0,
    skip: int = -1,
    by_count: bool = False,
) -> Any:
    """Rows of src [n, cols] added up by index [n] in [0, rows); see `calls.segment_sum`."""
    order, ordered = _sorted(launch, index)
    return calls.segment_sum(launch, src, order, ordered, rows, base, alpha, skip, by_count)


def _sorted(launch: Any, index: Any) -> tuple[Any, Any]:
    index = index.astype("int64", copy=False)
    order = launch.xp.argsort(index, kind="stable").astype("int64", copy=False)
    return order, index[order]


def _atomic(launch: Any, src: Any, index: Any, rows: int) -> Any:
    """The same by atomic additions: without a sort, and different in the last place from run to run."""
    out = launch.zeros((rows, src.shape[1]), accumulator(src.dtype))
    calls.index_add_atomic(launch, src, _solid(index.astype("int64", copy=False)), out)
    return out.astype(src.dtype, copy=False)


def _row_sums(rows: int, index: Any, src: Any) -> Any:
    src = _solid(src)
    launch = launch_for(src) if rows else None
    return attempt(_segments if fixed_order() else _atomic, launch, src, index, rows)


ROW_SUMS["cupy"] = _row_sums


def _embedding_sums(launch: Any, src: Any, indices: Any, rows: int, padding_idx: int, by_count: bool) -> Any:
    order, ordered = _sorted(launch, indices.reshape(-1))
    ascending_in_range(launch.xp, ordered, 0, rows, index_error("embedding_backward", rows))
    return calls.segment_sum(launch, src, order, ordered, rows, None, 1.0, padding_idx, by_count)


def _embedding_backward(xp, grad, indices, rows, padding_idx=-1, scale_grad_by_freq=False):
    out = None
    if indices.size and grad.ndim and rows and fixed_order():
        src = _solid(grad).reshape(-1, grad.shape[-1])
        out = attempt(
            _embedding_sums, launch_for(src), src, indices, rows, padding_idx, bool(scale_grad_by_freq)
        )
    return (
        OPS["embedding_backward"].forward(xp, grad, indices, rows, padding_idx, scale_grad_by_freq)
        if out is None
        else out
    )


def _index_add(xp, x, dim, index, source, alpha=1):
    out = None
    fits = x.ndim and x.size and source.size and source.dtype == x.dtype and source.ndim == x.ndim
    if fits and fixed_order():
        d = _slices("index_add", x, dim, index, source)
        where = check_range("index_add", xp, index.reshape(-1), x.shape[d], d)
        moved = xp.moveaxis(x, d, 0)
        rows, base = (xp.ascontiguousarray(xp.moveaxis(v, d, 0)).reshape(v.shape[d], -1) for v in (source, x))
        out = attempt(_segments, launch_for(rows, base), rows, where, x.shape[d], base, alpha)
    if out is None:
        return OPS["index_add"].forward(xp, x, dim, index, source, alpha)
    return xp.ascontiguousarray(xp.moveaxis(out.reshape(moved.shape), 0, d))


OPS["embedding_backward"].accelerate("cuda", _embedding_backward)
OPS["index_add"].accelerate("cuda", _index_add)


# ---- pooling, over one to three dimensions ----


def _max_pool(xp, x, kernel, stride, padding, dilation, ceil_mode=False):
    found = None
    if len(kernel) <= 3 and x.size:
        count = pooled_size(
            "max_pool", _spatial(x.shape, kernel), kernel, stride, padding, dilation, ceil_mode
        )
        found = attempt(calls.max_pool, launch_for(x), x, count, kernel, stride, padding, dilation)
    return (
        OPS["max_pool"].forward(xp, x, kernel, stride, padding, dilation, ceil_mode)
        if found is None
        else found
    )


def _max_pool_spread(xp, x, window, size, kernel, stride, padding, dilation):
    dx = None
    if (
        len(kernel) <= 3
        and window.dtype.name in ("int8", "int32")
        and window.flags.c_contiguous
        and window.shape == x.shape
        and prod(size)
    ):
        solid = _solid(x)
        dx = attempt(
            calls.max_pool_backward, launch_for(solid), solid, window, size, kernel, stride, padding, dilation
        )
    return (
        OPS["max_pool_spread"].forward(xp, x, window, size, kernel, stride, padding, dilation)
        if dx is None
        else dx
    )


def _avg_pool(xp, x, kernel, stride, padding, ceil_mode=False, count_include_pad=True, divisor=0):
    out = None
    if len(kernel) <= 3 and x.size:
        count = pooled_size(
            "avg_pool", _spatial(x.shape, kernel), kernel, stride, padding, (1,) * len(kernel), ceil_mode
        )
        out = attempt(
            calls.avg_pool, launch_for(x), x, count, kernel, stride, padding, count_include_pad, divisor
        )
    return (
        OPS["avg_pool"].forward(xp, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor)
        if out is None
        else out
    )


def _avg_pool_spread(xp, x, size, kernel, stride, padding, count_include_pad=True, divisor=0):
    dx = None
    if len(kernel) <= 3 and prod(size):
        solid = _solid(x)
        dx = attempt(
            calls.avg_pool_backward,
            launch_for(solid),
            solid,
            size,
            kernel,
            stride,
            padding,
            count_include_pad,
            divisor,
        )
    return (
        OPS["avg_pool_spread"].forward(xp, x, size, kernel, stride, padding, count_include_pad, divisor)
        if dx is None
        else dx
    )


OPS["max_pool"].accelerate("cuda", _max_pool)
OPS["max_pool_spread"].accelerate("cuda", _max_pool_spread)
OPS["avg_pool"].accelerate("cuda", _avg_pool)
OPS["avg_pool_spread"].accelerate("cuda", _avg_pool_spread)
