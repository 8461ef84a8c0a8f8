"""`Tensor`: an array that records what is computed from it, and `Parameter`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import ops  # noqa: F401  (fills the registry)
from .autograd import hooks as _hooks
from .autograd import inplace as _inplace
from .autograd.engine import Engine
from .autograd.impl import TensorImpl, describe, require_differentiable
from .autograd.mode import GRAD, mode
from .autograd.node import Node
from .autograd.record import _PARAMETER, RECORDED, recorder
from .errors import DtypeError, GradError, LucidError, ShapeError
from .ops.registry import OPS
from .storage.backend import Backend, backend_of
from .storage.device import Device
from .storage.dtype import as_dtype, get_default_dtype, is_differentiable
from .storage.storage import Storage, ViewStorage

F = RECORDED


class TransferNode(Node):
    """The backward step of a copy between devices: the gradient travels back."""

    __slots__ = ("backend", "source")
    node_name = "to_device"

    def __init__(self, edge: Any, backend: Backend, source: Backend) -> None:
        super().__init__((edge,))
        self.backend, self.source = backend, source

    def apply(self, g: Any) -> tuple[Any]:
        return (self.source.from_numpy(self.backend.to_numpy(g)),)

    def apply_for_graph(self, g: Any) -> tuple[Any]:
        return (g.to(self.source.device),)


class Tensor(TensorImpl):
    """An n-dimensional array on a device that takes part in automatic differentiation.

    Made by `lucid.tensor(...)`, by creation functions, and by operations. Its methods are the functions of `lucid` with the tensor as
    first argument.

    >>> import lucid
    >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    __slots__ = ()
    __array_priority__ = 1000

    # ---- what it is ----

    @property
    def array(self) -> Any:
        """The raw array (NumPy or CuPy); shares memory with the tensor."""
        return self.storage.array

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self.storage.array.shape

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return self.storage.array.shape if dim is None else self.storage.array.shape[dim]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.storage.array.ndim

    def dim(self) -> int:
        """The number of dimensions."""
        return self.storage.array.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self.storage.array.size

    nelement = numel

    @property
    def dtype(self) -> Any:
        """The data type: a NumPy dtype."""
        return self.storage.array.dtype

    @property
    def device(self) -> Device:
        """The device that holds the data."""
        return self.storage.backend.device

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a CUDA device."""
        return self.storage.backend.device.type == "cuda"

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.storage.array.itemsize

    element_size = lambda self: self.storage.array.itemsize  # noqa: E731

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.storage.array.nbytes

    def stride(self, dim: int | None = None) -> Any:
        """Elements between neighbours along each dimension, or along one."""
        strides = tuple(s // max(self.itemsize, 1) for s in self.storage.array.strides)
        return strides if dim is None else strides[dim]

    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        return bool(self.storage.array.flags.c_contiguous)

    def is_floating_point(self) -> bool:
        """Whether the dtype is a real floating one."""
        return is_differentiable(self.dtype) and self.dtype.kind != "c"

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self.dtype.kind == "c"

    def data_ptr(self) -> int:
        """The address of the first element."""
        a = self.storage.array
        return a.ctypes.data if isinstance(a, np.ndarray) else a.data.ptr

    def __len__(self) -> int:
        if not self.ndim:
            raise ShapeError("len: expected a tensor with at least one dimension, got a 0-d tensor")
        return self.shape[0]

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        if self.storage.array.size != 1:
            raise LucidError(f"bool: the truth value of a tensor with {self.numel()} elements ({describe(self)}) is ambiguous; use .any() or .all()")
        return bool(self.storage.array.reshape(()))

    def __float__(self) -> float:
        return builtins.float(self.item())

    def __int__(self) -> int:
        return builtins.int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iub":
            raise DtypeError(f"index: only integer tensors can be used as an index, got {describe(self)}")
        return builtins.int(self.item())

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise ShapeError("iter: cannot iterate over a 0-d tensor; use .item()")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __repr__(self) -> str:
        a = self.storage.backend.to_numpy(self.storage.array)
        body = np.array2string(a, separator=", ", prefix="tensor(", threshold=1000, precision=4) if a.ndim else np.array2string(np.asarray(a), precision=4)
        parts = [body]
        if self.device.type != "cpu":
            parts.append(f"device='{self.device}'")
        if self.dtype not in (get_default_dtype(), np.int64, np.bool_) or not a.size:
            parts.append(f"dtype={self.dtype.name}")
        if self.grad_fn is not None:
            parts.append(f"grad_fn=<{self.grad_fn.name()}>")
        elif self.requires_grad:
            parts.append("requires_grad=True")
        return f"{'Parameter containing:' + chr(10) if isinstance(self, Parameter) else ''}tensor({', '.join(parts)})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if not self.ndim and spec else repr(self)

    # ---- leaving lucid ----

    def item(self) -> Any:
        """The only element as a Python number (waits for the device)."""
        if self.storage.array.size != 1:
            raise ShapeError(f"item: expected a tensor with one element, got {describe(self)}; use .tolist()")
        return self.storage.array.item()

    def tolist(self) -> Any:
        """The elements as nested Python lists."""
        return self.storage.backend.to_numpy(self.storage.array).tolist()

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """The data as a NumPy array; on the CPU it shares memory with the tensor.

        Raises for tensors that require grad or live on a GPU unless `force` is given (which detaches and copies to the host).
        """
        if not force:
            if self.requires_grad:
                raise GradError("numpy: the tensor requires grad, so its data would leave the graph; use .detach().numpy()")
            if self.is_cuda:
                raise LucidError(f"numpy: the tensor is on {self.device}; use .cpu().numpy()")
        return self.storage.backend.to_numpy(self.storage.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        a = self.numpy()
        return np.array(a, dtype, copy=True) if copy else np.asarray(a, dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.detach().storage.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.storage.array.__dlpack_device__()

    def __reduce__(self) -> Any:
        return _unpickle, (type(self), self.numpy(force=True), self.requires_grad and self.is_leaf, str(self.device))

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise GradError("deepcopy: only leaves can be copied deeply (this tensor has a grad_fn); use .detach().clone()")
        found = memo.get(id(self))
        if found is None:
            backend = self.storage.backend
            found = _wrap(backend.xp.array(self.storage.array, copy=True), backend, cls=type(self))
            found.requires_grad = self.requires_grad
            if self.grad is not None:
                found.grad = self.grad.detach().clone()
            memo[id(self)] = found
        return found

    # ---- devices and dtypes ----

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """The tensor on another device and/or in another dtype; itself when nothing changes. `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(other)`."""
        kwargs.pop("non_blocking", None)
        kwargs.pop("memory_format", None)
        copy = kwargs.pop("copy", False)
        device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        for a in args:
            if isinstance(a, TensorImpl):
                device, dtype = a.storage.backend.device, a.storage.array.dtype
            elif isinstance(a, (str, Device)) and not (isinstance(a, str) and a in _DTYPE_STRINGS):
                device = a
            elif isinstance(a, bool):
                pass
            elif isinstance(a, builtins.int):
                device = Device("cuda", a)
            elif a is not None:
                dtype = a
        if kwargs:
            raise TypeError(f"to: unexpected arguments {', '.join(kwargs)}")
        out = self
        if device is not None:
            target = backend_of(device)
            if target is not self.storage.backend:
                out = _transfer(out, target)
        if dtype is not None and as_dtype(dtype) is not out.storage.array.dtype:
            out = F.cast(out, as_dtype(dtype))
        return F.clone(out) if copy and out is self else out

    def cpu(self) -> Tensor:
        """The tensor in host memory."""
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Tensor:
        """The tensor on a CUDA device (the current one by default)."""
        return self.to(Device("cuda") if device is None else Device(device))

    def type(self, dtype: Any = None) -> Any:
        """The tensor in another dtype; the dtype's name when none is given."""
        return f"lucid.{self.dtype.name}" if dtype is None else self.to(dtype=dtype)

    def type_as(self, other: Tensor) -> Tensor:
        """The tensor with the dtype and device of another."""
        return self.to(other)

    def float(self) -> Tensor:
        """The tensor in float32."""
        return self.to(dtype="float32")

    def double(self) -> Tensor:
        """The tensor in float64."""
        return self.to(dtype="float64")

    def half(self) -> Tensor:
        """The tensor in float16."""
        return self.to(dtype="float16")

    def bfloat16(self) -> Tensor:
        """The tensor in bfloat16."""
        return self.to(dtype="bfloat16")

    def long(self) -> Tensor:
        """The tensor in int64."""
        return self.to(dtype="int64")

    def int(self) -> Tensor:
        """The tensor in int32."""
        return self.to(dtype="int32")

    def short(self) -> Tensor:
        """The tensor in int16."""
        return self.to(dtype="int16")

    def char(self) -> Tensor:
        """The tensor in int8."""
        return self.to(dtype="int8")

    def byte(self) -> Tensor:
        """The tensor in uint8."""
        return self.to(dtype="uint8")

    def bool(self) -> Tensor:
        """The tensor as bools: whether each element is nonzero."""
        return self.to(dtype="bool")

    def cfloat(self) -> Tensor:
        """The tensor in complex64."""
        return self.to(dtype="complex64")

    def cdouble(self) -> Tensor:
        """The tensor in complex128."""
        return self.to(dtype="complex128")

    # ---- autograd ----

    def backward(self, gradient: Any = None, retain_graph: Any = None, create_graph: Any = False, inputs: Any = None) -> None:
        """Nothing; writes gradients of this tensor into the `.grad` of every leaf below it (or of `inputs` only).

        gradient: the gradient of this tensor, needed unless it has one element. See `Engine.backward`.
        """
        if inputs is None:
            Engine.backward(self, gradient, builtins.bool(retain_graph), builtins.bool(create_graph))
            return
        from .autograd.functional import backward
        backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def requires_grad_(self, requires_grad: Any = True) -> Tensor:
        """The tensor itself, after setting whether it requires grad."""
        if requires_grad:
            require_differentiable(self.dtype)
        elif self.edge is not None:
            raise GradError("requires_grad_: only leaves can stop requiring grad (this tensor has a grad_fn); use .detach()")
        self.requires_grad = builtins.bool(requires_grad)
        return self

    def detach(self) -> Tensor:
        """The same data without history; shares memory and version with the tensor."""
        return TensorImpl.from_storage(ViewStorage(self.storage.array, self.storage))

    def detach_(self) -> Tensor:
        """The tensor itself, cut from its history."""
        if self.base is not None:
            raise GradError("detach_: a view cannot be detached in place; use .detach()")
        self.edge, self.requires_grad = None, False
        return self

    @property
    def data(self) -> Tensor:
        """The data without history; writing to it is not recorded."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        self.storage = value.storage
        self.base = None
        if self.accumulate is not None:
            self.accumulate.backend = value.storage.backend

    def clone(self, *, memory_format: Any = None) -> Tensor:
        """A copy of the tensor with the same history."""
        return F.clone(self)

    def register_hook(self, hook: Callable[..., Any]) -> _hooks.RemovableHandle:
        """A handle; `hook(grad)` runs in every backward pass on the tensor's gradient and may return another."""
        return _hooks.register_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[..., Any]) -> _hooks.RemovableHandle:
        """A handle; `hook(leaf)` runs after each write of the leaf's `.grad`."""
        return _hooks.register_post_accumulate_grad_hook(self, hook)

    def retain_grad(self) -> None:
        """Nothing; backward writes `.grad` although the tensor is not a leaf."""
        _hooks.retain_grad(self)

    @property
    def retains_grad(self) -> builtins.bool:
        """Whether `retain_grad` was called on this non-leaf."""
        return self.edge is not None and self.edge.hooks is not None and self.edge.hooks.retain is not None and self.edge.hooks.retain() is self

    # ---- in place ----

    def copy_(self, source: Any, non_blocking: Any = False) -> Tensor:
        """The tensor itself, after the values of `source` (broadcast, cast, from any device) were copied into it."""
        _inplace.check_writable(self, "copy_")
        source = source if isinstance(source, TensorImpl) else tensor(source, device=self.device)
        source = source.to(self.device, self.dtype)
        return _inplace.write(self, F.expand(source, self.shape) if source.shape != self.shape else source, "copy_")

    def __setitem__(self, index: Any, value: Any) -> None:
        from .functional.index import setitem
        setitem(self, index, value)

    def __getitem__(self, index: Any) -> Tensor:
        from .functional.index import getitem
        return getitem(self, index)

    # ---- operators ----

    def __rsub__(self, y: Any) -> Tensor:
        return F.sub(y, self)

    def __rtruediv__(self, y: Any) -> Tensor:
        return F.div(y, self)

    def __rpow__(self, y: Any) -> Tensor:
        return F.pow(y, self)

    def __rmatmul__(self, y: Any) -> Tensor:
        return F.matmul(y, self)

    def __pos__(self) -> Tensor:
        return self

    def __floordiv__(self, y: Any) -> Tensor:
        return F.floor_divide(self, y)

    def __rfloordiv__(self, y: Any) -> Tensor:
        return F.floor_divide(y, self)

    def __mod__(self, y: Any) -> Tensor:
        return F.remainder(self, y)

    def __rmod__(self, y: Any) -> Tensor:
        return F.remainder(y, self)


