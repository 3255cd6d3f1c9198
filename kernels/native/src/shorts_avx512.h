// Products of half weights in 16-bit integers, which processors multiply at twice the rate of
// floats, and which lose less precision than activations rounded to halves.
//
// BLOCK elements of a row share a scale; the last block may be shorter. Weights are multiplied
// by the power of two that brings their largest magnitude into [2^13, 2^14): an F16 of at least an
// eighth of that is exact, a smaller one is rounded to 2^-13 of the largest one's power of two.
// The scale of activations keeps the sum of their magnitudes below 2^17. A sum of products is
// therefore below 2^31 and exact; then sum += (weight scale · activation scale) · integer, from
// the first block to the last.
//
// Interleaved groups hold these integers, block after block: [BLOCK/2][ROWS] words of two elements,
// then the inverse powers of two, [ROWS] BF16s, NaN for a block with an element that is not
// finite. Rows of a file are converted to the same form, PANEL elements at a time.

static_assert(W == 16 && ROWS == 2 * W, "a vector of halves is those of a group");

// Writes a token's integers and scales to Shorts.
void put_short(const Shorts &to, const float *row, uint64_t token) {
    constexpr float SUM = 131000, LARGEST = 32767; // SUM leaves room for what rounding adds
    for (uint64_t at = 0; at < to.length(); at += Shorts::BLOCK) {
        F v[Shorts::BLOCK / W], size = zero(), top = zero();
        UNROLL for (uint64_t i = 0; i < Shorts::BLOCK / W; i++) {
            const uint64_t from = at + i * W, left = from < to.k ? to.k - from : 0;
            v[i] = left < W ? load_n(row + (left == 0 ? 0 : from), static_cast<int>(left)) : load(row + from);
            size = size + abs(v[i]), top = max(top, abs(v[i]));
        }
        const float all = reduce_add(size), sum = all / SUM, largest = reduce_max(top) / LARGEST;
        const float scale = sum > largest ? sum : largest;
        const bool any = scale > 1e-30f; // else all integers are zero, with one for a scale, which is ordinary
        const F inverse = set1(any ? 1.0f / scale : 0.0f);
        const uint64_t place =
            to.place(token, at / Shorts::PANEL * Shorts::PANEL) + at % Shorts::PANEL * to.width(token);
        to.scale[place / Shorts::BLOCK] = all < __builtin_inff() ? any ? scale : 1.0f : __builtin_nanf("");
        UNROLL for (uint64_t i = 0; i < Shorts::BLOCK / W; i++) _mm256_storeu_si256(
            reinterpret_cast<__m256i *>(to.q + place + i * W), _mm512_cvtsepi32_epi16(to_int(v[i] * inverse)));
    }
}

// What rows are multiplied by, from the largest sizes of a block's elements, and what undoes it.
INLINE F short_factor(I largest, F &undo) {
    const I exponent = _mm512_max_epi32(i_shr<23>(largest), i_set1(14));
    const I bits = i_shl<23>(_mm512_sub_epi32(exponent, i_set1(13))), nan = i_set1(0x7fc00000);
    undo = _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(exponent, i_set1(255)), nan));
    return _mm512_castsi512_ps(i_shl<23>(_mm512_sub_epi32(i_set1(267), exponent)));
}
constexpr float TO_INTEGER = 12582912; // added to a float below 2^22, it leaves an integer in the low bits

// Of W vectors, what f makes of the 32-bit lanes of each.
template <class Fn> INLINE Q across(const Q (&v)[W], Fn f) {
    Q a[W / 2], b[W / 4];
    UNROLL for (int i = 0; i < W / 2; i++) a[i] =
        f(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    UNROLL for (int i = 0; i < W / 4; i++) b[i] =
        f(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]), _mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
    const auto halves = [&](Q x, Q y) __attribute__((always_inline)) {
        return f(_mm512_shuffle_i32x4(x, y, 0x88), _mm512_shuffle_i32x4(x, y, 0xdd));
    };
    return halves(halves(b[0], b[1]), halves(b[2], b[3]));
}

