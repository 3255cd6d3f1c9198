// Token embedding.
#include <metal_stdlib>
#include "abi/params.h"
#include "quant.h"
using namespace metal;

constant uint fc_type [[function_constant(0)]]; // of the table

// embed looks up one row of the table for each token and converts it to float; an id
// outside the vocabulary gives zeros.
//
// Grid (ceil(width/1024), tokens, 1) of 32 threads; a thread decodes two runs of 16,
// which together are 32 elements of the row. No threadgroup memory.
kernel void embed(device const int *tokens [[buffer(0)]],  // [tokens]
                  device const uchar *table [[buffer(1)]], // [vocab, width] in blocks of its type
                  device float *out [[buffer(2)]],         // [tokens, width]
                  constant EmbedParams &p [[buffer(3)]],   //
                  uint3 position [[thread_position_in_grid]]) {
    const uint elems = block_elems(fc_type);
    const int id = tokens[position.y];
    const bool known = id >= 0 && uint(id) < p.vocab;
    const Stored row = stored_row(fc_type, table, p.vocab, p.width, known ? uint(id) : 0);
    device float *to = out + ulong(position.y) * p.width;
    const bool whole = (p.width & 15) == 0; // runs end with the row
    for (uint i = 0; i < 2; i++) {
        const uint run = 2 * position.x + i;
        if (run * 16 >= p.width)
            return;
        float v[16] = {0.0f};
        if (known)
            expand_end(fc_type, row, run, p.width, v);
        const uint low = run_low(elems, run), high = low + run_gap(elems);
        if (whole) {
            *(device float4 *)(to + low) = float4(v[0], v[1], v[2], v[3]);
            *(device float4 *)(to + low + 4) = float4(v[4], v[5], v[6], v[7]);
            *(device float4 *)(to + high) = float4(v[8], v[9], v[10], v[11]);
            *(device float4 *)(to + high + 4) = float4(v[12], v[13], v[14], v[15]);
            continue;
        }
        UNROLL for (uint j = 0; j < 8; j++) {
            if (low + j < p.width)
                to[low + j] = v[j];
            if (high + j < p.width)
                to[high + j] = v[j + 8];
        }
    }
}
