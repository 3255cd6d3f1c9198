// The vectors that the kernels are written in, here in the compiler's own vector
// type, for any machine. simd_avx2.h, simd_avx512.h and simd_neon.h give the same
// names:
//
//   F        W floats; load_n and store_n touch the first n only, the rest is zero
//   I        W 32-bit integers
//   Rows     W rows, of which words gives four neighbouring words each
//
// and for products of quantized weights, which here are the loops of plain.h:
//
//   Q        4·W bytes, seen as W/4 lanes of 16 bytes or as W lanes of 4
//   q_rows   lane i of 16 bytes comes from p + i·step
//   q_once   keeps a compiler from loading what it is given for each of its uses
//   Dot      sums of products of weight bytes and int8 activations, four at a
//            time into W integers; a sum starts from the number given to start and
//            finish, whichever an instruction set prefers. two takes two Qs of each,
//            words multiplies all words of a Q by the one at x, and those of the
//            other by the next. DOTS_DIFFER: by the range of the weights
//
// A group of ROWS rows is W rows times ROWS/W. Rows j, j+4, j+8 … of such a W are
// read into one Q; transpose4 over j = 0…3 (a 4×4 transpose of 32-bit words in each
// lane) and merge4 (the sums over each lane's words) then leave row r in place r.

constexpr const char *ISA = "portable";
constexpr int W = 4;
constexpr int ROWS = 4;             // of a weight, computed together
constexpr int TILE_VECTORS = 2;     // vectors in a row of a register tile of the float matrix product
constexpr int DOT_TOKENS = 3;       // tokens in a register tile of row-times-row products
constexpr int INT_TOKENS = 1;       // the same for integer products
constexpr int COLUMN_TOKENS = 6;    // the same for outer products
constexpr uint64_t DISTANCE = 2048; // prefetch distance of weights in bytes
constexpr int SHARING = 2;          // query heads that share each load of K and V
constexpr int SUMS = 8;             // sums that registers hold besides the operands
constexpr int SUM_ORDER[W] = {0, 2, 1,
                              3}; // lanes as reduce4 adds them up: neighbours, then neighbouring pairs, and so on
constexpr bool FOLDED = false;    // see whole_x86.h
constexpr int SIGNED_BIAS = 0;    // added to signed weights where Dot wants unsigned ones

typedef float F __attribute__((vector_size(16)));
typedef int32_t I __attribute__((vector_size(16)));
typedef uint32_t U __attribute__((vector_size(16)));

inline float half_to_float(uint16_t h) {
    uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = h & 0x7fff, bits;
    if (rest >= 0x7c00) {
        bits = 0x7f800000 | (rest & 0x3ff) << 13;
    } else if (rest >= 0x400) {
        bits = (rest << 13) + (112u << 23);
    } else {
        // A denormal: its integer value times 2^-24, which is exact.
        float v = static_cast<float>(rest) * 5.9604644775390625e-8f;
        memcpy(&bits, &v, 4);
    }
    bits |= sign;
    float v;
    memcpy(&v, &bits, 4);
    return v;
}
inline uint16_t float_to_half(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return sign | 0x7e00;
    if (bits >= 0x477ff000)
        return sign | 0x7c00;
    if (bits < 0x38800000) {
        // Below the smallest normal half: adding 0.5 leaves the rounded denormal in
        // the low bits of the sum.
        float a;
        memcpy(&a, &bits, 4);
        a += 0.5f;
        memcpy(&bits, &a, 4);
        return sign | static_cast<uint16_t>(bits - 0x3f000000);
    }
    bits += 0xfff + (bits >> 13 & 1) - (112u << 23);
    return sign | static_cast<uint16_t>(bits >> 13);
}

