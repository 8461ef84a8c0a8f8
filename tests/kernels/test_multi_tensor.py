"""Optimiser steps, norms, clipping and unscaling of many tensors in one launch, against the rules written out
in float64.
"""

import math

import numpy as np
import pytest

from lucid.errors import KernelError
from lucid.kernel import multi_tensor as mt
from lucid.kernel.launch import accumulator
from lucid.kernel.multi_tensor import CHUNK, MultiTensor, adam_numbers, counts, sgd_numbers
from lucid.storage.dtype import as_dtype
from tests.kernels.sim import DTYPES, ORDERS, Sim, device, judge, normal

# One element, an odd size, a whole number of packs, more than one chunk, an odd address, nothing.
SHAPES = (((1,), 0), ((5, 7), 0), ((64,), 0), ((CHUNK + 9,), 0), ((30,), 1), ((0, 2), 0))


def _tensors(dtype, seed):
    return [normal(shape, dtype, seed + i, offset) for i, (shape, offset) in enumerate(SHAPES)]


def _bound(name, dtype, sim, step=0, lines=None):
    """(a MultiTensor, its params, states and steps)."""
    wide = accumulator(as_dtype(dtype)).name
    params = _tensors(dtype, 0)
    states = [[device(np.zeros(p.shape, wide)) for p in params] for _ in range(mt.STATES[name])]
    steps = [counts(sim, p.size, step) for p in params]
    sim.memory = [*params, *sum(states, []), *steps, *sim.memory]
    return MultiTensor(sim, name, params, states, steps, lines), params, states, steps


def _run(name, dtype, number, sim, numbers, scale=None, skip=None):
    step, params, states, steps = _bound(name, dtype, sim)
    for t in range(1, number + 1):
        grads = _tensors(dtype, 10 * t)
        sim.memory = [*grads, *sim.memory]
        step(grads, [numbers], scale=scale, skip=skip)
    return params, states, steps


def _sgd(p, g, state, t, lr, weight_decay=0.0, momentum=0.0, dampening=0.0, nesterov=False, maximize=False):
    d = (-g if maximize else g) + weight_decay * p
    if momentum:
        state[0][...] = d if t == 1 else momentum * state[0] + (1 - dampening) * d
        d = d + momentum * state[0] if nesterov else state[0]
    p -= lr * d


def _adam(p, g, state, t, lr, beta1, beta2, eps, weight_decay=0.0, maximize=False, decoupled=False):
    d = -g if maximize else g
    if decoupled:
        p *= 1 - lr * weight_decay
    else:
        d = d + weight_decay * p
    m, v, *most = state
    m += (1 - beta1) * (d - m)
    v += (1 - beta2) * (d * d - v)
    for x in most:
        np.maximum(x, v, out=x)
        v = x
    p -= lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)


def _check(dtype, result, rule, steps, states, factor=1.0, **options):
    for i, (shape, _) in enumerate(SHAPES):
        values = []
        # float64 all through, and the plain formula: rounded to the dtypes of
        # parameter and state after each step
        for kind, keep in (("float64", "float64"), (accumulator(as_dtype(dtype)).name, dtype)):
            p, state = _tensors(dtype, 0)[i].astype(kind), [np.zeros(shape, kind) for _ in range(states)]
            for t in range(1, steps + 1):
                g = _tensors(dtype, 10 * t)[i].astype(kind) * np.dtype(kind).type(factor)
                rule(p, g, state, t, **options)
                p[...] = p.astype(as_dtype(dtype if kind != "float64" or dtype == "float64" else keep))
            values.append(p)
        if p.size:
            judge(result[i], values[0], values[1].astype(as_dtype(dtype)), f"{dtype} {shape}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", (dict(lr=0.1), dict(lr=0.1, weight_decay=0.2, maximize=True)))
