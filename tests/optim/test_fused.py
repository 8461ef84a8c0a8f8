"""Many parameters at once: one kernel launch per dtype on CUDA, packs and threads on the CPU.

The same numbers as PyTorch, as one parameter after the other, and in every run.
"""

from __future__ import annotations

import itertools
import sys
import warnings

import numpy as np
import pytest

import lucid
from lucid import optim
from lucid.errors import LucidError
from lucid.fusion import sweep
from lucid.kernel.multi_tensor import CHUNK
from lucid.optim import elementwise, slots
from lucid.tensor import _wrap

SHAPES = ((5, 3), (4,), (), (0, 2), (3, 2, 2))


def _options():
    for momentum, damp, decay, nesterov, maximize in itertools.product(
        (0, 0.9), (0, 0.3), (0, 0.1), (False, True), (False, True)
    ):
        if (momentum or not (damp or nesterov)) and not (nesterov and damp):
            yield "SGD", dict(lr=0.05, momentum=momentum, dampening=damp, weight_decay=decay,
                              nesterov=nesterov, maximize=maximize)  # fmt: skip
    for name, decay, amsgrad, maximize in itertools.product(
        ("Adam", "AdamW"), (0, 0.1), (False, True), (False, True)
    ):
        yield name, dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=decay, amsgrad=amsgrad,
                         maximize=maximize)  # fmt: skip
    yield "Adam", dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True)
    yield "Adam", dict(lr=0.05, betas=(0.0, 0.0))


OPTIONS = list(_options())
IDS = [f"{name}-{'-'.join(f'{k}{v}' for k, v in o.items() if v and k != 'lr')}" for name, o in OPTIONS]
FEW = [
    ("SGD", dict(lr=0.1)),
    ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.1)),
    ("Adam", dict(lr=0.05, amsgrad=True)),
    ("AdamW", dict(lr=0.05)),
]


@pytest.fixture
def counters(device):
    """What a block asks of the simulated device; None elsewhere."""
    from lucid.testing import simulator

    return simulator.counted if simulator.is_on() and device != "cpu" else None


def _grads(step, dtype="float64"):
    rng = np.random.default_rng(step)
    return [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]


def _has(step, i):
    # Parameter 1 has a gradient in each second step, parameter 4 from step 3 on.
    return not (i == 1 and step % 2) and not (i == 4 and step < 3)


def _params(lib, device, dtype="float64"):
    rng = np.random.default_rng(99)
    values = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    where = {} if lib is not lucid else {"device": device}
    return [lib.tensor(v, requires_grad=True, **where) for v in values]


def _steps(lib, params, optimizer, steps, dtype="float64", odd_layout=False):
    for step in steps:
        for i, (p, g) in enumerate(zip(params, _grads(step, dtype), strict=True)):
            p.grad = None
            if _has(step, i):
                p.grad = lib.tensor(g).to(p.device)
                if odd_layout and g.ndim > 1 and lib is lucid:
                    p.grad = _wrap(p.grad.array.transpose().copy().transpose(), p.backend)
        optimizer.step()


def _values(params):
    return [p.detach().cpu().numpy().copy() for p in params]


def _state(optimizer):
    found = []
    for p in optimizer.param_groups[0]["params"]:
        for key, value in sorted(optimizer.state.get(p, {}).items()):
            value = value.cpu().numpy() if isinstance(value, lucid.Tensor) else np.asarray(value)
            found.append((key, value))
    return found


def _same_bits(a, b):
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype and x.tobytes() == y.tobytes()


# ---- against PyTorch ----


