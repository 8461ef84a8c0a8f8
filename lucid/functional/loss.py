"""Losses under PyTorch's names, argument orders and defaults."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import DtypeError, GradError, IndexRangeError, ShapeError
from ..ops.common import named
from ..ops.loss import check_reduction
from ..storage.dtype import is_floating
from ..tensor import Tensor, _wrap
from .norm import pairwise_distance
from .registry import on_its_device, public


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    # PyTorch's old arguments, still positional there.
    if size_average is None and reduce is None:
        return reduction
    if reduce is not None and not reduce:
        return "none"
    return "sum" if size_average is not None and not size_average else "mean"


def _reduce(name: str, loss: Tensor, reduction: str) -> Tensor:
    check_reduction(name, reduction)
    return loss if reduction == "none" else F.mean(loss) if reduction == "mean" else F.sum(loss)


def _hinge(x: Tensor) -> Tensor:
    # max(x, 0), whose derivative at 0 is 1, as clamp_min has it.
    return F.where(F.ge(x, 0), x, 0)


def _same_shape(name: str, input: Tensor, **others: Tensor | None) -> None:
    for what, value in others.items():
        if value is not None and value.shape != input.shape:
            raise ShapeError(f"{name}: {what} must have the input's shape {tuple(input.shape)}, got "
                             f"{tuple(value.shape)}")


def _weighted(name: str, loss: Tensor, input: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    if weight is None:
        return _reduce(name, loss, reduction)
    _same_shape(name, input, weight=weight)
    check_reduction(name, reduction)
    loss = loss * weight
    return F.sum(loss) / F.sum(weight) if reduction == "mean" else _reduce(name, loss, reduction)


# ---- classes ----

def _constant_weight(name: str, weight: Tensor | None) -> None:
    if weight is not None and weight.requires_grad:
        raise GradError(f"{name}: class weights get no gradient; pass weight.detach()")


@public("nn.functional.cross_entropy")
def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None,
                  size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None,
                  reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """The cross entropy of logits and class indices or class probabilities.

    -log softmax(input)[target], a sum over classes for probabilities. input: [C], [N, C] or [N, C, d1, ...];
    target: integers in [0, C) of the input's shape without C, or probabilities of the input's shape; weight:
    [C]. Returns a 0-d tensor, or the loss of each target for reduction="none". With 'mean' the sum over
    targets is divided by the sum of their weights (class indices) or by their number (probabilities).
    label_smoothing: Szegedy et al. 2016, arXiv:1512.00567. Stable at any logit. Raises IndexRangeError for a
    class out of range, DtypeError for targets that are not integers.

    >>> import lucid
    >>> logits = lucid.tensor([[2.0, 0.0], [0.0, 0.0]])
    >>> lucid.nn.functional.cross_entropy(logits, lucid.tensor([0, 1]), reduction="none")
    tensor([0.1269, 0.6931])
    """
    reduction = _reduction(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ShapeError(f"cross_entropy: label_smoothing must lie in [0, 1], got {label_smoothing}")
    if target.shape == input.shape and is_floating(target.dtype):
        return _soft_cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)
    _constant_weight("cross_entropy", weight)
    return F.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)[0]


def _soft_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int,
                        reduction: str, smoothing: float) -> Tensor:
    check_reduction("cross_entropy", reduction)
    if ignore_index >= 0:
        raise ShapeError(f"cross_entropy: ignore_index={ignore_index} has no meaning for class "
                         "probabilities; leave it out")
    dim = 0 if input.ndim == 1 else 1
    classes = input.shape[dim]
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / classes
    terms = F.log_softmax(input, dim) * target
    if weight is not None:
        terms = terms * F.reshape(weight, (classes,) + (1,) * max(input.ndim - 2, 0))
    if reduction == "none":
        return -F.sum(terms, dim=dim)
    total = -F.sum(terms)
    return total if reduction == "sum" else total / (math.prod(input.shape) // classes)


@public("nn.functional.nll_loss")
def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
             ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """The negative log likelihood of class indices under log probabilities: -weight[t] input[t].

    Shapes and errors as for `cross_entropy`.

    >>> import lucid
    >>> log_p = lucid.tensor([[-0.5, -1.0]])
    >>> lucid.nn.functional.nll_loss(log_p, lucid.tensor([1]))
    tensor(1.)
    """
    _constant_weight("nll_loss", weight)
    return F.nll_loss(input, target, weight, ignore_index, _reduction(size_average, reduce, reduction))


@public("nn.functional.multi_margin_loss")
@on_its_device
def multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0,
                      weight: Tensor | None = None, size_average: bool | None = None,
                      reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """sum over classes i other than the target y of max(0, margin - x_y + x_i)^p / C, times weight[y].

    input: [N, C] or [C]; target: [N] or 0-d integers; p: 1 or 2; weight: [C]. Raises ShapeError, DtypeError
    or IndexRangeError for others.

    >>> import lucid
    >>> lucid.nn.functional.multi_margin_loss(lucid.tensor([[1.0, 0.5, 0.0]]), lucid.tensor([0]))
    tensor(0.1667)
    """
    name = "multi_margin_loss"
    if p not in (1, 2):
        raise ShapeError(f"{name}: p must be 1 or 2, got {p}")
    _constant_weight(name, weight)
    x = input if input.ndim == 2 else F.reshape(input, (1, -1))
    t = F.reshape(target, (-1,))
    _check_classes(name, t, x.shape[1])
    z = _hinge(margin - F.gather(x, 1, F.reshape(t, (-1, 1))) + x)
    z = z * z if p == 2 else z
    if weight is not None:
        z = z * F.embedding(F.reshape(weight, (-1, 1)), t)
    others = _wrap(t.storage.array[:, None] != x.storage.backend.xp.arange(x.shape[1]), x.storage.backend)
    loss = F.sum(F.where(others, z, 0), dim=1) / x.shape[1]
    return _reduce(name, loss if input.ndim == 2 else F.reshape(loss, ()),
                   _reduction(size_average, reduce, reduction))


def _check_classes(name: str, target: Tensor, classes: int) -> None:
    if target.dtype.kind not in "iu":
        raise DtypeError(f"{name}: class-index targets must be integers, got {target.dtype.name}; convert "
                         "them with .long()")
    t = target.storage.array
    # Bounds check: on a GPU this waits for the device.
    with target.backend.guard():
        bad = t[(t < 0) | (t >= classes)]
    if bad.size:
        raise IndexRangeError(f"{name}: targets must lie in [0, {classes - 1}] for {classes} classes, got "
                              f"{int(bad.reshape(-1)[0])}")


@public("nn.functional.multilabel_margin_loss")
@on_its_device
def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None,
                           reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """sum over targets j and other classes i of max(0, 1 - (x_j - x_i)) / C.

    input: [N, C] or [C]; target: integers of the same shape; a row's targets end at its first -1. Raises
    ShapeError, DtypeError or IndexRangeError for others.

    >>> import lucid
    >>> lucid.nn.functional.multilabel_margin_loss(lucid.tensor([1.0, 0.5, 0.0]), lucid.tensor([0, -1, -1]))
    tensor(0.1667)
    """
    name = "multilabel_margin_loss"
    _same_shape(name, input, target=target)
    backend = input.storage.backend
    xp = backend.xp
    rows = (1, -1) if input.ndim < 2 else input.shape
    x, t = F.reshape(input, rows), target.storage.array.reshape(rows).astype("int64")
    classes = x.shape[1]
    valid = xp.cumsum(t < 0, axis=1) == 0
    safe = xp.where(valid, t, 0)
    _check_classes(name, _wrap(xp.where(t < -1, t, safe), backend), classes)
    is_target = ((safe[:, :, None] == xp.arange(classes)) & valid[:, :, None]).any(1)
    counted = _wrap(valid[:, :, None] & ~is_target[:, None, :], backend)
    chosen = F.gather(x, 1, _wrap(safe, backend))
    z = _hinge(1.0 - (F.reshape(chosen, (*chosen.shape, 1)) - F.reshape(x, (x.shape[0], 1, classes))))
    loss = F.sum(F.where(counted, z, 0), dim=(1, 2)) / classes
    return _reduce(name, loss if input.ndim == 2 else F.reshape(loss, ()),
                   _reduction(size_average, reduce, reduction))


@public("nn.functional.multilabel_soft_margin_loss")
@named("multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None,
                                size_average: bool | None = None, reduce: bool | None = None,
                                reduction: str = "mean") -> Tensor:
    """The mean over the last dimension of the binary cross entropy with logits.

    input, target: [..., C]; target in [0, 1]; weight: broadcasts to them.

    >>> import lucid
    >>> lucid.nn.functional.multilabel_soft_margin_loss(lucid.zeros(1, 2), lucid.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """
    loss = F.binary_cross_entropy_with_logits(input, target, None)
    loss = loss if weight is None else loss * weight
    return _reduce("multilabel_soft_margin_loss", F.mean(loss, dim=-1),
                   _reduction(size_average, reduce, reduction))


# ---- element by element ----

@public("nn.functional.mse_loss")
def mse_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
             reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """The squared error (input - target)^2; with `weight`, the mean is the weighted one.

    input, target: shapes that broadcast together, else ShapeError. Returns a 0-d tensor, or that of each
    element for reduction="none".

    >>> import lucid
    >>> lucid.nn.functional.mse_loss(lucid.tensor([1.0, 3.0]), lucid.tensor([1.0, 1.0])).item()
    2.0
    """
    return _weighted("mse_loss", F.mse_loss(input, target), input, weight,
                     _reduction(size_average, reduce, reduction))


@public("nn.functional.l1_loss")
@named("l1_loss")
def l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
            reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """The absolute error |input - target|; with `weight`, the mean is the weighted one.

    Shapes as of `mse_loss`.

    >>> import lucid
    >>> lucid.nn.functional.l1_loss(lucid.tensor([1.0, 3.0]), lucid.tensor([1.0, 1.0]))
    tensor(1.)
    """
    return _weighted("l1_loss", F.abs(input - target), input, weight,
                     _reduction(size_average, reduce, reduction))


@public("nn.functional.smooth_l1_loss")
def smooth_l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None,
                   reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, for d = input - target (Girshick 2015, eq. 3).

    Shapes as of `mse_loss`. Raises ShapeError for beta < 0.

    >>> import lucid
    >>> lucid.nn.functional.smooth_l1_loss(lucid.tensor([0.5, 3.0]), lucid.zeros(2), reduction="none")
    tensor([0.125, 2.5  ])
    """
    if beta < 0:
        raise ShapeError(f"smooth_l1_loss: beta must be at least 0, got {beta}")
    return _reduce("smooth_l1_loss", F.smooth_l1_loss(input, target, beta),
                   _reduction(size_average, reduce, reduction))


@public("nn.functional.huber_loss")
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0,
               weight: Tensor | None = None) -> Tensor:
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), for d = input - target (Huber 1964).

    Shapes as of `mse_loss`; weight: the input's shape. Raises ShapeError for delta <= 0.

    >>> import lucid
    >>> lucid.nn.functional.huber_loss(lucid.tensor([1.0, 3.0]), lucid.zeros(2), delta=2.0, reduction="none")
    tensor([0.5, 4. ])
    """
    if delta <= 0:
        raise ShapeError(f"huber_loss: delta must be above 0, got {delta}")
    loss = F.huber_loss(input, target, delta)
    if weight is not None:
        _same_shape("huber_loss", input, weight=weight)
        loss = loss * weight
    return _reduce("huber_loss", loss, reduction)


@public("nn.functional.binary_cross_entropy")
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None,
                         size_average: bool | None = None, reduce: bool | None = None,
                         reduction: str = "mean") -> Tensor:
    """-(t log x + (1 - t) log(1 - x)) for probabilities x in [0, 1]; logarithms are kept above -100.

    target: the input's shape, else ShapeError; weight: broadcasts to it. Raises IndexRangeError for an input
    or a target outside [0, 1].

    >>> import lucid
    >>> lucid.nn.functional.binary_cross_entropy(lucid.tensor([0.5]), lucid.tensor([1.0]))
    tensor(0.6931)
    """
    _same_shape("binary_cross_entropy", input, target=target)
    # Bounds checks: on a GPU they wait for the device.
    with input.backend.guard():
        for word, x in (("input", input.array), ("target", target.array)):
            if not bool(((x >= 0) & (x <= 1)).all()):
                raise IndexRangeError(f"binary_cross_entropy: the {word} must be probabilities in [0, 1]; "
                                      "for logits use binary_cross_entropy_with_logits")
    loss = F.binary_cross_entropy(input, target)
    return _reduce("binary_cross_entropy", loss if weight is None else loss * weight,
                   _reduction(size_average, reduce, reduction))


@public("nn.functional.binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None,
                                     size_average: bool | None = None, reduce: bool | None = None,
                                     reduction: str = "mean", pos_weight: Tensor | None = None) -> Tensor:
    """-(w t log sigmoid(x) + (1 - t) log sigmoid(-x)) for logits x, without overflow.

    w is `pos_weight` (broadcast) or 1. target: the input's shape, else ShapeError; weight: broadcasts to it.

    >>> import lucid
    >>> logits, target = lucid.tensor([0.0, 1000.0]), lucid.tensor([1.0, 1.0])
    >>> lucid.nn.functional.binary_cross_entropy_with_logits(logits, target)
    tensor(0.3466)
    """
    name = "binary_cross_entropy_with_logits"
    _same_shape(name, input, target=target)
    loss = F.binary_cross_entropy_with_logits(input, target, pos_weight)
    return _reduce(name, loss if weight is None else loss * weight,
                   _reduction(size_average, reduce, reduction))


@public("nn.functional.kl_div")
def kl_div(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
           reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target (log target - input) for log probabilities `input`; with `log_target`, exp(t) (t - input).

    Shapes broadcast together. reduction: also 'batchmean', the sum divided by the first size, which is the
    divergence's definition; 'mean' divides by all elements.

    >>> import lucid
    >>> p, q = lucid.tensor([[0.5, 0.5]]), lucid.tensor([[0.25, 0.75]])
    >>> lucid.nn.functional.kl_div(q.log(), p, reduction="batchmean")
    tensor(0.1438)
    """
    if log_target:
        loss = F.exp(target) * (target - input)
    else:
        # t log t is 0 at 0; the inner where keeps log away from 0, so that its derivative there is 0 and not
        # nan.
        zero = F.eq(target, 0)
        loss = F.where(zero, 0, target * F.log(F.where(zero, 1, target))) - target * input
    reduction = _reduction(size_average, reduce, reduction)
    if reduction == "batchmean":
        return F.sum(loss) / (input.shape[0] if input.ndim else 1)
    return _reduce("kl_div", loss, reduction)


