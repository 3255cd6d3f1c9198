// attention_vec and attention_tile over the paged cache. Function constants enable a
// sliding window, a soft cap of the scores, slopes (ALiBi), sinks, and the host's map from
// tokens to sequences.
//
// Key j of sequence b lies in slot j % block of cache block block_table[b][j / block].
//
// A token's result is bit-identical in both kernels, in any batch and on any number of
// threads, because the order of its additions depends only on the positions of its keys:
//
//   - A score is q·k in LANES partial sums, which are added in the order of KEY_ORDER.
//   - Keys are processed in tiles of KEY_TILE. Softmax is online: each tile may raise the
//     maximum, which rescales the earlier sums. A tile's weights are added in W partial sums
//     by the key's place, and reduce4; weighted values key by key.
//   - A part is PART keys with their own maximum and sums. Parts are folded from the first
//     to the last.
//
// Tiles and parts begin at multiples of their size, whatever a token sees of them: invisible
// keys have weight zero, which changes no sum. No order of additions may depend on where a
// window, a chunk of a prompt, a block of the cache or a thread's share begins.

constexpr uint32_t KEY_TILE = 64, PART = 512;
constexpr uint32_t QUERY_ROWS = 64; // rows of queries worked on together, at most
constexpr float LOWEST = -__builtin_inff();

