//go:build fakemetal

// Queues, command buffers and encoders: recording, and execution on the queue's
// thread. A command buffer is ready once the fences it waits for are updated and its first event
// is signalled. The fake executes ready ones in any order, since Metal guarantees no order for
// untracked resources.
#import "objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { bindings = 31, most_bytes = 4096 };

// Binding is the argument at an index: a buffer, or bytes of the encoder.
typedef struct Binding {
    FakeBuffer *buffer; // not retained
    NSUInteger offset;
    uint8_t *bytes;
    NSUInteger length;
} Binding;

// Command is a dispatch, or a barrier where pipeline is nil.
typedef struct Command {
    FakePipeline *pipeline;
    Binding bound[bindings];
    uint32_t memory[4]; // threadgroup memory by index
    uint32_t grid[3], group[3];
} Command;

typedef enum { PASS, WAIT, SIGNAL } Kind;

// Step is one operation of a command buffer.
typedef struct Step {
    Kind kind;
    id object; // the encoder, or the event
    uint64_t value;
} Step;

@interface FakeEncoderInfo : NSObject <MTLCommandBufferEncoderInfo> {
@public
    NSString *label;
    NSArray *signposts;
    MTLCommandEncoderErrorState state;
}
@end
@implementation FakeEncoderInfo
- (NSString *)label {
    return label;
}
- (NSArray *)debugSignposts {
    return signposts;
}
- (MTLCommandEncoderErrorState)errorState {
    return state;
}
- (void)dealloc {
    [label release];
    [signposts release];
    [super dealloc];
}
@end

@class FakeEncoder;

@interface FakeCommandBuffer : NSObject <MTLCommandBuffer> {
@public
    FakeQueue *queue;
    Step *steps;
    NSUInteger count, room;
    FakeEncoder *open;
    BOOL describes; // encoders, in errors
    MTLCommandBufferStatus status;
    NSError *error;
    double began, ended;
    uint64_t ticket;  // order of commits, from 1 on
    uint64_t *before; // tickets that must be complete first
    NSUInteger before_count;
}
- (void)add:(Kind)kind object:(id)object value:(uint64_t)value;
- (MTLCommandBufferStatus)told;
- (BOOL)ready;
- (void)execute;
@end

@interface FakeEncoder : NSObject <MTLComputeCommandEncoder> {
@public
    FakeCommandBuffer *within; // not retained: it holds the encoder
    MTLDispatchType type;
    BOOL ended;
    NSString *label;
    Command *commands;
    NSUInteger count, room;
    Command next;
    FakeFence *wait, *update; // not retained
    NSString **signposts;
    NSUInteger *signposted; // commands before each
    NSUInteger signpost_count;
    FakeSamples *samples;
    NSUInteger start, end;
    NSUInteger executed; // commands, in the order of encoding
}
@end

static uint64_t tickets;       // given out
static uint64_t finished[256]; // bits of the last tickets that completed

static BOOL complete(uint64_t ticket) {
    return ticket + 256 * 64 <= tickets || (finished[ticket / 64 % 256] >> ticket % 64 & 1) != 0;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static BOOL made_up(void) { return machine.options.group_ns > 0 || machine.options.thread_ns > 0; }

@implementation FakeEncoder
- (BOOL)usable:(const char *)what {
    if (ended)
        fake_misuse("%s after endEncoding", what);
    return !ended;
}
- (void)setLabel:(NSString *)text {
    [text retain];
    [label release];
    label = text;
}
- (void)setComputePipelineState:(id<MTLComputePipelineState>)pipeline {
    if (pipeline == nil)
        fake_misuse("no pipeline is set");
    next.pipeline = (FakePipeline *)pipeline;
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
    FakeBuffer *b = (FakeBuffer *)buffer;
    if (![self usable:"setBuffer"])
        return;
    if (index >= bindings || (b != nil && offset >= b->length)) {
        fake_misuse("setBuffer: offset %lu of %lu bytes at index %lu", offset, b == nil ? 0 : b->length, index);
        return;
    }
    free(next.bound[index].bytes);
    next.bound[index] = (Binding){b, offset, NULL, b == nil ? 0 : b->length - offset};
}
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
    if (![self usable:"setBytes"])
        return;
    if (index >= bindings || length == 0 || length > most_bytes) {
        fake_misuse("setBytes: %lu bytes at index %lu; 1 to %d are possible", length, index, most_bytes);
        return;
    }
    free(next.bound[index].bytes);
    next.bound[index] = (Binding){nil, 0, memcpy(malloc(length), bytes, length), length};
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
    if (index >= 4 || length % 16 != 0) {
        fake_misuse("%lu bytes of threadgroup memory at index %lu: a multiple of 16 is needed", length, index);
        return;
    }
    next.memory[index] = (uint32_t)length;
}

