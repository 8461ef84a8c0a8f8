"""Pointwise functions where they are hard: kinks, extremes, dtypes, messages, writes in place."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lucid
from lucid.autograd.record import RECORDED
from lucid.errors import DtypeError, GradError, LucidError, ShapeError
from lucid.functional import PUBLIC
from lucid.functional.pointwise import ALIASES, SPECIAL
from lucid.ops.registry import OPS

INF, NAN = math.inf, math.nan


def function(name):
    """The public function of that name; `nn.functional` ones are found without importing nn."""
    found = PUBLIC.get(name) or PUBLIC.get(f"nn.functional.{name}") or PUBLIC.get(f"special.{name}")
    return found or getattr(lucid, name)


def leaf(value, dtype="float64"):
    return lucid.tensor(np.asarray(value, dtype), requires_grad=True)


def slopes(name, *values, **statics):
    """The function's value and its derivative to each argument, at one point."""
    inputs = [leaf(v) for v in values]
    out = function(name)(*inputs, **statics)
    return out.item(), [g.item() for g in lucid.autograd.grad(out, inputs)]


# name, arguments, static arguments, derivative to each argument (by hand, from the definition at the kink)
KINKS = [
    ("relu", (0.0,), {}, (0.0,)),
    ("abs", (0.0,), {}, (0.0,)),
    ("sgn", (0.0,), {}, (0.0,)),
    ("relu6", (0.0,), {}, (0.0,)),
    ("relu6", (6.0,), {}, (0.0,)),
    ("relu6", (3.0,), {}, (1.0,)),
    ("hardtanh", (-1.0,), {}, (0.0,)),
    ("hardtanh", (1.0,), {}, (0.0,)),
    ("leaky_relu", (0.0,), {"negative_slope": 0.1}, (0.1,)),
    ("leaky_relu", (-2.0,), {"negative_slope": 1.5}, (1.5,)),
    ("elu", (0.0,), {"alpha": 0.5}, (0.5,)),
    ("celu", (0.0,), {"alpha": 2.0}, (1.0,)),
    ("selu", (0.0,), {}, (1.6732632423543772 * 1.0507009873554805,)),
    ("hardswish", (-3.0,), {}, (0.0,)),
    ("hardswish", (3.0,), {}, (1.0,)),
    ("hardswish", (1.5,), {}, (1.0,)),
    ("hardsigmoid", (0.0,), {}, (1 / 6,)),
    ("hardsigmoid", (3.0,), {}, (0.0,)),
    ("hardshrink", (0.5,), {}, (0.0,)),
    ("softshrink", (-0.5,), {}, (0.0,)),
    ("threshold", (1.0,), {"threshold": 1.0, "value": 5.0}, (0.0,)),
    ("prelu", (0.0, 0.25), {}, (0.25, 0.0)),
    ("prelu", (-2.0, 0.25), {}, (0.25, -2.0)),
    ("softsign", (0.0,), {}, (1.0,)),
    ("softplus", (0.0,), {}, (0.5,)),
    ("softplus", (0.5,), {"beta": 2.0, "threshold": 1.0}, (1 / (1 + math.exp(-1.0)),)),
    ("softplus", (0.6,), {"beta": 2.0, "threshold": 1.0}, (1.0,)),
    ("maximum", (1.0, 1.0), {}, (0.5, 0.5)),
    ("minimum", (1.0, 1.0), {}, (0.5, 0.5)),
    ("maximum", (NAN, 1.0), {}, (1.0, 1.0)),
    ("fmax", (1.0, 1.0), {}, (1.0, 0.0)),
    ("fmin", (NAN, 1.0), {}, (0.0, 1.0)),
    ("clamp", (0.0, 0.0, 1.0), {}, (1.0, 0.0, 0.0)),
    ("clamp", (2.0, 0.0, 1.0), {}, (0.0, 0.0, 1.0)),
    ("clamp", (-2.0, 0.0, 1.0), {}, (0.0, 1.0, 0.0)),
    ("clamp", (0.5, 1.0, 0.0), {}, (0.0, 0.0, 1.0)),
    ("clamp", (1.0,), {"min": 0.0, "max": 1.0}, (1.0,)),
    ("clamp_min", (0.0, 0.0), {}, (1.0, 0.0)),
    ("clamp_max", (0.0, 0.0), {}, (1.0, 0.0)),
    ("copysign", (0.0, -1.0), {}, (0.0, 0.0)),
    ("copysign", (2.0, -1.0), {}, (-1.0, 0.0)),
    ("atan2", (0.0, 0.0), {}, (0.0, 0.0)),
    ("atan2", (1.0, 0.0), {}, (0.0, -1.0)),
    ("xlogy", (0.0, -1.0), {}, (0.0, 0.0)),
    ("remainder", (-5.0, 3.0), {}, (1.0, 2.0)),
    ("fmod", (-5.0, 3.0), {}, (1.0, 1.0)),
    ("floor", (1.0,), {}, (0.0,)),
    ("round", (2.5,), {}, (0.0,)),
    ("sinc", (0.0,), {}, (0.0,)),
    ("logaddexp", (INF, 1.0), {}, (1.0, 0.0)),
    ("i1", (0.0,), {}, (0.5,)),
    ("i1e", (0.0,), {}, (0.5,)),
    ("bessel_j1", (0.0,), {}, (0.5,)),
    ("entr", (0.0,), {}, (INF,)),
    ("logit", (0.05,), {"eps": 0.1}, (0.0,)),
    ("logit", (0.5,), {"eps": 0.1}, (4.0,)),
    ("nan_to_num", (NAN,), {}, (0.0,)),
    ("nan_to_num", (2.0,), {}, (1.0,)),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")    # some kinks lie at the edge of a domain
@pytest.mark.parametrize("name, values, statics, expected", KINKS, ids=[f"{k[0]}{k[1]}" for k in KINKS])
def test_kink(name, values, statics, expected):
    np.testing.assert_allclose(slopes(name, *values, **statics)[1], expected, rtol=1e-12)


def test_frexp():
    x = leaf([3.0, 0.0, -(2.0**1023)])
    mantissa, exponent = lucid.frexp(x)
    assert mantissa.tolist() == [0.75, 0.0, -0.5] and exponent.tolist() == [2, 0, 1024]
    assert exponent.dtype.name == "int32"
    assert lucid.autograd.grad(mantissa, [x], lucid.tensor(np.ones(3)))[0].tolist() == [0.25, 1.0, 2.0**-1024]


# name, argument, value, derivative
EXTREMES = [
    ("softplus", 1000.0, 1000.0, 1.0),
    ("softplus", -1000.0, 0.0, 0.0),
    ("logsigmoid", -1000.0, -1000.0, 1.0),
    ("logsigmoid", 1000.0, 0.0, 0.0),
    ("silu", -1000.0, 0.0, 0.0),
    ("silu", 1000.0, 1000.0, 1.0),
    ("mish", 1000.0, 1000.0, 1.0),
    ("mish", -1000.0, 0.0, 0.0),
    ("elu", 1000.0, 1000.0, 1.0),
    ("elu", -1000.0, -1.0, 0.0),
    ("celu", 1000.0, 1000.0, 1.0),
    ("gelu", -40.0, 0.0, 0.0),
    ("gelu", 40.0, 40.0, 1.0),
    ("tanhshrink", 1000.0, 999.0, 1.0),
    ("log1p", 1e-20, 1e-20, 1.0),
    ("expm1", 1e-20, 1e-20, 1.0),
    ("erfc", 10.0, 2.088487583762545e-45, -2 / math.sqrt(math.pi) * math.exp(-100)),
    ("log_ndtr", -50.0, -1254.8313611394199, 50.01998403190402),
        # -x^2/2 - log(|x| sqrt(2 pi)) + log(1 - 1/x^2 + 3/x^4 - ...)
    ("log_ndtr", 40.0, 0.0, 0.0),
    ("erfcx", 1e8, 1e-8 / math.sqrt(math.pi), 0.0),
    ("i0e", 1e4, 1 / math.sqrt(2e4 * math.pi), None),
    ("digamma", 1e10, math.log(1e10), 1e-10),
]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name, x, value, slope", EXTREMES, ids=lambda v: v if isinstance(v, str) else None)
def test_extreme(name, x, value, slope):
    got, (g,) = slopes(name, x)
    np.testing.assert_allclose(got, value, rtol=2e-5 if name == "i0e" else 1e-9, atol=1e-60)
    if slope is not None:
        np.testing.assert_allclose(g, slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name, x, expected", [
    ("sinc", 0.0, -math.pi**2 / 3),                 # 1 - (pi x)^2 / 6 + ...
    ("i1", 0.0, 0.0),                               # x/2 + x^3/16 + ...
    ("elu", 800.0, 0.0),                            # e^x of the branch not taken overflows
    ("softplus", 800.0, 0.0),
    ("gelu", 0.0, 2 / math.sqrt(2 * math.pi)),      # 2 phi(0)
    ("silu", 0.0, 0.5),                             # 2 sigmoid'(0)
    ("relu6", 3.0, 0.0),
    ("leaky_relu", 3.0, 0.0),
    ("hardshrink", 3.0, 0.0),
    ("spherical_bessel_j0", 0.0, -1 / 3),           # 1 - x^2 / 6 + ...
])
def test_second_derivative(name, x, expected):
    t = leaf(x)
    (g,) = lucid.autograd.grad(function(name)(t), [t], create_graph=True)
    (h,) = lucid.autograd.grad(g, [t])
    np.testing.assert_allclose(h.item(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("size", [12, 12_000])
def test_within(size, dtype):
    # Both paths of the CPU, and the generic one: open bounds, NaN inside.
    x = np.resize(np.array([-1.0, 0.0, 0.5, 1.0, INF, NAN], dtype), size)
    v, w = np.arange(size).astype(dtype), np.full(size, -7.0, dtype)
    for low, high in ((0.0, 1.0), (0.0, INF)):
        inside = ((x > low) & ((x < high) | (high == INF))) | np.isnan(x)
        expected = np.where(inside, v, w)
        got = RECORDED.within(lucid.tensor(x), lucid.tensor(v), lucid.tensor(w), low, high)
        np.testing.assert_array_equal(got.numpy(), expected)
        np.testing.assert_array_equal(OPS["within"].forward(np, x, v, w, low, high), expected)
        got = RECORDED.within(lucid.tensor(x), lucid.tensor(v), 0.0, low, high)
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got.numpy(), np.where(inside, v, 0))


@pytest.mark.parametrize("x", [1e-6, 0.01, 0.1, 0.15, 0.16, 0.3, 2.5])
def test_sinc_slope(x):
    # (cos(pi x) - sinc(x)) / x, or its series where the difference cancels.
    z = math.pi * x
    direct, series = (math.cos(z) - math.sin(z) / z) / x, math.pi * (-z / 3 + z**3 / 30 - z**5 / 840)
    np.testing.assert_allclose(slopes("sinc", x)[1], [direct if x > 0.05 else series], rtol=1e-11)


@pytest.mark.parametrize("name", ["relu", "relu6", "hardtanh", "leaky_relu", "elu", "selu", "celu", "gelu",
                                  "silu", "mish", "softplus", "softsign",
                                  "hardswish", "hardsigmoid", "hardshrink", "softshrink", "tanhshrink",
                                  "logsigmoid", "erf", "erfc", "lgamma",
                                  "digamma", "i0", "sinc", "logit", "round", "square", "rsqrt", "frac",
                                  "angle"])
def test_nan_stays(name):
    for dtype in ("float64", "float32", "float16"):
        assert math.isnan(function(name)(lucid.tensor(np.asarray([NAN], dtype))).item())


# name, dtypes of the arguments, dtype of the result
F32, F64, I64, I32, U8, BOOL = "float32", "float64", "int64", "int32", "uint8", "bool"
PROMOTIONS = [
    ("sin", (I64,), F32), ("erf", (BOOL,), F32), ("reciprocal", (I64,), F32), ("angle", (I64,), F32),
    ("deg2rad", (I64,), F32),
    ("floor", (I64,), I64), ("round", (I32,), I32), ("trunc", (U8,), U8), ("square", (I64,), I64),
    ("nan_to_num", (I64,), I64),
    ("relu6", (I64,), I64), ("hardtanh", (I64,), I64), ("polygamma", (1, I64), F32),
    ("mvlgamma", (I64, 1), F32),
    ("maximum", (BOOL, I64), I64), ("maximum", (I32, F32), F32), ("fmax", (I64, F64), F64),
    ("remainder", (I64, I32), I64),
    ("floor_divide", (I64, I64), I64), ("copysign", (I64, I64), F32), ("atan2", (I64, I64), F32),
    ("xlogy", (I64, I64), F32),
    ("ldexp", (I64, I64), F32), ("clamp", (I64, 0.5, 1.5), F32), ("clamp", (I64, 0, 1), I64),
    ("clamp", (F32, 0, 1.5), F32),
    ("div", (I64, 2), F32), ("add", (I64, 1.5), F32), ("addcmul", (F32, I64, I64), F32),
    ("float_power", (F32, 2), F64),
    ("float_power", (I64, I64), F64), ("gcd", (I64, I32), I64), ("isnan", (I64,), BOOL),
    ("isclose", (I64, I64), BOOL),
    ("heaviside", (I64, I64), I64), ("rsub", (I64, I32), I64), ("hypot", (F32, F64), F64),
    ("sgn", (I64,), I64),
]


@pytest.mark.parametrize("name, given, expected", PROMOTIONS, ids=[f"{p[0]}{p[1]}" for p in PROMOTIONS])
def test_result_dtype(name, given, expected):
    arguments = [lucid.tensor(np.ones(2, v)) if isinstance(v, str) else v for v in given]
    assert function(name)(*arguments).dtype.name == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", ["sin", "rsqrt", "deg2rad", "round", "sinc", "erf", "lgamma", "i0", "logit",
                                  "gelu", "silu", "elu", "softplus",
                                  "hardswish", "leaky_relu", "hardtanh", "nan_to_num", "log_ndtr", "mish",
                                  "softshrink"])
