// What the bridge uses of Metal, by the names and numbers that Apple documents, for
// compilers without Apple's headers.
#ifndef FAKE_METAL_H
#define FAKE_METAL_H

#import <Foundation/Foundation.h>

typedef struct {
    NSUInteger width, height, depth;
} MTLSize;

static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
    MTLSize size = {width, height, depth};
    return size;
}

typedef uint64_t MTLTimestamp;
typedef double CFTimeInterval;

typedef enum {
    MTLResourceCPUCacheModeDefaultCache = 0,
    MTLResourceStorageModeShared = 0 << 4,
    MTLResourceStorageModePrivate = 2 << 4,
    MTLResourceHazardTrackingModeUntracked = 1 << 8,
} MTLResourceOptions;
typedef enum { MTLStorageModeShared = 0 } MTLStorageMode;
typedef enum { MTLDispatchTypeSerial = 0, MTLDispatchTypeConcurrent = 1 } MTLDispatchType;
typedef enum { MTLBarrierScopeBuffers = 1 } MTLBarrierScope;
typedef enum { MTLDataTypeUInt = 33, MTLDataTypeBool = 53 } MTLDataType;
typedef enum { MTLPipelineOptionNone = 0, MTLPipelineOptionFailOnBinaryArchiveMiss = 4 } MTLPipelineOption;
typedef enum { MTLLanguageVersion3_1 = (3 << 16) + 1 } MTLLanguageVersion;
typedef enum {
    MTLGPUFamilyApple7 = 1007,
    MTLGPUFamilyApple8 = 1008,
    MTLGPUFamilyApple9 = 1009,
    MTLGPUFamilyMetal3 = 5001,
} MTLGPUFamily;
typedef enum {
    MTLCommandBufferStatusNotEnqueued = 0,
    MTLCommandBufferStatusEnqueued = 1,
    MTLCommandBufferStatusCommitted = 2,
    MTLCommandBufferStatusScheduled = 3,
    MTLCommandBufferStatusCompleted = 4,
    MTLCommandBufferStatusError = 5,
} MTLCommandBufferStatus;
typedef enum {
    MTLCommandBufferErrorInternal = 1,
    MTLCommandBufferErrorTimeout = 2,
    MTLCommandBufferErrorPageFault = 3,
    MTLCommandBufferErrorAccessRevoked = 4,
    MTLCommandBufferErrorNotPermitted = 7,
    MTLCommandBufferErrorOutOfMemory = 8,
    MTLCommandBufferErrorInvalidResource = 9,
    MTLCommandBufferErrorDeviceRemoved = 11,
} MTLCommandBufferError;
typedef enum { MTLCommandBufferErrorOptionEncoderExecutionStatus = 1 } MTLCommandBufferErrorOption;
typedef enum {
    MTLCommandEncoderErrorStateUnknown = 0,
    MTLCommandEncoderErrorStateCompleted = 1,
    MTLCommandEncoderErrorStateAffected = 2,
    MTLCommandEncoderErrorStatePending = 3,
    MTLCommandEncoderErrorStateFaulted = 4,
} MTLCommandEncoderErrorState;
typedef enum { MTLCounterSamplingPointAtStageBoundary = 0 } MTLCounterSamplingPoint;
typedef enum { MTLCaptureDestinationGPUTraceDocument = 2 } MTLCaptureDestination;

extern NSString *const MTLCommandBufferEncoderInfoErrorKey;
extern NSString *const MTLCommonCounterSetTimestamp;

@protocol MTLDevice
, MTLCommandBuffer, MTLComputeCommandEncoder;

@protocol MTLBuffer <NSObject>
- (void *)contents;
- (NSUInteger)length;
- (void)setLabel:(NSString *)label;
@end

@protocol MTLFunction <NSObject>
- (NSString *)name;
@end

@interface MTLFunctionConstantValues : NSObject {
@public
    uint32_t words[32];
    MTLDataType types[32];
    uint32_t set;
}
- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index;
@end

