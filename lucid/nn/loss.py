"""Losses as modules: the arguments of the functions in `nn.functional`, class weights as buffers."""

from __future__ import annotations

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

    >>> import lucid
    >>> loss = CrossEntropyLoss()(lucid.zeros(1, 4), lucid.tensor([2]))
    >>> round(loss.item(), 4)
    1.3863
    """


class NLLLoss(_Loss, function="nll_loss", **_SKIP, weight=None, size_average=None, ignore_index=-100,
              reduce=None, reduction="mean"):
    """Negative log likelihood of class indices under log probabilities."""


class MSELoss(_Loss, function="mse_loss", **_SKIP, **_OLD):
    """Squared error."""


class L1Loss(_Loss, function="l1_loss", **_SKIP, **_OLD):
    """Absolute error."""


class SmoothL1Loss(_Loss, function="smooth_l1_loss", **_SKIP, **_OLD, beta=1.0):
    """Squared error below `beta`, absolute error above."""


class HuberLoss(_Loss, function="huber_loss", **_SKIP, reduction="mean", delta=1.0):
    """Squared error below `delta`, delta times the absolute error above."""


class BCELoss(_Loss, function="binary_cross_entropy", **_SKIP, weight=None, **_OLD):
    """Binary cross entropy of probabilities."""


class BCEWithLogitsLoss(_Loss, function="binary_cross_entropy_with_logits", **_SKIP, weight=None, **_OLD,
                        pos_weight=None):
    """Binary cross entropy of logits."""


class KLDivLoss(_Loss, function="kl_div", **_SKIP, **_OLD, log_target=False):
    """Kullback-Leibler divergence of a target distribution from log probabilities."""


class GaussianNLLLoss(_Loss, function="gaussian_nll_loss", **_SKIP, full=False, eps=1e-6, reduction="mean"):
    """Negative log likelihood of a normal distribution with given mean and variance."""


class PoissonNLLLoss(_Loss, function="poisson_nll_loss", **_SKIP, log_input=True, full=False,
                     size_average=None, eps=1e-8, reduce=None, reduction="mean"):
    """Negative log likelihood of a Poisson distribution."""


class HingeEmbeddingLoss(_Loss, function="hinge_embedding_loss", **_SKIP, margin=1.0, **_OLD):
    """x where the target is 1, max(0, margin - x) where it is -1."""


class MarginRankingLoss(_Loss, function="margin_ranking_loss", **_SKIP, margin=0.0, **_OLD):
    """max(0, -target (x1 - x2) + margin)."""


class SoftMarginLoss(_Loss, function="soft_margin_loss", **_SKIP, **_OLD):
    """log(1 + exp(-target x))."""


class MultiMarginLoss(_Loss, function="multi_margin_loss", **_SKIP, p=1, margin=1.0, weight=None, **_OLD):
    """Margins between the target class and every other."""


class MultiLabelMarginLoss(_Loss, function="multilabel_margin_loss", **_SKIP, **_OLD):
    """Margins between every target class and every other."""


class MultiLabelSoftMarginLoss(_Loss, function="multilabel_soft_margin_loss", **_SKIP, weight=None, **_OLD):
    """Binary cross entropy with logits, averaged over classes."""


class CosineEmbeddingLoss(_Loss, function="cosine_embedding_loss", **_SKIP, margin=0.0, **_OLD):
    """1 - cos for targets of 1, max(0, cos - margin) for targets of -1."""


class TripletMarginLoss(_Loss, function="triplet_margin_loss", **_SKIP, margin=1.0, p=2.0, eps=1e-6,
                        swap=False, **_OLD):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""


class TripletMarginWithDistanceLoss(_Loss, function="triplet_margin_with_distance_loss", **_SKIP,
                                    distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """The triplet margin loss with any distance; PairwiseDistance by default."""

    distance_function: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.distance_function is None:
            del self.distance_function
            self.distance_function = PairwiseDistance()


class CTCLoss(_Loss, function="ctc_loss", **_SKIP, blank=0, reduction="mean", zero_infinity=False):
    """Connectionist temporal classification (Graves et al. 2006)."""
