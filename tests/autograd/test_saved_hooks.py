"""Hooks on saved values and on several gradients, as PyTorch has them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.autograd.graph import register_multi_grad_hook, save_on_cpu, saved_bytes, saved_tensors_hooks
from lucid.errors import FreedGraphError, GradError
from lucid.utils.checkpoint import checkpoint


def network(device, dropout=0.5):
    lucid.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 8),
                         nn.GELU(), nn.LayerNorm(8), nn.Dropout(dropout), nn.Linear(8, 3)).to(device)


def loss_of(net, device):
    rng = np.random.default_rng(0)
    x = lucid.tensor(rng.standard_normal((4, 1, 6, 6)), dtype="float32", device=device)
    lucid.manual_seed(1)
    out = lucid.cat([net(x), net(x * 2)], 1)
    out, _ = out.max(1)
    return (out * out).sum()


def gradients(net, loss):
    net.zero_grad()
    loss.backward()
    return [p.grad.numpy(force=True) for p in net.parameters()]


def test_gradients_are_the_same_and_each_value_goes_through_both_hooks(device):
    net, packed, unpacked = network(device), [], []
    expected = gradients(net, loss_of(net, device))

    def pack(t):
        assert not lucid.is_grad_enabled()
        packed.append(t)
        return len(packed) - 1, t.detach().cpu().numpy().copy()

    def unpack(value):
        unpacked.append(value[0])
        return lucid.tensor(value[1], device=device)

    with saved_tensors_hooks(pack, unpack):
        loss = loss_of(net, device)
    assert packed and not unpacked
    n = len(packed)
    # The tensors that the ops got themselves, so that a hook can tell a parameter.
    assert any(t is net[4].weight for t in packed)
    for a, b in zip(gradients(net, loss), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert len(packed) == n and sorted(unpacked) == list(range(n))
    with pytest.raises(FreedGraphError, match="retain_graph=True"):
        loss.backward()
    assert not any(t is None for t in unpacked)


def test_second_order_retained_graphs_and_functions(device):
    class Cube(lucid.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = x ** 3
            ctx.save_for_backward(x, None, out)
            return out

        @staticmethod
        def backward(ctx, g):
            x, nothing, out = ctx.saved_tensors
            assert nothing is None and float(out.sum()) == float((x ** 3).sum())
            return g * 3 * x ** 2

    x = lucid.tensor([1.0, 2.0], device=device, requires_grad=True)
    places = []

    def pack(t):
        places.append(t.detach().clone())
        return len(places) - 1

    with saved_tensors_hooks(pack, lambda i: places[i]):
        y = (Cube.apply(x) * Cube.apply(x * 1)).sum() + x.exp().sin().sum()
    (g,) = lucid.autograd.grad(y, x, create_graph=True)
    (h,) = lucid.autograd.grad(g.sum(), x, retain_graph=True)
    v = np.array([1.0, 2.0])
    e = np.exp(v)
    np.testing.assert_allclose(g.numpy(force=True), 6 * v ** 5 + e * np.cos(e), rtol=1e-5)
    second = 30 * v ** 4 + e * np.cos(e) - e * e * np.sin(e)
    np.testing.assert_allclose(h.numpy(force=True), second, rtol=1e-5)
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(force=True), 2 * g.numpy(force=True), rtol=1e-6)


def test_where_values_lie_under_save_on_cpu(device):
    net = network(device)
    expected = gradients(net, loss_of(net, device))
    plain = saved_bytes(loss_of(net, device))
    with save_on_cpu(pin_memory=True):
        loss = loss_of(net, device)
    assert saved_bytes(loss) == 0 < plain
    for a, b in zip(gradients(net, loss), expected, strict=True):
        assert a.tobytes() == b.tobytes()


def test_save_on_cpu_on_the_cpu_keeps_copies():
    x = lucid.ones(3, requires_grad=True)
    with save_on_cpu():
        y = (x * x).sum()
    with lucid.no_grad():
        x += 5.0
    y.backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_blocks_nest_and_end_and_checkpoint_is_its_own(device):
    calls = []

    def hooks(name):
        return saved_tensors_hooks(lambda t: (calls.append(name), t)[1], lambda t: t)

    x = lucid.ones(3, device=device, requires_grad=True)
    outer = hooks("outer")
    with outer:
        x.exp()
        with hooks("inner"):
            x.exp()
        with outer:
            x.exp()
        assert calls == ["outer", "inner", "outer"]
        calls.clear()
        y = checkpoint(lambda v: v.exp().sin(), x)
        assert calls == []
        x.exp()
    x.exp()
    assert calls == ["outer"]
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(force=True), np.e * np.cos(np.e), rtol=1e-6)


def test_inside_a_checkpoint(device):
    x, calls = lucid.ones(3, device=device, requires_grad=True), []

    def run(v):
        with saved_tensors_hooks(lambda t: (calls.append(1), t)[1], lambda t: t):
            return v.exp().sin()

    checkpoint(run, x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(force=True), np.e * np.cos(np.e), rtol=1e-6)
    assert calls


def test_autocast_and_in_place(device):
    kind = device.partition(":")[0]
    net = nn.Linear(4, 4).to(device)
    x = lucid.ones(2, 4, device=device)

    def run():
        net.zero_grad()
        with lucid.autocast(kind, lucid.bfloat16):
            h = net(x)
            h = h.relu_()
            h[0] *= 2.0
        h.float().pow(2).sum().backward()
        return net.weight.grad.numpy(force=True)

    expected = run()
    with save_on_cpu():
        assert run().tobytes() == expected.tobytes()


def test_what_unpack_returns_is_checked(device):
    for wrong, text in ((lambda t: 3, "got int 3"), (lambda t: t[:1], r"got float32\[1\]")):
        x = lucid.ones(2, device=device, requires_grad=True)
        with saved_tensors_hooks(lambda t: t, wrong):
            y = x.exp().sum()
        with pytest.raises(GradError, match=f"ExpBackward: unpack_hook must return a tensor .*{text}"):
            y.backward()
        assert x.grad is None


# ---- several gradients ----


@pytest.mark.parametrize("lib", ["lucid", "torch"])
def test_multi_grad_hook(lib):
    lib = pytest.importorskip(lib)
    hook = lib.autograd.graph.register_multi_grad_hook
    a, b, c = (lib.tensor([v], requires_grad=True) for v in (1.0, 2.0, 3.0))
    found = []
    handle = hook((a, b, c), lambda grads: found.append([None if g is None else g.item() for g in grads]))
    (a * b * c).sum().backward()
    assert found == [[6.0, 3.0, 2.0]]
    # A pass that reaches some of them, or none.
    (a * c).sum().backward()
    assert found[1:] == [[3.0, None, 1.0]]
    (lib.ones(1, requires_grad=True) * 2).backward()
    assert len(found) == 2
    handle.remove()
    (a * b).sum().backward()
    assert len(found) == 2
    # Interior tensors, the first gradient alone, create_graph.
    h, first = a * 2, []
    k = h * 3
    with hook([h, k], lambda g: first.append(g.item()), mode="any"):
        (h * k).sum().backward(create_graph=True)
    assert first == [2.0]
    with pytest.raises((GradError, ValueError), match="mode"):
        hook([a], print, mode="some")


def test_multi_grad_hook_of_grad(device):
    """Which PyTorch refuses for leaves."""
    a, b = (lucid.tensor([v], device=device, requires_grad=True) for v in (1.0, 2.0))
    found = []
    register_multi_grad_hook((a, b), lambda grads: found.append([g and g.item() for g in grads]))
    lucid.autograd.grad((a * b).sum(), [b])
    lucid.autograd.grad((a * b).sum(), [b, a])
    assert found == [[None, 1.0], [2.0, 1.0]]


def test_multi_grad_hooks_of_several_threads_do_not_meet():
    found = []
    leaves = [lucid.ones(1, requires_grad=True) for _ in range(2)]
    register_multi_grad_hook(leaves, lambda grads: found.append([g.item() for g in grads]))

    def run(scale):
        for _ in range(50):
            (leaves[0] * scale * leaves[1]).sum().backward()

    threads = [threading.Thread(target=run, args=(v,)) for v in (1.0, 2.0)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == [[1.0, 1.0]] * 50 + [[2.0, 2.0]] * 50
