"""The generator (published vectors, equal draws in any cut, distributions, threads, state) and the creation
functions.
"""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import lucid
from lucid.errors import DtypeError, InplaceError, ShapeError
from lucid.storage import random as raw
from lucid.storage.random import Generator, default_generator

# Random123 1.14, kat_vectors: philox4x32 with 10 rounds; counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def _fresh(seed=0):
    return Generator("cpu").manual_seed(seed)


def _philox_python(counter, key):
    # The algorithm with Python integers, word by word, after Salmon et al. 2011.
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_published_vectors(counter, key, expected):
    even = np.array([[counter[0]], [counter[2]]], "uint64")
    odd = np.array([[counter[1]], [counter[3]]], "uint64")
    even, odd = raw.philox(np, even, odd, key[0] | key[1] << 32)
    assert (even[0, 0], odd[0, 0], even[1, 0], odd[1, 0]) == expected
    assert tuple(_philox_python(counter, key)) == expected


def test_the_stream_is_the_documented_one():
    seed, n = (123 << 32) | 456, 4 * raw.CPU_BLOCK + 10
    words = _fresh(seed).words(n)
    for i in (0, 1, 2, 3, 4, 4 * raw.CPU_BLOCK - 1, 4 * raw.CPU_BLOCK, n - 1):
        assert words[i] == _philox_python((i // 4, 0, 0, 0), (456, 123))[i % 4]
    far = Generator("cpu").set_state((seed, (1 << 32) + 5)).words(4)
    assert far.tolist() == _philox_python((5, 1, 0, 0), (456, 123))


def test_draws_do_not_depend_on_how_they_are_cut():
    whole = _fresh(5).words(100_000)
    g = _fresh(5)
    parts = [g.words(n) for n in (4, 40, 32_000, 65_536, 2_420)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    a, b = _fresh(5), _fresh(5)
    np.testing.assert_array_equal(a.uniform((70_000,))[:40_000], b.uniform((40_000,)))
    assert _fresh(1).words(8).tolist() != _fresh(2).words(8).tolist()


def test_the_words_of_a_draw_are_its_own():
    g = _fresh()
    a = g.uniform((5,))
    assert g.get_state() == (0, 2)
    kept = a.copy()
    g.uniform((100_000,))
    a += 1
    np.testing.assert_array_equal(_fresh().uniform((5,)), kept)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_distributions(dtype):
    g, n = _fresh(3), 200_000

    def near(values, mean, std, tolerance=0.01):
        values = values.astype("float64")
        assert abs(values.mean() - mean) < tolerance and abs(values.std() - std) < tolerance

    u = g.uniform((n,), dtype=dtype)
    assert u.dtype == lucid.zeros(1, dtype=dtype).dtype and u.min() >= 0 and u.max() < 1
    near(u, 0.5, 12**-0.5)
    near(g.uniform((n,), -3.0, -1.0, dtype), -2.0, 3**-0.5)
    z = g.normal((n,), dtype=dtype)
    near(z, 0.0, 1.0)
    z = z.astype("float64")
    assert abs((z**3).mean()) < 0.05 and abs((z**4).mean() - 3.0) < 0.1
    assert abs((z[::2] * z[1::2]).mean()) < 0.01  # The two halves of a Box-Muller pair.
    assert abs((np.abs(z) > 3).mean() - 0.0027) < 0.0008
    near(g.normal((n,), 4.0, 0.5, dtype), 4.0, 0.5, 0.02)
    e = g.exponential((n,), 2.0, dtype)
    assert e.min() > 0
    near(e, 0.5, 0.5)


def test_normals_follow_scipy():
    from scipy import stats

    for dtype in ("float32", "float64"):
        assert stats.kstest(_fresh(1).normal((50_000,), dtype=dtype), "norm").pvalue > 1e-3
        assert stats.kstest(_fresh(2).uniform((50_000,), dtype=dtype), "uniform").pvalue > 1e-3
        assert stats.kstest(_fresh(3).exponential((50_000,), dtype=dtype), "expon").pvalue > 1e-3


def test_uniform_never_reaches_the_upper_end():
    g = _fresh()
    for low, high in ((1.0, 1.0000002), (-1e8, 1e8), (5.0, 5.0)):
        u = g.uniform((10_000,), low, high)
        assert u.min() >= np.float32(low) and (u.max() < np.float32(high) or low == high)


def test_masks_integers_permutations():
    g = _fresh(1)
    mask = g.bernoulli_mask((100_000,), 0.3)
    assert mask.dtype == bool and abs(mask.mean() - 0.3) < 0.006
    assert g.bernoulli_mask((9,), 1.0).all() and not g.bernoulli_mask((9,), 0.0).any()
    np.testing.assert_array_equal(_fresh(4).bernoulli_mask((64,), 0.25), _fresh(4).words(64) < 2**30)
    counts = np.bincount(g.integers(-2, 5, (70_000,)) + 2)
    assert len(counts) == 7 and np.abs(counts - 10_000).max() < 400
    big = g.integers(-(2**63), 2**63, (1000,))
    assert big.min() < -(2**62) and big.max() > 2**62
    wide = g.integers(0, 2**40, (1000,))
    assert wide.min() >= 0 and 2**39 < wide.max() < 2**40
    p = g.permutation(1000)
    assert sorted(p.tolist()) == list(range(1000)) and p.dtype == np.int64
    orders = [tuple(g.permutation(3).tolist()) for _ in range(6000)]
    assert min(orders.count(o) for o in set(orders)) > 850 and len(set(orders)) == 6
    with pytest.raises(ShapeError, match="low=3, high=3"):
        g.integers(3, 3, (1,))
    with pytest.raises(ShapeError, match="probability"):
        g.bernoulli_mask((1,), 1.5)
    assert g.uniform(()).shape == () and g.normal((0, 3)).shape == (0, 3) and g.permutation(0).size == 0


def test_state_and_copies():
    g = _fresh(9)
    g.normal((7,))
    state = g.get_state()
    a = g.uniform((5,))
    for other in (Generator("cpu").set_state(state), Generator("cpu").set_state(list(state))):
        np.testing.assert_array_equal(other.uniform((5,)), a)
    g.set_state(state)
    for other in (pickle.loads(pickle.dumps(g)), copy.deepcopy(g), g.clone_state()):
        np.testing.assert_array_equal(other.uniform((5,)), a)
    assert g.initial_seed() == 9 and _fresh(-1).initial_seed() == 2**64 - 1
    assert g.seed() == g.initial_seed()
    with pytest.raises(DtypeError):
        g.manual_seed(2**64)
    with pytest.raises(DtypeError):
        g.set_state("x")
    with pytest.raises(DtypeError, match="randint"):
        g.uniform((1,), dtype="int64")


def test_threads_draw_disjoint_parts():
    g, found = _fresh(2), []

    def draw():
        for _ in range(50):
            found.append(g.words(1000))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.sort(_fresh(2).words(200_000)))


def test_default_generators_and_fork():
    lucid.manual_seed(11)
    assert lucid.initial_seed() == 11 and lucid.get_rng_state() == (11, 0)
    a = lucid.rand(4)
    state = lucid.get_rng_state()
    with lucid.random.fork_rng():
        lucid.manual_seed(1)
        lucid.rand(3)
    assert lucid.get_rng_state() == state
    restored = raw.fork_default_generators((a,))
    b = lucid.rand(4)
    now = lucid.get_rng_state()
    with restored():
        np.testing.assert_array_equal(lucid.rand(4).numpy(), b.numpy())
    assert lucid.get_rng_state() == now
    lucid.set_rng_state(state)
    np.testing.assert_array_equal(lucid.rand(4).numpy(), b.numpy())
    assert default_generator("cpu") is default_generator()


# ---- creation ----


def test_filled():
    assert (
        lucid.zeros(2, 3).tolist() == [[0.0] * 3] * 2
        and lucid.zeros((2,)).shape == (2,)
        and lucid.zeros([]).shape == ()
    )
    assert lucid.ones(2, dtype="int32").dtype == lucid.int32 and lucid.empty(3, 0).shape == (3, 0)
    for value, dtype in ((True, lucid.bool), (2, lucid.int64), (2.0, lucid.float32), (1j, lucid.complex64)):
        t = lucid.full((2,), value)
        assert t.dtype == dtype and t.tolist() == [value, value]
    x = lucid.ones(2, 3, dtype="float64")
    for t in (
        lucid.zeros_like(x),
        lucid.ones_like(x),
        lucid.empty_like(x),
        lucid.full_like(x, 3),
        x.new_zeros(2, 3),
        x.new_ones((2, 3)),
        x.new_empty(2, 3),
        x.new_full((2, 3), 3),
    ):
        assert t.shape == (2, 3) and t.dtype == lucid.float64
    assert (
        lucid.full_like(x, 3).tolist()[0] == [3.0] * 3
        and lucid.zeros_like(x, dtype="int64").dtype == lucid.int64
    )
    assert x.new_tensor([1, 2]).dtype == lucid.float64
    assert lucid.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]] and lucid.eye(2).shape == (2, 2)
    assert lucid.zeros(2, requires_grad=True).requires_grad
    out = lucid.zeros(3)
    buffer = out.array
    assert (
        lucid.ones(3, out=out) is out
        and out.array is buffer
        and out.tolist() == [1.0] * 3
        and out.storage.version == 1
    )
    strided = lucid.empty_strided((2, 3), (1, 2))
    assert strided.stride() == (1, 2)
    with pytest.raises(ShapeError, match=r"sizes >= 0, got \(-1,\)"):
        lucid.zeros(-1)
    with pytest.raises(DtypeError):
        lucid.zeros(2, dtype="int64", requires_grad=True)


