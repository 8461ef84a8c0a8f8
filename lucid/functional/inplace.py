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

    >>> import lucid
    >>> x = lucid.zeros(1, 3, 1)
    >>> x.squeeze_().shape
    (3,)
    """
    return change_shape(x, "squeeze", tuple(dim) if isinstance(dim, list) else dim)


@tensor_method("unsqueeze_")
def unsqueeze_(x: Tensor, dim: int) -> Tensor:
    """The tensor itself, with a dimension of size 1 before `dim`.

    >>> import lucid
    >>> lucid.zeros(3).unsqueeze_(0).shape
    (1, 3)
    """
    return change_shape(x, "unsqueeze", dim)


@tensor_method("transpose_")
def transpose_(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """The tensor itself, with two dimensions exchanged. Also `swapaxes_`, `swapdims_`.

    >>> import lucid
    >>> lucid.zeros(2, 3).transpose_(0, 1).shape
    (3, 2)
    """
    return change_shape(x, "transpose", dim0, dim1)


tensor_method("swapaxes_")(transpose_)
tensor_method("swapdims_")(transpose_)


@tensor_method("t_")
def t_(x: Tensor) -> Tensor:
    """The tensor itself, a matrix transposed; vectors and scalars as they are.

    Raises ShapeError for more than 2 dimensions.

    >>> import lucid
    >>> lucid.zeros(2, 3).t_().shape
    (3, 2)
    """
    if x.ndim > 2:
        raise ShapeError(f"t_: expected at most 2 dimensions, got shape {x.shape}; use transpose_")
    return change_shape(x, "transpose", 0, 1) if x.ndim == 2 else x


@tensor_method("as_strided_")
def as_strided_(x: Tensor, size: Sequence[int], stride: Sequence[int],
                storage_offset: int | None = None) -> Tensor:
    """The tensor itself, seen with the given size, stride and offset, in elements of its memory.

    >>> import lucid
    >>> lucid.arange(6).as_strided_((2, 2), (1, 2), 1)
    tensor([[1, 3],
            [2, 4]])
    """
    offset = offset_in(x, storage_offset)
    return change_shape(x, "as_strided_view", tuple(size), tuple(stride), offset, x.stride())
