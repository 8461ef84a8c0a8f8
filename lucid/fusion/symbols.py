"""Formulas on symbols: the same derivative, as an expression in CUDA.

A `Symbol` stands for one element of an array, held in a register as accum_t (or bool). Operators and `F.<op>`
on symbols append a line to a `Trace` and return the symbol of its result; a formula that asks for something
without a CUDA form raises `NoCudaForm`, and the group runs its parts one by one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..kernel.calls import threshold_of
from ..ops.registry import OPS
from ..storage.backend import backend_of


class NoCudaForm(Exception):
    """An op, or a use of one, for which there is no CUDA expression."""


# Op -> expression; {0}, {1}, ... are its tensors, {name} its static arguments. Functions end in an
# underscore: overloads for float and double, from lucid.cuh and from the prelude in cuda.py, so that no
# float32 kernel computes in float64.
FORMS: dict[str, str] = {
    "abs": "fabs_({0})",
    "acos": "acos_({0})",
    "add": "({0} + {1})",
    "asin": "asin_({0})",
    "atan": "atan_({0})",
    "clamp_max": "({0} <= {1} || {0} != {0} ? {0} : {1})",
    "clamp_min": "({0} >= {1} || {0} != {0} ? {0} : {1})",
    "cos": "cos_({0})",
    "cosh": "cosh_({0})",
    "div": "({0} / {1})",
    "dropout": "({0} * {1} * (1 / (1 - {p})))",
    "eq": "({0} == {1})",
    "erf": "erf_({0})",
    "erfc": "erfc_({0})",
    "exp": "exp_({0})",
    "expm1": "expm1_({0})",
    "ge": "({0} >= {1})",
    "gt": "({0} > {1})",
    "isfinite": "({0} - {0} == 0)",
    "isnan": "({0} != {0})",
    "le": "({0} <= {1})",
    "lgamma": "lgamma_({0})",
    "log": "log_({0})",
    "log1p": "log1p_({0})",
    "logical_and": "({0} && {1})",
    "logical_not": "(!{0})",
    "logical_or": "({0} || {1})",
    "lt": "({0} < {1})",
    "masked_fill": "({1} ? accum_t({value}) : {0})",
    "maximum": "({0} >= {1} || {0} != {0} ? {0} : {1})",
    "minimum": "({0} <= {1} || {0} != {0} ? {0} : {1})",
    "mul": "({0} * {1})",
    "ne": "({0} != {1})",
    "neg": "(-{0})",
    "pow": "pow_({0}, {1})",
    "relu": "({0} > 0 ? {0} : ({0} != {0} ? {0} : accum_t(0)))",
    "rsqrt": "rsqrt_({0})",
    "sgn": "accum_t(({0} > 0) - ({0} < 0))",
    "sigmoid": "(1 / (1 + exp_(-{0})))",
    "sign": "accum_t(({0} > 0) - ({0} < 0))",
    "sin": "sin_({0})",
    "sinh": "sinh_({0})",
    "softplus": "({0} * {beta} > {threshold} ? {0} : log1p_(exp_({0} * {beta})) / {beta})",
    "sqrt": "sqrt_({0})",
    "sub": "({0} - {1})",
    "tanh": "tanh_({0})",
    "where": "({0} ? {1} : {2})",
    "zeros_like": "accum_t(0)",
    "ones_like": "accum_t(1)",
}
# Op -> its value in ops that have a form; on the CPU these are called as they are.
COMPOSED: dict[str, Any] = {
    "clamp": lambda F, x, min, max: F.clamp_max(F.clamp_min(x, min), max),
    "elu": lambda F, x, alpha, scale, input_scale: F.where(
        x > 0.0, x * scale, F.expm1(F.clamp_max(x, 0.0) * input_scale) * (alpha * scale)
    ),
    "gelu": lambda F, x, approximate: (
        x * 0.5 * F.erfc(x * -math.sqrt(0.5))
        if approximate == "none"
        else x * 0.5 * (F.tanh((x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)) + 1.0)
    ),
    "leaky_relu": lambda F, x, negative_slope: F.where(x > 0.0, x, x * negative_slope),
    "silu": lambda F, x: x * F.sigmoid(x),
}
# Results that are truth values: kept as bool, so that `g * (out > 0)` and a choice both read well.
BOOLEAN = frozenset(
    ("eq", "ne", "lt", "le", "gt", "ge", "isfinite", "logical_and", "logical_or", "logical_not")
)
# The sum of an element's row, one number for the row: what softmax's derivative needs besides its element.
ROW_SUM = "row_sum"
# A number >= 0 with another's sign, on the CPU (ops.activation.with_sign).
WITH_SIGN = "with_sign"
# On real elements these are their argument.
IDENTITY = frozenset(("conj", "real", "cast", "positive", "clone"))


def literal(value: Any) -> str:
    """A Python number as a CUDA expression of type accum_t."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"accum_t({value})"
    if math.isnan(value):
        return "QUIET_NAN"
    if math.isinf(value):
        return "NEG_INF" if value < 0 else "(-NEG_INF)"
    # hex floats are exact; the cast keeps float64 arithmetic out of float32 kernels.
    return (
        f"accum_t({float(value)!r}f)"
        if abs(value) < 3e38 and float(value) == _float32(value)
        else f"accum_t({float(value)!r})"
    )


