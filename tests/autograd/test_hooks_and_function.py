"""Hooks (promise 19), user functions (18), grad modes, checkpointing, anomaly mode, functional derivatives.
"""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.autograd import Function, once_differentiable
from lucid.errors import GradcheckError, GradError, SavedValueError, ShapeError


def leaf(device, *values):
    return lucid.tensor(list(values), dtype="float64", device=device, requires_grad=True)


def host(t):
    return t.detach().cpu().numpy()


# ---- hooks ----


def test_tensor_hook_sees_the_sum_once_and_may_replace_it(device):
    x = leaf(device, 1.0, 2.0)
    mid = x * 1.0
    seen = []
    mid.register_hook(lambda g: seen.append(host(g)))
    handle = mid.register_hook(lambda g: g * 10.0)
    y = (mid * 2.0 + mid * 3.0).sum()
    y.backward(retain_graph=True)
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0], [5.0, 5.0])
    np.testing.assert_array_equal(host(x.grad), [50.0, 50.0])
    handle.remove()
    handle.remove()
    x.grad = None
    y.backward()
    np.testing.assert_array_equal(host(x.grad), [5.0, 5.0])


def test_leaf_hook_and_bad_hook_results(device):
    x = leaf(device, 1.0, 2.0)
    with x.register_hook(lambda g: -g):
        (x * 2.0).sum().backward()
    np.testing.assert_array_equal(host(x.grad), [-2.0, -2.0])
    with x.register_hook(lambda g: g.sum()), pytest.raises(ShapeError, match=r"shape \(2,\), got \(\)"):
        (x * 2.0).sum().backward()
    with x.register_hook(lambda g: 3), pytest.raises(GradError, match="tensor or None, got int"):
        (x * 2.0).sum().backward()
    with pytest.raises(GradError, match="requires grad"):
        lucid.ones(1).register_hook(print)


def test_retain_grad(device):
    x = leaf(device, 1.0, 2.0)
    mid = x * 3.0
    mid.retain_grad()
    assert mid.retains_grad and not x.retains_grad
    (mid * mid).sum().backward()
    np.testing.assert_array_equal(host(mid.grad), [6.0, 12.0])
    np.testing.assert_array_equal(host(x.grad), [18.0, 36.0])


def test_node_hooks(device):
    x = leaf(device, 1.0, 2.0)
    y = x * x
    order = []
    y.grad_fn.register_prehook(lambda go: (order.append("pre"), (go[0] * 2.0,))[1])
    y.grad_fn.register_hook(lambda gi, go: (order.append("post"), tuple(g + 1.0 for g in gi))[1])
    y.sum().backward()
    assert order == ["pre", "post"]
    np.testing.assert_array_equal(host(x.grad), 2 * (2 * np.array([1.0, 2.0]) + 1))


def test_hooks_under_create_graph_are_recorded(device):
    x = leaf(device, 2.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = lucid.autograd.grad(y, x, create_graph=True)  # 2 x^2
    (h,) = lucid.autograd.grad(g, x)
    assert host(g) == 8.0 and host(h) == 8.0


def test_post_accumulate_hook(device):
    x = leaf(device, 1.0, 2.0)

    def step(t):
        with lucid.no_grad():
            t.sub_(t.grad)
        t.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * x).sum().backward()
    assert x.grad is None
    np.testing.assert_array_equal(host(x), [-1.0, -2.0])
    with pytest.raises(GradError, match="leaf"):
        (x * 2.0).register_post_accumulate_grad_hook(step)


# ---- Function ----


class Sincos(Function):
    """Two outputs."""

    @staticmethod
    def forward(ctx, x, scale):
        s, c = (x * scale).sin(), (x * scale).cos()
        ctx.save_for_backward(s, c)
        ctx.scale = scale
        return s, c

    @staticmethod
    def backward(ctx, gs, gc):
        s, c = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False)
        return (gs * c - gc * s) * ctx.scale, None


