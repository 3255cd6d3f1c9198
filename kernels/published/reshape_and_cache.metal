// Writing the paged cache in the layout of vLLM and Aphrodite: K [blocks, kv_heads,
// head/x, block, x] with x elements to 16 bytes, V [blocks, kv_heads, head, block], with
// the same strides from block to block and from head to head.
#include <metal_stdlib>
#include "../abi/params.h"
using namespace metal;

// reshape_and_cache stores K and V of every token in its slot, as they are; a negative
// slot is skipped (after vLLM's kernel of that name).
//
// Grid (ceil(kv_heads·head/256), tokens, 1) of 256 threads, one for each element: those
// of a piece of K lie side by side in memory, those of V a block apart. No threadgroup
// memory.
template <typename A>
kernel void reshape_and_cache(device const A *k [[buffer(0)]],            // [tokens, kv_heads, head], k_stride apart
                              device const A *v [[buffer(1)]],            // [tokens, kv_heads, head], v_stride apart
                              device const int *slots [[buffer(2)]],      // [tokens]
                              device A *k_cache [[buffer(3)]],            // [blocks, kv_heads, head/x, block, x]
                              device A *v_cache [[buffer(4)]],            // [blocks, kv_heads, head, block]
                              constant PagedWriteParams &p [[buffer(5)]], //
                              uint2 position [[thread_position_in_grid]]) {
    constexpr uint x = 16 / sizeof(A);
    const uint e = position.x, token = position.y;
    const int slot = slots[token];
    if (e >= p.kv_heads * p.head || slot < 0)
        return;
    const uint d = e % p.head, within = uint(slot) % p.block;
    const ulong to = ulong(uint(slot) / p.block) * p.block_stride + ulong(e / p.head) * p.head_stride;
    k_cache[to + (d / x * p.block + within) * x + d % x] = k[ulong(token) * p.k_stride + e];
    v_cache[to + d * p.block + within] = v[ulong(token) * p.v_stride + e];
}

template [[host_name("reshape_and_cache_f32")]] kernel decltype(reshape_and_cache<float>) reshape_and_cache<float>;
template [[host_name("reshape_and_cache_f16")]] kernel decltype(reshape_and_cache<half>) reshape_and_cache<half>;
template [[host_name("reshape_and_cache_bf16")]] kernel decltype(reshape_and_cache<bfloat>) reshape_and_cache<bfloat>;
