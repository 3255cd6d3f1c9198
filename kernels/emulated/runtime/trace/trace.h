// The trace of an instrumented kernel: loads and stores are recorded by the
// compiler's hooks for race detection (-fsanitize=thread without that sanitizer's
// library), loops, branches, shifts and conversions by the macros that mslgen writes,
// barriers and matrices by the runtime.
//
// Package counted compiles each source into a shared library, whose one visible symbol
// is smelt_counted_kernels.
//
// The unit of counting is an interval: the work of a simdgroup between two
// synchronisations of its lanes (barriers, simdgroup operations) and within one
// iteration of its outermost loop.
#ifndef SMELT_COUNTED_TRACE_H
#define SMELT_COUNTED_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include "../../../abi/library.h"

#ifdef __cplusplus
#include <type_traits>
extern "C" {
#endif

enum { SMELT_LINE = 128 }; // bytes of a line of device memory

// Cycles that a lane's shift, extraction of bits, product of integers or conversion between
// integers and floats takes on the one pipe that has them all: it is a quarter as wide as
// those that add, multiply floats and mask. Source: philipturner/metal-benchmarks.
enum { SMELT_SHIFT_CYCLES = 4 };

// A line of device memory as a simdgroup touched it in one interval: bit i of the masks
// is byte i.
typedef struct smelt_line {
    uint64_t number; // from the start of the memory that is traced
    uint64_t read[2], written[2];
} smelt_line;

// A place at which control flow forks.
typedef struct smelt_site {
    const char *where;  // file:line
    uint64_t met;       // simdgroups that came by
    uint64_t divergent; // of them, those whose lanes went different ways
} smelt_site;

typedef struct smelt_counts {
    uint64_t accesses;             // loads and stores of device memory, each lane's for itself
    uint64_t used;                 // bytes of device memory that intervals touch
    uint64_t lines;                // lines that hold them
    uint64_t group_accesses;       // loads and stores of threadgroup memory, by simdgroup
    uint64_t group_cycles;         // that its banks need for them
    uint64_t group_least;          // that they would need without conflicts
    uint64_t threadgroup_barriers; // by threadgroup
    uint64_t simdgroup_meetings;   // simdgroup barriers and operations, by simdgroup
    uint64_t shift_cycles;         // of the pipe that shifts and converts, by lane
} smelt_counts;

// A trace of one threadgroup after the other.
typedef struct smelt_trace {
    smelt_counts counts; // of all threadgroups
    smelt_site *sites;   // of all threadgroups; those without a place were not met
    uint32_t site_count;
    // Of the last threadgroup: the lines that its intervals touched, in order, and the
    // index after the last one of each interval.
    smelt_line *lines;
    uint64_t line_count;
    uint64_t *ends;
    uint64_t end_count;
} smelt_trace;

// A table of functions, as kernels/abi/abi.h has them.
typedef struct smelt_counted {
    const smelt_emulated_library *library;
    // open returns a trace of accesses to memory [from, from + bytes), from being at the
    // start of a line, or null without memory.
    smelt_trace *(*open)(const void *from, uint64_t bytes);
    void (*close)(smelt_trace *);
    // run executes and traces one threadgroup.
    int (*run)(smelt_trace *, const void *kernel, const smelt_launch *, uint64_t group, char *error, size_t size);
} smelt_counted;

// Threadgroup memory of a launch: the variables and the arguments.
typedef struct smelt_region {
    const void *from;
    uint32_t bytes;
} smelt_region;

// What the runtime and the kernels report. tid is the running thread.
void smelt_trace_begin(const uint32_t *tid, const smelt_region *regions, uint32_t count);
void smelt_trace_end(void);
void smelt_trace_meet(uint32_t simdgroup);
void smelt_trace_barrier(uint32_t simdgroup, int first);
void smelt_trace_enter(void);
void smelt_trace_leave(void);
void smelt_trace_turn(void);
void smelt_trace_step(void);
void smelt_trace_fork(uint32_t site, uint32_t way, const char *where);
// A load or store of `rows` rows of memory that all lanes make together; until
// smelt_trace_mute(-1) their accesses are not traced one by one.
void smelt_trace_tile(const void *at, uint64_t stride, uint32_t row_bytes, uint32_t rows, int write);
void smelt_trace_mute(int by);
// Cycles of the pipe that shifts and converts.
void smelt_trace_shift(uint32_t cycles);

#ifdef __cplusplus
} // extern "C"

