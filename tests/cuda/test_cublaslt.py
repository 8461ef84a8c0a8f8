"""What cublasLt is asked for: golden descriptors, and results of a stand-in that reads them."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

import lucid
from lucid.kernel import cublaslt, products
from lucid.kernel import cublaslt_api as api
from lucid.kernel.products import Product
from lucid.storage import backend_of

DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
# CUDA_R_32F, ..., CUBLAS_COMPUTE_*: written out, not taken from the tables that are tested.
GOLDEN = {
    "float32": (0, 68, 0),
    "float64": (1, 70, 1),
    "float16": (2, 68, 0),
    "bfloat16": (14, 68, 0),
    "complex64": (4, 68, 4),
    "complex128": (5, 70, 5),
}
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "complex64": 1e-5}


@pytest.fixture
def library(cuda, simulated):
    from lucid.testing.strictcupy.cublaslt import LIBRARY

    products.forget()
    LIBRARY.calls.clear()
    LIBRARY.why.clear()
    with products.using("cublaslt"):
        yield LIBRARY
    assert not LIBRARY.why, LIBRARY.why
    products.forget()


def array(shape, dtype="float32", seed=0):
    """A device array of normal numbers."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * rng.standard_normal(shape)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return backend_of("cuda").xp.asarray(values.astype(kind))


def wide(x):
    """The array on the host, in double precision."""
    host = x.get()
    return host.astype(np.complex128 if host.dtype.kind == "c" else np.float64)


