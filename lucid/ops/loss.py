"""Losses: cross entropy of class indices as one op, element-wise losses, and what their formulas need.

Reductions of element-wise losses belong to `lucid.functional.loss`; the ops here that take `reduction` divide
by the weight of the targets that count, as PyTorch does.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np  # for the CPU paths alone

from ..errors import DtypeError, IndexRangeError, ShapeError
from .bounds import in_range, waits_not
from .common import is_low
from .pointwise import like, wide
from .registry import A, Sample, op
from .softmax import require_floating, row_blocks

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(name: str, reduction: str) -> None:
    """Nothing; raises ShapeError unless `reduction` is 'none', 'mean' or 'sum'."""
    if reduction not in REDUCTIONS:
        raise ShapeError(f"{name}: reduction must be 'none', 'mean' or 'sum', got {reduction!r}")


def _as_classes(xp: Any, name: str, x: Any, target: Any, weight: Any,
                ignore_index: int) -> tuple[Any, Any, Any]:
    # (x as [N, C, M], target as int64 [N, M] with ignored ones at class 0, weight of each target [N, M] or
    # None for ones).
    require_floating(name, x)
    if target.dtype.kind not in "iu":
        raise DtypeError(f"{name}: class-index targets must be integers, got {target.dtype.name} of shape "
                         f"{tuple(target.shape)}; convert them with .long()"
                         + (" (probabilities must have the input's shape)" if name == "cross_entropy"
                            else ""))
    if x.ndim == 0:
        raise ShapeError(f"{name}: the input needs a class dimension, got a 0-d tensor")
    classes = x.shape[0] if x.ndim == 1 else x.shape[1]
    expected = x.shape[:1] + x.shape[2:] if x.ndim > 1 else ()
    if target.shape != expected:
        raise ShapeError(f"{name}: an input of shape {tuple(x.shape)} has {classes} classes and takes "
                         f"targets of shape {tuple(expected)}, got {tuple(target.shape)}")
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"{name}: weight must have one value for each of the {classes} classes, got shape "
                         f"{tuple(weight.shape)}")
    x3 = x.reshape((1, classes, 1) if x.ndim == 1 else (*x.shape[:2], math.prod(x.shape[2:])))
    t = target.reshape(x3.shape[0], x3.shape[2]).astype("int64", copy=False)
    kept = None
    if classes and waits_not(xp):
        # Whether any target is ignored is known on the device only.
        kept = t != ignore_index
        t = in_range(xp, xp.where(kept, t, 0), 0, classes, lambda bad: IndexRangeError(
            f"{name}: targets must lie in [0, {classes - 1}] for {classes} classes (ignore_index is "
            f"{ignore_index}), got {bad}"))
        return x3, t, kept.astype(x.dtype) if weight is None else weight.astype(x.dtype, copy=False)[t] * kept
    if t.size and (int(t.min()) < 0 or int(t.max()) >= classes):
        kept = t != ignore_index
        bad = t[kept & ((t < 0) | (t >= classes))]
        if bad.size:
            raise IndexRangeError(f"{name}: targets must lie in [0, {classes - 1}] for {classes} classes "
                                  "(ignore_index is "
                                  f"{ignore_index}), got {int(bad[0])}; {int(bad.size)} of {int(t.size)} "
                                  "targets are out of range")
    elif 0 <= ignore_index < classes:
        kept = t != ignore_index
    if kept is None:
        return x3, t, None if weight is None else weight.astype(x.dtype, copy=False)[t]
    t = xp.where(kept, t, 0)
    return x3, t, kept.astype(x.dtype) if weight is None else weight.astype(x.dtype, copy=False)[t] * kept


def _pick(xp: Any, x3: Any, t: Any) -> Any:
    # x3[n, t[n, m], m] as [N, M].
    n, _, m = x3.shape
    if m == 1:
        return x3[xp.arange(n), t[:, 0], 0].reshape(n, 1)
    return x3[xp.arange(n)[:, None], t, xp.arange(m)[None, :]]


def _finish(xp: Any, loss: Any, w: Any, reduction: str, shape: Any, dtype: Any) -> Any:
    # loss is already weighted.
    if reduction == "none":
        return loss.reshape(shape).astype(dtype, copy=False)
    total = xp.asarray(wide(loss).sum())
    if reduction == "mean":
        total = total / _total(xp, loss, w)
    return xp.asarray(total, dtype=dtype)


def _total(xp: Any, t: Any, w: Any) -> Any:
    # The sum of the weights of targets shaped like t, in t's dtype (float32 for 16-bit floats, which end at
    # 65504). All targets ignored: 0, and 0 / 0 = nan as in PyTorch; hence an array, as Python would raise.
    dtype = "float32" if is_low(t.dtype) else t.dtype
    return xp.full((), t.size, dtype) if w is None else xp.asarray(wide(w).sum(), dtype=dtype)


def divisor(total: Any) -> Any:
    """What gradients are divided by: `total`; 1 where no target counts, so that they are 0 and not nan."""
    return total + (total == 0)


@op(public=False, samples=[Sample((4, 3), A((4,), dtype="int64", low=0, high=3), None)])
def class_coefficients(xp, x, target, weight=None, name: str = "cross_entropy", ignore_index: int = -100,
                       reduction: str = "mean", label_smoothing: float = 0.0):
    """c, shaped like `x`, with loss = -sum over classes of c * log_probability.

    c = (1 - s) w_t [class = t] + (s / C) w_class, zero where the target is ignored, divided by the sum of w_t
    for 'mean'.
    """
    x3, t, w = _as_classes(xp, name, x, target, weight, ignore_index)
    n, classes, m = x3.shape
    c = xp.zeros(x3.shape, dtype=x.dtype)
    if label_smoothing:
        share = xp.full((classes,), label_smoothing / classes, dtype=x.dtype)
        if weight is not None:
            share = share * weight.astype(x.dtype, copy=False)
        kept = (target.reshape(n, m) != ignore_index)
        c += share[None, :, None] * kept[:, None, :]
    rows, cols = xp.arange(n)[:, None], xp.arange(m)[None, :]
    c[rows, t, cols] += (1.0 - label_smoothing) * (1.0 if w is None else w)
    if reduction == "mean":
        c /= divisor(_total(xp, c[:, 0], w))
    return c.reshape(x.shape)


# Only the shape and dtype of x matter. The zero keeps gradients connected to it, as PyTorch's are.
class_coefficients.grad(x=lambda F, g: F.zeros_like(g))


def _class_dim(shape: Any) -> int:
    return 0 if len(shape) == 1 else 1


def _spread(F: Any, g: Any, shape: Any) -> Any:
    # The gradient of a loss per target, with a class dimension of size 1; a reduced one as it is.
    if len(shape) == 1:
        return F.reshape(g, (1,))
    return F.reshape(g, (shape[0], 1, *shape[2:])) if g.ndim else g


@op(public=False, amp="full", outputs=("out", "p"), diff=("out",), samples=[
    Sample((4, 3), A((4,), dtype="int64", low=0, high=3), None),
    Sample((2, 3, 5), A((2, 5), dtype="int64", low=0, high=3), A((3,), low=0.2, high=2.0), reduction="sum"),
    Sample(A((2, 3), low=-1000.0, high=1000.0), A(value=[2, 0]), None, reduction="none"),
    Sample((4, 3), A(value=[0, -100, 1, 2]), A((3,), low=0.2, high=2.0), label_smoothing=0.1),
    Sample((3,), A((), dtype="int64", low=0, high=3), None)])
def cross_entropy(xp, x, target, weight=None, ignore_index: int = -100, reduction: str = "mean",
                  label_smoothing: float = 0.0):
    """(loss, softmax(x)): -log softmax(x) at the target class, without overflow at any logit.

    x: [C], [N, C] or [N, C, d1, ...] logits; target: integers in [0, C) of x's shape without C; weight: [C]
    or None. loss: target's shape for 'none', else 0-d. With label smoothing s the target is (1 - s) onehot +
    s / C (Szegedy et al. 2016, section 7). `p` serves the accelerated gradients.
    """
    check_reduction("cross_entropy", reduction)
    x3, t, w = _as_classes(xp, "cross_entropy", x, target, weight, ignore_index)
    x3 = wide(x3)
    classes = x3.shape[1]
    d = x3 - x3.max(1, keepdims=True) if x3.size else x3.copy()
    p = xp.exp(d)
    s = p.sum(1, keepdims=True)
    p /= s
    lse = xp.log(s)[:, 0]
    loss = lse - _pick(xp, d, t)
    loss = loss if w is None else loss * w
    if label_smoothing:
        loss = _smoothed(xp, loss, d, lse, weight, target, classes, ignore_index, label_smoothing)
    out = _finish(xp, loss, w, reduction, target.shape, x.dtype)
    return out, p.reshape(x.shape).astype(x.dtype, copy=False)


def _smoothed(xp: Any, loss: Any, d: Any, lse: Any, weight: Any, target: Any, classes: int, ignore_index: int,
              smoothing: float) -> Any:
    if weight is None:
        even = lse * classes - d.sum(1)
    else:
        w = weight.astype(d.dtype, copy=False)
        even = lse * w.sum() - (d * w[None, :, None]).sum(1)
    even = even * (target.reshape(loss.shape) != ignore_index)
    return (1.0 - smoothing) * loss + (smoothing / classes) * even


def _cross_entropy_x(F, g, x, target, weight, ignore_index, reduction, label_smoothing):
    c = F.class_coefficients(x, target, weight, ignore_index=ignore_index, reduction=reduction,
                             label_smoothing=label_smoothing)
    dim = _class_dim(x.shape)
    return _spread(F, g, x.shape) * (F.softmax(x, dim) * F.sum(c, dim=dim, keepdim=True) - c)


cross_entropy.grad(x=_cross_entropy_x)


@op(public=False, amp="full", samples=[
    Sample((4, 3), A((4,), dtype="int64", low=0, high=3), None),
    Sample((2, 3, 5), A((2, 5), dtype="int64", low=0, high=3), A((3,), low=0.2, high=2.0), reduction="sum"),
    Sample((3,), A((), dtype="int64", low=0, high=3), None, reduction="none")])
def nll_loss(xp, x, target, weight=None, ignore_index: int = -100, reduction: str = "mean"):
    """-w_t x_t: the negative log likelihood of the target classes under log probabilities `x`.

    Shapes as for cross_entropy.
    """
    check_reduction("nll_loss", reduction)
    x3, t, w = _as_classes(xp, "nll_loss", x, target, weight, ignore_index)
    loss = -_pick(xp, x3, t) if x3.shape[1] else xp.zeros(t.shape, x.dtype)
    if w is not None:
        # -inf under an ignored target would give nan.
        loss = xp.where(w != 0, loss, 0) * w
    return _finish(xp, loss, w, reduction, target.shape, x.dtype)


def _nll_x(F, g, x, target, weight, ignore_index, reduction):
    c = F.class_coefficients(x, target, weight, name="nll_loss", ignore_index=ignore_index,
                             reduction=reduction)
    return _spread(F, g, x.shape) * -c


nll_loss.grad(x=_nll_x)


# ---- cross entropy on the CPU: rows in cache-sized blocks, exp taken once (bench: cross_entropy 4096x8192)
# ----

def _cross_entropy_cpu(xp, x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    if x.ndim != 2 or label_smoothing or is_low(x.dtype) or not x.size or not x.flags.c_contiguous:
        return cross_entropy.forward(xp, x, target, weight, ignore_index=ignore_index, reduction=reduction,
                                     label_smoothing=label_smoothing)
    check_reduction("cross_entropy", reduction)
    _, t, w = _as_classes(xp, "cross_entropy", x, target, weight, ignore_index)
    p, loss, t = xp.empty_like(x), xp.empty(len(x), x.dtype), t[:, 0]
    for block in row_blocks(*x.shape):
        part, o = x[block], p[block]
        xp.subtract(part, part.max(1, keepdims=True), out=o)
        picked = o[xp.arange(len(o)), t[block]]
        xp.exp(o, out=o)
        s = o.sum(1, keepdims=True)
        xp.subtract(xp.log(s[:, 0]), picked, out=loss[block])
        o /= s
    if w is not None:
        loss *= w[:, 0]
    return _finish(xp, loss, w, reduction, target.shape, x.dtype), p


def _cross_entropy_x_cpu(F, g, p, target, weight, ignore_index, reduction, label_smoothing):
    c_shape = p.shape
    if len(c_shape) != 2 or label_smoothing or is_low(p.dtype):
        c = F.class_coefficients(p, target, weight, ignore_index=ignore_index, reduction=reduction,
                                 label_smoothing=label_smoothing)
        return _spread(F, g, c_shape) * (p * c.sum(_class_dim(c_shape), keepdims=True) - c)
    if weight is None and reduction != "none" and not (target == ignore_index).any():
        scale = g / p.dtype.type(len(p)) if reduction == "mean" else g
        dx = p * scale
        dx[np.arange(len(p)), target] -= scale
        return dx
    _, t, w = _as_classes(np, "cross_entropy", p, target, weight, ignore_index)
    t, scale = t[:, 0], g if w is None else w[:, 0] * g
    if reduction == "mean":
        scale = scale / divisor(w.sum())
    dx = p * scale[:, None]
    dx[np.arange(len(t)), t] -= scale
    return dx


cross_entropy.accelerate("cpu", _cross_entropy_cpu, {"x": _cross_entropy_x_cpu})


# ---- element by element ----

def _sign_of(F: Any, d: Any, delta: float) -> Any:
    # Derivative of the smooth absolute value: d / delta inside (-delta, delta), sign(d) outside.
    return F.maximum(F.minimum(d, delta), -delta) / delta if delta else F.sign(d)


@op(public=False, pointwise=True, dtype="promote", amp="full", samples=[Sample((3, 4), (3, 4))])
def mse_loss(xp, x, target):
    """(x - target) ** 2."""
    d = x - target
    return d * d


mse_loss.grad(
    x=lambda F, g, x, target: g * (2.0 * (x - target)),
    target=lambda F, g, x, target: g * (2.0 * (target - x)),
)


@op(public=False, pointwise=True, dtype="promote", amp="full", samples=[Sample((3, 4), (3, 4), 0.5)])
def smooth_l1_loss(xp, x, target, beta: float = 1.0):
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, with d = x - target (Girshick 2015, eq. 3)."""
    d = abs(wide(x) - wide(target))
    if not beta:
        return like(d, x)
    low = xp.minimum(d, beta)
    return like((0.5 / beta) * low * low + (d - low), x)


