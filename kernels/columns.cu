#include "windows.cuh"
// The columns of a convolution: cols [channels, k0, k1, k2, batch, o0, o1, o2] holds what each cell of the kernel sees, zeros in the padding. With the
// samples inside, the columns of a whole batch are one matrix for one product. With batch 1 and batch * channels planes as the channels they are
// [batch, channels, k0, k1, k2, o0, o1, o2], as `unfold` gives them.
//
// im2col   x -> cols
// col2im   its adjoint: each cell of x gathers its columns in a fixed order
//
// bytes im2col: (inputs+n)*s; inputs=3211264 n=28901376 float32: 128.5 MB, floor 29.87 us on an H200
// bytes col2im: (inputs+n)*s; n=3211264 inputs=28901376 float32: 128.5 MB, floor 29.87 us on an H200
//
// A thread takes its index apart once and then walks down channels: a division costs as much as 20 other instructions, and memory leaves time for about 60.
// launch: 256 threads, grid (tiles of columns, or of cells of x; ranges of channels).

KERNEL __launch_bounds__(256, 1) im2col(const scalar_t* __restrict__ x,    // [batch, channels, n0, n1, n2]
                                        scalar_t* __restrict__ cols,       // [channels, k0, k1, k2, batch, o0, o1, o2]
                                        int batch, int channels, WINDOWS) {
  const i64 j = thread_index(), columns = (i64)batch * o0 * o1 * o2;
  if (j >= columns) return;
  const place o = place_of(j, o0, o1, o2);    // o.plane: the sample
  const i64 cells = (i64)n0 * n1 * n2;
  for (int channel = blockIdx.y; channel < channels; channel += gridDim.y) {
    const scalar_t* from = x + (o.plane * channels + channel) * cells;
    scalar_t* to = cols + (i64)channel * k0 * k1 * k2 * columns + j;
#pragma unroll 1
    for (int a = 0; a < k0; a++)
#pragma unroll 1
      for (int b = 0; b < k1; b++) {
        const int x0 = o.a0 * s0 - p0 + a * d0, x1 = o.a1 * s1 - p1 + b * d1;
        const bool row = x0 >= 0 && x0 < n0 && x1 >= 0 && x1 < n1;
        const scalar_t* line = from + ((i64)x0 * n1 + x1) * n2;
#pragma unroll 4
        for (int c = 0; c < k2; c++, to += columns) {
          const int x2 = o.a2 * s2 - p2 + c * d2;
          *to = row && x2 >= 0 && x2 < n2 ? line[x2] : down(0);
        }
      }
  }
}

KERNEL __launch_bounds__(256, 1) col2im(const scalar_t* __restrict__ cols,    // [channels, k0, k1, k2, batch, o0, o1, o2]
                                        scalar_t* __restrict__ x,             // [batch, channels, n0, n1, n2]
                                        int batch, int channels, WINDOWS) {
  const i64 j = thread_index(), cells = (i64)n0 * n1 * n2;
  if (j >= batch * cells) return;
  const place at = place_of(j, n0, n1, n2);    // at.plane: the sample
  const i64 windows = (i64)o0 * o1 * o2, columns = batch * windows, cell = j - at.plane * cells;
  for (int channel = blockIdx.y; channel < channels; channel += gridDim.y) {
    const scalar_t* from = cols + (i64)channel * k0 * k1 * k2 * columns + at.plane * windows;
    accum_t sum = 0;
    for (int a = 0; a < k0; a++) {
      const int w0 = window_at(at.a0, a, o0, s0, p0, d0);
      if (w0 < 0) continue;
      for (int b = 0; b < k1; b++) {
        const int w1 = window_at(at.a1, b, o1, s1, p1, d1);
        if (w1 < 0) continue;
        const scalar_t* line = from + ((i64)(a * k1 + b) * k2) * columns + ((i64)w0 * o1 + w1) * o2;
#pragma unroll 4
        for (int c = 0; c < k2; c++, line += columns) {
          const int w2 = window_at(at.a2, c, o2, s2, p2, d2);
          if (w2 >= 0) sum += up(line[w2]);
        }
      }
    }
    x[(at.plane * channels + channel) * cells + cell] = down(sum);
  }
}