// check reports what Metal's validation layer reports of the dispatch that is being recorded.
- (BOOL)check {
    if (![self usable:"dispatch"])
        return NO;
    if (next.pipeline == nil) {
        fake_misuse("a dispatch without a pipeline");
        return NO;
    }
    const fake_kernel *k = &next.pipeline->kernel->described;
    for (uint32_t i = 0; i < k->argument_count; i++) {
        const fake_argument *a = &k->arguments[i];
        const Binding *b = &next.bound[a->index];
        if (b->buffer == nil && b->bytes == NULL) {
            if (a->required)
                fake_misuse("%s: nothing is bound at index %u", k->name, a->index);
            continue;
        }
        if (a->write && b->bytes != NULL)
            fake_misuse("%s: bytes are bound at index %u, which it writes", k->name, a->index);
        if (b->buffer != nil && b->offset % a->align != 0)
            fake_misuse("%s: offset %lu at index %u is no multiple of %u", k->name, b->offset, a->index, a->align);
    }
    const Binding *p = &next.bound[k->params_index];
    if (p->length < k->params_bytes || (p->buffer == nil && p->bytes == NULL))
        fake_misuse("%s: parameters of %u bytes are needed at index %u, and %lu are bound", k->name, k->params_bytes,
                    k->params_index, p->length);
    uint64_t threads = (uint64_t)next.group[0] * next.group[1] * next.group[2], memory = k->threadgroup_bytes;
    for (int i = 0; i < 4; i++)
        memory += next.memory[i];
    if (threads == 0 || threads > next.pipeline->most || (next.pipeline->whole && threads % 32 != 0))
        fake_misuse("%s: threadgroups of %llu threads; the pipeline takes up to %lu", k->name,
                    (unsigned long long)threads, next.pipeline->most);
    if (next.grid[0] == 0 || next.grid[1] == 0 || next.grid[2] == 0)
        fake_misuse("%s: a grid of %u x %u x %u", k->name, next.grid[0], next.grid[1], next.grid[2]);
    if (memory > 32 << 10)
        fake_misuse("%s: %llu bytes of threadgroup memory", k->name, (unsigned long long)memory);
    return YES;
}
- (void)record:(const Command *)command {
    if (count == room) {
        room = room * 2 + 16;
        commands = realloc(commands, room * sizeof *commands);
    }
    commands[count++] = *command;
}
- (void)dispatchThreadgroups:(MTLSize)grid threadsPerThreadgroup:(MTLSize)group {
    uint32_t g[3] = {(uint32_t)grid.width, (uint32_t)grid.height, (uint32_t)grid.depth};
    uint32_t t[3] = {(uint32_t)group.width, (uint32_t)group.height, (uint32_t)group.depth};
    memcpy(next.grid, g, sizeof g);
    memcpy(next.group, t, sizeof t);
    if (![self check])
        return;
    Command c = next;
    for (int i = 0; i < bindings; i++) // each command owns its bytes
        if (c.bound[i].bytes != NULL)
            c.bound[i].bytes = memcpy(malloc(c.bound[i].length), c.bound[i].bytes, c.bound[i].length);
    [self record:&c];
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
    if (scope != MTLBarrierScopeBuffers)
        fake_misuse("a barrier of scope %u", (unsigned)scope);
    if ([self usable:"memoryBarrier"]) {
        Command barrier = {0};
        [self record:&barrier];
    }
}
- (void)sampleCountersInBuffer:(id<MTLCounterSampleBuffer>)buffer
                 atSampleIndex:(NSUInteger)index
                   withBarrier:(BOOL)barrier {
    (void)buffer;
    (void)barrier;
    fake_misuse("sample %lu inside a pass: this GPU samples at the borders of passes only", index);
}
- (void)waitForFence:(id<MTLFence>)fence {
    if (count > 0 || wait != nil)
        fake_misuse("waitForFence: after commands, or twice");
    wait = (FakeFence *)fence;
}
- (void)updateFence:(id<MTLFence>)fence {
    if (update != nil)
        fake_misuse("updateFence: twice");
    update = (FakeFence *)fence;
}
- (void)insertDebugSignpost:(NSString *)text {
    __atomic_add_fetch(&machine.state.signposts, 1, __ATOMIC_RELAXED);
    signposts = realloc(signposts, (signpost_count + 1) * sizeof *signposts);
    signposted = realloc(signposted, (signpost_count + 1) * sizeof *signposted);
    signposts[signpost_count] = [text retain];
    signposted[signpost_count++] = count;
}
- (void)endEncoding {
    if ([self usable:"endEncoding"]) {
        ended = YES;
        within->open = nil;
    }
}
static void forget(Command *c) {
    for (int i = 0; i < bindings; i++)
        free(c->bound[i].bytes);
}
- (void)dealloc {
    if (!ended)
        fake_misuse("an encoder is released before endEncoding");
    for (NSUInteger i = 0; i < count; i++)
        forget(&commands[i]);
    forget(&next);
    for (NSUInteger i = 0; i < signpost_count; i++)
        [signposts[i] release];
    free(signposts);
    free(signposted);
    free(commands);
    [samples release];
    [label release];
    [super dealloc];
}

