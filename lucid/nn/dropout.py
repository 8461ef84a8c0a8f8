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
    """Elements zero with probability p, the others divided by 1 - p (Srivastava et al. 2014)."""


class Dropout1d(_Dropout, function="dropout1d", p=0.5, inplace=False):
    """Whole channels of [N, C, L] zero with probability p."""


class Dropout2d(_Dropout, function="dropout2d", p=0.5, inplace=False):
    """Whole channels of [N, C, H, W] zero with probability p."""


class Dropout3d(_Dropout, function="dropout3d", p=0.5, inplace=False):
    """Whole channels of [N, C, D, H, W] zero with probability p."""


class AlphaDropout(_Dropout, function="alpha_dropout", p=0.5, inplace=False):
    """Dropout for selu networks: keeps mean 0 and variance 1 (Klambauer et al. 2017)."""


class FeatureAlphaDropout(_Dropout, function="feature_alpha_dropout", p=0.5, inplace=False):
    """AlphaDropout of whole channels."""
