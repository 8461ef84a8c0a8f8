"""The graph as text, what it keeps in memory, and which gradient buffers are kept instead of copied."""

from __future__ import annotations

import numpy as np

import lucid
from lucid.autograd.graph import nodes_of, saved_bytes, to_dot
from lucid.autograd.own import own
from lucid.storage import backend_of


def test_graph_as_text_and_bytes():
    x = lucid.ones(4, 5, dtype="float64", requires_grad=True)
    y = (x * 2.0).tanh() * x
    assert [n.name() for n in nodes_of(y)] == ["MulBackward", "TanhBackward", "MulBackward", "AccumulateGrad"]
    # tanh's output (160 bytes, also kept by mul) and x.
    assert saved_bytes(y) == 2 * 160 + 8
    dot = to_dot(y)
    assert dot.startswith("digraph") and dot.count("->") == 4 and "[4, 5]" in dot


def test_a_buffer_that_nobody_else_holds_is_kept(device):
    backend = backend_of(device)
    like = backend.xp.zeros(3, "float32")

    def take(box):
        g = box.pop()
        return own(g, backend, like)

    box = [backend.xp.ones(3, "float32")]
    number = id(box[0])
    assert id(take(box)) == number

    held = backend.xp.ones(3, "float32")
    assert take([held]) is not held
    wide = backend.xp.ones(3, "float64")
    assert take([wide]).dtype == np.float32
    view = backend.xp.ones((2, 3), "float32")[0]
    del held
    assert not backend.xp.may_share_memory(take([view]), view)


def test_a_complex_gradient_reaches_a_real_leaf_as_its_real_part(device):
    x = lucid.tensor([1.0, 2.0], device=device, requires_grad=True)
    for _ in range(2):
        z = x.to(lucid.complex64) * 1j
        (z * z).real.sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), [-4.0, -8.0])
    assert x.grad.dtype == lucid.float32
