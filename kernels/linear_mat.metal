// Matrix-matrix products: the linear layers of prefill and of larger batches.
#include <metal_stdlib>
#include "params.h"
#include "quant.h"
#include "tile.h"
using namespace metal;

// As in linear_vec.metal, whose norm prologue (5) has no place here.
constant uint fc_type0 [[function_constant(0)]];
constant uint fc_type1 [[function_constant(1)]];
constant uint fc_type2 [[function_constant(2)]];
constant bool fc_residual [[function_constant(3)]];
constant uint fc_activation [[function_constant(4)]];

constant uint type1 = is_function_constant_defined(fc_type1) ? fc_type1 : SMELT_NONE;
constant uint type2 = is_function_constant_defined(fc_type2) ? fc_type2 : SMELT_NONE;
constant bool has_residual = is_function_constant_defined(fc_residual) ? fc_residual : false;
constant bool is_pair = is_function_constant_defined(fc_activation) ? fc_activation == 1 : false;

// Weights are the rows of W that a threadgroup multiplies with.
struct Weights {
    device const uchar *w0;
    device const uchar *w1;
    device const uchar *w2;
};

// load_row writes run `run` of one row to a tile row that starts at run `first`;
// past the end of the row there are zeros.
template <typename X>
inline void load_row(uint type, device const uchar *w, uint n, uint k, uint first, uint run, threadgroup X *row) {
    const uint elems = block_elems(type);
    const uint low = run_low(elems, run) - first * 16;
    const uint high = low + run_gap(elems);
    float v[16];
    if (run * 16 < k) {
        expand(type, w + row_bytes(type, k) * n, run, k, v);
    } else {
        for (uint i = 0; i < 16; i++)
            v[i] = 0.0f;
    }
    for (uint i = 0; i < 8; i++) {
        row[low + i] = X(v[i]);
        row[high + i] = X(v[i + 8]);
    }
}

// sum_tile adds the products of 32 tokens and 32 columns over all of k. A step is 64
// deep: 128 threads then load one run of 16 of x and one of W each.
template <typename X>
inline void sum_tile(device const X *x, thread const Weights &weights, constant LinearParams &p, bool second,
                     uint first_token, uint first_column, threadgroup X *x_tile, threadgroup X *w_tile, uint tid,
                     uint sg, thread Quadrant &acc) {
    const uint row = tid / 4, part = tid % 4;
    const uint token = first_token + row, column = first_column + row;
    device const X *x_row = x + ulong(token) * p.x_stride;
    threadgroup X *x_to = x_tile + row * 72 + part * 16;
    threadgroup X *w_to = w_tile + row * 72;
    for (uint k0 = 0; k0 < p.k; k0 += 64) {
        const uint first = k0 / 16, run = first + part;
        for (uint i = 0; i < 16; i++) {
            x_to[i] = token < p.tokens && run * 16 + i < p.k ? x_row[run * 16 + i] : X(0.0f);
        }
        if (second) {
            if (column < p.n1)
                load_row(type1, weights.w1, column, p.k, first, run, w_to);
        } else if (column < p.n0) {
            load_row(fc_type0, weights.w0, column, p.k, first, run, w_to);
        } else if (!is_pair && type1 != SMELT_NONE && column < p.n0 + p.n1) {
            load_row(type1, weights.w1, column - p.n0, p.k, first, run, w_to);
        } else if (!is_pair && type2 != SMELT_NONE && column < p.n0 + p.n1 + p.n2) {
            load_row(type2, weights.w2, column - p.n0 - p.n1, p.k, first, run, w_to);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        accumulate(x_tile, w_tile, 72, 64, false, sg, acc);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// linear_mat computes what linear_vec does, without its norm prologue, for 32 tokens
// at a time: a weight that has been decoded is used 32 times. Weights are rounded to
// the type of x; sums are float.
//
// Grid (ceil(N/32), ceil(tokens/32), 1) of 128 threads. Threadgroup memory: a tile of
// x and one of W, 32 rows of 72 elements each (64 and 8 that spread banks), which the
// result tiles replace afterwards.
template <typename X, typename O>
kernel void linear_mat(device const X *x [[buffer(0)]],            // [tokens, k], rows x_stride apart
                       device const uchar *w0 [[buffer(1)]],       // [n0, k] in blocks of its type
                       device const uchar *w1 [[buffer(2)]],       // [n1, k]
                       device const uchar *w2 [[buffer(3)]],       // [n2, k]
                       device O *out [[buffer(4)]],                // [tokens, N], rows out_stride apart
                       constant LinearParams &p [[buffer(5)]],     //
                       device const float *residual [[buffer(6)]], // [tokens, N], rows out_stride apart
                       device const float *gain [[buffer(7)]],     // unused: the norm prologue is linear_vec's
                       uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                       uint sg [[simdgroup_index_in_threadgroup]]) {
    threadgroup float memory[2 * 32 * 72 * sizeof(X) / 4];
    threadgroup X *x_tile = (threadgroup X *)memory;
    threadgroup X *w_tile = x_tile + 32 * 72;

    const uint columns = is_pair ? p.n0 : p.n0 + p.n1 + p.n2;
    const uint first_token = group.y * 32, first_column = group.x * 32;
    Weights weights;
    weights.w0 = w0;
    weights.w1 = w1;
    weights.w2 = w2;

    Quadrant acc, up;
    clear(acc);
    sum_tile(x, weights, p, false, first_token, first_column, x_tile, w_tile, tid, sg, acc);
    if (is_pair) {
        clear(up);
        sum_tile(x, weights, p, true, first_token, first_column, x_tile, w_tile, tid, sg, up);
    }

    threadgroup float *result = memory;
    threadgroup float *linear = memory + 32 * 32;
    store(acc, result, sg);
    if (is_pair)
        store(up, linear, sg);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint e = tid; e < 32 * 32; e += 128) {
        const uint token = first_token + e / 32, column = first_column + e % 32;
        if (token >= p.tokens || column >= columns)
            continue;
        const ulong at = ulong(token) * p.out_stride + column;
        float v = result[e];
        if (is_pair)
            v = v / (1.0f + exp(-v)) * linear[e];
        if (has_residual)
            v += residual[at];
        out[at] = O(v);
    }
}

template [[host_name("linear_mat_f32_f32")]] kernel decltype(linear_mat<float, float>) linear_mat<float, float>;
template [[host_name("linear_mat_f32_f16")]] kernel decltype(linear_mat<float, half>) linear_mat<float, half>;
template [[host_name("linear_mat_f16_f32")]] kernel decltype(linear_mat<half, float>) linear_mat<half, float>;
template [[host_name("linear_mat_f16_f16")]] kernel decltype(linear_mat<half, half>) linear_mat<half, half>;
