"""How named chains run.

Each function gets the chain's nodes, the consumer first, and the gradient; None says
that the arrays do not fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np  # for the CPU paths alone

from ..ops.loss import divisor
from . import sweep
from .numpy_code import select


def _named(n: Any) -> dict[str, Any]:
    """The values that a node kept, by name: raw arrays and static arguments."""
    plan = n.plan
    values = dict(zip(plan.keep, (s.array for s in n.saved), strict=True))
    return values | dict(zip(plan.static, n.static, strict=True)) if plan.static else values


def linear_grads(tail: Any, F: Any, dz: Any, bias: Any) -> list[Any]:
    """The gradients of a `linear` node from that of its output; `bias`: its own, where it is known
    already.
    """
    plan, named = tail.plan, _named(tail)
    grads = dict.fromkeys(plan.targets)
    for formula in plan.formulas:
        target = formula.targets[0]
        grads[target] = (
            bias
            if bias is not None and target == "bias"
            else formula.function(F, dz, *[named[n] for n in formula.names])
        )
    return [grads[t] for t in plan.targets]


def linear_activation(nodes: tuple[Any, ...], g: Any) -> Any:
    """Gradients of linear + activation on CUDA: dz and the bias gradient's partial sums in one pass over g
    and the activation's saved value.
    """
    from ..kernel import calls
    from ..ops.cuda_kernels import attempt, launch_for

    act, linear = nodes
    named, name = _named(act), act.plan.op.name
    if "bias" not in linear.plan.targets or g.ndim < 2:
        return None
    v = named["out"] if "out" in named else named["x"]
    if name == "gelu" and named["approximate"] == "tanh":
        name = "gelu_tanh"
    solid = g if g.flags.c_contiguous else g.copy()
    found = attempt(
        calls.activation_bias_grad, launch_for(solid, v), name, solid, v, named.get("negative_slope", 0.0)
    )
    return None if found is None else linear_grads(linear, act.F, *found)


def log_softmax_nll(nodes: tuple[Any, ...], g: Any) -> Any:
    """(exp(out) c - c at the target) g, with one pass over log_softmax's output; c = w_t, 0 where the row is
    ignored, over sum(c) for the mean.

    Unfused, nll_loss writes a dense gradient with one nonzero per row, and log_softmax reads it twice. For
    class indices of shape [N], log_softmax over the last of two dimensions; the rest runs unfused.
    """
    nll, log_softmax = nodes
    v, out = _named(nll), _named(log_softmax)["out"]
    target, weight = v["target"], v.get("weight")
    if (
        out.ndim != 2
        or log_softmax.static[0] % 2 != 1
        or target.ndim != 1
        or target.dtype.kind not in "iu"
        or not out.size
    ):
        return None
    if weight is not None and (weight.dtype != out.dtype or not weight.flags.c_contiguous):
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


def batch_norm_relu(nodes: tuple[Any, ...], g: Any) -> Any:
    """Gradients of batch_norm + relu on the CPU: two passes over samples in cache-sized blocks, in which the
    masked gradient is made and used.

    Sums first (g', g' (x - mean) per channel, g' = g where relu let through), then dx = w rstd (g' - mean(g')
    - (x - mean) rstd^2 mean(g' (x - mean))).
    """
    relu, norm = nodes
    out, v, plan = _named(relu)["out"], _named(norm), norm.plan
    x, weight, mean, var = v["x"], v.get("weight"), v["mean"], v["var"]
    if (
        x.dtype.itemsize == 2
        or g.dtype != x.dtype
        or mean.dtype != x.dtype
        or not (x.flags.c_contiguous and out.flags.c_contiguous)
        or not x.size
    ):
        return None
    n, channels = x.shape[:2]
    x3, out3, g3 = (a.reshape(n, channels, -1) for a in (x, out, g))
    count = x.size // channels
    step = max(1, sweep.BLOCK // (x.size // n))
    shape = (min(step, n), *x3.shape[1:])
    mean3 = mean.reshape(1, channels, 1)
    dx = np.empty_like(x) if "x" in plan.targets else None
    coefficients: list[Any] = []

    def masked(i: int, k: int, part: Any, mask: Any) -> None:
        np.greater(out3[i : i + k], 0, out=mask)
        select(mask, g3[i : i + k], 0, part)

    def sums(starts: range) -> Any:
        gs, t, m = np.empty(shape, x.dtype), np.empty(shape, x.dtype), np.empty(shape, bool)
        total = np.zeros((2, channels), x.dtype)
        for i in starts:
            k = min(step, n - i)
            masked(i, k, gs[:k], m[:k])
            np.subtract(x3[i : i + k], mean3, out=t[:k])
            total[0] += np.add.reduce(gs[:k], 2).sum(0)
            total[1] += np.vecdot(gs[:k], t[:k]).sum(0)
        return total

    def apply(starts: range) -> None:
        gs, m = np.empty(shape, x.dtype), np.empty(shape, bool)
        scale, slope, shift = coefficients
        for i in starts:
            k = min(step, n - i)
            masked(i, k, gs[:k], m[:k])
            d = dx.reshape(x3.shape)[i : i + k]  # type: ignore[union-attr]
            np.subtract(x3[i : i + k], mean3, out=d)
            d *= slope
            gs[:k] *= scale
            d += gs[:k]
            d += shift

    dbias, dots = sum(sweep.shared(sums, range(0, n, step), x.size))
    rstd = 1.0 / np.sqrt(var + v["eps"])
    grads = {"weight": dots * rstd, "bias": dbias}
    if dx is not None:
        # dx = scale g' + slope (x - mean) + shift
        scale = rstd if weight is None else rstd * weight
        slope = scale * rstd * rstd * dots / -count
        shift = scale * dbias / -count
        coefficients += [c.reshape(1, channels, 1) for c in (scale, slope, shift)]
        sweep.shared(apply, range(0, n, step), x.size)
        grads["x"] = dx
    return tuple(grads[t] for t in plan.targets)
