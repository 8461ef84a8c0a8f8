// Checked mode.  The kernel is compiled with -fsanitize=thread but *not* linked to libtsan: g++ then calls a
// __tsan_* hook for every load and store, and the hooks below are ours.  They check bounds, alignment, writes
// to const arguments, reads of shared memory that nobody wrote, races, and count sectors and bank conflicts.
//
// Races: two accesses of one address, one of them a plain write, by two threads that nothing orders.
// Ordered are: accesses with a block-wide barrier between (`epoch`), accesses of two lanes that a __syncwarp
// joined (a vector clock per lane, as in FastTrack, Flanagan & Freund 2009), and accesses of two blocks where
// the first did __threadfence and then an atomic on a word on which the second did an atomic (`released`).
#pragma once
#include <link.h>
#include <sys/mman.h>
#include <unordered_map>
#include <vector>

namespace cusim {
struct Region { uintptr_t lo, hi; int readonly, argument; };  // memory that the kernel may touch; argument -1: named by `memory`
struct Cell;
struct Segment { uintptr_t lo, hi; };                         // disjoint: one shadow each
struct Traffic { unsigned long pc; int kind, shared, bytes; long requests, units, ideal, conflicts; };
#ifndef CUSIM_CHECK
static void shadow_begin_launch() {}
static void shadow_end_launch() {}
static void shadow_begin_block() {}
static void shadow_syncwarp(int, unsigned) {}
static void shadow_fence() {}
static void shadow_atomic(const char*, int, void*, int) {}
static void shadow_regions(const Region*, int, const Segment*, int, int) {}
static void shadow_want_stats(int) {}
static int shadow_stats(Traffic*, int) { return 0; }
#else
enum Access { READ, WRITE, ATOMIC };
struct Cell {                      // one granule: last write, latest reads of this epoch
  unsigned w_epoch, r_epoch;
  int w_block, r_block, r_other_block;
  unsigned short w_thread, r_thread, r_thread2;
  unsigned short w_atomic;
  unsigned w_clock, r_clock, r_clock2, r_warps;
};
struct Shadow { uintptr_t lo, hi; Cell* cells; size_t bytes; };
static std::vector<Region> regions;
static std::vector<Shadow> shadows;
static Cell* shared_cells;                     // of cusim_arena, then of cusim_dyn
static int granule_bits = 2;
static unsigned clocks[MAX_THREADS][WARP];     // clocks[t][l]: what thread t knows of lane l of its warp
static std::unordered_map<uintptr_t, std::vector<int>> released;   // atomic word -> blocks that released to it
static std::vector<char> visible;              // blocks whose writes the running block may read
static bool fenced;
static uintptr_t image_lo, image_hi;

static int find_image(struct dl_phdr_info* info, size_t, void* mine) {
  uintptr_t lo = ~0ul, hi = 0;
  bool found = false;
  for (int k = 0; k < info->dlpi_phnum; k++) {
    if (info->dlpi_phdr[k].p_type != PT_LOAD) continue;
    const uintptr_t a = info->dlpi_addr + info->dlpi_phdr[k].p_vaddr, b = a + info->dlpi_phdr[k].p_memsz;
    lo = a < lo ? a : lo; hi = b > hi ? b : hi;
    found |= (uintptr_t)mine >= a && (uintptr_t)mine < b;
  }
  if (found) { image_lo = lo; image_hi = hi; }
  return found;
}
static void shadow_regions(const Region* r, int n, const Segment* s, int m, int bits) {
  regions.assign(r, r + n);
  shadows.clear();
  for (int i = 0; i < m; i++) shadows.push_back(Shadow{s[i].lo, s[i].hi, 0, 0});
  granule_bits = bits;
}
static size_t shared_bytes;
static Cell* map_cells(size_t bytes, size_t* size) {          // pages are taken from the system when first touched
  *size = ((bytes >> granule_bits) + 2) * sizeof(Cell);
  return (Cell*)mmap(0, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}
static void shadow_begin_launch() {
  if (!image_lo) dl_iterate_phdr(find_image, (void*)cusim_arena);
  for (Shadow& s : shadows) s.cells = map_cells(s.hi - s.lo, &s.bytes);
  shared_cells = map_cells(ARENA + DYNAMIC, &shared_bytes);
  released.clear();
}
static void stats_flush();
static void shadow_end_launch() {
  for (Shadow& s : shadows) munmap(s.cells, s.bytes);
  munmap(shared_cells, shared_bytes);
  shadows.clear();
  stats_flush();
}
static void stats_begin_block();
static void shadow_begin_block() {
  memset(shared_cells, 0, ((arena.used >> granule_bits) + 1) * sizeof(Cell));
  memset(shared_cells + (ARENA >> granule_bits), 0, ((dyn_bytes >> granule_bits) + 1) * sizeof(Cell));
  memset(clocks, 0, sizeof clocks);
  for (int t = 0; t < n_threads; t++) clocks[t][t % WARP] = 1;
  visible.assign((size_t)block_number + 1, 0);
  fenced = false;
  stats_begin_block();
}
static void shadow_syncwarp(int warp, unsigned lanes) {
  unsigned joined[WARP] = {0};
  for (int l = 0; l < WARP; l++)
    if (lanes >> l & 1)
      for (int k = 0; k < WARP; k++) {
        const unsigned c = clocks[warp * WARP + l][k];
        joined[k] = c > joined[k] ? c : joined[k];
      }
  for (int l = 0; l < WARP; l++)
    if (lanes >> l & 1) {
      memcpy(clocks[warp * WARP + l], joined, sizeof joined);
      clocks[warp * WARP + l][l]++;
    }
}
static void shadow_fence() { fenced = true; }
static void release_acquire(uintptr_t word) {
  std::vector<int>& blocks = released[word];
  for (int b : blocks) visible[b] = 1;
  if (fenced && (blocks.empty() || blocks.back() != block_number)) blocks.push_back(block_number);
}
static void say(const char* kind, Place p, const char* text) { report(kind, p.file, p.line, p.pc, "%s", text); }

// ---- traffic: 32-byte sectors per request of a warp (global), wavefronts (shared)
enum { MAX_LOG = 1 << 20, MAX_SITES = 256 };
struct Logged { unsigned site, instance; unsigned char warp, lane, bytes; uintptr_t address; };
static bool want_stats;
static std::vector<Logged> log_;
static Traffic sites[MAX_SITES];
static int n_sites;
static unsigned instances[MAX_SITES][MAX_THREADS];
static bool same_request(const Logged& a, const Logged& b) {
  return a.site == b.site && a.warp == b.warp && a.instance == b.instance;
}
static int by_request(const void* p, const void* q) {
  const Logged &a = *(const Logged*)p, &b = *(const Logged*)q;
  if (a.site != b.site) return a.site < b.site ? -1 : 1;
  if (a.warp != b.warp) return a.warp < b.warp ? -1 : 1;
  if (a.instance != b.instance) return a.instance < b.instance ? -1 : 1;
  return (int)a.lane - (int)b.lane;
}
static void count_sectors(Traffic& t, const Logged* a, int n) {
  std::vector<uintptr_t> seen;
  for (int i = 0; i < n; i++)
    for (uintptr_t s = a[i].address >> 5; s <= (a[i].address + a[i].bytes - 1) >> 5; s++) {
      bool known = false;
      for (uintptr_t o : seen) known |= o == s;
      if (!known) seen.push_back(s);
    }
  t.units += (long)seen.size();
  t.ideal += (n * a[0].bytes + 31) / 32;
}
static void count_wavefronts(Traffic& t, const Logged* a, int n) {
  const int lanes = a[0].bytes <= 4 ? 32 : 128 / a[0].bytes;      // 8 bytes: half a warp at a time; 16: a quarter
  for (int first = 0; first < WARP; first += lanes) {
    std::vector<uintptr_t> banks[32];
    size_t worst = 0;
    for (int i = 0; i < n; i++) {
      if (a[i].lane < first || a[i].lane >= first + lanes) continue;
      for (int e = 0; e < (a[i].bytes + 3) / 4; e++) {
        const uintptr_t word = (a[i].address >> 2) + e;
        std::vector<uintptr_t>& bank = banks[word & 31];
        bool known = false;
        for (uintptr_t o : bank) known |= o == word;
        if (!known) bank.push_back(word);
        worst = bank.size() > worst ? bank.size() : worst;
      }
    }
    t.units += (long)worst; t.ideal += worst > 0; t.conflicts += worst > 1 ? (long)worst - 1 : 0;
  }
}
static void stats_flush() {
  qsort(log_.data(), log_.size(), sizeof(Logged), by_request);
  for (size_t i = 0, j; i < log_.size(); i = j) {
    for (j = i; j < log_.size() && same_request(log_[i], log_[j]); j++) {}
    Traffic& t = sites[log_[i].site];
    t.requests++;
    (t.shared ? count_wavefronts : count_sectors)(t, &log_[i], (int)(j - i));
  }
  log_.clear();
}
static void stats_begin_block() {
  if (!want_stats) return;
  stats_flush();
  memset(instances, 0, sizeof instances);
}
static void stats_note(uintptr_t a, int n, int kind, bool shared, Place p) {
  const unsigned long pc = p.pc ? (unsigned long)p.pc - module_base - 1 : 0;
  int i = 0;
  while (i < n_sites && !(sites[i].pc == pc && sites[i].kind == kind && sites[i].shared == (int)shared)) i++;
  if (i == MAX_SITES || n > 16) return;
  if (i == n_sites) sites[n_sites++] = Traffic{pc, kind, shared, n, 0, 0, 0, 0};
  if (log_.size() == MAX_LOG) stats_flush();
  const int t = current->tid;
  log_.push_back(Logged{(unsigned)i, instances[i][t]++, (unsigned char)(t / WARP), (unsigned char)(t % WARP),
                        (unsigned char)n, a});
}
static void shadow_want_stats(int on) { want_stats = on; n_sites = 0; }
static int shadow_stats(Traffic* out, int n) {
  n = n < n_sites ? n : n_sites;
  memcpy(out, sites, n * sizeof(Traffic));
  return n;
}

// ---- races
static bool seen(int t, int other, unsigned clock) { return clocks[t][other % WARP] >= clock; }
static bool write_races(const Cell& c, int t, int kind) {
  if (!c.w_epoch || (kind == ATOMIC && c.w_atomic)) return false;
  if (c.w_block != block_number) return !visible[c.w_block];
  if (c.w_epoch != epoch || c.w_thread == t) return false;
  return c.w_thread / WARP != t / WARP || !seen(t, c.w_thread, c.w_clock);
}
static int read_races(const Cell& c, int t) {          // the racing reader, -2 for one of another block, -1 for none
  if (!c.r_epoch) return -1;
  if (c.r_other_block && !visible[c.r_other_block]) return -2;
  if (c.r_block != block_number) return visible[c.r_block] ? -1 : -2;
  if (c.r_epoch != epoch) return -1;
  const int warp = t / WARP;
  if (c.r_warps & ~(1u << warp)) return c.r_thread / WARP != warp ? c.r_thread : c.r_thread2;
  if (c.r_thread != t && !seen(t, c.r_thread, c.r_clock)) return c.r_thread;
  if (c.r_thread2 != t && c.r_thread2 != c.r_thread && !seen(t, c.r_thread2, c.r_clock2)) return c.r_thread2;
  return -1;
}
static void note_read(Cell& c, int t) {
  if (c.r_epoch && c.r_block != block_number) c.r_other_block = c.r_block;
  if (c.r_epoch != epoch || c.r_block != block_number) {
    c.r_warps = 0; c.r_thread = c.r_thread2 = (unsigned short)t; c.r_clock2 = clocks[t][t % WARP];
  } else if (c.r_thread != t) {
    // of two earlier readers keep the one of another warp: only a block-wide barrier orders it
    if (c.r_thread2 / WARP == t / WARP || c.r_thread / WARP != t / WARP) { c.r_thread2 = c.r_thread; c.r_clock2 = c.r_clock; }
  }
  c.r_epoch = epoch; c.r_block = block_number; c.r_thread = (unsigned short)t; c.r_clock = clocks[t][t % WARP];
  c.r_warps |= 1u << (t / WARP);
}
static void note_write(Cell& c, int t, int kind) {
  c.w_epoch = epoch; c.w_block = block_number; c.w_thread = (unsigned short)t;
  c.w_clock = clocks[t][t % WARP]; c.w_atomic = kind == ATOMIC;
}
static const char* verb(int kind) { return kind == READ ? "read" : kind == WRITE ? "write" : "atomic"; }
static void check_cell(Cell& c, int kind, bool shared, Place p) {
  const int t = current->tid;
  const char* space = shared ? "shared" : "global";
  if (kind == READ && shared && !c.w_epoch) say("uninitialised", p, "read of shared memory that no thread has written");
  if (write_races(c, t, kind)) {
    if (c.w_block != block_number)
      report("race", p.file, p.line, p.pc, "%s %s after a write by another block", space, verb(kind));
    else
      report("race", p.file, p.line, p.pc, "%s %s after a write by thread %d with no barrier between", space, verb(kind),
             c.w_thread);
  } else if (kind != READ) {
    const int r = read_races(c, t);
    if (r == -2) report("race", p.file, p.line, p.pc, "%s %s after a read by another block", space, verb(kind));
    else if (r >= 0)
      report("race", p.file, p.line, p.pc, "%s %s after a read by thread %d with no barrier between", space, verb(kind), r);
  }
  if (kind == READ) note_read(c, t);
  else note_write(c, t, kind);
}
static void check_cells(Cell* first, uintptr_t offset, int n, int kind, bool shared, Place p) {
  const int granule = 1 << granule_bits;
  if (n < granule && kind != READ) {      // part of a granule: too coarse for races, enough for "written"
    if (!first[offset >> granule_bits].w_epoch) note_write(first[offset >> granule_bits], current->tid, ATOMIC);
    return;
  }
  if (n < granule) return;
  for (uintptr_t k = offset >> granule_bits; k <= (offset + n - 1) >> granule_bits; k++) check_cell(first[k], kind, shared, p);
}

// ---- bounds
static void out_of_bounds(uintptr_t a, int n, int kind, Place p) {
  long best = 1l << 62;
  int which = -1;
  bool after = false;
  for (const Region& r : regions) {
    const bool past = a >= r.lo;
    const long d = past ? (long)(a - r.hi) : (long)(r.lo - a);
    if (d < best) { best = d; which = r.argument; after = past; }
  }
  char name[32] = "an array named by memory=";
  if (which >= 0) snprintf(name, sizeof name, "argument %d", which);
  if (regions.empty())
    report("out-of-bounds", p.file, p.line, p.pc, "global %s of %d bytes: no argument is an array", verb(kind), n);
  else if (best < 0)
    report("out-of-bounds", p.file, p.line, p.pc, "global %s of %d bytes reaches %ld bytes past the end of %s", verb(kind), n,
           best + n, name);
  else
    report("out-of-bounds", p.file, p.line, p.pc, "global %s of %d bytes, %ld bytes %s %s", verb(kind), n, best,
           after ? "past the end of" : "before", name);
  abort_launch();                         // the access itself must not happen
}
static void check_shared_static(size_t off, int n, bool promised, int kind, Place p) {
  for (int i = 0; i < arena.count; i++) {
    const Array& v = arena.arrays[i];
    if (off < v.off || off + n > v.off + v.len) continue;
    if (promised && (unsigned)n > v.align)
      report("misaligned", p.file, p.line, p.pc,
             "%d-byte access to a shared array that is declared with %u-byte alignment: add __align__(%d)", n, v.align, n);
    return;
  }
  report("out-of-bounds", p.file, p.line, p.pc, "shared %s of %d bytes outside the %lu-byte array", verb(kind), n,
         (unsigned long)(arena.count == 1 ? arena.arrays[0].len : 0));
  abort_launch();
}
// `promised`: the type of the access has an alignment of n bytes
static void access(void* address, int n, int kind, bool promised, Place p) {
  if (!current) return;
  const uintptr_t a = (uintptr_t)address;
  if (a - (uintptr_t)current->stack < STACK + PAGE) return;                 // local memory
  const Inside inside;
  latest = p;
  if (promised && (a & (n - 1))) report("misaligned", p.file, p.line, p.pc, "%d-byte %s at an address that is %d more than a multiple of %d", n, verb(kind), (int)(a & (n - 1)), n);
  const uintptr_t s = a - (uintptr_t)cusim_arena, d = a - (uintptr_t)cusim_dyn;
  if (s < ARENA) {
    check_shared_static(s, n, promised, kind, p);
    if (want_stats) stats_note(a, n, kind, true, p);
    check_cells(shared_cells, s, n, kind, true, p);
  } else if (d < DYNAMIC) {
    if (d + n > dyn_bytes) {
      report("out-of-bounds", p.file, p.line, p.pc, "shared %s of %d bytes at offset %lu of the %lu bytes of dynamic shared memory",
             verb(kind), n, (unsigned long)d, (unsigned long)dyn_bytes);
      abort_launch();
    }
    if (want_stats) stats_note(a, n, kind, true, p);
    check_cells(shared_cells, ARENA + d, n, kind, true, p);
  } else if (a - image_lo >= image_hi - image_lo) {                         // else: __constant__ tables, built-in variables
    bool inside = false, writable = false;
    for (const Region& r : regions)
      if (a >= r.lo && a + n <= r.hi) { inside = true; writable |= !r.readonly; }
    if (!inside) out_of_bounds(a, n, kind, p);
    if (kind != READ && !writable) say("read-only", p, "write to an array that the kernel takes as const");
    if (want_stats) stats_note(a, n, kind, false, p);
    for (Shadow& w : shadows)
      if (a >= w.lo && a < w.hi) { check_cells(w.cells, a - w.lo, n, kind, false, p); break; }
  }
}
static void shadow_atomic(const char* file, int line, void* p, int n) {
  access(p, n, ATOMIC, true, Place{file, line, 0});
  if ((uintptr_t)p - (uintptr_t)cusim_arena >= ARENA) release_acquire((uintptr_t)p);
}
#endif
}  // namespace cusim

#ifdef CUSIM_CHECK
#define CUSIM_HOOK(N)                                                                                                       \
  CUSIM_HIDDEN void __tsan_read##N(void* p) { cusim::access(p, N, cusim::READ, true, {0, 0, __builtin_return_address(0)}); }   \
  CUSIM_HIDDEN void __tsan_write##N(void* p) { cusim::access(p, N, cusim::WRITE, true, {0, 0, __builtin_return_address(0)}); } \
  CUSIM_HIDDEN void __tsan_unaligned_read##N(void* p) {                                                                     \
    cusim::access(p, N, cusim::READ, false, {0, 0, __builtin_return_address(0)});                                            \
  }                                                                                                                         \
  CUSIM_HIDDEN void __tsan_unaligned_write##N(void* p) {                                                                    \
    cusim::access(p, N, cusim::WRITE, false, {0, 0, __builtin_return_address(0)});                                           \
  }
CUSIM_HOOK(1) CUSIM_HOOK(2) CUSIM_HOOK(4) CUSIM_HOOK(8) CUSIM_HOOK(16)
CUSIM_HIDDEN void __tsan_read_range(void* p, size_t n) {
  cusim::access(p, (int)n, cusim::READ, false, {0, 0, __builtin_return_address(0)});
}
CUSIM_HIDDEN void __tsan_write_range(void* p, size_t n) {
  cusim::access(p, (int)n, cusim::WRITE, false, {0, 0, __builtin_return_address(0)});
}
CUSIM_HIDDEN void __tsan_func_entry(void*) {}
CUSIM_HIDDEN void __tsan_func_exit() {}
CUSIM_HIDDEN void __tsan_init() {}
CUSIM_HIDDEN void __tsan_vptr_update(void**, void*) {}
CUSIM_HIDDEN void __tsan_vptr_read(void**) {}
#endif
