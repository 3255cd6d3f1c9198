// What the bridge uses of the I/O registry.
#ifndef FAKE_IOKIT_H
#define FAKE_IOKIT_H

#include <CoreFoundation/CoreFoundation.h>

typedef uint32_t io_service_t;
typedef uint32_t io_object_t;
typedef uint32_t io_registry_entry_t;
typedef uint32_t mach_port_t;
typedef int kern_return_t;
typedef uint32_t IOOptionBits;

#define kIOMainPortDefault ((mach_port_t)0)

// The result is used up by the function that looks for a match.
CFMutableDictionaryRef IOServiceMatching(const char *name);
io_service_t IOServiceGetMatchingService(mach_port_t port, CFDictionaryRef matching);
CFTypeRef IORegistryEntryCreateCFProperty(io_registry_entry_t entry, CFStringRef key, CFAllocatorRef allocator,
                                          IOOptionBits options);
kern_return_t IOObjectRelease(io_object_t object);

#endif
