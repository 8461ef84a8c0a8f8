"""Diagonals of matrices, and the positions of their triangles."""

from __future__ import annotations

from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import ShapeError
from ..storage.backend import backend_of
from ..storage.dtype import as_dtype
from ..tensor import Tensor, _wrap
from .registry import public


@public(method=True)
def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """The matrix with the vector `x` on a diagonal, or a copy of a diagonal of the matrix `x`.

    diagonal: above the main one when positive, below it when negative. Raises ShapeError for other than 1 or
    2 dimensions.

    >>> import lucid
    >>> lucid.diag(lucid.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    >>> lucid.diag(lucid.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    if x.ndim not in (1, 2):
        raise ShapeError(f"diag: expected 1 or 2 dimensions, got shape {x.shape}; use diagonal or diag_embed")
    return F.diag_embed(x, diagonal) if x.ndim == 1 else F.clone(F.diagonal(x, diagonal))


@public(method=True)
def diagflat(x: Tensor, offset: int = 0) -> Tensor:
    """The matrix with the elements of `x` on a diagonal.

    >>> import lucid
    >>> lucid.diagflat(lucid.tensor([1, 2]), 1)
    tensor([[0, 1, 0],
            [0, 0, 2],
            [0, 0, 0]])
    """
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
    """Row and column numbers, [2, n], of the elements on and below a diagonal of a row x col matrix.

    Raises ShapeError for negative sizes.

    >>> import lucid
    >>> lucid.tril_indices(2, 2)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    return _triangle_indices(row, col, offset, dtype, device, True)


@public()
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = "int64", device: Any = None) -> Tensor:
    """Row and column numbers, [2, n], of the elements on and above a diagonal of a row x col matrix.

    Raises ShapeError for negative sizes.

    >>> import lucid
    >>> lucid.triu_indices(2, 2)
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    return _triangle_indices(row, col, offset, dtype, device, False)
