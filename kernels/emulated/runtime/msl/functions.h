// Mathematical, integer, relational and geometric functions.
#pragma once

namespace metal {
inline namespace MSL_VARIANT {

// A function of one float, as overloads for float, half, bfloat and their vectors.
#define MSL_MATH1(name, expr)                                                                                          \
    MSL_INLINE float name(float x) { return expr; }                                                                    \
    MSL_INLINE half name(half h) { return half(name(float(h))); }                                                      \
    MSL_INLINE bfloat name(bfloat h) { return bfloat(name(float(h))); }                                                \
    template <class T, int N> MSL_INLINE vec<T, N> name(vec<T, N> v) {                                                 \
        for (int i = 0; i < N; i++)                                                                                    \
            v[i] = name(v[i]);                                                                                         \
        return v;                                                                                                      \
    }

// The second operand of a vector function may be a scalar, which is splatted.
template <class T> struct same {
    typedef T type;
};
template <class T> using same_t = typename same<T>::type;

#define MSL_MATH2(name, expr)                                                                                          \
    MSL_INLINE float name(float x, float y) { return expr; }                                                           \
    MSL_INLINE half name(half x, half y) { return half(name(float(x), float(y))); }                                    \
    MSL_INLINE bfloat name(bfloat x, bfloat y) { return bfloat(name(float(x), float(y))); }                            \
    template <class T, int N> MSL_INLINE vec<T, N> name(vec<T, N> x, same_t<vec<T, N>> y) {                            \
        for (int i = 0; i < N; i++)                                                                                    \
            x[i] = name(x[i], y[i]);                                                                                   \
        return x;                                                                                                      \
    }

#define MSL_TRANSCENDENTAL                                                                                             \
    MSL_MATH1(acos, __builtin_acosf(x))                                                                                \
    MSL_MATH1(acosh, __builtin_acoshf(x))                                                                              \
    MSL_MATH1(asin, __builtin_asinf(x))                                                                                \
    MSL_MATH1(asinh, __builtin_asinhf(x))                                                                              \
    MSL_MATH1(atan, __builtin_atanf(x))                                                                                \
    MSL_MATH1(atanh, __builtin_atanhf(x))                                                                              \
    MSL_MATH1(cos, __builtin_cosf(x))                                                                                  \
    MSL_MATH1(cosh, __builtin_coshf(x))                                                                                \
    MSL_MATH1(cospi, float(__builtin_cos(3.14159265358979323846 * double(x))))                                         \
    MSL_MATH1(exp, __builtin_expf(x))                                                                                  \
    MSL_MATH1(exp10, float(__builtin_pow(10.0, double(x))))                                                            \
    MSL_MATH1(exp2, __builtin_exp2f(x))                                                                                \
    MSL_MATH1(log, __builtin_logf(x))                                                                                  \
    MSL_MATH1(log10, __builtin_log10f(x))                                                                              \
    MSL_MATH1(log2, __builtin_log2f(x))                                                                                \
    MSL_MATH1(rsqrt, 1.0f / __builtin_sqrtf(x))                                                                        \
    MSL_MATH1(sin, __builtin_sinf(x))                                                                                  \
    MSL_MATH1(sinh, __builtin_sinhf(x))                                                                                \
    MSL_MATH1(sinpi, float(__builtin_sin(3.14159265358979323846 * double(x))))                                         \
    MSL_MATH1(sqrt, __builtin_sqrtf(x))                                                                                \
    MSL_MATH1(tan, __builtin_tanf(x))                                                                                  \
    MSL_MATH1(tanh, __builtin_tanhf(x))                                                                                \
    MSL_MATH1(ceil, __builtin_ceilf(x))                                                                                \
    MSL_MATH1(fabs, __builtin_fabsf(x))                                                                                \
    MSL_MATH1(floor, __builtin_floorf(x))                                                                              \
    MSL_MATH1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))                                         \
    MSL_MATH1(rint, __builtin_rintf(x))                                                                                \
    MSL_MATH1(round, __builtin_roundf(x))                                                                              \
    MSL_MATH1(trunc, __builtin_truncf(x))                                                                              \
    MSL_MATH2(atan2, __builtin_atan2f(x, y))                                                                           \
    MSL_MATH2(fdim, __builtin_fdimf(x, y))                                                                             \
    MSL_MATH2(fmax, __builtin_fmaxf(x, y))                                                                             \
    MSL_MATH2(fmin, __builtin_fminf(x, y))                                                                             \
    MSL_MATH2(fmod, __builtin_fmodf(x, y))                                                                             \
    MSL_MATH2(pow, __builtin_powf(x, y))                                                                               \
    MSL_MATH2(powr, __builtin_powf(x, y))                                                                              \
    MSL_MATH2(divide, x / y)                                                                                           \
    template <class T> MSL_INLINE T sincos(T x, T &c) {                                                                \
        c = cos(x);                                                                                                    \
        return sin(x);                                                                                                 \
    }

