"""Indexing: reading and writing elements by position, and the sums over repeated positions in gradients.

Every such sum ends in `rows.sum_rows`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..errors import DtypeError, IndexRangeError, ShapeError
from .bounds import clamped, in_range
from .common import Shape, in_dtype, normalize_dim
from .reduce import pick_along
from .registry import A, Sample, op
from .rows import sum_rows, summable

_ROWS = A(value=[0, 2, 2, 1])


# ---- checks ----


def check_range(name: str, xp: Any, index: Any, size: int, dim: int, wrap: bool = False) -> Any:
    """`index` as int64 in [0, size); with `wrap`, negative positions count from the end.

    Raises IndexRangeError on every device, on a GPU without waiting for it (`bounds.in_range`): CuPy would
    wrap silently.
    """
    if index.dtype.kind not in "iu":
        raise DtypeError(f"{name}: expected an index of integers, got {index.dtype.name}; convert it with "
                         ".long()")
    index = index.astype("int64", copy=False)
    low = -size if wrap else 0
    index = in_range(xp, index, low, size, lambda bad: IndexRangeError(
        f"{name}: index {bad} is out of range for dim {dim} of size {size}; expected {low} <= index < "
        f"{size}"))
    if not wrap or (xp.__name__ == "numpy" and not (index < 0).any()):
        return index
    return xp.where(index < 0, index + size, index)


def _check_1d(name: str, index: Any) -> None:
    if index.ndim > 1:
        raise ShapeError(f"{name}: expected an index of 1 dimension, got shape {tuple(index.shape)}")


def _check_cover(name: str, index: Any, shape: Shape, dim: int, skip: bool = True, what: str = "x") -> None:
    n = max(len(shape), 1)
    if max(index.ndim, 1) != n and index.size:
        raise ShapeError(f"{name}: expected an index of {n} dimensions as {what}, got shape "
                         f"{tuple(index.shape)}")
    if any(i > n for d, (i, n) in enumerate(zip(index.shape, shape, strict=False)) if not skip or d != dim):
        where = f" but for dim {dim}" if skip else ""
        raise ShapeError(f"{name}: expected an index no larger than {what}{where}, got {tuple(index.shape)} "
                         f"against {tuple(shape)}")


# ---- sums over repeated positions ----


def _wrapped(xp: Any, index: Any, size: int) -> Any:
    return xp.where(index < 0, index + size, index).astype("int64", copy=False)


@op(public=False, samples=[Sample((4, 3), _ROWS, dim=0, size=5), Sample((3, 4), _ROWS, dim=1, size=3)])
def index_sum(xp, src, index, dim: int, size: int):
    """Slices of `src` along `dim` added up at the positions `index` of zeros with `size` along `dim`."""
    moved = xp.moveaxis(src, dim, 0) if src.ndim else src.reshape(1)
    rows = moved.reshape(moved.shape[0], -1) if moved.size else moved.reshape(moved.shape[0], 0)
    out = sum_rows(xp, size, _wrapped(xp, index.reshape(-1), size), rows) if rows.size else xp.zeros(
        (size, prod(moved.shape[1:])), src.dtype)
    return xp.moveaxis(out.reshape(size, *moved.shape[1:]), 0, dim) if src.ndim else out.reshape(())


index_sum.grad(src=lambda F, g, index, dim, src_shape: F.reshape(F.index_select(g, dim, index), src_shape))


def flat_positions(xp: Any, index: Any, dim: int, shape: Shape) -> Any:
    """Positions in a flattened array of `shape` of the elements that gather along `dim` would read."""
    if not shape:
        return index.reshape(-1)
    strides = [prod(shape[d + 1:]) for d in range(len(shape))]
    flat = _wrapped(xp, index, shape[dim]) * strides[dim]
    for d, n in enumerate(index.shape):
        if d != dim:
            place = xp.arange(n, dtype="int64") * strides[d]
            flat = flat + place.reshape([-1 if i == d else 1 for i in range(index.ndim)])
    return flat.reshape(-1)


@op(public=False, samples=[Sample((2, 4), A(value=[[0, 2, 2, 1], [1, 1, 1, 0]]), dim=1, shape=(2, 3)),
                           Sample((), A(value=0), dim=0, shape=())])
def scatter_sum(xp, src, index, dim: int, shape: tuple):
    """Elements of `src` (index's shape) added up at the positions `index` along `dim` of zeros of `shape`."""
    if not index.size:
        return xp.zeros(shape, src.dtype)
    dim = normalize_dim("scatter_sum", dim, len(shape))
    flat = flat_positions(xp, index, dim, shape)
    return sum_rows(xp, prod(shape), flat, src.reshape(-1, 1)).reshape(shape)


@op(public=False, samples=[Sample((2, 3), A(value=[[0, 2, 2, 1], [1, 1, 1, 0]]), dim=1)])
def pick(xp, x, index, dim: int):
    """`gather` without the range check, for positions that were checked before."""
    dim = normalize_dim("gather", dim, x.ndim)
    n = x.shape[dim] if x.ndim else 1
    return _pick(xp, x, clamped(xp, index, -n, n), dim)


def _pick(xp: Any, x: Any, index: Any, dim: int) -> Any:
    if not x.ndim or not index.ndim:
        return x.reshape(-1)[index.reshape(-1)].reshape(index.shape)
    if not index.size:
        return xp.zeros(index.shape, x.dtype)
    covered = tuple(slice(None if d == dim else n) for d, n in enumerate(index.shape))
    return pick_along(xp, x[covered], index, dim)


scatter_sum.grad(src=lambda F, g, index, dim: F.pick(g, index, dim))
pick.grad(x=lambda F, g, index, dim, x_shape: F.scatter_sum(g, index, dim, x_shape))


# ---- x[index] ----


def _static_index(xp: Any, index: Any) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i if isinstance(i, slice) else xp.asarray(i) for i in index)


