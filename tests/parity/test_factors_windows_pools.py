"""Factors, low rank, windows, histograms, fractional pooling, polynomials: PyTorch's values."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.ops.polynomials import TABLE

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)


def same(ours, theirs, rtol=1e-9, atol=1e-10):
    theirs = theirs.detach().resolve_conj().numpy()
    np.testing.assert_allclose(ours.detach().cpu().numpy(), theirs, rtol, atol)


@pytest.mark.parametrize("kind", ["real", "complex", "hermitian"])
@pytest.mark.parametrize("shape", [(1, 1), (6, 6), (2, 3, 5, 5), (40, 40), (0, 0), (0, 3, 3)])
def test_ldl_is_lapacks(shape, kind, device):
    if shape == (40, 40) and device != "cpu":
        pytest.skip("one case too slow for the simulator")
    hermitian = kind == "hermitian"
    a = rng.standard_normal(shape) + (0 if kind == "real" else 1j * rng.standard_normal(shape))
    a = a + (a.conj() if hermitian else a).swapaxes(-2, -1)
    a[..., :1, :1] = 0.0  # a pivot block of two rows
    b = rng.standard_normal((*shape[:-1], 2)).astype(a.dtype)
    if shape == (1, 1):
        a += 1.0
    x, t = lucid.tensor(a, device=device), torch.tensor(a)
    ours, theirs = (lib.linalg.ldl_factor(v, hermitian=hermitian) for lib, v in ((lucid, x), (torch, t)))
    same(ours.LD, theirs.LD, 1e-7, 1e-8)
    assert ours.pivots.tolist() == theirs.pivots.tolist() and ours.pivots.dtype == lucid.int32
    right, right_t = lucid.tensor(b, device=device, requires_grad=True), torch.tensor(b, requires_grad=True)
    out = lucid.linalg.ldl_solve(*ours, right, hermitian=hermitian)
    out_t = torch.linalg.ldl_solve(*theirs, right_t, hermitian=hermitian)
    same(out, out_t, 1e-6, 1e-7)
    seed = np.linspace(0.5, 1.5, b.size).reshape(b.shape).astype(a.dtype)
    seed = seed if kind == "real" else seed * (1 + 0.5j)
    (out * lucid.tensor(seed, device=device)).sum().abs().backward()
    # PyTorch differentiates linalg.solve only.
    (torch.linalg.solve(t, right_t) * torch.tensor(seed)).sum().abs().backward()
    same(right.grad, right_t.grad, 1e-6, 1e-7)


def test_ldl_factor_ex_reports_a_zero(device):
    a = np.diag([2.0, 0.0, 1.0])
    for batch in (a, np.stack([a, np.eye(3)])):
        x, t = lucid.tensor(batch, device=device), torch.tensor(batch)
        assert lucid.linalg.ldl_factor_ex(x).info.tolist() == torch.linalg.ldl_factor_ex(t).info.tolist()


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 5, 2), (3, 0), (0, 3, 3)])
def test_geqrf_is_lapacks(shape, device):
    a = rng.standard_normal(shape)
    ours, theirs = lucid.geqrf(lucid.tensor(a, device=device)), torch.geqrf(torch.tensor(a))
    same(ours.a, theirs.a), same(ours.tau, theirs.tau)
    complex_ = a + 1j * rng.standard_normal(shape)
    packed = lucid.geqrf(lucid.tensor(complex_, device=device))
    if a.size and shape[-2] >= shape[-1]:
        q = lucid.linalg.householder_product(packed.a, packed.tau)
        np.testing.assert_allclose(
            (q @ packed.a.triu()[..., : shape[-1], :]).cpu().numpy(), complex_, rtol=1e-10, atol=1e-10
        )


@pytest.mark.parametrize("shape", [(8, 5), (5, 8), (2, 6, 7)])
def test_low_rank(shape, device):
    rank = 3
    a = rng.standard_normal((*shape[:-1], rank)) @ rng.standard_normal((*shape[:-2], rank, shape[-1]))
    x = lucid.tensor(a, device=device)
    U, S, V = lucid.svd_lowrank(x, q=rank + 1)
    np.testing.assert_allclose((U * S.unsqueeze(-2) @ V.mT).cpu().numpy(), a, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(S.cpu().numpy()[..., :rank], np.linalg.svd(a)[1][..., :rank], rtol=1e-8)
    U, S, V = lucid.pca_lowrank(x, q=rank)
    centred = a - a.mean(-2, keepdims=True)
    np.testing.assert_allclose((U * S.unsqueeze(-2) @ V.mT).cpu().numpy(), centred, rtol=1e-8, atol=1e-8)


def test_svd_lowrank_has_gradients(device):
    a = rng.standard_normal((6, 2)) @ rng.standard_normal((2, 4))
    x = lucid.tensor(a, device=device, requires_grad=True)
    lucid.svd_lowrank(x, q=2).S.sum().backward()
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    np.testing.assert_allclose(x.grad.cpu().numpy(), u[:, :2] @ vh[:2], rtol=1e-6, atol=1e-8)


WINDOWS = {
    "bartlett": {}, "blackman": {}, "hann": {}, "hamming": {"alpha": 0.5, "beta": 0.3},
    "kaiser": {"beta": 5.0},
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("periodic", [True, False])
def test_windows(name, periodic, device):
    for n in (0, 1, 2, 7, 8):
        args = {"periodic": periodic, **WINDOWS[name]}
        ours = getattr(lucid, f"{name}_window")(n, dtype=lucid.float64, device=device, **args)
        same(ours, getattr(torch, f"{name}_window")(n, dtype=torch.float64, **args), atol=1e-14)
    single = getattr(lucid, f"{name}_window")(4, device=device, requires_grad=True)
    assert single.dtype == lucid.float32 and single.requires_grad and single.is_leaf


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histograms(weighted, density, device):
    x, w = rng.standard_normal((40, 2)), rng.random(40)
    x[0], x[1, 0] = 3.5, float("nan")
    edges, ranges = np.array([-1.0, 0, 0.5, 2]), [-2.0, 3.5, -1.0, 2.0]
    calls = {
        "histogram range": lambda lib, t: lib.histogram(t(x[:, 0]), 5, range=(-2.0, 3.5), **options(t)),
        "histogram edges": lambda lib, t: lib.histogram(t(x[:, 1]), t(edges), **options(t)),
        "histogram": lambda lib, t: lib.histogram(t(x[:, 1]), 6, **options(t)),
        "histogramdd": lambda lib, t: lib.histogramdd(t(x), [3, 4], range=ranges, **options(t)),
    }

    def options(t):
        return {"density": density, "weight": t(w) if weighted else None}

    for call in calls.values():
        ours, theirs = call(lucid, lambda a: lucid.tensor(a, device=device)), call(torch, torch.tensor)
        same(ours.hist, theirs.hist)
        several = isinstance(theirs.bin_edges, tuple)
        pairs = zip(*(o.bin_edges if several else [o.bin_edges] for o in (ours, theirs)), strict=True)
        for a, b in pairs:
            same(a, b)


POOLS = [
    (2, (2, 3, 9, 12), (2, 3), (4, 5)), (2, (3, 8, 8), 2, (3, 4)), (2, (2, 3, 6, 7), 3, (1, 2)),
    (3, (2, 2, 6, 7, 9), (2, 2, 3), (3, 4, 5)), (3, (2, 5, 5, 5), 2, 3),
]  # fmt: skip


@pytest.mark.parametrize(("n", "shape", "kernel", "size"), POOLS)
def test_fractional_max_pool(n, shape, kernel, size, device):
    a = rng.standard_normal(shape)
    planes = shape[:2] if len(shape) == n + 2 else (1, shape[0])
    u = rng.random((*planes, n))
    name = f"fractional_max_pool{n}d"
    x, t = lucid.tensor(a, device=device, requires_grad=True), torch.tensor(a, requires_grad=True)
    ours, at = getattr(lucid.nn.functional, name)(
        x, kernel, size, return_indices=True, _random_samples=lucid.tensor(u, device=device)
    )
    theirs, at_t = getattr(torch.nn.functional, name)(
        t, kernel, size, return_indices=True, _random_samples=torch.tensor(u)
    )
    same(ours, theirs)
    assert at.tolist() == at_t.tolist() and at.dtype == lucid.int64
    (first,) = lucid.autograd.grad((ours**2).sum(), x, create_graph=True)
    (first_t,) = torch.autograd.grad((theirs**2).sum(), t, create_graph=True)
    same(first, first_t)
    same(*(lib.autograd.grad((g**2).sum(), v)[0] for lib, g, v in ((lucid, first, x), (torch, first_t, t))))
    layer = getattr(lucid.nn, f"FractionalMaxPool{n}d")(kernel, output_ratio=0.4)
    reference = getattr(torch.nn, f"FractionalMaxPool{n}d")(kernel, output_ratio=0.4)
    assert layer(x).shape == tuple(reference(t).shape)
    # The module's samples are a buffer: moved, saved, and used.
    make = {lib: getattr(lib.nn, f"FractionalMaxPool{n}d") for lib in (lucid, torch)}
    layers = [m(kernel, size, _random_samples=lib.tensor(u)) for lib, m in make.items()]
    assert list(layers[0].state_dict()) == list(layers[1].state_dict()) == ["_random_samples"]
    same(layers[0].to(device)(x), layers[1](t))
    assert layers[0].kernel_size == layers[1].kernel_size and layers[0].output_size == layers[1].output_size
    for wrong in ({}, {"output_size": size, "output_ratio": 0.5}, {"output_ratio": 1.5}):
        for m in make.values():
            with pytest.raises(ValueError, match="output"):
                m(kernel, **wrong)


@pytest.mark.parametrize("name", TABLE)
def test_polynomials(name, device):
    x, n = np.linspace(-1.2, 1.2, 7), np.array([[-1], [0], [1], [2], [5], [9]])
    ours = getattr(lucid.special, name)(lucid.tensor(x, device=device), lucid.tensor(n, device=device))
    same(ours, getattr(torch.special, name)(torch.tensor(x), torch.tensor(n)), 1e-7, 1e-9)


CALLS = {
    "is_same_size": lambda lib, x: lib.is_same_size(x, x[0]),
    "is_signed": lambda lib, x: lib.is_signed(x),
    "is_nonzero": lambda lib, x: lib.is_nonzero(x[0, 1]),
    "is_conj": lambda lib, x: (x.is_neg(), x.is_conj(), x.is_inference(), x.is_cpu is (not x.is_cuda)),
    "ndimension": lambda lib, x: x.ndimension(),
    "unravel_index": lambda lib, x: [t.tolist() for t in lib.unravel_index(lib.tensor([5, 0, 3]), (2, 3))],
    "nonzero_static": lambda lib, x: lib.nonzero_static(x, size=9, fill_value=-7).tolist(),
    "nonzero_static short": lambda lib, x: lib.nonzero_static(x, size=2).tolist(),
    "scalar_tensor": lambda lib, x: lib.scalar_tensor(3).item(),
    "addmm_": lambda lib, x: x.clone()[:, :2].addmm_(x, x.T, beta=2, alpha=0.5).tolist(),
    "addr_": lambda lib, x: x.clone().addr_(x[:, 0], x[0]).tolist(),
    "addmv_": lambda lib, x: x[:, 0].clone().addmv_(x, x[1]).tolist(),
    "addbmm_": lambda lib, x: x[:, :2].clone().addbmm_(x[None], x.T[None]).tolist(),
    "baddbmm_": lambda lib, x: x[:, :2].clone()[None].baddbmm_(x[None], x.T[None]).tolist(),
    "fill_diagonal_": lambda lib, x: x.clone().fill_diagonal_(5.0).tolist(),
    "fill_diagonal_ wrap": lambda lib, x: lib.zeros(7, 2).fill_diagonal_(5.0, wrap=True).tolist(),
    "fill_diagonal_ cube": lambda lib, x: lib.zeros(3, 3, 3).fill_diagonal_(5.0).tolist(),
    "apply_": lambda lib, x: x.cpu().clone().apply_(lambda v: v * 2 + 1).tolist(),
    "map_": lambda lib, x: x.cpu().clone().map_(x.cpu()[0], lambda a, b: a - b).tolist(),
    "new_empty_strided": lambda lib, x: x.new_empty_strided((2, 2), (1, 2)).stride(),
}


@pytest.mark.parametrize("name", CALLS)
def test_small_functions(name, device):
    a = np.array([[0.5, 0.0, -2.0], [1.5, 3.0, 0.0]])
    assert CALLS[name](lucid, lucid.tensor(a, device=device)) == CALLS[name](torch, torch.tensor(a))


def test_in_place_products_have_gradients(device):
    a = rng.standard_normal((3, 3))
    grads = []
    for lib, where in ((lucid, {"device": device}), (torch, {})):
        x, w = (lib.tensor(a, requires_grad=True, **where) for _ in range(2))
        y = x * 1.0
        y[0:2].addmm_(w[0:2], w, beta=0.5).fill_diagonal_(1.0)
        (y * y).sum().backward()
        grads.append([x.grad, w.grad])
    for ours, theirs in zip(*grads, strict=True):
        same(ours, theirs)


def test_binomial(device):
    n, p = lucid.full((4000,), 10.0, device=device), lucid.full((4000,), 0.3, device=device)
    draws = lucid.binomial(n, p)
    assert draws.dtype == lucid.float32 and abs(draws.mean().item() - 3.0) < 0.15
    assert draws.min().item() >= 0 and draws.max().item() <= 10


def test_print_options():
    x = lucid.tensor([[0.123456, 12345.678]])
    try:
        lucid.set_printoptions(precision=2)
        assert repr(lucid.tensor([0.123456])) == "tensor([0.12])"
        lucid.set_printoptions(sci_mode=True)
        assert repr(x) == "tensor([[1.23e-01, 1.23e+04]])"
        lucid.set_printoptions(profile="full", sci_mode=False)
        assert repr(x) == "tensor([[0.1235, 12345.6777]])" and "..." not in repr(lucid.zeros(2000))
        lucid.set_printoptions(profile="short", threshold=3)
        assert repr(lucid.arange(9)) == "tensor([0, 1, ..., 7, 8])"
    finally:
        lucid.set_printoptions(profile="default")
    assert repr(lucid.tensor([0.123456])) == "tensor([0.1235])"
