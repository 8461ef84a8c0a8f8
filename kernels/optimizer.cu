#include "lucid.cuh"
// One step of an optimiser over any number of tensors in one launch. Tables in device memory name them: addresses of parameter, gradient, state and step numbers,
// sizes, and for each block its tensor and first element. The learning rate and all else that changes lie in `hyper`, so that a captured graph follows them.
//
// sgd    d = sign g + decay p; with momentum: buf = momentum buf + keep d, and d = nesterov ? d + momentum buf : buf;  p -= lr d
// adam   d = sign g + decay p;  m += (1 - beta1)(d - m), v += (1 - beta2)(d^2 - v);
//        p -= lr sqrt(c2) / c1 m / (sqrt(v) + eps sqrt(c2)) with c = 1 - beta^step (Kingma and Ba 2015). -DLUCID_DECOUPLED: p *= 1 - lr decay instead of
//        the term in d (AdamW, Loshchilov and Hutter 2019). -DLUCID_AMSGRAD: the largest v so far in the denominator (Reddi, Kale, Kumar 2018).
// A gradient is multiplied by scale[0] first (null: 1). Nothing happens, to the step numbers neither, when skip[0] is not 0 (overflow; null: never), and to a
// tensor whose gradient's address is 0.
// Every block counts the steps of its part in a number of its own: no block waits for another, and a replayed graph goes on counting.
//
// State is in float32 (float64 for float64).
//
// bytes sgd: 3*n*s; n=124000000 float32: 1488 MB, floor 346 us on an H200
// bytes sgd_momentum: n*(3*s+2*a); n=124000000 float32: 2480 MB, floor 576.7 us on an H200
// bytes adam, adamw: n*(3*s+4*a); n=124000000 float32: 3472 MB, floor 807.4 us on an H200
// bytes adam_amsgrad, adamw_amsgrad: n*(3*s+6*a); n=124000000 float32: 4464 MB, floor 1038 us on an H200
//
// launch: 256 threads, a block per entry of block_tensor; block b does `chunk` elements of its tensor.

#define HYPER 8     // numbers per line of `hyper`
#define LR 0
#define DECAY 1
#define SIGN 2      // -1 maximises
#define RATE1 3     // 1 - beta1, made in float64: 1 - 0.999 in float32 is off by 5e-5; sgd: momentum
#define RATE2 4     // 1 - beta2; sgd: keep = 1 - dampening
#define EPS 5       // sgd: 1 for nesterov
#define LOG_BETA1 6 // logarithms made in float64: 1 - beta^t = -expm1(t log(beta)) keeps its digits
#define LOG_BETA2 7

#if defined(LUCID_AMSGRAD)
#define ADAM_STATES 3
#else
#define ADAM_STATES 2
#endif

DEVICE float expm1_(float x) { return expm1f(x); }
DEVICE double expm1_(double x) { return expm1(x); }

// PACK elements of state at a time; for 16-bit parameters that is 32 bytes.
struct state {
  accum_t p, a, b, c;
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
#ifdef LUCID_AMSGRAD
  if (!(s.b <= s.c)) s.c = s.b;    // NaN passes
  s.p -= size * s.a / (sqrt_(s.c) + eps);
#else
  s.p -= size * s.a / (sqrt_(s.b) + eps);
#endif
}

#define TABLES const u64 *__restrict__ params,       /* [tensors] addresses */                                     \
               const u64 *__restrict__ grads,        /* [tensors] 0: no gradient in this step */                   \
               const u64 *__restrict__ first,        /* [tensors] momentum_buffer or exp_avg */                    \
               const u64 *__restrict__ second,       /* [tensors] exp_avg_sq */                                    \
               const u64 *__restrict__ third,        /* [tensors] max_exp_avg_sq */                                \
               const u64 *__restrict__ steps,        /* [tensors] of i64 [blocks of the tensor], steps so far */   \
               const i64 *__restrict__ sizes,        /* [tensors] elements */                                      \
               const int *__restrict__ line,         /* [tensors] line of hyper */                                 \
               const int *__restrict__ block_tensor, /* [blocks] */                                                \
               const i64 *__restrict__ block_start,  /* [blocks] first element */                                  \
               const accum_t *__restrict__ hyper,    /* [lines, 8] */                                              \
               const accum_t *__restrict__ scale,    /* [1] or null */                                             \
               const int *__restrict__ skip,         /* [1] or null */                                             \
               i64 chunk

