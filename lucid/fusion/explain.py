"""`explain(loss)`: what would fuse in a backward pass from here, what would not and why, with launches and
bytes before and after.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from ..autograd.engine import _collect
from ..autograd.impl import TensorImpl, gradient_edge
from ..autograd.node import FuncOp, Node
from ..autograd.plan import NONE
from .groups import ChainGroup, Group
from .guards import array_refusal
from .patterns import RUN_SIZE
from .region import FULL, Program, broadcast_shape
from .rewrite import match
from .symbols import NoCudaForm, Symbol, SymbolNamespace, Trace

_OPERAND = re.compile(r"\b(?:g|v\d+|t\d+)\b")


@dataclass
class Row:
    """One group. launches, bytes: of the work that is no product, (unfused, fused); None where no shape is
    known, or a pattern of the user's says no cost.
    """

    name: str
    nodes: int
    shape: tuple[int, ...] | None
    launches: tuple[int, int] | None
    bytes: tuple[int, int] | None
    note: str = ""


@dataclass
class Explanation:
    """Rows for groups, and (node's name, guard that refused it) with counts for the rest.

    Made by `explain`; `str()` is a table.

    >>> import lucid
    >>> x = lucid.zeros(3, requires_grad=True)
    >>> lucid.fusion.explain(x.exp().sum()).nodes
    2
    """

    rows: list[Row] = field(default_factory=list)
    refused: dict[tuple[str, str], int] = field(default_factory=dict)
    nodes: int = 0

    def __str__(self) -> str:
        lines = [
            f"{self.nodes} nodes, {len(self.rows)} groups that hold {sum(r.nodes for r in self.rows)} of them"
        ]
        if self.rows:
            lines.append(f"{'group':40} {'shape':>18} {'launches':>12} {'MB moved':>18}  note")
        for r in self.rows:
            launches = "" if r.launches is None else f"{r.launches[0]} -> {r.launches[1]}"
            moved = "" if r.bytes is None else f"{r.bytes[0] / 1e6:.1f} -> {r.bytes[1] / 1e6:.1f}"
            lines.append(
                f"{r.name[:40]:40} {'' if r.shape is None else str(list(r.shape)):>18} {launches:>12} "
                f"{moved:>18}  {r.note}".rstrip()
            )
        for (name, guard), n in sorted(self.refused.items()):
            lines.append(f"not absorbed: {name} ({n}x): {guard}")
        return "\n".join(lines)

    __repr__ = __str__


def explain(root: Any, inputs: Any = None) -> Explanation:
    """What the pass would do in `root.backward()` (or in `Engine.grad(root, None, inputs)`).

    >>> import lucid
    >>> x = lucid.ones(200, 200, requires_grad=True)
    >>> print(lucid.fusion.explain((x * x).exp().sum()).rows[0].name)
    exp+mul
    """
    roots = (root,) if isinstance(root, TensorImpl) else tuple(root)
    edges = [gradient_edge(r) for r in roots]
    order = _collect(edges)
    wanted: dict[Node, list[int]] | None = None
    if inputs is not None:
        inputs = (inputs,) if isinstance(inputs, TensorImpl) else inputs
        wanted = {gradient_edge(t): [] for t in inputs}
    result = Explanation(nodes=sum(isinstance(n, FuncOp) for n in order))

    def refused(n: Node, guard: str) -> None:
        key = (str(n.name()), guard)
        result.refused[key] = result.refused.get(key, 0) + 1

    for group in match(order, edges, wanted, refused).values():
        result.rows.append(_row(group))
    return result


def _row(group: Group) -> Row:
    if isinstance(group, ChainGroup):
        return _chain_row(group)
    region = group.region  # type: ignore[attr-defined]
    shape = _shape(region.nodes)
    if shape is None:
        return Row(group.name, len(group.parts), None, None, None, "its size is known when it runs")
    program = Program(region, shape, region.nodes[0].F.backend.name)
    least = RUN_SIZE[region.nodes[0].F.backend.name]
    dtype = next((v.dtype for v in program.values if v.dtype.kind != "b"), np.dtype("float32"))
    note = array_refusal(program.values, program.kinds, shape, dtype, program.device) or (
        f"below {least} elements: runs unfused" if prod(shape) < least else ""
    )
    try:
        lines, uses = _traced(program)
    except NoCudaForm as why:
        return Row(group.name, len(group.parts), shape, None, None, note or f"no CUDA form: {why}")
    size = prod(shape) * dtype.itemsize
    full = sum(k == FULL for k in program.kinds) + 1 + len(program.outs)
    # Unfused every operation is a launch that reads its arrays and writes one.
    return Row(
        group.name,
        len(group.parts),
        shape,
        (lines, 1 + any(o is not None and o != shape for o in program.outs)),
        ((uses + lines) * size, full * size),
        note,
    )


def _chain_row(group: ChainGroup) -> Row:
    pattern, n = group.pattern, group.parts[group.pattern.sized_by or 0]
    arrays = [s.array for s in n.saved or () if s is not NONE]
    largest = max(arrays, key=lambda a: a.size, default=None)
    shape = None if largest is None else largest.shape
    least = pattern.least(n.F.backend.name)
    note = "" if pattern.pays(group.parts) else f"below {least} elements: runs unfused"
    if largest is None or pattern.cost is None:
        return Row(group.name, len(group.parts), shape, None, None, note)
    (launches, moved), (fewer, less) = pattern.cost
    size = largest.nbytes
    return Row(group.name, len(group.parts), shape, (launches, fewer), (moved * size, less * size), note)


def _shape(nodes: list[FuncOp]) -> tuple[int, ...] | None:
    """The shape of a region's gradients, from its broadcasts and the arrays that it kept."""
    for n in nodes:
        shape = broadcast_shape(n)
        if shape is not None:
            return shape
    shapes = [s.array.shape for n in nodes for s in n.saved or () if s is not NONE]
    return max(shapes, key=prod, default=None)


def _traced(program: Program) -> tuple[int, int]:
    """(operations, arrays that they read) of a program when nothing is shared or fused."""
    operations = reads = 0
    for step in program.steps():
        for formula, sources, _ in step.calls:
            trace = Trace()
            args = [
                Symbol(trace, f"v{s}", program.values[s].dtype) if what == "value" else s
                for what, s in sources
            ]
            formula.function(SymbolNamespace(trace), Symbol(trace, "g"), *args)
            operations += len(trace.lines)
            reads += sum(len(set(_OPERAND.findall(line.split("=", 1)[1]))) for line in trace.lines)
    return max(operations, 1), max(reads, 1)