@op(public=False, view=True, samples=[
    Sample((4, 5), (slice(1, 4, 2), 2)), Sample((4, 5), (Ellipsis, None, slice(None, None, -1))),
    Sample((3,), (0,))],
    reference=lambda x, index: x[index])
def getitem_view(xp, x, index: tuple):
    """x[index] for a basic index (integers, slices, None, Ellipsis): a view."""
    try:
        # An Ellipsis at the end keeps NumPy from returning a scalar, which would be no view.
        return x[index] if Ellipsis in index else x[(*index, Ellipsis)]
    except IndexError as error:
        raise IndexRangeError(f"getitem: {error} (index {index} into shape {tuple(x.shape)})") from None


@op(public=False, samples=[Sample((2,), (slice(1, 4, 2), 2), shape=(4, 5)), Sample((), (0,), shape=(3,))])
def getitem_pad(xp, src, index: tuple, shape: tuple):
    """Zeros of `shape` with `src` at a basic index: the gradient of `getitem_view`."""
    out = xp.zeros(shape, src.dtype)
    out[index] = src
    return out


getitem_view.grad(x=lambda F, g, index, x_shape: F.getitem_pad(g, index, x_shape))
getitem_pad.grad(src=lambda F, g, index: F.getitem_view(g, index))


@op(public=False, samples=[Sample((4, 5), (2,), (slice(1, 3), 0)), Sample((3,), (), (1,))])
def getitem_put(xp, x, src, index: tuple):
    """`x` with `src` (broadcast) at a basic index; `x` itself is not changed."""
    out = x.copy()
    out[index] = src
    return out


getitem_put.grad(
    x=lambda F, g, index: F.getitem_put(g, F.zeros_like(F.getitem_view(g, index)), index),
    src=lambda F, g, index, src_shape: F.sum_to(F.getitem_view(g, index), src_shape))


