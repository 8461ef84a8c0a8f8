"""A strict stand-in for CuPy on a machine without a GPU.  See README.md.

>>> import numpy
>>> from lucid.testing import strictcupy
>>> cp = strictcupy.install()
>>> x = cp.arange(3, dtype=cp.float32)
>>> float((x * 2).sum())
6.0
>>> x + numpy.ones(3)
Traceback (most recent call last):
TypeError: Unsupported type <class 'numpy.ndarray'>
>>> strictcupy.uninstall()
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from .memory import CURRENT, OutOfMemoryError, RedzoneError
from .namespace import TREE, cupy
from .state import COUNT, SETTINGS, NotInStandin, UndefinedOnDevice


def install() -> Any:
    """The stand-in, registered as `cupy` (and `cupyx`) in sys.modules; an installed CuPy is hidden."""
    present = sys.modules.get("cupy")
    if present is not None and present is not cupy:
        raise RuntimeError(
            "strictcupy.install(): the real cupy is already imported; install the stand-in first"
        )
    sys.modules.update(TREE)
    return cupy


def uninstall() -> None:
    """Takes the stand-in out of sys.modules."""
    for name, module in TREE.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


def installed() -> bool:
    """Whether `import cupy` gives the stand-in."""
    return sys.modules.get("cupy") is cupy


def configure(
    *,
    mode: str | None = None,
    order: str | None = None,
    seed: int | None = None,
    coverage: bool | None = None,
    devices: int | None = None,
) -> None:
    """Sets how kernels run: mode fast or checked, order forward, reverse or random, seed, line coverage; and
    the number of devices.
    """
    for name, value, allowed in (
        ("mode", mode, ("fast", "checked")),
        ("order", order, ("forward", "reverse", "random")),
    ):
        if value is not None and value not in allowed:
            raise ValueError(f"strictcupy.configure: {name} must be one of {allowed}, got {value!r}")
    given = {"mode": mode, "order": order, "seed": seed, "coverage": coverage, "devices": devices}
    vars(SETTINGS).update({name: value for name, value in given.items() if value is not None})


@contextlib.contextmanager
def configured(**kw: Any) -> Iterator[None]:
    """`configure` for the length of a with block."""
    before = dict(vars(SETTINGS))
    try:
        configure(**kw)
        yield
    finally:
        vars(SETTINGS).update(before)


def device_count() -> int:
    """The number of devices."""
    return SETTINGS.devices


def counters() -> dict[str, int]:
    """launches (raw: of RawKernel alone), syncs, h2d_bytes and d2h_bytes since the last reset."""
    return COUNT.as_dict()


def reset_counters() -> None:
    """Sets the counters to zero."""
    COUNT.reset()


def peak_bytes() -> int:
    """The most bytes of device memory in use at once since the last reset."""
    return CURRENT.pool.peak


def reset_peak() -> None:
    """Starts the peak at what is in use now."""
    CURRENT.pool.peak = CURRENT.pool.used_bytes()


__all__ = [
    "NotInStandin",
    "OutOfMemoryError",
    "RedzoneError",
    "UndefinedOnDevice",
    "configure",
    "configured",
    "counters",
    "install",
    "installed",
    "peak_bytes",
    "reset_counters",
    "reset_peak",
    "uninstall",
]
