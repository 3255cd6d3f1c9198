// Included inside the namespace SET of one instruction set, like every header here but
// set.h and unit_*.h: the same names compiled for different instruction sets must never be
// merged by the linker. So none of them includes a system or a C++ library header; the
// set's own header does, outside the namespace.

#define INLINE static inline __attribute__((always_inline))
// Called from several places whose copies would do the same, none of them often.
#define NOINLINE __attribute__((noinline))
#define MEMBER inline __attribute__((always_inline))
// A function whose code is not worth having more than once, and one that is not worth much code.
#define APART __attribute__((noinline))
#define SMALL __attribute__((noinline, cold))
#define UNROLL _Pragma("GCC unroll 32")

// Asks for a cache line that will be read, or written, into the cache of a level and those
// behind it. g++ takes it for something without an effect, and leaves out functions and loops
// that do nothing else.
template <int WRITTEN = 0, int LEVEL = 2> INLINE void prefetch(const void *p) {
    static_assert(LEVEL == 1 || LEVEL == 2, "a level of __builtin_prefetch");
    __builtin_prefetch(p, WRITTEN, 4 - LEVEL);
    asm volatile("");
}
// Prefetches all cache lines of a range of bytes.
INLINE void prefetch_lines(const void *p, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += 64)
        prefetch(static_cast<const uint8_t *>(p) + i);
}

// What a stored quantized weight holds once unpacked to bytes: 0…15, 0…63, or the
// whole signed byte.
enum class Range { NIBBLE, SIX_BITS, SIGNED };

// Whether panels of a range hold absolute values and, separately, signs: sets specialise it.
template <Range R> struct Signs {
    static constexpr bool SPLIT = false;
};

// Blocks of a type of weights.
template <uint32_t NUMBER> struct Stored;
#define STORED(NAME, OF, SIZE)                                                                                         \
    template <> struct Stored<SMELT_##NAME> {                                                                          \
        static constexpr uint32_t TYPE = SMELT_##NAME, ELEMS = OF, BYTES = SIZE;                                       \
    };
SMELT_TYPES(STORED)
#undef STORED

constexpr uint32_t MAX_HEAD = 576, MAX_SMALL_HEAD = 256; // elements of a head, at most, and of those of a state

INLINE int32_t word(const int8_t *p) {
    int32_t v;
    memcpy(&v, p, 4);
    return v;
}
INLINE uint16_t half_bits(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}
INLINE int64_t four_halves(const uint8_t *p) {
    int64_t v;
    memcpy(&v, p, 8);
    return v;
}
INLINE constexpr uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
INLINE uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
INLINE uint64_t align64(uint64_t n) { return (n + 63) & ~uint64_t{63}; }

// Access to a launch, by the numbers of arguments.gen.h. A buffer that is not bound is null.

// The index, in code that kernels share, of an argument or constant that one of them does not
// have. It is never bound or set.
constexpr uint32_t NOT_TAKEN = UINT32_MAX;

template <class T> INLINE T *buffer(const smelt_launch *l, uint32_t i) {
    return i < l->buffer_count ? static_cast<T *>(l->buffers[i]) : nullptr;
}
template <class P> INLINE const P &params(const smelt_launch *l, uint32_t i) {
    return *static_cast<const P *>(l->buffers[i]);
}
INLINE bool is_set(const smelt_launch *l, uint32_t i) { return i < 32 && (l->constants_set >> i & 1) != 0; }
INLINE uint32_t constant(const smelt_launch *l, uint32_t i, uint32_t unset = 0) {
    return is_set(l, i) ? l->constants[i] : unset;
}
// Returns a buffer that a function constant enables, or null.
template <class T> INLINE T *optional(const smelt_launch *l, uint32_t fc, uint32_t i) {
    return constant(l, fc) != 0 ? buffer<T>(l, i) : nullptr;
}
INLINE bool is_interleaved(const smelt_launch *l, uint32_t i) { return (l->interleaved >> i & 1) != 0; }
INLINE bool holds(const smelt_launch *l, uint32_t i, uint64_t bytes) {
    return bytes == 0 || (i < l->buffer_count && l->buffers[i] != nullptr && l->buffer_bytes[i] >= bytes);
}
// The same for rows of `each` bytes, whose product may overflow 64 bits.
INLINE bool holds_rows(const smelt_launch *l, uint32_t i, uint64_t rows, uint64_t each) {
    return rows == 0 || each == 0 || (holds(l, i, each) && l->buffer_bytes[i] / each >= rows);
}
// Bytes of rows that lie `stride` elements apart, the last one `width` long.
INLINE uint64_t span(uint64_t rows, uint64_t stride, uint64_t width, uint64_t element) {
    return rows == 0 || width == 0 ? 0 : ((rows - 1) * stride + width) * element;
}

// Returns a hint of a launch, or the kernel's default.
INLINE uint64_t hint(const smelt_launch *l, int which, uint64_t otherwise) {
    return l->hints[which] != 0 ? l->hints[which] : otherwise;
}

// The maximum prefetch distance that a launch can set, in bytes.
constexpr uint64_t FARTHEST = 1 << 20;

// A number that the compiler must take for unknown, so that a loop up to it stays a loop.
INLINE int unknown(int n) {
    asm("" : "+r"(n));
    return n;
}

// Counts that a compiler knows.
template <int N> struct Int {
    static constexpr int value = N;
};
template <int N, int I0 = 0, class Fn> INLINE void repeat(Fn f) {
    if constexpr (I0 < N) {
        f(Int<I0>{});
        repeat<N, I0 + 1>(f);
    }
}

// Calls f(Int<n>{}) for 1 ≤ n ≤ MAX.
template <int MAX, class Fn> INLINE void with_count(uint32_t n, Fn f) {
    repeat<MAX>([&](auto i) {
        if (n == i.value + 1)
            f(Int<i.value + 1>{});
    });
}
// Calls f(Int<n>{}) for an n of MAX, or of halves of it down to 1.
template <int MAX, class Fn> INLINE void with_power(uint32_t n, Fn f) {
    if (n == MAX)
        f(Int<MAX>{});
    else if constexpr (MAX > 1)
        with_power<MAX / 2>(n, f);
}
// Cuts n into pieces of MAX, then of halves of it down to 1: f(start, Int<size>{}).
template <int MAX, class Fn> INLINE void in_pieces(uint32_t n, Fn f, uint32_t start = 0) {
    for (; start + MAX <= n; start += MAX)
        f(start, Int<MAX>{});
    if constexpr (MAX > 1)
        in_pieces<MAX / 2>(n, f, start);
}