@op(public=False, samples=[
    Sample((4, 5), ([0, 2, 2],)), Sample((4, 5), (None, [1, 1])),
    Sample((3, 4, 2), ([0, 1, 1], None, [1, 0, 0])), Sample((4, 5), ([[0, 3], [3, 1]], [0, 1]))],
    reference=lambda x, index: x[tuple(slice(None) if i is None else i for i in index)])
def getitem(xp, x, index: tuple):
    """x[index] for a tuple of integer arrays (None: the whole dimension), as a copy.

    The arrays lie in range; `lucid.functional.index.getitem` brings Python's forms of an index to this one.
    """
    return x[_static_index(xp, index)]


@op(public=False, samples=[
    Sample((3, 5), ([0, 2, 2],), shape=(4, 5)), Sample((4, 2), (None, [1, 1]), shape=(4, 5)),
    Sample((3, 4), ([0, 1, 1], None, [1, 0, 0]), shape=(3, 4, 2))])
def getitem_sum(xp, src, index: tuple, shape: tuple):
    """Zeros of `shape` to which `src` is added at the integer arrays `index`, repeats included."""
    dims = [d for d, i in enumerate(index) if i is not None]
    arrays = xp.broadcast_arrays(*[xp.asarray(index[d]) for d in dims])
    n = arrays[0].ndim
    flat = xp.zeros(arrays[0].shape, "int64")
    for d, i in zip(dims, arrays, strict=True):
        flat = flat * shape[d] + _wrapped(xp, i, shape[d])
    # Index arrays side by side leave their dimensions in place, else these come first (NumPy's rule).
    start = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    rest = [d for d in range(len(shape)) if d not in dims]
    width, rows = prod(shape[d] for d in rest), prod(shape[d] for d in dims)
    moved = xp.moveaxis(src, range(start, start + n), range(n)).reshape(flat.size, width)
    out = sum_rows(xp, rows, flat.reshape(-1), moved).reshape([shape[d] for d in (*dims, *rest)])
    order = (*dims, *rest)
    return out.transpose([order.index(d) for d in range(len(shape))])


getitem.grad(x=lambda F, g, index, x_shape: F.getitem_sum(g, index, x_shape))
getitem_sum.grad(src=lambda F, g, index: F.getitem(g, index))


@op(public=False, samples=[
    Sample((4, 5), (2, 5), ([0, 2],)), Sample((4, 5), (3, 5), ([0, 2, 2],), accumulate=True),
    Sample((4, 5), (), (None, [1, 3])), Sample((4, 5), (2,), ([0, 1], [1, 1]), accumulate=True)])
def getitem_set(xp, x, src, index: tuple, accumulate: bool = False):
    """`x` with `src` (broadcast) written, or added, at the integer arrays `index`; `x` is not changed."""
    out = x.copy()
    if not accumulate:
        out[_static_index(xp, index)] = src
        return out
    target = x[_static_index(xp, index)]
    return out + getitem_sum.forward(xp, xp.broadcast_to(src, target.shape), index, x.shape)


getitem_set.grad(
    x=lambda F, g, index, accumulate: g if accumulate else F.getitem_fill(g, index, 0.0),
    src=lambda F, g, index, src_shape: F.sum_to(F.getitem(g, index), src_shape))


@op(public=False, samples=[Sample((4, 5), ([0, 2, 2],), 1.5), Sample((4, 5), (None, [1, 3]), 0.0)])
def getitem_fill(xp, x, index: tuple, value: float):
    """`x` with the number `value` at the integer arrays `index`."""
    out = x.copy()
    out[_static_index(xp, index)] = value
    return out


getitem_fill.grad(x=lambda F, g, index: F.getitem_fill(g, index, 0.0))

# ---- slices along one dimension ----


@op(method=True, samples=[Sample((4, 3), 0, _ROWS), Sample((3, 4), 1, A(value=[3, 0])),
                          Sample((), 0, A(value=[0]))],
    reference=lambda x, dim, index: x.take(index, dim) if x.ndim else x)
