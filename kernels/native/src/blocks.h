// GGUF's block formats, unpacked sixteen rows at a time. Layouts and formulas are
// those of ggml-common.h and ggml-quants.c.
//
// Each format is a struct with
//   TYPE, ELEMS, BYTES   a Stored; SUBS = ELEMS/32 sub-blocks of 32 elements
//   GROUPS         scales in a sub-block: 1, or 2 of 16 elements each
//   MIN            an element is scale·u + minimum rather than scale·(u − OFFSET)
//   HALF           where a half lies that no word of 32 bits holds: the words are those
//                  before it, or behind it where it is 0. NO_HALF, if all is words
//   PARTS          runs of sub-blocks that are unpacked by the same code: it is compiled for
//                  one run, and a loop goes over them
//   halves<S>      u of elements 0…15 and 16…31 of sub-block S of a part, of some rows
//   PARTNER        or, where it isn't 0, in two steps: what read<S> loads serves both
//                  halves_from<S> and halves_from<S + PARTNER>
//   scales         of all sub-blocks of a block, of W rows: s and m are [SUBS][GROUPS]
//                  vectors, ROWS floats apart
//   BIAS, D, LOW   of a format with WHOLE_SCALES, below
//   integers
//   reorder
//
// What the rows are read from is a Rows, as files hold them, or an Interleaved, below.

constexpr int NO_HALF = -1;

// Whether a format's scales stay integers in products: with c and n those of the two groups of a
// sub-block, D the sums of their products, S those of their activations, a the activations' scale,
//   I = c0·D0 + c1·D1;  J = n0·S0 + n1·S1;  sum += a·(d·I + low·J)
// D and S fit 16 bits, I and J a float's 24: they are exact, in whatever way a form of the product
// computes them. The format has
//   BIAS           what its scales are too large by as they are stored
//   D, LOW         where the halves d and, with MIN, −low lie
//   integers       c + BIAS and n of four groups in each word: [4] vectors
//   reorder        puts the codes of a block of W interleaved rows in the order of the copy
//   place          of halves<S, true>: they are 2^place times as large
template <class B> constexpr bool WHOLE_SCALES = false;

// Returns the position of a format's interleaved word. Words keep their order unless a kernel
// reads them in another, because only sequential reads are prefetched in time.
template <class B> constexpr int place_of(int word) { return word; }

// The same block of ROWS rows, word by word: the half that no word holds, [ROWS], then
// [words][ROWS] of 32 bits. It takes as many bytes as the blocks do in the file, and a vector
// is one load, which streams; in rows, the bytes of a vector lie in sixteen places.
template <class B> struct Interleaved {
    static constexpr int WORDS = static_cast<int>(B::BYTES / 4), SKIPPED = B::HALF == 0 ? 2 : 0;
    static constexpr int HALVES = B::HALF == NO_HALF ? 0 : 2 * ROWS; // bytes
    static constexpr size_t BYTES = size_t{B::BYTES} * ROWS;
    static_assert(B::BYTES % 4 == (B::HALF == NO_HALF ? 0 : 2), "a block is words and at most one half");
    const uint8_t *p;
    int row, word; // the first of W rows; which of four words bytes() gives

    MEMBER Interleaved from(int row) const { return {p, row, word}; }
    MEMBER Interleaved at(const uint8_t *p, int row, int word) const { return {p, row, word}; }
    static constexpr int offset(int word) { return HALVES + 4 * ROWS * place_of<B>(word); }
    // Of the word that begins with byte `at` of a block in the file.
    MEMBER const uint8_t *place(int at) const { return p + offset((at - SKIPPED) / 4) + row * 4; }
    // Of sixteen bytes of each row from `at` on the four of `word`, one row a lane.
    MEMBER Q bytes(int at) const { return q_load(place(at + 4 * word)); }
    MEMBER Q bytes(int at, int part, int step) const {
        return q_load(place(at + 4 * word) + part * (place(at + step) - place(at)));
    }
    MEMBER F half(int at) const {
        if (at == B::HALF)
            return load_f16(p + row * 2);
        I both = q_words(q_load(place(at & ~3)));
        return halves_of(at % 4 == 0 ? both : i_shr<16>(both));
    }
    MEMBER void words(int at, I out[4]) const {
        for (int i = 0; i < 4; i++)
            out[i] = q_words(q_load(place(at + 4 * i)));
    }
};

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
template <class From> INLINE void scales_k4(From rows, float *s, float *m) {
    I w[4];
    rows.words(0, w);
    F d = halves_of(w[0]), low = zero() - halves_of(i_shr<16>(w[0]));
    I six = i_set1(0x3f3f3f3f), four = i_set1(0x0f0f0f0f), top = i_set1(0x30303030);
    spread_bytes(i_and(w[1], six), d, s);
    spread_bytes(i_or(i_and(w[3], four), i_and(i_shr<2>(w[1]), top)), d, s + 4 * ROWS);
    spread_bytes(i_and(w[2], six), low, m);
    spread_bytes(i_or(i_and(i_shr<4>(w[3]), four), i_and(i_shr<2>(w[2]), top)), low, m + 4 * ROWS);
}

