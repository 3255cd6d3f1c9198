// The tests' control of the fake Metal. All functions may be called from any thread; settings
// apply to command buffers that are committed later.
#ifndef FAKE_METAL_CONTROL_H
#define FAKE_METAL_CONTROL_H

#include <stdint.h>

#include "kernels/abi/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fake_argument {
    uint32_t index;
    uint32_t write, required;
    uint32_t integers;
    uint32_t align; // bytes
} fake_argument;

typedef struct fake_constant {
    uint32_t index;
    const char *macro; // in a text of single kernels
    uint32_t boolean;
    uint32_t optional;
} fake_constant;

// fake_kernel describes a kernel of a library.
typedef struct fake_kernel {
    const char *name;
    const char *instance; // macro that chooses it in a text of single kernels; null: none
    uint32_t threadgroup_bytes, max_threads;
    uint32_t params_index, params_bytes;
    const fake_argument *arguments; // buffers, without the parameters
    uint32_t argument_count;
    const fake_constant *constants;
    uint32_t constant_count;
} fake_kernel;

// fake_library_add adds a library: the source of all its kernels, the source from which macros choose
// single ones, and the kernels. Tables are copied. Any other source is a compile error.
void fake_library_add(const char *source, const char *single, const fake_kernel *kernels, uint32_t count);

typedef struct fake_options {
    const smelt_emulator *emulator;
    smelt_emulation emulation;
    uint32_t shuffle; // dispatches between barriers, and command buffers without a fence, in random order
    uint32_t seed;
    uint32_t delay_us;     // maximum delay before a command buffer is chosen
    uint32_t poison;       // new buffers hold NaN instead of zeros
    uint32_t skip_barrier; // 1 + index of a barrier to ignore, counted from here on; 0: none
    uint32_t skip_fence;   // the same of waits for a fence that something updates
    uint32_t skip_event;   // and of waits for an event
    uint32_t unwritten;    // results that depend on uninitialised bytes are misuse
    uint64_t max_buffer;   // bytes of the largest buffer; 0: 1 TiB
    uint64_t memory;       // maximum bytes of all buffers; 0: unlimited
    uint64_t working_set;  // the GPU's recommended maximum of bytes; 0: 1 TiB
    uint64_t heap;         // 64 GiB of addresses, by number, that are no memory of whole pages of its own; 0: none
    uint32_t no_counters;  // no sampling at stage boundaries
    uint32_t no_residency; // as before macOS 15
    uint32_t no_device;    // a machine without Metal
    uint32_t compile_us;   // that compiling a library takes
    uint32_t no_default;   // the default device is nil; only the list of devices has it
    uint32_t family;       // Apple's number of the GPU's; 0: 9
    const char *name;      // of the GPU, which lives as long as the process; null: one that no Mac has
    uint32_t cores;        // in the I/O registry; 0: it has no such entry
    uint32_t group_ns;     // made-up time of a threadgroup, and of a thread, that sampled passes take;
    uint32_t thread_ns;    // of neither: the CPU's
    uint32_t zeros;        // kernels write nothing, as on the GPU of a virtual machine
    uint32_t collect;      // misuse is remembered instead of ending the process
} fake_options;

void fake_configure(const fake_options *options);

// The faults of a command buffer.
enum {
    FAKE_FAULT_NONE = 0,
    FAKE_FAULT_TIMEOUT = 1,
    FAKE_FAULT_PAGE = 2,
    FAKE_FAULT_MEMORY = 3,
    FAKE_FAULT_INTERACTIVITY = 4,
    FAKE_FAULT_DEVICE_REMOVED = 5,
    FAKE_FAULT_HANG = 6, // never completes, until fake_recover
    FAKE_FAULT_COMPILE = 7,
    FAKE_FAULT_IGNORED = 8, // command buffers after a fault in their queue
};

// fake_fault makes the dispatch that is `after` dispatches away fail once; under
// FAKE_FAULT_COMPILE, the pipeline. A removed device fails everything from then on.
void fake_fault(uint32_t fault, uint64_t after);
// fake_recover ends a hang, as the watchdog does, and brings a removed device back.
void fake_recover(void);

typedef struct fake_state {
    int64_t objects;      // alive
    int64_t buffer_bytes; // of live buffers that own memory
    uint64_t dispatches;  // executed
    uint64_t barriers;    // met
    uint64_t fences;      // waited for, and updated by an earlier command buffer
    uint64_t events;      // waited for
    uint64_t command_buffers;
    uint64_t most_in_flight; // command buffers committed and not complete, at most
    uint64_t resident;       // allocations in committed residency sets
    uint64_t most_sets;      // residency sets of a queue, at most
    uint64_t requests;       // for residency
    uint64_t queues;         // made
    uint64_t waits;          // for command buffers to complete
    uint64_t timestamps;     // taken of both clocks
    uint64_t compiled;       // libraries from source
    uint64_t compiled_bytes; // of their sources
    uint64_t most_compiling; // at a time
    uint64_t pipelines;      // made
    uint64_t archived;       // of pipelines, those from an archive
    uint64_t signposts;
    uint64_t described; // command buffers with encoder status in their errors
    uint64_t captures;
    uint64_t misuses;
    char misuse[300]; // the first one collected
} fake_state;

void fake_read(fake_state *state);

// fake_compiled writes the macros of a library that was compiled since fake_reset, as
// NAME=VALUE separated by spaces, and returns its source; null after the last.
const char *fake_compiled(uint32_t index, char *macros, uint32_t room);

// fake_program runs a program that uses Metal wrongly, and returns its name, or null after the last;
// program 0 is correct. It needs the library that holds scale_f32.
const char *fake_program(uint32_t index);

// fake_reset clears counts and misuse, not live objects.
void fake_reset(void);

#ifdef __cplusplus
}
#endif
#endif
