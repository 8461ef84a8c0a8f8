"""Matrix products on CUDA: all of them go to one place, and that place chooses a provider by its table."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import backends
from lucid.kernel import products
from lucid.kernel.products import CHOICES, EPILOGUES, PROVIDERS, Choice, Product, Provider, Refused
from lucid.ops import attention, basic
from lucid.storage import backend_of

F = lucid.nn.functional
OPS = Path(attention.__file__).parent
# Where ops may multiply matrices by themselves: (file, function). NumPy's arrays alone come there.
ON_THE_CPU = {
    ("basic.py", "matmul"): "the CPU's path; cuda_products.py has the other",
    ("basic.py", "linear"): "the CPU's path; cuda_products.py has the other",
    ("embedding.py", "_embedding_backward_cpu"): "registered for the CPU",
    ("rows.py", "*"): "a sparse matrix of SciPy, where xp is numpy",
    ("norm.py", "*"): "CPU paths",
    ("factors.py", "*"): "updates of rank 1 or 2 within one matrix",
}
_PRODUCTS = {"matmul", "dot", "tensordot", "einsum", "inner", "vdot", "vecdot"}


def products_in(path: Path):
    """(function, line) of each product of arrays that an op file computes without `matmul_of`."""
    tree = ast.parse(path.read_text())
    for function in [n for n in tree.body if isinstance(n, ast.FunctionDef)]:
        for node in (n for statement in function.body for n in ast.walk(statement)):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if called and node.func.attr in _PRODUCTS and ast.unparse(node.func.value).endswith("xp"):
                yield function.name, node.lineno
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                yield function.name, node.lineno


@pytest.mark.parametrize("path", sorted(OPS.glob("*.py")), ids=lambda p: p.name)
def test_ops_leave_products_to_one_place(path):
    for function, line in products_in(path):
        known = any((path.name, f) in ON_THE_CPU for f in (function, "*"))
        assert known, f"{path.name}:{line}: {function} multiplies by itself; use matmul_of(xp)"


def test_the_walk_sees_a_product(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("def op(xp, x, y):\n    return xp.matmul(x, y) + x @ y\n")
    assert len(list(products_in(path))) == 2


# ---- every op that multiplies ----


def _lstm(device):
    layer = lucid.nn.LSTM(3, 4).to(device)
    out, _ = layer(lucid.randn(5, 2, 3).to(device))
    return out, list(layer.parameters())


def _leaves(device, *shapes):
    return [lucid.randn(*s, device=device, requires_grad=True) for s in shapes]


def _simple(function, *shapes):
    def run(device):
        leaves = _leaves(device, *shapes)
        return function(*leaves), leaves

    return run


MULTIPLY = {
    "matmul": _simple(lambda x, y: x @ y, (3, 4), (4, 5)),
    "matmul batch": _simple(lambda x, y: x @ y, (2, 3, 4), (2, 4, 5)),
    "matmul rows": _simple(lambda x, y: x @ y, (2, 3, 4), (4, 5)),
    "matmul vectors": _simple(lambda x, y: x @ y, (4,), (4,)),
    "matmul broadcast": _simple(lambda x, y: x @ y, (2, 1, 3, 4), (5, 4, 2)),
    "mm": _simple(lucid.mm, (3, 4), (4, 5)),
    "bmm": _simple(lucid.bmm, (2, 3, 4), (2, 4, 5)),
    "addmm": _simple(lucid.addmm, (3, 5), (3, 4), (4, 5)),
    "baddbmm": _simple(lucid.baddbmm, (2, 3, 5), (2, 3, 4), (2, 4, 5)),
    "addbmm": _simple(lucid.addbmm, (3, 5), (2, 3, 4), (2, 4, 5)),
    "tensordot": _simple(lambda x, y: lucid.tensordot(x, y, 2), (3, 4, 5), (4, 5, 2)),
    "einsum": _simple(lambda x, y: lucid.einsum("bij,bjk->bik", x, y), (2, 3, 4), (2, 4, 5)),
    "linear": _simple(F.linear, (3, 4), (5, 4), (5,)),
    "linear 3-d": _simple(F.linear, (2, 3, 4), (5, 4), (5,)),
    "linear without bias": _simple(F.linear, (3, 4), (5, 4)),
    "bilinear": _simple(F.bilinear, (3, 4), (3, 5), (2, 4, 5)),
    "conv2d": _simple(lambda x, w: F.conv2d(x, w, padding=1), (2, 3, 5, 5), (4, 3, 3, 3)),
    "conv2d 1x1": _simple(F.conv2d, (2, 3, 5, 5), (4, 3, 1, 1)),
    "conv_transpose2d": _simple(lambda x, w: F.conv_transpose2d(x, w, stride=2), (2, 3, 4, 4), (3, 2, 3, 3)),
    "attention": _simple(F.scaled_dot_product_attention, (2, 3, 4), (2, 5, 4), (2, 5, 6)),
    "cdist": _simple(lambda x, y: lucid.cdist(x, y), (30, 4), (30, 4)),
    "lstm": _lstm,
    "inverse": _simple(lambda x: lucid.linalg.inv(x + 4 * lucid.eye(3, device=x.device)), (3, 3)),
    "matrix_exp": _simple(lucid.matrix_exp, (3, 3)),
}


@pytest.mark.parametrize("name", MULTIPLY)
@pytest.mark.parametrize("provider", ["cublas", "cublaslt"])
def test_every_product_goes_through_the_one_place(cuda, simulated, name, provider, monkeypatch):
    """The array module's own products are taken away; only the provider may still use one."""
    xp = backend_of(cuda).xp
    real, inside, used = xp.matmul, [], []

    def guarded(x, y, **kw):
        assert inside, f"{name}: xp.matmul outside lucid.kernel.products"
        return real(x, y, **kw)

    def run(spec, x, y, bias, out, inner=PROVIDERS[provider].run):
        used.append(spec.product)
        return inner(spec, x, y, bias, out)

    by_cupy = products._by_cupy

    def allowed(x, y, out=None):
        used.append(x.shape)
        inside.append(1)
        try:
            return by_cupy(x, y, out)
        finally:
            inside.pop()

    monkeypatch.setattr(xp, "matmul", guarded)
    for other in ("dot", "tensordot", "einsum", "inner", "vdot"):
        monkeypatch.setattr(xp, other, None)
    monkeypatch.setattr(type(xp.empty(0)), "__matmul__", None)
    monkeypatch.setattr(products, "_by_cupy", allowed)
    monkeypatch.setitem(PROVIDERS, provider, Provider(provider, PROVIDERS[provider].supports, run))
    products.forget()
    lucid.manual_seed(0)
    with products.using(provider):
        out, leaves = MULTIPLY[name](cuda)
        forward = len(used)
        out.sum().backward()
    assert forward or name == "inverse"
    assert len(used) > forward or name == "matmul vectors"
    assert all(leaf.grad is not None for leaf in leaves)
    products.forget()


