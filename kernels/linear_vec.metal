// Matrix-vector products: the linear layers of decoding and of small batches.
#include <metal_stdlib>
#include "abi/params.h"
#include "quant.h"
#include "activation.h"
using namespace metal;

// Types of the weights bound side by side; the second and third may be absent.
constant uint fc_type0 [[function_constant(0)]];
constant uint fc_type1 [[function_constant(1)]];
constant uint fc_type2 [[function_constant(2)]];
constant uint fc_type3 [[function_constant(17)]];
// The activation of the element of `gate` that multiplies a row of products.
constant uint fc_row_gate [[function_constant(18)]];
// Elements of `gate` multiply the products column by column.
constant bool fc_column_gate [[function_constant(19)]];
// Add the residual to the products.
constant bool fc_residual [[function_constant(3)]];
// What is applied to the products, by its number.
constant uint fc_activation [[function_constant(4)]];
// How x is normalised first, by its number.
constant uint fc_norm [[function_constant(5)]];
// Rows of the weights that a simdgroup owns, 2 or 4 (the default); with more than
// one token always 2.
constant uint fc_rows [[function_constant(6)]];
// Tokens that share one pass over the weights: 1 (the default), 2, 4 or 8.
constant uint fc_tokens [[function_constant(7)]];
// Every weight has a bias, which is added to its products.
constant bool fc_bias [[function_constant(8)]];
// activation(W0·x) · (W1·x) in place of the two products side by side.
constant bool fc_gated [[function_constant(9)]];
// LayerNorm has a gain; it has a shift (fc_shift). RMSNorm always has a gain and no shift.
constant bool fc_gain [[function_constant(10)]];
constant bool fc_shift [[function_constant(11)]];
// Tokens are rows of x that `rows` names.
constant bool fc_gather [[function_constant(12)]];
// The number of experts whose matrices each weight stacks; 0 without experts.
constant uint fc_experts [[function_constant(13)]];
// Experts that each token goes to.
constant uint fc_top [[function_constant(14)]];
// x has a row for each expert of a token.
constant bool fc_each [[function_constant(15)]];
// What the experts of a token give is weighted and added up; else each has a row of out.
constant bool fc_mixed [[function_constant(16)]];

constant uint type1 = is_function_constant_defined(fc_type1) ? fc_type1 : SMELT_NONE;
constant uint type2 = is_function_constant_defined(fc_type2) ? fc_type2 : SMELT_NONE;
constant uint type3 = is_function_constant_defined(fc_type3) ? fc_type3 : SMELT_NONE;
constant uint row_gate = is_function_constant_defined(fc_row_gate) ? fc_row_gate : SMELT_ACTIVATION_NONE;
constant bool column_gate = is_function_constant_defined(fc_column_gate) ? fc_column_gate : false;
constant bool has_residual = is_function_constant_defined(fc_residual) ? fc_residual : false;
constant uint activation = is_function_constant_defined(fc_activation) ? fc_activation : SMELT_ACTIVATION_NONE;
constant uint norm = is_function_constant_defined(fc_norm) ? fc_norm : SMELT_NORM_NONE;
constant bool has_bias = is_function_constant_defined(fc_bias) ? fc_bias : false;
constant bool is_gated = is_function_constant_defined(fc_gated) ? fc_gated : false;
constant bool has_gain = is_function_constant_defined(fc_gain) ? fc_gain : false;
constant bool has_shift = is_function_constant_defined(fc_shift) ? fc_shift : false;
constant bool has_rows = is_function_constant_defined(fc_gather) ? fc_gather : false;
constant uint expert_count = is_function_constant_defined(fc_experts) ? fc_experts : 0;
constant uint chosen = expert_count != 0 && is_function_constant_defined(fc_top) ? fc_top : 1;
constant bool has_each = is_function_constant_defined(fc_each) ? fc_each : false;
constant bool is_mixed = expert_count != 0 && (is_function_constant_defined(fc_mixed) ? fc_mixed : false);
constant uint row_count = is_function_constant_defined(fc_rows) ? fc_rows : 4;
constant uint token_count = is_function_constant_defined(fc_tokens) ? fc_tokens : 1;

