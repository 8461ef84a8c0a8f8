"""Layers and losses at their edges, against PyTorch: batches of nothing, targets that do not count, settings
that do not fit.
"""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.errors import DtypeError, IndexRangeError, ShapeError

from .test_layers import LAYERS, flat, make

torch = pytest.importorskip("torch")

# PyTorch gives whatever lies in memory (the first two) or refuses; its instance norm makes the running
# statistics nan. Without offsets there are no bags, and inputs without a batch have none to empty.
NOT_EMPTY = {"MultiMarginLoss", "MultiLabelMarginLoss", "PixelShuffle", "PixelUnshuffle", "InstanceNorm2d"}
EMPTY = [row for row in LAYERS if row[0] not in NOT_EMPTY and row[3][0].shape != (4,)
         and (row[0] != "EmbeddingBag" or len(row[3]) == 1)]


def _pass(lib, layer, inputs, device):
    where = {} if lib is torch else {"device": device}
    xs = [lib.tensor(x, requires_grad=x.dtype.kind == "f", **where) for x in inputs]
    outs = flat(layer(*xs))
    if outs[0].requires_grad:
        outs[0].sum().backward()
    tensors = [*outs, *(t.grad for t in (*xs, *layer.parameters())), *layer.buffers()]
    return [None if t is None else t.detach().cpu().numpy() for t in tensors]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("name", "args", "kwargs", "inputs"), EMPTY,
                         ids=[f"{k}-{row[0]}" for k, row in enumerate(EMPTY)])
def test_a_batch_of_nothing(name, args, kwargs, inputs, device):
    ours, theirs = make(name, args, kwargs)
    inputs = [x[:0] for x in inputs]
    found, expected = _pass(lucid, ours.to(device), inputs, device), _pass(torch, theirs, inputs, device)
    for a, b in zip(found, expected, strict=True):
        if b is not None:
            np.testing.assert_array_equal(a, b)


def test_running_statistics_stay_without_values(device):
    for norm, shape in ((nn.BatchNorm2d(3), (0, 3, 2, 2)), (nn.BatchNorm1d(3), (0, 3)),
                        (nn.InstanceNorm2d(3, track_running_stats=True), (0, 3, 2, 2))):
        norm.to(device)(lucid.zeros(*shape, device=device))
        assert norm.running_mean.tolist() == [0, 0, 0] and norm.running_var.tolist() == [1, 1, 1]


def test_convolution_of_no_channels(device):
    x = lucid.ones(2, 0, 5, 5, device=device)
    weight, bias = lucid.ones(3, 0, 3, 3, device=device), lucid.arange(3.0, device=device)
    out = nn.functional.conv2d(x, weight, bias)
    assert out.shape == (2, 3, 3, 3) and (out[:, 2] == 2).all()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(2, 3), (3,), (2, 3, 4)], ids=str)
def test_no_target_counts(shape, weighted, smoothing, dtype, device):
    # The mean of nothing is nan, as in PyTorch, but it moves no weight.
    target = lucid.full(shape[:1] + shape[2:] if len(shape) > 1 else (), -100, dtype="int64", device=device)
    weight = lucid.tensor([1.0, 2.0, 3.0], dtype=dtype, device=device) if weighted else None
    data = np.random.default_rng(0).normal(size=shape)
    x = lucid.tensor(data, dtype=dtype, device=device, requires_grad=True)
    loss = nn.functional.cross_entropy(x, target, weight, label_smoothing=smoothing)
    loss.backward()
    assert np.isnan(loss.item()) and not x.grad.float().cpu().numpy().any()
    # The same by its two halves, fused and not.
    for fused in (False, True):
        y = lucid.tensor(data, dtype=dtype, device=device, requires_grad=True)
        with lucid.fusion.enabled(fused):
            nn.functional.nll_loss(y.log_softmax(0 if len(shape) == 1 else 1), target, weight).backward()
        assert not y.grad.float().cpu().numpy().any()
    # And as part of a sum, next to a loss that counts.
    z = lucid.tensor(data, dtype=dtype, device=device, requires_grad=True)
    (nn.functional.cross_entropy(z, target, weight, reduction="sum", label_smoothing=smoothing)
     + z.sum()).backward()
    assert (z.grad.float().cpu().numpy() == 1).all()


