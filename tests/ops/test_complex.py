"""Complex numbers: `x.real` and `x.imag` are views, as NumPy's and PyTorch's; logcumsumexp in the plane."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.errors import DtypeError, SavedValueError

DATA = np.array([[1 + 2j, 3 - 1j, 0.5j], [2, -1 - 1j, 4 + 4j]])


@pytest.mark.parametrize("part", ["real", "imag"])
def test_a_part_shares_memory_and_version(part, device):
    x = lucid.tensor(DATA, device=device)
    view = getattr(x, part)
    np.testing.assert_array_equal(view.cpu().numpy(), getattr(DATA, part))
    assert view.stride() == (6, 2) and view.dtype == lucid.float64
    view.mul_(2)
    assert x._version == view._version == 1
    expected = DATA.copy()
    setattr(expected, part, 2 * getattr(DATA, part))
    np.testing.assert_array_equal(x.cpu().numpy(), expected)
    x.zero_()
    assert view.tolist() == [[0.0] * 3] * 2


PROGRAMS = {
    "read": lambda x, w: (x.real * 2 + x.imag**2).sum(),
    "scale real": lambda x, w: (x.real.mul_(w), (x * x).abs().sum())[1],
    "write imag": lambda x, w: (x.imag.copy_(w), (x * x.conj()).real.sum())[1],
    "add to both": lambda x, w: (x.real.add_(w), x.imag.sub_(w), x.abs().sum())[2],
    "part of a slice": lambda x, w: (x[0].imag.mul_(w[0]), (x.real * x.imag).sum())[1],
    "slice of a part": lambda x, w: (x.real[:, 1].mul_(3.0), (x.abs() ** 2).sum())[1],
    "second view": lambda x, w: view_then_write(x, w),
}


def view_then_write(x, w):
    early = x.real
    x.mul_(2j)
    early.add_(w)
    return (x.abs() ** 2).sum() + early.sum()


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_pytorch(name, device):
    torch = pytest.importorskip("torch")
    weight = np.arange(1.0, 7.0).reshape(2, 3)

    def run(lib, **where):
        x, w = (lib.tensor(a, requires_grad=True, **where) for a in (DATA, weight))
        loss = PROGRAMS[name](x * 1, w)
        loss.backward()
        return [np.zeros(1) if t is None else t.detach().cpu().numpy() for t in (loss, x.grad, w.grad)]

    for a, b in zip(run(lucid, device=device), run(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_parts_can_be_assigned(device):
    x = lucid.tensor(DATA, device=device)
    x.real = lucid.ones(2, 3, device=device)
    x.imag = 5.0
    assert x.tolist() == [[1 + 5j] * 3] * 2
    y = lucid.ones(2, device=device)
    y.real = 3.0
    assert y.tolist() == [3.0, 3.0] and y.real is y


def test_a_saved_tensor_written_through_a_part_is_noticed(device):
    x = lucid.tensor(DATA, device=device, requires_grad=True)
    y = x * 1
    z = y * y
    y.real.zero_()
    with pytest.raises(SavedValueError):
        z.abs().sum().backward()


def test_the_imaginary_part_of_real_numbers_is_refused(device):
    with pytest.raises(DtypeError, match="^imag: expected a complex tensor, got float32"):
        _ = lucid.ones(2, device=device).imag


ROWS = {
    "moderate": np.array([[1 + 2j, -1 + 0.5j, 2 - 1j, 0.3 + 3j], [0, 1j, -2j, 1 + 1j]]),
    "large": np.array([[1e3 + 1j, 1e3 + 2j, -1e3 - 3j, 1001 + 0.5j]]),
    "leading -inf": np.array([[-np.inf + 0j, -np.inf + 0j, 1 + 1j, -np.inf, 2 + 0j]]),
}


@pytest.mark.parametrize("name", ROWS)
def test_complex_logcumsumexp(name, device):
    torch = pytest.importorskip("torch")
    a = ROWS[name]
    seed = np.linspace(0.5, 1.5, a.size).reshape(a.shape) * (1 + 0.5j)

    def run(lib, **where):
        x = lib.tensor(a, requires_grad=True, **where)
        out = lib.logcumsumexp(x, 1)
        finite = lib.isfinite(out.detach())
        (lib.where(finite, out, 0) * lib.tensor(seed, **where)).sum().abs().backward()
        return out.detach().cpu().resolve_conj().numpy(), x.grad.cpu().resolve_conj().numpy()

    (out, grad), (expected, expected_grad) = run(lucid, device=device), run(torch)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(grad, np.where(np.isfinite(a), expected_grad, 0), rtol=1e-10, atol=1e-10)
    single = lucid.logcumsumexp(lucid.tensor(a.astype("complex64"), device=device), 1)
    assert single.dtype == lucid.complex64
    np.testing.assert_allclose(single.cpu().numpy(), expected, rtol=2e-6, atol=2e-6)
