"""The stand-in for CuPy: views, refusals, memory, counters, raw kernels, the snapshot of the API."""

from __future__ import annotations

import copy
import importlib.util
import json
import operator
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lucid.testing import cusim, strictcupy
from lucid.testing.strictcupy.state import api

if sys.modules.get("cupy") is not None and not strictcupy.installed():
    pytest.skip("the real cupy is imported in this process", allow_module_level=True)
WAS_INSTALLED = strictcupy.installed()
cp = strictcupy.install()
import cupyx.scipy.linalg  # noqa: E402
import cupyx.scipy.special as special  # noqa: E402

if not WAS_INSTALLED:  # other test files choose for themselves
    strictcupy.uninstall()
needs_compiler = pytest.mark.skipif(not cusim.available()[0], reason=cusim.available()[1])


# ---- views ---------------------------------------------------------------------------------------------


def test_views_share_memory_and_copies_do_not() -> None:
    x = cp.arange(12, dtype=np.float32).reshape(3, 4)
    for v in (
        x[1:],
        x.T,
        x.reshape(-1),
        x[0, 0],
        x[..., None],
        cp.broadcast_to(x, (2, 3, 4)),
        cp.split(x, 2, axis=1)[1],
        x.ravel(),
        cp.moveaxis(x, 0, 1),
        x.view(np.int32),
        cp.asarray(x),
        cp.flip(x),
        cp.squeeze(x[None]),
        cp.diagonal(x),
        x.real,
    ):
        assert cp.shares_memory(v, x)
    for c in (
        x[cp.asarray([0, 1])],
        x[x > 0],
        x.copy(),
        x + 0,
        x.T.reshape(-1),
        cp.array(x),
        x.flatten(),
        cp.ascontiguousarray(x.T),
    ):
        assert not cp.shares_memory(c, x)
    v = x[0, 1]
    v += 10
    assert float(x[0, 1]) == 11 and v.base is not None and x.copy().base is None


def test_random_view_chains_agree_with_numpy() -> None:
    r = np.random.default_rng(3)
    for _ in range(300):
        a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        c = cp.asarray(a)
        for _ in range(3):
            step = r.integers(6)
            if step == 0 and a.ndim:
                key = tuple(
                    [slice(None), slice(1, None), slice(None, None, -1), None, 0, ...][j]
                    for j in r.integers(0, 5, a.ndim)
                )
                f = operator.itemgetter(key)
            elif step == 1:
                perm = r.permutation(a.ndim).tolist()
                f = operator.methodcaller("transpose", perm)
            elif step == 2:
                f = operator.methodcaller("reshape", -1)
            elif step == 3:
                f = operator.methodcaller("squeeze")
            else:
                f = lambda x, s=step: x + x if s == 4 else x.copy()
            try:
                a = f(a)
            except IndexError:
                with pytest.raises(IndexError):
                    f(c)
                break
            c = f(c)
            np.testing.assert_array_equal(c.get(), a)
            a = np.asarray(a)
            if step == 4:  # CuPy's ufuncs give C-ordered results, NumPy's keep the order of their inputs
                assert c.flags.c_contiguous
                a = np.ascontiguousarray(a).reshape(a.shape)
            assert c.strides == a.strides or c.size <= 1 or any(n == 1 for n in c.shape)


# ---- results that are not NumPy's ----------------------------------------------------------------------


def test_reductions_and_full_indexing_give_0d_arrays() -> None:
    x = cp.ones((2, 3))
    for r in (
        x.sum(),
        cp.max(x),
        x[0, 0],
        cp.linalg.norm(x),
        x.mean(),
        cp.dot(x[0], x[0]),
        cp.array_equal(x, x),
        cp.allclose(x, x),
        x.any(),
    ):
        assert type(r) is cp.ndarray and r.shape == ()
    assert type(np.sum(x)) is cp.ndarray and type(np.exp(x)) is cp.ndarray and np.shape(x) == (2, 3)
    assert type(np.float32(2) * x) is cp.ndarray and (np.float64(2) * cp.ones(1, "f4")).dtype == np.float64
    assert cp.get_array_module(x) is cp and cp.get_array_module(np.ones(1)) is np


