// Products of quantized weights as plain loops: each row is unpacked to integers, scales
// and minima, a slice at a time, and multiplied with the activations of every token. Layouts
// are those of blocks.h, and the order of sums that of products.h.

// Elements of a row as integers: an element is d·s·v, or d·s·v + low·m, with a scale, and a minimum,
// for each group that shares one. Where d and low are not 1, scales are whole numbers.
struct Unpacked {
    int16_t v[256];
    float s[16], m[16], d = 1, low = 1;
};

INLINE float half_at(const uint8_t *p) { return half_to_float(half_bits(p)); }

struct PlainQ8_0 : Stored<SMELT_Q8_0> {
    static constexpr int GROUPS = 1;
    static constexpr bool MIN = false;
    static void unpack(const uint8_t *p, Unpacked &to) {
        to.s[0] = half_at(p);
        for (int i = 0; i < 32; i++)
            to.v[i] = static_cast<int8_t>(p[2 + i]);
    }
};

// Four bits of each element, the first sixteen in the low halves of bytes, and from BITS on, if
// there are any, a fifth bit each in the 32 bits there.
template <uint32_t NUMBER, bool WITH_MIN, bool FIVE> struct PlainNibbles : Stored<NUMBER> {
    static constexpr int GROUPS = 1;
    static constexpr bool MIN = WITH_MIN;
    static void unpack(const uint8_t *p, Unpacked &to) {
        constexpr int BITS = MIN ? 4 : 2, OFFSET = MIN ? 0 : FIVE ? 16 : 8;
        const uint8_t *nibbles = p + BITS + (FIVE ? 4 : 0);
        uint32_t fifth = 0;
        if (FIVE)
            memcpy(&fifth, p + BITS, 4);
        to.s[0] = half_at(p);
        to.m[0] = MIN ? half_at(p + 2) : 0;
        for (int i = 0; i < 32; i++, fifth >>= 1) {
            int four = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
            to.v[i] = static_cast<int16_t>((four | (fifth & 1) << 4) - OFFSET);
        }
    }
};

// Groups as MLX packs them.
template <uint32_t NUMBER> struct PlainMLX : Stored<NUMBER> {
    static constexpr int GROUPS = 1;
    static constexpr bool MIN = true;
    static void unpack(const uint8_t *p, Unpacked &to) {
        to.s[0] = to.s[1] = half_at(p), to.m[0] = to.m[1] = half_at(p + 2);
        for (int i = 0; i < 64; i++)
            to.v[i] = NUMBER == SMELT_MLX8 ? p[4 + i] : p[4 + i / 32 * 16 + i % 16] >> i % 32 / 16 * 4 & 15;
    }
};

