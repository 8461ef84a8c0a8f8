"""Pointwise functions that are overloads, composites or second names; the activations of `nn.functional`."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..autograd import inplace as _inplace
from ..autograd.impl import describe
from ..autograd.record import RECORDED as F
from ..errors import DtypeError, LucidError
from ..ops.describe import document
from ..ops.polynomials import TABLE as POLYNOMIALS
from ..ops.registry import OPS
from ..storage.dtype import category, complex128, float64
from ..storage.random import default_generator
from ..tensor import Tensor, _wrap
from .methods import LazyMethod
from .registry import PUBLIC, public

Number = builtins.int | builtins.float | builtins.complex
Operand = Tensor | Number


# ---- arithmetic with PyTorch's keywords ----


def _scaled(name: str, y: Any, alpha: Any) -> Any:
    if isinstance(alpha, builtins.float) and isinstance(y, Tensor) and category(y.dtype) < 2:
        raise DtypeError(f"{name}: expected a whole alpha for a tensor of {y.dtype.name}, got {alpha}; "
                         "convert the tensor with .float()")
    return y * alpha


@public(method=True)
def add(x: Operand, y: Operand, *, alpha: Number = 1) -> Tensor:
    """x + alpha y; shapes broadcast together, else ShapeError; dtypes are promoted.

    Raises DtypeError for a fractional alpha with integers.

    >>> import lucid
    >>> lucid.add(lucid.tensor([1.0, 2.0]), 1.0, alpha=10)
    tensor([11., 12.])
    """
    return F.add(x, y) if alpha == 1 else F.add(x, _scaled("add", y, alpha))


@public("sub", "subtract", method=("sub", "subtract"))
def sub(x: Operand, y: Operand, *, alpha: Number = 1) -> Tensor:
    """x - alpha y; shapes broadcast together, else ShapeError; dtypes are promoted.

    Raises DtypeError for bools and for a fractional alpha with integers.

    >>> import lucid
    >>> lucid.sub(lucid.tensor([1.0, 2.0]), 1.0)
    tensor([0., 1.])
    """
    return F.sub(x, y) if alpha == 1 else F.sub(x, _scaled("sub", y, alpha))


@public()
def rsub(x: Operand, y: Operand, *, alpha: Number = 1) -> Tensor:
    """y - alpha x; see `sub`.

    >>> import lucid
    >>> lucid.rsub(lucid.tensor([1.0, 2.0]), 1.0)
    tensor([ 0., -1.])
    """
    return sub(y, x, alpha=alpha)


_DIVISIONS = {None: "div", "floor": "floor_divide", "trunc": "div_trunc"}


@public("div", "divide", method=("div", "divide"))
def div(x: Operand, y: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """x / y; shapes broadcast together, else ShapeError; dtypes are promoted.

    rounding_mode: None for the quotient (integers give the default float), "trunc" to drop its fraction,
    "floor" for the whole number below it; these two keep integers and have derivative 0. Raises LucidError
    for another mode.

    >>> import lucid
    >>> lucid.div(lucid.tensor([-7, 7]), 2, rounding_mode="floor")
    tensor([-4,  3])
    """
    name = _DIVISIONS.get(rounding_mode)
    if name is None:
        raise LucidError(f"div: expected rounding_mode None, 'floor' or 'trunc', got {rounding_mode!r}")
    return getattr(F, name)(x, y)


@public(method=True)
def true_divide(x: Operand, y: Operand) -> Tensor:
    """x / y, with broadcasting; integers give the default float: `div` without a rounding mode.

    >>> import lucid
    >>> lucid.true_divide(lucid.tensor([1, 3]), 2)
    tensor([0.5, 1.5])
    """
    return F.div(x, y)


@public(method=True)
def float_power(x: Operand, exponent: Operand) -> Tensor:
    """x to the power `exponent`, computed and returned in float64 (complex128 when one is complex).

    >>> import lucid
    >>> lucid.float_power(lucid.tensor([1, 2]), 3)
    tensor([1., 8.], dtype=float64)
    """
    pair = (x, exponent)
    kinds = [category(v.dtype) if isinstance(v, Tensor) else 3 * (type(v) is builtins.complex) for v in pair]
    dtype = complex128 if 3 in kinds else float64
    a, b = (v.to(dtype) if isinstance(v, Tensor) else v for v in pair)
    return F.pow(a, b)


@public("clamp", "clip", method=("clamp", "clip"))
def clamp(x: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """The smaller of max(x, min) and max: x held between two bounds, of which one may be absent.

    min, max: numbers or tensors. Inside, and at the bounds, x gets the gradient; outside, the bound taken.
    Raises LucidError without a bound.

    >>> import lucid
    >>> lucid.clamp(lucid.tensor([-2.0, 0.5, 2.0]), min=-1, max=1)
    tensor([-1. ,  0.5,  1. ])
    """
    if min is None:
        if max is None:
            raise LucidError("clamp: expected min or max or both, got neither")
        return F.clamp_max(x, max)
    return F.clamp_min(x, min) if max is None else F.clamp(x, min, max)


# ---- parts of complex numbers ----


@public()
def real(x: Tensor) -> Tensor:
    """The real part, a view; a real tensor itself.

    >>> import lucid
    >>> lucid.real(lucid.tensor([1 + 2j]))
    tensor([1.])
    """
    return F.real_view(x) if category(x.dtype) == 3 else x


@public()
def imag(x: Tensor) -> Tensor:
    """The imaginary part of a complex tensor: a view. Raises DtypeError for a real one.

    >>> import lucid
    >>> lucid.imag(lucid.tensor([1 + 2j]))
    tensor([2.])
    """
    if category(x.dtype) != 3:
        raise DtypeError(f"imag: expected a complex tensor, got {x.dtype.name}")
    return F.imag_view(x)


@public("conj", "conj_physical", method=("conj", "conj_physical"))
def conj(x: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself.

    >>> import lucid
    >>> lucid.conj(lucid.tensor([1 + 2j]))
    tensor([1.-2.j], dtype=complex64)
    """
    return F.conj(x) if category(x.dtype) == 3 else x


