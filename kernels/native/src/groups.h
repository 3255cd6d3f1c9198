// What the launch of a linear layer and the products of each weight type share, which are
// compiled apart: activations, groups of rows, and where results go.

// The data of activations that a weight type needs besides their int8 form, for each
// group of elements that shares a weight scale.
struct Correction {
    int groups; // 1: one for 32 elements, 2: one for 16
    int offset; // −offset·Σq as an integer; 0 if there is none
    bool min;   // else scale·Σq as a float, which of an integer is made of that
    // Of 16 elements in 16 bits each, see WHOLE_SCALES in blocks.h: Σq of both groups in a word, or −offset·Σq in
    // a word each. Where panels hold products of weights and scales, only the first counts, an integer.
    bool whole = false;
    MEMBER bool operator==(const Correction &o) const {
        return groups == o.groups && offset == o.offset && min == o.min && whole == o.whole;
    }
};

// The maximum numbers of tokens that are multiplied without unpacking a panel, which is then
// bound by memory or faster than a panel: FEW_ROWS for rows of a file, which are unpacked for each
// token, and FEW for interleaved rows, which are unpacked once for all tokens.
constexpr uint32_t FEW_ROWS = 3, FEW = 4;
constexpr bool MANY_REGISTERS = DOT_TOKENS >= 4;
// Tokens that a rare format is multiplied with at once. Where registers are few, four at once are not
// worth their code, and else two.
constexpr uint32_t AT_ONCE = MANY_REGISTERS ? FEW : 2;
// The maximum elements of a panel, which fits into the first-level cache with its scales; half as
// many with separate signs. A panel is whole blocks of any type.
constexpr uint64_t PANEL = 16384 / ROWS, LARGEST_BLOCK = 256;
static_assert(PANEL / 2 % LARGEST_BLOCK == 0);
// Tokens from which on signs are split off (Signs): 8 take longer with it, 32 less long.
constexpr uint32_t SPLIT_FROM = 16;

// Tokens that a panel is multiplied with at a time.
constexpr uint32_t TILE = INT_TOKENS;

// Calls f(start, Int<size>{}, tokens) for each tile of n tokens. The last tile has an even size;
// with an odd number of tokens its last token is computed twice.
template <class Fn> INLINE void in_tiles(uint32_t n, Fn f) {
    uint32_t start = 0;
    for (; start + TILE <= n; start += TILE)
        f(start, Int<TILE>{}, TILE);
    repeat<TILE / 2>([&](auto i) {
        constexpr int SIZE = 2 * (i.value + 1);
        if (const uint32_t left = n - start; left == SIZE || left == SIZE - 1)
            f(start, Int<SIZE>{}, left);
    });
}

// Lanes that are worked on together in columns.h.
constexpr int QUAD = 4;

// Quantized activations of a launch. Few tokens are rows, [tokens][k]. More tokens are
// [k/panel][tokens/TILE][panel/32][TILE][32], where the last slice and the last tile may be
// smaller, so that a tile's activations for a panel are contiguous: pieces of rows a power of two
// apart would collide in the processor's cache.
struct Quantized {
    uint64_t k, panel;
    uint32_t tokens;
    bool few;
    int8_t *q;          // of each element
    float *scale;       // of 32
    uint32_t *extra[4]; // of 32, the words of each weight's Correction

    // Elements of a slice that begins at element `at`.
    MEMBER uint64_t slice(uint64_t at) const { return few ? k : least(panel, k - at); }
    // Returns the tokens of a token's tile, which is the stride between a token's blocks.
    MEMBER uint64_t width(uint64_t token) const { return few ? 1 : least(TILE, tokens - token / TILE * TILE); }
    // Where a token's slice begins in q.
    MEMBER uint64_t place(uint64_t token, uint64_t at) const {
        if (few)
            return token * k;
        return at * tokens + token / TILE * TILE * slice(at) + token % TILE * 32;
    }
};

