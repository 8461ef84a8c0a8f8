"""Diagonals and triangles of matrices: read as views, written, and made of vectors."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from .common import normalize_dim
from .registry import Sample, op
from .shape import strided


def _two_dims(name: str, ndim: int, dim1: int, dim2: int) -> tuple[int, int]:
    first, second = normalize_dim(name, dim1, ndim), normalize_dim(name, dim2, ndim)
    if first == second or ndim < 2:
        raise ShapeError(f"{name}: expected two different dimensions, got dim1={dim1} and dim2={dim2} for a "
                         f"tensor of {ndim} dimensions")
    return first, second


def _diagonal_view(xp: Any, x: Any, offset: int, dim1: int, dim2: int) -> Any:
    dim1, dim2 = _two_dims("diagonal", x.ndim, dim1, dim2)
    x = xp.moveaxis(x, (dim1, dim2), (-2, -1))
    x = x[..., max(-offset, 0):, max(offset, 0):]
    n = min(x.shape[-2:])
    return strided(xp, x, (*x.shape[:-2], n), (*x.strides[:-2], x.strides[-2] + x.strides[-1]))


_DIAGONAL_SAMPLES = [Sample((3, 4)), Sample((3, 4), offset=1), Sample((2, 3, 4), offset=-1, dim1=0, dim2=2),
                     Sample((3, 3), offset=5)]


@op(method=True, view=True, samples=_DIAGONAL_SAMPLES,
    reference=lambda x, offset=0, dim1=0, dim2=1: x.diagonal(offset, dim1, dim2))
def diagonal(xp, x, offset: int = 0, dim1: int = 0, dim2: int = 1):
    """The diagonals of the matrices in `dim1` and `dim2`, as the last dimension: a view.

    offset: above the main diagonal when positive, below it when negative.

    >>> import lucid
    >>> lucid.diagonal(lucid.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    return _diagonal_view(xp, x, offset, dim1, dim2)


@op(public=False, samples=[Sample((3,), (3, 4)), Sample((3, 2), (3, 3, 4), offset=-1, dim1=0, dim2=2)])
def diagonal_pad(xp, src, shape: tuple, offset: int = 0, dim1: int = 0, dim2: int = 1):
    """Zeros of `shape` with `src` on the diagonals: the gradient of `diagonal`."""
    out = xp.zeros(shape, src.dtype)
    _diagonal_view(xp, out, offset, dim1, dim2)[...] = src
    return out


diagonal.grad(x=lambda F, g, x_shape, offset, dim1, dim2: F.diagonal_pad(g, x_shape, offset, dim1, dim2))
diagonal_pad.grad(src=lambda F, g, offset, dim1, dim2: F.diagonal(g, offset, dim1, dim2))


@op(method=True, samples=[Sample((3,)), Sample((2, 3), offset=1), Sample((2, 3), offset=-1, dim1=0, dim2=2)])
def diag_embed(xp, x, offset: int = 0, dim1: int = -2, dim2: int = -1):
    """Matrices in `dim1` and `dim2` with the last dimension of `x` on their diagonals and zeros elsewhere.

    x: [..., n]. Returns matrices of size n + |offset|.

    >>> import lucid
    >>> lucid.diag_embed(lucid.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    if not x.ndim:
        raise ShapeError("diag_embed: expected at least 1 dimension, got a 0-d tensor")
    dim1, dim2 = _two_dims("diag_embed", x.ndim + 1, dim1, dim2)
    n = x.shape[-1] + abs(offset)
    shape = list(x.shape[:-1])
    for d in sorted((dim1, dim2)):
        shape.insert(d, n)
    out = xp.zeros(shape, x.dtype)
    _diagonal_view(xp, out, offset, dim1, dim2)[...] = x
    return out


diag_embed.grad(x=lambda F, g, offset, dim1, dim2: F.diagonal(g, offset, dim1, dim2))


@op(method=True, samples=[Sample((3, 4), (3,)), Sample((3, 3, 4), (3, 2), offset=-1, dim1=0, dim2=2)])
def diagonal_scatter(xp, x, src, offset: int = 0, dim1: int = 0, dim2: int = 1):
    """`x` with `src` on the diagonals of the matrices in `dim1` and `dim2`.

    src: the diagonal's shape, else ShapeError.

    >>> import lucid
    >>> lucid.diagonal_scatter(lucid.zeros(2, 2), lucid.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    out = x.copy()
    place = _diagonal_view(xp, out, offset, dim1, dim2)
    if place.shape != src.shape:
        raise ShapeError(f"diagonal_scatter: expected src of the diagonal's shape {tuple(place.shape)}, got "
                         f"{tuple(src.shape)}")
    place[...] = src
    return out


diagonal_scatter.grad(
    x=lambda F, g, offset, dim1, dim2: F.diagonal_scatter(
        g, F.zeros_like(F.diagonal(g, offset, dim1, dim2)), offset, dim1, dim2),
    src=lambda F, g, offset, dim1, dim2: F.diagonal(g, offset, dim1, dim2))


def _triangle(name: str, xp: Any, x: Any, diagonal: int) -> Any:
    if x.ndim < 2:
        raise ShapeError(f"{name}: expected at least 2 dimensions, got shape {tuple(x.shape)}")
    rows, columns = xp.arange(x.shape[-2])[:, None], xp.arange(x.shape[-1])
    inside = columns - rows <= diagonal if name == "tril" else columns - rows >= diagonal
    return xp.where(inside, x, xp.zeros((), x.dtype))


_TRIANGLES = [Sample((3, 4)), Sample((2, 4, 3), -1), Sample((3, 3), 1)]


@op(method=True, inplace=True, samples=_TRIANGLES, reference="numpy:tril")
def tril(xp, x, diagonal: int = 0):
    """The part of each matrix in the last two dimensions on and below its diagonal, zeros above.

    x: [..., n, m], else ShapeError. diagonal: how many diagonals above the main one are kept (below, when
    negative).

    >>> import lucid
    >>> lucid.tril(lucid.ones(3, 3))
    tensor([[1., 0., 0.],
            [1., 1., 0.],
            [1., 1., 1.]])
    """
    return _triangle("tril", xp, x, diagonal)


@op(method=True, inplace=True, samples=_TRIANGLES, reference="numpy:triu")
def triu(xp, x, diagonal: int = 0):
    """The part of each matrix in the last two dimensions on and above its diagonal, zeros below.

    x: [..., n, m], else ShapeError. diagonal: how many diagonals above the main one are cut (below are kept,
    when negative).

    >>> import lucid
    >>> lucid.triu(lucid.ones(3, 3), diagonal=1)
    tensor([[0., 1., 1.],
            [0., 0., 1.],
            [0., 0., 0.]])
    """
    return _triangle("triu", xp, x, diagonal)


tril.grad(x=lambda F, g, diagonal: F.tril(g, diagonal))
triu.grad(x=lambda F, g, diagonal: F.triu(g, diagonal))
