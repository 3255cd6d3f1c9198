// The scheduler of emulated kernels: the threads of a threadgroup are fibres on one
// OS thread that yield at barriers and simdgroup operations.
//
// Scheduling is round robin. The lanes of a simdgroup form a ring in the order of
// the launch's options; a lane runs until it arrives at an operation or returns, then
// the next lane of the ring runs. When control returns to the lane that arrived first,
// all others have arrived and the operation is complete. A threadgroup barrier
// runs the next simdgroup once the whole ring has arrived. If lanes synchronise at
// different operations, or return while others wait at a barrier, the kernel is wrong:
// the launch ends at once with a message that names the lines.
//
// Everything is in a namespace of the variant (see MSL_VARIANT), because the
// runtime is compiled once for the kernels and once for its test kernels in one program.
#ifndef SMELT_EMULATED_RUNTIME_H
#define SMELT_EMULATED_RUNTIME_H

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
// a*b+c must round twice everywhere. Without the elimination of partial redundancies the code is
// smaller by 26 kB, which the bound on it needs, and slower by 1 to 4 %.
#pragma GCC optimize("fp-contract=off", "no-tree-pre")
#endif

#include <stddef.h>
#include <stdint.h>
#include "../../abi/abi.h"

#ifndef MSL_VARIANT
#error "define MSL_VARIANT: the namespace of this build of the kernels"
#endif

#if defined(__SANITIZE_ADDRESS__)
#define MSL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MSL_ASAN 1
#endif
#endif

// A fibre's stack holds a few frames of this size: there is no recursion (mslgen
// refuses it), so that bounding a frame bounds the stack.
#if defined(__GNUC__) && !defined(__clang__) && !defined(MSL_ASAN)
#pragma GCC diagnostic error "-Wframe-larger-than=32768"
#endif

#define MSL_INLINE inline __attribute__((always_inline))
#define MSL_LIKELY(x) __builtin_expect(!!(x), 1)
#define MSL_UNLIKELY(x) __builtin_expect(!!(x), 0)

// Instrumented builds (MSL_COUNTED) record loops, branches, shifts, conversions and
// MSL_TRACE; in other builds these macros are empty.
#ifdef MSL_COUNTED
#include "trace/trace.h"
#else
#define MSL_LOOP(site)
#define MSL_TURN(site, ...) (__VA_ARGS__)
#define MSL_STEP(...) (__VA_ARGS__)
#define MSL_BRANCH(site, ...) (__VA_ARGS__)
#define MSL_CHOOSE(site, ...) (__VA_ARGS__)
#define MSL_BY
#define MSL_CAST(type, ...) __VA_ARGS__
#define MSL_TRACE(...)
#define MSL_UNTRACED
#endif

