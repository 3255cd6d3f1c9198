// linear_vec and linear_mat: out = W·x for up to three weights side by side.
//
// Both names run the same code, in groups of ROWS rows of a weight, so a token gives
// the same bits alone and among others. Two stages: `prepare` normalises and
// quantises the activations, once for all rows; `multiply` does the rows.
//
// Float weights: a row times a row, in W partial sums (lane i takes elements
// i, i+W, …) that are added up at the end. A register tile of rows × tokens uses each
// loaded vector several times. Prompts go in blocks of such tiles and in pieces of k,
// which caches hold.
//
// Quantised weights: activations become int8 with one scale for 32 elements (as in
// llama.cpp's Q8_0, but the scale is a float). Products of a sub-block are summed
// exactly in integers; then sum += (weight scale · activation scale) · integer, from
// the first sub-block to the last. With few tokens the rows are taken as they lie in
// the file (multiply_few); with more, a panel of ROWS rows is first unpacked so that
// a vector holds four consecutive elements of each row (panel_tile).

// What a weight type needs from the activations beside their int8 form, for each
// group of elements that shares a weight scale.
struct Correction {
    int groups; // 1: one for 32 elements, 2: one for 16
    int offset; // −offset·Σq as an integer; 0 if there is none
    bool min;   // or scale·Σq as a float
    MEMBER bool operator==(const Correction &o) const {
        return groups == o.groups && offset == o.offset && min == o.min;
    }
};

// From this many tokens on, unpacking a panel costs less than unpacking the rows once for
// each of them.
constexpr uint32_t FEW = 4;
// Elements of a panel: with its scales it stays in the first-level cache.
constexpr uint64_t PANEL = 16384 / ROWS;

// Tokens that a panel is multiplied with at a time.
constexpr uint32_t TILE = INT_TOKENS;

// Quantised activations of a launch. Few tokens are rows, [tokens][k]. Of more, what a tile of
// tokens is multiplied with is read from one end to the other for each panel,
// [k/PANEL][tokens/TILE][PANEL/32][TILE][32], the last slice and the last tile being what is
// left: of rows, pieces a power of two apart, a cache has room for few.
struct Quantised {
    uint64_t k;
    uint32_t tokens;
    int8_t *q;          // of each element
    float *scale;       // of 32
    uint32_t *extra[3]; // of 32, the words of each weight's Correction

    MEMBER bool few() const { return tokens < FEW; }
    // Elements of a slice that begins at element `at`.
    MEMBER uint64_t slice(uint64_t at) const { return few() ? k : least(PANEL, k - at); }
    // Tokens of the tile that holds a token. A block of one is as many blocks from its next.
    MEMBER uint64_t width(uint64_t token) const { return few() ? 1 : least(TILE, tokens - token / TILE * TILE); }
    // Where a token's slice begins in q.
    MEMBER uint64_t place(uint64_t token, uint64_t at) const {
        if (few())
            return token * k;
        return at * tokens + token / TILE * TILE * slice(at) + token % TILE * 32;
    }
};

constexpr uint32_t LINE = 16; // floats of a cache line

// What becomes of the sums of a bundle of rows: out = sum, or silu(gate) · sum, plus residual.
struct Results {
    float *out; // of the first row and token
    const float *residual;
    uint64_t stride; // of both, between tokens
    uint64_t apart;  // between groups
    uint64_t rows;   // from the first one to the weight's last
    uint32_t shift;  // row r of a group is in place shift + r of its sums
    const float (*gate)[ROWS];

