"""What tensors hold on a device, as text."""

from __future__ import annotations

import gc
from collections import Counter

from .device import Device


def human(n: int) -> str:
    """Bytes in the largest binary unit that leaves at least 1: `1.5 GiB`."""
    value, unit = float(n), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{n} B" if unit == "B" else f"{value:.1f} {unit}"


def held_by_tensors(place: Device, most: int = 4) -> list[str]:
    """The kinds of arrays that tensors and the graph hold on a device, the largest in sum first: `12 x
    float32[4096, 4096] (768.0 MiB)`.
    """
    kinds: Counter[tuple[str, tuple[int, ...]]] = Counter()
    nbytes: Counter[tuple[str, tuple[int, ...]]] = Counter()
    seen: set[int] = set()
    for s in gc.get_objects():
        # Storages, and tensors that have none yet: what has both slots. An array is counted
        # once, a view not at all.
        if not (hasattr(type(s), "array") and hasattr(type(s), "backend")):
            continue
        array, backend = getattr(s, "array", None), getattr(s, "backend", None)
        if (
            getattr(backend, "device", None) != place
            or array is None
            or array.base is not None
            or id(array) in seen
        ):
            continue
        seen.add(id(array))
        kind = (array.dtype.name, array.shape)
        kinds[kind] += 1
        nbytes[kind] += array.nbytes
    return [
        f"{kinds[kind]} x {kind[0]}{list(kind[1])} ({human(n)})" for kind, n in nbytes.most_common(most) if n
    ]