@pytest.mark.parametrize("case", OPTIONS, ids=IDS)
def test_20_steps_are_pytorchs(case, device):
    torch = pytest.importorskip("torch")
    name, options = case
    runs = []
    for lib in (lucid, torch):
        params = _params(lib, device)
        optimizer = getattr(lib.optim, name)(params, **options)
        _steps(lib, params, optimizer, range(20), odd_layout=True)
        runs.append((params, optimizer))
    (ours, optimizer), (theirs, reference) = runs
    for a, b in zip(_values(ours), theirs, strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-10, atol=1e-12)
    for p, q in zip(ours, theirs, strict=True):
        for key, value in reference.state[q].items():
            if value is not None:
                got = optimizer.state[p][key]
                got = got.cpu().numpy() if isinstance(got, lucid.Tensor) else got
                np.testing.assert_allclose(got, value.detach().numpy(), rtol=1e-10, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name,options", FEW)
def test_other_dtypes_are_those_of_the_rule(name, options, dtype, device):
    """Each step is the float64 step from the same point, rounded once; the state has float32."""
    params = [p.detach().to(dtype).requires_grad_() for p in _params(lucid, device)]
    optimizer = getattr(optim, name)(params, **options)
    exact = [lucid.tensor(v.astype("float64"), requires_grad=True) for v in _values(params)]
    reference = getattr(optim, name)(exact, **options, fused=False)
    eps = {"float32": 2e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    for step in range(6):
        for i, (p, q, g) in enumerate(zip(params, exact, _grads(step), strict=True)):
            p.grad = q.grad = None
            if _has(step, i):
                p.grad = lucid.tensor(g, dtype=dtype, device=p.device)
                q.grad = lucid.tensor(p.grad.cpu().numpy().astype("float64"))
        optimizer.step()
        reference.step()
        for a, q in zip(_values(params), exact, strict=True):
            assert a.dtype.name == dtype
            np.testing.assert_allclose(a.astype("float64"), q.detach().numpy(), rtol=eps, atol=eps)
            q.array[...] = a.astype("float64")
    for p in params:
        for value in optimizer.state[p].values():
            if isinstance(value, lucid.Tensor) and value.dtype != lucid.int64:
                assert value.dtype == lucid.float32


# ---- one launch ----


def test_one_launch_per_dtype(device, counters):
    """Four dtypes in two groups with other options: four launches."""
    if counters is None:
        pytest.skip("launches are counted on the simulated device")
    dtypes = ("float32", "float64", "float16", "bfloat16")
    params = [p.detach().to(d).requires_grad_() for d in dtypes for p in _params(lucid, device)]
    groups = [{"params": params[::2], "weight_decay": 0.0}, {"params": params[1::2], "lr": 0.5}]
    before = _values(params)
    optimizer = optim.AdamW(groups, lr=0.1, weight_decay=0.5)
    for p in params:
        p.grad = lucid.ones_like(p)
    optimizer.step()
    with counters() as counts:
        optimizer.step()
    assert counts == {"launches": 4, "raw": 4, "syncs": 0, "h2d_bytes": 0, "d2h_bytes": 0}
    # Two Adam steps along a constant gradient are 2 lr, with decay before each.
    for i, (a, b) in enumerate(zip(before, _values(params), strict=True)):
        lr, decay = (0.1, 0.0) if i % 2 == 0 else (0.5, 0.25)
        expected = a.astype("f8")
        for _ in range(2):
            expected = expected * (1 - decay) - lr
        low = a.dtype.itemsize == 2
        np.testing.assert_allclose(b.astype("f8"), expected, rtol=2e-2 if low else 1e-5, atol=2e-2 * low)


def test_no_gradient_no_launch(device, counters):
    if counters is None:
        pytest.skip("launches are counted on the simulated device")
    params = _params(lucid, device)
    optimizer = optim.SGD(params, momentum=0.9)
    _steps(lucid, params, optimizer, [4])
    for p in params:
        p.grad = None
    with counters() as counts:
        optimizer.step()
    assert counts["launches"] == 0


def test_fused_false_is_the_rule(device, counters):
    for name, options in FEW:
        runs = []
        for fused in (None, False, True):
            params = _params(lucid, device)
            optimizer = getattr(optim, name)(params, **options, fused=fused)
            if counters is None:
                _steps(lucid, params, optimizer, range(4))
            else:
                with counters() as counts:
                    _steps(lucid, params, optimizer, range(4))
                assert counts["raw"] == (0 if fused is False else 4)
            runs.append(_values(params))
        _same_bits(runs[0], runs[2])
        for a, b in zip(*runs[:2], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name,options", FEW)
def test_a_kernel_that_does_not_compile(name, options, device, monkeypatch):
    expected = _params(lucid, device)
    _steps(lucid, expected, getattr(optim, name)(expected, **options, fused=False), range(5))
    params = _params(lucid, device)
    optimizer = getattr(optim, name)(params, **options)
    _steps(lucid, params, optimizer, range(2))
    monkeypatch.setattr(elementwise, "usable", lambda *a: None)
    # The state goes on, its step numbers too, by the rule.
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    _steps(lucid, params, optimizer, range(2, 5))
    for a, b in zip(_values(params), _values(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    assert optimizer.state[params[0]]["step"] == 5


def test_switching_fused_and_options_goes_on(device):
    """Options that choose another kernel, or none, may change between steps; the state stays."""
    changes = [{}, {"fused": False}, {"fused": None}, {"amsgrad": True}, {"decoupled_weight_decay": True}]
    runs = []
    for fused in (None, False):
        params = _params(lucid, device)
        optimizer = optim.Adam(params, lr=0.05, weight_decay=0.1, fused=fused)
        for step, change in enumerate(changes):
            optimizer.param_groups[0].update(change if fused is None else {**change, "fused": False})
            _steps(lucid, params, optimizer, [step])
        runs.append(_values(params))
        assert optimizer.state[params[0]]["step"] == len(changes)
    for a, b in zip(*runs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


# ---- the same bits ----


@pytest.mark.parametrize("name,options", FEW)
def test_two_runs_give_the_same_bits(name, options, device):
    runs = []
    for seed in (1, 2):
        standin = sys.modules.get("lucid.testing.strictcupy") if device != "cpu" else None
        if standin is not None:
            standin.configure(order="random", seed=seed)
        params = _params(lucid, device, "float32")
        optimizer = getattr(optim, name)(params, **options)
        _steps(lucid, params, optimizer, range(6), "float32")
        runs.append((_values(params), [v for _, v in _state(optimizer)]))
    _same_bits(runs[0][0], runs[1][0])
    _same_bits(runs[0][1], runs[1][1])


@pytest.mark.parametrize("stop", [1, 3, 4])
@pytest.mark.parametrize("name,options", FEW)
def test_resume_has_the_same_bits(name, options, stop, device):
    """Also when some parameters have made fewer steps than others."""
    whole = _params(lucid, device, "float32")
    optimizer = getattr(optim, name)(whole, **options)
    _steps(lucid, whole, optimizer, range(stop), "float32")
    saved, values = optimizer.state_dict(), _values(whole)
    kept = [(k, v.cpu().numpy().copy()) for s in saved["state"].values() for k, v in s.items()
            if isinstance(v, lucid.Tensor)]  # fmt: skip
    _steps(lucid, whole, optimizer, range(stop, 8), "float32")
    again = [lucid.tensor(v, device=device, requires_grad=True) for v in values]
    resumed = getattr(optim, name)(again, **options)
    resumed.load_state_dict(saved)
    _steps(lucid, again, resumed, range(stop, 8), "float32")
    _same_bits(_values(whole), _values(again))
    for (key, a), (other, b) in zip(_state(optimizer), _state(resumed), strict=True):
        assert key == other and np.asarray(a).tobytes() == np.asarray(b).tobytes()
    now = [v for s in saved["state"].values() for v in s.values() if isinstance(v, lucid.Tensor)]
    for (key, a), b in zip(kept, now, strict=True):
        np.testing.assert_array_equal(a, b.cpu().numpy(), err_msg=f"{key} of the checkpoint has changed")


# ---- what the launch must cope with ----


def test_buffers_stay_and_versions_grow(device):
    for name, options in FEW:
        params = _params(lucid, device)
        buffers, versions = [p.array for p in params], [p._version for p in params]
        optimizer = getattr(optim, name)(params, **options)
        _steps(lucid, params, optimizer, [4])
        assert all(p.array is b for p, b in zip(params, buffers, strict=True))
        assert [p._version for p in params] == [v + 1 for v in versions]
        # A step that changes a saved value is found out.
        y = (params[0] * params[0]).sum()
        optimizer.step()
        with pytest.raises(LucidError, match="version"):
            y.backward()


def test_parameters_that_are_views_of_a_transpose(device):
    for name, options in FEW:
        rng = np.random.default_rng(3)
        value = rng.standard_normal((6, 4))
        plain = lucid.tensor(value, device=device, requires_grad=True)
        strided = _wrap(lucid.tensor(value.T.copy(), device=device).array.T, plain.backend, True)
        assert not strided.array.flags.c_contiguous
        optimizer = getattr(optim, name)([plain, strided], **options)
        for _ in range(3):
            plain.grad = lucid.tensor(rng.standard_normal((6, 4)), device=device)
            strided.grad = plain.grad.clone()
            optimizer.step()
        np.testing.assert_array_equal(*_values([plain, strided]))


def test_odd_addresses(device):
    """Parameters inside one flat buffer start where they like."""
    for name, options in FEW:
        flat = lucid.zeros(41, dtype="float32", device=device)
        params = [_wrap(flat.array[a:b], flat.backend, True) for a, b in ((0, 3), (3, 20), (20, 41))]
        copies = [p.detach().clone().requires_grad_() for p in params]
        ours, theirs = getattr(optim, name)(params, **options), getattr(optim, name)(copies, **options)
        for step in range(3):
            for i, (p, q) in enumerate(zip(params, copies, strict=True)):
                g = np.random.default_rng(10 * step + i).standard_normal(p.shape).astype("f4")
                p.grad, q.grad = (lucid.tensor(g, device=device) for _ in range(2))
            ours.step()
            theirs.step()
        _same_bits(_values(params), _values(copies))


def test_complex_parameters(device):
    rng = np.random.default_rng(1)
    value = rng.standard_normal((4, 3)) + 1j * rng.standard_normal((4, 3))
    for name, options in FEW:
        runs = []
        for where in (device, "cpu"):
            p = lucid.tensor(value, device=where, requires_grad=True)
            optimizer = getattr(optim, name)([p], **options, fused=None if where == device else False)
            for step in range(4):
                p.grad = lucid.tensor(value * np.exp(1j * step), device=where)
                optimizer.step()
            runs.append(p.detach().cpu().numpy())
        np.testing.assert_allclose(runs[0], runs[1], rtol=1e-12)


def test_one_group_on_two_devices(device):
    for name, options in FEW:
        params = _params(lucid, device)
        mixed = [p.detach().to("cpu" if i % 2 else device).requires_grad_() for i, p in enumerate(params)]
        _steps(lucid, params, getattr(optim, name)(params, **options), range(5))
        _steps(lucid, mixed, getattr(optim, name)(mixed, **options), range(5))
        for a, b in zip(_values(params), _values(mixed), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_more_than_one_block(device):
    rng = np.random.default_rng(0)
    value, grads = rng.standard_normal(2 * CHUNK + 77), rng.standard_normal((3, 2 * CHUNK + 77))
    for name, options in FEW:
        runs = []
        for where, fused in ((device, None), ("cpu", False)):
            p = lucid.tensor(value, device=where, requires_grad=True)
            optimizer = getattr(optim, name)([p], **options, fused=fused)
            for g in grads:
                p.grad = lucid.tensor(g, device=where)
                optimizer.step()
            runs.append(p.detach().cpu().numpy())
        np.testing.assert_allclose(*runs, rtol=1e-12, atol=1e-14)


def test_a_wrong_shape_stops_the_step_and_leaves_nothing_behind(device):
    params = _params(lucid, device)
    optimizer = optim.Adam(params)
    _steps(lucid, params, optimizer, [4])
    before = _values(params)
    whole, params[4].grad = params[4].data, lucid.zeros_like(params[4])
    params[4].data = lucid.ones(7, device=device, dtype="float64")
    with pytest.raises(LucidError, match="shape"):
        optimizer.step()
    params[4].data = whole
    for p in params:
        p.grad = None
    optimizer.step()
    _same_bits(before, _values(params))


def test_replaced_state_and_moved_parameters(device):
    p = lucid.tensor([1.0, 2.0], device=device, requires_grad=True)
    optimizer = optim.Adam([p], lr=0.1)
    p.grad = lucid.ones(2, device=device)
    for _ in range(3):
        optimizer.step()
    assert optimizer.state[p]["step"] == 3
    optimizer.state[p]["step"] = lucid.tensor(7) if device == "cpu" else 7
    optimizer.step()
    assert optimizer.state[p]["step"] == 8
    optimizer.state.clear()
    optimizer.step()
    assert optimizer.state[p]["step"] == 1
    p.data = lucid.zeros(2, device=device)
    optimizer.step()
    assert optimizer.state[p]["step"] == 2 and p.detach().cpu().numpy().all()


def test_loaded_state_may_lie_in_any_order(device):
    p, q = (lucid.tensor(np.ones((3, 4)), device=device, requires_grad=True) for _ in range(2))
    first, second = optim.Adam([p], lr=0.1), optim.Adam([q], lr=0.1)
    for parameter in (p, q):
        parameter.grad = lucid.tensor(np.arange(12.0).reshape(3, 4), device=device)
    first.step()
    saved = first.state_dict()
    for key in ("exp_avg", "exp_avg_sq"):
        value = saved["state"][0][key]
        saved["state"][0][key] = _wrap(value.array.transpose().copy().transpose(), value.backend)
    second.load_state_dict(saved)
    q.data = p.detach().clone()
    for _ in range(2):
        first.step()
        second.step()
    _same_bits(_values([p]), _values([q]))
    for (_, a), (_, b) in zip(_state(first), _state(second), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_parameter_group_may_come_later(device):
    params = _params(lucid, device)
    optimizer = optim.AdamW(params[:2], lr=0.1)
    _steps(lucid, params, optimizer, [4])
    optimizer.add_param_group({"params": params[2:], "lr": 0.2})
    _steps(lucid, params, optimizer, [6])
    assert [int(optimizer.state[p]["step"]) for p in params] == [2, 2, 1, 1, 1]


# ---- gradients that overflow ----


@pytest.mark.parametrize("name,options", FEW)
def test_a_skipped_step_never_was(name, options, device):
    """Parameters, state and step numbers after good, inf, nan, good are those after good, good."""
    runs = []
    for factors in ((1.0, np.inf, np.nan, 1.0), (1.0, 1.0)):
        params = _params(lucid, device, "float32")
        optimizer = getattr(optim, name)(params, **options)
        scaler = lucid.amp.GradScaler(device, init_scale=4.0, backoff_factor=0.5, growth_interval=100)
        good = 0
        for factor in factors:
            for p, g in zip(params, _grads(good, "float32"), strict=True):
                p.grad = scaler.scale(lucid.tensor(g, device=device)) * factor
            good += np.isfinite(factor)
            scaler.step(optimizer)
            scaler.update()
        runs.append((_values(params), [v for _, v in _state(optimizer)]))
        assert scaler.get_scale() == (1.0 if len(factors) == 4 else 4.0)
    _same_bits(*(r[0] for r in runs))
    _same_bits(*(r[1] for r in runs))


def test_optimisers_that_count_on_the_host_are_held_back_by_it(device):
    p = lucid.tensor([1.0, 2.0], device=device, requires_grad=True)
    optimizer = optim.NAdam([p], lr=0.1)
    scaler = lucid.amp.GradScaler(device, init_scale=2.0)
    p.grad = lucid.tensor([np.inf, 1.0], device=device)
    assert scaler.step(optimizer) is None and p.tolist() == [1.0, 2.0] and p not in optimizer.state
    scaler.update()
    assert scaler.get_scale() == 1.0


# ---- PyTorch's options ----

# Those that are `capturable` in PyTorch and count their steps on the host here.
ON_HOST = ("NAdam", "RAdam", "Adamax", "RMSprop", "Adadelta", "Rprop", "ASGD")


def test_options_of_implementation(device):
    p = lucid.tensor([1.0], device=device, requires_grad=True)
    p.grad = lucid.ones(1, device=device)
    for name in ("SGD", "Adagrad", "Adafactor", "Adam", "AdamW", *ON_HOST):
        for foreach in (None, False, True):
            optimizer = getattr(optim, name)([p], foreach=foreach)
            optimizer.step()
            assert optimizer.param_groups[0]["foreach"] is foreach
        if name != "Adafactor":
            with pytest.raises(LucidError, match=rf"{name}: differentiable=True is not supported"):
                getattr(optim, name)([p], differentiable=True)
    for name in ("Adam", "AdamW"):
        getattr(optim, name)([p], capturable=True).step()
        with pytest.raises(LucidError, match="cannot be captured; leave fused=False out"):
            getattr(optim, name)([p], capturable=True, fused=False)
    for name in ON_HOST:
        with pytest.raises(LucidError, match="cannot be captured; SGD, Adam and AdamW can"):
            getattr(optim, name)([p], capturable=True)
    with pytest.raises(LucidError, match="fused and foreach cannot both be True"):
        optim.SGD([p], fused=True, foreach=True)


def test_signatures_have_pytorchs_options():
    import inspect

    torch = pytest.importorskip("torch")
    for name in ("SGD", "Adagrad", "Adafactor", "Adam", "AdamW", "LBFGS", *ON_HOST):
        ours, theirs = (inspect.signature(getattr(lib.optim, name)).parameters for lib in (lucid, torch))
        assert theirs.keys() <= ours.keys(), name
        positional = [[k for k, v in p.items() if v.kind is v.POSITIONAL_OR_KEYWORD] for p in (ours, theirs)]
        assert positional[0] == positional[1], name


def test_a_learning_rate_in_a_tensor(device):
    for name, options in FEW:
        a, b = (lucid.tensor([1.0, -2.0], device=device, requires_grad=True) for _ in range(2))
        lr = lucid.tensor(0.1, dtype="float64")
        first, second = (
            getattr(optim, name)([a], **{**options, "lr": lr}),
            getattr(optim, name)([b], **options),
        )
        for value in (0.1, 0.025):
            lr.fill_(value)
            second.param_groups[0]["lr"] = value
            for p, optimizer in ((a, first), (b, second)):
                p.grad = lucid.ones(2, device=device)
                optimizer.step()
        assert a.tolist() == b.tolist()


# ---- the CPU ----


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RAdam", "Adamax", "Lion", "RMSprop", "Adagrad",
                                  "Adadelta", "Rprop"])  # fmt: skip
def test_a_pack_is_its_parameters(name, monkeypatch):
    """Small parameters stepped together have the bits of those stepped alone, gradients missing or not."""
    runs = []
    for small in (slots.SMALL, -1):
        monkeypatch.setattr(elementwise, "SMALL", small)
        params = _params(lucid, "cpu", "float32")
        options = {"momentum": 0.9, "weight_decay": 0.1} if name == "SGD" else {"maximize": True}
        optimizer = getattr(optim, name)(params, **options)
        _steps(lucid, params, optimizer, range(8), "float32")
        runs.append((_values(params), [v for _, v in _state(optimizer)]))
        homes = {type(s.home) for group in optimizer._slots.values() for s in group}
        assert homes == ({slots.Pack} if small > 0 else {type(None)})
    _same_bits(*(r[0] for r in runs))
    _same_bits(*(r[1] for r in runs))


def test_packs_have_a_largest_size(monkeypatch):
    monkeypatch.setattr(elementwise, "PACK", 20)
    params = [lucid.zeros(8, requires_grad=True) for _ in range(7)]
    optimizer = optim.Adam(params, lr=0.1)
    for p in params:
        p.grad = lucid.ones(8)
    optimizer.step()
    packs = {id(s.home): len(s.home.slots) for s in optimizer._slots[id(optimizer.param_groups[0])]}
    assert sorted(packs.values()) == [1, 2, 2, 2]
    for p in params:
        np.testing.assert_allclose(p.detach().numpy(), -0.1, rtol=1e-6)


def test_threads_give_the_same_bits(monkeypatch):
    sizes = (3 * slots.PART + 5, slots.PART, 1000, 30)
    monkeypatch.setattr(slots, "THREADED", 1 << 10)
    runs = []
    for threads in (1, 3):
        monkeypatch.setattr(sweep, "_threads", threads)
        monkeypatch.setattr(sweep, "_pool", None)
        rng = np.random.default_rng(0)
        params = [lucid.tensor(rng.standard_normal(n, "f4"), requires_grad=True) for n in sizes]
        optimizer = optim.AdamW(params, lr=0.1)
        for _ in range(3):
            for p in params:
                p.grad = lucid.tensor(rng.standard_normal(p.shape, "f4"))
            optimizer.step()
        runs.append(_values(params))
        if sweep._pool is not None:
            sweep._pool.shutdown()
    _same_bits(*runs)


def test_overflow_prints_nothing(device):
    for name, options in FEW:
        p = lucid.tensor(np.ones(3, "f4"), device=device, requires_grad=True)
        p.grad = lucid.tensor(np.array([1e30, np.inf, np.nan], "f4"), device=device)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            getattr(optim, name)([p], **options).step()
            lucid.nn.utils.clip_grad_norm_([p], 1.0)