// Prefetches the weights after a panel, a few lines at a time while the panel is multiplied:
// without it, memory would idle until the next panel is unpacked. Interleaved rows are one run of
// bytes, rows of a file one run each.
struct Fetch {
    const uint8_t *p, *end; // of a run
    size_t length, stride;  // of runs
    uint64_t runs, lines;   // left, and at a time

    // Prefetches `runs` runs from p on in `times` calls.
    MEMBER static Fetch of(const uint8_t *p, size_t length, uint64_t runs, size_t stride, uint64_t times) {
        return {p, p + length, length, stride, runs, ceil_div(runs * ceil_div(length, 64), times)};
    }
    MEMBER void some() {
        for (uint64_t i = 0; i < lines && runs > 0; i++, p += 64) {
            prefetch(p);
            if (p + 64 >= end)
                runs--, end += stride, p = end - length - 64;
        }
    }
};

constexpr uint32_t LINE = 16; // floats of a cache line

// What becomes of the sums of a bundle of rows: out = sum, or silu(gate) · sum, plus residual.
// Whatever else may become of them, the launch sees to.
struct Results {
    float *out; // of the first row and token
    const float *residual;
    uint64_t stride; // of both, between tokens
    uint64_t apart;  // between groups
    uint64_t rows;   // from the first one to the weight's last
    uint32_t shift;  // row r of a group is in place shift + r of its sums
    const float (*gate)[ROWS];

    // Those of one of the groups alone.
    MEMBER Results of(uint32_t group, uint32_t tokens) const {
        const uint64_t first = group * apart;
        return {out + first,
                residual == nullptr ? nullptr : residual + first,
                stride,
                apart,
                rows - first,
                shift,
                gate == nullptr ? nullptr : gate + static_cast<uint64_t>(group) * tokens};
    }
    // Asks for what write will touch.
    APART void fetch(uint32_t groups, uint32_t t, uint32_t n) const {
        each<LINE>(groups, t, n, [&](uint64_t, uint64_t place, uint64_t, uint64_t, int) {
            prefetch<1>(out + place);
            if (residual != nullptr)
                prefetch(residual + place);
        });
    }
    // The results of n tokens from t on; sum is [groups][tokens].
    void write(uint32_t groups, const float (*sum)[ROWS], uint32_t tokens, uint32_t t, uint32_t n) const {
        each<W>(groups, t, n, [&](uint64_t token, uint64_t place, uint64_t group, uint64_t r, int count) {
            const uint64_t from = group * tokens + token;
            F v = load_n(sum[from] + shift + r, count);
            if (gate != nullptr)
                v = silu(load_n(gate[from] + shift + r, count)) * v;
            if (residual != nullptr)
                v = v + load_n(residual + place, count);
            store_n(out + place, v, count);
        });
    }

    // Calls f(token, place in out, group, r, count) for up to STEP rows at a time, from row r of
    // a group on.
    template <uint64_t STEP, class Fn> MEMBER void each(uint32_t groups, uint32_t t, uint32_t n, Fn f) const {
        for (uint64_t token = t; token < t + n; token++) {
            for (uint64_t group = 0; group < groups; group++) {
                const uint64_t first = group * apart, some = least(ROWS, rows - first);
                for (uint64_t r = 0; r < some; r += STEP)
                    f(token, token * stride + first + r, group, r, static_cast<int>(least(STEP, some - r)));
            }
        }
    }
};

// Neighbouring groups that are worked on together: what several tokens bring is then read from
// further away once for all of them.
constexpr uint32_t TOGETHER = 4;

// Tokens whose sums are held at a time, in whole tiles, and sums of a group and token that there is
// room for.
constexpr uint32_t HELD = 528, WHOLE = 12, ROOM = TOGETHER * HELD;
static_assert(HELD % WHOLE == 0 && WHOLE % TILE == 0 && WHOLE % DOT_TOKENS == 0 && WHOLE % COLUMN_TOKENS == 0);

// The activations of float weights and many tokens, in the order in which a tile of tokens reads
// them: [QUADS][tiles][QUAD][runs][COLUMN_TOKENS][W], where a run is W elements of a lane. See
// columns.h.
struct Columns {
    float *x; // null: rows are multiplied with rows
    uint64_t k;
    uint32_t tokens;

