"""Softmax, cross entropy and norms by rows, against the generic formulas in float64."""

import numpy as np
import pytest

from lucid.kernel import calls
from lucid.ops.registry import OPS
from lucid.storage.backend import backend_of
from lucid.storage.dtype import as_dtype
from tests.kernels.sim import DTYPES, ORDERS, Sim, device, judge, normal, wide

F = backend_of("cpu").F
# A warp per row; blocks of 256 and 512 threads; odd lengths (scalar form); an address off by one element.
SHAPES = (
    (1, 1, 0),
    (5, 33, 0),
    (9, 64, 0),
    (11, 1000, 0),
    (3, 1032, 0),
    (2, 1031, 0),
    (2, 4104, 0),
    (4, 40, 1),
)


def _same_in_all_orders(function, orders=ORDERS):
    results = [function(Sim(order, seed)) for order, seed in orders]
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b, err_msg="depends on the order of threads")
    return results[0]


def _orders(shape):
    return ORDERS if shape[1] in (33, 64, 1031) else ORDERS[2:3]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ("softmax", "log_softmax"))
def test_softmax(name, dtype):
    op = OPS[name]
    for shape in SHAPES:
        rows, cols, offset = shape
        x, g = normal((rows, cols), dtype, 1, offset, scale=4.0), normal((rows, cols), dtype, 2, offset)
        exact = op.forward(np, *wide(x), -1)
        (out,) = _same_in_all_orders(lambda sim, x=x: (calls.softmax(sim, name, x),), _orders(shape))
        judge(out, exact, op.forward(np, x, -1), f"{name} {dtype} {shape}")
        out = device(out, offset)
        (dx,) = _same_in_all_orders(
            lambda sim, g=g, out=out: (calls.softmax_backward(sim, name, g, out),), _orders(shape)
        )
        gradient = op.formulas["x"].function
        judge(dx, gradient(F, *wide(g, out), -1), gradient(F, g, out, -1), f"{name} backward {dtype} {shape}")
        if name == "softmax":
            (same,) = _same_in_all_orders(
                lambda sim, g=g, out=out, offset=offset: (
                    calls.softmax_backward_inplace(sim, device(g, offset), out),
                ),
                _orders(shape),
            )
            np.testing.assert_array_equal(*wide(same, dx))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ("softmax", "log_softmax"))
def test_softmax_columns(name, dtype):
    op = OPS[name]
    # One row per warp and many; packs, odd sizes, an address off by one; more outer ones than a tile.
    shapes = ((3, 21, 40), 0), ((2, 50, 33), 0), ((1, 7, 300), 0), ((5, 9, 16), 1), ((1, 1, 1), 0)
    for shape, offset in shapes:
        x, g = normal(shape, dtype, 1, offset, scale=4.0), normal(shape, dtype, 2, offset)
        (out,) = _same_in_all_orders(lambda sim, x=x: (calls.softmax_columns(sim, name, x, 1),))
        what = f"{name} {dtype} {shape}"
        judge(out, op.forward(np, *wide(x), 1), op.forward(np, x, 1), what)
        out = device(out, offset)
        (dx,) = _same_in_all_orders(
            lambda sim, g=g, out=out: (calls.softmax_backward_columns(sim, name, g, out, 1),)
        )
        gradient = op.formulas["x"].function
        judge(dx, gradient(F, *wide(g, out), 1), gradient(F, g, out, 1), f"{what} backward")


@pytest.mark.parametrize("name", ("softmax", "log_softmax"))
@pytest.mark.parametrize("cols", (40, 1100))
def test_softmax_of_infinities_and_nan(name, cols):
    x = np.zeros((6, cols), np.float32)
    x[0, 3], x[1] = -np.inf, -np.inf
    x[2, 5], x[3, 7] = np.inf, np.nan
    x[4], x[4, 9] = -np.inf, 2.0
    x[5, :-1], x[5, -1] = -np.inf, np.nan
    np.testing.assert_allclose(
        calls.softmax(Sim(), name, device(x)), OPS[name].forward(np, *wide(x), -1), rtol=1e-6
    )
    turned = device(x.T[None])
    expected = OPS[name].forward(np, *wide(turned), 1)
    np.testing.assert_allclose(calls.softmax_columns(Sim(), name, turned, 1), expected, rtol=1e-6)


# ---- cross entropy ----


