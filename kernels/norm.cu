#include "lucid.cuh"
// Layer norm (Ba et al. 2016, arXiv:1607.06450) and, with -DLUCID_RMS, RMS norm (Zhang and Sennrich 2019, arXiv:1910.07467) of rows [rows, cols]:
//   xhat = (x - mean) rstd, out = xhat weight + bias;  rstd = 1 / sqrt(var + eps);  RMS: mean = 0, no bias
//   dx = rstd (gw - mean(gw) - xhat mean(gw xhat)) with gw = g weight; dweight = sum over rows of g xhat; dbias = sum over rows of g
//
// norm_forward         out, mean, rstd
// norm_backward        (-DLUCID_ELEMENTS, rows that fit in registers) dx and the partials of dweight and dbias in one pass over g and x.
//                      The partials are finished by column_sum_finish of bias_grad.cu.
// norm_backward_x      dx alone, rows of any length
// norm_backward_weight the partials alone, rows of any length
//
// bytes norm_forward: 2*rows*cols*s; rows=65536 cols=768 float32: 402.7 MB, floor 93.64 us on an H200
// bytes norm_backward: 3*rows*cols*s; rows=65536 cols=768 float32: 604 MB, floor 140.5 us on an H200
// bytes norm_backward_x: 3*rows*cols*s; rows=65536 cols=768 float32: 604 MB, floor 140.5 us on an H200
// bytes norm_backward_weight: 2*rows*cols*s; rows=65536 cols=768 float32: 402.7 MB, floor 93.64 us on an H200
//
// join: a gradient of x that comes past the norm (y = x + f(norm(x)), a residual) is added to dx in the same pass: n s bytes, where a sum of its own moves 3 n s.
//
// launch: LUCID_THREADS 32: block (32, 8), a warp per row; else block (LUCID_THREADS), a block per row. Row-stride grid of G blocks.
// norm_backward needs cols <= LUCID_THREADS * LUCID_ELEMENTS, LUCID_ELEMENTS a multiple of PACK.

#ifdef LUCID_THREADS
#ifndef LUCID_ELEMENTS

KERNEL ROW_BOUNDS norm_forward(const scalar_t* __restrict__ x,         // [rows, cols]
                               const scalar_t* __restrict__ weight,    // [cols] or null
                               const scalar_t* __restrict__ bias,      // [cols] or null
                               scalar_t* __restrict__ out,             // [rows, cols]
                               accum_t* __restrict__ mean,             // [rows]; null for RMS
                               accum_t* __restrict__ rstd,             // [rows]
                               accum_t eps, i64 rows, int cols) {
  __shared__ pair shared[WARPS];
  FOR_ROWS(row) {
    const scalar_t* xr = x + row * cols;
    accum_t mu = 0, square = 0;
#ifndef LUCID_RMS
    accum_t sum = 0;
    FOR_COLUMNS(c) {
      const pack p = load(xr, c);
      accum_t part = 0;
      EACH(k) part += up(p.v[k]);
      sum += part;
    }
    mu = row_sum(sum, 0, shared).x / (accum_t)cols;
#endif
    FOR_COLUMNS(c) {
      const pack p = load(xr, c);
      accum_t part = 0;
      EACH(k) {
        const accum_t d = up(p.v[k]) - mu;
        part += d * d;
      }
      square += part;
    }
    const accum_t rs = 1 / sqrt_(row_sum(square, 0, shared).x / (accum_t)cols + eps);
    FOR_COLUMNS(c) {
      pack p = load(xr, c);
      EACH(k) {
        accum_t y = (up(p.v[k]) - mu) * rs;
        if (weight) y *= up(weight[c + k]);
        if (bias) y += up(bias[c + k]);
        p.v[k] = down(y);
      }
      store(out, row * cols + c, p);
    }
    if (threadIdx.x == 0) {
      if (mean) mean[row] = mu;
      rstd[row] = rs;
    }
  }
}

