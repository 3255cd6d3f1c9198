// The gated delta rule, a recurrence over the tokens of a sequence.
#include <metal_stdlib>
#include "abi/params.h"
using namespace metal;

// length_of is √(Σ x² + eps).
template <typename A> inline float length_of(device const A *x, uint n, float eps) {
    float sum = eps;
    for (uint i = 0; i < n; i++)
        sum += float(x[i]) * float(x[i]);
    return sqrt(sum);
}

// delta_net takes the matrix S of every head over the tokens of a sequence, one after the
// other (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024):
//
//	S = g·S + k·(beta·(v − kᵀ·g·S))ᵀ, out = Sᵀ·q/√head
//
// with g = exp(decay·softplus(alpha + bias)), beta by its sigmoid, and Q and K divided by their
// lengths. Head h of V has Q and K of head h % key_heads. What a block of the cache has in the
// state is S after the last of its tokens.
//
// The state is bound twice, to be read and to be written, often in place: a thread has one
// column of S to itself, and reads an element before it writes that. So the order of sums, and
// with it the bits of a token, is the same however the step was cut.
//
// Grid (heads, seqs, 1) of head threads, in whole simdgroups. No threadgroup memory.
template <typename A>
kernel void delta_net(device const A *qkv [[buffer(0)]],           // [tokens, (2·key_heads + heads)·head]
                      device const A *alpha [[buffer(1)]],         // [tokens, heads]
                      device const A *beta [[buffer(2)]],          // [tokens, heads]
                      device const float *decay [[buffer(3)]],     // [heads]
                      device const float *bias [[buffer(4)]],      // [heads]
                      device const float *state [[buffer(5)]],     // [blocks, heads, head, head]
                      device const int *positions [[buffer(6)]],   // [tokens]
                      device const int *cu_seqlens [[buffer(7)]],  // [seqs + 1]
                      device const int *block_table [[buffer(8)]], // [seqs, table_stride]
                      device A *out [[buffer(9)]],                 // [tokens, heads, head]
                      device float *state_out [[buffer(10)]],      // [blocks, heads, head, head]
                      constant DeltaNetParams &p [[buffer(11)]],   //
                      uint2 group [[threadgroup_position_in_grid]], uint j [[thread_index_in_threadgroup]]) {
    const uint h = group.x, seq = group.y, head = p.head;
    const int first = cu_seqlens[seq], end = cu_seqlens[seq + 1];
    if (j >= head || first >= end)
        return;
    device const int *table = block_table + ulong(seq) * p.table_stride;
    const ulong row = ulong(2 * p.key_heads + p.heads) * head, size = ulong(p.heads) * head * head;
    const ulong column = ulong(h) * head * head + j;
    for (uint t = uint(first); t < uint(end); t++) {
        const uint position = uint(positions[t]);
        device const A *q = qkv + t * row + ulong(h % p.key_heads) * head;
        device const A *k = q + ulong(p.key_heads) * head;
        const float v = float(qkv[t * row + ulong(2 * p.key_heads + h) * head + j]);
        const ulong gate = ulong(t) * p.heads + h;
        const float x = float(alpha[gate]) + bias[h];
        const float softplus = x > 20.0f ? x : log(1.0f + exp(x));
        const float keep = exp(decay[h] * softplus);
        const float learn = 1.0f / (1.0f + exp(-float(beta[gate])));
        const float q_scale = rsqrt(float(head)) / length_of(q, head, p.eps),
                    k_scale = 1.0f / length_of(k, head, p.eps);

        const bool begins = position == 0;
        const ulong from = begins ? 0 : ulong(uint(table[(position - 1) / p.block])) * size + column;
        const ulong to = ulong(uint(table[position / p.block])) * size + column;
        float known = 0.0f;
        if (!begins)
            for (uint i = 0; i < head; i++)
                known += float(k[i]) * k_scale * (keep * state[from + ulong(i) * head]);
        const float more = learn * (v - known);
        float y = 0.0f;
        for (uint i = 0; i < head; i++) {
            const float kept = begins ? 0.0f : keep * state[from + ulong(i) * head];
            const float s = kept + float(k[i]) * k_scale * more;
            state_out[to + ulong(i) * head] = s;
            y += float(q[i]) * q_scale * s;
        }
        out[gate * head + j] = A(y);
    }
}

template [[host_name("delta_net_f32")]] kernel decltype(delta_net<float>) delta_net<float>;
template [[host_name("delta_net_f16")]] kernel decltype(delta_net<half>) delta_net<half>;
template [[host_name("delta_net_bf16")]] kernel decltype(delta_net<bfloat>) delta_net<bfloat>;
