#include "lucid.cuh"
// Softmax and its logarithm along a dimension that is not the last: of each column of x [outer, n, inner]. As softmax.cu, with the columns side by side in
// packs: maximum and sum of exponentials in one pass, the second finds the tile in cache where 32 packs of n rows fit (n up to about 400).
//
// softmax_columns, log_softmax_columns                     2 n s bytes to 3 n s: [64, 21, 256, 256] float32 in 164 us to 246 us at 4.3 TB/s
// softmax_backward_columns, log_softmax_backward_columns   3 n s bytes to 5 n s
//
// launch: block (32, 8), grid (tiles of 32 packs of columns, outer); the 8 warps share the n rows, and their parts are joined in a fixed order.

#define TILE const i64 c = ((i64)blockIdx.x * 32 + threadIdx.x) * PACK
#define FOR_OUTER(o) for (i64 o = blockIdx.y; o < outer; o += gridDim.y)
// Rows of this thread: i is the place of its pack.
#define FOR_COLUMN(i) for (i64 r = threadIdx.y, i = (o * n + r) * inner + c; c < inner && r < n; r += 8, i += 8 * inner)

// The sums of a column's parts, in every one of its threads. `shared` is free again after the next barrier inside.
DEVICE void column_sum(accum_t (&x)[PACK], accum_pack (*shared)[32]) {
  __syncthreads();    // what was there may still be read
  EACH(k) shared[threadIdx.y][threadIdx.x].v[k] = x[k];
  __syncthreads();
  EACH(k) x[k] = shared[0][threadIdx.x].v[k];
  for (int y = 1; y < 8; y++) EACH(k) x[k] += shared[y][threadIdx.x].v[k];
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
DEVICE void column_statistics(const scalar_t* __restrict__ x, i64 o, i64 n, i64 inner, i64 c, accum_t (&m)[PACK], accum_t (&s)[PACK],
                              accum_pack (*shared)[32]) {
  EACH(k) m[k] = NEG_INF;
  EACH(k) s[k] = 0;
  FOR_COLUMN(i) {
    const pack p = load(x, i);
    EACH(k) online(m[k], s[k], up(p.v[k]));
  }
  accum_t own[PACK];
  EACH(k) own[k] = m[k];
  __syncthreads();
  EACH(k) shared[threadIdx.y][threadIdx.x].v[k] = m[k];
  __syncthreads();
  for (int y = 0; y < 8; y++) EACH(k) m[k] = max_(m[k], shared[y][threadIdx.x].v[k]);
  EACH(k) s[k] = own[k] == NEG_INF ? s[k] : s[k] * exp_(own[k] - m[k]);    // s is 0 or NaN where there is nothing above -inf
  column_sum(s, shared);
}

KERNEL __launch_bounds__(256, 1) softmax_columns(const scalar_t* __restrict__ x,    // [outer, n, inner]
                                                 scalar_t* __restrict__ out,        // [outer, n, inner]
                                                 i64 outer, i64 n, i64 inner) {
  __shared__ accum_pack shared[8][32];
  TILE;
  FOR_OUTER(o) {
    accum_t m[PACK], s[PACK];
    column_statistics(x, o, n, inner, c, m, s, shared);
    EACH(k) s[k] = 1 / s[k];
    FOR_COLUMN(i) {
      pack p = load(x, i);
      EACH(k) p.v[k] = down(exp_(up(p.v[k]) - m[k]) * s[k]);
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
    accum_t m[PACK], s[PACK];
    column_statistics(x, o, n, inner, c, m, s, shared);
    EACH(k) s[k] = log_(s[k]);
    FOR_COLUMN(i) {
      pack p = load(x, i);
      EACH(k) p.v[k] = down((up(p.v[k]) - m[k]) - s[k]);
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
    accum_t dot[PACK] = {};
    FOR_COLUMN(i) {
      const pack a = load(g, i), b = load(out, i);
      EACH(k) dot[k] += up(a.v[k]) * up(b.v[k]);
    }
    column_sum(dot, shared);
    FOR_COLUMN(i) {
      const pack a = load(g, i);
      pack b = load(out, i);
      EACH(k) b.v[k] = down(up(b.v[k]) * (up(a.v[k]) - dot[k]));
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
    accum_t total[PACK] = {};
    FOR_COLUMN(i) {
      const pack a = load(g, i);
      EACH(k) total[k] += up(a.v[k]);
    }
    column_sum(total, shared);
    FOR_COLUMN(i) {
      const pack a = load(g, i);
      pack b = load(out, i);
      EACH(k) b.v[k] = down(up(a.v[k]) - exp_(up(b.v[k])) * total[k]);
      store(dx, i, b);
    }
  }
}
