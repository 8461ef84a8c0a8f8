"""The array API namespace against an independent implementation of the standard."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest

import lucid
import lucid.array_api as xp
from lucid.errors import ShapeError

st = pytest.importorskip("hypothesis.strategies")
from hypothesis import given, settings  # noqa: E402
from hypothesis.extra import numpy as hnp  # noqa: E402

try:
    import array_api_strict as ref
except ImportError:  # NumPy 2 follows the standard too.
    ref = np

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # log(0) and its like are among the inputs

FLOATS = ("float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8")
COMPLEX = ("complex64", "complex128")
NUMERIC = INTS + FLOATS
QUICK = settings(max_examples=20, deadline=None, derandomize=True)


def arrays(dtypes, shape=None, low=-4, high=4, **bounds):
    """Arrays of small numbers: exact in every dtype, and with ties."""

    @st.composite
    def draw(pick):
        size = (
            pick(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)) if shape is None else shape
        )
        dtype = np.dtype(pick(st.sampled_from(dtypes)))
        rng = np.random.default_rng(pick(st.integers(0, 999)))
        values = rng.integers(0 if dtype.kind == "u" else low, high, size, endpoint=True)
        if dtype.kind == "c":
            values = values + 1j * rng.integers(low, high, size, endpoint=True)
        return np.asarray(values * 0.75 if dtype.kind == "f" else values, dtype)

    return draw()


def expected(function, *args, **kwargs):
    """The reference's result as NumPy arrays."""
    convert = lambda v: (
        ref.asarray(v.copy())
        if isinstance(v, np.ndarray)
        else [convert(u) for u in v]
        if isinstance(v, list)
        else getattr(ref, v.name)
        if isinstance(v, np.dtype) and v.name != "bool"
        else v
    )
    with np.errstate(all="ignore"):
        return host(function(*map(convert, args), **{k: convert(v) for k, v in kwargs.items()}))


def host(x):
    if isinstance(x, (list, tuple)):
        return [host(v) for v in x]
    return x.numpy(force=True) if isinstance(x, lucid.Tensor) else np.asarray(x)


def actual(function, *args, device="cpu", **kwargs):
    convert = lambda v: (
        lucid.tensor(v, device=device)
        if isinstance(v, np.ndarray)
        else [convert(u) for u in v]
        if isinstance(v, list)
        else v
    )
    return host(function(*map(convert, args), **{k: convert(v) for k, v in kwargs.items()}))


def same(name, *args, **kwargs):
    """Nothing; raises where lucid's result differs from the reference's in shape, dtype or value."""
    ours, theirs = xp, ref
    for part in name.split("."):
        ours, theirs = getattr(ours, part), getattr(theirs, part)
    compare(name, actual(ours, *args, **kwargs), expected(theirs, *args, **kwargs))


def compare(name, got, want):
    if isinstance(want, list):
        assert len(got) == len(want), f"{name}: {len(got)} results, expected {len(want)}"
        for g, w in zip(got, want, strict=True):
            compare(name, g, w)
        return
    assert got.shape == want.shape, f"{name}: shape {got.shape}, expected {want.shape}"
    # uint64, the standard's sum of unsigned numbers, is int64 here; NumPy's default float is float64.
    assert got.dtype.kind == want.dtype.kind or (want.dtype.kind == "u" and got.dtype.kind == "i"), name
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, err_msg=name)
    else:
        single = got.dtype.name in ("float32", "complex64")
        tol = 2e-5 if single else 1e-12
        np.testing.assert_allclose(got, want, rtol=tol, atol=tol, err_msg=name)


# ---- elementwise ----