    MEMBER uint64_t tiles() const { return ceil_div(tokens, COLUMN_TOKENS); }
    MEMBER uint64_t runs() const { return ceil_div(k, W * W); }
    MEMBER uint64_t lane() const { return runs() * COLUMN_TOKENS * W; } // elements of one
    MEMBER uint64_t elements() const { return tiles() * W * lane(); }
    MEMBER float *at(int quad, uint64_t token) const {
        return x + (static_cast<uint64_t>(quad) * tiles() + token / COLUMN_TOKENS) * QUAD * lane();
    }
};
bool columns_pay(uint64_t k, uint32_t tokens);
void put_column(const Columns &to, const float *row, uint64_t token);

// Whether half weights are multiplied as integers of 16 bits, by shorts_avx512.h.
#ifdef __AVX512VNNI__
constexpr bool SHORT_DOTS = true;
#else
constexpr bool SHORT_DOTS = false;
#endif
// Their activations, [k/PANEL][tokens/TILE][PANEL/BLOCK][TILE][BLOCK], are cut and read like
// Quantized. k is padded to whole blocks.
struct Shorts {
    static constexpr uint64_t BLOCK = 64, PANEL = 8192 / ROWS; // elements that share a scale, and of a panel
    int16_t *q;
    float *scale; // of BLOCK
    uint64_t k;
    uint32_t tokens;

    static constexpr uint64_t BYTES = ROWS * 2 * (1 + BLOCK); // of a block of an interleaved group
    // Bytes of an interleaved row, of a group's in equal parts.
    static constexpr uint64_t interleaved(uint64_t k) { return k / BLOCK * (BYTES / ROWS); }

    MEMBER uint64_t length() const { return ceil_div(k, BLOCK) * BLOCK; } // of a token
    MEMBER uint64_t slice(uint64_t at) const { return least(PANEL, length() - at); }
    MEMBER uint64_t width(uint64_t token) const { return least(TILE, tokens - token / TILE * TILE); }
    MEMBER uint64_t place(uint64_t token, uint64_t at) const {
        return at * tokens + token / TILE * TILE * slice(at) + token % TILE * BLOCK;
    }
};
void put_short(const Shorts &to, const float *row, uint64_t token);

// Groups of rows times some tokens.
struct RowGroup {
    const uint8_t *rows;
    size_t stride;    // bytes between rows
    bool interleaved; // a group is ROWS · stride bytes in either order, whose strides may differ
    uint32_t groups;
    size_t apart; // bytes between groups
    uint64_t k;
    uint64_t piece; // elements of float weights that all tokens of a block are multiplied with
    size_t ahead;   // prefetch distance in bytes
    bool pairs;     // a token's sub-blocks that the same words hold are multiplied at once
    const float *x; // [tokens][x_stride]
    uint64_t x_stride;
    const Quantized *act;
    const uint32_t *extra;  // of the weight
    const Columns *columns; // null: rows are multiplied with rows
    const Shorts *shorts;   // of half weights where SHORT_DOTS
    uint32_t first, tokens; // `first` of the launch, in act, columns and shorts; x begins there
    float (*sum)[ROWS];     // [groups][tokens]
    const Results *results; // null if sums are all that is wanted

    // Tells of n tokens from t on that their sums will be complete soon, and that they are.
    // In between, their rows of the output arrive. These lie pages apart, often so that a cache
    // has room for few of them: written after all tokens, each would be waited for.
    MEMBER void expect(uint32_t t, uint32_t n) const {
        if (results != nullptr)
            results->fetch(groups, t, n);
    }
    MEMBER void complete(uint32_t t, uint32_t n) const {
        if (results != nullptr)
            results->write(groups, sum, tokens, t, n);
    }
};

