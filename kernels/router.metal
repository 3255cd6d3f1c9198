// The choice of experts.
#include <metal_stdlib>
#include "abi/params.h"
using namespace metal;

// Package ir has the formulas of the scores, which are numbered as there.
constant uint fc_score [[function_constant(0)]];
// The choice is by score + bias.
constant bool fc_bias [[function_constant(1)]];
// The weight of expert e is multiplied by gains[e].
constant bool fc_gains [[function_constant(2)]];
// Weights are divided by their sum, or by `floor` where that is larger.
constant bool fc_normalised [[function_constant(3)]];

constant bool has_bias = is_function_constant_defined(fc_bias) ? fc_bias : false;
constant bool has_gains = is_function_constant_defined(fc_gains) ? fc_gains : false;
constant bool is_normalised = is_function_constant_defined(fc_normalised) ? fc_normalised : false;

constant uint most_experts = 1024;
constant uint softmax_score = 1, sigmoid_score = 2, chosen_softmax_score = 3;

// score returns the score of an expert by its logit x; softmax divides exp(x - top) by sum. The
// score of chosen_softmax is the logit.
inline float score(float x, float top, float sum) {
    if (fc_score == softmax_score)
        return sum == 0.0f ? 0.0f : exp(x - top) / sum;
    if (fc_score == chosen_softmax_score)
        return x;
    if (fc_score == sigmoid_score)
        return 1.0f / (1.0f + exp(-x));
    const float e = exp(-abs(x));
    return precise::sqrt(max(x, 0.0f) + (e < 1e-4f ? e : log(1.0f + e)));
}

// router chooses p.chosen experts of each token by its logits times p.sharpness, the largest choice = score + bias
// first, equals by the smaller index, from the p.used_groups groups whose two best choices have the largest sums. It
// writes their weights and numbers; NaN and -1 for a token with a NaN among its choices.
//
// Grid (rows, 1, 1) of 32 threads, one simdgroup a token. Lane l keeps the best of the experts l,
// l + 32, …; after each choice, only the lane that had it looks again. Threadgroup memory: 4 KB of
// choices, which become NaN where an expert cannot be chosen any more.
template <typename A>
kernel void router(device const A *logits [[buffer(0)]],    // [rows, experts], rows p.stride apart
                   device A *weights [[buffer(1)]],         // [rows, chosen]
                   device int *experts [[buffer(2)]],       // [rows, chosen]
                   constant RouterParams &p [[buffer(3)]],  //
                   device const float *bias [[buffer(4)]],  // [experts]
                   device const float *gains [[buffer(5)]], // [experts]
                   uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float choice[most_experts];
    device const A *x = logits + ulong(row) * p.stride;
    float top = -INFINITY, sum = 0;
    if (fc_score == softmax_score) {
        for (uint i = lane; i < p.experts; i += 32)
            top = max(top, float(x[i]) * p.sharpness);
        top = simd_max(top);
        top = top == -INFINITY ? 0.0f : top; // -inf only gives zeros
        for (uint i = lane; i < p.experts; i += 32)
            sum += exp(float(x[i]) * p.sharpness - top);
        sum = simd_sum(sum);
    }
    bool bad = false;
    for (uint i = lane; i < p.experts; i += 32) {
        const float c = score(float(x[i]) * p.sharpness, top, sum) + (has_bias ? bias[i] : 0.0f);
        bad = bad || isnan(c) || isnan(float(x[i]));
        choice[i] = c;
    }
    bad = simd_any(bad);
    simdgroup_barrier(mem_flags::mem_threadgroup);

    if (p.groups > 1) { // lane g looks at group g
        const uint each = p.experts / p.groups;
        float best = -INFINITY, second = -INFINITY;
        for (uint i = 0; i < each && lane < p.groups; i++) {
            const float c = choice[lane * each + i];
            second = max(second, min(best, c));
            best = max(best, c);
        }
        const float both = each > 1 ? best + second : best;
        uint better = 0;
        for (uint g = 0; g < p.groups; g++) {
            const float other = simd_shuffle(both, ushort(g));
            better += other > both || (other == both && g < lane) ? 1 : 0;
        }
        for (uint i = 0; i < each && lane < p.groups && better >= p.used_groups; i++)
            choice[lane * each + i] = NAN;
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }

    uint own = UINT_MAX, at = UINT_MAX; // the lane's best, and what lane j chooses as the j-th
    for (uint j = 0; j < p.chosen; j++) {
        if (j == 0 || own == UINT_MAX - 1) {
            own = UINT_MAX;
            for (uint i = lane; i < p.experts; i += 32)
                own = !isnan(choice[i]) && (own == UINT_MAX || choice[i] > choice[own]) ? i : own;
        }
        const float best = own == UINT_MAX ? -INFINITY : choice[own], highest = simd_max(best);
        const uint winner = simd_min(own != UINT_MAX && best == highest ? own : UINT_MAX);
        at = lane == j ? winner : at;
        if (winner == own && winner != UINT_MAX) {
            choice[own] = NAN;
            own = UINT_MAX - 1;
        }
    }

    const bool mine = lane < p.chosen && at < p.experts && !bad;
    float w = mine ? score(float(x[at]) * p.sharpness, top, sum) : 0.0f;
    if (fc_score == chosen_softmax_score) {
        float highest = simd_max(mine ? w : -INFINITY);
        highest = highest == -INFINITY ? 0.0f : highest;
        w = mine ? exp(w - highest) : 0.0f;
        const float all = simd_sum(w);
        w = all == 0.0f ? 0.0f : w / all;
    }
    float factor = p.scale;
    if (is_normalised)
        factor /= max(simd_sum(w), p.floor);
    w *= factor;
    if (has_gains && mine)
        w *= gains[at];
    if (lane < p.chosen) {
        weights[ulong(row) * p.chosen + lane] = A(mine ? w : NAN);
        experts[ulong(row) * p.chosen + lane] = mine ? int(at) : -1;
    }
}

template [[host_name("router_f32")]] kernel decltype(router<float>) router<float>;
