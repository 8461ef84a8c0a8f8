"""Shape functions with PyTorch's overloads: views, joins, splits, grids and what is built of them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np

from ..autograd.inplace import change_shape
from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..ops.common import named, normalize_dim, normalize_dims
from ..ops.shape import address
from ..storage.backend import backend_of
from ..storage.dtype import as_dtype
from ..tensor import Tensor, _wrap
from .reduce import numpy_names
from .registry import public

Size = Any
_Function = TypeVar("_Function", bound=Callable[..., Any])


def sizes(values: tuple[Any, ...]) -> tuple[int, ...]:
    """The sizes given as `*sizes` or as one sequence."""
    if len(values) == 1 and not isinstance(values[0], int) and isinstance(values[0], (tuple, list)):
        values = tuple(values[0])
    return tuple(n if type(n) is int else n.__index__() for n in values)


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

    >>> import lucid
    >>> lucid.reshape(lucid.tensor([1, 2, 3, 4]), (2, -1))
    tensor([[1, 2],
            [3, 4]])
    """
    return F.reshape(x, sizes(size) if shape is None else tuple(shape))


@tensor_method("view")
def view(x: Tensor, *shape: Size, dtype: Any = None) -> Tensor:
    """`x` with another shape on the same memory; raises where a copy is needed. Also `view(dtype)`."""
    if dtype is None and len(shape) == 1 and not isinstance(shape[0], (int, tuple, list)) and not hasattr(
            shape[0], "__index__"):
        dtype = shape[0]
    return F.view_dtype(x, as_dtype(dtype)) if dtype is not None else F.view(x, sizes(shape))


@tensor_method("view_as")
def view_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` viewed with other's shape."""
    return F.view(x, other.shape)


@tensor_method("reshape_as")
def reshape_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` with other's shape."""
    return F.reshape(x, other.shape)


@public(method=True)
def ravel(x: Tensor) -> Tensor:
    """`x` with one dimension."""
    return F.reshape(x, (-1,))


@public(method=True)
def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """`x` with the dimensions from `start_dim` to `end_dim` made one."""
    start, end = normalize_dim("flatten", start_dim, x.ndim), normalize_dim("flatten", end_dim, x.ndim)
    if start > end:
        raise ShapeError(f"flatten: expected start_dim <= end_dim, got {start_dim} and {end_dim} for shape "
                         f"{x.shape}")
    return x if start == end and x.ndim else F.reshape(
        x, (*x.shape[:start], prod(x.shape[start:end + 1]), *x.shape[end + 1:]))


@public(method=True)
def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """`x` with `dim` taken apart into `sizes`, one of which may be -1."""
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
    """`x` with two dimensions exchanged: a view."""
    return F.transpose(x, dim0, dim1)


@public()
def swapaxes(x: Tensor, axis0: int, axis1: int) -> Tensor:
    """`x` with two dimensions exchanged: a view."""
    return F.transpose(x, axis0, axis1)


@public()
def swapdims(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """`x` with two dimensions exchanged: a view."""
    return F.transpose(x, dim0, dim1)


@public(method=True)
def permute(x: Tensor, *dim: Size, dims: Size = None) -> Tensor:
    """`x` with its dimensions in the given order: a view."""
    return F.permute(x, sizes(dim) if dims is None else tuple(dims))


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
    """`x` with the dimensions `source` moved to `destination`, the others in their order: a view."""
    return _moved(x, source, destination)


@public(method=True)
def t(x: Tensor) -> Tensor:
    """The transpose of a matrix; vectors and scalars as they are."""
    if x.ndim > 2:
        raise ShapeError(f"t: expected at most 2 dimensions, got shape {x.shape}; use .mT or transpose")
    return F.transpose(x, 0, 1) if x.ndim == 2 else x


def _matrix(name: str, x: Tensor) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"{name}: expected at least 2 dimensions, got shape {x.shape}")
    return x