// emulate runs the threadgroups of a launch in four parts, forwards or backwards.
static BOOL emulate(const FakePipeline *p, const smelt_launch *launch, const smelt_emulation *emulation,
                    BOOL backwards) {
    uint64_t groups = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2], part = groups / 4 + 1;
    for (uint64_t at = 0; at < groups; at += part) {
        uint64_t length = groups - at < part ? groups - at : part;
        uint64_t from = backwards ? groups - at - length : at;
        char message[300];
        if (machine.options.emulator->run(p->emulated, launch, emulation, from, from + length, message,
                                          sizeof message) != 0) {
            fake_misuse("%s", message);
            return NO;
        }
    }
    return YES;
}

// Twin holds copies of a buffer before and after the dispatches that are checked.
typedef struct Twin {
    FakeBuffer *buffer;
    uint8_t *before, *after;
    BOOL indices; // of indices, of which -1 means none and is not poison
} Twin;

static uint8_t *copy_of(const FakeBuffer *b) { return memcpy(malloc(b->length), b->memory, b->length); }

// gather adds the buffers of a command that are not among the n yet, and returns the new n. It skips
// buffers that the fake did not allocate: weights, which are never written.
static int gather(const Command *c, Twin *twins, int n) {
    for (int i = 0; i < bindings; i++) {
        FakeBuffer *b = c->bound[i].buffer;
        BOOL known = b == nil || !fake_alive(b) || !b->owned;
        for (int j = 0; j < n && !known; j++)
            known = twins[j].buffer == b;
        if (!known)
            twins[n++] = (Twin){b, copy_of(b), copy_of(b), NO};
    }
    return n;
}

// holds_indices returns whether a command reads a buffer as integers, which only the host writes.
static BOOL holds_indices(const Command *c, const FakeBuffer *b) {
    const fake_kernel *k = &c->pipeline->kernel->described;
    for (uint32_t i = 0; i < k->argument_count; i++)
        if (k->arguments[i].integers && !k->arguments[i].write && c->bound[k->arguments[i].index].buffer == b)
            return YES;
    return NO;
}

// collect records the changed elements, and restores the memory.
static void collect(Twin *t) {
    enum { stretch = 256 };
    for (NSUInteger at = 0; at < t->buffer->length; at += stretch) {
        NSUInteger n = t->buffer->length - at < stretch ? t->buffer->length - at : stretch;
        uint8_t *now = t->buffer->memory + at, *was = t->before + at;
        if (memcmp(now, was, n) == 0)
            continue;
        for (NSUInteger i = 0; i < n; i++)
            if (now[i] != was[i])
                t->after[at + i] = now[i];
        memcpy(now, was, n);
    }
}

// Poison, and its replacement in the second run: as a float or a half no kernel keeps it
// unchanged except by copying, and as an index it is harmless.
static const uint32_t poisoned = 0xffffffff, other = 1;

