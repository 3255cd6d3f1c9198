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

// tanh(x) = (e^2x − 1) / (e^2x + 1); the numerator is computed without the 1 of e^r,
// so that small x keep their digits. ±1 from ±9 on.
INLINE F tanh(F x) {
    x = min(set1(9.0f), max(set1(-9.0f), x));
    Exponent e(x + x);
    F power = scale_exponent(set1(1.0f), e.n);
    F less_one = fma(fma(e.tail, e.r * e.r, e.r), power, power - set1(1.0f));
    return less_one / (less_one + set1(2.0f));
}

// erf(x) within 2 ulp, in the ranges and forms of Cody ("Rational Chebyshev Approximations
// for the Error Function", 1969): x + x·P(x²) below 1, and 1 − erfc(x) above, here with
// erfc(x) = e^Q(x). P is erf(x)/x − 1 and Q is ln erfc(x) by Remez' algorithm, with the
// relative error of erf as weight. From 4 on erf is 1 in floats.
INLINE F erf(F x) {
    const F square = x * x, size = abs(x), large = min(set1(4.0f), size);
    F p = set1(7.8537905859e-5f);
    p = fma(p, square, set1(-8.0101697568e-4f));
    p = fma(p, square, set1(5.1883246181e-3f));
    p = fma(p, square, set1(-2.6853810068e-2f));
    p = fma(p, square, set1(1.1283585095e-1f));
    p = fma(p, square, set1(-3.7612625818e-1f));
    p = fma(p, square, set1(1.2837916573e-1f));
    F q = set1(1.8636909377e-4f);
    q = fma(q, large, set1(-2.9475590522e-3f));
    q = fma(q, large, set1(2.1837665585e-2f));
    q = fma(q, large, set1(-1.0310591771e-1f));
    q = fma(q, large, set1(-6.3814580336e-1f));
    q = fma(q, large, set1(-1.1270886006f));
    q = fma(q, large, set1(-3.4166961901e-4f));
    const F above = set1(1.0f) - exp(q);
    return where_below(size, set1(1.0f), fma(p, x, x), where_below(x, zero(), zero() - above, above));
}

// Activations. Where the numbers of attributes.gen.h name one that exists as a gate only,
// it takes both operands.
INLINE F sigmoid(F x) { return set1(1.0f) / (set1(1.0f) + exp(zero() - x)); }
INLINE F silu(F x) { return x / (set1(1.0f) + exp(zero() - x)); }
// Below −20 both forms of GELU are 0 in floats; the bound keeps −∞ from becoming NaN.
INLINE F gelu(F x) {
    x = max(set1(-20.0f), x);
    return set1(0.5f) * x * (set1(1.0f) + erf(x * set1(0.70710678f)));
}
// (1 + tanh(u))/2 is the sigmoid of 2u.
INLINE F gelu_tanh(F x) {
    x = max(set1(-20.0f), x);
    const F u = fma(set1(0.044715f) * x * x, x, x);
    return x / (set1(1.0f) + exp(set1(-1.5957691216f) * u));
}
INLINE F relu2(F x) {
    x = max(zero(), x);
    return x * x;
}
INLINE F clamped_swiglu(F a, F b) {
    const F g = min(set1(7.0f), a), u = max(set1(-7.0f), min(set1(7.0f), b));
    return (u + set1(1.0f)) * (g / (set1(1.0f) + exp(set1(-1.702f) * g)));
}
// max(x, 0) + ln(1 + y) with y = e^−|x|: ln(1 + y) = 2·artanh(s) with s = y / (2 + y) ≤ 1/3, by its
// series, whose next term is below 2e-8.
INLINE F softplus(F x) {
    const F y = exp(zero() - abs(x)), s = y / (set1(2.0f) + y), square = s * s;
    F series = set1(1.0f / 13);
    series = fma(series, square, set1(1.0f / 11));
    series = fma(series, square, set1(1.0f / 9));
    series = fma(series, square, set1(1.0f / 7));
    series = fma(series, square, set1(1.0f / 5));
    series = fma(series, square, set1(1.0f / 3));
    series = fma(series, square, set1(1.0f));
    return fma(s + s, series, max(zero(), x));
}
INLINE bool is_activation(uint32_t number, bool gated) {
    return number <= SMELT_ACTIVATION_RELU2 || number == SMELT_ACTIVATION_SIGMOID ||
           number == SMELT_ACTIVATION_SOFTPLUS || (gated && number == SMELT_ACTIVATION_CLAMPED_SWIGLU);
}
// Calls f with the activation of a number, as a function of a vector and, for gates, as a
// function of two.
template <class Fn> INLINE void with_activation(uint32_t number, Fn f) {
    switch (number) {
    case SMELT_ACTIVATION_SILU:
        return f([](F x) __attribute__((always_inline)) { return silu(x); });
    case SMELT_ACTIVATION_GELU:
        return f([](F x) __attribute__((always_inline)) { return gelu(x); });
    case SMELT_ACTIVATION_GELU_TANH:
        return f([](F x) __attribute__((always_inline)) { return gelu_tanh(x); });
    case SMELT_ACTIVATION_RELU2:
        return f([](F x) __attribute__((always_inline)) { return relu2(x); });
    case SMELT_ACTIVATION_SIGMOID:
        return f([](F x) __attribute__((always_inline)) { return sigmoid(x); });
    case SMELT_ACTIVATION_SOFTPLUS:
        return f([](F x) __attribute__((always_inline)) { return softplus(x); });
    default:
        return f([](F x) __attribute__((always_inline)) { return x; });
    }
}
template <class Fn> INLINE void with_gate(uint32_t number, Fn f) {
    if (number == SMELT_ACTIVATION_CLAMPED_SWIGLU)
        return f([](F a, F b) __attribute__((always_inline)) { return clamped_swiglu(a, b); });
    with_activation(number, [&](auto act) __attribute__((always_inline)) {
        f([=](F a, F b) __attribute__((always_inline)) { return act(a) * b; });
    });
}

