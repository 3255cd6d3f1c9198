//go:build fakemetal

// The device: memory, libraries, pipelines, counters, captures, residency.
#import "objects.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

Machine machine = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct Library {
    struct Library *next;
    char *source;
    Kernel *kernels;
} *libraries;

void fake_misuse(const char *format, ...) {
    char text[sizeof machine.state.misuse];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!machine.options.collect) {
        fprintf(stderr, "fake Metal: %s\n", text);
        abort();
    }
    if (__atomic_fetch_add(&machine.state.misuses, 1, __ATOMIC_ACQ_REL) == 0)
        memcpy(machine.state.misuse, text, sizeof text);
}

uint64_t fake_random(uint64_t n) { // splitmix64
    uint64_t z = (machine.random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

void fake_configure(const fake_options *options) {
    pthread_mutex_lock(&machine.lock);
    machine.options = *options;
    machine.random = options->seed;
    machine.barriers_seen = machine.fences_seen = machine.events_seen = machine.rushed = 0;
    pthread_mutex_unlock(&machine.lock);
}

void fake_fault(uint32_t fault, uint64_t after) {
    pthread_mutex_lock(&machine.lock);
    machine.fault = fault;
    machine.fault_after = after;
    pthread_mutex_unlock(&machine.lock);
}

void fake_recover(void) {
    pthread_mutex_lock(&machine.lock);
    machine.hung = machine.removed = NO;
    machine.fault = FAKE_FAULT_NONE;
    pthread_cond_broadcast(&machine.changed);
    pthread_mutex_unlock(&machine.lock);
}

void fake_read(fake_state *state) {
    pthread_mutex_lock(&machine.lock);
    *state = machine.state;
    state->buffer_bytes = (int64_t)machine.held;
    pthread_mutex_unlock(&machine.lock);
}

void fake_reset(void) {
    pthread_mutex_lock(&machine.lock);
    int64_t objects = machine.state.objects;
    memset(&machine.state, 0, sizeof machine.state);
    machine.state.objects = objects;
    pthread_mutex_unlock(&machine.lock);
}

void fake_forget_objects(int count);
void fake_forget_objects(int count) { __atomic_sub_fetch(&machine.state.objects, count, __ATOMIC_RELAXED); }

static void *copied(const void *table, size_t bytes) { return memcpy(malloc(bytes + 1), table, bytes); }

void fake_library_add(const char *source, const fake_kernel *kernels, uint32_t count) {
    struct Library *library = calloc(1, sizeof *library);
    library->source = strdup(source);
    for (uint32_t i = 0; i < count; i++) {
        Kernel *k = calloc(1, sizeof *k);
        k->described = kernels[i];
        k->described.name = strdup(kernels[i].name);
        k->described.arguments = copied(kernels[i].arguments, kernels[i].argument_count * sizeof(fake_argument));
        k->described.constants = copied(kernels[i].constants, kernels[i].constant_count * sizeof(fake_constant));
        k->next = library->kernels;
        library->kernels = k;
    }
    pthread_mutex_lock(&machine.lock);
    library->next = libraries;
    libraries = library;
    pthread_mutex_unlock(&machine.lock);
}

const char *fake_source(const char *kernel) {
    for (const struct Library *l = libraries; l != NULL; l = l->next)
        for (const Kernel *k = l->kernels; k != NULL; k = k->next)
            if (strcmp(k->described.name, kernel) == 0)
                return l->source;
    return "";
}

@implementation FakeBuffer
- (void *)contents {
    return memory;
}
- (NSUInteger)length {
    return length;
}
- (void)setLabel:(NSString *)label {
    (void)label;
}
- (void)dealloc {
    if (owned) {
        if (memory != NULL)
            munmap(memory, length);
        pthread_mutex_lock(&machine.lock);
        machine.held -= length;
        pthread_mutex_unlock(&machine.lock);
    }
    [super dealloc];
}
@end

@implementation MTLFunctionConstantValues
- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index {
    if (index >= 32) {
        fake_misuse("function constant %lu", index);
        return;
    }
    words[index] = type == MTLDataTypeBool ? *(const uint8_t *)value : *(const uint32_t *)value;
    types[index] = type;
    set |= 1u << index;
}
@end

@implementation MTLCompileOptions
- (void)setLanguageVersion:(MTLLanguageVersion)v {
    version = v;
}
- (void)setFastMathEnabled:(BOOL)enabled {
    fast = enabled;
}
- (id)init {
    fast = YES; // as Apple's
    return self;
}
@end

@implementation FakeFunction
- (NSString *)name {
    return fake_string(kernel->described.name);
}
- (void)dealloc {
    [values release];
    [super dealloc];
}
@end

@interface FakeLibrary : NSObject <MTLLibrary> {
@public
    const struct Library *library;
}
@end
@implementation FakeLibrary
- (id<MTLFunction>)newFunctionWithName:(NSString *)name
                        constantValues:(MTLFunctionConstantValues *)values
                                 error:(NSError **)error {
    const Kernel *k = library->kernels;
    while (k != NULL && strcmp(k->described.name, [name UTF8String]) != 0)
        k = k->next;
    if (k == NULL) {
        *error = fake_error("MTLLibraryErrorDomain", 5, nil, "no function is called %s", [name UTF8String]);
        return nil;
    }
    for (uint32_t i = 0; i < k->described.constant_count; i++) {
        const fake_constant *c = &k->described.constants[i];
        if ((values->set >> c->index & 1) == 0) {
            if (c->optional)
                continue;
            *error = fake_error("MTLLibraryErrorDomain", 3, nil, "%s: function constant %u has no value",
                                k->described.name, c->index);
            return nil;
        }
        if ((values->types[c->index] == MTLDataTypeBool) != (c->boolean != 0)) {
            *error = fake_error("MTLLibraryErrorDomain", 3, nil, "%s: function constant %u has another type",
                                k->described.name, c->index);
            return nil;
        }
    }
    FakeFunction *f = [[FakeFunction alloc] init];
    f->kernel = k;
    f->values = [values retain];
    return f;
}
@end

@implementation MTLComputePipelineDescriptor
- (void)setComputeFunction:(id<MTLFunction>)f {
    [f retain];
    [function release];
    function = f;
}
- (void)setLabel:(NSString *)text {
    [text retain];
    [label release];
    label = text;
}
- (void)setMaxTotalThreadsPerThreadgroup:(NSUInteger)threads {
    most = threads;
}
- (void)setThreadGroupSizeIsMultipleOfThreadExecutionWidth:(BOOL)yes {
    whole = yes;
}
- (void)dealloc {
    [function release];
    [label release];
    [super dealloc];
}
@end

@implementation FakePipeline
- (NSUInteger)maxTotalThreadsPerThreadgroup {
    return most;
}
- (NSUInteger)threadExecutionWidth {
    return 32;
}
- (NSUInteger)staticThreadgroupMemoryLength {
    return kernel->described.threadgroup_bytes;
}
@end

@implementation FakeFence
@end

@implementation FakeEvent
- (uint64_t)signaledValue {
    pthread_mutex_lock(&machine.lock);
    uint64_t now = value;
    pthread_mutex_unlock(&machine.lock);
    return now;
}
- (void)setSignaledValue:(uint64_t)to {
    pthread_mutex_lock(&machine.lock);
    value = to;
    pthread_cond_broadcast(&machine.changed);
    pthread_mutex_unlock(&machine.lock);
}
- (BOOL)waitUntilSignaledValue:(uint64_t)to timeoutMS:(uint64_t)milliseconds {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)(milliseconds / 1000);
    end.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    int waited = 0;
    pthread_mutex_lock(&machine.lock);
    while (value < to && waited == 0)
        waited = pthread_cond_timedwait(&machine.changed, &machine.lock, &end);
    BOOL reached = value >= to;
    pthread_mutex_unlock(&machine.lock);
    return reached;
}
@end

@interface FakeCounterSet : NSObject <MTLCounterSet>
@end
@implementation FakeCounterSet
- (NSString *)name {
    return MTLCommonCounterSetTimestamp;
}
@end

@implementation MTLCounterSampleBufferDescriptor
- (void)setCounterSet:(id<MTLCounterSet>)to {
    [to retain];
    [set release];
    set = to;
}
- (void)setStorageMode:(MTLStorageMode)to {
    mode = to;
}
- (void)setSampleCount:(NSUInteger)to {
    samples = to;
}
- (void)dealloc {
    [set release];
    [super dealloc];
}
@end

@implementation FakeSamples
- (NSUInteger)sampleCount {
    return count;
}
- (NSData *)resolveCounterRange:(NSRange)range {
    if (range.location + range.length > count) {
        fake_misuse("samples %lu to %lu of %lu", range.location, range.location + range.length, count);
        return nil;
    }
    return fake_data(times + range.location, range.length * sizeof *times);
}
- (void)dealloc {
    free(times);
    [super dealloc];
}
@end

@implementation MTLComputePassSampleBufferAttachmentDescriptor
- (void)setSampleBuffer:(id<MTLCounterSampleBuffer>)to {
    [to retain];
    [samples release];
    samples = to;
}
- (void)setStartOfEncoderSampleIndex:(NSUInteger)index {
    start = index;
}
- (void)setEndOfEncoderSampleIndex:(NSUInteger)index {
    end = index;
}
- (void)dealloc {
    [samples release];
    [super dealloc];
}
@end

@implementation MTLComputePassSampleBufferAttachmentDescriptorArray
- (id)init {
    first = [[MTLComputePassSampleBufferAttachmentDescriptor alloc] init];
    return self;
}
- (MTLComputePassSampleBufferAttachmentDescriptor *)objectAtIndexedSubscript:(NSUInteger)index {
    if (index > 0)
        fake_misuse("sample attachment %lu", index);
    return first;
}
- (void)dealloc {
    [first release];
    [super dealloc];
}
@end

@implementation MTLComputePassDescriptor
+ (MTLComputePassDescriptor *)computePassDescriptor {
    MTLComputePassDescriptor *d = [[MTLComputePassDescriptor alloc] init];
    d->attachments = [[MTLComputePassSampleBufferAttachmentDescriptorArray alloc] init];
    return [d autorelease];
}
- (void)setDispatchType:(MTLDispatchType)to {
    type = to;
}
- (MTLComputePassSampleBufferAttachmentDescriptorArray *)sampleBufferAttachments {
    return attachments;
}
- (void)dealloc {
    [attachments release];
    [super dealloc];
}
@end

// Of macOS 15: found by name, not declared in the header.
@interface MTLResidencySetDescriptor : NSObject {
@public
    NSUInteger room;
}
- (void)setInitialCapacity:(NSUInteger)capacity;
@end
@implementation MTLResidencySetDescriptor
- (void)setInitialCapacity:(NSUInteger)capacity {
    room = capacity;
}
@end

@interface FakeResidencySet : NSObject {
    id *members;
    uint64_t count, committed;
}
- (void)addAllocation:(id)allocation;
- (void)removeAllocation:(id)allocation;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@end
@implementation FakeResidencySet
- (void)addAllocation:(id)allocation {
    if (!fake_alive(allocation))
        fake_misuse("a released allocation is added to a residency set");
    for (uint64_t i = 0; i < count; i++)
        if (members[i] == allocation)
            return;
    members = realloc(members, (count + 1) * sizeof *members);
    members[count++] = [allocation retain];
}
- (void)removeAllocation:(id)allocation {
    for (uint64_t i = 0; i < count; i++)
        if (members[i] == allocation) {
            members[i] = members[--count];
            [allocation release];
            return;
        }
}
- (void)commit {
    pthread_mutex_lock(&machine.lock);
    machine.state.resident += count - committed;
    committed = count;
    pthread_mutex_unlock(&machine.lock);
}
- (void)requestResidency {
    __atomic_add_fetch(&machine.state.requests, 1, __ATOMIC_RELAXED);
}
- (void)endResidency {
}
- (void)dealloc {
    pthread_mutex_lock(&machine.lock);
    machine.state.resident -= committed;
    pthread_mutex_unlock(&machine.lock);
    for (uint64_t i = 0; i < count; i++)
        [members[i] release];
    free(members);
    [super dealloc];
}
@end

@implementation MTLCaptureDescriptor
- (void)setCaptureObject:(id)to {
    object = to;
}
- (void)setDestination:(MTLCaptureDestination)to {
    destination = to;
}
- (void)setOutputURL:(NSURL *)to {
    [to retain];
    [url release];
    url = to;
}
- (void)dealloc {
    [url release];
    [super dealloc];
}
@end

static BOOL capturing;

@implementation MTLCaptureManager
+ (MTLCaptureManager *)sharedCaptureManager {
    return [[[MTLCaptureManager alloc] init] autorelease];
}
- (BOOL)supportsDestination:(MTLCaptureDestination)destination {
    return destination == MTLCaptureDestinationGPUTraceDocument && getenv("MTL_CAPTURE_ENABLED") != NULL;
}
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor *)d error:(NSError **)error {
    FILE *file = capturing ? NULL : fopen([[d->url path] UTF8String], "wx");
    if (file == NULL) {
        *error = fake_error("MTLCaptureError", 2, nil, "%s: a capture is under way, or the file exists",
                            [[d->url path] UTF8String]);
        return NO;
    }
    fputs("fake\n", file);
    fclose(file);
    capturing = YES;
    return YES;
}
- (void)stopCapture {
    if (!capturing)
        fake_misuse("a capture is stopped that was not started");
    capturing = NO;
    __atomic_add_fetch(&machine.state.captures, 1, __ATOMIC_RELAXED);
}
@end

