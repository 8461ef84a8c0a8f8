"""Kernels made from update rules (optim/traced.py): the bits of the rule on the CPU, one launch per step."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import optim
from lucid.errors import LucidError
from lucid.kernel import compile as compiling
from lucid.kernel import loader
from lucid.kernel.multi_tensor import CHUNK
from lucid.optim import rules, traced
from lucid.optim.elementwise import Elementwise
from lucid.tensor import _wrap
from lucid.testing import simulator

CASES = {
    "rmsprop": ("RMSprop", dict(lr=0.05, weight_decay=0.1)),
    "rmsprop_centered": ("RMSprop", dict(lr=0.01, centered=True, eps=1e-3, maximize=True)),
    "rmsprop_momentum": ("RMSprop", dict(lr=0.05, momentum=0.9)),
    "rmsprop_all": ("RMSprop", dict(lr=0.01, centered=True, momentum=0.5, weight_decay=0.1, eps=1e-3)),
    "adagrad": ("Adagrad", dict(lr=0.1, lr_decay=0.1, initial_accumulator_value=0.2, weight_decay=0.1)),
    "adagrad_plain": ("Adagrad", dict(maximize=True)),
    "adadelta": ("Adadelta", dict(weight_decay=0.1, maximize=True)),
    "adamax": ("Adamax", dict(lr=0.05, betas=(0.8, 0.95), weight_decay=0.1)),
    "nadam": ("NAdam", dict(lr=0.05, weight_decay=0.1)),
    "nadam_decoupled": ("NAdam", dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    # With beta2 = 0.9 the rectification begins at step 6, with 0.5 never; parameters differ in their steps.
    "radam": ("RAdam", dict(lr=0.05, betas=(0.9, 0.9), weight_decay=0.1)),
    "radam_decoupled": (
        "RAdam",
        dict(lr=0.05, betas=(0.9, 0.5), weight_decay=0.1, decoupled_weight_decay=True),
    ),
    "rprop": ("Rprop", dict(lr=0.05)),
    "rprop_bounds": ("Rprop", dict(lr=0.05, etas=(0.3, 2.0), step_sizes=(0.02, 0.12), maximize=True)),
    "asgd": ("ASGD", dict(lr=0.05, t0=2, lambd=0.01, weight_decay=0.1)),
    "lion": ("Lion", dict(lr=0.01, weight_decay=0.1)),
    "lion_maximize": ("Lion", dict(lr=0.01, maximize=True)),
}
DTYPES = ("float64", "float32", "float16", "bfloat16", "complex64")
# The last is kept transposed: its parameter is not contiguous.
SHAPES = ((7, 5), (3,), (), (0, 2), (1000,), (6, 4))
STEPS = 7


@pytest.fixture
def cuda(device):
    if device == "cpu":
        pytest.skip("no kernels there")
    return device


@pytest.fixture
def counted(cuda):
    if not simulator.is_on():
        pytest.skip("launches are counted on the simulated device")
    return simulator.counted


def _drawn(rng, dtype):
    # From bits that all dtypes have: the values are the same on both devices.
    for shape in SHAPES:
        x = rng.standard_normal(shape)
        yield x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x


def _params(device, dtype):
    params = [lucid.tensor(x, dtype=dtype).to(device) for x in _drawn(np.random.default_rng(1), dtype)]
    turned = params[-1]
    params[-1] = _wrap(turned.array.T.copy().T, turned.backend)
    return [p.requires_grad_() for p in params]


def _steps(params, optimizer, steps, dtype):
    for step in steps:
        for i, (p, g) in enumerate(zip(params, _drawn(np.random.default_rng(10 + step), dtype), strict=True)):
            # Some gradients come late or with gaps: parameters of one launch differ in their steps.
            has = not (i == 1 and step % 2) and not (i == 4 and step < 3)
            p.grad = lucid.tensor(g, dtype=dtype).to(p.device) if has else None
        optimizer.step()


def _all(params, optimizer):
    found = [(f"p{i}", p.detach().cpu().numpy()) for i, p in enumerate(params)]
    for i, p in enumerate(params):
        for key, value in sorted(optimizer.state.get(p, {}).items()):
            value = value.cpu().numpy() if isinstance(value, lucid.Tensor) else np.asarray(value)
            found.append((f"{key} of p{i}", value))
    return found


def _run(device, case, dtype, steps=range(STEPS), **more):
    name, options = CASES[case]
    params = _params(device, dtype)
    optimizer = getattr(optim, name)(params, **options, **more)
    _steps(params, optimizer, steps, dtype)
    return params, optimizer


def _same(a, b, exact=True):
    """exact: bit for bit; a GPU flushes float32's subnormal numbers to zero, the simulated one does not."""
    assert [key for key, _ in a] == [key for key, _ in b]
    for (key, x), (_, y) in zip(a, b, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape, key
        if exact:
            assert x.tobytes() == y.tobytes(), (key, x, y)
        else:
            wide = complex if x.dtype.kind == "c" else float
            np.testing.assert_allclose(x.astype(wide), y.astype(wide), rtol=1e-6, atol=1e-30, err_msg=key)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_a_step_has_the_bits_of_the_rule(case, dtype, cuda):
    ours, optimizer = _run(cuda, case, dtype)
    expected = _all(*_run("cpu", case, dtype))
    _same(_all(ours, optimizer), expected, simulator.is_on())
    assert optimizer.state[ours[0]]["step"] == STEPS and optimizer.state[ours[1]]["step"] == (STEPS + 1) // 2
    assert not np.array_equal(expected[0][1], _params("cpu", dtype)[0].detach().numpy())


@pytest.mark.parametrize("case", CASES)
def test_one_launch(case, counted):
    """20 tensors in two groups: a launch, and a line of numbers per group where they follow the step;
    gradients that have moved are 8 bytes each.
    """
    name, options = CASES[case]
    params = [lucid.ones(i % 5, 3, device="cuda", requires_grad=True) for i in range(20)]
    optimizer = getattr(optim, name)(
        [{"params": params[::2]}, {"params": params[1::2], "lr": 0.5}], **options
    )
    for p in params:
        p.grad = lucid.ones_like(p)
    for _ in range(6):  # RAdam's choice of formula is made by then
        optimizer.step()
    follows = name in ("Adagrad", "Adamax", "NAdam", "RAdam", "ASGD") and case != "adagrad_plain"
    for _ in range(2):
        with counted() as counts:
            optimizer.step()
        sent = counts.pop("h2d_bytes")
        assert counts == {"launches": 1, "raw": 1, "syncs": 0, "d2h_bytes": 0}
        assert 0 < sent <= 2 * 9 * 4 if follows else sent == 0
    for p in params:
        p.grad = lucid.ones_like(p)
    with counted() as counts:
        optimizer.step()
    assert counts["launches"] == 1 and counts["syncs"] == 0
    assert counts["h2d_bytes"] <= 20 * 8 + 2 * 9 * 4


def test_one_launch_per_dtype_and_choice_of_flags(counted):
    params = [
        lucid.ones(3, 4, dtype=d, device="cuda", requires_grad=True) for d in ("float32", "float16") * 4
    ]
    groups = [
        {"params": params[:4]},
        {"params": params[4:], "weight_decay": 0.1, "lr": 0.5, "maximize": True},
    ]
    for decoupled, launches in ((False, 2), (True, 4)):
        optimizer = optim.NAdam(groups, decoupled_weight_decay=decoupled)
        for p in params:
            p.grad = lucid.ones_like(p)
        with counted() as counts:
            optimizer.step()
        assert counts["raw"] == launches and counts["syncs"] == 0
    for p in params:
        p.grad = None
    with counted() as counts:
        optimizer.step()
    assert counts["launches"] == 0


def test_a_rate_that_changes_is_followed(cuda):
    runs = []
    for device in (cuda, "cpu"):
        p = lucid.tensor(np.linspace(-1, 1, 9), device=device, requires_grad=True)
        optimizer = optim.Lion([p], lr=0.1)
        for step in range(4):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step % 2)
            p.grad = lucid.tensor(np.sin(np.arange(9.0) + step), device=device)
            optimizer.step()
        runs.append(p.detach().cpu().numpy())
    assert runs[0].tobytes() == runs[1].tobytes()


