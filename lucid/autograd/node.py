"""The graph: `Edge`, `Node`, `FuncOp` for ops, `AccumulateGrad` for leaves, `Port`
for one of several outputs.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ..errors import DeviceError, FreedGraphError, GradError, SavedValueError
from ..storage.backend import device_of
from ..storage.storage import Storage
from .own import own

if TYPE_CHECKING:
    from .impl import TensorImpl
    from .plan import Plan

next_sequence_nr = itertools.count().__next__


class Edge(NamedTuple):
    """Where a gradient goes: the node that takes it, and the number of that node's output it belongs to.

    >>> import lucid
    >>> x = lucid.tensor([1.0], requires_grad=True)
    >>> edge = x.exp().grad_fn.next_edges[0]
    >>> edge.node.name(), edge.input_nr
    ('AccumulateGrad', 0)
    """

    node: Node
    input_nr: int = 0


class Node:
    """A step of the backward pass: takes the gradient of its output, returns one for each outgoing edge.

    Subclass it for a raw backward step: `apply(g)` gets a device array and returns one array (or None) per
    edge; `apply_for_graph(g)` does the same with tensors, for `create_graph=True`. Among ready nodes the one
    with the highest `sequence_nr` runs first.

    Inside, `edges` holds nodes: an edge to output 0 of a node is the node itself, to output i > 0 a `Port`.
    Plain references keep a node at 4 containers (bench_overhead: bytes per node); `next_edges` shows them as
    `Edge`s.

    >>> import lucid
    >>> class Halve(lucid.autograd.Node):
    ...     def apply(self, g):
    ...         return g * 0.5
    >>> Halve().name()
    'Halve'
    """

    __slots__ = ("sequence_nr", "edges", "hooks", "__weakref__")
    sequence_nr: float
    edges: tuple[Node | None, ...]
    hooks: Any
    is_barrier: ClassVar[bool] = False
    node_name: str | property = "unknown"

    def __init__(self, next_edges: Iterable[Edge | Node | None] = (), sequence_nr: int | None = None) -> None:
        self.sequence_nr = next_sequence_nr() if sequence_nr is None else sequence_nr
        self.hooks = None
        self.next_edges = next_edges

    @property
    def next_edges(self) -> tuple[Edge | None, ...]:
        """The outgoing edges, one per input that the node gives a gradient to."""
        return tuple(
            None if e is None else Edge(e.node, e.input_nr) if isinstance(e, Port) else Edge(e, 0)
            for e in self.edges
        )

    @next_edges.setter
    def next_edges(self, edges: Iterable[Edge | Node | None]) -> None:
        self.edges = tuple(_entry(e) for e in edges)

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """`next_edges` under PyTorch's name and form."""
        return tuple((None, 0) if e is None else (e.node, e.input_nr) for e in self.next_edges)

    def name(self) -> str:
        """The node's class name as PyTorch prints it."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{self.name()} #{self.sequence_nr:g}>"

    # ---- what the engine calls ----

    def apply(self, g: Any) -> Sequence[Any] | None:
        """One raw gradient (or None) per edge, from the raw gradient of the output."""
        raise GradError(
            f"{self.node_name}: this node defines no apply(g); subclass Node and return one gradient per edge"
        )

    def apply_for_graph(self, g: Any) -> Sequence[Any] | None:
        """The same on tensors, recorded, so that the result can be differentiated again."""
        raise GradError(
            f"{self.node_name}: this node has no derivative that can be recorded (create_graph=True); "
            "define apply_for_graph(g) in terms of lucid operations, or call backward with "
            "create_graph=False"
        )

    def accumulate_barrier_grad(self, state: Any, input_nr: int, g: Any) -> Any:
        """The barrier's state after the gradient of output `input_nr` arrived.

        `state` is None at the first.
        """
        raise GradError(
            f"{self.node_name}: this node is not a barrier, it takes one gradient (output 0), "
            f"got one for output {input_nr}"
        )

    def apply_barrier(self, state: Any, create_graph: bool = False) -> Sequence[Any] | None:
        """One gradient per edge, from all that a barrier has gathered."""
        return self.apply_for_graph(state) if create_graph else self.apply(state)

    @property
    def saved_versions(self) -> Any:
        """Versions of the saved values at the time they were saved; 0 when all were 0."""
        return 0

    def validate_versions(self) -> None:
        """Nothing; raises when a saved value is gone or was changed in place since it was saved."""

    def release_saved(self) -> None:
        """Nothing; drops the saved values."""

    # ---- hooks ----

    def register_hook(self, hook: Any) -> Any:
        """A handle; `hook(grad_inputs, grad_outputs)` runs after the node and may return new grad_inputs."""
        from .hooks import add_hook

        return add_hook(self, "post", hook)

    def register_prehook(self, hook: Any) -> Any:
        """A handle; `hook(grad_outputs)` runs before the node and may return new grad_outputs."""
        from .hooks import add_hook

        return add_hook(self, "pre", hook)


def _entry(edge: Edge | Node | None) -> Node | None:
    if edge is None or isinstance(edge, Node):
        return edge
    node, input_nr = edge
    return (
        node
        if input_nr == 0
        and not isinstance(node, BarrierOp)
        and not node.is_barrier
        or isinstance(node, AccumulateGrad)
        else Port(node, input_nr)
    )


class Port(Node):
    """One output of a node with several: what reaches it is handed to the node's barrier."""

    __slots__ = ("node", "input_nr")

    def __init__(self, node: Node, input_nr: int) -> None:
        # Between the node and every consumer, so that sorting by sequence_nr stays a topological order.
        self.sequence_nr, self.edges, self.hooks = node.sequence_nr + 0.5, (node,), None
        self.node, self.input_nr = node, input_nr

    @property
    def node_name(self) -> str:  # type: ignore[override]
        """The name of the node whose output this is."""
        return str(self.node.node_name)


