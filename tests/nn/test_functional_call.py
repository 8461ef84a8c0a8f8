"""`functional_call` against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.errors import LucidError
from lucid.func import functional_call

X = np.random.default_rng(0).standard_normal((5, 3, 4)).astype("f4")


def run(lib):
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = lib.nn.Linear(4, 4), lib.nn.BatchNorm1d(3)
            self.head = lib.nn.Linear(4, 4)

        def forward(self, x, scale=1.0):
            return self.head(self.norm(self.first(x))) * scale

    net, rng = Net(), np.random.default_rng(1)
    values = {
        k: lib.tensor(rng.uniform(0.1, 1, tuple(v.shape)).astype("f4"), requires_grad=True)
        for k, v in net.named_parameters()
    }
    buffers = {"norm.running_mean": lib.zeros(3), "norm.running_var": lib.ones(3)}
    own = [p.detach().clone().numpy() for p in net.parameters()]
    out = lib.func.functional_call(net, (values, buffers), (lib.tensor(X),), {"scale": 2.0})
    out.pow(2).sum().backward()
    assert all(p.grad is None for p in net.parameters())
    assert all((p.detach().numpy() == v).all() for p, v in zip(net.parameters(), own, strict=True))
    assert float(net.norm.running_mean.abs().sum()) == 0.0
    with pytest.raises(RuntimeError):
        lib.func.functional_call(net, {**values, **buffers}, lib.tensor(X), strict=True)
    with pytest.raises((RuntimeError, ValueError)):
        lib.func.functional_call(net, (values, values), lib.tensor(X))
    grads = [v.grad.numpy() for v in values.values()]
    return [out.detach().numpy(), buffers["norm.running_mean"].numpy(), *grads]


def test_as_pytorch():
    torch = pytest.importorskip("torch")
    for a, b in zip(run(lucid), run(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_step_of_maml(device):
    """The gradient of a loss after an inner step reaches the first weights, through the step."""
    lucid.manual_seed(0)
    net, x = nn.Linear(2, 1).to(device), lucid.tensor([[1.0, 2.0]], device=device)
    weights = dict(net.named_parameters())
    inner = functional_call(net, weights, x).pow(2).sum()
    grads = lucid.autograd.grad(inner, list(weights.values()), create_graph=True)
    fast = {k: w - 0.1 * g for (k, w), g in zip(weights.items(), grads, strict=True)}
    functional_call(net, fast, (x,)).pow(2).sum().backward()
    # out = w x + b, and after the step out' = out (1 - 0.2 |(x, 1)|^2).
    out, share = float(net(x)), 1 - 0.2 * 6
    expected = 2 * out * share**2 * x.numpy(force=True)
    np.testing.assert_allclose(net.weight.grad.numpy(force=True), expected, rtol=1e-5)


def test_tied_weights_and_what_is_refused():
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    w, x = lucid.eye(2) * 3, lucid.ones(1, 2)
    zero = {"0.bias": lucid.zeros(2), "1.bias": lucid.zeros(2)}
    assert functional_call(tied, {**zero, "0.weight": w}, x).tolist() == [[9.0, 9.0]]
    assert functional_call(tied, {**zero, "1.weight": w}, x).tolist() == [[9.0, 9.0]]
    assert tied[1].weight is tied[0].weight and isinstance(tied[1].weight, nn.Parameter)
    with pytest.raises(LucidError, match="0.weight and 1.weight are one tied weight"):
        functional_call(tied, {"0.weight": w, "1.weight": w * 2}, x)
    out = functional_call(tied, {**zero, "0.weight": w, "1.weight": w * 2}, x, tie_weights=False)
    assert out.tolist() == [[18.0, 18.0]]
    with pytest.raises(LucidError, match="Sequential has no parameter or buffer 2.weight"):
        functional_call(tied, {"2.weight": w}, x)
    shared = nn.Sequential(tied[0], tied[0])
    assert functional_call(shared, {"0.weight": w, "0.bias": lucid.zeros(2)}, x).tolist() == [[9.0, 9.0]]
    assert shared[1].weight is tied[1].weight
    # An error inside leaves the module as it was.
    with pytest.raises(ValueError):
        functional_call(tied, {"0.weight": lucid.ones(3, 3)}, x)
    assert tied[0].weight.shape == (2, 2)


def test_old_name_of_the_loss():
    with pytest.warns(FutureWarning, match="use NLLLoss"):
        loss = nn.NLLLoss2d(weight=lucid.tensor([1.0, 2.0]))
    x, y = lucid.randn(2, 2, 3, 3).log_softmax(1), lucid.zeros(2, 3, 3, dtype="int64")
    assert isinstance(loss, nn.NLLLoss)
    assert loss(x, y).item() == nn.NLLLoss(weight=lucid.tensor([1.0, 2.0]))(x, y).item()
