"""Sums by index on CUDA: the same bits in every order of threads, which the simulator's atomics do not give;
indices out of range are an error.
"""

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid.ops import rows
from lucid.storage import deferred
from lucid.testing import simulator

N = 3000
RNG = np.random.default_rng(0)
# Many additions to few places, of numbers whose sum depends on their order.
INDEX = RNG.integers(0, 7, N)
VALUES = RNG.standard_normal((N, 3)) * 10.0 ** RNG.integers(-3, 4, (N, 1))
DTYPES = (lucid.float32, lucid.float64, lucid.float16, lucid.bfloat16, lucid.complex64)


@pytest.fixture
def sim(device):
    if device == "cpu" or not simulator.is_on():
        pytest.skip("orders of threads are those of the simulator")
    return device


class Given:
    """The arrays of a test on a device: `src` [n, 3], `flat` [n], `index` [n], `table` [7, 3], `line` [7]."""

    def __init__(self, device, dtype):
        def real(values):
            values = np.asarray(values)
            if dtype is lucid.float16:
                values = np.clip(values, -100, 100)
            return lucid.tensor(values).to(dtype).to(device)

        self.src, self.flat = real(VALUES), real(VALUES[:, 0])
        self.index = lucid.tensor(INDEX, device=device)
        self.table, self.line = real(VALUES[:7]), real(VALUES[:7, 0])
        self.device, self.dtype = device, dtype


IMAGE = RNG.standard_normal((2, 3, 6, 6))


def backward(function, leaf, seed):
    """The gradient of `leaf` where the gradient of function(leaf) is `seed`."""
    leaf = leaf.detach().requires_grad_()
    return lucid.autograd.grad(function(leaf), [leaf], seed)[0]


def image_grad(function):
    def run(t):
        x = lucid.tensor(IMAGE).to(t.dtype).to(t.device).requires_grad_()
        y = function(x, t)
        seed = lucid.tensor(np.random.default_rng(4).standard_normal(y.shape)).to(y.dtype).to(t.device)
        return lucid.autograd.grad(y, [x], seed)[0]

    return run


def grid(t):
    return lucid.tensor(np.random.default_rng(5).uniform(-1, 1, (2, 40, 40, 2))).to(t.dtype).to(t.device)


REAL = {
    "embedding": lambda t: backward(lambda w: F.embedding(t.index, w), t.table, t.src),
    "embedding, padding": lambda t: backward(
        lambda w: F.embedding(t.index, w, padding_idx=3), t.table, t.src
    ),
    "embedding, by frequency": lambda t: backward(
        lambda w: F.embedding(t.index, w, scale_grad_by_freq=True), t.table, t.src
    ),
    "embedding_bag": lambda t: F.embedding_bag(t.index.reshape(3, -1), t.table, mode="mean"),
    "embedding_bag backward": lambda t: backward(
        lambda w: F.embedding_bag(t.index.reshape(1000, 3), w, mode="sum"), t.table, t.src[:1000]
    ),
    "embedding_bag, max": lambda t: backward(
        lambda w: F.embedding_bag(t.index.reshape(1000, 3), w, mode="max"), t.table, t.src[:1000]
    ),
    "scatter_reduce, mean": lambda t: t.line.scatter_reduce(0, t.index, t.flat, "mean"),
    "scatter_reduce, prod": lambda t: t.line.scatter_reduce(0, t.index, 1 + t.flat * 1e-4, "prod"),
    "scatter_reduce, amax": lambda t: backward(
        lambda s: t.line.scatter_reduce(0, t.index, s, "amax"), t.flat, t.line
    ),
    "index_reduce, mean": lambda t: t.table.index_reduce(0, t.index, t.src, "mean"),
    "grid_sample": image_grad(lambda x, t: F.grid_sample(x, grid(t), align_corners=False)),
    "interpolate": image_grad(lambda x, t: F.interpolate(x, size=(17, 23), mode="bicubic")),
    "adaptive_avg_pool": image_grad(lambda x, t: F.adaptive_avg_pool2d(x, (4, 5))),
    "max_pool": image_grad(lambda x, t: F.max_pool2d(x, 3, 1)),
    "replication": image_grad(lambda x, t: F.pad(x, (9, 9, 9, 9), mode="replicate")),
    "fold": image_grad(lambda x, t: F.unfold(x, 3)),
    "nll_loss": lambda t: backward(lambda x: F.nll_loss(x, t.index[:7] % 3), t.table, t.table[0, 0]),
    "one row at a time": lambda t: backward(lambda x: x[t.index, 1], t.table, t.flat),
}
EVERY = {
    "getitem": lambda t: backward(lambda x: x[t.index], t.table, t.src),
    "getitem, two arrays": lambda t: backward(lambda x: x[t.index, t.index % 3], t.table, t.flat),
    "getitem, second dimension": lambda t: backward(
        lambda x: x[:, t.index], t.table.t().contiguous(), t.src.t()
    ),
    "index_put": lambda t: t.table.index_put((t.index,), t.src, accumulate=True),
    "put": lambda t: (t.line * 1).put_(t.index, t.flat, accumulate=True),
    "take": lambda t: backward(lambda x: lucid.take(x, t.index), t.line, t.flat),
    "take_along_dim": lambda t: backward(
        lambda x: lucid.take_along_dim(x, t.index[:, None] % 7, 0), t.table[:, :1], t.flat[:, None]
    ),
    "gather": lambda t: backward(lambda x: lucid.gather(x, 0, t.index), t.line, t.flat),
    "index_select": lambda t: backward(lambda x: x.index_select(0, t.index), t.table, t.src),
    "index_select, second dimension": lambda t: backward(
        lambda x: x.index_select(1, t.index), t.table.t().contiguous(), t.src.t()
    ),
    "index_add": lambda t: t.table.index_add(0, t.index, t.src, alpha=0.5),
    "index_add, second dimension": lambda t: t.table.t().index_add(1, t.index, t.src.t()),
    "scatter_add": lambda t: t.line.scatter_add(0, t.index, t.flat),
    "scatter, add": lambda t: t.line.scatter(0, t.index, t.flat, reduce="add"),
    "as_strided": lambda t: backward(
        lambda x: x.as_strided((N, 1), (0, 1)), t.line, t.flat[:, None]
    ),
    "repeat_interleave": lambda t: backward(
        lambda x: x.repeat_interleave(lucid.tensor([400] * 7, device=t.device)), t.line, t.flat[:2800]
    ),
}
CASES = [(name, d) for name in EVERY for d in DTYPES] + [(name, d) for name in REAL for d in DTYPES[:4]]


