//go:build cgo && ((darwin && arm64) || fakemetal)

// Pipelines: kernels with their function constants, compiled once for a device.
#import "apple.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *text(NSError *e) { return e == nil ? "no reason given" : [[e localizedDescription] UTF8String]; }

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

Pipeline *apple_pipeline(Gpu *g, const char *name, const uint32_t *constants, uint32_t constants_set, uint32_t threads,
                         smelt_error *error) {
    const smelt_function *f = NULL;
    for (uint32_t i = 0; i < g->options.function_count && f == NULL; i++)
        if (strcmp(g->options.functions[i].name, name) == 0)
            f = &g->options.functions[i];
    if (f == NULL) {
        apple_fail(error, SMELT_ERROR_KERNEL, -1, "no kernel is called %s", name);
        return NULL;
    }
    Pipeline wanted = {.function = f, .constants_set = constants_set, .whole = threads % 32 == 0};
    for (uint32_t i = 0; i < 32; i++)
        if ((constants_set >> i & 1) != 0)
            wanted.constants[i] = constants[i];
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

// apple_trial's kernel is a norm of equal numbers: a sum over simdgroups, threadgroup memory
// and a barrier.
enum { trial_width = 8 };

static int trial(Gpu *g, Pipeline *p, id<MTLBuffer> memory, id<MTLSharedEvent> done, smelt_error *error) {
    static const struct {
        uint32_t rows, width, x_stride;
        float eps;
    } params = {1, trial_width, trial_width, 0};
    float *x = [memory contents], *weight = x + trial_width, *out = weight + trial_width;
    for (uint32_t i = 0; i < trial_width; i++) {
        x[i] = i % 2 == 0 ? 3 : -3;
        weight[i] = (float)(i + 1);
    }
    MTLCommandBufferDescriptor *d = [[MTLCommandBufferDescriptor alloc] init];
    id<MTLCommandBuffer> buffer = [g->queue commandBufferWithDescriptor:d];
    [d release];
    id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
    [encoder setComputePipelineState:p->state];
    for (uint32_t i = 0; i < 3; i++)
        [encoder setBuffer:memory offset:i * trial_width * sizeof(float) atIndex:i];
    [encoder setBytes:&params length:sizeof params atIndex:3];
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
    [encoder endEncoding];
    [buffer encodeSignalEvent:done value:1];
    [buffer commit];
    if (![done waitUntilSignaledValue:1 timeoutMS:g->options.timeout_ms])
        return apple_fail(error, SMELT_ERROR_LOST, -1, "%s has not answered for %g s to a first small kernel",
                          [[g->device name] UTF8String], (double)g->options.timeout_ms / 1000);
    [buffer waitUntilCompleted];
    if ([buffer status] == MTLCommandBufferStatusError)
        return apple_fail(error, SMELT_ERROR_LOST, -1, "%s fails at a first small kernel: %s",
                          [[g->device name] UTF8String], text([buffer error]));
    for (uint32_t i = 0; i < trial_width; i++) {
        float want = i % 2 == 0 ? weight[i] : -weight[i];
        if (!(fabsf(out[i] - want) < 1e-3f))
            return apple_fail(error, SMELT_ERROR_LOST, -1,
                              "%s runs kernels that compute nothing: a first small one left %g for %g",
                              [[g->device name] UTF8String], (double)out[i], (double)want);
    }
    return SMELT_OK;
}

int apple_trial(Gpu *g, smelt_error *error) {
    Pipeline *p = apple_pipeline(g, "rms_norm_f32_f32", NULL, 0, 64, error);
    if (p == NULL)
        return error->code;
    id<MTLBuffer> memory = [g->device newBufferWithLength:3 * trial_width * sizeof(float) options:apple_memory];
    id<MTLSharedEvent> done = [g->device newSharedEvent];
    int code = memory != nil && done != nil
                   ? trial(g, p, memory, done, error)
                   : apple_fail(error, SMELT_ERROR_MEMORY, -1, "Metal refuses %u bytes or an event",
                                (unsigned)(3 * trial_width * sizeof(float)));
    [memory release];
    [done release];
    return code;
}
