"""Every optimiser against torch.optim over 20 steps in float64, and Lion against the formula of its paper."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import optim

torch = pytest.importorskip("torch")

CASES = {
    "sgd": ("SGD", dict(lr=0.1)),
    "sgd_decay": ("SGD", dict(lr=0.1, weight_decay=0.1)),
    "sgd_maximize": ("SGD", dict(lr=0.01, maximize=True, weight_decay=0.1)),
    "sgd_momentum": ("SGD", dict(lr=0.05, momentum=0.9)),
    "sgd_dampening": ("SGD", dict(lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.01)),
    "sgd_nesterov": ("SGD", dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)),
    "adam": ("Adam", dict(lr=0.05)),
    "adam_decay": ("Adam", dict(lr=0.05, weight_decay=0.1, betas=(0.8, 0.95), eps=1e-3)),
    "adam_amsgrad": ("Adam", dict(lr=0.05, amsgrad=True, maximize=True)),
    "adamw": ("AdamW", dict(lr=0.05, weight_decay=0.1)),
    "adamw_amsgrad": ("AdamW", dict(lr=0.05, amsgrad=True)),
    "nadam": ("NAdam", dict(lr=0.05, weight_decay=0.05)),
    "nadam_decoupled": ("NAdam", dict(lr=0.05, weight_decay=0.05, decoupled_weight_decay=True)),
    "radam": ("RAdam", dict(lr=0.05, weight_decay=0.05)),
    "radam_decoupled": (
        "RAdam",
        dict(lr=0.05, betas=(0.9, 0.9), weight_decay=0.05, decoupled_weight_decay=True),
    ),
    "adamax": ("Adamax", dict(lr=0.05, weight_decay=0.05)),
    "rmsprop": ("RMSprop", dict(lr=0.05)),
    "rmsprop_centered": ("RMSprop", dict(lr=0.01, centered=True, momentum=0.5, weight_decay=0.05, eps=1e-3)),
    "adagrad": ("Adagrad", dict(lr=0.1, lr_decay=0.1, initial_accumulator_value=0.2, weight_decay=0.05)),
    "adadelta": ("Adadelta", dict(lr=1.0, weight_decay=0.05)),
    "rprop": ("Rprop", dict(lr=0.05)),
    "asgd": ("ASGD", dict(lr=0.05, t0=5, weight_decay=0.05, lambd=0.01)),
    "adafactor": ("Adafactor", dict(lr=0.05, weight_decay=0.05)),
    "adafactor_eps": ("Adafactor", dict(lr=0.05, eps=(1e-8, 1e-2), d=1.5, beta2_decay=-0.6)),
    "lbfgs": ("LBFGS", dict(lr=0.3, max_iter=4, history_size=3)),
    "lbfgs_wolfe": ("LBFGS", dict(max_iter=3, line_search_fn="strong_wolfe")),
}
SHAPES = [(5, 3), (3,), (), (2, 3, 4), (0, 2)]


def _start(name: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    # torch's Adafactor divides by the number of elements.
    return [rng.normal(size=shape) for shape in SHAPES if name != "Adafactor" or 0 not in shape]


def _loss(params, targets):
    # Quartic in part, so that gradients change size and sign.
    total = 0.0
    for p, t in zip(params, targets, strict=True):
        d = p - t
        total = total + (d * d).sum() + 0.1 * (d * d * d * d).sum() + (p * d).sum() * 0.5
    return total


def _run(module, make, name, options, steps, dtype="float64"):
    values = [v.astype(dtype) for v in _start(name)]
    params = [make(v) for v in values]
    targets = [make(np.ones_like(v) * 0.3).detach() for v in values]
    optimizer = getattr(module, name)(params, **options)
    for _ in range(steps):

        def closure():
            optimizer.zero_grad()
            loss = _loss(params, targets)
            loss.backward()
            return loss

        if name == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return params, optimizer


def _lucid(v):
    return lucid.tensor(v, requires_grad=True)


def _torch(v):
    return torch.tensor(v, requires_grad=True)


@pytest.mark.parametrize("case", CASES)
def test_20_steps_equal_torch(case):
    name, options = CASES[case]
    ours, _ = _run(optim, _lucid, name, options, 20)
    theirs, _ = _run(torch.optim, _torch, name, options, 20)
    # torch keeps NAdam's mu_product and ASGD's eta in float32.
    loose = name in ("NAdam", "ASGD")
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            a.detach().numpy(),
            b.detach().numpy(),
            rtol=1e-7 if loose else 1e-9,
            atol=1e-8 if loose else 1e-10,
        )


@pytest.mark.parametrize("case", ["sgd_nesterov", "adamw", "rmsprop_centered", "adafactor"])
def test_float32_equals_torch(case):
    name, options = CASES[case]
    ours, _ = _run(optim, _lucid, name, options, 20, "float32")
    theirs, _ = _run(torch.optim, _torch, name, options, 20, "float32")
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == lucid.float32
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam", "Adamax", "RMSprop", "Adadelta", "Adagrad"])
def test_complex_parameters_equal_torch(name):
    rng = np.random.default_rng(1)
    value = rng.normal(size=(4, 3)) + 1j * rng.normal(size=(4, 3))
    a, b = _lucid(value), _torch(value)
    ours, theirs = getattr(optim, name)([a], lr=0.1), getattr(torch.optim, name)([b], lr=0.1)
    for step in range(5):
        g = value * (1 + step) * np.exp(1j * step)
        a.grad, b.grad = lucid.tensor(g), torch.tensor(g)
        ours.step()
        theirs.step()
    np.testing.assert_allclose(
        a.detach().numpy(), b.detach().numpy(), rtol=1e-7 if name == "NAdam" else 1e-9, atol=1e-12
    )


@pytest.mark.parametrize("adjust", [None, "match_rms_adamw"])
def test_muon_follows_torch_within_bfloat16(adjust):
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    rng = np.random.default_rng(0)
    value = rng.normal(size=(6, 4)).astype("float32")
    a, b = _lucid(value), _torch(value)
    ours = optim.Muon([a], lr=0.02, adjust_lr_fn=adjust)
    theirs = torch.optim.Muon([b], lr=0.02, adjust_lr_fn=adjust)
    for _ in range(10):
        g = rng.normal(size=value.shape).astype("float32")
        a.grad, b.grad = lucid.tensor(g), torch.tensor(g)
        ours.step()
        theirs.step()
    # torch iterates in bfloat16 (8 bits): 10 steps of 0.02 times a matrix of norm about 1.
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=10 * 0.02 * 0.05)


@pytest.mark.parametrize(
    "case", ["sgd_dampening", "adam_amsgrad", "nadam", "rprop", "asgd", "adafactor", "rmsprop_centered"]
)
def test_resumes_from_torch_checkpoint(case):
    name, options = CASES[case]
    theirs, torch_optimizer = _run(torch.optim, _torch, name, options, 7)
    params = [_lucid(p.detach().numpy()) for p in theirs]
    ours = getattr(optim, name)(params, **options)

    def convert(value):
        if isinstance(value, torch.Tensor):
            return lucid.tensor(value.numpy())
        if isinstance(value, dict):
            return {k: convert(v) for k, v in value.items()}
        return [convert(v) for v in value] if isinstance(value, list) else value

    ours.load_state_dict(convert(torch_optimizer.state_dict()))
    for p, q in zip(params, theirs, strict=True):
        g = np.cos(np.arange(q.numel(), dtype="float64")).reshape(tuple(q.shape))
        p.grad, q.grad = lucid.tensor(g), torch.tensor(g)
    ours.step()
    torch_optimizer.step()
    for p, q in zip(params, theirs, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("options", [{"lr": 1}, {"lr": 0.1, "history_size": 3}, {"lr": 20}])
def test_line_search_tries_pytorchs_points(options):
    """On Rosenbrock's function, where it extrapolates, zooms, and meets ends of the bracket."""

    def losses(lib):
        x, found = lib.tensor([-1.0, 2.0], dtype=lib.float64, requires_grad=True), []
        optimizer = lib.optim.LBFGS([x], max_iter=12, line_search_fn="strong_wolfe", **options)

        def closure():
            optimizer.zero_grad()
            loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
            loss.backward()
            found.append(loss.item())
            return loss

        for _ in range(5):
            optimizer.step(closure)
        return found

    np.testing.assert_allclose(losses(lucid), losses(torch), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("case", ["lbfgs", "lbfgs_wolfe", "adamw_amsgrad", "rmsprop_centered", "asgd"])
def test_goes_on_from_a_state_of_pytorchs(case, tmp_path):
    name, options = CASES[case]
    theirs, optimizer = _run(torch.optim, _torch, name, options, 4)
    torch.save({"optimizer": optimizer.state_dict(), "params": theirs}, tmp_path / "state.pt")
    state = lucid.load(tmp_path / "state.pt")
    ours = [p.clone().detach().requires_grad_() for p in state["params"]]
    own = getattr(optim, name)(ours, **options)
    own.load_state_dict(state["optimizer"])
    for lib, params, o in ((lucid, ours, own), (torch, theirs, optimizer)):
        targets = [lib.ones_like(p) * 0.3 for p in params]
        for _ in range(3):

            def closure(o=o, params=params, targets=targets):
                o.zero_grad()
                loss = _loss(params, targets)
                loss.backward()
                return loss

            o.step(closure)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-7, atol=1e-8)
    # And its own state is saved and read as ever.
    lucid.save(own.state_dict(), tmp_path / "own.safetensors")
    own.load_state_dict(lucid.load(tmp_path / "own.safetensors"))


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES.values()}))
def test_is_printed_as_pytorchs(name):
    made = [getattr(lib.optim, name)([lib.zeros(2, requires_grad=True)]) for lib in (lucid, torch)]
    assert str(made[0]) == str(made[1])