// Moments are the statistics of a LayerNorm row: its elements become (x - mean - rest) ·
// scale, where rest is the rounding error of the mean.
struct Moments {
    float mean, rest, scale;
};

// Input is the rows of x of T tokens, what their norm needs and the lane that reads its
// share of them.
template <typename X, uint T> struct Input {
    device const X *x[T];
    device const float *gain;
    device const float *shift;
    Moments moments[T]; // of LayerNorm
    uint k;
    uint lane;
};

// Rows are the starts of R rows of a weight.
template <uint R> struct Rows {
    Stored at[R];
};

// Sums is a lane's share of the products of T tokens and R rows, token by token, and
// of the sum of squares of each token's x.
template <uint R, uint T> struct Sums {
    float product[T * R];
    float squares[T];
};

// moments_of returns those of a row, as layer_norm does (norm.metal): the mean relative to
// the first element, and its rounding error from a second pass over x - mean.
template <typename X> inline Moments moments_of(device const X *x, uint k, float eps, uint lane) {
    const float n = float(k), pivot = float(x[0]);
    float sum = 0.0f;
    for (uint i = lane * 4; i < k; i += 128) {
        const uint end = min(i + 4, k);
        for (uint j = i; j < end; j++)
            sum += float(x[j]) - pivot;
    }
    const float mean = pivot + simd_sum(sum) / n;
    float2 rest = 0.0f;
    for (uint i = lane * 4; i < k; i += 128) {
        const uint end = min(i + 4, k);
        for (uint j = i; j < end; j++) {
            const float d = float(x[j]) - mean;
            rest += float2(d, d * d);
        }
    }
    rest = float2(simd_sum(rest.x), simd_sum(rest.y)) / n;
    return {mean, rest.x, precise::rsqrt(max(rest.y - rest.x * rest.x, 0.0f) + eps)};
}

// The norm prologue. RMSNorm multiplies x by the norm weight and sums its squares on the
// way: W·(x·g·s) = s·(W·(x·g)), so that the statistic s is applied to the products and x is
// read once. What LayerNorm takes off a row would cancel there, so that it has its
// statistics beforehand.
constant bool reads_gain = norm == SMELT_NORM_RMS || (norm == SMELT_NORM_LAYER && has_gain);
constant bool reads_shift = norm == SMELT_NORM_LAYER && has_shift;

// normed is an element of a token's x, or four, under the prologue.
template <typename V> inline V normed(V v, thread const Moments &m, V gain, V shift) {
    if (norm == SMELT_NORM_LAYER)
        v = (v - m.mean - m.rest) * m.scale;
    if (reads_gain)
        v *= gain;
    if (reads_shift)
        v += shift;
    return v;
}

// Slice is the part of a token's x that a run of weights multiplies: its elements, scaled by
// the `place` of the type's codes, and their sums by group, which the offsets multiply.
struct Slice {
    float4 v[4];
    float sum[2];
};

// slice reads a token's part of a run.
template <typename X, uint T>
inline Slice slice(uint type, thread const Input<X, T> &in, uint t, uint run, thread float &squares) {
    const uint low = run_low(block_elems(type), run), gap = run_gap(block_elems(type));
    Slice s;
    s.sum[0] = s.sum[1] = 0.0f;
    UNROLL for (uint i = 0; i < 4; i++) {
        const uint at = low + i / 2 * gap + i % 2 * 4;
        float4 v = load4(in.x[t] + at);
        if (norm == SMELT_NORM_RMS) {
            UNROLL for (uint j = 0; j < 4; j++)
                squares += v[j] * v[j];
        }
        v = normed(v, in.moments[t], reads_gain ? load4(in.gain + at) : float4(0.0f),
                   reads_shift ? load4(in.shift + at) : float4(0.0f));
        if (has_offset(type)) {
            UNROLL for (uint j = 0; j < 4; j++)
                s.sum[i / 2] += v[j];
        }
        s.v[i] = v * place(type, i / 2);
    }
    return s;
}

