// A small part of CUDA's cuda_bf16.h: the type, its conversions (round to nearest even) and arithmetic through float.
#pragma once
struct __nv_bfloat16_raw { unsigned short x; };
static inline unsigned short cusim_float_to_bfloat16(float f) {
  const unsigned u = __float_as_uint(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;    // NaN: CUDA's canonical one
  return (unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float f) : bits(cusim_float_to_bfloat16(f)) {}
  __nv_bfloat16(double f) : bits(cusim_float_to_bfloat16((float)f)) {}
  __nv_bfloat16(int i) : bits(cusim_float_to_bfloat16((float)i)) {}
  __nv_bfloat16(unsigned i) : bits(cusim_float_to_bfloat16((float)i)) {}
  __nv_bfloat16(__nv_bfloat16_raw r) : bits(r.x) {}
  operator float() const { return __uint_as_float((unsigned)bits << 16); }
  __nv_bfloat16& operator+=(__nv_bfloat16 o) { return *this = __nv_bfloat16((float)*this + (float)o); }
  __nv_bfloat16& operator-=(__nv_bfloat16 o) { return *this = __nv_bfloat16((float)*this - (float)o); }
  __nv_bfloat16& operator*=(__nv_bfloat16 o) { return *this = __nv_bfloat16((float)*this * (float)o); }
  __nv_bfloat16& operator/=(__nv_bfloat16 o) { return *this = __nv_bfloat16((float)*this / (float)o); }
};
typedef __nv_bfloat16 nv_bfloat16;
namespace cusim { template <> struct Kind<__nv_bfloat16> { static const char value = 'E'; }; }
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
typedef __nv_bfloat162 nv_bfloat162;
#define CUSIM_BF16_OP(OP) \
  static inline __nv_bfloat16 operator OP(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16((float)a OP (float)b); }
CUSIM_BF16_OP(+) CUSIM_BF16_OP(-) CUSIM_BF16_OP(*) CUSIM_BF16_OP(/)
static inline __nv_bfloat16 operator-(__nv_bfloat16 a) {
  return __nv_bfloat16(__nv_bfloat16_raw{(unsigned short)(a.bits ^ 0x8000u)});
}
static inline float __bfloat162float(__nv_bfloat16 b) { return (float)b; }
static inline __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
static inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.bits; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { return __nv_bfloat16(__nv_bfloat16_raw{u}); }
static inline float2 __bfloat1622float2(__nv_bfloat162 b) { return make_float2((float)b.x, (float)b.y); }
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__nv_bfloat16(a), __nv_bfloat16(b)}; }