def test_floats_keep_their_dtype(name, dtype):
    x = lucid.tensor([0.25, 0.5]).to(dtype)
    out = function(name)(x)
    assert out.dtype == x.dtype
    exact = function(name)(lucid.tensor(np.array([0.25, 0.5]))).numpy()
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-22}[dtype]
    np.testing.assert_allclose(out.numpy().astype("float64"), exact, rtol=eps, atol=eps / 4)


@pytest.mark.parametrize("name, arguments, error, message", [
    ("glu", (lucid.tensor([1.0, 2.0, 3.0]),), ShapeError,
     r"glu: expected an even size along dim -1 to halve, got shape \(3,\)"),
    ("prelu", (lucid.tensor([[1.0, 2.0]]), lucid.tensor([0.1, 0.2, 0.3])), ShapeError,
     r"prelu: expected a weight of shape \[1\] or \[2\]"),
    ("clamp", (lucid.tensor([1.0]),), LucidError, "clamp: expected min or max or both, got neither"),
    ("div", (lucid.tensor([1.0]), 2.0), LucidError,
     "div: expected rounding_mode None, 'floor' or 'trunc', got 'up'"),
    ("gelu", (lucid.tensor([1.0]), "sigmoid"), LucidError,
     "gelu: expected approximate='none' or 'tanh', got 'sigmoid'"),
    ("frac", (lucid.tensor([1]),), DtypeError,
     r"frac: expected a floating dtype, got int64; convert with \.float\(\)"),
    ("addcdiv", (lucid.tensor([1]),) * 3, DtypeError, "addcdiv: expected a floating dtype, got int64"),
    ("frexp", (lucid.tensor([1]),), DtypeError, "frexp: expected a floating dtype, got int64"),
    ("complex", (lucid.tensor([1]), lucid.tensor([1])), DtypeError,
     "complex: expected two tensors of one floating dtype, got int64 and int64"),
    ("view_as_complex", (lucid.tensor([1.0, 2.0, 3.0]),), LucidError,
     r"view_as_complex: expected a last dimension of size 2 .* got \(3,\)"),
    ("view_as_real", (lucid.tensor([1.0]),), DtypeError,
     "view_as_real: expected a complex dtype, got float32"),
    ("imag", (lucid.tensor([1.0]),), DtypeError, "imag: expected a complex tensor, got float32"),
    ("polygamma", (-1, lucid.tensor([1.0])), LucidError, "polygamma: expected an order >= 0, got -1"),
    ("mvlgamma", (lucid.tensor([1.0]), 0), LucidError, "mvlgamma: expected a dimension p >= 1, got 0"),
    ("gcd", (lucid.tensor([1.0]), lucid.tensor([2.0])), DtypeError, "gcd: .*float32"),
    ("maximum", (lucid.tensor([1.0, 2.0]), lucid.tensor([1.0, 2.0, 3.0])), ShapeError, "maximum: .*float32"),
    ("hardtanh", (lucid.tensor([1.0]), 2.0, 1.0), LucidError,
     "hardtanh: expected min_val <= max_val, got 2.0 and 1.0"),
    ("add", (lucid.tensor([1]), lucid.tensor([1])), DtypeError,
     "add: expected a whole alpha for a tensor of int64, got 0.5"),
])
def test_message(name, arguments, error, message):
    statics = {"div": {"rounding_mode": "up"}, "add": {"alpha": 0.5}}.get(name, {})
    with pytest.raises(error, match=message):
        function(name)(*arguments, **statics)


