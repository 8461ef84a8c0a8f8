"""Element by element, inputs that broadcast together: quotients, bounds, interpolation, integers."""

from __future__ import annotations

from typing import Any

from ..errors import DtypeError
from .common import named, need_order, no_zeros, special
from .pointwise import LN2, is_integral, like
from .registry import A, Sample, composite, op

_TIES = A(value=[1.0, 2.0, -1.0])
_POSITIVE = A((3, 4), low=0.3, high=3.0)


# ---- quotients and remainders ----


@op(dtype="promote", pointwise=True, method=True, inplace=True,
    samples=[Sample(A(value=[5.0, -5.0, 7.5]), A(value=[3.0, 3.0, -2.0]))], reference="numpy:floor_divide")
def floor_divide(xp, x, y):
    """The largest whole number <= x / y, in the promoted dtype. Its derivative is 0.

    Raises DivisionError for integers that are divided by 0 on the CPU.

    >>> import lucid
    >>> lucid.floor_divide(lucid.tensor([7, -7]), 2)
    tensor([ 3, -4])
    """
    no_zeros("floor_divide", xp, x, y)
    return xp.floor_divide(x, y)


floor_divide.grad(x=lambda F, g: F.zeros_like(g), y=lambda F, g: F.zeros_like(g))


@op(dtype="promote", pointwise=True, public=False,
    samples=[Sample(A(value=[5.0, -5.0, 7.5]), A(value=[3.0, 3.0, -2.0]))])
def div_trunc(xp, x, y):
    """x / y without its fraction, towards 0, in the promoted dtype. Its derivative is 0."""
    no_zeros("div", xp, x, y)
    if not is_integral(x):
        return xp.trunc(xp.true_divide(x, y))
    q = xp.floor_divide(x, y)
    # C's integer division: one more than the floor where the quotient is negative and not exact.
    return q + ((q < 0) & (q * y != x)).astype(q.dtype)


div_trunc.grad(x=lambda F, g: F.zeros_like(g), y=lambda F, g: F.zeros_like(g))


@op(dtype="promote", pointwise=True, method=True, inplace=True,
    samples=[Sample(A((3, 4), low=3.2, high=3.8), A((4,), low=1.1, high=1.4)),
             Sample(A(value=[5.0, -5.0]), A(value=[3.0, 3.0]))],
    reference="numpy:remainder")
def remainder(xp, x, y):
    """x - y floor(x / y), with the sign of y: Python's `%`.

    Raises DivisionError for integers that are divided by 0 on the CPU.

    >>> import lucid
    >>> lucid.remainder(lucid.tensor([7, -7]), 3)
    tensor([1, 2])
    """
    no_zeros("remainder", xp, x, y)
    return xp.remainder(x, y)


remainder.grad(x=lambda F, g: g, y=lambda F, g, x, y: -g * F.floor_divide(x, y))


@op(dtype="promote", pointwise=True, method=True, inplace=True,
    samples=[Sample(A((3, 4), low=3.2, high=3.8), A((4,), low=1.1, high=1.4)),
             Sample(A(value=[5.0, -5.0]), A(value=[3.0, 3.0]))],
    reference="numpy:fmod")
def fmod(xp, x, y):
    """x - y trunc(x / y), with the sign of x: C's fmod.

    Raises DivisionError for integers that are divided by 0 on the CPU.

    >>> import lucid
    >>> lucid.fmod(lucid.tensor([7, -7]), 3)
    tensor([ 1, -1])
    """
    no_zeros("fmod", xp, x, y)
    return xp.fmod(x, y)


fmod.grad(x=lambda F, g: g, y=lambda F, g, x, y: -g * F.div_trunc(x, y))


# ---- larger, smaller, bounds ----


def _shared(F: Any, g: Any, lost: Any, x: Any, y: Any) -> Any:
    # PyTorch: half of the gradient each at a tie, all of it to both where one is NaN.
    return F.where(F.eq(x, y), 0.5 * g, F.where(lost, 0.0, g))


@op(ordered=True, ufunc="maximum", dtype="promote", pointwise=True, method=True,
    samples=[Sample((3, 4), (4,)), Sample((3, 1), (1, 4))], reference="numpy:maximum")
def maximum(xp, x, y):
    """The larger of x and y; NaN where one is NaN. At a tie each gets half of the gradient.

    >>> import lucid
    >>> lucid.maximum(lucid.tensor([1.0, lucid.nan]), lucid.tensor([2.0, 0.0]))
    tensor([ 2., nan])
    """
    return xp.maximum(x, y)


