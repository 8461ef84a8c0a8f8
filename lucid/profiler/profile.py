"""`profile`: ops are seen by `intercept`, backward nodes as groups of one that a pass puts around them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from time import perf_counter
from typing import Any

from ..autograd import engine as _engine
from ..autograd.impl import TensorImpl
from ..autograd.mode import intercept
from ..autograd.node import AccumulateGrad, Node, Port
from ..errors import LucidError
from ..fusion import find_groups
from ..fusion.groups import Group
from ..storage.backend import Backend
from .events import Event, EventList, averages, chrome_trace

_active: ContextVar[profile | None] = ContextVar("lucid_profile", default=None)
_lock = threading.Lock()
_users = 0  # active profiles of all threads: the pass is in the engine while there are any


class profile:
    """A context that records the time of every op forward and of every node backward in this thread.

    record_shapes: keep the shapes of op inputs, for `key_averages(group_by_input_shape=True)`. synchronize:
    wait for the device after each event, so that times on CUDA are those of the device and not of the
    queueing host. on_trace_ready: called with the profile at its end.

    Backward under `create_graph=True` is made of recorded ops, and is not recorded here. Times contain what
    the profiler costs, about 1 us an op.

    >>> import lucid
    >>> x = lucid.ones(3, requires_grad=True)
    >>> with lucid.profiler.profile() as prof:
    ...     with lucid.profiler.record_function("step"):
    ...         (x * x).sum().backward()
    >>> [row.key for row in prof.key_averages()]
    ['step', 'mul', 'sum', 'SumBackward', 'MulBackward']
    """

    def __init__(
        self,
        record_shapes: bool = False,
        synchronize: bool = False,
        on_trace_ready: Callable[[profile], Any] | None = None,
    ) -> None:
        self.record_shapes, self.synchronize, self.on_trace_ready = record_shapes, synchronize, on_trace_ready
        self._events: list[Event] = []
        self._open: list[Event] = []
        self._intercept: intercept | None = None

    # ---- on and off ----

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Nothing; recording begins in this thread. Raises LucidError when a profile is active in it."""
        global _users
        if _active.get() is not None:
            raise LucidError("profile: a profile is active in this thread already; end it first")
        _active.set(self)
        with _lock:
            _users += 1
            if _users == 1:
                _replace(find_groups, _observed)
        self._intercept = intercept(self._op)
        self._intercept.__enter__()

    def stop(self) -> None:
        """Nothing; recording ends."""
        global _users
        if self._intercept is None:
            return
        self._intercept.__exit__()
        self._intercept = None
        _active.set(None)
        with _lock:
            _users -= 1
            if _users == 0:
                _replace(_observed, find_groups)
        self._open.clear()
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    # ---- recording ----

    def begin(self, name: str, kind: str, parts: tuple[str, ...] = (), shapes: tuple[Any, ...] = ()) -> Event:
        """An event that has started."""
        event = Event(name, kind, 0.0, thread=threading.get_ident(), parts=parts, shapes=shapes)
        self._events.append(event)
        self._open.append(event)
        event.start = perf_counter()
        return event

    def end(self, event: Event, backend: Any = None) -> None:
        """Nothing; the event has ended."""
        if self.synchronize:
            for b in (backend,) if backend is not None else Backend.instances():
                b.synchronize()
        event.end = perf_counter()
        while self._open and self._open.pop() is not event:
            pass
        if self._open:
            self._open[-1].inner += event.time

    def _op(self, op: Any, tensors: tuple[Any, ...], statics: tuple[Any, ...], call: Any) -> Any:
        shapes = (
            tuple(t.shape if isinstance(t, TensorImpl) else None for t in tensors)
            if self.record_shapes
            else ()
        )
        event = self.begin(op.name, "forward", (), shapes)
        try:
            return call(tensors, statics)
        finally:
            self.end(event, next((t.storage.backend for t in tensors if isinstance(t, TensorImpl)), None))

    # ---- results ----

    def events(self) -> list[Event]:
        """Every event, in the order in which they started."""
        return list(self._events)

    def key_averages(self, group_by_input_shape: bool = False) -> EventList:
        """The events summed by name and kind; `.table(sort_by, row_limit)` prints them."""
        return averages(self._events, group_by_input_shape)

    def export_chrome_trace(self, path: Any) -> None:
        """Nothing; writes a JSON file for chrome://tracing or Perfetto."""
        chrome_trace(self._events, path)

    def __str__(self) -> str:
        return self.key_averages().table()


class record_function:
    """A context or decorator that gives what runs within it a name in the profile.

    Free of cost while none is active.

    >>> import lucid
    >>> with lucid.profiler.profile() as run:
    ...     with lucid.profiler.record_function("layer"):
    ...         y = lucid.ones(3).exp()
    >>> sorted(row.key for row in run.key_averages())
    ['exp', 'layer']
    """

    __slots__ = ("name", "event")

    def __init__(self, name: str) -> None:
        self.name = name
        self.event: Event | None = None

    def __enter__(self) -> record_function:
        active = _active.get()
        self.event = None if active is None else active.begin(self.name, "range")
        return self

    def __exit__(self, *_: object) -> None:
        active = _active.get()
        if active is not None and self.event is not None:
            active.end(self.event)
        self.event = None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)

        return wrapped


class _Timed(Group):
    """A node, or a fused group, with a clock around it."""

    __slots__ = ("profile", "node", "group")

    def __init__(self, profile_: profile, node: Node, group: Group | None) -> None:
        self.profile, self.node, self.group = profile_, node, group
        self.edges = node.edges if group is None else group.edges
        self.name = node.name() if group is None else group.name
        self.parts = () if group is None else group.parts

    def run(self, g: Any, pending: dict[Any, Any]) -> Any:
        n = self.node
        event = self.profile.begin(
            self.name, "backward" if self.group is None else "fused", tuple(p.name() for p in self.parts)
        )
        try:
            if self.group is not None:
                return self.group.run(g, pending)
            grads = n.apply_barrier(g, False) if n.is_barrier else n.apply(g)
            _engine._check_count(n, grads)
            return grads
        finally:
            self.profile.end(event, n.F.backend if hasattr(n, "F") else None)

    def release_saved(self) -> None:
        (self.node if self.group is None else self.group).release_saved()


def _replace(old: Any, new: Any) -> None:
    _engine.PASSES[:] = [new if p is old else p for p in _engine.PASSES]


def _observed(order: Sequence[Node], roots: Sequence[Node], wanted: Any) -> Any:
    """The fusion pass, with a clock around every node and group that this thread's profile is to see."""
    groups = find_groups(order, roots, wanted)
    active = _active.get()
    if active is None:
        return groups
    groups = groups or {}
    return {n: _Timed(active, n, groups.get(n)) for n in order if not isinstance(n, (AccumulateGrad, Port))}
