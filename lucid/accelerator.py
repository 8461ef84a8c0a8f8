"""The accelerator of this machine under PyTorch's device-neutral names: CUDA where there is a device, else
none.

>>> import lucid.accelerator as accelerator
>>> device = accelerator.current_accelerator() if accelerator.is_available() else "cpu"
"""

from __future__ import annotations

from . import cuda
from .storage.device import Device


def is_available() -> bool:
    """Whether there is a CUDA device.

    >>> import lucid
    >>> lucid.accelerator.is_available() == lucid.cuda.is_available()
    True
    """
    return cuda.is_available()


def current_accelerator(check_available: bool = False) -> Device | None:
    """Device("cuda"), or None where there is none.

    >>> import lucid
    >>> lucid.accelerator.current_accelerator() in (None, lucid.device("cuda"))
    True
    """
    return Device("cuda") if cuda.is_available() else None


def device_count() -> int:
    """The number of CUDA devices; 0 where there is none.

    >>> import lucid
    >>> lucid.accelerator.device_count() >= 0
    True
    """
    return cuda.device_count() if cuda.is_available() else 0


def current_device_index() -> int:
    """The number of the current CUDA device. Raises DeviceError where there is none.

    >>> import lucid
    >>> if lucid.accelerator.is_available():
    ...     index = lucid.accelerator.current_device_index()
    """
    return cuda.current_device()


def set_device_index(device: int) -> None:
    """Nothing; the CUDA device of that number is the current one. Raises DeviceError where there is none.

    >>> import lucid
    >>> if lucid.accelerator.is_available():
    ...     lucid.accelerator.set_device_index(0)
    """
    cuda.set_device(device)


def synchronize(device: Device | str | int | None = None) -> None:
    """Nothing; returns when all work queued on the device has finished.

    >>> import lucid
    >>> if lucid.accelerator.is_available():
    ...     lucid.accelerator.synchronize()
    """
    cuda.synchronize(device)
