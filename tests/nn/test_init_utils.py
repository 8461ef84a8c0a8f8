"""Initial values, gradient clipping, parameter vectors, weight norm."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.errors import LucidError, ShapeError
from lucid.nn import init, utils


def host(t):
    """The values as a NumPy array."""
    return t.detach().cpu().numpy()


def test_gains():
    assert init.calculate_gain("tanh") == 5 / 3 and init.calculate_gain("relu") == math.sqrt(2)
    assert init.calculate_gain("leaky_relu", math.sqrt(5)) == pytest.approx(math.sqrt(1 / 3))
    with pytest.raises(ShapeError, match="expected leaky_relu or one of linear"):
        init.calculate_gain("sine")


@pytest.mark.parametrize(("function", "kwargs", "std", "bound"), [
    ("uniform_", {"a": -2.0, "b": 4.0}, 6 / math.sqrt(12), None),
    ("normal_", {"mean": 1.0, "std": 3.0}, 3.0, None),
    ("xavier_uniform_", {}, math.sqrt(2 / 1000), math.sqrt(6 / 1000)),
    ("xavier_normal_", {"gain": 2.0}, 2 * math.sqrt(2 / 1000), None),
    ("kaiming_uniform_", {"nonlinearity": "relu"}, math.sqrt(2 / 600), math.sqrt(6 / 600)),
    ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"}, math.sqrt(2 / 400), None),
    ("trunc_normal_", {"std": 1.0, "a": -1.0, "b": 1.0}, 0.5396, 1.0),
])
def test_random_initialisers(function, kwargs, std, bound, device):
    lucid.manual_seed(0)
    w = lucid.nn.Parameter(lucid.zeros(400, 600, device=device))
    assert getattr(init, function)(w, **kwargs) is w and w.requires_grad and w.grad_fn is None
    assert w.std().item() == pytest.approx(std, rel=0.01)
    if bound is not None:
        assert w.abs().max().item() <= bound * (1 + 1e-6) and w.abs().max().item() > 0.99 * bound
    lucid.manual_seed(0)
    again = getattr(init, function)(lucid.zeros(400, 600, device=device), **kwargs)
    np.testing.assert_array_equal(host(w), host(again))


def test_other_initialisers(device):
    w = lucid.zeros(3, 5, device=device)
    assert host(init.constant_(w, 2.5)).tolist() == [[2.5] * 5] * 3
    np.testing.assert_array_equal(host(init.eye_(w)), np.eye(3, 5))
    assert host(init.ones_(w)).all() and not host(init.zeros_(w)).any()
    for shape in ((4, 7), (7, 4), (4, 2, 3)):
        q = host(init.orthogonal_(lucid.zeros(*shape, device=device, dtype="float64"),
                                  gain=2.0)).reshape(shape[0], -1)
        small = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
        np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-12)
    s = host(init.sparse_(lucid.zeros(10, 6, device=device), 0.3))
    assert ((s == 0).sum(0) == 3).all()
    kernel = init.dirac_(lucid.zeros(4, 2, 3, 3, device=device), groups=2)
    x = lucid.randn(1, 4, 5, 5, device=device)
    np.testing.assert_allclose(host(nn.functional.conv2d(x, kernel, padding=1, groups=2)), host(x), atol=1e-6)
    with pytest.raises(ShapeError, match="fan in and fan out need a weight of at least 2 dimensions"):
        init.xavier_uniform_(lucid.zeros(3))
    with pytest.raises(ShapeError, match="mode must be 'fan_in' or 'fan_out', got 'both'"):
        init.kaiming_normal_(w, mode="both")


@pytest.mark.parametrize("name", ["constant", "dirac", "eye", "kaiming_normal", "kaiming_uniform", "normal",
                                  "orthogonal", "sparse", "uniform", "xavier_normal", "xavier_uniform"])
def test_deprecated_names_warn_as_pytorch_does(name):
    args = {"constant": (0.5,), "sparse": (0.3,)}.get(name, ())
    shape = (4, 2, 3) if name == "dirac" else (4, 6)
    message = f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`."
    lucid.manual_seed(1)
    with pytest.warns(FutureWarning) as caught:
        old = getattr(init, name)(lucid.zeros(*shape), *args)
    assert str(caught[0].message) == message and caught[0].filename == __file__
    lucid.manual_seed(1)
    np.testing.assert_array_equal(host(old), host(getattr(init, f"{name}_")(lucid.zeros(*shape), *args)))
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings(record=True) as theirs:
        warnings.simplefilter("always")
        getattr(torch.nn.init, name)(torch.zeros(*shape), *args)
    assert theirs[0].category is FutureWarning and str(theirs[0].message) == message


def test_layers_start_as_in_pytorch():
    torch = pytest.importorskip("torch")
    lucid.manual_seed(0)
    torch.manual_seed(0)
    for name, args in (("Linear", (300, 200)), ("Conv2d", (30, 40, 3)), ("ConvTranspose2d", (30, 40, 3)),
                       ("Embedding", (200, 100)), ("LSTM", (60, 80)), ("MultiheadAttention", (96, 4)),
                       ("Bilinear", (20, 30, 40))):
        ours, theirs = getattr(nn, name)(*args), dict(getattr(torch.nn, name)(*args).named_parameters())
        for key, p in ours.named_parameters():
            a, b = host(p), theirs[key].detach().numpy()
            assert a.std() == pytest.approx(b.std(), rel=0.2, abs=1e-9), (name, key)
            assert abs(a).max() == pytest.approx(abs(b).max(), rel=0.35, abs=1e-9), (name, key)


@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, math.inf])
def test_clip_grad_norm(p, device):
    rng = np.random.default_rng(0)
    grads = [rng.standard_normal(s) for s in ((3, 4), (5,), ())]
    params = [nn.Parameter(lucid.zeros(*g.shape, dtype="float64", device=device)) for g in grads]
    for q, g in zip(params, grads, strict=True):
        q.grad = lucid.tensor(g, device=device)
    total = np.linalg.norm(np.concatenate([g.ravel() for g in grads]), p)
    buffers = [q.grad.storage.array for q in params]
    assert utils.clip_grad_norm_(iter(params), 100.0, p).item() == pytest.approx(total)
    np.testing.assert_allclose(host(params[0].grad), grads[0])
    assert utils.clip_grad_norm_([*params, nn.Parameter(lucid.zeros(1, device=device))], 0.5,
                                 p).item() == pytest.approx(total)
    for q, g, a in zip(params, grads, buffers, strict=True):
        np.testing.assert_allclose(host(q.grad), g * (0.5 / (total + 1e-6)))
        assert q.grad.storage.array is a
    params[0].grad = lucid.tensor(np.full((3, 4), np.nan), device=device)
    with pytest.raises(LucidError, match="total norm of order .* is nan"):
        utils.clip_grad_norm_(params, 1.0, p, error_if_nonfinite=True)


@pytest.mark.parametrize("p", [2.0, 1.0, 1.5, math.inf])
def test_clip_grad_norm_of_all_kinds_of_gradients(p, device):
    """Several dtypes, a transpose, complex numbers, nothing: the norm of float64, and each scaled once."""
    rng = np.random.default_rng(0)
    kinds = ["float32", "float64", "bfloat16", "float16", "float32", "float64", "complex64", "float32"]
    shapes = [(3, 4), (5,), (70,), (6, 2), (20000,), (), (4, 3), (0, 3)]
    zeros = [lucid.zeros(*s, dtype=k, device=device) for s, k in zip(shapes, kinds, strict=True)]
    params = [nn.Parameter(z) for z in zeros]
    for q, s in zip(params, shapes, strict=True):
        g = rng.standard_normal(s) + (1j * rng.standard_normal(s) if q.is_complex() else 0)
        q.grad = lucid.tensor(g, dtype=q.dtype, device=device)
    # Every second column of a larger array, whose others must stay.
    wide = lucid.ones(3, 8, device=device)
    wide[:, ::2] = params[0].grad
    params[0].grad = wide[:, ::2]
    assert not params[0].grad.is_contiguous()
    before = [host(q.grad).astype("complex128" if q.is_complex() else "float64") for q in params]
    total = np.linalg.norm(np.concatenate([g.ravel() for g in before]), p)
    versions = [q.grad._version for q in params]
    got = utils.clip_grad_norm_(params, 2 * total, p)
    assert got.item() == pytest.approx(total, rel=1e-5)
    for q, g in zip(params, before, strict=True):
        np.testing.assert_array_equal(host(q.grad), g.astype(q.dtype))
    assert utils.clip_grad_norm_(params, 0.25, p).item() == got.item()
    assert all(q.grad._version > v for q, v in zip(params, versions, strict=True))
    for q, g in zip(params, before, strict=True):
        rtol = {"bfloat16": 2.0**-7, "float16": 2.0**-9}.get(q.dtype.name, 1e-5)
        now = host(q.grad).astype(g.dtype)
        np.testing.assert_allclose(now, g * (0.25 / (total + 1e-6)), rtol=rtol, atol=1e-6)
    assert (host(wide)[:, 1::2] == 1).all()


@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, 0.5, 0.0, -1.0, math.inf, -math.inf])
def test_clip_grad_norm_of_what_is_not_finite_is_pytorchs(p, bad, device):
    torch = pytest.importorskip("torch")
    values = [np.array([1.0, bad, -2.0], "f4"), np.array([3.0], "f4")]
    runs = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for lib in (lucid, torch):
            where = {"device": device} if lib is lucid else {}
            params = [lib.zeros(len(v), requires_grad=True, **where) for v in values]
            for q, v in zip(params, values, strict=True):
                q.grad = lib.tensor(v, **where)
            total = lib.nn.utils.clip_grad_norm_(params, 1.0, p)
            runs.append([float(total), *(q.grad.tolist() for q in params)])
        # A power that overflows, nothing at all, and half precision.
        assert utils.get_total_norm([lucid.zeros(0, device=device)], p).item() == (math.inf if p < 0 else 0.0)
        half = nn.Parameter(lucid.zeros(2, dtype="float16", device=device))
        half.grad = lucid.tensor([bad, 1.0], dtype="float16", device=device)
        assert not math.isfinite(utils.clip_grad_norm_([half], 1.0, p).item()) or p <= 0
        assert utils.get_total_norm([lucid.full((3,), 1e30, device=device)], 3.0).item() == math.inf
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    for a, b in zip(runs[0][1:], runs[1][1:], strict=True):
        np.testing.assert_array_equal(a, b)


def test_clip_grad_norm_is_three_launches(device):
    from lucid.testing import simulator

    if device == "cpu" or not simulator.is_on():
        pytest.skip("launches are counted on the simulated device")
    params = [nn.Parameter(lucid.zeros(n + 1, device=device)) for n in range(20)]
    for q in params:
        q.grad = lucid.ones_like(q)
    utils.clip_grad_norm_(params, 1.0)
    for p in (2.0, 1.0, math.inf):
        with simulator.counted() as counts:
            utils.clip_grad_norm_(params, 1.0, p)
        assert counts == {"launches": 3, "raw": 3, "syncs": 0, "h2d_bytes": 0, "d2h_bytes": 0}


def test_clip_grad_value(device):
    p = nn.Parameter(lucid.zeros(3, device=device))
    p.grad = lucid.tensor([-2.0, 0.5, 3.0], device=device)
    utils.clip_grad_value_(p, 1.0)
    assert host(p.grad).tolist() == [-1.0, 0.5, 1.0]
    with pytest.raises(ShapeError, match="clip_value must be at least 0"):
        utils.clip_grad_value_(p, -1.0)


def test_parameter_vectors(device):
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)).to(device)
    vec = utils.parameters_to_vector(net.parameters())
    assert vec.shape == (11,)
    (vec * vec).sum().backward()
    np.testing.assert_allclose(host(net[0].weight.grad), 2 * host(net[0].weight))
    utils.vector_to_parameters(lucid.arange(11, dtype="float32", device=device), net.parameters())
    assert host(net[1].weight).tolist() == [[8.0, 9.0]] and net[1].bias.item() == 10.0
    with pytest.raises(ShapeError, match=r"the parameters have 11 elements, got a vector of shape \(5,\)"):
        utils.vector_to_parameters(lucid.zeros(5, device=device), net.parameters())


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim, device):
    layer = nn.Linear(3, 2).double().to(device)
    weight, x = host(layer.weight).copy(), lucid.randn(4, 3, dtype="float64", device=device)
    before = host(layer(x))
    assert utils.weight_norm(layer, dim=dim) is layer
    assert [n for n, _ in layer.named_parameters()] == ["bias", "weight_g", "weight_v"]
    np.testing.assert_allclose(host(layer(x)), before, rtol=1e-12)
    layer(x).sum().backward()
    assert layer.weight_g.grad is not None and layer.weight_v.grad.shape == (2, 3)
    # The gradient along v itself is zero: its length does not matter.
    g, v = host(layer.weight_v.grad), host(layer.weight_v)
    np.testing.assert_allclose((g * v).sum(None if dim is None else 1 - dim), 0.0, atol=1e-12)
    with pytest.raises(LucidError, match="has weight norm already"):
        utils.weight_norm(layer)
    utils.remove_weight_norm(layer)
    np.testing.assert_allclose(host(layer.weight), weight, rtol=1e-12)
    assert isinstance(layer.weight, nn.Parameter) and not layer.__dict__["_forward_pre_hooks"]


def test_functional_names():
    functional = nn.functional
    assert functional.relu is functional.relu and "cross_entropy" in dir(functional)
    with pytest.raises(AttributeError, match="no function 'nonsense'"):
        functional.nonsense  # noqa: B018
    from lucid.nn.functional import conv2d
    assert conv2d is functional.conv2d


def test_gumbel_softmax(device):
    lucid.manual_seed(0)
    logits = lucid.tensor(np.log([0.1, 0.2, 0.7]), device=device, requires_grad=True)
    many = logits.expand(20000, 3)
    hard = nn.functional.gumbel_softmax(many, tau=0.5, hard=True)
    np.testing.assert_allclose(host(hard).mean(0), [0.1, 0.2, 0.7], atol=0.02)
    assert set(np.unique(host(hard).round(6))) == {0.0, 1.0}
    (hard * lucid.tensor([1.0, 2.0, 3.0], device=device)).sum().backward()
    assert host(logits.grad).any()
