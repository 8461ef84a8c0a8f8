"""The switch of the pass, and its counts."""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field

_enabled: ContextVar[bool] = ContextVar(
    "lucid_fusion", default=os.environ.get("LUCID_FUSION", "1") not in ("0", "off", "false")
)


class enabled:
    """Whether groups fuse: `enabled()` asks; `enabled(False)` sets it, as a call or as a context manager.

    >>> import lucid
    >>> with lucid.fusion.enabled(False):
    ...     bool(lucid.fusion.enabled())
    False
    """

    __slots__ = ("before",)

    def __init__(self, value: bool | None = None) -> None:
        self.before = _enabled.get()
        if value is not None:
            _enabled.set(bool(value))

    def __bool__(self) -> bool:
        return _enabled.get()

    def __enter__(self) -> enabled:
        return self

    def __exit__(self, *_: object) -> None:
        _enabled.set(self.before)


@dataclass
class Stats:
    """Counts since the last `reset_stats()`.

    passes: backward calls looked at. groups: groups found. fused: groups that ran as one. fell_back: groups
    whose parts ran one by one, by reason.
    absorbed: nodes that groups ran in place of. by_name: fused runs by the group's name.

    >>> import lucid
    >>> lucid.fusion.reset_stats()
    >>> lucid.fusion.stats().fused
    0
    """

    passes: int = 0
    groups: int = 0
    fused: int = 0
    absorbed: int = 0
    fell_back: dict[str, int] = field(default_factory=dict)
    by_name: dict[str, int] = field(default_factory=dict)


_stats = Stats()
_lock = threading.Lock()


def stats() -> Stats:
    """The counts so far (a copy).

    >>> import lucid
    >>> lucid.fusion.reset_stats()
    >>> lucid.fusion.stats().passes
    0
    """
    with _lock:
        return Stats(
            _stats.passes,
            _stats.groups,
            _stats.fused,
            _stats.absorbed,
            dict(_stats.fell_back),
            dict(_stats.by_name),
        )


def reset_stats() -> None:
    """Nothing; the counts start at zero.

    >>> import lucid
    >>> lucid.fusion.reset_stats()
    """
    global _stats
    with _lock:
        _stats = Stats()


def count_pass(groups: int) -> None:
    """Nothing; counts a backward call and the groups found in it."""
    with _lock:
        _stats.passes += 1
        _stats.groups += groups


def count_fused(name: str, nodes: int) -> None:
    """Nothing; counts a group that ran as one."""
    with _lock:
        _stats.fused += 1
        _stats.absorbed += nodes
        _stats.by_name[name] = _stats.by_name.get(name, 0) + 1


def count_fallback(reason: str) -> None:
    """Nothing; counts a group whose parts ran one by one."""
    with _lock:
        _stats.fell_back[reason] = _stats.fell_back.get(reason, 0) + 1