def index_select(xp, x, dim: int, index):
    """Slices of `x` at the positions `index` along `dim`: a copy.

    index: [k] integers in [0, size), else IndexRangeError. Returns x's shape with k along `dim`. Repeated
    positions add up their gradients.

    >>> import lucid
    >>> lucid.index_select(lucid.tensor([[1, 2], [3, 4]]), 0, lucid.tensor([1, 1]))
    tensor([[3, 4],
            [3, 4]])
    """
    _check_1d("index_select", index)
    dim = normalize_dim("index_select", dim, x.ndim)
    index = check_range("index_select", xp, index.reshape(-1), x.shape[dim] if x.ndim else 1, dim)
    if not x.ndim:
        return x.reshape(1)[index].reshape(())
    return xp.take(x, index, axis=dim)


index_select.grad(x=lambda F, g, dim, index, x_shape: F.index_sum(
    g, index, dim, x_shape[dim] if x_shape else 1))


def _slices(name: str, x: Any, dim: int, index: Any, source: Any) -> int:
    """`dim` counted from the front, after checking that `source` has a slice of `x` for each position."""
    _check_1d(name, index)
    dim = normalize_dim(name, dim, x.ndim)
    if source.ndim and x.ndim:
        expected = (*x.shape[:dim], index.size, *x.shape[dim + 1:])
        if tuple(source.shape) != expected:
            raise ShapeError(f"{name}: expected a source of shape {expected}, one slice of x "
                             f"{tuple(x.shape)} for each of {index.size} positions along dim {dim}, got "
                             f"{tuple(source.shape)}")
    elif source.size != x.size or index.size != 1:
        raise ShapeError(f"{name}: expected a source that fits x {tuple(x.shape)} and an index of "
                         f"{index.size} positions, got {tuple(source.shape)}")
    if source.dtype != x.dtype:
        raise DtypeError(f"{name}: expected a source of x's dtype {x.dtype.name}, got {source.dtype.name}")
    return dim


def _at(dim: int, index: Any) -> tuple[Any, ...]:
    return (slice(None),) * dim + (index,)


@op(method=True, inplace=True, samples=[
    Sample((5, 3), 0, _ROWS, (4, 3)), Sample((3, 3), 1, _ROWS, (3, 4), alpha=2.0),
    Sample((), 0, A(value=[0]), ())])
def index_add(xp, x, dim: int, index, source, alpha: float = 1):
    """`x` with alpha * (slices of `source`) added at the positions `index` along `dim`; repeats add up.

    index: [k] integers in [0, size). source: x's shape with k along `dim`, x's dtype. Raises ShapeError,
    DtypeError or IndexRangeError for others.

    >>> import lucid
    >>> lucid.index_add(lucid.zeros(3), 0, lucid.tensor([0, 2, 2]), lucid.tensor([1.0, 2.0, 3.0]))
    tensor([1., 0., 5.])
    """
    dim = _slices("index_add", x, dim, index, source)
    index = check_range("index_add", xp, index.reshape(-1), x.shape[dim] if x.ndim else 1, dim)
    total = index_sum.forward(xp, summable(source) * alpha, index, dim,
                              x.shape[dim] if x.ndim else 1)
    return (x + total.reshape(x.shape)).astype(x.dtype)


index_add.grad(
    x=lambda F, g: g,
    source=lambda F, g, dim, index, alpha, source_shape: alpha * F.reshape(
        F.index_select(g, dim, index), source_shape))


@op(method=True, inplace=True, samples=[Sample((5, 3), 0, A(value=[3, 0]), (2, 3)),
                                        Sample((), 0, A(value=[0]), ())])
