"""Order: sorting, order statistics, searching, and sets."""

from __future__ import annotations

from typing import Any

import numpy as np  # for references only: forwards use xp

from ..errors import DtypeError, IndexRangeError, ShapeError
from .common import is_low, need_order, normalize_dim
from .reduce import one_dim, pick_along, select_back
from .registry import A, Sample, op
from .scan import part, running

_PAIR = dict(public=False, outputs=("values", "indices"), diff=("values",))


def _comparable(x: Any) -> Any:
    """`x` in a dtype that every array module can sort: CuPy's cannot sort bfloat16."""
    return x.astype("float32") if is_low(x.dtype) else x


def _keys(x: Any) -> Any:
    """`x` in a dtype that sorts with NaN last."""
    if x.dtype.kind == "c":
        raise DtypeError(f"sort: complex numbers have no order, got {x.dtype.name}; sort x.abs() or x.real")
    return _comparable(x)


def _argsort(xp: Any, x: Any, dim: int, descending: bool = False) -> Any:
    """Stable order along `dim`; NaN counts as the largest."""
    x = _keys(x)
    if not x.ndim:
        return xp.zeros((), "int64")
    if not descending:
        return xp.argsort(x, axis=dim, kind="stable").astype("int64", copy=False)
    # Sorting the reversed array and reversing the result keeps ties in their order.
    backwards = xp.argsort(xp.flip(x, dim), axis=dim, kind="stable")
    return x.shape[dim] - 1 - xp.flip(backwards, dim).astype("int64", copy=False)


def _sort_reference(x: Any, dim: int = -1, descending: bool = False) -> Any:
    if not x.ndim:
        return x, np.zeros((), int)
    index = np.argsort(-x if descending else x, axis=dim, kind="stable")
    return np.take_along_axis(x, index, dim), index


@op(**_PAIR, reference=_sort_reference, samples=[
    Sample((3, 4), dim=1), Sample((3, 4), dim=0, descending=True), Sample(()), Sample((0, 2), dim=0)])
def sort(xp, x, dim: int = -1, descending: bool = False):
    """Elements of `x` in order along `dim`, and where they stood. Stable; NaN counts as the largest."""
    dim = normalize_dim("sort", dim, x.ndim)
    index = _argsort(xp, x, dim, descending)
    return pick_along(xp, x, index, dim), index


sort.grad(x=lambda F, g, indices, dim, x_shape: F.scatter_sum(g, indices, dim, x_shape))


@op(public=False, diff=(), samples=[Sample((3, 4), dim=1), Sample((3, 4), dim=0, descending=True)],
    reference=lambda x, dim=-1, descending=False: _sort_reference(x, dim, descending)[1])
def argsort(xp, x, dim: int = -1, descending: bool = False):
    """Order (int64) that sorts `x` along `dim`. Stable; NaN counts as the largest."""
    return _argsort(xp, x, normalize_dim("argsort", dim, x.ndim), descending)


@op(**_PAIR, samples=[Sample((3, 5), 2), Sample((3, 5), 2, dim=0, largest=False), Sample((), 1)],
    reference=lambda x, k, dim=-1, largest=True: tuple(
        a.take(range(k), dim) if x.ndim else a for a in _sort_reference(x, dim, largest)))
def topk(xp, x, k: int, dim: int = -1, largest: bool = True):
    """The `k` largest (or smallest) elements along `dim` in order, and where they stand."""
    dim = normalize_dim("topk", dim, x.ndim)
    n = x.shape[dim] if x.ndim else 1
    if not 0 <= k <= n:
        raise IndexRangeError(f"topk: expected 0 <= k <= {n}, the size of dim {dim}, got k={k}")
    if xp.__name__ == "numpy" and x.ndim and 0 < k < n // 4:
        # Only the k best are put in order: 5 of 128 in 5000 rows take a third of the time of a full sort.
        # CuPy's argpartition sorts for k large, and loses NaN for k small (_core/_routines_sorting.pyx).
        best = xp.argpartition(_keys(x), n - k if largest else k - 1, axis=dim)
        best = best[part(x.ndim, dim, n - k, None) if largest else part(x.ndim, dim, None, k)]
        values = xp.take_along_axis(x, best, dim)
        order = _argsort(xp, values, dim, largest)
        index = xp.take_along_axis(best, order, dim).astype("int64", copy=False)
        return xp.take_along_axis(values, order, dim), index
    index = _argsort(xp, x, dim, largest)
    if x.ndim:
        # A copy: a slice would keep the whole order in memory until the backward pass.
        index = index[part(x.ndim, dim, None, k)].copy()
    return pick_along(xp, x, index, dim), index


topk.grad(x=lambda F, g, indices, dim, x_shape: F.scatter_sum(g, indices, dim, x_shape))

# ---- order statistics ----