def _float32(value: float) -> float:
    return float(np.float32(value))


class Trace:
    """What formulas computed on symbols: one constant per result, in order; equal expressions share one.

    lines: as CUDA source. steps: the same as (result's name, op's name or a function, arguments, static
    arguments), for `numpy_code`. A trace that is kept is not changed any more.
    """

    __slots__ = ("lines", "steps", "boolean", "device", "single", "skips", "codes", "_names")

    def __init__(self, device: str = "cuda", single: bool = False) -> None:
        # On "cpu" any pointwise op has a form: it is called as it is. single: it computes in float32.
        self.device, self.single = device, single
        self.lines: list[str] = []
        # How many places of draws in their streams are arguments of the kernel, `skip{i}`.
        self.skips = 0
        self.steps: list[tuple[str, Any, tuple[Any, ...], dict[str, Any]]] = []
        self.boolean: set[str] = set()
        # What was made of the trace, by how its arrays lay: `numpy_code.Code`, `cuda.Kernel`.
        self.codes: dict[Any, Any] = {}
        self._names: dict[str, Symbol] = {}

    def let(
        self,
        expression: str,
        boolean: bool = False,
        op: Any = None,
        args: tuple[Any, ...] = (),
        statics: dict[str, Any] | None = None,
    ) -> Symbol:
        """The symbol of an expression, which is `op` of `args`."""
        found = self._names.get(expression)
        if found is None:
            name = f"t{len(self.lines)}"
            self.lines.append(f"const {'bool' if boolean else 'accum_t'} {name} = {expression};")
            self.steps.append((name, op, args, statics or {}))
            if boolean:
                self.boolean.add(name)
            found = self._names[expression] = Symbol(self, name)
        return found

    def __contains__(self, expression: str) -> bool:
        return expression in self._names

    def needed(self, results: list[Any], known: frozenset[str] = frozenset()) -> set[str]:
        """Names of the steps and inputs on which some result depends, not further than the `known` ones."""
        needed = {r.text for r in results if isinstance(r, Symbol)}
        for name, _, args, _ in reversed(self.steps):
            if name in needed and name not in known:
                needed |= {a.text for a in args if isinstance(a, Symbol)}
        return needed

    def row_sums(self) -> list[tuple[str, Symbol]]:
        """(name, what is summed) of the sums along rows, in order."""
        return [(name, args[0]) for name, op, args, _ in self.steps if op == ROW_SUM]

    def apply(self, function: Any, *args: Any) -> Symbol:
        """The symbol of a function's result that has no CUDA form: `function(F, *args)` on arrays.

        For the CPU.
        """
        texts = ", ".join(a.text if isinstance(a, Symbol) else repr(a) for a in args)
        return self.let(
            f"{getattr(function, '__name__', 'f')}@{id(function)}({texts})", False, function, args
        )


