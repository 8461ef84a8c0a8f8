"""Activations, bias gradients, dropout, and the header that all kernels share, against the
generic formulas in float64.
"""

import numpy as np
import pytest

from lucid.kernel import calls
from lucid.kernel.specs import ACTIVATIONS
from lucid.ops.registry import OPS
from lucid.storage.backend import backend_of
from lucid.storage.dtype import as_dtype
from lucid.storage.random import Generator, philox_words
from lucid.testing import cusim
from tests.kernels.sim import DTYPES, ORDERS, Sim, aligned, device, judge, normal, wide

# Vector body, odd tail, and (offset 1) an address that is no multiple of 16.
SIZES = ((1, 0), (7, 0), (64, 0), (1031, 0), (1031, 1), (40000, 0))


def _op(name):
    return OPS["gelu" if name == "gelu_tanh" else name], {"approximate": "tanh"} if name == "gelu_tanh" else {
        "negative_slope": 0.3
    } if name == "leaky_relu" else {}


def _by_out(name):
    return name in ("relu", "tanh", "sigmoid")


def _plain(name, g, v):
    op, statics = _op(name)
    function = op.formulas["x"].function
    if name == "gelu":
        statics = {"approximate": "none"}
    F = backend_of("cpu").F
    return np.asarray(function(F, g, v, *statics.values()), g.dtype)


def _value(name, x):
    op, statics = _op(name)
    return (
        np.asarray(op.raw(backend_of("cpu"))(x, **statics), x.dtype)
        if op.ufunc or not statics
        else np.asarray(op.forward(np, x, **statics), x.dtype)
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_backward(name, dtype):
    for n, offset in SIZES[:5]:
        g, x = normal(n, dtype, 1, offset), normal(n, dtype, 2, offset, scale=3.0)
        v = device(_value(name, x), offset) if _by_out(name) else x
        exact, plain = _plain(name, *wide(g, v)), _plain(name, g, v)
        for order, seed in ORDERS if n == 1031 else ORDERS[2:3]:
            judge(
                calls.activation_backward(Sim(order, seed), name, g, v, 0.3),
                exact,
                plain,
                f"{name} {dtype} n={n} {order}",
            )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ("leaky_relu", "sigmoid", "silu", "gelu", "gelu_tanh"))
def test_forward(name, dtype):
    for n, offset in SIZES[:5]:
        x = normal(n, dtype, 2, offset, scale=4.0)
        judge(
            calls.activation(Sim(), name, x, 0.3),
            _value(name, *wide(x)),
            _value(name, x),
            f"{name} {dtype} n={n}",
        )


@pytest.mark.parametrize("name", ("relu", "silu", "gelu", "sigmoid"))
def test_special_values(name):
    x = device(np.array([0.0, -0.0, np.nan, 50.0, -50.0, 1e30, -1e30, 1.0], np.float32))
    g = device(np.ones(8, np.float32))
    v = device(_value(name, x)) if _by_out(name) else x
    np.testing.assert_allclose(
        calls.activation_backward(Sim(), name, g, v), _plain(name, *wide(g, v)), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ("relu", "gelu", "leaky_relu"))
