"""The normal distribution."""

from __future__ import annotations

import math
from typing import Any

import lucid

from ..tensor import Tensor
from .distribution import Distribution


class Normal(Distribution):
    """Normal numbers with mean `loc` and standard deviation `scale`, which broadcast together.

    >>> import lucid
    >>> d = lucid.distributions.Normal(0.0, 2.0)
    >>> round(d.log_prob(lucid.tensor(0.0)).item(), 4), round(d.entropy().item(), 4)
    (-1.6121, 2.1121)
    """

    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: Any = None) -> None:
        like = next((t for t in (loc, scale) if isinstance(t, Tensor)), None)
        options = {} if like is None else {"dtype": like.dtype, "device": like.device}
        loc, scale = (
            t if isinstance(t, Tensor) else lucid.tensor(float(t) if not options else t, **options)
            for t in (loc, scale)
        )
        self.loc, self.scale = lucid.broadcast_tensors(loc, scale)
        super().__init__(self.loc.shape)

    @property
    def mean(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def stddev(self) -> Tensor:
        """scale."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """scale squared."""
        return self.scale * self.scale

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """A sample without gradient."""
        with lucid.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """loc + scale * standard normal numbers."""
        noise = lucid.randn(*self._shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.scale * noise

    def log_prob(self, value: Any) -> Tensor:
        """-(value - loc)^2 / (2 scale^2) - log(scale) - log(2 pi) / 2."""
        z = (value - self.loc) / self.scale
        return -0.5 * (z * z) - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def entropy(self) -> Tensor:
        """1/2 + log(2 pi) / 2 + log(scale)."""
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    def cdf(self, value: Any) -> Tensor:
        """The probability of at most `value`."""
        return 0.5 * (1 + lucid.erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Any) -> Tensor:
        """The number that is not exceeded with probability `value`."""
        return self.loc + self.scale * lucid.erfinv(2 * value - 1) * math.sqrt(2)