@public("resolve_conj", "resolve_neg", method=("resolve_conj", "resolve_neg"))
def resolve_conj(x: Tensor) -> Tensor:
    """The tensor itself: conjugates and negatives are never delayed here.

    >>> import lucid
    >>> x = lucid.tensor([1 + 2j])
    >>> lucid.resolve_conj(x) is x
    True
    """
    return x


@public()
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """real + i imag: float32 gives complex64, float64 gives complex128.

    Shapes broadcast together. Raises DtypeError for other and for different dtypes.

    >>> import lucid
    >>> lucid.complex(lucid.tensor([1.0]), lucid.tensor([2.0]))
    tensor([1.+2.j], dtype=complex64)
    """
    if real.dtype != imag.dtype or category(real.dtype) != 2:
        raise DtypeError("complex: expected two tensors of one floating dtype, "
                         f"got {real.dtype.name} and {imag.dtype.name}")
    return F.complex(real, imag)


# ---- comparisons ----


@public(method=True)
def allclose(x: Tensor, y: Tensor, rtol: builtins.float = 1e-5, atol: builtins.float = 1e-8,
             equal_nan: builtins.bool = False) -> builtins.bool:
    """Whether |x - y| <= atol + rtol |y| everywhere (waits for the device): a Python bool. See `isclose`.

    >>> import lucid
    >>> lucid.allclose(lucid.tensor([1.0]), lucid.tensor([1.000001]))
    True
    """
    return builtins.bool(F.all(F.isclose(x, y, rtol, atol, equal_nan)).array)


@public(method=True)
def equal(x: Tensor, y: Tensor) -> builtins.bool:
    """Whether x and y have the same shape and elements; NaN equals nothing (waits for the device).

    >>> import lucid
    >>> lucid.equal(lucid.tensor([1, 2]), lucid.tensor([1, 2]))
    True
    """
    return x.shape == y.shape and builtins.bool(F.all(F.eq(x, y)).array)


@public(method=True)
def positive(x: Tensor) -> Tensor:
    """x itself: +x. Raises DtypeError for bools.

    >>> import lucid
    >>> lucid.positive(lucid.tensor([-1.0, 2.0]))
    tensor([-1.,  2.])
    """
    if x.dtype.kind == "b":
        raise DtypeError("positive: expected numbers, got a bool tensor; convert it with x.long()")
    return x


# ---- second names ----


