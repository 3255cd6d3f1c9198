// The state space of Mamba-2, a recurrence over the tokens of a sequence.
#include <metal_stdlib>
#include "abi/params.h"
#include "activation.h"
#include "recurrent.h"
#include "unroll.h"
using namespace metal;

constant bool fc_gated [[function_constant(0)]];
constant bool is_gated = is_function_constant_defined(fc_gated) && fc_gated;

// Columns are where a head's parts of a row of xbc lie.
struct Columns {
    ulong row; // from token to token
    uint x, b, c;
};

inline Columns columns_of(uint h, constant Mamba2Params &p) {
    const uint group = h / (p.heads / p.groups);
    Columns at;
    at.x = h * p.head;
    at.b = p.heads * p.head + group * p.states;
    at.c = at.b + p.groups * p.states;
    at.row = ulong(p.heads) * p.head + 2 * ulong(p.groups) * p.states;
    return at;
}

// mamba2 takes the matrix S of every head over the tokens of a sequence, one after the other (Dao and
// Gu, "Transformers are SSMs", 2024):
//
//	S = exp(decay·step)·S + b·(step·x)ᵀ, y = Sᵀ·c + skip·x
//
// with step = softplus(dt + bias), and b and c of the head's group, heads of which are adjacent. The
// state that a sequence writes is S after the last of its tokens. The result is y or, with fc_gated, y
// times SiLU(z).
//
// The state is bound twice, to be read and to be written, often in place: a thread has some rows of
// one column of S to itself, and reads an element before it writes that. So the order of sums, and
// with it the bits of a token, is the same however the step was cut.
//
// Grid (heads, seqs, 1) of head · (256 / head) threads, where head is rounded up to whole simdgroups:
// a thread has a column, and as many as fit share it. Threadgroup memory: b and c of a token, and a
// float for each thread.
template <typename A>
kernel void mamba2(device const A *xbc [[buffer(0)]],          // [tokens, heads·head + 2·groups·states]
                   device const A *dt [[buffer(1)]],           // [tokens, dt_stride]
                   device const float *decay [[buffer(2)]],    // [heads]
                   device const float *bias [[buffer(3)]],     // [heads]
                   device const float *skip [[buffer(4)]],     // [heads]
                   device const float *state [[buffer(5)]],    // [states, heads, states, head]
                   device const int *cu_seqlens [[buffer(6)]], // [seqs + 1]
                   device const int *states [[buffer(7)]],     // [seqs, 2]
                   device A *out [[buffer(8)]],                // [tokens, heads, head]
                   device float *state_out [[buffer(9)]],      // [states, heads, states, head]
                   constant Mamba2Params &p [[buffer(10)]],    //
                   device const A *z [[buffer(11)]],           // [tokens, z_stride]
                   uint2 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                   uint threads [[threads_per_threadgroup]]) {
    threadgroup float b[256], c[256], sums[256];
    const uint h = group.x, seq = group.y, head = p.head, across = (head + 31) / 32 * 32;
    const uint j = tid % across, part = tid / across, parts = threads / across;
    const uint each = (p.states + parts - 1) / parts, top = part * each, bottom = min(top + each, p.states);
    const int first = cu_seqlens[seq], end = cu_seqlens[seq + 1];
    if (first >= end)
        return;
    const bool has_column = j < head;
    const Columns at = columns_of(h, p);
    for (uint t = uint(first); t < uint(end); t++) {
        device const A *row = xbc + t * at.row;
        for (uint i = tid; i < p.states; i += threads) {
            b[i] = float(row[at.b + i]);
            c[i] = float(row[at.c + i]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup); // of b and c
        const float step = softplus_of(float(dt[ulong(t) * p.dt_stride + p.dt_from + h]) + bias[h]);
        const float keep = exp(decay[h] * step);
        const float x = has_column ? float(row[at.x + j]) : 0.0f;
        const Step s = step_of(t == uint(first), seq, h, states, ulong(p.states) * head, p);
        float y = 0.0f;
        for (uint i = top; i < bottom && has_column; i++) {
            const ulong e = ulong(i) * head + j;
            const float kept = s.begins ? 0.0f : keep * state[s.from + e];
            const float now = kept + b[i] * (step * x);
            state_out[s.to + e] = now;
            y += c[i] * now;
        }
        sums[tid] = y;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (part == 0 && has_column) {
            for (uint i = 1; i < parts; i++)
                y += sums[i * across + j];
            y += skip[h] * x;
            if (is_gated)
                y *= silu_of(float(z[ulong(t) * p.z_stride + at.x + j]));
            out[(ulong(t) * p.heads + h) * head + j] = A(y);
        }
    }
}

template [[host_name("mamba2_f32")]] kernel decltype(mamba2<float>) mamba2<float>;
template [[host_name("mamba2_f16")]] kernel decltype(mamba2<half>) mamba2<half>;
template [[host_name("mamba2_bf16")]] kernel decltype(mamba2<bfloat>) mamba2<bfloat>;

// The tokens that mamba2_pieces takes at once, and the largest head and state that it has memory for.
constant constexpr uint piece = 16;
constant constexpr uint most = 128;

// mamba2_pieces computes what mamba2 does, several tokens at once: what they read of S, then their sums
// over each other (Dao and Gu, 2024, section 6). With G the running sum of decay·step within the piece,
// S the state before it, and token i after j:
//
//	y[i] = exp(G[i])·Sᵀc[i] + Σ exp(G[i] − G[j])·(c[i]·b[j])·step[j]·x[j] (j = i too) + skip·x[i]
//	S = exp(G)·S + Σ exp(G − G[j])·b[j]·(step[j]·x[j])ᵀ, with G of the last token
//
// No exponent is positive, since decay is not. The order of sums depends on where a piece begins, and
// with it the bits.
//
// Grid (heads, seqs, 1) of 128 threads. A simdgroup takes 8 columns of S at a time. head and states
// are multiples of 8, up to 128. Threadgroup memory: b, c and x of a piece, the products of b and c,
// and three floats for each token.
template <typename A>
kernel void mamba2_pieces(device const A *xbc [[buffer(0)]],          // [tokens, heads·head + 2·groups·states]
                          device const A *dt [[buffer(1)]],           // [tokens, dt_stride]
                          device const float *decay [[buffer(2)]],    // [heads]
                          device const float *bias [[buffer(3)]],     // [heads]
                          device const float *skip [[buffer(4)]],     // [heads]
                          device const float *state [[buffer(5)]],    // [states, heads, states, head]
                          device const int *cu_seqlens [[buffer(6)]], // [seqs + 1]
                          device const int *states [[buffer(7)]],     // [seqs, 2]
                          device A *out [[buffer(8)]],                // [tokens, heads, head]
                          device float *state_out [[buffer(9)]],      // [states, heads, states, head]
                          constant Mamba2Params &p [[buffer(10)]],    //
                          device const A *z [[buffer(11)]],           // [tokens, z_stride]
                          uint2 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                          uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float b[piece * most], c[piece * most], x[piece * most], cb[piece * piece];
    threadgroup float steps[piece], sums[piece], factors[64]; // a diagonal matrix
    const uint h = group.x, seq = group.y, head = p.head, size = p.states;
    const uint first = uint(max(cu_seqlens[seq], 0)), end = uint(max(cu_seqlens[seq + 1], 0));
    const Columns at = columns_of(h, p);
    for (uint t = first, n = 0; t < end; t += n) {
        n = min(piece, end - t);
        const Step step = step_of(t == first, seq, h, states, ulong(size) * head, p);

        // Rows without a token are zeros.
        for (uint e = tid; e < piece * size; e += 128) {
            const uint i = e / size;
            device const A *row = xbc + ulong(t + min(i, n - 1)) * at.row + e % size;
            b[e] = i < n ? float(row[at.b]) : 0.0f;
            c[e] = i < n ? float(row[at.c]) : 0.0f;
        }
        if (tid < piece)
            steps[tid] =
                tid < n ? softplus_of(float(dt[ulong(t + tid) * p.dt_stride + p.dt_from + h]) + bias[h]) : 0.0f;
        threadgroup_barrier(mem_flags::mem_threadgroup);

        const uint up = sg / 2 * 8, across = sg % 2 * 8;
        simdgroup_float8x8 products = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        for (uint d = 0; d < size; d += 8) {
            simdgroup_float8x8 left, right;
            simdgroup_load(left, c + up * size + d, size);
            simdgroup_load(right, b + across * size + d, size, ulong2(0, 0), true);
            simdgroup_multiply_accumulate(products, left, right, products);
        }
        simdgroup_store(products, cb + up * piece + across, piece);
        for (uint e = tid; e < piece * head; e += 128) {
            const uint i = e / head;
            x[e] = i < n ? steps[i] * float(xbc[ulong(t + i) * at.row + at.x + e % head]) : 0.0f;
        }
        if (tid < piece) {
            float sum = 0.0f;
            for (uint i = 0; i <= tid; i++)
                sum += decay[h] * steps[i];
            sums[tid] = sum;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint e = tid; e < piece * piece; e += 128) {
            const uint i = e / piece, j = e % piece;
            cb[e] = j <= i ? exp(sums[i] - sums[j]) * cb[e] : 0.0f;
        }
        for (uint e = tid; e < piece * size; e += 128) {
            const float sum = sums[e / size];
            c[e] *= exp(sum);
            b[e] *= exp(sums[piece - 1] - sum);
        }
        if (tid < 64)
            factors[tid] = tid % 9 == 0 ? exp(sums[piece - 1]) : 0.0f;
        threadgroup_barrier(mem_flags::mem_threadgroup);

        simdgroup_float8x8 factor;
        simdgroup_load(factor, factors, 8);
        for (uint column = sg * 8; column < head; column += 32) {
            device const float *before = state + step.from + column;
            device float *after = state_out + step.to + column;
            simdgroup_float8x8 y[2], own[2];
            UNROLL for (uint i = 0; i < 2; i++) {
                y[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
                simdgroup_load(own[i], x + i * 8 * head + column, head);
            }
            for (uint d = 0; d < size; d += 8) {
                simdgroup_float8x8 s = make_filled_simdgroup_matrix<float, 8, 8>(0.0f), left;
                if (!step.begins) {
                    simdgroup_load(s, before + ulong(d) * head, head);
                    UNROLL for (uint i = 0; i < 2; i++) {
                        simdgroup_load(left, c + i * 8 * size + d, size);
                        simdgroup_multiply_accumulate(y[i], left, s, y[i]);
                    }
                    simdgroup_multiply(s, factor, s);
                }
                UNROLL for (uint i = 0; i < 2; i++) {
                    simdgroup_load(left, b + i * 8 * size + d, size, ulong2(0, 0), true);
                    simdgroup_multiply_accumulate(s, left, own[i], s);
                }
                simdgroup_store(s, after + ulong(d) * head, head);
            }
            UNROLL for (uint i = 0; i < 2; i++) {
                UNROLL for (uint j = 0; j < 2; j++) {
                    simdgroup_float8x8 left;
                    simdgroup_load(left, cb + i * 8 * piece + j * 8, piece);
                    simdgroup_multiply_accumulate(y[i], left, own[j], y[i]);
                }
            }
            // The sums need the whole of own, so that x may be overwritten.
            UNROLL for (uint i = 0; i < 2; i++)
                simdgroup_store(y[i], x + i * 8 * head + column, head);
            simdgroup_barrier(mem_flags::mem_threadgroup); // of the columns
            for (uint e = lane; e < n * 8; e += 32) {
                const uint i = e / 8, j = column + e % 8;
                float v = x[i * head + j] + skip[h] * float(xbc[ulong(t + i) * at.row + at.x + j]);
                if (is_gated)
                    v *= silu_of(float(z[ulong(t + i) * p.z_stride + at.x + j]));
                out[(ulong(t + i) * p.heads + h) * head + j] = A(v);
            }
        }
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup); // before the next piece
    }
}

template [[host_name("mamba2_pieces_f32")]] kernel decltype(mamba2_pieces<float>) mamba2_pieces<float>;
template [[host_name("mamba2_pieces_f16")]] kernel decltype(mamba2_pieces<half>) mamba2_pieces<half>;
template [[host_name("mamba2_pieces_bf16")]] kernel decltype(mamba2_pieces<bfloat>) mamba2_pieces<bfloat>;
