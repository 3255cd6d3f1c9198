// The gated delta rule, a recurrence over the tokens of a sequence.
#include <metal_stdlib>
#include "abi/params.h"
#include "activation.h"
#include "recurrent.h"
#include "unroll.h"
using namespace metal;

constant bool fc_gated [[function_constant(0)]];
constant bool is_gated = is_function_constant_defined(fc_gated) && fc_gated;

// sum_of adds the parts that simdgroups have left, always in the same order.
inline float sum_of(threadgroup const float *parts, uint simdgroups) {
    float sum = 0.0f;
    for (uint i = 0; i < simdgroups; i++)
        sum += parts[i];
    return sum;
}

// key_head is the head of Q and K that head h of V uses.
inline uint key_head(uint h, constant DeltaNetParams &p) { return h / p.share % p.key_heads; }

// log_decay is the logarithm of g, which is not positive.
inline float log_decay(float alpha, float bias, float decay) {
    const float x = alpha + bias;
    return decay * (x > 20.0f ? x : log(1.0f + exp(x)));
}

// normed returns an element of a head's result, whose squares add up to `squares`, by norm and gate.
inline float normed(float y, float squares, float gain, float z, constant DeltaNetParams &p) {
    return y * precise::rsqrt(squares / float(p.head) + p.norm_eps) * gain * silu_of(z);
}