def test_linalg_goes_on_where_numpy_raises_unless_told_to_raise() -> None:
    two = cp.stack([cp.eye(2), cp.zeros((2, 2))])
    for f in (
        lambda: cp.linalg.inv(cp.zeros((2, 2))),
        lambda: cp.linalg.cholesky(-cp.eye(2)),
        lambda: cp.linalg.inv(two),
        lambda: cp.linalg.solve(two, cp.ones((2, 2, 1))),
    ):
        before = strictcupy.counters()["syncs"]
        assert type(f()) is cp.ndarray and strictcupy.counters()["syncs"] == before
        with cupyx.errstate(linalg="raise"), pytest.raises(np.linalg.LinAlgError):
            f()
        assert strictcupy.counters()["syncs"] == before + 1 and type(f()) is cp.ndarray
    # What is left of a failure need not be NaN: nobody may take NaN for the sign of one.
    assert cp.isfinite(cp.linalg.cholesky(-cp.eye(2))).all() and cp.isfinite(cp.linalg.inv(two)).all()
    with pytest.raises(ValueError, match="must have"):
        cp.linalg.solve(two, cp.ones((2, 1)))


def test_bfloat16_follows_cupy_14() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = cp.asarray(np.linspace(0, 1, 1001), dtype=bfloat16)
    assert (x * 2).dtype == (x + x).dtype == (1 - x).dtype == bfloat16
    # A Python float makes float32 of it, and so does what has no row for it.
    chosen = (cp.where(x > 0, x, x), cp.tril(x[None]))
    for wide in (x * 2.0, 2.0 - x, cp.maximum(x, 0.5), x + cp.ones(1, "f4"), *chosen):
        assert wide.dtype == np.float32
    for sort in (cp.sort, cp.argsort, cp.unique):
        with pytest.raises(NotImplementedError, match="bfloat16"):
            sort(x)
    with pytest.raises(TypeError):
        cp.clip(x, 0.0, None)
    assert cp.exp(x).dtype == bfloat16 and (x > 0).dtype == bool and x.sum().dtype == bfloat16
    exact = x.get().astype(np.float64).sum()
    assert (
        abs(float(x.sum()) - exact) <= 2.0 and x.astype(np.float32).dtype == np.float32
    )  # one rounding: half a unit of 512 / 128
    m = x[:1000].reshape(10, 100)
    want = (m.get().astype(np.float32) @ m.get().astype(np.float32).T).astype(bfloat16)
    np.testing.assert_array_equal((m @ m.T).get(), want)
    with pytest.raises(TypeError):
        cp.logical_not(x)


def test_special_functions_have_cupys_dtypes() -> None:
    pytest.importorskip("scipy")
    import scipy.special as ref

    x = np.linspace(0.1, 2, 7).astype(np.float32)
    for name in ("erf", "erfc", "gammaln", "digamma", "expit", "ndtr", "i0e", "log_ndtr", "entr", "erfinv"):
        got = getattr(special, name)(cp.asarray(x))
        assert got.dtype == np.float32
        np.testing.assert_allclose(got.get(), getattr(ref, name)(x.astype(np.float64)), rtol=2e-6)
    np.testing.assert_allclose(special.softmax(cp.asarray(x)).get(), ref.softmax(x), rtol=1e-6)
    np.testing.assert_allclose(special.xlogy(cp.asarray(x), 2.0).get(), ref.xlogy(x, 2.0), rtol=1e-6)
    a = np.tril(np.ones((3, 3))) + np.eye(3)
    got = cupyx.scipy.linalg.solve_triangular(cp.asarray(a), cp.ones(3), lower=True)
    np.testing.assert_allclose(a @ got.get(), np.ones(3))


# ---- memory, counters, devices ----------------------------------------------------------------------


def test_pool_accounts_as_cupys() -> None:
    pool = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(pool.malloc):
        a = cp.empty(1000)
        assert pool.used_bytes() == pool.total_bytes() == 8192
        b = a + 1
        assert pool.used_bytes() == 16384
        del a, b
        assert pool.used_bytes() == 0 and pool.free_bytes() == 16384 and pool.n_free_blocks() == 2
        c = cp.empty(1000)
        assert pool.total_bytes() == 16384 and pool.peak == 16384
        v = c[10:]
        del c
        assert pool.used_bytes() == 8192
        del v
        pool.free_all_blocks()
        assert pool.total_bytes() == 0
        pool.set_limit(size=10_000)
        keep = cp.zeros(1000)
        with pytest.raises(
            MemoryError, match="Out of memory allocating 8,192 bytes .*limit set to: 10,000 bytes"
        ):
            cp.zeros(1000)
        with pytest.raises(cp.cuda.memory.OutOfMemoryError):
            keep + 1
        del keep
        cp.zeros(1000)
        pool.set_limit(size=0)
    assert cp.get_default_memory_pool() is cp.get_default_memory_pool() and pool.get_limit() == 0


