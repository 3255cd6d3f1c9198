// MSL's vocabulary for C++ for OpenCL: declarations only, nothing is linked or run.
// clang-format off: macros that declare functions have no stable layout.
#pragma clang diagnostic ignored "-Wunknown-attributes"
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define __METAL__ 1
#define __METAL_VERSION__ 310
#define device __global
#define constant __constant
#define threadgroup __local
#define thread __private
#define kernel __kernel
#define INFINITY __builtin_inff()
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define NAN __builtin_nanf("")
#define M_PI_F 3.14159265358979323846f

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;

namespace metal {
// Vectors. MSL constructs them as float4(a, b), which is a cast here: macros at the
// end turn the constructors into functions that count components.
template <class T, int N> struct vec_of;
template <class T, int N> using vec = typename vec_of<T, N>::type;
template <class T> struct components {
    static constexpr int count = 1;
};
#define SMELT_VECTOR(T, N)                                                                                             \
    typedef T T##N __attribute__((ext_vector_type(N)));                                                                \
    template <> struct vec_of<T, N> {                                                                                  \
        typedef T##N type;                                                                                             \
    };                                                                                                                 \
    template <> struct components<T##N> {                                                                              \
        static constexpr int count = N;                                                                                \
    };
#define SMELT_VECTORS(T) SMELT_VECTOR(T, 2) SMELT_VECTOR(T, 3) SMELT_VECTOR(T, 4)
SMELT_VECTORS(half)
SMELT_VECTORS(float)
SMELT_VECTORS(int)
SMELT_VECTORS(uint)
SMELT_VECTORS(short)
SMELT_VECTORS(ushort)
SMELT_VECTORS(char)
SMELT_VECTORS(uchar)
SMELT_VECTORS(ulong)
SMELT_VECTORS(long)

// OpenCL has no bfloat: a class of its size, converted in so many words.
struct bfloat {
    bfloat() = default;
    explicit bfloat(float);
    operator float() const;
    ushort bits;
};
#define SMELT_BFLOATS(N)                                                                                               \
    struct bfloat##N {                                                                                                 \
        bfloat##N() = default;                                                                                         \
        explicit bfloat##N(float##N);                                                                                  \
        explicit operator float##N() const;                                                                            \
        bfloat elements[N];                                                                                            \
    };                                                                                                                 \
    template <> struct vec_of<bfloat, N> {                                                                             \
        typedef bfloat##N type;                                                                                        \
    };                                                                                                                 \
    template <> struct components<bfloat##N> {                                                                         \
        static constexpr int count = N;                                                                                \
    };
SMELT_BFLOATS(2)
SMELT_BFLOATS(3)
SMELT_BFLOATS(4)

// Packed vectors are storage of their elements' alignment: they convert to vectors.
#define SMELT_PACKED(T, N)                                                                                             \
    struct packed_##T##N {                                                                                             \
        operator T##N() const;                                                                                         \
        T elements[N];                                                                                                 \
    };                                                                                                                 \
    template <> struct components<packed_##T##N> {                                                                     \
        static constexpr int count = N;                                                                                \
    };
#define SMELT_PACKEDS(T) SMELT_PACKED(T, 2) SMELT_PACKED(T, 3) SMELT_PACKED(T, 4)
SMELT_PACKEDS(half)
SMELT_PACKEDS(bfloat)
SMELT_PACKEDS(float)
SMELT_PACKEDS(char)
SMELT_PACKEDS(uchar)
SMELT_PACKEDS(short)
SMELT_PACKEDS(ushort)
SMELT_PACKEDS(int)
SMELT_PACKEDS(uint)

template <class T> struct unqualified {
    typedef T type;
};
template <class T> struct unqualified<const T> {
    typedef T type;
};
template <class D, int N, class... A> D construct(A...) {
    constexpr int n = (0 + ... + components<typename unqualified<A>::type>::count);
    static_assert(n == N || (sizeof...(A) == 1 && n == 1), "vector constructor: wrong number of components");
    return D{};
}
#define SMELT_CONSTRUCT(T, N)                                                                                          \
    template <class... A> T##N construct_##T##N(A... a) { return construct<T##N, N>(a...); }
#define SMELT_CONSTRUCTS(T) SMELT_CONSTRUCT(T, 2) SMELT_CONSTRUCT(T, 3) SMELT_CONSTRUCT(T, 4)
SMELT_CONSTRUCTS(half)
SMELT_CONSTRUCTS(float)
SMELT_CONSTRUCTS(int)
SMELT_CONSTRUCTS(uint)
SMELT_CONSTRUCTS(short)
SMELT_CONSTRUCTS(ushort)
SMELT_CONSTRUCTS(char)
SMELT_CONSTRUCTS(uchar)
SMELT_CONSTRUCTS(ulong)

template <class D, class S> D as_type(S) {
    static_assert(sizeof(D) == sizeof(S), "as_type: sizes differ");
    return D{};
}

#define SMELT_UNARY(f)                                                                                                 \
    float f(float);                                                                                                    \
    half f(half);                                                                                                      \
    template <class T> typename unqualified<T>::type f(T v);
