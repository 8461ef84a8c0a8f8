"""Arrays of more than 2^32 elements: the last block of a launch, on memory that exists only where it is
touched. An index in 32 bits, with a sign or without, would leave the end of the result as it was, or fault.
"""

import mmap
from math import prod

import numpy as np
import pytest

from lucid.kernel import calls
from lucid.kernel import calls_spatial as spatial
from lucid.kernel.launch import accumulator, prepare
from lucid.kernel.multi_tensor import (
    CHUNK,
    STATES,
    MultiTensor,
    adam_numbers,
    counts,
    gradient_clip,
    gradient_norm,
    gradient_unscale,
    sgd_numbers,
)
from lucid.kernel.specs import KERNELS
from lucid.storage.dtype import as_dtype
from tests.kernels import formulas
from tests.kernels.formulas import close, f8
from tests.kernels.sim import Sim, device, module, normal

MOST = 1 << 32
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python has the name since 3.13
# Of 2 bytes: less of the address space.
DTYPE = "bfloat16"


def sparse(shape, dtype=DTYPE, offset=0):
    """Zeros that take no memory until they are written, `offset` elements off a multiple of 16 bytes."""
    kind = np.dtype(as_dtype(dtype) if isinstance(dtype, str) else dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    size = (prod(shape) + offset) * kind.itemsize
    try:
        memory = mmap.mmap(-1, size, flags=flags)
    except OSError as error:
        pytest.skip(f"no room for {size >> 30} GB of addresses: {error}")
    return np.frombuffer(memory, kind)[offset:].reshape(shape)


def ending(shape, tail, seed, dtype=DTYPE, offset=0):
    """`sparse`, with normal numbers in the last `tail` places of the first dimension."""
    x = sparse(shape, dtype, offset)
    x[-tail:] = normal((tail, *shape[1:]), dtype, seed)
    return x


class LastBlock(Sim):
    """A device with room for every block at once, of which the last one runs (or the first). `given` holds
    the arguments of each kernel's launch.
    """

    def __init__(self, first=False, sms=1 << 26):
        super().__init__("random", 1, sms=sms)
        self.given, self.first = {}, first

    def __call__(self, name, grid, block, args, dtype, defines=(), **sizes):
        kernel = KERNELS[name]
        scalar = "LUCID_SCALAR" in defines
        values = prepare(kernel, args, dtype, scalar, sizes, self.address, np.ndarray)
        self.given[name] = dict(zip((a.name for a in kernel.parsed), args, strict=True))
        number = prod(int(n) for n in grid)
        compiled = module(kernel.file, dtype.name, (*kernel.defines, *defines), "fast", False)
        one = range(1) if self.first else range(number - 1, number)
        compiled.launch(kernel.entry, tuple(map(int, grid)), block, values, order="random", blocks=one)

    def empty(self, shape, dtype):
        return sparse(tuple(np.atleast_1d(shape)), np.dtype(dtype))


# Packs; what is left beyond them, which the first threads have; single elements at odd addresses.
@pytest.mark.parametrize("odd,offset", ((0, 0), (1, 0), (0, 1)), ids=("packs", "tail", "scalar"))
def test_element_by_element(odd, offset):
    n, sim = MOST + 2048 + odd, LastBlock(first=bool(odd))
    g, x = ending((n,), 300, 1, offset=offset), ending((n,), 300, 2, offset=offset)
    last = slice(n - 256, n) if odd == 0 else slice(n - 1, n)
    dx = calls.activation_backward(sim, "silu", g, x)
    close(dx[last], f8(g[last]) * formulas.SLOPES["silu"](f8(x[last]), 0), "backward")
    close(calls.activation(sim, "silu", x)[last], formulas.VALUES["silu"](f8(x[last]), 0), "forward")
    np.testing.assert_array_equal(calls.copy(sim, x)[last], x[last])
    mask = sparse((n,), "bool")
    mask[-300::3] = True
    close(calls.masked_scale(sim, x, mask, 2.0)[last], f8(x[last]) * mask[last] * 2.0, "masked_scale")


@pytest.mark.parametrize("offset", (0, 1), ids=("packs", "scalar"))
def test_dropout(offset):
    n, sim = 4 * MOST + 2048, LastBlock()  # more than 2^32 blocks of random words
    x, state = ending((n,), 256, 1, offset=offset), np.array([7, 5], np.uint64)
    later = np.array([7, 5 + (n - 256) // 4], np.uint64)  # a word of the stream for each element
    mask = formulas.kept(later, 256, 0.7)
    close(calls.dropout(sim, x, device(state), 0.7)[-256:], f8(x[-256:]) * mask / 0.7, "dropout")
    found = calls.dropout_mask(sim, (n,), device(state), 0.7, x.dtype)
    np.testing.assert_array_equal(found[-256:], mask)


@pytest.mark.parametrize("cols", (64, 1))
def test_bias_gradient(cols):
    rows = MOST // cols + 64
    g, v, sim = ending((rows, cols), 600, 1), ending((rows, cols), 600, 2), LastBlock(sms=128)
    dz, _ = calls.activation_bias_grad(sim, "silu", g, v)
    partial = sim.given["silu_bias_grad"]["partial"]
    each = -(-rows // len(partial))
    first = each * (len(partial) - 1)
    exact = f8(g[first:]) * formulas.SLOPES["silu"](f8(v[first:]), 0)
    assert len(partial) == 1024 and rows - first > 600
    close(dz[first:], exact, "dz")
    close(partial[-1], exact.sum(0), "partial")
    calls.column_sum(sim, g)
    close(sim.given["column_sum"]["partial"][-1], f8(g[first:]).sum(0), "column_sum")


def test_bias_gradient_of_wide_rows():
    cols, sim = MOST + 63, LastBlock()
    g, v = (sparse((1, cols)) for _ in range(2))
    g[0, -63:], v[0, -63:] = normal(63, DTYPE, 1), normal(63, DTYPE, 2)
    last = slice(cols // 32 * 32, cols)  # the last tile
    dz, _ = calls.activation_bias_grad(sim, "silu", g, v)
    exact = f8(g[0, last]) * formulas.SLOPES["silu"](f8(v[0, last]), 0)
    close(dz[0, last], exact, "dz")
    close(sim.given["silu_bias_grad"]["partial"][0, last], exact, "partial")
    calls.column_sum(sim, g)
    close(sim.given["column_sum"]["partial"][0, last], f8(g[0, last]), "column_sum")


def test_finish_of_column_sums():
    parts, cols = 2, MOST + 64
    partial, sim = sparse((parts, cols), np.float32), LastBlock()
    partial[:, -32:] = normal((parts, 32), "float32", 1)
    (out,) = calls._finish_columns(sim, partial, 1, parts, cols, np.dtype("float32"))
    close(out[-32:], f8(partial[:, -32:]).sum(0), "column_sum_finish")


# A warp per row, then blocks of 256 and 512 threads.
@pytest.mark.parametrize("cols", (1, 1024, 4096, 8192))
def test_rows(cols):
    rows, sim = MOST // cols + 8, LastBlock()
    last = slice(rows - 8, rows) if cols <= 1024 else slice(rows - 1, rows)
    x, g = ending((rows, cols), 8, 1), ending((rows, cols), 8, 2)
    for name in ("softmax", "log_softmax"):
        out = calls.softmax(sim, name, x)
        close(out[last], getattr(formulas, name)(f8(x[last])), name)
        dx = calls.softmax_backward(sim, name, g, out)
        exact = getattr(formulas, f"{name}_backward")(*f8(g[last], out[last]))
        close(dx[last], exact, name)
        if name == "softmax":
            same = ending((rows, cols), 8, 2)
            close(calls.softmax_backward_inplace(sim, same, out)[last], exact, "in place")
    if cols > 1:  # the losses of 2^32 rows would be rounded to x's dtype, which takes memory
        _cross_entropy(sim, x, last)


def _cross_entropy(sim, x, last):
    rows, cols = x.shape
    target = sparse((rows,), np.int64)
    target[last] = np.arange(8)[-len(x[last]) :] * 5 % cols
    losses, k, _ = formulas.cross_entropy(f8(x[last]), target[last], None, -100, 0.1)
    loss, saved, _ = calls.cross_entropy(sim, x, target, None, -100, 0.1, "none")
    close(sim.given["cross_entropy"]["loss"][last], losses, "cross_entropy")
    one = sparse((rows,))
    one[last] = 1
    dx = calls.cross_entropy_backward(sim, one, x, target, None, saved, -100, 0.1, "none")
    exact = formulas.cross_entropy_backward(np.ones(len(k)), f8(x[last]), k)
    close(dx[last], exact, "cross_entropy_backward")
    scale = device(np.ones(1, np.float32))
    _, dx, _ = calls.cross_entropy_gradient(sim, scale, x, target, None, -100, 0.1)
    close(dx[last], exact, "cross_entropy_gradient")


@pytest.mark.parametrize("cols", (1, 256, 4096, 16384))
@pytest.mark.parametrize("name", ("layer_norm", "rms_norm"))
def test_norms(name, cols):
    rows, sim, centred = MOST // cols + 8, LastBlock(), name == "layer_norm"
    last = slice(rows - 8, rows) if cols <= 1024 else slice(rows - 1, rows)
    x, g, weight = ending((rows, cols), 8, 1), ending((rows, cols), 8, 2), normal(cols, DTYPE, 3)
    out, mean, rstd = calls.norm(sim, name, x, weight, None, 1e-2, cols)
    close(out[last], formulas.norm(*f8(x[last], weight), None, 1e-2, centred)[0], name)
    at = np.zeros(rows - last.start) if mean is None else f8(mean[last])
    exact = formulas.norm_backward(*f8(g[last], x[last], weight), at, f8(rstd[last]), centred)
    sim.sms = 1 << 26 if cols > 8192 else rows  # a row, or eight, for each block of norm_backward
    dx, _, _ = calls.norm_backward(sim, name, g, x, weight, mean, rstd, cols, (True, True, centred))
    close(dx[last], exact[0], f"{name} dx")
    if cols <= 8192:
        partial = sim.given[f"{name}_backward"]["partial"]
        close(partial[0, -1], exact[1], f"{name} dweight")
        if centred:
            close(partial[1, -1], exact[2], f"{name} dbias")


def test_norm_weight():
    rows, cols, sim = (MOST >> 14) + 512, 16384, LastBlock()
    x, g = ending((rows, cols), 64, 1), ending((rows, cols), 64, 2)
    mean, rstd = ending((rows,), 64, 3, "float32"), ending((rows,), 64, 4, "float32")
    calls.norm_backward(sim, "layer_norm", g, x, None, mean, rstd, cols, (False, True, True))
    partial = sim.given["norm_backward_weight"]["partial"]
    assert partial.shape[1] > 1
    each = -(-rows // partial.shape[1])
    part = slice(each * (partial.shape[1] - 1), rows)
    _, dweight, dbias = formulas.norm_backward(*f8(g[part], x[part]), None, *f8(mean[part], rstd[part]), True)
    close(partial[0, -1, -256:], dweight[-256:], "dweight")
    close(partial[1, -1, -256:], dbias[-256:], "dbias")


def test_sums_by_index():
    rows, cols, sim = (MOST >> 8) + 8, 256, LastBlock()
    src, base = ending((rows, cols), 8, 1), ending((rows, cols), 8, 2)
    start, order = sparse((rows + 1,), np.int64), sparse((rows,), np.int64)
    start[-9:], order[-8:] = np.arange(rows - 8, rows + 1), np.arange(rows - 8, rows)
    out, wide = sparse((rows, cols)), accumulator(src.dtype)
    given = (src, order, start, base, out, 1.0, -1, 0, rows, cols)
    sim("segment_sum", (rows // 8, 1), (32, 8), given, src.dtype, n=rows)
    close(out[-8:], f8(base[-8:]) + f8(src[-8:]), "segment_sum")
    total, index = sparse((8, cols), wide), sparse((rows,), np.int64)
    index[-1] = 7
    spatial.index_add_atomic(sim, src, index, total)
    close(total[7], f8(src[-1]), "index_add_atomic")
    n = MOST + 256
    src, order, ordered = ending((n, 1), 256, 3), sparse((n,), np.int64), sparse((n,), np.int64)
    order[-256:] = np.arange(n - 256, n)
    ordered[-256:] = np.arange(n - 256, n)
    start, out = sparse((n + 1,), np.int64), sparse((n, 1))
    start[-257:] = np.arange(n - 256, n + 1)
    sim("segment_sum_flat", (n // 256,), (256,), (src, order, start, None, out, 2.0, n), src.dtype, n=n)
    close(out[-256:], 2.0 * f8(src[-256:]), "segment_sum_flat")
    start[-257:-1] = n - 100  # the last row has as many elements as the whole block adds up
    sim("segment_sum_flat", (n // 256,), (256,), (src, order, start, None, out, 2.0, n), src.dtype, n=n)
    close(out[-1], 2.0 * f8(src[-100:]).sum(0), "segment_sum_flat of a long row")
    start[-257:] = np.arange(n - 256, n + 1)
    found = sparse((n + 1,), np.int64)
    sim("segment_bounds", (n // 256 + 1,), (256,), (ordered, found, n, n), src.dtype)
    assert found[n] == n
    # As many rows as elements, one of more than 64 among the last eight.
    start[-9:] = [n - 256, n - 100, n - 30, n - 29, n - 29, n - 20, n - 10, n - 10, n]
    given = (src, order, start, None, out, 1.0, -1, 1, n, 1)
    sim("segment_sum", (n // 8, 1), (32, 8), given, src.dtype, ("LUCID_SCALAR",), n=n)
    means = [f8(src[a:b]).mean() if b > a else 0.0 for a, b in zip(start[-9:-1], start[-8:], strict=True)]
    close(out[-8:, 0], means, "segment_sum of single columns")


def test_windows():
    planes, size, sim = (MOST >> 10) + 1, (32, 32), LastBlock()
    x, g = ending((planes, *size), 1, 1), ending((planes, *size), 1, 2)
    window = ((3, 3), (1, 1), (1, 1), (1, 1))
    tail = -256
    out, cells = spatial.max_pool(sim, x, size, *window)
    exact, numbers = formulas.max_pool(f8(x[-1:]), size, *window)
    close(out.reshape(-1)[tail:], exact.reshape(-1)[tail:], "max_pool")
    np.testing.assert_array_equal(cells.reshape(-1)[tail:], numbers.reshape(-1)[tail:])
    cells[-1] = numbers[0]
    dx = spatial.max_pool_backward(sim, g, cells, size, *window)
    exact = formulas.max_pool_backward(f8(g[-1:]), numbers, size, *window)
    close(dx.reshape(-1)[tail:], exact.reshape(-1)[tail:], "max_pool_backward")
    out = spatial.avg_pool(sim, x, size, *window[:3], True, 0)
    exact = formulas.avg_pool(f8(x[-1:]), size, *window[:3], True, 0)
    close(out.reshape(-1)[tail:], exact.reshape(-1)[tail:], "avg_pool")
    dx = spatial.avg_pool_backward(sim, g, size, *window[:3], True, 0)
    exact = formulas.avg_pool_backward(f8(g[-1:]), size, *window[:3], True, 0)
    close(dx.reshape(-1)[tail:], exact.reshape(-1)[tail:], "avg_pool_backward")


def test_columns():
    # The last of 65535 ranges of channels has the last channel.
    batch, size, sim = 65535 * 8, (32, 32), LastBlock()
    x, window = ending((batch, 1, *size), 1, 1), ((3, 3), (1, 1), (1, 1), (1, 1))
    out = spatial.im2col(sim, x, size, *window)
    exact = formulas.im2col(f8(x[-1:, 0]), size, *window)
    assert out.size > MOST
    close(out.reshape(-1)[-256:], exact.reshape(-1)[-256:], "im2col")
    batch, window = 65535 * 65, ((1, 1), (1, 1), (0, 0), (1, 1))
    columns = ending((batch, 1, 32 * 32), 1, 2)
    dx = spatial.col2im(sim, columns, size, size, *window)
    assert dx.size > MOST
    np.testing.assert_array_equal(dx.reshape(-1)[-256:], columns.reshape(-1)[-256:])
    # The batch inside: more than 2^32 columns of one channel.
    x = ending((MOST // 1024 + 1, 1, *size), 1, 3)
    out = spatial.im2col(sim, x, size, *window, True)
    np.testing.assert_array_equal(out[0, -256:], x.reshape(-1)[-256:])
    dx = spatial.col2im(sim, x.reshape(1, -1), size, size, *window, True)
    np.testing.assert_array_equal(dx.reshape(-1)[-256:], x.reshape(-1)[-256:])


def test_planes_of_one_cell():
    x, sim, window = ending((MOST + 256, 1, 1), 256, 1), LastBlock(), ((1, 1), (1, 1), (0, 0), (1, 1))
    out, cells = spatial.max_pool(sim, x, (1, 1), *window)
    np.testing.assert_array_equal(out[-256:], x[-256:])
    dx = spatial.max_pool_backward(sim, x, cells, (1, 1), *window)
    np.testing.assert_array_equal(dx[-256:], x[-256:])


def test_planes_of_more_than_2_31_cells():
    size, sim, window = (65544, 32768), LastBlock(), ((1, 1), (1, 1), (0, 0), (1, 1))
    x = sparse((1, 2, *size))
    x[0, 1, -1, -256:] = end = normal(256, DTYPE, 1)
    columns = spatial.im2col(sim, x, size, *window)
    dx = spatial.col2im(sim, columns, size, size, *window)
    out, cells = spatial.max_pool(sim, x, size, *window)
    back = spatial.max_pool_backward(sim, out, cells, size, *window)
    mean = spatial.avg_pool(sim, x, size, *window[:3], True, 0)
    also = spatial.avg_pool_backward(sim, mean, size, *window[:3], True, 0)
    for found in (columns, dx, out, back, mean, also):
        np.testing.assert_array_equal(found.reshape(2, -1)[1, -256:], end)


@pytest.mark.parametrize("offset", (0, 1), ids=("packs", "scalar"))
@pytest.mark.parametrize("name", ("sgd_momentum", "adam_amsgrad"))
def test_optimisers(name, offset):
    n, sim = MOST + CHUNK, LastBlock()
    p, g = ending((n,), CHUNK, 1, offset=offset), ending((n,), CHUNK, 2)
    state = [sparse((n,), np.float32) for _ in range(STATES[name])]
    exact, moments = f8(p[-CHUNK:]), [np.zeros(CHUNK) for _ in state]
    if name == "sgd_momentum":
        numbers = sgd_numbers(0.1, 0.1, False, 0.9)
        formulas.sgd(exact, f8(g[-CHUNK:]), moments, 1, 0.1, 0.1, 0.9, 0.0, False, False)
    else:
        numbers = adam_numbers(0.1, 0.8, 0.9, 1e-2, 0.1)
        formulas.adam(exact, f8(g[-CHUNK:]), moments, 1, 0.1, 0.1, 0.8, 0.9, 1e-2, False, False)
    steps = [counts(sim, n, 0)]
    MultiTensor(sim, name, [p], [[s] for s in state], steps)([g], [numbers])
    assert steps[0][-1] == 1
    close(p[-CHUNK:], exact, name)
    for got, moment in zip(state, moments, strict=True):
        close(got[-CHUNK:], moment, f"{name} state")


@pytest.mark.parametrize("offset", (0, 1), ids=("packs", "scalar"))
def test_gradients(offset):
    n, sim = MOST + CHUNK, LastBlock()
    g = ending((n,), CHUNK, 1, offset=offset)
    old = f8(g[-CHUNK:])
    gradient_norm(sim, [g], 2.0)
    close(sim.given["gradient_norm"]["partial"][-1:], [(old**2).sum()], "gradient_norm")
    gradient_clip(sim, [g], device(np.full(1, 2.0, np.float32)), 1.0)
    close(g[-CHUNK:], old / 2, "gradient_clip")
    found = device(np.zeros(1, np.int32))
    gradient_unscale(sim, [g], device(np.full(1, 2.0, np.float32)), found)
    close(g[-CHUNK:], old / 4, "gradient_unscale")


@pytest.mark.parametrize("outer,n,inner", ((65535, 9, 8192), (1, 2, MOST + 255)))
def test_columns_of_softmax(outer, n, inner):
    x, g, sim = sparse((outer, n, inner)), sparse((outer, n, inner)), LastBlock()
    part = slice(inner // 32 * 32 - (inner % 32 == 0) * 256, inner)  # the last tile
    x[-1, :, part] = normal((n, inner - part.start), DTYPE, 1)
    g[-1, :, part] = normal((n, inner - part.start), DTYPE, 2)
    for name in ("softmax", "log_softmax"):
        out = calls.softmax_columns(sim, name, x, 1)
        close(out[-1, :, part], getattr(formulas, name)(f8(x[-1, :, part]).T).T, name)
        dx = calls.softmax_backward_columns(sim, name, g, out, 1)
        backward = getattr(formulas, f"{name}_backward")
        exact = backward(f8(g[-1, :, part]).T, f8(out[-1, :, part]).T)
        close(dx[-1, :, part], exact.T, f"{name} backward")


# Batch norm takes an element's index apart in 32 bits; its op gives arrays of 2^31 elements and more to the
# generic formula.
_FEWEST = 1 << 31


@pytest.mark.parametrize("inner", (1, 1024))
def test_batch_norm_just_below(inner):
    channels = 1024 if inner == 1 else 8
    shape = (_FEWEST // (channels * inner) - 1, channels, *(() if inner == 1 else (inner,)))
    x, g, sim = ending(shape, 1, 1), ending(shape, 1, 2), LastBlock()
    n, dtype, wide = x.size, x.dtype, accumulator(x.dtype)
    assert _FEWEST - channels * inner <= n < _FEWEST
    mean, scale = normal(channels, "float32", 3), normal(channels, "float32", 4)
    coefficients = normal((3, channels), "float32", 5)
    out, dx = sparse(shape), sparse(shape)
    grid = (-(-n // (256 * 8)),)
    sim("batch_norm_apply", grid, (256,), (x, mean, scale, None, out, channels, inner, n), dtype)
    sim(
        "batch_norm_backward_apply",
        grid,
        (256,),
        (g, x, None, mean, coefficients, dx, channels, inner, n),
        dtype,
    )
    on = np.arange(n - 256, n) // inner % channels
    last, lastg = (f8(v.reshape(-1)[-256:]) for v in (x, g))
    m, s, (a, b, c) = f8(mean)[on], f8(scale)[on], f8(coefficients)[:, on]
    close(out.reshape(-1)[-256:], (last - m) * s, "batch_norm_apply")
    close(dx.reshape(-1)[-256:], a * lastg + b * (last - m) + c, "batch_norm_backward_apply")
    if inner > 1:
        count, parts = n // channels, 4096
        partial = sparse((3, parts, channels), wide)
        given = (x, partial, channels, count, inner)
        macros = ("LUCID_THREADS=256",)
        sim("batch_norm_partial", (channels, parts), (256,), given, dtype, macros, G=parts)
        each = (count // parts + 1 + 7) // 8 * 8
        assert count % parts
        part = f8(x[:, -1].reshape(-1)[each * (parts - 1) :])
        assert 0 < part.size <= each
        close(partial[:, -1, -1], [part.mean(), ((part - part.mean()) ** 2).sum(), part.size], "partial")
