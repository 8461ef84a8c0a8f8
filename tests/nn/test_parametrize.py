"""Parametrizations, against PyTorch where it is installed and against what they promise."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.nn.utils import parametrizations, parametrize
from lucid.nn.utils.parametrize import register_parametrization, remove_parametrizations


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T

    def right_inverse(self, x):
        return x.triu()


class Double(nn.Module):
    def forward(self, x):
        return 2 * x

    def right_inverse(self, x):
        return x / 2


class Split(nn.Module):
    """|x| and its sign, which is not trained."""

    def forward(self, size, sign):
        return size * sign

    def right_inverse(self, x):
        return x.abs(), x.sign()


class NoInverse(nn.Module):
    def forward(self, x):
        return x.tanh()


def host(t):
    return t.detach().cpu().numpy()


def test_the_tensor_is_computed_from_its_original(device):
    layer = nn.Linear(3, 3).to(device)
    before, weight = host(layer.weight), layer.weight
    assert not parametrize.is_parametrized(layer)
    assert register_parametrization(layer, "weight", Symmetric()) is layer
    expected = np.triu(before) + np.triu(before, 1).T
    np.testing.assert_array_equal(host(layer.weight), expected)
    assert layer.parametrizations.weight.original is weight  # an optimizer that holds it goes on
    assert isinstance(layer, nn.Linear) and type(layer).__name__ == "ParametrizedLinear"
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    assert parametrize.is_parametrized(layer, "weight") and not parametrize.is_parametrized(layer, "bias")
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    x = lucid.ones(2, 3, device=device)
    layer(x).sum().backward()
    # Each column of the weight's gradient is ones.sum over the batch: 2; the upper triangle gets both.
    np.testing.assert_array_equal(host(weight.grad), [[2, 4, 4], [0, 2, 4], [0, 0, 2]])


def test_chain_assignment_and_removal():
    layer = nn.Linear(3, 3)
    register_parametrization(layer, "weight", Symmetric())
    value = host(layer.weight)
    register_parametrization(layer, "weight", Double())
    np.testing.assert_allclose(host(layer.weight), value, rtol=1e-6)  # the inverse keeps the value
    new = np.array([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]], dtype="float32")
    layer.weight = lucid.tensor(new)
    np.testing.assert_array_equal(host(layer.weight), new)
    np.testing.assert_array_equal(host(layer.parametrizations.weight.original), np.triu(new) / 2)
    original = layer.parametrizations.weight.original
    remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and layer.weight is original and "parametrizations" not in dir(layer)
    np.testing.assert_array_equal(host(layer.weight), new)
    assert list(layer.state_dict()) == ["bias", "weight"]


def test_several_originals():
    layer = nn.Linear(3, 2)
    value = host(layer.weight)
    register_parametrization(layer, "weight", Split())
    np.testing.assert_array_equal(host(layer.weight), value)
    assert {n for n, _ in layer.named_parameters()} == {
        "bias", "parametrizations.weight.original0", "parametrizations.weight.original1",
    }  # fmt: skip
    with pytest.raises(ValueError, match="has 2 originals"):
        remove_parametrizations(layer, "weight", leave_parametrized=False)
    remove_parametrizations(layer, "weight")
    np.testing.assert_array_equal(host(layer.weight), value)
    assert isinstance(layer.weight, nn.Parameter)


def test_buffers_and_leaving_the_original():
    norm = nn.BatchNorm1d(2)
    register_parametrization(norm, "running_mean", Double())
    assert [n for n, _ in norm.named_buffers()] == [
        "running_var", "num_batches_tracked", "parametrizations.running_mean.original",
    ]  # fmt: skip
    layer = nn.Linear(2, 2)
    value = host(layer.weight)
    register_parametrization(layer, "weight", NoInverse())
    np.testing.assert_array_equal(host(layer.weight), np.tanh(value))
    with pytest.raises(lucid.errors.LucidError, match="NoInverse has no right_inverse"):
        layer.weight = lucid.zeros(2, 2)
    remove_parametrizations(layer, "weight", leave_parametrized=False)
    np.testing.assert_array_equal(host(layer.weight), value)


def test_cached_computes_once():
    calls = []

    class Counted(nn.Module):
        def forward(self, x):
            calls.append(1)
            return x * 1

    layer = register_parametrization(nn.Linear(2, 2), "weight", Counted())
    calls.clear()
    with parametrize.cached():
        (layer(lucid.ones(1, 2)) + layer(lucid.ones(1, 2))).sum().backward()
        assert layer.weight is layer.weight
    assert len(calls) == 1
    _ = layer.weight, layer.weight
    assert len(calls) == 3
    np.testing.assert_array_equal(host(layer.parametrizations.weight.original.grad), 2)


def test_copies_and_pickles():
    layer = register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(host(other.weight), host(layer.weight))
        assert parametrize.is_parametrized(other, "weight")
        with lucid.no_grad():
            other.parametrizations.weight.original.zero_()
        assert not host(other.weight).any() and host(layer.weight).any()
    fresh = register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    fresh.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(host(fresh.weight), host(layer.weight))


def test_errors():
    class Wide(nn.Module):
        def forward(self, x):
            return x.double()

    class Tall(nn.Module):
        def forward(self, x):
            return x[:1]

    with pytest.raises(ValueError, match="Linear has no parameter or buffer 'nothing'"):
        register_parametrization(nn.Linear(2, 2), "nothing", Double())
    layer = nn.Linear(2, 2)
    with pytest.raises(lucid.errors.DtypeError, match="must keep the dtype float32, got float64"):
        register_parametrization(layer, "weight", Wide())
    with pytest.raises(lucid.errors.ShapeError, match=r"must keep the shape \(2, 2\), got \(1, 2\)"):
        register_parametrization(layer, "weight", Tall())
    assert type(layer) is nn.Linear and layer.weight.shape == (2, 2)
    register_parametrization(layer, "weight", Tall(), unsafe=True)
    assert layer.weight.shape == (1, 2)
    with pytest.raises(ValueError, match="has no parametrization of 'bias'"):
        remove_parametrizations(layer, "bias")


def test_weight_norm_as_in_pytorch(device):
    torch = pytest.importorskip("torch")
    ours, theirs = nn.Linear(3, 4), torch.nn.Linear(3, 4)
    theirs.weight.data = torch.from_numpy(host(ours.weight).copy())
    theirs.bias.data = torch.from_numpy(host(ours.bias).copy())
    ours = parametrizations.weight_norm(ours.to(device))
    theirs = torch.nn.utils.parametrizations.weight_norm(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x = np.arange(6, dtype="float32").reshape(2, 3)
    y, z = ours(lucid.tensor(x, device=device)), theirs(torch.from_numpy(x))
    np.testing.assert_allclose(host(y), z.detach().numpy(), rtol=1e-5)
    (y * y).sum().backward()
    (z * z).sum().backward()
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        np.testing.assert_allclose(host(p.grad), q.grad.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("layer", [lambda: nn.Linear(5, 4), lambda: nn.Conv2d(3, 4, 2),
                                   lambda: nn.ConvTranspose1d(3, 4, 2)])
def test_spectral_norm(layer, device):
    lucid.manual_seed(0)
    made = parametrizations.spectral_norm(layer().to(device), n_power_iterations=3)
    for _ in range(10):
        weight = host(made.weight)
    dim = int(isinstance(made, nn.ConvTranspose1d))
    matrix = np.moveaxis(weight, dim, 0).reshape(weight.shape[dim], -1)
    np.testing.assert_allclose(np.linalg.norm(matrix, 2), 1.0, atol=1e-4)
    made.eval()
    np.testing.assert_array_equal(host(made.weight), host(made.weight))
    a, b = made.weight, made.train().weight  # two uses in training before one backward
    (a * b).sum().backward()
    assert np.isfinite(host(made.parametrizations.weight.original.grad)).all()


def test_spectral_norm_gradient():
    w = lucid.randn(3, 4, dtype="float64", generator=lucid.Generator().manual_seed(1))
    norm = parametrizations._SpectralNorm(w).eval()
    w.requires_grad_()
    assert lucid.autograd.gradcheck(norm, (w,))


@pytest.mark.parametrize("form", ["utils.spectral_norm", "utils.parametrizations.spectral_norm"])
@pytest.mark.parametrize("layer", [("Linear", 5, 4), ("Conv2d", 2, 3, 2), ("ConvTranspose2d", 2, 3, 2)])
def test_spectral_norm_iterates_as_pytorch(form, layer):
    """The two forms iterate in different orders: the same vectors after each of several calls."""
    torch = pytest.importorskip("torch")
    name, *sizes = layer
    pair = []
    for lib in (torch, lucid):
        made = lib.nn
        for part in form.split("."):
            made = getattr(made, part)
        pair.append(made(getattr(lib.nn, name)(*sizes), n_power_iterations=2))
    theirs, ours = pair
    ours.load_state_dict({k: lucid.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = np.ones((1, 5) if name == "Linear" else (1, 2, 4, 4), "f4")
    for training in (True, True, True, False):
        out = [m.train(training)(lib.tensor(x)).detach() for lib, m in ((torch, theirs), (lucid, ours))]
        np.testing.assert_allclose(out[1].numpy(), out[0].numpy(), rtol=1e-4, atol=1e-6)
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), rtol=1e-4, atol=1e-6)


def test_old_spectral_norm(device):
    lucid.manual_seed(0)
    layer = nn.utils.spectral_norm(nn.Linear(5, 4).to(device), n_power_iterations=5)
    assert sorted(layer.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    for _ in range(5):
        layer(lucid.ones(1, 5, device=device)).sum().backward()
    value = host(layer.weight)
    np.testing.assert_allclose(np.linalg.norm(value, 2), 1.0, atol=1e-4)
    nn.utils.remove_spectral_norm(layer)
    np.testing.assert_allclose(host(layer.weight), value, atol=1e-5)
    assert sorted(layer.state_dict()) == ["bias", "weight"]


@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("map_", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (2, 5)])
def test_orthogonal(shape, map_, trivial, device):
    lucid.manual_seed(0)
    layer = nn.Linear(shape[1], shape[0], dtype="float64").to(device)
    parametrizations.orthogonal(layer, orthogonal_map=map_, use_trivialization=trivial)

    def check():
        w = host(layer.weight)
        w = w if shape[0] >= shape[1] else w.T
        np.testing.assert_allclose(w.T @ w, np.eye(min(shape)), atol=1e-10)

    check()
    optimizer = lucid.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (layer.weight * lucid.arange(shape[0] * shape[1], device=device).reshape(shape)).sum().backward()
        optimizer.step()
    check()
    value = np.linalg.qr(np.random.default_rng(0).normal(size=sorted(shape, reverse=True)))[0]
    value = value if shape[0] >= shape[1] else value.T
    if trivial or map_ == "householder":
        layer.weight = lucid.tensor(value, device=device)
        np.testing.assert_allclose(host(layer.weight), value, atol=1e-10)
    else:
        with pytest.raises(NotImplementedError, match="use_trivialization=True"):
            layer.weight = lucid.tensor(value, device=device)


def test_orthogonal_loads_what_pytorch_made():
    torch = pytest.importorskip("torch")
    for kind in ("matrix_exp", "cayley", "householder"):
        for shape in ((3, 3), (5, 2), (2, 5)):
            theirs = torch.nn.Linear(*shape[::-1], dtype=torch.float64)
            torch.nn.utils.parametrizations.orthogonal(theirs, orthogonal_map=kind)
            with torch.no_grad():
                # The diagonal of "householder" holds signs.
                drawn = torch.randn(*shape, dtype=torch.float64) / 4
                theirs.parametrizations.weight.original += drawn.tril(-1) + drawn.triu(1)
            ours = nn.Linear(*shape[::-1], dtype="float64")
            parametrizations.orthogonal(ours, orthogonal_map=kind)
            ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
            np.testing.assert_allclose(host(ours.weight), theirs.weight.detach().numpy(), atol=1e-10)
    with pytest.raises(ValueError, match="orthogonal_map is one of matrix_exp, cayley, householder"):
        parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="other")


def test_batch_norm_folds_into_the_layer_before(device):
    lucid.manual_seed(0)
    layers = ((nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), (2, 3, 5, 5), {}),
              (nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4), (2, 3, 5, 5), {"transpose": True}),
              (nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), (6, 3), {}))
    for layer, norm, shape, options in layers:
        layer, norm = layer.to(device), norm.to(device)
        x = lucid.randn(*shape, device=device)
        norm(layer(x)), norm(layer(x * 3))
        layer.eval(), norm.eval()
        fuse = nn.utils.fuse_linear_bn_eval if isinstance(layer, nn.Linear) else nn.utils.fuse_conv_bn_eval
        fused = fuse(layer, norm, **options)
        np.testing.assert_allclose(host(fused(x)), host(norm(layer(x))), rtol=1e-4, atol=1e-5)
        with pytest.raises(lucid.errors.LucidError, match="must be in eval mode"):
            fuse(layer.train(), norm, **options)


def test_skip_init_keeps_the_random_state():
    lucid.manual_seed(3)
    layer = nn.utils.skip_init(nn.Linear, 2, 3)
    a = lucid.rand(2)
    lucid.manual_seed(3)
    np.testing.assert_array_equal(a.numpy(), lucid.rand(2).numpy())
    assert layer.weight.shape == (3, 2)
