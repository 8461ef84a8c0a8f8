"""How named chains run.

Each function gets the chain's nodes, the consumer first, and the gradient; None says
that the arrays do not fit.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np  # for the CPU paths alone

from ..ops.loss import divisor
from . import sweep
from .body import body_of, operations
from .guards import array_refusal
from .region import Program, Region


def values_of(n: Any) -> dict[str, Any]:
    """The values that a node kept, by name: raw arrays and static arguments."""
    plan = n.plan
    values = dict(zip(plan.keep, (s.array for s in n.saved), strict=True))
    return values | dict(zip(plan.static, n.static, strict=True)) if plan.static else values


def grads_behind(node: Any, F: Any, dz: Any, bias: Any) -> list[Any]:
    """The gradients of a `linear` or `convolution` node from that of its output; `bias`: its own, where it is
    known already.
    """
    plan, named = node.plan, values_of(node)
    grads = dict.fromkeys(plan.targets)
    if bias is not None and "bias" in grads:
        grads["bias"] = bias
    for formula in plan.formulas_on(F.backend.name):
        needs = tuple(t in grads and grads[t] is None for t in formula.targets)
        if any(needs):
            args = [needs if name == "needs" else named[name] for name in formula.names]
            found = formula.function(F, dz, *args)
            found = found if formula.shared else (found,)
            for t, one, need in zip(formula.targets, found, needs, strict=True):
                if need:
                    grads[t] = one
    return [grads[t] for t in plan.targets]


def through_sweep(program: Program, tail: Any, F: Any, g: Any, run: Any) -> list[Any]:
    """The gradients of the `linear` node behind a program with one output: what enters it, and its sum over
    rows (the bias gradient), come from one pass. run: of a Body -> arrays.
    """
    bias = "bias" in tail.plan.targets
    if bias:
        program.add_row_output()
    body = body_of(program, g, program.device)
    body.alone = features_of(tail) >= _DEEP
    dz, *rest = run(body)
    return grads_behind(tail, F, dz, rest[0] if bias else None)


# Input features from which the products take so much more than the sweep that a second thread gains nothing
# there, and starts the products late: linear + relu, 512 x 2048 -> 2048, took 1.04 to 1.09 of the unfused
# time with two (bench_fusion: blocks).
_DEEP = 256


def features_of(linear: Any) -> int:
    """The input features of a `linear` node, 0 where it kept neither operand."""
    v = values_of(linear)
    return next((v[name].shape[-1] for name in ("x", "weight") if v.get(name) is not None), 0)


def linear_activation(nodes: tuple[Any, ...], g: Any) -> Any:
    """Gradients of linear + activation: dz and the bias gradient's partial sums in one pass over g and the
    activation's saved value.
    """
    act, linear = nodes
    if act.F.backend.name == "cuda":
        return _linear_kernel(act, linear, g)
    program = Program(Region([act], linear), g.shape, "cpu")
    if array_refusal(program.values, program.kinds, program.shape, g.dtype, "cpu") is not None:
        return None
    if _in_blocks(linear, g) and operations(act) < _HEAVY:
        return _through_products(program, linear, act.F, g)
    return through_sweep(program, linear, act.F, g, lambda body: sweep.run(body, act.F))


# Operations per element from which a second thread for them is worth more than a gradient that stays in
# cache.
_HEAVY = 8
# Elements of a weight that stays in cache beside a block; features below which a product per block is slow.
_WEIGHT, _NARROW = 1 << 18, 32


def _in_blocks(linear: Any, g: Any) -> bool:
    """Whether the products of a `linear` node are worth making block by block, from gradients in cache."""
    v = values_of(linear)
    x, weight = v.get("x"), v.get("weight")
    shape = (g.shape[-1], x.shape[-1]) if x is not None else weight.shape if weight is not None else ()
    return (
        g.dtype.itemsize > 2
        and len(shape) == 2
        and prod(shape) <= _WEIGHT
        and min(shape) >= _NARROW
        and g.ndim > 1
        and g.size * g.dtype.itemsize >= 2 * sweep.BLOCK
        and all(a is None or a.dtype == g.dtype and a.flags.c_contiguous for a in (x, weight))
    )


def _through_products(program: Program, linear: Any, F: Any, g: Any) -> list[Any]:
    """As `through_sweep`, with both products made from each block while it is in cache: what enters `linear`
    is nowhere in memory (bench_fusion: linear + relu).
    """
    v, targets = values_of(linear), linear.plan.targets
    x: Any = v.get("x")
    weight: Any = v.get("weight")
    if "bias" in targets:
        program.add_row_output()
    rows, out = g.size // g.shape[-1], g.shape[-1]
    grads: dict[str, Any] = {}
    if "x" in targets:
        grads["x"] = np.empty((*g.shape[:-1], weight.shape[1]), g.dtype)
        dx = grads["x"].reshape(rows, -1)
    if "weight" in targets:
        x = x.reshape(rows, -1)
        grads["weight"], part = np.zeros((out, x.shape[1]), g.dtype), np.empty((out, x.shape[1]), g.dtype)

    def consume(i: int, j: int, dz: Any) -> None:
        if "x" in grads:
            np.matmul(dz, weight, out=dx[i:j])
        if "weight" in grads:
            grads["weight"] += np.matmul(dz.T, x[i:j], out=part)

    body = body_of(program, g, "cpu")
    found = sweep.Sweep(body, list(range(len(body.results))), F, consume).run()
    if "bias" in targets:
        grads["bias"] = found[1]
    return [grads[t] for t in targets]


def _linear_kernel(act: Any, linear: Any, g: Any) -> Any:
    from ..kernel import calls
    from ..ops.cuda_kernels import attempt, launch_for

    named, name = values_of(act), act.plan.op.name
    if "bias" not in linear.plan.targets or g.ndim < 2:
        return None
    v = named["out"] if "out" in named else named["x"]
    if name == "gelu" and named["approximate"] == "tanh":
        name = "gelu_tanh"
    solid = g if g.flags.c_contiguous else g.copy()
    found = attempt(
        calls.activation_bias_grad, launch_for(solid, v), name, solid, v, named.get("negative_slope", 0.0)
    )
    return None if found is None else grads_behind(linear, act.F, *found)


def log_softmax_nll(nodes: tuple[Any, ...], g: Any) -> Any:
    """(exp(out) c - c at the target) g, with one pass over log_softmax's output; c = w_t, 0 where the row is
    ignored, over sum(c) for the mean.

    Unfused, nll_loss writes a dense gradient with one nonzero per row, and log_softmax reads it twice. For
    class indices of shape [N], log_softmax over the last of two dimensions; the rest runs unfused.
    """
    nll, log_softmax = nodes
    v, out = values_of(nll), values_of(log_softmax)["out"]
    target, weight = v["target"], v.get("weight")
    if (
        target.ndim != 1  # so that `out` has two dimensions
        or log_softmax.static[0] % 2 != 1
        or not out.size
    ):
        return None
    xp, rows = nll.F.backend.xp, out.shape[0]
    wide = np.float32 if out.dtype.itemsize == 2 else out.dtype
    kept = target != v["ignore_index"]
    at = xp.where(kept, target, 0)
    c = (kept if weight is None else weight[at] * kept).astype(wide)
    if nll.F.backend.name == "cuda":
        return _nll_kernel(v, g, out, weight, c)
    scale = g * c if g.ndim else xp.broadcast_to(g, (rows,)) * c
    if v["reduction"] == "mean":
        scale = scale / divisor(c.sum())
    scale = scale.astype(out.dtype, copy=False)
    dx = xp.exp(out)
    dx *= scale[:, None]
    dx[xp.arange(rows), at] -= scale
    return (dx,)


def _nll_kernel(v: dict[str, Any], g: Any, out: Any, weight: Any, c: Any) -> Any:
    # The kernel of cross_entropy: log_softmax's output is its input with a logsumexp of 0.
    from ..kernel import calls
    from ..ops.cuda_kernels import attempt, launch_for

    rows, reduction = out.shape[0], v["reduction"]
    launch = launch_for(out, g if g.flags.c_contiguous else g.copy(), weight)
    if launch is None:
        return None
    saved = launch.zeros(2 * rows + (reduction != "none"), c.dtype)
    saved[rows : 2 * rows] = c
    if reduction != "none":
        saved[2 * rows :] = c.sum() if reduction == "mean" else 1
    target = launch.xp.ascontiguousarray(v["target"].astype("int64", copy=False))
    dx = attempt(
        calls.cross_entropy_backward,
        launch,
        launch.xp.ascontiguousarray(g),
        out,
        target,
        weight,
        saved,
        v["ignore_index"],
        0.0,
        reduction,
    )
    return None if dx is None else (dx,)
