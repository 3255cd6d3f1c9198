// RoPE fused with the write to the KV cache, with and without head norms: everything
// between the QKV projection and attention in one dispatch.
#include <metal_stdlib>
#include "abi/params.h"
#include "pairs.h"
#include "unroll.h"
using namespace metal;

constant bool fc_interleaved [[function_constant(0)]]; // else NeoX pairs
constant bool fc_factors [[function_constant(1)]];     // divide each frequency by its factor
constant bool fc_table [[function_constant(2)]];       // factors are whole divisors: theta has no part
constant bool fc_positions [[function_constant(3)]];   // false: token t is at position `first` + t
constant bool fc_slots [[function_constant(4)]];       // false: a token's slot is its position
constant bool fc_separate [[function_constant(5)]];    // K and V lie in buffers of their own
constant bool fc_all_heads [[function_constant(6)]];   // a norm is over all heads of Q, or of K
constant bool fc_norm_values [[function_constant(7)]]; // heads of V are normalised too, without weights

constant bool from_table = is_function_constant_defined(fc_table) ? fc_table : false;
constant bool has_factors = (is_function_constant_defined(fc_factors) ? fc_factors : false) || from_table;
constant bool has_positions = is_function_constant_defined(fc_positions) ? fc_positions : true;
constant bool has_slots = is_function_constant_defined(fc_slots) ? fc_slots : true;
constant bool is_separate = is_function_constant_defined(fc_separate) ? fc_separate : false;
constant bool all_heads = is_function_constant_defined(fc_all_heads) ? fc_all_heads : false;
constant bool norm_values = is_function_constant_defined(fc_norm_values) ? fc_norm_values : false;

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

// A token's rows are its heads: those of Q, then K, then V. A simdgroup processes
// neighbouring rows, so that it reads position, slot, frequencies and gains once for all of
// them and memory in whole lines; branches on the kind of a row do not diverge. A row is one,
// two or four steps of 128 elements, and a simdgroup processes eight steps.
constant constexpr uint taken = 8;

// The tensors of a launch, as the kernels below have them.
template <typename A, typename C> struct Tensors {
    device const A *qkv, *k, *v;
    device const float *factors, *q_norm, *k_norm;
    device A *q_out;
    device C *k_cache, *v_cache;
};

// from_row is where a row starts in Q, K or V.
template <typename A, typename C>
inline device const A *from_row(constant RopeWriteParams &p, Tensors<A, C> t, uint token, uint row) {
    const uint keys = p.heads, values = p.heads + p.kv_heads;
    if (row < keys)
        return t.qkv + ulong(token) * p.q_stride + ulong(row) * p.head;
    if (row < values) {
        device const A *k = is_separate ? t.k : t.qkv + ulong(keys) * p.head;
        return k + ulong(token) * p.k_stride + ulong(row - keys) * p.head;
    }
    device const A *v = is_separate ? t.v : t.qkv + ulong(values) * p.head;
    return v + ulong(token) * p.v_stride + ulong(row - values) * p.head;
}

// to_row is the element of a cache where a row of K or V starts.
inline ulong to_row(constant RopeWriteParams &p, int slot, uint row) {
    return cache_row(uint(slot) / p.block, uint(slot) % p.block, (row - p.heads) % p.kv_heads, p.kv_heads, p.block,
                     p.head);
}

// The write of a row to a cache: `put` accepts the elements, `finish` writes those not yet
// written. Plain caches are written by `put`. Blocks of Q8_0 need neighbouring elements in
// neighbouring lanes, so their rows pass through threadgroup memory.
template <typename C> inline void put(device C *cache, ulong row, threadgroup float *, Pairs at, float4 v, bool whole) {
    store_pairs(cache + row, at, v, whole);
}
inline void put(device CacheBlock *, ulong, threadgroup float *staged, Pairs at, float4 v, bool whole) {
    store_pairs(staged, at, v, whole);
}
template <typename C> inline void finish(device C *, ulong, threadgroup const float *, uint, uint) {}
inline void finish(device CacheBlock *cache, ulong row, threadgroup const float *staged, uint head, uint lane) {
    for (uint d = 0; d < head; d += 32)
        store_block(cache, row + d, staged[d + lane], lane);
}

// scale_of returns RMSNorm's factor of n elements, whose squares one simdgroup sums.
template <typename A> inline float scale_of(device const A *from, uint n, float eps, uint lane) {
    float squares = 0.0f;
    for (uint i = lane; i < n; i += 32)
        squares += float(from[i]) * float(from[i]);
    return precise::rsqrt(simd_sum(squares) / float(n) + eps);
}

