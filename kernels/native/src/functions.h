// Elementary functions on vectors.

// e^x = 2^n · e^r with |r| ≤ ln 2 / 2, by Cody and Waite's reduction, and
// e^r = 1 + r + r² · tail, by the polynomial of Cephes' expf.
struct Exponent {
    F n, r, tail;
    MEMBER explicit Exponent(F x) {
        n = round(x * set1(1.44269504088896341f));
        r = fma(n, set1(-0.693359375f), x);
        r = fma(n, set1(2.12194440e-4f), r);
        tail = set1(1.9875691500e-4f);
        tail = fma(tail, r, set1(1.3981999507e-3f));
        tail = fma(tail, r, set1(8.3334519073e-3f));
        tail = fma(tail, r, set1(4.1665795894e-2f));
        tail = fma(tail, r, set1(1.6666665459e-1f));
        tail = fma(tail, r, set1(5.0000001201e-1f));
    }
};

// e^x within 2 ulp. Infinite from 88.8 on, and zero below −87: on x86 every instruction
// whose result is denormal or underflows takes a hundred cycles, and a hidden score is −∞.
INLINE F exp(F x) {
    const F lowest = set1(-87.0f);
    Exponent e(min(set1(89.0f), max(lowest, x)));
    return zero_below(scale_exponent(fma(e.tail, e.r * e.r, e.r + set1(1.0f)), e.n), x, lowest);
}

// tanh(x) = (e^2x − 1) / (e^2x + 1); the numerator is put together without the 1 of e^r,
// so that small x keep their digits. ±1 from ±9 on.
INLINE F tanh(F x) {
    x = min(set1(9.0f), max(set1(-9.0f), x));
    Exponent e(x + x);
    F power = scale_exponent(set1(1.0f), e.n);
    F less_one = fma(fma(e.tail, e.r * e.r, e.r), power, power - set1(1.0f));
    return less_one / (less_one + set1(2.0f));
}

INLINE F silu(F x) { return x / (set1(1.0f) + exp(zero() - x)); }

// Σ x², and Σ x·y, in W partial sums: the same order whoever asks.
inline float sum_of_squares(const float *x, uint32_t n) {
    F s = zero();
    uint32_t i = 0;
    for (; i + W <= n; i += W) {
        F v = load(x + i);
        s = fma(v, v, s);
    }
    if (i < n) {
        F v = load_n(x + i, static_cast<int>(n - i));
        s = fma(v, v, s);
    }
    return reduce_add(s);
}

// out = x / rms(x) · weight, the RMS over n elements.
inline void rms_normalise(const float *x, const float *weight, float *out, uint32_t n, float eps) {
    float scale = 1.0f / __builtin_sqrtf(sum_of_squares(x, n) / static_cast<float>(n) + eps);
    F s = set1(scale);
    uint32_t i = 0;
    for (; i + W <= n; i += W)
        store(out + i, load(x + i) * s * load(weight + i));
    if (i < n) {
        int rest = static_cast<int>(n - i);
        store_n(out + i, load_n(x + i, rest) * s * load_n(weight + i, rest), rest);
    }
}

// Applies f, a function of one or two vectors, to rows of n elements.
template <class Fn> INLINE void map1(const float *a, float *out, uint64_t n, Fn f) {
    uint64_t i = 0;
    for (; i + W <= n; i += W)
        store(out + i, f(load(a + i)));
    if (i < n) {
        int rest = static_cast<int>(n - i);
        store_n(out + i, f(load_n(a + i, rest)), rest);
    }
}
template <class Fn> INLINE void map2(const float *a, const float *b, float *out, uint64_t n, Fn f) {
    uint64_t i = 0;
    for (; i + W <= n; i += W)
        store(out + i, f(load(a + i), load(b + i)));
    if (i < n) {
        int rest = static_cast<int>(n - i);
        store_n(out + i, f(load_n(a + i, rest), load_n(b + i, rest)), rest);
    }
}
