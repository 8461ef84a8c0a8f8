"""What one (op, needs-grad mask) keeps and runs, and the code generated for it."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ops.common import sum_to
from ..ops.registry import Formula, Op
from ..storage.storage import Storage

if TYPE_CHECKING:
    from .node import FuncOp

NONE = Storage(None, None)  # type: ignore[arg-type]  # stands for an absent optional tensor


def compile_source(source: str, name: str, scope: dict[str, Any]) -> Any:
    """The function `name` of a generated source; the source is kept for tracebacks."""
    filename = f"<lucid {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), scope)
    return scope[name]


class Plan:
    """The formulas that one needs-grad mask of an op runs, and the values that they name.

    targets: inputs that get a gradient, in the order of the node's edges. keep: names of the saved storages.
    static: other names that the formulas read (static arguments, shapes). run(node, g): raw gradients,
    generated. run_graph(node, g): the same, recorded.
    """

    __slots__ = (
        "op",
        "mask",
        "targets",
        "keep",
        "static",
        "formulas",
        "run",
        "rebuild",
        "graph_F",
        "graph_wrap",
        "conjugated",
        "by_device",
        "pointwise",
        "low",
    )

    op: Op
    run: Callable[[FuncOp, Any], tuple[Any, ...]]
    rebuild: Callable[[FuncOp, int], Any]
    graph_F: Any
    graph_wrap: Any
    conjugated: Plan
    by_device: dict[str, list[Formula]]
    pointwise: bool
    low: Plan

    def __init__(self, op: Op, mask: int) -> None:
        self.op, self.mask = op, mask
        if op.holomorphic:
            self.conjugated = ConjugatedPlan(self)
        wanted = [t for i, t in enumerate(op.tensors) if mask >> i & 1 and t in op.formulas]
        self.formulas = _unique([op.formulas[t] for t in wanted])
        self.targets = tuple(t for f in self.formulas for t in f.targets if t in wanted)
        fast = _accelerated(op)
        names = _unique(
            [
                n
                for f in [
                    *self.formulas,
                    *(f for table in fast.values() for f in _needed(table, wanted)),
                ]
                for n in f.names
            ]
        )
        self.keep = tuple(n for n in names if n in op.tensors or n in op.outputs)
        self.static = tuple(n for n in names if n not in self.keep and n != "needs")
        self.by_device = {
            device: _choose(self.formulas, formulas, wanted) for device, formulas in fast.items()
        }
        # What a fused run may absorb: a formula of shapes cannot be evaluated block by block.
        shapes = any(n.endswith("_shape") for n in self.static)
        self.pointwise = op.pointwise and not op.variadic and not shapes
        generic = self._generate(self.formulas)
        if not fast:
            self.run = generic
        else:
            table = {device: self._generate(formulas) for device, formulas in self.by_device.items()}
            self.run = lambda n, g: table.get(n.F.backend.name, generic)(n, g)
        self.low = LowPlan(self)

    def formulas_on(self, device: str) -> list[Formula]:
        """The raw formulas of a device: its accelerated ones, generic ones for the rest."""
        return self.by_device.get(device, self.formulas)

    def _generate(self, formulas: list[Formula]) -> Callable[[FuncOp, Any], tuple[Any, ...]]:
        scope: dict[str, Any] = {"sum_to": sum_to}
        used = {n for f in formulas for n in f.names}
        lines = ["def run(n, g):", "    F = n.F"]
        if self.keep:
            lines.append(f"    {', '.join(f'k{i}' for i in range(len(self.keep)))}, = n.saved")
        for i, name in enumerate(self.keep):
            if name in used:
                whole = self.op.variadic and name == self.op.tensors[0]
                lines.append(
                    f"    v_{name} = tuple(s.array for s in k{i})" if whole else f"    v_{name} = k{i}.array"
                )
        if self.static:
            lines.append(f"    {', '.join(f'v_{name}' for name in self.static)}, = n.static")
        order = {t: i for i, t in enumerate(self.targets)}
        for j, formula in enumerate(formulas):
            scope[f"f{j}"] = formula.function
            scope[f"needs{j}"] = needs = tuple(t in order for t in formula.targets)
            args = "".join(f", needs{j}" if n == "needs" else f", v_{n}" for n in formula.names)
            if self.op.variadic:
                lines += [f"    return tuple(f{j}(F, g{args}))"]
                return compile_source("\n".join(lines), "run", scope)
            names = ", ".join(
                f"g{order[t]}" if need else "_" for t, need in zip(formula.targets, needs, strict=True)
            )
            lines.append(f"    {names + (',' if formula.shared else '')} = f{j}(F, g{args})")
        results = [f"g{i}" for i in range(len(self.targets))]
        if self.op.broadcast:
            lines.append("    shapes = n.shapes")
            lines.append("    if shapes is not None:")
            lines += [
                f"        if {r} is not None: {r} = sum_to({r}, shapes[{self.op.tensors.index(t)}])"
                for r, t in zip(results, self.targets, strict=True)
            ]
        lines.append(f"    return {', '.join(results)},")
        return compile_source("\n".join(lines), "run", scope)

    def run_graph(self, n: FuncOp, g: Any) -> tuple[Any, ...]:
        """The gradients as recorded tensors: the same formulas, on tensors."""
        F = self.graph_F
        values: dict[str, Any] = dict(zip(self.static, n.static, strict=True)) if self.static else {}
        for i, name in enumerate(self.keep):
            values[name] = self.rebuild(n, i)
        found: dict[str, Any] = {}
        for formula in self.formulas:
            needs = tuple(t in self.targets for t in formula.targets)
            result = formula.function(
                F, g, *[needs if name == "needs" else values[name] for name in formula.names]
            )
            if self.op.variadic:
                return tuple(result)
            found.update(zip(formula.targets, result if formula.shared else (result,), strict=True))
        grads = [found[t] for t in self.targets]
        if self.op.broadcast and n.shapes is not None:
            for i, t in enumerate(self.targets):
                shape = n.shapes[self.op.tensors.index(t)]
                if grads[i] is not None and grads[i].shape != shape:
                    grads[i] = F.sum_to(grads[i], shape)
        return tuple(grads)

    def wrap(self, array: Any, backend: Any) -> Any:
        """A tensor without history around a raw array."""
        return self.graph_wrap(Storage(array, backend))


class ConjugatedPlan(Plan):
    """The plan of a complex-differentiable op on complex arrays: conj(formula(conj(g)))."""

    __slots__ = ("plain",)

    def __init__(self, plain: Plan) -> None:
        self.plain, self.op, self.mask = plain, plain.op, plain.mask
        self.pointwise = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def run(self, n: FuncOp, g: Any) -> tuple[Any, ...]:
        return tuple(None if r is None else r.conj() for r in self.plain.run(n, g.conj()))

    def run_graph(self, n: FuncOp, g: Any) -> tuple[Any, ...]:
        conj = self.graph_F.conj
        return tuple(None if r is None else conj(r) for r in self.plain.run_graph(n, conj(g)))


class LowPlan(Plan):
    """The plan of an op on bfloat16 arrays: gradients are brought back to bfloat16.

    NumPy widens a bfloat16 array to float32 when it meets a Python number (its own float16 it does not).
    """

    __slots__ = ("plain",)

    def __init__(self, plain: Plan) -> None:
        self.plain, self.op, self.mask, self.pointwise = plain, plain.op, plain.mask, plain.pointwise

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def run(self, n: FuncOp, g: Any) -> tuple[Any, ...]:
        d = g.dtype
        return tuple(r if r is None or r.dtype == d else r.astype(d) for r in self.plain.run(n, g))

    def run_graph(self, n: FuncOp, g: Any) -> tuple[Any, ...]:
        cast, d = self.graph_F.cast, g.dtype
        return tuple(r if r is None or r.dtype == d else cast(r, d) for r in self.plain.run_graph(n, g))


def _unique(items: list[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


def _accelerated(op: Op) -> dict[str, list[Formula]]:
    """Per device, the accelerated formulas of an op."""
    result = {}
    for device, (_, grads) in op.accelerated.items():
        if grads:
            result[device] = [
                Formula(op, t if isinstance(t, tuple) else (t,), f, shared=isinstance(t, tuple))
                for t, f in grads.items()
            ]
    return result


def _needed(fast: list[Formula], wanted: list[str]) -> list[Formula]:
    """The accelerated formulas for some inputs: a shared one only where no smaller one gives as much, since
    it may name more saved values.
    """
    chosen: list[Formula] = []
    open_ = set(wanted)
    for formula in sorted(fast, key=lambda f: -len(f.targets)):
        mine = open_.intersection(formula.targets)
        smaller = (f for f in fast if len(f.targets) < len(formula.targets))
        if mine and not any(mine <= set(f.targets) for f in smaller):
            chosen.append(formula)
            open_ -= mine
    return chosen


def _choose(generic: list[Formula], fast: list[Formula], wanted: list[str]) -> list[Formula]:
    """The formulas of one device: accelerated ones for the inputs that have them, generic ones for the rest.
    """
    chosen = _needed(fast, wanted)
    covered = {t for f in chosen for t in f.targets}
    for formula in generic:
        if not set(formula.targets) & set(wanted) <= covered:
            if set(formula.targets) & covered:
                raise TypeError(
                    f"op {formula.targets}: an accelerated gradient must cover all of a shared formula's "
                    "inputs"
                )
            chosen.append(formula)
    return chosen
