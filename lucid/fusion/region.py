"""A region of pointwise nodes as a program, and how its arrays lie beside the region's shape."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..autograd.node import FuncOp, Node
from ..autograd.plan import NONE, Plan
from ..ops.registry import Formula

Shape = tuple[int, ...]
Kind = str | None
# Of the gradient and of every saved floating array of a group, all the same.
DTYPES = ("float64", "float32", "float16", "bfloat16")
FULL, ROW, COLUMN, SCALAR, REPEAT = "full", "row", "column", "scalar", "repeat"
# No values beside the elements: where the random words of dropout start (uint64, see `Generator.draw`).
STATE = "state"


class Region:
    """Pointwise nodes that run as one group: a head, and nodes each of whose single
    consumer lies in the region.

    nodes: in the order in which they run, the head first. shape: the shape of every gradient inside. outputs:
    the edges that leave, as (node that sends, position among its edges, node that receives). tail: a `linear`
    node that takes the one output, or None.
    """

    __slots__ = ("nodes", "outputs", "output_of", "tail", "members")

    def __init__(self, nodes: list[FuncOp], tail: FuncOp | None = None) -> None:
        self.nodes, self.tail = nodes, tail
        self.members = {n: i for i, n in enumerate(nodes)}
        # Gradients of one receiver are added inside the region: `(-x) * x` sends x one gradient, not two.
        places: dict[Any, int] = {}
        self.outputs: list[tuple[FuncOp, int, Node]] = []
        self.output_of: dict[tuple[FuncOp, int], int] = {}
        for n in nodes:
            for k, e in enumerate(n.edges):
                if e is not None and e not in self.members:
                    i = self.output_of[n, k] = places.setdefault((e, target_shape(n, k)), len(places))
                    if i == len(self.outputs):
                        self.outputs.append((n, k, e))

    @property
    def name(self) -> str:
        """The group's name: its ops in the order in which gradients pass."""
        return "+".join(
            [n.plan.op.name for n in self.nodes] + ([self.tail.plan.op.name] if self.tail is not None else [])
        )


def broadcast_shape(n: FuncOp) -> Shape | None:
    """The shape of a node's output where it differs from an input's; None when all are equal."""
    shapes = n.shapes if n.plan.op.broadcast else None
    if shapes is None:
        return None
    out: list[int] = []
    for shape in shapes:
        if shape is None:
            continue
        out = [1] * (len(shape) - len(out)) + out
        for i in range(1, len(shape) + 1):
            if out[-i] == 1:
                out[-i] = shape[-i]
    return tuple(out)


def target_shape(n: FuncOp, k: int) -> Shape | None:
    """The shape of the input that edge `k` of a node belongs to, where it was broadcast;
    None: the node's own shape.
    """
    if not n.plan.op.broadcast or n.shapes is None:
        return None
    shape = n.shapes[n.plan.op.tensors.index(n.plan.targets[k])]
    return None if shape == broadcast_shape(n) else shape


def may_pass(n: FuncOp, k: int) -> bool:
    """Whether the gradient on edge `k` has the node's own shape, so that the node
    behind it may join the region.
    """
    return target_shape(n, k) is None


def kind_of(shape: Shape, region: Shape) -> str | None:
    """How an array of `shape` lies beside the region: FULL, ROW (along the last dimension
    only), COLUMN (constant along it), SCALAR, REPEAT (its rows come again: see `repeats`), or
    None where it cannot be broadcast.
    """
    if shape == region:
        return FULL
    size = prod(shape)
    if size == 1:
        return SCALAR
    if len(shape) > len(region) or not region:
        return None
    padded = (1,) * (len(region) - len(shape)) + shape
    if padded[-1] == region[-1] and size == region[-1]:
        return ROW
    if padded[-1] == 1 and padded[:-1] == region[:-1]:
        return COLUMN
    return REPEAT if all(n in (1, m) for n, m in zip(padded, region, strict=True)) else None


def kind_beside(v: Any, region: Shape) -> Kind:
    """`kind_of` an array's shape; STATE for the place of a stream of random words."""
    if v.shape == region:
        return FULL
    return STATE if v.dtype.kind == "u" else kind_of(v.shape, region)


def repeats(shape: Shape, region: Shape) -> tuple[tuple[int, int, int], ...]:
    """((divisor, modulus, stride), ...): row r of the region reads row sum((r / divisor % modulus) * stride)
    of an array of `shape`.

    One entry per maximal range of dimensions that the array has: a mask [B, 1, 1, S] beside scores [B, H, L,
    S] has one, (H L, B, 1).
    """
    lead = ((1,) * (len(region) - len(shape)) + shape)[:-1]
    ranges: list[tuple[int, int, int]] = []
    below, stride, joined = 1, 1, False
    for own, n in zip(reversed(lead), reversed(region[:-1]), strict=True):
        if n != 1:
            if own != 1:
                if joined:
                    divisor, modulus, first = ranges[-1]
                    ranges[-1] = (divisor, modulus * own, first)
                else:
                    ranges.append((below, own, stride))
                stride *= own
            joined = own != 1
        below *= n
    return tuple(ranges)


