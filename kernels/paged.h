// The KV cache: K and V of one layer are each [blocks, kv_heads, block, head]. A
// contiguous cache is the case of one block.
#ifndef SMELT_KERNELS_PAGED_H
#define SMELT_KERNELS_PAGED_H

#include <metal_stdlib>
using namespace metal;

// cache_row is the first element of the row of `within` of a block for one KV head.
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

#endif
