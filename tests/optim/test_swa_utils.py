"""Averages of weights and their schedule, against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.errors import ShapeError

torch = pytest.importorskip("torch")
pytest.importorskip("torch.optim.swa_utils")
DATA = np.random.default_rng(0).normal(size=(6, 8, 3)).astype("float32")


def model(lib):
    """A small network whose weights are the same in both libraries."""
    made = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 2))
    rng = np.random.default_rng(1)
    with lib.no_grad():
        for p in made.parameters():
            p.copy_(lib.tensor(rng.normal(size=tuple(p.shape)).astype("float32")))
    return made


AVERAGES = {
    "equal": lambda u: {},
    "buffers": lambda u: {"use_buffers": True},
    "exponential": lambda u: {"avg_fn": u.get_ema_avg_fn(0.9)},
    "exponential of all": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9), "use_buffers": True},
    "equal of all": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "own": lambda u: {"avg_fn": lambda average, new, n: 0.5 * average + 0.5 * new},
}


def averaged(lib, options):
    """The states of the average after a training, before and after update_bn, and its output."""
    net = model(lib)
    mean = lib.optim.swa_utils.AveragedModel(net, **options(lib.optim.swa_utils))
    optimizer = lib.optim.SGD(net.parameters(), lr=0.05)
    for x in DATA[:4]:
        optimizer.zero_grad()
        net(lib.tensor(x)).pow(2).mean().backward()
        optimizer.step()
        mean.update_parameters(net)
    before = {k: np.array(v.numpy()) for k, v in mean.state_dict().items()}
    lib.optim.swa_utils.update_bn([(lib.tensor(x), None) for x in DATA], mean)
    after = {k: v.numpy() for k, v in mean.state_dict().items()}
    return before, after, mean.training, mean.eval()(lib.tensor(DATA[0])).detach().numpy()


@pytest.mark.parametrize("case", AVERAGES)
def test_averages_equal_torch(case):
    found, expected = (averaged(lib, AVERAGES[case]) for lib in (lucid, torch))
    for a, b in zip(found[:2], expected[:2], strict=True):
        assert list(a) == list(b)
        for key in a:
            # PyTorch rounds the mean of the counter of batches; here integers are copied.
            if "num_batches" not in key:
                np.testing.assert_allclose(a[key], b[key], rtol=2e-5, atol=1e-6, err_msg=key)
    assert found[2] == expected[2]
    np.testing.assert_allclose(found[3], expected[3], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 7])
def test_schedule_equals_torch(strategy, epochs):
    def rates(lib):
        groups = [{"params": [lib.nn.Parameter(lib.ones(1))]},
                  {"params": [lib.nn.Parameter(lib.ones(1))], "lr": 0.3}]
        optimizer = lib.optim.SGD(groups, lr=0.1)
        swa = lib.optim.swa_utils.SWALR(optimizer, [0.05, 0.5], epochs, strategy)
        decay = lib.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        found = []
        for i in range(15):
            (decay if i < 4 else swa).step()
            found.append([g["lr"] for g in optimizer.param_groups])
        return found
    np.testing.assert_allclose(rates(lucid), rates(torch), rtol=1e-12)


def test_what_is_refused():
    utils, net = lucid.optim.swa_utils, lucid.nn.Linear(1, 1)
    optimizer = lucid.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ShapeError, match="either avg_fn or multi_avg_fn"):
        utils.AveragedModel(net, avg_fn=utils.get_swa_avg_fn(), multi_avg_fn=utils.get_swa_multi_avg_fn())
    with pytest.raises(ShapeError, match="0 <= decay <= 1, got 1.5"):
        utils.get_ema_avg_fn(1.5)
    with pytest.raises(ShapeError, match="anneal_strategy is 'cos' or 'linear', got 'x'"):
        utils.SWALR(optimizer, 0.1, anneal_strategy="x")
    with pytest.raises(ShapeError, match="anneal_epochs >= 0, got -1"):
        utils.SWALR(optimizer, 0.1, anneal_epochs=-1)


def test_a_gradient_penalty_as_it_is_written():
    def penalty(lib):
        net = model(lib)
        x = lib.tensor(DATA[0], requires_grad=True)
        out = net(x)
        g = lib.autograd.grad(outputs=out, inputs=x, grad_outputs=lib.ones_like(out), create_graph=True,
                              retain_graph=True, only_inputs=True)[0]
        loss = ((g.norm(2, dim=1) - 1) ** 2).mean()
        loss.backward()
        return [loss.detach().numpy(), *(p.grad.numpy() for p in net.parameters() if p.grad is not None)]
    found, expected = penalty(lucid), penalty(torch)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    x = lucid.ones(1, requires_grad=True)
    with pytest.warns(UserWarning, match="only_inputs=False has no effect"):
        lucid.autograd.grad(x * 2, x, only_inputs=False)
