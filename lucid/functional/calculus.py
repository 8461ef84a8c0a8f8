"""Differences, estimated derivatives and integrals along a dimension."""

from __future__ import annotations

import builtins
from typing import Any

from ..autograd.record import RECORDED as F
from ..errors import ShapeError
from ..ops.common import named, normalize_dim
from ..tensor import Tensor
from .reduce import Dim
from .registry import public


def _part(x: Tensor, dim: int, start: int | None, stop: int | None, step: int | None = None) -> Tensor:
    return F.getitem_view(x, (slice(None),) * dim + (slice(start, stop, step),))


@public(method=True)
def diff(x: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None,
         append: Tensor | None = None) -> Tensor:
    """n-th difference of neighbours along `dim`, after joining `prepend` before and `append` behind.

    x[i + 1] - x[i], n times; of bools, whether they differ. Returns x's shape with n less along `dim`. Raises
    ShapeError for a 0-d x and n < 0.

    >>> import lucid
    >>> lucid.diff(lucid.tensor([1.0, 4.0, 9.0, 16.0]))
    tensor([3., 5., 7.])
    """
    if not x.ndim:
        raise ShapeError("diff: expected at least 1 dimension, got a 0-d tensor")
    if n < 0:
        raise ShapeError(f"diff: expected an order n >= 0, got {n}")
    dim = normalize_dim("diff", dim, x.ndim)
    if n == 0:
        return F.clone(x)
    parts = [t for t in (prepend, x, append) if t is not None]
    x = F.cat(*parts, dim=dim) if len(parts) > 1 else x
    for _ in range(builtins.min(n, x.shape[dim])):
        later, earlier = _part(x, dim, 1, None), _part(x, dim, None, builtins.max(x.shape[dim] - 1, 0))
        x = F.logical_xor(later, earlier) if x.dtype == bool else later - earlier
    return x


def _slope(x: Tensor, dim: int, spacing: Any, edge_order: int) -> Tensor:
    """Central differences along `dim`: second order inside, `edge_order` at the ends."""
    if isinstance(spacing, Tensor):
        shape = [1] * x.ndim
        shape[dim] = -1
        gap = diff(spacing).to(x.dtype).reshape(shape)
        before, after = _part(gap, dim, None, -1), _part(gap, dim, 1, None)
        first, last = _part(gap, dim, None, 1), _part(gap, dim, -1, None)
    else:
        before = after = first = last = spacing
    low, mid, high = _part(x, dim, None, -2), _part(x, dim, 1, -1), _part(x, dim, 2, None)
    if isinstance(spacing, Tensor):
        inner = (high * before / after - low * after / before) / (before + after)
        inner = inner + mid * (after - before) / (before * after)
    else:
        inner = (high - low) / (2.0 * spacing)

    def at(i: int) -> Tensor:
        return _part(x, dim, i, i + 1 if i != -1 else None)
    if edge_order == 1:
        start, end = (at(1) - at(0)) / first, (at(-1) - at(-2)) / last
    else:
        second = _part(gap, dim, 1, 2) if isinstance(spacing, Tensor) else spacing
        penultimate = _part(gap, dim, -2, -1) if isinstance(spacing, Tensor) else spacing
        start = _one_sided(at(0), at(1), at(2), first, second)
        end = -_one_sided(at(-1), at(-2), at(-3), last, penultimate)
    return F.cat(start, inner, end, dim=dim)


def _one_sided(a: Tensor, b: Tensor, c: Tensor, h: Any, k: Any) -> Tensor:
    # Derivative at a of the parabola through a, b, c at 0, h, h + k.
    return -a * ((2.0 * h + k) / (h * (h + k))) + b * ((h + k) / (h * k)) - c * (h / (k * (h + k)))


