"""Indexing with Python's and PyTorch's forms: x[...], gather and scatter, masks, sorting, searching, sets."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..autograd.inplace import check_writable, write
from ..autograd.inplace import method as in_place
from ..autograd.mode import GRAD, mode
from ..autograd.record import RECORDED as F
from ..errors import DtypeError, IndexRangeError, LucidError, ShapeError
from ..ops.common import in_dtype, named, normalize_dim, renamed
from ..ops.index import check_range
from ..tensor import Tensor, _wrap, tensor
from . import join as join  # publishes cat, split, meshgrid, ...
from .registry import on_its_device, public
from .shape import broadcast_shapes

_ALL = slice(None)

# ---- x[index] ----


class Index(NamedTuple):
    """An index in two steps: a basic one that views, and integer arrays (None: all) for the view's dims."""

    basic: tuple[Any, ...]
    arrays: tuple[Any, ...]

    @property
    def whole(self) -> bool:
        """Whether the basic step takes everything."""
        return all(i is Ellipsis or (type(i) is slice and i == _ALL) for i in self.basic)


def _plain(i: Any) -> Any:
    """An integer, slice, None, Ellipsis or bool as Python has it; anything else as it is."""
    kind = type(i)
    if kind is int or kind is bool or i is None or i is Ellipsis:
        return i
    if kind is slice:
        parts = [v if v is None or type(v) is int else operator.index(v) for v in (i.start, i.stop, i.step)]
        if parts[2] == 0:
            raise ShapeError("getitem: a slice has step 0; the step is a positive or negative integer")
        return slice(*parts)
    if isinstance(i, Tensor):
        # One element read from the device, as in PyTorch: a 0-d integer tensor selects like a number.
        return i if i.ndim or i.dtype.kind != "i" else int(i.item())
    if not hasattr(i, "dtype") and hasattr(i, "__index__"):
        return operator.index(i)
    if hasattr(i, "dtype") and getattr(i, "ndim", 1) == 0:
        whole = i.dtype.kind == "i" or isinstance(i, np.unsignedinteger)
        return bool(i) if i.dtype.kind == "b" else operator.index(i) if whole else i
    return i


def _old_mask(name: str) -> None:
    warnings.warn(f"{name}: a uint8 mask is taken as bool, as PyTorch does for older code; use .bool()",
                  UserWarning, stacklevel=5)


def _index_array(x: Tensor, i: Any) -> Any:
    """An index tensor, array or list as a raw array on x's device."""
    backend = x.storage.backend
    if isinstance(i, Tensor):
        array, own = i.array, i.storage.backend
        array = array if own is backend else backend.from_numpy(own.to_numpy(array))
    elif isinstance(i, (list, tuple, range)):
        array = tensor(list(i), device=x.device).array
        array = array if array.size else array.astype("int64")
    elif isinstance(i, backend.ndarray):
        array = i
    elif hasattr(i, "__array__"):
        array = backend.from_numpy(i)
    else:
        raise DtypeError("getitem: expected integers, slices, None, Ellipsis, and tensors, arrays or lists "
                         f"of integers or bools, got {type(i).__name__} {i!r}")
    if array.dtype == "uint8":
        _old_mask("getitem")
        return array.astype(bool)
    if array.dtype.kind not in "ib":
        raise DtypeError(f"getitem: expected an index of integers or bools, got {array.dtype.name}; use "
                         ".long() for positions, .bool() for a mask")
    return array


