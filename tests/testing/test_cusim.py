"""The CPU executor: results of kernels, argument checks, faults, compile errors, the cache, coverage."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lucid.testing import cusim

pytestmark = pytest.mark.skipif(not cusim.available()[0], reason=f"cusim: {cusim.available()[1]}")
ORDERS = (("forward", 0), ("reverse", 0), ("random", 1), ("random", 2))

COMMON = r"""
#define FULL 0xffffffffu
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(FULL, v, o);
  return v;
}
"""


# ---- results ----------------------------------------------------------------------------------------

REDUCE = (
    COMMON
    + r"""
// out[row] = sum of x[row, :], mean, max; one block per row
template <typename T>
__global__ void row_stats(const T* __restrict__ x, float* __restrict__ sum, float* __restrict__ largest,
                          long long cols) {
  extern __shared__ float row[];
  __shared__ float red[2][32];
  const T* p = x + blockIdx.x * cols;
  float s = 0.f, m = __uint_as_float(0xff800000u);
  for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
    row[c] = (float)p[c];
    s += row[c];
    m = fmaxf(m, row[c]);
  }
  s = warp_sum(s);
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) m = fmaxf(m, __shfl_down_sync(FULL, m, o));
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (lane == 0) { red[0][warp] = s; red[1][warp] = m; }
  __syncthreads();
  if (warp == 0) {
    s = warp_sum(lane < (blockDim.x >> 5) ? red[0][lane] : 0.f);
    m = lane < (blockDim.x >> 5) ? red[1][lane] : m;
    for (int o = 16; o > 0; o >>= 1) m = max(m, __shfl_xor_sync(FULL, m, o));
    if (lane == 0) { sum[blockIdx.x] = s; largest[blockIdx.x] = m; }
  }
}
#define COLSUM(NAME, T) \
  extern "C" __global__ void __launch_bounds__(256) NAME(const T* x, T* out, int rows, int cols) { \
  __shared__ T tile[8][33]; const int c = blockIdx.x * 32 + threadIdx.x; T a = 0; \
  if (c < cols) for (int r = threadIdx.y; r < rows; r += 8) a += x[(size_t)r * cols + c]; \
  tile[threadIdx.y][threadIdx.x] = a; __syncthreads(); \
  if (threadIdx.y == 0 && c < cols) { for (int k = 1; k < 8; k++) a += tile[k][threadIdx.x]; out[c] = a; } }
