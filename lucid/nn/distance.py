"""Similarities and distances as modules."""

from __future__ import annotations

from ._table import FunctionModule


class CosineSimilarity(FunctionModule, function="cosine_similarity", shown=(), dim=1, eps=1e-8):
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along `dim`; the inputs broadcast together.

    >>> import lucid
    >>> lucid.nn.CosineSimilarity(dim=0)(lucid.tensor([1.0, 0.0]), lucid.tensor([3.0, 4.0]))
    tensor(0.6)
    """


class PairwiseDistance(FunctionModule, function="pairwise_distance", shown=(), p=2.0, eps=1e-6,
                       keepdim=False):
    """The p-norm of x1 - x2 + eps along the last dimension: [..., d], [..., d] -> [...].

    >>> import lucid
    >>> lucid.nn.PairwiseDistance()(lucid.tensor([[0.0, 0.0]]), lucid.tensor([[3.0, 4.0]]))
    tensor([5.])
    """
