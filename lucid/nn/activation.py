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
    """max(x, 0) of each element. inplace: x itself is written.

    >>> import lucid
    >>> lucid.nn.ReLU()(lucid.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """


class ReLU6(FunctionModule, function="relu6", inplace=False):
    """min(max(x, 0), 6) of each element.

    >>> import lucid
    >>> lucid.nn.ReLU6()(lucid.tensor([-1.0, 3.0, 8.0]))
    tensor([0., 3., 6.])
    """


class LeakyReLU(FunctionModule, function="leaky_relu", negative_slope=0.01, inplace=False):
    """x where x > 0, else negative_slope x.

    >>> import lucid
    >>> lucid.nn.LeakyReLU(0.1)(lucid.tensor([-1.0, 2.0]))
    tensor([-0.1,  2. ])
    """


class RReLU(FunctionModule, function="rrelu", lower=1.0 / 8, upper=1.0 / 3, inplace=False):
    """Leaky relu with a slope drawn from [lower, upper) per element in training, their mean in evaluation.

    Xu et al. 2015, arXiv:1505.00853.

    >>> import lucid
    >>> lucid.nn.RReLU(0.1, 0.3).eval()(lucid.tensor([-1.0, 2.0]))
    tensor([-0.2,  2. ])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training,
                       **({"inplace": True} if self.inplace else {}))


class ELU(FunctionModule, function="elu", alpha=1.0, inplace=False):
    """x where x > 0, else alpha (exp(x) - 1) (Clevert et al. 2015, arXiv:1511.07289).

    >>> import lucid
    >>> lucid.nn.ELU()(lucid.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.    ])
    """


class CELU(FunctionModule, function="celu", alpha=1.0, inplace=False):
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1)) (Barron 2017, arXiv:1704.07483).

    >>> import lucid
    >>> lucid.nn.CELU(alpha=2.0)(lucid.tensor([-1.0, 2.0]))
    tensor([-0.7869,  2.    ])
    """


class SELU(FunctionModule, function="selu", inplace=False):
    """Scaled elu, which keeps mean 0 and variance 1 (Klambauer et al. 2017, arXiv:1706.02515).

    >>> import lucid
    >>> lucid.nn.SELU()(lucid.tensor([-1.0, 2.0]))
    tensor([-1.1113,  2.1014])
    """


class GELU(FunctionModule, function="gelu", approximate="none"):
    """x times the normal distribution function of x (Hendrycks and Gimpel 2016, arXiv:1606.08415).

    approximate="tanh" uses their formula with tanh.

    >>> import lucid
    >>> lucid.nn.GELU()(lucid.tensor([-1.0, 2.0]))
    tensor([-0.1587,  1.9545])
    """


class SiLU(FunctionModule, function="silu", inplace=False):
    """x sigmoid(x), also called swish.

    >>> import lucid
    >>> lucid.nn.SiLU()(lucid.tensor([-1.0, 2.0]))
    tensor([-0.2689,  1.7616])
    """


class Mish(FunctionModule, function="mish", inplace=False):
    """x tanh(softplus(x)) (Misra 2019, arXiv:1908.08681).

    >>> import lucid
    >>> lucid.nn.Mish()(lucid.tensor([-1.0, 2.0]))
    tensor([-0.3034,  1.944 ])
    """


class Sigmoid(FunctionModule, function="sigmoid"):
    """1 / (1 + exp(-x)).

    >>> import lucid
    >>> lucid.nn.Sigmoid()(lucid.tensor([0.0, 2.0]))
    tensor([0.5   , 0.8808])
    """


class Tanh(FunctionModule, function="tanh"):
    """The hyperbolic tangent of each element.

    >>> import lucid
    >>> lucid.nn.Tanh()(lucid.tensor([0.0, 1.0]))
    tensor([0.    , 0.7616])
    """


class LogSigmoid(FunctionModule, function="logsigmoid"):
    """log(sigmoid(x)), without overflow.

    >>> import lucid
    >>> lucid.nn.LogSigmoid()(lucid.tensor([-100.0, 0.0]))
    tensor([-100.    ,   -0.6931])
    """


class Softplus(FunctionModule, function="softplus", beta=1.0, threshold=20.0):
    """log(1 + exp(beta x)) / beta; x itself where beta x exceeds the threshold.

    >>> import lucid
    >>> lucid.nn.Softplus()(lucid.tensor([0.0, 100.0]))
    tensor([  0.6931, 100.    ])
    """


