"""Dtypes, promotion, devices."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

import lucid
from lucid.errors import DeviceError, DtypeError
from lucid.storage import backend_of, dtype
from lucid.storage.device import Device


def test_promotion_matches_pytorch():
    torch = pytest.importorskip("torch")

    def t(d):
        return getattr(torch, d.name)

    for a, b in itertools.product(dtype.ALL, repeat=2):
        assert t(dtype.promote_types(a, b)) is torch.promote_types(t(a), t(b)), (a, b)


@pytest.mark.parametrize("a", dtype.ALL, ids=lambda d: d.name)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("b", [(), (2,)], ids=["0-d", "1-d"])
def test_result_dtypes_of_tensors_match_pytorch(a, b):
    torch = pytest.importorskip("torch")
    for other in dtype.ALL:
        for shape in ((), (2,)):
            x = lucid.ones(2, dtype=a).reshape(2) if b else lucid.ones((), dtype=a)
            y = lucid.ones(shape, dtype=other)
            tx, ty = (
                torch.ones(b, dtype=getattr(torch, a.name)),
                torch.ones(shape, dtype=getattr(torch, other.name)),
            )
            expected = str((tx * ty).dtype).removeprefix("torch.")
            # NumPy has no complex of two halves; lucid takes the next wider one.
            assert (x * y).dtype.name == expected.replace("complex32", "complex64"), (a, other, shape)


@pytest.mark.parametrize("a", dtype.ALL, ids=lambda d: d.name)
def test_numbers_do_not_widen_tensors(a):
    torch = pytest.importorskip("torch")
    x, tx = lucid.ones(2, dtype=a), torch.ones(2, dtype=getattr(torch, a.name))
    for number in (True, 2, 2.5, 1j):
        expected = str((tx * number).dtype).removeprefix("torch.").replace("complex32", "complex64")
        assert (x * number).dtype.name == (number + x).dtype.name == expected, (a, number)


def test_table_without_pytorch():
    p = dtype.promote_types
    assert p(dtype.int64, dtype.float16) == dtype.float16 and p(dtype.uint8, dtype.int8) == dtype.int16
    assert (
        p(dtype.float16, dtype.bfloat16) == dtype.float32
        and p(dtype.float64, dtype.complex64) == dtype.complex128
    )
    x = lucid.tensor([1, 2])
    assert (
        (x * 2.5).dtype == lucid.float32
        and (x / 2).dtype == lucid.float32
        and (x * lucid.tensor(2.0, dtype="float64")).dtype == lucid.float64
    )
    assert (lucid.ones(2, dtype="float16") * lucid.tensor(2.0, dtype="float64")).dtype == lucid.float16


def test_gradients_have_the_dtype_of_their_input():
    x = lucid.ones(2, dtype="float32", requires_grad=True)
    w = lucid.ones(2, dtype="float64", requires_grad=True)
    y = x * w
    assert y.dtype == lucid.float64
    y.sum().backward()
    assert x.grad.dtype == lucid.float32 and w.grad.dtype == lucid.float64
    z = lucid.ones(2, requires_grad=True)
    (z * 1j).real.sum().backward() if hasattr(lucid.Tensor, "real") else None
    assert z.grad is None or z.grad.dtype == lucid.float32


def test_default_dtype():
    assert lucid.get_default_dtype() == lucid.float32 == lucid.tensor(1.5).dtype
    lucid.set_default_dtype(lucid.float64)
    try:
        assert lucid.tensor(1.5).dtype == lucid.float64
    finally:
        lucid.set_default_dtype(lucid.float32)
    with pytest.raises(DtypeError, match="expected a floating dtype, got int64"):
        lucid.set_default_dtype(lucid.int64)
    with pytest.raises(DtypeError, match=r"expected one of bool.*got 'float128'"):
        lucid.tensor(1.0, dtype="float128")


def test_integers_cannot_require_grad():
    with pytest.raises(
        DtypeError, match=r"only floating and complex tensors have gradients, got int64.*x\.float\(\)"
    ):
        lucid.tensor([1, 2], requires_grad=True)
    with pytest.raises(DtypeError, match="got bool"):
        lucid.tensor([True]).requires_grad_()


def test_devices():
    assert (
        str(Device("cuda", 1)) == "cuda:1"
        and Device("cuda:1") == Device("cuda", 1)
        and Device("cpu") == lucid.device("cpu")
    )
    assert repr(lucid.device("cpu")) == "device(type='cpu')" and hash(Device("cuda:0")) == hash(
        Device("cuda", 0)
    )
    for bad, text in (
        ("tpu", "expected one of cpu, cuda"),
        ("cuda:x", "expected 'cpu', 'cuda' or 'cuda:N'"),
        ("cpu:3", "one 'cpu'"),
    ):
        with pytest.raises(DeviceError, match=text):
            Device(bad)
    with lucid.device("cpu") as d:
        assert lucid.tensor(1.0).device == d


@pytest.mark.skipif("cupy" in sys.modules, reason="a CUDA device, real or simulated, is in use")
def test_cuda_without_a_gpu_names_the_cure():
    try:
        backend_of("cuda")
    except DeviceError as error:
        assert "cuda" in str(error) and ("pip install" in str(error) or "driver" in str(error))
    else:
        pytest.skip("there is a CUDA device")


def test_views_share_version_and_memory():
    x = lucid.tensor(np.arange(6.0).reshape(2, 3))
    v = x.transpose(0, 1)[1]
    v.add_(10.0)
    assert x._version == v._version == 1 and v.storage.root is x.storage
    np.testing.assert_array_equal(x.numpy(), [[0, 11, 2], [3, 14, 5]])


def test_many_views_of_a_parameter_are_forgotten():
    w = lucid.ones(2, 2, requires_grad=True)
    for _ in range(1000):
        w.transpose(0, 1)
    assert len(w.storage.views) < 40
