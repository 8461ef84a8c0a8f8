"""Softmax, normalisation and distances under PyTorch's names, argument orders and defaults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..autograd.out import written
from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..ops.common import named
from ..ops.reduce import wide
from ..storage.dtype import as_dtype, float64, is_floating
from ..storage.random import default_generator
from ..tensor import Tensor, _wrap
from .registry import on_its_device, public

# ---- softmax ----


def _floating(name: str, input: Tensor, dtype: Any) -> Tensor:
    if dtype is not None:
        return F.cast(input, as_dtype(dtype))
    if not is_floating(input.dtype):
        raise DtypeError(f"{name}: expected a floating tensor, got {input.dtype.name} of shape "
                         f"{tuple(input.shape)}; convert it with .float() or pass dtype=lucid.float32")
    return input


def _last_resort(ndim: int) -> int:
    # PyTorch's (deprecated) choice where no dim is given.
    return 0 if ndim in (0, 1, 3) else 1


@public("softmax", "special.softmax", method="softmax")
def softmax_(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`; with `dtype`, the input is converted first.

    input: floating, any shape; the result has its shape. Raises DtypeError for integers without `dtype`,
    IndexRangeError for a dim out of range. A row of -inf alone gives nan.

    >>> import lucid
    >>> lucid.softmax(lucid.tensor([0.0, 0.0]), 0).tolist()
    [0.5, 0.5]
    """
    return F.softmax(_floating("softmax", input, dtype), dim)


