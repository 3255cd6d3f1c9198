//go:build cgo && ((darwin && arm64) || fakemetal)

// Pipelines: kernels with their function constants. Each is compiled by itself and once
// per device, from a text in which macros choose the kernel and hold its constants, so that the
// front end parses one instance and the decoders of its types only. The compiled code is kept in
// a file per pipeline for later processes.
#import "apple.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *text(NSError *e) { return e == nil ? "no reason given" : [[e localizedDescription] UTF8String]; }

static const smelt_function *function(const Gpu *g, const char *name) {
    for (uint32_t i = 0; i < g->options.function_count; i++)
        if (strcmp(g->options.functions[i].name, name) == 0)
            return &g->options.functions[i];
    return NULL;
}

static BOOL is_boolean(const Pipeline *p, uint32_t constant) { return (p->function->booleans >> constant & 1) != 0; }
static BOOL is_set(const Pipeline *p, uint32_t constant) { return (p->constants_set >> constant & 1) != 0; }

// find returns the device's pipeline that equals the wanted one, and adds it without a state if
// there is none; make sets the state.
static Pipeline *find(Gpu *g, const Pipeline *wanted) {
    for (Pipeline *p = g->pipelines; p != NULL; p = p->next)
        if (p->function == wanted->function && p->constants_set == wanted->constants_set && p->whole == wanted->whole &&
            memcmp(p->constants, wanted->constants, sizeof p->constants) == 0)
            return p;
    Pipeline *p = malloc(sizeof *p);
    *p = *wanted;
    p->next = g->pipelines;
    return g->pipelines = p;
}

// single compiles a library of one kernel.
static id<MTLLibrary> single(Gpu *g, const Pipeline *p, NSError **e) {
    const smelt_function *f = p->function;
    id names[33], values[33];
    NSUInteger count = 0;
    if (f->instance != NULL) {
        names[count] = [NSString stringWithUTF8String:f->instance];
        values[count++] = [NSString stringWithUTF8String:"1"];
    }
    for (uint32_t i = 0; i < 32; i++) {
        char value[16];
        if (!is_set(p, i) || f->macros[i] == NULL)
            continue;
        if (is_boolean(p, i))
            snprintf(value, sizeof value, "%s", p->constants[i] != 0 ? "true" : "false");
        else
            snprintf(value, sizeof value, "%uu", p->constants[i]);
        names[count] = [NSString stringWithUTF8String:f->macros[i]];
        values[count++] = [NSString stringWithUTF8String:value];
    }
    MTLCompileOptions *o = [[MTLCompileOptions alloc] init];
    [o setLanguageVersion:MTLLanguageVersion3_1];
    [o setFastMathEnabled:NO]; // masks and softmax rely on infinities
    [o setPreprocessorMacros:[NSDictionary dictionaryWithObjects:values forKeys:names count:count]];
    NSString *source = [NSString stringWithUTF8String:g->options.sources[f->source].text];
    id<MTLLibrary> library = [g->device newLibraryWithSource:source options:o error:e];
    [o release];
    return library;
}

// specialised returns a kernel of the compiled library, with its function constants.
static id<MTLFunction> specialised(Gpu *g, const Pipeline *p, NSString *name, NSError **e) {
    MTLFunctionConstantValues *values = [[MTLFunctionConstantValues alloc] init];
    for (uint32_t i = 0; i < 32; i++) {
        BOOL boolean = p->constants[i] != 0;
        if (!is_set(p, i))
            continue;
        if (is_boolean(p, i))
            [values setConstantValue:&boolean type:MTLDataTypeBool atIndex:i];
        else
            [values setConstantValue:&p->constants[i] type:MTLDataTypeUInt atIndex:i];
    }
    id<MTLFunction> f = [g->library newFunctionWithName:name constantValues:values error:e];
    [values release];
    return f;
}

// archive_path writes the path of a pipeline's archive, whose file name is its whole description.
static BOOL archive_path(const Gpu *g, const Pipeline *p, char *path, size_t room) {
    if (g->archives == NULL || g->library != nil)
        return NO;
    size_t n = (size_t)snprintf(path, room, "%s/%s", g->archives, p->function->name);
    for (uint32_t i = 0; i < 32 && n < room; i++)
        if (is_set(p, i))
            n += (size_t)snprintf(path + n, room - n, "-%u.%u", i, p->constants[i]);
    if (n < room)
        n += (size_t)snprintf(path + n, room - n, "%s-%s.metalarchive", p->whole ? "" : "-part",
                              g->options.sources[p->function->source].hash);
    return n < room;
}

// archive opens an archive file, or makes an empty archive.
static id<MTLBinaryArchive> archive(Gpu *g, const char *path) {
    NSError *ignored = nil; // a damaged archive, or one of another system, is replaced
    MTLBinaryArchiveDescriptor *d = [[MTLBinaryArchiveDescriptor alloc] init];
    if (path != NULL)
        [d setUrl:[NSURL fileURLWithPath:[NSString stringWithUTF8String:path]]];
    id<MTLBinaryArchive> a = [g->device newBinaryArchiveWithDescriptor:d error:&ignored];
    [d release];
    return a;
}

