// Weight formats: GGUF's block layouts and MLX4 and MLX8, and the decoders of a run of a row.
//
// Kernels that read matrix weights treat a row as a sequence of runs of 16
// elements: two groups of eight, each with a scale and an offset:
//
//     weight = scale · place · q + offset
//
// so that one decoder per format serves mat-vec products (which sum q·x first and
// scale once per group), mat-mat tiles and embedding lookups. The elements of run r
// of a row depend on the format's packing of nibbles: the groups of eight
// start at run_low(r) and run_low(r) + gap:
//
//     plain types      16r                           gap  8
//     blocks of 32, 64 32·(r/2)  + 8·(r%2)           gap 16
//     blocks of 256    64·(r/4)  + 8·(r%4)           gap 32
//
// Layouts are those of GGUF files (ggml-common.h), or lines, with scales apart from codes,
// for the same types. Lanes load the bytes of a run in aligned pieces, neighbouring lanes
// neighbouring pieces: the size of a piece is the largest power of two up to eight that
// divides the block size, to which rows are aligned; in lines it is eight. Codes packed into
// 16 bits are masked and converted without a shift: q is then a multiple of the code, which
// `place` corrects. Only bits stored apart from the rest of a code are shifted, four bytes at
// a time. The type is a function constant; specialisation leaves only the decoder that a
// pipeline needs.
#ifndef SMELT_KERNELS_QUANT_H
#define SMELT_KERNELS_QUANT_H

#include <metal_stdlib>
#include "unroll.h"
#include "abi/types.gen.h"
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
struct block_mxfp4 {
    uint8_t e; // the scale is 2^(e - 128), of values that are twice E2M1's
    uint8_t qs[16];
};
struct block_iq4_nl {
    half d;
    uint8_t qs[16];
};
struct block_iq4_xs {
    half d;
    uint16_t scales_h; // upper two bits of eight scales of 6 bits, less 32
    uint8_t scales_l[4];
    uint8_t qs[128]; // 16 for each 32 elements
};
// A group of 64 elements as MLX packs them, with the halves of each 32 as Q4_1 has them.
struct block_mlx4 {
    half d;
    half m;
    uint8_t qs[32];
};
struct block_mlx8 {
    half d;
    half m;
    uint8_t qs[64];
};

// Lines, a flag of a type's number: the codes of all blocks of a weight come first, in whole
// lines of 16 bytes, then their scales in the same order. Eight bytes of codes are one load.
// kernels.PutLines writes them. A type with lines has codes_<type> and scales_<type> besides
// block_<type>.

struct codes_q8_0 {
    int8_t qs[32];
};
struct codes_q4_0 {
    uint8_t qs[16];
};
using codes_mxfp4 = codes_q4_0;
using codes_iq4_nl = codes_q4_0;
struct codes_q2_k {
    uint8_t qs[64];
};
struct codes_q3_k {
    uint8_t hmask[32];
    uint8_t qs[64];
};
struct codes_q4_k {
    uint8_t qs[128];
};
struct codes_q5_k {
    uint8_t qh[32];
    uint8_t qs[128];
};
struct codes_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
};
struct scales_q4_0 {
    half d;
};
using scales_q8_0 = scales_q4_0;
using scales_iq4_nl = scales_q4_0;
struct scales_q2_k {
    uint8_t scales[16];
    half d;
    half dmin;
};
struct scales_q3_k {
    uint8_t scales[12];
    half d;
};
struct scales_q4_k {
    half d;
    half dmin;
    uint8_t scales[12];
};
using scales_q5_k = scales_q4_k;
struct scales_q6_k {
    int8_t scales[16];
    half d;
};
struct scales_mxfp4 {
    uint8_t e;
};

struct bf16 {
    uint16_t bits; // the upper half of a float
};

// The plain types, whose block is an element.
using block_f32 = float;
using block_f16 = half;
using block_bf16 = bf16;

// Run is a decoded run: elements 0-7 belong to the first group, 8-15 to the second.
struct Run {
    float4 q[4];
    float scale[2];
    float offset[2];
};

// run_low is the first element of run r of a row, by the elements of a block.
inline uint run_low(uint elems, uint r) {
    if (elems == 256)
        return (r >> 2) * 64 + (r & 3) * 8;
    if (elems != 1)
        return (r >> 1) * 32 + (r & 1) * 8;
    return r * 16;
}

