"""Scatter with a reduction: sum, mean, prod, amax, amin of the values that meet at one position."""

from __future__ import annotations

from typing import Any

from ..errors import DtypeError
from .common import named, normalize_dim
from .index import padded_read, scatter_source, scatter_target
from .reduce import wide
from .registry import A, Sample, composite, op
from .rows import sum_rows

_INDEX = A(value=[[0, 2, 2, 0], [1, 0, 1, 1]])
_REDUCTIONS = ("sum", "mean", "prod", "amax", "amin")


@op(public=False, diff=(), samples=[Sample((2, 3), 1, _INDEX), Sample((2, 3), 1, _INDEX, include_self=False)])
def scatter_count(xp, x, dim: int, index, include_self: bool = True):
    """Number of values that meet at each position of `x`, at least 1, in x's dtype."""
    ones = xp.ones((index.size, 1), "int64")
    flat = scatter_target("scatter_reduce", xp, x, dim, index)
    count = sum_rows(xp, x.size, flat, ones) + int(include_self)
    return xp.maximum(count, 1).reshape(x.shape).astype(x.dtype)


def _extreme(xp: Any, x: Any, flat: Any, source: Any, largest: bool, include_self: bool) -> Any:
    """The largest or smallest of the values that meet at each position, by one sort."""
    sign = 1 if largest else -1
    values = wide(source).astype("int64" if source.dtype.kind in "bui" else wide(source).dtype) * sign
    order = xp.lexsort(xp.stack((values.astype("float64") if values.dtype.kind == "f" else values, flat)))
    flat, source = flat[order], source[order]
    last = xp.flatnonzero(xp.concatenate((flat[1:] != flat[:-1], xp.ones(1, bool))))
    out = x.copy().reshape(-1)
    best = source[last]
    if include_self:
        best = (xp.maximum if largest else xp.minimum)(best, out[flat[last]])
    out[flat[last]] = best
    return out.reshape(x.shape)


@op(public=False, samples=[Sample((2, 3), 1, _INDEX, (2, 4)),
                           Sample((2, 3), 1, _INDEX, (2, 4), largest=False),
                           Sample((2, 3), 1, _INDEX, (2, 4), include_self=False)])
def scatter_extreme(xp, x, dim: int, index, src, largest: bool = True, include_self: bool = True):
    """`x` with the largest (or smallest) of the values of `src` that `index` sends to each position.

    The gradient is shared evenly among the values that are equal to the result.
    """
    flat = scatter_target("scatter_reduce", xp, x, dim, index)
    source = scatter_source("scatter_reduce", x, index, src)
    return _extreme(xp, x, flat, source, largest, include_self) if flat.size else x.copy()


@op(public=False, diff=(), outputs=("of_x", "of_src"), samples=[Sample((2, 3), 1, _INDEX, (2, 4), (2, 3))])
def scatter_tie_weights(xp, x, dim: int, index, src, out, include_self: bool = True):
    """Shares of `x` and of the scattered `src` in `scatter_extreme`'s result: 1/n among n equal values."""
    dim = normalize_dim("scatter_reduce", dim, x.ndim)
    flat = scatter_target("scatter_reduce", xp, x, dim, index)
    dtype = wide(x).dtype
    hit = (scatter_source("scatter_reduce", x, index, src) == out.reshape(-1)[flat]).astype(dtype)
    own = (x == out).astype(dtype).reshape(-1)
    if not include_self:
        own[flat] = 0
    count = own + sum_rows(xp, x.size, flat, hit.reshape(-1, 1)).reshape(-1)
    count = xp.maximum(count, 1)
    of_src = (hit / count[flat]).astype(x.dtype).reshape(index.shape)
    return (own / count).astype(x.dtype).reshape(x.shape), of_src


def _scatter_extreme_grads(F, g, x, dim, index, src, out, include_self, src_shape, needs):
    of_x, of_src = F.scatter_tie_weights(x, dim, index, src, out, include_self)
    gx = g * of_x if needs[0] else None
    if not needs[1]:
        return gx, None
    return gx, padded_read(F, F.pick(g, index, dim) * of_src, src_shape)


scatter_extreme.grads(("x", "src"), _scatter_extreme_grads)


@op(public=False, diff=(), outputs=("order", "first", "last"), samples=[Sample((2, 3), 1, _INDEX)])
def scatter_groups(xp, x, dim: int, index):
    """Order that sorts the elements of `x` and then of a scattered source by the position they meet at.

    first: 1.0 where a group starts, in x's dtype; last: the place of each group's last element, [x.size].
    """
    target = xp.concatenate((xp.arange(x.size), scatter_target("scatter_reduce", xp, x, dim, index)))
    order = xp.argsort(target, kind="stable")
    target = target[order]
    change = target[1:] != target[:-1]
    one = xp.ones(1, bool)
    return (order, xp.concatenate((one[:x.size], change)).astype(x.dtype),
            xp.flatnonzero(xp.concatenate((change, one[:x.size]))))


@composite(public=False, samples=[Sample((2, 3), 1, _INDEX, (2, 4)),
                                  Sample(A(value=[[0.0, 2.0, 1.0]]), 1, A(value=[[0, 0, 1, 1]]),
                                         A(value=[[0.0, 3.0, 0.0, 2.0]]))])
def scatter_prod(F, x, dim: int, index, src):
    """`x` multiplied by the values of `src` that `index` sends to each position along `dim`.

    The groups are sorted and multiplied by a recurrence that starts anew at each, so nothing is divided.
    """
    order, first, last = F.scatter_groups(x, dim, index)
    read = F.getitem_view(src, tuple(map(slice, index.shape))) if index.ndim else src
    values = F.index_select(F.cat(F.reshape(x, (-1,)), F.reshape(read, (-1,)), dim=0), 0, order)
    running = F.linear_scan(values * first, values * (1.0 - first), 0)
    return F.reshape(F.index_select(running, 0, last), x.shape)


@composite(public=False, samples=[Sample((2, 3), 1, _INDEX, (2, 4), reduce=r, include_self=s)
                                  for r in _REDUCTIONS for s in (True, False)])
@named("scatter_reduce")
def scatter_reduce(F, x, dim: int, index, src, reduce: str, include_self: bool = True):
    """`x` reduced with the values of `src` that `index` sends to each position along `dim`.

    reduce: "sum", "mean", "prod", "amax" or "amin". include_self=False leaves x's own value out where
    anything arrives.
    """
    if reduce not in _REDUCTIONS:
        raise DtypeError(f"scatter_reduce: reduce is one of {', '.join(_REDUCTIONS)}, got {reduce!r}")
    if reduce in ("amax", "amin"):
        return F.scatter_extreme(x, dim, index, src, reduce == "amax", include_self)
    start = x if include_self else F.scatter_number(x, dim, index, 1.0 if reduce == "prod" else 0.0)
    if reduce == "prod":
        return F.scatter_prod(start, dim, index, src)
    total = F.scatter_add(start, dim, index, src)
    return total if reduce == "sum" else F.divide_count(total, F.scatter_count(x, dim, index, include_self))


@op(public=False, samples=[Sample((3,), A(value=[1.0, 2.0, 4.0]))])
def divide_count(xp, x, count):
    """x / count for a count that carries no gradient; integers are divided towards minus infinity."""
    return x // count if x.dtype.kind in "iu" else x / count


divide_count.grad(x=lambda F, g, count: g / count)