def in_every_order(call):
    found = []
    for order, seed in simulator.ORDERS:
        with simulator.configured(order=order, seed=seed):
            out = call()
            found.append(out.detach().cpu())
    return found


@pytest.mark.parametrize("name, dtype", CASES, ids=lambda v: str(v))
def test_two_runs_give_the_same_bits(sim, name, dtype):
    t = Given(sim, dtype)
    first, *others = in_every_order(lambda: (EVERY.get(name) or REAL[name])(t))
    for other in others:
        assert first.numpy().tobytes() == other.numpy().tobytes()
    exact = (EVERY.get(name) or REAL[name])(
        Given("cpu", lucid.complex128 if dtype is lucid.complex64 else lucid.float64)
    )
    if dtype in (lucid.float32, lucid.float64, lucid.complex64):
        scale = float(exact.abs().max())
        np.testing.assert_allclose(first.numpy(), exact.numpy(), rtol=0, atol=1e-4 * scale)


@pytest.mark.parametrize("dtype", [lucid.float32, lucid.float64], ids=str)
def test_bins(sim, dtype):
    t = Given(sim, dtype)
    first, *others = in_every_order(lambda: lucid.bincount(t.index, t.flat, minlength=9))
    assert all(first.numpy().tobytes() == o.numpy().tobytes() for o in others)
    np.testing.assert_allclose(first.numpy(), np.bincount(INDEX, VALUES[:, 0], 9), rtol=1e-4, atol=1e-3)
    empty = lucid.bincount(lucid.tensor([], dtype=lucid.int64, device=sim), t.flat[:0], minlength=4)
    assert empty.tolist() == [0.0] * 4


def test_this_test_sees_atomics(sim, monkeypatch):
    """With the array library's additions, and with the atomic kernel, the orders differ."""
    t = Given(sim, lucid.float32)

    def differ(name):
        first, *others = in_every_order(lambda: EVERY[name](t))
        return any(first.numpy().tobytes() != o.numpy().tobytes() for o in others)

    for name in ("getitem", "scatter_add", "index_add"):
        lucid.use_deterministic_algorithms(False)
        try:
            assert differ(name)
            exact = EVERY[name](Given("cpu", lucid.float64)).numpy()
            np.testing.assert_allclose(EVERY[name](t).cpu().numpy(), exact, rtol=1e-3, atol=1)
        finally:
            lucid.use_deterministic_algorithms(True)
        assert not differ(name)
    monkeypatch.delitem(rows.ROW_SUMS, "cupy")
    assert differ("getitem") and differ("scatter_add")
    import cupy

    def library_bins():
        flat = Given(sim, lucid.float64).flat
        return lucid.from_numpy(cupy.bincount(t.index.storage.array, weights=flat.storage.array).get())

    first, *others = in_every_order(library_bins)
    assert any(first.numpy().tobytes() != o.numpy().tobytes() for o in others)


