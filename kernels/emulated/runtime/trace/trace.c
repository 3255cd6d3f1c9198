// This file is C so that it is compiled without the sanitizer whose hooks it defines.
#include "trace.h"
#include <stdlib.h>
#include <string.h>

enum {
    LANES = 32,
    THREADS = 1024,
    SIMDGROUPS = THREADS / LANES,
    REGIONS = 5,
    REGION = 65536,
    BANKS = 32,
    WORDS = REGIONS * REGION / 4
};

// When says in which interval since the last meeting something happens: the number of
// outermost loops begun or ended, and the turn of the running one.
typedef uint32_t When;

enum { TURN_BITS = 22 };

// An access to threadgroup memory or a fork of one lane.
typedef struct Event {
    When when;
    uint32_t place; // code address of an access; site of a fork
    uint32_t value; // offset into threadgroup memory; the way that is taken
    uint16_t bytes; // 0 for a fork
    uint16_t write;
} Event;

typedef struct Lane {
    uint32_t depth; // of run-time loops
    uint32_t phase; // outermost loops begun or ended since the last meeting
    uint32_t turn;
    uint32_t last; // line touched last, as an index into the simdgroup's
    int apart;     // a loop has turned since the last access to threadgroup memory
    Event *events;
    uint32_t count, capacity;
} Lane;

typedef struct Touched {
    smelt_line line;
    When when;
    uint32_t order;
} Touched;

typedef struct Simdgroup {
    Touched *touched;
    uint32_t count, capacity;
    struct {
        uint32_t stamp, index;
    } *slots; // open addressing by line and when; another stamp is an empty slot
    uint32_t slot_count, stamp;
} Simdgroup;

typedef struct Trace {
    smelt_trace shown;
    uint64_t line_capacity, end_capacity;
    uintptr_t from;
    uint64_t bytes;
    const uint32_t *tid;
    int muted;
    int failed; // memory
    smelt_region regions[REGIONS];
    uint32_t region_count;
    Lane lanes[THREADS];
    Simdgroup simdgroups[SIMDGROUPS];
    uint32_t marks[WORDS]; // words of threadgroup memory seen in an access
    uint32_t mark;
} Trace;

static __thread Trace *active;

static int grow(void **data, uint64_t *capacity, uint64_t count, size_t size) {
    if (count < *capacity)
        return 1;
    const uint64_t more = *capacity ? *capacity * 2 : 64;
    void *p = realloc(*data, more * size);
    if (!p)
        return 0;
    *data = p;
    *capacity = more;
    return 1;
}

static When when(const Lane *l) { return l->phase << TURN_BITS | l->turn; }

// Device memory.

static uint32_t scramble(uint64_t line, When w) {
    uint64_t x = (line ^ (uint64_t)w << 40) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(x >> 32);
}

static int rehash(Simdgroup *s) {
    const uint32_t n = s->slot_count ? s->slot_count * 2 : 256;
    free(s->slots);
    s->slots = calloc(n, sizeof *s->slots);
    if (!s->slots) {
        s->slot_count = 0;
        return 0;
    }
    s->slot_count = n;
    s->stamp = 1;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t h = scramble(s->touched[i].line.number, s->touched[i].when) & (n - 1);
        while (s->slots[h].stamp)
            h = (h + 1) & (n - 1);
        s->slots[h].stamp = 1;
        s->slots[h].index = i;
    }
    return 1;
}

static Touched *find(Trace *t, Simdgroup *s, Lane *l, uint64_t line, When w) {
    if (l->last < s->count && s->touched[l->last].line.number == line && s->touched[l->last].when == w)
        return s->touched + l->last;
    if (s->count * 2 >= s->slot_count && !rehash(s)) {
        t->failed = 1;
        return NULL;
    }
    uint32_t h = scramble(line, w) & (s->slot_count - 1);
    for (; s->slots[h].stamp == s->stamp; h = (h + 1) & (s->slot_count - 1)) {
        Touched *x = s->touched + s->slots[h].index;
        if (x->line.number == line && x->when == w) {
            l->last = s->slots[h].index;
            return x;
        }
    }
    uint64_t capacity = s->capacity;
    if (!grow((void **)&s->touched, &capacity, s->count, sizeof *s->touched)) {
        t->failed = 1;
        return NULL;
    }
    s->capacity = (uint32_t)capacity;
    s->slots[h].stamp = s->stamp;
    s->slots[h].index = l->last = s->count;
    Touched *x = s->touched + s->count;
    memset(x, 0, sizeof *x);
    x->line.number = line;
    x->when = w;
    x->order = s->count++;
    return x;
}

