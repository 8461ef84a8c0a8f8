"""Joins, splits and grids with PyTorch's overloads."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import ShapeError
from ..ops.common import check_tensors, normalize_dim
from ..ops.shape import parts_op
from ..tensor import Tensor, _wrap
from .registry import public
from .shape import as_tuple

# ---- joins ----

@public("cat", "concat", "concatenate")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors joined along `dim`; their other sizes agree, else ShapeError.

    Dtypes are promoted; tensors of shape [0] are skipped. Raises IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.cat([lucid.tensor([1, 2]), lucid.tensor([3])])
    tensor([1, 2, 3])
    """
    return F.cat(*tensors, dim=dim)


@public()
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape joined along a new dimension `dim`. Raises ShapeError for several shapes or none.

    Dtypes are promoted.

    >>> import lucid
    >>> lucid.stack([lucid.tensor([1, 2]), lucid.tensor([3, 4])], dim=1)
    tensor([[1, 3],
            [2, 4]])
    """
    return F.stack(*tensors, dim=dim)


def _at_least(x: Tensor, n: int) -> Tensor:
    if n == 3 and x.ndim < 3:
        return F.reshape(x, (1, 1, 1) if not x.ndim else (1, x.shape[0], 1) if x.ndim == 1 else (*x.shape, 1))
    return x if x.ndim >= n else F.reshape(x, (1,) * (n - x.ndim) + x.shape)


def _at_least_all(tensors: Any, n: int) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return _at_least(tensors[0], n)
    return tuple(_at_least(t, n) for t in as_tuple(tensors))


@public()
def atleast_1d(*tensors: Any) -> Any:
    """Each tensor with at least 1 dimension: one tensor for one, a tuple for several.

    >>> import lucid
    >>> lucid.atleast_1d(lucid.tensor(3)).shape
    (1,)
    """
    return _at_least_all(tensors, 1)


@public()
def atleast_2d(*tensors: Any) -> Any:
    """Each tensor with at least 2 dimensions, new ones in front: one tensor for one, a tuple for several.

    >>> import lucid
    >>> lucid.atleast_2d(lucid.tensor([1, 2])).shape
    (1, 2)
    """
    return _at_least_all(tensors, 2)


@public()
def atleast_3d(*tensors: Any) -> Any:
    """Each tensor with at least 3 dimensions, one in front and one behind vectors, one behind matrices.

    >>> import lucid
    >>> lucid.atleast_3d(lucid.tensor([1, 2])).shape
    (1, 2, 1)
    """
    return _at_least_all(tensors, 3)


@public()
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors joined along dim 1 (vectors along dim 0); errors as of `cat`.

    >>> import lucid
    >>> lucid.hstack([lucid.tensor([[1], [2]]), lucid.tensor([[3], [4]])])
    tensor([[1, 3],
            [2, 4]])
    """
    parts = [_at_least(t, 1) for t in tensors]
    return F.cat(*parts, dim=0 if parts[0].ndim == 1 else 1)