// rewind_changed restores the memory, with the poison replaced.
static void rewind_changed(const Twin *t) {
    for (NSUInteger i = 0; i + 4 <= t->buffer->length; i += 4)
        if (!t->indices && memcmp(t->before + i, &poisoned, 4) == 0)
            memcpy(t->buffer->memory + i, &other, 4);
        else
            memcpy(t->buffer->memory + i, t->before + i, 4);
}

// differs returns whether the second run had other results, except for poison that was left or
// copied, which is replaced there.
static BOOL differs(const Twin *t) {
    const uint8_t *again = t->buffer->memory;
    for (NSUInteger i = 0; i + 4 <= t->buffer->length; i += 4) {
        BOOL poison = memcmp(t->before + i, &poisoned, 4) == 0;
        for (NSUInteger j = i; j < i + 4; j++)
            if (again[j] != t->after[j] &&
                !(poison && t->after[j] == 0xff && again[j] == ((const uint8_t *)&other)[j - i]))
                return YES;
    }
    return NO;
}

// emulate_twice reports results that depend on uninitialised memory: it runs the launch with poison
// there, and with another value.
static BOOL emulate_twice(const Command *c, const smelt_launch *launch, const smelt_emulation *emulation,
                          BOOL backwards) {
    Twin twins[bindings];
    int n = gather(c, twins, 0);
    BOOL right = emulate(c->pipeline, launch, emulation, backwards);
    for (int i = 0; i < n; i++) {
        memcpy(twins[i].after, twins[i].buffer->memory, twins[i].buffer->length);
        twins[i].indices = holds_indices(c, twins[i].buffer);
        rewind_changed(&twins[i]);
    }
    right = right && emulate(c->pipeline, launch, emulation, backwards);
    for (int i = 0; i < n; i++) {
        if (right && differs(&twins[i]))
            fake_misuse("%s: its results depend on bytes that nothing wrote", launch->kernel);
        memcpy(twins[i].buffer->memory, twins[i].after, twins[i].buffer->length);
        free(twins[i].before);
        free(twins[i].after);
    }
    return right;
}

// run executes one dispatch and returns its fault, or 0.
- (uint32_t)run:(const Command *)c backwards:(BOOL)backwards {
    pthread_mutex_lock(&machine.lock);
    uint32_t fault = FAKE_FAULT_NONE;
    if (machine.removed) {
        fault = FAKE_FAULT_DEVICE_REMOVED;
    } else if (machine.fault != FAKE_FAULT_NONE && machine.fault != FAKE_FAULT_COMPILE && machine.fault_after-- == 0) {
        fault = machine.fault;
        machine.fault = FAKE_FAULT_NONE;
        machine.removed = fault == FAKE_FAULT_DEVICE_REMOVED;
        machine.hung = fault == FAKE_FAULT_HANG;
        while (machine.hung)
            pthread_cond_wait(&machine.changed, &machine.lock);
    }
    machine.state.dispatches += fault == FAKE_FAULT_NONE;
    smelt_emulation emulation = machine.options.emulation;
    BOOL twice = machine.options.unwritten != 0;
    pthread_mutex_unlock(&machine.lock);
    if (fault != FAKE_FAULT_NONE || machine.options.zeros)
        return fault;

    void *buffers[bindings];
    uint64_t bytes[bindings];
    for (int i = 0; i < bindings; i++) {
        const Binding *b = &c->bound[i];
        buffers[i] = b->bytes;
        bytes[i] = b->length;
        if (b->buffer != nil && !fake_alive(b->buffer)) {
            fake_misuse("%s: the buffer at index %d was released before the GPU used it",
                        c->pipeline->kernel->described.name, i);
            return FAKE_FAULT_PAGE;
        }
        if (b->buffer != nil)
            buffers[i] = b->buffer->memory + b->offset;
    }
    smelt_launch launch = {
        .kernel = c->pipeline->kernel->described.name,
        .buffers = buffers,
        .buffer_bytes = bytes,
        .buffer_count = bindings,
        .constants = c->pipeline->constants,
        .constants_set = c->pipeline->set,
    };
    memcpy(launch.grid, c->grid, sizeof launch.grid);
    memcpy(launch.group, c->group, sizeof launch.group);
    memcpy(launch.threadgroup_bytes, c->memory, sizeof launch.threadgroup_bytes);
    BOOL right =
        twice ? emulate_twice(c, &launch, &emulation, backwards) : emulate(c->pipeline, &launch, &emulation, backwards);
    return right ? FAKE_FAULT_NONE : FAKE_FAULT_PAGE;
}

