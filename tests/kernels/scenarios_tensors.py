"""Scenarios of the kernels that take many tensors in one launch: optimisers, norms and scales of
gradients.
"""

import numpy as np

from lucid.kernel.launch import accumulator
from lucid.kernel.multi_tensor import (
    CHUNK,
    NORMS,
    STATES,
    MultiTensor,
    adam_numbers,
    counts,
    gradient_clip,
    gradient_norm,
    gradient_unscale,
    loss_scale,
    sgd_numbers,
)
from lucid.storage.dtype import as_dtype
from tests.kernels import formulas
from tests.kernels.formulas import close, f8
from tests.kernels.sim import device, normal

_ADAM = dict(beta1=0.8, beta2=0.9, eps=1e-2)
# Two lines of numbers for each kernel.
_STEPS = {
    "sgd": (dict(weight_decay=0.1), dict(maximize=True)),
    "sgd_momentum": (
        dict(momentum=0.9, dampening=0.3, weight_decay=0.1),
        dict(momentum=0.8, nesterov=True, maximize=True),
    ),
    **{
        name: (_ADAM | dict(weight_decay=0.1), _ADAM | dict(maximize=True))
        for name in ("adam", "adamw", "adam_amsgrad", "adamw_amsgrad")
    },
}
# One element, whole packs, a tail, more than a chunk, none.
_SIZES = (1, 64, 70, CHUNK + 5, 0)


def _tensors(dtype, seed, odd):
    # The last at an odd address among even ones.
    return [normal(n, dtype, seed + n, odd) for n in _SIZES] + [normal(30, dtype, seed, 1)]


def optimizers(sim, dtype, odd):
    wide = accumulator(as_dtype(dtype))
    for name, lines in _STEPS.items():
        numbers = sgd_numbers if name.startswith("sgd") else adam_numbers
        params = _tensors(dtype, 0, odd)
        state = [[device(np.zeros(p.shape, wide), odd) for p in params] for _ in range(STATES[name])]
        steps = [counts(sim, p.size, 0) for p in params]
        which = [0, 1, 0, 1, 0, 1]
        kept = [*params, *steps, *sum(state, [])]
        sim.memory = kept
        step = MultiTensor(sim, name, params, state, steps, which)
        tables = sim.memory[len(kept) :]
        for t in (1, 2, 3):
            grads = [None if t == 2 and i == 1 else g for i, g in enumerate(_tensors(dtype, 7 * t, odd))]
            sim.memory = [*kept, *tables, *(g for g in grads if g is not None)]
            factor = 0.5 if t == 3 else 1.0
            scale = device(np.full(1, factor, wide)) if t == 3 else None
            before = [v.copy() for v in kept]
            send = [numbers(0.1, **line) for line in lines]
            step(grads, send, scale=scale, skip=device(np.ones(1, np.int32)))
            for old, now in zip(before, kept, strict=True):
                np.testing.assert_array_equal(old, now, err_msg=f"{name}: a step that was left out")
            step(grads, send, scale=scale, skip=device(np.zeros(1, np.int32)) if t == 2 else None)
            for i, g in enumerate(grads):
                taken = 1 if g is None else factor
                rest = [v[i] for v in state]
                olds = [
                    before[i],
                    *(before[2 * len(params) + j * len(params) + i] for j in range(len(state))),
                ]
                done = t - (t == 3 and i == 1)
                _judge_step(name, olds, (params[i], *rest), steps[i], done, g, lines[which[i]], taken)


def optimizers_far(sim, dtype, odd):
    """Step numbers beyond 2^31, and tensors of which one array alone lies at an odd address."""
    wide = accumulator(as_dtype(dtype))
    for name in ("sgd", "adam_amsgrad"):
        n = 2 + STATES[name]
        at = [[odd ^ (i == j) for j in range(n)] for i in range(n)]  # parameter, gradient, states
        params = [normal(70, dtype, i, at[i][0]) for i in range(n)]
        grads = [normal(70, dtype, 10 + i, at[i][1]) for i in range(n)]
        state = [[device(np.ones(70, wide), at[i][2 + j]) for i in range(n)] for j in range(n - 2)]
        steps = [counts(sim, 70, 1 << 31) for _ in params]
        kept = [*params, *steps, *sum(state, [])]
        sim.memory = kept
        step = MultiTensor(sim, name, params, state, steps, [0] * n)
        sim.memory = [*kept, *sim.memory[len(kept) :], *grads]
        before = [[v[i].copy() for v in (params, *state)] for i in range(n)]
        line = _STEPS[name][0]
        step(grads, [(sgd_numbers if name == "sgd" else adam_numbers)(0.1, **line)])
        for i, g in enumerate(grads):
            after = (params[i], *(v[i] for v in state))
            _judge_step(name, before[i], after, steps[i], (1 << 31) + 1, g, line, 1)


