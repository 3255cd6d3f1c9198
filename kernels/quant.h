// Weight formats: GGUF's block layouts and how a run of a row is decoded.
//
// Every kernel that reads matrix weights sees a row as a sequence of runs of 16
// elements, two groups of eight that share a scale and an offset each:
//
//     weight = scale · q + offset
//
// so that one decoder per format serves mat-vec products (which sum q·x first and
// scale once per group), mat-mat tiles and embedding lookups. Which elements run r
// of a row holds follows from how the format packs nibbles: the groups of eight
// start at run_low(r) and run_low(r) + gap:
//
//     plain types      16r                           gap  8
//     blocks of 32     32·(r/2)  + 8·(r%2)           gap 16
//     blocks of 256    64·(r/4)  + 8·(r%4)           gap 32
//
// Layouts are those of GGUF files (ggml-common.h); all are 2-byte aligned, so bytes
// are loaded in pairs. The type is a function constant, and specialisation leaves
// the one decoder that a pipeline needs.
#ifndef SMELT_KERNELS_QUANT_H
#define SMELT_KERNELS_QUANT_H

#include <metal_stdlib>
#include "params.h"
using namespace metal;

struct block_q8_0 {
    half d;
    int8_t qs[32];
};
struct block_q4_0 {
    half d;
    uint8_t qs[16]; // low nibbles: elements 0-15, high nibbles: 16-31
};
struct block_q4_1 {
    half d;
    half m;
    uint8_t qs[16];
};
struct block_q5_0 {
    half d;
    uint16_t qh[2]; // fifth bit of element i is bit i
    uint8_t qs[16];
};
struct block_q5_1 {
    half d;
    half m;
    uint16_t qh[2];
    uint8_t qs[16];
};
struct block_q2_k {
    uint8_t scales[16]; // per 16 elements: scale in the low, minimum in the high nibble
    uint8_t qs[64];
    half d;
    half dmin;
};
struct block_q3_k {
    uint8_t hmask[32]; // third bits; a clear bit subtracts 4
    uint8_t qs[64];
    uint8_t scales[12]; // 16 scales of 6 bits, less 32
    half d;
};
struct block_q4_k {
    half d;
    half dmin;
    uint8_t scales[12]; // 8 scales and 8 minima of 6 bits
    uint8_t qs[128];
};
struct block_q5_k {
    half d;
    half dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};
struct block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    half d;
};
struct bf16 {
    uint16_t bits; // the upper half of a float
};

static_assert(sizeof(block_q8_0) == 34, "GGUF layout");
static_assert(sizeof(block_q4_0) == 18, "GGUF layout");
static_assert(sizeof(block_q4_1) == 20, "GGUF layout");
static_assert(sizeof(block_q5_0) == 22, "GGUF layout");
static_assert(sizeof(block_q5_1) == 24, "GGUF layout");
static_assert(sizeof(block_q2_k) == 84, "GGUF layout");
static_assert(sizeof(block_q3_k) == 110, "GGUF layout");
static_assert(sizeof(block_q4_k) == 144, "GGUF layout");
static_assert(sizeof(block_q5_k) == 176, "GGUF layout");
static_assert(sizeof(block_q6_k) == 210, "GGUF layout");
static_assert(sizeof(bf16) == 2, "bfloat16 layout");

// Run is a decoded run: elements 0-7 belong to the first group, 8-15 to the second.
struct Run {
    float q[16];
    float scale[2];
    float offset[2];
};

inline uint block_elems(uint type) {
    switch (type) {
    case SMELT_F32:
    case SMELT_F16:
    case SMELT_BF16:
        return 1;
    case SMELT_Q8_0:
    case SMELT_Q4_0:
    case SMELT_Q4_1:
    case SMELT_Q5_0:
    case SMELT_Q5_1:
        return 32;
    default:
        return 256;
    }
}

