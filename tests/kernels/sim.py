"""A launcher that runs the kernels on the CPU simulator, and the rule by which their results are judged."""

from __future__ import annotations

import os
import pickle
import traceback
from functools import cache

import numpy as np

from lucid.kernel import loader
from lucid.kernel.launch import checker, prepare
from lucid.kernel.specs import KERNELS
from lucid.storage.dtype import as_dtype
from lucid.testing import cusim
from lucid.testing.simulator import ORDERS

DTYPES = ("float32", "float64", "float16", "bfloat16")


@cache
def module(file, dtype, defines, mode, coverage):
    return cusim.Module(
        loader.source(file),
        loader.options(dtype, defines),
        filename=f"kernels/{file}",
        mode=mode,
        coverage=coverage,
    )


def aligned(shape, dtype, offset=0):
    """An array that starts at a multiple of 64 bytes, plus `offset` elements, filled with NaN or 0x7f.. as
    fresh device memory would be.
    """
    dtype = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    n = int(np.prod(shape))
    raw = np.full(n * dtype.itemsize + 64 + 64 * dtype.itemsize, 0xFF, np.uint8)
    start = -raw.ctypes.data % 64 + offset * dtype.itemsize
    return raw[start : start + n * dtype.itemsize].view(dtype).reshape(shape)


def device(x, offset=0, dtype=None):
    """A copy of x as `aligned` places it."""
    x = np.asarray(x)
    out = aligned(x.shape, x.dtype if dtype is None else dtype, offset)
    out[...] = x
    return out


def in_all_orders(run, written, what):
    """run(order, seed) for all of `ORDERS`, each from the same memory; raises AssertionError when the arrays
    `written` differ. Atomic additions of floats, which a kernel's name confesses, may differ in rounding.
    """
    before = [v.copy() for v in written]
    first = None
    for order, seed in ORDERS:
        for v, old in zip(written, before, strict=True):
            v[...] = old
        run(order, seed)
        now = [v.copy() for v in written]
        if first is None:
            first = now
        for a, b in zip(first, now, strict=True):
            if "atomic" in what:
                np.testing.assert_allclose(*wide(a, b), rtol=1e-4, atol=1e-4)
            elif a.tobytes() != b.tobytes():
                both = f"{ORDERS[0]}, {(order, seed)}"
                raise AssertionError(f"{what}: depends on the order of threads ({both})")


class Sim:
    """As lucid.kernel.Launcher, on NumPy arrays.

    order: None runs each launch in all of `ORDERS`, from the same memory, and holds the results to the same
    bits. sms: multiprocessors of the device; 0 makes every grid as small as it can be. `odd`: 1 gives new
    arrays odd addresses. `used` records (kernel, dtype, macros) of every launch.
    """

    used: set = set()
    coverage = False
    odd = 0

    def __init__(self, order=None, seed=0, mode="fast", sms=3):
        self.order, self.seed, self.mode, self.sms = order, seed, mode, sms
        self.memory = []
        self.launches = []

    def small(self):
        """The same on a device so small that threads take several turns."""
        return type(self)(self.order, self.seed, self.mode, 0)

    def __call__(self, name, grid, block, args, dtype, defines=(), **sizes):
        kernel = KERNELS[name]
        macros = (*kernel.defines, *defines)
        assert macros in kernel.builds(dtype.name), (
            f"{name}: {macros} is not among the builds that CI compiles"
        )
        self.used.add((name, dtype.name, macros))
        self.launches.append(name)
        scalar = "LUCID_SCALAR" in defines
        values = prepare(kernel, args, dtype, scalar, sizes, self.address, np.ndarray)
        fast = checker(kernel, dtype, scalar, tuple(sizes), self.address, np.ndarray)(args, sizes)
        for a, b in zip(values, fast, strict=True):
            assert a is b or (type(a) is type(b) and a == b)
        compiled = module(kernel.file, dtype.name, macros, self.mode, self.coverage)

        def run(order, seed):
            compiled.launch(kernel.entry, grid, block, values, order=order, seed=seed, memory=self.memory)

        if self.order is not None:
            run(self.order, self.seed)
            return
        written = [v for a, v in zip(kernel.parsed, args, strict=True) if a.written and v is not None]
        if any(a.kind == "u64" and not a.written for a in kernel.parsed):
            written += self.memory  # what tables of addresses name
        in_all_orders(run, written, name)

    def address(self, x):
        return x.ctypes.data

    def empty(self, shape, dtype):
        out = aligned(shape, np.dtype(dtype), self.odd)
        self.memory.append(out)
        return out

    def zeros(self, shape, dtype):
        out = self.empty(shape, dtype)
        out[...] = 0
        return out

    def upload(self, x):
        out = device(x)
        self.memory.append(out)
        return out


def normal(shape, dtype, seed=0, offset=0, scale=1.0):
    """Normal numbers of a dtype, at an address that is `offset` elements off a multiple of 64 bytes."""
    return device(np.random.default_rng(seed).standard_normal(shape) * scale, offset, as_dtype(dtype))


def wide(*arrays):
    """Each array in float64."""
    return tuple(None if a is None else np.asarray(a, np.float64) for a in arrays)


def judge(got, exact, plain, what=""):
    """The rule: the largest error is at most twice that of the plain formula in the same dtype, plus a floor:
    one unit in the last place of 16-bit results, four of float32.
    """
    assert got.shape == exact.shape, f"{what}: shape {got.shape}, expected {exact.shape}"
    g, p = np.asarray(got, np.float64), np.asarray(plain, np.float64)
    np.testing.assert_array_equal(np.isnan(g), np.isnan(exact), err_msg=f"{what}: NaN elsewhere")
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(g[~finite], exact[~finite], err_msg=what)
    if not finite.any():
        return
    # float64 is compared with NumPy's float64: both are rounded.
    eps = {"float64": 2.0**-42, "float32": 2.0**-21, "float16": 2.0**-10, "bfloat16": 2.0**-7}[got.dtype.name]
    # Subnormals are flushed in both; float16 has a spacing of 2^-24 below 2^-14.
    tiny = 2.0**-24 if got.dtype.name == "float16" else 1e-37
    scale = np.maximum(np.abs(exact[finite]) + np.abs(exact[finite]).max() * 2.0**-3, tiny)
    error, other = (np.abs(v[finite] - exact[finite]) / scale for v in (g, p))
    bound = 2 * np.nanmax(other, initial=0.0) + eps + tiny / scale.max()
    worst = int(np.argmax(error))
    assert error[worst] <= bound, (
        f"{what}: relative error {error[worst]:.3g} above {bound:.3g} (plain formula "
        f"{np.nanmax(other):.3g}): got {g[finite][worst]!r}, exact {exact[finite][worst]!r}"
    )


# ---- the simulator keeps two memory mappings per fiber of every loaded module; Linux
# allows a process 65530 ----

MANY_MAPPINGS = 25000


def crowded():
    """Whether this process has so many mappings that the next modules might not find room."""
    with open("/proc/self/maps", "rb") as maps:
        return sum(1 for _ in maps) > MANY_MAPPINGS


def in_child(function, *args):
    """What function(*args) returns or raises, run in a forked process, whose mappings end with it."""
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        os.close(source)
        try:
            result = (True, function(*args))
        except BaseException as error:
            result = (False, "".join(traceback.format_exception(error)))
        with os.fdopen(sink, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    assert answer, f"the child ended with status {status} before it could answer"
    good, value = pickle.loads(answer)
    if not good:
        raise AssertionError(f"in a child process:\n{value}")
    return value
