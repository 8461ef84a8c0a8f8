"""The base of all distributions."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor

Shape = tuple[int, ...]


class Distribution:
    """A batch of distributions. A sample has shape sample_shape + batch_shape + event_shape.

    The base class of `Normal` and `Categorical`.

    >>> import lucid
    >>> normal = lucid.distributions.Normal(lucid.zeros(3), lucid.ones(3))
    >>> normal.batch_shape, normal.event_shape, normal.sample((2,)).shape
    ((3,), (), (2, 3))
    """

    has_rsample = False

    def __init__(self, batch_shape: Shape = (), event_shape: Shape = (), validate_args: Any = None) -> None:
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape={self.batch_shape})"

    def _shape(self, sample_shape: Any) -> Shape:
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError(f"{type(self).__name__}.mean")

    @property
    def variance(self) -> Tensor:
        """The expected squared distance from the mean."""
        raise NotImplementedError(f"{type(self).__name__}.variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """A sample without gradient."""
        raise NotImplementedError(f"{type(self).__name__}.sample")

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """A sample as a differentiable function of the parameters (Kingma and Welling 2014,
        arXiv:1312.6114).
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no sample with a gradient; use sample() and log_prob()"
        )

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability, or density, of `value`."""
        raise NotImplementedError(f"{type(self).__name__}.log_prob")

    def entropy(self) -> Tensor:
        """-E log p, in nats."""
        raise NotImplementedError(f"{type(self).__name__}.entropy")