class FuncOp(Node):
    """The node of an op: its plan (which values to keep, which formulas to run) and the values it kept.

    saved: storages, in the order of `plan.keep`; None once released. versions: 0 when every saved
    version was 0, else a tuple.
    shapes: input shapes to which the gradients are summed, or None when nothing was broadcast. static: what
    else the formulas name.

    >>> import lucid
    >>> x = lucid.tensor([1.0], requires_grad=True)
    >>> node = x.exp().grad_fn
    >>> node.name(), isinstance(node, lucid.autograd.FuncOp)
    ('ExpBackward', True)
    """

    __slots__ = ("plan", "saved", "versions", "shapes", "F", "static")
    plan: Plan
    saved: tuple[Storage, ...] | None
    versions: tuple[int, ...] | int
    shapes: tuple[tuple[int, ...] | None, ...] | None
    F: Any
    static: tuple[Any, ...]

    @property
    def node_name(self) -> str:  # type: ignore[override]
        """The registered name of the op."""
        return self.plan.op.name

    @property
    def op(self) -> Any:
        """The op that made this node."""
        return self.plan.op

    def name(self) -> str:
        """The node's name as PyTorch prints it: `TanhBackward`."""
        return self.plan.op.node_name

    def apply(self, g: Any) -> Sequence[Any]:
        return self.plan.run(self, g)

    def apply_for_graph(self, g: Any) -> Sequence[Any]:
        return self.plan.run_graph(self, g)

    @property
    def saved_versions(self) -> Any:
        return self.versions

    def validate_versions(self) -> None:
        saved = self.saved
        if saved is None:
            raise FreedGraphError(
                f"{self.name()}: its saved values were freed by an earlier backward pass; call the first "
                "backward (or grad) with retain_graph=True to run through this graph again"
            )
        now = tuple(s.version for s in saved)
        then = self.versions if isinstance(self.versions, tuple) else (0,) * len(saved)
        if now != then:
            i = next(i for i, (a, b) in enumerate(zip(now, then, strict=True)) if a != b)
            array, what = saved[i].array, self.plan.keep[i]
            what = "its output" if what in self.plan.op.outputs else f"its input {what!r}"
            raise SavedValueError(
                f"{self.name()}: {what} ({array.dtype.name}{list(array.shape)}, {saved[i].backend.device}) "
                f"was changed in place after the forward pass (version {now[i]}, saved at {then[i]}); "
                "use an out-of-place operation, or clone() before changing it"
            )

    def release_saved(self) -> None:
        self.saved = None


