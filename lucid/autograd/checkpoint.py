"""Recomputation instead of saving: `checkpoint(function, *args)`.

Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost (arXiv:1604.06174).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .engine import Engine
from .function import Function
from .impl import TensorImpl
from .mode import enable_grad


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """function(*args), whose inner values are not kept but computed again in backward.

    The random state of the default generators is restored for the second run, so that dropout masks are the same. Gradients reach the arguments and any
    parameters that `function` uses.
    """
    from ..storage.random import fork_default_generators

    state = fork_default_generators(args) if preserve_rng_state else None

    class Checkpoint(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.inputs = inputs
            return function(*inputs[1:], **kwargs)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            inputs = ctx.inputs[1:]
            fresh = [
                t.detach().requires_grad_(t.requires_grad) if isinstance(t, TensorImpl) else t for t in inputs
            ]
            with enable_grad():
                if state is not None:
                    with state():
                        out = function(*fresh, **kwargs)
                else:
                    out = function(*fresh, **kwargs)
            outs = [o for o in ((out,) if isinstance(out, TensorImpl) else out) if isinstance(o, TensorImpl)]
            pairs = [(o, g) for o, g in zip(outs, grads, strict=True) if o.requires_grad and g is not None]
            Engine.backward([o for o, _ in pairs], [g for _, g in pairs])
            return (None, *(t.grad if isinstance(t, TensorImpl) else None for t in fresh))

    Checkpoint.__name__ = "Checkpoint"
    # A dummy that requires grad records the call even when only parameters inside `function` need gradients.
    from ..tensor import tensor

    return Checkpoint.apply(tensor(0.0, requires_grad=True), *args)
