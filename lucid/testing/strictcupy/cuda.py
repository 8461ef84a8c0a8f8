"""`cupy.cuda`: Device, Stream, Event, the runtime's queries, pinned memory.

There are as many devices as LUCID_CUDA_SIM_DEVICES says (one unless set), without access to each other's
memory, and nothing is asynchronous.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import memory
from .cublaslt import LIBRARY
from .memory import CURRENT, DEFAULT_POOL, TOTAL_MEMORY
from .state import COUNT, HERE, SETTINGS, NotInStandin

DEVICE_NAME = "simulated CUDA device (CPU)"
COMPUTE_CAPABILITY = "90"
CUDA_VERSION = 13000


class CUDARuntimeError(RuntimeError):
    """An error of the CUDA runtime, with its number in `status`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class CUDADriverError(RuntimeError):
    """An error of the CUDA driver, with its number in `status`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _check_device(n: int) -> None:
    if not 0 <= n < SETTINGS.devices:
        raise CUDARuntimeError(101, "cudaErrorInvalidDevice: invalid device ordinal")


def synchronize() -> None:
    """Counts a synchronisation and looks at the redzones of all live arrays."""
    COUNT.syncs += 1
    CURRENT.pool.check_redzones()


class _Stack(threading.local):
    """The devices that were current outside `with` blocks of this thread."""

    def __init__(self) -> None:
        self.devices: list[int] = []


_stack = _Stack()


def _set_device(n: int) -> None:
    _check_device(n)
    HERE.device = int(n)


class Device:
    """A simulated device."""

    __slots__ = ("id",)

    def __init__(self, device: Any = None) -> None:
        self.id = HERE.device if device is None else int(device)

    def __int__(self) -> int:
        return self.id

    def __enter__(self) -> Device:
        _check_device(self.id)
        _stack.devices.append(HERE.device)
        HERE.device = self.id
        return self

    def __exit__(self, *exc: Any) -> None:
        HERE.device = _stack.devices.pop()

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __lt__(self, other: Device) -> bool:
        return self.id < other.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def use(self) -> Device:
        """Makes this the current device."""
        _set_device(self.id)
        return self

    def synchronize(self) -> None:
        """Waits for all streams."""
        _check_device(self.id)
        synchronize()

    @property
    def compute_capability(self) -> str:
        """ "90": what kernels see as __CUDA_ARCH__ 900."""
        _check_device(self.id)
        return COMPUTE_CAPABILITY

    @property
    def mem_info(self) -> tuple[int, int]:
        """(free, total) bytes."""
        with self:
            return TOTAL_MEMORY - CURRENT.pool.total_bytes(), TOTAL_MEMORY

    @property
    def attributes(self) -> dict[str, int]:
        """A few attributes of the device."""
        return {
            "MultiProcessorCount": 132,
            "MaxThreadsPerBlock": 1024,
            "WarpSize": 32,
            "MaxSharedMemoryPerBlock": 49152,
            "MaxSharedMemoryPerBlockOptin": 232448,
            "MaxRegistersPerBlock": 65536,
        }

    @property
    def pci_bus_id(self) -> str:
        """An invented address."""
        return f"0000:{self.id:02x}:00.0"


_stream_numbers = itertools.count(16)


class _Streams(threading.local):
    """This thread's current stream of each device, and those that were current outside `with` blocks."""

    def __init__(self) -> None:
        self.current: dict[int, Stream] = {}
        self.stack: list[tuple[int, Stream]] = []


_streams = _Streams()


def _match(stream: Stream) -> int:
    """The current device; raises when the stream belongs to another."""
    if stream.device_id not in (-1, HERE.device):
        raise RuntimeError(
            f"The device that the stream is created on ({stream.device_id}) does not match with the current "
            f"device ({HERE.device})"
        )
    return HERE.device


