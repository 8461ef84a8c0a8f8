"""Reads PyTorch's `.pt` files (the zip format of `torch.save`) without PyTorch and without running what they
say.

The pickle inside may only rebuild tensors and plain containers, and objects of classes that the program has
allowed (`SAFE`, empty): every other name in it is refused, so that loading a file from a stranger cannot
execute code. Format:
https://docs.pytorch.org/docs/stable/notes/serialization.html.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from ..errors import CheckpointError
from ..tensor import Tensor

_STORAGES: dict[str, Any] = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
    "ComplexFloatStorage": np.complex64,
    "ComplexDoubleStorage": np.complex128,
    "UntypedStorage": np.uint8,
}
_DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "complex128",
)


# "module.name" -> class, of which a file may contain objects (lucid.serialization.safe_globals).
SAFE: dict[str, type] = {}


class _Storage:
    """A storage's bytes, read once, and its dtype."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array


class _Dtype:
    """Stands for a storage class in the pickle; never called."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, data: bytes, read: Callable[[str], bytes], tensor_of: Callable[[np.ndarray[Any, Any]], Tensor]
    ) -> None:
        super().__init__(io.BytesIO(data))
        self._read, self._tensor_of = read, tensor_of
        self._storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _Dtype(_STORAGES[name])
        found = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor,
            ("torch._utils", "_rebuild_parameter"): self._parameter,
            ("torch", "Size"): tuple,
        }.get((module, name))
        if found is None and module == "torch" and name in _DTYPES:
            found = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        if found is None:
            found = SAFE.get(f"{module}.{name}")
        if found is None:
            raise CheckpointError(
                f"it contains {module}.{name}, which is not loaded because it could run code; expected "
                "tensors, numbers, strings, "
                "dicts and lists. Save model.state_dict() in PyTorch, or, for a class that you trust, allow "
                "it: lucid.serialization.add_safe_globals"
            )
        return found

    def persistent_load(self, identity: Any) -> _Storage:
        kind, storage, key, _, size = identity
        if kind != "storage" or not isinstance(storage, _Dtype) or not isinstance(key, str):
            raise CheckpointError(f"it refers to an object of unknown kind {kind!r}")
        found = self._storages.get(key)
        if found is None:
            data = self._read(f"data/{key}")
            if len(data) != size * storage.dtype.itemsize:
                raise CheckpointError(
                    f"storage {key} has {len(data)} bytes, expected {size} elements of {storage.dtype.name}"
                )
            found = self._storages[key] = _Storage(np.frombuffer(data, storage.dtype))
        return found

    def _tensor(
        self, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, *_: Any
    ) -> Tensor:
        if (
            not isinstance(storage, _Storage)
            or len(size) != len(stride)
            or any(type(n) is not int or n < 0 for n in (offset, *size, *stride))
        ):
            raise CheckpointError("a tensor in it has no valid storage, size or stride")
        array, item = storage.array, storage.array.itemsize
        if all(size):
            last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
            if last >= array.size:
                raise CheckpointError(
                    f"a tensor of size {tuple(size)} reaches beyond its storage of {array.size} elements"
                )
            view = np.lib.stride_tricks.as_strided(
                array[offset:], tuple(size), tuple(s * item for s in stride), writeable=False
            )
        else:
            view = np.empty(tuple(size), array.dtype)
        # A copy: tensors that shared a storage do not share memory here.
        tensor = self._tensor_of(np.array(view, order="C"))
        return tensor.requires_grad_(True) if requires_grad is True else tensor

    def _parameter(self, data: Any, requires_grad: Any, *_: Any) -> Tensor:
        if not isinstance(data, Tensor):
            raise CheckpointError("a parameter in it holds no tensor")
        return data.requires_grad_(bool(requires_grad))


def read(stream: BinaryIO, tensor_of: Callable[[np.ndarray[Any, Any]], Tensor]) -> Any:
    """The object in a `.pt` file; `tensor_of` makes a tensor of an array. Raises CheckpointError (without the
    file's name).
    """
    try:
        with zipfile.ZipFile(stream) as archive:
            names = archive.namelist()
            pickles = [name for name in names if name.endswith("/data.pkl") or name == "data.pkl"]
            if len(pickles) != 1:
                raise CheckpointError("it is a zip file, but not one of torch.save: it has no data.pkl")
            root = pickles[0][: -len("data.pkl")]
            order = archive.read(f"{root}byteorder") if f"{root}byteorder" in names else b"little"
            if order != b"little":
                raise CheckpointError(
                    f"its numbers have byte order {order!r}; save it on a little-endian machine"
                )
            return _Unpickler(
                archive.read(pickles[0]), lambda part: archive.read(root + part), tensor_of
            ).load()
    except CheckpointError:
        raise
    except Exception as error:  # zipfile and pickle raise a dozen kinds for damaged files
        raise CheckpointError(f"it is damaged ({type(error).__name__}: {str(error)[:100]})") from error
