"""Named chains and runs over rows: fused equals unfused in every dtype and size; launches are counted
on the simulated device.
"""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import fusion
from lucid.autograd.record import RECORDED as F
from lucid.fusion import sweep
from lucid.fusion.patterns import ACTIVATIONS, PATTERNS, RUNS
from tests.fusion.helpers import DTYPES, LF, RNG, arr, counts, few, gradients, launches, same

pytestmark = pytest.mark.usefixtures("small")
# ---- attention scores: softmax <- mask <- scale ----


def scores(device, kind):
    fill = lucid.tensor(RNG.random((5, 8)) > 0.6, device=device)
    keys = lucid.tensor(RNG.random((2, 1, 1, 8)) > 0.3, device=device)
    batch = lucid.tensor(RNG.random((2, 1, 5, 8)) > 0.6, device=device)
    kept = lucid.tensor(RNG.random((2, 3, 5, 8)) > 0.2, device=device)
    bias = lucid.tensor(arr(5, 8), device=device)
    return {
        "masked_fill": (
            lambda x: LF.softmax((x * 0.3).masked_fill(fill, -1e4), -1),
            "softmax+masked_fill+mul",
        ),
        "where": (lambda x: LF.softmax(F.where(keys, x / 3.0, -1e4), -1), "softmax+where+div"),
        "mask of two ranges": (
            lambda x: LF.softmax((x * 0.3).masked_fill(batch, -1e4), 3),
            "softmax+masked_fill+mul",
        ),
        "added": (lambda x: LF.softmax(x * 0.3 + bias.to(x.dtype), -1), "softmax+add+mul"),
        "dropout": (
            lambda x: F.dropout(LF.softmax((x * 0.3).masked_fill(fill, -1e4), -1), kept, 0.2),
            "dropout+softmax+masked_fill+mul",
        ),
        "log": (lambda x: LF.log_softmax(x.tanh(), -1) * 2.0, "mul+log_softmax+tanh"),
        "twice": (lambda x: LF.softmax(LF.softmax(x * 2.0, -1) * 3.0, -1), "softmax+mul+softmax+mul"),
    }[kind]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "kind", ["masked_fill", "where", "mask of two ranges", "added", "dropout", "log", "twice"]
)
def test_scores(device, kind, dtype):
    few(device, dtype, kind == "dropout")
    f, name = scores(device, kind)
    same(f, [arr(2, 3, 5, 8)], device, dtype, name)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (7,), (4, 1), (2, 1100)], ids=str)
def test_softmax_runs_of_other_sizes(device, shape):
    same(lambda x: LF.softmax(x * 0.5, -1) * 2.0, [arr(*shape)], device, expect="mul+softmax+mul")


def test_softmax_along_another_dimension_stays_out(device):
    same(lambda x: LF.softmax(x * 0.5, 0), [arr(3, 4)], device)
    same(lambda x: LF.softmax(x * 0.5, 0) * 2.0, [arr(3, 4)], device)


def test_learned_bias_of_scores_is_summed(device):
    same(
        lambda x, b: LF.softmax(x * 0.3 + b, -1) * 1.5,
        [arr(2, 3, 5, 8), arr(5, 8)],
        device,
        expect="mul+softmax+add+mul",
    )


# ---- broadcast that comes again ----


@pytest.mark.parametrize(
    "shape", [(3, 1, 8), (1, 5, 8), (2, 1, 1, 8), (2, 1, 5, 1), (5, 1), (1, 1, 5, 1)], ids=str
)
def test_repeated_rows_inside_a_run(device, shape):
    same(lambda x, y: (x * y).tanh() * y, [arr(2, 3, 5, 8), arr(*shape)], device, expect="mul+tanh+mul")
    same(
        lambda x, y: ((x + y).tanh() + y) * 2.0,
        [arr(2, 3, 5, 8), arr(*shape)],
        device,
        expect="mul+add+tanh+add",
    )


# ---- linear + activation ----


def activation(name, x):
    if name == "gelu_tanh":
        return LF.gelu(x, approximate="tanh")
    return LF.leaky_relu(x, 0.2) if name == "leaky_relu" else getattr(LF, name)(x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*ACTIVATIONS, "gelu_tanh"])
