"""Shape functions with PyTorch's overloads: views, joins, splits, grids and what is built of them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np

from ..autograd.impl import describe
from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..ops.common import named, normalize_dim, normalize_dims
from ..ops.shape import address
from ..storage.dtype import as_dtype
from ..tensor import Tensor, _wrap
from .registry import on_its_device, public

Size = Any
_Function = TypeVar("_Function", bound=Callable[..., Any])


def sizes(values: tuple[Any, ...], name: str) -> tuple[int, ...]:
    """The sizes, or dims, given to `name` as `*sizes` or as one sequence."""
    if len(values) == 1 and not isinstance(values[0], int) and isinstance(values[0], (tuple, list)):
        values = tuple(values[0])
    try:
        return tuple(n if type(n) is int else n.__index__() for n in values)
    except (AttributeError, TypeError):
        given = describe(values)
        raise DtypeError(f"{name}: expected integers, or one sequence of them, got {given}") from None


def tensor_method(name: str) -> Callable[[_Function], _Function]:
    """A decorator for what PyTorch has as a method only: attaches the function to `Tensor` under `name`."""
    def attach(function: _Function) -> _Function:
        setattr(Tensor, name, function)
        return function
    return attach


# ---- views ----

@public(method=True)
def reshape(x: Tensor, *size: Size, shape: Size = None) -> Tensor:
    """`x` with another shape of as many elements; one size may be -1. A view where the memory allows it.

    Raises ShapeError for sizes that do not multiply to the same number.

    >>> import lucid
    >>> lucid.reshape(lucid.tensor([1, 2, 3, 4]), (2, -1))
    tensor([[1, 2],
            [3, 4]])
    """
    return F.reshape(x, sizes(size, "reshape") if shape is None else tuple(shape))


@tensor_method("view")
def view(x: Tensor, *shape: Size, dtype: Any = None) -> Tensor:
    """`x` with another shape on the same memory, or its bytes read as another dtype.

    Raises ShapeError where only a copy could have the shape: use `reshape`. view(dtype) changes the last size
    to fit, and has no derivative for another dtype than x's.

    >>> import lucid
    >>> x = lucid.arange(4)
    >>> x.view(2, 2)[0, 0] = 7
    >>> x
    tensor([7, 1, 2, 3])
    """
    if dtype is None and len(shape) == 1 and not isinstance(shape[0], (int, tuple, list)) and not hasattr(
            shape[0], "__index__"):
        dtype = shape[0]
    if dtype is None:
        return F.view(x, sizes(shape, "view"))
    return F.view(x, x.shape) if as_dtype(dtype) is x.dtype else F.view_dtype(x, as_dtype(dtype))


@tensor_method("view_as")
def view_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` viewed with other's shape; see `view`.

    >>> import lucid
    >>> lucid.arange(4).view_as(lucid.zeros(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    return F.view(x, other.shape)


@tensor_method("reshape_as")
def reshape_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` with other's shape; see `reshape`.

    >>> import lucid
    >>> lucid.arange(4).reshape_as(lucid.zeros(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    return F.reshape(x, other.shape)


@public(method=True)
def ravel(x: Tensor) -> Tensor:
    """`x` with one dimension: a view where the memory allows it.

    >>> import lucid
    >>> lucid.ravel(lucid.tensor([[1, 2], [3, 4]]))
    tensor([1, 2, 3, 4])
    """
    return F.reshape(x, (-1,))


@public(method=True)
def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """`x` with the dimensions from `start_dim` to `end_dim` made one: a view where the memory allows it.

    Raises ShapeError for start_dim behind end_dim, IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.flatten(lucid.zeros(2, 3, 4), start_dim=1).shape
    (2, 12)
    """
    start, end = normalize_dim("flatten", start_dim, x.ndim), normalize_dim("flatten", end_dim, x.ndim)
    if start > end:
        raise ShapeError(f"flatten: expected start_dim <= end_dim, got {start_dim} and {end_dim} for shape "
                         f"{x.shape}")
    return x if start == end and x.ndim else F.reshape(
        x, (*x.shape[:start], prod(x.shape[start:end + 1]), *x.shape[end + 1:]))


@public(method=True)
def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """`x` with `dim` taken apart into `sizes`, one of which may be -1.

    Raises ShapeError for sizes that do not multiply to the size of `dim`.

    >>> import lucid
    >>> lucid.unflatten(lucid.zeros(2, 6), 1, (2, -1)).shape
    (2, 2, 3)
    """
    dim = normalize_dim("unflatten", dim, x.ndim)
    rest = prod(n for n in sizes if n != -1)
    misfit = x.shape[dim] % rest if -1 in sizes and rest else x.shape[dim] != rest
    if not sizes or sum(n == -1 for n in sizes) > 1 or misfit:
        raise ShapeError(f"unflatten: sizes {tuple(sizes)} do not multiply to {x.shape[dim]}, the size of "
                         f"dim {dim}")
    filled = tuple(x.shape[dim] // rest if n == -1 else n for n in sizes)
    return F.reshape(x, (*x.shape[:dim], *filled, *x.shape[dim + 1:]))


@public(method=("transpose", "swapaxes", "swapdims"))
def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """`x` with two dimensions exchanged: a view. Raises IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.transpose(lucid.tensor([[1, 2], [3, 4]]), 0, 1)
    tensor([[1, 3],
            [2, 4]])
    """
    return F.transpose(x, dim0, dim1)


@public()
def swapaxes(x: Tensor, axis0: int, axis1: int) -> Tensor:
    """`x` with two dimensions exchanged: another name of `transpose`.

    >>> import lucid
    >>> lucid.swapaxes(lucid.zeros(2, 3), 0, 1).shape
    (3, 2)
    """
    return F.transpose(x, axis0, axis1)


@public()
def swapdims(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """`x` with two dimensions exchanged: another name of `transpose`.

    >>> import lucid
    >>> lucid.swapdims(lucid.zeros(2, 3), 0, 1).shape
    (3, 2)
    """
    return F.transpose(x, dim0, dim1)


@public(method=True)
def permute(x: Tensor, *dim: Size, dims: Size = None) -> Tensor:
    """`x` with its dimensions in the given order: a view.

    Raises ShapeError unless each dimension is named once, IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.permute(lucid.zeros(2, 3, 4), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return F.permute(x, sizes(dim, "permute") if dims is None else tuple(dims))


def _moved(x: Tensor, source: Any, destination: Any) -> Tensor:
    source, destination = (normalize_dims("movedim", (d,) if isinstance(d, int) else tuple(d), x.ndim)
                           for d in (source, destination))
    if len(source) != len(destination):
        raise ShapeError(f"movedim: expected as many destinations as sources, got {source} and {destination}")
    order = [d for d in range(x.ndim) if d not in source]
    for to, d in sorted(zip(destination, source, strict=True)):
        order.insert(to, d)
    return F.permute(x, tuple(order))


@public("movedim", "moveaxis", method=("movedim", "moveaxis"))
def movedim(x: Tensor, source: Any, destination: Any) -> Tensor:
    """`x` with the dimensions `source` moved to `destination`, the others in their order: a view.

    source, destination: ints or tuples of one length, else ShapeError.

    >>> import lucid
    >>> lucid.movedim(lucid.zeros(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """
    return _moved(x, source, destination)


@public(method=True)
def t(x: Tensor) -> Tensor:
    """The transpose of a matrix; vectors and scalars as they are. Raises ShapeError for more dimensions.

    >>> import lucid
    >>> lucid.t(lucid.tensor([[1, 2], [3, 4]]))
    tensor([[1, 3],
            [2, 4]])
    """
    if x.ndim > 2:
        raise ShapeError(f"t: expected at most 2 dimensions, got shape {x.shape}; use .mT or transpose")
    return F.transpose(x, 0, 1) if x.ndim == 2 else x


def _matrix(name: str, x: Tensor) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"{name}: expected at least 2 dimensions, got shape {x.shape}")
    return x


