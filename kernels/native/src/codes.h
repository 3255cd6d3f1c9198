// Formats whose codes of four bits name one of sixteen signed bytes, and whose 32 elements share
// a scale: the same code for all of them. What differs is data: the bytes, which a shuffle looks
// up, and how a block's scales are stored, which is asked once for a block of ROWS rows.
//
// Interleaved, a block of ROWS rows is first what precedes the codes, in pieces of a row that are
// its size or four bytes, [pieces][ROWS], and then the codes, [ELEMS/8][ROWS] words.

struct CodeBook {
    uint32_t type, elems, bytes; // of a block
    const int8_t *values;
    // Stores the scales of the elems/32 sub-blocks of ROWS rows, [sub-blocks][ROWS], from what
    // precedes their codes.
    void (*scales)(const uint8_t *heads, float *s);

    MEMBER uint32_t head() const { return bytes - elems / 2; }
    MEMBER uint32_t subs() const { return elems / 32; }
};
constexpr uint32_t MOST_CODE_BYTES = 136, MOST_SUBS = 8; // of a block

static void half_scales(const uint8_t *heads, float *s) {
    each_vector([&](int of) { store(s + of, load_f16(heads + of * 2)); });
}
// 2^(e − 128).
static void exponent_scales(const uint8_t *heads, float *s) {
    each_vector([&](int of) {
        F e = load_i8(reinterpret_cast<const int8_t *>(heads + of)), middle = set1(128.0f);
        store(s + of, scale_exponent(set1(1.0f), where_below(e, zero(), e + middle, e - middle)));
    });
}
// Eight times six bits less 32, of which a word has four each, and d.
static void six_bit_scales(const uint8_t *heads, float *s) {
    each_vector([&](int of) {
        I first = q_words(q_load(heads + of * 4)), low = q_words(q_load(heads + (ROWS + of) * 4));
        F d = halves_of(first);
        I high = i_shr<16>(first), four = i_set1(15), two = i_set1(3);
        repeat<8>([&](auto i) {
            constexpr int SUB = decltype(i)::value;
            I six = i_or(i_and(i_shr<4 * SUB>(low), four), i_shl<4>(i_and(i_shr<2 * SUB>(high), two)));
            store(s + SUB * ROWS + of, d * (to_float(six) - set1(32.0f)));
        });
    });
}

constexpr CodeBook IQ4_NL = {SMELT_IQ4_NL, 32, 18, IQ4_VALUES, half_scales};
constexpr CodeBook IQ4_XS = {SMELT_IQ4_XS, 256, 136, IQ4_VALUES, six_bit_scales};
constexpr CodeBook MXFP4 = {SMELT_MXFP4, 32, 17, MXFP4_VALUES, exponent_scales};

// The elements of a sub-block as the products see them: those of a format with one scale for
// each 32 signed bytes.
struct Named {
    static constexpr uint32_t ELEMS = 32, BYTES = 17;
    static constexpr int SUBS = 1, GROUPS = 1, OFFSET = SIGNED_BIAS, PARTNER = 0, PARTS = 1;
    static constexpr bool MIN = false;
    static constexpr Range RANGE = Range::SIGNED;
    template <int S, class From> INLINE void halves(From rows, int, Q &low, Q &high) {
        Q v = rows.bytes();
        low = q_lookup(rows.values, q_and(v, 0x0f)), high = q_lookup(rows.values, q_and(q_shr<4>(v), 0x0f));
    }
};
// The codes of a sub-block of ROWS rows.
template <> struct Interleaved<Named> {
    static constexpr size_t BYTES = size_t{Named::BYTES} * ROWS;
    const uint8_t *p;
    int row, word;
    Q values; // in each lane of 16

    MEMBER Interleaved at(const uint8_t *p, int row, int word) const { return {p, row, word, values}; }
    MEMBER Q bytes() const { return q_load(p + (word * ROWS + row) * 4); }
};
// Scales of a sub-block.
struct NamedScales {
    const float *s, *m;
};

