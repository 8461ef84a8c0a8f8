"""Calls that take every kernel through every build and every branch, each judged against the formula in
float64 (`formulas`).

scenario(sim, dtype, odd): odd 1 takes odd addresses and row lengths, which need the scalar form. They serve
the values in four orders, the checked mode, the line coverage and the mutants.
"""

from itertools import product

import numpy as np

from lucid.kernel import calls
from lucid.kernel import calls_spatial as spatial
from lucid.kernel.launch import accumulator
from lucid.kernel.specs import ACTIVATIONS
from lucid.storage.dtype import as_dtype
from tests.kernels import formulas
from tests.kernels.formulas import close, f8
from tests.kernels.scenarios_tensors import gradients, optimizers, optimizers_far
from tests.kernels.sim import device, normal

_SPECIAL = (0.0, -0.0, np.nan, 30.0, -30.0, 200.0, -200.0)


def _special(n, dtype, seed, odd):
    # Values with those at which activations have a corner, saturate or overflow.
    x = normal(n, dtype, seed, odd, scale=2.0)
    x.reshape(-1)[: len(_SPECIAL)] = _SPECIAL[: x.size]
    return x


# ---- element by element ----

# Whole packs; less than one; several turns of each thread and a tail.
_LENGTHS = (64, 3, 5003)


def pointwise(sim, dtype, odd):
    for n in _LENGTHS:
        here = sim.small() if n > 1000 else sim
        x, mask = normal(n, dtype, 1, odd), np.arange(n) % 3 == 0
        np.testing.assert_array_equal(calls.copy(here, x), x)
        close(calls.masked_scale(here, x, device(mask), 2.0), f8(x) * mask * 2.0, f"masked_scale {n}")
    for name, n in product(ACTIVATIONS, _LENGTHS):
        here = sim.small() if n > 1000 else sim
        x, g = _special(n, dtype, 1, odd), normal(n, dtype, 2, odd)
        dx = calls.activation_backward(here, name, g, x, 0.1)
        close(dx, f8(g) * formulas.SLOPES[name](f8(x), 0.1), f"{name} backward {n}")
        if name in formulas.VALUES:
            close(calls.activation(here, name, x, 0.1), formulas.VALUES[name](f8(x), 0.1), f"{name} {n}")


def far_sigmoid(sim, dtype, odd):
    """Sigmoids far below 1 keep their digits."""
    values, digits = ((-40, -200, -700), 1e-13) if dtype == "float64" else ((-5, -7, -9), 1e-2)
    x = device(np.array(values, as_dtype(dtype)), odd)
    np.testing.assert_allclose(f8(calls.activation(sim, "sigmoid", x, 0.1)), 1 / (1 + np.exp(-f8(x))), digits)


def dropout(sim, dtype, odd):
    # Blocks of the stream whose number has a high half, is about to get one, and starts again at 0.
    for n, first, skip in zip(_LENGTHS, (3 << 32, (3 << 32) - 2, (1 << 64) - 1), (0, 1, 7), strict=True):
        here = sim.small() if n > 1000 else sim
        state = device(np.array([(7 << 40) + 5, first], np.uint64))
        x, mask = normal(n, dtype, 1, odd), formulas.kept(state, n, 0.7, skip)
        close(calls.dropout(here, x, state, 0.7, skip), f8(x) * mask / 0.7, f"dropout {n}")
        here.odd = odd
        np.testing.assert_array_equal(calls.dropout_mask(here, (n,), state, 0.7, x.dtype, skip), mask)
        assert calls.dropout_mask(here, (n,), state, 1.0, x.dtype).all()


def dropout_edges(sim, dtype, odd):
    """A word that is just the threshold drops its element, in every place of a block; bytes are 0 or 1."""
    state, n, sim.odd = device(np.array([9, 1 << 40], np.uint64)), 71, odd
    x, words = normal(n, dtype, 1, odd), formulas.philox_words(np, 9, 1 << 40, 18)
    for k in (8, 9, 10, 11, 68, 69, 70):  # and in those that fill no pack
        keep = float(words[k]) / 2.0**32
        mask = formulas.kept(state, n, keep)
        assert not mask[k]
        close(calls.dropout(sim, x, state, keep), f8(x) * mask / keep, f"dropout at the threshold {k}")
        found = calls.dropout_mask(sim, (n,), state, keep, x.dtype)
        np.testing.assert_array_equal(found.view(np.uint8), mask.astype(np.uint8))


