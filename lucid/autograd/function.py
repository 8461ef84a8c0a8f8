"""`Function`: a user's own forward and backward, as PyTorch's `autograd.Function`."""

from __future__ import annotations

from typing import Any, ClassVar

from ..errors import DeviceError, FreedGraphError, GradError, SavedValueError
from ..storage.storage import Storage, ViewStorage
from .impl import TensorImpl, describe, leaf_edge
from .mode import GRAD, mode, no_grad, set_grad_enabled
from .node import Node, Port, gather
from .saved import innermost, packed, unpacked


class FunctionNode(Node):
    """The node of a `Function` call; it is the `ctx` that forward and backward get."""

    # No slots: users keep what they like on ctx.
    function: Any
    backend: Any
    shapes: list[tuple[int, ...]]
    materialize = True
    once = False
    _unpack: Any = None

    def __init__(self) -> None:
        super().__init__()
        self._saved: tuple[Any, ...] | None = ()
        self._to_save: tuple[Any, ...] = ()
        self._non_differentiable: tuple[Any, ...] = ()
        self._dirty: tuple[Any, ...] = ()
        self.needs_input_grad: tuple[bool, ...] = ()
        # Of each output: (shape, dtype, backend), None for what is no tensor; and which are differentiable.
        self.meta: list[Any] = []
        self.differentiable: list[int] = []
        self.positions: list[int] = []
        self.places: list[Any] = []

    @property
    def is_barrier(self) -> bool:  # type: ignore[override]
        """Whether there are several outputs, whose gradients are gathered before the node runs."""
        return len(self.differentiable) > 1

    @property
    def node_name(self) -> str:  # type: ignore[override]
        """The function's class name."""
        return self.function.__name__

    def name(self) -> str:
        return f"{self.function.__name__}Backward"

    # ---- ctx ----

    def save_for_backward(self, *tensors: Any) -> None:
        """Nothing; keeps inputs and outputs for backward, where `ctx.saved_tensors` gives them back
        after a version check.
        """
        for t in tensors:
            if t is not None and not isinstance(t, TensorImpl):
                raise GradError(
                    f"{self.node_name}: save_for_backward takes tensors (or None), got {type(t).__name__}; "
                    "keep other values as attributes of ctx"
                )
        self._to_save = tensors

    save_for_forward = save_for_backward

    def mark_non_differentiable(self, *outputs: Any) -> None:
        """Nothing; these outputs require no grad; backward gets zeros for them."""
        self._non_differentiable = outputs

    def mark_dirty(self, *inputs: Any) -> None:
        """Nothing; these inputs were changed in place by forward, and are among its outputs."""
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """Nothing; with False, gradients of unused outputs arrive as None instead of zeros."""
        self.materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors given to save_for_backward, with their history."""
        if self._saved is None:
            self.validate_versions()
        out: list[Any] = []
        for item in self._saved or ():
            if item is None:
                out.append(None)
                continue
            storage, _, edge, leaf, nr = item
            if self._unpack is not None:
                storage = unpacked(self._unpack, self.name(), storage)
            if nr is not None:
                edge = Port(self, nr) if self.is_barrier else self
            t = leaf() if leaf is not None else None
            if t is None or self._unpack is not None:
                own, t = t, TensorImpl.from_storage(storage, edge)
                if own is not None:
                    t.requires_grad, t.accumulate = True, leaf_edge(own)
            out.append(t)
        return tuple(out)

    def pack(self, outputs: list[Any], tensor_outputs: list[int]) -> None:
        """Nothing; keeps what save_for_backward named, outputs by number so that no cycle arises."""
        import weakref

        saved: list[Any] = []
        hooks = innermost()
        self._unpack = None if hooks is None else hooks.unpack_hook
        for t in self._to_save:
            if t is None:
                saved.append(None)
                continue
            nr = next((k for k, i in enumerate(tensor_outputs) if outputs[i] is t), None)
            leaf = weakref.ref(t) if nr is None and t.edge is None else None
            storage = t.storage
            if leaf is not None and not t._requires_grad:
                leaf = None
            version = storage.version
            if hooks is not None:
                given = t if nr is None else TensorImpl.from_storage(storage)
                storage, version = packed(hooks.pack_hook, given), None
            saved.append((storage, version, t.edge if nr is None else None, leaf, nr))
        self._saved, self._to_save = tuple(saved), ()

    # ---- what the engine calls ----

    def validate_versions(self) -> None:
        if self._saved is None:
            raise FreedGraphError(
                f"{self.name()}: its saved values were freed by an earlier backward pass; "
                "call the first backward (or grad) with retain_graph=True"
            )
        for i, item in enumerate(self._saved):
            if item is not None and item[1] is not None and item[0].version != item[1]:
                a = item[0].array
                raise SavedValueError(
                    f"{self.name()}: saved tensor {i} ({a.dtype.name}{list(a.shape)}, "
                    f"{item[0].backend.device}) was changed in place after forward (version "
                    f"{item[0].version}, saved at {item[1]}); clone() it before changing it"
                )

    @property
    def saved_versions(self) -> Any:
        return tuple(None if s is None else s[1] for s in self._saved or ())

    def release_saved(self) -> None:
        self._saved = None

    def accumulate_barrier_grad(self, state: Any, input_nr: int, g: Any) -> Any:
        return gather(state, len(self.differentiable), input_nr, g)

    def apply(self, g: Any) -> Any:
        parts = g if isinstance(g, list) else [g]
        tensors = [
            None if p is None else TensorImpl.from_storage(Storage(backend.asarray(p), backend))
            for p, backend in zip(parts, (self.meta[i][2] for i in self.differentiable), strict=True)
        ]
        with no_grad():
            grads = self._backward(tensors)
        return tuple(None if t is None else t.storage.array for t in grads)

    def apply_for_graph(self, g: Any) -> Any:
        if self.once:
            raise GradError(
                f"{self.node_name}: its backward is once_differentiable, so it cannot be recorded; "
                "call backward with create_graph=False"
            )
        return self._backward(list(g) if isinstance(g, list) else [g])

    def _backward(self, tensors: list[Any]) -> tuple[Any, ...]:
        given: list[Any] = [None] * len(self.meta)
        for i, t in zip(self.differentiable, tensors, strict=True):
            given[i] = t
        if self.materialize:
            for i, meta in enumerate(self.meta):
                if given[i] is None and meta is not None:
                    shape, dtype, backend = meta
                    given[i] = TensorImpl.from_storage(Storage(backend.xp.zeros(shape, dtype), backend))
        grads = self.function.backward(self, *given)
        grads = (
            grads if isinstance(grads, tuple) else (grads,) if not isinstance(grads, list) else tuple(grads)
        )
        n = len(self.needs_input_grad)
        while len(grads) > n and grads[-1] is None:
            grads = grads[:-1]
        if len(grads) != n:
            raise GradError(
                f"{self.node_name}: backward must return one gradient per argument of forward ({n}), "
                f"got {len(grads)}; return None for arguments that are no tensors"
            )
        out = []
        for i, need in enumerate(self.needs_input_grad):
            g = grads[i]
            if g is not None and not isinstance(g, TensorImpl):
                raise GradError(
                    f"{self.node_name}: backward returned {type(g).__name__} for argument {i}; "
                    "return a tensor or None"
                )
            if i in self.positions:
                if g is not None and need and g.shape != self.shapes[self.positions.index(i)]:
                    raise GradError(
                        f"{self.node_name}: backward returned shape {g.shape} for argument {i}, "
                        f"expected {self.shapes[self.positions.index(i)]}"
                    )
                place = self.places[self.positions.index(i)]
                if g is not None and need and g.storage.backend is not place:
                    raise DeviceError(
                        f"{self.node_name}: backward returned a gradient on {g.storage.backend.device} for "
                        f"argument {i}, which is on {place.device}; move it with .to({str(place.device)!r})"
                    )
                out.append(g if need else None)
        return tuple(out)


class Function:
    """Base class of a user's own differentiable function.

    Static `forward(ctx, *args)` and `backward(ctx, *grads)`, called by `apply`. backward gets one gradient
    per output of forward (zeros for those that are not differentiable, None for those that are no tensors)
    and returns one per positional argument of forward (None for those that are no tensors). With
    `create_graph=True` backward is itself recorded, so double backward works when it is made of lucid
    operations.

    >>> import lucid
    >>> class Cube(lucid.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x ** 3
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         x, = ctx.saved_tensors
    ...         return g * 3 * x ** 2
    >>> x = lucid.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    setup_context: ClassVar[Any] = None

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The result, from the arguments of `apply`."""
        raise NotImplementedError("Function: define forward(ctx, *args)")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """One gradient per argument of forward."""
        raise NotImplementedError("Function: define backward(ctx, *grads)")

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__name__} is not instantiated; call {type(self).__name__}.apply(...)")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """The result of forward, recorded so that backward gives its gradient."""
        node = FunctionNode()
        node.function = cls
        tensors = [(i, a) for i, a in enumerate(args) if isinstance(a, TensorImpl)]
        record = bool(mode.flags & GRAD) and any(t._requires_grad for _, t in tensors)
        node.needs_input_grad = tuple(isinstance(a, TensorImpl) and a._requires_grad and record for a in args)
        with set_grad_enabled(False):
            if cls.setup_context is not None:
                result = cls.forward(*args)
                cls.setup_context(node, args, result)
            else:
                result = cls.forward(node, *args)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        node.once = getattr(cls.backward, "_once_differentiable", False)
        if record:
            node.edges = tuple((t.edge or leaf_edge(t)) if t._requires_grad else None for _, t in tensors)
            node.positions = [i for i, _ in tensors]
            node.shapes = [t.storage.array.shape for _, t in tensors]
            node.places = [t.storage.backend for _, t in tensors]
            cls._connect(node, args, outputs)
        for t in node._dirty:
            t.storage.version += 1
        return (
            tuple(outputs)
            if isinstance(result, tuple)
            else outputs
            if isinstance(result, list)
            else outputs[0]
        )

    @classmethod
    def _connect(cls, node: FunctionNode, args: tuple[Any, ...], outputs: list[Any]) -> None:
        """Nothing; makes `node` the edge of the differentiable outputs."""
        given = {id(a) for a in args if isinstance(a, TensorImpl)}
        dirty = {id(t) for t in node._dirty}
        off = {id(t) for t in node._non_differentiable}
        original = list(outputs)
        positions = []
        for i, t in enumerate(outputs):
            if not isinstance(t, TensorImpl) or id(t) in off or t.storage.array.dtype.num < 11:
                continue
            if id(t) in dirty:
                if t.edge is None and t._requires_grad:
                    raise GradError(
                        f"{cls.__name__}: a leaf that requires grad ({describe(t)}) was changed in place; "
                        "clone() it first"
                    )
            elif id(t) in given:
                outputs[i] = TensorImpl.from_storage(ViewStorage(t.storage.array, t.storage))
            positions.append(i)
        node.meta = [
            (t.array.shape, t.array.dtype, t.backend) if isinstance(t, TensorImpl) else None for t in outputs
        ]
        node.differentiable = positions
        node.backend = next((t for t in outputs if isinstance(t, TensorImpl)), args[0]).storage.backend
        node.pack(original, positions)
        for k, i in enumerate(positions):
            outputs[i].edge, outputs[i]._requires_grad = (Port(node, k) if node.is_barrier else node), True


def once_differentiable(backward: Any) -> Any:
    """A decorator for a backward whose result must not be differentiated again: it runs without recording.

    Differentiating it all the same raises GradError.

    >>> import lucid
    >>> class Double(lucid.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @lucid.autograd.once_differentiable
    ...     def backward(ctx, g):
    ...         return g * 2
    >>> x = lucid.tensor([1.0], requires_grad=True)
    >>> Double.apply(x).backward()
    >>> x.grad
    tensor([2.])
    """

    def wrapped(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            return backward(ctx, *grads)

    wrapped._once_differentiable = True  # type: ignore[attr-defined]
    return wrapped
