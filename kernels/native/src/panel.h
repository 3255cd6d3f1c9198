// How the words of a panel are arranged, a word being four elements of a row, and their
// products with T tokens' activations. This is for sets that multiply word by word: one
// that takes larger pieces has its own.

// Vectors of rows 0…3 (4 … 7 and so on in further lanes), 16 elements each, as the four
// vectors that a panel holds in their place.
INLINE void panel_order(Q &a, Q &b, Q &c, Q &d) { transpose4(a, b, c, d); }
// The same from words 0…3 of W rows.
INLINE void panel_words(Q &, Q &, Q &, Q &) {}
// The first of the W words that make vector i of the rows from `row` on, in words from the
// sub-block's first.
INLINE int panel_place(int i, int row) { return i * ROWS + row; }

template <Range R, int T> struct Products {
    static constexpr int STEPS = T; // of the tokens, which `add` takes one by one
    Dot<R> dot[T];

    MEMBER void start(const int32_t from[T]) { UNROLL for (int t = 0; t < T; t++) dot[t].start(from[t]); }
    // Adds the products of eight elements: vectors i and i + 1 of a panel, i even, with a
    // step's tokens. Those of token t begin at x + 32·place[t].
    MEMBER void add(int step, Q w0, Q w1, const int8_t *x, const uint64_t place[T]) {
        dot[step].words(w0, w1, x + 32 * place[step]);
    }
    // The same with separate signs: sums of rows start from the correction for negative weights,
    // and s0 and s1 are the signs of w0 and w1.
    MEMBER void begin(const int32_t *negative) { UNROLL for (int t = 0; t < T; t++) dot[t].begin(negative); }
    MEMBER void add(int step, Q w0, Q w1, Q s0, Q s1, const int8_t *x, const uint64_t place[T]) {
        x += 32 * place[step];
        dot[step].apart(w0, s0, q_same4(x)), dot[step].apart(w1, s1, q_same4(x + 4));
    }
    // The sums of W rows with token t, which were started from `from`.
    MEMBER I finish(int t, int32_t from) const { return dot[t].finish(from); }
};
