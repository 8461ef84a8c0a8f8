"""Functions of `cupy` and its submodules: CuPy's parameters and refusals around NumPy's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .array import (
    BFLOAT16,
    adopt,
    check_dtype,
    ndarray,
    new,
    set_dlpack_device,
    unsupported,
    unwrap,
    upload,
    view,
    wrap,
)
from .cuda import is_memory_pinned, synchronize
from .state import COUNT, NotInStandin, UndefinedOnDevice, names
from .values import as_cupy

# first argument: shapes, numbers, sequences of arrays, or anything
_ANY_FIRST = names(
    """
    arange eye linspace logspace identity tri indices concatenate concat stack vstack hstack dstack
    column_stack einsum meshgrid broadcast_arrays where isclose allclose array_equal shape ndim size
    isscalar atleast_1d atleast_2d atleast_3d ix_ ravel_multi_index unravel_index iscomplexobj
    isrealobj diag_indices tril_indices triu_indices mask_indices hanning hamming blackman kaiser
    bartlett fftfreq rfftfreq min_scalar_type common_type bitwise_count clip
    """
)
_PLAIN = names("ndim shape size isscalar iscomplexobj isrealobj min_scalar_type common_type")
_SYNC = names(
    """
    nonzero flatnonzero argwhere unique unique_all unique_counts unique_inverse unique_values extract
    bincount compress setdiff1d union1d intersect1d setxor1d
    """
)
_INDEXING = names("take take_along_axis put put_along_axis choose")
_NUMERIC = frozenset("?bBhHiIlLqQefdFDE")




def check_call(name: str, parameters: list[str], args: tuple[Any, ...], kw: dict[str, Any]) -> None:
    """Raises TypeError for a keyword that CuPy's function lacks, or too many arguments."""
    if not any(p.startswith("**") for p in parameters):
        for k in kw:
            if k not in parameters:
                raise TypeError(f"{name}() got an unexpected keyword argument '{k}'")
    if len(args) > len(parameters) and not any(p.startswith("*") for p in parameters):
        raise TypeError(f"{name}() takes at most {len(parameters)} positional arguments ({len(args)} given)")


def _arrays(x: Any, out: list[ndarray]) -> list[ndarray]:
    if type(x) is ndarray:
        out.append(x)
    elif isinstance(x, (list, tuple)):
        for e in x:
            _arrays(e, out)
    return out


# they call back with device arrays; NumPy's would hand out host arrays
CALLBACKS = names("apply_along_axis apply_over_axes piecewise fromfunction vectorize fromiter")


def function(module: str, name: str, spec: dict[str, Any], impl: Callable[..., Any]) -> Callable[..., Any]:
    """The device version of the NumPy (or SciPy) function `impl`, with the parameters of `spec`."""
    parameters: list[str] = spec.get("parameters") or ["*args", "**kwargs"]
    impl = as_cupy(module, name, impl)
    full, first = f"{module}.{name}", parameters[0].lstrip("*")
    sync = name in _SYNC

    def f(*args: Any, **kw: Any) -> Any:
        check_call(full, parameters, args, kw)
        if not args and first in kw:
            args = (kw.pop(first),)
        if name not in _ANY_FIRST and args and type(args[0]) is not ndarray:
            raise unsupported(args[0])
        COUNT.launches += 1
        COUNT.syncs += sync or (name == "where" and len(args) == 1)
        out = _out_argument(parameters, args, kw)
        with np.errstate(all="ignore"):
            try:
                r = impl(*[unwrap(x) for x in args], **{k: unwrap(v) for k, v in kw.items()})
            except IndexError as e:
                if name in _INDEXING:
                    raise UndefinedOnDevice(
                        f"{full}: {e}; CuPy wraps such an index around without a word"
                    ) from e
                raise
        arrays = [a._raw for a in _arrays((args, tuple(kw.values())), [])]
        if type(r) is np.ndarray and r.base is not None and any(np.may_share_memory(r, a) for a in arrays):
            COUNT.launches -= out is None  # a view
        else:
            COUNT.moved((*arrays, r))
        if out is not None:
            return out
        if type(r) is np.ndarray and r.base is None and r.flags.c_contiguous and r.dtype.char in _NUMERIC:
            return adopt(r)
        if name in _PLAIN:
            return r
        return wrap(r, tuple(_arrays((args, tuple(kw.values())), [])))

    f.__name__ = f.__qualname__ = name
    f.__module__ = module
    f.__doc__ = f"{full}, computed by NumPy."
    return f


