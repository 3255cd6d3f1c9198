// The largest element of a row.
#include <metal_stdlib>
#include "abi/params.h"
using namespace metal;

// argmax writes the index of the largest element of each row, the first of equals, or
// -1 where the row holds a NaN.
//
// Grid (rows, 1, 1) of 256 threads. Candidates are compared by value, equals by the
// smaller index, in threads, simdgroups and the threadgroup alike. A NaN takes part as
// infinity at -1, which nothing beats. Threadgroup memory: a value and an index for
// each simdgroup.
template <typename A>
kernel void argmax(device const A *x [[buffer(0)]],         // [rows, width], rows a_stride apart
                   device int *out [[buffer(1)]],           // [rows]
                   constant ElementParams &p [[buffer(2)]], //
                   uint row [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                   uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float values[8];
    threadgroup int places[8];
    device const A *from = x + ulong(row) * p.a_stride;

    float best = -INFINITY;
    int at = INT_MAX;
    for (uint i = tid; i < p.width; i += 256) {
        const float v = float(from[i]);
        if (isnan(v)) {
            best = INFINITY;
            at = -1;
        } else if (v > best || at == INT_MAX) {
            best = v;
            at = int(i);
        }
    }
    const float highest = simd_max(best);
    at = simd_min(best == highest ? at : INT_MAX);
    if (lane == 0) {
        values[sg] = highest;
        places[sg] = at;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid > 0)
        return;
    for (uint i = 1; i < 8; i++) {
        if (values[i] > values[0] || (values[i] == values[0] && places[i] < places[0])) {
            values[0] = values[i];
            places[0] = places[i];
        }
    }
    out[row] = places[0];
}

template [[host_name("argmax_f32")]] kernel decltype(argmax<float>) argmax<float>;
