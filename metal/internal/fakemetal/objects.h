// The fake's own classes, and what its files share.
#ifndef FAKE_METAL_OBJECTS_H
#define FAKE_METAL_OBJECTS_H

#import <Metal/Metal.h>
#include <pthread.h>

#include "control.h"

// Machine is the state of the one device. Its lock guards all fields, and those of queues, command
// buffers and fences; changed is signalled whenever a command buffer or an event advances.
typedef struct Machine {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    fake_options options;
    fake_state state;
    uint32_t fault;
    uint64_t fault_after;
    BOOL hung, removed;
    uint64_t random;
    uint64_t barriers_seen, fences_seen, events_seen;
    uint64_t rushed; // ticket of a command buffer that the CPU sees end before any earlier one
    uint64_t in_flight;
    uint64_t held; // bytes of buffers
} Machine;

extern Machine machine;

// fake_misuse reports an error of Metal's validation layer: it ends the process, or keeps the
// message under options.collect.
__attribute__((format(printf, 1, 2))) void fake_misuse(const char *format, ...);

// fake_random returns a number below n. The machine must be locked.
uint64_t fake_random(uint64_t n);

// fake_constants makes Metal's constant strings, which are not counted as objects.
void fake_constants(void);

// fake_source returns the source that holds a kernel.
const char *fake_source(const char *kernel);

// fake_alive returns whether an object still has references.
BOOL fake_alive(id object);

NSString *fake_string(const char *text); // autoreleased
NSData *fake_data(const void *bytes, NSUInteger length);
NSArray *fake_array(id *objects, NSUInteger count);
NSDictionary *fake_dictionary(NSString *key, id value);
NSError *fake_error(const char *domain, NSInteger code, NSDictionary *info, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// Kernel is a fake_kernel that the fake keeps.
typedef struct Kernel {
    struct Kernel *next;
    fake_kernel described;
} Kernel;

@interface FakeBuffer : NSObject <MTLBuffer> {
@public
    uint8_t *memory;
    NSUInteger length;
    BOOL owned;
}
@end

@interface FakeFunction : NSObject <MTLFunction> {
@public
    const Kernel *kernel;
    MTLFunctionConstantValues *values;
    char *made_of; // the text and the macros, by which archives identify it
}
@end

@interface FakePipeline : NSObject <MTLComputePipelineState> {
@public
    const Kernel *kernel;
    const void *emulated;
    uint32_t constants[32];
    uint32_t set;
    NSUInteger most;
    BOOL whole;
}
@end

@interface FakeFence : NSObject <MTLFence> {
@public
    uint64_t updated_by; // ticket of the last committed command buffer that updates it; 0 for none
}
@end

@interface FakeEvent : NSObject <MTLSharedEvent> {
@public
    uint64_t value;
}
@end

@interface FakeSamples : NSObject <MTLCounterSampleBuffer> {
@public
    uint64_t *times;
    NSUInteger count;
}
@end

// Line is what a queue and its thread share; it outlives a queue whose last reference
// is the thread's.
typedef struct Line {
    pthread_t thread;
    BOOL closing, orphaned;
    id *waiting; // committed command buffers, in order
    NSUInteger count, room;
    NSUInteger limit; // of command buffers that are not complete
    NSUInteger made;  // that are not complete
    BOOL faulted;     // what follows is ignored
} Line;

@interface FakeQueue : NSObject <MTLCommandQueue> {
@public
    Line *line;
    NSUInteger sets; // of residency
}
- (id)initWithLimit:(NSUInteger)limit;
- (void)addResidencySet:(id)set;
- (void)removeResidencySet:(id)set;
@end

#endif