def parse_index(x: Tensor, index: Any, keep_tensors: bool = False) -> Index:
    """`index` in two steps, its arrays checked and nonnegative. keep_tensors: 0-d tensors stay arrays."""
    items: list[Any] = [i if keep_tensors and isinstance(i, Tensor) else _plain(i)
                        for i in (index if isinstance(index, tuple) else (index,))]
    if all(type(i) is int or type(i) is slice or i is None or i is Ellipsis for i in items):
        return Index(tuple(items), ())
    plain = (int, bool, slice, type(None), type(Ellipsis))
    items = [i if type(i) in plain else _index_array(x, i) for i in items]
    used = sum(0 if i is None or i is Ellipsis or type(i) is bool else
               i.ndim if hasattr(i, "dtype") and i.dtype.kind == "b" else 1 for i in items)
    if used > x.ndim:
        raise IndexRangeError(f"getitem: too many indices: {used} for a tensor of shape {x.shape}")
    basic: list[Any] = []
    arrays: list[Any] = []
    xp, dim = x.storage.backend.xp, 0
    for i in items:
        if i is Ellipsis:
            basic += [_ALL] * (x.ndim - used)
            arrays += [None] * (x.ndim - used)
            dim += x.ndim - used
        elif i is None or type(i) is bool or (hasattr(i, "dtype") and i.dtype.kind == "b" and not i.ndim):
            basic.append(None)
            arrays.append(None if i is None else xp.zeros(int(bool(i)), "int64"))
        elif type(i) is int or type(i) is slice:
            basic.append(i)
            arrays += [None] if type(i) is slice else []
            dim += 1
        elif i.dtype.kind == "b":
            if i.shape != x.shape[dim:dim + i.ndim]:
                raise IndexRangeError(f"getitem: a mask of shape {i.shape} does not fit dimensions {dim} to "
                                      f"{dim + i.ndim - 1} of shape {x.shape}")
            basic += [_ALL] * i.ndim
            arrays += xp.nonzero(i)
            dim += i.ndim
        else:
            basic.append(_ALL)
            # A fresh array: the index tensor may be changed before the backward pass.
            with x.backend.guard():
                checked = check_range("getitem", xp, i, x.shape[dim], dim, wrap=True)
                arrays.append(checked.copy() if checked is i else checked)
            dim += 1
    while arrays and arrays[-1] is None:
        arrays.pop()
    return Index(tuple(basic), tuple(arrays))


def getitem(x: Tensor, index: Any) -> Tensor:
    """x[index]: a view for integers, slices, None and Ellipsis; a copy for tensors, arrays, lists and masks.

    Repeated positions add up their gradients. Out of range raises IndexRangeError on every device.
    """
    if type(index) is int:
        return F.getitem_view(x, (index,))
    basic, arrays = parsed = parse_index(x, index)
    if not arrays:
        return F.getitem_view(x, basic)
    return F.getitem(x if parsed.whole else F.getitem_view(x, basic), arrays)


def _value(x: Tensor, value: Any, shape: tuple[int, ...], name: str) -> Tensor:
    """`value` as a tensor of x's dtype and device, broadcast to `shape`."""
    value = value if isinstance(value, Tensor) else tensor(value, dtype=x.dtype, device=x.device)
    value = value.to(x.device, x.dtype)
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = F.select(value, 0, 0)
    if value.shape == shape:
        return value
    try:
        return F.expand(value, shape)
    except ShapeError:
        raise ShapeError(f"{name}: a value of shape {value.shape} cannot be broadcast to the indexed shape "
                         f"{shape}") from None


