"""Normalisation folded into the layer before it, for inference."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import numpy as np

from ...errors import LucidError
from ...random import fork_rng
from ...tensor import Parameter, Tensor, _wrap
from ..module import Module

M = TypeVar("M", bound=Module)


def fuse_conv_bn_weights(conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
                         bn_w: Tensor | None, bn_b: Tensor | None,
                         transpose: bool = False) -> tuple[Parameter, Parameter]:
    """(weight, bias) of the convolution that does what a convolution and a batch norm in eval mode do.

    >>> import lucid
    >>> from lucid import nn
    >>> conv, norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
    >>> parts = norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    >>> weight, bias = nn.utils.fuse_conv_bn_weights(conv.weight, conv.bias, *parts)
    >>> weight.shape, bias.shape
    ((2, 1, 3, 3), (2,))
    """
    xp = conv_w.backend.xp
    scale = 1.0 / xp.sqrt(bn_rv.array + bn_eps)
    scale = scale if bn_w is None else scale * bn_w.array
    shape = (1, -1) if transpose else (-1, 1)
    w = conv_w.array * scale.reshape(*shape, *(1,) * (conv_w.ndim - 2))
    b = ((0.0 if conv_b is None else conv_b.array) - bn_rm.array) * scale
    b = b if bn_b is None else b + bn_b.array
    w, b = (a.astype(conv_w.dtype, copy=False) for a in (w, b))
    return (Parameter(_wrap(w, conv_w.backend), conv_w.requires_grad),
            Parameter(_wrap(b, conv_w.backend), conv_w.requires_grad))


def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor,
                           bn_eps: float, bn_w: Tensor, bn_b: Tensor) -> tuple[Parameter, Parameter]:
    """(weight, bias) of the linear layer that does what a linear layer and a batch norm in eval mode do.

    >>> import lucid
    >>> from lucid import nn
    >>> layer, norm = nn.Linear(3, 2), nn.BatchNorm1d(2)
    >>> weight, bias = nn.utils.fuse_linear_bn_weights(layer.weight, layer.bias, norm.running_mean,
    ...                                                norm.running_var, norm.eps, norm.weight, norm.bias)
    >>> weight.shape, bias.shape
    ((2, 3), (2,))
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_conv_bn_eval(conv: M, bn: Any, transpose: bool = False) -> M:
    """A copy of the convolution with the batch norm folded in. Both must be in eval mode.

    >>> import lucid
    >>> from lucid import nn
    >>> conv, norm = nn.Conv2d(1, 2, 3).eval(), nn.BatchNorm2d(2).eval()
    >>> x, fused = lucid.ones(1, 1, 4, 4), nn.utils.fuse_conv_bn_eval(conv, norm)
    >>> bool((fused(x) - norm(conv(x))).abs().max() < 1e-5)
    True
    """
    if conv.training or bn.training:
        raise LucidError("fuse_conv_bn_eval: both modules must be in eval mode; call .eval()")
    if bn.running_mean is None or bn.running_var is None:
        raise LucidError("fuse_conv_bn_eval: the batch norm tracks no running statistics")
    fused: Any = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var,
                                                    bn.eps, bn.weight, bn.bias, transpose)
    return fused


def fuse_linear_bn_eval(linear: M, bn: Any) -> M:
    """A copy of the linear layer with the batch norm folded in. Both must be in eval mode.

    >>> import lucid
    >>> from lucid import nn
    >>> layer, norm = nn.Linear(3, 2).eval(), nn.BatchNorm1d(2).eval()
    >>> x, fused = lucid.ones(4, 3), nn.utils.fuse_linear_bn_eval(layer, norm)
    >>> bool((fused(x) - norm(layer(x))).abs().max() < 1e-5)
    True
    """
    if np.prod(bn.running_mean.shape) not in (1, linear.out_features):
        raise LucidError(f"fuse_linear_bn_eval: the batch norm has {bn.num_features} features, the layer "
                         f"{linear.out_features}")
    return fuse_conv_bn_eval(linear, bn)


def skip_init(module_cls: type[M], *args: Any, **kwargs: Any) -> M:
    """A module of that class, to be given its values by the caller (load_state_dict, ...).

    PyTorch makes it without drawing initial values. Here they are drawn, and the random state is put back.

    >>> from lucid import nn
    >>> nn.utils.skip_init(nn.Linear, 3, 2)
    Linear(in_features=3, out_features=2, bias=True)
    """
    with fork_rng():
        return module_cls(*args, **kwargs)
