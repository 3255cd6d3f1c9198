//go:build fakemetal

// Programs that use Metal wrongly, each in one way, to test that the fake detects it.
#import "objects.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Scene holds the objects that the programs use.
typedef struct Scene {
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
    id<MTLComputePipelineState> pipeline; // of scale_f32
    id<MTLBuffer> from, to;
    id<MTLCommandBuffer> buffer;
    id<MTLComputeCommandEncoder> encoder;
    uint32_t params[5];
} Scene;

static const MTLResourceOptions shared = MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked;

static id<MTLComputeCommandEncoder> encoder(Scene *s) {
    MTLCommandBufferDescriptor *d = [[[MTLCommandBufferDescriptor alloc] init] autorelease];
    [d setRetainedReferences:NO];
    s->buffer = [s->queue commandBufferWithDescriptor:d];
    return s->encoder = [s->buffer computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
}

static void bind(Scene *s) {
    [s->encoder setComputePipelineState:s->pipeline];
    [s->encoder setBuffer:s->from offset:0 atIndex:0];
    [s->encoder setBuffer:s->to offset:0 atIndex:1];
    [s->encoder setBytes:s->params length:sizeof s->params atIndex:2];
}

static void dispatch(Scene *s, NSUInteger groups, NSUInteger threads) {
    [s->encoder dispatchThreadgroups:MTLSizeMake(groups, 1, 1) threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
}

static void finish(Scene *s) {
    [s->encoder endEncoding];
    [s->buffer commit];
    [s->buffer waitUntilCompleted];
}

static void right(Scene *s) {
    encoder(s);
    bind(s);
    dispatch(s, 1, 256);
    finish(s);
}
static void unbound(Scene *s) {
    encoder(s);
    bind(s);
    [s->encoder setBuffer:nil offset:0 atIndex:1];
    dispatch(s, 1, 256);
    [s->encoder endEncoding];
}
static void misaligned(Scene *s) {
    encoder(s);
    bind(s);
    [s->encoder setBuffer:s->from offset:2 atIndex:0];
    dispatch(s, 1, 256);
    [s->encoder endEncoding];
}
static void past_the_end(Scene *s) {
    encoder(s);
    [s->encoder setBuffer:s->from offset:64 atIndex:0];
    [s->encoder endEncoding];
}
static void written_bytes(Scene *s) {
    encoder(s);
    bind(s);
    [s->encoder setBytes:s->params length:sizeof s->params atIndex:1];
    dispatch(s, 1, 256);
    [s->encoder endEncoding];
}
static void short_params(Scene *s) {
    encoder(s);
    bind(s);
    [s->encoder setBytes:s->params length:16 atIndex:2];
    dispatch(s, 1, 256);
    [s->encoder endEncoding];
}
static void many_bytes(Scene *s) {
    static char bytes[4097];
    encoder(s);
    [s->encoder setBytes:bytes length:sizeof bytes atIndex:2];
    [s->encoder endEncoding];
}
static void many_threads(Scene *s) {
    encoder(s);
    bind(s);
    dispatch(s, 1, 512);
    [s->encoder endEncoding];
}
static void much_memory(Scene *s) {
    encoder(s);
    bind(s);
    [s->encoder setThreadgroupMemoryLength:32784 atIndex:0];
    dispatch(s, 1, 256);
    [s->encoder endEncoding];
}
static void odd_memory(Scene *s) {
    encoder(s);
    [s->encoder setThreadgroupMemoryLength:20 atIndex:0];
    [s->encoder endEncoding];
}
static void no_pipeline(Scene *s) {
    encoder(s);
    dispatch(s, 1, 256);
    [s->encoder endEncoding];
}
static void no_grid(Scene *s) {
    encoder(s);
    bind(s);
    dispatch(s, 0, 256);
    [s->encoder endEncoding];
}
static void not_ended(Scene *s) {
    encoder(s);
    [s->buffer commit];
    [s->encoder endEncoding];
}
static void two_encoders(Scene *s) {
    id<MTLComputeCommandEncoder> first = encoder(s);
    id<MTLComputeCommandEncoder> second = [s->buffer computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
    [first endEncoding];
    [second endEncoding];
}
static void after_end(Scene *s) {
    encoder(s);
    [s->encoder endEncoding];
    [s->encoder setBuffer:s->from offset:0 atIndex:0];
}
static void twice(Scene *s) {
    right(s);
    [s->buffer commit];
}
static void never_committed(Scene *s) {
    encoder(s);
    [s->encoder endEncoding];
    [s->buffer waitUntilCompleted];
}
static void released(Scene *s) {
    encoder(s);
    bind(s);
    dispatch(s, 1, 256);
    [s->to release];
    s->to = nil;
    finish(s);
}
static void late_fence(Scene *s) {
    id<MTLFence> fence = [s->device newFence];
    encoder(s);
    bind(s);
    dispatch(s, 1, 256);
    [s->encoder waitForFence:fence];
    finish(s);
    [fence release];
}
static void part_of_a_page(Scene *s) {
    static char memory[1 << 16];
    [[s->device newBufferWithBytesNoCopy:memory + 8 length:100 options:shared deallocator:NULL] release];
}
static void samples_past_the_end(Scene *s) {
    NSError *e = nil;
    MTLCounterSampleBufferDescriptor *d = [[[MTLCounterSampleBufferDescriptor alloc] init] autorelease];
    [d setCounterSet:[[s->device counterSets] objectAtIndex:0]];
    [d setSampleCount:2];
    id<MTLCounterSampleBuffer> samples = [s->device newCounterSampleBufferWithDescriptor:d error:&e];
    [samples resolveCounterRange:NSMakeRange(1, 2)];
    [samples release];
}
static void samples_inside(Scene *s) {
    NSError *e = nil;
    MTLCounterSampleBufferDescriptor *d = [[[MTLCounterSampleBufferDescriptor alloc] init] autorelease];
    [d setCounterSet:[[s->device counterSets] objectAtIndex:0]];
    [d setSampleCount:2];
    id<MTLCounterSampleBuffer> samples = [s->device newCounterSampleBufferWithDescriptor:d error:&e];
    encoder(s);
    [s->encoder sampleCountersInBuffer:samples atSampleIndex:0 withBarrier:YES];
    [s->encoder endEncoding];
    [samples release];
}
static void never_written(Scene *s) {
    id<MTLBuffer> fresh = [s->device newBufferWithLength:64 options:shared];
    encoder(s);
    bind(s);
    [s->encoder setBuffer:fresh offset:0 atIndex:0];
    dispatch(s, 1, 256);
    finish(s);
    [fresh release];
}
static void no_pool(Scene *s) {
    (void)s;
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init], *inner = [[NSAutoreleasePool alloc] init];
    [pool drain]; // before the one that lies on it
    [inner drain];
    [pool drain];
}

static const struct {
    const char *name;
    void (*run)(Scene *scene);
} programs[] = {
    {"right", right},
    {"unbound buffer", unbound},
    {"misaligned offset", misaligned},
    {"offset past the end", past_the_end},
    {"bytes where a kernel writes", written_bytes},
    {"short parameters", short_params},
    {"setBytes over 4 KB", many_bytes},
    {"too many threads", many_threads},
    {"over 32 KB", much_memory},
    {"odd threadgroup memory", odd_memory},
    {"no pipeline", no_pipeline},
    {"empty grid", no_grid},
    {"encoder not ended", not_ended},
    {"two encoders", two_encoders},
    {"use after endEncoding", after_end},
    {"commit twice", twice},
    {"wait before commit", never_committed},
    {"buffer released too early", released},
    {"late fence", late_fence},
    {"memory that is no whole page", part_of_a_page},
    {"samples past the end", samples_past_the_end},
    {"samples inside a pass", samples_inside},
    {"read of unwritten bytes", never_written},
    {"pools out of order", no_pool},
};

const char *fake_program(uint32_t index) {
    if (index >= sizeof programs / sizeof *programs)
        return NULL;
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    NSError *e = nil;
    Scene s = {.device = MTLCreateSystemDefaultDevice(), .params = {1, 3, 3, 3, 0x40000000}};
    s.queue = [s.device newCommandQueueWithMaxCommandBufferCount:4];
    MTLCompileOptions *o = [[[MTLCompileOptions alloc] init] autorelease];
    [o setLanguageVersion:MTLLanguageVersion3_1];
    [o setFastMathEnabled:NO];
    id<MTLLibrary> library = [s.device newLibraryWithSource:fake_string(fake_source("scale_f32")) options:o error:&e];
    MTLFunctionConstantValues *none = [[[MTLFunctionConstantValues alloc] init] autorelease];
    MTLComputePipelineDescriptor *d = [[[MTLComputePipelineDescriptor alloc] init] autorelease];
    id<MTLFunction> f = [library newFunctionWithName:fake_string("scale_f32") constantValues:none error:&e];
    [d setComputeFunction:f];
    s.pipeline = [s.device newComputePipelineStateWithDescriptor:d
                                                         options:MTLPipelineOptionNone
                                                      reflection:NULL
                                                           error:&e];
    s.from = [s.device newBufferWithLength:64 options:shared];
    s.to = [s.device newBufferWithLength:64 options:shared];
    memset([s.from contents], 0, 64);
    programs[index].run(&s);
    [pool drain];
    [f release];
    [library release];
    [s.pipeline release];
    [s.from release];
    [s.to release];
    [s.queue release];
    [(id)s.device release];
    return programs[index].name;
}
