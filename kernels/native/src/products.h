// Products of quantized weights. What differs by sub-block is compiled for one part of a block,
// and a panel's products for one scheme of scales.

// The offset of elements that have a minimum too: a power of two, by which an integer of the
// correction is exactly as many times the sum that the minimum takes.
constexpr int BESIDE_MINIMUM = -128;

// sum += scales · integers of one group of elements of one sub-block, for W rows.
template <bool OFFSET, bool MIN>
INLINE F accumulate(F sum, I integers, const float *s, const float *m, float scale, uint32_t extra) {
    sum = fma(load(s) * set1(scale), to_float(integers), sum);
    if (MIN) {
        float total;
        memcpy(&total, &extra, 4);
        if (OFFSET)
            total = scale * (static_cast<float>(static_cast<int32_t>(extra)) / -BESIDE_MINIMUM);
        sum = fma(load(m), set1(total), sum);
    }
    return sum;
}

// The same for a sub-block of whole scales: integers are the sums of both groups, and n and pair what
// the minima are of.
template <bool MIN>
INLINE F accumulate_whole(F sum, I integers, const float *d, const float *low, const int32_t *n, float scale,
                          uint32_t pair) {
    F total = load(d) * to_float(integers);
    if (MIN)
        total = fma(load(low), to_float(pair_product(i_load(n), pair)), total);
    return fma(set1(scale), total, sum);
}

constexpr uint32_t NO_OFFSETS[2] = {};
// Words of a sub-block's Correction.
template <class B> constexpr int EXTRAS = WHOLE_SCALES<B> && B::MIN ? 1 : B::GROUPS;