def _column_shapes(odd):
    # One range of rows; several; several tiles of columns; ranges of which the last is empty.
    return ((3, 8, 3), (150, 64, 3), (70, 264, 3), (150, 64, 0), (4609, 8, 9)) if not odd else (
        (3, 5, 3), (150, 33, 3), (70, 261, 3), (150, 33, 0), (4609, 3, 9)
    )  # fmt: skip


def columns(sim, dtype, odd):
    for rows, cols, sms in _column_shapes(odd):
        sim.sms = sms
        g, v = normal((rows, cols), dtype, 1, odd), _special((rows, cols), dtype, 2, odd)
        close(calls.column_sum(sim, g), f8(g).sum(0), f"column_sum {rows} {cols}")
        for name in ACTIVATIONS if rows < 1000 else ACTIVATIONS[:1]:
            dz, db = calls.activation_bias_grad(sim, name, g, v, 0.1)
            exact = f8(g) * formulas.SLOPES[name](f8(v), 0.1)
            close(dz, exact, f"{name}_bias_grad {rows} {cols}")
            close(db, exact.sum(0), f"{name}_bias_grad sum {rows} {cols}")


# ---- rows ----


def _rows(odd):
    # A warp per row; blocks of 256 and 512 threads.
    return ((11, 41), (3, 1031), (2, 4099)) if odd else ((11, 40), (3, 1032), (2, 4104))


def softmax(sim, dtype, odd):
    for rows, cols in _rows(odd):
        x, g = normal((rows, cols), dtype, 1, odd, scale=4.0), normal((rows, cols), dtype, 2, odd)
        x[0] += as_dtype(dtype).type(90)  # whose exponentials float32 cannot hold
        x[1, 3] = -np.inf
        for name, here in product(("softmax", "log_softmax"), (sim, sim.small())):
            out = calls.softmax(here, name, x)
            close(out, getattr(formulas, name)(f8(x)), f"{name} {cols}")
            out = device(out, odd)
            dx = calls.softmax_backward(here, name, g, out)
            close(dx, getattr(formulas, f"{name}_backward")(*f8(g, out)), f"{name}_backward {cols}")
            if name == "softmax":
                same = device(g, odd)
                assert calls.softmax_backward_inplace(here, same, out) is same
                np.testing.assert_array_equal(same, dx, err_msg=f"softmax_backward_inplace {cols}")
    for cols in (_rows(odd)[0][1], _rows(odd)[1][1]):
        x = normal((5, cols), dtype, 1, odd)
        x[0], x[1, 5], x[2, 7] = -np.inf, np.inf, np.nan
        x[3], x[3, 9] = -np.inf, 2.0
        x[4, :-1], x[4, -1] = -np.inf, np.nan
        for name in ("softmax", "log_softmax"):
            close(calls.softmax(sim, name, x), getattr(formulas, name)(f8(x)), f"{name} of infinities {cols}")


