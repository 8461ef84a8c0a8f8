"""Dropout's masks: those of the generator on every device, recomputed on CUDA and kept on the CPU."""

from contextlib import nullcontext

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd.record import RECORDED
from lucid.storage.random import Generator, default_generator
from lucid.testing import simulator
from lucid.utils.checkpoint import checkpoint

DTYPES = (lucid.float32, lucid.float64, lucid.float16, lucid.bfloat16)
SHAPES = ((), (0, 3), (1,), (6,), (4, 33), (2, 3, 64))


def host(x):
    return x.detach().cpu().double().numpy()


def expected_mask(shape, p, seed, drawn):
    """The mask of a draw after `drawn` numbers of the seed's stream."""
    generator = Generator("cpu").manual_seed(seed)
    generator.words(drawn)
    return generator.bernoulli_mask(shape, 1.0 - p)


def gpu_only(device):
    if device == "cpu":
        pytest.skip("on the CPU the mask is kept")


def counted_only(device):
    gpu_only(device)
    if not simulator.is_on():
        pytest.skip("counts are those of the simulator")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_and_gradients(device, dtype, shape):
    lucid.manual_seed(2**40 + 5)
    lucid.rand(9, device=device)
    mask = expected_mask(shape, 0.3, 2**40 + 5, 9)
    x = lucid.randn(*shape, dtype=lucid.float64, generator=lucid.Generator().manual_seed(1))
    x = x.to(dtype).to(device).requires_grad_()
    y = F.dropout(x, 0.3)
    rtol = 2 * float(lucid.finfo(dtype).eps)
    np.testing.assert_allclose(host(y), host(x) * mask / 0.7, rtol=rtol)
    assert y.dtype == dtype and y.shape == x.shape
    y.backward(lucid.full(shape, 2.0, dtype=dtype, device=device))
    np.testing.assert_allclose(host(x.grad), 2.0 * mask / 0.7, rtol=rtol)
    assert x.grad.dtype == dtype


def test_inputs_that_are_not_contiguous(device):
    mask = expected_mask((5, 4), 0.5, 3, 0)
    base = lucid.arange(1.0, 21.0, device=device).reshape(4, 5).requires_grad_()
    lucid.manual_seed(3)
    y = F.dropout(base.t(), 0.5)
    np.testing.assert_array_equal(host(y), host(base).T * mask * 2.0)
    y.sum().backward()    # a gradient without memory of its own
    np.testing.assert_array_equal(host(base.grad), mask.T * 2.0)
    lucid.manual_seed(3)
    wide = lucid.ones(5, 1, device=device).expand(5, 4)
    np.testing.assert_array_equal(host(F.dropout(wide, 0.5)), mask * 2.0)


def test_sixteen_bytes_are_kept(device):
    gpu_only(device)
    x = lucid.ones(1000, device=device, requires_grad=True)
    lucid.manual_seed(1)
    nodes = [F.dropout(x, 0.5).grad_fn for _ in range(2)]
    kept = [n.saved[0].array for n in nodes]
    assert [len(n.saved) for n in nodes] == [1, 1] and [a.nbytes for a in kept] == [16, 16]
    assert kept[0] is kept[1]    # draws of a seed share them
    lucid.manual_seed(2)
    again = F.dropout(x, 0.5).grad_fn.saved[0].array
    assert again is not kept[0] and int(kept[0][0]) == 1    # what is kept is not written to


def test_a_launch_each_way_and_nothing_to_wait_for(device):
    counted_only(device)
    x = lucid.ones(1000, device=device, requires_grad=True)
    g = lucid.ones(1000, device=device)
    F.dropout(x, 0.5)
    with simulator.counted() as counts:
        y = F.dropout(x, 0.5)
    assert counts == {"launches": 1, "raw": 1, "syncs": 0, "h2d_bytes": 0, "d2h_bytes": 0}
    with simulator.counted() as counts:
        lucid.autograd.grad(y, [x], g)
    assert counts == {"launches": 1, "raw": 1, "syncs": 0, "h2d_bytes": 0, "d2h_bytes": 0}


