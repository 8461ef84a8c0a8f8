"""Chains with a norm: batch norm + relu (by batch and by fixed statistics, a convolution before it), layer
and RMS norm behind a residual. Fused equals unfused in every dtype and layout; passes are counted on the
simulated device.
"""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import fusion
from lucid.autograd import Engine
from lucid.fusion import sweep
from tests.fusion.helpers import DTYPES, LF, arr, few, gradients, launches, same

pytestmark = pytest.mark.usefixtures("small")


# ---- batch norm + relu ----


def tensors(device, dtype, *arrays):
    return [lucid.tensor(a, device=device).to(dtype) for a in arrays]


def norm_relu(x, w, b):
    return LF.relu(LF.batch_norm(x, None, None, w, b, training=True))


def eval_relu(device, dtype, channels):
    """batch norm by fixed statistics + relu, as a function of x, weight and bias."""
    rng = np.random.default_rng(1)
    mean, var = tensors(device, dtype, rng.standard_normal(channels), rng.uniform(0.5, 2.0, channels))
    return lambda x, w, b: LF.relu(LF.batch_norm(x, mean, var, w, b, training=False))


SHAPES = [(4, 3), (2, 3, 4, 5), (5, 2, 7), (1, 4, 8), (3, 8, 4, 4), (300, 3, 16, 16), (2, 3, 40, 40)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["batch", "fixed"])
def test_batch_norm_relu(device, shape, dtype, training):
    few(device, dtype, shape in ((4, 3), (2, 3, 4, 5)))
    if np.prod(shape) > 5000 and (device != "cpu" or dtype != "float64"):
        pytest.skip("many elements: once")
    fits = device != "cpu" or dtype in ("float64", "float32")
    name = "batch_norm_relu" if training else "batch_norm_eval_relu"
    f = norm_relu if training else eval_relu(device, dtype, shape[1])
    tol = {"bfloat16": 0.2, "float16": 3e-2}.get(dtype)
    same(f, [arr(*shape), arr(shape[1]), arr(shape[1])], device, dtype, name if fits else None, tol)


@pytest.mark.parametrize("training", [True, False], ids=["batch", "fixed"])
def test_batch_norm_relu_gives_what_is_asked_for(device, training):
    x, w, b = arr(4, 3, 5), *tensors(device, "float64", arr(3), arr(3))
    xt = lucid.tensor(x, device=device)
    f = norm_relu if training else eval_relu(device, "float64", 3)
    name = "batch_norm_relu" if training else "batch_norm_eval_relu"
    same(lambda x: f(x, w, b), [x], device, expect=name)
    same(lambda w, b: f(xt, w, b), [arr(3), arr(3)], device, expect=name)
    same(lambda w: f(xt, w, None), [arr(3)], device, expect=name)
    same(lambda x: f(x, None, None), [x], device, expect=name)
    # Of fixed statistics nothing is kept for the bias's gradient alone.
    same(lambda b: f(xt, w, b), [arr(3)], device, expect=name if training else None)