def test_unknown_derivative_is_refused():
    a, x = leaf([1.5]), leaf([0.7])
    out = lucid.special.gammainc(a, x)
    with pytest.raises(GradError, match="special.gammainc: the derivative with respect to 'a' .* detach it"):
        out.sum().backward()
    lucid.special.gammainc(a.detach(), x).sum().backward()
    np.testing.assert_allclose(x.grad.item(), 0.7**0.5 * math.exp(-0.7) / math.gamma(1.5), rtol=1e-12)


@pytest.mark.parametrize("name, statics", [("relu", ()), ("relu6", ()), ("hardtanh", ()),
                                           ("leaky_relu", (0.2,)), ("elu", (0.5,)), ("selu", ()),
                                           ("celu", (2.0,)),
                                           ("silu", ()), ("mish", ()), ("hardswish", ()),
                                           ("hardsigmoid", ()), ("threshold", (0.1, 2.0))])
def test_in_place_activation(name, statics):
    data = np.array([-4.0, -0.7, 0.3, 2.5, 7.0])
    a, b = leaf(data), leaf(data)
    expected = function(name)(a * 1.0, *statics)
    y = b * 1.0
    pointer = y.data_ptr()
    out = function(name)(y, *statics, inplace=True)
    assert out is y and y.data_ptr() == pointer
    np.testing.assert_array_equal(y.detach().numpy(), expected.detach().numpy())
    expected.sum().backward()
    out.sum().backward()
    np.testing.assert_array_equal(b.grad.numpy(), a.grad.numpy())


