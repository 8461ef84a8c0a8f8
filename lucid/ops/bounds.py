"""Range checks of indices: at once on the CPU, without waiting on a GPU (storage/deferred.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..storage import deferred


def waits_not(xp: Any) -> bool:
    """Whether checks of values are put off: on a GPU, unless `deferred.blocking()`."""
    return xp.__name__ != "numpy" and not deferred.blocking()


def in_range(xp: Any, index: Any, low: int, high: int, error: Callable[[int], Exception]) -> Any:
    """`index` (integers), all in [low, high). Raises error(bad index) otherwise: on the CPU at once, on a GPU at the next read of the device.

    Until then what was out of range points to the nearest end, so that no kernel reaches outside its arrays.
    """
    if not index.size:
        return index
    if high <= low or not waits_not(xp):
        least, most = int(index.min()), int(index.max())
        if least < low or most >= high:
            raise error(least if least < low else most)
        return index
    deferred.note(xp, index, low, high, error)
    return xp.clip(index, low, high - 1)


def clamped(xp: Any, index: Any, low: int, high: int) -> Any:
    """What `in_range` gave for an index that was checked in the forward pass: nothing is checked here."""
    return index if high <= low or not waits_not(xp) else xp.clip(index, low, high - 1)
