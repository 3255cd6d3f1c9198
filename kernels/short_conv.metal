// Short convolutions along the tokens of a sequence, whose past is a recurrent state.
#include <metal_stdlib>
#include "abi/params.h"
#include "activation.h"
using namespace metal;

constant bool fc_gated [[function_constant(0)]];
constant bool fc_silu [[function_constant(1)]];
constant bool fc_bias [[function_constant(2)]];
constant bool is_gated = is_function_constant_defined(fc_gated) && fc_gated;
constant bool has_silu = is_function_constant_defined(fc_silu) && fc_silu;
constant bool has_bias = is_function_constant_defined(fc_bias) && fc_bias;

// Past is the state of a sequence before the step: the last rows of x, [count, width], the
// oldest first. A new sequence has none, and its rows count as zeros.
struct Past {
    device const float *rows;
    uint width, count;

    // at returns the element e of the token `back` before the step's first one, from 1 on.
    float at(uint back, uint e) const thread { return count == 0 ? 0.0f : rows[ulong(count - back) * width + e]; }
};

// short_conv computes out[t] = Σ w[j] · x[t - (taps - 1) + j] elementwise, where x continues
// into the sequence's tokens before the step, and stores in the state of each cache block
// the last taps - 1 rows of x up to the block's last token. With fc_gated, x is in ∘ x and the
// result is out ∘ the sum; with fc_bias, the sum has a bias; with fc_silu, the result is SiLU(the sum).
//
// The state is bound twice: a sequence reads the state of the block with the token before the
// step, and writes those of later blocks, or the same. One thread therefore reads and replaces
// all rows of an element: that of the sequence's first token, which also computes the next
// taps - 2 tokens. It writes blocks last to first, and rows oldest first, each from a later
// row, so that it overwrites nothing that it still has to read.
//
// Grid (ceil(width/256), tokens, 1) of 256 threads, one for each element. No threadgroup
// memory.
template <typename A>
kernel void short_conv(device const A *x [[buffer(0)]],             // [tokens, width], x_stride apart
                       device const float *w [[buffer(1)]],         // [width, taps]
                       device const float *state [[buffer(2)]],     // [blocks, taps - 1, width]
                       device const int *positions [[buffer(3)]],   // [tokens]
                       device const int *cu_seqlens [[buffer(4)]],  // [seqs + 1]
                       device const int *block_table [[buffer(5)]], // [seqs, table_stride]
                       device A *out [[buffer(6)]],                 // [tokens, width]
                       device float *state_out [[buffer(7)]],       // [blocks, taps - 1, width]
                       constant ShortConvParams &p [[buffer(8)]],   //
                       device const A *in_gate [[buffer(9)]],       // [tokens, width], x_stride apart
                       device const A *out_gate [[buffer(10)]],     // [tokens, width], x_stride apart
                       device const float *bias [[buffer(11)]],     // [width]
                       uint2 position [[thread_position_in_grid]]) {
    const uint e = position.x, token = position.y;
    if (e >= p.width)
        return;
    uint seq = 0;
    while (cu_seqlens[seq + 1] <= int(token))
        seq++;
    const uint first = uint(cu_seqlens[seq]), past_rows = p.taps - 1;
    if (token > first && token - first < past_rows)
        return;
    const uint start = uint(positions[first]), count = uint(cu_seqlens[seq + 1]) - first;
    device const int *table = block_table + ulong(seq) * p.table_stride;
    const ulong state_size = ulong(past_rows) * p.width;
    const uint from = start > 0 ? uint(table[(start - 1) / p.block]) : 0;
    const Past past = {state + from * state_size, p.width, start > 0 ? past_rows : 0};

    const uint end = token > first ? token + 1 : first + min(count, past_rows);
    for (uint t = token; t < end; t++) {
        float sum = 0.0f;
        for (uint j = 0; j < p.taps; j++) {
            const uint back = past_rows - j; // from t
            float v;
            if (back > t - first) {
                v = past.at(back - (t - first), e);
            } else {
                const ulong at = ulong(t - back) * p.x_stride + e;
                v = is_gated ? float(in_gate[at]) * float(x[at]) : float(x[at]);
            }
            sum += w[ulong(e) * p.taps + j] * v;
        }
        if (is_gated)
            sum *= float(out_gate[ulong(t) * p.x_stride + e]);
        if (has_bias)
            sum += bias[e];
        if (has_silu)
            sum = silu_of(sum);
        out[ulong(t) * p.width + e] = A(sum);
    }
    if (token > first)
        return;
    for (uint block = (start + count - 1) / p.block + 1; block-- > start / p.block;) {
        const uint after = min((block + 1) * p.block, start + count) - start; // tokens of the step
        device float *to = state_out + ulong(uint(table[block])) * state_size + e;
        for (uint r = 0; r < past_rows; r++) {
            const uint back = past_rows - r; // from `after`
            float v;
            if (back > after) {
                v = past.at(back - after, e);
            } else {
                const ulong at = ulong(first + after - back) * p.x_stride + e;
                v = is_gated ? float(in_gate[at]) * float(x[at]) : float(x[at]);
            }
            to[ulong(r) * p.width] = v;
        }
    }
}

template [[host_name("short_conv_f32")]] kernel decltype(short_conv<float>) short_conv<float>;
template [[host_name("short_conv_f16")]] kernel decltype(short_conv<half>) short_conv<half>;
template [[host_name("short_conv_bf16")]] kernel decltype(short_conv<bfloat>) short_conv<bfloat>;