// run_gap is the distance between the two groups of eight of a run.
inline uint run_gap(uint elems) { return elems == 256 ? 32 : elems != 1 ? 16 : 8; }

// load4 reads four numbers from wherever one may stand.
inline float4 load4(device const float *from) { return *(device const packed_float4 *)from; }
inline float4 load4(device const half *from) { return float4(half4(*(device const packed_half4 *)from)); }
inline float4 load4(device const bfloat *from) { return float4(bfloat4(*(device const packed_bfloat4 *)from)); }

// element is weight i of a row of a plain type.
inline float element(device const float *row, uint i) { return row[i]; }
inline float element(device const half *row, uint i) { return float(row[i]); }
inline float element(device const bf16 *row, uint i) { return as_type<float>(ushort2(0, row[i].bits)); }

// four are weights i to i+3.
inline float4 four(device const float *row, uint i) { return load4(row + i); }
inline float4 four(device const half *row, uint i) { return load4(row + i); }
inline float4 four(device const bf16 *row, uint i) {
    return float4(element(row, i), element(row, i + 1), element(row, i + 2), element(row, i + 3));
}

// eight loads eight bytes, which are masked and shifted together, from a multiple of Align.
template <uint Align> inline uint2 eight(device const uint8_t *bytes) {
    if (Align == 8)
        return *(device const uint2 *)bytes;
    if (Align == 4)
        return uint2(((device const uint *)bytes)[0], ((device const uint *)bytes)[1]);
    if (Align == 1)
        return uint2(as_type<uint>(uchar4(*(device const packed_uchar4 *)bytes)),
                     as_type<uint>(uchar4(*(device const packed_uchar4 *)(bytes + 4))));
    device const ushort *p = (device const ushort *)bytes;
    return as_type<uint2>(ushort4(p[0], p[1], p[2], p[3]));
}

// signed4 converts four bytes, which the load takes apart.
template <uint Align> inline float4 signed4(device const int8_t *bytes) {
    if (Align == 8)
        return float4(*(device const char4 *)bytes);
    return float4(char4(*(device const packed_char4 *)bytes));
}

// spread puts bit i of a byte into bit 4 of byte i.
inline uint2 spread(uint bits) {
    return uint2((bits & 0x0fu) * 0x02040810u & 0x10101010u, (bits & 0xf0u) * 0x00204081u & 0x10101010u);
}

// turned moves bit `from` of every byte to bit `to`, and the others around it.
inline uint2 turned(uint2 bytes, uint from, uint to) { return rotate(bytes, uint2((to - from) & 31u)); }

// convert makes numbers of eight bytes, of each the bits of a mask.
inline void convert(uint2 bytes, ushort mask, thread float4 *q) {
    const ushort4 masks = ushort4(mask, mask * 256, mask, mask * 256);
    const ushort4 pairs = as_type<ushort4>(bytes);
    q[0] = float4(pairs.xxyy & masks);
    q[1] = float4(pairs.zzww & masks);
}

// nibbles writes the low nibbles to q[0..1], the high ones to q[2..3].
inline void nibbles(uint2 bytes, thread float4 *q) {
    convert(bytes, 0x0f, q);
    convert(bytes, 0xf0, q + 2);
}

inline void same(float scale, float offset, thread Run &w) {
    w.scale[0] = w.scale[1] = scale;
    w.offset[0] = w.offset[1] = offset;
}

// A decoder of a run of a block takes its codes and its scales, which in a file are one
// block, and what its codes' addresses are multiples of.

template <uint Align, typename C, typename S> inline Run decode_q8_0(device const C &c, device const S &s, uint r) {
    Run w;
    UNROLL for (uint i = 0; i < 4; i++)
        w.q[i] = signed4<Align>(c.qs + 8 * r + i / 2 * 16 + i % 2 * 4);
    same(float(s.d), 0.0f, w);
    return w;
}

template <uint Align, typename C, typename S> inline Run decode_q4_0(device const C &c, device const S &s, uint r) {
    Run w;
    nibbles(eight<Align>(c.qs + 8 * r), w.q);
    same(float(s.d), -8.0f * float(s.d), w);
    return w;
}

inline Run decode_q4_1(device const block_q4_1 &b, uint r) {
    Run w;
    nibbles(eight<4>(b.qs + 8 * r), w.q);
    same(float(b.d), float(b.m), w);
    return w;
}

