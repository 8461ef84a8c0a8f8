"""Gradient clipping, in place. Nothing here waits for a GPU unless `error_if_nonfinite` asks for it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ...errors import LucidError, ShapeError
from ...ops.common import is_low
from ...tensor import Tensor, _wrap, tensor


def _list(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def get_total_norm(tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0,
                   error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """The p-norm of all tensors as if they were one vector: 0-d, on the first one's device.

    >>> import lucid
    >>> lucid.nn.utils.get_total_norm([lucid.tensor([3.0]), lucid.tensor([4.0])])
    tensor(5.)
    """
    items = _list(tensors)
    if not items:
        return tensor(0.0)
    p, first = float(norm_type), items[0].storage.backend
    xp = first.xp
    norms = []
    for t in items:
        a = t.storage.array
        a = (a.astype("float32") if is_low(a.dtype) else a).reshape(-1)
        own = t.storage.backend
        if p == 2.0:
            n = abs(own.xp.vdot(a, a)) ** 0.5
        elif p == math.inf:
            n = abs(a).max() if a.size else own.xp.zeros((), a.dtype)
        else:
            n = (abs(a) ** p).sum() ** (1.0 / p)
        norms.append(own.xp.asarray(n) if own is first else first.from_numpy(own.to_numpy(own.xp.asarray(n))))
    stacked = xp.stack(norms)
    total = stacked.max() if p == math.inf else (stacked**p).sum() ** (1.0 / p)
    if error_if_nonfinite and not bool(xp.isfinite(total)):
        raise LucidError(f"clip_grad_norm_: the total norm of order {norm_type} is {float(total)}, so the "
                         "gradients cannot be scaled; look for "
                         "the nan or inf, or pass error_if_nonfinite=False")
    return _wrap(xp.asarray(total), first)


def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor,
                          foreach: bool | None = None) -> None:
    """Nothing; multiplies the gradients by max_norm / total_norm where that is below 1.

    >>> import lucid
    >>> w = lucid.nn.Parameter(lucid.zeros(2))
    >>> w.grad = lucid.tensor([3.0, 4.0])
    >>> lucid.nn.utils.clip_grads_with_norm_([w], 1.0, lucid.tensor(5.0))
    >>> w.grad
    tensor([0.6, 0.8])
    """
    for p in _list(parameters):
        if p.grad is None:
            continue
        storage = p.grad.storage
        scale = float(max_norm) / (total_norm.to(p.device).storage.array + 1e-6)
        storage.array *= storage.backend.xp.minimum(scale, 1.0).astype(storage.array.dtype)
        storage.version += 1


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """The total norm of the gradients before they were scaled down, in place, to at most `max_norm`.

    >>> import lucid
    >>> w = lucid.nn.Parameter(lucid.zeros(2))
    >>> w.grad = lucid.tensor([3.0, 4.0])
    >>> clip_grad_norm_([w], 1.0).item(), [round(v, 3) for v in w.grad.tolist()]
    (5.0, [0.6, 0.8])
    """
    items = _list(parameters)
    total = get_total_norm([p.grad for p in items if p.grad is not None], norm_type, error_if_nonfinite)
    clip_grads_with_norm_(items, max_norm, total)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float,
                     foreach: bool | None = None) -> None:
    """Nothing; brings every element of the gradients into [-clip_value, clip_value], in place.

    Raises ShapeError for a clip_value < 0.

    >>> import lucid
    >>> w = lucid.nn.Parameter(lucid.zeros(2))
    >>> w.grad = lucid.tensor([3.0, -0.5])
    >>> lucid.nn.utils.clip_grad_value_([w], 1.0)
    >>> w.grad
    tensor([ 1. , -0.5])
    """
    limit: Any = float(clip_value)
    if limit < 0:
        raise ShapeError(f"clip_grad_value_: clip_value must be at least 0, got {clip_value}")
    for p in _list(parameters):
        if p.grad is not None:
            storage = p.grad.storage
            storage.backend.xp.clip(storage.array, -limit, limit, out=storage.array)
            storage.version += 1