def test_masks_are_made_in_one_launch(device):
    counted_only(device)
    generator = Generator(device).manual_seed(2**33 + 1)
    generator.bernoulli_mask((1,), 0.5)
    draws = ((7, 9), 0.25), ((3,), 1.0), ((4, 1), 0.0)
    with simulator.counted() as counts:
        masks = [generator.bernoulli_mask(shape, p) for shape, p in draws]
    assert counts["launches"] == counts["raw"] == 3 and counts["h2d_bytes"] == 0
    reference = Generator("cpu").manual_seed(2**33 + 1)
    reference.bernoulli_mask((1,), 0.5)
    for mask, (shape, p) in zip(masks, draws, strict=True):
        np.testing.assert_array_equal(mask.get(), reference.bernoulli_mask(shape, p))
    assert generator.bernoulli_mask((0, 4), 0.5).shape == (0, 4)
    assert generator.get_state() == reference.get_state()


@pytest.mark.parametrize("name", ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout",
                                  "feature_alpha_dropout"])
def test_every_kind_is_that_of_the_cpu(device, name):
    shape = {"dropout1d": (5, 6, 7), "dropout3d": (5, 6, 2, 2, 2)}.get(name, (5, 6, 3, 3))
    x = np.random.default_rng(0).standard_normal(shape)
    found = []
    for place in ("cpu", device):
        lucid.manual_seed(21)
        t = lucid.tensor(x, device=place, requires_grad=True)
        y = getattr(F, name)(t, 0.4, training=True)
        y.square().sum().backward()
        found.append((host(y), host(t.grad), default_generator(place).get_state()))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-12)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-12)
    assert found[0][2] == found[1][2]


def test_higher_orders_and_repeated_passes(device):
    values = [0.5, -1.0, 2.0, 3.0, -0.25, 1.5]
    x = lucid.tensor(values, dtype=lucid.float64, device=device, requires_grad=True)
    lucid.manual_seed(5)
    m = expected_mask((6,), 0.4, 5, 0) / 0.6
    y = F.dropout(x * x, 0.4)
    (g,) = lucid.autograd.grad(y.sum(), [x], create_graph=True)
    (h,) = lucid.autograd.grad((g * x).sum(), [x], create_graph=True)
    (t,) = lucid.autograd.grad(h.sum(), [x])
    np.testing.assert_allclose(host(g), 2 * host(x) * m)
    np.testing.assert_allclose(host(h), 4 * host(x) * m)
    np.testing.assert_allclose(host(t), 4 * m)
    y = F.dropout(x, 0.4)
    first, second = (lucid.autograd.grad(y.sum(), [x], retain_graph=True)[0] for _ in range(2))
    assert lucid.equal(first, second)
    lucid.autograd.grad(y.sum(), [x])
    with pytest.raises(lucid.errors.FreedGraphError, match="retain_graph=True"):
        lucid.autograd.grad(y, [x], lucid.ones(6, dtype=lucid.float64, device=device))

    def draw(x):
        lucid.manual_seed(9)
        return F.dropout(x, 0.3)

    assert lucid.autograd.gradcheck(draw, (x,)) and lucid.autograd.gradgradcheck(draw, (x,))


def test_seeds_between_forward_and_backward_change_nothing(device):
    x = lucid.ones(40, device=device, requires_grad=True)
    lucid.manual_seed(1)
    y = F.dropout(x, 0.5)
    lucid.manual_seed(2)
    F.dropout(x, 0.5)
    y.backward(lucid.ones(40, device=device))
    assert lucid.equal(x.grad, y.detach())


def test_in_place(device):
    lucid.manual_seed(8)
    kept = lucid.ones(4, 9, device=device)
    out = F.dropout(kept, 0.5, inplace=True)
    assert out is kept
    np.testing.assert_array_equal(host(kept), 2.0 * expected_mask((4, 9), 0.5, 8, 0))
    lucid.manual_seed(8)
    x = lucid.ones(4, 9, device=device, requires_grad=True)
    y = x * 3.0
    F.dropout(y, 0.5, inplace=True)
    y.sum().backward()
    np.testing.assert_array_equal(host(x.grad), 6.0 * expected_mask((4, 9), 0.5, 8, 0))