// ignored returns whether the barrier is the one that the options skip.
static BOOL ignored(void) {
    pthread_mutex_lock(&machine.lock);
    machine.state.barriers++;
    BOOL skip = ++machine.barriers_seen == machine.options.skip_barrier;
    pthread_mutex_unlock(&machine.lock);
    return skip;
}

- (uint32_t)inTurn:(const NSUInteger *)order count:(NSUInteger)n backwards:(BOOL)backwards {
    uint32_t fault = FAKE_FAULT_NONE;
    for (NSUInteger j = 0; j < n && fault == FAKE_FAULT_NONE; j++) {
        executed = order[j];
        fault = [self run:&commands[order[j]] backwards:backwards];
    }
    return fault;
}

// apart runs commands in isolation, each on the memory as it was before all of them, and merges their
// changes at the end. It detects races that no order reveals, as where commands change the same
// elements.
- (uint32_t)apart:(const NSUInteger *)order count:(NSUInteger)n backwards:(BOOL)backwards {
    Twin *twins = malloc(n * bindings * sizeof *twins);
    int count_of = 0;
    for (NSUInteger j = 0; j < n; j++)
        count_of = gather(&commands[order[j]], twins, count_of);
    uint32_t fault = FAKE_FAULT_NONE;
    for (NSUInteger j = 0; j < n && fault == FAKE_FAULT_NONE; j++) {
        fault = [self inTurn:order + j count:1 backwards:backwards];
        for (int i = 0; i < count_of; i++)
            collect(&twins[i]);
    }
    for (int i = 0; i < count_of; i++) {
        memcpy(twins[i].buffer->memory, twins[i].after, twins[i].buffer->length);
        free(twins[i].before);
        free(twins[i].after);
    }
    free(twins);
    return fault;
}

// cost returns the made-up time of all commands.
- (uint64_t)cost {
    uint64_t ns = 0;
    for (NSUInteger i = 0; i < count; i++) {
        const Command *c = &commands[i];
        uint64_t groups = (uint64_t)c->grid[0] * c->grid[1] * c->grid[2];
        uint64_t threads = groups * c->group[0] * c->group[1] * c->group[2];
        if (c->pipeline != nil)
            ns += groups * machine.options.group_ns + threads * machine.options.thread_ns;
    }
    return ns;
}

// execute runs the commands, those between two barriers in any order, and returns
// the fault that ended it, or 0.
- (uint32_t)execute {
    if (samples != nil)
        samples->times[start] = (uint64_t)(seconds() * 1e9);
    NSUInteger *order = malloc((count + 1) * sizeof *order);
    uint32_t fault = FAKE_FAULT_NONE;
    for (NSUInteger first = 0; first < count && fault == FAKE_FAULT_NONE;) {
        NSUInteger n = 0, i = first;
        for (; i < count; i++) {
            if (commands[i].pipeline != nil)
                order[n++] = i;
            else if (!ignored())
                break;
        }
        first = i + 1;
        pthread_mutex_lock(&machine.lock);
        BOOL shuffle = machine.options.shuffle && type == MTLDispatchTypeConcurrent;
        for (NSUInteger j = n; shuffle && j > 1; j--) {
            NSUInteger other = fake_random(j), kept = order[j - 1];
            order[j - 1] = order[other];
            order[other] = kept;
        }
        BOOL backwards = shuffle && fake_random(2) == 1, apart = shuffle && n > 1 && fake_random(2) == 1;
        pthread_mutex_unlock(&machine.lock);
        fault =
            apart ? [self apart:order count:n backwards:backwards] : [self inTurn:order count:n backwards:backwards];
    }
    free(order);
    if (samples != nil)
        samples->times[end] = fault != FAKE_FAULT_NONE ? MTLCounterErrorValue
                              : made_up()              ? samples->times[start] + [self cost]
                                                       : (uint64_t)(seconds() * 1e9);
    return fault;
}

- (id)infoInState:(MTLCommandEncoderErrorState)state {
    FakeEncoderInfo *info = [[[FakeEncoderInfo alloc] init] autorelease];
    info->label = [label retain];
    info->state = state;
    NSUInteger seen = 0;
    while (seen < signpost_count && state != MTLCommandEncoderErrorStatePending &&
           (state == MTLCommandEncoderErrorStateCompleted || signposted[seen] <= executed))
        seen++;
    info->signposts = [fake_array((id *)signposts, seen) retain];
    return info;
}
@end