@interface MTLCompileOptions : NSObject {
@public
    MTLLanguageVersion version;
    BOOL fast;
    NSDictionary *macros;
}
- (void)setLanguageVersion:(MTLLanguageVersion)version;
- (void)setFastMathEnabled:(BOOL)enabled;
- (void)setPreprocessorMacros:(NSDictionary *)macros;
@end

@protocol MTLLibrary <NSObject>
- (id<MTLFunction>)newFunctionWithName:(NSString *)name;
- (id<MTLFunction>)newFunctionWithName:(NSString *)name
                        constantValues:(MTLFunctionConstantValues *)values
                                 error:(NSError **)error;
@end

@protocol MTLComputePipelineState <NSObject>
- (NSUInteger)maxTotalThreadsPerThreadgroup;
- (NSUInteger)threadExecutionWidth;
- (NSUInteger)staticThreadgroupMemoryLength;
@end

@interface MTLComputePipelineDescriptor : NSObject {
@public
    id<MTLFunction> function;
    NSString *label;
    NSUInteger most;
    BOOL whole;
    NSArray *archives;
}
- (void)setBinaryArchives:(NSArray *)archives;
- (void)setComputeFunction:(id<MTLFunction>)function;
- (void)setLabel:(NSString *)label;
- (void)setMaxTotalThreadsPerThreadgroup:(NSUInteger)threads;
- (void)setThreadGroupSizeIsMultipleOfThreadExecutionWidth:(BOOL)whole;
@end

@interface MTLBinaryArchiveDescriptor : NSObject {
@public
    NSURL *url;
}
- (void)setUrl:(NSURL *)url;
@end

@protocol MTLBinaryArchive <NSObject>
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor *)descriptor error:(NSError **)error;
- (BOOL)serializeToURL:(NSURL *)url error:(NSError **)error;
@end

@protocol MTLFence <NSObject>
@end

@protocol MTLEvent <NSObject>
@end

@protocol MTLSharedEvent <MTLEvent>
- (uint64_t)signaledValue;
- (void)setSignaledValue:(uint64_t)value;
- (BOOL)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds;
@end

@protocol MTLCounterSet <NSObject>
- (NSString *)name;
@end

@interface MTLCounterSampleBufferDescriptor : NSObject {
@public
    id<MTLCounterSet> set;
    MTLStorageMode mode;
    NSUInteger samples;
}
- (void)setCounterSet:(id<MTLCounterSet>)set;
- (void)setStorageMode:(MTLStorageMode)mode;
- (void)setSampleCount:(NSUInteger)samples;
@end

typedef struct {
    uint64_t timestamp;
} MTLCounterResultTimestamp;

#define MTLCounterErrorValue UINT64_MAX

@protocol MTLCounterSampleBuffer <NSObject>
- (NSUInteger)sampleCount;
- (NSData *)resolveCounterRange:(NSRange)range;
@end

@interface MTLComputePassSampleBufferAttachmentDescriptor : NSObject {
@public
    id<MTLCounterSampleBuffer> samples;
    NSUInteger start, end;
}
- (void)setSampleBuffer:(id<MTLCounterSampleBuffer>)samples;
- (void)setStartOfEncoderSampleIndex:(NSUInteger)index;
- (void)setEndOfEncoderSampleIndex:(NSUInteger)index;
@end

@interface MTLComputePassSampleBufferAttachmentDescriptorArray : NSObject {
@public
    MTLComputePassSampleBufferAttachmentDescriptor *first;
}
- (MTLComputePassSampleBufferAttachmentDescriptor *)objectAtIndexedSubscript:(NSUInteger)index;
@end

@interface MTLComputePassDescriptor : NSObject {
@public
    MTLDispatchType type;
    MTLComputePassSampleBufferAttachmentDescriptorArray *attachments;
}
+ (MTLComputePassDescriptor *)computePassDescriptor;
- (void)setDispatchType:(MTLDispatchType)type;
- (MTLComputePassSampleBufferAttachmentDescriptorArray *)sampleBufferAttachments;
@end

