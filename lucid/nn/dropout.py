"""Dropout layers: active in training, the identity in evaluation."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..tensor import Tensor
from . import functional as F
from ._table import FunctionModule


class _Dropout(FunctionModule):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not 0 <= self.p <= 1:
            raise ShapeError(f"{type(self).__name__}: p must be a probability in [0, 1], got {self.p}")

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout, function="dropout", p=0.5, inplace=False):
    """Elements zero with probability p, the others divided by 1 - p (Srivastava et al. 2014, JMLR 15).

    In evaluation the identity. Raises ShapeError for a p outside [0, 1].

    >>> import lucid
    >>> drop = lucid.nn.Dropout(0.5)
    >>> sorted(set(drop(lucid.ones(1000)).tolist())), drop.eval()(lucid.ones(2)).tolist()
    ([0.0, 2.0], [1.0, 1.0])
    """


class Dropout1d(_Dropout, function="dropout1d", p=0.5, inplace=False):
    """Whole channels of [N, C, L] or [C, L] zero with probability p, the others divided by 1 - p.

    See Dropout.

    >>> import lucid
    >>> lucid.nn.Dropout1d(0.5).eval()(lucid.ones(1, 2, 3)).shape
    (1, 2, 3)
    """


class Dropout2d(_Dropout, function="dropout2d", p=0.5, inplace=False):
    """Whole channels of [N, C, H, W] zero with probability p, the others divided by 1 - p.

    Tompson et al. 2015, arXiv:1411.4280; see Dropout.

    >>> import lucid
    >>> x = lucid.nn.Dropout2d(0.5)(lucid.ones(1, 100, 2, 2))
    >>> bool((x.amin((2, 3)) == x.amax((2, 3))).all())    # a channel is dropped as a whole
    True
    """


class Dropout3d(_Dropout, function="dropout3d", p=0.5, inplace=False):
    """Whole channels of [N, C, D, H, W] zero with probability p, the others divided by 1 - p; see Dropout.

    >>> import lucid
    >>> lucid.nn.Dropout3d(0.5)(lucid.ones(1, 3, 2, 2, 2)).shape
    (1, 3, 2, 2, 2)
    """


class AlphaDropout(_Dropout, function="alpha_dropout", p=0.5, inplace=False):
    """Dropout for selu networks: keeps mean 0 and variance 1 (Klambauer et al. 2017, arXiv:1706.02515).

    >>> import lucid
    >>> x = lucid.nn.AlphaDropout(0.5)(lucid.zeros(1000))
    >>> len(set(x.tolist()))
    2
    """


class FeatureAlphaDropout(_Dropout, function="feature_alpha_dropout", p=0.5, inplace=False):
    """AlphaDropout of whole channels: [N, C, ...].

    >>> import lucid
    >>> lucid.nn.FeatureAlphaDropout(0.5)(lucid.zeros(1, 3, 4)).shape
    (1, 3, 4)
    """