def test_atomics_on_request_alone(sim):
    assert lucid.are_deterministic_algorithms_enabled()
    t = Given(sim, lucid.bfloat16)
    expected = REAL["embedding, by frequency"](Given("cpu", lucid.float64)).numpy()
    try:
        lucid.use_deterministic_algorithms(False, warn_only=True)
        assert not lucid.are_deterministic_algorithms_enabled()
        out = REAL["embedding, by frequency"](t).cpu().double().numpy()
        np.testing.assert_allclose(out, expected, atol=0.02 * np.abs(expected).max())
        with simulator.counted() as counts:
            EVERY["scatter_add"](t)
        atomic = counts["launches"]
    finally:
        lucid.use_deterministic_algorithms(True)
    with simulator.counted() as counts:
        EVERY["scatter_add"](t)
    assert counts["launches"] > atomic and counts["syncs"] == 0


def test_max_unpool_keeps_the_last_of_a_place(device):
    x = lucid.tensor([[[1.0, 2.0, 3.0, 4.0]]], device=device, requires_grad=True)
    index = lucid.tensor([[[5, 2, 5, 0]]], device=device)
    out = F.max_unpool1d(x, index, 2)
    assert out.tolist() == [[[4.0, 0.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0]]]
    out.sum().backward()
    assert x.grad.tolist() == [[[1.0] * 4]]
    for bad in (8, -1):
        with pytest.raises(lucid.errors.ShapeError, match=f"lies outside the output size.*found {bad}"):
            F.max_unpool1d(x, lucid.tensor([[[bad, 2, 5, 0]]], device=device), 2)
            lucid.cuda.synchronize()


def one(d, *shape):
    return lucid.ones(*shape, device=d, requires_grad=True)


# Indexing with [0, bad] or [2, bad] into 3 places.
BAD = {
    "take": lambda d, i: lucid.take(one(d, 3), i),
    "take_along_dim": lambda d, i: lucid.take_along_dim(one(d, 3), i, 0),
    "getitem": lambda d, i: one(d, 4, 3)[:, i],
    "index_put": lambda d, i: one(d, 3).index_put((i,), one(d, 2), accumulate=True),
    "index_add": lambda d, i: one(d, 3, 2).index_add(0, i, one(d, 2, 2)),
    "index_fill": lambda d, i: one(d, 3, 2).index_fill(0, i, 2.0),
    "index_copy": lambda d, i: one(d, 3, 2).index_copy(0, i, one(d, 2, 2)),
    "index_reduce": lambda d, i: one(d, 3, 2).index_reduce(0, i, one(d, 2, 2), "mean"),
    "scatter": lambda d, i: one(d, 3).scatter(0, i, 2.0),
    "scatter_src": lambda d, i: one(d, 3).scatter(0, i, one(d, 2)),
    "scatter_add": lambda d, i: one(d, 3).scatter_add(0, i, one(d, 2)),
    **{
        f"scatter_reduce, {r}": lambda d, i, r=r: one(d, 3).scatter_reduce(0, i, one(d, 2), r)
        for r in ("sum", "mean", "prod", "amax", "amin")
    },
    "put": lambda d, i: (one(d, 3) * 1).put_(i, one(d, 2), accumulate=True),
    "embedding_bag": lambda d, i: F.embedding_bag(i[None], one(d, 3, 2)),
    "embedding_bag, max": lambda d, i: F.embedding_bag(i[None], one(d, 3, 2), mode="max"),
    "nll_loss": lambda d, i: F.nll_loss(one(d, 2, 3), i),
    "nll_loss of images": lambda d, i: F.nll_loss(one(d, 1, 3, 2), i[None]),
    "multi_margin_loss": lambda d, i: F.multi_margin_loss(one(d, 2, 3), i),
    "one_hot": lambda d, i: F.one_hot(i, 3),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("bad", [3, -4])
@pytest.mark.parametrize("blocking", [False, True], ids=["later", "at once"])
def test_out_of_range_is_an_error(device, name, bad, blocking):
    before = deferred.blocking()
    deferred.blocking(blocking)
    try:
        # What is out of range points to the nearest end until then: the other index to the other one, since a
        # place written twice is undefined on CUDA.
        index = lucid.tensor([2 if bad < 0 else 0, bad], device=device)
        with pytest.raises(lucid.errors.IndexRangeError, match=f"{bad}"):
            out = BAD[name](device, index)
            if out.requires_grad:
                out.sum().backward()
            out.cpu()
    finally:
        deferred.blocking(before)
        deferred._noted.clear()
