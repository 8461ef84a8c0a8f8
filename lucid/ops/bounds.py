"""Indices: their range, checked at once on the CPU and without waiting on a GPU (storage/deferred.py), and
their counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..storage import deferred


def waits_not(xp: Any) -> bool:
    """Whether checks of values are put off: on a GPU, unless `deferred.blocking()`."""
    return xp.__name__ != "numpy" and not deferred.blocking()


def in_range(xp: Any, index: Any, low: int, high: int, error: Callable[[int], Exception]) -> Any:
    """`index` (integers), all in [low, high). Raises error(bad index) otherwise: on the CPU at once, on a GPU
    at the next read of the device.

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


def ascending_in_range(xp: Any, index: Any, low: int, high: int, error: Callable[[int], Exception]) -> None:
    """Nothing; raises as `in_range` does for an ascending index (not empty), of which it looks at the ends.

    For kernels that leave what is out of range out by themselves.
    """
    if waits_not(xp):
        deferred.note(xp, index, low, high, error, ascending=True)
    else:
        in_range(xp, index[:: max(index.size - 1, 1)], low, high, error)


def clamped(xp: Any, index: Any, low: int, high: int) -> Any:
    """What `in_range` gave for an index that was checked in the forward pass: nothing is checked here."""
    return index if high <= low or not waits_not(xp) else xp.clip(index, low, high - 1)


def tally(xp: Any, index: Any, size: int) -> Any:
    """int64 [size]: how often each of 0 .. size - 1 occurs in `index`. CuPy's bincount would wait for the
    largest.
    """
    if xp.__name__ == "numpy":
        return xp.bincount(index.reshape(-1), minlength=size)
    count = xp.zeros(size, "int64")
    if index.size:
        xp.add.at(count, index.reshape(-1), 1)
    return count
