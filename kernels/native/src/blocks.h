// GGUF's block formats, unpacked sixteen rows at a time. Layouts and formulas are
// those of ggml-common.h and ggml-quants.c.
//
// Each format is a struct with
//   ELEMS, BYTES   of a block; SUBS = ELEMS/32 sub-blocks of 32 elements
//   GROUPS         scales in a sub-block: 1, or 2 of 16 elements each
//   MIN            an element is scale·u + minimum rather than scale·(u − OFFSET)
//   halves<S>      u of elements 0…15 and 16…31 of sub-block S, in rows p, p+step, …
//   PARTNER        or, where it isn't 0, in two steps: what read<S> loads serves both
//                  halves_from<S> and halves_from<S + PARTNER>
//   scales         of all sub-blocks of the blocks at p in ROWS rows:
//                  s and m are [SUBS][GROUPS][ROWS]

template <int N> struct Int {
    static constexpr int value = N;
};
template <int N, int I0 = 0, class Fn> INLINE void repeat(Fn f) {
    if constexpr (I0 < N) {
        f(Int<I0>{});
        repeat<N, I0 + 1>(f);
    }
}

// Applies f to each vector of W rows in a group of ROWS: its first row and where
// its values go.
template <class Fn> INLINE void each_vector(const uint8_t *p, size_t stride, Fn f) {
    repeat<ROWS / W>([&](auto o) { f(p + static_cast<size_t>(o.value * W) * stride, o.value * W); });
}

// Words 0…3 (16 bytes) of W rows, one row a lane.
INLINE void row_words(const uint8_t *p, size_t stride, I out[4]) {
    Q a = q_rows(p, 4 * stride), b = q_rows(p + stride, 4 * stride);
    Q c = q_rows(p + 2 * stride, 4 * stride), d = q_rows(p + 3 * stride, 4 * stride);
    transpose4(a, b, c, d);
    out[0] = q_words(a), out[1] = q_words(b), out[2] = q_words(c), out[3] = q_words(d);
}

// Stores factor·(byte k of each word − bias), k = 0…3, ROWS floats apart.
template <bool SIGNED = false> INLINE void spread_bytes(I words, F factor, float *out, float bias = 0) {
    auto one = [&](I v, int k) {
        v = SIGNED ? i_sar<24>(v) : i_shr<24>(v);
        store(out + k * ROWS, (to_float(v) - set1(bias)) * factor);
    };
    one(i_shl<24>(words), 0);
    one(i_shl<16>(words), 1);
    one(i_shl<8>(words), 2);
    one(words, 3);
}

// Scales and minima of Q4_K and Q5_K: a block starts with d, dmin and eight pairs
// of six bits packed in twelve bytes.
INLINE void scales_k4(const uint8_t *p, size_t stride, float *s, float *m) {
    each_vector(p, stride, [&](const uint8_t *row, int at) {
        I w[4];
        row_words(row, stride, w);
        F d = halves_of(w[0]), low = zero() - halves_of(i_shr<16>(w[0]));
        I six = i_set1(0x3f3f3f3f), four = i_set1(0x0f0f0f0f), top = i_set1(0x30303030);
        spread_bytes(i_and(w[1], six), d, s + at);
        spread_bytes(i_or(i_and(w[3], four), i_and(i_shr<2>(w[1]), top)), d, s + 4 * ROWS + at);
        spread_bytes(i_and(w[2], six), low, m + at);
        spread_bytes(i_or(i_and(i_shr<4>(w[3]), four), i_and(i_shr<2>(w[2]), top)), low, m + 4 * ROWS + at);
    });
}

struct Q8_0 {
    static constexpr uint32_t TYPE = SMELT_Q8_0, ELEMS = 32, BYTES = 34;
    static constexpr int SUBS = 1, GROUPS = 1, OFFSET = SIGNED_BIAS, PARTNER = 0;
    static constexpr bool MIN = false;
    static constexpr Range RANGE = Range::SIGNED;
    template <int S> INLINE void halves(const uint8_t *p, size_t step, Q &low, Q &high) {
        low = q_rows(p + 2, step), high = q_rows(p + 18, step);
        if (SIGNED_BIAS != 0)
            low = q_xor(low, SIGNED_BIAS), high = q_xor(high, SIGNED_BIAS);
    }
    INLINE void scales(const uint8_t *p, size_t stride, float *s, float *) {
        each_vector(p, stride, [&](const uint8_t *row, int at) { store(s + at, half_rows(row, stride)); });
    }
};