// What the kernels take. Parts of keys are attention_vec's affair; and so is fc_rows, how a
// GPU cuts the tokens, which here changes nothing.
struct AttentionArguments {
    uint32_t params, q, k_cache, v_cache, positions, cu_seqlens, context_lens, block_table, out, sinks, map, slopes;
    uint32_t fc_window, fc_soft_cap, fc_sinks, fc_map, fc_slopes;
    uint32_t part, statistics, fc_split, fc_rows;
    uint32_t gate, fc_gate, fc_head_gate;
};
#define ATTENTION_ARGUMENTS(FAMILY, PART, STATISTICS, FC_SPLIT, FC_ROWS)                                               \
    {FAMILY##_PARAMS,                                                                                                  \
     FAMILY##_Q,                                                                                                       \
     FAMILY##_K_CACHE,                                                                                                 \
     FAMILY##_V_CACHE,                                                                                                 \
     FAMILY##_POSITIONS,                                                                                               \
     FAMILY##_CU_SEQLENS,                                                                                              \
     FAMILY##_CONTEXT_LENS,                                                                                            \
     FAMILY##_BLOCK_TABLE,                                                                                             \
     FAMILY##_OUT,                                                                                                     \
     FAMILY##_SINKS,                                                                                                   \
     FAMILY##_MAP,                                                                                                     \
     FAMILY##_SLOPES,                                                                                                  \
     FAMILY##_FC_WINDOW,                                                                                               \
     FAMILY##_FC_SOFT_CAP,                                                                                             \
     FAMILY##_FC_SINKS,                                                                                                \
     FAMILY##_FC_MAP,                                                                                                  \
     FAMILY##_FC_SLOPES,                                                                                               \
     PART,                                                                                                             \
     STATISTICS,                                                                                                       \
     FC_SPLIT,                                                                                                         \
     FC_ROWS,                                                                                                          \
     FAMILY##_GATE,                                                                                                    \
     FAMILY##_FC_GATE,                                                                                                 \
     FAMILY##_FC_HEAD_GATE}
constexpr AttentionArguments ATTENTION_VEC =
    ATTENTION_ARGUMENTS(SMELT_ATTENTION_VEC, SMELT_ATTENTION_VEC_PART, SMELT_ATTENTION_VEC_STATISTICS,
                        SMELT_ATTENTION_VEC_FC_SPLIT, SMELT_ATTENTION_VEC_FC_ROWS);
constexpr AttentionArguments ATTENTION_TILE =
    ATTENTION_ARGUMENTS(SMELT_ATTENTION_TILE, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN);

// Returns the number of blocks of a cache of `elements` elements, by strides.
INLINE uint64_t blocks_of(const AttentionParams &p, uint64_t elements) {
    uint64_t block = uint64_t{p.kv_heads - 1} * p.head_stride + uint64_t{p.block - 1} * p.row_stride + p.head;
    return elements < block ? 0 : (elements - block) / p.block_stride + 1;
}

// What ALiBi adds to a row of scores: slope · (distance + i) to that of key i. Distances are
// from the row's own position to keys, so that they are 0 and less.
struct Tilt {
    float slope, distance;
};

// The gate that results are multiplied by: one for each element of each head, or for each head.
struct HeadGate {
    const float *first; // that of token 0, or null
    uint64_t stride;
    uint32_t kind, heads, head;
    bool by_head;

    HeadGate(const smelt_launch *l, uint32_t gate, uint32_t fc_gate, uint32_t fc_head_gate, uint32_t stride,
             uint32_t from, uint32_t heads, uint32_t head)
        : first(optional<const float>(l, fc_gate, gate)), stride(stride), kind(constant(l, fc_gate)), heads(heads),
          head(head), by_head(constant(l, fc_head_gate) != 0) {
        first = first == nullptr ? nullptr : first + from;
    }
    // Writes the result of a row, a head of a token, from its sums of values.
    NOINLINE void put(uint64_t row, const float *sums, float by, float *out) const {
        const F scale = set1(by);
        if (first == nullptr)
            return map1(sums, out, head, [=](F x) { return x * scale; });
        const uint64_t h = row % heads;
        const float *gate = first + row / heads * stride + h * (by_head ? 1 : head);
        with_activation(kind, [=](auto act) {
            const F of_head = act(set1(*gate));
            if (by_head)
                map1(sums, out, head, [=](F x) { return x * scale * of_head; });
            else
                map2(sums, gate, out, head, [=](F x, F g) { return x * scale * act(g); });
        });
    }
};
static bool holds_gate(const smelt_launch *l, uint32_t gate, uint32_t fc_gate, uint32_t fc_head_gate, uint64_t tokens,
                       uint64_t stride, uint64_t from, uint64_t heads, uint64_t head) {
    const uint64_t width = constant(l, fc_head_gate) != 0 ? heads : heads * head;
    return constant(l, fc_gate) == 0 ||
           (is_activation(constant(l, fc_gate), false) && holds(l, gate, from * 4 + span(tokens, stride, width, 4)));
}

struct Attention {
    AttentionParams p;
    const float *q;
    const uint8_t *k, *v;
    const int32_t *positions, *starts, *lengths, *table, *map;
    const float *sinks, *slopes; // by head, or null
    float *out;
    uint64_t row;    // bytes of 32 elements of the cache
    uint64_t blocks; // of the cache, from the size of its buffer
    uint32_t group;  // query heads that share a KV head
    int64_t window;  // keys that a token sees; 0 for all
    float cap;       // of scores; 0 for none
    HeadGate gate;

    Attention(const smelt_launch *l, const AttentionArguments &of, uint64_t row)
        : p(params<AttentionParams>(l, of.params)), row(row),
          gate(l, of.gate, of.fc_gate, of.fc_head_gate, p.gate_stride, p.gate_from, p.heads, p.head) {
        q = buffer<const float>(l, of.q);
        k = buffer<const uint8_t>(l, of.k_cache), v = buffer<const uint8_t>(l, of.v_cache);
        positions = buffer<const int32_t>(l, of.positions), starts = buffer<const int32_t>(l, of.cu_seqlens);
        lengths = buffer<const int32_t>(l, of.context_lens), table = buffer<const int32_t>(l, of.block_table);
        out = buffer<float>(l, of.out);
        const bool whole = constant(l, of.fc_split) == 0; // else attention_reduce adds the sinks
        sinks = whole ? optional<const float>(l, of.fc_sinks, of.sinks) : nullptr;
        slopes = optional<const float>(l, of.fc_slopes, of.slopes);
        map = optional<const int32_t>(l, of.fc_map, of.map);
        window = constant(l, of.fc_window) != 0 ? p.window : 0;
        cap = constant(l, of.fc_soft_cap) != 0 ? p.soft_cap : 0;
        blocks = blocks_of(p, least(l->buffer_bytes[of.k_cache], l->buffer_bytes[of.v_cache]) * 32 / row);
        group = p.heads / p.kv_heads;
    }
    // Returns the bytes of cache elements, in whole blocks of the cache's type.
    MEMBER uint64_t bytes(uint64_t elements) const { return elements * row / 32; }
    // Returns the sequence of a token: the last that starts at or before it, or its entry in
    // the map; p.seqs or more if it has none.
    MEMBER uint32_t sequence(uint32_t token) const {
        if (map != nullptr)
            return static_cast<uint32_t>(map[token]);
        uint32_t low = 0, high = p.seqs;
        while (low + 1 < high) {
            uint32_t mid = (low + high) / 2;
            if (starts[mid] <= static_cast<int32_t>(token))
                low = mid;
            else
                high = mid;
        }
        return low;
    }
    // The keys that a token sees: [from, to), from ≤ to.
    struct Seen {
        int64_t from, to;
    };
    MEMBER Seen seen(uint32_t token, uint32_t seq) const {
        int64_t next = int64_t{positions[token]} + 1, to = next, most = lengths[seq];
        to = to < most ? to : most;
        int64_t held = int64_t{p.table_stride} * p.block;
        to = to < held ? to : held;
        int64_t from = window != 0 && next > window ? next - window : 0;
        return {from, to < from ? from : to};
    }
    // The keys of one tile from key j on, at most `most`: rows from element `first` of the
    // K and V caches on, a stride apart. Absent where the table names no such block.
    struct Tile {
        uint32_t keys;
        uint64_t in_block; // keys to the end of the cache block
        uint64_t first;
        bool present;
    };
    MEMBER Tile tile(uint32_t seq, uint32_t head, int64_t j, int64_t most) const {
        uint64_t at = static_cast<uint64_t>(j) % p.block;
        int64_t block = table[uint64_t{seq} * p.table_stride + static_cast<uint64_t>(j) / p.block];
        uint64_t in_block = p.block - at, keys = least(least(KEY_TILE, in_block), static_cast<uint64_t>(most));
        bool present = block >= 0 && static_cast<uint64_t>(block) < blocks;
        uint64_t first =
            static_cast<uint64_t>(block) * p.block_stride + uint64_t{head} * p.head_stride + at * p.row_stride;
        return {static_cast<uint32_t>(keys), in_block, present ? first : 0, present};
    }
    // What is added to a head's scores of a token and the keys from key j on.
    MEMBER Tilt tilt(uint64_t head, uint32_t token, int64_t j) const {
        return {slopes[head], static_cast<float>(j - positions[token])};
    }
    MEMBER const float *sink(uint64_t head) const { return sinks == nullptr ? nullptr : sinks + head; }
};

// What sums of values are multiplied by at the end, from the largest score and the sum
// of weights. A head's sink, where it has one, is a weight more.
static float normaliser(float maximum, float total, const float *sink) {
    float rescale = 1;
    if (sink != nullptr) {
        float top = *sink > maximum ? *sink : maximum;
        if (top == LOWEST)
            return 0;
        const F rescaled = exp(set1(maximum - top));
        rescale = reduce_max(rescaled);
        total = reduce_max(fma(set1(total), rescaled, exp(set1(*sink - top))));
    }
    return total == 0.0f ? 0.0f : rescale / total;
}

static int attention_supports(const smelt_launch *l, const AttentionArguments &of, const Cache &c) {
    if (!holds(l, of.params, sizeof(AttentionParams)))
        return 0;
    const AttentionParams &p = params<AttentionParams>(l, of.params);
    // Maps of tiles, not of tokens, are a way of GPUs.
    if (constant(l, of.fc_map) != 0 && (of.fc_rows == NOT_TAKEN || constant(l, of.fc_rows) > 1))
        return 0;
    const bool split = is_set(l, of.fc_split);
    if (split && (constant(l, of.fc_split) == 0 || l->grid[2] == 0))
        return 0;
    if (!c.whole_blocks(p.head) || !c.whole_blocks(p.row_stride) || !c.whole_blocks(p.head_stride) ||
        !c.whole_blocks(p.block_stride))
        return 0;
    if (p.head == 0 || p.head % 8 != 0 || p.head > MAX_HEAD)
        return 0;
    if (p.kv_heads == 0 || p.heads % p.kv_heads != 0 || p.block == 0 || p.block_stride == 0)
        return 0;
    if (!(p.soft_cap >= 0))
        return 0;
    uint64_t rows = uint64_t{p.tokens} * p.heads, bytes = uint64_t{p.head} * 4;
    if (split ? !holds_rows(l, of.part, rows, l->grid[2] * bytes) ||
                    !holds_rows(l, of.statistics, rows, uint64_t{l->grid[2]} * 8)
              : !holds_rows(l, of.out, rows, bytes) ||
                    !holds_gate(l, of.gate, of.fc_gate, of.fc_head_gate, p.tokens, p.gate_stride, p.gate_from, p.heads,
                                p.head) ||
                    (constant(l, of.fc_sinks) != 0 && !holds(l, of.sinks, uint64_t{p.heads} * 4)))
        return 0;
    return holds_rows(l, of.q, rows, bytes) && holds(l, of.k_cache, 1) && holds(l, of.v_cache, 1) &&
           holds(l, of.positions, uint64_t{p.tokens} * 4) && holds(l, of.cu_seqlens, (uint64_t{p.seqs} + 1) * 4) &&
           holds(l, of.context_lens, uint64_t{p.seqs} * 4) &&
           holds_rows(l, of.block_table, p.seqs, uint64_t{p.table_stride} * 4) &&
           (constant(l, of.fc_map) == 0 || holds(l, of.map, uint64_t{p.tokens} * 4)) &&
           (constant(l, of.fc_slopes) == 0 || holds(l, of.slopes, uint64_t{p.heads} * 4));
}

// The first n bits.
INLINE uint64_t bits(uint64_t n) { return n < 64 ? (uint64_t{1} << n) - 1 : ~uint64_t{0}; }
static_assert(KEY_TILE == 64, "a tile's keys are the bits of a word");
// Of the keys of the tile that begins at `base`, those from `from` to `to` − 1.
INLINE uint64_t keys_of(int64_t base, int64_t from, int64_t to) {
    const auto place = [=](int64_t j) {
        return static_cast<uint64_t>(j < base ? 0 : j - base < KEY_TILE ? j - base : KEY_TILE);
    };
    return bits(place(to)) & ~bits(place(from));
}

// What softmax knows of rows: the largest score so far, and the sum of weights, which are
// e^(score − maximum).
struct Softmax {
    float *maximum, *total;

    MEMBER void start(uint32_t rows) {
        for (uint32_t r = 0; r < rows; r++)
            maximum[r] = LOWEST, total[r] = 0;
    }
    // While all scores are −∞ the base is finite, so that weights become zeros and not NaN.
    static MEMBER F base(F maximum) { return max(maximum, set1(-3.4028235e38f)); }
    // Updates the maxima by a tile's largest scores. Later weights are relative to `base`, and
    // `factor` rescales the sums of values so far.
    MEMBER void grow(const float *most, uint32_t rows, float *base, float *factor) {
        for (uint32_t r = 0; r < rows; r += W) {
            int n = static_cast<int>(least(W, rows - r));
            F old = load_n(maximum + r, n), now = max(load_n(most + r, n), old), by = Softmax::base(now);
            store_n(maximum + r, now, n), store_n(base + r, by, n), store_n(factor + r, exp(old - by), n);
        }
    }
    // Takes in its sums of weights.
    MEMBER void add(const float *sums, const float *factor, uint32_t rows) {
        for (uint32_t r = 0; r < rows; r += W) {
            int n = static_cast<int>(least(W, rows - r));
            store_n(total + r, fma(load_n(total + r, n), load_n(factor + r, n), load_n(sums + r, n)), n);
        }
    }
    // Takes in rows of a part that follows. What was summed before is multiplied by `kept`, what
    // the part summed by `added`.
    MEMBER void fold(const Softmax &part, uint32_t rows, float *kept, float *added) {
        for (uint32_t r = 0; r < rows; r += W) {
            int n = static_cast<int>(least(W, rows - r));
            F old = load_n(maximum + r, n), other = load_n(part.maximum + r, n), now = max(other, old), by = base(now);
            F keep = exp(old - by), add = exp(other - by), weights = load_n(part.total + r, n) * add;
            store_n(maximum + r, now, n), store_n(kept + r, keep, n), store_n(added + r, add, n);
            store_n(total + r, fma(load_n(total + r, n), keep, weights), n);
        }
    }
};
// The same for the values of a row, of a part with weights.
INLINE void fold_values(float *sums, const float *part, uint32_t head, float kept, float added) {
    map2(sums, part, sums, head, [=](F s, F x) { return fma(set1(added), x, s * set1(kept)); });
}

// ---- few queries: one token, some heads that share a KV head, a range of its keys

// Keys are divided into ranges so that many threads have work even if one token is decoded.
// Either fc_split sets the size, and attention_reduce merges the ranges; or a range is whole
// parts, and with more than one range a second stage folds the parts.
struct Ranges {
    static constexpr uint64_t MOST = 8, UNITS = 64, SCRATCH = 64 << 20;
    uint64_t count, split; // split: keys of a range with fc_split, else 0
    uint64_t parts;        // of a row, at most
    explicit Ranges(const smelt_launch *l) : split(constant(l, ATTENTION_VEC.fc_split)) {
        const AttentionParams &p = params<AttentionParams>(l, ATTENTION_VEC.params);
        const uint64_t units = uint64_t{p.tokens} * p.kv_heads, rows = uint64_t{p.tokens} * p.heads;
        parts = ceil_div(uint64_t{p.table_stride} * p.block, PART);
        count = split != 0 ? l->grid[2] : 1;
        if (split == 0 && units != 0 && units < UNITS && parts <= SCRATCH / 4 / (p.head + 2) / rows)
            count = parts == 0 ? 1 : least(least(MOST, parts), ceil_div(UNITS, units));
    }
    // Whether results of parts wait for the second stage.
    MEMBER bool staged() const { return split == 0 && count > 1; }
    // What a token sees of a range.
    MEMBER Attention::Seen seen(Attention::Seen all, uint64_t range) const {
        int64_t from, to;
        if (split != 0) {
            from = static_cast<int64_t>(range * split), to = from + static_cast<int64_t>(split);
        } else {
            const uint64_t first = static_cast<uint64_t>(all.from) / PART, n = parts_of(all);
            from = static_cast<int64_t>((first + n * range / count) * PART);
            to = static_cast<int64_t>((first + n * (range + 1) / count) * PART);
        }
        from = from < all.from ? all.from : from, to = to < all.to ? to : all.to;
        return {from, to < from ? from : to};
    }
    static MEMBER uint64_t parts_of(Attention::Seen all) {
        return all.from == all.to
                   ? 0
                   : ceil_div(static_cast<uint64_t>(all.to), PART) - static_cast<uint64_t>(all.from) / PART;
    }
};

// Results of ranges or parts: undivided sums of weighted values [rows, parts, head], and
// [rows, parts, 2] the largest score, in units of ln(base), and the sum of weights. If the
// latter is 0, the sums of values are undefined. A row is a head of a token.
struct Partials {
    float *sums, *statistics;
    float log_base;
};
constexpr float LN_2 = 0.693147181f;
constexpr float NO_SCORE = -3.0e38f; // the largest score of a part without keys
constexpr float DONE = LOWEST;       // that of a row's first part, where no part waits

// Where results go: for attention_reduce the buffers that it takes, with scores to base 2, or
// else memory that the stages share.
static Partials partials(const smelt_launch *l, const Ranges &ranges, void *shared) {
    if (ranges.split != 0)
        return {buffer<float>(l, ATTENTION_VEC.part), buffer<float>(l, ATTENTION_VEC.statistics), LN_2};
    const AttentionParams &p = params<AttentionParams>(l, ATTENTION_VEC.params);
    float *sums = static_cast<float *>(shared);
    return {sums, sums + uint64_t{p.tokens} * p.heads * ranges.parts * p.head, 1};
}

static size_t attention_vec_shared(const smelt_launch *l) {
    const AttentionParams &p = params<AttentionParams>(l, ATTENTION_VEC.params);
    Ranges ranges(l);
    return ranges.staged() ? uint64_t{p.tokens} * p.heads * ranges.parts * (uint64_t{p.head} + 2) * 4 : 0;
}
static uint64_t attention_vec_units(const smelt_launch *l) {
    const AttentionParams &p = params<AttentionParams>(l, ATTENTION_VEC.params);
    return uint64_t{p.tokens} * p.kv_heads * Ranges(l).count;
}

// Makes products of a tile's keys with some heads of a token, [heads, KEY_TILE], scores, and
// takes in the largest. These are the keys from `begin` to `end` − 1, multiples of W; those that
// are not among `seen` have −∞, whatever their products. `tilts` may be null.
static void finish_scores(float *scores, uint32_t heads, uint32_t begin, uint32_t end, uint64_t seen, float scale,
                          float cap, const Tilt *tilts, Softmax state, float *base, float *factor) {
    float most[SHARING];
    const uint64_t hidden = ~seen & bits(end) & ~bits(begin);
    for (uint32_t h = 0; h < heads; h++) {
        float *row = scores + h * KEY_TILE, places[W];
        F top = set1(LOWEST), distance = zero();
        if (tilts != nullptr) {
            for (uint32_t i = 0; i < W; i++)
                places[i] = tilts[h].distance + static_cast<float>(begin + i);
            distance = load(places);
        }
        for (uint32_t i = begin; i < end; i += W) {
            F v = load(row + i) * set1(scale);
            if (cap > 0)
                v = set1(cap) * tanh(v / set1(cap));
            if (tilts != nullptr) {
                v = fma(set1(tilts[h].slope), distance, v);
                distance = distance + set1(W);
            }
            store(row + i, v);
            top = max(v, top);
        }
        if (hidden != 0) {
            for (uint64_t left = hidden; left != 0; left &= left - 1)
                row[__builtin_ctzll(left)] = LOWEST;
            top = set1(LOWEST);
            for (uint32_t i = begin; i < end; i += W)
                top = max(load(row + i), top);
        }
        most[h] = reduce_max(top);
    }
    state.grow(most, heads, base, factor);
}
// Makes W of these scores weights, and adds them to `sums`.
INLINE void weigh(float *scores, uint32_t heads, const float *base, F *sums) {
    for (uint32_t h = 0; h < heads; h++) {
        F v = exp(load(scores + h * KEY_TILE) - set1(base[h]));
        store(scores + h * KEY_TILE, v);
        sums[h] = sums[h] + v;
    }
}

// The maximum bytes of keys in a step of attention_vec, which has at least eight keys. Long steps
// stall the prefetch at their ends, short steps have more overhead.
constexpr uint64_t STEP_BYTES = 3072; // measured
INLINE uint32_t keys_in_step(uint64_t key) {
    const uint64_t keys = STEP_BYTES / key;
    return keys < 16 ? 8 : keys < 32 ? 16 : keys < 64 ? 32 : 64;
}

// What attention_vec takes at a time: a tile of a range of a token's keys, and heads that
// share them.
struct Share {
    uint64_t unit;
    uint32_t token, seq, kv, first, heads; // first: of the heads, among those of the KV head
    Attention::Seen all, range;
    bool whole;             // range is all that the token sees, of several ranges
    int64_t base, from, to; // the tile's first key, and which it has of the range
    uint64_t seen;          // of its keys, less those that turn out to be absent

    MEMBER bool opens_part() const { return base % PART == 0 || from == range.from; }
    MEMBER bool closes_part() const { return (base + KEY_TILE) % PART == 0 || closes(); }
    MEMBER bool closes() const { return to == range.to; }
};

// Goes through the shares of units: all tiles of some heads, then those of the next heads. All
// ranges of a token in turn are taken as one, so that parts need not wait for a second stage;
// unless its keys would be read again for further heads.
struct Walk {
    const Attention &a;
    const Ranges &ranges;
    uint64_t unit, end;
    Share share = {};
    uint64_t inside = 0; // units that the share belongs to

    Walk(const Attention &a, const Ranges &ranges, uint64_t begin, uint64_t end)
        : a(a), ranges(ranges), unit(begin), end(end) {}

    bool next() {
        if (inside == 0 || share.closes())
            return leap();
        tile(share.base + KEY_TILE);
        return true;
    }
    // Goes on where the share's heads are done with their range.
    bool leap() {
        if (inside != 0 && share.first + share.heads < a.group) {
            of(share.first + share.heads);
            return true;
        }
        for (unit += inside; unit < end; unit++) {
            const uint64_t range = unit % ranges.count;
            share.unit = unit;
            share.kv = static_cast<uint32_t>(unit / ranges.count % a.p.kv_heads);
            share.token = static_cast<uint32_t>(unit / ranges.count / a.p.kv_heads);
            share.seq = a.sequence(share.token);
            if (a.map != nullptr && share.seq >= a.p.seqs)
                continue;
            share.all = a.seen(share.token, share.seq);
            share.whole = ranges.staged() && range == 0 && unit + ranges.count <= end && heads_from(0) == a.group;
            share.range = share.whole ? share.all : ranges.seen(share.all, range);
            if (share.range.from == share.range.to && ranges.staged())
                continue;
            inside = share.whole ? ranges.count : 1;
            of(0);
            return true;
        }
        inside = 0;
        return false;
    }

private:
    // Returns the number of heads from `first` on that share their loads.
    uint32_t heads_from(uint32_t first) const {
        uint32_t heads = SHARING;
        while (heads > a.group - first)
            heads /= 2;
        return heads;
    }
    void of(uint32_t first) {
        share.first = first, share.heads = heads_from(first);
        tile(share.range.from / KEY_TILE * KEY_TILE);
    }
    void tile(int64_t base) {
        const auto &[from, to] = share.range;
        share.base = base;
        share.from = base < from ? from : base, share.to = base + KEY_TILE < to ? base + KEY_TILE : to;
        share.seen = keys_of(base, share.from, share.to);
    }
};

// Prefetches keys or values, or both. An Ahead for both prefetches equal bytes of each during
// either loop, so that both streams never stall. Keys are prefetched `lead` bytes before they are
// read, values one tile earlier than that. If the processor's cache has no room for that tile,
// keys and values have an Ahead each.
struct Ahead {
    static constexpr uint64_t BOTH = 4096, KEYS = 2048, VALUES = 512; // leads, measured like the level of the cache
    // The next prefetches are first + asked and second + asked, and from `turn` on with `gap` added.
    // Loops keep a copy in registers, and therefore call only inlined functions.
    struct Place {
        const uint8_t *first, *second;
        uint64_t asked, due, turn;
        int64_t gap;

        MEMBER void ask(int64_t added) const {
            const int64_t at = static_cast<int64_t>(asked) + added;
            prefetch<0, 1>(first + at);
            prefetch<0, 1>(second + at);
        }
    };
    Place place = {};
    bool both = false; // keys and values are read in turns: a row of either is half a row of each

    // Asks from where a walk begins for rows of `first` and of `second`: keys and values, or twice
    // the same, which costs less than a loop that knows.
    NOINLINE Ahead(const Walk &from, const uint8_t *first, const uint8_t *second, uint64_t lead)
        : a(from.a), rows(first), walk(from) {
        // Where rows lie apart processors follow by themselves.
        if (a.p.row_stride != a.p.head || !walk.leap()) {
            stop();
            return;
        }
        key = walk.share.range.from;
        place.first = first, place.second = second;
        for (follow(); place.due < lead && place.turn != UINT64_MAX; follow())
            place = ask(place, least(STEP_BYTES / 2, lead - place.due));
    }
    // Advances, between loops, to the next piece of the caches to prefetch.
    MEMBER void follow() {
        while (place.asked >= place.turn)
            turn();
    }
    static MEMBER Place ask(Place p, uint64_t bytes) {
        p.due += bytes;
        for (const uint64_t straight = least(p.due, p.turn); p.asked < straight; p.asked += 64)
            p.ask(0);
        for (; p.asked < p.due; p.asked += 64)
            p.ask(p.gap);
        return p;
    }

private:
    const Attention &a;
    const uint8_t *rows; // the first of `first`
    Walk walk;
    int64_t key = 0;        // of the walk's range: the first behind the piece that is next
    uint64_t next_turn = 0; // where that ends

    MEMBER void stop() { place.asked = UINT64_MAX / 2, place.turn = UINT64_MAX; }
    __attribute__((noinline)) void turn() {
        if (next_turn == UINT64_MAX)
            return stop();
        place.first += place.gap, place.second += place.gap;
        place.turn = next_turn;
        const uint64_t here = static_cast<uint64_t>(place.first - rows) + place.turn;
        for (;;) {
            const Share &share = walk.share;
            if (key < share.range.to) {
                const Attention::Tile piece = a.tile(share.seq, share.kv, key, 1);
                const uint64_t keys = least(piece.in_block, static_cast<uint64_t>(share.range.to - key));
                key += static_cast<int64_t>(keys);
                if (!piece.present)
                    continue;
                place.gap = static_cast<int64_t>(a.bytes(piece.first) - here);
                next_turn = place.turn + keys * a.bytes(a.p.row_stride);
                return;
            }
            if (!walk.leap())
                break;
            key = walk.share.range.from;
        }
        // The last lines are prefetched again, which costs nothing.
        place.gap = -static_cast<int64_t>(STEP_BYTES), next_turn = UINT64_MAX;
    }
};

// scores[h][i] = q[h]·k[i] for H heads, keys `stride` bytes apart.
template <class C, int H, bool HALVES>
static void multiply_keys(const uint8_t *k, size_t stride, Ahead &ahead, const float *q, uint32_t head, uint32_t keys,
                          float *scores) {
    uint64_t each = row_bytes<C>(32) * KEYS_AT_ONCE / 4 >> ahead.both; // bytes for eight elements
    Ahead::Place place = ahead.place;
    size_t out = KEY_TILE;
    uint8_t rows[KEYS_AT_ONCE * MAX_HEAD * 4];
    float few[H * KEYS_AT_ONCE];
    for (uint32_t i = 0; i < keys; i += KEYS_AT_ONCE) {
        const uint8_t *from = k + i * stride;
        float *to = scores + i;
        const uint32_t left = keys - i;
        if (left < KEYS_AT_ONCE) { // rows that are not whole do not count
            const size_t row = row_bytes<C>(head);
            for (uint32_t r = 0; r < KEYS_AT_ONCE; r++)
                memcpy(rows + r * row, from + least(r, left - 1) * stride, row);
            from = rows, stride = row, to = few, out = KEYS_AT_ONCE, each = 0;
        }
        score_keys<C, H, HALVES>(from, stride, q, head, to, out, [&](uint32_t elements) __attribute__((always_inline)) {
            place = Ahead::ask(place, each * (elements / 8));
        });
        if (left < KEYS_AT_ONCE)
            for (uint32_t h = 0; h < H; h++)
                memcpy(scores + h * KEY_TILE + i, few + h * KEYS_AT_ONCE, left * sizeof(float));
    }
    ahead.place = place;
}

// sums[h][d0 + d] += Σ weights[h][j] · v[j][d0 + d] for H heads and V vectors of d; rows
// of v are `stride` bytes apart. Prefetches as many bytes as it reads, so that no pass over the same
// rows leaves memory idle, except those over a row's last columns, one vector each.
template <class C, int H, int V>
INLINE void add_values(const uint8_t *v, size_t stride, Ahead &ahead, uint32_t d0, uint32_t keys, const float *weights,
                       float *sums) {
    F sum[H][V];
    sums += d0;
    UNROLL for (int h = 0; h < H; h++) UNROLL for (int i = 0; i < V; i++) sum[h][i] = load(sums + h * MAX_HEAD + i * W);
    const uint32_t within = is_plain<C> ? 0 : d0 % 32;
    v += row_bytes<C>(d0 - within);
    const auto add = [&] __attribute__((always_inline)) {
        F row[V];
        elements<C, V>(v, within, row);
        UNROLL for (int h = 0; h < H; h++) {
            const F w = set1(weights[h * int{KEY_TILE}]);
            UNROLL for (int i = 0; i < V; i++) sum[h][i] = fma(w, row[i], sum[h][i]);
        }
        v += stride, weights++;
    };
    const float *const end = weights + keys;
    if constexpr (V > 1) {
        const uint64_t pair = row_bytes<C>(2 * V * W) >> ahead.both; // bytes for two keys
        Ahead::Place place = ahead.place;
        for (const float *pairs = end - keys % 2; weights != pairs;) {
            place = Ahead::ask(place, pair);
            add();
            add();
        }
        place.due += keys % 2 * pair / 2;
        ahead.place = place;
    }
    while (weights != end)
        add();
    UNROLL for (int h = 0; h < H; h++) UNROLL for (int i = 0; i < V; i++) store(sums + h * MAX_HEAD + i * W, sum[h][i]);
}
template <class C, int H>
static void add_values_of(const uint8_t *v, size_t stride, Ahead &ahead, uint32_t head, uint32_t keys,
                          const float *weights, float *sums) {
    constexpr int V = vectors_for(H);
    static_assert(V > 1, "passes of one vector ask for nothing");
    uint32_t d = 0;
    for (; d + V * W <= head; d += V * W)
        add_values<C, H, V>(v, stride, ahead, d, keys, weights, sums);
    ahead.place.due += row_bytes<C>(uint64_t{keys} * (head - d)) >> ahead.both;
    for (; d + W <= head; d += W)
        add_values<C, H, 1>(v, stride, ahead, d, keys, weights, sums);
    if (d < head) {
        int rest = static_cast<int>(head - d);
        for (int h = 0; h < H; h++) {
            F sum = load_n(sums + h * MAX_HEAD + d, rest);
            for (uint32_t j = 0; j < keys; j++)
                sum = fma(set1(weights[h * KEY_TILE + j]), elements_n<C>(v + j * stride, d, rest), sum);
            store_n(sums + h * MAX_HEAD + d, sum, rest);
        }
    }
}

// The loops over a cache type for heads that share their loads.
struct Loops {
    void (*multiply_keys)(const uint8_t *k, size_t stride, Ahead &ahead, const float *q, uint32_t head, uint32_t keys,
                          float *scores);
    void (*add_values)(const uint8_t *v, size_t stride, Ahead &ahead, uint32_t head, uint32_t keys,
                       const float *weights, float *sums);
};
template <class C> static Loops loops_of(uint32_t heads) {
    Loops loops = {};
    with_power<SHARING>(heads, [&](auto n) {
        loops = {multiply_keys<C, n.value, false>, add_values_of<C, n.value>};
        if constexpr (in_halves<C, n.value>)
            if (processor().halves)
                loops.multiply_keys = multiply_keys<C, n.value, true>;
    });
    return loops;
}

static void attention_vec(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end, const Cache &c,
                          Loops (*loops)(uint32_t heads)) {
    const Attention a(l, ATTENTION_VEC, c.row_bytes(32));
    const Ranges ranges(l);
    const Partials partial = partials(l, ranges, shared);
    const uint32_t head = a.p.head;
    const size_t stride = a.bytes(a.p.row_stride);
    const uint32_t step = keys_in_step(a.bytes(head));
    const bool apart = a.bytes(uint64_t{KEY_TILE} * head) >= processor().large_tile;
    const uint64_t lead = least(hint(l, SMELT_HINT_AHEAD, apart ? Ahead::KEYS : Ahead::BOTH), FARTHEST);

    int turn = 0; // whose scores are products
    alignas(64) float scores[2][SHARING * KEY_TILE], sums[SHARING * MAX_HEAD], folded[SHARING * MAX_HEAD];
    float maximum[SHARING], total[SHARING], whole_maximum[SHARING], whole_total[SHARING];
    float base[SHARING], factor[SHARING];
    Softmax part = {maximum, total}, whole = {whole_maximum, whole_total};

    // The row of a share's head, among those of all tokens.
    const auto row = [&](const Share &share, uint32_t h) {
        return share.token * uint64_t{a.p.heads} + share.kv * uint64_t{a.group} + share.first + h;
    };
    const auto finish = [&](const Share &share, float *scores) {
        Tilt tilts[SHARING];
        if (share.opens_part())
            part.start(SHARING);
        if (a.slopes != nullptr)
            for (uint32_t h = 0; h < share.heads; h++)
                tilts[h] = a.tilt(row(share, h) % a.p.heads, share.token, share.base);
        const uint32_t first = static_cast<uint32_t>(share.from - share.base) / W * W;
        const uint32_t past = static_cast<uint32_t>(share.to - share.base + W - 1) / W * W;
        finish_scores(scores, share.heads, first, past, share.seen, a.p.scale, a.cap,
                      a.slopes == nullptr ? nullptr : tilts, part, base, factor);
    };
    const auto clear = [&](float *rows, uint32_t heads) {
        for (uint32_t h = 0; h < heads; h++)
            memset(rows + h * MAX_HEAD, 0, head * 4);
    };
    const auto put = [&](uint64_t at, float maximum, float total, const float *sums) {
        partial.statistics[2 * at] = maximum == LOWEST ? NO_SCORE : maximum / partial.log_base;
        partial.statistics[2 * at + 1] = total;
        if (total != 0.0f)
            memcpy(partial.sums + at * head, sums, head * 4);
    };
    // Puts away what values came to.
    const auto close = [&](Share &share) {
        if (share.closes_part() && ranges.staged() && !share.whole) {
            for (uint32_t h = 0; h < share.heads; h++)
                put(row(share, h) * ranges.parts + static_cast<uint64_t>(share.base / PART - share.all.from / PART),
                    maximum[h], total[h], sums + h * MAX_HEAD);
            return;
        }
        if (share.closes_part()) {
            float kept[SHARING], added[SHARING];
            if (share.base / PART == share.range.from / PART) {
                whole.start(SHARING);
                clear(folded, share.heads);
            }
            whole.fold(part, share.heads, kept, added);
            for (uint32_t h = 0; h < share.heads; h++)
                if (total[h] != 0.0f)
                    fold_values(folded + h * MAX_HEAD, sums + h * MAX_HEAD, head, kept[h], added[h]);
        }
        if (!share.closes())
            return;
        for (uint32_t h = 0; h < share.heads; h++) {
            const float *values = folded + h * MAX_HEAD;
            if (ranges.split != 0) {
                put(row(share, h) * ranges.count + share.unit % ranges.count, whole_maximum[h], whole_total[h], values);
                continue;
            }
            if (share.whole)
                partial.statistics[2 * row(share, h) * ranges.parts] = DONE;
            a.gate.put(row(share, h), values,
                       normaliser(whole_maximum[h], whole_total[h], a.sink(row(share, h) % a.p.heads)),
                       a.out + row(share, h) * head);
        }
    };

    // Reads of a tile's keys and the previous tile's values alternate. Nothing past `end` is
    // prefetched, because every other step goes through units backwards.
    Walk walk(a, ranges, begin, end);
    Ahead of_keys(walk, a.k, apart ? a.k : a.v, lead);
    Ahead of_values(Walk(a, ranges, apart ? begin : end, end), a.v, a.v, lead * Ahead::VALUES / Ahead::KEYS);
    Ahead &summing_asks = apart ? of_values : of_keys;
    Share scored = {}, summed = {};
    for (bool behind = false, scores_more = true; behind || scores_more; behind = scores_more) {
        float *products = scores[turn], *weights = scores[turn ^= 1];
        scores_more = walk.next();
        if (!scores_more && !behind)
            break;
        scored = walk.share;
        int64_t k = scored.from, v = summed.from;
        uint32_t weighed = static_cast<uint32_t>(behind ? v - summed.base : 0) / W * W;
        F totals[4] = {zero(), zero(), zero(), zero()};
        static_assert(SHARING <= 4, "heads are added up by one reduce4");
        if (behind && summed.opens_part())
            clear(sums, summed.heads);
        else if (behind)
            for (uint32_t h = 0; h < summed.heads; h++)
                if (float by = factor[h]; by != 1.0f)
                    map1(sums + h * MAX_HEAD, sums + h * MAX_HEAD, head, [=](F x) { return x * set1(by); });
        const Loops scoring = loops(scored.heads), summing = loops(summed.heads);
        Attention::Tile keys = {}, values = {};
        while ((scores_more && k < scored.to) || (behind && v < summed.to)) {
            if (keys.keys == 0 && scores_more && k < scored.to)
                keys = a.tile(scored.seq, scored.kv, k, scored.to - k);
            if (values.keys == 0 && behind && v < summed.to)
                values = a.tile(summed.seq, summed.kv, v, summed.to - v);
            const uint32_t more_keys = static_cast<uint32_t>(least(keys.keys, step));
            const uint32_t more_values = static_cast<uint32_t>(least(values.keys, step));
            of_keys.follow(), of_values.follow();
            of_keys.both = !apart && more_keys != 0 && more_values != 0;
            if (keys.present)
                scoring.multiply_keys(a.k + a.bytes(keys.first), stride, of_keys, a.q + row(scored, 0) * head, head,
                                      more_keys, products + (k - scored.base));
            else
                scored.seen &= ~keys_of(scored.base, k, k + more_keys);
            for (; weighed < v + more_values - summed.base; weighed += W)
                weigh(weights + weighed, summed.heads, base, totals);
            if (values.present)
                summing.add_values(a.v + a.bytes(values.first), stride, summing_asks, head, more_values,
                                   weights + (v - summed.base), sums);
            k += more_keys, keys.keys -= more_keys, keys.first += uint64_t{more_keys} * a.p.row_stride;
            v += more_values, values.keys -= more_values, values.first += uint64_t{more_values} * a.p.row_stride;
        }
        if (behind) {
            float added_up[4];
            reduce4(totals[0], totals[1], totals[2], totals[3], added_up);
            part.add(added_up, factor, summed.heads);
            close(summed);
        }
        if (scores_more) {
            finish(scored, products);
            summed = scored;
        }
    }
}

// sums[0 … V·W) = sums[…] · kept[i] + added[i] · parts[i][…], i < n, one after the other.
template <int V>
INLINE void fold_parts(float *sums, const float *const *parts, uint32_t d, uint32_t n, const float *kept,
                       const float *added) {
    F sum[V];
    UNROLL for (int v = 0; v < V; v++) sum[v] = load(sums + d + v * W);
    for (uint32_t i = 0; i < n; i++)
        UNROLL for (int v = 0; v < V; v++) sum[v] =
            fma(set1(added[i]), load(parts[i] + d + v * W), sum[v] * set1(kept[i]));
    UNROLL for (int v = 0; v < V; v++) store(sums + d + v * W, sum[v]);
}

// Folds the parts of a row in their order, as Softmax::fold and fold_values do: W parts at a
// time, because the steps of one wait for those of the one before.
static void join(const Partials &partial, uint64_t row, uint64_t stride, uint64_t parts, uint32_t head,
                 const float *sink, const HeadGate &gate, float *out) {
    const float *sums = partial.sums + row * stride * head, *statistics = partial.statistics + row * stride * 2;
    alignas(64) float folded[MAX_HEAD] = {}, before[W] = {}, now[W] = {}, highest[W] = {}, weights[W] = {};
    alignas(64) float kept[W], added[W];
    const float *values[W];
    F maximum = set1(LOWEST), total = zero();
    for (uint64_t i = 0; i < parts;) {
        uint32_t n = 0;
        for (; i < parts && n < W; i++) {
            if (statistics[2 * i + 1] == 0.0f)
                continue;
            values[n] = sums + i * head;
            highest[n] = statistics[2 * i] * partial.log_base, weights[n] = statistics[2 * i + 1];
            store_n(before + n, maximum, 1);
            maximum = max(set1(highest[n]), maximum);
            store_n(now + n, maximum, 1);
            n++;
        }
        const F base = Softmax::base(load(now)), add = exp(load(highest) - base);
        store(kept, exp(load(before) - base)), store(added, add), store(weights, load(weights) * add);
        for (uint32_t j = 0; j < n; j++)
            total = fma(total, set1(kept[j]), set1(weights[j]));
        uint32_t d = 0;
        for (; d + 4 * W <= head; d += 4 * W)
            fold_parts<4>(folded, values, d, n, kept, added);
        for (; d + W <= head; d += W)
            fold_parts<1>(folded, values, d, n, kept, added);
        if (d < head)
            for (uint32_t j = 0; j < n; j++)
                fold_values(folded + d, values[j] + d, head - d, kept[j], added[j]);
    }
    gate.put(row, folded, normaliser(reduce_max(maximum), reduce_max(total), sink), out);
}

static uint64_t combine_units(const smelt_launch *l) {
    const AttentionParams &p = params<AttentionParams>(l, ATTENTION_VEC.params);
    return Ranges(l).staged() ? uint64_t{p.tokens} * p.heads : 0;
}
static void combine(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end, const Cache &c) {
    const Attention a(l, ATTENTION_VEC, c.row_bytes(32));
    const Ranges ranges(l);
    const Partials partial = partials(l, ranges, shared);
    for (uint64_t row = begin; row < end; row++) {
        const uint32_t token = static_cast<uint32_t>(row / a.p.heads), seq = a.sequence(token);
        if (a.map != nullptr && seq >= a.p.seqs)
            continue;
        const uint64_t parts = Ranges::parts_of(a.seen(token, seq));
        if (parts == 0 || partial.statistics[2 * row * ranges.parts] != DONE)
            join(partial, row, ranges.parts, parts, a.p.head, a.sink(row % a.p.heads), a.gate, a.out + row * a.p.head);
    }
}

static uint64_t reduce_units(const smelt_launch *l) {
    const ReduceParams &p = params<ReduceParams>(l, SMELT_ATTENTION_REDUCE_PARAMS);
    return uint64_t{p.tokens} * p.heads;
}
static int reduce_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_ATTENTION_REDUCE_PARAMS, sizeof(ReduceParams)))
        return 0;
    const ReduceParams &p = params<ReduceParams>(l, SMELT_ATTENTION_REDUCE_PARAMS);
    if (p.head == 0 || p.head % 8 != 0 || p.head > MAX_HEAD || p.partitions == 0)
        return 0;
    uint64_t rows = uint64_t{p.tokens} * p.heads, bytes = uint64_t{p.head} * 4;
    return holds_rows(l, SMELT_ATTENTION_REDUCE_PART, rows, p.partitions * bytes) &&
           holds_rows(l, SMELT_ATTENTION_REDUCE_STATISTICS, rows, uint64_t{p.partitions} * 8) &&
           holds_rows(l, SMELT_ATTENTION_REDUCE_OUT, rows, bytes) &&
           holds_gate(l, SMELT_ATTENTION_REDUCE_GATE, SMELT_ATTENTION_REDUCE_FC_GATE,
                      SMELT_ATTENTION_REDUCE_FC_HEAD_GATE, p.tokens, p.gate_stride, p.gate_from, p.heads, p.head) &&
           (constant(l, SMELT_ATTENTION_REDUCE_FC_SINKS) == 0 ||
            holds(l, SMELT_ATTENTION_REDUCE_SINKS, uint64_t{p.heads} * 4));
}
static void reduce(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const ReduceParams &p = params<ReduceParams>(l, SMELT_ATTENTION_REDUCE_PARAMS);
    Partials partial = {buffer<float>(l, SMELT_ATTENTION_REDUCE_PART),
                        buffer<float>(l, SMELT_ATTENTION_REDUCE_STATISTICS), LN_2};
    const float *sinks = optional<const float>(l, SMELT_ATTENTION_REDUCE_FC_SINKS, SMELT_ATTENTION_REDUCE_SINKS);
    const HeadGate gate(l, SMELT_ATTENTION_REDUCE_GATE, SMELT_ATTENTION_REDUCE_FC_GATE,
                        SMELT_ATTENTION_REDUCE_FC_HEAD_GATE, p.gate_stride, p.gate_from, p.heads, p.head);
    for (uint64_t row = begin; row < end; row++)
        join(partial, row, p.partitions, p.partitions, p.head, sinks == nullptr ? nullptr : sinks + row % p.heads, gate,
             buffer<float>(l, SMELT_ATTENTION_REDUCE_OUT) + row * p.head);
}