UNARY = {
    "abs": NUMERIC + COMPLEX,
    "acos": FLOATS,
    "acosh": FLOATS,
    "asin": FLOATS,
    "asinh": FLOATS + COMPLEX,
    "atan": FLOATS,
    "atanh": FLOATS,
    "bitwise_invert": ("bool", *INTS),
    "ceil": NUMERIC,
    "conj": COMPLEX,
    "cos": FLOATS + COMPLEX,
    "cosh": FLOATS + COMPLEX,
    "exp": FLOATS + COMPLEX,
    "expm1": FLOATS,
    "floor": NUMERIC,
    "imag": COMPLEX,
    "isfinite": NUMERIC + COMPLEX,
    "isinf": NUMERIC + COMPLEX,
    "isnan": NUMERIC + COMPLEX,
    "log": FLOATS,
    "log10": FLOATS,
    "log1p": FLOATS,
    "log2": FLOATS,
    "logical_not": ("bool",),
    "negative": NUMERIC + COMPLEX,
    "positive": NUMERIC + COMPLEX,
    "real": COMPLEX,
    "reciprocal": FLOATS,
    "round": NUMERIC,
    "sign": NUMERIC + COMPLEX,
    "signbit": FLOATS,
    "sin": FLOATS + COMPLEX,
    "sinh": FLOATS + COMPLEX,
    "sqrt": FLOATS,
    "square": NUMERIC + COMPLEX,
    "tan": FLOATS,
    "tanh": FLOATS,
    "trunc": NUMERIC,
}
BINARY = {
    "add": NUMERIC + COMPLEX,
    "atan2": FLOATS,
    "bitwise_and": ("bool", *INTS),
    "bitwise_or": ("bool", *INTS),
    "bitwise_xor": ("bool", *INTS),
    "copysign": FLOATS,
    "divide": FLOATS + COMPLEX,
    "equal": ("bool", *NUMERIC, *COMPLEX),
    "greater": NUMERIC,
    "greater_equal": NUMERIC,
    "hypot": FLOATS,
    "less": NUMERIC,
    "less_equal": NUMERIC,
    "logaddexp": FLOATS,
    "logical_and": ("bool",),
    "logical_or": ("bool",),
    "logical_xor": ("bool",),
    "maximum": NUMERIC,
    "minimum": NUMERIC,
    "multiply": NUMERIC + COMPLEX,
    "nextafter": FLOATS,
    "not_equal": ("bool", *NUMERIC, *COMPLEX),
    "pow": FLOATS,
    "subtract": NUMERIC + COMPLEX,
}
# The second operand of these must not be 0, or not be negative.
POSITIVE_SECOND = {
    "bitwise_left_shift": INTS,
    "bitwise_right_shift": INTS,
    "floor_divide": NUMERIC,
    "remainder": NUMERIC,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name, device):
    @QUICK
    @given(arrays(UNARY[name]))
    def check(x):
        same_on(device, name, x)

    check()


def same_on(device, name, *args, **kwargs):
    compare(
        name,
        actual(getattr(xp, name), *args, device=device, **kwargs),
        expected(getattr(ref, name), *args, **kwargs),
    )


@pytest.mark.parametrize("name", [*BINARY, *POSITIVE_SECOND])
def test_binary(name, device):
    dtypes = (BINARY | POSITIVE_SECOND)[name]

    @QUICK
    @given(st.data())
    def check(data):
        shapes = data.draw(
            hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)
        ).input_shapes
        dtype = data.draw(st.sampled_from(dtypes))
        x = data.draw(arrays((dtype,), shapes[0]))
        y = data.draw(arrays((dtype,), shapes[1], **({"low": 1} if name in POSITIVE_SECOND else {})))
        if name in POSITIVE_SECOND and y.dtype.kind == "u":
            y = np.maximum(y, 1).astype(y.dtype)
        same_on(device, name, x, y)

    check()


@pytest.mark.parametrize("name", ["add", "divide", "maximum", "less", "pow", "atan2"])
def test_python_numbers_on_either_side(name):
    x = np.array([1.5, 2.0], "float32")
    for args in ((x, 2.0), (2.0, x), (x, 3)):
        got = actual(getattr(xp, name), *args)
        np.testing.assert_allclose(got, getattr(np, name)(*args), rtol=1e-6)
        assert got.dtype in (np.float32, np.bool_)


def test_promotion_counts_0d_tensors():
    a, b = lucid.ones(2, dtype="float32"), lucid.tensor(1.0, dtype="float64")
    assert xp.add(a, b).dtype == xp.float64 and (a + b).dtype == lucid.float32
    assert xp.concat([a, xp.zeros(2, dtype=xp.float64)]).dtype == xp.float64
    assert xp.where(a > 0, a, b).dtype == xp.float64


@QUICK
@given(arrays(NUMERIC), st.sampled_from([(None, 1), (-1, None), (-1, 2), (None, None)]))
def test_clip(x, bounds):
    low, high = (None if b is None else max(b, 0) if x.dtype.kind == "u" else b for b in bounds)
    compare(
        "clip", actual(xp.clip, x, low, high), x if low is None and high is None else np.clip(x, low, high)
    )


# ---- reductions ----

