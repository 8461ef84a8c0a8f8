"""`ndarray`: a NumPy view of device memory that behaves as cupy.ndarray does.

It refuses to mix with NumPy arrays and lists, its reductions are 0-d arrays, and whatever needs the value on
the host (`float`, `bool`, `item`, `get`) counts as a synchronisation.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from types import EllipsisType, NoneType
from typing import Any

import numpy as np

from .indexing import has_mask, index, refuse_duplicates
from .memory import CURRENT, MemoryPointer
from .state import COUNT, HERE, SETTINGS, NotInStandin, UndefinedOnDevice, api

try:
    import ml_dtypes

    BFLOAT16: np.dtype | None = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    BFLOAT16 = None

SCALARS = (bool, int, float, complex, np.bool_, np.number)
_CUDA = 2  # DLPack's kDLCUDA
_BASIC = frozenset((int, slice, NoneType, EllipsisType))
_KINDS = frozenset("?bBhHiIlLqQefdFDE")


def unsupported(x: Any) -> TypeError:
    """CuPy's TypeError for an argument that is neither a device array nor a scalar."""
    return TypeError(f"Unsupported type {x if isinstance(x, type) else type(x)}")


def is_scalar(x: Any) -> bool:
    """Whether CuPy's ufuncs take `x` as a scalar."""
    return isinstance(x, SCALARS) or (BFLOAT16 is not None and type(x) is BFLOAT16.type)


@functools.cache
def _supported(dt: np.dtype) -> bool:
    return dt.char in _KINDS and (dt.char != "E" or dt == BFLOAT16) and dt.isnative


def check_dtype(dtype: Any) -> np.dtype:
    """The NumPy dtype, if a device array can have it; else CuPy's ValueError."""
    dt = np.dtype(dtype)
    if not _supported(dt):
        raise ValueError(f"Unsupported dtype {dt}")
    return dt


class Flags:
    """What cupy.ndarray.flags has: `c_contiguous`, `f_contiguous`, `owndata`, no more."""

    __slots__ = ("c_contiguous", "f_contiguous", "owndata")

    def __init__(self, flags: Any, owndata: bool) -> None:
        self.c_contiguous, self.f_contiguous, self.owndata = flags.c_contiguous, flags.f_contiguous, owndata

    def __getitem__(self, name: str) -> bool:
        return bool(getattr(self, name.lower()))


def _unsigned(value: Any) -> Any:
    """`value` as CuPy's `fill` stores it in contiguous memory: by memset where it equals 0, without a sign.
    """
    return 0 if np.ndim(value) == 0 and value == 0 else value