COLSUM(colsum_f32, float) COLSUM(colsum_f64, double)
"""
)


@pytest.mark.parametrize("mode", ["fast", "checked"])
def test_reduction_kernels_agree_with_float64_in_every_order(mode: str) -> None:
    m = cusim.Module(REDUCE, name_expressions=("row_stats<float>", "row_stats<double>"), mode=mode)
    assert set(m.kernels) == {"colsum_f32", "colsum_f64", "row_stats<float>", "row_stats<double>"}
    rng = np.random.default_rng(1)
    for rows, cols in ((1, 1), (3, 7), (5, 300)):
        for dtype, name in ((np.float32, "f32"), (np.float64, "f64")):
            x = rng.standard_normal((rows, cols)).astype(dtype)
            t = "float" if dtype == np.float32 else "double"
            for order, seed in ORDERS:
                s, big, c = (np.full(n, np.nan, d) for n, d in ((rows, "f"), (rows, "f"), (cols, dtype)))
                m.launch(
                    f"row_stats<{t}>",
                    rows,
                    128,
                    (x, s, big, cols),
                    shared_mem=4 * cols,
                    order=order,
                    seed=seed,
                )
                np.testing.assert_allclose(s, x.sum(1, dtype=np.float64), rtol=1e-5, atol=1e-5)
                np.testing.assert_array_equal(big, x.max(1).astype(np.float32))
                m.launch(
                    f"colsum_{name}",
                    (-(-cols // 32),),
                    (32, 8),
                    (x, c, np.int32(rows), np.int32(cols)),
                    order=order,
                    seed=seed,
                )
                np.testing.assert_allclose(c, x.sum(0, dtype=np.float64), rtol=1e-5, atol=1e-5)


DEVICE_API = r"""
__constant__ int table[4] = {10, 20, 30, 40};
#define FULL 0xffffffffu
struct alignas(8) Pair { float a; int b; };
extern "C" {
__global__ void lanes(unsigned* o) {
  const unsigned l = threadIdx.x;
  unsigned* r = o + l * 16;
  r[0] = __shfl_sync(0xffffffffu, l * 10u, 5);
  r[1] = __shfl_up_sync(0xffffffffu, l, 2);
  r[2] = __shfl_down_sync(0xffffffffu, l, 3, 8);
  r[3] = __shfl_xor_sync(0xffffffffu, l, 9);
  r[4] = __ballot_sync(0xffffffffu, l % 3 == 0);
  r[5] = __any_sync(FULL, l == 31) + 2 * __all_sync(FULL, l < 32) + 4 * __all_sync(FULL, l < 31);
  r[6] = __reduce_add_sync(0xffffffffu, l);
  r[7] = (unsigned)__reduce_min_sync(0xffffffffu, (int)l - 16);
  r[8] = l & 1 ? __shfl_sync(0xaaaaaaaau, l, 1) : __shfl_sync(0x55555555u, l, 0);   // two masks at once
  r[9] = __activemask();
  r[10] = (unsigned)__syncthreads_count(l < 7);
  r[11] = (unsigned)(__syncthreads_or(l == 3) + 2 * __syncthreads_and(l < 32));
  r[11] += 4u * (unsigned)__syncthreads_and(l != 3);
  r[12] = (unsigned)(__shfl_sync(0xffffffffu, (double)l * 1e10, 7) * 1e-10);
  r[13] = (unsigned)table[l & 3];
}
__global__ void pairs(unsigned* o) {     // 16 masks at once, 496 one after another
  const unsigned l = threadIdx.x & 31;
  for (unsigned step = 1; step < 32; step++)
    o[threadIdx.x * 32 + step] = __shfl_sync(1u << l | 1u << (l ^ step), l * 100 + step, l ^ step);
}
__global__ void atomics(int* i, unsigned* u, unsigned long long* q, float* f, double* d) {
  const int t = threadIdx.x + blockIdx.x * blockDim.x;
  atomicAdd(i, 1); atomicSub(i + 1, 2); atomicMax(i + 2, t); atomicMin(i + 3, -t);
    atomicOr(i + 4, 1 << (t & 7)); atomicExch(i + 5, 9);
  atomicAdd(u, 3u); atomicInc(u + 1, 9u); atomicXor(u + 2, (unsigned)t); atomicAnd(u + 3, ~(1u << (t & 15)));
  atomicAdd(q, 1ull << 33); atomicMax(q + 1, (unsigned long long)t);
  atomicAdd(f, 0.5f); atomicAdd(d, 0.25);
  unsigned* w = (unsigned*)(f + 1); unsigned old = *w, seen;          // float max by compare and swap
  do { seen = old; if (__uint_as_float(seen) >= (float)t) break;
    old = atomicCAS(w, seen, __float_as_uint((float)t)); } while (old != seen);
}
__global__ void bits(unsigned* o, const Pair* pairs, Pair by_value, const float4* __restrict__ v, float2* w,
                     uint4* p) {
  o[0] = __umulhi(0xD2511F53u, 0x9E3779B9u); o[1] = (unsigned)(__umul64hi(1ull << 63, 6ull));
    o[2] = (unsigned)__mul64hi(-1ll, 5ll);
  o[3] = __popc(0xf0f0u) + 100 * __clz(1) + 10000 * __ffs(8); o[4] = __brev(1u);
    o[5] = __byte_perm(0x03020100u, 0x07060504u, 0x7250u);
  o[6] = __funnelshift_l(0x80000000u, 1u, 1u);
    o[7] = (unsigned)__float2int_rn(2.5f) + 10u * (unsigned)__float2int_rz(-3e20f);
  o[8] = __float_as_uint(__frcp_rn(3.f)); o[9] = __float_as_uint(rsqrtf(4.f));
    o[10] = min(3u, 5u) + max(1, 2) + (unsigned)min(2.5f, 1.f);
  o[11] = (unsigned)pairs[1].b + (unsigned)by_value.b; o[12] = __float_as_uint(__saturatef(2.f));
    o[13] = sizeof(float4) + 100 * alignof(float4);
  const float4 q = __ldg(v + 1); w[0] = make_float2(q.x, q.w); p[0] = make_uint4(1u, 2u, 3u, 4u);
  o[14] = (unsigned)(erff(0.5f) * 1e6f); o[15] = __float_as_uint(fmaf(2.f, 3.f, 4.f));
}
}
"""


@functools.cache
def device_api() -> cusim.Module:
    return cusim.Module(DEVICE_API, filename="device_api.cu")


def test_warp_and_block_collectives() -> None:
    out = np.zeros((32, 16), np.uint32)
    for order, seed in ORDERS:
        device_api().launch("lanes", 1, 32, (out,), order=order, seed=seed)
        lane = np.arange(32)
        assert (out[:, 0] == 50).all()
        np.testing.assert_array_equal(out[:, 1], np.where(lane < 2, lane, lane - 2))
        np.testing.assert_array_equal(out[:, 2], np.where(lane % 8 + 3 < 8, lane + 3, lane))
        np.testing.assert_array_equal(out[:, 3], lane ^ 9)
        assert (out[:, 4] == sum(1 << i for i in range(0, 32, 3))).all()
        assert (out[:, 5] == 1 + 2).all() and (out[:, 6] == 496).all() and (out[:, 7] == 2**32 - 16).all()
        np.testing.assert_array_equal(out[:, 8], lane & 1)
        assert (
            (out[:, 9] == 0xFFFFFFFF).all()
            and (out[:, 10] == 7).all()
            and (out[:, 11] == 1 + 2).all()
            and (out[:, 12] == 7).all()
        )
        np.testing.assert_array_equal(out[:, 13], (lane % 4 + 1) * 10)


def test_every_pair_of_lanes_may_have_a_mask_of_its_own() -> None:
    lane, step = np.arange(32)[:, None], np.arange(32)
    for order, seed in ORDERS:
        out = np.zeros((64, 32), np.uint32)
        device_api().launch("pairs", 1, 64, (out,), order=order, seed=seed)
        np.testing.assert_array_equal(out[:, 1:], np.tile((lane ^ step) * 100 + step, (2, 1))[:, 1:])


def test_atomics() -> None:
    i, u, q = (
        np.array([0, 0, 0, 0, 0, 0], np.int32),
        np.array([0, 0, 0, 2**32 - 1], np.uint32),
        np.zeros(2, np.uint64),
    )
    f, d = np.zeros(2, np.float32), np.zeros(1)
    device_api().launch("atomics", 4, 64, (i, u, q, f, d))
    t = np.arange(256)
    assert i.tolist() == [256, -512, 255, -255, 255, 9]
    assert u.tolist() == [768, 256 % 10, int(np.bitwise_xor.reduce(t)), 0xFFFF0000]
    assert q.tolist() == [256 << 33, 255] and f.tolist() == [128.0, 255.0] and d.tolist() == [64.0]


def test_launches_from_several_threads() -> None:
    def work(k: int) -> list[int]:
        out = np.zeros((32, 32), np.uint32)
        for seed in range(20):
            device_api().launch("pairs", 1, 32, (out,), order="random", seed=seed + k)
        return out[:, 1].tolist()

    with ThreadPoolExecutor(4) as pool:
        assert all(r == [(i ^ 1) * 100 + 1 for i in range(32)] for r in pool.map(work, range(4)))


def test_bits_vectors_and_structs() -> None:
    o = np.zeros(16, np.uint32)
    pair = np.dtype([("a", np.float32), ("b", np.int32)])
    v, w, p = np.arange(8, dtype=np.float32), np.zeros(2, np.float32), np.zeros(4, np.uint32)
    v, w, p = (_aligned(a) for a in (v, w, p))
    device_api().launch("bits", 1, 1, (o, np.array([(1, 2), (3, 4)], pair), np.array((5, 6), pair), v, w, p))
    assert o[:8].tolist() == [
        0xD2511F53 * 0x9E3779B9 >> 32,
        3,
        2**32 - 1,
        8 + 3100 + 40000,
        0x80000000,
        0x07020500,
        3,
        (2 - 2**31 * 10) % 2**32,
    ]
    f = o.view(np.float32)
    assert (
        f[8] == np.float32(1) / 3
        and f[9] == 0.5
        and o[10] == 6
        and o[11] == 10
        and f[12] == 1
        and o[13] == 16 + 1600
    )
    assert w.tolist() == [4.0, 7.0] and p.tolist() == [1, 2, 3, 4] and o[14] == 520499 and f[15] == 10


def _aligned(a: np.ndarray) -> np.ndarray:
    buffer = np.empty(a.nbytes + 128, np.uint8)
    start = -buffer.ctypes.data % 128
    r = buffer[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    r[...] = a
    return r


HALF = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void widen(const __half* h, const __nv_bfloat16* b, float* fh, float* fb, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { fh[i] = __half2float(h[i]); fb[i] = __bfloat162float(b[i]); }
}
extern "C" __global__ void narrow(const float* f, __half* h, __nv_bfloat16* b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { h[i] = __float2half_rn(f[i]); b[i] = __float2bfloat16_rn(f[i]); }
}
extern "C" __global__ void arithmetic(const __half* a, const __half* b, __half* o, int n) {
  const int i = threadIdx.x;
  if (i < n) { __half t = a[i] * b[i]; t += a[i]; o[i] = __hsub(t, b[i]); }
}
"""


