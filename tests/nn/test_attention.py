"""Attention and transformers against PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lucid
from lucid import nn

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)


def matched(name, *args, **kwargs):
    """(ours, theirs) in float64 with the same weights."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **kwargs).double()
    ours = getattr(nn, name)(*args, **kwargs).double()
    for p in theirs.parameters():
        # Biases that start at zero would hide mistakes.
        p.data = torch.tensor(np.random.default_rng(p.numel()).standard_normal(tuple(p.shape)) * 0.4)
    ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    return ours, theirs


def run(ours, theirs, arrays, device, atol=1e-10, **kwargs):
    """Nothing; asserts equal outputs and gradients. Arrays in kwargs become tensors."""
    ours.to(device)
    unique = {id(a): a for a in arrays}
    mine = {k: lucid.tensor(a, device=device, requires_grad=True) for k, a in unique.items()}
    other = {k: torch.tensor(a, requires_grad=True) for k, a in unique.items()}
    ka = {k: lucid.tensor(v, device=device) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}
    kb = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}
    outs, expected = ours(*[mine[id(a)] for a in arrays], **ka), theirs(*[other[id(a)] for a in arrays], **kb)
    outs, expected = (o if isinstance(o, tuple) else (o,) for o in (outs, expected))
    loss = target = 0
    for a, b in zip(outs, expected, strict=True):
        assert (a is None) == (b is None)
        if b is None:
            continue
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().numpy(), rtol=1e-8, atol=atol)
        seed = np.random.default_rng(1).standard_normal(tuple(b.shape))
        loss = loss + (a * lucid.tensor(seed, device=device)).sum()
        target = target + (b * torch.tensor(seed)).sum()
    loss.backward()
    target.backward()
    for k in unique:
        np.testing.assert_allclose(mine[k].grad.cpu().numpy(), other[k].grad.numpy(), rtol=1e-7, atol=atol)
    parameters = dict(theirs.named_parameters()) if isinstance(theirs, torch.nn.Module) else {}
    for name, p in parameters.items():
        if p.grad is not None:
            np.testing.assert_allclose(ours.get_parameter(name).grad.cpu().numpy(), p.grad.numpy(), rtol=1e-7,
                                       atol=atol, err_msg=name)
    ours.zero_grad()
    if parameters:
        theirs.zero_grad()


def f(*shape):
    """A float64 normal array."""
    return RNG.standard_normal(shape)


Q, K, V = f(5, 2, 8), f(7, 2, 8), f(7, 2, 8)
PADDING = np.array([[False] * 7, [False] * 4 + [True] * 3])
FORBIDDEN = np.triu(np.ones((5, 7), dtype=bool), 3)


@pytest.mark.parametrize("kwargs", [{}, {"need_weights": False}, {"average_attn_weights": False},
                                    {"key_padding_mask": PADDING}, {"attn_mask": FORBIDDEN},
                                    {"attn_mask": f(5, 7)}, {"attn_mask": f(4, 5, 7),
                                                             "key_padding_mask": PADDING,
                                                             "need_weights": False},
                                    {"attn_mask": FORBIDDEN, "key_padding_mask": PADDING,
                                     "need_weights": False},], ids=range(8))
def test_multihead_attention(kwargs, device):
    run(*matched("MultiheadAttention", 8, 2), [Q, K, K], device, **kwargs)


@pytest.mark.parametrize("options", [{"bias": False}, {"add_bias_kv": True},
                                     {"add_zero_attn": True, "add_bias_kv": True}, {"kdim": 8, "vdim": 6},],
                         ids=range(4))
def test_multihead_attention_options(options, device):
    ours, theirs = matched("MultiheadAttention", 8, 2, **options)
    value = f(7, 2, 6) if "vdim" in options else K
    for kwargs in ({}, {"need_weights": False}, {"attn_mask": FORBIDDEN, "key_padding_mask": PADDING}):
        run(ours, theirs, [Q, K, value], device, **kwargs)


def test_self_attention_layouts(device):
    ours, theirs = matched("MultiheadAttention", 8, 4, batch_first=True)
    x = f(2, 5, 8)
    run(ours, theirs, [x, x, x], device)
    run(ours, theirs, [f(2, 3, 8), x, x], device)
    alone = f(5, 8)
    run(ours, theirs, [alone, alone, alone], device)
    mask = np.triu(np.full((5, 5), -math.inf), 1)
    run(ours, theirs, [x, x, x], device, attn_mask=mask, is_causal=True, need_weights=False)


