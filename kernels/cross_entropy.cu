#include "lucid.cuh"
// Cross entropy of rows of logits x [rows, cols] and class indices, with class weights, ignored targets and label smoothing (Szegedy et al. 2016):
//   loss_r = sum_c k_rc (lse_r - x_rc),  k_rc = (1 - smoothing) w_t [c = t] + (smoothing / cols) w_c,  0 where the target is ignored
//   dx_rc  = g_r (softmax(x)_rc sum_c k_rc - k_rc)
// A target outside [0, cols) makes the row's loss and gradient NaN and is left in `flag` (of several, the largest as an unsigned number): no synchronisation.
//
// cross_entropy            lse, loss, weight of each row
// cross_entropy_finish     sum or weighted mean of the losses, rows in a fixed order
// cross_entropy_backward   dx from x and lse
// cross_entropy_gradient   both in one pass when the gradient of the loss is known: the second read finds the row in cache; x and dx may be one array
//
// bytes cross_entropy: rows*cols*s; rows=8192 cols=50304 float32: 1648 MB, floor 383.3 us on an H200
// bytes cross_entropy_finish: 2*rows*a; rows=8192 float32: 0.06554 MB, floor 0.01524 us in the L2 cache of an H200
// bytes cross_entropy_backward: 2*rows*cols*s; rows=8192 cols=50304 float32: 3297 MB, floor 766.7 us on an H200
// bytes cross_entropy_gradient: 2*rows*cols*s; rows=8192 cols=50304 float32: 3297 MB, floor 766.7 us on an H200
//
// launch: LUCID_THREADS 32: block (32, 8), a warp per row (cols up to 1024); else block (LUCID_THREADS), a block per row. Row-stride grid.

struct target_row {
  i64 t;             // class, or -1 where the row is ignored
  accum_t weight;    // (1 - smoothing) part: w_t; 0 where ignored; NaN where the target is out of range
};

DEVICE target_row target_of(const i64* __restrict__ target, const scalar_t* __restrict__ weight, i64 row, int cols, i64 ignore_index) {
  const i64 t = target[row];
  if (t == ignore_index) return target_row{-1, 0};
  if (t < 0 || t >= cols) return target_row{-1, QUIET_NAN};
  return target_row{t, weight ? up(weight[t]) : (accum_t)1};
}

// sum_c w_c and sum_c w_c (x_c - shift)
DEVICE pair weighted_sums(const scalar_t* x, const scalar_t* __restrict__ weight, int cols, accum_t shift, pair* shared) {
  accum_t total = 0, moved = 0;
  FOR_COLUMNS(c) {
    const pack p = load(x, c);
    pair part = {0, 0};
    EACH(k) {
      const accum_t w = weight ? up(weight[c + k]) : (accum_t)1;
      part.x += w;
      part.y += w * (up(p.v[k]) - shift);
    }
    total += part.x;
    moved += part.y;
  }
  return row_sum(total, moved, shared);
}

struct row_loss {
  accum_t loss, all;    // the loss, and the sum of the row's coefficients k_rc
};

DEVICE row_loss loss_of(const scalar_t* x, const scalar_t* __restrict__ weight, target_row y, int cols, accum_t smoothing, accum_t top,
                        accum_t log_sum, pair* shared) {
  // Read before any thread of the row may overwrite x: the barriers in weighted_sums or the caller's come after.
  const accum_t picked = y.t < 0 ? top : up(x[y.t]);
  const bool counts = y.t >= 0;
  accum_t loss = counts ? (1 - smoothing) * y.weight * (log_sum - (picked - top)) : y.weight;
  accum_t all = (1 - smoothing) * y.weight;
  if (smoothing > 0) {
    const pair s = weighted_sums(x, weight, cols, top, shared);
    const accum_t share = smoothing / (accum_t)cols;
    if (counts) {
      loss += share * (log_sum * s.x - s.y);
      all += share * s.x;
    }
  }
  return row_loss{loss, all};
}

DEVICE void write_gradient(const scalar_t* x, const scalar_t* __restrict__ weight, scalar_t* dx, target_row y, int cols, accum_t smoothing,
                           accum_t shift, accum_t scale, accum_t all) {
  const accum_t share = y.t >= 0 ? smoothing / (accum_t)cols : (accum_t)0;
  const int t = (int)y.t;
  FOR_COLUMNS(c) {
    pack p = load_wide<pack>(x + c);
    EACH(k) {
      accum_t d = exp_(up(p.v[k]) - shift) * all;
      if (share > 0) d -= share * (weight ? up(weight[c + k]) : (accum_t)1);
      if (c + k == t) d -= (1 - smoothing) * y.weight;
      // 0 and not 0 * inf where the row is ignored
      p.v[k] = down(all == 0 && y.weight == 0 ? (accum_t)0 : d * scale);
    }
    store_wide(dx + c, p);
  }
}

