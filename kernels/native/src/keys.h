// Scores of a few queries, for sets whose vectors hold elements of one key. A score is the sum
// of LANES partial sums, lane i taking elements i, i + LANES, …, added up in the order of
// KEY_ORDER: neighbours, then neighbouring pairs, and so on.

constexpr int LANES = W;
constexpr const int (&KEY_ORDER)[LANES] = SUM_ORDER;
constexpr uint32_t KEYS_AT_ONCE = 4;

// out[h][i] = q[h]·k[i] for H heads and KEYS_AT_ONCE keys, `stride` bytes apart; rows of out are
// out_stride apart. `ask` is called with how many elements of the keys come next.
template <class C, int H, class Ask>
INLINE void score_keys(const uint8_t *k, size_t stride, const float *q, uint32_t head, float *out, size_t out_stride,
                       Ask ask) {
    ask(head);
    dot_tile<KEYS_AT_ONCE, H>(FileRows<C>{k, stride}, q, head, head, out, out_stride);
}