def _one_size_1(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    # Whether `other` differs from `shape` in one dimension, where it has size 1.
    return len(shape) == len(other) and [b for a, b in zip(shape, other, strict=True) if a != b] == [1]


@public("nn.functional.gaussian_nll_loss")
def gaussian_nll_loss(input: Tensor, target: Tensor, var: Any, full: bool = False,
                      eps: float = 1e-6, reduction: str = "mean") -> Tensor:
    """(log v + (input - target)^2 / v) / 2 with v = max(var, eps), plus log(2 pi) / 2 if `full`.

    var: the input's shape, or without its last dimension, or with size 1 in one dimension, or a number >= 0,
    else ShapeError. `eps` bounds the value alone: the gradient of `var` passes as if it were not there. Nix
    and Weigend 1994.

    >>> import lucid
    >>> lucid.nn.functional.gaussian_nll_loss(lucid.tensor([1.0]), lucid.tensor([3.0]), lucid.tensor([4.0]))
    tensor(1.1931)
    """
    name = "gaussian_nll_loss"
    if not isinstance(var, Tensor):
        var = input.detach() * 0 + float(var)
    if bool(F.any(F.lt(var.detach(), 0)).array):
        raise ShapeError(f"{name}: var must not be negative; pass variances, not logarithms of them")
    if var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = F.reshape(var, (*var.shape, 1))
        elif not _one_size_1(input.shape, var.shape):
            raise ShapeError(f"{name}: var must have the input's shape {tuple(input.shape)}, lack its last "
                             f"dimension, or have size 1 in one dimension; got {tuple(var.shape)}")
    value = var.detach()
    var = var + (F.where(F.lt(value, eps), eps, value) - value)
    d = input - target
    loss = 0.5 * (F.log(var) + d * d / var)
    return _reduce(name, loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


@public("nn.functional.poisson_nll_loss")
@named("poisson_nll_loss")
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
                     size_average: bool | None = None, eps: float = 1e-8, reduce: bool | None = None,
                     reduction: str = "mean") -> Tensor:
    """exp(x) - t x, or x - t log(x + eps) with log_input=False.

    Shapes broadcast together. `full` adds Stirling's t log t - t + log(2 pi t) / 2 where t > 1.

    >>> import lucid
    >>> lucid.nn.functional.poisson_nll_loss(lucid.tensor([0.0]), lucid.tensor([2.0]))
    tensor(1.)
    """
    loss = F.exp(input) - target * input if log_input else input - target * F.log(input + eps)
    if full:
        large = F.gt(target, 1)
        t = F.where(large, target, 1)
        loss = loss + F.where(large, t * F.log(t) - t + 0.5 * F.log(2 * math.pi * t), 0)
    return _reduce("poisson_nll_loss", loss, _reduction(size_average, reduce, reduction))


@public("nn.functional.soft_margin_loss")
@named("soft_margin_loss")
def soft_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None,
                     reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-t x)) for targets t of -1 and 1. Shapes broadcast together.

    >>> import lucid
    >>> lucid.nn.functional.soft_margin_loss(lucid.tensor([0.0]), lucid.tensor([1.0]))
    tensor(0.6931)
    """
    loss = F.binary_cross_entropy_with_logits(input * target, 1.0, None)
    return _reduce("soft_margin_loss", loss, _reduction(size_average, reduce, reduction))


# ---- margins and distances ----

@public("nn.functional.hinge_embedding_loss")
@named("hinge_embedding_loss")
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """x where the target is 1, max(0, margin - x) where it is -1. Shapes broadcast together.

    >>> import lucid
    >>> x, t = lucid.tensor([0.25, 0.25]), lucid.tensor([1, -1])
    >>> lucid.nn.functional.hinge_embedding_loss(x, t, reduction="none")
    tensor([0.25, 0.75])
    """
    loss = F.where(F.ne(target, 1), _hinge(margin - input), 0) + F.where(F.ne(target, -1), input, 0)
    return _reduce("hinge_embedding_loss", loss, _reduction(size_average, reduce, reduction))


@public("nn.functional.margin_ranking_loss")
@named("margin_ranking_loss")
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0,
                        size_average: bool | None = None, reduce: bool | None = None,
                        reduction: str = "mean") -> Tensor:
    """max(0, -target (input1 - input2) + margin), for targets of 1 (the first shall be larger) and -1.

    All have as many dimensions, else ShapeError; sizes of 1 broadcast.

    >>> import lucid
    >>> lucid.nn.functional.margin_ranking_loss(lucid.tensor([1.0]), lucid.tensor([3.0]), lucid.tensor([1.0]))
    tensor(2.)
    """
    if not input1.ndim == input2.ndim == target.ndim:
        # [n] against [n, 1] would be a loss of n x n pairs.
        raise ShapeError("margin_ranking_loss: input1, input2 and target must have as many dimensions, got "
                         f"{tuple(input1.shape)}, {tuple(input2.shape)} and {tuple(target.shape)}")
    loss = _hinge(-target * (input1 - input2) + margin)
    return _reduce("margin_ranking_loss", loss, _reduction(size_average, reduce, reduction))


@public("nn.functional.cosine_embedding_loss")
@named("cosine_embedding_loss")
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0,
                          size_average: bool | None = None, reduce: bool | None = None,
                          reduction: str = "mean") -> Tensor:
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1.

    Inputs: [N, d] or [d]; target: [N] or 0-d, else ShapeError.

    >>> import lucid
    >>> a, b = lucid.tensor([1.0, 0.0]), lucid.tensor([3.0, 4.0])
    >>> lucid.nn.functional.cosine_embedding_loss(a, b, lucid.tensor(1))
    tensor(0.4)
    """
    name = "cosine_embedding_loss"
    if target.ndim + 1 != input1.ndim or input1.ndim != input2.ndim:
        raise ShapeError(f"{name}: expected inputs [N, d] with targets [N], or [d] with a 0-d target, got "
                         f"{tuple(input1.shape)}, {tuple(input2.shape)} and {tuple(target.shape)}")
    # 1e-12 keeps the quotient finite for zero vectors, as in PyTorch.
    squares = (F.sum(input1 * input1, dim=-1) + 1e-12) * (F.sum(input2 * input2, dim=-1) + 1e-12)
    cos = F.sum(input1 * input2, dim=-1) / F.sqrt(squares)
    loss = F.where(F.eq(target, 1), 1.0 - cos, 0) + F.where(F.eq(target, -1), _hinge(cos - margin), 0)
    return _reduce(name, loss, _reduction(size_average, reduce, reduction))


