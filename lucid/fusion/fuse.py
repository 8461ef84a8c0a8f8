"""`@fuse`: a pointwise function with one fused forward and one fused backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..autograd.engine import Engine
from ..autograd.function import Function
from ..autograd.impl import TensorImpl
from ..autograd.mode import is_grad_enabled
from ..errors import KernelError, ShapeError
from ..storage.storage import Storage
from . import patterns
from .body import Body
from .capture import Captured, backward_body, capture, checked, forward_body, outside_numbers
from .region import DTYPES
from .stats import count_fallback, count_fused
from .sweep import run as sweep

_SIMPLE = (int, float, str, bool, type(None))


def fuse(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with one fused forward and one fused backward.

    A CUDA kernel each, or a sweep over cache-sized blocks on the CPU.

    function: takes tensors (and numbers, strings, None) and returns one tensor, pointwise: each element
    depends on the same element of each argument only. It may end in `.sum()` or `.mean()` over everything.
    All tensors have one shape, or one element, and one floating dtype (or bool). No intermediate result is as
    large as the arrays, and nothing but the arguments is kept for backward, which computes them again. (On
    the CPU also the result, where the last operation's derivative is written with it. Where the function ends
    in a sum, the CPU computes the gradient along with the value, in one sweep, and keeps it.) Under
    `create_graph=True` the function's own operations are recorded, so any order works.

    The function runs once per signature (device, dtypes, dimensions, other arguments, numbers that it reads
    from around it) on small tensors to see its operations. A function that they do not determine (it branches
    on values, draws random numbers), that has an operation without a fused form, and arguments below
    `fusion.patterns.FUSE_SIZE` and `MAP_SIZE` run as they are; `fusion.stats().fell_back` says why.

    Raises ShapeError when tensors have different shapes, or when the result has another shape than they.

    >>> import lucid
    >>> @lucid.fusion.fuse
    ... def bell(x):
    ...     return (-x * x).exp()
    >>> x = lucid.tensor([0.0, 1.0], requires_grad=True)
    >>> bell(x).sum().backward()
    >>> x.grad
    tensor([-0.    , -0.7358])
    """
    name = getattr(function, "__name__", "function")
    seen: dict[Any, Captured | str] = {}

    class Fused(Function):
        @staticmethod
        def forward(ctx: Any, captured: Captured, *args: Any) -> Any:
            ctx.captured, ctx.args = captured, tuple(None if isinstance(a, TensorImpl) else a for a in args)
            out = _forward(ctx, captured, args, ctx.needs_input_grad[1:])
            ctx.save_for_backward(
                *(a for a in args if isinstance(a, TensorImpl)), *((out,) if captured.kept else ())
            )
            return out

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            saved = ctx.saved_tensors
            tensors = iter(saved)
            args = tuple(next(tensors) if i + 1 in ctx.positions else a for i, a in enumerate(ctx.args))
            needs = ctx.needs_input_grad[1:]
            if is_grad_enabled() and (
                g.requires_grad or any(isinstance(a, TensorImpl) and a.requires_grad for a in args)
            ):
                return None, *_recorded_backward(function, args, needs, g)
            out = saved[-1].storage.array if ctx.captured.kept else None
            return None, *_backward(ctx, args, needs, g, out)

    Fused.__name__ = Fused.__qualname__ = name

    @functools.wraps(function)
    def fused(*args: Any) -> Any:
        tensors = [a for a in args if isinstance(a, TensorImpl)]
        if not tensors:
            return function(*args)
        shape = _check(name, tensors)
        device = tensors[0].storage.backend.name
        if prod(shape) < max(patterns.FUSE_SIZE[device], 1):
            return _plain(function, args, shape, name)
        key = _signature(function, args, tensors, shape, device)
        found = seen.get(key)
        if found is None:
            found = seen[key] = _captured(function, args, tensors, device)
        if isinstance(found, str):
            count_fallback(f"{name}: {found}")
            return _plain(function, args, shape, name)
        if not found.total and prod(shape) < patterns.MAP_SIZE[device]:
            return _plain(function, args, shape, name)
        try:
            return Fused.apply(found, *args)
        except KernelError as why:
            seen[key] = str(why)
            return function(*args)

    return fused


def _plain(function: Callable[..., Any], args: tuple[Any, ...], shape: tuple[int, ...], name: str) -> Any:
    out = function(*args)
    if isinstance(out, TensorImpl) and out.shape not in (shape, ()):
        raise ShapeError(
            f"fuse: {name} turned shape {shape} into {out.shape}; only pointwise functions can be fused"
        )
    return out


def _check(name: str, tensors: list[Any]) -> tuple[int, ...]:
    """The common shape of the tensors; raises when there is none."""
    shape = max((t.shape for t in tensors), key=lambda s: (prod(s), len(s)))
    for i, t in enumerate(tensors):
        if t.shape != shape and prod(t.shape) != 1:
            raise ShapeError(
                f"fuse: {name}: tensor {i} has shape {t.shape}, others {shape}; "
                "a fused function takes tensors of one shape, or of one element. Expand it first"
            )
    return shape


