"""In-place forms that are methods only: another shape, a product added, a diagonal, a Python function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ..autograd.inplace import change_shape, check_writable, method, write
from ..autograd.record import RECORDED as F
from ..errors import DeviceError, GradError, ShapeError
from ..tensor import Tensor, _wrap
from .methods import LazyMethod
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


# ---- products in place ----


def _product(name: str) -> None:
    setattr(Tensor, f"{name}_", LazyMethod(f"{name}_", lambda: method(getattr(F, name), f"{name}_")))


for _name in ("addmm", "addmv", "addr", "addbmm", "baddbmm"):
    _product(_name)


@tensor_method("fill_diagonal_")
def fill_diagonal_(x: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """The tensor itself, with `fill_value` where all indices are equal.

    x: at least 2 dimensions, all of one size if more. wrap: in a tall matrix the diagonal starts again below
    the last one, after a row without. Raises ShapeError for other shapes.

    >>> import lucid
    >>> lucid.zeros(2, 3).fill_diagonal_(7)
    tensor([[7., 0., 0.],
            [0., 7., 0.]])
    """
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) > 1):
        raise ShapeError(
            f"fill_diagonal_: expected a matrix, or dimensions of one size, got shape {x.shape}"
        )
    check_writable(x, "fill_diagonal_")
    xp, n = x.backend.xp, x.shape[-1]
    step = sum(prod(x.shape[d + 1 :]) for d in range(x.ndim))
    mask = xp.zeros(x.numel(), bool)
    mask[: None if wrap else min(x.shape) * step : step] = True
    if x.ndim == 2 and wrap:
        mask = mask.reshape(x.shape)
        mask[n :: n + 1] = False
    return write(x, F.masked_fill(x, _wrap(mask.reshape(x.shape), x.backend), fill_value), "fill_diagonal_")


# ---- a Python function on every element ----


def _mapped(name: str, x: Tensor, others: tuple[Tensor, ...], function: Callable[..., Any]) -> Tensor:
    if any(t.requires_grad for t in (x, *others)):
        raise GradError(f"{name}: a Python function has no derivative; call it under detach()")
    if x.is_cuda:
        raise DeviceError(f"{name}: expected a tensor on the CPU, got {x.device}; use operations on tensors")
    check_writable(x, name)
    values = [np.broadcast_to(t.numpy(), x.shape).ravel().tolist() for t in (x, *others)]
    new = np.array([function(*row) for row in zip(*values, strict=True)], x.dtype).reshape(x.shape)
    return write(x, _wrap(new, x.backend), name)


@tensor_method("apply_")
def apply_(x: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """The tensor itself, each element replaced by what a Python function makes of it. On the CPU, slowly.

    >>> import lucid
    >>> lucid.tensor([1.0, 2.0]).apply_(lambda v: v * v + 1)
    tensor([2., 5.])
    """
    return _mapped("apply_", x, (), callable)


@tensor_method("map_")
def map_(x: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """The tensor itself, each element replaced by what a Python function makes of it and of tensor's.

    >>> import lucid
    >>> lucid.tensor([1.0, 2.0]).map_(lucid.tensor([3.0, 4.0]), lambda a, b: max(a, b))
    tensor([3., 4.])
    """
    return _mapped("map_", x, (tensor,), callable)


@tensor_method("map2_")
def map2_(x: Tensor, y: Tensor, z: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """The tensor itself, each element replaced by what a Python function makes of it and two others.

    >>> import lucid
    >>> x, y = lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0])
    >>> x.map2_(y, y, lambda a, b, c: a + b * c)
    tensor([10., 18.])
    """
    return _mapped("map2_", x, (y, z), callable)
