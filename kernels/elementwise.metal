// Element-wise operations and row gathers. Element-wise ones take the grid
// (ceil(width/256), rows, 1) of 256 threads, one for each element. None has threadgroup
// memory; arithmetic is float.
#include <metal_stdlib>
#include "params.h"
using namespace metal;

constant bool fc_tanh [[function_constant(0)]]; // gelu in its tanh form

constant bool is_tanh = is_function_constant_defined(fc_tanh) ? fc_tanh : false;

inline float silu_of(float v) { return v / (1.0f + exp(-v)); }

// erf_of is the error function, which MSL lacks, within 5e-7: 1 - t·P(t)·exp(-x²) with
// t = 1/(1 + 0.3275911 x) and a P of degree four (Abramowitz and Stegun, "Handbook of
// Mathematical Functions", 1964, 7.1.26; 1.5e-7 in exact arithmetic).
inline float erf_of(float v) {
    const float x = fabs(v), t = 1.0f / (1.0f + 0.3275911f * x);
    const float sum =
        ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    const float e = 1.0f - sum * exp(-x * x);
    return v < 0.0f ? -e : e;
}

// gelu_of is v·Φ(v), Φ being the normal distribution, or its approximation by tanh
// (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016): (1 + tanh(u))/2 is the
// sigmoid of 2u, which keeps its precision where tanh nears -1. Below -20 both are 0 in
// floats; the bound keeps -∞ from becoming NaN.
inline float gelu_of(float v) {
    const float x = v < -20.0f ? -20.0f : v;
    if (is_tanh)
        return x / (1.0f + exp(-1.5957691216f * (x + 0.044715f * x * x * x)));
    return 0.5f * x * (1.0f + erf_of(x * 0.70710678f));
}

// silu computes out = a / (1 + exp(-a)).
template <typename A>
kernel void silu(device const A *a [[buffer(0)]],         // [rows, width], rows a_stride apart
                 device A *out [[buffer(1)]],             // [rows, width], dense
                 constant ElementParams &p [[buffer(2)]], //
                 uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const float v = float(a[ulong(position.y) * p.a_stride + position.x]);
    out[ulong(position.y) * p.width + position.x] = A(silu_of(v));
}

// gelu computes out = a · Φ(a); with fc_tanh, its approximation by tanh.
template <typename A>
kernel void gelu(device const A *a [[buffer(0)]],         // [rows, width], rows a_stride apart
                 device A *out [[buffer(1)]],             // [rows, width], dense
                 constant ElementParams &p [[buffer(2)]], //
                 uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const float v = float(a[ulong(position.y) * p.a_stride + position.x]);
    out[ulong(position.y) * p.width + position.x] = A(gelu_of(v));
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

// silu_mul computes out = silu(a) · b (Shazeer, "GLU Variants Improve Transformer", 2020).
template <typename A>
kernel void silu_mul(device const A *a [[buffer(0)]],         // [rows, width], rows a_stride apart
                     device const A *b [[buffer(1)]],         // [rows, width], rows b_stride apart
                     device A *out [[buffer(2)]],             // [rows, width], dense
                     constant ElementParams &p [[buffer(3)]], //
                     uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const float v = float(a[ulong(position.y) * p.a_stride + position.x]);
    const float w = float(b[ulong(position.y) * p.b_stride + position.x]);
    out[ulong(position.y) * p.width + position.x] = A(silu_of(v) * w);
}

// gelu_mul computes out = gelu(a) · b, in either form (Shazeer, 2020, as GEGLU).
template <typename A>
kernel void gelu_mul(device const A *a [[buffer(0)]],         // [rows, width], rows a_stride apart
                     device const A *b [[buffer(1)]],         // [rows, width], rows b_stride apart
                     device A *out [[buffer(2)]],             // [rows, width], dense
                     constant ElementParams &p [[buffer(3)]], //
                     uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const float v = float(a[ulong(position.y) * p.a_stride + position.x]);
    const float w = float(b[ulong(position.y) * p.b_stride + position.x]);
    out[ulong(position.y) * p.width + position.x] = A(gelu_of(v) * w);
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

template [[host_name("silu_f32")]] kernel decltype(silu<float>) silu<float>;
template [[host_name("silu_f16")]] kernel decltype(silu<half>) silu<half>;
template [[host_name("silu_bf16")]] kernel decltype(silu<bfloat>) silu<bfloat>;
template [[host_name("gelu_f32")]] kernel decltype(gelu<float>) gelu<float>;
template [[host_name("gelu_f16")]] kernel decltype(gelu<half>) gelu<half>;
template [[host_name("gelu_bf16")]] kernel decltype(gelu<bfloat>) gelu<bfloat>;
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
template [[host_name("add_f16")]] kernel decltype(add<half>) add<half>;
template [[host_name("add_bf16")]] kernel decltype(add<bfloat>) add<bfloat>;
template [[host_name("silu_mul_f32")]] kernel decltype(silu_mul<float>) silu_mul<float>;
template [[host_name("silu_mul_f16")]] kernel decltype(silu_mul<half>) silu_mul<half>;
template [[host_name("silu_mul_bf16")]] kernel decltype(silu_mul<bfloat>) silu_mul<bfloat>;
template [[host_name("gelu_mul_f32")]] kernel decltype(gelu_mul<float>) gelu_mul<float>;
template [[host_name("gelu_mul_f16")]] kernel decltype(gelu_mul<half>) gelu_mul<half>;
template [[host_name("gelu_mul_bf16")]] kernel decltype(gelu_mul<bfloat>) gelu_mul<bfloat>;
template [[host_name("cast_f32_f16")]] kernel decltype(cast<float, half>) cast<float, half>;
template [[host_name("cast_f32_bf16")]] kernel decltype(cast<float, bfloat>) cast<float, bfloat>;
template [[host_name("cast_f16_f32")]] kernel decltype(cast<half, float>) cast<half, float>;
template [[host_name("cast_f16_bf16")]] kernel decltype(cast<half, bfloat>) cast<half, bfloat>;
template [[host_name("cast_bf16_f32")]] kernel decltype(cast<bfloat, float>) cast<bfloat, float>;
template [[host_name("cast_bf16_f16")]] kernel decltype(cast<bfloat, half>) cast<bfloat, half>;
template [[host_name("gather_rows_f32")]] kernel decltype(gather_rows<float>) gather_rows<float>;
template [[host_name("gather_rows_f16")]] kernel decltype(gather_rows<half>) gather_rows<half>;
template [[host_name("gather_rows_bf16")]] kernel decltype(gather_rows<bfloat>) gather_rows<bfloat>;
