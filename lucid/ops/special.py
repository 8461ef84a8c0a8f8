"""Special functions, element by element, on scipy.special and cupyx.scipy.special.

SciPy has no 16-bit loops: float16 and bfloat16 are computed in float32 and rounded once. Formula numbers are
those of the Digital Library of Mathematical Functions (dlmf.nist.gov).
"""

from __future__ import annotations

import functools
import math
from typing import Any

from ..errors import GradError, LucidError
from .common import special
from .pointwise import like, wide
from .registry import A, Sample, composite, op
from .trigonometry import spherical_j1

_SQRT_2_PI = math.sqrt(2.0 * math.pi)
_POSITIVE = A((3, 4), low=0.5, high=4.0)
_UNIT = A((3, 4), low=0.1, high=0.9)


@functools.cache
def _function(xp: Any, name: str) -> Any:
    return getattr(special(xp), name)


def call(xp: Any, name: str, x: Any) -> Any:
    """scipy's function `name` of x, in x's dtype."""
    return like(_function(xp, name)(wide(x)), x)


def _not_known(op_name: str, argument: str) -> Any:
    def formula(F: Any, g: Any) -> Any:
        raise GradError(f"{op_name}: the derivative with respect to {argument!r} has no closed form and is "
                        f"not implemented; detach it: {op_name}(..., {argument}.detach(), ...)")
    return formula


# ---- the error function and the normal distribution ----


@op(dtype="float", pointwise=True, method=True, inplace=True, samples=[Sample((3, 4)), Sample(())],
    reference="scipy.special:erf")
def erf(xp, x):
    """The error function: 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x.

    >>> import lucid
    >>> lucid.erf(lucid.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.8427,  0.    ,  0.8427])
    """
    return call(xp, "erf", x)


erf.grad(x=lambda F, g, x: g * F.exp(-x * x) * (2.0 / math.sqrt(math.pi)))


@op(dtype="float", pointwise=True, method=True, inplace=True, samples=[Sample((3, 4))],
    reference="scipy.special:erfc")
def erfc(xp, x):
    """1 - erf(x), exact where erf is near 1.

    >>> import lucid
    >>> lucid.erfc(lucid.tensor([0.0, 1.0, 9.0]))
    tensor([1.000e+00, 1.573e-01, 4.137e-37])
    """
    return call(xp, "erfc", x)


erfc.grad(x=lambda F, g, x: g * F.exp(-x * x) * (-2.0 / math.sqrt(math.pi)))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4))], reference="scipy.special:erfcx")
def erfcx(xp, x):
    """e^(x^2) erfc(x): erfc without its underflow.

    >>> import lucid
    >>> lucid.special.erfcx(lucid.tensor([0.0, 1.0, 100.0]))
    tensor([1.    , 0.4276, 0.0056])
    """
    return call(xp, "erfcx", x)


erfcx.grad(x=lambda F, g, x, out: g * (2.0 * x * out - 2.0 / math.sqrt(math.pi)))


@op(dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=-0.9, high=0.9))], reference="scipy.special:erfinv")
def erfinv(xp, x):
    """The inverse of erf: infinite at -1 and 1, NaN beyond.

    >>> import lucid
    >>> lucid.erfinv(lucid.tensor([0.0, 0.5]))
    tensor([0.    , 0.4769])
    """
    return call(xp, "erfinv", x)


erfinv.grad(x=lambda F, g, out: g * F.exp(out * out) * (math.sqrt(math.pi) / 2.0))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4))], reference="scipy.special:ndtr")
def ndtr(xp, x):
    """The normal distribution function: erfc(-x / sqrt(2)) / 2.

    >>> import lucid
    >>> lucid.special.ndtr(lucid.tensor([-1.96, 0.0, 1.96]))
    tensor([0.025, 0.5  , 0.975])
    """
    return call(xp, "ndtr", x)


ndtr.grad(x=lambda F, g, x: g * F.exp(-0.5 * x * x) * (1.0 / _SQRT_2_PI))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4)), Sample(A(value=[-40.0, 5.0]))],
    reference="scipy.special:log_ndtr")
def log_ndtr(xp, x):
    """log(ndtr(x)), exact in both tails.

    >>> import lucid
    >>> lucid.special.log_ndtr(lucid.tensor([-40.0, -10.0]))
    tensor([-804.6085,  -53.2313])
    """
    return call(xp, "log_ndtr", x)


