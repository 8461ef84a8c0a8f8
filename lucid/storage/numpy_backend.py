"""The CPU: NumPy arrays, scipy, and freed blocks that stay in the process."""

from __future__ import annotations

import importlib
import sys
from typing import Any, ClassVar

import numpy as np

from .backend import Backend
from .device import Device
from .process import collect_rarely, keep_freed_blocks


class NumpyBackend(Backend):
    """NumPy on the CPU."""

    name: ClassVar[str] = "cpu"
    xp = np
    ndarray = np.ndarray

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.keeps_blocks = keep_freed_blocks()
        self.collects_rarely = collect_rarely()

    def asarray(self, value: Any, dtype: Any = None) -> Any:
        return np.asarray(value, dtype)

    def from_numpy(self, array: Any, non_blocking: bool = False) -> Any:
        return array

    def to_numpy(self, array: Any, non_blocking: bool = False) -> Any:
        return array

    def quiet(self) -> Any:
        return np.errstate(all="ignore")

    def scipy(self, part: str) -> Any:
        return importlib.import_module(f"scipy.{part}")

    def memory(self) -> dict[str, int]:
        import resource

        # ru_maxrss is in KB on Linux and in bytes on macOS (getrusage(2)).
        unit = 1 if sys.platform == "darwin" else 1024
        return {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