@interface FakeDevice : NSObject <MTLDevice>
- (BOOL)respondsToSelector:(SEL)selector;
- (id)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)descriptor error:(NSError **)error;
@end
@implementation FakeDevice
- (NSString *)name {
    return fake_string(machine.options.zeros ? "Apple Paravirtual device" : "Fake M4 Max");
}
- (BOOL)supportsFamily:(MTLGPUFamily)family {
    uint32_t last = machine.options.family > 0 ? machine.options.family : 9;
    return family == MTLGPUFamilyMetal3 || (family > 1000 && family <= 1000 + last);
}
- (BOOL)hasUnifiedMemory {
    return YES;
}
- (NSUInteger)maxThreadgroupMemoryLength {
    return 32 << 10;
}
- (NSUInteger)maxBufferLength {
    return machine.options.max_buffer > 0 ? machine.options.max_buffer : (NSUInteger)1 << 40;
}
- (uint64_t)recommendedMaxWorkingSetSize {
    return machine.options.working_set > 0 ? machine.options.working_set : (uint64_t)1 << 40;
}
- (NSUInteger)currentAllocatedSize {
    pthread_mutex_lock(&machine.lock);
    NSUInteger held = machine.held;
    pthread_mutex_unlock(&machine.lock);
    return held;
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
    __atomic_add_fetch(&machine.state.queues, 1, __ATOMIC_RELAXED);
    return [[FakeQueue alloc] initWithLimit:count];
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(NSError **)error {
    if (options == nil || options->version != MTLLanguageVersion3_1 || options->fast) {
        *error = fake_error("MTLLibraryErrorDomain", 3, nil, "the kernels are MSL 3.1 without fast mathematics");
        return nil;
    }
    pthread_mutex_lock(&machine.lock);
    const struct Library *found = libraries;
    pthread_mutex_unlock(&machine.lock);
    while (found != NULL && strcmp(found->source, [source UTF8String]) != 0)
        found = found->next;
    if (found == NULL) {
        *error = fake_error("MTLLibraryErrorDomain", 3, nil, "the emulated kernels are not made from this source");
        return nil;
    }
    FakeLibrary *library = [[FakeLibrary alloc] init];
    library->library = found;
    return library;
}
- (id<MTLLibrary>)newLibraryWithURL:(NSURL *)url error:(NSError **)error {
    *error = fake_error("MTLLibraryErrorDomain", 1, nil, "%s is no library that a CPU runs", [[url path] UTF8String]);
    return nil;
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                                             options:(MTLPipelineOption)options
                                                          reflection:(id *)reflection
                                                               error:(NSError **)error {
    (void)options;
    (void)reflection;
    FakeFunction *f = (FakeFunction *)descriptor->function;
    const fake_kernel *described = &f->kernel->described;
    pthread_mutex_lock(&machine.lock);
    BOOL broken = machine.fault == FAKE_FAULT_COMPILE && machine.fault_after-- == 0;
    if (broken)
        machine.fault = FAKE_FAULT_NONE;
    pthread_mutex_unlock(&machine.lock);
    if (broken || described->threadgroup_bytes > [self maxThreadgroupMemoryLength]) {
        *error = fake_error("AGXMetalG16X", broken ? 2 : 3, nil,
                            broken ? "Compiler encountered an internal error (%s, %u)"
                                   : "%s: threadgroup memory of %u bytes exceeds what there is",
                            described->name, described->threadgroup_bytes);
        return nil;
    }
    FakePipeline *p = [[FakePipeline alloc] init];
    p->kernel = f->kernel;
    p->emulated = machine.options.emulator->find(described->name);
    memcpy(p->constants, f->values->words, sizeof p->constants);
    p->set = f->values->set;
    p->most = descriptor->most > 0 ? descriptor->most : 1024;
    if (p->most > described->max_threads)
        p->most = described->max_threads;
    p->whole = descriptor->whole;
    if (p->emulated == NULL) {
        *error = fake_error("AGXMetalG16X", 3, nil, "%s has no emulation", described->name);
        [p release];
        return nil;
    }
    return p;
}

// buffer accounts for memory and refuses as Metal does: with nil.
- (FakeBuffer *)buffer:(NSUInteger)length options:(MTLResourceOptions)options owned:(BOOL)owned {
    if ((options & ~MTLResourceHazardTrackingModeUntracked) != MTLResourceStorageModeShared)
        fake_misuse("buffers are shared, not of mode %u", (unsigned)options);
    if (length == 0) {
        fake_misuse("a buffer of 0 bytes");
        return nil;
    }
    if (length > [self maxBufferLength])
        return nil;
    if (owned) {
        pthread_mutex_lock(&machine.lock);
        BOOL fits = machine.options.memory == 0 || machine.held + length <= machine.options.memory;
        if (fits)
            machine.held += length;
        pthread_mutex_unlock(&machine.lock);
        if (!fits)
            return nil;
    }
    FakeBuffer *b = [[FakeBuffer alloc] init];
    b->length = length;
    b->owned = owned;
    return b;
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
    FakeBuffer *b = [self buffer:length options:options owned:YES];
    if (b == nil)
        return nil;
    b->memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->memory == MAP_FAILED) {
        b->memory = NULL;
        [b release];
        return nil;
    }
    if (machine.options.poison)
        memset(b->memory, 0xff, length);
    return b;
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)bytes
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void *)deallocator {
    NSUInteger page = (NSUInteger)sysconf(_SC_PAGESIZE);
    if ((uintptr_t)bytes % page != 0 || length % page != 0 || deallocator != NULL) {
        fake_misuse("memory at %p, %lu bytes, is not whole pages of %lu", bytes, length, page);
        return nil;
    }
    if (machine.options.heap != 0 && (uintptr_t)bytes >> 36 == machine.options.heap) {
        fake_misuse("memory at %p is part of Go's heap", bytes);
        return nil;
    }
    FakeBuffer *b = [self buffer:length options:options owned:NO];
    if (b != nil)
        b->memory = bytes;
    return b;
}
- (id<MTLFence>)newFence {
    return [[FakeFence alloc] init];
}
- (id<MTLSharedEvent>)newSharedEvent {
    return [[FakeEvent alloc] init];
}
- (NSArray *)counterSets {
    id set = [[[FakeCounterSet alloc] init] autorelease];
    return fake_array(&set, machine.options.no_counters ? 0 : 1);
}
- (BOOL)supportsCounterSampling:(MTLCounterSamplingPoint)point {
    return point == MTLCounterSamplingPointAtStageBoundary && !machine.options.no_counters;
}
- (id<MTLCounterSampleBuffer>)newCounterSampleBufferWithDescriptor:(MTLCounterSampleBufferDescriptor *)descriptor
                                                             error:(NSError **)error {
    // A buffer of samples has at most 32 KB on Apple GPUs.
    if (descriptor->set == nil || descriptor->samples == 0 || descriptor->samples > 4096) {
        *error = fake_error("MTLCounterErrorDomain", 0, nil, "no sample buffer of %lu samples", descriptor->samples);
        return nil;
    }
    FakeSamples *s = [[FakeSamples alloc] init];
    s->count = descriptor->samples;
    s->times = calloc(s->count, sizeof *s->times);
    return s;
}
- (void)sampleTimestamps:(MTLTimestamp *)cpu gpuTimestamp:(MTLTimestamp *)gpu {
    __atomic_add_fetch(&machine.state.timestamps, 1, __ATOMIC_RELAXED);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *cpu = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    *gpu = *cpu; // the fake's GPU counts nanoseconds too
}
- (BOOL)respondsToSelector:(SEL)selector {
    if (sel_isEqual(selector, @selector(newResidencySetWithDescriptor:error:)) && machine.options.no_residency)
        return NO;
    return [super respondsToSelector:selector];
}
- (id)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)descriptor error:(NSError **)error {
    (void)descriptor;
    (void)error;
    return [[FakeResidencySet alloc] init];
}
@end

static id<MTLDevice> device(BOOL exists) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fake_constants);
    return exists && !machine.options.no_device && machine.options.emulator != NULL ? [[FakeDevice alloc] init] : nil;
}

id<MTLDevice> MTLCreateSystemDefaultDevice(void) { return device(!machine.options.no_default); }

NSArray *MTLCopyAllDevices(void) {
    id one = device(YES);
    NSArray *all = [[NSArray alloc] initWithObjects:&one count:one == nil ? 0 : 1];
    [one release];
    return all;
}
