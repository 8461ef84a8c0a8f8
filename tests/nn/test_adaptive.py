"""AdaptiveLogSoftmaxWithLoss and CrossMapLRN2d against PyTorch; inner paths and small methods."""

from __future__ import annotations

import pkgutil
import sys

import numpy as np
import pytest

import lucid
from lucid import nn


def host(t):
    return t.detach().cpu().numpy()


@pytest.mark.parametrize("head_bias", [False, True])
@pytest.mark.parametrize("targets", [[0, 9, 4, 4, 1, 7], [1, 0, 2], [9, 8], []])
def test_adaptive_softmax_is_pytorchs(targets, head_bias, device):
    torch = pytest.importorskip("torch")
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 10, [3, 6, 8], 2.0, head_bias)
    ours = nn.AdaptiveLogSoftmaxWithLoss(8, 10, [3, 6, 8], 2.0, head_bias)
    assert repr(ours.tail) == repr(theirs.tail)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    ours.to(device)
    x = np.random.default_rng(0).normal(size=(len(targets), 8)).astype("float32")
    a = lucid.tensor(x, device=device, requires_grad=True)
    b = torch.tensor(x, requires_grad=True)
    target = np.array(targets, "int64")
    got = ours(a, lucid.tensor(target, device=device))
    want = theirs(b, torch.tensor(target))
    np.testing.assert_allclose(host(got.output), want.output.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(host(got.loss), want.loss.detach().numpy(), rtol=1e-5)
    want_all = theirs.log_prob(b).detach().numpy()
    np.testing.assert_allclose(host(ours.log_prob(a)), want_all, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(host(ours.predict(a)), theirs.predict(b).numpy())
    if not targets:
        return
    got.loss.backward(), want.loss.backward()
    np.testing.assert_allclose(host(a.grad), b.grad.numpy(), rtol=1e-4, atol=1e-6)
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        # Clusters that no target is in are not computed.
        assert (p.grad is None) == (q.grad is None), name
        if q.grad is not None:
            np.testing.assert_allclose(host(p.grad), q.grad.numpy(), rtol=1e-4, atol=1e-6, err_msg=name)


def test_adaptive_softmax_of_one_sample_and_its_sum(device):
    lucid.manual_seed(0)
    softmax = nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2], dtype="float64").to(device)
    x = lucid.randn(4, dtype="float64").to(device)
    one = softmax(x, lucid.tensor(5, device=device))
    assert one.output.shape == () and one.loss.item() == -one.output.item()
    probabilities = softmax.log_prob(x.unsqueeze(0)).exp()
    np.testing.assert_allclose(host(probabilities.sum()), 1.0, rtol=1e-12)
    np.testing.assert_allclose(host(one.output.exp()), host(probabilities)[0, 5], rtol=1e-12)


def test_adaptive_softmax_refuses(device):
    for cutoffs in ([], [0, 3], [3, 3], [4, 2], [10], [1.5]):
        with pytest.raises(ValueError, match="cutoffs must be integers that ascend strictly"):
            nn.AdaptiveLogSoftmaxWithLoss(4, 10, cutoffs)
    softmax = nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2]).to(device)
    x = lucid.zeros(2, 4, device=device)
    with pytest.raises(ValueError, match=r"got \(2, 4\) and \(3,\)"):
        softmax(x, lucid.zeros(3, dtype="int64", device=device))
    with pytest.raises(IndexError, match=r"targets must lie in \[0, n_classes - 1 = 5\], got 1 to 6"):
        softmax(x, lucid.tensor([1, 6], device=device))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_cross_map_lrn(size, device):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(size).normal(size=(2, 7, 3, 2)) * 20
    got = nn.CrossMapLRN2d(size, 0.3, 0.6, 2)(lucid.tensor(x, device=device))
    each = (size - 1) // 2
    expected = np.empty_like(x)
    for c in range(7):
        squares = (x[:, max(c - each, 0) : c + each + 1] ** 2).sum(1)
        expected[:, c] = x[:, c] / (2 + 0.3 / size * squares) ** 0.6
    np.testing.assert_allclose(host(got), expected, rtol=1e-10)
    # Up to the channel where PyTorch's running sum should lose the first one, and does not.
    want = torch.nn.CrossMapLRN2d(size, 0.3, 0.6, 2)(torch.tensor(x)).numpy()
    np.testing.assert_allclose(host(got)[:, : each + 1], want[:, : each + 1], rtol=1e-10)
    assert repr(nn.CrossMapLRN2d(2)) == repr(torch.nn.CrossMapLRN2d(2))


def test_inner_paths():
    torch = pytest.importorskip("torch")
    found = {m.name for m in pkgutil.iter_modules(torch.nn.modules.__path__)}
    ours = {p for p in dir(nn.modules) if f"lucid.nn.modules.{p}" in sys.modules}
    assert found - ours == {"linear_cross_entropy", "linear_cross_entropy_options", "_functions"}
    from lucid.nn.modules.batchnorm import _BatchNorm
    from lucid.nn.modules.conv import _ConvNd
    from lucid.nn.modules.utils import _ntuple, _pair, _single

    assert isinstance(nn.BatchNorm3d(1), _BatchNorm) and isinstance(nn.SyncBatchNorm(1), _BatchNorm)
    assert isinstance(nn.ConvTranspose1d(1, 1, 1), _ConvNd) and not isinstance(nn.Linear(1, 1), _ConvNd)
    assert (_single(2), _pair(2), _pair((1, 2)), _ntuple(4)(1)) == ((2,), (2, 2), (1, 2), (1, 1, 1, 1))
    with pytest.raises(ImportError):
        from lucid.nn.modules.linear import Nothing  # noqa: F401


def test_parameter_dict_methods():
    d = nn.ParameterDict({"a": lucid.ones(1), "b": lucid.zeros(2)})
    same = d.copy()
    assert list(same) == ["a", "b"] and same["a"] is d["a"]
    assert d.setdefault("a") is same["a"] and d.setdefault("c", lucid.ones(3)).shape == (3,)
    assert isinstance(d["c"], nn.Parameter) and d.popitem()[0] == "c" and len(d) == 2
    assert list(d.fromkeys(["x", "y"], 1).items()) == [("x", 1), ("y", 1)]
    with pytest.raises(KeyError):
        nn.ParameterDict().popitem()


def test_modules_are_there_without_an_import():
    assert lucid.nn.modules.linear.Linear is nn.Linear and lucid.nn.modules.Linear is nn.Linear
