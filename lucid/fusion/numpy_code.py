"""A trace as NumPy code on one block: a ufunc per step, results in scratch arrays that are used again as soon
as their last reader has run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.plan import compile_source
from ..storage.backend import special
from .symbols import ROW_SUM, WITH_SIGN, Symbol, Trace

UFUNCS = {
    "abs": "absolute",
    "acos": "arccos",
    "add": "add",
    "asin": "arcsin",
    "atan": "arctan",
    "clamp_max": "minimum",
    "clamp_min": "maximum",
    "cos": "cos",
    "cosh": "cosh",
    "div": "divide",
    "eq": "equal",
    "exp": "exp",
    "expm1": "expm1",
    "ge": "greater_equal",
    "gt": "greater",
    "isfinite": "isfinite",
    "isnan": "isnan",
    "le": "less_equal",
    "log": "log",
    "log1p": "log1p",
    "logical_and": "logical_and",
    "logical_not": "logical_not",
    "logical_or": "logical_or",
    "lt": "less",
    "maximum": "maximum",
    "minimum": "minimum",
    "mul": "multiply",
    "ne": "not_equal",
    "neg": "negative",
    "pow": "power",
    "sgn": "sign",
    "sign": "sign",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "sub": "subtract",
    "tanh": "tanh",
}
SPECIAL = {"erf": "erf", "erfc": "erfc", "lgamma": "gammaln"}
# Ops of a few ufuncs: {o} is the result's array, {0}, {1} the tensors, {name} static arguments. Only the
# first line may read tensors unless the op stands in APART, whose result never shares an array with a tensor.
LINES = {
    "sigmoid": (
        "negative({0}, out={o})",
        "exp({o}, out={o})",
        "add({o}, 1.0, out={o})",
        "divide(1.0, {o}, out={o})",
    ),
    "rsqrt": ("sqrt({0}, out={o})", "divide(1.0, {o}, out={o})"),
    "dropout": ("multiply({0}, {1}, out={o})", "multiply({o}, 1.0 / (1.0 - {p}), out={o})"),
    "masked_fill": ("masked({0}, {1}, {value}, {o})",),
    "where": ("select({0}, {1}, {2}, {o})",),
    # The bit of the sign; in float32, as its formula.
    WITH_SIGN: ("bitwise_and({1}.view(I), -2147483648, out={o}.view(I))",
                "bitwise_or({o}.view(I), {0}.view(I), out={o}.view(I))"),
}  # fmt: skip
APART = frozenset(("masked_fill", "where", WITH_SIGN))
# Ufuncs that NumPy computes three times as fast with an array as with a number: it gets an array of them.
SPREAD = frozenset(("maximum", "minimum"))
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
_cache: dict[Any, Callable[..., Any]] = {}


def select(c: Any, a: Any, b: Any, out: Any) -> None:
    """Nothing; writes a where c holds, else b, to `out` (which is none of them).

    On the bits, a ^ ((a ^ b) & mask): NumPy's `where` mispredicts branches (bench_overhead: within).
    """
    if (
        c.shape != out.shape
        or c.dtype != bool
        or any(isinstance(v, np.ndarray) and v.shape != out.shape for v in (a, b))
    ):
        np.copyto(out, b)
        np.copyto(out, a, where=c)
        return
    bits = f"i{out.dtype.itemsize}"
    o = out.view(bits)
    # 0 where c holds, -1 elsewhere; or the other way about.
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        np.copyto(out, b)
        np.copyto(out, a, where=c)
    elif not isinstance(a, np.ndarray) and a == 0:
        np.subtract(c.view("i1"), 1, out=o)
        np.bitwise_and(o, b.view(bits), o)
    elif not isinstance(b, np.ndarray) and b == 0:
        np.negative(c.view("i1"), out=o)
        np.bitwise_and(o, a.view(bits), o)
    else:
        x, y = (np.asarray(v, out.dtype).view(bits) for v in (a, b))
        np.subtract(c.view("i1"), 1, out=o)
        np.bitwise_and(o, x ^ y, o)
        np.bitwise_xor(o, x, o)


def masked(x: Any, c: Any, value: Any, out: Any) -> None:
    """Nothing; writes `value` where c holds, else x, to `out`."""
    select(c, value, x, out)


class Code:
    """A trace as a function of one block.

    run(F, V, O, S, M, K, W, I): F raw namespace, W elements in a row, V blocks of the inputs, O blocks of the
    outputs that are written in full, S and M scratch arrays, floating and bool, K arrays of one number each,
    I the integer type of a float's bits. Returns the blocks that are to be summed. scratch, masks: how many
    it needs; constants: the numbers.
    """

    __slots__ = ("run", "scratch", "masks", "constants", "source")
    run: Any
    scratch: int
    masks: int
    constants: tuple[float, ...]
    source: str


class _Writer:
    def __init__(
        self, trace: Trace, axes: list[str], low: list[bool], all_axes: str, written: dict[str, str]
    ) -> None:
        self.trace, self.low, self.all, self.written = trace, low, all_axes, written
        self.axes = {f"v{i}": a for i, a in enumerate(axes)}
        self.place = {f"v{i}": f"v{i}" for i in range(len(axes))}
        self.lines: list[str] = []
        self.constants: list[float] = []
        self.scope: dict[str, Any] = {}
        self.free: dict[str, list[str]] = {"s": [], "m": []}
        self.count = {"s": 0, "m": 0}
        self.last: dict[str, int] = {}

    def take(self, kind: str) -> str:
        """A scratch array."""
        if self.free[kind]:
            return self.free[kind].pop()
        self.count[kind] += 1
        return f"{kind}{self.count[kind] - 1}"

    def operand(self, v: Any) -> str:
        """The code of an argument."""
        if isinstance(v, Symbol):
            if v.text[0] == "v" and self.place[v.text] == v.text and self.low[int(v.text[1:])]:
                self.load(v.text)
            return self.place[v.text]
        if isinstance(v, (int, float)):
            return f"float('{v}')" if v != v or v in (float("inf"), float("-inf")) else repr(v)
        name = f"c{len(self.scope)}"
        self.scope[name] = v
        return name

    def constant(self, v: float) -> str:
        """An array of a number."""
        known = [repr(c) for c in self.constants]  # NaN, and -0.0 beside 0.0
        if repr(v) not in known:
            self.constants.append(v)
            known.append(repr(v))
        return f"k{known.index(repr(v))}"

    def load(self, name: str) -> None:
        """A 16-bit input in float32."""
        if self.axes[name] == self.all:
            s = self.take("s")
            self.lines.append(f"copyto({s}, {name}, 'unsafe')")
            self.place[name] = s
        else:
            self.lines.append(f"{name} = {name}.astype('float32')")
            self.low[int(name[1:])] = False

    def step(self, i: int, name: str, op: Any, args: tuple[Any, ...], statics: dict[str, Any]) -> None:
        """One step of the trace."""
        if op == "relu":
            op, args = "maximum", (*args, 0.0)
        form = UFUNCS.get(op) or SPECIAL.get(op) if isinstance(op, str) else None
        symbols = [a for a in args if isinstance(a, Symbol)]
        spread = form in SPREAD and any(self.axes[a.text] == self.all for a in symbols)
        texts = [
            self.constant(a) if spread and isinstance(a, (int, float)) else self.operand(a) for a in args
        ]
        axes = "".join(sorted({c for a in symbols for c in self.axes[a.text]}))
        if op == WITH_SIGN and axes != self.all:
            form = "copysign"
        self.axes[name] = axes
        if op == ROW_SUM:
            self.axes[name] = axes.replace("c", "")
            self.lines.append(
                f"{name} = add.reduce({texts[0]}, 1, keepdims=True)"
                if "c" in axes
                else f"{name} = {texts[0]} * width"
            )
            self.place[name] = name
            self.release([a.text for a in args if self.last.get(a.text) == i])
            return
        dying = [a.text for a in args if isinstance(a, Symbol) and self.last.get(a.text) == i]
        boolean = name in self.trace.boolean
        lines = (
            (f"{form}({', '.join(texts)}, out={{o}})",)
            if form
            else LINES.get(op, ())
            if isinstance(op, str)
            else ()
        )
        if axes != self.all and form:
            self.lines.append(f"{name} = {form}({', '.join(texts)})")
            self.place[name] = name
        elif axes != self.all or not lines:
            call = "F." + op if isinstance(op, str) else self.operand(op)
            extra = [f"{k}={self.operand(v)}" for k, v in statics.items()]
            self.lines.append(
                f"{name} = {call}({', '.join((['F'] if not isinstance(op, str) else []) + texts + extra)})"
            )
            self.place[name] = name
        else:
            if op not in APART:
                self.release(dying)
            out = self.written.get(name) or self.take("m" if boolean else "s")
            self.place[name] = out
            if op == "where" and self.choose(args[0], args[1], args[2], out):
                self.release(dying)
                return
            if op == "masked_fill" and self.choose(args[1], statics["value"], args[0], out):
                self.release(dying)
                return
            statics = {k: self.operand(v) for k, v in statics.items()}
            self.lines += [line.format(*texts, o=out, **statics) for line in lines]
            if op in APART:
                self.release(dying)
            return
        self.release(dying)

    def choose(self, c: Any, a: Any, b: Any, out: str) -> bool:
        """Whether the lines of a choice between a and b, on bits as in `select`, were written: where all are
        as large as the block, or numbers.
        """
        sides = [v for v in (c, a, b) if isinstance(v, Symbol)]
        if any(self.axes[v.text] != self.all for v in sides) or not isinstance(c, Symbol) or len(sides) < 2:
            return False
        zero = [not isinstance(v, Symbol) and v == 0 and str(v)[0] != "-" for v in (a, b)]
        mask, o = f"{self.operand(c)}.view('i1')", f"{out}.view(I)"
        if any(zero):
            first = f"subtract({mask}, 1, out={o})" if zero[0] else f"negative({mask}, out={o})"
            other = self.operand(b if zero[0] else a)
            self.lines += [first, f"bitwise_and({o}, {other}.view(I), out={o})"]
            return True
        x, y = (
            f"{self.operand(v) if isinstance(v, Symbol) else self.constant(float(v))}.view(I)" for v in (a, b)
        )
        t = self.take("s")
        self.lines += [
            f"bitwise_xor({x}, {y}, out={t}.view(I))",
            f"subtract({mask}, 1, out={o})",
            f"bitwise_and({o}, {t}.view(I), out={o})",
            f"bitwise_xor({o}, {x}, out={o})",
        ]
        self.free["s"].append(t)
        return True

    def release(self, names: list[str]) -> None:
        """Nothing; the scratch arrays of these names may be used again."""
        for n in set(names):
            place = self.place[n]
            if place[0] in "sm" and place[1:].isdigit():
                self.free[place[0]].append(place)


def compiled(
    trace: Trace,
    axes: list[str],
    low: list[bool],
    all_axes: str,
    results: list[Any],
    full: list[bool],
    direct: bool,
) -> Code:
    """The code of a trace.

    axes: per input the axes along which it varies, out of `all_axes`. low: which inputs are 16-bit
    floats. results: what to write (where `full`) or to return. direct: whether results may be
    computed in the outputs' own arrays.
    """
    written: dict[str, str] = {}
    slots = iter(range(len(results)))
    outs = [f"o{next(slots)}" if f else "" for f in full]
    computed = {step[0] for step in trace.steps}
    for r, o in zip(results, outs, strict=True):
        if direct and o and isinstance(r, Symbol) and r.text in computed and r.text not in trace.boolean:
            written.setdefault(r.text, o)
    w = _Writer(trace, axes, list(low), all_axes, written)
    needed = trace.needed(results)
    for i, (_, _, args, _) in enumerate(trace.steps):
        if trace.steps[i][0] in needed:
            w.last |= {a.text: i for a in args if isinstance(a, Symbol)}
    w.last |= {r.text: len(trace.steps) for r in results if isinstance(r, Symbol)}
    for i, (name, op, args, statics) in enumerate(trace.steps):
        if name in needed:
            w.step(i, name, op, args, statics)
    tail = [
        f"copyto({o}, {p}, 'unsafe')"
        for r, o in zip(results, outs, strict=True)
        if o and (p := w.operand(r)) != o
    ]
    back = [w.operand(r) for r, f in zip(results, full, strict=True) if not f]
    head = ["width = V[0].dtype.type(W)"] if any(op == ROW_SUM for _, op, _, _ in trace.steps) else []
    head += [
        _unpack("v", len(axes), "V"),
        _unpack("o", sum(full), "O"),
        _unpack("s", w.count["s"], "S"),
        _unpack("m", w.count["m"], "M"),
        _unpack("k", len(w.constants), "K"),
    ]
    body = [line for line in [*head, *w.lines, *tail] if line] + [
        f"return ({''.join(b + ', ' for b in back)})"
    ]
    code = Code()
    code.source = "def run(F, V, O, S, M, K, W, I):\n" + "\n".join("    " + line for line in body)
    code.scratch, code.masks, code.constants = w.count["s"], w.count["m"], tuple(w.constants)
    key = (code.source, *((k, id(v)) for k, v in w.scope.items()))
    code.run = _cache.get(key) or compile_source(code.source, "run", _SCOPE | w.scope)
    _cache[key] = code.run
    return code


def _unpack(letter: str, n: int, source: str) -> str:
    return f"{''.join(f'{letter}{i}, ' for i in range(n))} = {source}" if n else ""


_SCOPE: dict[str, Any] = {
    name: getattr(np, name) for name in (*UFUNCS.values(), "copyto", "copysign", *_BITS)
}
_SCOPE |= {"select": select, "masked": masked}


def _load_special() -> None:
    for name in SPECIAL.values():
        _SCOPE[name] = lambda *args, out=None, name=name: getattr(special(np), name)(
            *args, *(() if out is None else (out,))
        )


_load_special()
