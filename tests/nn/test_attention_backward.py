"""The gradients of attention from the saved probabilities: as the generic formula gives them, with at most
one matrix of the scores' size beyond what the forward pass saved.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import lucid
from lucid.autograd import Engine
from lucid.ops import attention as module
from lucid.ops.registry import OPS
from lucid.storage.backend import backend_of

LF = lucid.nn.functional
F = backend_of("cpu").F
TOLERANCE = {"float64": 1e-10, "float32": 2e-5, "float16": 2e-2, "bfloat16": 8e-2}


def arr(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def heads_apart(a):
    """The same values with the heads stored beside the columns, as a projection leaves them."""
    return np.ascontiguousarray(a.swapaxes(-3, -2)).swapaxes(-3, -2)


CASES = {
    "plain": (((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)), None),
    "one head": (((5, 4), (7, 4), (7, 6)), None),
    "causal": (((2, 3, 6, 4), (2, 3, 6, 4), (2, 3, 6, 4)), "causal"),
    "bool mask": (((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)), arr(2, 1, 1, 7) > -0.5),
    "learned mask": (((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)), arr(3, 5, 7)),
    "learned mask of all": (((2, 5, 4), (2, 7, 4), (2, 7, 6)), arr(2, 5, 7)),
    "keys of one head": (((2, 3, 5, 4), (2, 1, 7, 4), (2, 1, 7, 6)), None),
    "values of one batch": (((3, 5, 4), (1, 7, 4), (2, 3, 7, 6)), None),
    "nothing": (((2, 0, 4), (2, 7, 4), (2, 7, 6)), None),
    "one": (((1, 1, 1), (1, 1, 1), (1, 1, 1)), None),
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("apart", [False, True], ids=["solid", "heads apart"])
def test_as_the_generic_formula(device, case, dtype, apart, monkeypatch):
    shapes, mask = CASES[case]
    if apart and (len(shapes[0]) < 3 or dtype not in ("float64", "bfloat16")):
        pytest.skip("no other layout, or told by the others")
    monkeypatch.setattr(module, "_BLOCK", 40)  # several blocks of heads
    monkeypatch.setattr(module, "_SMALL", 1 if apart else 1 << 12)
    arrays = [arr(*s, seed=i) for i, s in enumerate(shapes)]
    causal = isinstance(mask, str)
    learned = not causal and mask is not None and mask.dtype != bool
    if learned:
        arrays.append(mask)
    xs = [lucid.tensor(a, device=device).to(dtype).detach().requires_grad_() for a in arrays]
    ts = [x.transpose(-3, -2).contiguous().transpose(-3, -2) for x in xs[:3]] if apart else xs[:3]
    m = xs[3] if learned else None if causal or mask is None else lucid.tensor(mask, device=device)
    out = LF.scaled_dot_product_attention(*ts, attn_mask=m, is_causal=causal, scale=0.4)
    g = arr(*out.shape, seed=9)
    out.backward(lucid.tensor(g, device=device).to(dtype))
    raw = OPS["attention"].formulas["q"].function
    wide = [x.detach().cpu().numpy().astype("f8") for x in xs]
    rounded = lucid.tensor(g).to(dtype).numpy().astype("f8")
    given = wide[3] if learned else None if causal else mask
    expected = raw(F, rounded, *wide[:3], given, causal, 0.4, (True, True, True, learned))
    for x, e in zip(xs, expected, strict=False):
        assert x.grad.dtype == x.dtype and x.grad.shape == x.shape
        np.testing.assert_allclose(
            x.grad.cpu().numpy().astype("f8"),
            e,
            rtol=TOLERANCE[dtype],
            atol=TOLERANCE[dtype] * max(1.0, np.abs(e).max(initial=0.0)),
        )


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), (1, 2)], ids=str)
def test_only_what_is_asked_for(device, wanted):
    arrays = [arr(2, 3, 5, 4, seed=i) for i in range(3)]
    both = []
    for some in (wanted, (0, 1, 2)):
        xs = [lucid.tensor(a, device=device, requires_grad=i in some) for i, a in enumerate(arrays)]
        LF.scaled_dot_product_attention(*xs).backward(lucid.tensor(arr(2, 3, 5, 4, seed=8), device=device))
        both.append([x.grad for x in xs])
    for i in range(3):
        assert (both[0][i] is None) == (i not in wanted)
        if i in wanted:
            np.testing.assert_allclose(both[0][i].cpu().numpy(), both[1][i].cpu().numpy(), rtol=1e-12)


def peak_of(device, run):
    """The most bytes that were held at once during `run` beyond those held before it."""
    if device != "cpu":
        before = lucid.cuda.memory_allocated()
        lucid.cuda.reset_peak_memory_stats()
        run()
        return lucid.cuda.max_memory_allocated() - before
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("mask", [None, "causal", "bool"])
def test_one_matrix_of_scores_at_most(device, mask):
    """The backward pass makes the gradient of the scores and no second matrix of its size."""
    heads, length, width = 8, 192, 8
    x = [
        lucid.tensor(arr(heads, length, width, seed=i).astype("f"), device=device, requires_grad=True)
        for i in range(3)
    ]
    m = lucid.tensor(arr(length, length) > 0, device=device) if mask == "bool" else None
    out = LF.scaled_dot_product_attention(*x, attn_mask=m, is_causal=mask == "causal")
    seed = arr(heads, length, width, seed=5).astype("f")

    def run():
        Engine.backward(out, seed, retain_graph=True)

    run()
    for t in x:
        t.grad = None
    scores = heads * length * length * 4
    small = 8 * heads * length * width * 4
    peak = peak_of(device, run)
    assert peak < scores + small, (peak, scores)
    assert peak > small  # it measures something


def test_heads_are_computed_in_blocks_on_the_cpu():
    """Not even one whole matrix where the heads are many: as many as fit in cache at a time."""
    heads, length = 32, 128
    x = [lucid.tensor(arr(heads, length, 8, seed=i).astype("f"), requires_grad=True) for i in range(3)]
    out = LF.scaled_dot_product_attention(*x)
    seed = arr(heads, length, 8, seed=5).astype("f")
    peak = peak_of("cpu", lambda: Engine.backward(out, seed, retain_graph=True))
    assert peak < heads * length * length * 4 * 0.75 + 8 * heads * length * 8 * 4


def test_forward_adds_the_mask_in_place(device):
    heads, length, width = 8, 192, 8
    x = [
        lucid.tensor(arr(heads, length, width, seed=i).astype("f"), device=device, requires_grad=True)
        for i in range(3)
    ]
    m = lucid.tensor(arr(length, length).astype("f"), device=device)
    before = m.cpu().numpy().copy()
    run = lambda: LF.scaled_dot_product_attention(*x, attn_mask=m)
    run()
    scores = heads * length * length * 4
    assert peak_of(device, run) < 1.5 * scores + 8 * heads * length * width * 4
    np.testing.assert_array_equal(m.cpu().numpy(), before)