def test_ranges_equal_torch():
    torch = pytest.importorskip("torch")
    for args in ((5,), (2, 7), (1, 10, 3), (5, 0, -2), (0, 1, 0.1), (1.0, 2.0, 0.3), (0.5,), (0,), (3, 3)):
        a, b = lucid.arange(*args), torch.arange(*args)
        assert a.dtype.name == str(b.dtype)[6:]
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
    for args in ((0, 1, 5), (3.0, -2.0, 4), (1, 1, 1), (0, 1, 0)):
        np.testing.assert_allclose(lucid.linspace(*args).numpy(), torch.linspace(*args).numpy(), rtol=1e-6)
        np.testing.assert_allclose(
            lucid.logspace(*args, base=2).numpy(), torch.logspace(*args, base=2).numpy(), rtol=1e-6
        )
    assert lucid.arange(3, dtype="float64").dtype == lucid.float64
    for bad in (
        lambda: lucid.arange(0, 5, 0),
        lambda: lucid.arange(0, 5, -1),
        lambda: lucid.arange(float("nan")),
        lambda: lucid.linspace(0, 1, -1),
    ):
        with pytest.raises(ShapeError):
            bad()


def test_from_data_shares_or_copies():
    a = np.arange(3.0)
    t = lucid.from_numpy(a)
    a[0] = 7
    assert t.tolist() == [7, 1, 2]
    assert lucid.as_tensor(a).array is a and lucid.as_tensor(t) is t and lucid.asarray(t) is t
    assert lucid.as_tensor(a, dtype="float32").dtype == lucid.float32
    assert lucid.asarray(a, copy=True).array is not a
    with pytest.raises(ValueError, match="copy=False"):
        lucid.asarray([1.0], copy=False)
    d = lucid.from_dlpack(a)
    a[1] = 9
    assert d.tolist() == [7, 9, 2] and np.from_dlpack(t)[1] == 9
    assert lucid.frombuffer(b"\x01\x00\x02\x00", dtype="int16").tolist() == [1, 2]
    for bad in (np.array(["x"]), [1.0], np.arange(3, dtype=">f4")):
        with pytest.raises(DtypeError):
            lucid.from_numpy(bad)


