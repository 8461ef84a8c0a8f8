"""In-place forms that are methods only: the tensor itself gets another shape, or a product added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.inplace import change_shape
from ..errors import ShapeError
from ..tensor import Tensor
from .shape import offset_in, tensor_method

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
    offset = offset_in(x, storage_offset)
    return change_shape(x, "as_strided_view", tuple(size), tuple(stride), offset, x.stride())