smooth_l1_loss.grad(
    x=lambda F, g, x, target, beta: g * _sign_of(F, x - target, beta),
    target=lambda F, g, x, target, beta: g * _sign_of(F, target - x, beta),
)


@op(public=False, pointwise=True, dtype="promote", amp="full", samples=[Sample((3, 4), (3, 4), 0.5)])
def huber_loss(xp, x, target, delta: float = 1.0):
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d = x - target (Huber 1964)."""
    d = abs(wide(x) - wide(target))
    low = xp.minimum(d, delta)
    return like(0.5 * low * low + delta * (d - low), x)


huber_loss.grad(
    x=lambda F, g, x, target, delta: g * (delta * _sign_of(F, x - target, delta)),
    target=lambda F, g, x, target, delta: g * (delta * _sign_of(F, target - x, delta)),
)


@op(public=False, pointwise=True, dtype="promote", amp="full",
    samples=[Sample(A((3, 4), low=0.1, high=0.9), A((3, 4), low=0.1, high=0.9))])
def binary_cross_entropy(xp, x, target):
    """-(t log x + (1 - t) log(1 - x)) with logarithms kept above -100, for probabilities `x`."""
    p, t = wide(x), wide(target)
    return like(-(t * xp.maximum(xp.log(p), -100.0) + (1.0 - t) * xp.maximum(xp.log1p(-p), -100.0)), x)


# 1e-12 bounds the derivative at x = 0 and 1, where PyTorch has the same bound.
binary_cross_entropy.grad(
    x=lambda F, g, x, target: g * ((x - target) / _at_least(F, (1.0 - x) * x, 1e-12)),
    target=lambda F, g, x: g * (_at_least(F, F.log1p(-x), -100.0) - _at_least(F, F.log(x), -100.0)),
)


def _at_least(F: Any, x: Any, low: float) -> Any:
    return F.where(F.gt(x, low), x, low)


@op(public=False, pointwise=True, dtype="promote", amp="full",
    samples=[Sample((3, 4), A((3, 4), low=0.0, high=1.0), None),
             Sample((3, 4), A((3, 4), low=0.0, high=1.0), A((4,), low=0.5, high=2.0))])
def binary_cross_entropy_with_logits(xp, x, target, pos_weight=None):
    """-(w t log sigmoid(x) + (1 - t) log sigmoid(-x)) without overflow; w is `pos_weight` or 1.

    = max(x, 0) - t x + log(1 + exp(-|x|)) for w = 1,
    = (1 - t) x + (1 + (w - 1) t) (log(1 + exp(-|x|)) + max(-x, 0)) else.
    """
    z, t = wide(x), wide(target)
    out = xp.log1p(xp.exp(-abs(z)))
    if pos_weight is None:
        out += xp.maximum(z, 0)
        return like(out - z * t, x)
    out += xp.maximum(-z, 0)
    return like(out * (1.0 + (wide(pos_weight) - 1.0) * t) + (1.0 - t) * z, x)


def _bce_logits_x(F, g, x, target, pos_weight):
    if pos_weight is None:
        return g * (F.sigmoid(x) - target)
    return g * ((1.0 - target) - (1.0 + (pos_weight - 1.0) * target) * F.sigmoid(-x))


def _softplus_neg(F: Any, x: Any) -> Any:
    return F.log1p(F.exp(-F.abs(x))) + F.relu(-x)


def _bce_logits_target(F, g, x, pos_weight):
    return g * -x if pos_weight is None else g * ((pos_weight - 1.0) * _softplus_neg(F, x) - x)


binary_cross_entropy_with_logits.grad(
    x=_bce_logits_x, target=_bce_logits_target,
    pos_weight=lambda F, g, x, target: g * (target * _softplus_neg(F, x)),
)
