// The largest elements of a row, in order.
#include <metal_stdlib>
#include "abi/params.h"
using namespace metal;

constant uint most = 256;  // the largest k
constant uint tile = 1024; // elements that a threadgroup looks at between two barriers
constant uint room = 2048; // keys in threadgroup memory: the best so far, then candidates

// key_of orders elements by value, equals by the smaller index, as unsigned numbers:
// the bits of a float with the sign turned round, above the complement of the index. No
// element has the key 0. Both zeros are equal.
inline ulong key_of(float v, uint i) {
    const uint bits = as_type<uint>(v == 0.0f ? 0.0f : v);
    const uint ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
    return ulong(ordered) << 32 | ulong(~i);
}

// sort_down sorts n keys, a power of two, from the largest on (Batcher, "Sorting networks
// and their applications", 1968). Thread tid of 256 compares every 256th pair of a step.
inline void sort_down(threadgroup ulong *keys, uint n, uint tid) {
    for (uint size = 2; size <= n; size *= 2) {
        for (uint step = size / 2; step > 0; step /= 2) {
            for (uint pair = tid; pair < n / 2; pair += 256) {
                const uint low = 2 * pair - (pair & (step - 1)), high = low + step;
                const ulong a = keys[low], b = keys[high];
                if ((a < b) == ((low & size) == 0)) {
                    keys[low] = b;
                    keys[high] = a;
                }
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
    }
}

// top_k writes the k largest elements of each row and their indices, the largest first,
// equals by the smaller index. Where the row has fewer, -inf and -1 follow; a row that
// holds a NaN gives NaN and -1 throughout, as argmax does.
//
// Grid (rows, 1, 1) of 256 threads; k ≤ 256. One pass over memory: elements larger than the
// k-th best so far become candidates, and when the next tile might not fit, best and
// candidates are sorted together. In a row of random order k·ln(width/1024) elements are
// candidates after the first tile, so that two or three sorts suffice; a row in
// ascending order needs one per tile. The order in which threads append candidates does not
// affect the result, because no two keys are equal. Threadgroup memory: 16 KB of keys, their
// number and a mark for each simdgroup.
template <typename A>
kernel void top_k(device const A *x [[buffer(0)]],      // [rows, width], rows x_stride apart
                  device A *values [[buffer(1)]],       // [rows, k]
                  device int *indices [[buffer(2)]],    // [rows, k]
                  constant TopKParams &p [[buffer(3)]], //
                  uint row [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                  uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup ulong keys[room];
    threadgroup atomic_uint candidates;
    threadgroup uint marks[8];
    device const A *from = x + ulong(row) * p.x_stride;

    keys[tid] = 0;
    if (tid == 0)
        atomic_store_explicit(&candidates, 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    ulong least = 0; // the k-th best so far
    bool bad = false;
    for (uint first = 0; first < p.width; first += tile) {
        for (uint i = first + tid; i < min(first + tile, p.width); i += 256) {
            const float v = float(from[i]);
            bad = bad || isnan(v);
            const ulong key = key_of(v, i);
            if (key > least)
                keys[most + atomic_fetch_add_explicit(&candidates, 1u, memory_order_relaxed)] = key;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const uint used = most + atomic_load_explicit(&candidates, memory_order_relaxed);
        if (used > room - tile || first + tile >= p.width) {
            uint n = 2 * most;
            while (n < used)
                n *= 2;
            for (uint i = used + tid; i < n; i += 256)
                keys[i] = 0;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            sort_down(keys, n, tid);
            least = keys[p.k - 1];
            if (tid >= p.k)
                keys[tid] = 0;
            if (tid == 0)
                atomic_store_explicit(&candidates, 0u, memory_order_relaxed);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    const bool any = simd_any(bad);
    if (lane == 0)
        marks[sg] = any ? 1 : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid >= p.k)
        return;
    uint lost = 0;
    for (uint i = 0; i < 8; i++)
        lost |= marks[i];
    const ulong key = keys[tid];
    const uint index = ~uint(key & 0xffffffffu);
    const ulong to = ulong(row) * p.k + tid;
    if (lost != 0 || key == 0) {
        values[to] = A(lost != 0 ? NAN : -INFINITY);
        indices[to] = -1;
    } else {
        values[to] = from[index];
        indices[to] = int(index);
    }
}

template [[host_name("top_k_f32")]] kernel decltype(top_k<float>) top_k<float>;