    // Asks for what write will touch.
    void fetch(uint32_t groups, uint32_t t, uint32_t n) const {
        each<LINE>(groups, t, n, [&](uint64_t, uint64_t place, uint64_t, uint64_t, int) {
            __builtin_prefetch(out + place, 1, 2);
            if (residual != nullptr)
                __builtin_prefetch(residual + place, 0, 2);
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

private:
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

// Groups of rows times some tokens; with several tokens, quantised weights come one group
// at a time.
struct RowGroup {
    const uint8_t *rows;
    size_t stride;    // bytes between rows
    bool interleaved; // a group is ROWS · stride bytes in either order
    uint32_t groups;
    size_t apart; // bytes between groups
    uint64_t k;
    const float *x; // [tokens][x_stride]
    uint64_t x_stride;
    const Quantised *act;
    const uint32_t *extra;  // of the weight
    uint32_t first, tokens; // `first` of the launch, in act; x begins there
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

// Asks for the bytes that will be wanted a while after those at p, in what is read from one
// end to the other. Into the second-level cache, because the first has too few places for
// lines under way to cover the latency.
constexpr uint64_t DISTANCE = 2048; // measured: from 6 KB on, a Xeon with AMX reads a fifth slower

INLINE void prefetch_ahead(const uint8_t *p, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(p + DISTANCE + i, 0, 2);
}

// Groups of interleaved rows that one token is multiplied with at once, each from another
// place of a run. Four streams get nearly all that memory gives, one got six parts of seven:
// processors fetch ahead by themselves for each. They take the registers that tokens of a
// prompt would have.
constexpr uint32_t STREAMS = DOT_TOKENS < 4 || ROWS / W > 2 ? 2 : 4;

// ---- float weights

// Rows of E as a file holds them, `stride` bytes apart.
template <class E> struct FileRows {
    const uint8_t *p;
    size_t stride;

    // Elements i to i + W − 1 of row r, i a multiple of W; or the n < W that are left there.
    MEMBER F vector(int r, uint64_t i) const { return elements<E>(p + static_cast<size_t>(r) * stride, i); }
    MEMBER F part(int r, uint64_t i, int n) const { return elements_n<E>(p + static_cast<size_t>(r) * stride, i, n); }
    MEMBER void ahead(uint64_t) const {} // processors follow a few streams by themselves
    MEMBER FileRows from(uint32_t r) const { return {p + r * stride, stride}; }
};

// Interleaved float weights are four rows at a time, a vector of each in turn. So the rows
// of a tile stream as one.
constexpr uint32_t FLOAT_ROWS = 4;

template <class E> struct VectorRows {
    static constexpr size_t BYTES = W * E::BYTES; // of a vector; a row is whole ones
    const uint8_t *p;
    size_t stride; // bytes of a row

    MEMBER const uint8_t *place(size_t r, uint64_t i) const { return p + i * (FLOAT_ROWS * E::BYTES) + r * BYTES; }
    MEMBER F vector(int r, uint64_t i) const { return elements<E>(place(static_cast<size_t>(r), i), 0); }
    MEMBER F part(int, uint64_t, int) const { return zero(); }
    MEMBER void ahead(uint64_t i) const { prefetch_ahead(place(0, i), FLOAT_ROWS * BYTES); }
    MEMBER VectorRows from(uint32_t r) const { return {p + r * stride, stride}; }
};

// The same rows of S groups: row r is the group r / FLOAT_ROWS's.
template <class E, int S> struct StreamedRows {
    VectorRows<E> first;
    size_t apart;

    MEMBER VectorRows<E> stream(int s) const { return {first.p + static_cast<size_t>(s) * apart, first.stride}; }
    MEMBER F vector(int r, uint64_t i) const {
        return stream(r / static_cast<int>(FLOAT_ROWS)).vector(r % static_cast<int>(FLOAT_ROWS), i);
    }
    MEMBER F part(int, uint64_t, int) const { return zero(); }
    MEMBER void ahead(uint64_t i) const { UNROLL for (int s = 0; s < S; s++) stream(s).ahead(i); }
};

// The sums of R rows times T tokens.
template <int R, int T> struct FloatTile {
    static_assert(T == 1 || R == FLOAT_ROWS);
    F sum[T][R];

    MEMBER void start() { UNROLL for (F(&token)[R] : sum) UNROLL for (F &v : token) v = zero(); }
    MEMBER void read(const F *p) { UNROLL for (int i = 0; i < T * R; i++) sum[i / R][i % R] = p[i]; }
    MEMBER void write(F *p) const { UNROLL for (int i = 0; i < T * R; i++) p[i] = sum[i / R][i % R]; }
    // Those of FLOAT_ROWS rows with a token, and out_stride floats further those with the next
    // token, or those of the next rows with the only one.
    MEMBER void finish(float *out, size_t out_stride) const {
        UNROLL for (int t = 0; t < T; t++) UNROLL for (int r = 0; r < R; r += 4) reduce4(
            sum[t][r], sum[t][r + 1], sum[t][r + 2], sum[t][r + 3], out + static_cast<size_t>(t + r / 4) * out_stride);
    }
    // Adds the products of elements `at` to `end` − 1, `at` a multiple of W.
    template <class Rows> MEMBER void add(Rows rows, const float *x, uint64_t x_stride, uint64_t at, uint64_t end) {
        const auto vector = [&](uint64_t i) __attribute__((always_inline)) {
            if (T == 1) // else another tile has just read them
                rows.ahead(i);
            products([=](int r) { return rows.vector(r, i); },
                     [=](int t) { return load(x + static_cast<uint64_t>(t) * x_stride + i); });
        };
        uint64_t i = at;
        // Addresses for two cost no more than for one. But of sixteen registers, which a tile of
        // few tokens is made for, the second's loads would displace sums.
        if constexpr (T > R) {
            for (; i + 2 * W <= end; i += 2 * W) {
                vector(i);
                vector(i + W);
            }
        }
        for (; i + W <= end; i += W)
            vector(i);
        if (i < end) {
            int rest = static_cast<int>(end - i);
            products([=](int r) { return rows.part(r, i, rest); },
                     [=](int t) { return load_n(x + static_cast<uint64_t>(t) * x_stride + i, rest); });
        }
    }

private:
    // Registers hold the fewer ones, w or x: there is none to spare for the others.
    template <class Weight, class X> MEMBER void products(Weight weight, X x) {
        if constexpr (T <= R) {
            F v[T];
            UNROLL for (int t = 0; t < T; t++) v[t] = x(t);
            UNROLL for (int r = 0; r < R; r++) {
                F w = weight(r);
                UNROLL for (int t = 0; t < T; t++) sum[t][r] = fma(w, v[t], sum[t][r]);
            }
        } else {
            F w[R];
            UNROLL for (int r = 0; r < R; r++) w[r] = weight(r);
            UNROLL for (int t = 0; t < T; t++) {
                F v = x(t);
                UNROLL for (int r = 0; r < R; r++) sum[t][r] = fma(w[r], v, sum[t][r]);
            }
        }
    }
};

// The sums of whole rows of k elements.
template <int R, int T, class Rows>
INLINE void dot_tile(Rows rows, const float *x, uint64_t x_stride, uint64_t k, float *out, size_t out_stride) {
    FloatTile<R, T> tile;
    tile.start();
    tile.add(rows, x, x_stride, 0, k);
    tile.finish(out, out_stride);
}

// Calls f(Int<n>{}) for 1 ≤ n ≤ MAX.
template <int MAX, class Fn> INLINE void with_count(uint32_t n, Fn f) {
    repeat<MAX>([&](auto i) {
        if (n == i.value + 1)
            f(Int<i.value + 1>{});
    });
}
// Calls f(Int<n>{}) for an n of MAX, or of halves of it down to 1.
template <int MAX, class Fn> INLINE void with_power(uint32_t n, Fn f) {
    if (n == MAX)
        f(Int<MAX>{});
    else if constexpr (MAX > 1)
        with_power<MAX / 2>(n, f);
}
// Cuts n into pieces of MAX, then of halves of it down to 1: f(start, Int<size>{}).
template <int MAX, class Fn> INLINE void in_pieces(uint32_t n, Fn f, uint32_t start = 0) {
    for (; start + MAX <= n; start += MAX)
        f(start, Int<MAX>{});
    if constexpr (MAX > 1)
        in_pieces<MAX / 2>(n, f, start);
}

// Neighbouring groups of float weights that are worked on together: the x of all tokens is
// read once for them.
constexpr uint32_t TOGETHER = 4;

// They are multiplied in blocks of tokens and rows, and a block in pieces of k. The x of a tile
// is then read from the first-level cache by all rows of a block but the first, and the block's
// weights from the second-level one by all its tiles: of a long row, neither cache holds all.
// The figures are those that a Xeon with 48 KB and 2 MB of them does best with.
constexpr uint64_t PIECE = 1024; // elements
constexpr uint32_t BLOCK_TOKENS = 4 * DOT_TOKENS;
constexpr uint32_t BLOCK_ROWS = 64;
static_assert(PIECE % W == 0 && BLOCK_ROWS % FLOAT_ROWS == 0);

// The part of a RowGroup that is worked on.
struct FloatBlock {
    uint32_t row, rows;
    uint32_t token, tokens;
    uint64_t at, end; // elements of k
};

// Asks for a share of the x that a tile in this place wants next: of the same tokens, or after
// all pieces of k of the next block's. The tiles of a block's rows share it out.
template <int T> INLINE void prefetch_next(const RowGroup &g, const FloatBlock &b, const float *x, uint32_t r) {
    const float *next = b.end < g.k ? x + b.end : x + BLOCK_TOKENS * g.x_stride;
    const uint64_t length = ceil_div(b.end - b.at, LINE), most = ceil_div(length * FLOAT_ROWS, b.rows);
    const uint64_t first = r / FLOAT_ROWS * most, last = least(first + most, length);
    for (int t = 0; t < T; t++, next += g.x_stride)
        for (uint64_t i = first; i < last; i++)
            __builtin_prefetch(next + i * LINE, 0, 2);
}

template <class Rows> static void multiply_block(const RowGroup &g, Rows all, const FloatBlock &b, F *partial) {
    const bool more = b.end < g.k || b.token + BLOCK_TOKENS < g.tokens;
    const bool last = b.end == g.k && b.row + b.rows == g.groups * ROWS;
    for (uint32_t t = b.token; t < b.token + b.tokens; t += DOT_TOKENS) {
        with_count<DOT_TOKENS>(static_cast<uint32_t>(least(DOT_TOKENS, b.token + b.tokens - t)), [&](auto n) {
            constexpr int T = decltype(n)::value;
            const float *x = g.x + t * g.x_stride;
            if (last)
                g.expect(t, T);
            for (uint32_t r = 0; r < b.rows; r += FLOAT_ROWS, partial += T * FLOAT_ROWS) {
                const uint32_t row = b.row + r;
                if (b.row == 0 && more) // later rows' x has just been read
                    prefetch_next<T>(g, b, x, r);
                FloatTile<FLOAT_ROWS, T> tile;
                if (b.at == 0)
                    tile.start();
                else
                    tile.read(partial);
                tile.add(all.from(row), x, g.x_stride, b.at, b.end);
                if (b.end < g.k)
                    tile.write(partial);
                else
                    tile.finish(g.sum[row / ROWS * g.tokens + t] + row % ROWS, ROWS);
            }
            if (last)
                g.complete(t, T);
        });
    }
}
template <class Rows> static void multiply_rows(const RowGroup &g, Rows all) {
    const uint32_t rows = g.groups * ROWS;
    // Few tokens wait for the weights, which come fastest in long runs.
    const uint64_t piece = g.tokens <= DOT_TOKENS ? g.k : PIECE;
    F partial[BLOCK_TOKENS * BLOCK_ROWS];
    for (uint32_t t = 0; t < g.tokens; t += BLOCK_TOKENS) {
        const uint32_t tokens = static_cast<uint32_t>(least(BLOCK_TOKENS, g.tokens - t));
        for (uint32_t r = 0; r < rows; r += BLOCK_ROWS) {
            FloatBlock b = {r, static_cast<uint32_t>(least(BLOCK_ROWS, rows - r)), t, tokens, 0, 0};
            do { // once for no elements
                b.at = b.end, b.end = least(b.at + piece, g.k);
                multiply_block(g, all, b, partial);
            } while (b.end < g.k);
        }
    }
}
template <class E> static void multiply_streams(const RowGroup &g) {
    with_power<STREAMS>(g.groups, [&](auto n) {
        for (uint32_t r = 0; r < ROWS; r += FLOAT_ROWS) {
            const StreamedRows<E, n.value> rows{VectorRows<E>{g.rows, g.stride}.from(r), g.apart};
            dot_tile<FLOAT_ROWS * n.value, 1>(rows, g.x, 0, g.k, g.sum[0] + r, ROWS);
        }
    });
    g.complete(0, 1);
}
template <class E> static void multiply_float(const RowGroup &g) {
    if (g.interleaved && g.tokens == 1)
        multiply_streams<E>(g);
    else if (g.interleaved)
        multiply_rows(g, VectorRows<E>{g.rows, g.stride});
    else
        multiply_rows(g, FileRows<E>{g.rows, g.stride});
}

// ---- quantised weights

// sum += scales · integers of one group of elements of one sub-block, for W rows.
template <class B> INLINE F accumulate(F sum, I integers, const float *s, const float *m, float scale, uint32_t extra) {
    sum = fma(load(s) * set1(scale), to_float(integers), sum);
    if (B::MIN) {
        float total;
        memcpy(&total, &extra, 4);
        sum = fma(load(m), set1(total), sum);
    }
    return sum;
}

// Products of N sub-blocks S, S+PARTNER, … of W rows with a token's activations, summed
// over the elements that share a scale, into out[n · PARTNER][group]; N ≤ 2.
template <class B, int S, int N> INLINE void integer_sums(Rows from, const int8_t *q, I (*out)[B::GROUPS]) {
    Dot<B::RANGE> dot[N][B::GROUPS][4];
    repeat<4>([&](auto j) __attribute__((always_inline)) {
        Q raw[4];
        if constexpr (N > 1)
            B::template read<S>(from.quarter(j.value), raw);
        repeat<N>([&](auto n) __attribute__((always_inline)) {
            constexpr int SUB = S + decltype(n)::value * B::PARTNER;
            Q w0, w1, x0 = q_same16(q + 32 * SUB), x1 = q_same16(q + 32 * SUB + 16);
            if constexpr (N > 1)
                B::template halves_from<SUB>(raw, w0, w1);
            else
                halves<B, S>(from.quarter(j.value), w0, w1);
            auto *d = dot[n.value];
            d[0][j.value].start(0);
            if constexpr (B::GROUPS == 1) {
                d[0][j.value].two(w0, x0, w1, x1);
            } else {
                d[1][j.value].start(0);
                d[0][j.value].one(w0, x0);
                d[1][j.value].one(w1, x1);
            }
        });
    });
    for (int n = 0; n < N; n++) {
        for (int group = 0; group < B::GROUPS; group++) {
            Dot<B::RANGE>(&d)[4] = dot[n][group];
            out[n * B::PARTNER][group] = merge4(d[0].finish(0), d[1].finish(0), d[2].finish(0), d[3].finish(0));
        }
    }
}

template <class B> static void multiply_few(const RowGroup &g, uint32_t t) {
    constexpr int STEP = B::PARTNER == 0 ? 1 : 2 * B::PARTNER; // sub-blocks whose integers are held
    const int8_t *q = g.act->q + t * g.k;
    const float *scale = g.act->scale + t * (g.k / 32);
    const uint32_t *extra = g.extra + t * (g.k / 32) * B::GROUPS;
    F sum[ROWS / W];
    for (F &v : sum)
        v = zero();
    const uint8_t *block = g.rows, *ahead = g.rows;
    for (uint64_t at = 0; at < g.k; at += B::ELEMS, block += B::BYTES) {
        alignas(64) float s[B::SUBS * B::GROUPS * ROWS], m[B::MIN ? B::SUBS * B::GROUPS * ROWS : ROWS];
        const Rows rows{block, g.stride};
        each_vector([&](int of) { B::scales(rows.from(of), s + of, m + of); });
        each_vector([&](int of) __attribute__((always_inline)) {
            repeat<B::SUBS / STEP>([&](auto i) __attribute__((always_inline)) {
                constexpr int FIRST = decltype(i)::value * STEP;
                // A little at a time, so as not to queue up what is wanted now.
                constexpr uint32_t SHARE = B::BYTES * W * STEP / B::SUBS;
                if (t == 0)
                    prefetch_ahead(ahead, SHARE);
                ahead += SHARE;
                I integers[STEP][B::GROUPS];
                if constexpr (B::PARTNER == 0)
                    integer_sums<B, FIRST, 1>(rows.from(of), q, integers);
                else
                    repeat<B::PARTNER>([&](auto f) __attribute__((always_inline)) {
                        integer_sums<B, FIRST + f.value, 2>(rows.from(of), q, integers + f.value);
                    });
                repeat<STEP>([&](auto n) __attribute__((always_inline)) {
                    constexpr int S = FIRST + decltype(n)::value;
                    for (int group = 0; group < B::GROUPS; group++) {
                        int place = (S * B::GROUPS + group) * ROWS + of;
                        I total = integers[n.value][group];
                        uint32_t more = extra[S * B::GROUPS + group];
                        if (B::OFFSET != 0)
                            total = i_add(total, i_set1(static_cast<int32_t>(more)));
                        F &to = sum[of / W];
                        to = accumulate<B>(to, total, s + place, m + place, scale[S], more);
                    }
                });
            });
        });
        q += B::ELEMS, scale += B::SUBS, extra += B::SUBS * B::GROUPS;
    }
    for (int v = 0; v < ROWS / W; v++)
        store(g.sum[t] + v * W, sum[v]);
}

template <class B> struct Panel {
    alignas(64) uint8_t words[PANEL * ROWS]; // [PANEL/32][8 · ROWS][4], by panel_place
    alignas(64) float s[PANEL / 32 * B::GROUPS * ROWS];
    alignas(64) float m[B::MIN ? PANEL / 32 * B::GROUPS * ROWS : ROWS];

    void unpack(const uint8_t *rows, size_t stride, uint64_t elements) {
        each_block(
            elements, [&](uint64_t i) { return Rows{rows + i * B::BYTES, stride}; },
            [](Rows from, auto sub, Q low[4], Q high[4]) __attribute__((always_inline)) {
                repeat<4>([&](auto j) __attribute__((always_inline)) {
                    halves<B, decltype(sub)::value>(from.quarter(j.value), low[j.value], high[j.value]);
                });
                panel_order(low[0], low[1], low[2], low[3]);
                panel_order(high[0], high[1], high[2], high[3]);
            });
    }

    void unpack_interleaved(const uint8_t *group, uint64_t elements) {
        using From = Interleaved<B>;
        each_block(
            elements, [&](uint64_t i) { return From{group + i * From::BYTES, 0, 0}; },
            [](From from, auto sub, Q low[4], Q high[4]) __attribute__((always_inline)) {
                repeat<4>([&](auto j) __attribute__((always_inline)) {
                    halves<B, decltype(sub)::value>(from.piece(j.value), low[j.value], high[j.value]);
                });
                panel_words(low[0], low[1], low[2], low[3]);
                panel_words(high[0], high[1], high[2], high[3]);
            });
    }

private:
    // Stores the scales of the blocks block(0), block(1), …, and what unpack makes of each
    // vector of rows of each sub-block: elements 0…15 and 16…31, four vectors of a panel each.
    template <class Block, class Fn> MEMBER void each_block(uint64_t elements, Block block, Fn unpack) {
        uint8_t *out = words;
        float *to_s = s, *to_m = m;
        for (uint64_t i = 0; i < elements / B::ELEMS; i++) {
            const auto rows = block(i);
            each_vector([&](int of) { B::scales(rows.from(of), to_s + of, to_m + of); });
            to_s += B::SUBS * B::GROUPS * ROWS;
            if (B::MIN)
                to_m += B::SUBS * B::GROUPS * ROWS;
            repeat<B::SUBS>([&](auto sub) __attribute__((always_inline)) {
                each_vector([&](int of) __attribute__((always_inline)) {
                    Q low[4], high[4];
                    unpack(rows.from(of), sub, low, high);
                    for (int j = 0; j < 4; j++) {
                        q_store(out + panel_place(j, of) * 4, low[j]);
                        q_store(out + panel_place(j + 4, of) * 4, high[j]);
                    }
                });
                out += 32 * ROWS;
            });
        }
    }
};

// T tokens of a tile times the elements from `at` on of a group, which the panel holds.
template <class B, int T> static void panel_tile(const Panel<B> &panel, const RowGroup &g, uint32_t t0, uint64_t at) {
    constexpr int V = ROWS / W, WORDS = 8 / B::GROUPS;
    const uint64_t place = g.act->place(g.first + t0, at), width = g.act->width(g.first + t0);
    const int8_t *q = g.act->q + place;
    const float *scale = g.act->scale + place / 32;
    const uint32_t *extra = g.extra + place / 32 * B::GROUPS;
    F sum[T][V];
    UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < V; v++) sum[t][v] = load(g.sum[t0 + t] + v * W);
    const uint8_t *words = panel.words;
    const float *s = panel.s, *m = panel.m;
    for (uint64_t left = g.act->slice(at); left > 0; left -= 32) {
        for (int group = 0; group < B::GROUPS; group++) {
            Products<B::RANGE, T> products[V];
            uint32_t more[T];
            int32_t offset[T];
            UNROLL for (int t = 0; t < T; t++) {
                more[t] = extra[t * B::GROUPS + group];
                offset[t] = B::OFFSET == 0 ? 0 : static_cast<int32_t>(more[t]);
            }
            UNROLL for (int v = 0; v < V; v++) products[v].start(offset);
            UNROLL for (int i = 0; i < WORDS; i += 2) {
                UNROLL for (int v = 0; v < V; v++) {
                    Q w0 = q_load(words + panel_place(i, v * W) * 4);
                    Q w1 = q_load(words + panel_place(i + 1, v * W) * 4);
                    products[v].add(w0, w1, q + 4 * (group * WORDS + i), 32);
                }
            }
            UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < V; v++) sum[t][v] =
                accumulate<B>(sum[t][v], products[v].finish(t, offset[t]), s + v * W, m + v * W, scale[t], more[t]);
            words += WORDS * ROWS * 4;
            s += ROWS;
            if (B::MIN)
                m += ROWS;
        }
        q += 32 * width, scale += width, extra += width * B::GROUPS;
    }
    UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < V; v++) store(g.sum[t0 + t] + v * W, sum[t][v]);
}

// T tokens times S groups of interleaved rows, each of which is read once.
template <class B, int T, int S> static void multiply_interleaved(const RowGroup &g) {
    constexpr int V = ROWS / W;
    constexpr int STEP = B::PARTNER == 1 ? 2 : 1; // sub-blocks that the same words hold
    using From = Interleaved<B>;
    const int8_t *q = g.act->q;
    const float *scale = g.act->scale;
    const uint32_t *extra = g.extra;
    F sum[S][T][V];
    UNROLL for (F(&group)[T][V] : sum) UNROLL for (F(&token)[V] : group) UNROLL for (F &v : token) v = zero();
    const uint8_t *block = g.rows;
    for (uint64_t at = 0; at < g.k; at += B::ELEMS, block += From::BYTES) {
        alignas(64) float s[S][B::SUBS * B::GROUPS * ROWS], m[S][B::MIN ? B::SUBS * B::GROUPS * ROWS : ROWS];
        for (int i = 0; i < S; i++) {
            const From rows{block + static_cast<size_t>(i) * g.apart, 0, 0};
            each_vector([&](int of) { B::scales(rows.from(of), s[i] + of, m[i] + of); });
        }
        repeat<B::SUBS / STEP>([&](auto step) __attribute__((always_inline)) {
            constexpr int FIRST = decltype(step)::value * STEP;
            Dot<B::RANGE> dot[STEP][S][V][T][B::GROUPS];
            uint32_t more[STEP][T][B::GROUPS];
            int32_t offset[STEP][T][B::GROUPS];
            UNROLL for (int n = 0; n < STEP; n++) UNROLL for (int t = 0; t < T; t++) {
                UNROLL for (int group = 0; group < B::GROUPS; group++) {
                    uint32_t word = extra[(static_cast<uint64_t>(t) * (g.k / 32) + FIRST + n) * B::GROUPS + group];
                    more[n][t][group] = word;
                    offset[n][t][group] = B::OFFSET == 0 ? 0 : static_cast<int32_t>(word);
                    UNROLL for (int i = 0; i < S; i++) UNROLL for (int v = 0; v < V; v++) dot[n][i][v][t][group].start(
                        offset[n][t][group]);
                }
            }
            repeat<4>([&](auto j) __attribute__((always_inline)) {
                UNROLL for (int i = 0; i < S; i++) {
                    const From rows{block + static_cast<size_t>(i) * g.apart, 0, 0};
                    // A little at a time, so as not to queue up what is wanted now.
                    constexpr size_t LINES = (From::BYTES + 63) / 64, PARTS = 4 * B::SUBS / STEP;
                    constexpr size_t PART = 4 * decltype(step)::value + decltype(j)::value;
                    constexpr size_t BEGIN = LINES * PART / PARTS, END = LINES * (PART + 1) / PARTS;
                    prefetch_ahead(rows.p + 64 * BEGIN, 64 * (END - BEGIN));
                    UNROLL for (int v = 0; v < V; v++) {
                        Q low[STEP], high[STEP];
                        halves_together<B, FIRST>(rows.from(v * W).piece(j.value), low, high);
                        UNROLL for (int n = 0; n < STEP; n++) UNROLL for (int t = 0; t < T; t++) {
                            const int8_t *x = q + static_cast<uint64_t>(t) * g.k + 32 * (FIRST + n) + 4 * j.value;
                            auto *d = dot[n][i][v][t];
                            if constexpr (B::GROUPS == 1) {
                                d[0].two(low[n], q_same4(x), high[n], q_same4(x + 16));
                            } else {
                                d[0].one(low[n], q_same4(x));
                                d[1].one(high[n], q_same4(x + 16));
                            }
                        }
                    }
                }
            });
            UNROLL for (int n = 0; n < STEP; n++) UNROLL for (int i = 0; i < S; i++) {
                UNROLL for (int v = 0; v < V; v++) UNROLL for (int t = 0; t < T; t++) {
                    float by = scale[static_cast<uint64_t>(t) * (g.k / 32) + FIRST + n];
                    F &to = sum[i][t][v];
                    UNROLL for (int group = 0; group < B::GROUPS; group++) {
                        int place = ((FIRST + n) * B::GROUPS + group) * ROWS + v * W;
                        I total = dot[n][i][v][t][group].finish(offset[n][t][group]);
                        to = accumulate<B>(to, total, s[i] + place, m[i] + place, by, more[n][t][group]);
                    }
                }
            }
        });
        q += B::ELEMS, scale += B::SUBS, extra += B::SUBS * B::GROUPS;
    }
    UNROLL for (int i = 0; i < S; i++) UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < V; v++)
        store(g.sum[i + t] + v * W, sum[i][t][v]);
}

template <class B> static void multiply_quantised(const RowGroup &g) {
    if constexpr (B::HALF != ALONE) {
        if (g.act->few() && g.interleaved) {
            if (g.tokens == 1)
                with_power<STREAMS>(g.groups, [&](auto n) { multiply_interleaved<B, 1, n.value>(g); });
            else
                with_count<FEW - 1>(g.tokens, [&](auto n) { multiply_interleaved<B, n.value, 1>(g); });
            g.complete(0, g.tokens);
            return;
        }
    }
    if (g.act->few()) {
        for (uint32_t t = 0; t < g.tokens; t++)
            multiply_few<B>(g, t);
        g.complete(0, g.tokens);
        return;
    }
    for (uint32_t t = 0; t < g.tokens; t++)
        memset(g.sum[t], 0, sizeof g.sum[t]);
    Panel<B> panel;
    for (uint64_t at = 0; at < g.k; at += PANEL) {
        uint64_t elements = g.act->slice(at);
        uint64_t before = at / B::ELEMS * B::BYTES;
        if constexpr (B::HALF != ALONE) {
            if (g.interleaved)
                panel.unpack_interleaved(g.rows + before * ROWS, elements);
            else
                panel.unpack(g.rows + before, g.stride, elements);
        } else {
            panel.unpack(g.rows + before, g.stride, elements);
        }
        const bool last = at + elements == g.k;
        in_pieces<TILE>(g.tokens, [&](uint32_t t, auto n) {
            if (last)
                g.expect(t, n.value);
            panel_tile<B, n.value>(panel, g, t, at);
            if (last)
                g.complete(t, n.value);
        });
    }
}

// ---- the types

struct WeightType {
    uint32_t type, elems, bytes; // of a block
    bool quantised;
    Correction correction;
    void (*multiply)(const RowGroup &);
    void (*widen)(const uint8_t *p, float *out, uint64_t n);
    // Rearranges groups of ROWS rows of so many blocks each into a copy. Null where nothing
    // is better than the rows of the file.
    void (*interleave)(const uint8_t *rows, uint64_t blocks, uint64_t groups, uint8_t *out);
    void (*widen_interleaved)(const uint8_t *p, uint64_t row, float *out, uint64_t n);
};

template <class E> static void widen(const uint8_t *p, float *out, uint64_t n) { widen_row<E>(p, out, n); }
template <class E> static void interleave_vectors(const uint8_t *rows, uint64_t k, uint64_t groups, uint8_t *out) {
    const uint64_t stride = k * E::BYTES;
    for (uint64_t r = 0; r < groups * ROWS; r += FLOAT_ROWS, rows += FLOAT_ROWS * stride)
        for (uint64_t at = 0; at < stride; at += W * E::BYTES)
            for (uint32_t i = 0; i < FLOAT_ROWS; i++, out += W * E::BYTES)
                memcpy(out, rows + i * stride + at, W * E::BYTES);
}
template <class E> static void widen_vectors(const uint8_t *p, uint64_t row, float *out, uint64_t n) {
    const auto rows = VectorRows<E>{p, n * E::BYTES}.from(static_cast<uint32_t>(row - row % FLOAT_ROWS));
    for (uint64_t i = 0; i < n; i += W)
        store(out + i, rows.vector(static_cast<int>(row % FLOAT_ROWS), i));
}
template <class E> constexpr WeightType float_type() {
    return {E::TYPE,         1, E::BYTES, false, {1, 0, false}, multiply_float<E>, widen<E>, interleave_vectors<E>,
            widen_vectors<E>};
}
template <class B> constexpr WeightType block_type() {
    WeightType t = {B::TYPE,           B::ELEMS, B::BYTES, true, {B::GROUPS, B::OFFSET, B::MIN}, multiply_quantised<B>,
                    dequantise_row<B>, nullptr,  nullptr};
    if constexpr (B::HALF != ALONE)
        t.interleave = interleave<B>, t.widen_interleaved = dequantise_interleaved<B>;
    return t;
}

static const WeightType weight_types[] = {
    float_type<F32>(),  float_type<F16>(),  float_type<BF16>(), block_type<Q8_0>(), block_type<Q4_0>(),
    block_type<Q4_1>(), block_type<Q5_0>(), block_type<Q5_1>(), block_type<Q2_K>(), block_type<Q3_K>(),
    block_type<Q4_K>(), block_type<Q5_K>(), block_type<Q6_K>(),
};

static const WeightType *find_weight_type(uint32_t type) {
    for (const WeightType &t : weight_types)
        if (t.type == type)
            return &t;
    return nullptr;
}

// ---- the launch

struct Linear {
    struct Weight {
        const uint8_t *bytes;
        const WeightType *type;
        uint32_t n, column; // rows, and the first one's place in a row of out
        size_t stride;
        uint64_t groups;
        int extra; // index into Quantised::extra
        bool interleaved;
    };
    LinearParams p;
    Weight weights[3];
    int count; // weights bound
    bool residual, pair, norm, quantised;
    Correction corrections[3];
    int correction_count;
    uint64_t scratch;
    float *normalised; // [tokens][k]
    Quantised act;