def _target_shape(view: Tensor, arrays: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape of view[arrays]."""
    dims = [d for d, i in enumerate(arrays) if i is not None]
    try:
        shape = np.broadcast_shapes(*[arrays[d].shape for d in dims])
    except ValueError:
        raise IndexRangeError("getitem: the index arrays have shapes that do not broadcast together: "
                              f"{', '.join(str(arrays[d].shape) for d in dims)}") from None
    rest = [n for d, n in enumerate(view.shape) if d not in dims]
    at = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    return (*rest[:at], *shape, *rest[at:])


def _owner(x: Tensor) -> Tensor:
    """The tensor that `x` is a view of, or `x`."""
    while x.base is not None:
        x = x.base[0]
    return x


def setitem(x: Tensor, index: Any, value: Any) -> None:
    """Nothing; writes `value` (broadcast, cast to x's dtype) to x[index] in place.

    With repeated positions one of the values stays, which one is not said.
    """
    check_writable(x, "setitem")
    try:
        basic, arrays = parsed = parse_index(x, index)
    except LucidError as error:
        raise renamed(error, "setitem") from error
    view = x if parsed.whole and arrays else F.getitem_view(x, basic)
    target = tuple(_ALL if i is None else i for i in arrays) if arrays else Ellipsis
    recorded = mode.flags & GRAD and (view.requires_grad or _owner(view).requires_grad)
    if isinstance(value, (int, float, complex)):
        value = in_dtype("setitem", value, x.dtype)
        if recorded:
            filled = F.getitem_fill(view, arrays, value) if arrays else F.full_like(view, value)
            write(view, filled, "setitem")
            return
        x.backend.quietly(operator.setitem, view.array, target, value)
        x.storage.version += 1
        return
    value = _value(x, value, _target_shape(view, arrays) if arrays else view.shape, "setitem")
    if recorded or (mode.flags & GRAD and value.requires_grad):
        write(view, F.getitem_set(view, value, arrays) if arrays else F.clone(value), "setitem")
        return
    # CuPy does not order overlapping reads and writes, as in x[1:] = x[:-1].
    array = value.array.copy() if value.storage.root is x.storage.root else value.array
    x.backend.quietly(operator.setitem, view.array, target, array)
    x.storage.version += 1


def index_put_value(x: Tensor, index: Any, value: Any, accumulate: bool = False) -> Tensor:
    """A copy of `x` with `value` written, or added, at x[index]."""
    basic, arrays = parsed = parse_index(x, index, keep_tensors=True)
    view = x if parsed.whole else F.getitem_view(x, basic)
    value = _value(x, value, _target_shape(view, arrays) if arrays else view.shape, "index_put")
    if arrays:
        value = F.getitem_set(view, value, arrays, accumulate)
        return value if parsed.whole else F.getitem_put(x, value, basic)
    return F.getitem_put(x, view + value if accumulate else value, basic)


@public(method=True)
@named("index_put")
def index_put(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `x` with `values` written (added, with `accumulate`) at x[indices], a tuple of tensors.

    indices: integers or masks, one for each of the first dimensions; values: broadcast to x[indices]'s shape.
    Added values add up where positions repeat. Raises IndexRangeError, ShapeError or DtypeError for others.

    >>> import lucid
    >>> at = (lucid.tensor([0, 1]), lucid.tensor([1, 0]))
    >>> lucid.zeros(2, 2).index_put(at, lucid.tensor([5.0, 7.0]))
    tensor([[0., 5.],
            [7., 0.]])
    """
    return index_put_value(x, tuple(_ALL if i is None else i for i in indices), values, accumulate)


# ---- gather and scatter ----

@public(method=True)
def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Elements of `x` at the positions `index` along `dim`: out[i, j] = x[i, index[i, j]] for dim=1.

    index: integers in [0, size), as many dimensions as x, no larger than x but along `dim`. Returns index's
    shape. Raises IndexRangeError, ShapeError or DtypeError for others.

    >>> import lucid
    >>> lucid.gather(lucid.tensor([[1, 2], [3, 4]]), 1, lucid.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """
    return F.gather(x, dim, index)


@public(method=True)
def scatter(x: Tensor, dim: int, index: Tensor, src: Any = None, *, value: float | None = None,
            reduce: str | None = None) -> Tensor:
    """A copy of `x` with `src` (a tensor or number) written at the positions `index` along `dim`.

    out[i, index[i, j]] = src[i, j] for dim=1. index: integers in [0, size), no larger than src; src: x's
    dtype. reduce: "add" or "multiply" combines with what is there; else one value stays among repeated
    positions. Raises IndexRangeError, ShapeError or DtypeError for others.

    >>> import lucid
    >>> lucid.scatter(lucid.zeros(2, 3), 1, lucid.tensor([[0, 2]]), lucid.tensor([[5.0, 7.0]]))
    tensor([[5., 0., 7.],
            [0., 0., 0.]])
    """
    if src is None:
        src = value
    if src is None:
        raise DtypeError("scatter: expected src (a tensor) or value (a number), got neither")
    if reduce is not None:
        if reduce not in ("add", "multiply"):
            raise DtypeError(f"scatter: reduce is 'add' or 'multiply', got {reduce!r}")
        if not isinstance(src, Tensor):
            src = F.expand(tensor(src, dtype=x.dtype, device=x.device), index.shape)
        return F.scatter_add(x, dim, index, src) if reduce == "add" else F.scatter_prod(x, dim, index, src)
    if isinstance(src, Tensor) and (src.ndim == index.ndim or src.ndim or src.requires_grad):
        return F.scatter_src(x, dim, index, src)
    return F.scatter_number(x, dim, index, src.item() if isinstance(src, Tensor) else src)


@public(method=True)
def scatter_reduce(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *,
                   include_self: bool = True) -> Tensor:
    """`x` reduced with the values of `src` that `index` sends to each position along `dim`.

    reduce: "sum", "mean", "prod", "amax" or "amin". include_self=False leaves x's own value out where
    anything arrives. Shapes and errors as of `scatter`.

    >>> import lucid
    >>> lucid.scatter_reduce(lucid.zeros(3), 0, lucid.tensor([0, 0, 2]), lucid.tensor([1.0, 2.0, 3.0]), "sum")
    tensor([3., 0., 3.])
    """
    return F.scatter_reduce(x, dim, index, src, reduce, include_self)


@public(method=True)
def index_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *,
                 include_self: bool = True) -> Tensor:
    """`x` reduced with the slices of `source` that `index` [k] sends to each position along `dim`.

    reduce: "prod", "mean", "amax" or "amin". source: x's shape with k along `dim`. Raises IndexRangeError,
    ShapeError or DtypeError for others.

    >>> import lucid
    >>> lucid.index_reduce(lucid.ones(2), 0, lucid.tensor([1, 1]), lucid.tensor([3.0, 5.0]), "prod")
    tensor([ 1., 15.])
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise DtypeError(f"index_reduce: reduce is prod, mean, amax or amin, got {reduce!r}")
    dim = normalize_dim("index_reduce", dim, x.ndim)
    if index.ndim > 1 or (source.ndim and source.shape[dim] != index.numel()):
        raise ShapeError(f"index_reduce: expected a 1-d index with one position for each slice of source "
                         f"{source.shape} along dim {dim}, got {index.shape}")
    if not source.ndim:
        index = F.reshape(index, ())
    else:
        index = F.expand(F.reshape(index, tuple(-1 if d == dim else 1 for d in range(source.ndim))),
                         source.shape)
    return F.scatter_reduce(x, dim, index, source, reduce, include_self)


@public(method=True)
def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of `x` with `value` (a number or 0-d tensor) at the positions `index` along `dim`.

    index: [k] integers in [-size, size), else IndexRangeError.

    >>> import lucid
    >>> lucid.index_fill(lucid.zeros(2, 2), 1, lucid.tensor([0]), 7)
    tensor([[7., 0.],
            [7., 0.]])
    """
    if not isinstance(value, Tensor):
        return F.index_fill_number(x, dim, index, value)
    if value.ndim:
        raise ShapeError(f"index_fill: expected a number or a 0-d tensor, got shape {value.shape}")
    backend = x.storage.backend
    chosen = F.index_fill_number(_wrap(backend.xp.zeros(x.shape, "bool"), backend), dim, index, True)
    return F.where(chosen, value.to(x.device, x.dtype), x)


@public(method=True)
@on_its_device
def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Elements of `x` at the positions `indices` along `dim`, other dims broadcast; flattened when None.

    Negative positions count from the end. Raises IndexRangeError for a position out of range, ShapeError for
    another number of dimensions.

    >>> import lucid
    >>> x = lucid.tensor([[3.0, 1.0, 2.0]])
    >>> lucid.take_along_dim(x, x.argsort(dim=1), dim=1)
    tensor([[1., 2., 3.]])
    """
    if dim is None:
        x, indices, dim = F.reshape(x, (-1,)), F.reshape(indices, (-1,)), 0
    if x.ndim != indices.ndim:
        raise ShapeError(f"take_along_dim: expected as many dimensions in x and indices, got {x.shape} and "
                         f"{indices.shape}")
    dim = normalize_dim("take_along_dim", dim, x.ndim)
    n, k = (t.shape[dim] if t.ndim else 1 for t in (x, indices))
    backend = x.storage.backend
    indices = _wrap(check_range("take_along_dim", backend.xp, indices.array, n, dim, wrap=True), backend)
    rest = broadcast_shapes(*[(*t.shape[:dim], 1, *t.shape[dim + 1:]) for t in (x, indices)])
    if x.ndim:
        x = F.expand(x, (*rest[:dim], n, *rest[dim + 1:]))
        indices = F.expand(indices, (*rest[:dim], k, *rest[dim + 1:]))
    return F.pick(x, indices, dim)


# ---- masks ----

def _mask(name: str, mask: Tensor) -> Tensor:
    if mask.dtype.kind != "b":
        raise DtypeError(f"{name}: expected a mask of bools, got {mask.dtype.name}; use .bool()")
    return mask


@public(method=True)
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`x` with `value` (a number or 0-d tensor) where `mask` (bools, broadcast) is true.

    Raises DtypeError for a mask that is not bool, ShapeError for one that does not broadcast to x.

    >>> import lucid
    >>> lucid.masked_fill(lucid.tensor([1.0, 2.0]), lucid.tensor([True, False]), 0)
    tensor([0., 2.])
    """
    mask = _mask("masked_fill", mask)
    if not isinstance(value, Tensor):
        return F.masked_fill(x, mask, value)
    if value.ndim:
        raise ShapeError(f"masked_fill: expected a number or a 0-d tensor, got {value.shape}; use where")
    return F.where(mask, value.to(x.device, x.dtype), x)


@public(method=True)
@named("masked_select")
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements of `x` where `mask` (bools, both broadcast) is true, as a vector.

    Its size depends on the values: a GPU is waited for. Raises DtypeError for a mask that is not bool.

    >>> import lucid
    >>> lucid.masked_select(lucid.tensor([1.0, 2.0, 3.0]), lucid.tensor([True, False, True]))
    tensor([1., 3.])
    """
    shape = broadcast_shapes(x.shape, _mask("masked_select", mask).shape)
    shape = shape or (1,)
    x, mask = (t if t.shape == shape else F.expand(t, shape) for t in (x, mask))
    return F.getitem(x, tuple(x.storage.backend.xp.nonzero(mask.array)))


@public(method=True)
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`x` with successive elements of `source` where `mask` (bools, both broadcast) is true.

    Raises DtypeError for a mask that is not bool, ShapeError for fewer elements than the mask has true ones.

    >>> import lucid
    >>> lucid.masked_scatter(lucid.zeros(3), lucid.tensor([True, False, True]), lucid.tensor([5.0, 7.0]))
    tensor([5., 0., 7.])
    """
    shape = broadcast_shapes(x.shape, _mask("masked_scatter", mask).shape)
    return F.masked_scatter(x if x.shape == shape else F.expand(x, shape), mask, source)


@public(method=False)
def where(condition: Tensor, x: Any = None, y: Any = None) -> Any:
    """`x` where `condition` holds, else `y`; with `condition` alone, the positions where it holds.

    condition: bools, else DtypeError; the three broadcast together.

    >>> import lucid
    >>> x = lucid.tensor([-1.0, 2.0])
    >>> lucid.where(x > 0, x, 0.0)
    tensor([0., 2.])
    >>> lucid.where(x > 0)
    (tensor([1]),)
    """
    if x is None and y is None:
        return nonzero(condition, as_tuple=True)
    if isinstance(condition, Tensor) and condition.dtype.kind != "b":
        if condition.dtype != "uint8":
            raise DtypeError(
                f"where: expected a condition of bools, got {condition.dtype.name}; use condition != 0"
            )
        condition = condition.to(dtype="bool")
        _old_mask("where")
    return F.where(condition, x, y)


def _where(x: Tensor, condition: Tensor, y: Any) -> Tensor:
    """The tensor's elements where `condition` holds, else those of `y`; see `lucid.where`.

    >>> import lucid
    >>> x = lucid.tensor([-1.0, 2.0])
    >>> x.where(x > 0, 0.0)
    tensor([0., 2.])
    """
    return where(condition, x, y)


setattr(Tensor, "where", _where)  # noqa: B010


@public(method=True)
def nonzero(x: Tensor, *, as_tuple: bool = False) -> Any:
    """Positions of the nonzero elements: int64 [n, dimensions]; with `as_tuple` one vector per dimension.

    Its size depends on the values: a GPU is waited for.

    >>> import lucid
    >>> lucid.nonzero(lucid.tensor([[0, 1], [2, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    if not as_tuple:
        return F.nonzero(x)
    at = F.nonzero(x if x.ndim else F.reshape(x, (1,)))
    return tuple(F.select(at, 1, d) for d in range(at.shape[1]))


@public(method=True)
def argwhere(x: Tensor) -> Tensor:
    """Positions of the nonzero elements, one row each: int64 [n, dimensions].

    >>> import lucid
    >>> lucid.argwhere(lucid.tensor([0, 1, 2]))
    tensor([[1],
            [2]])
    """
    return F.nonzero(x)


_IN_PLACE: tuple[Callable[..., Any], ...] = (scatter, scatter_reduce, index_reduce, index_fill, index_put,
                                             masked_fill,
                                           masked_scatter)
for _function in _IN_PLACE:
    setattr(Tensor, f"{_function.__name__}_", in_place(_function, f"{_function.__name__}_"))
