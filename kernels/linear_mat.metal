// Matrix-matrix products: the linear layers of prefill and of larger batches.
#include <metal_stdlib>
#include "params.h"
#include "quant.h"
#include "activation.h"
using namespace metal;

// As in linear_vec.metal, whose norm prologue (5, 10, 11) has no place here.
constant uint fc_type0 [[function_constant(0)]];
constant uint fc_type1 [[function_constant(1)]];
constant uint fc_type2 [[function_constant(2)]];
constant bool fc_residual [[function_constant(3)]];
constant uint fc_activation [[function_constant(4)]];
// Tokens of a tile: 32 (the default), or 64 where x is half or bfloat.
constant uint fc_tile [[function_constant(6)]];
constant bool fc_bias [[function_constant(8)]];
constant bool fc_gated [[function_constant(9)]];

constant uint type1 = is_function_constant_defined(fc_type1) ? fc_type1 : SMELT_NONE;
constant uint type2 = is_function_constant_defined(fc_type2) ? fc_type2 : SMELT_NONE;
constant bool has_residual = is_function_constant_defined(fc_residual) ? fc_residual : false;
constant uint activation = is_function_constant_defined(fc_activation) ? fc_activation : SMELT_ACTIVATION_NONE;
constant bool has_bias = is_function_constant_defined(fc_bias) ? fc_bias : false;
constant bool is_gated = is_function_constant_defined(fc_gated) ? fc_gated : false;
constant uint tile_tokens = is_function_constant_defined(fc_tile) ? fc_tile : 32;

// Rows of a tile of x or W lie this many elements apart: 64 and 16 bytes that spread
// them over the banks, for the stores of 16 bytes as for the loads of 8 × 8.
#define STRIDE (64 + 16 / sizeof(X))

// Columns of the result tile lie so many floats apart.
#define OUT_STRIDE 68

// Row is the row of a weight that a thread loads.
struct Row {
    Stored at;
    uint weight; // 0, 1 or 2
};

// row_of finds row i of a weight of n rows.
inline Row row_of(device const uchar *w, uint weight, uint type, uint n, uint k, uint i) {
    Row row;
    row.at = stored_row(type, w, n, k, i);
    row.weight = weight;
    return row;
}

// decode_as writes run `run` of the row, all of which exists if it is Whole.
template <bool Whole> inline void decode_as(uint type, thread const Row &row, uint run, uint k, thread float *v) {
    if (Whole)
        expand(type, row.at, run, v);
    else
        expand_end(type, row.at, run, k, v);
}

// decode_row finds the row's type. Weights that share the type of the first one share
// its decoder, and then no thread has another path.
template <bool Whole> inline void decode_row(thread const Row &row, uint run, uint k, thread float *v) {
    if (type1 != SMELT_NONE && type1 != fc_type0 && row.weight == 1)
        decode_as<Whole>(type1, row, run, k, v);
    else if (type2 != SMELT_NONE && type2 != fc_type0 && row.weight == 2)
        decode_as<Whole>(type2, row, run, k, v);
    else
        decode_as<Whole>(fc_type0, row, run, k, v);
}

// elems_of is the elements of a block of the row's weight.
inline uint elems_of(thread const Row &row) {
    const uint first = block_elems(fc_type0);
    if (type1 != SMELT_NONE && block_elems(type1) != first && row.weight == 1)
        return block_elems(type1);
    if (type2 != SMELT_NONE && block_elems(type2) != first && row.weight == 2)
        return block_elems(type2);
    return first;
}

