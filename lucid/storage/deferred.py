"""Range checks on devices that must not be waited for: noted when made, answered where the host waits anyway.

`note` keeps the smallest and largest index of a call on the device. The next `to_numpy`, `item` or
`synchronize` of the backend reads what was noted since the last one, in one copy, and raises the first error;
it names the operation, not the line. With LUCID_CUDA_BLOCKING=1 (or `blocking(True)`, and on the simulated
device) nothing is put off: every check waits, and its traceback shows the line.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

_Error = Callable[[int], Exception]

# (smallest and largest index as arrays, low, high, error) per check, in order, by device.
_noted: dict[int, list[tuple[Any, Any, int, int, _Error]]] = {}
_lock = threading.Lock()
_blocking = os.environ.get("LUCID_CUDA_BLOCKING", "0") not in ("", "0")
# So many unanswered checks make the host wait once: a bound on the memory that they hold (512 bytes each).
MOST = 4096


def blocking(on: bool | None = None) -> bool:
    """Whether checks wait for the device instead of being noted; set to `on` unless None."""
    global _blocking
    if on is not None:
        _blocking = bool(on)
    return _blocking


def note(xp: Any, index: Any, low: int, high: int, error: _Error, ascending: bool = False) -> None:
    """Nothing; a later `answer` raises error(bad index) unless all of `index` (not empty) lies in [low,
    high). ascending: its ends are the smallest and the largest.
    """
    device = int(index.device.id)
    with _lock, index.device:
        noted = _noted.setdefault(device, [])
        # A copy of the ends: a view would keep all of the index.
        ends = index[:: max(index.size - 1, 1)].copy() if ascending else (index.min(), index.max())
        noted.append((ends[0], ends[-1], low, high, error))
    if len(noted) >= MOST:
        answer(xp, device)


def answer(xp: Any, device: int) -> None:
    """Nothing; raises for the first check of a device that failed, and forgets all of them."""
    noted = _noted.get(device)
    if not noted:
        return
    with _lock:
        noted = _noted.pop(device, [])
    if not noted:
        return
    with xp.cuda.Device(device):
        ends = xp.stack([e.astype("int64", copy=False) for pair in noted for e in pair[:2]])
    extremes = ends.get().reshape(-1, 2)
    for (least, most), (_, _, low, high, error) in zip(extremes.tolist(), noted, strict=True):
        if least < low or most >= high:
            raise error(least if least < low else most)