// Goes through k in panels of `step` elements, and in each through the groups, so that the
// activations of a panel stay near for all of these: f(one group, at, whether it is the last panel).
template <class Fn> INLINE void each_panel(const RowGroup &g, uint64_t step, Fn f) {
    for (uint64_t at = 0; at < g.k; at += step) {
        RowGroup one = g;
        one.groups = 1;
        for (uint32_t group = 0; group < g.groups; group++, one.rows += g.apart, one.sum += g.tokens) {
            Results results = {};
            if (g.results != nullptr)
                results = g.results->of(group, g.tokens), one.results = &results;
            f(one, at, at + step >= g.k);
        }
    }
}

// Returns the prefetch during a panel of one of some groups, whose rows have `length` bytes from
// byte `at` on: the next panel of each_panel, or the first of the following groups.
INLINE Fetch panel_behind(const RowGroup &g, const RowGroup &one, uint64_t at, uint64_t length, uint64_t times) {
    const uint64_t together = g.interleaved ? ROWS : 1; // rows that a byte's place counts for
    const uint8_t *from = one.rows;
    if (from < g.rows + (g.groups - 1) * g.apart)
        from += g.apart + at * together;
    else if (at + length < g.stride)
        from = g.rows + (at + length) * together;
    else
        from += ROWS * g.stride;
    return Fetch::of(from, length * together, ROWS / together, g.stride, times);
}

// The maximum number of groups of interleaved rows that one token is multiplied with at once, each
// a separate stream. Two streams reach nearly the memory bandwidth, where one stream of floats
// reached six sevenths on a Xeon; four were no faster there, and a tenth slower on a Zen 5. Blocks
// of 256 elements have one stream, as two were up to a fifth slower there.
constexpr uint32_t STREAMS = 2;
template <class B> constexpr uint32_t STREAMS_OF = B::PARTS == 1 ? STREAMS : 1;

// Elements of a piece of k, in products of float weights and many tokens: see floats.h.
constexpr uint64_t PIECE = 1024, PIECES_OF = 64;
static_assert(PIECES_OF % W == 0);

// What a launch knows of a weight type.
struct WeightType {
    uint32_t type, elems, bytes; // of a block
    uint32_t streams;            // of a token, see STREAMS
    bool quantized;
    Correction correction;
    void (*multiply)(const RowGroup &);
    void (*widen)(const uint8_t *p, float *out, uint64_t n);
    // Interleaves groups of ROWS rows of `blocks` blocks each into out. Null if the rows of the
    // file are as fast.
    void (*interleave)(const uint8_t *rows, uint64_t blocks, uint64_t groups, uint8_t *out);
    void (*widen_interleaved)(const uint8_t *p, uint64_t row, float *out, uint64_t n);
    uint64_t panel = PANEL;       // elements of a panel of SPLIT_FROM tokens and more, at most
    uint32_t together = TOGETHER; // groups that many tokens are multiplied with at once, at most

    MEMBER bool is_half() const { return !quantized && bytes == 2; }
    MEMBER bool by_shorts() const { return SHORT_DOTS && is_half(); }
    // Elements of which an interleaved row has whole groups.
    MEMBER uint64_t whole() const { return quantized ? elems : by_shorts() ? Shorts::BLOCK : W; }
    MEMBER uint64_t row_bytes(uint64_t k, bool interleaved) const {
        return interleaved && by_shorts() ? Shorts::interleaved(k) : k / elems * bytes;
    }
};

// Where a row is among interleaved ones: the last group ends with the last of them.
INLINE uint64_t interleaved_place(uint64_t row, uint64_t rows) {
    const uint64_t whole = rows / ROWS * ROWS;
    return row < whole ? row : row + ROWS - rows % ROWS;
}

// The type of a number of params.h, or null, among those of a source file and among all.
const WeightType *find_float_type(uint32_t type);
const WeightType *find_offset_type(uint32_t type);
const WeightType *find_minimum_type(uint32_t type);
const WeightType *find_weight_type(uint32_t type);

template <size_t N> INLINE const WeightType *find_among(const WeightType (&types)[N], uint32_t type) {
    for (const WeightType &t : types)
        if (t.type == type)
            return &t;
    return nullptr;
}