// Writes 32-bit lane i of W vectors as vector i, `apart` bytes from the last.
INLINE void transpose_words(const Q (&v)[W], uint8_t *out, size_t apart) {
    Q a[W], b[W];
    UNROLL for (int i = 0; i < W; i += 2) a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]),
                                          a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    UNROLL for (int i = 0; i < W; i += 4) UNROLL for (int h = 0; h < 2; h++)
        b[i + 2 * h] = _mm512_unpacklo_epi64(a[i + h], a[i + 2 + h]),
                  b[i + 2 * h + 1] = _mm512_unpackhi_epi64(a[i + h], a[i + 2 + h]);
    UNROLL for (size_t c = 0; c < 4; c++) {
        const Q even[2] = {_mm512_shuffle_i32x4(b[c], b[4 + c], 0x88), _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88)};
        const Q odd[2] = {_mm512_shuffle_i32x4(b[c], b[4 + c], 0xdd), _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xdd)};
        q_store(out + c * apart, _mm512_shuffle_i32x4(even[0], even[1], 0x88));
        q_store(out + (4 + c) * apart, _mm512_shuffle_i32x4(odd[0], odd[1], 0x88));
        q_store(out + (8 + c) * apart, _mm512_shuffle_i32x4(even[0], even[1], 0xdd));
        q_store(out + (12 + c) * apart, _mm512_shuffle_i32x4(odd[0], odd[1], 0xdd));
    }
}

// A block of W rows of a file, as integers.
struct ShortBlock {
    static constexpr size_t ROW = Shorts::BLOCK * 2; // bytes
    alignas(64) uint8_t q[W * ROW], rest[W * ROW];
    F undo;

    // Converts `elements` elements of each row, followed by zeros.
    template <class E> NOINLINE void read(const uint8_t *rows, size_t stride, uint64_t elements) {
        if (elements < Shorts::BLOCK) {
            memset(rest, 0, sizeof rest);
            for (size_t r = 0; r < W; r++)
                memcpy(rest + r * ROW, rows + r * stride, elements * 2);
            rows = rest, stride = ROW;
        }
        const Q size = _mm512_set1_epi16(0x7fff); // of halves, in the order of their bits, NaN above all
        Q top[W];
        UNROLL for (size_t r = 0; r < W; r++) {
            const uint8_t *row = rows + r * stride;
            prefetch(row + 4 * ROW), prefetch(row + 4 * ROW + 64);
            top[r] = _mm512_max_epu16(_mm512_and_si512(q_load(row), size), _mm512_and_si512(q_load(row + 64), size));
        }
        const Q most = across(top, [](Q a, Q b) { return _mm512_max_epu16(a, b); });
        // The largest of both halves of a lane, as a float.
        const Q largest = _mm512_max_epu16(most, i_shr<16>(most));
        const F factors = short_factor(_mm512_castps_si512(E::at(lows(largest))), undo);
        alignas(64) float factor[W];
        store(factor, factors);
        for (size_t r = 0; r < W; r++) {
            const F by = set1(factor[r]);
            UNROLL for (size_t half = 0; half < ROW; half += 64) {
                const auto rounded = [&](size_t at) __attribute__((always_inline)) {
                    return _mm512_castps_si512(fma(E::at(rows + r * stride + at), by, set1(TO_INTEGER)));
                };
                q_store(q + r * ROW + half, low_halves(rounded(half), rounded(half + 32)));
            }
        }
    }

private:
    alignas(32) uint8_t low[2 * W];
    // The low halves of W lanes, where a type reads them.
    MEMBER const uint8_t *lows(Q v) {
        _mm256_store_si256(reinterpret_cast<__m256i *>(low), _mm512_cvtepi32_epi16(v));
        return low;
    }
    // The low halves of the lanes of a, then of b.
    MEMBER static Q low_halves(Q a, Q b) {
        const Q even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24,
                                        22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        return _mm512_permutex2var_epi16(a, even, b);
    }
};

// Writes the integers of a group's rows.
template <class E>
NOINLINE static void put_shorts(const uint8_t *rows, size_t stride, uint64_t elements, uint8_t *out) {
    ShortBlock block;
    for (uint64_t at = 0; at < elements; at += Shorts::BLOCK, out += Shorts::BYTES)
        for (size_t first = 0; first < ROWS; first += W) {
            block.read<E>(rows + first * stride + at * 2, stride, least(elements - at, Shorts::BLOCK));
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + Shorts::BLOCK * ROWS * 2 + first * 2),
                                _mm512_cvtepi32_epi16(i_shr<16>(_mm512_castps_si512(block.undo))));
            UNROLL for (size_t half = 0; half < 2; half++) {
                Q v[W];
                UNROLL for (size_t r = 0; r < W; r++) v[r] = q_load(block.q + r * ShortBlock::ROW + half * 64);
                transpose_words(v, out + (half * W * ROWS + first) * 4, ROWS * 4);
            }
        }
}

