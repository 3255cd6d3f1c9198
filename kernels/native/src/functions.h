// Elementary functions on vectors.

// e^x within 2 ulp: Cody and Waite's reduction and the polynomial of Cephes' expf.
// Zero at −∞, infinite from 88.8 on.
INLINE F exp(F x) {
    x = min(set1(89.0f), max(set1(-104.0f), x));
    F n = round(x * set1(1.44269504088896341f));
    F r = fma(n, set1(-0.693359375f), x);
    r = fma(n, set1(2.12194440e-4f), r);
    F p = set1(1.9875691500e-4f);
    p = fma(p, r, set1(1.3981999507e-3f));
    p = fma(p, r, set1(8.3334519073e-3f));
    p = fma(p, r, set1(4.1665795894e-2f));
    p = fma(p, r, set1(1.6666665459e-1f));
    p = fma(p, r, set1(5.0000001201e-1f));
    p = fma(p, r * r, r + set1(1.0f));
    return scale_exponent(p, n);
}

INLINE F silu(F x) { return x / (set1(1.0f) + exp(zero() - x)); }

// Σ x², and Σ x·y, in W partial sums: the same order whoever asks.
static float sum_of_squares(const float *x, uint32_t n) {
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
static void rms_normalise(const float *x, const float *weight, float *out, uint32_t n, float eps) {
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
