// Matrix-vector products: the linear layers of decoding.
#include <metal_stdlib>
#include "params.h"
#include "quant.h"
using namespace metal;

// Types of the weights bound side by side; the second and third may be absent.
constant uint fc_type0 [[function_constant(0)]];
constant uint fc_type1 [[function_constant(1)]];
constant uint fc_type2 [[function_constant(2)]];
// Add the residual to the products.
constant bool fc_residual [[function_constant(3)]];
// 1: silu(W0·x) · (W1·x) in place of the two products side by side.
constant uint fc_activation [[function_constant(4)]];
// RMS-normalise x first.
constant bool fc_norm [[function_constant(5)]];

constant uint type1 = is_function_constant_defined(fc_type1) ? fc_type1 : SMELT_NONE;
constant uint type2 = is_function_constant_defined(fc_type2) ? fc_type2 : SMELT_NONE;
constant bool has_residual = is_function_constant_defined(fc_residual) ? fc_residual : false;
constant bool is_pair = is_function_constant_defined(fc_activation) ? fc_activation == 1 : false;
constant bool has_norm = is_function_constant_defined(fc_norm) ? fc_norm : false;

// Input is one row of x, the norm weight and the lane that reads its share of them.
template <typename X> struct Input {
    device const X *x;
    device const float *gain;
    uint k;
    uint lane;
};

// Rows are the starts of four rows of a weight.
struct Rows {
    device const uchar *at[4];
};

// Sums is a lane's share of four products and of the sum of squares of x.
struct Sums {
    float product[4];
    float squares;
};

// load8 reads eight inputs. Under the norm prologue they are multiplied by the norm
// weight and their squares are summed on the way: W·(x·g·s) = s·(W·(x·g)), so that
// the statistic s is applied to the products and x is read once.
template <typename X> inline void load8(thread const Input<X> &in, uint i, thread float *v, thread float &squares) {
    for (uint j = 0; j < 8; j++)
        v[j] = float(in.x[i + j]);
    if (has_norm) {
        for (uint j = 0; j < 8; j++) {
            squares += v[j] * v[j];
            v[j] *= in.gain[i + j];
        }
    }
}

// dot_plain multiplies rows of a plain type; W is float, half or bf16.
template <typename X, typename W> inline Sums dot_plain(thread const Rows &rows, thread const Input<X> &in) {
    float sums[4][4] = {{0.0f}};
    float squares = 0.0f;
    for (uint i = in.lane * 8; i + 8 <= in.k; i += 256) {
        float v[8];
        load8(in, i, v, squares);
        for (uint r = 0; r < 4; r++) {
            device const W *w = (device const W *)rows.at[r] + i;
            for (uint j = 0; j < 4; j++)
                sums[r][j] += element(w, j) * v[j] + element(w, j + 4) * v[j + 4];
        }
    }
    for (uint i = (in.k & ~7u) + in.lane; i < in.k; i += 32) {
        float v = float(in.x[i]);
        if (has_norm) {
            squares += v * v;
            v *= in.gain[i];
        }
        for (uint r = 0; r < 4; r++)
            sums[r][0] += element((device const W *)rows.at[r], i) * v;
    }
    Sums result;
    for (uint r = 0; r < 4; r++)
        result.product[r] = (sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3]);
    result.squares = squares;
    return result;
}

// dot_blocks multiplies rows of blocks B of E elements; a lane takes every 32nd run.
template <typename X, typename B, uint E> inline Sums dot_blocks(thread const Rows &rows, thread const Input<X> &in) {
    float sums[4][4] = {{0.0f}};
    float offsets[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float squares = 0.0f;
    for (uint run = in.lane; run < in.k / 16; run += 32) {
        const uint block = run / (E / 16), part = run % (E / 16);
        const uint low = run_low(E, run);
        float v[16];
        load8(in, low, v, squares);
        load8(in, low + run_gap(E), v + 8, squares);
        float first = 0.0f, second = 0.0f; // sums of each group, which the offsets multiply
        for (uint j = 0; j < 8; j++) {
            first += v[j];
            second += v[j + 8];
        }
        for (uint r = 0; r < 4; r++) {
            const Run w = decode(((device const B *)rows.at[r])[block], part);
            for (uint j = 0; j < 4; j++) {
                sums[r][j] += w.scale[0] * (w.q[j] * v[j] + w.q[j + 4] * v[j + 4]) +
                              w.scale[1] * (w.q[j + 8] * v[j + 8] + w.q[j + 12] * v[j + 12]);
            }
            offsets[r] += w.offset[0] * first + w.offset[1] * second;
        }
    }
    Sums result;
    for (uint r = 0; r < 4; r++)
        result.product[r] = (sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3]) + offsets[r];
    result.squares = squares;
    return result;
}

