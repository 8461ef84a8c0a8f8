"""Arithmetic, elementary functions, complex parts, comparison and logic: the pointwise ops
that formulas are made of.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import DtypeError
from .common import need_order
from .registry import OPS, A, Sample, op

_PAIR = [
    Sample((3, 4), (3, 4)),
    Sample((3, 1), (4,)),
    Sample((), (2, 3)),
    Sample((0, 2), (2,)),
    Sample((2, 3), (2, 3), complex=True),
]
_POSITIVE = [Sample(A((3, 4), 0.3, 2.0)), Sample(A((), 0.3, 2.0)), Sample(A((0, 3), 0.3, 2.0))]
_ANY = [Sample((3, 4)), Sample(()), Sample((0, 3)), Sample((2, 3), complex=True)]


# ---- arithmetic ----


@op(
    ufunc="add",
    dtype="promote",
    pointwise=True,
    method=True,
    inplace=True,
    amp="promote",
    samples=_PAIR,
    reference="numpy:add",
)
def add(xp, x, y):
    """Sum of x and y, element by element with broadcasting."""


add.grad(x=lambda F, g: g, y=lambda F, g: g)


@op(
    dtype="promote",
    pointwise=True,
    method=True,
    inplace=True,
    amp="promote",
    samples=_PAIR,
    reference="numpy:subtract",
)
def sub(xp, x, y):
    """Difference x - y, element by element with broadcasting."""
    if x.dtype == bool:
        raise DtypeError("sub: expected numbers, got bool tensors; use logical_xor, or ~x for the complement")
    return xp.subtract(x, y)


sub.grad(x=lambda F, g: g, y=lambda F, g: -g)


@op(
    holomorphic=True,
    ufunc="multiply",
    dtype="promote",
    pointwise=True,
    method=True,
    inplace=True,
    amp="promote",
    samples=_PAIR,
    reference="numpy:multiply",
)
def mul(xp, x, y):
    """Product of x and y, element by element with broadcasting.

    >>> import lucid
    >>> lucid.mul(lucid.tensor([[1.0], [2.0]]), lucid.tensor([3.0, 4.0]))
    tensor([[3., 4.],
            [6., 8.]])
    """


mul.grad(x=lambda F, g, y: g * y, y=lambda F, g, x: g * x)


@op(
    holomorphic=True,
    ufunc="true_divide",
    dtype="float",
    pointwise=True,
    method=True,
    inplace=True,
    amp="promote",
    reference="numpy:true_divide",
    samples=[
        Sample((3, 4), A((3, 4), 0.5, 2.0)),
        Sample((4,), A((3, 1), -2.0, -0.5)),
        Sample((), A((), 0.5, 1.0)),
    ],
)
def div(xp, x, y):
    """Quotient x / y, element by element with broadcasting; integers give the default float."""


div.grad(x=lambda F, g, y: g / y, y=lambda F, g, x, y: -g * ((x / y) / y))


@op(pointwise=True, method=True, inplace=True, samples=_ANY, reference="numpy:negative")
def neg(xp, x):
    """Negative of each element: -x. Raises DtypeError for bools.

    >>> import lucid
    >>> lucid.neg(lucid.tensor([1.0, -2.0]))
    tensor([-1.,  2.])
    """
    if x.dtype == bool:
        raise DtypeError("neg: expected numbers, got a bool tensor; use ~x for the complement")
    return xp.negative(x)


neg.grad(x=lambda F, g: -g)


@op(
    holomorphic=True,
    dtype="promote",
    pointwise=True,
    method=True,
    inplace=True,
    amp="full",
    reference="numpy:power",
    samples=[Sample(A((3, 4), 0.3, 2.0), (3, 4)), Sample(A((3, 1), 0.3, 2.0), (4,))],
)
def pow(xp, x, y):
    """Power x ** y, element by element with broadcasting.

    The derivatives at x = 0 are PyTorch's: 0 where y = 0. Integers to negative integer powers raise
    DtypeError.

    >>> import lucid
    >>> lucid.pow(lucid.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])
    """
    if x.dtype.kind in "iu" and y.dtype.kind in "iu" and xp.any(y < 0):  # synchronises, integers only
        raise DtypeError(
            "pow: integers to negative integer powers are not integers; convert the base with .float()"
        )
    return xp.power(x, y)


def _pow_x(F, g, x, y):
    zero = y == 0
    return F.where(zero, 0.0, g * (y * x ** F.where(zero, 1.0, y - 1.0)))


def _pow_y(F, g, x, y, out):
    # d/dy x**y = x**y log x, which tends to 0 where x = 0 and y >= 0.
    safe = F.logical_and(x == 0, F.real(y) >= 0)
    return g * F.where(safe, 0.0, out * F.log(F.where(safe, 1.0, x)))


pow.grad(x=_pow_x, y=_pow_y)


# ---- elementary functions ----


@op(
    holomorphic=True,
    ufunc="exp",
    dtype="float",
    pointwise=True,
    method=True,
    inplace=True,
    amp="full",
    samples=_ANY,
    reference="numpy:exp",
)
def exp(xp, x):
    """Exponential of each element: e ** x.

    >>> import lucid
    >>> lucid.exp(lucid.tensor([0.0, 1.0]))
    tensor([1.    , 2.7183])
    """


exp.grad(x=lambda F, g, out: g * out)


@op(
    holomorphic=True,
    ufunc="log",
    dtype="float",
    pointwise=True,
    method=True,
    inplace=True,
    amp="full",
    samples=_POSITIVE,
    reference="numpy:log",
)
def log(xp, x):
    """Natural logarithm of each element; -inf at 0, NaN below.

    >>> import lucid
    >>> lucid.log(lucid.tensor([1.0, lucid.e]))
    tensor([0., 1.])
    """


log.grad(x=lambda F, g, x: g / x)


@op(
    holomorphic=True,
    ufunc="sqrt",
    dtype="float",
    pointwise=True,
    method=True,
    inplace=True,
    samples=_POSITIVE,
    reference="numpy:sqrt",
)
def sqrt(xp, x):
    """Square root of each element; NaN below 0. The derivative at 0 is inf.

    >>> import lucid
    >>> lucid.sqrt(lucid.tensor([0.0, 4.0, 2.0]))
    tensor([0.    , 2.    , 1.4142])
    """


sqrt.grad(x=lambda F, g, out: g / (2.0 * out))


@op(
    holomorphic=True,
    ufunc="tanh",
    dtype="float",
    pointwise=True,
    method=True,
    inplace=True,
    samples=_ANY,
    reference="numpy:tanh",
)
def tanh(xp, x):
    """Hyperbolic tangent of each element: (e^x - e^-x) / (e^x + e^-x).

    >>> import lucid
    >>> lucid.tanh(lucid.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.7616,  0.    ,  0.7616])
    """


# Not g * (1 - out * out): a Python number costs numpy 230 ns more than an array (numpy 2.4).
tanh.grad(x=lambda F, g, out: g - g * (out * out))


@op(
    holomorphic=True,
    dtype="float",
    pointwise=True,
    method=True,
    inplace=True,
    samples=_ANY,
    reference=lambda x: 1.0 / (1.0 + __import__("numpy").exp(-x)),
)
def sigmoid(xp, x):
    """Logistic function of each element: 1 / (1 + exp(-x)), without overflow.

    >>> import lucid
    >>> lucid.sigmoid(lucid.tensor([-1000.0, 0.0, 1.0]))
    tensor([0.    , 0.5   , 0.7311])
    """
    if x.dtype.kind == "c":
        return 1.0 / (1.0 + xp.exp(-x))
    # e^x / (1 + e^x) with e^x kept finite: the left tail is e^x itself, and 0 at -inf.
    # (1 + tanh(x / 2)) / 2 would be one pass less but has no left tail: log(sigmoid(-20)) is -20.
    highest = {2: 11.0, 4: 88.0}.get(x.dtype.itemsize, 709.0) if x.dtype.num < 256 else 88.0
    one = x.dtype.type(1)
    z = xp.exp(xp.minimum(x, x.dtype.type(highest)))
    return z / (one + z)


sigmoid.grad(x=lambda F, g, out: g * (out - out * out))


class _Zeros(dict[Any, Any]):
    """dtype -> its 0, made at first use. Not `dtype.type(0)` in each call, which is 40 % of a small relu."""

    def __missing__(self, dtype: Any) -> Any:
        need_order("relu", dtype.type(0))
        zero = self[dtype] = dtype.type(0)
        return zero


_ZEROS = _Zeros()


@op(
    pointwise=True,
    method=True,
    inplace=True,
    samples=[Sample((3, 4), avoid=(0.0,)), Sample((), avoid=(0.0,)), Sample((0,))],
    reference=lambda x: __import__("numpy").maximum(x, 0.0),
)
def relu(xp, x):
    """Rectified linear unit of each element: max(x, 0). The derivative at 0 is 0.

    >>> import lucid
    >>> lucid.relu(lucid.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    return xp.maximum(x, _ZEROS[x.dtype])


# A choice, not g * (out > 0): its slope stays in the graph, so that a second derivative is 0 and no error.
relu.grad(x=lambda F, g, out: F.within(out, g, 0.0, 0.0, math.inf))
relu.accelerate("cpu", grads={"x": lambda F, g, out: g * (out > 0)})


@op(
    pointwise=True,
    method=True,
    inplace=True,
    samples=[Sample((3, 4), avoid=(0.0,)), Sample((), avoid=(0.0,)), Sample((0,))],
    reference="numpy:abs",
)
def abs(xp, x):
    """Absolute value of each element (the modulus of complex ones). The derivative at 0 is 0.

    >>> import lucid
    >>> lucid.abs(lucid.tensor([-1.5, 2.0]))
    tensor([1.5, 2. ])
    >>> lucid.abs(lucid.tensor(3 + 4j))
    tensor(5.)
    """
    return xp.abs(x)


abs.grad(x=lambda F, g, x: g * F.sgn(x))


@op(pointwise=True, method=True, inplace=True, samples=[Sample((3, 4), avoid=(0.0,))], reference="numpy:sign")
def sign(xp, x):
    """Sign of each element: -1, 0 or 1; NaN stays NaN (PyTorch: 0). The derivative is 0.

    >>> import lucid
    >>> lucid.sign(lucid.tensor([-2.5, 0.0, 7.0]))
    tensor([-1.,  0.,  1.])
    """
    if x.dtype.kind == "b":
        return x.copy()
    need_order("sign", x)
    return xp.sign(x)


sign.grad(x=lambda F, g: F.zeros_like(g))


# ---- complex parts ----


@op(view="maybe", pointwise=True, public=False, samples=[Sample((2, 3), complex=True)])
def conj(xp, x):
    """Complex conjugate; real arrays as they are."""
    return xp.conjugate(x) if x.dtype.kind == "c" else x


conj.grad(x=lambda F, g: F.conj(g))


@op(
    view="maybe",
    pointwise=True,
    public=False,
    samples=[Sample((2, 3), complex=True), Sample((), complex=True)],
)
def real(xp, x):
    """Real part; real arrays as they are."""
    return x.real.copy() if x.dtype.kind == "c" else x


real.grad(x=lambda F, g, x_dtype: F.cast(g, x_dtype))


@op(pointwise=True, public=False, samples=[Sample(A(n, dtype="complex128")) for n in ((2, 3), ())])
def imag(xp, x):
    """Imaginary part; zeros for real arrays."""
    return x.imag.copy() if x.dtype.kind == "c" else xp.zeros_like(x)


imag.grad(x=lambda F, g: g * 1j)


_PARTS = [Sample(A(n, dtype="complex128")) for n in ((2, 3), (), (0, 2))]


@op(view=True, public=False, samples=_PARTS, reference="numpy:real")
def real_view(xp, x):
    """The real parts of a complex array in its memory. Formulas use `real`, whose result lies dense."""
    return x.real


real_view.grad(x=lambda F, g, x_dtype: F.cast(g, x_dtype))


@op(view=True, public=False, samples=_PARTS, reference="numpy:imag")
def imag_view(xp, x):
    """The imaginary parts of a complex array in its memory."""
    return x.imag


imag_view.grad(x=lambda F, g: g * 1j)


@op(pointwise=True, public=False, dtype="promote", samples=[Sample((2, 3), (2, 3))])
def complex(xp, x, y):
    """x + iy, complex."""
    out = xp.empty(
        xp.broadcast_shapes(x.shape, y.shape) if x.shape != y.shape else x.shape,
        "complex64" if x.dtype.itemsize <= 4 else "complex128",
    )
    out.real, out.imag = x, y
    return out


complex.grad(x=lambda F, g: F.real(g), y=lambda F, g: F.imag(g))


# ---- comparison and logic (never differentiable) ----


def _example(doc: str, name: str, arguments: str, result: str) -> str:
    return f"{doc}\n\n>>> import lucid\n>>> lucid.{name}({arguments})\ntensor({result})"


def _compare(name: str, ufunc: str, doc: str, result: str) -> None:
    def forward(xp, x, y):
        return getattr(xp, ufunc)(x, y)

    pair = "lucid.tensor([0, 1, 1]), lucid.tensor([0, 0, 2])"
    forward.__doc__ = _example(doc, name, pair, result)
    op(
        name=name,
        ufunc=ufunc,
        dtype="compare",
        pointwise=True,
        ordered=ufunc[:4] in ("less", "grea"),
        method=True,
        inplace=True,
        samples=[Sample((3, 4), (3, 4)), Sample((3, 1), ())],
        reference=f"numpy:{ufunc}",
    )(forward)


for _row in (
    ("eq", "equal", "Whether x == y, element by element.", "[ True, False, False]"),
    ("ne", "not_equal", "Whether x != y, element by element.", "[False,  True,  True]"),
    ("lt", "less", "Whether x < y, element by element.", "[False, False,  True]"),
    ("le", "less_equal", "Whether x <= y, element by element.", "[ True, False,  True]"),
    ("gt", "greater", "Whether x > y, element by element.", "[False,  True, False]"),
    ("ge", "greater_equal", "Whether x >= y, element by element.", "[ True,  True, False]"),
    ("logical_and", "logical_and", "Whether x and y are both nonzero.", "[False, False,  True]"),
    ("logical_or", "logical_or", "Whether x or y is nonzero.", "[False,  True,  True]"),
    ("logical_xor", "logical_xor", "Whether exactly one of x and y is nonzero.", "[False,  True, False]"),
):
    _compare(*_row)


@op(ufunc="logical_not", pointwise=True, method=True, inplace=True, diff=(), samples=[Sample((3,))])
def logical_not(xp, x):
    """Whether each element is zero.

    >>> import lucid
    >>> lucid.logical_not(lucid.tensor([0, 1, 2]))
    tensor([ True, False, False])
    """


def _logical_cuda(name: str, bitwise: str) -> None:
    # CuPy's logical ufuncs take no complex numbers, and those for xor and not no bfloat16 (dtype kind "V").
    def binary(xp, x, y):
        if x.dtype.kind in "cV":
            return getattr(xp, bitwise)(x != 0, y != 0)
        return getattr(xp, name)(x, y)

    OPS[name].accelerate("cuda", binary)


for _name in ("and", "or", "xor"):
    _logical_cuda(f"logical_{_name}", f"bitwise_{_name}")
logical_not.accelerate("cuda", lambda xp, x: x == 0)


def _bitwise(name: str, doc: str, arguments: str, result: str, n: int = 2) -> None:
    def binary(xp, x, y):
        return getattr(xp, name)(x, y)

    def unary(xp, x):
        return getattr(xp, name)(x)

    forward = binary if n == 2 else unary
    forward.__doc__ = _example(f"{doc} Raises DtypeError for other dtypes.", name, arguments, result)
    integers = A((3,), dtype="int64", low=0, high=8)
    op(
        name=name,
        ufunc=name,
        dtype="promote",
        pointwise=True,
        method=True,
        inplace=True,
        diff=(),
        samples=[Sample(*[integers] * n)],
        reference=f"numpy:{name}",
    )(forward)


for _line in (
    ("bitwise_and", "Bitwise and of integers or bools.", "lucid.tensor([12, 10]), 6", "[4, 2]"),
    ("bitwise_or", "Bitwise or of integers or bools.", "lucid.tensor([12, 10]), 6", "[14, 14]"),
    ("bitwise_xor", "Bitwise exclusive or of integers or bools.", "lucid.tensor([12, 10]), 6", "[10, 12]"),
    ("left_shift", "Integers x, their bits shifted left by y.", "lucid.tensor([1, 3]), 2", "[ 4, 12]"),
    ("right_shift", "Integers x, their bits shifted right by y.", "lucid.tensor([8, 5]), 1", "[4, 2]"),
):
    _bitwise(*_line)
_bitwise("bitwise_not", "Bitwise complement of integers; logical complement of bools.",
         "lucid.tensor([0, 1, -1])", "[-1, -2,  0]", 1)


@op(
    dtype="promote",
    broadcast=True,
    pointwise=True,
    mask=("condition",),
    samples=[
        Sample(A(value=[True, False, True]), (3,), (3,)),
        Sample(A(value=[[True], [False]]), (3,), (2, 1)),
    ],
    reference="numpy:where",
)
def where(xp, condition, x, y):
    """x where `condition` holds, else y, with broadcasting.

    condition: bools, or numbers of which 0 is false.

    >>> import lucid
    >>> x = lucid.tensor([-1.0, 2.0])
    >>> lucid.where(x > 0, x, 0.0)
    tensor([0., 2.])
    """
    if condition.dtype != bool:
        condition = condition != 0
    return xp.where(condition, x, y)


where.grad(
    x=lambda F, g, condition: F.where(condition, g, 0.0), y=lambda F, g, condition: F.where(condition, 0.0, g)
)
