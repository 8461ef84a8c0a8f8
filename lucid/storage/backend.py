"""What a device offers: its array module, its raw ops, generators, transfers and memory figures."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from ..errors import DeviceError
from .device import Device, default_device

_factories: list[Callable[[Backend], Any]] = []
_lock = threading.RLock()
_NO_GUARD = contextlib.nullcontext()


def on_new_backend(factory: Callable[[Backend], Any]) -> None:
    """Nothing; `factory(backend)` makes the raw namespace `F` of every backend, present and future."""
    _factories[:] = [factory]
    for backend in Backend.instances():
        backend.F = factory(backend)


class Backend:
    """One device's arrays. `xp` is its array module, `F` the raw ops bound to it.

    several: whether this process sees more than one CUDA device. What calculates with raw arrays itself
    (operators, methods of arrays) then has to do so within `guard()`; functions of `xp` and `F` make their
    device current themselves. bare: the array module as it is, for what runs within a guard anyway.
    """

    name: ClassVar[str] = "abstract"
    several: ClassVar[bool] = False
    # Whether the sources of kernels/ run on this device.
    runs_kernels: ClassVar[bool] = False
    _all: ClassVar[dict[Device, Backend]] = {}

    xp: Any
    bare: Any
    ndarray: type[Any]
    device: Device
    F: Any

    def __init__(self, device: Device) -> None:
        self.device = device
        self.F = _factories[0](self) if _factories else None

    @classmethod
    def instances(cls) -> list[Backend]:
        """Every backend made so far."""
        return list(cls._all.values())

    def __repr__(self) -> str:
        return f"<backend {self.device}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return backend_of, (self.device,)

    # ---- what a device must offer ----

    def asarray(self, value: Any, dtype: Any = None) -> Any:
        """`value` as an array of this device, without a copy where possible."""
        raise NotImplementedError

    def from_numpy(self, array: Any, non_blocking: bool = False) -> Any:
        """A copy on this device of a NumPy array (on the CPU: the array itself)."""
        raise NotImplementedError

    def to_numpy(self, array: Any, non_blocking: bool = False) -> Any:
        """The array in host memory, as a NumPy array (on the CPU: the array itself)."""
        raise NotImplementedError

    def item(self, array: Any) -> Any:
        """The only element of an array as a Python number; waits for the device."""
        return array.item()

    def pin(self, array: Any) -> Any:
        """A NumPy array in page-locked memory, from which this device copies fastest (on the
        CPU: the array itself).
        """
        return array

    def is_pinned(self, array: Any) -> bool:
        """Whether a NumPy array lies in such memory."""
        return False

    def synchronize(self) -> None:
        """Nothing; returns when all work queued on the device has finished."""

    def guard(self) -> Any:
        """A context in which this device is the current one."""
        return _NO_GUARD

    def quiet(self) -> Any:
        """A context in which the array module prints no floating-point warnings (a gradient
        at a kink may well be inf).
        """
        return contextlib.nullcontext()

    def quietly(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What `function(*args, **kwargs)` returns, without the array module's floating-point warnings."""
        return function(*args, **kwargs)

    def scipy(self, part: str) -> Any:
        """The scipy module `part` ("special", "linalg") for this device's arrays."""
        raise NotImplementedError

    def memory(self) -> dict[str, int]:
        """Memory figures in bytes: allocated, peak, reserved, limit (those that are known)."""
        return {}


def device_of(array: Any) -> Device:
    """The device of a raw array (or a NumPy scalar)."""
    # CuPy's arrays have a Device there, with an `id`; NumPy's the text "cpu".
    index = getattr(getattr(array, "device", None), "id", None)
    return Device("cpu") if index is None else Device("cuda", int(index))


def special(xp: Any) -> Any:
    """scipy.special or cupyx.scipy.special, whichever works on the arrays of `xp`."""
    return _scipy(xp, "special")


def scipy_linalg(xp: Any) -> Any:
    """scipy.linalg or cupyx.scipy.linalg, whichever works on the arrays of `xp`."""
    return _scipy(xp, "linalg")


def _scipy(xp: Any, part: str) -> Any:
    name = "scipy" if xp.__name__ == "numpy" else "cupyx.scipy"
    return importlib.import_module(f"{name}.{part}")


def backend_of(device: Device | str | None = None) -> Backend:
    """The backend of a device; the default device's when None.

    Raises DeviceError with the cure when the device is not there.
    """
    device = default_device() if device is None else device if type(device) is Device else Device(device)
    found = Backend._all.get(device)
    if found is not None:
        return found
    with _lock:
        if device.type == "cpu":
            from .numpy_backend import NumpyBackend

            return Backend._all.setdefault(Device("cpu"), NumpyBackend(Device("cpu")))
        return _open_cuda(device)


def _open_cuda(device: Device) -> Backend:
    try:
        from . import cupy_backend
    except ImportError as error:
        raise DeviceError(
            f"device {device}: CuPy cannot be imported ({error}); install it with pip install "
            "'lucid-autograd[cuda13]' (driver for CUDA 12: [cuda12]), or use device 'cpu'"
        ) from error
    return cupy_backend.open_backend(device)