@pytest.mark.parametrize("p", [float("inf"), -float("inf")])
def test_lp_pool_of_infinite_norm(p, device):
    data = np.random.default_rng(0).normal(size=(2, 3, 6, 5))
    x, y = lucid.tensor(data, device=device, requires_grad=True), torch.tensor(data, requires_grad=True)
    out, expected = (m.LPPool2d(p, 3, stride=2, ceil_mode=True)(t) for m, t in ((nn, x), (torch.nn, y)))
    np.testing.assert_allclose(out.detach().cpu().numpy(), expected.detach().numpy())
    out.sum().backward()
    expected.sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), y.grad.numpy())


def test_reprs_of_layers_that_have_conditional_parts():
    for lib in (nn, torch.nn):
        layer = lib.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        assert "norm): None" not in repr(lib.TransformerEncoder(layer, 2))
        assert "(norm): LayerNorm" in repr(lib.TransformerEncoder(layer, 2, norm=lib.LayerNorm(4)))
    for args in ((3, 4), (3, 4, False, "relu")):
        assert repr(nn.RNNCell(*args)) == repr(torch.nn.RNNCell(*args))


X = lucid.zeros(5, 2, 3)
MASK = lucid.ones(5, 5, dtype="uint8")


@pytest.mark.parametrize(("call", "error", "match"), [
    (lambda: nn.Conv2d(3, 4, 3)(lucid.zeros(1, 3, 5, 5, dtype="float64")), DtypeError,
     "convolution: expected one dtype, got input float64, weight float32 and bias float32; convert"),
    (lambda: nn.ConvTranspose1d(3, 4, 3, bias=False)(lucid.zeros(1, 3, 5, dtype="float16")), DtypeError,
     "conv_transpose: expected one dtype, got input float16, weight float32; convert"),
    (lambda: nn.MultiheadAttention(4, 2)(*[lucid.zeros(5, 2, 4)] * 3, attn_mask=MASK), DtypeError,
     r"attn_mask must be bool \(True: may not attend\) or floating .*, got uint8; convert it with .bool"),
    (lambda: nn.MultiheadAttention(4, 2)(*[lucid.zeros(5, 2, 4)] * 3, key_padding_mask=MASK[:2]), DtypeError,
     "key_padding_mask must be bool"),
    (lambda: nn.MultiheadAttention(4, 2)(*[lucid.zeros(n, 2, 4) for n in (5, 6, 7)]), ShapeError,
     "key and value must have one length"),
    (lambda: nn.MultiheadAttention(4, 2)(lucid.zeros(5, 3, 4), *[lucid.zeros(5, 2, 4)] * 2), ShapeError,
     "query the same batch"),
    (lambda: nn.Transformer(4, 2, 1, 1, 8)(lucid.zeros(5, 2, 4), lucid.zeros(5, 3, 4)), ShapeError,
     r"src and tgt need one batch size \(dimension 1\)"),
    (lambda: nn.GRU(3, 4)(X[:0]), ShapeError, r"GRU: expected at least one step, got shape \(0, 2, 3\)"),
    (lambda: nn.GRU(3, 4)(X, (lucid.zeros(1, 2, 4),)), ShapeError,
     "GRU: the initial state is one tensor h, got tuple"),
    (lambda: nn.LSTM(3, 4)(X, lucid.zeros(1, 2, 4)), ShapeError,
     r"LSTM: the initial state is a pair \(h, c\) of tensors, got Tensor"),
    (lambda: nn.LSTMCell(3, 4)(X[0], lucid.zeros(2, 4)), ShapeError,
     r"LSTMCell: the state is a pair \(h, c\) of tensors, got Tensor"),
    (lambda: nn.MarginRankingLoss()(lucid.zeros(3), lucid.zeros(3, 1), lucid.ones(3)), ShapeError,
     r"must have as many dimensions, got \(3,\), \(3, 1\) and \(3,\)"),
    (lambda: nn.CTCLoss(blank=5)(lucid.zeros(4, 1, 3), lucid.tensor([[1]]), (4,), (1,)), IndexRangeError,
     "blank must be one of the 3 classes, got 5"),
])
def test_messages(call, error, match):
    with pytest.raises(error, match=match):
        call()