class Symbol:
    """One element of an array in a register."""

    __slots__ = ("trace", "text", "dtype")
    shape = ()
    ndim = 0

    def __init__(self, trace: Trace, text: str, dtype: Any = None) -> None:
        self.trace, self.text, self.dtype = trace, text, dtype if dtype is not None else _REAL

    def _call(self, name: str, *args: Any) -> Symbol:
        return call(self.trace, name, *args)

    def __add__(self, y: Any) -> Symbol:
        return self._call("add", self, y)

    def __radd__(self, y: Any) -> Symbol:
        return self._call("add", y, self)

    def __sub__(self, y: Any) -> Symbol:
        return self._call("sub", self, y)

    def __rsub__(self, y: Any) -> Symbol:
        return self._call("sub", y, self)

    def __mul__(self, y: Any) -> Symbol:
        return self._call("mul", self, y)

    def __rmul__(self, y: Any) -> Symbol:
        return self._call("mul", y, self)

    def __truediv__(self, y: Any) -> Symbol:
        return self._call("div", self, y)

    def __rtruediv__(self, y: Any) -> Symbol:
        return self._call("div", y, self)

    def __pow__(self, y: Any) -> Symbol:
        if isinstance(y, (int, float)) and y == 2:
            return self._call("mul", self, self)
        return self._call("pow", self, y)

    def __rpow__(self, y: Any) -> Symbol:
        return self._call("pow", y, self)

    def __neg__(self) -> Symbol:
        return self._call("neg", self)

    def __abs__(self) -> Symbol:
        return self._call("abs", self)

    def __eq__(self, y: Any) -> Symbol:  # type: ignore[override]
        return self._call("eq", self, y)

    def __ne__(self, y: Any) -> Symbol:  # type: ignore[override]
        return self._call("ne", self, y)

    def __lt__(self, y: Any) -> Symbol:
        return self._call("lt", self, y)

    def __le__(self, y: Any) -> Symbol:
        return self._call("le", self, y)

    def __gt__(self, y: Any) -> Symbol:
        return self._call("gt", self, y)

    def __ge__(self, y: Any) -> Symbol:
        return self._call("ge", self, y)

    def __and__(self, y: Any) -> Symbol:
        return self._call("logical_and", self, y)

    def __or__(self, y: Any) -> Symbol:
        return self._call("logical_or", self, y)

    def __invert__(self) -> Symbol:
        return self._call("logical_not", self)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise NoCudaForm("a branch on a value")

    def __getattr__(self, name: str) -> Any:
        raise NoCudaForm(f"attribute {name!r} of a value")


class _Real:
    """Stands for the dtype of a symbol: some real floating type."""

    kind = "f"
    itemsize = 4
    num = 11
    name = "real"


_REAL = _Real()


def call(trace: Trace, name: str, *args: Any, **statics: Any) -> Any:
    """The symbol of an op's result on symbols and numbers."""
    if name in IDENTITY:
        return args[0]
    if name == "mul" and len(args) == 2:
        x, y = args if isinstance(args[0], Symbol) else args[::-1]
        if (
            isinstance(y, float)
            and y == 1
            and isinstance(x, Symbol)
            and x.text not in trace.boolean
            and x.dtype.kind == "f"
        ):
            return x
    if not statics and len(args) == len(OPS[name].tensors) and name in _EXACT:
        simpler = _simpler(trace, name, *args)
        if simpler is not None:
            return simpler
    form, op = FORMS.get(name), OPS[name]
    named = {p.name: p.default for p in op.parameters if p.default is not p.empty}
    named |= dict(zip((p.name for p in op.parameters), args, strict=False)) | statics
    tensors = [named[t] for t in op.tensors if t in named]
    if (
        tensors
        and op.pointwise
        and not any(isinstance(v, Symbol) for v in tensors)
        and all(isinstance(v, (int, float)) for v in tensors)
    ):
        # A constant: computed here, in float64.
        return getattr(backend_of("cpu").F, name)(
            **{k: np.asarray(v) if k in op.tensors else v for k, v in named.items()}
        ).item()
    if name == "where" and isinstance(tensors[0], (bool, int, float)):
        return tensors[1] if tensors[0] else tensors[2]
    if form is None and name in COMPOSED and trace.device != "cpu":
        return COMPOSED[name](SymbolNamespace(trace), **named)
    if form is None:
        if trace.device != "cpu" or not op.pointwise or op.variadic or len(op.outputs) > 1:
            raise NoCudaForm(f"op {name}")
        listed = (f"{k}={v.text if isinstance(v, Symbol) else repr(v)}" for k, v in named.items())
        form = f"{name}@({', '.join(listed)})".replace("{", "{{").replace("}", "}}")
    if not all(isinstance(v, (Symbol, int, float)) for v in tensors):
        raise NoCudaForm(f"op {name} of other arguments than numbers")
    texts = {
        k: v.text if isinstance(v, Symbol) else literal(v)
        for k, v in named.items()
        if isinstance(v, (Symbol, int, float))
    }
    return trace.let(
        form.format(*[texts[t] for t in op.tensors], **texts),
        name in BOOLEAN,
        name,
        tuple(named[t] for t in op.tensors),
        {k: v for k, v in named.items() if k not in op.tensors},
    )