@pytest.mark.parametrize("case", ["rmsprop_all", "nadam", "rprop"])
def test_more_than_one_block_and_odd_addresses(case, cuda):
    name, options = CASES[case]
    rng = np.random.default_rng(0)
    ends = (0, 3, 20, 2 * CHUNK + 97, 2 * CHUNK + 101)
    value, grads = rng.standard_normal(ends[-1]).astype("f4"), rng.standard_normal((3, ends[-1])).astype("f4")
    runs = []
    for device in (cuda, "cpu"):
        flat = lucid.tensor(value, device=device)
        params = [
            _wrap(flat.array[a:b], flat.backend, True) for a, b in zip(ends[:-1], ends[1:], strict=True)
        ]
        versions = [p._version for p in params]
        optimizer = getattr(optim, name)(params, **options)
        for g in grads:
            for p, a, b in zip(params, ends[:-1], ends[1:], strict=True):
                p.grad = lucid.tensor(g[a:b], device=device)
            optimizer.step()
        assert [p._version for p in params] == [v + 3 for v in versions]
        runs.append([("flat", flat.cpu().numpy())])
    _same(*runs, simulator.is_on())


def test_a_view_of_a_transpose_is_followed(cuda):
    """Also when its values change between steps."""
    value, rng = np.arange(24.0).reshape(6, 4), np.random.default_rng(0)
    plain = lucid.tensor(value, device=cuda, requires_grad=True)
    turned = _wrap(lucid.tensor(value.T.copy(), device=cuda).array.T, plain.backend, True)
    assert not turned.array.flags.c_contiguous
    optimizer = optim.ASGD([plain, turned], lr=0.1)
    for _ in range(3):
        for p in (plain, turned):
            p.array[...] *= 0.5
        plain.grad = lucid.tensor(rng.standard_normal((6, 4)), device=cuda)
        turned.grad = plain.grad.clone()
        optimizer.step()
    _same([("p", plain.detach().cpu().numpy())], [("p", turned.detach().cpu().numpy())])


