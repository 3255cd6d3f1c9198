//go:build cgo && ((darwin && arm64) || fakemetal)

// The device, its memory, and executables: all objects that outlive a step.
#import "apple.h"

#include <CoreFoundation/CoreFoundation.h>
#include <IOKit/IOKitLib.h>
#include <errno.h>
#include <objc/runtime.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    queue_length = 16, // command buffers that may exist at once
    least_family = 7,
    residency_ms = 250, // between two requests; the system evicts memory that is idle for about a second
};

int apple_fail(smelt_error *error, int code, int64_t dispatch, const char *format, ...) {
    error->code = code;
    error->dispatch = (int32_t)dispatch;
    error->argument = -1;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return code;
}

// detach removes the residency set from the queue.
static void detach(Gpu *g) {
    if (g->resident != nil)
        [(id<SmeltResidentQueue>)g->queue removeResidencySet:g->resident];
}

static void device_close(smelt_device *device) {
    Gpu *g = (Gpu *)device;
    POOL {
        apple_close_pipelines(g);
        [g->timestamps release];
        detach(g);
        [g->resident endResidency];
        [g->resident release];
        [g->queue release];
        [g->device release];
    }
    if (g->cpu != NULL)
        host_of(g)->provider->device_close(g->cpu);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->wake);
    free(g);
}

// family_of returns Apple's number of the GPU's family. Numbers are consecutive; a family that is
// newer than the last known one counts as that.
static uint32_t family_of(const Gpu *g) {
    uint32_t family = 0;
    for (uint32_t f = 1; f <= 10; f++)
        if ([g->device supportsFamily:(MTLGPUFamily)(1000 + f)])
            family = f;
    return family;
}

// cores_of returns the number of the GPU's cores, from its driver's entry in the I/O registry, as
// Metal has no such property.
static uint32_t cores_of(void) {
    io_service_t driver = IOServiceGetMatchingService(kIOMainPortDefault, IOServiceMatching("AGXAccelerator"));
    if (driver == 0)
        return 0;
    CFTypeRef property = IORegistryEntryCreateCFProperty(driver, CFSTR("gpu-core-count"), kCFAllocatorDefault, 0);
    int32_t cores = 0;
    if (property != NULL) {
        if (CFGetTypeID(property) != CFNumberGetTypeID() ||
            !CFNumberGetValue((CFNumberRef)property, kCFNumberSInt32Type, &cores))
            cores = 0;
        CFRelease(property);
    }
    IOObjectRelease(driver);
    return cores > 0 ? (uint32_t)cores : 0;
}

// first returns the default device. Metal returns none in a process without CoreGraphics, and in
// some others; then it is the first in the list of all devices.
static id<MTLDevice> first(void) {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (device != nil)
        return device;
    NSArray *all = MTLCopyAllDevices();
    device = [all count] > 0 ? [[all objectAtIndex:0] retain] : nil;
    [all release];
    return device;
}

// make_set makes the device's residency set. Without one, Metal makes the resources of each command
// buffer resident.
static void make_set(Gpu *g) {
    Class class = objc_getClass("MTLResidencySetDescriptor");
    SEL make = sel_registerName("newResidencySetWithDescriptor:error:"), add = sel_registerName("addResidencySet:");
    if (class == Nil || ![g->device respondsToSelector:make] || ![g->queue respondsToSelector:add])
        return;
    id descriptor = [[class alloc] init];
    NSError *ignored = nil;
    id<SmeltResidencySet> set = [(id<SmeltResidentDevice>)g->device newResidencySetWithDescriptor:descriptor
                                                                                            error:&ignored];
    [descriptor release];
    if (set != nil)
        [(id<SmeltResidentQueue>)g->queue addResidencySet:set];
    g->resident = set;
}

