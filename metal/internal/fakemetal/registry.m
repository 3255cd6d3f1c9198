//go:build fakemetal

// The I/O registry: the entry of the GPU's driver, with the number of its cores. Objects made
// here count as alive until they are released.
#import "objects.h"

#include <CoreFoundation/CoreFoundation.h>
#include <IOKit/IOKitLib.h>
#include <stdlib.h>
#include <string.h>

enum { agx = 0x1a6 }; // the entry's handle

struct FakeMatching {
    char name[64];
};
struct FakeNumber {
    int32_t value;
};

static void alive(int by) { __atomic_add_fetch(&machine.state.objects, by, __ATOMIC_RELAXED); }

CFMutableDictionaryRef IOServiceMatching(const char *name) {
    CFMutableDictionaryRef matching = calloc(1, sizeof *matching);
    strncpy(matching->name, name, sizeof matching->name - 1);
    alive(1);
    return matching;
}

io_service_t IOServiceGetMatchingService(mach_port_t port, CFDictionaryRef matching) {
    (void)port;
    BOOL found = machine.options.cores > 0 && strcmp(matching->name, "AGXAccelerator") == 0;
    free((void *)matching);
    alive(found ? 0 : -1);
    return found ? agx : 0;
}

CFTypeRef IORegistryEntryCreateCFProperty(io_registry_entry_t entry, CFStringRef key, CFAllocatorRef allocator,
                                          IOOptionBits options) {
    (void)allocator, (void)options;
    if (entry != agx)
        fake_misuse("a property of %u, which is no entry of the registry", entry);
    if (strcmp(key, "gpu-core-count") != 0)
        return NULL;
    struct FakeNumber *number = malloc(sizeof *number);
    number->value = (int32_t)machine.options.cores;
    alive(1);
    return number;
}

CFTypeID CFNumberGetTypeID(void) { return 22; }
CFTypeID CFGetTypeID(CFTypeRef object) { return object == NULL ? 0 : CFNumberGetTypeID(); }

Boolean CFNumberGetValue(CFNumberRef number, CFNumberType type, void *value) {
    if (type != kCFNumberSInt32Type)
        fake_misuse("a number is read as type %d", (int)type);
    memcpy(value, &number->value, sizeof number->value);
    return 1;
}

void CFRelease(CFTypeRef object) {
    if (object == NULL) {
        fake_misuse("null is released");
        return;
    }
    free((void *)object);
    alive(-1);
}

kern_return_t IOObjectRelease(io_object_t object) {
    if (object != agx)
        fake_misuse("%u is released, which is no entry of the registry", object);
    else
        alive(-1);
    return 0;
}
