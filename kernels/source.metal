// Operations that only the source stage has: attention as a paper writes it, with
// scores in memory. Fusion replaces them all.
#include <metal_stdlib>
#include "abi/params.h"
#include "tile.h"
using namespace metal;

constant bool fc_transposed [[function_constant(0)]]; // b of matmul is [batch, n, k]

constant bool fc_sinks [[function_constant(1)]]; // every head has a score without a key

constant bool fc_slopes [[function_constant(2)]]; // scores fall with distance

constant bool has_sinks = is_function_constant_defined(fc_sinks) ? fc_sinks : false;
constant bool has_slopes = is_function_constant_defined(fc_slopes) ? fc_slopes : false;
constant bool is_transposed = is_function_constant_defined(fc_transposed) ? fc_transposed : false;

// permute writes the dense tensor of size[0] × size[1] × size[2] whose element
// (i, j, k) is x[i·stride[0] + j·stride[1] + k·stride[2]].
//
// Grid (ceil(size[2]/64), size[1], size[0]) of 64 threads, one for each element. No
// threadgroup memory.
template <typename A>
kernel void permute(device const A *x [[buffer(0)]],           // three axes, stride[i] elements apart
                    device A *out [[buffer(1)]],               // [size[0], size[1], size[2]]
                    constant TransposeParams &p [[buffer(2)]], //
                    uint3 position [[thread_position_in_grid]]) {
    if (position.x >= p.size[2])
        return;
    const ulong from =
        ulong(position.z) * p.stride[0] + ulong(position.y) * p.stride[1] + ulong(position.x) * p.stride[2];
    out[(ulong(position.z) * p.size[1] + position.y) * p.size[2] + position.x] = x[from];
}

