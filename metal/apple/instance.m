//go:build cgo && ((darwin && arm64) || fakemetal)

// A step: its dispatches as command buffers, some in flight while the next is encoded, synchronised
// with the CPU's dispatches by events.
#import "apple.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    most_in_flight = 3,  // command buffers that a cancelled step still runs
    answer_ms = 20,      // between polls of a command buffer that does not signal
    most_samples = 2048, // in a pass of its own each dispatch takes two; 32 KB is the limit of a buffer
};

// Flight is a command buffer that was committed.
typedef struct Flight {
    id<MTLCommandBuffer> buffer;
    uint32_t first, count; // dispatches of the phase
    uint64_t signal;       // value of the instance's event when it is done
    id<MTLCounterSampleBuffer> samples;
} Flight;

// Instance is the provider's smelt_instance.
typedef struct Instance {
    Executable *executable;
    smelt_instance *host;
    Memory **buffers;
    uint64_t *ring_stride;
    id<MTLFence> fence;      // of one queue; orders the passes, as hazard tracking is off
    uint32_t generation;     // of that queue
    id<MTLSharedEvent> done; // by the GPU
    id<MTLSharedEvent> go;   // by the CPU
    uint64_t done_value, go_value;
    Flight flights[most_in_flight];
    uint32_t flying;
    BOOL stuck; // the GPU did not respond, and still uses the flights
    uint32_t cancel;

    // Of the running step.
    const smelt_step *step;
    BOOL labelled; // encoders have labels
    const smelt_phase *phase;
    smelt_counts *counts;
    smelt_kernel_count *kernels;
    uint64_t *nanoseconds;
    smelt_error *error;
    int code;
    MTLTimestamp cpu_begin, gpu_begin;
} Instance;

// Segment is a run of dispatches for one processor; of the GPU's, a command buffer.
typedef struct Segment {
    uint32_t first, count;
    BOOL on_cpu;
} Segment;

static const smelt_dispatch *dispatch(const Instance *s, uint32_t index) {
    return &s->executable->dispatches[s->phase->first_dispatch + index];
}

// next returns the segment that begins at a dispatch. Without counter samples, a profile times
// whole command buffers, each of one dispatch.
static Segment next(const Instance *s, uint32_t first) {
    Segment cut = {first, 1, dispatch(s, first)->on_cpu != 0};
    BOOL single = s->step->profile && !cut.on_cpu && s->executable->gpu->timestamps == nil;
    uint32_t most = s->step->profile && !cut.on_cpu ? (single ? 1 : most_samples / 2) : UINT32_MAX;
    while (first + cut.count < s->phase->dispatch_count && cut.count < most) {
        const smelt_dispatch *d = dispatch(s, first + cut.count);
        if ((d->on_cpu != 0) != cut.on_cpu || (d->command_buffer && !cut.on_cpu))
            break;
        cut.count++;
    }
    return cut;
}

static void fail(Instance *s, int code, int64_t index, const char *what) {
    if (s->code == SMELT_OK)
        s->code = apple_fail(s->error, code, index, "%s", what);
}

// encode_dispatch sets the arguments of a dispatch and encodes it. Bit i of *bytes is set if index i
// holds the parameters of an earlier dispatch, which must not remain where the kernel may write,
// even if the argument is unused.
static void encode_dispatch(Instance *s, id<MTLComputeCommandEncoder> encoder, uint32_t index, uint32_t *bytes) {
    const Executable *p = s->executable;
    const smelt_dispatch *d = dispatch(s, index);
    const smelt_launch *l = host_of(s->executable->gpu)->launch(s->host, index);
    if (s->labelled)
        [encoder insertDebugSignpost:p->labels[s->phase->first_dispatch + index]];
    if ((uint64_t)l->grid[0] * l->grid[1] * l->grid[2] == 0)
        return; // at these sizes there is nothing to do
    [encoder setComputePipelineState:p->by_index[s->phase->first_dispatch + index]->state];
    for (uint32_t i = d->first_argument; i < d->first_argument + d->argument_count; i++) {
        const smelt_argument *a = &p->arguments[i];
        const Memory *m = s->buffers[a->buffer];
        uint64_t slot = s->ring_stride[a->buffer] * s->step->slot;
        [encoder setBuffer:m->buffer offset:m->offset + slot + (uint64_t)a->offset atIndex:a->index];
        *bytes &= ~(1u << a->index);
    }
    for (uint32_t i = 0; *bytes != 0 && i < 31; i++)
        if (*bytes >> i & 1 && i != d->params_at)
            [encoder setBuffer:nil offset:0 atIndex:i];
    *bytes = 0;
    if (d->word_count > 0) {
        [encoder setBytes:l->buffers[d->params_at] length:d->word_count * 4 atIndex:d->params_at];
        *bytes = 1u << d->params_at;
    }
    [encoder dispatchThreadgroups:MTLSizeMake(l->grid[0], l->grid[1], l->grid[2])
            threadsPerThreadgroup:MTLSizeMake(l->group[0], l->group[1], l->group[2])];
}