namespace msl {
inline namespace MSL_VARIANT {

constexpr uint32_t lanes = 32;
constexpr uint32_t max_threads = 1024;
constexpr uint32_t max_simdgroups = max_threads / lanes;
constexpr uint32_t max_buffers = 31;
constexpr uint32_t max_dynamic = 4;
constexpr uint32_t max_constants = 32;
constexpr uint32_t group_limit = 32768; // bytes of threadgroup memory
constexpr uint32_t max_variables = 64;

// A thread that loads an atomic may wait for one that cannot run before it; this many
// loads by a threadgroup are taken for that.
constexpr uint64_t max_waits = 1 << 28;

#ifdef MSL_ASAN
constexpr uint32_t red_zone = 64; // poisoned bytes between threadgroup variables
#else
constexpr uint32_t red_zone = 0;
#endif

// place returns where the threadgroup variable after one that ends at `end` begins.
constexpr uint32_t place(uint32_t end) { return ((end + 15) & ~15u) + red_zone; }

struct Size {
    uint32_t x, y, z;
};

struct Worker;

// Thread is the state of the thread for which a thunk calls its kernel.
struct Thread {
    Worker *worker;
    uint32_t index;
    Size position;
    inline Size position_in_grid() const;
    inline Size threads_per_grid() const;
};

struct BufferArgument {
    uint32_t index;
    uint32_t bytes; // of the struct behind a reference, which must be bound; 0 for a pointer
    const char *name;
};

// Kernel is one entry of a generated unit.
struct Kernel {
    const char *name;
    const char *file;
    uint32_t line;
    void (*thread)(const Thread &);
    void (*group)(Worker &); // runs a threadgroup as a loop; null if its threads meet
    uint32_t threads;        // most threads of a threadgroup
    uint32_t constants;      // bit i: function constant i must be set
    uint32_t dynamic;        // bit i: has [[threadgroup(i)]]
    const BufferArgument *buffers;
    uint32_t buffer_count;
    const uint32_t *variables; // bytes of its threadgroup variables, in order
    uint32_t variable_count;
};

struct Unit {
    const Kernel *kernels;
    uint32_t count;
};

// The units of this variant, ended by null.
extern const Unit *const units[];

// Site is the source of an operation at which lanes meet.
struct Site {
    const char *what;
    const char *file;
    uint32_t line;
    uint32_t id; // of the call in its unit, given by mslgen: two on one line differ
};

// Simdgroup of the running threadgroup. Consecutive operations use the two halves
// of its slots in turn: a lane may arrive at the next one before its neighbours
// have read the results of this one.
struct alignas(64) Simdgroup {
    alignas(64) unsigned char slots[2][lanes * 16];
    alignas(64) unsigned char result[2][64];
    uint32_t active[2]; // lanes that took part
    Site site;          // of the operation that lanes are arriving at
    uint32_t live;      // lanes that have not returned
    uint16_t head;      // first live lane in the ring, as thread index: it arrives first and resumes first
    uint8_t half;
    bool waiting; // lanes wait in a simdgroup operation
};

// Worker is the state of an OS thread that executes threadgroups.
struct Worker {
    uint32_t tid; // running thread of the threadgroup
    uint16_t next[max_threads];
    uint16_t previous[max_threads];
    void *stack_pointer[max_threads]; // of a fibre that waits; null before it starts
    Simdgroup simdgroup[max_simdgroups];
    uint16_t next_simdgroup[max_simdgroups];
    uint16_t previous_simdgroup[max_simdgroups];
    uint32_t first_simdgroup; // first live one in the ring
    uint32_t live;            // threads that have not returned
    bool at_barrier;
    Site barrier;

    void *buffers[max_buffers];
    void *dynamic[max_dynamic];
    unsigned char *group_memory;
    uint32_t constants[max_constants];
    uint32_t constants_set;
    Size group_id, group, grid;
    uint32_t threads, simdgroups;
    const Kernel *kernel;
    const uint16_t *order; // of threads, for kernels whose threads do not meet; null: ascending
    uint64_t waits;        // loads of atomics by the threadgroup
    void *main_stack_pointer;
#ifdef MSL_ASAN
    void *fake_stack[max_threads];
    uint16_t stack_of[max_threads]; // fibres hand their stacks on
    void *main_fake_stack;
    const void *main_stack;
    size_t main_stack_size;
#endif
};

#ifdef __linux__
#define MSL_STATIC_TLS __attribute__((tls_model("initial-exec")))
#else
#define MSL_STATIC_TLS
#endif

// __thread, because thread_local would check for an initialiser at every use.
extern __thread Worker *current MSL_STATIC_TLS;

inline Size Thread::position_in_grid() const {
    const Size &g = worker->group_id, &n = worker->group;
    return {g.x * n.x + position.x, g.y * n.y + position.y, g.z * n.z + position.z};
}

inline Size Thread::threads_per_grid() const {
    const Size &g = worker->grid, &n = worker->group;
    return {g.x * n.x, g.y * n.y, g.z * n.z};
}

// A function constant never changes while a kernel runs, so the compiler may read
// it once and unswitch loops over it.
__attribute__((const)) uint32_t constant_bits(uint32_t index);
__attribute__((const)) bool is_constant_defined(uint32_t index);

// missized aborts: mslgen took a threadgroup variable for another size than C++.
[[noreturn]] void missized(Worker *w, uint32_t index);

MSL_INLINE uint32_t lane() { return current->tid & 31; }

template <class T> MSL_INLINE T &group_variable(uint32_t at, uint32_t index) {
    static_assert(sizeof(T) <= group_limit, "threadgroup variable over 32 KB");
    if (MSL_UNLIKELY(current->kernel->variables[index] != sizeof(T)))
        missized(current, index);
    return *reinterpret_cast<T *>(current->group_memory + at);
}

// start prepares a fibre that has not run yet and returns its stack pointer.
void *start(Worker *w, uint32_t thread);

// These end the launch. A site is passed in parts, which stay constants at the call.
[[noreturn]] void diverged(Worker *w, const char *what, const char *file, uint32_t line, const Site &there);
[[noreturn]] void partial_barrier(Worker *w, const char *what, const char *file, uint32_t line);
[[noreturn]] void waits_forever(Worker *w, const char *what, const char *file, uint32_t line);

// MSL_SWITCH saves the running context at *save and continues the one at `to`.
// All registers are declared clobbered, so that the compiler saves only live ones,
// and there is no call or return, which the branch predictor would mispredict. A
// context is a stack whose top is the address at which to continue.
#if defined(__x86_64__)
#ifdef __AVX512F__
#define MSL_CLOBBER_512                                                                                                \
    , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",      \
        "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#else
#define MSL_CLOBBER_512
#endif
// The red zone below the stack pointer belongs to the compiler; rbx and rbp cannot
// be clobbered in every build.
#define MSL_SWITCH(save, to)                                                                                           \
    do {                                                                                                               \
        void *msl_save = (save), *msl_to = (to);                                                                       \
        asm volatile("leaq -128(%%rsp), %%rsp\n\t"                                                                     \
                     "pushq %%rbp\n\t"                                                                                 \
                     "pushq %%rbx\n\t"                                                                                 \
                     "leaq 1f(%%rip), %%rax\n\t"                                                                       \
                     "pushq %%rax\n\t"                                                                                 \
                     "movq %%rsp, (%0)\n\t"                                                                            \
                     "movq %1, %%rsp\n\t"                                                                              \
                     "popq %%rax\n\t"                                                                                  \
                     "jmpq *%%rax\n"                                                                                   \
                     "1:\tpopq %%rbx\n\t"                                                                              \
                     "popq %%rbp\n\t"                                                                                  \
                     "leaq 128(%%rsp), %%rsp\n"                                                                        \
                     : "+D"(msl_save), "+S"(msl_to)                                                                    \
                     :                                                                                                 \
                     : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc",      \
                       "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",        \
                       "xmm11", "xmm12", "xmm13", "xmm14", "xmm15" MSL_CLOBBER_512);                                   \
    } while (0)
#elif defined(__aarch64__)
#ifdef __APPLE__
#define MSL_CLOBBER_X18 // belongs to the system
#else
#define MSL_CLOBBER_X18 "x18",
#endif
#define MSL_SWITCH(save, to)                                                                                           \
    do {                                                                                                               \
        register void *msl_save asm("x0") = (save);                                                                    \
        register void *msl_to asm("x1") = (to);                                                                        \
        asm volatile("sub sp, sp, #144\n\t"                                                                            \
                     "adr x2, 1f\n\t"                                                                                  \
                     "stp x2, x29, [sp]\n\t"                                                                           \
                     "mov x3, sp\n\t"                                                                                  \
                     "str x3, [x0]\n\t"                                                                                \
                     "mov sp, x1\n\t"                                                                                  \
                     "ldp x2, x29, [sp]\n\t"                                                                           \
                     "add sp, sp, #144\n\t"                                                                            \
                     "br x2\n"                                                                                         \
                     "1:\n"                                                                                            \
                     : "+r"(msl_save), "+r"(msl_to)                                                                    \
                     :                                                                                                 \
                     : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",       \
                       "x16", "x17", MSL_CLOBBER_X18 "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",    \
                       "x28", "x30", "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9",       \
                       "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22",      \
                       "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");                                 \
    } while (0)
#else
#error "kernels are emulated on x86-64 and arm64 only"
#endif

#ifdef MSL_ASAN
void go(Worker *w, uint32_t from, uint32_t to);
#else
// go hands the turn from one thread of the threadgroup to another.
MSL_INLINE void go(Worker *w, uint32_t from, uint32_t to) {
    if (from == to)
        return;
    void *target = w->stack_pointer[to];
    if (MSL_UNLIKELY(!target))
        target = start(w, to);
    w->tid = to;
    MSL_SWITCH(&w->stack_pointer[from], target);
}
#endif

// arrive records that the running lane has arrived at an operation and reports whether
// it is the first of its simdgroup.
MSL_INLINE bool arrive(Worker *w, Simdgroup &g, uint32_t thread, Site site) {
    if (thread == g.head) {
        g.site = site;
        g.half ^= 1;
        return true;
    }
    if (MSL_UNLIKELY(g.site.id != site.id))
        diverged(w, site.what, site.file, site.line, g.site);
    return false;
}

// meet lets the lanes of a simdgroup exchange values: store(slots) for each, then
// once, with all in place, reduce(slots, result, active lanes). It returns the half
// of the slots used.
template <class Store, class Reduce> MSL_INLINE uint32_t meet(Site site, Store store, Reduce reduce) {
    Worker *w = current;
    const uint32_t i = w->tid;
    Simdgroup &g = w->simdgroup[i / lanes];
    const bool first = arrive(w, g, i, site);
    const uint32_t half = g.half;
    store(g.slots[half], i % lanes);
    if (first)
        g.waiting = true;
    go(w, i, w->next[i]);
    if (first) {
        MSL_TRACE(smelt_trace_meet(i / lanes);)
        g.waiting = false;
        g.active[half] = g.live;
        reduce(g.slots[half], g.result[half], g.live);
    }
    return half;
}

MSL_INLINE void simdgroup_wait(Site site) {
    meet(site, [](unsigned char *, uint32_t) {}, [](unsigned char *, unsigned char *, uint32_t) {});
}

MSL_INLINE void threadgroup_wait(Site site) {
    Worker *w = current;
    const uint32_t i = w->tid, s = i / lanes;
    Simdgroup &g = w->simdgroup[s];
    const bool first = arrive(w, g, i, site);
    bool leads = false;
    if (first) {
        if (s == w->first_simdgroup) {
            leads = true;
            w->barrier = site;
            w->at_barrier = true;
            if (MSL_UNLIKELY(w->live != w->threads))
                partial_barrier(w, site.what, site.file, site.line);
        } else if (MSL_UNLIKELY(w->barrier.id != site.id)) {
            diverged(w, site.what, site.file, site.line, w->barrier);
        }
    }
    uint32_t n = w->next[i];
    if (n == g.head) {
        MSL_TRACE(smelt_trace_barrier(s, s == w->first_simdgroup);)
        n = w->simdgroup[w->next_simdgroup[s]].head;
    }
    go(w, i, n);
    if (leads)
        w->at_barrier = false;
}

// run_threads executes the threads of a threadgroup one after the other.
template <void (*F)(const Thread &)> void run_threads(Worker &w) {
    Thread t;
    t.worker = &w;
    if (!w.order) {
        uint32_t i = 0;
        for (uint32_t z = 0; z < w.group.z; z++)
            for (uint32_t y = 0; y < w.group.y; y++)
                for (uint32_t x = 0; x < w.group.x; x++, i++) {
                    t.index = w.tid = i;
                    t.position = {x, y, z};
                    F(t);
                }
        return;
    }
    for (uint32_t k = 0; k < w.threads; k++) {
        const uint32_t i = w.order[k];
        t.index = w.tid = i;
        t.position = {i % w.group.x, i / w.group.x % w.group.y, i / (w.group.x * w.group.y)};
        F(t);
    }
}

} // namespace MSL_VARIANT
} // namespace msl

#endif