_OPERATORS = {
    "add": ("__add__", "__radd__"), "sub": ("__sub__",), "mul": ("__mul__", "__rmul__"), "div": ("__truediv__",), "neg": ("__neg__",), "pow": ("__pow__",), "abs": ("__abs__",),
    "matmul": ("__matmul__",), "eq": ("__eq__",), "ne": ("__ne__",), "lt": ("__lt__",), "le": ("__le__",), "gt": ("__gt__",), "ge": ("__ge__",),
    "bitwise_and": ("__and__", "__rand__"), "bitwise_or": ("__or__", "__ror__"), "bitwise_xor": ("__xor__", "__rxor__"), "bitwise_not": ("__invert__",),
    "left_shift": ("__lshift__",), "right_shift": ("__rshift__",),
}
_INPLACE_OPERATORS = {"__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__itruediv__": "div", "__ipow__": "pow", "__iand__": "bitwise_and",
                      "__ior__": "bitwise_or", "__ixor__": "bitwise_xor", "__ifloordiv__": "floor_divide", "__imod__": "remainder"}
_DTYPE_STRINGS = frozenset(("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128"))


class _LazyMethod:
    """Stands for an op's method until its first use: generating all recorders at import would cost 60 ms."""

    __slots__ = ("name", "make")

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self.make = name, make

    def __get__(self, instance: Any, owner: Any) -> Any:
        function = self.make()
        if vars(Tensor).get(self.name) is self:
            setattr(Tensor, self.name, function)
        return function if instance is None else function.__get__(instance, owner)