struct Q8_0 : Stored<SMELT_Q8_0> {
    static constexpr int SUBS = 1, GROUPS = 1, OFFSET = SIGNED_BIAS, PARTNER = 0, PARTS = 1, HALF = 0;
    static constexpr bool MIN = false;
    static constexpr Range RANGE = Range::SIGNED;
    template <int S, class From> INLINE void halves(From rows, int, Q &low, Q &high) {
        low = rows.bytes(2), high = rows.bytes(18);
        if (SIGNED_BIAS != 0)
            low = q_xor(low, SIGNED_BIAS), high = q_xor(high, SIGNED_BIAS);
    }
    template <class From> INLINE void scales(From rows, float *s, float *) { store(s, rows.half(0)); }
};

struct Q4_0 : Stored<SMELT_Q4_0> {
    static constexpr int SUBS = 1, GROUPS = 1, OFFSET = 8, PARTNER = 0, PARTS = 1, HALF = 0;
    static constexpr bool MIN = false;
    static constexpr Range RANGE = Range::NIBBLE;
    template <int S, class From> INLINE void halves(From rows, int, Q &low, Q &high) {
        Q v = rows.bytes(2);
        low = q_and(v, 0x0f), high = q_and(q_shr<4>(v), 0x0f);
    }
    template <class From> INLINE void scales(From rows, float *s, float *) { store(s, rows.half(0)); }
};

// The fifth bits of a block of Q5_0 and Q5_1. In a file, bit i of a word is element i's. Interleaved,
// bits are where a shift brings those of a word of codes into their bytes: swapping bits 4 and 1 of
// i, and 3 and 0, brings the bit of element 16 h + 4 w + j to 8 j + 4 (w mod 2) + 2 h + w / 2.
struct FifthBits {
    // From a file's order to the interleaved one.
    INLINE I swapped(I v) { return swapped<7>(swapped<14>(v, 0x0000cccc), 0x00aa00aa); }