// Few tokens times the rows of a file, as they lie.
template <class E> static void multiply_short_rows(const RowGroup &g) {
    const Shorts &x = *g.shorts;
    ShortBlock block;
    for (size_t first = 0; first < ROWS; first += W) {
        F sum[FEW_ROWS];
        for (F &v : sum)
            v = zero();
        const int16_t *q = x.q;
        const float *scale = x.scale;
        for (uint64_t at = 0; at < g.k; at += Shorts::BLOCK, scale += g.tokens) {
            block.read<E>(g.rows + first * g.stride + at * 2, g.stride, least(g.k - at, Shorts::BLOCK));
            for (uint64_t t = 0; t < g.tokens; t++, q += Shorts::BLOCK) {
                const uint8_t *one = reinterpret_cast<const uint8_t *>(q);
                Q dot[W];
                UNROLL for (size_t r = 0; r < W; r++) {
                    const uint8_t *row = block.q + r * ShortBlock::ROW;
                    dot[r] = _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(i_set1(0), q_load(row), q_load(one)),
                                                 q_load(row + 64), q_load(one + 64));
                }
                const I total = across(dot, [](Q a, Q b) { return _mm512_add_epi32(a, b); });
                sum[t] = fma(block.undo * set1(scale[t]), to_float(total), sum[t]);
            }
        }
        for (uint64_t t = 0; t < g.tokens; t++)
            store(g.sum[t] + first, sum[t]);
    }
    g.complete(0, g.tokens);
}

// Whether scales are 2^-63 to 2^64, so that a float has the exponent of any two's product: of some
// rows of weights or tokens, of all blocks of a panel, and of so many of tokens and blocks.
INLINE bool ordinary(F scales) {
    const I above = _mm512_sub_epi32(_mm512_castps_si512(scales), i_set1(64 << 23));
    return _mm512_cmplt_epu32_mask(above, i_set1(127 << 23)) == 0xffff;
}
static bool ordinary_weights(const uint8_t *panel, uint64_t blocks) {
    bool all = true;
    for (uint64_t i = 0; i < blocks; i++)
        for (int v = 0; v < 2; v++)
            all &= ordinary(
                load_bf16(panel + i * Shorts::BYTES + (Shorts::BLOCK * ROWS + static_cast<uint64_t>(v) * W) * 2));
    return all;
}
static bool ordinary_activations(const float *scale, uint64_t n) {
    bool all = true;
    uint64_t i = 0;
    for (; i + W <= n; i += W)
        all &= ordinary(load(scale + i));
    return all && ordinary(_mm512_mask_loadu_ps(set1(1), first(static_cast<int>(n - i)), scale + i));
}

// The scale of a product. That of weights is a power of two: of ordinary ones the exponents are
// added, which leaves multipliers to the integers.
template <bool ORDINARY> INLINE F scale_of(F weights, F activations) {
    if (!ORDINARY)
        return weights * activations;
    const I exponent = _mm512_sub_epi32(_mm512_castps_si512(weights), i_set1(127 << 23));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(activations), exponent));
}

