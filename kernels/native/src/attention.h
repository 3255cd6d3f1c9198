// attention_vec and attention_tile over the paged cache, with a sliding window, a soft
// cap of the scores, slopes (ALiBi), sinks, and the host's map from tokens to sequences
// where function constants ask for them.
//
// Key j of sequence b lies in slot j % block of cache block block_table[b][j / block].
// Keys inside one block are a stride apart, so both kernels walk keys in tiles that
// never cross a block. Softmax is online: a running maximum, and sums that are rescaled
// when it grows.

constexpr int KEY_TILE = 64;
constexpr uint32_t QUERY_ROWS = 64; // rows of scores worked on together, at most
constexpr float LOWEST = -__builtin_inff();

// What the kernels take. Parts of keys are attention_vec's affair; and so is fc_rows, how a
// GPU cuts the tokens, which here changes nothing.
struct AttentionArguments {
    uint32_t params, q, k_cache, v_cache, positions, cu_seqlens, context_lens, block_table, out, sinks, map, slopes;
    uint32_t fc_window, fc_soft_cap, fc_sinks, fc_map, fc_slopes;
    uint32_t part, statistics, fc_split, fc_rows;
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
     FC_ROWS}
constexpr AttentionArguments ATTENTION_VEC =
    ATTENTION_ARGUMENTS(SMELT_ATTENTION_VEC, SMELT_ATTENTION_VEC_PART, SMELT_ATTENTION_VEC_STATISTICS,
                        SMELT_ATTENTION_VEC_FC_SPLIT, SMELT_ATTENTION_VEC_FC_ROWS);
constexpr AttentionArguments ATTENTION_TILE =
    ATTENTION_ARGUMENTS(SMELT_ATTENTION_TILE, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN);

// Blocks of a cache of so many elements, by strides.
INLINE uint64_t blocks_of(const AttentionParams &p, uint64_t elements) {
    uint64_t block = uint64_t{p.kv_heads - 1} * p.head_stride + uint64_t{p.block - 1} * p.row_stride + p.head;
    return elements < block ? 0 : (elements - block) / p.block_stride + 1;
}

// What ALiBi adds to a row of scores: slope · (distance + i) to that of key i. Distances are
// from the row's own position to keys, so that they are 0 and less.
struct Tilt {
    float slope, distance;
};

struct Attention {
    AttentionParams p;
    const float *q;
    const uint8_t *k, *v;
    const int32_t *positions, *starts, *lengths, *table, *map;
    const float *sinks, *slopes; // by head, or null
    float *out;
    uint64_t blocks; // of the cache, from the size of its buffer
    uint32_t group;  // query heads that share a KV head
    int64_t window;  // keys that a token sees; 0 for all
    float cap;       // of scores; 0 for none

    // `row` is the bytes of 32 elements of the cache.
    Attention(const smelt_launch *l, const AttentionArguments &of, uint64_t row)
        : p(params<AttentionParams>(l, of.params)) {
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
    // The sequence of a token: the last that starts at it or before, or what the map says.
    // None is p.seqs or more.
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
        rescale = reduce_max(exp(set1(maximum - top)));
        total = total * rescale + reduce_max(exp(set1(*sink - top)));
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
                    (constant(l, of.fc_sinks) != 0 && !holds(l, of.sinks, uint64_t{p.heads} * 4)))
        return 0;
    return holds_rows(l, of.q, rows, bytes) && holds(l, of.k_cache, 1) && holds(l, of.v_cache, 1) &&
           holds(l, of.positions, uint64_t{p.tokens} * 4) && holds(l, of.cu_seqlens, (uint64_t{p.seqs} + 1) * 4) &&
           holds(l, of.context_lens, uint64_t{p.seqs} * 4) &&
           holds_rows(l, of.block_table, p.seqs, uint64_t{p.table_stride} * 4) &&
           (constant(l, of.fc_map) == 0 || holds(l, of.map, uint64_t{p.tokens} * 4)) &&
           (constant(l, of.fc_slopes) == 0 || holds(l, of.slopes, uint64_t{p.heads} * 4));
}

