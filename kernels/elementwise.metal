// Element-wise operations and row gathers. All take the grid (ceil(width/256), rows, 1)
// of 256 threads, one for each element, and no threadgroup memory; arithmetic is float.
#include <metal_stdlib>
#include "params.h"
using namespace metal;

inline float silu_of(float v) { return v / (1.0f + exp(-v)); }

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

// cast copies rows into the other type.
template <typename I, typename O>
kernel void cast(device const I *x [[buffer(0)]],         // [rows, width], rows a_stride apart
                 device O *out [[buffer(1)]],             // [rows, width], dense
                 constant ElementParams &p [[buffer(2)]], //
                 uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    out[ulong(position.y) * p.width + position.x] = O(x[ulong(position.y) * p.a_stride + position.x]);
}

// gather_rows copies the rows that index names; a negative index gives zeros.
template <typename A>
kernel void gather_rows(device const A *x [[buffer(0)]],         // [tokens, width], rows a_stride apart
                        device const int *index [[buffer(1)]],   // [rows]
                        device A *out [[buffer(2)]],             // [rows, width], dense
                        constant ElementParams &p [[buffer(3)]], //
                        uint2 position [[thread_position_in_grid]]) {
    if (position.x >= p.width)
        return;
    const int row = index[position.y];
    out[ulong(position.y) * p.width + position.x] = row < 0 ? A(0.0f) : x[ulong(row) * p.a_stride + position.x];
}

template [[host_name("silu_f32")]] kernel decltype(silu<float>) silu<float>;
template [[host_name("silu_f16")]] kernel decltype(silu<half>) silu<half>;
template [[host_name("scale_f32")]] kernel decltype(scale<float>) scale<float>;
template [[host_name("scale_f16")]] kernel decltype(scale<half>) scale<half>;
template [[host_name("mul_f32")]] kernel decltype(mul<float>) mul<float>;
template [[host_name("mul_f16")]] kernel decltype(mul<half>) mul<half>;
template [[host_name("add_f32")]] kernel decltype(add<float>) add<float>;
template [[host_name("add_f16")]] kernel decltype(add<half>) add<half>;
template [[host_name("silu_mul_f32")]] kernel decltype(silu_mul<float>) silu_mul<float>;
template [[host_name("silu_mul_f16")]] kernel decltype(silu_mul<half>) silu_mul<half>;
template [[host_name("cast_f32_f16")]] kernel decltype(cast<float, half>) cast<float, half>;
template [[host_name("cast_f16_f32")]] kernel decltype(cast<half, float>) cast<half, float>;
template [[host_name("gather_rows_f32")]] kernel decltype(gather_rows<float>) gather_rows<float>;
template [[host_name("gather_rows_f16")]] kernel decltype(gather_rows<half>) gather_rows<half>;
