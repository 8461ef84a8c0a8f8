#include "activations.cuh"
// activation_backward   dx = g f'(v), with v = f(x) for relu, tanh, sigmoid and v = x for gelu, silu, leaky_relu   (-DLUCID_SLOPE=...)
//                       launch: 256 threads, a pack per thread and step, grid-stride
// activation_forward    out = f(x)   (-DLUCID_VALUE=...)
// masked_scale          out = x mask scale: dropout with a given mask
// copy                  out = x: the yardstick of benchmarks/roofline.py
//
// bytes activation_forward: 2*n*s; n=67108864 float32: 536.9 MB, floor 124.9 us on an H200
// bytes activation_backward: 3*n*s; n=67108864 float32: 805.3 MB, floor 187.3 us on an H200
// bytes masked_scale: n*(2*s+1); n=67108864 float32: 604 MB, floor 140.5 us on an H200
// bytes copy: 2*n*s; n=67108864 float32: 536.9 MB, floor 124.9 us on an H200

#ifdef LUCID_SLOPE
KERNEL __launch_bounds__(256, 1) activation_backward(const scalar_t* __restrict__ g,    // [n]
                                                     const scalar_t* __restrict__ v,    // [n] the input or the output of the activation
                                                     scalar_t* __restrict__ dx,         // [n]
                                                     accum_t slope, i64 n) {
  FOR_PACKS(i, n) {
    const pack a = load(g, i), b = load(v, i);
    pack r;
    EACH(k) r.v[k] = down(up(a.v[k]) * LUCID_SLOPE(up(b.v[k]), slope));
    store(dx, i, r);
  }
  FOR_TAIL(i, n) dx[i] = down(up(g[i]) * LUCID_SLOPE(up(v[i]), slope));
}
#elif defined(LUCID_VALUE)
KERNEL __launch_bounds__(256, 1) activation_forward(const scalar_t* __restrict__ x,    // [n]
                                                    scalar_t* __restrict__ out,        // [n]
                                                    accum_t slope, i64 n) {
  FOR_PACKS(i, n) {
    pack p = load(x, i);
    EACH(k) p.v[k] = down(LUCID_VALUE(up(p.v[k]), slope));
    store(out, i, p);
  }
  FOR_TAIL(i, n) out[i] = down(LUCID_VALUE(up(x[i]), slope));
}
#else
KERNEL __launch_bounds__(256, 1) masked_scale(const scalar_t* __restrict__ x,           // [n]
                                              const unsigned char* __restrict__ mask,   // [n] 0 or 1
                                              scalar_t* __restrict__ out,               // [n]
                                              accum_t scale, i64 n) {
  FOR_PACKS(i, n) {
    const pack a = load(x, i);
    pack r;
    EACH(k) r.v[k] = down(up(a.v[k]) * (mask[i + k] ? scale : (accum_t)0));
    store(out, i, r);
  }
  FOR_TAIL(i, n) out[i] = down(up(x[i]) * (mask[i] ? scale : (accum_t)0));
}

KERNEL __launch_bounds__(256, 1) copy(const scalar_t* __restrict__ x,    // [n]
                                      scalar_t* __restrict__ out,        // [n]
                                      i64 n) {
  FOR_PACKS(i, n) store(out, i, load(x, i));
  FOR_TAIL(i, n) out[i] = x[i];
}
#endif
