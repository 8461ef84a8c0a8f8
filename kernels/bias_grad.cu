#include "activations.cuh"
// Backward of bias + activation in one pass over g: dz = g f'(v), bias gradient = the column sums of dz. Deterministic: partial sums of row ranges,
// then column_sum_finish adds them in order.
//
// bias_grad            (-DLUCID_SLOPE=...) writes dz and partial [G, cols]
// column_sum           the same without activation: only reads g
// column_sum_finish    out = the sum of partial over G, for one or two stacked partials [outputs, G, cols]
//
// bytes bias_grad: 3*rows*cols*s; rows=8192 cols=3072 float32: 302 MB, floor 70.23 us on an H200
// bytes column_sum: rows*cols*s; rows=8192 cols=3072 float32: 100.7 MB, floor 23.41 us on an H200
// bytes column_sum_finish: parts*cols*a; parts=128 cols=3072 float32: 1.573 MB, floor 0.3658 us in the L2 cache of an H200
//
// launch: block (32, 8), a pack of columns per thread; grid (tiles of 32 packs, G). Rows r0 .. r1 of block y: those of the y-th of G ranges.

#define ROWS_AT_ONCE 8

DEVICE void add_rows_in_order(accum_t (&sum)[PACK], accum_pack (*shared)[32], accum_t* __restrict__ partial, i64 c, i64 cols) {
  accum_pack mine;
  EACH(k) mine.v[k] = sum[k];
  shared[threadIdx.y][threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.y == 0 && c < cols) {
    for (int y = 1; y < ROWS_AT_ONCE; y++) {
      const accum_pack other = shared[y][threadIdx.x];
      EACH(k) mine.v[k] += other.v[k];
    }
    store(partial, blockIdx.y * cols + c, mine);
  }
}

#ifdef LUCID_SLOPE
KERNEL __launch_bounds__(256, 1) bias_grad(const scalar_t* __restrict__ g,     // [rows, cols]
                                           const scalar_t* __restrict__ v,     // [rows, cols] the input or the output of the activation
                                           scalar_t* __restrict__ dz,          // [rows, cols]
                                           accum_t* __restrict__ partial,      // [G, cols]
                                           accum_t slope, i64 rows, i64 cols) {
  __shared__ accum_pack shared[ROWS_AT_ONCE][32];
  const i64 c = ((i64)blockIdx.x * 32 + threadIdx.x) * PACK;
  const i64 each = (rows + gridDim.y - 1) / gridDim.y, r0 = blockIdx.y * each, r1 = min(rows, r0 + each);
  accum_t sum[PACK] = {};
  if (c < cols) {
#pragma unroll 2
    for (i64 r = r0 + threadIdx.y; r < r1; r += ROWS_AT_ONCE) {
      const pack a = load(g, r * cols + c), b = load(v, r * cols + c);
      pack z;
      EACH(k) {
        const accum_t d = up(a.v[k]) * LUCID_SLOPE(up(b.v[k]), slope);
        z.v[k] = down(d);
        sum[k] += d;
      }
      store(dz, r * cols + c, z);
    }
  }
  add_rows_in_order(sum, shared, partial, c, cols);
}
#else
KERNEL __launch_bounds__(256, 1) column_sum(const scalar_t* __restrict__ g,    // [rows, cols]
                                            accum_t* __restrict__ partial,     // [G, cols]
                                            i64 rows, i64 cols) {
  __shared__ accum_pack shared[ROWS_AT_ONCE][32];
  const i64 c = ((i64)blockIdx.x * 32 + threadIdx.x) * PACK;
  const i64 each = (rows + gridDim.y - 1) / gridDim.y, r0 = blockIdx.y * each, r1 = min(rows, r0 + each);
  accum_t sum[PACK] = {};
  if (c < cols) {
#pragma unroll 4
    for (i64 r = r0 + threadIdx.y; r < r1; r += ROWS_AT_ONCE) {
      const pack a = load(g, r * cols + c);
      EACH(k) sum[k] += up(a.v[k]);
    }
  }
  add_rows_in_order(sum, shared, partial, c, cols);
}

// launch: block (32, 8), a column per x; grid (tiles of 32 columns, outputs).
KERNEL __launch_bounds__(256, 1) column_sum_finish(const accum_t* __restrict__ partial,    // [outputs, parts, cols]
                                                   scalar_t* __restrict__ first,           // [cols]
                                                   scalar_t* __restrict__ second,          // [cols], used when gridDim.y is 2
                                                   i64 parts, i64 cols) {
  __shared__ accum_t shared[ROWS_AT_ONCE][32];
  const i64 c = (i64)blockIdx.x * 32 + threadIdx.x;
  const accum_t* mine = partial + blockIdx.y * parts * cols;
  accum_t sum = 0;
  if (c < cols)
    for (i64 p = threadIdx.y; p < parts; p += ROWS_AT_ONCE) sum += mine[p * cols + c];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && c < cols) {
    for (int y = 1; y < ROWS_AT_ONCE; y++) sum += shared[y][threadIdx.x];
    (blockIdx.y ? second : first)[c] = down(sum);
  }
}
#endif
