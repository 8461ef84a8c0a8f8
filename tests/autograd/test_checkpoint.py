"""Checkpointed segments give what plain ones give, keep less, and say when they cannot."""

import gc
import weakref

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.autograd.checkpoint import checkpoint, checkpoint_sequential
from lucid.errors import FreedGraphError, GradError, SavedValueError


def leaf(*shape, device="cpu", seed=0):
    lucid.manual_seed(seed)
    return lucid.randn(*shape, dtype=lucid.float64).to(device).requires_grad_()


def both(function, *tensors):
    """The gradients of sum(function(...)^2) without and with a checkpoint."""
    results = []
    for wrap in (lambda f, *a: f(*a), checkpoint):
        for t in tensors:
            t.grad = None
        out = wrap(function, *tensors)
        (out * out).sum().backward()
        results.append([None if t.grad is None else t.grad.tolist() for t in tensors])
    return results


def test_same_gradients_as_without(device):
    x, w = leaf(3, 4, device=device), leaf(4, 4, device=device, seed=1)
    plain, again = both(lambda x, w: (x @ w).tanh() @ w, x, w)
    assert plain == again


def test_what_is_between_is_not_kept():
    x = leaf(50, 50)
    alive = []

    def function(x):
        h = x.exp()
        alive.append(weakref.ref(h.array))
        return h.sin().sum()

    gc.disable()
    try:
        out = checkpoint(function, x)
        assert alive[0]() is None
        out.backward()
        assert len(alive) == 2 and alive[1]() is None, "the second run's values stayed"
    finally:
        gc.enable()


def test_nothing_stays_after_the_output_is_dropped():
    x = leaf(3)
    gc.disable()
    try:
        out = checkpoint(lambda x: x.exp().sin(), x)
        node = weakref.ref(out.grad_fn)
        segment = weakref.ref(out.grad_fn.saved.segment)
        del out
        assert node() is None and segment() is None
    finally:
        gc.enable()


def test_several_uses_of_one_argument_and_of_one_result():
    x = leaf(4)
    plain, again = both(lambda a: a.sin() * a + a.cos() * a, x)
    assert plain == again
    x.grad = None
    h = checkpoint(lambda a: a.sin() * a, x)
    (h * h.exp()).sum().backward()
    kept, x.grad = x.grad.tolist(), None
    h = x.sin() * x
    (h * h.exp()).sum().backward()
    assert kept == pytest.approx(x.grad.tolist(), rel=1e-12)


def test_two_calls_of_the_same_function():
    w = leaf(3, 3)
    results = []
    for wrap in (lambda f, *a: f(*a), checkpoint):
        w.grad = None
        h = lucid.ones(2, 3, dtype=lucid.float64)
        for _ in range(4):
            h = wrap(lambda h: (h @ w).tanh(), h)
        h.sum().backward()
        results.append(w.grad.tolist())
    assert results[0] == results[1]


def test_closures_over_inner_tensors_and_keyword_arguments():
    w, v = leaf(3), leaf(3, seed=1)
    results = []
    for wrap in (lambda f, *a, **k: f(*a, **k), checkpoint):
        w.grad = v.grad = None
        h = w.exp()  # neither a leaf nor an argument
        out = wrap(lambda a, *, scale, note, h=h: (a * h * scale).sin(), w, scale=v.cos(), note="plain")
        (out * h).sum().backward()
        results.append((w.grad.tolist(), v.grad.tolist()))
    assert results[0] == results[1]


def test_outputs_of_any_form():
    x = leaf(3)

    def function(x, n):
        return {"a": x.sin(), "n": n, "rest": [x.exp(), (x * 2).cos(), "text"]}

    out = checkpoint(function, x, 7)
    assert out["n"] == 7 and out["rest"][2] == "text"
    (out["a"].sum() + out["rest"][1].sum()).backward()
    assert x.grad.tolist() == pytest.approx((x.cos() - 2 * (2 * x).sin()).tolist())


def test_ops_with_several_outputs():
    x = leaf(4, 3)
    plain, again = both(lambda x: x.sort(0)[0].exp() * x.unbind(0)[1] + x.max(0)[0], x)
    assert plain == again


