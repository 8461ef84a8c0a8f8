#include "lucid.cuh"
// Dropout (Srivastava et al. 2014) whose mask is computed and not stored: element i is kept where word i of the Philox stream of `seed`, from block
// `offset + skip` on, is below `threshold` = round(keep * 2^32). That is Generator.bernoulli_mask of lucid/storage/random.py, bit for bit.
//
// dropout        out = x scale where kept, x 0 elsewhere. The backward pass is the same kernel on g
// dropout_mask   the mask as bytes
//
// bytes dropout: 2*n*s; n=67108864 float32: 536.9 MB, floor 124.9 us on an H200
// bytes dropout_mask: n; n=67108864 float32: 67.11 MB, floor 15.61 us on an H200
//
// seed and offset lie in device memory, so that a captured graph draws anew when they change; skip tells the draws of one seed (or graph) apart.
// launch: 256 threads, grid-stride; a thread takes the larger of a pack and a Philox block (4 elements) per step.

#define STEP (PACK > 4 ? PACK : 4)

KERNEL __launch_bounds__(256, 1) dropout(const scalar_t* __restrict__ x,    // [n]
                                         scalar_t* __restrict__ out,        // [n]
                                         const u64* __restrict__ state,     // [2]: seed, offset
                                         u64 skip, u64 threshold, accum_t scale, i64 n) {
  const u64 seed = state[0], offset = state[1] + skip;
  for (i64 i = thread_index() * STEP; i < n; i += thread_count() * STEP) {
    uint4 words[STEP / 4];
#pragma unroll
    for (int b = 0; b < STEP / 4; b++) words[b] = philox(offset + (u64)(i / 4 + b), seed);
    if (i + STEP <= n) {
#pragma unroll
      for (int j = 0; j < STEP; j += PACK) {
        pack p = load(x, i + j);
        EACH(k) p.v[k] = down(up(p.v[k]) * (lane_of(words[(j + k) / 4], (j + k) % 4) < threshold ? scale : (accum_t)0));
        store(out, i + j, p);
      }
    } else {
#pragma unroll
      for (int j = 0; j < STEP; j++)
        if (i + j < n) out[i + j] = down(up(x[i + j]) * (lane_of(words[j / 4], j % 4) < threshold ? scale : (accum_t)0));
    }
  }
}

// launch: 256 threads, 4 elements each, grid-stride.
KERNEL __launch_bounds__(256, 1) dropout_mask(unsigned char* __restrict__ mask,    // [n] 1 where kept
                                              const u64* __restrict__ state,       // [2]: seed, offset
                                              u64 skip, u64 threshold, i64 n) {
  const u64 seed = state[0], offset = state[1] + skip;
  for (i64 i = thread_index() * 4; i < n; i += thread_count() * 4) {
    const uint4 w = philox(offset + (u64)(i / 4), seed);
    const u32 bytes = (w.x < threshold ? 1u : 0u) | (w.y < threshold ? 0x100u : 0u) | (w.z < threshold ? 0x10000u : 0u) | (w.w < threshold ? 0x1000000u : 0u);
    if (PACK > 1 && i + 4 <= n) {
      *reinterpret_cast<u32*>(mask + i) = bytes;
    } else {
      for (int j = 0; j < 4 && i + j < n; j++) mask[i + j] = (unsigned char)(bytes >> 8 * j);
    }
  }
}