def _row_choice(xp: Any, x: Any, index: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    """Elements at `index` (size 1 along `dim`), and the index, with or without `dim`."""
    values = pick_along(xp, x, index, dim)
    return (values, index) if keepdim or not x.ndim else (values.squeeze(dim), index.squeeze(dim))


@op(**_PAIR, samples=[Sample((3, 5), 2), Sample((3, 5), 3, dim=0, keepdim=True)],
    reference=lambda x, k, dim=-1, keepdim=False: tuple(
        a.take([k - 1] if keepdim else k - 1, dim) for a in _sort_reference(x, dim)))
def kthvalue(xp, x, k: int, dim: int = -1, keepdim: bool = False):
    """The `k`-th smallest element along `dim` (k counts from 1), and where it stands."""
    dim = one_dim("kthvalue", x, dim)
    n = x.shape[dim] if x.ndim else 1
    if not 1 <= k <= n:
        raise IndexRangeError(f"kthvalue: expected 1 <= k <= {n}, the size of dim {dim}, got k={k}")
    index = _argsort(xp, x, dim)
    if x.ndim:
        index = index[(slice(None),) * dim + (slice(k - 1, k),)].copy()
    return _row_choice(xp, x, index, dim, keepdim)


def _median(name: str, xp: Any, x: Any, dim: int, keepdim: bool, skip: bool) -> tuple[Any, Any]:
    dim = one_dim(name, x, dim)
    order = _argsort(xp, x, dim)
    if not x.ndim:
        return x.copy(), order
    bad = x != x
    n = x.shape[dim]
    valid = n - xp.sum(bad, axis=dim, keepdims=True)
    # NaN sorts last: the first one is the median as soon as there is one; nanmedian counts the others only.
    rank = xp.maximum((valid - 1) // 2, 0) if skip else xp.where(valid < n, valid, (n - 1) // 2)
    return _row_choice(xp, x, xp.take_along_axis(order, rank.astype("int64"), dim), dim, keepdim)


def _lower_median(x: Any, dim: int, keepdim: bool = False) -> Any:
    k = (x.shape[dim] - 1) // 2
    return tuple(a.take([k] if keepdim else k, dim) for a in _sort_reference(x, dim))


@op(**_PAIR, samples=[Sample((3, 5), dim=1), Sample((4, 3), dim=0, keepdim=True)], reference=_lower_median)
def median_dim(xp, x, dim: int, keepdim: bool = False):
    """The median along `dim` (the lower of two middle elements), and where it stands; NaN if any is."""
    return _median("median", xp, x, dim, keepdim, False)


@op(**_PAIR, samples=[Sample((3, 5), dim=1), Sample((4, 3), dim=0, keepdim=True)], reference=_lower_median)
def nanmedian_dim(xp, x, dim: int, keepdim: bool = False):
    """The median along `dim` of the elements that are not NaN, and where it stands."""
    return _median("nanmedian", xp, x, dim, keepdim, True)


@op(**_PAIR, samples=[Sample((3, 4), dim=0), Sample((3, 4), keepdim=True)])
def mode(xp, x, dim: int = -1, keepdim: bool = False):
    """The most frequent element along `dim` (the smallest of equals), and where it stands last."""
    dim = one_dim("mode", x, dim)
    if not x.ndim:
        return x.copy(), xp.zeros((), "int64")
    order = xp.moveaxis(_argsort(xp, x, dim), dim, -1)
    ordered = xp.take_along_axis(xp.moveaxis(x, dim, -1), order, -1)
    place = xp.broadcast_to(xp.arange(x.shape[dim]), ordered.shape)
    # Length of the run of equal elements that ends at each place; the first longest run wins.
    starts = xp.where(xp.concatenate((xp.ones_like(place[..., :1], dtype=bool),
                                      ordered[..., 1:] != ordered[..., :-1]),
                                     -1), place, 0)
    best = (place - running(xp, "maximum", starts, x.ndim - 1)).argmax(-1)[..., None]
    return _row_choice(xp, x, xp.moveaxis(xp.take_along_axis(order, best, -1), -1, dim), dim, keepdim)


for _op in (kthvalue, median_dim, nanmedian_dim, mode):
    _op.grad(x=lambda F, g, indices, dim, x_shape: select_back(F, g, indices, dim, x_shape))



def _median_of_all(name: str, xp: Any, x: Any, skip: bool) -> Any:
    if not x.size:
        return xp.full((), float("nan"), x.dtype)
    return _median(name, xp, x.reshape(-1), 0, False, skip)[0]


@op(public=False, samples=[Sample((3, 5)), Sample(())],
    reference=lambda x: _lower_median(x.reshape(-1), 0)[0])
def median_all(xp, x):
    """The median of all elements (the lower of two middle ones), NaN if any is. Ties share the gradient."""
    return _median_of_all("median", xp, x, False)


@op(public=False, samples=[Sample((3, 5))], reference=lambda x: _lower_median(x.reshape(-1), 0)[0])
def nanmedian_all(xp, x):
    """The median of all elements that are not NaN. Ties share the gradient."""
    return _median_of_all("nanmedian", xp, x, True)


for _op in (median_all, nanmedian_all):
    _op.grad(x=lambda F, g, x, out: g * F.tie_weights(x, out))

# ---- searching ----


@op(public=False, diff=(), samples=[Sample(A(value=[1.0, 2.0, 2.0, 5.0]), A(value=[0.0, 2.0, 6.0])),
                                    Sample(A(value=[1.0, 2.0, 2.0, 5.0]), A(value=[[2.0], [5.0]]),
                                           right=True)],
    reference=lambda s, v, right=False: s.searchsorted(v, "right" if right else "left"))
def searchsorted(xp, sequence, values, right: bool = False):
    """Positions (int64) at which `values` would be inserted into `sequence`, sorted along its last dimension.

    sequence: [n], or [..., n] beside values [..., m] with the same leading sizes. right: behind equals.
    """
    if not sequence.ndim or sequence.ndim != 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise ShapeError("searchsorted: expected a 1-d sequence or the same sizes but for the last "
                         f"dimension, got {tuple(sequence.shape)} and {tuple(values.shape)}")
    need_order("searchsorted", sequence)
    need_order("searchsorted", values)
    dtype = xp.result_type(wide_key(sequence), wide_key(values))
    sequence, values = sequence.astype(dtype), values.astype(dtype)
    n = sequence.shape[-1]
    if sequence.ndim == 1:
        return xp.asarray(xp.searchsorted(sequence, values, "right" if right else "left")).astype("int64")
    low, high = xp.zeros(values.shape, "int64"), xp.full(values.shape, n, "int64")
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        found = xp.take_along_axis(sequence, xp.minimum(middle, n - 1), -1)
        below = (found <= values if right else found < values) | (values != values) & (found == found)
        below = below & (low < high)
        low, high = xp.where(below, middle + 1, low), xp.where(below, high, middle)
    return low


def wide_key(x: Any) -> Any:
    """The dtype in which `x` is compared."""
    return "float32" if is_low(x.dtype) else x.dtype


@op(public=False, diff=(), samples=[Sample(A(value=[1, 2, 5]), A(value=[2, 2, 7])),
                                    Sample(A(value=[1, 2, 5]), A(value=[2]), invert=True)],
    reference=lambda x, y, invert=False: np.isin(x, y, invert=invert))
def isin(xp, elements, test_elements, invert: bool = False):
    """Whether each of `elements` stands in `test_elements` (or not, with `invert`)."""
    x, among = (_comparable(a).reshape(-1) for a in (elements, test_elements))
    return xp.isin(x, among, invert=invert).reshape(elements.shape)


@op(public=False, diff=(), samples=[Sample(A(value=[[1.0, 0.0], [0.0, 2.0]])), Sample(A(value=3.0))],
    reference="numpy:argwhere")
def nonzero(xp, x):
    """Positions of the nonzero elements, one row each: [n, dimensions], int64."""
    if not x.ndim:
        return xp.zeros((int(x != 0), 0), "int64")    # synchronises: the size depends on the value
    return xp.stack(xp.nonzero(x), 1).astype("int64", copy=False)


# ---- sets ----


@op(public=False, diff=(), outputs=("values", "inverse", "counts"), samples=[Sample(A(value=[3, 1, 3, 2]))],
    reference=lambda x: np.unique(x, return_inverse=True, return_counts=True))
def unique_flat(xp, x):
    """Distinct elements of `x` in order, each element's place among them (x's shape), and their counts."""
    flat = x.reshape(-1)
    order = _argsort(xp, flat, 0)
    values, inverse, counts = _runs(xp, flat[order])
    back = xp.zeros_like(inverse)
    back[order] = inverse
    return values, back.reshape(x.shape), counts


@op(public=False, diff=(), outputs=("values", "inverse", "counts"),
    samples=[Sample(A(value=[[3, 1], [3, 1], [0, 2]])), Sample(A(value=[[3, 1]]))],
    reference=lambda x: np.unique(x, axis=0, return_inverse=True, return_counts=True))
def unique_rows(xp, x):
    """Distinct rows of `x` [n, ...] in lexicographic order, each row's place among them, and their counts."""
    rows = _keys(x.reshape(x.shape[0], -1 if x.size else 0))
    order = xp.lexsort(xp.flip(rows.T, 0)) if rows.shape[1] else xp.arange(rows.shape[0])
    values, inverse, counts = _runs(xp, x[order])
    back = xp.zeros_like(inverse)
    back[order] = inverse
    return values, back, counts


@op(public=False, diff=(), outputs=("values", "inverse", "counts"), samples=[Sample(A(value=[3, 3, 1, 3]))])
def unique_runs(xp, x):
    """First slice of each run of equal slices of `x` [n, ...], each slice's run, and the runs' lengths."""
    return _runs(xp, x)


def _runs(xp: Any, x: Any) -> tuple[Any, Any, Any]:
    n = x.shape[0]
    differs = x[1:] != x[:-1]
    if x.ndim > 1:
        differs = differs.any(tuple(range(1, x.ndim)))
    first = xp.concatenate((xp.ones(min(n, 1), bool), differs))
    starts = xp.flatnonzero(first)
    ends = xp.concatenate((starts[1:], xp.full(min(n, 1), n, starts.dtype)))
    return x[starts], xp.cumsum(first, dtype="int64") - 1, (ends - starts).astype("int64", copy=False)