int apple_renew(Gpu *g, smelt_error *error) {
    id<MTLCommandQueue> fresh = [g->device newCommandQueueWithMaxCommandBufferCount:queue_length];
    if (fresh == nil)
        return apple_fail(error, SMELT_ERROR_LOST, -1, "after a fault of the GPU, Metal creates no further queue");
    detach(g);
    [g->queue release];
    g->queue = fresh;
    if (g->resident != nil)
        [(id<SmeltResidentQueue>)g->queue addResidencySet:g->resident];
    g->faulted = NO;
    g->generation++;
    return SMELT_OK;
}

// usable returns an error for a GPU that the kernels do not run on.
static int usable(Gpu *g, smelt_error *error) {
    if (g->device == nil || g->queue == nil)
        return apple_fail(error, SMELT_ERROR_LOST, -1,
                          "the system gives this process no GPU, neither as its default nor in its list: a virtual "
                          "machine may have none");
    const char *name = [[g->device name] UTF8String];
    if (![g->device hasUnifiedMemory])
        return apple_fail(error, SMELT_ERROR_LOST, -1, "%s has memory of its own; Apple silicon is needed", name);
    uint32_t family = family_of(g);
    if (family < least_family)
        return apple_fail(error, SMELT_ERROR_LOST, -1,
                          "%s is of GPU family Apple%u; products of matrices and sums over simdgroups need Apple%u, "
                          "that of M1",
                          name, family, least_family);
    return SMELT_OK;
}

static int device_open(const smelt_device_options *given, smelt_device **device, smelt_error *error) {
    Gpu *g = calloc(1, sizeof *g);
    g->options = *given;
    g->options.half = 1;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->wake, NULL);
    POOL {
        g->device = first();
        g->queue = [g->device newCommandQueueWithMaxCommandBufferCount:queue_length];
        NSArray *sets = [g->device counterSets];
        BOOL between = [g->device supportsCounterSampling:MTLCounterSamplingPointAtStageBoundary];
        for (NSUInteger i = 0; between && i < [sets count]; i++) {
            id<MTLCounterSet> set = [sets objectAtIndex:i];
            if (strcmp([[set name] UTF8String], [MTLCommonCounterSetTimestamp UTF8String]) == 0)
                g->timestamps = [set retain];
        }
    }
    int code = SMELT_OK;
    POOL {
        code = usable(g, error);
        if (code == SMELT_OK)
            code = apple_open_pipelines(g, error);
        if (code == SMELT_OK)
            make_set(g);
    }
    if (code == SMELT_OK)
        code = host_of(g)->provider->device_open(&g->options, &g->cpu, error);
    if (code != SMELT_OK) {
        device_close((smelt_device *)g);
        return code;
    }
    *device = (smelt_device *)g;
    return SMELT_OK;
}

static void device_info(const smelt_device *device, smelt_info *info) {
    const Gpu *g = (const Gpu *)device;
    host_of(g)->provider->device_info(g->cpu, info);
    POOL {
        snprintf(info->gpu, sizeof info->gpu, "%s", [[g->device name] UTF8String]);
        info->family = family_of(g);
        info->cores = cores_of();
        info->threadgroup_bytes = (uint32_t)[g->device maxThreadgroupMemoryLength];
        info->page_bytes = (uint32_t)getpagesize();
        info->samples = g->timestamps != nil;
        info->max_buffer_bytes = [g->device maxBufferLength];
        info->working_set_bytes = [g->device recommendedMaxWorkingSetSize];
    }
}

static int refused(Gpu *g, uint64_t bytes, smelt_error *error) {
    return apple_fail(error, SMELT_ERROR_MEMORY, -1,
                      "Metal refuses a buffer of %llu bytes; it holds %llu already, recommends %llu together and %llu "
                      "for one",
                      (unsigned long long)bytes, (unsigned long long)[g->device currentAllocatedSize],
                      (unsigned long long)[g->device recommendedMaxWorkingSetSize],
                      (unsigned long long)[g->device maxBufferLength]);
}

