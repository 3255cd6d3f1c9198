// The C interface between Go and a device: Apple's GPU or the CPU of the host. A provider is a
// table of functions, so that one process can hold several. A Plan is passed once, as flat
// tables; a step passes only its sizes, and one call runs all of it.
//
// Laws. Functions that can fail return 0 or an smelt_code and fill *error. Objects must be idle
// when they are closed: instances before executables, executables and buffers before devices.
// One thread at a time calls a device, except for instance_cancel, which any thread may call.
// Tables are copied; the memory of buffers is not.
#ifndef SMELT_DEVICE_H
#define SMELT_DEVICE_H

#include <stdint.h>

#include "kernels/abi/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum smelt_code {
    SMELT_OK = 0,
    SMELT_ERROR_SYSTEM = 1,    // the operating system refused: threads, mappings
    SMELT_ERROR_MEMORY = 2,    // memory refused
    SMELT_ERROR_KERNEL = 3,    // the device has no kernel of this name
    SMELT_ERROR_BOUNDS = 4,    // these sizes leave a buffer or the range of a word
    SMELT_ERROR_EXECUTION = 5, // a kernel failed
    SMELT_ERROR_CANCELLED = 6, // stopped between two command buffers, or at a barrier where there are none
    SMELT_ERROR_LOST = 7,      // the device is gone, or does not respond
};

typedef struct smelt_error {
    int32_t code;
    int32_t dispatch; // index in the phase (of executable_create: over all phases), or -1
    int32_t argument; // index in the dispatch's arguments, or -1
    char message[500];
} smelt_error;

typedef struct smelt_device smelt_device;
typedef struct smelt_buffer smelt_buffer;
typedef struct smelt_executable smelt_executable;
typedef struct smelt_instance smelt_instance;
typedef struct smelt_host smelt_host;

// The purpose of a buffer decides the kind of its pages. The CPU reads or writes a SHARED one
// between steps. Only the device uses the others: every step uses all of a DENSE one, and a
// SPARSE one fills up slowly.
enum { SMELT_SHARED = 0, SMELT_DENSE = 1, SMELT_SPARSE = 2 };

// The capacity of a step's sizes, which are indexed by symbol.
#define SMELT_SYMBOLS 8

// ceil((mul · Π size[s]^power[s] + add) / div), all of it non-negative at sizes
// within the bounds.
typedef struct smelt_term {
    int64_t mul, add, div;
    uint8_t power[SMELT_SYMBOLS];
} smelt_term;

// constant + Σ terms: an expression over the sizes of a step. Equal expressions share a row, which
// is evaluated once per step.
typedef struct smelt_value {
    int64_t constant;
    uint32_t first_term, term_count;
} smelt_value;

enum { SMELT_READ = 1, SMELT_WRITE = 2, SMELT_WHOLE = 4 };

typedef struct smelt_argument {
    int64_t offset;  // bytes into the buffer
    uint32_t index;  // [[buffer(index)]]
    uint32_t buffer; // of the Plan
    uint32_t bytes;  // value: bytes that the kernel may access; under SMELT_WHOLE, all from offset on
    uint32_t access; // SMELT_READ | SMELT_WRITE | SMELT_WHOLE
} smelt_argument;

typedef struct smelt_dispatch {
    uint32_t kernel;
    uint32_t constants_set;  // bit i: function constant i is defined
    uint32_t first_constant; // of 32 words
    uint32_t first_argument, argument_count;
    uint32_t first_word, word_count; // parameters: indices of values, each a 32-bit word
    uint32_t params_at;              // argument index of the parameters
    uint32_t grid[3];                // values
    uint32_t group[3];
    uint32_t barrier;            // wait for all earlier dispatches; those between barriers are independent
    uint32_t command_buffer;     // begins a command buffer; command buffers run one after the other
    uint32_t hints[SMELT_HINTS]; // to the CPU's native kernels
    uint32_t on_cpu;             // on a device with a GPU: the CPU runs it
} smelt_dispatch;

typedef struct smelt_phase {
    uint32_t first_dispatch, dispatch_count;
    int64_t bounds[SMELT_SYMBOLS]; // largest sizes
} smelt_phase;

