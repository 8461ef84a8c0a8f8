"""Parameters and buffers: tensors that a module registers when they are assigned as attributes."""

from __future__ import annotations

from typing import Any, ClassVar

from ..errors import ShapeError
from ..storage.backend import backend_of
from ..storage.dtype import as_dtype, get_default_dtype
from ..storage.storage import Storage
from ..tensor import Parameter as Parameter
from ..tensor import Tensor, tensor


class Buffer(Tensor):
    """A tensor that a module registers as a buffer when it is assigned: part of its state, not trained.

    persistent: whether `state_dict` contains it.

    >>> import lucid
    >>> m = lucid.nn.Module()
    >>> m.mean = lucid.nn.Buffer(lucid.zeros(2))
    >>> list(m.state_dict())
    ['mean']
    """

    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Buffer:
        t = Tensor.__new__(cls)
        source = data if isinstance(data, Tensor) else tensor(() if data is None else data)
        t.storage, t._requires_grad = source.storage, source.requires_grad
        t.edge = t._grad = t.accumulate = t.base = None
        t.persistent = persistent
        return t

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        pass


class _Uninitialized:
    """What has no shape yet."""

    __slots__ = ()

    storage: Any
    dtype: Any
    becomes: ClassVar[type[Tensor]]

    @property
    def shape(self) -> tuple[int, ...]:
        """Raises ShapeError: there is no shape yet."""
        raise ShapeError("an uninitialized parameter has no shape yet; run the lazy module once, or load a "
                         "state_dict")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def materialize(self, shape: tuple[int, ...], device: Any = None, dtype: Any = None) -> None:
        """Nothing; there is this shape from now on, with values that are not set."""
        backend = self.storage.backend if device is None else backend_of(device)
        dtype = self.dtype if dtype is None else as_dtype(dtype)
        self.storage = Storage(backend.xp.empty(tuple(shape), dtype=dtype), backend)
        self.__class__ = self.becomes  # type: ignore[assignment]


def _nothing(device: Any, dtype: Any) -> Storage:
    backend = backend_of(device)
    return Storage(backend.xp.empty((0,), dtype=get_default_dtype() if dtype is None else as_dtype(dtype)),
                   backend)


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter whose shape is not known yet; `materialize(shape)` makes an ordinary one of it.

    >>> import lucid
    >>> p = lucid.nn.UninitializedParameter()
    >>> p.materialize((2, 3))
    >>> p.shape
    (2, 3)
    """

    becomes = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None,
                dtype: Any = None) -> UninitializedParameter:
        t = Tensor.__new__(cls)
        t.storage, t._requires_grad = _nothing(device, dtype), requires_grad
        t.edge = t._grad = t.accumulate = t.base = None
        return t

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> UninitializedParameter:
        return memo.setdefault(id(self), UninitializedParameter(self.requires_grad, self.device, self.dtype))

    def __reduce__(self) -> Any:
        return UninitializedParameter, (self.requires_grad, str(self.device), self.dtype.name)


class UninitializedBuffer(_Uninitialized, Buffer):
    """A buffer whose shape is not known yet; `materialize(shape)` makes an ordinary one of it.

    >>> import lucid
    >>> b = lucid.nn.UninitializedBuffer()
    >>> b.materialize((3,))
    >>> b.shape, b.requires_grad
    ((3,), False)
    """

    becomes = Buffer

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None,
                persistent: bool = True) -> UninitializedBuffer:
        t = Tensor.__new__(cls)
        t.storage, t._requires_grad = _nothing(device, dtype), requires_grad
        t.edge = t._grad = t.accumulate = t.base = None
        t.persistent = persistent
        return t

    def __init__(self, requires_grad: bool = False, device: Any = None, dtype: Any = None,
                 persistent: bool = True) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> UninitializedBuffer:
        return memo.setdefault(id(self), UninitializedBuffer(*self._arguments()))

    def __reduce__(self) -> Any:
        return UninitializedBuffer, self._arguments()

    def _arguments(self) -> tuple[Any, ...]:
        return self.requires_grad, str(self.device), self.dtype.name, self.persistent


def is_lazy(value: Any) -> bool:
    """Whether `value` is a parameter or buffer without a shape."""
    return isinstance(value, _Uninitialized)
