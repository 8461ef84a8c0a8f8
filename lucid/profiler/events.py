"""Recorded events, their averages as a table, and the Chrome trace."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

SORTS = {
    "self_time_total": lambda s: -s.self_time,
    "time_total": lambda s: -s.time,
    "time_avg": lambda s: -s.time / s.count,
    "count": lambda s: -s.count,
    "memory": lambda s: -s.memory,
    "name": lambda s: s.key,
}
# PyTorch's names for the same orders.
ALIASES = {
    "self_cpu_time_total": "self_time_total",
    "cpu_time_total": "time_total",
    "cpu_time": "time_avg",
    "self_cuda_time_total": "self_time_total",
    "cuda_time_total": "time_total",
    "cuda_time": "time_avg",
    "self_device_time_total": "self_time_total",
    "device_time_total": "time_total",
    "device_time": "time_avg",
    "self_cpu_memory_usage": "memory",
    "cpu_memory_usage": "memory",
    "self_cuda_memory_usage": "memory",
    "cuda_memory_usage": "memory",
}


@dataclass(slots=True)
class Event:
    """One call. kind: "forward", "backward", "fused" (a group of nodes that ran as one) or "range".

    start, end: seconds on `time.perf_counter`. inner: seconds spent in events within it. parts: nodes of a
    fused group. shapes: of the inputs, stack: lines of the program, innermost first, memory: bytes of the
    results, each where recorded. A "range" is a `record_function`.

    >>> import lucid
    >>> with lucid.profiler.profile() as run:
    ...     y = lucid.ones(3).exp()
    >>> run.events()[0].name, run.events()[0].kind
    ('exp', 'forward')
    """

    name: str
    kind: str
    start: float
    end: float = 0.0
    inner: float = 0.0
    thread: int = 0
    parts: tuple[str, ...] = ()
    shapes: tuple[Any, ...] = ()
    stack: tuple[str, ...] = ()
    memory: int = 0

    @property
    def time(self) -> float:
        """Seconds from start to end."""
        return self.end - self.start

    @property
    def self_time(self) -> float:
        """Seconds spent in the event itself."""
        return self.end - self.start - self.inner


@dataclass(slots=True)
class Summary:
    """All events of one name and kind (and shapes or lines, where grouped by them).

    time, self_time: seconds in all. memory: bytes of all results. PyTorch's names (`cpu_time_total`, ...) are
    in microseconds.

    >>> import lucid
    >>> with lucid.profiler.profile() as run:
    ...     y = lucid.ones(3).exp().exp()
    >>> [(row.key, row.count) for row in run.key_averages()]
    [('exp', 2)]
    """

    key: str
    kind: str
    count: int = 0
    time: float = 0.0
    self_time: float = 0.0
    parts: tuple[str, ...] = ()
    shapes: tuple[Any, ...] = ()
    stack: tuple[str, ...] = ()
    memory: int = 0

    @property
    def cpu_time_total(self) -> float:
        """Microseconds in all."""
        return self.time * 1e6

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds in the events themselves."""
        return self.self_time * 1e6

    @property
    def cpu_time(self) -> float:
        """Microseconds of one event on average."""
        return self.time * 1e6 / self.count

    # One clock serves both: with ProfilerActivity.CUDA it waits for the device.
    cuda_time_total = device_time_total = cpu_time_total
    self_cuda_time_total = self_device_time_total = self_cpu_time_total
    cuda_time = device_time = cpu_time

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes of all results."""
        return self.memory

    cpu_memory_usage = self_cuda_memory_usage = cuda_memory_usage = self_cpu_memory_usage


@dataclass
class EventList:
    """Averages of a profile, as `profile.key_averages()` gives them. Iterates over `Summary` rows.

    >>> import lucid
    >>> with lucid.profiler.profile() as run:
    ...     y = lucid.ones(3).exp()
    >>> len(run.key_averages())
    1
    """

    rows: list[Summary] = field(default_factory=list)

    def __iter__(self) -> Iterator[Summary]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Summary:
        return self.rows[i]

    def __str__(self) -> str:
        return self.table()

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_name_column_width: int = 55) -> str:
        """A table: name, kind, share of the time, time in the event itself and in all, average, calls. The
        nodes of a fused group stand below it.

        sort_by: "self_time_total" (the default), "time_total", "time_avg", "count", "memory" or "name";
        PyTorch's "self_cpu_time_total" and the like are understood. row_limit: at most so many rows; -1: all.
        Raises ValueError for another `sort_by`.
        """
        order = ALIASES.get(sort_by or "self_time_total", sort_by or "self_time_total")
        if order not in SORTS:
            raise ValueError(f"profiler: sort_by is one of {', '.join((*SORTS, *ALIASES))}, got {sort_by!r}")
        rows = sorted(self.rows, key=SORTS[order])
        total = sum(r.self_time for r in rows)
        shown = rows if row_limit < 0 else rows[:row_limit]
        names = [r.key + (f" {list(r.shapes)}" if r.shapes else "") for r in shown]
        width = min(
            max([len("Name"), *(len(n) for n in names), *(len(p) + 4 for r in shown for p in r.parts)]),
            max_name_column_width,
        )
        memory = any(r.memory for r in rows)
        titles = ("Name", "Kind", "Self %", "Self", "Total", "Average", "Calls", *(("Memory",) * memory))
        head = _row(titles, width)
        lines = [head, "-" * len(head)]
        for r, name in zip(shown, names, strict=True):
            share = f"{100 * r.self_time / total if total else 0.0:.2f}%"
            times = (_time(t) for t in (r.self_time, r.time, r.time / r.count))
            size = (_bytes(r.memory),) * memory
            lines.append(_row((_cut(name, width), r.kind, share, *times, str(r.count), *size), width))
            lines += [f"  + {_cut(p, width - 4)}" for p in r.parts]
            lines += [f"  at {line}" for line in r.stack]
        if len(rows) > len(shown):
            lines.append(f"... {len(rows) - len(shown)} more rows")
        lines += ["-" * len(head), f"Self time in all: {_time(total)}"]
        return "\n".join(lines)


def averages(events: Iterable[Event], by_shape: bool = False, stack_lines: int = 0) -> EventList:
    """The events summed by name and kind, in the order in which they first ran."""
    found: dict[Any, Summary] = {}
    for e in events:
        shapes, stack = e.shapes if by_shape else (), e.stack[:stack_lines]
        key = (e.name, e.kind, e.parts, shapes, stack)
        s = found.get(key)
        if s is None:
            s = found[key] = Summary(e.name, e.kind, parts=e.parts, shapes=shapes, stack=stack)
        s.count += 1
        s.time += e.time
        s.self_time += e.self_time
        s.memory += e.memory
    return EventList(list(found.values()))


def chrome_trace(events: list[Event], path: str | os.PathLike[str]) -> None:
    """Nothing; writes the events as a trace that chrome://tracing and Perfetto read (Trace Event Format,
    complete events, microseconds).
    """
    first = min((e.start for e in events), default=0.0)
    threads = {t: i for i, t in enumerate(dict.fromkeys(e.thread for e in events))}
    rows = []
    for e in events:
        details: dict[str, Any] = {"parts": list(e.parts)} if e.parts else {}
        if e.shapes:
            details["shapes"] = [None if s is None else list(s) for s in e.shapes]
        if e.stack:
            details["stack"] = list(e.stack)
        if e.memory:
            details["bytes"] = e.memory
        rows.append(
            {
                "name": e.name,
                "cat": e.kind,
                "ph": "X",
                "ts": (e.start - first) * 1e6,
                "dur": e.time * 1e6,
                "pid": os.getpid(),
                "tid": threads[e.thread],
                "args": details,
            }
        )
    with open(path, "w") as f:
        json.dump({"traceEvents": rows, "displayTimeUnit": "ms"}, f)


def stacks(events: Iterable[Event], path: str | os.PathLike[str], metric: str) -> None:
    """Nothing; writes the stacks with the microseconds spent in each, in the format of flame graph tools."""
    if ALIASES.get(metric, metric) not in ("self_time_total", "time_total"):
        raise ValueError(f"export_stacks: metric is self_cpu_time_total or self_cuda_time_total, got "
                         f"{metric!r}")
    total: dict[str, float] = {}
    for e in events:
        if e.stack:
            line = ";".join((*reversed(e.stack), e.name))
            total[line] = total.get(line, 0.0) + e.self_time
    with open(path, "w") as f:
        f.writelines(f"{line} {seconds * 1e6:.0f}\n" for line, seconds in total.items())


def _row(cells: tuple[str, ...], width: int) -> str:
    name, kind, *numbers = cells
    return "  ".join([f"{name:{width}}", f"{kind:8}", *(f"{c:>10}" for c in numbers)])


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3f} s"
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3f} us"


def _bytes(n: int) -> str:
    value, unit = float(n), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{n} B" if unit == "B" else f"{value:.1f} {unit}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