@pytest.mark.parametrize("shape", [(6, 12, 16), (5, 12, 7), (1, 3, 4)], ids=str)
def test_linear_activation(device, name, shape, dtype):
    few(device, dtype, name == "gelu")
    if name not in ("relu", "gelu_tanh") and shape[2] != 16 and device != "cpu":
        pytest.skip("one form of the kernel is enough")
    rows, wide, out = shape
    expect = f"linear_{name.removesuffix('_tanh')}"
    same(
        lambda x, w, b: activation(name, LF.linear(x, w, b)),
        [arr(rows, wide), arr(out, wide), arr(out)],
        device,
        dtype,
        expect,
        0.3 if dtype == "bfloat16" else 6e-2 if dtype == "float16" else None,
    )


@pytest.mark.parametrize("features", [8, 400])
def test_a_sweep_before_large_products_takes_one_thread(features, monkeypatch):
    seen = []
    shared = sweep.shared

    def noted(f, starts, size):
        seen.append(size)
        return shared(f, starts, size)

    monkeypatch.setattr(sweep, "shared", noted)
    same(
        lambda x, w, b: LF.relu(LF.linear(x, w, b)),
        [arr(6, features), arr(5, features), arr(5)],
        "cpu",
        expect="linear_relu",
    )
    assert seen == [30 if features < 256 else 0]


def test_linear_without_bias(device):
    # On CUDA the activation's own kernel is all there is to do.
    expect = "linear_relu" if device == "cpu" else None
    same(lambda x, w: LF.relu(LF.linear(x, w)), [arr(5, 4), arr(3, 4)], device, expect=expect)


# ---- log_softmax + nll ----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_log_softmax_nll(device, dtype, reduction, weighted):
    target = lucid.tensor([1, 0, 3, -100, 2], device=device)
    weight = lucid.tensor([1.0, 2.0, 3.0, 0.5], device=device).to(dtype) if weighted else None
    same(
        lambda x: LF.nll_loss(LF.log_softmax(x, -1), target, weight, reduction=reduction),
        [arr(5, 4)],
        device,
        dtype,
        "log_softmax_nll",
    )


# ---- what runs where ----


def test_rows_have_names_and_reasons():
    assert len({p.name for p in PATTERNS}) == len(PATTERNS)
    assert all(len(chain) > 1 for chain in RUNS.values())


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_linear_activation_is_one_pass_and_the_finish(name, device):
    (raw, every), (raw_unfused, unfused) = launches(
        lambda x, w, b: activation(name, LF.linear(x, w, b)), arr(64, 32), arr(48, 32), arr(48)
    )
    # dz with the partial sums, and the small one that finishes them; unfused: dz, the sums, the small one.
    assert raw == 2 and raw_unfused == 3
    assert unfused - every == 1


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_linear_activation_reads_and_writes_each_array_once(name, device):
    n, i, o = 64, 32, 48
    fused, plain = counts(lambda x, w, b: activation(name, LF.linear(x, w, b)), arr(n, i), arr(o, i), arr(o))
    # Every array in elements: the products dz w and dz^T x, and the partial sums of one range of rows.
    products = (n * o + o * i + n * i) + (n * o + n * i + o * i)
    partial, bias, dz = o, o, n * o
    passes = (dz + dz + dz + partial) + (partial + bias)  # dy, y (or x) -> dz, partial; partial -> bias
    assert fused["bytes"] == 4 * (passes + products)
    assert plain["bytes"] == 4 * (passes + dz + products)  # dz is read again for its sum


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("k", [2, 6])
def test_a_run_reads_each_distinct_input_once(device, k):
    # k products with two arrays in turn: g and the two are read, one gradient is written.
    y, z = (lucid.tensor(arr(32, 32), device=device).to("float32") for _ in range(2))

    def f(x):
        for i in range(k):
            x = x * (z if i % 2 else y)
        return x

    fused, plain = counts(f, arr(32, 32))
    assert (fused["launches"], fused["bytes"]) == (1, 4 * 4 * 32 * 32)
    assert (plain["launches"], plain["bytes"]) == (k, 3 * k * 4 * 32 * 32)


@pytest.mark.usefixtures("counted")
def test_a_number_before_the_activation_keeps_the_bias_gradient_in_the_pass(device):
    (raw, every), (_, unfused) = launches(
        lambda x, w, b: LF.tanh(LF.linear(x, w, b) * 0.5), arr(64, 32), arr(48, 32), arr(48)
    )
    # dz with the partial sums, their end, and the two products.
    assert raw == 2 and every == 4 and unfused == 6


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("k", [2, 5, 12])
def test_a_run_of_k_nodes_is_one_launch(k, device):
    def f(x):
        for i in range(k):
            x = x.tanh() if i % 2 else x * 0.5
        return x

    (raw, every), (_, unfused) = launches(f, arr(32, 32))
    assert raw == every == 1 and unfused >= k