def test_in_place_keywords():
    x = lucid.tensor([1.0, 2.0])
    pointer = x.data_ptr()
    x.add_(lucid.tensor([1.0, 1.0]), alpha=2).sub_(1.0, alpha=3).div_(2, rounding_mode="floor").clamp_(max=0)
    assert x.data_ptr() == pointer and x.tolist() == [0.0, 0.0]
    assert x.arctan2_(lucid.tensor([-1.0, 1.0])) is x
    np.testing.assert_allclose(x.numpy(), [math.pi, 0.0], rtol=1e-6)
    with pytest.raises(DtypeError, match="sin_: a result of float32 cannot be stored in a tensor of int64"):
        lucid.tensor([1]).sin_()


def test_division_by_rounding_mode():
    x, y = lucid.tensor([7, -7, 7, -7]), lucid.tensor([2, 2, -2, -2])
    assert lucid.div(x, y, rounding_mode="trunc").tolist() == [3, -3, -3, 3]
    assert lucid.div(x, y, rounding_mode="floor").tolist() == [3, -4, -4, 3]
    assert lucid.div(x, y).tolist() == [3.5, -3.5, -3.5, 3.5]
    assert lucid.remainder(x, y).tolist() == [1, 1, -1, -1]
    assert lucid.fmod(x, y).tolist() == [1, -1, 1, -1]
    big = lucid.tensor([2**62 + 1])
    assert lucid.div(big, -1,
                     rounding_mode="trunc").item() == -(2**62 + 1)    # a float64 quotient would lose the 1


