// Scores of a few queries, for sets whose vectors hold elements of one key. A score is the sum
// of LANES partial sums, lane i taking elements i, i + LANES, …, added up in the order of
// KEY_ORDER: neighbours, then neighbouring pairs, and so on.

constexpr int LANES = W;
constexpr const int (&KEY_ORDER)[LANES] = SUM_ORDER;
constexpr uint32_t KEYS_AT_ONCE = 4;
template <class C, int H> constexpr bool in_halves = false; // whether there are two score_keys to choose from

// sum[h][r] += q[h]·k[r], lane by lane, for H heads and R keys.
template <class C, int H, int R>
INLINE void add_products(const uint8_t *k, size_t stride, const float *q, uint32_t head, F sum[H][R]) {
    static_assert(8 % W == 0, "a head is a multiple of eight elements");
    const auto add = [&](uint64_t i, auto vector) __attribute__((always_inline)) {
        F x[H];
        UNROLL for (int h = 0; h < H; h++) x[h] = load(q + static_cast<uint32_t>(h) * head + i);
        UNROLL for (int r = 0; r < R; r++) {
            const F v = vector(k + static_cast<size_t>(r) * stride, r);
            UNROLL for (int h = 0; h < H; h++) sum[h][r] = fma(v, x[h], sum[h][r]);
        }
    };
    if constexpr (is_plain<C>) {
        for (uint64_t i = 0; i < head; i += W)
            add(i, [=](const uint8_t *row, int) { return elements<C>(row, i); });
    } else {
        for (uint64_t i = 0; i < head; i += C::ELEMS, k += C::BYTES) {
            F scale[R]; // which a compiler would read for each vector
            UNROLL for (int r = 0; r < R; r++) scale[r] = set1_half(k + static_cast<size_t>(r) * stride);
            UNROLL for (uint32_t at = 0; at < C::ELEMS; at += W)
                add(i + at, [&](const uint8_t *block, int r) { return C::at(block, scale[r], at); });
        }
    }
}

// out[h][i] = q[h]·k[i] for H heads and KEYS_AT_ONCE keys, `stride` bytes apart; rows of out are
// out_stride apart. `ask`, which prefetches, is called with the number of elements read next.
template <class C, int H, bool HALVES, class Ask>
INLINE void score_keys(const uint8_t *k, size_t stride, const float *q, uint32_t head, float *out, size_t out_stride,
                       Ask ask) {
    constexpr int R = vectors_for(H);
    F sum[KEYS_AT_ONCE / R][H][R];
    ask(head);
    UNROLL for (auto &keys : sum) {
        UNROLL for (auto &row : keys) UNROLL for (F &v : row) v = zero();
        add_products<C, H, R>(k, stride, q, head, keys);
        k += R * stride;
    }
    UNROLL for (int h = 0; h < H; h++) {
        const auto of = [&](int r) { return sum[r / R][h][r % R]; };
        reduce4(of(0), of(1), of(2), of(3), out + static_cast<size_t>(h) * out_stride);
    }
}
