"""Reads PyTorch's `.pt` files (the zip format of `torch.save`) without PyTorch and without running what they
say.

The pickle inside may only rebuild tensors, arrays and plain containers, and objects of classes that the
program has allowed (`SAFE`, empty): a table lists the names that it may use and another the operations, and
everything else is refused. So loading a file from a stranger cannot execute code, nor change an object that
was there before. Format:
https://docs.pytorch.org/docs/stable/notes/serialization.html.
"""

from __future__ import annotations

import argparse
import io
import math
import pickle
import re
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO, NoReturn

import ml_dtypes
import numpy as np

from ..errors import CheckpointError
from ..storage.device import Device
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
# The operations that torch.save and pickle write for the objects below. Without instances of classes (INST,
# OBJ), extensions and buffers; REDUCE, NEWOBJ and BUILD are those of _Unpickler.
_OPERATIONS = """
    PROTO FRAME MARK STOP POP POP_MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4
    FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8
    BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST
    APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS EMPTY_SET ADDITEMS FROZENSET GET BINGET LONG_BINGET PUT
    BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL BINPERSID
"""


# "module.name" -> class, of which a file may contain objects (lucid.serialization.safe_globals).
SAFE: dict[str, type] = {}


class _Storage:
    """A storage's bytes, read once, and its dtype."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array


class _Name:
    """Stands for a name of the pickle: what it makes of arguments, or the dtype of a storage class."""

    def __init__(self, make: Callable[..., Any] | None, dtype: Any = None) -> None:
        self.make, self.dtype = make, dtype


class _Number:
    """Stands for a NumPy dtype, whose byte order comes with BUILD."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[<>|]?[biufc]\d{1,2}", code):
            raise CheckpointError(f"it holds a NumPy array or number of dtype {code!r}, expected numbers")
        self.dtype = np.dtype(code)

    def order(self, state: Any) -> None:
        """Nothing; takes (version, byte order, ...)."""
        if type(state) is not tuple or len(state) < 2:
            raise CheckpointError("a NumPy dtype in it is not valid")
        self.dtype = self.dtype.newbyteorder(">" if state[1] == ">" else "=")


# ---- what names stand for ----


def _encode(text: str = "", encoding: str = "latin1") -> bytes:
    # How protocol 2 writes bytes; without arguments for empty ones.
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise CheckpointError("its bytes are not written as pickle writes them")
    return text.encode("latin1")


def _bytearray(data: Any = b"", encoding: str = "latin1") -> bytearray:
    return bytearray(data if isinstance(data, bytes) else _encode(data, encoding))


def _numpy_scalar(number: Any, data: Any) -> Any:
    if type(number) is not _Number or type(data) is not bytes or len(data) != number.dtype.itemsize:
        raise CheckpointError("a NumPy number in it is not valid")
    return np.frombuffer(data, number.dtype)[0]


def _numpy_array(*_: Any) -> np.ndarray[Any, Any]:
    # Its content comes with BUILD.
    return np.empty(0, np.int8)


_NAMES: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "Counter"): Counter,
    ("torch", "Size"): tuple,
    ("torch", "device"): Device,
    ("_codecs", "encode"): _encode,
    ("argparse", "Namespace"): argparse.Namespace,
    ("numpy", "dtype"): _Number,
    ("numpy", "ndarray"): _numpy_array,
}
for _module in ("builtins", "__builtin__"):
    _NAMES |= {(_module, "set"): set, (_module, "frozenset"): frozenset, (_module, "complex"): complex}
    _NAMES |= {(_module, "bytearray"): _bytearray, (_module, "bytes"): _encode}
for _module in ("numpy._core.multiarray", "numpy.core.multiarray"):
    _NAMES |= {(_module, "scalar"): _numpy_scalar, (_module, "_reconstruct"): _numpy_array}


class _Operations(dict[int, Callable[[Any], None]]):
    def __missing__(self, code: int) -> NoReturn:
        raise CheckpointError(f"its pickle has the operation {bytes([code])!r}, which could run code")