maximum.grad(x=lambda F, g, x, y: _shared(F, g, x < y, x, y), y=lambda F, g, x, y: _shared(F, g, y < x, x, y))


@op(ordered=True, ufunc="minimum", dtype="promote", pointwise=True, method=True,
    samples=[Sample((3, 4), (4,)), Sample((3, 1), (1, 4))], reference="numpy:minimum")
def minimum(xp, x, y):
    """The smaller of x and y; NaN where one is NaN. At a tie each gets half of the gradient.

    >>> import lucid
    >>> lucid.minimum(lucid.tensor([1.0, lucid.nan]), lucid.tensor([2.0, 0.0]))
    tensor([ 1., nan])
    """
    return xp.minimum(x, y)


minimum.grad(x=lambda F, g, x, y: _shared(F, g, x > y, x, y), y=lambda F, g, x, y: _shared(F, g, y > x, x, y))


def _kept(F: Any, better: Any, y: Any) -> Any:
    return F.logical_or(better, F.isnan(y))


@op(ordered=True, ufunc="fmax", dtype="promote", pointwise=True, method=True, samples=[Sample((3, 4), (4,))],
    reference="numpy:fmax")
def fmax(xp, x, y):
    """The larger of x and y; the other one where one is NaN. At a tie x gets the gradient.

    >>> import lucid
    >>> lucid.fmax(lucid.tensor([1.0, lucid.nan]), lucid.tensor([2.0, 0.0]))
    tensor([2., 0.])
    """
    return xp.fmax(x, y)


fmax.grad(x=lambda F, g, x, y: F.where(_kept(F, x >= y, y), g, 0.0), y=lambda F, g, x,
          y: F.where(_kept(F, x >= y, y), 0.0, g))


@op(ordered=True, ufunc="fmin", dtype="promote", pointwise=True, method=True, samples=[Sample((3, 4), (4,))],
    reference="numpy:fmin")
def fmin(xp, x, y):
    """The smaller of x and y; the other one where one is NaN. At a tie x gets the gradient.

    >>> import lucid
    >>> lucid.fmin(lucid.tensor([1.0, lucid.nan]), lucid.tensor([2.0, 0.0]))
    tensor([1., 0.])
    """
    return xp.fmin(x, y)


fmin.grad(x=lambda F, g, x, y: F.where(_kept(F, x <= y, y), g, 0.0), y=lambda F, g, x,
          y: F.where(_kept(F, x <= y, y), 0.0, g))


@op(ordered=True, ufunc="maximum", dtype="promote", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), (4,)), Sample((3, 4), 0.5, avoid=(0.5,))], reference="numpy:maximum")
def clamp_min(xp, x, min):
    """x, and `min` where x is smaller. At the bound x gets the gradient.

    >>> import lucid
    >>> lucid.clamp_min(lucid.tensor([-2.0, 0.5]), 0.0)
    tensor([0. , 0.5])
    """
    return xp.maximum(x, min)


clamp_min.grad(x=lambda F, g, x, min: F.where(x >= min, g, 0.0), min=lambda F, g, x,
               min: F.where(x < min, g, 0.0))


@op(ordered=True, ufunc="minimum", dtype="promote", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), (4,)), Sample((3, 4), 0.5, avoid=(0.5,))], reference="numpy:minimum")
def clamp_max(xp, x, max):
    """x, and `max` where x is larger. At the bound x gets the gradient.

    >>> import lucid
    >>> lucid.clamp_max(lucid.tensor([-2.0, 0.5]), 0.0)
    tensor([-2.,  0.])
    """
    return xp.minimum(x, max)


clamp_max.grad(x=lambda F, g, x, max: F.where(x <= max, g, 0.0), max=lambda F, g, x,
               max: F.where(x > max, g, 0.0))


@op(dtype="promote", pointwise=True,
    samples=[Sample((3, 4), -0.5, 0.5, avoid=(-0.5, 0.5)),
             Sample((3, 4), A((4,), low=-0.9, high=-0.4), A((3, 1), low=0.4, high=0.9))])
def clamp(xp, x, min, max):
    """x held between `min` and `max`: the smaller of max(x, min) and max.

    Inside, and at the bounds, x gets the gradient; outside, the bound taken. Where min > max it is max.
    """
    need_order("clamp", x)
    return xp.minimum(xp.maximum(x, min), max)


