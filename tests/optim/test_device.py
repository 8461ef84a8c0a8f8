"""Optimisers and random numbers on every device: the CPU's results, and no wait for the device."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import lucid
from lucid import optim
from lucid.storage.random import Generator

OPTIONS = {
    "SGD": dict(momentum=0.9, nesterov=True, weight_decay=0.1),
    "ASGD": dict(weight_decay=0.1),
    "Rprop": {},
    "Adam": dict(amsgrad=True, maximize=True),
    "AdamW": {},
    "NAdam": dict(weight_decay=0.1),
    "RAdam": {},
    "Adamax": {},
    "Lion": dict(weight_decay=0.1),
    "RMSprop": dict(centered=True, momentum=0.5),
    "Adagrad": {},
    "Adadelta": {},
    "Adafactor": {},
    "Muon": {},
}


def _syncs() -> int | None:
    # The stand-in for CuPy counts what makes the host wait.
    standin = sys.modules.get("lucid.testing.strictcupy")
    return None if standin is None else standin.COUNT.syncs


def _steps(name: str, device: str, dtype: str = "float64") -> tuple[np.ndarray, optim.Optimizer]:
    rng = np.random.default_rng(0)
    p = lucid.tensor(rng.normal(size=(5, 4)), dtype=dtype, device=device, requires_grad=True)
    grads = [lucid.tensor(rng.normal(size=(5, 4)), dtype=dtype, device=device) for _ in range(4)]
    optimizer = getattr(optim, name)([p], **OPTIONS[name])
    for i, g in enumerate(grads):
        p.grad = g
        before = _syncs()
        optimizer.step()
        if i:
            assert _syncs() == before, "a step waited for the device"
    return p.detach().cpu().numpy(), optimizer


@pytest.mark.parametrize("name", OPTIONS)
def test_a_step_on_the_device_is_the_cpus(name, device):
    values, optimizer = _steps(name, device)
    expected, reference = _steps(name, "cpu")
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-14)
    # A checkpoint of one device resumes on the other.
    optimizer.load_state_dict(reference.state_dict())
    for value in optimizer.state[optimizer.param_groups[0]["params"][0]].values():
        assert not isinstance(value, lucid.Tensor) or value.device.type == device


def test_float16_on_the_device(device):
    values, _ = _steps("AdamW", device, "float16")
    expected, _ = _steps("AdamW", "cpu", "float16")
    np.testing.assert_allclose(values.astype("float32"), expected.astype("float32"), rtol=2e-3)


@pytest.mark.parametrize(
    "draw",
    [
        lambda g: g.words(70_001),
        lambda g: g.uniform((33, 7)),
        lambda g: g.uniform((33,), -2.0, 5.0, "float64"),
        lambda g: g.uniform((33,), dtype="float16"),
        lambda g: g.integers(-5, 5, (33,)),
        lambda g: g.integers(0, 2**62 + 1, (33,)),
        lambda g: g.bernoulli_mask((33,), 0.3),
        lambda g: g.permutation(1000),
    ],
)
def test_bits_are_the_same_on_every_device(draw, device):
    a, b = Generator(device).manual_seed(2**40 + 3), Generator("cpu").manual_seed(2**40 + 3)
    for _ in range(2):
        x, y = a.backend.to_numpy(draw(a)), draw(b)
        assert x.dtype == y.dtype and a.get_state() == b.get_state()
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "draw",
    [
        lambda g: g.normal((33, 7)),
        lambda g: g.normal((33,), 1.0, 2.0, "float64"),
        lambda g: g.exponential((33,), 0.5),
    ],
)
def test_functions_of_the_bits_agree_within_rounding(draw, device):
    a, b = Generator(device).manual_seed(1), Generator("cpu").manual_seed(1)
    x, y = a.backend.to_numpy(draw(a)), draw(b)
    np.testing.assert_allclose(x, y, rtol=16 * np.finfo(y.dtype).eps, atol=16 * np.finfo(y.dtype).eps)


def test_tensors_on_the_device(device):
    lucid.manual_seed(5)
    a = [
        lucid.rand(4, device=device),
        lucid.randn(3, device=device),
        lucid.randint(9, (5,), device=device),
        lucid.randperm(6, device=device),
        lucid.zeros(3, device=device).uniform_(),
        lucid.bernoulli(lucid.full((9,), 0.5, device=device)),
        lucid.poisson(lucid.ones(4, device=device)),
        lucid.multinomial(lucid.ones(5, device=device), 3),
        lucid.multinomial(lucid.ones(2, 5, device=device), 7, True),
    ]
    lucid.manual_seed(5)
    b = [
        lucid.rand(4),
        lucid.randn(3),
        lucid.randint(9, (5,)),
        lucid.randperm(6),
        lucid.zeros(3).uniform_(),
        lucid.bernoulli(lucid.full((9,), 0.5)),
        lucid.poisson(lucid.ones(4)),
        lucid.multinomial(lucid.ones(5), 3),
        lucid.multinomial(lucid.ones(2, 5), 7, True),
    ]
    for x, y in zip(a, b, strict=True):
        assert x.device.type == device
        np.testing.assert_allclose(x.cpu().numpy(), y.numpy(), rtol=1e-6)
    for t in (
        lucid.arange(5, device=device),
        lucid.linspace(0, 1, 5, device=device),
        lucid.eye(3, device=device),
        lucid.full((2,), 3, device=device),
        lucid.zeros_like(a[0]),
        a[0].new_ones(2),
    ):
        assert t.device.type == device
    if device != "cpu":
        with pytest.raises(lucid.errors.DeviceError, match="generator: expected one on"):
            lucid.rand(2, device=device, generator=Generator("cpu"))


TWO_DEVICES = """
import numpy as np
import lucid
from lucid import nn, optim