def test_an_allocator_may_wrap_that_of_a_pool() -> None:
    pool, sizes = cp.cuda.MemoryPool(), []

    def allocator(size: int):
        sizes.append(size)
        return pool.malloc(size)

    with cp.cuda.using_allocator(allocator):
        a = cp.zeros(100)
        b = a + 1
        assert sizes == [800, 800] and pool.used_bytes() == 2048
        assert float(b.sum()) == 100
        del a, b
    assert pool.used_bytes() == 0 and cp.cuda.get_allocator() != allocator


def test_peak_can_be_reset() -> None:
    strictcupy.reset_peak()
    base = strictcupy.peak_bytes()
    x = cp.zeros(100_000)
    del x
    assert strictcupy.peak_bytes() >= base + 800_000
    strictcupy.reset_peak()
    assert strictcupy.peak_bytes() < base + 800_000


def test_fresh_memory_is_nan_and_recycled_memory_is_stale() -> None:
    pool = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(pool.malloc):
        a = cp.empty(300, dtype=np.float32)
        assert cp.isnan(a).all()
        a[...] = 3
        del a
        assert float(cp.empty(300, dtype=np.float32)[0]) == 3


def test_counters() -> None:
    x = cp.ones((4, 8), dtype=np.float32)
    strictcupy.reset_counters()
    y = cp.exp(x * 2).sum(axis=0)
    assert strictcupy.counters() == {"launches": 3, "raw": 0, "syncs": 0, "h2d_bytes": 0, "d2h_bytes": 0}
    y.get()
    assert strictcupy.counters()["syncs"] == 1 and strictcupy.counters()["d2h_bytes"] == 32
    cp.asarray(np.ones(10))
    assert strictcupy.counters()["h2d_bytes"] == 80
    for f, n in (
        (lambda: float(y[0]), 1),
        (lambda: x[x > 0], 1),
        (lambda: cp.nonzero(x), 1),
        (lambda: bool(y.any()), 1),
        (lambda: repr(y), 1),
        (lambda: cp.cuda.Device().synchronize(), 1),
        (lambda: cp.cuda.get_current_stream().synchronize(), 1),
        (lambda: x[0] * y, 0),
        (lambda: x.__setitem__(x > 0, 1), 1),
    ):
        before = strictcupy.counters()["syncs"]
        f()
        assert strictcupy.counters()["syncs"] - before == n
    with cupyx.allow_synchronize(False):
        y + 1
        with pytest.raises(cupyx.DeviceSynchronized):
            y.get()


def test_device_stream_event_and_runtime_queries() -> None:
    rt = cp.cuda.runtime
    assert (
        rt.getDeviceCount() == 1
        and rt.getDeviceProperties(0)["name"] == b"simulated CUDA device (CPU)"
        and cp.cuda.is_available()
    )
    assert rt.driverGetVersion() >= 13000 and rt.memGetInfo()[1] > 0 and not rt.is_hip
    assert (
        cp.cuda.Device() == cp.cuda.Device(0)
        and cp.cuda.Device(0).compute_capability == "90"
        and cp.zeros(1).device == cp.cuda.Device(0)
    )
    s = cp.cuda.Stream(non_blocking=True)
    assert cp.cuda.get_current_stream() == cp.cuda.Stream.null
    with cp.cuda.Device(0), s:
        assert cp.cuda.get_current_stream() is s
        a, b = cp.cuda.Event(), cp.cuda.Event()
        a.record()
        b.record(s)
        s.wait_event(a)
        b.synchronize()
        assert cp.cuda.get_elapsed_time(a, b) >= 0
    assert cp.cuda.get_current_stream() == cp.cuda.Stream.null
    mem = cp.cuda.alloc_pinned_memory(64)
    host_array = np.frombuffer(mem, np.float32, 16)
    host_array[:] = 2
    assert (
        mem.ptr == host_array.ctypes.data
        and float(cp.asarray(host_array).sum()) == 32
        and cupyx.empty_pinned((2, 3)).shape == (2, 3)
    )


