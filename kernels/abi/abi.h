// The C interface between devices that execute Plans and libraries of CPU
// kernels: one launch is one dispatch of a Plan with all expressions evaluated.
// kernels/emulated and kernels/native accept the same launch, so that either
// can replace the other.
#ifndef SMELT_KERNELS_ABI_H
#define SMELT_KERNELS_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a native kernel may be told of how to go about its work. No hint changes a bit of a
// result, and any value will do: a kernel takes the nearest that it can.
enum {
    SMELT_HINT_STREAMS = 0, // groups of rows that a token is multiplied with at once
    SMELT_HINT_AHEAD = 1,   // prefetch distance in bytes
    SMELT_HINT_PIECE = 2,   // elements of a row that many tokens are multiplied with before the next ones
    SMELT_HINT_PAIRS = 3,   // sub-blocks of a token that words hold bits of: one by one (1), or two at once (2)
    SMELT_HINTS = 4,
};

typedef struct smelt_launch {
    const char *kernel;           // host name
    void *const *buffers;         // by [[buffer(i)]], parameter structs among them; null where unbound
    const uint64_t *buffer_bytes; // bytes readable from buffers[i]
    uint32_t buffer_count;
    const uint32_t *constants;     // bits by [[function_constant(i)]], i < 32
    uint32_t constants_set;        // bit i: constant i is defined
    uint32_t grid[3];              // threadgroups
    uint32_t group[3];             // threads in a threadgroup
    uint32_t threadgroup_bytes[4]; // dynamic memory by [[threadgroup(i)]]
    uint32_t interleaved;          // bit i: buffers[i] is a weight as smelt_native.interleave writes it
    uint32_t hints[SMELT_HINTS];   // 0: the kernel's default
} smelt_launch;

// How the emulator orders lanes: a kernel that is right gives the same result in
// each; a missing barrier shows in at least one.
enum { SMELT_ORDER_ASCENDING = 0, SMELT_ORDER_DESCENDING = 1, SMELT_ORDER_SHUFFLED = 2 };

typedef struct smelt_emulation {
    uint32_t order;
    uint32_t seed;   // of SMELT_ORDER_SHUFFLED
    uint32_t poison; // 1: fill threadgroup memory with NaN before each threadgroup
} smelt_emulation;

// A table of functions rather than symbols, so that packages which only link
// each other through Go can call each other.
typedef struct smelt_emulator {
    // find returns the kernel of that host name, or null.
    const void *(*find)(const char *name);
    // run executes threadgroups [begin, end) of the grid, x fastest, on the calling
    // thread. Zero, or non-zero with a message in error.
    int (*run)(const void *kernel, const smelt_launch *launch, const smelt_emulation *options, uint64_t begin,
               uint64_t end, char *error, size_t error_size);
} smelt_emulator;

// A native kernel is one or two stages of independent units of work. The caller
// hands ranges of units to its threads as it likes and runs the stages one after
// the other; the result must not depend on how units are cut.
typedef struct smelt_native_stage {
    uint64_t (*units)(const smelt_launch *launch);
    void (*run)(const smelt_launch *launch, void *shared, uint64_t begin, uint64_t end);
} smelt_native_stage;

typedef struct smelt_units {
    uint64_t first, count;
} smelt_units;

typedef struct smelt_native_kernel {
    const char *name;
    // supports reports whether the kernel supports the launch's constants and sizes;
    // otherwise the caller falls back to the emulated kernel of the same name.
    int (*supports)(const smelt_launch *launch);
    // shared_bytes is scratch that all units of all stages see (64-byte aligned,
    // uninitialised); null means none.
    size_t (*shared_bytes)(const smelt_launch *launch);
    uint32_t stage_count;
    smelt_native_stage stages[2];
    uint32_t interleaved; // bit i: buffers[i] may be interleaved
    // readers returns the units of the last stage that read buffers[argument], an interleaved
    // argument, in row order and in equal shares, of the whole or of each matrix of a stack. The
    // count is 0 if it is read otherwise. A null readers means all units.
    smelt_units (*readers)(const smelt_launch *launch, uint32_t argument);
} smelt_native_kernel;

typedef struct smelt_native {
    const char *isa; // "avx512", "neon" and so on: package native lists them
    const smelt_native_kernel *(*find)(const char *name);
    // interleave rearranges rows of k elements of a weight, of a type of params.h, so that the
    // set's kernels read them sequentially. It returns the number of rows per group, or 0 if the
    // type or k does not profit; with rows = 0 it only returns. A remainder of rows is stored as
    // the end of a whole group, which repeats the rows before it, those before `from` included.
    uint32_t (*interleave)(uint32_t type, uint64_t k, const void *from, uint64_t rows, void *to);
    // interleaved_bytes returns the size of interleaved rows in whole groups; 0 if interleave
    // returns 0.
    uint64_t (*interleaved_bytes)(uint32_t type, uint64_t k, uint64_t rows);
    // half_integers is 1 if the kernels convert F16 and BF16 weights, and their activations, to
    // 16-bit integers; embeddings then have the converted values.
    uint32_t half_integers;
} smelt_native;

#ifdef __cplusplus
}
#endif
#endif