def _signature(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    tensors: list[Any],
    shape: tuple[int, ...],
    device: str,
) -> Any:
    described = tuple(
        (a.dtype.name, a.shape == shape, len(a.shape))
        if isinstance(a, TensorImpl)
        else a
        if isinstance(a, _SIMPLE)
        else id(a)
        for a in args
    )
    return device, described, tuple(type(a) for a in args), outside_numbers(function)


def _captured(
    function: Callable[..., Any], args: tuple[Any, ...], tensors: list[Any], device: str
) -> Captured | str:
    """The function's ops, or why it cannot be fused."""
    floating = {t.dtype for t in tensors if t.dtype.kind != "b"}
    if len(floating) != 1 or next(iter(floating)).name not in DTYPES:
        return "dtypes"
    if any(t.storage.backend is not tensors[0].storage.backend for t in tensors):
        return "devices"
    if any(not isinstance(a, (TensorImpl, *_SIMPLE)) for a in args):
        return "arguments that are neither tensors nor numbers"
    try:
        checked(function, args)
        return capture(function, args, device)
    except Exception as why:
        # Whatever it is, the function itself says it better.
        return str(why) or type(why).__name__


def _run(body: Body, backend: Any, name: str) -> list[Any]:
    body.name = name
    if backend.name == "cpu":
        found = sweep(body, backend.F)
    else:
        from .cuda import run

        found = run(body, backend.F)
    count_fused(name, 1)
    return found


def _arrays(args: tuple[Any, ...]) -> tuple[list[Any], tuple[int, ...], Any]:
    tensors = [a for a in args if isinstance(a, TensorImpl)]
    return (
        [t.storage.array for t in tensors],
        max((t.shape for t in tensors), key=lambda s: (prod(s), len(s))),
        tensors[0].storage.backend,
    )


def _forward(ctx: Any, captured: Captured, args: tuple[Any, ...], needs: tuple[bool, ...]) -> Any:
    arrays, shape, backend = _arrays(args)
    ctx.early = None
    wanted = _wanted(args, needs)
    if captured.total and wanted and backend.name == "cpu":
        # The gradient of a sum is known but for a factor: one sweep instead of two.
        out, *ctx.early = _run(backward_body(captured, arrays, shape, None, wanted), backend, ctx.node_name)
    else:
        (out,) = _run(forward_body(captured, arrays, shape), backend, ctx.node_name)
    if captured.total == "mean":
        with backend.guard():
            out = (out / prod(shape) if prod(shape) else out + float("nan")).astype(out.dtype)
    return TensorImpl.from_storage(Storage(backend.asarray(out), backend))


def _seed(captured: Captured, backend: Any, shape: tuple[int, ...], g: Any) -> Any:
    """The gradient of every element of a sum or mean, as a 0-d array."""
    g = g.reshape(())
    return backend.asarray((g / max(prod(shape), 1)).astype(g.dtype)) if captured.total == "mean" else g


def _wanted(args: tuple[Any, ...], needs: tuple[bool, ...]) -> list[int]:
    """Which tensors, by their number among the tensors, get a gradient."""
    tensors = [need for a, need in zip(args, needs, strict=True) if isinstance(a, TensorImpl)]
    return [i for i, need in enumerate(tensors) if need]


def _backward(
    ctx: Any, args: tuple[Any, ...], needs: tuple[bool, ...], g: Any, out: Any
) -> tuple[Any, ...]:
    arrays, shape, backend = _arrays(args)
    wanted, grad = _wanted(args, needs), g.storage.array
    grads, ctx.early = ctx.early, None
    if grads is not None:
        factor = _seed(ctx.captured, backend, shape, grad)
        if factor != 1:
            grads = [np.multiply(a, factor, out=a) for a in grads]
    else:
        if ctx.captured.total:
            grad = _seed(ctx.captured, backend, shape, grad)
        elif grad.size and not any(grad.strides):
            grad = grad[(slice(0, 1),) * grad.ndim]
        grads = _run(backward_body(ctx.captured, arrays, shape, grad, wanted, out), backend, ctx.node_name)
    found = dict(zip(wanted, grads, strict=True))
    del grads
    positions = [i for i, a in enumerate(args) if isinstance(a, TensorImpl)]
    result: list[Any] = [None] * len(args)
    for k, i in enumerate(positions):
        if k in found:
            result[i] = TensorImpl.from_storage(Storage(backend.asarray(found.pop(k)), backend))
    return tuple(result)


def _recorded_backward(
    function: Callable[..., Any], args: tuple[Any, ...], needs: tuple[bool, ...], g: Any
) -> tuple[Any, ...]:
    y = function(*args)
    wanted = [i for i, need in enumerate(needs) if need]
    found = Engine.grad(y, g, [args[i] for i in wanted], create_graph=True)
    result: list[Any] = [None] * len(args)
    for i, r in zip(wanted, found, strict=True):
        result[i] = r
    return tuple(result)
