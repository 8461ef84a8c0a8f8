"""What the kernels compute, written out in float64 with NumPy alone: the references of `scenarios`."""

from itertools import product
from math import erfc, prod

import numpy as np

from lucid.storage.random import philox_words

# Error that a result may have, relative to |exact| + max |exact| / 8: rounding of the result for 16-bit
# elements, of sums of a few thousand terms for the others.
TOLERANCE = {"float64": 2.0**-44, "float32": 2.0**-17, "float16": 2.0**-10.9, "bfloat16": 2.0**-7.9}
# float16 rounds to multiples of 2^-24 below 2^-14; float32 below 2^-126 is flushed.
TINY = {"float16": 2.0**-25, "float64": 0.0}


def f8(*arrays):
    """Each array in float64."""
    found = tuple(None if a is None else np.asarray(a).astype(np.float64) for a in arrays)
    return found if len(found) > 1 else found[0]


def close(got, exact, what=""):
    """Nothing; raises AssertionError unless `got` is the formula's `exact`, NaN and infinities included."""
    exact = np.asarray(exact, np.float64)
    assert got.shape == exact.shape, f"{what}: shape {got.shape}, expected {exact.shape}"
    value = f8(got)
    np.testing.assert_array_equal(np.isnan(value), np.isnan(exact), err_msg=f"{what}: NaN elsewhere")
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(value[~finite], exact[~finite], err_msg=what)
    if not finite.any():
        return
    size = np.abs(exact[finite])
    kind = got.dtype.name
    bound = TOLERANCE.get(kind, 0.0) * (size + size.max() / 8) + TINY.get(kind, 1e-37)
    error = np.abs(value[finite] - exact[finite])
    worst = int(np.argmax(error - bound))
    assert error[worst] <= bound[worst], (
        f"{what}: {value[finite][worst]!r}, the formula gives {exact[finite][worst]!r}"
    )


# ---- activations ----

_normal = np.vectorize(lambda x: 0.5 * erfc(-x / np.sqrt(2.0)))


def _logistic(x):
    return 1.0 / (1.0 + np.exp(-x))


def _tanh_of(x):
    return np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))


def _gelu_tanh_slope(x):
    t = _tanh_of(x)
    inner = np.sqrt(2.0 / np.pi) * (1.0 + 3.0 * 0.044715 * x**2)
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t**2) * inner


VALUES = {
    "leaky_relu": lambda x, slope: np.where(x <= 0, x * slope, x),
    "sigmoid": lambda x, slope: _logistic(x),
    "silu": lambda x, slope: x * _logistic(x),
    "gelu": lambda x, slope: x * _normal(x),
    "gelu_tanh": lambda x, slope: 0.5 * x * (1.0 + _tanh_of(x)),
}
# By the output for relu, tanh and sigmoid, by the input for the others.
SLOPES = {
    "relu": lambda out, slope: np.where(out <= 0, 0.0, 1.0),
    "leaky_relu": lambda x, slope: np.where(x <= 0, slope, 1.0),
    "tanh": lambda out, slope: 1.0 - out**2,
    "sigmoid": lambda out, slope: out * (1.0 - out),
    "silu": lambda x, slope: _logistic(x) * (1.0 + x * (1.0 - _logistic(x))),
    "gelu": lambda x, slope: _normal(x) + x * np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi),
    "gelu_tanh": lambda x, slope: _gelu_tanh_slope(x),
}


