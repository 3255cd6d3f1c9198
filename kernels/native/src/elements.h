// Plain element types as weights and caches hold them.

struct F32 {
    static constexpr uint32_t TYPE = SMELT_F32, BYTES = 4;
    INLINE F at(const uint8_t *p) { return load(reinterpret_cast<const float *>(p)); }
    INLINE F at_n(const uint8_t *p, int n) { return load_n(reinterpret_cast<const float *>(p), n); }
    INLINE void put(uint8_t *p, F v) { store(reinterpret_cast<float *>(p), v); }
    INLINE void put_n(uint8_t *p, F v, int n) { store_n(reinterpret_cast<float *>(p), v, n); }
};
struct F16 {
    static constexpr uint32_t TYPE = SMELT_F16, BYTES = 2;
    INLINE F at(const uint8_t *p) { return load_f16(p); }
    INLINE F at_n(const uint8_t *p, int n) { return load_f16_n(p, n); }
    INLINE void put(uint8_t *p, F v) { store_f16(p, v); }
    INLINE void put_n(uint8_t *p, F v, int n) { store_f16_n(p, v, n); }
};
struct BF16 {
    static constexpr uint32_t TYPE = SMELT_BF16, BYTES = 2;
    INLINE F at(const uint8_t *p) { return load_bf16(p); }
    INLINE F at_n(const uint8_t *p, int n) { return load_bf16_n(p, n); }
};

// Widens a row of n elements.
template <class E> INLINE void widen_row(const uint8_t *p, float *out, uint64_t n) {
    uint64_t i = 0;
    for (; i + W <= n; i += W)
        store(out + i, E::at(p + i * E::BYTES));
    if (i < n) {
        int rest = static_cast<int>(n - i);
        store_n(out + i, E::at_n(p + i * E::BYTES, rest), rest);
    }
}
// Narrows a row of n elements.
template <class E> INLINE void narrow_row(const float *x, uint8_t *p, uint64_t n) {
    uint64_t i = 0;
    for (; i + W <= n; i += W)
        E::put(p + i * E::BYTES, load(x + i));
    if (i < n) {
        int rest = static_cast<int>(n - i);
        E::put_n(p + i * E::BYTES, load_n(x + i, rest), rest);
    }
}
