"""Which CUDA devices there are, and which one is current."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import DeviceError
from ..storage.backend import Backend, backend_of
from ..storage.device import Device
from ..storage.random import checked_seed as _checked_seed
from ..storage.random import default_generator


def backend(place: Any = None) -> Any:
    """The backend of a CUDA device: an index, a name, a Device, or the current one when None. Raises
    DeviceError with the cure.
    """
    found = Device("cuda") if place is None else Device(place)
    if found.type != "cuda":
        raise DeviceError(f"cuda: expected a CUDA device, got {found}")
    return backend_of(found)


def is_available() -> bool:
    """Whether a CUDA device can be used here.

    Driver, GPU, CuPy and NVRTC are there, or LUCID_CUDA=sim simulates one. `lucid.tensor(0., device="cuda")`
    raises an error that says what is missing.

    >>> import lucid
    >>> device = "cuda" if lucid.cuda.is_available() else "cpu"
    """
    try:
        backend()
    except DeviceError:
        return False
    return True


def is_simulated() -> bool:
    """Whether device "cuda" is the simulated one (LUCID_CUDA=sim).

    It gives right values, and no figure that says anything about a GPU.

    >>> import lucid
    >>> figures_mean_something = lucid.cuda.is_available() and not lucid.cuda.is_simulated()
    """
    return os.environ.get("LUCID_CUDA", "").lower() == "sim"


def device_count() -> int:
    """The number of CUDA devices, 0 when none can be used.

    >>> import lucid
    >>> (lucid.cuda.device_count() > 0) == lucid.cuda.is_available()
    True
    """
    return int(backend().xp.cuda.runtime.getDeviceCount()) if is_available() else 0


def current_device() -> int:
    """The index of this thread's current device. Raises DeviceError without a device.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     index = lucid.cuda.current_device()
    """
    return int(backend().index)


def set_device(device: Any) -> None:
    """Nothing; `device` is this thread's current one, which "cuda" without an index names.

    Raises DeviceError for a device that is not there.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     lucid.cuda.set_device(0)
    """
    chosen = backend(device)
    chosen.xp.cuda.Device(chosen.index).use()


class device:
    """A context in which a device is the current one; None changes nothing.

    >>> import lucid
    >>> with lucid.cuda.device(0):                              # doctest: +SKIP
    ...     x = lucid.ones(3, device="cuda")
    """

    def __init__(self, device: Any = None) -> None:
        self._guard = None if device is None else backend(device).guard()

    def __enter__(self) -> device:
        if self._guard is not None:
            self._guard.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._guard is not None:
            self._guard.__exit__(*error)


class device_of(device):
    """A context in which the device of a tensor is the current one; a CPU tensor changes nothing.

    >>> import lucid
    >>> with lucid.cuda.device_of(lucid.zeros(2)):
    ...     pass
    """

    def __init__(self, x: Any) -> None:
        super().__init__(x.device if x.device.type == "cuda" else None)


@dataclass(frozen=True)
class DeviceProperties:
    """What the driver says about a device. Sizes in bytes. Made by `get_device_properties`.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     gigabytes = lucid.cuda.get_device_properties().total_memory / 1e9
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    regs_per_multiprocessor: int
    L2_cache_size: int


# Our name -> field of cudaDeviceProp.
_FIELDS = {
    "name": "name",
    "major": "major",
    "minor": "minor",
    "total_memory": "totalGlobalMem",
    "multi_processor_count": "multiProcessorCount",
    "warp_size": "warpSize",
    "max_threads_per_block": "maxThreadsPerBlock",
    "max_threads_per_multi_processor": "maxThreadsPerMultiProcessor",
    "shared_memory_per_block": "sharedMemPerBlock",
    "shared_memory_per_block_optin": "sharedMemPerBlockOptin",
    "regs_per_multiprocessor": "regsPerMultiprocessor",
    "L2_cache_size": "l2CacheSize",
}


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, compute capability, memory, multiprocessors, ... of a device.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     processors = lucid.cuda.get_device_properties().multi_processor_count
    """
    found = backend(device).properties()
    return DeviceProperties(**{ours: found.get(theirs, 0) for ours, theirs in _FIELDS.items()})


def get_device_name(device: Any = None) -> str:
    """The name of a device ("NVIDIA H200"); the simulated one calls itself "simulated CUDA device (CPU)".

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     name = lucid.cuda.get_device_name()
    """
    return str(backend(device).properties()["name"])


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability (major, minor).

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     major, minor = lucid.cuda.get_device_capability()
    """
    found = backend(device).properties()
    return int(found["major"]), int(found["minor"])


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 runs on the current device.

    Natively from compute capability 8.0 on, else (emulated) slowly.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     dtype = lucid.bfloat16 if lucid.cuda.is_bf16_supported(False) else lucid.float16
    """
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one device reads the memory of another directly; copies between others go through the host.

    >>> import lucid
    >>> if lucid.cuda.device_count() > 1:
    ...     direct = lucid.cuda.can_device_access_peer(0, 1)
    """
    one, other = backend(device), backend(peer_device)
    return bool(one.xp.cuda.runtime.deviceCanAccessPeer(one.index, other.index))


