// The Apple provider: device/provider/device.h over Metal. It uses manual reference counting, and
// neither blocks nor literals, so that gcc compiles the same files against a fake Metal. Newer API
// is looked up by class and selector.
#ifndef SMELT_METAL_APPLE_H
#define SMELT_METAL_APPLE_H

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <pthread.h>

#include "device/provider/device.h"

// Metal's hazard tracking is off, as the Plan has the barriers.
static const MTLResourceOptions apple_memory = MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked;

// POOL { … } is @autoreleasepool { … }; returning from it drains too. It must not contain break,
// which would leave different loops under the two compilers.
#ifdef __clang__
#define POOL @autoreleasepool
#else
static inline void smelt_drain(NSAutoreleasePool **pool) { [*pool drain]; }
#define POOL                                                                                                           \
    for (NSAutoreleasePool * pool_ __attribute__((cleanup(smelt_drain))) = [[NSAutoreleasePool alloc] init],           \
                                   *once_ = pool_;                                                                     \
         once_ != nil; once_ = nil)
#endif

// MTLResidencySet of macOS 15, and the methods of devices and queues for it.
@protocol SmeltResidencySet <NSObject>
- (void)addAllocation:(id)allocation;
- (void)removeAllocation:(id)allocation;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@end
@protocol SmeltResidentDevice
- (id<SmeltResidencySet>)newResidencySetWithDescriptor:(id)descriptor error:(NSError **)error;
@end
@protocol SmeltResidentQueue
- (void)addResidencySet:(id)set;
- (void)removeResidencySet:(id)set;
@end

// Pipeline is a kernel with its function constants. The pipelines of a device are a list.
typedef struct Pipeline {
    struct Pipeline *next;
    const smelt_function *function;
    uint32_t constants[32];
    uint32_t constants_set;
    BOOL whole; // its threadgroups are whole simdgroups
    BOOL kept;  // by an earlier process
    id<MTLComputePipelineState> state;
} Pipeline;

// Gpu is the provider's smelt_device.
typedef struct Gpu {
    smelt_device_options options;
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
    id<MTLCounterSet> timestamps; // nil: the GPU's clock cannot be read between passes
    id<MTLLibrary> library;       // of all kernels; nil: each is compiled by itself
    char *archives;               // folder of compiled pipelines, by kernel, constants and source; or null
    Pipeline *pipelines;
    smelt_device *cpu; // of the host provider
    uint32_t steps;
    BOOL faulted;        // the queue may ignore what follows
    uint32_t generation; // of the queue

    // All memory of the device is in one set, as a queue takes 32. While there are instances a
    // thread requests its residency, so that the system does not evict it between steps.
    id<SmeltResidencySet> resident; // nil before macOS 15
    uint32_t instances;
    pthread_t keeper;
    pthread_mutex_t lock; // of the following fields, and of the set
    pthread_cond_t wake;
    BOOL keeping;
} Gpu;

// host_of returns the functions of the host, which runs the dispatches on_cpu.
static inline const smelt_host *host_of(const Gpu *gpu) { return gpu->options.host; }

// Memory is the provider's smelt_buffer: part of a Metal buffer that both processors
// use.
typedef struct Memory {
    Gpu *gpu;
    id<MTLBuffer> buffer;
    uint64_t offset, bytes;
    BOOL whole; // not a slice of another
    smelt_buffer *host;
} Memory;

// Executable is the provider's smelt_executable.
typedef struct Executable {
    Gpu *gpu;
    smelt_executable *host;
    smelt_phase *phases;
    smelt_dispatch *dispatches;
    smelt_argument *arguments;
    Memory **buffers;    // null where each instance has its own
    Pipeline **by_index; // by dispatch; null for the CPU's
    NSString **labels;   // by dispatch
    uint32_t phase_count, dispatch_count, buffer_count, kernel_count;
    smelt_compiled compiled;
} Executable;

// apple_fail fills error and returns its code.
__attribute__((format(printf, 4, 5))) int apple_fail(smelt_error *error, int code, int64_t dispatch, const char *format,
                                                     ...);

// apple_open_pipelines opens the library or the archive folder of the device's options, and
// apple_close_pipelines releases all pipelines.
int apple_open_pipelines(Gpu *gpu, smelt_error *error);
void apple_close_pipelines(Gpu *gpu);
// apple_pipelines makes the pipelines of the executable's dispatches that the device has not
// made yet, several at a time.
int apple_pipelines(Executable *executable, const smelt_tables *tables, smelt_error *error);

// apple_renew replaces the queue after a fault, as Metal may ignore further work on it.
int apple_renew(Gpu *gpu, smelt_error *error);

// apple_reside keeps all allocated memory in the GPU's page tables, if the system supports it; from
// apple_join to apple_leave, also while no step runs.
void apple_reside(Gpu *gpu);
void apple_join(Gpu *gpu);
void apple_leave(Gpu *gpu);

int apple_instance_create(smelt_executable *executable, smelt_buffer *const *buffers, const uint64_t *ring_stride,
                          smelt_instance **instance, smelt_error *error);
void apple_instance_close(smelt_instance *instance);
int apple_instance_run(smelt_instance *instance, const smelt_step *step, smelt_counts *counts,
                       smelt_kernel_count *kernels, uint64_t *nanoseconds, smelt_error *error);
void apple_instance_cancel(smelt_instance *instance, uint32_t cancel);

const smelt_provider *smelt_apple_provider(void);

#endif
