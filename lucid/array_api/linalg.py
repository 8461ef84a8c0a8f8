"""The linear algebra extension, and the matrix functions of the main namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from .. import linalg as _l
from ..autograd.record import RECORDED as F
from ..errors import ShapeError
from ..functional.creation import arange as _arange
from ..functional.linalg import QR, SVD, Eigen, SlogDet
from ..functional.products import tensordot as _tensordot
from ..functional.shape import broadcast_shapes
from ..storage.dtype import as_dtype
from ..tensor import Tensor
from ._dtypes import together

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

Norm = int | float | Literal["fro", "nuc"]


# ---- products ----


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product of the last two dimensions, the others broadcast; vectors are row and column."""
    if not isinstance(x1, Tensor) or not isinstance(x2, Tensor) or not x1.ndim or not x2.ndim:
        raise ShapeError(
            f"matmul: expected arrays of at least one dimension, got {_shape(x1)} and {_shape(x2)}"
        )
    return F.matmul(*together(x1, x2))


def _shape(x: Any) -> str:
    return f"shape {x.shape}" if isinstance(x, Tensor) else type(x).__name__


def matrix_transpose(x: Tensor, /) -> Tensor:
    """`x` with its last two dimensions exchanged."""
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose: expected at least two dimensions, got shape {x.shape}")
    return F.transpose(x, -2, -1)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum of products over `axes`: the last n of x1 with the first n of x2, or two lists."""
    x1, x2 = together(x1, x2)
    return _tensordot(x1, x2, axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sum of conj(x1) x2 along `axis`, counted from the end, after broadcasting."""
    if not -min(x1.ndim, x2.ndim) <= axis < 0 or x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(
            f"vecdot: expected equal sizes along a negative axis, got shapes {x1.shape} and {x2.shape}, "
            f"axis {axis}"
        )
    x1, x2 = together(x1, x2)
    return F.cast(F.sum(F.mul(F.conj(x1), x2), axis), x1.dtype)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The products of each element of vector x1 with each of vector x2."""
    return F.outer(*together(x1, x2))


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of 3-vectors along `axis`, counted from the end, after broadcasting."""
    x1, x2 = together(x1, x2)
    if axis >= 0 and x1.ndim != x2.ndim:
        raise ShapeError(
            f"cross: a positive axis needs as many dimensions in both, got {x1.shape} and {x2.shape}"
        )
    shape = broadcast_shapes(x1.shape, x2.shape)
    if not -len(shape) <= axis < len(shape) or x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ShapeError(f"cross: expected size 3 along axis {axis}, got shapes {x1.shape} and {x2.shape}")
    return _l.cross(F.expand(x1, shape), F.expand(x2, shape), dim=axis)


# ---- parts ----


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonal of the last two dimensions."""
    return F.diagonal(x, offset, -2, -1)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of the diagonal of the last two dimensions."""
    values = diagonal(x, offset=offset)
    return F.sum(values if dtype is None else values.to(dtype=as_dtype(dtype)), -1)


def tril_triu(name: str, x: Tensor, k: int) -> Tensor:
    """`x` with zeros above (tril) or below (triu) the k-th diagonal, in any dtype."""
    if x.ndim < 2:
        raise ShapeError(f"{name}: expected at least two dimensions, got shape {x.shape}")
    rows = _arange(x.shape[-2], device=x.device).reshape(-1, 1) + k
    columns = _arange(x.shape[-1], device=x.device)
    keep = columns <= rows if name == "tril" else columns >= rows
    return F.where(keep, x, F.zeros_like(x))


# ---- norms ----


def vector_norm(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """(sum |x|^ord)^(1/ord) over `axis` (all elements when None; () reduces nothing)."""
    if axis == ():
        return _l.vector_norm(F.unsqueeze(x, -1), ord, -1)
    return _l.vector_norm(x, ord, axis, keepdims)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Norm | None = "fro") -> Tensor:
    """The norm of the matrices in the last two dimensions: "fro", "nuc", 1, 2, inf and their negatives."""
    return _l.matrix_norm(x, "fro" if ord is None else ord, (-2, -1), keepdims)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The number of singular values above rtol times the largest (default: max(m, n) eps)."""
    return _l.matrix_rank(x, rtol=rtol)


# ---- solutions and decompositions ----


def det(x: Tensor, /) -> Tensor:
    """The determinant."""
    return _l.det(x)


def slogdet(x: Tensor, /) -> SlogDet:
    """(sign, logabsdet) of the determinant."""
    return _l.slogdet(x)


def inv(x: Tensor, /) -> Tensor:
    """The inverse."""
    return _l.inv(x)


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The pseudo-inverse.

    Singular values up to rtol (a number, or one per matrix) times the largest count as 0.
    """
    if not isinstance(rtol, Tensor) or not rtol.ndim:
        return _l.pinv(x, rtol=rtol)
    batch = broadcast_shapes(x.shape[:-2], rtol.shape)
    matrices = F.reshape(F.expand(x, (*batch, *x.shape[-2:])), (-1, *x.shape[-2:]))
    limits = F.expand(rtol, batch).reshape(-1).tolist()
    parts = [_l.pinv(matrices[i], rtol=limit) for i, limit in enumerate(limits)]
    return F.reshape(F.stack(*parts), (*batch, x.shape[-1], x.shape[-2])) if parts else F.transpose(x, -2, -1)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """`x` multiplied n times with itself; negative n: the inverse."""
    return _l.matrix_power(x, n)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The X with x1 X = x2; x2 is a vector when it has one dimension, else matrices."""
    x1, x2 = together(x1, x2)
    if x2.ndim == 1:
        return F.squeeze(_l.solve(x1, F.unsqueeze(x2, -1)), (-1,))
    shape = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return _l.solve(F.expand(x1, (*shape, *x1.shape[-2:])), F.expand(x2, (*shape, *x2.shape[-2:])))


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The lower L with L L^H = x, or the upper U with U^H U = x."""
    return _l.cholesky(x, upper=upper)


def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QR:
    """(Q, R) with Q R = x."""
    return _l.qr(x, mode)


def eigh(x: Tensor, /) -> Eigen:
    """(eigenvalues, eigenvectors) of Hermitian matrices, in ascending order."""
    return _l.eigh(x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """The eigenvalues of Hermitian matrices, in ascending order."""
    return _l.eigvalsh(x)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD:
    """(U, S, Vh) with U diag(S) Vh = x, S in descending order."""
    return _l.svd(x, full_matrices)


def svdvals(x: Tensor, /) -> Tensor:
    """The singular values in descending order."""
    return _l.svdvals(x)