KERNEL ROW_BOUNDS norm_backward_x(const scalar_t* __restrict__ g,         // [rows, cols]
                                  const scalar_t* __restrict__ x,         // [rows, cols]
                                  const scalar_t* __restrict__ weight,    // [cols] or null
                                  const accum_t* __restrict__ mean,       // [rows]; null for RMS
                                  const accum_t* __restrict__ rstd,       // [rows]
                                  const scalar_t* __restrict__ join,      // [rows, cols] or null: added to dx
                                  scalar_t* __restrict__ dx,              // [rows, cols]
                                  i64 rows, int cols) {
  __shared__ pair shared[WARPS];
  FOR_ROWS(row) {
    const scalar_t *xr = x + row * cols, *gr = g + row * cols;
    const accum_t mu = mean ? mean[row] : (accum_t)0, rs = rstd[row];
    accum_t s1 = 0, s2 = 0;
    FOR_COLUMNS(c) {
      const pack p = load(xr, c), q = load(gr, c);
      pair part = {0, 0};
      EACH(k) {
        const accum_t gw = up(q.v[k]) * (weight ? up(weight[c + k]) : (accum_t)1);
        part.x += gw;
        part.y += gw * ((up(p.v[k]) - mu) * rs);
      }
      s1 += part.x;
      s2 += part.y;
    }
    const pair s = row_sum(s1, s2, shared);
#ifdef LUCID_RMS
    s1 = 0;
#else
    s1 = s.x / (accum_t)cols;
#endif
    s2 = s.y / (accum_t)cols;
    FOR_COLUMNS(c) {
      pack p = load(xr, c), also;
      const pack q = load(gr, c);
      if (join) also = load(join, row * cols + c);
      EACH(k) {
        const accum_t gw = up(q.v[k]) * (weight ? up(weight[c + k]) : (accum_t)1);
        const accum_t d = rs * (gw - s1 - (up(p.v[k]) - mu) * rs * s2);
        p.v[k] = down(join ? d + up(also.v[k]) : d);
      }
      store(dx, row * cols + c, p);
    }
  }
}

#else    // LUCID_ELEMENTS

#define PACKS (LUCID_ELEMENTS / PACK)
#define ROWS_PER_BLOCK (LUCID_THREADS == 32 ? 8 : 1)

// Adds up what the warps of a block have summed, in order, and writes the block's partial row.
DEVICE void write_partial(const accum_t (&sum)[LUCID_ELEMENTS], accum_t* __restrict__ partial, int cols, accum_t* shared) {
  if (ROWS_PER_BLOCK == 1) {
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
      const int c = (j * LUCID_THREADS + threadIdx.x) * PACK;
      accum_pack p;
      EACH(k) p.v[k] = sum[j * PACK + k];
      if (c < cols) store(partial, (i64)blockIdx.x * cols + c, p);
    }
    return;
  }
  __syncthreads();    // the sums before may still be read
#pragma unroll
  for (int j = 0; j < PACKS; j++)
    EACH(k) shared[(threadIdx.y * LUCID_ELEMENTS + j * PACK + k) * LUCID_THREADS + threadIdx.x] = sum[j * PACK + k];
  __syncthreads();
  for (int i = threadIdx.y * LUCID_THREADS + threadIdx.x; i < LUCID_ELEMENTS * LUCID_THREADS; i += ROWS_PER_BLOCK * LUCID_THREADS) {
    // i is (j * PACK + k) * threads + thread
    const int thread = i % LUCID_THREADS, element = i / LUCID_THREADS;
    const int c = (element / PACK * LUCID_THREADS + thread) * PACK + element % PACK;
    accum_t total = 0;
#pragma unroll
    for (int y = 0; y < ROWS_PER_BLOCK; y++) total += shared[y * LUCID_ELEMENTS * LUCID_THREADS + i];
    if (c < cols) partial[(i64)blockIdx.x * cols + c] = total;
  }
}