def _judge_step(name, before, after, steps, t, g, options, factor):
    assert (steps == (t if g is not None else t - 1)).all(), name
    p, *state = (f8(v) for v in before)
    if g is not None:
        if name.startswith("sgd"):
            rest = dict(weight_decay=0.0, momentum=0.0, dampening=0.0, nesterov=False, maximize=False)
            formulas.sgd(p, f8(g) * factor, state, t, 0.1, **(rest | options))
        else:
            rest = dict(weight_decay=0.0, maximize=False, decoupled=name.startswith("adamw"))
            formulas.adam(p, f8(g) * factor, state, t, 0.1, **(rest | options))
    for got, exact, what in zip(after, (p, *state), ("param", "first", "second", "third"), strict=False):
        close(got, exact, f"{name} step {t} of {len(p)} elements: {what}")


def gradients(sim, dtype, odd):
    grads = [g for g in _tensors(dtype, 3, odd) if g.size]
    wide, small = accumulator(grads[0].dtype), sim.small()
    for p in NORMS:
        flat = np.concatenate([f8(g) for g in grads])
        sim.memory = list(grads)
        close(gradient_norm(sim, grads, p), [np.linalg.norm(flat, p)], f"gradient_norm {p}")
        grads[2][5] = np.nan
        assert np.isnan(gradient_norm(sim, grads, p)).all()
        grads[2][5] = 1
    # More blocks than the last launch's 512 threads.
    many = normal(600 * CHUNK if dtype == "float16" else 10, dtype, 4, odd)
    small.memory = [many]
    close(gradient_norm(small, [many], 2.0), [np.linalg.norm(f8(many))], "gradient_norm of many blocks")
    for total in (0.5, 2.0, 1.0):
        factor = min(1.0, 1.0 / (total + 1e-6))
        before = [g.copy() for g in grads]
        sim.memory = list(grads)
        gradient_clip(sim, grads, device(np.full(1, total, wide)), 1.0)
        for old, now in zip(before, grads, strict=True):
            close(now, f8(old) * factor, f"gradient_clip {total}")
    for bad in (0.0, np.inf, np.nan):
        # Whole packs, a tail, an odd address; many threads and both blocks of a tensor.
        for i, at in ((2, 33), (3, -1), (4, 0), (3, slice(None, None, 1000))):
            mine, found = [g.copy() for g in grads], device(np.zeros(1, np.int32))
            mine = [device(m, g.ctypes.data % 16 // g.itemsize) for m, g in zip(mine, grads, strict=True)]
            mine[i][at] = bad
            before = [g.copy() for g in mine]
            sim.memory = list(mine)
            gradient_unscale(sim, mine, device(np.full(1, 4.0, wide)), found)
            assert found[0] == (not np.isfinite(bad)), (bad, i)
            for old, now in zip(before, mine, strict=True):
                close(now, f8(old) / 4.0, f"gradient_unscale {bad}")
    _loss_scales(sim)


def _loss_scales(sim):
    scale, good = device(np.ones(1, np.float32)), device(np.zeros(1, np.int32))
    seen = []
    for bad in (0, 0, 0, 1, 0, 0, 0):
        loss_scale(sim, scale, good, device(np.full(1, bad, np.int32)), 3.0, 0.5, 2)
        seen.append((scale[0], good[0]))
    assert seen == [(1, 1), (3, 0), (3, 1), (1.5, 0), (1.5, 1), (4.5, 0), (4.5, 1)]
    scale[0] = 2.0**127
    loss_scale(sim, scale, good, device(np.zeros(1, np.int32)), 3.0, 0.5, 2)
    assert scale[0] == np.float32(2.0**127) and good[0] == 0