class Step:
    """One node of a program: formulas, the values they take, and where their results go.

    calls: (formula, argument sources, results) where a source is ("value", slot), ("static", object) or
    ("needs", tuple), and each result is None, ("node", index of a step) or ("out", index of an output).
    """

    __slots__ = ("node", "calls")

    def __init__(self, node: FuncOp, calls: list[tuple[Formula, list[tuple[str, Any]], list[Any]]]) -> None:
        self.node, self.calls = node, calls


class Recipe:
    """What a plan's formulas on one device take, by position: made once.

    calls: (formula, sources, positions among the plan's targets or None) where a source is ("saved", i),
    ("static", i) or ("needs", tuple).
    """

    __slots__ = ("calls",)

    def __init__(self, plan: Plan, device: str) -> None:
        self.calls: list[tuple[Formula, tuple[tuple[str, Any], ...], tuple[int | None, ...]]] = []
        for formula in plan.formulas_on(device):
            needs = tuple(t in plan.targets for t in formula.targets)
            sources: list[tuple[str, Any]] = [
                ("needs", needs)
                if name == "needs"
                else ("saved", plan.keep.index(name))
                if name in plan.keep
                else ("static", plan.static.index(name))
                for name in formula.names
            ]
            goals = tuple(plan.targets.index(t) if t in plan.targets else None for t in formula.targets)
            self.calls.append((formula, tuple(sources), goals))


class Skip(NamedTuple):
    """Where a draw starts in its stream: an argument of the kernel, so that its source stays the same."""

    number: int


_recipes: dict[tuple[Plan, str], Recipe] = {}
# Static arguments whose `repr` says all that a formula can ask.
_PLAIN = (int, float, str, bool, type(None), tuple)


class Program:
    """What a region computes, independent of the device that runs it. name: the region's.

    values: the saved arrays, each once. kinds: how each lies. outs: shapes of the outputs, None for the
    region's own. key: the same for programs whose formulas are the same, whatever their arrays; None where
    that cannot be told. skips: where draws start in their streams. steps(): one per node.
    """

    __slots__ = (
        "name", "values", "kinds", "outs", "shape", "device", "key", "skips", "_parts", "_row_output",
    )  # fmt: skip

    def __init__(self, region: Region, shape: Shape, device: str) -> None:
        self.shape, self.device, self._row_output = shape, device, False
        self.name = region.name
        self.values: list[Any] = []
        self.skips: list[int] = []
        self._parts: list[tuple[FuncOp, Recipe, tuple[Any, ...], tuple[int, ...], list[Any]]] = []
        key: list[Any] = []
        slots: dict[int, int] = {}
        for n in region.nodes:
            recipe = _recipes.get((n.plan, device))
            if recipe is None:
                recipe = _recipes[n.plan, device] = Recipe(n.plan, device)
            taken = []
            for s in n.saved or ():
                if s is NONE:
                    taken.append(-1)
                    continue
                slot = slots.setdefault(id(s.array), len(self.values))
                if slot == len(self.values):
                    self.values.append(s.array)
                taken.append(slot)
            goals: list[Any] = [
                None
                if e is None
                else ("node", region.members[e])
                if e in region.members
                else ("out", region.output_of[n, k])
                for k, e in enumerate(n.edges)
            ]
            static = self._static(n) if n.plan.static else ()
            if not _plain(static):
                static = tuple(v.item() if isinstance(v, np.generic) else v for v in static)
            self._parts.append((n, recipe, static, tuple(taken), goals))
            key.append((recipe, *taken, *goals, repr(static) if _plain(static) else None))
        self.key: Any = None if any(part[-1] is None for part in key) else tuple(key)
        self.kinds = [kind_beside(v, shape) for v in self.values]
        self.outs = [target_shape(n, k) for n, k, _ in region.outputs]

    def _static(self, n: FuncOp) -> tuple[Any, ...]:
        """A node's static arguments; the place of a draw in its stream, another in each pass, by number."""
        names = n.plan.static
        if "skip" not in names:
            return n.static
        i = names.index("skip")
        if n.static[i] not in self.skips:
            self.skips.append(n.static[i])
        return (*n.static[:i], Skip(self.skips.index(n.static[i])), *n.static[i + 1 :])

    def steps(self) -> list[Step]:
        """The nodes with their formulas, values and goals."""
        found = []
        for n, recipe, static, taken, goals in self._parts:
            calls = []
            for formula, sources, targets in recipe.calls:
                given = [
                    (("value", taken[i]) if taken[i] >= 0 else ("static", None))
                    if what == "saved"
                    else ("static", static[i])
                    if what == "static"
                    else (what, i)
                    for what, i in sources
                ]
                results = [None if t is None else goals[t] for t in targets]
                if self._row_output:
                    results = [("both", r[1]) if r is not None and r[0] == "out" else r for r in results]
                calls.append((formula, given, results))
            found.append(Step(n, calls))
        return found

    def add_row_output(self) -> None:
        """Nothing; the only output also comes summed over all but the last dimension, as a second one."""
        self._row_output = True
        self.key = self.key and ("rows", *self.key)
        self.outs.append((self.shape[-1],))


def _plain(values: tuple[Any, ...]) -> bool:
    return all(isinstance(v, _PLAIN) and (not isinstance(v, tuple) or _plain(v)) for v in values)
