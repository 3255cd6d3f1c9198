//go:build ignore

#include "runtime.h"
#include "../../abi/library.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <new>
#include <sys/mman.h>
#ifdef MSL_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace msl {
inline namespace MSL_VARIANT {

__thread Worker *current MSL_STATIC_TLS;

namespace {

#ifdef MSL_ASAN
constexpr size_t stack_size = 512 << 10;
#else
constexpr size_t stack_size = 128 << 10;
#endif
constexpr size_t stagger = 704; // between the tops of neighbouring stacks, which would share cache sets
constexpr uint32_t static_bytes = group_limit + max_variables * (red_zone + 16) + red_zone;

// State is a Worker with the fields that the hot paths do not use.
struct State : Worker {
    char *stacks = nullptr;
    bool failed = false;
    char message[512];
    uint16_t ascending[max_threads];
    uint16_t permutation[max_threads];
    unsigned char *dynamic_memory[max_dynamic] = {};
    uint32_t dynamic_bytes[max_dynamic] = {};

    State() {
        group_memory = static_cast<unsigned char *>(aligned_alloc(64, (static_bytes + 63) & ~63u));
        stacks = static_cast<char *>(mmap(nullptr, stack_size * max_threads, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (stacks == MAP_FAILED)
            stacks = nullptr;
        for (uint32_t i = 0; i < max_threads; i++)
            ascending[i] = i;
    }
    ~State() {
#ifdef MSL_ASAN
        ASAN_UNPOISON_MEMORY_REGION(group_memory, static_bytes);
#endif
        free(group_memory);
        if (stacks)
            munmap(stacks, stack_size * max_threads);
        for (auto *p : dynamic_memory)
            free(p);
    }
    State(const State &) = delete;
    State &operator=(const State &) = delete;
};

struct Owner {
    State *state = nullptr;
    ~Owner() {
        current = nullptr;
        if (state) {
            state->~State();
            free(state);
        }
    }
};

thread_local Owner owner;

State *state() {
    if (!owner.state) {
        void *p = aligned_alloc(64, (sizeof(State) + 63) & ~size_t(63));
        if (!p)
            return nullptr;
        owner.state = new (p) State;
        current = owner.state;
    }
    return owner.state->stacks && owner.state->group_memory ? owner.state : nullptr;
}

[[noreturn]] void leave(Worker *w);

// fail ends the launch from within a fibre.
[[noreturn]] __attribute__((format(printf, 2, 3))) void fail(Worker *w, const char *format, ...) {
    State *s = static_cast<State *>(w);
    s->failed = true;
    int n = snprintf(s->message, sizeof s->message, "kernel %s: ", w->kernel->name);
    va_list args;
    va_start(args, format);
    n += vsnprintf(s->message + n, sizeof s->message - n, format, args);
    va_end(args);
    if (n < int(sizeof s->message))
        snprintf(s->message + n, sizeof s->message - n, " (thread %u of threadgroup %u,%u,%u)", w->tid, w->group_id.x,
                 w->group_id.y, w->group_id.z);
    leave(w);
}

void unlink_simdgroup(Worker *w, uint32_t s) {
    const uint16_t n = w->next_simdgroup[s], p = w->previous_simdgroup[s];
    w->next_simdgroup[p] = n;
    w->previous_simdgroup[n] = p;
    if (w->first_simdgroup == s)
        w->first_simdgroup = n;
}

// retire removes the returning thread from its rings and returns the next thread to run.
uint32_t retire(Worker *w, uint32_t i) {
    const uint32_t s = i / lanes;
    Simdgroup &g = w->simdgroup[s];
    if (MSL_UNLIKELY(w->at_barrier)) {
        const Site b = w->barrier;
        fail(w, "%s:%u: a thread returns while others wait at %s", b.file, b.line, b.what);
    }
    const uint16_t n = w->next[i], p = w->previous[i];
    const bool was_head = g.head == i;
    g.live &= ~(1u << (i % lanes));
    if (!g.live) {
        const uint32_t after = w->next_simdgroup[s];
        unlink_simdgroup(w, s);
        return w->simdgroup[after].head;
    }
    w->next[p] = n;
    w->previous[n] = p;
    if (was_head) {
        g.head = n;
        return n;
    }
    // The ring has gone round: lanes that wait in a simdgroup operation go on
    // without this one; otherwise all others have met at nothing and the turn is
    // the next simdgroup's.
    if (n == g.head && !g.waiting)
        return w->simdgroup[w->next_simdgroup[s]].head;
    return n;
}

__attribute__((noinline)) void run_thread(Worker *w, uint32_t i) {
    Thread t;
    t.worker = w;
    t.index = i;
    t.position = {i % w->group.x, i / w->group.x % w->group.y, i / (w->group.x * w->group.y)};
    w->kernel->thread(t);
}

#ifdef MSL_ASAN
// All switches go through here, so that the sanitizer knows the stack it is on.
void announce(Worker *w, void **fake, uint32_t to) {
    State *s = static_cast<State *>(w);
    __sanitizer_start_switch_fiber(fake, s->stacks + stack_size * w->stack_of[to], stack_size);
}
#endif

// Frames that are left without returning must not leave poison on a stack.
#ifdef MSL_ASAN
#define MSL_UNINSTRUMENTED __attribute__((no_sanitize_address))
#else
#define MSL_UNINSTRUMENTED
#endif

// fibre is the life of a stack: it runs its thread, then others that have not
// started, until one that waits on a stack of its own is due.
[[noreturn]] MSL_UNINSTRUMENTED void fibre() {
    Worker *w = current;
#ifdef MSL_ASAN
    const void *from;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &from, &size);
    if (!w->main_stack) {
        w->main_stack = from;
        w->main_stack_size = size;
    }
#endif
    for (;;) {
        const uint32_t i = w->tid;
        run_thread(w, i);
        if (--w->live == 0)
            leave(w);
        const uint32_t n = retire(w, i);
        w->tid = n;
        void *target = w->stack_pointer[n];
        if (!target) {
#ifdef MSL_ASAN
            w->stack_of[n] = w->stack_of[i];
#endif
            continue;
        }
        void *nowhere;
#ifdef MSL_ASAN
        announce(w, nullptr, n);
#endif
        MSL_SWITCH(&nowhere, target);
        __builtin_unreachable();
    }
}

MSL_UNINSTRUMENTED void leave(Worker *w) {
    void *nowhere;
    void *target = w->main_stack_pointer;
#ifdef MSL_ASAN
    __sanitizer_start_switch_fiber(nullptr, w->main_stack, w->main_stack_size);
#endif
    MSL_SWITCH(&nowhere, target);
    __builtin_unreachable();
}

uint64_t scramble(uint64_t x) { // splitmix64's finaliser
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

struct Random {
    uint64_t state;
    uint32_t below(uint32_t n) {
        state = scramble(state);
        return uint32_t((state >> 32) * n >> 32);
    }
    void shuffle(uint16_t *v, uint32_t n) {
        for (uint32_t i = n; i > 1; i--) {
            const uint32_t j = below(i);
            const uint16_t t = v[i - 1];
            v[i - 1] = v[j];
            v[j] = t;
        }
    }
};

// order_threads writes the order in which threads run: simdgroup by simdgroup.
void order_threads(State *s, const smelt_emulation &options, uint64_t group) {
    const uint32_t n = s->threads;
    switch (options.order) {
    case SMELT_ORDER_DESCENDING:
        for (uint32_t i = 0; i < n; i++)
            s->permutation[i] = uint16_t(n - 1 - i);
        s->order = s->permutation;
        break;
    case SMELT_ORDER_SHUFFLED: {
        Random r{scramble(options.seed) ^ scramble(group)};
        uint16_t groups[max_simdgroups];
        for (uint32_t g = 0; g < s->simdgroups; g++)
            groups[g] = uint16_t(g);
        r.shuffle(groups, s->simdgroups);
        uint32_t at = 0;
        for (uint32_t k = 0; k < s->simdgroups; k++) {
            const uint32_t base = groups[k] * lanes, count = n - base < lanes ? n - base : lanes;
            for (uint32_t l = 0; l < count; l++)
                s->permutation[at + l] = uint16_t(base + l);
            r.shuffle(s->permutation + at, count);
            at += count;
        }
        s->order = s->permutation;
        break;
    }
    default:
        s->order = nullptr;
    }
}

void link_rings(State *s) {
    const uint16_t *order = s->order ? s->order : s->ascending;
    const uint32_t n = s->threads;
    memset(s->stack_pointer, 0, n * sizeof s->stack_pointer[0]);
    uint32_t previous = ~0u;
    for (uint32_t k = 0; k < n;) {
        const uint32_t g = order[k] / lanes;
        const uint32_t count = n - g * lanes < lanes ? n - g * lanes : lanes;
        for (uint32_t l = 0; l < count; l++) {
            const uint16_t a = order[k + l], b = order[k + (l + 1 == count ? 0 : l + 1)];
            s->next[a] = b;
            s->previous[b] = a;
        }
        Simdgroup &sg = s->simdgroup[g];
        sg.head = order[k];
        sg.live = count == lanes ? ~0u : (1u << count) - 1;
        sg.half = 0;
        sg.waiting = false;
        if (previous == ~0u)
            s->first_simdgroup = g;
        else {
            s->next_simdgroup[previous] = uint16_t(g);
            s->previous_simdgroup[g] = uint16_t(previous);
        }
        previous = g;
        k += count;
    }
    s->next_simdgroup[previous] = uint16_t(s->first_simdgroup);
    s->previous_simdgroup[s->first_simdgroup] = uint16_t(previous);
    s->live = n;
    s->at_barrier = false;
}

void run_fibres(State *s) {
    link_rings(s);
    const uint32_t first = s->simdgroup[s->first_simdgroup].head;
    void *target = start(s, first);
    s->tid = first;
#ifdef MSL_ASAN
    s->main_stack = nullptr;
    announce(s, &s->main_fake_stack, first);
#endif
    MSL_SWITCH(&s->main_stack_pointer, target);
#ifdef MSL_ASAN
    __sanitizer_finish_switch_fiber(s->main_fake_stack, nullptr, nullptr);
    if (s->failed)
        ASAN_UNPOISON_MEMORY_REGION(s->stacks, stack_size * max_threads);
#endif
}

__attribute__((format(printf, 3, 4))) int refuse(char *error, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (size)
        vsnprintf(error, size, format, args);
    va_end(args);
    return 1;
}

// check refuses launches that Metal's validation would.
int check(const Kernel &k, const smelt_launch &l, uint64_t begin, uint64_t end, char *error, size_t size) {
    if (l.buffer_count > max_buffers)
        return refuse(error, size, "kernel %s: %u buffers, at most %u", k.name, l.buffer_count, max_buffers);
    uint64_t threads = 1, groups = 1;
    for (int i = 0; i < 3; i++) {
        if (l.group[i] == 0 || l.grid[i] == 0)
            return refuse(error, size, "kernel %s: grid %u,%u,%u of %u,%u,%u threads is empty", k.name, l.grid[0],
                          l.grid[1], l.grid[2], l.group[0], l.group[1], l.group[2]);
        threads = threads > max_threads ? threads : threads * l.group[i];
        if (__builtin_mul_overflow(groups, l.grid[i], &groups))
            return refuse(error, size, "kernel %s: more than 2^64 threadgroups", k.name);
    }
    if (threads > k.threads)
        return refuse(error, size, "kernel %s: %u,%u,%u threads in a threadgroup, at most %u", k.name, l.group[0],
                      l.group[1], l.group[2], k.threads);
    if (begin > end || end > groups)
        return refuse(error, size, "kernel %s: threadgroups [%llu, %llu) of a grid of %llu", k.name,
                      (unsigned long long)begin, (unsigned long long)end, (unsigned long long)groups);
    for (uint32_t i = 0; i < k.buffer_count; i++) {
        const BufferArgument &b = k.buffers[i];
        if (!b.bytes)
            continue;
        if (b.index >= l.buffer_count || !l.buffers[b.index])
            return refuse(error, size, "kernel %s: buffer %u (%s) is not bound", k.name, b.index, b.name);
        if (l.buffer_bytes && l.buffer_bytes[b.index] < b.bytes)
            return refuse(error, size, "kernel %s: buffer %u (%s) has %llu bytes, the kernel reads %u", k.name, b.index,
                          b.name, (unsigned long long)l.buffer_bytes[b.index], b.bytes);
    }
    const uint32_t missing = k.constants & ~l.constants_set;
    if (missing)
        return refuse(error, size, "kernel %s: function constant %d is not set", k.name, __builtin_ctz(missing));
    uint64_t memory = 0;
    for (uint32_t i = 0; i < k.variable_count; i++)
        memory = ((memory + 15) & ~uint64_t(15)) + k.variables[i];
    for (uint32_t i = 0; i < max_dynamic; i++) {
        const bool wanted = k.dynamic >> i & 1;
        if (wanted && l.threadgroup_bytes[i] == 0)
            return refuse(error, size, "kernel %s: threadgroup memory %u has no length", k.name, i);
        if (wanted && l.threadgroup_bytes[i] % 16)
            return refuse(error, size, "kernel %s: threadgroup memory %u has %u bytes, not a multiple of 16", k.name, i,
                          l.threadgroup_bytes[i]);
        memory += wanted ? l.threadgroup_bytes[i] : 0;
    }
    if (memory > group_limit)
        return refuse(error, size, "kernel %s: %llu bytes of threadgroup memory, at most %u", k.name,
                      (unsigned long long)memory, group_limit);
    return 0;
}

// prepare_memory lays out the threadgroup memory of a launch.
bool prepare_memory(State *s, const Kernel &k, const smelt_launch &l) {
    for (uint32_t i = 0; i < max_dynamic; i++) {
        s->dynamic[i] = nullptr;
        if (!(k.dynamic >> i & 1))
            continue;
        const uint32_t n = l.threadgroup_bytes[i];
        if (s->dynamic_bytes[i] != n) { // of the exact size, so that overruns show
            free(s->dynamic_memory[i]);
            s->dynamic_memory[i] = static_cast<unsigned char *>(aligned_alloc(16, n));
            s->dynamic_bytes[i] = s->dynamic_memory[i] ? n : 0;
            if (!s->dynamic_memory[i])
                return false;
        }
        s->dynamic[i] = s->dynamic_memory[i];
    }
#ifdef MSL_ASAN
    ASAN_POISON_MEMORY_REGION(s->group_memory, static_bytes);
    uint32_t end = 0;
    for (uint32_t i = 0; i < k.variable_count; i++) {
        const uint32_t at = place(end);
        ASAN_UNPOISON_MEMORY_REGION(s->group_memory + at, k.variables[i]);
        end = at + k.variables[i];
    }
#endif
    return true;
}

// poison fills threadgroup memory with a NaN of every floating type.
void poison(State *s, const Kernel &k) {
    uint32_t end = 0;
    for (uint32_t i = 0; i < k.variable_count; i++) {
        const uint32_t at = place(end);
        memset(s->group_memory + at, 0xff, k.variables[i]);
        end = at + k.variables[i];
    }
    for (uint32_t i = 0; i < max_dynamic; i++)
        if (s->dynamic[i])
            memset(s->dynamic[i], 0xff, s->dynamic_bytes[i]);
}

#ifdef MSL_COUNTED
void trace_group(State *s) {
    smelt_region regions[1 + max_dynamic] = {{s->group_memory, static_bytes}};
    uint32_t n = 1;
    for (uint32_t i = 0; i < max_dynamic; i++)
        if (s->dynamic[i])
            regions[n++] = {s->dynamic[i], s->dynamic_bytes[i]};
    smelt_trace_begin(&s->tid, regions, n);
}
#endif

const Kernel *kernel_at(uint32_t index) {
    for (const Unit *const *u = units; *u; u++) {
        if (index < (*u)->count)
            return (*u)->kernels + index;
        index -= (*u)->count;
    }
    return nullptr;
}

const char *name_at(uint32_t index) {
    const Kernel *k = kernel_at(index);
    return k ? k->name : nullptr;
}

const void *find(const char *name) {
    for (const Unit *const *u = units; *u; u++)
        for (uint32_t i = 0; i < (*u)->count; i++)
            if (!strcmp((*u)->kernels[i].name, name))
                return (*u)->kernels + i;
    return nullptr;
}

int run(const void *kernel, const smelt_launch *launch, const smelt_emulation *options, uint64_t begin, uint64_t end,
        char *error, size_t error_size) {
    const Kernel &k = *static_cast<const Kernel *>(kernel);
    const smelt_launch &l = *launch;
    const smelt_emulation none = {};
    const smelt_emulation &o = options ? *options : none;
    if (int rc = check(k, l, begin, end, error, error_size))
        return rc;
    State *s = state();
    if (!s || !prepare_memory(s, k, l))
        return refuse(error, error_size, "kernel %s: no memory for its threads", k.name);
    for (uint32_t i = 0; i < max_buffers; i++)
        s->buffers[i] = i < l.buffer_count ? l.buffers[i] : nullptr;
    for (uint32_t i = 0; i < max_constants; i++)
        s->constants[i] = l.constants_set >> i & 1 ? l.constants[i] : 0;
    s->constants_set = l.constants_set;
    s->grid = {l.grid[0], l.grid[1], l.grid[2]};
    s->group = {l.group[0], l.group[1], l.group[2]};
    s->threads = l.group[0] * l.group[1] * l.group[2];
    s->simdgroups = (s->threads + lanes - 1) / lanes;
    s->kernel = &k;
    s->failed = false;
    for (uint64_t g = begin; g < end; g++) {
        s->group_id = {uint32_t(g % l.grid[0]), uint32_t(g / l.grid[0] % l.grid[1]),
                       uint32_t(g / l.grid[0] / l.grid[1])};
        s->waits = 0;
        if (g == begin || o.order == SMELT_ORDER_SHUFFLED)
            order_threads(s, o, g);
        if (o.poison)
            poison(s, k);
        MSL_TRACE(trace_group(s);)
        if (k.group)
            k.group(*s);
        else
            run_fibres(s);
        MSL_TRACE(smelt_trace_end();)
        if (s->failed)
            return refuse(error, error_size, "%s", s->message);
    }
    return 0;
}

#if defined(MSL_COUNTED)
constexpr char isa[] = "counted";
#elif defined(__F16C__)
constexpr char isa[] = "x86-64-v3";
#elif defined(__x86_64__)
constexpr char isa[] = "x86-64";
#else
constexpr char isa[] = "arm64";
#endif

const smelt_emulated_library library = {{find, run}, isa, name_at};

} // namespace

uint32_t constant_bits(uint32_t index) { return current->constants[index]; }

bool is_constant_defined(uint32_t index) { return current->constants_set >> index & 1; }

void *start(Worker *w, uint32_t thread) {
    State *s = static_cast<State *>(w);
    char *top = s->stacks + stack_size * (thread + 1) - 64 - thread % lanes * stagger;
    void **sp = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(63));
    auto entry = reinterpret_cast<void *>(fibre);
#if defined(__x86_64__)
    *--sp = nullptr; // where a return address would lie: unwinding ends here
    *--sp = entry;   // popped, which leaves the alignment of a function's entry
#else
    sp -= 18; // the frame of MSL_SWITCH: address, frame pointer
    sp[0] = entry;
    sp[1] = nullptr;
#endif
#ifdef MSL_ASAN
    w->stack_of[thread] = uint16_t(thread);
#endif
    return sp;
}

#ifdef MSL_ASAN
void go(Worker *w, uint32_t from, uint32_t to) {
    if (from == to)
        return;
    void *target = w->stack_pointer[to];
    if (!target)
        target = start(w, to);
    w->tid = to;
    announce(w, &w->fake_stack[from], to);
    MSL_SWITCH(&w->stack_pointer[from], target);
    __sanitizer_finish_switch_fiber(w->fake_stack[from], nullptr, nullptr);
}
#endif

void missized(Worker *w, uint32_t index) {
    fprintf(stderr, "kernel %s: threadgroup variable %u is not of the %u bytes that mslgen computed\n", w->kernel->name,
            index, w->kernel->variables[index]);
    abort();
}

void diverged(Worker *w, const char *what, const char *file, uint32_t line, const Site &there) {
    fail(w, "threads of a threadgroup diverge: %s at %s:%u, %s at %s:%u", what, file, line, there.what, there.file,
         there.line);
}

void partial_barrier(Worker *w, const char *what, const char *file, uint32_t line) {
    fail(w, "%s:%u: %s after %u of %u threads have returned", file, line, what, w->threads - w->live, w->threads);
}

void waits_forever(Worker *w, const char *what, const char *file, uint32_t line) {
    fail(w, "%s:%u: %s waits for a thread that cannot run", file, line, what);
}

} // namespace MSL_VARIANT
} // namespace msl

extern "C" const smelt_emulated_library *MSL_LIBRARY(void) { return &msl::library; }
