"""`Tensor`: an array that records what is computed from it, and `Parameter`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import ops  # noqa: F401  (fills the registry)
from .autograd import hooks as _hooks
from .autograd import inplace as _inplace
from .autograd.engine import Engine
from .autograd.impl import TensorImpl, describe, require_differentiable
from .autograd.literal import holds_arrays, host_array, python_dtype
from .autograd.operands import operand
from .autograd.record import PARAMETER, RECORDED
from .autograd.transfer import transfer
from .errors import DtypeError, GradError, LucidError, ShapeError
from .ops.registry import OPS
from .storage.backend import Backend, backend_of
from .storage.device import Device
from .storage.dtype import NAMES, as_dtype, get_default_dtype, is_differentiable
from .storage.storage import Storage, ViewStorage

F = RECORDED


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
            raise LucidError(
                f"bool: the truth value of a tensor with {self.numel()} elements ({describe(self)}) is ambiguous; use .any() or .all()"
            )
        return bool(self.storage.array.reshape(()))

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iub":
            raise DtypeError(f"index: only integer tensors can be used as an index, got {describe(self)}")
        return int(self.item())

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise ShapeError("iter: cannot iterate over a 0-d tensor; use .item()")
        # unbind makes one node for all rows; indexing them one by one would pad a full-size gradient for each.
        return iter(self.unbind(0))  # type: ignore[attr-defined]

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __repr__(self) -> str:
        a = self.storage.backend.to_numpy(self.storage.array)
        body = (
            np.array2string(a, separator=", ", prefix="tensor(", threshold=1000, precision=4)
            if a.ndim
            else np.array2string(np.asarray(a), precision=4)
        )
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
                raise GradError(
                    "numpy: the tensor requires grad, so its data would leave the graph; use .detach().numpy()"
                )
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
        return _unpickle, (
            type(self),
            self.numpy(force=True),
            self.requires_grad and self.is_leaf,
            str(self.device),
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise GradError(
                "deepcopy: only leaves can be copied deeply (this tensor has a grad_fn); use .detach().clone()"
            )
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
            elif isinstance(a, (str, Device)) and not (isinstance(a, str) and a in NAMES):
                device = a
            elif isinstance(a, bool):
                pass
            elif isinstance(a, int):
                device = Device("cuda", a)
            elif a is not None:
                dtype = a
        if kwargs:
            raise TypeError(f"to: unexpected arguments {', '.join(kwargs)}")
        out = self
        if device is not None:
            target = backend_of(device)
            if target is not self.storage.backend:
                out = transfer(out, target)
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

    # ---- autograd ----

    def backward(
        self, gradient: Any = None, retain_graph: Any = None, create_graph: Any = False, inputs: Any = None
    ) -> None:
        """Nothing; writes gradients of this tensor into the `.grad` of every leaf below it (or of `inputs` only).

        gradient: the gradient of this tensor, needed unless it has one element. See `Engine.backward`.
        """
        if inputs is None:
            Engine.backward(self, gradient, bool(retain_graph), bool(create_graph))
            return
        from .autograd.functional import backward

        backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def requires_grad_(self, requires_grad: Any = True) -> Tensor:
        """The tensor itself, after setting whether it requires grad."""
        if requires_grad:
            require_differentiable(self.dtype)
        elif self.edge is not None:
            raise GradError(
                "requires_grad_: only leaves can stop requiring grad (this tensor has a grad_fn); use .detach()"
            )
        self.requires_grad = bool(requires_grad)
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
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called on this non-leaf."""
        return (
            self.edge is not None
            and self.edge.hooks is not None
            and self.edge.hooks.retain is not None
            and self.edge.hooks.retain() is self
        )

    # ---- in place ----

    def copy_(self, source: Any, non_blocking: Any = False) -> Tensor:
        """The tensor itself, after the values of `source` (broadcast, cast, from any device) were copied into it."""
        _inplace.check_writable(self, "copy_")
        source = source if isinstance(source, TensorImpl) else tensor(source, device=self.device)
        source = source.to(self.device, self.dtype)
        return _inplace.write(
            self, F.expand(source, self.shape) if source.shape != self.shape else source, "copy_"
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        from .functional.index import setitem

        setitem(self, index, value)

    def __getitem__(self, index: Any) -> Tensor:
        from .functional.index import getitem

        return getitem(self, index)

    # ---- operators ----

    def __rsub__(self, y: Any) -> Tensor:
        return F.sub(operand(OPS["sub"], y, (self,)), self)

    def __rtruediv__(self, y: Any) -> Tensor:
        return F.div(operand(OPS["div"], y, (self,)), self)

    def __rpow__(self, y: Any) -> Tensor:
        return F.pow(operand(OPS["pow"], y, (self,)), self)

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


class Parameter(Tensor):
    """A tensor that a module registers as trainable when it is assigned as an attribute. Requires grad by default."""

    def __new__(cls, data: Any = None, requires_grad: Any = True) -> Parameter:
        t = TensorImpl.__new__(cls)
        source = data if isinstance(data, TensorImpl) else tensor(() if data is None else data)
        if requires_grad:
            require_differentiable(source.dtype)
        t.storage, t.requires_grad = source.storage, bool(requires_grad)
        t.edge = t.grad = t.accumulate = t.base = None
        return t

    def __init__(self, data: Any = None, requires_grad: Any = True) -> None:
        pass


TensorImpl.tensor_class = Tensor
PARAMETER[0] = Parameter


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


def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> Tensor:
    """A new leaf tensor with a copy of `data` (numbers, nested sequences, NumPy or CuPy arrays, tensors).

    dtype: kept for arrays; Python floats become the default dtype, ints int64, bools bool. device: the default device when None.

    >>> import lucid
    >>> lucid.tensor([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    backend = backend_of(
        device if device is not None else data.device if isinstance(data, TensorImpl) else None
    )
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(data, TensorImpl):
        array = (
            data.storage.backend.to_numpy(data.storage.array)
            if data.storage.backend is not backend
            else data.storage.array
        )
        array = array if data.storage.backend is backend else backend.from_numpy(array)
        return _wrap(backend.xp.array(array, dtype=wanted, copy=True), backend, requires_grad)
    if type(data) is backend.ndarray and backend.ndarray is not np.ndarray:
        return _wrap(backend.xp.array(data, dtype=wanted, copy=True), backend, requires_grad)
    array = host_array(data)
    if wanted is None:
        wanted = (
            as_dtype(array.dtype)
            if isinstance(data, (np.ndarray, np.generic)) or holds_arrays(data)
            else python_dtype(array)
        )
    array = np.array(array, dtype=wanted, order="C", copy=True)
    return _wrap(backend.from_numpy(array), backend, requires_grad)


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor."""
    return isinstance(x, TensorImpl)


__all__ = ["OPS", "Parameter", "Tensor", "is_tensor", "tensor"]
