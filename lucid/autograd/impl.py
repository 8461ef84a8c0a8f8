"""The tensor's core: storage, place in the graph, gradient. Arithmetic is attached in lucid/tensor.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import DeviceError, DtypeError, GradError, ShapeError
from ..storage.dtype import is_differentiable
from ..storage.storage import Storage, ViewStorage
from .node import AccumulateGrad, Edge, FuncOp, Node, Port
from .plan import NONE


class _Freed(Node):
    """Stands for the graph of a root whose backward pass has freed it."""

    __slots__ = ()
    node_name = "freed"
    validate_versions = FuncOp.validate_versions
    saved = None

    def name(self) -> str:
        return "backward"


FREED = _Freed()


class TensorImpl:
    """Array, backend, `requires_grad`, edge into the graph, and `.grad`.

    array, backend: the raw array and its device. storage: the array with its version; made when something
    first needs it (a saved value, a view, an in-place write), since most results never do (bench_overhead:
    chain no-grad 0.83 -> 0.75 us per op).
    edge: the node (or `Port`) that made this tensor; None for a leaf. accumulate: a leaf's
    AccumulateGrad, once it is used.
    base: for a view, (the tensor viewed, the op, its static arguments).
    """

    __slots__ = (
        "array",
        "backend",
        "_storage",
        "_requires_grad",
        "edge",
        "_grad",
        "accumulate",
        "base",
        "__weakref__",
    )
    array: Any
    backend: Any
    _storage: Storage | ViewStorage | None
    _requires_grad: bool
    edge: Node | None
    _grad: Any
    accumulate: AccumulateGrad | None
    base: tuple[Any, Any, tuple[Any, ...]] | None
    tensor_class: ClassVar[Any]

    if TYPE_CHECKING:
        # What lucid.autograd uses of Tensor, the only class that has instances.
        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def dtype(self) -> Any: ...
        @property
        def ndim(self) -> int: ...
        @property
        def device(self) -> Any: ...
        def item(self) -> Any: ...
        def to(self, *args: Any, **kwargs: Any) -> Any: ...
        def detach(self) -> Any: ...

    @classmethod
    def from_storage(cls, storage: Storage | ViewStorage, edge: Node | None = None) -> Any:
        """A tensor around a storage, made by `edge`.

        >>> import lucid
        >>> x = lucid.zeros(2)
        >>> lucid.Tensor.from_storage(x.storage).data_ptr() == x.data_ptr()
        True
        """
        t = cls.tensor_class.__new__(cls.tensor_class)
        t._storage, t.array, t.backend = storage, storage.array, storage.backend
        t.edge, t._requires_grad = edge, edge is not None
        t._grad = t.accumulate = t.base = None
        return t

    @property
    def storage(self) -> Storage | ViewStorage:
        """The array with its backend and version."""
        s = self._storage
        if s is None:
            s = self._storage = Storage(self.array, self.backend)
        return s

    @storage.setter
    def storage(self, storage: Storage | ViewStorage) -> None:
        self._storage, self.array, self.backend = storage, storage.array, storage.backend

    @property
    def requires_grad(self) -> bool:
        """Whether operations on the tensor are recorded.

        Assigning raises DtypeError for True on integers, GradError for False on what is no leaf.

        >>> import lucid
        >>> x = lucid.ones(2)
        >>> x.requires_grad = True
        >>> (x * 2).requires_grad
        True
        """
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        if requires_grad:
            require_differentiable(self.dtype)
        elif self.edge is not None:
            raise GradError(
                "requires_grad_: only leaves can stop requiring grad (this tensor has a grad_fn); "
                "use .detach()"
            )
        self._requires_grad = bool(requires_grad)

    @property
    def grad(self) -> Any:
        """The gradient of a leaf, after a backward pass; None before.

        Assigning raises ShapeError, DtypeError or DeviceError for a gradient that does not fit the tensor,
        GradError for what is no tensor.

        >>> import lucid
        >>> x = lucid.ones(2, requires_grad=True)
        >>> (x * 3).sum().backward()
        >>> x.grad
        tensor([3., 3.])
        """
        return self._grad

    @grad.setter
    def grad(self, grad: Any) -> None:
        if grad is not None:
            require_fits(grad, self)
        self._grad = grad

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor; None for a leaf, and after its graph was freed by backward."""
        edge = self.edge
        if edge is None or edge is FREED:
            return None
        return edge.node if type(edge) is Port else edge

    @property
    def output_nr(self) -> int:
        """Which output of `grad_fn` this tensor is."""
        return self.edge.input_nr if type(self.edge) is Port else 0

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor was not made by a recorded operation."""
        return self.edge is None

    @property
    def _version(self) -> int:
        return self.storage.version

    def gradient_edge(self) -> Edge:
        """The edge by which a gradient of this tensor enters the graph.

        >>> import lucid
        >>> x = lucid.tensor([1.0], requires_grad=True)
        >>> x.exp().gradient_edge().node.name()
        'ExpBackward'
        """
        edge = gradient_edge(self)
        return Edge(edge.node, edge.input_nr) if type(edge) is Port else Edge(edge, 0)


def leaf_edge(t: TensorImpl) -> AccumulateGrad:
    """The AccumulateGrad of a leaf, made at its first use."""
    node = t.accumulate
    if node is None:
        node = t.accumulate = AccumulateGrad(t)
    return node


def gradient_edge(t: TensorImpl) -> Node:
    """The node that takes a gradient of `t`; raises when `t` does not require grad.

    >>> import lucid
    >>> x = lucid.tensor([1.0], requires_grad=True)
    >>> lucid.autograd.graph.gradient_edge(x.exp()).name()
    'ExpBackward'
    """
    if not t._requires_grad:
        raise GradError(
            f"backward: expected a tensor that requires grad, got one ({describe(t)}) that does not and has "
            "no grad_fn; set requires_grad=True on the inputs before computing, and compute outside "
            "no_grad()"
        )
    return t.edge or leaf_edge(t)


def describe(t: Any) -> str:
    """dtype, shape and device in a message's words: `float32[3,4] cpu`."""
    if isinstance(t, TensorImpl):
        return (
            f"{t.storage.array.dtype.name}[{','.join(map(str, t.storage.array.shape))}] "
            f"{t.storage.backend.device}"
        )
    if isinstance(t, (list, tuple)) and any(isinstance(v, TensorImpl) for v in t):
        return f"{type(t).__name__} [{', '.join(map(describe, t))}]"
    text = repr(t)
    return f"{type(t).__name__} {text}" if len(text) < 40 else type(t).__name__


