"""Convolution, pooling, interpolation, linear algebra and transforms where they are hard."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.errors import DtypeError, LucidError, ShapeError
from lucid.functional import PUBLIC
from lucid.ops import conv as conv_ops
from lucid.ops.conv import _conv_reference

NAN, INF = float("nan"), float("inf")


def nnf(name):
    """The public function `nn.functional.<name>`, without importing nn."""
    return PUBLIC[f"nn.functional.{name}"]


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def t(array, device, requires_grad=False):
    return lucid.tensor(np.asarray(array), device=device, requires_grad=requires_grad)


def host(tensor):
    return tensor.detach().cpu().numpy()


# ---- convolution ----

SETTINGS = [
    # x, weight, stride, padding, dilation, groups
    ((2, 3, 9, 8), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((2, 4, 9, 8), (6, 2, 3, 2), (2, 1), (0, 1), (1, 2), 2),
    ((3, 4, 7, 7), (4, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    ((2, 20, 5, 5), (3, 20, 3, 3), (1, 1), (2, 0), (1, 1), 1),
    ((2, 5, 6, 6), (7, 5, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((3, 8, 9, 7), (3, 8, 3, 2), (1, 1), (1, 0), (2, 1), 1),
    ((2, 5, 6, 6), (7, 5, 1, 1), (2, 2), (0, 0), (1, 1), 1),
]


@pytest.mark.parametrize("x, weight, stride, padding, dilation, groups", SETTINGS)
def test_convolution_is_its_definition(x, weight, stride, padding, dilation, groups, device):
    x, weight, bias = rand(*x), rand(*weight, seed=1), rand(weight[0], seed=2)
    expected = _conv_reference(x, weight, bias, stride, tuple((p, p) for p in padding), dilation, groups)
    out = lucid.conv2d(t(x, device), t(weight, device), t(bias, device), stride, padding, dilation, groups)
    np.testing.assert_allclose(host(out), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("x, weight, stride, padding, dilation, groups", SETTINGS)
def test_blocks_and_kernel_rows_change_nothing(
    x, weight, stride, padding, dilation, groups, device, monkeypatch
):
    def run():
        xs, ws = t(rand(*x), device, True), t(rand(*weight, seed=1), device, True)
        out = lucid.conv2d(xs, ws, None, stride, padding, dilation, groups)
        return [host(v) for v in (out, *lucid.autograd.grad((out * out).sum(), (xs, ws)))]

    whole = run()
    for block, rows in ((1, 1), (1, 10**9), (10**9, 1), (10**9, 10**9)):
        monkeypatch.setattr(conv_ops, "_BLOCK_BYTES", {"numpy": block})
        monkeypatch.setattr(conv_ops, "_GPU_BLOCK_BYTES", block)
        monkeypatch.setattr(conv_ops, "_MIN_ROWS", rows)
        for a, b in zip(whole, run(), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kernel, dilation", [(3, 1), (4, 1), (2, 3), (1, 1)])
def test_padding_same_keeps_the_size(kernel, dilation, device):
    x, weight = rand(1, 2, 7), rand(3, 2, kernel, seed=1)
    out = lucid.conv1d(t(x, device), t(weight, device), padding="same", dilation=dilation)
    total = dilation * (kernel - 1)
    pad = ((total // 2, total - total // 2),)
    assert out.shape == (1, 3, 7)
    np.testing.assert_allclose(
        host(out), _conv_reference(x, weight, None, (1,), pad, (dilation,)), rtol=1e-10
    )


def test_one_sample_is_a_batch_of_one(device):
    x, weight = t(rand(3, 8), device), t(rand(2, 3, 3), device)
    np.testing.assert_array_equal(
        host(lucid.conv1d(x, weight)), host(lucid.conv1d(x.reshape(1, 3, 8), weight))[0]
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_convolution_rounds_once(dtype, device):
    x, weight = rand(1, 64, 6, 6), rand(2, 64, 3, 3, seed=1)
    xs, ws = (t(a, device).to(getattr(lucid, dtype)) for a in (x, weight))
    out = lucid.conv2d(xs, ws, padding=1)
    exact = _conv_reference(host(xs.double()), host(ws.double()), None, (1, 1), ((1, 1), (1, 1)), (1, 1))
    assert out.dtype == getattr(lucid, dtype)
    half_unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert np.abs(host(out.double()) - exact).max() <= 1.01 * half_unit * np.abs(exact).max()


@pytest.mark.parametrize(
    "stride, padding, output_padding, dilation",
    [(1, 0, 0, 1), (2, 1, 1, 1), (3, 0, 2, 1), (1, 1, 1, 2), (2, 2, 0, 2)],
)
def test_transposed_convolution_is_the_adjoint(stride, padding, output_padding, dilation, device):
    y, weight = rand(2, 4, 5, 6), rand(4, 3, 3, 2, seed=1)
    out = lucid.conv_transpose2d(
        t(y, device), t(weight, device), None, stride, padding, output_padding, dilation=dilation
    )
    x = rand(*out.shape, seed=2)
    back = host(lucid.conv2d(t(x, device), t(weight, device), None, stride, padding, dilation))
    back = back[:, :, :5, :6]
    np.testing.assert_allclose((host(out) * x).sum(), (back * y).sum(), rtol=1e-10)


CONV_ERRORS = [
    (
        lambda x, w: lucid.conv2d(x, w[:, :2]),
        r"expected an input of 2 channels .* got 3 in input \(2, 3, 5, 5\)",
    ),
    (lambda x, w: lucid.conv2d(x, w, groups=3), r"groups=3 must divide weight.shape\[0\] = 4"),
    (
        lambda x, w: lucid.conv2d(x, w, dilation=3),
        r"the kernel spans \(7, 7\) but the padded input is only \(5, 5\)",
    ),
    (lambda x, w: lucid.conv2d(x, w, w[0, 0, 0]), r"expected a bias of shape \(4,\), got \(3,\)"),
    (lambda x, w: lucid.conv2d(x, w, stride=(1, 2, 3)), r"stride must be an int or 2 ints"),
    (
        lambda x, w: lucid.conv2d(x, w, stride=2, padding="same"),
        r"padding='same' needs stride 1, got \(2, 2\)",
    ),
    (
        lambda x, w: lucid.conv2d(x, w, padding="full"),
        r"padding must be 'same', 'valid' or numbers, got 'full'",
    ),
    (lambda x, w: lucid.conv2d(x, w, padding=-1), r"padding must not be negative"),
    (lambda x, w: lucid.conv2d(x, w, stride=0), r"stride and dilation must be positive"),
    (lambda x, w: lucid.conv1d(x, w), r"conv1d: expected a weight \[out, in / groups, 1 sizes\]"),
    (lambda x, w: lucid.conv2d(x[0, 0], w), r"conv2d: expected an input \[batch, channels, 2 sizes\]"),
    (
        lambda x, w: lucid.conv_transpose2d(x, w, output_padding=1),
        r"output_padding must be smaller than stride or dilation",
    ),
    (
        lambda x, w: lucid.conv_transpose2d(x, w),
        r"expected an input of 4 channels \(weight.shape\[0\]\), got 3",
    ),
    (
        lambda x, w: nnf("max_pool2d")(x, 6),
        r"the windows \(6, 6\) \(dilation \(1, 1\)\) do not fit in the input \(5, 5\)",
    ),
    (lambda x, w: nnf("max_pool2d")(x, 2, padding=2), r"padding may be at most half the kernel"),
    (lambda x, w: nnf("avg_pool2d")(x, 2, divisor_override=0), r"divisor_override must not be 0"),
    (lambda x, w: nnf("max_pool1d")(x, 2), r"max_pool1d: expected an input \[batch, channels, 1 sizes\]"),
    (lambda x, w: nnf("adaptive_avg_pool2d")(x, (1, 2, 3)), r"output_size must be an int or 2 ints"),
    (
        lambda x, w: nnf("pad")(x, (5, 0, 0, 0), mode="reflect"),
        r"mode 'reflect' can add at most 4 cells to a dimension of size 5",
    ),
    (lambda x, w: nnf("pad")(x, (1,)), r"expected \(low, high\) pairs"),
    (lambda x, w: nnf("pad")(x, (-3, -3)), r"cannot cut \(-3, -3\) off"),
    (lambda x, w: nnf("interpolate")(x), r"give either size or scale_factor"),
    (lambda x, w: nnf("interpolate")(x, 3, mode="linear"), r"mode 'linear' does not fit an input of shape"),
    (
        lambda x, w: nnf("interpolate")(x, 3, align_corners=True),
        r"align_corners has no meaning in mode 'nearest'",
    ),
    (lambda x, w: nnf("pixel_shuffle")(x, 2), r"channels a multiple of 2 \*\* 2"),
    (lambda x, w: nnf("fold")(x[:, :, 0], (4, 4), 2), r"fold: expected \[batch, a multiple of 4, 9\]"),
    (lambda x, w: nnf("grid_sample")(x, w), r"grid_sample: expected x \[batch, channels, 2 or 3 sizes\]"),
]


@pytest.mark.parametrize("call, message", CONV_ERRORS, ids=lambda v: v[:40] if isinstance(v, str) else "")
def test_messages_name_the_cause(call, message):
    with pytest.raises(LucidError, match=message):
        call(lucid.tensor(rand(2, 3, 5, 5)), lucid.tensor(rand(4, 3, 3, 3)))


# ---- pooling ----


def test_max_pool_passes_nan_on_and_skips_padding(device):
    x = np.array([[[1.0, NAN, -INF, -INF, 3.0, 3.0]]])
    out, index = lucid.max_pool1d(t(x, device), 2, return_indices=True)
    np.testing.assert_array_equal(host(out), [[[NAN, -INF, 3.0]]])
    np.testing.assert_array_equal(host(index), [[[1, 2, 4]]])
    out, index = lucid.max_pool1d(t(np.full((1, 1, 3), -INF), device), 2, padding=1, return_indices=True)
    np.testing.assert_array_equal(host(index), [[[0, 1]]])


def test_max_pool_of_integers(device):
    x = t(np.array([[[-5, -7, -9]]]), device)
    np.testing.assert_array_equal(host(lucid.max_pool1d(x, 2, padding=1)), [[[-5, -7]]])


def test_the_gradient_of_overlapping_windows_adds_up(device):
    x = t([[[1.0, 3.0, 2.0]]], device, True)
    lucid.max_pool1d(x, 2, stride=1).sum().backward()
    np.testing.assert_array_equal(host(x.grad), [[[0.0, 2.0, 0.0]]])


def test_ceil_mode_counts_only_what_exists(device):
    x = t([[[1.0, 2.0, 3.0, 4.0, 5.0]]], device)
    np.testing.assert_allclose(host(lucid.avg_pool1d(x, 2, ceil_mode=True)), [[[1.5, 3.5, 5.0]]])
    padded = lucid.avg_pool1d(x, 3, stride=2, padding=1, count_include_pad=False)
    np.testing.assert_allclose(host(padded), [[[1.5, 3.0, 4.5]]])


@pytest.mark.parametrize("n, m", [(7, 3), (6, 3), (5, 8), (10, 1)])
def test_adaptive_windows(n, m, device):
    x = rand(2, 3, n)
    parts = [x[..., i * n // m : -(-(i + 1) * n // m)] for i in range(m)]
    np.testing.assert_allclose(
        host(lucid.adaptive_avg_pool1d(t(x, device), m)),
        np.stack([p.mean(-1) for p in parts], -1),
        rtol=1e-12,
    )
    out, index = nnf("adaptive_max_pool1d")(t(x, device), m, return_indices=True)
    np.testing.assert_array_equal(host(out), np.stack([p.max(-1) for p in parts], -1))
    np.testing.assert_array_equal(np.take_along_axis(x, host(index), -1), host(out))


def test_unpool_puts_back_what_pool_took(device):
    x = np.abs(rand(2, 3, 6, 4))
    out, index = lucid.max_pool2d(t(x, device), 2, return_indices=True)
    back = host(nnf("max_unpool2d")(out, index, 2))
    np.testing.assert_array_equal(back, np.where(back > 0, x, 0))
    assert (back > 0).sum() == host(out).size


# ---- padding, interpolation, windows ----


@pytest.mark.parametrize(
    "mode, numpy_mode",
    [("constant", "constant"), ("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")],
)
def test_pad_is_numpys(mode, numpy_mode, device):
    x = rand(2, 3, 4, 5)
    out = nnf("pad")(t(x, device), (1, 2, 3, 0), mode=mode)
    np.testing.assert_array_equal(host(out), np.pad(x, ((0, 0), (0, 0), (3, 0), (1, 2)), numpy_mode))


def test_unfold_and_fold_are_adjoint(device):
    x = rand(2, 3, 6, 7)
    settings = {"kernel_size": (2, 3), "dilation": (2, 1), "padding": (1, 0), "stride": (1, 2)}
    columns = nnf("unfold")(t(x, device), **settings)
    y = rand(*columns.shape, seed=1)
    back = nnf("fold")(t(y, device), (6, 7), **settings)
    np.testing.assert_allclose((host(columns) * y).sum(), (x * host(back)).sum(), rtol=1e-10)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(5, 9), (3, 4), (1, 20)])
@pytest.mark.parametrize("antialias", [False, True])
def test_interpolate_against_pytorch(mode, align, size, antialias, device):
    torch = pytest.importorskip("torch")
    x = rand(2, 3, 7, 6)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(x), size, mode=mode, align_corners=align, antialias=antialias
    )
    out = nnf("interpolate")(t(x, device), size, mode=mode, align_corners=align, antialias=antialias)
    np.testing.assert_allclose(host(out), expected.numpy(), rtol=1e-6, atol=1e-6)


def test_interpolation_of_a_line_is_a_line(device):
    x = np.linspace(0.0, 1.0, 5).reshape(1, 1, 5)
    out = nnf("interpolate")(t(x, device), 9, mode="linear", align_corners=True)
    np.testing.assert_allclose(host(out), np.linspace(0.0, 1.0, 9).reshape(1, 1, 9), atol=1e-12)


def test_grid_sample_of_the_identity(device):
    x = rand(2, 3, 4, 5)
    theta = np.broadcast_to(np.eye(2, 3), (2, 2, 3)).copy()
    for align in (False, True):
        grid = nnf("affine_grid")(t(theta, device), (2, 3, 4, 5), align_corners=align)
        for mode in ("bilinear", "nearest", "bicubic"):
            out = nnf("grid_sample")(t(x, device), grid, mode=mode, align_corners=align)
            np.testing.assert_allclose(host(out), x, atol=1e-12)


def test_shuffles_are_inverse(device):
    x = rand(2, 8, 3, 5)
    up = nnf("pixel_shuffle")(t(x, device), 2)
    assert up.shape == (2, 2, 6, 10)
    np.testing.assert_array_equal(host(nnf("pixel_unshuffle")(up, 2)), x)
    mixed = nnf("channel_shuffle")(t(x, device), 2)
    np.testing.assert_array_equal(host(nnf("channel_shuffle")(mixed, 4)), x)


# ---- products ----


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ij->ji", [(2, 3)]),
        ("ii", [(3, 3)]),
        ("iij->ij", [(3, 3, 2)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("bi,oij,bj->bo", [(2, 3), (4, 3, 5), (2, 5)]),
        ("ab,bc,cd,de->ae", [(2, 3), (3, 4), (4, 2), (2, 5)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij,ij->", [(2, 3), (2, 3)]),
        ("i...,i->...", [(3, 2, 2), (3,)]),
        ("ij,jk->k", [(1, 3), (3, 4)]),
    ],
)
def test_einsum_is_numpys(equation, shapes, device):
    arrays = [rand(*s, seed=i) for i, s in enumerate(shapes)]
    out = lucid.einsum(equation, *(t(a, device) for a in arrays))
    np.testing.assert_allclose(host(out), np.einsum(equation, *arrays), rtol=1e-10, atol=1e-12)


def test_einsum_takes_sublists_and_lists(device):
    x, y = rand(2, 3), rand(3, 4, seed=1)
    xs, ys = t(x, device), t(y, device)
    np.testing.assert_allclose(host(lucid.einsum(xs, [0, 1], ys, [1, 2], [2, 0])), (x @ y).T)
    np.testing.assert_allclose(host(lucid.einsum("ij,jk", [xs, ys])), x @ y)


def test_beta_zero_leaves_nan_out(device):
    bad = t(np.full((2, 2), NAN), device)
    one = t(np.ones((2, 2)), device)
    np.testing.assert_array_equal(host(lucid.addmm(bad, one, one, beta=0)), np.full((2, 2), 2.0))


def test_cdist_by_products_agrees(device):
    x, y = rand(30, 4), rand(28, 4, seed=1)
    expected = np.sqrt(((x[:, None] - y) ** 2).sum(-1))
    np.testing.assert_allclose(host(lucid.cdist(t(x, device), t(y, device))), expected, rtol=1e-9)
    xs = t(x, device, True)
    lucid.cdist(xs, xs.detach()).sum().backward()
    assert np.isfinite(host(xs.grad)).all()


# ---- linear algebra ----


def test_a_failing_matrix_is_named_by_its_batch_index(device):
    good = np.broadcast_to(np.eye(3), (2, 2, 3, 3)).copy()
    good[1, 0] = 0.0
    x = t(good, device)
    for call in (lucid.linalg.inv, lambda v: lucid.linalg.solve(v, v)):
        with pytest.raises(LucidError, match=r"batch index \(1, 0\)\) is singular; use linalg.pinv"):
            call(x)
    with pytest.raises(
        LucidError, match=r"linalg.cholesky: the input \(batch index \(1, 0\)\) is not positive definite"
    ):
        lucid.linalg.cholesky(x)
    out, info = lucid.linalg.inv_ex(x)
    assert host(info).all() and np.isnan(host(out)).all()


LINALG_ERRORS = [
    (
        lambda x: lucid.linalg.inv(x),
        ShapeError,
        r"inverse: expected square matrices \[..., n, n\], got shape \(2, 3\)",
    ),
    (lambda x: lucid.linalg.det(x[0]), ShapeError, r"linalg.det: expected square matrices"),
    (
        lambda x: lucid.linalg.svd(x.long()),
        DtypeError,
        r"linalg.svd: expected a floating or complex dtype, got int64",
    ),
    (lambda x: lucid.linalg.solve(x[:, :2], x.T), ShapeError, r"A has 2 rows but B 3"),
    (lambda x: lucid.linalg.qr(x, mode="full"), ShapeError, r"mode must be 'reduced', 'complete' or 'r'"),
    (lambda x: lucid.linalg.eigh(x[:, :2], UPLO="X"), ShapeError, r"UPLO must be 'L' or 'U'"),
    (lambda x: lucid.linalg.matrix_norm(x, 3), ShapeError, r"ord must be 'fro', 'nuc'"),
    (lambda x: lucid.linalg.multi_dot([x]), ShapeError, r"expected at least 2 tensors, got 1"),
    (lambda x: lucid.linalg.multi_dot([x, x]), ShapeError, r"expected a chain of matrices that fit"),
    (lambda x: lucid.linalg.matrix_power(x, 2), ShapeError, r"expected square matrices"),
    (lambda x: lucid.einsum("ij,jk", x), ShapeError, r"names 2 operands but 1 were given"),
    (
        lambda x: lucid.einsum("ijk", x),
        ShapeError,
        r"term 'ijk' of 'ijk' does not fit an operand of 2 dimensions",
    ),
    (lambda x: lucid.einsum("ij,ij", x, x.T), ShapeError, r"'i' stands for sizes 2 and 3"),
    (lambda x: lucid.tensordot(x, x, ([0], [1])), ShapeError, r"paired sizes must be equal"),
    (
        lambda x: lucid.mm(x, x[0]),
        ShapeError,
        r"mm: mat2 must have 2 dimensions, got shape \(3,\); use matmul",
    ),
    (lambda x: lucid.cross(x[:, :2], x[:, :2]), ShapeError, r"cross: no dimension has size 3"),
    (
        lambda x: lucid.cdist(x, x[:, :2]),
        ShapeError,
        r"cdist: expected x1 \[..., n, k\] and x2 \[..., m, k\]",
    ),
    (lambda x: lucid.fft.fft(x, norm="unit"), ShapeError, r"norm must be 'backward', 'forward' or 'ortho'"),
    (
        lambda x: lucid.fft.rfft(x.to(lucid.complex128)),
        DtypeError,
        r"fft.rfft: expected a real tensor, got complex128",
    ),
    (lambda x: lucid.fft.fft(x, dim=4), ShapeError, r"dim \(4,\) is out of range for shape \(2, 3\)"),
]


@pytest.mark.parametrize(
    "call, kind, message", LINALG_ERRORS, ids=lambda v: v[:40] if isinstance(v, str) else ""
)
def test_linalg_messages_name_the_cause(call, kind, message):
    with pytest.raises(kind, match=message):
        call(lucid.tensor(rand(2, 3)))


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 5), (2, 5, 3), (0, 2, 2), (2, 0, 3)])
def test_decompositions_multiply_back(shape, device):
    a = rand(*shape)
    x = t(a, device)
    q, r = lucid.linalg.qr(x)
    u, s, vh = lucid.linalg.svd(x, full_matrices=False)
    p, low, up = lucid.linalg.lu(x)
    for back in (q @ r, (u * s.unsqueeze(-2)) @ vh, p @ low @ up):
        np.testing.assert_allclose(host(back), a, atol=1e-12)


def test_one_triangle_is_read(device):
    full = rand(3, 3)
    spd = full @ full.T + 3 * np.eye(3)
    for upper, part in ((False, np.tril), (True, np.triu)):
        other = part(spd) + 100.0 * (np.ones((3, 3)) - part(np.ones((3, 3))))
        factor = host(lucid.linalg.cholesky(t(other, device), upper=upper))
        np.testing.assert_allclose(factor.T @ factor if upper else factor @ factor.T, spd, rtol=1e-10)
        values = lucid.linalg.eigvalsh(t(other, device), UPLO="U" if upper else "L")
        np.testing.assert_allclose(host(values), np.linalg.eigvalsh(spd), rtol=1e-10)


def test_equal_singular_values_keep_a_finite_gradient(device):
    x = t(np.eye(3), device, True)
    lucid.linalg.svd(x).S.sum().backward()
    np.testing.assert_allclose(host(x.grad), np.eye(3), atol=1e-12)


def test_the_determinant_of_a_singular_matrix_has_a_gradient(device):
    x = t([[1.0, 2.0], [2.0, 4.0]], device, True)
    lucid.linalg.det(x).backward()
    np.testing.assert_allclose(host(x.grad), [[4.0, -2.0], [-2.0, 1.0]], atol=1e-12)


def test_pinv_and_rank_of_a_deficient_matrix(device):
    a = np.outer([1.0, 2.0, 3.0], [1.0, -1.0])
    np.testing.assert_allclose(host(lucid.linalg.pinv(t(a, device))), np.linalg.pinv(a), atol=1e-12)
    assert lucid.linalg.matrix_rank(t(a, device)).item() == 1


def test_matrix_exp_scales_large_matrices(device):
    angle = 40.0
    x = t([[[0.0, -angle], [angle, 0.0]], [[0.0, 1e-9], [0.0, 0.0]]], device)
    turn = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    np.testing.assert_allclose(host(lucid.matrix_exp(x)), [turn, [[1.0, 1e-9], [0.0, 1.0]]], atol=1e-11)


@pytest.mark.parametrize("n", [-2, -1, 0, 1, 5, 8])
def test_matrix_power(n, device):
    a = rand(2, 3, 3) + 2 * np.eye(3)
    np.testing.assert_allclose(
        host(lucid.linalg.matrix_power(t(a, device), n)), np.linalg.matrix_power(a, n), rtol=1e-9
    )


# ---- transforms ----


@pytest.mark.parametrize("norm", [None, "forward", "ortho"])
@pytest.mark.parametrize("n", [5, 6])
def test_transforms_undo_each_other(norm, n, device):
    x = rand(3, n)
    real, both = t(x, device), t(x + 1j * rand(3, n, seed=1), device)
    fft = lucid.fft
    np.testing.assert_allclose(host(fft.ifft(fft.fft(both, norm=norm), norm=norm)), host(both), atol=1e-12)
    np.testing.assert_allclose(host(fft.irfft(fft.rfft(real, norm=norm), n, norm=norm)), x, atol=1e-12)
    np.testing.assert_allclose(host(fft.hfft(fft.ihfft(real, norm=norm), n, norm=norm)), x, atol=1e-12)
    np.testing.assert_array_equal(host(fft.ifftshift(fft.fftshift(real))), x)


def test_short_time_transforms_undo_each_other(device):
    x, window = t(rand(2, 40), device), t(0.1 + np.hanning(8), device)
    spectrum = lucid.stft(x, 8, 2, window=window, return_complex=True)
    assert spectrum.shape == (2, 5, 21)
    np.testing.assert_allclose(host(lucid.istft(spectrum, 8, 2, window=window)), host(x), atol=1e-12)


def test_single_precision_stays_single(device):
    x = t(rand(4).astype("float32"), device)
    assert lucid.fft.rfft(x).dtype == lucid.complex64
    assert lucid.fft.irfft(lucid.fft.rfft(x)).dtype == lucid.float32


def test_ormqr_reads_no_more_columns_than_rows():
    rng = np.random.default_rng(0)
    x, tau, other = (lucid.tensor(rng.normal(size=n)) for n in ((2, 5), (2,), (2, 3)))
    x.requires_grad_()
    out = lucid.ormqr(x, tau, other)
    np.testing.assert_array_equal(out.detach().numpy(), lucid.ormqr(x[:, :2], tau, other).detach().numpy())
    out.sum().backward()
    assert (x.grad[:, 2:] == 0).all() and (x.grad[1, 0] != 0)
    with pytest.raises(ShapeError, match=r"ormqr: expected tau \[..., k\] for x \[..., m, k\], got \(5,\)"):
        lucid.ormqr(x, lucid.ones(5).double(), other)


def test_matrix_rank_takes_a_tolerance_for_each_matrix():
    a = lucid.tensor([[[3.0, 0.0], [0.0, 1.0]], [[3.0, 0.0], [0.0, 1.0]]])
    rank, limits = lucid.linalg.matrix_rank, lucid.tensor([0.1, 0.5])
    assert rank(a, rtol=limits).tolist() == [2, 1] and rank(a, atol=limits * 4).tolist() == [2, 1]
    assert rank(a, rtol=0.5).tolist() == [1, 1] and rank(a).tolist() == [2, 2]
    assert rank(lucid.ones(2, 0, 3)).tolist() == [0, 0]


def test_einsum_promotes_its_operands():
    out = lucid.einsum("ij,j->i", lucid.ones(2, 3), lucid.tensor([1j, 2.0, 3.0]))
    assert out.tolist() == [5 + 1j, 5 + 1j] and out.dtype == lucid.complex64
    x = lucid.ones(2, 3, requires_grad=True)
    lucid.einsum("ij,j->", x, lucid.ones(3).double()).backward()
    assert x.grad.dtype == lucid.float32 and x.grad.sum() == 6


def test_group_norm_of_one_value_per_group_is_refused():
    with pytest.raises(ShapeError, match="group_norm: needs more than one value per group, got an input of"):
        lucid.nn.functional.group_norm(lucid.ones(1, 4), 4)
    assert lucid.nn.functional.group_norm(lucid.ones(2, 4), 4).shape == (2, 4)
