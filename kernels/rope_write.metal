// RoPE fused with the write to the KV cache, with and without head norms: everything
// between the QKV projection and attention in one dispatch.
#include <metal_stdlib>
#include "params.h"
#include "rotate.h"
#include "paged.h"
using namespace metal;

constant bool fc_interleaved [[function_constant(0)]]; // else NeoX pairs
constant bool fc_factors [[function_constant(1)]];     // divide each frequency by its factor
constant bool fc_table [[function_constant(2)]];       // factors are whole divisors: theta has no part
constant bool fc_positions [[function_constant(3)]];   // false: token t is at position `first` + t
constant bool fc_slots [[function_constant(4)]];       // false: a token's slot is its position
constant bool fc_separate [[function_constant(5)]];    // K and V lie in buffers of their own

constant bool from_table = is_function_constant_defined(fc_table) ? fc_table : false;
constant bool has_factors = (is_function_constant_defined(fc_factors) ? fc_factors : false) || from_table;
constant bool has_positions = is_function_constant_defined(fc_positions) ? fc_positions : true;
constant bool has_slots = is_function_constant_defined(fc_slots) ? fc_slots : true;
constant bool is_separate = is_function_constant_defined(fc_separate) ? fc_separate : false;

// A token's place: its position and its slot in the cache, below 0 for none. Without
// slots the cache is one block, with a row for each position.
struct Place {
    int position, slot;
};

inline Place place_of(constant RopeWriteParams &p, device const int *positions, device const int *slots, uint token) {
    Place place;
    place.position = has_positions ? positions[token] : int(p.first + token);
    place.slot = has_slots ? slots[token] : place.position;
    return place;
}

// Where one head's Q, K and V start.
template <typename A> struct Heads {
    device const A *q, *k, *v;
};

template <typename A>
inline Heads<A> heads_of(constant RopeWriteParams &p, device const A *qkv, device const A *k, device const A *v,
                         uint token, uint head) {
    const ulong column = ulong(head) * p.head, keys = ulong(p.heads) * p.head,
                values = keys + ulong(p.kv_heads) * p.head;
    Heads<A> at;
    at.q = qkv + ulong(token) * p.q_stride + column;
    at.k = (is_separate ? k : qkv + keys) + ulong(token) * p.k_stride + column;
    at.v = (is_separate ? v : qkv + values) + ulong(token) * p.v_stride + column;
    return at;
}

inline ulong row_of(constant RopeWriteParams &p, int slot, uint head) {
    return cache_row(uint(slot) / p.block, uint(slot) % p.block, head, p.kv_heads, p.block, p.head);
}

// A head on its way into a cache: `put` takes the elements, `finish` writes what is not
// yet written. Plain caches take elements as they come. Blocks of Q8_0 need all of their
// elements, so the head passes through threadgroup memory and a simdgroup makes each.
template <typename C> inline void put(device C *cache, ulong row, threadgroup float *, Pair pair, float2 v) {
    store_pair(cache + row, pair, v);
}
inline void put(device CacheBlock *, ulong, threadgroup float *whole, Pair pair, float2 v) {
    whole[pair.first] = v.x;
    whole[pair.second] = v.y;
}
template <typename C> inline void finish(device C *, ulong, threadgroup const float *, uint, uint, uint, uint) {}
inline void finish(device CacheBlock *cache, ulong row, threadgroup const float *whole, uint head, uint sg,
                   uint simdgroups, uint lane) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint d = sg * 32; d < head; d += simdgroups * 32)
        store_block(cache, row + d, whole[d + lane], lane);
}

// rope_qkv_write rotates Q and K, writes Q to its own tensor and K and V to the cache
// slot of the token; a negative slot writes Q only. Threads of heads below kv_heads
// also do K and V, so that grouped queries need no second dispatch. Formula and tables:
// rotate.h, rope.metal. One kernel serves one token and batches, joined projections and
// separate ones, where akunu has rope_qkv_write, rope_batch_kv_write and their neox forms.
//
// Grid (ceil(head/64), heads, tokens) of 32 threads, one for each pair. No
// threadgroup memory.
template <typename A, typename C>
kernel void rope_qkv_write(device const A *qkv [[buffer(0)]],         // [tokens, (heads + 2·kv_heads)·head], or Q
                           device const int *positions [[buffer(1)]], // [tokens]
                           device const int *slots [[buffer(2)]],     // [tokens]
                           device const float *factors [[buffer(3)]], // [rotated/2]
                           device A *q_out [[buffer(4)]],             // [tokens, heads, head]
                           device C *k_cache [[buffer(5)]],           // [blocks, kv_heads, block, head]
                           device C *v_cache [[buffer(6)]],           // [blocks, kv_heads, block, head]
                           constant RopeWriteParams &p [[buffer(7)]], //
                           device const A *k [[buffer(10)]],          // [tokens, kv_heads, head], k_stride apart
                           device const A *v [[buffer(11)]],          // [tokens, kv_heads, head], v_stride apart
                           uint3 position [[thread_position_in_grid]]) {
    const uint i = position.x, head = position.y, token = position.z;
    if (2 * i >= p.head)
        return;
    const Pair pair = pair_of(i, p.rotated, fc_interleaved);
    const Place place = place_of(p, positions, slots, token);
    const Heads<A> at = heads_of(p, qkv, k, v, token, head);
    float2 r = float2(1.0f, 0.0f);
    if (pair.rotates)
        r = rotation(p, place.position, i, has_factors ? factors[i] : 1.0f, from_table);

    float2 query = load_pair(at.q, pair);
    if (pair.rotates)
        query = turn(query, r);
    store_pair(q_out + (ulong(token) * p.heads + head) * p.head, pair, query);

    if (head >= p.kv_heads || place.slot < 0)
        return;
    float2 key = load_pair(at.k, pair);
    if (pair.rotates)
        key = turn(key, r);
    const ulong row = row_of(p, place.slot, head);
    store_pair(k_cache + row, pair, key);
    store_pair(v_cache + row, pair, load_pair(at.v, pair));
}

