// A register tile of rows × tokens: rows times rows, for float weights.

// Rows of a tile.
constexpr uint32_t FLOAT_ROWS = 4;

// Rows of E for prompts, from a file or interleaved: both layouts have constant strides between
// rows and vectors, and share one compiled loop.
template <class E> struct FloatRows {
    const uint8_t *p;
    size_t stride;       // bytes of a row
    size_t row, element; // bytes between the rows of a tile, and between vectors, by element

    // Elements i to i + W − 1 of row r, i a multiple of W; or the n < W that are left there.
    MEMBER F vector(int r, uint64_t i) const { return elements<E>(p + static_cast<size_t>(r) * row + i * element, 0); }
    MEMBER F part(int r, uint64_t i, int n) const { return elements_n<E>(p + static_cast<size_t>(r) * row, i, n); }
    MEMBER void ahead(uint64_t) const {} // processors follow a few streams by themselves
    MEMBER FloatRows from(uint32_t r) const { return {p + r * stride, stride, row, element}; }
};
template <class E> INLINE FloatRows<E> file_rows(const uint8_t *p, size_t stride) {
    return {p, stride, stride, E::BYTES};
}

// Interleaved float weights are four rows at a time, a vector of each in turn. So the rows
// of a tile stream as one. A row is whole vectors.
template <class E> INLINE FloatRows<E> vector_rows(const uint8_t *p, size_t stride) {
    return {p, stride, W * E::BYTES, FLOAT_ROWS * E::BYTES};
}

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
