"""Batch norm over the batches of all processes of a group."""

from __future__ import annotations

import sys
from typing import Any

from ..autograd.function import Function
from ..tensor import Tensor, _wrap
from .module import Module
from .norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm


class _Sum(Function):
    """The sum over all ranks; its gradient is the sum of all ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        from .. import distributed as dist

        ctx.group = group
        out = x.detach().clone()
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return _Sum.apply(g, ctx.group), None


class SyncBatchNorm(_BatchNorm):
    """Batch norm in which mean and variance are those of the batches of all processes together, in training.

    In any number of dimensions: [N, C, ...]. Without a process group, or with one of a single process, and in
    evaluation it is BatchNorm. process_group: the world when None.

    >>> from lucid import nn
    >>> nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))[1]
    SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    dims = (2, 3, 4, 5)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True, process_group: Any = None,
                 device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:
        dist = sys.modules.get("lucid.distributed")  # who has not imported it has no process group
        alone = dist is None or not dist.is_initialized() or dist.get_world_size(self.process_group) < 2
        if alone or not self.training:
            return super().forward(input)
        self._check(input)
        momentum = self._count()
        x = input.float() if input.dtype.itemsize < 4 else input
        axes, shape = [d for d in range(x.ndim) if d != 1], [1, -1, *[1] * (x.ndim - 2)]
        # Means are those of all elements of all ranks, however many each has.
        own = x.sum(axes)
        count = _wrap(own.backend.xp.full(1, x.numel() // x.shape[1], own.dtype), own.backend)
        dist.all_reduce(count, group=self.process_group)  # type: ignore[union-attr]
        mean = _Sum.apply(own, self.process_group) / count
        centred = x - mean.reshape(shape)
        var = _Sum.apply((centred * centred).sum(axes), self.process_group) / count
        out = centred * (var + self.eps).rsqrt().reshape(shape)
        if self.weight is not None:
            out = out * self.weight.reshape(shape)
        if self.bias is not None:
            out = out + self.bias.reshape(shape)
        if self.track_running_stats and self.running_mean is not None:
            unbiased = var.array * count.array / (count.array - 1)
            for running, new in ((self.running_mean, mean.array), (self.running_var, unbiased)):
                running.array[...] += momentum * (new - running.array).astype(running.dtype)
                running.storage.version += 1
        return out.to(dtype=input.dtype)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with every BatchNorm in it (itself, if it is one) as a SyncBatchNorm of the same
        parameters and buffers.
        """
        made = module
        if isinstance(module, (BatchNorm1d, BatchNorm2d, BatchNorm3d)):
            made = cls.__new__(cls)
            made.__dict__.update(module.__dict__)
            made.process_group = process_group
        for name, child in list(module._modules.items()):
            if child is not None:
                made._modules[name] = cls.convert_sync_batchnorm(child, process_group)
        return made
