// Atomics, relaxed as in MSL. Threadgroups run on several OS threads, so that they
// are real ones.
#pragma once

namespace metal {
inline namespace MSL_VARIANT {

enum memory_order { memory_order_relaxed };

template <class T> struct atomic {
    static_assert(sizeof(T) <= 8, "atomic of more than 64 bits");
    alignas(sizeof(T)) T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
typedef atomic<ulong> atomic_ulong;

// A thread may wait for another by loading an atomic. Such loads are counted, because the
// other thread may never run: the launch then ends with an error.
#define MSL_WAITS(name)                                                                                                \
    do {                                                                                                               \
        msl::Worker *w = msl::current;                                                                                 \
        if (MSL_UNLIKELY(++w->waits > msl::max_waits))                                                                 \
            msl::waits_forever(w, name, file, line);                                                                   \
    } while (0)

template <class T>
MSL_INLINE T atomic_load_explicit(const volatile atomic<T> *p, memory_order, const char *file = __builtin_FILE(),
                                  uint32_t line = __builtin_LINE()) {
    MSL_WAITS("atomic_load_explicit");
    T v;
    __atomic_load(const_cast<T *>(&p->value), &v, __ATOMIC_RELAXED);
    return v;
}
template <class T> MSL_INLINE void atomic_store_explicit(volatile atomic<T> *p, same_t<T> v, memory_order) {
    __atomic_store(const_cast<T *>(&p->value), &v, __ATOMIC_RELAXED);
}
template <class T> MSL_INLINE T atomic_exchange_explicit(volatile atomic<T> *p, same_t<T> v, memory_order) {
    T old;
    __atomic_exchange(const_cast<T *>(&p->value), &v, &old, __ATOMIC_RELAXED);
    return old;
}
template <class T>
MSL_INLINE bool atomic_compare_exchange_weak_explicit(volatile atomic<T> *p, T *expected, same_t<T> v, memory_order,
                                                      memory_order, const char *file = __builtin_FILE(),
                                                      uint32_t line = __builtin_LINE()) {
    MSL_WAITS("atomic_compare_exchange_weak_explicit");
    return __atomic_compare_exchange(const_cast<T *>(&p->value), expected, &v, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED);
}
#undef MSL_WAITS

// update applies f until no other thread has interfered, and returns the old value.
template <class T, class F> MSL_INLINE T atomic_update(volatile atomic<T> *p, F f) {
    T *at = const_cast<T *>(&p->value), old, now;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    do
        now = f(old);
    while (!__atomic_compare_exchange(at, &old, &now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
#define MSL_FETCH(name, expr)                                                                                          \
    template <class T> MSL_INLINE T atomic_fetch_##name##_explicit(volatile atomic<T> *p, same_t<T> v, memory_order) { \
        return atomic_update(p, [=](T old) { return T(expr); });                                                       \
    }
MSL_FETCH(add, old + v)
MSL_FETCH(sub, old - v)
MSL_FETCH(min, v < old ? v : old)
MSL_FETCH(max, old < v ? v : old)
MSL_FETCH(and, old &v)
MSL_FETCH(or, old | v)
MSL_FETCH(xor, old ^ v)
#undef MSL_FETCH

} // namespace MSL_VARIANT
} // namespace metal
