"""Histograms with given edges or ranges, of numbers and of points."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import DtypeError, ShapeError
from ..ops.bounds import tally
from ..ops.common import check_tensors
from ..ops.rows import sum_rows
from ..storage.dtype import is_floating
from ..tensor import Tensor, _wrap
from .registry import public


class Histogram(NamedTuple):
    """What `histogram` returns."""

    hist: Tensor
    bin_edges: Tensor


class HistogramDD(NamedTuple):
    """What `histogramdd` returns."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def _edges(name: str, x: Tensor, column: Any, bins: Any, range_: Any) -> Any:
    """The edges of the cells along one coordinate, as a raw array of x's dtype."""
    xp = x.backend.xp
    if isinstance(bins, Tensor):
        if bins.ndim != 1 or bins.shape[0] < 2 or bins.dtype != x.dtype:
            raise ShapeError(
                f"{name}: expected 2 or more edges of {x.dtype.name}, got {bins.dtype.name}{list(bins.shape)}"
            )
        return bins.array
    if not isinstance(bins, int) or bins < 1:
        raise ShapeError(f"{name}: expected at least 1 bin, or a tensor of edges, got {bins!r}")
    if range_ is None:
        # Reads the device: the cells depend on x.
        low, high = (float(column.min()), float(column.max())) if column.size else (0.0, 1.0)
    elif len(range_) != 2:
        raise ShapeError(f"{name}: expected a range (min, max), got {range_}")
    else:
        low, high = (float(v) for v in range_)
    if low == high:
        low, high = low - 0.5, high + 0.5
    if not -float("inf") < low < high < float("inf"):
        raise ShapeError(f"{name}: expected a finite range with min <= max, got [{low}, {high}]")
    return xp.linspace(low, high, bins + 1).astype(x.dtype)


def _cells(name: str, x: Tensor, points: Any, edges: list[Any], weight: Tensor | None, density: bool) -> Any:
    xp = x.backend.xp
    inside, flat = xp.ones(points.shape[0], bool), xp.zeros(points.shape[0], "int64")
    for d, e in enumerate(edges):
        column, n = points[:, d], len(e) - 1
        cell = xp.searchsorted(e, column, side="right") - 1
        inside &= (column >= e[0]) & (column <= e[-1])
        flat = flat * n + xp.clip(cell, 0, n - 1)  # the last cell holds its upper edge
    sizes = tuple(len(e) - 1 for e in edges)
    total = 1
    for n in sizes:
        total *= n
    if weight is None:
        hist = tally(xp, flat[inside], total).astype("float64")
    else:
        share = xp.where(inside, weight.array.reshape(-1), 0).astype("float64")
        hist = sum_rows(xp, total, flat, share[:, None])
    hist = hist.reshape(sizes)
    if density:
        hist = hist / hist.sum()
        for d, e in enumerate(edges):
            width = (e[1:] - e[:-1]).astype("float64")
            hist = hist / width.reshape([-1 if i == d else 1 for i in range(len(edges))])
    return hist.astype(x.dtype)


def _check(name: str, x: Tensor, weight: Tensor | None, shape: tuple[int, ...]) -> None:
    check_tensors(name, x=x)
    if not is_floating(x.dtype):
        raise DtypeError(f"{name}: expected a floating tensor, got {x.dtype.name}; convert it with .float()")
    if weight is not None and (weight.shape != shape or weight.dtype != x.dtype):
        raise ShapeError(
            f"{name}: expected a weight {x.dtype.name}{list(shape)}, got {weight.dtype.name}"
            f"{list(weight.shape)}"
        )


@public(method=True)
def histogram(
    x: Tensor,
    bins: int | Tensor,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """(hist, bin_edges): the number of elements, or the sum of their weights, in each cell, in x's dtype.

    bins: the number of equal cells of `range` (x's own when None), or increasing edges [n + 1]. A cell holds
    its lower edge, the last one also its upper. density: the integral over all cells is 1. No derivative.

    >>> import lucid
    >>> lucid.histogram(lucid.tensor([1.0, 2.0, 1.0, 3.5]), 4, range=(0.0, 4.0)).hist
    tensor([0., 2., 1., 1.])
    """
    check_tensors("histogram", x=x)
    _check("histogram", x, weight, x.shape)
    flat = x.array.reshape(-1)
    edges = _edges("histogram", x, flat, bins, range)
    hist = _cells("histogram", x, flat[:, None], [edges], weight, density)
    return Histogram(_wrap(hist, x.backend), _wrap(edges, x.backend))


@public("histogramdd")
def histogramdd(
    x: Tensor,
    bins: int | Sequence[int] | Sequence[Tensor],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramDD:
    """(hist, bin_edges) of points x [..., n] in n-dimensional cells; see `histogram`.

    bins: a number, or a number or edges for each coordinate. range: 2 n numbers, lowest and highest of each.

    >>> import lucid
    >>> x = lucid.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
    >>> lucid.histogramdd(x, bins=[2, 2]).hist
    tensor([[0., 1.],
            [1., 1.]])
    """
    name = "histogramdd"
    check_tensors(name, x=x)
    if x.ndim < 2:
        raise ShapeError(f"{name}: expected points [..., n], got shape {x.shape}")
    _check(name, x, weight, x.shape[:-1])
    n = x.shape[-1]
    each = [bins] * n if isinstance(bins, int) else list(bins)
    if len(each) != n or (range is not None and len(range) != 2 * n):
        raise ShapeError(f"{name}: expected {n} bins and a range of {2 * n} numbers, got {bins} and {range}")
    points = x.array.reshape(-1, n)
    ranges = [None if range is None else tuple(range[2 * d : 2 * d + 2]) for d in builtins.range(n)]
    edges = [_edges(name, x, points[:, d], each[d], ranges[d]) for d in builtins.range(n)]
    hist = _cells(name, x, points, edges, weight, density)
    return HistogramDD(_wrap(hist, x.backend), tuple(_wrap(e, x.backend) for e in edges))