class Stream:
    """A queue of work; here everything has ended when the call returns."""

    null: Stream
    ptds: Stream

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None
    ) -> None:
        self.ptr = 0 if null else 2 if ptds else next(_stream_numbers)
        self.is_non_blocking, self.priority = non_blocking, priority or 0
        self.device_id = -1 if null or ptds else HERE.device
        self.done = True
        self.waited: list[Event] = []  # CuPy has no such list: the events that its work waits for

    def __enter__(self) -> Stream:
        index = _match(self)
        _streams.stack.append((index, get_current_stream(index)))
        _streams.current[index] = self
        return self

    def __exit__(self, *exc: Any) -> None:
        index, before = _streams.stack.pop()
        _streams.current[index] = before

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Stream) and other.ptr == self.ptr

    def __hash__(self) -> int:
        return hash(self.ptr)

    def __repr__(self) -> str:
        return f"<Stream {self.ptr} (device {self.device_id})>"

    def use(self) -> Stream:
        """Makes this the current stream."""
        _streams.current[_match(self)] = self
        return self

    def synchronize(self) -> None:
        """Waits for the work of the stream."""
        synchronize()

    def record(self, event: Any = None) -> Event:
        """An event at this point of the stream."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Lets the stream wait for an event."""
        self.waited[:] = [*self.waited[-99:], event]

    @classmethod
    def from_external(cls, obj: Any) -> Stream:
        """The stream of an object with `__cuda_stream__`, which gives (version, handle)."""
        version, handle = obj.__cuda_stream__()
        if version != 0:
            raise ValueError(f"Unsupported protocol version: {version}")
        stream = cls()
        stream.ptr = int(handle)
        return stream

    def is_capturing(self) -> bool:
        """False: captures are not modelled."""
        return False

    def begin_capture(self, mode: Any = None) -> None:
        """Not modelled."""
        raise NotInStandin("stream capture (CUDA graphs) is not modelled")

    def end_capture(self) -> None:
        """Not modelled."""
        raise NotInStandin("stream capture (CUDA graphs) is not modelled")

    def launch_host_func(self, callback: Any, arg: Any) -> None:
        """Calls `callback(arg)`."""
        callback(arg)

    def add_callback(self, callback: Any, arg: Any) -> None:
        """Calls `callback(stream, 0, arg)`."""
        callback(self, 0, arg)


Stream.null = Stream(null=True)
Stream.ptds = Stream(ptds=True)


class ExternalStream(Stream):
    """A stream that another library made."""

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        super().__init__()
        self.ptr, self.device_id = int(ptr), device_id


def get_current_stream(device_id: int = -1) -> Stream:
    """The current stream of this thread."""
    return _streams.current.get(HERE.device if device_id == -1 else device_id, Stream.null)


class Event:
    """A point in time of a stream."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self._time: float | None = None
        self.device_id, self.stream = HERE.device, -1  # of which device, recorded on which stream
        self.ptr = next(_stream_numbers)
        self.done = True

    def record(self, stream: Any = None) -> None:
        """Takes the time."""
        stream = get_current_stream() if stream is None else stream
        if self.device_id != (HERE.device if stream.device_id == -1 else stream.device_id):
            raise CUDARuntimeError(400, "cudaErrorInvalidResourceHandle: invalid resource handle")
        self._time, self.stream = time.perf_counter(), stream.ptr

    def synchronize(self) -> None:
        """Waits for the event."""
        synchronize()


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Milliseconds between two events; of the simulation, so a figure about nothing."""
    if start_event._time is None or end_event._time is None or start_event.device_id != end_event.device_id:
        raise CUDARuntimeError(400, "cudaErrorInvalidResourceHandle: invalid resource handle")
    return (end_event._time - start_event._time) * 1e3


# ---- pinned memory ----------------------------------------------------------------------------------


