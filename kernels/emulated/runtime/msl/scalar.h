// Scalar types: half and bfloat, type traits, numeric_limits, as_type.
//
// half and bfloat are classes with exact IEEE semantics: an operation on two of them
// computes in float and rounds once, which equals rounding the exact result.
// Conditional expressions cannot mix them with float; convert one side.
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF (__builtin_inff())
#define MAXFLOAT 3.402823466e+38f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.1920928955078125e-7f
#define HALF_MAX 65504.0f
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f

namespace msl {
inline namespace MSL_VARIANT {

// The software conversions; constexpr, and the only ones on x86-64 without F16C.
constexpr float half_to_float_soft(uint16_t h) {
    const uint32_t magnitude = uint32_t(h & 0x7fff) << 13;
    // Multiplying by 2^112 moves the exponent and normalises subnormals.
    uint32_t bits = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) * 0x1p112f);
    if ((h & 0x7c00) == 0x7c00)
        bits = magnitude | 0x7f800000u | (h & 0x3ff ? 0x400000u : 0);
    return __builtin_bit_cast(float, bits | uint32_t(h & 0x8000) << 16);
}

constexpr uint16_t float_to_half_soft(float f) {
    const uint32_t all = __builtin_bit_cast(uint32_t, f), sign = all & 0x80000000u;
    uint32_t x = all ^ sign, out = 0;
    if (x >= 0x47800000u) // 65536 and over, infinity, NaN
        out = x > 0x7f800000u ? 0x7e00u | (x >> 13 & 0x3ff) : 0x7c00u;
    else if (x < 0x38800000u) // subnormal or zero: adding 1/2 lines the mantissa up
        out = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, x) + 0.5f) - 0x3f000000u;
    else
        out = (x + 0xc8000fffu + (x >> 13 & 1)) >> 13;
    return uint16_t(out | sign >> 16);
}

#ifdef __F16C__
typedef float float4_native __attribute__((vector_size(16)));
typedef float float8_native __attribute__((vector_size(32)));
typedef short short8_native __attribute__((vector_size(16)));
#endif

constexpr MSL_INLINE float half_to_float(uint16_t h) {
    if (__builtin_is_constant_evaluated())
        return half_to_float_soft(h);
#if defined(__F16C__)
    return __builtin_ia32_vcvtph2ps(short8_native{short(h)})[0];
#elif defined(__aarch64__)
    return float(__builtin_bit_cast(__fp16, h));
#else
    return half_to_float_soft(h);
#endif
}

constexpr MSL_INLINE uint16_t float_to_half(float f) {
    if (__builtin_is_constant_evaluated())
        return float_to_half_soft(f);
#if defined(__F16C__)
    return uint16_t(__builtin_ia32_vcvtps2ph(float4_native{f}, 0)[0]);
#elif defined(__aarch64__)
    return __builtin_bit_cast(uint16_t, __fp16(f));
#else
    return float_to_half_soft(f);
#endif
}

constexpr MSL_INLINE float bfloat_to_float(uint16_t b) { return __builtin_bit_cast(float, uint32_t(b) << 16); }

constexpr MSL_INLINE uint16_t float_to_bfloat(float f) {
    const uint32_t x = __builtin_bit_cast(uint32_t, f);
    if ((x & 0x7fffffffu) > 0x7f800000u)
        return uint16_t(x >> 16 | 0x40);
    return uint16_t((x + 0x7fffu + (x >> 16 & 1)) >> 16);
}

} // namespace MSL_VARIANT
} // namespace msl

