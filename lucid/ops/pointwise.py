"""Element by element, one input: exponentials, rounding, parts of numbers, predicates."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from ..errors import DtypeError, ShapeError
from .common import is_low, named
from .registry import A, Sample, composite, op

LN2, LN10 = math.log(2.0), math.log(10.0)


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


# ---- exponentials, logarithms, powers ----


@op(dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample((3, 4), complex=True)], reference="numpy:exp2")
def exp2(xp, x):
    """2 to the power of each element.

    >>> import lucid
    >>> lucid.exp2(lucid.tensor([-1.0, 0.0, 3.0]))
    tensor([0.5, 1. , 8. ])
    """
    return xp.exp(x * LN2) if is_complex(x) else xp.exp2(x)    # NumPy has no complex exp2


exp2.grad(x=lambda F, g, out: g * F.conj(out) * LN2)


@op(ufunc="expm1", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample((3, 4), complex=True)], reference="numpy:expm1")
def expm1(xp, x):
    """e^x - 1, exact for small x.

    >>> import lucid
    >>> lucid.expm1(lucid.tensor(1e-10))
    tensor(1.e-10)
    """
    return xp.expm1(x)


expm1.grad(x=lambda F, g, out: g * F.conj(out + 1.0))


@op(ufunc="log2", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=0.2, high=4.0), complex=True)], reference="numpy:log2")
def log2(xp, x):
    """Logarithm to base 2: -inf at 0, NaN below.

    >>> import lucid
    >>> lucid.log2(lucid.tensor([0.5, 1.0, 8.0]))
    tensor([-1.,  0.,  3.])
    """
    return xp.log2(x)


log2.grad(x=lambda F, g, x: g / F.conj(x * LN2))


@op(ufunc="log10", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=0.2, high=4.0), complex=True)], reference="numpy:log10")
def log10(xp, x):
    """Logarithm to base 10: -inf at 0, NaN below.

    >>> import lucid
    >>> lucid.log10(lucid.tensor([0.1, 1.0, 1000.0]))
    tensor([-1.,  0.,  3.])
    """
    return xp.log10(x)


log10.grad(x=lambda F, g, x: g / F.conj(x * LN10))


@op(ufunc="log1p", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=-0.8, high=4.0), complex=True)], reference="numpy:log1p")
def log1p(xp, x):
    """Natural logarithm of 1 + x, exact for small x.

    >>> import lucid
    >>> lucid.log1p(lucid.tensor(1e-10))
    tensor(1.e-10)
    """
    return xp.log1p(x)


log1p.grad(x=lambda F, g, x: g / F.conj(x + 1.0))


@op(dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=0.2, high=4.0), complex=True)])
def rsqrt(xp, x):
    """1 / sqrt(x): inf at 0, NaN below.

    >>> import lucid
    >>> lucid.rsqrt(lucid.tensor([1.0, 4.0]))
    tensor([1. , 0.5])
    """
    return xp.reciprocal(xp.sqrt(x))


rsqrt.grad(x=lambda F, g, out: -0.5 * g * F.conj(out * out * out))


@op(pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), complex=True), Sample(())], reference="numpy:square")
def square(xp, x):
    """x^2 of each element; integers stay integers, bools become int64.

    >>> import lucid
    >>> lucid.square(lucid.tensor([-3, 2]))
    tensor([9, 4])
    """
    return xp.square(x) if x.dtype.kind != "b" else x.astype("int64")


square.grad(x=lambda F, g, x: 2.0 * g * F.conj(x))


@op(ufunc="reciprocal", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample((3, 4), avoid=(0.0,), complex=True)], reference="numpy:reciprocal")
def reciprocal(xp, x):
    """1 / x of each element; inf at 0.

    >>> import lucid
    >>> lucid.reciprocal(lucid.tensor([2.0, -4.0]))
    tensor([ 0.5 , -0.25])
    """
    return xp.reciprocal(x)


reciprocal.grad(x=lambda F, g, out: -g * F.conj(out * out))


# ---- rounding: constant between the steps, so the derivative is 0 ----


@op(pointwise=True, method=True, inplace=True, samples=[Sample((3, 4), avoid=(-2.0, -1.0, 0.0, 1.0, 2.0))],
    reference="numpy:floor")
def floor(xp, x):
    """The largest whole number <= x; integers as they are. Its derivative is 0.

    >>> import lucid
    >>> lucid.floor(lucid.tensor([-1.5, 1.5]))
    tensor([-2.,  1.])
    """
    return x.copy() if is_integral(x) else xp.floor(x)


floor.grad(x=no_slope)


@op(pointwise=True, method=True, inplace=True, samples=[Sample((3, 4), avoid=(-2.0, -1.0, 0.0, 1.0, 2.0))],
    reference="numpy:ceil")
def ceil(xp, x):
    """The smallest whole number >= x; integers as they are. Its derivative is 0.

    >>> import lucid
    >>> lucid.ceil(lucid.tensor([-1.5, 1.5]))
    tensor([-1.,  2.])
    """
    return x.copy() if is_integral(x) else xp.ceil(x)


ceil.grad(x=no_slope)


@op(pointwise=True, method=True, inplace=True, samples=[Sample((3, 4), avoid=(-2.0, -1.0, 0.0, 1.0, 2.0))],
    reference="numpy:trunc")
def trunc(xp, x):
    """x without its fraction, towards 0; integers as they are. Its derivative is 0.

    >>> import lucid
    >>> lucid.trunc(lucid.tensor([-1.5, 1.5]))
    tensor([-1.,  1.])
    """
    return x.copy() if is_integral(x) else xp.trunc(x)


trunc.grad(x=no_slope)


@op(pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), avoid=(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5)),
             Sample(A(value=[1.234, -5.678, 12.5]), decimals=1)],
    reference="numpy:round")
def round_(xp, x, *, decimals: int = 0):
    """x to `decimals` places, ties to the even neighbour; integers as they are.

    decimals < 0 rounds to tens, hundreds, ... The derivative is 0.

    >>> import lucid
    >>> lucid.round(lucid.tensor([0.5, 1.5, 2.5]))
    tensor([0., 2., 2.])
    >>> lucid.round(lucid.tensor(3.14159), decimals=2)
    tensor(3.14)
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
    """The fraction of x, with its sign: x - trunc(x).

    Raises DtypeError for integers.

    >>> import lucid
    >>> lucid.frac(lucid.tensor([-1.5, 1.25]))
    tensor([-0.5 ,  0.25])
    """
    if is_integral(x):
        raise DtypeError(f"frac: expected a floating dtype, got {x.dtype.name}; convert with .float()")
    return x - xp.trunc(x)


