#include <metal_stdlib>
using namespace metal;

// What the benchmarks measure: each kernel repeats one operation.

kernel void cost_sum(device float *out [[buffer(0)]], constant uint &rounds [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
    float v = float(i);
    for (uint k = 0; k < rounds; k++)
        v = simd_sum(v) * 0.03125f;
    out[i] = v;
}

kernel void cost_shuffle(device float *out [[buffer(0)]], constant uint &rounds [[buffer(1)]],
                         uint i [[thread_position_in_grid]]) {
    float v = float(i);
    for (uint k = 0; k < rounds; k++)
        v = simd_shuffle_xor(v, 1) + 1;
    out[i] = v;
}

kernel void cost_barrier(device float *out [[buffer(0)]], constant uint &rounds [[buffer(1)]],
                         uint i [[thread_position_in_grid]]) {
    float v = float(i);
    for (uint k = 0; k < rounds; k++) {
        v += 1;
        threadgroup_barrier(mem_flags::mem_none);
    }
    out[i] = v;
}

// Four products a round, as in a 16x16 tile.
kernel void cost_matrix(device float *out [[buffer(0)]], constant uint &rounds [[buffer(1)]],
                        device const half *x [[buffer(2)]], uint i [[thread_index_in_threadgroup]]) {
    simdgroup_float8x8 c[2][2];
    for (uint r = 0; r < 2; r++)
        for (uint s = 0; s < 2; s++)
            c[r][s] = make_filled_simdgroup_matrix<float, 8, 8>(0);
    for (uint k = 0; k < rounds; k++) {
        simdgroup_half8x8 a[2], b[2];
        for (uint r = 0; r < 2; r++) {
            simdgroup_load(a[r], x + r * 64, 8);
            simdgroup_load(b[r], x + r * 64, 8, ulong2(0, 0), true);
        }
        for (uint r = 0; r < 2; r++)
            for (uint s = 0; s < 2; s++)
                simdgroup_multiply_accumulate(c[r][s], a[r], b[s], c[r][s]);
    }
    simdgroup_store(c[0][0], out, 8);
    simdgroup_barrier(mem_flags::mem_none);
}

kernel void cost_thread(device float *out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = float(i); }

kernel void cost_convert(device float4 *out [[buffer(0)]], constant uint &rounds [[buffer(1)]],
                         device const half4 *x [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    float4 sum = 0;
    for (uint k = 0; k < rounds; k++)
        sum += float4(x[k & 15]);
    out[i] = sum;
}
