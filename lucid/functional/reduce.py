"""Reductions with PyTorch's overloads, and the functions that are built of them."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from ..autograd.inplace import method as in_place
from ..autograd.out import written
from ..autograd.record import RECORDED as F
from ..errors import DtypeError, ShapeError
from ..ops.common import named, normalize_dim
from ..storage.dtype import as_dtype
from ..tensor import Tensor, _wrap, tensor
from .registry import public

Dim = int | Sequence[int] | None
_Function = TypeVar("_Function", bound=Callable[..., Any])


class ValuesIndices(NamedTuple):
    """Chosen elements (`values`), and where they stood along the dimension (`indices`, int64)."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The smallest and the largest element."""

    min: Tensor
    max: Tensor


def _cast(x: Tensor, dtype: Any) -> Tensor:
    """`x` in `dtype`, when one is given. Sums of integers are int64, so it is applied before and after."""
    return x if dtype is None else x.to(as_dtype(dtype))


@public(method=True)
def sum(x: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None, axis: Dim = None,
        keepdims: bool = False) -> Tensor:
    """Sum over `dim` (an int, a tuple, or None for all), computed in `dtype` when it is given.

    x: any shape and dtype; integers and bools give int64, 16-bit floats are accumulated in float32. Returns
    x's shape without `dim`, or with size 1 there (keepdim). Raises IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.sum(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), 1)
    tensor([3., 7.])
    """
    return _cast(F.sum(_cast(x, dtype), dim if axis is None else axis, keepdims or keepdim), dtype)


@public(method=True)
def mean(x: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None, axis: Dim = None,
         keepdims: bool = False) -> Tensor:
    """Mean over `dim` (an int, a tuple, or None for all), computed in `dtype` when it is given.

    Shapes as of `sum`; 16-bit floats are accumulated in float32. Raises DtypeError for integers,
    IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.mean(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=0)
    tensor([2., 3.])
    """
    return F.mean(_cast(x, dtype), dim if axis is None else axis, keepdims or keepdim)


