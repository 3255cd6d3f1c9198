// What the bridge uses of Foundation, by the names that Apple documents, for
// compilers without Apple's headers.
#ifndef FAKE_FOUNDATION_H
#define FAKE_FOUNDATION_H

#include <objc/objc.h>
#include <objc/runtime.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned long NSUInteger;
typedef long NSInteger;

#ifndef YES
#define YES ((BOOL)1)
#define NO ((BOOL)0)
#endif

typedef struct {
    NSUInteger location, length;
} NSRange;

static inline NSRange NSMakeRange(NSUInteger location, NSUInteger length) {
    NSRange range = {location, length};
    return range;
}

@protocol NSObject
- (id)retain;
- (oneway void)release;
- (id)autorelease;
- (NSUInteger)retainCount;
- (BOOL)respondsToSelector:(SEL)selector;
@end

// Objects are counted; a released one stays behind as a zombie that reports who
// talks to it.
__attribute__((objc_root_class))
@interface NSObject<NSObject> {
    Class isa;
    int references;
}
+ (id)alloc;
+ (id)new;
+ (Class)class;
+ (void)initialize;
- (id)init;
- (void)dealloc;
@end

@interface NSAutoreleasePool : NSObject {
    NSAutoreleasePool *outer;
    id *objects;
    NSUInteger count, room;
}
- (void)addObject:(id)object;
- (void)drain;
@end

@interface NSString : NSObject {
    char *text;
}
+ (NSString *)stringWithUTF8String:(const char *)text;
- (const char *)UTF8String;
@end

@interface NSURL : NSObject {
    NSString *path;
}
+ (NSURL *)fileURLWithPath:(NSString *)path;
- (NSString *)path;
@end

@interface NSData : NSObject {
    void *bytes;
    NSUInteger length;
}
- (const void *)bytes;
- (NSUInteger)length;
@end

@interface NSArray : NSObject {
    id *objects;
    NSUInteger count;
}
+ (NSArray *)arrayWithObjects:(const id *)objects count:(NSUInteger)count;
- (id)initWithObjects:(const id *)objects count:(NSUInteger)count;
- (NSUInteger)count;
- (id)objectAtIndex:(NSUInteger)index;
@end

@interface NSDictionary : NSObject {
@public
    NSArray *keys, *values;
}
+ (NSDictionary *)dictionaryWithObjects:(const id *)values forKeys:(const id *)keys count:(NSUInteger)count;
- (id)objectForKey:(NSString *)key;
@end

@interface NSError : NSObject {
    NSString *domain, *description;
    NSInteger code;
    NSDictionary *userInfo;
}
- (NSString *)domain;
- (NSInteger)code;
- (NSString *)localizedDescription;
- (NSDictionary *)userInfo;
@end

#endif