struct Q4_0 {
    static constexpr uint32_t TYPE = SMELT_Q4_0, ELEMS = 32, BYTES = 18;
    static constexpr int SUBS = 1, GROUPS = 1, OFFSET = 8, PARTNER = 0;
    static constexpr bool MIN = false;
    static constexpr Range RANGE = Range::NIBBLE;
    template <int S> INLINE void halves(const uint8_t *p, size_t step, Q &low, Q &high) {
        Q v = q_rows(p + 2, step);
        low = q_and(v, 0x0f), high = q_and(q_shr<4>(v), 0x0f);
    }
    INLINE void scales(const uint8_t *p, size_t stride, float *s, float *) {
        each_vector(p, stride, [&](const uint8_t *row, int at) { store(s + at, half_rows(row, stride)); });
    }
};

struct Q4_1 {
    static constexpr uint32_t TYPE = SMELT_Q4_1, ELEMS = 32, BYTES = 20;
    static constexpr int SUBS = 1, GROUPS = 1, OFFSET = 0, PARTNER = 0;
    static constexpr bool MIN = true;
    static constexpr Range RANGE = Range::NIBBLE;
    template <int S> INLINE void halves(const uint8_t *p, size_t step, Q &low, Q &high) {
        Q v = q_rows(p + 4, step);
        low = q_and(v, 0x0f), high = q_and(q_shr<4>(v), 0x0f);
    }
    INLINE void scales(const uint8_t *p, size_t stride, float *s, float *m) {
        each_vector(p, stride, [&](const uint8_t *row, int at) {
            store(s + at, half_rows(row, stride));
            store(m + at, half_rows(row + 2, stride));
        });
    }
};

// Bit i of a 32-bit mask as 16 in byte i, for the rows of a Q.
INLINE void spread_bits(const uint8_t *p, size_t step, Q &low, Q &high) {
    alignas(64) uint8_t bytes[2][4 * W];
    for (int lane = 0; lane < W / 4; lane++, p += step) {
        for (int i = 0; i < 4; i++) {
            // Each byte of the product holds all eight bits; keep a different one in
            // each, then let any that is set carry into the byte's top.
            uint64_t v = p[i] * 0x0101010101010101u & 0x8040201008040201u;
            v = (v + 0x7f7f7f7f7f7f7f7fu) >> 3 & 0x1010101010101010u;
            memcpy(bytes[i / 2] + 16 * lane + 8 * (i % 2), &v, 8);
        }
    }
    low = q_load(bytes[0]), high = q_load(bytes[1]);
}

struct Q5_0 {
    static constexpr uint32_t TYPE = SMELT_Q5_0, ELEMS = 32, BYTES = 22;
    static constexpr int SUBS = 1, GROUPS = 1, OFFSET = 16, PARTNER = 0;
    static constexpr bool MIN = false;
    static constexpr Range RANGE = Range::SIX_BITS;
    template <int S> INLINE void halves(const uint8_t *p, size_t step, Q &low, Q &high) {
        Q v = q_rows(p + 6, step);
        spread_bits(p + 2, step, low, high);
        low = q_or(low, q_and(v, 0x0f)), high = q_or(high, q_and(q_shr<4>(v), 0x0f));
    }
    INLINE void scales(const uint8_t *p, size_t stride, float *s, float *) {
        each_vector(p, stride, [&](const uint8_t *row, int at) { store(s + at, half_rows(row, stride)); });
    }
};

struct Q5_1 {
    static constexpr uint32_t TYPE = SMELT_Q5_1, ELEMS = 32, BYTES = 24;
    static constexpr int SUBS = 1, GROUPS = 1, OFFSET = 0, PARTNER = 0;
    static constexpr bool MIN = true;
    static constexpr Range RANGE = Range::SIX_BITS;
    template <int S> INLINE void halves(const uint8_t *p, size_t step, Q &low, Q &high) {
        Q v = q_rows(p + 8, step);
        spread_bits(p + 4, step, low, high);
        low = q_or(low, q_and(v, 0x0f)), high = q_or(high, q_and(q_shr<4>(v), 0x0f));
    }
    INLINE void scales(const uint8_t *p, size_t stride, float *s, float *m) {
        each_vector(p, stride, [&](const uint8_t *row, int at) {
            store(s + at, half_rows(row, stride));
            store(m + at, half_rows(row + 2, stride));
        });
    }
};

// Two bits of each byte: sub-block S of Q2_K and Q3_K.
template <int S> INLINE Q two_bits(const uint8_t *p, size_t step) {
    return q_and(q_shr<2 * (S % 4)>(q_rows(p + 32 * (S / 4), step)), 3);
}

