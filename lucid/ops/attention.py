"""Scaled dot-product attention as one op, and the softmax that gives zeros where everything is masked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np  # for the CPU paths alone

from ..errors import ShapeError
from ..kernel.products import matmul_of
from .common import is_low
from .pointwise import wide
from .registry import A, Sample, op
from .softmax import cast_like, require_floating


@op(public=False, amp="full", samples=[Sample((3, 4)),
                                       Sample(A(value=[[0.5, float("-inf")], [float("-inf"), float("-inf")]]),
                                              second=False)])
def safe_softmax(xp, x):
    """Softmax along the last dimension, with zeros instead of nan for a row of -inf alone."""
    require_floating("safe_softmax", x)
    return _normalize_(xp, wide(x).copy()).astype(x.dtype, copy=False)


def _normalize_(xp: Any, s: Any) -> Any:
    # The softmax of s along its last dimension, written into s.
    if s.size:
        top = s.max(-1, keepdims=True)
        s -= xp.where(xp.isinf(top), 0, top)
        xp.exp(s, out=s)
        total = s.sum(-1, keepdims=True)
        s /= xp.where(total == 0, 1, total)
    return s


safe_softmax.grad(x=lambda F, g, out: out * (g - F.sum(g * out, dim=-1, keepdim=True)))


@op(public=False, samples=[Sample((2, 3, 4), (2, 5, 4))])
def causal_mask(xp, q, k):
    """bool [L, S], True where query i may see key j <= i; q: [..., L, E], k: [..., S, E]."""
    return xp.arange(q.shape[-2])[:, None] >= xp.arange(k.shape[-2])[None, :]


def _scores(F: Any, q: Any, k: Any, mask: Any, is_causal: bool, scale: float) -> Any:
    # Written in ops: for formulas on arrays or tensors.
    s = F.matmul(q, F.transpose(k, -2, -1)) * scale
    if is_causal:
        return F.where(F.causal_mask(q, k), s, float("-inf"))
    if mask is None:
        return s
    return F.where(mask, s, float("-inf")) if mask.dtype.kind == "b" else s + mask


def _check(q: Any, k: Any, v: Any, mask: Any, is_causal: bool) -> None:
    require_floating("scaled_dot_product_attention", q)
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError("scaled_dot_product_attention: expected query [..., L, E], key [..., S, E] and "
                         f"value [..., S, Ev], got {list(q.shape)}, {list(k.shape)} and {list(v.shape)}")
    if is_causal and mask is not None:
        raise ShapeError("scaled_dot_product_attention: attn_mask and is_causal=True exclude each other; put "
                         "the causal mask into attn_mask")


@op(public=False, amp="low", outputs=("out", "aux"), diff=("out",),
    samples=[Sample((2, 3, 4), (2, 5, 4), (2, 5, 6), None, False, 0.5),
             Sample((2, 3, 4), (2, 3, 4), (2, 3, 4), None, True, 0.5),
             Sample((2, 3, 4), (2, 5, 4), (2, 5, 6), (3, 5), False, 0.5)])
def attention(xp, q, k, v, mask=None, is_causal: bool = False, scale: float = 1.0):
    """(softmax(q k^T scale + mask) v, aux) (Vaswani et al. 2017, arXiv:1706.03762).

    q: [..., L, E]; k: [..., S, E]; v: [..., S, Ev]; mask: broadcastable to [..., L, S], bool (True: may
    attend) or floating (added). out: [..., L, Ev]. aux is what the device's own gradient uses: here the
    probabilities [..., L, S].
    """
    _check(q, k, v, mask, is_causal)
    dtype, q, k, v = v.dtype, wide(q), wide(k), wide(v)
    s = matmul_of(xp)(q * q.dtype.type(scale), xp.swapaxes(k, -2, -1))
    if is_causal:
        mask = causal_mask.forward(xp, q, k)
    if mask is not None:
        # Added, not selected: a mask is mostly smaller than the scores, and NumPy's `where` is slow.
        added = (xp.where(mask, 0.0, -xp.inf) if mask.dtype.kind == "b" else mask).astype(s.dtype, copy=False)
        s = xp.add(s, added, out=s if added.ndim <= s.ndim and _within(added.shape, s.shape) else None)
    p = _normalize_(xp, s)
    return matmul_of(xp)(p, v).astype(dtype, copy=False), p.astype(dtype, copy=False)


def _from_probabilities(F, g, q, k, v, p, mask, scale, needs):
    # Gradients of q, k, v, mask, where p is the matrix of probabilities.
    dq = dk = dv = dmask = None
    if needs[2]:
        dv = F.sum_to(F.matmul(F.transpose(p, -2, -1), g), v.shape)
    if needs[0] or needs[1] or needs[3]:
        dp = F.matmul(g, F.transpose(v, -2, -1))
        ds = p * (dp - F.sum(dp * p, dim=-1, keepdim=True))
        if needs[3]:
            dmask = F.sum_to(ds, mask.shape)
        if needs[0]:
            dq = cast_like(F, F.sum_to(F.matmul(ds, k) * scale, q.shape), g)
        if needs[1]:
            dk = cast_like(F, F.sum_to(F.matmul(F.transpose(ds, -2, -1), q) * scale, k.shape), g)
    return dq, dk, dv, dmask


def _attention_grads(F, g, q, k, v, mask, is_causal, scale, needs):
    p = cast_like(F, F.safe_softmax(_scores(F, q, k, mask, is_causal, scale)), g)
    return _from_probabilities(F, g, q, k, v, p, mask, scale, needs)


attention.grads(("q", "k", "v", "mask"), _attention_grads)


# ---- on arrays: from the saved probabilities, with one matrix of scores' size at most ----


def _within(shape: Any, other: Any) -> bool:
    # Whether an array of `shape` broadcasts to `other`; as many dimensions or fewer.
    return all(m in (1, n) for m, n in zip(shape[::-1], other[::-1], strict=False))


def grads_in_place(F, g, q, k, v, p, mask, scale, needs, slope_):
    """The gradients of q, k, v and mask; p: the saved probabilities.

    slope_(dp, p): writes p (dp - sum(p dp)) to dp, the one matrix of the scores' size that is made here.
    """
    dq = dk = dv = dmask = None
    if needs[2]:
        dv = F.sum_to(F.matmul(F.transpose(p, -2, -1), g), v.shape)
    if needs[0] or needs[1] or needs[3]:
        ds = F.matmul(g, F.transpose(v, -2, -1))
        if ds.shape != p.shape:  # v has leading dimensions of its own
            ds = F.sum_to(ds, p.shape)
        slope_(ds, p)
        if needs[3]:
            dmask = cast_like(F, F.sum_to(ds, mask.shape), mask)
        if needs[0]:
            dq = cast_like(F, F.sum_to(F.matmul(ds, k), q.shape), g)
            dq *= scale
        if needs[1]:
            dk = cast_like(F, F.sum_to(F.matmul(F.transpose(ds, -2, -1), q), k.shape), g)
            dk *= scale
    return dq, dk, dv, dmask


_BLOCK = 1 << 18    # elements of the scores of as many heads as are computed at a time
_SMALL = 1 << 12    # elements of one head's scores below which one product for all heads is worth copies


def _slope_cpu(ds: Any, p: Any) -> None:
    ds -= np.vecdot(ds, p)[..., None]
    ds *= p


def _attention_grads_cpu(F, g, q, k, v, mask, scale, aux, needs):
    heads, one = g.shape[:-2], math.prod(aux.shape[-2:])
    alike = all(a.shape[:-2] == heads for a in (q, k, v, aux))
    if is_low(g.dtype) or needs[3] or not g.size or not one or not alike:
        gw, qw, kw, vw, p = map(wide, (g, q, k, v, aux))
        found = grads_in_place(F, gw, qw, kw, vw, p, mask, scale, needs, _slope_cpu)
        return tuple(r if r is None or i == 3 else cast_like(F, r, g) for i, r in enumerate(found))
    dq, dk, dv = (
        np.empty(a.shape, g.dtype) if need else None for a, need in zip((q, k, v), needs, strict=False)
    )
    # The scores of a few heads at a time, in cache: no matrix of all heads is made.
    ready = all(a.flags.c_contiguous for a in (g, q, k, v))
    if one < _SMALL or ready or not heads:
        whole = [None if a is None else a.reshape(-1, *a.shape[-2:]) for a in (g, q, k, v, aux, dq, dk, dv)]
        _by_heads(scale, *whole)
    else:  # heads that lie apart: their matrices are taken as they are, without a copy of all
        for i in np.ndindex(*heads[:-1]):
            _by_heads(scale, *(None if a is None else a[i] for a in (g, q, k, v, aux, dq, dk, dv)))
    return dq, dk, dv, None


def _by_heads(scale: float, g: Any, q: Any, k: Any, v: Any, p: Any, dq: Any, dk: Any, dv: Any) -> None:
    """Nothing; writes the gradients of [heads, rows, columns] to those of dq, dk, dv that are not None."""
    step = max(1, min(len(p), _BLOCK // math.prod(p.shape[1:])))
    scratch = None if dq is dk is None else np.empty((step, *p.shape[1:]), g.dtype)
    for i in range(0, len(p), step):
        at = slice(i, i + step)
        if dv is not None:
            np.matmul(p[at].swapaxes(-1, -2), g[at], out=dv[at])
        if scratch is None:
            continue
        ds = np.matmul(g[at], v[at].swapaxes(-1, -2), out=scratch[:len(p[at])])
        _slope_cpu(ds, p[at])
        if dq is not None:
            np.matmul(ds, k[at], out=dq[at])
        if dk is not None:
            np.matmul(ds.swapaxes(-1, -2), q[at], out=dk[at])
    for d in (dq, dk):
        if d is not None:
            d *= g.dtype.type(scale)


attention.accelerate("cpu", None, {("q", "k", "v", "mask"): _attention_grads_cpu})