def close(got, want, dtype):
    tolerance = TOLERANCE.get(dtype, 1e-12)
    np.testing.assert_allclose(wide(got), want, rtol=tolerance, atol=tolerance * max(1, np.abs(want).max()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_descriptors_of_a_plain_product(library, dtype):
    x, y = array((3, 5), dtype), array((5, 4), dtype, 1)
    out = products.matmul(x, y)
    (call,) = library.calls
    type_, compute, scale = GOLDEN[dtype]
    # out^T [4, 3] = y^T [4, 5] x^T [5, 3], column by column: nothing is transposed.
    assert call.operation == {
        "compute": compute,
        "scale": scale,
        "transa": 0,
        "transb": 0,
        "epilogue": 1,
        "bias": 0,
    }
    one = {"type": type_, "batch": 1, "step": 0}
    assert call.a == one | {"rows": 4, "cols": 5, "ld": 4}
    assert call.b == one | {"rows": 5, "cols": 3, "ld": 5}
    assert call.d == one | {"rows": 4, "cols": 3, "ld": 4}
    assert (call.alpha, call.beta, call.stream) == (1, 0, 0)
    assert call.preference == {
        "workspace": 32 << 20,
        "reduction": 2,
        **dict.fromkeys(("align_a", "align_b", "align_c", "align_d"), 256),
    }
    close(out, wide(x) @ wide(y), dtype)


@pytest.mark.parametrize(
    "x, y, layouts, a, b",
    [
        ((3, 5), (5, 4), "nn", (4, 5, 4), (5, 3, 5)),
        ((3, 5), (4, 5, "t"), "nt", (5, 4, 5), (5, 3, 5)),
        ((5, 3, "t"), (5, 4), "tn", (4, 5, 4), (3, 5, 3)),
        ((5, 3, "t"), (4, 5, "t"), "tt", (5, 4, 5), (3, 5, 3)),
        ((1, 5), (5, 1), "nn", (1, 5, 1), (5, 1, 5)),
        ((5, 1, "t"), (1, 5, "t"), "nn", (1, 5, 1), (5, 1, 5)),
    ],
)
def test_views_go_in_as_they_lie(library, x, y, layouts, a, b):
    """(rows, columns, leading dimension) of A and B for plain and transposed operands; nothing is copied."""
    operands = [array(s[:2], seed=i).T if len(s) == 3 else array(s, seed=i) for i, s in enumerate((x, y))]
    xp = backend_of("cuda").xp
    with lucid.testing.simulator.counted() as counts:
        out = products.matmul(*operands)
    (call,) = library.calls
    assert [(c["rows"], c["cols"], c["ld"]) for c in (call.a, call.b)] == [a, b]
    assert (call.operation["transb"], call.operation["transa"]) == tuple(int(s == "t") for s in layouts)
    assert counts["launches"] == 0, "an operand was copied"
    close(out, wide(operands[0]) @ wide(operands[1]), "float32")
    assert xp is backend_of("cuda").xp


def test_rows_of_a_wider_array(library):
    """A slice of columns has the leading dimension of the whole."""
    x, y = array((6, 9))[:, 2:7], array((5, 8), seed=1)[:, :4]
    close(products.matmul(x, y), wide(x) @ wide(y), "float32")
    close(products.matmul(y.T, x.T), wide(y).T @ wide(x).T, "float32")
    first, second = library.calls
    assert (first.a["ld"], first.b["ld"], first.d["ld"]) == (8, 9, 4)
    assert (second.a["ld"], second.b["ld"], second.d["ld"]) == (9, 8, 6)
    assert second.operation["transa"] == second.operation["transb"] == 1


@pytest.mark.parametrize("step", [2, -1])
def test_what_has_no_leading_dimension_goes_to_cublas(library, step):
    x = array((6, 8))[:, ::step]
    y = array((x.shape[1], 3), seed=1)
    close(products.matmul(x, y), wide(x) @ wide(y), "float32")
    assert not library.calls


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "x, y, steps",
    [
        (lambda: array((6, 3, 5)), lambda: array((6, 5, 4)), (15, 20)),
        (lambda: array((2, 3, 3, 5)), lambda: array((2, 3, 5, 4)), (15, 20)),
        (lambda: array((6, 3, 5)), lambda: array((6, 4, 5)).swapaxes(-1, -2), (15, 20)),
        (lambda: array((6, 5, 3)).swapaxes(-1, -2), lambda: array((6, 5, 4)), (15, 20)),
        # one operand serves the whole batch
        (lambda: array((1, 3, 5)), lambda: array((6, 5, 4)), (0, 20)),
        (lambda: array((3, 5)), lambda: array((2, 3, 5, 4)), (0, 20)),
        # every second matrix; heads of attention between the rows
        (lambda: array((12, 3, 5))[::2], lambda: array((6, 5, 4)), (30, 20)),
        (lambda: array((3, 6, 5)).swapaxes(0, 1), lambda: array((6, 5, 4)), (5, 20)),
    ],
)
def test_batches(library, x, y, steps, dtype):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    x, y = (a() if dtype == "float32" else a().astype(kind) for a in (x, y))
    if dtype == "bfloat16":
        steps = None  # astype may have laid the operand anew
    out = products.matmul(x, y)
    (call,) = library.calls
    assert (call.a["batch"], call.b["batch"], call.d["batch"]) == (6, 6, 6)
    assert steps is None or (call.b["step"], call.a["step"], call.d["step"]) == (*steps, 12)
    want = wide(x) @ wide(y)
    assert out.shape == want.shape and out.flags.c_contiguous
    close(out, want, dtype)


def test_batches_without_one_stride_go_to_cublas(library):
    x, y = array((2, 1, 3, 5)), array((3, 5, 4))
    assert products.matmul(x, y).shape == (2, 3, 3, 4) and not library.calls
    z = array((4, 3, 3, 5)).swapaxes(0, 1)
    close(products.matmul(z, array((3, 4, 5, 2))), wide(z) @ wide(array((3, 4, 5, 2))), "float32")
    assert not library.calls


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("activation, number", [("", 4), ("relu", 6), ("gelu", 36)])
def test_epilogues_of_linear(library, dtype, activation, number):
    x, weight, bias = array((2, 3, 5), dtype), array((4, 5), dtype, 1), array((4,), dtype, 2)
    out = products.linear(x, weight, bias, activation)
    (call,) = library.calls
    assert call.operation["epilogue"] == number and call.operation["bias"] == bias.data.ptr
    # The bias runs along D's rows: the output features.
    assert call.d["rows"] == 4 and call.operation["transa"] == 1
    want = wide(x) @ wide(weight).T + wide(bias)
    if activation == "relu":
        want = np.maximum(want, 0)
    if activation == "gelu":
        want = lucid.nn.functional.gelu(lucid.tensor(want), approximate="tanh").numpy()
    close(out, want, dtype)


def test_a_new_bias_reaches_a_known_product(library):
    x, weight = array((3, 5)), array((4, 5), seed=1)
    for seed in (2, 3):
        bias = array((4,), seed=seed)
        close(products.linear(x, weight, bias), wide(x) @ wide(weight).T + wide(bias), "float32")
    assert library.calls[0].operation["bias"] != library.calls[1].operation["bias"]
    assert len(library._algorithms) and library.calls[0].handle == library.calls[1].handle


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_bias_gradient_comes_with_the_weight_s(library, dtype):
    g, x = array((6, 4), dtype), array((6, 5), dtype, 1)
    dw, db = products.weight_and_bias_grad(g, x)
    (call,) = library.calls
    # BGRADB: sums of B = x's place = g^T over k; D's columns are the output features.
    assert call.operation["epilogue"] == 512 and call.operation["bias"] == db.data.ptr
    assert call.d["cols"] == 4 and db.shape == (4,)
    close(dw, wide(g).T @ wide(x), dtype)
    close(db, wide(g).sum(0), dtype)


def test_a_training_step_of_linear_takes_three_products(library):
    layer = lucid.nn.Linear(5, 4).to("cuda")
    x = lucid.randn(6, 5, device="cuda", requires_grad=True)
    with lucid.fusion.enabled(False):
        (layer(x) ** 2).sum().backward()
    assert [c.operation["epilogue"] for c in library.calls] == [4, 1, 512] or [
        c.operation["epilogue"] for c in library.calls
    ] == [4, 512, 1]
    got = [layer.weight.grad, layer.bias.grad, x.grad]
    layer.zero_grad()
    x.grad = None
    with products.using("cublas"):
        (layer(x) ** 2).sum().backward()
    for a, b in zip(got, (layer.weight.grad, layer.bias.grad, x.grad), strict=True):
        np.testing.assert_allclose(a.cpu().numpy(), b.cpu().numpy(), rtol=1e-5, atol=1e-5)


def test_empty_operands_and_epilogues_that_nobody_has(library):
    assert products.linear(array((3, 5), "float64"), array((4, 5), "float64"), array((4,), "float64")) is None
    assert products.linear(array((0, 5)), array((4, 5)), array((4,))) is None
    out = products.matmul(array((3, 0)), array((0, 4)))
    assert out.shape == (3, 4) and not out.get().any() and not library.calls
    with products.using("cublas"):
        assert products.linear(array((3, 5)), array((4, 5)), array((4,))) is None
        assert products.weight_and_bias_grad(array((3, 5)), array((3, 4))) is None


# ---- plans, workspace, streams ----


def test_a_product_is_planned_once(library):
    x, y = array((3, 5)), array((5, 4), seed=1)
    planned = len(library._algorithms)
    for seed in range(3):
        products.matmul(array((3, 5), seed=seed), y)
    assert len(library._algorithms) == planned + 1 and len(library.calls) == 3
    products.matmul(x, array((5, 6)))
    assert len(library._algorithms) == planned + 2


def test_less_aligned_operands_have_a_plan_of_their_own(library):
    whole = backend_of("cuda").xp.asarray(np.random.default_rng(0).standard_normal(64).astype("f"))
    y = array((5, 4), seed=1)
    for offset, aligned in ((0, 256), (4, 16), (1, 4), (64 - 15 - 1, 64)):
        x = whole[offset : offset + 15].reshape(3, 5)
        close(products.matmul(x, y), wide(x) @ wide(y), "float32")
        assert library.calls[-1].preference["align_b"] == (16 if aligned == 64 else aligned)


def test_workspace_is_given_where_it_is_asked_for(library):
    products.matmul(array((3, 5)), array((5, 4)))
    assert library.calls[-1].workspace == 0
    for _ in range(2):
        close(
            products.matmul(array((3, 200)), array((200, 4))),
            wide(array((3, 200))) @ wide(array((200, 4))),
            "float32",
        )
    one, two = library.calls[-2:]
    assert one.workspace and one.workspace == two.workspace and one.workspace_bytes == 32 << 20


def test_the_current_stream_and_its_own_workspace(library):
    stream = lucid.cuda.Stream()
    products.matmul(array((3, 200)), array((200, 4)))
    with lucid.cuda.stream(stream):
        products.matmul(array((3, 200)), array((200, 4)))
    first, second = library.calls
    assert (first.stream, second.stream) == (0, stream.cuda_stream)
    assert first.workspace != second.workspace


def test_workspace_by_architecture():
    assert [cublaslt.workspace_bytes(a) >> 20 for a in (75, 80, 89, 90, 100, 120)] == [4, 4, 4, 32, 32, 32]


def test_threads_do_not_mix_their_biases(library):
    x, weight = array((3, 5)), array((4, 5), seed=1)
    biases = [array((4,), seed=10 + i) for i in range(4)]
    wrong = []

    def work(bias):
        want = wide(x) @ wide(weight).T + wide(bias)
        with products.using("cublaslt"):
            for _ in range(100):
                if not np.allclose(wide(products.linear(x, weight, bias)), want, rtol=1e-5, atol=1e-5):
                    wrong.append(bias)

    threads = [threading.Thread(target=work, args=(b,)) for b in biases]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_release_gives_everything_back(library):
    products.matmul(array((3, 200)), array((200, 4)))
    assert library.handles and library.live
    cublaslt.release()
    assert not library.handles and not library.live and not cublaslt._workspaces
    products.matmul(array((3, 5)), array((5, 4)))
    assert library.calls


# ---- what is supported ----


@pytest.mark.parametrize(
    "change, expected",
    [
        ({}, True),
        ({"dtype": "int64"}, False),
        ({"layouts": "n?"}, False),
        ({"layouts": "tt"}, True),
        ({"m": 2**31}, False),
        ({"epilogue": "bias"}, True),
        ({"epilogue": "bias", "batch": 2}, False),
        ({"epilogue": "bias", "dtype": "float64"}, False),
        ({"epilogue": "silu_bias"}, False),
        ({"arch": 61}, False),
        ({"arch": 75, "dtype": "float16"}, True),
        ({"arch": 75, "dtype": "bfloat16"}, False),
        ({"arch": 80, "dtype": "bfloat16"}, True),
    ],
)
def test_supports(change, expected):
    assert cublaslt.supports(Product(90, "float32", 8, 8, 8)._replace(**change)) is expected


def test_statuses_have_names():
    assert str(api.CublasLtError("cublasLtMatmul", 15)) == "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED"
    assert str(api.CublasLtError("cublasLtMatmul", 99)).endswith("STATUS_99")