// keep writes a pipeline's archive. Another process may do the same, so the file is replaced
// atomically.
static void keep(id<MTLBinaryArchive> a, const char *path) {
    char making[1100];
    NSError *ignored = nil; // then it is compiled again
    snprintf(making, sizeof making, "%s.%d", path, (int)getpid());
    if (![a serializeToURL:[NSURL fileURLWithPath:[NSString stringWithUTF8String:making]] error:&ignored] ||
        rename(making, path) != 0)
        unlink(making);
}

// state makes the pipeline of a descriptor, from its archive if there is one.
static id<MTLComputePipelineState> state(Gpu *g, Pipeline *p, MTLComputePipelineDescriptor *d, NSError **e) {
    char path[1024];
    id<MTLBinaryArchive> a = nil;
    id<MTLComputePipelineState> s = nil;
    BOOL keeps = archive_path(g, p, path, sizeof path);
    if (keeps && access(path, R_OK) == 0 && (a = archive(g, path)) != nil) {
        [d setBinaryArchives:[NSArray arrayWithObjects:(const id *)&a count:1]];
        s = [g->device newComputePipelineStateWithDescriptor:d
                                                     options:MTLPipelineOptionFailOnBinaryArchiveMiss
                                                  reflection:NULL
                                                       error:e];
        [a release];
        p->kept = s != nil;
        if (s != nil)
            return s;
    }
    // Adding it compiles it; the pipeline is then made from the archive.
    a = keeps ? archive(g, NULL) : nil;
    BOOL added = a != nil && [a addComputePipelineFunctionsWithDescriptor:d error:e];
    [d setBinaryArchives:added ? [NSArray arrayWithObjects:(const id *)&a count:1] : nil];
    s = [g->device newComputePipelineStateWithDescriptor:d options:MTLPipelineOptionNone reflection:NULL error:e];
    if (added && s != nil)
        keep(a, path);
    [a release];
    return s;
}

// make compiles a pipeline that is not compiled yet.
static int make(Gpu *g, Pipeline *p, smelt_error *error) {
    if (p->state != nil)
        return SMELT_OK;
    NSError *e = nil;
    NSString *name = [NSString stringWithUTF8String:p->function->name];
    id<MTLFunction> f = nil;
    if (g->library != nil) {
        f = specialised(g, p, name, &e);
    } else {
        id<MTLLibrary> library = single(g, p, &e);
        f = [library newFunctionWithName:name];
        [library release];
    }
    if (f != nil) {
        MTLComputePipelineDescriptor *d = [[MTLComputePipelineDescriptor alloc] init];
        [d setComputeFunction:f];
        [d setLabel:name];
        [d setMaxTotalThreadsPerThreadgroup:p->function->max_threads];
        [d setThreadGroupSizeIsMultipleOfThreadExecutionWidth:p->whole];
        p->state = state(g, p, d, &e);
        [d release];
        [f release];
    }
    if (p->state == nil)
        return apple_fail(error, SMELT_ERROR_KERNEL, -1, "%s: %s", p->function->name, text(e));
    return SMELT_OK;
}

// Queue holds the pipelines that several threads compile.
typedef struct Queue {
    Gpu *gpu;
    Pipeline **pipelines;
    uint32_t count, next;
    pthread_mutex_t lock; // of the following fields, the first failure
    Pipeline *failed;
    smelt_error *error;
} Queue;

static void *compile(void *of) {
    Queue *q = of;
    for (;;) {
        uint32_t i = __atomic_fetch_add(&q->next, 1, __ATOMIC_RELAXED);
        if (i >= q->count)
            return NULL;
        smelt_error error;
        int code = SMELT_OK;
        POOL { code = make(q->gpu, q->pipelines[i], &error); }
        pthread_mutex_lock(&q->lock);
        if (code != SMELT_OK && q->failed == NULL) {
            q->failed = q->pipelines[i];
            *q->error = error;
        }
        pthread_mutex_unlock(&q->lock);
    }
}

// compile_all compiles pipelines, as many at a time as the device has threads, and returns
// one that failed, or null.
static Pipeline *compile_all(Gpu *g, Pipeline **pipelines, uint32_t count, smelt_error *error) {
    enum { most = 16 };
    Queue q = {g, pipelines, count, 0, PTHREAD_MUTEX_INITIALIZER, NULL, error};
    pthread_t threads[most];
    uint32_t wanted = g->options.threads < count ? g->options.threads : count, running = 0;
    while (running + 1 < wanted && running < most && pthread_create(&threads[running], NULL, compile, &q) == 0)
        running++;
    compile(&q);
    while (running > 0)
        pthread_join(threads[--running], NULL);
    pthread_mutex_destroy(&q.lock);
    return q.failed;
}