def test_sgd(dtype, options):
    runs = [_run("sgd", dtype, 2, Sim(order, seed), sgd_numbers(**options))[0] for order, seed in ORDERS]
    _check(dtype, runs[0], _sgd, 2, 0, **options)
    for other in runs[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(runs[0], other, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options",
    (
        dict(momentum=0.9),
        dict(momentum=0.9, nesterov=True, weight_decay=0.1),
        dict(momentum=0.5, dampening=0.3),
    ),
)
def test_sgd_with_momentum(dtype, options):
    params, _, _ = _run("sgd_momentum", dtype, 3, Sim(), sgd_numbers(lr=0.1, **options))
    _check(dtype, params, _sgd, 3, 1, lr=0.1, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ("adam", "adamw", "adam_amsgrad", "adamw_amsgrad"))
def test_adam(name, dtype):
    options = dict(lr=0.05, beta1=0.9, beta2=0.9, eps=1e-8, weight_decay=0.1)
    runs = [_run(name, dtype, 3, Sim(order, seed), adam_numbers(**options)) for order, seed in ORDERS]
    decoupled = name.startswith("adamw")
    _check(dtype, runs[0][0], _adam, 3, mt.STATES[name], decoupled=decoupled, **options)
    for params, states, _ in runs[1:]:
        for a, b in zip([*runs[0][0], *sum(runs[0][1], [])], [*params, *sum(states, [])], strict=True):
            assert a.tobytes() == b.tobytes()


def test_amsgrad_lets_nan_through():
    sim = Sim()
    step, params, states, _ = _bound("adam_amsgrad", "float32", sim)
    grads = _tensors("float32", 1)
    grads[2][5] = np.nan
    sim.memory = [*grads, *sim.memory]
    step(grads, [adam_numbers(0.1, 0.9, 0.9, 1e-8)])
    for x in (params[2], states[2][2]):
        assert np.isnan(x[5]) and np.isnan(x).sum() == 1


def test_scale_and_skip():
    sim, options = Sim(), dict(lr=0.05, beta1=0.9, beta2=0.99, eps=1e-8)
    numbers = adam_numbers(**options)
    half, no, yes = device(np.array([0.5], "f4")), device(np.zeros(1, "i4")), device(np.ones(1, "i4"))
    params, _, steps = _run("adam", "float32", 2, sim, numbers, scale=half, skip=no)
    _check("float32", params, _adam, 2, 2, factor=0.5, **options)
    assert all((n == 2).all() for n in steps)
    params, states, steps = _run("adam", "float32", 2, sim, numbers, skip=yes)
    for p, q, m, n in zip(params, _tensors("float32", 0), states[0], steps, strict=True):
        np.testing.assert_array_equal(p, q)
        assert not m.any() and not n.any()


def test_each_tensor_counts_its_steps():
    """A tensor without a gradient keeps everything, its step number included, and goes on from there."""
    sim, options = Sim(), dict(lr=0.05, beta1=0.8, beta2=0.9, eps=1e-8)
    step, params, states, steps = _bound("adam", "float32", sim)
    pattern = [[t % (i + 1) == 0 for i in range(len(params))] for t in range(6)]
    expected = [(p.astype("f8"), [np.zeros(p.shape), np.zeros(p.shape)]) for p in params]
    made = [0] * len(params)
    for t, row in enumerate(pattern):
        grads = [g if has else None for g, has in zip(_tensors("float32", 10 * t), row, strict=True)]
        sim.memory = [*(g for g in grads if g is not None), *sim.memory]
        step(grads, [adam_numbers(**options)])
        for i, g in enumerate(grads):
            if g is not None:
                made[i] += 1
                _adam(expected[i][0], g.astype("f8"), expected[i][1], made[i], **options)
    for n, count in zip(steps, made, strict=True):
        assert (n == count).all()
    for p, (q, _) in zip(params, expected, strict=True):
        np.testing.assert_allclose(p, q, rtol=2e-5, atol=2e-6)


def test_lines_of_numbers():
    """Tensors of two parameter groups go into one launch, each with the numbers of its group."""
    sim = Sim()
    step, params, _, _ = _bound("sgd", "float64", sim, lines=[0, 1, 0, 1, 0, 1])
    before = [p.copy() for p in params]
    grads = _tensors("float64", 1)
    sim.memory = [*grads, *sim.memory]
    step(grads, [sgd_numbers(lr=0.5), sgd_numbers(lr=2.0, maximize=True)])
    for i, (p, q, g) in enumerate(zip(params, before, grads, strict=True)):
        np.testing.assert_allclose(p, q + 2.0 * g if i % 2 else q - 0.5 * g, rtol=1e-15)
    assert sim.launches == ["sgd"]


def test_one_launch_and_tables_kept():
    sim = Sim()
    uploads = []
    upload = sim.upload
    sim.upload = lambda x: uploads.append(x.nbytes) or upload(x)
    step, params, _, _ = _bound("sgd", "float32", sim)
    # sizes and the two maps of blocks; addresses of params and steps; lines
    assert len(uploads) == 6
    grads, numbers = _tensors("float32", 1), sgd_numbers(lr=0.1)
    sim.memory = [*grads, *sim.memory]
    for _ in range(3):
        step(grads, [numbers])
    assert sim.launches == ["sgd"] * 3
    # addresses of gradients, numbers: once
    assert len(uploads) == 8
    others = [device(g) for g in grads]
    sim.memory = [*others, *sim.memory]
    step(others, [sgd_numbers(lr=0.05)])
    assert uploads[8:] == [8 * len(grads), 32]
    # A table is never overwritten: both are known, whoever launches.
    step(grads, [sgd_numbers(lr=0.05)])
    mt.gradient_norm(sim, [g for g in others if g.size], 2.0)
    assert len(uploads) == 14 and mt.gradient_norm(sim, [g for g in others if g.size], 2.0) > 0
    assert len(uploads) == 14


def test_numbers_keep_their_address():
    sim = Sim()
    step, _, _, _ = _bound("sgd", "float32", sim)
    seen = []
    launch = sim.__call__

    class Watching:
        def __getattr__(self, name):
            return getattr(sim, name)

        def __call__(self, name, grid, block, args, *rest, **sizes):
            seen.append(sim.address(args[10]))
            return launch(name, grid, block, args, *rest, **sizes)

    step.launch = Watching()
    grads = _tensors("float32", 1)
    sim.memory = [*grads, *sim.memory]
    for lr in (0.1, 0.2, 0.3):
        step(grads, [sgd_numbers(lr=lr)])
    assert len(set(seen)) == 1


def test_tensors_that_do_not_fit():
    sim, p = Sim(), normal((3, 4), "float32")
    n, numbers = counts(sim, 12, 0), [sgd_numbers(lr=0.1)]
    step = MultiTensor(sim, "sgd", [p], [], [n])
    with pytest.raises(KernelError, match=r"expected 1 grads, got 2"):
        step([p, p], numbers)
    with pytest.raises(
        KernelError, match=r"grads\[0\] must be C-contiguous float32\[3, 4\], got float32\[4, 3\]"
    ):
        step([p.T], numbers)
    with pytest.raises(KernelError, match=r"states\[0\]\[0\] must be C-contiguous float32.*got float64"):
        MultiTensor(sim, "adam", [p], [[p.astype("f8")], [p]], [n])
    with pytest.raises(KernelError, match=r"params\[0\] must be C-contiguous float32.*with strides"):
        MultiTensor(sim, "sgd", [p.T], [], [n])
    with pytest.raises(KernelError, match="adam: expected 2 arrays of state, got 1"):
        MultiTensor(sim, "adam", [p], [[p]], [n])
    with pytest.raises(KernelError, match=r"steps\[0\] must be what counts\(launch, 12"):
        MultiTensor(sim, "sgd", [p], [], [counts(sim, CHUNK + 1, 0)])
    with pytest.raises(KernelError, match="expected one of sgd, sgd_momentum, adam"):
        MultiTensor(sim, "lion", [p], [], [n])


def test_gradients_of_another_layout_or_dtype_are_copied():
    sim, p = Sim(), normal((3, 4), "float32")
    step = MultiTensor(sim, "sgd", [p], [], [counts(sim, 12, 0)])
    g, before = normal((4, 3), "float64", 3).T, p.copy()
    sim.memory = [p]
    step([g], [sgd_numbers(lr=1.0)])
    np.testing.assert_allclose(p, before - g, rtol=1e-6, atol=1e-6)


# ---- gradients ----


def _gradients(dtype, seed=0):
    return [g for g in _tensors(dtype, seed) if g.size]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", (2.0, 1.0, math.inf))
def test_norm(p, dtype):
    totals = []
    for order, seed in ORDERS:
        sim, grads = Sim(order, seed), _gradients(dtype)
        sim.memory = [*grads]
        totals.append(mt.gradient_norm(sim, grads, p))
        assert sim.launches == ["gradient_norm", "gradient_norm_finish"]
    assert len({t.tobytes() for t in totals}) == 1, "the norm depends on the order of blocks"
    exact = np.linalg.norm(np.concatenate([g.astype("f8").ravel() for g in grads]), p)
    assert totals[0].dtype == accumulator(as_dtype(dtype))
    np.testing.assert_allclose(totals[0][0], exact, rtol=1e-14 if dtype == "float64" else 1e-6)


@pytest.mark.parametrize("p", (2.0, 1.0, math.inf))
@pytest.mark.parametrize("place", ((0, 0), (3, CHUNK + 8)))
@pytest.mark.parametrize("bad", (np.nan, np.inf))
def test_norm_of_what_is_not_finite(p, place, bad):
    sim, grads = Sim(), _gradients("float32")
    grads[place[0]].reshape(-1)[place[1]] = bad
    sim.memory = [*grads]
    np.testing.assert_array_equal(mt.gradient_norm(sim, grads, p), [bad])


@pytest.mark.parametrize("dtype", DTYPES)
def test_clip(dtype):
    wide = accumulator(as_dtype(dtype))
    for total, limit in ((4.0, 1.0), (0.5, 1.0), (np.inf, 1.0), (np.nan, 1.0)):
        sim, grads = Sim(), _gradients(dtype)
        sim.memory = [*grads]
        mt.gradient_clip(sim, grads, device(np.full(1, total, wide)), limit)
        factor = wide.type(limit) / (wide.type(total) + wide.type(1e-6))
        for g, x in zip(grads, _gradients(dtype), strict=True):
            expected = x if factor >= 1 else (x.astype(wide) * factor).astype(x.dtype)
            np.testing.assert_array_equal(g.astype(wide), expected.astype(wide))


@pytest.mark.parametrize("dtype", DTYPES)
def test_unscale(dtype):
    wide = accumulator(as_dtype(dtype))
    for bad in (None, np.inf, np.nan):
        sim, grads, found = Sim(), _gradients(dtype), device(np.zeros(1, "i4"))
        if bad is not None:
            grads[3][CHUNK + 8] = bad
        before = [g.copy() for g in grads]
        sim.memory = [*grads]
        mt.gradient_unscale(sim, grads, device(np.full(1, 8.0, wide)), found)
        assert bool(found[0]) == (bad is not None)
        for g, x in zip(grads, before, strict=True):
            expected = (x.astype(wide) / 8).astype(x.dtype)
            np.testing.assert_array_equal(g.astype(wide), expected.astype(wide))


def test_loss_scale():
    sim = Sim()
    scale, good = device(np.full(1, 8.0, "f4")), device(np.zeros(1, "i4"))
    seen = []
    for bad in (0, 0, 0, 1, 0, 0):
        mt.loss_scale(sim, scale, good, device(np.full(1, bad, "i4")), 2.0, 0.25, 2)
        seen.append((float(scale[0]), int(good[0])))
    assert seen == [(8, 1), (16, 0), (16, 1), (4, 0), (4, 1), (8, 0)]
    scale[0], good[0] = 3e38, 1
    mt.loss_scale(sim, scale, good, device(np.zeros(1, "i4")), 2.0, 0.25, 2)
    assert scale[0] == np.float32(3e38) and good[0] == 0
