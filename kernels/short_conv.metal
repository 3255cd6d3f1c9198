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
// into the sequence's tokens before the step, and writes the last taps - 1 rows of x up to the step's
// last token as the sequence's state. With fc_gated, x is in ∘ x and the
// result is out ∘ the sum; with fc_bias, the sum has a bias; with fc_silu, the result is SiLU(the sum).
//
// The state is bound twice: states, [seqs, 2], names the one that a sequence reads, negative where it
// begins, and the one that it writes, which may be the same. One thread therefore reads and replaces
// all rows of an element: that of the sequence's first token, which also computes the next
// taps - 2 tokens. It writes rows oldest first, each from a later row, so that it overwrites nothing
// that it still has to read.
//
// Grid (ceil(width/256), tokens, 1) of 256 threads, one for each element. No threadgroup
// memory.
template <typename A>
kernel void short_conv(device const A *x [[buffer(0)]],            // [tokens, width], x_stride apart
                       device const float *w [[buffer(1)]],        // [width, taps]
                       device const float *state [[buffer(2)]],    // [states, taps - 1, width]
                       device const int *cu_seqlens [[buffer(3)]], // [seqs + 1]
                       device const int *states [[buffer(4)]],     // [seqs, 2]
                       device A *out [[buffer(5)]],                // [tokens, width]
                       device float *state_out [[buffer(6)]],      // [states, taps - 1, width]
                       constant ShortConvParams &p [[buffer(7)]],  //
                       device const A *in_gate [[buffer(8)]],      // [tokens, width], x_stride apart
                       device const A *out_gate [[buffer(9)]],     // [tokens, width], x_stride apart
                       device const float *bias [[buffer(10)]],    // [width]
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
    const uint count = uint(cu_seqlens[seq + 1]) - first;
    const ulong state_size = ulong(past_rows) * p.width;
    const int read = states[2 * seq];
    const Past past = {state + ulong(max(read, 0)) * state_size, p.width, read < 0 ? 0 : past_rows};

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
    device float *to = state_out + ulong(uint(states[2 * seq + 1])) * state_size + e;
    for (uint r = 0; r < past_rows; r++) {
        const uint back = past_rows - r; // from the end of the step
        float v;
        if (back > count) {
            v = past.at(back - count, e);
        } else {
            const ulong at = ulong(first + count - back) * p.x_stride + e;
            v = is_gated ? float(in_gate[at]) * float(x[at]) : float(x[at]);
        }
        to[ulong(r) * p.width] = v;
    }
}

template [[host_name("short_conv_f32")]] kernel decltype(short_conv<float>) short_conv<float>;
template [[host_name("short_conv_f16")]] kernel decltype(short_conv<half>) short_conv<half>;
template [[host_name("short_conv_bf16")]] kernel decltype(short_conv<bfloat>) short_conv<bfloat>;