// rope_qkv_write_blocks is rope_qkv_write to a cache of Q8_0.
//
// Grid (heads, tokens, 1) of round32(head/2) threads, one for each pair, at most 128:
// heads of up to 256. Threadgroup memory: a head of K and one of V.
template <typename A>
[[kernel, max_total_threads_per_threadgroup(128)]] void
rope_qkv_write_blocks(device const A *qkv [[buffer(0)]],         // [tokens, (heads + 2·kv_heads)·head], or Q
                      device const int *positions [[buffer(1)]], // [tokens]
                      device const int *slots [[buffer(2)]],     // [tokens]
                      device const float *factors [[buffer(3)]], // [rotated/2]
                      device A *q_out [[buffer(4)]],             // [tokens, heads, head]
                      device CacheBlock *k_cache [[buffer(5)]],  // [blocks, kv_heads, block, head/32]
                      device CacheBlock *v_cache [[buffer(6)]],  // [blocks, kv_heads, block, head/32]
                      constant RopeWriteParams &p [[buffer(7)]], //
                      device const A *k [[buffer(10)]],          // [tokens, kv_heads, head], k_stride apart
                      device const A *v [[buffer(11)]],          // [tokens, kv_heads, head], v_stride apart
                      uint3 group [[threadgroup_position_in_grid]], uint i [[thread_index_in_threadgroup]],
                      uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                      uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float whole[2 * 256];
    const uint head = group.x, token = group.y;
    const Place place = place_of(p, positions, slots, token);
    const bool writes = head < p.kv_heads && place.slot >= 0;
    if (2 * i < p.head) {
        const Pair pair = pair_of(i, p.rotated, fc_interleaved);
        const Heads<A> at = heads_of(p, qkv, k, v, token, head);
        float2 r = float2(1.0f, 0.0f);
        if (pair.rotates)
            r = rotation(p, place.position, i, has_factors ? factors[i] : 1.0f, from_table);
        float2 query = load_pair(at.q, pair);
        if (pair.rotates)
            query = turn(query, r);
        store_pair(q_out + (ulong(token) * p.heads + head) * p.head, pair, query);
        if (writes) {
            float2 key = load_pair(at.k, pair);
            if (pair.rotates)
                key = turn(key, r);
            put(k_cache, 0, whole, pair, key);
            put(v_cache, 0, whole + 256, pair, load_pair(at.v, pair));
        }
    }
    if (!writes)
        return;
    const ulong row = row_of(p, place.slot, head);
    finish(k_cache, row, whole, p.head, sg, simdgroups, lane);
    finish(v_cache, row, whole + 256, p.head, sg, simdgroups, lane);
}

