"""Dropout whose mask nothing stores, inside fused runs: the kernel makes the words where it needs them."""

import numpy as np
import pytest

import lucid
import lucid.nn.functional as LF
from lucid import fusion
from lucid.autograd.engine import _collect
from lucid.autograd.record import RECORDED as F
from lucid.fusion import patterns, rewrite
from lucid.testing import simulator

pytestmark = pytest.mark.usefixtures("small")
RNG = np.random.default_rng(0)
DTYPES = ("float64", "float32", "float16", "bfloat16")
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}


@pytest.fixture
def gpu(device):
    if not str(device).startswith("cuda"):
        pytest.skip("on the CPU the mask is kept: tests/fusion/test_fusion.py")
    return device


def arr(*shape):
    return RNG.standard_normal(shape)


def gradients(f, arrays, device, dtype, on):
    xs = [
        lucid.tensor(a, device=device).to(getattr(lucid, dtype)).detach().requires_grad_() for a in arrays
    ]
    lucid.manual_seed(11)
    lucid.rand(7, device=device)  # the words do not start at block 0
    fusion.reset_stats()
    with fusion.enabled(on):
        y = f(*xs)
        seed = lucid.tensor(np.random.default_rng(5).standard_normal(y.shape), device=device).to(y.dtype)
        y.backward(seed)
    return [x.grad.cpu().double().numpy() for x in xs], fusion.stats()


def same(f, arrays, device, dtype, expect):
    fused, stats = gradients(f, arrays, device, dtype, True)
    assert stats.by_name.get(expect), stats
    plain, _ = gradients(f, arrays, device, dtype, False)
    for a, b in zip(fused, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    return fused


# Packs of 1, 2, 4 and 8 elements; a tail that is no pack; rows that are none.
@pytest.mark.parametrize("shape", [(1,), (4, 33), (5, 64), (3, 8)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_flat_runs(gpu, dtype, shape):
    def f(x):
        return LF.dropout(x.tanh(), 0.3)

    a = arr(*shape)
    grad = same(f, [a], gpu, dtype, "seeded_dropout+tanh")[0]
    host = same(f, [a], "cpu", dtype, "dropout+tanh")[0]
    np.testing.assert_array_equal(grad != 0, host != 0)
    assert shape == (1,) or 0 < (grad == 0).sum() < grad.size


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cols", [8, 13])
def test_two_draws_of_one_stream_with_a_row(gpu, dtype, cols):
    def f(x, b):
        return LF.dropout(LF.dropout(x + b, 0.25).tanh(), 0.5)

    same(f, [arr(6, cols), arr(cols)], gpu, dtype, "seeded_dropout+tanh+seeded_dropout+add")


@pytest.mark.parametrize("cols", [40, 7])
def test_scores(gpu, cols):
    same(
        lambda x: LF.dropout(LF.softmax(x * 0.3, -1), 0.2),
        [arr(2, 3, 5, cols)],
        gpu,
        "float32",
        "seeded_dropout+softmax+mul",
    )


def residual(x, h, w, b):
    return x + LF.dropout(LF.linear(h, w, b), 0.25)


def test_dropout_and_add_with_a_linear_behind(gpu):
    arrays = [arr(16, 32), arr(16, 8), arr(32, 8), arr(32)]
    same(residual, arrays, gpu, "float32", "seeded_dropout+linear")
    if not simulator.is_on():
        return
    xs = [lucid.tensor(a, device=gpu, dtype=lucid.float32, requires_grad=True) for a in arrays]
    seed = lucid.ones(16, 32, device=gpu)
    raw = []
    for on in (True, False):
        with fusion.enabled(on):
            y = residual(*xs)
            with simulator.counted() as counts:
                lucid.autograd.grad(y, xs, seed)
        assert counts["syncs"] == 0 and counts["h2d_bytes"] == 0
        raw.append(counts["raw"])
    # Fused: dropout with the partial sums of the bias's gradient, and their end. Unfused a pass more.
    assert raw == [2, 3]


def test_on_the_cpu_its_parts_run_one_by_one():
    state = lucid.tensor([7, 3])
    x = lucid.tensor(arr(4, 33), requires_grad=True)
    fusion.reset_stats()
    F.seeded_dropout(x.tanh(), state, 2, 0.25).sum().backward()
    assert not fusion.stats().by_name and fusion.stats().fell_back
    fused, x.grad = x.grad, None
    with fusion.enabled(False):
        F.seeded_dropout(x.tanh(), state, 2, 0.25).sum().backward()
    assert lucid.equal(fused, x.grad)


def test_the_source_does_not_know_the_place_in_the_stream(gpu):
    from lucid.fusion import body, cuda

    x = lucid.tensor(arr(64), device=gpu, dtype=lucid.float32, requires_grad=True)
    LF.dropout(x.tanh(), 0.125).backward(lucid.ones(64, device=gpu))
    known = len(cuda._functions), len(body._traces)
    for _ in range(3):
        LF.dropout(x.tanh(), 0.125).backward(lucid.ones(64, device=gpu))
    assert (len(cuda._functions), len(body._traces)) == known


def test_each_pass_has_its_own_draw(gpu):
    # The trace and the kernel are kept; where the words start is not part of them.
    x = lucid.tensor(arr(64), device=gpu, dtype=lucid.float32, requires_grad=True)
    seen = []
    for _ in range(3):
        y = LF.dropout(x.tanh(), 0.5)
        kept = (y != 0).cpu().numpy()
        (grad,) = lucid.autograd.grad(y, x, lucid.ones(64, device=gpu))
        np.testing.assert_array_equal(grad.cpu().numpy() != 0, kept)
        seen.append(kept.tobytes())
    assert len(set(seen)) == 3 and fusion.stats().by_name.get("seeded_dropout+tanh") == 3


def test_a_draw_tells_nothing_of_the_size(gpu, monkeypatch):
    # All that these nodes keep is where the words start, two numbers.
    monkeypatch.setitem(patterns.RUN_SIZE, "cuda", 64)
    x = lucid.tensor(arr(16, 8), device=gpu, dtype=lucid.float32, requires_grad=True)
    y = LF.dropout(-x, 0.5)
    order = _collect([y.edge])
    assert [g.name for g in rewrite.match(order, [y.edge], None, small=False).values()] == [
        "seeded_dropout+neg"
    ]