namespace metal {
inline namespace MSL_VARIANT {

// Arithmetic with an integer keeps the type, with a float it gives float. A template
// takes the integers, because built-in operators on the converted operand would be
// as good a match otherwise.
// clang-format off
#define MSL_FLOATING(type, to_float, from_float)                                                                       \
    struct type {                                                                                                      \
        uint16_t bits;                                                                                                 \
        type() = default;                                                                                              \
        constexpr MSL_INLINE type(float f) : bits(msl::from_float(f)) {}                                               \
        template <class I, class = std::enable_if_t<std::is_integral<I>::value>>                                       \
        constexpr MSL_INLINE type(I i) : type(float(i)) {}                                                             \
        constexpr MSL_INLINE operator float() const { return msl::to_float(bits); }                                    \
        friend constexpr MSL_INLINE type operator-(type a) {                                                           \
            a.bits ^= 0x8000;                                                                                          \
            return a;                                                                                                  \
        }                                                                                                              \
        friend constexpr MSL_INLINE type operator+(type a) { return a; }                                               \
        MSL_FLOATING_OP(type, +) MSL_FLOATING_OP(type, -) MSL_FLOATING_OP(type, *) MSL_FLOATING_OP(type, /)            \
        MSL_FLOATING_COMPARE(type, <) MSL_FLOATING_COMPARE(type, >) MSL_FLOATING_COMPARE(type, <=)                     \
        MSL_FLOATING_COMPARE(type, >=) MSL_FLOATING_COMPARE(type, ==) MSL_FLOATING_COMPARE(type, !=)                   \
        MSL_INLINE type &operator++() { return *this += type(1.0f); }                                                  \
        MSL_INLINE type &operator--() { return *this -= type(1.0f); }                                                  \
    };
#define MSL_FLOATING_OP(type, op)                                                                                      \
    friend constexpr MSL_INLINE type operator op(type a, type b) { return type(float(a) op float(b)); }                \
    friend constexpr MSL_INLINE float operator op(type a, float b) { return float(a) op b; }                           \
    friend constexpr MSL_INLINE float operator op(float a, type b) { return a op float(b); }                           \
    template <class I, class = std::enable_if_t<std::is_integral<I>::value>>                                           \
    friend constexpr MSL_INLINE type operator op(type a, I b) {                                                        \
        return a op type(b);                                                                                           \
    }                                                                                                                  \
    template <class I, class = std::enable_if_t<std::is_integral<I>::value>>                                           \
    friend constexpr MSL_INLINE type operator op(I a, type b) {                                                        \
        return type(a) op b;                                                                                           \
    }                                                                                                                  \
    template <class A> MSL_INLINE type &operator op##=(A a) { return *this = type(float(*this op a)); }
#define MSL_FLOATING_COMPARE(type, op)                                                                                 \
    friend constexpr MSL_INLINE bool operator op(type a, type b) { return float(a) op float(b); }                      \
    friend constexpr MSL_INLINE bool operator op(type a, float b) { return float(a) op b; }                            \
    friend constexpr MSL_INLINE bool operator op(float a, type b) { return a op float(b); }                            \
    template <class I, class = std::enable_if_t<std::is_integral<I>::value>>                                           \
    friend constexpr MSL_INLINE bool operator op(type a, I b) {                                                        \
        return a op type(b);                                                                                           \
    }                                                                                                                  \
    template <class I, class = std::enable_if_t<std::is_integral<I>::value>>                                           \
    friend constexpr MSL_INLINE bool operator op(I a, type b) {                                                        \
        return type(a) op b;                                                                                           \
    }
// clang-format on
MSL_FLOATING(half, half_to_float, float_to_half)
MSL_FLOATING(bfloat, bfloat_to_float, float_to_bfloat)
#undef MSL_FLOATING
#undef MSL_FLOATING_OP
#undef MSL_FLOATING_COMPARE
static_assert(sizeof(half) == 2 && alignof(half) == 2 && sizeof(bfloat) == 2 && alignof(bfloat) == 2, "layout");

template <class T, class U> struct is_same : std::is_same<T, U> {};
template <class T, class U> constexpr bool is_same_v = std::is_same<T, U>::value;
template <bool B, class T = void> using enable_if_t = std::enable_if_t<B, T>;
template <bool B, class T = void> using enable_if = std::enable_if<B, T>;
template <bool B, class T, class F> using conditional_t = std::conditional_t<B, T, F>;
template <bool B, class T, class F> using conditional = std::conditional<B, T, F>;
template <class T, T V> using integral_constant = std::integral_constant<T, V>;
using true_type = std::true_type;
using false_type = std::false_type;
template <class T> using remove_cv_t = std::remove_cv_t<T>;
template <class T> using remove_reference_t = std::remove_reference_t<T>;
template <class T>
constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat>;
template <class T> struct is_floating_point : std::integral_constant<bool, is_floating_point_v<T>> {};
template <class T> using is_integral = std::is_integral<T>;
template <class T> constexpr bool is_integral_v = std::is_integral<T>::value;
template <class T> using make_unsigned_t = std::make_unsigned_t<T>;
template <class T> constexpr bool is_scalar_value = is_integral_v<T> || is_floating_point_v<T>;
template <class T> using if_scalar = std::enable_if_t<is_scalar_value<T>>;
template <class T> using if_integer = std::enable_if_t<is_integral_v<T>, T>;

template <class T> struct numeric_limits {
    static_assert(is_integral_v<T>, "numeric_limits of a type without");
    static constexpr bool is_signed = T(-1) < T(0);
    static constexpr bool is_integer = true;
    static constexpr int digits = int(sizeof(T)) * 8 - is_signed;
    static constexpr T max() { return is_signed ? T((((T(1) << (digits - 1)) - 1) << 1) + 1) : T(~T(0)); }
    static constexpr T min() { return is_signed ? T(-max() - 1) : T(0); }
    static constexpr T lowest() { return min(); }
};
template <class T, int Digits, uint32_t Max, uint32_t Min, uint32_t Epsilon, uint32_t Denorm> struct float_limits {
    static constexpr bool is_signed = true, is_integer = false, has_infinity = true, has_quiet_NaN = true;
    static constexpr int digits = Digits;
    static constexpr T of(uint32_t bits) { return T(__builtin_bit_cast(float, bits)); }
    static constexpr T max() { return of(Max); }
    static constexpr T lowest() { return of(Max | 0x80000000u); }
    static constexpr T min() { return of(Min); }
    static constexpr T epsilon() { return of(Epsilon); }
    static constexpr T denorm_min() { return of(Denorm); }
    static constexpr T infinity() { return of(0x7f800000u); }
    static constexpr T quiet_NaN() { return of(0x7fc00000u); }
};
template <> struct numeric_limits<float> : float_limits<float, 24, 0x7f7fffffu, 0x00800000u, 0x34000000u, 1u> {};
template <> struct numeric_limits<half> : float_limits<half, 11, 0x477fe000u, 0x38800000u, 0x3a800000u, 0x33800000u> {};
template <>
struct numeric_limits<bfloat> : float_limits<bfloat, 8, 0x7f7f0000u, 0x00800000u, 0x3c000000u, 0x00010000u> {};

template <class To, class From> MSL_INLINE To as_type(const From &v) {
    static_assert(sizeof(To) == sizeof(From), "as_type between types of different sizes");
    return __builtin_bit_cast(To, v);
}

template <class T, size_t N> struct array {
    T elements[N];
    constexpr T &operator[](size_t i) { return elements[i]; }
    constexpr const T &operator[](size_t i) const { return elements[i]; }
    constexpr size_t size() const { return N; }
    T *begin() { return elements; }
    T *end() { return elements + N; }
    const T *begin() const { return elements; }
    const T *end() const { return elements + N; }
};

} // namespace MSL_VARIANT
} // namespace metal

using metal::as_type;
using metal::bfloat;
using metal::half;

namespace msl {
inline namespace MSL_VARIANT {

template <class T> MSL_INLINE T constant(uint32_t index) {
    const uint32_t bits = constant_bits(index);
    if constexpr (std::is_same<T, float>::value)
        return __builtin_bit_cast(float, bits);
    else if constexpr (std::is_same<T, half>::value)
        return __builtin_bit_cast(half, uint16_t(bits));
    else if constexpr (std::is_same<T, bool>::value)
        return bits != 0;
    else
        return T(bits);
}

} // namespace MSL_VARIANT
} // namespace msl
