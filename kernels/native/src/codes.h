// Formats whose codes of four bits name one of sixteen signed bytes, which a shuffle looks up.

static void half_scales(const uint8_t *heads, float *s, float *) {
    each_vector([&](int of) { store(s + of, load_f16(heads + of * 2)); });
}
// 2^(e − 128).
static void exponent_scales(const uint8_t *heads, float *s, float *) {
    each_vector([&](int of) {
        F e = load_i8(reinterpret_cast<const int8_t *>(heads + of)), middle = set1(128.0f);
        store(s + of, scale_exponent(set1(1.0f), where_below(e, zero(), e + middle, e - middle)));
    });
}
// Eight times six bits less 32, of which a word has four each, and d.
static void six_bit_scales(const uint8_t *heads, float *s, float *) {
    each_vector([&](int of) {
        I first = q_words(q_load(heads + of * 4)), low = q_words(q_load(heads + (ROWS + of) * 4));
        F d = halves_of(first);
        I high = i_shr<16>(first), four = i_set1(15), two = i_set1(3);
        repeat<8>([&](auto i) {
            constexpr int SUB = decltype(i)::value;
            I six = i_or(i_and(i_shr<4 * SUB>(low), four), i_shl<4>(i_and(i_shr<2 * SUB>(high), two)));
            store(s + SUB * ROWS + of, d * (to_float(six) - set1(32.0f)));
        });
    });
}

constexpr Headed IQ4_NL = headed<SMELT_IQ4_NL>(2, half_scales, IQ4_VALUES);
constexpr Headed IQ4_XS = headed<SMELT_IQ4_XS>(8, six_bit_scales, IQ4_VALUES);
constexpr Headed MXFP4 = headed<SMELT_MXFP4>(1, exponent_scales, E2M1_VALUES);

// Such codes, as products see them: those of a format with one scale for each 32 signed bytes.
struct Named {
    static constexpr uint32_t ELEMS = 32, BYTES = 17, CODES = 16;
    static constexpr int SUBS = 1, GROUPS = 1, OFFSET = SIGNED_BIAS, PARTNER = 0, PARTS = 1;
    static constexpr bool MIN = false, SHARED = false;
    static constexpr Range RANGE = Range::SIGNED;
    INLINE Codes<Named> codes(const Headed &of) { return {nullptr, 0, 0, q_xor(q_same16(of.values), SIGNED_BIAS)}; }
    template <int S, class From> INLINE void halves(From rows, int, Q &low, Q &high) {
        Q v = rows.bytes();
        low = q_lookup(rows.values, q_and(v, 0x0f)), high = q_lookup(rows.values, q_and(q_shr<4>(v), 0x0f));
    }
    template <class Code> INLINE int number(const Headed &of, uint32_t i, Code code) {
        return of.values[code(i % 16) >> i / 16 * 4 & 15];
    }
};

#define NAMED_FORMATS(X) X(Named, IQ4_NL) X(Named, IQ4_XS) X(Named, MXFP4)