static void touch_device(Trace *t, uint32_t tid, uint64_t at, uint64_t bytes, int write) {
    Lane *l = t->lanes + tid;
    const When w = when(l);
    t->shown.counts.accesses++;
    while (bytes) {
        const uint32_t first = at % SMELT_LINE;
        const uint32_t n = bytes < SMELT_LINE - first ? (uint32_t)bytes : SMELT_LINE - first;
        Touched *x = find(t, t->simdgroups + tid / LANES, l, at / SMELT_LINE, w);
        if (!x)
            return;
        uint64_t *mask = write ? x->line.written : x->line.read;
        for (uint32_t i = first; i < first + n;) {
            const uint32_t k = i % 64, m = first + n - i < 64 - k ? first + n - i : 64 - k;
            mask[i / 64] |= (m == 64 ? ~(uint64_t)0 : ((uint64_t)1 << m) - 1) << k;
            i += m;
        }
        at += n;
        bytes -= n;
    }
}

// Threadgroup memory and forks.

static void note(Trace *t, Lane *l, Event e) {
    uint64_t capacity = l->capacity;
    if (!grow((void **)&l->events, &capacity, l->count, sizeof e)) {
        t->failed = 1;
        return;
    }
    l->capacity = (uint32_t)capacity;
    l->events[l->count++] = e;
}

// touch_group notes an access. The elements of a vector, which the compiler loads one
// by one, follow each other in memory and come from different instructions; they are
// one access of up to 16 bytes. What the turns of a loop do stays apart: whether Metal's
// compiler would make one access of it is not known.
static void touch_group(Trace *t, uint32_t tid, uint32_t offset, uint64_t bytes, int write, uint32_t place) {
    Lane *l = t->lanes + tid;
    const When w = when(l);
    if (l->count) {
        Event *e = l->events + l->count - 1;
        if (!l->apart && e->bytes && e->write == write && e->when == w && e->place != place &&
            e->value + e->bytes == offset && e->value % 16 + e->bytes + bytes <= 16) {
            e->bytes += (uint16_t)bytes;
            return;
        }
    }
    l->apart = 0;
    while (bytes) { // a struct is loaded in pieces of 16 bytes at most
        const uint32_t n = bytes < 16 ? (uint32_t)bytes : 16;
        note(t, l, (Event){w, place, offset, (uint16_t)n, (uint16_t)write});
        offset += n;
        bytes -= n;
    }
}

// Banks is one access by a simdgroup: a bank yields one of its words in a cycle, to all
// lanes that want it.
typedef struct Banks {
    uint32_t words[BANKS], distinct;
} Banks;

static void add_words(Trace *t, Banks *b, uint32_t offset, uint32_t bytes) {
    for (uint32_t w = offset / 4; w <= (offset + bytes - 1) / 4 && w < WORDS; w++) {
        if (t->marks[w] == t->mark)
            continue;
        t->marks[w] = t->mark;
        b->words[w % BANKS]++;
        b->distinct++;
    }
}

static void serve(Trace *t, const Banks *b) {
    uint32_t most = 0;
    for (int i = 0; i < BANKS; i++)
        most = most < b->words[i] ? b->words[i] : most;
    t->shown.counts.group_accesses++;
    t->shown.counts.group_cycles += most;
    t->shown.counts.group_least += (b->distinct + BANKS - 1) / BANKS;
    if (++t->mark == 0) {
        memset(t->marks, 0, sizeof t->marks);
        t->mark = 1;
    }
}

static int64_t group_offset(const Trace *t, uintptr_t at) {
    for (uint32_t i = 0; i < t->region_count; i++)
        if (at - (uintptr_t)t->regions[i].from < t->regions[i].bytes)
            return (int64_t)i * REGION + (int64_t)(at - (uintptr_t)t->regions[i].from);
    return -1;
}

static int64_t is_device(const Trace *t, uintptr_t at) {
    return at - t->from < t->bytes ? (int64_t)(at - t->from) : -1;
}

static inline void touch(const void *p, uint64_t bytes, int write, const void *place) {
    Trace *t = active;
    if (!t || !t->tid || t->muted)
        return;
    const uint32_t tid = *t->tid;
    int64_t at = is_device(t, (uintptr_t)p);
    if (at >= 0)
        touch_device(t, tid, (uint64_t)at, bytes, write);
    else if ((at = group_offset(t, (uintptr_t)p)) >= 0)
        touch_group(t, tid, (uint32_t)at, bytes, write, (uint32_t)(uintptr_t)place & 0x7fffffff);
}