// ---- many queries: 32 tokens of a sequence, some heads that share a KV head

constexpr uint32_t QUERY_TILE = 32, MAX_SUMS = QUERY_TILE * MAX_HEAD; // of values, in one go
static uint64_t tiles_of(const AttentionParams &p) { return ceil_div(p.tokens, QUERY_TILE) + p.seqs; }
static uint64_t attention_tile_units(const smelt_launch *l) {
    const AttentionParams &p = params<AttentionParams>(l, ATTENTION_TILE.params);
    return p.tokens == 0 ? 0 : tiles_of(p) * p.kv_heads;
}

// Queries [rows, padded] as [padded, QUERY_ROWS], in the order in which scores are added up: lane
// by lane of KEY_ORDER, and of each lane all its elements. Both are multiples of W.
static void transpose_queries(const float *queries, uint32_t rows, uint32_t padded, float *out) {
    uint32_t rank[LANES];
    for (uint32_t i = 0; i < LANES; i++)
        rank[KEY_ORDER[i]] = i * (padded / LANES);
    for (uint32_t d = 0; d < padded; d += 4) {
        for (uint32_t r = 0; r < rows; r += W) {
            I w[4];
            Rows{reinterpret_cast<const uint8_t *>(queries + r * padded + d), padded * 4}.words(0, w);
            for (uint32_t i = 0; i < 4; i++)
                memcpy(out + (rank[(d + i) % LANES] + (d + i) / LANES) * QUERY_ROWS + r, &w[i], sizeof w[i]);
        }
    }
}