inline uint block_bytes(uint type) {
    switch (type) {
    case SMELT_F32:
        return 4;
    case SMELT_F16:
        return 2;
    case SMELT_BF16:
        return 2;
    case SMELT_Q8_0:
        return sizeof(block_q8_0);
    case SMELT_Q4_0:
        return sizeof(block_q4_0);
    case SMELT_Q4_1:
        return sizeof(block_q4_1);
    case SMELT_Q5_0:
        return sizeof(block_q5_0);
    case SMELT_Q5_1:
        return sizeof(block_q5_1);
    case SMELT_Q2_K:
        return sizeof(block_q2_k);
    case SMELT_Q3_K:
        return sizeof(block_q3_k);
    case SMELT_Q4_K:
        return sizeof(block_q4_k);
    case SMELT_Q5_K:
        return sizeof(block_q5_k);
    case SMELT_Q6_K:
        return sizeof(block_q6_k);
    default:
        return 0;
    }
}

// row_bytes is the length of a row of k elements.
inline ulong row_bytes(uint type, uint k) { return ulong(k / block_elems(type)) * block_bytes(type); }

// run_low is the first element of run r of a row, by the elements of a block.
inline uint run_low(uint elems, uint r) {
    if (elems == 256)
        return (r >> 2) * 64 + (r & 3) * 8;
    if (elems == 32)
        return (r >> 1) * 32 + (r & 1) * 8;
    return r * 16;
}

// run_gap is the distance between the two groups of eight of a run.
inline uint run_gap(uint elems) { return elems == 256 ? 32 : elems == 32 ? 16 : 8; }

// element is weight i of a row of a plain type.
inline float element(device const float *row, uint i) { return row[i]; }
inline float element(device const half *row, uint i) { return float(row[i]); }
inline float element(device const bf16 *row, uint i) { return as_type<float>(uint(row[i].bits) << 16); }

// nibbles spreads eight bytes: low nibbles to q[0..7], high nibbles to q[8..15].
inline void nibbles(device const uint8_t *bytes, thread float *q) {
    device const ushort *pairs = (device const ushort *)bytes;
    uint8_t b[8];
    for (uint i = 0; i < 4; i++) {
        b[2 * i] = uint8_t(pairs[i]);
        b[2 * i + 1] = uint8_t(pairs[i] >> 8);
    }
    for (uint i = 0; i < 8; i++) {
        q[i] = float(int(b[i] & 15));
        q[i + 8] = float(int(b[i] >> 4));
    }
}

inline Run decode(device const block_q8_0 &b, uint r) {
    Run w;
    for (uint i = 0; i < 8; i++) {
        w.q[i] = float(b.qs[8 * r + i]);
        w.q[i + 8] = float(b.qs[8 * r + i + 16]);
    }
    w.scale[0] = w.scale[1] = float(b.d);
    w.offset[0] = w.offset[1] = 0.0f;
    return w;
}

inline Run decode(device const block_q4_0 &b, uint r) {
    Run w;
    nibbles(b.qs + 8 * r, w.q);
    w.scale[0] = w.scale[1] = float(b.d);
    w.offset[0] = w.offset[1] = -8.0f * float(b.d);
    return w;
}

inline Run decode(device const block_q4_1 &b, uint r) {
    Run w;
    nibbles(b.qs + 8 * r, w.q);
    w.scale[0] = w.scale[1] = float(b.d);
    w.offset[0] = w.offset[1] = float(b.m);
    return w;
}

// fifth_bits adds 16 where the fifth bit of an element of run r is set.
inline void fifth_bits(device const uint16_t *qh, uint r, thread float *q) {
    const uint low = uint(qh[0]) >> (8 * r), high = uint(qh[1]) >> (8 * r);
    for (uint i = 0; i < 8; i++) {
        q[i] += float(((low >> i) & 1u) << 4);
        q[i + 8] += float(((high >> i) & 1u) << 4);
    }
}

inline Run decode(device const block_q5_0 &b, uint r) {
    Run w;
    nibbles(b.qs + 8 * r, w.q);
    fifth_bits(b.qh, r, w.q);
    w.scale[0] = w.scale[1] = float(b.d);
    w.offset[0] = w.offset[1] = -16.0f * float(b.d);
    return w;
}

