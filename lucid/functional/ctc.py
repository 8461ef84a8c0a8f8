"""The loss of sequences without alignment: connectionist temporal classification."""

from __future__ import annotations

import math
from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import IndexRangeError, ShapeError
from ..ops.ctc import IMPOSSIBLE
from ..ops.loss import check_reduction
from ..tensor import Tensor, _wrap
from .loss import _check_classes
from .registry import on_its_device, public


@public("nn.functional.ctc_loss", "ctc_loss")
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Tensor:
    """-log of the probability of all alignments of `targets` (Graves et al. 2006).

    log_probs: [T, N, C] or [T, C], log probabilities; targets: [N, S], or the N sequences joined, [sum of
    target_lengths]; lengths: [N]. 'mean' divides each loss by its target length before the mean over the
    batch. A target that no alignment gives has loss inf, or 0 with zero gradient under `zero_infinity`. As in
    PyTorch, the gradient is that on normalised log_probs: per step, probabilities minus occupancies, which
    sum to zero. Raises ShapeError, DtypeError or IndexRangeError for others.

    >>> import lucid
    >>> log_p = lucid.tensor([[0.25, 0.75]]).log()    # one step; blank and one label
    >>> lucid.ctc_loss(log_p, lucid.tensor([1]), (1,), (1,))    # -log 0.75
    tensor(0.2877)
    """
    check_reduction("ctc_loss", reduction)
    if log_probs.ndim not in (2, 3) or targets.ndim not in (1, 2):
        raise ShapeError("ctc_loss: expected log_probs [T, N, C] or [T, C] and targets [N, S] or "
                         f"[sum of target_lengths], got {log_probs.shape} and {targets.shape}")
    single = log_probs.ndim == 2
    x = F.reshape(log_probs, (log_probs.shape[0], 1, log_probs.shape[1])) if single else log_probs
    steps, n, classes = x.shape
    backend, xp = x.storage.backend, x.storage.backend.xp
    if not 0 <= blank < classes:
        raise IndexRangeError(f"ctc_loss: blank must be one of the {classes} classes, got {blank}")
    in_len, out_len = _lengths("ctc_loss", input_lengths, n, backend), _lengths("ctc_loss", target_lengths, n,
                                                                                backend)
    if n and max(in_len) > steps:
        raise ShapeError(f"ctc_loss: input_lengths must be at most the {steps} steps of log_probs, got "
                         f"{max(in_len)}")
    padded = _padded_targets(targets, out_len, n, xp)
    _check_classes("ctc_loss", _wrap(padded, backend), classes)
    labels, skip, first = F.ctc_labels(_wrap(padded, backend), blank)
    places = labels.shape[1]
    index = F.expand(F.reshape(labels, (1, n, places)), (steps, n, places))
    emitted = F.gather(x, 2, index)
    after_first = _wrap(xp.broadcast_to(xp.arange(places) >= 1, (n, places)), backend)
    alpha = F.where(first, F.select(emitted, 0, 0), IMPOSSIBLE)
    in_steps = xp.asarray(in_len)
    for t in range(1, steps):
        step = F.select(emitted, 0, t) + F.log_sum_3(alpha, F.label_shift(alpha, after_first, 1),
                                                     F.label_shift(alpha, skip, 2))
        alpha = step if t < min(in_len) else F.where(_wrap((in_steps > t)[:, None], backend), step, alpha)
    last = xp.asarray(out_len)[:, None] * 2
    ends = F.gather(alpha, 1, _wrap(xp.concatenate([last, xp.maximum(last - 1, 0)], axis=1), backend))
    # An empty target ends in its only place, which must not count twice.
    ends = F.where(_wrap(xp.concatenate([last >= 0, last > 0], axis=1), backend), ends, IMPOSSIBLE)
    loss = -F.logsumexp(ends, 1)
    impossible = F.gt(loss, -IMPOSSIBLE / 2)
    loss = F.where(impossible, 0.0 if zero_infinity else math.inf, loss)
    loss = loss + _normalisation(x, _wrap(xp.arange(steps)[:, None] < in_steps[None, :], backend), impossible)
    if reduction == "mean":
        return F.mean(loss / _wrap(xp.maximum(xp.asarray(out_len), 1).astype(loss.dtype), backend))
    return F.sum(loss) if reduction == "sum" else F.reshape(loss, ()) if single else loss


def _normalisation(x: Tensor, live: Tensor, impossible: Tensor) -> Tensor:
    # Sum of probabilities minus itself: value 0, and the gradient exp(x) that the normalised form of the loss
    # has.
    total = F.sum(F.where(live, F.sum(F.exp(x), dim=2), 0), dim=0)
    return F.where(impossible, 0.0, total - total.detach())


def _lengths(name: str, lengths: Any, n: int, backend: Any) -> list[int]:
    values = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    values = [int(v) for v in values] if isinstance(values, (list, tuple)) else [int(values)]
    if len(values) != n:
        raise ShapeError(f"{name}: expected one length for each of the {n} sequences, got {len(values)}")
    if min(values, default=0) < 0:
        raise ShapeError(f"{name}: lengths must not be negative, got {values}")
    return values


@on_its_device
def _padded_targets(targets: Tensor, lengths: list[int], n: int, xp: Any) -> Any:
    array = targets.storage.array.astype("int64")
    longest = max(lengths, default=0)
    out = xp.zeros((n, longest), dtype="int64")
    if array.ndim == 2:
        for i, length in enumerate(lengths):
            out[i, :length] = array[i, :length]
        return out
    if array.size != sum(lengths):
        raise ShapeError(f"ctc_loss: joined targets must have sum(target_lengths) = {sum(lengths)} elements, "
                         f"got {array.size}")
    start = 0
    for i, length in enumerate(lengths):
        out[i, :length] = array[start : start + length]
        start += length
    return out