def test_shapes():
    assert lucid.atan2(lucid.tensor([[1.0]] * 3), lucid.tensor([1.0, 2.0])).shape == (3, 2)
    empty = leaf(np.zeros((0, 3)))
    out = function("gelu")(empty)
    assert out.shape == (0, 3)
    lucid.autograd.grad(out, [empty], lucid.tensor(np.zeros((0, 3))))
    for name in ("sin", "gelu", "erf", "sgn", "nan_to_num", "softplus", "digamma", "angle", "signbit"):
        assert function(name)(lucid.tensor(0.5)).shape == ()
    x, w = leaf(np.ones((2, 3))), leaf(np.array(0.25))
    lucid.autograd.backward([lucid.lerp(x, 3.0, w).sum()])
    assert w.grad.shape == () and w.grad.item() == 12.0


def test_comparisons():
    x = lucid.tensor([1.0, INF, -INF, NAN])
    assert lucid.isclose(x, x).tolist() == [True, True, True, False]
    assert lucid.isclose(x, x, equal_nan=True).tolist() == [True] * 4
    assert lucid.isclose(x, lucid.tensor([1.0 + 1e-6, -INF, 0.0, 0.0])).tolist() == [True, False, False,
                                                                                     False]
    assert lucid.allclose(lucid.tensor([1.0]), lucid.tensor([1.0 + 1e-7])) is True
    assert lucid.equal(lucid.tensor([1, 2]), lucid.tensor([1, 2])) is True
    assert lucid.equal(lucid.tensor([1, 2]), lucid.tensor([1, 2, 3])) is False
    assert lucid.isposinf(x).tolist() == [False, True, False,
                                          False] and lucid.isneginf(x).tolist() == [False, False, True, False]
    assert lucid.signbit(lucid.tensor([-0.0, 0.0, -1.0])).tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_nan_to_num(dtype):
    x = np.array([NAN, INF, -INF, 1.5], dtype)
    np.testing.assert_array_equal(lucid.nan_to_num(lucid.tensor(x)).numpy(), np.nan_to_num(x))
    np.testing.assert_array_equal(lucid.nan_to_num(lucid.tensor(x), 1.0, 2.0, 3.0).numpy(),
                                  [1.0, 2.0, 3.0, 1.5])
    z = np.empty(4, "complex128" if dtype == "float64" else "complex64")
    z.real, z.imag = x, x[::-1]
    np.testing.assert_array_equal(lucid.nan_to_num(lucid.tensor(z)).numpy(), np.nan_to_num(z))


