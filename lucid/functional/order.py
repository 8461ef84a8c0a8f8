"""Order: sorting, searching, and sets."""

from __future__ import annotations

from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..ops.common import normalize_dim
from ..tensor import Tensor, tensor
from .reduce import ValuesIndices
from .registry import public


@public(method=True)
def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices:
    """(values, indices) of `x` in order along `dim`. Always stable; NaN counts as the largest.

    Raises DtypeError for complex numbers, IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.sort(lucid.tensor([3.0, 1.0, 2.0]))
    ValuesIndices(values=tensor([1., 2., 3.]), indices=tensor([1, 2, 0]))
    """
    return ValuesIndices(*F.sort(x, dim, descending))


@public(method=True)
def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Order (int64) that sorts `x` along `dim`. Always stable; NaN counts as the largest.

    Raises DtypeError for complex numbers, IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.argsort(lucid.tensor([3.0, 1.0, 2.0]), descending=True)
    tensor([0, 2, 1])
    """
    return F.argsort(x, dim, descending)


@public(method=True)
def msort(x: Tensor) -> Tensor:
    """`x` in order along dim 0: the values of `sort`.

    >>> import lucid
    >>> lucid.msort(lucid.tensor([[3.0, 1.0], [2.0, 5.0]]))
    tensor([[2., 1.],
            [3., 5.]])
    """
    return F.sort(x, 0, False)[0]


@public(method=True)
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """(values, indices) of the `k` largest (or smallest) elements along `dim`, in order.

    Returns x's shape with k along `dim`. Raises IndexRangeError for a k outside [0, size] and a dim out of
    range.

    >>> import lucid
    >>> lucid.topk(lucid.tensor([3.0, 1.0, 4.0, 2.0]), 2)
    ValuesIndices(values=tensor([4., 3.]), indices=tensor([2, 0]))
    """
    return ValuesIndices(*F.topk(x, k, dim, largest))


@public(method=False)
def searchsorted(sorted_sequence: Tensor, values: Any, *, out_int32: bool = False, right: bool = False,
                 side: str | None = None, sorter: Tensor | None = None) -> Tensor:
    """Positions at which `values` would be inserted into `sorted_sequence` (in order along its last dim).

    sorted_sequence: [n], or [..., n] beside values [..., m], else ShapeError. right (or side="right"): behind
    equal elements. sorter: an order that sorts the sequence. Returns values' shape, int64 (int32 with
    out_int32).

    >>> import lucid
    >>> lucid.searchsorted(lucid.tensor([1, 3, 5]), lucid.tensor([3, 6]))
    tensor([1, 3])
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise DtypeError(f"searchsorted: side is 'left' or 'right' and must not contradict right={right}, "
                         f"got {side!r}")
    values = values if isinstance(values, Tensor) else tensor(values, device=sorted_sequence.device)
    if sorter is not None:
        sorted_sequence = F.gather(sorted_sequence, -1, sorter)
    out = F.searchsorted(sorted_sequence, values, right or side == "right")
    return out.to("int32") if out_int32 else out


@public(method=False)
def bucketize(x: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """For each element the number of the bucket between `boundaries` [n] (in order) that holds it.

    right=False: boundaries[i-1] < x <= boundaries[i]; right=True: boundaries[i-1] <= x < boundaries[i].
    Returns x's shape, int64 (int32 with out_int32). Raises ShapeError for boundaries that are no vector.

    >>> import lucid
    >>> lucid.bucketize(lucid.tensor([0.5, 1.0, 9.0]), lucid.tensor([1.0, 2.0]))
    tensor([0, 0, 2])
    """
    if boundaries.ndim != 1:
        raise ShapeError(f"bucketize: expected boundaries of 1 dimension, got shape {boundaries.shape}")
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


@public(method=False)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each of `elements` stands in `test_elements` (or not, with `invert`); elements' shape.

    >>> import lucid
    >>> lucid.isin(lucid.tensor([1, 2, 3]), lucid.tensor([3, 1]))
    tensor([ True, False,  True])
    """
    beside = elements if isinstance(elements, Tensor) else test_elements
    device = beside.device if isinstance(beside, Tensor) else None
    elements, test_elements = (v if isinstance(v, Tensor) else tensor(v, device=device)
                               for v in (elements, test_elements))
    return F.isin(elements, test_elements, invert)


# ---- sets ----

def _chosen(values: Tensor, inverse: Tensor, counts: Tensor, return_inverse: bool,
            return_counts: bool) -> Any:
    out = (values, *((inverse,) if return_inverse else ()), *((counts,) if return_counts else ()))
    return out if len(out) > 1 else values


@public(method=True)
def unique(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
           dim: int | None = None) -> Any:
    """Distinct elements of `x` in order (slices along `dim`); on demand each element's place, and counts.

    Returns the values, or a tuple (values, inverse, counts) of what was asked for.

    >>> import lucid
    >>> lucid.unique(lucid.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    if dim is None:
        values, inverse, counts = F.unique_flat(x)
        return _chosen(values, inverse, counts, return_inverse, return_counts)
    dim = normalize_dim("unique", dim, x.ndim)
    values, inverse, counts = F.unique_rows(F.transpose(x, 0, dim))
    return _chosen(F.transpose(values, 0, dim), inverse, counts, return_inverse, return_counts)


@public(method=True)
def unique_consecutive(x: Tensor, return_inverse: bool = False, return_counts: bool = False,
                       dim: int | None = None) -> Any:
    """The first of each run of equal elements (slices along `dim`); on demand each element's run, and counts.

    Returns the values, or a tuple (values, inverse, counts) of what was asked for.

    >>> import lucid
    >>> lucid.unique_consecutive(lucid.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    if dim is None:
        values, inverse, counts = F.unique_runs(F.reshape(x, (-1,)))
        return _chosen(values, F.reshape(inverse, x.shape), counts, return_inverse, return_counts)
    dim = normalize_dim("unique_consecutive", dim, x.ndim)
    values, inverse, counts = F.unique_runs(F.transpose(x, 0, dim))
    return _chosen(F.transpose(values, 0, dim), inverse, counts, return_inverse, return_counts)