def softmax_of_peaks(sim, dtype, odd):
    """One element far above the others, in each warp of the block in turn."""
    cols = 1031 if odd else 1032
    x = normal((8, cols), dtype, 1, odd)
    x[np.arange(8), np.arange(8) * (cols // 8) + 20] = 1000
    close(calls.softmax(sim, "softmax", x), formulas.softmax(f8(x)), "softmax of peaks")


def softmax_columns(sim, dtype, odd):
    shapes = ((2, 21, 33), (3, 9, 261), (1, 5, 3)) if odd else ((2, 21, 32), (3, 9, 264), (1, 5, 8))
    for shape in shapes:
        x, g = normal(shape, dtype, 1, odd, scale=4.0), normal(shape, dtype, 2, odd)
        x[0, :, 0] += as_dtype(dtype).type(90)
        for name in ("softmax", "log_softmax"):
            out = device(calls.softmax_columns(sim, name, x, 1), odd)
            exact = _turned(getattr(formulas, name), f8(x))
            close(out, exact, f"{name}_columns {shape}")
            dx = calls.softmax_backward_columns(sim, name, g, out, 1)
            exact = _turned(getattr(formulas, f"{name}_backward"), *f8(g, out))
            close(dx, exact, f"{name}_backward_columns {shape}")
    # More outer ones than the grid has rows: a block goes on to the next.
    shape = (5, 9, 33 if odd else 264)
    x, out = normal(shape, dtype, 1, odd), device(np.zeros(shape, as_dtype(dtype)), odd)
    tiles = -(-shape[2] // (32 * calls._step(x.dtype, macros := calls.form(sim, x, cols=shape[2]))))
    for name in ("softmax", "log_softmax"):
        sim(f"{name}_columns", (tiles, 2), (32, 8), (x, out, *shape), x.dtype, macros)
        close(out, _turned(getattr(formulas, name), f8(x)), f"{name}_columns by few blocks")
        g, dx = normal(shape, dtype, 2, odd), device(np.zeros(shape, x.dtype), odd)
        sim(f"{name}_backward_columns", (tiles, 2), (32, 8), (g, out, dx, *shape), x.dtype, macros)
        exact = _turned(getattr(formulas, f"{name}_backward"), *f8(g, out))
        close(dx, exact, f"{name}_backward_columns by few blocks")
    x = normal((1, 11, 33 if odd else 40), dtype, 1, odd)
    x[0, 4, 0], x[0, :, 1], x[0, 5, 2], x[0, 7, 3] = -np.inf, -np.inf, np.inf, np.nan
    x[0, :, 4], x[0, 9, 4] = -np.inf, 2.0
    x[0, :10, 5], x[0, 10, 5] = -np.inf, np.nan
    for name in ("softmax", "log_softmax"):
        exact = _turned(getattr(formulas, name), f8(x))
        close(calls.softmax_columns(sim, name, x, 1), exact, f"{name}_columns of infinities")


def _turned(formula, *arrays):
    return np.moveaxis(formula(*(np.moveaxis(v, 1, -1) for v in arrays)), -1, 1)


def _targets(rows, cols, dirty):
    target = np.arange(rows) * 7 % cols
    target[0] = -100
    if dirty:
        target[1], target[-1] = cols, -1
    return device(target)


def cross_entropy(sim, dtype, odd):
    for rows, cols in _rows(odd):
        weight = device(np.linspace(0.0, 1.5, cols).astype(as_dtype(dtype)), odd)
        x = normal((rows, cols), dtype, 1, odd, scale=3.0)
        x[1] += as_dtype(dtype).type(90)
        forms = ((0.0, None), (0.1, weight), (0.1, None), (0.0, weight))
        for (smoothing, w), here in product(forms, (sim, sim.small())):
            for reduction in ("mean", "sum", "none"):
                _loss(here, x, _targets(rows, cols, reduction == "none"), w, smoothing, reduction)
    x, target = normal((3, 40), dtype, 1, 0), _targets(3, 40, False)
    x[1, 3] = -np.inf
    _loss(sim, x, target, None, 0.0, "mean")


def cross_entropy_targets(sim, dtype, odd):
    """The first class and the last; one that 32 bits would take for class 1; infinities in an ignored row."""
    for _, cols in _rows(odd)[:2]:
        weight = device(np.linspace(0.0, 1.5, cols).astype(as_dtype(dtype)), odd)
        x = normal((5, cols), dtype, 7, odd)
        x[0] = np.inf
        for smoothing, w in ((0.1, None), (0.1, weight), (0.0, None)):
            _loss(sim, x, device(np.array([-100, 0, cols - 1, 1, 0])), w, smoothing, "mean")
            _loss(sim, x, device(np.array([-100, 0, cols - 1, (1 << 32) + 1, 0])), w, smoothing, "none")


def _loss(sim, x, target, weight, smoothing, reduction):
    what = f"cross_entropy {x.shape} {reduction} smoothing {smoothing} weight {weight is not None}"
    rows, wide = len(x), accumulator(x.dtype)
    losses, k, counted = formulas.cross_entropy(f8(x), target, f8(weight), -100, smoothing)
    loss, saved, flag = calls.cross_entropy(sim, x, target, weight, -100, smoothing, reduction)
    bad = [t for t in target.view(np.uint64).tolist() if t >= x.shape[1] and t != (1 << 64) - 100]
    assert flag[0] == max(bad, default=0), what
    total = counted.sum() if reduction == "mean" else 1.0
    close(loss, losses if reduction == "none" else losses.sum() / total, what)
    g = normal(rows if reduction == "none" else (), x.dtype.name, 6)
    dx = calls.cross_entropy_backward(sim, g, x, target, weight, saved, -100, smoothing, reduction)
    share = np.broadcast_to(f8(g) / total, rows)
    close(dx, formulas.cross_entropy_backward(share, f8(x), k), f"{what} backward")
    one = device(np.full(1, 0.25, wide))
    exact = formulas.cross_entropy_backward(np.full(rows, 0.25), f8(x), k)
    for inplace in (False, True):
        a = device(x, x.ctypes.data % 16 // x.itemsize)
        each, da, flag = calls.cross_entropy_gradient(sim, one, a, target, weight, -100, smoothing, inplace)
        assert (da is a) == inplace and flag[0] == max(bad, default=0), what
        close(each, losses, f"{what} in one pass")
        close(da, exact, f"{what} in one pass, gradient")


def norms(sim, dtype, odd):
    # One shape per build of norm_backward, and rows too long for registers.
    for cols in (33, 300, 1500, 2050, 4100, 8201) if odd else (64, 256, 1000, 2048, 4096, 4104, 8200):
        rows = 20 if cols < 300 else 2
        x, g = normal((rows, cols), dtype, 1, odd, scale=2.0), normal((rows, cols), dtype, 2, odd)
        x += x.dtype.type(3)
        weight, bias = normal(cols, dtype, 3, odd), normal(cols, dtype, 4, odd)
        for name, affine in product(("layer_norm", "rms_norm"), (True, False)):
            for here in (sim, sim.small()) if cols < 300 else (sim,):
                _norm(here, name, x, g, weight if affine else None, bias if affine else None)


def _norm(sim, name, x, g, weight, bias):
    cols, centred, eps = x.shape[1], name == "layer_norm", 1e-2
    bias, what = bias if centred else None, f"{name} {x.shape} weight {weight is not None}"
    out, mean, rstd = calls.norm(sim, name, x, weight, bias, eps, cols)
    exact = formulas.norm(*f8(x, weight, bias), eps, centred)
    close(out, exact[0], what)
    close(rstd, exact[2], f"{what} rstd")
    if centred:
        close(mean, exact[1], f"{what} mean")
    at = np.zeros(len(x)) if mean is None else f8(mean)
    exact = formulas.norm_backward(*f8(g, x, weight), at, f8(rstd), centred)
    needed = [(True, weight is not None, weight is not None and centred)]
    if weight is not None:
        needed += [(False, True, False), (True, False, False)] + [(False, True, True)] * centred
    for needs in needed:
        grads = calls.norm_backward(sim, name, g, x, weight, mean, rstd, cols, needs)
        for got, e, need, which in zip(grads, exact, needs, ("dx", "dweight", "dbias"), strict=True):
            if need:
                close(got, e, f"{what} {which}")
    join = normal(x.shape, x.dtype.name, 5, x.ctypes.data % 16 // x.itemsize)
    dx = calls.norm_backward(sim, name, g, x, weight, mean, rstd, cols, needed[0], join)[0]
    close(dx, exact[0] + f8(join), f"{what} dx joined")


def norm_weight_in_ranges(sim, dtype, odd):
    """Several ranges of rows, each of more rows than a block takes at once; the last one shorter."""
    rows, cols, name, wide = 50, 31 if odd else 40, "norm_backward_weight", accumulator(as_dtype(dtype))
    x, g = normal((rows, cols), dtype, 1, odd), normal((rows, cols), dtype, 2, odd)
    _, mean, rstd = (device(v.astype(wide)) for v in formulas.norm(f8(x), None, None, 1e-2, True))
    partial, macros = sim.empty((2, 3, cols), wide), calls.form(sim, x, g, cols=cols)
    sim(name, (1, 3), (32, 8), (g, x, mean, rstd, partial, 1, rows, cols), x.dtype, macros, G=3)
    exact = formulas.norm_backward(f8(g), f8(x), None, f8(mean), f8(rstd), True)
    for got, e in zip(partial, exact[1:], strict=True):
        close(got.sum(0), e, name)


# ---- channels, indices, windows ----


def batch_norm_of_single_ones(sim, dtype, odd):
    """Ranges of one element: of a channel's, and a matrix of one row."""
    x, wide = normal((1, 2, 3), dtype, 1, 1), accumulator(as_dtype(dtype))
    partial, macros = sim.empty((3, 3, 2), wide), ("LUCID_THREADS=256", "LUCID_SCALAR")
    sim("batch_norm_partial", (2, 3), (256,), (x, partial, 2, 3, 3), x.dtype, macros, G=3)
    close(partial[0], f8(x)[0].T, "means of single elements")
    assert not partial[1].any() and (partial[2] == 1).all()
    x = normal((1, 33 if odd else 64), dtype, 1, odd)
    out, mean, var = spatial.batch_norm(sim, x, None, None, 1e-2)
    close(mean, f8(x)[0], "means of a single row")
    assert not var.any() and not f8(out).any()


def batch_norm(sim, dtype, odd):
    # Matrices; images whose channels are one range and several; ranges of which the last is empty.
    shapes = ((70, 35), (2, 5, 9), (70, 2, 15, 9)) if odd else ((130, 64), (2, 5, 16), (70, 2, 16, 8))
    more = ((shapes[0], 0), (shapes[1], 0), ((4609, 3 if odd else 8), 9))
    for shape, sms in (*((s, 3) for s in shapes), *more):
        sim.sms = sms
        x, g = normal(shape, dtype, 1, odd, scale=2.0), normal(shape, dtype, 2, odd)
        x += x.dtype.type(3)
        for affine in (True, False):
            weight, bias = (normal(shape[1], dtype, s) if affine else None for s in (3, 4))
            out, mean, var = spatial.batch_norm(sim, x, weight, bias, 1e-2)
            exact = formulas.batch_norm(*f8(x, weight, bias), 1e-2)
            for got, e, which in zip((out, mean, var), exact, ("out", "mean", "var"), strict=True):
                close(got, e, f"batch_norm {shape} {which}")
            relu = normal(shape, dtype, 5, odd)
            relu[relu < 0] = 0
            relu.reshape(-1)[1] = np.nan
            for o in (None, relu):
                _batch_norm_backward(sim, g, x, o, weight, mean, var)


def _batch_norm_backward(sim, g, x, out, weight, mean, var):
    what, counted = f"batch_norm {x.shape} relu {out is not None}", f8(g)
    if out is not None:
        counted = np.where(f8(out) <= 0, 0.0, counted)
    names, eps = ("dx", "dweight", "dbias"), 1e-2
    grads = spatial.batch_norm_backward(sim, g, x, weight, mean, var, eps, True, out)
    exact = formulas.batch_norm_backward(counted, *f8(x, weight, mean, var), eps)
    for got, e, which in zip(grads, exact, names, strict=True):
        close(got, e, f"{what} {which}")
    exact = formulas.batch_norm_eval_backward(counted, *f8(x, weight, mean, var), eps)
    for needs in ((True, True, True), (True, False, False), (False, True, False), (False, False, True)):
        grads = spatial.batch_norm_eval_backward(sim, g, x, out, weight, mean, var, eps, needs)
        for got, e, need, which in zip(grads, exact, needs, names, strict=True):
            assert (got is not None) == need
            if need:
                close(got, e, f"{what} by fixed statistics {which}")


def segments(sim, dtype, odd):
    # Long segments (of more than 64 rows): several of a block's eight, the first of the next block's. Short
    # ones, one of just 64, rows without any.
    index = np.repeat([0, 3, 4, 8, 11, 12], [203, 70, 130, 66, 64, 91])
    index = np.concatenate([index, np.arange(30) % 7 + 2])
    index = np.random.default_rng(0).permutation(index)
    order = np.argsort(index, kind="stable")
    for cols in (37 if odd else 40, 1, 261 if odd else 264):
        src, base = normal((len(index), cols), dtype, 1, odd), normal((14, cols), dtype, 2, odd)
        for b, alpha, skip, by_count in (
            (None, 1.0, -1, False),
            (base, 0.5, -1, False),
            (None, 1.0, 12, True),
            (base, 1.0, 3, True),
        ):
            out = spatial.segment_sum(
                sim, src, device(order), device(index[order]), 14, b, alpha, skip, by_count
            )
            exact = formulas.segment_sum(f8(src), index, 14, f8(b), alpha, skip, by_count)
            close(out, exact, f"segment_sum {cols} base {b is not None} skip {skip}")
        for here in (sim, sim.small()) if cols < 100 else (sim,):
            out = device(np.ones((14, cols), accumulator(src.dtype)))
            some = np.where(index == 12, 14, np.where(index == 3, -1, index))  # two rows out of range
            spatial.index_add_atomic(here, src, device(some), out, 2.0)
            inside = (some >= 0) & (some < 14)
            ones = np.ones((14, cols))
            exact = formulas.segment_sum(f8(src)[inside], index[inside], 14, ones, 2.0, -1, False)
            close(out, exact, "index_add_atomic")
    # More rows than a block's 256, long segments at the end of one block and the start of the next.
    index = np.concatenate([np.repeat([0, 255, 256, 299], [70, 300, 66, 65]), np.arange(300)])
    order = np.argsort(index, kind="stable")
    src = normal((len(index), 1), dtype, 3, odd)
    out = spatial.segment_sum(sim, src, device(order), device(index[order]), 300)
    close(out, formulas.segment_sum(f8(src), index, 300, None, 1.0, -1, False), "segment_sum_flat")


# (planes, *size), kernel, stride, padding, dilation; the last has windows of more than 127 cells.
_WINDOWS = (
    ((2, 3, 9), (3,), (2,), (1,), (1,)),
    ((2, 3, 7, 8), (3, 2), (2, 1), (1, 1), (1, 2)),
    ((2, 2, 4, 5, 6), (2, 3, 2), (2, 1, 3), (1, 1, 0), (1, 1, 2)),
    ((1, 2, 13, 12), (12, 11), (1, 2), (1, 0), (1, 1)),
)


def _count(size, kernel, stride, padding, dilation, ceil):
    found = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1
        windows = span // s + 1
        # One more that starts within the input or the low padding.
        found.append(windows + (ceil and span % s > 0 and windows * s < n + p))
    return tuple(found)


def windows(sim, dtype, odd):
    for shape, kernel, stride, padding, dilation in _WINDOWS:
        size = shape[2:]
        for here, ceil in ((sim, False), (sim.small(), True)):
            x = normal(shape, dtype, 1)
            x.reshape(-1)[:4] = [np.nan, 1, 1, -np.inf]
            _pool(here, x, size, kernel, stride, padding, dilation, ceil)
            x = normal(shape, dtype, 5)
            count = _count(size, kernel, stride, padding, dilation, False)
            for inside in (False, True):
                _columns(here, x, size, count, kernel, stride, padding, dilation, inside)


def _columns(sim, x, size, count, kernel, stride, padding, dilation, inside):
    what, planes = f"{x.shape} inside {inside}", (-1, *size)
    found = spatial.im2col(sim, x, count, kernel, stride, padding, dilation, inside)
    exact = formulas.im2col(f8(x).reshape(planes), count, kernel, stride, padding, dilation)
    # [batch, channels * cells of the kernel, windows], or the batch beside the windows
    together = exact.reshape(x.shape[0], -1, np.prod(count))
    turned = together.transpose(1, 0, 2).reshape(found.shape) if inside else together
    close(found, turned, f"im2col {what}")
    g = normal(found.shape, x.dtype.name, 6)
    dx = spatial.col2im(sim, g, size, count, kernel, stride, padding, dilation, inside)
    taken = f8(g)
    if inside:
        taken = taken.reshape(together.shape[1], x.shape[0], -1).transpose(1, 0, 2)
    exact = formulas.col2im(taken.reshape(exact.shape), size, count, kernel, stride, padding, dilation)
    close(dx, exact.reshape(x.shape), f"col2im {what}")


def _pool(sim, x, size, kernel, stride, padding, dilation, ceil):
    planes, what = (-1, *size), f"pool {x.shape} ceil {ceil}"
    count = _count(size, kernel, stride, padding, dilation, ceil)
    out, window = spatial.max_pool(sim, x, count, kernel, stride, padding, dilation)
    exact, cells = formulas.max_pool(f8(x).reshape(planes), count, kernel, stride, padding, dilation)
    close(out, exact.reshape(out.shape), f"max_{what}")
    np.testing.assert_array_equal(window, cells.reshape(window.shape))
    g = normal(out.shape, x.dtype.name, 2)
    dx = spatial.max_pool_backward(sim, g, window, size, kernel, stride, padding, dilation)
    taken = f8(g).reshape(cells.shape)
    exact = formulas.max_pool_backward(taken, cells, size, kernel, stride, padding, dilation)
    close(dx, exact.reshape(x.shape), f"max_{what} backward")
    x = normal(x.shape, x.dtype.name, 3)
    ones = (1,) * len(kernel)
    count = _count(size, kernel, stride, padding, ones, ceil)
    for padded, divisor in ((True, 0), (False, 0), (True, 3)):
        out = spatial.avg_pool(sim, x, count, kernel, stride, padding, padded, divisor)
        exact = formulas.avg_pool(f8(x).reshape(planes), count, kernel, stride, padding, padded, divisor)
        close(out, exact.reshape(out.shape), f"avg_{what} {padded} {divisor}")
        g = normal(out.shape, x.dtype.name, 4)
        dx = spatial.avg_pool_backward(sim, g, size, kernel, stride, padding, padded, divisor)
        exact = formulas.avg_pool_backward(
            f8(g).reshape(exact.shape), size, kernel, stride, padding, padded, divisor
        )
        close(dx, exact.reshape(x.shape), f"avg_{what} backward {padded} {divisor}")


def pools_of_infinities(sim, dtype, odd):
    """Of cells that are all -inf the first inside the input is the largest; NaN wins. Pools in depth."""
    x = normal((2, 5, 6), dtype, 1, odd)
    x[0], x[0, 4, 5], x[1, :3], x[1, 4, 2] = -np.inf, 1.0, -np.inf, np.nan
    out, cells = spatial.max_pool(sim, x, (4, 5), (2, 2), (1, 1), (0, 0), (1, 1))
    exact, numbers = formulas.max_pool(f8(x), (4, 5), (2, 2), (1, 1), (0, 0), (1, 1))
    close(out, exact, "max_pool of infinities")
    np.testing.assert_array_equal(cells, numbers)
    out, cells = spatial.max_pool(sim, x, (6, 7), (2, 2), (1, 1), (1, 1), (1, 1))
    assert np.isneginf(f8(out)[0, :4]).all() and cells[0, 0].tolist() == [3, 2, 2, 2, 2, 2, 2]
    assert cells[0, 1:5, 0].tolist() == [1, 1, 1, 1] and not cells[0, 1:4, 1:].any()
    x = normal((1, 2, 6, 4, 4), dtype, 3, odd)
    _pool(sim, x, (6, 4, 4), (3, 2, 2), (2, 1, 1), (0, 0, 0), (1, 1, 1), False)


ALL = (pointwise, far_sigmoid, dropout, dropout_edges, columns, softmax, softmax_of_peaks, softmax_columns)
ALL += (cross_entropy, cross_entropy_targets, norms, batch_norm, batch_norm_of_single_ones, segments, windows)
ALL += (norm_weight_in_ranges, pools_of_infinities, optimizers, optimizers_far, gradients)
# What runs each file: its mutants are judged by these.
FILES = {
    "activations.cuh": (pointwise, far_sigmoid, columns),
    "batch_norm.cu": (batch_norm, batch_norm_of_single_ones),
    "bias_grad.cu": (columns, norms),
    "columns.cu": (windows,),
    "cross_entropy.cu": (cross_entropy, cross_entropy_targets),
    "dropout.cu": (dropout, dropout_edges),
    "gradients.cu": (gradients,),
    "lucid.cuh": (pointwise, softmax, softmax_of_peaks, norms, dropout, columns, optimizers_far),
    "norm.cu": (norms, norm_weight_in_ranges),
    "optimizer.cu": (optimizers, optimizers_far),
    "pointwise.cu": (pointwise,),
    "pool.cu": (windows, pools_of_infinities),
    "segment.cu": (segments,),
    "softmax.cu": (softmax, softmax_of_peaks),
    "softmax_columns.cu": (softmax_columns,),
    "windows.cuh": (windows,),
}