assert lucid.cuda.device_count() == 2


def run(places, name, options, scaled):
    rng = np.random.default_rng(0)
    params = [lucid.tensor(rng.standard_normal((4, 3)), device=d, requires_grad=True) for d in places]
    optimizer = getattr(optim, name)(params, **options)
    scaler = lucid.amp.GradScaler("cuda", init_scale=4.0, enabled=scaled)
    totals = []
    for step in range(4):
        for i, p in enumerate(params):
            g = rng.standard_normal((4, 3)) * (4.0 if scaled else 1.0)
            if step == 2 and i == 3 and scaled:
                g[0] = np.inf
            p.grad = lucid.tensor(g, device=p.device)
        scaler.scale(params[0].grad)
        scaler.unscale_(optimizer)
        totals.append(nn.utils.clip_grad_norm_(params, 1.0).item())
        scaler.step(optimizer)
        scaler.update()
    return [*(p.detach().cpu().numpy() for p in params), np.array([*totals, scaler.get_scale()])]


for name, options in CASES:
    for scaled in (False, True):
        here = run(["cuda:0", "cuda:1", "cpu", "cuda:1"], name, options, scaled)
        there = run(["cpu"] * 4, name, options, scaled)
        for a, b in zip(here, there):
            np.testing.assert_allclose(a, b, rtol=1e-9)
print("the same")
"""


def test_parameters_on_two_gpus_and_the_cpu(device):
    """One group on three devices, clipped by the norm of all, and held back on all when one overflows."""
    from lucid.testing import simulator

    if device == "cpu" or not simulator.is_on():
        pytest.skip("two devices are there in the simulator")
    cases = [("SGD", dict(lr=0.1, momentum=0.9)), ("AdamW", dict(lr=0.1)), ("Adam", dict(fused=False)),
             ("NAdam", {})]  # fmt: skip
    environment = {**os.environ, "LUCID_CUDA": "sim", "LUCID_CUDA_SIM_DEVICES": "2"}
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES.replace("CASES", repr(cases))],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "the same\n", done.stderr
