"""Order: sorting, searching, and sets."""

from __future__ import annotations

from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..ops.common import normalize_dim
from ..tensor import Tensor, tensor
from .reduce import ValuesIndices, numpy_names
from .registry import public


@public(method=True)
@numpy_names
def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices:
    """(values, indices) of `x` in order along `dim`. Always stable; NaN counts as the largest."""
    return ValuesIndices(*F.sort(x, dim, descending))


@public(method=True)
@numpy_names
def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Order (int64) that sorts `x` along `dim`. Always stable; NaN counts as the largest."""
    return F.argsort(x, dim, descending)


@public(method=True)
def msort(x: Tensor) -> Tensor:
    """`x` in order along dim 0."""
    return F.sort(x, 0, False)[0]


@public(method=True)
@numpy_names
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """(values, indices) of the `k` largest (or smallest) elements along `dim`, in order."""
    return ValuesIndices(*F.topk(x, k, dim, largest))


@public(method=False)
def searchsorted(sorted_sequence: Tensor, values: Any, *, out_int32: bool = False, right: bool = False,
                 side: str | None = None, sorter: Tensor | None = None) -> Tensor:
    """Positions at which `values` would be inserted into `sorted_sequence` (in order along its last dim).

    right (or side="right"): behind equal elements. sorter: an order that sorts the sequence. int64, or int32.
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
    """
    if boundaries.ndim != 1:
        raise ShapeError(f"bucketize: expected boundaries of 1 dimension, got shape {boundaries.shape}")
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


@public(method=False)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Whether each of `elements` stands in `test_elements` (or not, with `invert`)."""
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
@numpy_names
def unique(x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
           dim: int | None = None) -> Any:
    """Distinct elements of `x` in order (slices along `dim`); on demand each element's place, and counts."""
    if dim is None:
        values, inverse, counts = F.unique_flat(x)
        return _chosen(values, inverse, counts, return_inverse, return_counts)
    dim = normalize_dim("unique", dim, x.ndim)
    values, inverse, counts = F.unique_rows(F.transpose(x, 0, dim))
    return _chosen(F.transpose(values, 0, dim), inverse, counts, return_inverse, return_counts)


@public(method=True)
@numpy_names
def unique_consecutive(x: Tensor, return_inverse: bool = False, return_counts: bool = False,
                       dim: int | None = None) -> Any:
    """`x` with each run of equal elements (slices along `dim`) reduced to its first; on demand each
    element's run and the lengths of the runs."""
    if dim is None:
        values, inverse, counts = F.unique_runs(F.reshape(x, (-1,)))
        return _chosen(values, F.reshape(inverse, x.shape), counts, return_inverse, return_counts)
    dim = normalize_dim("unique_consecutive", dim, x.ndim)
    values, inverse, counts = F.unique_runs(F.transpose(x, 0, dim))
    return _chosen(F.transpose(values, 0, dim), inverse, counts, return_inverse, return_counts)