INLINE Interleaved<Named> named_by(const CodeBook &of) {
    return {nullptr, 0, 0, q_xor(q_same16(of.values), SIGNED_BIAS)};
}

// Writes what precedes the codes of a block of ROWS rows that lie `stride` bytes apart.
SMALL static void put_heads(const CodeBook &of, const uint8_t *rows, size_t stride, uint8_t *out) {
    const size_t head = of.head(), piece = least(head, 4);
    for (size_t at = 0; at < head; at += piece)
        for (size_t r = 0; r < ROWS; r++, out += piece)
            for (size_t i = 0; i < piece; i++)
                out[i] = rows[r * stride + at + i];
}
// Writes a block of ROWS rows.
SMALL static void put_block(const CodeBook &of, const uint8_t *rows, size_t stride, uint8_t *out) {
    put_heads(of, rows, stride, out);
    out += of.head() * ROWS;
    for (size_t at = of.head(); at < of.bytes; at += 4)
        for (size_t r = 0; r < ROWS; r++, out += 4)
            memcpy(out, rows + r * stride + at, 4);
}

// The interleaved blocks of a group of rows, each for as long as the next one is not asked for.
struct CodeBlocks {
    const CodeBook &of;
    const RowGroup &g;
    alignas(64) uint8_t copy[MOST_CODE_BYTES * ROWS];

    // The one that begins with element `at`, of a group that lies `apart` bytes on.
    MEMBER const uint8_t *at(uint64_t at, size_t apart) {
        const size_t before = at / of.elems * of.bytes;
        if (g.interleaved)
            return g.rows + apart + before * ROWS;
        put_block(of, g.rows + before, g.stride, copy);
        return copy;
    }
};

// T tokens, or fewer, times S groups of rows.
template <int T, int S> static void multiply_named(const RowGroup &g, const CodeBook &of) {
    constexpr int V = ROWS / W;
    const auto from = named_by(of);
    const int8_t *q = g.act->q;
    const float *scale = g.act->scale;
    const uint32_t *extra = g.extra;
    CodeBlocks blocks{of, g, {}};
    alignas(64) float s[S][MOST_SUBS * ROWS];
    F sum[S][T][V];
    UNROLL for (F(&group)[T][V] : sum) UNROLL for (F(&token)[V] : group) UNROLL for (F &v : token) v = zero();
    for (uint64_t at = 0; at < g.k;) {
        const uint8_t *p = nullptr;
        for (int i = S - 1; i >= 0; i--) { // several groups are interleaved, so that p is the first one's
            p = blocks.at(at, static_cast<size_t>(i) * g.apart);
            of.scales(p, s[i]);
        }
        p += of.head() * ROWS;
        for (uint32_t sub = 0; sub < of.subs(); sub++, at += 32, p += 16 * ROWS) {
            NamedScales scales[S];
            UNROLL for (int i = 0; i < S; i++) scales[i] = {s[i] + sub * ROWS, s[i]};
            multiply_block<Named, T, S>(from, p, g, q, scale, extra, scales, sum);
            q += 32, scale++, extra++;
        }
    }
    UNROLL for (int i = 0; i < S; i++) UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < V; v++)
        store(g.sum[i + t] + v * W, sum[i][t][v]);
}

static void unpack_named(const RowGroup &g, const CodeBook &of, uint64_t first, uint64_t elements,
                         Panel<Named> &panel) {
    auto from = named_by(of);
    CodeBlocks blocks{of, g, {}};
    uint8_t *out = panel.words;
    float *s = panel.s;
    for (uint64_t at = first; at < first + elements; at += of.elems, s += of.subs() * ROWS) {
        const uint8_t *p = blocks.at(at, 0);
        of.scales(p, s);
        p += of.head() * ROWS;
        for (uint32_t sub = 0; sub < of.subs(); sub++, p += 16 * ROWS, out += 32 * ROWS)
            each_vector([&](int row) { put_interleaved<Named, 0>(out, from.at(p, row, 0), 0, row); });
    }
}

