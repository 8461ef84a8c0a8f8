#include "windows.cuh"
// Max and mean pooling of x [planes, n0, n1, n2] by windows [o0, o1, o2], and their derivatives. A gradient is gathered by each input cell from the
// windows that contain it, in a fixed order, so there are no atomics and no zero fill.
//
// max_pool            the largest cell of each window and its number in the window
// max_pool_backward   dx: g of the windows whose largest cell this is
// avg_pool            the mean of each window
// avg_pool_backward   dx: the shares of g of the windows that contain the cell
//
// bytes max_pool: (inputs+n)*s+n; n=51380224 inputs=205520896 float32: 1079 MB, floor 250.9 us on an H200
// bytes max_pool_backward: (n+outputs)*s+outputs; n=205520896 outputs=51380224 float32: 1079 MB, floor 250.9 us on an H200
// bytes avg_pool: (inputs+n)*s; n=51380224 inputs=205520896 float32: 1028 MB, floor 239 us on an H200
// bytes avg_pool_backward: (n+outputs)*s; n=205520896 outputs=51380224 float32: 1028 MB, floor 239 us on an H200
//
// launch: 256 threads, an element of the result each, grid-stride.

#ifdef LUCID_SMALL    // at most 127 cells in a window
typedef signed char window_t;
#else
typedef int window_t;
#endif

KERNEL __launch_bounds__(256, 1) max_pool(const scalar_t* __restrict__ x,    // [planes, n0, n1, n2]
                                          scalar_t* __restrict__ out,        // [planes, o0, o1, o2]
                                          window_t* __restrict__ window,     // [planes, o0, o1, o2]
                                          i64 n, WINDOWS) {
  for (i64 i = thread_index(); i < n; i += thread_count()) {
    const place o = place_of(i, o0, o1, o2);
    const scalar_t* plane = x + o.plane * n0 * n1 * n2;
    accum_t best = NEG_INF;
    int found = -1, cell = 0;
    for (int a = 0; a < k0; a++)
      for (int b = 0; b < k1; b++)
        for (int c = 0; c < k2; c++, cell++) {
          const int x0 = o.a0 * s0 - p0 + a * d0, x1 = o.a1 * s1 - p1 + b * d1, x2 = o.a2 * s2 - p2 + c * d2;
          if (x0 < 0 || x0 >= n0 || x1 < 0 || x1 >= n1 || x2 < 0 || x2 >= n2) continue;
          const accum_t v = up(plane[((i64)x0 * n1 + x1) * n2 + x2]);
          if (found < 0 || v > best || v != v) {    // the first of equal cells; NaN wins
            best = v;
            found = cell;
          }
        }
    out[i] = down(best);
    window[i] = (window_t)found;
  }
}

KERNEL __launch_bounds__(256, 1) max_pool_backward(const scalar_t* __restrict__ g,    // [planes, o0, o1, o2]
                                                   const window_t* __restrict__ window, // [planes, o0, o1, o2]
                                                   scalar_t* __restrict__ dx,         // [planes, n0, n1, n2]
                                                   i64 n, WINDOWS) {
  for (i64 i = thread_index(); i < n; i += thread_count()) {
    const place x = place_of(i, n0, n1, n2);
    const i64 plane = x.plane * o0 * o1 * o2;
    accum_t sum = 0;
    int cell = 0;
    for (int a = 0; a < k0; a++)
      for (int b = 0; b < k1; b++)
        for (int c = 0; c < k2; c++, cell++) {
          const int w0 = window_at(x.a0, a, o0, s0, p0, d0), w1 = window_at(x.a1, b, o1, s1, p1, d1), w2 = window_at(x.a2, c, o2, s2, p2, d2);
          if (w0 < 0 || w1 < 0 || w2 < 0) continue;
          const i64 o = plane + ((i64)w0 * o1 + w1) * o2 + w2;
          if (window[o] == cell) sum += up(g[o]);
        }
    dx[i] = down(sum);
  }
}

// Cells of window o that divide its sum: inside the padded input, or (not `padded`) inside the input.
DEVICE int covered(int o, int n, int k, int s, int p, int padded) {
  const int start = o * s - p, stop = min(start + k, n + p);
  return padded ? stop - start : min(stop, n) - max(start, 0);
}
#define DIVISOR(w0, w1, w2) (divisor ? (accum_t)divisor : (accum_t)covered(w0, n0, k0, s0, p0, padded) * (accum_t)covered(w1, n1, k1, s1, p1, padded) * (accum_t)covered(w2, n2, k2, s2, p2, padded))

KERNEL __launch_bounds__(256, 1) avg_pool(const scalar_t* __restrict__ x,    // [planes, n0, n1, n2]
                                          scalar_t* __restrict__ out,        // [planes, o0, o1, o2]
                                          int padded, int divisor, i64 n, WINDOWS) {
  for (i64 i = thread_index(); i < n; i += thread_count()) {
    const place o = place_of(i, o0, o1, o2);
    const scalar_t* plane = x + o.plane * n0 * n1 * n2;
    accum_t sum = 0;
    for (int a = max(o.a0 * s0 - p0, 0); a < min(o.a0 * s0 - p0 + k0, n0); a++)
      for (int b = max(o.a1 * s1 - p1, 0); b < min(o.a1 * s1 - p1 + k1, n1); b++)
        for (int c = max(o.a2 * s2 - p2, 0); c < min(o.a2 * s2 - p2 + k2, n2); c++) sum += up(plane[((i64)a * n1 + b) * n2 + c]);
    out[i] = down(sum / DIVISOR(o.a0, o.a1, o.a2));
  }
}

KERNEL __launch_bounds__(256, 1) avg_pool_backward(const scalar_t* __restrict__ g,    // [planes, o0, o1, o2]
                                                   scalar_t* __restrict__ dx,         // [planes, n0, n1, n2]
                                                   int padded, int divisor, i64 n, WINDOWS) {
  for (i64 i = thread_index(); i < n; i += thread_count()) {
    const place x = place_of(i, n0, n1, n2);
    const scalar_t* plane = g + x.plane * o0 * o1 * o2;
    accum_t sum = 0;
    // Windows that start at or before the cell and reach it.
    const int lo0 = max(x.a0 + p0 - k0 + s0, 0) / s0, lo1 = max(x.a1 + p1 - k1 + s1, 0) / s1, lo2 = max(x.a2 + p2 - k2 + s2, 0) / s2;
    for (int a = lo0; a <= min((x.a0 + p0) / s0, o0 - 1); a++)
      for (int b = lo1; b <= min((x.a1 + p1) / s1, o1 - 1); b++)
        for (int c = lo2; c <= min((x.a2 + p2) / s2, o2 - 1); c++) sum += up(plane[((i64)a * o1 + b) * o2 + c]) / DIVISOR(a, b, c);
    dx[i] = down(sum);
  }
}