// memory makes the handle of a part of a Metal buffer, whose reference it takes over.
static int memory(Gpu *g, id<MTLBuffer> buffer, uint64_t offset, uint64_t bytes, BOOL whole, smelt_buffer **out,
                  smelt_error *error) {
    Memory *m = calloc(1, sizeof *m);
    *m = (Memory){g, buffer, offset, bytes, whole, NULL};
    int code = host_of(g)->provider->buffer_wrap(g->cpu, (char *)[buffer contents] + offset, bytes, &m->host, error);
    if (code != SMELT_OK) {
        [buffer release];
        free(m);
        return code;
    }
    if (whole) {
        pthread_mutex_lock(&g->lock);
        [g->resident addAllocation:buffer];
        pthread_mutex_unlock(&g->lock);
    }
    *out = (smelt_buffer *)m;
    return SMELT_OK;
}

static int buffer_create(smelt_device *device, uint64_t bytes, uint32_t purpose, smelt_buffer **buffer,
                         smelt_error *error) {
    (void)purpose; // Metal commits pages when they are touched, for every purpose
    Gpu *g = (Gpu *)device;
    POOL {
        id<MTLBuffer> b = [g->device newBufferWithLength:bytes > 0 ? bytes : 1 options:apple_memory];
        return b == nil ? refused(g, bytes, error) : memory(g, b, 0, bytes, YES, buffer, error);
    }
    return SMELT_OK;
}

static int buffer_wrap(smelt_device *device, const void *from, uint64_t bytes, smelt_buffer **buffer,
                       smelt_error *error) {
    Gpu *g = (Gpu *)device;
    uintptr_t page = (uintptr_t)getpagesize(), begin = (uintptr_t)from / page * page;
    uintptr_t end = ((uintptr_t)from + (bytes > 0 ? bytes : 1) + page - 1) / page * page;
    POOL {
        id<MTLBuffer> b = [g->device newBufferWithBytesNoCopy:(void *)begin
                                                       length:end - begin
                                                      options:apple_memory
                                                  deallocator:nil];
        return b == nil ? refused(g, end - begin, error)
                        : memory(g, b, (uintptr_t)from - begin, bytes, YES, buffer, error);
    }
    return SMELT_OK;
}

static int buffer_slice(smelt_buffer *whole, uint64_t offset, uint64_t bytes, smelt_buffer **buffer,
                        smelt_error *error) {
    Memory *m = (Memory *)whole;
    if (offset > m->bytes || bytes > m->bytes - offset)
        return apple_fail(error, SMELT_ERROR_BOUNDS, -1, "a slice past the end of its buffer");
    return memory(m->gpu, [m->buffer retain], m -> offset + offset, bytes, NO, buffer, error);
}

static void *buffer_contents(smelt_buffer *buffer) {
    Memory *m = (Memory *)buffer;
    return (char *)[m->buffer contents] + m->offset;
}

static void buffer_close(smelt_buffer *buffer) {
    Memory *m = (Memory *)buffer;
    host_of(m->gpu)->provider->buffer_close(m->host);
    if (m->whole) {
        pthread_mutex_lock(&m->gpu->lock);
        [m->gpu->resident removeAllocation:m->buffer];
        [m->gpu->resident commit];
        pthread_mutex_unlock(&m->gpu->lock);
    }
    [m->buffer release];
    free(m);
}

void apple_reside(Gpu *g) {
    pthread_mutex_lock(&g->lock);
    [g->resident commit];
    [g->resident requestResidency];
    pthread_mutex_unlock(&g->lock);
}

static void *keep(void *of) {
    Gpu *g = of;
    pthread_mutex_lock(&g->lock);
    while (g->keeping) {
        struct timespec next;
        clock_gettime(CLOCK_REALTIME, &next);
        next.tv_nsec += residency_ms * 1000000;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&g->wake, &g->lock, &next) == ETIMEDOUT)
            POOL { [g->resident requestResidency]; }
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

void apple_join(Gpu *g) {
    apple_reside(g);
    if (g->instances++ > 0 || g->resident == nil)
        return;
    g->keeping = YES;
    if (pthread_create(&g->keeper, NULL, keep, g) != 0)
        g->keeping = NO; // then the first step after a pause is slow
}

