"""The categorical distribution."""

from __future__ import annotations

import math
from typing import Any

import lucid

from ..errors import ShapeError
from ..tensor import Tensor
from .distribution import Distribution


class Categorical(Distribution):
    """Numbers 0 .. k - 1 with probabilities from `probs` or `logits` [..., k].

    One of them; they need not be normalised.

    >>> import lucid
    >>> d = lucid.distributions.Categorical(logits=lucid.tensor([0.0, 0.0, 0.0, 0.0]))
    >>> round(d.log_prob(lucid.tensor(2)).item(), 4), round(d.entropy().item(), 4)
    (-1.3863, 1.3863)
    """

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        if (probs is None) == (logits is None):
            raise ShapeError(
                "Categorical: expected either probs or logits, got "
                + ("both" if probs is not None else "none")
            )
        given = lucid.as_tensor(probs if logits is None else logits)
        if not given.ndim:
            raise ShapeError("Categorical: expected probabilities [..., k], got a 0-d tensor")
        if logits is None:
            self.probs = given / given.sum(-1, keepdim=True)
            # The smallest probability is that of the dtype, so that log is finite (as PyTorch's clamp_probs).
            eps = lucid.finfo(given.dtype).eps
            self.logits = self.probs.clamp(eps, 1 - eps).log()
        else:
            self.logits = given - given.logsumexp(-1, keepdim=True)
            self.probs = self.logits.exp()
        super().__init__(given.shape[:-1])

    @property
    def param_shape(self) -> tuple[int, ...]:
        """[..., k]."""
        return self.logits.shape

    @property
    def mode(self) -> Tensor:
        """The most probable number."""
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """int64 sample_shape + batch_shape."""
        shape = self._shape(sample_shape)
        count = math.prod(sample_shape)
        with lucid.no_grad():
            rows = self.probs.reshape(-1, self.probs.shape[-1])
            picked = lucid.multinomial(rows, count, replacement=True)
            return picked.T.reshape(shape)

    def log_prob(self, value: Any) -> Tensor:
        """log p(value), of the shape to which value and the batch broadcast."""
        value = lucid.as_tensor(value, device=self.logits.device).long()
        shape = lucid.broadcast_shapes(value.shape, self.batch_shape)
        logits = self.logits.expand(*shape, self.logits.shape[-1])
        return logits.gather(-1, value.expand(*shape).unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """-sum of p log p, with 0 log 0 = 0."""
        least = lucid.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)