def _out_argument(parameters: list[str], args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
    out = kw.get("out")
    if out is None and "out" in parameters and len(args) > parameters.index("out"):
        out = args[parameters.index("out")]
    return out if type(out) is ndarray else None


# ---- functions with rules of their own --------------------------------------------------------------


def array(
    obj: Any,
    dtype: Any = None,
    copy: Any = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    *,
    blocking: bool = False,
) -> ndarray:
    """A device array from a host or device array, numbers, or nested lists of them."""
    if subok:
        raise NotInStandin("array(subok=True)")
    order = order or "K"
    if type(obj) is not ndarray and hasattr(obj, "__cuda_array_interface__"):
        obj = _from_interface(obj)
    if type(obj) is ndarray:
        dt = obj.dtype if dtype is None else check_dtype(dtype)
        if copy is False and dt != obj.dtype:
            raise ValueError("Unable to avoid copy while creating an array as requested.")
        r = obj.astype(dt, order) if copy or dt != obj.dtype else obj
        if (
            not copy
            and order in "CF"
            and not (r.flags.c_contiguous if order == "C" else r.flags.f_contiguous)
        ):
            r = r.copy(order)
        return r[(None,) * (ndmin - r.ndim)] if r.ndim < ndmin else r
    if _arrays(obj, []):  # a list of device arrays
        COUNT.launches += 1
        return adopt(np.array(unwrap(obj), dtype=dtype, ndmin=ndmin))
    if dtype is not None:
        check_dtype(dtype)
    a = np.array(obj, dtype=dtype, ndmin=ndmin, copy=None)
    out = upload(a, order)
    if blocking:
        synchronize()
    elif a.ndim and a.flags.c_contiguous and is_memory_pinned(a.ctypes.data):
        COUNT.reads(a)  # the device reads it later: CuPy stages pageable memory alone
    return out


def asarray(
    a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: bool = False
) -> ndarray:
    """`a` itself when it is a device array of that dtype, else a device array made of it."""
    return array(a, dtype, copy, order or "K", blocking=blocking)


def asanyarray(a: Any, dtype: Any = None, order: Any = None, *, blocking: bool = False) -> ndarray:
    """asarray."""
    return asarray(a, dtype, order)


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    """`a` in C order, at least one-dimensional as in CuPy."""
    r = array(a, dtype, None, "C")
    return r if r.ndim else r.reshape(1)


def asfortranarray(a: Any, dtype: Any = None) -> ndarray:
    """`a` in Fortran order."""
    return array(a, dtype, None, "F")


def copy(a: Any, order: str = "K") -> ndarray:
    """A copy of `a`."""
    if type(a) is not ndarray:
        return array(a, order=order)
    return a.copy(order)


def asnumpy(
    a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True
) -> np.ndarray:
    """A host copy of `a`; a host array is returned as it is."""
    if type(a) is ndarray:
        return a.get(stream, order, out, blocking)
    r = np.asarray(a, order=order)  # type: ignore[call-overload]
    if out is not None:
        out[...] = r
        return out
    return r


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """An uninitialised array."""
    return new(shape, dtype, order)


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """An array of zeros."""
    return new(shape, dtype, order, 0)


def ones(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """An array of ones."""
    return new(shape, dtype, order, 1)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    """An array of one value."""
    if isinstance(fill_value, np.ndarray):
        raise unsupported(fill_value)
    v = unwrap(fill_value)
    return new(shape, np.asarray(v).dtype if dtype is None else dtype, order, v)


def _like(prototype: Any, dtype: Any, order: str, subok: Any, shape: Any, fill: Any) -> ndarray:
    if subok is not None:
        raise TypeError("subok is not supported yet")
    if type(prototype) is not ndarray:
        raise unsupported(prototype)
    f = prototype.flags
    if order in "KA":
        order = "F" if f.f_contiguous and not f.c_contiguous else "C"
    return new(
        prototype.shape if shape is None else shape, prototype.dtype if dtype is None else dtype, order, fill
    )


def empty_like(
    prototype: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    """An uninitialised array of the shape and dtype of another."""
    return _like(prototype, dtype, order, subok, shape, None)


def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    """Zeros of the shape and dtype of another array."""
    return _like(a, dtype, order, subok, shape, 0)


def ones_like(a: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    """Ones of the shape and dtype of another array."""
    return _like(a, dtype, order, subok, shape, 1)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    """One value in the shape and dtype of another array."""
    return _like(a, dtype, order, subok, shape, unwrap(fill_value))


def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    """Writes `src` into `dst`, broadcasting."""
    if type(dst) is not ndarray:
        raise unsupported(dst)
    COUNT.launches += 1
    s = unwrap(src)
    COUNT.moved((dst._raw, s))
    if BFLOAT16 is not None and isinstance(s, np.ndarray) and BFLOAT16 in (s.dtype, dst.dtype):
        casting = "unsafe"
    with np.errstate(all="ignore"):
        np.copyto(dst._a, s, casting=casting, where=True if where is None else unwrap(where))  # type: ignore[arg-type]


def result_type(*args: Any) -> np.dtype:
    """The dtype that the promotion of the arguments gives."""
    return np.result_type(*[x.dtype if type(x) is ndarray else x for x in args])


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Whether a cast is allowed by the rule `casting`."""
    return np.can_cast(from_.dtype if type(from_) is ndarray else from_, to, casting)  # type: ignore[arg-type]


def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether two arrays share memory."""
    return np.shares_memory(a._raw, b._raw, max_work)


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether two arrays may share memory."""
    return np.may_share_memory(a._raw, b._raw)


def get_array_module(*args: Any) -> Any:
    """`cupy` if an argument is a device array, else numpy."""
    from .namespace import cupy

    return cupy if any(isinstance(a, ndarray) for a in args) else np


def from_dlpack(array: Any, device: Any = None, copy: Any = None) -> ndarray:
    """A device array that shares memory with another device array; host arrays are refused, as in CuPy."""
    if type(array) is ndarray:
        return view(array._raw.view(), array)
    kind, index = array.__dlpack_device__() if hasattr(array, "__dlpack_device__") else (None, 0)
    if kind == 1:
        raise TypeError(
            "CPU arrays cannot be directly imported to CuPy. "
            "Use `cupy.array(numpy.from_dlpack(input))` instead."
        )
    if kind != 2:
        raise TypeError(f"Unsupported array type: {type(array)}")
    host = np.from_dlpack(_OnHost(array.__dlpack__(stream=1)))
    return _at(host.ctypes.data, host.shape, host.dtype, host.strides, (array, host), index)


class _OnHost:
    """A capsule of simulated device memory, for NumPy to read its address, shape and strides."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = set_dlpack_device(capsule, 1)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule


def _at(ptr: int, shape: Any, dtype: Any, strides: Any, owner: Any, index: int = -1) -> ndarray:
    """A device array on memory that `owner` keeps."""
    from .memory import MemoryPointer, UnownedMemory

    n = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return ndarray(shape, dtype, MemoryPointer(UnownedMemory(ptr, n, owner, index), 0), strides)


def _from_interface(obj: Any) -> ndarray:
    """A view of what `__cuda_array_interface__` describes."""
    d = obj.__cuda_array_interface__
    return _at(d["data"][0], d["shape"], np.dtype(d["typestr"]), d.get("strides"), obj)


def as_strided(x: Any, shape: Any = None, strides: Any = None) -> ndarray:
    """A view of `x` with the given shape and strides; nothing is checked, as in CuPy."""
    if type(x) is not ndarray:
        raise unsupported(x)
    return view(np.lib.stride_tricks.as_strided(x._raw, shape, strides), x)


def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> ndarray:
    """A view of all windows of a shape."""
    if type(x) is not ndarray:
        raise unsupported(x)
    return view(np.lib.stride_tricks.sliding_window_view(x._raw, window_shape, axis, writeable=writeable), x)


def repeat(a: Any, repeats: Any, axis: Any = None) -> ndarray:
    """`a` with each element repeated; `repeats` is a number or a list of them, never a device array."""
    if isinstance(repeats, ndarray):
        raise ValueError("cupy.ndaray cannot be specified as `repeats` argument.")
    if type(a) is not ndarray:
        raise unsupported(a)
    COUNT.launches += 1
    return adopt(np.repeat(a._a, repeats, axis))


def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None) -> ndarray:
    """`a` limited to [a_min, a_max]."""
    if type(a) is not ndarray:
        raise unsupported(a)
    if a_min is None and a_max is None:
        raise ValueError("array_clip: must set either max or min")
    COUNT.launches += 1
    dt, x = a.dtype, a._a
    if dt == BFLOAT16:  # the ufunc has no such row, and no bound of its own for one that is missing
        if a_min is None or a_max is None:
            raise TypeError(f"Unsupported type {type(None)}")
        dt, x = np.dtype(np.float32), x.astype(np.float32)
    lo, hi = (
        np.asarray(v, dt) if type(v) in (int, float) and dt.kind in "fV" else unwrap(v)
        for v in (a_min, a_max)
    )
    with np.errstate(all="ignore"):
        r = x if lo is None else np.maximum(x, lo)
        r = r if hi is None else np.minimum(r, hi)
    if out is None:
        return adopt(np.ascontiguousarray(r) if r.ndim else np.asarray(r))
    out._a[...] = r
    return out


def broadcast_arrays(*args: Any) -> list[ndarray]:
    """The arguments broadcast against each other, as views."""
    shape = np.broadcast_shapes(*(a.shape for a in args))
    return [view(np.broadcast_to(a._raw, shape), a) for a in args]


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> ndarray:
    """A 0-d array: whether shapes and elements agree."""
    COUNT.launches += 1
    return adopt(np.asarray(np.array_equal(unwrap(a1), unwrap(a2), equal_nan)))


OWN: dict[str, dict[str, Any]] = {
    "cupy": {
        f.__name__: f
        for f in (
            array,
            asarray,
            asanyarray,
            ascontiguousarray,
            asfortranarray,
            copy,
            asnumpy,
            empty,
            zeros,
            ones,
            full,
            empty_like,
            zeros_like,
            ones_like,
            full_like,
            copyto,
            result_type,
            can_cast,
            shares_memory,
            may_share_memory,
            get_array_module,
            from_dlpack,
            repeat,
            clip,
            broadcast_arrays,
            array_equal,
        )
    },
    "cupy.lib.stride_tricks": {"as_strided": as_strided, "sliding_window_view": sliding_window_view},
}
