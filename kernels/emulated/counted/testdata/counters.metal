// Kernels whose counts are known.
#include <metal_stdlib>
using namespace metal;

constant uint fc_stride [[function_constant(0)]];

// copy moves element i of x to element i of out, for a grid of any size.
kernel void copy(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
    out[i] = x[i];
}

// copy_apart reads every fc_stride-th element.
kernel void copy_apart(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
    out[i] = x[i * fc_stride];
}

// row_by_lane adds up the rows of a matrix, lane i row i, one column at a turn.
kernel void row_by_lane(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                        constant uint &width [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    float sum = 0.0f;
    for (uint c = 0; c < width; c++)
        sum += x[i * width + c];
    out[i] = sum;
}

// turns reads 32 elements at each turn of its loop.
kernel void turns(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                  constant uint &width [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    float sum = 0.0f;
    for (uint c = i; c < width; c += 32)
        sum += x[c];
    out[i] = sum;
}

// apart has lane i at word i · fc_stride of threadgroup memory: as many of them in a bank
// as fc_stride and 32 have for a common divisor.
kernel void apart(device float *out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    threadgroup float words[32 * 32];
    words[i * fc_stride] = float(i);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = words[i * fc_stride];
}

// wide has lane i at words 4·i to 4·i + 3, which is four cycles and no conflict.
kernel void wide(device float4 *out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    threadgroup float4 rows[32];
    rows[i] = float4(1.0f, 2.0f, 3.0f, 4.0f);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = rows[i];
}

// scalars writes what wide does one word at a time: four lanes are in a bank.
kernel void scalars(device float *out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    threadgroup float words[32 * 4];
    for (uint c = 0; c < 4; c++)
        words[i * 4 + c] = float(c);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = words[i];
}

// same has all lanes at one word, which a bank gives to all.
kernel void same(device float *out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    threadgroup float words[32];
    words[i] = float(i);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = words[fc_stride];
}

// fork goes one way in the lanes below fc_stride and another in the rest.
kernel void fork(device float *out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    if (i % 32 < fc_stride) {
        out[i] = 1.0f;
    } else {
        out[i] = 2.0f;
    }
}

// ragged turns as often as its lane's number says.
kernel void ragged(device float *out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float sum = 0.0f;
    for (uint c = 0; c < i; c++)
        sum += 1.0f;
    out[i] = sum;
}

// barriers meets twice at each of `times` turns.
kernel void barriers(device float *out [[buffer(0)]], constant uint &times [[buffer(1)]],
                     uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
    threadgroup float words[64];
    float v = float(i);
    for (uint t = 0; t < times; t++) {
        words[i] = v;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        v = words[(i + 1) % n];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    out[i] = simd_sum(v);
}

// tile moves 8 × 8 elements through threadgroup memory, rows fc_stride apart.
kernel void tile(device const float *x [[buffer(0)]], device float *out [[buffer(1)]]) {
    threadgroup float words[8 * 64];
    simdgroup_float8x8 m;
    simdgroup_load(m, x, 8);
    simdgroup_store(m, words, fc_stride);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_load(m, words, fc_stride);
    simdgroup_store(m, out, 8);
}

// again reads all of x once in each threadgroup and twice in each thread.
kernel void again(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                  constant uint &width [[buffer(2)]], uint group [[threadgroup_position_in_grid]],
                  uint i [[thread_index_in_threadgroup]]) {
    float sum = 0.0f;
    for (uint pass = 0; pass < 2; pass++)
        for (uint c = i; c < width; c += 32)
            sum += x[c];
    out[group * 32 + i] = sum;
}

// bits shifts and converts: by a number that is not zero, between integers and floats, one
// by one and in vectors, and rotates. What it does beside that is another pipe's.
kernel void bits(device const uint *x [[buffer(0)]], device float *out [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
    uint v = x[i] >> fc_stride | x[i] << 1; // 4 cycles, and 4 more unless fc_stride is 0
    v >>= 3;                                // 4
    v = rotate(v, 5u) & 0x0f0f0f0fu;        // 4
    const ushort4 parts = ushort4(ushort2(v & 255u), ushort2(1, 2));
    const float4 four = float4(parts >> 2); // 16 and 16
    float sum = four.x + four.y + four.z + four.w;
    for (uint turn = 0; turn < 3; turn++)
        sum += float(turn) * float(half(sum));      // the compiler knows a turn
    out[i] = sum + float(int(sum)) + float(1 >> 1); // 8
}
