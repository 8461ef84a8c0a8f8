"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..errors import ShapeError
from ..tensor import Tensor, tensor
from . import functional as F
from . import init
from ._make import empty_parameter, ones, zeros
from .lazy import LazyModuleMixin
from .module import Module
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy


class _NormBase(Module):
    """What batch and instance norm share: scale and shift per channel, and running statistics."""

    dims: ClassVar[tuple[int, ...]]
    _version = 2

    def _complete_state(self, state_dict: dict[str, Any], prefix: str, version: int | None) -> None:
        # States from before version 2, and those of other programs, do not count batches.
        key = f"{prefix}num_batches_tracked"
        if (version is None or version < 2) and self.num_batches_tracked is not None:
            state_dict.setdefault(key, self.num_batches_tracked.detach())

    def __init__(self, num_features: int, eps: float, momentum: float | None, affine: bool,
                 track_running_stats: bool, device: Any, dtype: Any, bias: bool) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.register_parameter("weight", empty_parameter((num_features,), device, dtype) if affine else None)
        self.register_parameter("bias", empty_parameter((num_features,), device, dtype) if affine and bias
                                else None)
        self.register_buffer("running_mean",
                             zeros((num_features,), device, dtype) if track_running_stats else None)
        self.register_buffer("running_var", ones((num_features,), device, dtype) if track_running_stats
                             else None)
        self.register_buffer("num_batches_tracked", tensor(0, device=device) if track_running_stats else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Nothing; sets mean 0, variance 1 and no batches seen."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Nothing; sets weight 1, bias 0 and the running statistics to their start."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check(self, input: Tensor) -> None:
        if input.ndim not in self.dims:
            raise ShapeError(f"{type(self).__name__}: expected an input of "
                             f"{' or '.join(map(str, self.dims))} dimensions, got shape "
                             f"{tuple(input.shape)}")

    def extra_repr(self) -> str:
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
                f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}")


