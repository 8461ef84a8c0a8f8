"""Recomputation instead of saving: `checkpoint(function, *args)`.

The first run records its graph as ever, but its nodes give up what they saved. The first of them that the
backward pass reaches runs the function a second time, and every node of the segment takes the values that its
twin of the second run has saved. The graph itself is that of the first run, so hooks, closures, keyword
arguments, nesting, `Engine.grad` and second derivatives need no rules of their own.

Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost (arXiv:1604.06174).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import GradError, SavedValueError
from .impl import TensorImpl
from .mode import GRAD, INTERCEPT, mode
from .node import AccumulateGrad, BarrierOp, FuncOp, Node, Port, next_sequence_nr
from .saved import without_hooks


class Segment:
    """A checkpointed call: how to run it again, and what its second run saved (node number -> values)."""

    __slots__ = ("run", "random", "handlers", "watched", "names", "values", "__weakref__")

    def __init__(self, run: Callable[[], Any], random: Any, tensors: list[Any]) -> None:
        self.run, self.random = run, random
        # Autocast, unlike a profiler, belongs to the function: it holds in the second run too.
        self.handlers = tuple(h for h in mode.interceptors if getattr(h, "recomputes", False))
        self.watched = [(t.storage, t.storage.version, "an argument") for t in tensors]
        self.names: list[str] = []
        self.values: dict[int, Any] = {}

    def release(self, nodes: list[Any]) -> None:
        """Nothing; the nodes give up what they saved. Leaves among it (weights) are watched from now on."""
        weights: dict[int, Any] = {}
        for number, n in enumerate(nodes):
            self.names.append(n.node_name)
            if n.saved.__class__ is Place:
                # A segment inside this one: its arguments must not be kept, its weights are anyway.
                weights.update((id(w[0]), w) for w in n.saved.segment.watched if w[2] == "a weight")
            elif not n.plan.op.variadic:
                kept = dict(zip(n.plan.keep, n.saved, strict=True))
                for target, edge in zip(n.plan.targets, n.edges, strict=True):
                    if edge.__class__ is AccumulateGrad and target in kept:
                        storage = kept[target]
                        weights[id(storage)] = (storage, storage.version, "a weight")
            place = Place()
            place.segment, place.number = self, number
            n.__class__ = _CLASSES[n.__class__]
            n.saved, n.versions = place, 0
        self.watched += weights.values()

    def take(self, number: int) -> Any:
        """What node `number` saved, from a second run when there is none yet."""
        if number not in self.values:
            self._run_again()
        return self.values.pop(number)

    def validate(self) -> None:
        """Nothing; raises when an argument or a weight has been written to since."""
        for storage, version, what in self.watched:
            if storage.version != version:
                array = storage.array
                raise SavedValueError(
                    f"checkpoint: {what} ({array.dtype.name}{list(array.shape)}, {storage.backend.device}) "
                    f"was changed in place after the forward pass (version {storage.version}, saved at "
                    f"{version}), so the segment cannot be computed again; clone() it before changing it"
                )

    def _run_again(self) -> None:
        flags, handlers = mode.flags, mode.interceptors
        mode.interceptors, mode.flags = self.handlers, GRAD | (INTERCEPT if self.handlers else 0)
        try:
            start = next_sequence_nr()
            if self.random is None:
                out = self.run()
            else:
                with self.random():
                    out = self.run()
            nodes = _nodes(_tensors(out), start)
        finally:
            mode.flags, mode.interceptors = flags, handlers
        names = [n.node_name for n in nodes]
        if names != self.names:
            i = 0
            while i < min(len(self.names), len(names)) and self.names[i] == names[i]:
                i += 1
            before, now = (x[i] if i < len(x) else "nothing" for x in (self.names, names))
            raise GradError(
                "checkpoint: the second run of the function recorded other operations than the first "
                f"(operation {i}: first {before}, now {now}); it must do the same each time it gets the same "
                "arguments"
            )
        self.values.update((i, n.saved) for i, n in enumerate(nodes))


class Place(tuple[Any, ...]):
    """Stands for a node's saved values: its segment and its number there. Empty, for those that only look."""

    segment: Segment
    number: int


def _restored(n: Any) -> Any:
    """The node, after it took back its saved values."""
    while n.saved.__class__ is Place:
        n.saved = n.saved.segment.take(n.saved.number)
    return n


