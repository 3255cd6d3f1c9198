// W rows at a time, for sets whose lanes hold four words.

// Applies f to the first row of each vector of W rows in a group of ROWS.
template <class Fn> INLINE void each_vector(Fn f) {
    for (int of = 0, rows = unknown(ROWS); of < rows; of += W)
        f(of);
}

// W integers in memory.
INLINE I i_load(const int32_t *p) { return q_words(q_load(reinterpret_cast<const uint8_t *>(p))); }
INLINE void i_store(int32_t *p, I v) { memcpy(p, &v, sizeof v); }

// Blocks of a format in rows that lie `stride` bytes apart, from p on.
struct Rows {
    const uint8_t *p;
    size_t stride;

    MEMBER Rows from(int row) const { return {p + static_cast<size_t>(row) * stride, stride}; }
    // Of W rows, every fourth from row j on.
    MEMBER Rows quarter(int j) const { return {p + static_cast<size_t>(j) * stride, 4 * stride}; }
    // Sixteen bytes of each row.
    MEMBER Q bytes(int at) const { return q_rows(p + at, stride); }
    // Of a part of a block, where those of part 0 are at `at`, and those of the next a step on.
    MEMBER Q bytes(int at, int part, int step) const { return q_rows(p + at + part * step, stride); }
    // A half of W rows, and words 0…3 from `at` on, one row a lane.
    MEMBER F half(int at) const { return half_rows(p + at, stride); }
    MEMBER void words(int at, I out[4]) const {
        const uint8_t *q = p + at;
        Q a = q_rows(q, 4 * stride), b = q_rows(q + stride, 4 * stride);
        Q c = q_rows(q + 2 * stride, 4 * stride), d = q_rows(q + 3 * stride, 4 * stride);
        transpose4(a, b, c, d);
        out[0] = q_words(a), out[1] = q_words(b), out[2] = q_words(c), out[3] = q_words(d);
    }
};
