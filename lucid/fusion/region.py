"""A region of pointwise nodes as a program, and how its arrays lie beside the region's shape."""

from __future__ import annotations

from math import prod
from typing import Any

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
    """The shape of the input that edge `k` of a node belongs to, where something was
    broadcast; None: the node's own shape.
    """
    if not n.plan.op.broadcast or n.shapes is None:
        return None
    return n.shapes[n.plan.op.tensors.index(n.plan.targets[k])]


def may_pass(n: FuncOp, k: int) -> bool:
    """Whether the gradient on edge `k` has the node's own shape, so that the node
    behind it may join the region.
    """
    shape = target_shape(n, k)
    return shape is None or shape == broadcast_shape(n)


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
    return STATE if v.dtype.name == "uint64" else kind_of(v.shape, region)


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


class Program:
    """What a region computes, independent of the device that runs it.

    steps: one per node. values: the saved arrays, each once. kinds: how each lies. outs: shapes of the
    outputs, None for the region's own.
    """

    __slots__ = ("steps", "values", "kinds", "outs", "shape", "device")

    def __init__(self, region: Region, shape: Shape, device: str) -> None:
        self.shape, self.device = shape, device
        self.values: list[Any] = []
        slots: dict[int, int] = {}
        self.steps = []
        for n in region.nodes:
            plan: Plan = n.plan
            named: dict[str, tuple[str, Any]] = {}
            for name, s in zip(plan.keep, n.saved or (), strict=True):
                if s is NONE:
                    named[name] = ("static", None)
                    continue
                slot = slots.setdefault(id(s.array), len(self.values))
                if slot == len(self.values):
                    self.values.append(s.array)
                named[name] = ("value", slot)
            if plan.static:
                named |= {name: ("static", v) for name, v in zip(plan.static, n.static, strict=True)}
            calls = []
            for formula in plan.formulas_on(device):
                needs = tuple(t in plan.targets for t in formula.targets)
                sources = [("needs", needs) if name == "needs" else named[name] for name in formula.names]
                results: list[Any] = []
                for t in formula.targets:
                    if t not in plan.targets:
                        results.append(None)
                        continue
                    k = plan.targets.index(t)
                    e = n.edges[k]
                    results.append(
                        ("node", region.members[e])
                        if e in region.members
                        else ("out", region.output_of[n, k])
                    )
                calls.append((formula, sources, results))
            self.steps.append(Step(n, calls))
        self.kinds = [kind_beside(v, shape) for v in self.values]
        self.outs = [target_shape(n, k) for n, k, _ in region.outputs]
