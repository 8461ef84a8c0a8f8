"""Batch norm, sums by index, pooling and columns, against the generic formulas in float64."""

import numpy as np
import pytest

from lucid.kernel import calls_spatial as calls
from lucid.kernel.launch import accumulator
from lucid.kernel.loader import Unavailable
from lucid.ops.pool import pooled_size
from lucid.ops.registry import OPS
from lucid.storage.backend import backend_of
from tests.kernels.sim import DTYPES, ORDERS, Sim, device, judge, normal, wide

F = backend_of("cpu").F


def _same(function, orders=ORDERS):
    results = [function(Sim(order, seed)) for order, seed in orders]
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(*wide(a, b), err_msg="depends on the order of threads")
    return results[0]


# [batch, channels, ...]: matrices (inner 1), even and odd inner sizes, several ranges per
# channel, an odd address.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape,offset",
    (
        ((40, 64), 0),
        ((41, 35), 0),
        ((3, 5, 16), 0),
        ((3, 5, 7, 3), 0),
        ((70, 2, 16, 8), 0),
        ((2, 3, 8), 1),
        ((130, 8), 0),
    ),
)
def test_batch_norm(dtype, shape, offset):
    op, c = OPS["batch_norm"], shape[1]
    x, g = normal(shape, dtype, 1, offset, scale=2.0), normal(shape, dtype, 2, offset)
    x += x.dtype.type(3)
    for affine in (True, False):
        weight, bias = (normal(c, dtype, 3), normal(c, dtype, 4)) if affine else (None, None)
        out, mean, var = _same(lambda sim, w=weight, b=bias: calls.batch_norm(sim, x, w, b, 1e-5))
        exact, plain = op.forward(np, *wide(x, weight, bias), 1e-5), op.forward(np, x, weight, bias, 1e-5)
        for got, e, p, which in zip((out, mean, var), exact, plain, ("out", "mean", "var"), strict=True):
            judge(got, e, p, f"{which} {dtype} {shape} affine={affine}")
        grads = _same(
            lambda sim, w=weight, m=mean, v=var: calls.batch_norm_backward(sim, g, x, w, m, v, 1e-5)
        )
        gradient = op.formulas["x"].function
        exact, plain = (
            gradient(F, *wide(g, x, weight), 1e-5, (True,) * 3),
            gradient(F, g, x, weight, 1e-5, (True,) * 3),
        )
        for got, e, p, which in zip(grads, exact, plain, ("dx", "dweight", "dbias"), strict=True):
            judge(got, e, np.asarray(p, got.dtype), f"{which} {dtype} {shape} affine={affine}")
        assert calls.batch_norm_backward(Sim(), g, x, weight, mean, var, 1e-5, needs_x=False)[0] is None
        # A relu behind it: the gradient counts except where its output is 0 (NaN counts).
        relu = normal(shape, dtype, 5, offset)
        relu[relu < 0] = 0
        relu.reshape(-1)[0] = np.nan
        masked = np.where(relu <= 0, g.dtype.type(0), g)
        grads = _same(
            lambda sim, w=weight, m=mean, v=var, o=relu: calls.batch_norm_backward(
                sim, g, x, w, m, v, 1e-5, True, o
            )
        )
        exact, plain = (
            gradient(F, *wide(masked, x, weight), 1e-5, (True,) * 3),
            gradient(F, masked, x, weight, 1e-5, (True,) * 3),
        )
        for got, e, p, which in zip(grads, exact, plain, ("dx", "dweight", "dbias"), strict=True):
            judge(got, e, np.asarray(p, got.dtype), f"masked {which} {dtype} {shape} affine={affine}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape,offset", (((41, 35), 0), ((40, 64), 1), ((3, 5, 16), 0), ((70, 2, 15, 8), 0)))
