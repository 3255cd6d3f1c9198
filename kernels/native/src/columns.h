// Products of float weights and many tokens, as sums of outer products: a vector of rows times one
// element of each token of a tile. Weights are widened once for all tokens, where a row times a
// row widens them anew for each tile of tokens, and no vector's lanes are added up at its end.
//
// The bits are those of a row times a row. Lane l of FloatTile's sums takes elements l, l + W, …;
// here these have a sum of their own, in the same order, and the sums of all lanes are added as
// reduce4 adds lanes: neighbours in SUM_ORDER first. Four neighbours there, a quad, are worked on
// together; they are neighbours in a vector as well.

constexpr int QUADS = W / QUAD, COLUMN_VECTORS = ROWS / W;
static_assert(QUADS == 1 || QUADS == 2 || QUADS == 4);

constexpr int first_of_quad(int i) { return SUM_ORDER[QUAD * i] / QUAD * QUAD; }
constexpr int in_quad(int e) { return SUM_ORDER[e] % QUAD; }

// The number of tokens from which converting weights to floats first pays.
constexpr uint32_t COLUMNS_FROM = 96;
// Floats of a group's quad that are held at a time: [QUAD][k/W][ROWS], which a second-level cache holds.
constexpr uint64_t COLUMN_PANEL = 65536;

bool columns_pay(uint64_t k, uint32_t tokens) {
    return tokens >= COLUMNS_FROM && k % W == 0 && QUAD * (k / W) * ROWS <= COLUMN_PANEL;
}

// Stores the elements of four lanes: those of vectors of W/QUAD quads each, a to d of which have
// every fourth row.
INLINE void store_lanes(F a, F b, F c, F d, float *to, uint64_t apart) {
    transpose_quads(a, b, c, d);
    store(to, a);
    store(to + apart, b);
    store(to + 2 * apart, c);
    store(to + 3 * apart, d);
}

void put_column(const Columns &to, const float *row, uint64_t token) {
    alignas(64) float rest[W * W];
    for (uint64_t run = 0; run < to.runs(); run++, row += W * W) {
        if (const uint64_t left = to.k - run * W * W; left < W * W) {
            memset(rest, 0, sizeof rest);
            memcpy(rest, row, left * 4);
            row = rest;
        }
        for (int i = 0; i < QUADS; i++) {
            const auto quads = [&](int n) {
                return load_quads(reinterpret_cast<const uint8_t *>(row + n * W + first_of_quad(i)), QUAD * W * 4);
            };
            store_lanes(quads(0), quads(1), quads(2), quads(3),
                        to.at(i, token) + (run * COLUMN_TOKENS + token % COLUMN_TOKENS) * W, to.lane());
        }
    }
}

template <class E> INLINE void widen_quad(const FloatRows<E> &rows, int first, uint64_t elements, float *panel) {
    for (uint64_t j = 0; j < elements; j++) {
        for (int of = 0; of < ROWS; of += W) {
            const uint8_t *p =
                rows.from(static_cast<uint32_t>(of)).p + j * W * rows.element + static_cast<uint64_t>(first) * E::BYTES;
            const auto quads = [&](size_t n) { return E::quads(p + n * rows.row, QUAD * rows.stride); };
            store_lanes(quads(0), quads(1), quads(2), quads(3), panel + j * ROWS + of, elements * ROWS);
        }
    }
}

// The sums of a group of rows and COLUMN_TOKENS tokens.
struct ColumnTile {
    F sum[COLUMN_TOKENS][COLUMN_VECTORS];

    // Of a lane's elements: weights are [elements][ROWS], x [runs][COLUMN_TOKENS][W].
    MEMBER void multiply(const float *w, const float *x, uint64_t elements) {
        UNROLL for (F(&token)[COLUMN_VECTORS] : sum) UNROLL for (F &v : token) v = zero();
        for (uint64_t left = elements, run; left > 0; left -= run, x += COLUMN_TOKENS * W) {
            run = least(left, W);
            const float *one = x;
            for (uint64_t j = 0; j < run; j++, w += ROWS, one++) {
                F row[COLUMN_VECTORS];
                UNROLL for (int v = 0; v < COLUMN_VECTORS; v++) row[v] = load(w + v * W);
                UNROLL for (int t = 0; t < COLUMN_TOKENS; t++) {
                    const F factor = set1(one[t * W]);
                    UNROLL for (int v = 0; v < COLUMN_VECTORS; v++) sum[t][v] = fma(row[v], factor, sum[t][v]);
                }
            }
        }
    }
    MEMBER void add(const float (*from)[ROWS]) {
        UNROLL for (int t = 0; t < COLUMN_TOKENS; t++) UNROLL for (int v = 0; v < COLUMN_VECTORS; v++) sum[t][v] =
            load(from[t] + v * W) + sum[t][v];
    }
    MEMBER void put(float (*to)[ROWS]) const {
        UNROLL for (int t = 0; t < COLUMN_TOKENS; t++) UNROLL for (int v = 0; v < COLUMN_VECTORS; v++)
            store(to[t] + v * W, sum[t][v]);
    }
};

// Adds the lanes of a quad to what those before it have left in sum and, of the second half of
// four quads, in half.
NOINLINE static void multiply_quad(int quad, const float *panel, const float *x, uint64_t lane, uint64_t elements,
                                   float (*sum)[ROWS], float (*half)[ROWS]) {
    alignas(64) float before[2][COLUMN_TOKENS][ROWS];
    ColumnTile tile;
    for (int e = 0; e < QUAD; e++) {
        const auto at = static_cast<uint64_t>(in_quad(e));
        tile.multiply(panel + at * elements * ROWS, x + at * lane, elements);
        if (e % 2 == 1)
            tile.add(before[e / 2]);
        if (e < QUAD - 1)
            tile.put(before[e / 2]);
    }
    tile.add(before[0]);
    if (quad == 3)
        tile.add(half);
    if (quad % 2 == 1)
        tile.add(sum);
    tile.put(quad == 2 ? half : sum);
}

template <class E> static void multiply_columns(const RowGroup &g, const FloatRows<E> &rows) {
    const uint64_t elements = g.k / W, tiles = ceil_div(g.tokens, COLUMN_TOKENS);
    alignas(64) float panel[COLUMN_PANEL];
    alignas(64) float half[QUADS == 4 ? HELD : COLUMN_TOKENS][ROWS];
    // The rows behind these, which are wanted next.
    const uint8_t *next = g.rows + ROWS * g.stride, *const end = next + ROWS * g.stride;
    const uint64_t lines = ceil_div(ROWS * g.stride, 64 * QUADS * tiles);
    for (int quad = 0; quad < QUADS; quad++) {
        widen_quad(rows, first_of_quad(quad), elements, panel);
        for (uint32_t t = 0; t < g.tokens; t += COLUMN_TOKENS) {
            const uint32_t tokens = static_cast<uint32_t>(least(COLUMN_TOKENS, g.tokens - t));
            for (uint64_t i = 0; i < lines && next < end; i++, next += 64)
                prefetch(next);
            if (quad == QUADS - 1)
                g.expect(t, tokens);
            multiply_quad(quad, panel, g.columns->at(quad, g.first + t), g.columns->lane(), elements, g.sum + t,
                          half + (QUADS == 4 ? t : 0));
            if (quad == QUADS - 1)
                g.complete(t, tokens);
        }
    }
}
