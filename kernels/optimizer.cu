#include "lucid.cuh"
// One step of an optimiser over any number of tensors in one launch. Tables in device memory name them: addresses of parameter, gradient and state, sizes, and
// for each block its tensor and first element. The step number, the learning rate and all else that changes lie in `hyper`, so that a captured graph follows them.
//
// sgd    d = sign g + decay p; with momentum: buf = momentum buf + keep d, and d = nesterov ? d + momentum buf : buf;  p -= lr d
// adam   d = sign g + decay p;  m += (1 - beta1)(d - m), v += (1 - beta2)(d^2 - v);
//        p -= lr sqrt(c2) / c1 m / (sqrt(v) + eps sqrt(c2)) with c = 1 - beta^step (Kingma and Ba 2015). -DLUCID_DECOUPLED: p *= 1 - lr decay instead of
//        the term in d (AdamW, Loshchilov and Hutter 2019).
// A gradient is multiplied by scale[0] first (clipping, loss scaling; null: 1); nothing happens when skip[0] is not 0 (overflow; null: never).
//
// State is in float32 (float64 for float64).
//
// bytes sgd: 3*n*s; n=124000000 float32: 1488 MB, 346 us on an H200
// bytes sgd_momentum: n*(3*s+2*a); n=124000000 float32: 2480 MB, 576.7 us on an H200
// bytes adam: n*(3*s+4*a); n=124000000 float32: 3472 MB, 807.4 us on an H200
//
// launch: 256 threads, a block per entry of block_tensor; block b does `chunk` elements of its tensor.

#define LR 0
#define DECAY 1
#define SIGN 2      // -1 maximises
#define RATE1 3     // 1 - beta1, made in float64: 1 - 0.999 in float32 is off by 5e-5; sgd: momentum
#define RATE2 4     // 1 - beta2; sgd: keep = 1 - dampening
#define EPS 5       // sgd: 1 for nesterov
#define LOG_BETA1 6 // logarithms made in float64: 1 - beta^t = -expm1(t log(beta)) keeps its digits
#define LOG_BETA2 7

DEVICE float expm1_(float x) { return expm1f(x); }
DEVICE double expm1_(double x) { return expm1(x); }

// PACK elements of state at a time; for 16-bit parameters that is 32 bytes.
struct state {
  accum_t p, a, b;
};

DEVICE void sgd_element(state& s, accum_t g, const accum_t* h) {
  accum_t d = h[SIGN] * g + h[DECAY] * s.p;
#ifdef LUCID_MOMENTUM
  s.a = h[RATE1] * s.a + h[RATE2] * d;
  d = h[EPS] != 0 ? d + h[RATE1] * s.a : s.a;
#endif
  s.p -= h[LR] * d;
}

DEVICE void adam_element(state& s, accum_t g, const accum_t* h, accum_t size, accum_t eps) {
#ifdef LUCID_DECOUPLED
  const accum_t d = h[SIGN] * g;
  s.p *= 1 - h[LR] * h[DECAY];
#else
  const accum_t d = h[SIGN] * g + h[DECAY] * s.p;
#endif
  s.a += h[RATE1] * (d - s.a);
  s.b += h[RATE2] * (d * d - s.b);
  s.p -= size * s.a / (sqrt_(s.b) + eps);
}

#define TABLES const u64 *__restrict__ params,       /* [tensors] addresses */                                     \
               const u64 *__restrict__ grads,        /* [tensors] */                                               \
               const u64 *__restrict__ first,        /* [tensors] momentum_buffer or exp_avg */                    \
               const u64 *__restrict__ second,       /* [tensors] exp_avg_sq */                                    \
               const i64 *__restrict__ sizes,        /* [tensors] elements */                                      \
               const int *__restrict__ block_tensor, /* [blocks] */                                                \
               const i64 *__restrict__ block_start,  /* [blocks] first element */                                  \
               const accum_t *__restrict__ hyper,    /* [8] */                                                     \
               const i64 *__restrict__ step,         /* [1] number of this step, from 1 */                         \
               const accum_t *__restrict__ scale,    /* [1] or null */                                             \
               const int *__restrict__ skip,         /* [1] or null */                                             \
               i64 chunk