def synchronize(device: Any = None) -> None:
    """Nothing; returns when all work queued on the device has finished.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     lucid.cuda.synchronize()
    """
    backend(device).synchronize()


def manual_seed(seed: int) -> None:
    """Nothing; the current device's default generator starts at the stream of `seed`.

    Without a device it does nothing but check the seed.

    >>> import lucid
    >>> lucid.cuda.manual_seed(7)
    """
    _checked_seed(seed)
    if is_available():
        default_generator(backend()).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Nothing; the default generators of all CUDA devices start at the stream of `seed`.

    `lucid.manual_seed` seeds the CPU too.

    >>> import lucid
    >>> lucid.cuda.manual_seed_all(7)
    """
    _checked_seed(seed)
    for index in range(device_count()):
        default_generator(backend(index)).manual_seed(seed)


def get_rng_state(device: Any = None) -> tuple[int, int]:
    """(seed, offset) of a device's default generator.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     seed, offset = lucid.cuda.get_rng_state()
    """
    return default_generator(backend(device)).get_state()


def set_rng_state(state: tuple[int, int], device: Any = None) -> None:
    """Nothing; a device's default generator goes on from `state`.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     lucid.cuda.set_rng_state(lucid.cuda.get_rng_state())
    """
    default_generator(backend(device)).set_state(state)


def initial_seed() -> int:
    """The seed of the current device's default generator.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     seed = lucid.cuda.initial_seed()
    """
    return default_generator(backend()).initial_seed()


def get_rng_state_all() -> list[tuple[int, int]]:
    """(seed, offset) of every device's default generator.

    >>> import lucid
    >>> states = lucid.cuda.get_rng_state_all()
    """
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Iterable[tuple[int, int]]) -> None:
    """Nothing; every device's default generator goes on from its state.

    >>> import lucid
    >>> lucid.cuda.set_rng_state_all(lucid.cuda.get_rng_state_all())
    """
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def seed() -> None:
    """Nothing; the current device's default generator starts anew, at a seed of the system's.

    >>> import lucid
    >>> lucid.cuda.seed()
    """
    manual_seed(secrets.randbits(63))


def seed_all() -> None:
    """Nothing; the default generators of all devices start anew, at one seed of the system's.

    >>> import lucid
    >>> lucid.cuda.seed_all()
    """
    manual_seed_all(secrets.randbits(63))


def init() -> None:
    """Nothing; opens the current device. Raises DeviceError with the cure where there is none.

    >>> import lucid
    >>> if lucid.cuda.is_available():
    ...     lucid.cuda.init()
    """
    backend()


def is_initialized() -> bool:
    """Whether a CUDA device has been opened in this process.

    >>> import lucid
    >>> opened = lucid.cuda.is_initialized()
    """
    return any(b.name == "cuda" for b in Backend.instances())


def get_arch_list() -> list[str]:
    """The architectures that kernels are compiled for, at run time: those of the devices here.

    >>> import lucid
    >>> lucid.cuda.get_arch_list()                                  # doctest: +SKIP
    ['sm_90']
    """
    return sorted({"sm_{}{}".format(*get_device_capability(i)) for i in range(device_count())})


def ipc_collect() -> None:
    """Nothing: CUDA memory is not shared between processes.

    >>> import lucid
    >>> lucid.cuda.ipc_collect()
    """