@pytest.mark.parametrize("masked", (False, True))
def test_batch_norm_by_fixed_statistics(dtype, shape, offset, masked):
    op, c = OPS["batch_norm_eval"], shape[1]
    x, g = normal(shape, dtype, 1, offset), normal(shape, dtype, 2, offset)
    mean, var = normal(c, dtype, 3), device(np.abs(normal(c, dtype, 4)) + g.dtype.type(0.5))
    relu = normal(shape, dtype, 5, offset) if masked else None
    d = g if relu is None else np.where(relu <= 0, g.dtype.type(0), g)
    wide_mean, wide_var = (device(v.astype(accumulator(g.dtype))) for v in (mean, var))
    for weight in (normal(c, dtype, 6), None):
        f = op.formulas
        both = []
        for dd, xx, m, v, w in (wide(d, x, mean, var, weight), (d, x, mean, var, weight)):
            both.append(
                (
                    f["x"].function(F, dd, xx, v, w, 1e-5),
                    f["weight"].function(F, dd, xx, m, v, 1e-5),
                    f["bias"].function(F, dd),
                )
            )
        for needs in ((True, True, True), (True, False, False), (False, True, False), (True, False, True)):
            grads = _same(
                lambda sim, w=weight, n=needs: [
                    v
                    for v in calls.batch_norm_eval_backward(
                        sim, g, x, relu, w, wide_mean, wide_var, 1e-5, n
                    )
                    if v is not None
                ]
            )
            chosen = [(e, p) for e, p, need in zip(*both, needs, strict=True) if need]
            for got, (e, p) in zip(grads, chosen, strict=True):
                judge(got, e, np.asarray(p, got.dtype), f"{dtype} {shape} {needs} {weight is not None}")


# ---- sums by index ----


def _sorted(index):
    order = np.argsort(index, kind="stable").astype(np.int64)
    return device(order), device(index[order].astype(np.int64))


# Few and many repeats, a segment above 64 rows (shared by the block), rows without any, cols 1.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "n,rows,cols,offset",
    (
        (20, 7, 40, 0),
        (1, 3, 5, 0),
        (700, 9, 33, 0),
        (300, 20, 64, 1),
        (50, 11, 1, 0),
        (400, 3, 1, 0),
        (3000, 300, 1, 0),
        (90, 1, 260, 0),
    ),
)
def test_segment_sum(dtype, n, rows, cols, offset):
    rng = np.random.default_rng(0)
    index = np.where(rng.random(n) < 0.3, rows - 1, rng.integers(0, rows, n))
    order, ordered = _sorted(index)
    src, base = normal((n, cols), dtype, 1, offset), normal((rows, cols), dtype, 2, offset)
    exact = np.zeros((rows, cols))
    np.add.at(exact, index, wide(src)[0])
    plain = np.zeros((rows, cols), accumulator(src.dtype))
    np.add.at(plain, index, src.astype(plain.dtype))
    (out,) = _same(lambda sim: (calls.segment_sum(sim, src, order, ordered, rows),))
    judge(out, exact, plain.astype(src.dtype), f"{dtype} {n} -> {rows}x{cols}")
    (out,) = _same(lambda sim: (calls.segment_sum(sim, src, order, ordered, rows, base, 0.5),))
    judge(
        out,
        wide(base)[0] + 0.5 * exact,
        (base.astype(plain.dtype) + plain.dtype.type(0.5) * plain).astype(src.dtype),
        "base",
    )
    count = np.maximum(np.bincount(index, minlength=rows), 1)[:, None]
    if cols > 1:
        out = calls.segment_sum(Sim(), src, order, ordered, rows, skip=rows - 1, by_count=True)
        mean, rounded = exact / count, (plain / count).astype(src.dtype)
        mean[rows - 1], rounded[rows - 1] = 0, 0
        judge(out, mean, rounded, "mean, one row left out")


def test_rows_too_wide_for_a_grid_are_left_to_the_formula():
    src, place = normal((1, 65536 * 32 + 1), "float16"), device(np.zeros(1, np.int64))
    with pytest.raises(Unavailable, match="segment_sum: takes rows of 65535 tiles, got 65537"):
        calls.segment_sum(Sim(), src, place, place, 1)
    src = normal((1, 65535 * 32), "float16", offset=1)
    assert calls.segment_sum(Sim("forward"), src, place, place, 1).tobytes() == src.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_index_add_atomic(dtype):
    src, index = normal((60, 9), dtype, 1), device(np.random.default_rng(0).integers(0, 5, 60))
    exact = np.zeros((5, 9))
    np.add.at(exact, index, 2.0 * wide(src)[0])
    for order, seed in ORDERS:
        out = device(np.zeros((5, 9), accumulator(src.dtype)))
        calls.index_add_atomic(Sim(order, seed), src, index, out, 2.0)
        np.testing.assert_allclose(out, exact, rtol=1e-4, atol=1e-5)


# ---- windows ----

