"""New tensors: filled with a value or a range, or from data that already exists."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ..autograd.inplace import check_writable, write
from ..autograd.out import written
from ..autograd.record import RECORDED as F
from ..errors import DtypeError, GradError, ShapeError
from ..storage.backend import backend_of
from ..storage.dtype import REAL_OF, as_dtype, bfloat16, category, get_default_dtype, int64
from ..tensor import Tensor, _wrap, tensor
from .registry import public

Shape = tuple[int, ...]


def shape_of(name: str, size: tuple[Any, ...]) -> Shape:
    """`f(2, 3)` and `f((2, 3))` as (2, 3); ShapeError for a negative size."""
    if len(size) == 1 and not isinstance(size[0], (int, np.integer, Tensor)):
        size = tuple(size[0])
    shape = tuple(int(n) for n in size)
    if any(n < 0 for n in shape):
        raise ShapeError(f"{name}: expected sizes >= 0, got {shape}")
    return shape


def given(out: Any, result: Tensor, name: str) -> Tensor:
    """`out` with `result` written into it; `result` when out is None."""
    return result if out is None else written(name, out, lambda: result, (), {})


def _number_dtype(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return as_dtype(bool)
    if isinstance(value, (int, np.integer)):
        return int64
    return as_dtype(complex) if isinstance(value, (complex, np.complexfloating)) else get_default_dtype()


def _new(
    name: str, size: tuple[Any, ...], fill: str, dtype: Any, device: Any, requires_grad: bool, out: Any
) -> Tensor:
    backend = backend_of(device if out is None else out.device)
    wanted = (get_default_dtype() if out is None else out.dtype) if dtype is None else as_dtype(dtype)
    return given(
        out,
        _wrap(getattr(backend.xp, fill)(shape_of(name, size), dtype=wanted), backend, requires_grad),
        name,
    )


@public()
def zeros(
    *size: Any, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of zeros; size as numbers or one tuple, the default dtype when None.

    >>> import lucid
    >>> lucid.zeros(2, 3).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return _new("zeros", size, "zeros", dtype, device, requires_grad, out)


@public()
def ones(
    *size: Any, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of ones; size as numbers or one tuple, the default dtype when None."""
    return _new("ones", size, "ones", dtype, device, requires_grad, out)


@public()
def empty(
    *size: Any,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor whose values are whatever its memory holds; write before reading."""
    return _new("empty", size, "empty", dtype, device, requires_grad, out)


@public()
def full(
    size: Any,
    fill_value: Any,
    *,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor with every element `fill_value`; the dtype of that Python number (bool, int64, default) when
    None.
    """
    backend = backend_of(device if out is None else out.device)
    fill_value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    wanted = (_number_dtype(fill_value) if out is None else out.dtype) if dtype is None else as_dtype(dtype)
    shape = shape_of("full", (size,))
    return given(
        out,
        _wrap(backend.quietly(backend.xp.full, shape, fill_value, dtype=wanted), backend, requires_grad),
        "full",
    )


@public()
def empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """An uninitialised tensor whose neighbours along dimension i lie stride[i] elements apart."""
    backend, shape = backend_of(device), shape_of("empty_strided", (size,))
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype)
    if len(stride) != len(shape) or any(s < 0 for s in stride):
        raise ShapeError(
            f"empty_strided: expected {len(shape)} strides >= 0 for size {shape}, got {tuple(stride)}"
        )
    length = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if all(shape) else 0
    memory = backend.xp.empty(length, dtype=wanted)
    array = backend.xp.lib.stride_tricks.as_strided(memory, shape, tuple(s * wanted.itemsize for s in stride))
    return _wrap(array, backend, requires_grad)


