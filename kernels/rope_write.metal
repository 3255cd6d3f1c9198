// RoPE fused with the write to the KV cache, with and without head norms: everything
// between the QKV projection and attention in one dispatch.
#include <metal_stdlib>
#include "params.h"
#include "rotate.h"
#include "paged.h"
using namespace metal;

constant bool fc_interleaved [[function_constant(0)]]; // else NeoX pairs
constant bool fc_factors [[function_constant(1)]];     // divide each frequency by its factor

constant bool has_factors = is_function_constant_defined(fc_factors) ? fc_factors : false;

// Columns are where one head's Q, K and V start in a row of the joined projections.
struct Columns {
    ulong q, k, v;
};

inline Columns columns_of(constant RopeWriteParams &p, uint token, uint head) {
    const ulong row = ulong(token) * p.qkv_stride;
    Columns at;
    at.q = row + ulong(head) * p.head;
    at.k = row + ulong(p.heads + head) * p.head;
    at.v = row + ulong(p.heads + p.kv_heads + head) * p.head;
    return at;
}

// A head on its way into a cache: `put` takes the elements, `finish` writes what is not
// yet written. Plain caches take elements as they come. Blocks of Q8_0 need all of their
// elements, so the head passes through threadgroup memory and a simdgroup makes each.
inline void put(device float *cache, ulong row, threadgroup float *, Pair pair, float2 v) {
    cache[row + pair.first] = v.x;
    cache[row + pair.second] = v.y;
}
inline void put(device half *cache, ulong row, threadgroup float *, Pair pair, float2 v) {
    cache[row + pair.first] = half(v.x);
    cache[row + pair.second] = half(v.y);
}
inline void put(device CacheBlock *, ulong, threadgroup float *whole, Pair pair, float2 v) {
    whole[pair.first] = v.x;
    whole[pair.second] = v.y;
}
inline void finish(device float *, ulong, threadgroup const float *, uint, uint, uint, uint) {}
inline void finish(device half *, ulong, threadgroup const float *, uint, uint, uint, uint) {}
inline void finish(device CacheBlock *cache, ulong row, threadgroup const float *whole, uint head, uint sg,
                   uint simdgroups, uint lane) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint d = sg * 32; d < head; d += simdgroups * 32)
        store_block(cache, row + d, whole[d + lane], lane);
}

// rope_qkv_write rotates Q and K, writes Q to its own tensor and K and V to the cache
// slot of the token; a negative slot writes Q only. Threads of heads below kv_heads
// also do K and V, so that grouped queries need no second dispatch. Formula: rotate.h.
//
// Grid (ceil(head/64), heads, tokens) of 32 threads, one for each pair. No
// threadgroup memory.
template <typename A, typename C>
kernel void rope_qkv_write(device const A *qkv [[buffer(0)]],         // [tokens, (heads + 2·kv_heads)·head]
                           device const int *positions [[buffer(1)]], // [tokens]
                           device const int *slots [[buffer(2)]],     // [tokens]
                           device const float *factors [[buffer(3)]], // [rotated/2]
                           device A *q_out [[buffer(4)]],             // [tokens, heads, head]
                           device C *k_cache [[buffer(5)]],           // [blocks, kv_heads, block, head]
                           device C *v_cache [[buffer(6)]],           // [blocks, kv_heads, block, head]
                           constant RopeWriteParams &p [[buffer(7)]], //
                           uint3 position [[thread_position_in_grid]]) {
    const uint i = position.x, head = position.y, token = position.z;
    if (2 * i >= p.head)
        return;
    const Pair pair = pair_of(i, p.rotated, fc_interleaved);
    const Columns at = columns_of(p, token, head);
    float2 r = float2(1.0f, 0.0f);
    if (pair.rotates) {
        const float factor = has_factors ? factors[i] : 1.0f;
        r = rotation(positions[token], i, p.rotated, p.log2_theta, p.freq_scale, factor, p.magnitude);
    }

    float2 q = float2(float(qkv[at.q + pair.first]), float(qkv[at.q + pair.second]));
    if (pair.rotates)
        q = turn(q, r);
    device A *q_to = q_out + (ulong(token) * p.heads + head) * p.head;
    q_to[pair.first] = A(q.x);
    q_to[pair.second] = A(q.y);

    const int slot = slots[token];
    if (head >= p.kv_heads || slot < 0)
        return;
    float2 k = float2(float(qkv[at.k + pair.first]), float(qkv[at.k + pair.second]));
    if (pair.rotates)
        k = turn(k, r);
    const ulong row = cache_row(uint(slot) / p.block, uint(slot) % p.block, head, p.kv_heads, p.block, p.head);
    k_cache[row + pair.first] = C(k.x);
    k_cache[row + pair.second] = C(k.y);
    v_cache[row + pair.first] = C(float(qkv[at.v + pair.first]));
    v_cache[row + pair.second] = C(float(qkv[at.v + pair.second]));
}

