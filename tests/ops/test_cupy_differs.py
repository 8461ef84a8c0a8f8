"""Ops whose CuPy functions differ from NumPy's: the simulated device differs in the same way, so that these
tests fail where `lucid.storage.corrected`, or the op, does not put it right."""

import ml_dtypes
import numpy as np
import pytest

import lucid
from lucid.errors import DtypeError, LinAlgError

BF16 = lucid.bfloat16


def test_a_choice_between_bfloat16_tensors_stays_bfloat16(device):
    x = lucid.arange(6, dtype=BF16, device=device).reshape(2, 3)
    x.requires_grad_(True)
    for out in (
        lucid.where(x > 2, x, -x),
        lucid.where(x > 2, x, 0.5),
        x.masked_fill(x > 2, 7.0),
        x.tril(),
        x.triu(),
        lucid.nn.functional.softshrink(x, 0.5),
        lucid.nn.functional.threshold(x, 1.0, 0.0),
        lucid.nan_to_num(x),
        x * 0.5 + 1.5,
        x.clamp(0.5, 3.5),
    ):
        assert out.dtype == BF16
        (grad,) = lucid.autograd.grad(out.sum(), x)
        assert grad.dtype == BF16
    chosen = lucid.where(x > 2, x, 0.1).detach().cpu().numpy()
    want = np.where(np.arange(6) > 2, np.arange(6), np.float32(0.1).astype(ml_dtypes.bfloat16).astype("f4"))
    np.testing.assert_array_equal(chosen.astype("f4").reshape(-1), want)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_quotients_are_those_of_the_exact_quotient(device, dtype):
    special = [0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 5, -5, np.inf, -np.inf, np.nan, 7.5, -2, 3e4]
    rng = np.random.default_rng(0)
    special = np.array(special, dtype)
    x, y = (a.reshape(-1) for a in np.meshgrid(special, special))
    pairs = [(x, y), *((rng.normal(size=500, scale=s).astype(dtype), rng.normal(size=500).astype(dtype))
                       for s in (1, 100))]  # fmt: skip
    for x, y in pairs:
        left, right = lucid.tensor(x, device=device), lucid.tensor(y, device=device)
        for name in ("remainder", "floor_divide"):
            got = getattr(lucid, name)(left, right).cpu().numpy()
            with np.errstate(all="ignore"):
                want = getattr(np, name)(x, y)
            np.testing.assert_array_equal(got, want)
            zero = want == 0
            np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    assert (lucid.tensor([7, -7], device=device) // 2).tolist() == [3, -4]
    assert (lucid.tensor([7.5], device=device) % 2).tolist() == [1.5]
    assert (1.0 // left[:1]).dtype == left.dtype
    assert lucid.remainder(lucid.tensor([5.0, -5.0], device=device, dtype=BF16), 3.0).tolist() == [2.0, 1.0]


def test_a_negative_zero_keeps_its_sign(device):
    numbers = (
        lucid.tensor(-0.0, device=device),
        lucid.tensor([-0.0], device=device),
        lucid.from_numpy(np.array(-0.0)).to(device),
        lucid.ones(2, device=device).fill_(-0.0),
        lucid.full((2,), -0.0, device=device),
    )
    for x in numbers:
        assert np.signbit(x.cpu().numpy()).all()
    assert not np.signbit(lucid.tensor(0.0, device=device).cpu().numpy())


def test_a_failure_is_told_by_the_library_not_by_what_it_left(device):
    indefinite = lucid.tensor([[1.0, 2.0], [2.0, 1.0]], device=device)
    for x in (indefinite, lucid.stack([lucid.eye(2, device=device), indefinite])):
        with pytest.raises(LinAlgError, match="positive definite"):
            lucid.linalg.cholesky(x)
    two = lucid.stack([lucid.eye(2, device=device), lucid.zeros(2, 2, device=device)])
    for call in (lucid.linalg.inv, lambda v: lucid.linalg.solve(v, v)):
        with pytest.raises(LinAlgError, match=r"batch index \(1,\)\) is singular"):
            call(two)
    assert lucid.linalg.solve(indefinite, lucid.zeros(2, 0, device=device)).shape == (2, 0)


def test_linear_algebra_refuses_16_bit_floats(device):
    for dtype in (BF16, lucid.float16):
        x = lucid.eye(2, device=device).to(dtype)
        la = lucid.linalg
        for f in (la.inv, la.det, la.svd, la.cholesky, la.lu):
            with pytest.raises(DtypeError, match=r"no 16-bit floats, got \w+; convert it with .float\(\)"):
                f(x)


def test_order_of_nan_and_of_bfloat16(device):
    x = np.random.default_rng(0).permutation(400).astype("f4")
    x[7] = np.nan
    t = lucid.tensor(x, device=device)
    low, high = t.topk(5, largest=False), t.topk(5)
    assert low.values.tolist() == np.sort(x)[:5].tolist() and np.isnan(high.values.cpu().numpy()[0])
    small = t[:50].nan_to_num().to(BF16)
    assert small.sort().values.dtype == small.unique().dtype == BF16
    assert lucid.isin(small, small[:3]).sum().item() >= 3


def test_half_spectra_need_not_be_hermitian_in_the_other_dimensions(device):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4, 4)) + 1j * rng.normal(size=(3, 4, 4))
    for dims, n in (((1, 2), 6), ((0, 1, 2), 7), ((2, 0), 5)):
        half = x.take(range(n // 2 + 1), dims[-1]) if n // 2 + 1 < x.shape[dims[-1]] else x
        size = n if half.shape[dims[-1]] == n // 2 + 1 else 2 * (half.shape[dims[-1]] - 1)
        shape = (*(half.shape[d] for d in dims[:-1]), size)
        got = lucid.fft.irfftn(lucid.tensor(half, device=device), s=shape, dim=dims, norm="ortho")
        want = np.fft.irfftn(half, shape, dims, "ortho")
        np.testing.assert_allclose(got.cpu().numpy(), want, atol=1e-12)


@pytest.mark.parametrize("dtype", [lucid.float16, BF16])
def test_running_variances_of_16_bit_floats_do_not_overflow(device, dtype):
    x = (lucid.arange(300 * 300, device=device) % 7 - 3).to(dtype).reshape(1, 1, 300, 300)
    mean, var = lucid.zeros(1, device=device), lucid.ones(1, device=device)
    lucid.nn.functional.instance_norm(x, mean, var, momentum=1.0)
    want = x.float().var()
    assert abs(var.item() - want.item()) < 0.01 and mean.dtype == var.dtype == lucid.float32


@pytest.mark.parametrize("dtype", [lucid.float16, BF16])
def test_losses_of_many_16_bit_floats_are_summed_in_float32(device, dtype):
    x = lucid.zeros(70000, 2, device=device, dtype=dtype)
    target = lucid.zeros(70000, device=device, dtype=lucid.int64)
    x.requires_grad_(True)
    loss = lucid.nn.functional.nll_loss(x - 1.5, target)
    assert loss.item() == 1.5 and loss.dtype == dtype
    for name in ("nll_loss", "cross_entropy"):
        loss = getattr(lucid.nn.functional, name)(x - 1.5, target)
        (grad,) = lucid.autograd.grad(loss, x)
        assert loss.item() > 0.6 and grad[0, 0].item() < 0 and bool(lucid.isfinite(grad).all())
