"""What forbids to absorb a node into a group.

Each guard is a name and a predicate; `explain` and the tests use both. tests/fusion/test_guards.py switches
each one off, and the guards that stand in the code of the pass, and sees a program go wrong. The pass looks
at the nodes of ops with one output only, so that no barrier is ever inside a group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.node import FuncOp, Node
from ..storage.dtype import as_dtype
from .region import DTYPES, REPEAT, SCALAR, STATE, Kind, may_pass, repeats

# A set: the name of a dtype takes NumPy a microsecond to make.
_FLOATING = frozenset(map(as_dtype, DTYPES))

# node, number of edges that lead to it from outside the group (a root counts as one), the
# nodes whose gradient is wanted
# -> whether it may be absorbed.
Guard = Callable[[Node, int, Any], bool]


def single_consumer(n: Node, outside: int, wanted: Any) -> bool:
    """Its gradient comes from the group only: it would have to run again for another one, when the group has
    released what it saved. A root has its seed as another consumer.
    """
    return outside == 0


def not_hooked(n: Node, outside: int, wanted: Any) -> bool:
    """No hook and no `retain_grad` wants to see its gradient."""
    return n.hooks is None


def not_captured(n: Node, outside: int, wanted: Any) -> bool:
    """Its gradient is not asked for by `Engine.grad`."""
    return wanted is None or n not in wanted


GUARDS: tuple[Guard, ...] = (single_consumer, not_hooked, not_captured)


def refusal(n: Node, outside: int, wanted: Any) -> str | None:
    """The name of the first guard that forbids to absorb `n`, or None."""
    for guard in GUARDS:
        if not guard(n, outside, wanted):
            return guard.__name__
    return None


# head of the group, node that sends, position among its edges, node that would join -> whether it may.
EdgeGuard = Callable[[FuncOp, FuncOp, int, FuncOp], bool]


def same_device(head: FuncOp, n: FuncOp, k: int, e: FuncOp) -> bool:
    """All nodes of a group compute on one device.

    Only edges set by hand can lead to another: a move is a node of its own.
    """
    return e.F is head.F


def same_shape(head: FuncOp, n: FuncOp, k: int, e: FuncOp) -> bool:
    """Nothing was broadcast between the two: the gradient would have to be summed on its way."""
    return may_pass(n, k)


def no_cast(head: FuncOp, n: FuncOp, k: int, e: FuncOp) -> bool:
    """Neither changes the dtype: one group computes in one."""
    return n.plan.op.name != "cast" != e.plan.op.name


EDGE_GUARDS: tuple[EdgeGuard, ...] = (same_device, same_shape, no_cast)


def edge_refusal(head: FuncOp, n: FuncOp, k: int, e: FuncOp) -> str | None:
    """The name of the first guard that forbids `e` to join over edge `k` of `n`, or None."""
    for guard in EDGE_GUARDS:
        if not guard(head, n, k, e):
            return guard.__name__
    return None


# a saved array, how it lies beside the group's shape, the shape, the gradient's dtype, the device -> whether
# the group can read it.
ArrayGuard = Callable[[Any, Kind, tuple[int, ...], Any, str], bool]


def same_dtype(v: Any, kind: Kind, shape: tuple[int, ...], dtype: Any, device: str) -> bool:
    """Real floating arrays of the gradient's dtype, and masks; on CUDA, random words that are made there."""
    return dtype in _FLOATING and (
        v.dtype == dtype or v.dtype.kind == "b" or kind == STATE and device == "cuda"
    )


def broadcasts(v: Any, kind: Kind, shape: tuple[int, ...], dtype: Any, device: str) -> bool:
    """Its place beside an element is known (always, for ops of this package); in a kernel, from at most two
    quotients per row, as more cost more than they save.
    """
    return kind is not None and (kind != REPEAT or device == "cpu" or len(repeats(v.shape, shape)) <= 2)


def contiguous(v: Any, kind: Kind, shape: tuple[int, ...], dtype: Any, device: str) -> bool:
    """Its elements lie side by side: a kernel or a sweep would copy it first."""
    return kind == SCALAR or bool(v.flags.c_contiguous)


ARRAY_GUARDS: tuple[ArrayGuard, ...] = (same_dtype, broadcasts, contiguous)


def array_refusal(values: Any, kinds: Any, shape: tuple[int, ...], dtype: Any, device: str) -> str | None:
    """The name of the first guard that forbids a group to run on these arrays, or None."""
    if dtype not in _FLOATING:
        return "same_dtype"
    for v, kind in zip(values, kinds, strict=True):
        for guard in ARRAY_GUARDS:
            if not guard(v, kind, shape, dtype, device):
                return guard.__name__
    return None


# what waits for a receiver (None: nothing), the shape and dtype of the gradient that a group makes for it ->
# whether the group may add it on the way.
JoinGuard = Callable[[Any, tuple[int, ...], Any], bool]


def something_waits(waiting: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    """Another gradient of the receiver arrived before."""
    return waiting is not None


def waits_in_the_same_shape(waiting: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    """It has the shape of the gradient that the group makes: a node of the user's may send a number."""
    return bool(waiting.shape == shape)


def waits_in_the_same_dtype(waiting: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    """It has the gradient's dtype: a sum of two dtypes has the wider one."""
    return bool(waiting.dtype == dtype)


JOIN_GUARDS: tuple[JoinGuard, ...] = (something_waits, waits_in_the_same_shape, waits_in_the_same_dtype)


def join_refusal(waiting: Any, shape: tuple[int, ...], dtype: Any) -> str | None:
    """The name of the first guard that forbids a group to add what waits for a receiver, or None."""
    for guard in JOIN_GUARDS:
        if not guard(waiting, shape, dtype):
            return guard.__name__
    return None
