"""Reductions: products, extrema, moments, norms and counts over dimensions."""

from __future__ import annotations

from math import inf, nan
from math import prod as _size
from typing import Any

import numpy as np  # for references only: forwards use xp

from ..errors import IndexRangeError, ShapeError
from .common import (
    Dim,
    Shape,
    check_tensors,
    is_low,
    keep_shape,
    named,
    need_order,
    normalize_dim,
    normalize_dims,
)
from .registry import A, Sample, composite, op
from .rows import sum_rows

# ---- shared by forwards (raw arrays) and by formulas (F) ----


def wide(x: Any) -> Any:
    """`x` in the dtype in which its sums are accumulated: float32 for 16-bit floats."""
    return x.astype("float32") if is_low(x.dtype) else x


def one_dim(name: str, x: Any, dim: int) -> int:
    """`dim` counted from the front, after checking that there is something to choose from along it."""
    dim = normalize_dim(name, dim, x.ndim)
    if x.ndim and x.shape[dim] == 0:
        raise IndexRangeError(f"{name}: expected a size of at least 1 along dim {dim}, got shape "
                              f"{tuple(x.shape)}; an empty dimension has no such element")
    return dim


def _full_dims(name: str, x: Any, dim: Dim) -> Shape | None:
    dims = normalize_dims(name, dim, x.ndim)
    if any(x.shape[d] == 0 for d in dims):
        raise IndexRangeError(f"{name}: expected at least one element along dim {dims}, got shape "
                              f"{tuple(x.shape)}; reduce another dimension")
    return dims or None


def restore(F: Any, g: Any, x_shape: Shape, dim: Dim) -> Any:
    """`g` with size 1 at the dimensions that the reduction over `dim` took away."""
    return F.reshape(g, keep_shape(x_shape, normalize_dims("reduction", dim, len(x_shape))))


def select_back(F: Any, g: Any, indices: Any, dim: int, x_shape: Shape) -> Any:
    """`g` written to the chosen elements of zeros of `x_shape`: the gradient of choosing along `dim`."""
    return F.scatter_sum(restore(F, g, x_shape, dim), restore(F, indices, x_shape, dim), dim, x_shape)


def _nan_equal(x: Any, y: Any) -> Any:
    return (x == y) | ((x != x) & (y != y))


@op(public=False, diff=(), samples=[Sample(A(value=[[1.0, 3.0, 3.0]]), A(value=[[3.0]]), dim=1)])
def tie_weights(xp, x, value, dim: Dim = None):
    """Share of each element of `x` among those equal to `value` (broadcast), 1/n for n equal ones, else 0.

    The shares are constant almost everywhere, so they carry no gradient. NaN counts as equal to NaN.
    """
    mask = _nan_equal(x, value)
    count = xp.sum(mask, axis=normalize_dims("tie_weights", dim, x.ndim) or None, keepdims=True)
    dtype = "float32" if is_low(x.dtype) else x.real.dtype
    return (mask.astype(dtype) / xp.maximum(count, 1).astype(dtype)).astype(x.dtype).reshape(x.shape)


# ---- products ----