def test_exchange_protocols_and_copies() -> None:
    x = cp.arange(6, dtype=np.float32).reshape(2, 3)
    i = x.T.__cuda_array_interface__
    assert (
        i["shape"] == (3, 2)
        and i["strides"] == (4, 12)
        and i["typestr"] == "<f4"
        and x.__cuda_array_interface__["strides"] is None
    )
    y = cp.asarray(type("Holder", (), {"__cuda_array_interface__": x.__cuda_array_interface__})())
    y[0, 0] = 9
    assert float(x[0, 0]) == 9 and cp.shares_memory(cp.from_dlpack(x), x) and x.__dlpack_device__() == (2, 0)
    alias = cp.ndarray((3,), np.float32, x.data + 4)
    assert alias.get().tolist() == [1, 2, 3]
    for z in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        np.testing.assert_array_equal(z.get(), x.get())
        assert not cp.shares_memory(z, x)


def test_random_has_cupys_parameters_and_can_be_seeded() -> None:
    cp.random.seed(3)
    a = cp.random.standard_normal((2, 3), dtype=np.float32)
    cp.random.seed(3)
    np.testing.assert_array_equal(cp.random.standard_normal((2, 3), dtype=np.float32).get(), a.get())
    g = cp.random.default_rng(0)
    assert (
        g.random((3,), dtype=np.float32).dtype == np.float32
        and g.integers(0, 5, 4).shape == (4,)
        and cp.random.permutation(5).shape == (5,)
    )
    assert (
        cp.random.uniform(-1, 1, 10).dtype == np.float64
        and cp.random.randint(0, 3, size=(2,)).dtype.kind == "i"
    )


# ---- raw kernels ------------------------------------------------------------------------------------

SOURCE = r"""
extern "C" __global__ void scale(float* x, float a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= a;
}
extern "C" __global__ void overrun(float* x, float a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) x[i] += a;
}
extern "C" __global__ void cached(float* x, float a, int n) {
  extern __shared__ float s[];
  s[threadIdx.x] = a;
  x[threadIdx.x] = s[threadIdx.x];
}
template <typename T> __global__ void copy(const T* x, T* y, long long n) {
  const int i = threadIdx.x;
  if (i < n) y[i] = x[i];
}
extern "C" __global__ void gather(const float* const* p, float* out) { out[blockIdx.x] = p[blockIdx.x][0]; }
extern "C" __global__ void relu_bias_backward(const float* __restrict__ g, const float* __restrict__ out,
    float* __restrict__ dz, float* __restrict__ db, int rows, int cols) {
  __shared__ float tile[8][33];
  const int c = blockIdx.x * 32 + threadIdx.x;
  float sum = 0.f;
  for (int r = threadIdx.y; r < rows && c < cols; r += 8) {
    const float v = out[r * cols + c] > 0.f ? g[r * cols + c] : 0.f;
    dz[r * cols + c] = v;
    sum += v;
  }
  tile[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && c < cols) {
    for (int k = 1; k < 8; k++) sum += tile[k][threadIdx.x];
    db[c] = sum;
  }
}
"""
f4, i4 = np.float32, np.int32


@pytest.fixture(scope="module")
def module():
    return cp.RawModule(code=SOURCE, name_expressions=("copy<float>", "copy<int>"))


@needs_compiler
@pytest.mark.parametrize("mode", ["fast", "checked"])
def test_raw_kernels_run(module, mode: str) -> None:
    with strictcupy.configured(mode=mode):
        for make in (
            lambda a: cp.asarray(a),
            lambda a: cp.asarray(a) + 0,
            lambda a: cp.asarray(np.tile(a, 2))[6:],
        ):  # block, adopted, view
            x = make(np.arange(6, dtype=f4))
            module.get_function("scale")((1,), (32,), (x, f4(3), i4(6)))
            np.testing.assert_array_equal(x.get(), np.arange(6) * 3)
        y = cp.empty_like(x)
        module.get_function("copy<float>")((1,), (32,), (x, y, 6))
        np.testing.assert_array_equal(y.get(), x.get())
        table = cp.asarray(np.array([x.data.ptr, y.data.ptr], np.uint64)) if mode == "fast" else None
        if table is not None:
            out = cp.zeros(2, f4)
            module.get_function("gather")((2,), (1,), (table, out))
            np.testing.assert_array_equal(out.get(), [0, 0])
        k = cp.RawKernel(SOURCE, "scale", ("-std=c++17",))
        k((1,), (32,), (x, 2.0 if False else f4(2), i4(6)), stream=None)
        assert float(x[1]) == 6


