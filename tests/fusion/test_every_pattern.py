"""Every named pattern, from one table of programs: it runs on both devices under the name that the table
says, gives what the unfused walk gives, writes to nothing that it was given, and costs what `explain` says.
"""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import fusion
from lucid.autograd.engine import _collect
from lucid.fusion.patterns import ACTIVATIONS, PATTERNS, RUNS
from tests.fusion.helpers import LF, arr, counts, gradients

pytestmark = pytest.mark.usefixtures("small")
ROWS, COLS, CHANNELS = 96, 32, 8


def normed(eval_: bool):
    def f(x, w, b):
        if not eval_:
            return LF.relu(LF.batch_norm(x, None, None, w, b, training=True))
        mean, var = (lucid.full((CHANNELS,), v, device=x.device, dtype=x.dtype) for v in (0.25, 1.5))
        return LF.relu(LF.batch_norm(x, mean, var, w, b, training=False))

    return f


def convolved(eval_: bool):
    return lambda x, k, c, w, b: normed(eval_)(LF.conv2d(x, k, c), w, b)


def residual(norm):
    def f(x, w, b=None):
        y = x * 2.0
        n = LF.layer_norm(y, (COLS,), w, b) if b is not None else LF.rms_norm(y, (COLS,), w)
        return y.tanh() + n.cumsum(0)

    return f


def nll(x):
    return LF.nll_loss(LF.log_softmax(x, -1), lucid.arange(ROWS, device=x.device) % COLS).reshape(1)


IMAGE, ROW = (12, CHANNELS, 4, 8), (ROWS, COLS)
LINEAR = ((ROWS, 16), (COLS, 16), (COLS,))
CONV = ((12, 4, 4, 8), (CHANNELS, 4, 1, 1), (CHANNELS,), (CHANNELS,), (CHANNELS,))
# row of PATTERNS -> (function, shapes of its leaves)
CHAINS = {
    **{f"linear_{a}": (lambda x, w, b, a=a: getattr(LF, a)(LF.linear(x, w, b)), LINEAR) for a in ACTIVATIONS},
    "batch_norm_relu": (normed(False), (IMAGE, (CHANNELS,), (CHANNELS,))),
    "batch_norm_eval_relu": (normed(True), (IMAGE, (CHANNELS,), (CHANNELS,))),
    "conv_batch_norm_relu": (convolved(False), CONV),
    "conv_batch_norm_eval_relu": (convolved(True), CONV),
    "layer_norm_residual": (residual("layer"), (ROW, (COLS,), (COLS,))),
    "rms_norm_residual": (residual("rms"), (ROW, (COLS,))),
    "log_softmax_nll": (nll, (ROW,)),
}


def scores(x):
    mask = lucid.arange(COLS, device=x.device) > 20
    return LF.softmax((x * 0.3).masked_fill(mask, -1e4), -1)


# row of RUNS -> (function, shapes, the group's name on the CPU, on CUDA)
KINDS = {
    **{
        f"residual + activation: {a}": (
            lambda x, y, a=a: getattr(LF, a)(x * 2.0 + y),
            (ROW, ROW),
            f"{a}+add+mul",
            f"{a}+add+mul",
        )
        for a in ACTIVATIONS
    },
    **{
        f"bias + activation: {a}": (
            lambda x, b, a=a: getattr(LF, a)(x + b),
            (ROW, (COLS,)),
            f"{a}+add",
            f"{a}+add",
        )
        for a in ACTIVATIONS
    },
    "dropout + add": (
        lambda x, y: LF.dropout(x.tanh(), 0.25) + y,
        (ROW, ROW),
        "dropout+tanh",
        "seeded_dropout+tanh",
    ),
    "scale + mask + softmax": (scores, (ROW,), "softmax+masked_fill+mul", "softmax+masked_fill+mul"),
}


def test_the_tables_hold_every_pattern():
    assert set(CHAINS) == {p.name for p in PATTERNS}
    assert {name.split(":")[0] for name in KINDS} == set(RUNS)


def seeded(f):
    def g(*xs):
        lucid.manual_seed(3)
        return f(*xs)

    return g


@pytest.mark.parametrize("name", [*CHAINS, *KINDS])
def test_it_fuses_and_gives_the_same(device, name):
    f, shapes, *names = CHAINS.get(name) or KINDS[name]
    expect = (names or [name, name])[device == "cuda"]
    found, stats = gradients(seeded(f), [arr(*s) for s in shapes], device, "float64", True)
    assert stats.by_name.get(expect) == 1 and not stats.fell_back, stats
    arrays = [arr(*s) for s in shapes]
    (a, _), (b, _) = (gradients(seeded(f), arrays, device, "float64", on) for on in (True, False))
    for p, q in zip(a, b, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-9, atol=1e-9)


def graph_of(f, shapes, device):
    xs = [lucid.tensor(arr(*s), device=device).requires_grad_() for s in shapes]
    return xs, seeded(f)(*xs)


@pytest.mark.parametrize("name", [*CHAINS, *KINDS])
def test_nothing_that_it_was_given_is_written_to(device, name):
    f, shapes, *_ = CHAINS.get(name) or KINDS[name]
    xs, y = graph_of(f, shapes, device)
    seed = lucid.ones(*y.shape, device=device, dtype="float64")
    kept = {id(s): s.array for n in _collect([y.edge]) for s in getattr(n, "saved", None) or ()}
    given = [a for a in (*kept.values(), *(x.storage.array for x in xs), seed.storage.array) if a is not None]
    to_numpy = y.storage.backend.to_numpy
    before = [to_numpy(a).copy() for a in given]
    first = []
    for _ in range(2):
        y.backward(seed, retain_graph=True)
        grads = [x.grad for x in xs]
        first.append([g.cpu().numpy().tobytes() for g in grads])
        for x in xs:
            x.grad = None
        for g in grads:  # a gradient is nobody else's: to write to it changes nothing
            g.fill_(7.0)
    assert fusion.stats().fused >= 2 and first[0] == first[1]
    for a, b in zip(given, before, strict=True):
        np.testing.assert_array_equal(to_numpy(a), b)


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("name", CHAINS)
def test_a_row_costs_what_it_says(name, device):
    f, shapes = CHAINS[name]
    _, y = graph_of(f, shapes, device)
    row = next(r for r in fusion.explain(y).rows if r.name == name)
    fused, plain = counts(f, *(arr(*s) for s in shapes))
    assert plain["launches"] - fused["launches"] == row.launches[0] - row.launches[1]
    # Arrays of the gradient's size; targets, coefficients and partial sums are the rest.
    size = np.prod(row.shape)
    saved = (plain["bytes"] - fused["bytes"]) / (4 * size)
    assert saved == pytest.approx((row.bytes[0] - row.bytes[1]) / (8 * size), abs=0.25)
    assert "->" in str(fusion.explain(y))
