// Matrix-matrix products: the linear layers of prefill and of larger batches.
#include <metal_stdlib>
#include "abi/params.h"
#include "quant.h"
#include "activation.h"
using namespace metal;

// As in linear_vec.metal. Of its norms (5, 10, 11) norm_linear_mat has one.
constant uint fc_type0 [[function_constant(0)]];
constant uint fc_type1 [[function_constant(1)]];
constant uint fc_type2 [[function_constant(2)]];
constant uint fc_type3 [[function_constant(17)]];
constant uint fc_row_gate [[function_constant(18)]]; // as of linear_vec
constant bool fc_column_gate [[function_constant(19)]];
constant bool fc_residual [[function_constant(3)]];
constant uint fc_activation [[function_constant(4)]];
// Tokens of a tile: 32 (the default), or 64 where x is half or bfloat.
constant uint fc_tile [[function_constant(6)]];
constant bool fc_bias [[function_constant(8)]];
constant bool fc_gated [[function_constant(9)]];
constant bool fc_gather [[function_constant(12)]];
constant uint fc_experts [[function_constant(13)]];
constant uint fc_top [[function_constant(14)]];
constant bool fc_each [[function_constant(15)]];

constant uint type1 = is_function_constant_defined(fc_type1) ? fc_type1 : SMELT_NONE;
constant uint type2 = is_function_constant_defined(fc_type2) ? fc_type2 : SMELT_NONE;
constant uint type3 = is_function_constant_defined(fc_type3) ? fc_type3 : SMELT_NONE;
constant uint row_gate = is_function_constant_defined(fc_row_gate) ? fc_row_gate : SMELT_ACTIVATION_NONE;
constant bool column_gate = is_function_constant_defined(fc_column_gate) ? fc_column_gate : false;
constant bool has_residual = is_function_constant_defined(fc_residual) ? fc_residual : false;
constant uint activation = is_function_constant_defined(fc_activation) ? fc_activation : SMELT_ACTIVATION_NONE;
constant bool has_bias = is_function_constant_defined(fc_bias) ? fc_bias : false;
constant bool is_gated = is_function_constant_defined(fc_gated) ? fc_gated : false;
constant bool has_rows = is_function_constant_defined(fc_gather) ? fc_gather : false;
constant uint expert_count = is_function_constant_defined(fc_experts) ? fc_experts : 0;
constant uint chosen = is_function_constant_defined(fc_top) ? fc_top : 1;
constant bool has_each = is_function_constant_defined(fc_each) ? fc_each : false;
constant uint tile_tokens = is_function_constant_defined(fc_tile) ? fc_tile : 32;

// Rows of a tile of x or W lie this many elements apart: 64 and 16 bytes that spread
// them over the banks, for the stores of 16 bytes as for the loads of 8 × 8.
#define STRIDE (64 + 16 / sizeof(X))

// The stride of the result tile's columns, in floats.
#define OUT_STRIDE 68