// put8 rounds eight values and stores them at a multiple of 16 bytes.
inline void put8(threadgroup half *to, thread const float *v) {
    *(threadgroup uint4 *)to =
        uint4(as_type<uint>(half2(float2(v[0], v[1]))), as_type<uint>(half2(float2(v[2], v[3]))),
              as_type<uint>(half2(float2(v[4], v[5]))), as_type<uint>(half2(float2(v[6], v[7]))));
}
inline void put8(threadgroup bfloat *to, thread const float *v) {
    *(threadgroup uint4 *)to =
        uint4(as_type<uint>(bfloat2(float2(v[0], v[1]))), as_type<uint>(bfloat2(float2(v[2], v[3]))),
              as_type<uint>(bfloat2(float2(v[4], v[5]))), as_type<uint>(bfloat2(float2(v[6], v[7]))));
}
inline void put8(threadgroup float *to, thread const float *v) {
    threadgroup float4 *words = (threadgroup float4 *)to;
    words[0] = float4(v[0], v[1], v[2], v[3]);
    words[1] = float4(v[4], v[5], v[6], v[7]);
}

// load_tiles fills the tiles with columns first … first+63 of M rows of x and 64 rows
// of W; where not all of them are Whole, with zeros past the end of a row. Of W a
// thread decodes half of a row, of x a part that 128/M threads share.
template <typename X, uint M, bool Whole>
inline void load_tiles(device const X *x, thread const Row &w, uint k, uint first, threadgroup X *x_tile,
                       threadgroup X *w_tile, uint tid) {
    const uint part = tid % (128 / M);
    threadgroup X *x_to = x_tile + tid / (128 / M) * STRIDE + part * (M / 2);
    for (uint i = 0; i < M / 2; i += 8) {
        const uint at = first + part * (M / 2) + i;
        float v[8];
        UNROLL for (uint j = 0; j < 8; j++)
            v[j] = Whole || at + j < k ? float(x[at + j]) : 0.0f;
        put8(x_to + i, v);
    }
    threadgroup X *w_to = w_tile + tid / 2 * STRIDE;
    const uint elems = elems_of(w);
    for (uint i = 0; i < 2; i++) {
        const uint run = first / 16 + tid % 2 * 2 + i;
        const uint low = run_low(elems, run) - first;
        float v[16];
        decode_row<Whole>(w, run, k, v);
        put8(w_to + low, v);
        put8(w_to + low + run_gap(elems), v + 8);
    }
}

// Part is what a simdgroup owns of a tile of M tokens × 64 columns: M/2 × 32, in
// matrices of 8 × 8.
template <uint M> struct Part {
    simdgroup_float8x8 at[M / 16 * 4];
};

// accumulate adds the products of 64 columns of the tiles. Matrices of tokens from
// number `live` on are past the last token and left out; a full tile does not ask.
template <typename X, uint M, bool Full>
inline void accumulate(threadgroup const X *x_tile, threadgroup const X *w_tile, uint sg, uint live,
                       thread Part<M> &acc) {
    threadgroup const X *x_rows = x_tile + sg / 2 * (M / 2) * STRIDE;
    threadgroup const X *w_rows = w_tile + sg % 2 * 32 * STRIDE;
    for (uint k = 0; k < 64; k += 8) {
        simdgroup_matrix<X, 8, 8> right[4];
        UNROLL for (uint i = 0; i < 4; i++)
            simdgroup_load(right[i], w_rows + 8 * i * STRIDE + k, STRIDE, ulong2(0, 0), true);
        UNROLL for (uint i = 0; i < M / 16; i++) {
            if (!Full && i >= live)
                break;
            simdgroup_matrix<X, 8, 8> left;
            simdgroup_load(left, x_rows + 8 * i * STRIDE + k, STRIDE);
            UNROLL for (uint j = 0; j < 4; j++)
                simdgroup_multiply_accumulate(acc.at[4 * i + j], left, right[j], acc.at[4 * i + j]);
        }
    }
}

