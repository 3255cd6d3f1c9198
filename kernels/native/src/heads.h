// Formats whose block is a head with its scales, followed by the codes, 32 elements after
// another: formats with the same kind of codes share their code. They differ in data, and in
// the decoding of the head, which is chosen once per block of ROWS rows.
//
// Interleaved, a block of ROWS rows is first the heads, in pieces of a row that are a head's size
// or four bytes, [pieces][ROWS], and then the codes, [words][ROWS] of 32 bits.
//
// A kind of codes is a struct with the members that products.h needs of a block, ELEMS = 32, and
//   CODES    bytes of 32 elements
//   SHARED   the scale and the minimum are those of the whole block, and read as the first's
//   number   element i of 32, before it is scaled, of a format, where byte j of the codes is
//            code(j)

struct Headed {
    uint32_t type, elems, bytes, head; // of a block, and bytes of its head
    // Stores the scales, and minima, of the sub-blocks of ROWS rows, [sub-blocks][ROWS].
    void (*scales)(const uint8_t *heads, float *s, float *m);
    const int8_t *values; // that codes name, or null

    MEMBER uint32_t subs() const { return elems / 32; }
};
constexpr uint32_t MOST_HEADED_BYTES = 136, MOST_SUBS = 8; // of a block

// The format of a type whose blocks begin with a head of `head` bytes.
template <uint32_t TYPE>
constexpr Headed headed(uint32_t head, void (*scales)(const uint8_t *, float *, float *), const int8_t *values) {
    static_assert(Stored<TYPE>::BYTES <= MOST_HEADED_BYTES && Stored<TYPE>::ELEMS / 32 <= MOST_SUBS, "a block fits");
    return {TYPE, Stored<TYPE>::ELEMS, Stored<TYPE>::BYTES, head, scales, values};
}

// The codes of a sub-block of ROWS rows.
template <class E> struct Codes {
    const uint8_t *p;
    int row, word;
    Q values; // in each lane of 16

    static constexpr size_t BYTES = size_t{E::BYTES} * ROWS;
    MEMBER Codes at(const uint8_t *p, int row, int word) const { return {p, row, word, values}; }
    // Of sixteen bytes of each row from `at` on the four of `word`.
    MEMBER Q bytes(int at = 0) const { return q_load(p + ((at / 4 + word) * ROWS + row) * 4); }
};

// Writes the heads of ROWS rows that lie `stride` bytes apart.
SMALL static void put_heads(const Headed &of, const uint8_t *rows, size_t stride, uint8_t *out) {
    const size_t piece = least(of.head, 4);
    for (size_t at = 0; at < of.head; at += piece)
        for (size_t r = 0; r < ROWS; r++, out += piece)
            for (size_t i = 0; i < piece; i++)
                out[i] = rows[r * stride + at + i];
}
// Writes a block of ROWS rows.
SMALL static void put_block(const Headed &of, const uint8_t *rows, size_t stride, uint8_t *out) {
    put_heads(of, rows, stride, out);
    out += of.head * ROWS;
    for (size_t at = of.head; at < of.bytes; at += 4)
        for (size_t r = 0; r < ROWS; r++, out += 4)
            memcpy(out, rows + r * stride + at, 4);
}

// The interleaved blocks of a group of rows. A block is valid until the next is requested.
struct HeadedBlocks {
    const Headed &of;
    const RowGroup &g;
    alignas(64) uint8_t copy[MOST_HEADED_BYTES * ROWS];

    // The one that begins with element `at`, of a group that lies `apart` bytes on.
    MEMBER const uint8_t *at(uint64_t at, size_t apart) {
        const size_t before = at / of.elems * of.bytes;
        if (g.interleaved)
            return g.rows + apart + before * ROWS;
        put_block(of, g.rows + before, g.stride, copy);
        return copy;
    }
};

