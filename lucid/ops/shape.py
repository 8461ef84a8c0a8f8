"""Shapes: views, joins, repeats, flips and windows."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np  # for references only: forwards use xp

from ..errors import IndexRangeError, ShapeError
from .bounds import tally
from .common import Dim, Shape, normalize_dim, normalize_dims
from .registry import A, Sample, op
from .rows import sum_rows

# ---- views ----


def fill_size(name: str, x_shape: Shape, shape: Shape) -> Shape:
    """`shape` with its -1, if any, replaced by the size that fits `x_shape`."""
    size, known = prod(x_shape), prod(n for n in shape if n != -1)
    holes = sum(n == -1 for n in shape)
    if holes > 1 or any(n < -1 for n in shape):
        raise ShapeError(f"{name}: expected sizes of at least 0 and at most one -1, got {tuple(shape)}")
    if holes:
        if known == 0 or size % known:
            raise ShapeError(f"{name}: shape {tuple(shape)} does not fit {size} elements of shape "
                             f"{tuple(x_shape)}")
        return tuple(size // known if n == -1 else n for n in shape)
    if known != size:
        raise ShapeError(f"{name}: shape {tuple(shape)} has {known} elements, x of shape {tuple(x_shape)} "
                         f"has {size}")
    return tuple(shape)


def view_strides(shape: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Strides with which memory of `shape` and `strides` reads as `new`, or None where a copy is needed.

    Dimensions that lie densely in each other are merged; each such run must be filled by a run of `new`.
    """
    if prod(shape) == 0:
        return tuple(strides[0] if shape == new else 0 for _ in new) if new else ()
    dense = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    runs: list[tuple[int, int]] = []
    for n, s in dense:
        if runs and runs[-1][1] == n * s:
            runs[-1] = (runs[-1][0] * n, s)
        else:
            runs.append((n, s))
    out = [0] * len(new)
    d = len(new) - 1
    for size, stride in reversed(runs):
        while size > 1 and d >= 0:
            if size % new[d]:
                return None
            out[d], size, stride, d = stride, size // new[d], stride * new[d], d - 1
        if size > 1:
            return None
    return tuple(out)


def strided(xp: Any, x: Any, shape: Shape, strides: Shape) -> Any:
    """A writable view of `x` from its first element on; strides in bytes."""
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


@op(public=False, view=True, samples=[Sample((3, 4), (2, 6)), Sample((3, 4), (12,)), Sample((), (1, 1))],
    reference=lambda x, shape: x.reshape(shape))
def view(xp, x, shape: tuple):
    """`x` with another shape on the same memory. Raises ShapeError where only a copy could have it."""
    if x.flags.c_contiguous:
        try:
            out = x.reshape(shape)
            if out.shape != shape and min(shape) < -1:  # which NumPy takes for -1
                raise ValueError
            return out
        except ValueError:
            fill_size("view", x.shape, shape)
            raise
    shape = fill_size("view", x.shape, shape)
    if view_strides(x.shape, x.strides, shape) is None:
        raise ShapeError(f"view: shape {shape} is not possible without a copy for x of shape "
                         f"{tuple(x.shape)} and strides "
                         f"{tuple(s // x.itemsize for s in x.strides)}; use reshape, or "
                         "contiguous().view(...)")
    return x.reshape(shape)


view.grad(x=lambda F, g, x_shape: F.reshape(g, x_shape))


@op(public=False, view=True, diff=(), samples=[Sample(A(value=[1, 2]), "int32")])
def view_dtype(xp, x, dtype: object):
    """The bytes of `x` read as another dtype, on the same memory; the last size changes to fit."""
    try:
        return x.view(dtype)
    except ValueError as error:
        raise ShapeError(f"view: {x.dtype.name}{list(x.shape)} cannot be read as {dtype}: {error}") from None


@op(public=False, samples=[Sample((3, 4))], reference=lambda x: x)
def contiguous_copy(xp, x):
    """`x` in fresh memory, in row-major order."""
    return x.copy(order="C")


contiguous_copy.grad(x=lambda F, g: g)


@op(public=False, view=True, samples=[Sample((1, 3, 1)), Sample((1, 3, 1), dim=0),
                                      Sample((1, 3, 1), dim=(0, 1, 2))],
    reference=lambda x, dim=None: x.squeeze() if dim is None else x.squeeze(0) if dim == 0 else x[0, :, 0])