def test_half_and_bfloat16_conversions_for_every_bit_pattern() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    m = cusim.Module(HALF, ftz=False)
    every = np.arange(65536, dtype=np.uint16)
    h, b = every.view(np.float16), every.view(bfloat16)
    fh, fb = np.zeros(65536, np.float32), np.zeros(65536, np.float32)
    m.launch("widen", 256, 256, (h, b, fh, fb, np.int32(65536)))
    np.testing.assert_array_equal(fh, h.astype(np.float32))
    np.testing.assert_array_equal(fb, b.astype(np.float32))
    # every half, the ties between neighbours and what lies beside them, and random floats of every exponent
    f = h.astype(np.float32)[np.isfinite(h)]
    ties = ((f[:-1].astype(np.float64) + f[1:]) / 2).astype(np.float32)
    bits = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    grid = np.arange(0, 2**16, dtype=np.uint32) << 16
    near = np.concatenate([grid | 0x8000, grid | 0x7FFF, grid | 0x8001]).astype(np.uint32).view(np.float32)
    for values in (
        f,
        ties,
        np.nextafter(ties, np.float32(np.inf)),
        np.nextafter(ties, np.float32(-np.inf)),
        bits,
        near,
    ):
        n = values.size
        ho, bo = np.zeros(n, np.float16), np.zeros(n, bfloat16)
        m.launch("narrow", -(-n // 256), 256, (np.ascontiguousarray(values), ho, bo, np.int32(n)))
        with np.errstate(over="ignore", invalid="ignore"):
            np.testing.assert_array_equal(ho, values.astype(np.float16))
            np.testing.assert_array_equal(bo.astype(np.float32), values.astype(bfloat16).astype(np.float32))


def test_half_arithmetic_rounds_each_operation() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 64)).astype(np.float16)
    o = np.zeros(64, np.float16)
    cusim.Module(HALF, ftz=False).launch("arithmetic", 1, 64, (a.copy(), b.copy(), o, np.int32(64)))
    np.testing.assert_array_equal(o, a * b + a - b)