def test_second_names():
    for alias, name in ALIASES.items():
        domain = {"acosh": [1.25, 1.5], "left_shift": [1, 2], "right_shift": [1, 2]}
        x = lucid.tensor(domain.get(name, [0.25, 0.5]))
        arguments = (x,) if len(OPS[name].tensors) == 1 else (x, x[[1, 0]])
        expected = getattr(RECORDED, name)(*arguments).tolist()
        assert getattr(lucid, alias)(*arguments).tolist() == expected
        assert getattr(x, alias)(*arguments[1:]).tolist() == expected
    x = lucid.tensor([0.25, 1.0])
    assert lucid.sin_(x) is x and lucid.arccos_(x) is x
    np.testing.assert_allclose(x.numpy(), np.arccos(np.sin([0.25, 1.0])), rtol=1e-6)
    for alias in SPECIAL:
        assert callable(getattr(lucid.special, alias)) and getattr(lucid.special, alias).__doc__
    assert "erf" in dir(lucid.special)
    with pytest.raises(AttributeError, match=r"lucid\.special.*no_such"):
        lucid.special.no_such  # noqa: B018


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan",
                                  "asinh", "acosh", "atanh", "exp", "exp2", "expm1",
                                  "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square", "reciprocal",
                                  "sigmoid", "sgn", "abs", "angle"])