@public(method=True)
def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose of the matrices in the last two dimensions. Raises ShapeError for fewer.

    >>> import lucid
    >>> lucid.adjoint(lucid.tensor([[1 + 1j, 2 + 0j]]))
    tensor([[1.-1.j],
            [2.-0.j]], dtype=complex64)
    """
    return F.conj(F.transpose(_matrix("adjoint", x), -2, -1))


setattr(Tensor, "T", property(  # noqa: B010  (properties of Tensor that are made of ops)
    lambda x: F.permute(x, tuple(range(x.ndim - 1, -1, -1))), doc="The dimensions in reverse order."))
setattr(Tensor, "mT", property(  # noqa: B010
    lambda x: F.transpose(_matrix("mT", x), -2, -1), doc="The matrices in the last two dims, transposed."))
setattr(Tensor, "H", property(  # noqa: B010
    lambda x: F.conj(t(x)), doc="The conjugate transpose of a matrix."))
setattr(Tensor, "mH", property(  # noqa: B010
    lambda x: F.conj(F.transpose(_matrix("mH", x), -2, -1)), doc="The conjugate transposes of the matrices."))


@public(method=True)
def squeeze(x: Tensor, dim: Any = None) -> Tensor:
    """`x` without its dimensions of size 1, or without those among `dim`: a view.

    Dimensions of other sizes stay. Raises IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.squeeze(lucid.zeros(1, 3, 1)).shape, lucid.squeeze(lucid.zeros(1, 3, 1), 0).shape
    ((3,), (3, 1))
    """
    return F.squeeze(x, tuple(dim) if isinstance(dim, list) else dim)


@public(method=True)
def expand(x: Tensor, *size: Size) -> Tensor:
    """`x` broadcast to `size` without copying; -1 keeps a size. Raises ShapeError where it does not fit.

    >>> import lucid
    >>> lucid.tensor([[1], [2]]).expand(2, 3)
    tensor([[1, 1, 1],
            [2, 2, 2]])
    """
    return F.expand(x, sizes(size, "expand"))


@tensor_method("expand_as")
def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` broadcast to other's shape without copying; see `expand`.

    >>> import lucid
    >>> lucid.tensor([[1], [2]]).expand_as(lucid.zeros(2, 3)).shape
    (2, 3)
    """
    return F.expand(x, other.shape)