    // Lays out `shared`, which may be null when only sizes are wanted.
    Linear(const smelt_launch *l, void *shared) : p(params<LinearParams>(l, 5)) {
        residual = constant(l, 3) != 0, pair = constant(l, 4) != 0, norm = constant(l, 5) != 0;
        count = 0, quantised = false, correction_count = 0;
        const uint32_t n[3] = {p.n0, p.n1, p.n2};
        uint32_t column = 0;
        for (uint32_t i = 0; i < 3; i++) {
            const WeightType *type = find_weight_type(constant(l, i));
            if (type == nullptr || n[i] == 0)
                continue;
            Weight &w = weights[count++];
            w = {buffer<const uint8_t>(l, 1 + i),
                 type,
                 n[i],
                 column,
                 p.k / type->elems * size_t{type->bytes},
                 ceil_div(n[i], ROWS),
                 0,
                 is_interleaved(l, 1 + i)};
            column += n[i];
            if (!type->quantised)
                continue;
            quantised = true;
            for (w.extra = 0; w.extra < correction_count; w.extra++)
                if (corrections[w.extra] == type->correction)
                    break;
            if (w.extra == correction_count)
                corrections[correction_count++] = type->correction;
        }
        uint64_t end = 0;
        auto take = [&](uint64_t bytes) {
            uint8_t *at = shared == nullptr ? nullptr : static_cast<uint8_t *>(shared) + end;
            end += align64(bytes);
            return static_cast<void *>(at);
        };
        uint64_t elements = uint64_t{p.tokens} * p.k;
        normalised = norm ? static_cast<float *>(take(elements * 4)) : nullptr;
        act = {};
        act.k = p.k, act.tokens = p.tokens;
        if (quantised) {
            act.q = static_cast<int8_t *>(take(elements));
            act.scale = static_cast<float *>(take(elements / 8));
            for (int i = 0; i < correction_count; i++)
                act.extra[i] =
                    static_cast<uint32_t *>(take(elements / 8 * static_cast<uint64_t>(corrections[i].groups)));
        }
        scratch = end;
    }