def test_function_with_two_outputs_and_double_backward(device):
    x = leaf(device, 0.3, 0.9)
    s, c = Sincos.apply(x, 2.0)
    assert s.grad_fn is c.grad_fn and (s.output_nr, c.output_nr) == (0, 1) and s.grad_fn.node_name == "Sincos"
    (g,) = lucid.autograd.grad(s.sum(), x, create_graph=True)  # the unused output arrives as zeros
    np.testing.assert_allclose(host(g), 2 * np.cos(2 * host(x)))
    (h,) = lucid.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(host(h), -4 * np.sin(2 * host(x)))
    assert lucid.autograd.gradcheck(lambda t: Sincos.apply(t, 2.0), x)
    assert lucid.autograd.gradgradcheck(lambda t: Sincos.apply(t, 2.0), x)


def test_function_none_for_unused_outputs_when_not_materialised(device):
    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1.0, x * 2.0

        @staticmethod
        def backward(ctx, a, b):
            assert b is None
            return a

    x = leaf(device, 1.0)
    Two.apply(x)[0].backward()
    assert host(x.grad) == 1.0


def test_function_errors(device):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g, g, g

    class WrongShape(Wrong):
        @staticmethod
        def backward(ctx, g):
            return g.sum(), g

    x, y = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0)
    with pytest.raises(
        GradError, match=r"Wrong: backward must return one gradient per argument of forward \(2\), got 3"
    ):
        Wrong.apply(x, y).sum().backward()
    with pytest.raises(
        GradError, match=r"WrongShape: backward returned shape \(\) for argument 0, expected \(2,\)"
    ):
        WrongShape.apply(x, y).sum().backward()
    with pytest.raises(TypeError, match="apply"):
        Wrong()


def test_function_marks_and_versions(device):
    class Mixed(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            order = x > 0.0
            rounded = x * 1.0
            ctx.mark_non_differentiable(rounded)
            return x * x, rounded, order

        @staticmethod
        def backward(ctx, g, *rest):
            (x,) = ctx.saved_tensors
            return g * 2.0 * x

    x = leaf(device, 1.0, -2.0)
    h = x * 1.0
    y, r, o = Mixed.apply(h)
    assert y.requires_grad and not r.requires_grad and not o.requires_grad
    h.mul_(2.0)
    with pytest.raises(SavedValueError, match="Mixed"):
        y.sum().backward()


def test_backward_of_a_function_gets_one_gradient_per_output(device):
    got = []

    class Parts(Function):
        materialize = True

        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(Parts.materialize)
            rounded = x * 1.0
            ctx.mark_non_differentiable(rounded)
            return rounded, x > 0.0, "text", x * 2.0, x * 3.0

        @staticmethod
        def backward(ctx, *grads):
            got[:] = [None if g is None else (g.tolist(), g.dtype.name) for g in grads]
            return grads[3] * 2.0

    x = leaf(device, 1.0, -2.0)
    Parts.apply(x)[3].sum().backward()
    zeros = ([0.0, 0.0], "float64")
    assert got == [zeros, ([False, False], "bool"), None, ([1.0, 1.0], "float64"), zeros]
    Parts.materialize = False
    Parts.apply(x)[3].sum().backward()
    assert got == [None, None, None, ([1.0, 1.0], "float64"), None]
    assert x.grad.tolist() == [4.0, 4.0]


def test_function_mark_dirty(device):
    class AddOne(Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1.0)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5.0

    x = leaf(device, 1.0, 2.0)
    h = x * 1.0
    out = AddOne.apply(h)
    assert out is h
    out.sum().backward()
    np.testing.assert_array_equal(host(x.grad), [5.0, 5.0])


def test_once_differentiable(device):
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * 2.0

    x = leaf(device, 1.0)
    Once.apply(x).backward()
    with pytest.raises(GradError, match="once_differentiable"):
        lucid.autograd.grad(Once.apply(x), x, create_graph=True)


def test_setup_context_form(device):
    class Scale(Function):
        @staticmethod
        def forward(x, k):
            return x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k, None

    x = leaf(device, 1.0, 2.0)
    Scale.apply(x, 3.0).sum().backward()
    np.testing.assert_array_equal(host(x.grad), [3.0, 3.0])


# ---- grad modes ----


def test_modes_as_context_decorator_and_generator(device):
    x = leaf(device, 1.0)

    @lucid.no_grad()
    def off():
        return x * 2.0

    @lucid.no_grad
    def off_too():
        return x * 2.0

    @lucid.enable_grad()
    def on():
        return x * 2.0

    @lucid.no_grad()
    def generate():
        for _ in range(2):
            got = yield (x * 2.0).requires_grad
            assert not lucid.is_grad_enabled() and got in (None, "sent")

    assert not off().requires_grad and not off_too().requires_grad and lucid.is_grad_enabled()
    with lucid.no_grad():
        assert on().requires_grad
        with lucid.enable_grad():
            assert (x * 2.0).requires_grad
        assert not (x * 2.0).requires_grad
    g = generate()
    assert next(g) is False and lucid.is_grad_enabled()
    assert g.send("sent") is False
    with lucid.set_grad_enabled(False):
        assert not lucid.is_grad_enabled()
    assert lucid.is_grad_enabled()
    lucid.set_grad_enabled(False)
    assert not lucid.is_grad_enabled()
    lucid.set_grad_enabled(True)
    with lucid.inference_mode():
        assert not (x * 2.0).requires_grad
    try:
        with lucid.no_grad():
            raise KeyError
    except KeyError:
        assert lucid.is_grad_enabled()


# ---- gradcheck, functional, anomaly, checkpoint ----


def test_gradcheck_fails_on_a_slightly_wrong_derivative(device):
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].cos() * 1.01

    x = leaf(device, 0.3, 1.0)
    with pytest.raises(GradcheckError, match=r"input 0 \(float64\[2\]"):
        lucid.autograd.gradcheck(Bad.apply, x)
    assert not lucid.autograd.gradcheck(Bad.apply, x, raise_exception=False)
    with pytest.raises(GradcheckError, match="too coarse"):
        lucid.autograd.gradcheck(lambda t: t * 2.0, lucid.ones(2, device=device, requires_grad=True))