@public(method=True)
def nansum(x: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Sum over `dim` with NaN taken as 0; shapes and errors as of `sum`.

    >>> import lucid
    >>> lucid.nansum(lucid.tensor([1.0, lucid.nan, 2.0]))
    tensor(3.)
    """
    return _cast(F.nansum(_cast(x, dtype), dim, keepdim), dtype)


@public(method=True)
def nanmean(x: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Mean over `dim` of the elements that are not NaN; shapes as of `sum`.

    >>> import lucid
    >>> lucid.nanmean(lucid.tensor([1.0, lucid.nan, 2.0]))
    tensor(1.5)
    """
    return F.nanmean(_cast(x, dtype), dim, keepdim)


@public(method=True)
def prod(x: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Product of all elements, or along `dim`; integers give int64.

    The gradient is exact at zeros. Raises IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.prod(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=1)
    tensor([ 2., 12.])
    """
    return _cast(F.prod(_cast(x, dtype), dim, keepdim), dtype)


@public(method=True)
def sum_to_size(x: Tensor, *size: Any) -> Tensor:
    """`x` summed over the dimensions along which a tensor of `size` would be broadcast to x's shape.

    Raises ShapeError where size does not broadcast to x's shape.

    >>> import lucid
    >>> lucid.ones(2, 3).sum_to_size(1, 3)
    tensor([[2., 2., 2.]])
    """
    shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    extra = x.ndim - len(shape)
    if extra < 0 or any(n not in (1, x.shape[extra + i]) for i, n in enumerate(shape)):
        raise ShapeError(f"sum_to_size: a tensor of shape {x.shape} cannot be summed to {shape}; each size "
                         "must be 1 or x's")
    return F.sum_to(x if x.is_floating_point() or x.is_complex() else x.long(), shape)


# ---- extrema ----

def _extremum(x: Tensor, dim: Any, keepdim: bool, full: Any, along: Any, binary: Any) -> Any:
    if dim is None:
        return full(x, None, keepdim)
    if isinstance(dim, Tensor):
        return binary(x, dim)
    return ValuesIndices(*along(x, dim, keepdim))


@public(method=True)
def max(x: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """The largest element; with `dim`, (values, indices) along it; with a tensor, the larger of each pair.

    Of all elements: ties share the gradient evenly. Along `dim`: the gradient goes to the returned index. NaN
    wins. Raises IndexRangeError for an empty dimension or a dim out of range.

    >>> import lucid
    >>> lucid.max(lucid.tensor([[1.0, 5.0], [4.0, 2.0]]), dim=1).indices
    tensor([1, 0])
    """
    return _extremum(x, dim if other is None else other, keepdim, F.amax, F.max_dim, F.maximum)


@public(method=True)
def min(x: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """The smallest element; with `dim`, (values, indices) along it; with a tensor, the smaller of each pair.

    Of all elements: ties share the gradient evenly. Along `dim`: the gradient goes to the returned index. NaN
    wins. Raises IndexRangeError for an empty dimension or a dim out of range.

    >>> import lucid
    >>> values, indices = lucid.min(lucid.tensor([[1.0, 5.0], [4.0, 2.0]]), dim=1)
    >>> values, indices
    (tensor([1., 2.]), tensor([0, 1]))
    """
    return _extremum(x, dim if other is None else other, keepdim, F.amin, F.min_dim, F.minimum)


@public(method=True)
def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """(min, max) of all elements, or along `dim`. Ties share the gradient evenly.

    Raises IndexRangeError for an empty dimension or a dim out of range.

    >>> import lucid
    >>> low, high = lucid.aminmax(lucid.tensor([3.0, 1.0, 2.0]))
    >>> low, high
    (tensor(1.), tensor(3.))
    """
    return MinMax(F.amin(x, dim, keepdim), F.amax(x, dim, keepdim))


# ---- moments ----

def _moment_arguments(x: Tensor, dim: Any, unbiased: Any, correction: Any) -> tuple[Dim, float]:
    if x.dtype.kind in "iub":
        raise DtypeError(
            f"var: expected a floating or complex dtype, got {x.dtype.name}; convert with .float()"
        )
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    elif unbiased is not None:
        raise DtypeError("var: expected either unbiased or correction, got both; unbiased=True is "
                         "correction=1")
    return dim, correction


@public(method=True)
def var(x: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
        correction: float | None = None) -> Tensor:
    """Variance over `dim`: sum |x - mean|^2 / (n - correction), with correction 1 unless given.

    x: floating or complex, else DtypeError. unbiased: False is correction 0. Without a degree of freedom (n
    <= correction) the result is NaN or inf.

    >>> import lucid
    >>> lucid.var(lucid.tensor([1.0, 2.0, 3.0]))
    tensor(1.)
    >>> lucid.var(lucid.tensor([1.0, 2.0, 3.0]), correction=0)
    tensor(0.6667)
    """
    dim, correction = _moment_arguments(x, dim, unbiased, correction)
    return F.var(x, dim, correction, keepdim)


@public(method=True)
@named("std")
def std(x: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
        correction: float | None = None) -> Tensor:
    """Standard deviation over `dim`, the root of `var`; its gradient at 0 is 0.

    x: floating or complex, else DtypeError.

    >>> import lucid
    >>> lucid.std(lucid.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]), dim=1)
    tensor([1., 0.])
    """
    dim, correction = _moment_arguments(x, dim, unbiased, correction)
    return F.std(x, dim, correction, keepdim)


@public(method=False)
@named("var_mean")
def var_mean(x: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
             correction: float | None = None) -> tuple[Tensor, Tensor]:
    """(variance, mean) over `dim`; arguments and errors as of `var`.

    >>> import lucid
    >>> lucid.var_mean(lucid.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    dim, correction = _moment_arguments(x, dim, unbiased, correction)
    return F.var(x, dim, correction, keepdim), F.mean(x, dim, keepdim)


@public(method=False)
@named("std_mean")
def std_mean(x: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
             correction: float | None = None) -> tuple[Tensor, Tensor]:
    """(standard deviation, mean) over `dim`; arguments and errors as of `std`.

    >>> import lucid
    >>> lucid.std_mean(lucid.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    dim, correction = _moment_arguments(x, dim, unbiased, correction)
    return F.std(x, dim, correction, keepdim), F.mean(x, dim, keepdim)


def _weights(name: str, x: Tensor, weights: Tensor | None) -> Any:
    if weights is not None and weights.shape != x.shape[-1:]:
        raise ShapeError(f"cov: expected {name} of shape {x.shape[-1:]}, one weight for each column, got "
                         f"{weights.shape}")
    return weights


@public(method=True)
def cov(x: Tensor, *, correction: float = 1, fweights: Tensor | None = None,
        aweights: Tensor | None = None) -> Tensor:
    """Covariance of variables in rows and observations in columns.

    sum over m of (x_i - mean_i) conj(x_j - mean_j) / (m - correction). x: [n, m] or [m], else ShapeError;
    returns [n, n] or []. fweights: how often each observation counts (integers); aweights: its relative
    importance; both [m].

    >>> import lucid
    >>> lucid.cov(lucid.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if x.ndim > 2:
        raise ShapeError(f"cov: expected at most 2 dimensions, got shape {x.shape}")
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    rows = rows if rows.is_floating_point() or rows.is_complex() else rows.float()
    frequency, importance = _weights("fweights", rows, fweights), _weights("aweights", rows, aweights)
    weight = frequency if importance is None else importance if frequency is None else frequency * importance
    if weight is None:
        centred = scaled = rows - F.mean(rows, 1, True)
        free: Any = builtins.max(rows.shape[1] - correction, 0)
        free = float(free) if free else tensor(0.0, rows.dtype, rows.device)
    else:
        total = F.sum(weight)
        centred = rows - F.unsqueeze(F.sum(rows * weight, 1) / total, 1)
        scaled = centred * weight
        lost = F.sum(weight * importance) / total if importance is not None and correction else 1.0
        free = total - lost * correction
        free = F.masked_fill(free, free < 0, 0.0)
    out = F.matmul(centred, F.conj(F.transpose(scaled, 0, 1))) / free
    return out.reshape(()) if rows.shape[0] == 1 else out


@public(method=True)
def corrcoef(x: Tensor) -> Tensor:
    """Correlation coefficients of variables in rows and observations in columns: cov / sqrt(var var').

    x: [n, m] or [m], else ShapeError; returns [n, n] or [].

    >>> import lucid
    >>> lucid.corrcoef(lucid.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    c = cov(x)
    if not c.ndim:
        return c / c
    deviation = F.sqrt(F.real(F.diagonal(c)))
    return c / F.unsqueeze(deviation, 1) / deviation


# ---- norms ----

@public(method=True)
def norm(x: Tensor, p: Any = "fro", dim: Dim = None, keepdim: bool = False, out: Any = None,
         dtype: Any = None) -> Tensor:
    """(sum |x|^p)^(1/p) over `dim`. p: a number, inf, -inf, 0, "fro" (2) or "nuc" (singular values).

    Raises DtypeError for another p. The gradient at a norm of 0 is 0. New code writes `linalg.vector_norm` or
    `linalg.matrix_norm`.

    >>> import lucid
    >>> lucid.norm(lucid.tensor([[3.0, 4.0], [0.0, 1.0]]), dim=1)
    tensor([5., 1.])
    """
    if out is not None:
        return written("norm", out, norm, (x, p, dim, keepdim), {"dtype": dtype})
    x = _cast(x, dtype)
    if p == "nuc":
        linalg: Any = importlib.import_module("lucid.linalg")
        return linalg.matrix_norm(x, "nuc", tuple(range(x.ndim)) if dim is None else dim, keepdim)
    if isinstance(p, str) and p != "fro":
        raise DtypeError(f"norm: p is a number, 'fro' or 'nuc', got {p!r}")
    return F.p_norm(x, 2.0 if p in (None, "fro") else float(p), dim, keepdim)


@public(method=True)
@named("dist")
def dist(x: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """p-norm of x - other: (sum |x - other|^p)^(1/p), 0-d. Shapes broadcast together, else ShapeError.

    >>> import lucid
    >>> lucid.dist(lucid.tensor([1.0, 2.0]), lucid.tensor([4.0, 6.0]))
    tensor(5.)
    """
    return F.p_norm(x - other, float(p))


@public(method=True)
def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """`x` with each slice along `dim` scaled down so that its p-norm is at most `maxnorm`.

    x: at least 2 dimensions; p > 0, maxnorm >= 0; ShapeError otherwise.

    >>> import lucid
    >>> lucid.renorm(lucid.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6, 0.8],
            [0.3, 0.4]])
    """
    dim = normalize_dim("renorm", dim, x.ndim)
    if p <= 0 or maxnorm < 0:
        raise ShapeError(f"renorm: expected p > 0 and maxnorm >= 0, got p={p} and maxnorm={maxnorm}")
    if x.ndim < 2:
        raise ShapeError(f"renorm: expected at least 2 dimensions, got shape {x.shape}")
    size = F.p_norm(x, float(p), tuple(d for d in range(x.ndim) if d != dim), True)
    # 1e-7 keeps the result below maxnorm after rounding, as in PyTorch.
    return x * F.where(size > maxnorm, maxnorm / (size + 1e-7), F.ones_like(size))


# ---- scans ----

@public(method=True)
def cumsum(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Sum of the elements up to each position along `dim`.

    Integers give int64; 16-bit floats are accumulated in float32. Raises IndexRangeError for a dim out of
    range.

    >>> import lucid
    >>> lucid.cumsum(lucid.tensor([1.0, 2.0, 3.0]), dim=0)
    tensor([1., 3., 6.])
    """
    return _cast(F.cumsum(_cast(x, dtype), dim), dtype)


