// Windows over up to three dimensions: pooling and the columns of a convolution. Unused leading dimensions have size, kernel, stride, dilation 1, padding 0.
// Window o of a dimension covers the cells o * stride - padding + j * dilation, j < kernel.
#pragma once
#include "lucid.cuh"

// size n, count o, kernel k, stride s, padding p, dilation d of each dimension
#define WINDOWS int n0, int n1, int n2, int o0, int o1, int o2, int k0, int k1, int k2, int s0, int s1, int s2, int p0, int p1, int p2, int d0, int d1, int d2

// A flat index into [planes, a0, a1, a2] taken apart.
struct place {
  i64 plane;
  int a0, a1, a2;
};
template <class I> DEVICE place taken_apart(I i, I a0, I a1, I a2) {
  const I r = i / a2, q = r / a1;
  return place{(i64)(q / a0), (int)(q % a0), (int)(r % a1), (int)(i % a2)};
}
DEVICE place place_of(i64 i, int a0, int a1, int a2) {    // 64-bit division takes three times as long
  return i < 0x80000000ll ? taken_apart<u32>((u32)i, a0, a1, a2) : taken_apart<i64>(i, a0, a1, a2);
}

// The window that has cell x at its position j; negative where there is none.
DEVICE int window_at(int x, int j, int count, int stride, int padding, int dilation) {
  const int from = x + padding - j * dilation;
  if (stride == 1) return from < count ? from : -1;    // without divisions; negative where there is none
  if (from < 0 || from % stride) return -1;
  return from / stride < count ? from / stride : -1;
}