clamp.grad(x=lambda F, g, x, min, max: F.where(F.logical_and(x >= min, x <= max), g, 0.0),
           min=lambda F, g, x, min, max: F.where(F.logical_and(x < min, min < max), g, 0.0),
           max=lambda F, g, x, min, max: F.where(F.logical_or(x > max, max < min), g, 0.0))


@op(dtype="promote", pointwise=True, method=True, diff=(), inplace=True, samples=[Sample((3, 4), (3, 4))],
    reference="numpy:heaviside")
def heaviside(xp, x, values):
    """The step function: 0 for x < 0, `values` at 0, 1 for x > 0.

    >>> import lucid
    >>> lucid.heaviside(lucid.tensor([-2.0, 0.0, 2.0]), lucid.tensor(0.5))
    tensor([0. , 0.5, 1. ])
    """
    need_order("heaviside", x)
    step = like(xp.where(x > 0, 1, 0), values)
    return xp.where(x != x, x, xp.where(x == 0, values, step))


# ---- interpolation and fused products ----


@op(dtype="promote", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), (4,), 0.3), Sample((3, 4), (3, 4), A((3, 4), low=0.0, high=1.0))])
def lerp(xp, x, end, weight):
    """x + weight (end - x): the point between x (weight 0) and `end` (weight 1).

    >>> import lucid
    >>> lucid.lerp(lucid.tensor([0.0, 10.0]), lucid.tensor([4.0, 20.0]), 0.25)
    tensor([ 1. , 12.5])
    """
    return like(x + weight * (end - x), end if hasattr(end, "dtype") else x)


lerp.grad(x=lambda F, g, weight: g * F.conj(1.0 - weight), end=lambda F, g, weight: g * F.conj(weight),
          weight=lambda F, g, x, end: g * F.conj(end - x))


def _times(g: Any, value: float) -> Any:
    return g if value == 1 else g * value


@op(dtype="promote", pointwise=True, method=True, inplace=True, amp="promote",
    samples=[Sample((3, 4), (4,), (3, 1), value=0.5, complex=True), Sample((3,), (3,), (3,))])
def addcmul(xp, x, tensor1, tensor2, *, value: float = 1):
    """x + value tensor1 tensor2.

    >>> import lucid
    >>> lucid.addcmul(lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0]), lucid.tensor([2.0, 2.0]), value=0.5)
    tensor([4., 6.])
    """
    return like(x + _times(tensor1 * tensor2, value), x)


addcmul.grad(x=lambda F, g: g, tensor1=lambda F, g, tensor2, value: _times(g, value) * F.conj(tensor2),
             tensor2=lambda F, g, tensor1, value: _times(g, value) * F.conj(tensor1))


@op(dtype="promote", pointwise=True, method=True, inplace=True, amp="promote",
    samples=[Sample((3, 4), (4,), A((3, 1), low=0.5, high=2.0), value=0.5, complex=True)])
def addcdiv(xp, x, tensor1, tensor2, *, value: float = 1):
    """x + value tensor1 / tensor2, of floating inputs. Raises DtypeError for integers.

    >>> import lucid
    >>> lucid.addcdiv(lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0]), lucid.tensor([2.0, 8.0]))
    tensor([2.5, 2.5])
    """
    if is_integral(x):
        raise DtypeError(f"addcdiv: expected a floating dtype, got {x.dtype.name}; convert with .float()")
    return like(x + _times(tensor1 / tensor2, value), x)


addcdiv.grad(x=lambda F, g: g, tensor1=lambda F, g, tensor2, value: _times(g, value) / F.conj(tensor2),
             tensor2=lambda F, g, tensor1, tensor2, value:
             -_times(g, value) * F.conj(tensor1 / (tensor2 * tensor2)))


# ---- lengths, angles, logarithms of sums ----


def _over_square(F: Any, x: Any, y: Any) -> Any:
    # x / (x^2 + y^2), and 0 at the origin.
    q = x * x + y * y
    return x / F.where(F.eq(q, 0.0), 1.0, q)


@op(ufunc="arctan2", dtype="float", pointwise=True, method=True, inplace=True, amp="promote",
    samples=[Sample((3, 4), A((4,), low=0.5, high=2.0))], reference="numpy:arctan2")