KERNEL ROW_BOUNDS norm_backward(const scalar_t* __restrict__ g,         // [rows, cols]
                                const scalar_t* __restrict__ x,         // [rows, cols]
                                const scalar_t* __restrict__ weight,    // [cols] or null
                                const accum_t* __restrict__ mean,       // [rows]; null for RMS
                                const accum_t* __restrict__ rstd,       // [rows]
                                const scalar_t* __restrict__ join,      // [rows, cols] or null: added to dx
                                scalar_t* __restrict__ dx,              // [rows, cols] or null
                                accum_t* __restrict__ partial,          // [1 or 2, G, cols]: dweight, then dbias; null: not wanted
                                int biased, i64 rows, int cols) {
  __shared__ pair shared[WARPS];
  __shared__ accum_t sums[ROWS_PER_BLOCK == 1 ? 1 : ROWS_PER_BLOCK * LUCID_THREADS * LUCID_ELEMENTS];
  accum_t dw[LUCID_ELEMENTS] = {}, db[LUCID_ELEMENTS] = {};
  FOR_ROWS(row) {
    const scalar_t *xr = x + row * cols, *gr = g + row * cols;
    const accum_t mu = mean ? mean[row] : (accum_t)0, rs = rstd[row];
    accum_t xhat[LUCID_ELEMENTS], gw[LUCID_ELEMENTS], s1 = 0, s2 = 0;
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
      const int c = (j * LUCID_THREADS + threadIdx.x) * PACK;
      if (c < cols) {
        const pack p = load(xr, c), q = load(gr, c);
        pack w;
        if (weight) w = load(weight, c);
        pair part = {0, 0};
        EACH(k) {
          const int e = j * PACK + k;
          const accum_t d = up(q.v[k]);
          xhat[e] = (up(p.v[k]) - mu) * rs;
          dw[e] += d * xhat[e];
          db[e] += d;
          gw[e] = weight ? d * up(w.v[k]) : d;
          part.x += gw[e];
          part.y += gw[e] * xhat[e];
        }
        s1 += part.x;
        s2 += part.y;
      }
    }
    if (!dx) continue;
    const pair s = row_sum(s1, s2, shared);
#ifdef LUCID_RMS
    s1 = 0;
#else
    s1 = s.x / (accum_t)cols;
#endif
    s2 = s.y / (accum_t)cols;
#pragma unroll
    for (int j = 0; j < PACKS; j++) {
      const int c = (j * LUCID_THREADS + threadIdx.x) * PACK;
      if (c < cols) {
        pack p;
        if (join) p = load(join, row * cols + c);
        EACH(k) {
          const accum_t d = rs * (gw[j * PACK + k] - s1 - xhat[j * PACK + k] * s2);
          p.v[k] = down(join ? d + up(p.v[k]) : d);
        }
        store(dx, row * cols + c, p);
      }
    }
  }
  if (!partial) return;
  write_partial(dw, partial, cols, sums);
  if (biased) write_partial(db, partial + (i64)gridDim.x * cols, cols, sums);
}
#endif    // LUCID_ELEMENTS

#else     // no LUCID_THREADS

// launch: block (32, 8), a pack of columns per thread; grid (tiles of 32 packs, G ranges of rows), as column_sum.
KERNEL __launch_bounds__(256, 1) norm_backward_weight(const scalar_t* __restrict__ g,      // [rows, cols]
                                                      const scalar_t* __restrict__ x,      // [rows, cols]
                                                      const accum_t* __restrict__ mean,    // [rows]; null for RMS
                                                      const accum_t* __restrict__ rstd,    // [rows]
                                                      accum_t* __restrict__ partial,       // [1 or 2, G, cols]
                                                      int biased, i64 rows, i64 cols) {
  __shared__ accum_pack shared[2][8][32];
  const i64 c = ((i64)blockIdx.x * 32 + threadIdx.x) * PACK;
  const i64 each = (rows + gridDim.y - 1) / gridDim.y, r0 = blockIdx.y * each, r1 = min(rows, r0 + each);
  accum_pack dw = {}, db = {};
  if (c < cols) {
#pragma unroll 2
    for (i64 r = r0 + threadIdx.y; r < r1; r += 8) {
      const pack p = load(x, r * cols + c), q = load(g, r * cols + c);
      const accum_t mu = mean ? mean[r] : (accum_t)0, rs = rstd[r];
      EACH(k) {
        dw.v[k] += up(q.v[k]) * ((up(p.v[k]) - mu) * rs);
        db.v[k] += up(q.v[k]);
      }
    }
  }
  shared[0][threadIdx.y][threadIdx.x] = dw;
  shared[1][threadIdx.y][threadIdx.x] = db;
  __syncthreads();
  if (threadIdx.y > biased || c >= cols) return;
  accum_pack total = shared[threadIdx.y][0][threadIdx.x];
  for (int y = 1; y < 8; y++) {
    const accum_pack other = shared[threadIdx.y][y][threadIdx.x];
    EACH(k) total.v[k] += other.v[k];
  }
  store(partial, (threadIdx.y * (i64)gridDim.y + blockIdx.y) * cols + c, total);
}
#endif
