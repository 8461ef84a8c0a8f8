"""Groups: what the engine runs in the place of a node.

The parts stay as they are, and run one by one where the arrays do not fit.
"""

from __future__ import annotations

from typing import Any

from ..autograd.node import FuncOp, Node
from ..errors import GradError, KernelError, LucidError
from . import sweep
from .body import Body, body_of
from .chains import through_sweep
from .guards import array_refusal, join_refusal
from .patterns import RUN_SIZE, Pattern
from .region import Program, Region
from .stats import count_fallback, count_fused
from .symbols import NoCudaForm


class Group:
    """A head and what it absorbs. parts: all nodes, the head first. edges: where the
    gradients go that `run` returns.
    """

    __slots__ = ("parts", "edges", "name")
    parts: tuple[FuncOp, ...]
    edges: tuple[Node | None, ...]
    name: str

    def __repr__(self) -> str:
        return f"<group {self.name}>"

    def run(self, g: Any, pending: dict[Any, Any]) -> Any:
        """One gradient per edge, from the gradient of the head. pending: node -> the sum that waits for it; a
        group may take one out and give it back as part of its own gradient for that node.
        """
        raise NotImplementedError

    def release_saved(self) -> None:
        """Nothing; drops the saved values of every part."""
        for n in self.parts:
            n.saved = None

    def one_by_one(self, g: Any, reason: str, goal_of: dict[tuple[FuncOp, int], int]) -> list[Any]:
        """The gradients by running each part on its own: the result of the unfused walk.

        goal_of: (part, position among its edges) -> position among the group's edges.
        """
        count_fallback(reason)
        waiting: dict[Any, Any] = {self.parts[0]: g}
        inside = set(self.parts)
        found: list[Any] = [None] * len(self.edges)
        for n in self.parts:
            g = waiting.pop(n, None)
            if g is None:
                continue
            for k, (e, r) in enumerate(zip(n.edges, n.plan.run(n, g), strict=True)):
                if r is None:
                    continue
                if e in inside:
                    waiting[e] = r if e not in waiting else waiting[e] + r
                else:
                    i = goal_of[n, k]
                    found[i] = r if found[i] is None else found[i] + r
        return found

    def failed(self, error: Exception) -> Exception:
        """The error to raise instead of one from inside the group: it names the parts."""
        if isinstance(error, LucidError):
            return error
        return (
            type(error)(f"fused {' + '.join(n.name() for n in self.parts)}: {error}")
            if type(error) in (ValueError, TypeError, IndexError, RuntimeError)
            else error
        )


class ChainGroup(Group):
    """A row of patterns.py. goal_of: as `one_by_one` takes it."""

    __slots__ = ("pattern", "goal_of")

    def __init__(self, pattern: Pattern, nodes: tuple[FuncOp, ...]) -> None:
        self.pattern, self.parts, self.name = pattern, nodes, pattern.name
        edges: list[Node | None] = []
        self.goal_of: dict[tuple[FuncOp, int], int] = {}
        for n, behind in zip(nodes, (*nodes[1:], None), strict=True):
            for k, e in enumerate(n.edges):
                if e is not behind or e is None:
                    self.goal_of[n, k] = len(edges)
                    edges.append(e)
        self.edges = tuple(edges)

    def run(self, g: Any, pending: dict[Any, Any]) -> Any:
        pattern = self.pattern
        if not pattern.pays(self.parts):
            return self.one_by_one(g, "too small", self.goal_of)
        waiting = pending.get(self.edges[0]) if pattern.joins else None
        if pattern.joins:
            reason = join_refusal(waiting, g.shape, g.dtype)
            if reason is not None:
                return self.one_by_one(g, reason, self.goal_of)
        try:
            grads = pattern.run(self.parts, g, waiting) if pattern.joins else pattern.run(self.parts, g)
        except Exception as error:
            raise self.failed(error) from error
        if grads is None:
            return self.one_by_one(g, f"{self.name}: arrays do not fit", self.goal_of)
        if len(grads) != len(self.edges):
            raise GradError(
                f"fusion pattern {self.name!r}: expected one gradient per edge that leaves the chain "
                f"({len(self.edges)}), got {len(grads)}; return None where no gradient flows"
            )
        if pattern.joins:
            del pending[self.edges[0]]
        count_fused(self.name, len(self.parts))
        return grads


class RunGroup(Group):
    """A run of pointwise nodes, and the `linear` that it ends in, if any."""

    __slots__ = ("region",)

    def __init__(self, region: Region) -> None:
        self.region, self.name = region, region.name
        self.parts = tuple(region.nodes) if region.tail is None else (*region.nodes, region.tail)
        self.edges = tuple(e for _, _, e in region.outputs) if region.tail is None else region.tail.edges

    def run(self, g: Any, pending: dict[Any, Any]) -> Any:
        head = self.parts[0]
        if g.size < RUN_SIZE[head.F.backend.name]:
            return self._parts(g, "too small")
        program = Program(self.region, g.shape, head.F.backend.name)
        reason = array_refusal(program.values, program.kinds, program.shape, g.dtype, program.device)
        if reason is not None:
            return self._parts(g, reason)
        try:
            grads = self._sweep(program, g, pending)
        except (NoCudaForm, KernelError) as why:
            return self._parts(g, str(why))
        except Exception as error:
            raise self.failed(error) from error
        count_fused(self.name, len(self.parts))
        return grads

    def _parts(self, g: Any, reason: str) -> Any:
        tail = self.region.tail
        if tail is None:
            return self.one_by_one(g, reason, self.region.output_of)
        return self.one_by_one(g, reason, {(tail, k): k for k in range(len(tail.edges))})

    def _sweep(self, program: Program, g: Any, pending: dict[Any, Any]) -> Any:
        F, tail = self.parts[0].F, self.region.tail
        device = F.backend.name

        def run(body: Body) -> list[Any]:
            return (sweep if device == "cpu" else _cuda()).run(body, F)

        if tail is None:
            body = body_of(program, g, device)
            joined = body.join([pending.get(e) for e in self.edges])
            grads = run(body)
            for i in joined:
                del pending[self.edges[i]]
            return grads
        return through_sweep(program, tail, F, g, run)


def _cuda() -> Any:
    # Imported on first use: the kernel loader is not needed on a machine without a GPU.
    from . import cuda

    return cuda
