// Values f(x) and slopes f'(x) of the activations, the slopes by `out` = f(x) where that is enough. The second argument serves leaky_relu alone.
// -DLUCID_VALUE=gelu_value or -DLUCID_SLOPE=relu_slope picks one.
#pragma once
#include "lucid.cuh"

// CDF and density of the normal distribution: gelu(x) = x CDF(x).
#define SQRT_HALF ((accum_t)0.70710678118654752440)
#define INV_SQRT_2PI ((accum_t)0.39894228040143267794)
#define SQRT_2_OVER_PI ((accum_t)0.79788456080286535588)
#define CUBIC ((accum_t)0.044715)

DEVICE accum_t logistic(accum_t x) {
  // e^-x is held below overflow: at the bound the result is 1e-38 (1e-308), which x times it does not feel.
  return 1 / (1 + exp_(-max_(x, sizeof(accum_t) == 8 ? (accum_t)-709 : (accum_t)-88)));
}
DEVICE accum_t tanh_of(accum_t x) { return tanh_(SQRT_2_OVER_PI * x * (1 + CUBIC * (x * x))); }

DEVICE accum_t leaky_relu_value(accum_t x, accum_t slope) { return x <= 0 ? x * slope : x; }
DEVICE accum_t sigmoid_value(accum_t x, accum_t) { return x != x ? x : logistic(x); }
DEVICE accum_t silu_value(accum_t x, accum_t) { return x * logistic(x); }
DEVICE accum_t gelu_value(accum_t x, accum_t) { return (accum_t)0.5 * x * erfc_(-SQRT_HALF * x); }
DEVICE accum_t gelu_tanh_value(accum_t x, accum_t) { return (accum_t)0.5 * x * (1 + tanh_of(x)); }

DEVICE accum_t relu_slope(accum_t out, accum_t) { return out <= 0 ? (accum_t)0 : (accum_t)1; }                // 1 at NaN
DEVICE accum_t leaky_relu_slope(accum_t x, accum_t slope) { return x <= 0 ? slope : (accum_t)1; }    // 1 at NaN
DEVICE accum_t tanh_slope(accum_t out, accum_t) { return (1 - out) * (1 + out); }
DEVICE accum_t sigmoid_slope(accum_t out, accum_t) { return out * (1 - out); }
DEVICE accum_t silu_slope(accum_t x, accum_t) {
  const accum_t s = logistic(x);
  return s * (1 + x * (1 - s));
}
DEVICE accum_t gelu_slope(accum_t x, accum_t) {
  return (accum_t)0.5 * erfc_(-SQRT_HALF * x) + x * INV_SQRT_2PI * exp_((accum_t)-0.5 * x * x);
}
DEVICE accum_t gelu_tanh_slope(accum_t x, accum_t) {
  const accum_t q = x * x, t = tanh_of(x);
  return (accum_t)0.5 * (1 + t) + (accum_t)0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * CUBIC * q);
}
