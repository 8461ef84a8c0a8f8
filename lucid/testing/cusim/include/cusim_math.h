// CUDA's mathematical functions, from the C library.  A GPU may differ by a few units in the last place (CUDA C++
// Programming Guide, "Mathematical Functions"); intrinsics such as __expf are the accurate function here.
#pragma once
extern "C" {
void* memcpy(void*, const void*, size_t);
void* memset(void*, int, size_t);
int printf(const char*, ...);
int abs(int);
long labs(long);
long long llabs(long long);
#define CUSIM_F1(F) double F(double); float F##f(float);
CUSIM_F1(sqrt) CUSIM_F1(cbrt) CUSIM_F1(exp) CUSIM_F1(exp2) CUSIM_F1(expm1) CUSIM_F1(log) CUSIM_F1(log2) CUSIM_F1(log10)
CUSIM_F1(log1p) CUSIM_F1(logb) CUSIM_F1(sin) CUSIM_F1(cos) CUSIM_F1(tan) CUSIM_F1(asin) CUSIM_F1(acos) CUSIM_F1(atan)
CUSIM_F1(sinh) CUSIM_F1(cosh) CUSIM_F1(tanh) CUSIM_F1(asinh) CUSIM_F1(acosh) CUSIM_F1(atanh) CUSIM_F1(erf) CUSIM_F1(erfc)
CUSIM_F1(tgamma) CUSIM_F1(lgamma) CUSIM_F1(ceil) CUSIM_F1(floor) CUSIM_F1(trunc) CUSIM_F1(round) CUSIM_F1(rint)
CUSIM_F1(nearbyint) CUSIM_F1(fabs) CUSIM_F1(exp10) CUSIM_F1(j0) CUSIM_F1(j1) CUSIM_F1(y0) CUSIM_F1(y1)
#define CUSIM_F2(F) double F(double, double); float F##f(float, float);
CUSIM_F2(pow) CUSIM_F2(fmod) CUSIM_F2(remainder) CUSIM_F2(atan2) CUSIM_F2(hypot) CUSIM_F2(copysign) CUSIM_F2(fdim)
CUSIM_F2(fmin) CUSIM_F2(fmax) CUSIM_F2(nextafter)
double fma(double, double, double); float fmaf(float, float, float);
double ldexp(double, int); float ldexpf(float, int); double scalbn(double, int); float scalbnf(float, int);
double frexp(double, int*); float frexpf(float, int*); double modf(double, double*); float modff(float, float*);
int ilogb(double); int ilogbf(float);
long lround(double); long lroundf(float); long long llround(double); long long llroundf(float);
long lrint(double); long lrintf(float); long long llrint(double); long long llrintf(float);
void sincos(double, double*, double*); void sincosf(float, float*, float*);
}
// C++ overloads for float, as in CUDA
#define CUSIM_O1(F) static inline float F(float x) { return F##f(x); }
CUSIM_O1(sqrt) CUSIM_O1(cbrt) CUSIM_O1(exp) CUSIM_O1(exp2) CUSIM_O1(expm1) CUSIM_O1(log) CUSIM_O1(log2) CUSIM_O1(log10)
CUSIM_O1(log1p) CUSIM_O1(logb) CUSIM_O1(sin) CUSIM_O1(cos) CUSIM_O1(tan) CUSIM_O1(asin) CUSIM_O1(acos) CUSIM_O1(atan)
CUSIM_O1(sinh) CUSIM_O1(cosh) CUSIM_O1(tanh) CUSIM_O1(asinh) CUSIM_O1(acosh) CUSIM_O1(atanh) CUSIM_O1(erf) CUSIM_O1(erfc)
CUSIM_O1(tgamma) CUSIM_O1(lgamma) CUSIM_O1(ceil) CUSIM_O1(floor) CUSIM_O1(trunc) CUSIM_O1(round) CUSIM_O1(rint)
CUSIM_O1(nearbyint) CUSIM_O1(fabs)
#define CUSIM_O2(F) static inline float F(float x, float y) { return F##f(x, y); }
CUSIM_O2(pow) CUSIM_O2(fmod) CUSIM_O2(remainder) CUSIM_O2(atan2) CUSIM_O2(hypot) CUSIM_O2(copysign) CUSIM_O2(fdim)
CUSIM_O2(fmin) CUSIM_O2(fmax)
static inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
static inline float ldexp(float x, int e) { return ldexpf(x, e); }
static inline float frexp(float x, int* e) { return frexpf(x, e); }
static inline float modf(float x, float* p) { return modff(x, p); }
static inline float abs(float x) { return fabsf(x); }
static inline double abs(double x) { return fabs(x); }
static inline long abs(long x) { return labs(x); }
static inline long long abs(long long x) { return llabs(x); }
static inline float pow(float x, int n) { return powf(x, (float)n); }
static inline double pow(double x, int n) { return pow(x, (double)n); }
#define CUSIM_CLASS(T)                                                       \
  static inline bool isnan(T x) { return __builtin_isnan(x); }               \
  static inline bool isinf(T x) { return __builtin_isinf(x); }               \
  static inline bool isfinite(T x) { return __builtin_isfinite(x); }         \
  static inline bool signbit(T x) { return __builtin_signbit(x); }