// Scales and minima of the sub-blocks of a block of ROWS rows.
template <class E> struct HeadScales {
    alignas(64) float s[MOST_SUBS * ROWS], m[E::MIN ? MOST_SUBS * ROWS : ROWS];
};
// Those of a sub-block.
struct SubScales {
    const float *s, *m;
};
template <class E> INLINE SubScales scales_of(const HeadScales<E> &block, uint32_t sub) {
    const size_t at = E::SHARED ? 0 : size_t{sub} * ROWS;
    return {block.s + at, block.m + (E::MIN ? at : 0)};
}

// T tokens, or fewer, times S groups of rows.
template <class E, int T, int S> static void multiply_headed(const RowGroup &g, const Headed &of) {
    constexpr int V = ROWS / W;
    const auto from = E::codes(of);
    const uint64_t first = g.first * (g.k / 32);
    const int8_t *q = g.act->q + 32 * first;
    const float *scale = g.act->scale + first;
    const uint32_t *extra = g.extra + first;
    HeadedBlocks blocks{of, g, {}};
    HeadScales<E> heads[S];
    F sum[S][T][V];
    UNROLL for (F(&group)[T][V] : sum) UNROLL for (F(&token)[V] : group) UNROLL for (F &v : token) v = zero();
    for (uint64_t at = 0; at < g.k;) {
        const uint8_t *p = nullptr;
        for (int i = S - 1; i >= 0; i--) { // several groups are interleaved, so that p is the first one's
            p = blocks.at(at, static_cast<size_t>(i) * g.apart);
            of.scales(p, heads[i].s, heads[i].m);
        }
        p += of.head * ROWS;
        for (uint32_t sub = 0; sub < of.subs(); sub++, at += 32, p += E::CODES * ROWS) {
            SubScales scales[S];
            UNROLL for (int i = 0; i < S; i++) scales[i] = scales_of(heads[i], sub);
            multiply_block<E, T, S>(from, p, g, q, scale, extra, scales, sum);
            q += 32, scale++, extra++;
        }
    }
    UNROLL for (int i = 0; i < S; i++) UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < V; v++)
        store(g.sum[i + t] + v * W, sum[i][t][v]);
}

template <class E>
static void unpack_headed(const RowGroup &g, const Headed &of, uint64_t first, uint64_t elements, Panel<E> &panel) {
    const auto from = E::codes(of);
    HeadedBlocks blocks{of, g, {}};
    HeadScales<E> heads;
    uint8_t *out = panel.words;
    float *to_s = panel.s, *to_m = panel.m;
    for (uint64_t at = first; at < first + elements; at += of.elems) {
        const uint8_t *p = blocks.at(at, 0);
        of.scales(p, heads.s, heads.m);
        p += of.head * ROWS;
        for (uint32_t sub = 0; sub < of.subs(); sub++, p += E::CODES * ROWS, out += 32 * ROWS, to_s += ROWS) {
            const SubScales scales = scales_of(heads, sub);
            memcpy(to_s, scales.s, ROWS * sizeof(float));
            if (E::MIN)
                memcpy(to_m, scales.m, ROWS * sizeof(float)), to_m += ROWS;
            each_vector([&](int row) { put_interleaved<E, 0>(out, from.at(p, row, 0), 0, row, [](Q &, Q &) {}); });
        }
    }
}

template <class E> static void multiply_headed(const RowGroup &g, const Headed &of) {
    if (g.act->few) {
        in_streams<STREAMS_OF<E>, AT_ONCE, AT_ONCE>(
            g, [&](const RowGroup &some, auto t, auto s) { multiply_headed<E, t.value, s.value>(some, of); });
        return;
    }
    multiply_panels<E>(g, of.elems, of.bytes,
                       [&](Panel<E> &panel, const RowGroup &one, uint64_t at, uint64_t elements) {
                           unpack_headed(one, of, at, elements, panel);
                       });
}

// ---- copies and single rows

static void interleave_headed(const Headed &of, const uint8_t *rows, uint64_t blocks, uint64_t groups, uint8_t *out) {
    const size_t stride = blocks * of.bytes;
    for (uint64_t g = 0; g < groups; g++, rows += ROWS * stride)
        for (uint64_t b = 0; b < blocks; b++, out += of.bytes * ROWS)
            put_block(of, rows + b * of.bytes, stride, out);
}

