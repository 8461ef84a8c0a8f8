"""Operands that are no tensors, and errors in an op's own words."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DtypeError, LucidError, ShapeError
from ..ops.describe import listed
from ..ops.registry import Op
from ..storage.backend import backend_of
from ..storage.dtype import ALL, category, get_default_dtype, of_number, result_type
from ..storage.storage import Storage
from .arguments import kind_of, unlike
from .impl import TensorImpl, describe

_NUMBERS = (int, float, bool, complex)


def operand(op: Op, value: Any, others: tuple[Any, ...]) -> Any:
    """A tensor for an operand that is not one: numbers become cached 0-d tensors
    beside the tensors they meet.
    """
    if isinstance(value, TensorImpl):
        return value
    beside = max(
        (o for o in others if isinstance(o, TensorImpl)),
        key=lambda o: category(o.storage.array.dtype),
        default=None,
    )
    kind = type(value)
    if kind in _NUMBERS or isinstance(value, (np.number, np.bool_)):
        if beside is None:
            return _constant(
                value,
                of_number(value, get_default_dtype())
                if kind is not int and kind is not bool
                else result_type([(np.asarray(value).dtype, 0)]),
                backend_of(),
            )
        array = beside.storage.array
        dtype = array.dtype if kind is float and array.dtype.num >= 11 else of_number(value, array.dtype)
        if op.dtype == "float" and dtype.num < 11:
            dtype = get_default_dtype()  # as the tensor will be: -1 is no uint8
        return _constant(value, dtype, beside.storage.backend)
    if isinstance(value, np.ndarray):
        if value.dtype not in ALL:
            raise DtypeError(
                f"{op.name}: expected an array of numbers or bools, got a NumPy array of {value.dtype}; "
                "convert it with .astype(...)"
            )
        return TensorImpl.from_storage(
            Storage(
                (beside.storage.backend if beside is not None else backend_of()).from_numpy(value),
                beside.storage.backend if beside is not None else backend_of(),
            )
        )
    raise DtypeError(
        f"{op.name}: expected a tensor or a number, got {describe(value)}; "
        "make a tensor of it with lucid.tensor(...)"
    )


_constants: dict[Any, Any] = {}


def _constant(value: Any, dtype: Any, backend: Any) -> Any:
    # 0-d arrays cost numpy 203 ns where a Python float costs 432 (numpy 2.4). Zero is not
    # cached, since 0.0 == -0.0.
    key = (value, dtype, backend.device)
    found = _constants.get(key)
    if found is None:
        found = TensorImpl.from_storage(Storage(backend.asarray(_checked(value, dtype)), backend))
        if value != 0 and value == value and type(value) in (int, float):
            if len(_constants) > 1024:
                _constants.clear()
            _constants[key] = found
    return found


def _checked(value: Any, dtype: Any) -> Any:
    with np.errstate(over="ignore"):
        if dtype.kind in "iu" and isinstance(value, int):
            return np.array(value & ((1 << 8 * dtype.itemsize) - 1), f"u{dtype.itemsize}").astype(dtype)
        return np.array(value, dtype)


# What CuPy raises when the device or the CUDA toolkit, not an argument, is the reason; and what to do.
_DEVICE = (
    "Launches are not waited for, so an earlier one may be the cause: CUDA_LAUNCH_BLOCKING=1 in the "
    "environment shows which. After a fault of a kernel the process can no longer use the device; start it "
    "again"
)
_TOOLKIT = (
    "CuPy lacks a part of the CUDA toolkit: pip install 'cupy-cuda13x[ctk]' (driver for CUDA 12: "
    "'cupy-cuda12x[ctk]')"
)
_NOT_OF_ARGUMENTS = {
    **dict.fromkeys(("CUDARuntimeError", "CUDADriverError", "CUBLASError", "CUSOLVERError"), _DEVICE),
    **dict.fromkeys(("CompileException", "NVRTCError", "DynamicLibNotFoundError", "ImportError"), _TOOLKIT),
}


def explained(op: Op, error: Exception, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Exception:
    """The error to raise instead of one from inside a forward: with the op's name and its arguments."""
    if isinstance(error, (LucidError, NotImplementedError, MemoryError)):
        return error
    names = op.tensors if not op.variadic else tuple(f"{op.tensors[0]}[{i}]" for i in range(len(tensors)))
    given = [f"{n}: {'None' if t is None else describe(t)}" for n, t in zip(names, tensors, strict=True)]
    given += [f"{n}={v!r}" for n, v in zip(op.statics, statics, strict=True) if v is not None]
    cure = _NOT_OF_ARGUMENTS.get(type(error).__name__)
    if cure is not None and any(t is not None and t.storage.backend.name == "cuda" for t in tensors):
        text = str(error).strip()
        return LucidError(f"{op.name}: CUDA reports {text[:500]} (got {', '.join(given)}). {cure}")
    kind, what = _reason(op, error, tensors, statics)
    if what is None:
        return kind(f"{op.name}: the arguments do not fit together: got {', '.join(given)} ({error})")
    return kind(f"{op.name}: {what} (got {', '.join(given)})")