def test_limits():
    assert (
        lucid.finfo().eps == 2.0**-23
        and lucid.finfo(lucid.bfloat16).eps == 2.0**-7
        and lucid.finfo("float64").bits == 64
    )
    assert lucid.finfo(lucid.bfloat16).max > 3e38 and lucid.finfo(lucid.complex128).eps == 2.0**-52
    assert lucid.iinfo("int8").min == -128 and type(lucid.iinfo("int64").max) is int
    for function, dtype in ((lucid.finfo, "int32"), (lucid.iinfo, "float32")):
        with pytest.raises(DtypeError):
            function(dtype)


def test_filling_in_place():
    x = lucid.zeros(1000)
    for fill in (
        lambda: x.uniform_(2.0, 3.0),
        lambda: x.normal_(1.0, 0.1),
        lambda: x.exponential_(2.0),
        lambda: x.bernoulli_(0.5),
        lambda: x.random_(10),
        lambda: x.zero_(),
        lambda: x.fill_(3),
        lambda: x.geometric_(0.5),
        lambda: x.cauchy_(),
        lambda: x.log_normal_(0.0, 0.5),
    ):
        version, buffer, before = x.storage.version, x.array, x.numpy().copy()
        assert fill() is x and x.storage.version > version and x.array is buffer
        assert not np.array_equal(x.numpy(), before)
    assert lucid.zeros(5, dtype="int64").fill_(2.7).tolist() == [2] * 5
    integers = lucid.zeros(2000, dtype="uint8").random_()
    assert integers.numpy().max() == 255 and integers.random_(3, 5).numpy().min() == 3
    assert set(lucid.zeros(100, dtype="bool").random_().tolist()) == {True, False}
    for bad in (
        lambda: x.uniform_(3, 2),
        lambda: x.normal_(0, -1),
        lambda: x.exponential_(0),
        lambda: x.fill_(lucid.ones(2)),
    ):
        with pytest.raises(ShapeError):
            bad()
    leaf = lucid.ones(2, requires_grad=True)
    for name in ("zero_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_"):
        with pytest.raises(InplaceError, match=name):
            getattr(leaf, name)()
    with lucid.no_grad():
        leaf.zero_()
    assert leaf.tolist() == [0.0, 0.0] and leaf.requires_grad


