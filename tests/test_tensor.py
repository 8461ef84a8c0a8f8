"""Tensor: construction, conversion, operators, errors."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import lucid
from lucid.errors import DeviceError, DtypeError, GradError, LucidError, ShapeError


def test_construction(device):
    assert lucid.tensor([[1, 2], [3, 4]], device=device).dtype == lucid.int64
    assert lucid.tensor([1.0, 2], device=device).dtype == lucid.float32
    assert lucid.tensor(np.float64(1.5), device=device).dtype == lucid.float64
    assert lucid.tensor([True], device=device).dtype == lucid.bool
    assert lucid.tensor(1j, device=device).dtype == lucid.complex64
    assert lucid.tensor([], device=device).dtype == lucid.float32
    assert lucid.tensor([lucid.tensor(1.0), lucid.tensor(2.0)], device=device).shape == (2,)
    a = np.zeros(2)
    t = lucid.tensor(a, device=device)
    a[0] = 5
    assert t.tolist() == [0, 0]
    with pytest.raises(ShapeError, match="equal lengths"):
        lucid.tensor([[1, 2], [3]], device=device)
    with pytest.raises(DtypeError, match="expected numbers"):
        lucid.tensor(["a"], device=device)


def test_leaving_lucid(device):
    t = lucid.tensor([[1.0, 2.0]], device=device)
    assert (
        t.tolist() == [[1.0, 2.0]] and t.sum().item() == 3.0 and float(t[0, 1]) == 2.0 and int(t[0, 0]) == 1
    )
    assert t.cpu().numpy().shape == (1, 2) and np.asarray(t.cpu()).sum() == 3
    with pytest.raises(ShapeError, match=r"item: expected a tensor with one element, got float32\[1,2\]"):
        t.item()
    with pytest.raises(GradError, match=r"\.detach\(\)\.numpy\(\)"):
        t.requires_grad_().numpy()
    with pytest.raises(LucidError, match="ambiguous.*any"):
        bool(lucid.tensor([1.0, 2.0], device=device))
    assert bool(lucid.tensor([[1.0]], device=device)) and [1, 2, 3][lucid.tensor(1, device=device)] == 2
    with pytest.raises(DtypeError, match="only integer tensors"):
        [1, 2][lucid.tensor(1.0, device=device)]


def test_repr(device):
    where = "" if device == "cpu" else f", device='{lucid.tensor(0.0, device=device).device}'"
    assert repr(lucid.tensor([1.0, 2.5], device=device)) == f"tensor([1. , 2.5]{where})"
    assert repr(lucid.tensor(1.0, dtype="float64", device=device)) == f"tensor(1.{where}, dtype=float64)"
    x = lucid.tensor(2.0, device=device, requires_grad=True)
    assert repr(x) == f"tensor(2.{where}, requires_grad=True)" and "grad_fn=<MulBackward>" in repr(x * x)
    assert repr(lucid.Parameter(lucid.ones(1))).startswith("Parameter containing:\ntensor([1.]")
    assert f"{lucid.tensor(2.5):.2f}" == "2.50"


def test_operators_match_numpy(device):
    a, b = np.array([1.0, -2.0, 3.5]), np.array([2.0, 3.0, -0.5])
    x, y = lucid.tensor(a, device=device), lucid.tensor(b, device=device)
    for f in (
        lambda p, q: p + q,
        lambda p, q: p - q,
        lambda p, q: p * q,
        lambda p, q: p / q,
        lambda p, q: p // q,
        lambda p, q: p % q,
        lambda p, q: 2.0 - p,
        lambda p, q: 2.0 / q,
        lambda p, q: 2**q,
        lambda p, q: abs(p) ** q,
        lambda p, q: -p,
        lambda p, q: p @ q,
        lambda p, q: 3.0 // q,
        lambda p, q: p * 1.5 + 1,
    ):
        np.testing.assert_allclose(f(x, y).cpu().numpy(), f(a, b))
    for f in (
        lambda p, q: p < q,
        lambda p, q: p <= q,
        lambda p, q: p > q,
        lambda p, q: p >= q,
        lambda p, q: p == q,
        lambda p, q: p != q,
        lambda p, q: (p > 0) & (q > 0),
        lambda p, q: (p > 0) | (q > 0),
        lambda p, q: ~(p > 0),
        lambda p, q: (p > 0) ^ (q > 0),
    ):
        np.testing.assert_array_equal(f(x, y).cpu().numpy(), f(a, b))
    i = lucid.tensor([1, 2, 3], device=device)
    assert (
        (i << 1).tolist() == [2, 4, 6] and (i >> 1).tolist() == [0, 1, 1] and (1 - i).tolist() == [0, -1, -2]
    )
    assert (np.array([1.0]) * lucid.tensor([2.0])).tolist() == [2.0]


def test_constants_are_not_confused(device):
    x = lucid.tensor([1.0], device=device)
    assert np.signbit((x * -0.0).item()) and not np.signbit((x * 0.0).item())
    assert (lucid.tensor([1], device=device) * True).dtype == lucid.int64 and (
        lucid.tensor([1], device=device) * 1.0
    ).dtype == lucid.float32
    assert (
        np.isnan((x * float("nan")).item())
        and (lucid.tensor([250], dtype="uint8", device=device) + 10).item() == 4
    )


def test_error_messages_name_op_arguments_and_cure(device):
    x, y = lucid.ones(3, 4, device=device), lucid.ones(5, device=device)
    for call, text in (
        (lambda: x + y, r"add: .*float32\[3,4\].*float32\[5\]"),
        (lambda: x @ x, r"matmul: x.shape\[-1\] must equal y.shape\[-2\], got 4 and 3"),
        (
            lambda: x @ lucid.ones(4, 2, dtype="float64", device=device),
            "matmul: expected one dtype, got float32 and float64",
        ),
        (lambda: x.sum(dim=2), r"sum: dim must lie in \[-2, 1\]"),
        (lambda: x.reshape(5, 5), r"reshape: .*\(3, 4\).*12 elements"),
        (lambda: x.permute(0, 0), "permute"),
        (lambda: x.expand(3, 5), "cannot be broadcast"),
        (lambda: lucid.tensor([1], device=device).mean(), r"mean: expected a floating.*got int64.*float\(\)"),
        (lambda: x * "a", "mul: expected a tensor or a number, got str"),
        (lambda: x * None, "mul: expected a tensor or a number, got NoneType"),
        (lambda: lucid.tanh([1.0]), "tanh: expected a tensor or a number, got list"),
        (lambda: lucid.tensor([True], device=device) - lucid.tensor([True], device=device), "sub: .*bool"),
    ):
        with pytest.raises(LucidError, match=text):
            call()


def test_copies(device):
    x = lucid.tensor([1.0, 2.0], device=device, requires_grad=True)
    x.grad = lucid.ones(2, device=device)
    y = copy.deepcopy(x)
    assert y.requires_grad and y.grad is not x.grad and y.data_ptr() != x.data_ptr() and y.device == x.device
    with pytest.raises(GradError, match="leaves"):
        copy.deepcopy(x * 2)
    z = pickle.loads(pickle.dumps(x))
    assert z.requires_grad and z.tolist() == [1.0, 2.0] and z.device == x.device
    p = pickle.loads(pickle.dumps(lucid.Parameter(lucid.ones(2))))
    assert isinstance(p, lucid.Parameter)


def test_to(device):
    x = lucid.tensor([1.5, 2.5], device=device, requires_grad=True)
    assert x.to(device) is x and x.to(lucid.float32) is x and x.to(x) is x and x.to(x, copy=True) is not x
    y = x.to("cpu", lucid.float64)
    (y * y).sum().backward()
    assert x.grad.device == x.device and x.grad.tolist() == [3.0, 5.0] and x.grad.dtype == lucid.float32
    assert (
        x.long().tolist() == [1, 2]
        and x.half().dtype == lucid.float16
        and x.bfloat16().dtype == lucid.bfloat16
        and x.bool().tolist() == [True, True]
    )
    with pytest.raises(TypeError, match="unexpected arguments speed"):
        x.to(speed=1)


def test_gradient_through_dtype_and_device_round_trip_to_second_order(device):
    x = lucid.tensor([0.5], dtype="float64", device=device, requires_grad=True)
    y = (x.to("cpu") ** 3).to(device).sum()
    (g,) = lucid.autograd.grad(y, x, create_graph=True)
    (h,) = lucid.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(h.cpu().numpy(), [3.0])


def test_dlpack_and_numpy_share_memory():
    x = lucid.tensor([1.0, 2.0])
    a = np.from_dlpack(x)
    assert np.shares_memory(a, x.numpy())
    x.add_(1.0)
    assert a.tolist() == [2.0, 3.0]


def test_public_names_resolve():
    for name in dir(lucid):
        if name not in ("amp", "cuda", "fusion", "profiler"):
            assert getattr(lucid, name) is not None or name in ("newaxis",), name
    with pytest.raises(AttributeError, match="no attribute 'tanhh'"):
        lucid.tanhh  # noqa: B018


def test_parameter():
    p = lucid.Parameter(lucid.ones(2))
    assert p.requires_grad and isinstance(p, lucid.Tensor) and (p * 2).__class__ is lucid.Tensor
    with pytest.raises(DtypeError):
        lucid.Parameter(lucid.tensor([1]))
    assert not lucid.Parameter(lucid.tensor([1]), requires_grad=False).requires_grad


def test_assigned_gradients_and_flags_are_checked(device):
    x = lucid.ones(2, requires_grad=True, device=device)
    for wrong, error, text in (
        (lucid.ones(3, device=device), ShapeError, r"grad: expected shape \(2,\), .*got \(3,\)"),
        (lucid.ones(2, device=device).double(), DtypeError, r"float64; convert it with .to\(lucid.float32\)"),
        ([1.0, 1.0], GradError, "grad: expected a tensor or None, got list"),
    ):
        with pytest.raises(error, match=text):
            x.grad = wrong
        assert x.grad is None
    x.grad = lucid.full((2,), 5.0, device=device)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [7.0, 7.0]
    x.grad = None
    y = x * 2
    with pytest.raises(GradError, match="only leaves can stop requiring grad"):
        y.requires_grad = False
    assert y.requires_grad
    n = lucid.tensor([1, 2], device=device)
    with pytest.raises(DtypeError, match="only floating and complex tensors have gradients, got int64"):
        n.requires_grad = True
    x.requires_grad = 0
    assert x.requires_grad is False and not (x * 2).requires_grad


def test_a_gradient_stays_on_its_device(device):
    if str(device) == "cpu":
        pytest.skip("needs a second device")
    x = lucid.ones(2, requires_grad=True, device=device)
    with pytest.raises(DeviceError, match=r"grad: expected device cuda:\d, .*got cpu; move it with"):
        x.grad = lucid.ones(2)