// How a tile of scores lies in registers: vectors of queries, and lanes that are summed at once.
constexpr int SCORE_VECTORS = 2, LANES_AT_ONCE = TILE_VECTORS / SCORE_VECTORS;

// out[r][0 … V·W) = k[r]·q for TILE_ROWS keys, rows of k, and V vectors of queries, from
// transpose_queries: sums of lanes are added up as a counter in binary carries. Not inlined, nor is
// matrix_tile: what surrounds them takes registers that their sums need.
template <int V> NOINLINE static void score_tile(const float *k, const float *q, uint32_t padded, float *out) {
    constexpr int L = LANES_AT_ONCE, CARRIES = 3;
    static_assert(LANES / L <= 1 << CARRIES, "a carry for each level");
    const uint32_t elements = padded / LANES;
    F sum[L][TILE_ROWS][V], carried[CARRIES][TILE_ROWS][V];
    for (uint32_t lane = 0; lane < LANES; lane += L) {
        UNROLL for (F(&of)[TILE_ROWS][V] : sum) UNROLL for (F(&row)[V] : of) UNROLL for (F &v : row) v = zero();
        const float *key[L], *vectors = q + lane * elements * QUERY_ROWS;
        UNROLL for (int j = 0; j < L; j++) key[j] = k + KEY_ORDER[lane + static_cast<uint32_t>(j)];
        for (uint32_t i = 0; i < elements; i++, vectors += QUERY_ROWS) {
            UNROLL for (int j = 0; j < L; j++) {
                F row[V];
                UNROLL for (int v = 0; v < V; v++) row[v] =
                    load(vectors + static_cast<uint32_t>(j) * elements * QUERY_ROWS + v * W);
                // Two pointers reach six rows, once and twice a stride from them; more find no registers.
                static_assert(TILE_ROWS == 6);
                const float *half[2] = {key[j], key[j] + 3 * padded};
                UNROLL for (int r = 0; r < TILE_ROWS; r++) {
                    F x = set1(half[r / 3][static_cast<size_t>(r % 3) * padded]);
                    UNROLL for (int v = 0; v < V; v++) sum[j][r][v] = fma(x, row[v], sum[j][r][v]);
                }
                key[j] += LANES;
            }
        }
        static_assert(L == 1 || L == 2, "lanes are added up in pairs");
        if constexpr (L == 2)
            UNROLL for (int r = 0; r < TILE_ROWS; r++) UNROLL for (int v = 0; v < V; v++) sum[0][r][v] =
                sum[0][r][v] + sum[1][r][v];
        int carry = 0;
        for (; (lane / L >> carry & 1) != 0; carry++)
            UNROLL for (int r = 0; r < TILE_ROWS; r++) UNROLL for (int v = 0; v < V; v++) sum[0][r][v] =
                carried[carry][r][v] + sum[0][r][v];
        if (lane + L < LANES)
            UNROLL for (int r = 0; r < TILE_ROWS; r++) UNROLL for (int v = 0; v < V; v++) carried[carry][r][v] =
                sum[0][r][v];
    }
    UNROLL for (uint32_t r = 0; r < TILE_ROWS; r++) UNROLL for (int v = 0; v < V; v++)
        store(out + r * QUERY_ROWS + v * W, sum[0][r][v]);
}