REDUCTIONS = {
    "all": ("bool", *NUMERIC),
    "any": ("bool", *NUMERIC),
    "count_nonzero": ("bool", *NUMERIC),
    "max": NUMERIC,
    "mean": FLOATS,
    "min": NUMERIC,
    "prod": INTS + FLOATS,
    "std": FLOATS,
    "sum": NUMERIC + COMPLEX,
    "var": FLOATS,
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_any_axes(name, device):
    for seed, axis in enumerate((None, 0, -1, (0, 2), (0, 1, 2), (1,))):
        for dtype in REDUCTIONS[name]:
            for keepdims in (False, True):
                values = np.random.default_rng(seed).integers(0, 3, (2, 3, 4))
                x = values.astype(dtype)
                same_on(device, name, x, axis=axis, keepdims=keepdims)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arg_reductions(name, device):
    x = np.random.default_rng(0).integers(0, 3, (3, 4, 5)).astype("float32")
    for axis in (None, 0, 1, -1):
        for keepdims in (False, True):
            same_on(device, name, x, axis=axis, keepdims=keepdims)


def test_correction_dtype_and_initial():
    x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    for correction in (0, 1, 0.5):
        same("var", x, axis=1, correction=correction)
        same("std", x, axis=(0, 1), correction=correction)
    same("sum", x, dtype=np.dtype("float64"))
    same("prod", x, axis=0, dtype=np.dtype("float64"))
    for name in ("cumulative_sum", "cumulative_prod"):
        for initial in (False, True):
            same(name, x, axis=1, include_initial=initial)
            same(name, x[0], include_initial=initial)
    with pytest.raises(ShapeError, match=r"cumulative_sum: expected an axis for an array of shape \(3, 4\)"):
        xp.cumulative_sum(lucid.tensor(x))


def test_reductions_without_axes_and_of_nothing():
    x = lucid.ones(2, 3)
    assert xp.sum(x, axis=()).shape == (2, 3)
    same("sum", np.zeros((0, 3), "float32"), axis=0)
    same("prod", np.zeros((0, 3), "int64"), axis=0)
    same("all", np.zeros((2, 0), "bool"), axis=1)


# ---- shapes, choice, order: name, arguments, keywords ----

_x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype("float32")
_i = np.array([[3, 1, 3], [0, 2, 1]], "int64")
CALLS = [
    ("broadcast_to", (_i, (4, 2, 3)), {}),
    ("broadcast_arrays", (_x[0], _x[:, 0:1, 0:1]), {}),
    ("concat", ([_i, _i],), {}),
    ("concat", ([_i, _i],), {"axis": 1}),
    ("concat", ([_i, _i[0]],), {"axis": None}),
    ("stack", ([_i, _i],), {"axis": -1}),
    ("unstack", (_x,), {"axis": 1}),
    ("expand_dims", (_i,), {"axis": -1}),
    ("expand_dims", (_i,), {"axis": 0}),
    ("squeeze", (_x[:, :1],), {"axis": 1}),
    ("squeeze", (_x[:1, :1],), {"axis": (0, -2)}),
    ("flip", (_x,), {}),
    ("flip", (_x,), {"axis": (0, -1)}),
    ("roll", (_x, 2), {}),
    ("roll", (_x, 2), {"axis": 1}),
    ("roll", (_x, (1, -1)), {"axis": (0, 2)}),
    ("roll", (_x, 1), {"axis": (0, 2)}),
    ("moveaxis", (_x, 0, -1), {}),
    ("moveaxis", (_x, (0, 1), (1, 2)), {}),
    ("permute_dims", (_x, (2, 0, 1)), {}),
    ("reshape", (_x, (4, -1)), {}),
    ("reshape", (_x, (6, 4)), {"copy": True}),
    ("repeat", (_i, 2), {}),
    ("repeat", (_i, 3), {"axis": 1}),
    ("repeat", (_i, np.array([1, 0, 2])), {"axis": 1}),
    ("tile", (_i, (2, 1, 2)), {}),
    ("take", (_x, np.array([2, 0, 0])), {"axis": 1}),
    ("take", (_x[0, 0], np.array([2, 0])), {}),
    ("take_along_axis", (_x[0], np.array([[1, 0, 2, 2]])), {"axis": 0}),
    ("take_along_axis", (_x[0], _i[:1].T), {}),
    ("nonzero", (_i,), {}),
    ("searchsorted", (np.array([1.0, 2, 2, 5]), np.array([[2.0, 0.0], [6.0, 1.5]])), {}),
    ("searchsorted", (np.array([1.0, 2, 2, 5]), np.array([2.0, 5.0])), {"side": "right"}),
    ("searchsorted", (np.array([5.0, 1, 2]), np.array([2.0, 3.0])), {"sorter": np.array([1, 2, 0])}),
    ("where", (_i > 1, _i, -_i), {}),
    ("where", (_i > 1, _i, 7), {}),
    ("sort", (_x,), {}),
    ("sort", (_i,), {"axis": 0, "descending": True}),
    ("argsort", (_i,), {"axis": 1}),
    ("argsort", (_i,), {"axis": 1, "descending": True, "stable": True}),
    ("diff", (_x,), {"axis": 1, "n": 2}),
    ("diff", (_i,), {"prepend": _i[:, :1], "append": _i}),
    ("tril", (_x,), {"k": 1}),
    ("triu", (_i,), {"k": -1}),
    ("meshgrid", (np.arange(3.0), np.arange(2.0)), {}),
    ("meshgrid", (np.arange(3.0), np.arange(2.0)), {"indexing": "ij"}),
    ("unique_all", (_i,), {}),
    ("unique_counts", (np.array([1.0, np.nan, 1.0, np.nan]),), {}),
    ("unique_inverse", (_i,), {}),
    ("unique_values", (np.array([1j, 1, 1j, 2]),), {}),
    ("matmul", (_x[0], _x[1].T), {}),
    ("matmul", (_x, np.swapaxes(_x, 1, 2)), {}),
    ("matmul", (_x, _x[0, 0]), {}),
    ("matrix_transpose", (_x,), {}),
    ("tensordot", (_x, np.swapaxes(_x, 0, 2)), {"axes": 1}),
    ("tensordot", (_x, _x), {"axes": ((0, 1), (0, 1))}),
    ("vecdot", (_x, _x[0]), {}),
    ("vecdot", (_x[:, :2] + 1j * _x[:, 1:], _x[:, :2].astype("complex64")), {"axis": -2}),
    ("astype", (_x, np.dtype("int32")), {}),
    ("arange", (5,), {}),
    ("arange", (1, 10, 3), {}),
    ("arange", (5, 1), {}),
    ("arange", (5, 1, -2), {"dtype": np.dtype("float32")}),
    ("linspace", (0.0, 1.0, 5), {}),
    ("linspace", (0.0, 1.0, 5), {"endpoint": False}),
    ("eye", (3, 4), {"k": 1}),
    ("eye", (3,), {"dtype": np.dtype("int64")}),
    ("zeros", ((2, 3),), {}),
    ("ones", (2,), {"dtype": np.dtype("int32")}),
    ("full", ((2, 3), 7), {}),
    ("zeros_like", (_i,), {}),
    ("ones_like", (_x,), {"dtype": np.dtype("int8")}),
    ("full_like", (_x, 2), {}),
]


@pytest.mark.parametrize("name, args, kwargs", CALLS, ids=[f"{i}-{c[0]}" for i, c in enumerate(CALLS)])
def test_calls(name, args, kwargs):
    same(name, *args, **kwargs)


_square = np.random.default_rng(2).normal(size=(2, 3, 3))
_spd = _square @ np.swapaxes(_square, 1, 2) + np.eye(3)
_tall = np.random.default_rng(3).normal(size=(2, 4, 3))
LINALG = [
    ("cholesky", (_spd,), {}),
    ("cholesky", (_spd,), {"upper": True}),
    ("cross", (_tall[0], _tall[1]), {}),
    ("cross", (_square, _square[:1]), {"axis": -2}),
    ("det", (_square,), {}),
    ("diagonal", (_tall,), {"offset": -1}),
    ("eigvalsh", (_spd,), {}),
    ("inv", (_square,), {}),
    *[("matrix_norm", (_tall,), {"ord": o}) for o in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)],
    ("matrix_norm", (_tall,), {"keepdims": True}),
    ("matrix_power", (_square, 3), {}),
    ("matrix_power", (_square, -1), {}),
    ("matrix_rank", (np.array([[1.0, 1], [1, 1]]),), {}),
    ("outer", (_tall[0, :, 0], _tall[0, 0]), {}),
    ("pinv", (_tall,), {}),
    ("pinv", (_tall,), {"rtol": np.array([0.5, 0.0])}),
    ("slogdet", (_square,), {}),
    ("solve", (_square, _tall[:, :3]), {}),
    ("solve", (_square, _tall[0, 0]), {}),
    ("solve", (_square[0], _tall[:, :3]), {}),
    ("svdvals", (_tall,), {}),
    ("trace", (_tall,), {"offset": 1}),
    *[("vector_norm", (_tall,), {"ord": o, "axis": 1}) for o in (2, 1, 0, 3, math.inf, -math.inf)],
    ("vector_norm", (_tall,), {"axis": (0, 2), "keepdims": True}),
    ("vector_norm", (_tall,), {}),
]


