"""Scaled dot-product attention as one op, and the softmax that gives zeros where everything is masked."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..kernel.products import matmul_of
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
        added = (xp.where(mask, 0.0, -xp.inf) if mask.dtype.kind == "b" else mask).astype(s.dtype)
        s = s + added
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


def _attention_grads_saved(F, g, q, k, v, mask, scale, aux, needs):
    return _from_probabilities(F, g, q, k, v, aux, mask, scale, needs)


attention.grads(("q", "k", "v", "mask"), _attention_grads)
attention.accelerate("cpu", None, {("q", "k", "v", "mask"): _attention_grads_saved})