KERNEL ROW_BOUNDS cross_entropy(const scalar_t* __restrict__ x,         // [rows, cols]
                                const i64* __restrict__ target,         // [rows]
                                const scalar_t* __restrict__ weight,    // [cols] or null
                                accum_t* __restrict__ loss,             // [rows]
                                accum_t* __restrict__ counted,          // [rows] w_t, 0 where ignored
                                accum_t* __restrict__ lse,              // [rows] log(sum(exp(x)))
                                accum_t* __restrict__ all,              // [rows] sum of the row's coefficients
                                u64* __restrict__ flag,                 // [1]
                                accum_t smoothing, i64 ignore_index, i64 rows, int cols) {
  __shared__ pair shared[WARPS];
  FOR_ROWS(row) {
    const scalar_t* xr = x + row * cols;
    const pair s = row_statistics(xr, cols, shared);
    const accum_t log_sum = log_(s.y);
    const target_row y = target_of(target, weight, row, cols, ignore_index);
    const row_loss l = loss_of(xr, weight, y, cols, smoothing, s.x, log_sum, shared);
    if (threadIdx.x == 0) {
      loss[row] = l.loss;
      counted[row] = y.weight;
      lse[row] = s.x + log_sum;
      all[row] = l.all;
      if (y.weight != y.weight && y.t < 0) atomicMax(flag, (u64)target[row]);    // never 0: that is a class
    }
  }
}

// launch: one block of LUCID_THREADS. out = sum(loss) / total, total = sum(counted) for the mean and 1 for the sum.
KERNEL ROW_BOUNDS cross_entropy_finish(const accum_t* __restrict__ loss,       // [rows]
                                       const accum_t* __restrict__ counted,    // [rows]
                                       scalar_t* __restrict__ out,             // [1]
                                       accum_t* __restrict__ total,            // [1]
                                       int mean, i64 rows) {
  __shared__ pair shared[WARPS];
  accum_t l = 0, w = 0;
  for (i64 r = threadIdx.x; r < rows; r += LUCID_THREADS) {
    l += loss[r];
    w += counted[r];
  }
  const pair s = row_sum(l, w, shared);
  if (threadIdx.x == 0) {
    total[0] = mean ? s.y : (accum_t)1;
    out[0] = down(mean ? s.x / s.y : s.x);
  }
}

KERNEL ROW_BOUNDS cross_entropy_backward(const scalar_t* __restrict__ g,         // [1], or [rows] when per_row
                                         const scalar_t* __restrict__ x,         // [rows, cols]
                                         const i64* __restrict__ target,         // [rows]
                                         const scalar_t* __restrict__ weight,    // [cols] or null
                                         const accum_t* __restrict__ lse,        // [rows]
                                         const accum_t* __restrict__ all,        // [rows]
                                         const accum_t* __restrict__ total,      // [1] or null: divides g
                                         scalar_t* __restrict__ dx,              // [rows, cols]
                                         accum_t smoothing, i64 ignore_index, int per_row, i64 rows, int cols) {
  FOR_ROWS(row) {
    const target_row y = target_of(target, weight, row, cols, ignore_index);
    const accum_t scale = up(g[per_row ? row : 0]) / (total ? total[0] : (accum_t)1);
    write_gradient(x + row * cols, weight, dx + row * cols, y, cols, smoothing, lse[row], scale, all[row]);
  }
}

KERNEL ROW_BOUNDS cross_entropy_gradient(const accum_t* __restrict__ g,          // [1] gradient of each row's loss
                                         const scalar_t* x,                      // [rows, cols]
                                         const i64* __restrict__ target,         // [rows]
                                         const scalar_t* __restrict__ weight,    // [cols] or null
                                         accum_t* __restrict__ loss,             // [rows]
                                         scalar_t* dx,                           // [rows, cols], may be x
                                         u64* __restrict__ flag,                 // [1]
                                         accum_t smoothing, i64 ignore_index, i64 rows, int cols) {
  __shared__ pair shared[WARPS];
  FOR_ROWS(row) {
    const scalar_t* xr = x + row * cols;
    const target_row y = target_of(target, weight, row, cols, ignore_index);
    const pair s = row_statistics(xr, cols, shared);
    const accum_t log_sum = log_(s.y);
    const row_loss l = loss_of(xr, weight, y, cols, smoothing, s.x, log_sum, shared);
    if (threadIdx.x == 0) {
      loss[row] = l.loss;
      if (y.weight != y.weight && y.t < 0) atomicMax(flag, (u64)target[row]);    // never 0: that is a class
    }
    // Every thread has read x[target] before any thread overwrites it.
    if (WARPS > 1) __syncthreads();
    else __syncwarp();
    write_gradient(xr, weight, dx + row * cols, y, cols, smoothing, s.x + log_sum, g[0], l.all);
  }
}