inline Run decode(device const block_q5_1 &b, uint r) {
    Run w;
    nibbles(b.qs + 8 * r, w.q);
    fifth_bits(b.qh, r, w.q);
    w.scale[0] = w.scale[1] = float(b.d);
    w.offset[0] = w.offset[1] = float(b.m);
    return w;
}

// In blocks of 256, r/4 names 64 elements and r%4 eight of their first and eight of
// their second 32.

// crumbs spreads the bit pairs at `shift` and `shift + 2` of eight bytes.
inline void crumbs(device const uint8_t *bytes, uint shift, thread float *q) {
    for (uint i = 0; i < 8; i++) {
        const uint w = uint(bytes[i]) >> shift;
        q[i] = float(w & 3u);
        q[i + 8] = float((w >> 2) & 3u);
    }
}

inline Run decode(device const block_q2_k &b, uint r) {
    const uint part = r >> 2, g = r & 3; // part: 64 elements, two bit pairs of 32 bytes
    Run w;
    crumbs(b.qs + (part >> 1) * 32 + g * 8, (part & 1) * 4, w.q);
    const uint first = b.scales[4 * part + (g >> 1)], second = b.scales[4 * part + 2 + (g >> 1)];
    const float d = float(b.d), dmin = float(b.dmin);
    w.scale[0] = d * float(first & 15u);
    w.scale[1] = d * float(second & 15u);
    w.offset[0] = -dmin * float(first >> 4);
    w.offset[1] = -dmin * float(second >> 4);
    return w;
}

// scale_q3 is scale i of 16: its low four bits are a nibble of the first eight bytes,
// its high two bits one of four pairs in the last four bytes.
inline float scale_q3(device const uint8_t *scales, uint i) {
    const uint low = i < 8 ? scales[i] & 15u : uint(scales[i - 8]) >> 4;
    const uint high = (uint(scales[8 + (i & 3)]) >> (2 * (i >> 2))) & 3u;
    return float(int(low | high << 4) - 32);
}

inline Run decode(device const block_q3_k &b, uint r) {
    const uint part = r >> 2, g = r & 3;
    Run w;
    crumbs(b.qs + (part >> 1) * 32 + g * 8, (part & 1) * 4, w.q);
    for (uint i = 0; i < 8; i++) {
        const uint bits = uint(b.hmask[g * 8 + i]) >> (2 * part);
        w.q[i] += float((bits & 1u) << 2);
        w.q[i + 8] += float((bits & 2u) << 1);
    }
    const float d = float(b.d);
    w.scale[0] = d * scale_q3(b.scales, 4 * part + (g >> 1));
    w.scale[1] = d * scale_q3(b.scales, 4 * part + 2 + (g >> 1));
    w.offset[0] = -4.0f * w.scale[0];
    w.offset[1] = -4.0f * w.scale[1];
    return w;
}

// scale_min_q4 is scale (x) and minimum (y) number i of 8, six bits each: the first
// four lie whole in bytes i and i + 4, the others are split over three bytes.
inline float2 scale_min_q4(device const uint8_t *s, uint i) {
    if (i < 4)
        return float2(float(s[i] & 63u), float(s[i + 4] & 63u));
    const uint low = s[i + 4];
    const uint scale = (low & 15u) | (uint(s[i - 4]) >> 6) << 4;
    const uint minimum = low >> 4 | (uint(s[i]) >> 6) << 4;
    return float2(float(scale), float(minimum));
}

inline void scales_q4(device const uint8_t *s, uint part, float d, float dmin, thread Run &w) {
    const float2 first = scale_min_q4(s, 2 * part), second = scale_min_q4(s, 2 * part + 1);
    w.scale[0] = d * first.x;
    w.scale[1] = d * second.x;
    w.offset[0] = -dmin * first.y;
    w.offset[1] = -dmin * second.y;
}

inline Run decode(device const block_q4_k &b, uint r) {
    const uint part = r >> 2, g = r & 3;
    Run w;
    nibbles(b.qs + part * 32 + g * 8, w.q);
    scales_q4(b.scales, part, float(b.d), float(b.dmin), w);
    return w;
}