namespace precise {
MSL_TRANSCENDENTAL
}
// Metal may round these less well; the emulation has nothing to gain from that.
namespace fast {
MSL_TRANSCENDENTAL
}
MSL_TRANSCENDENTAL
MSL_MATH2(copysign, __builtin_copysignf(x, y))
MSL_MATH2(nextafter, __builtin_nextafterf(x, y))
MSL_MATH1(sign, x != x ? 0.0f : x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x)

MSL_INLINE float fma(float a, float b, float c) {
#ifdef MSL_HAS_FMA // compiled without -mfma, so that nothing else is contracted
    asm("vfmadd213ss %2, %1, %0" : "+x"(a) : "x"(b), "x"(c));
    return a;
#else
    return __builtin_fmaf(a, b, c);
#endif
}
// Fused but for the intermediate roundings to double and float, which change a result
// only where the exact sum needs more than 53 bits.
MSL_INLINE half fma(half a, half b, half c) { return half(float(double(float(a) * float(b)) + double(float(c)))); }
MSL_INLINE bfloat fma(bfloat a, bfloat b, bfloat c) {
    return bfloat(float(double(float(a)) * double(float(b)) + double(float(c))));
}
template <class T, int N> MSL_INLINE vec<T, N> fma(vec<T, N> a, same_t<vec<T, N>> b, same_t<vec<T, N>> c) {
    for (int i = 0; i < N; i++)
        a[i] = fma(a[i], b[i], c[i]);
    return a;
}

MSL_INLINE float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
MSL_INLINE half ldexp(half x, int e) { return half(__builtin_ldexpf(float(x), e)); }
MSL_INLINE int ilogb(float x) { return __builtin_ilogbf(x); }
MSL_INLINE float frexp(float x, int &e) { return __builtin_frexpf(x, &e); }
MSL_INLINE float modf(float x, float &whole) { return __builtin_modff(x, &whole); }

// ---- common functions of any scalar

template <class T, class = if_scalar<T>> constexpr MSL_INLINE T min(T a, T b) { return b < a ? b : a; }
template <class T, class = if_scalar<T>> constexpr MSL_INLINE T max(T a, T b) { return a < b ? b : a; }
template <class T, class = if_scalar<T>> constexpr MSL_INLINE T min3(T a, T b, T c) { return min(min(a, b), c); }
template <class T, class = if_scalar<T>> constexpr MSL_INLINE T max3(T a, T b, T c) { return max(max(a, b), c); }
template <class T, class = if_scalar<T>> constexpr MSL_INLINE T median3(T a, T b, T c) {
    return max(min(a, b), min(max(a, b), c));
}
template <class T, class = if_scalar<T>> constexpr MSL_INLINE T clamp(T x, T low, T high) {
    return min(max(x, low), high);
}
template <class T, class = if_scalar<T>> constexpr MSL_INLINE T abs(T a) {
    return a < T(0) ? T(-a) : a == T(0) ? T(0) : a;
}
template <class T, class = std::enable_if_t<is_floating_point_v<T>>> MSL_INLINE T mix(T a, T b, T t) {
    return a + (b - a) * t;
}
template <class T, class = std::enable_if_t<is_floating_point_v<T>>> MSL_INLINE T saturate(T x) {
    return clamp(x, T(0.0f), T(1.0f));
}
template <class T, class = std::enable_if_t<is_floating_point_v<T>>> MSL_INLINE T step(T edge, T x) {
    return x < edge ? T(0.0f) : T(1.0f);
}
template <class T, class = std::enable_if_t<is_floating_point_v<T>>> MSL_INLINE T smoothstep(T a, T b, T x) {
    const T t = saturate(T((x - a) / (b - a)));
    return t * t * (T(3.0f) - T(2.0f) * t);
}
template <class T, class = if_scalar<T>> constexpr MSL_INLINE T select(T a, T b, bool c) { return c ? b : a; }