// A weight whose rows the provider may rearrange for its kernels; one with 0 rows stays as it
// is.
typedef struct smelt_matrix {
    uint64_t rows, columns; // columns: elements of a row
    uint32_t type;          // of params.h
    uint32_t stack;         // matrices of as many rows that lie one after the other
} smelt_matrix;

// When matrices are rearranged: between steps once one has run, when the executable is
// created, or not at all.
enum { SMELT_REARRANGE_LATER = 0, SMELT_REARRANGE_NOW = 1, SMELT_REARRANGE_NEVER = 2 };

typedef struct smelt_tables {
    const smelt_term *terms;
    const smelt_value *values;
    const smelt_argument *arguments;
    const uint32_t *words;
    const uint32_t *constants;
    const smelt_dispatch *dispatches;
    const smelt_phase *phases;
    const smelt_matrix *matrices; // by buffer
    const char *names;            // host names, each with its terminating zero
    const uint32_t *kernel_name;  // offset in names, by kernel
    const uint32_t *label;        // offset in names, by dispatch: for captures and messages
    uint32_t term_count, value_count, argument_count, word_count, constant_count, dispatch_count, phase_count,
        name_bytes, kernel_count, buffer_count;
} smelt_tables;

// A kernel source, for devices that compile kernels: a text in which macros replace function
// constants and choose the kernel.
typedef struct smelt_source {
    const char *name; // of the file
    const char *text;
    const char *hash; // of the text, valid in a file name
} smelt_source;

typedef struct smelt_function {
    const char *name;  // host name
    uint32_t source;   // index
    uint32_t booleans; // bit i: function constant i is a bool; else a uint
    uint32_t max_threads;
    const char *instance;   // macro that chooses it; null: not needed
    const char *macros[32]; // by function constant; null where it has none
} smelt_function;

// The memory node and the processors of a thread. Threads of one node, whose processors reach one
// part of the memory faster than the rest, are consecutive.
typedef struct smelt_place {
    uint32_t node;                   // the system's number
    uint32_t words;                  // of the mask; 0: any processor
    const unsigned long *processors; // a mask, which is copied
} smelt_place;

typedef struct smelt_device_options {
    uint32_t threads;
    const smelt_place *places; // by thread; null: any, on one memory node
    uint32_t half;             // the host beside a GPU: runs dispatches on_cpu only
    uint32_t use_native;       // native kernels where they support the launch
    uint32_t shuffle;          // dispatches between barriers run one by one in random order
    uint32_t rearrange;        // matrices: SMELT_REARRANGE_LATER, …
    uint32_t mapped;           // weights are mappings of files that nobody writes to
    smelt_emulation emulation;
    const smelt_emulator *emulator; // may be null
    const smelt_native *native;     // may be null
    const smelt_native *blas;       // tried first for dispatches on_cpu; may be null
    // The following are for a GPU. Texts and tables must live as long as the device.
    const smelt_host *host; // its other half
    const smelt_source *sources;
    const smelt_function *functions;
    uint32_t source_count, function_count;
    const char *library;   // path of a compiled library that replaces the sources, or null
    const char *archives;  // folder of compiled pipelines of this system, for any GPU, or null
    uint32_t timeout_ms;   // maximum time of a command buffer
    uint32_t debug;        // passes have labels, and an error names its dispatch
    uint32_t capture_step; // steps are counted from 1; 0: none
    const char *capture_path;
} smelt_device_options;

typedef struct smelt_info {
    char isa[32]; // instruction set of native kernels
    char gpu[64]; // name of the GPU; empty on the host
    uint32_t threads, nodes;
    uint32_t family;            // Apple's number of the GPU's family: 7 for M1
    uint32_t cores;             // of the GPU; 0: unknown
    uint32_t threadgroup_bytes; // maximum threadgroup memory
    uint32_t page_bytes;        // alignment of memory that is wrapped without a copy
    uint32_t samples;           // the GPU's clock can be read between passes
    uint32_t half_integers;     // of the native kernels, see smelt_native
    uint64_t max_buffer_bytes;
    uint64_t working_set_bytes; // that the GPU keeps resident without paging
} smelt_info;

