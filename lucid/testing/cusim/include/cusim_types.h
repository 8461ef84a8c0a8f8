// CUDA's vector types with CUDA's alignment, and make_*.
#pragma once
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef unsigned long long cudaTextureObject_t;
#define CUSIM_VEC(T, N, A2, A4)                                                             \
  struct N##1 { T x; };                                                                     \
  struct alignas(A2) N##2 { T x, y; };                                                      \
  struct N##3 { T x, y, z; };                                                               \
  struct alignas(A4) N##4 { T x, y, z, w; };                                                \
  static inline N##1 make_##N##1(T x) { return {x}; }                                       \
  static inline N##2 make_##N##2(T x, T y) { return {x, y}; }                               \
  static inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }                       \
  static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUSIM_VEC(signed char, char, 2, 4)
CUSIM_VEC(unsigned char, uchar, 2, 4)
CUSIM_VEC(short, short, 4, 8)
CUSIM_VEC(unsigned short, ushort, 4, 8)
CUSIM_VEC(int, int, 8, 16)
CUSIM_VEC(unsigned, uint, 8, 16)
CUSIM_VEC(float, float, 8, 16)
CUSIM_VEC(long, long, 16, 16)
CUSIM_VEC(unsigned long, ulong, 16, 16)
CUSIM_VEC(long long, longlong, 16, 16)
CUSIM_VEC(unsigned long long, ulonglong, 16, 16)
CUSIM_VEC(double, double, 16, 16)
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
