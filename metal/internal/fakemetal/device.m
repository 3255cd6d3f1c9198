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
    char *source, *single;
    Kernel *kernels;
} *libraries;

// The libraries compiled since the last reset.
static struct Given {
    const char *source;
    char *macros;
} given[1024];
static uint32_t given_count, compiling;

const char *fake_compiled(uint32_t index, char *macros, uint32_t room) {
    const char *source = NULL;
    pthread_mutex_lock(&machine.lock);
    if (index < given_count) {
        source = given[index].source;
        snprintf(macros, room, "%s", given[index].macros);
    }
    pthread_mutex_unlock(&machine.lock);
    return source;
}

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
    while (given_count > 0)
        free(given[--given_count].macros);
    pthread_mutex_unlock(&machine.lock);
}

void fake_forget_objects(int count);
void fake_forget_objects(int count) { __atomic_sub_fetch(&machine.state.objects, count, __ATOMIC_RELAXED); }

static void *copied(const void *table, size_t bytes) { return memcpy(malloc(bytes + 1), table, bytes); }

static char *copied_text(const char *text) { return text == NULL ? NULL : strdup(text); }

void fake_library_add(const char *source, const char *single, const fake_kernel *kernels, uint32_t count) {
    struct Library *library = calloc(1, sizeof *library);
    library->source = strdup(source);
    library->single = strdup(single);
    for (uint32_t i = 0; i < count; i++) {
        Kernel *k = calloc(1, sizeof *k);
        k->described = kernels[i];
        k->described.name = strdup(kernels[i].name);
        k->described.arguments = copied(kernels[i].arguments, kernels[i].argument_count * sizeof(fake_argument));
        k->described.instance = copied_text(kernels[i].instance);
        fake_constant *constants = copied(kernels[i].constants, kernels[i].constant_count * sizeof(fake_constant));
        for (uint32_t c = 0; c < kernels[i].constant_count; c++)
            constants[c].macro = strdup(constants[c].macro);
        k->described.constants = constants;
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
- (void)setPreprocessorMacros:(NSDictionary *)to {
    [to retain];
    [macros release];
    macros = to;
}
- (void)dealloc {
    [macros release];
    [super dealloc];
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
    free(made_of);
    [super dealloc];
}
@end

@interface FakeLibrary : NSObject <MTLLibrary> {
@public
    const struct Library *library;
    NSDictionary *macros; // of a text of single kernels; nil of another
    char *text_of_macros;
}
@end

// spelled writes macros as NAME=VALUE.
static char *spelled(NSDictionary *macros) {
    char *text = calloc(1, 2048);
    for (NSUInteger i = 0, n = 0; i < [macros->keys count] && n < 2048; i++)
        n += (size_t)snprintf(text + n, 2048 - n, "%s=%s ", [[macros->keys objectAtIndex:i] UTF8String],
                              [[macros->values objectAtIndex:i] UTF8String]);
    return text;
}

static const char *value_of(NSDictionary *macros, const char *name) {
    NSString *value = [macros objectForKey:fake_string(name)];
    return value == nil ? NULL : [value UTF8String];
}

@implementation FakeLibrary
// known returns whether the text uses a macro; one that it does not use is a mistake.
- (BOOL)known:(const char *)macro {
    for (const Kernel *k = library->kernels; k != NULL; k = k->next) {
        if (k->described.instance != NULL && strcmp(k->described.instance, macro) == 0)
            return YES;
        for (uint32_t i = 0; i < k->described.constant_count; i++)
            if (strcmp(k->described.constants[i].macro, macro) == 0)
                return YES;
    }
    return NO;
}
- (id<MTLFunction>)newFunctionWithName:(NSString *)name {
    const Kernel *k = library->kernels;
    while (k != NULL && strcmp(k->described.name, [name UTF8String]) != 0)
        k = k->next;
    if (k == NULL || macros == nil ||
        (k->described.instance != NULL && value_of(macros, k->described.instance) == NULL))
        return nil;
    MTLFunctionConstantValues *values = [[MTLFunctionConstantValues alloc] init];
    for (uint32_t i = 0; i < k->described.constant_count; i++) {
        const fake_constant *c = &k->described.constants[i];
        const char *value = value_of(macros, c->macro);
        if (value == NULL) {
            if (!c->optional)
                fake_misuse("%s: %s has no value", k->described.name, c->macro);
            continue;
        }
        BOOL truth = strcmp(value, "true") == 0;
        if (c->boolean != 0 && !truth && strcmp(value, "false") != 0)
            fake_misuse("%s: %s is %s, which is no bool", k->described.name, c->macro, value);
        uint32_t word = c->boolean != 0 ? truth : (uint32_t)strtoul(value, NULL, 10);
        values->words[c->index] = word;
        values->set |= 1u << c->index;
    }
    FakeFunction *f = [[FakeFunction alloc] init];
    f->kernel = k;
    f->values = values;
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a of the text
    for (const char *c = library->single; *c != 0; c++)
        hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
    f->made_of = malloc(strlen(text_of_macros) + 64);
    sprintf(f->made_of, "%llx %s", (unsigned long long)hash, text_of_macros);
    return f;
}
- (void)dealloc {
    [macros release];
    free(text_of_macros);
    [super dealloc];
}
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
    f->made_of = strdup(k->described.name);
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
- (void)setBinaryArchives:(NSArray *)to {
    [to retain];
    [archives release];
    archives = to;
}
- (void)dealloc {
    [archives release];
    [function release];
    [label release];
    [super dealloc];
}
@end

@implementation MTLBinaryArchiveDescriptor
- (void)setUrl:(NSURL *)to {
    [to retain];
    [url release];
    url = to;
}
- (void)dealloc {
    [url release];
    [super dealloc];
}
@end

// FakeArchive holds the name of one pipeline; a file of it is a line.
@interface FakeArchive : NSObject <MTLBinaryArchive> {
@public
    char line[2200];
}
@end

static void describe(const MTLComputePipelineDescriptor *d, char *line, size_t room) {
    const FakeFunction *f = (FakeFunction *)d->function;
    snprintf(line, room, "archive of %s: %s; %lu threads, %s\n", f->kernel->described.name, f->made_of, d->most,
             d->whole ? "whole" : "part");
}

@implementation FakeArchive
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor *)d error:(NSError **)error {
    (void)error;
    describe(d, line, sizeof line);
    return YES;
}
- (BOOL)serializeToURL:(NSURL *)url error:(NSError **)error {
    FILE *file = fopen([[url path] UTF8String], "w");
    if (file == NULL || fputs(line, file) < 0) {
        *error = fake_error("MTLBinaryArchiveDomain", 4, nil, "%s cannot be written", [[url path] UTF8String]);
        return NO;
    }
    fclose(file);
    return YES;
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
    if (machine.options.name != NULL)
        return fake_string(machine.options.name);
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
    const char *text = [source UTF8String];
    pthread_mutex_lock(&machine.lock);
    const struct Library *found = libraries;
    machine.state.compiled++;
    machine.state.compiled_bytes += strlen(text);
    if (++compiling > machine.state.most_compiling)
        machine.state.most_compiling = compiling;
    pthread_mutex_unlock(&machine.lock);
    usleep(machine.options.compile_us);
    while (found != NULL && strcmp(options->macros == nil ? found->source : found->single, text) != 0)
        found = found->next;
    char *macros = options->macros == nil ? NULL : spelled(options->macros);
    pthread_mutex_lock(&machine.lock);
    compiling--;
    if (found != NULL && given_count < sizeof given / sizeof *given)
        given[given_count++] = (struct Given){options->macros == nil ? found->source : found->single,
                                              strdup(macros == NULL ? "" : macros)};
    pthread_mutex_unlock(&machine.lock);
    if (found == NULL) {
        free(macros);
        *error = fake_error("MTLLibraryErrorDomain", 3, nil, "the emulated kernels are not made from this source");
        return nil;
    }
    FakeLibrary *library = [[FakeLibrary alloc] init];
    library->library = found;
    library->macros = [options->macros retain];
    library->text_of_macros = macros;
    for (NSUInteger i = 0; macros != NULL && i < [options->macros->keys count]; i++)
        if (![library known:[[options->macros->keys objectAtIndex:i] UTF8String]])
            fake_misuse("the source has no macro %s", [[options->macros->keys objectAtIndex:i] UTF8String]);
    return library;
}
- (id<MTLLibrary>)newLibraryWithURL:(NSURL *)url error:(NSError **)error {
    *error = fake_error("MTLLibraryErrorDomain", 1, nil, "%s is no library that a CPU runs", [[url path] UTF8String]);
    return nil;
}
- (void)setShouldMaximizeConcurrentCompilation:(BOOL)yes {
    (void)yes;
}
- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor *)descriptor
                                                 error:(NSError **)error {
    FakeArchive *a = [[FakeArchive alloc] init];
    if (descriptor->url == nil)
        return a;
    FILE *file = fopen([[descriptor->url path] UTF8String], "r");
    BOOL right =
        file != NULL && fgets(a->line, sizeof a->line, file) != NULL && strncmp(a->line, "archive of ", 11) == 0;
    if (file != NULL)
        fclose(file);
    if (right)
        return a;
    *error = fake_error("MTLBinaryArchiveDomain", 1, nil, "%s is no archive", [[descriptor->url path] UTF8String]);
    [a release];
    return nil;
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                                             options:(MTLPipelineOption)options
                                                          reflection:(id *)reflection
                                                               error:(NSError **)error {
    (void)reflection;
    char line[2200];
    describe(descriptor, line, sizeof line);
    BOOL archived = NO;
    for (NSUInteger i = 0; i < [descriptor->archives count]; i++)
        archived = archived || strcmp(((FakeArchive *)[descriptor->archives objectAtIndex:i])->line, line) == 0;
    if ((options & MTLPipelineOptionFailOnBinaryArchiveMiss) != 0 && !archived) {
        *error = fake_error("AGXMetalG16X", 3, nil, "no archive has the pipeline");
        return nil;
    }
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
    __atomic_add_fetch(&machine.state.pipelines, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&machine.state.archived, archived && options != 0, __ATOMIC_RELAXED);
    return p;
}

// buffer accounts for memory, and returns nil if it is exhausted, as Metal does.
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
