// A small part of CUDA's cuda_fp16.h: the type, its conversions (round to nearest even) and arithmetic through float.
#pragma once
struct __half_raw { unsigned short x; };
static inline float cusim_half_to_float(unsigned short h) {
  const unsigned sign = (unsigned)(h & 0x8000u) << 16, exponent = h >> 10 & 0x1fu, mantissa = h & 0x3ffu;
  if (exponent == 0x1fu) return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
  if (exponent) return __uint_as_float(sign | (exponent + 112u) << 23 | mantissa << 13);
  if (!mantissa) return __uint_as_float(sign);
  const int shift = __clz((int)mantissa) - 21;            // subnormal half: normal float
  return __uint_as_float(sign | (unsigned)(113 - shift) << 23 | (mantissa << shift & 0x3ffu) << 13);
}
static inline unsigned short cusim_float_to_half(float f) {
  const unsigned u = __float_as_uint(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return 0x7fffu;                    // NaN: CUDA's canonical one
  if (a >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);          // rounds to infinity
  if (a >= 0x38800000u) return (unsigned short)(sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13));
  if (a < 0x33000000u) return (unsigned short)sign;       // below half of the smallest subnormal
  const unsigned shift = 126u - (a >> 23), m = (a & 0x7fffffu) | 0x800000u;
  const unsigned q = m >> shift, rest = m & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
  return (unsigned short)(sign | (q + (rest > tie || (rest == tie && (q & 1u)))));
}
struct __half {
  unsigned short bits;
  __half() = default;
  __half(float f) : bits(cusim_float_to_half(f)) {}
  __half(double f) : bits(cusim_float_to_half((float)f)) {}
  __half(int i) : bits(cusim_float_to_half((float)i)) {}
  __half(unsigned i) : bits(cusim_float_to_half((float)i)) {}
  __half(__half_raw r) : bits(r.x) {}
  operator float() const { return cusim_half_to_float(bits); }
  __half& operator+=(__half o) { return *this = __half((float)*this + (float)o); }
  __half& operator-=(__half o) { return *this = __half((float)*this - (float)o); }
  __half& operator*=(__half o) { return *this = __half((float)*this * (float)o); }
  __half& operator/=(__half o) { return *this = __half((float)*this / (float)o); }
};
typedef __half half;
namespace cusim { template <> struct Kind<__half> { static const char value = 'e'; }; }
struct alignas(4) __half2 { __half x, y; };
typedef __half2 half2;
#define CUSIM_HALF_OP(OP, NAME)                                                                             \
  static inline __half operator OP(__half a, __half b) { return __half((float)a OP (float)b); }             \
  static inline __half NAME(__half a, __half b) { return a OP b; }                                          \
  static inline __half2 NAME##2(__half2 a, __half2 b) { return {NAME(a.x, b.x), NAME(a.y, b.y)}; }
CUSIM_HALF_OP(+, __hadd) CUSIM_HALF_OP(-, __hsub) CUSIM_HALF_OP(*, __hmul)
static inline __half operator/(__half a, __half b) { return __half((float)a / (float)b); }
static inline __half __hdiv(__half a, __half b) { return a / b; }
static inline __half __hneg(__half a) { return __half(__half_raw{(unsigned short)(a.bits ^ 0x8000u)}); }
static inline __half operator-(__half a) { return __hneg(a); }
static inline __half __hfma(__half a, __half b, __half c) { return __half((double)(float)a * (float)b + (float)c); }
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
static inline float __half2float(__half h) { return (float)h; }
static inline __half __float2half(float f) { return __half(f); }
static inline __half __float2half_rn(float f) { return __half(f); }
static inline __half __int2half_rn(int i) { return __half((float)i); }
static inline unsigned short __half_as_ushort(__half h) { return h.bits; }
static inline __half __ushort_as_half(unsigned short u) { return __half(__half_raw{u}); }
static inline float2 __half22float2(__half2 h) { return make_float2((float)h.x, (float)h.y); }
static inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
static inline __half2 __float22half2_rn(float2 f) { return {__half(f.x), __half(f.y)}; }
static inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
static inline __half2 __half2half2(__half a) { return {a, a}; }
static inline __half __low2half(__half2 a) { return a.x; }
static inline __half __high2half(__half2 a) { return a.y; }
static inline bool __hisnan(__half a) { return (a.bits & 0x7fffu) > 0x7c00u; }
static inline bool __hlt(__half a, __half b) { return (float)a < (float)b; }
static inline bool __hgt(__half a, __half b) { return (float)a > (float)b; }
static inline __half __hmax(__half a, __half b) { return __half(fmaxf((float)a, (float)b)); }
static inline __half __hmin(__half a, __half b) { return __half(fminf((float)a, (float)b)); }