def test_states_resume_bit_by_bit(device):
    x = lucid.ones(50, device=device)
    lucid.manual_seed(4)
    F.dropout(x, 0.5)
    state = default_generator(device).get_state()
    a, b = F.dropout(x, 0.5), F.dropout(x, 0.1)
    default_generator(device).set_state(state)
    assert lucid.equal(F.dropout(x, 0.5), a) and lucid.equal(F.dropout(x, 0.1), b)
    with lucid.random.fork_rng():
        lucid.manual_seed(99)
        F.dropout(x, 0.5)
    after = default_generator(device).get_state()
    default_generator(device).set_state(state)
    F.dropout(x, 0.5), F.dropout(x, 0.1)
    assert default_generator(device).get_state() == after


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_draws_the_same(device, reentrant):
    layer = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 3)).to(device)
    x = lucid.randn(5, 6, generator=lucid.Generator().manual_seed(1)).to(device).requires_grad_()
    found = []
    for run in (lambda x: checkpoint(layer, x, use_reentrant=reentrant), layer):
        lucid.manual_seed(6)
        out = run(x)
        grads = lucid.autograd.grad(out.sum(), [x]) if not reentrant else None
        if reentrant:
            x.grad = None
            out.sum().backward()
            grads = [x.grad]
        found.append((out, grads[0], default_generator(device).get_state()))
    assert lucid.equal(found[0][0], found[1][0]) and lucid.equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2]


def test_attention_and_transformer_draw_through_it(device):
    gpu_only(device)
    q = lucid.randn(2, 4, 8, device=device, requires_grad=True)
    nodes, seen = [F.scaled_dot_product_attention(q, q, q, dropout_p=0.5).grad_fn], []
    while nodes:
        n = nodes.pop()
        seen.append(n.node_name)
        nodes += [e.node for e in n.next_edges if e is not None]
    assert "seeded_dropout" in seen and "dropout" not in seen
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True).to(device)
    masks = []
    for place in ("cpu", device):
        lucid.manual_seed(13)
        x = lucid.ones(2, 3, 8, device=place)
        masks.append(host(nn.TransformerEncoderLayer.forward(layer.to(place), x)))
    np.testing.assert_allclose(masks[0], masks[1], rtol=1e-4, atol=1e-5)


def test_integers_and_complex_numbers(device):
    lucid.manual_seed(3)
    z = lucid.ones(30, dtype=lucid.complex64, device=device, requires_grad=True)
    mask = expected_mask((30,), 0.5, 3, 0)
    np.testing.assert_array_equal(F.dropout(z, 0.5).detach().cpu().numpy(), 2.0 * mask)


def test_a_captured_graph_draws_what_eager_work_would(device):
    gpu_only(device)
    generator = default_generator(device)
    x = lucid.ones(30, device=device, requires_grad=True)
    lucid.manual_seed(17)
    eager = [(F.dropout(x, 0.5), F.dropout(x, 0.25)) for _ in range(3)]
    end = generator.get_state()
    lucid.manual_seed(17)
    with generator.captured() as draws:
        first, second = F.dropout(x, 0.5).grad_fn, F.dropout(x, 0.25).grad_fn
    assert draws.blocks == 16 and generator.get_state() == (17, 0)
    ones = lucid.ones(30, device=device).storage.array
    for a, b in eager:    # the kernels again, with what they were given: as a launch of the graph does
        draws.advance()
        for node, want in ((first, a), (second, b)):
            np.testing.assert_array_equal(node.apply(ones)[0].get(), host(want))
    assert generator.get_state() == end
    assert F.dropout(x, 0.5).grad_fn.saved[0].array is not draws.state


def test_the_generic_form_agrees(device):
    """Where the kernel does not run: the same words by array arithmetic, without waiting for the device."""
    from lucid.ops.registry import OPS
    from lucid.storage.backend import backend_of

    backend = backend_of(device)
    state = backend.from_numpy(np.array([2**45 + 9, 2**33 - 2], "uint64"))
    generator = Generator("cpu").set_state((2**45 + 9, 2**33 + 3))
    for shape, keep in (((3, 11), 0.7), ((), 0.5), ((0,), 0.5), ((40_000,), 0.5), ((5,), 1.0)):
        with simulator.counted() if device != "cpu" and simulator.is_on() else nullcontext() as counts:
            mask = OPS["philox_mask"].forward(backend.xp, state, 5, shape, keep)
        assert counts is None or counts["syncs"] == 0
        generator.set_state((2**45 + 9, 2**33 + 3))
        np.testing.assert_array_equal(backend.to_numpy(mask), generator.bernoulli_mask(shape, keep))
        np.testing.assert_array_equal(
            backend.to_numpy(backend.F.philox_mask(state, 5, shape, keep)), backend.to_numpy(mask)
        )
    x = lucid.ones(33, device=device)
    out = RECORDED.seeded_dropout(x, lucid.tensor([7, 3], device=device), 2, 0.25)
    np.testing.assert_allclose(
        host(out), Generator("cpu").set_state((7, 5)).bernoulli_mask((33,), 0.75) / 0.75, rtol=1e-6
    )
