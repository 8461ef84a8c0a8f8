"""What a fused kernel or sweep computes: a trace, the arrays that enter it, and where its results go."""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from ..ops.activation import _SQRT_2_OVER_PI, _TAIL_END, SLOPE, SLOPE_SCALE
from .guards import join_refusal
from .region import FULL, REPEAT, SCALAR, Program, Region, Shape, kind_beside, kind_of, repeats
from .symbols import WITH_SIGN, NoCudaForm, Symbol, SymbolNamespace, Trace

# The coefficients for t = 1 / (1 / scale + a), which takes an operation less than 1 / (1 + scale a).
_SLOPE = tuple(c / SLOPE_SCALE ** (len(SLOPE) - i) for i, c in enumerate(SLOPE))


def _gelu_x(F: Any, g: Any, x: Any, approximate: str) -> Any:
    """The formula that `gelu` has on the CPU in float32, as steps that share scratch: called as it is, it
    cuts blocks of its own, too small for two threads (bench_fusion: bias + gelu).
    """
    if approximate != "none":
        raise NoCudaForm("the form with tanh has its generic formula")
    a = F.minimum(abs(x), _TAIL_END)
    t = 1.0 / (a + 1.0 / SLOPE_SCALE)
    p = t * _SLOPE[0]
    for c in _SLOPE[1:]:
        p = (p + c) * t
    # Phi(x) + x phi(x) = 1/2 + sign(x) (1/2 - (1 - Phi(|x|)) + |x| phi(x)), with 1 - Phi(|x|) = p e.
    half = (a * (0.5 * _SQRT_2_OVER_PI) - p) * F.exp(a * a * -0.5) + 0.5
    return g * (x.trace.let(f"{WITH_SIGN}({half.text}, {x.text})", False, WITH_SIGN, (half, x)) + 0.5)


# Formulas on the CPU, computing in float32, that are better as steps than the registered ones.
STEPS = {"gelu": _gelu_x}
# Accelerated CPU formulas that read as well on symbols; the others are called on blocks as they are.
TRACED = frozenset(("relu", "softmax", "log_softmax"))


class Body:
    """Straight-line code on one element, and the arrays around it.

    shape: of the region. inputs, kinds: arrays and how they lie beside it; input i is `v{i}` in the trace.
    results: an expression per output, a number, or None for no gradient. outs: the shape to which each output
    is summed, None for the region's own. gradient: the input that is handed on where an output equals it.
    dtype: of every floating array. name: what a kernel of it is called in messages. alone: a sweep takes one
    thread.
    """

    __slots__ = (
        "trace",
        "shape",
        "inputs",
        "kinds",
        "results",
        "outs",
        "dtype",
        "repeat",
        "gradient",
        "program",
        "name",
        "alone",
    )

    def __init__(
        self,
        trace: Trace,
        shape: Shape,
        inputs: list[Any],
        results: list[Any],
        outs: list[Any],
        dtype: Any,
        gradient: int | None = 0,
    ) -> None:
        self.trace, self.shape, self.results, self.dtype = trace, shape, results, dtype
        self.outs = [None if o == shape and o != () else o for o in outs]
        self.inputs, self.gradient = inputs, gradient
        self.program: Program | None = None
        self.name, self.alone = "run", False
        self.kinds: list[Any] = [kind_beside(v, shape) for v in inputs]
        self.repeat = {
            i: repeats(inputs[i].shape, shape) for i, kind in enumerate(self.kinds) if kind == REPEAT
        }

    @property
    def size(self) -> int:
        """Elements of the region."""
        return prod(self.shape)

    def join(self, waiting: list[Any]) -> list[int]:
        """The outputs that now have an array added to them, in the pass that makes them: `waiting` holds, per
        output, the gradient that waits for the same receiver, or None.

        Not where the output is the gradient itself, which costs no pass, or is summed.
        """
        assert self.program is not None
        joined = [
            i
            for i, (r, w) in enumerate(zip(self.results, waiting, strict=True))
            if w is not None
            and isinstance(r, Symbol)
            and r.text != f"v{self.gradient}"
            and join_refusal(w, self.shape, self.dtype) is None
        ]
        if joined:
            self.trace, results = _traced(self.program, self.trace.device, self.dtype, tuple(joined))
            self.results = list(results)
            self.inputs = [*self.inputs, *(waiting[i] for i in joined)]
            self.kinds += [FULL] * len(joined)
        return joined

    def out_kinds(self) -> list[str]:
        """How each output is written: FULL as it is (and summed later where its shape has no kind of
        its own), else as sums.
        """
        return [
            FULL
            if o is None
            else SCALAR
            if o == ()
            else {REPEAT: FULL, None: FULL}.get(k := kind_of(o, self.shape), k) or FULL
            for o in self.outs
        ]


def body_of(program: Program, g: Any, device: str) -> Body:
    """The body of a region's program for the gradient `g`.

    Raises NoCudaForm where a formula has none (on "cuda").
    """
    # The gradient of a sum is one number broadcast to the whole shape: it stays one number.
    uniform = bool(g.size) and not any(g.strides)
    inputs = [g[(slice(0, 1),) * g.ndim] if uniform else g, *program.values]
    trace, results = _traced(program, device, g.dtype, ())
    body = Body(trace, program.shape, inputs, list(results), list(program.outs), g.dtype)
    body.program, body.name = program, program.name
    return body


# (program's key, dtype, joined outputs) -> (trace, results). The key tells the device, and what a value is.
_traces: dict[Any, tuple[Trace, list[Any]]] = {}
# Traces that are kept: a training loop has as many as it has kinds of runs.
_MOST_TRACES = 1000