struct PlainQ2_K : Stored<SMELT_Q2_K> {
    static constexpr int GROUPS = 2;
    static constexpr bool MIN = true;
    static void unpack(const uint8_t *p, Unpacked &to) {
        to.d = half_at(p + 80), to.low = 0.0f - half_at(p + 82);
        for (int i = 0; i < 16; i++)
            to.s[i] = static_cast<float>(p[i] & 15), to.m[i] = static_cast<float>(p[i] >> 4);
        for (int i = 0; i < 256; i++)
            to.v[i] = p[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
    }
};

struct PlainQ3_K : Stored<SMELT_Q3_K> {
    static constexpr int GROUPS = 2;
    static constexpr bool MIN = false;
    static void unpack(const uint8_t *p, Unpacked &to) {
        to.d = half_at(p + 108);
        const uint8_t *six = p + 96; // sixteen scales of six bits: four of each, then two
        for (int i = 0; i < 16; i++) {
            int four = i < 8 ? six[i] & 15 : six[i - 8] >> 4, two = six[8 + i % 4] >> i / 4 * 2 & 3;
            to.s[i] = static_cast<float>((four | two << 4) - 32);
        }
        for (int i = 0; i < 256; i++) {
            int two = p[32 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3, third = p[i % 32] >> i / 32 & 1;
            to.v[i] = static_cast<int16_t>((two | third << 2) - 4);
        }
    }
};

// Q4_K, and with FIVE Q5_K.
template <uint32_t NUMBER, bool FIVE> struct PlainK4 : Stored<NUMBER> {
    static constexpr int GROUPS = 1;
    static constexpr bool MIN = true;
    static void unpack(const uint8_t *p, Unpacked &to) {
        const float d = half_at(p), low = 0.0f - half_at(p + 2);
        const uint8_t *six = p + 4, *nibbles = p + (FIVE ? 48 : 16);
        for (int i = 0; i < 4; i++) {
            to.s[i] = static_cast<float>(six[i] & 63) * d;
            to.m[i] = static_cast<float>(six[4 + i] & 63) * low;
            to.s[4 + i] = static_cast<float>((six[8 + i] & 15) | six[i] >> 6 << 4) * d;
            to.m[4 + i] = static_cast<float>(six[8 + i] >> 4 | six[4 + i] >> 6 << 4) * low;
        }
        for (int i = 0; i < 256; i++) {
            int v = nibbles[i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15;
            to.v[i] = static_cast<int16_t>(FIVE ? v | (p[16 + i % 32] >> i / 32 & 1) << 4 : v);
        }
    }
};

struct PlainQ6_K : Stored<SMELT_Q6_K> {
    static constexpr int GROUPS = 2;
    static constexpr bool MIN = false;
    static void unpack(const uint8_t *p, Unpacked &to) {
        const float d = half_at(p + 208);
        for (int i = 0; i < 16; i++)
            to.s[i] = static_cast<float>(static_cast<int8_t>(p[192 + i])) * d;
        for (int i = 0; i < 256; i++) {
            int half = i / 128, quarter = i % 128 / 32;
            int four = p[64 * half + quarter % 2 * 32 + i % 32] >> quarter / 2 * 4 & 15;
            int two = p[128 + 32 * half + i % 32] >> quarter * 2 & 3;
            to.v[i] = static_cast<int16_t>((four | two << 4) - 32);
        }
    }
};

template <uint32_t NUMBER, const int8_t (&VALUES)[16]> struct PlainCodes : Stored<NUMBER> {
    static constexpr uint32_t ELEMS = Stored<NUMBER>::ELEMS, BYTES = Stored<NUMBER>::BYTES;
    static constexpr int GROUPS = 1;
    static constexpr bool MIN = false;
    static void unpack(const uint8_t *p, Unpacked &to) {
        if (NUMBER == SMELT_MXFP4) {
            const uint32_t bits = p[0] < 2 ? 0x00200000u << p[0] : (p[0] - 1u) << 23; // 2^(p[0] − 128)
            memcpy(to.s, &bits, 4);
        } else if (NUMBER == SMELT_IQ4_NL) {
            to.s[0] = half_at(p);
        } else {
            const uint16_t high = half_bits(p + 2);
            for (int i = 0; i < 8; i++) {
                int six = (p[4 + i / 2] >> i % 2 * 4 & 15) | (high >> 2 * i & 3) << 4;
                to.s[i] = half_at(p) * static_cast<float>(six - 32);
            }
        }
        const uint8_t *codes = p + BYTES - ELEMS / 2;
        for (uint32_t i = 0; i < ELEMS; i++)
            to.v[i] = VALUES[codes[i / 32 * 16 + i % 16] >> i % 32 / 16 * 4 & 15];
    }
};

// The decoder of a format's block, without its scheme of scales.
struct PlainBlock {
    uint32_t elems, bytes;
    void (*unpack)(const uint8_t *p, Unpacked &to);
};
template <class B> constexpr PlainBlock plain_block = {B::ELEMS, B::BYTES, B::unpack};

// Whether scales stay whole, as in products.h.
template <class B> constexpr bool WHOLE_SCALES = B::TYPE == SMELT_Q2_K || B::TYPE == SMELT_Q3_K;

template <int GROUPS, bool MIN, bool WHOLE> static void multiply_unpacked(const RowGroup &g, const PlainBlock &block) {
    constexpr int GROUP = 32 / GROUPS; // elements that share a scale
    for (uint32_t t = 0; t < g.tokens; t++)
        memset(g.sum[t], 0, sizeof g.sum[t]);
    for (uint64_t at = 0; at < g.k; at += block.elems) {
        for (int row = 0; row < ROWS; row++) {
            Unpacked w;
            block.unpack(g.rows + static_cast<size_t>(row) * g.stride + at / block.elems * block.bytes, w);
            for (uint32_t t = 0; t < g.tokens; t++) {
                const uint64_t slice = g.act->few ? 0 : at / g.act->panel * g.act->panel;
                const uint64_t place = g.act->place(g.first + t, slice) + (at - slice);
                const int8_t *x = g.act->q + place;
                const float *scale = g.act->scale + place / 32;
                const uint32_t *extra = g.extra + place / 32 * (WHOLE && MIN ? 1 : GROUPS);
                float sum = g.sum[t][row], whole = 0, least = 0; // of a sub-block
                for (int i = 0; i < static_cast<int>(block.elems) / GROUP; i++) {
                    int32_t dot = 0;
                    for (int j = 0; j < GROUP; j++)
                        dot += w.v[i * GROUP + j] * x[i * GROUP + j];
                    if (WHOLE) {
                        whole += w.s[i] * static_cast<float>(dot);
                        if (MIN)
                            least += w.m[i] * static_cast<float>(static_cast<int16_t>(extra[i / 2] >> i % 2 * 16));
                        if (i % 2 == 1) {
                            sum += scale[i / 2] * (w.d * whole + w.low * least);
                            whole = least = 0;
                        }
                        continue;
                    }
                    sum += w.s[i] * scale[i / GROUPS] * static_cast<float>(dot);
                    if (MIN) {
                        float total;
                        memcpy(&total, extra + i, 4);
                        sum += w.m[i] * total;
                    }
                }
                g.sum[t][row] = sum;
            }
        }
    }
    for (uint32_t t = 0; t < g.tokens; t++) {
        g.expect(t, 1);
        g.complete(t, 1);
    }
}
template <class B> static void multiply_plain(const RowGroup &g) {
    multiply_unpacked<B::GROUPS, B::MIN, WHOLE_SCALES<B>>(g, plain_block<B>);
}

// Writes a row of n elements, a multiple of a block's, as floats.
template <int GROUPS, bool MIN>
static void widen_unpacked(const uint8_t *p, float *out, uint64_t n, const PlainBlock &block) {
    for (uint64_t at = 0; at < n; at += block.elems, p += block.bytes) {
        Unpacked w;
        block.unpack(p, w);
        for (uint32_t i = 0; i < block.elems; i++) {
            const uint32_t group = i / (32 / GROUPS);
            const float y = w.s[group] * w.d * static_cast<float>(w.v[i]);
            out[at + i] = MIN ? y + w.m[group] * w.low : y;
        }
    }
}
template <class B> static void widen_plain(const uint8_t *p, float *out, uint64_t n) {
    widen_unpacked<B::GROUPS, B::MIN>(p, out, n, plain_block<B>);
}

template <class B>
constexpr Correction plain_correction = {WHOLE_SCALES<B> && B::MIN ? 1 : B::GROUPS, 0, B::MIN, WHOLE_SCALES<B>};
template <class B> constexpr WeightType plain_type() {
    return {B::TYPE,           B::ELEMS,       B::BYTES, 1,       true,  plain_correction<B>,
            multiply_plain<B>, widen_plain<B>, nullptr,  nullptr, PANEL, 1};
}

// The formats above.
static const WeightType types[] = {
    plain_type<PlainQ8_0>(),
    plain_type<PlainNibbles<SMELT_Q4_0, false, false>>(),
    plain_type<PlainNibbles<SMELT_Q4_1, true, false>>(),
    plain_type<PlainNibbles<SMELT_Q5_0, false, true>>(),
    plain_type<PlainNibbles<SMELT_Q5_1, true, true>>(),
    plain_type<PlainQ2_K>(),
    plain_type<PlainQ3_K>(),
    plain_type<PlainK4<SMELT_Q4_K, false>>(),
    plain_type<PlainK4<SMELT_Q5_K, true>>(),
    plain_type<PlainQ6_K>(),
    plain_type<PlainCodes<SMELT_IQ4_NL, IQ4_VALUES>>(),
    plain_type<PlainCodes<SMELT_IQ4_XS, IQ4_VALUES>>(),
    plain_type<PlainCodes<SMELT_MXFP4, E2M1_VALUES>>(),
    plain_type<PlainMLX<SMELT_MLX4>>(),
    plain_type<PlainMLX<SMELT_MLX8>>(),
};
