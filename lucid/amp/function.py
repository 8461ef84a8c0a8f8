"""`custom_fwd` and `custom_bwd`: autocast around a user's own `autograd.Function`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..autograd.impl import TensorImpl
from ..autograd.record import RECORDED as F
from ..storage.dtype import as_dtype, is_floating
from .autocast import autocast, get_autocast_dtype, is_autocast_enabled


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str = "cuda", cast_inputs: Any = None
) -> Any:
    """`forward` of a Function, prepared for autocast.

    With cast_inputs, floating inputs on `device_type` (not float64) are cast to that dtype and the body runs
    without autocast; otherwise it runs under the caller's. `custom_bwd` gives backward the same state.

    >>> import lucid
    >>> class Scale(lucid.autograd.Function):
    ...     @staticmethod
    ...     @lucid.amp.custom_fwd(device_type="cpu", cast_inputs=lucid.float32)
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @lucid.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, g):
    ...         return g * 2
    >>> with lucid.amp.autocast("cpu", dtype=lucid.bfloat16):
    ...     y = Scale.apply(lucid.ones(2, dtype=lucid.bfloat16))
    >>> y.dtype.name
    'float32'
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        enabled = is_autocast_enabled(device_type)
        ctx._amp = (enabled and cast_inputs is None, get_autocast_dtype(device_type))
        if not enabled or cast_inputs is None:
            return fwd(ctx, *args, **kwargs)
        dtype = as_dtype(cast_inputs)
        args, kwargs = _cast(args, device_type, dtype), _cast(kwargs, device_type, dtype)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *args, **kwargs)

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str = "cuda") -> Any:
    """`backward` of a Function whose forward has `custom_fwd`.

    It runs under autocast exactly when forward did.

    >>> import lucid
    >>> class Double(lucid.autograd.Function):
    ...     @staticmethod
    ...     @lucid.amp.custom_fwd(device_type="cpu")
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @lucid.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, g):
    ...         return g * 2
    >>> x = lucid.tensor([1.0], requires_grad=True)
    >>> Double.apply(x).backward()
    >>> x.grad
    tensor([2.])
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *grads: Any) -> Any:
        enabled, dtype = ctx._amp
        with autocast(device_type, dtype, enabled=enabled):
            return bwd(ctx, *grads)

    return backward


def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """`value` with every floating tensor in it (inside tuples, lists, dicts) cast."""
    if isinstance(value, TensorImpl):
        own = value.storage.array.dtype
        mine = value.storage.backend.device.type == device_type
        return F.cast(value, dtype) if mine and is_floating(own) and own.name != "float64" else value
    if isinstance(value, dict):
        return {key: _cast(item, device_type, dtype) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_cast(item, device_type, dtype) for item in value)
    return value
