"""Softmax and its logarithm, along one dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np  # for the CPU paths alone

from ..errors import DtypeError
from ..storage.dtype import is_floating
from .common import is_low, normalize_dim
from .pointwise import wide
from .registry import A, Op, Sample, op

# Elements per block of rows: 256 KB of float32. Of 16k to 256k the fastest for layer norm of 4096x1024 on a
# core with 1 MB of level-2 cache (bench: layer_norm).
BLOCK = 65536


def require_floating(name: str, x: Any) -> None:
    """Nothing; raises DtypeError unless `x` is real and floating."""
    if not is_floating(x.dtype):
        raise DtypeError(
            f"{name}: expected a floating tensor, got {x.dtype.name} of shape {tuple(x.shape)}; "
            "convert it with .float() or pass dtype=lucid.float32"
        )


def cast_like(F: Any, dx: Any, g: Any) -> Any:
    """`dx` in the dtype of `g`: a Python number beside bfloat16 gives float32 in NumPy."""
    return dx if dx.dtype == g.dtype else F.cast(dx, g.dtype)


def row_blocks(rows: int, cols: int) -> Iterator[slice]:
    """Slices over `rows` rows of `cols` elements, each of about BLOCK elements."""
    step = max(1, BLOCK // max(cols, 1))
    return (slice(i, min(i + step, rows)) for i in range(0, rows, step))


def rows_of(x: Any, dim: int) -> Any:
    """`x` as a matrix whose rows run along `dim`, or None where that would copy or gain nothing."""
    if x.ndim == 0 or dim not in (-1, x.ndim - 1) or x.size <= BLOCK or is_low(x.dtype):
        return None
    return x.reshape(-1, x.shape[-1]) if x.flags.c_contiguous else None


@op(public=False, amp="full", reference="scipy.special:softmax",
    samples=[Sample((3, 4), -1), Sample((2, 3, 4), 1), Sample(A((5,), low=900.0, high=1000.0), 0),
             Sample((), 0)])
def softmax(xp, x, dim: int):
    """exp(x) / sum(exp(x)) along `dim`.

    x: any shape, floating; the result has its shape and dtype. A row of -inf alone gives nan, as 0/0 does.
    16-bit inputs are computed in float32.
    """
    require_floating("softmax", x)
    dim = normalize_dim("softmax", dim, x.ndim)
    if not x.size:
        return x.copy()
    rows = wide(x).reshape(x.shape or (1,))
    out = rows - rows.max(dim, keepdims=True)
    xp.exp(out, out=out)
    out /= out.sum(dim, keepdims=True)
    return out.reshape(x.shape).astype(x.dtype, copy=False)


softmax.grad(x=lambda F, g, out, dim: out * (g - F.sum(g * out, dim=dim, keepdim=True)))


@op(public=False, amp="full", reference="scipy.special:log_softmax",
    samples=[Sample((3, 4), -1), Sample((2, 3, 4), 1), Sample(A((5,), low=900.0, high=1000.0), 0),
             Sample((), 0)])
def log_softmax(xp, x, dim: int):
    """x - log(sum(exp(x))) along `dim`, without overflow.

    x: any shape, floating; the result has its shape and dtype. 16-bit inputs are computed in float32.
    """
    require_floating("log_softmax", x)
    dim = normalize_dim("log_softmax", dim, x.ndim)
    if not x.size:
        return x.copy()
    rows = wide(x).reshape(x.shape or (1,))
    out = rows - rows.max(dim, keepdims=True)
    out -= xp.log(xp.exp(out).sum(dim, keepdims=True))
    return out.reshape(x.shape).astype(x.dtype, copy=False)


log_softmax.grad(x=lambda F, g, out, dim: g - F.exp(out) * F.sum(g, dim=dim, keepdim=True))


# On the CPU, rows are taken in blocks that stay in cache through all passes (bench: softmax 4096x8192).

def _softmax_cpu(xp: Any, x: Any, dim: int) -> Any:
    rows = rows_of(x, dim)
    if rows is None:
        return softmax.forward(xp, x, dim)
    require_floating("softmax", x)
    out = xp.empty_like(rows)
    for block in row_blocks(*rows.shape):
        part, o = rows[block], out[block]
        xp.subtract(part, part.max(1, keepdims=True), out=o)
        xp.exp(o, out=o)
        o /= o.sum(1, keepdims=True)
    return out.reshape(x.shape)


def _log_softmax_cpu(xp: Any, x: Any, dim: int) -> Any:
    rows = rows_of(x, dim)
    if rows is None:
        return log_softmax.forward(xp, x, dim)
    require_floating("log_softmax", x)
    out = xp.empty_like(rows)
    for block in row_blocks(*rows.shape):
        part, o = rows[block], out[block]
        xp.subtract(part, part.max(1, keepdims=True), out=o)
        o -= xp.log(xp.exp(o).sum(1, keepdims=True))
    return out.reshape(x.shape)


def _cpu_gradient(op_: Op, block_gradient: Any) -> Any:
    """The gradient formula of `op_` on blocks of rows where that is possible, the generic one elsewhere."""
    generic = op_.formulas["x"].function

    def formula(F, g, out, dim):
        rows = rows_of(out, dim)
        if rows is None or not g.flags.c_contiguous or g.dtype != out.dtype:
            return generic(F, g, out, dim)
        gs, dx = g.reshape(rows.shape), np.empty_like(rows)
        for block in row_blocks(*rows.shape):
            block_gradient(gs[block], rows[block], dx[block])
        return dx.reshape(out.shape)
    return formula


def _softmax_block(g: Any, out: Any, dx: Any) -> None:
    np.subtract(g, np.vecdot(g, out)[:, None], out=dx)
    dx *= out


def _log_softmax_block(g: Any, out: Any, dx: Any) -> None:
    np.exp(out, out=dx)
    dx *= g.sum(1, keepdims=True)
    np.subtract(g, dx, out=dx)


softmax.accelerate("cpu", _softmax_cpu, {"x": _cpu_gradient(softmax, _softmax_block)})
log_softmax.accelerate("cpu", _log_softmax_cpu, {"x": _cpu_gradient(log_softmax, _log_softmax_block)})
