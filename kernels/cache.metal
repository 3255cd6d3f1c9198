// Writing and reading the KV cache on their own, for the source stage.
#include <metal_stdlib>
#include "params.h"
#include "paged.h"
using namespace metal;

// cache_write stores K and V of every token in its slot; a negative slot is skipped.
//
// Grid (ceil(kv_heads·head/64), tokens, 1) of 64 threads, one for each element. No
// threadgroup memory.
template <typename A, typename C>
kernel void cache_write(device const A *k [[buffer(0)]],            // [tokens, kv_heads, head], k_stride apart
                        device const A *v [[buffer(1)]],            // [tokens, kv_heads, head], v_stride apart
                        device const int *slots [[buffer(2)]],      // [tokens]
                        device C *k_cache [[buffer(3)]],            // [blocks, kv_heads, block, head]
                        device C *v_cache [[buffer(4)]],            // [blocks, kv_heads, block, head]
                        constant CacheWriteParams &p [[buffer(5)]], //
                        uint2 position [[thread_position_in_grid]]) {
    const uint e = position.x, token = position.y;
    const int slot = slots[token];
    if (e >= p.kv_heads * p.head || slot < 0)
        return;
    const uint head = e / p.head;
    const ulong to =
        cache_row(uint(slot) / p.block, uint(slot) % p.block, head, p.kv_heads, p.block, p.head) + e % p.head;
    k_cache[to] = C(float(k[ulong(token) * p.k_stride + e]));
    v_cache[to] = C(float(v[ulong(token) * p.v_stride + e]));
}

// cache_write_blocks is cache_write to a cache of Q8_0: each simdgroup of the same
// grid makes one block. No threadgroup memory.
template <typename A>
kernel void cache_write_blocks(device const A *k [[buffer(0)]],            // [tokens, kv_heads, head], k_stride apart
                               device const A *v [[buffer(1)]],            // [tokens, kv_heads, head], v_stride apart
                               device const int *slots [[buffer(2)]],      // [tokens]
                               device CacheBlock *k_cache [[buffer(3)]],   // [blocks, kv_heads, block, head/32]
                               device CacheBlock *v_cache [[buffer(4)]],   // [blocks, kv_heads, block, head/32]
                               constant CacheWriteParams &p [[buffer(5)]], //
                               uint2 position [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
    const uint e = position.x, token = position.y;
    const int slot = slots[token];
    if (e >= p.kv_heads * p.head || slot < 0)
        return;
    const uint head = e / p.head;
    const ulong to =
        cache_row(uint(slot) / p.block, uint(slot) % p.block, head, p.kv_heads, p.block, p.head) + e % p.head;
    store_block(k_cache, to, float(k[ulong(token) * p.k_stride + e]), lane);
    store_block(v_cache, to, float(v[ulong(token) * p.v_stride + e]), lane);
}

// cache_read gathers what every sequence has in one of the two caches, as rows of
// float; past its context length there are zeros, whatever the cache holds.
//
// Grid (ceil(kv_heads·head/64), seqs·context, 1) of 64 threads, one for each element.
// No threadgroup memory.
template <typename C>
kernel void cache_read(device const C *cache [[buffer(0)]],          // [blocks, kv_heads, block, head]
                       device const int *context_lens [[buffer(1)]], // [seqs]
                       device const int *block_table [[buffer(2)]],  // [seqs, table_stride]
                       device float *out [[buffer(3)]],              // [seqs·context, kv_heads, head]
                       constant CacheReadParams &p [[buffer(4)]],    //
                       uint2 position [[thread_position_in_grid]]) {
    const uint e = position.x, row = position.y, width = p.kv_heads * p.head;
    if (e >= width)
        return;
    const uint seq = row / p.context, key = row % p.context;
    float v = 0.0f;
    if (int(key) < context_lens[seq]) {
        const uint page = uint(block_table[ulong(seq) * p.table_stride + key / p.block]);
        v = load_one(cache, cache_row(page, key % p.block, e / p.head, p.kv_heads, p.block, p.head) + e % p.head);
    }
    out[ulong(row) * width + e] = v;
}

template [[host_name("cache_write_f32_f32")]] kernel decltype(cache_write<float, float>) cache_write<float, float>;
template [[host_name("cache_write_f32_f16")]] kernel decltype(cache_write<float, half>) cache_write<float, half>;
template [[host_name("cache_write_f16_f32")]] kernel decltype(cache_write<half, float>) cache_write<half, float>;
template [[host_name("cache_write_f16_f16")]] kernel decltype(cache_write<half, half>) cache_write<half, half>;
template [[host_name("cache_write_f32_q8_0")]] kernel decltype(cache_write_blocks<float>) cache_write_blocks<float>;
template [[host_name("cache_write_f16_q8_0")]] kernel decltype(cache_write_blocks<half>) cache_write_blocks<half>;

template [[host_name("cache_read_f32")]] kernel decltype(cache_read<float>) cache_read<float>;
template [[host_name("cache_read_f16")]] kernel decltype(cache_read<half>) cache_read<half>;
template [[host_name("cache_read_q8_0")]] kernel decltype(cache_read<CacheBlock>) cache_read<CacheBlock>;
