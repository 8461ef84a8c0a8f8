// What the kernel's translation unit and the runtime (runtime.cpp) share.
#pragma once
namespace cusim {
struct Site {            // a place in the user's source
  const char* file;
  int line, id;
};
struct Slot {            // where a static __shared__ array lies in this launch
  unsigned gen, off;
};
enum ShuffleKind { IDX, UP, DOWN, XOR };
struct Param {           // one kernel parameter, for the check of the arguments
  char kind, pointer, constant, pad;   // kind: f i u b e(half) E(bfloat16) P(pointer) V(other)
  int size, align;                     // of the value, or of what is pointed to
};
}  // namespace cusim
#define CUSIM_HIDDEN extern "C" __attribute__((visibility("hidden")))
CUSIM_HIDDEN int cusim_barrier(const char* file, int line, int id, int pred);
CUSIM_HIDDEN void cusim_syncwarp(const char* file, int line, int id, unsigned mask);
CUSIM_HIDDEN unsigned long cusim_shfl(const char* file, int line, int id, unsigned mask, unsigned long value,
                                      int kind, int arg, int width);
CUSIM_HIDDEN unsigned cusim_ballot(const char* file, int line, int id, unsigned mask, int pred);
CUSIM_HIDDEN unsigned cusim_warp_reduce(const char* file, int line, int id, unsigned mask, unsigned value, int op,
                                        int is_signed);
CUSIM_HIDDEN unsigned cusim_activemask();
CUSIM_HIDDEN void cusim_atomic(const char* file, int line, void* p, int n);
CUSIM_HIDDEN void cusim_fence();
CUSIM_HIDDEN void cusim_trap(const char* file, int line);
CUSIM_HIDDEN void cusim_reserve(cusim::Slot* slot, unsigned long size, unsigned align);
CUSIM_HIDDEN unsigned cusim_gen;        // number of the launch
CUSIM_HIDDEN char cusim_arena[];        // static shared memory
CUSIM_HIDDEN char cusim_dyn[];          // dynamic shared memory
