"""Data types: questions, promotion by the standard's table, and the namespace's self-description."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..autograd.record import RECORDED as F
from ..errors import DtypeError
from ..storage.device import Device, default_device
from ..storage.dtype import (
    ALL,
    COMPLEX_OF,
    DType,
    as_dtype,
    bool_,
    category,
    complex64,
    complex128,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    of_number,
    promote_types,
    uint8,
)
from ..tensor import Tensor, tensor

_NUMBERS = (bool, int, float, complex)

KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (bool_,),
    "signed integer": (int8, int16, int32, int64),
    "unsigned integer": (uint8,),
    "integral": (int8, int16, int32, int64, uint8),
    "real floating": tuple(d for d in ALL if category(d) == 2),
    "complex floating": (complex64, complex128),
}
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"] + KINDS["complex floating"]


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether `dtype` is of a kind, or of one in a tuple of kinds.

    A kind is a dtype, "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex
    floating" or "numeric".

    >>> import lucid
    >>> lucid.array_api.isdtype(lucid.float32, ("integral", "real floating"))
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ValueError(f"isdtype: expected one of {', '.join(KINDS)}, got {kind!r}")
        return dtype in KINDS[kind]
    return bool(dtype == as_dtype(kind))


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype of an operation on tensors, dtypes and Python numbers. Numbers never widen within their kind.

    >>> import lucid
    >>> lucid.array_api.result_type(lucid.int8, lucid.uint8, 3).name
    'int16'
    """
    numbers = [v for v in arrays_and_dtypes if isinstance(v, _NUMBERS)]
    dtypes = [
        v.dtype if isinstance(v, Tensor) else as_dtype(v)
        for v in arrays_and_dtypes
        if not isinstance(v, _NUMBERS)
    ]
    if not dtypes:
        raise ValueError("result_type: expected at least one array or dtype, got " + repr(arrays_and_dtypes))
    dtype = dtypes[0]
    for other in dtypes[1:]:
        dtype = promote_types(dtype, other)
    for number in numbers:
        dtype = of_number(number, dtype)
    return dtype


def together(*values: Any) -> tuple[Tensor, ...]:
    """`values` (tensors and Python numbers) as tensors of the one dtype that `result_type` gives."""
    dtype = result_type(*values)
    device = next(v.device for v in values if isinstance(v, Tensor))
    return tuple(
        tensor(v, dtype=dtype, device=device)
        if not isinstance(v, Tensor)
        else v
        if v.dtype == dtype
        else F.cast(v, dtype)
        for v in values
    )


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether `from_` (a tensor or dtype) promotes to `to` without loss of kind or width."""
    source = from_.dtype if isinstance(from_, Tensor) else as_dtype(from_)
    return bool(promote_types(source, as_dtype(to)) == as_dtype(to))


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """`x` in `dtype`; a copy even when nothing changes, unless copy=False."""
    dtype = as_dtype(dtype)
    if x.is_complex() and category(dtype) < 3:
        raise DtypeError(
            f"astype: expected a complex dtype for {x.dtype.name}, got {dtype.name}; use real or imag"
        )
    out = x.to(x.device if device is None else device, dtype)
    return F.clone(out) if copy and out is x else out


class finfo:
    """The limits of a floating dtype (of a complex one's parts): bits, eps, max, min, smallest_normal."""

    def __init__(self, type: Any, /) -> None:
        given = type.dtype if isinstance(type, Tensor) else as_dtype(type)
        if category(given) < 2:
            raise DtypeError(f"finfo: expected a floating dtype, got {given.name}; use iinfo")
        limits = ml_dtypes.finfo(given)
        self.bits, self.dtype = int(limits.bits), as_dtype(limits.dtype)
        self.eps, self.max, self.min = float(limits.eps), float(limits.max), float(limits.min)
        self.smallest_normal = float(limits.smallest_normal)


class iinfo:
    """The limits of an integer dtype: bits, max, min and dtype."""

    def __init__(self, type: Any, /) -> None:
        given = type.dtype if isinstance(type, Tensor) else as_dtype(type)
        if category(given) != 1:
            raise DtypeError(f"iinfo: expected an integer dtype, got {given.name}; use finfo")
        limits = np.iinfo(given)
        self.bits, self.max, self.min, self.dtype = int(limits.bits), int(limits.max), int(limits.min), given


class Info:
    """What the namespace can do, where, and in which dtypes."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing and data-dependent shapes work; NumPy's limit of 64 dimensions holds."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device of new tensors when none is named."""
        return default_device()

    def devices(self) -> list[Device]:
        """Every device that this process can use."""
        from ..cuda import device_count

        return [Device("cpu"), *(Device("cuda", i) for i in range(device_count()))]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of Python floats, complex numbers and integers, and of indices."""
        default = get_default_dtype()
        return {
            "real floating": default,
            "complex floating": COMPLEX_OF[default],
            "integral": int64,
            "indexing": int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """Every dtype of the standard that lucid has, or those of a kind, by name."""
        standard = [d for d in ALL if d in (bool_, float32, float64) or category(d) in (1, 3)]
        return {d.name: d for d in standard if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> Info:
    """An object that describes the namespace: its capabilities, devices and dtypes."""
    return Info()
