"""Random graphs of pointwise ops, linear layers, broadcasts, sums and views, with hooks, retained interiors,
captures and repeated passes: fused, unfused and a float64 forward difference agree.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lucid
from lucid import fusion
from lucid.autograd import Engine

pytestmark = pytest.mark.usefixtures("small")
UNARY = (
    lambda x: x.tanh(),
    lambda x: x.sigmoid(),
    lambda x: -x,
    lambda x: x * 0.5,
    lambda x: (x * x).exp() * 0.1,
    lambda x: x.relu(),
    lambda x: x.abs(),
    lambda x: lucid.nn.functional.gelu(x),
    lambda x: x.sin(),
    lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    lambda x: x.reshape(-1).reshape(x.shape),
    lambda x: x / (x * x + 1.0),
)
BINARY = (
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: x - y,
    lambda x, y: x * y.tanh(),
    lambda x, y: lucid.where(x > 0, x, y),
    lambda x, y: x + y.sum(0) * 0.1,
    lambda x, y: x * y.mean(1, keepdim=True),
    lambda x, y: lucid.nn.functional.relu(lucid.nn.functional.linear(x, W, y[0])),
)
W = None
STEP = st.tuples(st.booleans(), st.integers(0, 11), st.integers(0, 7), st.integers(0, 50), st.integers(0, 50))


def run(steps, marks, fused, passes, device):
    """(gradients of the leaves, retained gradients, captured gradients, what hooks
    saw) of one random program.
    """
    global W
    rng = np.random.default_rng(3)
    W = lucid.tensor(rng.standard_normal((5, 5)) * 0.3, device=device, requires_grad=True)
    leaves = [lucid.tensor(rng.standard_normal((4, 5)), device=device, requires_grad=True) for _ in range(2)]
    values = list(leaves)
    for unary, i, j, a, b in steps:
        x, y = values[a % len(values)], values[b % len(values)]
        values.append(UNARY[i % len(UNARY)](x) if unary else BINARY[j % len(BINARY)](x, y))
    seen, retained = [], []
    for kind, where in marks:
        t = values[where % len(values)]
        if kind == 0:
            t.register_hook(lambda g: seen.append(g.detach().cpu().numpy().copy()))
        elif kind == 1 and not t.is_leaf:
            t.retain_grad()
            retained.append(t)
        elif kind == 2:
            t.register_hook(lambda g: g * 1.5)
    root = (values[-1] * values[len(values) // 2]).sum()
    with fusion.enabled(fused):
        captured = []
        interior = values[len(values) // 2]
        if passes > 1:
            captured = [
                g for g in Engine.grad(root, None, [interior, *leaves], retain_graph=True) if g is not None
            ]
        root.backward(retain_graph=passes > 2)
        if passes > 2:
            root.backward()
    grads = [t.grad for t in [*leaves, W, *retained]]
    return [None if g is None else g.detach().cpu().numpy() for g in [*grads, *captured]], seen


@settings(
    max_examples=1200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)
@given(
    steps=st.lists(STEP, min_size=2, max_size=12),
    marks=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), max_size=3),
    passes=st.integers(1, 3),
)
def test_fused_equals_unfused(steps, marks, passes):
    a, seen_a = run(steps, marks, True, passes, "cpu")
    b, seen_b = run(steps, marks, False, passes, "cpu")
    assert len(a) == len(b) and len(seen_a) == len(seen_b)
    for x, y in zip(a + seen_a, b + seen_b, strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-8 * max(1.0, float(np.abs(y).max(initial=0))))


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)
@given(steps=st.lists(STEP, min_size=2, max_size=8))
def test_fused_gradients_against_differences(steps):
    smooth = [(u, i if i not in (5, 6) else 0, j if j not in (4, 7) else 0, a, b) for u, i, j, a, b in steps]

    def program(x, y):
        values = [x, y]
        for unary, i, j, a, b in smooth:
            p, q = values[a % len(values)], values[b % len(values)]
            values.append(UNARY[i](p) if unary else BINARY[j](p, q))
        return values[-1].tanh()

    rng = np.random.default_rng(0)
    xs = [lucid.tensor(rng.standard_normal((4, 5)) * 0.5, requires_grad=True) for _ in range(2)]
    assert lucid.autograd.gradcheck(program, xs, directions=1, rtol=1e-4, atol=1e-6)


def test_on_the_device_too(device):
    rng = np.random.default_rng(1)
    for k in range(6 if device != "cpu" else 20):
        steps = [
            (bool(rng.integers(2)), *(int(v) for v in rng.integers(0, (12, 8, 50, 50)))) for _ in range(8)
        ]
        a, _ = run(steps, [(1, k)], True, 1 + k % 3, device)
        b, _ = run(steps, [(1, k)], False, 1 + k % 3, "cpu")
        for x, y in zip(a, b, strict=True):
            if x is not None:
                np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-7 * max(1.0, float(np.abs(y).max())))