// A row of scores as seen: those before `from` and from `to` on are −∞, whatever they were.
INLINE void hide(float *scores, uint32_t from, uint32_t to, uint32_t width) {
    for (uint32_t i = 0; i < from && i < width; i++)
        scores[i] = LOWEST;
    for (uint32_t i = to; i < width; i++)
        scores[i] = LOWEST;
}

// Makes a row of products scores that are tilted, and returns the largest in each lane.
static F tilt(float *row, uint32_t width, float scale, float cap, Tilt by) {
    float places[W];
    for (int i = 0; i < W; i++)
        places[i] = by.distance + static_cast<float>(i);
    F distance = load(places), top = set1(LOWEST);
    for (uint32_t i = 0; i < width; i += W) {
        F v = load(row + i) * set1(scale);
        if (cap > 0)
            v = set1(cap) * tanh(v / set1(cap));
        v = fma(set1(by.slope), distance, v);
        store(row + i, v);
        top = max(v, top);
        distance = distance + set1(W);
    }
    return top;
}

// Replaces products by e^(score − maximum), in rows of KEY_TILE of which the first `width`
// hold a product, and `from` to `to` count; the others become zero. The maximum so far and
// the sum of weights are updated; factor is what was summed before must be multiplied by.
// Rows are taken together because a row by itself is a chain of few, slow steps. None of
// it depends on the row's company. `tilts` may be null.
static void soften(float *scores, uint32_t rows, const uint32_t *from, const uint32_t *to, uint32_t width, float scale,
                   float cap, const Tilt *tilts, float *maximum, float *total, float *factor) {
    alignas(64) float most[QUERY_ROWS], base[QUERY_ROWS], sum[4];
    for (uint32_t r = 0; r < rows; r++) {
        float *row = scores + r * KEY_TILE;
        F top = set1(LOWEST);
        if (tilts != nullptr) {
            top = tilt(row, width, scale, cap, tilts[r]);
        } else {
            for (uint32_t i = 0; i < width; i += W) {
                F v = load(row + i) * set1(scale);
                if (cap > 0)
                    v = set1(cap) * tanh(v / set1(cap));
                store(row + i, v);
                top = max(v, top);
            }
        }
        if (from[r] != 0 || to[r] != width) {
            hide(row, from[r], to[r], width);
            top = set1(LOWEST);
            for (uint32_t i = 0; i < width; i += W)
                top = max(load(row + i), top);
        }
        most[r] = reduce_max(top);
    }
    for (uint32_t r = 0; r < rows; r += W) {
        int n = static_cast<int>(least(W, rows - r));
        F old = load_n(maximum + r, n), now = max(load_n(most + r, n), old);
        // With nothing but −∞ so far, subtract what is finite: the weights become zeros, not NaN.
        F by = max(now, set1(-3.4028235e38f)), rescale = exp(old - by);
        store_n(maximum + r, now, n), store_n(base + r, by, n), store_n(factor + r, rescale, n);
        store_n(total + r, load_n(total + r, n) * rescale, n);
    }
    auto weigh = [&](uint32_t r, auto n) __attribute__((always_inline)) {
        constexpr int N = decltype(n)::value;
        F sums[4] = {zero(), zero(), zero(), zero()};
        for (uint32_t i = 0; i < width; i += W) {
            UNROLL for (int j = 0; j < N; j++) {
                float *at = scores + (r + static_cast<uint32_t>(j)) * KEY_TILE + i;
                F v = exp(load(at) - set1(base[r + static_cast<uint32_t>(j)]));
                store(at, v);
                sums[j] = sums[j] + v;
            }
        }
        reduce4(sums[0], sums[1], sums[2], sums[3], sum);
        for (uint32_t j = 0; j < N; j++)
            total[r + j] += sum[j];
    };
    uint32_t r = 0;
    for (; r + 4 <= rows; r += 4)
        weigh(r, Int<4>{});
    for (; r < rows; r++)
        weigh(r, Int<1>{});
}

// ---- few queries: one token, one KV head, a part of its keys at a time

