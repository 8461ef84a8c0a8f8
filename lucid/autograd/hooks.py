"""Hooks on tensors and nodes, and the handles that remove them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from ..errors import GradError, ShapeError
from ..storage.storage import Storage
from .impl import TensorImpl, gradient_edge
from .node import Node

_next_id = itertools.count().__next__


class RemovableHandle:
    """Removes its hook: `handle.remove()`, or at the end of a `with` block.

    >>> import lucid
    >>> x = lucid.tensor([1.0], requires_grad=True)
    >>> with x.register_hook(lambda grad: grad * 10):
    ...     (x * 2).backward()
    >>> x.grad
    tensor([20.])
    """

    __slots__ = ("_table", "id", "__weakref__")

    def __init__(self, table: dict[int, Any]) -> None:
        self._table = weakref.ref(table) if isinstance(table, HookTable) else (lambda: table)
        self.id = _next_id()

    def remove(self) -> None:
        """Nothing; the hook is called no more. Removing twice is fine."""
        table = self._table()
        if table is not None:
            table.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class HookTable(dict[int, Any]):
    """Hooks by handle id, in the order of registration."""

    __slots__ = ("__weakref__",)


class Hooks:
    """A node's hooks: `tensor` see the output's gradient first, then `retain`, `pre`; `post` after the node
    ran; `leaf` after `.grad` was written.
    """

    __slots__ = ("tensor", "retain", "pre", "post", "leaf")

    def __init__(self) -> None:
        self.tensor, self.pre, self.post, self.leaf = HookTable(), HookTable(), HookTable(), HookTable()
        self.retain: Any = None

    def after(self) -> list[Callable[[Any], None]]:
        """Hooks to run once a leaf's `.grad` has been written."""
        return list(self.leaf.values())


def hooks_of(node: Node) -> Hooks:
    """The hooks of a node, made at first use."""
    if node.hooks is None:
        node.hooks = Hooks()
    return node.hooks


def add_hook(node: Node, kind: str, hook: Callable[..., Any]) -> RemovableHandle:
    """A handle for a hook of one kind on a node."""
    table = getattr(hooks_of(node), kind)
    handle = RemovableHandle(table)
    table[handle.id] = hook
    return handle


def register_hook(t: TensorImpl, hook: Callable[..., Any]) -> RemovableHandle:
    """A handle; `hook(grad)` runs once per backward call on the tensor's whole
    gradient and may return another.
    """
    if not t._requires_grad:
        raise GradError(
            "register_hook: expected a tensor that requires grad, got one that does not; "
            "set requires_grad=True first"
        )
    return add_hook(gradient_edge(t), "tensor", hook)


def register_post_accumulate_grad_hook(t: TensorImpl, hook: Callable[..., Any]) -> RemovableHandle:
    """A handle; `hook(leaf)` runs each time after the leaf's `.grad` was written."""
    if t.edge is not None or not t._requires_grad:
        raise GradError(
            "register_post_accumulate_grad_hook: expected a leaf that requires grad; "
            "on other tensors use register_hook or retain_grad"
        )
    return add_hook(gradient_edge(t), "leaf", hook)


def retain_grad(t: TensorImpl) -> None:
    """Nothing; `t.grad` is written by backward although `t` is not a leaf."""
    if not t._requires_grad:
        raise GradError(
            "retain_grad: expected a tensor that requires grad, got one that does not; "
            "set requires_grad=True on its inputs"
        )
    if t.edge is not None:
        hooks_of(t.edge).retain = weakref.ref(t)


def run_pre(node: Node, g: Any, backend: Any, create: bool) -> Any:
    """The gradient on its way into a node, after its tensor hooks, `retain_grad` and pre-hooks."""
    hooks = node.hooks
    for hook in list(hooks.tensor.values()):
        g = _call(node, hook, g, backend, create)
    if hooks.retain is not None:
        t = hooks.retain()
        if t is not None:
            if create:
                new = g
            else:
                new = TensorImpl.from_storage(
                    Storage(backend.xp.array(g, dtype=t.storage.array.dtype, copy=True), backend)
                )
            t._grad = new if t._grad is None else t._grad + new
    for hook in list(hooks.pre.values()):
        g = _call_tuple(node, hook, g, backend, create)
    return g


def _wrap(g: Any, backend: Any, create: bool) -> Any:
    return g if create or g is None else TensorImpl.from_storage(Storage(backend.asarray(g), backend))


def _unwrap(node: Node, old: Any, new: Any, create: bool) -> Any:
    if not isinstance(new, TensorImpl):
        raise GradError(f"{node.node_name}: a hook must return a tensor or None, got {type(new).__name__}")
    if new.storage.array.shape != old.shape:
        raise ShapeError(
            f"{node.node_name}: a hook must return a gradient of shape {old.shape}, got "
            f"{new.storage.array.shape}"
        )
    return new if create else new.storage.array


def _run(node: Node, hook: Callable[..., Any], *args: Any) -> Any:
    """What a hook returns; its error, as it is, gets a note that names the node: also where that is the head
    of a fused group, whose parts do not run one by one.
    """
    try:
        return hook(*args)
    except Exception as error:
        error.add_note(f"raised by a hook of {node.name()} ({getattr(hook, '__qualname__', hook)})")
        raise


def _call(node: Node, hook: Callable[..., Any], g: Any, backend: Any, create: bool) -> Any:
    new = _run(node, hook, _wrap(g, backend, create))
    return g if new is None else _unwrap(node, g, new, create)


def _call_tuple(node: Node, hook: Callable[..., Any], g: Any, backend: Any, create: bool) -> Any:
    several = isinstance(g, (list, tuple))
    parts = list(g) if several else [g]
    new = _run(node, hook, tuple(_wrap(p, backend, create) for p in parts))
    if new is not None:
        new = new if isinstance(new, (list, tuple)) else (new,)
        if len(new) != len(parts):
            raise GradError(
                f"{node.node_name}: a pre-hook must return {len(parts)} gradients, got {len(new)}"
            )
        parts = [p if q is None else _unwrap(node, p, q, create) for p, q in zip(parts, new, strict=True)]
    return parts if several else parts[0]


def run_post(node: Node, grads: Any, g: Any, backend: Any, create: bool) -> Any:
    """The gradients that leave a node, after its post-hooks."""
    outputs = tuple(_wrap(p, backend, create) for p in (g if isinstance(g, (list, tuple)) else (g,)))
    grads = list(grads or ())
    for hook in list(node.hooks.post.values()):
        new = _run(node, hook, tuple(_wrap(p, backend, create) for p in grads), outputs)
        if new is not None:
            new = new if isinstance(new, (list, tuple)) else (new,)
            if len(new) != len(grads):
                raise GradError(
                    f"{node.node_name}: a hook must return {len(grads)} gradients, got {len(new)}"
                )
            grads = [
                p
                if q is None
                else (_unwrap(node, p, q, create) if p is not None else q if create else q.storage.array)
                for p, q in zip(grads, new, strict=True)
            ]
    return grads


__all__ = [
    "RemovableHandle",
    "add_hook",
    "register_hook",
    "register_post_accumulate_grad_hook",
    "retain_grad",
    "run_post",
    "run_pre",
]
