"""What all parts share: the API snapshot, settings, counters, and the exceptions of the stand-in."""

from __future__ import annotations

import functools
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np


@functools.cache
def api() -> dict[str, Any]:
    """The public surface of the real CuPy, from api.json (see snapshot.py)."""
    return json.loads((Path(__file__).parent / "api.json").read_text())


def names(text: str) -> frozenset[str]:
    """The words of a text, for tables of names."""
    return frozenset(text.split())


class NotInStandin(NotImplementedError):
    """A name that CuPy has and the stand-in does not model."""


class UndefinedOnDevice(RuntimeError):
    """An operation that CuPy carries out without a word, with a result that is undefined or not NumPy's."""


class Settings:
    """How kernels run: mode (fast, checked), order of threads (forward, reverse, random), seed, coverage; and
    how many devices there are.

    Start values come from LUCID_CUSIM_MODE, LUCID_CUSIM_ORDER, LUCID_CUSIM_SEED, LUCID_CUSIM_COVERAGE and
    LUCID_CUDA_SIM_DEVICES.
    """

    def __init__(self) -> None:
        self.mode = os.environ.get("LUCID_CUSIM_MODE", "fast")
        self.order = os.environ.get("LUCID_CUSIM_ORDER", "random")
        self.seed = int(os.environ.get("LUCID_CUSIM_SEED", "0"))
        self.coverage = os.environ.get("LUCID_CUSIM_COVERAGE", "0") not in ("", "0")
        self.devices = int(os.environ.get("LUCID_CUDA_SIM_DEVICES") or 1)
        self.used = self.lost = False  # whether memory was taken; the same in a process that was forked since


class Here(threading.local):
    """This thread's current device, and what linalg does about a failure (`cupyx.errstate`)."""

    device = 0
    linalg = "ignore"


class DeviceSynchronized(RuntimeError):
    """cupyx.DeviceSynchronized: a synchronisation where `cupyx.allow_synchronize(False)` forbids it."""


class Counters:
    """launches, syncs, h2d_bytes, d2h_bytes; raw: launches of RawKernel alone; bytes: of device memory that
    launches read or wrote, each array of a launch once.
    """

    __slots__ = (
        *("launches", "raw", "bytes", "_syncs", "h2d_bytes", "d2h_bytes"),
        *("syncs_allowed", "_reading"),
    )

    def __init__(self) -> None:
        self.syncs_allowed = True
        self._reading: list[tuple[np.ndarray, bytes]] = []
        self.reset()

    def reset(self) -> None:
        """Sets all to zero."""
        self.launches = self.raw = self.bytes = self._syncs = self.h2d_bytes = self.d2h_bytes = 0

    @property
    def syncs(self) -> int:
        """How often the host waited for the device."""
        return self._syncs

    @syncs.setter
    def syncs(self, n: int) -> None:
        if n > self._syncs and not self.syncs_allowed:
            raise DeviceSynchronized("Device-to-host synchronization is disallowed here")
        reading, self._reading = (self._reading, []) if n > self._syncs else ([], self._reading)
        self._syncs = n
        if any(array.tobytes() != then for array, then in reading):
            raise UndefinedOnDevice(
                "pinned memory was written to while a copy to the device could still read it; wait for it"
            )

    def reads(self, array: np.ndarray) -> None:
        """Notes that the device may read `array`, in pinned memory, until the host waits for it."""
        self._reading.append((array, array.tobytes()))

    def moved(self, arrays: Any) -> None:
        """Nothing; adds the bytes of the NumPy arrays among `arrays`, each once, no repeated elements."""
        for a in {id(a): a for a in arrays if isinstance(a, np.ndarray)}.values():
            n = a.itemsize
            for size, stride in zip(a.shape, a.strides, strict=True):
                n *= size if stride else min(size, 1)
            self.bytes += n

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return {n: getattr(self, n) for n in ("launches", "raw", "syncs", "h2d_bytes", "d2h_bytes")}


SETTINGS = Settings()


def _after_fork() -> None:
    SETTINGS.lost = SETTINGS.used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
HERE = Here()
COUNT = Counters()


def arrival(n: int) -> Any:
    """int [n]: the order in which n atomic operations happen, which is that of the threads (`Settings`)."""
    if SETTINGS.order == "random":
        return np.random.default_rng(SETTINGS.seed + COUNT.launches).permutation(n)
    return np.arange(n)[:: -1 if SETTINGS.order == "reverse" else 1]
