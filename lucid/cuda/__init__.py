"""CUDA devices: `lucid.cuda`, with PyTorch's names.

Importing this module imports no CuPy: the device is opened at its first use. Without one `is_available()` is
False, and what needs a device raises DeviceError with the cure.

>>> import lucid
>>> device = "cuda" if lucid.cuda.is_available() else "cpu"
"""

from __future__ import annotations

import functools as _functools
import importlib as _importlib
from typing import Any as _Any

from ..errors import OutOfMemoryError as OutOfMemoryError
from ._device import DeviceProperties as DeviceProperties
from ._device import can_device_access_peer as can_device_access_peer
from ._device import current_device as current_device
from ._device import device as device
from ._device import device_count as device_count
from ._device import device_of as device_of
from ._device import get_arch_list as get_arch_list
from ._device import get_device_capability as get_device_capability
from ._device import get_device_name as get_device_name
from ._device import get_device_properties as get_device_properties
from ._device import get_rng_state as get_rng_state
from ._device import get_rng_state_all as get_rng_state_all
from ._device import init as init
from ._device import initial_seed as initial_seed
from ._device import ipc_collect as ipc_collect
from ._device import is_available as is_available
from ._device import is_bf16_supported as is_bf16_supported
from ._device import is_initialized as is_initialized
from ._device import is_simulated as is_simulated
from ._device import manual_seed as manual_seed
from ._device import manual_seed_all as manual_seed_all
from ._device import seed as seed
from ._device import seed_all as seed_all
from ._device import set_device as set_device
from ._device import set_rng_state as set_rng_state
from ._device import set_rng_state_all as set_rng_state_all
from ._device import synchronize as synchronize
from ._kernel import Kernel as Kernel
from ._kernel import kernel as kernel
from ._memory import empty_cache as empty_cache
from ._memory import max_memory_allocated as max_memory_allocated
from ._memory import mem_get_info as mem_get_info
from ._memory import memory_allocated as memory_allocated
from ._memory import memory_reserved as memory_reserved
from ._memory import memory_stats as memory_stats
from ._memory import memory_summary as memory_summary
from ._memory import reset_peak_memory_stats as reset_peak_memory_stats
from ._memory import set_per_process_memory_fraction as set_per_process_memory_fraction
from ._stream import Event as Event
from ._stream import ExternalStream as ExternalStream
from ._stream import Stream as Stream
from ._stream import current_stream as current_stream
from ._stream import default_stream as default_stream
from ._stream import set_stream as set_stream
from ._stream import stream as stream

# PyTorch's older names.
memory_cached = memory_reserved
reset_max_memory_allocated = reset_peak_memory_stats
_TYPES = ("FloatTensor", "DoubleTensor", "HalfTensor", "LongTensor", "IntTensor")


def __getattr__(name: str) -> _Any:
    """`lucid.cuda.amp` is `lucid.amp`; `lucid.cuda.FloatTensor` makes a FloatTensor on the current device."""
    if name == "amp":
        return _importlib.import_module("lucid.amp")
    if name in _TYPES:
        made = _functools.partial(getattr(_importlib.import_module("lucid"), name), device="cuda")
        made.__name__, made.prefix = name, "cuda."  # type: ignore[attr-defined]
        return made
    raise AttributeError(f"module 'lucid.cuda' has no attribute {name!r}")
