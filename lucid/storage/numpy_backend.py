"""The CPU: NumPy arrays, scipy, and freed blocks that stay in the process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextvars import Context
from typing import Any, ClassVar

import numpy as np

from .backend import Backend
from .device import Device
from .process import collect_rarely, keep_freed_blocks, sleep_after_products


def _quiet_context() -> Context:
    context = Context()
    context.run(np.seterr, all="ignore")
    return context


def is_busy(error: BaseException) -> bool:
    """Whether `error` says that another thread is inside the context of `NumpyBackend.run`."""
    return type(error) is RuntimeError and str(error).startswith("cannot enter context")


class NumpyBackend(Backend):
    """NumPy on the CPU.

    run(function, ...): the call in a context of its own where NumPy's floating-point warnings are off, as
    PyTorch has none; the caller's `np.seterr` stays as it is and is not asked. NumPy keeps that setting in a
    context variable, so entering a prepared context takes 30 ns where `np.errstate` takes 1100 (a 4-element
    `np.add` itself: 300). One thread at a time can be in a context: a second one gets an error before
    `function` runs, see `is_busy` and `quietly`.
    """

    name: ClassVar[str] = "cpu"
    xp = bare = np
    ndarray = np.ndarray

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.run = _quiet_context().run
        self.keeps_blocks = keep_freed_blocks()
        self.sleeps_after_products = sleep_after_products()
        self.collects_rarely = collect_rarely()

    def asarray(self, value: Any, dtype: Any = None) -> Any:
        return np.asarray(value, dtype)

    def from_numpy(self, array: Any, non_blocking: bool = False) -> Any:
        return array

    def to_numpy(self, array: Any, non_blocking: bool = False) -> Any:
        return array

    def quiet(self) -> Any:
        return np.errstate(all="ignore")

    def quietly(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return self.run(function, *args, **kwargs)
        except RuntimeError as error:
            if not is_busy(error):
                raise
        return _quiet_context().run(function, *args, **kwargs)

    def scipy(self, part: str) -> Any:
        return importlib.import_module(f"scipy.{part}")

    def memory(self) -> dict[str, int]:
        import resource

        # ru_maxrss is in KB on Linux and in bytes on macOS (getrusage(2)).
        unit = 1 if sys.platform == "darwin" else 1024
        return {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