frac.grad(x=lambda F, g: g)


# ---- parts of a number ----


@op(ufunc="positive", pointwise=True, public=False, samples=[Sample((3, 4), complex=True)],
    reference="numpy:positive")
def positive(xp, x):
    """x as a new array."""
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
    """The sign of x: -1, 0, 1 (NaN stays NaN); for complex x the unit number x / |x|, and 0 at 0.

    >>> import lucid
    >>> lucid.sgn(lucid.tensor([3 + 4j, 0j]))
    tensor([0.6+0.8j, 0. +0.j ], dtype=complex64)
    """
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
    """The argument of x in radians: 0 for x >= 0, pi for x < 0, atan2(imag, real) for complex x.

    >>> import lucid
    >>> lucid.angle(lucid.tensor([1 + 1j, -1 + 0j]))
    tensor([0.7854, 3.1416])
    """
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

    >>> import lucid
    >>> lucid.nan_to_num(lucid.tensor([lucid.nan, lucid.inf, 1.0]), nan=0.0, posinf=9.0)
    tensor([0., 9., 1.])
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
    """(mantissa, exponent) with x = mantissa 2^exponent, 0.5 <= |mantissa| < 1.

    x: any shape, floating, else DtypeError. The mantissa has x's dtype, the exponent is int32 and has no
    gradient.

    >>> import lucid
    >>> lucid.frexp(lucid.tensor([8.0, 0.75]))
    (tensor([0.5 , 0.75]), tensor([4, 0], dtype=int32))
    """
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

    x: complex, any shape, else DtypeError. Returns shape (*x.shape, 2): real and imaginary part, in x's
    memory.

    >>> import lucid
    >>> lucid.view_as_real(lucid.tensor([1 + 2j]))
    tensor([[1., 2.]])
    """
    if not is_complex(x):
        raise DtypeError(f"view_as_real: expected a complex dtype, got {x.dtype.name}")
    real = "float32" if x.dtype.itemsize == 8 else "float64"
    return x[..., None].view(real)


view_as_real.grad(x=lambda F, g: F.view_as_complex(g))


@op(view=True, method=False, samples=[Sample((3, 2))])
def view_as_complex(xp, x):
    """The complex view of a float32 or float64 array of pairs.

    x: shape (..., 2), the last dimension contiguous. Returns shape (...), in x's memory. Raises DtypeError
    for other dtypes, ShapeError for another last size.

    >>> import lucid
    >>> lucid.view_as_complex(lucid.tensor([[1.0, 2.0]]))
    tensor([1.+2.j], dtype=complex64)
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
    """Whether the sign bit is set: true for negative numbers and -0.0.

    >>> import lucid
    >>> lucid.signbit(lucid.tensor([-1.0, -0.0, 0.0]))
    tensor([ True,  True, False])
    """
    return xp.zeros(x.shape,
                    "bool") if x.dtype.kind in "ub" else x < 0 if x.dtype.kind == "i" else xp.signbit(x)