inline Run decode(device const block_q5_k &b, uint r) {
    const uint part = r >> 2, g = r & 3;
    Run w;
    nibbles(b.qs + part * 32 + g * 8, w.q);
    for (uint i = 0; i < 8; i++) {
        const uint bits = uint(b.qh[g * 8 + i]) >> (2 * part);
        w.q[i] += float((bits & 1u) << 4);
        w.q[i + 8] += float((bits & 2u) << 3);
    }
    scales_q4(b.scales, part, float(b.d), float(b.dmin), w);
    return w;
}

inline Run decode(device const block_q6_k &b, uint r) {
    const uint part = r >> 2, g = r & 3;                        // 128 elements share 64 bytes of ql and 32 of qh:
    const uint half_block = part >> 1, nibble = (part & 1) * 4; // part 0 and 1 of them are low and high nibbles
    device const uint8_t *ql = b.ql + half_block * 64 + g * 8;
    device const uint8_t *qh = b.qh + half_block * 32 + g * 8;
    Run w;
    for (uint i = 0; i < 8; i++) {
        const uint high = uint(qh[i]) >> nibble;
        w.q[i] = float(((uint(ql[i]) >> nibble) & 15u) | (high & 3u) << 4);
        w.q[i + 8] = float(((uint(ql[i + 32]) >> nibble) & 15u) | (high & 12u) << 2);
    }
    const float d = float(b.d);
    w.scale[0] = d * float(b.scales[4 * part + (g >> 1)]);
    w.scale[1] = d * float(b.scales[4 * part + 2 + (g >> 1)]);
    w.offset[0] = -32.0f * w.scale[0];
    w.offset[1] = -32.0f * w.scale[1];
    return w;
}

// expand_plain writes elements 16r … of a row of k; those past its end are zero.
template <typename T> inline void expand_plain(device const T *row, uint r, uint k, thread float *w) {
    for (uint i = 0; i < 16; i++)
        w[i] = 16 * r + i < k ? element(row, 16 * r + i) : 0.0f;
}

template <typename B, uint E> inline void expand_block(device const uchar *row, uint r, thread float *w) {
    const Run run = decode(((device const B *)row)[r / (E / 16)], r % (E / 16));
    for (uint i = 0; i < 8; i++) {
        w[i] = run.scale[0] * run.q[i] + run.offset[0];
        w[i + 8] = run.scale[1] * run.q[i + 8] + run.offset[1];
    }
}

// expand writes the 16 weights of run r of a row of k elements; 16r must be below k.
inline void expand(uint type, device const uchar *row, uint r, uint k, thread float *w) {
    switch (type) {
    case SMELT_F32:
        expand_plain((device const float *)row, r, k, w);
        break;
    case SMELT_F16:
        expand_plain((device const half *)row, r, k, w);
        break;
    case SMELT_BF16:
        expand_plain((device const bf16 *)row, r, k, w);
        break;
    case SMELT_Q8_0:
        expand_block<block_q8_0, 32>(row, r, w);
        break;
    case SMELT_Q4_0:
        expand_block<block_q4_0, 32>(row, r, w);
        break;
    case SMELT_Q4_1:
        expand_block<block_q4_1, 32>(row, r, w);
        break;
    case SMELT_Q5_0:
        expand_block<block_q5_0, 32>(row, r, w);
        break;
    case SMELT_Q5_1:
        expand_block<block_q5_1, 32>(row, r, w);
        break;
    case SMELT_Q2_K:
        expand_block<block_q2_k, 256>(row, r, w);
        break;
    case SMELT_Q3_K:
        expand_block<block_q3_k, 256>(row, r, w);
        break;
    case SMELT_Q4_K:
        expand_block<block_q4_k, 256>(row, r, w);
        break;
    case SMELT_Q5_K:
        expand_block<block_q5_k, 256>(row, r, w);
        break;
    case SMELT_Q6_K:
        expand_block<block_q6_k, 256>(row, r, w);
        break;
    default:
        break;
    }
}

#endif