def squeeze(xp, x, dim: Dim = None):
    """`x` without its dimensions of size 1, or without those among `dim` (others in `dim` stay): a view."""
    dims = () if dim == () else normalize_dims("squeeze", dim, x.ndim)
    return x.reshape([n for i, n in enumerate(x.shape) if n != 1 or i not in dims])


@op(method=True, view=True, samples=[Sample((3, 4), 1), Sample((), -1)], reference="numpy:expand_dims")
def unsqueeze(xp, x, dim: int):
    """`x` with a dimension of size 1 before `dim` (-1: at the end): a view.

    dim: in [-ndim - 1, ndim].

    >>> import lucid
    >>> lucid.unsqueeze(lucid.tensor([1, 2, 3]), 1).shape
    (3, 1)
    """
    if not -x.ndim - 1 <= dim <= x.ndim:
        raise IndexRangeError(f"unsqueeze: dim must lie in [{-x.ndim - 1}, {x.ndim}] for a tensor of "
                              f"{x.ndim} dimensions, got {dim}")
    return xp.expand_dims(x, dim)


squeeze.grad(x=lambda F, g, x_shape: F.reshape(g, x_shape))
unsqueeze.grad(x=lambda F, g, x_shape: F.reshape(g, x_shape))


@op(method=True, view=True, samples=[Sample((5, 3), 0, 1, 3), Sample((3, 5), 1, -4, 2),
                                     Sample((3,), 0, 3, 0)],
    reference=lambda x, dim, start, length: x.take(range(start % x.shape[dim], start % x.shape[dim] + length),
                                                   dim)
    if length else x[:0])
def narrow(xp, x, dim: int, start: int, length: int):
    """`x[start:start + length]` along `dim`: a view.

    start may be negative. Raises IndexRangeError for a part that lies outside.

    >>> import lucid
    >>> lucid.narrow(lucid.tensor([0, 1, 2, 3, 4]), 0, 1, 3)
    tensor([1, 2, 3])
    """
    if not x.ndim:
        raise ShapeError("narrow: expected at least 1 dimension, got a 0-d tensor")
    dim = normalize_dim("narrow", dim, x.ndim)
    start = narrow_start(x.shape, dim, start, length)
    return x[(slice(None),) * dim + (slice(start, start + length),)]


def narrow_start(x_shape: Shape, dim: int, start: int, length: int) -> int:
    """`start` counted from the front, after checking that `length` elements follow."""
    n = x_shape[dim]
    first = start + n if start < 0 else start
    if length < 0 or first < 0 or first + length > n:
        raise IndexRangeError(f"narrow: start {start} and length {length} do not fit dim {dim} of size {n}")
    return first


def _narrow_grad(F, g, x_shape, dim, start, length):
    dim = normalize_dim("narrow", dim, len(x_shape))
    start = narrow_start(x_shape, dim, start, length)
    return F.getitem_pad(g, (slice(None),) * dim + (slice(start, start + length),), x_shape)


narrow.grad(x=_narrow_grad)


def select_index(x_shape: Shape, dim: int, index: int) -> tuple[Any, ...]:
    """The basic index of `select`, after checking its range."""
    if not x_shape:
        raise IndexRangeError("select: expected at least 1 dimension, got a 0-d tensor")
    dim = normalize_dim("select", dim, len(x_shape))
    n = x_shape[dim]
    if not -n <= index < n:
        raise IndexRangeError(f"select: index {index} is out of range for dim {dim} of size {n}")
    return (slice(None),) * dim + (index, Ellipsis)


@op(method=True, view=True, samples=[Sample((3, 4), 1, -1), Sample((3,), 0, 2)],
    reference=lambda x, dim, index: x.take(index, dim))
def select(xp, x, dim: int, index: int):
    """`x` at one position along `dim`, without that dimension: a view.

    index may be negative; out of range it raises IndexRangeError.

    >>> import lucid
    >>> lucid.select(lucid.tensor([[1, 2], [3, 4]]), 1, -1)
    tensor([2, 4])
    """
    return x[select_index(x.shape, dim, index)]


select.grad(x=lambda F, g, x_shape, dim, index: F.getitem_pad(g, select_index(x_shape, dim, index), x_shape))

# ---- several views at once ----


