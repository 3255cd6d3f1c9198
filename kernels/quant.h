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
// Layouts are those of GGUF files (ggml-common.h). Lanes load the bytes of a run in
// aligned pieces, neighbours next to each other: of four bytes where a block's size is
// a multiple of four and rows therefore start at such addresses, else of two. What
// packs several elements into a byte is taken apart four bytes at a time. The type is
// a function constant, and specialisation leaves the one decoder that a pipeline needs.
#ifndef SMELT_KERNELS_QUANT_H
#define SMELT_KERNELS_QUANT_H

#include <metal_stdlib>
#include "unroll.h"
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

// has_offset tells whether weights of a type have offsets.
inline bool has_offset(uint type) { return block_elems(type) != 1 && type != SMELT_Q8_0; }

// element is weight i of a row of a plain type.
inline float element(device const float *row, uint i) { return row[i]; }
inline float element(device const half *row, uint i) { return float(row[i]); }
inline float element(device const bf16 *row, uint i) { return as_type<float>(uint(row[i].bits) << 16); }

// Eight are eight bytes of a block, which are masked and shifted together.
struct Eight {
    uint low;
    uint high;
};

// pairs8 and words8 load eight bytes, words8 where all blocks of the format start at
// multiples of four.
inline Eight pairs8(device const uint8_t *bytes) {
    device const ushort *p = (device const ushort *)bytes;
    Eight e;
    e.low = uint(p[0]) | uint(p[1]) << 16;
    e.high = uint(p[2]) | uint(p[3]) << 16;
    return e;
}
inline Eight words8(device const uint8_t *bytes) {
    device const uint *p = (device const uint *)bytes;
    Eight e;
    e.low = p[0];
    e.high = p[1];
    return e;
}

// field shifts every byte right and masks it: mask holds the same byte four times.
inline Eight field(Eight e, uint shift, uint mask) {
    Eight f;
    f.low = e.low >> shift & mask;
    f.high = e.high >> shift & mask;
    return f;
}

// above sets bits of every byte from those of another one, shifted left.
inline Eight above(Eight e, Eight bits, uint shift) {
    e.low |= bits.low << shift;
    e.high |= bits.high << shift;
    return e;
}

// spread puts bit i of a byte into byte i.
inline Eight spread(uint bits) {
    Eight e;
    e.low = (bits & 15u) * 0x00204081u & 0x01010101u;
    e.high = (bits >> 4 & 15u) * 0x00204081u & 0x01010101u;
    return e;
}

// convert turns eight bytes into numbers, of which convert_signed takes the top bit for
// a sign.
inline void convert(Eight e, thread float *q) {
    UNROLL for (uint i = 0; i < 4; i++) {
        q[i] = float(int(e.low >> (8 * i) & 255u));
        q[i + 4] = float(int(e.high >> (8 * i) & 255u));
    }
}
inline void convert_signed(Eight e, thread float *q) {
    UNROLL for (uint i = 0; i < 4; i++) {
        q[i] = float(int(e.low << (24 - 8 * i)) >> 24);
        q[i + 4] = float(int(e.high << (24 - 8 * i)) >> 24);
    }
}

// nibbles writes the low nibbles to q[0..7], the high ones to q[8..15]; fifth and
// sixth are the bits on top of each.
inline void nibbles(Eight e, thread float *q) {
    convert(field(e, 0, 0x0f0f0f0fu), q);
    convert(field(e, 4, 0x0f0f0f0fu), q + 8);
}
inline void nibbles(Eight e, Eight fifth, Eight sixth, thread float *q) {
    convert(above(field(e, 0, 0x0f0f0f0fu), fifth, 4), q);
    convert(above(field(e, 4, 0x0f0f0f0fu), sixth, 4), q + 8);
}

inline void same(float scale, float offset, thread Run &w) {
    w.scale[0] = w.scale[1] = scale;
    w.offset[0] = w.offset[1] = offset;
}

inline Run decode(device const block_q8_0 &b, uint r) {
    Run w;
    convert_signed(pairs8((device const uint8_t *)b.qs + 8 * r), w.q);
    convert_signed(pairs8((device const uint8_t *)b.qs + 8 * r + 16), w.q + 8);
    same(float(b.d), 0.0f, w);
    return w;
}

inline Run decode(device const block_q4_0 &b, uint r) {
    Run w;
    nibbles(pairs8(b.qs + 8 * r), w.q);
    same(float(b.d), -8.0f * float(b.d), w);
    return w;
}

inline Run decode(device const block_q4_1 &b, uint r) {
    Run w;
    nibbles(words8(b.qs + 8 * r), w.q);
    same(float(b.d), float(b.m), w);
    return w;
}

inline Run decode(device const block_q5_0 &b, uint r) {
    Run w;
    nibbles(pairs8(b.qs + 8 * r), spread(uint(b.qh[0]) >> (8 * r)), spread(uint(b.qh[1]) >> (8 * r)), w.q);
    same(float(b.d), -16.0f * float(b.d), w);
    return w;
}

