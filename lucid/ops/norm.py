"""Normalisations. Each returns its statistics too, which accelerated gradients use.

The generic formulas compute mean and variance anew from the saved input: the statistics depend on it, so a
formula that took them as constants would have wrong second derivatives.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np  # for the CPU paths alone

from ..errors import ShapeError
from .common import is_low
from .pointwise import wide
from .registry import A, Sample, composite, op
from .softmax import cast_like, require_floating, row_blocks

Shape = tuple[int, ...]


def _check_last(name: str, x: Any, normalized_shape: Shape, weight: Any, bias: Any) -> tuple[int, ...]:
    # The normalised axes, counted from the end.
    require_floating(name, x)
    k = len(normalized_shape)
    if k == 0 or x.shape[-k:] != normalized_shape:
        raise ShapeError(f"{name}: the last dimensions of the input must be "
                         f"normalized_shape={list(normalized_shape)}, "
                         f"got an input of shape {list(x.shape)}")
    for what, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.shape != normalized_shape:
            raise ShapeError(f"{name}: {what} must have the shape of "
                             f"normalized_shape={list(normalized_shape)}, got {list(value.shape)}")
    return tuple(range(-k, 0))


def _lead(ndim: int, k: int) -> Shape:
    return tuple(range(ndim - k))


@op(public=False, amp="full", outputs=("out", "mean", "rstd"), diff=("out",),
    samples=[Sample((3, 4), (4,), (4,), (4,)), Sample((2, 3, 4), (3, 4), None, None),
             Sample((2, 3, 4), (4,), (4,), None)])
def layer_norm(xp, x, normalized_shape: Shape, weight=None, bias=None, eps: float = 1e-5):
    """(out, mean, rstd) of (x - mean) / sqrt(var + eps) * weight + bias over the last dimensions.

    Ba et al. 2016, arXiv:1607.06450. x: [..., *normalized_shape]; weight, bias: normalized_shape or None.
    mean, rstd: [..., 1, ...], float32 for 16-bit inputs.
    """
    axes = _check_last("layer_norm", x, normalized_shape, weight, bias)
    d = wide(x)
    mean = d.mean(axes, keepdims=True)
    d = d - mean
    rstd = 1.0 / xp.sqrt((d * d).mean(axes, keepdims=True) + eps)
    d *= rstd
    if weight is not None:
        d *= weight
    if bias is not None:
        d += bias
    return d.astype(x.dtype, copy=False), mean, rstd


def _layer_norm_grads(F, g, x, normalized_shape, weight, eps, needs):
    k = len(normalized_shape)
    axes, lead = tuple(range(-k, 0)), _lead(x.ndim, k)
    d = x - F.mean(x, dim=axes, keepdim=True)
    rstd = 1.0 / F.sqrt(F.mean(d * d, dim=axes, keepdim=True) + eps)
    xhat = d * rstd
    dx = dweight = dbias = None
    if needs[0]:
        gw = g if weight is None else g * weight
        along = F.mean(gw * xhat, dim=axes, keepdim=True)
        dx = cast_like(F, rstd * (gw - F.mean(gw, dim=axes, keepdim=True) - xhat * along), g)
    if needs[1]:
        dweight = F.sum(g * xhat, dim=lead) if lead else g * xhat
    if needs[2]:
        dbias = F.sum(g, dim=lead) if lead else g
    return dx, dweight, dbias


layer_norm.grads(("x", "weight", "bias"), _layer_norm_grads)


@op(
    public=False, amp="full", outputs=("out", "rstd"), diff=("out",),
    samples=[Sample((3, 4), (4,), (4,)), Sample((2, 3, 4), (3, 4), None)],
)
def rms_norm(xp, x, normalized_shape: Shape, weight=None, eps: float = 1e-6):
    """(out, rstd) of x / sqrt(mean(x^2) + eps) * weight over the last dimensions.

    Zhang and Sennrich 2019, arXiv:1910.07467.
    """
    axes = _check_last("rms_norm", x, normalized_shape, weight, None)
    d = wide(x)
    rstd = 1.0 / xp.sqrt((d * d).mean(axes, keepdims=True) + eps)
    d = d * rstd
    if weight is not None:
        d *= weight
    return d.astype(x.dtype, copy=False), rstd


def _rms_norm_grads(F, g, x, normalized_shape, weight, eps, needs):
    k = len(normalized_shape)
    axes, lead = tuple(range(-k, 0)), _lead(x.ndim, k)
    rstd = 1.0 / F.sqrt(F.mean(x * x, dim=axes, keepdim=True) + eps)
    xhat = x * rstd
    dx = dweight = None
    if needs[0]:
        gw = g if weight is None else g * weight
        dx = cast_like(F, rstd * (gw - xhat * F.mean(gw * xhat, dim=axes, keepdim=True)), g)
    if needs[1]:
        dweight = F.sum(g * xhat, dim=lead) if lead else g * xhat
    return dx, dweight


rms_norm.grads(("x", "weight"), _rms_norm_grads)


# ---- batch norm ----

def _channel_shape(x: Any) -> Shape:
    return (1, x.shape[1]) + (1,) * (x.ndim - 2)


def _batch_axes(ndim: int) -> Shape:
    return (0, *range(2, ndim))


def _check_channels(name: str, x: Any, **values: Any) -> None:
    require_floating(name, x)
    if x.ndim < 2:
        raise ShapeError(f"{name}: expected an input of shape [N, C, ...], got {list(x.shape)}")
    for what, value in values.items():
        if value is not None and value.shape != (x.shape[1],):
            raise ShapeError(f"{name}: {what} must have one value for each of the {x.shape[1]} channels, got "
                             f"shape {list(value.shape)}")


@op(
    public=False, amp="full", outputs=("out", "mean", "var"), diff=("out",),
    samples=[Sample((4, 3), (3,), (3,)), Sample((2, 3, 4, 2), (3,), None), Sample((2, 3, 4), None, None)],
)
def batch_norm(xp, x, weight=None, bias=None, eps: float = 1e-5):
    """(out, mean, var) of (x - mean) / sqrt(var + eps) * weight + bias with the batch's own statistics.

    Ioffe and Szegedy 2015, arXiv:1502.03167. x: [N, C, ...]; weight, bias: [C] or None. mean and (biased) var
    are [C], over all dimensions but C.
    """
    _check_channels("batch_norm", x, weight=weight, bias=bias)
    axes, shape = _batch_axes(x.ndim), _channel_shape(x)
    d = wide(x)
    mean = d.mean(axes)
    d = d - mean.reshape(shape)
    var = (d * d).mean(axes)
    scale = 1.0 / xp.sqrt(var + eps)
    d *= (scale if weight is None else scale * weight).reshape(shape)
    if bias is not None:
        d += bias.reshape(shape)
    return d.astype(x.dtype, copy=False), mean, var


def _batch_norm_grads(F, g, x, weight, eps, needs):
    axes, shape = _batch_axes(x.ndim), _channel_shape(x)
    d = x - F.mean(x, dim=axes, keepdim=True)
    rstd = 1.0 / F.sqrt(F.mean(d * d, dim=axes, keepdim=True) + eps)
    xhat = d * rstd
    dx = dweight = dbias = None
    if needs[0]:
        scale = rstd if weight is None else rstd * F.reshape(weight, shape)
        along = F.mean(g * xhat, dim=axes, keepdim=True)
        dx = cast_like(F, scale * (g - F.mean(g, dim=axes, keepdim=True) - xhat * along), g)
    if needs[1]:
        dweight = F.sum(g * xhat, dim=axes)
    if needs[2]:
        dbias = F.sum(g, dim=axes)
    return dx, dweight, dbias


batch_norm.grads(("x", "weight", "bias"), _batch_norm_grads)


@op(public=False, amp="full",
    samples=[Sample((4, 3), (3,), A((3,), low=0.5, high=2.0), (3,), (3,)),
             Sample((2, 3, 4), (3,), A((3,), low=0.5, high=2.0), None, None)])
def batch_norm_eval(xp, x, running_mean, running_var, weight=None, bias=None, eps: float = 1e-5):
    """(x - running_mean) / sqrt(running_var + eps) * weight + bias, per channel.

    The running statistics get no gradient. x: [N, C, ...]; all others [C].
    """
    _check_channels("batch_norm", x, running_mean=running_mean, running_var=running_var, weight=weight,
                    bias=bias)
    shape = _channel_shape(x)
    scale = 1.0 / xp.sqrt(running_var + eps)
    d = wide(x) - running_mean.reshape(shape)
    d *= (scale if weight is None else scale * weight).reshape(shape)
    if bias is not None:
        d += bias.reshape(shape)
    return d.astype(x.dtype, copy=False)


def _batch_norm_eval_x(F, g, x, running_var, weight, eps):
    scale = 1.0 / F.sqrt(running_var + eps)
    return cast_like(F, g * F.reshape(scale if weight is None else scale * weight, _channel_shape(x)), g)


def _batch_norm_eval_weight(F, g, x, running_mean, running_var, eps):
    shape, axes = _channel_shape(x), _batch_axes(x.ndim)
    return F.sum(g * (x - F.reshape(running_mean, shape)), dim=axes) / F.sqrt(running_var + eps)


batch_norm_eval.grad(
    x=_batch_norm_eval_x, weight=_batch_norm_eval_weight, bias=lambda F, g: F.sum(g, dim=_batch_axes(g.ndim)),
)


# ---- what is made of them ----

@composite(public=False, samples=[Sample((2, 4, 3), 2, (4,), (4,)), Sample((2, 6), 3, None, None)])
def group_norm(F, x, num_groups: int, weight=None, bias=None, eps: float = 1e-5):
    """Layer norm of each of `num_groups` groups of channels, then a scale and shift per channel.

    Wu and He 2018, arXiv:1803.08494. x: [N, C, ...] with C divisible by num_groups; weight, bias: [C] or
    None.
    """
    if x.ndim < 2 or num_groups < 1 or x.shape[1] % num_groups:
        raise ShapeError(f"group_norm: expected [N, C, ...] with C divisible by num_groups={num_groups}, got "
                         f"{list(x.shape)}")
    _check_channels("group_norm", x, weight=weight, bias=bias)
    per = math.prod(x.shape[1:]) // num_groups
    out = F.layer_norm(F.reshape(x, (x.shape[0], num_groups, per)), (per,), None, None, eps)[0]
    return affine(F, F.reshape(out, x.shape), weight, bias)


@composite(public=False, samples=[Sample((2, 4, 3), (4,), (4,)), Sample((2, 3, 2, 2), None, None)])
def instance_norm(F, x, weight=None, bias=None, eps: float = 1e-5):
    """Each channel of each sample normalised by its own mean and variance (Ulyanov et al. 2016)."""
    if x.ndim < 3:
        raise ShapeError(f"instance_norm: expected an input of shape [N, C, d1, ...], got {list(x.shape)}")
    _check_channels("instance_norm", x, weight=weight, bias=bias)
    axes = tuple(x.shape[2:])
    return affine(F, F.layer_norm(x, axes, None, None, eps)[0], weight, bias)


def affine(F: Any, x: Any, weight: Any, bias: Any) -> Any:
    """x * weight + bias with one value per channel: x [N, C, ...], weight and bias [C] or None."""
    shape = (-1,) + (1,) * (x.ndim - 2)
    if weight is not None:
        x = x * F.reshape(weight, shape)
    return x if bias is None else x + F.reshape(bias, shape)


@op(public=False, samples=[Sample((2, 5, 3), 1, 2), Sample((1, 3), 4, 0)])
def channel_window_sum(xp, x, before: int, after: int):
    """The sum over channels c - before .. c + after at each channel c. x: [N, C, ...]."""
    channels = x.shape[1]
    zero = xp.zeros((x.shape[0], 1, *x.shape[2:]), dtype=wide(x).dtype)
    total = xp.concatenate([zero, xp.cumsum(wide(x), axis=1)], axis=1)
    index = xp.arange(channels)
    upper, lower = xp.minimum(index + after + 1, channels), xp.maximum(index - before, 0)
    return (total[:, upper] - total[:, lower]).astype(x.dtype, copy=False)


channel_window_sum.grad(x=lambda F, g, before, after: F.channel_window_sum(g, after, before))


# ---- the CPU: rows in cache-sized blocks, row means as products with a vector of 1/n (bench: layer_norm)

def _rows(x: Any, k: int) -> Any:
    # `x` as [rows, normalised elements], or None where blocks gain nothing.
    if is_low(x.dtype) or not x.size or not x.flags.c_contiguous:
        return None
    return x.reshape(-1, math.prod(x.shape[x.ndim - k:]))


def _layer_norm_cpu(xp, x, normalized_shape, weight=None, bias=None, eps=1e-5):
    k = len(normalized_shape)
    rows = _rows(x, k)
    if rows is None or x.shape[-k:] != normalized_shape or (weight is not None and weight.dtype != x.dtype):
        return layer_norm.forward(xp, x, normalized_shape, weight, bias, eps)
    _check_last("layer_norm", x, normalized_shape, weight, bias)
    n, c = rows.shape
    share = np.full(c, 1.0 / c, x.dtype)
    out, mean, rstd = np.empty_like(rows), np.empty((n, 1), x.dtype), np.empty((n, 1), x.dtype)
    w, b = (None if v is None else v.reshape(c) for v in (weight, bias))
    for block in row_blocks(n, c):
        part, o = rows[block], out[block]
        m = mean[block]
        np.matmul(part, share, out=m[:, 0])
        np.subtract(part, m, out=o)
        r = np.vecdot(o, o)[:, None]
        r /= c
        r += eps
        np.sqrt(r, out=r)
        o *= np.divide(1.0, r, out=rstd[block])
        if w is not None:
            o *= w
        if b is not None:
            o += b
    stats = x.shape[:-k] + (1,) * k
    return out.reshape(x.shape), mean.reshape(stats), rstd.reshape(stats)


def _layer_norm_grads_cpu(F, g, x, normalized_shape, weight, eps, mean, rstd, needs):
    found = row_grads("layer_norm", F, g, x, normalized_shape, weight, mean, rstd, needs)
    return _layer_norm_grads(F, g, x, normalized_shape, weight, eps, needs) if found is None else found


def _rms_norm_cpu(xp, x, normalized_shape, weight=None, eps=1e-6):
    k = len(normalized_shape)
    rows = _rows(x, k)
    if rows is None or x.shape[-k:] != normalized_shape or (weight is not None and weight.dtype != x.dtype):
        return rms_norm.forward(xp, x, normalized_shape, weight, eps)
    _check_last("rms_norm", x, normalized_shape, weight, None)
    n, c = rows.shape
    out, rstd = np.empty_like(rows), np.empty((n, 1), x.dtype)
    w = None if weight is None else weight.reshape(c)
    for block in row_blocks(n, c):
        part, o = rows[block], out[block]
        r = np.vecdot(part, part)[:, None]
        r /= c
        r += eps
        np.sqrt(r, out=r)
        np.multiply(part, np.divide(1.0, r, out=rstd[block]), out=o)
        if w is not None:
            o *= w
    return out.reshape(x.shape), rstd.reshape(x.shape[:-k] + (1,) * k)


def _rms_norm_grads_cpu(F, g, x, normalized_shape, weight, eps, rstd, needs):
    found = row_grads("rms_norm", F, g, x, normalized_shape, weight, None, rstd, needs)
    return _rms_norm_grads(F, g, x, normalized_shape, weight, eps, needs) if found is None else found


def row_grads(name: str, F: Any, g: Any, x: Any, normalized_shape: Shape, weight: Any, mean: Any, rstd: Any,
              needs: Any, join: Any = None) -> Any:
    """The gradients of layer_norm or rms_norm (mean None) on the CPU, `join` (of x's shape) added to that of
    x, in one pass over blocks; None where the arrays do not fit.
    """
    rows = _rows(x, len(normalized_shape))
    if rows is None or g.dtype != x.dtype or (weight is not None and weight.dtype != x.dtype):
        return None
    n, c = rows.shape
    gs = np.ascontiguousarray(g).reshape(n, c)
    rstd, mean = rstd.reshape(n, 1), None if mean is None else mean.reshape(n, 1)
    w = None if weight is None else weight.reshape(c)
    dx = np.empty_like(rows) if needs[0] else None
    joined = None if join is None else join.reshape(n, c)
    dweight, dbias = np.zeros(c, x.dtype), np.zeros(c, x.dtype)
    w1 = np.ones(c, x.dtype) if w is None else w
    for block in row_blocks(n, c):
        gb, r = gs[block], rstd[block]
        # d is the input without its mean, not divided: the factors 1 / std go into the products with vectors.
        d = rows[block] if mean is None else rows[block] - mean[block]
        t = gb * d
        if needs[1]:
            dweight += r[:, 0] @ t
        if mean is not None and needs[2]:
            dbias += np.ones(len(gb), x.dtype) @ gb
        if dx is None:
            continue
        o = dx[block]
        dots = (t @ w1)[:, None]
        dots *= r * r
        dots /= c
        np.multiply(d, dots, out=t)
        np.subtract(gb if w is None else np.multiply(gb, w, out=o), t, out=o)
        if mean is not None:
            o -= (gb @ w1)[:, None] / c
        o *= r
        if joined is not None:
            o += joined[block]
    shaped = (None if dx is None else dx.reshape(x.shape),
              dweight.reshape(normalized_shape) if needs[1] else None)
    return shaped if mean is None else (*shaped, dbias.reshape(normalized_shape) if needs[2] else None)


layer_norm.accelerate("cpu", _layer_norm_cpu, {("x", "weight", "bias"): _layer_norm_grads_cpu})
rms_norm.accelerate("cpu", _rms_norm_cpu, {("x", "weight"): _rms_norm_grads_cpu})


def _batch_norm_grads_cpu(F, g, x, weight, eps, mean, var, needs):
    if is_low(x.dtype):
        return _batch_norm_grads(F, g, x, weight, eps, needs)
    axes, shape = _batch_axes(x.ndim), _channel_shape(x)
    rstd = 1.0 / np.sqrt(var + eps)
    count = x.size // x.shape[1]
    d = x - mean.reshape(shape)
    dbias = g.sum(axes)
    dots = (g * d).sum(axes)
    dx = None
    if needs[0]:
        d *= (dots * rstd * rstd / -count).reshape(shape)
        d += g
        d -= (dbias / count).reshape(shape)
        d *= (rstd if weight is None else rstd * weight).reshape(shape)
        dx = d
    return dx, dots * rstd if needs[1] else None, dbias if needs[2] else None


batch_norm.accelerate("cpu", None, {("x", "weight", "bias"): _batch_norm_grads_cpu})