// T tokens of a tile times elements from `at` on of a group, as many as a slice has. The last
// token may be the one before it once more.
template <int T, bool ORDINARY>
static void short_tile(const uint8_t *words, const RowGroup &g, uint32_t t0, uint32_t tokens, uint64_t at,
                       Fetch &next) {
    const Shorts &x = *g.shorts;
    const uint64_t place = x.place(g.first + t0, at), width = x.width(g.first + t0);
    const int16_t *q = x.q + place;
    const float *scale = x.scale + place / Shorts::BLOCK;
    const uint64_t tile = x.slice(at) * width;
    uint64_t nth[T];
    UNROLL for (int t = 0; t < T; t++) nth[t] = t < T - 1 ? static_cast<uint64_t>(t) : tokens - 1;
    F sum[T][2];
    UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < 2; v++) sum[t][v] =
        at == 0 ? zero() : load(g.sum[t0 + nth[t]] + v * W);
    for (uint64_t left = x.slice(at); left > 0; left -= Shorts::BLOCK) {
        next.some();
        I dot[T][2];
        UNROLL for (I(&token)[2] : dot) UNROLL for (I &v : token) v = i_set1(0);
        const int16_t *behind = q + tile;                 // the next tile's block, from the second-level cache
        for (uint64_t i = 0; i < Shorts::BLOCK; i += 8) { // more of it at once, and g++ spills sums
            prefetch<0, 1>(behind), prefetch<0, 1>(behind + 4 * T), behind += 8 * T;
            UNROLL for (uint64_t j = i; j < i + 8; j += 2, words += ROWS * 4) {
                const Q low = q_load(words), high = q_load(words + W * 4);
                UNROLL for (int t = 0; t < T; t++) {
                    const Q pair = q_same4(reinterpret_cast<const int8_t *>(q + nth[t] * Shorts::BLOCK + j));
                    dot[t][0] = _mm512_dpwssd_epi32(dot[t][0], low, pair);
                    dot[t][1] = _mm512_dpwssd_epi32(dot[t][1], high, pair);
                }
            }
        }
        UNROLL for (int v = 0; v < 2; v++) {
            const F undo = load_bf16(words + v * W * 2);
            UNROLL for (int t = 0; t < T; t++) sum[t][v] =
                fma(scale_of<ORDINARY>(undo, set1(scale[nth[t]])), to_float(dot[t][v]), sum[t][v]);
        }
        q += Shorts::BLOCK * width, scale += width, words += ROWS * 2;
    }
    UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < 2; v++) store(g.sum[t0 + nth[t]] + v * W, sum[t][v]);
}

// Panels of groups, which are those that lie interleaved, or are made of a file's rows.
template <class E> static void multiply_short_panels(const RowGroup &g) {
    alignas(64) uint8_t panel[Shorts::PANEL / Shorts::BLOCK * Shorts::BYTES];
    each_panel(g, Shorts::PANEL, [&](const RowGroup &one, uint64_t at, bool last) {
        const uint64_t elements = g.shorts->slice(at), blocks = elements / Shorts::BLOCK;
        const uint64_t times = ceil_div(g.tokens, TILE) * blocks;
        const uint8_t *block = panel;
        Fetch next;
        if (g.interleaved) {
            block = one.rows + at / Shorts::BLOCK * Shorts::BYTES;
            next = panel_behind(g, one, Shorts::interleaved(at), Shorts::interleaved(elements), times);
        } else {
            put_shorts<E>(one.rows + at * 2, g.stride, least(elements, g.k - at), panel);
            next = panel_behind(g, one, at * 2, elements * 2, times);
        }
        const float *scales = g.shorts->scale + g.shorts->place(g.first, at) / Shorts::BLOCK;
        const bool ordinary_scales = ordinary_weights(block, blocks) && ordinary_activations(scales, blocks * g.tokens);
        in_tiles(g.tokens, [&](uint32_t t, auto n, uint32_t tokens) {
            if (last)
                one.expect(t, tokens);
            if (ordinary_scales)
                short_tile<n.value, true>(block, one, t, tokens, at, next);
            else
                short_tile<n.value, false>(block, one, t, tokens, at, next);
            if (last)
                one.complete(t, tokens);
        });
    });
}

// S interleaved groups times T tokens, or fewer.
template <int T, int S> static void multiply_streams(const RowGroup &g) {
    const Shorts &x = *g.shorts;
    F sum[S][T][2];
    UNROLL for (F(&group)[T][2] : sum) UNROLL for (F(&token)[2] : group) UNROLL for (F &v : token) v = zero();
    const uint8_t *p[S];
    UNROLL for (size_t s = 0; s < S; s++) p[s] = g.rows + s * g.apart;
    const int16_t *q = x.q;
    const float *scale = x.scale;
    const size_t ahead = g.ahead;
    const auto nth = [&](int t) { return least(static_cast<uint64_t>(t), g.tokens - 1); };
    for (uint64_t at = 0; at < g.k; at += Shorts::BLOCK) {
        I dot[S][T][2];
        UNROLL for (I(&group)[T][2] : dot) UNROLL for (I(&token)[2] : group) UNROLL for (I &v : token) v = i_set1(0);
        for (uint64_t i = 0; i < Shorts::BLOCK; i += 4) {
            UNROLL for (uint64_t j = i; j < i + 4; j += 2) {
                Q pair[T];
                UNROLL for (int t = 0; t < T; t++) pair[t] =
                    q_same4(reinterpret_cast<const int8_t *>(q + nth(t) * Shorts::BLOCK + j));
                UNROLL for (int s = 0; s < S; s++) {
                    prefetch_lines(p[s] + ahead, ROWS * 4);
                    UNROLL for (int v = 0; v < 2; v++, p[s] += W * 4) UNROLL for (int t = 0; t < T; t++) dot[s][t][v] =
                        _mm512_dpwssd_epi32(dot[s][t][v], q_load(p[s]), pair[t]);
                }
            }
        }
        UNROLL for (int s = 0; s < S; s++) {
            prefetch_lines(p[s] + ahead, ROWS * 2);
            UNROLL for (int v = 0; v < 2; v++, p[s] += W * 2) {
                const F undo = load_bf16(p[s]);
                UNROLL for (int t = 0; t < T; t++) sum[s][t][v] =
                    fma(undo * set1(scale[nth(t)]), to_float(dot[s][t][v]), sum[s][t][v]);
            }
        }
        q += Shorts::BLOCK * g.tokens, scale += g.tokens;
    }
    UNROLL for (int s = 0; s < S; s++) UNROLL for (int t = 0; t < T; t++) UNROLL for (int v = 0; v < 2; v++)
        store(g.sum[static_cast<uint64_t>(s) * g.tokens + nth(t)] + v * W, sum[s][t][v]);
}

