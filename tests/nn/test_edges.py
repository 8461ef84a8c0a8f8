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