class Softsign(FunctionModule, function="softsign"):
    """x / (1 + |x|).

    >>> import lucid
    >>> lucid.nn.Softsign()(lucid.tensor([-1.0, 3.0]))
    tensor([-0.5 ,  0.75])
    """


class Tanhshrink(FunctionModule, function="tanhshrink"):
    """x - tanh(x).

    >>> import lucid
    >>> lucid.nn.Tanhshrink()(lucid.tensor([0.0, 1.0]))
    tensor([0.    , 0.2384])
    """


class Softshrink(FunctionModule, function="softshrink", positional=True, lambd=0.5):
    """x moved towards 0 by lambd, and 0 where |x| <= lambd.

    >>> import lucid
    >>> lucid.nn.Softshrink(0.5)(lucid.tensor([-1.0, 0.3]))
    tensor([-0.5,  0. ])
    """


class Hardshrink(FunctionModule, function="hardshrink", positional=True, lambd=0.5):
    """x where |x| > lambd, else 0.

    >>> import lucid
    >>> lucid.nn.Hardshrink(0.5)(lucid.tensor([-1.0, 0.3]))
    tensor([-1.,  0.])
    """


class Hardtanh(FunctionModule, function="hardtanh", min_val=-1.0, max_val=1.0, inplace=False):
    """x kept in [min_val, max_val].

    >>> import lucid
    >>> lucid.nn.Hardtanh()(lucid.tensor([-2.0, 0.5]))
    tensor([-1. ,  0.5])
    """


class Hardsigmoid(FunctionModule, function="hardsigmoid", inplace=False):
    """min(max(x + 3, 0), 6) / 6.

    >>> import lucid
    >>> lucid.nn.Hardsigmoid()(lucid.tensor([-4.0, 0.0, 4.0]))
    tensor([0. , 0.5, 1. ])
    """


class Hardswish(FunctionModule, function="hardswish", inplace=False):
    """x hardsigmoid(x) (Howard et al. 2019, arXiv:1905.02244).

    >>> import lucid
    >>> lucid.nn.Hardswish()(lucid.tensor([1.0, 4.0]))
    tensor([0.6667, 4.    ])
    """


class Threshold(FunctionModule, function="threshold", threshold=REQUIRED, value=REQUIRED, inplace=False):
    """x where x > threshold, else value.

    >>> import lucid
    >>> lucid.nn.Threshold(0.5, 20.0)(lucid.tensor([0.0, 2.0]))
    tensor([20.,  2.])
    """


class GLU(FunctionModule, function="glu", dim=-1):
    """The first half along `dim` times the sigmoid of the second half.

    Dauphin et al. 2016, arXiv:1612.08083.

    >>> import lucid
    >>> lucid.nn.GLU()(lucid.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([0.5, 1. ])
    """


class Softmax(FunctionModule, function="softmax", dim=None):
    """exp(x) / sum(exp(x)) along `dim`.

    >>> import lucid
    >>> lucid.nn.Softmax(dim=1)(lucid.tensor([[0.0, 0.0]]))
    tensor([[0.5, 0.5]])
    """


class LogSoftmax(FunctionModule, function="log_softmax", dim=None):
    """x - log(sum(exp(x))) along `dim`.

    >>> import lucid
    >>> lucid.nn.LogSoftmax(dim=1)(lucid.tensor([[0.0, 0.0]]))
    tensor([[-0.6931, -0.6931]])
    """


class Softmin(FunctionModule, function="softmin", dim=None):
    """softmax(-x) along `dim`.

    >>> import lucid
    >>> lucid.nn.Softmin(dim=0)(lucid.tensor([0.0, 1.0]))
    tensor([0.7311, 0.2689])
    """


class Softmax2d(Module):
    """Softmax over the channels of [N, C, H, W] or [C, H, W], else ShapeError.

    >>> import lucid
    >>> lucid.nn.Softmax2d()(lucid.zeros(4, 1, 1)).flatten()
    tensor([0.25, 0.25, 0.25, 0.25])
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ShapeError("Softmax2d: expected an input of 3 or 4 dimensions, got shape "
                             f"{tuple(input.shape)}")
        return F.softmax(input, dim=-3)


class PReLU(Module):
    """x where x > 0, else weight x, the weight learned (He et al. 2015, arXiv:1502.01852).

    weight: [num_parameters], one for all channels (dimension 1) or one for each.

    >>> import lucid
    >>> lucid.nn.PReLU()(lucid.tensor([-1.0, 2.0])).tolist()
    [-0.25, 2.0]
    """

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