# phi / Phi = sqrt(2 / pi) / erfcx(-x / sqrt 2): neither tail underflows.
log_ndtr.grad(x=lambda F, g, x: g * math.sqrt(2.0 / math.pi) / F.erfcx(x * -math.sqrt(0.5)))


@op(dtype="float", pointwise=True, public=False, samples=[Sample(_UNIT)], reference="scipy.special:ndtri")
def ndtri(xp, x):
    """The inverse of ndtr: the normal quantile, -inf at 0 and inf at 1.

    >>> import lucid
    >>> lucid.special.ndtri(lucid.tensor([0.5, 0.975]))
    tensor([0.  , 1.96])
    """
    return call(xp, "ndtri", x)


ndtri.grad(x=lambda F, g, out: g * F.exp(0.5 * out * out) * _SQRT_2_PI)


# ---- the gamma function and its derivatives ----


@op(dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(_POSITIVE), Sample(A((4,), low=-0.9, high=-0.1))], reference="scipy.special:gammaln")
def lgamma(xp, x):
    """log |Gamma(x)|: inf at 0, -1, -2, ...

    >>> import lucid
    >>> lucid.lgamma(lucid.tensor([1.0, 5.0]))    # log 24
    tensor([0.    , 3.1781])
    """
    return xp.where(x == -math.inf, x.dtype.type(math.inf), call(xp, "gammaln", x))


lgamma.grad(x=lambda F, g, x: g * F.digamma(x))


@op(dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(_POSITIVE), Sample(A((4,), low=-0.9, high=-0.1))], reference="scipy.special:psi")
def digamma(xp, x):
    """psi(x) = d log Gamma(x) / dx: NaN at the negative whole numbers, -inf at 0 (inf at -0.0).

    >>> import lucid
    >>> lucid.digamma(lucid.tensor([1.0, 2.0]))
    tensor([-0.5772,  0.4228])
    """
    # scipy 1.17 gives -inf at -0.0 for float32; PyTorch follows the sign of the zero.
    return xp.where(x == 0, xp.copysign(like(xp.full_like(x, math.inf), x), -x), call(xp, "psi", x))


digamma.grad(x=lambda F, g, x: g * F.polygamma(1, x))


@op(dtype="float", pointwise=True,
    samples=[Sample(1, _POSITIVE), Sample(0, _POSITIVE), Sample(3, A((4,), low=-0.8, high=-0.2))],
    reference="scipy.special:polygamma")
def polygamma(xp, order: int, x):
    """The derivative of digamma of order n: (-1)^(n+1) n! zeta(n + 1, x) for n >= 1 (DLMF 5.15.1).

    order: a Python integer >= 0, else LucidError.

    >>> import lucid
    >>> lucid.polygamma(1, lucid.tensor([1.0, 2.0]))    # pi^2 / 6, pi^2 / 6 - 1
    tensor([1.6449, 0.6449])
    """
    if order < 0:
        raise LucidError(f"polygamma: expected an order >= 0, got {order}")
    if order == 0:
        return digamma.forward(xp, x)
    w = wide(x)
    return like((-1.0) ** (order + 1) * math.factorial(order) * _hurwitz(xp, order + 1, w), x)


def _hurwitz(xp: Any, s: int, x: Any) -> Any:
    """sum_{k >= 0} (x + k)^-s for whole s >= 2, also at x < 0, where scipy's zeta gives NaN for odd s."""
    zeta_ = _function(xp, "zeta")
    # The reflected sum below costs two more evaluations; on a GPU, where this look would wait for the
    # device, it always runs.
    if xp.__name__ == "numpy" and (x > 0).all():
        return zeta_(float(s), x)
    # The m terms with x + k < 0 are a difference of two tails: with f = 1 - (x + m),
    # sum_{k<m} (x + k)^-s = (-1)^s [zeta(s, f) - zeta(s, f + m)].
    steps = xp.where(x > 0, 0.0, xp.ceil(-x))
    first = x + steps                                     # in [0, 1), or x itself
    rest = zeta_(float(s), xp.where(first == 0, 1.0, first))
    low = 1.0 - xp.where(first == 0, 0.0, first)
    flipped = (-1.0) ** s * (zeta_(float(s), low) - zeta_(float(s), low + steps))
    out = xp.where(steps > 0, rest + flipped, rest)
    return xp.where((first == 0) & (x <= 0), math.inf, out)


polygamma.grad(x=lambda F, g, x, order: g * F.polygamma(order + 1, x))


