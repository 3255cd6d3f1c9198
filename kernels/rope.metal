// Rotary position embedding on its own.
#include <metal_stdlib>
#include "abi/params.h"
#include "rotate.h"
using namespace metal;

constant bool fc_interleaved [[function_constant(0)]]; // else NeoX pairs
constant bool fc_factors [[function_constant(1)]];     // divide each frequency by its factor
constant bool fc_table [[function_constant(2)]];       // factors are whole divisors: theta has no part
constant bool fc_positions [[function_constant(3)]];   // false: token t is at position `first` + t

constant bool from_table = is_function_constant_defined(fc_table) ? fc_table : false;
constant bool has_factors = (is_function_constant_defined(fc_factors) ? fc_factors : false) || from_table;
constant bool has_positions = is_function_constant_defined(fc_positions) ? fc_positions : true;

// rope rotates the pairs of the first `rotated` elements of every head by its token's
// position and copies the others. Formula: rotate.h. A table of divisors holds
// theta^(2i/rotated), with whatever linear, NTK, YaRN or Llama 3 scaling makes of it:
// no thread computes a power then. As in akunu's rope and rope_neox, positions of
// tokens that follow each other need no buffer.
//
// Grid (ceil(head/64), heads, tokens) of 32 threads, one for each pair. No
// threadgroup memory.
template <typename A>
kernel void rope(device const A *x [[buffer(0)]],           // [tokens, heads, head], tokens x_stride apart
                 device const int *positions [[buffer(1)]], // [tokens]
                 device const float *factors [[buffer(2)]], // [rotated/2]
                 device A *out [[buffer(3)]],               // [tokens, heads, head], dense
                 constant RopeParams &p [[buffer(4)]],      //
                 uint3 position [[thread_position_in_grid]]) {
    const uint i = position.x, head = position.y, token = position.z;
    if (2 * i >= p.head)
        return;
    const Pair pair = pair_of(i, p.rotated, fc_interleaved);
    float2 v = load_pair(x + ulong(token) * p.x_stride + ulong(head) * p.head, pair);
    if (pair.rotates) {
        const int at = has_positions ? positions[token] : int(p.first + token);
        v = turn(v, rotation(p, at, i, has_factors ? factors[i] : 1.0f, from_table));
    }
    store_pair(out + (ulong(token) * p.heads + head) * p.head, pair, v);
}

template [[host_name("rope_f32")]] kernel decltype(rope<float>) rope<float>;
template [[host_name("rope_f16")]] kernel decltype(rope<half>) rope<half>;
template [[host_name("rope_bf16")]] kernel decltype(rope<bfloat>) rope<bfloat>;