inline Run decode(device const block_q5_1 &b, uint r) {
    Run w;
    nibbles(words8(b.qs + 8 * r), spread(uint(b.qh[0]) >> (8 * r)), spread(uint(b.qh[1]) >> (8 * r)), w.q);
    same(float(b.d), float(b.m), w);
    return w;
}

// In blocks of 256, r/4 names 64 elements and r%4 eight of their first and eight of
// their second 32. Neighbouring lanes differ in r, so nothing here branches on it.

inline Run decode(device const block_q2_k &b, uint r) {
    const uint part = r >> 2, g = r & 3; // part: 64 elements, two bit pairs of 32 bytes
    const uint shift = (part & 1) * 4;
    const Eight e = words8(b.qs + (part >> 1) * 32 + g * 8);
    Run w;
    convert(field(e, shift, 0x03030303u), w.q);
    convert(field(e, shift + 2, 0x03030303u), w.q + 8);
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
    const uint low = uint(scales[i & 7]) >> (i >> 3) * 4 & 15u;
    const uint high = uint(scales[8 + (i & 3)]) >> (i >> 2) * 2 & 3u;
    return float(int(low | high << 4) - 32);
}

inline Run decode(device const block_q3_k &b, uint r) {
    const uint part = r >> 2, g = r & 3;
    const uint shift = (part & 1) * 4;
    const Eight e = pairs8(b.qs + (part >> 1) * 32 + g * 8), top = pairs8(b.hmask + g * 8);
    Run w;
    convert(above(field(e, shift, 0x03030303u), field(top, 2 * part, 0x01010101u), 2), w.q);
    convert(above(field(e, shift + 2, 0x03030303u), field(top, 2 * part + 1, 0x01010101u), 2), w.q + 8);
    const float d = float(b.d);
    w.scale[0] = d * scale_q3(b.scales, 4 * part + (g >> 1));
    w.scale[1] = d * scale_q3(b.scales, 4 * part + 2 + (g >> 1));
    w.offset[0] = -4.0f * w.scale[0];
    w.offset[1] = -4.0f * w.scale[1];
    return w;
}

// scales_q4 unpacks scales and minima 2·part and 2·part+1 of 8, six bits each, two
// bytes at a time: the first four of each lie whole in bytes 0-3 and 4-7; of the
// others, the low four bits are the nibbles of bytes 8-11 and the high two those on
// top of bytes 0-7.
inline void scales_q4(device const uint8_t *s, uint part, float d, float dmin, thread Run &w) {
    device const ushort *pairs = (device const ushort *)s;
    const uint a = pairs[part & 1], b = pairs[2 + (part & 1)], c = pairs[part + 2];
    const bool split = part >= 2;
    const uint scale = select(a & 0x3f3fu, (c & 0x0f0fu) | (a >> 2 & 0x3030u), split);
    const uint minimum = select(c & 0x3f3fu, (c >> 4 & 0x0f0fu) | (b >> 2 & 0x3030u), split);
    w.scale[0] = d * float(scale & 255u);
    w.scale[1] = d * float(scale >> 8);
    w.offset[0] = -dmin * float(minimum & 255u);
    w.offset[1] = -dmin * float(minimum >> 8);
}

inline Run decode(device const block_q4_k &b, uint r) {
    const uint part = r >> 2, g = r & 3;
    Run w;
    nibbles(words8(b.qs + part * 32 + g * 8), w.q);
    scales_q4(b.scales, part, float(b.d), float(b.dmin), w);
    return w;
}

inline Run decode(device const block_q5_k &b, uint r) {
    const uint part = r >> 2, g = r & 3;
    const Eight top = words8(b.qh + g * 8);
    Run w;
    nibbles(words8(b.qs + part * 32 + g * 8), field(top, 2 * part, 0x01010101u), field(top, 2 * part + 1, 0x01010101u),
            w.q);
    scales_q4(b.scales, part, float(b.d), float(b.dmin), w);
    return w;
}

inline Run decode(device const block_q6_k &b, uint r) {
    const uint part = r >> 2, g = r & 3;                       // 128 elements share 64 bytes of ql and 32 of qh:
    const uint half_block = part >> 1, shift = (part & 1) * 4; // part 0 and 1 of them are low and high nibbles
    device const uint8_t *ql = b.ql + half_block * 64 + g * 8;
    const Eight top = pairs8(b.qh + half_block * 32 + g * 8);
    Run w;
    convert(above(field(pairs8(ql), shift, 0x0f0f0f0fu), field(top, shift, 0x03030303u), 4), w.q);
    convert(above(field(pairs8(ql + 32), shift, 0x0f0f0f0fu), field(top, shift + 2, 0x03030303u), 4), w.q + 8);
    const float d = float(b.d);
    w.scale[0] = d * float(b.scales[4 * part + (g >> 1)]);
    w.scale[1] = d * float(b.scales[4 * part + 2 + (g >> 1)]);
    w.offset[0] = -32.0f * w.scale[0];
    w.offset[1] = -32.0f * w.scale[1];
    return w;
}