@public("vstack", "row_stack")
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors joined along dim 0, after vectors became rows; errors as of `cat`.

    >>> import lucid
    >>> lucid.vstack([lucid.tensor([1, 2]), lucid.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    return F.cat(*[_at_least(t, 2) for t in tensors], dim=0)


@public()
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors joined along dim 2, after `atleast_3d`; errors as of `cat`.

    >>> import lucid
    >>> lucid.dstack([lucid.tensor([1, 2]), lucid.tensor([3, 4])])
    tensor([[[1, 3],
             [2, 4]]])
    """
    return F.cat(*[_at_least(t, 3) for t in tensors], dim=2)


@public()
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors joined along dim 1, after vectors became columns; errors as of `cat`.

    >>> import lucid
    >>> lucid.column_stack([lucid.tensor([1, 2]), lucid.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """
    return F.cat(*[F.reshape(t, (-1, 1)) if t.ndim < 2 else t for t in tensors], dim=1)


@public()
def block_diag(*tensors: Any) -> Tensor:
    """Matrix with the given matrices (vectors are rows) as blocks on its diagonal and zeros elsewhere.

    Raises ShapeError for more than 2 dimensions.

    >>> import lucid
    >>> lucid.block_diag(lucid.tensor([[1, 2]]), lucid.tensor([[3]]))
    tensor([[1, 2, 0],
            [0, 0, 3]])
    """
    blocks = [_at_least(t, 2) for t in as_tuple(tensors)]
    if any(b.ndim > 2 for b in blocks):
        raise ShapeError(f"block_diag: expected at most 2 dimensions, got "
                         f"{', '.join(str(b.shape) for b in blocks)}")
    width, left, rows = sum(b.shape[1] for b in blocks), 0, []
    for b in blocks:
        height = b.shape[0]
        rows.append(F.getitem_pad(b, (slice(None), slice(left, left + b.shape[1])), (height, width)))
        left += b.shape[1]
    return F.cat(*rows, dim=0)


# ---- splits ----

def _cut(x: Tensor, lengths: Sequence[int], dim: int) -> tuple[Tensor, ...]:
    if len(lengths) < 2:
        return tuple(F.narrow(x, dim, 0, n) for n in lengths)
    return getattr(F, parts_op("split", len(lengths)))(x, tuple(lengths), dim)


@public(method=True)
def split(x: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts of `x` along `dim`: of one size (the last may be less), or given sizes.

    Raises ShapeError for sizes that do not add up, IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.split(lucid.arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    dim = normalize_dim("split", dim, x.ndim)
    if not x.ndim:
        raise ShapeError("split: expected at least 1 dimension, got a 0-d tensor")
    n = x.shape[dim]
    if isinstance(split_size_or_sections, (tuple, list)):
        lengths = [int(s) for s in split_size_or_sections]
        if sum(lengths) != n or any(s < 0 for s in lengths):
            raise ShapeError(f"split: sizes {lengths} do not add up to {n}, the size of dim {dim}")
        return _cut(x, lengths, dim)
    size = int(split_size_or_sections)
    if size < 0 or (size == 0 and n):
        raise ShapeError(f"split: expected a size of at least 1, got {size}")
    count = builtins.max(-(-n // size), 1) if size else 1
    return _cut(x, [size] * (count - 1) + [n - size * (count - 1)], dim)


@public("split_with_sizes", "unsafe_split_with_sizes", method=("split_with_sizes", "unsafe_split_with_sizes"))
def split_with_sizes(x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts of `x` along `dim`, of the given sizes; errors as of `split`.

    >>> import lucid
    >>> lucid.split_with_sizes(lucid.arange(5), [1, 4])
    (tensor([0]), tensor([1, 2, 3, 4]))
    """
    return split(x, list(split_sizes), dim)


@public("unsafe_split", method="unsafe_split")
def unsafe_split(x: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """`split`; kept for its name in PyTorch.

    >>> import lucid
    >>> lucid.unsafe_split(lucid.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    return split(x, split_size, dim)


@public("chunk", "unsafe_chunk", method=("chunk", "unsafe_chunk"))
def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal consecutive parts of `x` along `dim`; the last may be smaller.

    Raises ShapeError for chunks < 1, IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.chunk(lucid.arange(5), 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    if chunks < 1:
        raise ShapeError(f"chunk: expected at least 1 chunk, got {chunks}")
    if not x.ndim:
        raise ShapeError("chunk: a 0-d tensor cannot be split; use reshape(1) first")
    dim = normalize_dim("chunk", dim, x.ndim)
    n = x.shape[dim]
    return split(x, -(-n // chunks), dim) if n else _cut(x, [0] * chunks, dim)


@public(method=True)
def tensor_split(x: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of parts of `x` along `dim`: nearly equal ones, or those between the given positions.

    Raises ShapeError for a 0-d x and less than 1 section, IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.tensor_split(lucid.arange(5), 3)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    >>> lucid.tensor_split(lucid.arange(5), (1, 3))
    (tensor([0]), tensor([1, 2]), tensor([3, 4]))
    """
    if not x.ndim:
        raise ShapeError("tensor_split: expected at least 1 dimension, got a 0-d tensor")
    dim = normalize_dim("tensor_split", dim, x.ndim)
    n = x.shape[dim]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count < 1:
            raise ShapeError(f"tensor_split: expected at least 1 section, got {count}")
        return _cut(x, [n // count + (i < n % count) for i in range(count)], dim)
    ends = [slice(None, i).indices(n)[1] for i in indices_or_sections]
    starts = [0, *ends]
    parts = zip(starts, [*ends, n], strict=True)
    if all(a <= b for a, b in itertools.pairwise([*starts, n])):
        return _cut(x, [b - a for a, b in parts], dim)
    return tuple(F.narrow(x, dim, a, builtins.max(b - a, 0)) for a, b in parts)


def _split_along(name: str, x: Tensor, indices_or_sections: Any, dim: int, least: int) -> tuple[Tensor, ...]:
    if x.ndim < least:
        raise ShapeError(f"{name}: expected at least {least} dimensions, got shape {x.shape}")
    if isinstance(indices_or_sections, int) and x.shape[dim] % builtins.max(indices_or_sections, 1):
        raise ShapeError(f"{name}: {indices_or_sections} sections do not divide {x.shape[dim]}, the size of "
                         f"dim {dim}; use tensor_split for unequal parts")
    return tensor_split(x, indices_or_sections, dim)


@public(method=True)
def hsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Views of equal parts of `x` along dim 1 (vectors: dim 0), or of those between the given positions.

    Raises ShapeError for sections that do not divide the size: see `tensor_split`.

    >>> import lucid
    >>> lucid.hsplit(lucid.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    return _split_along("hsplit", x, indices_or_sections, 0 if x.ndim == 1 else 1, 1)


@public(method=True)
def vsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Views of equal parts of `x` along dim 0, or of those between the given positions.

    Raises ShapeError for sections that do not divide the size and for fewer than 2 dimensions.

    >>> import lucid
    >>> [part.shape for part in lucid.vsplit(lucid.zeros(4, 3), 2)]
    [(2, 3), (2, 3)]
    """
    return _split_along("vsplit", x, indices_or_sections, 0, 2)


@public(method=True)
def dsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Views of equal parts of `x` along dim 2, or of those between the given positions.

    Raises ShapeError for sections that do not divide the size and for fewer than 3 dimensions.

    >>> import lucid
    >>> [part.shape for part in lucid.dsplit(lucid.zeros(1, 2, 4), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return _split_along("dsplit", x, indices_or_sections, 2, 3)


@public(method=True)
def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of `x` at each position along `dim`, without it: a tuple.

    Raises ShapeError for a 0-d x, IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.unbind(lucid.tensor([[1, 2], [3, 4]]))
    (tensor([1, 2]), tensor([3, 4]))
    """
    if not x.ndim:
        raise ShapeError("unbind: expected at least 1 dimension, got a 0-d tensor")
    dim = normalize_dim("unbind", dim, x.ndim)
    n = x.shape[dim]
    if n < 2:
        return tuple(F.select(x, dim, i) for i in range(n))
    return getattr(F, parts_op("unbind", n))(x, dim)


# ---- grids and products ----

@public()
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinates of a grid, one view per vector. indexing: "ij" (default), or "xy" (first two swapped).

    Vectors of n and m elements give two tensors [n, m], [m, n] with "xy". Raises ShapeError for matrices.

    >>> import lucid
    >>> rows, columns = lucid.meshgrid(lucid.tensor([1, 2]), lucid.tensor([3, 4]))
    >>> rows, columns
    (tensor([[1, 1],
            [2, 2]]), tensor([[3, 4],
            [3, 4]]))
    """
    vectors = [F.reshape(t, (1,)) if not t.ndim else t for t in as_tuple(tensors)]
    if any(v.ndim > 1 for v in vectors):
        raise ShapeError(f"meshgrid: expected vectors, got {', '.join(str(v.shape) for v in vectors)}")
    if indexing not in (None, "ij", "xy"):
        raise ShapeError(f"meshgrid: indexing is 'ij' or 'xy', got {indexing!r}")
    swap = indexing == "xy" and len(vectors) > 1
    if swap:
        vectors[0], vectors[1] = vectors[1], vectors[0]
    shape = tuple(v.shape[0] for v in vectors)
    behind = len(vectors) - 1
    grids = [F.expand(F.reshape(v, (1,) * d + (-1,) + (1,) * (behind - d)), shape)
             for d, v in enumerate(vectors)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@public()
def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations of one element of each vector, one row each. Raises ShapeError for matrices.

    >>> import lucid
    >>> lucid.cartesian_prod(lucid.tensor([1, 2]), lucid.tensor([3, 4]))
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]])
    """
    vectors = as_tuple(tensors)
    if any(x.ndim != 1 for x in vectors):
        raise ShapeError(f"cartesian_prod: expected vectors, got shapes {[x.shape for x in vectors]}")
    if len(vectors) == 1:
        return vectors[0]
    return F.stack(*[F.reshape(g, (-1,)) for g in meshgrid(*vectors)], dim=1)


@public()
def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of `r` elements of the vector `x` in their order, one row each.

    Raises ShapeError for a matrix.

    >>> import lucid
    >>> lucid.combinations(lucid.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    if x.ndim != 1:
        raise ShapeError(f"combinations: expected a vector, got shape {x.shape}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(x.shape[0]), r))
    backend = x.storage.backend
    if not rows or not r:
        return F.reshape(F.narrow(x, 0, 0, 0), (0, r) if r else (0,))
    index = _wrap(backend.asarray(rows, "int64").reshape(-1), backend)
    return F.reshape(F.index_select(x, 0, index), (len(rows), r))


@public(method=True)
def kron(x: Tensor, other: Tensor) -> Tensor:
    """Kronecker product: x with each element replaced by itself times `other`.

    x: [n, m]; other: [k, l]; returns [n k, m l]; missing dimensions count as 1.

    >>> import lucid
    >>> lucid.kron(lucid.tensor([1, 2]), lucid.tensor([[1, 1]]))
    tensor([[1, 1, 2, 2]])
    """
    check_tensors("kron", x=x, other=other)
    n = builtins.max(x.ndim, other.ndim)
    a, b = (1,) * (n - x.ndim) + x.shape, (1,) * (n - other.ndim) + other.shape
    left = F.reshape(x, tuple(s for n in a for s in (n, 1)))
    right = F.reshape(other, tuple(s for n in b for s in (1, n)))
    return F.reshape(left * right, tuple(i * j for i, j in zip(a, b, strict=True)))


@public()
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Vandermonde matrix: the powers of the vector `x` in columns, the highest first unless `increasing`.

    x: [n], else ShapeError. Returns [n, N], N = n unless given.

    >>> import lucid
    >>> lucid.vander(lucid.tensor([1, 2, 3]))
    tensor([[1, 1, 1],
            [4, 2, 1],
            [9, 3, 1]])
    """
    if x.ndim != 1:
        raise ShapeError(f"vander: expected a vector, got shape {x.shape}")
    n = x.shape[0] if N is None else N
    if n < 1:
        return F.narrow(F.unsqueeze(x, 1), 1, 0, 0)
    column = F.unsqueeze(x, 1)
    powers = F.cat(F.ones_like(column), F.cumprod(F.expand(column, (x.shape[0], n - 1)), 1), dim=1)
    return powers if increasing else F.flip(powers, (1,))
