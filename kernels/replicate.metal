// Copies of KV heads, one per query head, for attention by plain matrix products.
// Fused attention maps query heads to KV heads instead; the copies serve targets and graphs
// without it.
#include <metal_stdlib>
#include "abi/params.h"
using namespace metal;

// A place in the result counted in digits, so that a thread which strides through it
// divides once, in 32 bits, whatever the result's size: element of a head, copy of the
// head, and the head's row in the input.
struct Digits {
    uint element, copy;
    ulong row;
};

inline Digits digits_of(uint e, constant RepeatParams &p) {
    Digits d;
    d.element = e % p.head;
    d.copy = e / p.head % p.repeats;
    d.row = e / p.head / p.repeats;
    return d;
}

inline Digits sum(Digits a, Digits b, constant RepeatParams &p) {
    a.element += b.element;
    a.copy += b.copy;
    a.row += b.row;
    if (a.element >= p.head) {
        a.element -= p.head;
        a.copy++;
    }
    if (a.copy >= p.repeats) {
        a.copy -= p.repeats;
        a.row++;
    }
    return a;
}

inline ulong elements_of(constant RepeatParams &p) { return ulong(p.head) * p.repeats * p.kv_heads * p.tokens; }

// repeat_kv copies every KV head `repeats` times in a row, so that query head h finds
// its own copy at h. It serves K or V, as the K-only and V-only kernels of ROCmForge do.
//
// Grid: up to 2^20 groups of 256 threads in x, which stride over elements counted in
// 64 bits. No threadgroup memory.
template <typename A>
kernel void repeat_kv(device const A *x [[buffer(0)]],        // [tokens, kv_heads, head]
                      device A *out [[buffer(1)]],            // [tokens, kv_heads·repeats, head]
                      constant RepeatParams &p [[buffer(2)]], //
                      uint position [[thread_position_in_grid]], uint threads [[threads_per_grid]]) {
    const ulong count = elements_of(p);
    const Digits step = digits_of(threads, p);
    Digits at = digits_of(position, p);
    for (ulong e = position; e < count; e += threads) {
        out[e] = x[at.row * p.head + at.element];
        at = sum(at, step, p);
    }
}

// repeat_kv_pair is repeat_kv for K and V of one layer in one launch, as in ROCmForge's
// fused kernel: they have one shape, so a place is worked out once for both.
//
// Grid: up to 2^20 groups of 256 threads in x, which stride over elements counted in
// 64 bits. No threadgroup memory.
template <typename A>
kernel void repeat_kv_pair(device const A *k [[buffer(0)]],        // [tokens, kv_heads, head]
                           device const A *v [[buffer(1)]],        // [tokens, kv_heads, head]
                           device A *k_out [[buffer(2)]],          // [tokens, kv_heads·repeats, head]
                           device A *v_out [[buffer(3)]],          // [tokens, kv_heads·repeats, head]
                           constant RepeatParams &p [[buffer(4)]], //
                           uint position [[thread_position_in_grid]], uint threads [[threads_per_grid]]) {
    const ulong count = elements_of(p);
    const Digits step = digits_of(threads, p);
    Digits at = digits_of(position, p);
    for (ulong e = position; e < count; e += threads) {
        const ulong from = at.row * p.head + at.element;
        k_out[e] = k[from];
        v_out[e] = v[from];
        at = sum(at, step, p);
    }
}

template [[host_name("repeat_kv_f32")]] kernel decltype(repeat_kv<float>) repeat_kv<float>;
template [[host_name("repeat_kv_f16")]] kernel decltype(repeat_kv<half>) repeat_kv<half>;
template [[host_name("repeat_kv_bf16")]] kernel decltype(repeat_kv<bfloat>) repeat_kv<bfloat>;
template [[host_name("repeat_kv_pair_f32")]] kernel decltype(repeat_kv_pair<float>) repeat_kv_pair<float>;
template [[host_name("repeat_kv_pair_f16")]] kernel decltype(repeat_kv_pair<half>) repeat_kv_pair<half>;
template [[host_name("repeat_kv_pair_bf16")]] kernel decltype(repeat_kv_pair<bfloat>) repeat_kv_pair<bfloat>;
