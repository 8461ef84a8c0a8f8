"""The accelerator of this machine under PyTorch's device-neutral names: CUDA where there is a device, else
none.

>>> import lucid.accelerator as accelerator
>>> device = accelerator.current_accelerator() if accelerator.is_available() else "cpu"
"""

from __future__ import annotations

from . import cuda
from .cuda import current_stream as current_stream
from .cuda import device as device_index  # noqa: F401  (exported)
from .cuda import empty_cache as empty_cache
from .cuda import get_device_capability as get_device_capability
from .cuda import max_memory_allocated as max_memory_allocated
from .cuda import mem_get_info as get_memory_info  # noqa: F401  (exported)
from .cuda import memory_allocated as memory_allocated
from .cuda import memory_reserved as memory_reserved
from .cuda import memory_stats as memory_stats
from .cuda import reset_peak_memory_stats as reset_peak_memory_stats
from .cuda import set_stream as set_stream
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


current_device_idx, set_device_idx = current_device_index, set_device_index
