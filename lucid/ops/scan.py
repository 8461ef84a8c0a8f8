"""Scans along a dimension: cumulative sums, products, extrema, and the recurrence in their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np  # for references only: forwards use xp

from .common import is_low, need_order, normalize_dim
from .reduce import wide
from .registry import A, Sample, op


def part(ndim: int, dim: int, start: int | None, stop: int | None) -> tuple[Any, ...]:
    """The basic index that takes `start:stop` along `dim` and everything else."""
    return (slice(None),) * dim + (slice(start, stop),) + (slice(None),) * (ndim - dim - 1)


def running(xp: Any, name: str, x: Any, dim: int) -> Any:
    """`x` scanned along `dim` with the ufunc `name` ("maximum", "minimum")."""
    ufunc = getattr(xp, name)
    if xp.__name__ == "numpy":
        return ufunc.accumulate(x, axis=dim)
    return scanned(x, dim, ufunc)    # CuPy's ufuncs have no `accumulate`


def scanned(x: Any, dim: int, combine: Callable[[Any, Any], Any]) -> Any:
    """`x` scanned along `dim` with an associative `combine(earlier, later)`, in log2(n) whole-array steps.

    Hillis and Steele, "Data parallel algorithms", CACM 29 (1986).
    """
    out, k = x.copy(), 1
    n = x.shape[dim] if x.ndim else 1
    while k < n:
        later = part(x.ndim, dim, k, None)
        out[later] = combine(out[part(x.ndim, dim, None, n - k)], out[later])
        k *= 2
    return out


def _cumulate(name: str, x: Any, dim: int) -> Any:
    dim = normalize_dim(name, dim, x.ndim)
    dtype = "int64" if x.dtype.kind in "bui" else "float32" if is_low(x.dtype) else x.dtype
    if not x.ndim:
        return x.astype(dtype if x.dtype.kind in "bui" else x.dtype)
    out = getattr(x, name)(axis=dim, dtype=dtype)
    return out.astype(x.dtype) if is_low(x.dtype) else out


_SAMPLES = [Sample((3, 4), dim=1), Sample((3, 4), dim=0), Sample((), dim=0), Sample((0, 2), dim=0)]


@op(public=False, amp="full", samples=_SAMPLES, reference=lambda x, dim: x.cumsum(dim) if x.ndim else x)
def cumsum(xp, x, dim: int):
    """Sum of the elements up to each position along `dim`. Integers: int64. 16-bit floats: in float32."""
    return _cumulate("cumsum", x, dim)


@op(public=False, samples=_SAMPLES, reference=lambda x, dim: x[..., ::-1].cumsum(-1)[..., ::-1] if dim else
    x[::-1].cumsum(0)[::-1] if x.ndim else x)
def reverse_cumsum(xp, x, dim: int):
    """Sum of the elements from each position to the end along `dim`."""
    if not x.ndim:
        return x.copy()
    dim = normalize_dim("cumsum", dim, x.ndim)
    return xp.flip(_cumulate("cumsum", xp.flip(x, dim), dim), dim)


cumsum.grad(x=lambda F, g, dim: F.reverse_cumsum(g, dim))
reverse_cumsum.grad(x=lambda F, g, dim: F.cumsum(g, dim))


@op(public=False, samples=[Sample((3, 4), dim=1, by=1), Sample((3, 4), dim=0, by=-1, fill=1.0),
                           Sample((), dim=0, by=1)])
def shift(xp, x, dim: int, by: int, fill: float = 0.0):
    """`x` moved `by` (1 or -1) places along `dim`; the free place gets `fill`."""
    dim = normalize_dim("shift", dim, x.ndim)
    out = xp.full(x.shape, fill, x.dtype)
    if x.ndim and x.shape[dim] > 1:
        early, late = part(x.ndim, dim, None, -1), part(x.ndim, dim, 1, None)
        if by > 0:
            out[late] = x[early]
        else:
            out[early] = x[late]
    return out


shift.grad(x=lambda F, g, dim, by: F.shift(g, dim, -by))


def _recurrence_reference(x: Any, a: Any, dim: int, reverse: bool = False) -> Any:
    x, a = np.moveaxis(x, dim, 0), np.moveaxis(a, dim, 0)
    x, a = (x[::-1], a[::-1]) if reverse else (x, a)
    out = x.copy()
    for t in range(1, len(out)):
        out[t] = x[t] + a[t] * out[t - 1]
    return np.moveaxis(out[::-1] if reverse else out, 0, dim)


@op(public=False, reference=_recurrence_reference, samples=[
    Sample((3, 5), (3, 5), dim=1), Sample((4, 2), (4, 2), dim=0, reverse=True),
    Sample((0, 2), (0, 2), dim=0)])
def linear_scan(xp, x, a, dim: int, reverse: bool = False):
    """y with y[t] = x[t] + a[t] y[t-1] along `dim` (t+1 when `reverse`), and y = x at the open end.

    Its derivatives are the same recurrence in the other direction: every order is exact, also where a is 0.
    """
    if not x.ndim:
        return x.copy()
    dim = normalize_dim("linear_scan", dim, x.ndim)
    out, a = wide(x), wide(a)
    out, a = (xp.flip(out, dim).copy(), xp.flip(a, dim).copy()) if reverse else (out.copy(), a.copy())
    k, n = 1, x.shape[dim]
    a[part(x.ndim, dim, None, 1)] = 0.0
    while k < n:
        early, late = part(x.ndim, dim, None, n - k), part(x.ndim, dim, k, None)
        # The products are new arrays: CuPy does not order overlapping reads and writes.
        out[late] = out[late] + a[late] * out[early]
        a[late] = a[late] * a[early]
        k *= 2
    return (xp.flip(out, dim) if reverse else out).astype(x.dtype)


def _linear_scan_grads(F, g, a, out, dim, reverse, needs):
    by = 1 if reverse else -1
    gx = F.linear_scan(g, F.conj(F.shift(a, dim, by)), dim, not reverse)
    return gx, gx * F.conj(F.shift(out, dim, -by)) if needs[1] else None


linear_scan.grads(("x", "a"), _linear_scan_grads)


@op(public=False, amp="full", reference=lambda x, dim: x.cumprod(dim) if x.ndim else x, samples=[
    *_SAMPLES, Sample(A(value=[[0.0, 2.0, 3.0], [4.0, 0.0, 0.0]]), dim=1),
    Sample((2, 3), dim=1, complex=True)])
def cumprod(xp, x, dim: int):
    """Product of the elements up to each position along `dim`.

    The gradient is (product before i) * S[i] with S[i] = g[i] + x[i+1] S[i+1]: no division, exact at zeros.
    """
    return _cumulate("cumprod", x, dim)


def _cumprod_grad(F, g, x, out, dim):
    after = F.linear_scan(g, F.conj(F.shift(x, dim, -1)), dim, True)
    return F.conj(F.shift(out, dim, 1, 1.0)) * after


cumprod.grad(x=_cumprod_grad)


def _running_extremum(name: str, xp: Any, x: Any, dim: int, ufunc: str) -> tuple[Any, Any]:
    need_order(name, x)
    dim = normalize_dim(name, dim, x.ndim)
    if not x.ndim:
        return x.copy(), xp.zeros((), "int64")
    values = running(xp, ufunc, x, dim)
    shape = [1] * x.ndim
    shape[dim] = x.shape[dim]
    place = xp.arange(x.shape[dim], dtype="int64").reshape(shape)
    # The last place so far where the running value was met; a NaN, once met, stays.
    met = xp.where((x == values) | (x != x), place, xp.zeros_like(place))
    return values, running(xp, "maximum", met, dim)


def _cummax_reference(x: Any, dim: int) -> Any:
    values = np.maximum.accumulate(x, dim) if x.ndim else x
    return values, (np.cumsum(np.diff(values, axis=dim, prepend=-np.inf) > 0, dim) * 0
                    + _last_change(x, values, dim) if x.ndim else 0)


def _last_change(x: Any, values: Any, dim: int) -> Any:
    place = np.arange(x.shape[dim]).reshape([-1 if i == dim else 1 for i in range(x.ndim)])
    return np.maximum.accumulate(np.where(x == values, place, 0), dim)


_PAIR = dict(method=True, outputs=("values", "indices"), diff=("values",))


@op(**_PAIR, samples=[Sample((3, 5), dim=1), Sample((), dim=0)], reference=_cummax_reference)
def cummax(xp, x, dim: int):
    """Largest element up to each position along `dim`, and where it stands (the last one among ties)."""
    return _running_extremum("cummax", xp, x, dim, "maximum")


@op(**_PAIR, samples=[Sample((3, 5), dim=1), Sample((), dim=0)])
def cummin(xp, x, dim: int):
    """Smallest element up to each position along `dim`, and where it stands (the last one among ties)."""
    return _running_extremum("cummin", xp, x, dim, "minimum")


cummax.grad(x=lambda F, g, indices, dim, x_shape: F.scatter_sum(g, indices, dim, x_shape))
cummin.grad(x=lambda F, g, indices, dim, x_shape: F.scatter_sum(g, indices, dim, x_shape))


def _log_sum_reference(x: Any, dim: int) -> Any:
    if x.dtype.kind == "c":
        return np.log(np.cumsum(np.exp(x), dim))
    return np.logaddexp.accumulate(x, dim) if x.ndim else x


def _complex_log_add(xp: Any, a: Any, b: Any) -> Any:
    # max + log(1 + exp(min - max)), ordered by real part. log(1 + z) from its parts: CuPy has no log1p of
    # complex numbers: log |1 + z|^2 = log1p(re (2 + re) + im^2).
    larger = a.real >= b.real
    high, low = xp.where(larger, a, b), xp.where(larger, b, a)
    nothing = low.real == -xp.inf
    z = xp.exp(xp.where(nothing, xp.zeros_like(low), low) - xp.where(nothing, xp.zeros_like(high), high))
    out = xp.empty(z.shape, z.dtype)
    out.real = high.real + 0.5 * xp.log1p(z.real * (2.0 + z.real) + z.imag * z.imag)
    out.imag = high.imag + xp.arctan2(z.imag, 1.0 + z.real)
    return xp.where(nothing, high, out)


@op(method=True, dtype="float", amp="full", holomorphic=True, reference=_log_sum_reference, samples=[
    Sample((3, 5), dim=1, complex=True), Sample(A(value=[-1e3, 0.0, 1e3, 1e3 + 1.0]), dim=0),
    Sample((), dim=0)])
def logcumsumexp(xp, x, dim: int):
    """log of the cumulative sum of exp(x) along `dim`, without overflow; leading -inf have gradient 0.

    The logarithm of complex sums is one of many: its imaginary part runs on from that of the largest x.
    Returns x's shape.

    >>> import lucid
    >>> lucid.logcumsumexp(lucid.tensor([0.0, 0.0, 0.0]), dim=0)    # log 1, log 2, log 3
    tensor([0.    , 0.6931, 1.0986])
    """
    dim = normalize_dim("logcumsumexp", dim, x.ndim)
    if x.dtype.kind == "c":
        return scanned(x, dim, lambda a, b: _complex_log_add(xp, a, b))

    def log_add(a: Any, b: Any) -> Any:
        # Equal operands have no gap, also when both are infinite.
        same, zero = a == b, xp.zeros_like(a)
        gap = xp.where(same, zero, -xp.abs(a - xp.where(same, zero, b)))
        return xp.maximum(a, b) + xp.log1p(xp.exp(gap))
    return scanned(wide(x), dim, log_add).astype(x.dtype)


def _logcumsumexp_grad(F, g, x, out, dim):
    # S[i] = sum over k >= i of g[k] exp(out[i] - out[k]) = g[i] + exp(out[i] - out[i+1]) S[i+1].
    # Each factor is at most 1.
    # -inf is replaced by a number so low that exp() of every difference is what the limit is, but never NaN.
    out = F.masked_fill(out, F.eq(F.real(out), float("-inf")), _lowest(out.dtype))
    # The last difference has no successor: two shifts put a 0 there.
    gap = F.shift(F.shift(out - F.shift(out, dim, -1), dim, 1), dim, -1)
    tail = F.linear_scan(g, F.exp(gap), dim, True)
    return tail * F.exp(x - out)


def _lowest(dtype: Any) -> float:
    # Half of the lowest number: the difference of two such stays finite.
    return -3e4 if dtype == "float16" else -1e38 if dtype.itemsize < 8 or dtype == "complex64" else -1e307


logcumsumexp.grad(x=_logcumsumexp_grad)
