#include <metal_stdlib>
using namespace metal;

// Kernels that are right, about the ways in which threads meet.

constant uint scale [[function_constant(0)]];
constant float offset [[function_constant(1)]];
constant bool tripled [[function_constant(2)]];
constant uint factor = is_function_constant_defined(tripled) && tripled ? scale * 3 : scale;

static inline float affine(float x) { return x * float(factor) + offset; }

// The constants of the launch, read in a helper and for a while.
kernel void constants(device float *out [[buffer(0)]], constant uint &rounds [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
    float sum = 0;
    for (uint k = 0; k < rounds; k++)
        sum += affine(float(i));
    out[i] = sum / float(rounds);
}

// Overloads by address space, of which the emulation keeps one.
static inline float4 twice(thread const float4 &v) { return v + v; }
static inline float4 twice(device const float4 &v) { return v + v; }

// Every simdgroup operation, with lanes that may be missing from the last simdgroup.
kernel void simd_operations(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                            uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
    const float v = x[i];
    const uint u = uint(v);
    device float *o = out + i * 24;
    o[0] = simd_sum(v);
    o[1] = simd_max(v);
    o[2] = simd_min(v);
    o[3] = simd_product(v);
    o[4] = float(simd_and(u));
    o[5] = float(simd_or(u));
    o[6] = float(simd_xor(u));
    o[7] = simd_prefix_inclusive_sum(v);
    o[8] = simd_prefix_exclusive_sum(v);
    o[9] = simd_broadcast(v, 3);
    o[10] = simd_broadcast_first(v);
    o[11] = simd_shuffle_down(v, 1);
    o[12] = simd_shuffle_up(v, 2);
    o[13] = simd_shuffle_xor(v, 1);
    o[14] = float(ulong(simd_vote::vote_t(simd_ballot(v > 2.0))));
    o[15] = simd_any(v > 5.0) ? 1 : 0;
    o[16] = simd_all(v < 6.0) ? 1 : 0;
    o[17] = float(simd_sum(half(v)));
    const float4 f = simd_sum(float4(v, 1, -v, 2 * v));
    o[18] = f.x + f.y;
    o[19] = twice(f).z + f.w - f.z;
    o[20] = float(simd_sum(int(u)));
    o[21] = quad_sum(v);
    o[22] = simd_shuffle(v, ushort(7 - (i & 7)));
    o[23] = simd_shuffle_rotate_down(v, 31);
}

// Lanes that are past the end return before the others meet.
kernel void early_return(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                         constant uint &n [[buffer(2)]], uint i [[thread_index_in_threadgroup]]) {
    if (i >= n)
        return;
    float v = simd_sum(x[i]);
    if (i % 2 == 0) {
        out[i] = v;
        return;
    }
    v += simd_sum(1.0f);
    out[i] = v + simd_max(float(i));
}

// Threadgroup memory turned around, across simdgroups.
kernel void reverse(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                    uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]],
                    uint g [[threadgroup_position_in_grid]]) {
    threadgroup float a[1024];
    threadgroup half flags[1024], pad;
    a[i] = x[g * n + i];
    flags[i] = half(i & 1);
    if (i == 0)
        pad = 1.0h;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[g * n + i] = a[n - 1 - i] + float(flags[n - 1 - i]) * float(pad);
}

// A tile of threadgroup memory goes through a matrix whose elements are changed lane by lane.
template <typename T>
kernel void elements(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]], device float *out [[buffer(2)]],
                     device float *raw [[buffer(3)]], ushort lane [[thread_index_in_simdgroup]]) {
    simdgroup_matrix<T, 8, 8> x, y;
    simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
    simdgroup_load(x, a, 8);
    simdgroup_load(y, b, 16, ulong2(8, 1), true);
    simdgroup_multiply_accumulate(c, x, y, c);
    const float2 before = float2(c.thread_elements()[0], c.thread_elements()[1]);
    c.thread_elements()[0] *= 2.0f;
    c.thread_elements()[1] += float(lane);
    raw[lane * 2] = before.x;
    raw[lane * 2 + 1] = before.y;
    simdgroup_matrix<float, 8, 8> one(1.0f), d;
    simdgroup_multiply(d, c, one);
    simdgroup_store(d, out, 8);
    simdgroup_barrier(mem_flags::mem_device);
    simdgroup_store(d, out + 64, 8, ulong2(0, 0), true);
}
#define ELEMENTS(T) template [[host_name("elements_" #T)]] kernel decltype(elements<T>) elements<T>;
ELEMENTS(half)
ELEMENTS(bfloat)
ELEMENTS(float)

// Dynamic threadgroup memory in two arguments.
kernel void dynamic_memory(device float *out [[buffer(0)]], threadgroup float *a [[threadgroup(0)]],
                           threadgroup half *b [[threadgroup(1)]], uint i [[thread_index_in_threadgroup]],
                           uint n [[threads_per_threadgroup]]) {
    a[i] = float(i);
    b[n - 1 - i] = half(i);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = a[(i + 1) % n] + float(b[i]);
}

// Sums over all threads of the grid.
kernel void atomics(device atomic_uint *count [[buffer(0)]], device atomic_float *sum [[buffer(1)]],
                    device atomic_int *least [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    threadgroup atomic_uint mine;
    if (i % 64 == 0)
        atomic_store_explicit(&mine, 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&mine, 1, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (i % 64 == 0)
        atomic_fetch_add_explicit(count, atomic_load_explicit(&mine, memory_order_relaxed), memory_order_relaxed);
    atomic_fetch_add_explicit(sum, 0.5f, memory_order_relaxed);
    atomic_fetch_min_explicit(least, -int(i), memory_order_relaxed);
}

// All positions.
kernel void positions(device uint *out [[buffer(0)]], uint3 p [[thread_position_in_grid]],
                      ushort3 q [[thread_position_in_threadgroup]], uint2 g [[threadgroup_position_in_grid]],
                      uint3 n [[threads_per_grid]], uint i [[thread_index_in_threadgroup]],
                      ushort lane [[thread_index_in_simdgroup]], ushort sg [[simdgroup_index_in_threadgroup]],
                      uint nsg [[simdgroups_per_threadgroup]], uint width [[threads_per_simdgroup]],
                      uint3 groups [[threadgroups_per_grid]]) {
    device uint *o = out + ((p.z * n.y + p.y) * n.x + p.x) * 8;
    o[0] = p.x | p.y << 8 | p.z << 16;
    o[1] = q.x | q.y << 8 | q.z << 16;
    o[2] = g.x | g.y << 8;
    o[3] = i;
    o[4] = lane | sg << 8;
    o[5] = nsg | width << 8;
    o[6] = n.x | n.y << 8 | n.z << 16;
    o[7] = groups.x | groups.y << 8 | groups.z << 16;
}