@pytest.mark.parametrize("name", MULTIPLY)
def test_both_providers_give_the_cpu_s_results(cuda, simulated, name):
    found = {}
    for provider in ("cpu", "cublas", "cublaslt"):
        lucid.manual_seed(0)
        with products.using("default" if provider == "cpu" else provider):
            out, leaves = MULTIPLY[name]("cpu" if provider == "cpu" else cuda)
            (out * out).sum().backward()
        found[provider] = [out, *(leaf.grad for leaf in leaves)]
    for provider in ("cublas", "cublaslt"):
        for got, want in zip(found[provider], found["cpu"], strict=True):
            want = want.detach().numpy()
            size = max(1.0, float(np.abs(want).max()))
            np.testing.assert_allclose(got.detach().cpu().numpy(), want, rtol=1e-4, atol=2e-5 * size)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "shapes", [((3, 40), (40, 5)), ((2, 3, 40), (2, 40, 5)), ((40,), (40,)), ((1, 40), (40, 1))]
)
def test_16_bit_products_are_rounded_once(cuda, dtype, shapes):
    rng = np.random.default_rng(0)
    x, y = (lucid.tensor(rng.standard_normal(s).astype("f")).to(dtype) for s in shapes)
    exact = x.double().numpy() @ y.double().numpy()
    eps = 2.0**-11 if dtype == "float16" else 2.0**-8
    for provider in ("cublas", "cublaslt"):
        with products.using(provider):
            out = x.to(cuda) @ y.to(cuda)
        assert out.dtype == x.dtype
        error = np.abs(out.cpu().double().numpy() - exact)
        assert (error <= 1.01 * eps * np.abs(exact) + 1e-5).all()


