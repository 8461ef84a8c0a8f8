#include "lucid.cuh"
// Softmax and its logarithm along rows [rows, cols], LUCID_THREADS threads per row. Maximum and sum of exponentials in one pass (Milakov and
// Gimelshein 2018, arXiv:1805.02867); the second pass finds the row in cache. 16-bit elements are computed in float32.
// softmax_backward_inplace: the same into g: attention's backward has one matrix of scores then, not two.
//
// bytes softmax: 2*rows*cols*s; rows=65536 cols=768 float32: 402.7 MB, floor 93.64 us on an H200
// bytes log_softmax: 2*rows*cols*s; rows=65536 cols=768 float32: 402.7 MB, floor 93.64 us on an H200
// bytes softmax_backward: 3*rows*cols*s; rows=65536 cols=768 float32: 604 MB, floor 140.5 us on an H200
// bytes softmax_backward_inplace: 3*rows*cols*s; rows=65536 cols=768 float32: 604 MB, floor 140.5 us on an H200
// bytes log_softmax_backward: 3*rows*cols*s; rows=65536 cols=768 float32: 604 MB, floor 140.5 us on an H200
//
// launch: LUCID_THREADS 32: block (32, 8), a warp per row (cols up to 1024); else block (LUCID_THREADS), a block per row. Row-stride grid.

KERNEL ROW_BOUNDS
softmax(const scalar_t* __restrict__ x,    // [rows, cols]
        scalar_t* __restrict__ out,        // [rows, cols]
        i64 rows, int cols) {
  __shared__ pair shared[WARPS];
  FOR_ROWS(row) {
    const pair row_ = row_statistics(x + row * cols, cols, shared);
    const accum_t scale = 1 / row_.y;
    FOR_COLUMNS(c) {
      pack p = load(x, row * cols + c);
      EACH(k) p.v[k] = down(exp_(up(p.v[k]) - row_.x) * scale);
      store(out, row * cols + c, p);
    }
  }
}

KERNEL ROW_BOUNDS
log_softmax(const scalar_t* __restrict__ x,    // [rows, cols]
            scalar_t* __restrict__ out,        // [rows, cols]
            i64 rows, int cols) {
  __shared__ pair shared[WARPS];
  FOR_ROWS(row) {
    const pair row_ = row_statistics(x + row * cols, cols, shared);
    const accum_t shift = log_(row_.y);
    FOR_COLUMNS(c) {
      pack p = load(x, row * cols + c);
      EACH(k) p.v[k] = down((up(p.v[k]) - row_.x) - shift);
      store(out, row * cols + c, p);
    }
  }
}

// dx = out (g - sum(g out)); g and dx may be the same array.
DEVICE void softmax_gradient(const scalar_t* g, const scalar_t* out, scalar_t* dx, i64 rows, int cols, pair* shared) {
  FOR_ROWS(row) {
    accum_t dot = 0;
    FOR_COLUMNS(c) {
      const pack a = load(g, row * cols + c), b = load(out, row * cols + c);
      accum_t part = 0;
      EACH(k) part += up(a.v[k]) * up(b.v[k]);
      dot += part;
    }
    dot = row_sum(dot, 0, shared).x;
    FOR_COLUMNS(c) {
      const pack a = load(g, row * cols + c);
      pack b = load(out, row * cols + c);
      EACH(k) b.v[k] = down(up(b.v[k]) * (up(a.v[k]) - dot));
      store(dx, row * cols + c, b);
    }
  }
}

KERNEL ROW_BOUNDS
softmax_backward(const scalar_t* __restrict__ g,      // [rows, cols]
                 const scalar_t* __restrict__ out,    // [rows, cols]
                 scalar_t* __restrict__ dx,           // [rows, cols]
                 i64 rows, int cols) {
  __shared__ pair shared[WARPS];
  softmax_gradient(g, out, dx, rows, cols, shared);
}

// g is read and written by the same threads, so that it is not __restrict__.
KERNEL ROW_BOUNDS
softmax_backward_inplace(scalar_t* g,                         // [rows, cols]
                         const scalar_t* __restrict__ out,    // [rows, cols]
                         i64 rows, int cols) {
  __shared__ pair shared[WARPS];
  softmax_gradient(g, out, g, rows, cols, shared);
}

// dx = g - exp(out) sum(g)
KERNEL ROW_BOUNDS
log_softmax_backward(const scalar_t* __restrict__ g,      // [rows, cols]
                     const scalar_t* __restrict__ out,    // [rows, cols]
                     scalar_t* __restrict__ dx,           // [rows, cols]
                     i64 rows, int cols) {
  __shared__ pair shared[WARPS];
  FOR_ROWS(row) {
    accum_t total = 0;
    FOR_COLUMNS(c) {
      const pack a = load(g, row * cols + c);
      accum_t part = 0;
      EACH(k) part += up(a.v[k]);
      total += part;
    }
    total = row_sum(total, 0, shared).x;
    FOR_COLUMNS(c) {
      const pack a = load(g, row * cols + c);
      pack b = load(out, row * cols + c);
      EACH(k) b.v[k] = down(up(a.v[k]) - exp_(up(b.v[k])) * total);
      store(dx, row * cols + c, b);
    }
  }
}