def index_copy(xp, x, dim: int, index, source):
    """`x` with the slices of `source` written at the positions `index` along `dim`.

    index: [k] integers in [0, size). source: x's shape with k along `dim`, x's dtype. Raises ShapeError,
    DtypeError or IndexRangeError for others.

    >>> import lucid
    >>> lucid.index_copy(lucid.zeros(3), 0, lucid.tensor([2, 0]), lucid.tensor([1.0, 2.0]))
    tensor([2., 0., 1.])
    """
    dim = _slices("index_copy", x, dim, index, source)
    index = check_range("index_copy", xp, index.reshape(-1), x.shape[dim] if x.ndim else 1, dim)
    if not x.ndim:
        return source.reshape(())[...].copy()
    out = x.copy()
    out[_at(dim, index)] = source
    return out


index_copy.grad(
    x=lambda F, g, dim, index: F.index_fill_number(g, dim, index, 0.0),
    source=lambda F, g, dim, index, source_shape: F.reshape(F.index_select(g, dim, index), source_shape))


@op(public=False, samples=[Sample((5, 3), 0, A(value=[3, 0]), 2.0), Sample((2, 3), 1, A(value=[2]), 1.5)])
def index_fill_number(xp, x, dim: int, index, value: float):
    """`x` with the number `value` written at the positions `index` along `dim`."""
    _check_1d("index_fill", index)
    dim = normalize_dim("index_fill", dim, x.ndim)
    index = check_range("index_fill", xp, index.reshape(-1), x.shape[dim] if x.ndim else 1, dim, wrap=True)
    out = x.copy().reshape(-1) if not x.ndim else x.copy()
    out[_at(dim, index)] = in_dtype("index_fill", value, x.dtype)
    return out.reshape(x.shape)


index_fill_number.grad(x=lambda F, g, dim, index: F.index_fill_number(g, dim, index, 0.0))

# ---- elements along one dimension ----

_G = A(value=[[0, 2, 2], [1, 0, 1]])


@op(public=False, samples=[Sample((3, 4), 1, _G), Sample((3, 3), 0, _G), Sample((), 0, A(value=0))])
def gather(xp, x, dim: int, index):
    """Elements of `x` at the positions `index` along `dim`: out[i, j] = x[i, index[i, j]] for dim=1.

    index: integers in [0, size of dim), x's number of dimensions, no larger than x but along `dim`.
    """
    dim = normalize_dim("gather", dim, x.ndim)
    _check_cover("gather", index, x.shape, dim)
    return _pick(xp, x, check_range("gather", xp, index, x.shape[dim] if x.ndim else 1, dim), dim)


gather.grad(x=lambda F, g, dim, index, x_shape: F.scatter_sum(g, index, dim, x_shape))


def scatter_target(name: str, xp: Any, x: Any, dim: int, index: Any) -> Any:
    """The positions in the flattened `x` that `index` names along `dim`, checked for the op `name`."""
    dim = normalize_dim(name, dim, x.ndim)
    _check_cover(name, index, x.shape, dim)
    index = check_range(name, xp, index, x.shape[dim] if x.ndim else 1, dim)
    return flat_positions(xp, index, dim, x.shape)


def scatter_source(name: str, x: Any, index: Any, src: Any) -> Any:
    """The flattened part of `src` that `index` covers; raises unless it fits and has x's dtype."""
    _check_cover(name, index, src.shape, 0, skip=False, what="src")
    if src.dtype != x.dtype:
        raise DtypeError(f"{name}: expected src of x's dtype {x.dtype.name}, got {src.dtype.name}")
    return (src[tuple(map(slice, index.shape or (1,)))] if src.ndim else src).reshape(-1)


def scatter_read(F: Any, g: Any, dim: int, index: Any, src_shape: Shape) -> Any:
    """`g` at the positions `index`, padded with zeros to the shape of the source that was scattered."""
    return padded_read(F, F.pick(g, index, dim), src_shape)


def padded_read(F: Any, read: Any, src_shape: Shape) -> Any:
    """What was read at the positions of an index, with zeros where the source goes beyond the index."""
    if tuple(read.shape) == tuple(src_shape):
        return read
    if not src_shape:
        return F.reshape(read, ())
    read = read if read.shape else F.reshape(read, (1,))
    return F.getitem_pad(read, tuple(map(slice, read.shape)), src_shape)


