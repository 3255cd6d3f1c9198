// Attention over contiguous tensors: for graphs without a paged cache. No graph of the
// compiler's is one today, whose caches are all read through attention_vec and
// attention_tile; programs over the kernel table can launch it.
#include <metal_stdlib>
#include "../abi/params.h"
#include "../attention_core.h"
using namespace metal;

// The head size, where a pipeline is made for one: registers and loops then fit it.
// Otherwise it is read from the parameters.
constant uint fc_head [[function_constant(0)]];
constant bool has_head = is_function_constant_defined(fc_head);

// Whether query row i sees keys up to offset + i only; if not, all of them.
constant bool fc_causal [[function_constant(1)]];
constant bool is_causal = is_function_constant_defined(fc_causal) ? fc_causal : false;

// flash_attention computes softmax(scale · q·Kᵀ)·V for every batch, query head and row
// (Dao et al., "FlashAttention", 2022), never holding more than a tile of scores. Query
// head h reads KV head h / (heads/kv_heads). Any seq_q and seq_kv; `offset` counts the
// keys before those of row 0, seq_kv - seq_q where the rows are the last of the
// sequence. A row without keys gets zeros.
//
// Heads and rows of a batch are strides apart: q and out may be [batch, heads, seq_q,
// head] or [batch, seq_q, heads, head], k and v likewise. Strides are multiples of 4.
//
// Grid (ceil(seq_q/32), heads, batch) of 128 threads. Threadgroup memory: a slice of K
// or V (8.5 KB in 16 bits, 17 KB of floats), scores and probabilities (4.5 KB), factors
// of rows (1 KB) and marks of keys. Heads of up to 256, a multiple of 8.
template <typename A>
kernel void flash_attention(device const A *q [[buffer(0)]],       // [batch, heads, seq_q, head]
                            device const A *k [[buffer(1)]],       // [batch, kv_heads, seq_kv, head]
                            device const A *v [[buffer(2)]],       // [batch, kv_heads, seq_kv, head]
                            device A *out [[buffer(3)]],           // [batch, heads, seq_q, head]
                            constant FlashParams &p [[buffer(4)]], //
                            uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                            uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float4 tile[2 * sizeof(A) * tile_stride];
    threadgroup float4 score_rows[8 * score_stride];
    threadgroup float factor_rows[4 * 64];
    threadgroup uint key_marks[64];
    TileMemory<A> memory;
    memory.tile = (threadgroup A *)tile;
    memory.scores = (threadgroup float *)score_rows;
    memory.factors = factor_rows;
    memory.marks = key_marks;

    const uint first = group.x * 32;
    if (first >= p.seq_q)
        return;
    const uint kv_head = group.y / (p.heads / p.kv_heads);
    QueryRows<A> queries;
    queries.head = has_head ? fc_head : p.head;
    queries.count = min(32u, p.seq_q - first);
    queries.stride = p.q_row_stride;
    const ulong at = ulong(group.z) * p.heads * p.seq_q * queries.head + ulong(group.y) * p.q_head_stride +
                     ulong(first) * p.q_row_stride;
    queries.from = q + at;
    queries.to = out + at;
    queries.gate.kind = SMELT_ACTIVATION_NONE;

    DenseRows<A> rows;
    const ulong kv_at = ulong(group.z) * p.kv_heads * p.seq_kv * queries.head + ulong(kv_head) * p.kv_head_stride;
    rows.keys = k + kv_at;
    rows.values = v + kv_at;
    rows.stride = p.kv_row_stride;

    // Sums of 64 bits: an offset may be anything.
    const ulong row = first + sg * 8 + lane / 4, last = first + queries.count - 1;
    Sight sight;
    sight.first = sight.start = 0;
    sight.end = is_causal ? uint(min(ulong(p.seq_kv), p.offset + row + 1)) : p.seq_kv;
    sight.stop = is_causal ? uint(min(ulong(p.seq_kv), p.offset + last + 1)) : p.seq_kv;
    Scoring scoring;
    scoring.scale = p.scale;
    scoring.cap = 0.0f;
    scoring.sink = lowest;
    scoring.slope = 0.0f;
    scoring.position = 0;
    attend<32>(queries, rows, sight, scoring, memory, 0, tid, sg, lane);
}

template [[host_name("flash_attention_f32")]] kernel decltype(flash_attention<float>) flash_attention<float>;
template [[host_name("flash_attention_f16")]] kernel decltype(flash_attention<half>) flash_attention<half>;
template [[host_name("flash_attention_bf16")]] kernel decltype(flash_attention<bfloat>) flash_attention<bfloat>;
