"""Similarities and distances as modules."""

from __future__ import annotations

from ._table import FunctionModule


class CosineSimilarity(FunctionModule, function="cosine_similarity", shown=(), dim=1, eps=1e-8):
    """x1 . x2 / (|x1| |x2|) along `dim`."""


class PairwiseDistance(FunctionModule, function="pairwise_distance", shown=(), p=2.0, eps=1e-6,
                       keepdim=False):
    """The p-norm of x1 - x2 + eps along the last dimension."""