// dot_rows multiplies rows first … first+3 of a weight of n rows. Rows outside it
// repeat its first or last one, and the caller drops their products.
template <typename X>
inline Sums dot_rows(uint type, device const uchar *w, int first, uint n, thread const Input<X> &in) {
    const ulong bytes = row_bytes(type, in.k);
    Rows rows;
    for (int r = 0; r < 4; r++)
        rows.at[r] = w + bytes * ulong(clamp(first + r, 0, int(n) - 1));
    switch (type) {
    case SMELT_F32:
        return dot_plain<X, float>(rows, in);
    case SMELT_F16:
        return dot_plain<X, half>(rows, in);
    case SMELT_BF16:
        return dot_plain<X, bf16>(rows, in);
    case SMELT_Q8_0:
        return dot_blocks<X, block_q8_0, 32>(rows, in);
    case SMELT_Q4_0:
        return dot_blocks<X, block_q4_0, 32>(rows, in);
    case SMELT_Q4_1:
        return dot_blocks<X, block_q4_1, 32>(rows, in);
    case SMELT_Q5_0:
        return dot_blocks<X, block_q5_0, 32>(rows, in);
    case SMELT_Q5_1:
        return dot_blocks<X, block_q5_1, 32>(rows, in);
    case SMELT_Q2_K:
        return dot_blocks<X, block_q2_k, 256>(rows, in);
    case SMELT_Q3_K:
        return dot_blocks<X, block_q3_k, 256>(rows, in);
    case SMELT_Q4_K:
        return dot_blocks<X, block_q4_k, 256>(rows, in);
    case SMELT_Q5_K:
        return dot_blocks<X, block_q5_k, 256>(rows, in);
    default:
        return dot_blocks<X, block_q6_k, 256>(rows, in);
    }
}

// add_rows adds the rows of one of the weights side by side to four output columns,
// of which the weight owns start … start+n-1.
template <typename X>
inline void add_rows(uint type, device const uchar *w, uint column, uint start, uint n, thread const Input<X> &in,
                     thread Sums &sums) {
    if (n == 0 || column + 4 <= start || column >= start + n)
        return;
    const Sums part = dot_rows(type, w, int(column) - int(start), n, in);
    for (uint r = 0; r < 4; r++) {
        if (column + r >= start && column + r < start + n)
            sums.product[r] = part.product[r];
    }
    sums.squares = part.squares;
}

// linear_vec computes out = x·Wᵀ for every token on its own, W being up to three
// weights whose outputs lie side by side; with the epilogues and the prologue of its
// function constants
//
//     out = silu(x·W0ᵀ) · (x·W1ᵀ)          activation 1, columns n0 = n1
//     out = … + residual                    residual
//     x ← x · gain / sqrt(mean(x²) + eps)   norm
//
// Grid (ceil(N/8), tokens, 1) of 64 threads: a simdgroup owns four columns, so an
// input that a lane has loaded serves four rows of W, and one reduction of four
// floats ends the work. No threadgroup memory.
template <typename X, typename O>
kernel void linear_vec(device const X *x [[buffer(0)]],            // [tokens, k], rows x_stride apart
                       device const uchar *w0 [[buffer(1)]],       // [n0, k] in blocks of its type
                       device const uchar *w1 [[buffer(2)]],       // [n1, k]
                       device const uchar *w2 [[buffer(3)]],       // [n2, k]
                       device O *out [[buffer(4)]],                // [tokens, N], rows out_stride apart
                       constant LinearParams &p [[buffer(5)]],     //
                       device const float *residual [[buffer(6)]], // [tokens, N], rows out_stride apart
                       device const float *gain [[buffer(7)]],     // [k]
                       uint3 group [[threadgroup_position_in_grid]], uint sg [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
    const uint columns = is_pair ? p.n0 : p.n0 + p.n1 + p.n2;
    const uint column = group.x * 8 + sg * 4;
    if (column >= columns)
        return;

    Input<X> in;
    in.x = x + ulong(group.y) * p.x_stride;
    in.gain = gain;
    in.k = p.k;
    in.lane = lane;

    Sums sums = {{0.0f, 0.0f, 0.0f, 0.0f}, 0.0f};
    Sums up = {{0.0f, 0.0f, 0.0f, 0.0f}, 0.0f};
    add_rows(fc_type0, w0, column, 0, p.n0, in, sums);
    if (is_pair) {
        add_rows(type1, w1, column, 0, p.n1, in, up);
    } else {
        if (type1 != SMELT_NONE)
            add_rows(type1, w1, column, p.n0, p.n1, in, sums);
        if (type2 != SMELT_NONE)
            add_rows(type2, w2, column, p.n0 + p.n1, p.n2, in, sums);
    }

    float4 result = simd_sum(float4(sums.product[0], sums.product[1], sums.product[2], sums.product[3]));
    float4 linear = 0.0f;
    if (is_pair)
        linear = simd_sum(float4(up.product[0], up.product[1], up.product[2], up.product[3]));
    if (has_norm) {
        const float s = precise::rsqrt(simd_sum(sums.squares) / float(p.k) + p.eps);
        result *= s;
        linear *= s;
    }
    if (lane != 0)
        return;
    const ulong row = ulong(group.y) * p.out_stride + column;
    for (uint r = 0; r < 4; r++) {
        if (column + r >= columns)
            break;
        float v = result[r];
        if (is_pair)
            v = v / (1.0f + exp(-v)) * linear[r];
        if (has_residual)
            v += residual[row + r];
        out[row + r] = O(v);
    }
}

template [[host_name("linear_vec_f32_f32")]] kernel decltype(linear_vec<float, float>) linear_vec<float, float>;
template [[host_name("linear_vec_f32_f16")]] kernel decltype(linear_vec<float, half>) linear_vec<float, half>;
template [[host_name("linear_vec_f16_f32")]] kernel decltype(linear_vec<half, float>) linear_vec<half, float>;
template [[host_name("linear_vec_f16_f16")]] kernel decltype(linear_vec<half, half>) linear_vec<half, half>;
