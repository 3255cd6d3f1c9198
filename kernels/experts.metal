// What products of a mixture of experts need to know before they begin.
#include <metal_stdlib>
#include "abi/params.h"
using namespace metal;

// indices computes out = 0, 1, …, width − 1 in each row: the choice of all experts, in their order. A row
// whose position is below 0 has none, −1.
//
// Grid (ceil(width/256), rows, 1) of 256 threads. No threadgroup memory.
kernel void indices(device const int *positions [[buffer(0)]], // [rows]
                    device int *out [[buffer(1)]],             // [rows, width]
                    constant IndicesParams &p [[buffer(2)]],   //
                    uint2 position [[thread_position_in_grid]]) {
    if (position.x < p.width)
        out[position.y * p.width + position.x] = positions[position.y] < 0 ? -1 : int(position.x);
}

// group_by_expert sorts rows by expert, stably: `order` gets the row numbers, and starts[e]
// the index in `order` of the first row of expert e. Rows without a valid expert come last,
// as an additional expert; starts[experts + 1] is the number of rows.
//
// Grid (groups, 1, 1) of 256 threads: one threadgroup per expert, and one for the rows
// without, reads the experts of all rows twice and writes its own, so threadgroups do not
// synchronise. A simdgroup processes an eighth of the rows. Threadgroup memory: two numbers
// for each simdgroup.
kernel void group_by_expert(device const int *expert [[buffer(0)]],        // [rows]
                            device int *order [[buffer(1)]],               // [rows]
                            device int *starts [[buffer(2)]],              // [groups + 1]
                            constant GroupByExpertParams &p [[buffer(3)]], //
                            uint own [[threadgroup_position_in_grid]], uint sg [[simdgroup_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
    threadgroup uint2 counts[8]; // of a simdgroup's rows, those of experts before, and the own ones
    const uint part = (p.rows + 7) / 8, begin = min(sg * part, p.rows), end = min(begin + part, p.rows);
    const uint none = p.groups - 1;
    uint2 count = uint2(0, 0);
    for (uint i = begin + lane; i < end; i += 32) {
        const uint e = min(uint(expert[i]), none);
        count.x += e < own ? 1 : 0;
        count.y += e == own ? 1 : 0;
    }
    count = simd_sum(count);
    if (lane == 0)
        counts[sg] = count;
    threadgroup_barrier(mem_flags::mem_threadgroup);

    uint start = 0, at = 0;
    for (uint i = 0; i < 8; i++) {
        start += counts[i].x;
        at += i < sg ? counts[i].y : 0;
    }
    at += start;
    if (sg == 0 && lane == 0) {
        starts[own] = int(start);
        if (own == none)
            starts[p.groups] = int(p.rows);
    }
    for (uint i = begin; i < end; i += 32) {
        const bool mine = i + lane < end && min(uint(expert[i + lane]), none) == own;
        const uint before = simd_prefix_exclusive_sum(mine ? 1u : 0u);
        if (mine)
            order[at + before] = int(i + lane);
        at += simd_sum(mine ? 1u : 0u);
    }
}