class ndarray:
    """An array in the memory of the simulated device; see cupy.ndarray."""

    __slots__ = ("_raw", "_mem", "_base", "__weakref__")
    _raw: np.ndarray  # the elements, wherever they lie
    _mem: Any  # the Block, Adopted or UnownedMemory that they lie in
    _base: ndarray | None
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __new__(
        cls, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: Any = "C"
    ) -> ndarray:
        dt = check_dtype(dtype)
        if memptr is None:
            if strides is not None:
                raise NotInStandin("ndarray(strides=...) without memptr")
            return new(shape, dt, order)
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)
        r = object.__new__(cls)
        end = sum((s - 1) * abs(t) for s, t in zip(shape, strides, strict=True)) if strides else 0
        n = max(int(np.prod(shape, dtype=np.int64)) * dt.itemsize, end + dt.itemsize)
        buffer: Any = (ctypes.c_char * n).from_address(memptr.ptr) if memptr.ptr else None
        r._raw, r._mem, r._base = (
            np.ndarray(shape, dt, buffer, 0, strides, None if strides else order),
            memptr.mem,
            None,
        )
        return r

    @property
    def _a(self) -> np.ndarray:
        """The elements, for an operation of the current device."""
        if SETTINGS.devices > 1 and self._mem.device_id != HERE.device:
            raise ValueError(
                f"The device where the array resides ({self._mem.device_id}) is different from the current "
                f"device ({HERE.device}). Peer access is unavailable between these devices."
            )
        return self._raw

    # ---- what an array is
    shape = property(lambda s: s._raw.shape, lambda s, v: s._reshape_in_place(v))
    dtype = property(lambda s: s._raw.dtype)
    ndim = property(lambda s: s._raw.ndim)
    size = property(lambda s: s._raw.size)
    nbytes = property(lambda s: s._raw.nbytes)
    itemsize = property(lambda s: s._raw.itemsize)
    strides = property(lambda s: s._raw.strides)
    flags = property(lambda s: Flags(s._raw.flags, s._base is None))
    base = property(lambda s: s._base)
    T = property(lambda s: view(s._raw.T, s))
    mT = property(lambda s: view(s._raw.mT, s))
    flat = property(lambda s: _not_here("ndarray.flat"))
    cstruct = property(lambda s: _not_here("ndarray.cstruct"))

    @property
    def real(self) -> ndarray:
        return view(self._a.real, self) if self._a.dtype.kind == "c" else self

    @real.setter
    def real(self, v: Any) -> None:
        self.real[...] = v

    @property
    def imag(self) -> ndarray:
        return view(self._a.imag, self) if self._a.dtype.kind == "c" else new(self.shape, self.dtype, fill=0)

    @imag.setter
    def imag(self, v: Any) -> None:
        self.imag[...] = v

    @property
    def data(self) -> MemoryPointer:
        p = MemoryPointer.__new__(MemoryPointer)
        raw = self._raw
        p.mem, p.ptr, p.device_id = self._mem, raw.ctypes.data if raw.size else 0, self._mem.device_id
        return p

    @property
    def device(self) -> Any:
        from .cuda import Device

        return Device(self._mem.device_id)

    def _reshape_in_place(self, v: Any) -> None:
        self._raw = self._raw.view()
        self._raw.shape = v

    # ---- protocols
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_ufunc__(self, uf: Any, method: str, *inputs: Any, **kw: Any) -> Any:
        f = getattr(_cupy(), uf.__name__, None)
        if f is None:
            return NotImplemented
        if "out" in kw:
            kw["out"] = kw["out"][0]
        return (f if method == "__call__" else getattr(f, method))(*inputs, **kw)

    def __array_function__(self, func: Any, types: Any, args: Any, kw: Any) -> Any:
        if any(not issubclass(t, (ndarray, np.ndarray)) for t in types):
            return NotImplemented
        try:
            module = functools.reduce(getattr, func.__module__.split(".")[1:], _cupy())
            f = getattr(module, func.__name__)
        except AttributeError:
            return NotImplemented
        return f(*args, **kw)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        a = self._raw
        return {
            "shape": a.shape,
            "typestr": a.dtype.str,
            "descr": a.dtype.descr,
            "version": 3,
            "stream": 1,
            "data": (a.ctypes.data if a.size else 0, False),
            "strides": None if a.flags.c_contiguous else a.strides,
        }

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        if self.dtype.char == "E":
            raise BufferError("bfloat16 is not supported by NumPy's DLPack")
        return set_dlpack_device(self._raw.__dlpack__(), _CUDA, self._mem.device_id)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self._mem.device_id

    def toDlpack(self) -> Any:
        return self.__dlpack__()

    # ---- to and from the host
    def get(self, stream: Any = None, order: Any = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        COUNT.syncs += bool(blocking)
        COUNT.d2h_bytes += self._raw.nbytes
        if out is None:
            return np.array(self._raw, order=order)
        if not isinstance(out, np.ndarray):
            raise TypeError("Only numpy.ndarray can be obtained from cupy.ndarray")
        if out.dtype != self.dtype or out.shape != self.shape:
            raise ValueError(
                f"Shape or dtype mismatch. Expected {self.shape} {self.dtype}, got {out.shape} {out.dtype}"
            )
        out[...] = self._raw
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not (self._raw.flags.c_contiguous or self._raw.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        COUNT.h2d_bytes += arr.nbytes
        self._raw[...] = arr
        from .cuda import is_memory_pinned

        if is_memory_pinned(arr.ctypes.data):
            COUNT.reads(arr)

    def _value(self) -> Any:
        COUNT.syncs += 1
        COUNT.d2h_bytes += self._raw.nbytes
        return self._raw

    def item(self) -> Any:
        if self._raw.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self._value().item()

    def tolist(self) -> Any:
        return self._value().tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        return self._value().tobytes(order)

    def __float__(self) -> float:
        return float(self._value())

    def __int__(self) -> int:
        return int(self._value())

    def __complex__(self) -> complex:
        return complex(self._value())

    def __bool__(self) -> bool:
        return bool(self._value())

    def __repr__(self) -> str:
        return repr(self._value())

    def __str__(self) -> str:
        return str(self._value())

    def __format__(self, spec: str) -> str:
        return format(self._value()[()] if self._raw.ndim == 0 else self._value(), spec)

    def __len__(self) -> int:
        if not self._raw.ndim:
            raise TypeError("len() of unsized object")
        return self._raw.shape[0]

    def __iter__(self) -> Iterator[ndarray]:
        if not self._raw.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self._raw.shape[0]))

    def __reduce__(self) -> Any:
        return _rebuild, (self.get(),)

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> ndarray:
        return self.copy()

    # ---- indexing
    def __getitem__(self, k: Any) -> ndarray:
        t = type(k)
        if t in _BASIC:
            r = self._raw[k]
            return view(r, self) if type(r) is np.ndarray else view(self._raw[k, ...], self)
        if t is tuple and _BASIC.issuperset(map(type, k)):
            r = self._raw[k]
            return view(r, self) if type(r) is np.ndarray else view(self._raw[(*k, ...)], self)
        k, advanced = index(k, self._a.shape)
        COUNT.launches += 1
        if not advanced:
            return view(self._a[(*k, ...) if isinstance(k, tuple) else (k, ...)], self)
        COUNT.syncs += has_mask(k)  # the size of the result must be known on the host
        r = np.asarray(self._a[k])
        COUNT.moved((r, r[...]))  # read and written
        return adopt(r if r.flags.c_contiguous else np.ascontiguousarray(r))

    def __setitem__(self, k: Any, v: Any) -> None:
        if type(v) is ndarray:
            v = v._a
        elif (isinstance(v, np.ndarray) and v.ndim) or isinstance(v, (list, tuple)):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        COUNT.launches += 1
        k, advanced = index(k, self._a.shape)
        COUNT.syncs += has_mask(k)  # the number of values must be known on the host
        if advanced and np.ndim(v):
            refuse_duplicates(k, self._a.shape)
        COUNT.moved((self._a[k], v))
        with np.errstate(all="ignore"):
            if not advanced and not isinstance(v, np.ndarray) and v == 0:
                v = _unsigned(v) if np.asarray(self._a[k]).flags.c_contiguous else v
            self._a[k] = v

    # ---- copies and casts
    def astype(
        self, dtype: Any, order: Any = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> ndarray:
        if casting is not None:
            raise TypeError("casting is not supported yet")
        if subok is not None:
            raise TypeError("subok is not supported yet")
        dt = check_dtype(dtype)
        if not copy and dt == self._raw.dtype:
            return self
        COUNT.launches += 1
        out = cast(self._a, dt, order)
        COUNT.moved((self._a, out))
        return adopt(out)

    def copy(self, order: Any = "C") -> ndarray:
        COUNT.launches += 1
        if SETTINGS.devices > 1 and self._mem.device_id != HERE.device:
            raise UndefinedOnDevice(
                f"copy() of an array on device {self._mem.device_id} while device {HERE.device} is current: "
                "CuPy's copy lies on the current device; use data.copy_from_device_async where that is meant"
            )
        out = self._raw.copy(order)
        COUNT.moved((self._raw, out))
        return adopt(out)

    def flatten(self, order: Any = "C") -> ndarray:
        COUNT.launches += 1
        return adopt(self._a.flatten(order))

    def view(self, dtype: Any = None, array_class: Any = None) -> ndarray:
        return view(self._raw.view() if dtype is None else self._raw.view(check_dtype(dtype)), self)

    def fill(self, value: Any) -> None:
        if isinstance(value, ndarray):
            if value.ndim:
                raise ValueError("non-scalar cupy.ndarray cannot be used for fill")
            value = value._a
        COUNT.launches += 1
        COUNT.moved((self._a,))
        self._a[...] = _unsigned(value) if self._a.flags.c_contiguous else value

    def reshape(self, *shape: Any, order: Any = "C") -> ndarray:
        if len(shape) == 1 and not isinstance(shape[0], int):
            shape = tuple(shape[0]) if not isinstance(shape[0], np.integer) else shape
        r = self._raw.reshape(shape, order=order)
        if np.may_share_memory(r, self._raw) or not r.size:
            return view(r, self)
        COUNT.launches += 1
        COUNT.moved((self._raw, r))
        assert self._a is self._raw  # a copy: on the current device alone
        return adopt(r)

    def transpose(self, *axes: Any) -> ndarray:
        return view(self._raw.transpose(*axes), self)

    def squeeze(self, axis: Any = None) -> ndarray:
        return view(self._raw.squeeze(axis), self)

    def swapaxes(self, axis1: int, axis2: int) -> ndarray:
        return view(self._raw.swapaxes(axis1, axis2), self)

    def sort(self, axis: int = -1) -> None:
        COUNT.launches += 1
        self._a.sort(axis)

    def partition(self, kth: Any, axis: int = -1) -> None:
        COUNT.launches += 1
        self._a.partition(kth, axis)

    def put(self, indices: Any, values: Any, mode: str = "wrap") -> None:
        _cupy().put(self, indices, values, mode)

    def scatter_add(self, slices: Any, value: Any) -> None:
        _cupy().add.at(self, slices, value)

    def scatter_max(self, slices: Any, value: Any) -> None:
        _cupy().maximum.at(self, slices, value)

    def scatter_min(self, slices: Any, value: Any) -> None:
        _cupy().minimum.at(self, slices, value)

    def ptp(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
        return _cupy().ptp(self, axis, out, keepdims)


def _cupy() -> Any:
    from .namespace import cupy

    return cupy


def _not_here(name: str) -> Any:
    raise NotInStandin(f"cupy.{name} exists in CuPy {api()['cupy']} but not in the stand-in")


def _rebuild(a: np.ndarray) -> ndarray:
    return upload(a)


def set_dlpack_device(capsule: Any, kind: int, index: int = 0) -> Any:
    """The DLPack capsule, its device type set to CUDA (2), so that hosts refuse it, or to the CPU (1), and
    its device number.
    """
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # DLManagedTensor starts with {void* data; int32 device_type; int32 device_id; ...}.
    device = (ctypes.c_int32 * 2).from_address(get(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p))
    device[0], device[1] = kind, index
    return capsule


# ---- making arrays ----------------------------------------------------------------------------------


def new(shape: Any, dtype: Any, order: Any = "C", fill: Any = None) -> ndarray:
    """A fresh device array in a block of the pool: poisoned or stale, or filled."""
    dt = check_dtype(dtype)
    shape = tuple(map(int, shape)) if isinstance(shape, (tuple, list)) else (int(shape),)
    n = dt.itemsize
    for s in shape:
        if s < 0:
            raise ValueError("negative dimensions are not allowed")
        n *= s
    mem = CURRENT.block(n)
    r = object.__new__(ndarray)
    order = order if order in ("C", "F") else "C"
    r._raw = np.ndarray(shape, dt, mem.buffer.data if n else None, order=order)
    r._mem, r._base = mem, None
    if fill is not None:
        COUNT.launches += 1
        COUNT.moved((r._raw,))
        r._a[...] = fill
    return r


def adopt(a: np.ndarray) -> ndarray:
    """A device array that takes over `a`, the result of a NumPy function that nobody else holds."""
    r = object.__new__(ndarray)
    r._raw, r._mem, r._base = a, CURRENT.adopt(a), None
    return r


def view(a: np.ndarray, src: ndarray) -> ndarray:
    """A device array that shares the memory of `src`; CuPy has none that are read only."""
    if not a.flags.writeable and src._raw.flags.writeable:
        a.flags.writeable = True
    r = object.__new__(ndarray)
    r._raw, r._mem, r._base = a, src._mem, src if src._base is None else src._base
    return r


def upload(a: np.ndarray, order: Any = "C") -> ndarray:
    """A device copy of a host array, in a block of the pool."""
    check_dtype(a.dtype)
    f = a.flags
    r = new(
        a.shape,
        a.dtype,
        "F" if order == "F" or (order in "AK" and f.f_contiguous and not f.c_contiguous) else "C",
    )
    COUNT.h2d_bytes += a.nbytes
    r._a[...] = a if a.ndim else _unsigned(a)  # CuPy fills a single number in
    return r


def cast(a: np.ndarray, dt: np.dtype, order: Any = "K") -> np.ndarray:
    """`a` in another dtype; refuses a float that the integer cannot hold, where CPU and GPU differ."""
    if dt.kind in "iu" and a.dtype.kind in "fV" and a.size:
        info = np.iinfo(dt)
        with np.errstate(invalid="ignore"):
            if not ((a > info.min - 1.0) & (a < info.max + 1.0)).all():
                raise UndefinedOnDevice(
                    f"a value outside {dt} is cast from {a.dtype}: NumPy and CUDA give different numbers"
                )
    with np.errstate(all="ignore"):
        return a.astype(dt, order=order)


# ---- arguments and results --------------------------------------------------------------------------


def unwrap(x: Any) -> Any:
    """`x` with every device array in it replaced by its NumPy view; refuses host arrays."""
    t = type(x)
    if t is ndarray:
        return x._a
    if t is list or t is tuple:
        return t(unwrap(e) for e in x)
    if isinstance(x, np.ndarray):
        raise unsupported(x)
    return x


def wrap(r: Any, sources: tuple[ndarray, ...] = ()) -> Any:
    """`r` with every NumPy array in it as a device array: a view of a source where they share memory."""
    if type(r) is np.ndarray:
        if r.dtype.char not in _KINDS:
            return r
        if r.base is not None:
            for s in sources:
                if np.may_share_memory(r, s._raw):
                    return view(r, s)
        return adopt(r if r.flags.c_contiguous else np.ascontiguousarray(r))
    if isinstance(r, (np.generic, bool)):
        return adopt(np.asarray(r))
    if isinstance(r, tuple):
        out = [wrap(e, sources) for e in r]
        return type(r)(*out) if hasattr(r, "_fields") else tuple(out)
    if isinstance(r, list):
        return [wrap(e, sources) for e in r]
    return r