class Parameter(Tensor):
    """A tensor that a module registers as trainable when it is assigned as an attribute. Requires grad by default."""

    def __new__(cls, data: Any = None, requires_grad: Any = True) -> Parameter:
        t = TensorImpl.__new__(cls)
        source = data if isinstance(data, TensorImpl) else tensor(() if data is None else data)
        if requires_grad:
            require_differentiable(source.dtype)
        t.storage, t.requires_grad = source.storage, builtins.bool(requires_grad)
        t.edge = t.grad = t.accumulate = t.base = None
        return t

    def __init__(self, data: Any = None, requires_grad: Any = True) -> None:
        pass


TensorImpl.tensor_class = Tensor
_PARAMETER.append(Parameter)


def _attach() -> None:
    from .ops.registry import OPS as table
    for op in table.values():
        if op.method and op.method not in vars(Tensor):
            setattr(Tensor, op.method, _LazyMethod(op.method, lambda op=op: recorder(op)))  # type: ignore[misc]
        if op.inplace and f"{op.name}_" not in vars(Tensor):
            setattr(Tensor, f"{op.name}_", _LazyMethod(f"{op.name}_", lambda op=op: _inplace.method(recorder(op), f"{op.name}_")))  # type: ignore[misc]
    for name, methods in _OPERATORS.items():
        for m in methods:
            # Python calls x.__radd__(y) for y + x; these ops are symmetric, so both are the op itself.
            setattr(Tensor, m, _LazyMethod(m, lambda name=name: recorder(table[name])))  # type: ignore[misc]
    for m, name in _INPLACE_OPERATORS.items():
        if name in table:
            setattr(Tensor, m, _LazyMethod(m, lambda name=name: _inplace.method(recorder(table[name]), f"{name}_")))  # type: ignore[misc]