def _traced(program: Program, device: str, dtype: Any, joined: tuple[int, ...]) -> tuple[Trace, list[Any]]:
    """The trace of a program and its results; to those at `joined` one more input each is added."""
    key = program.key and (program.key, dtype, joined)
    found = _traces.get(key) if key else None
    if found is None:
        trace = Trace(device, dtype.itemsize < 8)
        results = trace_program(program, trace, device)
        for k, i in enumerate(joined):
            results[i] = results[i] + Symbol(trace, f"v{len(program.values) + 1 + k}")
        found = trace, results
        if key:
            if len(_traces) >= _MOST_TRACES:
                _traces.clear()
            _traces[key] = found
    return found


_operations: dict[Any, int] = {}


def operations(n: Any) -> int:
    """How many operations a node's derivative takes per element; 1 where a kernel of its own does it."""
    device = n.F.backend.name
    found = _operations.get((n.plan, device))
    if found is None:
        program = Program(Region([n]), (), device)
        trace = Trace(device, True)
        generic = n.plan.formulas
        own = device != "cpu" and any(f not in generic for f in n.plan.formulas_on(device))
        try:
            trace_program(program, trace, device)
            found = 1 if own else len(trace.lines)
        except NoCudaForm:
            found = 1
        _operations[n.plan, device] = found
    return found


def trace_program(program: Program, trace: Trace, device: str) -> list[Any]:
    """The symbol (or number, or None) of each output, after the program's formulas ran on symbols: "v0" is
    the gradient, "v1" ... its values.
    """
    F = SymbolNamespace(trace)
    steps = program.steps()
    waiting: list[Any] = [None] * len(steps)
    waiting[0] = Symbol(trace, "v0")
    outs: list[Any] = [None] * len(program.outs)
    for k, step in enumerate(steps):
        g = waiting[k]
        if g is None:
            continue
        for formula, sources, results in step.calls:
            args = [
                Symbol(trace, f"v{s + 1}", program.values[s].dtype) if what == "value" else s
                for what, s in sources
            ]
            for r, goal in zip(
                called(formula, step.node.plan.formulas, F, trace, g, args, device), results, strict=True
            ):
                if goal is None or r is None:
                    continue
                where, m = goal
                box = waiting if where == "node" else outs
                box[m] = r if box[m] is None else box[m] + r
                if where == "both":
                    outs[-1] = outs[m]
    return outs


def called(
    formula: Any,
    generic: list[Any],
    F: SymbolNamespace,
    trace: Trace,
    g: Symbol,
    args: list[Any],
    device: str,
) -> tuple[Any, ...]:
    """What a formula gives on symbols, one per target.

    On the CPU an accelerated one is called on blocks as it is; `generic`: the op's own.
    """
    name = formula.function.__code__.co_name.split(".")[0]
    if device == "cpu" and name in STEPS:
        if trace.single:
            with suppress(NoCudaForm):
                return (STEPS[name](F, g, *args),)
        formula = next(f for f in generic if f.targets == formula.targets)
    opaque = device == "cpu" and formula not in generic and name not in TRACED
    if not opaque:
        try:
            found = formula.function(F, g, *args)
            return tuple(found) if formula.shared else (found,)
        except NoCudaForm:
            if device != "cpu":
                raise
    if formula.shared:
        raise NoCudaForm("a shared formula")
    return (trace.apply(formula.function, g, *args),)


def text_of(result: Any) -> str:
    """A result by name: equal for the same value of one trace."""
    return result.text if isinstance(result, Symbol) else repr(result)


def shaped(a: Any, shape: Shape) -> Any:
    """`a` in another shape; itself where it has it: a view would be copied where it becomes a `.grad`."""
    return a if a.shape == shape else a.reshape(shape)


def finished(body: Body, run: Any, F: Any) -> list[Any]:
    """The arrays of a body's outputs. run: writes those that need a pass: (body, distinct results,
    their positions) -> arrays.

    An output that is the gradient itself is handed on, one that was computed for another is shared: as in the
    unfused walk, where `add` returns its gradient twice.
    """
    own = f"v{body.gradient}" if body.gradient is not None and body.kinds[body.gradient] == FULL else None
    places: dict[Any, int] = {}
    order: list[int] = []
    arrays: list[Any] = [None] * len(body.results)
    for i, (r, o) in enumerate(zip(body.results, body.outs, strict=True)):
        if r is None:
            continue
        if isinstance(r, Symbol) and r.text == own and o is None:
            arrays[i] = body.inputs[body.gradient]  # type: ignore[index]
            continue
        key = (text_of(r), o)
        if key not in places:
            places[key] = i
            order.append(i)
    if order:
        found = dict(zip(order, run(body, order), strict=True))
        for i, (r, o) in enumerate(zip(body.results, body.outs, strict=True)):
            if r is not None and arrays[i] is None:
                a = found[places[text_of(r), o]]
                arrays[i] = (
                    a
                    if o is None or a.shape == o
                    else F.sum_to(a, o)
                    if a.size > 1 or prod(o) > 1
                    else shaped(a, o)
                )
    return arrays


def row_index(shape: Shape, region: Shape) -> Any:
    """int [rows of the region] -> row of an array of `shape` that is broadcast to it."""
    lead = (1,) * (len(region) - len(shape)) + shape[:-1]
    own = np.arange(prod(lead)).reshape(lead)
    return np.broadcast_to(own, region[:-1]).reshape(-1)
