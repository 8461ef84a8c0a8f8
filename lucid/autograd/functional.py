"""`lucid.autograd.backward` and `grad`, and derivatives of functions: jacobian, hessian, vjp, jvp, hvp."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import GradError
from ..storage.storage import Storage
from .engine import Engine
from .impl import TensorImpl
from .mode import enable_grad


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Nothing; writes the gradients of several roots into the `.grad` of the leaves below them, in one pass.

    inputs: only these leaves (or interior tensors) get a `.grad`.

    >>> import lucid
    >>> x = lucid.tensor([1.0], requires_grad=True)
    >>> lucid.autograd.backward([x * 2, x * 3])
    >>> x.grad
    tensor([5.])
    """
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        Engine.backward(tensors, grad_tensors, retain, create_graph)
        return
    inputs = (inputs,) if isinstance(inputs, TensorImpl) else tuple(inputs)
    for t, g in zip(inputs, Engine.grad(tensors, grad_tensors, inputs, retain, create_graph), strict=True):
        if g is not None:
            t.grad = g if t.grad is None else t.grad + g


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of the sum of `outputs` with respect to `inputs`; writes no `.grad`.

    grad_outputs: a gradient per output, ones for scalars when None. allow_unused: None instead of an error
    for inputs outside the graph. materialize_grads: zeros instead of None. only_inputs: has no effect, as
    in PyTorch; here for programs that say True.

    >>> import lucid
    >>> x = lucid.tensor(3.0, requires_grad=True)
    >>> lucid.autograd.grad(x ** 2, x)
    (tensor(6.),)
    """
    if not only_inputs:
        warnings.warn("grad: only_inputs=False has no effect; use backward() for all leaves", stacklevel=2)
    if is_grads_batched:
        raise NotImplementedError(
            "grad: is_grads_batched is not supported; loop over the rows of grad_outputs"
        )
    unused = materialize_grads if allow_unused is None else allow_unused
    listed = (inputs,) if isinstance(inputs, TensorImpl) else tuple(inputs)
    found = Engine.grad(outputs, grad_outputs, listed, retain_graph, create_graph, allow_unused=unused)
    if materialize_grads:
        found = [_zeros(t) if g is None else g for t, g in zip(listed, found, strict=True)]
    return tuple(found)


def _zeros(t: Any) -> Any:
    return TensorImpl.from_storage(Storage(t.storage.backend.xp.zeros(t.shape, t.dtype), t.storage.backend))


def _inputs(inputs: Any) -> tuple[tuple[Any, ...], bool]:
    listed = (inputs,) if isinstance(inputs, TensorImpl) else tuple(inputs)
    return tuple(t.detach().clone().requires_grad_() for t in listed), isinstance(inputs, TensorImpl)


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(*inputs), product of `v` with the Jacobian).

    >>> import lucid
    >>> lucid.autograd.functional.vjp(lambda x: x ** 2, lucid.tensor([1.0, 3.0]), lucid.tensor([1.0, 1.0]))
    (tensor([1., 9.]), tensor([2., 6.]))
    """
    with enable_grad():
        listed, single = _inputs(inputs)
        out = func(*listed)
        found = grad(out, listed, v, create_graph=create_graph, allow_unused=True, materialize_grads=True)
    return out if create_graph else _detached(out), found[0] if single else found


