"""DataParallel: the batch split over devices gives what the module alone gives.

The pairs are the CPU twice, the (simulated) CUDA device with the CPU, and two simulated CUDA devices, whose
arrays refuse an operation while the other one is current. No machine with several GPUs has run it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.errors import DeviceError, LucidError
from lucid.nn.parallel import data_parallel, gather, parallel_apply, replicate, scatter
from lucid.testing import simulator


def host(t):
    return t.detach().cpu().numpy()


@pytest.fixture(params=["cpu", "second"])
def pair(device, request):
    """The device and another one."""
    if request.param == "cpu":
        yield [f"{device}:0" if device == "cuda" else device, "cpu"]
        return
    if device != "cuda":
        pytest.skip("there is one CPU" if device == "cpu" else "the pair begins with the first device")
    if not simulator.is_on():
        if lucid.cuda.device_count() < 2:
            pytest.skip("there is one GPU")
        yield ["cuda:0", "cuda:1"]
        return
    with simulator.devices(2):
        yield ["cuda:0", "cuda:1"]


def net(device):
    lucid.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)


def test_outputs_and_gradients_are_those_of_the_module(device, pair):
    alone, split = net(device), nn.DataParallel(net(device), device_ids=pair)
    x = lucid.randn(5, 3, device=device)
    for y in (alone(x), split(x)):
        (y * y).sum().backward()
        assert y.device == lucid.zeros(1, device=device).device and y.shape == (5, 2)
    np.testing.assert_allclose(host(split(x)), host(alone(x)), rtol=1e-6)
    for (name, p), q in zip(split.module.named_parameters(), alone.parameters(), strict=True):
        np.testing.assert_allclose(host(p.grad), host(q.grad), rtol=1e-5, atol=1e-7, err_msg=name)
        assert p.grad.device == p.device
    assert list(split.state_dict())[0] == "module.0.weight"
    assert host(data_parallel(split.module, x, pair)).shape == (5, 2)


def test_a_step_of_training(device, pair):
    model = nn.DataParallel(net(device), pair)
    optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)
    x, losses = lucid.randn(8, 3, device=device), []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_all_devices_by_default(device):
    if device != "cuda" or not simulator.is_on():
        pytest.skip("needs the simulator's devices")
    with simulator.devices(2):
        model = nn.DataParallel(net(device))
        assert [str(d) for d in model.device_ids] == ["cuda:0", "cuda:1"]
        x = lucid.randn(4, 3, device=device)
        np.testing.assert_allclose(host(model(x)), host(model.module(x)), rtol=1e-6)


def test_without_cuda_it_is_the_module(monkeypatch):
    monkeypatch.setattr("lucid.nn.parallel.data._all_devices", list)
    model = nn.DataParallel(net("cpu"))
    x = lucid.randn(2, 3)
    np.testing.assert_array_equal(host(model(x)), host(model.module(x)))
    assert model.device_ids == []


def test_one_device(device):
    model = nn.DataParallel(net("cpu"), device_ids=[device])
    assert model(lucid.randn(2, 3)).device == model.module[0].weight.device
    assert model.module[0].weight.is_cuda == (device != "cpu")


class Pair(NamedTuple):
    a: lucid.Tensor
    b: lucid.Tensor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = self.twice = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.calls = []

    def forward(self, x, scale=1.0, extra=None):
        self.calls.append((x.shape[0], str(x.device)))
        y = self.norm(self.twice(self.shared(x)))
        assert self.shared is self.twice
        return {"y": y * scale, "pair": Pair(y, x), "mean": y.mean(), "none": extra, "list": [y.sum(1)]}


def test_containers_keywords_and_shared_modules(device, pair):
    module = Net().to(device)
    x = lucid.randn(5, 2, device=device)
    out = data_parallel(module, (x,), pair, module_kwargs={"scale": lucid.ones(5, 1, device=device) * 2})
    assert [n for n, _ in module.calls] == [3, 2]
    assert [d for _, d in module.calls] == pair
    assert type(out["pair"]) is Pair and out["none"] is None and out["list"][0].shape == (5,)
    assert out["mean"].shape == (2,) and out["y"].shape == (5, 2)
    np.testing.assert_allclose(host(out["y"]), 2 * host(out["pair"].a))
    np.testing.assert_array_equal(host(out["pair"].b), host(x))
    # The running statistics are those of the first device's part.
    mean = host(module.twice(module.shared(x)))[:3].mean(0) if device != "cpu" else None
    if mean is not None:
        np.testing.assert_allclose(host(module.norm.running_mean), 0.1 * mean, rtol=1e-4, atol=1e-6)


def test_a_batch_smaller_than_the_devices(device, pair):
    module = Net().to(device).eval()
    data_parallel(module, lucid.randn(1, 2, device=device), pair)
    assert [n for n, _ in module.calls] == [1]


def test_the_parts():
    a, b = scatter((lucid.arange(3), [1, lucid.ones(2)], {"k": None}), ["cpu", "cpu"])
    assert a[0].tolist() == [0, 1] and b[0].tolist() == [2] and a[1][0] == b[1][0] == 1
    assert a[1][1].shape == b[1][1].shape == (1,) and a[2] == b[2] == {"k": None}
    replicas = replicate(net("cpu"), ["cpu", "cpu"])
    assert replicas[0][0] is not replicas[1][0] and replicas[0][0].weight is replicas[1][0].weight
    outs = parallel_apply(replicas, [(lucid.ones(1, 3),), lucid.ones(1, 3)])
    assert gather(outs, "cpu").shape == (2, 2)
    with pytest.raises(LucidError, match="expected tensors, and tuples, lists and dicts of them, got int"):
        gather([1, 2], "cpu")


def test_a_module_elsewhere(device, pair):
    if device == "cpu":
        pytest.skip("needs two devices")
    with pytest.raises(DeviceError, match=f"the module on {pair[0]}, its first device, got 0.weight on cpu"):
        nn.DataParallel(net("cpu"), pair)(lucid.ones(2, 3))