def test_only_a_needed_input_is_kept(cuda):
    """A bias that alone requires grad keeps no x, although weight and bias share a formula on CUDA."""
    for device in ("cpu", cuda):
        x, w = lucid.randn(3, 4, device=device), lucid.randn(5, 4, device=device)
        b = lucid.randn(5, device=device, requires_grad=True)
        out = F.linear(x, w, b)
        assert out.grad_fn.saved == ()
        out.sum().backward()
        assert b.grad.tolist() == [3.0] * 5


# ---- the table ----

P = Product(90, "bfloat16", 128, 256, 512)


def test_rows_of_the_table_keep_the_rule():
    assert CHOICES[-1] == Choice("cublas", source=CHOICES[-1].source), "the last row takes every product"
    for row in CHOICES:
        assert row.provider in PROVIDERS and row.source and set(row.epilogues) <= set(EPILOGUES)
        assert row.provider == "cublas" or "gpu_check" in row.source, "chosen by measurement alone"


@pytest.mark.parametrize(
    "change, fits",
    [
        ({}, True),
        ({"arch": 89}, False),
        ({"arch": 100}, False),
        ({"dtype": "float32"}, False),
        ({"epilogue": "bias"}, False),
        ({"m": 1}, False),
        ({"m": 1, "batch": 128}, True),
    ],
)
def test_a_row_says_where_it_fits(change, fits):
    row = Choice("cublaslt", (90, 100), ("bfloat16",), ("",), 128 * 256 * 512, "ci/gpu_check")
    assert row.fits(P._replace(**change)) is fits


def test_the_first_row_that_fits_and_is_supported_decides(monkeypatch):
    rows = (
        Choice("cublaslt", (90, 91), ("bfloat16",), work=1 << 20, source="ci/gpu_check"),
        Choice("cublas"),
    )
    monkeypatch.setattr(products, "CHOICES", rows)
    assert products.choose(P).name == "cublaslt"
    assert products.choose(P._replace(m=1, n=1)).name == "cublas"
    assert products.choose(P._replace(layouts="n?")).name == "cublas"
    with products.using("cublas"):
        assert products.choose(P).name == "cublas"
    assert products.choose(P, "cublas").name == "cublas"


def test_a_row_of_the_table_is_followed(cuda, simulated, monkeypatch):
    rows = (Choice("cublaslt", dtypes=("float32",), source="ci/gpu_check"), Choice("cublas"))
    monkeypatch.setattr(products, "CHOICES", rows)
    products.forget()
    try:
        before = len(_library().calls)
        lucid.ones(3, 4, device=cuda) @ lucid.ones(4, 2, device=cuda)
        lucid.ones(3, 4, device=cuda).double() @ lucid.ones(4, 2, device=cuda).double()
        assert [c.a["type"] for c in _library().calls[before:]] == [0]
    finally:
        monkeypatch.undo()
        products.forget()
    assert products._plain()


def _library():
    from lucid.testing.strictcupy.cublaslt import LIBRARY

    return LIBRARY


# ---- switches ----


def test_switches(cuda, simulated):
    x = lucid.ones(2, 3, device=cuda)
    try:
        assert backends.cuda.matmul.provider == "default"
        backends.cuda.matmul.provider = "cublaslt"
        assert backends.cuda.preferred_blas_library() == products.preferred() == "cublaslt"
        before = len(_library().calls)
        x @ x.T
        with products.using("cublas"):
            x @ x.T
        assert len(_library().calls) == before + 1
        assert backends.cuda.preferred_blas_library("cublas") == "cublas"
        for wrong in (
            lambda: backends.cuda.preferred_blas_library("mkl"),
            lambda: products.using("mkl").__enter__(),
        ):
            with pytest.raises(ValueError, match="expected one of default, cublas, cublaslt, got 'mkl'"):
                wrong()
    finally:
        backends.cuda.matmul.provider = "default"