struct Q2_K {
    static constexpr uint32_t TYPE = SMELT_Q2_K, ELEMS = 256, BYTES = 84;
    static constexpr int SUBS = 8, GROUPS = 2, OFFSET = 0, PARTNER = 0;
    static constexpr bool MIN = true;
    static constexpr Range RANGE = Range::NIBBLE;
    template <int S> INLINE void halves(const uint8_t *p, size_t step, Q &low, Q &high) {
        low = two_bits<S>(p + 16, step), high = two_bits<S>(p + 32, step);
    }
    INLINE void scales(const uint8_t *p, size_t stride, float *s, float *m) {
        each_vector(p, stride, [&](const uint8_t *row, int at) {
            I w[4], four = i_set1(0x0f0f0f0f);
            row_words(row, stride, w);
            F d = half_rows(row + 80, stride), low = zero() - half_rows(row + 82, stride);
            for (int i = 0; i < 4; i++) {
                spread_bytes(i_and(w[i], four), d, s + 4 * i * ROWS + at);
                spread_bytes(i_and(i_shr<4>(w[i]), four), low, m + 4 * i * ROWS + at);
            }
        });
    }
};

struct Q3_K {
    static constexpr uint32_t TYPE = SMELT_Q3_K, ELEMS = 256, BYTES = 110;
    static constexpr int SUBS = 8, GROUPS = 2, OFFSET = 4, PARTNER = 0;
    static constexpr bool MIN = false;
    static constexpr Range RANGE = Range::NIBBLE;
    template <int S> INLINE void halves(const uint8_t *p, size_t step, Q &low, Q &high) {
        low = q_or(two_bits<S>(p + 32, step), third_bit<S>(p, step));
        high = q_or(two_bits<S>(p + 48, step), third_bit<S>(p + 16, step));
    }
    template <int S> INLINE Q third_bit(const uint8_t *p, size_t step) {
        Q v = q_rows(p, step);
        if constexpr (S <= 2)
            return q_and(q_shl<2 - S>(v), 4);
        else
            return q_and(q_shr<S - 2>(v), 4);
    }
    INLINE void scales(const uint8_t *p, size_t stride, float *s, float *) {
        each_vector(p, stride, [&](const uint8_t *row, int at) {
            // The twelve bytes of scales end two bytes before the block does: read
            // sixteen that lie inside it, two bytes early.
            I early[4], w[3], four = i_set1(0x0f0f0f0f), top = i_set1(0x30303030);
            row_words(row + 94, stride, early);
            for (int i = 0; i < 3; i++)
                w[i] = i_or(i_shr<16>(early[i]), i_shl<16>(early[i + 1]));
            F d = half_rows(row + 108, stride);
            float *out = s + at;
            spread_bytes(i_or(i_and(w[0], four), i_and(i_shl<4>(w[2]), top)), d, out, 32);
            spread_bytes(i_or(i_and(w[1], four), i_and(i_shl<2>(w[2]), top)), d, out + 4 * ROWS, 32);
            spread_bytes(i_or(i_and(i_shr<4>(w[0]), four), i_and(w[2], top)), d, out + 8 * ROWS, 32);
            spread_bytes(i_or(i_and(i_shr<4>(w[1]), four), i_and(i_shr<2>(w[2]), top)), d, out + 12 * ROWS, 32);
        });
    }
};

struct Q4_K {
    static constexpr uint32_t TYPE = SMELT_Q4_K, ELEMS = 256, BYTES = 144;
    static constexpr int SUBS = 8, GROUPS = 1, OFFSET = 0, PARTNER = 1;
    static constexpr bool MIN = true;
    static constexpr Range RANGE = Range::NIBBLE;
    template <int S> INLINE void read(const uint8_t *p, size_t step, Q raw[4]) {
        raw[0] = q_rows(p + 16 + 32 * (S / 2), step), raw[1] = q_rows(p + 32 + 32 * (S / 2), step);
    }
    template <int S> INLINE void halves_from(const Q raw[4], Q &low, Q &high) {
        low = q_and(q_shr<4 * (S % 2)>(raw[0]), 0x0f), high = q_and(q_shr<4 * (S % 2)>(raw[1]), 0x0f);
    }
    INLINE void scales(const uint8_t *p, size_t stride, float *s, float *m) { scales_k4(p, stride, s, m); }
};