def test_subnormals_are_flushed_as_cupy_compiles() -> None:
    code = 'extern "C" __global__ void k(float* x) { x[1] = x[0] * 0.5f; }'
    for ftz, want in ((True, 0.0), (False, np.float32(1e-39) * np.float32(0.5))):
        x = np.array([1e-39, 7], np.float32)
        cusim.Module(code, ftz=ftz).launch("k", 1, 1, (x,))
        assert x[1] == want


def test_fma_contraction_is_a_choice() -> None:
    code = 'extern "C" __global__ void k(const float* x, float* o) { o[0] = x[0] * x[1] + x[2]; }'
    x = np.array([1 + 2**-12, 1 + 2**-12, -1 - 2**-11], np.float32)
    o = np.zeros(1, np.float32)
    cusim.Module(code).launch("k", 1, 1, (x, o))
    assert o[0] == 0
    cusim.Module(code, fma=True).launch("k", 1, 1, (x, o))
    assert o[0] == np.float32(2.0**-24)


def test_shared_memory_is_poisoned_and_static_size_is_known() -> None:
    code = """extern "C" __global__ void k(float* o) {
  __shared__ float s[8], t;
  t = 1.f;
  o[blockIdx.x * 8 + threadIdx.x] = s[threadIdx.x];
  s[threadIdx.x] = t;                       // the next block must not see it
}"""
    m = cusim.Module(code)
    o = np.zeros(16, np.float32)
    assert m.static_shared_bytes("k") is None
    m.launch("k", 2, 8, (o,))
    assert np.isnan(o).all() and m.static_shared_bytes("k") == 36


