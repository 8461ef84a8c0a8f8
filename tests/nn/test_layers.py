"""Every layer against PyTorch's layer of the same name: repr, state, forward, gradients."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import nn

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)


def copy_state(theirs, ours):
    """Ours, with the weights of theirs."""
    ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    return ours


def to_ours(value, device):
    """(our tensor, their tensor), requiring grad when floating."""
    floating = value.dtype.kind == "f"
    return lucid.tensor(value, device=device, requires_grad=floating), torch.tensor(value,
                                                                                    requires_grad=floating)


def flat(out):
    """The tensors of a nested result."""
    return [t for o in out for t in flat(o)] if isinstance(out,
                                                           (tuple, list)) else [] if out is None else [out]


def compare(ours, theirs, inputs, device, rtol=1e-9, atol=1e-10, **kwargs):
    """Nothing; asserts equal outputs and gradients."""
    ours.to(device)
    pairs = [to_ours(x, device) for x in inputs]
    mine, expected = flat(ours(*[p[0] for p in pairs], **kwargs)), flat(theirs(*[p[1] for p in pairs],
                                                                               **kwargs))
    assert len(mine) == len(expected)
    loss, target = None, None
    for a, b in zip(mine, expected, strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().numpy(), rtol=rtol, atol=atol)
        if b.requires_grad:
            seed = np.random.default_rng(1).standard_normal(tuple(b.shape))
            term, expected_term = (a * lucid.tensor(seed, device=device)).sum(), (b
                                                                                  * torch.tensor(seed)).sum()
            loss, target = (term, expected_term) if loss is None else (loss + term, target + expected_term)
    if target is None:
        return
    target.backward()
    loss.backward()
    wanted = [(f"input {i}", a, b) for i, (a, b) in enumerate(pairs)]
    parameters = dict(theirs.named_parameters())
    wanted += [(name, p, parameters[name]) for name, p in ours.named_parameters()]
    for name, a, b in wanted:
        if b.grad is None:
            assert a.grad is None or not np.any(a.grad.cpu().numpy()), name
        else:
            np.testing.assert_allclose(a.grad.cpu().numpy(), b.grad.numpy(), rtol=rtol, atol=atol,
                                       err_msg=name)


def f(*shape, low=None, high=None):
    """A float64 array: normal, or uniform in a range."""
    return RNG.standard_normal(shape) if low is None else RNG.uniform(low, high, shape)


def i(high, *shape):
    """Random int64 in [0, high)."""
    return RNG.integers(0, high, shape)


X4, X5, X3 = f(2, 4, 6, 5), f(2, 4, 4, 5, 3), f(2, 4, 7)

# (name, arguments, keyword arguments, inputs)
LAYERS = [
    ("Identity", (), {}, [f(2, 3)]),
    ("Linear", (4, 3), {}, [f(2, 5, 4)]),
    ("Linear", (4, 3), {"bias": False}, [f(4)]),
    ("Bilinear", (3, 4, 2), {}, [f(5, 3), f(5, 4)]),
    ("Flatten", (), {}, [X4]),
    ("Flatten", (2, 3), {}, [X4]),
    ("Unflatten", (1, (2, 2)), {}, [X3]),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1}, [X3]),
    ("Conv1d", (4, 6, 3), {"padding": 2, "padding_mode": "circular"}, [X3]),
    ("Conv2d", (4, 6, 3), {"padding": 1}, [X4]),
    ("Conv2d", (4, 6, (3, 2)), {"stride": (2, 1), "dilation": (1, 2), "groups": 2, "bias": False}, [X4]),
    ("Conv2d", (4, 2, 3), {"padding": "same", "dilation": 2}, [X4]),
    ("Conv2d", (4, 2, 4), {"padding": "same", "padding_mode": "reflect"}, [X4]),
    ("Conv2d", (4, 2, 3), {"padding": (1, 2), "padding_mode": "replicate"}, [X4]),
    ("Conv3d", (4, 2, 2), {}, [X5]),
    ("ConvTranspose1d", (4, 2, 3), {"stride": 2, "output_padding": 1}, [X3]),
    ("ConvTranspose2d", (4, 2, 3), {"stride": 2, "padding": 1, "groups": 2}, [X4]),
    ("ConvTranspose3d", (4, 2, 2), {}, [X5]),
    ("BatchNorm1d", (4,), {}, [X3]),
    ("BatchNorm1d", (4,), {"affine": False}, [f(5, 4)]),
    ("BatchNorm2d", (4,), {"momentum": None}, [X4]),
    ("BatchNorm2d", (4,), {"track_running_stats": False}, [X4]),
    ("BatchNorm3d", (4,), {}, [X5]),
    ("LayerNorm", (5,), {}, [X4]),
    ("LayerNorm", ((6, 5),), {"bias": False}, [X4]),
    ("LayerNorm", (5,), {"elementwise_affine": False}, [X4]),
    ("RMSNorm", (5,), {}, [X4]),
    ("RMSNorm", ((6, 5),), {"eps": 0.1}, [X4]),
    ("GroupNorm", (2, 4), {}, [X4]),
    ("InstanceNorm1d", (4,), {}, [X3]),
    ("InstanceNorm2d", (4,), {"affine": True, "track_running_stats": True}, [X4]),
    ("InstanceNorm2d", (2,), {}, [f(2, 4, 5)]),
    ("InstanceNorm3d", (4,), {}, [X5]),
    ("LocalResponseNorm", (3,), {"alpha": 0.5}, [X4]),
    ("Embedding", (7, 3), {"padding_idx": 2}, [i(7, 2, 4)]),
    ("Embedding", (7, 3), {"scale_grad_by_freq": True}, [i(3, 2, 4)]),
    ("Embedding", (7, 3), {"max_norm": 0.5}, [i(7, 4)]),
    ("EmbeddingBag", (7, 3), {"mode": "mean"}, [i(7, 2, 4)]),
    ("EmbeddingBag", (7, 3), {"mode": "max"}, [i(7, 2, 4)]),
    ("EmbeddingBag", (7, 3), {"mode": "sum", "padding_idx": 1}, [i(7, 9), np.array([0, 2, 2, 6])]),
    ("ReLU", (), {}, [f(3, 4)]),
    ("ReLU6", (), {}, [8 * f(3, 4)]),
    ("LeakyReLU", (0.2,), {}, [f(3, 4)]),
    ("ELU", (0.7,), {}, [f(3, 4)]),
    ("CELU", (0.7,), {}, [f(3, 4)]),
    ("SELU", (), {}, [f(3, 4)]),
    ("GELU", (), {}, [f(3, 4)]),
    ("GELU", (), {"approximate": "tanh"}, [f(3, 4)]),
    ("SiLU", (), {}, [f(3, 4)]),
    ("Mish", (), {}, [f(3, 4)]),
    ("Sigmoid", (), {}, [f(3, 4)]),
    ("Tanh", (), {}, [f(3, 4)]),
    ("LogSigmoid", (), {}, [f(3, 4)]),
    ("Softplus", (2.0, 1.0), {}, [f(3, 4)]),
    ("Softsign", (), {}, [f(3, 4)]),
    ("Tanhshrink", (), {}, [f(3, 4)]),
    ("Softshrink", (), {}, [f(3, 4)]),
    ("Hardshrink", (0.3,), {}, [f(3, 4)]),
    ("Hardtanh", (-0.5, 0.6), {}, [f(3, 4)]),
    ("Hardsigmoid", (), {}, [4 * f(3, 4)]),
    ("Hardswish", (), {}, [4 * f(3, 4)]),
    ("Threshold", (0.1, 20), {}, [f(3, 4)]),
    ("GLU", (1,), {}, [f(3, 4)]),
    ("Softmax", (1,), {}, [f(3, 4)]),
    ("LogSoftmax", (0,), {}, [f(3, 4)]),
    ("Softmin", (1,), {}, [f(3, 4)]),
    ("Softmax2d", (), {}, [X4]),
    ("PReLU", (4,), {}, [X4]),
    ("MaxPool1d", (2,), {}, [X3]),
    ("MaxPool2d", (3, 2, 1), {"ceil_mode": True}, [X4]),
    ("MaxPool3d", (2,), {}, [X5]),
    ("AvgPool1d", (2,), {}, [X3]),
    ("AvgPool2d", (3, 2, 1), {"count_include_pad": False}, [X4]),
    ("AvgPool3d", (2,), {"divisor_override": 3}, [X5]),
    ("LPPool2d", (2, 2), {}, [X4]),
    ("AdaptiveAvgPool1d", (3,), {}, [X3]),
    ("AdaptiveAvgPool2d", ((3, None),), {}, [X4]),
    ("AdaptiveMaxPool2d", (2,), {}, [X4]),
    ("ZeroPad2d", (1,), {}, [X4]),
    ("ConstantPad1d", ((1, 2), 3.5), {}, [X3]),
    ("ReflectionPad2d", ((1, 2, 0, 1),), {}, [X4]),
    ("ReplicationPad3d", (1,), {}, [X5]),
    ("CircularPad1d", (2,), {}, [X3]),
    ("Upsample", (), {"scale_factor": 2}, [X4]),
    ("Upsample", (), {"size": (7, 9), "mode": "bilinear", "align_corners": True}, [X4]),
    ("UpsamplingNearest2d", (), {"scale_factor": 2}, [X4]),
    ("PixelShuffle", (2,), {}, [X4]),
    ("PixelUnshuffle", (2,), {}, [f(1, 2, 4, 6)]),
    ("ChannelShuffle", (2,), {}, [X4]),
    ("Unfold", (3,), {"padding": 1, "stride": 2}, [X4]),
    ("Fold", ((4, 5), 2), {}, [f(2, 8, 12)]),
    ("CosineSimilarity", (), {}, [f(3, 4), f(3, 4)]),
    ("PairwiseDistance", (3.0,), {}, [f(3, 4), f(3, 4)]),
    ("Dropout", (0.0,), {}, [f(3, 4)]),
    ("CrossEntropyLoss", (), {}, [f(5, 3), i(3, 5)]),
    ("CrossEntropyLoss", (), {"label_smoothing": 0.2, "reduction": "sum"}, [f(2, 3, 4), i(3, 2, 4)]),
    ("NLLLoss", (), {"ignore_index": 1}, [f(5, 3), i(3, 5)]),
    ("MSELoss", (), {}, [f(3, 4), f(3, 4)]),
    ("L1Loss", (), {"reduction": "none"}, [f(3, 4), f(3, 4)]),
    ("SmoothL1Loss", (), {"beta": 0.4}, [f(3, 4), f(3, 4)]),
    ("HuberLoss", (), {"delta": 0.4}, [f(3, 4), f(3, 4)]),
    ("BCELoss", (), {}, [f(3, 4, low=0.1, high=0.9), f(3, 4, low=0.0, high=1.0)]),
    ("BCEWithLogitsLoss", (), {}, [f(3, 4), f(3, 4, low=0.0, high=1.0)]),
    ("KLDivLoss", (), {"reduction": "batchmean"}, [f(3, 4), f(3, 4, low=0.1, high=0.9)]),
    ("KLDivLoss", (), {"reduction": "sum", "log_target": True}, [f(3, 4), f(3, 4)]),
    ("GaussianNLLLoss", (), {"full": True}, [f(3, 4), f(3, 4), f(3, 4, low=0.2, high=2.0)]),
    ("PoissonNLLLoss", (), {"full": True}, [f(3, 4), f(3, 4, low=0.1, high=5.0)]),
    ("HingeEmbeddingLoss", (), {}, [f(3, 4), np.sign(f(3, 4)).astype("int64")]),
    ("MarginRankingLoss", (0.3,), {}, [f(5), f(5), np.sign(f(5)).astype("int64")]),
    ("SoftMarginLoss", (), {}, [f(3, 4), np.sign(f(3, 4)).astype("int64")]),
    ("MultiMarginLoss", (2, 0.7), {}, [f(5, 3), i(3, 5)]),
    ("MultiLabelMarginLoss", (), {}, [f(2, 4), np.array([[3, 0, -1, 1], [1, -1, 0, 2]])]),
    ("MultiLabelSoftMarginLoss", (), {}, [f(3, 4), i(2, 3, 4)]),
    ("CosineEmbeddingLoss", (0.2,), {}, [f(5, 3), f(5, 3), np.sign(f(5)).astype("int64")]),
    ("TripletMarginLoss", (), {"swap": True}, [f(5, 3), f(5, 3), f(5, 3)]),
    ("TripletMarginWithDistanceLoss", (), {}, [f(5, 3), f(5, 3), f(5, 3)]),
]


def make(name, args, kwargs):
    """(ours, theirs) in float64 with the same weights."""
    theirs = getattr(torch.nn, name)(*args, **kwargs).double()
    return copy_state(theirs, getattr(nn, name)(*args, **kwargs).double()), theirs


@pytest.mark.parametrize(("name", "args", "kwargs", "inputs"), LAYERS,
                         ids=[f"{k}-{row[0]}" for k, row in enumerate(LAYERS)])
def test_layer(name, args, kwargs, inputs, device):
    ours, theirs = make(name, args, kwargs)
    # PyTorch has these constants in float32.
    rtol = 1e-7 if name in ("CELU", "Hardsigmoid") else 1e-9
    compare(ours, theirs, inputs, device, rtol=rtol)
    # Buffers (running statistics) after a training step, then evaluation.
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[key].cpu().numpy(), value.detach().numpy(), rtol=1e-9,
                                   err_msg=key)
    ours.zero_grad()
    theirs.zero_grad()
    compare(ours.eval(), theirs.eval(), inputs, device, rtol=rtol)


@pytest.mark.parametrize(("name", "args", "kwargs"), [row[:3] for row in LAYERS],
                         ids=[f"{k}-{row[0]}" for k, row in enumerate(LAYERS)])
def test_repr_and_state_keys(name, args, kwargs):
    ours, theirs = make(name, args, kwargs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("name", "args", "kwargs", "inputs"), LAYERS,
                         ids=[f"{k}-{row[0]}" for k, row in enumerate(LAYERS)])
def test_low_precision_keeps_its_dtype(name, args, kwargs, inputs, dtype, device):
    layer = getattr(nn, name)(*args, **kwargs).to(device, dtype)
    xs = [lucid.tensor(x, dtype=dtype if x.dtype.kind == "f" else None, device=device,
                       requires_grad=x.dtype.kind == "f") for x in inputs]
    for out in flat(layer(*xs)):
        assert out.dtype.name == dtype
        if out.requires_grad:
            out.float().sum().backward()
    for t in (*xs, *layer.parameters()):
        assert t.grad is None or t.grad.dtype == t.dtype


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("make", [lambda: nn.LSTM(4, 4), lambda: nn.GRU(4, 4), lambda: nn.RNN(4, 4),
                                  lambda: nn.TransformerEncoderLayer(4, 2, 8),
                                  lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),],
                         ids=["lstm", "gru", "rnn", "encoder", "encoder without dropout"])
def test_low_precision_inside_a_network(make, dtype, device):
    layer, before = make().to(device, dtype), nn.Linear(4, 4).to(device, dtype)
    out = flat(layer(before(lucid.randn(3, 2, 4, device=device).to(dtype=dtype))))[0]
    assert out.dtype.name == dtype
    out.float().sum().backward()
    assert before.weight.grad.dtype.name == dtype


def test_losses_with_weights(device):
    x, t = f(5, 3), i(3, 5)
    weight = np.array([0.5, 2.0, 1.0])
    for name, inputs in (("CrossEntropyLoss", [x, t]), ("NLLLoss", [x, t]), ("MultiMarginLoss", [x, t]),
                         ("MultiLabelSoftMarginLoss", [x, i(2, 5, 3)]),
                         ("BCEWithLogitsLoss", [x, f(5, 3, low=0.0, high=1.0)])):
        compare(getattr(nn, name)(weight=lucid.tensor(weight)),
                getattr(torch.nn, name)(weight=torch.tensor(weight)), inputs, device)
    compare(nn.BCEWithLogitsLoss(pos_weight=lucid.tensor(weight)),
            torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weight)), [x, f(5, 3, low=0.0, high=1.0)],
            device)


def test_cross_entropy_of_probabilities(device):
    p = f(2, 3, 4, low=0.1, high=1.0)
    for kwargs in ({}, {"reduction": "sum", "label_smoothing": 0.1}, {"reduction": "none"}):
        compare(nn.CrossEntropyLoss(**kwargs), torch.nn.CrossEntropyLoss(**kwargs),
                [f(2, 3, 4), p / p.sum(1, keepdims=True)], device)


def test_max_pool_indices_and_unpool(device):
    ours, theirs = nn.MaxPool2d(2, return_indices=True), torch.nn.MaxPool2d(2, return_indices=True)
    x, y = lucid.tensor(X4, device=device), torch.tensor(X4)
    (a, ia), (b, ib) = ours(x), theirs(y)
    np.testing.assert_array_equal(ia.cpu().numpy(), ib.numpy())
    np.testing.assert_array_equal(nn.MaxUnpool2d(2)(a, ia, X4.shape).cpu().numpy(),
                                  torch.nn.MaxUnpool2d(2)(b, ib, X4.shape).numpy())


def test_conv_transpose_output_size(device):
    ours, theirs = make("ConvTranspose2d", (4, 2, 3), {"stride": 2})
    compare(ours, theirs, [X4], device, output_size=(14, 12))
    with pytest.raises(lucid.errors.ShapeError,
                       match=r"output_size must lie between \[13, 11\] and \[14, 12\], got \[20, 12\]"):
        ours(lucid.tensor(X4, device=device), output_size=(20, 12))


@pytest.mark.parametrize("name", ["LazyLinear", "LazyConv1d", "LazyConv2d", "LazyConvTranspose2d",
                                  "LazyBatchNorm2d"])
def test_lazy_layers(name, device):
    args = {"LazyLinear": (3,), "LazyBatchNorm2d": (), "LazyInstanceNorm2d": ()}.get(name, (6, 3))
    layer = getattr(nn, name)(*args, device=device)
    x = lucid.randn(*({"LazyConv1d": (2, 4, 7)}.get(name, (2, 4, 6, 5))), device=device)
    plain = getattr(nn, name[4:])(*({"LazyLinear": (5, 3), "LazyBatchNorm2d": (4,),
                                     "LazyInstanceNorm2d": (4,)}.get(name, (4, 6, 3))))
    assert layer(x).shape == plain(x.cpu()).shape
    assert type(layer) is getattr(nn, name[4:])
    assert all(p.numel() for p in layer.parameters())


@pytest.mark.parametrize("name", ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout",
                                  "FeatureAlphaDropout"])
def test_dropout(name, device):
    shape = {"Dropout1d": (200, 50, 3), "Dropout3d": (100, 50, 2, 2, 2)}.get(name, (200, 50, 2, 2))
    x = lucid.randn(*shape, device=device, requires_grad=True)
    layer = getattr(nn, name)(0.3)
    out = layer(x)
    kept = np.isclose(out.detach().cpu().numpy(), x.detach().cpu().numpy() / 0.7,
                      rtol=1e-5) if "Alpha" not in name else None
    if kept is not None:
        assert abs(kept.mean() - 0.7) < 0.02
        if name != "Dropout":
            whole = kept.reshape(*shape[:2], -1)
            assert np.all(whole.all(-1) | ~whole.any(-1))
        out.sum().backward()
        np.testing.assert_allclose(x.grad.cpu().numpy(), kept / 0.7, rtol=1e-5)
    else:
        assert abs(out.mean().item()) < 0.05 and abs(out.std().item() - 1.0) < 0.05
    assert layer.eval()(x) is x
    with pytest.raises(lucid.errors.ShapeError, match=r"p must be a probability in \[0, 1\], got 1.5"):
        getattr(nn, name)(1.5)


def test_dropout_repeats_with_the_seed(device):
    x = lucid.ones(100, device=device)
    lucid.manual_seed(3)
    a = nn.functional.dropout(x, 0.5)
    lucid.manual_seed(3)
    assert (a == nn.functional.dropout(x, 0.5)).all()


def test_bad_input_messages(device):
    x = lucid.zeros(2, 3, device=device)
    for call, match in ((lambda: nn.BatchNorm2d(3, device=device)(x),
                         r"BatchNorm2d: expected an input of 4 dimensions, got shape \(2, 3\)"),
                        (lambda: nn.BatchNorm1d(4, device=device)(x), r"BatchNorm1d: expected 4 channels"),
                        (lambda: nn.BatchNorm1d(3, device=device)(x[:1]),
                         "training needs more than one value per channel"),
                        (lambda: nn.LayerNorm(4, device=device)(x),
                         r"layer_norm: the last dimensions of the input must be normalized_shape=\[4\]"),
                        (lambda: nn.GroupNorm(2, 3), "num_channels=3 must be a multiple of num_groups=2"),
                        (lambda: nn.Embedding(4, 2, device=device)(lucid.tensor([5], device=device)),
                         r"indices must lie in \[0, 3\] for 4 rows, got 5"),
                        (lambda: nn.Embedding(4, 2, device=device)(x),
                         r"indices must be integers, got float32 .*\.long\(\)"),
                        (lambda: nn.Conv2d(3, 4, 3, groups=2),
                         "in_channels=3 and out_channels=4 must be multiples of groups=2"),
                        (lambda: nn.Conv2d(2, 4, 3, stride=2, padding="same"),
                         "padding='same' needs stride 1"),
                        (lambda: nn.ELU(1, 2, 3), "too many positional arguments"),):
        with pytest.raises((lucid.errors.LucidError, TypeError), match=match):
            call()
