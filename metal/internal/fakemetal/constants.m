//go:build fakemetal

// Metal's constant strings. They are made at run time, as there are no literals, so this file must
// not include the header that declares them constant.
#import <Foundation/Foundation.h>

NSString *MTLCommandBufferEncoderInfoErrorKey;
NSString *MTLCommonCounterSetTimestamp;

@interface FakeConstant : NSString
- (id)initWithText:(const char *)constant;
@end
@implementation FakeConstant
- (id)initWithText:(const char *)constant {
    text = (char *)constant;
    return self;
}
@end

void fake_forget_objects(int count);
void fake_constants(void);

void fake_constants(void) {
    MTLCommandBufferEncoderInfoErrorKey = [[FakeConstant alloc] initWithText:"MTLCommandBufferEncoderInfoErrorKey"];
    MTLCommonCounterSetTimestamp = [[FakeConstant alloc] initWithText:"timestamp"];
    fake_forget_objects(2);
}