@cache
def parts_op(kind: str, n: int) -> str:
    """The name of the op that cuts a tensor into `n` views: one node, whose gradient is one `cat` or `stack`.

    An op has a fixed number of outputs, so one is made for each number that is met. With a node each,
    every part's gradient would be padded to x's shape: n times the memory traffic.
    """
    def split(xp, x, sizes: tuple, dim: int):
        """Consecutive parts of `x` along `dim`: views."""
        start, out = 0, []
        for size in sizes:
            out.append(x[(slice(None),) * dim + (slice(start, start + size),)])
            start += size
        return tuple(out)

    def unbind(xp, x, dim: int):
        """The slices of `x` at each position along `dim`, without it: views."""
        return tuple(x[(slice(None),) * dim + (i, Ellipsis)] for i in range(x.shape[dim]))

    name, outputs = f"{kind}_{n}", tuple(f"part{i}" for i in range(n))
    if kind == "split":
        sample = Sample((n + 1, 2), (1,) * (n - 1) + (2,), 0)
        made = op(name=name, public=False, view=True, outputs=outputs, samples=[sample])(split)
        made.grad(x=lambda F, g, dim: F.cat(*g, dim=dim))
    else:
        made = op(name=name, public=False, view=True, outputs=outputs, samples=[Sample((n, 2), 0)])(unbind)
        made.grad(x=lambda F, g, dim: F.stack(*g, dim=dim))
    return name


parts_op("split", 2)
parts_op("unbind", 3)

# ---- joins and repeats ----


@op(dtype="promote", amp="promote", samples=[Sample((2, 3), (1, 3), dim=0),
                                             Sample((2, 3), (2, 1), (2, 2), dim=-1),
                                             Sample((0,), (2, 2), dim=1)],
    reference=lambda *t, dim=0: np.concatenate([a for a in t if a.shape != (0,)], dim))
def cat(xp, *tensors, dim: int = 0):
    """The tensors joined along `dim`; their other sizes agree. Tensors of shape [0] are skipped."""
    try:
        return xp.concatenate(tensors, axis=dim)
    except ValueError:
        # PyTorch skips tensors of shape [0], whatever the others' dimensions.
        kept = [t for t in tensors if t.shape != (0,)]
        if 0 < len(kept) < len(tensors):
            return cat.forward(xp, *kept, dim=dim)
        raise ShapeError(_cat_message(tensors, dim)) from None


def _cat_message(tensors: tuple[Any, ...], dim: int) -> str:
    shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
    if not tensors:
        return "cat: expected at least one tensor, got none"
    if not all(t.ndim for t in tensors):
        return f"cat: expected tensors of at least 1 dimension, got shapes {shapes}; use stack"
    dim = normalize_dim("cat", dim, tensors[0].ndim)
    return f"cat: expected sizes that agree but for dim {dim}, got shapes {shapes}"


def _cat_grad(F, g, tensors_shape, dim):
    dim = normalize_dim("cat", dim, g.ndim)
    out, start = [], 0
    for shape in tensors_shape:
        skipped = len(shape) != g.ndim
        size = 0 if skipped else shape[dim]
        part = F.narrow(g, dim, start, size)
        out.append(F.getitem_view(F.reshape(g, (-1,)), (slice(0, 0),)) if skipped else part)
        start += size
    return tuple(out)


cat.grad(tensors=_cat_grad)


@op(dtype="promote", amp="promote", samples=[Sample((2, 3), (2, 3), dim=1), Sample((), (), dim=0),
                                             Sample((2,), dim=-1)],
    reference=lambda *t, dim=0: np.stack(t, dim))
def stack(xp, *tensors, dim: int = 0):
    """Tensors of one shape, joined along a new dimension `dim`."""
    if not tensors:
        raise ShapeError("stack: expected at least one tensor, got none")
    if any(t.shape != tensors[0].shape for t in tensors):
        raise ShapeError(f"stack: expected tensors of one shape, got "
                         f"{', '.join(str(tuple(t.shape)) for t in tensors)}")
    return xp.stack(tensors, axis=normalize_dim("stack", dim, tensors[0].ndim + 1))


stack.grad(tensors=lambda F, g, tensors_shape, dim: tuple(
    F.select(g, dim, i) for i in range(len(tensors_shape))))


@op(public=False, samples=[Sample((2, 3), (2, 2)), Sample((3,), (2, 1, 2)), Sample((2,), (0,))],
    reference=lambda x, sizes: np.tile(x, sizes))
def repeat(xp, x, sizes: tuple):
    """`x` laid side by side `sizes` times along each dimension; further sizes add dimensions in front."""
    if len(sizes) < x.ndim or any(n < 0 for n in sizes):
        raise ShapeError(f"repeat: expected at least {x.ndim} sizes of at least 0 for x of shape "
                         f"{tuple(x.shape)}, got {tuple(sizes)}")
    return xp.tile(x, sizes) if sizes else x.copy()