// Names the block's tensor, its numbers h and the number `time` of this step, which the block notes; leaves when there is nothing to do.
#define BLOCK                                                                                                      \
  const int t = block_tensor[blockIdx.x];                                                                          \
  if (!grads[t] || (skip && skip[0])) return;                                                                      \
  const i64 start = block_start[blockIdx.x], stop = min(sizes[t], start + chunk);                                  \
  accum_t h[HYPER];                                                                                                \
  _Pragma("unroll") for (int j = 0; j < HYPER; j++) h[j] = hyper[line[t] * HYPER + j];                             \
  i64* const count = (i64*)steps[t] + start / chunk;                                                               \
  const i64 time = *count + 1;                                                                                     \
  __syncthreads();                                                                                                 \
  if (threadIdx.x == 0) *count = time;

// Loads, updates and stores elements i .. i + width - 1 of the block's tensor; ELEMENT(s, g) changes `s`.
#define UPDATE(ELEMENT, STATES)                                                                                    \
  scalar_t* p = (scalar_t*)params[t];                                                                              \
  const scalar_t* __restrict__ g = (const scalar_t*)grads[t];                                                      \
  accum_t* a = STATES > 0 ? (accum_t*)first[t] : nullptr;                                                          \
  accum_t* b = STATES > 1 ? (accum_t*)second[t] : nullptr;                                                         \
  accum_t* c = STATES > 2 ? (accum_t*)third[t] : nullptr;                                                          \
  const accum_t factor = scale ? scale[0] : (accum_t)1;                                                            \
  const bool aligned = ((u64)p | (u64)g | (u64)a | (u64)b | (u64)c) % 16 == 0;                                     \
  i64 i = start + threadIdx.x * PACK;                                                                              \
  if (aligned)                                                                                                     \
    for (; i + PACK <= stop; i += 256 * PACK) {                                                                    \
      pack x = load_wide<pack>(p + i);                                                                             \
      const pack y = load(g, i);                                                                                   \
      accum_pack u = {}, w = {}, z = {};                                                                           \
      if (STATES > 0) u = load_wide<accum_pack>(a + i);                                                            \
      if (STATES > 1) w = load_wide<accum_pack>(b + i);                                                            \
      if (STATES > 2) z = load_wide<accum_pack>(c + i);                                                            \
      EACH(k) {                                                                                                    \
        state s = {up(x.v[k]), u.v[k], w.v[k], z.v[k]};                                                            \
        ELEMENT(s, up(y.v[k]) * factor);                                                                           \
        x.v[k] = down(s.p);                                                                                        \
        u.v[k] = s.a;                                                                                              \
        w.v[k] = s.b;                                                                                              \
        z.v[k] = s.c;                                                                                              \
      }                                                                                                            \
      store_wide(p + i, x);                                                                                        \
      if (STATES > 0) store_wide(a + i, u);                                                                        \
      if (STATES > 1) store_wide(b + i, w);                                                                        \
      if (STATES > 2) store_wide(c + i, z);                                                                        \
    }                                                                                                              \
  /* what is left: all of it when an address is odd, else fewer than PACK elements, which one thread has */       \
  for (; i < stop; i += 256 * PACK)                                                                                \
    for (i64 j = i; j < min(stop, i + PACK); j++) {                                                                \
      state s = {up(p[j]), STATES > 0 ? a[j] : (accum_t)0, STATES > 1 ? b[j] : (accum_t)0,                          \
                 STATES > 2 ? c[j] : (accum_t)0};                                                                  \
      ELEMENT(s, up(g[j]) * factor);                                                                               \
      p[j] = down(s.p);                                                                                            \
      if (STATES > 0) a[j] = s.a;                                                                                  \
      if (STATES > 1) b[j] = s.b;                                                                                  \
      if (STATES > 2) c[j] = s.c;                                                                                  \
    }

KERNEL __launch_bounds__(256, 1) sgd(TABLES) {
  BLOCK
  if (time == 1) h[RATE2] = 1;    // the first momentum buffer is the gradient itself, undampened
#define SGD(s, g) sgd_element(s, g, h)
#ifdef LUCID_MOMENTUM
  UPDATE(SGD, 1)
#else
  UPDATE(SGD, 0)
#endif
}

KERNEL __launch_bounds__(256, 1) adam(TABLES) {
  BLOCK
  const accum_t t1 = (accum_t)time, root = sqrt_(-expm1_(t1 * h[LOG_BETA2]));
  const accum_t size = h[LR] * root / -expm1_(t1 * h[LOG_BETA1]), eps = h[EPS] * root;
#define ADAM(s, g) adam_element(s, g, h, size, eps)
  UPDATE(ADAM, ADAM_STATES)
}
