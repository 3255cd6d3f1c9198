// Products of float matrices that lie as [i][columns], for attention over tiles and its source stage.

constexpr int TILE_ROWS = 6;

// c[r][0 … V·W) = factor[r] · c[r][…] + Σ a[r][i·a_stride] · b[i][…], i < k, for TILE_ROWS rows; what
// was in c does not count where factor is null. Rows may coincide: all are read before any
// is written.
template <int V>
INLINE void matrix_tile(const float *const a[TILE_ROWS], uint64_t a_stride, const float *b, uint64_t b_stride,
                        uint64_t k, float *const c[TILE_ROWS], const float *const factor[TILE_ROWS]) {
    F sum[TILE_ROWS][V];
    UNROLL for (int r = 0; r < TILE_ROWS; r++) UNROLL for (int v = 0; v < V; v++) sum[r][v] =
        factor == nullptr ? zero() : load(c[r] + v * W) * set1(*factor[r]);
    for (uint64_t i = 0, at = 0; i < k; i++, at += a_stride, b += b_stride) {
        F row[V];
        UNROLL for (int v = 0; v < V; v++) row[v] = load(b + v * W);
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            F x = set1(a[r][at]);
            UNROLL for (int v = 0; v < V; v++) sum[r][v] = fma(x, row[v], sum[r][v]);
        }
    }
    UNROLL for (int r = 0; r < TILE_ROWS; r++) UNROLL for (int v = 0; v < V; v++) store(c[r] + v * W, sum[r][v]);
}
// The same for any number of rows and a multiple of W columns; k is that of a row and may
// differ. Factors are those of rows, or null.
template <class A, class C, class K>
INLINE void matrix_product(uint32_t rows, uint32_t columns, K k, A a, uint64_t a_stride, const float *b,
                           uint64_t b_stride, C c, const float *factors) {
    for (uint32_t r0 = 0; r0 < rows; r0 += TILE_ROWS) {
        const float *from[TILE_ROWS], *factor[TILE_ROWS];
        uint64_t most = 0;
        uint32_t row[TILE_ROWS];
        UNROLL for (uint32_t r = 0; r < TILE_ROWS; r++) {
            row[r] = static_cast<uint32_t>(least(r0 + r, rows - 1));
            from[r] = a(row[r]), factor[r] = factors == nullptr ? nullptr : factors + row[r];
            most = k(row[r]) > most ? k(row[r]) : most;
        }
        in_pieces<TILE_VECTORS>(columns / W, [&](uint32_t v, auto n) __attribute__((always_inline)) {
            float *to[TILE_ROWS];
            UNROLL for (uint32_t r = 0; r < TILE_ROWS; r++) to[r] = c(row[r]) + v * W;
            matrix_tile<n.value>(from, a_stride, b + v * W, b_stride, most, to, factors == nullptr ? nullptr : factor);
        });
    }
}
