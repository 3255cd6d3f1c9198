// Writing, reading and copying the KV cache on their own.
#include <metal_stdlib>
#include "abi/params.h"
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

// copy_four moves four elements as they are.
template <typename C> inline void copy_four(device C *cache, ulong to, device const C *other, ulong from) {
    for (uint i = 0; i < 4; i++)
        cache[to + i] = other[from + i];
}
inline void copy_four(device CacheBlock *cache, ulong to, device const CacheBlock *other, ulong from) {
    device CacheBlock *b = cache + to / 32;
    device const CacheBlock *a = other + from / 32;
    for (uint i = from % 32; i < from % 32 + 4; i++)
        b->qs[i] = a->qs[i];
    if (from % 32 == 0)
        b->d = a->d;
}

// copy_blocks copies whole blocks of both caches, whatever their layout, for sequences that
// share a prefix until one of them writes (after vLLM's kernel of that name). A pair is (from,
// to); no block may be the source of one pair and the destination of another. The caches are
// bound twice.
//
// Grid (ceil(width/1024), pairs, 1) of 256 threads, four neighbours each; width, the
// elements of a block, is a multiple of 4. No threadgroup memory.
template <typename C>
kernel void copy_blocks(device const C *k_from [[buffer(0)]],       // [blocks], block_stride apart
                        device const C *v_from [[buffer(1)]],       // [blocks], block_stride apart
                        device const int *pairs [[buffer(2)]],      // [pairs, 2]
                        device C *k_cache [[buffer(3)]],            // [blocks], block_stride apart
                        device C *v_cache [[buffer(4)]],            // [blocks], block_stride apart
                        constant CopyBlocksParams &p [[buffer(5)]], //
                        uint2 position [[thread_position_in_grid]]) {
    const uint e = position.x * 4;
    if (e >= p.width)
        return;
    const ulong from = ulong(uint(pairs[position.y * 2])) * p.block_stride + e;
    const ulong to = ulong(uint(pairs[position.y * 2 + 1])) * p.block_stride + e;
    copy_four(k_cache, to, k_from, from);
    copy_four(v_cache, to, v_from, from);
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

template [[host_name("copy_blocks_f32")]] kernel decltype(copy_blocks<float>) copy_blocks<float>;
template [[host_name("copy_blocks_f16")]] kernel decltype(copy_blocks<half>) copy_blocks<half>;
template [[host_name("copy_blocks_bf16")]] kernel decltype(copy_blocks<bfloat>) copy_blocks<bfloat>;
template [[host_name("copy_blocks_q8_0")]] kernel decltype(copy_blocks<CacheBlock>) copy_blocks<CacheBlock>;
