// The KV cache: K and V of one layer are each [blocks, kv_heads, block, head], or, where
// a kernel takes strides, any order of the first three axes. A contiguous cache is the
// case of one block. Elements are float, half, bfloat, or 32 to a block of Q8_0, whose
// heads and strides are multiples of 32.
#ifndef SMELT_KERNELS_PAGED_H
#define SMELT_KERNELS_PAGED_H

#include <metal_stdlib>
using namespace metal;

// Q8_0 as GGUF files have it: an element is d · qs.
struct CacheBlock {
    half d;
    int8_t qs[32];
};
static_assert(sizeof(CacheBlock) == 34, "GGUF layout");

// load_four reads elements i to i + 3 of a cache; i is a multiple of 4.
inline float4 load_four(device const float *cache, ulong i) { return *(device const float4 *)(cache + i); }
inline float4 load_four(device const half *cache, ulong i) { return float4(*(device const half4 *)(cache + i)); }
inline float4 load_four(device const bfloat *cache, ulong i) { return float4(*(device const bfloat4 *)(cache + i)); }
inline float4 load_four(device const CacheBlock *cache, ulong i) {
    device const CacheBlock *b = cache + i / 32;
    device const ushort *q = (device const ushort *)(b->qs + i % 32); // no more is aligned
    return float4(float2(as_type<char2>(q[0])), float2(as_type<char2>(q[1]))) * float(b->d);
}

// store_four writes elements i to i + 3 of a result; i is a multiple of 4.
inline void store_four(device float *to, ulong i, float4 v) { *(device float4 *)(to + i) = v; }
inline void store_four(device half *to, ulong i, float4 v) { *(device half4 *)(to + i) = half4(v); }
inline void store_four(device bfloat *to, ulong i, float4 v) { *(device bfloat4 *)(to + i) = bfloat4(v); }

// load_one reads element i.
inline float load_one(device const float *cache, ulong i) { return cache[i]; }
inline float load_one(device const half *cache, ulong i) { return float(cache[i]); }
inline float load_one(device const bfloat *cache, ulong i) { return float(cache[i]); }
inline float load_one(device const CacheBlock *cache, ulong i) {
    return float(cache[i / 32].d) * float(cache[i / 32].qs[i % 32]);
}

// An element of a block: d · q.
struct BlockElement {
    half d;
    int8_t q;
};

// block_element rounds 32 elements, one in each lane of a simdgroup, as GGUF files are
// made: d = max|v| / 127, kept as a half, and q = round(v / d), halves away from zero,
// with d before it was rounded. Where an element is not finite, or d would not be, all
// are NaN.
inline BlockElement block_element(float v) {
    const uint bits = simd_max(as_type<uint>(v) & 0x7fffffffu); // ordered like |v|, NaN last
    const float d = as_type<float>(bits) / 127.0f;
    const bool lost = bits >= 0x7f800000u || isinf(float(half(d)));
    const float inverse = 1.0f / d;
    return {lost ? half(NAN) : half(d), int8_t(lost || isinf(inverse) ? 0.0f : round(v * inverse))};
}

// store_block stores them in the block that starts at element i.
inline void store_block(device CacheBlock *cache, ulong i, float v, uint lane) {
    const BlockElement e = block_element(v);
    device CacheBlock *b = cache + i / 32;
    b->qs[lane] = e.q;
    if (lane == 0)
        b->d = e.d;
}

// Elements of a cache from one block, KV head or slot to the next.
struct CacheStrides {
    uint block, head, row;
};

// cache_row is the first element of the row of `within` of a block for one KV head.
inline ulong cache_row(uint page, uint within, uint kv_head, CacheStrides strides) {
    return ulong(page) * strides.block + ulong(kv_head) * strides.head + ulong(within) * strides.row;
}

// The same in a cache [blocks, kv_heads, block, head].
inline ulong cache_row(uint page, uint within, uint kv_head, uint kv_heads, uint block, uint head) {
    return ((ulong(page) * kv_heads + kv_head) * block + within) * head;
}

// sequence_of is the sequence that owns packed token t: the last one that starts at
// or before it. Empty sequences own nothing.
inline uint sequence_of(device const int *cu_seqlens, uint seqs, uint t) {
    uint low = 0, high = seqs;
    while (high - low > 1) {
        const uint mid = (low + high) / 2;
        if (uint(cu_seqlens[mid]) <= t) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return low;
}

// Tiles of `size` tokens, each of one sequence. Sequence i has those from
// first_tile(cu_seqlens[i], i, size) on: every sequence before it may have a ragged
// tail, so one more tile than it fills is reserved. A grid of tokens/size + seqs has all
// tiles; surplus tiles start at or past the end of their sequence.
inline uint first_tile(int start, uint seq, uint size) { return uint(start) / size + seq; }

// sequence_of_tile is the sequence that owns a tile.
inline uint sequence_of_tile(device const int *cu_seqlens, uint seqs, uint tile, uint size) {
    uint low = 0, high = seqs;
    while (high - low > 1) {
        const uint mid = (low + high) / 2;
        if (first_tile(cu_seqlens[mid], mid, size) <= tile) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return low;
}

// Keys [begin, end) of a sequence; none where begin ≥ end.
struct KeyRange {
    uint begin, end;
};

// keys_seen are those a token sees: up to its own position, of those that the sequence
// has, and the last `window` of these; a window of 0 is none.
inline KeyRange keys_seen(int position, int context, uint window) {
    const uint next = uint(max(0, position + 1));
    return {window != 0 && next > window ? next - window : 0, min(next, uint(max(0, context)))};
}

#endif
