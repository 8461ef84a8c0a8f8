#include "windows.cuh"
// The columns of a convolution: cols [batch, channels, k0, k1, k2, o0, o1, o2] holds what each cell of the kernel sees, zeros in the padding.
//
// im2col   x -> cols
// col2im   its adjoint: each cell of x gathers its columns in a fixed order
//
// bytes im2col: (inputs+n)*s; inputs=3211264 n=28901376 float32: 128.5 MB, 29.87 us on an H200
// bytes col2im: (inputs+n)*s; n=3211264 inputs=28901376 float32: 128.5 MB, 29.87 us on an H200
//
// launch: 256 threads, an element of the result each, grid-stride.

KERNEL __launch_bounds__(256, 1) im2col(const scalar_t* __restrict__ x,    // [planes, n0, n1, n2], planes = batch * channels
                                        scalar_t* __restrict__ cols,       // [planes, k0, k1, k2, o0, o1, o2]
                                        i64 n, WINDOWS) {
  for (i64 i = thread_index(); i < n; i += thread_count()) {
    const place o = place_of(i, o0, o1, o2), k = place_of(o.plane, k0, k1, k2);
    const int x0 = o.a0 * s0 - p0 + k.a0 * d0, x1 = o.a1 * s1 - p1 + k.a1 * d1, x2 = o.a2 * s2 - p2 + k.a2 * d2;
    const bool inside = x0 >= 0 && x0 < n0 && x1 >= 0 && x1 < n1 && x2 >= 0 && x2 < n2;
    cols[i] = inside ? x[((k.plane * n0 + x0) * n1 + x1) * n2 + x2] : down(0);
  }
}

KERNEL __launch_bounds__(256, 1) col2im(const scalar_t* __restrict__ cols,    // [planes, k0, k1, k2, o0, o1, o2]
                                        scalar_t* __restrict__ x,             // [planes, n0, n1, n2]
                                        i64 n, WINDOWS) {
  for (i64 i = thread_index(); i < n; i += thread_count()) {
    const place at = place_of(i, n0, n1, n2);
    accum_t sum = 0;
    for (int a = 0; a < k0; a++)
      for (int b = 0; b < k1; b++)
        for (int c = 0; c < k2; c++) {
          const int w0 = window_at(at.a0, a, o0, s0, p0, d0), w1 = window_at(at.a1, b, o1, s1, p1, d1), w2 = window_at(at.a2, c, o2, s2, p2, d2);
          if (w0 < 0 || w1 < 0 || w2 < 0) continue;
          const i64 cell = ((at.plane * k0 + a) * k1 + b) * k2 + c;
          sum += up(cols[((cell * o0 + w0) * o1 + w1) * o2 + w2]);
        }
    x[i] = down(sum);
  }
}
