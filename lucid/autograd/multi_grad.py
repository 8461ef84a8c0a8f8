"""One hook on the gradients of several tensors."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import GradError
from .engine import WATCHERS
from .hooks import RemovableHandle, register_hook
from .impl import gradient_edge

_hooks: weakref.WeakSet[_MultiGradHook] = weakref.WeakSet()


class _MultiGradHook(threading.local):
    # What has arrived in the pass under way in this thread; made anew for each thread.
    def __init__(self, tensors: Sequence[Any], function: Callable[..., Any], every: bool) -> None:
        self.nodes = [weakref.ref(gradient_edge(t)) for t in tensors]
        self.function, self.every = function, every
        self.expected = 0
        self.grads: list[Any] = []

    def begin(self, order: set[Any]) -> None:
        """Nothing; notes how many of the tensors the pass will reach."""
        expected = sum(node() in order for node in self.nodes)
        if expected:
            self.expected, self.grads = expected, [None] * len(self.nodes)

    def arrived(self, i: int, g: Any) -> None:
        if not self.expected:
            return
        if not self.every:
            self.expected = 0
            self.function(g)
            return
        self.grads[i] = g
        self.expected -= 1
        if not self.expected:
            grads, self.grads = self.grads, []
            self.function(grads)


class _Handle:
    """Removes the hook: `handle.remove()`, or at the end of a `with` block."""

    def __init__(self, handles: list[RemovableHandle]) -> None:
        self._handles = handles

    def remove(self) -> None:
        """Nothing; the hook is called no more. Removing twice is fine."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _watch(order: list[Any]) -> None:
    if _hooks:
        nodes = set(order)
        for hook in list(_hooks):
            hook.begin(nodes)


def register_multi_grad_hook(
    tensors: Sequence[Any], fn: Callable[..., Any], *, mode: str = "all"
) -> _Handle:
    """A handle; fn(gradients) runs once per backward pass, when the gradients of all the tensors are there.

    Gradients come in the order of the tensors, None for one that the pass does not reach. mode="any":
    fn(gradient) runs at the first one. What fn returns is not used. Raises GradError for another mode or a
    tensor that does not require grad.

    >>> import lucid
    >>> a, b = (lucid.tensor(v, requires_grad=True) for v in (2.0, 3.0))
    >>> handle = lucid.autograd.graph.register_multi_grad_hook((a, b), print)
    >>> (a * b).backward()
    [tensor(3.), tensor(2.)]
    """
    if mode not in ("all", "any"):
        raise GradError(f"register_multi_grad_hook: mode must be 'all' or 'any', got {mode!r}")
    hook = _MultiGradHook(tensors, fn, mode == "all")
    # The hooks of the tensors keep it alive.
    handles = [register_hook(t, lambda g, i=i: hook.arrived(i, g)) for i, t in enumerate(tensors)]
    _hooks.add(hook)
    if _watch not in WATCHERS:
        WATCHERS.append(_watch)
    return _Handle(handles)