struct Q5_K {
    static constexpr uint32_t TYPE = SMELT_Q5_K, ELEMS = 256, BYTES = 176;
    static constexpr int SUBS = 8, GROUPS = 1, OFFSET = 0, PARTNER = 1;
    static constexpr bool MIN = true;
    static constexpr Range RANGE = Range::SIX_BITS;
    template <int S> INLINE void read(const uint8_t *p, size_t step, Q raw[4]) {
        Q4_K::read<S>(p + 32, step, raw);
        raw[2] = q_rows(p + 16, step), raw[3] = q_rows(p + 32, step);
    }
    template <int S> INLINE void halves_from(const Q raw[4], Q &low, Q &high) {
        Q4_K::halves_from<S>(raw, low, high);
        low = q_or(low, fifth_bit<S>(raw[2])), high = q_or(high, fifth_bit<S>(raw[3]));
    }
    template <int S> INLINE Q fifth_bit(Q v) {
        if constexpr (S <= 4)
            return q_and(q_shl<4 - S>(v), 16);
        else
            return q_and(q_shr<S - 4>(v), 16);
    }
    INLINE void scales(const uint8_t *p, size_t stride, float *s, float *m) { scales_k4(p, stride, s, m); }
};

struct Q6_K {
    static constexpr uint32_t TYPE = SMELT_Q6_K, ELEMS = 256, BYTES = 210;
    static constexpr int SUBS = 8, GROUPS = 2, OFFSET = 32, PARTNER = 2;
    static constexpr bool MIN = false;
    static constexpr Range RANGE = Range::SIX_BITS;
    template <int S> INLINE void read(const uint8_t *p, size_t step, Q raw[4]) {
        const uint8_t *four = p + 64 * (S / 4) + 32 * (S % 2), *two = p + 128 + 32 * (S / 4);
        raw[0] = q_rows(four, step), raw[1] = q_rows(four + 16, step);
        raw[2] = q_rows(two, step), raw[3] = q_rows(two + 16, step);
    }
    template <int S> INLINE void halves_from(const Q raw[4], Q &low, Q &high) {
        low = six_bits<S % 4>(raw[0], raw[2]), high = six_bits<S % 4>(raw[1], raw[3]);
    }
    template <int QUARTER> INLINE Q six_bits(Q four, Q two) {
        four = q_and(q_shr<4 * (QUARTER / 2)>(four), 0x0f);
        if constexpr (QUARTER < 3)
            two = q_shl<4 - 2 * QUARTER>(two);
        else
            two = q_shr<2>(two);
        return q_or(four, q_and(two, 0x30));
    }
    INLINE void scales(const uint8_t *p, size_t stride, float *s, float *) {
        each_vector(p, stride, [&](const uint8_t *row, int at) {
            I w[4];
            row_words(row + 192, stride, w);
            F d = half_rows(row + 208, stride);
            for (int i = 0; i < 4; i++)
                spread_bytes<true>(w[i], d, s + 4 * i * ROWS + at);
        });
    }
};

// u of elements 0…15 and 16…31 of sub-block S, in rows p, p+step, …
template <class B, int S> INLINE void halves(const uint8_t *p, size_t step, Q &low, Q &high) {
    if constexpr (B::PARTNER == 0) {
        B::template halves<S>(p, step, low, high);
    } else {
        Q raw[4];
        B::template read<S>(p, step, raw);
        B::template halves_from<S>(raw, low, high);
    }
}

// Writes a row of n elements, a multiple of ELEMS, as floats.
template <class B> static void dequantise_row(const uint8_t *p, float *out, uint64_t n) {
    for (uint64_t done = 0; done < n; done += B::ELEMS, p += B::BYTES) {
        alignas(64) float s[B::SUBS * B::GROUPS * ROWS], m[B::SUBS * B::GROUPS * ROWS];
        B::scales(p, 0, s, m); // every one of the ROWS rows is this one
        repeat<B::SUBS>([&](auto sub) {
            constexpr int S = decltype(sub)::value;
            alignas(64) uint8_t bytes[2][4 * W];
            Q low, high;
            halves<B, S>(p, 0, low, high);
            q_store(bytes[0], low), q_store(bytes[1], high);
            for (int i = 0; i < 32; i++) {
                int group = (S * B::GROUPS + i / 16 * (B::GROUPS - 1)) * ROWS;
                uint8_t u = bytes[i / 16][i % 16];
                int v = B::RANGE == Range::SIGNED && SIGNED_BIAS == 0 ? static_cast<int8_t>(u) : u;
                float y = s[group] * static_cast<float>(v - B::OFFSET);
                out[done + 32 * S + i] = B::MIN ? y + m[group] : y;
            }
        });
    }
}