// matmul computes out = a·b, or a·bᵀ, for every matrix of a batch; sums are float.
//
// Grid (ceil(n/32), ceil(m/32), batch) of 128 threads. Threadgroup memory: two tiles
// of 32 × 32 in rows of 40, which the result replaces.
template <typename A>
kernel void matmul(device const A *a [[buffer(0)]],        // [batch, m, k]
                   device const A *b [[buffer(1)]],        // [batch, k, n], or [batch, n, k] transposed
                   device A *out [[buffer(2)]],            // [batch, m, n]
                   constant MatmulParams &p [[buffer(3)]], //
                   uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                   uint sg [[simdgroup_index_in_threadgroup]]) {
    threadgroup float memory[2 * 32 * 40 * sizeof(A) / 4];
    threadgroup A *a_tile = (threadgroup A *)memory;
    threadgroup A *b_tile = a_tile + 32 * 40;

    const uint m0 = group.y * 32, n0 = group.x * 32;
    device const A *a_from = a + ulong(group.z) * p.m * p.k;
    device const A *b_from = b + ulong(group.z) * p.n * p.k;
    const uint row = tid / 4, part = tid % 4 * 8;
    Quadrant acc;
    clear(acc);
    for (uint k0 = 0; k0 < p.k; k0 += 32) {
        for (uint i = part; i < part + 8; i++) {
            const bool inside = m0 + row < p.m && k0 + i < p.k;
            a_tile[row * 40 + i] = A(inside ? float(a_from[ulong(m0 + row) * p.k + k0 + i]) : 0.0f);
        }
        for (uint i = part; i < part + 8; i++) {
            const uint n = is_transposed ? n0 + row : n0 + i;
            const uint k = is_transposed ? k0 + i : k0 + row;
            const ulong at = is_transposed ? ulong(n) * p.k + k : ulong(k) * p.n + n;
            b_tile[row * 40 + i] = A(n < p.n && k < p.k ? float(b_from[at]) : 0.0f);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        accumulate(a_tile, b_tile, 40, 32, !is_transposed, sg, acc);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    store(acc, memory, sg);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint e = tid; e < 32 * 32; e += 128) {
        const uint m = m0 + e / 32, n = n0 + e % 32;
        if (m < p.m && n < p.n)
            out[(ulong(group.z) * p.m + m) * p.n + n] = A(memory[e]);
    }
}

// mask sets the scores of keys that a token does not see to -inf. Column b·context + j
// is key j of sequence b; token t sees it if sequence b owns t, j ≤ positions[t],
// j < context_lens[b] and, where there is a window, positions[t] - j < window. With
// fc_slopes the scores of the other keys get slopes[head] · (j - positions[t]).
//
// Grid (ceil(seqs·context/64), tokens, heads) of 64 threads, one for each score. No
// threadgroup memory.
template <typename A>
kernel void mask(device const A *scores [[buffer(0)]],         // [heads, tokens, seqs·context]
                 device const int *positions [[buffer(1)]],    // [tokens]
                 device const int *cu_seqlens [[buffer(2)]],   // [seqs + 1]
                 device const int *context_lens [[buffer(3)]], // [seqs]
                 device A *out [[buffer(4)]],                  // [heads, tokens, seqs·context]
                 constant MaskParams &p [[buffer(5)]],         //
                 device const float *slopes [[buffer(6)]],     // [heads]
                 uint3 position [[thread_position_in_grid]]) {
    const uint columns = p.seqs * p.context, column = position.x, token = position.y;
    if (column >= columns)
        return;
    const uint seq = column / p.context;
    const int key = int(column % p.context), t = int(token);
    const bool owned = cu_seqlens[seq] <= t && t < cu_seqlens[seq + 1];
    const bool recent = p.window == 0 || uint(positions[token] - key) < p.window;
    const bool seen = owned && key <= positions[token] && key < context_lens[seq] && recent;
    const ulong at = (ulong(position.z) * p.tokens + token) * columns + column;
    float score = float(scores[at]);
    if (has_slopes)
        score += slopes[position.z] * float(key - positions[token]);
    out[at] = A(seen ? score : -INFINITY);
}

// softmax computes exp(x - max) / Σ exp(x - max) over each row, in float; a row of
// only -inf gives zeros, one with a NaN or +inf gives NaN. With fc_sinks, one more
// score, that of the row's head, counts in the sum and the maximum.
//
// Grid (rows, 1, 1) of 256 threads. One pass over the row gives both statistics: every
// thread keeps the largest element it met and the sum relative to it, which it scales
// down when it meets a larger one (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018); they are merged over simdgroups and then over the
// threadgroup. Threadgroup memory: two floats for each simdgroup.
template <typename A>
kernel void softmax(device const A *x [[buffer(0)]],         // [rows, width], rows a_stride apart
                    device A *out [[buffer(1)]],             // [rows, width], dense
                    constant ElementParams &p [[buffer(2)]], //
                    device const float *sinks [[buffer(3)]], // [rows / b_stride]
                    uint row [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                    uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float maxima[8];
    threadgroup float totals[8];
    device const A *from = x + ulong(row) * p.a_stride;
    device A *to = out + ulong(row) * p.width;

    float highest = -INFINITY, total = 0.0f;
    for (uint i = tid; i < p.width; i += 256) {
        const float v = float(from[i]);
        if (v > highest) {
            total *= exp(highest - v);
            highest = v;
        }
        if (v != -INFINITY) // NaN is added too
            total += exp(v - highest);
    }
    const float peak = simd_max(highest);
    if (highest > -INFINITY)
        total *= exp(highest - peak);
    total = simd_sum(total);
    if (lane == 0) {
        maxima[sg] = peak;
        totals[sg] = total;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float sink = has_sinks ? sinks[row / p.b_stride] : -INFINITY;
    highest = sink;
    for (uint i = 0; i < 8; i++)
        highest = max(highest, maxima[i]);
    total = sink == -INFINITY ? 0.0f : exp(sink - highest);
    for (uint i = 0; i < 8; i++)
        total += maxima[i] > -INFINITY ? totals[i] * exp(maxima[i] - highest) : totals[i];
    for (uint i = tid; i < p.width; i += 256)
        to[i] = A(total == 0.0f ? 0.0f : exp(float(from[i]) - highest) / total);
}

template [[host_name("transpose_f32")]] kernel decltype(permute<float>) permute<float>;
template [[host_name("transpose_f16")]] kernel decltype(permute<half>) permute<half>;
template [[host_name("transpose_bf16")]] kernel decltype(permute<bfloat>) permute<bfloat>;
template [[host_name("matmul_f32")]] kernel decltype(matmul<float>) matmul<float>;
template [[host_name("mask_f32")]] kernel decltype(mask<float>) mask<float>;
template [[host_name("softmax_f32")]] kernel decltype(softmax<float>) softmax<float>;
template [[host_name("softmax_f16")]] kernel decltype(softmax<half>) softmax<half>;
template [[host_name("softmax_bf16")]] kernel decltype(softmax<bfloat>) softmax<bfloat>;
