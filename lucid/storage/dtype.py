"""Data types and PyTorch's rules for combining them.

A dtype is a NumPy dtype: `lucid.float32 == np.float32`. bfloat16 comes from ml_dtypes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import DtypeError

DType = np.dtype[Any]

bool_ = np.dtype(np.bool_)
uint8 = np.dtype(np.uint8)
int8 = np.dtype(np.int8)
int16 = np.dtype(np.int16)
int32 = np.dtype(np.int32)
int64 = np.dtype(np.int64)
float16 = np.dtype(np.float16)
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)
complex64 = np.dtype(np.complex64)
complex128 = np.dtype(np.complex128)

ALL: tuple[DType, ...] = (
    *(bool_, uint8, int8, int16, int32, int64),
    *(float16, bfloat16, float32, float64),
    *(complex64, complex128),
)
NAMES: dict[str, DType] = {
    "bool": bool_,
    "uint8": uint8,
    "int8": int8,
    "int16": int16,
    "short": int16,
    "int32": int32,
    "int": int32,
    "int64": int64,
    "long": int64,
    "float16": float16,
    "half": float16,
    "bfloat16": bfloat16,
    "float32": float32,
    "float": float32,
    "float64": float64,
    "double": float64,
    "complex64": complex64,
    "cfloat": complex64,
    "complex128": complex128,
    "cdouble": complex128,
}
_CATEGORY: dict[DType, int] = {
    bool_: 0,
    **dict.fromkeys((uint8, int8, int16, int32, int64), 1),
    **dict.fromkeys((float16, bfloat16, float32, float64), 2),
    complex64: 3,
    complex128: 3,
}
_PYTHON: dict[Any, DType | None] = {bool: bool_, int: int64, float: None, complex: None}
COMPLEX_OF: dict[DType, DType] = {
    float16: complex64,
    bfloat16: complex64,
    float32: complex64,
    float64: complex128,
    complex64: complex64,
    complex128: complex128,
}
REAL_OF: dict[DType, DType] = {complex64: float32, complex128: float64}

_default = [float32]


def get_default_dtype() -> DType:
    """The dtype of tensors made from Python floats.

    >>> import lucid
    >>> lucid.get_default_dtype()
    dtype('float32')
    """
    return _default[0]


def set_default_dtype(dtype: Any) -> None:
    """Nothing; Python floats become tensors of `dtype` from now on. Raises DtypeError for integers.

    >>> import lucid
    >>> lucid.set_default_dtype(lucid.float64)
    >>> lucid.tensor([1.0]).dtype
    dtype('float64')
    >>> lucid.set_default_dtype(lucid.float32)
    """
    dtype = as_dtype(dtype)
    if category(dtype) != 2:
        raise DtypeError(f"set_default_dtype: expected a floating dtype, got {dtype.name}")
    _default[0] = dtype


def as_dtype(dtype: Any) -> DType:
    """The lucid dtype for a NumPy dtype, a Python type or a name.

    >>> as_dtype(float), as_dtype("bfloat16").name
    (dtype('float32'), 'bfloat16')
    """
    if type(dtype) is np.dtype or isinstance(dtype, np.dtype):
        found = dtype if dtype in _CATEGORY else None
    elif isinstance(dtype, str):
        found = NAMES.get(dtype)
    elif isinstance(dtype, type) and dtype in _PYTHON:
        found = _PYTHON[dtype] or (_default[0] if dtype is float else COMPLEX_OF[_default[0]])
    else:
        try:
            found = np.dtype(dtype)
        except (TypeError, ValueError):
            found = None
        found = found if found in _CATEGORY else None
    if found is None:
        raise DtypeError(
            f"dtype: expected one of {', '.join(d.name for d in ALL)}, got {dtype!r}; convert the data first"
        )
    return ALL[ALL.index(found)]


def category(dtype: DType) -> int:
    """0 for bool, 1 for integers, 2 for floats, 3 for complex."""
    return _CATEGORY[dtype]


def is_floating(dtype: DType) -> bool:
    """Whether `dtype` is a real floating dtype."""
    return _CATEGORY.get(dtype) == 2


def is_differentiable(dtype: DType) -> bool:
    """Whether tensors of `dtype` can require grad: floats and complex."""
    return _CATEGORY.get(dtype, 0) >= 2


def promote_types(a: DType, b: DType) -> DType:
    """The smallest dtype that PyTorch would give for an operation on `a` and `b`.

    >>> [promote_types(a, b).name for a, b in ((int64, float16), (float16, bfloat16), (uint8, int8))]
    ['float16', 'float32', 'int16']
    """
    if a == b:
        return a
    low, high = sorted((a, b), key=_CATEGORY.__getitem__)
    if _CATEGORY[low] < 2:
        return high if _CATEGORY[high] != _CATEGORY[low] else as_dtype(np.promote_types(low, high))
    if _CATEGORY[high] == 3:
        wide = float64 in (low, high) or complex128 in (low, high)
        return complex128 if wide else complex64
    if {low, high} == {float16, bfloat16}:
        return float32
    return max((low, high), key=lambda d: d.itemsize)


def result_type(operands: Iterable[tuple[DType, int]]) -> DType:
    """The dtype of an operation on operands given as (dtype, priority).

    priority: 2 for tensors with dimensions, 1 for 0-d tensors, 0 for Python numbers. A lower priority counts
    only when its category is higher (PyTorch's `result_type`): int64 0-d with float16 1-d is float16; float32
    0-d with int64 1-d is float32.
    """
    best: dict[int, DType] = {}
    for dtype, priority in operands:
        best[priority] = promote_types(best[priority], dtype) if priority in best else dtype
    result: DType | None = None
    for priority in sorted(best, reverse=True):
        dtype = best[priority]
        if result is None:
            result = dtype
        elif _CATEGORY[dtype] > _CATEGORY[result]:
            if _CATEGORY[dtype] == 3 and _CATEGORY[result] == 2:
                result = COMPLEX_OF[result]
            elif priority == 0 and _CATEGORY[dtype] == 2:
                result = _default[0]
            else:
                result = dtype
    assert result is not None
    return result


def of_number(value: Any, dtype: DType) -> DType:
    """The dtype that the Python number `value` takes beside a tensor of `dtype`."""
    kind = (
        0
        if isinstance(value, (bool, np.bool_))
        else 1
        if isinstance(value, (int, np.integer))
        else 2
        if isinstance(value, (float, np.floating))
        else 3
    )
    if kind <= _CATEGORY[dtype]:
        return dtype
    if kind == 3:
        return COMPLEX_OF.get(dtype, COMPLEX_OF[_default[0]])
    return _default[0] if kind == 2 else int64
