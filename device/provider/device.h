// The C interface between Go and whatever executes a Plan: Apple's GPU or the
// CPU of the host. A provider is a table of functions, so that one process can
// hold several. The Plan arrives once, as flat tables; a step passes only its
// sizes, and one call runs it whole.
//
// Laws. Functions that can fail return 0 or an smelt_code and fill *error. What
// is closed must be idle, and instances go before executables, executables and buffers
// before devices. A device is called by one thread at a time, but for
// instance_cancel, which any thread may call. Tables are copied; the memory of
// buffers is not.
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
    SMELT_ERROR_KERNEL = 3,    // nothing provides a kernel of this name
    SMELT_ERROR_BOUNDS = 4,    // these sizes leave a buffer or the range of a word
    SMELT_ERROR_EXECUTION = 5, // a kernel failed
    SMELT_ERROR_CANCELLED = 6, // stopped between two command buffers, or at a barrier where there are none
    SMELT_ERROR_LOST = 7,      // the device is gone, or does not answer
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

// What a buffer is for decides how its pages come: SHARED is read or written by
// the CPU between steps; DENSE is used from end to end by every step, and SPARSE
// fills up slowly, both by the device alone.
enum { SMELT_SHARED = 0, SMELT_DENSE = 1, SMELT_SPARSE = 2 };

// The symbols of a step's sizes; room for more than there are.
#define SMELT_SYMBOLS 8

// ceil((mul · Π size[s]^power[s] + add) / div), all of it non-negative at sizes
// within the bounds.
typedef struct smelt_term {
    int64_t mul, add, div;
    uint8_t power[SMELT_SYMBOLS];
} smelt_term;

// constant + Σ terms: a number that the sizes of a step decide. Equal ones are
// one row, evaluated once a step.
typedef struct smelt_value {
    int64_t constant;
    uint32_t first_term, term_count;
} smelt_value;

enum { SMELT_READ = 1, SMELT_WRITE = 2, SMELT_WHOLE = 4 };

typedef struct smelt_argument {
    int64_t offset;  // bytes into the buffer
    uint32_t index;  // [[buffer(index)]]
    uint32_t buffer; // of the Plan
    uint32_t bytes;  // value: how many the kernel may touch; under SMELT_WHOLE, all from offset on
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
    uint32_t barrier;            // wait for everything before; between barriers, dispatches are independent
    uint32_t command_buffer;     // begins a command buffer; command buffers run one after the other
    uint32_t hints[SMELT_HINTS]; // to the CPU's native kernels
    uint32_t on_cpu;             // of a device with a GPU: the CPU runs it
} smelt_dispatch;

typedef struct smelt_phase {
    uint32_t first_dispatch, dispatch_count;
    int64_t bounds[SMELT_SYMBOLS]; // largest sizes
} smelt_phase;

// A weight whose rows the provider may rearrange for its kernels; one of 0 rows is left
// alone.
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

// Where kernels come from, for devices that compile them: a text in which macros take the
// place of function constants and choose the kernel.
typedef struct smelt_source {
    const char *name; // of the file
    const char *text;
    const char *hash; // of the text, as a file's name may hold it
} smelt_source;

typedef struct smelt_function {
    const char *name;  // host name
    uint32_t source;   // index
    uint32_t booleans; // bit i: function constant i is a bool; else a uint
    uint32_t max_threads;
    const char *instance;   // macro that chooses it; null: none is needed
    const char *macros[32]; // by function constant; null where it has none
} smelt_function;

// Where a thread works. Those of a memory node, whose processors reach some memory faster than the
// rest of it, follow one another.
typedef struct smelt_place {
    uint32_t node;                   // the system's number
    uint32_t words;                  // of the mask; 0: any processor
    const unsigned long *processors; // a mask, which is copied
} smelt_place;