_EXACT = frozenset(("neg", "add", "sub", "mul"))


def _simpler(trace: Trace, name: str, x: Any, y: Any = None) -> Any:
    """The symbol of an equal result in fewer operations, or None: signs move to where they cost nothing, as
    in the derivative of -x * x. Each rule is exact in floating point.
    """
    a, b = _negated(trace, x), _negated(trace, y)
    if name == "neg":
        if a is not None:
            return a
        op, args = _made_by(trace, x)
        if op == "mul" and isinstance(args[1], (int, float)):
            return call(trace, "mul", args[0], -float(args[1]))
        return None
    if name == "add":
        if isinstance(x, Symbol) and isinstance(y, Symbol) and x.text == y.text:
            return call(trace, "mul", x, 2.0)
        if b is not None:
            return call(trace, "sub", x, b)
        return None if a is None else call(trace, "sub", y, a)
    if name == "sub":
        return call(trace, "add", x, b) if b is not None else None
    # A product: by a number, or one that is known with the other sign.
    if a is not None and isinstance(y, (int, float)):
        return call(trace, "mul", a, -float(y))
    if b is not None and isinstance(x, (int, float)):
        return call(trace, "mul", b, -float(x))
    for u, v in ((a, y), (x, b), (_negative(trace, x), y), (x, _negative(trace, y))):
        if isinstance(u, Symbol) and isinstance(v, Symbol):
            for text in (f"({u.text} * {v.text})", f"({v.text} * {u.text})"):
                if text in trace:
                    return call(trace, "neg", trace.let(text))
    return None


def _made_by(trace: Trace, x: Any) -> tuple[Any, tuple[Any, ...]]:
    """(op's name, arguments) of the step that made a symbol; (None, ()) for an input or a number."""
    if not isinstance(x, Symbol) or x.text[0] != "t":
        return None, ()
    _, op, args, _ = trace.steps[int(x.text[1:])]
    return op, args


def _negative(trace: Trace, x: Any) -> Any:
    """The symbol of -x where there is one, else None."""
    text = f"(-{x.text})" if isinstance(x, Symbol) else ""
    return trace.let(text) if text in trace else None


def _negated(trace: Trace, x: Any) -> Any:
    """The symbol whose negative `x` is, or None."""
    op, args = _made_by(trace, x)
    return args[0] if op == "neg" else None


class SymbolNamespace:
    """`F` on symbols."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def within(self, x: Any, v: Any, w: Any, low: float, high: float) -> Any:
        """v where low < x < high or x is NaN, else w."""
        outside = (
            x <= low
            if math.isinf(high) and high > 0
            else call(self._trace, "logical_or", x <= low, x >= high)
        )
        return call(self._trace, "where", outside, w, v)

    def seeded_dropout(self, x: Any, state: Any, skip: Any, p: float) -> Any:
        """`dropout` with a mask that the kernel makes: `at` is the element's position, see `word_of`."""
        trace = self._trace
        if trace.device == "cpu":
            raise NoCudaForm("op seeded_dropout")
        number = skip[0]  # region.Skip
        trace.skips = max(trace.skips, number + 1)
        word = f"word_of(x{state.text[1:]}, skip{number}, at, k)"
        kept = trace.let(f"({word} < {threshold_of(1.0 - p)}ull)", True, "philox_mask", (state,))
        return call(trace, "dropout", x, kept, p)

    def sum(self, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        """The sum along a row; other sums have no form."""
        if not isinstance(x, Symbol) or not isinstance(dim, int) or not keepdim:
            raise NoCudaForm("op sum")
        return self._trace.let(f"{ROW_SUM}({x.text})", False, ROW_SUM, (x,))

    def __getattr__(self, name: str) -> Any:
        op = OPS.get(name)
        if op is None:
            raise NoCudaForm(f"op {name}")
        if op.composite:
            return lambda *args, **statics: op.forward(self, *args, **statics)
        return lambda *args, **statics: call(self._trace, name, *args, **statics)