namespace msl {
inline namespace MSL_VARIANT {

struct CountedLoop {
    CountedLoop() { smelt_trace_enter(); }
    ~CountedLoop() { smelt_trace_leave(); }
};

struct CountedTile {
    CountedTile(const void *at, uint64_t stride, uint32_t row_bytes, bool write) {
        smelt_trace_tile(at, stride, row_bytes, 8, write);
        smelt_trace_mute(1);
    }
    ~CountedTile() { smelt_trace_mute(-1); }
};

inline constexpr bool counted_branch(uint32_t site, bool taken, const char *where) {
    if (!__builtin_is_constant_evaluated())
        smelt_trace_fork(site, taken, where);
    return taken;
}

inline bool counted_turn(uint32_t site, bool taken, const char *where) {
    smelt_trace_fork(site, taken, where);
    if (taken)
        smelt_trace_turn();
    return taken;
}

inline constexpr bool counted_step(bool taken) {
    if (!__builtin_is_constant_evaluated())
        smelt_trace_step();
    return taken;
}

template <class T> inline T counted_choice(uint32_t site, T value, const char *where) {
    smelt_trace_fork(site, uint32_t(value), where);
    return value;
}

// Kinds of numbers.
enum class Kind { other, integer, floating };

template <class T> struct Number {
    static constexpr uint32_t width = 1;
    static constexpr Kind kind = std::is_same_v<T, bool>       ? Kind::other
                                 : std::is_integral_v<T>       ? Kind::integer
                                 : std::is_floating_point_v<T> ? Kind::floating
                                 : std::is_class_v<T>          ? Kind::floating // half and bfloat
                                                               : Kind::other;
};
template <template <class, int> class V, class T, int N> struct Number<V<T, N>> {
    static constexpr uint32_t width = N;
    static constexpr Kind kind = Number<T>::kind;
};

// mslgen puts `counted_shift ->*`, which binds more strongly than any arithmetic operator,
// before the right operand of a shift; By carries the operand through the operators that
// follow. A shift by 0 does not count: it is the first iteration of an unrolled loop.
template <class T> struct By {
    T value;
};

struct CountedShift {
    template <class T> constexpr By<T> operator->*(T by) const { return {by}; }
};
inline constexpr CountedShift counted_shift;

#define MSL_BY_OPERATOR(op)                                                                                            \
    template <class T, class U> inline constexpr auto operator op(By<T> a, U b) {                                      \
        return By<decltype(a.value op b)>{a.value op b};                                                               \
    }
MSL_BY_OPERATOR(*)
MSL_BY_OPERATOR(/)
MSL_BY_OPERATOR(%)
MSL_BY_OPERATOR(+)
MSL_BY_OPERATOR(-)
#undef MSL_BY_OPERATOR

template <class V, class T> inline constexpr void count_shift(By<T> by) {
    if (__builtin_is_constant_evaluated())
        return;
    uint32_t shifts = 0;
    if constexpr (std::is_arithmetic_v<T>)
        shifts = by.value != 0 ? Number<V>::width : 0;
    else
        for (uint32_t i = 0; i < Number<T>::width; i++)
            shifts += by.value[i] != 0;
    smelt_trace_shift(shifts * SMELT_SHIFT_CYCLES);
}

template <class V, class T> inline constexpr auto operator<<(V v, By<T> by) {
    count_shift<V>(by);
    return v << by.value;
}
template <class V, class T> inline constexpr auto operator>>(V v, By<T> by) {
    count_shift<V>(by);
    return v >> by.value;
}
template <class V, class T> inline constexpr V &operator<<=(V &v, By<T> by) {
    count_shift<V>(by);
    return v <<= by.value;
}
template <class V, class T> inline constexpr V &operator>>=(V &v, By<T> by) {
    count_shift<V>(by);
    return v >>= by.value;
}

// Inlined always: where a call's result goes straight to memory, gcc's hooks miss the store.
template <class To, class... From>
__attribute__((always_inline)) inline constexpr To counted_cast(const From &...from) {
    if (!__builtin_is_constant_evaluated()) {
        constexpr Kind to = Number<To>::kind;
        constexpr uint32_t converted =
            (0 + ... +
             (Number<From>::kind != Kind::other && to != Kind::other && Number<From>::kind != to ? Number<From>::width
                                                                                                 : 0));
        if constexpr (converted != 0)
            smelt_trace_shift(converted * SMELT_SHIFT_CYCLES);
    }
    return To(from...);
}

} // namespace MSL_VARIANT
} // namespace msl

#define MSL_TEXT_OF(x) #x
#define MSL_TEXT(x) MSL_TEXT_OF(x)
#define MSL_WHERE __FILE__ ":" MSL_TEXT(__LINE__)
#define MSL_LOOP(n)                                                                                                    \
    switch (msl::CountedLoop msl_loop; 0)                                                                              \
    default:
#define MSL_TURN(n, ...) msl::counted_turn(n, bool(__VA_ARGS__), MSL_WHERE)
#define MSL_STEP(...) msl::counted_step(bool(__VA_ARGS__))
#define MSL_BRANCH(n, ...) msl::counted_branch(n, bool(__VA_ARGS__), MSL_WHERE)
#define MSL_CHOOSE(n, ...) msl::counted_choice(n, (__VA_ARGS__), MSL_WHERE)
#define MSL_BY msl::counted_shift->*
#define MSL_CAST(type, ...) msl::counted_cast<type>(__VA_ARGS__)
#define MSL_TRACE(...) __VA_ARGS__
#define MSL_UNTRACED __attribute__((no_sanitize("thread")))
#endif

#endif
