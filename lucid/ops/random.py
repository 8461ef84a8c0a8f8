"""Dropout. The mask comes in as a tensor, or as the place in a generator's stream from which it is computed
in each pass: either way a call can be replayed and fused.
"""

from __future__ import annotations

from ..storage.random import stream_mask
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


_STATE = A(value=[(7 << 40) + 11, (1 << 32) - 1])


@op(public=False, diff=(), samples=[Sample(_STATE, 2, (3, 5), 0.75), Sample(_STATE, 0, (), 1.0)])
def philox_mask(xp, state, skip: int, shape: tuple, keep: float):
    """bool of `shape`, True with probability `keep`.

    `Generator.bernoulli_mask` at `skip` blocks past `state`: uint64 [2], seed and offset, as `Generator.draw`
    gives it.
    """
    return stream_mask(xp, state.astype("uint64", copy=False), skip, shape, keep)


@op(public=False, pointwise=True, broadcast=False, samples=[Sample((3, 4), _STATE, 2, 0.25)])
def seeded_dropout(xp, x, state, skip: int, p: float):
    """`dropout` with the mask `philox_mask(state, skip, x.shape, 1 - p)`, which nothing stores.

    Its derivative computes the mask again: 16 bytes are kept for it, which all draws of a seed share.
    """
    return dropout.forward(xp, x, philox_mask.forward(xp, state, skip, x.shape, 1.0 - p), p)


seeded_dropout.grad(x=lambda F, g, state, skip, p: F.seeded_dropout(g, state, skip, p))


@composite(public=False, samples=[Sample((3, 4), _MASK, 0.25)])
def alpha_dropout(F, x, mask, p: float):
    """a * (x where the mask is True, else SELU_LIMIT) + b.

    a and b keep mean 0 and variance 1 (Klambauer et al. 2017).
    """
    a = ((1.0 - p) * (1.0 + p * SELU_LIMIT**2)) ** -0.5
    b = -a * p * SELU_LIMIT
    return F.where(mask, x * a + b, a * SELU_LIMIT + b)