// fits fails if a dispatch has more threads per threadgroup than its pipeline allows: registers can
// leave fewer than the source allows.
static int fits(const Gpu *g, const Pipeline *p, uint32_t dispatch, uint32_t threads, smelt_error *error) {
    if ([p->state maxTotalThreadsPerThreadgroup] >= threads && [p->state threadExecutionWidth] == 32 &&
        [p->state staticThreadgroupMemoryLength] <= [g->device maxThreadgroupMemoryLength])
        return SMELT_OK;
    return apple_fail(error, SMELT_ERROR_KERNEL, dispatch,
                      "%s needs threadgroups of %u threads and %lu bytes, and this GPU has room for %lu threads of "
                      "simdgroups of %lu, and %lu bytes",
                      p->function->name, threads, (unsigned long)[p->state staticThreadgroupMemoryLength],
                      (unsigned long)[p->state maxTotalThreadsPerThreadgroup],
                      (unsigned long)[p->state threadExecutionWidth],
                      (unsigned long)[g->device maxThreadgroupMemoryLength]);
}

static uint32_t threads_of(const smelt_dispatch *d) { return d->group[0] * d->group[1] * d->group[2]; }

// want sets the pipelines of the dispatches, and returns the missing ones, to be compiled.
static int want(Executable *p, const smelt_tables *t, Pipeline **missing, uint32_t *count, smelt_error *error) {
    for (uint32_t i = 0; i < p->dispatch_count; i++) {
        const smelt_dispatch *d = &p->dispatches[i];
        const char *name = t->names + t->kernel_name[d->kernel];
        Pipeline wanted = {.constants_set = d->constants_set, .whole = threads_of(d) % 32 == 0};
        if (d->on_cpu)
            continue;
        if ((wanted.function = function(p->gpu, name)) == NULL)
            return apple_fail(error, SMELT_ERROR_KERNEL, i, "no kernel is called %s", name);
        for (uint32_t c = 0; c < 32; c++)
            if (is_set(&wanted, c))
                wanted.constants[c] = t->constants[d->first_constant + c];
        Pipeline *found = p->by_index[i] = find(p->gpu, &wanted);
        BOOL known = found->state != nil;
        for (uint32_t j = 0; j < *count && !known; j++)
            known = missing[j] == found;
        if (!known)
            missing[(*count)++] = found;
    }
    return SMELT_OK;
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int apple_pipelines(Executable *p, const smelt_tables *t, smelt_error *error) {
    uint64_t begin = now();
    uint32_t count = 0;
    Pipeline **missing = calloc(p->dispatch_count + 1, sizeof *missing), *failed = NULL;
    int code = want(p, t, missing, &count, error);
    if (code == SMELT_OK && (failed = compile_all(p->gpu, missing, count, error)) != NULL)
        code = error->code;
    for (uint32_t i = 0; i < p->dispatch_count && failed != NULL; i++)
        if (p->by_index[i] == failed) {
            error->dispatch = (int32_t)i;
            break;
        }
    for (uint32_t i = 0; i < p->dispatch_count && code == SMELT_OK; i++)
        if (p->by_index[i] != NULL)
            code = fits(p->gpu, p->by_index[i], i, threads_of(&p->dispatches[i]), error);
    p->compiled = (smelt_compiled){count, 0, now() - begin};
    for (uint32_t i = 0; i < count; i++)
        p->compiled.kept += missing[i]->kept;
    free(missing);
    return code;
}

int apple_open_pipelines(Gpu *g, smelt_error *error) {
    NSError *e = nil;
    const char *name = g->options.library;
    if (name != NULL) {
        NSURL *url = [NSURL fileURLWithPath:[NSString stringWithUTF8String:name]];
        g->library = [g->device newLibraryWithURL:url error:&e];
        return g->library != nil ? SMELT_OK : apple_fail(error, SMELT_ERROR_KERNEL, -1, "%s: %s", name, text(e));
    }
    [g->device setShouldMaximizeConcurrentCompilation:YES];
    if (g->options.archives == NULL)
        return SMELT_OK;
    const char *gpu = [[g->device name] UTF8String];
    size_t room = strlen(g->options.archives) + strlen(gpu) + 2;
    g->archives = malloc(room);
    size_t n = (size_t)snprintf(g->archives, room, "%s/", g->options.archives);
    for (; *gpu != 0; gpu++)
        g->archives[n++] = *gpu == ' ' || *gpu == '/' ? '-' : *gpu;
    g->archives[n] = 0;
    mkdir(g->archives, 0755); // if that fails, nothing is kept
    return SMELT_OK;
}

void apple_close_pipelines(Gpu *g) {
    while (g->pipelines != NULL) {
        Pipeline *p = g->pipelines;
        g->pipelines = p->next;
        [p->state release];
        free(p);
    }
    [g->library release];
    free(g->archives);
}
