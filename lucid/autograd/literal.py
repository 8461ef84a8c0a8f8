"""Python data as arrays: what `lucid.tensor([[1, 2], [3, 4]])` reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DtypeError, ShapeError
from ..storage.dtype import as_dtype, get_default_dtype
from .impl import TensorImpl, describe


def host_array(data: Any) -> np.ndarray[Any, Any]:
    """`data` (numbers, nested sequences, arrays, tensors) as a NumPy array of numbers."""
    try:
        if isinstance(data, (list, tuple)) and _holds_tensors(data):
            data = _unwrap_nested(data)
        array = np.asarray(data)
    except ValueError as error:
        raise ShapeError(
            f"tensor: expected nested sequences of equal lengths, got {describe(data)}: {error}"
        ) from error
    if array.dtype.kind in "OUSMm":
        raise DtypeError(
            f"tensor: expected numbers, got {describe(data)} (which NumPy reads as {array.dtype}); "
            "convert the data to numbers first"
        )
    return array


def _holds_tensors(data: Any) -> bool:
    return any(isinstance(d, TensorImpl) or isinstance(d, (list, tuple)) and _holds_tensors(d) for d in data)


def holds_arrays(data: Any) -> bool:
    """Whether nested sequences hold arrays or tensors, whose dtype is kept, at the bottom."""
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return isinstance(data, (np.ndarray, np.generic, TensorImpl))


def _unwrap_nested(data: Any) -> Any:
    if isinstance(data, TensorImpl):
        return data.storage.backend.to_numpy(data.storage.array)
    return [_unwrap_nested(d) for d in data] if isinstance(data, (list, tuple)) else data


def python_dtype(array: np.ndarray[Any, Any]) -> Any:
    """The dtype that Python numbers take: the default float, int64, bool, or the default complex."""
    if not array.size and array.dtype == np.float64:
        return get_default_dtype()
    kind = array.dtype.kind
    return {"f": get_default_dtype(), "c": as_dtype(complex), "b": as_dtype(bool)}.get(kind) or as_dtype(
        np.int64
    )


# How tensors are printed (lucid.set_printoptions): arguments of np.array2string, and sci_mode.
PRINT: dict[str, Any] = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 75}


def printed(a: Any) -> str:
    """The elements of a host array as a tensor's text shows them."""
    options = {"max_line_width" if k == "linewidth" else k: v for k, v in PRINT.items() if k != "sci_mode"}
    if "sci_mode" in PRINT and a.dtype.kind == "f":
        digits = PRINT["precision"]
        write = np.format_float_scientific if PRINT["sci_mode"] else np.format_float_positional
        options["formatter"] = {"float_kind": lambda v: write(v, precision=digits, unique=False)}
    return np.array2string(np.asarray(a), separator=", ", prefix="tensor(" if a.ndim else "", **options)
