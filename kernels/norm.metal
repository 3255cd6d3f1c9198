// RMSNorm.
#include <metal_stdlib>
#include "params.h"
using namespace metal;

// rms_norm computes out = x · weight / sqrt(mean(x²) + eps) over each row (Zhang and
// Sennrich, "Root Mean Square Layer Normalization", 2019), with float statistics.
//
// Grid (rows, 1, 1) of 32 to 256 threads, a multiple of 32. A thread reads four
// neighbours at a time. Threadgroup memory: one float for each simdgroup.
template <typename I, typename O>
kernel void rms_norm(device const I *x [[buffer(0)]],          // [rows, width], rows x_stride apart
                     device const float *weight [[buffer(1)]], // [width]
                     device O *out [[buffer(2)]],              // [rows, width], dense
                     constant NormParams &p [[buffer(3)]],     //
                     uint row [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float partial[8];
    device const I *from = x + ulong(row) * p.x_stride;
    float squares = 0.0f;
    for (uint i = tid * 4; i < p.width; i += threads * 4) {
        const uint end = min(i + 4, p.width);
        for (uint j = i; j < end; j++)
            squares += float(from[j]) * float(from[j]);
    }
    squares = simd_sum(squares);
    if (simdgroups > 1) {
        if (lane == 0)
            partial[sg] = squares;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        squares = 0.0f;
        for (uint i = 0; i < simdgroups; i++)
            squares += partial[i];
    }
    const float s = precise::rsqrt(squares / float(p.width) + p.eps);
    device O *to = out + ulong(row) * p.width;
    for (uint i = tid * 4; i < p.width; i += threads * 4) {
        const uint end = min(i + 4, p.width);
        for (uint j = i; j < end; j++)
            to[j] = O(float(from[j]) * s * weight[j]);
    }
}

template [[host_name("rms_norm_f32_f32")]] kernel decltype(rms_norm<float, float>) rms_norm<float, float>;
template [[host_name("rms_norm_f32_f16")]] kernel decltype(rms_norm<float, half>) rms_norm<float, half>;
template [[host_name("rms_norm_f16_f16")]] kernel decltype(rms_norm<half, half>) rms_norm<half, half>;
