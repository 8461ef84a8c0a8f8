"""Calls that take every kernel through every branch, for checked mode and for line coverage.

Values are judged elsewhere.
"""

import numpy as np

from lucid.kernel import calls
from lucid.kernel import calls_spatial as spatial
from lucid.kernel.launch import accumulator
from lucid.kernel.multi_tensor import (
    CHUNK,
    NORMS,
    STATES,
    MultiTensor,
    adam_numbers,
    counts,
    gradient_clip,
    gradient_norm,
    gradient_unscale,
    loss_scale,
    sgd_numbers,
)
from lucid.kernel.specs import ACTIVATIONS
from lucid.storage.dtype import as_dtype
from tests.kernels.sim import device, normal


def pointwise(sim, dtype, odd):
    x, g = normal(531, dtype, 1, odd), normal(531, dtype, 2, odd)
    for name in ACTIVATIONS:
        calls.activation_backward(sim, name, g, x, 0.1)
        if name not in ("relu", "tanh"):
            calls.activation(sim, name, x, 0.1)
    calls.masked_scale(sim, x, device(np.arange(531) % 3 == 0), 2.0)
    calls.copy(sim, x)
    state = device(np.array([5, 3], np.uint64))
    calls.dropout(sim, x, state, 0.7)
    calls.dropout_mask(sim, (531,), state, 0.7, x.dtype)


def columns(sim, dtype, odd):
    for rows, cols in ((150, 33 if odd else 64), (3, 5 if odd else 8)):
        g, v = normal((rows, cols), dtype, 1, odd), normal((rows, cols), dtype, 2, odd)
        for name in ACTIVATIONS:
            calls.activation_bias_grad(sim, name, g, v, 0.1)
        calls.column_sum(sim, g)


def softmax(sim, dtype, odd):
    for cols in (41, 1031, 4099) if odd else (40, 1032, 4104):
        x, g = (
            normal((9 if cols < 50 else 2, cols), dtype, 1),
            normal((9 if cols < 50 else 2, cols), dtype, 2),
        )
        x[0, 0] = -np.inf
        for name in ("softmax", "log_softmax"):
            calls.softmax_backward(sim, name, g, calls.softmax(sim, name, x))
        calls.softmax_backward_inplace(sim, device(g), calls.softmax(sim, "softmax", x))


def softmax_columns(sim, dtype, odd):
    for shape in ((2, 21, 33 if odd else 32), (1, 3, 265 if odd else 264)):
        x, g = normal(shape, dtype, 1), normal(shape, dtype, 2)
        x[0, 0], x[0, :, 1] = -np.inf, -np.inf
        for name in ("softmax", "log_softmax"):
            out = calls.softmax_columns(sim, name, x, 1)
            calls.softmax_backward_columns(sim, name, g, out, 1)


def cross_entropy(sim, dtype, odd):
    for cols in (41, 1031, 4099) if odd else (40, 1032, 4104):
        rows = 11 if cols < 50 else 3
        x, target = normal((rows, cols), dtype, 1), device(np.arange(rows) % cols)
        target[0], target[1] = -100, cols + 3
        weight = device(np.linspace(0.5, 1.5, cols).astype(as_dtype(dtype)))
        for smoothing, w in ((0.0, None), (0.1, weight), (0.1, None)):
            loss, saved, _ = calls.cross_entropy(sim, x, target, w, -100, smoothing, "mean")
            calls.cross_entropy_backward(sim, loss, x, target, w, saved, -100, smoothing, "mean")
            one = device(np.ones(1, accumulator(x.dtype)))
            calls.cross_entropy_gradient(sim, one, x, target, w, -100, smoothing)
            calls.cross_entropy_gradient(sim, one, device(x), target, w, -100, smoothing, inplace=True)
        each, saved, _ = calls.cross_entropy(sim, x, target, None, -100, 0.0, "none")
        calls.cross_entropy_backward(sim, each, x, target, None, saved, -100, 0.0, "none")


def norms(sim, dtype, odd):
    # One shape per build of norm_backward, and rows too long for registers.
    for cols in (33, 300, 1500, 2050, 4100, 8201) if odd else (64, 256, 1000, 2048, 4096, 4104, 8200):
        rows = 20 if cols < 300 else 2
        x, g, weight = normal((rows, cols), dtype, 1), normal((rows, cols), dtype, 2), normal(cols, dtype, 3)
        for name in ("layer_norm", "rms_norm"):
            for w in (weight, None):
                _, mean, rstd = calls.norm(sim, name, x, w, w if name == "layer_norm" else None, 1e-5, cols)
                calls.norm_backward(
                    sim,
                    name,
                    g,
                    x,
                    w,
                    mean,
                    rstd,
                    cols,
                    (True, w is not None, w is not None and name == "layer_norm"),
                )
            calls.norm_backward(sim, name, g, x, weight, mean, rstd, cols, (False, True, False))
            join = normal((rows, cols), dtype, 4)
            calls.norm_backward(sim, name, g, x, weight, mean, rstd, cols, (True, True, False), join)


