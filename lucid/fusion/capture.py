"""A pointwise function of tensors as a trace: its ops, seen on one-element tensors, and their
formulas run backwards on symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.impl import TensorImpl
from ..autograd.mode import intercept, no_grad
from ..ops.registry import Op
from ..storage.backend import backend_of
from ..storage.storage import Storage
from .body import Body, called
from .symbols import BOOLEAN, IDENTITY, NoCudaForm, Symbol, SymbolNamespace, Trace, call

# Elements of the sample on which a capture is compared with the function itself.
CHECKED = 5


class Call:
    """One op call that was captured: values by name are symbols, numbers or None."""

    __slots__ = ("op", "named", "out")

    def __init__(self, op: Op, named: dict[str, Any], out: Symbol) -> None:
        self.op, self.named, self.out = op, named, out


class Captured:
    """A function as a trace. inputs: how many tensors it takes, `v0` ... in the trace; the gradient of its
    result comes after them. grads: symbol's name -> the gradient with respect to it; ones: the same for a
    gradient of 1. total: "sum" or "mean" when the function ends in one, over everything. kept: whether the
    result is an input of the gradients, the one after the gradient of the result.
    """

    __slots__ = ("trace", "inputs", "result", "total", "grads", "ones", "kept")

    def __init__(
        self,
        trace: Trace,
        inputs: int,
        result: Symbol,
        total: str | None,
        grads: dict[str, Any],
        ones: dict[str, Any],
        kept: bool,
    ) -> None:
        self.trace, self.inputs, self.result, self.total = trace, inputs, result, total
        self.grads, self.ones, self.kept = grads, ones, kept


def sample(args: tuple[Any, ...], n: int, backend: Any, rng: Any) -> list[Any]:
    """The arguments with small tensors of `n` elements (of one, where a tensor is
    broadcast) in place of tensors.
    """
    shape = max((a.shape for a in args if isinstance(a, TensorImpl)), key=lambda s: (int(np.prod(s)), len(s)))
    found = []
    for a in args:
        if isinstance(a, TensorImpl):
            size = (1,) * (len(a.shape) - 1) + (n,) if a.shape == shape and a.shape else (1,) * len(a.shape)
            values = rng.uniform(0.1, 0.9, size)
            array = values > 0.5 if a.dtype.kind == "b" else values.astype(a.dtype)
            a = TensorImpl.tensor_class.from_storage(Storage(backend.asarray(array), backend))
        found.append(a)
    return found


def capture(function: Callable[..., Any], args: tuple[Any, ...], device: str) -> Captured:
    """The ops of `function`, for arguments like these.

    Raises NoCudaForm when it is not made of pointwise ops with a form on `device`.
    """
    backend = backend_of("cpu")
    small = sample(args, 1, backend, np.random.default_rng(0))
    tensors = [a for a in small if isinstance(a, TensorImpl)]
    dtype = next((t.dtype for t in tensors if t.dtype.kind != "b"), None)
    trace = Trace(device, dtype is not None and dtype.itemsize < 8)
    symbols = {
        id(t): Symbol(trace, f"v{i}", None if t.dtype.kind != "b" else t.dtype) for i, t in enumerate(tensors)
    }
    alive: list[Any] = list(tensors)
    calls: list[Call] = []
    totals: dict[int, tuple[str, Symbol]] = {}

    def symbol_of(t: Any) -> Any:
        if t is None or id(t) in symbols:
            return symbols.get(id(t))
        if isinstance(t, (int, float)):
            return t
        if not isinstance(t, TensorImpl) or t.ndim or id(t) in totals:
            raise NoCudaForm("a tensor that is no argument" if id(t) not in totals else "work on a sum")
        return t.item()

    def handler(op: Op, ts: tuple[Any, ...], statics: tuple[Any, ...], run: Any) -> Any:
        out = run(ts, statics)
        if op.variadic or len(op.outputs) > 1:
            raise NoCudaForm(f"op {op.name}")
        values = [symbol_of(t) for t in ts]
        named = dict(zip(op.statics, statics, strict=True)) | dict(zip(op.tensors, values, strict=True))
        alive.append(out)
        if (
            op.name in ("sum", "mean")
            and named["dim"] is None
            and not named["keepdim"]
            and isinstance(values[0], Symbol)
        ):
            totals[id(out)] = op.name, values[0]
            return out
        if op.name == "cast" and out.dtype != dtype:
            raise NoCudaForm("a change of dtype")
        if op.name in IDENTITY:
            symbols[id(out)] = values[0]
            return out
        if op.view or op.dtype is None and not op.pointwise and op.name != "masked_fill":
            raise NoCudaForm(f"op {op.name}")
        if out.dtype != dtype and op.name not in BOOLEAN:
            raise NoCudaForm(f"a result of dtype {out.dtype.name}")
        symbol = call(trace, op.name, **named)
        symbols[id(out)] = symbol
        calls.append(Call(op, named, symbol))
        return out

    with no_grad(), intercept(handler):
        result = function(*small)
    if not isinstance(result, TensorImpl):
        raise NoCudaForm(f"a result of type {type(result).__name__}")
    total, symbol = totals.get(id(result), (None, symbols.get(id(result))))
    if not isinstance(symbol, Symbol) or symbol.text in trace.boolean or result.dtype != dtype:
        raise NoCudaForm("a result that is not a pointwise function of the arguments")
    # What the last op's own node would keep of its result the fused one keeps as well, where computing it
    # again costs more than reading it.
    kept = device == "cpu" and not total and bool(calls) and _names_result(calls[-1], symbol, trace)
    out = Symbol(trace, f"v{len(tensors) + 1}") if kept else None
    grads = _reverse(calls, symbol, trace, Symbol(trace, f"v{len(tensors)}"), out)
    ones = _reverse(calls, symbol, trace, 1.0) if total else {}
    return Captured(trace, len(tensors), symbol, total, grads, ones, kept)


def _targets(c: Call, trace: Trace) -> list[str]:
    """The tensors of a call that get a gradient."""
    return [
        t
        for t in c.op.tensors
        if isinstance(c.named[t], Symbol) and t in c.op.formulas and not _boolean(trace, c.named[t])
    ]


def _names_result(c: Call, result: Symbol, trace: Trace) -> bool:
    """Whether a call gives the function's result, and its derivative is written with it."""
    formulas = _distinct(c.op, _targets(c, trace), trace.device)
    return c.out.text == result.text and any(n in c.op.outputs for f in formulas for n in f.names)


