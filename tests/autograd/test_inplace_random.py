"""Random programs of views, in-place writes and ordinary ops: where lucid gives a gradient it is PyTorch's;
it may refuse, never be wrong.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lucid
from lucid.errors import LucidError

torch = pytest.importorskip("torch")

VIEWS = (
    lambda t: t[1:3],
    lambda t: t.transpose(0, 1),
    lambda t: t[:, 1],
    lambda t: t.reshape(-1),
    lambda t: t[0],
    lambda t: t[::2],
    lambda t: t.unsqueeze(0),
    lambda t: t[..., None],
)
INPLACE = (
    lambda t, w: t.mul_(2.0),
    lambda t, w: t.add_(w.sum()),
    lambda t, w: t.mul_(w.sum()),
    lambda t, w: t.zero_(),
    lambda t, w: t.copy_(w.sum().expand(t.shape)),
    lambda t, w: t.sub_(t * 0.5),
    lambda t, w: t.tanh_(),
    lambda t, w: t.__setitem__(0, w.sum()),
    lambda t, w: t.__setitem__(slice(0, 1), 3.0),
    lambda t, w: t.exp_(),
    lambda t, w: t.unsqueeze_(0),
    lambda t, w: t.squeeze_(),
    lambda t, w: t.transpose_(0, -1),
    lambda t, w: t.swapaxes_(-1, 0),
    lambda t, w: t.unsqueeze_(-1),
)
PLAIN = (lambda t: t * 1.5, lambda t: t.tanh(), lambda t: t * t, lambda t: t + 1.0)
STEP = st.tuples(st.integers(0, 3), st.integers(0, len(INPLACE) - 1), st.integers(0, 20))
SHAPES = st.tuples(st.integers(1, 2), st.integers(10, len(INPLACE) - 1), st.integers(0, 20))


def run(lib, steps):
    """(value, gradients) of a program, or the name of the step at which it was refused."""
    a = np.random.default_rng(0).standard_normal((4, 4)) * 0.5
    b = np.random.default_rng(1).standard_normal(3)
    x, w = (lib.tensor(v, requires_grad=True) for v in (a, b))
    values = [x * 1.0, x * w.sum()]
    for kind, which, where in steps:
        t = values[where % len(values)]
        if t.ndim == 0:
            continue
        if kind == 0:
            if t.ndim >= 2 or which in (3, 4):
                values.append(VIEWS[which % len(VIEWS)](t))
        elif kind in (1, 2):
            INPLACE[which](t, w)
        else:
            values.append(PLAIN[which % len(PLAIN)](t))
    total = values[0].sum()
    for k, v in enumerate(values[1:], 2):
        total = total + (v * (0.1 * k)).sum()
    total.backward()
    return total.item(), [x.grad, w.grad]


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(st.one_of(STEP, STEP, SHAPES), min_size=2, max_size=9))
def test_against_torch(steps):
    try:
        mine = run(lucid, steps)
    except (LucidError, IndexError):
        return
    try:
        theirs = run(torch, steps)
    except (RuntimeError, IndexError):
        return  # PyTorch refuses some programs that lucid can run (it keeps a copy of what is overwritten)
    assert mine[0] == pytest.approx(theirs[0], rel=1e-9, abs=1e-9)
    for m, t in zip(mine[1], theirs[1], strict=True):
        np.testing.assert_allclose(
            np.zeros(1) if m is None else m.numpy(),
            np.zeros(1) if t is None else t.numpy(),
            rtol=1e-9,
            atol=1e-9,
        )


def test_most_programs_run():
    rng = np.random.default_rng(5)
    ran = 0
    for _ in range(100):
        steps = [tuple(int(v) for v in rng.integers(0, (4, len(INPLACE), 21))) for _ in range(6)]
        try:
            run(lucid, steps)
            ran += 1
        except (LucidError, IndexError):
            pass
    assert ran > 50
