"""`@fuse`: a pointwise function with one fused forward and one fused backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

from ..autograd.engine import Engine
from ..autograd.function import Function
from ..autograd.impl import TensorImpl
from ..autograd.mode import enable_grad, no_grad
from ..errors import ShapeError
from ..storage.storage import Storage
from .stats import enabled
from .sweep import BLOCK, THREADED, pool


def fuse(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, evaluated block by block: no intermediate result is as large as the arrays.

    function: takes tensors (and other arguments) and returns one tensor, pointwise: each element depends on the same element of each argument
    only. All tensors have one shape, or one element. Nothing but the arguments is kept for backward, where the blocks are computed again in
    cache; under `create_graph=True` the function's own operations are recorded, so any order works. On CUDA the function runs as it is.

    Raises ShapeError when tensors have different shapes, or when the result has another shape than they.

    >>> import lucid
    >>> @fuse
    ... def bell(x):
    ...     return (-x * x).exp()
    >>> x = lucid.tensor([0.0, 1.0], requires_grad=True)
    >>> bell(x).sum().backward()
    >>> x.grad
    tensor([-0.    , -0.7358])
    """

    class Fused(Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.args = tuple(None if isinstance(a, TensorImpl) else a for a in args)
            ctx.save_for_backward(*(a for a in args if isinstance(a, TensorImpl)))
            return _forward(function, args)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            tensors = iter(ctx.saved_tensors)
            args = tuple(next(tensors) if a is None and i in ctx.positions else a for i, a in enumerate(ctx.args))
            if g.requires_grad or any(isinstance(a, TensorImpl) and a.requires_grad for a in args) and _recording():
                return _recorded_backward(function, args, ctx.needs_input_grad, g)
            return _backward(function, args, ctx.needs_input_grad, g)

    Fused.__name__ = Fused.__qualname__ = getattr(function, "__name__", "fused")

    @functools.wraps(function)
    def fused(*args: Any) -> Any:
        tensors = [a for a in args if isinstance(a, TensorImpl)]
        if not tensors or tensors[0].storage.backend.name != "cpu":
            return function(*args)
        _check(Fused.__name__, tensors)
        return Fused.apply(*args)
    return fused


def _recording() -> bool:
    from ..autograd.mode import is_grad_enabled
    return is_grad_enabled()


def _check(name: str, tensors: list[Any]) -> None:
    shape = max((t.shape for t in tensors), key=prod)
    for i, t in enumerate(tensors):
        if t.shape != shape and prod(t.shape) != 1:
            raise ShapeError(f"fuse: {name}: tensor {i} has shape {t.shape}, others {shape}; a fused function takes tensors of one shape, or of one element. Expand it first")


def _pieces(args: tuple[Any, ...]) -> tuple[int, tuple[int, ...], list[Any], Any]:
    """(size, shape, per argument a flat array, a 0-d array or the argument itself, backend)."""
    tensors = [a for a in args if isinstance(a, TensorImpl)]
    backend = tensors[0].storage.backend
    shape = max((t.shape for t in tensors), key=prod)
    xp = backend.xp
    flat = [xp.ascontiguousarray(a.storage.array).reshape(-1 if a.shape == shape else ()) if isinstance(a, TensorImpl) else a for a in args]
    return prod(shape), shape, flat, backend


def _block(flat: list[Any], args: tuple[Any, ...], i: int, j: int, backend: Any) -> list[Any]:
    return [TensorImpl.from_storage(Storage(f[i:j] if f.ndim else f, backend)) if isinstance(a, TensorImpl) else f for f, a in zip(flat, args, strict=True)]


def _each(run: Callable[[int, int], None], size: int) -> None:
    """Nothing; calls `run(i, j)` for each block, on several threads where that pays."""
    starts = range(0, size, BLOCK)
    threads = pool() if size >= THREADED else None
    if threads is None:
        for i in starts:
            run(i, min(i + BLOCK, size))
    else:
        list(threads.map(lambda i: run(i, min(i + BLOCK, size)), starts))


def _forward(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    size, shape, flat, backend = _pieces(args)
    xp = backend.xp
    out: list[Any] = [None]

    def run(i: int, j: int) -> None:
        with no_grad(), backend.quiet():
            r = function(*_block(flat, args, i, j, backend)).storage.array
        if r.size not in (j - i, 1):
            raise ShapeError(f"fuse: {getattr(function, '__name__', 'function')} turned {j - i} elements into shape {r.shape}; only pointwise functions can be fused")
        if out[0] is None:
            out[0] = xp.empty(size, r.dtype)
        out[0][i:j] = r.reshape(-1)
    first = min(BLOCK, size)
    run(0, first)
    _each(lambda i, j: run(i, j) if i else None, size)
    return TensorImpl.from_storage(Storage(out[0].reshape(shape), backend))


def _backward(function: Callable[..., Any], args: tuple[Any, ...], needs: tuple[bool, ...], g: Any) -> tuple[Any, ...]:
    size, shape, flat, backend = _pieces(args)
    xp = backend.xp
    grad = g.storage.array
    uniform = bool(grad.size) and not any(grad.strides)
    grad = grad[(0,) * grad.ndim] if uniform else xp.ascontiguousarray(grad).reshape(-1)
    wanted = [i for i, need in enumerate(needs) if need]
    outs = {i: xp.empty(size, flat[i].dtype) for i in wanted if flat[i].ndim}
    sums: dict[tuple[int, int], Any] = {}

    def run(i: int, j: int) -> None:
        # A block is in cache already: the pass would only add its own cost.
        with enable_grad(), enabled(False):
            block = _block(flat, args, i, j, backend)
            for k in wanted:
                block[k].requires_grad = True
            y = function(*block)
            part = xp.broadcast_to(grad, y.shape) if uniform else grad[i:j]
            found = Engine.grad(y, TensorImpl.from_storage(Storage(part, backend)), [block[k] for k in wanted]) if y.requires_grad else [None] * len(wanted)
        for k, r in zip(wanted, found, strict=True):
            if k in outs:
                outs[k][i:j] = 0 if r is None else r.storage.array
            else:
                sums[k, i] = 0 if r is None else r.storage.array
    _each(run, size)
    result: list[Any] = [None] * len(args)
    for k in wanted:
        if k in outs:
            array = outs[k].reshape(shape)
        else:
            # In the order of the blocks: two runs give the same bits.
            array = xp.asarray(sum(sums[key] for key in sorted(s for s in sums if s[0] == k)), flat[k].dtype).reshape(args[k].shape)
        result[k] = TensorImpl.from_storage(Storage(array, backend))
    return tuple(result)


def _recorded_backward(function: Callable[..., Any], args: tuple[Any, ...], needs: tuple[bool, ...], g: Any) -> tuple[Any, ...]:
    y = function(*args)
    wanted = [i for i, need in enumerate(needs) if need]
    found = Engine.grad(y, g, [args[i] for i in wanted], create_graph=True)
    result: list[Any] = [None] * len(args)
    for i, r in zip(wanted, found, strict=True):
        result[i] = r
    return tuple(result)