def test_nested():
    x, w = leaf(3), leaf(3, seed=1)

    def inner(a):
        return (a * w).sin()

    plain, again = both(lambda x: checkpoint(inner, checkpoint(inner, x).exp()) * x, x)
    outer, _ = both(lambda x: inner(inner(x).exp()) * x, x)
    assert plain == again == outer


def test_nested_keeps_nothing_between():
    alive = []

    def inner(a):
        alive.append(weakref.ref(a.array))
        return a.sin()

    x = leaf(3)
    gc.disable()
    try:
        out = checkpoint(lambda x: checkpoint(inner, x.exp()).sum(), x)
        assert alive[0]() is None
        out.backward()
    finally:
        gc.enable()
    assert x.grad.tolist() == pytest.approx((x.exp() * x.exp().cos()).tolist())


def test_grad_writes_no_grad_and_reaches_inner_weights():
    x, w = leaf(3), leaf(3, seed=1)
    out = checkpoint(lambda x: (x * w).exp().sum(), x)
    gx, gw = lucid.autograd.grad(out, [x, w])
    assert x.grad is None and w.grad is None
    assert gw.tolist() == pytest.approx((x * (x * w).exp()).tolist())
    assert gx.tolist() == pytest.approx((w * (x * w).exp()).tolist())


def test_second_derivatives():
    x, w = leaf(3), leaf(3, seed=1)
    results = []
    for wrap in (lambda f, *a: f(*a), checkpoint):
        out = wrap(lambda x: (x * w).exp(), x.sin())
        (g,) = lucid.autograd.grad(out.sum(), x, create_graph=True)
        results.append([t.tolist() for t in lucid.autograd.grad(g.sum(), [x, w])])
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-12)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-12)


def test_gradcheck():
    x, w = leaf(3), leaf(3, 3, seed=1)
    assert lucid.autograd.gradcheck(lambda x, w: checkpoint(lambda a, b: (a @ b).tanh().exp(), x, w), (x, w))


def test_dropout_masks_are_the_same(device):
    x = leaf(64, device=device)

    def function(x):
        return nn.functional.dropout(x.exp(), 0.5, True)

    lucid.manual_seed(3)
    out = checkpoint(function, x)
    after = lucid.rand(2).tolist()
    out.sum().backward()
    zero = (out == 0).tolist()
    assert 10 < sum(zero) < 54
    assert (x.grad == 0).tolist() == zero
    lucid.manual_seed(3)
    function(x)
    assert lucid.rand(2).tolist() == after, "the second run moved the generator"


def test_inputs_that_need_no_gradient_and_no_grad_mode():
    layer = nn.Linear(3, 2)
    x = lucid.ones(4, 3)
    checkpoint(layer, x).sum().backward()
    assert layer.weight.grad.tolist() == [[4.0] * 3] * 2
    with lucid.no_grad():
        assert not checkpoint(layer, x).requires_grad


def test_hooks_on_inner_tensors_see_the_gradient_once():
    x, seen = leaf(3), []

    def function(x):
        h = x.exp()
        if h.requires_grad and not seen:
            h.register_hook(lambda g: seen.append(g.tolist()))
        return h * 2

    checkpoint(function, x).sum().backward()
    assert seen == [[2.0] * 3]