// rope_qkv_write_blocks is rope_qkv_write to a cache of Q8_0.
//
// Grid (heads, tokens, 1) of round32(head/2) threads, one for each pair, at most 128:
// heads of up to 256. Threadgroup memory: a head of K and one of V.
template <typename A>
kernel void rope_qkv_write_blocks(device const A *qkv [[buffer(0)]],         // [tokens, (heads + 2·kv_heads)·head]
                                  device const int *positions [[buffer(1)]], // [tokens]
                                  device const int *slots [[buffer(2)]],     // [tokens]
                                  device const float *factors [[buffer(3)]], // [rotated/2]
                                  device A *q_out [[buffer(4)]],             // [tokens, heads, head]
                                  device CacheBlock *k_cache [[buffer(5)]],  // [blocks, kv_heads, block, head/32]
                                  device CacheBlock *v_cache [[buffer(6)]],  // [blocks, kv_heads, block, head/32]
                                  constant RopeWriteParams &p [[buffer(7)]], //
                                  uint3 group [[threadgroup_position_in_grid]], uint i [[thread_index_in_threadgroup]],
                                  uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                                  uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float whole[2 * 256];
    const uint head = group.x, token = group.y;
    const int slot = slots[token];
    const bool writes = head < p.kv_heads && slot >= 0;
    const Columns at = columns_of(p, token, head);
    if (2 * i < p.head) {
        const Pair pair = pair_of(i, p.rotated, fc_interleaved);
        float2 r = float2(1.0f, 0.0f);
        if (pair.rotates) {
            const float factor = has_factors ? factors[i] : 1.0f;
            r = rotation(positions[token], i, p.rotated, p.log2_theta, p.freq_scale, factor, p.magnitude);
        }
        float2 q = float2(float(qkv[at.q + pair.first]), float(qkv[at.q + pair.second]));
        if (pair.rotates)
            q = turn(q, r);
        device A *q_to = q_out + (ulong(token) * p.heads + head) * p.head;
        q_to[pair.first] = A(q.x);
        q_to[pair.second] = A(q.y);
        if (writes) {
            float2 k = float2(float(qkv[at.k + pair.first]), float(qkv[at.k + pair.second]));
            if (pair.rotates)
                k = turn(k, r);
            const float2 v = float2(float(qkv[at.v + pair.first]), float(qkv[at.v + pair.second]));
            put(k_cache, 0, whole, pair, k);
            put(v_cache, 0, whole + 256, pair, v);
        }
    }
    if (!writes)
        return;
    const ulong row = cache_row(uint(slot) / p.block, uint(slot) % p.block, head, p.kv_heads, p.block, p.head);
    finish(k_cache, row, whole, p.head, sg, simdgroups, lane);
    finish(v_cache, row, whole + 256, p.head, sg, simdgroups, lane);
}