def atan2(xp, x, y):
    """The angle of the point (y, x) in radians, in [-pi, pi]: atan(x / y) with the quadrant from both signs.

    The derivative at the origin is 0.

    >>> import lucid
    >>> lucid.atan2(lucid.tensor([1.0, 1.0, -1.0]), lucid.tensor([1.0, -1.0, -1.0]))
    tensor([ 0.7854,  2.3562, -2.3562])
    """
    return xp.arctan2(x, y)


atan2.grad(x=lambda F, g, x, y: g * _over_square(F, y, x), y=lambda F, g, x, y: -g * _over_square(F, x, y))


@op(ufunc="hypot", dtype="promote", pointwise=True, method=True, inplace=True,
    samples=[Sample(_POSITIVE, (4,))], reference="numpy:hypot")
def hypot(xp, x, y):
    """sqrt(x^2 + y^2) without overflow in between.

    >>> import lucid
    >>> lucid.hypot(lucid.tensor([3.0, 1e30]), lucid.tensor([4.0, 1e30]))
    tensor([5.0000e+00, 1.4142e+30])
    """
    return xp.hypot(x, y)


hypot.grad(x=lambda F, g, x, out: g * (x / out), y=lambda F, g, y, out: g * (y / out))


@op(ufunc="logaddexp", dtype="promote", pointwise=True, method=True, samples=[Sample((3, 4), (4,))],
    reference="numpy:logaddexp")
def logaddexp(xp, x, y):
    """log(e^x + e^y) without overflow.

    >>> import lucid
    >>> lucid.logaddexp(lucid.tensor([0.0, 100.0]), lucid.tensor([0.0, 100.0]))    # e^100 overflows float32
    tensor([  0.6931, 100.6931])
    """
    return xp.logaddexp(x, y)


logaddexp.grad(x=lambda F, g, x, y: g * F.sigmoid(x - y), y=lambda F, g, x, y: g * F.sigmoid(y - x))


@op(ufunc="logaddexp2", dtype="promote", pointwise=True, method=True, samples=[Sample((3, 4), (4,))],
    reference="numpy:logaddexp2")
def logaddexp2(xp, x, y):
    """log2(2^x + 2^y) without overflow.

    >>> import lucid
    >>> lucid.logaddexp2(lucid.tensor([0.0, 3.0]), lucid.tensor([0.0, 3.0]))
    tensor([1., 4.])
    """
    return xp.logaddexp2(x, y)


logaddexp2.grad(x=lambda F, g, x, y: g * F.sigmoid((x - y) * LN2), y=lambda F, g, x,
                y: g * F.sigmoid((y - x) * LN2))


@op(ufunc="copysign", dtype="float", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), (4,), avoid=(0.0,))], reference="numpy:copysign")
def copysign(xp, x, y):
    """|x| with the sign bit of y. The derivative at x = 0 is 0.

    >>> import lucid
    >>> lucid.copysign(lucid.tensor([1.0, 2.0]), lucid.tensor([-0.0, 1.0]))
    tensor([-1.,  2.])
    """
    return xp.copysign(x, y)


copysign.grad(x=lambda F, g, x, out: g * F.sgn(x) * F.sgn(out), y=lambda F, g: F.zeros_like(g))


@composite(method=True, samples=[Sample((3, 4), A((4,), dtype="int64", low=-3, high=4)), Sample((3,), (3,))])
@named("ldexp")
def ldexp(F, x, other):
    """x 2^other.

    x, other: shapes that broadcast together, else ShapeError. Integers become the default float.

    >>> import lucid
    >>> lucid.ldexp(lucid.tensor([1.0, 3.0]), lucid.tensor([4, -1]))
    tensor([16. ,  1.5])
    """
    return x * F.exp2(other)


@op(ufunc="nextafter", dtype="promote", pointwise=True, method=True, inplace=True,
    samples=[Sample((3, 4), (3, 4))], reference="numpy:nextafter")
def nextafter(xp, x, y):
    """The next number of the dtype after x, towards y. Its derivative to x is 1, and 0 where x = y.

    >>> import lucid
    >>> lucid.nextafter(lucid.tensor(1.0), lucid.tensor(2.0)) == 1 + 2.0**-23
    tensor(True)
    """
    return xp.nextafter(x, y)


nextafter.grad(x=lambda F, g, x, y: F.where(F.eq(x, y), 0.0, g), y=lambda F, g: F.zeros_like(g))


# ---- integers and comparisons ----


