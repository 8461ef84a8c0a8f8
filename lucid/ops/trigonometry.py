"""Element by element, one input: trigonometric and hyperbolic functions, their inverses, sinc."""

from __future__ import annotations

import math
from typing import Any

from .pointwise import like, wide
from .registry import A, Sample, op

DEGREE = math.pi / 180.0


@op(ufunc="sin", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), complex=True), Sample(())], reference="numpy:sin")
def sin(xp, x):
    """Sine of each element, x in radians.

    >>> import lucid
    >>> lucid.sin(lucid.tensor([0.0, lucid.pi / 6, lucid.pi / 2]))
    tensor([0. , 0.5, 1. ])
    """
    return xp.sin(x)


sin.grad(x=lambda F, g, x: g * F.conj(F.cos(x)))


@op(ufunc="cos", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), complex=True), Sample(())], reference="numpy:cos")
def cos(xp, x):
    """Cosine of each element, x in radians.

    >>> import lucid
    >>> lucid.cos(lucid.tensor([0.0, lucid.pi / 3, lucid.pi]))
    tensor([ 1. ,  0.5, -1. ])
    """
    return xp.cos(x)


cos.grad(x=lambda F, g, x: -g * F.conj(F.sin(x)))


@op(ufunc="tan", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=-1.2, high=1.2), complex=True)], reference="numpy:tan")
def tan(xp, x):
    """Tangent of each element, x in radians; its derivative is 1 + tan(x)^2.

    >>> import lucid
    >>> lucid.tan(lucid.tensor([0.0, lucid.pi / 4]))
    tensor([0., 1.])
    """
    return xp.tan(x)


tan.grad(x=lambda F, g, out: g * F.conj(1.0 + out * out))


@op(ufunc="arcsin", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=-0.9, high=0.9), complex=True)], reference="numpy:arcsin")
def asin(xp, x):
    """Inverse sine in radians, in [-pi/2, pi/2]; NaN outside [-1, 1].

    >>> import lucid
    >>> lucid.asin(lucid.tensor([-1.0, 0.0, 0.5]))
    tensor([-1.5708,  0.    ,  0.5236])
    """
    return xp.arcsin(x)


# (1 - x)(1 + x) keeps the digits that 1 - x^2 loses near the ends of the domain.
asin.grad(x=lambda F, g, x: g * F.conj(F.rsqrt((1.0 - x) * (1.0 + x))))


@op(ufunc="arccos", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample(A((3, 4), low=-0.9, high=0.9), complex=True)], reference="numpy:arccos")
def acos(xp, x):
    """Inverse cosine in radians, in [0, pi]; NaN outside [-1, 1].

    >>> import lucid
    >>> lucid.acos(lucid.tensor([-1.0, 0.0, 1.0]))
    tensor([3.1416, 1.5708, 0.    ])
    """
    return xp.arccos(x)


acos.grad(x=lambda F, g, x: -g * F.conj(F.rsqrt((1.0 - x) * (1.0 + x))))


@op(ufunc="arctan", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), complex=True)], reference="numpy:arctan")
def atan(xp, x):
    """Inverse tangent in radians, in [-pi/2, pi/2].

    >>> import lucid
    >>> lucid.atan(lucid.tensor([-1.0, 0.0, lucid.inf]))
    tensor([-0.7854,  0.    ,  1.5708])
    """
    return xp.arctan(x)


atan.grad(x=lambda F, g, x: g * F.conj(1.0 / (1.0 + x * x)))


@op(ufunc="sinh", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample((3, 4), complex=True)], reference="numpy:sinh")
def sinh(xp, x):
    """Hyperbolic sine of each element: (e^x - e^-x) / 2.

    >>> import lucid
    >>> lucid.sinh(lucid.tensor([-1.0, 0.0, 1.0]))
    tensor([-1.1752,  0.    ,  1.1752])
    """
    return xp.sinh(x)


sinh.grad(x=lambda F, g, x: g * F.conj(F.cosh(x)))


@op(ufunc="cosh", dtype="float", pointwise=True, method=True, inplace=True, amp="full",
    samples=[Sample((3, 4), complex=True)], reference="numpy:cosh")
def cosh(xp, x):
    """Hyperbolic cosine of each element: (e^x + e^-x) / 2.

    >>> import lucid
    >>> lucid.cosh(lucid.tensor([-1.0, 0.0, 1.0]))
    tensor([1.5431, 1.    , 1.5431])
    """
    return xp.cosh(x)


cosh.grad(x=lambda F, g, x: g * F.conj(F.sinh(x)))


@op(ufunc="arcsinh", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), complex=True)], reference="numpy:arcsinh")
def asinh(xp, x):
    """Inverse hyperbolic sine of each element: log(x + sqrt(x^2 + 1)).

    >>> import lucid
    >>> lucid.asinh(lucid.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.8814,  0.    ,  0.8814])
    """
    return xp.arcsinh(x)


asinh.grad(x=lambda F, g, x: g * F.conj(F.rsqrt(1.0 + x * x)))


@op(ufunc="arccosh", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample(A((3, 4), low=1.2, high=4.0), complex=True)], reference="numpy:arccosh")
def acosh(xp, x):
    """Inverse hyperbolic cosine of each element: log(x + sqrt(x^2 - 1)); NaN below 1.

    >>> import lucid
    >>> lucid.acosh(lucid.tensor([1.0, 2.0]))
    tensor([0.   , 1.317])
    """
    return xp.arccosh(x)


# Two roots, not the root of a product: on complex numbers only these have arccosh's branch cut.
acosh.grad(x=lambda F, g, x: g * F.conj(F.rsqrt(x - 1.0) * F.rsqrt(x + 1.0)))


@op(ufunc="arctanh", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample(A((3, 4), low=-0.9, high=0.9), complex=True)], reference="numpy:arctanh")
def atanh(xp, x):
    """Inverse hyperbolic tangent of each element: log((1 + x) / (1 - x)) / 2.

    Infinite at -1 and 1, NaN beyond.

    >>> import lucid
    >>> lucid.atanh(lucid.tensor([-0.5, 0.0, 0.5]))
    tensor([-0.5493,  0.    ,  0.5493])
    """
    return xp.arctanh(x)


atanh.grad(x=lambda F, g, x: g * F.conj(1.0 / ((1.0 - x) * (1.0 + x))))


@op(dtype="float", pointwise=True, method=True, inplace=True, samples=[Sample((3, 4)), Sample(())])
def deg2rad(xp, x):
    """Degrees as radians: x pi / 180.

    >>> import lucid
    >>> lucid.deg2rad(lucid.tensor([0.0, 90.0, 180.0]))
    tensor([0.    , 1.5708, 3.1416])
    """
    return like(x * DEGREE, x)


deg2rad.grad(x=lambda F, g: g * DEGREE)


@op(dtype="float", pointwise=True, method=True, inplace=True, samples=[Sample((3, 4)), Sample(())])
def rad2deg(xp, x):
    """Radians as degrees: 180 x / pi.

    >>> import lucid
    >>> lucid.rad2deg(lucid.tensor([0.0, lucid.pi / 2, lucid.pi]))
    tensor([  0.,  90., 180.])
    """
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
    """sin(pi x) / (pi x), and 1 at 0.

    >>> import lucid
    >>> lucid.sinc(lucid.tensor([0.0, 0.5, 1.5]))
    tensor([ 1.    ,  0.6366, -0.2122])
    """
    return like(xp.sinc(wide(x)), x)


sinc.grad(x=lambda F, g, x: g * (-math.pi * spherical_j1(F, x * math.pi)))