@public(method=True)
def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose of the matrices in the last two dimensions."""
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
@numpy_names
def squeeze(x: Tensor, dim: Any = None) -> Tensor:
    """`x` without its dimensions of size 1, or without those among `dim`: a view."""
    return F.squeeze(x, tuple(dim) if isinstance(dim, list) else dim)


# ---- views in place: the tensor itself gets the shape ----


@tensor_method("squeeze_")
def squeeze_(x: Tensor, dim: Any = None) -> Tensor:
    """The tensor itself, without its dimensions of size 1, or without those among `dim`.

    As for every in-place form: not for a leaf that requires grad, nor for a view of one.
    """
    return change_shape(x, "squeeze", tuple(dim) if isinstance(dim, list) else dim)


@tensor_method("unsqueeze_")
def unsqueeze_(x: Tensor, dim: int) -> Tensor:
    """The tensor itself, with a dimension of size 1 before `dim`."""
    return change_shape(x, "unsqueeze", dim)


@tensor_method("transpose_")
def transpose_(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """The tensor itself, with two dimensions exchanged. Also `swapaxes_`, `swapdims_`."""
    return change_shape(x, "transpose", dim0, dim1)


tensor_method("swapaxes_")(transpose_)
tensor_method("swapdims_")(transpose_)


@tensor_method("t_")
def t_(x: Tensor) -> Tensor:
    """The tensor itself, a matrix transposed; vectors and scalars as they are."""
    if x.ndim > 2:
        raise ShapeError(f"t_: expected at most 2 dimensions, got shape {x.shape}; use transpose_")
    return change_shape(x, "transpose", 0, 1) if x.ndim == 2 else x


@tensor_method("as_strided_")
def as_strided_(x: Tensor, size: Sequence[int], stride: Sequence[int],
                storage_offset: int | None = None) -> Tensor:
    """The tensor itself, seen with the given size, stride and offset, in elements of its memory."""
    offset = _offset(x, storage_offset)
    return change_shape(x, "as_strided_view", tuple(size), tuple(stride), offset, x.stride())


@public(method=True)
def expand(x: Tensor, *size: Size) -> Tensor:
    """`x` broadcast to `size` without copying; -1 keeps a size."""
    return F.expand(x, sizes(size))


@tensor_method("expand_as")
def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` broadcast to other's shape without copying."""
    return F.expand(x, other.shape)


@public(method=True)
def broadcast_to(x: Tensor, *shape: Size, size: Size = None) -> Tensor:
    """`x` broadcast to `shape` without copying."""
    return F.expand(x, sizes(shape) if size is None else tuple(size))


def as_tuple(tensors: Any) -> tuple[Tensor, ...]:
    """The tensors given as `*tensors` or as one sequence."""
    one = len(tensors) == 1 and isinstance(tensors[0], (tuple, list))
    return tuple(tensors[0] if one else tensors)


@public()
def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape to which all `shapes` broadcast."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = ", ".join(map(str, shapes))
        raise ShapeError(f"broadcast_shapes: {text} do not broadcast together") from None


@public()
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """The tensors broadcast to one shape without copying."""
    tensors = as_tuple(tensors)
    shape = broadcast_shapes(*[t.shape for t in tensors])
    return tuple(t if t.shape == shape else F.expand(t, shape) for t in tensors)


@tensor_method("contiguous")
def contiguous(x: Tensor, memory_format: Any = None) -> Tensor:
    """`x` itself when its elements lie in row-major order without gaps, else a copy that does."""
    return x if x.is_contiguous() else F.contiguous_copy(x)


@public(method=True)
def as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int],
               storage_offset: int | None = None) -> Tensor:
    """The memory of `x` read with another size and stride, from element `storage_offset` on: a view.

    storage_offset: None starts at x's first element. Elements read several times add up their gradients.
    """
    return F.as_strided_view(x, tuple(size), tuple(stride), _offset(x, storage_offset), x.stride())


def _offset(x: Tensor, storage_offset: int | None) -> int:
    """`storage_offset` counted from x's first element."""
    if storage_offset is None:
        return 0
    return storage_offset - (address(x.array) - address(x.storage.root.array)) // builtins.max(x.itemsize, 1)


@public(method=True)
@named("as_strided_scatter")
def as_strided_scatter(x: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int],
                       storage_offset: int | None = None) -> Tensor:
    """A contiguous copy of `x` with `src` written where `as_strided` would read."""
    xp = x.storage.backend.xp
    at = xp.full((1,) * len(size), storage_offset or 0, "int64")
    for d, (n, s) in enumerate(zip(size, stride, strict=True)):
        at = at + (xp.arange(n, dtype="int64") * s).reshape([-1 if i == d else 1 for i in range(len(size))])
    return F.put(contiguous(x), _wrap(at, x.storage.backend), src)


# ---- repeats, flips, rolls ----

@tensor_method("repeat")
def repeat(x: Tensor, *repeats: Size) -> Tensor:
    """`x` laid side by side `repeats` times along each dimension; further numbers add dimensions in front."""
    return F.repeat(x, sizes(repeats))