class PinnedMemoryPointer(bytearray):
    """Host memory with the buffer protocol, `ptr` and `size()`."""

    @property
    def ptr(self) -> int:
        """The address."""
        return np.frombuffer(self, np.uint8).ctypes.data

    def size(self) -> int:
        """Bytes."""
        return len(self)


class PinnedMemoryPool:
    """A pool of pinned memory: here the heap."""

    def malloc(self, size: int) -> PinnedMemoryPointer:
        """Zero-filled host memory."""
        return PinnedMemoryPointer(max(int(size), 1))

    def free_all_blocks(self) -> None:
        """Nothing is cached."""

    def n_free_blocks(self) -> int:
        """0."""
        return 0


PINNED_POOL = PinnedMemoryPool()


def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
    """Pinned host memory of `size` bytes."""
    return PINNED_POOL.malloc(size)


_pinned: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()


def _pin(a: np.ndarray) -> np.ndarray:
    _pinned[a.ctypes.data] = a
    return a


def is_memory_pinned(data: int) -> bool:
    """Whether an address lies in pinned memory."""
    return any(start <= data < start + max(a.nbytes, 1) for start, a in list(_pinned.items()))


def empty_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """An uninitialised host array in pinned memory."""
    return _pin(np.empty(shape, dtype, order))  # type: ignore[call-overload]


def zeros_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """A host array of zeros in pinned memory."""
    return _pin(np.zeros(shape, dtype, order))  # type: ignore[call-overload]