@public("nn.functional.triplet_margin_loss")
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
                        eps: float = 1e-6, swap: bool = False, size_average: bool | None = None,
                        reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """max(0, d(a, p) - d(a, n) + margin) with d the p-norm distance along the last dimension.

    anchor, positive, negative: [..., d]. `swap` takes the smaller of d(a, n) and d(p, n). Raises ShapeError
    for different numbers of dimensions and margin <= 0. Balntas et al. 2016, BMVC.

    >>> import lucid
    >>> a, p, n = lucid.tensor([[0.0]]), lucid.tensor([[1.0]]), lucid.tensor([[1.5]])
    >>> lucid.nn.functional.triplet_margin_loss(a, p, n)
    tensor(0.5)
    """
    return triplet_margin_with_distance_loss(anchor, positive, negative, margin=margin, swap=swap,
                                             distance_function=lambda x, y: pairwise_distance(x, y, p, eps),
                                             reduction=_reduction(size_average, reduce, reduction))


@public("nn.functional.triplet_margin_with_distance_loss")
def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *,
                                      distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
                                      margin: float = 1.0, swap: bool = False,
                                      reduction: str = "mean") -> Tensor:
    """max(0, d(a, p) - d(a, n) + margin) with any distance; the 2-norm's when None.

    `swap` takes the smaller of d(a, n) and d(p, n) (Balntas et al. 2016, BMVC). Errors as of
    `triplet_margin_loss`.

    >>> import lucid
    >>> a, p, n = lucid.tensor([[0.0]]), lucid.tensor([[1.0]]), lucid.tensor([[2.0]])
    >>> distance = lambda x, y: ((x - y) ** 2).sum(-1)
    >>> lucid.nn.functional.triplet_margin_with_distance_loss(a, p, n, distance_function=distance, margin=4.0)
    tensor(1.)
    """
    name = "triplet_margin_loss"
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(f"{name}: anchor, positive and negative must have as many dimensions, got "
                         f"{anchor.ndim}, {positive.ndim} and {negative.ndim}")
    if margin <= 0:
        raise ShapeError(f"{name}: margin must be above 0, got {margin}")
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = F.minimum(far, distance(positive, negative))
    return _reduce(name, _hinge(margin + near - far), reduction)
