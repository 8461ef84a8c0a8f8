#include "lucid.cuh"
// Batch norm (Ioffe and Szegedy 2015, arXiv:1502.03167) of x [batch, channels, inner] over batch and inner.
//   xhat = (x - mean) rstd, out = xhat weight + bias, rstd = 1 / sqrt(var + eps)
//   dx = weight rstd (g - mean(g) - xhat mean(g xhat));  dweight = sum(g xhat);  dbias = sum(g)
// Three launches each way: partial sums of G ranges, their combination, one pass over the elements.
//
// batch_norm_partial, batch_norm_partial_columns         mean and squared deviations of each range, both by two passes of which the second is cached
// batch_norm_statistics                                  combines them (Chan, Golub, LeVeque 1983), makes scale and shift
// batch_norm_apply                                       out = (x - mean) scale + bias
// batch_norm_backward_partial, .._columns                sum(g) and sum(g (x - mean)) of each range
// batch_norm_backward_finish                             dweight, dbias and the coefficients of dx
// batch_norm_backward_apply                              dx
//
// bytes batch_norm_partial: count*channels*s; count=802816 channels=64 float32: 205.5 MB, floor 47.8 us on an H200
// bytes batch_norm_partial_columns: rows*cols*s; rows=65536 cols=1024 float32: 268.4 MB, floor 62.43 us on an H200
// bytes batch_norm_statistics: 3*parts*channels*a; channels=64 parts=98 float32: 0.07526 MB, floor 0.0175 us in the L2 cache of an H200
// bytes batch_norm_apply: 2*n*s; n=51380224 float32: 411 MB, floor 95.59 us on an H200
// bytes batch_norm_backward_partial: 2*count*channels*s; count=802816 channels=64 float32: 411 MB, floor 95.59 us on an H200
// bytes batch_norm_backward_partial_columns: 2*rows*cols*s; rows=65536 cols=1024 float32: 536.9 MB, floor 124.9 us on an H200
// bytes batch_norm_backward_finish: 2*parts*channels*a; channels=64 parts=98 float32: 0.05018 MB, floor 0.01167 us in the L2 cache of an H200
// bytes batch_norm_backward_apply: 3*n*s; n=51380224 float32: 616.6 MB, floor 143.4 us on an H200
//
// out: the output of a relu behind the norm; g counts except where it is 0. Backward 7 n s, where a masked g in memory takes 8.
// dx in .._partial: the norm used fixed statistics (evaluation), so that dx = weight rstd g needs no sums: all gradients in one pass, 4 n s with out and x.
//
// `columns`: inner is 1, so that the channels are the columns of a matrix: block (32, 8), grid (tiles of 32 packs, G). Else block (LUCID_THREADS), grid
// (channels, G): range y holds the elements [y, y + 1) * each of the batch * inner elements of its channel. batch * inner < 2^31.

#ifdef LUCID_THREADS

// Runs over this block's elements of its channel in steps of packs; CHANNEL_ELEMENT(i) is the index in x of element i.
#define FOR_CHANNEL(i) for (u32 i = first + threadIdx.x * PACK; i < last; i += LUCID_THREADS * PACK)
#define CHANNEL_ELEMENT(i) (((i64)((i) / (u32)inner) * channels + blockIdx.x) * inner + (i) % (u32)inner)

DEVICE u32 range_start(u32 part, u32 parts, u32 count) {
  const u32 each = ((count + parts - 1) / parts + PACK - 1) / PACK * PACK;
  return (u32)min((u64)part * each, (u64)count);
}

