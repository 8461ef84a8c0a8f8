"""Categorical and Normal: values and gradients of PyTorch's, samples with the right frequencies."""

import math

import numpy as np
import pytest

import lucid
from lucid.distributions import Categorical, Distribution, Normal, kl_divergence, register_kl
from lucid.errors import ShapeError

LOGITS = np.random.default_rng(0).normal(size=(3, 5))
OTHER = np.random.default_rng(1).normal(size=(3, 5))


def categorical(lib, x):
    return lib.distributions.Categorical(logits=x)


def from_probs(lib, x):
    return lib.distributions.Categorical(probs=x.exp())


def normal(lib, x):
    return lib.distributions.Normal(x, x.exp())


VALUES = {"categorical": np.array([4, 0, 2]), "from_probs": np.array([4, 0, 2]), "normal": OTHER}


@pytest.mark.parametrize("make", [categorical, from_probs, normal], ids=lambda f: f.__name__)
def test_values_and_gradients_are_pytorchs(make):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (torch, lucid):
        __import__(f"{lib.__name__}.distributions")
        x, y = lib.tensor(LOGITS, requires_grad=True), lib.tensor(OTHER)
        d = make(lib, x)
        value = lib.tensor(VALUES[make.__name__])
        parts = [d.log_prob(value), d.entropy(), lib.distributions.kl_divergence(d, make(lib, y))]
        sum((i + 1) * p.sum() for i, p in enumerate(parts)).backward()
        found.append([p.detach().numpy() for p in parts] + [x.grad.numpy()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_shapes(device):
    c = Categorical(logits=lucid.zeros(2, 3, 4).to(device))
    assert c.sample().shape == (2, 3) and c.sample((5, 6)).shape == (5, 6, 2, 3)
    assert c.log_prob(c.sample((5,))).shape == (5, 2, 3)
    assert Categorical(lucid.tensor([0.5, 0.5])).sample().shape == ()
    n = Normal(lucid.zeros(3, 1).to(device), lucid.ones(4).to(device))
    assert n.sample((2,)).shape == (2, 3, 4) and n.log_prob(n.sample()).shape == (3, 4)
    assert n.sample().device.type == device
    assert Normal(0, 1).sample().shape == ()


def test_frequencies():
    lucid.manual_seed(0)
    p = lucid.tensor([0.1, 0.2, 0.7])
    counts = np.bincount(Categorical(p).sample((20000,)).numpy(), minlength=3) / 20000
    np.testing.assert_allclose(counts, [0.1, 0.2, 0.7], atol=0.015)
    draws = Normal(2.0, 3.0).sample((20000,))
    assert draws.mean().item() == pytest.approx(2, abs=0.1) and draws.std().item() == pytest.approx(
        3, abs=0.1
    )


def test_gradient_through_a_sample():
    loc, scale = lucid.zeros(1000, requires_grad=True), lucid.ones(1000, requires_grad=True)
    sample = Normal(loc, scale).rsample()
    sample.sum().backward()
    assert loc.grad.tolist() == [1] * 1000 and scale.grad.tolist() == sample.tolist()
    assert not Normal(loc, scale).sample().requires_grad
    with pytest.raises(NotImplementedError, match="no sample with a gradient"):
        Categorical(lucid.ones(3)).rsample()


def test_cdf_and_moments():
    n = Normal(lucid.tensor([1.0], dtype=lucid.float64), lucid.tensor([2.0], dtype=lucid.float64))
    x = lucid.tensor([3.0], dtype=lucid.float64)
    assert n.cdf(x).item() == pytest.approx(0.5 * (1 + math.erf(1 / math.sqrt(2))))
    assert n.icdf(n.cdf(x)).item() == pytest.approx(3)
    assert (n.mean.item(), n.stddev.item(), n.variance.item(), n.mode.item()) == (1, 2, 4, 1)
    assert Categorical(lucid.tensor([0.2, 0.8])).mode.item() == 1


def test_a_zero_probability():
    masked = Categorical(logits=lucid.tensor([0.0, float("-inf"), 0.0]))
    assert masked.entropy().item() == pytest.approx(math.log(2))
    assert set(masked.sample((100,)).tolist()) == {0, 2}


def test_errors_and_new_formulas():
    with pytest.raises(ShapeError, match="either probs or logits, got both"):
        Categorical(lucid.ones(2), lucid.ones(2))
    with pytest.raises(ShapeError, match="got none"):
        Categorical()

    class Own(Distribution):
        pass

    with pytest.raises(NotImplementedError, match="no formula for Own and Normal"):
        kl_divergence(Own(), Normal(0.0, 1.0))
    register_kl(Own, Normal)(lambda p, q: q.loc)
    assert kl_divergence(Own(), Normal(3.0, 1.0)).item() == 3