// delta_net takes the matrix S of every head over the tokens of a sequence, one after the
// other (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024):
//
//	S = g·S + k·(beta·(v − kᵀ·g·S))ᵀ, y = Sᵀ·q/√head
//
// with g = exp(decay·softplus(alpha + bias)), beta by its sigmoid, and Q and K divided by their
// lengths. Head h of V has Q and K of head h / share % key_heads. The state that a sequence writes is S
// after the last of its tokens. The result is y or, with fc_gated, the RMSNorm of each head of y times
// SiLU(z).
//
// The state is bound twice, to be read and to be written, often in place: a thread has one
// column of S to itself, and reads an element before it writes that. So the order of sums, and
// with it the bits of a token, is the same however the step was cut.
//
// Grid (heads, seqs, 1) of head threads, in whole simdgroups. Threadgroup memory: Q and K of a
// token, and three floats for each simdgroup.
template <typename A>
kernel void delta_net(device const A *qkv [[buffer(0)]],          // [tokens, (2·key_heads + heads)·head]
                      device const A *alpha [[buffer(1)]],        // [tokens, gate_stride]
                      device const A *beta [[buffer(2)]],         // [tokens, gate_stride]
                      device const float *decay [[buffer(3)]],    // [heads]
                      device const float *bias [[buffer(4)]],     // [heads]
                      device const float *state [[buffer(5)]],    // [states, heads, head, head]
                      device const int *cu_seqlens [[buffer(6)]], // [seqs + 1]
                      device const int *states [[buffer(7)]],     // [seqs, 2]
                      device A *out [[buffer(8)]],                // [tokens, heads, head]
                      device float *state_out [[buffer(9)]],      // [states, heads, head, head]
                      constant DeltaNetParams &p [[buffer(10)]],  //
                      device const float *gain [[buffer(11)]],    // [head]
                      device const A *z [[buffer(12)]],           // [tokens, z_stride]
                      uint2 group [[threadgroup_position_in_grid]], uint j [[thread_index_in_threadgroup]],
                      uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                      uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float q[256], k[256], q_parts[8], k_parts[8], y_parts[8];
    const uint h = group.x, seq = group.y, head = p.head, of = key_head(h, p);
    const int first = cu_seqlens[seq], end = cu_seqlens[seq + 1];
    if (first >= end)
        return;
    const bool has_column = j < head;
    const ulong row = ulong(2 * p.key_heads + p.heads) * head;
    for (uint t = uint(first); t < uint(end); t++) {
        device const A *from_q = qkv + t * row + ulong(of) * head;
        const float own_q = has_column ? float(from_q[j]) : 0.0f;
        const float own_k = has_column ? float(from_q[ulong(p.key_heads) * head + j]) : 0.0f;
        const float q_part = simd_sum(own_q * own_q), k_part = simd_sum(own_k * own_k);
        threadgroup_barrier(mem_flags::mem_threadgroup); // of the token before
        q[j] = own_q;
        k[j] = own_k;
        if (lane == 0) {
            q_parts[sg] = q_part;
            k_parts[sg] = k_part;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const float q_scale = rsqrt(float(head)) / sqrt(sum_of(q_parts, simdgroups) + p.eps);
        const float k_scale = 1.0f / sqrt(sum_of(k_parts, simdgroups) + p.eps);

        const ulong gate = ulong(t) * p.gate_stride + h;
        const float keep = exp(log_decay(float(alpha[gate]), bias[h], decay[h]));
        const float learn = sigmoid_of(float(beta[gate + p.beta_from]));

        const Step step = step_of(t == uint(first), seq, h, states, ulong(head) * head, p);
        device const float *before = state + step.from + j;
        device float *after = state_out + step.to + j;
        float y = 0.0f;
        if (has_column) {
            float known = 0.0f;
            if (!step.begins)
                for (uint i = 0; i < head; i++)
                    known += k[i] * (keep * before[ulong(i) * head]);
            const float v = float(qkv[t * row + ulong(2 * p.key_heads + h) * head + j]);
            const float more = k_scale * learn * (v - k_scale * known);
            for (uint i = 0; i < head; i++) {
                const float kept = step.begins ? 0.0f : keep * before[ulong(i) * head];
                const float s = kept + k[i] * more;
                after[ulong(i) * head] = s;
                y += q[i] * s;
            }
            y *= q_scale;
        }
        if (is_gated) {
            const float y_part = simd_sum(y * y);
            if (lane == 0)
                y_parts[sg] = y_part;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (has_column)
                y = normed(y, sum_of(y_parts, simdgroups), gain[j],
                           float(z[ulong(t) * p.z_stride + p.z_from + ulong(h) * head + j]), p);
        }
        if (has_column)
            out[(ulong(t) * p.heads + h) * head + j] = A(y);
    }
}

template [[host_name("delta_net_f32")]] kernel decltype(delta_net<float>) delta_net<float>;
template [[host_name("delta_net_f16")]] kernel decltype(delta_net<half>) delta_net<half>;
template [[host_name("delta_net_bf16")]] kernel decltype(delta_net<bfloat>) delta_net<bfloat>;

// The tokens that delta_net_pieces takes at once, and the largest head that it has memory for.
constant constexpr uint piece = 16;
constant constexpr uint most = 128;

// delta_net_pieces computes what delta_net does, several tokens at once: the products with S of all
// of them, then their sums over each other (Yang, Wang, Zhang, Shen and Kim, "Parallelizing Linear
// Transformers with the Delta Rule over Sequence Length", 2024; with decay, Yang, Kautz and
// Hatamizadeh, 2024). With G the running sum of log g within the piece, S the state before it, and
// token i after j:
//
//	u[i] = beta[i]·(v[i] − exp(G[i])·Sᵀk[i] − Σ exp(G[i] − G[j])·(k[i]·k[j])·u[j])
//	y[i] = (exp(G[i])·Sᵀq[i] + Σ exp(G[i] − G[j])·(q[i]·k[j])·u[j], j = i too)/√head
//	S = exp(G)·S + Σ exp(G − G[j])·k[j]·u[j]ᵀ, with G of the last token
//
// No exponent is positive, since decay is not. A piece ends with the block of the cache. The order
// of sums depends on where a piece begins, and with it the bits.
//
// Grid (heads, seqs, 1) of 128 threads. A simdgroup has 32 columns of S, and a thread solves for
// one of them. head is a multiple of 8, up to 128. Threadgroup memory: Q and K of a piece, their
// products with each other, and those of each simdgroup with S.
template <typename A>
kernel void delta_net_pieces(device const A *qkv [[buffer(0)]],          // [tokens, (2·key_heads + heads)·head]
                             device const A *alpha [[buffer(1)]],        // [tokens, gate_stride]
                             device const A *beta [[buffer(2)]],         // [tokens, gate_stride]
                             device const float *decay [[buffer(3)]],    // [heads]
                             device const float *bias [[buffer(4)]],     // [heads]
                             device const float *state [[buffer(5)]],    // [states, heads, head, head]
                             device const int *cu_seqlens [[buffer(6)]], // [seqs + 1]
                             device const int *states [[buffer(7)]],     // [seqs, 2]
                             device A *out [[buffer(8)]],                // [tokens, heads, head]
                             device float *state_out [[buffer(9)]],      // [states, heads, head, head]
                             constant DeltaNetParams &p [[buffer(10)]],  //
                             device const float *gain [[buffer(11)]],    // [head]
                             device const A *z [[buffer(12)]],           // [tokens, z_stride]
                             uint2 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                             uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float q[piece * most], k[piece * most], kk[piece * piece], qk[piece * piece];
    threadgroup float all_columns[4 * piece * 32], sums[piece * 4], logs[piece], decays[piece], learn[piece];
    threadgroup float factors[64]; // a diagonal matrix
    const uint h = group.x, seq = group.y, head = p.head, of = key_head(h, p);
    const uint first = uint(max(cu_seqlens[seq], 0)), end = uint(max(cu_seqlens[seq + 1], 0));
    const ulong row = ulong(2 * p.key_heads + p.heads) * head;
    const uint c0 = sg * 32, column = c0 + lane, tiles = c0 < head ? min((head - c0) / 8, 4u) : 0;
    threadgroup float *columns = all_columns + sg * piece * 32;
    for (uint t = first, n = 0; t < end; t += n) {
        n = min(piece, end - t);
        const Step step = step_of(t == first, seq, h, states, ulong(head) * head, p);
        device const float *before = state + step.from + c0;
        device float *after = state_out + step.to + c0;

        // Q and K by their lengths; rows without a token are zeros.
        for (uint i = sg; i < piece; i += 4) {
            device const A *from_q = qkv + ulong(t + min(i, n - 1)) * row + ulong(of) * head;
            device const A *from_k = from_q + ulong(p.key_heads) * head;
            float q_squares = 0.0f, k_squares = 0.0f;
            for (uint e = lane; e < head; e += 32) {
                q_squares += float(from_q[e]) * float(from_q[e]);
                k_squares += float(from_k[e]) * float(from_k[e]);
            }
            const float q_scale = i < n ? rsqrt(float(head)) / sqrt(simd_sum(q_squares) + p.eps) : 0.0f;
            const float k_scale = i < n ? 1.0f / sqrt(simd_sum(k_squares) + p.eps) : 0.0f;
            for (uint e = lane; e < head; e += 32) {
                q[i * head + e] = i < n ? float(from_q[e]) * q_scale : 0.0f;
                k[i * head + e] = i < n ? float(from_k[e]) * k_scale : 0.0f;
            }
        }
        if (tid < piece) {
            const ulong gate = ulong(t + min(tid, n - 1)) * p.gate_stride + h;
            logs[tid] = tid < n ? log_decay(float(alpha[gate]), bias[h], decay[h]) : 0.0f;
            learn[tid] = tid < n ? sigmoid_of(float(beta[gate + p.beta_from])) : 0.0f;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);

        const uint up = sg / 2 * 8, across = sg % 2 * 8;
        simdgroup_float8x8 of_k = make_filled_simdgroup_matrix<float, 8, 8>(0.0f), of_q = of_k;
        for (uint d = 0; d < head; d += 8) {
            simdgroup_float8x8 left, right;
            simdgroup_load(right, k + across * head + d, head, ulong2(0, 0), true);
            simdgroup_load(left, k + up * head + d, head);
            simdgroup_multiply_accumulate(of_k, left, right, of_k);
            simdgroup_load(left, q + up * head + d, head);
            simdgroup_multiply_accumulate(of_q, left, right, of_q);
        }
        simdgroup_store(of_k, kk + up * piece + across, piece);
        simdgroup_store(of_q, qk + up * piece + across, piece);
        if (tid < piece) {
            float sum = 0.0f;
            for (uint i = 0; i <= tid; i++)
                sum += logs[i];
            decays[tid] = sum;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint e = tid; e < piece * piece; e += 128) {
            const uint i = e / piece, j = e % piece;
            const float kept = j <= i ? exp(decays[i] - decays[j]) : 0.0f;
            kk[e] = j < i ? learn[i] * kept * kk[e] : 0.0f;
            qk[e] = j <= i ? kept * qk[e] : 0.0f;
        }
        if (tid < 64)
            factors[tid] = tid % 9 == 0 ? exp(decays[piece - 1]) : 0.0f;
        threadgroup_barrier(mem_flags::mem_threadgroup);

        float u[piece], y[piece];
        UNROLL for (uint i = 0; i < piece; i++)
            y[i] = 0.0f;
        if (tiles > 0) {
            simdgroup_float8x8 known[2][4], seen[2][4];
            UNROLL for (uint i = 0; i < 2; i++) {
                UNROLL for (uint j = 0; j < 4; j++)
                    known[i][j] = seen[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            }
            for (uint d = 0; d < head && !step.begins; d += 8) {
                simdgroup_float8x8 s[4], left;
                UNROLL for (uint j = 0; j < 4; j++) {
                    if (j < tiles)
                        simdgroup_load(s[j], before + ulong(d) * head + j * 8, head);
                }
                UNROLL for (uint i = 0; i < 2; i++) {
                    simdgroup_load(left, k + i * 8 * head + d, head);
                    UNROLL for (uint j = 0; j < 4; j++) {
                        if (j < tiles)
                            simdgroup_multiply_accumulate(known[i][j], left, s[j], known[i][j]);
                    }
                    simdgroup_load(left, q + i * 8 * head + d, head);
                    UNROLL for (uint j = 0; j < 4; j++) {
                        if (j < tiles)
                            simdgroup_multiply_accumulate(seen[i][j], left, s[j], seen[i][j]);
                    }
                }
            }
            UNROLL for (uint i = 0; i < 2; i++) {
                UNROLL for (uint j = 0; j < 4; j++)
                    simdgroup_store(known[i][j], columns + i * 8 * 32 + j * 8, 32);
            }
            simdgroup_barrier(mem_flags::mem_threadgroup); // of the products with K
            UNROLL for (uint i = 0; i < piece; i++) {
                const bool has = i < n && column < head;
                const float v =
                    has ? float(qkv[ulong(t + i) * row + ulong(2 * p.key_heads + h) * head + column]) : 0.0f;
                float x = learn[i] * (v - exp(decays[i]) * columns[i * 32 + lane]);
                UNROLL for (uint j = 0; j < piece; j++) {
                    if (j < i)
                        x -= kk[i * piece + j] * u[j];
                }
                u[i] = x;
            }
            simdgroup_barrier(mem_flags::mem_threadgroup);
            UNROLL for (uint i = 0; i < 2; i++) {
                UNROLL for (uint j = 0; j < 4; j++)
                    simdgroup_store(seen[i][j], columns + i * 8 * 32 + j * 8, 32);
            }
            simdgroup_barrier(mem_flags::mem_threadgroup);
            UNROLL for (uint i = 0; i < piece; i++) {
                float x = exp(decays[i]) * columns[i * 32 + lane];
                UNROLL for (uint j = 0; j < piece; j++) {
                    if (j <= i)
                        x += qk[i * piece + j] * u[j];
                }
                y[i] = column < head ? x : 0.0f;
                columns[i * 32 + lane] = exp(decays[piece - 1] - decays[i]) * u[i];
            }
            simdgroup_barrier(mem_flags::mem_threadgroup);
            simdgroup_float8x8 factor, more[2][4];
            simdgroup_load(factor, factors, 8);
            UNROLL for (uint i = 0; i < 2; i++) {
                UNROLL for (uint j = 0; j < 4; j++)
                    simdgroup_load(more[i][j], columns + i * 8 * 32 + j * 8, 32);
            }
            for (uint d = 0; d < head; d += 8) {
                simdgroup_float8x8 left[2];
                UNROLL for (uint i = 0; i < 2; i++)
                    simdgroup_load(left[i], k + i * 8 * head + d, head, ulong2(0, 0), true);
                UNROLL for (uint j = 0; j < 4; j++) {
                    if (j >= tiles)
                        break;
                    simdgroup_float8x8 s = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
                    if (!step.begins) {
                        simdgroup_load(s, before + ulong(d) * head + j * 8, head);
                        simdgroup_multiply(s, factor, s);
                    }
                    UNROLL for (uint i = 0; i < 2; i++)
                        simdgroup_multiply_accumulate(s, left[i], more[i][j], s);
                    simdgroup_store(s, after + ulong(d) * head + j * 8, head);
                }
            }
        }
        if (is_gated) {
            UNROLL for (uint i = 0; i < piece; i++) {
                const float part = simd_sum(y[i] * y[i]);
                if (lane == 0)
                    sums[i * 4 + sg] = part;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        UNROLL for (uint i = 0; i < piece; i++) {
            if (i >= n || column >= head)
                break;
            float v = y[i];
            if (is_gated)
                v = normed(v, sum_of(sums + i * 4, 4), gain[column],
                           float(z[ulong(t + i) * p.z_stride + p.z_from + ulong(h) * head + column]), p);
            out[(ulong(t + i) * p.heads + h) * head + column] = A(v);
        }
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup); // before the next piece
    }
}

template [[host_name("delta_net_pieces_f32")]] kernel decltype(delta_net_pieces<float>) delta_net_pieces<float>;
template [[host_name("delta_net_pieces_f16")]] kernel decltype(delta_net_pieces<half>) delta_net_pieces<half>;
template [[host_name("delta_net_pieces_bf16")]] kernel decltype(delta_net_pieces<bfloat>) delta_net_pieces<bfloat>;
