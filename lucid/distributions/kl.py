"""Kullback-Leibler divergence, by the types of its two distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .categorical import Categorical
from .distribution import Distribution
from .normal import Normal

_FORMULAS: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(p: type, q: type) -> Callable[[Callable[[Any, Any], Tensor]], Callable[[Any, Any], Tensor]]:
    """A decorator that gives a formula for kl_divergence of two types, and of their subclasses.

    >>> import lucid
    >>> class Spike(lucid.distributions.Normal):
    ...     pass
    >>> @lucid.distributions.register_kl(Spike, Spike)
    ... def spikes(p, q):
    ...     return (p.loc - q.loc).abs()
    >>> one, zero, width = lucid.tensor(1.0), lucid.tensor(0.0), lucid.tensor(1.0)
    >>> lucid.distributions.kl_divergence(Spike(one, width), Spike(zero, width))
    tensor(1.)
    """

    def register(formula: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        _FORMULAS[p, q] = formula
        return formula

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """E_p log(p / q), per distribution of the batch.

    >>> import lucid
    >>> p, q = lucid.distributions.Normal(0.0, 1.0), lucid.distributions.Normal(1.0, 1.0)
    >>> lucid.distributions.kl_divergence(p, q).item()
    0.5
    """
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (a, b) in _FORMULAS:
                return _FORMULAS[a, b](p, q)
    raise NotImplementedError(
        f"kl_divergence: there is no formula for {type(p).__name__} and {type(q).__name__}; "
        "give one with register_kl"
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio, distance = (p.scale / q.scale) ** 2, ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + distance - 1 - ratio.log())


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    return (p.probs * (p.logits - q.logits)).sum(-1)