// pass encodes dispatches as one pass, in which those between two barriers may run concurrently.
static void pass(Instance *s, id<MTLComputeCommandEncoder> encoder, uint32_t first, uint32_t count) {
    if (s->labelled)
        [encoder setLabel:s->executable->labels[s->phase->first_dispatch + first]];
    [encoder waitForFence:s->fence];
    uint32_t bytes = 0;
    for (uint32_t i = first; i < first + count; i++) {
        if (dispatch(s, i)->barrier && i > first)
            [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
        encode_dispatch(s, encoder, i, &bytes);
    }
    [encoder updateFence:s->fence];
    [encoder endEncoding];
}

// sampled encodes each dispatch as a pass of its own, since Apple's GPUs sample their
// clock only between passes. That serialises dispatches.
static void sampled(Instance *s, Flight *f) {
    MTLCounterSampleBufferDescriptor *wanted = [[MTLCounterSampleBufferDescriptor alloc] init];
    [wanted setCounterSet:s->executable->gpu->timestamps];
    [wanted setStorageMode:MTLStorageModeShared];
    [wanted setSampleCount:f->count * 2];
    NSError *e = nil;
    f->samples = [s->executable->gpu->device newCounterSampleBufferWithDescriptor:wanted error:&e];
    [wanted release];
    if (f->samples == nil) {
        fail(s, SMELT_ERROR_SYSTEM, f->first, [[e localizedDescription] UTF8String]);
        return;
    }
    for (uint32_t i = 0; i < f->count; i++) {
        MTLComputePassDescriptor *d = [MTLComputePassDescriptor computePassDescriptor];
        [d setDispatchType:MTLDispatchTypeSerial];
        MTLComputePassSampleBufferAttachmentDescriptor *a = [[d sampleBufferAttachments] objectAtIndexedSubscript:0];
        [a setSampleBuffer:f->samples];
        [a setStartOfEncoderSampleIndex:2 * i];
        [a setEndOfEncoderSampleIndex:2 * i + 1];
        pass(s, [f->buffer computeCommandEncoderWithDescriptor:d], f -> first + i, 1);
    }
}

// fly encodes a segment and commits it. With after, it waits for that value of the CPU's event.
static void fly(Instance *s, const Segment *g, uint64_t after) {
    Flight *f = &s->flights[s->flying];
    MTLCommandBufferDescriptor *d = [[MTLCommandBufferDescriptor alloc] init];
    [d setRetainedReferences:NO]; // the executable and the instance outlive their steps
    if (s->labelled)
        [d setErrorOptions:MTLCommandBufferErrorOptionEncoderExecutionStatus];
    *f = (Flight){
        [[s->executable->gpu->queue commandBufferWithDescriptor:d] retain], g->first, g->count, ++s->done_value, nil};
    [d release];
    if (s->labelled)
        [f->buffer setLabel:s->executable->labels[s->phase->first_dispatch + g->first]];
    if (after > 0)
        [f->buffer encodeWaitForEvent:s->go value:after];
    if (s->step->profile && s->executable->gpu->timestamps != nil)
        sampled(s, f);
    else
        pass(s, [f->buffer computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent], g -> first, g -> count);
    [f->buffer encodeSignalEvent:s->done value:f->signal];
    [f->buffer commit];
    s->flying++;
}

// culprit returns the dispatch at which a command buffer failed: that of the last signpost of the
// pass that faulted, else the first.
static uint32_t culprit(const Instance *s, Flight *f) {
    NSArray *passes = [[[f->buffer error] userInfo] objectForKey:MTLCommandBufferEncoderInfoErrorKey];
    for (NSUInteger i = 0; i < [passes count]; i++) {
        id<MTLCommandBufferEncoderInfo> info = [passes objectAtIndex:i];
        NSArray *posts = [info debugSignposts];
        if ([info errorState] != MTLCommandEncoderErrorStateFaulted)
            continue;
        NSString *last = [posts count] > 0 ? [posts objectAtIndex:[posts count] - 1] : [info label];
        unsigned long index = last == nil ? 0 : strtoul([last UTF8String], NULL, 10);
        if (index >= s->phase->first_dispatch + f->first && index < s->phase->first_dispatch + f->first + f->count)
            return (uint32_t)index - s->phase->first_dispatch;
    }
    return f->first;
}

static int code_of(NSError *e) {
    switch ([e code]) {
    case MTLCommandBufferErrorOutOfMemory:
        return SMELT_ERROR_MEMORY;
    case MTLCommandBufferErrorAccessRevoked:
    case MTLCommandBufferErrorDeviceRemoved:
        return SMELT_ERROR_LOST;
    default:
        return SMELT_ERROR_EXECUTION;
    }
}

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

// await returns whether the GPU has ended the command buffer. A failed one may not signal its event,
// so its status is polled too. After the signal the status follows within moments; it is polled,
// as waiting would be a second sleep.
static BOOL await(Instance *s, Flight *f) {
    double end = milliseconds() + s->executable->gpu->options.timeout_ms;
    while (![s->done waitUntilSignaledValue:f->signal timeoutMS:answer_ms] &&
           [f->buffer status] < MTLCommandBufferStatusCompleted)
        if (milliseconds() > end)
            return NO;
    while ([f->buffer status] < MTLCommandBufferStatusCompleted) {
        if (milliseconds() > end)
            return NO;
        sched_yield();
    }
    return YES;
}

// times fills in the dispatch times of a profiled command buffer.
static void times(Instance *s, Flight *f) {
    if (f->samples == nil) {
        s->nanoseconds[f->first] += (uint64_t)(([f->buffer GPUEndTime] - [f->buffer GPUStartTime]) * 1e9);
        return;
    }
    // The clocks of both processors, at the step's begin and now, give the GPU's tick.
    MTLTimestamp cpu = 0, gpu = 0;
    [s->executable->gpu->device sampleTimestamps:&cpu gpuTimestamp:&gpu];
    double tick = gpu > s->gpu_begin ? (double)(cpu - s->cpu_begin) / (double)(gpu - s->gpu_begin) : 1;
    NSData *data = [f->samples resolveCounterRange:NSMakeRange(0, f->count * 2)];
    const MTLCounterResultTimestamp *t = [data bytes];
    for (uint32_t i = 0; data != nil && i < f->count; i++)
        if (t[2 * i].timestamp != MTLCounterErrorValue && t[2 * i + 1].timestamp != MTLCounterErrorValue &&
            t[2 * i + 1].timestamp >= t[2 * i].timestamp)
            s->nanoseconds[f->first + i] += (uint64_t)((double)(t[2 * i + 1].timestamp - t[2 * i].timestamp) * tick);
}

static void count(Instance *s, Flight *f) {
    for (uint32_t i = f->first; i < f->first + f->count; i++) {
        const smelt_dispatch *d = dispatch(s, i);
        s->counts->dispatches++;
        s->counts->barriers += d->barrier;
        s->counts->command_buffers += d->command_buffer;
        s->kernels[d->kernel].dispatches++;
    }
}

// faulted records why and where a command buffer failed.
static void faulted(Instance *s, Flight *f) {
    const char *why = [[[f->buffer error] localizedDescription] UTF8String];
    char message[400];
    snprintf(message, sizeof message, "%s; it may be one of the %u dispatches behind it: --debug=gpu tells", why,
             f->count - 1);
    BOOL known = s->labelled || f->count == 1;
    fail(s, code_of([f->buffer error]), culprit(s, f), known ? why : message);
}

// land waits for the oldest command buffer and records its result.
static void land(Instance *s) {
    Flight f = s->flights[0];
    if (!await(s, &f)) {
        char message[120];
        snprintf(message, sizeof message, "the GPU has not answered for %g s",
                 (double)s->executable->gpu->options.timeout_ms / 1000);
        fail(s, SMELT_ERROR_LOST, f.first, message);
        s->stuck = YES;
        return;
    }
    if ([f.buffer status] == MTLCommandBufferStatusError) {
        s->executable->gpu->faulted = YES;
        faulted(s, &f);
    } else if (s->code == SMELT_OK) {
        count(s, &f);
        if (s->nanoseconds != NULL)
            times(s, &f);
    }
    [f.samples release];
    [f.buffer release];
    memmove(s->flights, s->flights + 1, --s->flying * sizeof *s->flights);
}

static void land_all(Instance *s) {
    while (s->flying > 0 && !s->stuck)
        land(s);
}

static BOOL cancelled(Instance *s) {
    if (__atomic_load_n(&s->cancel, __ATOMIC_RELAXED) != 0)
        fail(s, SMELT_ERROR_CANCELLED, -1, "stopped between two command buffers");
    return s->code != SMELT_OK;
}

// on_cpu runs a segment of the CPU between two of the GPU: the one before must have ended, and the
// next, which is encoded already, waits for the event.
static void on_cpu(Instance *s, const Segment *g, const Segment *behind) {
    uint32_t before = s->flying;
    if (behind != NULL)
        fly(s, behind, s->go_value + 1);
    while (before-- > 0 && !s->stuck)
        land(s);
    if (s->code == SMELT_OK) {
        int code = host_of(s->executable->gpu)
                       ->run(s->host, g->first, g->count, s->counts, s->kernels, s->nanoseconds, s->error);
        s->code = code;
    }
    if (behind != NULL)
        [s->go setSignaledValue:++s->go_value]; // after a failure too, so that no command buffer keeps waiting
}

static void run(Instance *s) {
    if (s->step->profile)
        [s->executable->gpu->device sampleTimestamps:&s->cpu_begin gpuTimestamp:&s->gpu_begin];
    for (uint32_t at = 0; at < s->phase->dispatch_count && !cancelled(s);) {
        POOL {
            Segment g = next(s, at), behind = {0};
            at += g.count;
            if (g.on_cpu && at < s->phase->dispatch_count) {
                behind = next(s, at);
                at += behind.count;
            }
            if (s->flying == most_in_flight)
                land(s);
            if (s->code == SMELT_OK && g.on_cpu)
                on_cpu(s, &g, behind.count > 0 ? &behind : NULL);
            else if (s->code == SMELT_OK)
                fly(s, &g, 0);
        }
    }
    land_all(s);
}

// captured runs the step under Metal's capture.
static void captured(Instance *s) {
    const Gpu *gpu = s->executable->gpu;
    MTLCaptureManager *manager = [MTLCaptureManager sharedCaptureManager];
    MTLCaptureDescriptor *d = [[MTLCaptureDescriptor alloc] init];
    [d setCaptureObject:gpu->queue];
    [d setDestination:MTLCaptureDestinationGPUTraceDocument];
    [d setOutputURL:[NSURL fileURLWithPath:[NSString stringWithUTF8String:gpu->options.capture_path]]];
    NSError *e = nil;
    if (![manager supportsDestination:MTLCaptureDestinationGPUTraceDocument])
        fail(s, SMELT_ERROR_SYSTEM, -1, "Metal captures only where MTL_CAPTURE_ENABLED=1 is set");
    else if (![manager startCaptureWithDescriptor:d error:&e])
        fail(s, SMELT_ERROR_SYSTEM, -1, [[e localizedDescription] UTF8String]);
    [d release];
    if (s->code == SMELT_OK) {
        run(s);
        [manager stopCapture];
    }
}

// recover releases the command buffers of a step that timed out, if the GPU has finished them.
static BOOL recover(Instance *s) {
    while (s->flying > 0) {
        Flight f = s->flights[0];
        if ([f.buffer status] < MTLCommandBufferStatusCompleted)
            return NO;
        s->executable->gpu->faulted = YES;
        [f.samples release];
        [f.buffer release];
        memmove(s->flights, s->flights + 1, --s->flying * sizeof *s->flights);
    }
    s->stuck = NO;
    return YES;
}

// refence gives an instance a fence of the current queue.
static int refence(Instance *s, smelt_error *error) {
    id<MTLFence> fresh = [s->executable->gpu->device newFence];
    if (fresh == nil)
        return apple_fail(error, SMELT_ERROR_MEMORY, -1, "Metal refuses a fence");
    [s->fence release];
    s->fence = fresh;
    s->generation = s->executable->gpu->generation;
    return SMELT_OK;
}

int apple_instance_run(smelt_instance *instance, const smelt_step *step, smelt_counts *counts,
                       smelt_kernel_count *kernels, uint64_t *nanoseconds, smelt_error *error) {
    Instance *s = (Instance *)instance;
    Gpu *gpu = s->executable->gpu;
    int code = SMELT_OK;
    POOL {
        if (s->stuck && !recover(s))
            return apple_fail(error, SMELT_ERROR_LOST, -1, "the GPU has still not responded to an earlier step");
        if (gpu->faulted && (code = apple_renew(gpu, error)) != SMELT_OK)
            return code;
        if (s->generation != gpu->generation && (code = refence(s, error)) != SMELT_OK)
            return code;
        if ((code = host_of(gpu)->resolve(s->host, step, error)) != SMELT_OK)
            return code;
        s->step = step;
        s->phase = &s->executable->phases[step->phase];
        s->counts = counts;
        s->kernels = kernels;
        s->nanoseconds = nanoseconds;
        s->error = error;
        s->code = SMELT_OK;
        memset(counts, 0, sizeof *counts);
        memset(kernels, 0, s->executable->kernel_count * sizeof *kernels);
        if (nanoseconds != NULL)
            memset(nanoseconds, 0, s->phase->dispatch_count * sizeof *nanoseconds);
        BOOL capture = ++gpu->steps == gpu->options.capture_step;
        s->labelled = capture || gpu->options.debug;
        if (capture)
            captured(s);
        else
            run(s);
        code = s->code;
    }
    return code;
}

int apple_instance_create(smelt_executable *executable, smelt_buffer *const *buffers, const uint64_t *ring_stride,
                          smelt_instance **instance, smelt_error *error) {
    Executable *p = (Executable *)executable;
    Instance *s = calloc(1, sizeof *s);
    smelt_buffer **host = calloc(p->buffer_count + 1, sizeof *host);
    s->executable = p;
    s->buffers = calloc(p->buffer_count + 1, sizeof *s->buffers);
    s->ring_stride = calloc(p->buffer_count + 1, sizeof *s->ring_stride);
    memcpy(s->ring_stride, ring_stride, p->buffer_count * sizeof *ring_stride);
    for (uint32_t i = 0; i < p->buffer_count; i++) {
        if (buffers[i] != NULL)
            host[i] = ((Memory *)buffers[i])->host;
        s->buffers[i] = (Memory *)buffers[i];
    }
    int code = host_of(p->gpu)->provider->instance_create(p->host, host, ring_stride, &s->host, error);
    free(host);
    POOL {
        s->fence = [p->gpu->device newFence];
        s->done = [p->gpu->device newSharedEvent];
        s->go = [p->gpu->device newSharedEvent];
        s->generation = p->gpu->generation;
        apple_join(p->gpu);
    }
    for (uint32_t i = 0; i < p->buffer_count; i++)
        if (s->buffers[i] == NULL)
            s->buffers[i] = p->buffers[i];
    if (code == SMELT_OK && (s->fence == nil || s->done == nil || s->go == nil))
        code = apple_fail(error, SMELT_ERROR_MEMORY, -1, "Metal refuses a fence or an event");
    if (code != SMELT_OK) {
        apple_instance_close((smelt_instance *)s);
        return code;
    }
    *instance = (smelt_instance *)s;
    return SMELT_OK;
}

// abandon waits once more for a GPU that did not respond. Memory that it still uses is never freed,
// as it may write there at any time.
static void abandon(Instance *s) {
    double end = milliseconds() + s->executable->gpu->options.timeout_ms;
    while (!recover(s)) {
        if (milliseconds() > end) {
            for (uint32_t i = 0; i < s->executable->buffer_count; i++)
                [s->buffers[i]->buffer retain];
            return;
        }
        [s->done waitUntilSignaledValue:s->done_value timeoutMS:answer_ms];
    }
}

void apple_instance_close(smelt_instance *instance) {
    Instance *s = (Instance *)instance;
    POOL {
        if (s->stuck)
            abandon(s);
        apple_leave(s->executable->gpu);
        [s->fence release];
        [s->done release];
        [s->go release];
    }
    if (s->host != NULL)
        host_of(s->executable->gpu)->provider->instance_close(s->host);
    free(s->buffers);
    free(s->ring_stride);
    free(s);
}

void apple_instance_cancel(smelt_instance *instance, uint32_t cancel) {
    __atomic_store_n(&((Instance *)instance)->cancel, cancel, __ATOMIC_RELAXED);
}