typedef struct smelt_device_options {
    uint32_t threads;
    const smelt_place *places; // by thread; null: anywhere, and memory is all alike
    uint32_t half;             // the host beside a GPU: only dispatches on_cpu are its
    uint32_t use_native;       // native kernels where they support the launch
    uint32_t shuffle;          // dispatches between barriers run one by one in random order
    uint32_t rearrange;        // matrices: SMELT_REARRANGE_LATER, …
    uint32_t mapped;           // weights are mappings of files that nobody writes to
    smelt_emulation emulation;
    const smelt_emulator *emulator; // null: there is none
    const smelt_native *native;     // null: there is none
    const smelt_native *blas;       // asked first for dispatches on_cpu; null: there is none
    // Of a GPU. Texts and tables must live as long as the device.
    const smelt_host *host; // its other half
    const smelt_source *sources;
    const smelt_function *functions;
    uint32_t source_count, function_count;
    const char *library;   // path of a compiled library that takes the sources' place, or null
    const char *archives;  // folder of what was compiled before, on this system for any GPU, or null
    uint32_t timeout_ms;   // that a command buffer may take
    uint32_t debug;        // passes have labels, and a fault tells its dispatch
    uint32_t capture_step; // steps are counted from 1; 0: none
    const char *capture_path;
} smelt_device_options;

typedef struct smelt_info {
    char isa[32]; // instruction set of native kernels
    char gpu[64]; // name of the GPU; empty on the host
    uint32_t threads, nodes;
    uint32_t family;            // Apple's number of the GPU's family: 7 for M1
    uint32_t cores;             // of the GPU; 0: the system does not tell
    uint32_t threadgroup_bytes; // that a threadgroup may have
    uint32_t page_bytes;        // alignment of memory that is wrapped without a copy
    uint32_t samples;           // the GPU's clock can be read between passes
    uint32_t half_integers;     // of the native kernels, see smelt_native
    uint64_t max_buffer_bytes;
    uint64_t working_set_bytes; // that the GPU keeps resident without paging
} smelt_info;

// What a device compiled for an executable.
typedef struct smelt_compiled {
    uint32_t pipelines;
    uint32_t kept; // of them, those that an earlier process had kept
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

    // buffer_create gives zeroed memory whose pages cost nothing until touched.
    int (*buffer_create)(smelt_device *device, uint64_t bytes, uint32_t purpose, smelt_buffer **buffer,
                         smelt_error *error);
    // buffer_wrap makes a read-only buffer of memory that outlives it, without a copy. A GPU
    // sees whole pages of it.
    int (*buffer_wrap)(smelt_device *device, const void *memory, uint64_t bytes, smelt_buffer **buffer,
                       smelt_error *error);
    // buffer_slice makes a buffer of a part of another, which it keeps alive.
    int (*buffer_slice)(smelt_buffer *whole, uint64_t offset, uint64_t bytes, smelt_buffer **buffer,
                        smelt_error *error);
    void *(*buffer_contents)(smelt_buffer *buffer);
    void (*buffer_close)(smelt_buffer *buffer);

    // buffers are those of the Plan, null where each instance has its own.
    int (*executable_create)(smelt_device *device, const smelt_tables *tables, smelt_buffer *const *buffers,
                             smelt_executable **executable, smelt_error *error);
    // executable_natives tells for each kernel whether all its dispatches run natively at the bounds.
    void (*executable_natives)(const smelt_executable *executable, uint8_t *natives);
    // executable_compiled tells what had to be compiled; nothing on the host.
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
    // instance_cancel makes a running step stop at its next command buffer, at its next barrier
    // where it has none, and later ones at their start, until it is called with 0.
    void (*instance_cancel)(smelt_instance *instance, uint32_t cancel);
} smelt_provider;

// The host as the other half of a device with a GPU, over the same memory: it resolves
// launches for both, and runs the dispatches that are the CPU's. With neither an
// emulator nor native kernels in the options, it only resolves.
struct smelt_host {
    const smelt_provider *provider;
    int (*resolve)(smelt_instance *instance, const smelt_step *step, smelt_error *error);
    // launch returns a launch of the phase that was resolved last.
    const smelt_launch *(*launch)(const smelt_instance *instance, uint32_t dispatch);
    // run executes count dispatches from first on, and adds to counts and kernels.
    int (*run)(smelt_instance *instance, uint32_t first, uint32_t count, smelt_counts *counts,
               smelt_kernel_count *kernels, uint64_t *nanoseconds, smelt_error *error);
};

#ifdef __cplusplus
}
#endif
#endif