inline Run decode_mlx4(device const block_mlx4 &b, uint r) {
    Run w;
    nibbles(eight<4>(b.qs + 8 * r), w.q);
    same(float(b.d), float(b.m), w);
    return w;
}

inline Run decode_mlx8(device const block_mlx8 &b, uint r) {
    device const uint8_t *qs = b.qs + r / 2 * 32 + r % 2 * 8;
    Run w;
    convert(eight<4>(qs), 0xff, w.q);
    convert(eight<4>(qs + 16), 0xff, w.q + 2);
    same(float(b.d), float(b.m), w);
    return w;
}

// fifths writes numbers of five bits: nibbles, and the fifth bits of the low and of the
// high nibbles.
inline void fifths(uint2 bytes, uint low, uint high, thread float4 *q) {
    convert((bytes & 0x0f0f0f0fu) | spread(low), 0xff, q);
    convert((bytes >> 4 & 0x0f0f0f0fu) | spread(high), 0xff, q + 2);
}

inline Run decode_q5_0(device const block_q5_0 &b, uint r) {
    Run w;
    fifths(eight<2>(b.qs + 8 * r), uint(b.qh[0]) >> (8 * r), uint(b.qh[1]) >> (8 * r), w.q);
    same(float(b.d), -16.0f * float(b.d), w);
    return w;
}

inline Run decode_q5_1(device const block_q5_1 &b, uint r) {
    Run w;
    fifths(eight<4>(b.qs + 8 * r), uint(b.qh[0]) >> (8 * r), uint(b.qh[1]) >> (8 * r), w.q);
    same(float(b.d), float(b.m), w);
    return w;
}

// In blocks of 256, r/4 names 64 elements and r%4 eight of their first and eight of
// their second 32. Neighbouring lanes differ in r, so nothing here branches on it.

template <uint Align, typename C, typename S> inline Run decode_q2_k(device const C &c, device const S &s, uint r) {
    const uint part = r / 4, g = r % 4; // part: 64 elements, two bit pairs of 32 bytes
    const uint2 e = eight<Align>(c.qs + part / 2 * 32 + g * 8) >> part % 2 * 4;
    Run w;
    convert(e, 0x03, w.q);
    convert(e, 0x0c, w.q + 2);
    const uint first = s.scales[4 * part + g / 2], second = s.scales[4 * part + 2 + g / 2];
    const float d = float(s.d), dmin = -float(s.dmin) / 16.0f;
    w.scale[0] = d * float(first & 0x0fu);
    w.scale[1] = d * float(second & 0x0fu);
    w.offset[0] = dmin * float(first & 0xf0u);
    w.offset[1] = dmin * float(second & 0xf0u);
    return w;
}

// scale_q3 is scale i of 16: its low four bits are a nibble of the first eight bytes,
// its high two bits one of four pairs in the last four bytes.
inline float scale_q3(device const uint8_t *scales, uint i) {
    const uint low = uint(scales[i % 8]) >> i / 8 * 4 & 15u;
    const uint high = uint(scales[8 + i % 4]) >> i / 4 * 2 & 3u;
    return float(int(low | high << 4) - 32);
}

template <uint Align, typename C, typename S> inline Run decode_q3_k(device const C &c, device const S &s, uint r) {
    const uint part = r / 4, g = r % 4;
    const uint shift = part % 2 * 4;
    const uint2 e = eight<Align>(c.qs + part / 2 * 32 + g * 8), top = eight<Align>(c.hmask + g * 8);
    Run w;
    convert((e >> shift & 0x03030303u) | (turned(top, 2 * part, 2) & 0x04040404u), 0xff, w.q);
    convert((e >> (shift + 1) & 0x06060606u) | (turned(top, 2 * part + 1, 3) & 0x08080808u), 0xff, w.q + 2);
    const float d = float(s.d);
    w.scale[0] = d * scale_q3(s.scales, 4 * part + g / 2);
    w.scale[1] = d * scale_q3(s.scales, 4 * part + 2 + g / 2);
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
    const uint a = pairs[part % 2], b = pairs[2 + part % 2], c = pairs[part + 2];
    const bool split = part >= 2;
    const uint scale = select(a & 0x3f3fu, (c & 0x0f0fu) | (a >> 2 & 0x3030u), split);
    const uint minimum = select(c & 0x3f3fu, (c >> 4 & 0x0f0fu) | (b >> 2 & 0x3030u), split);
    w.scale[0] = d * float(scale & 0x00ffu);
    w.scale[1] = d / 256.0f * float(scale & 0xff00u);
    w.offset[0] = -dmin * float(minimum & 0x00ffu);
    w.offset[1] = -dmin / 256.0f * float(minimum & 0xff00u);
}