// Row is the row of a weight that a thread loads.
struct Row {
    Stored at;
    uint weight; // 0 to 3
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
    else if (type3 != SMELT_NONE && type3 != fc_type0 && row.weight == 3)
        decode_as<Whole>(type3, row, run, k, v);
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
    if (type3 != SMELT_NONE && block_elems(type3) != first && row.weight == 3)
        return block_elems(type3);
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

// Norm is the RMSNorm of a row of x, or none: what its elements are multiplied by.
struct Norm {
    device const float *gain;
    float scale;
};

// load_tiles fills the tiles with columns first … first+63 of M rows of x and 64 rows
// of W; where not all of them are Whole, with zeros past the end of a row. Of W a
// thread decodes half of a row, of x a part that 128/M threads share.
template <typename I, typename X, uint M, bool Whole, bool Normed>
inline void load_tiles(device const I *x, thread const Norm &norm, thread const Row &w, uint k, uint first,
                       threadgroup X *x_tile, threadgroup X *w_tile, uint tid) {
    const uint part = tid % (128 / M);
    threadgroup X *x_to = x_tile + tid / (128 / M) * STRIDE + part * (M / 2);
    for (uint i = 0; i < M / 2; i += 8) {
        const uint at = first + part * (M / 2) + i;
        float v[8];
        UNROLL for (uint j = 0; j < 8; j++) {
            v[j] = Whole || at + j < k ? float(x[at + j]) : 0.0f;
            if (Normed)
                v[j] = v[j] * norm.scale * (Whole || at + j < k ? norm.gain[at + j] : 0.0f);
        }
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

// Part is a simdgroup's quarter of a tile of M tokens × 64 columns: M/2 × 32, in
// matrices of 8 × 8.
template <uint M> struct Part {
    simdgroup_float8x8 at[M / 16 * 4];
};

// accumulate adds the products of 64 columns of the tiles. It skips token matrices from
// number `live` on, which are past the last token; a full tile omits the test.
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
template <typename I, typename X, uint M, bool Whole, bool Normed>
inline void step(device const I *x, thread const Norm &norm, thread const Row &w, uint k, uint first,
                 threadgroup X *x_tile, threadgroup X *w_tile, uint tid, uint sg, uint live, thread Part<M> &acc) {
    load_tiles<I, X, M, Whole, Normed>(x, norm, w, k, first, x_tile, w_tile, tid);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (live == M / 16)
        accumulate<X, M, true>(x_tile, w_tile, sg, live, acc);
    else if (live > 0)
        accumulate<X, M, false>(x_tile, w_tile, sg, live, acc);
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Input is the rows of x that a product is made of, and those that their norms take:
// buffers of the kernel.
template <typename I> struct Input {
    device const I *x;
    device const int *rows;
    uint sharing; // rows of out per row of x, with experts; 0 without
    device const float *gain;
    threadgroup float *scales; // of the tile's tokens
};

// routed_row returns the row at one of the p.tokens places in the order of experts. The row is within
// the buffers even if group_by_expert has not written the order yet.
inline uint routed_row(device const int *rows, constant LinearParams &p, uint place) {
    return min(uint(rows[place]), p.tokens - 1);
}

// row_at finds a token's row of x.
template <typename I> inline device const I *row_at(thread const Input<I> &in, constant LinearParams &p, uint token) {
    const uint row = in.sharing != 0 ? routed_row(in.rows, p, token) : has_rows ? uint(in.rows[token]) : token;
    return in.x + ulong(in.sharing > 1 ? row / in.sharing : row) * p.x_stride;
}

// Tile is the tokens that a threadgroup computes, or places in the order of experts.
struct Tile {
    uint first, count;
};

// tile_size returns the maximum number of tokens of a tile.
template <typename X> inline uint tile_size() { return sizeof(X) == 2 && tile_tokens == 64 ? 64 : 32; }

// tile_of is the tile of a threadgroup where there are no experts.
inline Tile tile_of(constant LinearParams &p, uint size, uint index) {
    const Tile tile = {index * size, min(size, p.tokens - index * size)};
    return tile;
}

// find_scales leaves 1 / sqrt(mean(x²) + eps) of each of the tile's tokens, a simdgroup
// every fourth of them. The squares of a row are summed in the order of 256 threads of
// rms_norm (norm.metal), so that a result has the bits that it has of a normalised x.
template <typename I>
inline void find_scales(thread const Input<I> &in, constant LinearParams &p, uint first, uint count, uint sg,
                        uint lane) {
    for (uint row = sg; row < count; row += 4) {
        device const I *x = row_at(in, p, first + row);
        float4 sums[2] = {float4(0.0f), float4(0.0f)}; // of rms_norm's eight simdgroups
        for (uint start = lane * 4; start < p.k; start += 1024) {
            UNROLL for (uint i = 0; i < 8; i++) {
                const uint at = start + i * 128, end = min(at + 4, p.k);
                for (uint j = at; j < end; j++)
                    sums[i / 4][i % 4] += float(x[j]) * float(x[j]);
            }
        }
        sums[0] = simd_sum(sums[0]);
        sums[1] = simd_sum(sums[1]);
        float squares = 0.0f;
        UNROLL for (uint i = 0; i < 8; i++)
            squares += sums[i / 4][i % 4];
        if (lane == 0)
            in.scales[row] = precise::rsqrt(squares / float(p.k) + p.eps);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Epilogue holds the buffers whose elements are added to the products, and those of the gate.
struct Epilogue {
    device const float *residual;
    device const float *gate;
    device const float *bias0;
    device const float *bias1;
    device const float *bias2;
    device const float *bias3;
};

// bias_of returns the bias of column c of the weights side by side, or of the first weight
// of a gate.
inline float bias_of(thread const Epilogue &e, constant LinearParams &p, uint c) {
    if (c < p.n0)
        return e.bias0[c];
    if (c < p.n0 + p.n1)
        return e.bias1[c - p.n0];
    if (c < p.n0 + p.n1 + p.n2)
        return e.bias2[c - p.n0 - p.n1];
    return e.bias3[c - p.n0 - p.n1 - p.n2];
}

// multiply makes a tile of M tokens at most and 64 rows of W from first_column on; of a gate
// 32 rows of each weight.
template <typename I, typename X, typename O, uint M, bool Normed>
inline void multiply(thread const Input<I> &in, thread const Row &w, device O *out, constant LinearParams &p,
                     thread const Epilogue &end, Tile tile, uint first_column, uint columns, threadgroup float *memory,
                     uint tid, uint sg) {
    threadgroup X *x_tile = (threadgroup X *)memory;
    threadgroup X *w_tile = x_tile + M * STRIDE;
    // Rows past the end repeat the last one; their products are dropped.
    const uint own_row = min(tid / (128 / M), tile.count - 1);
    device const I *x_row = row_at(in, p, tile.first + own_row);
    Norm norm;
    if (Normed) {
        find_scales(in, p, tile.first, tile.count, sg, tid % 32);
        norm.gain = in.gain;
        norm.scale = in.scales[own_row];
    }
    // Matrices of the simdgroup's part that have tokens.
    const uint start = min(sg / 2 * (M / 2), tile.count);
    const uint live = min((tile.count - start + 7) / 8, M / 16);

    Part<M> acc;
    UNROLL for (uint i = 0; i < M / 4; i++)
        acc.at[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    const uint whole = p.k & ~63u;
    for (uint k = 0; k < whole; k += 64)
        step<I, X, M, true, Normed>(x_row, norm, w, p.k, k, x_tile, w_tile, tid, sg, live, acc);
    if (whole < p.k)
        step<I, X, M, false, Normed>(x_row, norm, w, p.k, whole, x_tile, w_tile, tid, sg, live, acc);

    threadgroup float *quarter = memory + sg / 2 * (M / 2) * OUT_STRIDE + sg % 2 * 32;
    UNROLL for (uint i = 0; i < M / 4; i++)
        simdgroup_store(acc.at[i], quarter + i / 4 * 8 * OUT_STRIDE + i % 4 * 8, OUT_STRIDE);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint width = is_gated ? 32 : 64;
    for (uint e = tid; e < M * width; e += 128) {
        const uint row = e / width, column = e % width;
        if (row >= tile.count || first_column + column >= columns)
            continue;
        const uint own = first_column + column;
        const uint to = in.sharing != 0 ? routed_row(in.rows, p, tile.first + row) : tile.first + row;
        const ulong at = ulong(to) * p.out_stride + own;
        float v = memory[row * OUT_STRIDE + column], linear = 0.0f;
        if (is_gated)
            linear = memory[row * OUT_STRIDE + column + 32];
        if (has_bias) {
            v += bias_of(end, p, own);
            if (is_gated)
                linear += end.bias1[own];
        }
        v = is_gated ? gate_of(activation, v, linear) : activation_of(activation, v);
        if (row_gate != SMELT_ACTIVATION_NONE)
            v *= activation_of(row_gate, end.gate[ulong(to) * p.gate_stride + p.gate_from]);
        if (column_gate)
            v *= end.gate[ulong(to) * p.gate_stride + p.gate_from + own];
        if (has_residual)
            v += end.residual[at];
        out[at] = O(v);
    }
}

// Weights are the matrices side by side: buffers of the kernel.
struct Weights {
    device const uchar *w0;
    device const uchar *w1;
    device const uchar *w2;
    device const uchar *w3;
};

// weight_row finds the row of W that a thread loads.
inline Row weight_row(thread const Weights &w, constant LinearParams &p, uint first_column, uint columns, uint tid) {
    if (is_gated) {
        const uint n = min(first_column + tid / 2 % 32, p.n0 - 1);
        return tid / 64 == 0 ? row_of(w.w0, 0, fc_type0, p.n0, p.k, n) : row_of(w.w1, 1, type1, p.n1, p.k, n);
    }
    const uint n = min(first_column + tid / 2, columns - 1);
    if (n < p.n0)
        return row_of(w.w0, 0, fc_type0, p.n0, p.k, n);
    if (n < p.n0 + p.n1)
        return row_of(w.w1, 1, type1, p.n1, p.k, n - p.n0);
    if (n < p.n0 + p.n1 + p.n2)
        return row_of(w.w2, 2, type2, p.n2, p.k, n - p.n0 - p.n1);
    return row_of(w.w3, 3, type3, p.n3, p.k, n - p.n0 - p.n1 - p.n2);
}

// Elements of threadgroup memory for the tiles: 128 rows of 72, or 96 of 68 floats.
#define TILES (sizeof(X) == 4 ? 96 * 68 * 4 / 16 : 128 * 72 * 2 / 16)

// threadgroup_tile makes the threadgroup's tile.
template <typename I, typename X, typename O, bool Normed>
inline void threadgroup_tile(thread const Input<I> &in, thread const Weights &weights, device O *out,
                             constant LinearParams &p, thread const Epilogue &end, Tile tile,
                             threadgroup float4 *memory, uint3 group, uint tid, uint sg) {
    const uint columns = is_gated ? p.n0 : p.n0 + p.n1 + p.n2 + p.n3;
    const uint first_column = group.y * (is_gated ? 32 : 64);
    const Row w = weight_row(weights, p, first_column, columns, tid);
    threadgroup float *tiles = (threadgroup float *)memory;
    if (tile_size<X>() == 64)
        multiply<I, X, O, 64, Normed>(in, w, out, p, end, tile, first_column, columns, tiles, tid, sg);
    else
        multiply<I, X, O, 32, Normed>(in, w, out, p, end, tile, first_column, columns, tiles, tid, sg);
}

// ExpertTile is a tile of places in the order of experts; some have no tokens.
struct ExpertTile {
    uint expert;
    Tile tile;
};

// expert_tile returns the tile of a threadgroup. The tiles of expert e begin at number
// ⌊starts[e] / size⌋ + e, which is at least the number of tiles of the experts before it.
// Each simdgroup therefore finds its expert without a table, and the grid is known before
// experts are chosen.
inline ExpertTile expert_tile(device const int *starts, constant LinearParams &p, uint size, uint index, uint lane) {
    uint begun = 0;
    for (uint e = lane; e <= expert_count; e += 32)
        begun += uint(starts[e]) / size + e <= index ? 1 : 0;
    ExpertTile own;
    own.expert = min(simd_sum(begun) - 1, expert_count);
    const uint start = uint(starts[own.expert]), end = min(uint(starts[own.expert + 1]), p.tokens);
    own.tile.first = start + (index - start / size - own.expert) * size;
    own.tile.count = own.tile.first < end ? min(size, end - own.tile.first) : 0;
    return own;
}

// turn_to has a product read the weights of an expert, of those in a stack.
inline void turn_to(thread Weights &weights, thread Epilogue &end, constant LinearParams &p, uint expert) {
    weights.w0 += row_bytes(fc_type0, p.k) * p.n0 * expert;
    if (type1 != SMELT_NONE)
        weights.w1 += row_bytes(type1, p.k) * p.n1 * expert;
    if (has_bias) {
        end.bias0 += ulong(p.n0) * expert;
        if (is_gated)
            end.bias1 += ulong(p.n1) * expert;
    }
}

// lose_rows stores the columns of a threadgroup in rows that have no expert.
template <typename O>
inline void lose_rows(device O *out, device const int *rows, uint count, constant LinearParams &p, uint column_tile,
                      uint tid) {
    const uint width = is_gated ? 32 : 64;
    for (uint e = tid; e < count * width; e += 128) {
        const uint column = column_tile * width + e % width;
        if (column < p.n0)
            out[ulong(routed_row(rows, p, e / width)) * p.out_stride + column] = O(NAN);
    }
}

// linear_mat computes linear_vec's formula, without its norm prologue, in tiles of
// `fc_tile` tokens and 64 rows of W: a decoded weight is used for every token of the
// tile. Weights are rounded to the type of x; sums are float, over k in
// steps of 8 whatever the tile, so that its size does not change a result.
//
// For each step of 64 columns a threadgroup reads x and W once, x in whole lines of
// memory. At 64 × 64 it does 8192 operations for 64 · (2 + 0.56) bytes of half and
// Q4_0, 50 per byte, and 32 with half weights; at 32 × 64 it does 41 and 21. The ridge
// of an M1 is 38 operations per byte of memory traffic, that of an M4 Max 30.
//
// With experts the weights and biases are stacks, [experts, n, k], and a row of out is the
// result of one expert of a token, [tokens of x, top]. `rows` has the rows of out sorted by
// expert and `starts` the index of each expert's first, as group_by_expert writes them, so
// that each tile belongs to one expert and reads its weights once
//
//     out[t, s] = W[expert[t, s]] · x[t]                      experts
//     out[t, s] = W[expert[t, s]] · x[t, s]                   each
//
// A row of out without an expert gives NaN.
//
// Grid (ceil(tokens/fc_tile), ceil(N/64), 1), or ceil(N/32) of a gate, of 128 threads; with
// experts, experts + 1 more in x. Token tiles are the fastest axis, so that concurrent tiles
// share rows of W in the last-level cache, which reads them from memory once. Threadgroup
// memory: a tile of x and one of W, 64 elements of each row, 18 KB; the result replaces
// them.
//
// Source: tiles of simdgroup matrices, with weights decoded into threadgroup memory, as in
// ggml's mul_mm for Metal.
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
                       device const int *rows [[buffer(12)]],      // [tokens]
                       device const int *starts [[buffer(13)]],    // [experts + 2]
                       device const uchar *w3 [[buffer(15)]],      // [n3, k]
                       device const float *bias3 [[buffer(16)]],   // [n3]
                       device const float *gate [[buffer(17)]],    // [tokens, 1 or N], rows p.gate_stride apart
                       uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                       uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float4 memory[TILES];
    Input<X> in;
    in.x = x;
    in.rows = rows;
    in.sharing = 0;
    Weights weights = {w0, w1, w2, w3};
    Epilogue end = {residual, gate, bias0, bias1, bias2, bias3};
    Tile tile;
    if (expert_count != 0) {
        const ExpertTile own = expert_tile(starts, p, tile_size<X>(), group.x, lane);
        tile = own.tile;
        if (tile.count == 0)
            return;
        if (own.expert == expert_count) {
            lose_rows(out, rows + tile.first, tile.count, p, group.y, tid);
            return;
        }
        in.sharing = has_each ? 1 : chosen;
        turn_to(weights, end, p, own.expert);
    } else {
        tile = tile_of(p, tile_size<X>(), group.x);
    }
    threadgroup_tile<X, X, O, false>(in, weights, out, p, end, tile, memory, group, tid, sg);
}

template [[host_name("linear_mat_f32_f32")]] kernel decltype(linear_mat<float, float>) linear_mat<float, float>;
template [[host_name("linear_mat_f32_f16")]] kernel decltype(linear_mat<float, half>) linear_mat<float, half>;
template [[host_name("linear_mat_f32_bf16")]] kernel decltype(linear_mat<float, bfloat>) linear_mat<float, bfloat>;
template [[host_name("linear_mat_f16_f32")]] kernel decltype(linear_mat<half, float>) linear_mat<half, float>;
template [[host_name("linear_mat_f16_f16")]] kernel decltype(linear_mat<half, half>) linear_mat<half, half>;
template [[host_name("linear_mat_bf16_f32")]] kernel decltype(linear_mat<bfloat, float>) linear_mat<bfloat, float>;
template [[host_name("linear_mat_bf16_bf16")]] kernel decltype(linear_mat<bfloat, bfloat>) linear_mat<bfloat, bfloat>;

// norm_linear_mat computes what linear_mat does of x · gain / sqrt(mean(x²) + eps), which
// it rounds to the type X of its tiles: the bits of rms_norm and linear_mat, a dispatch
// less. A threadgroup reads its rows of x twice, and all threadgroups side by side read
// and normalise the same ones: that is for a few tiles of tokens.
//
// Grid (ceil(tokens/fc_tile), ceil(N/64), 1), or ceil(N/32) of a gate, of 128 threads.
// Threadgroup memory: as linear_mat, and a float for each of 64 tokens.
template <typename I, typename X, typename O>
kernel void norm_linear_mat(device const I *x [[buffer(0)]],            // [tokens, k], rows x_stride apart
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
                            device const int *rows [[buffer(12)]],      // [tokens]
                            device const uchar *w3 [[buffer(15)]],      // [n3, k]
                            device const float *bias3 [[buffer(16)]],   // [n3]
                            device const float *gate [[buffer(17)]],    // [tokens, 1 or N], rows p.gate_stride apart
                            uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                            uint sg [[simdgroup_index_in_threadgroup]]) {
    threadgroup float4 memory[TILES];
    threadgroup float scales[64];
    const Input<I> in = {x, rows, 0, gain, scales};
    const Weights weights = {w0, w1, w2, w3};
    const Epilogue end = {residual, gate, bias0, bias1, bias2, bias3};
    const Tile tile = tile_of(p, tile_size<X>(), group.x);
    threadgroup_tile<I, X, O, true>(in, weights, out, p, end, tile, memory, group, tid, sg);
}

template [[host_name("norm_linear_mat_f32_f32_f32")]] kernel decltype(norm_linear_mat<float, float, float>)
    norm_linear_mat<float, float, float>;
template [[host_name("norm_linear_mat_f32_f16_f16")]] kernel decltype(norm_linear_mat<float, half, half>)
    norm_linear_mat<float, half, half>;
template [[host_name("norm_linear_mat_f32_f16_f32")]] kernel decltype(norm_linear_mat<float, half, float>)
    norm_linear_mat<float, half, float>;
template [[host_name("norm_linear_mat_f16_f16_f16")]] kernel decltype(norm_linear_mat<half, half, half>)
    norm_linear_mat<half, half, half>;
template [[host_name("norm_linear_mat_f16_f16_f32")]] kernel decltype(norm_linear_mat<half, half, float>)
    norm_linear_mat<half, half, float>;
template [[host_name("norm_linear_mat_f32_bf16_bf16")]] kernel decltype(norm_linear_mat<float, bfloat, bfloat>)
    norm_linear_mat<float, bfloat, bfloat>;
template [[host_name("norm_linear_mat_f32_bf16_f32")]] kernel decltype(norm_linear_mat<float, bfloat, float>)
    norm_linear_mat<float, bfloat, float>;
template [[host_name("norm_linear_mat_bf16_bf16_bf16")]] kernel decltype(norm_linear_mat<bfloat, bfloat, bfloat>)
    norm_linear_mat<bfloat, bfloat, bfloat>;
template [[host_name("norm_linear_mat_bf16_bf16_f32")]] kernel decltype(norm_linear_mat<bfloat, bfloat, float>)
    norm_linear_mat<bfloat, bfloat, float>;