// What rows of queries see of a tile of keys, and how their scores are tilted. Rows behind
// the last see nothing.
struct Sights {
    uint32_t begin, end; // the keys that some row sees
    uint64_t present;    // of these
    bool partly;         // some row does not see all of them
    float from[QUERY_ROWS], to[QUERY_ROWS];
    float slope[QUERY_ROWS], distance[QUERY_ROWS]; // of Tilt

    // Of the keys from `begin` to `end` − 1, those that some of `count` rows from `row` on may see.
    struct Keys {
        uint32_t begin, end;
    };
    Keys of(uint32_t row, uint32_t count) const {
        if (!partly)
            return {begin, end};
        float least = static_cast<float>(end), most = 0;
        for (uint32_t r = row; r < row + count; r++) {
            least = from[r] < to[r] && from[r] < least ? from[r] : least;
            most = from[r] < to[r] && to[r] > most ? to[r] : most;
        }
        const uint32_t first = static_cast<uint32_t>(least), past = static_cast<uint32_t>(most);
        return {first, past < first ? first : past};
    }
};

// The products of the keys of a tile with a multiple of W queries, where some query of a vector
// may see the key: out is [KEY_TILE + SPARE, QUERY_ROWS]. keys(i, n, k) puts n keys from the i-th
// on into rows of k, few at a time: written all at once, they would leave a first-level cache
// before they are read.
template <class Keys>
INLINE void score_rows(const Sights &sights, uint32_t padded, const float *q, uint32_t queries, float *out, Keys keys) {
    alignas(64) float k[TILE_ROWS * MAX_HEAD];
    Sights::Keys seen[QUERY_ROWS / W];
    in_pieces<SCORE_VECTORS>(queries / W, [&](uint32_t v, auto n) { seen[v] = sights.of(v * W, n.value * W); });
    for (uint32_t i = sights.begin; i < sights.end; i += TILE_ROWS) {
        keys(i, static_cast<uint32_t>(least(TILE_ROWS, sights.end - i)), k);
        in_pieces<SCORE_VECTORS>(queries / W, [&](uint32_t v, auto n) __attribute__((always_inline)) {
            if (seen[v].begin < i + TILE_ROWS && i < seen[v].end)
                score_tile<n.value>(k, q + v * W, padded, out + i * QUERY_ROWS + v * W);
        });
    }
}