KERNEL ROW_BOUNDS batch_norm_partial(const scalar_t* __restrict__ x,     // [batch, channels, inner]
                                     accum_t* __restrict__ partial,      // [3, G, channels]: mean, squared deviations, count of each range
                                     int channels, int count, int inner) {
  __shared__ pair shared[WARPS];
  const u32 first = range_start(blockIdx.y, gridDim.y, count), last = range_start(blockIdx.y + 1, gridDim.y, count);
  accum_t sum = 0, square = 0;
  FOR_CHANNEL(i) {
    const pack p = load(x, CHANNEL_ELEMENT(i));
    accum_t part = 0;
    EACH(k) part += up(p.v[k]);
    sum += part;
  }
  const accum_t size = (accum_t)(last - first);
  const accum_t mean = size > 0 ? row_sum(sum, 0, shared).x / size : (accum_t)0;
  FOR_CHANNEL(i) {
    const pack p = load(x, CHANNEL_ELEMENT(i));
    accum_t part = 0;
    EACH(k) {
      const accum_t d = up(p.v[k]) - mean;
      part += d * d;
    }
    square += part;
  }
  square = row_sum(square, 0, shared).x;
  if (threadIdx.x == 0) {
    const i64 all = (i64)gridDim.y * channels, at = (i64)blockIdx.y * channels + blockIdx.x;
    partial[at] = mean;
    partial[all + at] = square;
    partial[2 * all + at] = size;
  }
}

KERNEL ROW_BOUNDS batch_norm_backward_partial(const scalar_t* __restrict__ g,         // [batch, channels, inner]
                                              const scalar_t* __restrict__ x,         // [batch, channels, inner] or null: no sum of g (x - mean)
                                              const scalar_t* __restrict__ out,       // [batch, channels, inner] or null
                                              const accum_t* __restrict__ mean,       // [channels]; null where x is
                                              const accum_t* __restrict__ var,        // [channels]; null where dx is
                                              const scalar_t* __restrict__ weight,    // [channels] or null
                                              scalar_t* __restrict__ dx,              // [batch, channels, inner] or null
                                              accum_t* __restrict__ partial,          // [2, G, channels]: sum(g), sum(g (x - mean)), or null
                                              accum_t eps, int channels, int count, int inner) {
  __shared__ pair shared[WARPS];
  const u32 first = range_start(blockIdx.y, gridDim.y, count), last = range_start(blockIdx.y + 1, gridDim.y, count);
  const accum_t mu = x ? mean[blockIdx.x] : (accum_t)0;
  const accum_t scale = dx ? (weight ? up(weight[blockIdx.x]) : (accum_t)1) / sqrt_(var[blockIdx.x] + eps) : (accum_t)0;
  accum_t sum = 0, dot = 0;
  FOR_CHANNEL(i) {
    const i64 at = CHANNEL_ELEMENT(i);
    pack p, q = load(g, at), m;
    if (x) p = load(x, at);
    if (out) m = load(out, at);
    pair part = {0, 0};
    EACH(k) {
      const accum_t d = !out || !(up(m.v[k]) <= 0) ? up(q.v[k]) : (accum_t)0;
      part.x += d;
      if (x) part.y += d * (up(p.v[k]) - mu);
      q.v[k] = down(d * scale);
    }
    if (dx) store(dx, at, q);
    sum += part.x;
    dot += part.y;
  }
  if (!partial) return;
  const pair s = row_sum(sum, dot, shared);
  if (threadIdx.x == 0) {
    const i64 all = (i64)gridDim.y * channels, at = (i64)blockIdx.y * channels + blockIdx.x;
    partial[at] = s.x;
    partial[all + at] = s.y;
  }
}

#else    // no LUCID_THREADS

// The sum of the 8 rows of `shared`, in order.
DEVICE accum_pack sum_of_rows(const accum_pack (*shared)[32]) {
  accum_pack total = shared[0][threadIdx.x];
  for (int y = 1; y < 8; y++) {
    const accum_pack other = shared[y][threadIdx.x];
    EACH(k) total.v[k] += other.v[k];
  }
  return total;
}