INLINE F zero() { return F{}; }
INLINE F set1(float v) { return F{v, v, v, v}; }
INLINE F load(const float *p) {
    F v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE F load_n(const float *p, int n) {
    F v = {};
    memcpy(&v, p, 4 * static_cast<size_t>(n));
    return v;
}
INLINE void store(float *p, F v) { memcpy(p, &v, sizeof v); }
INLINE void store_n(float *p, F v, int n) { memcpy(p, &v, 4 * static_cast<size_t>(n)); }

INLINE F load_f16_n(const uint8_t *p, int n) {
    F v = {};
    for (int i = 0; i < n; i++)
        v[i] = half_to_float(half_bits(p + 2 * i));
    return v;
}
INLINE F load_bf16_n(const uint8_t *p, int n) {
    U v = {};
    for (int i = 0; i < n; i++)
        v[i] = static_cast<uint32_t>(half_bits(p + 2 * i)) << 16;
    return reinterpret_cast<F>(v);
}
INLINE F load_f16(const uint8_t *p) { return load_f16_n(p, W); }
INLINE F load_bf16(const uint8_t *p) { return load_bf16_n(p, W); }
INLINE F load_quads(const uint8_t *p, size_t) { return load(reinterpret_cast<const float *>(p)); }
INLINE F load_f16_quads(const uint8_t *p, size_t) { return load_f16(p); }
INLINE F load_bf16_quads(const uint8_t *p, size_t) { return load_bf16(p); }
INLINE void transpose_quads(F &a, F &b, F &c, F &d) {
    const F ab0 = {a[0], b[0], a[1], b[1]}, ab1 = {a[2], b[2], a[3], b[3]};
    const F cd0 = {c[0], d[0], c[1], d[1]}, cd1 = {c[2], d[2], c[3], d[3]};
    a = F{ab0[0], ab0[1], cd0[0], cd0[1]}, b = F{ab0[2], ab0[3], cd0[2], cd0[3]};
    c = F{ab1[0], ab1[1], cd1[0], cd1[1]}, d = F{ab1[2], ab1[3], cd1[2], cd1[3]};
}
INLINE void store_f16_n(uint8_t *p, F v, int n) {
    for (int i = 0; i < n; i++) {
        uint16_t h = float_to_half(v[i]);
        memcpy(p + 2 * i, &h, 2);
    }
}
INLINE void store_f16(uint8_t *p, F v) { store_f16_n(p, v, W); }

INLINE F fma(F a, F b, F c) { return a * b + c; }
// Like x86's: the second where either is NaN.
INLINE F max(F a, F b) { return a > b ? a : b; }
INLINE F min(F a, F b) { return a < b ? a : b; }
// a where x is below the bound, and b elsewhere, also where x is NaN.
INLINE F where_below(F x, F bound, F a, F b) { return x < bound ? a : b; }
// The same with a = 0.
INLINE F zero_below(F b, F x, F bound) { return x < bound ? F{} : b; }
INLINE F abs(F a) { return reinterpret_cast<F>(reinterpret_cast<I>(a) & 0x7fffffff); }
INLINE I to_int(F a) { // to nearest, ties to even; |a| < 2^22
    // A product must not be fused with the sum: near a tie, other sets round it to another integer.
#if defined(__x86_64__)
    asm("" : "+x"(a));
#elif defined(__aarch64__)
    asm("" : "+w"(a));
#else
    asm("" : "+m"(a));
#endif
    F shifted = a + 12582912.0f;
    return reinterpret_cast<I>(shifted) - 0x4b400000;
}
INLINE F to_float(I a) { return __builtin_convertvector(a, F); }
INLINE F round(F a) { return to_float(to_int(a)); }

INLINE float reduce_add(F v) { return (v[0] + v[2]) + (v[1] + v[3]); }
INLINE float reduce_max(F v) {
    float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
    return a > b ? a : b;
}
INLINE void reduce4(F a, F b, F c, F d, float *out) {
    out[0] = reduce_add(a);
    out[1] = reduce_add(b);
    out[2] = reduce_add(c);
    out[3] = reduce_add(d);
}
INLINE bool any_nan(F v) {
    I bad = v != v;
    return (bad[0] | bad[1] | bad[2] | bad[3]) != 0;
}

INLINE I i_set1(int32_t v) { return I{v, v, v, v}; }
INLINE I i_add(I a, I b) { return a + b; }
INLINE F power_of_two(I n) { return reinterpret_cast<F>((n + 127) << 23); }
// scale_exponent returns a·2^n; in two steps, so that results may be denormal or infinite.
INLINE F scale_exponent(F a, F n) {
    I whole = to_int(n), half = whole >> 1;
    return a * power_of_two(half) * power_of_two(whole - half);
}
INLINE int32_t i_reduce_add(I v) { return v[0] + v[1] + v[2] + v[3]; }
INLINE void store_i8(int8_t *p, I v) {
    for (int i = 0; i < W; i++)
        p[i] = static_cast<int8_t>(v[i] > 127 ? 127 : v[i] < -128 ? -128 : v[i]);
}
// halves_of reads the low 16 bits of each integer as a half, set1_half one for all lanes.
INLINE F load_i8(const int8_t *p) {
    return F{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), static_cast<float>(p[3])};
}
INLINE F halves_of(I v) {
    F r;
    for (int i = 0; i < W; i++)
        r[i] = half_to_float(static_cast<uint16_t>(v[i]));
    return r;
}
INLINE F set1_half(const uint8_t *p) { return set1(half_to_float(half_bits(p))); }

struct Rows {
    const uint8_t *p;
    size_t stride;

    MEMBER void words(int at, I out[4]) const {
        int32_t w[W][4];
        for (int row = 0; row < W; row++)
            memcpy(w[row], p + at + static_cast<size_t>(row) * stride, 16);
        for (int i = 0; i < 4; i++)
            out[i] = I{w[0][i], w[1][i], w[2][i], w[3][i]};
    }
};