@composite(method=True, samples=[Sample(A((3, 4), low=2.2, high=5.0), 3)])
def mvlgamma(F, x, p: int):
    """The logarithm of the multivariate gamma function of dimension p (DLMF 35.3.4).

    p(p-1)/4 log(pi) + sum_{j<p} lgamma(x - j/2), for x > (p-1)/2. Raises LucidError for p < 1.

    >>> import lucid
    >>> lucid.mvlgamma(lucid.tensor([3.0, 5.0]), 2)
    tensor([1.5502, 6.2042])
    """
    if p < 1:
        raise LucidError(f"mvlgamma: expected a dimension p >= 1, got {p}")
    out = F.lgamma(x)
    for j in range(1, p):
        out = out + F.lgamma(x - 0.5 * j)
    return out + 0.25 * p * (p - 1) * math.log(math.pi)


def _gamma_density(F: Any, g: Any, a: Any, x: Any) -> Any:
    return g * F.exp((a - 1.0) * F.log(x) - x - F.lgamma(a))


# The order is a whole number in these samples: it has no derivative.
_ORDER = A((3, 4), dtype="int64", low=2, high=5)


def _two(xp: Any, name: str, a: Any, x: Any) -> Any:
    return like(_function(xp, name)(wide(a), wide(x)), x)


@op(dtype="float", pointwise=True, public=False, samples=[Sample(_ORDER, _POSITIVE)],
    reference="scipy.special:gammainc")
def gammainc(xp, a, x):
    """The regularised lower incomplete gamma function P(a, x) (DLMF 8.2.4).

    Its gradient with respect to a raises GradError.

    >>> import lucid
    >>> lucid.special.gammainc(lucid.tensor(1.0), lucid.tensor([0.0, 1.0]))    # 1 - e^-x for a = 1
    tensor([0.    , 0.6321])
    """
    return _two(xp, "gammainc", a, x)


gammainc.grad(a=_not_known("special.gammainc", "a"), x=_gamma_density)


@op(dtype="float", pointwise=True, public=False, samples=[Sample(_ORDER, _POSITIVE)],
    reference="scipy.special:gammaincc")
def gammaincc(xp, a, x):
    """The regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x).

    Its gradient with respect to a raises GradError.

    >>> import lucid
    >>> lucid.special.gammaincc(lucid.tensor(1.0), lucid.tensor([0.0, 1.0]))    # e^-x for a = 1
    tensor([1.    , 0.3679])
    """
    return _two(xp, "gammaincc", a, x)


gammaincc.grad(a=_not_known("special.gammaincc", "a"), x=lambda F, g, a, x: -_gamma_density(F, g, a, x))


@op(dtype="float", pointwise=True, public=False, samples=[Sample(_ORDER, _POSITIVE)],
    reference="scipy.special:zeta")
def zeta(xp, x, y):
    """The Hurwitz zeta function: the sum of (k + y)^-x over k >= 0, for x > 1 (DLMF 25.11.1).

    Its gradient with respect to x raises GradError.

    >>> import lucid
    >>> lucid.special.zeta(lucid.tensor(2.0), lucid.tensor([1.0, 2.0]))    # pi^2 / 6, pi^2 / 6 - 1
    tensor([1.6449, 0.6449])
    """
    return _two(xp, "zeta", x, y)


zeta.grad(x=_not_known("special.zeta", "x"), y=lambda F, g, x, y: -g * x * F.zeta(x + 1.0, y))


# ---- Bessel functions ----


def _ratio(F: Any, x: Any, i1: Any) -> Any:
    # i1(x) / x, by its series (DLMF 10.25.2) where x is 0 or near it.
    small = F.abs(x) < 0.01
    q = x * x
    return F.where(small, 0.5 + q / 16.0 + q * q / 384.0, i1 / F.where(small, 1.0, x))


def _ratio_e(F: Any, x: Any, i1e: Any) -> Any:
    small = F.abs(x) < 0.01
    q = x * x
    return F.where(small, F.exp(-F.abs(x)) * (0.5 + q / 16.0 + q * q / 384.0), i1e / F.where(small, 1.0, x))


@op(dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4)), Sample(A(value=[0.0, 1e-3]))], reference="scipy.special:i0")
def i0(xp, x):
    """The modified Bessel function of the first kind, order 0 (DLMF 10.25.2).

    >>> import lucid
    >>> lucid.i0(lucid.tensor([0.0, 1.0]))
    tensor([1.    , 1.2661])
    """
    return call(xp, "i0", x)