# ---- refusals ---------------------------------------------------------------------------------------


@functools.cache
def plain() -> cusim.Module:
    code = """extern "C" __global__
void k(const float4* v, unsigned short* h, int n, float s, bool b, size_t z) {}"""
    return cusim.Module(code)


@pytest.mark.parametrize(
    "change,message",
    [
        ({2: 3}, r"argument 2 is int 3 \(int64\), the kernel takes int32"),
        ({2: np.float32(3)}, "argument 2 is float32"),
        ({3: 1.0}, r"float64\), the kernel takes float32"),
        ({4: np.int8(1)}, "takes bool8"),
        ({5: -1}, "takes uint64"),
        ({1: np.zeros(2, np.float32)}, r"array of float32, the kernel takes uint16\*"),
        ({0: np.zeros((8, 8), np.float32).T}, "not C-contiguous"),
        ({0: np.zeros(64, np.float32)[1:]}, "no multiple of 16"),
        ({0: 1.5}, "argument 0 is float"),
        ({0: "x"}, "argument 0 is str"),
    ],
)
def test_wrong_arguments_are_refused(change: dict, message: str) -> None:
    args = [_aligned(np.zeros(8, np.float32)), np.zeros(2, np.float16), np.int32(3), np.float32(1), True, 7]
    if 0 in change and isinstance(change[0], np.ndarray):
        a = change[0]
        change = {0: _aligned(np.zeros(64, np.float32))[1:]} if a.ndim == 1 else change
    plain().launch("k", 1, 1, args)
    for i, v in change.items():
        args[i] = v
    with pytest.raises(cusim.KernelError, match=message):
        plain().launch("k", 1, 1, args)