@op(public=False, samples=[Sample((3, 4), 1, A(value=[[0, 2], [1, 3]]), (2, 2)),
                           Sample((3, 3), 0, A(value=[[0, 2, 1]]), (2, 3)), Sample((), 0, A(value=0), ())])
def scatter_src(xp, x, dim: int, index, src):
    """`x` with `src` written at the positions `index` along `dim`: out[i, index[i, j]] = src[i, j].

    src: at least index's shape, x's dtype. Among repeated positions one value stays, which one is not said.
    """
    flat = scatter_target("scatter", xp, x, dim, index)
    out = x.copy().reshape(-1)
    out[flat] = scatter_source("scatter", x, index, src)
    return out.reshape(x.shape)


@op(public=False, samples=[Sample((3, 4), 1, A(value=[[0, 2], [1, 3]]), 1.5)])
def scatter_number(xp, x, dim: int, index, value: float):
    """`x` with the number `value` written at the positions `index` along `dim`."""
    out = x.copy().reshape(-1)
    out[scatter_target("scatter", xp, x, dim, index)] = in_dtype("scatter", value, x.dtype)
    return out.reshape(x.shape)


scatter_number.grad(x=lambda F, g, dim, index: F.scatter_number(g, dim, index, 0.0))
scatter_src.grad(
    x=lambda F, g, dim, index: F.scatter_number(g, dim, index, 0.0),
    src=lambda F, g, dim, index, src_shape: scatter_read(F, g, dim, index, src_shape))


@op(method=True, inplace=True, samples=[Sample((3, 4), 1, _G, (2, 3)), Sample((3, 3), 0, _G, (3, 3)),
                                        Sample((), 0, A(value=0), ())])
def scatter_add(xp, x, dim: int, index, src):
    """`x` with the elements of `src` added at the positions `index` along `dim`; repeats add up.

    out[index[i, j], j] += src[i, j] for dim=0. index: integers in [0, size), as many dimensions as x, no
    larger than src, nor than x but along `dim`; src: x's dtype. Raises ShapeError, DtypeError or
    IndexRangeError for others.

    >>> import lucid
    >>> lucid.scatter_add(lucid.zeros(3), 0, lucid.tensor([0, 2, 2]), lucid.tensor([1.0, 2.0, 3.0]))
    tensor([1., 0., 5.])
    """
    flat = scatter_target("scatter_add", xp, x, dim, index)
    source = summable(scatter_source("scatter_add", x, index, src))
    return (x + sum_rows(xp, x.size, flat, source.reshape(-1, 1)).reshape(x.shape)).astype(x.dtype)


scatter_add.grad(x=lambda F, g: g,
                 src=lambda F, g, dim, index, src_shape: scatter_read(F, g, dim, index, src_shape))

# ---- elements of the flattened tensor ----


@op(method=True, samples=[Sample((3, 4), A(value=[[0, 5], [5, -1]])), Sample((), A(value=[0, 0]))],
    reference=lambda x, index: x.take(index))
def take(xp, x, index):
    """Elements of the flattened `x` at the positions `index` (negative: from the end), in index's shape.

    Raises IndexRangeError for a position out of range.

    >>> import lucid
    >>> lucid.take(lucid.tensor([[1, 2], [3, 4]]), lucid.tensor([0, -1]))
    tensor([1, 4])
    """
    return x.reshape(-1)[check_range("take", xp, index, x.size, 0, wrap=True)]


take.grad(x=lambda F, g, index, x_shape: F.reshape(
    F.scatter_sum(F.reshape(g, (-1,)), F.reshape(index, (-1,)), 0, (prod(x_shape),)), x_shape))


@op(method=True, inplace=True, samples=[Sample((3, 4), A(value=[0, 5, -1]), (3,)),
                                        Sample((3, 4), A(value=[0, 5, 5]), (3,), accumulate=True)])