@pytest.mark.parametrize("places", [("cpu", "cuda:0"), ("cuda:0", "cuda:1")])
def test_one_group_on_two_devices(places, counted):
    with simulator.devices(2):
        expected = _run("cpu", "nadam", "float32")
        params = [p.detach().to(places[i % 2]) for i, p in enumerate(_params("cpu", "float32"))]
        params = [p.requires_grad_() for p in params]
        optimizer = optim.NAdam(params, **CASES["nadam"][1])
        with counted() as counts:
            _steps(params, optimizer, range(STEPS), "float32")
        assert counts["raw"] == STEPS * sum(place != "cpu" for place in places)
        _same(_all(params, optimizer), _all(*expected))


@pytest.mark.parametrize("case", CASES)
def test_resume_and_two_runs_have_the_same_bits(case, cuda):
    name, options = CASES[case]
    whole, optimizer = _run(cuda, case, "float32", range(3))
    saved, values = optimizer.state_dict(), [p.detach().cpu().numpy() for p in whole]
    _steps(whole, optimizer, range(3, STEPS), "float32")
    again = [lucid.tensor(v, device=cuda, requires_grad=True) for v in values]
    resumed = getattr(optim, name)(again, **options)
    resumed.load_state_dict(saved)
    _steps(again, resumed, range(3, STEPS), "float32")
    _same(_all(whole, optimizer), _all(again, resumed))
    if simulator.is_on():
        with simulator.configured(order="random", seed=5):
            _same(_all(whole, optimizer), _all(*_run(cuda, case, "float32")))


@pytest.mark.parametrize("case", ["rmsprop_all", "lion"])
def test_every_access_is_allowed(case, counted):
    """A run with all accesses watched: bounds, alignment, races."""
    expected = _all(*_run("cuda", case, "float16", range(2)))
    with simulator.configured(mode="checked", order="random", seed=3):
        _same(_all(*_run("cuda", case, "float16", range(2))), expected)


def test_a_skipped_step_never_was(cuda):
    for name in ("NAdam", "ASGD", "Lion"):
        runs = []
        for factors in ((1.0, np.inf, 1.0), (1.0, 1.0)):
            p = lucid.tensor(np.arange(5.0, dtype="f4"), device=cuda, requires_grad=True)
            optimizer = getattr(optim, name)([p], lr=0.1)
            scaler = lucid.amp.GradScaler(cuda, init_scale=4.0, growth_interval=100)
            for factor in factors:
                p.grad = scaler.scale(lucid.ones(5, device=cuda)) * factor
                assert not optimizer.steps_on_device()
                scaler.step(optimizer)
                scaler.update()
            runs.append(_all([p], optimizer))
        _same(*runs)


def test_a_wrong_shape_stops_the_step_and_leaves_nothing_behind(cuda):
    """Also for groups before the one with the error: no step is counted, nothing is changed."""
    a, b = (lucid.ones(3, device=cuda, requires_grad=True) for _ in range(2))
    optimizer = optim.NAdam([{"params": [a]}, {"params": [b]}])
    for p in (a, b):
        p.grad = lucid.ones(3, device=cuda)
    optimizer.step()
    before = _all([a], optimizer)
    b.data = lucid.ones(7, device=cuda)
    with pytest.raises(LucidError, match="shape"):
        optimizer.step()
    _same(_all([a], optimizer), before)
    b.data = lucid.ones(3, device=cuda)
    optimizer.step()
    assert optimizer.state[a]["step"] == 2