// step loads the tiles of 64 columns and adds their products.
template <typename X, uint M, bool Whole>
inline void step(device const X *x, thread const Row &w, uint k, uint first, threadgroup X *x_tile,
                 threadgroup X *w_tile, uint tid, uint sg, uint live, thread Part<M> &acc) {
    load_tiles<X, M, Whole>(x, w, k, first, x_tile, w_tile, tid);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (live == M / 16)
        accumulate<X, M, true>(x_tile, w_tile, sg, live, acc);
    else if (live > 0)
        accumulate<X, M, false>(x_tile, w_tile, sg, live, acc);
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Epilogue is what is added to the products: buffers of the kernel.
struct Epilogue {
    device const float *residual;
    device const float *bias0;
    device const float *bias1;
    device const float *bias2;
};

// bias_of is what is added to column c of the weights side by side, or of the first of a
// gate.
inline float bias_of(thread const Epilogue &e, constant LinearParams &p, uint c) {
    if (c < p.n0)
        return e.bias0[c];
    if (c < p.n0 + p.n1)
        return e.bias1[c - p.n0];
    return e.bias2[c - p.n0 - p.n1];
}

// multiply makes the tile of M tokens from first_token on and 64 rows of W from
// first_column on; of a gate 32 rows of each weight.
template <typename X, typename O, uint M>
inline void multiply(device const X *x, thread const Row &w, device O *out, constant LinearParams &p,
                     thread const Epilogue &end, uint first_token, uint first_column, uint columns,
                     threadgroup float *memory, uint tid, uint sg) {
    threadgroup X *x_tile = (threadgroup X *)memory;
    threadgroup X *w_tile = x_tile + M * STRIDE;
    // Rows past the end repeat the last one; their products are dropped.
    device const X *x_row = x + ulong(min(first_token + tid / (128 / M), p.tokens - 1)) * p.x_stride;
    // Matrices of the simdgroup's part that have tokens.
    const uint start = min(first_token + sg / 2 * (M / 2), p.tokens);
    const uint live = min((p.tokens - start + 7) / 8, M / 16);

    Part<M> acc;
    UNROLL for (uint i = 0; i < M / 4; i++)
        acc.at[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    const uint whole = p.k & ~63u;
    for (uint k = 0; k < whole; k += 64)
        step<X, M, true>(x_row, w, p.k, k, x_tile, w_tile, tid, sg, live, acc);
    if (whole < p.k)
        step<X, M, false>(x_row, w, p.k, whole, x_tile, w_tile, tid, sg, live, acc);

    threadgroup float *quarter = memory + sg / 2 * (M / 2) * OUT_STRIDE + sg % 2 * 32;
    UNROLL for (uint i = 0; i < M / 4; i++)
        simdgroup_store(acc.at[i], quarter + i / 4 * 8 * OUT_STRIDE + i % 4 * 8, OUT_STRIDE);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint width = is_gated ? 32 : 64;
    for (uint e = tid; e < M * width; e += 128) {
        const uint row = e / width, column = e % width;
        if (first_token + row >= p.tokens || first_column + column >= columns)
            continue;
        const uint own = first_column + column;
        const ulong at = ulong(first_token + row) * p.out_stride + own;
        float v = memory[row * OUT_STRIDE + column], linear = 0.0f;
        if (is_gated)
            linear = memory[row * OUT_STRIDE + column + 32];
        if (has_bias) {
            v += bias_of(end, p, own);
            if (is_gated)
                linear += end.bias1[own];
        }
        v = is_gated ? gate_of(activation, v, linear) : activation_of(activation, v);
        if (has_residual)
            v += end.residual[at];
        out[at] = O(v);
    }
}

// linear_mat computes what linear_vec does, without its norm prologue, in tiles of
// `fc_tile` tokens and 64 rows of W: a weight that has been decoded is used for every
// token of the tile. Weights are rounded to the type of x; sums are float, over k in
// steps of 8 whatever the tile, so that its size does not change a result.
//
// Of each step of 64 columns a threadgroup reads x and W once, x as whole lines of
// memory. At 64 × 64 it does 8192 operations for 64 · (2 + 0.56) bytes of half and
// Q4_0, 50 for a byte, and 32 where weights are half; at 32 × 64 it does 41 and 21. An
// M1 does 38 in the time of a byte from memory, an M4 Max 30.
//
// Grid (ceil(tokens/fc_tile), ceil(N/64), 1), or ceil(N/32) of a gate, of 128 threads.
// Token tiles come first, so that those in flight at once share rows of W in the last
// cache and memory gives them once. Threadgroup memory: a tile of x and one of W, 64
// elements of each row, 18 KB; the result takes their place.
//
// Source: tiles of simdgroup matrices with weights decoded on their way into
// threadgroup memory, as in ggml's mul_mm for Metal.
template <typename X, typename O>
kernel void linear_mat(device const X *x [[buffer(0)]],            // [tokens, k], rows x_stride apart
                       device const uchar *w0 [[buffer(1)]],       // [n0, k] in blocks of its type
                       device const uchar *w1 [[buffer(2)]],       // [n1, k]
                       device const uchar *w2 [[buffer(3)]],       // [n2, k]
                       device O *out [[buffer(4)]],                // [tokens, N], rows out_stride apart
                       constant LinearParams &p [[buffer(5)]],     //
                       device const float *residual [[buffer(6)]], // [tokens, N], rows out_stride apart
                       device const float *bias0 [[buffer(8)]],    // [n0]
                       device const float *bias1 [[buffer(9)]],    // [n1]
                       device const float *bias2 [[buffer(10)]],   // [n2]
                       uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                       uint sg [[simdgroup_index_in_threadgroup]]) {
    // 128 rows of 72 elements, or 96 of 68 floats.
    threadgroup float4 memory[sizeof(X) == 4 ? 96 * 68 * 4 / 16 : 128 * 72 * 2 / 16];

    const uint columns = is_gated ? p.n0 : p.n0 + p.n1 + p.n2;
    const uint first_column = group.y * (is_gated ? 32 : 64);
    Row w;
    if (is_gated) {
        const uint n = min(first_column + tid / 2 % 32, p.n0 - 1);
        w = tid / 64 == 0 ? row_of(w0, 0, fc_type0, p.n0, p.k, n) : row_of(w1, 1, type1, p.n1, p.k, n);
    } else {
        const uint n = min(first_column + tid / 2, columns - 1);
        if (n < p.n0)
            w = row_of(w0, 0, fc_type0, p.n0, p.k, n);
        else if (n < p.n0 + p.n1)
            w = row_of(w1, 1, type1, p.n1, p.k, n - p.n0);
        else
            w = row_of(w2, 2, type2, p.n2, p.k, n - p.n0 - p.n1);
    }
    Epilogue end;
    end.residual = residual;
    end.bias0 = bias0;
    end.bias1 = bias1;
    end.bias2 = bias2;
    threadgroup float *tiles = (threadgroup float *)memory;
    if (sizeof(X) == 2 && tile_tokens == 64)
        multiply<X, O, 64>(x, w, out, p, end, group.x * 64, first_column, columns, tiles, tid, sg);
    else
        multiply<X, O, 32>(x, w, out, p, end, group.x * 32, first_column, columns, tiles, tid, sg);
}

template [[host_name("linear_mat_f32_f32")]] kernel decltype(linear_mat<float, float>) linear_mat<float, float>;
template [[host_name("linear_mat_f32_f16")]] kernel decltype(linear_mat<float, half>) linear_mat<float, half>;
template [[host_name("linear_mat_f32_bf16")]] kernel decltype(linear_mat<float, bfloat>) linear_mat<float, bfloat>;
template [[host_name("linear_mat_f16_f32")]] kernel decltype(linear_mat<half, float>) linear_mat<half, float>;
template [[host_name("linear_mat_f16_f16")]] kernel decltype(linear_mat<half, half>) linear_mat<half, half>;
template [[host_name("linear_mat_bf16_f32")]] kernel decltype(linear_mat<bfloat, float>) linear_mat<bfloat, float>;
template [[host_name("linear_mat_bf16_bf16")]] kernel decltype(linear_mat<bfloat, bfloat>) linear_mat<bfloat, bfloat>;