// The keys of a token are cut into parts so that many threads find work even when
// one token is decoded. Either the launch says how, and attention_reduce puts the parts
// together, or the number depends on its sizes alone and a second stage does.
struct Parts {
    uint64_t count, split; // split: keys of a part, where the launch says so; else 0
    explicit Parts(const smelt_launch *l) : split(constant(l, ATTENTION_VEC.fc_split)) {
        const AttentionParams &p = params<AttentionParams>(l, ATTENTION_VEC.params);
        uint64_t units = uint64_t{p.tokens} * p.kv_heads, most = 8;
        count = split != 0 ? l->grid[2] : units == 0 || units >= 64 ? 1 : least(most, ceil_div(64, units));
    }
    // What a token sees of a part.
    MEMBER Attention::Seen seen(Attention::Seen all, uint64_t part) const {
        uint64_t begin = static_cast<uint64_t>(all.from), end = static_cast<uint64_t>(all.to), from, each = split;
        if (split != 0) {
            from = part * each;
        } else {
            each = ceil_div(ceil_div(end - begin, count), KEY_TILE) * KEY_TILE;
            each = each < 256 ? 256 : each;
            from = begin + part * each;
        }
        uint64_t to = least(from + each, end);
        from = from < begin ? begin : from;
        return {static_cast<int64_t>(least(from, end)), static_cast<int64_t>(to)};
    }
};

// What parts come to: sums of weighted values [rows, parts, head], not yet divided, and
// [rows, parts, 2] the largest score, in units of ln(base), and the sum of weights. Where
// that is 0 there are no sums. A row is a head of a token.
struct Partials {
    float *sums, *statistics;
    float log_base;
};
constexpr float LN_2 = 0.693147181f, LOG2_E = 1.44269504f;
constexpr float NO_SCORE = -3.0e38f; // the largest score of a part without keys

// Where the results of parts go: for attention_reduce the buffers that it takes, with
// scores to base 2, or else memory that the stages share.
static Partials partials(const smelt_launch *l, const Parts &parts, void *shared) {
    if (parts.split != 0)
        return {buffer<float>(l, ATTENTION_VEC.part), buffer<float>(l, ATTENTION_VEC.statistics), LN_2};
    const AttentionParams &p = params<AttentionParams>(l, ATTENTION_VEC.params);
    float *sums = static_cast<float *>(shared);
    return {sums, sums + uint64_t{p.tokens} * p.heads * parts.count * p.head, 1};
}

static size_t attention_vec_shared(const smelt_launch *l) {
    const AttentionParams &p = params<AttentionParams>(l, ATTENTION_VEC.params);
    Parts parts(l);
    return parts.split != 0 || parts.count == 1
               ? 0
               : uint64_t{p.tokens} * p.heads * parts.count * (uint64_t{p.head} + 2) * 4;
}
static uint64_t attention_vec_units(const smelt_launch *l) {
    const AttentionParams &p = params<AttentionParams>(l, ATTENTION_VEC.params);
    return uint64_t{p.tokens} * p.kv_heads * Parts(l).count;
}

// A tile of attention_vec has about as many bytes of keys: three quarters of what memory gives
// were read with 16 KB, nearly all is with 4.
constexpr uint64_t TILE_BYTES = 4096; // measured
INLINE int64_t keys_in_tile(uint64_t key) {
    uint64_t keys = TILE_BYTES / key / 16 * 16;
    return static_cast<int64_t>(keys < 16 ? 16 : least(keys, KEY_TILE));
}

// Asks for keys and values that come behind a tile's, as many bytes of each while the tile's
// keys are read as while its values are: two streams that never rest. A key is read LEAD
// after it was asked for or more, and so is a value; for keys that takes half a tile more,
// since they are read twice as fast as they are asked for.
struct Ahead {
    static constexpr uint64_t LEAD = 2048; // measured, like the level of the cache
    const uint8_t *k, *v;
    uint64_t lead; // LEAD, or what a launch hints at
    uint64_t end;  // bytes from there to the last that will be read
    uint64_t keys; // how far ahead of k to ask
    uint64_t due = 0, asked = 0;