static void multiply_codes(const RowGroup &g, const CodeBook &of) {
    if (g.act->few) {
        in_streams<STREAMS>(g,
                            [&](const RowGroup &some, auto t, auto s) { multiply_named<t.value, s.value>(some, of); });
        return;
    }
    multiply_panels<Named>(g, of.elems, of.bytes, [&](Panel<Named> &panel, uint64_t at, uint64_t elements) {
        unpack_named(g, of, at, elements, panel);
    });
}
template <const CodeBook &OF> static void multiply_codes(const RowGroup &g) { multiply_codes(g, OF); }

// ---- copies and single rows

static void interleave_codes(const CodeBook &of, const uint8_t *rows, uint64_t blocks, uint64_t groups, uint8_t *out) {
    const size_t stride = blocks * of.bytes;
    for (uint64_t g = 0; g < groups; g++, rows += ROWS * stride)
        for (uint64_t b = 0; b < blocks; b++, out += of.bytes * ROWS)
            put_block(of, rows + b * of.bytes, stride, out);
}
template <const CodeBook &OF>
static void interleave_codes(const uint8_t *rows, uint64_t blocks, uint64_t groups, uint8_t *out) {
    interleave_codes(OF, rows, blocks, groups, out);
}

// Writes a row of n elements as floats: block after block as code(i, j) has byte j of the codes
// of sub-block i, and heads what precedes them in ROWS rows, of which it is the r-th.
template <class Heads, class Code>
INLINE void widen_blocks(const CodeBook &of, size_t r, float *out, uint64_t n, Heads heads, Code code) {
    alignas(64) float s[MOST_SUBS * ROWS];
    for (uint64_t block = 0; block < n / of.elems; block++) {
        of.scales(heads(block), s);
        for (uint32_t i = 0; i < of.subs(); i++, out += 32) {
            for (uint32_t j = 0; j < 16; j++) {
                const uint8_t both = code(block, i, j);
                out[j] = s[i * ROWS + r] * static_cast<float>(of.values[both & 15]);
                out[j + 16] = s[i * ROWS + r] * static_cast<float>(of.values[both >> 4]);
            }
        }
    }
}
SMALL static void widen_codes(const CodeBook &of, const uint8_t *p, float *out, uint64_t n) {
    uint8_t same[8 * ROWS]; // every row is this one
    widen_blocks(
        of, 0, out, n,
        [&](uint64_t block) {
            put_heads(of, p + block * of.bytes, 0, same);
            return same;
        },
        [&](uint64_t block, uint32_t i, uint32_t j) { return p[block * of.bytes + of.head() + 16 * i + j]; });
}
SMALL static void widen_interleaved_codes(const CodeBook &of, const uint8_t *p, uint64_t row, float *out, uint64_t n) {
    const uint8_t *group = p + row / ROWS * ROWS * (n / of.elems * of.bytes);
    const size_t r = row % ROWS;
    widen_blocks(
        of, r, out, n, [&](uint64_t block) { return group + block * of.bytes * ROWS; },
        [&](uint64_t block, uint32_t i, uint32_t j) {
            return group[(block * of.bytes + of.head() + 16 * i + j / 4 * 4) * ROWS + r * 4 + j % 4];
        });
}
template <const CodeBook &OF> static void widen_codes(const uint8_t *p, float *out, uint64_t n) {
    widen_codes(OF, p, out, n);
}
template <const CodeBook &OF>
static void widen_interleaved_codes(const uint8_t *p, uint64_t row, float *out, uint64_t n) {
    widen_interleaved_codes(OF, p, row, out, n);
}

template <const CodeBook &OF> constexpr WeightType code_type() {
    return {OF.type, OF.elems, OF.bytes, true, {Named::GROUPS, Named::OFFSET, Named::MIN}, multiply_codes<OF>,
            nullptr, nullptr,  nullptr};
}
// The same with what an overlay has from the set below it.
template <const CodeBook &OF> constexpr WeightType stored_code_type() {
    WeightType t = code_type<OF>();
    t.widen = widen_codes<OF>, t.interleave = interleave_codes<OF>, t.widen_interleaved = widen_interleaved_codes<OF>;
    return t;
}
