"""What other libraries ask a tensor for: NumPy's functions, the array API namespace, einops.

NumPy functions run on the data of tensors that do not require grad and return tensors. Tensors that require
grad are refused, since their history would be lost; only NumPy's operators (`array * x` calls `np.multiply`)
become the recorded operation.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ..autograd.impl import TensorImpl, describe
from ..autograd.inplace import check_writable
from ..autograd.record import RECORDED as F
from ..errors import DtypeError, GradError
from ..storage.device import Device
from ..storage.dtype import ALL
from ..storage.storage import Storage, ViewStorage
from ..tensor import Tensor

# NumPy calls these when an array meets a tensor in `array <operator> tensor`.
_OPERATORS = {
    np.add: "add",
    np.subtract: "sub",
    np.multiply: "mul",
    np.true_divide: "div",
    np.floor_divide: "floor_divide",
    np.remainder: "remainder",
    np.power: "pow",
    np.matmul: "matmul",
    np.equal: "eq",
    np.not_equal: "ne",
    np.less: "lt",
    np.less_equal: "le",
    np.greater: "gt",
    np.greater_equal: "ge",
    np.bitwise_and: "bitwise_and",
    np.bitwise_or: "bitwise_or",
    np.bitwise_xor: "bitwise_xor",
    np.left_shift: "left_shift",
    np.right_shift: "right_shift",
}
# These write into their first argument.
_WRITERS = frozenset((np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis))


def _unwrapped(name: str, value: Any, found: list[Tensor]) -> Any:
    """`value` with its tensors' arrays; notes the tensors in `found`. GradError if one requires grad."""
    if isinstance(value, TensorImpl):
        if value.requires_grad:
            raise GradError(
                f"{name}: the tensor ({describe(value)}) requires grad, and NumPy's functions record "
                "nothing; use the function of lucid, or x.detach()"
            )
        found.append(value)  # type: ignore[arg-type]
        return value.storage.array
    if type(value) in (list, tuple):
        return type(value)(_unwrapped(name, v, found) for v in value)
    if type(value) is dict:
        return {k: _unwrapped(name, v, found) for k, v in value.items()}
    return value


def _wrapped(value: Any, found: list[Tensor]) -> Any:
    """`value` with tensors for its arrays of lucid's dtypes; views of a tensor's memory share its version."""
    if isinstance(value, (list, tuple)):
        parts = [_wrapped(v, found) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    backend = found[0].storage.backend
    if not isinstance(value, (backend.ndarray, np.generic)) or value.dtype not in ALL:
        return value
    array = backend.asarray(value)
    for t in found:
        if backend.xp.may_share_memory(array, t.storage.array):
            return TensorImpl.from_storage(ViewStorage(array, t.storage))
    return TensorImpl.from_storage(Storage(array, backend))


def _function_of(name: str, module: str, fallback: Any, tensor: Tensor) -> Callable[..., Any]:
    """NumPy's function, or the one of the same name for the tensor's arrays."""
    xp = tensor.storage.backend.xp
    if xp is np:
        return fallback
    where = xp
    for part in module.split(".")[1:]:
        where = getattr(where, part, None)
    found = getattr(where, name, None)
    if found is None:
        raise DtypeError(
            f"np.{name}: the arrays of {tensor.device} have no such function; use x.cpu().numpy()"
        )
    return found


def _array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """What a NumPy ufunc gives on tensors: a tensor. `out=` may name arrays or tensors."""
    name = f"np.{ufunc.__name__}"
    if method == "__call__" and not options and ufunc in _OPERATORS:
        known = (TensorImpl, np.ndarray, np.generic, int, float, complex)
        if not all(isinstance(v, known) for v in inputs):
            return NotImplemented
        return getattr(F, _OPERATORS[ufunc])(*inputs)
    outs = tuple(o for o in options.get("out", ()) if isinstance(o, TensorImpl))
    for o in outs:
        check_writable(o, name)
    found: list[Tensor] = []
    arrays = _unwrapped(name, inputs, found)
    options = _unwrapped(name, options, found)
    function = _function_of(ufunc.__name__, "numpy", ufunc, self)
    result = (function if method == "__call__" else getattr(function, method))(*arrays, **options)
    for o in outs:
        o.storage.version += 1
    if outs:
        return outs[0] if len(outs) == 1 else outs
    return result if "out" in options or result is None else _wrapped(result, found)


def _array_function(self: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """What a NumPy function gives on tensors: tensors for its arrays, and other results as they are."""
    name = f"np.{function.__name__}"
    out = kwargs.get("out")
    written = [t for t in (out, *(args[:1] if function in _WRITERS else ())) if isinstance(t, TensorImpl)]
    for t in written:
        check_writable(t, name)
    found: list[Tensor] = []
    args, kwargs = _unwrapped(name, args, found), _unwrapped(name, kwargs, found)
    result = _function_of(function.__name__, function.__module__, function, self)(*args, **kwargs)
    for t in written:
        t.storage.version += 1
    return out if out is not None else _wrapped(result, found)


def _array_namespace(self: Tensor, /, *, api_version: str | None = None) -> ModuleType:
    """`lucid.array_api`, the array API standard on tensors. api_version: "2021.12" to "2024.12", or None."""
    from .. import array_api

    if api_version is not None and api_version not in ("2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(
            f"__array_namespace__: expected an api_version from 2021.12 to 2024.12, got {api_version!r}"
        )
    return array_api


def _to_device(self: Tensor, device: Device | str, /, *, stream: Any = None) -> Tensor:
    """The tensor on another device; itself when it is there. Work is ordered by the current stream.

    >>> import lucid
    >>> lucid.zeros(2).to_device("cpu").device
    device(type='cpu')
    """
    return self.to(device)


_METHODS: dict[str, Callable[..., Any]] = {
    "__array_ufunc__": _array_ufunc,
    "__array_function__": _array_function,
    "__array_namespace__": _array_namespace,
    "to_device": _to_device,
}
for _name, _method in _METHODS.items():
    _method.__name__ = _method.__qualname__ = _name
    setattr(Tensor, _name, _method)
