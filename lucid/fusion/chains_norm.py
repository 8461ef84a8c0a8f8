"""How chains with a norm run: batch norm + relu (a convolution before it), a norm behind a residual.

As in `chains`, None says that the arrays do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np  # for the CPU paths alone

from . import sweep
from .chains import grads_behind, values_of
from .numpy_code import select

# Elements of a channel in one sample from which a coefficient per channel broadcasts well: below it is
# written out for a whole sample (bench_fusion: batch_norm + relu).
_LONG = 1024


# ---- norm + residual ----


def norm_residual(nodes: tuple[Any, ...], g: Any, waiting: Any) -> Any:
    """Gradients of layer_norm or rms_norm, with `waiting` added to that of the input in the same pass."""
    (norm,) = nodes
    plan, v, F = norm.plan, values_of(norm), norm.F
    name, weight = plan.op.name, v.get("weight")
    targets = ("x", "weight", "bias")[: 2 if name == "rms_norm" else 3]
    needs = tuple(t in plan.targets for t in targets)
    if not needs[0]:
        return None
    if F.backend.name == "cuda":
        from ..ops.cuda_kernels import norm_kernel as run
    else:
        from ..ops.norm import row_grads as run
    found = run(name, F, g, v["x"], v["normalized_shape"], weight, v.get("mean"), v["rstd"], needs, waiting)
    return None if found is None else tuple(r for r, need in zip(found, needs, strict=True) if need)


# ---- batch norm + relu ----


def batch_norm_relu(nodes: tuple[Any, ...], g: Any) -> Any:
    """Gradients of batch_norm (or batch_norm_eval) + relu: the masked gradient is made where it is used."""
    relu, norm = nodes
    found = _masked_norm(relu, norm, g, False)
    return None if found is None else tuple(found[t] for t in norm.plan.targets)


def conv_batch_norm_relu(nodes: tuple[Any, ...], g: Any) -> Any:
    """Gradients of convolution + batch_norm (or batch_norm_eval) + relu.

    The convolution's bias gradient costs no pass: the batch's own mean takes a bias away, so that it is 0;
    with fixed statistics it is the norm's bias gradient times weight rstd.
    """
    relu, norm, conv = nodes
    biased = "bias" in conv.plan.targets
    found = _masked_norm(relu, norm, g, biased)
    if found is None:
        return None
    dz, bias = found["x"], None
    if biased and norm.plan.op.name == "batch_norm":
        bias = norm.F.backend.xp.zeros(dz.shape[1], dz.dtype)
    elif biased:
        v = values_of(norm)
        scale = 1.0 / norm.F.backend.xp.sqrt(v["running_var"] + v["eps"])
        if v.get("weight") is not None:
            scale = scale * v["weight"]
        bias = (found["bias"] * scale).astype(dz.dtype, copy=False)
    own = [found[t] for t in norm.plan.targets if t != "x"]
    return (*own, *grads_behind(conv, norm.F, dz, bias))


def _masked_norm(relu: Any, norm: Any, g: Any, summed: bool) -> dict[str, Any] | None:
    """Gradients of x, weight and bias by name, where they are targets. summed: the bias's anyway."""
    out, v, plan = values_of(relu)["out"], values_of(norm), norm.plan
    fixed = plan.op.name == "batch_norm_eval"
    mean, var = (v.get("running_mean"), v.get("running_var")) if fixed else (v["mean"], v["var"])
    needs = {t: t in plan.targets or summed and t == "bias" for t in ("x", "weight", "bias")}
    x, weight, eps = v.get("x"), v.get("weight"), v.get("eps")
    if var is None:  # only the bias's gradient is wanted
        return None
    run = _kernels if norm.F.backend.name == "cuda" else _blocks
    return run(g, x, out, weight, mean, var, eps, fixed, needs)


def _kernels(
    g: Any,
    x: Any,
    out: Any,
    weight: Any,
    mean: Any,
    var: Any,
    eps: Any,
    fixed: bool,
    needs: dict[str, bool],
) -> Any:
    from ..kernel import calls_spatial as calls
    from ..kernel.launch import accumulator
    from ..ops.cuda_kernels import attempt, launch_for

    if out.size >= 1 << 31:
        return None
    solid = g if g.flags.c_contiguous else g.copy()
    if not fixed:
        launch = launch_for(solid, x, out, weight)
        grads = attempt(calls.batch_norm_backward, launch, solid, x, weight, mean, var, eps, needs["x"], out)
    else:
        launch, wide = launch_for(solid, out, x, weight), accumulator(g.dtype)
        mean, var = (None if s is None else s.astype(wide, copy=False) for s in (mean, var))
        grads = attempt(
            calls.batch_norm_eval_backward,
            launch,
            solid,
            x,
            out,
            weight,
            mean,
            var,
            eps,
            tuple(needs.values()),
        )
    return None if grads is None else dict(zip(("x", "weight", "bias"), grads, strict=True))