// Makes products weights, [KEY_TILE, QUERY_ROWS], those of keys that a row does not see zero.
static void soften(float *scores, uint32_t rows, const Sights &sights, bool tilted, float scale, float cap,
                   Softmax state, float *factor) {
    alignas(64) float most[QUERY_ROWS], base[QUERY_ROWS], totals[QUERY_ROWS];
    const bool whole = !sights.partly && (bits(sights.end) & ~bits(sights.begin) & ~sights.present) == 0;
    for (uint32_t r = 0; r < rows; r += W) {
        const auto [begin, end] = sights.of(r, W);
        F top = set1(LOWEST);
        for (uint32_t i = begin; i < end; i++) {
            float *at = scores + i * QUERY_ROWS + r;
            F v = load(at) * set1(scale);
            if (cap > 0)
                v = set1(cap) * tanh(v / set1(cap));
            if (tilted)
                v = fma(load(sights.slope + r), load(sights.distance + r) + set1(static_cast<float>(i)), v);
            if (!whole) {
                const F key = set1(static_cast<float>(i));
                v = where_below(key, load(sights.from + r), set1(LOWEST), v);
                v = where_below(key, load(sights.to + r), v, set1(LOWEST));
                if ((sights.present >> i & 1) == 0)
                    v = set1(LOWEST);
            }
            store(at, v);
            top = max(v, top);
        }
        store(most + r, top);
    }
    state.grow(most, rows, base, factor);
    for (uint32_t r = 0; r < rows; r += W) {
        const auto [begin, end] = sights.of(r, W);
        F sums[W], by = load(base + r);
        for (F &sum : sums)
            sum = zero();
        for (uint32_t i = sights.begin; i < begin; i++)
            store(scores + i * QUERY_ROWS + r, zero());
        for (uint32_t i = begin; i < end; i++) {
            float *at = scores + i * QUERY_ROWS + r;
            F v = exp(load(at) - by);
            store(at, v);
            sums[i % W] = sums[i % W] + v;
        }
        for (uint32_t i = end; i < sights.end; i++)
            store(scores + i * QUERY_ROWS + r, zero());
        F ordered[W];
        for (uint32_t i = 0; i < W; i++)
            ordered[i] = sums[SUM_ORDER[i]];
        for (uint32_t n = W; n > 1; n /= 2)
            for (uint32_t i = 0; i < n / 2; i++)
                ordered[i] = ordered[2 * i] + ordered[2 * i + 1];
        store(totals + r, ordered[0]);
    }
    state.add(totals, factor, rows);
}

