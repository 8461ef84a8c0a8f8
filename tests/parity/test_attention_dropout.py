"""Attention with dropout against PyTorch: with PyTorch's mask, the same values and gradients of both orders.

The two libraries draw from different generators, so the mask is read off PyTorch (attention to the rows of an
identity matrix gives the weights, zero where dropped) and put where lucid draws its own.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import lucid
from lucid.tensor import _wrap

torch = pytest.importorskip("torch")
torch_attention = torch.nn.functional.scaled_dot_product_attention
drawing = importlib.import_module("lucid.functional.dropout")

L, S, E = 5, 4, 3
CASES = {
    "plain": ((2, L, E), (2, S, E), {}),
    "no batch": ((L, E), (S, E), {}),
    "heads": ((2, 3, L, E), (2, 3, S, E), {}),
    "causal": ((2, S, E), (2, S, E), {"is_causal": True}),
    "scale": ((2, L, E), (2, S, E), {"scale": 0.3}),
    "bool mask": ((2, L, E), (2, S, E), {"attn_mask": np.tril(np.ones((L, S), bool))}),
    "float mask": ((2, L, E), (2, S, E), {"attn_mask": np.linspace(-1, 1, L * S).reshape(L, S)}),
    "grouped": ((2, 4, L, E), (2, 2, S, E), {"enable_gqa": True}),
}


def kept(query, key, p):
    """PyTorch's mask for weights of this shape, drawn from seed 42."""
    weights = (*query[:-1], key[-2])
    torch.manual_seed(42)
    eye = torch.eye(weights[-1], dtype=torch.float64).expand(*weights[:-2], weights[-1], weights[-1])
    zeros = [torch.zeros(shape, dtype=torch.float64) for shape in (query, (*eye.shape[:-1], query[-1]))]
    return torch_attention(*zeros, eye, dropout_p=p).numpy() != 0


def run(lib, attention, arrays, kwargs, device=None):
    made = {} if device is None else {"device": device}
    leaves = [lib.tensor(a, requires_grad=True, **made) for a in arrays]
    extra = {k: lib.tensor(v, **made) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}
    out = attention(*leaves, **extra)
    seed = lib.tensor(np.linspace(0.5, 1.5, out.numel()).reshape(out.shape), **made)
    first = lib.autograd.grad((out * seed).sum(), leaves, create_graph=True)
    second = lib.autograd.grad(sum((g * g).sum() for g in first), leaves)
    return [t.detach().cpu().numpy() for t in (out, *first, *second)]


@pytest.mark.parametrize("p", [0.2, 0.5])
@pytest.mark.parametrize("name", CASES)
def test_attention_with_the_mask_of_pytorch(name, p, device, monkeypatch):
    query, key, kwargs = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s) for s in (query, key, key)]
    mask = kept(query, key, p)
    assert 0 < mask.sum() < mask.size

    def given(input, shape, probability):
        assert tuple(shape) == mask.shape and probability == p
        return _wrap(input.backend.from_numpy(mask), input.backend)

    monkeypatch.setattr(drawing, "_mask", given)
    monkeypatch.setattr(drawing, "KEEPS_MASK", ("cpu", "cuda"))  # CUDA draws none otherwise
    kwargs = {**kwargs, "dropout_p": p}
    ours = run(lucid, lucid.nn.functional.scaled_dot_product_attention, arrays, kwargs, device)
    torch.manual_seed(42)
    for a, b in zip(ours, run(torch, torch_attention, arrays, kwargs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
