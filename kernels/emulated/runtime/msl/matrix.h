// simdgroup_matrix: 8×8 tiles that belong to a simdgroup.
//
// Lane 0 owns the tile and does all the work when it runs; for the other lanes
// the operations are empty. That is correct if the kernel has the barriers that
// Metal requires between plain accesses and simdgroup_load or simdgroup_store.
// Elements are float, which represents every half and bfloat exactly.
//
// thread_elements() distributes the tile, two elements per lane; the next operation
// on the matrix gathers them. Both synchronise the lanes. The mapping is
// the one that Apple's GPUs use: lane l has row (l/4 & 4) + (l/2)%4 and columns
// (l/4 & 2)·2 + (l%2)·2 and the next. Units that never call it (mslgen defines
// MSL_WHOLE_TILES) avoid the bookkeeping.
#pragma once

namespace metal {
inline namespace MSL_VARIANT {
#ifdef MSL_WHOLE_TILES
inline namespace whole_tiles {
#else
inline namespace dealt_tiles {
#endif

namespace matrix_detail {

typedef float row_t __attribute__((vector_size(32)));
typedef float unaligned_row_t __attribute__((vector_size(32), aligned(4), may_alias));

MSL_INLINE void load_row(float *to, const float *from) { __builtin_memcpy(to, from, 32); }
MSL_INLINE void load_row(float *to, const half *from) {
#ifdef __F16C__
    typedef short unaligned __attribute__((vector_size(16), aligned(2), may_alias));
    *reinterpret_cast<unaligned_row_t *>(to) = __builtin_ia32_vcvtph2ps256(*reinterpret_cast<const unaligned *>(from));
#else
    for (int i = 0; i < 8; i++)
        to[i] = float(from[i]);
#endif
}
MSL_INLINE void load_row(float *to, const bfloat *from) {
    for (int i = 0; i < 8; i++)
        to[i] = float(from[i]);
}
template <class T> MSL_INLINE void store_row(T *to, const float *from) {
    for (int i = 0; i < 8; i++)
        to[i] = T(from[i]);
}
MSL_INLINE void store_row(float *to, const float *from) { __builtin_memcpy(to, from, 32); }

MSL_INLINE uint32_t row_of(uint32_t lane) { return (lane >> 2 & 4) + (lane >> 1 & 3); }
MSL_INLINE uint32_t column_of(uint32_t lane) { return (lane >> 2 & 2) * 2 + (lane & 1) * 2; }

} // namespace matrix_detail

template <class T, int Cols, int Rows> struct simdgroup_matrix {
    static_assert(Cols == 8 && Rows == 8 && is_floating_point_v<T>, "Metal has 8x8 tiles of float, half and bfloat");
    alignas(32) float tile[64]; // row by row, of lane 0
#ifdef MSL_WHOLE_TILES
    MSL_INLINE void own_tile() {}
    MSL_INLINE void collect() const {}
#else
    vec<T, 2> own;      // elements of this lane while dealt
    bool dealt = false; // the same in all lanes

    // own_tile makes lane 0's tile the one that counts.
    MSL_INLINE void own_tile() { dealt = false; }
    // collect brings dealt elements back into the tile.
    MSL_INLINE void collect() const {
        if (MSL_UNLIKELY(dealt))
            const_cast<simdgroup_matrix *>(this)->gather();
    }
    // thread_elements returns this lane's two elements, which it may change.
    MSL_INLINE vec<T, 2> &thread_elements(MSL_PLACE) {
        if (!dealt)
            deal(MSL_SITE("thread_elements"));
        return own;
    }
#endif

    MSL_INLINE simdgroup_matrix() {}
    explicit MSL_INLINE simdgroup_matrix(T diagonal) {
        if (msl::lane() == 0)
            for (int i = 0; i < 64; i++)
                tile[i] = i % 9 == 0 ? float(diagonal) : 0.0f;
    }
    MSL_INLINE simdgroup_matrix(const simdgroup_matrix &m) { copy(m); }
    MSL_INLINE simdgroup_matrix &operator=(const simdgroup_matrix &m) {
        if (&m != this)
            copy(m);
        return *this;
    }

private:
    MSL_INLINE void copy(const simdgroup_matrix &m) {
        if (msl::lane() == 0)
            __builtin_memcpy(tile, m.tile, sizeof tile);
#ifndef MSL_WHOLE_TILES
        own = m.own;
        dealt = m.dealt;
#endif
    }
#ifndef MSL_WHOLE_TILES

    __attribute__((noinline)) void deal(msl::Site site) {
        const uint32_t half = msl::meet(
            site,
            [this](unsigned char *slots, uint32_t lane) {
                if (lane == 0)
                    __builtin_memcpy(slots, tile, sizeof tile);
            },
            [](unsigned char *, unsigned char *, uint32_t) {});
        msl::Worker *w = msl::current;
        const uint32_t lane = w->tid % 32;
        float pair[2];
        __builtin_memcpy(pair,
                         w->simdgroup[w->tid / 32].slots[half] +
                             (matrix_detail::row_of(lane) * 8 + matrix_detail::column_of(lane)) * sizeof(float),
                         sizeof pair);
        own = vec<T, 2>(T(pair[0]), T(pair[1]));
        dealt = true;
    }

    __attribute__((noinline)) void gather() {
        const uint32_t half = msl::meet(
            msl::Site{"use of a matrix after thread_elements", "?", 0, ~0u},
            [this](unsigned char *slots, uint32_t lane) {
                const float pair[2] = {float(own.x), float(own.y)};
                __builtin_memcpy(slots + lane * sizeof pair, pair, sizeof pair);
            },
            [](unsigned char *, unsigned char *, uint32_t) {});
        msl::Worker *w = msl::current;
        if (w->tid % 32 == 0)
            for (uint32_t lane = 0; lane < 32; lane++)
                __builtin_memcpy(tile + matrix_detail::row_of(lane) * 8 + matrix_detail::column_of(lane),
                                 w->simdgroup[w->tid / 32].slots[half] + lane * 8, 8);
        dealt = false;
    }
#endif
};

typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int Cols, int Rows> MSL_INLINE simdgroup_matrix<T, Cols, Rows> make_filled_simdgroup_matrix(T v) {
    simdgroup_matrix<T, Cols, Rows> m;
    if (msl::lane() == 0)
        for (float &x : m.tile)
            x = float(v);
    return m;
}

// matrix_origin is (column, row) of the tile in memory.
template <class T>
MSL_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8> &m, const T *from, ulong elements_per_row = 8,
                               ulong2 matrix_origin = ulong2(0, 0), bool transpose_matrix = false) {
    m.own_tile();
    if (msl::lane() != 0)
        return;
    from += matrix_origin.y * elements_per_row + matrix_origin.x;
    MSL_TRACE(msl::CountedTile tile(from, elements_per_row * sizeof(T), 8 * sizeof(T), false);)
    if (!transpose_matrix) {
        for (int r = 0; r < 8; r++)
            matrix_detail::load_row(m.tile + r * 8, from + r * elements_per_row);
        return;
    }
    float row[8];
    for (int r = 0; r < 8; r++) {
        matrix_detail::load_row(row, from + r * elements_per_row);
        for (int c = 0; c < 8; c++)
            m.tile[c * 8 + r] = row[c];
    }
}

template <class T>
MSL_INLINE void simdgroup_store(const simdgroup_matrix<T, 8, 8> &m, T *to, ulong elements_per_row = 8,
                                ulong2 matrix_origin = ulong2(0, 0), bool transpose_matrix = false) {
    m.collect();
    if (msl::lane() != 0)
        return;
    to += matrix_origin.y * elements_per_row + matrix_origin.x;
    MSL_TRACE(msl::CountedTile tile(to, elements_per_row * sizeof(T), 8 * sizeof(T), true);)
    float row[8];
    for (int r = 0; r < 8; r++) {
        if (transpose_matrix)
            for (int c = 0; c < 8; c++)
                row[c] = m.tile[c * 8 + r];
        else
            __builtin_memcpy(row, m.tile + r * 8, sizeof row);
        matrix_detail::store_row(to + r * elements_per_row, row);
    }
}

namespace matrix_detail {

// d = a·b + c, products summed in order of k on top of c, in float; rounded to D's type at the end.
template <class D>
__attribute__((noinline)) MSL_UNTRACED void multiply(float *d, const float *a, const float *b, const float *c) {
    row_t rows[8];
    for (int k = 0; k < 8; k++)
        rows[k] = *reinterpret_cast<const row_t *>(b + k * 8);
    row_t sums[8];
    for (int i = 0; i < 8; i++) {
        row_t s = c ? *reinterpret_cast<const row_t *>(c + i * 8) : row_t{};
        for (int k = 0; k < 8; k++)
            s += a[i * 8 + k] * rows[k];
        sums[i] = s;
    }
    for (int i = 0; i < 8; i++)
        *reinterpret_cast<row_t *>(d + i * 8) = sums[i];
    if constexpr (!is_same_v<D, float>)
        for (int i = 0; i < 64; i++)
            d[i] = float(D(d[i]));
}

} // namespace matrix_detail

template <class D, class A, class B, class C>
MSL_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                                              const simdgroup_matrix<B, 8, 8> &b, const simdgroup_matrix<C, 8, 8> &c) {
    a.collect();
    b.collect();
    c.collect();
    d.own_tile();
    if (msl::lane() == 0)
        matrix_detail::multiply<D>(d.tile, a.tile, b.tile, c.tile);
}
template <class D, class A, class B>
MSL_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                                   const simdgroup_matrix<B, 8, 8> &b) {
    a.collect();
    b.collect();
    d.own_tile();
    if (msl::lane() == 0)
        matrix_detail::multiply<D>(d.tile, a.tile, b.tile, nullptr);
}
template <class T>
MSL_INLINE simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8> &a, const simdgroup_matrix<T, 8, 8> &b) {
    simdgroup_matrix<T, 8, 8> d;
    simdgroup_multiply(d, a, b);
    return d;
}

} // namespace whole_tiles, dealt_tiles
} // namespace MSL_VARIANT
} // namespace metal
