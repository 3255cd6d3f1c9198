// Formats whose elements are scale · u + minimum with one scale and one minimum, halves that a
// block begins with: Q4_1, and groups as MLX packs them.

static void affine_scales(const uint8_t *heads, float *s, float *m) {
    each_vector([&](int of) {
        I both = q_words(q_load(heads + of * 4));
        store(s + of, halves_of(both));
        store(m + of, halves_of(i_shr<16>(both)));
    });
}

constexpr Headed Q4_1 = headed<SMELT_Q4_1>(4, affine_scales, nullptr);
constexpr Headed MLX4 = headed<SMELT_MLX4>(4, affine_scales, nullptr);
constexpr Headed MLX8 = headed<SMELT_MLX8>(4, affine_scales, nullptr);

// Four bits of each element, the first sixteen of 32 in the low halves of bytes.
struct Nibbles {
    static constexpr uint32_t ELEMS = 32, BYTES = 18, CODES = 16;
    static constexpr int SUBS = 1, GROUPS = 1, OFFSET = 0, PARTNER = 0, PARTS = 1;
    static constexpr bool MIN = true, SHARED = true;
    static constexpr Range RANGE = Range::NIBBLE;
    INLINE Codes<Nibbles> codes(const Headed &) { return Codes<Nibbles>(); }
    template <int S, class From> INLINE void halves(From rows, int, Q &low, Q &high) {
        Q v = rows.bytes();
        low = q_and(v, 0x0f), high = q_and(q_shr<4>(v), 0x0f);
    }
    template <class Code> INLINE int number(const Headed &, uint32_t i, Code code) {
        return code(i % 16) >> i / 16 * 4 & 15;
    }
};

// A byte of each element. Where products want signed ones, they get u − 128, and the same sums:
// these are whole numbers.
struct Bytes {
    static constexpr uint32_t ELEMS = 32, BYTES = 34, CODES = 32;
    static constexpr int SUBS = 1, GROUPS = 1, PARTNER = 0, PARTS = 1;
    static constexpr int OFFSET = SIGNED_BIAS == 0 ? BESIDE_MINIMUM : 0;
    static constexpr bool MIN = true, SHARED = true;
    static constexpr Range RANGE = Range::SIGNED;
    INLINE Codes<Bytes> codes(const Headed &) { return Codes<Bytes>(); }
    template <int S, class From> INLINE void halves(From rows, int, Q &low, Q &high) {
        low = rows.bytes(), high = rows.bytes(16);
        if (OFFSET != 0)
            low = q_xor(low, 128), high = q_xor(high, 128);
    }
    template <class Code> INLINE int number(const Headed &, uint32_t i, Code code) { return code(i); }
};

#define AFFINE_FORMATS(X) X(Nibbles, Q4_1) X(Nibbles, MLX4) X(Bytes, MLX8)