    Ahead(const uint8_t *k, const uint8_t *v, uint64_t lead, uint64_t tile, uint64_t end)
        : k(k), v(v), lead(lead), end(end), keys(lead + tile / 2) {}
    MEMBER void ask(uint64_t bytes) {
        for (due += bytes; asked < due; asked += 64) {
            if (asked + keys < end)
                __builtin_prefetch(k + asked + keys, 0, 3);
            if (asked + lead < end)
                __builtin_prefetch(v + asked + lead, 0, 3);
        }
    }
};

// sums[h][d0 + d] += Σ weights[h][j] · v[j][d0 + d] for H heads and V vectors of d; rows
// of v are `stride` bytes apart. `ahead` may be null.
template <class C, int H, int V>
INLINE void add_values(const uint8_t *v, size_t stride, Ahead *ahead, uint32_t d0, uint32_t keys, const float *weights,
                       float *sums) {
    F sum[H][V];
    sums += d0;
    UNROLL for (int h = 0; h < H; h++) UNROLL for (int i = 0; i < V; i++) sum[h][i] = load(sums + h * MAX_HEAD + i * W);
    for (uint32_t j = 0; j < keys; j++, v += stride) {
        if (ahead != nullptr)
            ahead->ask(stride / 2);
        F row[V];
        UNROLL for (int i = 0; i < V; i++) row[i] = elements<C>(v, d0 + static_cast<uint32_t>(i * W));
        UNROLL for (int h = 0; h < H; h++) {
            F w = set1(weights[h * KEY_TILE + j]);
            UNROLL for (int i = 0; i < V; i++) sum[h][i] = fma(w, row[i], sum[h][i]);
        }
    }
    UNROLL for (int h = 0; h < H; h++) UNROLL for (int i = 0; i < V; i++) store(sums + h * MAX_HEAD + i * W, sum[h][i]);
}
template <class C, int H>
static void add_values_of(const uint8_t *v, size_t stride, Ahead *ahead, uint32_t head, uint32_t keys,
                          const float *weights, float *sums) {
    uint32_t d = 0;
    for (; d + 4 * W <= head; d += 4 * W, ahead = nullptr)
        add_values<C, H, 4>(v, stride, ahead, d, keys, weights, sums);
    for (; d + W <= head; d += W, ahead = nullptr)
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

template <class C> static void attention_vec(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    Attention a(l, ATTENTION_VEC, row_bytes<C>(32));
    Parts parts(l);
    Partials partial = partials(l, parts, shared);
    const uint32_t head = a.p.head;
    const size_t stride = row_bytes<C>(a.p.row_stride);
    const int64_t most = keys_in_tile(row_bytes<C>(head));
    const uint64_t lead = least(hint(l, SMELT_HINT_AHEAD, Ahead::LEAD), 1 << 20);
    const bool dense = a.p.row_stride == head; // else processors follow by themselves
    for (uint64_t unit = begin; unit < end; unit++) {
        uint64_t part = unit % parts.count, kv = unit / parts.count % a.p.kv_heads;
        uint32_t token = static_cast<uint32_t>(unit / parts.count / a.p.kv_heads);
        uint32_t seq = a.sequence(token);
        if (a.map != nullptr && seq >= a.p.seqs)
            continue;
        const Attention::Seen all = a.seen(token, seq);
        const auto [from, to] = parts.seen(all, part);
        // The next unit may go on where this one ends.
        const int64_t read_to = unit + 1 < end && part + 1 < parts.count ? all.to : to;
        for (uint32_t h0 = 0; h0 < a.group; h0 += SHARING) {
            uint32_t heads = static_cast<uint32_t>(least(SHARING, a.group - h0));
            uint64_t first = kv * a.group + h0;
            const float *q = a.q + (token * uint64_t{a.p.heads} + first) * head;
            alignas(64) float scores[SHARING * KEY_TILE], sums[SHARING * MAX_HEAD];
            float maximum[SHARING], total[SHARING];
            Tilt tilts[SHARING];
            memset(sums, 0, sizeof sums);
            for (uint32_t h = 0; h < heads; h++)
                maximum[h] = LOWEST, total[h] = 0;
            for (int64_t j = from; j < to;) {
                if (a.slopes != nullptr)
                    for (uint32_t h = 0; h < heads; h++)
                        tilts[h] = a.tilt(first + h, token, j);
                Attention::Tile tile = a.tile(seq, static_cast<uint32_t>(kv), j, to - j < most ? to - j : most);
                const uint64_t left = least(tile.in_block, static_cast<uint64_t>(read_to - j));
                j += tile.keys;
                if (!tile.present)
                    continue;
                const uint8_t *k = a.k + row_bytes<C>(tile.first), *v = a.v + row_bytes<C>(tile.first);
                Ahead ahead(k, v, lead, tile.keys * stride, dense ? left * stride : 0);
                with_count<SHARING>(heads, [&](auto n) {
                    constexpr int H = decltype(n)::value;
                    uint32_t i = 0;
                    for (; i + 4 <= tile.keys; i += 4) {
                        ahead.ask(2 * stride);
                        dot_tile<4, H>(FileRows<C>{k + i * stride, stride}, q, head, head, scores + i, KEY_TILE);
                    }
                    // The last few keys: rows of which only the first counts.
                    for (; i < tile.keys; i++) {
                        float same[H * 4];
                        dot_tile<4, H>(FileRows<C>{k + i * stride, 0}, q, head, head, same, 4);
                        for (int h = 0; h < H; h++)
                            scores[h * KEY_TILE + i] = same[h * 4];
                    }
                    const uint32_t none[SHARING] = {};
                    uint32_t all[SHARING], width = (tile.keys + W - 1) / W * W;
                    for (uint32_t &n : all)
                        n = tile.keys;
                    float factor[SHARING];
                    soften(scores, H, none, all, width, a.p.scale, a.cap, a.slopes == nullptr ? nullptr : tilts,
                           maximum, total, factor);
                    for (int h = 0; h < H; h++) {
                        float by = factor[h];
                        if (by != 1.0f)
                            map1(sums + h * MAX_HEAD, sums + h * MAX_HEAD, head, [=](F x) { return x * set1(by); });
                    }
                    add_values_of<C, H>(v, stride, &ahead, head, tile.keys, scores, sums);
                });
            }
            for (uint32_t h = 0; h < heads; h++) {
                uint64_t row = token * uint64_t{a.p.heads} + first + h;
                if (parts.split != 0 || parts.count > 1) {
                    uint64_t at = row * parts.count + part;
                    float highest = parts.split != 0 ? maximum[h] * LOG2_E : maximum[h];
                    partial.statistics[2 * at] = maximum[h] == LOWEST ? NO_SCORE : highest;
                    partial.statistics[2 * at + 1] = total[h];
                    if (total[h] != 0.0f)
                        memcpy(partial.sums + at * head, sums + h * MAX_HEAD, head * 4);
                    continue;
                }
                F inverse = set1(normaliser(maximum[h], total[h], a.sink(first + h)));
                map1(sums + h * MAX_HEAD, a.out + row * head, head, [=](F x) { return x * inverse; });
            }
        }
    }
}

// Adds up the parts of a row.
static void join(const Partials &partial, uint64_t row, uint64_t parts, uint32_t head, const float *sink, float *out) {
    const float *sums = partial.sums + row * parts * head, *statistics = partial.statistics + row * parts * 2;
    float maximum = LOWEST, total = 0;
    for (uint64_t i = 0; i < parts; i++)
        if (statistics[2 * i + 1] != 0.0f && statistics[2 * i] > maximum)
            maximum = statistics[2 * i];
    float joined[MAX_HEAD] = {};
    for (uint64_t i = 0; i < parts; i++) {
        if (statistics[2 * i + 1] == 0.0f)
            continue;
        float factor = reduce_max(exp(set1((statistics[2 * i] - maximum) * partial.log_base)));
        total += factor * statistics[2 * i + 1];
        map2(joined, sums + i * head, joined, head, [=](F s, F x) { return fma(set1(factor), x, s); });
    }
    F inverse = set1(normaliser(maximum * partial.log_base, total, sink));
    map1(joined, out, head, [=](F x) { return x * inverse; });
}

static uint64_t combine_units(const smelt_launch *l) {
    const AttentionParams &p = params<AttentionParams>(l, ATTENTION_VEC.params);
    Parts parts(l);
    return parts.split != 0 || parts.count == 1 ? 0 : uint64_t{p.tokens} * p.heads;
}
static void combine(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end, const Cache &c) {
    Attention a(l, ATTENTION_VEC, c.row_bytes(32));
    Parts parts(l);
    Partials partial = partials(l, parts, shared);
    for (uint64_t row = begin; row < end; row++)
        if (a.map == nullptr || a.sequence(static_cast<uint32_t>(row / a.p.heads)) < a.p.seqs)
            join(partial, row, parts.count, a.p.head, a.sink(row % a.p.heads), a.out + row * a.p.head);
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
           (constant(l, SMELT_ATTENTION_REDUCE_FC_SINKS) == 0 ||
            holds(l, SMELT_ATTENTION_REDUCE_SINKS, uint64_t{p.heads} * 4));
}
static void reduce(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const ReduceParams &p = params<ReduceParams>(l, SMELT_ATTENTION_REDUCE_PARAMS);
    Partials partial = {buffer<float>(l, SMELT_ATTENTION_REDUCE_PART),
                        buffer<float>(l, SMELT_ATTENTION_REDUCE_STATISTICS), LN_2};
    const float *sinks = optional<const float>(l, SMELT_ATTENTION_REDUCE_FC_SINKS, SMELT_ATTENTION_REDUCE_SINKS);
    for (uint64_t row = begin; row < end; row++)
        join(partial, row, p.partitions, p.head, sinks == nullptr ? nullptr : sinks + row % p.heads,
             buffer<float>(l, SMELT_ATTENTION_REDUCE_OUT) + row * p.head);
}

// ---- many queries: 32 tokens of a sequence, some heads that share a KV head

constexpr uint32_t QUERY_TILE = 32;
static uint64_t tiles_of(const AttentionParams &p) { return ceil_div(p.tokens, QUERY_TILE) + p.seqs; }
static uint64_t attention_tile_units(const smelt_launch *l) {
    const AttentionParams &p = params<AttentionParams>(l, ATTENTION_TILE.params);
    return p.tokens == 0 ? 0 : tiles_of(p) * p.kv_heads;
}

// Writes KEY_TILE rows of `head` floats as head rows of KEY_TILE.
static void transpose_keys(const float *rows, uint32_t head, float *out) {
    for (uint32_t d = 0; d < head; d += 4) {
        for (uint32_t j = 0; j < KEY_TILE; j += W) {
            I w[4];
            Rows{reinterpret_cast<const uint8_t *>(rows + j * head + d), head * 4}.words(0, w);
            for (uint32_t i = 0; i < 4; i++)
                memcpy(out + (d + i) * KEY_TILE + j, &w[i], sizeof w[i]);
        }
    }
}

static bool all_finite(const float *x, uint64_t n) { // n a multiple of W
    F zeros = zero();
    for (uint64_t i = 0; i < n; i += W)
        zeros = fma(load(x + i), zero(), zeros);
    return !any_nan(zeros);
}

static void attention_tile(const smelt_launch *l, uint64_t begin, uint64_t end, const Cache &c) {
    Attention a(l, ATTENTION_TILE, c.row_bytes(32));
    const uint32_t head = a.p.head;
    const uint32_t padded = (head + W - 1) / W * W; // a row of values and of sums
    uint64_t tiles = tiles_of(a.p);
    alignas(64) float rows[KEY_TILE * MAX_HEAD], keys[KEY_TILE * MAX_HEAD];
    alignas(64) float sums[QUERY_ROWS * MAX_HEAD], scores[QUERY_ROWS * KEY_TILE];
    static_assert(MAX_HEAD % W == 0 && KEY_TILE % W == 0, "vectors must divide the buffers");
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
        int64_t least_key = INT64_MAX, most = 0;
        for (uint32_t t = 0; t < tokens; t++) {
            Attention::Seen n = a.seen(static_cast<uint32_t>(token) + t, seq);
            if (n.from == n.to)
                continue;
            least_key = n.from < least_key ? n.from : least_key;
            most = n.to > most ? n.to : most;
        }
        uint32_t together = QUERY_ROWS / tokens; // heads
        for (uint32_t h0 = 0; h0 < a.group; h0 += together) {
            uint32_t heads = static_cast<uint32_t>(least(together, a.group - h0)), count = heads * tokens;
            auto place = [&](uint32_t row) {
                uint64_t t = static_cast<uint64_t>(token) + row / heads;
                return (t * a.p.heads + kv * uint64_t{a.group} + h0 + row % heads) * head;
            };
            float maximum[QUERY_ROWS], total[QUERY_ROWS], factor[QUERY_ROWS];
            Tilt tilts[QUERY_ROWS];
            for (uint32_t r = 0; r < count; r++)
                maximum[r] = LOWEST, total[r] = 0;
            memset(sums, 0, uint64_t{count} * padded * 4);
            for (int64_t j = least_key; j < most;) {
                Attention::Tile tile = a.tile(seq, kv, j, most - j);
                int64_t first = j;
                j += tile.keys;
                if (!tile.present)
                    continue;
                size_t stride = c.row_bytes(a.p.row_stride), at = c.row_bytes(tile.first);
                for (uint32_t i = 0; i < tile.keys; i++)
                    c.widen(a.k + at + i * stride, rows + i * head, head);
                memset(rows + tile.keys * head, 0, (KEY_TILE - tile.keys) * uint64_t{head} * 4);
                transpose_keys(rows, head, keys);
                uint32_t width = (tile.keys + W - 1) / W * W;
                matrix_product(
                    count, width, [=](uint32_t) { return head; }, [&](uint32_t r) { return a.q + place(r); }, keys,
                    KEY_TILE, [&](uint32_t r) { return scores + r * KEY_TILE; }, nullptr);
                uint32_t sees_from[QUERY_ROWS], sees_to[QUERY_ROWS];
                bool all = true;
                for (uint32_t r = 0; r < count; r++) {
                    Attention::Seen seen = a.seen(static_cast<uint32_t>(token) + r / heads, seq);
                    auto within = [&](int64_t n) {
                        return static_cast<uint32_t>(n < 0 ? 0 : n > tile.keys ? tile.keys : n);
                    };
                    uint32_t n = sees_to[r] = within(seen.to - first), from = sees_from[r] = within(seen.from - first);
                    all = all && from == 0 && n == tile.keys;
                }
                if (a.slopes != nullptr)
                    for (uint32_t r = 0; r < count; r++)
                        tilts[r] = a.tilt(kv * uint64_t{a.group} + h0 + r % heads,
                                          static_cast<uint32_t>(token) + r / heads, first);
                soften(scores, count, sees_from, sees_to, width, a.p.scale, a.cap,
                       a.slopes == nullptr ? nullptr : tilts, maximum, total, factor);
                for (uint32_t i = 0; i < tile.keys; i++) {
                    float *row = rows + i * padded;
                    c.widen(a.v + at + i * stride, row, head);
                    memset(row + head, 0, (padded - head) * 4);
                }
                // A key that a row does not see weighs zero, which takes care of a finite value
                // only: 0 · ∞ is NaN.
                if (all || all_finite(rows, uint64_t{tile.keys} * padded)) {
                    matrix_product(
                        count, padded, [&](uint32_t r) { return sees_to[r]; },
                        [&](uint32_t r) { return scores + r * KEY_TILE; }, rows, padded,
                        [&](uint32_t r) { return sums + r * padded; }, factor);
                    continue;
                }
                for (uint32_t r = 0; r < count; r++)
                    matrix_product(
                        1, padded, [&](uint32_t) { return sees_to[r] - sees_from[r]; },
                        [&](uint32_t) { return scores + r * KEY_TILE + sees_from[r]; }, rows + sees_from[r] * padded,
                        padded, [&](uint32_t) { return sums + r * padded; }, factor + r);
            }
            for (uint32_t r = 0; r < count; r++) {
                uint64_t q_head = kv * uint64_t{a.group} + h0 + r % heads;
                F inverse = set1(normaliser(maximum[r], total[r], a.sink(q_head)));
                map1(sums + r * padded, a.out + place(r), head, [=](F x) { return x * inverse; });
            }
        }
    }
}