    MEMBER uint64_t groups() const {
        uint64_t sum = 0;
        for (int i = 0; i < (pair ? 1 : count); i++)
            sum += weights[i].groups;
        return sum;
    }
};

static int linear_supports(const smelt_launch *l) {
    if (!holds(l, 5, sizeof(LinearParams)))
        return 0;
    const LinearParams &p = params<LinearParams>(l, 5);
    const uint32_t n[3] = {p.n0, p.n1, p.n2};
    uint64_t columns = 0;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t number = constant(l, i);
        if (number == SMELT_NONE) {
            if (n[i] != 0)
                return 0;
            continue;
        }
        const WeightType *type = find_weight_type(number);
        if (type == nullptr || p.k % type->elems != 0)
            return 0;
        if (!holds(l, 1 + i, uint64_t{n[i]} * (p.k / type->elems) * type->bytes))
            return 0;
        columns += n[i];
    }
    uint32_t activation = constant(l, 4);
    if (activation > 1)
        return 0;
    if (activation == 1) {
        if (p.n0 != p.n1 || p.n2 != 0)
            return 0;
        columns = p.n0;
    }
    if (constant(l, 5) != 0 && !holds(l, 7, uint64_t{p.k} * 4))
        return 0;
    uint64_t out = span(p.tokens, p.out_stride, columns, 4);
    if (constant(l, 3) != 0 && !holds(l, 6, out))
        return 0;
    return holds(l, 0, span(p.tokens, p.x_stride, p.k, 4)) && holds(l, 4, out);
}

