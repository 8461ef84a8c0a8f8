"""Fused equals unfused: patterns, layouts, dtypes, broadcasts; guards refuse; hooks, captures and repeated
passes see the graph as recorded.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lucid
from lucid import fusion
from lucid.autograd import Engine
from lucid.autograd.engine import _collect
from lucid.autograd.record import RECORDED as F
from lucid.errors import LucidError, SavedValueError
from lucid.fusion import body, cuda, guards, patterns, rewrite
from lucid.fusion.patterns import PATTERNS, Pattern, check
from lucid.fusion.region import Program
from lucid.ops.registry import OPS, RawNamespace
from lucid.storage.storage import Storage

pytestmark = pytest.mark.usefixtures("small")
RNG = np.random.default_rng(0)
ACTIVATIONS = ("relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid", "softplus", "elu")


def host(t):
    return t.detach().cpu().numpy().astype("f8")


def both(f, arrays, device, dtype="float64", tol=1e-9, expect=None):
    """Gradients of f(*tensors) fused and unfused agree; `expect` is the name of a group that must have
    run.
    """
    results = []
    for on in (True, False):
        xs = [
            lucid.tensor(a, requires_grad=True, device=device).to(dtype).detach().requires_grad_()
            for a in arrays
        ]
        fusion.reset_stats()
        with fusion.enabled(on):
            y = f(*xs)
            seed = lucid.tensor(np.random.default_rng(5).standard_normal(y.shape), device=device).to(dtype)
            y.backward(seed)
        stats = fusion.stats()
        if on and expect is not None:
            assert stats.by_name.get(expect), stats
        if not on:
            assert stats.passes == 0
        results.append([host(x.grad) for x in xs])
        assert all(x.grad.dtype == x.dtype and x.grad.shape == x.shape for x in xs)
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol)


def arr(*shape):
    return RNG.standard_normal(shape)


# ---- runs ----


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(7, 9), (8, 16), (33,), (2, 3, 5)], ids=str)
def test_pointwise_run(device, dtype, shape):
    tol = {"float64": 1e-9, "float32": 1e-4, "float16": 3e-2, "bfloat16": 2e-1}[dtype]
    both(lambda x, y: (x * y).tanh() * y.sigmoid() + x, [arr(*shape), arr(*shape)], device, dtype, tol)


def test_the_cases_that_wrong_rewrites_get_wrong(device):
    x = lucid.tensor([2.0, 0.5], dtype="float64", device=device, requires_grad=True)
    x.neg().neg().neg().sum().backward()
    assert host(x.grad).tolist() == [-1.0, -1.0]
    x.grad = None
    (1.0 / (1.0 / (1.0 / x))).sum().backward()
    assert host(x.grad).tolist() == [-0.25, -4.0]


@pytest.mark.parametrize(
    "shapes",
    [
        ((6, 8), (8,)),
        ((6, 8), (6, 1)),
        ((6, 8), ()),
        ((6, 8), (1, 8)),
        ((2, 3, 8), (8,)),
        ((2, 3, 8), (2, 3, 1)),
        ((2, 3, 8), (3, 1)),
        ((6, 8), (1, 1)),
    ],
    ids=str,
)
def test_broadcasts_inside_a_run_and_sums_at_its_end(device, shapes):
    both(lambda x, y: ((x * y).tanh() + y) * 2.0, [arr(*shapes[0]), arr(*shapes[1])], device)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_linear_and_activation(device, activation, rows):
    f = getattr(lucid.nn.functional, activation)
    both(
        lambda x, w, b: f(lucid.nn.functional.linear(x, w, b)), [arr(rows, 12), arr(20, 12), arr(20)], device
    )


def test_linear_and_gelu_tanh_without_bias_and_on_3d(device):
    f = lucid.nn.functional
    both(lambda x, w: f.gelu(f.linear(x, w), approximate="tanh") * 2.0, [arr(5, 12), arr(20, 12)], device)
    both(lambda x, w, b: f.relu(f.linear(x, w, b)), [arr(2, 5, 12), arr(20, 12), arr(20)], device)


def test_residual_dropout_and_bias_chains(device):
    mask = lucid.tensor(RNG.random((6, 8)) > 0.5, device=device)
    both(lambda x, y: F.relu(x + y) * 1.5, [arr(6, 8), arr(6, 8)], device)
    both(lambda x, y: F.dropout(x, mask, 0.5) * 1.0 + y, [arr(6, 8), arr(6, 8)], device)
    both(lambda x, b: F.gelu(x + b), [arr(6, 8), arr(8)], device)


def test_numbers_of_numpy_as_arguments(device):
    # Not a Python number, and yet one.
    slope = np.float32(0.25)
    both(lambda x: F.leaky_relu(x.tanh(), slope) * 2.0, [arr(6, 8)], device, expect="mul+leaky_relu+tanh")


def test_log_softmax_nll(device):
    target = lucid.tensor([1, 0, 3, -100, 2], device=device)
    f = lucid.nn.functional
    both(
        lambda x: f.nll_loss(f.log_softmax(x, -1), target).reshape(()),
        [arr(5, 4)],
        device,
        expect="log_softmax_nll",
    )
    both(
        lambda x: f.nll_loss(f.log_softmax(x, 1), target, reduction="sum").reshape(()),
        [arr(5, 4)],
        device,
        expect="log_softmax_nll",
    )
    both(
        lambda x: f.nll_loss(f.log_softmax(x, 1), target, reduction="none"),
        [arr(5, 4)],
        device,
        expect="log_softmax_nll",
    )
    weight = lucid.tensor([1.0, 2.0, 3.0, 4.0], dtype="float64", device=device)
    both(lambda x: f.nll_loss(f.log_softmax(x, 1), target, weight), [arr(5, 4)], device)


def test_non_contiguous_inputs_fall_back_or_agree(device):
    both(lambda x: (x.transpose(0, 1) * x.transpose(0, 1).tanh()).exp(), [arr(5, 7)], device)


def test_empty_and_0d(device):
    both(lambda x: (x * x).tanh() * 2.0, [np.array(0.3)], device)
    both(lambda x: (x * x).tanh() * 2.0, [np.zeros((0, 3))], device)


def test_integer_and_mask_operands(device):
    m = lucid.tensor(RNG.random((6, 8)) > 0.5, device=device)
    both(lambda x: F.where(m, x.tanh(), x * 2.0), [arr(6, 8)], device)


def test_uniform_gradient_of_a_sum_stays_one_number(device):
    a = arr(40, 30)
    g = []
    for on in (True, False):
        x = lucid.tensor(a, device=device, requires_grad=True)
        with fusion.enabled(on):
            (-x * x).exp().sum().backward()
        g.append(host(x.grad))
    np.testing.assert_allclose(*g)


# ---- visibility ----


def graph(device, n=6):
    x = lucid.tensor(arr(n, 5), device=device, requires_grad=True)
    a = x * 2.0
    b = a.tanh()
    c = b * b
    return x, a, b, c


def groups_of(root, wanted=None):
    edges = [root.edge]
    return rewrite.match(_collect(edges), edges, wanted)


def test_one_run_by_default(device):
    x, a, b, c = graph(device)
    found = groups_of(c)
    assert [g.name for g in found.values()] == ["mul+tanh+mul"]
    assert c.grad_fn.next_edges[0].node is b.grad_fn  # the graph is as it was


@pytest.mark.parametrize(
    ("guard", "spoil"),
    [
        ("single_consumer", lambda x, a, b, c: c.sum() + b.sum()),
        ("not_hooked", lambda x, a, b, c: (b.register_hook(lambda g: None), c)[1]),
        ("not_hooked", lambda x, a, b, c: (b.retain_grad(), c)[1]),
    ],
)
def test_each_guard_refuses_and_a_pass_without_it_would_be_wrong(device, guard, spoil, monkeypatch):
    x, a, b, c = graph(device)
    root = spoil(x, a, b, c)
    members = {n for g in groups_of(root).values() for n in g.parts[1:]}
    assert b.edge not in members
    why = []
    rewrite.match(_collect([root.edge]), [root.edge], None, lambda n, name: why.append((n, name)))
    assert (b.edge, guard) in why
    # The mutant: without this guard the node would be absorbed.
    monkeypatch.setattr(guards, "GUARDS", tuple(g for g in guards.GUARDS if g.__name__ != guard))
    assert b.edge in {n for g in groups_of(root).values() for n in g.parts[1:]}


def test_captured_interiors_are_refused_and_right(device, monkeypatch):
    x, a, b, c = graph(device)
    gb, gx = Engine.grad(c, np.ones((6, 5)), [b, x], retain_graph=True)
    np.testing.assert_allclose(host(gb), 2 * host(b))
    t = host(b)
    np.testing.assert_allclose(host(gx), 2 * t * (1 - t * t) * 2.0)
    wanted = {b.edge: [0]}
    assert b.edge not in {n for g in groups_of(c, wanted).values() for n in g.parts[1:]}
    monkeypatch.setattr(guards, "GUARDS", tuple(g for g in guards.GUARDS if g.__name__ != "not_captured"))
    assert b.edge in {n for g in groups_of(c, wanted).values() for n in g.parts[1:]}


def test_roots_are_refused(device):
    x, a, b, c = graph(device)
    edges = [c.edge, b.edge]
    found = rewrite.match(_collect(edges), edges, None)
    assert b.edge not in {n for g in found.values() for n in g.parts[1:]}
    lucid.autograd.backward([c, b], [lucid.ones(6, 5, dtype="float64", device=device)] * 2)
    t = host(b)
    np.testing.assert_allclose(host(x.grad), (2 * t + 1) * (1 - t * t) * 2)


def test_barriers_are_refused(device):
    x = lucid.tensor(arr(6, 4), device=device, requires_grad=True)
    p, q = (x * 2.0).split(3)
    y = (p.tanh() * q.tanh()).exp()
    assert all(type(n).__name__ == "FuncOp" for g in groups_of(y).values() for n in g.parts)
    both(lambda x: (x.split(3)[0].tanh() * x.split(3)[1].tanh()).exp(), [arr(6, 4)], device)


def test_hooks_see_their_gradients(device):
    x, a, b, c = graph(device)
    seen = []
    b.register_hook(lambda g: seen.append(host(g)))
    c.register_hook(lambda g: g * 2.0)  # on the head: allowed, it runs before the group
    c.backward(lucid.ones(6, 5, dtype="float64", device=device))
    np.testing.assert_allclose(seen[0], 4 * host(b))
    assert fusion.stats().fused >= 1


def test_retain_graph_and_repeated_passes(device):
    x, a, b, c = graph(device)
    for k in (1, 2, 3):
        c.backward(lucid.ones(6, 5, dtype="float64", device=device), retain_graph=True)
        t = host(b)
        np.testing.assert_allclose(host(x.grad), k * 2 * t * (1 - t * t) * 2.0)
    assert fusion.stats().fused == 3


def test_release_reaches_every_part(device):
    x, a, b, c = graph(device)
    nodes = [t.edge for t in (a, b, c)]
    c.backward(lucid.ones(6, 5, dtype="float64", device=device))
    assert fusion.stats().fused == 1 and all(n.saved is None for n in nodes)


def test_create_graph_is_left_alone(device):
    x, a, b, c = graph(device)
    (g,) = lucid.autograd.grad(c.sum(), x, create_graph=True)
    assert fusion.stats().passes == 0
    (h,) = lucid.autograd.grad(g.sum(), x)
    assert h.shape == x.shape


def test_versions_are_checked_before_a_group_runs(device):
    x, a, b, c = graph(device)
    b.mul_(1.0)
    with pytest.raises(SavedValueError):
        c.sum().backward()


def test_errors_inside_a_group_name_its_parts(device, monkeypatch):
    x, a, b, c = graph(device)
    from lucid.fusion.groups import RunGroup

    def fail(self, program, g, pending):
        raise ValueError("boom")

    monkeypatch.setattr(RunGroup, "_sweep", fail)
    with pytest.raises(ValueError, match=r"fused MulBackward \+ TanhBackward \+ MulBackward: boom"):
        c.sum().backward()


def test_errors_of_hooks_name_the_part(device):
    x, a, b, c = graph(device)
    c.register_hook(lambda g: {}["nothing"])  # on the head: the group would run next
    with pytest.raises(KeyError) as error:
        c.sum().backward()
    assert "raised by a hook of MulBackward" in error.value.__notes__[0]
    x, a, b, c = graph(device)
    b.register_hook(lambda g: 1 // 0)  # inside: the node is not absorbed
    with pytest.raises(ZeroDivisionError) as error:
        c.sum().backward()
    assert "raised by a hook of TanhBackward" in error.value.__notes__[0]


def test_a_kernel_that_does_not_compile_is_named_once_and_its_parts_run(device, monkeypatch):
    if device != "cuda":
        pytest.skip("a kernel")
    monkeypatch.setattr(cuda, "PRELUDE", cuda.PRELUDE + "this is no CUDA;\n")
    monkeypatch.setattr(cuda, "_functions", {})
    monkeypatch.setattr(cuda, "_failed", set())
    body._traces.clear()
    fell_back = []
    for time in (1, 2):
        x, a, b, c = graph(device)
        fusion.reset_stats()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            c.sum().backward()
        told = [str(w.message) for w in caught]
        assert len(told) == (time == 1) and all(
            "fused mul+tanh+mul" in t and "Its parts run one by one" in t for t in told
        ), told
        t = host(b)
        np.testing.assert_allclose(host(x.grad), 2 * t * (1 - t * t) * 2.0)
        fell_back += list(fusion.stats().fell_back)
    assert len(fell_back) == 2 and not fusion.stats().fused
    body._traces.clear()


def members(root):
    return {n for g in groups_of(root).values() for n in g.parts}


def without(monkeypatch, table, guard):
    kept = tuple(g for g in getattr(guards, table) if g.__name__ != guard)
    assert len(kept) == len(getattr(guards, table)) - 1
    monkeypatch.setattr(guards, table, kept)


def test_nodes_of_another_device_are_refused(device, monkeypatch):
    x, a, b, c = graph(device)
    b.edge.F = RawNamespace(b.edge.F.backend)
    assert b.edge not in members(c)
    without(monkeypatch, "EDGE_GUARDS", "same_device")
    assert b.edge in members(c)


def test_hidden_broadcasts_are_refused(device, monkeypatch):
    x, y = (lucid.tensor(arr(*s), device=device, requires_grad=True) for s in ((5,), (6, 5)))
    t = x.tanh()
    z = (t * y).exp()
    assert t.edge not in members(z)
    z.sum().backward()
    expected = (host(z) * host(y)).sum(0) * (1 - host(t) ** 2)
    np.testing.assert_allclose(host(x.grad), expected)
    t = x.tanh()
    z = (t * y).exp()
    without(monkeypatch, "EDGE_GUARDS", "same_shape")
    assert t.edge in members(z)
    x.grad = None
    z.sum().backward()
    assert x.grad.shape != (5,)


def test_changes_of_dtype_are_refused(device, monkeypatch):
    x = lucid.tensor(arr(6, 5), device=device, dtype="float32", requires_grad=True)
    a = -x
    b = a.to("float64")
    c = -b
    assert a.edge not in members(c) and b.edge not in members(c)
    (g,) = Engine.grad(c, np.ones((6, 5)), [a])
    assert g.dtype == lucid.float32
    without(monkeypatch, "EDGE_GUARDS", "no_cast")
    c = -(-x).to("float64")
    assert len(members(c)) == 3


@pytest.mark.parametrize(
    ("guard", "make"),
    [
        ("same_dtype", lambda a: a.astype("float32")),
        ("broadcasts", lambda a: np.ones((4, 5))),
        ("contiguous", lambda a: np.asfortranarray(a)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(device, guard, make, monkeypatch):
    x, a, b, c = graph(device)
    backend = b.edge.F.backend
    storage = Storage(backend.asarray(make(host(b))), backend)
    if guard == "contiguous" and device != "cpu":
        storage = Storage(backend.asarray(np.ascontiguousarray(host(b).T)).T, backend)
    b.edge.saved = (storage,)
    group = groups_of(c)[c.edge]
    if guard != "broadcasts":
        with backend.guard():
            group.run(backend.asarray(np.ones((6, 5))), {})
        assert fusion.stats().fell_back == {guard: 1} and not fusion.stats().fused
    program = Program(group.region, (6, 5), backend.name)
    refused = lambda: guards.array_refusal(
        program.values, program.kinds, (6, 5), np.dtype("float64"), backend.name
    )
    assert refused() == guard
    without(monkeypatch, "ARRAY_GUARDS", guard)
    assert refused() != guard


def test_a_mask_of_three_ranges_has_no_place_in_a_kernel(device):
    v = np.ones((2, 1, 3, 1, 2, 8), bool)
    refused = guards.array_refusal([v], ["repeat"], (2, 2, 3, 2, 2, 8), np.dtype("float32"), device)
    assert refused == ("broadcasts" if device != "cpu" else None)
    m = lucid.tensor(RNG.random(v.shape) > 0.5, device=device)
    both(lambda x: (x * 2.0).masked_fill(m, 0.0).tanh(), [arr(2, 2, 3, 2, 2, 8)], device)


def test_complex_graphs_run_unfused(device):
    x = lucid.tensor(arr(6, 5) + 1j, device=device, requires_grad=True)
    (x * 2.0).exp().backward(lucid.ones(6, 5, dtype="complex128", device=device))
    assert fusion.stats().fused == 0


# ---- control ----


def test_switches(device):
    assert bool(fusion.enabled())
    with fusion.enabled(False):
        assert not fusion.enabled()
        graph(device)[3].sum().backward()
    assert fusion.enabled() and fusion.stats().passes == 0


def test_small_graphs_are_left_alone(monkeypatch):
    monkeypatch.undo()
    fusion.reset_stats()
    x = lucid.ones(8, requires_grad=True)
    ((x * x).tanh() * x).sum().backward()
    assert fusion.stats().passes == 0


def test_a_graph_is_left_alone_below_the_sizes_of_its_ops(device, monkeypatch):
    monkeypatch.setitem(patterns.RUN_SIZE, device, 1000)
    for p in PATTERNS:
        monkeypatch.setitem(p.__dict__, "min_size", 1 << 40)
    rows = [p for p in PATTERNS if p.name == "log_softmax_nll"]
    monkeypatch.setitem(rows[0].__dict__, "min_size", 20)
    patterns.sizes.cache_clear()

    def passes(f, *shape):
        fusion.reset_stats()
        x = lucid.tensor(arr(*shape), device=device, requires_grad=True)
        f(x).sum().backward()
        return fusion.stats().passes

    nll = lambda x: lucid.nn.functional.nll_loss(
        lucid.nn.functional.log_softmax(x, -1), lucid.tensor([0] * len(x), device=device)
    )
    assert passes(lambda x: (x * x).tanh(), 30, 30) == 0 and passes(lambda x: (x * x).tanh(), 40, 30) == 1
    assert passes(nll, 3, 4) == 0 and passes(nll, 6, 4) == 1


def test_explain(device):
    x, a, b, c = graph(device)
    text = str(fusion.explain(c.sum() + b.sum()))
    assert "mul" in text and "not absorbed" in text and "single_consumer" in text
    rows = fusion.explain(c.sum()).rows
    assert (
        rows[0].name == "mul+tanh+mul"
        and rows[0].shape == (6, 5)
        and rows[0].launches[0] > rows[0].launches[1]
        and rows[0].bytes[0] > rows[0].bytes[1]
    )


# ---- patterns ----


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name)
def test_pattern_rows_name_ops_that_exist(pattern):
    check(pattern)


def test_user_patterns(device):
    calls = []

    def run(nodes, g):
        calls.append([n.node_name for n in nodes])
        return (g * 7.0,)

    pattern = fusion.Pattern("sin_cos", ("sin", "cos"), run, min_size=1)
    fusion.register_pattern(pattern)
    try:
        x = lucid.tensor(arr(4, 4), device=device, requires_grad=True)
        x.cos().sin().sum().backward()
        assert calls == [["sin", "cos"]] and host(x.grad)[0, 0] == 7.0
        with pytest.raises(LucidError, match="'sin_cos': that name is taken"):
            fusion.register_pattern(pattern)
    finally:
        PATTERNS.remove(pattern)
    short = fusion.register_pattern(Pattern("short", ("mul", "cos"), run, min_size=1, side_edges=True))
    try:
        x, y = (lucid.tensor(arr(4, 4), device=device, requires_grad=True) for _ in range(2))
        with pytest.raises(LucidError, match=r"'short': expected one gradient per edge .*\(2\), got 1"):
            (y * x.cos()).sum().backward()
    finally:
        PATTERNS.remove(short)
    with pytest.raises(LucidError, match="there is no op 'sinn'"):
        fusion.register_pattern(Pattern("x", ("sinn", "cos"), run))
    with pytest.raises(LucidError, match="at least two ops"):
        fusion.register_pattern(Pattern("x", ("sin",), run))
    with pytest.raises(LucidError, match="written in other ops"):
        check(Pattern("x", ("sin", "prelu"), run))
    with pytest.raises(LucidError, match="several outputs"):
        check(Pattern("x", ("sin", next(name for name, op in OPS.items() if len(op.diff) > 1)), run))