@implementation MTLCommandBufferDescriptor
- (id)init {
    retained = YES;
    return self;
}
- (void)setRetainedReferences:(BOOL)yes {
    retained = yes;
}
- (void)setErrorOptions:(MTLCommandBufferErrorOption)to {
    options = to;
}
@end

static const struct {
    NSInteger code;
    const char *text;
} faults[] = {
    [FAKE_FAULT_TIMEOUT] = {MTLCommandBufferErrorTimeout,
                            "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)"},
    [FAKE_FAULT_PAGE] = {MTLCommandBufferErrorPageFault,
                         "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)"},
    [FAKE_FAULT_MEMORY] = {MTLCommandBufferErrorOutOfMemory,
                           "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"},
    [FAKE_FAULT_INTERACTIVITY] = {MTLCommandBufferErrorInternal,
                                  "Impacting Interactivity "
                                  "(0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)"},
    [FAKE_FAULT_DEVICE_REMOVED] = {MTLCommandBufferErrorDeviceRemoved, "The device was removed"},
    [FAKE_FAULT_HANG] = {MTLCommandBufferErrorTimeout,
                         "Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)"},
    [FAKE_FAULT_IGNORED] = {MTLCommandBufferErrorAccessRevoked,
                            "Ignored (for causing prior/excessive GPU errors) "
                            "(00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"},
};