def _repeat_grad(F, g, x_shape, sizes):
    padded = (1,) * (len(sizes) - len(x_shape)) + tuple(x_shape)
    pairs = tuple(n for pair in zip(sizes, padded, strict=True) for n in pair)
    if not sizes:
        return g
    return F.reshape(F.sum(F.reshape(g, pairs), tuple(range(0, len(pairs), 2)), False), x_shape)


repeat.grad(x=_repeat_grad)


@op(public=False, samples=[Sample((2, 3), (0,)), Sample((2, 3), (0, -1)), Sample((), ())],
    reference=lambda x, dims: np.flip(x, dims))
def flip(xp, x, dims: tuple):
    """`x` with the order of its elements reversed along `dims`: a copy."""
    dims = normalize_dims("flip", dims, x.ndim) if dims else ()
    # NumPy and CuPy return a view with negative strides.
    return xp.flip(x, dims).copy() if dims else x.copy()


flip.grad(x=lambda F, g, dims: F.flip(g, dims))


@op(public=False, samples=[Sample((3, 4), (1,), (0,)), Sample((3, 4), (5, -1), (0, 1)),
                           Sample((3, 4), (5,), ())],
    reference=lambda x, shifts, dims: np.roll(x, shifts if dims else shifts[0], dims or None))
def roll(xp, x, shifts: tuple, dims: tuple):
    """`x` with its elements moved `shifts` places along `dims`, those pushed out entering at the other side.

    Without dims the flattened tensor is rolled.
    """
    if len(dims) != len(shifts) and (dims or len(shifts) != 1):
        raise ShapeError(f"roll: expected as many shifts as dims (or one shift and no dims), got {shifts} "
                         f"and {dims}")
    dims = tuple(normalize_dim("roll", d, x.ndim) for d in dims)
    if not x.ndim or not x.size:
        return x.copy()
    return xp.roll(x, shifts if dims else shifts[0], dims or None)


roll.grad(x=lambda F, g, shifts, dims: F.roll(g, tuple(-n for n in shifts), dims))

# ---- windows and strides ----


def _window_shape(x: Any, dim: int, size: int, step: int) -> tuple[int, int]:
    dim = normalize_dim("unfold", dim, x.ndim)
    n = x.shape[dim] if x.ndim else 1
    if not 0 <= size <= n or step < 1:
        raise ShapeError(f"unfold: expected a size of at most {n} (dim {dim}) and a step of at least 1, got "
                         f"size={size} and step={step}")
    return dim, (n - size) // step + 1


@op(public=False, method="unfold", view=True, samples=[Sample((7,), 0, 3, 2), Sample((2, 6), 1, 2, 1),
                                                       Sample((), 0, 1, 1)])