def test_functional_derivatives(device):
    from lucid.autograd.functional import hessian, hvp, jacobian, jvp, vjp

    x = leaf(device, 1.0, 2.0)
    v = lucid.tensor([1.0, -1.0], dtype="float64", device=device)

    def f(t):
        return t * t * t

    np.testing.assert_allclose(host(jacobian(f, x)), np.diag([3.0, 12.0]))
    np.testing.assert_allclose(host(hessian(lambda t: f(t).sum(), x)), np.diag([6.0, 12.0]))
    np.testing.assert_allclose(host(vjp(f, x, v)[1]), [3.0, -12.0])
    np.testing.assert_allclose(host(jvp(f, x, v)[1]), [3.0, -12.0])
    np.testing.assert_allclose(host(hvp(lambda t: f(t).sum(), x, v)[1]), [6.0, -12.0])


def test_anomaly_names_the_operation(device):
    x = leaf(device, 0.0, 1.0)
    with lucid.autograd.detect_anomaly():
        y = (x.sqrt() * 0.0).sum()
        with pytest.raises(GradError, match="SqrtBackward.*NaN"):
            y.backward()


def test_checkpoint_recomputes(device):
    from lucid.autograd.checkpoint import checkpoint

    x, w = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0)
    calls = []

    def block(t):
        calls.append(1)
        return (t * w).tanh() * t

    out = checkpoint(block, x * 1.0)
    out.sum().backward()
    got = host(x.grad), host(w.grad)
    x.grad = w.grad = None
    block(x * 1.0).sum().backward()
    np.testing.assert_allclose(got[0], host(x.grad))
    np.testing.assert_allclose(got[1], host(w.grad))
    assert len(calls) == 3


def test_callbacks_run_at_the_end_of_the_pass(device):
    from lucid.autograd.engine import queue_callback

    x, y = (lucid.ones(2, device=device, requires_grad=True) for _ in range(2))
    seen = []

    def callback(done):
        seen.append((done, x.grad is not None and y.grad is not None))

    handle = x.register_post_accumulate_grad_hook(lambda _: queue_callback(callback))
    (x * y).sum().backward()
    assert seen == [(True, True)]  # once, after all gradients were written
    (y * y).sum().backward()
    assert len(seen) == 1  # nothing is left for the next pass
    with x.register_post_accumulate_grad_hook(lambda _: 1 / 0), pytest.raises(ZeroDivisionError):
        (x * y).sum().backward()
    assert seen[1:] == [(False, True)]
    handle.remove()
    (x * y).sum().backward()
    assert len(seen) == 2