// head_norm_rope_kv_write is rope_qkv_write after an RMSNorm of every head of Q and K
// on its own, as in Qwen3.
//
// Grid (heads, tokens, 1) of round32(head/2) threads, one for each pair, at most 128:
// heads of up to 256. Threads past head/2 (heads of 80, 96, 112) take part in the
// reduction with zeros. The squares of Q and K are reduced together. Threadgroup
// memory: two floats for each simdgroup and, for a cache of Q8_0, a head of K and of V.
template <typename A, typename C>
kernel void head_norm_rope_kv_write(device const A *qkv [[buffer(0)]],         // [tokens, (heads + 2·kv_heads)·head]
                                    device const int *positions [[buffer(1)]], // [tokens]
                                    device const int *slots [[buffer(2)]],     // [tokens]
                                    device const float *factors [[buffer(3)]], // [rotated/2]
                                    device A *q_out [[buffer(4)]],             // [tokens, heads, head]
                                    device C *k_cache [[buffer(5)]],           // [blocks, kv_heads, block, head]
                                    device C *v_cache [[buffer(6)]],           // [blocks, kv_heads, block, head]
                                    constant RopeWriteParams &p [[buffer(7)]], //
                                    device const float *q_norm [[buffer(8)]],  // [head]
                                    device const float *k_norm [[buffer(9)]],  // [head]
                                    uint3 group [[threadgroup_position_in_grid]],
                                    uint i [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                                    uint lane [[thread_index_in_simdgroup]],
                                    uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float2 partial[4];
    threadgroup float whole[sizeof(C) > 4 ? 2 * 256 : 2];
    threadgroup float *whole_v = whole + (sizeof(C) > 4 ? 256 : 0);
    const uint head = group.x, token = group.y;
    const Pair pair = pair_of(i, p.rotated, fc_interleaved);
    const Columns at = columns_of(p, token, head);
    const bool active = 2 * i < p.head;
    const bool writes = head < p.kv_heads && slots[token] >= 0;

    float2 q = 0.0f, k = 0.0f;
    if (active) {
        q = float2(float(qkv[at.q + pair.first]), float(qkv[at.q + pair.second]));
        if (writes)
            k = float2(float(qkv[at.k + pair.first]), float(qkv[at.k + pair.second]));
    }
    float2 squares = simd_sum(float2(q.x * q.x + q.y * q.y, k.x * k.x + k.y * k.y));
    if (simdgroups > 1) {
        if (lane == 0)
            partial[sg] = squares;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        squares = 0.0f;
        for (uint s = 0; s < simdgroups; s++)
            squares += partial[s];
    }
    const uint slot = uint(max(slots[token], 0));
    const ulong row = cache_row(slot / p.block, slot % p.block, head, p.kv_heads, p.block, p.head);
    if (active) {
        float2 r = float2(1.0f, 0.0f);
        if (pair.rotates) {
            const float factor = has_factors ? factors[i] : 1.0f;
            r = rotation(positions[token], i, p.rotated, p.log2_theta, p.freq_scale, factor, p.magnitude);
        }
        q *= precise::rsqrt(squares.x / float(p.head) + p.eps) * float2(q_norm[pair.first], q_norm[pair.second]);
        if (pair.rotates)
            q = turn(q, r);
        device A *q_to = q_out + (ulong(token) * p.heads + head) * p.head;
        q_to[pair.first] = A(q.x);
        q_to[pair.second] = A(q.y);
        if (writes) {
            k *= precise::rsqrt(squares.y / float(p.head) + p.eps) * float2(k_norm[pair.first], k_norm[pair.second]);
            if (pair.rotates)
                k = turn(k, r);
            put(k_cache, row, whole, pair, k);
            put(v_cache, row, whole_v, pair, float2(float(qkv[at.v + pair.first]), float(qkv[at.v + pair.second])));
        }
    }
    if (!writes)
        return;
    finish(k_cache, row, whole, p.head, sg, simdgroups, lane);
    finish(v_cache, row, whole_v, p.head, sg, simdgroups, lane);
}

template [[host_name("rope_qkv_write_f32_f32")]]
kernel decltype(rope_qkv_write<float, float>) rope_qkv_write<float, float>;
template [[host_name("rope_qkv_write_f32_f16")]]
kernel decltype(rope_qkv_write<float, half>) rope_qkv_write<float, half>;
template [[host_name("rope_qkv_write_f16_f32")]]
kernel decltype(rope_qkv_write<half, float>) rope_qkv_write<half, float>;
template [[host_name("rope_qkv_write_f16_f16")]]
kernel decltype(rope_qkv_write<half, half>) rope_qkv_write<half, half>;
template [[host_name("rope_qkv_write_f32_q8_0")]]
kernel decltype(rope_qkv_write_blocks<float>) rope_qkv_write_blocks<float>;
template [[host_name("rope_qkv_write_f16_q8_0")]]
kernel decltype(rope_qkv_write_blocks<half>) rope_qkv_write_blocks<half>;

template [[host_name("head_norm_rope_kv_write_f32_f32")]]
kernel decltype(head_norm_rope_kv_write<float, float>) head_norm_rope_kv_write<float, float>;
template [[host_name("head_norm_rope_kv_write_f32_f16")]]
kernel decltype(head_norm_rope_kv_write<float, half>) head_norm_rope_kv_write<float, half>;
template [[host_name("head_norm_rope_kv_write_f16_f32")]]
kernel decltype(head_norm_rope_kv_write<half, float>) head_norm_rope_kv_write<half, float>;
template [[host_name("head_norm_rope_kv_write_f16_f16")]]
kernel decltype(head_norm_rope_kv_write<half, half>) head_norm_rope_kv_write<half, half>;
template [[host_name("head_norm_rope_kv_write_f32_q8_0")]]
kernel decltype(head_norm_rope_kv_write<float, CacheBlock>) head_norm_rope_kv_write<float, CacheBlock>;
template [[host_name("head_norm_rope_kv_write_f16_q8_0")]]
kernel decltype(head_norm_rope_kv_write<half, CacheBlock>) head_norm_rope_kv_write<half, CacheBlock>;