@op(pointwise=True, method=True, diff=(), samples=[Sample((3, 4))], reference="numpy:isnan")
def isnan(xp, x):
    """Whether each element is NaN (for complex: whether a part is).

    >>> import lucid
    >>> lucid.isnan(lucid.tensor([1.0, lucid.nan, lucid.inf]))
    tensor([False,  True, False])
    """
    return x != x


@op(ufunc="isinf", pointwise=True, method=True, diff=(), samples=[Sample((3, 4))], reference="numpy:isinf")
def isinf(xp, x):
    """Whether each element is inf or -inf.

    >>> import lucid
    >>> lucid.isinf(lucid.tensor([1.0, lucid.nan, -lucid.inf]))
    tensor([False, False,  True])
    """
    return xp.isinf(x)


@op(ufunc="isfinite", pointwise=True, method=True, diff=(), samples=[Sample((3, 4))],
    reference="numpy:isfinite")
def isfinite(xp, x):
    """Whether each element is neither NaN nor infinite.

    >>> import lucid
    >>> lucid.isfinite(lucid.tensor([1.0, lucid.nan, lucid.inf]))
    tensor([ True, False, False])
    """
    return xp.isfinite(x)


def _ordered(name: str, x: Any) -> Any:
    if is_complex(x):
        raise DtypeError(f"{name}: expected a real dtype, got {x.dtype.name}; test its .real and .imag")
    return x


@op(pointwise=True, method=True, diff=(), samples=[Sample((3, 4))], reference="numpy:isposinf")
def isposinf(xp, x):
    """Whether each element is inf. Raises DtypeError for complex numbers.

    >>> import lucid
    >>> lucid.isposinf(lucid.tensor([lucid.inf, -lucid.inf]))
    tensor([ True, False])
    """
    return _ordered("isposinf", x) == math.inf


@op(pointwise=True, method=True, diff=(), samples=[Sample((3, 4))], reference="numpy:isneginf")
def isneginf(xp, x):
    """Whether each element is -inf. Raises DtypeError for complex numbers.

    >>> import lucid
    >>> lucid.isneginf(lucid.tensor([lucid.inf, -lucid.inf]))
    tensor([False,  True])
    """
    return _ordered("isneginf", x) == -math.inf


@op(pointwise=True, method=True, diff=(), samples=[Sample((3, 4))], reference="numpy:isreal")
def isreal(xp, x):
    """Whether each element has imaginary part 0: true for every real dtype.

    >>> import lucid
    >>> lucid.isreal(lucid.tensor([1 + 0j, 1 + 1j]))
    tensor([ True, False])
    """
    return x.imag == 0 if is_complex(x) else xp.ones(x.shape, "bool")


@composite(samples=[Sample(A((3,), low=0.1, high=2.0), (3,))])
@named("polar")
def polar(F, abs, angle):
    """The complex numbers of absolute value `abs` and argument `angle`: abs cos(angle) + i abs sin(angle).

    abs, angle: float32 or float64, shapes that broadcast together. Returns complex64 or complex128.

    >>> import lucid
    >>> lucid.polar(lucid.tensor([1.0, 2.0]), lucid.tensor([0.0, lucid.pi / 3]))
    tensor([1.+0.j    , 1.+1.7321j], dtype=complex64)
    """
    return F.complex(abs * F.cos(angle), abs * F.sin(angle))
