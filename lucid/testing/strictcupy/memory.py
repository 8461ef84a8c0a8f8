"""Device memory on the host: a caching pool with CuPy's accounting, poison in blocks, redzones around them.

Arrays made by `empty`, `zeros`, `asarray`, ... lie in blocks of the pool: 512-byte granules with a redzone of
signalling NaNs on both sides.  Results of NumPy functions keep the memory that NumPy gave them (no copy) and
only count in the pool.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

import numpy as np

from .state import COUNT, HERE, SETTINGS

GRANULE = 512  # bytes; CuPy's ALLOCATION_UNIT_SIZE
REDZONE = 256  # bytes on each side
# a signalling NaN as float32: even `+= 0` of a kernel changes it
_CANARY = np.frombuffer(np.full(REDZONE // 4, 0x7FA1BEEF, np.uint32).tobytes(), np.uint8)
TOTAL_MEMORY = 16 << 30  # what the simulated device says it has


class OutOfMemoryError(MemoryError):
    """The pool's limit is reached; the name and the text are those of cupy.cuda.memory.OutOfMemoryError."""


class RedzoneError(RuntimeError):
    """A kernel wrote outside the array it was given."""


class DevicePool:
    """A caching allocator of one device, with the numbers that CuPy's has: used, total, free blocks, limit;
    and the peak.
    """

    def __init__(self, device_id: int = 0) -> None:
        self.device_id = device_id
        self._lock = threading.RLock()
        self._free: dict[int, int] = {}  # size -> cached blocks, as CuPy would count them
        self._raw: dict[
            int, list[np.ndarray]
        ] = {}  # size -> buffers that may be used again, stale contents and all
        self._used = self._total = self._limit = 0
        self.peak = 0  # most bytes in use at once since the last reset; CuPy has no such number
        self._live: weakref.WeakSet[Any] = weakref.WeakSet()

    def take(self, size: int) -> None:
        """Counts `size` bytes as used."""
        if SETTINGS.lost:
            from .cuda import CUDARuntimeError

            raise CUDARuntimeError(3, "cudaErrorInitializationError: initialization error")
        SETTINGS.used = True
        with self._lock:
            cached = self._free.get(size, 0)
            if cached:
                self._free[size] = cached - 1
            else:
                if self._limit and self._total + size > self._limit:
                    self.free_all_blocks()
                    if self._total + size > self._limit:
                        raise OutOfMemoryError(
                            f"Out of memory allocating {size:,} bytes "
                            f"(allocated so far: {self._total:,} bytes, limit set to: {self._limit:,} bytes)."
                        )
                self._total += size
            self._used += size
            if self._used > self.peak:
                self.peak = self._used

    def give(self, size: int) -> None:
        """Counts `size` bytes as free and cached."""
        with self._lock:
            self._used -= size
            self._free[size] = self._free.get(size, 0) + 1

    def block(self, nbytes: int) -> Block:
        """A Block of at least `nbytes` bytes with redzones."""
        b = Block(self, nbytes)
        self._live.add(b)
        return b

    def check_redzones(self) -> None:
        """Raises RedzoneError when a redzone of a live block has changed."""
        for b in list(self._live):
            if isinstance(b, Block):
                b.check()

    def used_bytes(self) -> int:
        """Bytes in use."""
        return self._used

    def total_bytes(self) -> int:
        """Bytes in use and cached."""
        return self._total

    def free_bytes(self) -> int:
        """Bytes cached."""
        return self._total - self._used

    def n_free_blocks(self) -> int:
        """Number of cached blocks."""
        return sum(self._free.values())

    def free_all_blocks(self, stream: Any = None) -> None:
        """Drops the cached blocks."""
        with self._lock:
            self._total -= sum(s * n for s, n in self._free.items())
            self._free.clear()
            self._raw.clear()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Sets the most bytes that `total_bytes` may reach; 0 for no limit."""
        if (size is None) == (fraction is None):
            if size is not None:
                raise ValueError("size and fraction cannot be specified at one time")
            size = 0
        self._limit = int(size if size is not None else (fraction or 0.0) * TOTAL_MEMORY)

    def get_limit(self) -> int:
        """The limit in bytes, 0 for none."""
        return self._limit


class MemoryPool:
    """CuPy's pool: one of its own for each device, and the numbers are those of the current device."""

    def __init__(self, allocator: Any = None) -> None:
        self._pools: dict[int, DevicePool] = {}

    def here(self) -> DevicePool:
        """The pool of the current device."""
        index = HERE.device
        found = self._pools.get(index)
        return self._pools.setdefault(index, DevicePool(index)) if found is None else found

    def malloc(self, size: int) -> MemoryPointer:
        """A MemoryPointer to `size` bytes on the current device."""
        if CURRENT.asked.result is not None:
            return MemoryPointer(Adopted(self.here(), CURRENT.asked.result), 0)
        return MemoryPointer(self.here().block(int(size)), 0)

    def check_redzones(self) -> None:
        """Raises RedzoneError when a redzone of a live block on any device has changed."""
        for pool in list(self._pools.values()):
            pool.check_redzones()

    def owner_of(self, address: int) -> Any:
        """The live block in which an address lies, or None."""
        for pool in list(self._pools.values()):
            for b in list(pool._live):
                if b.start <= address < b.start + max(b.nbytes, 1):
                    return b
        return None

    @property
    def peak(self) -> int:
        """Most bytes in use at once since the last reset; CuPy has no such number."""
        return self.here().peak

    @peak.setter
    def peak(self, n: int) -> None:
        self.here().peak = n

    def block(self, nbytes: int) -> Block:
        """A Block on the current device."""
        return self.here().block(nbytes)

    def used_bytes(self) -> int:
        """Bytes in use."""
        return self.here().used_bytes()

    def total_bytes(self) -> int:
        """Bytes in use and cached."""
        return self.here().total_bytes()

    def free_bytes(self) -> int:
        """Bytes cached."""
        return self.here().free_bytes()

    def n_free_blocks(self) -> int:
        """Number of cached blocks."""
        return self.here().n_free_blocks()

    def free_all_blocks(self, stream: Any = None) -> None:
        """Drops the cached blocks."""
        self.here().free_all_blocks(stream)

    free_all_free = free_all_blocks

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Sets the most bytes that `total_bytes` may reach; 0 for no limit."""
        self.here().set_limit(size, fraction)

    def get_limit(self) -> int:
        """The limit in bytes, 0 for none."""
        return self.here().get_limit()


class Block:
    """A block of the pool: `buffer` holds the bytes, `ptr` is their address."""

    __slots__ = ("pool", "size", "nbytes", "raw", "offset", "buffer", "ptr", "device_id", "__weakref__")

    def __init__(self, pool: DevicePool, nbytes: int) -> None:
        self.size, self.device_id = 0, pool.device_id
        size = max(GRANULE, -(-nbytes // GRANULE) * GRANULE) if nbytes else 0
        pool.take(size)
        self.pool, self.size, self.nbytes = pool, size, nbytes
        cached = pool._raw.get(size)
        self.raw = (
            cached.pop() if cached else np.full(size + 2 * REDZONE + GRANULE, 0xFF, np.uint8)
        )  # 0xFF..: NaN
        o = self.offset = -(self.raw.ctypes.data + REDZONE) % GRANULE + REDZONE
        self.raw[o - REDZONE : o] = _CANARY
        self.raw[o + nbytes : o + nbytes + REDZONE] = _CANARY
        self.buffer = self.raw[o : o + nbytes]
        self.ptr = self.raw.ctypes.data + o if nbytes else 0

    @property
    def start(self) -> int:
        """The first address."""
        return self.ptr

    def check(self) -> None:
        """Raises RedzoneError when a redzone has changed."""
        o, n = self.offset, self.nbytes
        before = self.raw[o - REDZONE : o].tobytes() == _CANARY.tobytes()
        after = self.raw[o + n : o + n + REDZONE].tobytes() == _CANARY.tobytes()
        if not (before and after):
            self.raw[o - REDZONE : o] = _CANARY
            self.raw[o + n : o + n + REDZONE] = _CANARY
            raise RedzoneError(
                f"a kernel wrote {'past the end of' if before else 'before'} a device array of {n} bytes"
            )

    def __del__(self) -> None:
        if self.size:
            self.pool.give(self.size)
            if self.size <= 1 << 24:
                self.pool._raw.setdefault(self.size, []).append(self.raw)


class Adopted:
    """Memory of a NumPy result, counted in the pool."""

    __slots__ = ("pool", "size", "owner", "ptr", "device_id", "__weakref__")

    def __init__(self, pool: DevicePool, owner: np.ndarray) -> None:
        self.size, self.device_id = 0, pool.device_id
        n = owner.nbytes
        size = (n + GRANULE - 1) // GRANULE * GRANULE
        pool.take(size)
        self.pool, self.size, self.owner = pool, size, owner
        pool._live.add(self)

    @property
    def nbytes(self) -> int:
        """Bytes from the first address to the last."""
        low, high = np.lib.array_utils.byte_bounds(self.owner)
        return high - low

    @property
    def start(self) -> int:
        """The first address."""
        return int(np.lib.array_utils.byte_bounds(self.owner)[0])

    @property
    def buffer(self) -> np.ndarray:
        """The bytes."""
        return self.owner

    def __del__(self) -> None:
        if self.size:
            self.pool.give(self.size)


class UnownedMemory:
    """Memory that somebody else owns and keeps alive through `owner`."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner = int(ptr), int(size), owner
        # As a driver knows it: by the address.
        found = CURRENT.pool.owner_of(self.ptr) if device_id < 0 and SETTINGS.devices > 1 else None
        self.device_id = found.device_id if found is not None else max(device_id, 0)