#define MSL_MAP1(name)                                                                                                 \
    template <class T, int N> MSL_INLINE vec<T, N> name(vec<T, N> a) {                                                 \
        for (int i = 0; i < N; i++)                                                                                    \
            a[i] = name(a[i]);                                                                                         \
        return a;                                                                                                      \
    }
#define MSL_MAP2(name)                                                                                                 \
    template <class T, int N> MSL_INLINE vec<T, N> name(vec<T, N> a, same_t<vec<T, N>> b) {                            \
        for (int i = 0; i < N; i++)                                                                                    \
            a[i] = name(a[i], b[i]);                                                                                   \
        return a;                                                                                                      \
    }                                                                                                                  \
    template <class T, int N, class S, class = if_scalar<S>> MSL_INLINE vec<T, N> name(S a, vec<T, N> b) {             \
        return name(vec<T, N>(a), b);                                                                                  \
    }
#define MSL_MAP3(name)                                                                                                 \
    template <class T, int N> MSL_INLINE vec<T, N> name(vec<T, N> a, same_t<vec<T, N>> b, same_t<vec<T, N>> c) {       \
        for (int i = 0; i < N; i++)                                                                                    \
            a[i] = name(a[i], b[i], c[i]);                                                                             \
        return a;                                                                                                      \
    }
MSL_MAP1(abs)
MSL_MAP1(saturate)
MSL_MAP2(min)
MSL_MAP2(max)
MSL_MAP2(step)
MSL_MAP3(min3)
MSL_MAP3(max3)
MSL_MAP3(median3)
MSL_MAP3(clamp)
MSL_MAP3(mix)
MSL_MAP3(smoothstep)
template <class T, int N> MSL_INLINE vec<T, N> select(vec<T, N> a, same_t<vec<T, N>> b, vec<bool, N> c) {
    for (int i = 0; i < N; i++)
        a[i] = c[i] ? b[i] : a[i];
    return a;
}

// ---- geometric functions

template <class T, int N> MSL_INLINE T dot(vec<T, N> a, same_t<vec<T, N>> b) {
    T s = a[0] * b[0];
    for (int i = 1; i < N; i++)
        s += a[i] * b[i];
    return s;
}
template <class T, int N> MSL_INLINE T length_squared(vec<T, N> a) { return dot(a, a); }
template <class T, int N> MSL_INLINE T length(vec<T, N> a) { return sqrt(dot(a, a)); }
template <class T, int N> MSL_INLINE T distance(vec<T, N> a, same_t<vec<T, N>> b) { return length(a - b); }
template <class T, int N> MSL_INLINE vec<T, N> normalize(vec<T, N> a) { return a * rsqrt(dot(a, a)); }
template <class T> MSL_INLINE vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
    return vec<T, 3>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}

// ---- relational functions

template <class T> using if_floating = std::enable_if_t<is_floating_point_v<T>>;
#define MSL_TEST(name, expr)                                                                                           \
    template <class T, class = if_floating<T>> MSL_INLINE bool name(T v) {                                             \
        const float x = float(v);                                                                                      \
        return expr;                                                                                                   \
    }                                                                                                                  \
    template <class T, int N> MSL_INLINE vec<bool, N> name(vec<T, N> v) {                                              \
        vec<bool, N> r;                                                                                                \
        for (int i = 0; i < N; i++)                                                                                    \
            r[i] = name(v[i]);                                                                                         \
        return r;                                                                                                      \
    }
MSL_TEST(isnan, x != x)
MSL_TEST(isinf, __builtin_fabsf(x) == __builtin_inff())
MSL_TEST(isfinite, __builtin_fabsf(x) < __builtin_inff())
MSL_TEST(isnormal, __builtin_fabsf(x) < __builtin_inff() && float(abs(v)) >= float(numeric_limits<T>::min()))
MSL_TEST(signbit, __builtin_signbit(x) != 0)
template <int N> MSL_INLINE bool any(vec<bool, N> v) {
    bool r = false;
    for (int i = 0; i < N; i++)
        r |= v[i];
    return r;
}
template <int N> MSL_INLINE bool all(vec<bool, N> v) {
    bool r = true;
    for (int i = 0; i < N; i++)
        r &= v[i];
    return r;
}

// ---- integer functions