def empty_like_pinned(
    a: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> np.ndarray:
    """An uninitialised host array like `a` in pinned memory."""
    return _pin(np.empty(a.shape if shape is None else shape, dtype or a.dtype))


def zeros_like_pinned(
    a: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> np.ndarray:
    """A host array of zeros like `a` in pinned memory."""
    return _pin(np.zeros(a.shape if shape is None else shape, dtype or a.dtype))


# ---- allocators -------------------------------------------------------------------------------------


def alloc(size: int) -> memory.MemoryPointer:
    """Device memory from the current allocator."""
    return get_allocator()(size)


def set_allocator(allocator: Any = None) -> None:
    """Makes `allocator` the current one: a pool's malloc, or a function around one; None: the default."""
    if CURRENT.inside:
        raise ValueError("Can't change the global allocator inside `using_allocator` context manager")
    _use(allocator)


def _use(allocator: Any) -> None:
    pool = DEFAULT_POOL if allocator is None else getattr(allocator, "__self__", None)
    if isinstance(pool, memory.MemoryPool):
        CURRENT.pool, CURRENT.allocator = pool, None
    elif callable(allocator):
        CURRENT.allocator = allocator
    else:
        raise TypeError("'allocator' must be callable")


def get_allocator() -> Any:
    """The current allocator."""
    return CURRENT.pool.malloc if CURRENT.allocator is None else CURRENT.allocator


@contextlib.contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    """Uses another allocator within a with block."""
    before = CURRENT.pool, CURRENT.allocator
    _use(allocator)
    CURRENT.inside += 1
    try:
        yield
    finally:
        CURRENT.pool, CURRENT.allocator = before
        CURRENT.inside -= 1


# ---- cupy.cuda.runtime ------------------------------------------------------------------------------


def _get_device_properties(device: int) -> dict[str, Any]:
    _check_device(device)
    return {
        "name": DEVICE_NAME.encode(),
        "totalGlobalMem": TOTAL_MEMORY,
        "major": 9,
        "minor": 0,
        "multiProcessorCount": 132,
        "warpSize": 32,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiProcessor": 2048,
        "sharedMemPerBlock": 49152,
        "sharedMemPerBlockOptin": 232448,
        "regsPerBlock": 65536,
        "clockRate": 0,
        "memoryClockRate": 0,
        "memoryBusWidth": 0,
        "l2CacheSize": 0,
        "maxGridSize": (2**31 - 1, 65535, 65535),
        "maxThreadsDim": (1024, 1024, 64),
        "pciBusID": 0,
        "integrated": 0,
    }


def _get_device_count() -> int:
    if SETTINGS.lost:
        raise CUDARuntimeError(3, "cudaErrorInitializationError: initialization error")
    return SETTINGS.devices


RUNTIME = {
    "getDeviceCount": _get_device_count,
    "getDevice": lambda: HERE.device,
    "setDevice": _set_device,
    "getDeviceProperties": _get_device_properties,
    "deviceSynchronize": synchronize,
    "streamSynchronize": lambda stream: synchronize(),
    "driverGetVersion": lambda: CUDA_VERSION,
    "runtimeGetVersion": lambda: CUDA_VERSION,
    "memGetInfo": lambda: Device().mem_info,
    "deviceCanAccessPeer": lambda a, b: 0,
    "deviceGetAttribute": lambda attribute, device: {16: 132, 75: 9, 76: 0, 10: 32, 1: 1024}.get(
        int(attribute), 0
    ),
    "is_hip": False,
    "CUDARuntimeError": CUDARuntimeError,
}

_memory = types.SimpleNamespace(
    OutOfMemoryError=memory.OutOfMemoryError,
    MemoryPool=memory.MemoryPool,
    MemoryPointer=memory.MemoryPointer,
    UnownedMemory=memory.UnownedMemory,
    Memory=memory.Block,
    alloc=alloc,
    set_allocator=set_allocator,
    get_allocator=get_allocator,
    using_allocator=using_allocator,
)
CUDA = {
    "simulated_libraries": {"cublasLt": LIBRARY},
    "Device": Device,
    "Stream": Stream,
    "ExternalStream": ExternalStream,
    "Event": Event,
    "MemoryPool": memory.MemoryPool,
    "MemoryPointer": memory.MemoryPointer,
    "UnownedMemory": memory.UnownedMemory,
    "Memory": memory.Block,
    "PinnedMemoryPointer": PinnedMemoryPointer,
    "PinnedMemoryPool": PinnedMemoryPool,
    "alloc": alloc,
    "alloc_pinned_memory": alloc_pinned_memory,
    "set_allocator": set_allocator,
    "get_allocator": get_allocator,
    "using_allocator": using_allocator,
    "set_pinned_memory_allocator": lambda allocator=None: None,
    "get_current_stream": get_current_stream,
    "get_elapsed_time": get_elapsed_time,
    "get_device_id": lambda: HERE.device,
    "is_available": lambda: True,
    "get_local_runtime_version": lambda: CUDA_VERSION,
    "get_cuda_path": lambda: None,
    "get_nvcc_path": lambda: None,
    "memory": _memory,
    "nvrtc": types.SimpleNamespace(
        getVersion=lambda: divmod(CUDA_VERSION // 10, 100),
        getSupportedArchs=lambda: (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121),
    ),
    "driver": types.SimpleNamespace(CUDADriverError=CUDADriverError, get_build_version=lambda: CUDA_VERSION),
    "device": types.SimpleNamespace(
        Device=Device, get_compute_capability=lambda: COMPUTE_CAPABILITY, get_device_id=lambda: HERE.device
    ),
    "stream": types.SimpleNamespace(
        Stream=Stream,
        Event=Event,
        ExternalStream=ExternalStream,
        get_current_stream=get_current_stream,
        get_elapsed_time=get_elapsed_time,
    ),
    "pinned_memory": types.SimpleNamespace(
        is_memory_pinned=is_memory_pinned,
        PinnedMemoryPool=PinnedMemoryPool,
        alloc_pinned_memory=alloc_pinned_memory,
        PinnedMemoryPointer=PinnedMemoryPointer,
    ),
}
PINNED = {
    "empty_pinned": empty_pinned,
    "zeros_pinned": zeros_pinned,
    "empty_like_pinned": empty_like_pinned,
    "zeros_like_pinned": zeros_like_pinned,
}