def _prod_reference(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return x.prod(axis=dim, keepdims=keepdim and dim is not None)


@op(public=False, amp="full", reference=_prod_reference, samples=[
    Sample((3, 4), dim=1), Sample((3, 4)), Sample(()), Sample((0, 2), dim=0),
    Sample(A(value=[[0.0, 2.0, 3.0], [0.0, 5.0, 0.0]]), dim=1, keepdim=True),
    Sample((2, 3), dim=-1, complex=True)])
def prod(xp, x, dim: int | None = None, keepdim: bool = False):
    """Product of all elements, or of those along `dim`.

    The gradient multiplies the other elements instead of dividing by x, so it is exact at zeros.
    """
    axis = None if dim is None or not x.ndim else normalize_dim("prod", dim, x.ndim)
    if is_low(x.dtype):
        return x.astype("float32").prod(axis=axis, keepdims=keepdim and axis is not None).astype(x.dtype)
    dtype = "int64" if x.dtype.kind in "bui" else None
    return x.prod(axis=axis, keepdims=keepdim and axis is not None, dtype=dtype)


@composite(public=False, samples=[Sample(A(value=[[0.0, 2.0, 3.0], [0.0, 5.0, 0.0]]), dim=1)])
def prod_others(F, x, dim: int):
    """Product of all other elements along `dim`, for each element: (product before) * (product after)."""
    before = F.shift(F.cumprod(x, dim), dim, 1, 1.0)
    after = F.flip(F.shift(F.cumprod(F.flip(x, (dim,)), dim), dim, 1, 1.0), (dim,))
    return before * after


def _prod_grad(F, g, x, dim, x_shape):
    if dim is None or not x_shape:
        flat = F.reshape(x, (-1,))
        return F.reshape(F.reshape(g, (1,)) * F.conj(F.prod_others(flat, 0)), x_shape)
    dim = normalize_dim("prod", dim, len(x_shape))
    return restore(F, g, x_shape, dim) * F.conj(F.prod_others(x, dim))


prod.grad(x=_prod_grad)

# ---- extrema ----

_DIM_SAMPLES = [Sample((3, 4), dim=1), Sample((2, 3, 4), dim=(0, 2), keepdim=True), Sample((3, 4)),
                Sample(())]


def _extremum_grad(F, g, x, out, dim, x_shape):
    return restore(F, g, x_shape, dim) * F.tie_weights(x, restore(F, out, x_shape, dim), dim)


@op(method=True, samples=_DIM_SAMPLES,
    reference=lambda x, dim=None, keepdim=False: x.max(dim, keepdims=keepdim))
def amax(xp, x, dim: Dim = None, keepdim: bool = False):
    """Largest element over `dim` (an int, a tuple, or None for all). Ties share the gradient evenly.

    NaN wins. Raises IndexRangeError where there is no element to choose.

    >>> import lucid
    >>> lucid.amax(lucid.tensor([[1.0, 5.0], [3.0, 2.0]]), dim=1)
    tensor([5., 3.])
    """
    need_order("amax", x)
    return x.max(axis=_full_dims("amax", x, dim), keepdims=keepdim)


@op(method=True, samples=_DIM_SAMPLES,
    reference=lambda x, dim=None, keepdim=False: x.min(dim, keepdims=keepdim))
def amin(xp, x, dim: Dim = None, keepdim: bool = False):
    """Smallest element over `dim` (an int, a tuple, or None for all). Ties share the gradient evenly.

    NaN wins. Raises IndexRangeError where there is no element to choose.

    >>> import lucid
    >>> lucid.amin(lucid.tensor([[1.0, 5.0], [3.0, 2.0]]), dim=1)
    tensor([1., 2.])
    """
    need_order("amin", x)
    return x.min(axis=_full_dims("amin", x, dim), keepdims=keepdim)


amax.grad(x=lambda F, g, x, out, dim, x_shape: _extremum_grad(F, g, x, out, dim, x_shape))
amin.grad(x=lambda F, g, x, out, dim, x_shape: _extremum_grad(F, g, x, out, dim, x_shape))


def _arg(name: str, xp: Any, x: Any, dim: int | None, keepdim: bool) -> Any:
    need_order(name, x)
    if dim is None:
        if not x.size:
            raise IndexRangeError(f"{name}: expected at least one element, got shape {tuple(x.shape)}")
        index = xp.asarray(getattr(x.reshape(-1), name)()).astype("int64", copy=False)
        return index.reshape((1,) * x.ndim) if keepdim else index
    dim = one_dim(name, x, dim)
    if not x.ndim:
        return xp.zeros((), "int64")
    index = xp.asarray(getattr(x, name)(axis=dim)).astype("int64", copy=False)
    return xp.expand_dims(index, dim) if keepdim else index


@op(method=True, diff=(), samples=[Sample((3, 4), dim=1), Sample((3, 4)),
                                   Sample((3, 4), dim=0, keepdim=True)],
    reference=lambda x, dim=None, keepdim=False: x.argmax(dim, keepdims=keepdim))
def argmax(xp, x, dim: int | None = None, keepdim: bool = False):
    """Position (int64) of the largest element along `dim`, or in the flattened x. The first one among ties.

    Raises IndexRangeError where there is no element to choose.

    >>> import lucid
    >>> lucid.argmax(lucid.tensor([[1.0, 5.0], [3.0, 2.0]]), dim=1)
    tensor([1, 0])
    """
    return _arg("argmax", xp, x, dim, keepdim)


@op(method=True, diff=(), samples=[Sample((3, 4), dim=1), Sample((3, 4)),
                                   Sample((3, 4), dim=0, keepdim=True)],
    reference=lambda x, dim=None, keepdim=False: x.argmin(dim, keepdims=keepdim))
def argmin(xp, x, dim: int | None = None, keepdim: bool = False):
    """Position (int64) of the smallest element along `dim`, or in the flattened x. The first one among ties.

    Raises IndexRangeError where there is no element to choose.

    >>> import lucid
    >>> lucid.argmin(lucid.tensor([[1.0, 5.0], [3.0, 2.0]]), dim=1)
    tensor([0, 1])
    """
    return _arg("argmin", xp, x, dim, keepdim)


def pick_along(xp: Any, x: Any, index: Any, dim: int) -> Any:
    """The elements of `x` that `index` (same shape but for `dim`) names along `dim`."""
    return xp.take_along_axis(x, index, dim) if x.ndim else x.copy()


def _choose(name: str, xp: Any, x: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    # A second pass over the data costs less than reading at the positions (8 against 14 us for 64 x 32).
    index = _arg(f"arg{name}", xp, x, dim, keepdim)
    axis = normalize_dim(name, dim, x.ndim) if x.ndim else None
    return getattr(x, name)(axis=axis, keepdims=keepdim), index


_PAIR = dict(public=False, outputs=("values", "indices"), diff=("values",))


@op(**_PAIR, samples=[Sample((3, 4), dim=1), Sample((3, 4), dim=0, keepdim=True), Sample((), dim=0)],
    reference=lambda x, dim, keepdim=False: (x.max(dim, keepdims=keepdim), x.argmax(dim, keepdims=keepdim))
    if x.ndim else (x, 0))
def max_dim(xp, x, dim: int, keepdim: bool = False):
    """Largest elements along `dim` and their positions; the gradient goes to those positions."""
    return _choose("max", xp, x, dim, keepdim)


@op(**_PAIR, samples=[Sample((3, 4), dim=1), Sample((3, 4), dim=0, keepdim=True), Sample((), dim=0)],
    reference=lambda x, dim, keepdim=False: (x.min(dim, keepdims=keepdim), x.argmin(dim, keepdims=keepdim))
    if x.ndim else (x, 0))
def min_dim(xp, x, dim: int, keepdim: bool = False):
    """Smallest elements along `dim` and their positions; the gradient goes to those positions."""
    return _choose("min", xp, x, dim, keepdim)


max_dim.grad(x=lambda F, g, indices, dim, x_shape: select_back(F, g, indices, dim, x_shape))
min_dim.grad(x=lambda F, g, indices, dim, x_shape: select_back(F, g, indices, dim, x_shape))

# ---- moments ----


def _moment_size(x_shape: Shape, dim: Dim) -> int:
    return _size(x_shape[d] for d in normalize_dims("var", dim, len(x_shape)))


def _var(xp: Any, x: Any, dim: Dim, correction: float, keepdim: bool) -> Any:
    dims = normalize_dims("var", dim, x.ndim)
    x = wide(x)
    n = _moment_size(x.shape, dim)
    if n == 0:
        return xp.sum(x.real, axis=dims or None, keepdims=keepdim) + nan
    centred = x - xp.sum(x, axis=dims or None, keepdims=True).reshape(keep_shape(x.shape, dims)) / n
    square = (centred * centred.conj()).real if x.dtype.kind == "c" else centred * centred
    total = xp.sum(square, axis=dims or None, keepdims=keepdim)
    # Without a degree of freedom the variance is 0/0 or s/0, as in IEEE arithmetic.
    if n > correction:
        return total / (n - correction)
    return total * xp.where(total == 0, nan, inf).astype(total.dtype)


def _var_grad(F: Any, g: Any, x: Any, dim: Dim, correction: float, x_shape: Shape) -> Any:
    free = _moment_size(x_shape, dim) - correction
    return restore(F, g, x_shape, dim) * (2.0 / free if free > 0 else inf) * (x - F.mean(x, dim, True))


def _var_reference(x: Any, dim: Dim = None, correction: float = 1, keepdim: bool = False) -> Any:
    return x.var(axis=dim, ddof=correction, keepdims=keepdim)


_VAR_SAMPLES = [Sample((3, 4), dim=1), Sample((3, 4)),
                Sample((2, 3, 4), dim=(0, 2), correction=0, keepdim=True), Sample((4,), correction=2)]


@op(public=False, dtype="float", amp="full", samples=_VAR_SAMPLES, reference=_var_reference)
def var(xp, x, dim: Dim = None, correction: float = 1, keepdim: bool = False):
    """Variance over `dim`: sum |x - mean|^2 / (n - correction). 16-bit floats: in float32."""
    out = _var(xp, x, dim, correction, keepdim)
    return out.astype(x.dtype) if is_low(x.dtype) else out


@op(public=False, dtype="float", amp="full", samples=_VAR_SAMPLES,
    reference=lambda *a, **k: _var_reference(*a, **k) ** 0.5)
def std(xp, x, dim: Dim = None, correction: float = 1, keepdim: bool = False):
    """Standard deviation over `dim`, the root of `var`. The gradient at a deviation of 0 is 0."""
    out = xp.sqrt(_var(xp, x, dim, correction, keepdim))
    return out.astype(x.dtype) if is_low(x.dtype) else out


def _std_grad(F, g, x, out, dim, correction, x_shape):
    zero = F.eq(out, 0.0)
    g = F.masked_fill(g / (F.masked_fill(out, zero, 1.0) * 2.0), zero, 0.0)
    return _var_grad(F, g, x, dim, correction, x_shape)


var.grad(x=lambda F, g, x, dim, correction, x_shape: _var_grad(F, g, x, dim, correction, x_shape))
std.grad(x=_std_grad)


def _logsumexp_reference(x: Any, dim: Dim, keepdim: bool = False) -> Any:
    from scipy.special import logsumexp as reference
    return reference(x, axis=dim, keepdims=keepdim)


@op(method=True, dtype="float", amp="full", reference=_logsumexp_reference, samples=[
    Sample((3, 4), dim=1), Sample((2, 3, 4), dim=(0, 2), keepdim=True), Sample((), dim=0),
    Sample(A(value=[[1e3, 1e3 + 1.0], [-1e3, 0.0]]), dim=1)])
def logsumexp(xp, x, dim: Dim, keepdim: bool = False):
    """log(sum(exp(x))) over `dim`, computed as m + log(sum(exp(x - m))) with m the largest element.

    A row of -inf gives -inf, with gradient 0. An empty row gives -inf.

    >>> import lucid
    >>> lucid.logsumexp(lucid.tensor([[0.0, 0.0], [100.0, 100.0]]), dim=1)    # e^100 overflows float32
    tensor([  0.6931, 100.6931])
    """
    dims = normalize_dims("logsumexp", dim, x.ndim)
    y = wide(x)
    if any(y.shape[d] == 0 for d in dims):
        return (xp.sum(y, axis=dims, keepdims=keepdim) - inf).astype(x.dtype)
    top = y.real.max(axis=dims or None, keepdims=True)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    total = xp.sum(xp.exp(y - top), axis=dims or None, keepdims=True)
    # log(0) is right for a row of -inf; the sum is replaced so that NumPy has nothing to warn about.
    out = xp.where(total == 0, -inf, xp.log(xp.where(total == 0, 1.0, total))) + top
    out = out.astype(x.dtype)
    return out if keepdim or not x.ndim else out.squeeze(dims)


def _logsumexp_grad(F, g, x, out, dim, x_shape):
    out = restore(F, F.masked_fill(out, F.eq(out, -inf), 0.0), x_shape, dim)
    return restore(F, g, x_shape, dim) * F.conj(F.exp(x - out))


logsumexp.grad(x=_logsumexp_grad)

# ---- sums that skip NaN ----


@op(public=False, diff=(), samples=[Sample(A(value=[[1.0, float("nan")], [2.0, 3.0]]), dim=1)])
def count_valid(xp, x, dim: Dim = None, keepdim: bool = False):
    """Number of elements over `dim` that are not NaN, in x's dtype."""
    dims = normalize_dims("count_valid", dim, x.ndim)
    return xp.asarray(xp.sum(x == x, axis=dims or None, keepdims=keepdim)).astype(x.dtype)


def _nan_reference(x: Any, dim: Dim = None, keepdim: bool = False) -> Any:
    return np.nansum(x, axis=dim, keepdims=keepdim)


_NAN_SAMPLES = [Sample(A(value=[[1.0, nan, 2.0], [3.0, 4.0, nan]]), dim=1), Sample((3, 4)),
                Sample((3, 4), dim=(0, 1), keepdim=True)]


@composite(public=False, samples=_NAN_SAMPLES, reference=_nan_reference)
@named("nansum")
def nansum(F, x, dim: Dim = None, keepdim: bool = False):
    """Sum over `dim` with NaN taken as 0."""
    return F.sum(F.masked_fill(x, F.ne(x, x), 0.0), dim, keepdim)


@composite(public=False, samples=_NAN_SAMPLES,
           reference=lambda x, dim=None, keepdim=False: _nan_reference(x, dim, keepdim)
           / (x == x).sum(axis=dim, keepdims=keepdim))
@named("nanmean")
def nanmean(F, x, dim: Dim = None, keepdim: bool = False):
    """Mean over `dim` of the elements that are not NaN."""
    return F.nansum(x, dim, keepdim) / F.count_valid(x, dim, keepdim)


# ---- norms ----


def _norm_reference(x: Any, p: float, dim: Dim = None, keepdim: bool = False) -> Any:
    axes = tuple(range(x.ndim)) if dim is None else dim
    size = np.abs(x)
    if p == 0:
        return (size != 0).sum(axes, keepdims=keepdim).astype(float)
    if abs(p) == inf:
        return (size.max if p > 0 else size.min)(axes, keepdims=keepdim)
    return (size**p).sum(axes, keepdims=keepdim) ** (1 / p)


@op(public=False, dtype="float", amp="full", reference=_norm_reference, samples=[
    Sample((3, 4), p=2.0, dim=1), Sample((3, 4), p=1.0, avoid=(0.0,)), Sample((3, 4), p=3.0, dim=(0, 1)),
    Sample((3, 4), p=1.5, dim=0, keepdim=True, avoid=(0.0,)), Sample((3, 4), p=inf, dim=1),
    Sample((3, 4), p=-inf),
    Sample((3, 4), p=0.0), Sample((3, 4), p=0.5, avoid=(0.0,))])
def p_norm(xp, x, p: float = 2.0, dim: Dim = None, keepdim: bool = False):
    """(sum |x|^p)^(1/p) over `dim`; nonzeros for p=0, the extreme |x| for p=+-inf. 0 has gradient 0."""
    dims = normalize_dims("norm", dim, x.ndim) or None
    size = xp.abs(wide(x))
    if p in (inf, -inf):
        _full_dims("norm", x, dim)
        out = size.max(axis=dims, keepdims=keepdim) if p > 0 else size.min(axis=dims, keepdims=keepdim)
    elif p == 0:
        out = xp.sum(size != 0, axis=dims, keepdims=keepdim).astype(size.dtype)
    elif p == 1:
        out = xp.sum(size, axis=dims, keepdims=keepdim)
    elif p == 2:
        out = xp.sqrt(xp.sum(size * size, axis=dims, keepdims=keepdim))
    else:
        out = xp.sum(size**p, axis=dims, keepdims=keepdim) ** (1.0 / p)
    return xp.asarray(out).astype(x.dtype) if is_low(x.dtype) else out


def _norm_grad(F, g, x, out, p, dim, x_shape):
    g, out = restore(F, g, x_shape, dim), restore(F, out, x_shape, dim)
    if p == 0:
        return F.zeros_like(x)
    if p in (inf, -inf):
        return g * F.sgn(x) * F.tie_weights(F.abs(x), out, dim)
    if p == 1:
        return g * F.sgn(x)
    zero = F.eq(out, 0.0)
    out = F.masked_fill(out, zero, 1.0)
    if p == 2:
        return x * F.masked_fill(g / out, zero, 0.0)
    # |x|^(p-1) sgn(x) (g / out^(p-1)); at x = 0 the power or its derivative may be inf, so |x| is replaced.
    size = F.abs(x)
    none = F.eq(size, 0.0)
    size = F.masked_fill(size, none, 1.0)
    power = F.masked_fill(F.pow(size, p - 1.0), none, 0.0)
    return F.sgn(x) * power * F.masked_fill(g / F.pow(out, p - 1.0), zero, 0.0)


p_norm.grad(x=_norm_grad)

# ---- counts and tests ----


def _test(name: str, xp: Any, x: Any, dim: Dim, keepdim: bool) -> Any:
    out = getattr(xp, name)(x != 0, axis=normalize_dims(name, dim, x.ndim) or None, keepdims=keepdim)
    return xp.asarray(out).astype("uint8" if x.dtype == "uint8" else "bool")


@op(name="all", method=True, diff=(), samples=[Sample((3, 4), dim=1), Sample(A(value=[1.0, 0.0]))],
    reference=lambda x, dim=None, keepdim=False: x.all(axis=dim, keepdims=keepdim))
def all_(xp, x, dim: Dim = None, keepdim: bool = False):
    """Whether every element over `dim` is nonzero. bool (uint8 for uint8 input).

    >>> import lucid
    >>> lucid.all(lucid.tensor([[True, True], [True, False]]), dim=1)
    tensor([ True, False])
    """
    return _test("all", xp, x, dim, keepdim)


@op(name="any", method=True, diff=(), samples=[Sample((3, 4), dim=1), Sample(A(value=[0.0, 0.0]))],
    reference=lambda x, dim=None, keepdim=False: x.any(axis=dim, keepdims=keepdim))
def any_(xp, x, dim: Dim = None, keepdim: bool = False):
    """Whether some element over `dim` is nonzero. bool (uint8 for uint8 input).

    >>> import lucid
    >>> lucid.any(lucid.tensor([[False, False], [True, False]]), dim=1)
    tensor([False,  True])
    """
    return _test("any", xp, x, dim, keepdim)


@op(method=True, diff=(), samples=[Sample(A(value=[[1.0, 0.0], [2.0, 3.0]]), dim=1), Sample((2, 3))],
    reference=lambda x, dim=None: (x != 0).sum(axis=dim))
def count_nonzero(xp, x, dim: Dim = None):
    """Number of nonzero elements over `dim`, int64.

    >>> import lucid
    >>> lucid.count_nonzero(lucid.tensor([[0, 1], [2, 3]]), dim=1)
    tensor([1, 2])
    """
    dims = normalize_dims("count_nonzero", dim, x.ndim)
    return xp.asarray(xp.sum(x != 0, axis=dims or None)).astype("int64")


@composite(method=True, samples=[Sample((3, 4)), Sample((3, 3))], reference="numpy:trace")
def trace(F, x):
    """Sum of the main diagonal of a matrix.

    x: [n, m], else ShapeError. Returns a 0-d tensor.

    >>> import lucid
    >>> lucid.trace(lucid.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(5.)
    """
    check_tensors("trace", x=x)
    if x.ndim != 2:
        raise ShapeError(f"trace: expected a matrix, got shape {tuple(x.shape)}")
    return F.sum(F.diagonal(x))


# ---- histograms ----


@op(method=True, diff=(), samples=[Sample(A(value=[0, 1, 1, 3])),
                                   Sample(A(value=[0, 1, 1, 3]), (4,), minlength=6)],
    reference=lambda x, weights=None, minlength=0: np.bincount(x, weights, minlength))
def bincount(xp, x, weights=None, minlength: int = 0):
    """Number of times that each value 0, 1, 2, ... stands in `x`, or the sum of its `weights`.

    x: [n], nonnegative integers. Returns [max(max(x) + 1, minlength)]; int64, or float64 with weights
    (float32 for float32 weights). Raises ShapeError for another shape or dtype, IndexRangeError for a
    negative value.

    >>> import lucid
    >>> lucid.bincount(lucid.tensor([0, 1, 1, 3]))
    tensor([1, 2, 0, 1])
    >>> lucid.bincount(lucid.tensor([0, 1, 1]), weights=lucid.tensor([0.5, 1.0, 2.0]))
    tensor([0.5, 3. ])
    """
    if x.ndim != 1 or x.dtype.kind not in "ui":
        raise ShapeError(f"bincount: expected a 1-d tensor of integers, got {x.dtype.name}{list(x.shape)}")
    if x.size and int(x.min()) < 0:        # one synchronisation: the size of the result depends on the values
        raise IndexRangeError(f"bincount: expected values of at least 0, got {int(x.min())}")
    if weights is None:
        return xp.bincount(x.astype("int64"), minlength=minlength).astype("int64")
    if weights.shape != x.shape:
        raise ShapeError(f"bincount: expected weights of shape {tuple(x.shape)}, got {tuple(weights.shape)}")
    index, weights_ = x.astype("int64"), weights.astype("float64")
    if xp.__name__ == "numpy":
        out = xp.bincount(index, weights=weights_, minlength=minlength)
    else:    # CuPy's adds by atomics, in any order
        size = max(int(x.max()) + 1 if x.size else 0, minlength)
        out = sum_rows(xp, size, index, weights_.reshape(-1, 1)).reshape(-1)
    return out.astype("float32" if weights.dtype == "float32" else "float64")


@op(method=True, diff=(), samples=[Sample((30,), bins=5, min=-2.0, max=2.0), Sample((30,), bins=4)],
    reference=lambda x, bins=100, min=0.0, max=0.0: np.histogram(
        x, bins, (min, max) if (min, max) != (0.0, 0.0) else None)[0])
def histc(xp, x, bins: int = 100, min: float = 0.0, max: float = 0.0):
    """Number of elements in each of `bins` equal cells of [min, max] (x's range when both are 0).

    The counts have x's dtype. Elements outside and NaN are not counted; max belongs to the last cell. Raises
    ShapeError for bins < 1 and for a range that is not finite or has min > max.

    >>> import lucid
    >>> lucid.histc(lucid.tensor([0.0, 1.0, 1.5, 4.0]), bins=4)
    tensor([1., 2., 0., 1.])
    """
    if bins <= 0:
        raise ShapeError(f"histc: expected bins of at least 1, got {bins}")
    need_order("histc", x)
    dtype, x = x.dtype, wide(x)
    flat = x.reshape(-1)
    if min == max == 0 and flat.size:
        min, max = float(flat.min()), float(flat.max())    # synchronises: the cells depend on x
    if min == max:
        min, max = min - 1.0, max + 1.0
    if not (-inf < min < max < inf):
        raise ShapeError(f"histc: expected a finite range with min <= max, got [{min}, {max}]")
    flat = flat[(flat >= min) & (flat <= max)]
    cell = xp.minimum(((flat - min) * (bins / (max - min))).astype("int64"), bins - 1)
    return xp.bincount(cell, minlength=bins).astype(dtype)