// product multiplies a run of a row and a token's part of it.
inline float product(uint type, thread const Run &w, thread const Slice &x) {
    const float4 first = w.q[0] * x.v[0] + w.q[1] * x.v[1], second = w.q[2] * x.v[2] + w.q[3] * x.v[3];
    float p = w.scale[0] * ((first.x + first.y) + (first.z + first.w)) +
              w.scale[1] * ((second.x + second.y) + (second.z + second.w));
    if (has_offset(type))
        p += w.offset[0] * x.sum[0] + w.offset[1] * x.sum[1];
    return p;
}

// add_run adds the products of one run. The fewer of rows and tokens stay in registers, and
// the others are loaded one by one. The order of a product's sums depends on neither R nor T:
// a token's result has the same bits alone and in a batch.
template <typename X, uint R, uint T>
inline void add_run(uint type, thread const Rows<R> &rows, thread const Input<X, T> &in, uint run,
                    thread Sums<R, T> &sums) {
    if (T <= R) {
        Slice x[T];
        UNROLL for (uint t = 0; t < T; t++)
            x[t] = slice(type, in, t, run, sums.squares[t]);
        UNROLL for (uint r = 0; r < R; r++) {
            const Run w = decode_run(type, rows.at[r], run);
            UNROLL for (uint t = 0; t < T; t++)
                sums.product[t * R + r] += product(type, w, x[t]);
        }
        return;
    }
    Run w[R];
    UNROLL for (uint r = 0; r < R; r++)
        w[r] = decode_run(type, rows.at[r], run);
    UNROLL for (uint t = 0; t < T; t++) {
        const Slice x = slice(type, in, t, run, sums.squares[t]);
        UNROLL for (uint r = 0; r < R; r++)
            sums.product[t * R + r] += product(type, w[r], x);
    }
}

// dot_rows multiplies rows first … first+R-1 of a weight of n rows. Rows outside it
// repeat its first or last one, and the caller drops their products. In a turn of the
// loop the simdgroup reads 1024 elements of each row, or 2048 of types of so few bits
// that 1024 would be a few lines of memory with both ends cut off.
template <typename X, uint R, uint T>
inline void dot_rows(uint type, device const uchar *w, int first, uint n, thread const Input<X, T> &in,
                     thread Sums<R, T> &sums) {
    Rows<R> rows;
    UNROLL for (int r = 0; r < int(R); r++)
        rows.at[r] = stored_row(type, w, n, in.k, uint(clamp(first + r, 0, int(n) - 1)));
    UNROLL for (uint i = 0; i < T * R; i++)
        sums.product[i] = 0.0f;
    UNROLL for (uint t = 0; t < T; t++)
        sums.squares[t] = 0.0f;
    const uint runs = in.k / 16, turn = has_few_bits(type) ? 4 : 2;
    for (uint start = in.lane; start < runs; start += 32 * turn) {
        for (uint i = 0; i < turn; i++) {
            if (start + 32 * i < runs)
                add_run<X, R, T>(type, rows, in, start + 32 * i, sums);
        }
    }
    if (block_elems(type) != 1)
        return;
    for (uint i = (in.k & ~15u) + in.lane; i < in.k; i += 32) {
        UNROLL for (uint t = 0; t < T; t++) {
            const float x = float(in.x[t][i]);
            if (norm == SMELT_NORM_RMS)
                sums.squares[t] += x * x;
            const float v = normed(x, in.moments[t], reads_gain ? in.gain[i] : 0.0f, reads_shift ? in.shift[i] : 0.0f);
            UNROLL for (uint r = 0; r < R; r++)
                sums.product[t * R + r] += plain_element(type, rows.at[r], i) * v;
        }
    }
}