@public("log_softmax", "special.log_softmax", method="log_softmax")
def log_softmax_(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """x - log(sum(exp(x))) along `dim`, without overflow; with `dtype`, the input is converted first.

    Shapes and errors as of `softmax`.

    >>> import lucid
    >>> lucid.log_softmax(lucid.tensor([0.0, 0.0]), 0)
    tensor([-0.6931, -0.6931])
    """
    return F.log_softmax(_floating("log_softmax", input, dtype), dim)


@public("nn.functional.softmax")
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`; see `lucid.softmax`.

    dim None: 0 for 0, 1 and 3 dimensions, else 1, PyTorch's old choice.

    >>> import lucid
    >>> lucid.nn.functional.softmax(lucid.tensor([[0.0, 0.0]]), dim=1)
    tensor([[0.5, 0.5]])
    """
    return softmax_(input, _last_resort(input.ndim) if dim is None else dim, dtype)


@public("nn.functional.log_softmax")
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """x - log(sum(exp(x))) along `dim`; see `lucid.log_softmax`. dim None: as in `softmax`.

    >>> import lucid
    >>> lucid.nn.functional.log_softmax(lucid.tensor([[0.0, 0.0]]), dim=1)
    tensor([[-0.6931, -0.6931]])
    """
    return log_softmax_(input, _last_resort(input.ndim) if dim is None else dim, dtype)


@public("nn.functional.softmin")
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-x) along `dim`; see `softmax`.

    >>> import lucid
    >>> lucid.nn.functional.softmin(lucid.tensor([0.0, 1.0]), dim=0)
    tensor([0.7311, 0.2689])
    """
    return softmax_(-input, _last_resort(input.ndim) if dim is None else dim, dtype)


@public("nn.functional.gumbel_softmax")
@on_its_device
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10,
                   dim: int = -1) -> Tensor:
    """A sample of the relaxed categorical distribution (Jang et al. 2017, arXiv:1611.01144).

    softmax((logits + Gumbel noise) / tau); with `hard`, the one-hot vector of its largest entry, whose
    gradient is the soft sample's. logits: floating, any shape; the result has its shape.

    >>> import lucid
    >>> lucid.nn.functional.gumbel_softmax(lucid.tensor([0.0, 1000.0]), hard=True)
    tensor([0., 1.])
    """
    backend = logits.storage.backend
    noise = default_generator(backend).exponential(logits.shape, dtype=logits.dtype)
    noise = backend.xp.negative(backend.xp.log(noise))
    soft = F.softmax((logits + _wrap(noise, backend)) / tau, dim)
    if not hard:
        return soft
    array = soft.storage.array
    if not array.ndim:
        return soft
    if not array.shape[dim]:
        raise ShapeError(f"gumbel_softmax: expected at least one element along dim {dim}, got {array.shape}")
    top = array.argmax(dim)
    shape = [1] * array.ndim
    shape[dim] = -1
    one = backend.xp.arange(array.shape[dim]).reshape(shape) == backend.xp.expand_dims(top, dim)
    return _wrap(one.astype(array.dtype), backend) - soft.detach() + soft


# ---- norms of layers ----


def _sizes(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


@public("nn.functional.layer_norm", "layer_norm")
def layer_norm(input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None,
               bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions.

    Ba et al. 2016, arXiv:1607.06450. input: floating, [..., *normalized_shape]; weight, bias:
    normalized_shape or None. Returns the input's shape. Raises ShapeError or DtypeError for others.

    >>> import lucid
    >>> lucid.layer_norm(lucid.tensor([[1.0, 3.0], [0.0, 10.0]]), (2,))
    tensor([[-1.,  1.],
            [-1.,  1.]])
    """
    return F.layer_norm(input, _sizes(normalized_shape), weight, bias, eps)[0]


@public("nn.functional.rms_norm", "rms_norm")
def rms_norm(input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None,
             eps: float | None = None) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions.

    Zhang and Sennrich 2019, arXiv:1910.07467. input: floating, [..., *normalized_shape]; weight:
    normalized_shape or None. eps None is the spacing of numbers at 1 in the dtype computed in, float32 for
    16 bits. Raises ShapeError or DtypeError for others.

    >>> import lucid
    >>> lucid.rms_norm(lucid.tensor([3.0, 4.0]), (2,))
    tensor([0.8485, 1.1314])
    """
    if eps is None:
        eps = 2.0**-52 if input.dtype == float64 else 2.0**-23
    return F.rms_norm(input, _sizes(normalized_shape), weight, eps)[0]


@public("nn.functional.group_norm", "group_norm")
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
               eps: float = 1e-5) -> Tensor:
    """The input normalised per group of channels, then scaled and shifted per channel.

    Wu and He 2018, arXiv:1803.08494. input: floating, [N, C, ...] with C divisible by num_groups; weight,
    bias: [C] or None. Raises ShapeError or DtypeError for others.

    >>> import lucid
    >>> lucid.group_norm(lucid.tensor([[1.0, 3.0, 0.0, 10.0]]), 2)
    tensor([[-1.,  1., -1.,  1.]])
    """
    if input.ndim > 1 and input.array.size == num_groups and num_groups > 0 and input.shape[0] == 1:
        raise ShapeError("group_norm: needs more than one value per group, got an input of shape "
                         f"{input.shape} and num_groups={num_groups}, whose output would be the bias")
    return F.group_norm(input, num_groups, weight, bias, eps)


@public("nn.functional.batch_norm")
def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
               weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
               momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """The input normalised per channel, by the batch's statistics when `training`, else the running ones.

    Ioffe and Szegedy 2015, arXiv:1502.03167. input: [N, C, ...]; all others [C] or None, else ShapeError. In
    training the running statistics become (1 - momentum) * running + momentum * (batch mean, unbiased batch
    variance), in place.

    >>> import lucid
    >>> lucid.nn.functional.batch_norm(lucid.tensor([[1.0], [3.0]]), None, None, training=True)
    tensor([[-1.],
            [ 1.]])
    """
    if input.shape == (0,):
        return F.clone(input)
    if not training:
        if running_mean is None or running_var is None:
            raise ShapeError("batch_norm: training=False needs running_mean and running_var; pass them, or "
                             "training=True")
        return F.batch_norm_eval(input, running_mean, running_var, weight, bias, eps)
    if input.ndim >= 2 and math.prod(input.shape) == input.shape[1]:
        raise ShapeError("batch_norm: training needs more than one value per channel, got an input of shape "
                         f"{tuple(input.shape)}; use a larger batch or .eval()")
    if not math.prod(input.shape):
        # No values, no statistics: nothing is normalised and the running statistics stay.
        backend = input.storage.backend
        unit = _wrap(backend.xp.ones(input.shape[1:2], dtype=input.dtype), backend)
        return F.batch_norm_eval(input, unit, unit, weight, bias, eps)
    out, mean, var = F.batch_norm(input, weight, bias, eps)
    _update(input, running_mean, running_var, mean.storage.array, var.storage.array, momentum,
            math.prod(input.shape) // input.shape[1])
    return out


def _update(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, mean: Any, var: Any,
            momentum: float, n: int) -> None:
    for what, running, value in (("running_mean", running_mean, mean), ("running_var", running_var, var)):
        if running is None:
            continue
        storage = running.storage
        if storage.array.shape != value.shape:
            raise ShapeError(f"batch_norm: {what} must have one value for each of the {input.shape[1]} "
                             f"channels, got shape {tuple(storage.array.shape)}")
        with storage.backend.guard():
            storage.array *= 1.0 - momentum
            storage.array += (value * (momentum * n / (n - 1) if running is running_var
                                       else momentum)).astype(storage.array.dtype)
        storage.version += 1


@public("nn.functional.instance_norm", "instance_norm")
def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
                  weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Each channel of each sample normalised by its own mean and variance.

    Ulyanov et al. 2016, arXiv:1607.08022. input: [N, C, d1, ...]; all others [C] or None, else ShapeError.
    Without `use_input_stats` the running ones are used; with them they are moved towards their mean over the
    batch.

    >>> import lucid
    >>> lucid.instance_norm(lucid.tensor([[[1.0, 3.0], [0.0, 10.0]]]))
    tensor([[[-1.,  1.],
             [-1.,  1.]]])
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    n = math.prod(input.shape[2:])
    if input.ndim > 2 and n == 1:
        raise ShapeError("instance_norm: needs more than one value per channel of a sample, got an input of "
                         f"shape {tuple(input.shape)}")
    out = F.instance_norm(input, weight, bias, eps)
    if (running_mean is not None or running_var is not None) and input.numel():
        axes = tuple(range(2, input.ndim))
        with input.backend.guard():
            x = wide(input.storage.array)  # CuPy's var of float16 is summed in float16
            mean, var = x.mean(axes).mean(0), x.var(axes).mean(0)
        _update(input, running_mean, running_var, mean, var, momentum, n)
    return out


@public("nn.functional.local_response_norm")
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75,
                        k: float = 1.0) -> Tensor:
    """x / (k + alpha / size * sum of x^2 over `size` channels)^beta (Krizhevsky et al. 2012, section 3.3).

    input: [N, C, d1, ...], else ShapeError.

    >>> import lucid
    >>> lucid.nn.functional.local_response_norm(lucid.ones(1, 4, 1), size=2, alpha=1.0).flatten()
    tensor([0.7378, 0.5946, 0.5946, 0.5946])
    """
    if input.ndim < 3:
        raise ShapeError("local_response_norm: expected an input of shape [N, C, d1, ...], got "
                         f"{tuple(input.shape)}")
    if size < 1:
        raise ShapeError(f"local_response_norm: size must be at least 1, got {size}")
    total = F.channel_window_sum(input * input, size // 2, (size - 1) // 2)
    return input / (total * (alpha / size) + k) ** beta


# ---- distances ----


def vector_norm(x: Tensor, p: float, dim: Any, keepdim: bool = False) -> Tensor:
    """(sum |x|^p)^(1/p) along `dim`, with derivative 0 at a zero vector; p may be 0 (non-zeros) or +-inf."""
    if p == math.inf:
        return F.amax(F.abs(x), dim=dim, keepdim=keepdim)
    if p == -math.inf:
        return F.amin(F.abs(x), dim=dim, keepdim=keepdim)
    if p == 0:
        return F.sum(F.abs(F.sgn(x)), dim=dim, keepdim=keepdim)
    if p == 1:
        return F.sum(F.abs(x), dim=dim, keepdim=keepdim)
    total = F.sum(x * F.conj(x) if p == 2 else F.abs(x) ** p, dim=dim, keepdim=keepdim)
    total = F.real(total) if x.dtype.kind == "c" else total
    zero = F.eq(total, 0)
    # Both wheres are needed: the outer one alone would give 0 * inf in the derivative.
    safe = F.where(zero, 1, total)
    return F.where(zero, 0, F.sqrt(safe) if p == 2 else safe ** (1.0 / p))


@public("nn.functional.normalize")
@named("normalize")
def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12,
              out: Tensor | None = None) -> Tensor:
    """x / max(p-norm of x along `dim`, eps): vectors of length 1 along `dim`, and 0 stays 0.

    >>> import lucid
    >>> lucid.nn.functional.normalize(lucid.tensor([[3.0, 4.0]]))
    tensor([[0.6, 0.8]])
    """
    if out is not None:
        return written("normalize", out, normalize, (input, p, dim, eps), {})
    norm = vector_norm(input, p, dim, keepdim=True)
    return input / F.where(F.lt(norm, eps), eps, norm)


def _broadcast_shape(name: str, x1: Tensor, x2: Tensor) -> tuple[int, ...]:
    n = max(x1.ndim, x2.ndim)
    a, b = ((1,) * (n - x.ndim) + tuple(x.shape) for x in (x1, x2))
    if any(i != j and 1 not in (i, j) for i, j in zip(a, b, strict=True)):
        raise ShapeError(f"{name}: shapes {tuple(x1.shape)} and {tuple(x2.shape)} do not broadcast together")
    return tuple(j if i == 1 else i for i, j in zip(a, b, strict=True))


@public("nn.functional.cosine_similarity", "cosine_similarity")
@named("cosine_similarity")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along `dim`; the inputs broadcast together, else ShapeError.

    As in PyTorch, the bound counts for the value alone: below it the gradient is that of the plain norm.

    >>> import lucid
    >>> lucid.cosine_similarity(lucid.tensor([1.0, 0.0]), lucid.tensor([3.0, 4.0]), dim=0)
    tensor(0.6)
    """
    shape = _broadcast_shape("cosine_similarity", x1, x2)
    unit = []
    for x in (x1, x2):
        x = x if x.shape == shape else F.expand(x, shape)
        norm = vector_norm(x, 2, dim, keepdim=True)
        value = norm.detach()
        unit.append(x / (norm + (F.where(F.lt(value, eps), eps, value) - value)))
    return F.sum(unit[0] * unit[1], dim=dim)


@public("nn.functional.pairwise_distance", "pairwise_distance")
@named("pairwise_distance")
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6,
                      keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension.

    x1, x2: [..., d], which broadcast together, else ShapeError. Returns [...], or [..., 1] with keepdim.

    >>> import lucid
    >>> lucid.pairwise_distance(lucid.tensor([[0.0, 0.0]]), lucid.tensor([[3.0, 4.0]]))
    tensor([5.])
    """
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)