// Loads, updates and stores elements i .. i + width - 1 of the block's tensor; ELEMENT(s, g) changes `s`.
#define UPDATE(ELEMENT, STATES)                                                                                    \
  const int t = block_tensor[blockIdx.x];                                                                          \
  const i64 start = block_start[blockIdx.x], stop = min(sizes[t], start + chunk);                                  \
  scalar_t* p = (scalar_t*)params[t];                                                                              \
  const scalar_t* __restrict__ g = (const scalar_t*)grads[t];                                                      \
  accum_t* a = STATES > 0 ? (accum_t*)first[t] : nullptr;                                                          \
  accum_t* b = STATES > 1 ? (accum_t*)second[t] : nullptr;                                                         \
  const accum_t factor = scale ? scale[0] : (accum_t)1;                                                            \
  const bool aligned = ((u64)p | (u64)g | (u64)a | (u64)b) % 16 == 0;                                              \
  i64 i = start + threadIdx.x * PACK;                                                                              \
  if (aligned)                                                                                                     \
    for (; i + PACK <= stop; i += 256 * PACK) {                                                                    \
      pack x = load_wide<pack>(p + i);                                                                             \
      const pack y = load(g, i);                                                                                   \
      accum_pack u = {}, w = {};                                                                                   \
      if (STATES > 0) u = load_wide<accum_pack>(a + i);                                                            \
      if (STATES > 1) w = load_wide<accum_pack>(b + i);                                                            \
      EACH(k) {                                                                                                    \
        state s = {up(x.v[k]), u.v[k], w.v[k]};                                                                    \
        ELEMENT(s, up(y.v[k]) * factor);                                                                           \
        x.v[k] = down(s.p);                                                                                        \
        u.v[k] = s.a;                                                                                              \
        w.v[k] = s.b;                                                                                              \
      }                                                                                                            \
      store_wide(p + i, x);                                                                                        \
      if (STATES > 0) store_wide(a + i, u);                                                                        \
      if (STATES > 1) store_wide(b + i, w);                                                                        \
    }                                                                                                              \
  /* what is left: all of it when an address is odd, else fewer than PACK elements, which one thread has */       \
  for (; i < stop; i += 256 * PACK)                                                                                \
    for (i64 j = i; j < min(stop, i + PACK); j++) {                                                                \
      state s = {up(p[j]), STATES > 0 ? a[j] : (accum_t)0, STATES > 1 ? b[j] : (accum_t)0};                         \
      ELEMENT(s, up(g[j]) * factor);                                                                               \
      p[j] = down(s.p);                                                                                            \
      if (STATES > 0) a[j] = s.a;                                                                                  \
      if (STATES > 1) b[j] = s.b;                                                                                  \
    }

KERNEL __launch_bounds__(256, 1) sgd(TABLES) {
  if (skip && skip[0]) return;
  accum_t h[6];
#pragma unroll
  for (int j = 0; j < 6; j++) h[j] = hyper[j];
  if (step[0] == 1) h[RATE2] = 1;    // the first momentum buffer is the gradient itself, undampened
#define SGD(s, g) sgd_element(s, g, h)
#ifdef LUCID_MOMENTUM
  UPDATE(SGD, 1)
#else
  UPDATE(SGD, 0)
#endif
}

KERNEL __launch_bounds__(256, 1) adam(TABLES) {
  if (skip && skip[0]) return;
  accum_t h[8];
#pragma unroll
  for (int j = 0; j < 8; j++) h[j] = hyper[j];
  const accum_t time = (accum_t)step[0], root = sqrt_(-expm1_(time * h[LOG_BETA2]));
  const accum_t size = h[LR] * root / -expm1_(time * h[LOG_BETA1]), eps = h[EPS] * root;
#define ADAM(s, g) adam_element(s, g, h, size, eps)
  UPDATE(ADAM, 2)
}