class RecomputedOp(FuncOp):
    """A FuncOp whose saved values come from a second run. The fusion pass takes plain FuncOps alone."""

    __slots__ = ()

    def validate_versions(self) -> None:
        saved: Any = self.saved
        if saved.__class__ is Place:
            saved.segment.validate()
        else:
            super().validate_versions()

    def apply(self, g: Any) -> Sequence[Any]:
        return FuncOp.apply(_restored(self), g)

    def apply_for_graph(self, g: Any) -> Sequence[Any]:
        return FuncOp.apply_for_graph(_restored(self), g)


class RecomputedBarrierOp(BarrierOp):
    """A BarrierOp whose saved values come from a second run."""

    __slots__ = ()
    validate_versions = RecomputedOp.validate_versions

    def apply_barrier(self, state: Any, create_graph: bool = False) -> Sequence[Any]:
        return BarrierOp.apply_barrier(_restored(self), state, create_graph)


_CLASSES: dict[type, type] = {
    FuncOp: RecomputedOp,
    BarrierOp: RecomputedBarrierOp,
    RecomputedOp: RecomputedOp,
    RecomputedBarrierOp: RecomputedBarrierOp,
}


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], tuple[Any, Any]] | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    **kwargs: Any,
) -> Any:
    """function(*args, **kwargs), whose inner values are not kept but computed again in the backward pass.

    Gradients reach the arguments, and all else that `function` uses. The random state of the default
    generators is restored for the second run (unless preserve_rng_state is False), so dropout masks are the
    same; so is autocast. The function must do the same both times; what it changes (batch norm's running
    statistics) is changed twice. use_reentrant is accepted for PyTorch's sake: there is one way here, with
    the abilities of PyTorch's use_reentrant=False. context_fn: gives two context managers, for the first
    and for the second run. determinism_check and debug are accepted: the operations of the second run are
    always compared.

    Raises SavedValueError in backward when an argument was changed in place since, GradError when the second
    run differs.

    >>> from lucid.utils.checkpoint import checkpoint
    >>> import lucid
    >>> w = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint(lambda x: (x * w).exp().sum(), lucid.ones(2)).backward()
    >>> w.grad
    tensor([2.7183, 7.3891])
    """
    if not mode.flags & GRAD:
        return function(*args, **kwargs)
    from ..storage.random import fork_default_generators

    tensors = _tensors((args, kwargs))
    random = fork_default_generators(tensors) if preserve_rng_state else None
    if context_fn is not None:
        first, second = context_fn()
        again, function = _within(second, function), _within(first, function)
    else:
        again = function
    segment = Segment(lambda: again(*args, **kwargs), random, tensors)
    start = next_sequence_nr()
    # Hooks on saved values would pack what is given up here.
    before = mode.interceptors
    mode.interceptors = without_hooks(before)
    try:
        out = function(*args, **kwargs)
    finally:
        mode.interceptors = before
    segment.release(_nodes(_tensors(out), start))
    return out


def _within(context: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with context:
            return function(*args, **kwargs)

    return run


def _tensors(value: Any) -> list[Any]:
    """The tensors in nested tuples, lists and dicts."""
    if isinstance(value, TensorImpl):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return []
    return [t for item in value for t in _tensors(item)]


def _nodes(outs: list[Any], start: int) -> list[Any]:
    """The ops' nodes that were made since `start` and lead to `outs`, in the order in which they were
    made.
    """
    seen: set[Node] = set()
    stack = [t.edge for t in outs if t.edge is not None]
    found = []
    while stack:
        n = stack.pop()
        if type(n) is Port:
            n = n.node
        if n in seen or n.sequence_nr < start:
            continue
        seen.add(n)
        if n.__class__ in _CLASSES:
            found.append(n)
        stack += [e for e in n.edges if e is not None]
    return sorted(found, key=lambda n: n.sequence_nr)


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """The result of `functions` one after the other, in `segments` checkpointed parts.

    functions: a Sequential, or a list of functions. The last part is run as usual: its values are needed
    first.

    >>> from lucid.utils.checkpoint import checkpoint_sequential
    >>> import lucid
    >>> layers = [lucid.tanh, lucid.exp, lucid.tanh]
    >>> checkpoint_sequential(layers, 2, lucid.zeros(2))
    tensor([0.7616, 0.7616])
    """
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if not 1 <= segments <= len(steps):
        raise ValueError(f"checkpoint_sequential: segments must be from 1 to {len(steps)}, got {segments}")
    size = len(steps) // segments

    def part(first: int, last: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for step in steps[first:last]:
                x = step(x)
            return x

        return run

    for i in range(segments - 1):
        input = checkpoint(part(i * size, (i + 1) * size), input, preserve_rng_state=preserve_rng_state)
    return part((segments - 1) * size, len(steps))(input)