template <uint Align, typename C, typename S> inline Run decode_q4_k(device const C &c, device const S &s, uint r) {
    const uint part = r / 4, g = r % 4;
    Run w;
    nibbles(eight<Align>(c.qs + part * 32 + g * 8), w.q);
    scales_q4(s.scales, part, float(s.d), float(s.dmin), w);
    return w;
}

template <uint Align, typename C, typename S> inline Run decode_q5_k(device const C &c, device const S &s, uint r) {
    const uint part = r / 4, g = r % 4;
    const uint2 e = eight<Align>(c.qs + part * 32 + g * 8), top = turned(eight<Align>(c.qh + g * 8), 2 * part, 4);
    Run w;
    convert((e & 0x0f0f0f0fu) | (top & 0x10101010u), 0xff, w.q);
    convert((e >> 3 & 0x1e1e1e1eu) | (top & 0x20202020u), 0xff, w.q + 2);
    scales_q4(s.scales, part, float(s.d), float(s.dmin), w);
    return w;
}

template <uint Align, typename C, typename S> inline Run decode_q6_k(device const C &c, device const S &s, uint r) {
    const uint part = r / 4, g = r % 4;                     // 128 elements share 64 bytes of ql and 32 of qh:
    const uint half_block = part / 2, shift = part % 2 * 4; // part 0 and 1 of them are low and high nibbles
    device const uint8_t *ql = c.ql + half_block * 64 + g * 8;
    const uint2 top = turned(eight<Align>(c.qh + half_block * 32 + g * 8), shift, 4);
    Run w;
    convert((eight<Align>(ql) >> shift & 0x0f0f0f0fu) | (top & 0x30303030u), 0xff, w.q);
    convert((turned(eight<Align>(ql + 32), shift, 2) & 0x3c3c3c3cu) | (top & 0xc0c0c0c0u), 0xff, w.q + 2);
    const float d = float(s.d);
    w.scale[0] = d * float(s.scales[4 * part + g / 2]);
    w.scale[1] = d * float(s.scales[4 * part + 2 + g / 2]);
    w.offset[0] = -32.0f * w.scale[0];
    w.offset[1] = -32.0f * w.scale[1];
    return w;
}

// The values that codes of four bits name: those of models/quant.
constant float iq4_values[16] = {SMELT_IQ4_VALUES};
constant float e2m1_values[16] = {SMELT_E2M1_VALUES};

// named writes the values that eight bytes name, each of which is a code.
inline void named(uint2 bytes, constant float *values, thread float4 *q) {
    const uchar4 a = as_type<uchar4>(bytes.x), b = as_type<uchar4>(bytes.y);
    q[0] = float4(values[a.x], values[a.y], values[a.z], values[a.w]);
    q[1] = float4(values[b.x], values[b.y], values[b.z], values[b.w]);
}

// named_twice does it of the low nibbles, and of the high ones.
inline void named_twice(uint2 bytes, constant float *values, thread float4 *q) {
    named(bytes & 0x0f0f0f0fu, values, q);
    named(bytes >> 4 & 0x0f0f0f0fu, values, q + 2);
}

template <uint Align, typename C, typename S> inline Run decode_mxfp4(device const C &c, device const S &s, uint r) {
    Run w;
    named_twice(eight<Align>(c.qs + 8 * r), e2m1_values, w.q);
    const uint e = s.e; // below 2 a subnormal
    same(as_type<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23), 0.0f, w);
    return w;
}

template <uint Align, typename C, typename S> inline Run decode_iq4_nl(device const C &c, device const S &s, uint r) {
    Run w;
    named_twice(eight<Align>(c.qs + 8 * r), iq4_values, w.q);
    same(float(s.d), 0.0f, w);
    return w;
}

// scale_iq4 is scale i of eight.
inline float scale_iq4(device const block_iq4_xs &b, uint i) {
    const uint low = uint(b.scales_l[i / 2]) >> i % 2 * 4 & 15u, high = uint(b.scales_h) >> 2 * i & 3u;
    return float(int(low | high << 4) - 32);
}