// Σ x², and Σ x·y, in W partial sums: the order is the same for all callers.
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

// 1 / rms(x), the RMS over n elements.
inline float rms_scale(const float *x, uint32_t n, float eps) {
    return 1.0f / __builtin_sqrtf(sum_of_squares(x, n) / static_cast<float>(n) + eps);
}

// out = x · scale · weight.
inline void scale_weighted(const float *x, float scale, const float *weight, float *out, uint32_t n) {
    const F s = set1(scale);
    uint32_t i = 0;
    for (; i + W <= n; i += W)
        store(out + i, load(x + i) * s * load(weight + i));
    if (i < n) {
        int rest = static_cast<int>(n - i);
        store_n(out + i, load_n(x + i, rest) * s * load_n(weight + i, rest), rest);
    }
}

// out = x / rms(x) · weight, the RMS over n elements.
inline void rms_normalise(const float *x, const float *weight, float *out, uint32_t n, float eps) {
    scale_weighted(x, rms_scale(x, n, eps), weight, out, n);
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

// The n < W elements that are left of a row, and `other` in the lanes behind.
INLINE F load_or(const float *p, int n, float other) {
    float part[W];
    store(part, set1(other));
    memcpy(part, p, 4 * static_cast<size_t>(n));
    return load(part);
}

// out = (x − mean(x)) / sqrt(var(x) + eps) · weight + bias over n elements; weight and bias
// may be null. As layer_norm of norm.metal sums: the mean relative to the first element, so
// that a row far from zero loses no digits, and what rounding left of it together with the
// squares (the corrected two-pass algorithm of Chan, Golub and LeVeque, 1983).
inline void layer_normalise(const float *x, const float *weight, const float *bias, float *out, uint32_t n, float eps) {
    if (n == 0)
        return;
    const float pivot = *x, count = static_cast<float>(n);
    const uint32_t whole = n / W * W;
    const int rest = static_cast<int>(n - whole);
    F sum = zero();
    for (uint32_t i = 0; i < whole; i += W)
        sum = sum + (load(x + i) - set1(pivot));
    if (rest != 0)
        sum = sum + (load_or(x + whole, rest, pivot) - set1(pivot));
    const float mean = pivot + reduce_add(sum) / count;
    F left = zero(), squares = zero();
    const auto add = [&](F v) __attribute__((always_inline)) {
        v = v - set1(mean);
        left = left + v;
        squares = fma(v, v, squares);
    };
    for (uint32_t i = 0; i < whole; i += W)
        add(load(x + i));
    if (rest != 0)
        add(load_or(x + whole, rest, mean));
    const float off = reduce_add(left) / count, variance = reduce_add(squares) / count - off * off;
    const F scale = set1(1.0f / __builtin_sqrtf((variance < 0.0f ? 0.0f : variance) + eps));
    map1(x, out, n, [=](F v) { return (v - set1(mean) - set1(off)) * scale; });
    if (weight != nullptr)
        map2(out, weight, out, n, [](F v, F w) { return v * w; });
    if (bias != nullptr)
        map2(out, bias, out, n, [](F v, F b) { return v + b; });
}
