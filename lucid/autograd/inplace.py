"""In-place writes: what may be written, and what the write does to the graph.

The value is computed by the ordinary recorded op and copied into the buffer, whose address and version
counter stay. A tensor written through a view changes the graph of the tensor it views (`view_put`) and of
every other live view of the same memory, as in PyTorch.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

from ..errors import DtypeError, InplaceError, ShapeError
from ..ops.registry import OPS
from ..ops.signature import aliases
from ..storage.backend import Backend
from ..storage.dtype import category
from ..storage.storage import Storage, ViewStorage
from .arguments import RAW, refuse
from .impl import TensorImpl, describe
from .mode import GRAD, mode
from .node import FuncOp
from .record import NONE, RECORDED, build, recorder


def _root(x: Any) -> Any:
    while x.base is not None:
        x = x.base[0]
    return x


def check_writable(x: Any, name: str) -> None:
    """Nothing; raises when an in-place operation `name` on `x` would make a gradient wrong."""
    check_leaf(x, name)
    array = x.storage.array
    if array.size and any(s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True)):
        raise InplaceError(
            f"{name}: several elements of the tensor ({describe(x)}) share one place in memory (it was "
            "expanded); clone() it before writing"
        )


def check_leaf(x: Any, name: str) -> None:
    """Nothing; raises when `x` is a leaf that requires grad, or a view of one, and ops are recorded."""
    if mode.flags & GRAD and x._requires_grad:
        if x.edge is None:
            raise InplaceError(
                f"{name}: a leaf that requires grad ({describe(x)}) cannot be changed in place while "
                "operations are recorded; use the out-of-place form, or wrap the update in lucid.no_grad()"
            )
        root = _root(x)
        if root.edge is None and root._requires_grad:
            raise InplaceError(
                f"{name}: a view of a leaf that requires grad ({describe(root)}) cannot be changed in place "
                "while operations are recorded; use the out-of-place form, clone() the leaf first, "
                "or wrap the update in lucid.no_grad()"
            )


def write(x: Any, value: Any, name: str) -> Any:
    """`x`, after `value` (a tensor of its shape) was copied into its memory and into the graph."""
    array = x.storage.array
    new = value.storage.array
    if new.shape != array.shape:
        raise ShapeError(
            f"{name}: the result has shape {new.shape}, which does not fit the tensor's shape {array.shape}; "
            "an in-place operation cannot grow its tensor"
        )
    if new.dtype != array.dtype:
        if category(new.dtype) > category(array.dtype):
            raise DtypeError(
                f"{name}: a result of {new.dtype.name} cannot be stored in a tensor of {array.dtype.name}; "
                "convert the tensor first, or use the out-of-place form"
            )
        value = RECORDED.cast(value, array.dtype)
        new = value.storage.array
    keep_old_values(x, value.edge)
    if Backend.several:
        with x.backend.guard():
            array[...] = new
    else:
        array[...] = new
    x.storage.version += 1
    if mode.flags & GRAD and (
        value._requires_grad or x._requires_grad or (x.base is not None and _root(x)._requires_grad)
    ):
        rebase(x, value, name)
    return x


def keep_old_values(x: Any, node: Any) -> None:
    """Nothing; a node that saved the memory about to be overwritten gets a copy of it (`h.mul_(w)` needs the
    old h for w's gradient).
    """
    if not isinstance(node, FuncOp) or not node.saved:
        return
    root = x.storage.root
    if not any(getattr(s, "root", None) is root for s in node.saved):
        return
    with x.backend.guard():
        saved = tuple(
            Storage(s.array.copy(), s.backend) if getattr(s, "root", None) is root else s for s in node.saved
        )
    node.saved = saved
    versions = tuple(s.version for s in saved)
    node.versions = versions if any(versions) else 0


def rebase(x: Any, value: Any, name: str) -> None:
    """Nothing; `x` and all that shares its memory now come from `value` in the graph."""
    root = x
    while root.base is not None:
        parent, op, statics = root.base
        if op is None:
            raise InplaceError(
                f"{name}: this tensor is one of several views that one operation returned; "
                "changing it in place has no gradient. clone() it first"
            )
        put = OPS["view_put"]
        holder = TensorImpl.from_storage(parent.storage)
        mask = int(parent._requires_grad) | int(value._requires_grad) << 1
        if mask:
            build(
                put,
                mask,
                (parent, value),
                (parent.storage, value.storage),
                ((op.name, statics),),
                (holder,),
                parent.storage.backend,
            )
        root, value = parent, holder
    root.edge, root._requires_grad = value.edge, value._requires_grad
    if not value._requires_grad:
        root.edge = None
    if value.edge is None and value._requires_grad:
        # The new value is a leaf itself (x.copy_(leaf)): a clone node stands between them.
        root.edge = RECORDED.clone(value).edge
    for reference in root.storage.root.views or ():
        view = reference()
        if view is None or view.base is None:
            continue
        parent, op, statics = view.base
        if op is None:
            view.edge, view._requires_grad = root.edge, False
            continue
        renewed = _viewed(parent, op, statics)
        view.edge, view._requires_grad = renewed.edge, renewed._requires_grad


def _viewed(x: Any, op: Any, statics: tuple[Any, ...]) -> Any:
    if any(p.kind is p.KEYWORD_ONLY for p in op.parameters):
        return recorder(op)(x, **dict(zip(op.statics, statics, strict=True)))
    return recorder(op)(x, *statics)


def change_shape(x: Any, op: str, *statics: Any) -> Any:
    """`x` itself, which from now on is what the view `op` makes of it: `x.squeeze_()` and its like.

    The memory stays where it is, and its version counts one write more, as in PyTorch. A hidden tensor takes
    the place that `x` had: among the views of its memory, and as the base of views of `x`.
    """
    check_leaf(x, f"{op}_")
    before = TensorImpl.from_storage(x.storage, x.edge)
    before._requires_grad, before.accumulate, before.base = x._requires_grad, x.accumulate, x.base
    after = _viewed(before, OPS[op], statics)
    root = x.storage.root
    root.version += 1
    x.storage = ViewStorage(after.array, root)
    if mode.flags & GRAD:
        x.edge, x._requires_grad = after.edge, after._requires_grad
    views = root.views or []
    viewed = [v for v in (reference() for reference in views) if v is not None and v.base is not None]
    if x.base is None and not any(v.base[0] is x for v in viewed):
        return x
    # In the list of views parents stand before their children.
    root.views = [weakref.ref(before if v is x else v) for v in viewed if v is not after]
    for view in viewed:
        if view.base[0] is x:
            view.base = (before, *view.base[1:])
    x.base = (before, OPS[op], statics)
    root.views.append(weakref.ref(x))
    return x


def method(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The in-place method `name` of an op: computes out of place, then writes."""

    def inplace(x: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            check_writable(x, name)
            if kwargs:
                renamed = _renamed(function)
                kwargs = {renamed.get(k, k): v for k, v in kwargs.items()}
            return write(x, function(x, *args, **kwargs), name)
        except RAW as error:
            refuse(name, function, error, (x, *args), kwargs)
            raise

    inplace.__name__ = inplace.__qualname__ = name
    inplace.__doc__ = document(name)
    inplace.__wrapped__ = function  # type: ignore[attr-defined]  # whose signature help() shows
    return inplace


@cache
def _renamed(function: Callable[..., Any]) -> dict[str, str]:
    """NumPy's names of a function's arguments -> its own: "axis" -> "dim"."""
    return dict(aliases(inspect.signature(function).parameters.values()))


def document(name: str) -> str:
    """The docstring of the in-place form `name` of an op."""
    own = name.rstrip("_")
    return (
        f"The tensor itself, after the result of `{own}` was written into it.\n\n"
        f"Arguments as of `{own}`. Raises InplaceError for a leaf that requires grad while operations are\n"
        "recorded, ShapeError or DtypeError for a result that does not fit."
    )


__all__ = ["NONE", "change_shape", "check_writable", "method", "rebase", "write"]