class _Unpickler(pickle._Unpickler):
    """The unpickler written in Python, whose table of operations can be cut down."""

    dispatch = _Operations(
        (code, pickle._Unpickler.dispatch[code])
        for code in (ord(getattr(pickle, name)) for name in _OPERATIONS.split())
    )

    stack: list[Any]

    def __init__(
        self, data: bytes, read: Callable[[str], bytes], tensor_of: Callable[[np.ndarray[Any, Any]], Tensor]
    ) -> None:
        super().__init__(io.BytesIO(data))
        self._read_part, self._tensor_of = read, tensor_of
        self._storages: dict[str, _Storage] = {}
        self._own: dict[tuple[str, str], Callable[..., Any]] = {
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor,
            ("torch._utils", "_rebuild_parameter"): self._parameter,
        }

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _Name(None, np.dtype(_STORAGES[name]))
        if module == "torch" and name in _DTYPES:
            return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        make: Callable[..., Any] | None = self._own.get((module, name), _NAMES.get((module, name)))
        if make is None:
            make = SAFE.get(f"{module}.{name}")
        if make is None:
            raise CheckpointError(
                f"it contains {module}.{name}, which is not loaded because it could run code; expected "
                "tensors, numbers, strings, dicts and lists. Save model.state_dict() in PyTorch, or, for a "
                "class that you trust, allow it: lucid.serialization.add_safe_globals"
            )
        return _Name(make)

    # ---- operations ----

    def _make(self) -> None:
        # REDUCE and NEWOBJ: name, arguments -> object.
        arguments = self.stack.pop()
        name = self.stack.pop()
        if type(name) is not _Name or name.make is None or type(arguments) is not tuple:
            raise CheckpointError("it calls something that cannot be called")
        self.stack.append(name.make(*arguments))

    def _make_new(self) -> None:
        # NEWOBJ: as REDUCE, but objects of allowed classes come without __init__.
        name = self.stack[-2]
        if type(name) is _Name and isinstance(name.make, type) and name.make in SAFE.values():
            self.stack[-2] = _Name(partial(name.make.__new__, name.make))
        self._make()

    dispatch[ord(pickle.REDUCE)] = _make
    dispatch[ord(pickle.NEWOBJ)] = _make_new

    def _build(self) -> None:
        # BUILD: object, state -> object, for the few kinds that have a state.
        state = self.stack.pop()
        built = self.stack[-1]
        if type(built) is np.ndarray:
            _fill(built, state)
        elif type(built) is _Number:
            built.order(state)
        elif type(built) in SAFE.values():
            self.stack.append(state)
            super().load_build()  # type: ignore[misc]
        elif type(state) is dict and _may_have(built, state):
            vars(built).update(state)
        else:
            raise CheckpointError(f"it gives a state to an object of type {type(built).__name__}")

    dispatch[ord(pickle.BUILD)] = _build

    def persistent_load(self, identity: Any) -> _Storage:
        kind, storage, key, _, size = identity
        if kind != "storage" or type(storage) is not _Name or storage.make or not isinstance(key, str):
            raise CheckpointError(f"it refers to an object of unknown kind {kind!r}")
        found = self._storages.get(key)
        if found is None:
            data = self._read_part(f"data/{key}")
            if len(data) != size * storage.dtype.itemsize:
                raise CheckpointError(
                    f"storage {key} has {len(data)} bytes, expected {size} elements of {storage.dtype.name}"
                )
            found = self._storages[key] = _Storage(np.frombuffer(data, storage.dtype))
        return found

    # ---- tensors ----

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


def _may_have(built: Any, attributes: dict[Any, Any]) -> bool:
    if type(built) is OrderedDict:
        return set(attributes) <= {"_metadata"}
    return type(built) is argparse.Namespace and all(type(key) is str for key in attributes)


def _fill(array: np.ndarray[Any, Any], state: Any) -> None:
    # The state of a NumPy array: (version, shape, dtype, Fortran order, bytes).
    _, shape, number, fortran, data = state
    if (
        type(shape) is not tuple
        or any(type(n) is not int or n < 0 for n in shape)
        or type(number) is not _Number
        or type(data) is not bytes
        or len(data) != math.prod(shape) * number.dtype.itemsize
    ):
        raise CheckpointError("a NumPy array in it is not valid")
    array.__setstate__((1, shape, number.dtype, bool(fortran), data))  # type: ignore[arg-type]


def _complete(value: Any) -> Any:
    """`value`, in which no stand-in of this file is left. Not recursive: a file may nest as it likes."""
    rest, seen = [value], set()
    while rest:
        v = rest.pop()
        if isinstance(v, (_Storage, _Name, _Number)):
            raise CheckpointError("it holds a bare storage or the name of a class; expected tensors")
        if isinstance(v, (dict, list, tuple, set, frozenset, argparse.Namespace)) and id(v) not in seen:
            seen.add(id(v))
            rest += vars(v).values() if isinstance(v, argparse.Namespace) else v
            rest += v.values() if isinstance(v, dict) else ()
    return value


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
            reader = _Unpickler(archive.read(pickles[0]), lambda part: archive.read(root + part), tensor_of)
            return _complete(reader.load())
    except CheckpointError:
        raise
    except Exception as error:  # zipfile and pickle raise a dozen kinds for damaged files
        raise CheckpointError(f"it is damaged ({type(error).__name__}: {str(error)[:100]})") from error