class MemoryPointer:
    """An address in device memory that keeps its block alive."""

    def __init__(self, mem: Any, offset: int = 0) -> None:
        self.mem, self.device_id = mem, mem.device_id
        base = mem.owner.ctypes.data if isinstance(mem, Adopted) else mem.ptr
        self.ptr = int(base) + int(offset)

    @property
    def device(self) -> Any:
        """The Device of the memory."""
        from .cuda import Device

        return Device(self.device_id)

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> MemoryPointer:
        p = MemoryPointer.__new__(MemoryPointer)
        p.mem, p.ptr, p.device_id = self.mem, self.ptr + int(offset), self.device_id
        return p

    def memset(self, value: int, size: int) -> None:
        """Sets `size` bytes to `value`."""
        ctypes.memset(self.ptr, value, size)

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        """Sets `size` bytes to `value` in the order of the stream."""
        ctypes.memset(self.ptr, value, size)

    def copy_from_device(self, src: MemoryPointer, size: int) -> None:
        """Copies `size` bytes from `src`."""
        ctypes.memmove(self.ptr, src.ptr, size)

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        """Copies `size` bytes from `src` in the order of the stream."""
        ctypes.memmove(self.ptr, src.ptr, size)

    def copy_from_host(self, mem: Any, size: int) -> None:
        """Copies `size` bytes from the host address `mem`."""
        COUNT.h2d_bytes += size
        ctypes.memmove(self.ptr, getattr(mem, "value", mem), size)

    copy_from_host_async = copy_from_host

    def copy_to_host(self, mem: Any, size: int) -> None:
        """Copies `size` bytes to the host address `mem`."""
        COUNT.d2h_bytes += size
        COUNT.syncs += 1
        ctypes.memmove(getattr(mem, "value", mem), self.ptr, size)

    copy_to_host_async = copy_to_host


class _Asked(threading.local):
    """The NumPy result for which this thread asks the allocator for memory."""

    result: np.ndarray | None = None


class _Current:
    """The pool, and the allocator around it if one was set."""

    pool = MemoryPool()
    allocator: Any = None
    inside = 0  # how many `using_allocator` are open
    asked = _Asked()

    def block(self, nbytes: int) -> Any:
        """Memory for a new array of `nbytes` bytes."""
        return self.pool.block(nbytes) if self.allocator is None else self.allocator(nbytes).mem

    def adopt(self, a: np.ndarray) -> Any:
        """The memory of a NumPy result, counted as an allocation."""
        if self.allocator is None:
            return Adopted(self.pool.here(), a)
        self.asked.result = a
        try:
            return self.allocator(a.nbytes).mem
        finally:
            self.asked.result = None


CURRENT = _Current()
DEFAULT_POOL = CURRENT.pool