@public(method=True)
def broadcast_to(x: Tensor, *shape: Size, size: Size = None) -> Tensor:
    """`x` broadcast to `shape` without copying; see `expand`.

    >>> import lucid
    >>> lucid.broadcast_to(lucid.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    return F.expand(x, sizes(shape, "broadcast_to") if size is None else tuple(size))


def as_tuple(tensors: Any) -> tuple[Tensor, ...]:
    """The tensors given as `*tensors` or as one sequence."""
    one = len(tensors) == 1 and isinstance(tensors[0], (tuple, list))
    return tuple(tensors[0] if one else tensors)


@public()
def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape to which all `shapes` broadcast. Raises ShapeError where they do not.

    >>> import lucid
    >>> lucid.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = ", ".join(map(str, shapes))
        raise ShapeError(f"broadcast_shapes: {text} do not broadcast together") from None


@public()
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """The tensors broadcast to one shape without copying. Raises ShapeError where they do not broadcast.

    >>> import lucid
    >>> a, b = lucid.broadcast_tensors(lucid.tensor([[1], [2]]), lucid.tensor([3, 4]))
    >>> a.shape, b.shape
    ((2, 2), (2, 2))
    """
    tensors = as_tuple(tensors)
    shape = broadcast_shapes(*[t.shape for t in tensors])
    return tuple(t if t.shape == shape else F.expand(t, shape) for t in tensors)


@tensor_method("contiguous")
def contiguous(x: Tensor, memory_format: Any = None) -> Tensor:
    """`x` itself when its elements lie in row-major order without gaps, else a copy that does.

    >>> import lucid
    >>> x = lucid.zeros(2, 3).t()
    >>> x.is_contiguous(), x.contiguous().is_contiguous()
    (False, True)
    """
    return x if x.is_contiguous() else F.contiguous_copy(x)


@public(method=True)
def as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int],
               storage_offset: int | None = None) -> Tensor:
    """The memory of `x` read with another size and stride, from element `storage_offset` on: a view.

    storage_offset: None starts at x's first element. Elements read several times add up their gradients.
    Raises ShapeError for what lies outside of the memory.

    >>> import lucid
    >>> lucid.arange(6).as_strided((2, 3), (1, 2))
    tensor([[0, 2, 4],
            [1, 3, 5]])
    """
    return F.as_strided_view(x, tuple(size), tuple(stride), offset_in(x, storage_offset), x.stride())


def offset_in(x: Tensor, storage_offset: int | None) -> int:
    """`storage_offset` counted from x's first element."""
    if storage_offset is None:
        return 0
    return storage_offset - (address(x.array) - address(x.storage.root.array)) // builtins.max(x.itemsize, 1)