@pytest.mark.parametrize("name, args, kwargs", LINALG, ids=[f"{i}-{c[0]}" for i, c in enumerate(LINALG)])
def test_linalg(name, args, kwargs):
    same(f"linalg.{name}", *args, **kwargs)


def test_decompositions_give_their_matrix_back():
    q, r = xp.linalg.qr(lucid.tensor(_tall))
    np.testing.assert_allclose(host(xp.matmul(q, r)), _tall, atol=1e-12)
    assert xp.linalg.qr(lucid.tensor(_tall), mode="complete").Q.shape == (2, 4, 4)
    u, s, vh = xp.linalg.svd(lucid.tensor(_tall), full_matrices=False)
    np.testing.assert_allclose(host(xp.matmul(u * s[:, None, :], vh)), _tall, atol=1e-12)
    assert xp.linalg.svd(lucid.tensor(_tall)).U.shape == (2, 4, 4)
    values, vectors = xp.linalg.eigh(lucid.tensor(_spd))
    np.testing.assert_allclose(_spd @ host(vectors), host(vectors) * host(values)[:, None, :], atol=1e-12)


FFT = [
    *[
        (n, (_tall.astype("complex128"),), k)
        for n in ("fft", "ifft", "hfft")
        for k in ({}, {"n": 5, "norm": "ortho"})
    ],
    *[(n, (_tall,), k) for n in ("rfft", "ihfft") for k in ({}, {"axis": 1, "norm": "forward"})],
    ("irfft", (_tall.astype("complex128"),), {"n": 6}),
    *[(n, (_tall.astype("complex128"),), {"axes": (0, 1)}) for n in ("fftn", "ifftn", "irfftn")],
    ("fftn", (_tall.astype("complex128"),), {"s": (3, 5), "axes": (1, 2)}),
    ("rfftn", (_tall,), {}),
    ("fftshift", (_tall,), {}),
    ("ifftshift", (_tall,), {"axes": 1}),
    ("fftfreq", (5,), {"d": 0.5}),
    ("rfftfreq", (6,), {}),
]