_POOLS = (
    ((2, 3, 9), (3,), (2,), (1,), (1,)),
    ((2, 7, 8), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((3, 8, 9), (3, 2), (1, 2), (1, 1), (2, 1)),
    ((2, 4, 5, 6), (2, 3, 2), (2, 1, 2), (1, 1, 0), (1, 1, 2)),
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape,kernel,stride,padding,dilation", _POOLS)
@pytest.mark.parametrize("ceil", (False, True))
def test_max_pool(dtype, shape, kernel, stride, padding, dilation, ceil):
    size = shape[len(shape) - len(kernel) :]
    x = normal(shape, dtype, 1)
    x[0].reshape(-1)[:4] = [np.nan, 1, 1, -np.inf]
    count = pooled_size("max_pool", size, kernel, stride, padding, dilation, ceil)
    out, window = _same(lambda sim: calls.max_pool(sim, x, count, kernel, stride, padding, dilation))
    exact, cells = OPS["max_pool"].forward(np, x, kernel, stride, padding, dilation, ceil)
    np.testing.assert_array_equal(*wide(out, exact))
    np.testing.assert_array_equal(window, cells)
    g = normal(out.shape, dtype, 2)
    (dx,) = _same(
        lambda sim: (calls.max_pool_backward(sim, g, window, size, kernel, stride, padding, dilation),)
    )
    spread = OPS["max_pool_spread"].forward
    judge(
        dx,
        spread(np, *wide(g), cells, size, kernel, stride, padding, dilation),
        spread(np, g, cells, size, kernel, stride, padding, dilation),
        str(shape),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape,kernel,stride,padding", [p[:4] for p in _POOLS])
@pytest.mark.parametrize(
    "ceil,include,divisor", ((False, True, 0), (True, False, 0), (True, True, 0), (False, False, 5))
)
def test_avg_pool(dtype, shape, kernel, stride, padding, ceil, include, divisor):
    size, ones = shape[len(shape) - len(kernel) :], (1,) * len(kernel)
    x = normal(shape, dtype, 1)
    count = pooled_size("avg_pool", size, kernel, stride, padding, ones, ceil)
    (out,) = _same(lambda sim: (calls.avg_pool(sim, x, count, kernel, stride, padding, include, divisor),))
    forward, spread = OPS["avg_pool"].forward, OPS["avg_pool_spread"].forward
    judge(
        out,
        forward(np, *wide(x), kernel, stride, padding, ceil, include, divisor),
        forward(np, x, kernel, stride, padding, ceil, include, divisor),
        "out",
    )
    g = normal(out.shape, dtype, 2)
    (dx,) = _same(
        lambda sim: (calls.avg_pool_backward(sim, g, size, kernel, stride, padding, include, divisor),)
    )
    arguments = (size, kernel, stride, padding, include, divisor)
    judge(dx, spread(np, *wide(g), *arguments), spread(np, g, *arguments), "dx")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape,kernel,stride,padding,dilation",
    (
        ((2, 3, 9), (3,), (2,), (1,), (1,)),
        ((2, 2, 6, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
        ((1, 2, 4, 5, 6), (2, 1, 3), (1, 2, 1), (0, 0, 2), (2, 1, 1)),
    ),
)
def test_columns(dtype, shape, kernel, stride, padding, dilation):
    size = shape[2:]
    count = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
    )
    x = normal(shape, dtype, 1)
    (columns,) = _same(lambda sim: (calls.im2col(sim, x, count, kernel, stride, padding, dilation),))
    padded = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    expected = np.empty((*shape[:2], *kernel, *count), x.dtype)
    back = np.zeros(padded.shape)
    g = normal(columns.shape, dtype, 2)
    taken = wide(g)[0].reshape(expected.shape)
    for cell in np.ndindex(*kernel):
        part = tuple(
            slice(j * d, j * d + (n - 1) * s + 1, s)
            for j, d, n, s in zip(cell, dilation, count, stride, strict=True)
        )
        expected[(slice(None), slice(None), *cell)] = padded[(..., *part)]
        back[(..., *part)] += taken[(slice(None), slice(None), *cell)]
    np.testing.assert_array_equal(columns, expected.reshape(columns.shape))
    (image,) = _same(lambda sim: (calls.col2im(sim, g, size, count, kernel, stride, padding, dilation),))
    inside = back[(..., *(slice(p, p + n) for p, n in zip(padding, size, strict=True)))]
    judge(image, inside, inside.astype(x.dtype), "col2im")
    # The same with the samples inside: one matrix for the batch.
    settings = count, kernel, stride, padding, dilation, True
    (together,) = _same(lambda sim: (calls.im2col(sim, x, *settings),))
    depth, cells = columns.shape[1:]
    expected = columns.transpose(1, 0, 2).reshape(depth, shape[0] * cells)
    np.testing.assert_array_equal(together, expected)
    turned = device(g.transpose(1, 0, 2).reshape(expected.shape))
    (again,) = _same(lambda sim: (calls.col2im(sim, turned, size, *settings),))
    np.testing.assert_array_equal(again, image)
