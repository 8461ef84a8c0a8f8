"""What numbers mean beside tensors, where integers end, and what has no order: PyTorch's rules."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.errors import DivisionError, DtypeError, InplaceError, ShapeError

F = lucid.nn.functional
inf, nan = float("inf"), float("nan")


def u8(device, *values):
    return lucid.tensor(list(values), dtype=lucid.uint8, device=device)


FLOATING = [
    (lambda x: x / -2, [-0.5, -1.0]), (lambda x: -2 / x, [-2.0, -1.0]),
    (lambda x: lucid.copysign(x, -2), [-1.0, -2.0]), (lambda x: lucid.xlogy(-1, x), [0.0, -np.log(2)]),
    (lambda x: lucid.atan2(x, -1), [np.arctan2(1, -1), np.arctan2(2, -1)]),
    (lambda x: lucid.special.chebyshev_polynomial_t(x, -2), [0.0, 0.0]),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(FLOATING)))
def test_a_negative_number_beside_unsigned_integers_is_itself_where_the_result_is_floating(case, device):
    run, right = FLOATING[case]
    np.testing.assert_allclose(run(u8(device, 1, 2)).cpu().numpy(), right, rtol=1e-6)


def written(x):
    x[0] = -1
    return x


WRAPS = [
    (lambda x: lucid.full_like(x, -1), [255, 255]), (lambda x: x.new_full((2,), -1), [255, 255]),
    (lambda x: x.masked_fill(x > 1, -1), [1, 255]), (written, [255, 2]),
    (lambda x: x.clone().fill_(-1), [255, 255]),
    (lambda x: x.index_fill(0, lucid.tensor([0], device=x.device), -1), [255, 2]),
    (lambda x: x.scatter(0, lucid.tensor([0], device=x.device), -1), [255, 2]),
    (lambda x: lucid.tensor([-1, 7], dtype=lucid.uint8, device=x.device), [255, 7]),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(WRAPS)))
def test_negative_numbers_wrap_around_where_they_are_stored_as_unsigned(case, device):
    run, right = WRAPS[case]
    assert run(u8(device, 1, 2)).tolist() == right


STORED = [
    (lambda x: x.__setitem__(0, 300), "setitem: 300 does not fit in uint8; take a wider dtype"),
    (lambda x: lucid.full((2,), 128, dtype=lucid.int8), "full: 128 does not fit in int8"),
    (lambda x: x.masked_fill(x > 1, 300), "masked_fill: 300 does not fit in uint8"),
    (lambda x: lucid.full_like(x, nan), "full: nan does not fit in uint8"),
    (lambda x: lucid.tensor([300], dtype=lucid.uint8), "tensor: 300 does not fit in uint8"),
    (lambda x: lucid.tensor([[-129]], dtype=lucid.int8), "tensor: -129 does not fit in int8"),
]


@pytest.mark.parametrize("case", range(len(STORED)))
def test_numbers_that_do_not_fit_are_refused(case):
    run, text = STORED[case]
    with pytest.raises(DtypeError) as caught:
        run(u8("cpu", 1, 2))
    assert str(caught.value).startswith(text)


DIVISIONS = [
    ("floor_divide", lambda x, y: x // y), ("remainder", lambda x, y: x % y), ("fmod", lucid.fmod),
    ("div", lambda x, y: lucid.div(x, y, rounding_mode="trunc")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "run"), DIVISIONS)
def test_integers_are_not_divided_by_zero(name, run):
    x = lucid.tensor([1, 2])
    for y in (0, lucid.tensor([1, 0])):
        with pytest.raises(DivisionError) as caught:
            run(x, y)
        assert str(caught.value).startswith(f"{name}: integers cannot be divided by 0; convert with .float()")
        assert isinstance(caught.value, ZeroDivisionError)
    assert not run(x.float(), lucid.tensor([0, 0])).isfinite().any()
    assert run(x[:0], 0).shape == (0,)


Z = [1 + 2j, 3 - 1j]
ORDERED = [
    ("lt", lambda z: z < 1), ("le", lambda z: z <= z), ("gt", lambda z: z.imag + 1j < 1),
    ("ge", lambda z: z >= 1j),
    ("maximum", lambda z: lucid.maximum(z, z)), ("minimum", lambda z: lucid.minimum(z, z.real)),
    ("fmax", lambda z: lucid.fmax(z, z)), ("fmin", lambda z: lucid.fmin(z, z)),
    ("clamp", lambda z: z.clamp(0, 1)),
    ("clamp_min", lambda z: z.clamp(min=0)), ("clamp_max", lambda z: z.clamp_max(1)),
    ("maximum", lambda z: z.max(z)),
    ("minimum", lambda z: lucid.min(z, z)), ("sort", lambda z: z.sort()), ("sort", lambda z: z[0].sort()),
    ("argsort", lambda z: z.argsort()), ("topk", lambda z: z.topk(1)), ("argmax", lambda z: z.argmax()),
    ("amax", lambda z: z.amax()), ("median", lambda z: z.median()), ("cummax", lambda z: z.cummax(0)),
    ("kthvalue", lambda z: z.kthvalue(1)), ("relu", lambda z: F.relu(z)),
    ("msort", lambda z: lucid.msort(z)),
    ("aminmax", lambda z: z.aminmax()), ("mode", lambda z: z.mode()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "run"), ORDERED)
def test_complex_numbers_have_no_order(name, run, device):
    with pytest.raises(DtypeError, match="complex numbers have no order, got complex64; "):
        run(lucid.tensor(Z, device=device))


def test_complex_numbers_are_equal_or_not(device):
    z = lucid.tensor(Z, device=device)
    assert (z == z.flip(0)).tolist() == [False, False] and (z != 1).all()


def test_what_an_expanded_tensor_may_write(device):
    x = lucid.tensor([[1.0, 2.0, 3.0]], device=device)
    x.expand(2, 3)[0].add_(1)  # no two elements of it share a place
    x.expand(1, 3).mul_(2)
    assert x.tolist() == [[4.0, 6.0, 8.0]]
    with pytest.raises(InplaceError, match="several elements of the tensor .* share one place in memory"):
        x.expand(2, 3).add_(1)
    frozen = np.ones((1, 3), np.float32)
    frozen.flags.writeable = False
    x = lucid.from_numpy(frozen)
    assert not x.expand(2, 3).array.flags.writeable


SMALL = [
    (lambda: lucid.square(lucid.tensor([True, False])), [1, 0], "int64"),
    (lambda: lucid.linalg.vander(lucid.tensor([1, 20], dtype=lucid.int8), N=3),
     [[1, 1, 1], [1, 20, 400]], "int64"),
    (lambda: lucid.unravel_index(lucid.tensor([3], dtype=lucid.int16), (2, 2))[0], [1], "int64"),
    (lambda: lucid.histc(lucid.tensor([1.0, 2.0]).half(), 2), [1, 1], "float16"),
    (lambda: lucid.matrix_exp(lucid.zeros(2, 2).half()), [[1, 0], [0, 1]], "float16"),
    (lambda: lucid.special.legendre_polynomial_p(lucid.tensor([1, 2]), lucid.tensor([1.0, 2.0]).double()),
     [1, 5.5], "float64"),
    (lambda: lucid.unique(lucid.zeros(0, 3), dim=0), [], "float32"),
    (lambda: lucid.lgamma(lucid.tensor([-inf, inf, 0.0])), [inf] * 3, "float32"),
    (lambda: F.kl_div(lucid.tensor([1.0, 3.0]), lucid.tensor([1.0, 0.0]), reduction="none"), [-1, 0],
     "float32"),
    (lambda: lucid.rms_norm(lucid.tensor([1.0, 1.0]).half() * 2.0**-10, (2,)).round(decimals=2),
     [float(np.float16(0.94))] * 2, "float16"),
    (lambda: lucid.fft.fftn(lucid.tensor([1.0, 2.0, 3.0]), 2), [3, -1], "complex64"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(SMALL)))
def test_values_and_dtypes(case):
    run, right, dtype = SMALL[case]
    out = run()
    assert out.tolist() == right and out.dtype.name == dtype


def test_kl_div_of_a_negative_probability_is_nan():
    assert F.kl_div(lucid.tensor([0.0]), lucid.tensor([-1.0])).isnan()


REFUSED = [
    (lambda: lucid.ones(2).reshape(-2), ShapeError,
     "reshape: a tensor of shape (2,) (2 elements) does not fit shape (-2,)"),
    (lambda: lucid.ones(2).view(-3), ShapeError, "view: "),
    (lambda: lucid.tensor(1.0).transpose(0, 3), IndexError, "transpose: dim must lie in [-1, 0]"),
    (lambda: lucid.roll(lucid.tensor(1.0), 1, 1), IndexError, "roll: dim must lie in [-1, 0]"),
    (lambda: lucid.linalg.cross(lucid.ones(3), lucid.ones(3), dim=2), IndexError,
     "linalg.cross: dim must lie in [-1, 0]"),
    (lambda: lucid.fft.fft(lucid.ones(3), -1), ShapeError,
     "fft.fft: sizes must be positive, got (-1,)"),
    (lambda: F.binary_cross_entropy(lucid.tensor([0.5]), lucid.tensor([2.0])), IndexError,
     "binary_cross_entropy: the target must be probabilities in [0, 1]"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_is_refused(case):
    run, kind, text = REFUSED[case]
    with pytest.raises(kind) as caught:
        run()
    assert str(caught.value).startswith(text)


def test_positive_and_a_view_in_the_same_dtype_are_the_tensor_itself():
    x = lucid.ones(2, requires_grad=True)
    y = x * 1
    assert lucid.positive(y) is y and y.positive() is y
    y.view(lucid.float32).mul_(3)
    y.sum().backward()
    assert y.tolist() == [3, 3] and x.grad.tolist() == [3, 3]
    with pytest.raises(DtypeError, match="positive: expected numbers, got a bool tensor; convert it"):
        lucid.positive(x > 0)


def test_lp_pool_of_zeros_has_gradient_zero(device):
    x = lucid.tensor([[0.0, 0.0, 3.0, 4.0]], device=device, requires_grad=True)
    out = F.lp_pool1d(x, 2.0, 2)
    out.sum().backward()
    assert out.tolist() == [[0.0, 5.0]]
    np.testing.assert_allclose(x.grad.cpu().numpy(), [[0.0, 0.0, 0.6, 0.8]], rtol=1e-6)