_attach()


def _wrap(array: Any, backend: Backend, requires_grad: Any = False, cls: Any = Tensor) -> Any:
    """A tensor without history around a raw array."""
    t = TensorImpl.__new__(cls)
    t.storage = Storage(array, backend)
    t.edge = t.grad = t.accumulate = t.base = None
    t.requires_grad = False
    if requires_grad:
        require_differentiable(array.dtype)
        t.requires_grad = True
    return t


def _unpickle(cls: Any, array: Any, requires_grad: Any, device: str) -> Any:
    backend = backend_of(device)
    return _wrap(backend.from_numpy(array), backend, requires_grad, cls)


def _transfer(x: Tensor, target: Backend) -> Tensor:
    source = x.storage.backend
    out = _wrap(target.from_numpy(source.to_numpy(x.storage.array)), target)
    if mode.flags & GRAD and x.requires_grad:
        out.edge, out.requires_grad = TransferNode(x.gradient_edge(), target, source), True
    return out


def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> Tensor:
    """A new leaf tensor with a copy of `data` (numbers, nested sequences, NumPy or CuPy arrays, tensors).

    dtype: kept for arrays; Python floats become the default dtype, ints int64, bools bool. device: the default device when None.

    >>> import lucid
    >>> lucid.tensor([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    backend = backend_of(device if device is not None else data.device if isinstance(data, TensorImpl) else None)
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(data, TensorImpl):
        array = data.storage.backend.to_numpy(data.storage.array) if data.storage.backend is not backend else data.storage.array
        array = array if data.storage.backend is backend else backend.from_numpy(array)
        return _wrap(backend.xp.array(array, dtype=wanted, copy=True), backend, requires_grad)
    if type(data) is backend.ndarray and backend.ndarray is not np.ndarray:
        return _wrap(backend.xp.array(data, dtype=wanted, copy=True), backend, requires_grad)
    array = _host_array(data)
    if wanted is None:
        wanted = as_dtype(array.dtype) if isinstance(data, (np.ndarray, np.generic)) or _holds_arrays(data) else _python_dtype(array)
    array = np.array(array, dtype=wanted, order="C", copy=True)
    return _wrap(backend.from_numpy(array), backend, requires_grad)


def _host_array(data: Any) -> np.ndarray[Any, Any]:
    try:
        if isinstance(data, (list, tuple)) and _holds_tensors(data):
            data = _unwrap_nested(data)
        array = np.asarray(data)
    except ValueError as error:
        raise ShapeError(f"tensor: expected nested sequences of equal lengths, got {describe(data)}: {error}") from error
    if array.dtype.kind in "OUSMm" :
        raise DtypeError(f"tensor: expected numbers, got {describe(data)} (which NumPy reads as {array.dtype}); convert the data to numbers first")
    return array


def _holds_tensors(data: Any) -> builtins.bool:
    return any(isinstance(d, TensorImpl) or isinstance(d, (list, tuple)) and _holds_tensors(d) for d in data)


def _holds_arrays(data: Any) -> builtins.bool:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return isinstance(data, (np.ndarray, np.generic, TensorImpl))


def _unwrap_nested(data: Any) -> Any:
    if isinstance(data, TensorImpl):
        return data.storage.backend.to_numpy(data.storage.array)
    return [_unwrap_nested(d) for d in data] if isinstance(data, (list, tuple)) else data


def _python_dtype(array: np.ndarray[Any, Any]) -> Any:
    if not array.size and array.dtype == np.float64:
        return get_default_dtype()
    kind = array.dtype.kind
    return {"f": get_default_dtype(), "c": as_dtype(complex), "b": as_dtype(bool)}.get(kind) or as_dtype(np.int64)


def is_tensor(x: Any) -> builtins.bool:
    """Whether `x` is a tensor."""
    return isinstance(x, TensorImpl)


__all__ = ["OPS", "Parameter", "Tensor", "is_tensor", "tensor"]
