"""How the array API namespace describes itself, and other libraries' protocols: NumPy's and einops'."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
import lucid.array_api as xp
from lucid.errors import DtypeError, GradError, ShapeError

FLOATS = ("float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8")
COMPLEX = ("complex64", "complex128")


def host(x):
    if isinstance(x, (list, tuple)):
        return [host(v) for v in x]
    return x.numpy(force=True) if isinstance(x, lucid.Tensor) else np.asarray(x)


# ---- dtypes and description ----


def test_dtype_questions():
    assert xp.isdtype(xp.uint8, "unsigned integer") and not xp.isdtype(xp.uint8, "signed integer")
    assert xp.isdtype(xp.complex64, ("bool", "complex floating")) and xp.isdtype(xp.float32, xp.float32)
    assert xp.isdtype(xp.int8, "numeric") and not xp.isdtype(xp.bool, "numeric")
    with pytest.raises(ValueError, match="isdtype: expected one of bool, .* got 'float'"):
        xp.isdtype(xp.float32, "float")
    assert xp.result_type(xp.int8, xp.uint8) == xp.int16
    assert xp.result_type(lucid.ones(2), lucid.tensor(1.0, dtype="float64"), 1) == xp.float64
    assert xp.result_type(xp.int32, 1.5) == lucid.get_default_dtype()
    with pytest.raises(ValueError, match="result_type: expected at least one array or dtype"):
        xp.result_type(1)
    assert xp.can_cast(xp.int8, xp.int16) and not xp.can_cast(lucid.ones(2), xp.int64)
    for name in FLOATS + COMPLEX:
        ours, theirs = xp.finfo(getattr(xp, name)), np.finfo(name)
        assert (ours.bits, ours.eps, ours.max) == (theirs.bits, float(theirs.eps), float(theirs.max))
        assert ours.smallest_normal == float(theirs.smallest_normal) and ours.dtype == theirs.dtype
    for name in INTS:
        ours, theirs = xp.iinfo(lucid.ones(1).to(getattr(xp, name))), np.iinfo(name)
        assert (ours.bits, ours.min, ours.max) == (theirs.bits, theirs.min, theirs.max)
    with pytest.raises(DtypeError, match="finfo: expected a floating dtype, got int64; use iinfo"):
        xp.finfo(xp.int64)
    with pytest.raises(DtypeError, match="iinfo: expected an integer dtype, got bool; use finfo"):
        xp.iinfo(xp.bool)
    with pytest.raises(DtypeError, match="astype: expected a complex dtype for complex64, got float32"):
        xp.astype(lucid.tensor(1j), xp.float32)


def test_description():
    info = xp.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"] is True and info.default_device() == lucid.device("cpu")
    assert info.default_dtypes() == {
        "real floating": xp.float32,
        "complex floating": xp.complex64,
        "integral": xp.int64,
        "indexing": xp.int64,
    }
    assert lucid.device("cpu") in info.devices()
    assert info.dtypes(kind="integral").keys() == set(INTS) and info.dtypes(kind="bool") == {"bool": xp.bool}
    assert info.dtypes().keys() == {"bool", *INTS, *FLOATS, *COMPLEX}


def test_namespace_and_attributes(device):
    x = lucid.ones(2, 3, device=device)
    assert x.__array_namespace__() is xp and x.__array_namespace__(api_version="2023.12") is xp
    with pytest.raises(ValueError, match="api_version from 2021.12 to 2024.12, got '2030.01'"):
        x.__array_namespace__(api_version="2030.01")
    assert x.mT.shape == (3, 2) and x.T.shape == (3, 2) and x.to_device(x.device) is x
    assert (
        x.to_device("cpu").device == lucid.device("cpu")
        and xp.asarray([1.0], device=x.device).device == x.device
    )


def test_copies_and_aliases():
    a = np.zeros(3, "float32")
    assert xp.asarray(a).data_ptr() == a.ctypes.data and xp.asarray(a, copy=True).data_ptr() != a.ctypes.data
    x = xp.asarray(a)
    assert xp.asarray(x) is x and xp.asarray(x, copy=True).data_ptr() != x.data_ptr()
    assert xp.astype(x, xp.float32, copy=False) is x and xp.astype(x, xp.float32).data_ptr() != x.data_ptr()
    assert xp.reshape(x, (3, 1), copy=False).data_ptr() == x.data_ptr()
    assert xp.reshape(x, (3, 1), copy=True).data_ptr() != x.data_ptr()
    assert xp.from_dlpack(a).data_ptr() == a.ctypes.data
    with pytest.raises(ValueError, match="asarray: copy=False"):
        xp.asarray([1.0, 2.0], copy=False)


BAD = [
    (
        lambda: xp.take(lucid.ones(2, 2), lucid.tensor([0])),
        r"take: expected an axis for an array of shape \(2, 2\)",
    ),
    (lambda: xp.squeeze(lucid.ones(2, 1), 0), r"squeeze: expected size 1 along axis 0, got shape \(2, 1\)"),
    (lambda: xp.nonzero(lucid.tensor(1.0)), "nonzero: expected at least one dimension"),
    (
        lambda: xp.matmul(lucid.tensor(1.0), lucid.ones(2)),
        r"matmul: expected .* got shape \(\) and shape \(2,\)",
    ),
    (lambda: xp.matrix_transpose(lucid.ones(2)), "matrix_transpose: expected at least two dimensions"),
    (lambda: xp.tril(lucid.ones(2)), r"tril: expected at least two dimensions, got shape \(2,\)"),
    (lambda: xp.vecdot(lucid.ones(2), lucid.ones(3)), r"vecdot: .* got shapes \(2,\) and \(3,\), axis -1"),
    (lambda: xp.linalg.cross(lucid.ones(2), lucid.ones(2)), "cross: expected size 3 along axis -1"),
]


@pytest.mark.parametrize("call, message", BAD)
def test_errors(call, message):
    with pytest.raises(ShapeError, match=message):
        call()


# ---- gradients ----


def test_gradients_flow_through_the_namespace():
    x = lucid.tensor(np.random.default_rng(0).normal(size=(3, 4)), requires_grad=True)
    y = xp.sum(xp.square(xp.tanh(x)), axis=(0, 1)) + xp.mean(xp.max(x, axis=1)) + xp.linalg.vector_norm(x)
    y.backward()
    t = np.tanh(x.detach().numpy())
    want = 2 * t * (1 - t * t) + x.detach().numpy() / np.linalg.norm(x.detach().numpy())
    want[np.arange(3), x.detach().numpy().argmax(1)] += 1 / 3
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-12)


def test_array_api_compat_finds_the_namespace():
    compat = pytest.importorskip("array_api_compat")
    x = lucid.ones(2, 3)
    assert compat.array_namespace(x) is xp and compat.is_array_api_obj(x)
    assert compat.device(x) == x.device and compat.to_device(x, "cpu") is x


def standardize(x):
    """A scaler in the style of scikit-learn's array-API code."""
    namespace = x.__array_namespace__()
    mean = namespace.mean(x, axis=0)
    scale = namespace.std(x, axis=0)
    scale = namespace.where(scale < 10 * namespace.finfo(scale.dtype).eps, namespace.ones_like(scale), scale)
    return (x - mean) / scale


