// Read while the kernel source is preprocessed: the names that must know where they were written.
// A barrier is told from another one by its place in the source.  A return address would not do:
// g++ may clone the branch that holds it.
#pragma once
#define __CUSIM__ 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#endif
#define CUSIM_SITE cusim::Site{__FILE__, __LINE__, __COUNTER__}
#define __syncthreads() cusim::barrier(CUSIM_SITE, 0)
#define __syncthreads_count(p) cusim::barrier(CUSIM_SITE, (p) ? 1 : 0)
#define __syncthreads_or(p) (cusim::barrier(CUSIM_SITE, (p) ? 1 : 0) > 0)
#define __syncthreads_and(p) (cusim::barrier(CUSIM_SITE, (p) ? 0 : 1) == 0)
#define __syncwarp(...) cusim::syncwarp(CUSIM_SITE __VA_OPT__(,) __VA_ARGS__)
#define __shfl_sync(...) cusim::shfl(CUSIM_SITE, cusim::IDX, __VA_ARGS__)
#define __shfl_up_sync(...) cusim::shfl(CUSIM_SITE, cusim::UP, __VA_ARGS__)
#define __shfl_down_sync(...) cusim::shfl(CUSIM_SITE, cusim::DOWN, __VA_ARGS__)
#define __shfl_xor_sync(...) cusim::shfl(CUSIM_SITE, cusim::XOR, __VA_ARGS__)
#define __ballot_sync(m, p) cusim::ballot(CUSIM_SITE, m, (p) ? 1 : 0)
#define __any_sync(m, p) (cusim::ballot(CUSIM_SITE, m, (p) ? 1 : 0) != 0)
#define __all_sync(m, p) (cusim::ballot(CUSIM_SITE, m, (p) ? 0 : 1) == 0)
#define __reduce_add_sync(m, v) cusim::warp_reduce(CUSIM_SITE, '+', m, v)
#define __reduce_min_sync(m, v) cusim::warp_reduce(CUSIM_SITE, '<', m, v)
#define __reduce_max_sync(m, v) cusim::warp_reduce(CUSIM_SITE, '>', m, v)
#define __reduce_and_sync(m, v) cusim::warp_reduce(CUSIM_SITE, '&', m, v)
#define __reduce_or_sync(m, v) cusim::warp_reduce(CUSIM_SITE, '|', m, v)
#define __reduce_xor_sync(m, v) cusim::warp_reduce(CUSIM_SITE, '^', m, v)
#define atomicAdd(...) cusim::atomic_add(CUSIM_SITE, __VA_ARGS__)
#define atomicSub(...) cusim::atomic_sub(CUSIM_SITE, __VA_ARGS__)
#define atomicExch(...) cusim::atomic_exch(CUSIM_SITE, __VA_ARGS__)
#define atomicMin(...) cusim::atomic_min(CUSIM_SITE, __VA_ARGS__)
#define atomicMax(...) cusim::atomic_max(CUSIM_SITE, __VA_ARGS__)
#define atomicInc(...) cusim::atomic_inc(CUSIM_SITE, __VA_ARGS__)
#define atomicDec(...) cusim::atomic_dec(CUSIM_SITE, __VA_ARGS__)
#define atomicAnd(...) cusim::atomic_and(CUSIM_SITE, __VA_ARGS__)
#define atomicOr(...) cusim::atomic_or(CUSIM_SITE, __VA_ARGS__)
#define atomicXor(...) cusim::atomic_xor(CUSIM_SITE, __VA_ARGS__)
#define atomicCAS(...) cusim::atomic_cas(CUSIM_SITE, __VA_ARGS__)
#define __trap() cusim::trap(CUSIM_SITE)