// write_rows does the rows of one simdgroup, heads being of up to steps · step_width
// elements.
template <uint steps, bool norms, typename A, typename C>
inline void write_rows(constant RopeWriteParams &p, Tensors<A, C> t, Place place, threadgroup float *staged, uint group,
                       uint token, uint lane) {
    constexpr uint count = taken / steps;
    const uint keys = p.heads, values = p.heads + p.kv_heads, first = group * count;
    const uint end = place.slot < 0 ? keys : values + p.kv_heads; // no slot: Q only
    const bool whole = ((p.rotated | p.q_stride | p.k_stride | p.v_stride) & 3) == 0;
    Pairs turned[steps], copied[steps]; // of Q and K; of V
    bool inside[steps];
    UNROLL for (uint s = 0; s < steps; s++) {
        const uint i = (s * 32 + lane) * 2;
        turned[s] = pairs_of(i, p.rotated, fc_interleaved);
        copied[s] = pairs_of(i, 0, fc_interleaved);
        inside[s] = 2 * i < p.head;
    }

    float4 x[count][steps];
    UNROLL for (uint j = 0; j < count; j++) {
        const uint row = first + j;
        UNROLL for (uint s = 0; s < steps; s++) {
            x[j][s] = float4(0.0f);
            if (row < end && inside[s])
                x[j][s] = load_pairs(from_row(p, t, token, row), row < values ? turned[s] : copied[s], whole);
        }
    }
    float scale[count];
    if (norms && all_heads) {
        const bool has_queries = first < keys, has_keys = first < values && first + count > keys;
        const float queries = has_queries ? scale_of(from_row(p, t, token, 0), keys * p.head, p.eps, lane) : 0.0f;
        const float others = has_keys ? scale_of(from_row(p, t, token, keys), p.kv_heads * p.head, p.eps, lane) : 0.0f;
        UNROLL for (uint j = 0; j < count; j++)
            scale[j] = first + j < keys ? queries : others;
    }
    UNROLL for (uint j = 0; j < count; j++) {
        if (!norms || (first + j < values ? all_heads : !norm_values))
            continue;
        float squares = 0.0f;
        UNROLL for (uint s = 0; s < steps; s++)
            squares += dot(x[j][s], x[j][s]);
        scale[j] = precise::rsqrt(simd_sum(squares) / float(p.head) + p.eps);
    }

    UNROLL for (uint s = 0; s < steps; s++) {
        if (!inside[s])
            continue;
        float4 r = float4(0.0f), query = float4(1.0f), key = float4(1.0f);
        if (first < values)
            r = rotations(p, place.position, (s * 32 + lane) * 2, turned[s], t.factors, has_factors, from_table);
        if (norms && !all_heads && first < keys)
            query = load_pairs(t.q_norm, turned[s], whole);
        if (norms && !all_heads && first < values && first + count > keys)
            key = load_pairs(t.k_norm, turned[s], whole);
        UNROLL for (uint j = 0; j < count; j++) {
            const uint row = first + j;
            if (row >= end)
                continue;
            float4 v = x[j][s];
            if (norms && row < values) {
                float4 gain = row < keys ? query : key;
                if (all_heads)
                    gain = load_pairs((row < keys ? t.q_norm : t.k_norm - ulong(keys) * p.head) + ulong(row) * p.head,
                                      turned[s], whole);
                v *= scale[j] * gain;
            } else if (norms && norm_values) {
                v *= scale[j];
            }
            if (row < values)
                v = turn_pairs(v, turned[s], r);
            if (row < keys)
                store_pairs(t.q_out + (ulong(token) * p.heads + row) * p.head, turned[s], v, whole);
            else
                put(row < values ? t.k_cache : t.v_cache, to_row(p, place.slot, row), staged + j * p.head,
                    row < values ? turned[s] : copied[s], v, whole);
        }
    }
    if (sizeof(C) <= 4)
        return;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = 0; j < count; j++) {
        const uint row = first + j;
        if (row >= keys && row < end)
            finish(row < values ? t.k_cache : t.v_cache, to_row(p, place.slot, row), staged + j * p.head, p.head, lane);
    }
}

template <bool norms, typename A, typename C>
inline void write_heads(constant RopeWriteParams &p, Tensors<A, C> t, device const int *positions,
                        device const int *slots, threadgroup float *staged, uint3 group, uint lane) {
    const Place place = place_of(p, positions, slots, group.y);
    if (p.head <= step_width)
        write_rows<1, norms>(p, t, place, staged, group.x, group.y, lane);
    else if (p.head <= 2 * step_width)
        write_rows<2, norms>(p, t, place, staged, group.x, group.y, lane);
    else
        write_rows<4, norms>(p, t, place, staged, group.x, group.y, lane);
}

