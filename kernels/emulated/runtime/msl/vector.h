// Vectors of two to four components and their packed forms.
//
// Components are plain members and operators are written out by component: the
// compiler keeps them in registers and joins them where that pays. Swizzles of more
// than one component arrive from mslgen as calls of swizzle<…>() and, left of an
// assignment, swizzle_ref<…>().
#pragma once

namespace metal {
inline namespace MSL_VARIANT {

template <class T, int N> struct vec;
template <class T, int N> struct packed_vec;

template <class T> struct width_of : std::integral_constant<int, is_scalar_value<T> ? 1 : 0> {};
template <class T, int N> struct width_of<vec<T, N>> : std::integral_constant<int, N> {};
template <class T, int N> struct width_of<packed_vec<T, N>> : std::integral_constant<int, N> {};

// The left side of v.zx = …
template <class T, int... I> struct swizzled {
    T *base;
    using V = vec<T, sizeof...(I)>;
    MSL_INLINE operator V() const { return V(base[I]...); }
    MSL_INLINE void operator=(const V &v) const {
        constexpr int at[] = {I...};
        for (int k = 0; k < int(sizeof...(I)); k++)
            base[at[k]] = v[k];
    }
    template <class A> MSL_INLINE void operator+=(const A &a) const { *this = V(*this) + a; }
    template <class A> MSL_INLINE void operator-=(const A &a) const { *this = V(*this) - a; }
    template <class A> MSL_INLINE void operator*=(const A &a) const { *this = V(*this) * a; }
    template <class A> MSL_INLINE void operator/=(const A &a) const { *this = V(*this) / a; }
    template <class A> MSL_INLINE void operator&=(const A &a) const { *this = V(*this) & a; }
    template <class A> MSL_INLINE void operator|=(const A &a) const { *this = V(*this) | a; }
    template <class A> MSL_INLINE void operator^=(const A &a) const { *this = V(*this) ^ a; }
};

#define MSL_JOIN2(f) f(x), f(y)
#define MSL_JOIN3(f) f(x), f(y), f(z)
#define MSL_JOIN4(f) f(x), f(y), f(z), f(w)
#define MSL_OP_X(op, c) a.c op b.c

#define MSL_BINARY2(op, a, b) T(a.x op b.x), T(a.y op b.y)
#define MSL_BINARY3(op, a, b) T(a.x op b.x), T(a.y op b.y), T(a.z op b.z)
#define MSL_BINARY4(op, a, b) T(a.x op b.x), T(a.y op b.y), T(a.z op b.z), T(a.w op b.w)
#define MSL_COMPARE2(op, a, b) a.x op b.x, a.y op b.y
#define MSL_COMPARE3(op, a, b) a.x op b.x, a.y op b.y, a.z op b.z
#define MSL_COMPARE4(op, a, b) a.x op b.x, a.y op b.y, a.z op b.z, a.w op b.w
#define MSL_UNARY2(op, a) T(op a.x), T(op a.y)
#define MSL_UNARY3(op, a) T(op a.x), T(op a.y), T(op a.z)
#define MSL_UNARY4(op, a) T(op a.x), T(op a.y), T(op a.z), T(op a.w)
#define MSL_FROM2(a) T(a.x), T(a.y)
#define MSL_FROM3(a) T(a.x), T(a.y), T(a.z)
#define MSL_FROM4(a) T(a.x), T(a.y), T(a.z), T(a.w)
#define MSL_SPLAT2(s) s, s
#define MSL_SPLAT3(s) s, s, s
#define MSL_SPLAT4(s) s, s, s, s

#define MSL_ARITHMETIC(N, op)                                                                                          \
    friend constexpr MSL_INLINE vec operator op(const vec &a, const vec &b) { return vec(MSL_BINARY##N(op, a, b)); }   \
    MSL_INLINE vec &operator op##=(const vec & b) { return *this = *this op b; }
#define MSL_RELATION(N, op)                                                                                            \
    friend constexpr MSL_INLINE vec<bool, N> operator op(const vec & a, const vec & b) {                               \
        return vec<bool, N>(MSL_COMPARE##N(op, a, b));                                                                 \
    }

#define MSL_VEC(N)                                                                                                     \
    vec() = default;                                                                                                   \
    template <class S, class = if_scalar<S>> constexpr MSL_INLINE vec(S s) : vec(MSL_SPLAT##N(T(s))) {}                \
    template <class U> explicit constexpr MSL_INLINE vec(const vec<U, N> &v) : vec(MSL_FROM##N(v)) {}                  \
    template <class A, class B, class... R, class = std::enable_if_t<(width_of<A>::value != 0)>>                       \
    constexpr MSL_INLINE vec(const A &a, const B &b, const R &...r) : vec() {                                          \
        static_assert(width_of<A>::value + width_of<B>::value + (0 + ... + width_of<R>::value) == N,                   \
                      "vector constructor: wrong number of components");                                               \
        int k = 0;                                                                                                     \
        put(k, a), put(k, b), (put(k, r), ...);                                                                        \
    }                                                                                                                  \
    MSL_INLINE T &operator[](size_t i) { return reinterpret_cast<T *>(this)[i]; }                                      \
    MSL_INLINE const T &operator[](size_t i) const { return reinterpret_cast<const T *>(this)[i]; }                    \
    template <int... I> MSL_INLINE const vec<T, sizeof...(I)> swizzle() const {                                        \
        return vec<T, sizeof...(I)>((*this)[I]...);                                                                    \
    }                                                                                                                  \
    template <int... I> MSL_INLINE swizzled<T, I...> swizzle_ref() { return {reinterpret_cast<T *>(this)}; }           \
    MSL_ARITHMETIC(N, +)                                                                                               \
    MSL_ARITHMETIC(N, -)                                                                                               \
    MSL_ARITHMETIC(N, *)                                                                                               \
    MSL_ARITHMETIC(N, /)                                                                                               \
    MSL_ARITHMETIC(N, %)                                                                                               \
    MSL_ARITHMETIC(N, &)                                                                                               \
    MSL_ARITHMETIC(N, |)                                                                                               \
    MSL_ARITHMETIC(N, ^)                                                                                               \
    MSL_ARITHMETIC(N, <<)                                                                                              \
    MSL_ARITHMETIC(N, >>)                                                                                              \
    MSL_RELATION(N, <)                                                                                                 \
    MSL_RELATION(N, >)                                                                                                 \
    MSL_RELATION(N, <=)                                                                                                \
    MSL_RELATION(N, >=)                                                                                                \
    MSL_RELATION(N, ==)                                                                                                \
    MSL_RELATION(N, !=)                                                                                                \
    MSL_RELATION(N, &&)                                                                                                \
    MSL_RELATION(N, ||)                                                                                                \
    friend constexpr MSL_INLINE vec operator-(const vec &a) { return vec(MSL_UNARY##N(-, a)); }                        \
    friend constexpr MSL_INLINE vec operator~(const vec &a) { return vec(MSL_UNARY##N(~, a)); }                        \
    friend constexpr MSL_INLINE vec<bool, N> operator!(const vec &a) { return a == vec(T(0)); }                        \
                                                                                                                       \
private:                                                                                                               \
    template <class A> MSL_INLINE void put(int &k, const A &a) {                                                       \
        if constexpr (width_of<A>::value == 1)                                                                         \
            (*this)[k++] = T(a);                                                                                       \
        else                                                                                                           \
            for (int i = 0; i < width_of<A>::value; i++)                                                               \
                (*this)[k++] = T(a[i]);                                                                                \
    }

template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    T x, y;
    constexpr MSL_INLINE vec(T a, T b) : x(a), y(b) {}
    MSL_VEC(2)
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
    T x, y, z;
    constexpr MSL_INLINE vec(T a, T b, T c) : x(a), y(b), z(c) {}
    MSL_VEC(3)
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    T x, y, z, w;
    constexpr MSL_INLINE vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
    MSL_VEC(4)
};

// Packed vectors are storage: they convert to vectors and back.
#define MSL_PACKED(N, list, init)                                                                                      \
    template <class T> struct packed_vec<T, N> {                                                                       \
        T list;                                                                                                        \
        packed_vec() = default;                                                                                        \
        MSL_INLINE packed_vec(const vec<T, N> &v) { *this = v; }                                                       \
        MSL_INLINE operator vec<T, N>() const { return vec<T, N>(init); }                                              \
        MSL_INLINE packed_vec &operator=(const vec<T, N> &v) {                                                         \
            for (int i = 0; i < N; i++)                                                                                \
                (*this)[i] = v[i];                                                                                     \
            return *this;                                                                                              \
        }                                                                                                              \
        MSL_INLINE T &operator[](size_t i) { return reinterpret_cast<T *>(this)[i]; }                                  \
        MSL_INLINE const T &operator[](size_t i) const { return reinterpret_cast<const T *>(this)[i]; }                \
        template <int... I> MSL_INLINE const vec<T, sizeof...(I)> swizzle() const {                                    \
            return vec<T, sizeof...(I)>((*this)[I]...);                                                                \
        }                                                                                                              \
        template <int... I> MSL_INLINE swizzled<T, I...> swizzle_ref() { return {reinterpret_cast<T *>(this)}; }       \
    };
#define MSL_LIST2 x, y
#define MSL_LIST3 x, y, z
#define MSL_LIST4 x, y, z, w
MSL_PACKED(2, MSL_LIST2, MSL_LIST2)
MSL_PACKED(3, MSL_LIST3, MSL_LIST3)
MSL_PACKED(4, MSL_LIST4, MSL_LIST4)

} // namespace MSL_VARIANT
} // namespace metal

#define MSL_TYPES(name, T)                                                                                             \
    typedef metal::vec<T, 2> name##2;                                                                                  \
    typedef metal::vec<T, 3> name##3;                                                                                  \
    typedef metal::vec<T, 4> name##4;                                                                                  \
    typedef metal::packed_vec<T, 2> packed_##name##2;                                                                  \
    typedef metal::packed_vec<T, 3> packed_##name##3;                                                                  \
    typedef metal::packed_vec<T, 4> packed_##name##4;
MSL_TYPES(bool, bool)
MSL_TYPES(char, int8_t)
MSL_TYPES(uchar, uchar)
MSL_TYPES(short, short)
MSL_TYPES(ushort, ushort)
MSL_TYPES(int, int)
MSL_TYPES(uint, uint)
MSL_TYPES(long, long)
MSL_TYPES(ulong, ulong)
MSL_TYPES(half, half)
MSL_TYPES(bfloat, bfloat)
MSL_TYPES(float, float)
#undef MSL_TYPES
static_assert(sizeof(float2) == 8 && sizeof(float3) == 16 && sizeof(float4) == 16 && alignof(float3) == 16, "layout");
static_assert(sizeof(half2) == 4 && sizeof(half3) == 8 && sizeof(half4) == 8 && alignof(half4) == 8, "layout");
static_assert(sizeof(uchar4) == 4 && alignof(uchar4) == 4 && sizeof(ulong2) == 16 && sizeof(bool4) == 4, "layout");
static_assert(sizeof(packed_float3) == 12 && alignof(packed_float3) == 4 && sizeof(packed_half3) == 6, "layout");
static_assert(sizeof(packed_uchar4) == 4 && alignof(packed_uchar4) == 1, "layout");

namespace metal {
inline namespace MSL_VARIANT {
#define MSL_USING(name)                                                                                                \
    using ::name##2;                                                                                                   \
    using ::name##3;                                                                                                   \
    using ::name##4;                                                                                                   \
    using ::packed_##name##2;                                                                                          \
    using ::packed_##name##3;                                                                                          \
    using ::packed_##name##4;
MSL_USING(bool)
MSL_USING(char)
MSL_USING(uchar)
MSL_USING(short)
MSL_USING(ushort)
MSL_USING(int)
MSL_USING(uint)
MSL_USING(long)
MSL_USING(ulong)
MSL_USING(half)
MSL_USING(bfloat)
MSL_USING(float)
#undef MSL_USING
} // namespace MSL_VARIANT
} // namespace metal

using metal::packed_vec;
using metal::vec;

namespace msl {
inline namespace MSL_VARIANT {

// position converts a thread position to the kernel's type.
template <class T> MSL_INLINE T position(uint32_t v) { return T(v); }
template <class T> MSL_INLINE T position(const Size &s) {
    if constexpr (metal::width_of<T>::value == 3)
        return T(s.x, s.y, s.z);
    else if constexpr (metal::width_of<T>::value == 2)
        return T(s.x, s.y);
    else
        return T(s.x);
}

} // namespace MSL_VARIANT
} // namespace msl