// add_rows adds the rows of one of the weights side by side to R output columns, of
// which the weight owns start … start+n-1.
template <typename X, uint R, uint T>
inline void add_rows(uint type, device const uchar *w, uint column, uint start, uint n, thread const Input<X, T> &in,
                     thread Sums<R, T> &sums) {
    if (n == 0 || column + R <= start || column >= start + n)
        return;
    Sums<R, T> part;
    dot_rows<X, R, T>(type, w, int(column) - int(start), n, in, part);
    UNROLL for (uint i = 0; i < T * R; i++) {
        if (column + i % R >= start && column + i % R < start + n)
            sums.product[i] = part.product[i];
    }
    UNROLL for (uint t = 0; t < T; t++)
        sums.squares[t] = part.squares[t];
}

// total sums N values over the simdgroup, four at a time, and returns sum `want`.
template <uint N> inline float total(thread const float *v, uint want) {
    float mine = 0.0f;
    UNROLL for (uint i = 0; i < N; i += 4) {
        float4 four = 0.0f;
        UNROLL for (uint j = 0; j < 4; j++) {
            if (i + j < N)
                four[j] = v[i + j];
        }
        four = simd_sum(four);
        UNROLL for (uint j = 0; j < 4; j++) {
            if (i + j < N)
                mine = select(mine, four[j], want == i + j);
        }
    }
    return mine;
}

// Arguments are those of the kernel.
template <typename X, typename O> struct Arguments {
    device const X *x;
    device const uchar *w0;
    device const uchar *w1;
    device const uchar *w2;
    device const uchar *w3;
    device const float *gain;
    device const float *bias0;
    device const float *bias1;
    device const float *bias2;
    device const float *bias3;
    device const float *shift;
    device const int *rows;
};

// bias_of returns the bias of column c of the weights side by side, or of the first weight
// of a gate.
template <typename X, typename O>
inline float bias_of(thread const Arguments<X, O> &a, constant LinearParams &p, uint c) {
    if (c < p.n0)
        return a.bias0[c];
    if (c < p.n0 + p.n1)
        return a.bias1[c - p.n0];
    if (c < p.n0 + p.n1 + p.n2)
        return a.bias2[c - p.n0 - p.n1];
    return a.bias3[c - p.n0 - p.n1 - p.n2];
}

// turn_to has a product of one row read the weights of an expert, of those in a stack.
template <typename X, typename O>
inline void turn_to(thread Arguments<X, O> &a, constant LinearParams &p, uint expert) {
    a.w0 += row_bytes(fc_type0, p.k) * p.n0 * expert;
    if (type1 != SMELT_NONE)
        a.w1 += row_bytes(type1, p.k) * p.n1 * expert;
    if (has_bias) {
        a.bias0 += ulong(p.n0) * expert;
        if (is_gated)
            a.bias1 += ulong(p.n1) * expert;
    }
}

// multiply makes R columns of T tokens from a row of x on; lane i ends with that of token i/R,
// column i%R, and with that of a gate's second weight.
template <typename X, typename O, uint R, uint T>
inline float2 multiply(thread const Arguments<X, O> &a, constant LinearParams &p, uint first, uint column, uint lane) {
    Input<X, T> in;
    UNROLL for (uint t = 0; t < T; t++) {
        const uint row = T == 1 ? first : min(first + t, p.tokens - 1);
        in.x[t] = a.x + ulong(has_rows ? uint(a.rows[row]) : row) * p.x_stride;
    }
    in.gain = a.gain;
    in.shift = a.shift;
    in.k = p.k;
    in.lane = lane;
    if (norm == SMELT_NORM_LAYER) {
        UNROLL for (uint t = 0; t < T; t++)
            in.moments[t] = moments_of(in.x[t], p.k, p.eps, lane);
    }

    Sums<R, T> sums, up;
    add_rows<X, R, T>(fc_type0, a.w0, column, 0, p.n0, in, sums);
    if (is_gated) {
        add_rows<X, R, T>(type1, a.w1, column, 0, p.n1, in, up);
    } else {
        if (type1 != SMELT_NONE)
            add_rows<X, R, T>(type1, a.w1, column, p.n0, p.n1, in, sums);
        if (type2 != SMELT_NONE)
            add_rows<X, R, T>(type2, a.w2, column, p.n0 + p.n1, p.n2, in, sums);
        if (type3 != SMELT_NONE)
            add_rows<X, R, T>(type3, a.w3, column, p.n0 + p.n1 + p.n2, p.n3, in, sums);
    }

    float2 v = 0.0f;
    v.x = total<T * R>(sums.product, lane);
    if (is_gated)
        v.y = total<T * R>(up.product, lane);
    if (norm == SMELT_NORM_RMS)
        v *= precise::rsqrt(total<T>(sums.squares, lane / R) / float(p.k) + p.eps);
    return v;
}