static size_t linear_shared(const smelt_launch *l) { return Linear(l, nullptr).scratch; }

static uint64_t prepare_units(const smelt_launch *l) {
    Linear job(l, nullptr);
    return job.norm || job.quantised ? job.p.tokens : 0;
}

// Quantises a block: q = round(x · 127 / max|x|). Returns the scale, and in sums those of the
// halves' integers.
static float quantise_block(const float *x, int8_t *q, int32_t sums[2]) {
    F top = zero();
    bool bad = false;
    for (int i = 0; i < 32; i += W) {
        F v = load(x + i);
        bad |= any_nan(v);
        top = max(top, abs(v));
    }
    float most = reduce_max(top);
    F inverse = set1(most > 1e-30f ? 127.0f / most : 0.0f);
    for (int half = 0; half < 2; half++) {
        I sum = i_set1(0);
        for (int i = 16 * half; i < 16 * half + 16; i += W) {
            I v = to_int(load(x + i) * inverse);
            sum = i_add(sum, v);
            store_i8(q + i, v);
        }
        sums[half] = i_reduce_add(sum);
    }
    return bad ? __builtin_nanf("") : most / 127.0f;
}

// Quantises a token's slice from element `at` on, with its corrections, and returns where the
// next one begins.
static uint64_t quantise(const Linear &job, const float *x, uint64_t token, uint64_t at) {
    const uint64_t end = at + job.act.slice(at), step = 32 * job.act.width(token);
    for (uint64_t place = job.act.place(token, at); at < end; at += 32, place += step) {
        int32_t sums[2];
        float scale = job.act.scale[place / 32] = quantise_block(x + at, job.act.q + place, sums);
        for (int i = 0; i < job.correction_count; i++) {
            const Correction &c = job.corrections[i];
            uint32_t *out = job.act.extra[i] + place / 32 * static_cast<uint64_t>(c.groups);
            for (int group = 0; group < c.groups; group++) {
                int32_t sum = c.groups == 1 ? sums[0] + sums[1] : sums[group], integer = -c.offset * sum;
                float total = scale * static_cast<float>(sum);
                memcpy(out + group, c.min ? static_cast<void *>(&total) : &integer, 4);
            }
        }
    }
    return end;
}

