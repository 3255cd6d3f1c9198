// Rotary position embedding on its own.
#include <metal_stdlib>
#include "params.h"
#include "rotate.h"
using namespace metal;

constant bool fc_interleaved [[function_constant(0)]]; // else NeoX pairs
constant bool fc_factors [[function_constant(1)]];     // divide each frequency by its factor

constant bool has_factors = is_function_constant_defined(fc_factors) ? fc_factors : false;

// rope rotates the pairs of the first `rotated` elements of every head by its token's
// position and copies the others. Formula: rotate.h.
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
    device const A *from = x + ulong(token) * p.x_stride + ulong(head) * p.head;
    float2 v = float2(float(from[pair.first]), float(from[pair.second]));
    if (pair.rotates) {
        const float factor = has_factors ? factors[i] : 1.0f;
        v = turn(v, rotation(positions[token], i, p.rotated, p.log2_theta, p.freq_scale, factor, p.magnitude));
    }
    device A *to = out + (ulong(token) * p.heads + head) * p.head;
    to[pair.first] = A(v.x);
    to[pair.second] = A(v.y);
}

template [[host_name("rope_f32")]] kernel decltype(rope<float>) rope<float>;
template [[host_name("rope_f16")]] kernel decltype(rope<half>) rope<half>;