// The end of intervals.

static int compare_touched(const void *a, const void *b) {
    const Touched *x = a, *y = b;
    if (x->when != y->when)
        return x->when < y->when ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void end_interval(Trace *t) {
    uint64_t n = t->shown.end_count;
    if (n && t->shown.ends[n - 1] == t->shown.line_count || !n && !t->shown.line_count)
        return;
    if (!grow((void **)&t->shown.ends, &t->end_capacity, n, sizeof *t->shown.ends)) {
        t->failed = 1;
        return;
    }
    t->shown.ends[t->shown.end_count++] = t->shown.line_count;
}

static void flush_lines(Trace *t, Simdgroup *s) {
    if (!s->count)
        return;
    for (uint32_t i = 1; i < s->count; i++)
        if (s->touched[i].when < s->touched[i - 1].when) {
            qsort(s->touched, s->count, sizeof *s->touched, compare_touched);
            break;
        }
    for (uint32_t i = 0; i < s->count; i++) {
        const Touched *x = s->touched + i;
        if (i && x->when != x[-1].when)
            end_interval(t);
        if (!grow((void **)&t->shown.lines, &t->line_capacity, t->shown.line_count, sizeof x->line)) {
            t->failed = 1;
            return;
        }
        t->shown.lines[t->shown.line_count++] = x->line;
        t->shown.counts.lines++;
        for (int k = 0; k < 2; k++)
            t->shown.counts.used += (uint64_t)__builtin_popcountll(x->line.read[k] | x->line.written[k]);
    }
    end_interval(t);
    s->count = 0;
    if (++s->stamp == 0) {
        memset(s->slots, 0, s->slot_count * sizeof *s->slots);
        s->stamp = 1;
    }
}

static uint64_t key(const Event *e) { return (uint64_t)e->when << 32 | e->place; }

// sort orders a lane's events by interval and place, and keeps the order of those alike.
static int sort(Event *events, uint32_t n) {
    Event *from = events, *to = malloc(n * sizeof *events), *const spare = to;
    if (!to)
        return 0;
    for (uint32_t width = 1; width < n; width *= 2) {
        for (uint32_t i = 0; i < n; i += 2 * width) {
            uint32_t a = i, b = i + width < n ? i + width : n, k = i;
            const uint32_t middle = b, end = b + width < n ? b + width : n;
            while (a < middle || b < end)
                to[k++] = b == end || a < middle && key(from + a) <= key(from + b) ? from[a++] : from[b++];
        }
        Event *x = from;
        from = to;
        to = x;
    }
    if (from != events)
        memcpy(events, from, n * sizeof *events);
    free(spare);
    return 1;
}

static void serve_events(Trace *t, const Event *const *events, uint32_t n) {
    if (events[0]->bytes) {
        Banks b = {{0}, 0};
        for (uint32_t i = 0; i < n; i++)
            add_words(t, &b, events[i]->value, events[i]->bytes);
        serve(t, &b);
        return;
    }
    smelt_site *s = t->shown.sites + events[0]->place % 0x80000000u;
    s->met++;
    for (uint32_t i = 1; i < n; i++)
        if (events[i]->value != events[0]->value) {
            s->divergent++;
            return;
        }
}

static int are_alike(Lane *const *lanes, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        if (lanes[i]->count != lanes[0]->count)
            return 0;
        for (uint32_t k = 0; k < lanes[0]->count; k++)
            if (key(lanes[i]->events + k) != key(lanes[0]->events + k))
                return 0;
    }
    return 1;
}

// flush_events matches what lanes did at one place in one interval: the first time of
// each lane, the second, and so on.
static void flush_events(Trace *t, uint32_t simdgroup) {
    Lane *lanes = t->lanes + simdgroup * LANES, *some[LANES];
    uint32_t n = 0, at[LANES] = {0};
    for (int i = 0; i < LANES; i++)
        if (lanes[i].count)
            some[n++] = lanes + i;
    if (n && are_alike(some, n)) {
        for (uint32_t k = 0; k < some[0]->count; k++) {
            const Event *together[LANES];
            for (uint32_t i = 0; i < n; i++)
                together[i] = some[i]->events + k;
            serve_events(t, together, n);
        }
    } else {
        for (uint32_t i = 0; i < n; i++)
            if (!sort(some[i]->events, some[i]->count)) {
                t->failed = 1;
                return;
            }
        for (;;) {
            const Event *together[LANES];
            uint32_t from[LANES], count = 0;
            for (uint32_t i = 0; i < n; i++) {
                if (at[i] == some[i]->count)
                    continue;
                const Event *e = some[i]->events + at[i];
                if (count && key(e) > key(together[0]))
                    continue;
                if (count && key(e) < key(together[0]))
                    count = 0;
                from[count] = i;
                together[count++] = e;
            }
            if (!count)
                break;
            for (uint32_t i = 0; i < count; i++)
                at[from[i]]++;
            serve_events(t, together, count);
        }
    }
    for (int i = 0; i < LANES; i++) {
        lanes[i].count = 0;
        lanes[i].phase = 0;
        lanes[i].turn = 0;
    }
}