template <class T> MSL_INLINE if_integer<T> popcount(T v) {
    return T(__builtin_popcountll((unsigned long long)(std::make_unsigned_t<T>)v));
}
template <class T> MSL_INLINE if_integer<T> clz(T v) {
    const std::make_unsigned_t<T> u = v;
    return u ? T(__builtin_clzll(u) - (64 - int(sizeof(T)) * 8)) : T(sizeof(T) * 8);
}
template <class T> MSL_INLINE if_integer<T> ctz(T v) {
    const std::make_unsigned_t<T> u = v;
    return u ? T(__builtin_ctzll(u)) : T(sizeof(T) * 8);
}
template <class T> MSL_INLINE if_integer<T> reverse_bits(T v) {
    MSL_TRACE(smelt_trace_shift(SMELT_SHIFT_CYCLES);)
    std::make_unsigned_t<T> u = v, r = 0;
    for (int i = 0; i < int(sizeof(T)) * 8; i++, u >>= 1)
        r = std::make_unsigned_t<T>(r << 1 | (u & 1));
    return T(r);
}
template <class T> MSL_INLINE if_integer<T> rotate(T v, T by) {
    MSL_TRACE(smelt_trace_shift(SMELT_SHIFT_CYCLES);)
    constexpr unsigned bits = sizeof(T) * 8;
    const std::make_unsigned_t<T> u = v;
    const unsigned n = unsigned(by) % bits;
    return n ? T(u << n | u >> (bits - n)) : v;
}
template <class T> MSL_INLINE if_integer<T> extract_bits(T v, uint offset, uint count) {
    MSL_TRACE(smelt_trace_shift(SMELT_SHIFT_CYCLES);)
    constexpr uint bits = sizeof(T) * 8;
    if (count == 0)
        return 0;
    return T(T(v << (bits - count - offset)) >> (bits - count));
}
template <class T> MSL_INLINE if_integer<T> insert_bits(T base, T insert, uint offset, uint count) {
    MSL_TRACE(smelt_trace_shift(SMELT_SHIFT_CYCLES);)
    using U = std::make_unsigned_t<T>;
    const U mask = U((count >= sizeof(T) * 8 ? U(~U(0)) : U((U(1) << count) - 1)) << offset);
    return T((U(base) & U(~mask)) | (U(U(insert) << offset) & mask));
}
template <class T> MSL_INLINE if_integer<T> absdiff(T a, T b) { return a < b ? T(b - a) : T(a - b); }
template <class T> MSL_INLINE if_integer<T> mulhi(T a, T b) {
    return T((__int128)(a) * (__int128)(b) >> sizeof(T) * 8);
}
template <class T> MSL_INLINE if_integer<T> madhi(T a, T b, T c) { return T(mulhi(a, b) + c); }
template <class T> MSL_INLINE if_integer<T> mul24(T a, T b) {
    MSL_TRACE(smelt_trace_shift(SMELT_SHIFT_CYCLES);)
    return T(a * b);
}
template <class T> MSL_INLINE if_integer<T> mad24(T a, T b, T c) { return T(a * b + c); }
template <class T> MSL_INLINE if_integer<T> hadd(T a, T b) { return T(((__int128)(a) + b) >> 1); }
template <class T> MSL_INLINE if_integer<T> rhadd(T a, T b) { return T(((__int128)(a) + b + 1) >> 1); }
template <class T> MSL_INLINE if_integer<T> addsat(T a, T b) {
    T r;
    return __builtin_add_overflow(a, b, &r) ? (b < 0 ? numeric_limits<T>::min() : numeric_limits<T>::max()) : r;
}
template <class T> MSL_INLINE if_integer<T> subsat(T a, T b) {
    T r;
    return __builtin_sub_overflow(a, b, &r) ? (b > 0 ? numeric_limits<T>::min() : numeric_limits<T>::max()) : r;
}
MSL_MAP1(popcount)
MSL_MAP1(clz)
MSL_MAP1(ctz)
MSL_MAP1(reverse_bits)
MSL_MAP2(rotate)
MSL_MAP2(absdiff)
MSL_MAP2(mulhi)
MSL_MAP2(addsat)
MSL_MAP2(subsat)

#undef MSL_MATH1
#undef MSL_MATH2
#undef MSL_TRANSCENDENTAL
#undef MSL_MAP1
#undef MSL_MAP2
#undef MSL_MAP3
#undef MSL_TEST

MSL_INLINE float unpack_unorm8(uchar v) { return float(v) / 255.0f; }
MSL_INLINE float4 unpack_unorm4x8_to_float(uint v) {
    return float4(unpack_unorm8(uchar(v)), unpack_unorm8(uchar(v >> 8)), unpack_unorm8(uchar(v >> 16)),
                  unpack_unorm8(uchar(v >> 24)));
}

} // namespace MSL_VARIANT
} // namespace metal