i0.grad(x=lambda F, g, x: g * F.i1(x))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4), avoid=(0.0,))],
    reference="scipy.special:i0e")
def i0e(xp, x):
    """e^-|x| i0(x): i0 without its overflow.

    >>> import lucid
    >>> lucid.special.i0e(lucid.tensor([0.0, 1.0, 1000.0]))
    tensor([1.    , 0.4658, 0.0126])
    """
    return call(xp, "i0e", x)


i0e.grad(x=lambda F, g, x, out: g * (F.i1e(x) - F.sign(x) * out))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4)), Sample(A(value=[0.0, 1e-3]))],
    reference="scipy.special:i1")
def i1(xp, x):
    """The modified Bessel function of the first kind, order 1 (DLMF 10.25.2).

    >>> import lucid
    >>> lucid.special.i1(lucid.tensor([0.0, 1.0]))
    tensor([0.    , 0.5652])
    """
    return call(xp, "i1", x)


i1.grad(x=lambda F, g, x, out: g * (F.i0(x) - _ratio(F, x, out)))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4), avoid=(0.0,))],
    reference="scipy.special:i1e")
def i1e(xp, x):
    """e^-|x| i1(x): i1 without its overflow.

    >>> import lucid
    >>> lucid.special.i1e(lucid.tensor([0.0, 1.0, 1000.0]))
    tensor([0.    , 0.2079, 0.0126])
    """
    return call(xp, "i1e", x)


i1e.grad(x=lambda F, g, x, out: g * (F.i0e(x) - _ratio_e(F, x, out) - F.sign(x) * out))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4), avoid=(0.0,))],
    reference="scipy.special:j0")
def bessel_j0(xp, x):
    """The Bessel function of the first kind, order 0 (DLMF 10.2.2).

    >>> import lucid
    >>> lucid.special.bessel_j0(lucid.tensor([0.0, 1.0]))
    tensor([1.    , 0.7652])
    """
    return call(xp, "j0", x)


bessel_j0.grad(x=lambda F, g, x: -g * F.bessel_j1(x))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4), avoid=(0.0,))],
    reference="scipy.special:j1")
def bessel_j1(xp, x):
    """The Bessel function of the first kind, order 1 (DLMF 10.2.2).

    >>> import lucid
    >>> lucid.special.bessel_j1(lucid.tensor([0.0, 1.0]))
    tensor([0.    , 0.4401])
    """
    return call(xp, "j1", x)


def _j1_x(F: Any, g: Any, x: Any, out: Any) -> Any:
    small = F.abs(x) < 0.01
    q = x * x
    return g * (F.bessel_j0(x) - F.where(small, 0.5 - q / 16.0 + q * q / 384.0, out / F.where(small, 1.0, x)))


bessel_j1.grad(x=_j1_x)


@op(dtype="float", pointwise=True, public=False, samples=[Sample(_POSITIVE)], reference="scipy.special:y0")
def bessel_y0(xp, x):
    """The Bessel function of the second kind, order 0: -inf at 0, NaN below (DLMF 10.2.3).

    >>> import lucid
    >>> lucid.special.bessel_y0(lucid.tensor([0.5, 1.0]))
    tensor([-0.4445,  0.0883])
    """
    return call(xp, "y0", x)


bessel_y0.grad(x=lambda F, g, x: -g * F.bessel_y1(x))


@op(dtype="float", pointwise=True, public=False, samples=[Sample(_POSITIVE)], reference="scipy.special:y1")
def bessel_y1(xp, x):
    """The Bessel function of the second kind, order 1: -inf at 0, NaN below (DLMF 10.2.3).

    >>> import lucid
    >>> lucid.special.bessel_y1(lucid.tensor([0.5, 1.0]))
    tensor([-1.4715, -0.7812])
    """
    return call(xp, "y1", x)


bessel_y1.grad(x=lambda F, g, x, out: g * (F.bessel_y0(x) - out / x))


@op(dtype="float", pointwise=True, public=False, samples=[Sample(_POSITIVE)], reference="scipy.special:k0")
def modified_bessel_k0(xp, x):
    """The modified Bessel function of the second kind, order 0: inf at 0, NaN below (DLMF 10.25.3).

    >>> import lucid
    >>> lucid.special.modified_bessel_k0(lucid.tensor([0.5, 1.0]))
    tensor([0.9244, 0.421 ])
    """
    return call(xp, "k0", x)