def sdpa(lib):
    """The function of a library as something with the interface of a module."""
    class Plain:
        def __call__(self, *args, **kwargs):
            return lib.nn.functional.scaled_dot_product_attention(*args, **kwargs)

        def to(self, device):
            return self

        def zero_grad(self):
            return None
    return Plain()


@pytest.mark.parametrize("kwargs", [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": f(5, 7)},
                                    {"attn_mask": ~FORBIDDEN}, {"attn_mask": f(2, 1, 5, 7)},
                                    {"attn_mask": np.zeros((5, 7), dtype=bool)},], ids=range(7))
def test_scaled_dot_product_attention(kwargs, device):
    run(sdpa(lucid), sdpa(torch), [f(2, 3, 5, 4), f(2, 3, 7, 4), f(2, 3, 7, 6)], device, **kwargs)


def test_grouped_heads_and_broadcast(device):
    run(sdpa(lucid), sdpa(torch), [f(2, 6, 5, 4), f(2, 2, 7, 4), f(2, 2, 7, 4)], device, enable_gqa=True)
    run(sdpa(lucid), sdpa(torch), [f(5, 4), f(7, 4), f(7, 3)], device)


def test_attention_mask_gets_a_gradient(device):
    q, k, v, mask = (lucid.tensor(a, device=device, requires_grad=True)
                     for a in (f(2, 3, 4), f(2, 5, 4), f(2, 5, 4), f(3, 5)))
    attend = nn.functional.scaled_dot_product_attention
    assert lucid.autograd.gradcheck(lambda *a: attend(*a), [q, k, v, mask])
    assert lucid.autograd.gradgradcheck(lambda *a: attend(*a), [q, k, v, mask])


def test_attention_dropout_drops(device):
    q = k = lucid.zeros(1, 64, 4, device=device)
    v = lucid.ones(1, 64, 2, device=device)
    out = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.25)
    assert abs(out.mean().item() - 1.0) < 0.1 and out.std().item() > 0.01


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_and_decoder_layers(norm_first, activation, device):
    options = {"dropout": 0.0, "activation": activation, "norm_first": norm_first, "batch_first": True}
    src, tgt = f(2, 5, 8), f(2, 4, 8)
    causal = np.triu(np.full((4, 4), -math.inf), 1)
    padding = np.array([[0.0] * 5, [0.0] * 3 + [-math.inf] * 2])
    run(*matched("TransformerEncoderLayer", 8, 2, 16, **options), [src], device, src_key_padding_mask=padding)
    run(*matched("TransformerDecoderLayer", 8, 2, 16, **options), [tgt, src], device, tgt_mask=causal,
        tgt_is_causal=True, memory_key_padding_mask=padding)


def test_transformer(device):
    ours, theirs = matched("Transformer", 8, 2, 2, 2, 16, dropout=0.0)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    np.testing.assert_array_equal(mask.numpy(),
                                  torch.nn.Transformer.generate_square_subsequent_mask(4).numpy())
    run(ours, theirs, [f(5, 2, 8), f(4, 2, 8)], device, tgt_mask=mask.numpy().astype("float64"))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 3, nn.LayerNorm(8))
    assert len(encoder.layers) == 3
    assert encoder.layers[0].linear1.weight is not encoder.layers[1].linear1.weight


def test_messages():
    layer, x = nn.MultiheadAttention(8, 2), lucid.zeros(5, 2, 8)
    for call, match in ((lambda: nn.MultiheadAttention(8, 3),
                         "embed_dim=8 must be a positive multiple of num_heads=3"),
                        (lambda: layer(x[..., :6], x, x), "query needs embed_dim=8 features"),
                        (lambda: layer(x, x, x, attn_mask=lucid.zeros(3, 3)),
                         r"attn_mask must be \[L, S\] = \[5, 5\]"),
                        (lambda: layer(x, x, x, key_padding_mask=lucid.zeros(3, 3)),
                         r"key_padding_mask must be \[N, S\] = \[2, 5\]"),
                        (lambda: layer(x, x, x, is_causal=True),
                         "is_causal=True describes attn_mask, which is missing"),
                        (lambda: nn.functional.scaled_dot_product_attention(x, x, x[:, :1]),
                         r"expected query \[..., L, E\]"),
                        (lambda: nn.functional.scaled_dot_product_attention(x, x, x, lucid.zeros(2, 2),
                                                                            is_causal=True),
                         "exclude each other"), (lambda: nn.TransformerEncoderLayer(8, 2, activation="sin"),
                                                 "activation must be 'relu', 'gelu' or a function"),):
        with pytest.raises(lucid.errors.ShapeError, match=match):
            call()
