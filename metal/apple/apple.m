//go:build cgo && ((darwin && arm64) || fakemetal)

// The device, its memory, and executables: what lives longer than a step.
#import "apple.h"

#include <objc/runtime.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { queue_length = 16 }; // command buffers that may exist at once

// Nothing relies on Metal's tracking of hazards: the Plan has the barriers.
static const MTLResourceOptions options = MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked;

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

static const char *text(NSError *e) { return e == nil ? "no reason given" : [[e localizedDescription] UTF8String]; }

static void device_close(smelt_device *device) {
    Gpu *g = (Gpu *)device;
    POOL {
        while (g->pipelines != NULL) {
            Pipeline *p = g->pipelines;
            g->pipelines = p->next;
            [p->state release];
            free(p);
        }
        for (uint32_t i = 0; g->libraries != NULL && i < g->options.source_count; i++)
            [g->libraries[i] release];
        [g->timestamps release];
        [g->queue release];
        [g->device release];
    }
    if (g->cpu != NULL)
        host_of(g)->provider->device_close(g->cpu);
    free(g->libraries);
    free(g);
}

static int device_open(const smelt_device_options *given, smelt_device **device, smelt_error *error) {
    Gpu *g = calloc(1, sizeof *g);
    g->options = *given;
    g->options.half = 1;
    g->libraries = calloc(given->source_count + 1, sizeof *g->libraries);
    POOL {
        g->device = MTLCreateSystemDefaultDevice();
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
    if (g->device == nil || g->queue == nil)
        code = apple_fail(error, SMELT_ERROR_LOST, -1, "this machine has no Metal device");
    else if (![g->device hasUnifiedMemory])
        code = apple_fail(error, SMELT_ERROR_LOST, -1, "the GPU has memory of its own; Apple silicon is needed");
    else
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
        // The families follow each other; a later one than is known counts as the last.
        for (uint32_t f = 1; f <= 10; f++)
            if ([g->device supportsFamily:(MTLGPUFamily)(1000 + f)])
                info->family = f;
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

// memory makes the handle of a part of a Metal buffer, which it takes over.
static int memory(Gpu *g, id<MTLBuffer> buffer, uint64_t offset, uint64_t bytes, smelt_buffer **out,
                  smelt_error *error) {
    Memory *m = calloc(1, sizeof *m);
    *m = (Memory){g, buffer, offset, bytes, NULL};
    int code = host_of(g)->provider->buffer_wrap(g->cpu, (char *)[buffer contents] + offset, bytes, &m->host, error);
    if (code != SMELT_OK) {
        [buffer release];
        free(m);
        return code;
    }
    *out = (smelt_buffer *)m;
    return SMELT_OK;
}

static int buffer_create(smelt_device *device, uint64_t bytes, uint32_t purpose, smelt_buffer **buffer,
                         smelt_error *error) {
    (void)purpose; // Metal gives pages as they are touched, whatever the use
    Gpu *g = (Gpu *)device;
    POOL {
        id<MTLBuffer> b = [g->device newBufferWithLength:bytes > 0 ? bytes : 1 options:options];
        return b == nil ? refused(g, bytes, error) : memory(g, b, 0, bytes, buffer, error);
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
                                                      options:options
                                                  deallocator:nil];
        return b == nil ? refused(g, end - begin, error) : memory(g, b, (uintptr_t)from - begin, bytes, buffer, error);
    }
    return SMELT_OK;
}

static int buffer_slice(smelt_buffer *whole, uint64_t offset, uint64_t bytes, smelt_buffer **buffer,
                        smelt_error *error) {
    Memory *m = (Memory *)whole;
    if (offset > m->bytes || bytes > m->bytes - offset)
        return apple_fail(error, SMELT_ERROR_BOUNDS, -1, "a slice past the end of its buffer");
    return memory(m->gpu, [m->buffer retain], m -> offset + offset, bytes, buffer, error);
}

static void *buffer_contents(smelt_buffer *buffer) {
    Memory *m = (Memory *)buffer;
    return (char *)[m->buffer contents] + m->offset;
}

static void buffer_close(smelt_buffer *buffer) {
    Memory *m = (Memory *)buffer;
    host_of(m->gpu)->provider->buffer_close(m->host);
    [m->buffer release];
    free(m);
}

id<SmeltResidencySet> apple_reside(Gpu *gpu, Memory *const *buffers, uint32_t count) {
    Class class = objc_getClass("MTLResidencySetDescriptor");
    SEL make = sel_registerName("newResidencySetWithDescriptor:error:"), add = sel_registerName("addResidencySet:");
    if (class == Nil || ![gpu->device respondsToSelector:make] || ![gpu->queue respondsToSelector:add])
        return nil;
    id descriptor = [[class alloc] init];
    NSError *ignored = nil; // without a set, Metal makes what each command buffer uses resident
    id<SmeltResidencySet> set = [(id<SmeltResidentDevice>)gpu->device newResidencySetWithDescriptor:descriptor
                                                                                              error:&ignored];
    [descriptor release];
    if (set == nil)
        return nil;
    for (uint32_t i = 0; i < count; i++)
        if (buffers[i] != NULL)
            [set addAllocation:buffers[i]->buffer];
    [set commit];
    [set requestResidency];
    [(id<SmeltResidentQueue>)gpu->queue addResidencySet:set];
    return set;
}

void apple_leave(Gpu *gpu, id<SmeltResidencySet> set) {
    if (set == nil)
        return;
    [(id<SmeltResidentQueue>)gpu->queue removeResidencySet:set];
    [set endResidency];
    [set release];
}

// library compiles a source once, or opens the library that was compiled of all.
static id<MTLLibrary> library(Gpu *g, uint32_t source, smelt_error *error) {
    uint32_t at = g->options.library != NULL ? 0 : source;
    if (g->libraries[at] != nil)
        return g->libraries[at];
    NSError *e = nil;
    const char *name = g->options.library;
    if (name != NULL) {
        NSURL *url = [NSURL fileURLWithPath:[NSString stringWithUTF8String:name]];
        g->libraries[at] = [g->device newLibraryWithURL:url error:&e];
    } else {
        MTLCompileOptions *o = [[MTLCompileOptions alloc] init];
        [o setLanguageVersion:MTLLanguageVersion3_1];
        [o setFastMathEnabled:NO]; // masks and softmax rely on infinities
        name = g->options.sources[source].name;
        g->libraries[at] =
            [g->device newLibraryWithSource:[NSString stringWithUTF8String:g->options.sources[source].text]
                                    options:o
                                      error:&e];
        [o release];
    }
    if (g->libraries[at] == nil)
        apple_fail(error, SMELT_ERROR_KERNEL, -1, "%s: %s", name, text(e));
    return g->libraries[at];
}

static id<MTLComputePipelineState> compile(Gpu *g, const Pipeline *p, smelt_error *error) {
    const smelt_function *f = p->function;
    id<MTLLibrary> from = library(g, f->source, error);
    if (from == nil)
        return nil;
    MTLFunctionConstantValues *values = [[MTLFunctionConstantValues alloc] init];
    for (uint32_t i = 0; i < 32; i++) {
        BOOL boolean = p->constants[i] != 0;
        if ((p->constants_set >> i & 1) == 0)
            continue;
        if ((f->booleans >> i & 1) != 0)
            [values setConstantValue:&boolean type:MTLDataTypeBool atIndex:i];
        else
            [values setConstantValue:&p->constants[i] type:MTLDataTypeUInt atIndex:i];
    }
    NSError *e = nil;
    NSString *name = [NSString stringWithUTF8String:f->name];
    id<MTLComputePipelineState> state = nil;
    id<MTLFunction> function = [from newFunctionWithName:name constantValues:values error:&e];
    [values release];
    if (function != nil) {
        MTLComputePipelineDescriptor *d = [[MTLComputePipelineDescriptor alloc] init];
        [d setComputeFunction:function];
        [d setLabel:name];
        [d setMaxTotalThreadsPerThreadgroup:f->max_threads];
        [d setThreadGroupSizeIsMultipleOfThreadExecutionWidth:p->whole];
        state = [g->device newComputePipelineStateWithDescriptor:d
                                                         options:MTLPipelineOptionNone
                                                      reflection:NULL
                                                           error:&e];
        [d release];
        [function release];
    }
    if (state == nil)
        apple_fail(error, SMELT_ERROR_KERNEL, -1, "%s: %s", f->name, text(e));
    return state;
}

// pipeline finds or makes the pipeline of a dispatch.
static Pipeline *pipeline(Gpu *g, const smelt_tables *t, const smelt_dispatch *d, smelt_error *error) {
    const char *name = t->names + t->kernel_name[d->kernel];
    const smelt_function *f = NULL;
    for (uint32_t i = 0; i < g->options.function_count && f == NULL; i++)
        if (strcmp(g->options.functions[i].name, name) == 0)
            f = &g->options.functions[i];
    if (f == NULL) {
        apple_fail(error, SMELT_ERROR_KERNEL, -1, "no kernel is called %s", name);
        return NULL;
    }
    uint32_t threads = d->group[0] * d->group[1] * d->group[2];
    Pipeline wanted = {.function = f, .constants_set = d->constants_set, .whole = threads % 32 == 0};
    for (uint32_t i = 0; i < 32; i++)
        if ((d->constants_set >> i & 1) != 0)
            wanted.constants[i] = t->constants[d->first_constant + i];
    Pipeline *p = g->pipelines;
    while (p != NULL && (p->function != f || p->constants_set != wanted.constants_set || p->whole != wanted.whole ||
                         memcmp(p->constants, wanted.constants, sizeof p->constants) != 0))
        p = p->next;
    if (p == NULL) {
        if ((wanted.state = compile(g, &wanted, error)) == nil)
            return NULL;
        p = malloc(sizeof *p);
        *p = wanted;
        p->next = g->pipelines;
        g->pipelines = p;
    }
    // Registers can leave a pipeline fewer threads than its source allows.
    if ([p->state maxTotalThreadsPerThreadgroup] < threads || [p->state threadExecutionWidth] != 32 ||
        [p->state staticThreadgroupMemoryLength] > [g->device maxThreadgroupMemoryLength]) {
        apple_fail(error, SMELT_ERROR_KERNEL, -1,
                   "%s needs threadgroups of %u threads and %lu bytes, and this GPU has room for %lu threads of "
                   "simdgroups of %lu, and %lu bytes",
                   name, threads, (unsigned long)[p->state staticThreadgroupMemoryLength],
                   (unsigned long)[p->state maxTotalThreadsPerThreadgroup],
                   (unsigned long)[p->state threadExecutionWidth],
                   (unsigned long)[g->device maxThreadgroupMemoryLength]);
        return NULL;
    }
    return p;
}

static void *copied(const void *table, uint64_t bytes) { return memcpy(malloc(bytes + 1), table, bytes); }

static void executable_close(smelt_executable *executable) {
    Executable *p = (Executable *)executable;
    POOL {
        apple_leave(p->gpu, p->resident);
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

// prepare compiles what the executable needs, and asks for its memory.
static int prepare(Executable *p, const smelt_tables *t, smelt_error *error) {
    for (uint32_t i = 0; i < p->dispatch_count; i++) {
        char label[256];
        snprintf(label, sizeof label, "%u %s", i, t->names + t->label[i]);
        p->labels[i] = [[NSString stringWithUTF8String:label] retain];
        if (p->dispatches[i].on_cpu)
            continue;
        if ((p->by_index[i] = pipeline(p->gpu, t, &p->dispatches[i], error)) == NULL) {
            error->dispatch = (int32_t)i;
            return error->code;
        }
    }
    smelt_buffer **host = calloc(p->buffer_count + 1, sizeof *host);
    for (uint32_t i = 0; i < p->buffer_count; i++)
        host[i] = p->buffers[i] == NULL ? NULL : p->buffers[i]->host;
    int code = host_of(p->gpu)->provider->executable_create(p->gpu->cpu, t, host, &p->host, error);
    free(host);
    p->resident = code == SMELT_OK ? apple_reside(p->gpu, p->buffers, p->buffer_count) : nil;
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

// executable_natives tells of kernels that the CPU has for all their dispatches; a GPU's
// dispatch is none.
static void executable_natives(const smelt_executable *executable, uint8_t *natives) {
    const Executable *p = (const Executable *)executable;
    host_of(p->gpu)->provider->executable_natives(p->host, natives);
    for (uint32_t i = 0; i < p->dispatch_count; i++)
        if (!p->dispatches[i].on_cpu)
            natives[p->dispatches[i].kernel] = 0;
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
        executable_close,
        apple_instance_create,
        apple_instance_close,
        apple_instance_run,
        apple_instance_cancel,
    };
    return &provider;
}