def _polygamma(x: Tensor, n: builtins.int) -> Tensor:
    """The polygamma function of order n of the tensor: `lucid.polygamma(n, x)`.

    >>> import lucid
    >>> lucid.tensor([1.0]).polygamma(1)
    tensor([1.6449])
    """
    return F.polygamma(n, x)


def _forward(name: str, alias: str = "", home: str = "lucid") -> Callable[..., Any]:
    """A function that calls the op `name`, whose recorder is made at the first call."""
    def function(*args: Any, **kwargs: Any) -> Any:
        return getattr(F, name)(*args, **kwargs)
    function.__name__ = function.__qualname__ = alias or name
    function.__module__, function.__doc__ = home, document(OPS[name])
    setattr(function, "__signature__", inspect.Signature(OPS[name].parameters))  # noqa: B010  (for help())
    return function


# PyTorch's second names of ops, also as methods.
ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "multiply": "mul", "negative": "neg",
    "fix": "trunc", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "not_equal": "ne", "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift",
    "igamma": "gammainc", "igammac": "gammaincc",
}
# lucid.special: names that are the op's own, then PyTorch's other names for ops.
SPECIAL = {
    **{name: name for name in (
        *POLYNOMIALS,
        "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "digamma", "entr", "erf", "erfc", "erfcx",
        "erfinv", "exp2", "expm1", "gammainc", "gammaincc", "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr",
        "logit", "logsumexp", "modified_bessel_k0", "modified_bessel_k1", "ndtr", "ndtri", "polygamma",
        "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "sinc", "spherical_bessel_j0",
        "xlog1py", "xlogy", "zeta")},
    "expit": "sigmoid", "gammaln": "lgamma", "modified_bessel_i0": "i0", "modified_bessel_i1": "i1",
    "multigammaln": "mvlgamma", "psi": "digamma",
}
# In-place methods of what is no single op.
WRITTEN: dict[str, Callable[..., Any]] = {
    "add_": add, "sub_": sub, "subtract_": sub, "div_": div, "divide_": div, "true_divide_": true_divide,
    "clamp_": clamp, "clip_": clamp, "float_power_": float_power, "conj_physical_": conj,
    "polygamma_": _polygamma, "ldexp_": _forward("ldexp"), "mvlgamma_": _forward("mvlgamma"),
    "igamma_": _forward("gammainc"), "igammac_": _forward("gammaincc"),
}
# In-place methods of several tensors that PyTorch also has as functions; those of one tensor it has all.
WRITTEN_FUNCTIONS = ("clamp", "clip", "clamp_max", "clamp_min", "conj_physical", "gcd", "lcm", "ldexp",
                     "xlogy")


def _alias_method(alias: str, space: Any, name: str) -> None:
    setattr(Tensor, alias, LazyMethod(alias, lambda: getattr(space, name)))


def _method(name: str) -> Callable[..., Any]:
    def function(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, Tensor):
            raise DtypeError(f"{name}: expected a tensor as x, got {describe(x)}; only a tensor is written")
        return getattr(x, name)(*args, **kwargs)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = _inplace.document(name)
    return function


def _part_setter(part: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Any], None]:
    def assign(x: Tensor, value: Any) -> None:
        part(x).copy_(value)

    return assign


def _attach() -> None:
    for alias, name in ALIASES.items():
        PUBLIC[alias] = _forward(name, alias)
        _alias_method(alias, F, name)
        if OPS[name].inplace:
            _alias_method(f"{alias}_", Tensor, f"{name}_")
    for alias, name in SPECIAL.items():
        PUBLIC[f"special.{alias}"] = _forward(name, alias, "lucid.special")
    for name, function in WRITTEN.items():
        setattr(Tensor, name, _inplace.method(function, name))
    one = [n for n, op in OPS.items() if op.inplace and len(op.tensors) == 1]
    for name in (*one, *(alias for alias, n in ALIASES.items() if n in one), *WRITTEN_FUNCTIONS):
        PUBLIC.setdefault(f"{name}_", _method(f"{name}_"))
    setattr(Tensor, "polygamma", _polygamma)  # noqa: B010    (no attribute that mypy knows)
    for part in (real, imag):
        setattr(Tensor, part.__name__, property(part, _part_setter(part)))
    # The name that PyTorch kept from Python 2.
    setattr(Tensor, "__rdiv__", Tensor.__rtruediv__)  # noqa: B010


_attach()


# ---- activations ----


