"""Losses as modules: the arguments of the functions in `nn.functional`, class weights as buffers."""

from __future__ import annotations

import warnings
from typing import Any

from ..functional.loss import _reduction
from ..tensor import Tensor
from ._table import FunctionModule
from .distance import PairwiseDistance


class _Loss(FunctionModule):
    # size_average and reduce are PyTorch's old form of reduction; tensors are registered as buffers, so that
    # .to() moves them.
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        d = self.__dict__
        self.reduction = _reduction(d.pop("size_average", None), d.pop("reduce", None), d.pop("reduction"))
        for name in ("weight", "pos_weight"):
            if name in d:
                self.register_buffer(name, d.pop(name))

    def forward(self, *inputs: Tensor) -> Tensor:
        from . import functional as F
        return getattr(F, self.function)(*inputs, **{n: getattr(self, n) for n in self.passed})


_OLD: dict[str, Any] = {"size_average": None, "reduce": None, "reduction": "mean"}
_SKIP: dict[str, Any] = {"skip": ("size_average", "reduce"), "shown": ()}


class CrossEntropyLoss(_Loss, function="cross_entropy", **_SKIP, weight=None, size_average=None,
                       ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    """Cross entropy of logits and class indices or probabilities.

    [N, C, ...] and [N, ...] (indices) or [N, C, ...] (probabilities); formula and errors:
    `nn.functional.cross_entropy`.

    >>> import lucid
    >>> loss = lucid.nn.CrossEntropyLoss()(lucid.zeros(1, 4), lucid.tensor([2]))
    >>> round(loss.item(), 4)
    1.3863
    """


class NLLLoss(_Loss, function="nll_loss", **_SKIP, weight=None, size_average=None, ignore_index=-100,
              reduce=None, reduction="mean"):
    """Negative log likelihood of class indices under log probabilities; shapes as of CrossEntropyLoss.

    >>> import lucid
    >>> lucid.nn.NLLLoss()(lucid.tensor([[-0.5, -1.0]]), lucid.tensor([1]))
    tensor(1.)
    """


class NLLLoss2d(NLLLoss, function="nll_loss", **_SKIP, weight=None, size_average=None, ignore_index=-100,
                reduce=None, reduction="mean"):
    """`NLLLoss` under its old name, with a FutureWarning.

    >>> import lucid
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     loss = lucid.nn.NLLLoss2d(reduction="sum")
    >>> caught[0].category.__name__, loss.reduction
    ('FutureWarning', 'sum')
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn("NLLLoss2d has been deprecated; use NLLLoss, which takes any number of dimensions",
                      FutureWarning, stacklevel=2)
        super().__init__(*args, **kwargs)


class MSELoss(_Loss, function="mse_loss", **_SKIP, **_OLD):
    """Squared error (input - target)^2. reduction: "mean", "sum" or "none", as in every loss.

    >>> import lucid
    >>> lucid.nn.MSELoss()(lucid.tensor([1.0, 3.0]), lucid.tensor([1.0, 1.0]))
    tensor(2.)
    """


class L1Loss(_Loss, function="l1_loss", **_SKIP, **_OLD):
    """Absolute error |input - target|.

    >>> import lucid
    >>> lucid.nn.L1Loss()(lucid.tensor([1.0, 3.0]), lucid.tensor([1.0, 1.0]))
    tensor(1.)
    """


class SmoothL1Loss(_Loss, function="smooth_l1_loss", **_SKIP, **_OLD, beta=1.0):
    """Squared error below `beta`, absolute error above (Girshick 2015, eq. 3).

    d^2 / (2 beta) where |d| < beta, else |d| - beta / 2.

    >>> import lucid
    >>> lucid.nn.SmoothL1Loss(reduction="none")(lucid.tensor([0.5, 3.0]), lucid.zeros(2))
    tensor([0.125, 2.5  ])
    """


class HuberLoss(_Loss, function="huber_loss", **_SKIP, reduction="mean", delta=1.0):
    """Squared error below `delta`, delta times the absolute error above (Huber 1964).

    d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2).

    >>> import lucid
    >>> lucid.nn.HuberLoss(reduction="none", delta=2.0)(lucid.tensor([1.0, 3.0]), lucid.zeros(2))
    tensor([0.5, 4. ])
    """


class BCELoss(_Loss, function="binary_cross_entropy", **_SKIP, weight=None, **_OLD):
    """Binary cross entropy of probabilities: -(t log x + (1 - t) log(1 - x)).

    input: in [0, 1], else IndexRangeError; target: the input's shape, else ShapeError.

    >>> import lucid
    >>> lucid.nn.BCELoss()(lucid.tensor([0.5]), lucid.tensor([1.0]))
    tensor(0.6931)
    """


class BCEWithLogitsLoss(_Loss, function="binary_cross_entropy_with_logits", **_SKIP, weight=None, **_OLD,
                        pos_weight=None):
    """Binary cross entropy of logits, without overflow.

    -(w t log sigmoid(x) + (1 - t) log sigmoid(-x)), w: pos_weight or 1. target: the input's shape, else
    ShapeError.

    >>> import lucid
    >>> lucid.nn.BCEWithLogitsLoss()(lucid.tensor([0.0, 1000.0]), lucid.tensor([1.0, 1.0]))
    tensor(0.3466)
    """


class KLDivLoss(_Loss, function="kl_div", **_SKIP, **_OLD, log_target=False):
    """Kullback-Leibler divergence of a target distribution from log probabilities.

    target (log target - input); reduction "batchmean" is the divergence itself.

    >>> import lucid
    >>> p, q = lucid.tensor([[0.5, 0.5]]), lucid.tensor([[0.25, 0.75]])
    >>> lucid.nn.KLDivLoss(reduction="batchmean")(q.log(), p)
    tensor(0.1438)
    """


class GaussianNLLLoss(_Loss, function="gaussian_nll_loss", **_SKIP, full=False, eps=1e-6, reduction="mean"):
    """Negative log likelihood of a normal distribution with given mean and variance.

    (log v + (input - target)^2 / v) / 2; forward(input, target, var).

    >>> import lucid
    >>> lucid.nn.GaussianNLLLoss()(lucid.tensor([1.0]), lucid.tensor([3.0]), lucid.tensor([4.0]))
    tensor(1.1931)
    """


class PoissonNLLLoss(_Loss, function="poisson_nll_loss", **_SKIP, log_input=True, full=False,
                     size_average=None, eps=1e-8, reduce=None, reduction="mean"):
    """Negative log likelihood of a Poisson distribution: exp(x) - t x.

    >>> import lucid
    >>> lucid.nn.PoissonNLLLoss()(lucid.tensor([0.0]), lucid.tensor([2.0]))
    tensor(1.)
    """


class HingeEmbeddingLoss(_Loss, function="hinge_embedding_loss", **_SKIP, margin=1.0, **_OLD):
    """x where the target is 1, max(0, margin - x) where it is -1.

    >>> import lucid
    >>> x, t = lucid.tensor([0.25, 0.25]), lucid.tensor([1, -1])
    >>> lucid.nn.HingeEmbeddingLoss(reduction="none")(x, t)
    tensor([0.25, 0.75])
    """


class MarginRankingLoss(_Loss, function="margin_ranking_loss", **_SKIP, margin=0.0, **_OLD):
    """max(0, -target (x1 - x2) + margin), for targets of 1 (the first shall be larger) and -1.

    >>> import lucid
    >>> lucid.nn.MarginRankingLoss()(lucid.tensor([1.0]), lucid.tensor([3.0]), lucid.tensor([1.0]))
    tensor(2.)
    """


class SoftMarginLoss(_Loss, function="soft_margin_loss", **_SKIP, **_OLD):
    """log(1 + exp(-target x)) for targets of -1 and 1.

    >>> import lucid
    >>> lucid.nn.SoftMarginLoss()(lucid.tensor([0.0]), lucid.tensor([1.0]))
    tensor(0.6931)
    """


class MultiMarginLoss(_Loss, function="multi_margin_loss", **_SKIP, p=1, margin=1.0, weight=None, **_OLD):
    """Margins between the target class y and every other: sum of max(0, margin - x_y + x_i)^p / C.

    input: [N, C] or [C]; target: [N] or 0-d integers.

    >>> import lucid
    >>> lucid.nn.MultiMarginLoss()(lucid.tensor([[1.0, 0.5, 0.0]]), lucid.tensor([0]))
    tensor(0.1667)
    """


class MultiLabelMarginLoss(_Loss, function="multilabel_margin_loss", **_SKIP, **_OLD):
    """Margins between every target class j and every other i: sum of max(0, 1 - (x_j - x_i)) / C.

    input: [N, C] or [C]; target: integers of the same shape; a row's targets end at its first -1.

    >>> import lucid
    >>> lucid.nn.MultiLabelMarginLoss()(lucid.tensor([1.0, 0.5, 0.0]), lucid.tensor([0, -1, -1]))
    tensor(0.1667)
    """


class MultiLabelSoftMarginLoss(_Loss, function="multilabel_soft_margin_loss", **_SKIP, weight=None, **_OLD):
    """Binary cross entropy with logits, averaged over classes: [N, C] and [N, C].

    >>> import lucid
    >>> lucid.nn.MultiLabelSoftMarginLoss()(lucid.zeros(1, 2), lucid.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """


class CosineEmbeddingLoss(_Loss, function="cosine_embedding_loss", **_SKIP, margin=0.0, **_OLD):
    """1 - cos for targets of 1, max(0, cos - margin) for targets of -1: [N, d], [N, d] and [N].

    >>> import lucid
    >>> a, b = lucid.tensor([[1.0, 0.0]]), lucid.tensor([[3.0, 4.0]])
    >>> lucid.nn.CosineEmbeddingLoss()(a, b, lucid.tensor([1]))
    tensor(0.4)
    """


class TripletMarginLoss(_Loss, function="triplet_margin_loss", **_SKIP, margin=1.0, p=2.0, eps=1e-6,
                        swap=False, **_OLD):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the p-norm distance of [..., d] vectors.

    Balntas et al. 2016, BMVC.

    >>> import lucid
    >>> a, p, n = lucid.tensor([[0.0]]), lucid.tensor([[1.0]]), lucid.tensor([[1.5]])
    >>> lucid.nn.TripletMarginLoss()(a, p, n)
    tensor(0.5)
    """


class TripletMarginWithDistanceLoss(_Loss, function="triplet_margin_with_distance_loss", **_SKIP,
                                    distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """The triplet margin loss with any distance; PairwiseDistance by default.

    >>> import lucid
    >>> distance = lambda x, y: ((x - y) ** 2).sum(-1)
    >>> loss = lucid.nn.TripletMarginWithDistanceLoss(distance_function=distance, margin=4.0)
    >>> loss(lucid.tensor([[0.0]]), lucid.tensor([[1.0]]), lucid.tensor([[2.0]]))
    tensor(1.)
    """

    distance_function: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.distance_function is None:
            del self.distance_function
            self.distance_function = PairwiseDistance()


class CTCLoss(_Loss, function="ctc_loss", **_SKIP, blank=0, reduction="mean", zero_infinity=False):
    """Connectionist temporal classification (Graves et al. 2006); see `nn.functional.ctc_loss`.

    forward(log_probs [T, N, C], targets [N, S], input_lengths, target_lengths).

    >>> import lucid
    >>> log_p = lucid.tensor([[0.25, 0.75]]).log()    # one step; blank and one label
    >>> lucid.nn.CTCLoss()(log_p, lucid.tensor([1]), (1,), (1,))    # -log 0.75
    tensor(0.2877)
    """
