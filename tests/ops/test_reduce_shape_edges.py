"""Edges of reductions and shapes: ties, zeros, -inf, views, ranges, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lucid
from lucid.errors import DtypeError, IndexRangeError, InplaceError, ShapeError

INF, NAN = float("inf"), float("nan")


def leaf(values, dtype="float64"):
    return lucid.tensor(np.asarray(values, dtype), requires_grad=True)


def grad(function, *leaves, weights=None):
    """Gradients of sum(weights * function(*leaves))."""
    out = function(*leaves)
    total = (out * lucid.tensor(np.asarray(weights, "float64"))).sum() if weights is not None else out.sum()
    return [g.numpy() for g in lucid.autograd.grad(total, list(leaves))]


def numeric(function, x, weights=None, step=1e-6):
    """Central differences of sum(weights * function(x))."""
    out = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        ends = []
        for sign in (1, -1):
            y = x.copy()
            y[i] += sign * step
            value = function(lucid.tensor(y)).numpy()
            ends.append((value * (1 if weights is None else weights)).sum())
        out[i] = (ends[0] - ends[1]) / (2 * step)
    return out


# ---- reductions ----

def test_full_max_shares_its_gradient_among_ties_and_max_along_dim_does_not():
    x = [[1.0, 3.0, 3.0], [3.0, 0.0, 2.0]]
    third = 1 / 3
    np.testing.assert_allclose(grad(lambda t: t.max(), leaf(x))[0], [[0, third, third], [third, 0, 0]])
    np.testing.assert_array_equal(grad(lambda t: t.max(1).values, leaf(x))[0], [[0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(grad(lambda t: t.amax(1), leaf(x))[0], [[0, 0.5, 0.5], [1, 0, 0]])
    np.testing.assert_array_equal(grad(lambda t: lucid.aminmax(t, dim=0).max, leaf(x))[0],
                                  [[0, 1, 1], [1, 0, 0]])


def test_max_and_min_have_three_forms_with_named_fields():
    x, y = lucid.tensor([[1.0, 5.0], [4.0, 2.0]]), lucid.tensor([[3.0, 3.0], [3.0, 3.0]])
    assert x.max().item() == 5 and x.min().item() == 1
    values, indices = lucid.max(x, dim=1)
    assert values.tolist() == [5, 4] and indices.tolist() == [1, 0]
    assert lucid.min(x, 0, keepdim=True).indices.tolist() == [[0, 1]]
    assert lucid.max(x, y).tolist() == [[3, 5], [4, 3]] and lucid.min(x, other=y).tolist() == [[1, 3], [3, 2]]
    assert x.max(axis=1, keepdims=True).values.shape == (2, 1)


@pytest.mark.parametrize("call, text", [
    (lambda: lucid.zeros(0, 3).max(0), "expected a size of at least 1 along dim 0"),
    (lambda: lucid.zeros(0, 3).amax(0), "expected at least one element along dim"),
    (lambda: lucid.zeros(0).argmax(), "expected at least one element"),
    (lambda: lucid.zeros(2, 3).sum(2), r"dim must lie in \[-2, 1\] for a tensor of 2 dimensions, got 2"),
    (lambda: lucid.zeros(2, 3).sort(-3), r"sort: dim must lie in \[-2, 1\]"),
    (lambda: lucid.zeros(2, 3).topk(4), "topk: expected 0 <= k <= 3, the size of dim 1, got k=4"),
    (lambda: lucid.zeros(2, 3).kthvalue(0), "kthvalue: expected 1 <= k <= 3"),
    (lambda: lucid.tensor([-1, 2]).bincount(), "bincount: expected values of at least 0, got -1"),
])
def test_range_errors_say_what_was_expected(call, text):
    with pytest.raises(IndexRangeError, match=text):
        call()


@pytest.mark.parametrize("x", [[2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
@pytest.mark.parametrize("function", [lambda t: t.prod(), lambda t: t.prod(0), lambda t: t.cumprod(0)],
                         ids=["prod", "prod along dim", "cumprod"])
def test_products_are_exact_at_zeros_to_second_order(function, x):
    x = np.asarray(x)
    weights = np.array([1.0, -2.0, 0.5]) if function(lucid.tensor(x)).ndim else None
    np.testing.assert_allclose(grad(function, leaf(x), weights=weights)[0], numeric(function, x, weights),
                               atol=1e-8)

    def first(t):
        t = t if t.requires_grad else lucid.tensor(t.numpy(), requires_grad=True)
        out = function(t)
        total = (out if weights is None else out * lucid.tensor(weights)).sum()
        return lucid.autograd.grad(total, t, create_graph=True)[0]
    np.testing.assert_allclose(grad(first, leaf(x), weights=[1.0, 2.0, 3.0])[0],
                               numeric(lambda t: first(t).detach(), x, np.array([1.0, 2.0, 3.0])), atol=1e-7)


def test_logsumexp_of_minus_inf_rows_has_gradient_zero():
    x = [[-INF, -INF], [0.0, -INF], [1e4, 1e4]]
    out = leaf(x).logsumexp(1)
    np.testing.assert_allclose(out.detach().numpy(), [-INF, 0.0, 1e4 + np.log(2)])
    np.testing.assert_allclose(grad(lambda t: t.logsumexp(1), leaf(x))[0], [[0, 0], [1, 0], [0.5, 0.5]])
    assert lucid.zeros(2, 0).logsumexp(1).tolist() == [-INF, -INF]


def test_logcumsumexp_neither_overflows_nor_gives_nan():
    x = np.array([-INF, -INF, 1e3, -2.0, 1e3 + 1])
    np.testing.assert_allclose(leaf(x).logcumsumexp(0).detach().numpy(), np.logaddexp.accumulate(x))
    g = grad(lambda t: t.logcumsumexp(0)[2:], leaf(x))[0]
    share = 1 / (1 + np.e)
    np.testing.assert_allclose(g, [0, 0, 2 + share, 0, 1 - share], atol=1e-12)


def test_constant_rows_have_no_gradient_of_std_and_nan_variance_without_freedom():
    np.testing.assert_array_equal(grad(lambda t: t.std(1), leaf([[2.0, 2.0, 2.0], [1.0, 2.0, 3.0]]))[0][0],
                                  [0, 0, 0])
    assert np.isnan(lucid.tensor([1.0]).var().item()) and lucid.tensor([1.0]).var(unbiased=False).item() == 0
    x = np.random.default_rng(0).standard_normal((4, 5))
    np.testing.assert_allclose(lucid.tensor(x).var(0, correction=2).numpy(), x.var(0, ddof=2))
    with pytest.raises(DtypeError, match="either unbiased or correction"):
        lucid.var(lucid.tensor(x), 0, True, correction=1)


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, INF, -INF])
def test_gradient_of_a_norm_at_zero_is_zero(p):
    g = grad(lambda t: t.norm(p), leaf([0.0, 0.0]))[0]
    np.testing.assert_array_equal(g, [0, 0])
    x = np.array([0.5, -2.0, 1.5])
    np.testing.assert_allclose(grad(lambda t: t.norm(p), leaf(x))[0], numeric(lambda t: t.norm(p), x),
                               atol=1e-6)


def test_median_is_the_lower_one_and_nan_wins_unless_skipped():
    x = lucid.tensor([[4.0, 1.0, 3.0, 2.0], [NAN, 1.0, 5.0, NAN]])
    values, indices = x.median(1)
    np.testing.assert_array_equal(values.numpy(), [2, NAN])
    assert indices.tolist() == [3, 0]
    assert x.nanmedian(1).values.tolist() == [2, 1]
    assert np.isnan(x.median().item()) and x.nanmedian().item() == 2
    np.testing.assert_array_equal(grad(lambda t: t.median(), leaf([1.0, 2.0, 2.0, 5.0]))[0], [0, 0.5, 0.5, 0])


def test_mode_takes_the_smallest_of_equally_frequent_values():
    values, indices = lucid.tensor([[1.0, 2.0, 2.0, 0.0], [3.0, 1.0, 1.0, 3.0]]).mode(1)
    assert values.tolist() == [2, 1] and indices.tolist() == [2, 2]


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles_agree_with_numpy(interpolation):
    x = np.random.default_rng(1).standard_normal((3, 4, 6))
    q = np.array([0.0, 0.3, 0.5, 1.0])
    for dim, keepdim in itertools.product((None, 0, 1, -1), (False, True)):
        got = lucid.quantile(lucid.tensor(x), lucid.tensor(q), dim, keepdim, interpolation=interpolation)
        np.testing.assert_allclose(got.numpy(), np.quantile(x, q, dim, keepdims=keepdim,
                                                            method=interpolation))
    x[0, 0, 0] = NAN
    assert np.isnan(lucid.quantile(lucid.tensor(x), 0.5).item())
    np.testing.assert_allclose(lucid.nanquantile(lucid.tensor(x), 0.5, 2).numpy(), np.nanquantile(x, 0.5, 2))
    with pytest.raises(ShapeError, match="expected 0 <= q <= 1"):
        lucid.quantile(lucid.tensor(x), 1.5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_16_bit_floats_are_accumulated_in_float32(dtype):
    x = lucid.ones(4096).to(dtype=dtype) * 1.5
    for out in (x.sum(), x.cumsum(0)[-1], lucid.zeros(1).to(dtype=dtype).index_add(0,
        lucid.zeros(4096).long(), x)[0],
                lucid.zeros(1).to(dtype=dtype).scatter_add(0, lucid.zeros(4096).long(), x)[0]):
        assert out.dtype.name == dtype and out.float().item() == 6144
    assert (lucid.ones(3000).to(dtype=dtype)).norm().float().item() == pytest.approx(3000 ** 0.5, rel=1e-2)


def test_running_extrema_return_the_last_position_among_ties_and_keep_nan():
    values, indices = lucid.tensor([1.0, 3.0, 3.0, 2.0, NAN, 9.0]).cummax(0)
    np.testing.assert_array_equal(values.numpy(), [1, 3, 3, 3, NAN, NAN])
    assert indices.tolist() == [0, 1, 2, 2, 4, 4]


def test_sets_and_histograms_agree_with_numpy():
    x = np.random.default_rng(2).integers(0, 5, (4, 6))
    got = lucid.unique(lucid.tensor(x), return_inverse=True, return_counts=True)
    for a, b in zip(got, np.unique(x, return_inverse=True, return_counts=True), strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
    rows = np.array([[1, 2], [0, 3], [1, 2]])
    values, inverse, counts = lucid.unique(lucid.tensor(rows), dim=0, return_inverse=True, return_counts=True)
    assert values.tolist() == [[0, 3], [1, 2]] and inverse.tolist() == [1, 0, 1] and counts.tolist() == [1, 2]
    runs = lucid.unique_consecutive(lucid.tensor([1, 1, 2, 1]), return_counts=True)
    assert runs[0].tolist() == [1, 2, 1] and runs[1].tolist() == [2, 1, 1]
    f = np.random.default_rng(3).standard_normal(50)
    np.testing.assert_array_equal(lucid.histc(lucid.tensor(f), 7, -1, 1).numpy(),
                                  np.histogram(f, 7, (-1, 1))[0])
    np.testing.assert_array_equal(lucid.tensor([0, 2, 2]).bincount(minlength=5).numpy(), [1, 0, 2, 0, 0])
    assert lucid.unique(lucid.tensor([])).shape == (0,)


# ---- shapes ----

@pytest.mark.parametrize("name, view", [
    ("t", lambda x: x.t()), ("T", lambda x: x.T), ("mT", lambda x: x.mT),
    ("reshape", lambda x: x.reshape(2, 6)),
    ("view", lambda x: x.view(12)), ("flatten", lambda x: x.flatten()), ("unflatten", lambda x: x.unflatten(0,
        (3, 1))),
    ("transpose", lambda x: x.transpose(0, 1)), ("permute", lambda x: x.permute((1, 0))),
    ("squeeze", lambda x: x.squeeze()),
    ("unsqueeze", lambda x: x.unsqueeze(0)), ("expand", lambda x: x.expand(5, 3, 4)),
    ("movedim", lambda x: x.movedim(0, 1)),
    ("narrow", lambda x: x.narrow(0, 1, 2)), ("select", lambda x: x.select(1, 2)),
    ("split", lambda x: x.split(2)[1]),
    ("chunk", lambda x: x.chunk(3, 1)[1]), ("unbind", lambda x: x.unbind()[1]),
    ("diagonal", lambda x: x.diagonal(1)),
    ("unfold", lambda x: x.unfold(1, 2, 1)), ("as_strided", lambda x: x.as_strided((2, 2), (4, 1), 5)),
    ("x[1:]", lambda x: x[1:]), ("x[0, 0]", lambda x: x[0, 0]), ("x[..., None]", lambda x: x[..., None]),
    ("view dtype", lambda x: x.view(lucid.int64)), ("contiguous", lambda x: x.contiguous())])
def test_views_share_memory_and_version(name, view):
    x = lucid.tensor(np.arange(12.0).reshape(3, 4))
    y = view(x)
    assert np.shares_memory(x.numpy(), y.numpy()), name
    before = y._version
    x.zero_() if hasattr(x, "zero_") else x.mul_(0.0)
    assert not y.numpy().any() and y._version == before + 1


@pytest.mark.parametrize("copy", [
    lambda x: x.flip(0), lambda x: x.roll(1), lambda x: x.repeat(1, 1), lambda x: x[[0, 1]],
    lambda x: x[x > 2],
    lambda x: lucid.cat([x]), lambda x: lucid.stack([x]), lambda x: x.diag(), lambda x: x.tril(),
    lambda x: x.T.contiguous(), lambda x: x.gather(0, lucid.zeros(1, 1).long()),
    lambda x: x.index_select(0, lucid.tensor([0]))])
def test_copies_do_not_share_memory(copy):
    x = lucid.tensor(np.arange(12.0).reshape(3, 4))
    assert not np.shares_memory(x.numpy(), copy(x).numpy())


def test_view_refuses_what_needs_a_copy():
    x = lucid.zeros(3, 4)
    with pytest.raises(ShapeError, match=r"view: shape \(12,\) is not possible without a copy.*use reshape"):
        x.t().view(12)
    assert x.t().reshape(12).shape == (12,) and x.t().view(2, 2, 3).shape == (2, 2, 3)
    assert x[:, ::2].view(3, 2, 1).shape == (3, 2, 1) and lucid.zeros(0, 3).t().view(0).shape == (0,)
    with pytest.raises(ShapeError, match=r"view: shape \(5, -1\) does not fit 12 elements"):
        x.view(5, -1)


@pytest.mark.parametrize("call, text", [
    (lambda x: lucid.cat([x, x[:, :2]]), r"cat: expected sizes that agree but for dim 0, got shapes \(3, "
                                         r"4\), \(3, 2\)"),
    (lambda x: lucid.cat([x.sum(), x]), "cat: expected tensors of at least 1 dimension"),
    (lambda x: lucid.stack([x, x.t()]), r"stack: expected tensors of one shape, got \(3, 4\), \(4, 3\)"),
    (lambda x: x.split([1, 1]), r"split: sizes \[1, 1\] do not add up to 3"),
    (lambda x: x.hsplit(3), "hsplit: 3 sections do not divide 4"),
    (lambda x: x.unflatten(1, (3, -1)), r"unflatten: sizes \(3, -1\) do not multiply to 4"),
    (lambda x: x.repeat(2), r"repeat: expected at least 2 sizes"),
    (lambda x: x.diagonal_scatter(x[0]), r"diagonal_scatter: expected src of the diagonal's shape \(3,\), "
                                         r"got \(4,\)"),
    (lambda x: x.select_scatter(x, 0, 0), r"select_scatter: expected src of shape \(4,\), got \(3, 4\)"),
    (lambda x: x.unfold(0, 4, 1), "unfold: expected a size of at most 3"),
    (lambda x: x.diagonal(0, 1, 1), "diagonal: expected two different dimensions"),
    (lambda x: x[0].tril(), "tril: expected at least 2 dimensions"),
    (lambda x: lucid.meshgrid(x), "meshgrid: expected vectors"),
    (lambda x: lucid.trace(x[0]), "trace: expected a matrix"),
    (lambda x: x.as_strided((5, 5), (4, 1)), "as_strided: size .* reach elements 0 to 20 of a memory of "
                                             "elements 0 to 11"),
])
def test_shape_errors_say_what_was_expected(call, text):
    with pytest.raises(ShapeError, match=text):
        call(lucid.tensor(np.arange(12.0).reshape(3, 4)))


def test_vander_agrees_with_numpy_and_has_finite_gradients_at_zero():
    x = np.array([0.0, -1.5, 2.0])
    for increasing in (False, True):
        np.testing.assert_allclose(lucid.vander(lucid.tensor(x), 4, increasing).numpy(),
                                   np.vander(x, 4, increasing))
    np.testing.assert_allclose(grad(lambda t: lucid.vander(t, 4), leaf(x))[0], 1 + 2 * x + 3 * x * x)
    assert lucid.vander(lucid.tensor(x), 0).shape == (3, 0)


def test_squeeze_of_a_dim_that_is_not_1_keeps_it():
    x = lucid.zeros(1, 3, 1)
    assert x.squeeze(1).shape == (1, 3, 1) and x.squeeze((0, 1)).shape == (3, 1) and x.squeeze().shape == (3,)


def test_as_strided_reads_the_memory_behind_a_view_and_adds_gradients_of_repeated_reads():
    base = np.arange(10.0)
    part = lucid.tensor(base)[2:8]
    np.testing.assert_array_equal(part.as_strided((2, 2), (1, 2), 0).numpy(), [[0, 2], [1, 3]])
    np.testing.assert_array_equal(part.as_strided((2, 2), (1, 2)).numpy(), [[2, 4], [3, 5]])
    g = grad(lambda t: t.as_strided((3, 2), (1, 1)), leaf(np.zeros(5)))[0]
    np.testing.assert_array_equal(g, [1, 2, 2, 1, 0])
    g = grad(lambda t: t[1:4].as_strided((3,), (1,), 0), leaf(np.zeros(5)))[0]
    np.testing.assert_array_equal(g, [0, 1, 1, 0, 0])


def test_unbind_and_split_make_one_node_and_reach_second_order():
    x = leaf(np.arange(6.0).reshape(3, 2))
    a, b, c = x.unbind(0)
    assert a.grad_fn is b.grad_fn
    (g,) = lucid.autograd.grad((a * b * b).sum(), x, create_graph=True)
    np.testing.assert_array_equal(g.detach().numpy(), [[4, 9], [0, 6], [0, 0]])
    (h,) = lucid.autograd.grad(g.sum(), x)
    np.testing.assert_array_equal(h.numpy(), [[4, 6], [2 * (0 + 2), 2 * (1 + 3)], [0, 0]])
    first, second = x.split([1, 2])
    assert second.shape == (2, 2) and [p.shape for p in x.chunk(2)] == [(2, 2), (1, 2)]
    with lucid.no_grad():
        second.add_(1.0)
    assert x[2, 1].item() == 6
    with pytest.raises(InplaceError):
        (x * 1.0).unbind()[0].add_(1.0)


# ---- against PyTorch ----

@pytest.mark.parametrize("call", [
    lambda m, x: m.movedim(x, (0, 2), (1, 0)), lambda m, x: m.rot90(x, 3, (2, 0)), lambda m,
    x: m.roll(x, (1, -2), (0, 2)),
    lambda m, x: m.tensor_split(x, (1, 3), 2)[1], lambda m, x: m.kron(x[0], x[1]), lambda m,
    x: m.diff(x, 2, 1),
    lambda m, x: m.block_diag(x[0], x[1, 0]), lambda m, x: m.cartesian_prod(x[0, 0], x[0, 1])[3:],
    lambda m, x: m.combinations(x[0, 0], 2), lambda m, x: m.renorm(x, 2, 1, 1.0),
    lambda m, x: m.gradient(x, spacing=0.5, dim=(1, 2), edge_order=2)[1], lambda m, x: m.cov(x[0]),
    lambda m, x: m.corrcoef(x[1]), lambda m, x: m.trapezoid(x, dim=1), lambda m, x: m.dist(x[0], x[1], 3),
    lambda m, x: m.repeat_interleave(x, m.tensor([1, 0, 2]), 1), lambda m, x: m.tile(x, (2, 1)), lambda m,
    x: m.tril(x, -1),
    lambda m, x: m.meshgrid(x[0, 0], x[0, 1], indexing="xy")[0], lambda m, x: m.diag_embed(x, 1, 0, 2)])
def test_values_and_gradients_agree_with_pytorch(call):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(9).standard_normal((2, 3, 4))
    own, theirs = leaf(x), torch.tensor(x, requires_grad=True)
    a, b = call(lucid, own), call(torch, theirs)
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10)
    (ga,) = lucid.autograd.grad((a * a).sum(), own)
    (gb,) = torch.autograd.grad((b * b).sum(), theirs)
    np.testing.assert_allclose(ga.numpy(), gb.numpy(), rtol=1e-8, atol=1e-10)


EXPANDED = [
    ((3, 1), (3, 4)), ((), (2, 3)), ((3,), (2, 3)), ((1, 1), (0, 3)), ((2, 1, 3), (2, 2, 2, 3)),
    ((0, 1), (0, 4)), ((1,), (3, 0, 3)), ((2, 3), (2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bool", "complex64", "bfloat16"])
@pytest.mark.parametrize(("shape", "target"), EXPANDED)
def test_expand_is_numpys_broadcast_on_the_same_memory(shape, target, dtype):
    x = lucid.ones(*shape).cumsum(0).to(dtype) if shape else lucid.tensor(7.0).to(dtype)
    for y in (x, x.transpose(0, -1)) if shape == target else (x,):
        out = y.expand(*target) if y is x else y.expand(*reversed(target))
        right = np.broadcast_to(y.array, out.shape)
        np.testing.assert_array_equal(out.array, right)
        assert out.array.flags.writeable and out.array.dtype == right.dtype
        assert not out.array.size or np.may_share_memory(out.array, x.array)


UNFIT = [((2,), (3,)), ((2, 2), (2,)), ((1, 2), (-2, 2)), ((2,), (2, 3))]


@pytest.mark.parametrize(("shape", "target"), UNFIT)
def test_expand_refuses_what_does_not_fit(shape, target):
    with pytest.raises(lucid.errors.ShapeError, match="expand: a tensor of shape"):
        lucid.ones(*shape).expand(*target)
