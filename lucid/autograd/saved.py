"""Hooks on the values that a graph keeps for its backward pass: `saved_tensors_hooks`, `save_on_cpu`.

They stand in the recorder's interceptor slot (mode.py) and change the nodes that come out of it, so that an
op pays nothing where there are no hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import GradError
from ..storage.dtype import ALL
from .impl import TensorImpl, describe
from .mode import intercept, mode, no_grad
from .node import BarrierOp, FuncOp, Port
from .plan import NONE


class Packed(tuple[Any, ...]):
    """Stands for the values that a node keeps: what pack_hook made of each. Empty, for those that only look.
    """

    unpack: Callable[[Any], Any]
    items: list[Any]

    def storages(self, name: str) -> tuple[Any, ...]:
        """The values as the node needs them, from unpack_hook."""
        return tuple(unpacked(self.unpack, name, item) for item in self.items)


def packed(pack: Callable[[Any], Any], t: Any) -> Any:
    """(what pack_hook made of the tensor, the shape and device that come back)."""
    flags, handlers = mode.flags, mode.interceptors
    mode.flags, mode.interceptors = 0, ()
    try:
        return pack(t), t.storage.array.shape, t.storage.backend
    finally:
        mode.flags, mode.interceptors = flags, handlers


def unpacked(unpack: Callable[[Any], Any], name: str, item: Any) -> Any:
    """The storage of what unpack_hook returns for an item of `packed`."""
    if type(item) is list:
        # A variadic op's tensors, in the type that the recorder gave them.
        return item[0](unpacked(unpack, name, part) for part in item[1])
    if type(item) is not tuple:
        return item
    value, shape, backend = item
    with no_grad():
        t = unpack(value)
    if not isinstance(t, TensorImpl) or t.array.shape != shape or t.backend is not backend:
        raise GradError(
            f"{name}: unpack_hook must return a tensor of the shape {shape} on {backend.device}, as it was "
            f"packed, got {describe(t)}"
        )
    return t.storage


def _hooked(n: Any, run: Callable[..., Any], *args: Any) -> Any:
    """run(n, *args) with the values unpacked for its time."""
    kept = n.saved
    if kept.__class__ is not Packed:
        return run(n, *args)
    n.saved = kept.storages(n.name())
    try:
        return run(n, *args)
    finally:
        n.saved = kept


class PackedOp(FuncOp):
    """A FuncOp whose saved values went through a pack_hook. The fusion pass takes plain FuncOps alone."""

    __slots__ = ()

    def validate_versions(self) -> None:
        # What hooks return cannot be followed: as in PyTorch, writes to it are not noticed.
        if self.saved is None:
            super().validate_versions()

    def apply(self, g: Any) -> Sequence[Any]:
        return _hooked(self, FuncOp.apply, g)

    def apply_for_graph(self, g: Any) -> Sequence[Any]:
        return _hooked(self, FuncOp.apply_for_graph, g)


class PackedBarrierOp(BarrierOp):
    """A BarrierOp whose saved values went through a pack_hook."""

    __slots__ = ()
    validate_versions = PackedOp.validate_versions

    def apply_barrier(self, state: Any, create_graph: bool = False) -> Sequence[Any]:
        return _hooked(self, BarrierOp.apply_barrier, state, create_graph)


_CLASSES: dict[type, type] = {FuncOp: PackedOp, BarrierOp: PackedBarrierOp}


def innermost() -> Any:
    """The `saved_tensors_hooks` in whose block this thread is, or None."""
    for handler in reversed(mode.interceptors):
        if isinstance(handler, _Handler):
            return handler.hooks
    return None


class _Handler:
    """The interceptor of one region: `handler(op, tensors, statics, call)`."""

    __slots__ = ("hooks",)

    def __init__(self, hooks: saved_tensors_hooks) -> None:
        self.hooks = hooks

    def __call__(
        self, op: Any, tensors: tuple[Any, ...], statics: tuple[Any, ...], call: Callable[..., Any]
    ) -> Any:
        out = call(tensors, statics)
        if innermost() is not self.hooks:
            return out
        for t in out if isinstance(out, tuple) else (out,):
            n = t.edge if isinstance(t, TensorImpl) else None
            n = n.node if type(n) is Port else n
            if n.__class__ in _CLASSES:
                self._pack(n, {id(x._storage): x for x in tensors if isinstance(x, TensorImpl)})
        return out

    def _pack(self, n: Any, given: dict[int, Any]) -> None:
        # A hook gets the tensor that the op got, so that it can tell a parameter; a result without its
        # history, which would be a cycle.
        def item(storage: Any) -> Any:
            if isinstance(storage, tuple):
                return [type(storage), [item(s) for s in storage]]
            if storage is NONE or storage.array.dtype not in ALL:
                # Nothing, or a random state of an op, which no tensor can hold.
                return storage
            t = given.get(id(storage))
            return packed(self.hooks.pack_hook, TensorImpl.from_storage(storage) if t is None else t)

        if n.saved:
            kept = Packed()
            kept.unpack, kept.items = self.hooks.unpack_hook, [item(s) for s in n.saved]
            n.__class__ = _CLASSES[n.__class__]
            n.saved, n.versions = kept, 0


class saved_tensors_hooks:
    """A context manager under which what is kept for the backward pass goes through two functions.

    pack_hook(tensor) is called when a value is saved, and what it returns is kept instead (a file's name, a
    copy on another device, fewer bits); unpack_hook gets that in the backward pass and returns a tensor of
    the same shape on the same device. Of nested blocks the innermost holds; inside `checkpoint` none does.
    Writes to a packed value are not noticed. Raises GradError for another result of unpack_hook.

    >>> import lucid
    >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> half, full = (lambda t: t.half()), (lambda t: t.float())
    >>> with lucid.autograd.graph.saved_tensors_hooks(half, full):
    ...     y = x.exp()
    >>> y.sum().backward()
    >>> x.grad
    tensor([2.7188, 7.3906])
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook
        self._regions: list[intercept] = []

    def __enter__(self) -> saved_tensors_hooks:
        region = intercept(_Handler(self))
        region.__enter__()
        self._regions.append(region)
        return self

    def __exit__(self, *error: object) -> None:
        self._regions.pop().__exit__(*error)


class save_on_cpu(saved_tensors_hooks):
    """A context manager under which what is kept for the backward pass lies in host memory.

    It is copied there in the forward pass and back in the backward pass. pin_memory: into pinned memory.

    >>> import lucid
    >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> with lucid.autograd.graph.save_on_cpu():
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 4.])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(t: Any) -> Any:
            host = t.detach().to("cpu", copy=True)
            return t.device, host.pin_memory() if pin_memory else host

        def unpack(value: Any) -> Any:
            return value[1].to(value[0])

        super().__init__(pack, unpack)


def without_hooks(handlers: tuple[Any, ...]) -> tuple[Any, ...]:
    """The interceptors of a thread without those of this file."""
    return tuple(h for h in handlers if not isinstance(h, _Handler))