def kept(state, n, keep, skip=0):
    """Which of n elements dropout keeps, `skip` blocks on in the stream: bool [n]."""
    seed, offset = (int(v) for v in state)
    words = philox_words(np, seed, (offset + skip) % (1 << 64), -(-n // 4))
    return words[:n] < np.uint64(round(keep * 2.0**32))


# ---- rows ----


def softmax(x):
    """Of rows."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x):
    """Of rows."""
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def softmax_backward(g, out):
    """Of rows."""
    return out * (g - (g * out).sum(-1, keepdims=True))


def log_softmax_backward(g, out):
    """Of rows."""
    return g - np.exp(out) * g.sum(-1, keepdims=True)


def cross_entropy(x, target, weight, ignore_index, smoothing):
    """(losses, coefficients, counted weights) of rows; NaN where the target is out of range."""
    rows, cols = x.shape
    w = np.ones(cols) if weight is None else weight
    k = np.zeros((rows, cols))
    counted = np.zeros(rows)
    for r, t in enumerate(target):
        if t == ignore_index:
            continue
        if not 0 <= t < cols:
            k[r], counted[r] = np.nan, np.nan
            continue
        k[r] = smoothing / cols * w
        k[r, t] += (1 - smoothing) * w[t]
        counted[r] = w[t]
    # 0 and not 0 * inf where the row is ignored or the class has no weight
    losses = -np.where(k == 0, 0.0, k * log_softmax(x)).sum(1)
    return losses, k, counted


def cross_entropy_backward(g, x, k):
    """The gradient of rows' losses times g [rows], from the coefficients k."""
    total = k.sum(1, keepdims=True)
    dx = softmax(x) * total - k
    return np.where((total == 0) & (k == 0).all(1, keepdims=True), 0.0, dx * g.reshape(-1, 1))


def norm(x, weight, bias, eps, centred):
    """(out, mean, rstd) of rows: layer norm, or RMS norm when not `centred`."""
    mean = x.mean(-1) if centred else np.zeros(len(x))
    d = x - mean[:, None]
    rstd = 1.0 / np.sqrt((d**2).mean(-1) + eps)
    out = d * rstd[:, None]
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, rstd


def norm_backward(g, x, weight, mean, rstd, centred):
    """(dx, dweight, dbias) of rows."""
    xhat = (x - mean[:, None]) * rstd[:, None]
    gw = g if weight is None else g * weight
    inner = gw - xhat * (gw * xhat).mean(-1, keepdims=True)
    if centred:
        inner = inner - gw.mean(-1, keepdims=True)
    return inner * rstd[:, None], (g * xhat).sum(0), g.sum(0)


# ---- channels ----


def batch_norm(x, weight, bias, eps):
    """(out, mean, biased variance) of [batch, channels, ...]."""
    axes = (0, *range(2, x.ndim))
    shape = (1, -1, *(1,) * (x.ndim - 2))
    mean, var = x.mean(axes), x.var(axes)
    out = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + eps)
    out = out if weight is None else out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape), mean, var


def batch_norm_backward(g, x, weight, mean, var, eps):
    """(dx, dweight, dbias)."""
    axes = (0, *range(2, x.ndim))
    shape = (1, -1, *(1,) * (x.ndim - 2))
    rstd = 1.0 / np.sqrt(var + eps)
    xhat = (x - mean.reshape(shape)) * rstd.reshape(shape)
    dweight, dbias = (g * xhat).sum(axes), g.sum(axes)
    count = x.size // x.shape[1]
    inner = g - dbias.reshape(shape) / count - xhat * dweight.reshape(shape) / count
    scale = rstd if weight is None else rstd * weight
    return inner * scale.reshape(shape), dweight, dbias


def batch_norm_eval_backward(g, x, weight, mean, var, eps):
    """(dx, dweight, dbias) of a norm by fixed statistics."""
    axes = (0, *range(2, x.ndim))
    shape = (1, -1, *(1,) * (x.ndim - 2))
    rstd = 1.0 / np.sqrt(var + eps)
    xhat = (x - mean.reshape(shape)) * rstd.reshape(shape)
    scale = rstd if weight is None else rstd * weight
    return g * scale.reshape(shape), (g * xhat).sum(axes), g.sum(axes)


# ---- sums by index ----


def segment_sum(src, index, rows, base, alpha, skip, by_count):
    """[rows, cols]."""
    out = np.zeros((rows, src.shape[1]))
    np.add.at(out, index, src)
    if by_count:
        out /= np.maximum(np.bincount(index, minlength=rows), 1)[:, None]
    if skip >= 0:
        out[skip] = 0.0
    return alpha * out if base is None else base + alpha * out


# ---- windows: x [planes, *size], one loop over the windows, all planes at once ----


def cells(window, size, kernel, stride, padding, dilation):
    """[(number, place or None)] of the cells of a window: None where the cell lies in the padding."""
    found = []
    for number, j in enumerate(product(*map(range, kernel))):
        place = tuple(
            o * s - p + i * d for o, s, p, i, d in zip(window, stride, padding, j, dilation, strict=True)
        )
        inside = all(0 <= a < n for a, n in zip(place, size, strict=True))
        found.append((number, place if inside else None))
    return found


