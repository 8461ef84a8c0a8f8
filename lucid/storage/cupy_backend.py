"""CUDA devices: CuPy arrays on the current device and stream. The only file that imports CuPy.

`open_backend(device)` gives one backend per device index; "cuda" is the current device. Everything is queued
on CuPy's current stream: no call here waits for the device except `to_numpy`, `synchronize` and the memory
figures of the driver.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import weakref
from typing import Any, ClassVar

import numpy as np

from ..errors import DeviceError, OutOfMemoryError
from . import deferred
from .backend import Backend
from .corrected import Corrected
from .device import Device
from .guarded import Guarded, GuardedOps
from .held import held_by_tensors, human


def _import_cupy() -> Any:
    if os.environ.get("LUCID_CUDA", "").lower() == "sim":
        from ..testing import simulator

        reason = simulator.start()
        if reason is not None:
            raise DeviceError(f"device cuda: LUCID_CUDA=sim asks for the simulated device, but {reason}")
    import cupy

    return cupy


cp = _import_cupy()
# What the ops calculate with.
_xp: Any = Corrected(cp, importlib.import_module("cupyx"))

# Bytes to which CuPy's pool rounds an allocation (cupy.cuda.memory.ALLOCATION_UNIT_SIZE).
_UNIT = 512
# The first major version with bfloat16 arrays and streams of other libraries.
_OLDEST = 14
# Status numbers of cudaError_t (driver_types.h).
_NO_DEVICE, _INSUFFICIENT_DRIVER = 100, 35


# ---- opening ----


def device_count() -> int:
    """The number of CUDA devices. Raises DeviceError with the cure when there is no usable driver."""
    if _forked:
        raise DeviceError(f"device cuda: {_FORKED}")
    try:
        return int(cp.cuda.runtime.getDeviceCount())
    except Exception as error:
        raise DeviceError(f"device cuda: {_why_no_device(error)}") from error


_FORKED = (
    "this process was forked from one that had already used CUDA, which does not survive a fork; let the "
    "dataset return CPU tensors and move the batches in the training loop, or start the processes afresh "
    "(DataLoader(..., multiprocessing_context='spawn'))"
)
_forked = False


def _after_fork() -> None:
    """Nothing; in a forked child the devices that the parent opened refuse everything, and none opens."""
    global _forked
    for place in [d for d in Backend._all if d.type == "cuda"]:
        _forked = True
        Backend._all.pop(place).__class__ = _Lost


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _why_no_device(error: Exception) -> str:
    """What keeps CuPy from its device, and what to do about it."""
    status = getattr(error, "status", None)
    use_cpu = "or use device 'cpu' (LUCID_CUDA=sim simulates a CUDA device for tests)"
    if status == _NO_DEVICE:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        cure = (
            f"CUDA_VISIBLE_DEVICES={hidden!r} hides them; unset it"
            if hidden is not None
            else "check nvidia-smi"
        )
        return f"the NVIDIA driver finds no GPU; {cure}, {use_cpu}"
    if status == _INSUFFICIENT_DRIVER:
        driver, runtime = int(cp.cuda.runtime.driverGetVersion()), int(cp.cuda.runtime.runtimeGetVersion())
        if not driver:
            return f"no NVIDIA driver is installed; install one, {use_cpu}"
        return (
            f"the NVIDIA driver supports CUDA up to {_version(driver)}, CuPy {cp.__version__} here is built "
            f"for CUDA {_version(runtime)}; "
            f"pip install cupy-cuda{driver // 1000}x in its place, or update the driver, {use_cpu}"
        )
    what = f"{type(error).__name__}: {error}"
    return f"CuPy {cp.__version__} finds no device ({what}); check nvidia-smi, {use_cpu}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


@functools.cache
def _check_toolkit() -> None:
    """Nothing; raises DeviceError for a CuPy that is too old, and when what every CuPy operation needs of the
    CUDA toolkit is missing: the run-time compiler and the headers.
    """
    cure = f"pip install 'cupy-cuda{int(cp.cuda.runtime.runtimeGetVersion()) // 1000}x[ctk]'"
    if int(cp.__version__.partition(".")[0]) < _OLDEST:
        raise DeviceError(
            f"device cuda: CuPy {cp.__version__} is too old; lucid needs {_OLDEST}.0 or newer: {cure} -U"
        )
    try:
        cp.cuda.nvrtc.getVersion()
    except Exception as error:
        raise DeviceError(
            "device cuda: NVRTC, the CUDA run-time compiler, cannot be loaded "
            f"({type(error).__name__}: {error}); {cure}"
        ) from error
    if not _has_headers():
        raise DeviceError(f"device cuda: CuPy finds no CUDA headers, without which nothing compiles; {cure}")


def _has_headers() -> bool:
    """Whether CuPy finds the headers that it gives to every compilation (_core/core.pyx of CuPy 14)."""
    if hasattr(cp.cuda, "simulated_libraries"):
        return True
    try:
        find = importlib.import_module("cuda.pathfinder").find_nvidia_header_directory
    except (ImportError, AttributeError):  # another CuPy, which looks for them itself
        return True
    return find("cudart") is not None


def _check_capability(place: Device) -> None:
    """Nothing; raises DeviceError for a GPU older than all that NVRTC compiles for: no kernel would run."""
    found = cp.cuda.runtime.getDeviceProperties(place.index)
    arch = 10 * int(found["major"]) + int(found["minor"])
    try:
        oldest = min(int(n) for n in cp.cuda.nvrtc.getSupportedArchs())
    except Exception:  # an NVRTC that does not say it (before CUDA 11.2)
        return
    if arch < oldest:
        name = found["name"].decode() if isinstance(found["name"], bytes) else found["name"]
        major, minor = cp.cuda.nvrtc.getVersion()[:2]
        raise DeviceError(
            f"device {place}: {name} has compute capability {arch // 10}.{arch % 10}, but NVRTC "
            f"{major}.{minor} compiles for {oldest // 10}.{oldest % 10} and newer; install a CuPy for an "
            f"older CUDA (pip install 'cupy-cuda{int(major) - 1}x[ctk]' in the place of this one), or use "
            "device 'cpu'"
        )


def open_backend(device: Device) -> CupyBackend:
    """The backend of a CUDA device; for one without index, of the current device.

    Raises DeviceError with the cure when there is no driver or GPU, its CUDA version or the GPU itself is too
    old, a part of the CUDA toolkit is missing, or the index is out of range.
    """
    count = device_count()
    if not count:
        raise DeviceError(f"device {device}: {_why_no_device(_NoDevice())}")
    index = int(cp.cuda.runtime.getDevice()) if device.index is None else device.index
    if index >= count:
        raise DeviceError(
            f"device {device}: index out of range, there "
            f"{'is 1 CUDA device' if count == 1 else f'are {count} CUDA devices'} "
            f"(cuda:0{f' to cuda:{count - 1}' if count > 1 else ''})"
        )
    place = Device("cuda", index)
    found = Backend._all.get(place)
    if found is None:
        _check_toolkit()
        _check_capability(place)
        install_allocator()
        Backend.several = count > 1
        found = Backend._all.setdefault(place, CupyBackend(place))
    return found  # type: ignore[return-value]


class _NoDevice(Exception):
    status = _NO_DEVICE


# ---- the backend ----


class CupyBackend(Backend):
    """CuPy on one CUDA device."""

    name: ClassVar[str] = "cuda"
    runs_kernels: ClassVar[bool] = True
    xp = bare = _xp
    cupy: ClassVar[Any] = cp
    ndarray = cp.ndarray

    def __init__(self, device: Device) -> None:
        self.index: int = device.index or 0
        self.several_changed()
        super().__init__(device)

    def several_changed(self) -> None:
        """Nothing; `xp` and `F` make this device current around each call when there are several."""
        self.xp = Guarded(_xp, self.guard) if Backend.several else _xp
        self.F = getattr(self, "_own_F", None)

    @property
    def F(self) -> Any:
        """The raw ops."""
        return self._F

    @F.setter
    def F(self, namespace: Any) -> None:
        self._own_F = namespace
        self._F = (
            GuardedOps(namespace, self.guard) if namespace is not None and Backend.several else namespace
        )

    def guard(self) -> Any:
        """A context in which this device is CuPy's current one."""
        return cp.cuda.Device(self.index)

    def asarray(self, value: Any, dtype: Any = None) -> Any:
        with self.guard():
            return _xp.asarray(value, dtype)

    def from_numpy(self, array: Any, non_blocking: bool = False) -> Any:
        """A copy on this device of a NumPy array, queued on the current stream.

        The host goes on at once: CuPy stages the data through pinned memory of its own. An array that itself
        lies in pinned memory (`pin`, or another library's) is read by the device directly: the host waits for
        that, but with `non_blocking`, where the array must not be changed before the copy has ended.
        """
        with self.guard():
            if not array.ndim:
                return _xp.asarray(array)
            if not (non_blocking and array.flags.c_contiguous and self.is_pinned(array)):
                pinned = not non_blocking and cp.cuda.pinned_memory.is_memory_pinned(array.ctypes.data)
                return cp.asarray(array, blocking=pinned)
            out = cp.empty(array.shape, array.dtype)
            stream = cp.cuda.get_current_stream()
            out.set(array, stream)
            _keep_until_done(stream, array)
            return out

    def to_numpy(self, array: Any, non_blocking: bool = False) -> Any:
        """The array in host memory; waits for the copy unless `non_blocking`, where it goes to pinned memory
        and ends with the stream.
        """
        if not non_blocking:
            deferred.answer(cp, self.index)
            return cp.asnumpy(array)
        with self.guard():
            return array.get(out=_empty_pinned(array.shape, array.dtype), blocking=False)

    def from_device(self, array: Any) -> Any:
        """A copy on this device of an array on another CUDA device: a peer copy, through the host where the
        driver has no peer access.

        Queued on this device's current stream, after what the other device's current stream has been given
        so far; later work there, which may reuse the array's memory, waits for the copy.
        """
        if array.data.device_id == self.index or not array.size:
            return self.xp.array(array, copy=True) if array.size else self.xp.empty(array.shape, array.dtype)
        with cp.cuda.Device(array.data.device_id):
            source = cp.cuda.get_current_stream()
            array = array if array.flags.c_contiguous else cp.ascontiguousarray(array)
            ready = source.record(cp.cuda.Event(disable_timing=True))
        with self.guard():
            stream = cp.cuda.get_current_stream()
            stream.wait_event(ready)
            out = cp.empty(array.shape, array.dtype)
            out.data.copy_from_device_async(array.data, array.nbytes, stream)
            done = stream.record(cp.cuda.Event(disable_timing=True))
        source.wait_event(done)
        return out

    def pin(self, array: Any) -> np.ndarray[Any, Any]:
        """A copy of a NumPy array in pinned (page-locked) host memory; the array itself when it lies there
        already.
        """
        if self.is_pinned(array):
            return array
        out = _empty_pinned(array.shape, array.dtype)
        out[...] = array
        return out

    def is_pinned(self, array: Any) -> bool:
        """Whether a NumPy array lies in pinned memory that this module made."""
        while isinstance(array, np.ndarray):
            known = _pinned.get(id(array))
            if known is not None and known() is array:
                return True
            array = array.base
        return False

    def item(self, array: Any) -> Any:
        """The only element as a Python number; waits for the device."""
        deferred.answer(cp, self.index)
        return array.item()

    def synchronize(self) -> None:
        """Nothing; waits for the device. Raises what a check of indices has found since the last wait
        (`storage/deferred.py`).
        """
        cp.cuda.Device(self.index).synchronize()
        deferred.answer(cp, self.index)

    def quiet(self) -> Any:
        """The device as the current one: CuPy prints no floating-point warnings. (Engine: a backward pass
        runs within.)
        """
        return cp.cuda.Device(self.index)

    def quietly(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        with self.guard():
            return function(*args, **kwargs)

    def scipy(self, part: str) -> Any:
        found = importlib.import_module(f"cupyx.scipy.{part}")
        return Guarded(found, self.guard) if Backend.several else found

    def new_generator(self, seed: int) -> Any:
        """lucid's counter-based generator: the same numbers as on the CPU."""
        from .random import Generator

        return Generator(self).manual_seed(seed)

    def memory(self) -> dict[str, int]:
        """Bytes: allocated (by arrays), peak (of that), reserved (arrays and cache), limit (0: none), free
        and total (driver).
        """
        with self.guard():
            pool = _allocator.pool
            _allocator.sample(self.index)
            free, total = cp.cuda.runtime.memGetInfo()
            return {
                "allocated": pool.used_bytes(),
                "peak": _allocator.peak.get(self.index, 0),
                "reserved": pool.total_bytes(),
                "limit": pool.get_limit(),
                "free": int(free),
                "total": int(total),
            }

    def reset_peak(self) -> None:
        """Nothing; `memory()["peak"]` starts at what is allocated now."""
        with self.guard():
            _allocator.peak[self.index] = 0
            _allocator.sample(self.index)

    def release(self) -> None:
        """Nothing; the cached blocks of the pools go back to the driver."""
        with self.guard():
            _allocator.sample(self.index)
            _allocator.pool.free_all_blocks()
            cp.get_default_pinned_memory_pool().free_all_blocks()

    def set_limit(self, fraction: float) -> None:
        """Nothing; the pool takes at most this share of the device's memory, 0 for no limit."""
        with self.guard():
            _allocator.pool.set_limit(fraction=fraction)

    def held(self, most: int) -> list[str]:
        """The kinds of arrays that tensors hold here, the largest in sum first, as text."""
        return held_by_tensors(self.device, most)

    human = staticmethod(human)

    def stream(self) -> int:
        """The cudaStream_t on which this thread's work is queued."""
        return int(cp.cuda.get_current_stream().ptr)

    library = staticmethod(lambda stem: open_library(stem))

    def properties(self) -> dict[str, Any]:
        """cudaDeviceProp by field name; `name` as text."""
        found = dict(cp.cuda.runtime.getDeviceProperties(self.index))
        name = found["name"]
        found["name"] = name.decode() if isinstance(name, bytes) else str(name)
        return found


class _Lost(CupyBackend):
    """A device that a forked process has from its parent: DeviceError for whatever it is asked to do."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("device", "index", "name", "__class__", "__repr__"):
            return object.__getattribute__(self, name)
        raise DeviceError(f"device {object.__getattribute__(self, 'device')}: {_FORKED}")


# Arrays in pinned memory by id, and those that a copy still reads: CuPy's pinned pool would hand their memory
# out again at once.
_pinned: dict[int, weakref.ref[Any]] = {}
_reading: list[tuple[Any, Any]] = []


def _empty_pinned(shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """An uninitialised NumPy array in pinned memory."""
    array = importlib.import_module("cupyx").empty_pinned(shape, dtype)
    key = id(array)
    _pinned[key] = weakref.ref(array, lambda _: _pinned.pop(key, None))
    return array


def _keep_until_done(stream: Any, array: Any) -> None:
    """Nothing; holds an array that the stream reads until it has done so."""
    _reading[:] = [(event, a) for event, a in _reading if not event.done]
    _reading.append((stream.record(), array))


# ---- memory ----


class _Allocator:
    """CuPy's allocator, with the peak that CuPy does not keep and an error that says what is held.

    `used_bytes` of CuPy's pool walks over all blocks, so it is not asked at each allocation: between two
    looks, use cannot have exceeded the last figure plus all that was allocated since. Only when that bound
    passes the known peak by 1/64 is the pool asked again, so the peak is exact to 1/64 (about 1.6 %).
    """

    def __init__(self, malloc: Any) -> None:
        self.malloc = malloc
        owner = getattr(malloc, "__self__", None)
        self.pool: Any = owner if hasattr(owner, "used_bytes") else cp.get_default_memory_pool()
        self.peak: dict[int, int] = {}
        self.bound: dict[int, int] = {}
        self.threshold: dict[int, int] = {}

    def __call__(self, size: int) -> Any:
        try:
            pointer = self.malloc(size)
        except cp.cuda.memory.OutOfMemoryError as error:
            raise _out_of_memory(size, self.pool) from error
        index = pointer.device_id
        bound = self.bound[index] = self.bound.get(index, 0) + (size + _UNIT - 1) // _UNIT * _UNIT
        if bound > self.threshold.get(index, 0):
            self.sample(index)
        return pointer

    def sample(self, index: int) -> None:
        """Nothing; asks the pool of the current device, and moves its peak."""
        used = self.pool.used_bytes()
        peak = self.peak[index] = max(self.peak.get(index, 0), used)
        self.bound[index], self.threshold[index] = used, peak + (peak >> 6)


_allocator = _Allocator(cp.cuda.get_allocator())


def install_allocator() -> None:
    """Nothing; allocations of CuPy go through `_Allocator`, around whatever allocator was set before."""
    global _allocator
    present = cp.cuda.get_allocator()
    if present is not _allocator:
        wrapped = _allocator if present == _allocator.malloc else _Allocator(present)
        # Within `cupy.cuda.using_allocator` CuPy lets nobody change the allocator: the user's serves there.
        with contextlib.suppress(ValueError):
            cp.cuda.set_allocator(wrapped)
            _allocator = wrapped


def _out_of_memory(size: int, pool: Any) -> OutOfMemoryError:
    """The error for an allocation that failed. Releases the pool's cache, so that the process can go on."""
    index = int(cp.cuda.runtime.getDevice())
    place = Device("cuda", index)
    used, reserved, limit = pool.used_bytes(), pool.total_bytes(), pool.get_limit()
    pool.free_all_blocks()
    free, total = cp.cuda.runtime.memGetInfo()
    elsewhere = max(int(total) - int(free) - pool.total_bytes(), 0)
    lines = [
        f"out of memory on {place}: {human(size)} ({size} bytes) were asked for; arrays hold {human(used)}, "
        f"the cache held {human(reserved - used)} "
        f"(released now), {human(int(free))} of {human(int(total))} are free"
        + (f", limit of the pool {human(limit)}" if limit else "")
        + (f"; other libraries and processes hold {human(elsewhere)}" if elsewhere > total >> 3 else "")
    ]
    held = held_by_tensors(place)
    if held:
        lines.append("largest tensors: " + "; ".join(held))
    lines.append(
        "try: a smaller batch; `del` what is not needed (a loss kept in a list keeps its whole graph: keep "
        "loss.item() or .detach()); "
        "lucid.no_grad() for evaluation; lucid.autograd.checkpoint; float16 or bfloat16"
    )
    return OutOfMemoryError("\n".join(lines))


# ---- libraries ----


def open_library(stem: str) -> Any:
    """The shared library lib<stem> ("cublasLt") that CuPy's own libraries have loaded, by ctypes; on the
    simulated device what stands in for it. Raises OSError when there is none.
    """
    simulated = getattr(cp.cuda, "simulated_libraries", None)
    if simulated is not None:
        return simulated[stem]
    # CuPy loads its libraries at first use, from its wheels or a toolkit; a product by cuBLAS needs cublasLt.
    with contextlib.suppress(ImportError):
        importlib.import_module("cupy_backends.cuda.libs.cublas")
    major = int(cp.cuda.runtime.runtimeGetVersion()) // 1000
    loaded = getattr(os, "RTLD_NOLOAD", 0) | getattr(os, "RTLD_NOW", 2)
    try:
        return ctypes.CDLL(f"lib{stem}.so.{major}", mode=loaded)
    except OSError:
        with contextlib.suppress(Exception):
            pathfinder = importlib.import_module("cuda.pathfinder")
            return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib(stem).abs_path)
        return ctypes.CDLL(f"lib{stem}.so.{major}")


# ---- float32 matrix products ----


def set_tf32(allow: bool) -> None:
    """Nothing; float32 matrix products may use TF32 tensor cores (10-bit mantissa), or not. CUPY_TF32=1 sets
    the start value.
    """
    r = cp._core._routines_linalg
    r.set_compute_type(np.float32, r.COMPUTE_TYPE_TF32 if allow else r.COMPUTE_TYPE_DEFAULT)
