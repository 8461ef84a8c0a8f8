"""Tensors from data that already exists: arrays, buffers, DLPack; most share its memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DtypeError, GradError, ShapeError
from ..storage.backend import backend_of, device_of
from ..storage.dtype import as_dtype
from ..tensor import Tensor, _wrap, tensor
from .registry import public


@public()
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, without a copy where possible.

    A tensor is itself; of a NumPy array (on the CPU), a CuPy array or anything with
    `__cuda_array_interface__` (on its device) the memory is shared; everything else is copied, as by
    `tensor`.

    >>> import numpy as np
    >>> import lucid
    >>> array = np.zeros(2)
    >>> x = lucid.as_tensor(array)
    >>> array[0] = 7
    >>> x
    tensor([7., 0.], dtype=float64)
    """
    if isinstance(data, Tensor):
        wanted = data.dtype if dtype is None else as_dtype(dtype)
        target = data.storage.backend if device is None else backend_of(device)
        same = wanted == data.dtype and target is data.storage.backend
        return data if same else data.to(target.device, wanted)
    if hasattr(data, "__cuda_array_interface__") and not isinstance(data, np.ndarray):
        # CuPy's own arrays, and those of other libraries by the protocol: the memory itself, where it lies.
        array = backend_of("cuda").asarray(data)
        as_dtype(array.dtype)
        home = _wrap(array, backend_of(device_of(array)))
        wanted = home.dtype if dtype is None else as_dtype(dtype)
        return home.to(home.device if device is None else device, wanted)
    backend = backend_of(device)
    array = data if isinstance(data, backend.ndarray) else None
    if array is not None and (dtype is None or as_dtype(dtype) == array.dtype):
        as_dtype(array.dtype)
        return _wrap(array, backend)
    return tensor(data, dtype=dtype, device=device)


@public()
def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """`as_tensor`, for array-API users.

    copy: True always copies; False raises ValueError where a copy would be needed.

    >>> import lucid
    >>> x = lucid.tensor([1.0, 2.0])
    >>> lucid.asarray(x) is x, lucid.asarray(x, copy=True) is x
    (True, False)
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
    """A CPU tensor that shares the array's memory: a write to one is seen in the other.

    `lucid.tensor` copies. Raises DtypeError for other objects and for dtypes that lucid does not have
    (strings, objects, other byte orders).

    >>> import numpy as np
    >>> import lucid
    >>> array = np.zeros(2)
    >>> x = lucid.from_numpy(array)
    >>> array[0] = 7
    >>> x
    tensor([7., 0.], dtype=float64)
    """
    if not isinstance(array, np.ndarray):
        raise DtypeError(
            f"from_numpy: expected a NumPy array, got {type(array).__name__}; use lucid.tensor for other data"
        )
    as_dtype(array.dtype)
    return _wrap(array, backend_of("cpu"))


@public()
def from_cupy(array: Any) -> Tensor:
    """A CUDA tensor that shares the memory of a CuPy array: a write to one is seen in the other.

    `x.array` is the way back. Raises DtypeError for other objects and for dtypes that lucid does not have.

    >>> import cupy  # doctest: +SKIP
    >>> import lucid
    >>> lucid.from_cupy(cupy.zeros(2))  # doctest: +SKIP
    tensor([0., 0.], device='cuda:0', dtype=float64)
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
    """A 1-d CPU tensor on the memory of a bytes-like object, which it shares.

    count: elements, -1 for all that fit; offset: bytes to skip. Raises ShapeError for a buffer that is too
    short.

    >>> import lucid
    >>> lucid.frombuffer(bytearray([1, 2, 3, 4]), dtype=lucid.uint8, offset=1)
    tensor([2, 3, 4], dtype=uint8)
    """
    try:
        array = np.frombuffer(buffer, as_dtype(dtype), count, offset)
    except ValueError as error:
        raise ShapeError(
            f"frombuffer: {error} (got {len(memoryview(buffer).cast('B'))} bytes for {as_dtype(dtype).name})"
        ) from None
    return from_numpy(array).requires_grad_(requires_grad)


@public("from_dlpack", "utils.dlpack.from_dlpack")
def from_dlpack(source: Any) -> Tensor:
    """A tensor that shares the memory of an array of another library, on its device.

    source: anything with `__dlpack__` and `__dlpack_device__`.

    >>> import numpy as np
    >>> import lucid
    >>> lucid.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    kind, index = source.__dlpack_device__()
    # DLDeviceType of dlpack.h: kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3.
    backend = backend_of("cpu" if int(kind) in (1, 3) else f"cuda:{index}")
    return _wrap(backend.xp.from_dlpack(source), backend)


@public("to_dlpack", "utils.dlpack.to_dlpack")
def to_dlpack(x: Tensor) -> Any:
    """A DLPack capsule on the tensor's memory, for `from_dlpack` of another library.

    >>> import lucid
    >>> type(lucid.to_dlpack(lucid.tensor([1.0]))).__name__
    'PyCapsule'
    """
    return x.__dlpack__()