@public(method=True)
def cumprod(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Product of the elements up to each position along `dim`. The gradient is exact at zeros.

    Integers give int64. Raises IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.cumprod(lucid.tensor([1.0, 2.0, 3.0]), dim=0)
    tensor([1., 2., 6.])
    """
    return _cast(F.cumprod(_cast(x, dtype), dim), dtype)


@public(method=True)
def cummax(x: Tensor, dim: int) -> ValuesIndices:
    """(values, indices) of the largest element up to each position along `dim`; the last place among ties.

    Raises IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.cummax(lucid.tensor([1.0, 3.0, 2.0]), dim=0)
    ValuesIndices(values=tensor([1., 3., 3.]), indices=tensor([0, 1, 1]))
    """
    return ValuesIndices(*F.cummax(x, dim))


@public(method=True)
def cummin(x: Tensor, dim: int) -> ValuesIndices:
    """(values, indices) of the smallest element up to each position along `dim`; the last place among ties.

    Raises IndexRangeError for a dim out of range.

    >>> import lucid
    >>> lucid.cummin(lucid.tensor([2.0, 3.0, 1.0]), dim=0).values
    tensor([2., 2., 1.])
    """
    return ValuesIndices(*F.cummin(x, dim))


# ---- order statistics ----

@public(method=True)
def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median of all elements, or (values, indices) along `dim`: the lower of two middle ones.

    NaN if any element is. Raises IndexRangeError for an empty dimension or a dim out of range.

    >>> import lucid
    >>> lucid.median(lucid.tensor([4.0, 1.0, 3.0, 2.0]))
    tensor(2.)
    """
    return F.median_all(x) if dim is None else ValuesIndices(*F.median_dim(x, dim, keepdim))


@public(method=True)
def nanmedian(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median of the elements that are not NaN, or (values, indices) along `dim`.

    The lower of two middle ones. Raises IndexRangeError for an empty dimension or a dim out of range.

    >>> import lucid
    >>> lucid.nanmedian(lucid.tensor([4.0, lucid.nan, 1.0, 3.0]))
    tensor(3.)
    """
    return F.nanmedian_all(x) if dim is None else ValuesIndices(*F.nanmedian_dim(x, dim, keepdim))


@public(method=True)
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """(values, indices) of the most frequent element along `dim`; the smallest of equally frequent ones.

    indices: where it stands last. Raises IndexRangeError for an empty dimension or a dim out of range.

    >>> import lucid
    >>> lucid.mode(lucid.tensor([1, 2, 2, 3]))
    ValuesIndices(values=tensor(2), indices=tensor(2))
    """
    return ValuesIndices(*F.mode(x, dim, keepdim))


@public(method=True)
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """(values, indices) of the k-th smallest element along `dim`; k counts from 1.

    Raises IndexRangeError for a k outside [1, size] and a dim out of range.

    >>> import lucid
    >>> lucid.kthvalue(lucid.tensor([4.0, 1.0, 3.0]), 2)
    ValuesIndices(values=tensor(3.), indices=tensor(2))
    """
    return ValuesIndices(*F.kthvalue(x, k, dim, keepdim))


def _quantile(name: str, x: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str,
              skip: bool) -> Tensor:
    if not x.is_floating_point():
        raise DtypeError(f"{name}: expected a floating tensor, got {x.dtype.name}")
    if interpolation not in ("linear", "lower", "higher", "nearest", "midpoint"):
        raise DtypeError(f"{name}: interpolation is linear, lower, higher, nearest or midpoint, got "
                         f"{interpolation!r}")
    q = q if isinstance(q, Tensor) else tensor(q, x.dtype, x.device)
    backend, xp = x.storage.backend, x.storage.backend.xp
    if q.ndim > 1 or q.dtype != x.dtype:
        raise ShapeError(f"{name}: expected q of at most 1 dimension and dtype {x.dtype.name}, got "
                         f"{q.dtype.name}{list(q.shape)}")
    if not bool(((q.array >= 0) & (q.array <= 1)).all()):
        raise ShapeError(f"{name}: expected 0 <= q <= 1, got {q.detach()}")
    whole = dim is None or not x.ndim
    dim = None if whole else normalize_dim(name, dim, x.ndim)  # type: ignore[arg-type]
    rows = x.reshape(-1) if whole else F.permute(x, (*(d for d in range(x.ndim) if d != dim), dim))
    if not rows.shape[-1]:
        raise ShapeError(f"{name}: expected at least one element, got shape {x.shape}")
    ordered = F.sort(rows, -1, False)[0]
    n = rows.shape[-1]
    missing = F.sum(F.ne(ordered, ordered), -1, True).array
    # rank: [..., q], the place of each quantile in the ordered row.
    last = _wrap((n - 1 - missing if skip else xp.full(missing.shape, n - 1)).clip(0).astype(x.dtype),
                 backend)
    rank = q.reshape(-1) * last
    if not skip:
        rank = F.where(_wrap(missing > 0, backend), last, rank)
    place = rank.array
    rounded = {"nearest": xp.rint, "higher": xp.ceil}.get(interpolation, xp.floor)
    below = rounded(place)
    lower = F.pick(ordered, _wrap(below.astype("int64"), backend), -1)
    if interpolation in ("linear", "midpoint"):
        upper = F.pick(ordered, _wrap(xp.ceil(place).astype("int64"), backend), -1)
        weight = 0.5 if interpolation == "midpoint" else rank - _wrap(below, backend)
        lower = lower + weight * (upper - lower)
    out = F.permute(lower, (lower.ndim - 1, *range(lower.ndim - 1)))
    if keepdim:
        out = out.reshape(-1, *[1] * x.ndim) if whole else F.unsqueeze(out, dim + 1)  # type: ignore[operator]
    return out if q.ndim else F.select(out, 0, 0)


@public(method=True)
def quantile(x: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *,
             interpolation: str = "linear") -> Tensor:
    """The `q`-th quantiles of all, or along `dim`. q: a number, or a vector (then in front), in [0, 1].

    interpolation: "linear", "lower", "higher", "nearest" or "midpoint", where q falls between two elements.
    Raises DtypeError for integers, ShapeError for a q outside [0, 1] and for an empty x.

    >>> import lucid
    >>> lucid.quantile(lucid.tensor([0.0, 1.0, 2.0, 3.0]), lucid.tensor([0.5, 1.0]))
    tensor([1.5, 3. ])
    """
    return _quantile("quantile", x, q, dim, keepdim, interpolation, False)


@public(method=True)
def nanquantile(x: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *,
                interpolation: str = "linear") -> Tensor:
    """The `q`-th quantiles of the elements that are not NaN; arguments and errors as of `quantile`.

    >>> import lucid
    >>> lucid.nanquantile(lucid.tensor([0.0, lucid.nan, 2.0]), 0.5)
    tensor(1.)
    """
    return _quantile("nanquantile", x, q, dim, keepdim, interpolation, True)


for _function in (cumsum, cumprod, renorm):
    setattr(Tensor, f"{_function.__name__}_", in_place(_function, f"{_function.__name__}_"))