KERNEL __launch_bounds__(256, 1) batch_norm_partial_columns(const scalar_t* __restrict__ x,    // [batch, channels]
                                                            accum_t* __restrict__ partial,     // [3, G, channels]
                                                            i64 rows, i64 cols) {
  __shared__ accum_pack shared[8][32];
  const i64 c = ((i64)blockIdx.x * 32 + threadIdx.x) * PACK;
  const i64 each = (rows + gridDim.y - 1) / gridDim.y, r0 = min(rows, blockIdx.y * each), r1 = min(rows, r0 + each);
  const accum_t size = (accum_t)(r1 - r0);
  accum_pack sum = {}, square = {};
  if (c < cols)
    for (i64 r = r0 + threadIdx.y; r < r1; r += 8) {
      const pack p = load(x, r * cols + c);
      EACH(k) sum.v[k] += up(p.v[k]);
    }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  accum_pack mean = sum_of_rows(shared);
  EACH(k) mean.v[k] = size > 0 ? mean.v[k] / size : (accum_t)0;
  if (c < cols)
    for (i64 r = r0 + threadIdx.y; r < r1; r += 8) {
      const pack p = load(x, r * cols + c);
      EACH(k) {
        const accum_t d = up(p.v[k]) - mean.v[k];
        square.v[k] += d * d;
      }
    }
  __syncthreads();    // `shared` has been read by all
  shared[threadIdx.y][threadIdx.x] = square;
  __syncthreads();
  if (threadIdx.y == 0 && c < cols) {
    const i64 all = gridDim.y * cols, at = blockIdx.y * cols + c;
    accum_pack sizes;
    EACH(k) sizes.v[k] = size;
    store(partial, at, mean);
    store(partial, all + at, sum_of_rows(shared));
    store(partial, 2 * all + at, sizes);
  }
}

// launch: a thread per channel.
KERNEL __launch_bounds__(128, 1) batch_norm_statistics(const accum_t* __restrict__ partial,    // [3, parts, channels]
                                                       const scalar_t* __restrict__ weight,    // [channels] or null
                                                       accum_t* __restrict__ mean,             // [channels]
                                                       accum_t* __restrict__ var,              // [channels], biased
                                                       accum_t* __restrict__ scale,            // [channels]: weight / sqrt(var + eps)
                                                       accum_t eps, i64 parts, i64 channels) {
  const i64 c = thread_index();
  if (c >= channels) return;
  accum_t count = 0, mu = 0, square = 0;
  for (i64 p = 0; p < parts; p++) {
    const accum_t m = partial[p * channels + c], s = partial[(parts + p) * channels + c], n = partial[(2 * parts + p) * channels + c];
    if (n == 0) continue;
    const accum_t d = m - mu, share = n / (count + n);
    mu += d * share;
    square += s + d * d * count * share;
    count += n;
  }
  const accum_t v = square / count;
  mean[c] = mu;
  var[c] = v;
  scale[c] = (weight ? up(weight[c]) : (accum_t)1) / sqrt_(v + eps);
}

// Channel of the element at index i, which needs fewer than 2^31 elements. A pack lies within a channel, or each element in the next one (inner 1).
#define CHANNEL(i, k) (inner == 1 ? (u32)((u32)(i) % (u32)channels) + (k) : (u32)(i) / (u32)inner % (u32)channels)

KERNEL __launch_bounds__(256, 1) batch_norm_apply(const scalar_t* __restrict__ x,       // [batch, channels, inner]
                                                  const accum_t* __restrict__ mean,     // [channels]
                                                  const accum_t* __restrict__ scale,    // [channels]
                                                  const scalar_t* __restrict__ bias,    // [channels] or null
                                                  scalar_t* __restrict__ out,           // [batch, channels, inner]
                                                  int channels, int inner, i64 n) {
  FOR_PACKS(i, n) {
    pack p = load(x, i);
    EACH(k) {
      const u32 c = CHANNEL(i, k);
      p.v[k] = down((up(p.v[k]) - mean[c]) * scale[c] + (bias ? up(bias[c]) : (accum_t)0));
    }
    store(out, i, p);
  }
}