// rope_qkv_write rotates Q and K, writes Q to its own tensor and K and V to the cache
// slot of the token; a negative slot writes Q only. Formula and tables: rotate.h,
// rope.metal. One kernel serves one token and batches, joined projections and separate
// ones, where akunu has rope_qkv_write, rope_batch_kv_write and their neox forms.
//
// Grid (ceil((heads + 2·kv_heads)/n), tokens, 1) of 32 threads, n being 8 for heads of
// up to 128, 4 for those of up to 256 and else 2. Rows that are whole fours apart start at multiples of four
// elements. Threadgroup memory: n heads, for a cache of Q8_0.
template <typename A, typename C>
[[kernel, max_total_threads_per_threadgroup(32)]] void
rope_qkv_write(device const A *qkv [[buffer(0)]],         // [tokens, (heads + 2·kv_heads)·head], or Q
               device const int *positions [[buffer(1)]], // [tokens]
               device const int *slots [[buffer(2)]],     // [tokens]
               device const float *factors [[buffer(3)]], // [rotated/2]
               device A *q_out [[buffer(4)]],             // [tokens, heads, head]
               device C *k_cache [[buffer(5)]],           // [blocks, kv_heads, block, head]
               device C *v_cache [[buffer(6)]],           // [blocks, kv_heads, block, head]
               constant RopeWriteParams &p [[buffer(7)]], //
               device const A *k [[buffer(10)]],          // [tokens, kv_heads, head], k_stride apart
               device const A *v [[buffer(11)]],          // [tokens, kv_heads, head], v_stride apart
               uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float staged[sizeof(C) > 4 ? taken * step_width : 1];
    const Tensors<A, C> t = {qkv, k, v, factors, factors, factors, q_out, k_cache, v_cache};
    write_heads<false>(p, t, positions, slots, staged, group, lane);
}

// head_norm_rope_kv_write is rope_qkv_write after an RMSNorm of every head of Q and K
// on its own, as in Qwen3, or with fc_all_heads of all heads of Q as one row, and of K, as in
// OLMo 2, for which every simdgroup reads the whole row, and with fc_norm_values of every head of V, as in
// Gemma 4. The fusion is akunu's head_norm_rope_neox_kv_write, here
// for either pairing, any number of tokens, tables and paged caches.
//
// Grid and threadgroup memory as of rope_qkv_write. Lanes past a head take part in the
// reductions with zeros.
template <typename A, typename C>
[[kernel, max_total_threads_per_threadgroup(32)]] void
head_norm_rope_kv_write(device const A *qkv [[buffer(0)]],         // [tokens, (heads + 2·kv_heads)·head], or Q
                        device const int *positions [[buffer(1)]], // [tokens]
                        device const int *slots [[buffer(2)]],     // [tokens]
                        device const float *factors [[buffer(3)]], // [rotated/2]
                        device A *q_out [[buffer(4)]],             // [tokens, heads, head]
                        device C *k_cache [[buffer(5)]],           // [blocks, kv_heads, block, head]
                        device C *v_cache [[buffer(6)]],           // [blocks, kv_heads, block, head]
                        constant RopeWriteParams &p [[buffer(7)]], //
                        device const float *q_norm [[buffer(8)]],  // [head], or [heads, head]
                        device const float *k_norm [[buffer(9)]],  // [head], or [kv_heads, head]
                        device const A *k [[buffer(10)]],          // [tokens, kv_heads, head], k_stride apart
                        device const A *v [[buffer(11)]],          // [tokens, kv_heads, head], v_stride apart
                        uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float staged[sizeof(C) > 4 ? taken * step_width : 1];
    const Tensors<A, C> t = {qkv, k, v, factors, q_norm, k_norm, q_out, k_cache, v_cache};
    write_heads<true>(p, t, positions, slots, staged, group, lane);
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
kernel decltype(rope_qkv_write<float, CacheBlock>) rope_qkv_write<float, CacheBlock>;
template [[host_name("rope_qkv_write_f16_q8_0")]]
kernel decltype(rope_qkv_write<half, CacheBlock>) rope_qkv_write<half, CacheBlock>;
template [[host_name("rope_qkv_write_bf16_q8_0")]]
kernel decltype(rope_qkv_write<bfloat, CacheBlock>) rope_qkv_write<bfloat, CacheBlock>;

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