@pytest.mark.usefixtures("counted")
def test_scores_are_one_launch(device):
    f, _ = scores(device, "dropout")
    (raw, every), (_, unfused) = launches(f, arr(2, 3, 5, 8))
    assert raw == every == 1 and unfused >= 4


@pytest.mark.usefixtures("counted")
def test_kernels_read_each_input_once(device):
    from lucid.fusion import cuda
    from lucid.fusion.body import Body
    from lucid.fusion.symbols import Symbol, Trace

    trace = Trace()
    g, x, y = (Symbol(trace, f"v{i}") for i in range(3))
    z = (g * x + x) * y + y * x
    arrays = [np.ones((4, 8), "f")] * 3
    source = cuda.Kernel(
        Body(trace, (4, 8), arrays, [z, z * 2.0], [None, None], arrays[0].dtype), [0, 1]
    ).source
    packs = source.split("FOR_TAIL")[0]
    assert [packs.count(f"load(x{i},") for i in range(3)] == [1, 1, 1] and packs.count("store(") == 2


@pytest.mark.usefixtures("counted")
def test_a_sum_hands_its_gradient_on_for_nothing(device):
    (raw, every), (_, unfused) = launches(lambda x, y: x.tanh() * 2.0 + y, arr(8, 8), arr(8, 8))
    assert raw == 1 and every <= unfused
    (raw, _), _ = launches(lambda x, y: LF.relu(x + y) * 2.0, arr(8, 8), arr(8, 8))
    assert raw == 1


# ---- gradients that meet ----


def test_a_waiting_gradient_joins_the_run(device):
    def residual(x, w):
        y = x + 0.0
        return (y * 2.0).tanh() * 3.0 + LF.linear(y, w)

    same(residual, [arr(6, 6), arr(6, 6)], device, expect="mul+tanh+mul")
    seen = []

    def hooked(x, w):
        y = x + 0.0
        y.register_hook(lambda g: seen.append(g.cpu().numpy()))
        return (y * 2.0).tanh() * 3.0 + LF.linear(y, w)

    same(hooked, [arr(6, 6), arr(6, 6)], device, expect="mul+tanh+mul")
    assert len(seen) == 2
    np.testing.assert_allclose(*seen, rtol=1e-9)


def test_two_ways_to_one_receiver_join_once(device):
    # One through a product with a number, whose operands differ in shape, one through exp.
    def f(x, w):
        y = x + 0.0
        return LF.sigmoid(y * 2.0 + y.exp()) * 3.0 + LF.linear(y, w)

    same(f, [arr(6, 6), arr(6, 6)], device, expect="mul+sigmoid+add+exp+mul")


def test_a_waiting_gradient_is_not_lost_when_a_run_falls_back(device, monkeypatch):
    from lucid.fusion.groups import RunGroup
    from lucid.fusion.symbols import NoCudaForm

    def fail(self, program, g, pending):
        raise NoCudaForm("a test")

    monkeypatch.setattr(RunGroup, "_sweep", fail)
    x, w = arr(6, 6), arr(6, 6)
    f = lambda x, w: (x * 2.0).tanh() * 3.0 + LF.linear(x, w)
    a, stats = gradients(f, [x, w], device, "float64", True)
    b, _ = gradients(f, [x, w], device, "float64", False)
    assert stats.fell_back == {"a test": 1}
    for p, q in zip(a, b, strict=True):
        np.testing.assert_allclose(p, q)


@pytest.mark.usefixtures("counted")
def test_a_joined_gradient_costs_no_launch(device):
    (_, every), (_, unfused) = launches(
        lambda x, w: (x * 2.0).tanh() * 3.0 + LF.linear(x, w), arr(6, 6), arr(6, 6)
    )
    # mul, tanh (kernel), mul and the sum at x have become one.
    assert unfused - every == 3


def test_a_broadcast_sum_at_the_head_is_work(device):
    same(lambda x, b: x.tanh() + b, [arr(6, 8), arr(8)], device, expect="add+tanh")


def test_rows_stay_out_of_the_way_of_small_arrays(device, monkeypatch):
    for p in PATTERNS:
        monkeypatch.setitem(p.__dict__, "min_size", 1000)
    x = lucid.tensor(arr(5, 4), device=device, requires_grad=True)
    LF.nll_loss(LF.log_softmax(x, -1), lucid.tensor([1, 0, 3, 1, 2], device=device)).backward()
    assert fusion.stats().groups == 0 and x.grad is not None