def _detached(out: Any) -> Any:
    return out.detach() if isinstance(out, TensorImpl) else tuple(o.detach() for o in out)


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(*inputs), Jacobian times `v`).

    By differentiating the vector-Jacobian product, which is linear in its vector.

    >>> import lucid
    >>> lucid.autograd.functional.jvp(lambda x: x ** 2, lucid.tensor([1.0, 3.0]), lucid.tensor([1.0, 1.0]))
    (tensor([1., 9.]), tensor([2., 6.]))
    """
    with enable_grad():
        listed, _ = _inputs(inputs)
        out = func(*listed)
        if not isinstance(out, TensorImpl):
            raise GradError("jvp: expected a function that returns one tensor; take the outputs one by one")
        dummy = _zeros(out).requires_grad_()
        found = grad(out, listed, dummy, create_graph=True, allow_unused=True, materialize_grads=True)
        vectors = (
            (v,)
            if isinstance(v, TensorImpl)
            else v
            if v is not None
            else tuple(_zeros(t) + 1 for t in listed)
        )
        product: Any = sum((g * w).sum() for g, w in zip(found, vectors, strict=True))
        if not isinstance(product, TensorImpl) or not product.requires_grad:
            return _detached(out), _zeros(out)
        (result,) = grad(product, dummy, create_graph=create_graph, allow_unused=True, materialize_grads=True)
    return out if create_graph else out.detach(), result


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
) -> Any:
    """The Jacobian of `func`: for each output and input a tensor of shape output.shape + input.shape.

    >>> import lucid
    >>> lucid.autograd.functional.jacobian(lambda x: x ** 2, lucid.tensor([1.0, 3.0]))
    tensor([[2., 0.],
            [0., 6.]])
    """
    with enable_grad():
        listed, single = _inputs(inputs)
        out = func(*listed)
        outs: Sequence[Any] = (out,) if isinstance(out, TensorImpl) else tuple(out)
        table = []
        for o in outs:
            rows: list[list[Any]] = [[] for _ in listed]
            flat = o.reshape(-1)
            for i in range(flat.numel()):
                if not o.requires_grad:
                    found: Any = tuple(_zeros(t) for t in listed)
                else:
                    found = grad(
                        flat[i],
                        listed,
                        retain_graph=True,
                        create_graph=create_graph,
                        allow_unused=True,
                        materialize_grads=True,
                    )
                for row, g in zip(rows, found, strict=True):
                    row.append(g)
            from .record import RECORDED as F

            table.append(
                tuple(
                    F.reshape(F.cat(*[F.reshape(g, (1, *t.shape)) for g in row], dim=0), (*o.shape, *t.shape))
                    for row, t in zip(rows, listed, strict=True)
                )
            )
    result = tuple(row[0] if single else row for row in table)
    return result[0] if isinstance(out, TensorImpl) else result


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False) -> Any:
    """The Hessian of a scalar function of one tensor (or of several: a tuple of tuples).

    >>> import lucid
    >>> lucid.autograd.functional.hessian(lambda x: (x ** 3).sum(), lucid.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    single = isinstance(inputs, TensorImpl)

    def gradient(*xs: Any) -> Any:
        out = func(*xs)
        found = grad(out, xs, create_graph=True, allow_unused=True, materialize_grads=True)
        return found[0] if single else found

    return jacobian(gradient, inputs, create_graph=create_graph)


def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(*inputs), Hessian times `v`) for a scalar function.

    >>> import lucid
    >>> f = lambda x: (x ** 3).sum()
    >>> lucid.autograd.functional.hvp(f, lucid.tensor([1.0, 2.0]), lucid.tensor([1.0, 1.0]))
    (tensor(9.), tensor([ 6., 12.]))
    """
    with enable_grad():
        listed, single = _inputs(inputs)
        out = func(*listed)
        first = grad(out, listed, create_graph=True, allow_unused=True, materialize_grads=True)
        vectors = (v,) if isinstance(v, TensorImpl) else tuple(v)
        product: Any = sum((g * w).sum() for g, w in zip(first, vectors, strict=True))
        found = (
            grad(product, listed, create_graph=create_graph, allow_unused=True, materialize_grads=True)
            if product.requires_grad
            else tuple(_zeros(t) for t in listed)
        )
    return out if create_graph else out.detach(), found[0] if single else found


vhp = hvp


class _TensorType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TensorImpl)


class Variable(metaclass=_TensorType):
    """A tensor with the data of another: of PyTorch's early days.

    `isinstance(x, Variable)` holds for every tensor. volatile: the old word for `no_grad`; True is refused.

    >>> import lucid
    >>> from lucid.autograd import Variable
    >>> Variable(lucid.tensor([1.0]), requires_grad=True)
    tensor([1.], requires_grad=True)
    >>> isinstance(lucid.ones(2), Variable)
    True
    """

    def __new__(cls, data: Any, requires_grad: bool = False, volatile: bool = False) -> Any:
        if volatile:
            raise GradError("Variable: volatile is gone; run the computation under lucid.no_grad()")
        if not isinstance(data, TensorImpl):
            raise GradError(f"Variable: expected a tensor, got {type(data).__name__}; use lucid.tensor(...)")
        t: Any = data.detach()
        return t.requires_grad_(requires_grad)
