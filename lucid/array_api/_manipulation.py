"""Shapes, joins, indexing and choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import ShapeError
from ..functional import index as _i
from ..functional import join as _j
from ..functional import order as _o
from ..functional import shape as _s
from ..ops.common import normalize_dim
from ..tensor import Tensor, tensor
from ._dtypes import together

__all__ = [
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "moveaxis",
    "nonzero",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "searchsorted",
    "squeeze",
    "stack",
    "take",
    "take_along_axis",
    "tile",
    "unstack",
    "where",
]

broadcast_shapes = _s.broadcast_shapes


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """The arrays, expanded to their common shape."""
    shape = _s.broadcast_shapes(*(x.shape for x in arrays))
    return [broadcast_to(x, shape) for x in arrays]


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """`x` expanded to `shape`."""
    return F.expand(x, tuple(shape))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """The arrays one behind the other along `axis`; flattened first when it is None."""
    parts = together(*arrays)
    if axis is None:
        parts, axis = tuple(F.reshape(x, (-1,)) for x in parts), 0
    return F.cat(*parts, dim=axis)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """The arrays along a new axis."""
    return F.stack(*together(*arrays), dim=axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of `x` along `axis`."""
    return tuple(_j.unbind(x, axis))


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """`x` with a new dimension of size 1 at `axis`."""
    return F.unsqueeze(x, normalize_dim("expand_dims", axis, x.ndim + 1))


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """`x` without the dimensions `axis`, which have size 1."""
    axes = tuple(normalize_dim("squeeze", a, x.ndim) for a in ((axis,) if isinstance(axis, int) else axis))
    for a in axes:
        if x.shape[a] != 1:
            raise ShapeError(f"squeeze: expected size 1 along axis {a}, got shape {x.shape}")
    return F.reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in axes))


def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """`x` backwards along `axis` (all when None)."""
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    return F.flip(x, axes)


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """`x` moved round by `shift` along `axis`; as a flat array when it is None."""
    if isinstance(axis, tuple) and isinstance(shift, int):
        shift = (shift,) * len(axis)
    return _s.roll(x, shift, axis)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """`x` with the axes `source` moved to `destination`."""
    return _s.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """`x` with its axes in the order `axes`."""
    return F.permute(x, tuple(axes))


def reshape(x: Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    """`x` in another shape of as many elements. copy: True always copies; False raises where it must."""
    if copy is False:
        return x.view(tuple(shape))
    return F.reshape(F.clone(x) if copy else x, tuple(shape))


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """`x` with each element (slice along `axis`) repeated."""
    return _s.repeat_interleave(x, repeats, axis)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """`x` laid side by side as often as `repetitions` say."""
    return _s.tile(x, tuple(repetitions))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices of `x` at `indices` (1-d) along `axis`, which only 1-d x may leave out."""
    if axis is None and x.ndim != 1:
        raise ShapeError(f"take: expected an axis for an array of shape {x.shape}")
    axis = normalize_dim("take", 0 if axis is None else axis, x.ndim)
    return x[(slice(None),) * axis + (indices,)]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements of `x` at `indices` along `axis`, the other axes broadcast."""
    return _i.take_along_dim(x, indices, axis)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The positions of nonzero elements, one vector per dimension."""
    if not x.ndim:
        raise ShapeError("nonzero: expected at least one dimension, got a 0-d array")
    return tuple(_i.nonzero(x, as_tuple=True))


def searchsorted(x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where elements of `x2` would be inserted into the sorted vector `x1`."""
    x1, x2 = together(x1, x2)
    return _o.searchsorted(x1, x2, side=side, right=side == "right", sorter=sorter)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """`x1` where `condition` holds, else `x2`."""
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        x1 = tensor(x1, device=condition.device)
    return F.where(condition, *together(x1, x2))