def unfold_windows(xp, x, dimension: int, size: int, step: int):
    """Windows of `size` elements, `step` apart, along `dimension`: a view, windows in the last dim.

    x: [..., n, ...]. Returns [..., (n - size) // step + 1, ..., size]. Raises ShapeError for a size above n
    or a step below 1.

    >>> import lucid
    >>> lucid.tensor([0, 1, 2, 3, 4]).unfold(0, 3, 2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    dim, n = _window_shape(x, dimension, size, step)
    if not x.ndim:
        return x.reshape(1)[:size]
    stride = x.strides[dim]
    return strided(xp, x, (*x.shape[:dim], n, *x.shape[dim + 1:], size),
                   (*x.strides[:dim], stride * step, *x.strides[dim + 1:], stride))


@op(public=False, samples=[Sample((3, 3), (7,), 0, 3, 2), Sample((2, 5, 2), (2, 6), 1, 2, 1)])
def fold_windows(xp, src, shape: tuple, dimension: int, size: int, step: int):
    """Zeros of `shape` with the windows `src` added where they came from: `unfold_windows` in reverse."""
    if not shape:
        return xp.sum(src, axis=-1).reshape(())
    out = xp.zeros(shape, src.dtype)
    dim = normalize_dim("unfold", dimension, len(shape))
    n = src.shape[dim]
    for k in range(size if n else 0):
        out[(slice(None),) * dim + (slice(k, k + (n - 1) * step + 1, step),)] += src[..., k]
    return out


unfold_windows.grad(x=lambda F, g, x_shape, dimension, size, step: F.fold_windows(
    g, x_shape, dimension, size, step))
fold_windows.grad(src=lambda F, g, dimension, size, step: F.unfold_windows(g, dimension, size, step))


def _addresses(xp: Any, geometry: tuple[Any, ...]) -> Any:
    """Positions in memory, in elements, of a tensor given as (shape, strides, offset); flattened."""
    shape, strides, offset = geometry
    at = xp.full((1,) * len(shape), offset, "int64")
    for d, (n, s) in enumerate(zip(shape, strides, strict=True)):
        at = at + (xp.arange(n, dtype="int64") * s).reshape([-1 if i == d else 1 for i in range(len(shape))])
    return at.reshape(-1)


def bounds(geometry: tuple[Any, ...]) -> tuple[int, int]:
    """First and last position in memory, in elements, that (shape, strides, offset) reaches."""
    shape, strides, offset = geometry
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return offset + sum(r for r in reach if r < 0), offset + sum(r for r in reach if r > 0)


def address(x: Any) -> int:
    """The address of the first element of a raw array."""
    return x.ctypes.data if hasattr(x, "ctypes") else x.data.ptr


@op(public=False, view=True, samples=[
    Sample((12,), (2, 3), (4, 2), 1, (1,)), Sample((3, 4), (2, 2, 2), (4, 1, 1), 0, (4, 1))])
def as_strided_view(xp, x, size: tuple, stride: tuple, offset: int, x_stride: tuple):
    """The memory around `x` read with another size, stride and offset (from x's first element): a view.

    x_stride: x's own strides. Elements read several times add up their gradients; memory that belongs to no
    element of x has none.
    """
    if len(size) != len(stride) or any(n < 0 for n in size):
        raise ShapeError(f"as_strided: expected one stride for each size, and sizes of at least 0, got "
                         f"{size} and {stride}")
    if tuple(s * x.itemsize for s in x_stride) != x.strides and x.size > 1:
        x = xp.ascontiguousarray(x)
        if tuple(s * x.itemsize for s in x_stride) != x.strides:
            raise ShapeError(f"as_strided: expected x with strides {x_stride}, got "
                             f"{tuple(s // x.itemsize for s in x.strides)}; to write through this view, "
                             "clone() its base first")
    owner = x
    while isinstance(owner.base, type(x)):
        owner = owner.base
    owner_geometry = (owner.shape, tuple(s // owner.itemsize for s in owner.strides), 0)
    start = offset + (address(x) - address(owner)) // x.itemsize
    low, high = bounds((size, stride, start))
    least, most = bounds(owner_geometry)
    if prod(size) and (low < least or high > most):
        raise ShapeError(f"as_strided: size {size}, stride {stride} and offset {start} reach elements {low} "
                         f"to {high} of a memory of elements {least} to {most}")
    if not prod(size):
        return x.reshape(-1)[:0].reshape(size)
    # All memory from its lowest element, so that the offset counts forwards whatever the owner's strides.
    lowest = owner[tuple(slice(None, None, -1) if s < 0 else slice(None) for s in owner_geometry[1])]
    line = strided(xp, lowest, (most - least + 1,), (x.itemsize,))
    return strided(xp, line[start - least:], size, tuple(s * x.itemsize for s in stride))


@op(public=False, samples=[Sample((2, 3), ((2, 3), (4, 2), 1), ((12,), (1,), 0), ((12,), (1,), 0))])
def as_strided_sum(xp, src, source: tuple, target: tuple, owner: tuple):
    """Values of `src` added up at the memory positions of `source`, read at those of `target`.

    source, target, owner: (shape, strides, offset). What `owner` holds several times is divided among them.
    """
    low = min(bounds(g)[0] for g in (source, target, owner))
    size = max(bounds(g)[1] for g in (source, target, owner)) - low + 1
    memory = xp.zeros(max(size, 1), src.dtype)
    held = tally(xp, _addresses(xp, owner) - low, memory.size)
    if src.size:
        memory = sum_rows(xp, memory.size, _addresses(xp, source) - low, src.reshape(-1, 1)).reshape(-1)
    memory = memory / xp.maximum(held, 1).astype(memory.real.dtype)
    return memory[_addresses(xp, target) - low].reshape(target[0])


def _as_strided_grad(F, g, x_shape, size, stride, offset, x_stride):
    owner = (x_shape, x_stride, 0)
    return F.as_strided_sum(g, (size, stride, offset), owner, owner)


as_strided_view.grad(x=_as_strided_grad)
as_strided_sum.grad(src=lambda F, g, source, target, owner: F.as_strided_sum(g, target, source, owner))