def _reason(
    op: Op, error: Exception, tensors: tuple[Any, ...], statics: tuple[Any, ...]
) -> tuple[type[Exception], str | None]:
    """The class of the error, and the reason; None where only the library that raised knows it."""
    kind = kind_of(error)
    text = unlike(op.forward, dict(zip(op.statics, statics, strict=True)))
    if text is not None:
        return DtypeError, text
    if op.broadcast and kind in (DtypeError, ShapeError):
        text = _unlike_dtypes(op, tensors, statics) if kind is DtypeError else _unlike_shapes(tensors)
        if text is not None:
            return kind, text
    if str(error).startswith("Cannot cast"):
        return kind, "the dtypes do not go together; convert them to one that the op takes"
    if any(words in str(error) for words in _DIMENSIONS):
        return ShapeError, "an argument has too few or too many dimensions"
    return kind, None


# What Python and NumPy say when code that expects n dimensions meets another number of them.
_DIMENSIONS = (
    "tuple index out of range",
    "too many indices for array",
    "values to unpack",
    "zip() argument",
    "invalid index to scalar",
    "for array of dimension",
)


def _unlike_shapes(tensors: tuple[Any, ...]) -> str | None:
    """Why the shapes do not broadcast, or None where they do."""
    shapes = [t.storage.array.shape for t in tensors if t is not None]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return (
            f"shapes {listed(tuple(map(str, shapes)))} do not broadcast together: from the last dimension "
            "on, sizes must be equal or 1"
        )
    return None


# One dtype of each kind of numbers, and the kind's name.
_KINDS = {"bool": "bools", "int64": "integers", "float32": "floating numbers", "complex64": "complex numbers"}


def _unlike_dtypes(op: Op, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> str | None:
    """The kinds of numbers that a pointwise op takes, found by running it on one number of each kind; None
    where those that came are among them.
    """
    backend = next(t for t in tensors if t is not None).storage.backend
    came = [t.dtype for n, t in zip(op.tensors, tensors, strict=True) if t is not None and n not in op.mask]

    def taken(dtype: Any) -> bool:
        values = dict(zip(op.statics, statics, strict=True))
        for n, t in zip(op.tensors, tensors, strict=True):
            one = None if t is None else np.ones(1, t.dtype if n in op.mask else dtype)
            values[n] = one if one is None else backend.from_numpy(one)
        by_name = {p.name: values.pop(p.name) for p in op.parameters if p.kind is p.KEYWORD_ONLY}
        args = [values[p.name] for p in op.parameters if p.name in values]
        try:
            backend.quietly(getattr(backend.F, op.name), *args, **by_name)
        except Exception:
            return False
        return True

    kinds = [word for dtype, word in _KINDS.items() if taken(np.dtype(dtype))]
    if not kinds or all(map(taken, came)):
        return None
    got = max(came, key=category)
    return f"expected {listed(tuple(kinds), 'or')}, got {got.name}; " + (
        "take x.real or x.abs()"
        if got.kind == "c" and "floating numbers" in kinds
        else "convert with x.long()"
        if "floating numbers" not in kinds or got.kind == "b"
        else "convert with x.float()"
    )