def _targets(rows, cols, ignored, seed=3):
    t = np.random.default_rng(seed).integers(0, cols, rows)
    t[::3] = -100 if ignored else t[::3]
    return device(t.astype(np.int64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "weighted,ignored,smoothing",
    ((False, False, 0.0), (True, True, 0.0), (True, True, 0.2), (False, True, 0.1)),
)
def test_cross_entropy(dtype, weighted, ignored, smoothing):
    op = OPS["cross_entropy"]
    for shape in ((7, 33, 0), (9, 64, 0), (4, 1032, 0), (4, 1031, 0), (2, 4104, 0), (5, 40, 1)):
        rows, cols, offset = shape
        x, target = normal((rows, cols), dtype, 1, offset, scale=3.0), _targets(rows, cols, ignored)
        weight = (
            device(np.random.default_rng(5).uniform(0.2, 2.0, cols).astype(as_dtype(dtype)))
            if weighted
            else None
        )
        for reduction in ("mean", "sum", "none"):
            g = normal(rows if reduction == "none" else (), dtype, 6)
            (loss, dx) = _same_in_all_orders(
                lambda sim, a=(x, target, weight, g, reduction): _loss_and_gradient(sim, *a, smoothing),
                _orders(shape) if reduction == "mean" else ORDERS[:1],
            )
            arguments = dict(ignore_index=-100, reduction=reduction, label_smoothing=smoothing)
            what = f"{dtype} {shape} {reduction}"
            judge(
                loss,
                op.forward(np, wide(x)[0], target, wide(weight)[0], **arguments)[0],
                op.forward(np, x, target, weight, **arguments)[0],
                what,
            )
            gradient = op.formulas["x"].function
            judge(
                dx,
                gradient(F, *wide(g, x), target, wide(weight)[0], *arguments.values()),
                np.asarray(gradient(F, g, x, target, weight, *arguments.values()), x.dtype),
                what,
            )


def _loss_and_gradient(sim, x, target, weight, g, reduction, smoothing):
    loss, saved, flag = calls.cross_entropy(sim, x, target, weight, -100, smoothing, reduction)
    assert flag[0] == 0
    return loss, calls.cross_entropy_backward(sim, g, x, target, weight, saved, -100, smoothing, reduction)


@pytest.mark.parametrize("cols", (40, 1100))
def test_a_target_out_of_range_gives_nan_and_a_flag(cols):
    x, target = normal((6, cols), "float32"), device(np.array([1, 2, cols, 3, -1, -100]))
    loss, saved, flag = calls.cross_entropy(Sim(), x, target, None, -100, 0.0, "none")
    assert (
        np.isnan(loss).tolist() == [False, False, True, False, True, False] and flag.view(np.int64)[0] == -1
    )
    assert calls.cross_entropy(Sim(), x[:3], target[:3], None, -100, 0.0, "mean")[2][0] == cols
    dx = calls.cross_entropy_backward(
        Sim(), device(np.ones(6, "f4")), x, target, None, saved, -100, 0.0, "none"
    )
    assert np.isnan(dx).all(1).tolist() == np.isnan(loss).tolist() and not dx[5].any()


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("cols", (40, 1032, 1031))
def test_gradient_in_one_pass_and_in_place(dtype, cols):
    x, target = normal((5, cols), dtype, 1, scale=3.0), _targets(5, cols, True)
    g = device(np.array([0.25], np.float32))
    loss, saved, _ = calls.cross_entropy(Sim(), x, target, None, -100, 0.1, "none")
    dx = calls.cross_entropy_backward(
        Sim(), device(np.full(5, 0.25, x.dtype)), x, target, None, saved, -100, 0.1, "none"
    )
    for order, seed in ORDERS:
        for inplace in (False, True):
            a = device(x)
            losses, da, _ = calls.cross_entropy_gradient(
                Sim(order, seed), g, a, target, None, -100, 0.1, inplace
            )
            np.testing.assert_array_equal(losses.astype(x.dtype), loss)
            np.testing.assert_allclose(
                np.asarray(da, "f8"),
                np.asarray(dx, "f8"),
                rtol=1e-5 if dtype == "float32" else 1e-2,
                atol=1e-9,
            )
            assert (da is a) == inplace


# ---- norms ----


def _norm_plain(name, x, weight, bias, cols, eps):
    args = (x, (cols,), weight) if name == "rms_norm" else (x, (cols,), weight, bias)
    return OPS[name].forward(np, *args, eps)


def _norm_gradient(name, g, x, weight, cols, eps):
    needs = (True, True, True)[: 2 if name == "rms_norm" else 3]
    return OPS[name].formulas["x"].function(F, g, x, (cols,), weight, eps, needs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ("layer_norm", "rms_norm"))
def test_norm(name, dtype):
    for shape in (
        (1, 8, 0),
        (37, 64, 0),
        (21, 33, 0),
        (40, 256, 0),
        (9, 1000, 0),
        (5, 2048, 0),
        (3, 4096, 0),
        (7, 40, 1),
    ):
        rows, cols, offset = shape
        for affine in (True, False) if cols in (64, 33, 4096) else (True,):
            x, g = normal((rows, cols), dtype, 1, offset, scale=2.0), normal((rows, cols), dtype, 2, offset)
            weight, bias = (
                (normal(cols, dtype, 3, offset), normal(cols, dtype, 4, offset)) if affine else (None, None)
            )
            if name == "rms_norm":
                bias = None
            eps, what = 1e-5, f"{name} {dtype} {shape} affine={affine}"
            out, mean, rstd = calls.norm(Sim(), name, x, weight, bias, eps, cols)
            exact = _norm_plain(name, *wide(x, weight, bias), cols, eps)
            judge(out, exact[0], _norm_plain(name, x, weight, bias, cols, eps)[0], what)
            np.testing.assert_allclose(rstd, exact[-1].reshape(-1), rtol=1e-5)
            orders = ORDERS if cols in (64, 33, 1000) else ORDERS[2:3]
            grads = _same_in_all_orders(
                lambda sim, a=(g, x, weight, mean, rstd, cols): calls.norm_backward(
                    sim, name, *a, (True, True, True)
                ),
                orders,
            )
            exact, plain = (
                _norm_gradient(name, *wide(g, x, weight), cols, eps),
                _norm_gradient(name, g, x, weight, cols, eps),
            )
            for got, e, p, which in zip(grads, exact, plain, ("dx", "dweight", "dbias"), strict=False):
                judge(got, e, np.asarray(p, got.dtype), f"{what} {which}")
            join = normal((rows, cols), dtype, 5, offset)
            joined = calls.norm_backward(Sim(), name, g, x, weight, mean, rstd, cols, (True,) * 3, join)
            e, p = exact[0] + wide(join)[0], plain[0] + join
            judge(joined[0], e, np.asarray(p, join.dtype), f"{what} joined dx")
            np.testing.assert_array_equal(*wide(joined[1], grads[1]))


@pytest.mark.parametrize("name", ("layer_norm", "rms_norm"))
@pytest.mark.parametrize("cols", (8200, 8201, 300, 40))
def test_norm_of_long_rows_and_partial_needs(name, cols):
    x, g, weight = (
        normal((3, cols), "float32", 1),
        normal((3, cols), "float32", 2),
        normal(cols, "float32", 3),
    )
    _, mean, rstd = calls.norm(Sim(), name, x, weight, None, 1e-5, cols)
    exact = _norm_gradient(name, *wide(g, x, weight), cols, 1e-5)
    for needs in ((True, True, name == "layer_norm"), (True, False, False), (False, True, False)):
        grads = calls.norm_backward(Sim(), name, g, x, weight, mean, rstd, cols, needs)
        for got, e, need in zip(grads, (*exact, None), needs, strict=False):
            assert (got is None) == (not need)
            if need:
                np.testing.assert_allclose(got, e, rtol=1e-4, atol=1e-5)
    join = normal((3, cols), "float32", 4)
    joined = calls.norm_backward(Sim(), name, g, x, weight, mean, rstd, cols, (True, False, False), join)
    np.testing.assert_allclose(joined[0], exact[0] + join, rtol=1e-4, atol=1e-5)


def test_norm_is_steady_far_from_zero():
    x = device((np.random.default_rng(0).standard_normal((4, 96)) + 3000).astype(np.float32))
    out, _, _ = calls.norm(Sim(), "layer_norm", x, None, None, 1e-5, 96)
    np.testing.assert_allclose(out, _norm_plain("layer_norm", *wide(x, None, None), 96, 1e-5)[0], atol=2e-3)