def require_differentiable(dtype: Any) -> None:
    """Nothing; raises unless tensors of `dtype` can require grad."""
    if not is_differentiable(dtype):
        raise DtypeError(
            f"requires_grad: only floating and complex tensors have gradients, got {dtype.name}; "
            "convert first, for example x.float()"
        )


def require_fits(grad: Any, t: TensorImpl) -> None:
    """Nothing; raises unless `grad` can be the gradient of `t`: of its shape and dtype, on its device."""
    if not isinstance(grad, TensorImpl):
        raise GradError(f"grad: expected a tensor or None, got {type(grad).__name__}")
    for what, error, came, expected, way in (
        ("shape", ShapeError, grad.shape, t.shape, "reshape it"),
        ("dtype", DtypeError, grad.dtype.name, t.dtype.name, f"convert it with .to(lucid.{t.dtype.name})"),
        ("device", DeviceError, grad.device, t.device, f"move it with .to({str(t.device)!r})"),
    ):
        if came != expected:
            raise error(f"grad: expected {what} {expected}, that of the tensor, got {came}; {way}")


def rebuild(n: FuncOp, i: int) -> Any:
    """Saved value `i` of a node as a tensor with its history, for `create_graph`."""
    plan = n.plan
    name, saved = plan.keep[i], n.saved
    if saved is None:
        n.validate_versions()
    storage = saved[i]  # type: ignore[index]
    if name in plan.op.outputs:
        if name not in plan.op.diff:
            return TensorImpl.from_storage(storage)
        return TensorImpl.from_storage(storage, Port(n, plan.op.diff.index(name)) if n.is_barrier else n)
    if plan.op.variadic:
        parts: Any = storage  # a _Several of the variadic op's tensors
        return tuple(_with_edge(s, e) for s, e in zip(parts, n.edges, strict=True))
    if storage is NONE:
        return None
    return _with_edge(storage, n.edges[plan.targets.index(name)] if name in plan.targets else None)


def _with_edge(storage: Storage, edge: Node | None) -> Any:
    if type(edge) is not AccumulateGrad:
        return TensorImpl.from_storage(storage, edge)
    t = TensorImpl.from_storage(storage)
    t._requires_grad, t.accumulate = True, edge
    return t