class _BatchNorm(_NormBase):
    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True, device: Any = None, dtype: Any = None,
                 *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def _check(self, input: Tensor) -> None:
        super()._check(input)
        if self.affine and input.shape[1] != self.num_features:
            raise ShapeError(f"{type(self).__name__}: expected {self.num_features} channels (dimension 1), "
                             f"got shape {tuple(input.shape)}")

    def _count(self) -> float:
        """The share of this batch in the running statistics; in training, counts it."""
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            counter = self.num_batches_tracked.storage
            with counter.backend.guard():
                counter.array += 1
            counter.version += 1
            if self.momentum is None:
                # The cumulative average (reads the counter back from the device).
                momentum = 1.0 / float(counter.array)
        return momentum

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        momentum = self._count()
        from_batch = self.training or (self.running_mean is None and self.running_var is None)
        tracked = not self.training or self.track_running_stats
        return F.batch_norm(input, self.running_mean if tracked else None,
                            self.running_var if tracked else None, self.weight, self.bias, from_batch,
                            momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Batch norm of [N, C] or [N, C, L] (Ioffe and Szegedy 2015, arXiv:1502.03167).

    (x - mean) / sqrt(var + eps) * weight + bias per channel. Training uses the batch's statistics and moves
    running_mean and running_var by `momentum` (None: the cumulative average); evaluation uses the running
    ones. Raises ShapeError for another number of dimensions or channels.

    >>> import lucid
    >>> lucid.nn.BatchNorm1d(1, affine=False)(lucid.tensor([[1.0], [3.0]]))
    tensor([[-1.],
            [ 1.]])
    """

    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of [N, C, H, W]; see BatchNorm1d.

    >>> import lucid
    >>> lucid.nn.BatchNorm2d(3)(lucid.ones(2, 3, 4, 4)).abs().max().item()
    0.0
    """

    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch norm of [N, C, D, H, W]; see BatchNorm1d.

    >>> import lucid
    >>> lucid.nn.BatchNorm3d(3)(lucid.ones(2, 3, 4, 4, 4)).shape
    (2, 3, 4, 4, 4)
    """

    dims = (5,)


class _InstanceNorm(_NormBase):
    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
                 track_running_stats: bool = False, device: Any = None, dtype: Any = None, *,
                 bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        single = input.ndim == self.dims[0]
        x = input.unsqueeze(0) if single else input
        if self.affine and x.shape[1] != self.num_features:
            raise ShapeError(f"{type(self).__name__}: expected {self.num_features} channels, got shape "
                             f"{tuple(input.shape)}")
        out = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                              self.training or not self.track_running_stats,
                              0.0 if self.momentum is None else self.momentum, self.eps)
        return out.squeeze(0) if single else out


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each sample normalised: [N, C, L] or [C, L] (Ulyanov et al. 2016, arXiv:1607.08022).

    track_running_stats: evaluation uses running statistics, as batch norm does. Raises ShapeError for another
    number of dimensions.

    >>> import lucid
    >>> lucid.nn.InstanceNorm1d(2)(lucid.tensor([[[1.0, 3.0], [0.0, 10.0]]]))
    tensor([[[-1.,  1.],
             [-1.,  1.]]])
    """

    dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each sample normalised: [N, C, H, W] or [C, H, W]; see InstanceNorm1d.

    >>> import lucid
    >>> lucid.nn.InstanceNorm2d(3)(lucid.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each sample normalised: [N, C, D, H, W] or [C, D, H, W]; see InstanceNorm1d.

    >>> import lucid
    >>> lucid.nn.InstanceNorm3d(3)(lucid.ones(2, 3, 4, 4, 4)).shape
    (2, 3, 4, 4, 4)
    """

    dims = (4, 5)


class LayerNorm(Module):
    """The input normalised over its last dimensions, which must be `normalized_shape`.

    (x - mean) / sqrt(var + eps) * weight + bias; Ba et al. 2016, arXiv:1607.06450. Raises ShapeError for
    other last dimensions.

    >>> import lucid
    >>> norm = lucid.nn.LayerNorm(2, elementwise_affine=False)
    >>> norm(lucid.tensor([[-1.0, 1.0]])).round(decimals=3).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
                 elementwise_affine: bool = True, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape,
                                                                  int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        shape = self.normalized_shape
        self.register_parameter("weight", empty_parameter(shape, device, dtype) if elementwise_affine
                                else None)
        self.register_parameter("bias", empty_parameter(shape, device, dtype) if elementwise_affine and bias
                                else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Nothing; sets weight 1 and bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
                f"bias={self.bias is not None}")


class RMSNorm(Module):
    """The input divided by its root mean square over the last dimensions, times weight.

    Zhang and Sennrich 2019, arXiv:1910.07467. Those dimensions must be `normalized_shape`, else ShapeError.

    >>> import lucid
    >>> lucid.nn.RMSNorm(2, elementwise_affine=False)(lucid.tensor([3.0, 4.0]))
    tensor([0.8485, 1.1314])
    """

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None = None,
                 elementwise_affine: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape,
                                                                  int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter("weight", empty_parameter(self.normalized_shape, device, dtype)
                                if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Nothing; sets weight 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """The input [N, C, ...] normalised per group of channels, with a scale and shift per channel.

    Wu and He 2018, arXiv:1803.08494. Raises ShapeError for channels that are no multiple of num_groups.

    >>> import lucid
    >>> lucid.nn.GroupNorm(2, 4, affine=False)(lucid.tensor([[1.0, 3.0, 0.0, 10.0]]))
    tensor([[-1.,  1., -1.,  1.]])
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
                 device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ShapeError(f"GroupNorm: num_channels={num_channels} must be a multiple of "
                             f"num_groups={num_groups}")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.register_parameter("weight", empty_parameter((num_channels,), device, dtype) if affine else None)
        self.register_parameter("bias", empty_parameter((num_channels,), device, dtype) if affine and bias
                                else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Nothing; sets weight 1 and bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
                f"bias={self.bias is not None}")


class LocalResponseNorm(Module):
    """The input divided by (k + alpha mean of squares over `size` channels)^beta (Krizhevsky et al. 2012).

    input: [N, C, d1, ...], else ShapeError.

    >>> import lucid
    >>> lucid.nn.LocalResponseNorm(2)(lucid.ones(1, 4, 3)).shape
    (1, 4, 3)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """LocalResponseNorm under the name that it had in Torch: the same for an odd `size`.

    For an even one it sums over size - 1 channels, and divides by size as ever. (PyTorch's module of this
    name never takes the first channel out of its running sum; this one does what its documentation says.)

    >>> import lucid
    >>> lucid.nn.CrossMapLRN2d(3)(lucid.ones(1, 4, 2, 2)).shape
    (1, 4, 2, 2)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        summed = self.size - 1 + self.size % 2
        return F.local_response_norm(input, summed, self.alpha * summed / self.size, self.beta, self.k)


class _LazyBatchNorm(LazyModuleMixin):
    """Takes `num_features` from the first input."""

    def __init__(self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: Any = None, *,
                 bias: bool = True) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
        if affine and bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = tensor(0, device=device)

    def initialize_parameters(self: Any, input: Tensor) -> None:
        """Nothing; gives parameters and running statistics their shapes."""
        self.num_features = input.shape[1]
        fresh = [t for t in (self.weight, self.bias, self.running_mean, self.running_var) if is_lazy(t)]
        for t in fresh:
            t.materialize((self.num_features,))
        if fresh:
            self.reset_parameters()


class LazyBatchNorm1d(_LazyBatchNorm, BatchNorm1d):
    """A BatchNorm1d that takes `num_features` from its first input.

    >>> import lucid
    >>> lucid.nn.LazyBatchNorm1d()(lucid.ones(2, 3)).shape
    (2, 3)
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyBatchNorm, BatchNorm2d):
    """A BatchNorm2d that takes `num_features` from its first input.

    >>> import lucid
    >>> norm = lucid.nn.LazyBatchNorm2d()
    >>> norm(lucid.ones(2, 3, 4, 4)).shape, norm.num_features
    ((2, 3, 4, 4), 3)
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyBatchNorm, BatchNorm3d):
    """A BatchNorm3d that takes `num_features` from its first input.

    >>> import lucid
    >>> lucid.nn.LazyBatchNorm3d()(lucid.ones(2, 3, 4, 4, 4)).shape
    (2, 3, 4, 4, 4)
    """

    cls_to_become = BatchNorm3d


class _LazyInstanceNorm(_LazyBatchNorm):
    """Takes `num_features` from the first input."""

    def __init__(self, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: Any = None, *,
                 bias: bool = True) -> None:
        super().__init__(eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def initialize_parameters(self: Any, input: Tensor) -> None:
        """Nothing; gives parameters and running statistics their shapes."""
        super().initialize_parameters(input if input.ndim == self.dims[1] else input.unsqueeze(0))


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """An InstanceNorm1d that takes `num_features` from its first input.

    >>> import lucid
    >>> lucid.nn.LazyInstanceNorm1d()(lucid.ones(2, 3, 4)).shape
    (2, 3, 4)
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """An InstanceNorm2d that takes `num_features` from its first input.

    >>> import lucid
    >>> lucid.nn.LazyInstanceNorm2d()(lucid.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """An InstanceNorm3d that takes `num_features` from its first input.

    >>> import lucid
    >>> lucid.nn.LazyInstanceNorm3d()(lucid.ones(2, 3, 4, 4, 4)).shape
    (2, 3, 4, 4, 4)
    """

    cls_to_become = InstanceNorm3d