// Writes a row of n elements as floats: block after block as code(b, i) has byte i of the codes
// of block b, and heads(b) the heads of ROWS rows, of which it is the r-th.
template <class E, class Heads, class Code>
INLINE void widen_blocks(const Headed &of, size_t r, float *out, uint64_t n, Heads heads, Code code) {
    alignas(64) float s[MOST_SUBS * ROWS], m[MOST_SUBS * ROWS];
    for (uint64_t block = 0; block < n / of.elems; block++) {
        of.scales(heads(block), s, m);
        for (uint32_t i = 0; i < of.elems; i++, out++) {
            const size_t place = (E::SHARED ? 0 : i / 32 * ROWS) + r;
            const int number = E::number(of, i % 32, [&](uint32_t j) { return code(block, i / 32 * E::CODES + j); });
            const float y = s[place] * static_cast<float>(number);
            *out = E::MIN ? y + m[place] : y;
        }
    }
}
template <class E> SMALL static void widen_headed(const Headed &of, const uint8_t *p, float *out, uint64_t n) {
    uint8_t same[8 * ROWS]; // every row is this one
    widen_blocks<E>(
        of, 0, out, n,
        [&](uint64_t block) {
            put_heads(of, p + block * of.bytes, 0, same);
            return same;
        },
        [&](uint64_t block, uint32_t i) { return p[block * of.bytes + of.head + i]; });
}
template <class E>
SMALL static void widen_interleaved_headed(const Headed &of, const uint8_t *p, uint64_t row, float *out, uint64_t n) {
    const uint8_t *group = p + row / ROWS * ROWS * (n / of.elems * of.bytes);
    const size_t r = row % ROWS;
    widen_blocks<E>(
        of, r, out, n, [&](uint64_t block) { return group + block * of.bytes * ROWS; },
        [&](uint64_t block, uint32_t i) {
            return group[(block * of.bytes + of.head + i / 4 * 4) * ROWS + r * 4 + i % 4];
        });
}

// ---- a format behind the pointers of a launch

template <class E, const Headed &OF> static void multiply_format(const RowGroup &g) { multiply_headed<E>(g, OF); }
template <const Headed &OF>
static void interleave_format(const uint8_t *rows, uint64_t blocks, uint64_t groups, uint8_t *out) {
    interleave_headed(OF, rows, blocks, groups, out);
}
template <class E, const Headed &OF> static void widen_format(const uint8_t *p, float *out, uint64_t n) {
    widen_headed<E>(OF, p, out, n);
}
template <class E, const Headed &OF>
static void widen_interleaved_format(const uint8_t *p, uint64_t row, float *out, uint64_t n) {
    widen_interleaved_headed<E>(OF, p, row, out, n);
}

template <class E, const Headed &OF> constexpr WeightType headed_type() {
    return {OF.type, OF.elems, OF.bytes, STREAMS_OF<E>, true, {E::GROUPS, E::OFFSET, E::MIN}, multiply_format<E, OF>,
            nullptr, nullptr,  nullptr,  Panel<E>::MOST};
}
// The same with what an overlay has from the set below it.
template <class E, const Headed &OF> constexpr WeightType stored_headed_type() {
    WeightType t = headed_type<E, OF>();
    t.widen = widen_format<E, OF>, t.interleave = interleave_format<OF>;
    t.widen_interleaved = widen_interleaved_format<E, OF>;
    return t;
}

// An entry of a list of a unit: of a format of blocks.h, and of one with a kind of codes.
#ifdef BASE
#define BLOCK(FORMAT) block_type<FORMAT>(),
#define HEAD(CODES, FORMAT) headed_type<CODES, FORMAT>(),
#else
#define BLOCK(FORMAT) stored_block_type<FORMAT>(),
#define HEAD(CODES, FORMAT) stored_headed_type<CODES, FORMAT>(),
#endif
