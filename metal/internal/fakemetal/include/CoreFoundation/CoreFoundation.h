// What the bridge uses of Core Foundation, for compilers without Apple's headers. Its objects
// are counted by who calls a function with Create in its name.
#ifndef FAKE_CORE_FOUNDATION_H
#define FAKE_CORE_FOUNDATION_H

#include <stdint.h>

typedef const void *CFTypeRef;
typedef const struct FakeNumber *CFNumberRef;
typedef const char *CFStringRef;
typedef const struct FakeAllocator *CFAllocatorRef;
typedef struct FakeMatching *CFMutableDictionaryRef;
typedef const struct FakeMatching *CFDictionaryRef;
typedef unsigned long CFTypeID;
typedef uint32_t CFOptionFlags;
typedef unsigned char Boolean;
typedef enum { kCFNumberSInt32Type = 3 } CFNumberType;

#define kCFAllocatorDefault ((CFAllocatorRef)0)
#define CFSTR(text) (text)

CFTypeID CFGetTypeID(CFTypeRef object);
CFTypeID CFNumberGetTypeID(void);
Boolean CFNumberGetValue(CFNumberRef number, CFNumberType type, void *value);
void CFRelease(CFTypeRef object);

#endif
