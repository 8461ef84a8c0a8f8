"""Dropout. The mask is drawn outside and comes in as a tensor, so a call can be replayed and fused."""

from __future__ import annotations

from .pointwise import like
from .registry import A, Sample, composite, op

_MASK = A((3, 4), dtype="bool", low=0, high=2)

# The limit of selu at -inf, -scale * alpha (Klambauer et al. 2017, arXiv:1706.02515).
SELU_LIMIT = -1.7580993408473766


@op(public=False, pointwise=True, samples=[Sample((3, 4), _MASK, 0.25)])
def dropout(xp, x, mask, p: float):
    """x * mask / (1 - p): zeros where the mask is False, scaled to keep the mean (Srivastava et al. 2014).

    x: any shape, floating; mask: bool, broadcast to x; p in [0, 1): the probability of False.
    """
    return like(x * mask * (1.0 / (1.0 - p)), x)


dropout.grad(x=lambda F, g, mask, p: F.dropout(g, mask, p))


@composite(public=False, samples=[Sample((3, 4), _MASK, 0.25)])
def alpha_dropout(F, x, mask, p: float):
    """a * (x where the mask is True, else SELU_LIMIT) + b.

    a and b keep mean 0 and variance 1 (Klambauer et al. 2017).
    """
    a = ((1.0 - p) * (1.0 + p * SELU_LIMIT**2)) ** -0.5
    b = -a * p * SELU_LIMIT
    return F.where(mask, x * a + b, a * SELU_LIMIT + b)