static void flush(Trace *t, uint32_t simdgroup) {
    flush_lines(t, t->simdgroups + simdgroup);
    flush_events(t, simdgroup);
}

// What runtime and kernels report.

void smelt_trace_begin(const uint32_t *tid, const smelt_region *regions, uint32_t count) {
    Trace *t = active;
    if (!t)
        return;
    t->tid = tid;
    t->region_count = count < REGIONS ? count : REGIONS;
    memcpy(t->regions, regions, t->region_count * sizeof *regions);
    t->shown.line_count = t->shown.end_count = 0;
    for (uint32_t i = 0; i < THREADS; i++)
        t->lanes[i].depth = 0;
}

void smelt_trace_end(void) {
    Trace *t = active;
    if (!t)
        return;
    for (uint32_t i = 0; i < SIMDGROUPS; i++)
        flush(t, i);
    t->tid = NULL;
}

void smelt_trace_meet(uint32_t simdgroup) {
    if (!active)
        return;
    active->shown.counts.simdgroup_meetings++;
    flush(active, simdgroup);
}

void smelt_trace_barrier(uint32_t simdgroup, int first) {
    if (!active)
        return;
    active->shown.counts.threadgroup_barriers += first != 0;
    flush(active, simdgroup);
}

static Lane *running(void) { return active && active->tid ? active->lanes + *active->tid : NULL; }

static void next_phase(Lane *l) {
    l->phase++;
    l->turn = 0;
}

void smelt_trace_enter(void) {
    Lane *l = running();
    if (l && l->depth++ == 0)
        next_phase(l);
}

void smelt_trace_leave(void) {
    Lane *l = running();
    if (l && --l->depth == 0)
        next_phase(l);
}

void smelt_trace_turn(void) {
    Lane *l = running();
    if (!l)
        return;
    l->apart = 1;
    if (l->depth == 1)
        l->turn = (l->turn + 1) & ((1u << TURN_BITS) - 1);
}

void smelt_trace_step(void) {
    Lane *l = running();
    if (l)
        l->apart = 1;
}

void smelt_trace_fork(uint32_t site, uint32_t way, const char *where) {
    Trace *t = active;
    if (!t || !t->tid)
        return;
    if (site >= t->shown.site_count) {
        const uint32_t n = site * 2 + 64;
        smelt_site *s = realloc(t->shown.sites, n * sizeof *s);
        if (!s) {
            t->failed = 1;
            return;
        }
        memset(s + t->shown.site_count, 0, (n - t->shown.site_count) * sizeof *s);
        t->shown.sites = s;
        t->shown.site_count = n;
    }
    t->shown.sites[site].where = where;
    note(t, running(), (Event){when(running()), site | 0x80000000u, way, 0, 0});
}

void smelt_trace_tile(const void *at, uint64_t stride, uint32_t row_bytes, uint32_t rows, int write) {
    Trace *t = active;
    if (!t || !t->tid)
        return;
    Banks b = {{0}, 0};
    for (uint32_t r = 0; r < rows; r++) {
        const uintptr_t p = (uintptr_t)at + r * stride;
        int64_t offset = is_device(t, p);
        if (offset >= 0)
            touch_device(t, *t->tid, (uint64_t)offset, row_bytes, write);
        else if ((offset = group_offset(t, p)) >= 0)
            add_words(t, &b, (uint32_t)offset, row_bytes);
    }
    if (b.distinct)
        serve(t, &b);
}

void smelt_trace_mute(int by) {
    if (active)
        active->muted += by;
}

void smelt_trace_shift(uint32_t cycles) {
    if (active && active->tid)
        active->shown.counts.shift_cycles += cycles;
}

// The compiler's hooks.

void __tsan_init(void) {}
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void) {}
void __tsan_vptr_read(void **p) { (void)p; }
void __tsan_vptr_update(void **p, void *v) { (void)p, (void)v; }