@pytest.mark.parametrize("training", [True, False], ids=["batch", "fixed"])
def test_nan_passes_the_mask_as_it_passes_relu(device, training):
    x = arr(4, 3, 5)
    x[1, 2, 3] = np.nan
    f = norm_relu if training else eval_relu(device, "float64", 3)
    arrays = [x, arr(3), arr(3)]
    a, stats = gradients(f, arrays, device, "float64", True)
    b, _ = gradients(f, arrays, device, "float64", False)
    assert stats.fused == 1
    for p, q in zip(a, b, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("training", [True, False], ids=["batch", "fixed"])
def test_gradients_that_are_views(device, training):
    f = norm_relu if training else eval_relu(device, "float64", 3)
    same(lambda x, w, b: f(x, w, b).sum(), [arr(4, 3, 5), arr(3), arr(3)], device,
         expect="batch_norm_relu" if training else "batch_norm_eval_relu")  # fmt: skip
    same(lambda x, w, b: f(x, w, b).transpose(0, 2), [arr(4, 3, 5), arr(3), arr(3)], device,
         expect="batch_norm_relu" if training else "batch_norm_eval_relu")  # fmt: skip
    # The norm keeps its input as it is: a view has no rows that a kernel or a sweep could read.
    same(lambda x, w, b: f(x.transpose(0, 2), w, b), [arr(5, 3, 4), arr(3), arr(3)], device)


def test_many_blocks_on_several_threads(monkeypatch):
    for shape in ((37, 5, 3, 3), (9, 2, 40, 40)):
        a = [arr(*shape), arr(shape[1]), arr(shape[1])]
        f, e = norm_relu, eval_relu("cpu", "float64", shape[1])
        plain = [gradients(h, a, "cpu", "float64", False)[0] for h in (f, e)]
        with monkeypatch.context() as m:
            m.setattr(sweep, "BLOCK", 64)
            m.setattr(sweep, "THREADED", 128)
            m.setattr(sweep, "_threads", 3)
            m.setattr(sweep, "_pool", None)
            first, second = ([gradients(h, a, "cpu", "float64", True)[0] for h in (f, e)] for _ in range(2))
        for p, q, r in zip(plain, first, second, strict=True):
            for u, v, w in zip(p, q, r, strict=True):
                np.testing.assert_allclose(u, v, rtol=1e-9, atol=1e-9)
                assert v.tobytes() == w.tobytes()


# ---- convolution + batch norm + relu ----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("training", [True, False], ids=["batch", "fixed"])
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
def test_conv_batch_norm_relu(device, dtype, training, biased):
    fits = device != "cpu" or dtype in ("float64", "float32")
    name = "conv_batch_norm_relu" if training else "conv_batch_norm_eval_relu"
    f = norm_relu if training else eval_relu(device, dtype, 3)
    arrays = [arr(2, 2, 5, 5), arr(3, 2, 2, 2), arr(3), arr(3), *([arr(3)] if biased else [])]
    # A bias before batch statistics has gradient 0; unfused it is the rounding error of a sum.
    tol = {"bfloat16": 0.5, "float16": 6e-2, "float32": 1e-3}.get(dtype)
    same(
        lambda x, k, w, b, *c: f(LF.conv2d(x, k, *c, padding=1), w, b),
        arrays,
        device,
        dtype,
        name if fits else None,
        tol,
    )


def test_conv_chain_with_frozen_parts(device):
    x, k = arr(2, 2, 5, 5), arr(3, 2, 2, 2)
    kt, w, b = tensors(device, "float64", k, arr(3), arr(3))
    for training in (True, False):
        f = norm_relu if training else eval_relu(device, "float64", 3)
        name = "conv_batch_norm_relu" if training else "conv_batch_norm_eval_relu"
        same(lambda x: f(LF.conv2d(x, kt), w, b), [x], device, expect=name)  # noqa: B023
        same(lambda x, c: f(LF.conv2d(x, kt, c), w, b), [x, arr(3)], device, expect=name)  # noqa: B023
        same(lambda k, w: f(LF.conv2d(lucid.tensor(x, device=device), k), w, None),  # noqa: B023
             [k, arr(3)], device, expect=name)  # fmt: skip


def test_conv_chain_falls_back_and_is_refused(device):
    seen = []

    def hooked(x, k, w, b):
        h = LF.conv2d(x, k)
        h.register_hook(lambda g: seen.append(g))
        return norm_relu(h, w, b)

    arrays = [arr(2, 2, 5, 5), arr(3, 2, 2, 2), arr(3), arr(3)]
    # Hooked between convolution and norm: the shorter chain.
    same(hooked, arrays, device, expect="batch_norm_relu")
    assert len(seen) == 2

    def between(x, k, w, b):
        h = LF.batch_norm(LF.conv2d(x, k), None, None, w, b, training=True)
        return LF.relu(h) + h

    same(between, arrays, device)


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("training", [True, False], ids=["batch", "fixed"])
def test_batch_norm_relu_passes_on_cuda(device, training):
    f = norm_relu if training else eval_relu(device, "float32", 8)
    (raw, every), (_, unfused) = launches(f, arr(4, 8, 4, 4), arr(8), arr(8))
    # sums, finish, dx; by fixed statistics one pass and the finish
    assert raw == every == (3 if training else 2)
    assert unfused - every >= 1
    (_, every), (_, unfused) = launches(
        lambda x, k, c, w, b: f(LF.conv2d(x, k, c), w, b),
        arr(4, 3, 4, 4),
        arr(8, 3, 1, 1),
        arr(8),
        arr(8),
        arr(8),
    )
    assert unfused - every >= 1


# ---- norm + residual ----


NORMS = {
    "layer_norm": lambda x, w, b: LF.layer_norm(x, x.shape[-1:], w, b),
    "rms_norm": lambda x, w, b: LF.rms_norm(x, x.shape[-1:], w, 1e-5),
}


def block(name):
    """A pre-norm residual block: h + f(norm(h)), h a sum itself."""

    def f(x, y, w, b):
        h = x + y
        return h + NORMS[name](h, w, b).tanh() * 0.5

    return f


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6, 8), (5, 7), (2, 3, 16), (1, 1), (2, 2050)], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_norm_residual(device, name, shape, dtype):
    few(device, dtype, shape == (6, 8))
    fits = device != "cpu" or dtype in ("float64", "float32")
    arrays = [arr(*shape), arr(*shape), arr(shape[-1]), arr(shape[-1])]
    fused, stats = gradients(
        only_used(name, block(name)), arrays[: 4 if name == "layer_norm" else 3], device, dtype, True
    )
    plain, _ = gradients(
        only_used(name, block(name)), arrays[: 4 if name == "layer_norm" else 3], device, dtype, False
    )
    assert bool(stats.by_name.get(f"{name}_residual")) == fits, stats
    tol = {"bfloat16": 0.15, "float16": 2e-2}.get(dtype, DTYPES[dtype])
    for a, b in zip(fused, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol)


