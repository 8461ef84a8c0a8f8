#include "lucid.cuh"
// Any number of gradients in one launch, named by tables in device memory as in optimizer.cu: their norm, their clipping, the loss scale divided out of them.
//
// gradient_norm          partial[b] = sum x^2 (LUCID_NORM=2), sum |x| (1) or max |x| (0) over block b's part of its tensor
// gradient_norm_finish   total = sqrt(sum partial), sum partial or max partial: one block, always in the same order
// gradient_clip          x *= min(1, limit / (total + 1e-6)), which leaves memory alone where that is 1 (NaN is not)
// gradient_unscale       x /= scale; found = 1 when a result is inf or NaN
// loss_scale             after a step: found: scale *= backoff; else scale *= growth after `interval` good steps in a row, unless that overflows
// A tensor whose address is 0 is left out. NaN spreads in all of them.
//
// bytes gradient_norm: n*s; n=124000000 float32: 496 MB, floor 115.3 us on an H200
// bytes gradient_norm_finish: blocks*a; blocks=7569 float32: 0.03028 MB, floor 0.007041 us in the L2 cache of an H200
// bytes gradient_clip: 2*n*s; n=124000000 float32: 992 MB, floor 230.7 us on an H200
// bytes gradient_unscale: 2*n*s; n=124000000 float32: 992 MB, floor 230.7 us on an H200
// bytes loss_scale: 16; float32: 1.6e-05 MB, floor 3.721e-06 us in the L2 cache of an H200
//
// launch: 256 threads, a block per entry of block_tensor; gradient_norm_finish 512 threads in one block; loss_scale one thread.

#define TABLES const u64 *__restrict__ grads,        /* [tensors] addresses, or 0 */  \
               const i64 *__restrict__ sizes,        /* [tensors] elements */         \
               const int *__restrict__ block_tensor, /* [blocks] */                   \
               const i64 *__restrict__ block_start,  /* [blocks] first element */     \
               i64 chunk

#define PART(SCALAR)                                                                  \
  const int t = block_tensor[blockIdx.x];                                             \
  SCALAR* const x = (SCALAR*)grads[t];                                                \
  const i64 start = block_start[blockIdx.x], stop = x ? min(sizes[t], start + chunk) : start; \
  const bool aligned = (u64)x % 16 == 0;                                              \
  i64 i = start + threadIdx.x * PACK;

#ifdef LUCID_NORM
DEVICE accum_t size_of(accum_t x) {
#if LUCID_NORM == 2
  return x * x;
#else
  return x < 0 ? -x : x;
#endif
}
DEVICE accum_t joined(accum_t x, accum_t y) {
#if LUCID_NORM == 0
  return x > y || x != x ? x : y;
#else
  return x + y;
#endif
}
DEVICE accum_t warp_joined(accum_t x) {
#pragma unroll
  for (int o = 16; o; o >>= 1) x = joined(x, __shfl_xor_sync(0xffffffffu, x, o));
  return x;
}
// Of `warps` warps, in thread 0.
DEVICE accum_t block_joined(accum_t x, accum_t* shared, int warps) {
  x = warp_joined(x);
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = x;
  __syncthreads();
  return warp_joined((int)threadIdx.x < warps ? shared[threadIdx.x] : (accum_t)0);
}

KERNEL __launch_bounds__(256, 1) gradient_norm(TABLES,
                                               accum_t* __restrict__ partial) {    // [blocks]
  __shared__ accum_t shared[8];
  PART(const scalar_t)
  accum_t sum = 0;
  if (aligned)
#pragma unroll 2
    for (; i + PACK <= stop; i += 256 * PACK) {
      const pack y = load(x, i);
      accum_t part = 0;    // packs on their own first: shorter chains of additions, smaller errors
      EACH(k) part = joined(part, size_of(up(y.v[k])));
      sum = joined(sum, part);
    }
  for (; i < stop; i += 256 * PACK)
    for (i64 j = i; j < min(stop, i + PACK); j++) sum = joined(sum, size_of(up(x[j])));
  sum = block_joined(sum, shared, 8);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

KERNEL __launch_bounds__(512, 1) gradient_norm_finish(const accum_t* __restrict__ partial,    // [blocks]
                                                      accum_t* __restrict__ total,            // [1]
                                                      i64 blocks) {
  __shared__ accum_t shared[16];
  accum_t sum = 0;
  for (i64 b = threadIdx.x; b < blocks; b += 512) sum = joined(sum, partial[b]);
  sum = block_joined(sum, shared, 16);
#if LUCID_NORM == 2
  sum = sqrt_(sum);
#endif
  if (threadIdx.x == 0) total[0] = sum;
}
#else

// x[..] = VALUE of each element v of the block's part.
#define CHANGE(VALUE)                                                                 \
  if (aligned)                                                                        \
    _Pragma("unroll 2") for (; i + PACK <= stop; i += 256 * PACK) {                   \
      pack y = load_wide<pack>(x + i);                                                \
      EACH(k) {                                                                       \
        const scalar_t v = y.v[k];                                                    \
        y.v[k] = VALUE;                                                               \
      }                                                                               \
      store_wide(x + i, y);                                                           \
    }                                                                                 \
  for (; i < stop; i += 256 * PACK)                                                   \
    for (i64 j = i; j < min(stop, i + PACK); j++) {                                   \
      const scalar_t v = x[j];                                                        \
      x[j] = VALUE;                                                                   \
    }

KERNEL __launch_bounds__(256, 1) gradient_clip(TABLES,
                                               const accum_t* __restrict__ total,    // [1]
                                               accum_t limit) {
  const accum_t factor = limit / (total[0] + (accum_t)1e-6);
  if (factor >= 1) return;
  PART(scalar_t)
  CHANGE(down(up(v) * factor))
}

// v * factor, noted in `bad` when that is inf or NaN: its difference from itself is then NaN.
DEVICE scalar_t checked(scalar_t v, accum_t factor, bool& bad) {
  const scalar_t y = down(up(v) * factor);
  bad |= !(up(y) - up(y) == 0);
  return y;
}

KERNEL __launch_bounds__(256, 1) gradient_unscale(TABLES,
                                                  const accum_t* __restrict__ scale,    // [1]
                                                  int* __restrict__ found) {            // [1]
  const accum_t factor = 1 / scale[0];
  bool bad = false;
  PART(scalar_t)
  CHANGE(checked(v, factor, bad))
  if (bad) atomicMax(found, 1);
}

#ifdef LUCID_F32
KERNEL __launch_bounds__(32, 1) loss_scale(accum_t* __restrict__ scale,      // [1]
                                           int* __restrict__ good,           // [1] good steps in a row
                                           const int* __restrict__ found,    // [1]
                                           accum_t growth, accum_t backoff, int interval) {
  if (found[0]) {
    scale[0] *= backoff;
    good[0] = 0;
  } else if (++good[0] == interval) {
    const accum_t next = scale[0] * growth;
    if (next - next == 0) scale[0] = next;    // inf would turn every later gradient to NaN
    good[0] = 0;
  }
}
#endif
#endif
