// Barriers and operations in which the lanes of a simdgroup exchange values.
//
// Reductions combine lanes in a fixed tree over the lane index, so that the result
// does not depend on the order in which lanes run. Reading a lane that takes no part
// is undefined in Metal; here it yields bytes of 0xff, NaN in every floating type.
#pragma once

namespace metal {
inline namespace MSL_VARIANT {

enum class mem_flags : uint {
    mem_none = 0,
    mem_device = 1,
    mem_threadgroup = 2,
    mem_texture = 4,
    mem_threadgroup_imageblock = 8
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }

// mslgen adds the number of the call to the arguments of each operation. Its place in
// the source is a default argument, which is evaluated at the call.
#define MSL_PLACE uint32_t id, const char *file = __builtin_FILE(), uint32_t line = __builtin_LINE()
#define MSL_SITE(name) (msl::Site{name, file, line, id})

MSL_INLINE void threadgroup_barrier(mem_flags, MSL_PLACE) { msl::threadgroup_wait(MSL_SITE("threadgroup_barrier")); }
MSL_INLINE void simdgroup_barrier(mem_flags, MSL_PLACE) { msl::simdgroup_wait(MSL_SITE("simdgroup_barrier")); }

namespace simd_detail {

template <class T> MSL_INLINE T load(const unsigned char *slots, uint32_t lane) {
    T v;
    __builtin_memcpy(&v, slots + lane * sizeof(T), sizeof(T));
    return v;
}

template <class T> MSL_INLINE void store(unsigned char *slots, uint32_t lane, const T &v) {
    static_assert(sizeof(T) <= 16, "simdgroup operation on more than 16 bytes");
    __builtin_memcpy(slots + lane * sizeof(T), &v, sizeof(T));
}

// tree combines 32 values pairwise.
template <class T, class F> __attribute__((noinline)) void tree(unsigned char *slots, uint32_t active, T neutral, F f) {
    T v[32];
    __builtin_memcpy(&v, slots, sizeof v);
    if (active != ~0u)
        for (uint32_t i = 0; i < 32; i++)
            if (!(active >> i & 1))
                v[i] = neutral;
    for (int i = 0; i < 16; i++)
        v[i] = f(v[i], v[i + 16]);
    for (int i = 0; i < 8; i++)
        v[i] = f(v[i], v[i + 8]);
    for (int i = 0; i < 4; i++)
        v[i] = f(v[i], v[i + 4]);
    v[0] = f(f(v[0], v[2]), f(v[1], v[3]));
    __builtin_memcpy(slots + 32 * sizeof(T) - sizeof(T), &v[0], sizeof(T)); // the last slot: no one reads it any more
}

template <class T, class F> MSL_INLINE T reduce(const T &v, T neutral, msl::Site site, F f) {
    msl::Worker *w;
    const uint32_t half = msl::meet(
        site, [&](unsigned char *slots, uint32_t lane) { store(slots, lane, v); },
        [&](unsigned char *slots, unsigned char *result, uint32_t active) {
            tree<T, F>(slots, active, neutral, f);
            __builtin_memcpy(result, slots + 31 * sizeof(T), sizeof(T));
        });
    w = msl::current;
    return load<T>(w->simdgroup[w->tid / 32].result[half], 0);
}

struct Exchange {
    const unsigned char *slots;
    uint32_t active;
    uint32_t lane;
    template <class T> MSL_INLINE T at(uint32_t from) const {
        if (MSL_UNLIKELY(from > 31 || !(active >> from & 1))) {
            T v;
            __builtin_memset(&v, 0xff, sizeof v);
            return v;
        }
        return load<T>(slots, from);
    }
};

template <class T> MSL_INLINE Exchange exchange(const T &v, msl::Site site) {
    const uint32_t half = msl::meet(
        site, [&](unsigned char *slots, uint32_t lane) { store(slots, lane, v); },
        [](unsigned char *, unsigned char *, uint32_t) {});
    const msl::Worker *w = msl::current;
    const msl::Simdgroup &g = w->simdgroup[w->tid / 32];
    return {g.slots[half], g.active[half], w->tid % 32};
}

template <class T> struct element {
    typedef T type;
};
template <class T, int N> struct element<vec<T, N>> {
    typedef T type;
};
template <class T> using element_t = typename element<T>::type;

template <class T> constexpr element_t<T> highest() {
    if constexpr (is_floating_point_v<element_t<T>>)
        return numeric_limits<element_t<T>>::infinity();
    else
        return numeric_limits<element_t<T>>::max();
}
template <class T> constexpr element_t<T> lowest() {
    if constexpr (is_floating_point_v<element_t<T>>)
        return -numeric_limits<element_t<T>>::infinity();
    else
        return numeric_limits<element_t<T>>::lowest();
}

struct Add {
    template <class T> MSL_INLINE T operator()(const T &a, const T &b) const { return T(a + b); }
};
struct Multiply {
    template <class T> MSL_INLINE T operator()(const T &a, const T &b) const { return T(a * b); }
};
struct Least {
    template <class T> MSL_INLINE T operator()(const T &a, const T &b) const { return min(a, b); }
};
struct Greatest {
    template <class T> MSL_INLINE T operator()(const T &a, const T &b) const { return max(a, b); }
};
struct And {
    template <class T> MSL_INLINE T operator()(const T &a, const T &b) const { return T(a & b); }
};
struct Or {
    template <class T> MSL_INLINE T operator()(const T &a, const T &b) const { return T(a | b); }
};
struct Xor {
    template <class T> MSL_INLINE T operator()(const T &a, const T &b) const { return T(a ^ b); }
};

// prefix combines the active lanes below this one, in order of their index.
template <class T, class F> MSL_INLINE T prefix(const T &v, T neutral, bool inclusive, msl::Site site, F f) {
    const Exchange e = exchange(v, site);
    T r = neutral;
    for (uint32_t i = 0; i < e.lane; i++)
        if (e.active >> i & 1)
            r = f(r, load<T>(e.slots, i));
    return inclusive ? f(r, v) : r;
}

} // namespace simd_detail

#define MSL_REDUCTION(name, F, neutral)                                                                                \
    template <class T> MSL_INLINE T simd_##name(T v, MSL_PLACE) {                                                      \
        return simd_detail::reduce(v, T(neutral), MSL_SITE("simd_" #name), simd_detail::F());                          \
    }
MSL_REDUCTION(sum, Add, 0)
MSL_REDUCTION(product, Multiply, 1)
MSL_REDUCTION(min, Least, simd_detail::highest<T>())
MSL_REDUCTION(max, Greatest, simd_detail::lowest<T>())
MSL_REDUCTION(and, And, simd_detail::element_t<T>(~simd_detail::element_t<T>(0)))
MSL_REDUCTION(or, Or, 0)
MSL_REDUCTION(xor, Xor, 0)
#undef MSL_REDUCTION

#define MSL_PREFIX(name, F, neutral)                                                                                   \
    template <class T> MSL_INLINE T simd_prefix_inclusive_##name(T v, MSL_PLACE) {                                     \
        return simd_detail::prefix(v, T(neutral), true, MSL_SITE("simd_prefix_inclusive_" #name), simd_detail::F());   \
    }                                                                                                                  \
    template <class T> MSL_INLINE T simd_prefix_exclusive_##name(T v, MSL_PLACE) {                                     \
        return simd_detail::prefix(v, T(neutral), false, MSL_SITE("simd_prefix_exclusive_" #name), simd_detail::F());  \
    }
MSL_PREFIX(sum, Add, 0)
MSL_PREFIX(product, Multiply, 1)
#undef MSL_PREFIX

template <class T> MSL_INLINE T simd_shuffle(T v, ushort lane, MSL_PLACE) {
    return simd_detail::exchange(v, MSL_SITE("simd_shuffle")).template at<T>(lane);
}
template <class T> MSL_INLINE T simd_broadcast(T v, ushort lane, MSL_PLACE) {
    return simd_detail::exchange(v, MSL_SITE("simd_broadcast")).template at<T>(lane);
}
template <class T> MSL_INLINE T simd_broadcast_first(T v, MSL_PLACE) {
    const auto e = simd_detail::exchange(v, MSL_SITE("simd_broadcast_first"));
    return e.template at<T>(uint32_t(__builtin_ctz(e.active)));
}
template <class T> MSL_INLINE T simd_shuffle_xor(T v, ushort mask, MSL_PLACE) {
    const auto e = simd_detail::exchange(v, MSL_SITE("simd_shuffle_xor"));
    return e.template at<T>(e.lane ^ mask);
}
// Lanes that would read past the end keep their own value.
template <class T> MSL_INLINE T simd_shuffle_down(T v, ushort delta, MSL_PLACE) {
    const auto e = simd_detail::exchange(v, MSL_SITE("simd_shuffle_down"));
    return e.lane + delta > 31 ? v : e.template at<T>(e.lane + delta);
}
template <class T> MSL_INLINE T simd_shuffle_up(T v, ushort delta, MSL_PLACE) {
    const auto e = simd_detail::exchange(v, MSL_SITE("simd_shuffle_up"));
    return e.lane < delta ? v : e.template at<T>(e.lane - delta);
}
template <class T> MSL_INLINE T simd_shuffle_rotate_down(T v, ushort delta, MSL_PLACE) {
    const auto e = simd_detail::exchange(v, MSL_SITE("simd_shuffle_rotate_down"));
    return e.template at<T>((e.lane + delta) & 31);
}
template <class T> MSL_INLINE T simd_shuffle_rotate_up(T v, ushort delta, MSL_PLACE) {
    const auto e = simd_detail::exchange(v, MSL_SITE("simd_shuffle_rotate_up"));
    return e.template at<T>((e.lane - delta) & 31);
}
template <class T> MSL_INLINE T simd_shuffle_and_fill_down(T v, T fill, ushort delta, MSL_PLACE) {
    const auto e = simd_detail::exchange(v, MSL_SITE("simd_shuffle_and_fill_down"));
    const auto f = simd_detail::exchange(fill, MSL_SITE("simd_shuffle_and_fill_down"));
    return e.lane + delta > 31 ? f.template at<T>(e.lane + delta - 32) : e.template at<T>(e.lane + delta);
}
template <class T> MSL_INLINE T simd_shuffle_and_fill_up(T v, T fill, ushort delta, MSL_PLACE) {
    const auto e = simd_detail::exchange(v, MSL_SITE("simd_shuffle_and_fill_up"));
    const auto f = simd_detail::exchange(fill, MSL_SITE("simd_shuffle_and_fill_up"));
    return e.lane < delta ? f.template at<T>(e.lane + 32 - delta) : e.template at<T>(e.lane - delta);
}

class simd_vote {
public:
    typedef ulong vote_t;
    explicit constexpr simd_vote(vote_t v = 0, uint32_t active = ~0u) : votes(v), active(active) {}
    explicit constexpr operator vote_t() const { return votes; }
    constexpr bool all() const { return votes == active; }
    constexpr bool any() const { return votes != 0; }

private:
    vote_t votes;
    uint32_t active;
};
MSL_INLINE uint32_t simd_votes(bool v, msl::Site site) {
    return simd_detail::reduce(uint32_t(v) << msl::lane(), 0u, site, simd_detail::Or());
}
MSL_INLINE simd_vote simd_ballot(bool v, MSL_PLACE) { return simd_vote(simd_votes(v, MSL_SITE("simd_ballot"))); }
MSL_INLINE simd_vote simd_active_threads_mask(MSL_PLACE) {
    return simd_vote(simd_votes(true, MSL_SITE("simd_active_threads_mask")));
}
MSL_INLINE bool simd_any(bool v, MSL_PLACE) { return simd_votes(v, MSL_SITE("simd_any")) != 0; }
MSL_INLINE bool simd_all(bool v, MSL_PLACE) { return simd_votes(!v, MSL_SITE("simd_all")) == 0; }
MSL_INLINE bool simd_is_first(MSL_PLACE) {
    return msl::lane() == uint32_t(__builtin_ctz(simd_votes(true, MSL_SITE("simd_is_first"))));
}

// Quads of lanes. All quads of a simdgroup meet at once: a quad operation in control
// flow that other quads of the simdgroup do not share counts as divergence.
#define MSL_QUAD(name, F)                                                                                              \
    template <class T> MSL_INLINE T quad_##name(T v, MSL_PLACE) {                                                      \
        const auto e = simd_detail::exchange(v, MSL_SITE("quad_" #name));                                              \
        const uint32_t base = e.lane & ~3u;                                                                            \
        bool first = true;                                                                                             \
        T r = v;                                                                                                       \
        for (uint32_t i = base; i < base + 4; i++)                                                                     \
            if (e.active >> i & 1) {                                                                                   \
                const T x = simd_detail::load<T>(e.slots, i);                                                          \
                r = first ? x : simd_detail::F()(r, x);                                                                \
                first = false;                                                                                         \
            }                                                                                                          \
        return r;                                                                                                      \
    }
MSL_QUAD(sum, Add)
MSL_QUAD(product, Multiply)
MSL_QUAD(min, Least)
MSL_QUAD(max, Greatest)
#undef MSL_QUAD
template <class T> MSL_INLINE T quad_broadcast(T v, ushort lane, MSL_PLACE) {
    const auto e = simd_detail::exchange(v, MSL_SITE("quad_broadcast"));
    return e.template at<T>((e.lane & ~3u) + lane);
}
template <class T> MSL_INLINE T quad_shuffle(T v, ushort lane, MSL_PLACE) {
    const auto e = simd_detail::exchange(v, MSL_SITE("quad_shuffle"));
    return e.template at<T>((e.lane & ~3u) + lane);
}
template <class T> MSL_INLINE T quad_shuffle_xor(T v, ushort mask, MSL_PLACE) {
    const auto e = simd_detail::exchange(v, MSL_SITE("quad_shuffle_xor"));
    return e.template at<T>(e.lane ^ (mask & 3));
}

} // namespace MSL_VARIANT
} // namespace metal