static void prepare(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    Linear job(l, shared);
    uint64_t k = job.p.k;
    for (uint64_t t = begin; t < end; t++) {
        const float *x = buffer<const float>(l, 0) + t * job.p.x_stride;
        if (job.norm) {
            float *row = job.normalised + t * k;
            rms_normalise(x, buffer<const float>(l, 7), row, job.p.k, job.p.eps);
            x = row;
        }
        if (!job.quantised)
            continue;
        for (uint64_t at = 0; at < k;)
            at = quantise(job, x, t, at);
    }
}

static uint64_t multiply_units(const smelt_launch *l) {
    Linear job(l, nullptr);
    return job.p.tokens == 0 ? 0 : job.groups();
}

// Sums of a group and token that are held at a time, in whole tiles.
constexpr uint32_t HELD = (512 + TILE - 1) / TILE * TILE;

// Groups of a weight's rows that are worked on together: every `apart`th from `first` on.
struct Bundle {
    uint64_t first;
    uint32_t groups;
    uint64_t apart;
};

// Multiplies a bundle of w's rows with `tokens` tokens from `token` on. Their results are
// written where there is a place for them.
static void multiply_bundle(const smelt_launch *l, const Linear &job, const Linear::Weight &w, Bundle bundle,
                            uint32_t token, uint32_t tokens, float (*sum)[ROWS], Results *to) {
    uint64_t k = job.p.k;
    RowGroup g = {};
    g.stride = w.stride, g.interleaved = w.interleaved, g.k = k, g.tokens = tokens, g.sum = sum, g.results = to;
    g.groups = bundle.groups, g.apart = bundle.apart * ROWS * w.stride;
    g.x = job.norm ? job.normalised + token * k : buffer<const float>(l, 0) + uint64_t{token} * job.p.x_stride;
    g.x_stride = job.norm ? k : job.p.x_stride;
    if (w.type->quantised) {
        g.act = &job.act, g.extra = job.act.extra[w.extra], g.first = token;
    }
    uint64_t row = bundle.first * ROWS;
    if (w.n >= ROWS) {
        // The last group of a weight starts early enough to be a whole one.
        uint64_t start = least(row, w.n - ROWS);
        if (to != nullptr)
            to->shift = static_cast<uint32_t>(row - start);
        g.rows = w.bytes + start * w.stride;
        w.type->multiply(g);
        return;
    }
    // Fewer than ROWS rows in all: each in turn takes every place of a group.
    float all[HELD][ROWS];
    g.stride = 0, g.sum = all, g.results = nullptr;
    for (uint32_t r = 0; r < w.n; r++) {
        g.rows = w.bytes + r * w.stride;
        w.type->multiply(g);
        for (uint32_t t = 0; t < tokens; t++)
            sum[t][r] = all[t][r];
    }
    g.sum = sum, g.results = to;
    g.complete(0, tokens);
}