def _blocks(
    g: Any,
    x: Any,
    out: Any,
    weight: Any,
    mean: Any,
    var: Any,
    eps: Any,
    fixed: bool,
    needs: dict[str, bool],
) -> Any:
    """On the CPU: passes over blocks of samples in cache, spread over threads.

    By the batch's own statistics two: the sums of g' and g' (x - mean) per channel (g' = g where relu let
    through), then dx = scale g' + slope x + shift. By fixed ones one.
    """
    given = [a for a in (x, weight, mean, var) if a is not None]
    if (
        out.dtype.itemsize == 2
        or any(a.dtype != out.dtype for a in (g, *given))
        or not (out.flags.c_contiguous and (x is None or x.flags.c_contiguous))
        or not out.size
    ):
        return None
    work = _Channels(g, x, out)
    rstd = 1.0 / np.sqrt(var + eps)
    scale = rstd if weight is None else rstd * weight
    dx = np.empty_like(out) if needs["x"] else None
    centred = not fixed or needs["weight"]
    if fixed:
        dbias, dots = work.sums(mean if centred else None, dx, scale)
    else:
        dbias, dots = work.sums(mean, None, None)
        if dx is not None:
            count = out.size // out.shape[1]
            slope = scale * rstd * rstd * dots / -count
            work.apply(dx, scale, slope, scale * dbias / -count - slope * mean)
    return {"x": dx, "weight": dots * rstd if centred else None, "bias": dbias}


class _Channels:
    """Arrays [samples, channels, ...] as [samples, channels, inner], or as [samples, channels inner] where
    the inner size is too short to broadcast a coefficient per channel.
    """

    __slots__ = ("channels", "inner", "samples", "flat", "g", "x", "out", "step")
    g: Any
    x: Any
    out: Any

    def __init__(self, g: Any, x: Any, out: Any) -> None:
        n, self.channels = out.shape[:2]
        self.samples, self.inner = n, out.size // (n * self.channels)
        self.flat = self.inner < _LONG
        self.g, self.x, self.out = (None if a is None else self.view(a) for a in (g, x, out))
        self.step = max(1, min(n, sweep.block_size(out.size, out.itemsize) // (out.size // n)))

    def view(self, a: Any) -> Any:
        return a.reshape((self.samples, -1) if self.flat else (self.samples, self.channels, -1))

    def spread(self, c: Any) -> Any:
        """One number per channel, broadcast to a sample."""
        return np.repeat(c, self.inner) if self.flat else c[:, None]

    def collect(self, totals: Any) -> Any:
        """[channels] from sums over samples [channels inner], or from [channels]."""
        return totals.reshape(self.channels, self.inner).sum(1) if self.flat else totals

    def blocks(self, starts: Iterator[int]) -> Any:
        """(slice of samples, masked gradient, scratch of its size) for each block."""
        shape, dtype = (self.step, *self.out.shape[1:]), self.out.dtype
        part, scratch, mask = np.empty(shape, dtype), np.empty(shape, dtype), np.empty(shape, bool)
        for i in starts:
            k = min(self.step, self.samples - i)
            at, gs, m = slice(i, i + k), part[:k], mask[:k]
            np.greater(self.out[at], 0, out=m)  # false at NaN, as in relu's own path on the CPU
            select(m, self.g[at], 0, gs)
            yield at, gs, scratch[:k]

    def share(self, function: Any) -> list[Any]:
        return sweep.shared(function, range(0, self.samples, self.step), self.out.size)

    def sums(self, mean: Any, dx: Any, scale: Any) -> Any:
        """(sum of g', sum of g' (x - mean), or None without a mean) per channel; writes scale g' to dx where
        it is given.
        """
        centre: Any = None if mean is None else self.spread(mean)
        factor: Any = None if dx is None else self.spread(scale)
        target: Any = None if dx is None else self.view(dx)

        def part(starts: Iterator[int]) -> Iterator[Any]:
            size = self.channels * self.inner if self.flat else self.channels
            for at, gs, t in self.blocks(starts):
                total = np.zeros((2, size), self.out.dtype)
                total[0] = np.add.reduce(gs, 0) if self.flat else np.add.reduce(gs, 2).sum(0)
                if centre is not None:
                    np.subtract(self.x[at], centre, out=t)
                    if self.flat:
                        t *= gs
                        total[1] = np.add.reduce(t, 0)
                    else:
                        total[1] = np.vecdot(gs, t).sum(0)
                if target is not None:
                    np.multiply(gs, factor, out=target[at])
                yield total

        first, *rest = self.share(part)
        for other in rest:
            first += other
        return self.collect(first[0]), None if mean is None else self.collect(first[1])

    def apply(self, dx: Any, scale: Any, slope: Any, shift: Any) -> None:
        """Nothing; writes scale g' + slope x + shift to dx."""
        target = self.view(dx)
        a, b, c = self.spread(scale), self.spread(slope), self.spread(shift)

        def part(starts: Iterator[int]) -> Iterator[None]:
            for at, gs, _ in self.blocks(starts):
                d = target[at]
                np.multiply(self.x[at], b, out=d)
                gs *= a
                d += gs
                d += c
                yield

        self.share(part)
