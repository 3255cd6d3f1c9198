#include <metal_stdlib>
using namespace metal;

// Kernels that are wrong, each in one way that the emulation must show.

// No barrier between the write and the neighbour's read.
kernel void missing_barrier(device float *out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    threadgroup float s[256];
    s[i] = float(i + 1);
    out[i] = s[i ^ 1];
}

// The same across simdgroups, behind a simdgroup barrier only.
kernel void weak_barrier(device float *out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                         uint n [[threads_per_threadgroup]]) {
    threadgroup float s[256];
    s[i] = float(i + 1);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = s[n - 1 - i];
}

// Half of the lanes meet at one operation, half at another.
kernel void divergent(device float *out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    float v = 0;
    if (i % 2)
        v = simd_sum(1.0f);
    else
        v = simd_max(2.0f);
    out[i] = v;
}

// Both operations on one line.
kernel void divergent_line(device float *out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    out[i] = i % 2 ? simd_sum(1.0f) : simd_sum(2.0f);
}

// Some lanes skip a simdgroup operation that precedes a barrier.
kernel void skipped(device float *out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    float v = 1;
    if (i % 32 < 8)
        v = simd_sum(v);
    threadgroup_barrier(mem_flags::mem_none);
    out[i] = v;
}

// The simdgroups meet at different barriers.
kernel void two_barriers(device float *out [[buffer(0)]], uint sg [[simdgroup_index_in_threadgroup]]) {
    if (sg == 0)
        threadgroup_barrier(mem_flags::mem_device);
    else
        threadgroup_barrier(mem_flags::mem_device);
    out[sg] = 1;
}

// A thread returns, the others wait.
kernel void left_alone(device float *out [[buffer(0)]], constant uint &who [[buffer(1)]],
                       uint i [[thread_index_in_threadgroup]]) {
    if (i == who)
        return;
    threadgroup_barrier(mem_flags::mem_device);
    out[i] = 1;
}

// A thread waits for a flag that another one sets later.
kernel void spins(device atomic_uint *flag [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    if (i == 1)
        atomic_store_explicit(flag, 1, memory_order_relaxed);
    while (atomic_load_explicit(flag, memory_order_relaxed) == 0)
        ;
}

// Loops of different length.
kernel void uneven(device float *out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
    float v = 0;
    for (uint k = 0; k <= i % 4; k++)
        v += simd_sum(1.0f);
    out[i] = simd_max(v);
}

// Reads and writes one element past its buffer, and past its threadgroup memory.
kernel void overrun(device float *out [[buffer(0)]], constant uint &mode [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
    threadgroup float s[64];
    s[i] = 1;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (mode == 1)
        out[i + 1] = s[i];
    else if (mode == 2)
        out[i] = s[i + 1 + (64 - n)];
    else
        out[i] = s[i];
}

[[max_total_threads_per_threadgroup(64)]]
kernel void small_groups(device float *out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    out[i] = 1;
}
