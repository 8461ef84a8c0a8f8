"""Initial values of parameters, written in place and not recorded; each function returns its tensor."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

from ..errors import ShapeError
from ..storage.random import Generator, generator_for
from ..tensor import Tensor

# Recommended gains: 5/3 for tanh (Saxe et al. 2014), sqrt(2) for relu (He et al. 2015), 3/4 for selu, which
# keeps self-normalising nets stable.
_GAINS = {"linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0,
          "conv_transpose2d": 1.0, "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0,
          "relu": math.sqrt(2.0), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The recommended gain of a nonlinearity; `param` is leaky_relu's negative slope (0.01).

    Raises ShapeError for a nonlinearity that it does not know.

    >>> import lucid
    >>> round(lucid.nn.init.calculate_gain("leaky_relu", 0.2), 4)
    1.3868
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ShapeError(f"calculate_gain: the negative slope must be a number, got {slope!r}")
        return math.sqrt(2.0 / (1.0 + slope**2))
    if nonlinearity not in _GAINS:
        raise ShapeError(f"calculate_gain: expected leaky_relu or one of {', '.join(_GAINS)}, got "
                         f"{nonlinearity!r}")
    return _GAINS[nonlinearity]


def _fill(t: Tensor, values: Any) -> Tensor:
    storage = t.storage
    with storage.backend.guard():
        storage.array[...] = values
    storage.version += 1
    return t


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """The tensor, filled from the uniform distribution on [a, b).

    >>> import lucid
    >>> x = lucid.nn.init.uniform_(lucid.empty(3), 2.0, 3.0)
    >>> bool(((x >= 2) & (x < 3)).all())
    True
    """
    draw = generator_for(generator, tensor.storage.backend)
    return _fill(tensor, draw.uniform(tensor.shape, a, b, tensor.dtype))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0,
            generator: Generator | None = None) -> Tensor:
    """The tensor, filled from the normal distribution of that mean and standard deviation.

    >>> import lucid
    >>> lucid.nn.init.normal_(lucid.empty(2), mean=5.0, std=0.0)
    tensor([5., 5.])
    """
    draw = generator_for(generator, tensor.storage.backend)
    return _fill(tensor, draw.normal(tensor.shape, mean, std, tensor.dtype))


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
                  generator: Generator | None = None) -> Tensor:
    """The tensor, filled from the normal distribution cut off outside of [a, b].

    Drawn by the inverse of its distribution function.

    >>> import lucid
    >>> x = lucid.nn.init.trunc_normal_(lucid.empty(100), a=-1.0, b=1.0)
    >>> bool((x.abs() <= 1).all())
    True
    """
    backend = tensor.storage.backend
    special = backend.scipy("special")
    low, high = (0.5 * (1.0 + math.erf((v - mean) / (std * math.sqrt(2.0)))) for v in (a, b))
    u = generator_for(generator, backend).uniform(tensor.shape, 2 * low - 1, 2 * high - 1, "float64")
    with backend.guard():
        values = mean + std * math.sqrt(2.0) * special.erfinv(u)
    return _fill(tensor, backend.xp.clip(values, a, b))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """The tensor, filled with `val`.

    >>> import lucid
    >>> lucid.nn.init.constant_(lucid.empty(2), 0.3)
    tensor([0.3, 0.3])
    """
    return _fill(tensor, val)


def ones_(tensor: Tensor) -> Tensor:
    """The tensor, filled with ones.

    >>> import lucid
    >>> lucid.nn.init.ones_(lucid.empty(2))
    tensor([1., 1.])
    """
    return _fill(tensor, 1)


def zeros_(tensor: Tensor) -> Tensor:
    """The tensor, filled with zeros.

    >>> import lucid
    >>> lucid.nn.init.zeros_(lucid.empty(2))
    tensor([0., 0.])
    """
    return _fill(tensor, 0)


def eye_(tensor: Tensor) -> Tensor:
    """The 2-d tensor, filled with the identity. Raises ShapeError for another number of dimensions.

    >>> import lucid
    >>> lucid.nn.init.eye_(lucid.empty(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: expected a 2-d tensor, got shape {tuple(tensor.shape)}")
    return _fill(tensor, tensor.storage.backend.xp.eye(*tensor.shape, dtype=tensor.dtype))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The convolution weight [out, in, k...], under which the first channels of each group pass unchanged.

    Raises ShapeError for other than 3 to 5 dimensions and for groups that do not divide out.

    >>> import lucid
    >>> lucid.nn.init.dirac_(lucid.empty(1, 1, 3))
    tensor([[[0., 1., 0.]]])
    """
    if tensor.ndim not in (3, 4, 5) or tensor.shape[0] % groups:
        raise ShapeError("dirac_: expected a weight of 3 to 5 dimensions whose first size is a multiple of "
                         f"groups={groups}, got shape {tuple(tensor.shape)}")
    values = tensor.storage.backend.xp.zeros(tensor.shape, dtype=tensor.dtype)
    per = tensor.shape[0] // groups
    centre = tuple(n // 2 for n in tensor.shape[2:])
    for group in range(groups):
        for channel in range(min(per, tensor.shape[1])):
            values[(group * per + channel, channel, *centre)] = 1
    return _fill(tensor, values)


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ShapeError("init: fan in and fan out need a weight of at least 2 dimensions, got shape "
                         f"{tuple(tensor.shape)}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """The weight, uniform in +-gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010).

    >>> import lucid
    >>> x = lucid.nn.init.xavier_uniform_(lucid.empty(3, 3))    # bound sqrt(6 / 6)
    >>> bool((x.abs() <= 1).all())
    True
    """
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """The weight, normal with deviation gain sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio 2010).

    >>> import lucid
    >>> lucid.nn.init.xavier_normal_(lucid.empty(3, 5)).shape
    (3, 5)
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ShapeError(f"kaiming: mode must be 'fan_in' or 'fan_out', got {mode!r}")
    fan = _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                     generator: Generator | None = None) -> Tensor:
    """The weight, uniform in +-gain sqrt(3 / fan) (He et al. 2015); `a` is leaky_relu's slope.

    >>> import lucid
    >>> x = lucid.nn.init.kaiming_uniform_(lucid.empty(2, 6))    # bound sqrt(2) sqrt(3 / 6)
    >>> bool((x.abs() <= 1).all())
    True
    """
    if 0 in tensor.shape:
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                    generator: Generator | None = None) -> Tensor:
    """The weight, normal with deviation gain / sqrt(fan) (He et al. 2015); `a` is leaky_relu's slope.

    >>> import lucid
    >>> lucid.nn.init.kaiming_normal_(lucid.empty(3, 5), mode="fan_out").shape
    (3, 5)
    """
    if 0 in tensor.shape:
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """The weight [rows, ...], a (semi-)orthogonal matrix [rows, rest] times `gain` (Saxe et al. 2014).

    >>> import lucid
    >>> q = lucid.nn.init.orthogonal_(lucid.empty(3, 3))
    >>> lucid.allclose(q @ q.T, lucid.eye(3), atol=1e-5)
    True
    """
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_: expected at least 2 dimensions, got shape {tuple(tensor.shape)}")
    if not tensor.numel():
        return tensor
    backend = tensor.storage.backend
    rows = tensor.shape[0]
    flat = generator_for(generator, backend).normal((rows, tensor.numel() // rows), dtype="float64")
    with backend.guard():
        q, r = backend.xp.linalg.qr(flat.T if rows < flat.shape[1] else flat)
        # The signs of R's diagonal make Q uniformly distributed (Mezzadri 2007, section 5).
        q = q * backend.xp.sign(backend.xp.diag(r))
        q = q.T if rows < flat.shape[1] else q
        return _fill(tensor, gain * q.reshape(tensor.shape))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """The 2-d weight, normal, with a share `sparsity` of zeros in each column (Martens 2010).

    >>> import lucid
    >>> x = lucid.nn.init.sparse_(lucid.empty(10, 2), sparsity=0.5)
    >>> (x == 0).sum(0)
    tensor([5, 5])
    """
    if tensor.ndim != 2:
        raise ShapeError(f"sparse_: expected a 2-d tensor, got shape {tuple(tensor.shape)}")
    draw = generator_for(generator, tensor.storage.backend)
    normal_(tensor, 0.0, std, generator)
    rows, cols = tensor.shape
    with tensor.storage.backend.guard():
        for j in range(cols):
            tensor.storage.array[draw.permutation(rows)[: math.ceil(sparsity * rows)], j] = 0
    return tensor


def _deprecated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    # PyTorch's old name: without the underscore that stands for "in place".
    new = function.__name__
    old = new[:-1]

    @functools.wraps(function)
    def warned(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning,
                      stacklevel=2)
        return function(*args, **kwargs)

    warned.__name__ = warned.__qualname__ = old
    warned.__doc__ = f"`{new}` under its old name, with a FutureWarning."
    return warned


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)