def test_wrong_launches_are_refused() -> None:
    with pytest.raises(cusim.KernelError, match="takes 6 arguments"):
        plain().launch("k", 1, 1, ())
    with pytest.raises(cusim.KernelError, match="no kernel 'q'; it has k"):
        plain().launch("q", 1, 1, ())
    args = [None, None, np.int32(3), np.float32(1), True, np.uint64(7)]
    plain().launch("k", 1, 1, args)
    for grid, block, shared in (
        (0, 1, 0),
        (1, 1025, 0),
        (1, (1, 1, 65), 0),
        ((1, 65536), 1, 0),
        (1, 1, 228 * 1024),
    ):
        with pytest.raises(cusim.KernelError):
            plain().launch("k", grid, block, args, shared_mem=shared)
    with pytest.raises(ValueError, match="order"):
        plain().launch("k", 1, 1, args, order="sideways")


@pytest.mark.parametrize(
    "code,where",
    [
        ('extern "C" __global__ void k(float* x) {\n  x[0] = INFINITY;\n}', (2, "INFINITY")),
        ('#include <cmath>\nextern "C" __global__ void k(float* x) {}', (1, "cmath")),
        ('\n\nextern "C" __global__ void k(int64_t* x) {}', (3, "int64_t")),
        ("__device__ float f(float a) {\n  return a\n}", (2, "expected")),
        ('extern "C" __global__ void k(long long* x) {\n atomicAdd(x, 1ll);\n}', (2, "long long")),
    ],
)
def test_compile_errors_name_the_line(code: str, where: tuple[int, str]) -> None:
    with pytest.raises(cusim.CompileError) as e:
        cusim.Module(code, filename="broken.cu")
    line, word = where
    assert any((f, n) == ("broken.cu", line) and word in text for f, n, text in e.value.errors), (
        e.value.errors
    )
    assert f"broken.cu:{line}: " in str(e.value)


def test_compile_error_in_a_header_names_the_header(tmp_path) -> None:
    (tmp_path / "part.cuh").write_text("#pragma once\n__device__ int f() { return nothing; }\n")
    with pytest.raises(cusim.CompileError, match=r"part\.cuh:2: .*nothing"):
        cusim.Module('#include "part.cuh"\nextern "C" __global__ void k() {}', (f"-I{tmp_path}",))


def test_faults_become_reports() -> None:
    m = cusim.Module(
        """extern "C" __global__ void null(float* x) { x[0] = 1.f; }
extern "C" __global__ void divide(int* x) { x[0] /= x[1]; }
extern "C" __global__ void trap() { if (threadIdx.x == 3) __trap(); }
__device__ int deep(int n, volatile int* p) { volatile int a[256]; a[n & 255] = n;
  return n ? deep(n - 1, a) + a[0] : p[0]; }
extern "C" __global__ void recurse(int* x) { x[0] = deep(1000, x); }
""",
        filename="faults.cu",
    )
    for name, args, kind in (
        ("null", (None,), "segmentation-fault"),
        ("divide", (np.zeros(2, np.int32),), "division-by-zero"),
        ("trap", (), "trap"),
        ("recurse", (np.zeros(1, np.int32),), "stack-overflow"),
    ):
        with pytest.raises(cusim.KernelError, match=rf"faults.cu:\d: {kind}"):
            m.launch(name, 1, 32, args)


@pytest.mark.parametrize("mode", ["fast", "checked"])
def test_endless_loops_time_out_with_their_line(mode: str) -> None:
    m = cusim.Module(
        """extern "C" __global__ void spin(volatile int* x) {
  while (x[0] == 0)
    x[1] += 1;
}
extern "C" __global__ void lock(int* x) {
  while (atomicCAS(x, 0, 1) != 0) {}
}
extern "C" __global__ void fine(int* x) { x[threadIdx.x] = 3; }
""",
        filename="spin.cu",
        mode=mode,
    )
    for name in ("spin", "lock"):
        with pytest.raises(cusim.KernelError, match=r"spin.cu:[2367]: timeout: .* 0.2 s"):
            m.launch(name, 1, 2, (np.zeros(2, np.int32),), timeout=0.2)
    x = np.zeros(2, np.int32)
    m.launch("fine", 1, 2, (x,), timeout=0.2)
    assert x.tolist() == [3, 3]


