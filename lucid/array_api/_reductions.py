"""Statistics, sums, sorting, search, sets and truth."""

from __future__ import annotations

from collections.abc import Callable
from math import prod as _product
from typing import Any, NamedTuple

from ..autograd.record import RECORDED as F
from ..errors import ShapeError
from ..functional import calculus as _calculus
from ..functional import reduce as _r
from ..functional.creation import ones, zeros
from ..ops.common import normalize_dim, normalize_dims
from ..tensor import Tensor

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "max",
    "mean",
    "min",
    "prod",
    "sort",
    "std",
    "sum",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "var",
]

Axes = int | tuple[int, ...] | None


class UniqueAll(NamedTuple):
    """Distinct values, where each stands first, each element's place among them, how often each occurs."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct values and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct values and each element's place among them."""

    values: Tensor
    inverse_indices: Tensor


def _reduce(
    name: str, x: Tensor, axis: Axes, keepdims: bool, along: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """`along` (a reduction of one dimension) over `axis`: several are first made one. () reduces nothing."""
    axes = () if axis == () else normalize_dims(name, axis, x.ndim)
    rest = tuple(d for d in range(x.ndim) if d not in axes)
    shape = tuple(x.shape[d] for d in rest)
    if len(axes) == 1:
        out = along(x, axes[0])
    else:
        size = _product(x.shape[d] for d in axes)
        out = along(F.reshape(F.permute(x, (*rest, *axes)), (*shape, size)), -1)
    return F.reshape(out, tuple(1 if d in axes else n for d, n in enumerate(x.shape))) if keepdims else out


# ---- sums ----


def sum(x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis` (all when None); integers are summed as int64."""
    return _reduce("sum", x, axis, keepdims, lambda v, d: _r.sum(v, d, dtype=dtype))


def prod(x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product over `axis` (all when None); of integers as int64."""
    return _reduce("prod", x, axis, keepdims, lambda v, d: _r.prod(v, d, dtype=dtype))


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean over `axis` (all when None)."""
    return _reduce("mean", x, axis, keepdims, lambda v, d: _r.mean(v, d))


def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance over `axis` (all when None), divided by their number less `correction`."""
    return _reduce("var", x, axis, keepdims, lambda v, d: _r.var(v, d, correction=correction))


def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The root of `var`."""
    return _reduce("std", x, axis, keepdims, lambda v, d: _r.std(v, d, correction=correction))


def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest value over `axis` (all when None); equal ones share the gradient."""
    return _reduce("max", x, axis, keepdims, lambda v, d: F.amax(v, d))


def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest value over `axis` (all when None); equal ones share the gradient."""
    return _reduce("min", x, axis, keepdims, lambda v, d: F.amin(v, d))


def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether all elements over `axis` are nonzero."""
    return _reduce("all", x, axis, keepdims, lambda v, d: F.all(v, d).to(dtype=bool))


def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether any element over `axis` is nonzero."""
    return _reduce("any", x, axis, keepdims, lambda v, d: F.any(v, d).to(dtype=bool))


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The number of nonzero elements over `axis` (all when None)."""
    return sum(x != 0, axis=axis, keepdims=keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The position of the first largest value along `axis` (in the flat array when None)."""
    return _reduce("argmax", x, axis, keepdims, lambda v, d: F.argmax(v, d))


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The position of the first smallest value along `axis` (in the flat array when None)."""
    return _reduce("argmin", x, axis, keepdims, lambda v, d: F.argmin(v, d))


def _cumulative(
    name: str, function: Any, start: Any, x: Tensor, axis: int | None, dtype: Any, initial: bool
) -> Tensor:
    if axis is None:
        if x.ndim > 1:
            raise ShapeError(f"{name}: expected an axis for an array of shape {x.shape}")
        axis = 0
    if not x.ndim:
        x = F.reshape(x, (1,))
    axis = normalize_dim(name, axis, x.ndim)
    out = function(x, axis, dtype=dtype)
    if not initial:
        return out
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return F.cat(start(shape, dtype=out.dtype, device=x.device), out, dim=axis)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Partial sums along `axis`, with a leading 0 on demand."""
    return _cumulative("cumulative_sum", _r.cumsum, zeros, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Partial products along `axis`, with a leading 1 on demand."""
    return _cumulative("cumulative_prod", _r.cumprod, ones, x, axis, dtype, include_initial)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """n-th differences of neighbours along `axis`."""
    return _calculus.diff(x, n, axis, prepend, append)


# ---- order and sets ----


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """`x` in order along `axis`."""
    return F.sort(x, axis, descending)[0]


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The order that sorts `x` along `axis`; always stable."""
    return F.argsort(x, axis, descending)


def _unique(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct values, inverse and counts of the flat array; complex numbers in the order of their parts."""
    if not x.is_complex():
        return F.unique_flat(x)
    rows, inverse, counts = F.unique_rows(F.reshape(F.view_as_real(x.contiguous()), (-1, 2)))
    return F.view_as_complex(rows), F.reshape(inverse, x.shape), counts


def unique_all(x: Tensor, /) -> UniqueAll:
    """Distinct values in order, first positions (in the flat array), inverse, counts; NaNs are distinct."""
    values, inverse, counts = _unique(x)
    order = F.argsort(F.reshape(inverse, (-1,)), -1, False)
    return UniqueAll(values, order[F.cumsum(counts, 0) - counts], inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Distinct values in order and how often each occurs."""
    values, _, counts = _unique(x)
    return UniqueCounts(values, counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Distinct values in order and each element's place among them."""
    values, inverse, _ = _unique(x)
    return UniqueInverse(values, inverse)


def unique_values(x: Tensor, /) -> Tensor:
    """Distinct values in order."""
    return _unique(x)[0]
