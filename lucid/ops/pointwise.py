"""Element by element, one input: trigonometry, exponentials, rounding, parts of numbers, predicates."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from ..errors import DtypeError, ShapeError
from .common import is_low, named
from .registry import A, Sample, composite, op

LN2, LN10 = math.log(2.0), math.log(10.0)
DEGREE = math.pi / 180.0


def like(out: Any, x: Any) -> Any:
    """`out` in the dtype of `x`: a Python number beside bfloat16 gives float32 in NumPy."""
    return out if out.dtype == x.dtype else out.astype(x.dtype)


def wide(x: Any) -> Any:
    """`x`, in float32 when it is float16 or bfloat16: a chain of steps then rounds once."""
    return x.astype("float32") if is_low(x.dtype) else x


def is_integral(x: Any) -> bool:
    """Whether `x` holds integers or bools."""
    return x.dtype.kind in "iub"


def is_complex(x: Any) -> bool:
    """Whether `x` holds complex numbers."""
    return x.dtype.kind == "c"


def no_slope(F: Any, g: Any) -> Any:
    """Zeros: the derivative of a function that is constant between its steps."""
    return F.zeros_like(g)


# ---- trigonometric and hyperbolic ----


@op(ufunc="sin", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), complex=True), Sample(())], reference="numpy:sin")
def sin(xp, x):
    """Sine of each element, x in radians."""
    return xp.sin(x)


sin.grad(x=lambda F, g, x: g * F.conj(F.cos(x)))


@op(ufunc="cos", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), complex=True), Sample(())], reference="numpy:cos")
def cos(xp, x):
    """Cosine of each element, x in radians."""
    return xp.cos(x)


cos.grad(x=lambda F, g, x: -g * F.conj(F.sin(x)))


@op(ufunc="tan", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=-1.2, high=1.2), complex=True)], reference="numpy:tan")
def tan(xp, x):
    """Tangent of each element, x in radians; its derivative is 1 + tan(x)^2."""
    return xp.tan(x)


tan.grad(x=lambda F, g, out: g * F.conj(1.0 + out * out))


@op(ufunc="arcsin", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=-0.9, high=0.9), complex=True)], reference="numpy:arcsin")
def asin(xp, x):
    """Inverse sine in radians, in [-pi/2, pi/2]; NaN outside [-1, 1]."""
    return xp.arcsin(x)


# (1 - x)(1 + x) keeps the digits that 1 - x^2 loses near the ends of the domain.
asin.grad(x=lambda F, g, x: g * F.conj(F.rsqrt((1.0 - x) * (1.0 + x))))


@op(ufunc="arccos", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=-0.9, high=0.9), complex=True)], reference="numpy:arccos")
def acos(xp, x):
    """Inverse cosine in radians, in [0, pi]; NaN outside [-1, 1]."""
    return xp.arccos(x)


acos.grad(x=lambda F, g, x: -g * F.conj(F.rsqrt((1.0 - x) * (1.0 + x))))


@op(ufunc="arctan", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), complex=True)], reference="numpy:arctan")
def atan(xp, x):
    """Inverse tangent in radians, in [-pi/2, pi/2]."""
    return xp.arctan(x)


atan.grad(x=lambda F, g, x: g * F.conj(1.0 / (1.0 + x * x)))


@op(ufunc="sinh", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample((3, 4), complex=True)], reference="numpy:sinh")
def sinh(xp, x):
    """Hyperbolic sine of each element: (e^x - e^-x) / 2."""
    return xp.sinh(x)


sinh.grad(x=lambda F, g, x: g * F.conj(F.cosh(x)))


@op(ufunc="cosh", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample((3, 4), complex=True)], reference="numpy:cosh")
def cosh(xp, x):
    """Hyperbolic cosine of each element: (e^x + e^-x) / 2."""
    return xp.cosh(x)


cosh.grad(x=lambda F, g, x: g * F.conj(F.sinh(x)))


@op(ufunc="arcsinh", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), complex=True)], reference="numpy:arcsinh")
def asinh(xp, x):
    """Inverse hyperbolic sine of each element."""
    return xp.arcsinh(x)


asinh.grad(x=lambda F, g, x: g * F.conj(F.rsqrt(1.0 + x * x)))


@op(ufunc="arccosh", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample(A((3, 4), low=1.2, high=4.0), complex=True)], reference="numpy:arccosh")
def acosh(xp, x):
    """Inverse hyperbolic cosine of each element; NaN below 1."""
    return xp.arccosh(x)


# Two roots, not the root of a product: on complex numbers only these have arccosh's branch cut.
acosh.grad(x=lambda F, g, x: g * F.conj(F.rsqrt(x - 1.0) * F.rsqrt(x + 1.0)))


@op(ufunc="arctanh", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample(A((3, 4), low=-0.9, high=0.9), complex=True)], reference="numpy:arctanh")
def atanh(xp, x):
    """Inverse hyperbolic tangent of each element; infinite at -1 and 1, NaN beyond."""
    return xp.arctanh(x)


atanh.grad(x=lambda F, g, x: g * F.conj(1.0 / ((1.0 - x) * (1.0 + x))))


@op(dtype="float", pointwise=True, method=True, inplace=True, samples=[Sample((3, 4)), Sample(())])
def deg2rad(xp, x):
    """Degrees as radians: x pi / 180."""
    return like(x * DEGREE, x)


deg2rad.grad(x=lambda F, g: g * DEGREE)


@op(dtype="float", pointwise=True, method=True, inplace=True, samples=[Sample((3, 4)), Sample(())])
def rad2deg(xp, x):
    """Radians as degrees: 180 x / pi."""
    return like(x * (1.0 / DEGREE), x)


rad2deg.grad(x=lambda F, g: g * (1.0 / DEGREE))


def spherical_j1(F: Any, z: Any) -> Any:
    """(sin z - z cos z) / z^2: the spherical Bessel function of order 1, minus the derivative of sin(z) / z.

    Near 0 the two terms cancel; five terms of the series are exact to 1e-14 for |z| < 0.5 (DLMF 10.53.1).
    """
    small = F.abs(z) < 0.5
    safe = F.where(small, 1.0, z)
    q = z * z
    tail = 1.0 - q / 54.0 * (1.0 - q / 88.0 * (1.0 - q / 130.0))
    series = z / 3.0 * (1.0 - q / 10.0 * (1.0 - q / 28.0 * tail))
    return F.where(small, series, (F.sin(safe) - safe * F.cos(safe)) / (safe * safe))


@op(dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4)), Sample(A(value=[0.0, 1e-3, 0.2]))], reference="numpy:sinc")
def sinc(xp, x):
    """sin(pi x) / (pi x), and 1 at 0."""
    return like(xp.sinc(wide(x)), x)


sinc.grad(x=lambda F, g, x: g * (-math.pi * spherical_j1(F, x * math.pi)))


# ---- exponentials, logarithms, powers ----


@op(dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample((3, 4), complex=True)], reference="numpy:exp2")
def exp2(xp, x):
    """2 to the power of each element."""
    return xp.exp(x * LN2) if is_complex(x) else xp.exp2(x)    # NumPy has no complex exp2


exp2.grad(x=lambda F, g, out: g * F.conj(out) * LN2)


@op(ufunc="expm1", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample((3, 4), complex=True)], reference="numpy:expm1")
def expm1(xp, x):
    """e^x - 1, exact for small x."""
    return xp.expm1(x)


expm1.grad(x=lambda F, g, out: g * F.conj(out + 1.0))


@op(ufunc="log2", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=0.2, high=4.0), complex=True)], reference="numpy:log2")
def log2(xp, x):
    """Logarithm to base 2: -inf at 0, NaN below."""
    return xp.log2(x)


log2.grad(x=lambda F, g, x: g / F.conj(x * LN2))


@op(ufunc="log10", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=0.2, high=4.0), complex=True)], reference="numpy:log10")
def log10(xp, x):
    """Logarithm to base 10: -inf at 0, NaN below."""
    return xp.log10(x)


log10.grad(x=lambda F, g, x: g / F.conj(x * LN10))


@op(ufunc="log1p", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=-0.8, high=4.0), complex=True)], reference="numpy:log1p")
def log1p(xp, x):
    """Natural logarithm of 1 + x, exact for small x."""
    return xp.log1p(x)


log1p.grad(x=lambda F, g, x: g / F.conj(x + 1.0))


@op(dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=0.2, high=4.0), complex=True)])
def rsqrt(xp, x):
    """1 / sqrt(x): inf at 0, NaN below."""
    return xp.reciprocal(xp.sqrt(x))


rsqrt.grad(x=lambda F, g, out: -0.5 * g * F.conj(out * out * out))


@op(ufunc="square", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), complex=True), Sample(())], reference="numpy:square")
def square(xp, x):
    """x^2 of each element; integers stay integers."""
    return xp.square(x)


square.grad(x=lambda F, g, x: 2.0 * g * F.conj(x))


@op(ufunc="reciprocal", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample((3, 4), avoid=(0.0,), complex=True)], reference="numpy:reciprocal")
def reciprocal(xp, x):
    """1 / x of each element; inf at 0."""
    return xp.reciprocal(x)


reciprocal.grad(x=lambda F, g, out: -g * F.conj(out * out))


# ---- rounding: constant between the steps, so the derivative is 0 ----


@op(pointwise=True, method=True, inplace=True, samples=[Sample((3, 4), avoid=(-2.0, -1.0, 0.0, 1.0, 2.0))],
    reference="numpy:floor")
def floor(xp, x):
    """The largest whole number <= x; integers as they are."""
    return x.copy() if is_integral(x) else xp.floor(x)


floor.grad(x=no_slope)


@op(pointwise=True, method=True, inplace=True, samples=[Sample((3, 4), avoid=(-2.0, -1.0, 0.0, 1.0, 2.0))],
    reference="numpy:ceil")
def ceil(xp, x):
    """The smallest whole number >= x; integers as they are."""
    return x.copy() if is_integral(x) else xp.ceil(x)


ceil.grad(x=no_slope)


@op(pointwise=True, method=True, inplace=True, samples=[Sample((3, 4), avoid=(-2.0, -1.0, 0.0, 1.0, 2.0))],
    reference="numpy:trunc")
def trunc(xp, x):
    """x without its fraction, towards 0; integers as they are."""
    return x.copy() if is_integral(x) else xp.trunc(x)


trunc.grad(x=no_slope)


@op(pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), avoid=(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5)),
             Sample(A(value=[1.234, -5.678, 12.5]), decimals=1)],
    reference="numpy:round")
def round_(xp, x, *, decimals: int = 0):
    """x to `decimals` places, ties to the even neighbour; integers as they are.

    decimals < 0 rounds to tens, hundreds, ...
    """
    if is_integral(x):
        return x.copy()
    if decimals == 0:
        return xp.rint(x)
    scale = 10.0 ** abs(decimals)
    w = wide(x)
    return like(xp.rint(w * scale) / scale if decimals > 0 else xp.rint(w / scale) * scale, x)


round_.grad(x=no_slope)


@op(pointwise=True, method=True, inplace=True, samples=[Sample((3, 4), avoid=(-2.0, -1.0, 0.0, 1.0, 2.0))])
def frac(xp, x):
    """The fraction of x, with its sign: x - trunc(x)."""
    if is_integral(x):
        raise DtypeError(f"frac: expected a floating dtype, got {x.dtype.name}; convert with .float()")
    return x - xp.trunc(x)


frac.grad(x=lambda F, g: g)


# ---- parts of a number ----


@op(ufunc="positive", pointwise=True, method=True, samples=[Sample((3, 4), complex=True)],
    reference="numpy:positive")
def positive(xp, x):
    """x itself, as a new array: +x."""
    return xp.positive(x)


positive.grad(x=lambda F, g: g)


def _sgn_x(F: Any, g: Any, x: Any, out: Any) -> Any:
    if x.dtype.kind != "c":
        return F.zeros_like(g)
    # Moving x along its own direction changes nothing: only the part of g across it counts.
    size = F.abs(x)
    zero = F.eq(size, 0.0)
    across = g - F.real(g * F.conj(out)) * out
    return F.where(zero, 0.0, across / F.where(zero, 1.0, size))


@op(pointwise=True, method=True, inplace=True, samples=[Sample((3, 4), avoid=(0.0,), complex=True)],
    reference="numpy:sign")
def sgn(xp, x):
    """The sign of x: -1, 0, 1; for complex x the unit number x / |x|, and 0 at 0."""
    if not is_complex(x):
        return x.copy() if x.dtype.kind == "b" else xp.sign(x)
    size = xp.abs(x)
    return x / xp.where(size == 0, xp.ones_like(size), size)


sgn.grad(x=_sgn_x)


def _angle_x(F: Any, g: Any, x: Any) -> Any:
    if x.dtype.kind != "c":
        return F.zeros_like(g)
    # d atan2(b, a) = (-b da + a db) / |x|^2, and 0 at 0.
    re, im = F.real(x), F.imag(x)
    q = re * re + im * im
    s = g / F.where(F.eq(q, 0.0), 1.0, q)
    return F.complex(-im * s, re * s)


@op(dtype="float", pointwise=True, method=True, samples=[Sample((3, 4), avoid=(0.0,), complex=True)],
    reference="numpy:angle")
def angle(xp, x):
    """The argument of x in radians: 0 for x >= 0, pi for x < 0, atan2(imag, real) for complex x."""
    if is_complex(x):
        return xp.arctan2(x.imag, x.real)
    out = like(xp.where(x < 0, math.pi, 0.0), x)
    return xp.where(xp.isnan(x), x, out)


angle.grad(x=_angle_x)


def _bounds(dtype: Any) -> tuple[float, float]:
    info = ml_dtypes.finfo(dtype)    # unlike NumPy's, it also knows bfloat16
    return float(info.min), float(info.max)


@op(pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4)), Sample(A(value=[1.0, -3.0, 2.0]), 0.5, 2.0, -2.0)])
def nan_to_num(xp, x, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None):
    """x with NaN, inf and -inf replaced.

    posinf, neginf: default the largest and the smallest number of the dtype. The derivative is 1 at finite
    elements, else 0.
    """
    if is_integral(x):
        return x.copy()
    if is_complex(x):
        re, im = (nan_to_num.forward(xp, part, nan, posinf, neginf) for part in (x.real, x.imag))
        return re + 1j * im
    low, high = _bounds(x.dtype)
    full = x.dtype.type
    out = xp.where(xp.isnan(x), full(0.0 if nan is None else nan), x)
    out = xp.where(x == math.inf, full(high if posinf is None else posinf), out)
    return xp.where(x == -math.inf, full(low if neginf is None else neginf), out)


nan_to_num.grad(x=lambda F, g, x: F.where(F.isfinite(x), g, 0.0))


@op(method=True, broadcast=False, outputs=("mantissa", "exponent"), diff=("mantissa",),
    samples=[Sample((3, 4), second=False)])
def frexp(xp, x):
    """(mantissa, exponent) with x = mantissa 2^exponent, 0.5 <= |mantissa| < 1; the exponent is int32."""
    if is_integral(x) or is_complex(x):
        raise DtypeError(f"frexp: expected a floating dtype, got {x.dtype.name}; convert with .float()")
    mantissa, exponent = xp.frexp(wide(x))    # CuPy has no bfloat16 frexp
    return like(mantissa, x), exponent


# Two halves: 2^-exponent alone overflows for the smallest numbers.
frexp.grad(x=lambda F, g, exponent: g * F.exp2(-0.5 * F.cast(exponent,
                                                             g.dtype)) * F.exp2(-0.5 * F.cast(exponent,
                                                                                              g.dtype)))


@op(view=True, method=False, samples=[Sample(A((3, 4), dtype="complex128"))])
def view_as_real(xp, x):
    """The real view of a complex array.

    x: complex, any shape. Returns shape (*x.shape, 2): real and imaginary part, in x's memory.
    """
    if not is_complex(x):
        raise DtypeError(f"view_as_real: expected a complex dtype, got {x.dtype.name}")
    real = "float32" if x.dtype.itemsize == 8 else "float64"
    return x[..., None].view(real)


view_as_real.grad(x=lambda F, g: F.view_as_complex(g))


@op(view=True, method=False, samples=[Sample((3, 2))])
def view_as_complex(xp, x):
    """The complex view of a float32 or float64 array of pairs.

    x: shape (..., 2), the last dimension contiguous. Returns shape (...), in x's memory.
    """
    kind = {"float32": "complex64", "float64": "complex128"}.get(x.dtype.name)
    if kind is None:
        raise DtypeError(f"view_as_complex: expected float32 or float64, got {x.dtype.name}; convert first")
    if not x.ndim or x.shape[-1] != 2:
        raise ShapeError(f"view_as_complex: expected a last dimension of size 2 (re, im), got {x.shape}")
    return xp.ascontiguousarray(x).view(kind)[..., 0]


view_as_complex.grad(x=lambda F, g: F.view_as_real(g))


# ---- predicates ----


@op(pointwise=True, method=True, diff=(), samples=[Sample((3, 4))], reference="numpy:signbit")
def signbit(xp, x):
    """Whether the sign bit is set: true for negative numbers and -0.0."""
    return xp.zeros(x.shape,
                    "bool") if x.dtype.kind in "ub" else x < 0 if x.dtype.kind == "i" else xp.signbit(x)


@op(pointwise=True, method=True, diff=(), samples=[Sample((3, 4))], reference="numpy:isnan")
def isnan(xp, x):
    """Whether each element is NaN (for complex: whether a part is)."""
    return x != x


@op(ufunc="isinf", pointwise=True, method=True, diff=(), samples=[Sample((3, 4))], reference="numpy:isinf")
def isinf(xp, x):
    """Whether each element is inf or -inf."""
    return xp.isinf(x)


@op(ufunc="isfinite", pointwise=True, method=True, diff=(), samples=[Sample((3, 4))],
    reference="numpy:isfinite")
def isfinite(xp, x):
    """Whether each element is neither NaN nor infinite."""
    return xp.isfinite(x)


def _ordered(name: str, x: Any) -> Any:
    if is_complex(x):
        raise DtypeError(f"{name}: expected a real dtype, got {x.dtype.name}; test its .real and .imag")
    return x


@op(pointwise=True, method=True, diff=(), samples=[Sample((3, 4))], reference="numpy:isposinf")
def isposinf(xp, x):
    """Whether each element is inf."""
    return _ordered("isposinf", x) == math.inf


@op(pointwise=True, method=True, diff=(), samples=[Sample((3, 4))], reference="numpy:isneginf")
def isneginf(xp, x):
    """Whether each element is -inf."""
    return _ordered("isneginf", x) == -math.inf


@op(pointwise=True, method=True, diff=(), samples=[Sample((3, 4))], reference="numpy:isreal")
def isreal(xp, x):
    """Whether each element has imaginary part 0: true for every real dtype."""
    return x.imag == 0 if is_complex(x) else xp.ones(x.shape, "bool")


@composite(samples=[Sample(A((3,), low=0.1, high=2.0), (3,))])
@named("polar")
def polar(F, abs, angle):
    """The complex numbers of absolute value `abs` and argument `angle`: abs cos(angle) + i abs sin(angle)."""
    return F.complex(abs * F.cos(angle), abs * F.sin(angle))
