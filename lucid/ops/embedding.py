"""Rows of a table by index, their adjoint, sums and maxima over bags, one-hot vectors."""

from __future__ import annotations

from typing import Any

from ..errors import DtypeError, IndexRangeError, ShapeError
from .bounds import in_range, tally
from .common import is_low
from .pointwise import wide
from .registry import A, Sample, op
from .rows import sum_rows

_INDICES = A((2, 3), dtype="int64", low=0, high=4)


def check_indices(xp: Any, name: str, indices: Any, rows: int) -> Any:
    """`indices`; raises DtypeError or IndexRangeError unless they are integers in [0, rows).

    On a GPU the range is reported later: see `bounds.in_range`.
    """
    if indices.dtype.kind not in "iu":
        raise DtypeError(f"{name}: indices must be integers, got {indices.dtype.name} of shape "
                         f"{tuple(indices.shape)}; convert them with .long()")
    return in_range(xp, indices, 0, rows, index_error(name, rows))


def index_error(name: str, rows: int) -> Any:
    """What makes the error for an index out of range."""
    return lambda bad: IndexRangeError(
        f"{name}: indices must lie in [0, {rows - 1}] for {rows} rows, got {bad}")


@op(public=False, samples=[Sample((4, 3), _INDICES), Sample((4, 3), A((), dtype="int64", low=0, high=4))])
def embedding(xp, weight, indices, padding_idx: int = -1, scale_grad_by_freq: bool = False):
    """weight[indices].

    weight: [rows, d]; indices: integers of any shape; the result is [*indices.shape, d]. The gradient of row
    `padding_idx` is zero, and with `scale_grad_by_freq` each index's gradient is divided by its count in
    `indices`.
    """
    if weight.ndim != 2:
        raise ShapeError(f"embedding: weight must be [rows, features], got shape {list(weight.shape)}")
    return weight[check_indices(xp, "embedding", indices, weight.shape[0])]


embedding.grad(weight=lambda F, g, indices, weight_shape, padding_idx, scale_grad_by_freq:
               F.embedding_backward(g, indices, weight_shape[0], padding_idx, scale_grad_by_freq))


def _row_factors(xp: Any, indices: Any, rows: int, padding_idx: int, scale_grad_by_freq: bool,
                 dtype: Any) -> Any:
    # What multiplies the gradient of each index, or None for 1.
    factors = None
    if scale_grad_by_freq and indices.size:
        factors = 1.0 / tally(xp, indices, rows)[indices]
    if padding_idx >= 0:
        kept = indices != padding_idx
        factors = kept if factors is None else factors * kept
    return None if factors is None else factors.astype(dtype)[..., None]


@op(public=False, samples=[Sample((2, 3, 5), _INDICES, 4), Sample((2, 3, 5), _INDICES, 4, 1, True)])
def embedding_backward(xp, grad, indices, rows: int, padding_idx: int = -1, scale_grad_by_freq: bool = False):
    """The table [rows, d] whose row i is the sum of grad where indices == i: the adjoint of `embedding`."""
    indices = check_indices(xp, "embedding_backward", indices, rows)
    factors = _row_factors(xp, indices, rows, padding_idx, scale_grad_by_freq, grad.dtype)
    grad = grad if factors is None else grad * factors
    d = grad.shape[-1]
    if not grad.size:
        return xp.zeros((rows, d), grad.dtype)
    return sum_rows(xp, rows, indices.reshape(-1), grad.reshape(-1, d))


embedding_backward.grad(grad=lambda F, g, indices, rows, padding_idx, scale_grad_by_freq:
                        F.embedding_rows(g, indices, rows, padding_idx, scale_grad_by_freq))


@op(public=False, samples=[Sample((4, 5), _INDICES, 4), Sample((4, 5), _INDICES, 4, 1, True)])
def embedding_rows(xp, weight, indices, rows: int, padding_idx: int = -1, scale_grad_by_freq: bool = False):
    """weight[indices] with the factors of `embedding_backward`, whose adjoint it is."""
    indices = check_indices(xp, "embedding_rows", indices, rows)
    out = weight[indices]
    factors = _row_factors(xp, indices, rows, padding_idx, scale_grad_by_freq, out.dtype)
    return out if factors is None else out * factors