// Products of N sub-blocks S, S+PARTNER, … of a part of W rows with a token's activations,
// summed over the elements that share a scale, into out[n · PARTNER][group]; N ≤ 2.
template <class B, int S, int N> INLINE void integer_sums(Rows from, int part, const int8_t *q, I (*out)[B::GROUPS]) {
    Dot<B::RANGE> dot[N][B::GROUPS][4];
    repeat<4>([&](auto j) __attribute__((always_inline)) {
        Q raw[4];
        if constexpr (N > 1)
            B::template read<S>(from.quarter(j.value), part, raw);
        repeat<N>([&](auto n) __attribute__((always_inline)) {
            constexpr int SUB = S + decltype(n)::value * B::PARTNER;
            Q w0, w1, x0 = q_same16(q + 32 * SUB), x1 = q_same16(q + 32 * SUB + 16);
            if constexpr (N > 1)
                B::template halves_from<SUB>(raw, w0, w1);
            else
                halves<B, S>(from.quarter(j.value), part, w0, w1);
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
    UNROLL for (int n = 0; n < N; n++) {
        UNROLL for (int group = 0; group < B::GROUPS; group++) {
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
    float *sum = g.sum[t];
    memset(sum, 0, sizeof g.sum[t]);
    const uint8_t *block = g.rows, *ahead = g.rows;
    for (uint64_t at = 0; at < g.k; at += B::ELEMS, block += B::BYTES) {
        alignas(64) float s[B::SUBS * B::GROUPS * ROWS], m[B::MIN ? B::SUBS * B::GROUPS * ROWS : ROWS];
        const Rows rows{block, g.stride};
        each_vector_of<B>([&](int of) { B::scales(rows.from(of), s + of, m + of); });
        each_vector_of<B>([&](int of) __attribute__((always_inline)) {
            F total = load(sum + of);
            each_part<B>([&](int part) __attribute__((always_inline)) {
                const int before = part * RUN<B>;
                repeat<RUN<B> / STEP>([&](auto i) __attribute__((always_inline)) {
                    constexpr int FIRST = decltype(i)::value * STEP;
                    // A little at a time, so as not to queue up what is wanted now.
                    constexpr uint32_t SHARE = B::BYTES * W * STEP / B::SUBS;
                    if (t == 0)
                        prefetch_lines(ahead + g.ahead, SHARE);
                    ahead += SHARE;
                    I integers[STEP][B::GROUPS];
                    const int8_t *x = q + 32 * before;
                    if constexpr (B::PARTNER == 0)
                        integer_sums<B, FIRST, 1>(rows.from(of), part, x, integers);
                    else
                        repeat<B::PARTNER>([&](auto f) __attribute__((always_inline)) {
                            integer_sums<B, FIRST + f.value, 2>(rows.from(of), part, x, integers + f.value);
                        });
                    UNROLL for (int n = 0; n < STEP; n++) {
                        UNROLL for (int group = 0; group < B::GROUPS; group++) {
                            const int sub = before + FIRST + n, at = sub * B::GROUPS + group;
                            I add = integers[n][group];
                            if (B::OFFSET != 0)
                                add = i_add(add, i_set1(static_cast<int32_t>(extra[at])));
                            const int place = at * ROWS + of;
                            total = accumulate<false, B::MIN>(total, add, s + place, m + place, scale[sub], extra[at]);
                        }
                    }
                });
            });
            store(sum + of, total);
        });
        q += B::ELEMS, scale += B::SUBS, extra += B::SUBS * B::GROUPS;
    }
}

// Puts elements 0…15 and 16…31 of W rows from `row` on, four vectors of a panel each, in their
// places of its sub-block.
INLINE void put_halves(uint8_t *out, int row, const Q low[4], const Q high[4]) {
    UNROLL for (int j = 0; j < 4; j++) {
        q_store(out + panel_place(j, row) * 4, low[j]);
        q_store(out + panel_place(j + 4, row) * 4, high[j]);
    }
}
// Puts elements of W rows from `row` on, which `from` has at word 0, in their places of a panel's
// sub-block, after change(low, high) of each word's halves.
template <class B, int S, class From, class Fn>
INLINE void put_interleaved(uint8_t *out, From from, int part, int row, Fn change) {
    Q low[4], high[4];
    repeat<4>([&](auto j) __attribute__((always_inline)) {
        halves<B, S>(from.at(from.p, from.row, j.value), part, low[j.value], high[j.value]);
        change(low[j.value], high[j.value]);
    });
    panel_words(low[0], low[1], low[2], low[3]);
    panel_words(high[0], high[1], high[2], high[3]);
    put_halves(out, row, low, high);
}

// The interleaved blocks of a group of rows, each for as long as the next one is not asked for.
template <class B> struct GroupBlocks {
    const RowGroup &g;
    alignas(64) uint8_t copy[BY_COPY<B> ? Interleaved<B>::BYTES : 1];

    MEMBER explicit GroupBlocks(const RowGroup &g) : g(g) {}
    MEMBER const uint8_t *at(uint64_t i) {
        if (!BY_COPY<B> || g.interleaved)
            return g.rows + i * Interleaved<B>::BYTES;
        put_block<B>(g.rows + i * B::BYTES, g.stride, copy);
        return copy;
    }
};

// What the products of a panel depend on beside its tokens.
template <int GROUPS_, int EXTRAS_, bool OFFSET_, bool MIN_, Range RANGE_, bool WHOLE_> struct Scheme {
    static constexpr int GROUPS = GROUPS_, EXTRAS = EXTRAS_;
    static constexpr bool OFFSET = OFFSET_, MIN = MIN_, WHOLE = WHOLE_;
    static constexpr Range RANGE = RANGE_;
};
template <class B>
using SchemeOf = Scheme<WHOLE_SCALES<B> && FOLDED ? 1 : B::GROUPS, EXTRAS<B>, B::OFFSET != 0, B::MIN,
                        DOTS_DIFFER ? B::RANGE : Range::SIGNED, WHOLE_SCALES<B>>;

// Elements of a panel with what they are scaled by.
struct PanelData {
    const uint8_t *words, *signs;
    const float *s, *m;              // of groups, or of whole scales d and low of sub-blocks
    const int32_t *negative, *c, *n; // c and n of whole scales
};

template <class B> struct Panel {
    static constexpr bool SPLIT = Signs<SchemeOf<B>::RANGE>::SPLIT;
    static constexpr uint64_t SCALES = PANEL / 32 * B::GROUPS * ROWS;
    static constexpr uint64_t MOST = SPLIT ? PANEL / 2 : PANEL; // elements whose signs are split off

    alignas(64) uint8_t words[PANEL * ROWS]; // [PANEL/32][8 · ROWS][4], by panel_place
    alignas(64) float s[SCALES];
    alignas(64) float m[B::MIN ? SCALES : ROWS];
    alignas(64) uint8_t signs[SPLIT ? MOST * ROWS : 1];   // in the places of words
    alignas(64) int32_t negative[SPLIT ? SCALES / 2 : 1]; // what words below zero sum up to, less its sign
    alignas(64) int32_t c[WHOLE_SCALES<B> ? SCALES : 1];  // of FOLDED weights those of a block
    alignas(64) int32_t n[WHOLE_SCALES<B> && B::MIN ? SCALES / 2 : 1];

    MEMBER PanelData data() const { return {words, signs, s, m, negative, c, n}; }

    // Of so many elements, once they are unpacked.
    void split_signs(uint64_t elements) {
        if constexpr (SPLIT) {
            constexpr int WORDS = 8 / B::GROUPS;
            size_t at = 0;
            int32_t *to = negative;
            for (uint64_t left = elements / 32 * B::GROUPS; left > 0; left--, at += WORDS * ROWS * 4, to += ROWS) {
                each_vector([&](int row) __attribute__((always_inline)) {
                    const size_t place = at + static_cast<size_t>(panel_place(0, row)) * 4;
                    Signs<SchemeOf<B>::RANGE>::split(words + place, signs + place, ROWS * 4, WORDS, to + row);
                });
            }
        }
    }

    void unpack(const uint8_t *rows, size_t stride, uint64_t elements) {
        each_block(
            elements, [&](uint64_t i) { return Rows{rows + i * B::BYTES, stride}; },
            [](uint8_t *out, Rows from, int part, auto sub, int row) __attribute__((always_inline)) {
                Q low[4], high[4];
                repeat<4>([&](auto j) __attribute__((always_inline)) {
                    halves<B, decltype(sub)::value>(from.quarter(j.value), part, low[j.value], high[j.value]);
                });
                panel_order(low[0], low[1], low[2], low[3]);
                panel_order(high[0], high[1], high[2], high[3]);
                put_halves(out, row, low, high);
            });
    }

    // From the block `first` on.
    void unpack_interleaved(const RowGroup &g, uint64_t first, uint64_t elements) {
        using From = Interleaved<B>;
        GroupBlocks<B> blocks(g);
        const auto block = [&](uint64_t i) { return From{blocks.at(first + i), 0, 0}; };
        if constexpr (WHOLE_SCALES<B>)
            unpack_whole(elements, block);
        else
            each_block(elements, block,
                       [](uint8_t *out, From from, int part, auto sub, int row) __attribute__((always_inline)) {
                           put_interleaved<B, decltype(sub)::value>(out, from, part, row, [](Q &, Q &) {});
                       });
    }

private:
    // The same with whole scales, by which weights are multiplied where they are FOLDED.
    template <class Block> MEMBER void unpack_whole(uint64_t elements, Block block) {
        uint8_t *out = words;
        float *d = s, *low = m;
        int32_t *to_c = c, *to_n = n;
        for (uint64_t i = 0; i < elements / B::ELEMS; i++) {
            const auto rows = block(i);
            each_vector([&](int of) __attribute__((always_inline)) {
                I bytes[4], minima[4];
                B::integers(rows.from(of), bytes, minima);
                const F scale = rows.from(of).half(B::D), least = zero() - rows.from(of).half(B::LOW);
                repeat<8>([&](auto sub) __attribute__((always_inline)) {
                    constexpr int WORD = sub.value / 2, K = sub.value % 2, AT = sub.value * ROWS;
                    i_store(to_c + 2 * AT + of, same_scale<2 * K>(bytes[WORD], B::BIAS));
                    i_store(to_c + 2 * AT + ROWS + of, same_scale<2 * K + 1>(bytes[WORD], B::BIAS));
                    store(d + AT + of, scale);
                    if (B::MIN) {
                        store(low + AT + of, least);
                        i_store(to_n + AT + of, pair_scales<K>(minima[WORD], 0));
                    }
                });
            });
            each_part<B>([&](int part) __attribute__((always_inline)) {
                repeat<RUN<B>>([&](auto sub) __attribute__((always_inline)) {
                    const int32_t *const scales = to_c + (part * RUN<B> + sub.value) * 2 * ROWS;
                    each_vector([&](int of) __attribute__((always_inline)) {
                        const I c0 = i_load(scales + of), c1 = i_load(scales + ROWS + of);
                        put_interleaved<B, sub.value>(
                            out, rows.from(of), part, of, [&](Q &low, Q &high) __attribute__((always_inline)) {
                                if constexpr (FOLDED) {
                                    constexpr int BIAS = B::OFFSET == 0 ? 0 : SIGNED_BIAS - B::OFFSET;
                                    low = fold<B::OFFSET, BIAS>(low, c0);
                                    high = fold<B::OFFSET, BIAS>(high, c1);
                                }
                            });
                    });
                    out += 32 * ROWS;
                });
            });
            d += B::SUBS * ROWS;
            if (B::MIN)
                low += B::SUBS * ROWS, to_n += B::SUBS * ROWS;
            if (!FOLDED)
                to_c += B::SUBS * 2 * ROWS;
        }
    }
    // Stores the scales of the blocks block(0), block(1), …, and has unpack put each vector of
    // rows of each sub-block where it belongs.
    template <class Block, class Fn> MEMBER void each_block(uint64_t elements, Block block, Fn unpack) {
        uint8_t *out = words;
        float *to_s = s, *to_m = m;
        for (uint64_t i = 0; i < elements / B::ELEMS; i++) {
            const auto rows = block(i);
            each_vector([&](int of) { B::scales(rows.from(of), to_s + of, to_m + of); });
            to_s += B::SUBS * B::GROUPS * ROWS;
            if (B::MIN)
                to_m += B::SUBS * B::GROUPS * ROWS;
            each_part<B>([&](int part) __attribute__((always_inline)) {
                repeat<RUN<B>>([&](auto sub) __attribute__((always_inline)) {
                    each_vector([&](int of)
                                    __attribute__((always_inline)) { unpack(out, rows.from(of), part, sub, of); });
                    out += 32 * ROWS;
                });
            });
        }
    }
};

// T tokens of a tile times the elements from `at` on of a group, which the panel holds, SPLIT with
// signs apart. The last token may be the one before it once more.
template <class P, int T, bool SPLIT>
static void panel_tile(PanelData panel, const RowGroup &g, uint32_t t0, uint32_t tokens, uint64_t at, Fetch &next) {
    auto [words, signs, s, m, negative, c, n] = panel;
    constexpr int V = ROWS / W, WORDS = 8 / P::GROUPS;
    const uint64_t place = g.act->place(g.first + t0, at), width = g.act->width(g.first + t0);
    const int8_t *q = g.act->q + place;
    const float *scale = g.act->scale + place / 32;
    const uint32_t *extra = g.extra + place / 32 * P::EXTRAS;
    uint64_t nth[T];
    UNROLL for (int t = 0; t < T; t++) nth[t] = t < T - 1 ? static_cast<uint64_t>(t) : tokens - 1;
    F sum[T][V];
    UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < V; v++) sum[t][v] = load(g.sum[t0 + nth[t]] + v * W);
    for (uint64_t left = g.act->slice(at); left > 0; left -= 32) {
        next.some();
        I total[T][V]; // of groups of whole scales
        UNROLL for (int group = 0; group < P::GROUPS; group++) {
            Products<P::RANGE, T> products[V];
            uint32_t more[T];
            int32_t offset[T];
            UNROLL for (int t = 0; t < T; t++) {
                more[t] = extra[nth[t] * P::EXTRAS + (P::EXTRAS == P::GROUPS ? group : 0)];
                offset[t] = !P::OFFSET ? 0 : static_cast<int32_t>(more[t]);
            }
            UNROLL for (int v = 0; v < V; v++) {
                if constexpr (SPLIT)
                    products[v].begin(negative + v * W);
                else if constexpr (P::WHOLE && !FOLDED)
                    UNROLL for (int t = 0; t < T; t++)
                        start_whole<0>(products[v].dot[t], static_cast<uint32_t>(offset[t]));
                else
                    products[v].start(offset);
            }
            UNROLL for (int i = 0; i < WORDS; i += 2) {
                Q w[V][2], sign[V][2];
                UNROLL for (int v = 0; v < V; v++) UNROLL for (int j = 0; j < 2; j++) {
                    w[v][j] = q_load(words + panel_place(i + j, v * W) * 4);
                    if constexpr (SPLIT)
                        sign[v][j] = q_load(signs + panel_place(i + j, v * W) * 4);
                }
                // By tokens first: what is loaded of a token is done with before the next one's.
                UNROLL for (int step = 0; step < Products<P::RANGE, T>::STEPS; step++) {
                    const int8_t *x = q + 4 * (group * WORDS + i);
                    UNROLL for (int v = 0; v < V; v++) {
                        if constexpr (SPLIT)
                            products[v].add(step, w[v][0], w[v][1], sign[v][0], sign[v][1], x, nth);
                        else
                            products[v].add(step, w[v][0], w[v][1], x, nth);
                    }
                }
            }
            UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < V; v++) {
                if constexpr (!P::WHOLE) {
                    sum[t][v] = accumulate<P::OFFSET, P::MIN>(sum[t][v], products[v].finish(t, offset[t]), s + v * W,
                                                              m + v * W, scale[nth[t]], more[t]);
                } else {
                    if constexpr (FOLDED) {
                        total[t][v] = products[v].finish(t, offset[t]);
                    } else {
                        const I part = weigh(products[v].dot[t], c + group * ROWS + v * W);
                        total[t][v] = group == 0 ? part : i_add(total[t][v], part);
                    }
                    if (group == P::GROUPS - 1)
                        sum[t][v] = accumulate_whole<P::MIN>(sum[t][v], total[t][v], s + v * W, m + v * W, n + v * W,
                                                             scale[nth[t]], more[t]);
                }
            }
            words += WORDS * ROWS * 4;
            if (SPLIT)
                signs += WORDS * ROWS * 4, negative += ROWS;
            if (P::WHOLE && group < P::GROUPS - 1)
                continue;
            s += ROWS;
            if (P::MIN)
                m += ROWS;
            if (P::WHOLE)
                c += 2 * ROWS, n += P::MIN ? ROWS : 0;
        }
        q += 32 * width, scale += width, extra += width * P::EXTRAS;
    }
    UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < V; v++) store(g.sum[t0 + nth[t]] + v * W, sum[t][v]);
}

// Scales of a block of interleaved rows.
template <class B, bool = WHOLE_SCALES<B>> struct BlockScales {
    alignas(64) float s[B::SUBS * B::GROUPS * ROWS], m[B::MIN ? B::SUBS * B::GROUPS * ROWS : ROWS];

    MEMBER void read(const uint8_t *block) {
        const Interleaved<B> rows{block, 0, 0};
        each_vector_of<B>([&](int of) __attribute__((always_inline)) { B::scales(rows.from(of), s + of, m + of); });
    }
};

// The same with whole scales: c is [SUBS][SCALE_WORDS], n and m [SUBS] vectors, ROWS words apart.
template <class B> struct BlockScales<B, true> {
    alignas(64) int32_t c[B::SUBS * SCALE_WORDS * ROWS], n[B::MIN ? B::SUBS * ROWS : ROWS];
    alignas(64) float d[ROWS], low[ROWS];

    MEMBER void read(const uint8_t *block) {
        each_vector([&](int of) __attribute__((always_inline)) {
            const Interleaved<B> rows{block, of, 0};
            I bytes[4], minima[4];
            B::integers(rows, bytes, minima);
            repeat<8>([&](auto sub) __attribute__((always_inline)) {
                constexpr int WORD = sub.value / 2, K = sub.value % 2;
                scale_words<K>(bytes[WORD], B::BIAS, c + sub.value * SCALE_WORDS * ROWS + of);
                if (B::MIN)
                    i_store(n + sub.value * ROWS + of, pair_scales<K>(minima[WORD], 0));
            });
            store(d + of, rows.half(B::D));
            if (B::MIN)
                store(low + of, zero() - rows.half(B::LOW));
        });
    }
};

// Adds to sum the next block of S groups of interleaved rows times T tokens, k elements of q
// apart; the last token takes the place of those that there are not. The first group's block
// lies at `block`, and is read like `as`; scales are those of the groups. With PAIRS both sub-blocks
// that the same words hold are multiplied at once; results are added up in the order of elements.
template <class B, int T, int S, bool PAIRS = B::PARTNER == 1, class From, class Scales>
INLINE void multiply_block(const From &as, const uint8_t *block, const RowGroup &g, const int8_t *q, const float *scale,
                           const uint32_t *extra, const Scales (&scales)[S], F (&sum)[S][T][ROWS / W]) {
    // Sub-blocks multiplied at once, and those whose integers wait for others before them.
    constexpr int V = ROWS / W, N = PAIRS ? 2 : 1, HELD = PAIRS ? 2 * B::PARTNER : 1;
    const auto row = [&g](int t) { return least(static_cast<uint64_t>(t), g.tokens - 1); };
    const uint64_t blocks = g.k / 32;
    // Of one stream, twice as far: as many lines are under way.
    const size_t apart = g.apart, distance = S == 1 ? 2 * g.ahead : g.ahead;
    each_part<B>([&](int part) __attribute__((always_inline)) {
        repeat<RUN<B> / HELD>([&](auto run) __attribute__((always_inline)) {
            constexpr int BEGIN = decltype(run)::value * HELD;
            Dot<B::RANGE> dot[HELD][S][V][T][B::GROUPS];
            repeat<HELD / N>([&](auto step) __attribute__((always_inline)) {
                constexpr int STEP = decltype(step)::value, FIRST = BEGIN + STEP;
                // Where a sub-block's sums lie above their place.
                constexpr int LOW = place_at<B, FIRST>(0), HIGH = place_at<B, FIRST>(1);
                UNROLL for (int n = 0; n < N; n++) UNROLL for (int t = 0; t < T; t++) {
                    if constexpr (WHOLE_SCALES<B>) {
                        const uint32_t *more = extra + (row(t) * blocks + part * RUN<B> + FIRST) * EXTRAS<B>;
                        UNROLL for (int i = 0; i < S; i++) UNROLL for (int v = 0; v < V; v++) {
                            Dot<B::RANGE>(&d)[2] = dot[STEP][i][v][t];
                            start_whole<LOW>(d[0], B::OFFSET == 0 ? 0 : more[0]);
                            start_whole<HIGH>(d[1], B::OFFSET == 0 ? 0 : more[1]);
                        }
                    } else {
                        UNROLL for (int group = 0; group < B::GROUPS; group++) {
                            const int sub = part * RUN<B> + FIRST + n * B::PARTNER;
                            const uint32_t more = extra[(row(t) * blocks + sub) * B::GROUPS + group];
                            const int32_t from = B::OFFSET == 0 ? 0 : static_cast<int32_t>(more);
                            UNROLL for (int i = 0; i < S; i++) UNROLL for (int v = 0; v < V; v++)
                                dot[STEP + n * B::PARTNER][i][v][t][group]
                                    .start(from);
                        }
                    }
                }
                UNROLL for (int j = 0; j < 4; j++) UNROLL for (int i = 0; i < S; i++) {
                    const uint8_t *p = block + static_cast<size_t>(i) * apart;
                    // A little at a time, so as not to queue up what is wanted now. From the second-level
                    // cache a Zen 5 takes K-quants a fifth slower.
                    constexpr size_t LINES = ceil_div(From::BYTES / B::PARTS, 64), PIECES = 4 * RUN<B> / N;
                    const size_t piece = static_cast<size_t>(4 * (BEGIN / N + STEP) + j);
                    const size_t begin = LINES * piece / PIECES, end = LINES * (piece + 1) / PIECES;
                    const uint8_t *ahead = p + static_cast<size_t>(part) * (From::BYTES / B::PARTS) + 64 * begin;
                    UNROLL for (size_t line = begin; line < end; line++, ahead += 64) prefetch<0, 1>(ahead + distance);
                    // Compilers move what nothing depends on to the front, and nothing past this.
                    asm volatile("");
                    UNROLL for (int v = 0; v < V; v++) {
                        Q low[N], high[N];
                        if constexpr (WHOLE_SCALES<B>)
                            B::template halves<FIRST, PLACED>(as.at(p, v * W, j), part, low[0], high[0]);
                        else
                            halves_together<B, FIRST>(as.at(p, v * W, j), part, low, high);
                        UNROLL for (int n = 0; n < N; n++) UNROLL for (int t = 0; t < T; t++) {
                            const int sub = part * RUN<B> + FIRST + n * B::PARTNER;
                            const int8_t *x = q + row(t) * g.k + 32 * sub + 4 * j;
                            Dot<B::RANGE> *d = dot[STEP + n * B::PARTNER][i][v][t];
                            if constexpr (B::GROUPS == 1) {
                                d[0].two(low[n], q_same4(x), high[n], q_same4(x + 16));
                            } else {
                                d[0].one(low[n], q_same4(x));
                                d[1].one(high[n], q_same4(x + 16));
                            }
                        }
                    }
                }
                constexpr int DONE = STEP + 1 == HELD / N ? HELD : STEP + 1;
                UNROLL for (int of = STEP; of < DONE; of++) UNROLL for (int t = 0; t < T; t++) {
                    const int before = part * RUN<B> + BEGIN + of;
                    const uint64_t sub = row(t) * blocks + before;
                    if constexpr (WHOLE_SCALES<B>) {
                        const uint32_t *more = extra + sub * EXTRAS<B>;
                        UNROLL for (int i = 0; i < S; i++) UNROLL for (int v = 0; v < V; v++) {
                            const I integers =
                                weigh<LOW, HIGH>(dot[of][i][v][t], scales[i].c + before * SCALE_WORDS * ROWS + v * W,
                                                 B::OFFSET == 0 ? NO_OFFSETS : more);
                            sum[i][t][v] = accumulate_whole<B::MIN>(
                                sum[i][t][v], integers, scales[i].d + v * W, scales[i].low + v * W,
                                scales[i].n + before * ROWS + v * W, scale[sub], *more);
                        }
                    } else {
                        UNROLL for (int group = 0; group < B::GROUPS; group++) {
                            const uint32_t more = extra[sub * B::GROUPS + group];
                            const int32_t from = B::OFFSET == 0 ? 0 : static_cast<int32_t>(more);
                            const int place = (before * B::GROUPS + group) * ROWS;
                            UNROLL for (int i = 0; i < S; i++) UNROLL for (int v = 0; v < V; v++) sum[i][t][v] =
                                accumulate<(B::OFFSET != 0), B::MIN>(sum[i][t][v], dot[of][i][v][t][group].finish(from),
                                                                     scales[i].s + place + v * W,
                                                                     scales[i].m + place + v * W, scale[sub], more);
                        }
                    }
                }
            });
        });
    });
}

// T tokens, or fewer, times S groups of interleaved rows, each of which is read once.
template <class B, int T, int S, bool PAIRS = B::PARTNER == 1> static void multiply_interleaved(const RowGroup &g) {
    constexpr int V = ROWS / W;
    const uint64_t first = g.first * (g.k / 32);
    const int8_t *q = g.act->q + 32 * first;
    const float *scale = g.act->scale + first;
    const uint32_t *extra = g.extra + first * EXTRAS<B>;
    GroupBlocks<B> blocks(g);
    F sum[S][T][V];
    UNROLL for (F(&group)[T][V] : sum) UNROLL for (F(&token)[V] : group) UNROLL for (F &v : token) v = zero();
    for (uint64_t i = 0, n = g.k / B::ELEMS; i < n; i++) {
        const uint8_t *block = blocks.at(i);
        BlockScales<B> scales[S];
        UNROLL for (int i = 0; i < S; i++) scales[i].read(block + static_cast<size_t>(i) * g.apart);
        multiply_block<B, T, S, PAIRS>(Interleaved<B>{block, 0, 0}, block, g, q, scale, extra, scales, sum);
        q += B::ELEMS, scale += B::SUBS, extra += B::SUBS * EXTRAS<B>;
    }
    UNROLL for (int i = 0; i < S; i++) UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < V; v++)
        store(g.sum[i + t] + v * W, sum[i][t][v]);
}

// Multiplies up to S groups with a token at once, or a group with a few: up to MOST, or up to LEAST
// if there are no more: f(groups, Int<tokens>{}, Int<groups>{}). Tells that they are complete.
template <uint32_t S, uint32_t LEAST, uint32_t MOST, class Fn> INLINE void in_streams(const RowGroup &g, Fn f) {
    if (g.tokens == 1) {
        with_power<S>(g.groups, [&](auto n) { f(g, Int<1>{}, n); });
    } else {
        RowGroup some = g;
        for (uint32_t t = 0; t < g.tokens; t += some.tokens) {
            const uint32_t left = g.tokens - t;
            some.first = g.first + t, some.tokens = static_cast<uint32_t>(least(MOST, left)), some.sum = g.sum + t;
            if (LEAST < MOST && left <= LEAST)
                f(some, Int<LEAST>{}, Int<1>{});
            else
                f(some, Int<MOST>{}, Int<1>{});
        }
    }
    g.complete(0, g.tokens);
}

// Multiplies groups with many tokens by way of panels, each of which unpack(panel, group, at, elements)
// fills with elements from `at` on. A block of a row has so many elements and bytes.
template <class B, class Fn> INLINE void multiply_panels(const RowGroup &g, uint32_t elems, uint32_t bytes, Fn unpack) {
    memset(g.sum, 0, g.groups * g.tokens * sizeof *g.sum);
    Panel<B> panel;
    each_panel(g, g.act->panel, [&](const RowGroup &one, uint64_t at, bool last) {
        const uint64_t elements = g.act->slice(at);
        unpack(panel, one, at, elements);
        const bool split = Panel<B>::SPLIT && g.tokens >= SPLIT_FROM && g.act->panel <= Panel<B>::MOST;
        if (split)
            panel.split_signs(elements);
        Fetch next = panel_behind(g, one, at / elems * bytes, elements / elems * bytes,
                                  ceil_div(g.tokens, TILE) * (elements / 32));
        in_tiles(g.tokens, [&](uint32_t t, auto n, uint32_t tokens) {
            if (last)
                one.expect(t, tokens);
            const auto multiply = [&](auto of) {
                panel_tile<SchemeOf<B>, n.value, of.value != 0>(panel.data(), one, t, tokens, at, next);
            };
            if (split)
                multiply(Int<Panel<B>::SPLIT>{});
            else
                multiply(Int<0>{});
            if (last)
                one.complete(t, tokens);
        });
    });
}

// Whether a token has a form for RowGroup::pairs: the same words hold sub-blocks that are not
// neighbours, and the set has registers for the sums of two besides those of the token.
template <class B> constexpr bool PAIRS_PAY = B::PARTNER > 1 && MANY_REGISTERS;

template <class B> static void multiply_quantized(const RowGroup &g) {
    // From memory a format with two scales in a sub-block gains nothing by a form for two tokens.
    constexpr uint32_t MOST = RARE<B> ? AT_ONCE : FEW, LEAST = B::GROUPS == 1 ? 2 : AT_ONCE;
    const bool interleaved = BY_COPY<B> || g.interleaved;
    if (g.act->few) {
        if (interleaved)
            return in_streams<STREAMS_OF<B>, LEAST, MOST>(g, [](const RowGroup &some, auto t, auto s) {
                if constexpr (PAIRS_PAY<B> && decltype(t)::value == 1)
                    if (some.pairs)
                        return multiply_interleaved<B, 1, s.value, true>(some);
                multiply_interleaved<B, t.value, s.value>(some);
            });
        if constexpr (!BY_COPY<B>) {
            for (uint32_t t = 0; t < g.tokens; t++)
                multiply_few<B>(g, t);
            g.complete(0, g.tokens);
        }
        return;
    }
    multiply_panels<B>(g, B::ELEMS, B::BYTES,
                       [&](Panel<B> &panel, const RowGroup &one, uint64_t at, uint64_t elements) {
                           if (interleaved)
                               return panel.unpack_interleaved(one, at / B::ELEMS, elements);
                           if constexpr (!BY_COPY<B>)
                               panel.unpack(one.rows + at / B::ELEMS * B::BYTES, one.stride, elements);
                       });
}

template <class B> constexpr WeightType block_type() {
    return {B::TYPE,
            B::ELEMS,
            B::BYTES,
            STREAMS_OF<B>,
            true,
            {EXTRAS<B>, B::OFFSET, B::MIN, WHOLE_SCALES<B>},
            multiply_quantized<B>,
            nullptr,
            nullptr,
            nullptr,
            Panel<B>::MOST};
}
// The same with what an overlay has from the set below it.
template <class B> constexpr WeightType stored_block_type() {
    WeightType t = block_type<B>();
    t.widen = dequantize_row<B>, t.interleave = interleave<B>, t.widen_interleaved = dequantize_interleaved<B>;
    return t;
}
