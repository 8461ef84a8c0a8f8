// Shared by runtime.cpp and shadow.h: the state of a launch, and reports.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include "include/cusim_abi.h"

namespace cusim {
enum { MAX_THREADS = 1024, WARP = 32, MAX_WARPS = 32, STACK = 64 * 1024, PAGE = 4096 };
enum { ARENA = 256 * 1024, DYNAMIC = 256 * 1024, GAP = 64 };   // GAP: guard bytes between shared arrays
enum Order { FORWARD, REVERSE, RANDOM };
struct Dim { unsigned x, y, z; };
struct Fiber {
  void* sp;
  char* stack;
  int tid;
  const char* waits;      // what it waits at, for the report of a deadlock
  const char* file;
  int line;
};
struct Array { size_t off, len; unsigned align; };             // one static shared array
struct Report {
  char kind[32];
  char text[200];
  const char* file;       // where, when the source position is known ...
  int line;
  unsigned long pc;       // ... else an offset into the module, for addr2line
  Dim block;
  int thread, times;
};
enum { MAX_REPORTS = 16, MAX_ARRAYS = 128 };
struct Block {            // one static shared array table
  Array arrays[MAX_ARRAYS];
  int count;
  size_t used;
};
static Block arena;
static size_t dyn_bytes;
static Report reports[MAX_REPORTS];
static int n_reports;
static Fiber* current;
static int n_threads;
static unsigned epoch;    // grows at every block-wide barrier and at the end of a block
static int block_number;  // 1, 2, ... in the order of execution
static bool aborted;
static unsigned long module_base;
extern "C" void cusim_swap(void** save, void* to) __attribute__((visibility("hidden")));
extern "C" Dim threadIdx __attribute__((visibility("hidden")));
extern "C" Dim blockIdx __attribute__((visibility("hidden")));

__attribute__((noinline, cold, format(printf, 5, 6)))
static void report(const char* kind, const char* file, int line, void* pc, const char* format, ...) {
  const unsigned long off = pc ? (unsigned long)pc - module_base - 1 : 0;
  for (int i = 0; i < n_reports && i < MAX_REPORTS; i++) {       // the same place and kind once
    Report& r = reports[i];
    if (!strcmp(r.kind, kind) && r.file == file && r.line == line && r.pc == off) { r.times++; return; }
  }
  if (n_reports >= MAX_REPORTS) return;
  Report& r = reports[n_reports++];
  memset(&r, 0, sizeof r);
  snprintf(r.kind, sizeof r.kind, "%s", kind);
  va_list ap;
  va_start(ap, format);
  vsnprintf(r.text, sizeof r.text, format, ap);
  va_end(ap);
  r.file = file; r.line = line; r.pc = off; r.times = 1;
  r.block = blockIdx;
  r.thread = current ? current->tid : -1;
}
static volatile bool in_kernel;      // in the user's code: the only place where a time-out may stop it
struct Inside {                      // the runtime, called by a kernel
  Inside() { in_kernel = false; }
  ~Inside() { in_kernel = true; }
};
struct Place { const char* file; int line; void* pc; };
static Place latest;                 // the latest access, in checked mode
void abort_launch();      // leaves the current thread for good and ends the launch
}  // namespace cusim