CUSIM_CLASS(float) CUSIM_CLASS(double)
#define CUSIM_MINMAX(T)                                                      \
  static inline T min(T a, T b) { return b < a ? b : a; }                    \
  static inline T max(T a, T b) { return a < b ? b : a; }
CUSIM_MINMAX(int) CUSIM_MINMAX(unsigned) CUSIM_MINMAX(long) CUSIM_MINMAX(unsigned long)
CUSIM_MINMAX(long long) CUSIM_MINMAX(unsigned long long)
#define CUSIM_MINMAX2(A, B, R)                                               \
  static inline R min(A a, B b) { return min((R)a, (R)b); }                  \
  static inline R max(A a, B b) { return max((R)a, (R)b); }                  \
  static inline R min(B a, A b) { return min((R)a, (R)b); }                  \
  static inline R max(B a, A b) { return max((R)a, (R)b); }
CUSIM_MINMAX2(int, unsigned, unsigned) CUSIM_MINMAX2(long, unsigned long, unsigned long)
CUSIM_MINMAX2(long long, unsigned long long, unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
CUSIM_MINMAX2(float, double, double)
static inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
static inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
// ---- functions that only CUDA has
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline double rcbrt(double x) { return 1.0 / cbrt(x); }
static inline double sinpi(double x) { return sin(fmod(x, 2.0) * 3.14159265358979323846); }
static inline double cospi(double x) { return cos(fmod(x, 2.0) * 3.14159265358979323846); }
static inline float sinpif(float x) { return (float)sinpi((double)x); }
static inline float cospif(float x) { return (float)cospi((double)x); }
static inline void sincospi(double x, double* s, double* c) { *s = sinpi(x); *c = cospi(x); }
static inline void sincospif(float x, float* s, float* c) { *s = sinpif(x); *c = cospif(x); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static inline float normcdff(float x) { return (float)normcdf((double)x); }
static inline double erfcx(double x) { return exp(x * x) * erfc(x); }
static inline float erfcxf(float x) { return (float)erfcx((double)x); }
static inline double erfinv(double y) {       // Giles 2010 start value in float, two Newton steps in double
  if (!(y > -1.0 && y < 1.0)) return y == 1.0 ? __builtin_inf() : y == -1.0 ? -__builtin_inf() : __builtin_nan("");
  const double l = log1p(-y * y), a = 4.330746750799873 + 0.5 * l;   // Winitzki: 2/(pi*0.147)
  double x = copysign(sqrt(sqrt(a * a - l / 0.147) - a), y);
  for (int i = 0; i < 3; i++) x -= (erf(x) - y) / (1.12837916709551257390 * exp(-x * x));
  return x;
}
static inline float erfinvf(float y) { return (float)erfinv((double)y); }
static inline double normcdfinv(double p) { return 1.41421356237309504880 * erfinv(2.0 * p - 1.0); }
static inline float normcdfinvf(float p) { return (float)normcdfinv((double)p); }
static inline float __saturatef(float x) { return x > 0.f ? (x < 1.f ? x : 1.f) : 0.f; }
#define CUSIM_FAST(F, G) static inline float F(float x) { return G(x); }
CUSIM_FAST(__expf, expf) CUSIM_FAST(__logf, logf) CUSIM_FAST(__log2f, log2f) CUSIM_FAST(__log10f, log10f)
CUSIM_FAST(__sinf, sinf) CUSIM_FAST(__cosf, cosf) CUSIM_FAST(__tanf, tanf) CUSIM_FAST(__exp10f, exp10f)
CUSIM_FAST(__tanhf, tanhf) CUSIM_FAST(__fsqrt_rn, sqrtf) CUSIM_FAST(__frsqrt_rn, rsqrtf)
static inline void __sincosf(float x, float* s, float* c) { *s = sinf(x); *c = cosf(x); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __frcp_rn(float x) { return 1.f / x; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline double __dsqrt_rn(double x) { return sqrt(x); }
static inline double __drcp_rn(double x) { return 1.0 / x; }
// ---- bits
template <class To, class From> static __forceinline__ To cusim_bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "");
  To r;
  __builtin_memcpy(&r, &x, sizeof r);
  return r;
}
static inline float __int_as_float(int i) { return cusim_bits<float>(i); }
static inline int __float_as_int(float f) { return cusim_bits<int>(f); }
static inline float __uint_as_float(unsigned i) { return cusim_bits<float>(i); }
static inline unsigned __float_as_uint(float f) { return cusim_bits<unsigned>(f); }
static inline double __longlong_as_double(long long i) { return cusim_bits<double>(i); }
static inline long long __double_as_longlong(double f) { return cusim_bits<long long>(f); }
static inline int __double2hiint(double f) { return (int)(__double_as_longlong(f) >> 32); }
static inline int __double2loint(double f) { return (int)__double_as_longlong(f); }
static inline double __hiloint2double(int h, int l) {
  return __longlong_as_double((long long)(((unsigned long long)(unsigned)h << 32) | (unsigned)l));
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (x >> i & 1u) << (31 - i);
  return r;
}
static inline unsigned long long __brevll(unsigned long long x) {
  return ((unsigned long long)__brev((unsigned)x) << 32) | __brev((unsigned)(x >> 32));
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const unsigned long long v = ((unsigned long long)b << 32) | a;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) r |= (unsigned)(v >> (8 * (s >> (4 * i) & 7)) & 0xff) << (8 * i);
  return r;
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
  return (unsigned)((((unsigned long long)hi << 32) | lo) << (n & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
  return (unsigned)((((unsigned long long)hi << 32) | lo) >> (n & 31));
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline int __mul24(int a, int b) { return (int)((long long)(a << 8 >> 8) * (b << 8 >> 8)); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
// ---- conversions; float to integer saturates and gives 0 for NaN, as on the GPU
template <class I> static inline I cusim_sat(double x, I lo, I hi) {
  return x != x ? (I)0 : x <= (double)lo ? lo : x >= (double)hi ? hi : (I)x;
}
#define CUSIM_TO_INT(NAME, T, LO, HI)                                                        \
  static inline T NAME##_rn(float x) { return cusim_sat<T>((double)rintf(x), LO, HI); }      \
  static inline T NAME##_rz(float x) { return cusim_sat<T>((double)truncf(x), LO, HI); }     \
  static inline T NAME##_rd(float x) { return cusim_sat<T>((double)floorf(x), LO, HI); }     \
  static inline T NAME##_ru(float x) { return cusim_sat<T>((double)ceilf(x), LO, HI); }
CUSIM_TO_INT(__float2int, int, -2147483647 - 1, 2147483647)
CUSIM_TO_INT(__float2uint, unsigned, 0u, 4294967295u)
CUSIM_TO_INT(__float2ll, long long, -9223372036854775807LL - 1, 9223372036854775807LL)
CUSIM_TO_INT(__float2ull, unsigned long long, 0ull, 18446744073709551615ull)
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline float __ull2float_rn(unsigned long long x) { return (float)x; }
static inline float __double2float_rn(double x) { return (float)x; }
static inline double __int2double_rn(int x) { return (double)x; }
static inline double __ll2double_rn(long long x) { return (double)x; }
static inline long long clock64() { return 0; }