// Interleaved groups times few tokens, straight from memory.
static void multiply_few_shorts(const RowGroup &g) {
    if (g.tokens == 1)
        with_power<STREAMS>(g.groups, [&](auto n) { multiply_streams<1, n.value>(g); });
    else
        with_power<FEW>(g.tokens == 3 ? 4 : g.tokens, [&](auto n) { multiply_streams<n.value, 1>(g); });
    g.complete(0, g.tokens);
}

template <class E> static void multiply_shorts(const RowGroup &g) {
    if (g.shorts->tokens > (g.interleaved ? FEW : FEW_ROWS))
        multiply_short_panels<E>(g);
    else if (!g.interleaved)
        multiply_short_rows<E>(g);
    else
        multiply_few_shorts(g);
}

template <class E> static void interleave_shorts(const uint8_t *rows, uint64_t k, uint64_t groups, uint8_t *out) {
    for (; groups > 0; groups--, rows += ROWS * k * 2, out += ROWS * Shorts::interleaved(k))
        put_shorts<E>(rows, k * 2, k, out);
}

// Converts elements to the values that products use, in either layout.
template <class E> static void widen_shorts(const uint8_t *p, float *out, uint64_t n) {
    for (uint64_t at = 0; at < n; at += Shorts::BLOCK) {
        const auto each = [&](auto f) {
            for (uint64_t i = at; i < least(at + Shorts::BLOCK, n); i += W)
                f(i, static_cast<int>(least(W, n - i)));
        };
        I top = i_set1(0); // NaN is above all
        each([&](uint64_t i, int count) {
            top = _mm512_max_epi32(top, _mm512_castps_si512(abs(elements_n<E>(p, i, count))));
        });
        F undo;
        const F factor = short_factor(i_set1(_mm512_reduce_max_epi32(top)), undo), lift = set1(TO_INTEGER);
        each([&](uint64_t i, int count) {
            store_n(out + i, (fma(elements_n<E>(p, i, count), factor, lift) - lift) * undo, count);
        });
    }
}
static void widen_interleaved_shorts(const uint8_t *p, uint64_t row, float *out, uint64_t n) {
    const uint8_t *block = p + row / ROWS * ROWS * Shorts::interleaved(n);
    for (uint64_t at = 0; at < n; at += Shorts::BLOCK, block += Shorts::BYTES) {
        const float undo = _mm512_cvtss_f32(load_bf16_n(block + Shorts::BLOCK * ROWS * 2 + row % ROWS * 2, 1));
        const uint8_t *words = block + row % ROWS * 4;
        for (uint64_t i = 0; i < Shorts::BLOCK; i++) {
            int16_t q;
            memcpy(&q, words + i / 2 * ROWS * 4 + i % 2 * 2, 2);
            out[at + i] = static_cast<float>(q) * undo;
        }
    }
}
template <class E> constexpr WeightType short_type() {
    return {E::TYPE,
            1,
            E::BYTES,
            STREAMS,
            false,
            {1, 0, false},
            multiply_shorts<E>,
            widen_shorts<E>,
            interleave_shorts<E>,
            widen_interleaved_shorts};
}
