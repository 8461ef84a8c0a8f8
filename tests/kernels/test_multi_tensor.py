"""Optimiser steps over many tensors in one launch, against the rules written out in float64."""

import numpy as np
import pytest

from lucid.errors import KernelError
from lucid.kernel.launch import accumulator
from lucid.kernel.multi_tensor import CHUNK, MultiTensor
from lucid.storage.dtype import as_dtype
from tests.kernels.sim import DTYPES, ORDERS, Sim, device, judge, normal

# One element, an odd size, a whole number of packs, more than one chunk, an odd address.
SHAPES = (((1,), 0), ((5, 7), 0), ((64,), 0), ((CHUNK + 9,), 0), ((30,), 1))


def _tensors(dtype, seed, kind=None, positive=False):
    values = [
        normal(shape, dtype if kind is None else kind, seed + i, offset)
        for i, (shape, offset) in enumerate(SHAPES)
    ]
    return [np.abs(v) for v in values] if positive else values


def _run(name, dtype, steps, sim, states, scale=None, skip=None, **options):
    wide = accumulator(as_dtype(dtype)).name
    params = _tensors(dtype, 0)
    first, second = (
        ([device(np.zeros(p.shape, wide)) for p in params] if states > i else []) for i in range(2)
    )
    step = MultiTensor(sim, name)
    for t in range(1, steps + 1):
        grads = _tensors(dtype, 10 * t)
        sim.memory = [*params, *grads, *first, *second, *sim.memory]
        step(params, grads, first, second, step=t, scale=scale, skip=skip, **options)
    return params, first, second


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
    m, v = state
    m += (1 - beta1) * (d - m)
    v += (1 - beta2) * (d * d - v)
    p -= lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)


def _check(dtype, result, rule, steps, states, factor=1.0, **options):
    for i, (shape, _) in enumerate(SHAPES):
        values = []
        # float64 all through, and the plain formula: rounded to the dtypes of
        # parameter and state after each step
        for kind, keep in (("float64", "float64"), (accumulator(as_dtype(dtype)).name, dtype)):
            p, state = _tensors(dtype, 0)[i].astype(kind), [np.zeros(shape, kind) for _ in range(states)]
            for t in range(1, steps + 1):
                rule(
                    p,
                    _tensors(dtype, 10 * t)[i].astype(kind) * np.dtype(kind).type(factor),
                    state,
                    t,
                    **options,
                )
                p[...] = p.astype(as_dtype(dtype if kind != "float64" or dtype == "float64" else keep))
            values.append(p)
        judge(result[i], values[0], values[1].astype(as_dtype(dtype)), f"{dtype} {shape}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", (dict(lr=0.1), dict(lr=0.1, weight_decay=0.2, maximize=True)))
def test_sgd(dtype, options):
    for order, seed in ORDERS:
        params, _, _ = _run("sgd", dtype, 2, Sim(order, seed), 0, **options)
        _check(dtype, params, _sgd, 2, 0, **options)


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
    params, _, _ = _run("sgd_momentum", dtype, 3, Sim(), 1, lr=0.1, **options)
    _check(dtype, params, _sgd, 3, 1, lr=0.1, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ("adam", "adamw"))
def test_adam(name, dtype):
    options = dict(lr=0.05, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.1)
    for order, seed in ORDERS:
        params, _, _ = _run(name, dtype, 2, Sim(order, seed), 2, **options)
    _check(dtype, params, _adam, 2, 2, decoupled=name == "adamw", **options)


def test_scale_and_skip():
    sim, options = Sim(), dict(lr=0.05, beta1=0.9, beta2=0.99, eps=1e-8)
    params, _, _ = _run(
        "adam",
        "float32",
        2,
        sim,
        2,
        scale=device(np.array([0.5], "f4")),
        skip=device(np.zeros(1, "i4")),
        **options,
    )
    _check("float32", params, _adam, 2, 2, factor=0.5, **options)
    params, first, _ = _run("adam", "float32", 2, sim, 2, skip=device(np.ones(1, "i4")), **options)
    for p, q, m in zip(params, _tensors("float32", 0), first, strict=True):
        np.testing.assert_array_equal(p, q)
        assert not m.any()


def test_one_launch_and_tables_kept():
    sim = Sim()
    uploads = []
    upload = sim.upload
    sim.upload = lambda x: uploads.append(x) or upload(x)
    params = _tensors("float32", 0)
    grads = _tensors("float32", 1)
    step = MultiTensor(sim, "sgd")
    for t in (1, 2, 3):
        step(params, grads, step=t, lr=0.1)
    assert sim.launches == ["sgd"] * 3
    # addresses of parameters and gradients, sizes, the two maps, numbers, step: once
    assert len(uploads) == 7
    step(params, [device(g) for g in grads], step=4, lr=0.05)
    assert len(uploads) == 13


def test_tensors_that_do_not_fit():
    sim, p = Sim(), normal((3, 4), "float32")
    with pytest.raises(KernelError, match=r"expected 1 grads, got 2"):
        MultiTensor(sim, "sgd")([p], [p, p], step=1, lr=0.1)
    with pytest.raises(
        KernelError, match=r"grads\[0\] must be C-contiguous float32\[3, 4\], got float32\[4, 3\]"
    ):
        MultiTensor(sim, "sgd")([p], [p.T], step=1, lr=0.1)
    with pytest.raises(KernelError, match=r"first\[0\] must be C-contiguous float32.*got float64"):
        MultiTensor(sim, "adam")([p], [p], [p.astype("f8")], [p], step=1, lr=0.1)
    with pytest.raises(KernelError, match="expected sgd, sgd_momentum, adam or adamw"):
        MultiTensor(sim, "lion")