def batch_norm(sim, dtype, odd):
    for shape in ((70, 35), (2, 5, 9), (70, 2, 15, 9)) if odd else ((130, 64), (2, 5, 16), (70, 2, 16, 8)):
        x, g, weight = normal(shape, dtype, 1), normal(shape, dtype, 2), normal(shape[1], dtype, 3)
        for w in (weight, None):
            _, mean, var = spatial.batch_norm(sim, x, w, w, 1e-5)
            spatial.batch_norm_backward(sim, g, x, w, mean, var, 1e-5)
            out = normal(shape, dtype, 4)
            spatial.batch_norm_backward(sim, g, x, w, mean, var, 1e-5, True, out)
            for needs in ((True, True, True), (True, False, False), (False, False, True)):
                for o in (out, None):
                    spatial.batch_norm_eval_backward(sim, g, x, o, w, mean, var, 1e-5, needs)


def segments(sim, dtype, odd):
    index = np.concatenate([np.zeros(200, int), np.arange(30) % 7 + 2, np.full(90, 12)])
    order = np.argsort(index, kind="stable")
    for cols in (37 if odd else 40, 1):
        src, base = normal((320, cols), dtype, 1), normal((13, cols), dtype, 2)
        for b in (None, base):
            spatial.segment_sum(sim, src, device(order), device(index[order]), 13, b)
        spatial.segment_sum(sim, src, device(order), device(index[order]), 13, skip=12, by_count=True)
        spatial.index_add_atomic(
            sim, src, device(index), device(np.zeros((13, cols), accumulator(src.dtype)))
        )


def windows(sim, dtype, odd):
    x = normal((2, 3, 7, 8 + odd), dtype, 1)
    kernel, stride, padding, dilation, count = (3, 2), (2, 1), (1, 1), (1, 2), (4, 8 + odd)
    out, window = spatial.max_pool(sim, x, count, kernel, stride, padding, dilation)
    spatial.max_pool_backward(sim, out, window, x.shape[2:], kernel, stride, padding, dilation)
    count = (4, 9 + odd)
    for include, divisor in ((True, 0), (False, 0), (True, 3)):
        out = spatial.avg_pool(sim, x, count, kernel, stride, padding, include, divisor)
        spatial.avg_pool_backward(sim, out, x.shape[2:], kernel, stride, padding, include, divisor)
    count = (4, 8 + odd)
    cols = spatial.im2col(sim, x, count, kernel, stride, padding, dilation)
    spatial.col2im(sim, cols, x.shape[2:], count, kernel, stride, padding, dilation)
    cols = spatial.im2col(sim, x, count, kernel, stride, padding, dilation, True)
    spatial.col2im(sim, cols, x.shape[2:], count, kernel, stride, padding, dilation, True)


def optimizers(sim, dtype, odd):
    sizes = (1, 70, CHUNK + 5, 0, 33)
    params = [normal(n, dtype, n, odd) for n in sizes]
    grads = [normal(p.shape, dtype, 9, odd) for p in params]
    wide = accumulator(params[0].dtype)
    states = [[device(np.zeros(n, wide), odd) for n in sizes] for _ in range(3)]
    steps = [counts(sim, n, 0) for n in sizes]
    sim.memory = [*params, *grads, *sum(states, []), *steps, *sim.memory]
    one = device(np.ones(1, wide))
    for name, number in STATES.items():
        sgd = name.startswith("sgd")
        lines = [
            sgd_numbers(0.1, 0.1, False, 0.9, 0.0, nesterov) if sgd else adam_numbers(0.1, 0.9, 0.99, 1e-8)
            for nesterov in (True, False)
        ]
        step = MultiTensor(sim, name, params, states[:number], steps, [0, 1, 1, 0, 1])
        step(grads, lines)
        step([*grads[:4], None], lines, scale=one, skip=device(np.zeros(1, np.int32)))
        step(grads, lines, skip=device(np.ones(1, np.int32)))


def gradients(sim, dtype, odd):
    grads = [normal(n, dtype, n, odd) for n in (1, 70, CHUNK + 5, 3 * CHUNK)]
    wide = accumulator(grads[0].dtype)
    sim.memory = [*grads, *sim.memory]
    for p in NORMS:
        gradient_norm(sim, grads, p)
    for norm in (0.5, 2.0):
        gradient_clip(sim, grads, device(np.full(1, norm, wide)), 1.0)
    scale, good, found = (device(np.ones(1, kind)) for kind in (np.float32, np.int32, np.int32))
    found[0] = 0
    for value in (1.0, np.inf):
        grads[1][3] = grads[2][:40] = grads[3][-1] = value
        gradient_unscale(sim, grads, device(np.full(1, 2.0, wide)), found)
    for bad in (1, 0, 0):
        loss_scale(sim, scale, good, device(np.full(1, bad, np.int32)), 2.0, 0.5, 2)


ALL = (pointwise, columns, softmax, softmax_columns)
ALL += (cross_entropy, norms, batch_norm, segments, windows, optimizers, gradients)