@needs_compiler
def test_pointer_tables_in_checked_mode(module) -> None:
    a, b, out = cp.ones(4, f4), cp.full(4, 2, f4), cp.zeros(2, f4)
    table = cp.asarray(np.array([a.data.ptr, b.data.ptr], np.uint64))
    with strictcupy.configured(mode="checked"):
        module.get_function("gather")((2,), (1,), (table, out))
    assert out.get().tolist() == [1, 2]


@needs_compiler
def test_raw_kernel_overruns_are_caught(module) -> None:
    k = module.get_function("overrun")
    for x in (cp.zeros(64, f4), cp.zeros(64, f4) + 0):  # a block of the pool; memory of NumPy
        with pytest.raises(strictcupy.RedzoneError, match="overrun<<<.* past the end"):
            k((3,), (32,), (x, f4(0), i4(64)))  # even += 0 changes a signalling NaN
        with strictcupy.configured(mode="checked"), pytest.raises(cusim.KernelError, match="out-of-bounds"):
            k((3,), (32,), (x, f4(0), i4(64)))


@needs_compiler
def test_coverage_can_be_switched_on_from_outside() -> None:
    code = """#line 1 "kernels/half_run.cu"
extern "C" __global__ void half_run(float* x, int n) {
  if (n > 2)
    x[0] = 1.f;
  else
    x[0] = 2.f;
}
"""
    with strictcupy.configured(coverage=True):
        cp.RawKernel(code, "half_run")((1,), (1,), (cp.zeros(1, f4), i4(1)))
    assert cusim.coverage(["half_run.cu"])["kernels/half_run.cu"].missing == (3,)


@needs_compiler
def test_raw_kernel_arguments_are_checked(module) -> None:
    k = module.get_function("scale")
    x = cp.zeros((4, 8), f4)
    good = (x, f4(1), i4(32))
    for args, text in (
        ((x, f4(1), 32), "int64"),
        ((x, 1.0, i4(32)), "float64"),
        ((x.astype("f8"), f4(1), i4(32)), "array of float64"),
        ((x.T, f4(1), i4(32)), "not C-contiguous"),
        ((x, f4(1)), "takes 3 arguments"),
        ((f4(1), x, i4(32)), "takes float32"),
    ):
        with pytest.raises(cusim.KernelError, match=text):
            k((1,), (32,), args)
    with pytest.raises(TypeError, match="size one"):
        k((1,), (32,), (np.zeros(3, f4), f4(1), i4(3)))
    with pytest.raises(TypeError, match="Unsupported type"):
        k((1,), (32,), (x, "1", i4(3)))
    with pytest.raises(TypeError, match="tuples"):
        k(1, 32, good)
    for grid, block in (((1,), (1025,)), ((0,), (32,)), ((1, 65536), (32,)), ((1,), (1, 1, 65))):
        with pytest.raises(cp.cuda.driver.CUDADriverError, match="INVALID_VALUE"):
            k(grid, block, good)
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="NOT_FOUND"):
        module.get_function("nothing")
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="NOT_FOUND"):
        module.get_function("copy<double>")
    c = module.get_function("cached")
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="max_dynamic_shared_size_bytes"):
        c((1,), (32,), good, shared_mem=60_000)
    c.max_dynamic_shared_size_bytes = 60_000
    c((1,), (32,), good, shared_mem=60_000)
    with pytest.raises(cp.cuda.compiler.CompileException, match=r"kernel.cu:2: .*oops"):
        cp.RawKernel('extern "C" __global__ void k(float* x) {\n x[0] = oops; }', "k").compile()