// columns_of are those that a simdgroup owns.
constant uint columns_of = token_count == 1 && row_count != 2 ? 4 : 2;

// multiply_all is multiply for the constants' R and T.
template <typename X, typename O>
inline float2 multiply_all(thread const Arguments<X, O> &a, constant LinearParams &p, uint first, uint column,
                           uint lane) {
    switch (token_count) {
    case 1:
        if (columns_of == 2)
            return multiply<X, O, 2, 1>(a, p, first, column, lane);
        return multiply<X, O, 4, 1>(a, p, first, column, lane);
    case 2:
        return multiply<X, O, 2, 2>(a, p, first, column, lane);
    case 4:
        return multiply<X, O, 2, 4>(a, p, first, column, lane);
    default:
        return multiply<X, O, 2, 8>(a, p, first, column, lane);
    }
}

// linear_vec computes out = x·Wᵀ, W being up to four weights whose outputs lie side
// by side; with the epilogues and the prologue of its function constants
//
//     out = x·Wᵀ + b                                          bias, of every weight
//     out = activation(…)                                     activation
//     out = activation(x·W0ᵀ + b0) · (x·W1ᵀ + b1)             gated, columns n0 = n1
//     out[t] = … · row_gate(gate[t, p.gate_from])             row gate
//     out[t, n] = … · gate[t, p.gate_from + n]                column gate
//     out = … + residual                                      residual
//     x ← x[rows]                                             gather
//     x ← x · gain / sqrt(mean(x²) + eps)                     norm 1
//     x ← (x - mean) / sqrt(var(x) + eps) · gain + shift      norm 2, gain and shift optional
//
// With experts the weights and biases are stacks, [experts, n, k], and a row of out is the
// result of one expert of a token, [tokens of x, top], or their weighted sum
//
//     out[t, s] = W[expert[t, s]] · x[t]                      experts, which have fc_tokens 1
//     out[t, s] = W[expert[t, s]] · x[t, s]                   each
//     out[t] = Σ share[t, s] · out[t, s]                      mixed, before the residual
//
// An invalid expert gives NaN.
//
// Grid (ceil(N / (rows·S)), ceil(tokens / fc_tokens), 1) of S simdgroups, S from 1 to
// 8: a simdgroup owns `rows` columns, so that a loaded input is used for several rows of W
// and a decoded weight for several tokens. The bits of a result depend on neither S nor
// rows nor fc_tokens. No threadgroup memory.
//
// Sources: the structure (several rows per simdgroup, one reduction at the end, sums of x
// in place of an offset per weight) is that of ggml's mul_mv kernels for Metal; a pass
// shared by a few tokens is that of its mul_mv_ext.
template <typename X, typename O>
kernel void linear_vec(device const X *x [[buffer(0)]],            // [tokens, k], rows x_stride apart
                       device const uchar *w0 [[buffer(1)]],       // [n0, k] in blocks of its type
                       device const uchar *w1 [[buffer(2)]],       // [n1, k]
                       device const uchar *w2 [[buffer(3)]],       // [n2, k]
                       device O *out [[buffer(4)]],                // [tokens, N], rows out_stride apart
                       constant LinearParams &p [[buffer(5)]],     //
                       device const float *residual [[buffer(6)]], // [tokens, N], rows out_stride apart
                       device const float *gain [[buffer(7)]],     // [k]
                       device const float *bias0 [[buffer(8)]],    // [n0]
                       device const float *bias1 [[buffer(9)]],    // [n1]
                       device const float *bias2 [[buffer(10)]],   // [n2]
                       device const float *shift [[buffer(11)]],   // [k]
                       device const int *rows [[buffer(12)]],      // [tokens]
                       device const int *expert [[buffer(13)]],    // [tokens of x, top]
                       device const float *share [[buffer(14)]],   // [tokens of x, top]
                       device const uchar *w3 [[buffer(15)]],      // [n3, k]
                       device const float *bias3 [[buffer(16)]],   // [n3]
                       device const float *gate [[buffer(17)]],    // [tokens, 1 or N], rows p.gate_stride apart
                       uint3 group [[threadgroup_position_in_grid]], uint sg [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
    Arguments<X, O> a;
    a.x = x;
    a.w0 = w0;
    a.w1 = w1;
    a.w2 = w2;
    a.w3 = w3;
    a.gain = gain;
    a.bias0 = bias0;
    a.bias1 = bias1;
    a.bias2 = bias2;
    a.bias3 = bias3;
    a.shift = shift;
    a.rows = rows;
    const uint columns = is_gated ? p.n0 : p.n0 + p.n1 + p.n2 + p.n3;
    const uint column = (group.x * simdgroups + sg) * columns_of, first = group.y * token_count;
    if (column >= columns)
        return;
    const uint token = first + lane / columns_of, own = column + lane % columns_of;
    const bool keeps = lane < token_count * columns_of && token < p.tokens && own < columns;
    float result = 0.0f;
    for (uint pick = 0; pick < (is_mixed ? chosen : 1); pick++) {
        Arguments<X, O> of = a;
        uint row = first, pair = first;
        if (expert_count != 0) {
            pair = is_mixed ? first * chosen + pick : first;
            row = has_each ? pair : pair / chosen;
            const uint index = uint(expert[pair]);
            if (index >= expert_count) {
                result = NAN;
                continue;
            }
            turn_to(of, p, index);
        }
        float2 v = multiply_all(of, p, row, column, lane);
        if (has_bias && keeps) {
            v.x += bias_of(of, p, own);
            if (is_gated)
                v.y += of.bias1[own];
        }
        v.x = is_gated ? gate_of(activation, v.x, v.y) : activation_of(activation, v.x);
        result = is_mixed ? result + share[pair] * v.x : v.x;
    }
    if (!keeps)
        return;
    const ulong at = ulong(token) * p.out_stride + own;
    if (row_gate != SMELT_ACTIVATION_NONE)
        result *= activation_of(row_gate, gate[ulong(token) * p.gate_stride + p.gate_from]);
    if (column_gate)
        result *= gate[ulong(token) * p.gate_stride + p.gate_from + own];
    if (has_residual)
        result += residual[at];
    out[at] = O(result);
}

template [[host_name("linear_vec_f32_f32")]] kernel decltype(linear_vec<float, float>) linear_vec<float, float>;
template [[host_name("linear_vec_f32_f16")]] kernel decltype(linear_vec<float, half>) linear_vec<float, half>;
template [[host_name("linear_vec_f32_bf16")]] kernel decltype(linear_vec<float, bfloat>) linear_vec<float, bfloat>;
template [[host_name("linear_vec_f16_f32")]] kernel decltype(linear_vec<half, float>) linear_vec<half, float>;
template [[host_name("linear_vec_f16_f16")]] kernel decltype(linear_vec<half, half>) linear_vec<half, half>;
template [[host_name("linear_vec_bf16_f32")]] kernel decltype(linear_vec<bfloat, float>) linear_vec<bfloat, float>;
template [[host_name("linear_vec_bf16_bf16")]] kernel decltype(linear_vec<bfloat, bfloat>) linear_vec<bfloat, bfloat>;