def checked(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Nothing; raises NoCudaForm where the captured ops give something else than the function: it branches on
    values, draws random numbers or writes in place.
    """
    from .sweep import run

    backend = backend_of("cpu")
    captured = capture(function, args, "cpu")
    small = sample(args, CHECKED, backend, np.random.default_rng(1))
    tensors = [a for a in small if isinstance(a, TensorImpl)]
    shape = max((t.shape for t in tensors), key=lambda s: (int(np.prod(s)), len(s)))
    body = forward_body(captured, [t.storage.array.copy() for t in tensors], shape)
    with no_grad(), backend.quiet():
        expected = np.asarray(function(*small).storage.array, "f8")
    found = np.asarray(run(body, backend.F)[0], "f8")
    rtol = {8: 1e-9, 4: 1e-3}.get(body.dtype.itemsize, 0.1)
    if captured.total == "mean":
        found = found / max(body.size, 1)
    if expected.shape != found.shape or not np.allclose(
        found, expected, rtol=rtol, atol=rtol, equal_nan=True
    ):
        raise NoCudaForm("a function whose result depends on more than its ops")


def forward_body(captured: Captured, arrays: list[Any], shape: tuple[int, ...]) -> Body:
    """The function's value (its sum, where it ends in one)."""
    dtype = next(a.dtype for a in arrays if a.dtype.kind != "b")
    return Body(
        captured.trace, shape, arrays, [captured.result], [() if captured.total else None], dtype, None
    )


def backward_body(
    captured: Captured,
    arrays: list[Any],
    shape: tuple[int, ...],
    g: Any,
    wanted: list[int],
    out: Any = None,
) -> Body:
    """The gradients of the tensors `wanted`, from the gradient `g` (an array) of the result. g None: the
    result's sum, and its gradients for g = 1. out: the result, where it is kept.
    """
    found = captured.ones if g is None else captured.grads
    results: list[Any] = [found.get(f"v{i}", 0.0) for i in wanted]
    outs: list[Any] = [None if arrays[i].shape == shape else arrays[i].shape for i in wanted]
    if g is None:
        dtype = next(a.dtype for a in arrays if a.dtype.kind != "b")
        return Body(captured.trace, shape, arrays, [captured.result, *results], [(), *outs], dtype, None)
    inputs = [*arrays, g, *([out] if captured.kept else [])]
    return Body(captured.trace, shape, inputs, results, outs, g.dtype, captured.inputs)


def _reverse(
    calls: list[Call], result: Symbol, trace: Trace, seed: Any, out: Symbol | None = None
) -> dict[str, Any]:
    """Symbol's name -> the gradient of the result with respect to it. out: the result as an input, or None.
    """
    F = SymbolNamespace(trace)
    grads: dict[str, Any] = {result.text: seed}
    for c in reversed(calls):
        g = grads.pop(c.out.text, None)
        if g is None:
            continue
        targets = _targets(c, trace)
        value = out if out is not None and c is calls[-1] else c.out
        for formula in _distinct(c.op, targets, trace.device):
            for t, r in zip(
                formula.targets,
                called(
                    formula,
                    list(c.op.formulas.values()),
                    F,
                    trace,
                    g,
                    _arguments(formula, c, targets, value),
                    trace.device,
                ),
                strict=True,
            ):
                if t in targets and r is not None:
                    name = c.named[t].text
                    grads[name] = r if name not in grads else grads[name] + r
    return grads


def _boolean(trace: Trace, s: Symbol) -> bool:
    return s.text in trace.boolean or getattr(s.dtype, "kind", "f") == "b"


def _distinct(op: Op, targets: list[str], device: str) -> list[Any]:
    from ..autograd.record import plan_of

    if not targets:
        return []
    mask = sum(1 << op.tensors.index(t) for t in targets)
    return plan_of(op, mask).formulas_on(device)


def _arguments(formula: Any, c: Call, targets: list[str], out: Symbol) -> list[Any]:
    args: list[Any] = []
    for name in formula.names:
        if name == "needs":
            args.append(tuple(t in targets for t in formula.targets))
        elif name in c.op.outputs:
            args.append(out)
        elif name in c.named:
            args.append(c.named[name])
        elif name.endswith("_dtype"):
            args.append(getattr(c.named[name[:-6]], "dtype", None))
        else:
            raise NoCudaForm(f"a formula of shapes ({c.op.name})")
    return args


def outside_numbers(function: Callable[..., Any]) -> tuple[Any, ...]:
    """The numbers, strings and flags that a function reads from around it: part of its signature, so
    that a change is seen.
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return ()
    cells = tuple(_cell(c) for c in function.__closure__ or ())
    scope = function.__globals__
    return tuple(
        v if isinstance(v, (int, float, str, bool, type(None))) else id(v)
        for v in (*cells, *(scope.get(n) for n in code.co_names))
    )


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None
