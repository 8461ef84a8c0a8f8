#include "lucid.cuh"
// Softmax and its logarithm along a dimension that is not the last: of each column of x [outer, n, inner]. As softmax.cu, with the columns side by side in
// packs: maximum and sum of exponentials in one pass, the second finds the tile in cache where 32 packs of n rows fit (n up to about 400).
//
// Columns that leave the cache are read twice: half as many bytes again, and two thirds in the backward pass.
//
// bytes softmax_columns: 2*outer*n*inner*s; outer=64 n=21 inner=65536 float32: 704.6 MB, floor 163.9 us on an H200
// bytes log_softmax_columns: 2*outer*n*inner*s; outer=64 n=21 inner=65536 float32: 704.6 MB, floor 163.9 us on an H200
// bytes softmax_backward_columns: 3*outer*n*inner*s; outer=64 n=21 inner=65536 float32: 1057 MB, floor 245.8 us on an H200
// bytes log_softmax_backward_columns: 3*outer*n*inner*s; outer=64 n=21 inner=65536 float32: 1057 MB, floor 245.8 us on an H200
//
// launch: block (32, 8), grid (tiles of 32 packs of columns, outer); the 8 warps share the n rows, and their parts are joined in a fixed order.

#define TILE const i64 c = ((i64)blockIdx.x * 32 + threadIdx.x) * PACK
#define FOR_OUTER(o) for (i64 o = blockIdx.y; o < outer; o += gridDim.y)
// Rows of this thread: i is the place of its pack.
#define FOR_COLUMN(i) for (i64 r = threadIdx.y, i = (o * n + r) * inner + c; c < inner && r < n; r += 8, i += 8 * inner)

// The sums of a column's parts, in every one of its threads. `shared` is free again after the next barrier inside.
DEVICE void column_sum(accum_pack& x, accum_pack (*shared)[32]) {
  __syncthreads();    // what was there may still be read
  shared[threadIdx.y][threadIdx.x] = x;    // whole packs: single elements of them would meet in the banks
  __syncthreads();
  x = shared[0][threadIdx.x];
  for (int y = 1; y < 8; y++) {
    const accum_pack other = shared[y][threadIdx.x];
    EACH(k) x.v[k] += other.v[k];
  }
}

// Takes x into the running maximum m and the running sum s of exp(x - m). NaN reaches s whatever m is.
DEVICE void online(accum_t& m, accum_t& s, accum_t x) {
  if (x > m) {
    s *= exp_(m - x);
    m = x;
  }
  s += m == NEG_INF ? (x != x ? x : (accum_t)0) : exp_(x - m);
}

// The maximum of each column and the sum of exp(x - maximum), in every one of its threads.
DEVICE void column_statistics(const scalar_t* __restrict__ x, i64 o, i64 n, i64 inner, i64 c, accum_pack& m, accum_pack& s,
                              accum_pack (*shared)[32]) {
  EACH(k) m.v[k] = NEG_INF;
  EACH(k) s.v[k] = 0;
  FOR_COLUMN(i) {
    const pack p = load(x, i);
    EACH(k) online(m.v[k], s.v[k], up(p.v[k]));
  }
  const accum_pack own = m;
  __syncthreads();
  shared[threadIdx.y][threadIdx.x] = m;
  __syncthreads();
  for (int y = 0; y < 8; y++) {
    const accum_pack other = shared[y][threadIdx.x];
    EACH(k) m.v[k] = max_(m.v[k], other.v[k]);
  }
  EACH(k) s.v[k] = own.v[k] == NEG_INF ? s.v[k] : s.v[k] * exp_(own.v[k] - m.v[k]);    // s is 0 or NaN where there is nothing above -inf
  column_sum(s, shared);
}

KERNEL __launch_bounds__(256, 1) softmax_columns(const scalar_t* __restrict__ x,    // [outer, n, inner]
                                                 scalar_t* __restrict__ out,        // [outer, n, inner]
                                                 i64 outer, i64 n, i64 inner) {
  __shared__ accum_pack shared[8][32];
  TILE;
  FOR_OUTER(o) {
    accum_pack m, s;
    column_statistics(x, o, n, inner, c, m, s, shared);
    EACH(k) s.v[k] = 1 / s.v[k];
    FOR_COLUMN(i) {
      pack p = load(x, i);
      EACH(k) p.v[k] = down(exp_(up(p.v[k]) - m.v[k]) * s.v[k]);
      store(out, i, p);
    }
  }
}

KERNEL __launch_bounds__(256, 1) log_softmax_columns(const scalar_t* __restrict__ x,    // [outer, n, inner]
                                                     scalar_t* __restrict__ out,        // [outer, n, inner]
                                                     i64 outer, i64 n, i64 inner) {
  __shared__ accum_pack shared[8][32];
  TILE;
  FOR_OUTER(o) {
    accum_pack m, s;
    column_statistics(x, o, n, inner, c, m, s, shared);
    EACH(k) s.v[k] = log_(s.v[k]);
    FOR_COLUMN(i) {
      pack p = load(x, i);
      EACH(k) p.v[k] = down((up(p.v[k]) - m.v[k]) - s.v[k]);
      store(out, i, p);
    }
  }
}

// dx = out (g - sum(g out))
KERNEL __launch_bounds__(256, 1) softmax_backward_columns(const scalar_t* __restrict__ g,      // [outer, n, inner]
                                                          const scalar_t* __restrict__ out,    // [outer, n, inner]
                                                          scalar_t* __restrict__ dx,           // [outer, n, inner]
                                                          i64 outer, i64 n, i64 inner) {
  __shared__ accum_pack shared[8][32];
  TILE;
  FOR_OUTER(o) {
    accum_pack dot = {};
    FOR_COLUMN(i) {
      const pack a = load(g, i), b = load(out, i);
      EACH(k) dot.v[k] += up(a.v[k]) * up(b.v[k]);
    }
    column_sum(dot, shared);
    FOR_COLUMN(i) {
      const pack a = load(g, i);
      pack b = load(out, i);
      EACH(k) b.v[k] = down(up(b.v[k]) * (up(a.v[k]) - dot.v[k]));
      store(dx, i, b);
    }
  }
}

// dx = g - exp(out) sum(g)
KERNEL __launch_bounds__(256, 1) log_softmax_backward_columns(const scalar_t* __restrict__ g,      // [outer, n, inner]
                                                              const scalar_t* __restrict__ out,    // [outer, n, inner]
                                                              scalar_t* __restrict__ dx,           // [outer, n, inner]
                                                              i64 outer, i64 n, i64 inner) {
  __shared__ accum_pack shared[8][32];
  TILE;
  FOR_OUTER(o) {
    accum_pack total = {};
    FOR_COLUMN(i) {
      const pack a = load(g, i);
      EACH(k) total.v[k] += up(a.v[k]);
    }
    column_sum(total, shared);
    FOR_COLUMN(i) {
      const pack a = load(g, i);
      pack b = load(out, i);
      EACH(k) b.v[k] = down(up(a.v[k]) - exp_(up(b.v[k])) * total.v[k]);
      store(dx, i, b);
    }
  }
}
