"""Gradient clipping, in place. Nothing here waits for a GPU unless `error_if_nonfinite` asks for it, or
gradients lie on several devices.

On CUDA all gradients of a dtype take part in one launch: two for their norm, one for scaling them down.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

from ...errors import LucidError, ShapeError
from ...kernel import multi_tensor
from ...ops.common import is_low
from ...storage.backend import Backend
from ...tensor import Tensor, _wrap, tensor


def _list(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _by_device(tensors: Iterable[Tensor]) -> dict[Backend, list[Any]]:
    found: dict[Backend, list[Any]] = {}
    for t in tensors:
        found.setdefault(t.backend, []).append(t.array)
    return found


def _norm(xp: Any, a: Any, p: float) -> Any:
    a = (a.astype("float32") if is_low(a.dtype) else a).reshape(-1)
    if p == 2.0:
        return xp.asarray(abs(xp.vdot(a, a)) ** 0.5)
    return _combined(abs(a), p) if a.size else xp.full((), 0.0 if p >= 0 else math.inf, a.real.dtype)


def _combined(a: Any, p: float) -> Any:
    # Of magnitudes, or of the norms of parts. p = 0 counts what is not 0: in the end tensors, as PyTorch.
    if p in (math.inf, -math.inf):
        return a.max() if p > 0 else a.min()
    return (a != 0).sum().astype(a.dtype) if p == 0 else (a**p).sum() ** (1.0 / p)


def get_total_norm(tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0,
                   error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """The p-norm of all tensors as if they were one vector: 0-d, on the first one's device.

    Of 16-bit tensors in float32. The order of the sums is fixed, so two runs give the same bits. foreach
    changes nothing.

    >>> import lucid
    >>> lucid.nn.utils.get_total_norm([lucid.tensor([3.0]), lucid.tensor([4.0])])
    tensor(5.)
    """
    items = _list(tensors)
    if not items:
        return tensor(0.0)
    p, first = float(norm_type), items[0].backend
    norms = []
    for own, arrays in _by_device(items).items():
        with own.quiet():
            found, rest = multi_tensor.norms(own, arrays, p)
            found += [_norm(own.xp, a, p) for a in rest]
            norms += [n if own is first else first.from_numpy(own.to_numpy(own.xp.asarray(n))) for n in found]
    with first.quiet():
        total = norms[0] if norms else first.xp.zeros((), "float32")
        if len(norms) > 1 or p == 0:
            total = _combined(first.xp.stack(norms), p)
        if error_if_nonfinite and not bool(first.xp.isfinite(total)):
            raise LucidError(f"clip_grad_norm_: the total norm of order {norm_type} is {float(total)}, so "
                             "the gradients cannot be scaled; look for the nan or inf, or pass "
                             "error_if_nonfinite=False")
    return _wrap(first.xp.asarray(total), first)


def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor,
                          foreach: bool | None = None) -> None:
    """Nothing; multiplies the gradients by max_norm / (total_norm + 1e-6) where that is below 1.

    >>> import lucid
    >>> w = lucid.nn.Parameter(lucid.zeros(2))
    >>> w.grad = lucid.tensor([3.0, 4.0])
    >>> lucid.nn.utils.clip_grads_with_norm_([w], 1.0, lucid.tensor(5.0))
    >>> w.grad
    tensor([0.6, 0.8])
    """
    grads = [p.grad for p in _list(parameters) if p.grad is not None]
    for own, arrays in _by_device(grads).items():
        total = total_norm.to(own.device).array
        with own.quiet():
            rest = multi_tensor.clip(own, arrays, total, float(max_norm))
            factor: Any = own.xp.minimum(float(max_norm) / (total + 1e-6), 1.0) if rest else 1.0
            # Where the host need not wait for the number, a factor of 1 costs nothing.
            for a in rest if own.runs_kernels or factor != 1.0 else ():
                if is_low(a.dtype):
                    a[...] = a.astype("float32") * factor
                else:
                    a *= factor.astype(a.dtype)
    for g in grads:
        g.storage.version += 1


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """The total norm of the gradients before they were scaled down, in place, to at most `max_norm`.

    >>> import lucid
    >>> w = lucid.nn.Parameter(lucid.zeros(2))
    >>> w.grad = lucid.tensor([3.0, 4.0])
    >>> lucid.nn.utils.clip_grad_norm_([w], 1.0).item(), [round(v, 3) for v in w.grad.tolist()]
    (5.0, [0.6, 0.8])
    """
    items = _list(parameters)
    total = get_total_norm([p.grad for p in items if p.grad is not None], norm_type, error_if_nonfinite)
    clip_grads_with_norm_(items, max_norm, total)
    return total


def clip_grad_norm(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
                   error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """`clip_grad_norm_` under its old name, with a FutureWarning.

    >>> import lucid
    >>> import warnings
    >>> w = lucid.nn.Parameter(lucid.zeros(2))
    >>> w.grad = lucid.tensor([3.0, 4.0])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     norm = lucid.nn.utils.clip_grad_norm([w], 1.0)
    >>> norm.item(), caught[0].category.__name__
    (5.0, 'FutureWarning')
    """
    warnings.warn("`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.",
                  FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


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
