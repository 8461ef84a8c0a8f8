"""Edges of losses, softmax and norms: large logits, infinities, 16-bit floats, empty inputs, bad targets."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.errors import DtypeError, GradError, IndexRangeError, ShapeError
from lucid.nn import functional as F
from lucid.storage import backend_of

INF = float("inf")


def T(value, device, dtype="float64", **kwargs):
    """A tensor of a device."""
    return lucid.tensor(value, dtype=dtype, device=device, **kwargs)


def host(t):
    """The values as a NumPy array."""
    return t.detach().cpu().numpy()


# ---- softmax ----

def test_softmax_of_infinities(device):
    x = T([[-INF, 0.0, 1.0], [1000.0, -1000.0, 999.0], [-INF, -INF, -INF]], device)
    with np.errstate(all="ignore"):
        p, logp = host(F.softmax(x, 1)), host(F.log_softmax(x, 1))
    e = np.exp([0.0, 1.0])
    np.testing.assert_allclose(p[0], [0.0, *(e / e.sum())])
    np.testing.assert_allclose(p[1], [1 / (1 + np.exp(-1)), 0.0, 1 / (1 + np.exp(1))])
    assert np.isnan(p[2]).all() and logp[0, 0] == -INF and logp[1, 1] < -1999


def test_softmax_shapes_and_dtypes(device):
    assert F.softmax(T(3.0, device), 0).item() == 1.0
    assert F.softmax(lucid.zeros(0, 3, device=device), 1).shape == (0, 3)
    assert F.softmax(lucid.zeros(2, 0, device=device), 1).shape == (2, 0)
    assert F.softmax(T([1, 2], device, "int64"), 0, dtype=lucid.float64).dtype == lucid.float64
    with pytest.raises(DtypeError,
                       match=r"softmax: expected a floating tensor, got int64 .*dtype=lucid.float32"):
        F.softmax(T([1, 2], device, "int64"), 0)
    with pytest.raises(IndexRangeError, match=r"softmax: dim must lie in \[-2, 1\]"):
        F.softmax(lucid.zeros(2, 3, device=device), 2)


@pytest.mark.parametrize("rows", [3, 3000])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_blocks_agree_with_the_formula(name, rows, device):
    rng = np.random.default_rng(0)
    x, g = 10 * rng.standard_normal((rows, 33)), rng.standard_normal((rows, 33))
    t = T(x, device, "float32", requires_grad=True)
    out = getattr(F, name)(t, -1)
    out.backward(T(g, device, "float32"))
    e = np.exp(x - x.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    expected = p if name == "softmax" else np.log(p)
    grad = p * (g - (g * p).sum(1, keepdims=True)) if name == "softmax" else g - p * g.sum(1, keepdims=True)
    np.testing.assert_allclose(host(out), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(host(t.grad), grad, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_computes_in_float32(dtype, device):
    x = np.random.default_rng(0).standard_normal((4, 300)) * 4
    t = T(x, device, dtype, requires_grad=True)
    wide = T(x, device, dtype).double()
    targets = T([1, 5, 7, 299], device, "int64")
    eps = 2.0**-11 if dtype == "float16" else 2.0**-8
    for f in (lambda v: F.softmax(v, 1), lambda v: F.log_softmax(v, 1), lambda v: F.layer_norm(v, (300,)),
              lambda v: F.rms_norm(v, (300,), eps=1e-5), lambda v: F.cross_entropy(v, targets),
              lambda v: F.group_norm(v.reshape(2, 4, 150), 2)):
        out = f(t)
        assert out.dtype == t.dtype
        np.testing.assert_allclose(host(out.double()), host(f(wide)), rtol=2 * eps, atol=2 * eps * 1e-2)
        t.grad = None
        out.sum().backward()
        assert t.grad.dtype == t.dtype


# ---- class targets ----

def test_cross_entropy_of_large_logits(device):
    x = T([[1000.0, -1000.0], [-1000.0, 1000.0]], device, requires_grad=True)
    loss = F.cross_entropy(x, T([1, 1], device, "int64"), reduction="none")
    np.testing.assert_array_equal(host(loss), [2000.0, 0.0])
    loss.sum().backward()
    np.testing.assert_array_equal(host(x.grad), [[1.0, -1.0], [0.0, 0.0]])


def test_ignored_targets(device):
    x = T(np.arange(12.0).reshape(4, 3), device, requires_grad=True)
    t = T([0, -100, 2, -100], device, "int64")
    loss = F.cross_entropy(x, t, label_smoothing=0.1)
    kept = F.cross_entropy(x.detach()[::2], t[::2], label_smoothing=0.1)
    np.testing.assert_allclose(loss.item(), kept.item())
    loss.backward()
    assert not host(x.grad)[1::2].any() and host(x.grad)[::2].all()
    with np.errstate(all="ignore"):
        assert np.isnan(F.cross_entropy(x, T([-100] * 4, device, "int64")).item())
    assert F.cross_entropy(x, T([-100] * 4, device, "int64"), reduction="sum").item() == 0.0
    # An index inside the range may be ignored too, and what stands there does not matter.
    y = T([[-INF, 0.0], [1.0, 0.0]], device)
    assert F.nll_loss(y, T([0, 1], device, "int64"), ignore_index=0).item() == 0.0


def test_weights_match_a_loop(device):
    rng = np.random.default_rng(0)
    x, t, w = rng.standard_normal((2, 5, 3, 2)), rng.integers(0, 5, (2, 3, 2)), rng.uniform(0.2, 2.0, 5)
    logp = x - np.log(np.exp(x).sum(1, keepdims=True))
    losses, weights = [], []
    for n in range(2):
        for i in range(3):
            for j in range(2):
                c = t[n, i, j]
                losses.append(-0.8 * w[c] * logp[n, c, i, j] - 0.2 / 5 * (w * logp[n, :, i, j]).sum())
                weights.append(w[c])
    args = T(x, device), T(t, device, "int64"), T(w, device)
    np.testing.assert_allclose(F.cross_entropy(*args, label_smoothing=0.2).item(), sum(losses) / sum(weights))
    np.testing.assert_allclose(host(F.cross_entropy(*args, label_smoothing=0.2, reduction="none")).ravel(),
                               losses)


def test_bad_targets_are_named(device):
    x, labels = lucid.zeros(3, 4, device=device), lambda *v: T(v, device, "int64")
    # A GPU names one target; counting them would wait for the device.
    one, two = ("; 1 of 3", "; 2 of 3") if device == "cpu" else ("", "")
    with pytest.raises(IndexRangeError,
                       match=r"cross_entropy: targets must lie in \[0, 3\] for 4 classes .ignore_index is "
                       r"-100., got 4" + one):
        F.cross_entropy(x, labels(0, 4, 1))
    with pytest.raises(IndexRangeError, match=r"nll_loss: targets must lie in \[0, 3\] .* got -1" + two):
        F.nll_loss(x, labels(-1, -1, 0))
    with pytest.raises(DtypeError,
                       match=r"class-index targets must be integers, got float32 of shape \(3,\); convert "
                       r"them with .long\(\)"):
        F.cross_entropy(x, lucid.zeros(3, device=device))
    with pytest.raises(ShapeError,
                       match=r"an input of shape \(3, 4\) has 4 classes and takes targets of shape \(3,\), "
                       r"got \(2,\)"):
        F.cross_entropy(x, labels(0, 1))
    with pytest.raises(ShapeError,
                       match=r"weight must have one value for each of the 4 classes, got shape \(3,\)"):
        F.cross_entropy(x, labels(0, 1, 2), weight=lucid.ones(3, device=device))
    with pytest.raises(ShapeError, match="reduction must be 'none', 'mean' or 'sum', got 'avg'"):
        F.cross_entropy(x, labels(0, 1, 2), reduction="avg")
    with pytest.raises(GradError, match="class weights get no gradient; pass weight.detach"):
        F.cross_entropy(x, labels(0, 1, 2), weight=lucid.ones(4, device=device, requires_grad=True))
    with pytest.raises(IndexRangeError,
                       match=r"multi_margin_loss: targets must lie in \[0, 3\] for 4 classes, got 7"):
        F.multi_margin_loss(x, labels(0, 7, 1))
    with pytest.raises(IndexRangeError, match=r"probabilities in \[0, 1\]; for logits use"):
        F.binary_cross_entropy(x + 2, x)
    with pytest.raises(IndexRangeError, match="one_hot: indices must lie in"):
        F.one_hot(labels(0, 5), 3)


def test_legacy_arguments(device):
    x, y = T([1.0, 2.0], device), T([0.0, 0.0], device)
    assert F.mse_loss(x, y, size_average=False).item() == 5.0
    assert F.mse_loss(x, y, True).item() == 2.5
    assert host(F.mse_loss(x, y, reduce=False)).tolist() == [1.0, 4.0]


def test_empty_batches(device):
    x, t = lucid.zeros(0, 3, device=device, requires_grad=True), lucid.zeros(0, dtype="int64", device=device)
    assert F.cross_entropy(x, t, reduction="sum").item() == 0.0
    assert F.cross_entropy(x, t, reduction="none").shape == (0,)
    F.cross_entropy(x, t, reduction="sum").backward()
    assert x.grad.shape == (0, 3)
    assert F.layer_norm(x, (3,)).shape == (0, 3)


def test_binary_cross_entropy_at_the_ends(device):
    x = T([0.0, 1.0, 0.0, 1.0], device, requires_grad=True)
    t = T([0.0, 1.0, 1.0, 0.0], device)
    with np.errstate(all="ignore"):
        loss = F.binary_cross_entropy(x, t, reduction="none")
    np.testing.assert_array_equal(host(loss), [0.0, 0.0, 100.0, 100.0])
    z = T([-1000.0, 1000.0], device, requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(z, T([1.0, 0.0], device), reduction="none")
    np.testing.assert_array_equal(host(loss), [1000.0, 1000.0])
    loss.sum().backward()
    np.testing.assert_array_equal(host(z.grad), [-1.0, 1.0])


def test_ctc_counts_alignments(device):
    # Uniform probabilities over 3 classes, 4 steps, target "1 2": the number of alignments tells the loss.
    logp = T(np.full((4, 1, 3), np.log(1 / 3)), device, requires_grad=True)
    loss = F.ctc_loss(logp, T([[1, 2]], device, "int64"), [4], [2], reduction="sum")
    alignments = 0
    for path in np.ndindex(3, 3, 3, 3):
        out = [c for c, before in zip(path, (-1, *path[:-1]), strict=True) if c != before and c != 0]
        alignments += out == [1, 2]
    np.testing.assert_allclose(loss.item(), -np.log(alignments / 3**4))
    loss.backward()
    np.testing.assert_allclose(host(logp.grad).sum(2), 0.0, atol=1e-12)
    # Too few steps for two equal labels and the blank between them.
    short = T(np.full((2, 1, 3), np.log(1 / 3)), device, requires_grad=True)
    assert F.ctc_loss(short, T([[1, 1]], device, "int64"), [2], [2], reduction="sum").item() == INF
    zeroed = F.ctc_loss(short, T([[1, 1]], device, "int64"), [2], [2], reduction="sum", zero_infinity=True)
    zeroed.backward()
    assert zeroed.item() == 0.0 and not host(short.grad).any()


# ---- norms ----

def test_layer_norm_far_from_zero(device):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 256)) + 1000.0
    t = T(x, device, "float32")
    exact = np.asarray(host(t), "float64")
    d = exact - exact.mean(1, keepdims=True)
    np.testing.assert_allclose(host(F.layer_norm(t, (256,))),
                               d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("rows", [2, 700])
def test_saved_statistics_give_the_generic_gradient(name, rows, device):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((rows, 3, 64)),
              *(rng.standard_normal(64) for _ in range(1 + (name == "layer_norm")))]
    g = T(rng.standard_normal((rows, 3, 64)), device)
    grads = []
    for create_graph in (False, True):
        leaves = [T(a, device, requires_grad=True) for a in arrays]
        out = getattr(F, name)(leaves[0], (64,), *leaves[1:])
        grads.append(lucid.autograd.grad(out, leaves, g, create_graph=create_graph))
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(host(a), host(b), rtol=1e-9, atol=1e-11)


def test_batch_norm_running_statistics(device):
    x = np.random.default_rng(0).standard_normal((4, 3, 5)) * 2 + 1
    mean, var = T([0.5, 0.0, 1.0], device), T([1.0, 2.0, 3.0], device)
    F.batch_norm(T(x, device), mean, var, training=True, momentum=0.2)
    np.testing.assert_allclose(host(mean), 0.8 * np.array([0.5, 0.0, 1.0]) + 0.2 * x.mean((0, 2)))
    np.testing.assert_allclose(host(var), 0.8 * np.array([1.0, 2.0, 3.0]) + 0.2 * x.var((0, 2), ddof=1))
    with pytest.raises(ShapeError, match="training=False needs running_mean and running_var"):
        F.batch_norm(T(x, device), None, None)
    with pytest.raises(ShapeError, match="training needs more than one value per channel"):
        F.batch_norm(T(x[:1, :, :1], device), None, None, training=True)
    with pytest.raises(ShapeError, match="batch_norm: weight must have one value for each of the 3 channels"):
        F.batch_norm(T(x, device), mean, var, T([1.0], device))


def test_normalize_and_distances_at_zero(device):
    x = T(np.zeros((2, 3)), device, requires_grad=True)
    out = F.normalize(x).sum() + F.cosine_similarity(x, x.detach() + 1).sum()
    out = out + F.pairwise_distance(x, x.detach(), eps=0.0).sum()
    out.backward()
    assert np.isfinite(host(x.grad)).all()


def test_accelerated_paths_do_not_change_what_they_save(device):
    rng = np.random.default_rng(0)
    x = T(rng.standard_normal((600, 128)), device, requires_grad=True)
    w = T(rng.standard_normal(128), device, requires_grad=True)
    t = T(rng.integers(0, 128, 600), device, "int64")
    loss = F.cross_entropy(F.rms_norm(F.layer_norm(F.softmax(x, -1), (128,), w, w), (128,), w), t)
    first = lucid.autograd.grad(loss, [x, w], retain_graph=True)
    second = lucid.autograd.grad(loss, [x, w])
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(host(a), host(b))


# ---- embedding ----

def test_embedding_gradient_sums_rows(device):
    w = T(np.arange(8.0).reshape(4, 2), device, requires_grad=True)
    index = T([[1, 3], [1, 1]], device, "int64")
    g = np.arange(8.0).reshape(2, 2, 2)
    F.embedding(index, w, padding_idx=3).backward(T(g, device))
    expected = np.zeros((4, 2))
    np.add.at(expected, [1, 1, 1], g.reshape(4, 2)[[0, 2, 3]])
    np.testing.assert_array_equal(host(w.grad), expected)


def test_embedding_max_norm(device):
    w = T([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]], device)
    out = F.embedding(T([0, 1, 0], device, "int64"), w, max_norm=1.0)
    np.testing.assert_allclose(host(out), [[0.6, 0.8], [0.3, 0.4], [0.6, 0.8]], rtol=1e-6)
    np.testing.assert_allclose(host(w)[2], [6.0, 8.0])


def test_raw_functions_without_the_engine():
    raw = backend_of("cpu").F
    x = np.array([[1.0, 2.0], [3.0, 5.0]])
    np.testing.assert_allclose(raw.safe_softmax(np.full((1, 2), -INF)), [[0.0, 0.0]])
    np.testing.assert_allclose(raw.channel_window_sum(x, 0, 1), [[3.0, 2.0], [8.0, 5.0]])
    np.testing.assert_array_equal(raw.one_hot(np.array([2, 0])), [[0, 0, 1], [1, 0, 0]])