@public(method=True)
@named("as_strided_scatter")
def as_strided_scatter(x: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int],
                       storage_offset: int | None = None) -> Tensor:
    """A contiguous copy of `x` with `src` written where `as_strided` would read.

    src: as many elements as `size` names, else ShapeError.

    >>> import lucid
    >>> lucid.zeros(4).as_strided_scatter(lucid.tensor([5.0, 7.0]), (2,), (2,))
    tensor([5., 0., 7., 0.])
    """
    xp = x.storage.backend.xp
    at = xp.full((1,) * len(size), storage_offset or 0, "int64")
    for d, (n, s) in enumerate(zip(size, stride, strict=True)):
        at = at + (xp.arange(n, dtype="int64") * s).reshape([-1 if i == d else 1 for i in range(len(size))])
    return F.put(contiguous(x), _wrap(at, x.storage.backend), src)


# ---- repeats, flips, rolls ----

@tensor_method("repeat")
def repeat(x: Tensor, *repeats: Size) -> Tensor:
    """`x` laid side by side `repeats` times along each dimension; further numbers add dimensions in front.

    Raises ShapeError for fewer numbers than dimensions and for negative ones.

    >>> import lucid
    >>> lucid.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    return F.repeat(x, sizes(repeats, "repeat"))


@public(method=True)
def tile(x: Tensor, *repeats: Size, dims: Size = None) -> Tensor:
    """`x` laid side by side as often as the numbers say along its last dimensions; NumPy's `tile`.

    >>> import lucid
    >>> lucid.tile(lucid.tensor([1, 2]), (2,))
    tensor([1, 2, 1, 2])
    """
    counts = sizes(repeats, "tile") if dims is None else tuple(dims)
    return F.repeat(x, (1,) * (x.ndim - len(counts)) + counts)


@public(method=True)
@on_its_device
def repeat_interleave(x: Tensor, repeats: Any = None, dim: int | None = None, *,
                      output_size: int | None = None) -> Tensor:
    """`x` with each slice along `dim` (each element when None) repeated `repeats` times in place.

    repeats: a number, or a tensor with one for each slice. A tensor alone: i as often as its element i says.
    Raises ShapeError or DtypeError for negative repeats, another number of them, or floats.

    >>> import lucid
    >>> lucid.repeat_interleave(lucid.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    >>> lucid.repeat_interleave(lucid.tensor([1, 2]), lucid.tensor([1, 3]))
    tensor([1, 2, 2, 2])
    """
    if repeats is None:
        xp = x.storage.backend.xp
        return _wrap(_repeated(xp, x.array), x.storage.backend)
    if dim is None:
        x, dim = F.reshape(x, (-1,)), 0
    x = F.reshape(x, (1,)) if not x.ndim else x
    dim = normalize_dim("repeat_interleave", dim, x.ndim)
    n = x.shape[dim]
    if isinstance(repeats, Tensor) and repeats.numel() == 1:
        repeats = int(repeats.item())
    if isinstance(repeats, int):
        if repeats < 0:
            raise ShapeError(f"repeat_interleave: expected repeats of at least 0, got {repeats}")
        wide = F.expand(F.unsqueeze(x, dim + 1), (*x.shape[:dim + 1], repeats, *x.shape[dim + 1:]))
        return F.reshape(wide, (*x.shape[:dim], n * repeats, *x.shape[dim + 1:]))
    backend = x.storage.backend
    counts = repeats.array if isinstance(repeats, Tensor) else backend.asarray(repeats)
    if counts.shape != (n,):
        raise ShapeError(f"repeat_interleave: expected one number for each of {n} slices along dim {dim}, "
                         f"got {counts.shape}")
    return F.index_select(x, dim, _wrap(_repeated(backend.xp, counts), backend))


def _repeated(xp: Any, counts: Any) -> Any:
    """[0] * counts[0] + [1] * counts[1] + ... as an int64 array."""
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts.size and int(counts.min()) < 0):
        raise DtypeError(f"repeat_interleave: expected a 1-d tensor of integers of at least 0, got "
                         f"{counts.dtype}{list(counts.shape)}")
    ends = xp.cumsum(counts)
    total = int(ends[-1]) if counts.size else 0    # synchronises: the size depends on the values
    return xp.searchsorted(ends, xp.arange(total), "right").astype("int64")


@public(method=True)
def flip(x: Tensor, *dim: Size, dims: Size = None) -> Tensor:
    """A copy of `x` with the order of its elements reversed along the given dimensions.

    >>> import lucid
    >>> lucid.flip(lucid.tensor([[1, 2], [3, 4]]), (0,))
    tensor([[3, 4],
            [1, 2]])
    """
    return F.flip(x, sizes(dim, "flip") if dims is None else _tuple(dims))


@public(method=True)
def fliplr(x: Tensor) -> Tensor:
    """A copy of `x` reversed along dim 1. Raises ShapeError for fewer than 2 dimensions.

    >>> import lucid
    >>> lucid.fliplr(lucid.tensor([[1, 2], [3, 4]]))
    tensor([[2, 1],
            [4, 3]])
    """
    return F.flip(_matrix("fliplr", x), (1,))


@public(method=True)
def flipud(x: Tensor) -> Tensor:
    """A copy of `x` reversed along dim 0. Raises ShapeError for a 0-d tensor.

    >>> import lucid
    >>> lucid.flipud(lucid.tensor([[1, 2], [3, 4]]))
    tensor([[3, 4],
            [1, 2]])
    """
    if not x.ndim:
        raise ShapeError("flipud: expected at least 1 dimension, got a 0-d tensor")
    return F.flip(x, (0,))


def _tuple(value: Any) -> tuple[int, ...]:
    return () if value is None else (value,) if isinstance(value, int) else tuple(value)


@public(method=True)
def roll(x: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """`x` with its elements moved `shifts` places along `dims`, entering again at the other side.

    Without dims the flattened tensor is rolled. Raises ShapeError for another number of shifts than dims.

    >>> import lucid
    >>> lucid.roll(lucid.tensor([1, 2, 3, 4]), 1)
    tensor([4, 1, 2, 3])
    """
    return F.roll(x, _tuple(shifts), _tuple(dims))


@public(method=True)
def rot90(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """`x` turned by k * 90 degrees in the plane of `dims`, from the first towards the second.

    Raises ShapeError for other than two different dims.

    >>> import lucid
    >>> lucid.rot90(lucid.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    if len(dims) != 2:
        raise ShapeError(f"rot90: expected two dims, got {tuple(dims)}")
    a, b = normalize_dims("rot90", tuple(dims), x.ndim)
    k %= 4
    if k == 0:
        return F.clone(x)
    if k == 2:
        return F.flip(x, (a, b))
    return F.flip(F.transpose(x, a, b), (a,)) if k == 1 else F.transpose(F.flip(x, (a,)), a, b)


def _placed(name: str, x: Tensor, src: Tensor, index: tuple[Any, ...]) -> Tensor:
    expected = F.getitem_view(x, index).shape
    if src.shape != expected:
        raise ShapeError(f"{name}: expected src of shape {expected}, got {src.shape}")
    return F.getitem_put(x, src, index)


@public(method=True)
def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `x` with `src` at one position along `dim`.

    src: the shape of `x.select(dim, index)`, else ShapeError.

    >>> import lucid
    >>> lucid.select_scatter(lucid.zeros(2, 2), lucid.tensor([5.0, 7.0]), 0, 1)
    tensor([[0., 0.],
            [5., 7.]])
    """
    from ..ops.shape import select_index
    return _placed("select_scatter", x, src, select_index(x.shape, dim, index))


@public(method=True)
def slice_scatter(x: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
                  step: int = 1) -> Tensor:
    """A copy of `x` with `src` at start:end:step along `dim`.

    src: the slice's shape, else ShapeError.

    >>> import lucid
    >>> lucid.slice_scatter(lucid.zeros(4), lucid.tensor([5.0, 7.0]), 0, 1, 3)
    tensor([0., 5., 7., 0.])
    """
    dim = normalize_dim("slice_scatter", dim, x.ndim)
    return _placed("slice_scatter", x, src, (slice(None),) * dim + (slice(start, end, step),))