@needs_compiler
@pytest.mark.parametrize(
    "mode,order", [("fast", "forward"), ("fast", "reverse"), ("fast", "random"), ("checked", "random")]
)
def test_two_layer_perceptron_step_is_the_same_program(module, mode: str, order: str) -> None:
    kernel = module.get_function("relu_bias_backward")

    def step(xp, X, Y, W1, b1, W2, b2):
        hidden = xp.maximum(X @ W1 + b1, 0)
        error = (hidden @ W2 + b2 - Y) * f4(2 / Y.size)
        dW2, db2, dhidden = hidden.T @ error, error.sum(axis=0), error @ W2.T
        if xp is np:
            dz = dhidden * (hidden > 0)
            db1 = dz.sum(axis=0)
        else:
            rows, cols = hidden.shape
            dz, db1 = xp.empty_like(hidden), xp.empty(cols, dtype=hidden.dtype)
            kernel((-(-cols // 32),), (32, 8), (dhidden, hidden, dz, db1, i4(rows), i4(cols)))
        return [p - f4(0.1) * g for p, g in ((W1, X.T @ dz), (b1, db1), (W2, dW2), (b2, db2))]

    r = np.random.default_rng(0)
    data = [r.standard_normal(s).astype(f4) for s in ((64, 30), (64, 5), (30, 50), (50,), (50, 5), (5,))]
    want = step(np, *data)
    device = [cp.asarray(a) for a in data]
    with strictcupy.configured(mode=mode, order=order, seed=5):
        strictcupy.reset_counters()
        got = step(cp, *device)
        count = strictcupy.counters()
    assert count["raw"] == 1 and count["syncs"] == count["h2d_bytes"] == count["d2h_bytes"] == 0
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g.get(), w, rtol=2e-5, atol=2e-6)


# ---- the snapshot of the API ------------------------------------------------------------------------


def test_snapshot_is_that_of_the_installed_cupy() -> None:
    """Needs the real CuPy (no GPU): the file in the repository is what snapshot.py writes."""
    here = sys.modules.get("cupy")
    spec = None if here is not None and strictcupy.installed() else importlib.util.find_spec("cupy")
    if spec is None:
        pytest.skip("CuPy is not installed")
    script = Path(strictcupy.__file__).parent / "snapshot.py"
    fresh = json.loads(
        subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    )
    if fresh["cupy"] != api()["cupy"]:
        pytest.skip(f"CuPy {fresh['cupy']} is installed, the snapshot is of {api()['cupy']}")
    assert fresh["modules"] == api()["modules"] and fresh["classes"] == api()["classes"]


def test_every_method_of_the_array_is_one_of_cupys() -> None:
    real = set(api()["classes"]["cupy.ndarray"])
    ours = {n for n in dir(cp.ndarray) if not n.startswith("_")}
    assert ours <= real, ours - real
    assert real - ours - {n for n in real if n.startswith("_")} <= {
        "byteswap",
        "dump",
        "dumps",
        "mdspan",
        "reduced_view",
        "tofile",
    }


# rows of CuPy's tables that NumPy has no loop for: the stand-in refuses these dtypes
NOT_IN_NUMPY = {(n, c) for n in ("arctan2", "atan2", "copysign", "hypot", "nextafter") for c in "FD"} | {
    (n, "?") for n in ("gcd", "lcm", "negative", "positive", "sign", "subtract")
}


def test_ufunc_result_types_are_those_of_the_tables() -> None:
    chars = "?bBhHiIlLefdFD"
    for name, spec in api()["modules"]["cupy"].items():
        if spec["kind"] != "ufunc" or not isinstance(getattr(np, name, None), np.ufunc) or spec["nout"] > 1:
            continue
        f = getattr(cp, name)
        table = [t.split("->") for t in spec["types"].split() if "E" not in t]
        for c in chars:
            row = next((t for t in table if all(np.can_cast(c, d, "safe") for d in t[0])), None)
            args = [cp.ones(2, dtype=c)] * spec["nin"]
            if row is None or (name, c) in NOT_IN_NUMPY:
                with pytest.raises(TypeError):
                    f(*args)
            else:
                assert f(*args).dtype == np.dtype(row[1]), (name, c)


def test_install_and_uninstall() -> None:
    before = {n: m for n, m in sys.modules.items() if n.split(".")[0] in ("cupy", "cupyx")}
    try:
        strictcupy.install()
        import cupy
        import cupy.linalg as la

        assert cupy is cp and la is cp.linalg and strictcupy.installed()
        strictcupy.uninstall()
        assert not strictcupy.installed()
        sys.modules["cupy"] = np
        with pytest.raises(RuntimeError, match="already imported"):
            strictcupy.install()
    finally:
        sys.modules.pop("cupy", None)
        sys.modules.update(before)
