// RMSNorm and LayerNorm.
#include <metal_stdlib>
#include "abi/params.h"
using namespace metal;

// layer_norm has a weight; it has a bias (fc_bias).
constant bool fc_weight [[function_constant(0)]];
constant bool fc_bias [[function_constant(1)]];
constant bool fc_gain [[function_constant(2)]]; // norm_residual multiplies its result by a number

constant bool has_weight = is_function_constant_defined(fc_weight) ? fc_weight : false;
constant bool has_bias = is_function_constant_defined(fc_bias) ? fc_bias : false;
constant bool has_gain = is_function_constant_defined(fc_gain) ? fc_gain : false;

// root_mean_square returns the factor of a row, 1 / sqrt(mean(x²) + eps), in every thread of
// the threadgroup, which share its elements. `partial` has one element per simdgroup.
template <typename I>
inline float root_mean_square(device const I *from, constant NormParams &p, threadgroup float *partial, uint tid,
                              uint threads, uint sg, uint lane, uint simdgroups) {
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
    return precise::rsqrt(squares / float(p.width) + p.eps);
}

// rms_norm computes out = x · weight / sqrt(mean(x²) + eps) over each row (Zhang and
// Sennrich, "Root Mean Square Layer Normalization", 2019), with float statistics. Rows have the
// weight's `groups` rows by turns.
//
// Grid (rows, 1, 1) of 32 to 256 threads, a multiple of 32. A thread reads four
// neighbours at a time. Threadgroup memory: one float for each simdgroup.
template <typename I, typename O>
kernel void rms_norm(device const I *x [[buffer(0)]],          // [rows, width], rows x_stride apart
                     device const float *weight [[buffer(1)]], // [groups, width]
                     device O *out [[buffer(2)]],              // [rows, width], dense
                     constant NormParams &p [[buffer(3)]],     //
                     uint row [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float partial[8];
    device const I *from = x + ulong(row) * p.x_stride;
    const float s = root_mean_square(from, p, partial, tid, threads, sg, lane, simdgroups);
    device O *to = out + ulong(row) * p.width;
    device const float *gain = weight + row % p.groups * p.width;
    for (uint i = tid * 4; i < p.width; i += threads * 4) {
        const uint end = min(i + 4, p.width);
        for (uint j = i; j < end; j++)
            to[j] = O(float(from[j]) * s * gain[j]);
    }
}

// norm_residual computes out = residual + x · weight / sqrt(mean(x²) + eps) over each row:
// what rms_norm computes, added to the residual stream; with fc_gain the sum times a number.
//
// Grid (rows, 1, 1) of 32 to 256 threads, a multiple of 32, as of rms_norm. Threadgroup
// memory: one float for each simdgroup.
template <typename T>
kernel void norm_residual(device const T *x [[buffer(0)]],          // [rows, width], rows x_stride apart
                          device const float *weight [[buffer(1)]], // [width]
                          device const T *residual [[buffer(2)]],   // [rows, width], dense
                          device T *out [[buffer(3)]],              // [rows, width], dense
                          constant NormParams &p [[buffer(4)]],     //
                          device const float *gain [[buffer(5)]],   // [1]
                          uint row [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                          uint threads [[threads_per_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float partial[8];
    device const T *from = x + ulong(row) * p.x_stride;
    const float s = root_mean_square(from, p, partial, tid, threads, sg, lane, simdgroups);
    const ulong first = ulong(row) * p.width;
    const float factor = has_gain ? gain[0] : 1.0f;
    for (uint i = tid * 4; i < p.width; i += threads * 4) {
        const uint end = min(i + 4, p.width);
        for (uint j = i; j < end; j++)
            out[first + j] = T((float(residual[first + j]) + float(from[j]) * s * weight[j]) * factor);
    }
}

// add_up returns the sum of v over the threadgroup in every thread; `partial` has one
// element per simdgroup, and no thread may be reading it.
inline float2 add_up(float2 v, threadgroup float2 *partial, uint sg, uint lane, uint simdgroups) {
    v = float2(simd_sum(v.x), simd_sum(v.y));
    if (simdgroups == 1)
        return v;
    if (lane == 0)
        partial[sg] = v;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    v = partial[0];
    for (uint i = 1; i < simdgroups; i++)
        v += partial[i];
    return v;
}

// layer_norm computes out = (x - mean(x)) / sqrt(var(x) + eps) · weight + bias over each
// row (Ba, Kiros and Hinton, "Layer Normalization", 2016); fc_weight and fc_bias enable
// weight and bias.
//
// Grid (rows, 1, 1) of 32 to 256 threads, a multiple of 32. A thread reads four
// neighbours at a time. The mean is summed relative to the first element, so that a
// row far from zero loses no digits, and the second pass sums x - mean as well as its
// square: the first sum is the rounding error of the mean, which corrects mean and
// variance (the corrected two-pass algorithm of Chan, Golub and LeVeque, 1983).
// Threadgroup memory: two sums for each simdgroup, twice.
template <typename I, typename O>
kernel void layer_norm(device const I *x [[buffer(0)]],          // [rows, width], rows x_stride apart
                       device const float *weight [[buffer(1)]], // [width]
                       device O *out [[buffer(2)]],              // [rows, width], dense
                       constant NormParams &p [[buffer(3)]],     //
                       device const float *bias [[buffer(4)]],   // [width]
                       uint row [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                       uint threads [[threads_per_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float2 partial[2][8];
    device const I *from = x + ulong(row) * p.x_stride;
    const float n = float(p.width), pivot = float(from[0]);
    float sum = 0.0f;
    for (uint i = tid * 4; i < p.width; i += threads * 4) {
        const uint end = min(i + 4, p.width);
        for (uint j = i; j < end; j++)
            sum += float(from[j]) - pivot;
    }
    const float mean = pivot + add_up(float2(sum, 0.0f), partial[0], sg, lane, simdgroups).x / n;
    float2 rest = 0.0f;
    for (uint i = tid * 4; i < p.width; i += threads * 4) {
        const uint end = min(i + 4, p.width);
        for (uint j = i; j < end; j++) {
            const float d = float(from[j]) - mean;
            rest += float2(d, d * d);
        }
    }
    rest = add_up(rest, partial[1], sg, lane, simdgroups) / n;
    const float s = precise::rsqrt(max(rest.y - rest.x * rest.x, 0.0f) + p.eps);
    device O *to = out + ulong(row) * p.width;
    for (uint i = tid * 4; i < p.width; i += threads * 4) {
        const uint end = min(i + 4, p.width);
        for (uint j = i; j < end; j++) {
            float v = (float(from[j]) - mean - rest.x) * s;
            if (has_weight)
                v *= weight[j];
            if (has_bias)
                v += bias[j];
            to[j] = O(v);
        }
    }
}

template [[host_name("rms_norm_f32_f32")]] kernel decltype(rms_norm<float, float>) rms_norm<float, float>;
template [[host_name("rms_norm_f32_f16")]] kernel decltype(rms_norm<float, half>) rms_norm<float, half>;
template [[host_name("rms_norm_f16_f16")]] kernel decltype(rms_norm<half, half>) rms_norm<half, half>;
template [[host_name("rms_norm_f32_bf16")]] kernel decltype(rms_norm<float, bfloat>) rms_norm<float, bfloat>;
template [[host_name("rms_norm_bf16_bf16")]] kernel decltype(rms_norm<bfloat, bfloat>) rms_norm<bfloat, bfloat>;
template [[host_name("norm_residual_f32")]] kernel decltype(norm_residual<float>) norm_residual<float>;
template [[host_name("layer_norm_f32_f32")]] kernel decltype(layer_norm<float, float>) layer_norm<float, float>;
template [[host_name("layer_norm_f32_f16")]] kernel decltype(layer_norm<float, half>) layer_norm<float, half>;
template [[host_name("layer_norm_f16_f16")]] kernel decltype(layer_norm<half, half>) layer_norm<half, half>;
template [[host_name("layer_norm_f32_bf16")]] kernel decltype(layer_norm<float, bfloat>) layer_norm<float, bfloat>;
template [[host_name("layer_norm_bf16_bf16")]] kernel decltype(layer_norm<bfloat, bfloat>) layer_norm<bfloat, bfloat>;
