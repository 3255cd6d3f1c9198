//go:build fakemetal

// Foundation's root: counted objects, pools, strings, errors.
#import "objects.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Released objects stay in quarantine, so that a late message finds a zombie.
enum { quarantine_size = 8192 };
static void *quarantine[quarantine_size];
static uint64_t buried;

@interface FakeZombie : NSObject
@end
@implementation FakeZombie
- (void)doesNotRecognize:(SEL)selector {
    fake_misuse("-%s sent to a released object", sel_getName(selector));
}
- (id)retain {
    fake_misuse("a released object is retained");
    return self;
}
- (oneway void)release {
    fake_misuse("a released object is released again");
}
- (id)autorelease {
    fake_misuse("a released object is autoreleased");
    return self;
}
- (void)dealloc {
    abort(); // nothing sends this to a zombie
    [super dealloc];
}
@end

BOOL fake_alive(id object) { return object_getClass(object) != objc_getClass("FakeZombie"); }

static __thread NSAutoreleasePool *pool;

@implementation NSObject
+ (void)initialize {
}
+ (Class)class {
    return self;
}
+ (id)alloc {
    NSObject *object = class_createInstance(self, 0);
    object->references = 1;
    __atomic_add_fetch(&machine.state.objects, 1, __ATOMIC_RELAXED);
    return object;
}
+ (id)new {
    return [[self alloc] init];
}
- (id)init {
    return self;
}
- (void)dealloc {
    __atomic_sub_fetch(&machine.state.objects, 1, __ATOMIC_RELAXED);
    object_setClass(self, objc_getClass("FakeZombie"));
    uint64_t grave = __atomic_fetch_add(&buried, 1, __ATOMIC_RELAXED) % quarantine_size;
    void *oldest = __atomic_exchange_n(&quarantine[grave], (void *)self, __ATOMIC_ACQ_REL);
    if (oldest != NULL)
        object_dispose((id)oldest);
}
- (id)retain {
    __atomic_add_fetch(&references, 1, __ATOMIC_RELAXED);
    return self;
}
- (oneway void)release {
    if (__atomic_sub_fetch(&references, 1, __ATOMIC_ACQ_REL) == 0)
        [self dealloc];
}
- (NSUInteger)retainCount {
    return (NSUInteger)references;
}
- (id)autorelease {
    if (pool == nil) {
        fake_misuse("%s is autoreleased without a pool: it leaks", class_getName(object_getClass(self)));
        return self;
    }
    [pool addObject:self];
    return self;
}
- (BOOL)respondsToSelector:(SEL)selector {
    return class_respondsToSelector(object_getClass(self), selector);
}
@end

@implementation NSAutoreleasePool
- (id)init {
    outer = pool;
    pool = self;
    return self;
}
- (void)addObject:(id)object {
    if (count == room) {
        room = room * 2 + 32;
        objects = realloc(objects, room * sizeof *objects);
    }
    objects[count++] = object;
}
- (void)drain {
    if (pool != self) {
        fake_misuse("a pool is drained while another lies on it");
        return;
    }
    for (NSUInteger i = 0; i < count; i++)
        [objects[i] release];
    pool = outer;
    [self release];
}
- (void)dealloc {
    free(objects);
    [super dealloc];
}
@end

// clang's @autoreleasepool.
void *objc_autoreleasePoolPush(void);
void objc_autoreleasePoolPop(void *pushed);
void *objc_autoreleasePoolPush(void) { return [[NSAutoreleasePool alloc] init]; }
void objc_autoreleasePoolPop(void *pushed) { [(NSAutoreleasePool *)pushed drain]; }

@implementation NSString
+ (NSString *)stringWithUTF8String:(const char *)text {
    NSString *s = [[NSString alloc] init];
    s->text = strdup(text);
    return [s autorelease];
}
- (const char *)UTF8String {
    return text;
}
- (void)dealloc {
    free(text);
    [super dealloc];
}
@end

NSString *fake_string(const char *text) { return [NSString stringWithUTF8String:text]; }

@implementation NSURL
+ (NSURL *)fileURLWithPath:(NSString *)path {
    NSURL *url = [[NSURL alloc] init];
    url->path = [path retain];
    return [url autorelease];
}
- (NSString *)path {
    return path;
}
- (void)dealloc {
    [path release];
    [super dealloc];
}
@end

@implementation NSData
- (id)initWithBytes:(const void *)from length:(NSUInteger)n {
    bytes = memcpy(malloc(n + 1), from, n);
    length = n;
    return self;
}
- (const void *)bytes {
    return bytes;
}
- (NSUInteger)length {
    return length;
}
- (void)dealloc {
    free(bytes);
    [super dealloc];
}
@end

NSData *fake_data(const void *bytes, NSUInteger length) {
    return [[[NSData alloc] initWithBytes:bytes length:length] autorelease];
}

@implementation NSArray
+ (NSArray *)arrayWithObjects:(const id *)from count:(NSUInteger)n {
    return [[[NSArray alloc] initWithObjects:from count:n] autorelease];
}
- (id)initWithObjects:(const id *)from count:(NSUInteger)n {
    objects = malloc((n + 1) * sizeof *objects);
    count = n;
    for (NSUInteger i = 0; i < n; i++)
        objects[i] = [from[i] retain];
    return self;
}
- (NSUInteger)count {
    return count;
}
- (id)objectAtIndex:(NSUInteger)index {
    if (index >= count) {
        fake_misuse("object %lu of an array of %lu", index, count);
        return nil;
    }
    return objects[index];
}
- (void)dealloc {
    for (NSUInteger i = 0; i < count; i++)
        [objects[i] release];
    free(objects);
    [super dealloc];
}
@end

NSArray *fake_array(id *objects, NSUInteger count) { return [NSArray arrayWithObjects:objects count:count]; }

@implementation NSDictionary
+ (NSDictionary *)dictionaryWithObjects:(const id *)v forKeys:(const id *)k count:(NSUInteger)n {
    NSDictionary *d = [[[NSDictionary alloc] init] autorelease];
    d->keys = [[NSArray alloc] initWithObjects:k count:n];
    d->values = [[NSArray alloc] initWithObjects:v count:n];
    return d;
}
- (id)objectForKey:(NSString *)k {
    for (NSUInteger i = 0; i < [keys count]; i++)
        if (strcmp([k UTF8String], [[keys objectAtIndex:i] UTF8String]) == 0)
            return [values objectAtIndex:i];
    return nil;
}
- (void)dealloc {
    [keys release];
    [values release];
    [super dealloc];
}
@end

NSDictionary *fake_dictionary(NSString *key, id value) {
    return [NSDictionary dictionaryWithObjects:&value forKeys:(const id *)&key count:1];
}

@implementation NSError
- (id)initWithDomain:(NSString *)d code:(NSInteger)c info:(NSDictionary *)info text:(NSString *)text {
    domain = [d retain];
    code = c;
    userInfo = [info retain];
    description = [text retain];
    return self;
}
- (NSString *)domain {
    return domain;
}
- (NSInteger)code {
    return code;
}
- (NSString *)localizedDescription {
    return description;
}
- (NSDictionary *)userInfo {
    return userInfo;
}
- (void)dealloc {
    [domain release];
    [description release];
    [userInfo release];
    [super dealloc];
}
@end

NSError *fake_error(const char *domain, NSInteger code, NSDictionary *info, const char *format, ...) {
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return [[[NSError alloc] initWithDomain:fake_string(domain) code:code info:info
                                       text:fake_string(text)] autorelease];
}
