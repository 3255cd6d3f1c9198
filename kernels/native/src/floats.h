// Products of float weights.

// The same rows of S groups: row r is the group r / FLOAT_ROWS's. They stream past one token.
template <class E, int S> struct StreamedRows {
    static constexpr size_t BYTES = W * E::BYTES; // of a vector
    const uint8_t *p;
    size_t apart, distance;

    MEMBER const uint8_t *place(int stream, uint64_t i) const {
        return p + static_cast<size_t>(stream) * apart + i * (FLOAT_ROWS * E::BYTES);
    }
    MEMBER F vector(int r, uint64_t i) const {
        constexpr int ROWS_EACH = static_cast<int>(FLOAT_ROWS);
        return elements<E>(place(r / ROWS_EACH, i) + static_cast<size_t>(r % ROWS_EACH) * BYTES, 0);
    }
    MEMBER F part(int, uint64_t, int) const { return zero(); }
    MEMBER void ahead(uint64_t i) const {
        UNROLL for (int s = 0; s < S; s++) prefetch_lines(place(s, i) + distance, FLOAT_ROWS * BYTES);
    }
};

// Neighbouring groups are multiplied in blocks of tokens and rows, and a block in pieces of k. The x of a tile
// is then read from the first-level cache by all rows of a block but the first, and the block's
// weights from the second-level one by all its tiles: of a long row, neither cache holds all.
// The figures are those that a Xeon with 48 KB and 2 MB of them does best with.
constexpr uint32_t BLOCK_TOKENS = 4 * DOT_TOKENS;
constexpr uint32_t BLOCK_ROWS = 64;
static_assert(BLOCK_ROWS % FLOAT_ROWS == 0);

// The part of a RowGroup that is worked on.
struct FloatBlock {
    uint32_t row, rows;
    uint32_t token, tokens;
    uint64_t at, end; // elements of k
};

template <class E>
static void multiply_block(const RowGroup &g, const FloatRows<E> &all, const FloatBlock &b, F *partial) {
    const bool last = b.end == g.k && b.row + b.rows == g.groups * ROWS;
    for (uint32_t t = b.token; t < b.token + b.tokens; t += DOT_TOKENS) {
        with_count<DOT_TOKENS>(static_cast<uint32_t>(least(DOT_TOKENS, b.token + b.tokens - t)), [&](auto n) {
            constexpr int T = decltype(n)::value;
            const float *x = g.x + t * g.x_stride;
            if (last)
                g.expect(t, T);
            for (uint32_t r = 0; r < b.rows; r += FLOAT_ROWS, partial += T * FLOAT_ROWS) {
                const uint32_t row = b.row + r;
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
template <class E> static void multiply_rows(const RowGroup &g, const FloatRows<E> &all) {
    const uint32_t rows = g.groups * ROWS;
    // With few tokens memory is the bottleneck, which is fastest in long runs.
    const uint64_t piece = g.tokens <= DOT_TOKENS ? g.k : g.piece;
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
            const StreamedRows<E, n.value> rows{g.rows + r * g.stride, g.apart, g.ahead};
            dot_tile<FLOAT_ROWS * n.value, 1>(rows, g.x, 0, g.k, g.sum[0] + r, ROWS);
        }
    });
    g.complete(0, 1);
}
template <class E> static void multiply_float(const RowGroup &g) {
    if (g.interleaved && g.tokens == 1)
        return multiply_streams<E>(g);
    const FloatRows<E> rows = g.interleaved ? vector_rows<E>(g.rows, g.stride) : file_rows<E>(g.rows, g.stride);
    if constexpr (E::BYTES == 2)
        if (g.columns != nullptr)
            return multiply_columns(g, rows);
    multiply_rows(g, rows);
}

template <class E> static void interleave_vectors(const uint8_t *rows, uint64_t k, uint64_t groups, uint8_t *out) {
    const uint64_t stride = k * E::BYTES;
    for (uint64_t r = 0; r < groups * ROWS; r += FLOAT_ROWS, rows += FLOAT_ROWS * stride)
        for (uint64_t at = 0; at < stride; at += W * E::BYTES)
            for (uint32_t i = 0; i < FLOAT_ROWS; i++, out += W * E::BYTES)
                memcpy(out, rows + i * stride + at, W * E::BYTES);
}
template <class E> static void widen_vectors(const uint8_t *p, uint64_t row, float *out, uint64_t n) {
    const auto rows = vector_rows<E>(p, n * E::BYTES).from(static_cast<uint32_t>(row - row % FLOAT_ROWS));
    for (uint64_t i = 0; i < n; i += W)
        store(out + i, rows.vector(static_cast<int>(row % FLOAT_ROWS), i));
}
template <class E> constexpr WeightType float_type() {
    return {
        E::TYPE,         1, E::BYTES, STREAMS, false, {1, 0, false}, multiply_float<E>, widen<E>, interleave_vectors<E>,
        widen_vectors<E>};
}