inline Run decode_iq4_xs(device const block_iq4_xs &b, uint r) {
    const uint part = r / 4, g = r % 4; // 64 elements in twice 16 bytes
    device const uint8_t *qs = b.qs + part * 32 + g % 2 * 8;
    const uint shift = g / 2 * 4;
    Run w;
    named(eight<8>(qs) >> shift & 0x0f0f0f0fu, iq4_values, w.q);
    named(eight<8>(qs + 16) >> shift & 0x0f0f0f0fu, iq4_values, w.q + 2);
    const float d = float(b.d);
    w.scale[0] = d * scale_iq4(b, 2 * part);
    w.scale[1] = d * scale_iq4(b, 2 * part + 1);
    w.offset[0] = w.offset[1] = 0.0f;
    return w;
}

template <typename T> inline Run decode_plain(device const T *row, uint r) {
    Run w;
    UNROLL for (uint i = 0; i < 4; i++)
        w.q[i] = four(row, 16 * r + 4 * i);
    same(1.0f, 0.0f, w);
    return w;
}

// Stored is a row of a weight: where it starts, and of lines where its scales do.
struct Stored {
    device const uchar *at;
    device const uchar *scales;
};

// block returns the block that holds run r of a row, for blocks of N runs.
template <typename B, uint N> inline device const B &block(device const uchar *row, uint r) {
    return ((device const B *)row)[r / N];
}

// SMELT_DECODES is 1 if a type's decoder is compiled: a library of one kernel has only the
// decoders of its own types.
#if defined(SMELT_FC_TYPE) || defined(SMELT_FC_TYPE0)
#define SMELT_DECODES(type)                                                                                            \
    (type == SMELT_FC_TYPE || type == SMELT_FC_TYPE0 || type == SMELT_FC_TYPE1 || type == SMELT_FC_TYPE2)
#else
#define SMELT_DECODES(type) 1
#endif

#include "decode.gen.h"

// row_bytes is the length of a row of k elements.
inline ulong row_bytes(uint type, uint k) { return ulong(k / block_elems(type)) * block_bytes(type); }

// stored_row finds row i of a weight of n rows of k elements.
inline Stored stored_row(uint type, device const uchar *w, uint n, uint k, uint i) {
    Stored row;
    if (type == stored_type(type)) {
        row.at = row.scales = w + row_bytes(type, k) * ulong(i);
        return row;
    }
    const ulong blocks = k / block_elems(type), line = line_bytes(type);
    row.at = w + blocks * line * i;
    row.scales = w + blocks * line * n + blocks * (block_bytes(type) - line) * i;
    return row;
}

// place returns the factors of q of four elements of a group, 0 or 1. Shifting a code down
// before its conversion would take twice the time on the shift-and-convert pipe. Kernels
// instead multiply the other operand by these powers of two, once for all rows, which does
// not change a bit of a product.
inline float4 place(uint type, uint group) {
    if (!has_offset(type))
        return float4(1.0f);
    const float unit = group == 0 ? 1.0f : second_place(type);
    return float4(unit, unit / 256.0f, unit, unit / 256.0f);
}

// plain_element is weight i of a row of a plain type.
inline float plain_element(uint type, thread const Stored &row, uint i) {
    switch (type) {
    case SMELT_F32:
        return element((device const float *)row.at, i);
    case SMELT_F16:
        return element((device const half *)row.at, i);
    default:
        return element((device const bf16 *)row.at, i);
    }
}

// expand writes the 16 weights of run r of a row, all of which exist.
inline void expand(uint type, thread const Stored &row, uint r, thread float *w) {
    const Run run = decode_run(type, row, r);
    UNROLL for (uint i = 0; i < 4; i++) {
        float4 v = run.q[i];
        if (block_elems(type) != 1)
            v = run.scale[i / 2] * place(type, i / 2) * v + run.offset[i / 2];
        UNROLL for (uint j = 0; j < 4; j++)
            w[4 * i + j] = v[j];
    }
}

// expand_end is expand for a run that may extend past the end of a row of k elements, or lie
// past it: elements past the end are zero.
inline void expand_end(uint type, thread const Stored &row, uint r, uint k, thread float *w) {
    if (16 * r + 16 <= k) {
        expand(type, row, r, w);
        return;
    }
    UNROLL for (uint i = 0; i < 16; i++)
        w[i] = block_elems(type) == 1 && 16 * r + i < k ? plain_element(type, row, 16 * r + i) : 0.0f;
}

#endif