modified_bessel_k0.grad(x=lambda F, g, x: -g * F.modified_bessel_k1(x))


@op(dtype="float", pointwise=True, public=False, samples=[Sample(_POSITIVE)], reference="scipy.special:k1")
def modified_bessel_k1(xp, x):
    """The modified Bessel function of the second kind, order 1: inf at 0, NaN below (DLMF 10.25.3).

    >>> import lucid
    >>> lucid.special.modified_bessel_k1(lucid.tensor([0.5, 1.0]))
    tensor([1.6564, 0.6019])
    """
    return call(xp, "k1", x)


modified_bessel_k1.grad(x=lambda F, g, x, out: -g * (F.modified_bessel_k0(x) + out / x))


@op(dtype="float", pointwise=True, public=False, samples=[Sample(_POSITIVE)], reference="scipy.special:k0e")
def scaled_modified_bessel_k0(xp, x):
    """e^x modified_bessel_k0(x): without its underflow.

    >>> import lucid
    >>> lucid.special.scaled_modified_bessel_k0(lucid.tensor([1.0, 1000.0]))
    tensor([1.1445, 0.0396])
    """
    return call(xp, "k0e", x)


scaled_modified_bessel_k0.grad(x=lambda F, g, x, out: g * (out - F.scaled_modified_bessel_k1(x)))


@op(dtype="float", pointwise=True, public=False, samples=[Sample(_POSITIVE)], reference="scipy.special:k1e")
def scaled_modified_bessel_k1(xp, x):
    """e^x modified_bessel_k1(x): without its underflow.

    >>> import lucid
    >>> lucid.special.scaled_modified_bessel_k1(lucid.tensor([1.0, 1000.0]))
    tensor([1.6362, 0.0396])
    """
    return call(xp, "k1e", x)


scaled_modified_bessel_k1.grad(x=lambda F, g, x, out: g * (out - F.scaled_modified_bessel_k0(x) - out / x))


@op(dtype="float", pointwise=True, public=False, samples=[Sample((3, 4))], reference=None)
def spherical_bessel_j0(xp, x):
    """The spherical Bessel function of order 0: sin(x) / x, and 1 at 0 (DLMF 10.49.3).

    >>> import lucid
    >>> lucid.special.spherical_bessel_j0(lucid.tensor([0.0, 1.0]))
    tensor([1.    , 0.8415])
    """
    return like(xp.sinc(wide(x) * (1.0 / math.pi)), x)


spherical_bessel_j0.grad(x=lambda F, g, x: -g * spherical_j1(F, x))


# ---- logit, entropy ----


@op(dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample(_UNIT), Sample(A((3, 4), low=0.0, high=1.0), eps=0.2, avoid=(0.2, 0.8))])
def logit(xp, x, eps: float | None = None):
    """log(x / (1 - x)): the inverse of the sigmoid; NaN outside [0, 1].

    eps: x is first held between eps and 1 - eps, and the derivative outside is 0.

    >>> import lucid
    >>> lucid.logit(lucid.tensor([0.5, 0.9]))
    tensor([0.    , 2.1972])
    >>> lucid.logit(lucid.tensor([0.0, 1.0]), eps=0.1)
    tensor([-2.1972,  2.1972])
    """
    if eps is not None:
        x = like(xp.minimum(xp.maximum(x, eps), 1.0 - eps), x)
    return call(xp, "logit", x)


def _logit_x(F: Any, g: Any, x: Any, eps: float | None) -> Any:
    if eps is None:
        return F.where(F.logical_or(x < 0.0, x > 1.0), math.nan, g / (x * (1.0 - x)))
    out = F.logical_or(x < eps, x > 1.0 - eps)
    safe = F.where(out, 0.5, x)
    return F.where(out, 0.0, g / (safe * (1.0 - safe)))


logit.grad(x=_logit_x)


@op(dtype="float", pointwise=True, public=False, samples=[Sample(_POSITIVE)], reference="scipy.special:entr")
def entr(xp, x):
    """-x log(x): 0 at 0, -inf below. The entropy of one outcome.

    >>> import lucid
    >>> lucid.special.entr(lucid.tensor([0.0, 0.5]))
    tensor([0.    , 0.3466])
    """
    return call(xp, "entr", x)


entr.grad(x=lambda F, g, x: -g * (1.0 + F.log(x)))