@protocol MTLCommandBufferEncoderInfo <NSObject>
- (NSString *)label;
- (NSArray *)debugSignposts;
- (MTLCommandEncoderErrorState)errorState;
@end

@protocol MTLComputeCommandEncoder <NSObject>
- (void)setLabel:(NSString *)label;
- (void)setComputePipelineState:(id<MTLComputePipelineState>)pipeline;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)sampleCountersInBuffer:(id<MTLCounterSampleBuffer>)buffer
                 atSampleIndex:(NSUInteger)index
                   withBarrier:(BOOL)barrier;
- (void)dispatchThreadgroups:(MTLSize)grid threadsPerThreadgroup:(MTLSize)group;
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope;
- (void)waitForFence:(id<MTLFence>)fence;
- (void)updateFence:(id<MTLFence>)fence;
- (void)insertDebugSignpost:(NSString *)text;
- (void)endEncoding;
@end

@interface MTLCommandBufferDescriptor : NSObject {
@public
    BOOL retained;
    MTLCommandBufferErrorOption options;
}
- (void)setRetainedReferences:(BOOL)retained;
- (void)setErrorOptions:(MTLCommandBufferErrorOption)options;
@end

@protocol MTLCommandBuffer <NSObject>
- (void)setLabel:(NSString *)label;
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type;
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:(MTLComputePassDescriptor *)descriptor;
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value;
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value;
- (void)commit;
- (void)waitUntilCompleted;
- (MTLCommandBufferStatus)status;
- (NSError *)error;
- (CFTimeInterval)GPUStartTime;
- (CFTimeInterval)GPUEndTime;
@end

@protocol MTLCommandQueue <NSObject>
- (void)setLabel:(NSString *)label;
- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor *)descriptor;
@end

@protocol MTLDevice <NSObject>
- (NSString *)name;
- (BOOL)supportsFamily:(MTLGPUFamily)family;
- (BOOL)hasUnifiedMemory;
- (NSUInteger)maxThreadgroupMemoryLength;
- (NSUInteger)maxBufferLength;
- (uint64_t)recommendedMaxWorkingSetSize;
- (NSUInteger)currentAllocatedSize;
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count;
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(NSError **)error;
- (id<MTLLibrary>)newLibraryWithURL:(NSURL *)url error:(NSError **)error;
- (void)setShouldMaximizeConcurrentCompilation:(BOOL)yes;
- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor *)descriptor error:(NSError **)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                                             options:(MTLPipelineOption)options
                                                          reflection:(id *)reflection
                                                               error:(NSError **)error;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)bytes
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void *)deallocator;
- (id<MTLFence>)newFence;
- (id<MTLSharedEvent>)newSharedEvent;
- (NSArray *)counterSets;
- (BOOL)supportsCounterSampling:(MTLCounterSamplingPoint)point;
- (id<MTLCounterSampleBuffer>)newCounterSampleBufferWithDescriptor:(MTLCounterSampleBufferDescriptor *)descriptor
                                                             error:(NSError **)error;
- (void)sampleTimestamps:(MTLTimestamp *)cpu gpuTimestamp:(MTLTimestamp *)gpu;
@end

@interface MTLCaptureDescriptor : NSObject {
@public
    id object;
    MTLCaptureDestination destination;
    NSURL *url;
}
- (void)setCaptureObject:(id)object;
- (void)setDestination:(MTLCaptureDestination)destination;
- (void)setOutputURL:(NSURL *)url;
@end

@interface MTLCaptureManager : NSObject
+ (MTLCaptureManager *)sharedCaptureManager;
- (BOOL)supportsDestination:(MTLCaptureDestination)destination;
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor *)descriptor error:(NSError **)error;
- (void)stopCapture;
@end

#ifdef __cplusplus
extern "C"
#endif
    id<MTLDevice>
    MTLCreateSystemDefaultDevice(void);
#ifdef __cplusplus
extern "C"
#endif
    NSArray *
    MTLCopyAllDevices(void);

#endif