KERNEL __launch_bounds__(256, 1) batch_norm_backward_partial_columns(const scalar_t* __restrict__ g,         // [batch, channels]
                                                                     const scalar_t* __restrict__ x,         // [batch, channels] or null
                                                                     const scalar_t* __restrict__ out,       // [batch, channels] or null
                                                                     const accum_t* __restrict__ mean,       // [channels]; null where x is
                                                                     const accum_t* __restrict__ var,        // [channels]; null where dx is
                                                                     const scalar_t* __restrict__ weight,    // [channels] or null
                                                                     scalar_t* __restrict__ dx,              // [batch, channels] or null
                                                                     accum_t* __restrict__ partial,          // [2, G, channels] or null
                                                                     accum_t eps, i64 rows, i64 cols) {
  __shared__ accum_pack shared[2][8][32];
  const i64 c = ((i64)blockIdx.x * 32 + threadIdx.x) * PACK;
  const i64 each = (rows + gridDim.y - 1) / gridDim.y, r0 = blockIdx.y * each, r1 = min(rows, r0 + each);
  accum_pack sum = {}, dot = {};
  if (c < cols) {
    accum_t mu[PACK], scale[PACK];
    EACH(k) {
      mu[k] = x ? mean[c + k] : (accum_t)0;
      scale[k] = dx ? (weight ? up(weight[c + k]) : (accum_t)1) / sqrt_(var[c + k] + eps) : (accum_t)0;
    }
    for (i64 r = r0 + threadIdx.y; r < r1; r += 8) {
      pack p, q = load(g, r * cols + c), m;
      if (x) p = load(x, r * cols + c);
      if (out) m = load(out, r * cols + c);
      EACH(k) {
        const accum_t d = !out || !(up(m.v[k]) <= 0) ? up(q.v[k]) : (accum_t)0;
        sum.v[k] += d;
        if (x) dot.v[k] += d * (up(p.v[k]) - mu[k]);
        q.v[k] = down(d * scale[k]);
      }
      if (dx) store(dx, r * cols + c, q);
    }
  }
  if (!partial) return;
  shared[0][threadIdx.y][threadIdx.x] = sum;
  shared[1][threadIdx.y][threadIdx.x] = dot;
  __syncthreads();
  if (threadIdx.y > 1 || c >= cols) return;
  store(partial, (threadIdx.y * (i64)gridDim.y + blockIdx.y) * cols + c, sum_of_rows(shared[threadIdx.y]));
}

// dx = a g + b (x - mean) + c. launch: a thread per channel.
KERNEL __launch_bounds__(128, 1) batch_norm_backward_finish(const accum_t* __restrict__ partial,    // [2, parts, channels]
                                                            const scalar_t* __restrict__ weight,    // [channels] or null
                                                            const accum_t* __restrict__ var,        // [channels]
                                                            scalar_t* __restrict__ dweight,         // [channels]
                                                            scalar_t* __restrict__ dbias,           // [channels]
                                                            accum_t* __restrict__ coefficients,     // [3, channels]: a, b, c; null: not wanted
                                                            accum_t eps, i64 count, i64 parts, i64 channels) {
  const i64 c = thread_index();
  if (c >= channels) return;
  accum_t sum = 0, dot = 0;
  for (i64 p = 0; p < parts; p++) {
    sum += partial[p * channels + c];
    dot += partial[(parts + p) * channels + c];
  }
  const accum_t rstd = 1 / sqrt_(var[c] + eps), a = weight ? up(weight[c]) * rstd : rstd;
  dweight[c] = down(dot * rstd);
  dbias[c] = down(sum);
  if (!coefficients) return;
  coefficients[c] = a;
  coefficients[channels + c] = -a * rstd * rstd * (dot / (accum_t)count);
  coefficients[2 * channels + c] = -a * (sum / (accum_t)count);
}

KERNEL __launch_bounds__(256, 1) batch_norm_backward_apply(const scalar_t* __restrict__ g,               // [batch, channels, inner]
                                                           const scalar_t* __restrict__ x,               // [batch, channels, inner]
                                                           const scalar_t* __restrict__ out,             // [batch, channels, inner] or null
                                                           const accum_t* __restrict__ mean,             // [channels]
                                                           const accum_t* __restrict__ coefficients,     // [3, channels]
                                                           scalar_t* __restrict__ dx,                    // [batch, channels, inner]
                                                           int channels, int inner, i64 n) {
  FOR_PACKS(i, n) {
    pack p = load(x, i), m;
    const pack q = load(g, i);
    if (out) m = load(out, i);
    EACH(k) {
      const u32 c = CHANNEL(i, k);
      const accum_t d = !out || !(up(m.v[k]) <= 0) ? up(q.v[k]) : (accum_t)0;
      p.v[k] = down(coefficients[c] * d + coefficients[channels + c] * (up(p.v[k]) - mean[c]) + coefficients[2 * channels + c]);
    }
    store(dx, i, p);
  }
}
#endif