# ---- the tracer ----


class _Own(Elementwise):
    """p becomes rule(p, g)."""

    def __init__(self, params, rule, **options):
        self.rule = rule
        super().__init__(params, dict(lr=1.0, maximize=False, **options))

    def _names(self, group):
        return ()

    def _rule(self, group, state):
        return self.rule, (2.0,), (), 0.0


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -3.5, 1e30, np.inf, -np.inf, np.nan], "f4")


@pytest.mark.parametrize("name", traced._UFUNCS)
def test_a_ufunc_is_numpys(name, counted):
    x, y = (v.reshape(-1).copy() for v in np.meshgrid(SPECIAL, SPECIAL))
    ufunc = getattr(np, name)
    p = lucid.tensor(x, device="cuda", requires_grad=True)
    p.grad = lucid.tensor(y, device="cuda")
    operands = slice(ufunc.nin)

    def rule(xp, p, g, t, two):
        getattr(xp, name)(*(p, g)[operands], out=p)

    with counted() as counts:
        _Own([p], rule).step()
    assert counts["raw"] == 1
    with np.errstate(all="ignore"):
        expected = ufunc(*(x, y)[operands])
    got = p.detach().cpu().numpy()
    np.testing.assert_array_equal(got, expected)
    if name not in ("maximum", "minimum"):  # which of two zeros these return is the machine's affair
        signs = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got)[signs], np.signbit(expected)[signs])


def _exponential(xp, p, g, t, two):
    xp.exp(g, out=t)
    xp.add(p, t, out=p)


def _by_item(xp, p, g, t, two):
    p[...] = p + g


def _by_value(xp, p, g, t, two):
    if (g == 0).any():
        return
    xp.add(p, g, out=p)


def _writes_g(xp, p, g, t, two):
    xp.multiply(g, two, out=g)
    xp.add(p, g, out=p)


@pytest.mark.parametrize("rule", [_exponential, _by_item, _by_value, _writes_g])
def test_a_rule_that_cannot_be_traced_runs_on_arrays(rule, cuda):
    runs = []
    for device in (cuda, "cpu"):
        p = lucid.tensor([1.0, 2.0, 3.0], dtype="float64", device=device, requires_grad=True)
        optimizer = _Own([p], rule)
        for _ in range(2):
            p.grad = lucid.tensor([0.5, 0.25, -1.0], dtype="float64", device=device)
            optimizer.step()
        assert optimizer.state[p]["step"] == 2 and p._version == 2
        runs.append(p.tolist())
    assert traced.source(rule, (), (), 1, 1) is None
    np.testing.assert_allclose(*runs, rtol=1e-15)


def test_a_kernel_that_does_not_compile(counted, monkeypatch):
    expected = _all(*_run("cuda", "lion", "float64"))
    monkeypatch.setattr(traced, "source", lambda *key: "this is no CUDA")
    with pytest.warns(RuntimeWarning, match="lion step.*does not compile"):
        found = _run("cuda", "lion", "float64")
    _same(_all(*found), expected)


def test_fused_false_is_the_rule(counted):
    expected = _all(*_run("cuda", "adagrad", "float32"))
    with counted() as counts:
        found = _run("cuda", "adagrad", "float32", fused=False)
    assert counts["raw"] == 0
    _same(_all(*found), expected)


@pytest.mark.skipif(not compiling.available()[0], reason=compiling.available()[1] or "installed")
@pytest.mark.parametrize("dtype", loader.MACRO)
def test_what_a_gpu_gets(dtype):
    """The rule with the most state: compiled for sm_90 nothing spills, and no float64 outside float64."""
    code = traced.source(rules.rmsprop_full, (), (True, True, True), 1, 5)
    binary, log = compiling.cubin(code, loader.options(dtype), 90, "rmsprop")
    found = compiling.read_resources(log)["fused"]
    assert found.spills == found.stack == 0 and found.registers <= 128
    if compiling.disassembler():
        kernel = compiling.disassemble(binary)["fused"]
        assert kernel.load128 >= 5 and kernel.store128 >= 4
        assert dtype == "float64" or not kernel.float64
