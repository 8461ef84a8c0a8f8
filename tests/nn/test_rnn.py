"""RNN, LSTM and GRU, their cells, and packed sequences, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.nn.utils import rnn

torch = pytest.importorskip("torch")
torch_rnn = torch.nn.utils.rnn

KINDS = {"RNN": {}, "ReLU": {"nonlinearity": "relu"}, "LSTM": {}, "GRU": {}}
OPTIONS = [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}]


def pair(kind, size, hidden, **options):
    """(ours, theirs) in float64 with the same weights."""
    name = "RNN" if kind == "ReLU" else kind
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(size, hidden, **KINDS.get(kind, {}), **options).double()
    ours = getattr(nn, name)(size, hidden, **KINDS.get(kind, {}), **options).double()
    ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    return ours, theirs


def states(kind, layers, n, hidden, proj=None):
    """Initial states as arrays."""
    rng = np.random.default_rng(2)
    h = rng.standard_normal((layers, n, proj or hidden))
    return (h, rng.standard_normal((layers, n, hidden))) if kind == "LSTM" else h


def each(f, value):
    """`f` of an array or of each of a tuple."""
    return tuple(f(v) for v in value) if isinstance(value, tuple) else f(value)


def flat(out):
    """The tensors of a result."""
    return [t for o in out for t in flat(o)] if type(out) in (tuple, list) else [out]


def check(mine, theirs, leaves, module, other):
    """Nothing; asserts equal outputs, and equal gradients of inputs and weights."""
    loss = target = 0
    for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)
        seed = np.random.default_rng(k).standard_normal(tuple(b.shape))
        loss = loss + (a * lucid.tensor(seed, device=a.device)).sum()
        target = target + (b * torch.tensor(seed)).sum()
    loss.backward()
    target.backward()
    for a, b in leaves:
        np.testing.assert_allclose(a.grad.cpu().numpy(), b.grad.numpy(), rtol=1e-9, atol=1e-12)
    expected = dict(other.named_parameters())
    for name, p in module.named_parameters():
        np.testing.assert_allclose(p.grad.cpu().numpy(), expected[name].grad.numpy(), rtol=1e-8, atol=1e-10,
                                   err_msg=name)


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "deep", "batch_first"])
@pytest.mark.parametrize("kind", KINDS)
def test_layer(kind, options, device):
    ours, theirs = pair(kind, 3, 4, **options)
    ours.to(device)
    x = np.random.default_rng(1).standard_normal((5, 2, 3) if not options.get("batch_first") else (2, 5, 3))
    h = states(kind, options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1), 2, 4)
    a, b = lucid.tensor(x, device=device, requires_grad=True), torch.tensor(x, requires_grad=True)
    ha = each(lambda v: lucid.tensor(v, device=device, requires_grad=True), h)
    hb = each(lambda v: torch.tensor(v, requires_grad=True), h)
    leaves = [(a, b), *zip(flat(ha), flat(hb), strict=True)]
    check(flat(ours(a, ha)), flat(theirs(b, hb)), leaves, ours, theirs)
    assert repr(ours) == repr(theirs)
    # Without a batch, and without states.
    single = x[:, 0] if not options.get("batch_first") else x[0]
    for p, q in zip(flat(ours(lucid.tensor(single, device=device))), flat(theirs(torch.tensor(single))),
                    strict=True):
        np.testing.assert_allclose(p.detach().cpu().numpy(), q.detach().numpy(), rtol=1e-9)


def test_projection(device):
    ours, theirs = pair("LSTM", 3, 5, proj_size=2, num_layers=2, bidirectional=True)
    ours.to(device)
    x, h = np.random.default_rng(1).standard_normal((4, 2, 3)), states("LSTM", 4, 2, 5, proj=2)
    a, b = lucid.tensor(x, device=device, requires_grad=True), torch.tensor(x, requires_grad=True)
    out = ours(a, each(lambda v: lucid.tensor(v, device=device), h))
    check(flat(out), flat(theirs(b, each(torch.tensor, h))), [(a, b)], ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_packed(kind, device):
    ours, theirs = pair(kind, 3, 4, num_layers=2, bidirectional=True)
    ours.to(device)
    x, h = np.random.default_rng(1).standard_normal((5, 3, 3)), states(kind, 4, 3, 4)
    a, b = lucid.tensor(x, device=device, requires_grad=True), torch.tensor(x, requires_grad=True)
    lengths = [2, 5, 3]
    pa = rnn.pack_padded_sequence(a, lengths, enforce_sorted=False)
    pb = torch_rnn.pack_padded_sequence(b, torch.tensor(lengths), enforce_sorted=False)
    out, hn = ours(pa, each(lambda v: lucid.tensor(v, device=device), h))
    expected, expected_hn = theirs(pb, each(torch.tensor, h))
    padded, sizes = rnn.pad_packed_sequence(out)
    expected_padded, _ = torch_rnn.pad_packed_sequence(expected)
    assert sizes.tolist() == lengths
    check([padded, *flat(hn)], [expected_padded, *flat(expected_hn)], [(a, b)], ours, theirs)


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cell(kind, device):
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(3, 4).double()
    ours = getattr(nn, kind)(3, 4).double()
    ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    ours.to(device)
    x = np.random.default_rng(1).standard_normal((2, 3))
    h = each(lambda v: v[0], states("LSTM" if kind == "LSTMCell" else "GRU", 1, 2, 4))
    a, b = lucid.tensor(x, device=device, requires_grad=True), torch.tensor(x, requires_grad=True)
    out = ours(a, each(lambda v: lucid.tensor(v, device=device), h))
    check(flat(out), flat(theirs(b, each(torch.tensor, h))), [(a, b)], ours, theirs)
    for p, q in zip(flat(ours(a[0])), flat(theirs(b[0])), strict=True):
        np.testing.assert_allclose(p.detach().cpu().numpy(), q.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_second_order(kind, device):
    ours, _ = pair(kind, 2, 3)
    ours.to(device)
    x = lucid.tensor(np.random.default_rng(1).standard_normal((3, 2, 2)), device=device, requires_grad=True)
    assert lucid.autograd.gradgradcheck(lambda v: ours(v)[0], [x])


def test_packing_and_padding(device):
    lengths = [4, 2, 3]
    items = [np.random.default_rng(k).standard_normal((n, 2)) for k, n in enumerate(lengths)]
    ours, theirs = [lucid.tensor(v, device=device) for v in items], [torch.tensor(v) for v in items]
    for batch_first in (False, True):
        a = rnn.pad_sequence(ours, batch_first, padding_value=-1.0)
        b = torch_rnn.pad_sequence(theirs, batch_first, padding_value=-1.0)
        np.testing.assert_array_equal(a.cpu().numpy(), b.numpy())
        for u, v in zip(rnn.unpad_sequence(a, lengths, batch_first), items, strict=True):
            np.testing.assert_array_equal(u.cpu().numpy(), v)
    left = rnn.pad_sequence(ours, padding_side="left")
    np.testing.assert_array_equal(left.cpu().numpy(),
                                  torch_rnn.pad_sequence(theirs, padding_side="left").numpy())
    a, b = rnn.pack_sequence(ours, enforce_sorted=False), torch_rnn.pack_sequence(theirs,
                                                                                  enforce_sorted=False)
    for u, v in zip(a, b, strict=True):
        np.testing.assert_array_equal(u.cpu().numpy(), v.numpy())
    padded, sizes = rnn.pad_packed_sequence(a, batch_first=True, padding_value=2.0, total_length=6)
    expected, _ = torch_rnn.pad_packed_sequence(b, batch_first=True, padding_value=2.0, total_length=6)
    np.testing.assert_array_equal(padded.cpu().numpy(), expected.numpy())
    assert sizes.tolist() == lengths
    for u, v in zip(rnn.unpack_sequence(a), items, strict=True):
        np.testing.assert_array_equal(u.cpu().numpy(), v)


def test_messages():
    x = lucid.zeros(4, 2, 3)
    for call, match in ((lambda: nn.LSTM(4, 5)(x), r"LSTM: expected 4 features, got shape \(4, 2, 3\)"),
                        (lambda: nn.GRU(3, 5)(x, lucid.zeros(1, 3, 5)),
                         r"expected an initial state of shape \(1, 2, 5\), got \(1, 3, 5\)"),
                        (lambda: nn.RNN(3, 5, nonlinearity="sin"),
                         "nonlinearity must be 'tanh' or 'relu', got 'sin'"),
                        (lambda: nn.GRUCell(3, 5)(lucid.zeros(2, 4)),
                         r"GRUCell: expected an input \[N, 3\] or \[3\]"),
                        (lambda: rnn.pack_padded_sequence(x, [2, 4]),
                         "lengths must descend with enforce_sorted=True"),
                        (lambda: rnn.pack_padded_sequence(x, [5, 4]), "expected 2 lengths between 1 and 4"),):
        with pytest.raises(lucid.errors.ShapeError, match=match):
            call()
    with pytest.warns(UserWarning, match="dropout=0.5 has no effect with one layer"):
        nn.LSTM(2, 2, dropout=0.5)


def test_packed_sequences_are_converted(device):
    packed = rnn.pack_sequence([lucid.ones(1, 2), lucid.ones(3, 2)], enforce_sorted=False).to(device)
    for method, dtype in (("double", "float64"), ("half", "float16"), ("float", "float32")):
        made = getattr(packed, method)()
        assert made.data.dtype.name == dtype and made.batch_sizes.tolist() == [2, 1, 1]
        assert made.data.device == packed.data.device and made.unsorted_indices.tolist() == [1, 0]
    assert packed.cpu().data.device.type == "cpu" and not packed.cpu().is_cuda


def test_lengths_are_the_hosts_under_a_default_device(device):
    before = lucid.get_default_device()
    lucid.set_default_device(device)
    try:
        x = lucid.randn(2, 4, 3)
        packed = rnn.pack_padded_sequence(x, lucid.tensor([2, 4]), batch_first=True, enforce_sorted=False)
        out, _ = nn.LSTM(3, 5)(packed)
        padded, lengths = rnn.pad_packed_sequence(out, batch_first=True)
    finally:
        lucid.set_default_device(before)
    assert packed.batch_sizes.device.type == lengths.device.type == "cpu" and lengths.tolist() == [2, 4]
    assert padded.device == x.device and not padded[0, 2:].cpu().numpy(force=True).any()
