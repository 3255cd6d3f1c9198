// What multi-head latent attention does between its products and attention, in one dispatch.
#include <metal_stdlib>
#include "abi/params.h"
using namespace metal;

constant bool fc_interleaved [[function_constant(0)]]; // else NeoX pairs
constant bool fc_factors [[function_constant(1)]];     // divide each frequency by its factor
constant bool fc_table [[function_constant(2)]];       // factors are whole divisors: theta has no part

constant bool from_table = is_function_constant_defined(fc_table) ? fc_table : false;
constant bool has_factors = (is_function_constant_defined(fc_factors) ? fc_factors : false) || from_table;

#include "latent.h"

// put writes element i of a row of the cache; 32 lanes have neighbouring elements.
template <typename C> inline void put(device C *cache, ulong row, uint i, float v, uint) { cache[row + i] = C(v); }
inline void put(device CacheBlock *cache, ulong row, uint i, float v, uint lane) {
    store_block(cache, row + i - lane, v, lane);
}

// latent_write makes the queries of latent attention whole, and writes what a token caches (DeepSeek-AI,
// "DeepSeek-V2", 2024, section 2.1). With latent = head − rotated:
//
//     q_out[t, h] = absorbed[t, h] beside RoPE of the last elements of q[t, h]
//     cache[slot] = RMSNorm of `latent` elements of all[t] beside RoPE of those behind them
//
// A negative slot writes queries only. Formula of RoPE: rotate.h.
//
// Grid (rows, tokens, 1) of 32 threads: each of a token's queries is a row, and what it caches is the last.
// No threadgroup memory. Blocks of Q8_0 need rows of whole blocks.
template <typename A, typename C>
[[kernel, max_total_threads_per_threadgroup(32)]] void
latent_write(device const A *absorbed [[buffer(0)]],      // [tokens, heads, latent]
             device const A *q [[buffer(1)]],             // [tokens, heads, q_head]
             device const A *all [[buffer(2)]],           // [tokens, head] from all_from on, rows all_stride apart
             device const float *gain [[buffer(3)]],      // [latent]
             device const int *positions [[buffer(4)]],   // [tokens]
             device const int *slots [[buffer(5)]],       // [tokens]
             device const float *factors [[buffer(6)]],   // [rotated/2]
             device A *q_out [[buffer(7)]],               // [tokens, heads, head]
             device C *k_cache [[buffer(8)]],             // [blocks, 1, block, head]
             constant LatentWriteParams &p [[buffer(9)]], //
             uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
    const uint row = group.x, token = group.y, latent = p.head - p.rotated;
    const int position = positions[token];
    if (row < p.heads) {
        const ulong of = ulong(token) * p.heads + row;
        device const A *from = absorbed + of * latent;
        device const A *last = q + of * p.q_head + p.q_head - p.rotated;
        device A *to = q_out + of * p.head;
        for (uint i = lane; i < p.head; i += 32)
            to[i] = A(query_element(from, last, i, latent, p, position, factors));
        return;
    }
    const int slot = slots[token];
    if (slot < 0)
        return;
    device const A *from = all + ulong(token) * p.all_stride + p.all_from;
    const float scale = latent_scale(from, latent, p.eps, lane);
    const ulong at = cache_row(uint(slot) / p.block, uint(slot) % p.block, 0, 1, p.block, p.head);
    for (uint i = lane; i < p.head; i += 32)
        put(k_cache, at, i, latent_element(from, i, latent, scale, gain, p, position, factors), lane);
}

template [[host_name("latent_write_f32_f32")]] kernel decltype(latent_write<float, float>) latent_write<float, float>;
template [[host_name("latent_write_f32_f16")]] kernel decltype(latent_write<float, half>) latent_write<float, half>;
template [[host_name("latent_write_f16_f32")]] kernel decltype(latent_write<half, float>) latent_write<half, float>;
template [[host_name("latent_write_f16_f16")]] kernel decltype(latent_write<half, half>) latent_write<half, half>;
template [[host_name("latent_write_bf16_bf16")]]
kernel decltype(latent_write<bfloat, bfloat>) latent_write<bfloat, bfloat>;
template [[host_name("latent_write_f32_q8_0")]]
kernel decltype(latent_write<float, CacheBlock>) latent_write<float, CacheBlock>;
template [[host_name("latent_write_f16_q8_0")]]
kernel decltype(latent_write<half, CacheBlock>) latent_write<half, CacheBlock>;
template [[host_name("latent_write_bf16_q8_0")]]
kernel decltype(latent_write<bfloat, CacheBlock>) latent_write<bfloat, CacheBlock>;
