"""The pass: what fuses in this backward call, decided from the graph's structure alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..autograd.node import FuncOp, Node
from .groups import ChainGroup, Group, RunGroup
from .guards import edge_refusal, refusal
from .patterns import MASKS, MIN_RUN, MIN_SIZE, PATTERNS, ROW_OPS, RUN_SIZE, TAILS, Pattern, sizes
from .region import Region, broadcast_shape
from .stats import count_pass, enabled


def find_groups(order: Sequence[Node], roots: Sequence[Node], wanted: Any) -> dict[Node, Group] | None:
    """{first node: group} for what fuses among the nodes of `order`, or None.

    Called by the engine before each walk; the pass itself.

    >>> import lucid
    >>> lucid.fusion.find_groups([], [], None)
    """
    if not enabled():
        return None
    if not _any_large(order):
        return None
    groups = match(order, roots, wanted, small=False)
    count_pass(len(groups))
    return groups or None


def _any_large(order: Sequence[Node]) -> bool:
    # ~50 ns a node: all that the pass costs on a graph of small tensors (bench_fusion: pass).
    for n in order:
        if n.__class__ is FuncOp:
            saved = n.saved
            if saved:
                a = saved[0].array
                if a is not None and a.size >= MIN_SIZE:
                    device = n.F.backend.name
                    if a.size >= sizes(device).get(n.plan.op.name, RUN_SIZE[device]):
                        return True
    return False


def consumers_of(order: Sequence[Node], roots: Sequence[Node]) -> dict[Node, int]:
    """How many edges lead to each node; a root counts as one more."""
    counts = dict.fromkeys(order, 0)
    for r in roots:
        if r in counts:
            counts[r] += 1
    for n in order:
        for e in n.edges:
            if e in counts:
                counts[e] += 1
    return counts


def match(
    order: Sequence[Node], roots: Sequence[Node], wanted: Any, report: Any = None, small: bool = True
) -> dict[Node, Group]:
    """The groups among the nodes of `order`. report: called with (node, guard's name) for each refusal
    (`explain`). small: also those of which it is known that they would not pay.
    """
    counts = consumers_of(order, roots)
    rows: dict[str, list[Pattern]] = {}  # by the op that they start with
    for pattern in PATTERNS:
        rows.setdefault(pattern.chain[0], []).append(pattern)
    groups: dict[Node, Group] = {}
    taken: set[Node] = set()
    told: set[tuple[Node, str]] = set()  # patterns ask for a node more than once

    def free(n: Node, inside: int) -> bool:
        """Whether a node to which `inside` edges of the group lead may be absorbed.

        It is in no other group: its consumers come before it, and are all in this one.
        """
        if n not in counts:  # behind no gradient that is asked for
            return False
        why = refusal(n, counts[n] - inside, wanted)
        if why is not None and report is not None and (n, why) not in told:
            told.add((n, why))
            report(n, why)
        return why is None

    for n in order:
        if n.__class__ is not FuncOp or n in taken or (n.hooks is not None and n.hooks.post):
            continue
        found = rows.get(n.plan.op.name)
        group = found and _chain_at(n, found, free, counts, small) or _run_at(n, free, small)
        if group is not None:
            groups[n] = group
            taken.update(group.parts)
    return groups


def _chain_at(
    n: FuncOp, rows: list[Pattern], free: Any, counts: dict[Node, int], small: bool
) -> ChainGroup | None:
    """The first pattern of `rows` whose chain starts at `n`."""
    device = n.F.backend.name
    for pattern in rows:
        if device in pattern.devices:
            nodes = _follow(n, pattern, free)
            if nodes is None or not (small or pattern.pays(nodes)):
                continue
            group = ChainGroup(pattern, nodes)
            # Nothing can wait for a receiver that has no other sender.
            if not pattern.joins or counts.get(group.edges[0], 0) > 1:  # type: ignore[arg-type]
                return group
    return None


def _follow(n: FuncOp, pattern: Pattern, free: Any) -> tuple[FuncOp, ...] | None:
    nodes = [n]
    for name in pattern.chain[1:]:
        edges = [e for e in nodes[-1].edges if e is not None]
        if len(edges) != 1 and not pattern.side_edges:
            return None
        behind = [e for e in edges if e.__class__ is FuncOp and e.plan.op.name == name]
        if len(behind) != 1 or not free(behind[0], 1):
            return None
        nodes.append(behind[0])
    return tuple(nodes)


def _run_at(head: FuncOp, free: Any, small: bool) -> RunGroup | None:
    """The maximal run of pointwise (and row by row) nodes below `head`, each with its
    single consumer in the run.
    """
    if not joins(head):
        return None
    nodes, stack = [head], [head]
    edges: dict[Node, int] = {}  # edges that lead from the run to a node behind it
    blocked: set[Node] = set()
    while stack:
        n = stack.pop()
        for k, e in enumerate(n.edges):
            if e.__class__ is not FuncOp or not joins(e) or edge_refusal(head, n, k, e) is not None:
                if e is not None:
                    blocked.add(e)
                continue
            edges[e] = edges.get(e, 0) + 1
            # Asked again at each edge: `b * b` leads to b twice, and b joins at the second.
            if e not in blocked and free(e, edges[e]):
                nodes.append(e)
                stack.append(e)
    nodes.sort(key=lambda n: -n.sequence_nr)
    if not small and _known_small(nodes):
        return None
    region = Region(nodes)
    work = sum(not passes_on(n) for n in nodes)
    # `x + f(y)`: what lies behind the sum is a run of its own, which may end in a `linear`; the sum hands its
    # gradient on for nothing.
    if passes_on(head) and any(e not in region.members for e in head.edges):
        return None
    # One formula before a `linear` saves a launch on CUDA; on the CPU the sweep only adds a copy
    # (bench_fusion: linear + relu).
    if len(region.outputs) == 1 and (work >= MIN_RUN or work and head.F.backend.name == "cuda"):
        n, k, e = region.outputs[0]
        if (
            e.__class__ is FuncOp
            and e.plan.op.name in TAILS
            and edge_refusal(head, n, k, e) is None
            and free(e, 1)
        ):
            return RunGroup(Region(nodes, e))
    return RunGroup(region) if work >= MIN_RUN else None


def _known_small(nodes: list[FuncOp]) -> bool:
    """Whether broadcasts and saved arrays tell that gradients are too small for a run to pay.

    Where a draw starts in its stream tells nothing: two words, however many elements it fills.
    """
    least, known = RUN_SIZE[nodes[0].F.backend.name], False
    for n in nodes:
        shape = broadcast_shape(n)
        if shape is not None:
            return prod(shape) < least
        for s in n.saved or ():
            a = s.array
            if a is not None and a.dtype.kind != "u":
                if a.size >= least:
                    return False
                known = True
    return known


def joins(n: FuncOp) -> bool:
    """Whether a node may stand in a run: its derivative looks at one element, or at one element and its
    row.
    """
    name = n.plan.op.name
    if n.plan.pointwise or name in MASKS:
        return True
    if name not in ROW_OPS or not n.saved:
        return False
    return n.static[-1] in (-1, n.saved[0].array.ndim - 1)


def passes_on(n: FuncOp) -> bool:
    """Whether a node hands on the gradient that it gets, without work: `add` of equal shapes."""
    return n.plan.op.name == "add" and n.shapes is None