// Cuts a run of neighbouring groups of w's rows into bundles, in an order of its own.
template <class Fn>
static void each_bundle(const Linear &job, const Linear::Weight &w, uint64_t group, uint64_t run, Fn f) {
    const bool interleaved = w.interleaved && (!job.pair || job.weights[1].interleaved);
    // With one token, a pair of which only one is interleaved goes group by group, as streams
    // come in powers of two.
    const bool pair = job.pair && (job.p.tokens == 1 || job.weights[1].type->quantised);
    const bool together = !w.type->quantised && !pair;
    while (run > 0) {
        uint64_t groups = 1, apart = 1;
        if (job.p.tokens == 1 && interleaved) {
            for (groups = STREAMS; groups > run;)
                groups /= 2;
            apart = run / groups;
        } else if (together && group < w.n / ROWS) {
            groups = least(least(TOGETHER, run), w.n / ROWS - group);
        }
        for (uint64_t i = 0; i < apart; i++)
            f(Bundle{group + i, static_cast<uint32_t>(groups), apart});
        group += groups * apart, run -= groups * apart;
    }
}

static void multiply(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    Linear job(l, shared);
    float *out = buffer<float>(l, 4);
    const float *residual = job.residual ? buffer<const float>(l, 6) : nullptr;
    alignas(64) float sum[HELD][ROWS], gate[HELD][ROWS];
    for (uint64_t unit = begin; unit < end;) {
        int i = 0;
        uint64_t group = unit;
        while (group >= job.weights[i].groups)
            group -= job.weights[i++].groups;
        const Linear::Weight &w = job.weights[i];
        const uint64_t run = least(end - unit, w.groups - group);
        unit += run;
        each_bundle(job, w, group, run, [&](Bundle bundle) {
            const uint64_t row = bundle.first * ROWS;
            // Whole tiles of tokens where several groups share the room.
            const uint32_t most = bundle.groups == 1 ? HELD : HELD / bundle.groups / DOT_TOKENS * DOT_TOKENS;
            for (uint32_t token = 0; token < job.p.tokens; token += most) {
                const uint32_t tokens = static_cast<uint32_t>(least(most, job.p.tokens - token));
                const uint64_t place = token * uint64_t{job.p.out_stride} + w.column + row;
                Results to = {out + place,
                              residual == nullptr ? nullptr : residual + place,
                              job.p.out_stride,
                              bundle.apart * ROWS,
                              w.n - row,
                              0,
                              job.pair ? gate : nullptr};
                if (job.pair)
                    multiply_bundle(l, job, w, bundle, token, tokens, gate, nullptr);
                multiply_bundle(l, job, job.pair ? job.weights[1] : w, bundle, token, tokens, sum, &to);
            }
        });
    }
}