#define SMELT_MATHS                                                                                                    \
    SMELT_UNARY(exp)                                                                                                   \
    SMELT_UNARY(exp2) SMELT_UNARY(log) SMELT_UNARY(log2) SMELT_UNARY(sin) SMELT_UNARY(cos) SMELT_UNARY(tan)            \
        SMELT_UNARY(tanh) SMELT_UNARY(sqrt) SMELT_UNARY(rsqrt) float                                                   \
        pow(float, float);                                                                                             \
    float sincos(float, __private float &);
namespace precise {
SMELT_MATHS
}
namespace fast {
SMELT_MATHS
}
SMELT_MATHS
SMELT_UNARY(floor)
SMELT_UNARY(ceil)
SMELT_UNARY(round)
SMELT_UNARY(rint)
SMELT_UNARY(trunc)
SMELT_UNARY(fabs)
SMELT_UNARY(erf)
float fma(float, float, float);
half fma(half, half, half);
template <class T> T fma(T, T, T);
template <class T> T min(T, T);
template <class T> T max(T, T);
template <class T> T clamp(T, T, T);
template <class T> T select(T, T, bool);
template <class T> T abs(T);
template <class T> T mix(T, T, T);
template <class T> T transpose(T); // taken names: a kernel that reuses one is ambiguous
template <class T> T rotate(T, T);
float dot(float2, float2);
float dot(float3, float3);
float dot(float4, float4);
half dot(half4, half4);
int popcount(uint);
int clz(uint);
bool isnan(float);
bool isinf(float);

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
template <class T> T simd_sum(T);
template <class T> T simd_max(T);
template <class T> T simd_min(T);
bool simd_any(bool);
bool simd_all(bool);
template <class T> T simd_shuffle(T, ushort);
template <class T> T simd_broadcast(T, ushort);
template <class T> T simd_broadcast_first(T);
template <class T> T simd_shuffle_xor(T, ushort);
template <class T> T simd_shuffle_down(T, ushort);
template <class T> T simd_shuffle_up(T, ushort);
template <class T> T simd_prefix_exclusive_sum(T);
template <class T> T simd_prefix_inclusive_sum(T);

template <class T, int R, int C> struct simdgroup_matrix {
    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T);
    T elements[2];
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int R, int C> simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T);
#define SMELT_MATRIX_MEMORY(space)                                                                                     \
    template <class T>                                                                                                 \
    void simdgroup_load(__private simdgroup_matrix<T, 8, 8> &, const space T *, ulong = 8, ulong2 = 0, bool = false);  \
    template <class T>                                                                                                 \
    void simdgroup_store(__private const simdgroup_matrix<T, 8, 8> &, space T *, ulong = 8, ulong2 = 0, bool = false);
SMELT_MATRIX_MEMORY(__global)
SMELT_MATRIX_MEMORY(__local)
template <class D, class A, class B>
void simdgroup_multiply(__private simdgroup_matrix<D, 8, 8> &, __private const simdgroup_matrix<A, 8, 8> &,
                        __private const simdgroup_matrix<B, 8, 8> &);
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(__private simdgroup_matrix<D, 8, 8> &, __private const simdgroup_matrix<A, 8, 8> &,
                                   __private const simdgroup_matrix<B, 8, 8> &,
                                   __private const simdgroup_matrix<C, 8, 8> &);

enum memory_order { memory_order_relaxed };
struct msl_atomic_uint {
    uint v;
};
struct msl_atomic_int {
    int v;
};
uint atomic_fetch_add_explicit(volatile __global msl_atomic_uint *, uint, memory_order);
uint atomic_fetch_add_explicit(volatile __local msl_atomic_uint *, uint, memory_order);
uint atomic_load_explicit(volatile __local msl_atomic_uint *, memory_order);
void atomic_store_explicit(volatile __local msl_atomic_uint *, uint, memory_order);

template <class T> constexpr bool is_function_constant_defined(T) { return true; }
} // namespace metal
using namespace metal;

#define half2(...) construct_half2(__VA_ARGS__)
#define half3(...) construct_half3(__VA_ARGS__)
#define half4(...) construct_half4(__VA_ARGS__)
#define float2(...) construct_float2(__VA_ARGS__)
#define float3(...) construct_float3(__VA_ARGS__)
#define float4(...) construct_float4(__VA_ARGS__)
#define uint2(...) construct_uint2(__VA_ARGS__)
#define uint3(...) construct_uint3(__VA_ARGS__)
#define uint4(...) construct_uint4(__VA_ARGS__)
#define int2(...) construct_int2(__VA_ARGS__)
#define int4(...) construct_int4(__VA_ARGS__)
#define ulong2(...) construct_ulong2(__VA_ARGS__)
#define ushort2(...) construct_ushort2(__VA_ARGS__)
#define ushort4(...) construct_ushort4(__VA_ARGS__)
#define char4(...) construct_char4(__VA_ARGS__)
#define uchar4(...) construct_uchar4(__VA_ARGS__)
