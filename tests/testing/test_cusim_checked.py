"""Checked mode of the CPU executor: seeded bugs are found in every order, correct programs raise nothing."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import pytest

from lucid.testing import cusim

pytestmark = pytest.mark.skipif(not cusim.available()[0], reason=f"cusim: {cusim.available()[1]}")
ORDERS = (("forward", 0), ("reverse", 0), ("random", 1))

COMMON = r"""
#define FULL 0xffffffffu
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(FULL, v, o);
  return v;
}
"""


class Bug(NamedTuple):
    name: str
    kinds: set  # what may be reported; empty for a correct program
    grid: int
    block: int
    body: str
    n: int = 128  # length of x
    const: bool = True


BUGS = [
    Bug(
        "missing_barrier",
        {"race", "uninitialised"},
        1,
        128,
        """
  __shared__ float red[32]; float v = warp_sum(x[threadIdx.x]);
  if ((threadIdx.x & 31) == 0) red[threadIdx.x >> 5] = v;
  v = threadIdx.x < 4 ? red[threadIdx.x] : 0.f; v = warp_sum(v); if (threadIdx.x == 0) o[0] = v;""",
    ),
    Bug(
        "reuse_without_barrier",
        {"race"},
        1,
        128,
        """
  __shared__ float red[32]; float total = 0.f;
  for (int k = 0; k < 2; k++) {
    float v = warp_sum(x[threadIdx.x]); if ((threadIdx.x & 31) == 0) red[threadIdx.x >> 5] = v;
    __syncthreads();
    for (int i = 0; i < 4; i++) total += red[i];
  }
  if (threadIdx.x == 0) o[0] = total;""",
    ),
    Bug(
        "divergent_barrier",
        {"divergent-barrier"},
        1,
        128,
        """
  __shared__ float s[128]; s[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x < 64) { __syncthreads(); s[threadIdx.x] *= 2; } else { __syncthreads();
    s[threadIdx.x] *= 3; }
  __syncthreads(); if (threadIdx.x == 0) o[0] = s[0] + s[127];""",
    ),
    Bug(
        "deadlock",
        {"deadlock"},
        1,
        128,
        """
  __shared__ float s[128]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
  if (threadIdx.x < 16) s[0] = __shfl_sync(FULL, 1.f, 0); else __syncthreads();
  if (threadIdx.x == 0) o[0] = s[0];""",
    ),
    Bug(
        "shuffle_after_exit",
        {"inactive-lane"},
        1,
        128,
        """
  int i = threadIdx.x; if (i >= n - 20) return;
  float v = warp_sum(x[i]); if (i % 32 == 0) atomicAdd(o, v);""",
    ),
    Bug("race_between_blocks", {"race"}, 128, 32, "  if (threadIdx.x == 0) o[0] += x[blockIdx.x];"),
    Bug(
        "in_place_stencil",
        {"race"},
        1,
        128,
        "  int i = threadIdx.x; if (i + 1 < n) x[i] = x[i + 1];",
        const=False,
    ),
    Bug(
        "shared_overrun",
        {"out-of-bounds"},
        1,
        128,
        """
  __shared__ float s[64]; __shared__ float t[64]; s[threadIdx.x] = x[threadIdx.x];
    t[threadIdx.x & 63] = 1; __syncthreads();
  if (threadIdx.x == 0) o[0] = s[0] + t[0];""",
    ),
    Bug(
        "dynamic_overrun",
        {"out-of-bounds"},
        1,
        128,
        """
  extern __shared__ float d[]; d[threadIdx.x] = 1.f; __syncthreads(); if (threadIdx.x == 0) o[0] = d[n];""",
    ),
    Bug(
        "uninitialised_shared",
        {"uninitialised"},
        1,
        128,
        """
  __shared__ float s[64]; if (threadIdx.x < 32) s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
  float a = s[threadIdx.x & 63]; if (threadIdx.x == 40) o[0] = a;""",
    ),
    Bug(
        "misaligned_float4",
        {"misaligned"},
        1,
        128,
        """
  int i = threadIdx.x;
    if (i * 4 + 5 <= n) { float4 v = *reinterpret_cast<const float4*>(x + 1 + i * 4);
      atomicAdd(o, v.x + v.w); }""",
    ),
    Bug(
        "float4_of_plain_shared",
        {"misaligned"},
        1,
        32,
        """
  __shared__ float s[128]; *reinterpret_cast<float4*>(&s[threadIdx.x * 4]) = make_float4(1, 2, 3, 4);
  __syncthreads(); if (threadIdx.x == 0) o[0] = s[0];""",
    ),
    Bug(
        "float4_past_end",
        {"out-of-bounds"},
        1,
        128,
        """
  int i = threadIdx.x; if (i * 4 < n - 2) { float4 v = reinterpret_cast<const float4*>(x)[i];
    atomicAdd(o, v.x + v.w); }""",
        n=127,
    ),
    Bug(
        "off_by_one",
        {"out-of-bounds"},
        2,
        128,
        "  int i = threadIdx.x + blockIdx.x * blockDim.x; if (i <= n) atomicAdd(o, x[i]);",
    ),
    Bug("atomic_out_of_bounds", {"out-of-bounds"}, 1, 32, "  atomicAdd(o + threadIdx.x, 1.f);"),
    Bug("write_to_const", {"read-only"}, 1, 32, "  const_cast<float*>(x)[threadIdx.x] = 1.f;"),
    Bug(
        "no_syncwarp",
        {"race"},
        1,
        32,
        """
  __shared__ float s[64]; int i = threadIdx.x; s[i] = x[i]; s[i + 32] = 0; __syncthreads();
  for (int d = 16; d > 0; d >>= 1) s[i] += s[i + d]; if (i == 0) o[0] = s[0];""",
    ),
    Bug(
        "no_syncwarp_after_read",
        {"race"},
        1,
        32,
        """
  __shared__ float s[64]; int i = threadIdx.x; s[i] = x[i]; s[i + 32] = 0; __syncwarp();
  for (int d = 16; d > 0; d >>= 1) { float t = s[i + d]; s[i] += t; __syncwarp(); }
  if (i == 0) o[0] = s[0];""",
    ),
    Bug(
        "half_a_warp_synced",
        {"race"},
        1,
        32,
        """
  __shared__ float s[32]; int i = threadIdx.x; s[i] = x[i]; if (i < 16) __syncwarp(0x0000ffffu);
  float v = s[i ^ 16]; if (i == 0) o[0] = v;""",
    ),
    Bug(
        "syncwarp_is_no_barrier",
        {"race"},
        1,
        64,
        """
  __shared__ float s[64]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
  float v = s[0]; __syncwarp(); if (threadIdx.x == 0) s[0] = 1.f; if (v == 7.f) o[0] = v;""",
    ),
    Bug(
        "plain_read_of_atomic",
        {"race"},
        4,
        32,
        "  atomicAdd(o, 1.f); if (threadIdx.x == 0 && o[0] < 0.f) o[1] = 1.f;",
    ),
    Bug(
        "last_block_without_fence",
        {"race"},
        4,
        32,
        """
  __shared__ int last; if (threadIdx.x == 0) { o[2 + blockIdx.x] = x[blockIdx.x];
    last = atomicInc((unsigned*)(o + 1), 3u) == 3u; }
  __syncthreads(); if (last && threadIdx.x == 0) o[0] = o[2] + o[3] + o[4] + o[5];""",
    ),
    # correct programs that resemble the bugs
    Bug(
        "synced_without_the_reader",
        {"race"},
        1,
        32,
        """
  __shared__ float s[16]; int i = threadIdx.x; float v = 0.f;
  if (i < 16) { s[i] = x[i]; __syncwarp(0x0000ffffu); } else v = s[i - 16];
  if (v == 7.f) o[0] = v;""",
    ),
    Bug(
        "ok_syncwarp",
        set(),
        1,
        32,
        """
  __shared__ float s[64]; int i = threadIdx.x; s[i] = x[i]; s[i + 32] = 0; __syncwarp();
  for (int d = 16; d > 0; d >>= 1) { float t = s[i + d]; __syncwarp(); s[i] += t; __syncwarp(); }
  if (i == 0) o[0] = s[0];""",
    ),
    Bug(
        "ok_half_warp",
        set(),
        1,
        32,
        """
  __shared__ float s[32]; int i = threadIdx.x; s[i] = x[i];
  if (i < 16) { __syncwarp(0x0000ffffu); float v = s[15 - i]; __syncwarp(0x0000ffffu); s[i] = v;
    } if (i == 0) o[0] = s[0];""",
    ),
    Bug(
        "ok_block_sum",
        set(),
        2,
        128,
        """
  __shared__ float red[32]; float v = warp_sum(x[threadIdx.x]);
  for (int k = 0; k < 3; k++) {
    __syncthreads(); if ((threadIdx.x & 31) == 0) red[threadIdx.x >> 5] = v;
    __syncthreads(); v = warp_sum((threadIdx.x & 31) < 4 ? red[threadIdx.x & 31] : 0.f);
  }
  if (threadIdx.x == 0) atomicAdd(o, v);""",
    ),
    Bug(
        "ok_last_block",
        set(),
        4,
        32,
        """
  __shared__ int last;
  if (threadIdx.x == 0) { o[2 + blockIdx.x] = x[blockIdx.x]; __threadfence();
    last = atomicInc((unsigned*)(o + 1), 3u) == 3u; }
  __syncthreads(); if (last && threadIdx.x == 0) o[0] = o[2] + o[3] + o[4] + o[5];""",
    ),
    Bug(
        "ok_exit_then_barrier",
        set(),
        1,
        128,
        """
  __shared__ float s[128]; if (threadIdx.x >= 100) return; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
  o[threadIdx.x & 7 ? 0 : threadIdx.x >> 3 & 1] = 0.f * s[99 - threadIdx.x];""".replace(
            "o[threadIdx.x & 7 ? 0 : threadIdx.x >> 3 & 1] = 0.f * s[99 - threadIdx.x]",
            "float v = s[99 - threadIdx.x]; if (threadIdx.x == 0) o[0] = v",
        ),
    ),
    Bug(
        "ok_aligned_shared",
        set(),
        1,
        32,
        """
  __shared__ __align__(16) float s[128];
    *reinterpret_cast<float4*>(&s[threadIdx.x * 4]) = make_float4(1, 2, 3, 4);
  __syncthreads(); if (threadIdx.x == 0) o[0] = s[127];""",
    ),
]


def _line_of(bug: Bug) -> tuple[int, int]:
    before = BUG_SOURCE.split(f" {bug.name}(")[0].count("\n") + 1
    return before, before + bug.body.count("\n") + 1


BUG_SOURCE = COMMON + "".join(
    f'extern "C" __global__ void {b.name}({"const " * b.const}float* x, float* o, int n) {{{b.body}\n}}\n'
    for b in BUGS
)


@functools.cache
def bugs(mode: str) -> cusim.Module:
    return cusim.Module(BUG_SOURCE, mode=mode, filename="bugs.cu")


@pytest.mark.parametrize("order,seed", ORDERS, ids=lambda v: str(v))
@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.name)
def test_checked_mode_finds_seeded_bugs_and_nothing_else(bug: Bug, order: str, seed: int) -> None:
    x = np.random.default_rng(0).standard_normal(bug.n).astype(np.float32)
    out = np.zeros(8, np.float32)
    m = bugs("checked")

    def run() -> None:
        m.launch(
            bug.name, bug.grid, bug.block, (x, out, np.int32(bug.n)), shared_mem=512, order=order, seed=seed
        )

    if not bug.kinds:
        run()
        return
    with pytest.raises(cusim.KernelError) as e:
        run()
    reports = e.value.reports
    assert bug.kinds & {r.kind for r in reports}, reports
    first, last = _line_of(bug)
    assert all(r.file == "bugs.cu" for r in reports)
    assert any(first <= r.line <= last or r.line <= COMMON.count("\n") for r in reports), (
        reports,
        first,
        last,
    )


def test_out_of_bounds_write_in_checked_mode_never_happens() -> None:
    buffer = np.zeros(64, np.float32)
    with pytest.raises(cusim.KernelError, match="out-of-bounds"):
        bugs("checked").launch(
            "atomic_out_of_bounds", 1, 32, (np.zeros(4, np.float32), buffer[:8], np.int32(4))
        )
    assert not buffer[8:].any()


def test_fast_mode_finds_collective_errors() -> None:
    x, out = np.ones(128, np.float32), np.zeros(8, np.float32)
    for name in ("divergent_barrier", "deadlock", "shuffle_after_exit"):
        with pytest.raises(cusim.KernelError):
            bugs("fast").launch(name, 1, 128, (x, out, np.int32(128)))
    out[:] = 0
    bugs("fast").launch("ok_block_sum", 2, 128, (x, out, np.int32(128)))  # the module works on after an abort
    assert out[0] == 4096


def test_deadlock_says_who_waits_where() -> None:
    with pytest.raises(cusim.KernelError, match=r"112 at __syncthreads \(bugs.cu:\d+\)") as e:
        bugs("fast").launch(
            "deadlock", 1, 128, (np.ones(128, np.float32), np.zeros(8, np.float32), np.int32(128))
        )
    assert "16 at __shfl_sync" in str(e.value)


def test_pointer_tables_reach_named_memory() -> None:
    code = """extern "C" __global__ void k(float* const* p, const int* n) {
  p[blockIdx.x][threadIdx.x] += n[blockIdx.x];
}"""
    m = cusim.Module(code, mode="checked")
    a, b, n = np.zeros(32, np.float32), np.zeros(32, np.float32), np.array([1, 2], np.int32)
    table = np.array([a.ctypes.data, b.ctypes.data], np.uint64)
    with pytest.raises(cusim.KernelError, match="out-of-bounds"):
        m.launch("k", 2, 32, (table, n))
    m.launch("k", 2, 32, (table, n), memory=(a, b))
    assert a[0] == 1 and b[31] == 2


def _aligned(a: np.ndarray) -> np.ndarray:
    buffer = np.empty(a.nbytes + 128, np.uint8)
    start = -buffer.ctypes.data % 128
    r = buffer[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    r[...] = a
    return r


def test_traffic_counts_sectors_and_bank_conflicts() -> None:
    code = """extern "C" __global__ void transpose(const float* a, float* b) {
  __shared__ float s[32][32];
  s[threadIdx.y][threadIdx.x] = a[threadIdx.y * 32 + threadIdx.x];
  __syncthreads();
  b[threadIdx.y * 32 + threadIdx.x] = s[threadIdx.x][threadIdx.y];
}"""
    m = cusim.Module(code, mode="checked", filename="transpose.cu")
    a, b = _aligned(np.arange(1024, dtype=np.float32)), _aligned(np.zeros(1024, np.float32))
    m.collect_traffic()
    m.launch("transpose", 1, (32, 32), (a, b))
    np.testing.assert_array_equal(b.reshape(32, 32), a.reshape(32, 32).T)
    rows = {(t.line, t.space): t for t in m.traffic()}
    assert rows[3, "global"].units == rows[3, "global"].ideal == 128 and rows[3, "global"].requests == 32
    assert rows[3, "shared"].conflicts == 0 and rows[5, "shared"].conflicts == 31 * 32
    assert rows[5, "global"].units == 128


# ---- places and names in reports; a part of the blocks ----------------------------------------------------

NESTED = """__device__ __forceinline__ void put(float* to, long long i) {
  to[i] = 1.f;
}
__device__ __forceinline__ void fill(float* to, int n) {
  put(to, n);
}
extern "C" __global__ void __launch_bounds__(32) f(const float* __restrict__ given, float* out, int n) {
  fill(out, n);
}
"""


def test_reports_name_the_argument_and_the_calls_that_lead_there() -> None:
    m = cusim.Module(NESTED, mode="checked", filename="nested.cu")
    given, out = np.zeros(4, np.float32), np.zeros(4, np.float32)
    m.launch("f", 1, 1, (given, out, np.int32(3)))
    with pytest.raises(cusim.KernelError) as error:
        m.launch("f", 1, 1, (given, out, np.int32(4)))
    (report,) = error.value.reports
    assert report.places == (("nested.cu", 2), ("nested.cu", 5), ("nested.cu", 8))
    assert report.text.endswith("past the end of argument 1 (out)")
    assert str(report).endswith("called from nested.cu:5, called from nested.cu:8")


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_a_part_of_the_blocks(order: str) -> None:
    code = """extern "C" __global__ void f(int* seen) {
  atomicAdd(seen + blockIdx.y * gridDim.x + blockIdx.x, 1);
}"""
    m, seen = cusim.Module(code), np.zeros(6, np.int32)
    m.launch("f", (3, 2), 1, (seen,), order=order, blocks=range(2, 5))
    assert seen.tolist() == [0, 0, 1, 1, 1, 0]
    m.launch("f", (3, 2), 1, (seen,), order=order)
    assert seen.tolist() == [1, 1, 2, 2, 2, 1]
    for wrong in (range(5, 7), range(3, 3), range(0, 6, 2)):
        with pytest.raises(cusim.KernelError, match=r"f: blocks must be a part of range\(0, 6\)"):
            m.launch("f", (3, 2), 1, (seen,), blocks=wrong)