def test_gradients_after_filling():
    x = lucid.ones(3, requires_grad=True)
    y = x * 2.0
    y.zero_()
    (y * 3.0 + x).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    source = lucid.tensor([float("nan"), 1.0], requires_grad=True)
    filled = (source * 2.0).fill_(3.0)
    filled.sum().backward()
    assert filled.tolist() == [3.0, 3.0] and source.grad.tolist() == [0.0, 0.0]
    value = lucid.tensor(2.0, requires_grad=True)
    z = lucid.zeros(4)
    z.fill_(value)
    z.sum().backward()
    assert value.grad.item() == 4.0


def test_random_tensors():
    lucid.manual_seed(0)
    assert lucid.rand(2, 3).shape == (2, 3) and lucid.randn((4,), dtype="float64").dtype == lucid.float64
    g = lucid.Generator().manual_seed(4)
    np.testing.assert_array_equal(lucid.randn(5, generator=g).numpy(), _fresh(4).normal((5,)))
    z = lucid.randn(20_000, dtype="complex64").numpy()
    assert abs((np.abs(z) ** 2).mean() - 1.0) < 0.05
    r = lucid.randint(3, (100,))
    assert (
        r.dtype == lucid.int64
        and set(r.tolist()) == {0, 1, 2}
        and set(lucid.randint(-1, 1, (50,), dtype="int8").tolist()) == {-1, 0}
    )
    assert sorted(lucid.randperm(5).tolist()) == [0, 1, 2, 3, 4]
    x = lucid.zeros(2, 3, dtype="float64")
    for t in (lucid.rand_like(x), lucid.randn_like(x), lucid.randint_like(x, 5)):
        assert t.shape == (2, 3) and t.dtype == lucid.float64
    n = lucid.normal(lucid.tensor([0.0, 100.0]), lucid.tensor([1.0, 0.0]))
    assert n.shape == (2,) and n[1].item() == 100.0
    assert lucid.normal(5.0, 0.0, (2,)).tolist() == [5.0, 5.0]
    assert lucid.rand(3, requires_grad=True).requires_grad
    with pytest.raises(ShapeError, match="randint"):
        lucid.randint(3, 5)


def test_bernoulli_multinomial_poisson():
    lucid.manual_seed(1)
    p = lucid.tensor([0.0, 1.0, 0.25])
    rows = lucid.bernoulli(p.new_ones(10_000, 3) * p)
    np.testing.assert_allclose(rows.numpy().mean(0), [0.0, 1.0, 0.25], atol=0.02)
    assert p.bernoulli(1.0).tolist() == [1.0] * 3
    with pytest.raises(ShapeError):
        lucid.bernoulli(lucid.tensor([1.5]))
    weights = lucid.tensor([[0.0, 1.0, 3.0], [2.0, 0.0, 0.0]])
    many = lucid.multinomial(weights, 4000, replacement=True).numpy()
    assert (
        many.shape == (2, 4000)
        and set(many[0]) == {1, 2}
        and set(many[1]) == {0}
        and abs((many[0] == 2).mean() - 0.75) < 0.03
    )
    pairs = [tuple(lucid.multinomial(weights[0], 2).tolist()) for _ in range(400)]
    assert set(pairs) == {(1, 2), (2, 1)} and pairs.count((2, 1)) > pairs.count((1, 2))
    for bad in (
        lambda: lucid.multinomial(weights, 2),
        lambda: lucid.multinomial(weights[0], 4),
        lambda: lucid.multinomial(-weights, 1, True),
        lambda: lucid.multinomial(lucid.tensor([1, 2]), 1),
    ):
        with pytest.raises(ShapeError):
            bad()
    k = lucid.poisson(lucid.ones(20_000) * 3.0)
    assert (
        k.dtype == lucid.float32 and abs(k.numpy().mean() - 3.0) < 0.06 and abs(k.numpy().var() - 3.0) < 0.15
    )