#define ACCESS(name, bytes, write)                                                                                     \
    void __tsan_##name(void *p) { touch(p, bytes, write, __builtin_return_address(0)); }
#define ACCESSES(n)                                                                                                    \
    ACCESS(read##n, n, 0)                                                                                              \
    ACCESS(write##n, n, 1)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
#define UNALIGNED(n)                                                                                                   \
    ACCESS(unaligned_read##n, n, 0)                                                                                    \
    ACCESS(unaligned_write##n, n, 1)
UNALIGNED(2)
UNALIGNED(4)
UNALIGNED(8)
UNALIGNED(16)

void __tsan_read_range(void *p, unsigned long n) { touch(p, n, 0, __builtin_return_address(0)); }
void __tsan_write_range(void *p, unsigned long n) { touch(p, n, 1, __builtin_return_address(0)); }

void *__tsan_memcpy(void *to, const void *from, size_t n) {
    touch(from, n, 0, __builtin_return_address(0));
    touch(to, n, 1, __builtin_return_address(0));
    return memcpy(to, from, n);
}
void *__tsan_memmove(void *to, const void *from, size_t n) {
    touch(from, n, 0, __builtin_return_address(0));
    touch(to, n, 1, __builtin_return_address(0));
    return memmove(to, from, n);
}
void *__tsan_memset(void *to, int v, size_t n) {
    touch(to, n, 1, __builtin_return_address(0));
    return memset(to, v, n);
}

#define ATOMICS(bits)                                                                                                  \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int order) {                           \
        (void)order;                                                                                                   \
        touch((const void *)p, bits / 8, 0, __builtin_return_address(0));                                              \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                                   \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t v, int order) {                        \
        (void)order;                                                                                                   \
        touch((const void *)p, bits / 8, 1, __builtin_return_address(0));                                              \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                                      \
    }                                                                                                                  \
    uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t *p, uint##bits##_t v, int order) {           \
        (void)order;                                                                                                   \
        touch((const void *)p, bits / 8, 1, __builtin_return_address(0));                                              \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                                            \
    }                                                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *p, uint##bits##_t *old,                 \
                                                      uint##bits##_t v, int order, int failure) {                      \
        (void)order, (void)failure;                                                                                    \
        touch((const void *)p, bits / 8, 1, __builtin_return_address(0));                                              \
        return __atomic_compare_exchange_n(p, old, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                          \
    }                                                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile uint##bits##_t *p, uint##bits##_t *old, uint##bits##_t v, \
                                                    int order, int failure) {                                          \
        return __tsan_atomic##bits##_compare_exchange_strong(p, old, v, order, failure);                               \
    }
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

// The table.

static smelt_trace *open_trace(const void *from, uint64_t bytes) {
    Trace *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->from = (uintptr_t)from;
    t->bytes = bytes;
    t->mark = 1;
    for (int i = 0; i < SIMDGROUPS; i++)
        t->simdgroups[i].stamp = 1;
    return &t->shown;
}

static void close_trace(smelt_trace *shown) {
    Trace *t = (Trace *)shown;
    if (!t)
        return;
    for (int i = 0; i < THREADS; i++)
        free(t->lanes[i].events);
    for (int i = 0; i < SIMDGROUPS; i++) {
        free(t->simdgroups[i].touched);
        free(t->simdgroups[i].slots);
    }
    free(t->shown.sites);
    free(t->shown.lines);
    free(t->shown.ends);
    free(t);
}

extern const smelt_emulated_library *smelt_emulated_counted(void);

static int run_group(smelt_trace *shown, const void *kernel, const smelt_launch *launch, uint64_t group, char *error,
                     size_t size) {
    static const char text[] = "no memory for a trace";
    Trace *t = (Trace *)shown;
    const smelt_emulation plain = {SMELT_ORDER_ASCENDING, 0, 0};
    active = t;
    t->muted = 0;
    int rc = smelt_emulated_counted()->emulator.run(kernel, launch, &plain, group, group + 1, error, size);
    active = NULL;
    if (rc == 0 && t->failed) {
        rc = 1;
        if (size) {
            strncpy(error, text, size - 1);
            error[size - 1] = 0;
        }
    }
    return rc;
}

__attribute__((visibility("default"))) const smelt_counted *smelt_counted_kernels(void) {
    static smelt_counted table = {NULL, open_trace, close_trace, run_group};
    table.library = smelt_emulated_counted();
    return &table;
}