@pytest.mark.parametrize("name, args, kwargs", FFT, ids=[f"{i}-{c[0]}" for i, c in enumerate(FFT)])
def test_fft(name, args, kwargs):
    got = actual(getattr(xp.fft, name), *args, **kwargs)
    want = expected(getattr(ref.fft, name), *args, **kwargs)
    compare(name, got, want.astype(got.dtype))


# ---- signatures, by the standard's text ----

_AXES = "(x, /, *, axis=None, keepdims=False)"
_LIKE = "(x, /, *, dtype=None, device=None)"
_NEW = "(shape, *, dtype=None, device=None)"
SIGNATURES = {
    **dict.fromkeys(
        (*UNARY, "nonzero", "unique_all", "unique_values", "unique_counts", "unique_inverse"), "(x, /)"
    ),
    **dict.fromkeys((*BINARY, *POSITIVE_SECOND), "(x1, x2, /)"),
    **dict.fromkeys(("all", "any", "max", "min", "mean", "argmax", "argmin", "count_nonzero"), _AXES),
    **dict.fromkeys(("std", "var"), "(x, /, *, axis=None, correction=0.0, keepdims=False)"),
    **dict.fromkeys(("sum", "prod"), "(x, /, *, axis=None, dtype=None, keepdims=False)"),
    **dict.fromkeys(
        ("cumulative_sum", "cumulative_prod"), "(x, /, *, axis=None, dtype=None, include_initial=False)"
    ),
    **dict.fromkeys(("empty_like", "ones_like", "zeros_like"), _LIKE),
    **dict.fromkeys(("empty", "ones", "zeros"), _NEW),
    **dict.fromkeys(("sort", "argsort"), "(x, /, *, axis=-1, descending=False, stable=True)"),
    **dict.fromkeys(("tril", "triu"), "(x, /, *, k=0)"),
    **dict.fromkeys(("concat", "stack"), "(arrays, /, *, axis=0)"),
    "arange": "(start, /, stop=None, step=1, *, dtype=None, device=None)",
    "asarray": "(obj, /, *, dtype=None, device=None, copy=None)",
    "astype": "(x, dtype, /, *, copy=True, device=None)",
    "broadcast_arrays": "(*arrays)",
    "broadcast_to": "(x, /, shape)",
    "can_cast": "(from_, to, /)",
    "clip": "(x, /, min=None, max=None)",
    "diff": "(x, /, *, axis=-1, n=1, prepend=None, append=None)",
    "expand_dims": "(x, /, axis=0)",
    "eye": "(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)",
    "finfo": "(type, /)",
    "flip": "(x, /, *, axis=None)",
    "from_dlpack": "(x, /, *, device=None, copy=None)",
    "full": "(shape, fill_value, *, dtype=None, device=None)",
    "full_like": "(x, /, fill_value, *, dtype=None, device=None)",
    "iinfo": "(type, /)",
    "isdtype": "(dtype, kind)",
    "linspace": "(start, stop, /, num, *, dtype=None, device=None, endpoint=True)",
    "matmul": "(x1, x2, /)",
    "matrix_transpose": "(x, /)",
    "meshgrid": "(*arrays, indexing='xy')",
    "moveaxis": "(x, source, destination, /)",
    "permute_dims": "(x, /, axes)",
    "repeat": "(x, repeats, /, *, axis=None)",
    "reshape": "(x, /, shape, *, copy=None)",
    "result_type": "(*arrays_and_dtypes)",
    "roll": "(x, /, shift, *, axis=None)",
    "searchsorted": "(x1, x2, /, *, side='left', sorter=None)",
    "squeeze": "(x, /, axis)",
    "take": "(x, indices, /, *, axis=None)",
    "take_along_axis": "(x, indices, /, *, axis=-1)",
    "tensordot": "(x1, x2, /, *, axes=2)",
    "tile": "(x, repetitions, /)",
    "unstack": "(x, /, *, axis=0)",
    "vecdot": "(x1, x2, /, *, axis=-1)",
    "where": "(condition, x1, x2, /)",
    "linalg.cholesky": "(x, /, *, upper=False)",
    "linalg.cross": "(x1, x2, /, *, axis=-1)",
    "linalg.diagonal": "(x, /, *, offset=0)",
    "linalg.matrix_norm": "(x, /, *, keepdims=False, ord='fro')",
    "linalg.matrix_power": "(x, n, /)",
    "linalg.matrix_rank": "(x, /, *, rtol=None)",
    "linalg.outer": "(x1, x2, /)",
    "linalg.pinv": "(x, /, *, rtol=None)",
    "linalg.qr": "(x, /, *, mode='reduced')",
    "linalg.solve": "(x1, x2, /)",
    "linalg.svd": "(x, /, *, full_matrices=True)",
    "linalg.trace": "(x, /, *, offset=0, dtype=None)",
    "linalg.vector_norm": "(x, /, *, axis=None, keepdims=False, ord=2)",
    **{f"linalg.{n}": "(x, /)" for n in ("det", "eigh", "eigvalsh", "inv", "slogdet", "svdvals")},
    **{
        f"fft.{n}": "(x, /, *, n=None, axis=-1, norm='backward')"
        for n in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    },
    **{
        f"fft.{n}": "(x, /, *, s=None, axes=None, norm='backward')"
        for n in ("fftn", "ifftn", "rfftn", "irfftn")
    },
    **{f"fft.{n}": "(x, /, *, axes=None)" for n in ("fftshift", "ifftshift")},
    **{f"fft.{n}": "(n, /, *, d=1.0, dtype=None, device=None)" for n in ("fftfreq", "rfftfreq")},
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    function = xp
    for part in name.split("."):
        function = getattr(function, part)
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    assert str(signature.replace(parameters=bare, return_annotation=signature.empty)) == SIGNATURES[name]
    assert function.__doc__, f"{name} has no docstring"


def test_every_public_function_is_tested():
    named = {n for n in SIGNATURES if "." not in n}
    functions = {n for n in xp.__all__ if callable(getattr(xp, n)) and not n.startswith("_")}
    assert functions - named == {"broadcast_shapes"}
    assert {f"linalg.{n}" for n in xp.linalg.__all__} <= set(SIGNATURES) | {
        f"linalg.{n}" for n in ("matmul", "matrix_transpose", "tensordot", "vecdot")
    }
    assert {f"fft.{n}" for n in xp.fft.__all__} <= set(SIGNATURES)