@implementation FakeCommandBuffer
- (void)setLabel:(NSString *)label {
    (void)label;
}
- (void)add:(Kind)kind object:(id)object value:(uint64_t)value {
    if (status != MTLCommandBufferStatusNotEnqueued || open != nil) {
        fake_misuse("a command buffer is encoded %s", open != nil ? "while an encoder is open" : "after commit");
        return;
    }
    if (count == room) {
        room = room * 2 + 4;
        steps = realloc(steps, room * sizeof *steps);
    }
    steps[count++] = (Step){kind, [object retain], value};
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
    FakeEncoder *e = [[[FakeEncoder alloc] init] autorelease];
    e->within = self;
    e->type = type;
    [self add:PASS object:e value:0];
    open = e;
    return e;
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:(MTLComputePassDescriptor *)descriptor {
    FakeEncoder *e = (FakeEncoder *)[self computeCommandEncoderWithDispatchType:descriptor->type];
    MTLComputePassSampleBufferAttachmentDescriptor *a = descriptor->attachments->first;
    FakeSamples *s = (FakeSamples *)a->samples;
    if (s != nil && (a->start >= s->count || a->end >= s->count)) {
        fake_misuse("samples %lu and %lu of %lu", a->start, a->end, s->count);
        return e;
    }
    e->samples = [s retain];
    e->start = a->start;
    e->end = a->end;
    return e;
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
    [self add:WAIT object:event value:value];
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
    [self add:SIGNAL object:event value:value];
}
- (void)commit {
    if (status != MTLCommandBufferStatusNotEnqueued || open != nil) {
        fake_misuse("a command buffer is committed %s", open != nil ? "while an encoder is open" : "twice");
        return;
    }
    pthread_mutex_lock(&machine.lock);
    status = MTLCommandBufferStatusCommitted;
    ticket = ++tickets;
    finished[ticket / 64 % 256] &= ~(1ull << ticket % 64);
    before = malloc((count + 1) * sizeof *before);
    for (NSUInteger i = 0; i < count; i++) {
        FakeEncoder *e = steps[i].object;
        if (steps[i].kind == WAIT) {
            machine.state.events++;
            if (++machine.events_seen == machine.options.skip_event) {
                steps[i].value = 0; // every event is signalled already
                machine.rushed = ticket;
            }
        }
        if (steps[i].kind != PASS)
            continue;
        if (e->wait != nil && e->wait->updated_by != 0) {
            machine.state.fences++;
            if (++machine.fences_seen != machine.options.skip_fence)
                before[before_count++] = e->wait->updated_by;
        }
        if (e->update != nil)
            e->update->updated_by = ticket;
    }
    Line *line = queue->line;
    if (line->count == line->room) {
        line->room = line->room * 2 + 16;
        line->waiting = realloc(line->waiting, line->room * sizeof *line->waiting);
    }
    line->waiting[line->count++] = [self retain];
    if (++machine.in_flight > machine.state.most_in_flight)
        machine.state.most_in_flight = machine.in_flight;
    pthread_cond_broadcast(&machine.changed);
    pthread_mutex_unlock(&machine.lock);
}
- (void)waitUntilCompleted {
    pthread_mutex_lock(&machine.lock);
    machine.state.waits++;
    if (status == MTLCommandBufferStatusNotEnqueued)
        fake_misuse("a command buffer is waited for that was not committed");
    else
        while ([self told] < MTLCommandBufferStatusCompleted)
            pthread_cond_wait(&machine.changed, &machine.lock);
    pthread_mutex_unlock(&machine.lock);
}
// told returns the status that the CPU sees. The machine is locked.
- (MTLCommandBufferStatus)told {
    BOOL late = ticket < machine.rushed && !complete(machine.rushed);
    return late && status > MTLCommandBufferStatusCommitted ? MTLCommandBufferStatusCommitted : status;
}
- (MTLCommandBufferStatus)status {
    pthread_mutex_lock(&machine.lock);
    MTLCommandBufferStatus now = [self told];
    pthread_mutex_unlock(&machine.lock);
    return now;
}
- (NSError *)error {
    return [self status] == MTLCommandBufferStatusError ? error : nil;
}
- (CFTimeInterval)GPUStartTime {
    return began;
}
- (CFTimeInterval)GPUEndTime {
    return ended;
}

// ready returns whether the command buffer may begin. The machine is locked.
- (BOOL)ready {
    for (NSUInteger i = 0; i < before_count; i++)
        if (before[i] != ticket && !complete(before[i]))
            return NO;
    if (count > 0 && steps[0].kind == WAIT)
        return ((FakeEvent *)steps[0].object)->value >= steps[0].value;
    return YES;
}

- (void)failWith:(uint32_t)fault at:(NSUInteger)step {
    id infos[64];
    NSUInteger n = 0;
    for (NSUInteger i = 0; i < count && n < 64; i++)
        if (steps[i].kind == PASS)
            infos[n++] = [(FakeEncoder *)steps[i].object infoInState:i < step    ? MTLCommandEncoderErrorStateCompleted
                                                                     : i == step ? MTLCommandEncoderErrorStateFaulted
                                                                                 : MTLCommandEncoderErrorStatePending];
    NSDictionary *info = describes ? fake_dictionary(MTLCommandBufferEncoderInfoErrorKey, fake_array(infos, n)) : nil;
    error = [fake_error("MTLCommandBufferErrorDomain", faults[fault].code, info, "%s", faults[fault].text) retain];
}

// execute runs on the queue's thread. Steps after a fault are not executed, but their events are
// signalled, as by a GPU's restart.
- (void)execute {
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    uint32_t fault = FAKE_FAULT_NONE;
    began = seconds();
    for (NSUInteger i = 0; i < count; i++) {
        Step *s = &steps[i];
        if (s->kind == PASS) {
            if (fault == FAKE_FAULT_NONE) {
                fault = queue->line->faulted ? FAKE_FAULT_IGNORED : [(FakeEncoder *)s->object execute];
                if (fault != FAKE_FAULT_NONE)
                    [self failWith:fault at:i];
            }
            continue;
        }
        FakeEvent *e = s->object;
        pthread_mutex_lock(&machine.lock);
        if (s->kind == SIGNAL)
            e->value = s->value;
        while (s->kind == WAIT && fault == FAKE_FAULT_NONE && e->value < s->value)
            pthread_cond_wait(&machine.changed, &machine.lock);
        pthread_cond_broadcast(&machine.changed);
        pthread_mutex_unlock(&machine.lock);
    }
    ended = seconds();
    [pool drain];
    pthread_mutex_lock(&machine.lock);
    queue->line->faulted = queue->line->faulted || fault != FAKE_FAULT_NONE;
    status = fault == FAKE_FAULT_NONE ? MTLCommandBufferStatusCompleted : MTLCommandBufferStatusError;
    finished[ticket / 64 % 256] |= 1ull << ticket % 64;
    machine.state.command_buffers++;
    machine.in_flight--;
    queue->line->made--;
    pthread_cond_broadcast(&machine.changed);
    pthread_mutex_unlock(&machine.lock);
}
- (void)dealloc {
    if (status == MTLCommandBufferStatusCommitted)
        fake_misuse("a command buffer is released while it runs");
    for (NSUInteger i = 0; i < count; i++)
        [steps[i].object release];
    pthread_mutex_lock(&machine.lock);
    queue->line->made -= status == MTLCommandBufferStatusNotEnqueued;
    pthread_cond_broadcast(&machine.changed);
    pthread_mutex_unlock(&machine.lock);
    free(steps);
    free(before);
    [error release];
    [queue release];
    [super dealloc];
}
@end

// take removes a ready command buffer from the line and returns it, or nil. The machine is locked.
static FakeCommandBuffer *take(Line *line) {
    NSUInteger ready = 0, chosen = 0;
    if (machine.fences_seen + 1 == machine.options.skip_fence)
        return nil; // the next one shall have a chance to overtake
    for (NSUInteger i = 0; i < line->count; i++) {
        if (![(FakeCommandBuffer *)line->waiting[i] ready])
            continue;
        if (ready++ == 0 || (machine.options.shuffle && fake_random(ready) == 0))
            chosen = i;
        if (!machine.options.shuffle)
            break;
    }
    if (ready == 0)
        return nil;
    FakeCommandBuffer *buffer = line->waiting[chosen];
    memmove(line->waiting + chosen, line->waiting + chosen + 1, (--line->count - chosen) * sizeof *line->waiting);
    return buffer;
}

static void *work(void *of) {
    Line *line = of;
    pthread_mutex_lock(&machine.lock);
    for (;;) {
        // Command buffers that are committed during the delay may be chosen too.
        useconds_t delay =
            line->count > 0 && machine.options.delay_us > 0 ? (useconds_t)fake_random(machine.options.delay_us) : 0;
        if (delay > 0) {
            pthread_mutex_unlock(&machine.lock);
            usleep(delay);
            pthread_mutex_lock(&machine.lock);
        }
        FakeCommandBuffer *buffer = take(line);
        if (buffer == nil) {
            if (line->closing)
                break;
            pthread_cond_wait(&machine.changed, &machine.lock);
            continue;
        }
        pthread_mutex_unlock(&machine.lock);
        [buffer execute];
        [buffer release];
        pthread_mutex_lock(&machine.lock);
    }
    BOOL orphaned = line->orphaned;
    pthread_mutex_unlock(&machine.lock);
    if (orphaned) {
        free(line->waiting);
        free(line);
    }
    return NULL;
}

@implementation FakeQueue
- (id)initWithLimit:(NSUInteger)most {
    line = calloc(1, sizeof *line);
    line->limit = most;
    pthread_create(&line->thread, NULL, work, line);
    return self;
}
- (void)setLabel:(NSString *)label {
    (void)label;
}
- (void)addResidencySet:(id)set {
    [set retain];
    if (++sets > 32)
        fake_misuse("%lu residency sets of a queue; it takes 32", sets);
    if (sets > machine.state.most_sets)
        machine.state.most_sets = sets;
}
- (void)removeResidencySet:(id)set {
    sets--;
    [set release];
}
- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor *)descriptor {
    pthread_mutex_lock(&machine.lock);
    if (line->made >= line->limit && machine.in_flight == 0)
        fake_misuse("the queue has all its %lu command buffers, and none is committed", line->limit);
    while (line->made >= line->limit && machine.in_flight > 0)
        pthread_cond_wait(&machine.changed, &machine.lock);
    line->made++;
    pthread_mutex_unlock(&machine.lock);
    FakeCommandBuffer *b = [[[FakeCommandBuffer alloc] init] autorelease];
    b->queue = [self retain];
    __atomic_add_fetch(&machine.state.described, descriptor->options != 0, __ATOMIC_RELAXED);
    b->describes = (descriptor->options & MTLCommandBufferErrorOptionEncoderExecutionStatus) != 0;
    return b;
}
- (void)dealloc {
    BOOL own = pthread_equal(pthread_self(), line->thread) != 0;
    pthread_t thread = line->thread;
    pthread_mutex_lock(&machine.lock);
    line->closing = YES;
    line->orphaned = own;
    pthread_cond_broadcast(&machine.changed);
    pthread_mutex_unlock(&machine.lock);
    if (own) {
        pthread_detach(thread);
    } else {
        pthread_join(thread, NULL);
        free(line->waiting);
        free(line);
    }
    [super dealloc];
}
@end
