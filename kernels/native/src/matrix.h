// Products of float matrices that lie as [i][columns], for attention over tiles and its source stage.

// The rows of a tile, and the maximum number of rows past the last, which a tile also reads.
constexpr int TILE_ROWS = 6;
constexpr uint32_t SPARE = TILE_ROWS - 1;

// c[r·c_stride …][0 … V·W) = factor[r] · c[…] + Σ a[i·a_stride + r] · b[i·b_stride …], i < k, for
// `rows` rows, at most TILE_ROWS. What was in c does not count where factor is null.
template <int V>
NOINLINE static void matrix_tile(uint32_t rows, const float *a, uint64_t a_stride, const float *b, uint64_t b_stride,
                                 uint64_t k, float *c, uint64_t c_stride, const float *factor) {
    F sum[TILE_ROWS][V];
    UNROLL for (uint32_t r = 0; r < TILE_ROWS; r++) UNROLL for (int v = 0; v < V; v++) sum[r][v] =
        factor == nullptr || r >= rows ? zero() : load(c + r * c_stride + v * W) * set1(factor[r]);
    for (uint64_t i = 0; i < k; i++, a += a_stride, b += b_stride) {
        F row[V];
        UNROLL for (int v = 0; v < V; v++) row[v] = load(b + v * W);
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            F x = set1(a[r]);
            UNROLL for (int v = 0; v < V; v++) sum[r][v] = fma(x, row[v], sum[r][v]);
        }
    }
    UNROLL for (uint32_t r = 0; r < TILE_ROWS; r++) if (r < rows) UNROLL for (int v = 0; v < V; v++)
        store(c + r * c_stride + v * W, sum[r][v]);
}
// The same for any number of rows and a multiple of W columns; k is that of a row and may
// differ. Factors are those of rows, or null.
template <class K>
INLINE void matrix_product(uint32_t rows, uint32_t columns, K k, const float *a, uint64_t a_stride, const float *b,
                           uint64_t b_stride, float *c, uint64_t c_stride, const float *factors) {
    for (uint32_t r0 = 0; r0 < rows; r0 += TILE_ROWS) {
        const uint32_t some = static_cast<uint32_t>(least(TILE_ROWS, rows - r0));
        uint64_t most = 0;
        for (uint32_t r = r0; r < r0 + some; r++)
            most = k(r) > most ? k(r) : most;
        const float *factor = factors == nullptr ? nullptr : factors + r0;
        in_pieces<TILE_VECTORS>(columns / W, [&](uint32_t v, auto n) __attribute__((always_inline)) {
            matrix_tile<n.value>(some, a + r0, a_stride, b + v * W, b_stride, most, c + r0 * c_stride + v * W, c_stride,
                                 factor);
        });
    }
}