def put(xp, x, index, source, accumulate: bool = False):
    """`x` with the elements of `source` written, or added, at the positions `index` of the flattened `x`.

    source: as many elements as index, x's dtype. Negative positions count from the end. Raises ShapeError,
    DtypeError or IndexRangeError for others.

    >>> import lucid
    >>> lucid.put(lucid.zeros(2, 2), lucid.tensor([0, -1]), lucid.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    if source.size != index.size:
        raise ShapeError(f"put: expected as many elements in source as in index, got {source.size} and "
                         f"{index.size}")
    if source.dtype != x.dtype:
        raise DtypeError(f"put: expected a source of x's dtype {x.dtype.name}, got {source.dtype.name}")
    flat = check_range("put", xp, index.reshape(-1), x.size, 0, wrap=True)
    if accumulate:
        total = sum_rows(xp, x.size, flat, summable(source).reshape(-1, 1)).reshape(x.shape)
        return (x + total).astype(x.dtype)
    out = x.copy().reshape(-1)
    out[flat] = source.reshape(-1)
    return out.reshape(x.shape)


put.grad(
    x=lambda F, g, index, accumulate: g if accumulate else F.put_number(g, index, 0.0),
    source=lambda F, g, index, source_shape: F.reshape(F.take(g, index), source_shape))

@op(public=False, samples=[Sample((3, 4), A(value=[0, 5, -1]), 1.5)])
def put_number(xp, x, index, value: float):
    """`x` with the number `value` at the positions `index` of the flattened `x`."""
    out = x.copy().reshape(-1)
    out[check_range("put", xp, index.reshape(-1), x.size, 0, wrap=True)] = value
    return out.reshape(x.shape)


put_number.grad(x=lambda F, g, index: F.put_number(g, index, 0.0))

# ---- masks ----

_MASK = A(value=[[True, False, True], [False, False, True]])


@op(public=False, broadcast=True, samples=[Sample((2, 3), _MASK, 2.5),
                                            Sample((2, 3), A(value=[True, False, True]), 0.0)])
def masked_fill(xp, x, mask, value: float):
    """`x` with the number `value` where `mask` (bool, broadcast to x) is true."""
    return xp.where(mask, x.dtype.type(in_dtype("masked_fill", value, x.dtype)), x)


masked_fill.grad(x=lambda F, g, mask: F.masked_fill(g, mask, 0.0))


@op(public=False, samples=[Sample((2, 3), _MASK, (4,)), Sample((2, 3), _MASK, (3,))])
def masked_scatter(xp, x, mask, source):
    """`x` with successive elements of `source` where `mask` (bool, broadcast to x) is true."""
    mask = xp.broadcast_to(mask, x.shape)
    count = int(mask.sum())    # one synchronisation: how many elements are read depends on the mask
    if source.size < count:
        raise ShapeError(f"masked_scatter: expected at least {count} elements in source, one for each true "
                         f"element of mask, got {source.size}")
    if source.dtype != x.dtype:
        raise DtypeError(f"masked_scatter: expected a source of x's dtype {x.dtype.name}, got "
                         f"{source.dtype.name}")
    out = x.copy()
    out[mask] = source.reshape(-1)[:count]
    return out


@op(public=False, samples=[Sample((2, 3), _MASK, (4,))])
def masked_gather(xp, x, mask, shape: tuple):
    """Elements of `x` where `mask` (broadcast) is true, in the first places of zeros of `shape`."""
    chosen = x[xp.broadcast_to(mask, x.shape)]
    out = xp.zeros(prod(shape), x.dtype)
    out[:chosen.size] = chosen
    return out.reshape(shape)


masked_scatter.grad(x=lambda F, g, mask: F.masked_fill(g, mask, 0.0),
                    source=lambda F, g, mask, source_shape: F.masked_gather(g, mask, source_shape))
masked_gather.grad(x=lambda F, g, x, mask: F.masked_scatter(F.zeros_like(x), mask, g))