void apple_leave(Gpu *g) {
    if (--g->instances > 0 || !g->keeping)
        return;
    pthread_mutex_lock(&g->lock);
    g->keeping = NO;
    pthread_cond_signal(&g->wake);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->keeper, NULL);
}

static void *copied(const void *table, uint64_t bytes) { return memcpy(malloc(bytes + 1), table, bytes); }

static void executable_close(smelt_executable *executable) {
    Executable *p = (Executable *)executable;
    POOL {
        for (uint32_t i = 0; i < p->dispatch_count; i++)
            [p->labels[i] release];
    }
    if (p->host != NULL)
        host_of(p->gpu)->provider->executable_close(p->host);
    free(p->phases);
    free(p->dispatches);
    free(p->arguments);
    free(p->buffers);
    free(p->by_index);
    free(p->labels);
    free(p);
}

// prepare makes the executable's pipelines, and requests residency of its memory.
static int prepare(Executable *p, const smelt_tables *t, smelt_error *error) {
    for (uint32_t i = 0; i < p->dispatch_count; i++) {
        char label[256];
        snprintf(label, sizeof label, "%u %s", i, t->names + t->label[i]);
        p->labels[i] = [[NSString stringWithUTF8String:label] retain];
    }
    if (apple_pipelines(p, t, error) != SMELT_OK)
        return error->code;
    smelt_buffer **host = calloc(p->buffer_count + 1, sizeof *host);
    for (uint32_t i = 0; i < p->buffer_count; i++)
        host[i] = p->buffers[i] == NULL ? NULL : p->buffers[i]->host;
    int code = host_of(p->gpu)->provider->executable_create(p->gpu->cpu, t, host, &p->host, error);
    free(host);
    apple_reside(p->gpu);
    return code;
}

static int executable_create(smelt_device *device, const smelt_tables *t, smelt_buffer *const *buffers,
                             smelt_executable **executable, smelt_error *error) {
    Executable *p = calloc(1, sizeof *p);
    p->gpu = (Gpu *)device;
    p->phases = copied(t->phases, t->phase_count * sizeof *p->phases);
    p->dispatches = copied(t->dispatches, t->dispatch_count * sizeof *p->dispatches);
    p->arguments = copied(t->arguments, t->argument_count * sizeof *p->arguments);
    p->buffers = copied(buffers, t->buffer_count * sizeof *buffers);
    p->by_index = calloc(t->dispatch_count + 1, sizeof *p->by_index);
    p->labels = calloc(t->dispatch_count + 1, sizeof *p->labels);
    p->phase_count = t->phase_count;
    p->dispatch_count = t->dispatch_count;
    p->buffer_count = t->buffer_count;
    p->kernel_count = t->kernel_count;
    int code = SMELT_OK;
    POOL { code = prepare(p, t, error); }
    if (code != SMELT_OK) {
        executable_close((smelt_executable *)p);
        return code;
    }
    *executable = (smelt_executable *)p;
    return SMELT_OK;
}

// executable_natives sets the kernels whose dispatches all run natively on the CPU.
static void executable_natives(const smelt_executable *executable, uint8_t *natives) {
    const Executable *p = (const Executable *)executable;
    host_of(p->gpu)->provider->executable_natives(p->host, natives);
    for (uint32_t i = 0; i < p->dispatch_count; i++)
        if (!p->dispatches[i].on_cpu)
            natives[p->dispatches[i].kernel] = 0;
}

static void executable_compiled(const smelt_executable *executable, smelt_compiled *compiled) {
    *compiled = ((const Executable *)executable)->compiled;
}

const smelt_provider *smelt_apple_provider(void) {
    static const smelt_provider provider = {
        "metal",
        device_open,
        device_close,
        device_info,
        buffer_create,
        buffer_wrap,
        buffer_slice,
        buffer_contents,
        buffer_close,
        executable_create,
        executable_natives,
        executable_compiled,
        executable_close,
        apple_instance_create,
        apple_instance_close,
        apple_instance_run,
        apple_instance_cancel,
    };
    return &provider;
}
