"""Adaptive softmax: rare classes share clusters with narrower projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..autograd.mode import no_grad
from ..errors import IndexRangeError, ShapeError
from ..functional.join import cat
from ..tensor import Tensor, _wrap
from . import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module


class ASMoutput(NamedTuple):
    """output: [N] or [], the log probability of each target. loss: its negative mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-softmax over many classes, and its loss (Grave et al. 2017, arXiv:1609.04309).

    Classes are sorted from frequent to rare. Those below cutoffs[0], and one entry for each cluster of rarer
    ones, make the head. Cluster i, classes cutoffs[i] to cutoffs[i + 1], has a projection to in_features //
    div_value ** (i + 1) features. A log probability is that of the head, or of the cluster in the head plus
    that within the cluster, so a training step computes only the clusters that its targets are in.

    forward(input [N, in_features], target [N]) gives (output, loss); also [in_features] and []. Raises
    ValueError for cutoffs that do not ascend strictly between 0 and n_classes - 1.

    >>> import lucid
    >>> lucid.manual_seed(0)  # doctest: +ELLIPSIS
    <...>
    >>> softmax = lucid.nn.AdaptiveLogSoftmaxWithLoss(4, 10, cutoffs=[3, 6])
    >>> x = lucid.randn(2, 4)
    >>> softmax(x, lucid.tensor([1, 7])).output.shape, softmax.log_prob(x).shape, softmax.predict(x).shape
    ((2,), (2, 10), (2,))
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
                 head_bias: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        edges = list(cutoffs)
        if (not edges or any(int(c) != c for c in edges) or edges[0] <= 0 or edges[-1] > n_classes - 1
                or any(a >= b for a, b in zip(edges, edges[1:], strict=False))):
            raise ValueError("AdaptiveLogSoftmaxWithLoss: cutoffs must be integers that ascend strictly, "
                             f"from 1 to n_classes - 1 = {n_classes - 1} at most, got {cutoffs}")
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*edges, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = edges[0], len(edges)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            inner = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(Sequential(Linear(in_features, inner, False, device, dtype),
                                        Linear(inner, size, False, device, dtype)))

    def reset_parameters(self) -> None:
        """Nothing; draws the weights anew."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> ASMoutput:
        if input.shape[:-1] != target.shape or target.ndim > 1:
            raise ShapeError("AdaptiveLogSoftmaxWithLoss: expected an input [N, in_features] and a target "
                             f"[N], or [in_features] and [], got {tuple(input.shape)} and "
                             f"{tuple(target.shape)}")
        x, y = (input, target) if target.ndim else (input.unsqueeze(0), target.unsqueeze(0))
        self._check(y)
        # Rows by cluster, the shortlist first; their order is undone at the end.
        rows, parts = [], []
        head = F.log_softmax(self.head(x), dim=1)
        for i in range(self.n_clusters + 1):
            low, high = (0, *self.cutoffs)[i], self.cutoffs[i]
            index = ((y >= low) & (y < high)).nonzero().squeeze(1)
            if not index.shape[0]:
                continue
            chosen = head.index_select(0, index)
            inside = y.index_select(0, index) - low
            if i == 0:
                part = _pick(chosen, inside)
            else:
                within = F.log_softmax(self.tail[i - 1](x.index_select(0, index)), dim=1)
                part = chosen[:, self.shortlist_size + i - 1] + _pick(within, inside)
            rows.append(index)
            parts.append(part)
        if not parts:
            output = head.sum(1)
        else:
            order = cat(rows).array.argsort()
            output = cat(parts).index_select(0, _wrap(order, x.backend))
        output = output if target.ndim else output.squeeze(0)
        return ASMoutput(output, -output.mean())

    def _check(self, y: Tensor) -> None:
        if not y.numel():
            return
        low, high = int(y.min().item()), int(y.max().item())
        if low < 0 or high >= self.n_classes:
            raise IndexRangeError("AdaptiveLogSoftmaxWithLoss: targets must lie in [0, n_classes - 1 = "
                                  f"{self.n_classes - 1}], got {low} to {high}")

    def log_prob(self, input: Tensor) -> Tensor:
        """Log probabilities of all classes: [N, n_classes] of [N, in_features]."""
        head = F.log_softmax(self.head(input), dim=1)
        parts = [head[:, :self.shortlist_size]]
        for i, steps in enumerate(self.tail):
            cluster = head[:, self.shortlist_size + i].unsqueeze(1)
            parts.append(cluster + F.log_softmax(steps(input), dim=1))
        return cat(parts, dim=1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row: [N] of [N, in_features]."""
        with no_grad():
            return self.log_prob(input).argmax(dim=1)


def _pick(rows: Tensor, index: Tensor) -> Tensor:
    """rows[i, index[i]]."""
    return rows.gather(1, index.unsqueeze(1)).squeeze(1)
