// Runs a kernel on the CPU: one fiber per CUDA thread, real barriers, warp collectives, a chosen order of threads.
// Compiled once (twice: with and without the checks) and linked to every kernel; all state belongs to that one module.
#include "runtime.h"
#include <dlfcn.h>
#include <immintrin.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
extern "C" {
cusim::Dim threadIdx, blockIdx, blockDim, gridDim;
unsigned cusim_gen;
alignas(1024) char cusim_arena[cusim::ARENA];
alignas(1024) char cusim_dyn[cusim::DYNAMIC];
}
#include "shadow.h"

namespace cusim {
struct Collective {       // lanes of one warp that meet under one mask
  unsigned mask, gen, arrived, active[2];
  unsigned unread;        // lanes that were released and have not fetched their result yet
  uint64_t value[2][WARP];
  bool fence;
  Site site;
};
enum { MASKS = WARP };    // more disjoint masks than lanes there cannot be
typedef void (*Body)(void**);
static Fiber fibers[MAX_THREADS];
static void* scheduler_sp;
static int next_thread, n_alive, thread_order[MAX_THREADS], free_fibers[MAX_THREADS], n_free;
static bool finished[MAX_THREADS];
static Dim thread_index[MAX_THREADS];
static int queue[4 * MAX_THREADS], q_head, q_tail, n_ready;
static Order order;
static uint64_t rng_state;
static int bar_wait[MAX_THREADS], bar_n, bar_gen, bar_count[2];
static Site bar_site;
static Collective collectives[MAX_WARPS][MASKS];
static int n_masks[MAX_WARPS], lane_fiber[MAX_WARPS][WARP];
static Body body;
static void** body_args;
static bool stale_stacks;

static uint64_t rnd() {   // xorshift64 (Marsaglia 2003)
  rng_state ^= rng_state << 13; rng_state ^= rng_state >> 7; rng_state ^= rng_state << 17;
  return rng_state;
}

// ---- fibers: six callee-saved registers on a hand-made stack; ucontext would cost two system calls per switch
#if !defined(__x86_64__) || !defined(__linux__)
#error "cusim: x86-64 Linux only"
#endif
asm(".text\n.hidden cusim_swap\n.globl cusim_swap\n.type cusim_swap,@function\ncusim_swap:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

static void push_ready(int f) { queue[q_tail++ & (4 * MAX_THREADS - 1)] = f; n_ready++; }
static int pop_ready() {
  if (order == RANDOM && n_ready > 1) {
    int& a = queue[q_head & (4 * MAX_THREADS - 1)];
    int& b = queue[(q_head + rnd() % n_ready) & (4 * MAX_THREADS - 1)];
    const int t = a; a = b; b = t;
  }
  n_ready--;
  return queue[q_head++ & (4 * MAX_THREADS - 1)];
}
static void thread_ends(int tid);
__attribute__((noinline)) static void fiber_main() {
  for (;;) {              // a fiber whose thread has ended runs the next thread at once
    current->tid = thread_order[next_thread++];
    threadIdx = thread_index[current->tid];
    in_kernel = true;
    body(body_args);
    in_kernel = false;
    thread_ends(current->tid);
    if (n_ready || next_thread >= n_threads) {
      free_fibers[n_free++] = (int)(current - fibers);
      cusim_swap(&current->sp, scheduler_sp);
    }
  }
}
static void init_fiber(Fiber& f) {
  if (!f.stack) {
    f.stack = (char*)mmap(0, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mprotect(f.stack, PAGE, PROT_NONE);
  }
  // tops of stacks differ in their low bits, else all fibers share the same few cache sets
  void** sp = (void**)(f.stack + PAGE + STACK - 64 - ((&f - fibers) % 61) * 64);
  *--sp = 0;
  *--sp = (void*)fiber_main;
  for (int i = 0; i < 6; i++) *--sp = 0;
  f.sp = sp;
}
static void wait_here(const char* what, Site s) {
  Fiber* me = current;
  me->waits = what; me->file = s.file; me->line = s.line;
  cusim_swap(&me->sp, scheduler_sp);
  me->waits = 0;
}
void abort_launch() {
  aborted = true;
  cusim_swap(&current->sp, scheduler_sp);
}

// ---- block-wide barrier: threads that have ended count as arrived
static void barrier_release() {
  for (int i = 0; i < bar_n; i++) push_ready(bar_wait[i]);
  bar_n = 0; bar_gen++; epoch++; bar_site = Site{0, 0, 0};
  bar_count[bar_gen & 1] = 0;
}
// ---- collectives of a warp
static unsigned lanes_needed(int warp, unsigned mask) {
  for (int l = 0; l < WARP; l++)
    if ((mask >> l & 1) && (warp * WARP + l >= n_threads || finished[warp * WARP + l])) mask &= ~(1u << l);
  return mask;
}
static void collective_release(int warp, Collective& c) {
  const int g = c.gen & 1;
  if (c.fence) shadow_syncwarp(warp, c.arrived);
  c.arrived = 0; c.gen++; c.fence = false; c.unread = c.active[g];
  for (int l = 0; l < WARP; l++)
    if ((c.active[g] >> l & 1) && lane_fiber[warp][l] >= 0) push_ready(lane_fiber[warp][l]);
}
static Collective& collective(const char* what, Site s, unsigned mask, uint64_t value, int* parity, bool fence) {
  const int warp = current->tid / WARP, lane = current->tid % WARP;
  if (!(mask >> lane & 1))
    report("bad-mask", s.file, s.line, 0, "%s: the calling lane %d is not in its own mask 0x%08x", what, lane, mask);
  int k = 0;
  while (k < n_masks[warp] && collectives[warp][k].mask != mask) k++;
  if (k == n_masks[warp]) {
    if (k == MASKS)
      for (k = 0; k < MASKS && (collectives[warp][k].arrived || collectives[warp][k].unread); k++) {}
    if (k == MASKS) { report("bad-mask", s.file, s.line, 0, "more than %d masks in use at once", MASKS); abort_launch(); }
    if (k == n_masks[warp]) n_masks[warp]++;
    const unsigned gen = collectives[warp][k].gen;
    collectives[warp][k] = Collective();
    collectives[warp][k].mask = mask; collectives[warp][k].gen = gen;
  }
  Collective& c = collectives[warp][k];
  const int g = *parity = c.gen & 1;
  if (!c.arrived) { c.site = s; c.active[g] = 0; }
  else if (c.site.id != s.id)
    report("divergent-collective", s.file, s.line, 0, "lanes of one warp wait at different places: %s here, another at %s:%d",
           what, c.site.file, c.site.line);
  c.value[g][lane] = value; c.active[g] |= 1u << lane; c.arrived |= 1u << lane; c.fence |= fence;
  const unsigned need = lanes_needed(warp, mask);
  lane_fiber[warp][lane] = (int)(current - fibers);
  if ((c.arrived & need) == need) {
    lane_fiber[warp][lane] = -1;      // goes on by itself
    collective_release(warp, c);
  } else {
    wait_here(what, s);
  }
  c.unread &= ~(1u << lane);
  return c;
}
static void thread_ends(int tid) {
  n_alive--;
  finished[tid] = true;
  if (bar_n && bar_n == n_alive) barrier_release();
  const int warp = tid / WARP;
  for (int k = 0; k < n_masks[warp]; k++) {
    Collective& c = collectives[warp][k];
    if (!c.arrived) continue;
    const unsigned need = lanes_needed(warp, c.mask);
    if ((c.arrived & need) == need) collective_release(warp, c);
  }
}

// ---- faults: a wild access of a kernel becomes a report, not the end of the process
alignas(64) static char landing_stack[32 * 1024], signal_stack[64 * 1024];
static void fault_landing() { abort_launch(); }
static void leave(ucontext_t* uc) {        // when the signal handler returns, the launch ends
  in_kernel = false;
  uc->uc_mcontext.gregs[REG_RIP] = (greg_t)fault_landing;
  uc->uc_mcontext.gregs[REG_RSP] = (greg_t)(landing_stack + sizeof landing_stack - 64 - 8);
}
static void on_fault(int sig, siginfo_t* info, void* context) {
  ucontext_t* uc = (ucontext_t*)context;
  if (!current) { signal(sig, SIG_DFL); return; }
  char* a = (char*)info->si_addr;
  const bool overflow = sig == SIGSEGV && a >= current->stack && a < current->stack + PAGE;
  void* pc = (void*)(uc->uc_mcontext.gregs[REG_RIP] + 1);
  if (sig == SIGFPE) report("division-by-zero", 0, 0, pc, "integer division by zero (or overflow)");
  else if (overflow) report("stack-overflow", 0, 0, pc, "local memory of a thread is larger than %d bytes", (int)STACK);
  else report("segmentation-fault", 0, 0, pc, "access to address %p", (void*)a);
  leave(uc);
}
static double time_limit;
static void on_timeout(int, siginfo_t*, void* context) {
  ucontext_t* uc = (ucontext_t*)context;
  if (!in_kernel || !current) return;      // the timer comes again
  Place p = {0, 0, (void*)(uc->uc_mcontext.gregs[REG_RIP] + 1)};
  if (latest.file || latest.pc) p = latest;
  report("timeout", p.file, p.line, p.pc, "the launch took more than %g s of processor time", time_limit);
  leave(uc);
}
static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct FaultGuard {
  struct sigaction old[4], old_timeout;
  stack_t old_stack;
  timer_t timer;
  bool timed;
  static int timeout_signal() { return SIGRTMIN + 5; }
  explicit FaultGuard(double seconds) {
    stack_t ss = {};
    ss.ss_sp = signal_stack; ss.ss_size = sizeof signal_stack;
    sigaltstack(&ss, &old_stack);
    struct sigaction sa = {};
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sa.sa_sigaction = on_fault;
    for (int i = 0; i < 4; i++) sigaction(FAULTS[i], &sa, &old[i]);
    sa.sa_sigaction = on_timeout;
    sigaction(timeout_signal(), &sa, &old_timeout);
    time_limit = seconds;
    struct sigevent ev = {};
    ev.sigev_notify = SIGEV_THREAD_ID; ev.sigev_signo = timeout_signal();
    ev._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timed = seconds > 0 && timer_create(CLOCK_THREAD_CPUTIME_ID, &ev, &timer) == 0;
    const time_t whole = (time_t)seconds;
    const struct itimerspec spec = {{0, 50000000}, {whole, (long)((seconds - (double)whole) * 1e9) + 1}};   // then every 50 ms
    if (timed) timer_settime(timer, 0, &spec, 0);
  }
  ~FaultGuard() {
    if (timed) timer_delete(timer);
    for (int i = 0; i < 4; i++) sigaction(FAULTS[i], &old[i], 0);
    sigaction(timeout_signal(), &old_timeout, 0);
    sigaltstack(&old_stack, 0);
  }
};

// ---- a launch
static void report_deadlock() {
  char where[160] = "";
  const Fiber* seen[3];
  int n_seen = 0;
  for (int i = 0; i < MAX_THREADS && n_seen < 3; i++) {
    const Fiber& f = fibers[i];
    if (!f.stack || !f.waits) continue;
    bool known = false;
    for (int k = 0; k < n_seen; k++) known |= seen[k]->line == f.line && seen[k]->waits == f.waits;
    if (known) continue;
    int count = 0;
    for (int k = i; k < MAX_THREADS; k++)
      count += fibers[k].stack && fibers[k].waits == f.waits && fibers[k].line == f.line;
    const size_t n = strlen(where);
    snprintf(where + n, sizeof where - n, "%s%d at %s (%s:%d)", n_seen ? ", " : "", count, f.waits, f.file, f.line);
    seen[n_seen++] = &f;
  }
  report("deadlock", n_seen ? seen[0]->file : 0, n_seen ? seen[0]->line : 0, 0,
         "%d threads wait for others that never come: %s", n_alive, where);
}
static void shuffle(int* v, int n) {
  for (int i = n - 1; i > 0; i--) { const int j = (int)(rnd() % (i + 1)), t = v[i]; v[i] = v[j]; v[j] = t; }
}
static void begin_block(size_t index) {
  blockIdx = {(unsigned)(index % gridDim.x), (unsigned)(index / gridDim.x % gridDim.y),
              (unsigned)(index / ((size_t)gridDim.x * gridDim.y))};
  memset(cusim_arena, 0xff, arena.used);              // NaN; -1
  if (dyn_bytes) memset(cusim_dyn, 0xff, dyn_bytes);
  for (int t = 0; t < n_threads; t++) thread_order[t] = order == REVERSE ? n_threads - 1 - t : t;
  if (order == RANDOM) shuffle(thread_order, n_threads);
  next_thread = 0; n_alive = n_threads; q_head = q_tail = n_ready = 0; n_free = 0;
  bar_n = 0; bar_site = Site{0, 0, 0}; bar_count[0] = bar_count[1] = 0;
  memset(n_masks, 0, sizeof n_masks);
  memset(finished, 0, sizeof finished);
  block_number++;
  shadow_begin_block();
}
static void run_block() {
  int used = 0;
  while (!aborted) {
    if (n_ready && (order != RANDOM || next_thread >= n_threads || (rnd() & 3))) {
      current = &fibers[pop_ready()];
      threadIdx = thread_index[current->tid];
      cusim_swap(&scheduler_sp, current->sp);
    } else if (next_thread < n_threads) {
      const int f = n_free ? free_fibers[--n_free] : used++;
      if (!fibers[f].stack) init_fiber(fibers[f]);
      current = &fibers[f];
      cusim_swap(&scheduler_sp, current->sp);
    } else if (n_alive) {
      current = 0;
      report_deadlock();
      aborted = true;
    } else {
      break;
    }
  }
  current = 0;
  epoch++;
}
static void find_base() {
  Dl_info info;
  if (dladdr((void*)&fiber_main, &info)) module_base = (unsigned long)info.dli_fbase;
}
}  // namespace cusim

using namespace cusim;
extern "C" {
int cusim_barrier(const char* file, int line, int id, int pred) {
  const Inside inside;
  const int g = bar_gen & 1;
  if (bar_site.file && bar_site.id != id)
    report("divergent-barrier", file, line, 0, "threads of one block wait at different barriers: here and at %s:%d",
           bar_site.file, bar_site.line);
  bar_site = Site{file, line, id};
  bar_count[g] += pred;
  bar_wait[bar_n++] = (int)(current - fibers);
  if (bar_n == n_alive) barrier_release();
  wait_here("__syncthreads", Site{file, line, id});
  return bar_count[g];
}
void cusim_syncwarp(const char* file, int line, int id, unsigned mask) {
  const Inside inside;
  int p;
  collective("__syncwarp", Site{file, line, id}, mask, 0, &p, true);
}
unsigned long cusim_shfl(const char* file, int line, int id, unsigned mask, unsigned long value, int kind, int arg,
                         int width) {
  const Inside inside;
  static const char* const names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync"};
  const int lane = current->tid % WARP, base = lane & ~(width - 1), end = base + width;
  int source = 0;
  bool keep = false;      // lanes whose source lies outside their segment keep their value
  switch (kind) {
    case IDX: source = base | (arg & (width - 1)); break;
    case UP: source = lane - arg; keep = source < base; break;
    case DOWN: source = lane + arg; keep = source >= end; break;
    default: source = lane ^ arg; keep = source >= end; break;
  }
  int p;
  Collective& c = collective(names[kind], Site{file, line, id}, mask, value, &p, false);
  if (keep) return value;
  if (!(c.active[p] >> source & 1)) {
    report("inactive-lane", file, line, 0, "%s reads lane %d, which takes no part: the value is undefined", names[kind],
           source);
    return 0xfefefefefefefefeul;
  }
  return c.value[p][source];
}
unsigned cusim_ballot(const char* file, int line, int id, unsigned mask, int pred) {
  const Inside inside;
  int p;
  Collective& c = collective("__ballot_sync", Site{file, line, id}, mask, (uint64_t)pred, &p, false);
  unsigned r = 0;
  for (int l = 0; l < WARP; l++) if (c.active[p] >> l & 1) r |= (unsigned)c.value[p][l] << l;
  return r;
}
unsigned cusim_warp_reduce(const char* file, int line, int id, unsigned mask, unsigned value, int op, int is_signed) {
  const Inside inside;
  int p;
  Collective& c = collective("__reduce_sync", Site{file, line, id}, mask, value, &p, false);
  bool first = true;
  unsigned r = 0;
  for (int l = 0; l < WARP; l++) {
    if (!(c.active[p] >> l & 1)) continue;
    const unsigned v = (unsigned)c.value[p][l];
    const bool less = is_signed ? (int)v < (int)r : v < r;
    r = first ? v : op == '+' ? r + v : op == '&' ? (r & v) : op == '|' ? (r | v) : op == '^' ? (r ^ v)
      : op == '<' ? (less ? v : r) : (less ? r : v);
    first = false;
  }
  return r;
}
unsigned cusim_activemask() { return lanes_needed(current->tid / WARP, ~0u); }
void cusim_atomic(const char* file, int line, void* p, int n) {
  const Inside inside;
  shadow_atomic(file, line, p, n);
}
void cusim_fence() { shadow_fence(); }
void cusim_trap(const char* file, int line) {
  const Inside inside;
  report("trap", file, line, 0, "__trap()");
  abort_launch();
}
void cusim_reserve(Slot* slot, unsigned long size, unsigned align) {
  const Inside inside;
  const unsigned at = align < 16 ? 16 : align;
  const size_t off = (arena.used + at - 1) / at * at;
  if (off + size + GAP > ARENA || arena.count == MAX_ARRAYS) {
    report("shared-memory", 0, 0, 0, "more than %d bytes of static shared memory", (int)ARENA);
    abort_launch();
  }
  arena.arrays[arena.count++] = Array{off, size, align};
  arena.used = off + size + GAP;
  memset(cusim_arena + off, 0xff, size + GAP);
  *slot = Slot{cusim_gen, (unsigned)off};
}

#pragma GCC visibility push(default)
// first .. last - 1: the numbers of the blocks that run
struct LaunchConfig { unsigned grid[3], block[3]; unsigned long shared, seed; int order, ftz; double timeout; unsigned long first, last; };
// 0 when the kernel ran without a report
int cusim_launch(void (*thunk)(void**), void** args, const LaunchConfig* c) {
  gridDim = {c->grid[0], c->grid[1], c->grid[2]};
  blockDim = {c->block[0], c->block[1], c->block[2]};
  n_threads = (int)(blockDim.x * blockDim.y * blockDim.z);
  body = thunk; body_args = args; order = (Order)c->order; dyn_bytes = c->shared;
  rng_state = c->seed * 0x9E3779B97F4A7C15ull + 88172645463325252ull;
  if (!rng_state) rng_state = 1;
  n_reports = 0; in_kernel = false; latest = Place{0, 0, 0}; epoch = 1; block_number = 0; aborted = false; current = 0;
  cusim_gen++; arena.count = 0; arena.used = GAP;
  if (!module_base) find_base();
  for (int t = 0; t < n_threads; t++)
    thread_index[t] = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
  if (stale_stacks) for (int i = 0; i < MAX_THREADS; i++) if (fibers[i].stack) { init_fiber(fibers[i]); fibers[i].waits = 0; }
  const size_t n_blocks = c->last - c->first;
  int* blocks = 0;
  if (order == RANDOM && n_blocks > 1 && n_blocks < (1u << 30)) {
    blocks = (int*)malloc(n_blocks * sizeof(int));
    for (size_t i = 0; i < n_blocks; i++) blocks[i] = (int)i;
    shuffle(blocks, (int)n_blocks);
  }
  const unsigned csr = _mm_getcsr();
  if (c->ftz) _mm_setcsr(csr | 0x8040);               // flush results and operands that are subnormal
  {
    FaultGuard guard(c->timeout);
    shadow_begin_launch();
    for (size_t i = 0; i < n_blocks && !aborted; i++) {
      begin_block(c->first + (blocks ? (size_t)blocks[i] : order == REVERSE ? n_blocks - 1 - i : i));
      run_block();
    }
    shadow_end_launch();
  }
  _mm_setcsr(csr);
  free(blocks);
  stale_stacks = aborted;
  return n_reports;
}
// Gives the stacks of all fibers back: each is two mappings, of which Linux allows 65,530 in a process.
void cusim_release() {
  for (int i = 0; i < MAX_THREADS; i++) if (fibers[i].stack) {
    munmap(fibers[i].stack, STACK + PAGE);
    fibers[i].stack = 0; fibers[i].waits = 0;
  }
  n_free = 0; stale_stacks = false;
}
const Report* cusim_reports() { return reports; }
size_t cusim_static_shared() {
  size_t n = 0;
  for (int i = 0; i < arena.count; i++) n += arena.arrays[i].len;
  return n;
}
void cusim_regions(const Region* r, int n, const Segment* s, int m, int granule_bits) { shadow_regions(r, n, s, m, granule_bits); }
void cusim_want_stats(int on) { shadow_want_stats(on); }
int cusim_stats(Traffic* out, int n) { return shadow_stats(out, n); }
#pragma GCC visibility pop
}