@op(ufunc="gcd", dtype="promote", pointwise=True, method=True, diff=(), inplace=True,
    samples=[Sample(A((3, 4), dtype="int64", low=1, high=40), A((4,), dtype="int64", low=1, high=40))],
    reference="numpy:gcd")
def gcd(xp, x, y):
    """The greatest common divisor of two integer tensors. Raises DtypeError for other dtypes.

    >>> import lucid
    >>> lucid.gcd(lucid.tensor([12, 7]), lucid.tensor([18, 21]))
    tensor([6, 7])
    """
    return xp.gcd(x, y)


@op(ufunc="lcm", dtype="promote", pointwise=True, method=True, diff=(), inplace=True,
    samples=[Sample(A((3, 4), dtype="int64", low=1, high=40), A((4,), dtype="int64", low=1, high=40))],
    reference="numpy:lcm")
def lcm(xp, x, y):
    """The least common multiple of two integer tensors. Raises DtypeError for other dtypes.

    >>> import lucid
    >>> lucid.lcm(lucid.tensor([4, 7]), lucid.tensor([6, 3]))
    tensor([12, 21])
    """
    return xp.lcm(x, y)


@op(dtype="compare", pointwise=True, method=True, samples=[Sample((3, 4), (3, 4)), Sample(_TIES, _TIES)],
    reference="numpy:isclose")
def isclose(xp, x, y, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False):
    """Whether |x - y| <= atol + rtol |y|, element by element; equal infinities are close.

    equal_nan: whether two NaN are close.

    >>> import lucid
    >>> lucid.isclose(lucid.tensor([1.0, 1.0]), lucid.tensor([1.000001, 1.1]))
    tensor([ True, False])
    """
    if is_integral(y):
        x, y = x.astype("float64"), y.astype("float64")
    # An infinite y would make the bound infinite too: only finite pairs are held against it.
    finite = xp.isfinite(x) & xp.isfinite(y)
    a, b = xp.where(finite, x, 0), xp.where(finite, y, 0)
    out = (x == y) | (finite & (xp.abs(a - b) <= atol + rtol * xp.abs(b)))
    return out | ((x != x) & (y != y)) if equal_nan else out


# ---- x log y, where 0 log 0 = 0 ----


def _log_where(F: Any, g: Any, x: Any, y: Any) -> Any:
    none = F.logical_and(F.eq(x, 0.0), y <= 0.0)
    return F.where(none, 0.0, g * F.log(F.where(none, 1.0, y)))


def _log1p_where(F: Any, g: Any, x: Any, y: Any) -> Any:
    none = F.logical_and(F.eq(x, 0.0), y <= -1.0)
    return F.where(none, 0.0, g * F.log1p(F.where(none, 0.0, y)))


def _x_log(xp: Any, name: str, x: Any, y: Any) -> Any:
    dtype = x.dtype if hasattr(x, "dtype") else y.dtype
    out = getattr(special(xp),
                  name)(*(a.astype("float32") if a.dtype.itemsize == 2 else a for a in map(xp.asarray,
                                                                                           (x, y))))
    return out if out.dtype == dtype else out.astype(dtype)


@op(dtype="float", pointwise=True, method=True, inplace=True, amp="full", samples=[Sample((3, 4), _POSITIVE)],
    reference="scipy.special:xlogy")
def xlogy(xp, x, y):
    """x log(y), and 0 where x = 0 (NaN where y is NaN).

    >>> import lucid
    >>> lucid.xlogy(lucid.tensor([0.0, 2.0]), lucid.tensor([0.0, lucid.e]))
    tensor([0., 2.])
    """
    return _x_log(xp, "xlogy", x, y)


xlogy.grad(x=_log_where, y=lambda F, g, x, y: g * x / y)


@op(dtype="float", pointwise=True, public=False, amp="full", samples=[Sample((3, 4), _POSITIVE)],
    reference="scipy.special:xlog1py")
def xlog1py(xp, x, y):
    """x log(1 + y), and 0 where x = 0 (NaN where y is NaN).

    >>> import lucid
    >>> lucid.special.xlog1py(lucid.tensor([0.0, 2.0]), lucid.tensor([-1.0, 1.0]))
    tensor([0.    , 1.3863])
    """
    return _x_log(xp, "xlog1py", x, y)


xlog1py.grad(x=_log1p_where, y=lambda F, g, x, y: g * x / (y + 1.0))