@public(method=False)
def gradient(x: Tensor, *, spacing: Any = 1, dim: Dim = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Estimated derivative of `x` along each of `dim`: second order inside, `edge_order` at the ends.

    spacing: a number, one number for each dimension, or one tensor of coordinates for each dimension. Returns
    a tuple of tensors of x's shape. Raises ShapeError for fewer than edge_order + 1 elements and for spacings
    that do not fit. Formulas: Fornberg 1988, Math. Comp. 51.

    >>> import lucid
    >>> lucid.gradient(lucid.tensor([0.0, 1.0, 4.0, 9.0]))
    (tensor([1., 2., 4., 5.]),)
    """
    spacing = 1 if spacing is None else spacing
    dims = tuple(range(x.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    dims = tuple(normalize_dim("gradient", d, x.ndim) for d in dims)
    each = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if isinstance(spacing, Tensor) and spacing.ndim:
        each = [spacing]
    if len(each) != len(dims):
        raise ShapeError(f"gradient: expected one spacing for each of {len(dims)} dims, got {len(each)}")
    if edge_order not in (1, 2):
        raise ShapeError(f"gradient: edge_order is 1 or 2, got {edge_order}")
    for d, s in zip(dims, each, strict=True):
        if isinstance(s, Tensor) and s.ndim and s.shape != (x.shape[d],):
            raise ShapeError(
                f"gradient: expected {x.shape[d]} coordinates along dim {d}, got spacing of shape {s.shape}"
            )
        if x.shape[d] < edge_order + 1:
            raise ShapeError(f"gradient: expected at least {edge_order + 1} elements along dim {d}, got "
                             f"shape {x.shape}")
    return tuple(_slope(x, d, s, edge_order) for d, s in zip(dims, each, strict=True))


def _trapezoids(y: Tensor, x: Any, dx: Any, dim: int) -> tuple[Tensor, int]:
    if not y.ndim or (isinstance(x, Tensor) and not x.ndim):
        raise ShapeError("trapezoid: expected tensors of at least 1 dimension, got y "
                         f"{tuple(y.shape)}" + (f" and x {tuple(x.shape)}" if isinstance(x, Tensor) else ""))
    dim = normalize_dim("trapezoid", dim, y.ndim)
    n = y.shape[dim]
    pairs = (_part(y, dim, 1, None) + _part(y, dim, None, builtins.max(n - 1, 0))) * 0.5
    if x is None:
        return pairs * (1.0 if dx is None else dx), dim
    if x.ndim == 1:
        shape = [1] * y.ndim
        shape[dim] = -1
        x = x.reshape(shape)
        return pairs * diff(x, dim=dim), dim
    extra = y.ndim - x.ndim
    return pairs * diff(x, dim=dim - extra if extra > 0 else dim), dim


@public(method=False)
@named("trapezoid")
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Integral of `y` along `dim` by the trapezoidal rule, over coordinates `x` or steps of `dx`.

    sum (y_i + y_(i+1)) / 2 (x_(i+1) - x_i), dx = 1 unless given. Returns y's shape without `dim`.

    >>> import lucid
    >>> lucid.trapezoid(lucid.tensor([0.0, 1.0, 2.0]), lucid.tensor([0.0, 1.0, 3.0]))
    tensor(3.5)
    """
    parts, dim = _trapezoids(y, x, dx, dim)
    return F.sum(parts, dim)


@public(method=False)
def trapz(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Integral of `y` along `dim`: another name of `trapezoid`.

    >>> import lucid
    >>> lucid.trapz(lucid.tensor([0.0, 1.0, 2.0]))
    tensor(2.)
    """
    return trapezoid(y, x, dx=dx, dim=dim)


@public(method=False)
@named("cumulative_trapezoid")
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Integral of `y` up to each position but the first along `dim`; see `trapezoid`.

    >>> import lucid
    >>> lucid.cumulative_trapezoid(lucid.tensor([0.0, 1.0, 2.0]))
    tensor([0.5, 2. ])
    """
    parts, dim = _trapezoids(y, x, dx, dim)
    return F.cumsum(parts, dim)