def only_used(name, f):
    return f if name == "layer_norm" else lambda x, y, w: f(x, y, w, None)


@pytest.mark.parametrize("name", NORMS)
def test_norm_residual_without_weights_and_over_two_dimensions(device, name):
    def f(x):
        y = (
            LF.layer_norm(x, x.shape[-2:], None, None)
            if name == "layer_norm"
            else LF.rms_norm(x, x.shape[-2:], None, 1e-5)
        )
        return x * 2.0 + y * y

    _, stats = gradients(f, [arr(3, 4, 5)], device, "float64", True)
    assert stats.by_name.get(f"{name}_residual") == 1, stats
    a, b = (
        gradients(f, [arr(3, 4, 5) * 0 + np.arange(60).reshape(3, 4, 5)], device, "float64", on)[0]
        for on in (True, False)
    )
    np.testing.assert_allclose(a[0], b[0], rtol=1e-9, atol=1e-9)


def test_a_norm_of_a_leaf_joins_the_leafs_own_gradient(device):
    # The residual's gradient waits at the leaf itself.
    w = lucid.tensor(arr(8), device=device)
    same(
        lambda x: x + LF.layer_norm(x, (8,), w, None).tanh(),
        [arr(4, 8)],
        device,
        expect="layer_norm_residual",
    )


def test_a_norm_without_residual_makes_no_group(device):
    a, stats = gradients(lambda x: LF.layer_norm(x * 2.0, (8,)).tanh(), [arr(4, 8)], device, "float64", True)
    assert not any("norm" in name for name in stats.by_name) and stats.fell_back == {}


def test_what_waits_must_fit(device, monkeypatch):
    """Each guard of a join refuses, and the result is the unfused one."""
    from lucid.fusion import guards

    f = only_used("rms_norm", block("rms_norm"))
    arrays = [arr(4, 8), arr(4, 8), arr(8)]
    expected, _ = gradients(f, arrays, device, "float64", False)
    for guard in guards.JOIN_GUARDS:
        with monkeypatch.context() as m:
            refuse = lambda *args: False
            refuse.__name__ = guard.__name__
            m.setattr(guards, "JOIN_GUARDS", (refuse,))
            found, stats = gradients(f, arrays, device, "float64", True)
        assert stats.fell_back == {guard.__name__: 1}, stats
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)


def test_the_norm_runs_alone_where_its_residual_comes_later(device):
    # The norm was recorded after the other use, so that its gradient is the first at y.
    def f(x, v, w):
        y = x * 2.0
        a = LF.linear(y, v)
        return LF.layer_norm(y, (8,), w, None) * a

    arrays = [arr(4, 8), arr(8, 8), arr(8)]
    found, stats = gradients(f, arrays, device, "float64", True)
    expected, _ = gradients(f, arrays, device, "float64", False)
    assert stats.fell_back == {"something_waits": 1}, stats
    for p, q in zip(found, expected, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-9, atol=1e-12)


def test_residual_chains_keep_hooks_captures_and_repeated_passes(device):
    results = []
    for on in (True, False):
        rng = np.random.default_rng(4)
        x, y, w, b = (
            lucid.tensor(rng.standard_normal(s), device=device, requires_grad=True)
            for s in ((4, 8), (4, 8), (8,), (8,))
        )
        h = x + y
        seen = []
        h.register_hook(lambda g, seen=seen: seen.append(g.detach().cpu().numpy().copy()))
        n = LF.layer_norm(h, (8,), w, b)
        n.retain_grad()
        out = h + n.tanh()
        with fusion.enabled(on):
            got = Engine.grad(out, np.ones((4, 8)), [h, x, w], retain_graph=True)
            out.backward(lucid.ones(4, 8, dtype="float64", device=device), retain_graph=True)
            out.backward(lucid.ones(4, 8, dtype="float64", device=device))
        results.append(
            [t.detach().cpu().numpy() for t in (*got, x.grad, y.grad, w.grad, b.grad, n.grad)] + seen
        )
    assert len(results[0]) == len(results[1])
    for p, q in zip(*results, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("name", NORMS)
def test_a_joined_residual_costs_no_launch_on_cuda(device, name):
    f = only_used(name, block(name))
    arrays = [arr(6, 8), arr(6, 8), arr(8), arr(8)][: 4 if name == "layer_norm" else 3]
    (_, every), (_, unfused) = launches(lambda *a: f(*a) * 1.0, *arrays)
    with fusion.enabled(True):
        _, stats = gradients(f, arrays, device, "float32", True)
    assert stats.by_name.get(f"{name}_residual") == 1
    assert unfused - every >= 1
