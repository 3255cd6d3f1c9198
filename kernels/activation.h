// Activations and gates: what activate, gate and the epilogues of linear layers apply.
// Arithmetic is float. Nothing here takes NaN for a number.
#ifndef SMELT_KERNELS_ACTIVATION_H
#define SMELT_KERNELS_ACTIVATION_H

#include <metal_stdlib>
#include "abi/attributes.gen.h"
using namespace metal;

inline float sigmoid_of(float v) { return 1.0f / (1.0f + exp(-v)); }

inline float silu_of(float v) { return v / (1.0f + exp(-v)); }

// erf_of is the error function, which MSL lacks, within 5e-7: 1 - t·P(t)·exp(-x²) with
// t = 1/(1 + 0.3275911 x) and a P of degree four (Abramowitz and Stegun, "Handbook of
// Mathematical Functions", 1964, 7.1.26; 1.5e-7 in exact arithmetic).
inline float erf_of(float v) {
    const float x = fabs(v), t = 1.0f / (1.0f + 0.3275911f * x);
    const float sum =
        ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    const float e = 1.0f - sum * exp(-x * x);
    return v < 0.0f ? -e : e;
}

// Below -20 both forms of GELU are 0 in floats; the bound keeps -∞ from becoming NaN.
inline float gelu_range(float v) { return v < -20.0f ? -20.0f : v; }

// gelu_of is v·Φ(v), Φ being the normal distribution.
inline float gelu_of(float v) {
    const float x = gelu_range(v);
    return 0.5f * x * (1.0f + erf_of(x * 0.70710678f));
}

// gelu_tanh_of is its approximation by tanh (Hendrycks and Gimpel, "Gaussian Error Linear
// Units", 2016): (1 + tanh(u))/2 is the sigmoid of 2u, which keeps its precision where
// tanh nears -1.
inline float gelu_tanh_of(float v) {
    const float x = gelu_range(v);
    return x / (1.0f + exp(-1.5957691216f * (x + 0.044715f * x * x * x)));
}

// relu2_of is max(v, 0)² (So et al., "Primer", 2021).
inline float relu2_of(float v) {
    const float x = v < 0.0f ? 0.0f : v;
    return x * x;
}

// softplus_of is ln(1 + exp(v)), without overflow.
inline float softplus_of(float v) { return max(v, 0.0f) + log(1.0f + exp(-fabs(v))); }

// activation_of applies an activation by its number. The switch is gone from a pipeline,
// whose number is a function constant.
inline float activation_of(uint kind, float v) {
    switch (kind) {
    case SMELT_ACTIVATION_SILU:
        return silu_of(v);
    case SMELT_ACTIVATION_GELU:
        return gelu_of(v);
    case SMELT_ACTIVATION_GELU_TANH:
        return gelu_tanh_of(v);
    case SMELT_ACTIVATION_RELU2:
        return relu2_of(v);
    case SMELT_ACTIVATION_SIGMOID:
        return sigmoid_of(v);
    case SMELT_ACTIVATION_SOFTPLUS:
        return softplus_of(v);
    default:
        return v;
    }
}

// clamped_swiglu_of is the gate of gpt-oss (gpt_oss/torch/model.py, swiglu).
inline float clamped_swiglu_of(float a, float b) {
    const float g = a > 7.0f ? 7.0f : a;
    const float u = b > 7.0f ? 7.0f : (b < -7.0f ? -7.0f : b);
    return (u + 1.0f) * (g / (1.0f + exp(-1.702f * g)));
}

// gate_of returns activation(a) · b, or the gate formula of an activation that has its own
// (Shazeer, "GLU Variants Improve Transformer", 2020).
inline float gate_of(uint kind, float a, float b) {
    if (kind == SMELT_ACTIVATION_CLAMPED_SWIGLU)
        return clamped_swiglu_of(a, b);
    return activation_of(kind, a) * b;
}

#endif