def max_pool(x, count, kernel, stride, padding, dilation):
    """(out, number of the largest cell of each window); NaN is larger than all, of equal cells the first."""
    planes, size = x.shape[0], x.shape[1:]
    out, window = np.empty((planes, *count)), np.empty((planes, *count), np.int64)
    for o in product(*map(range, count)):
        inside = [(n, p) for n, p in cells(o, size, kernel, stride, padding, dilation) if p is not None]
        values = np.stack([x[(slice(None), *p)] for _, p in inside])
        best = np.where(np.isnan(values).any(0), np.isnan(values).argmax(0), values.argmax(0))
        out[(slice(None), *o)] = np.take_along_axis(values, best[None], 0)[0]
        window[(slice(None), *o)] = np.array([n for n, _ in inside])[best]
    return out, window


def max_pool_backward(g, window, size, kernel, stride, padding, dilation):
    """dx [planes, *size]."""
    planes, count = g.shape[0], g.shape[1:]
    dx = np.zeros((planes, *size))
    for o in product(*map(range, count)):
        for number, place in cells(o, size, kernel, stride, padding, dilation):
            if place is not None:
                taken = window[(slice(None), *o)] == number
                dx[(slice(None), *place)] += np.where(taken, g[(slice(None), *o)], 0.0)
    return dx


def _divisor(window, size, kernel, stride, padding, padded, divisor):
    if divisor:
        return divisor
    found = 1
    for o, n, k, s, p in zip(window, size, kernel, stride, padding, strict=True):
        start = o * s - p
        stop = min(start + k, n + p)
        found *= stop - start if padded else min(stop, n) - max(start, 0)
    return found


def avg_pool(x, count, kernel, stride, padding, padded, divisor):
    """The mean of each window."""
    planes, size = x.shape[0], x.shape[1:]
    out = np.zeros((planes, *count))
    for o in product(*map(range, count)):
        for _, place in cells(o, size, kernel, stride, padding, (1,) * len(kernel)):
            if place is not None:
                out[(slice(None), *o)] += x[(slice(None), *place)]
        out[(slice(None), *o)] /= _divisor(o, size, kernel, stride, padding, padded, divisor)
    return out


def avg_pool_backward(g, size, kernel, stride, padding, padded, divisor):
    """dx [planes, *size]."""
    planes, count = g.shape[0], g.shape[1:]
    dx = np.zeros((planes, *size))
    for o in product(*map(range, count)):
        share = g[(slice(None), *o)] / _divisor(o, size, kernel, stride, padding, padded, divisor)
        for _, place in cells(o, size, kernel, stride, padding, (1,) * len(kernel)):
            if place is not None:
                dx[(slice(None), *place)] += share
    return dx


def im2col(x, count, kernel, stride, padding, dilation):
    """[planes, prod(kernel), *count]."""
    out = np.zeros((x.shape[0], prod(kernel), *count))
    for o in product(*map(range, count)):
        for number, place in cells(o, x.shape[1:], kernel, stride, padding, dilation):
            if place is not None:
                out[(slice(None), number, *o)] = x[(slice(None), *place)]
    return out


def col2im(columns, size, count, kernel, stride, padding, dilation):
    """[planes, *size], from columns [planes, prod(kernel), *count]."""
    out = np.zeros((columns.shape[0], *size))
    for o in product(*map(range, count)):
        for number, place in cells(o, size, kernel, stride, padding, dilation):
            if place is not None:
                out[(slice(None), *place)] += columns[(slice(None), number, *o)]
    return out


# ---- optimisers: one step on float64 arrays, in place ----


def sgd(p, g, state, t, lr, weight_decay, momentum, dampening, nesterov, maximize):
    """state: (buffer,) or ()."""
    d = (-g if maximize else g) + weight_decay * p
    if state:
        (buffer,) = state
        buffer[...] = d if t == 1 else momentum * buffer + (1 - dampening) * d
        d = d + momentum * buffer if nesterov else buffer
    p -= lr * d


def adam(p, g, state, t, lr, weight_decay, beta1, beta2, eps, decoupled, maximize):
    """state: (first, second) moments, and the largest second one for amsgrad."""
    d = -g if maximize else g
    if decoupled:
        p *= 1 - lr * weight_decay
    else:
        d = d + weight_decay * p
    m, v, *largest = state
    m += (1 - beta1) * (d - m)
    v += (1 - beta2) * (d * d - v)
    if largest:
        np.maximum(largest[0], v, out=largest[0])
        v = largest[0]
    p -= lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)