def test_user_functions_inside():
    class Square(lucid.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * g * x

    x = leaf(3)
    plain, again = both(lambda x: Square.apply(x.sin()).exp(), x)
    assert plain == again


def test_backward_twice():
    x = leaf(3)
    out = checkpoint(lambda x: x.exp().sin().sum(), x)
    out.backward(retain_graph=True)
    first = x.grad.clone()
    out.backward()
    assert x.grad.tolist() == (2 * first).tolist()
    h = checkpoint(lambda x: x.exp().sin(), x)
    h.sum().backward()
    with pytest.raises(FreedGraphError, match="retain_graph=True"):
        h.sum().backward()


def test_an_argument_or_weight_written_since_raises():
    x = leaf(3)
    out = checkpoint(lambda x: x.exp().sin().sum(), h := x * 1.0)
    with lucid.no_grad():
        h.mul_(2)
    with pytest.raises(SavedValueError, match="an argument .* was changed in place"):
        out.backward()
    w = leaf(3, seed=1)
    out = checkpoint(lambda x: (x * w).sin().sum(), x)
    with lucid.no_grad():
        w.mul_(2)
    with pytest.raises(SavedValueError, match="a weight .* was changed in place"):
        out.backward()
    out = checkpoint(lambda x: checkpoint(lambda y: (y * w).sin().sum(), x.exp()), x)
    with lucid.no_grad():
        w.mul_(2)
    with pytest.raises(SavedValueError, match="a weight .* was changed in place"):
        out.backward()
    assert x.grad is None and w.grad is None


def test_another_second_run_raises():
    calls = []

    def function(x):
        calls.append(1)
        return x.exp().sin() if len(calls) == 1 else x.exp().cos()

    x = leaf(3)
    out = checkpoint(function, x)
    with pytest.raises(GradError, match="operation 1: first sin, now cos"):
        out.sum().backward()
    assert x.grad is None


def test_an_error_in_the_second_run_leaves_nothing_behind():
    fail = []

    def function(x):
        if fail:
            raise RuntimeError("out of luck")
        return x.exp().sin()

    x = leaf(3)
    out = checkpoint(function, x)
    fail.append(1)
    with pytest.raises(RuntimeError, match="out of luck"):
        out.sum().backward(retain_graph=True)
    fail.clear()
    assert x.grad is None and lucid.is_grad_enabled()
    out.sum().backward()
    assert x.grad.tolist() == pytest.approx((x.exp() * x.exp().cos()).tolist())


def test_sequential():
    lucid.manual_seed(0)
    net = nn.Sequential(*[m for _ in range(5) for m in (nn.Linear(4, 4), nn.Tanh())])
    x = lucid.randn(3, 4)
    net(x).sum().backward()
    expected = [p.grad.tolist() for p in net.parameters()]
    for segments in (1, 2, 3, 10):
        net.zero_grad()
        checkpoint_sequential(net, segments, x, use_reentrant=False).sum().backward()
        assert [p.grad.tolist() for p in net.parameters()] == expected
    with pytest.raises(ValueError, match="from 1 to 10"):
        checkpoint_sequential(net, 11, x)


def test_autocast_holds_in_the_second_run():
    w = leaf(4, 4).detach().float().requires_grad_()
    x = lucid.ones(2, 4)
    grads, dtypes = [], []

    def function(x):
        h = x @ w
        dtypes.append(h.dtype.name)
        return h.tanh().float().sum()

    for wrap in (lambda f, *a: f(*a), checkpoint):
        w.grad = None
        with lucid.amp.autocast("cpu", lucid.bfloat16):
            out = wrap(function, x)
        out.backward()
        grads.append(w.grad.tolist())
    assert dtypes == ["bfloat16"] * 3
    assert grads[0] == grads[1]


def test_inside_fused_and_unfused_graphs():
    x, w = leaf(64, 64), leaf(64, 64, seed=1)
    results = []
    for enabled in (True, False):
        with lucid.fusion.enabled(enabled):
            results.append(both(lambda x, w: (x @ w).sigmoid().exp() * 0.1 + x.tanh(), x, w)[1])
    assert lucid.tensor(results[0]).allclose(lucid.tensor(results[1]), rtol=1e-12)


def test_contexts_of_the_two_runs(device):
    entered = []

    class Note:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            entered.append(self.name)

        def __exit__(self, *_):
            entered.append(f"/{self.name}")

    x = lucid.ones(2, device=device, requires_grad=True)
    y = checkpoint(lambda v: v.exp().sin(), x, use_reentrant=False, determinism_check="none", debug=False,
                   context_fn=lambda: (Note("first"), Note("second")))
    assert entered == ["first", "/first"]
    y.sum().backward()
    assert entered == ["first", "/first", "second", "/second"]
    np.testing.assert_allclose(x.grad.numpy(force=True), np.e * np.cos(np.e), rtol=1e-6)
