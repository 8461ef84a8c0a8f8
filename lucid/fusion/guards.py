"""What forbids to absorb a node into a group. Each guard is a name and a predicate; `explain` and the tests use both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.node import FuncOp, Node

# node, number of edges that lead to it from outside the group (a root counts as one), the nodes whose gradient is wanted
# -> whether it may be absorbed.
Guard = Callable[[Node, int, Any], bool]


def single_consumer(n: Node, outside: int, wanted: Any) -> bool:
    """Its gradient comes from the group only, so no other sum is waiting for it. A root has its seed as another consumer."""
    return outside == 0


def not_hooked(n: Node, outside: int, wanted: Any) -> bool:
    """No hook and no `retain_grad` wants to see its gradient."""
    return n.hooks is None


def not_captured(n: Node, outside: int, wanted: Any) -> bool:
    """Its gradient is not asked for by `Engine.grad`."""
    return wanted is None or n not in wanted


def no_barrier(n: Node, outside: int, wanted: Any) -> bool:
    """It is the node of an op with one output: nothing gathers several gradients inside a group."""
    return n.__class__ is FuncOp


GUARDS: tuple[Guard, ...] = (no_barrier, single_consumer, not_hooked, not_captured)


def refusal(n: Node, outside: int, wanted: Any) -> str | None:
    """The name of the first guard that forbids to absorb `n`, or None."""
    for guard in GUARDS:
        if not guard(n, outside, wanted):
            return guard.__name__
    return None