embedding_rows.grad(weight=lambda F, g, indices, rows, padding_idx, scale_grad_by_freq:
                    F.embedding_backward(g, indices, rows, padding_idx, scale_grad_by_freq))


@op(public=False, outputs=("values", "indices"), diff=("values",),
    samples=[Sample((5, 3), A(value=[0, 0, 2, 2, 2]), 4)])
def bag_max(xp, x, bags, rows: int):
    """(values, indices) [rows, d]: the maximum of x over the rows with bags == i, and its first place.

    x: [n, d]; bags: ascending integers [n]. A bag without rows has value 0 and index n.
    """
    n, d = x.shape
    dtype, x = x.dtype, wide(x)
    values = xp.full((rows, d), -xp.inf, dtype=x.dtype)
    xp.maximum.at(values, bags, x)
    position = xp.where(x == values[bags], xp.arange(n)[:, None], n)
    indices = xp.full((rows, d), n, dtype="int64")
    xp.minimum.at(indices, bags, position)
    return xp.where(indices == n, 0, values).astype(dtype, copy=False), indices


bag_max.grad(x=lambda F, g, indices, x_shape: F.bag_place(g, indices, x_shape[0]))


@op(public=False, samples=[Sample((2, 3), A((2, 3), dtype="int64", low=0, high=6), 5)])
def bag_place(xp, x, indices, n: int):
    """[n, d] with x[b, j] added at row indices[b, j] of column j; index n is dropped."""
    d = x.shape[1]
    places = (indices * d + xp.arange(d)).reshape(-1)
    return sum_rows(xp, (n + 1) * d, places, x.reshape(-1, 1)).reshape(n + 1, d)[:n]


bag_place.grad(x=lambda F, g, indices, n: F.bag_take(g, indices))


@op(public=False, samples=[Sample((5, 3), A((2, 3), dtype="int64", low=0, high=6))])
def bag_take(xp, x, indices):
    """x[indices[b, j], j], zero where the index is len(x): the adjoint of `bag_place`."""
    padded = xp.concatenate([x, xp.zeros((1, x.shape[1]), dtype=x.dtype)])
    return padded[indices, xp.arange(x.shape[1])[None, :]]


bag_take.grad(x=lambda F, g, indices, x_shape: F.bag_place(g, indices, x_shape[0]))


@op(public=False, samples=[Sample(A((2, 3), dtype="int64", low=0, high=4), 4)])
def one_hot(xp, x, num_classes: int = -1):
    """int64 [*x.shape, num_classes]: 1 at the class, 0 elsewhere. -1: one more than the largest class."""
    if x.dtype.kind not in "iu":
        raise DtypeError(f"one_hot: classes must be integers, got {x.dtype.name} of shape {tuple(x.shape)}; "
                         "convert them with .long()")
    if num_classes < 0:
        if not x.size:
            raise ShapeError("one_hot: an empty tensor does not tell the number of classes; pass num_classes")
        num_classes = int(x.max()) + 1
    x = check_indices(xp, "one_hot", x, num_classes)
    return (x[..., None] == xp.arange(num_classes)).astype("int64")


# ---- the CPU: add.at goes element by element; a product with a sparse matrix of ones takes whole rows
# (bench: embedding) ----

def _embedding_backward_cpu(xp, grad, indices, rows, padding_idx=-1, scale_grad_by_freq=False):
    if is_low(grad.dtype) or grad.dtype.kind == "c" or not indices.size:
        return embedding_backward.forward(xp, grad, indices, rows, padding_idx, scale_grad_by_freq)
    from scipy.sparse import csc_array
    indices = check_indices(xp, "embedding_backward", indices, rows)
    factors = _row_factors(xp, indices, rows, padding_idx, scale_grad_by_freq, grad.dtype)
    n = indices.size
    data = xp.ones(n, grad.dtype) if factors is None else xp.ascontiguousarray(factors).reshape(-1)
    # Column j has one entry, at row indices[j].
    ones = csc_array((data, indices.reshape(-1), xp.arange(n + 1)), shape=(rows, n))
    return ones @ xp.ascontiguousarray(grad).reshape(n, grad.shape[-1])


embedding_backward.accelerate("cpu", _embedding_backward_cpu)