def test_library_code_runs_and_differentiates(device):
    a = np.random.default_rng(0).normal(2.0, 3.0, size=(50, 4))
    a[:, 2] = 1.0
    x = lucid.tensor(a, device=device, requires_grad=True)
    out = standardize(x)
    scale = a.std(0)
    scale[2] = 1.0
    np.testing.assert_allclose(host(out), (a - a.mean(0)) / scale, atol=1e-10)
    (out**3).sum().backward()
    assert x.grad.shape == x.shape and bool(lucid.isfinite(x.grad).all())


# ---- NumPy ----


def test_numpy_operators_record(device):
    a = np.arange(3.0)
    x = lucid.tensor(a + 1, device=device, requires_grad=True)
    y = a * x + a - x / (a + 1.0) + np.float64(2) * x
    assert isinstance(y, lucid.Tensor) and y.requires_grad
    y.sum().backward()
    np.testing.assert_allclose(host(x.grad), a - 1 / (a + 1) + 2)
    assert isinstance(a < x, lucid.Tensor) and (a @ x).item() == 8.0 and (a**x).dtype == lucid.float64


def test_numpy_functions_on_detached_tensors(device):
    x = lucid.tensor([1.0, 4.0], device=device)
    root = np.sqrt(x)
    assert isinstance(root, lucid.Tensor) and root.tolist() == [1.0, 2.0] and root.device == x.device
    joined = np.concatenate([x, x])
    assert isinstance(joined, lucid.Tensor) and joined.tolist() == [1, 4, 1, 4]
    assert np.add.reduce(x).item() == 5.0 and np.shape(x) == (2,) and np.sum(x).item() == 5.0


