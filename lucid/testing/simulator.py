"""The simulated CUDA device: the whole CUDA path of lucid on a machine without a GPU.

Device "cuda" is then served by a strict stand-in for CuPy (`lucid.testing.strictcupy`), and every CUDA
kernel, lucid's or your own, is compiled with g++ and executed on the CPU (`lucid.testing.cusim`). What a
kernel computes and which accesses it makes are the real thing; time is not: no figure of a simulated run says
anything about a GPU. The device calls itself "simulated CUDA device (CPU)".

    LUCID_CUDA=sim python train.py          a whole program (LUCID_CUDA_SIM_DEVICES=2: with two devices)
    pytest --device cpu,cuda-sim            tests that take the `device` fixture (lucid.testing.plugin)

>>> from lucid.testing import simulator
>>> simulator.start() is None                                   # doctest: +SKIP
True
>>> x = lucid.ones(3, device="cuda")                            # doctest: +SKIP

A kernel of your own, made by `lucid.cuda.kernel`, is checked with `check_kernel`: against its reference in
float64 in four orders of threads and blocks, and once with every access watched (races, bounds, alignment,
uninitialised shared memory).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..storage import deferred
from ..storage.backend import Backend
from ..storage.device import Device
from . import cusim, strictcupy

VARIABLE = "LUCID_CUDA"
# Orders of threads and blocks in which a kernel must give the same result: (order, seed).
ORDERS = (("forward", 0), ("reverse", 0), ("random", 1), ("random", 2))


def start(devices: int | None = None) -> str | None:
    """None when device "cuda" is the simulated one from now on (in this process and its children), else the
    reason why it cannot be. devices: how many there are; None: as LUCID_CUDA_SIM_DEVICES says, or one.

    To be called before anything imports CuPy. Without g++ everything but kernels runs: see `kernels`.
    """
    if devices is not None:
        os.environ["LUCID_CUDA_SIM_DEVICES"] = str(devices)
        strictcupy.configure(devices=devices)
    if is_on():
        return None
    real = sys.modules.get("cupy")
    if real is not None and not strictcupy.installed():
        return (
            f"CuPy {getattr(real, '__version__', '')} is already imported in this process; start the "
            "simulator before "
            f"anything imports CuPy, or set {VARIABLE}=sim in the environment"
        )
    try:
        strictcupy.install()
    except Exception as error:
        return f"the stand-in for CuPy cannot be installed: {type(error).__name__}: {error}"
    os.environ[VARIABLE] = "sim"
    # Whoever simulates looks for errors: checks of indices raise at the line that made them (`counted` puts
    # them off, as a GPU does).
    if "LUCID_CUDA_BLOCKING" not in os.environ:
        deferred.blocking(True)
    return None


def asked_for() -> bool:
    """Whether the environment asks for the simulated device (LUCID_CUDA=sim)."""
    return os.environ.get(VARIABLE, "").lower() == "sim"


def is_on() -> bool:
    """Whether device "cuda" is the simulated one."""
    return strictcupy.installed() and asked_for()


def kernels() -> str | None:
    """None when CUDA kernels can run here, else why not (no compiler)."""
    found, reason = cusim.available()
    return None if found else reason


def counters() -> dict[str, int]:
    """What the device was asked to do since the last `reset_counters`.

    launches: operations of the array module and kernels; raw: kernels of our own alone; syncs: how often the
    host waited; h2d_bytes, d2h_bytes: what was copied to and from the device.
    """
    return strictcupy.counters()


def reset_counters() -> None:
    """Nothing; all counters are 0 again."""
    strictcupy.reset_counters()


@contextmanager
def counted(moved: bool = False) -> Iterator[dict[str, int]]:
    """A dictionary that holds, after the `with` block, what the block asked of the device. Within it checks
    of indices do not wait. moved: also "bytes", the device memory that launches read or wrote, each array of
    a launch once.

    >>> with counted() as counts:
    ...     pass
    >>> counts["syncs"], counts["d2h_bytes"]
    (0, 0)
    """
    counts: dict[str, int] = {}
    before, waited, start = counters(), deferred.blocking(), strictcupy.COUNT.bytes
    deferred.blocking(False)
    try:
        yield counts
    finally:
        deferred.blocking(waited)
        counts.update({name: n - before[name] for name, n in counters().items()})
        if moved:
            counts["bytes"] = strictcupy.COUNT.bytes - start


def configured(**settings: Any) -> Any:
    """A context in which kernels run in another way: mode="fast" or "checked", order="forward", "reverse" or
    "random", seed, coverage. devices: how many there are, for whoever has opened none yet (`devices` is for
    others).
    """
    return strictcupy.configured(**settings)


def device_count() -> int:
    """The number of simulated devices: LUCID_CUDA_SIM_DEVICES, 1 unless set."""
    return strictcupy.device_count()


@contextmanager
def devices(count: int) -> Iterator[None]:
    """A context with another number of simulated devices. They do not reach each other's memory: an operation
    on an array of another device than the current one raises, as CuPy does without peer access.
    """
    before = Backend.several
    try:
        with configured(devices=count):
            # Whoever remembers a backend (a cached constant, a generator) shall meet the same one again.
            Backend._all.update({d: b for d, b in _parked.items() if (d.index or 0) < count})
            _several(count > 1)
            yield
    finally:
        for place in [d for d in Backend._all if d.type == "cuda" and (d.index or 0) >= device_count()]:
            _parked[place] = Backend._all.pop(place)
        _several(before)


_parked: dict[Device, Backend] = {}


def _several(several: bool) -> None:
    Backend.several = several
    for backend in Backend.instances():
        if backend.device.type == "cuda":
            backend.several_changed()  # type: ignore[attr-defined]


def check_kernel(kernel: Any, *args: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Nothing; raises when a kernel made by `lucid.cuda.kernel` is wrong on these arguments.

    args: as in a call of the kernel, with tensors on the simulated device. Four orders of threads must give
    the same bits, and what `reference` gives in float64 within rtol and atol (no reference: the orders only).
    Before that a run with every access watched must find nothing: it names kernel, file and line.

    Raises KernelError or AssertionError.
    """
    if not is_on():
        raise RuntimeError(
            f"check_kernel runs on the simulator; call simulator.start(), or set {VARIABLE}=sim"
        )
    with configured(mode="checked", order="random", seed=3):
        _outputs(kernel, args)
    runs = []
    for order, seed in ORDERS:
        with configured(mode="fast", order=order, seed=seed):
            runs.append([_host(out) for out in _outputs(kernel, args)])
    for (order, seed), run in zip(ORDERS, runs, strict=True):
        for name, first, now in zip(kernel.op.outputs, runs[0], run, strict=True):
            assert first.tobytes() == now.tobytes(), (
                f"{kernel.name}: {name} depends on the order of threads ({ORDERS[0][0]} against {order}, "
                f"seed {seed}): a race"
            )
    if kernel.reference is not None:
        wide = [_wide(a) for a in args]
        expected = kernel.reference(np, *wide)
        for name, got, want in zip(
            kernel.op.outputs, runs[0], expected if isinstance(expected, tuple) else (expected,), strict=True
        ):
            np.testing.assert_allclose(
                got.astype(np.asarray(want).dtype),
                want,
                rtol=rtol,
                atol=atol,
                err_msg=f"{kernel.name}: {name} against reference",
            )


def _outputs(kernel: Any, args: Any) -> tuple[Any, ...]:
    out = kernel(*args)
    return out if isinstance(out, tuple) else (out,)


def _host(tensor: Any) -> Any:
    return np.asarray(tensor.detach().cpu().numpy())


def _wide(a: Any) -> Any:
    if not hasattr(a, "storage"):
        return a
    host = _host(a)
    return host.astype(np.float64) if a.is_floating_point() else host
