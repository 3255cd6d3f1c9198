// The gate that attention's results are multiplied by.
#ifndef SMELT_KERNELS_HEAD_GATE_H
#define SMELT_KERNELS_HEAD_GATE_H

#include <metal_stdlib>
#include "activation.h"
#include "paged.h"
#include "unroll.h"
using namespace metal;

// HeadGate is a token's gate: its activation, and its elements, one for each element of each head,
// or with by_head one for each head.
template <typename A> struct HeadGate {
    uint kind; // SMELT_ACTIVATION_NONE: there is no gate
    bool by_head;
    device const A *at;
};

// gate_row is the gate of a token, in the columns of a row from `from` on.
template <typename A>
inline HeadGate<A> gate_row(uint kind, bool by_head, device const A *gate, uint token, uint stride, uint from) {
    return {kind, by_head, gate + ulong(token) * stride + from};
}

// gated multiplies elements d to d + 3 of a query head by its gate.
template <typename A> inline float4 gated(HeadGate<A> gate, uint q_head, uint head, uint d, float4 v) {
    if (gate.kind == SMELT_ACTIVATION_NONE)
        return v;
    if (gate.by_head)
        return v * activation_of(gate.kind, float(gate.at[q_head]));
    const float4 g = load_four(gate.at, ulong(q_head) * head + d);
    UNROLL for (uint i = 0; i < 4; i++)
        v[i] *= activation_of(gate.kind, g[i]);
    return v;
}

#endif
