// Element-wise operations and row gathers. Element-wise ones take the grid
// (ceil(width/256), rows, 1) of 256 threads, one for each element. None has threadgroup
// memory; arithmetic is float.
#include <metal_stdlib>
#include "abi/params.h"
#include "activation.h"
using namespace metal;

constant uint fc_activation [[function_constant(0)]]; // of activate and gate
constant uint fc_parts [[function_constant(1)]];      // of concat

// activate computes out = activation(a).
template <typename A>
kernel void activate(device const A *a [[buffer(0)]],         // [rows, width], rows a_stride apart
                     device A *out [[buffer(1)]],             // [rows, width], dense
                     constant ElementParams &p [[buffer(2)]], //
                     uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const float v = float(a[ulong(position.y) * p.a_stride + position.x]);
    out[ulong(position.y) * p.width + position.x] = A(activation_of(fc_activation, v));
}

// scale computes out = a · value.
template <typename A>
kernel void scale(device const A *a [[buffer(0)]],         // [rows, width], rows a_stride apart
                  device A *out [[buffer(1)]],             // [rows, width], dense
                  constant ElementParams &p [[buffer(2)]], //
                  uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const float v = float(a[ulong(position.y) * p.a_stride + position.x]);
    out[ulong(position.y) * p.width + position.x] = A(v * p.value);
}

// soft_cap computes out = value · tanh(a / value): what stays below value is almost kept.
template <typename A>
kernel void soft_cap(device const A *a [[buffer(0)]],         // [rows, width], rows a_stride apart
                     device A *out [[buffer(1)]],             // [rows, width], dense
                     constant ElementParams &p [[buffer(2)]], //
                     uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const float v = float(a[ulong(position.y) * p.a_stride + position.x]);
    out[ulong(position.y) * p.width + position.x] = A(p.value * tanh(v / p.value));
}

// mul computes out = a · b.
template <typename A>
kernel void mul(device const A *a [[buffer(0)]],         // [rows, width], rows a_stride apart
                device const A *b [[buffer(1)]],         // [rows, width], rows b_stride apart
                device A *out [[buffer(2)]],             // [rows, width], dense
                constant ElementParams &p [[buffer(3)]], //
                uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const float v = float(a[ulong(position.y) * p.a_stride + position.x]);
    const float w = float(b[ulong(position.y) * p.b_stride + position.x]);
    out[ulong(position.y) * p.width + position.x] = A(v * w);
}

// add computes out = a + b.
template <typename A>
kernel void add(device const A *a [[buffer(0)]],         // [rows, width], rows a_stride apart
                device const A *b [[buffer(1)]],         // [rows, width], rows b_stride apart
                device A *out [[buffer(2)]],             // [rows, width], dense
                constant ElementParams &p [[buffer(3)]], //
                uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const float v = float(a[ulong(position.y) * p.a_stride + position.x]);
    const float w = float(b[ulong(position.y) * p.b_stride + position.x]);
    out[ulong(position.y) * p.width + position.x] = A(v + w);
}

// gate computes out = activation(a) · b, or the gate formula of an activation that has its own.
template <typename A>
kernel void gate(device const A *a [[buffer(0)]],         // [rows, width], rows a_stride apart
                 device const A *b [[buffer(1)]],         // [rows, width], rows b_stride apart
                 device A *out [[buffer(2)]],             // [rows, width], dense
                 constant ElementParams &p [[buffer(3)]], //
                 uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const float v = float(a[ulong(position.y) * p.a_stride + position.x]);
    const float w = float(b[ulong(position.y) * p.b_stride + position.x]);
    out[ulong(position.y) * p.width + position.x] = A(gate_of(fc_activation, v, w));
}

// concat puts the columns of two to four tensors side by side.
template <typename A>
kernel void concat(device const A *x0 [[buffer(0)]],       // [rows, n0]
                   device const A *x1 [[buffer(1)]],       // [rows, n1]
                   device const A *x2 [[buffer(2)]],       // [rows, n2]
                   device const A *x3 [[buffer(3)]],       // [rows, n3]
                   device A *out [[buffer(4)]],            // [rows, width]
                   constant ConcatParams &p [[buffer(5)]], //
                   uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const ulong row = position.y;
    const uint first = p.n0, second = first + p.n1, third = second + p.n2;
    A v;
    if (position.x < first)
        v = x0[row * p.n0 + position.x];
    else if (fc_parts == 2 || position.x < second)
        v = x1[row * p.n1 + position.x - first];
    else if (fc_parts == 3 || position.x < third)
        v = x2[row * p.n2 + position.x - second];
    else
        v = x3[row * p.n3 + position.x - third];
    out[row * p.width + position.x] = v;
}