// The number of elements in which values are added, a multiple of every type's block: those of all
// keys of a tile and their weights fit into a first-level cache.
constexpr uint32_t VALUE_COLUMNS = 64;

static bool all_finite(const float *x, uint64_t n) { // n a multiple of W
    F zeros = zero();
    for (uint64_t i = 0; i < n; i += W)
        zeros = fma(load(x + i), zero(), zeros);
    return !any_nan(zeros);
}

static void attention_tile(const smelt_launch *l, uint64_t begin, uint64_t end, const Cache &c) {
    Attention a(l, ATTENTION_TILE, c.row_bytes(32));
    const uint32_t head = a.p.head;
    const uint32_t padded = (head + W - 1) / W * W; // a row of keys, of values and of sums
    const size_t stride = c.row_bytes(a.p.row_stride);
    uint64_t tiles = tiles_of(a.p);
    alignas(64) float queries[MAX_HEAD * QUERY_ROWS], scores[(KEY_TILE + SPARE) * QUERY_ROWS];
    alignas(64) float values[KEY_TILE * VALUE_COLUMNS], sums[MAX_SUMS], folded[MAX_SUMS];
    alignas(64) float maximum[QUERY_ROWS], total[QUERY_ROWS], whole_maximum[QUERY_ROWS], whole_total[QUERY_ROWS];
    alignas(64) float factor[QUERY_ROWS], kept[QUERY_ROWS], added[QUERY_ROWS];
    alignas(64) Sights sights = {};
    Softmax part = {maximum, total}, whole = {whole_maximum, whole_total};
    static_assert(MAX_HEAD % W == 0 && KEY_TILE % W == 0 && QUERY_ROWS % W == 0, "vectors must divide the buffers");
    for (uint64_t unit = begin; unit < end; unit++) {
        uint32_t kv = static_cast<uint32_t>(unit % a.p.kv_heads);
        // Later tiles of a sequence see more keys: alternate between both ends, so
        // that halves of the units are equal work.
        uint64_t rank = unit / a.p.kv_heads;
        uint64_t index = rank % 2 == 0 ? rank / 2 : tiles - 1 - rank / 2;
        uint32_t seq = 0;
        for (uint32_t low = 0, high = a.p.seqs; low < high;) {
            // Sequence s owns the tiles from starts[s]/QUERY_TILE + s on.
            uint32_t mid = (low + high) / 2;
            if (static_cast<uint64_t>(a.starts[mid]) / QUERY_TILE + mid <= index)
                seq = mid, low = mid + 1;
            else
                high = mid;
        }
        int64_t token = a.starts[seq], past = a.starts[seq + 1];
        token += (static_cast<int64_t>(index) - token / QUERY_TILE - seq) * QUERY_TILE;
        past = past < a.p.tokens ? past : a.p.tokens;
        if (token < 0 || token >= past)
            continue;
        uint32_t tokens = static_cast<uint32_t>(least(QUERY_TILE, static_cast<uint64_t>(past - token)));
        Attention::Seen seen[QUERY_TILE], by_all = {0, INT64_MAX}; // by each token, and by all of them
        int64_t least_key = INT64_MAX, most = 0;
        for (uint32_t t = 0; t < tokens; t++) {
            const Attention::Seen n = seen[t] = a.seen(static_cast<uint32_t>(token) + t, seq);
            by_all.from = n.from > by_all.from ? n.from : by_all.from;
            by_all.to = n.to < by_all.to ? n.to : by_all.to;
            if (n.from == n.to)
                continue;
            least_key = n.from < least_key ? n.from : least_key;
            most = n.to > most ? n.to : most;
        }
        // Which of a tile's keys there are.
        const auto present = [&](int64_t base, int64_t from, int64_t to) {
            uint64_t keys = 0;
            while (from < to) {
                const Attention::Tile tile = a.tile(seq, kv, from, to - from);
                if (tile.present)
                    keys |= keys_of(base, from, from + tile.keys);
                from += tile.keys;
            }
            return keys;
        };
        // Converts `width` elements from the d-th on of n keys' rows to floats. Absent rows, and
        // elements past a row's end, are zeros.
        const auto gather = [&](const uint8_t *cache, int64_t j, uint32_t n, uint32_t d, uint32_t width, float *out) {
            const uint32_t held = static_cast<uint32_t>(least(width, head - d));
            for (const int64_t end = j + n; j < end;) {
                const Attention::Tile tile = a.tile(seq, kv, j, end - j);
                const uint32_t filled = tile.present ? held : 0;
                if (filled != 0)
                    c.widen_rows(cache + c.row_bytes(tile.first) + c.row_bytes(d), stride, tile.keys, filled, out,
                                 width);
                for (uint32_t i = 0; filled != width && i < tile.keys; i++)
                    memset(out + i * width + filled, 0, (width - filled) * 4);
                j += tile.keys, out += tile.keys * width;
            }
        };
        // Prefetches the rows of n keys that some token sees: a few at a time while others are
        // multiplied, because prefetching all at once would stall.
        const auto expect = [&](const uint8_t *cache, int64_t j, uint32_t n) {
            for (const int64_t end = j + n < most ? j + n : most; j < end;) {
                const Attention::Tile tile = a.tile(seq, kv, j, end - j);
                const uint8_t *row = cache + c.row_bytes(tile.first);
                for (uint32_t i = 0; tile.present && i < tile.keys; i++, row += stride)
                    prefetch_lines(row, c.row_bytes(head));
                j += tile.keys;
            }
        };
        const uint32_t rows = static_cast<uint32_t>(least(QUERY_ROWS, MAX_SUMS / padded / W * W));
        uint32_t together = rows / tokens; // heads
        for (uint32_t h0 = 0; h0 < a.group; h0 += together) {
            const uint32_t heads = static_cast<uint32_t>(least(together, a.group - h0)), count = heads * tokens;
            const uint32_t lanes = (count + W - 1) / W * W;
            const auto token_of = [&](uint32_t row) { return static_cast<uint32_t>(token) + row / heads; };
            const auto head_of = [&](uint32_t row) { return kv * uint64_t{a.group} + h0 + row % heads; };
            const auto place = [&](uint32_t row) {
                return (token_of(row) * uint64_t{a.p.heads} + head_of(row)) * head;
            };
            memset(sums, 0, uint64_t{lanes} * padded * 4);
            for (uint32_t r = 0; r < count; r++)
                memcpy(sums + r * padded, a.q + place(r), head * 4);
            transpose_queries(sums, lanes, padded, queries);
            whole.start(QUERY_ROWS);
            bool begun = false, opened = false; // the first part, and a part
            for (int64_t base = least_key / KEY_TILE * KEY_TILE; base < most; base += KEY_TILE) {
                const int64_t from = base < least_key ? least_key : base;
                const int64_t to = base + KEY_TILE < most ? base + KEY_TILE : most;
                if (base % PART == 0 || from == least_key) {
                    part.start(QUERY_ROWS);
                    opened = false;
                }
                const uint32_t first = static_cast<uint32_t>(from - base), last = static_cast<uint32_t>(to - base);
                if (sights.present = present(base, from, to); sights.present != 0) {
                    uint32_t sees_from[QUERY_ROWS], sees_to[QUERY_ROWS];
                    sights.begin = first, sights.end = last;
                    sights.partly = from < by_all.from || to > by_all.to;
                    const auto within = [&](int64_t j) {
                        return static_cast<uint32_t>(j < from ? first : j < to ? j - base : last);
                    };
                    for (uint32_t r = 0; r < lanes; r++) {
                        const Attention::Seen row = !sights.partly ? Attention::Seen{from, to}
                                                    : r < count    ? seen[r / heads]
                                                                   : Attention::Seen{from, from};
                        sees_from[r] = within(row.from), sees_to[r] = within(row.to);
                        sights.from[r] = static_cast<float>(sees_from[r]);
                        sights.to[r] = static_cast<float>(sees_to[r]);
                    }
                    for (uint32_t r = 0; a.slopes != nullptr && r < count; r++) {
                        const Tilt tilt = a.tilt(head_of(r), token_of(r), base);
                        sights.slope[r] = tilt.slope, sights.distance[r] = tilt.distance;
                    }
                    score_rows(sights, padded, queries, lanes, scores, [&](uint32_t i, uint32_t n, float *k) {
                        expect(a.k, base + KEY_TILE + i, n);
                        expect(a.v, base + i, n);
                        gather(a.k, base + i, n, 0, padded, k);
                    });
                    soften(scores, lanes, sights, a.slopes != nullptr, a.p.scale, a.cap, part, factor);
                    const float *factors = opened ? factor : nullptr;
                    opened = true;
                    for (uint32_t d = 0, width; d < padded; d += width) {
                        width = static_cast<uint32_t>(least(VALUE_COLUMNS, padded - d));
                        gather(a.v, from, last - first, d, width, values);
                        // A key that a row does not see weighs zero, which takes care of a finite value
                        // only: 0 · ∞ is NaN.
                        if (!sights.partly || all_finite(values, uint64_t{last - first} * width)) {
                            matrix_product(
                                count, width, [&](uint32_t r) { return sees_to[r] - first; },
                                scores + first * QUERY_ROWS, QUERY_ROWS, values, width, sums + d, padded, factors);
                            continue;
                        }
                        for (uint32_t r = 0; r < count; r++)
                            matrix_product(
                                1, width, [&](uint32_t) { return sees_to[r] - sees_from[r]; },
                                scores + sees_from[r] * QUERY_ROWS + r, QUERY_ROWS,
                                values + (sees_from[r] - first) * width, width, sums + r * padded + d, padded,
                                factors == nullptr ? nullptr : factors + r);
                    }
                }
                if (!opened || ((base + KEY_TILE) % PART != 0 && to != most))
                    continue;
                whole.fold(part, lanes, kept, added);
                for (uint32_t r = 0; r < count; r++) {
                    float *values = folded + r * padded;
                    if (!begun)
                        memset(values, 0, head * 4);
                    if (total[r] != 0.0f)
                        fold_values(values, sums + r * padded, head, kept[r], added[r]);
                }
                begun = true;
            }
            if (!begun)
                memset(folded, 0, uint64_t{count} * padded * 4);
            for (uint32_t r = 0; r < count; r++) {
                a.gate.put(place(r) / head, folded + r * padded,
                           normaliser(whole_maximum[r], whole_total[r], a.sink(head_of(r))), a.out + place(r));
            }
        }
    }
}
