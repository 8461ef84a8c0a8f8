"""`profile`: ops are seen by `intercept`, backward nodes as groups of one that a pass puts around them."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from pathlib import Path
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
from .events import Event, EventList, averages, chrome_trace, stacks
from .schedule import ProfilerAction, ProfilerActivity

# The profile that runs in this thread, and the same while its schedule records.
_running: ContextVar[profile | None] = ContextVar("lucid_profile_running", default=None)
_active: ContextVar[profile | None] = ContextVar("lucid_profile", default=None)
_lock = threading.Lock()
_users = 0  # active profiles of all threads: the pass is in the engine while there are any


class profile:
    """A context that records the time of every op forward and of every node backward in this thread.

    activities: what to time, `ProfilerActivity.CPU` when None; with CUDA among them the profiler waits for
    the device after each event (synchronize=True), so that times on CUDA are those of the device and not of
    the queueing host. schedule: which steps are recorded, see `schedule`; the program then calls `step()`
    after each. on_trace_ready: called with the profile at its end, or after each recorded cycle of the
    schedule. record_shapes: keep the shapes of op inputs, for `key_averages(group_by_input_shape=True)`.
    profile_memory: keep the bytes of each result and gradient. with_stack: keep the line of the program that
    called each op. with_flops, with_modules and acc_events are accepted and ignored.

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
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        acc_events: bool = False,
        synchronize: bool | None = None,
    ) -> None:
        wanted = set(activities if activities is not None else (ProfilerActivity.CPU,))
        if not wanted or not wanted <= set(ProfilerActivity):
            raise ValueError(f"profile: activities are of {', '.join(map(str, ProfilerActivity))}, got "
                             f"{activities!r}")
        self.activities, self.schedule, self.on_trace_ready = wanted, schedule, on_trace_ready
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.synchronize = ProfilerActivity.CUDA in wanted if synchronize is None else synchronize
        self.step_num = 0
        self.current_action = ProfilerAction.RECORD if schedule is None else schedule(0)
        self._events: list[Event] = []
        self._open: list[Event] = []
        self._step: Event | None = None
        self._intercept: intercept | None = None
        self._running = False

    # ---- on and off ----

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Nothing; recording begins in this thread. Raises LucidError when a profile is active in it."""
        if _running.get() is not None:
            raise LucidError("profile: a profile is active in this thread already; end it first")
        _running.set(self)
        self._running = True
        self._follow(ProfilerAction.NONE, self.current_action)

    def stop(self) -> None:
        """Nothing; recording ends."""
        if not self._running:
            return
        self._running = False
        _running.set(None)
        if self._intercept is None:
            return
        self._detach()
        # Under a schedule only a trace that its step has not handed over.
        recorded = self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if recorded and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """Nothing; the program's step has ended, and the schedule says what is done with the next."""
        if not self._running or self.schedule is None:
            self.step_num += 1
            return
        before = self.current_action
        self._end_step()
        self.step_num += 1
        now = self.current_action = self.schedule(self.step_num)
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._detach()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
            before = ProfilerAction.NONE
        self._follow(before, now)

    def _follow(self, before: ProfilerAction, now: ProfilerAction) -> None:
        # From one step's action to the next one's.
        if now is ProfilerAction.NONE:
            if self._intercept is not None:
                self._detach()
            return
        if before in (ProfilerAction.NONE, ProfilerAction.WARMUP):
            self._events.clear()
            self._open.clear()
        if self._intercept is None:
            self._attach()
        self._renew_step()

    def _renew_step(self) -> None:
        self._end_step()
        if self.schedule is not None:
            self._step = self.begin(f"ProfilerStep#{self.step_num}", "range")

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None and self._intercept is not None:
            self.end(step)

    def _attach(self) -> None:
        global _users
        _active.set(self)
        with _lock:
            _users += 1
            if _users == 1:
                _replace(find_groups, _observed)
        self._intercept = intercept(self._op)
        self._intercept.__enter__()

    def _detach(self) -> None:
        global _users
        self._end_step()
        assert self._intercept is not None
        self._intercept.__exit__()
        self._intercept = None
        _active.set(None)
        with _lock:
            _users -= 1
            if _users == 0:
                _replace(_observed, find_groups)
        self._open.clear()

    # ---- recording ----

    def begin(self, name: str, kind: str, parts: tuple[str, ...] = (), shapes: tuple[Any, ...] = (),
              stack: tuple[str, ...] = ()) -> Event:
        """An event that has started."""
        event = Event(name, kind, 0.0, thread=threading.get_ident(), parts=parts, shapes=shapes, stack=stack)
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
        event = self.begin(op.name, "forward", (), shapes, _stack() if self.with_stack else ())
        try:
            out = call(tensors, statics)
            if self.profile_memory:
                event.memory = sum(
                    o.array.nbytes
                    for o in (out if isinstance(out, tuple) else (out,))
                    if isinstance(o, TensorImpl) and o.base is None
                )
            return out
        finally:
            self.end(event, next((t.storage.backend for t in tensors if isinstance(t, TensorImpl)), None))

    # ---- results ----

    def events(self) -> list[Event]:
        """Every event, in the order in which they started."""
        return list(self._events)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """The events summed by name and kind; `.table(sort_by, row_limit)` prints them.

        group_by_input_shape, group_by_stack_n: apart by the shapes of the inputs, by the innermost n lines of
        the program that led to the call.
        """
        return averages(self._events, group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: Any) -> None:
        """Nothing; writes a JSON file for chrome://tracing or Perfetto."""
        chrome_trace(self._events, path)

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """Nothing; writes one line per stack for flame graph tools: frames from the outermost, joined by ';',
        and the microseconds spent there. Needs with_stack=True.
        """
        stacks(self._events, path, metric)

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
                grads = self.group.run(g, pending)
            else:
                grads = n.apply_barrier(g, False) if n.is_barrier else n.apply(g)
                _engine._check_count(n, grads)
            if self.profile.profile_memory:
                event.memory = sum(
                    x.nbytes for x in grads or () if x is not None and x is not g and x.base is None
                )
            return grads
        finally:
            self.profile.end(event, n.F.backend if hasattr(n, "F") else None)

    def release_saved(self) -> None:
        (self.node if self.group is None else self.group).release_saved()


# Frames of the package and of its generated functions are not the program's.
_OURS = (str(Path(__file__).parents[1]), "<lucid ")
_DEPTH = 32


def _stack() -> tuple[str, ...]:
    """The lines of the program that led here, the innermost first: `train.py(12): step`."""
    found: list[str] = []
    frame: Any = sys._getframe(2)
    while frame is not None and len(found) < _DEPTH:
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return tuple(found)


def supported_activities() -> set[ProfilerActivity]:
    """CPU, and CUDA where a device was opened or can be.

    >>> from lucid import profiler
    >>> profiler.ProfilerActivity.CPU in profiler.supported_activities()
    True
    """
    from ..cuda import is_available

    return set(ProfilerActivity) if is_available() else {ProfilerActivity.CPU}


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
