// Tuning parameters of the processors of one instruction set, measured on each. They change the
// speed of kernels, not their results. See docs/performance.md, "A Zen 4 follows by itself".
struct Processor {
    uint64_t interleaved; // prefetch distance of interleaved weights in bytes; 0: the next block
    uint64_t together;    // the same where few tokens make long work of them
    uint64_t large_tile;  // bytes of a tile of values too large for early prefetch into the first-level cache
    bool halves;          // vectors of 512 bits are worked on in two halves
    bool pairs;           // while words are read again, for other bits of theirs, memory rests
};
constexpr Processor USUAL = {DISTANCE, DISTANCE, UINT64_MAX, false, false};
// It follows one or two streams by itself, and reads them 1.1 to 1.4 times as fast unasked. Its
// first-level cache has 32 KB.
constexpr Processor ZEN_4 = {0, 2048, 16384, true, true};

INLINE const Processor &processor() {
#if defined(__x86_64__)
    if (__builtin_cpu_is("amdfam19h") && __builtin_cpu_supports("avx512f")) // Zen 3, of this family, has none
        return ZEN_4;
#endif
    return USUAL;
}