// weighted_sum computes out = Σ weights[i] · x[i] of the rows of x that make a row of out.
template <typename A>
kernel void weighted_sum(device const A *x [[buffer(0)]],             // [rows, each, width]
                         device const float *weights [[buffer(1)]],   // [rows, each]
                         device A *out [[buffer(2)]],                 // [rows, width]
                         constant WeightedSumParams &p [[buffer(3)]], //
                         uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const ulong first = ulong(position.y) * p.each;
    float sum = 0.0f;
    for (uint i = 0; i < p.each; i++)
        sum += weights[first + i] * float(x[(first + i) * p.width + position.x]);
    out[ulong(position.y) * p.width + position.x] = A(sum);
}

// cast copies rows into another type.
template <typename I, typename O>
kernel void cast(device const I *x [[buffer(0)]],         // [rows, width], rows a_stride apart
                 device O *out [[buffer(1)]],             // [rows, width], dense
                 constant ElementParams &p [[buffer(2)]], //
                 uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    out[ulong(position.y) * p.width + position.x] = O(float(x[ulong(position.y) * p.a_stride + position.x]));
}

// gather_rows copies the rows that index names; a negative index gives zeros.
//
// Grid (ceil(width/512), rows, 1) of 32 threads: each moves four times four neighbours,
// as vectors where rows are whole ones, and a line of indices serves 512 elements.
template <typename A>
[[kernel, max_total_threads_per_threadgroup(32)]] void
gather_rows(device const A *x [[buffer(0)]],         // [tokens, width], rows a_stride apart
            device const int *index [[buffer(1)]],   // [rows]
            device A *out [[buffer(2)]],             // [rows, width], dense
            constant ElementParams &p [[buffer(3)]], //
            uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
    typedef vec<uint, sizeof(A)> Four; // the words of four elements
    const int row = index[group.y];
    device const A *from = x + ulong(max(row, 0)) * p.a_stride;
    device A *to = out + ulong(group.y) * p.width;
    const bool whole = ((p.a_stride | p.width) & 3) == 0;
    for (uint i = 0; i < 4; i++) {
        const uint at = group.x * 512 + i * 128 + lane * 4;
        if (whole && at < p.width) {
            Four v = 0u;
            if (row >= 0)
                v = *(device const Four *)(from + at);
            *(device Four *)(to + at) = v;
        } else {
            for (uint j = 0; j < 4; j++) {
                A v = A(0.0f);
                if (at + j >= p.width)
                    continue;
                if (row >= 0)
                    v = from[at + j];
                to[at + j] = v;
            }
        }
    }
}

template [[host_name("activate_f32")]] kernel decltype(activate<float>) activate<float>;
template [[host_name("activate_f16")]] kernel decltype(activate<half>) activate<half>;
template [[host_name("activate_bf16")]] kernel decltype(activate<bfloat>) activate<bfloat>;
template [[host_name("scale_f32")]] kernel decltype(scale<float>) scale<float>;
template [[host_name("scale_f16")]] kernel decltype(scale<half>) scale<half>;
template [[host_name("scale_bf16")]] kernel decltype(scale<bfloat>) scale<bfloat>;
template [[host_name("soft_cap_f32")]] kernel decltype(soft_cap<float>) soft_cap<float>;
template [[host_name("soft_cap_f16")]] kernel decltype(soft_cap<half>) soft_cap<half>;
template [[host_name("soft_cap_bf16")]] kernel decltype(soft_cap<bfloat>) soft_cap<bfloat>;
template [[host_name("mul_f32")]] kernel decltype(mul<float>) mul<float>;
template [[host_name("mul_f16")]] kernel decltype(mul<half>) mul<half>;
template [[host_name("mul_bf16")]] kernel decltype(mul<bfloat>) mul<bfloat>;
template [[host_name("add_f32")]] kernel decltype(add<float>) add<float>;
template [[host_name("gate_f32")]] kernel decltype(gate<float>) gate<float>;
template [[host_name("gate_f16")]] kernel decltype(gate<half>) gate<half>;
template [[host_name("gate_bf16")]] kernel decltype(gate<bfloat>) gate<bfloat>;
template [[host_name("concat_f32")]] kernel decltype(concat<float>) concat<float>;
template [[host_name("concat_f16")]] kernel decltype(concat<half>) concat<half>;
template [[host_name("concat_bf16")]] kernel decltype(concat<bfloat>) concat<bfloat>;
template [[host_name("weighted_sum_f32")]] kernel decltype(weighted_sum<float>) weighted_sum<float>;
template [[host_name("cast_f32_f16")]] kernel decltype(cast<float, half>) cast<float, half>;
template [[host_name("cast_f32_bf16")]] kernel decltype(cast<float, bfloat>) cast<float, bfloat>;
template [[host_name("cast_f16_f32")]] kernel decltype(cast<half, float>) cast<half, float>;
template [[host_name("cast_bf16_f32")]] kernel decltype(cast<bfloat, float>) cast<bfloat, float>;
template [[host_name("gather_rows_f32")]] kernel decltype(gather_rows<float>) gather_rows<float>;
template [[host_name("gather_rows_f16")]] kernel decltype(gather_rows<half>) gather_rows<half>;
template [[host_name("gather_rows_bf16")]] kernel decltype(gather_rows<bfloat>) gather_rows<bfloat>;
