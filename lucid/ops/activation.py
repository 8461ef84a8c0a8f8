"""Activation functions, element by element, and the gated linear unit.

Forwards are sums of `maximum` and `minimum` rather than `where`: NumPy's `where` on a random mask costs ten
times a maximum (mispredicted branches), and NaN passes through both halves. Derivatives at the kinks are
PyTorch's.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeError
from .common import check_tensors, need_order, normalize_dim
from .pointwise import like, wide
from .registry import A, Sample, composite, op
from .special import call

# Klambauer et al. 2017, arXiv:1706.02515, section 2
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
_SQRT_HALF, _SQRT_2_OVER_PI = math.sqrt(0.5), math.sqrt(2.0 / math.pi)
_GELU_CUBIC = 0.044715    # Hendrycks and Gimpel 2016, arXiv:1606.08415


def _log1p_exp(xp: Any, z: Any) -> Any:
    # log(1 + e^z) without overflow.
    return xp.maximum(z, 0) + xp.log1p(xp.exp(-xp.abs(z)))


def _sigmoid(xp: Any, x: Any) -> Any:
    # e^-x is held below overflow: at the bound the result is 1e-38 (1e-308), which x times it does not feel.
    bound = -709.0 if x.dtype.itemsize == 8 else -88.0
    return 1.0 / (1.0 + xp.exp(-xp.maximum(x, bound)))


# ---- piecewise linear ----


@op(dtype="promote", pointwise=True, public=False,
    samples=[Sample((3, 4), (3, 4), (4,), -0.5, 0.5, avoid=(-0.5, 0.5))])
def within(xp, x, v, w, low: float, high: float):
    """v where low < x < high, or x is NaN, else w: a choice whose derivative to x is 0, not absent.

    In this form a piecewise constant slope stays in the graph, and its own derivative is 0, not an error.
    """
    outside = x <= low if high == math.inf else (x <= low) | (x >= high)
    return like(xp.where(outside, w, v), v if hasattr(v, "dtype") else w)


_SELECT_BITS = 4096    # elements below which numpy's `where` is as fast (bench_overhead: within)


def _within_cpu(xp: Any, x: Any, v: Any, w: Any, low: float, high: float) -> Any:
    outside = x <= low if high == math.inf else (x <= low) | (x >= high)
    like_v = v if hasattr(v, "dtype") else w
    if outside.size < _SELECT_BITS or like_v.dtype.kind != "f":
        return like(xp.where(outside, w, v), like_v)
    # v ^ ((v ^ w) & mask) on the bits: 0.6 ms for 1M float32; `where` mispredicts branches and takes 3.7.
    bits = f"i{like_v.dtype.itemsize}"
    a, b = (xp.asarray(t, like_v.dtype).view(bits) for t in (v, w))
    mask = xp.negative(outside.view("i1"), dtype=bits)
    out = a & ~mask if not b.ndim and not b else a ^ ((a ^ b) & mask)
    return out.view(like_v.dtype)


within.accelerate("cpu", forward=_within_cpu)
within.grad(x=lambda F, g, x: F.zeros_like(x), v=lambda F, g, x, low, high: F.within(x, g, 0.0, low, high),
            w=lambda F, g, x, low, high: F.within(x, 0.0, g, low, high))


@op(pointwise=True, public=False, samples=[Sample((3, 4), avoid=(0.0, 6.0))])
def relu6(xp, x):
    """x held between 0 and 6; derivative 0 at both bounds."""
    need_order("relu6", x)
    return xp.minimum(xp.maximum(x, 0), 6)


relu6.grad(x=lambda F, g, x: F.within(x, g, 0.0, 0.0, 6.0))


@op(pointwise=True, public=False,
    samples=[Sample((3, 4), avoid=(-1.0, 1.0)), Sample((3, 4), -0.5, 2.0, avoid=(-0.5, 2.0))])
def hardtanh(xp, x, min_val: float = -1.0, max_val: float = 1.0):
    """x held between `min_val` and `max_val`; derivative 0 at both bounds."""
    need_order("hardtanh", x)
    return like(xp.minimum(xp.maximum(x, min_val), max_val), x)


hardtanh.grad(x=lambda F, g, x, min_val, max_val: F.within(x, g, 0.0, min_val, max_val))


@op(dtype="float", pointwise=True, public=False,
    samples=[Sample((3, 4), avoid=(0.0,)), Sample((3, 4), 0.3, avoid=(0.0,)),
             Sample((3, 4), 1.5, avoid=(0.0,))])
def leaky_relu(xp, x, negative_slope: float = 0.01):
    """x where x > 0, else negative_slope x."""
    need_order("leaky_relu", x)
    y = like(x * negative_slope, x)
    return xp.maximum(x, y) if negative_slope <= 1 else xp.minimum(x, y)


leaky_relu.grad(x=lambda F, g, x, negative_slope: F.within(x, g, g * negative_slope, 0.0, math.inf))


@op(dtype="promote", pointwise=True, public=False, samples=[Sample((3, 4), (4,), avoid=(0.0,))])
def prelu_kernel(xp, x, weight):
    """x where x > 0, else weight x, with broadcasting."""
    need_order("prelu", x)
    return xp.where(x > 0, x, weight * x)


prelu_kernel.grad(x=lambda F, g, x, weight: F.within(x, g, weight * g, 0.0, math.inf),
                  weight=lambda F, g, x: F.within(x, 0.0, x * g, 0.0, math.inf))


@composite(method=True, amp="low",
    samples=[Sample((2, 3, 4), A((3,), low=0.1, high=0.5), avoid=(0.0,)),
             Sample((5,), A((1,), low=0.1, high=0.5), avoid=(0.0,))])
def prelu(F, x, weight):
    """x where x > 0, else weight x, the weight learned (He et al. 2015, arXiv:1502.01852).

    weight: one number for all, or shape [C] for dimension 1 of x, else ShapeError.

    >>> import lucid
    >>> lucid.prelu(lucid.tensor([[-1.0, -1.0]]), lucid.tensor([0.25, 0.5]))
    tensor([[-0.25, -0.5 ]])
    """
    check_tensors("prelu", x=x, weight=weight)
    channels, size = x.shape[1] if x.ndim > 1 else 1, math.prod(weight.shape)
    if weight.ndim > 1 or size not in (1, channels):
        raise ShapeError(f"prelu: expected a weight of shape [1] or [{channels}] for x of shape {x.shape}, "
                         f"got {weight.shape}")
    shape = (1, size) + (1,) * (x.ndim - 2) if size > 1 else (1,) * x.ndim
    return F.prelu_kernel(x, F.reshape(weight, shape))


@op(pointwise=True, samples=[Sample((3, 4), 0.1, 20.0, avoid=(0.1,))])
def threshold(xp, x, threshold: float, value: float):
    """x where x > threshold, else `value`.

    >>> import lucid
    >>> lucid.threshold(lucid.tensor([0.0, 0.5, 2.0]), 0.5, 20.0)
    tensor([20., 20.,  2.])
    """
    need_order("threshold", x)
    return xp.where(x <= threshold, x.dtype.type(value), x)


threshold.grad(x=lambda F, g, x, threshold: F.within(x, g, 0.0, threshold, math.inf))


@op(dtype="float", pointwise=True, method=True, samples=[Sample((3, 4), avoid=(-0.5, 0.5))])
def hardshrink(xp, x, lambd: float = 0.5):
    """x where |x| > lambd, else 0.

    >>> import lucid
    >>> lucid.nn.functional.hardshrink(lucid.tensor([-1.0, 0.3, 2.0]))
    tensor([-1.,  0.,  2.])
    """
    need_order("hardshrink", x)
    return xp.where(xp.abs(x) <= lambd, x.dtype.type(0), x)


hardshrink.grad(x=lambda F, g, x, lambd: F.within(F.abs(x), g, 0.0, lambd, math.inf))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4), avoid=(-0.5, 0.5))])
def softshrink(xp, x, lambd: float = 0.5):
    """x moved towards 0 by lambd, and 0 where |x| <= lambd. Raises ShapeError for lambd < 0.

    >>> import lucid
    >>> lucid.nn.functional.softshrink(lucid.tensor([-1.0, 0.3, 2.0]))
    tensor([-0.5,  0. ,  1.5])
    """
    need_order("softshrink", x)
    if lambd < 0:
        raise ShapeError(f"softshrink: expected lambd >= 0, got {lambd}")
    return like(x - xp.minimum(xp.maximum(x, -lambd), lambd), x)


softshrink.grad(x=lambda F, g, x, lambd: F.within(F.abs(x), g, 0.0, lambd, math.inf))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4), avoid=(-3.0, 3.0))])
def hardsigmoid(xp, x):
    """(x + 3) / 6 held between 0 and 1."""
    need_order("hardsigmoid", x)
    return like(xp.minimum(xp.maximum(x + 3.0, 0), 6) / 6.0, x)


hardsigmoid.grad(x=lambda F, g, x: F.within(x, g / 6.0, 0.0, -3.0, 3.0))


@op(dtype="float", pointwise=True, public=False,
    samples=[Sample((3, 4), avoid=(-3.0, 3.0)), Sample(A(value=[-4.0, -1.0, 2.0, 5.0]))])
def hardswish(xp, x):
    """x hardsigmoid(x) (Howard et al. 2019, arXiv:1905.02244)."""
    need_order("hardswish", x)
    return like(x * xp.minimum(xp.maximum(x + 3.0, 0), 6) / 6.0, x)


hardswish.grad(x=lambda F, g, x: F.where(x <= -3.0, 0.0, F.where(x >= 3.0, g, g * (x / 3.0 + 0.5))))


# ---- smooth ----


def _linear_exp(xp: Any, x: Any, alpha: float, scale: float, soft: float) -> Any:
    w = wide(x)
    out = xp.maximum(w, 0) + alpha * xp.expm1(xp.minimum(w, 0) * soft)
    return like(out if scale == 1.0 else scale * out, x)


def _linear_exp_x(F: Any, g: Any, x: Any, alpha: float, scale: float, soft: float) -> Any:
    # e^min(x, 0): the branch that is not taken would overflow, and its second derivative be 0 inf.
    return F.where(x > 0.0, g * scale, g * F.exp(F.clamp_max(x, 0.0) * soft) * (alpha * scale * soft))


@op(dtype="float", pointwise=True, public=False,
    samples=[Sample((3, 4), avoid=(0.0,)), Sample((3, 4), 0.5, avoid=(0.0,))])
def elu(xp, x, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0):
    """scale x where x > 0, else scale alpha (e^(input_scale x) - 1).

    Clevert et al. 2015, arXiv:1511.07289.
    """
    need_order("elu", x)
    return _linear_exp(xp, x, alpha, scale, input_scale)


elu.grad(x=lambda F, g, x, alpha, scale, input_scale: _linear_exp_x(F, g, x, alpha, scale, input_scale))


@op(dtype="float", pointwise=True, samples=[Sample((3, 4), avoid=(0.0,))])
def selu(xp, x):
    """scale (max(x, 0) + min(0, alpha (e^x - 1))), with the alpha and scale that keep mean 0 and variance 1.

    Klambauer et al. 2017, arXiv:1706.02515.

    >>> import lucid
    >>> lucid.selu(lucid.tensor([-1.0, 0.0, 1.0]))
    tensor([-1.1113,  0.    ,  1.0507])
    """
    need_order("selu", x)
    return _linear_exp(xp, x, SELU_ALPHA, SELU_SCALE, 1.0)


selu.grad(x=lambda F, g, x: _linear_exp_x(F, g, x, SELU_ALPHA, SELU_SCALE, 1.0))


@op(dtype="float", pointwise=True, samples=[Sample((3, 4), avoid=(0.0,)), Sample((3, 4), 2.0, avoid=(0.0,))])
def celu(xp, x, alpha: float = 1.0):
    """x where x > 0, else alpha (e^(x / alpha) - 1) (Barron 2017, arXiv:1704.07483).

    Raises ShapeError for alpha = 0.

    >>> import lucid
    >>> lucid.celu(lucid.tensor([-1.0, 0.0, 1.0]), alpha=2.0)
    tensor([-0.7869,  0.    ,  1.    ])
    """
    need_order("celu", x)
    if alpha == 0:
        raise ShapeError("celu: expected alpha other than 0, got 0")
    return _linear_exp(xp, x, alpha, 1.0, 1.0 / alpha)


celu.grad(x=lambda F, g, x, alpha: _linear_exp_x(F, g, x, alpha, 1.0, 1.0 / alpha))


def _gelu_x(F: Any, g: Any, x: Any, approximate: str) -> Any:
    if approximate == "none":
        return g * (0.5 * F.erfc(x * -_SQRT_HALF) + x * F.exp(-0.5 * x * x) * (0.5 * _SQRT_2_OVER_PI))
    q = x * x
    t = F.tanh(_SQRT_2_OVER_PI * x * (1.0 + _GELU_CUBIC * q))
    return g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * _SQRT_2_OVER_PI * (1.0 + 3.0 * _GELU_CUBIC * q))


@op(dtype="float", pointwise=True, public=False,
    samples=[Sample((3, 4)), Sample((3, 4), approximate="tanh"), Sample(A(value=[-30.0, -8.0, 8.0, 30.0]))])
def gelu(xp, x, approximate: str = "none"):
    """x Phi(x), Phi the normal distribution function (Hendrycks and Gimpel 2016, arXiv:1606.08415).

    approximate: "none", or "tanh" for 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).

    >>> import lucid
    >>> lucid.nn.functional.gelu(lucid.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.    ,  0.8413])
    """
    if approximate not in ("none", "tanh"):
        raise ShapeError(f"gelu: expected approximate='none' or 'tanh', got {approximate!r}")
    w = wide(x)
    if approximate == "none":
        return like(0.5 * w * call(xp, "erfc", w * -_SQRT_HALF), x)
    return like(0.5 * w * (1.0 + xp.tanh(_SQRT_2_OVER_PI * w * (1.0 + _GELU_CUBIC * (w * w)))), x)


gelu.grad(x=_gelu_x)


# On the CPU in float32: the upper tail of the normal distribution is t Q(t) e^(-a^2 / 2) with a >= 0 and
# t = 1 / (1 + 0.35 a). These coefficients of Q, from t^8 down to 1, are the minimax fit on [0, 14]: relative
# error 3.3e-8, half a unit in the last place. Forward on 1M elements: 4 ms, where scipy's erfc takes 20.
_TAIL = (-0.02914472, 0.14396617, -0.25570356, 0.15916273, -0.02310245, 0.10550507, 0.11983357, 0.13986178,
         0.13962141)
_TAIL_SCALE, _TAIL_END = 0.35, 16.0    # e^(-16^2 / 2) is 0 in float32
# The slope, 1/2 + sign(x) (1/2 - (tail - a phi)), has a difference in it: an absolute error is all that can
# be had. These coefficients, from t^6 down, t = 1 / (1 + 0.28 a), are the minimax fit of the tail's absolute
# error, 9e-9; computed in float32 the slope is right to 2.4e-7 (PyTorch's to 2.8e-7).
SLOPE = (-0.10581053, 0.38988341, -0.23700886, 0.26892272, 0.06749164, 0.11652161)
SLOPE_SCALE = 0.28
_BLOCK = 1 << 16    # elements; with a quarter of it, numpy's calls make it 1.2 times as long


def _tail(xp: Any, x: Any, a: Any, e: Any, t: Any, p: Any, end: Any, scale: float, fit: Any) -> None:
    """Nothing; writes |x| (at most 16) to a, e^(-x^2 / 2) to e, and the polynomial `fit` in 1 / (1 + scale a)
    to p. t is scratch; end: an array of 16s, for NumPy is three times as fast with it as with a number.
    """
    xp.minimum(xp.abs(x, out=a), end, out=a)
    xp.exp(xp.multiply(xp.multiply(a, a, out=e), -0.5, out=e), out=e)
    xp.divide(1.0, xp.add(xp.multiply(a, scale, out=t), 1.0, out=t), out=t)
    xp.multiply(t, fit[0], out=p)
    for c in fit[1:]:
        xp.multiply(xp.add(p, c, out=p), t, out=p)


def with_sign(xp: Any, x: Any, sign: Any, out: Any) -> None:
    """Nothing; writes x >= 0 with the sign of `sign` to `out` (which is neither). float32 or float64.

    On the bits: a fourth of the time of NumPy's copysign.
    """
    bits = f"i{x.dtype.itemsize}"
    o = out.view(bits)
    xp.bitwise_and(sign.view(bits), xp.iinfo(bits).min, out=o)
    xp.bitwise_or(o, x.view(bits), out=o)


def _blocks(xp: Any, *arrays: Any) -> Any:
    """Rows of the arrays, flat, each with scratch of its size."""
    flat = [a.reshape(-1) for a in arrays]
    scratch = xp.empty((5, min(_BLOCK, flat[0].size)), "float32")
    scratch[4] = _TAIL_END
    for start in range(0, flat[0].size, _BLOCK):
        rows = [f[start:start + _BLOCK] for f in flat]
        yield rows, scratch[:, :rows[0].size]


def _gelu_cpu(xp: Any, x: Any, approximate: str = "none") -> Any:
    if approximate != "none" or x.dtype.name != "float32":
        return gelu.forward(xp, x, approximate)
    out = xp.empty(x.shape, "float32")
    for (xs, ys), (a, e, t, p, end) in _blocks(xp, x, out):
        _tail(xp, xs, a, e, t, p, end, _TAIL_SCALE, _TAIL)
        xp.multiply(p, e, out=p)
        # x Phi(x) = max(x, 0) - |x| (1 - Phi(|x|)), on both sides of 0.
        xp.subtract(xp.maximum(xs, 0.0, out=ys), xp.multiply(p, a, out=p), out=ys)
    return out


def _gelu_cpu_x(F: Any, g: Any, x: Any, approximate: str) -> Any:
    if approximate != "none" or x.dtype.name != "float32" or g.dtype.name != "float32" or g.shape != x.shape:
        return _gelu_x(F, g, x, approximate)
    xp = F.backend.xp
    out = xp.empty(x.shape, "float32")
    for (xs, gs, ys), (a, e, t, p, end) in _blocks(xp, x, g, out):
        _tail(xp, xs, a, e, t, p, end, SLOPE_SCALE, SLOPE)
        # Phi(x) + x phi(x) = 1/2 + sign(x) (1/2 - (1 - Phi(|x|)) + |x| phi(x)).
        xp.multiply(xp.subtract(xp.multiply(a, 0.5 * _SQRT_2_OVER_PI, out=a), p, out=p), e, out=p)
        with_sign(xp, xp.add(p, 0.5, out=p), xs, t)
        xp.multiply(xp.add(t, 0.5, out=t), gs, out=ys)
    return out


gelu.accelerate("cpu", forward=_gelu_cpu, grads={"x": _gelu_cpu_x})


def _silu_x(F: Any, g: Any, x: Any) -> Any:
    s = F.sigmoid(x)
    return g * (s * (1.0 + x * (1.0 - s)))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4)), Sample(A(value=[-100.0, 100.0]))])
def silu(xp, x):
    """x sigmoid(x), also called swish."""
    w = wide(x)
    return like(w * _sigmoid(xp, w), x)


silu.grad(x=_silu_x)


def _mish_x(F: Any, g: Any, x: Any) -> Any:
    t = F.tanh(F.softplus(x))
    return g * (t + x * (1.0 - t * t) * F.sigmoid(x))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4)), Sample(A(value=[-100.0, 100.0]))])
def mish(xp, x):
    """x tanh(softplus(x)) (Misra 2019, arXiv:1908.08681)."""
    need_order("mish", x)
    w = wide(x)
    return like(w * xp.tanh(_log1p_exp(xp, w)), x)


mish.grad(x=_mish_x)


def _softplus_x(F: Any, g: Any, x: Any, beta: float, threshold: float) -> Any:
    z = x * beta
    return F.where(z > threshold, g, g * F.sigmoid(z))


@op(dtype="float", pointwise=True, public=False, amp="full",
    samples=[Sample((3, 4)), Sample((3, 4), 2.0, 1.0, avoid=(0.5,)), Sample(A(value=[-1000.0, 1000.0]))])
def softplus(xp, x, beta: float = 1.0, threshold: float = 20.0):
    """log(1 + e^(beta x)) / beta, and x itself where beta x > threshold.

    >>> import lucid
    >>> lucid.nn.functional.softplus(lucid.tensor([-1.0, 0.0, 100.0]))
    tensor([  0.3133,   0.6931, 100.    ])
    """
    need_order("softplus", x)
    w = wide(x)
    z = w * beta
    return like(xp.where(z > threshold, w, _log1p_exp(xp, z) / beta), x)


softplus.grad(x=_softplus_x)


def _softsign_x(F: Any, g: Any, x: Any) -> Any:
    d = 1.0 + F.abs(x)
    return g / (d * d)


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4), avoid=(0.0,))])
def softsign(xp, x):
    """x / (1 + |x|).

    >>> import lucid
    >>> lucid.nn.functional.softsign(lucid.tensor([-1.0, 0.0, 3.0]))
    tensor([-0.5 ,  0.  ,  0.75])
    """
    w = wide(x)
    return like(w / (1.0 + xp.abs(w)), x)


softsign.grad(x=_softsign_x)


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4)), Sample(A(value=[-1000.0, 1000.0]))])
def logsigmoid(xp, x):
    """log(sigmoid(x)) = -log(1 + e^-x).

    >>> import lucid
    >>> lucid.nn.functional.logsigmoid(lucid.tensor([-100.0, 0.0]))
    tensor([-100.    ,   -0.6931])
    """
    need_order("logsigmoid", x)
    w = wide(x)
    return like(xp.minimum(w, 0) - xp.log1p(xp.exp(-xp.abs(w))), x)


logsigmoid.grad(x=lambda F, g, x: g * F.sigmoid(-x))


def _tanhshrink_x(F: Any, g: Any, x: Any) -> Any:
    t = F.tanh(x)
    return g * (t * t)


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4))])
def tanhshrink(xp, x):
    """x - tanh(x).

    >>> import lucid
    >>> lucid.nn.functional.tanhshrink(lucid.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2384,  0.    ,  0.2384])
    """
    w = wide(x)
    return like(w - xp.tanh(w), x)


tanhshrink.grad(x=_tanhshrink_x)


@composite(public=False, samples=[Sample((3, 4)), Sample((4, 3), 0)])
def glu(F, x, dim: int = -1):
    """a sigmoid(b), a and b the halves of x along `dim` (Dauphin et al. 2016, arXiv:1612.08083).

    x: an even size along `dim`, else ShapeError; the result has half of it.

    >>> import lucid
    >>> lucid.nn.functional.glu(lucid.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([0.5, 1. ])
    """
    d = normalize_dim("glu", dim, x.ndim)
    if not x.ndim or x.shape[d] % 2:
        raise ShapeError(f"glu: expected an even size along dim {dim} to halve, got shape {tuple(x.shape)}")
    half = x.shape[d] // 2
    return F.narrow(x, d, 0, half) * F.sigmoid(F.narrow(x, d, half, half))