def _apply(name: str, x: Tensor, inplace: builtins.bool, *statics: Any) -> Tensor:
    f = getattr(F, name)
    if not inplace:
        return f(x, *statics)
    _inplace.check_writable(x, name)
    return _inplace.write(x, f(x, *statics), name)


@public("nn.functional.relu")
def relu(x: Tensor, inplace: builtins.bool = False) -> Tensor:
    """max(x, 0); derivative 0 at 0. x: any shape; returns x's shape and dtype, x itself when `inplace`.

    >>> import lucid
    >>> lucid.nn.functional.relu(lucid.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return _apply("relu", x, True) if inplace else F.relu(x)


@public("nn.functional.relu6")
def relu6(x: Tensor, inplace: builtins.bool = False) -> Tensor:
    """x held between 0 and 6; derivative 0 at both bounds.

    >>> import lucid
    >>> lucid.nn.functional.relu6(lucid.tensor([-1.0, 3.0, 8.0]))
    tensor([0., 3., 6.])
    """
    return _apply("relu6", x, inplace)


@public("nn.functional.hardtanh")
def hardtanh(x: Tensor, min_val: builtins.float = -1.0, max_val: builtins.float = 1.0,
             inplace: builtins.bool = False) -> Tensor:
    """x held between `min_val` and `max_val`; derivative 0 at both bounds. LucidError for min_val > max_val.

    >>> import lucid
    >>> lucid.nn.functional.hardtanh(lucid.tensor([-2.0, 0.5, 2.0]))
    tensor([-1. ,  0.5,  1. ])
    """
    if min_val > max_val:
        raise LucidError(f"hardtanh: expected min_val <= max_val, got {min_val} and {max_val}")
    return _apply("hardtanh", x, inplace, min_val, max_val)


@public("nn.functional.leaky_relu")
def leaky_relu(x: Tensor, negative_slope: builtins.float = 0.01, inplace: builtins.bool = False) -> Tensor:
    """x where x > 0, else negative_slope x.

    >>> import lucid
    >>> lucid.nn.functional.leaky_relu(lucid.tensor([-1.0, 2.0]), 0.1)
    tensor([-0.1,  2. ])
    """
    return _apply("leaky_relu", x, inplace, negative_slope)


@public("nn.functional.prelu")
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight x; weight: [1], or [C] for dimension 1 of x, else ShapeError.

    >>> import lucid
    >>> lucid.nn.functional.prelu(lucid.tensor([-1.0, 2.0]), lucid.tensor([0.25]))
    tensor([-0.25,  2.  ])
    """
    return F.prelu(x, weight)


@public("rrelu", "nn.functional.rrelu")
def rrelu(x: Tensor, lower: builtins.float = 1 / 8, upper: builtins.float = 1 / 3,
          training: builtins.bool = False,
          inplace: builtins.bool = False) -> Tensor:
    """x where x > 0, else slope x (Xu et al. 2015, arXiv:1505.00853).

    The slope of each element is drawn from [lower, upper) when training, and (lower + upper) / 2 otherwise.
    Raises LucidError for lower > upper.

    >>> import lucid
    >>> lucid.nn.functional.rrelu(lucid.tensor([-1.0, 2.0]), 0.1, 0.3)
    tensor([-0.2,  2. ])
    """
    if lower > upper:
        raise LucidError(f"rrelu: expected lower <= upper, got {lower} and {upper}")
    if not training:
        return _apply("leaky_relu", x, inplace, (lower + upper) / 2)
    backend = x.storage.backend
    slopes = _wrap(default_generator(backend).uniform(x.shape, lower, upper, x.dtype), backend)
    out = F.prelu_kernel(x, slopes)
    return x.copy_(out) if inplace else out


@public("nn.functional.threshold")
def threshold(x: Tensor, threshold: builtins.float, value: builtins.float,
              inplace: builtins.bool = False) -> Tensor:
    """x where x > threshold, else `value`.

    >>> import lucid
    >>> lucid.nn.functional.threshold(lucid.tensor([0.0, 0.5, 2.0]), 0.5, 20.0)
    tensor([20., 20.,  2.])
    """
    return _apply("threshold", x, inplace, threshold, value)