    // Those of elements 0…15 and 16…31 as 16 in each byte.
    INLINE void read(Rows rows, int at, Q &low, Q &high) {
        alignas(64) uint8_t bytes[2][4 * W];
        const uint8_t *p = rows.p + at;
        for (int lane = 0; lane < W / 4; lane++, p += rows.stride) {
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
    template <class B> INLINE void read(Interleaved<B> rows, int at, Q &low, Q &high) {
        const Q bits = q_load(rows.place(at));
        switch (rows.word) {
        case 0:
            low = q_shl<4>(bits), high = q_shl<2>(bits);
            break;
        case 1:
            low = bits, high = q_shr<2>(bits);
            break;
        case 2:
            low = q_shl<3>(bits), high = q_shl<1>(bits);
            break;
        default:
            low = q_shr<1>(bits), high = q_shr<3>(bits);
        }
        low = q_and(low, 16), high = q_and(high, 16);
    }

private:
    template <int DISTANCE> INLINE I swapped(I v, uint32_t low) {
        const I kept = i_set1(static_cast<int32_t>(~(low | low << DISTANCE))),
                lower = i_set1(static_cast<int32_t>(low));
        return i_or(i_and(v, kept), i_or(i_shl<DISTANCE>(i_and(v, lower)), i_and(i_shr<DISTANCE>(v), lower)));
    }
};

// Elements of five bits: the fifth bits lie at byte `at`, before the others.
template <class From> INLINE void five_bits(From rows, int at, Q &low, Q &high) {
    Q v = rows.bytes(at + 4);
    FifthBits::read(rows, at, low, high);
    low = q_or(low, q_and(v, 0x0f)), high = q_or(high, q_and(q_shr<4>(v), 0x0f));
}

struct Q5_0 : Stored<SMELT_Q5_0> {
    static constexpr int SUBS = 1, GROUPS = 1, OFFSET = 16, PARTNER = 0, PARTS = 1, HALF = 0;
    static constexpr bool MIN = false;
    static constexpr Range RANGE = Range::SIX_BITS;
    template <int S, class From> INLINE void halves(From rows, int, Q &low, Q &high) { five_bits(rows, 2, low, high); }
    template <class From> INLINE void scales(From rows, float *s, float *) { store(s, rows.half(0)); }
};

struct Q5_1 : Stored<SMELT_Q5_1> {
    static constexpr int SUBS = 1, GROUPS = 1, OFFSET = 0, PARTNER = 0, PARTS = 1, HALF = NO_HALF;
    static constexpr bool MIN = true;
    static constexpr Range RANGE = Range::SIX_BITS;
    template <int S, class From> INLINE void halves(From rows, int, Q &low, Q &high) { five_bits(rows, 4, low, high); }
    template <class From> INLINE void scales(From rows, float *s, float *m) {
        store(s, rows.half(0));
        store(m, rows.half(2));
    }
};

// BITS bits of each byte from bit AT on, there or brought down.
template <int AT, int BITS, bool PLACED = false> INLINE Q some_bits(Q v) {
    constexpr uint8_t MASK = (1 << BITS) - 1;
    if constexpr (PLACED || AT == 0)
        return q_and(v, static_cast<uint8_t>(MASK << AT));
    else
        return q_and(q_shr<AT>(v), MASK);
}

// Stores the scales and minima of a block of a format with WHOLE_SCALES.
template <class B, class From> INLINE void spread_integers(From rows, float *s, float *m) {
    I c[4], n[4];
    B::integers(rows, c, n);
    F d = rows.half(B::D), low = zero() - rows.half(B::LOW);
    for (int i = 0; i < 4; i++) {
        spread_bytes(c[i], d, s + 4 * i * ROWS, B::BIAS);
        if (B::MIN)
            spread_bytes(n[i], low, m + 4 * i * ROWS);
    }
}

struct Q2_K : Stored<SMELT_Q2_K> {
    static constexpr int SUBS = 8, GROUPS = 2, OFFSET = 0, PARTNER = 0, PARTS = 2, HALF = NO_HALF;
    static constexpr bool MIN = true;
    static constexpr Range RANGE = Range::NIBBLE;
    static constexpr int BIAS = 0, D = 80, LOW = 82;
    template <int S> INLINE void halves(Rows rows, int part, Q &low, Q &high) {
        low = some_bits<2 * S, 2>(rows.bytes(16, part, 32)), high = some_bits<2 * S, 2>(rows.bytes(32, part, 32));
    }
    // In a copy a byte has both halves of two sub-blocks, so that each is one load.
    static constexpr int place(int sub, int half) { return 2 * (sub % 2) + 4 * half; }
    template <int S, bool PLACED = false, class B> INLINE void halves(Interleaved<B> rows, int part, Q &low, Q &high) {
        const Q v = rows.bytes(16 + S / 2 * 16, part, 32);
        low = some_bits<place(S, 0), 2, PLACED>(v), high = some_bits<place(S, 1), 2, PLACED>(v);
    }
    template <class To> INLINE void reorder(uint8_t *block, int row) {
        for (int i = 0; i < 8; i++) {
            const int word = 4 + i / 4 * 8 + i % 4;
            uint8_t *const first = block + To::offset(word) + row * 4, *const second =
                                                                           block + To::offset(word + 4) + row * 4;
            const Q low = q_load(first), high = q_load(second);
            q_store(first, q_or(q_and(low, 0x0f), q_and(q_shl<4>(high), 0xf0)));
            q_store(second, q_or(q_and(q_shr<4>(low), 0x0f), q_and(high, 0xf0)));
        }
    }
    template <class From> INLINE void integers(From rows, I c[4], I n[4]) {
        rows.words(0, n);
        for (int i = 0; i < 4; i++)
            c[i] = i_and(n[i], i_set1(0x0f0f0f0f)), n[i] = i_and(i_shr<4>(n[i]), i_set1(0x0f0f0f0f));
    }
    template <class From> INLINE void scales(From rows, float *s, float *m) { spread_integers<Q2_K>(rows, s, m); }
};
template <> constexpr bool WHOLE_SCALES<Q2_K> = true;

struct Q3_K : Stored<SMELT_Q3_K> {
    static constexpr int SUBS = 8, GROUPS = 2, OFFSET = 4, PARTNER = 0, PARTS = 2, HALF = 108;
    static constexpr bool MIN = false;
    static constexpr Range RANGE = Range::NIBBLE;
    static constexpr int BIAS = 32, D = 108, LOW = D;
    template <int S> INLINE void halves(Rows rows, int part, Q &low, Q &high) {
        low = three_bits<S>(rows.bytes(32, part, 32), q_shr_by(rows.bytes(0), 4 * part));
        high = three_bits<S>(rows.bytes(48, part, 32), q_shr_by(rows.bytes(16), 4 * part));
    }
    template <int S> INLINE Q three_bits(Q two, Q third) {
        return q_or(some_bits<2 * S, 2>(two), q_shl<2>(some_bits<S, 1>(third)));
    }
    // In a copy each of three bytes has both halves of a sub-block. The fourth sub-block has the upper
    // two bits in the tops of the first two bytes, and the lowest in the top of the third.
    static constexpr int place(int sub, int half) { return sub == 3 ? 5 : 3 * half; }
    template <int S, bool PLACED = false, class B> INLINE void halves(Interleaved<B> rows, int part, Q &low, Q &high) {
        if constexpr (S < 3) {
            const Q v = rows.bytes(16 * S, part, 48);
            low = some_bits<0, 3, PLACED>(v), high = some_bits<3, 3, PLACED>(v);
        } else {
            const Q first = rows.bytes(0, part, 48), second = rows.bytes(16, part, 48), v = rows.bytes(32, part, 48);
            if constexpr (PLACED) {
                low = q_or(q_and(first, 0xc0), q_and(q_shr<1>(v), 0x20));
                high = q_or(q_and(second, 0xc0), q_and(q_shr<2>(v), 0x20));
            } else {
                low = q_or(q_and(q_shr<5>(first), 6), some_bits<6, 1>(v));
                high = q_or(q_and(q_shr<5>(second), 6), some_bits<7, 1>(v));
            }
        }
    }
    template <class To> INLINE void reorder(uint8_t *block, int row) {
        for (int word = 0; word < 4; word++) {
            Q w[6]; // third bits of both halves, then both halves of each part
            uint8_t *to[6];
            for (int i = 0; i < 6; i++) {
                to[i] = block + To::offset(word + 4 * i) + row * 4;
                w[i] = q_load(to[i]);
            }
            for (int part = 0; part < 2; part++) {
                Q out[3] = {}, last[2];
                for (int half = 0; half < 2; half++) {
                    const Q two = w[2 + 2 * part + half], third = q_shr_by(w[half], 4 * part);
                    const Q all[3] = {three_bits<0>(two, third), three_bits<1>(two, third), three_bits<2>(two, third)};
                    for (int i = 0; i < 3; i++)
                        out[i] = half == 0 ? all[i] : q_or(out[i], q_shl<3>(all[i]));
                    last[half] = three_bits<3>(two, third);
                }
                for (int half = 0; half < 2; half++)
                    out[half] = q_or(out[half], q_shl<5>(q_and(last[half], 6)));
                out[2] = q_or(out[2], q_or(q_shl<6>(q_and(last[0], 1)), q_shl<7>(q_and(last[1], 1))));
                for (int i = 0; i < 3; i++)
                    q_store(to[3 * part + i], out[i]);
            }
        }
    }
    INLINE void scale_words(Rows rows, I w[3]) {
        // The twelve bytes of scales end two bytes before the block does: read
        // sixteen that lie inside it, two bytes early.
        I early[4];
        rows.words(94, early);
        for (int i = 0; i < 3; i++)
            w[i] = i_or(i_shr<16>(early[i]), i_shl<16>(early[i + 1]));
    }
    template <class From> INLINE void scale_words(From rows, I w[3]) {
        for (int i = 0; i < 3; i++)
            w[i] = q_words(q_load(rows.place(96 + 4 * i)));
    }
    template <class From> INLINE void integers(From rows, I c[4], I *) {
        I w[3], four = i_set1(0x0f0f0f0f), top = i_set1(0x30303030);
        scale_words(rows, w);
        c[0] = i_or(i_and(w[0], four), i_and(i_shl<4>(w[2]), top));
        c[1] = i_or(i_and(w[1], four), i_and(i_shl<2>(w[2]), top));
        c[2] = i_or(i_and(i_shr<4>(w[0]), four), i_and(w[2], top));
        c[3] = i_or(i_and(i_shr<4>(w[1]), four), i_and(i_shr<2>(w[2]), top));
    }
    template <class From> INLINE void scales(From rows, float *s, float *m) { spread_integers<Q3_K>(rows, s, m); }
};
template <> constexpr bool WHOLE_SCALES<Q3_K> = true;

struct Q4_K : Stored<SMELT_Q4_K> {
    static constexpr int SUBS = 8, GROUPS = 1, OFFSET = 0, PARTNER = 1, PARTS = 4, HALF = NO_HALF;
    static constexpr bool MIN = true;
    static constexpr Range RANGE = Range::NIBBLE;
    template <int S, class From> INLINE void read(From rows, int part, Q raw[4], int first = 16) {
        raw[0] = q_once(rows.bytes(first, part, 32)), raw[1] = q_once(rows.bytes(first + 16, part, 32));
    }
    template <int S> INLINE void halves_from(const Q raw[4], Q &low, Q &high) {
        low = q_and(q_shr<4 * S>(raw[0]), 0x0f), high = q_and(q_shr<4 * S>(raw[1]), 0x0f);
    }
    template <class From> INLINE void scales(From rows, float *s, float *m) { scales_k4(rows, s, m); }
};

struct Q5_K : Stored<SMELT_Q5_K> {
    static constexpr int SUBS = 8, GROUPS = 1, OFFSET = 0, PARTNER = 1, PARTS = 4, HALF = NO_HALF;
    static constexpr bool MIN = true;
    static constexpr Range RANGE = Range::SIX_BITS;
    template <int S, class From> INLINE void read(From rows, int part, Q raw[4]) {
        Q4_K::read<S>(rows, part, raw, 48);
        raw[2] = q_shr_by(rows.bytes(16), 2 * part), raw[3] = q_shr_by(rows.bytes(32), 2 * part);
    }
    template <int S> INLINE void halves_from(const Q raw[4], Q &low, Q &high) {
        Q4_K::halves_from<S>(raw, low, high);
        low = q_or(low, fifth_bit<S>(raw[2])), high = q_or(high, fifth_bit<S>(raw[3]));
    }
    template <int S> INLINE Q fifth_bit(Q v) { return q_and(q_shl<4 - S>(v), 16); }
    template <class From> INLINE void scales(From rows, float *s, float *m) { scales_k4(rows, s, m); }
};

struct Q6_K : Stored<SMELT_Q6_K> {
    static constexpr int SUBS = 8, GROUPS = 2, OFFSET = 32, PARTNER = 2, PARTS = 2, HALF = 208;
    static constexpr bool MIN = false;
    static constexpr Range RANGE = Range::SIX_BITS;
    template <int S, class From> INLINE void read(From rows, int part, Q raw[4]) {
        constexpr int FOUR = 32 * (S % 2), TWO = 128;
        raw[0] = rows.bytes(FOUR, part, 64), raw[1] = rows.bytes(FOUR + 16, part, 64);
        raw[2] = rows.bytes(TWO, part, 32), raw[3] = rows.bytes(TWO + 16, part, 32);
    }
    template <int S> INLINE void halves_from(const Q raw[4], Q &low, Q &high) {
        low = six_bits<S>(raw[0], raw[2]), high = six_bits<S>(raw[1], raw[3]);
    }
    template <int QUARTER> INLINE Q six_bits(Q four, Q two) {
        four = q_and(q_shr<4 * (QUARTER / 2)>(four), 0x0f);
        if constexpr (QUARTER < 3)
            two = q_shl<4 - 2 * QUARTER>(two);
        else
            two = q_shr<2>(two);
        return q_or(four, q_and(two, 0x30));
    }
    template <class From> INLINE void scales(From rows, float *s, float *) {
        I w[4];
        rows.words(192, w);
        F d = rows.half(208);
        for (int i = 0; i < 4; i++)
            spread_bytes<true>(w[i], d, s + 4 * i * ROWS);
    }
};

// Of eight words, whose first four and last four are read by turns.
constexpr int by_turns(int word) { return word / 8 * 8 + word % 4 * 2 + word % 8 / 4; }
template <> constexpr int place_of<Q8_0>(int word) { return by_turns(word); }
template <> constexpr int place_of<Q4_K>(int word) { return word < 4 ? word : 4 + by_turns(word - 4); }
template <> constexpr int place_of<Q5_K>(int word) { return place_of<Q4_K>(word); }
// Scales first.
template <> constexpr int place_of<Q2_K>(int word) { return word < 20 ? word + 1 : 0; }
template <> constexpr int place_of<Q3_K>(int word) { return word < 24 ? word + 3 : word - 24; }
// Scales first, then each half of a block as its sub-blocks take it: low bits of the first and
// the third beside the high bits of all four, then low bits of the others.
template <> constexpr int place_of<Q6_K>(int word) {
    constexpr int SCALES = 48, HIGH = 32;
    if (word >= SCALES)
        return word - SCALES;
    const bool high = word >= HIGH;
    const int part = high ? (word - HIGH) / 8 : word / 16, turn = by_turns(word % 8), both = turn / 2 * 4 + turn % 2;
    return 4 + 24 * part + (high ? both + 2 : word / 8 % 2 == 0 ? both : 16 + turn);
}

// The interleaved word of a format that has the order of FifthBits, or −1.
template <class B> constexpr int FIFTH_BITS = -1;
template <> constexpr int FIFTH_BITS<Q5_0> = 0;
template <> constexpr int FIFTH_BITS<Q5_1> = 1;

// Sub-blocks of a part.
template <class B> constexpr int RUN = B::SUBS / B::PARTS;

template <class B, class Fn> INLINE void each_part(Fn f) {
    if constexpr (B::PARTS == 1) {
        f(0);
    } else {
        for (int part = 0, parts = unknown(B::PARTS); part < parts; part++)
            f(part);
    }
}

// Applies f to the first row of each vector of W rows in a group of ROWS: of small blocks at
// once, since a loop would take as long as its body.
template <class B, class Fn> INLINE void each_vector_of(Fn f) {
    if constexpr (B::PARTS == 1)
        repeat<ROWS / W>([&](auto v) __attribute__((always_inline)) { f(v.value * W); });
    else
        each_vector(f);
}

// u of elements 0…15 and 16…31 of sub-block S of a part.
template <class B, int S, class From> INLINE void halves(From rows, int part, Q &low, Q &high) {
    if constexpr (B::PARTNER == 0) {
        B::template halves<S>(rows, part, low, high);
    } else {
        Q raw[4];
        B::template read<S>(rows, part, raw);
        B::template halves_from<S>(raw, low, high);
    }
}

// Of N sub-blocks from S on; the same words hold them if there are two.
template <class B, int S, class From, int N>
INLINE void halves_together(From rows, int part, Q (&low)[N], Q (&high)[N]) {
    if constexpr (N == 1) {
        halves<B, S>(rows, part, low[0], high[0]);
    } else {
        static_assert(B::PARTNER != 0 && N == 2);
        Q raw[4];
        B::template read<S>(rows, part, raw);
        B::template halves_from<S>(raw, low[0], high[0]);
        B::template halves_from<S + B::PARTNER>(raw, low[1], high[1]);
    }
}

// Where sums of a half of a sub-block with whole scales lie.
template <class B, int S> constexpr int place_at(int half) {
    if constexpr (WHOLE_SCALES<B> && PLACED)
        return B::place(S, half);
    return 0;
}

// Writes the elements of a block as floats, from their codes by sub-block and half, and scales
// that lie ROWS apart.
template <class B>
static void widen_block(const uint8_t (*bytes)[2][4 * W], const float *s, const float *m, float *out) {
    for (int i = 0; i < static_cast<int>(B::ELEMS); i++) {
        int group = (i / 32 * B::GROUPS + i % 32 / 16 * (B::GROUPS - 1)) * ROWS;
        uint8_t u = bytes[i / 32][i % 32 / 16][i % 16];
        int v = B::RANGE == Range::SIGNED && SIGNED_BIAS == 0 ? static_cast<int8_t>(u) : u;
        float y = s[group] * static_cast<float>(v - B::OFFSET);
        out[i] = B::MIN ? y + m[group] : y;
    }
}
// Writes a row of n elements, a multiple of ELEMS, as floats.
template <class B> static void dequantize_row(const uint8_t *p, float *out, uint64_t n) {
    for (uint64_t done = 0; done < n; done += B::ELEMS, p += B::BYTES) {
        alignas(64) float s[B::SUBS * B::GROUPS * ROWS], m[B::SUBS * B::GROUPS * ROWS];
        const Rows same{p, 0}; // every row is this one
        B::scales(same, s, m);
        alignas(64) uint8_t bytes[B::SUBS][2][4 * W];
        each_part<B>([&](int part) {
            repeat<RUN<B>>([&](auto sub) {
                Q low, high;
                halves<B, sub.value>(same, part, low, high);
                auto &to = bytes[part * RUN<B> + sub.value];
                q_store(to[0], low), q_store(to[1], high);
            });
        });
        widen_block<B>(bytes, s, m, out + done);
    }
}

// ---- interleaving

// Writes a block of each of ROWS rows, which lie `stride` bytes apart, interleaved.
template <class B> APART static void put_block(const uint8_t *rows, size_t stride, uint8_t *out) {
    using To = Interleaved<B>;
    constexpr int SKIPPED = To::SKIPPED, WORDS = To::WORDS, FOURS = WORDS / 4 * 4;
    each_vector([&](int of) {
        const Rows from = Rows{rows, stride}.from(of);
        for (int word = 0; word < FOURS; word += 4) {
            I w[4];
            from.words(SKIPPED + 4 * word, w);
            if constexpr (FIFTH_BITS<B> >= 0)
                if (word == FIFTH_BITS<B> / 4 * 4)
                    w[FIFTH_BITS<B> % 4] = FifthBits::swapped(w[FIFTH_BITS<B> % 4]);
            for (int i = 0; i < 4; i++)
                memcpy(out + To::offset(word + i) + of * 4, &w[i], sizeof w[i]);
        }
        for (int r = 0; r < W; r++) {
            const uint8_t *row = from.p + static_cast<size_t>(r) * stride;
            for (int i = FOURS; i < WORDS; i++)
                memcpy(out + To::offset(i) + (of + r) * 4, row + SKIPPED + 4 * i, 4);
            if constexpr (B::HALF >= 0)
                memcpy(out + (of + r) * 2, row + B::HALF, 2);
        }
        if constexpr (WHOLE_SCALES<B>)
            B::template reorder<To>(out, of);
    });
}
// Writes groups of ROWS rows of `blocks` blocks each, interleaved.
template <class B> static void interleave(const uint8_t *rows, uint64_t blocks, uint64_t groups, uint8_t *out) {
    const size_t stride = blocks * B::BYTES;
    for (uint64_t g = 0; g < groups; g++, rows += ROWS * stride)
        for (uint64_t b = 0; b < blocks; b++, out += Interleaved<B>::BYTES)
            put_block<B>(rows + b * B::BYTES, stride, out);
}

// Formats that few files have.
template <class B> constexpr bool RARE = false;
template <> constexpr bool RARE<Q2_K> = true;
template <> constexpr bool RARE<Q3_K> = true;
// Whether rows of a file are multiplied through interleaved copies, block by block. Formats whose
// weights are rarely left in rows use it instead of code for rows, which would be most of their
// code, and those whose fifth bits are slow to read in rows.
template <class B> constexpr bool BY_COPY = RARE<B> || FIFTH_BITS<B> >= 0;

// Writes a row of n elements of an interleaved weight as floats.
template <class B> static void dequantize_interleaved(const uint8_t *p, uint64_t row, float *out, uint64_t n) {
    using From = Interleaved<B>;
    const uint8_t *group = p + row / ROWS * ROWS * (n / B::ELEMS * B::BYTES);
    const int lane = static_cast<int>(row % W), first = static_cast<int>(row % ROWS) - lane; // of W rows
    for (uint64_t at = 0; at < n; at += B::ELEMS, group += From::BYTES) {
        alignas(64) float s[B::SUBS * B::GROUPS * ROWS], m[B::SUBS * B::GROUPS * ROWS];
        B::scales(From{group, first, 0}, s, m);
        alignas(64) uint8_t bytes[B::SUBS][2][4 * W], words[2][4 * W];
        each_part<B>([&](int part) {
            repeat<RUN<B>>([&](auto sub) {
                for (int word = 0; word < 4; word++) {
                    Q low, high;
                    halves<B, sub.value>(From{group, first, word}, part, low, high);
                    q_store(words[0], low), q_store(words[1], high);
                    for (int half = 0; half < 2; half++)
                        memcpy(bytes[part * RUN<B> + sub.value][half] + 4 * word, words[half] + 4 * lane, 4);
                }
            });
        });
        widen_block<B>(bytes, s + lane, m + lane, out + at);
    }
}

// The formats above, those with an OFFSET and those with a minimum.
#define OFFSET_BLOCKS(X) X(Q8_0) X(Q4_0) X(Q5_0) X(Q3_K) X(Q6_K)
#define MINIMUM_BLOCKS(X) X(Q5_1) X(Q2_K) X(Q4_K) X(Q5_K)
