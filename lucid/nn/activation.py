"""Activations as modules."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..tensor import Tensor
from . import functional as F
from . import init
from ._make import empty_parameter
from ._table import REQUIRED, FunctionModule
from .module import Module


class ReLU(FunctionModule, function="relu", inplace=False):
    """max(x, 0)."""


class ReLU6(FunctionModule, function="relu6", inplace=False):
    """min(max(x, 0), 6)."""


class LeakyReLU(FunctionModule, function="leaky_relu", negative_slope=0.01, inplace=False):
    """x where x > 0, else negative_slope x."""


class RReLU(FunctionModule, function="rrelu", lower=1.0 / 8, upper=1.0 / 3, inplace=False):
    """Leaky relu with a slope drawn from [lower, upper) per element in training, their mean in evaluation."""

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training,
                       **({"inplace": True} if self.inplace else {}))


class ELU(FunctionModule, function="elu", alpha=1.0, inplace=False):
    """x where x > 0, else alpha (exp(x) - 1)."""


class CELU(FunctionModule, function="celu", alpha=1.0, inplace=False):
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""


class SELU(FunctionModule, function="selu", inplace=False):
    """Scaled elu, which keeps mean 0 and variance 1 (Klambauer et al. 2017)."""


class GELU(FunctionModule, function="gelu", approximate="none"):
    """x times the normal distribution function of x (Hendrycks and Gimpel 2016).

    approximate="tanh" uses their formula with tanh.
    """


class SiLU(FunctionModule, function="silu", inplace=False):
    """x sigmoid(x)."""


class Mish(FunctionModule, function="mish", inplace=False):
    """x tanh(softplus(x))."""


class Sigmoid(FunctionModule, function="sigmoid"):
    """1 / (1 + exp(-x))."""


class Tanh(FunctionModule, function="tanh"):
    """The hyperbolic tangent."""


class LogSigmoid(FunctionModule, function="logsigmoid"):
    """log(sigmoid(x)), without overflow."""


class Softplus(FunctionModule, function="softplus", beta=1.0, threshold=20.0):
    """log(1 + exp(beta x)) / beta; x itself where beta x exceeds the threshold."""


class Softsign(FunctionModule, function="softsign"):
    """x / (1 + |x|)."""


class Tanhshrink(FunctionModule, function="tanhshrink"):
    """x - tanh(x)."""


class Softshrink(FunctionModule, function="softshrink", positional=True, lambd=0.5):
    """x moved towards 0 by lambd."""


class Hardshrink(FunctionModule, function="hardshrink", positional=True, lambd=0.5):
    """x where |x| > lambd, else 0."""


class Hardtanh(FunctionModule, function="hardtanh", min_val=-1.0, max_val=1.0, inplace=False):
    """x kept in [min_val, max_val]."""


class Hardsigmoid(FunctionModule, function="hardsigmoid", inplace=False):
    """min(max(x + 3, 0), 6) / 6."""


class Hardswish(FunctionModule, function="hardswish", inplace=False):
    """x hardsigmoid(x)."""


class Threshold(FunctionModule, function="threshold", threshold=REQUIRED, value=REQUIRED, inplace=False):
    """x where x > threshold, else value."""


class GLU(FunctionModule, function="glu", dim=-1):
    """The first half along `dim` times the sigmoid of the second half."""


class Softmax(FunctionModule, function="softmax", dim=None):
    """exp(x) / sum(exp(x)) along `dim`."""


class LogSoftmax(FunctionModule, function="log_softmax", dim=None):
    """x - log(sum(exp(x))) along `dim`."""


class Softmin(FunctionModule, function="softmin", dim=None):
    """softmax(-x) along `dim`."""


class Softmax2d(Module):
    """Softmax over the channels of [N, C, H, W] or [C, H, W]."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ShapeError("Softmax2d: expected an input of 3 or 4 dimensions, got shape "
                             f"{tuple(input.shape)}")
        return F.softmax(input, dim=-3)


class PReLU(Module):
    """x where x > 0, else weight x. weight: [num_parameters], one for all channels or one for each."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = empty_parameter((num_parameters,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Nothing; sets the slopes to their start."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