@public("nn.functional.elu")
def elu(x: Tensor, alpha: builtins.float = 1.0, inplace: builtins.bool = False) -> Tensor:
    """x where x > 0, else alpha (e^x - 1) (Clevert et al. 2015, arXiv:1511.07289).

    >>> import lucid
    >>> lucid.nn.functional.elu(lucid.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.    ])
    """
    return _apply("elu", x, inplace, alpha)


@public("nn.functional.selu")
def selu(x: Tensor, inplace: builtins.bool = False) -> Tensor:
    """scale (x where x > 0, else alpha (e^x - 1)), with the constants that keep mean 0 and variance 1.

    Klambauer et al. 2017, arXiv:1706.02515.

    >>> import lucid
    >>> lucid.nn.functional.selu(lucid.tensor([-1.0, 2.0]))
    tensor([-1.1113,  2.1014])
    """
    return _apply("selu", x, inplace)


@public("nn.functional.celu")
def celu(x: Tensor, alpha: builtins.float = 1.0, inplace: builtins.bool = False) -> Tensor:
    """x where x > 0, else alpha (e^(x / alpha) - 1) (Barron 2017, arXiv:1704.07483).

    Raises ShapeError for alpha = 0.

    >>> import lucid
    >>> lucid.nn.functional.celu(lucid.tensor([-1.0, 2.0]), alpha=2.0)
    tensor([-0.7869,  2.    ])
    """
    return _apply("celu", x, inplace, alpha)


@public("nn.functional.silu")
def silu(x: Tensor, inplace: builtins.bool = False) -> Tensor:
    """x sigmoid(x), also called swish (Hendrycks and Gimpel 2016, arXiv:1606.08415).

    >>> import lucid
    >>> lucid.nn.functional.silu(lucid.tensor([-1.0, 2.0]))
    tensor([-0.2689,  1.7616])
    """
    return _apply("silu", x, inplace)


@public("nn.functional.mish")
def mish(x: Tensor, inplace: builtins.bool = False) -> Tensor:
    """x tanh(log(1 + e^x)) (Misra 2019, arXiv:1908.08681).

    >>> import lucid
    >>> lucid.nn.functional.mish(lucid.tensor([-1.0, 2.0]))
    tensor([-0.3034,  1.944 ])
    """
    return _apply("mish", x, inplace)


@public("nn.functional.hardswish")
def hardswish(x: Tensor, inplace: builtins.bool = False) -> Tensor:
    """x hardsigmoid(x) (Howard et al. 2019, arXiv:1905.02244).

    >>> import lucid
    >>> lucid.nn.functional.hardswish(lucid.tensor([-4.0, 1.0, 4.0]))
    tensor([-0.    ,  0.6667,  4.    ])
    """
    return _apply("hardswish", x, inplace)


@public("nn.functional.hardsigmoid")
def hardsigmoid(x: Tensor, inplace: builtins.bool = False) -> Tensor:
    """(x + 3) / 6 held between 0 and 1.

    >>> import lucid
    >>> lucid.nn.functional.hardsigmoid(lucid.tensor([-4.0, 0.0, 4.0]))
    tensor([0. , 0.5, 1. ])
    """
    return _apply("hardsigmoid", x, inplace)


# These have no `inplace`.
for _name in ("gelu", "softplus", "softsign", "hardshrink", "softshrink", "tanhshrink", "logsigmoid", "glu",
              "sigmoid", "tanh"):
    PUBLIC[f"nn.functional.{_name}"] = _forward(_name)
# In-place forms that are functions in PyTorch: where they stand besides `nn.functional`.
_IN_PLACE: dict[Callable[..., Tensor], tuple[str, ...]] = {
    relu: ("",), selu: ("",), celu: ("",), rrelu: ("",), threshold: ("",),
    relu6: (), hardtanh: (), leaky_relu: (), elu: (),
}


def _written(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    signature = inspect.signature(function, eval_str=True)
    own = signature.replace(parameters=[p for n, p in signature.parameters.items() if n != "inplace"])

    @functools.wraps(function)
    def written(x: Tensor, *statics: Any) -> Tensor:
        return function(x, *statics, inplace=True)

    setattr(written, "__signature__", own)  # noqa: B010  (of which its front is made)
    written.__doc__ = _inplace.document(f"{function.__name__}_")
    return written


for _function, _places in _IN_PLACE.items():
    for _place in ("nn.functional.", *_places):
        PUBLIC[f"{_place}{_function.__name__}_"] = _written(_function)