class BarrierOp(FuncOp):
    """The node of an op with several differentiable outputs: gathers their gradients, then runs once."""

    __slots__ = ("meta",)
    meta: tuple[tuple[tuple[int, ...], Any], ...]
    is_barrier: ClassVar[bool] = True

    def accumulate_barrier_grad(self, state: Any, input_nr: int, g: Any) -> Any:
        return gather(state, len(self.meta), input_nr, g)

    def apply_barrier(self, state: Any, create_graph: bool = False) -> Sequence[Any]:
        xp = self.F.backend.xp
        g = []
        for part, (shape, dtype) in zip(state, self.meta, strict=True):
            if part is None:
                part = xp.zeros(shape, dtype)
                part = self.plan.wrap(part, self.F.backend) if create_graph else part
            g.append(part)
        return self.plan.run_graph(self, tuple(g)) if create_graph else self.plan.run(self, tuple(g))


def gather(state: list[Any] | None, n: int, input_nr: int, g: Any) -> list[Any]:
    """The list of output gradients after one more arrived."""
    if state is None:
        state = [None] * n
    state[input_nr] = g if state[input_nr] is None else state[input_nr] + g
    return state


class AccumulateGrad(Node):
    """The terminal node of a leaf: writes what arrives into the leaf's `.grad`, once per backward call.

    The leaf holds its node; the node holds the leaf weakly, so that no cycle keeps a dropped leaf alive.

    >>> import lucid
    >>> x = lucid.tensor([1.0], requires_grad=True)
    >>> type(x.exp().grad_fn.next_edges[0].node).__name__
    'AccumulateGrad'
    """

    __slots__ = ("reference", "backend", "dtype", "shape")
    is_barrier: ClassVar[bool] = True
    node_name = "AccumulateGrad"

    def __init__(self, leaf: TensorImpl) -> None:
        self.sequence_nr, self.edges, self.hooks = -1, (), None
        self.reference = weakref.ref(leaf)
        self.backend = leaf.storage.backend

    @property
    def variable(self) -> TensorImpl | None:
        """The leaf, or None when it is gone."""
        return self.reference()

    def write(self, box: list[Any], create_graph: bool) -> None:
        """Nothing; adds the gradient in `box` to the leaf's `.grad`.

        A leaf that is gone or needs no gradient any more is skipped.

        The gradient comes in a list and is taken out of it, so that its reference count tells whether its
        buffer may be kept (`own`).
        """
        leaf = self.reference()
        if leaf is None or not leaf._requires_grad:
            return
        g = box.pop()
        grad = leaf._grad
        if create_graph:
            leaf._grad = g if grad is None else grad + g
        elif grad is None:
            storage = Storage(own(g, self.backend, leaf.storage.array), self.backend)
            leaf._grad = type_of_tensor(leaf).from_storage(storage)
        elif grad._requires_grad:
            leaf._grad = grad.detach() + type_of_tensor(leaf).from_storage(
                Storage(self.backend.asarray(g), self.backend)
            )
        else:
            # In place, so that the buffer's address stays stable (CUDA graph replay needs that).
            real = g.dtype.kind != "c" or grad.storage.array.dtype.kind == "c"
            try:
                grad.storage.array += g if real else g.real
            except TypeError:
                self.check_place(g)
                raise
            grad.storage.version += 1
        if self.hooks is not None:
            for hook in self.hooks.after():
                hook(leaf)

    def check_place(self, g: Any) -> None:
        """Nothing; raises for a raw gradient, or a `.grad`, on another device than the leaf: what a node or
        an assignment of the user's has brought about.
        """
        leaf = self.reference()
        grad = None if leaf is None else leaf._grad
        for what, place in (
            ("gradient", device_of(g)),
            ("`.grad`", None if grad is None else grad.storage.backend.device),
        ):
            if place is not None and place != self.backend.device:
                raise DeviceError(
                    f"accumulate_grad: the leaf is on {self.backend.device}, its {what} on {place}; "
                    f"move it with .to({str(self.backend.device)!r})"
                )


def type_of_tensor(leaf: Any) -> Any:
    """The public Tensor class (a Parameter's gradient is a plain Tensor)."""
    return leaf.tensor_class
