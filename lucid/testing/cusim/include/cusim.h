// The CUDA device language on the CPU: qualifiers, built-in variables, collectives, atomics, memory functions.
// No system header is included, so a kernel sees only what NVRTC would offer it (no INFINITY, no int64_t, no std::).
#pragma once
#include "cusim_abi.h"
#include "cusim_types.h"
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#ifdef CUSIM_CHECK
#define CUSIM_QUIET __attribute__((no_sanitize("thread")))   // not seen by the checks
#define CUSIM_OP CUSIM_QUIET __attribute__((noinline, unused)) static
#else
#define CUSIM_QUIET
#define CUSIM_OP static inline
#define cusim_atomic(file, line, p, n) ((void)0)             // nothing to check, and threads never run at once
#endif

#define CUSIM_EXPORT extern "C" CUSIM_QUIET __attribute__((visibility("default")))

// Constant as far as one CUDA thread can see: the runtime sets them whenever it switches threads.
#pragma GCC visibility push(hidden)
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;
#pragma GCC visibility pop
static const int warpSize = 32;

namespace cusim {
template <class T, class Tag> struct Shared { static Slot slot; };
template <class T, class Tag> Slot Shared<T, Tag>::slot;
// A static __shared__ array: one slot per function instantiation, placed at its first use in a launch.
template <class T, class Tag> CUSIM_QUIET static inline T& shared(unsigned align) {
  Slot& s = Shared<T, Tag>::slot;
  if (s.gen != cusim_gen) cusim_reserve(&s, sizeof(T), align);
  return *(T*)(cusim_arena + s.off);
}
static inline int barrier(Site s, int pred) { return cusim_barrier(s.file, s.line, s.id, pred); }
static inline void syncwarp(Site s, unsigned mask = 0xffffffffu) { cusim_syncwarp(s.file, s.line, s.id, mask); }
static inline unsigned ballot(Site s, unsigned mask, int pred) { return cusim_ballot(s.file, s.line, s.id, mask, pred); }
template <class T> CUSIM_QUIET static inline T shfl(Site s, ShuffleKind kind, unsigned mask, T v, int arg, int width = 32) {
  static_assert(sizeof(T) <= 8, "shuffle of a type wider than 8 bytes");
  unsigned long u = 0;
  __builtin_memcpy(&u, &v, sizeof v);
  u = cusim_shfl(s.file, s.line, s.id, mask, u, kind, arg, width);
  __builtin_memcpy(&v, &u, sizeof v);
  return v;
}
static inline unsigned warp_reduce(Site s, int op, unsigned m, unsigned v) {
  return cusim_warp_reduce(s.file, s.line, s.id, m, v, op, 0);
}
static inline int warp_reduce(Site s, int op, unsigned m, int v) {
  return (int)cusim_warp_reduce(s.file, s.line, s.id, m, (unsigned)v, op, 1);
}
static inline void trap(Site s) { cusim_trap(s.file, s.line); }

// CUDA has these atomics for these types and no others: a kernel that needs one more fails here as it would in NVRTC.
#define CUSIM_ATOMIC(NAME, T, EXPR)                        \
  CUSIM_OP T NAME(Site s, T* p, T v) {                     \
    cusim_atomic(s.file, s.line, p, sizeof(T));            \
    volatile T* const q = p;                               \
    const T o = *q;                                        \
    *q = (EXPR);                                           \
    return o;                                              \
  }
#define CUSIM_ATOMIC_INT(NAME, EXPR)                       \
  CUSIM_ATOMIC(NAME, int, EXPR)                            \
  CUSIM_ATOMIC(NAME, unsigned, EXPR)                       \
  CUSIM_ATOMIC(NAME, unsigned long long, EXPR)
CUSIM_ATOMIC_INT(atomic_add, o + v)
CUSIM_ATOMIC(atomic_add, float, o + v)
CUSIM_ATOMIC(atomic_add, double, o + v)
CUSIM_ATOMIC(atomic_sub, int, o - v)
CUSIM_ATOMIC(atomic_sub, unsigned, o - v)
CUSIM_ATOMIC_INT(atomic_exch, v)
CUSIM_ATOMIC(atomic_exch, float, v)
CUSIM_ATOMIC_INT(atomic_min, o < v ? o : v)
CUSIM_ATOMIC(atomic_min, long long, o < v ? o : v)
CUSIM_ATOMIC_INT(atomic_max, o > v ? o : v)
CUSIM_ATOMIC(atomic_max, long long, o > v ? o : v)
CUSIM_ATOMIC_INT(atomic_and, o & v)
CUSIM_ATOMIC_INT(atomic_or, o | v)
CUSIM_ATOMIC_INT(atomic_xor, o ^ v)
CUSIM_ATOMIC(atomic_inc, unsigned, o >= v ? 0u : o + 1u)
CUSIM_ATOMIC(atomic_dec, unsigned, (o == 0u || o > v) ? v : o - 1u)
#define CUSIM_CAS(T)                                       \
  CUSIM_OP T atomic_cas(Site s, T* p, T c, T v) {          \
    cusim_atomic(s.file, s.line, p, sizeof(T));            \
    volatile T* const q = p;                               \
    const T o = *q;                                        \
    if (o == c) *q = v;                                    \
    return o;                                              \
  }
CUSIM_CAS(int) CUSIM_CAS(unsigned) CUSIM_CAS(unsigned long long) CUSIM_CAS(unsigned short)

// ---- parameters of a kernel: what they are, and the call with untyped pointers to the arguments
template <class T> struct Kind { static const char value = __is_enum(T) ? 'i' : 'V'; };
#define CUSIM_KIND(T, K) template <> struct Kind<T> { static const char value = K; };
CUSIM_KIND(float, 'f') CUSIM_KIND(double, 'f') CUSIM_KIND(bool, 'b')
CUSIM_KIND(char, 'i') CUSIM_KIND(signed char, 'i') CUSIM_KIND(unsigned char, 'u')
CUSIM_KIND(short, 'i') CUSIM_KIND(unsigned short, 'u') CUSIM_KIND(int, 'i') CUSIM_KIND(unsigned, 'u')
CUSIM_KIND(long, 'i') CUSIM_KIND(unsigned long, 'u') CUSIM_KIND(long long, 'i') CUSIM_KIND(unsigned long long, 'u')
template <class T> struct Kind<T*> { static const char value = 'P'; };
template <class T> struct Bare { typedef T type; enum { constant = 0 }; };
template <class T> struct Bare<const T> { typedef T type; enum { constant = 1 }; };
template <class T> struct Bare<volatile T> { typedef T type; enum { constant = 0 }; };
template <class T> struct Bare<const volatile T> { typedef T type; enum { constant = 1 }; };
template <class T> struct Describe {
  static Param get() { return {Kind<typename Bare<T>::type>::value, 0, 0, 0, (int)sizeof(T), (int)alignof(T)}; }
};
template <class T> struct Describe<T*> {
  static Param get() {
    return {Kind<typename Bare<T>::type>::value, 1, (char)Bare<T>::constant, 0, (int)sizeof(T), (int)alignof(T)};
  }
};
template <> struct Describe<void*> { static Param get() { return {'V', 1, 0, 0, 1, 1}; } };
template <> struct Describe<const void*> { static Param get() { return {'V', 1, 1, 0, 1, 1}; } };
template <unsigned... I> struct Seq {};
template <class... A, unsigned... I> CUSIM_QUIET static inline void call_(void (*f)(A...), void** a, Seq<I...>) {
  f(*(typename Bare<A>::type*)a[I]...);
}
template <class... A> CUSIM_QUIET static inline void call(void (*f)(A...), void** a) {
  call_(f, a, Seq<__integer_pack(sizeof...(A))...>());
}
template <class... A> static inline int describe(void (*)(A...), Param* out) {
  int n = 0;
  ((out[n++] = Describe<A>::get()), ...);
  return n;
}
}  // namespace cusim

static inline unsigned __activemask() { return cusim_activemask(); }
static inline void __threadfence() { cusim_fence(); }
static inline void __threadfence_block() {}
static inline void __threadfence_system() { cusim_fence(); }
static inline void __nanosleep(unsigned) {}
#define CUSIM_LOAD(NAME) template <class T> static __forceinline__ T NAME(const T* p) { return *p; }
CUSIM_LOAD(__ldg) CUSIM_LOAD(__ldcs) CUSIM_LOAD(__ldcg) CUSIM_LOAD(__ldca) CUSIM_LOAD(__ldlu) CUSIM_LOAD(__ldcv)
#define CUSIM_STORE(NAME) template <class T> static __forceinline__ void NAME(T* p, T v) { *p = v; }
CUSIM_STORE(__stcs) CUSIM_STORE(__stcg) CUSIM_STORE(__stwb) CUSIM_STORE(__stwt)
#include "cusim_math.h"