@public(method=True)
def tile(x: Tensor, *repeats: Size, dims: Size = None) -> Tensor:
    """`x` laid side by side as often as the numbers say along its last dimensions."""
    counts = sizes(repeats) if dims is None else tuple(dims)
    return F.repeat(x, (1,) * (x.ndim - len(counts)) + counts)


@public(method=True)
@numpy_names
def repeat_interleave(x: Tensor, repeats: Any = None, dim: int | None = None, *,
                      output_size: int | None = None) -> Tensor:
    """`x` with each slice along `dim` (each element when None) repeated `repeats` times in place.

    repeats: a number, or a tensor with one for each slice. A tensor alone: i as often as its element i says.
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
    """A copy of `x` with the order of its elements reversed along the given dimensions."""
    return F.flip(x, sizes(dim) if dims is None else _tuple(dims))


@public(method=True)
def fliplr(x: Tensor) -> Tensor:
    """A copy of `x` reversed along dim 1."""
    return F.flip(_matrix("fliplr", x), (1,))


@public(method=True)
def flipud(x: Tensor) -> Tensor:
    """A copy of `x` reversed along dim 0."""
    if not x.ndim:
        raise ShapeError("flipud: expected at least 1 dimension, got a 0-d tensor")
    return F.flip(x, (0,))


def _tuple(value: Any) -> tuple[int, ...]:
    return () if value is None else (value,) if isinstance(value, int) else tuple(value)


@public(method=True)
def roll(x: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """`x` with its elements moved `shifts` places along `dims`, entering again at the other side."""
    return F.roll(x, _tuple(shifts), _tuple(dims))


@public(method=True)
def rot90(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """`x` turned by k * 90 degrees in the plane of `dims`, from the first towards the second."""
    if len(dims) != 2:
        raise ShapeError(f"rot90: expected two dims, got {tuple(dims)}")
    a, b = normalize_dims("rot90", tuple(dims), x.ndim)
    k %= 4
    if k == 0:
        return F.clone(x)
    if k == 2:
        return F.flip(x, (a, b))
    return F.flip(F.transpose(x, a, b), (a,)) if k == 1 else F.transpose(F.flip(x, (a,)), a, b)


# ---- diagonals ----

@public(method=True)
def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """The matrix with the vector `x` on a diagonal, or a copy of a diagonal of the matrix `x`."""
    if x.ndim not in (1, 2):
        raise ShapeError(f"diag: expected 1 or 2 dimensions, got shape {x.shape}; use diagonal or diag_embed")
    return F.diag_embed(x, diagonal) if x.ndim == 1 else F.clone(F.diagonal(x, diagonal))


@public(method=True)
def diagflat(x: Tensor, offset: int = 0) -> Tensor:
    """The matrix with the elements of `x` on a diagonal."""
    return F.diag_embed(F.reshape(x, (-1,)), offset)


def _triangle_indices(row: int, col: int, offset: int, dtype: Any, device: Any, lower: bool) -> Tensor:
    if row < 0 or col < 0:
        raise ShapeError(f"{'tril' if lower else 'triu'}_indices: expected sizes >= 0, got {row} and {col}")
    backend = backend_of(device)
    xp = backend.xp
    gap = xp.arange(col) - xp.arange(row)[:, None]
    inside = gap <= offset if lower else gap >= offset
    return _wrap(xp.stack(xp.nonzero(inside)).astype(as_dtype(dtype)), backend)


@public()
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = "int64", device: Any = None) -> Tensor:
    """Row and column numbers, [2, n], of the elements on and below a diagonal of a row x col matrix."""
    return _triangle_indices(row, col, offset, dtype, device, True)


@public()
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = "int64", device: Any = None) -> Tensor:
    """Row and column numbers, [2, n], of the elements on and above a diagonal of a row x col matrix."""
    return _triangle_indices(row, col, offset, dtype, device, False)


def _placed(name: str, x: Tensor, src: Tensor, index: tuple[Any, ...]) -> Tensor:
    expected = F.getitem_view(x, index).shape
    if src.shape != expected:
        raise ShapeError(f"{name}: expected src of shape {expected}, got {src.shape}")
    return F.getitem_put(x, src, index)


@public(method=True)
def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """`x` with `src` at one position along `dim`."""
    from ..ops.shape import select_index
    return _placed("select_scatter", x, src, select_index(x.shape, dim, index))


@public(method=True)
def slice_scatter(x: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
                  step: int = 1) -> Tensor:
    """`x` with `src` at start:end:step along `dim`."""
    dim = normalize_dim("slice_scatter", dim, x.ndim)
    return _placed("slice_scatter", x, src, (slice(None),) * dim + (slice(start, end, step),))