def test_line_directives_name_the_file() -> None:
    code = '#line 10 "kernels/somewhere.cu"\nextern "C" __global__ void k(int* x) { x[threadIdx.x] = 1; }'
    with pytest.raises(cusim.KernelError, match="kernels/somewhere.cu:10: out-of-bounds"):
        cusim.Module(code, mode="checked").launch("k", 1, 3, (np.zeros(2, np.int32),))
    with pytest.raises(cusim.CompileError, match="kernels/somewhere.cu:11: "):
        cusim.Module(code + "\nint f( {")


def test_shared_array_at_file_scope_is_refused() -> None:
    with pytest.raises(cusim.CompileError, match="inside a function"):
        cusim.Module('__shared__ float s[3];\nextern "C" __global__ void k() {}')


# ---- the cache, options, coverage -------------------------------------------------------------------


def test_cache_sees_headers_and_macros(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LUCID_CACHE", str(tmp_path / "cache"))
    header = tmp_path / "value.cuh"
    code = '#include "value.cuh"\nextern "C" __global__ void k(scalar_t* x) { x[0] = VALUE; }'

    def run(option: str, dtype: type) -> float:
        x = np.zeros(1, dtype)
        cusim.Module(code, (f"-I{tmp_path}", option, "--use_fast_math")).launch("k", 1, 1, (x,))
        return float(x[0])

    header.write_text("#define VALUE 3\n")
    assert run("-Dscalar_t=float", np.float32) == 3 and run("-Dscalar_t=double", np.float64) == 3
    n = len(list((tmp_path / "cache" / "cusim").glob("*.so")))
    header.write_text("#define VALUE 4\n")
    assert run("-Dscalar_t=float", np.float32) == 4
    assert len(list((tmp_path / "cache" / "cusim").glob("*.so"))) == n + 1
    assert run("-Dscalar_t=float", np.float32) == 4 and not list((tmp_path / "cache" / "cusim").glob(".*"))


def test_several_processes_compile_at_once(tmp_path) -> None:
    program = (
        "import numpy as np; from lucid.testing import cusim; x = np.zeros(1, np.int32)\n"
        "code = 'extern \"C\" __global__ void k(int* x) { atomicAdd(x, 5); }'\n"
        "cusim.Module(code).launch('k', 1, 2, (x,)); print(x[0])"
    )
    env = {**os.environ, "LUCID_CACHE": str(tmp_path)}
    jobs = [
        subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [j.communicate(timeout=60)[0].strip() for j in jobs] == ["10"] * 2


def test_coverage_names_the_lines_that_never_ran() -> None:
    code = """__device__ float pick(float a) {
  if (a > 100.f)
    return 1.f;
  return a;
}
extern "C" __global__ void cover(float* x, int n) {
  const int i = threadIdx.x;
  if (i < n)
    x[i] = pick(x[i]) * 2.f;
}
"""
    m = cusim.Module(code, coverage=True, filename="cover.cu")
    m.launch("cover", 1, 32, (np.ones(4, np.float32), np.int32(4)))
    c = cusim.coverage(["cover.cu"])["cover.cu"]
    assert c.missing == (3,) and c.counts[9] == 4 and 80 < c.percent < 100
    m.launch("cover", 1, 32, (np.full(4, 200, np.float32), np.int32(4)))
    every = cusim.coverage()
    assert every["cover.cu"].missing == () and not any(n.endswith(".h") for n in every)


def test_unavailable_says_why(monkeypatch) -> None:
    monkeypatch.setenv("LUCID_CXX", "no-such-compiler")
    ok, reason = cusim.available()
    assert not ok and "g++" in reason
    with pytest.raises(cusim.CompileError, match="g\\+\\+"):
        cusim.Module('extern "C" __global__ void k() {}')
