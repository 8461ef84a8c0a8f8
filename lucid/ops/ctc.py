"""Connectionist temporal classification: the parts of its forward recursion."""

from __future__ import annotations

from .registry import A, Sample, op

# Stands for log 0 in the recursion: finite, so that no difference is inf - inf; exp(IMPOSSIBLE - x) is 0 for
# every x that occurs.
IMPOSSIBLE = -1e30


@op(public=False, pointwise=True, samples=[Sample((3, 4), (3, 4), (3, 4))])
def log_sum_3(xp, x, y, z):
    """log(exp(x) + exp(y) + exp(z)) without overflow."""
    top = xp.maximum(xp.maximum(x, y), z)
    return top + xp.log(xp.exp(x - top) + xp.exp(y - top) + xp.exp(z - top))


log_sum_3.grad(x=lambda F, g, x, out: g * F.exp(x - out), y=lambda F, g, y, out: g * F.exp(y - out),
               z=lambda F, g, z, out: g * F.exp(z - out))


_KEEP = A(value=[[False, False, True, True, False], [False, False, True, False, True]])


@op(public=False, samples=[Sample((2, 5), _KEEP, 2, 0.5)])
def label_shift(xp, x, keep, n: int, fill: float = IMPOSSIBLE):
    """x moved by n places along the last dimension; `fill` where `keep` is False (the first n places)."""
    out = xp.full_like(x, fill)
    if x.shape[-1] > n:
        out[..., n:] = xp.where(keep[..., n:], x[..., :-n], fill)
    return out


label_shift.grad(x=lambda F, g, keep, n: F.label_unshift(g, keep, n))


@op(public=False, samples=[Sample((2, 5), _KEEP, 2)])
def label_unshift(xp, x, keep, n: int):
    """The adjoint of `label_shift`: x where `keep` is True, moved back by n places, zeros behind."""
    out = xp.zeros_like(x)
    if x.shape[-1] > n:
        out[..., :-n] = xp.where(keep, x, 0)[..., n:]
    return out


label_unshift.grad(x=lambda F, g, keep, n: F.label_shift(g, keep, n, 0.0))


@op(public=False, outputs=("labels", "skip", "first"), diff=(), samples=[Sample(A(value=[[1, 1, 2]]), 0)])
def ctc_labels(xp, targets, blank: int):
    """(labels, skip, first), each [N, 2 S + 1], of targets [N, S].

    The targets with blanks around and between them, where a path may skip the blank
    before a label (it differs from the label before), and the two places where paths start."""
    n, s = targets.shape
    labels = xp.full((n, 2 * s + 1), blank, dtype="int64")
    labels[:, 1::2] = targets
    skip = xp.zeros(labels.shape, dtype="bool")
    skip[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    first = xp.zeros(labels.shape, dtype="bool")
    first[:, :2] = True
    return labels, skip, first