@public()
def eye(
    n: int,
    m: int | None = None,
    *,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The identity matrix [n, m] (m = n when None)."""
    backend = backend_of(device if out is None else out.device)
    rows, columns = shape_of("eye", (n, n if m is None else m))
    array = backend.xp.eye(rows, columns, dtype=get_default_dtype() if dtype is None else as_dtype(dtype))
    return given(out, _wrap(array, backend, requires_grad), "eye")


@public()
def arange(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... below `end`: ceil((end - start) / step) numbers. `arange(end)` starts at 0.

    int64 when all three are integers, else the default dtype; computed as start + i step in float64.
    """
    start, end = (0, start) if end is None else (start, end)
    start, end, step = (v.item() if isinstance(v, (Tensor, np.generic)) else v for v in (start, end, step))
    if step == 0 or not all(math.isfinite(v) for v in (start, end, step)):
        raise ShapeError(
            f"arange: expected finite bounds and a step other than 0, got start={start}, end={end}, "
            f"step={step}"
        )
    if (end - start) * step < 0:
        raise ShapeError(f"arange: a step of {step} does not lead from start={start} to end={end}")
    whole = all(isinstance(v, int) for v in (start, end, step))
    wanted = (int64 if whole else get_default_dtype()) if dtype is None else as_dtype(dtype)
    n = -(-(end - start) // step) if whole else math.ceil((end - start) / step)
    backend = backend_of(device if out is None else out.device)
    array = backend.xp.arange(n, dtype="int64" if whole else "float64")
    if step != 1:
        array *= step
    if start:
        array += start
    array = backend.quietly(array.astype, wanted, copy=False)
    return given(out, _wrap(array, backend, requires_grad), "arange")


@public("range")
def range_(
    start: Any = 0,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... up to and including `end`, in the default dtype."""
    start, end = (0, start) if end is None else (start, end)
    n = math.floor((end - start) / step) + 1
    return arange(
        start, start + step * (n - 0.5), step, dtype=dtype, device=device, requires_grad=requires_grad
    )


@public()
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` numbers from start to end, both included, at equal distances."""
    return _spaced("linspace", start, end, steps, None, dtype, device, requires_grad, out)


@public()
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """base to the power of `steps` exponents from start to end."""
    return _spaced("logspace", start, end, steps, base, dtype, device, requires_grad, out)


def _spaced(
    name: str,
    start: Any,
    end: Any,
    steps: int,
    base: float | None,
    dtype: Any,
    device: Any,
    requires_grad: bool,
    out: Any,
) -> Tensor:
    if steps < 0:
        raise ShapeError(f"{name}: expected steps >= 0, got {steps}")
    start, end = (v.item() if isinstance(v, Tensor) else v for v in (start, end))
    backend = backend_of(device if out is None else out.device)
    is_complex = isinstance(start, complex) or isinstance(end, complex)
    wanted = (as_dtype(complex) if is_complex else get_default_dtype()) if dtype is None else as_dtype(dtype)

    def numbers() -> Any:
        exponent = backend.xp.linspace(start, end, steps, dtype="complex128" if is_complex else "float64")
        return (exponent if base is None else base**exponent).astype(wanted)

    return given(out, _wrap(backend.quietly(numbers), backend, requires_grad), name)


def _like(name: str, fill: str) -> Callable[..., Tensor]:
    def like(
        x: Tensor,
        *,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        backend = x.storage.backend if device is None else backend_of(device)
        array = getattr(backend.xp, fill)(x.shape, dtype=x.dtype if dtype is None else as_dtype(dtype))
        return _wrap(array, backend, requires_grad)

    like.__name__ = like.__qualname__ = name
    like.__doc__ = f"`{fill}` with the shape, and unless given the dtype and device, of `x`."
    return public(name)(like)


zeros_like = _like("zeros_like", "zeros")
ones_like = _like("ones_like", "ones")
empty_like = _like("empty_like", "empty")


@public()
def full_like(
    x: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`full` with the shape, and unless given the dtype and device, of `x`."""
    return full(
        x.shape,
        fill_value,
        dtype=x.dtype if dtype is None else dtype,
        device=x.device if device is None else device,
        requires_grad=requires_grad,
    )


# ---- from data ----


@public()
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, without a copy where possible: a tensor itself, a NumPy array's memory (on the
    CPU), the memory of a CuPy array or of anything with `__cuda_array_interface__` (on its device), else a
    copy.
    """
    if isinstance(data, Tensor):
        wanted = data.dtype if dtype is None else as_dtype(dtype)
        target = data.storage.backend if device is None else backend_of(device)
        same = wanted == data.dtype and target is data.storage.backend
        return data if same else data.to(target.device, wanted)
    on_cuda = hasattr(data, "__cuda_array_interface__")
    if on_cuda and device is None:
        device = f"cuda:{data.device.id}" if hasattr(getattr(data, "device", None), "id") else "cuda"
    backend = backend_of(device)
    if on_cuda and backend.device.type == "cuda":
        # CuPy's own arrays, and those of other libraries by the protocol: the memory itself.
        data = backend.asarray(data)
    array: Any = data if isinstance(data, backend.ndarray) else None
    if array is not None and (dtype is None or as_dtype(dtype) == array.dtype):
        as_dtype(array.dtype)
        return _wrap(array, backend)
    if on_cuda:
        home = as_tensor(data) if array is None else _wrap(array, backend)
        return home.to(backend.device, home.dtype if dtype is None else as_dtype(dtype))
    return tensor(data, dtype=dtype, device=device)


@public()
def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """`as_tensor`, for array-API users. copy: True always copies; False raises ValueError where a copy would
    be needed.
    """
    if copy:
        return tensor(obj, dtype=dtype, device=device, requires_grad=requires_grad)
    result = as_tensor(obj, dtype, device)
    if copy is False and result is not obj and result.array is not obj:
        raise ValueError(
            f"asarray: copy=False, but {type(obj).__name__} to {result.dtype.name} on {result.device} "
            "needs a copy"
        )
    return (
        result.detach().requires_grad_(True)
        if requires_grad and result is obj
        else result.requires_grad_(True)
        if requires_grad
        else result
    )


@public()
def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A CPU tensor that shares the array's memory: a write to one is seen in the other. `lucid.tensor`
    copies.

    Raises DtypeError for other objects and for dtypes that lucid does not have (strings, objects, other byte
    orders).
    """
    if not isinstance(array, np.ndarray):
        raise DtypeError(
            f"from_numpy: expected a NumPy array, got {type(array).__name__}; use lucid.tensor for other data"
        )
    as_dtype(array.dtype)
    return _wrap(array, backend_of("cpu"))


@public()
def from_cupy(array: Any) -> Tensor:
    """A CUDA tensor that shares the memory of a CuPy array: a write to one is seen in the other. `x.array` is
    the way back.

    Raises DtypeError for other objects and for dtypes that lucid does not have.
    """
    if isinstance(array, np.ndarray) or not hasattr(array, "__cuda_array_interface__"):
        raise DtypeError(
            f"from_cupy: expected a CuPy array, got {type(array).__name__}; use lucid.tensor for other data"
        )
    return as_tensor(array)


def _cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """The memory of a CUDA tensor for other libraries (CuPy, Numba, PyTorch), without a copy.

    A CPU tensor has no such attribute; a tensor that requires grad raises, since its history would be lost.
    """
    if not self.is_cuda:
        raise AttributeError("__cuda_array_interface__: the tensor is on the CPU; use .cuda()")
    if self.requires_grad:
        raise GradError("__cuda_array_interface__: the tensor requires grad; use .detach()")
    return self.array.__cuda_array_interface__


setattr(Tensor, "__cuda_array_interface__", property(_cuda_array_interface))  # noqa: B010


@public("frombuffer")
def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A 1-d CPU tensor on the memory of a bytes-like object, which it shares."""
    try:
        array = np.frombuffer(buffer, as_dtype(dtype), count, offset)
    except ValueError as error:
        raise ShapeError(
            f"frombuffer: {error} (got {len(memoryview(buffer).cast('B'))} bytes for {as_dtype(dtype).name})"
        ) from None
    return from_numpy(array).requires_grad_(requires_grad)


@public("from_dlpack", "utils.dlpack.from_dlpack")
def from_dlpack(source: Any) -> Tensor:
    """A tensor that shares the memory of an array of another library (anything with `__dlpack__`), on its
    device.
    """
    kind, index = source.__dlpack_device__()
    # DLDeviceType of dlpack.h: kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3.
    backend = backend_of("cpu" if int(kind) in (1, 3) else f"cuda:{index}")
    return _wrap(backend.xp.from_dlpack(source), backend)


@public("to_dlpack", "utils.dlpack.to_dlpack")
def to_dlpack(x: Tensor) -> Any:
    """A DLPack capsule on the tensor's memory."""
    return x.__dlpack__()


# ---- methods ----


def new_zeros(
    self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Zeros with the dtype and device of the tensor unless given."""
    return zeros(*size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


def new_ones(
    self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Ones with the dtype and device of the tensor unless given."""
    return ones(*size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


def new_empty(
    self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """An uninitialised tensor with the dtype and device of the tensor unless given."""
    return empty(*size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


def new_full(
    self: Tensor,
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A filled tensor with the dtype and device of the tensor unless given."""
    return full(
        size, fill_value, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad
    )


def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A copy of `data` with the dtype and device of the tensor unless given."""
    return tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


@public("zero_")
def zero_(self: Tensor) -> Tensor:
    """The tensor itself, filled with zeros."""
    return _filled(self, 0, "zero_")


@public("fill_")
def fill_(self: Tensor, value: Any) -> Tensor:
    """The tensor itself, filled with `value`: a number, or a 0-d tensor, to which the gradient flows."""
    return _filled(self, value, "fill_")


@public("fill")
def fill(x: Tensor, value: Any) -> Tensor:
    """A tensor of x's shape, dtype and device with every element `value`."""
    return _filled(F.clone(x), value, "fill")


def _filled(x: Tensor, value: Any, name: str) -> Tensor:
    check_writable(x, name)
    backend = x.storage.backend
    if isinstance(value, Tensor):
        if value.ndim:
            raise ShapeError(f"{name}: expected a number or a 0-d tensor, got shape {value.shape}")
        filler = F.expand(F.cast(value, x.dtype) if value.dtype != x.dtype else value, x.shape)
    else:
        if isinstance(value, complex) and category(x.dtype) != 3:
            raise DtypeError(f"{name}: a complex value {value} does not fit a tensor of {x.dtype.name}")
        # A 0-d array seen with strides of 0: nothing of x's size is allocated.
        number = backend.quietly(backend.xp.asarray(value).astype, x.dtype)
        filler = _wrap(backend.xp.broadcast_to(number, x.shape), backend)
    if x.requires_grad:
        # What x was made of gets a gradient of zeros, as in PyTorch.
        everywhere = _wrap(backend.xp.broadcast_to(backend.xp.asarray(True), x.shape), backend)
        filler = F.where(everywhere, filler, x)
    return write(x, filler, name)


for _function in (new_zeros, new_ones, new_empty, new_full, new_tensor, zero_, fill_):
    setattr(Tensor, _function.__name__, _function)


# ---- limits of dtypes ----


class FloatInfo:
    """The limits of a floating dtype as Python floats: bits, eps, max, min, tiny, smallest_normal,
    resolution, dtype.
    """

    __slots__ = ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype")

    def __init__(self, dtype: Any) -> None:
        real: Any = REAL_OF.get(dtype, dtype)
        info: Any = ml_dtypes.finfo(real) if real == bfloat16 else np.finfo(real)
        self.bits, self.dtype = info.bits, real.name
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = float(info.resolution)

    def __repr__(self) -> str:
        return f"finfo({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


class IntInfo:
    """The limits of an integer dtype: bits, max, min, dtype."""

    __slots__ = ("bits", "max", "min", "dtype")

    def __init__(self, dtype: Any) -> None:
        info = np.iinfo(dtype)
        self.bits, self.max, self.min, self.dtype = info.bits, int(info.max), int(info.min), dtype.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


@public()
def finfo(dtype: Any = None) -> FloatInfo:
    """The limits of a floating (or complex) dtype; of the default dtype when None.

    >>> import lucid
    >>> lucid.finfo(lucid.bfloat16).eps
    0.0078125
    """
    dtype = get_default_dtype() if dtype is None else as_dtype(dtype)
    if category(dtype) < 2:
        raise DtypeError(f"finfo: expected a floating dtype, got {dtype.name}; use iinfo")
    return FloatInfo(dtype)


@public()
def iinfo(dtype: Any) -> IntInfo:
    """The limits of an integer dtype."""
    dtype = as_dtype(dtype)
    if category(dtype) != 1:
        raise DtypeError(f"iinfo: expected an integer dtype, got {dtype.name}; use finfo")
    return IntInfo(dtype)