def test_bias_grad(name, dtype):
    for rows, cols, offset in ((1, 3, 0), (9, 64, 0), (300, 260, 0), (131, 33, 0), (200, 48, 1)):
        g, x = normal((rows, cols), dtype, 1, offset), normal((rows, cols), dtype, 2, offset)
        v = device(np.maximum(x, x.dtype.type(0)), offset) if name == "relu" else x
        exact = _plain(name, *wide(g, v))
        plain = _plain(name, g, v)
        plain_sum = plain.sum(0, dtype="float32" if plain.itemsize == 2 else plain.dtype).astype(plain.dtype)
        for order, seed in ORDERS:
            dz, db = calls.activation_bias_grad(Sim(order, seed), name, g, v, 0.3)
            judge(dz, exact, plain, f"{name} dz {dtype} {rows}x{cols}")
            judge(db, exact.sum(0), plain_sum, f"{name} db {dtype} {rows}x{cols}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_column_sum(dtype):
    for rows, cols, offset in ((1, 1, 0), (500, 136, 0), (77, 35, 0), (64, 32, 1)):
        g = normal((rows, cols), dtype, 1, offset)
        plain = g.sum(0, dtype="float32" if g.itemsize == 2 else g.dtype).astype(g.dtype)
        results = [calls.column_sum(Sim(order, seed), g) for order, seed in ORDERS]
        judge(results[0], wide(g)[0].sum(0), plain, f"{dtype} {rows}x{cols}")
        for other in results[1:]:
            np.testing.assert_array_equal(other, results[0], err_msg="depends on the order of threads")


@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_scale_and_copy(dtype):
    for n, offset in SIZES[:5]:
        x, mask = normal(n, dtype, 3, offset), np.random.default_rng(4).random(n) < 0.5
        judge(
            calls.masked_scale(Sim(), x, device(mask), 1 / 0.7),
            wide(x)[0] * mask / 0.7,
            x * mask * x.dtype.type(1 / 0.7),
            f"{dtype} n={n}",
        )
        np.testing.assert_array_equal(calls.copy(Sim(), x), x)


# ---- dropout ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_is_the_generators_mask(dtype):
    for n, offset, keep in (
        (1, 0, 0.5),
        (6, 0, 0.5),
        (1027, 0, 0.8),
        (1027, 1, 0.8),
        (33, 0, 1.0 - 2.0**-40),
    ):
        generator = Generator("cpu").manual_seed((7 << 40) + 11)
        generator.words(8)
        state = device(np.array(generator.get_state(), np.uint64))
        mask = generator.bernoulli_mask((n,), keep)
        x = normal(n, dtype, 5, offset)
        for order, seed in ORDERS[1:3]:
            out = calls.dropout(Sim(order, seed), x, state, keep)
            np.testing.assert_array_equal(np.asarray(out, "f8") != 0, mask)
            judge(out, wide(x)[0] * mask / keep, x * mask * x.dtype.type(1 / keep), f"{dtype} n={n}")
            np.testing.assert_array_equal(
                calls.dropout_mask(Sim(order, seed), (n,), state, keep, x.dtype), mask
            )
            # The same place, counted from another.
            for first, skip in ((0, 2), (2**64 - 3, 5)):
                origin = device(np.array([(7 << 40) + 11, first], np.uint64))
                np.testing.assert_array_equal(calls.dropout(Sim(order, seed), x, origin, keep, skip), out)
                np.testing.assert_array_equal(
                    calls.dropout_mask(Sim(order, seed), (n,), origin, keep, x.dtype, skip), mask
                )


# ---- lucid.cuh ----


_PROBE = """#include "lucid.cuh"
KERNEL there(const scalar_t* x, accum_t* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = up(x[i]);
}
KERNEL back(const accum_t* x, scalar_t* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = down(x[i]);
}
KERNEL words(u32* out, u64 block, u64 seed, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    const uint4 w = philox(block + i, seed);
    out[4 * i] = w.x; out[4 * i + 1] = w.y; out[4 * i + 2] = w.z; out[4 * i + 3] = w.w;
  }
}
KERNEL picked(u32* out, const u64* state, u64 skip, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    out[i] = word_of(state, skip, i, 0);
    out[n + i] = word_of(state, skip, i / PACK * PACK, i % PACK);
    out[2 * n + i] = word_of(state, skip, (5ll << 34) + i, 0);
  }
}
"""


def _probe(dtype):
    from lucid.kernel import loader

    return cusim.Module(_PROBE, loader.options(dtype), filename="probe.cu")


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_conversions_are_exact_for_every_bit_pattern(dtype):
    bits = np.arange(1 << 16, dtype=np.uint16)
    x, out = bits.view(as_dtype(dtype)), aligned(1 << 16, np.float32)
    m = _probe(dtype)
    m.launch("there", 1, 256, (x, out, np.int32(x.size)))
    np.testing.assert_array_equal(out, x.astype(np.float32))


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_rounding_is_to_nearest_even(dtype):
    kind = as_dtype(dtype)
    values = np.arange(1 << 16, dtype=np.uint16).view(kind).astype(np.float32)
    between = (values[:-1].astype("f8") + values[1:].astype("f8")) / 2
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            values,
            between.astype(np.float32),
            rng.integers(0, 1 << 32, 200000, dtype=np.uint32).view(np.float32),
        ]
    )
    x = x[np.abs(x) >= 2.0**-126]
    x = np.concatenate(
        [x, np.array([0.0, np.nan, np.inf, -np.inf, 65519.0, 65520.0, 6e-8, 2.9e-8], np.float32)]
    )
    out = aligned(x.size, kind)
    _probe(dtype).launch("back", 1, 256, (x, out, np.int32(x.size)))
    expected = x.astype(kind)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(out[number].view(np.uint16), expected[number].view(np.uint16))
    assert np.isnan(out[~number].astype("f4")).all()


def test_philox_is_the_generators_stream():
    m, out = _probe("float32"), aligned(400, np.uint32)
    for block, seed in ((0, 0), (3, 1), ((1 << 33) + 5, (9 << 50) + 77), ((1 << 32) - 40, 2**64 - 1)):
        m.launch("words", 1, 64, (out, np.uint64(block), np.uint64(seed), np.int32(100)))
        np.testing.assert_array_equal(out, philox_words(np, seed, block, 100))
    state = device(np.array([7, 1 << 33], np.uint64))
    words, far = (philox_words(np, 7, (1 << 33) + 5 + skip, 25) for skip in (0, 5 << 32))
    for dtype in ("float32", "bfloat16"):
        picked = aligned(300, np.uint32)
        _probe(dtype).launch("picked", 1, 64, (picked, state, np.uint64(5), np.int32(100)))
        np.testing.assert_array_equal(picked, np.concatenate([words, words, far]))
    m.launch("words", 1, 64, (out, np.uint64(0), np.uint64(0), np.int32(100)))
    assert [hex(w) for w in out[:4]] == [
        "0x6627e8d5",
        "0xe169c58d",
        "0xbc57ac4c",
        "0x9b00dbd8",
    ]  # Random123's known answer
