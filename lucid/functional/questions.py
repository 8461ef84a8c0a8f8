"""Small questions about tensors, positions of nonzero elements, and how tensors are printed."""

from __future__ import annotations

from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..ops.common import check_tensors
from ..storage.dtype import as_dtype, get_default_dtype, int64
from ..tensor import Tensor, _wrap, tensor
from .creation import empty_strided
from .registry import public
from .shape import sizes, tensor_method


@public(method=True)
def is_nonzero(x: Tensor) -> bool:
    """Whether the only element of `x` is not zero (waits for the device). Raises LucidError for several.

    >>> import lucid
    >>> lucid.is_nonzero(lucid.tensor(0.5))
    True
    """
    check_tensors("is_nonzero", x=x)
    return bool(x)


@public(method=True)
def is_same_size(x: Tensor, other: Tensor) -> bool:
    """Whether both tensors have the same shape.

    >>> import lucid
    >>> lucid.is_same_size(lucid.ones(2), lucid.ones(2, 1))
    False
    """
    check_tensors("is_same_size", x=x, other=other)
    return x.shape == other.shape


@public(method=True)
def is_signed(x: Tensor) -> bool:
    """Whether the dtype of `x` has negative numbers.

    >>> import lucid
    >>> lucid.is_signed(lucid.tensor([1], dtype="uint8"))
    False
    """
    check_tensors("is_signed", x=x)
    return x.dtype.kind not in "ub"


@public("is_conj", "is_neg", "is_inference", method=("is_conj", "is_neg", "is_inference"))
def is_conj(x: Tensor) -> bool:
    """False: conjugates and negatives are never delayed, and no tensor is barred from autograd.

    >>> import lucid
    >>> lucid.is_conj(lucid.tensor([1j]).conj())
    False
    """
    check_tensors("is_conj", x=x)
    return False


@public(method=True)
def get_device(x: Tensor) -> int:
    """The index of the CUDA device that holds `x`; -1 for the CPU.

    >>> import lucid
    >>> lucid.get_device(lucid.ones(2, device="cpu"))
    -1
    """
    check_tensors("get_device", x=x)
    return (x.device.index or 0) if x.is_cuda else -1


setattr(Tensor, "is_cpu", property(  # noqa: B010
    lambda x: not x.is_cuda, doc="Whether the data is in host memory."))  # fmt: skip


@tensor_method("ndimension")
def ndimension(x: Tensor) -> int:
    """The number of dimensions: an older name of `ndim`.

    >>> import lucid
    >>> lucid.zeros(2, 3).ndimension()
    2
    """
    return x.ndim


@public()
def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A 0-d tensor with the value `s`, in the default dtype unless given. Raises ShapeError for several.

    >>> import lucid
    >>> lucid.scalar_tensor(2)
    tensor(2.)
    """
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype)
    out = tensor(s, dtype=wanted, device=device, requires_grad=requires_grad)
    if out.ndim:
        raise ShapeError(f"scalar_tensor: expected a number, got data of shape {out.shape}; use tensor")
    return out


@tensor_method("new_empty_strided")
def new_empty_strided(x: Tensor, size: Any, stride: Any, dtype: Any = None, device: Any = None,
                      requires_grad: bool = False) -> Tensor:
    """`empty_strided` with the dtype and device of `x`, unless given.

    >>> import lucid
    >>> lucid.zeros(1, dtype=lucid.int64).new_empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    wanted, where = x.dtype if dtype is None else dtype, x.device if device is None else device
    return empty_strided(size, stride, dtype=wanted, device=where, requires_grad=requires_grad)


# ---- positions ----


@public("unravel_index")
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The positions in a tensor of `shape` of elements numbered row by row: one tensor per dimension.

    indices: integers, negative ones from the end. Raises DtypeError for others.

    >>> import lucid
    >>> lucid.unravel_index(lucid.tensor([5, 0]), (2, 3))
    (tensor([1, 0]), tensor([2, 0]))
    """
    check_tensors("unravel_index", indices=indices)
    if indices.dtype.kind not in "iu":
        raise DtypeError(f"unravel_index: expected indices of integers, got {indices.dtype.name}")
    out, indices = [], indices.to(int64)
    for n in reversed(sizes((shape,) if isinstance(shape, int) else (tuple(shape),), "unravel_index")):
        if n < 1:
            raise ShapeError(f"unravel_index: expected sizes of at least 1, got {tuple(shape)}")
        out.append(F.remainder(indices, n))
        indices = F.floor_divide(indices, n)
    return tuple(reversed(out))


@public(method=True)
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` positions of `nonzero`, int64 [size, dimensions].

    Where there are fewer, rows of `fill_value`.

    >>> import lucid
    >>> lucid.nonzero_static(lucid.tensor([0, 1, 2]), size=3)
    tensor([[ 1],
            [ 2],
            [-1]])
    """
    check_tensors("nonzero_static", x=x)
    if size < 0:
        raise ShapeError(f"nonzero_static: expected a size of at least 0, got {size}")
    found, xp = F.nonzero(x).array[:size], x.backend.xp
    rest = xp.full((size - found.shape[0], found.shape[1]), fill_value, "int64")
    return _wrap(xp.concatenate([found, rest]), x.backend)