// head_norm_rope_kv_write is rope_qkv_write after an RMSNorm of every head of Q and K
// on its own, as in Qwen3. The fusion is akunu's head_norm_rope_neox_kv_write, here
// for either pairing, any number of tokens, tables and paged caches.
//
// Grid (heads, tokens, 1) of round32(head/2) threads, one for each pair, at most 128:
// heads of up to 256. Threads past head/2 (heads of 80, 96, 112) take part in the
// reduction with zeros. The squares of Q and K are reduced together. Threadgroup
// memory: two floats for each simdgroup and, for a cache of Q8_0, a head of K and of V.
template <typename A, typename C>
[[kernel, max_total_threads_per_threadgroup(128)]] void
head_norm_rope_kv_write(device const A *qkv [[buffer(0)]],         // [tokens, (heads + 2·kv_heads)·head], or Q
                        device const int *positions [[buffer(1)]], // [tokens]
                        device const int *slots [[buffer(2)]],     // [tokens]
                        device const float *factors [[buffer(3)]], // [rotated/2]
                        device A *q_out [[buffer(4)]],             // [tokens, heads, head]
                        device C *k_cache [[buffer(5)]],           // [blocks, kv_heads, block, head]
                        device C *v_cache [[buffer(6)]],           // [blocks, kv_heads, block, head]
                        constant RopeWriteParams &p [[buffer(7)]], //
                        device const float *q_norm [[buffer(8)]],  // [head]
                        device const float *k_norm [[buffer(9)]],  // [head]
                        device const A *k [[buffer(10)]],          // [tokens, kv_heads, head], k_stride apart
                        device const A *v [[buffer(11)]],          // [tokens, kv_heads, head], v_stride apart
                        uint3 group [[threadgroup_position_in_grid]], uint i [[thread_index_in_threadgroup]],
                        uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                        uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float2 partial[4];
    threadgroup float whole[sizeof(C) > 4 ? 2 * 256 : 2];
    threadgroup float *whole_v = whole + (sizeof(C) > 4 ? 256 : 0);
    const uint head = group.x, token = group.y;
    const Pair pair = pair_of(i, p.rotated, fc_interleaved);
    const Place place = place_of(p, positions, slots, token);
    const Heads<A> at = heads_of(p, qkv, k, v, token, head);
    const bool active = 2 * i < p.head;
    const bool writes = head < p.kv_heads && place.slot >= 0;

    float2 query = 0.0f, key = 0.0f;
    if (active) {
        query = load_pair(at.q, pair);
        if (writes)
            key = load_pair(at.k, pair);
    }
    float2 squares = simd_sum(float2(query.x * query.x + query.y * query.y, key.x * key.x + key.y * key.y));
    if (simdgroups > 1) {
        if (lane == 0)
            partial[sg] = squares;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        squares = 0.0f;
        for (uint s = 0; s < simdgroups; s++)
            squares += partial[s];
    }
    const ulong row = row_of(p, max(place.slot, 0), head);
    if (active) {
        float2 r = float2(1.0f, 0.0f);
        if (pair.rotates)
            r = rotation(p, place.position, i, has_factors ? factors[i] : 1.0f, from_table);
        query *= precise::rsqrt(squares.x / float(p.head) + p.eps) * float2(q_norm[pair.first], q_norm[pair.second]);
        if (pair.rotates)
            query = turn(query, r);
        store_pair(q_out + (ulong(token) * p.heads + head) * p.head, pair, query);
        if (writes) {
            key *= precise::rsqrt(squares.y / float(p.head) + p.eps) * float2(k_norm[pair.first], k_norm[pair.second]);
            if (pair.rotates)
                key = turn(key, r);
            put(k_cache, row, whole, pair, key);
            put(v_cache, row, whole_v, pair, load_pair(at.v, pair));
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
template [[host_name("rope_qkv_write_bf16_bf16")]]
kernel decltype(rope_qkv_write<bfloat, bfloat>) rope_qkv_write<bfloat, bfloat>;
template [[host_name("rope_qkv_write_f32_q8_0")]]
kernel decltype(rope_qkv_write_blocks<float>) rope_qkv_write_blocks<float>;
template [[host_name("rope_qkv_write_f16_q8_0")]]
kernel decltype(rope_qkv_write_blocks<half>) rope_qkv_write_blocks<half>;
template [[host_name("rope_qkv_write_bf16_q8_0")]]
kernel decltype(rope_qkv_write_blocks<bfloat>) rope_qkv_write_blocks<bfloat>;

template [[host_name("head_norm_rope_kv_write_f32_f32")]]
kernel decltype(head_norm_rope_kv_write<float, float>) head_norm_rope_kv_write<float, float>;
template [[host_name("head_norm_rope_kv_write_f32_f16")]]
kernel decltype(head_norm_rope_kv_write<float, half>) head_norm_rope_kv_write<float, half>;
template [[host_name("head_norm_rope_kv_write_f16_f32")]]
kernel decltype(head_norm_rope_kv_write<half, float>) head_norm_rope_kv_write<half, float>;
template [[host_name("head_norm_rope_kv_write_f16_f16")]]
kernel decltype(head_norm_rope_kv_write<half, half>) head_norm_rope_kv_write<half, half>;
template [[host_name("head_norm_rope_kv_write_bf16_bf16")]]
kernel decltype(head_norm_rope_kv_write<bfloat, bfloat>) head_norm_rope_kv_write<bfloat, bfloat>;
template [[host_name("head_norm_rope_kv_write_f32_q8_0")]]
kernel decltype(head_norm_rope_kv_write<float, CacheBlock>) head_norm_rope_kv_write<float, CacheBlock>;
template [[host_name("head_norm_rope_kv_write_f16_q8_0")]]
kernel decltype(head_norm_rope_kv_write<half, CacheBlock>) head_norm_rope_kv_write<half, CacheBlock>;
template [[host_name("head_norm_rope_kv_write_bf16_q8_0")]]
kernel decltype(head_norm_rope_kv_write<bfloat, CacheBlock>) head_norm_rope_kv_write<bfloat, CacheBlock>;
