#include "sum.h"

#include <string.h>

namespace {

constexpr size_t LINE = 64, STRIDE = 4 * LINE; // what a stream reads at a time

// An attribute of vectors is lost in a template's arguments, so they go by a member.
template <int WIDTH> struct vector_of {
    typedef uint64_t type __attribute__((vector_size(WIDTH)));
};

// The sums stay in registers: through memory, they would be what is measured. Each has
// its own chain, so that a load waits for no other.
template <int WIDTH, int STREAMS, bool PREFETCH>
__attribute__((always_inline)) inline uint64_t sum(const uint8_t *p, size_t bytes, size_t ahead) {
    typedef typename vector_of<WIDTH>::type vector;
    constexpr size_t VECTORS = STRIDE / WIDTH, CHAINS = VECTORS < 8 ? VECTORS : 8;
    vector sums[CHAINS] = {}, v;
    size_t part = bytes / STREAMS / STRIDE * STRIDE;
    for (size_t i = 0; i < part; i += STRIDE) {
        _Pragma("GCC unroll 4") for (size_t s = 0; s < STREAMS; s++) {
            const uint8_t *from = p + s * part + i;
            if (PREFETCH)
                _Pragma("GCC unroll 4") for (size_t l = 0; l < STRIDE; l += LINE)
                    __builtin_prefetch(from + ahead + l, 0, 2);
            _Pragma("GCC unroll 16") for (size_t j = 0; j < VECTORS; j++) {
                memcpy(&v, from + j * WIDTH, WIDTH);
                sums[j % CHAINS] += v;
            }
        }
    }
    uint64_t sum = 0, word;
    for (size_t i = STREAMS * part; i + 8 <= bytes; i += 8) {
        memcpy(&word, p + i, 8);
        sum += word;
    }
    for (size_t c = 0; c < CHAINS; c++)
        for (size_t j = 0; j < WIDTH / 8; j++)
            sum += sums[c][j];
    return sum;
}

template <int WIDTH, int STREAMS>
__attribute__((always_inline)) inline uint64_t either(const uint8_t *p, size_t bytes, size_t ahead) {
    return ahead != 0 ? sum<WIDTH, STREAMS, true>(p, bytes, ahead) : sum<WIDTH, STREAMS, false>(p, bytes, 0);
}

// Defines the sums of a width, as instructions of a target: what is inlined into the
// function is compiled for it.
#define DEFINE_SUMS(NAME, TARGET, WIDTH)                                                                               \
    TARGET uint64_t NAME(const uint8_t *p, size_t bytes, int streams, size_t ahead) {                                  \
        switch (streams) {                                                                                             \
        case 1:                                                                                                        \
            return either<WIDTH, 1>(p, bytes, ahead);                                                                  \
        case 2:                                                                                                        \
            return either<WIDTH, 2>(p, bytes, ahead);                                                                  \
        case 4:                                                                                                        \
            return either<WIDTH, 4>(p, bytes, ahead);                                                                  \
        }                                                                                                              \
        return 0;                                                                                                      \
    }

DEFINE_SUMS(sum16, , 16)
#if defined(__x86_64__)
DEFINE_SUMS(sum32, __attribute__((target("avx2"))), 32)
DEFINE_SUMS(sum64, __attribute__((target("avx512f"))), 64)
#endif

} // namespace

int limits_widths(void) {
    int widths = 16;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        widths |= 32;
    if (__builtin_cpu_supports("avx512f"))
        widths |= 64;
#endif
    return widths;
}

uint64_t limits_sum(const uint8_t *p, size_t bytes, int width, int streams, size_t ahead) {
    switch (width) {
    case 16:
        return sum16(p, bytes, streams, ahead);
#if defined(__x86_64__)
    case 32:
        return sum32(p, bytes, streams, ahead);
    case 64:
        return sum64(p, bytes, streams, ahead);
#endif
    }
    return 0;
}
