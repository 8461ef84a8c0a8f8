// What every kernel of lucid shares: the element type, 128-bit packs, row reductions, Philox. README.md has the rules.
//
// -DLUCID_F64 | LUCID_F32 | LUCID_F16 | LUCID_BF16   the element type: scalar_t in memory, accum_t in registers
// -DLUCID_SCALAR                                      packs of one element: for addresses or row lengths that are no multiple of 16 bytes
// Plain C++17 for NVRTC: no host header, no INFINITY, no float64 literal where accum_t is float.
#pragma once

typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void

// ---- elements: stored as scalar_t, computed as accum_t ----

#if defined(LUCID_F64)
typedef double scalar_t;
typedef double accum_t;
#elif defined(LUCID_F32)
typedef float scalar_t;
typedef float accum_t;
#elif defined(LUCID_F16) || defined(LUCID_BF16)
typedef u16 scalar_t;    // the bits: cuda_fp16.h and cuda_bf16.h do not come with CuPy
typedef float accum_t;
#else
#error "define one of LUCID_F64, LUCID_F32, LUCID_F16, LUCID_BF16"
#endif

#if defined(LUCID_F16)
#if defined(__CUSIM__)
// IEEE 754 binary16 by its bits. Subnormals go through a subtraction: a float32 subnormal would be flushed (CuPy compiles with -ftz=true).
DEVICE accum_t up(scalar_t h) {
  const u32 sign = (u32)(h & 0x8000u) << 16, exponent = h & 0x7c00u;
  u32 bits = ((u32)(h & 0x7fffu) << 13) + (112u << 23);
  if (exponent == 0x7c00u) bits += 112u << 23;
  if (exponent == 0u) bits = __float_as_uint(__uint_as_float(bits + (1u << 23)) - 6.103515625e-05f);
  return __uint_as_float(bits | sign);
}
DEVICE scalar_t down(accum_t x) {
  const u32 bits = __float_as_uint(x), sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return (scalar_t)(sign | 0x7fffu);
  if (size >= 0x477ff000u) return (scalar_t)(sign | 0x7c00u);    // 65520 and more round to infinity
  if (size < 0x38800000u)                                        // below 2^-14: adding 1/2 rounds to multiples of 2^-24
    return (scalar_t)(sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u));
  return (scalar_t)(sign | ((size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13));
}
#else
// One instruction each; the two functions above are the same map (tests/kernels/test_pointwise.py goes through all of it).
DEVICE accum_t up(scalar_t h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
DEVICE scalar_t down(accum_t x) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
#endif
#elif defined(LUCID_BF16)
DEVICE accum_t up(scalar_t h) { return __uint_as_float((u32)h << 16); }
// Round to nearest even by an integer addition; NaN apart, whose mantissa would carry into the sign.
DEVICE scalar_t down(accum_t x) {
  const u32 bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (scalar_t)((bits >> 16) | 0x40u);
  return (scalar_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
#else
DEVICE accum_t up(scalar_t x) { return x; }
DEVICE scalar_t down(accum_t x) { return x; }
#endif

#if defined(LUCID_F64)
#define NEG_INF __longlong_as_double((long long)0xfff0000000000000ull)
#define QUIET_NAN __longlong_as_double(0x7ff8000000000000ll)
#else
#define NEG_INF __int_as_float((int)0xff800000u)
#define QUIET_NAN __int_as_float(0x7fc00000)
#endif

DEVICE float  exp_(float x) { return expf(x); }
DEVICE double exp_(double x) { return exp(x); }
DEVICE float  log_(float x) { return logf(x); }
DEVICE double log_(double x) { return log(x); }
DEVICE float  tanh_(float x) { return tanhf(x); }
DEVICE double tanh_(double x) { return tanh(x); }
DEVICE float  erfc_(float x) { return erfcf(x); }
DEVICE double erfc_(double x) { return erfc(x); }
DEVICE float  sqrt_(float x) { return sqrtf(x); }
DEVICE double sqrt_(double x) { return sqrt(x); }
DEVICE float  max_(float x, float y) { return fmaxf(x, y); }
DEVICE double max_(double x, double y) { return fmax(x, y); }

// ---- packs: what one thread loads at once ----

#ifdef LUCID_SCALAR
#define PACK 1
#else
#define PACK (16 / (int)sizeof(scalar_t))
#endif

struct __align__(sizeof(scalar_t) * PACK) pack {
  scalar_t v[PACK];
};
// PACK accumulators: 16 bytes at a time, however many there are.
struct __align__(PACK == 1 ? sizeof(accum_t) : 16) accum_pack {
  accum_t v[PACK];
};

// The store is an intrinsic: NVRTC often splits an assignment of a struct into stores of its members (ci/kernels counts the 128-bit ones).
template <class P> DEVICE P load_wide(const void* from) {
  P p;
  if (sizeof(P) % 16 == 0) {
#pragma unroll
    for (int j = 0; j < (int)(sizeof(P) / 16); j++) reinterpret_cast<uint4*>(&p)[j] = reinterpret_cast<const uint4*>(from)[j];
  } else {
    p = *reinterpret_cast<const P*>(from);
  }
  return p;
}
template <class P> DEVICE void store_wide(void* to, const P& p) {
  if (sizeof(P) % 16 == 0) {
#pragma unroll
    for (int j = 0; j < (int)(sizeof(P) / 16); j++) __stwb(reinterpret_cast<uint4*>(to) + j, reinterpret_cast<const uint4*>(&p)[j]);
  } else {
    *reinterpret_cast<P*>(to) = p;
  }
}
DEVICE pack load(const scalar_t* __restrict__ x, i64 i) { return load_wide<pack>(x + i); }
DEVICE void store(scalar_t* __restrict__ x, i64 i, pack p) { store_wide(x + i, p); }
DEVICE void store(accum_t* __restrict__ x, i64 i, accum_pack p) { store_wide(x + i, p); }

// ---- grid-stride loops in 64 bits ----

DEVICE i64 thread_index() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE i64 thread_count() { return (i64)gridDim.x * blockDim.x; }

// Runs `body(i, pack)` over whole packs, then `tail(i)` over the elements that are left.
#define FOR_PACKS(i, n) for (i64 i = thread_index() * PACK; i + PACK <= (n); i += thread_count() * PACK)
#define FOR_TAIL(i, n) for (i64 i = (n) / PACK * PACK + thread_index(); i < (n); i += thread_count())
#define EACH(k) _Pragma("unroll") for (int k = 0; k < PACK; k++)

// ---- sums and maxima of a warp and of a block: always in the same order, so results repeat bit for bit ----

DEVICE accum_t warp_sum(accum_t x) {
#pragma unroll
  for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
  return x;
}
DEVICE accum_t warp_max(accum_t x) {
#pragma unroll
  for (int o = 16; o; o >>= 1) x = max_(x, __shfl_xor_sync(0xffffffffu, x, o));
  return x;
}

// ---- rows: LUCID_THREADS threads share a row ----
// 32: a warp per row, blockDim.y rows per block, shuffles only. More: a block per row, one partial per warp in shared memory.

#ifdef LUCID_THREADS
#define WARPS (LUCID_THREADS / 32)
#define ROW_BOUNDS __launch_bounds__(LUCID_THREADS == 32 ? 256 : LUCID_THREADS, 1)
#define FOR_ROWS(row) for (i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y; row < rows; row += (i64)gridDim.x * blockDim.y)
// A row has at most 2^30 columns: 32-bit indices within it, 64-bit ones between rows.
#define FOR_COLUMNS(c) _Pragma("unroll 2") for (int c = threadIdx.x * PACK; c < cols; c += LUCID_THREADS * PACK)
struct pair {
  accum_t x, y;
};
// Both sums of a row, in every one of its threads. `shared` is free again after the next barrier inside.
DEVICE pair row_sum(accum_t x, accum_t y, pair* shared) {
  x = warp_sum(x);
  y = warp_sum(y);
  if (WARPS > 1) {
    __syncthreads();    // the partials of the row before may still be read
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = pair{x, y};
    __syncthreads();
    x = shared[0].x;
    y = shared[0].y;
#pragma unroll 4
    for (int w = 1; w < WARPS; w++) {
      x += shared[w].x;
      y += shared[w].y;
    }
  }
  return pair{x, y};
}
// The maximum of a row and the sum of exp(x - maximum), from each thread's own maximum and sum.
DEVICE pair row_max_sum(accum_t m, accum_t s, pair* shared) {
  accum_t top = warp_max(m);
  s = warp_sum(m == NEG_INF ? s : s * exp_(m - top));    // s is 0 or NaN where m is -inf
  if (WARPS > 1) {
    __syncthreads();
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = pair{top, s};
    __syncthreads();
    top = shared[0].x;
#pragma unroll 4
    for (int w = 1; w < WARPS; w++) top = max_(top, shared[w].x);
    s = 0;
#pragma unroll 4
    for (int w = 0; w < WARPS; w++) s += shared[w].x == NEG_INF ? shared[w].y : shared[w].y * exp_(shared[w].x - top);
  }
  return pair{top, s};
}
// Takes a pack into the running maximum m and the running sum s of exp(x - m). NaN reaches s whatever m is.
DEVICE void online(accum_t& m, accum_t& s, const pack& p) {
  accum_t top = m;
  EACH(k) top = max_(top, up(p.v[k]));
  if (top > m) {
    s *= exp_(m - top);
    m = top;
  }
  accum_t part = 0;    // packs are summed on their own first: shorter chains of additions, smaller errors
  EACH(k) {
    const accum_t x = up(p.v[k]);
    part += m == NEG_INF ? (x != x ? x : (accum_t)0) : exp_(x - m);
  }
  s += part;
}
// The maximum of a row x and the sum of exp(x - maximum), in every one of its threads.
DEVICE pair row_statistics(const scalar_t* x, int cols, pair* shared) {
  accum_t m = NEG_INF, s = 0;
  FOR_COLUMNS(c) online(m, s, load(x, c));
  return row_max_sum(m, s, shared);
}
#endif

// ---- Philox 4x32-10 (Salmon et al. 2011, doi 10.1145/2063384.2063405), the stream of lucid/storage/random.py ----
// Word i of the stream of `seed` is lane i % 4 of the block with counter (lo(i / 4), hi(i / 4), 0, 0) and key (lo(seed), hi(seed)).

DEVICE uint4 philox(u64 block, u64 seed) {
  uint4 c = make_uint4((u32)block, (u32)(block >> 32), 0u, 0u);
  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const u32 h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
    const u32 h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
    c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}
DEVICE u32 lane_of(const uint4& w, int k) { return k == 0 ? w.x : k == 1 ? w.y : k == 2 ? w.z : w.w; }
// Word i + k of the stream of state (seed, offset), `skip` blocks on. i is a multiple of PACK, or k is 0: the calls for a pack's elements then name the
// same blocks, and the compiler makes each once.
DEVICE u32 word_of(const u64* __restrict__ state, u64 skip, i64 i, int k) {
  return lane_of(philox(state[1] + skip + (u64)(i / 4 + k / 4), state[0]), (int)((i + k) % 4));
}