@pytest.mark.parametrize(
    "value, expected", [("cublaslt", "1 call"), ("", "0 calls"), ("nonsense", "ValueError")]
)
def test_the_variable(simulated, value, expected):
    program = (
        "import lucid; from lucid.testing.strictcupy.cublaslt import LIBRARY\n"
        "x = lucid.ones(2, 3, device='cuda')\n"
        "try: x @ x.T; n = len(LIBRARY.calls); print(n, 'call' if n == 1 else 'calls')\n"
        "except ValueError: print('ValueError')"
    )
    environment = dict(os.environ) | {"LUCID_CUDA": "sim", "PYTHONPATH": str(OPS.parents[1])}
    environment |= {"LUCID_GEMM": value} if value else {}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == expected, done.stderr


def test_precision_is_told_to_both_providers(cuda, simulated):
    x = lucid.randn(4, 4, device=cuda)
    linalg = backend_of(cuda).xp._core._routines_linalg
    expected = {
        "highest": (68, linalg.COMPUTE_TYPE_DEFAULT),
        "high": (77, linalg.COMPUTE_TYPE_TF32),
        "medium": (75, linalg.COMPUTE_TYPE_TF32),
    }
    try:
        for name, (lt, cupy) in expected.items():
            backends.set_float32_matmul_precision(name)
            assert backends.get_float32_matmul_precision() == name
            assert backends.cuda.matmul.allow_tf32 is (name != "highest")
            with products.using("cublaslt"):
                x @ x
            assert _library().calls[-1].operation["compute"] == lt
            assert linalg.get_compute_type("f") == cupy
        with products.using("cublaslt"):
            x.double() @ x.double()
            assert _library().calls[-1].operation["compute"] == 70
            x.half() @ x.half()
            assert _library().calls[-1].operation["compute"] == 68
    finally:
        backends.cuda.matmul.allow_tf32 = False


def test_what_a_library_refuses_goes_to_cublas_with_a_warning(cuda, simulated):
    x = lucid.randn(6, 7, device=cuda)
    w, b = lucid.randn(5, 7, device=cuda), lucid.randn(5, device=cuda)
    library = _library()
    library.refuse = lambda operation, a, b, d: d["rows"] == 5
    try:
        with products.using("cublaslt"):
            text = r"cublaslt does not take the product float32 \[6, 7\] @ \[7, 5\].*NOT_SUPPORTED.*cublas c"
            with pytest.warns(RuntimeWarning, match=text):
                out = F.linear(x, w, b)
            np.testing.assert_allclose(
                out.cpu().numpy(), F.linear(x.cpu(), w.cpu(), b.cpu()).numpy(), rtol=1e-5
            )
            # The bias goes the other way at once, the plain product after its own refusal; then both know.
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("error")
                F.linear(x, w, b)
    finally:
        library.refuse = None
        products.forget()


def test_a_missing_library_leaves_cublas(cuda, simulated, monkeypatch):
    from lucid.kernel import cublaslt

    backend = backend_of(cuda)

    def absent(stem):
        raise OSError(f"lib{stem}.so.13: cannot open shared object file")

    cublaslt.release()
    monkeypatch.setattr(type(backend), "library", staticmethod(absent))
    try:
        x = lucid.randn(3, 3, device=cuda)
        with (
            products.using("cublaslt"),
            pytest.warns(RuntimeWarning, match="cannot be loaded.*libcublasLt.so.13"),
        ):
            assert (x @ x).shape == (3, 3)
        assert "cannot open" in cublaslt.why_not(backend)
    finally:
        monkeypatch.undo()
        cublaslt.release()
    assert cublaslt.why_not(backend) == ""


def test_remembered_products_are_bounded(cuda, simulated, monkeypatch):
    monkeypatch.setattr(products, "MOST", 4)
    products.forget()
    with products.using("cublaslt"):
        for n in range(1, 12):
            lucid.ones(n, 2, device=cuda) @ lucid.ones(2, n, device=cuda)
    assert len(products._specs) <= 4
    products.forget()
    import gc

    gc.collect()
    assert not _library().live, "descriptors outlive their products"


def test_refused_is_no_error_of_the_user():
    assert issubclass(Refused, RuntimeError)
    assert basic.matmul.accelerated["cuda"][0] is not None