def test_complex_gradient(name):
    torch = pytest.importorskip("torch")
    z = np.random.default_rng(0).normal(size=6) + 1j * np.random.default_rng(1).normal(size=6)
    a, b = lucid.tensor(z, requires_grad=True), torch.tensor(z, requires_grad=True)
    out, expected = getattr(lucid, name)(a), getattr(torch, name)(b)
    np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), rtol=1e-10)
    seed = z[::-1].copy() if expected.is_complex() else z.real.copy()
    (g,) = lucid.autograd.grad(out, [a], lucid.tensor(seed))
    (h,) = torch.autograd.grad(expected, [b], torch.tensor(seed))
    np.testing.assert_allclose(g.numpy(), h.resolve_conj().numpy(), rtol=1e-9, atol=1e-12)


def test_polygamma_left_of_zero():
    # Reflection (DLMF 5.15.6): psi_1(1 - x) + psi_1(x) = pi^2 / sin^2(pi x), and its derivative
    # psi_2(1 - x) - psi_2(x) = 2 pi^3 cos(pi x) / sin^3(pi x).
    x = np.array([-0.3, -1.6, -30.25, 0.4])
    s, c = np.sin(np.pi * x), np.cos(np.pi * x)
    one = lucid.polygamma(1, lucid.tensor(x)).numpy() + lucid.polygamma(1, lucid.tensor(1 - x)).numpy()
    np.testing.assert_allclose(one, (np.pi / s) ** 2, rtol=1e-12)
    two = lucid.polygamma(2, lucid.tensor(1 - x)).numpy() - lucid.polygamma(2, lucid.tensor(x)).numpy()
    np.testing.assert_allclose(two, 2 * np.pi**3 * c / s**3, rtol=1e-10)


def test_gelu_in_float32():
    # The CPU's own polynomial against scipy in float64, over several blocks, at the ends, and not contiguous.
    special = pytest.importorskip("scipy.special")
    data = np.concatenate([np.linspace(-30, 30, 150_001), [0.0, 1e30, -1e30]]).astype("float32")
    wide = data.astype("float64")
    x = leaf(data, "float32")
    out = function("gelu")(x)
    assert out.dtype.name == "float32"
    np.testing.assert_allclose(out.detach().numpy(), wide * special.ndtr(wide), rtol=5e-6, atol=1e-37)
    (g,) = lucid.autograd.grad(out, [x], lucid.tensor(np.full(data.shape, 2.0, "float32")))
    with np.errstate(over="ignore"):
        slope = special.ndtr(wide) + wide * np.exp(-0.5 * wide**2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(g.numpy(), 2.0 * slope, rtol=1e-6, atol=3e-7)
    assert function("gelu")(lucid.tensor([INF, -INF])).tolist() == [INF, 0.0]
    t = lucid.tensor(data[:6].reshape(2, 3)).T
    np.testing.assert_array_equal(function("gelu")(t).numpy(), function("gelu")(t.clone()).numpy())


def test_random_leaky_relu():
    x = lucid.tensor(np.array([-1.0, 2.0, -3.0] * 50))
    rrelu = function("rrelu")
    np.testing.assert_allclose(rrelu(x, 0.1, 0.3).numpy()[:3], [-0.2, 2.0, -0.6])
    slopes = rrelu(x, 0.1, 0.3, training=True).numpy() / x.numpy()
    negative = slopes[x.numpy() < 0]
    assert (slopes[x.numpy() > 0] == 1).all()
    assert (negative >= 0.1).all() and (negative < 0.3).all() and np.ptp(negative) > 0.1


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_integers_are_not_divided_by_zero(name):
    x = lucid.tensor([7, 8])
    for divisor in (0, lucid.tensor([0, 3])):
        for call in (getattr(lucid, name), getattr(x, name + "_")):
            args = (x, divisor) if call is getattr(lucid, name) else (divisor,)
            with pytest.raises(LucidError, match=f"{name}: integers cannot be divided by 0; convert"):
                call(*args)
    with pytest.raises(LucidError, match="div: integers cannot be divided by 0"):
        lucid.div(x, lucid.zeros_like(x), rounding_mode="trunc")
    assert x.tolist() == [7, 8]  # what was asked for in place is as it was
    assert math.isnan(getattr(lucid, name)(lucid.tensor(0.0), 0).item())