def test_numpy_writes_are_seen_by_the_version_counter():
    x = lucid.ones(3)
    view = np.reshape(x, (3, 1))
    assert np.add(x, 1.0, out=x) is x and view.tolist() == [[2.0]] * 3
    np.copyto(x, 5.0)
    w = lucid.ones(3, requires_grad=True)
    y = (w * x).sum()
    np.multiply(x, 2.0, out=x)
    with pytest.raises(lucid.errors.SavedValueError, match="MulBackward: its input"):
        y.backward()
    array = np.ones(3)
    array += lucid.ones(3, dtype="float64")
    assert type(array) is np.ndarray and array.tolist() == [2.0] * 3


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.sqrt(x),
        lambda x: np.add.reduce(x),
        lambda x: np.concatenate([lucid.ones(2), x]),
        lambda x: np.mean(x),
        lambda x: np.multiply(x, x, out=np.ones(2, "float32")),
    ],
)
def test_numpy_functions_refuse_graph_tensors(call):
    x = lucid.ones(2, requires_grad=True)
    with pytest.raises(
        GradError, match=r"np\.\w+: the tensor \(float32\[2\] cpu\) requires grad, .* or x\.detach\(\)"
    ):
        call(x)
    with pytest.raises(GradError, match="requires grad"):
        call(x * 2)


# ---- einops ----


def test_einops_values_and_gradients():
    einops = pytest.importorskip("einops")
    a = np.random.default_rng(0).normal(size=(2, 6, 4))
    calls = [
        lambda x: einops.rearrange(x, "b (h w) c -> b c h w", h=2),
        lambda x: einops.rearrange([x, x], "n b l c -> b (n l) c"),
        *[
            lambda x, r=r: einops.reduce(x, "b (l k) c -> b l c", r, k=3)
            for r in ("sum", "mean", "max", "min", "prod")
        ],
        lambda x: einops.reduce(x, "b l c -> c b", "mean"),
        lambda x: einops.repeat(x, "b l c -> b r (l k) c", k=2, r=3),
        lambda x: einops.einsum(x, x, "b i c, b j c -> b i j"),
        lambda x: einops.pack([x, x], "b * c")[0],
    ]
    for call in calls:
        x = lucid.tensor(a, requires_grad=True)
        out = call(x)
        np.testing.assert_allclose(host(out), call(a), rtol=1e-12)
        weight = np.random.default_rng(1).normal(size=out.shape)
        (out * lucid.tensor(weight)).sum().backward()
        step = np.random.default_rng(2).normal(size=a.shape)
        slope = ((call(a + 1e-6 * step) - call(a - 1e-6 * step)) * weight).sum() / 2e-6
        np.testing.assert_allclose((host(x.grad) * step).sum(), slope, rtol=1e-5, atol=1e-7)


def test_einops_imported_first(tmp_path):
    pytest.importorskip("einops")
    import subprocess
    import sys

    for order in ("import einops, lucid", "import lucid, einops"):
        code = f"{order}; print(einops.rearrange(lucid.ones(2, 3), 'a b -> b a').shape)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "(3, 2)"
