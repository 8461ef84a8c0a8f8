"""Operands that are no tensors, and errors in an op's own words."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DtypeError, IndexRangeError, LucidError, ShapeError
from ..ops.registry import Op
from ..storage.backend import backend_of
from ..storage.dtype import category, get_default_dtype, of_number, result_type
from ..storage.storage import Storage
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
        return _constant(value, dtype, beside.storage.backend)
    if isinstance(value, np.ndarray):
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


def explained(op: Op, error: Exception, tensors: tuple[Any, ...], statics: tuple[Any, ...]) -> Exception:
    """The error to raise instead of one from inside a forward: with the op's name and its arguments."""
    if isinstance(error, (LucidError, NotImplementedError, MemoryError)):
        return error
    names = op.tensors if not op.variadic else tuple(f"{op.tensors[0]}[{i}]" for i in range(len(tensors)))
    given = [f"{n}: {'None' if t is None else describe(t)}" for n, t in zip(names, tensors, strict=True)]
    given += [f"{n}={v!r}" for n, v in zip(op.statics, statics, strict=True) if v is not None]
    kind = (
        IndexRangeError
        if isinstance(error, IndexError)
        else DtypeError
        if isinstance(error, TypeError)
        else ShapeError
        if isinstance(error, ValueError)
        else LucidError
    )
    return kind(f"{op.name}: {error} (got {', '.join(given)})")