template <typename T> inline Run decode_plain(device const T *row, uint r) {
    Run w;
    UNROLL for (uint i = 0; i < 16; i++)
        w.q[i] = element(row, 16 * r + i);
    same(1.0f, 0.0f, w);
    return w;
}

template <typename B, uint E> inline Run decode_block(device const uchar *row, uint r) {
    return decode(((device const B *)row)[r / (E / 16)], r % (E / 16));
}

// SMELT_DECODES tells whether there is a decoder of a type: of a library of one kernel
// those of its own types.
#if defined(SMELT_FC_TYPE) || defined(SMELT_FC_TYPE0)
#define SMELT_DECODES(type)                                                                                            \
    (type == SMELT_FC_TYPE || type == SMELT_FC_TYPE0 || type == SMELT_FC_TYPE1 || type == SMELT_FC_TYPE2)
#else
#define SMELT_DECODES(type) 1
#endif

// decode_run decodes run r of a row, all of whose elements exist.
inline Run decode_run(uint type, device const uchar *row, uint r) {
    switch (type) {
#if SMELT_DECODES(SMELT_F32)
    case SMELT_F32:
        return decode_plain((device const float *)row, r);
#endif
#if SMELT_DECODES(SMELT_F16)
    case SMELT_F16:
        return decode_plain((device const half *)row, r);
#endif
#if SMELT_DECODES(SMELT_BF16)
    case SMELT_BF16:
        return decode_plain((device const bf16 *)row, r);
#endif
#if SMELT_DECODES(SMELT_Q8_0)
    case SMELT_Q8_0:
        return decode_block<block_q8_0, 32>(row, r);
#endif
#if SMELT_DECODES(SMELT_Q4_0)
    case SMELT_Q4_0:
        return decode_block<block_q4_0, 32>(row, r);
#endif
#if SMELT_DECODES(SMELT_Q4_1)
    case SMELT_Q4_1:
        return decode_block<block_q4_1, 32>(row, r);
#endif
#if SMELT_DECODES(SMELT_Q5_0)
    case SMELT_Q5_0:
        return decode_block<block_q5_0, 32>(row, r);
#endif
#if SMELT_DECODES(SMELT_Q5_1)
    case SMELT_Q5_1:
        return decode_block<block_q5_1, 32>(row, r);
#endif
#if SMELT_DECODES(SMELT_Q2_K)
    case SMELT_Q2_K:
        return decode_block<block_q2_k, 256>(row, r);
#endif
#if SMELT_DECODES(SMELT_Q3_K)
    case SMELT_Q3_K:
        return decode_block<block_q3_k, 256>(row, r);
#endif
#if SMELT_DECODES(SMELT_Q4_K)
    case SMELT_Q4_K:
        return decode_block<block_q4_k, 256>(row, r);
#endif
#if SMELT_DECODES(SMELT_Q5_K)
    case SMELT_Q5_K:
        return decode_block<block_q5_k, 256>(row, r);
#endif
#if SMELT_DECODES(SMELT_Q6_K)
    case SMELT_Q6_K:
        return decode_block<block_q6_k, 256>(row, r);
#endif
    default:
        break;
    }
    Run none;
    same(0.0f, 0.0f, none);
    return none;
}

// plain_element is weight i of a row of a plain type.
inline float plain_element(uint type, device const uchar *row, uint i) {
    switch (type) {
    case SMELT_F32:
        return element((device const float *)row, i);
    case SMELT_F16:
        return element((device const half *)row, i);
    default:
        return element((device const bf16 *)row, i);
    }
}

// expand writes the 16 weights of run r of a row, all of which exist.
inline void expand(uint type, device const uchar *row, uint r, thread float *w) {
    const Run run = decode_run(type, row, r);
    if (block_elems(type) == 1) {
        UNROLL for (uint i = 0; i < 16; i++)
            w[i] = run.q[i];
        return;
    }
    UNROLL for (uint i = 0; i < 8; i++) {
        w[i] = run.scale[0] * run.q[i] + run.offset[0];
        w[i + 8] = run.scale[1] * run.q[i + 8] + run.offset[1];
    }
}

// expand_end does it for a run that may reach past the end of a row of k elements,
// or lie there: what is past the end is zero.
inline void expand_end(uint type, device const uchar *row, uint r, uint k, thread float *w) {
    if (16 * r + 16 <= k) {
        expand(type, row, r, w);
        return;
    }
    UNROLL for (uint i = 0; i < 16; i++)
        w[i] = block_elems(type) == 1 && 16 * r + i < k ? plain_element(type, row, 16 * r + i) : 0.0f;
}

#endif
