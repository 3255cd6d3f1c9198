// Element types as weights and caches hold them: plain ones, and for caches blocks of Q8_0.

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
    INLINE F quads(const uint8_t *p, size_t step) { return load_f16_quads(p, step); }
    INLINE void put(uint8_t *p, F v) { store_f16(p, v); }
    INLINE void put_n(uint8_t *p, F v, int n) { store_f16_n(p, v, n); }
};
struct BF16 {
    static constexpr uint32_t TYPE = SMELT_BF16, BYTES = 2;
    INLINE F at(const uint8_t *p) { return load_bf16(p); }
    INLINE F at_n(const uint8_t *p, int n) { return load_bf16_n(p, n); }
    INLINE F quads(const uint8_t *p, size_t step) { return load_bf16_quads(p, step); }
};

// GGUF's Q8_0: d as a half, then 32 signed bytes; an element is d·q.
struct Blocks {
    static constexpr uint32_t ELEMS = 32, BYTES = 34;
    // The vector from element `at` of a block on, whose scale set1_half gives.
    INLINE F at(const uint8_t *block, F scale, uint64_t at) {
        return scale * load_i8(reinterpret_cast<const int8_t *>(block + 2 + at));
    }
};

template <class E> constexpr bool is_plain = true;
template <> constexpr bool is_plain<Blocks> = false;

template <class E> INLINE uint64_t row_bytes(uint64_t n) { return is_plain<E> ? n * E::BYTES : n / 32 * E::BYTES; }

// The vector of elements i to i + W − 1 of a row, i a multiple of W, and the first n of
// them; n is W in blocks.
template <class E> INLINE F elements(const uint8_t *row, uint64_t i) { return E::at(row + i * E::BYTES); }
template <class E> INLINE F elements_n(const uint8_t *row, uint64_t i, int n) { return E::at_n(row + i * E::BYTES, n); }
template <> MEMBER F elements<Blocks>(const uint8_t *row, uint64_t i) {
    static_assert(Blocks::ELEMS % W == 0, "a vector must not cross blocks");
    const uint8_t *block = row + i / Blocks::ELEMS * Blocks::BYTES;
    return Blocks::at(block, set1_half(block), i % Blocks::ELEMS);
}
template <> MEMBER F elements_n<Blocks>(const uint8_t *row, uint64_t i, int) { return elements<Blocks>(row, i); }

// The same for N vectors in turn, i a multiple of N vectors.
template <class E, int N> INLINE void elements(const uint8_t *row, uint64_t i, F out[N]) {
    if constexpr (is_plain<E>) {
        UNROLL for (int n = 0; n < N; n++) out[n] = elements<E>(row, i + static_cast<uint64_t>(n * W));
    } else {
        // A compiler does not see which are of the same block, and would read its scale for each.
        constexpr int EACH = N * W < int{Blocks::ELEMS} ? N : int{Blocks::ELEMS} / W;
        static_assert(N % EACH == 0 && Blocks::ELEMS % (EACH * W) == 0, "vectors of a block are read together");
        const uint8_t *block = row + i / Blocks::ELEMS * Blocks::BYTES;
        const uint64_t at = i % Blocks::ELEMS;
        UNROLL for (int n = 0; n < N; block += Blocks::BYTES) {
            const F d = set1_half(block);
            UNROLL for (int end = n + EACH; n < end; n++) out[n] =
                Blocks::at(block, d, at + static_cast<uint64_t>(n % EACH * W));
        }
    }
}

// So many vectors at a time with each of some heads: registers hold the sums.
constexpr int vectors_for(int heads) { return SUMS / heads < 4 ? SUMS / heads : 4; }

// Rounds as GGUF files are made: d = max|x| / 127, q = round(x / d) with halves away from
// zero and d before it is a half. A block with an element that is not finite, or with a
// d that no half holds, is NaN.
inline void narrow_blocks(const float *x, uint8_t *p, uint64_t n) {
    for (uint64_t i = 0; i < n; i += Blocks::ELEMS, p += Blocks::BYTES, x += Blocks::ELEMS) {
        uint32_t bits[Blocks::ELEMS], most = 0;
        memcpy(bits, x, sizeof bits);
        for (uint32_t b : bits)
            most = (b & 0x7fffffff) > most ? b & 0x7fffffff : most; // NaN is above all
        float d;
        memcpy(&d, &most, 4);
        d /= 127.0f;
        store_f16_n(p, set1(d), 1);
        const bool lost = most >= 0x7f800000 || (half_bits(p) & 0x7c00) == 0x7c00;
        const uint16_t nan = 0x7e00;
        if (lost)
            memcpy(p, &nan, 2);
        float inverse = 1.0f / d;
        if (lost || inverse > 3.4028235e38f)
            inverse = 0;
        int8_t q[Blocks::ELEMS];
        for (uint32_t j = 0; j < Blocks::ELEMS; j++) {
            // Rounds to nearest even by adding 1.5·2^23; the remainder identifies ties.
            float v = lost ? 0.0f : x[j] * inverse, whole = (v + 12582912.0f) - 12582912.0f, rest = v - whole;
            whole += rest == 0.5f && v > 0 ? 1.0f : rest == -0.5f && v < 0 ? -1.0f : 0.0f;
            q[j] = static_cast<int8_t>(whole);
        }
        memcpy(p + 2, q, sizeof q);
    }
}

// Widens a row of n elements.
template <class E> INLINE void widen_row(const uint8_t *p, float *out, uint64_t n) {
    uint64_t i = 0;
    for (; i + W <= n; i += W)
        store(out + i, elements<E>(p, i));
    if (i < n) {
        int rest = static_cast<int>(n - i);
        store_n(out + i, elements_n<E>(p, i, rest), rest);
    }
}
// Narrows a row of n elements.
template <class E> INLINE void narrow_row(const float *x, uint8_t *p, uint64_t n) {
    if constexpr (!is_plain<E>) {
        narrow_blocks(x, p, n);
    } else {
        uint64_t i = 0;
        for (; i + W <= n; i += W)
            E::put(p + i * E::BYTES, load(x + i));
        if (i < n) {
            int rest = static_cast<int>(n - i);
            E::put_n(p + i * E::BYTES, load_n(x + i, rest), rest);
        }
    }
}

// Widens n elements of each of some rows, a stride of bytes apart, into rows of `width` floats.
template <class E>
static void widen_rows(const uint8_t *p, size_t stride, uint32_t rows, uint64_t n, float *out, uint64_t width) {
    for (uint32_t r = 0; r < rows; r++, p += stride, out += width)
        widen_row<E>(p, out, n);
}

// The same behind pointers.
template <class E> static void widen(const uint8_t *p, float *out, uint64_t n) { widen_row<E>(p, out, n); }
template <class E> static void narrow(const float *x, uint8_t *p, uint64_t n) { narrow_row<E>(x, p, n); }

// What kernels know of the type of a cache at run time: all of them but those whose inner
// loops read the elements are compiled once.
struct Cache {
    uint32_t elems, bytes; // of a block
    void (*widen_rows)(const uint8_t *p, size_t stride, uint32_t rows, uint64_t n, float *out, uint64_t width);
    void (*narrow)(const float *x, uint8_t *p, uint64_t n);

    bool whole_blocks(uint64_t n) const { return n % elems == 0; }
    uint64_t row_bytes(uint64_t n) const { return n / elems * bytes; }
};
template <class E> constexpr Cache cache_of = {is_plain<E> ? 1 : 32, E::BYTES, widen_rows<E>, narrow<E>};