// The pipelines that a device made for an executable.
typedef struct smelt_compiled {
    uint32_t pipelines;
    uint32_t kept; // of them, those from an earlier process's archive
    uint64_t nanoseconds;
} smelt_compiled;

typedef struct smelt_step {
    uint32_t phase;
    uint32_t slot;    // of the ring of inputs
    uint32_t profile; // time each dispatch by itself
    uint32_t seed;    // of the order under shuffle
    int64_t sizes[SMELT_SYMBOLS];
} smelt_step;

// What a step executed.
typedef struct smelt_counts {
    uint32_t dispatches, barriers, command_buffers;
    uint32_t rearranged; // dispatches that read rearranged weights
} smelt_counts;

typedef struct smelt_kernel_count {
    uint32_t dispatches;
    uint32_t native; // of them
} smelt_kernel_count;

typedef struct smelt_provider {
    const char *name;

    int (*device_open)(const smelt_device_options *options, smelt_device **device, smelt_error *error);
    void (*device_close)(smelt_device *device);
    void (*device_info)(const smelt_device *device, smelt_info *info);

    // buffer_create makes a buffer of zeroed memory whose pages are committed when touched.
    int (*buffer_create)(smelt_device *device, uint64_t bytes, uint32_t purpose, smelt_buffer **buffer,
                         smelt_error *error);
    // buffer_wrap makes a read-only buffer over memory that outlives it, without a copy. A GPU
    // maps whole pages of it.
    int (*buffer_wrap)(smelt_device *device, const void *memory, uint64_t bytes, smelt_buffer **buffer,
                       smelt_error *error);
    // buffer_slice makes a buffer over part of another, which it keeps alive.
    int (*buffer_slice)(smelt_buffer *whole, uint64_t offset, uint64_t bytes, smelt_buffer **buffer,
                        smelt_error *error);
    void *(*buffer_contents)(smelt_buffer *buffer);
    void (*buffer_close)(smelt_buffer *buffer);

    // buffers are those of the Plan, null where each instance has its own.
    int (*executable_create)(smelt_device *device, const smelt_tables *tables, smelt_buffer *const *buffers,
                             smelt_executable **executable, smelt_error *error);
    // executable_natives sets, for each kernel, whether all its dispatches run natively at the bounds.
    void (*executable_natives)(const smelt_executable *executable, uint8_t *natives);
    // executable_compiled returns the pipelines that were made; none on the host.
    void (*executable_compiled)(const smelt_executable *executable, smelt_compiled *compiled);
    void (*executable_close)(smelt_executable *executable);

    // ring_stride: bytes between the slots of an input; 0 for buffers without slots.
    int (*instance_create)(smelt_executable *executable, smelt_buffer *const *buffers, const uint64_t *ring_stride,
                           smelt_instance **instance, smelt_error *error);
    void (*instance_close)(smelt_instance *instance);
    // instance_run executes a step and returns when its outputs are readable. kernels is by kernel;
    // nanoseconds, null without profile, by dispatch of the phase.
    int (*instance_run)(smelt_instance *instance, const smelt_step *step, smelt_counts *counts,
                        smelt_kernel_count *kernels, uint64_t *nanoseconds, smelt_error *error);
    // instance_cancel makes the running step stop at its next command buffer, or barrier if it has
    // no command buffers, and later steps at their start, until it is called with 0.
    void (*instance_cancel)(smelt_instance *instance, uint32_t cancel);
} smelt_provider;

// The host as the CPU half of a device with a GPU, over the same memory: it resolves
// launches for both, and runs the dispatches that are on_cpu. With neither an
// emulator nor native kernels in the options, it only resolves.
struct smelt_host {
    const smelt_provider *provider;
    int (*resolve)(smelt_instance *instance, const smelt_step *step, smelt_error *error);
    // launch returns a launch of the last resolved step.
    const smelt_launch *(*launch)(const smelt_instance *instance, uint32_t dispatch);
    // run executes count dispatches from first on, and adds to counts and kernels.
    int (*run)(smelt_instance *instance, uint32_t first, uint32_t count, smelt_counts *counts,
               smelt_kernel_count *kernels, uint64_t *nanoseconds, smelt_error *error);
};

#ifdef __cplusplus
}
#endif
#endif
