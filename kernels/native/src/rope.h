// Rotary position embedding, alone and with the writes of the KV cache.

// Cosine and sine of each pair's angle at one position, times the magnitude.
//
// Angles are formed and reduced to a quarter turn in double: at position 100 000 a
// float angle is off by 0.004. Polynomials: Cephes' sinf and cosf.
static void rope_table(uint32_t pairs, int32_t position, double ratio, float freq_scale, float magnitude,
                       const float *factors, float *cosines, float *sines) {
    double frequency = 1;
    double at[128];
    for (uint32_t i0 = 0; i0 < pairs; i0 += 128) {
        uint32_t n = static_cast<uint32_t>(least(128, pairs - i0));
        for (uint32_t i = 0; i < n; i++, frequency *= ratio)
            at[i] = frequency;
        if (factors != nullptr)
            for (uint32_t i = 0; i < n; i++)
                at[i] /= static_cast<double>(factors[i0 + i]);
        double scaled = static_cast<double>(position) * static_cast<double>(freq_scale);
        for (uint32_t i = 0; i < n; i++) {
            double angle = at[i] * scaled;
            // Adding 1.5·2^52 rounds to an integer and leaves it in the low bits.
            double turned = angle * 0.63661977236758134308 + 6755399441055744.0;
            uint64_t quarter;
            memcpy(&quarter, &turned, 8);
            double turns = turned - 6755399441055744.0;
            float r = static_cast<float>((angle - turns * 1.57079632679489655800) - turns * 6.12323399573676603587e-17);
            float z = r * r;
            float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
            float c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
                      0.5f * z + 1.0f;
            bool swap = quarter & 1;
            float cosine = swap ? s : c, sine = swap ? c : s;
            cosines[i0 + i] = ((quarter + 1) & 2 ? -cosine : cosine) * magnitude;
            sines[i0 + i] = (quarter & 2 ? -sine : sine) * magnitude;
        }
    }
}

// What the kernels that rotate have in common.
struct RopeArguments {
    uint32_t params, positions, factors;
    uint32_t fc_interleaved, fc_factors, fc_table, fc_positions;
};
#define ROPE_ARGUMENTS(FAMILY)                                                                                         \
    {FAMILY##_PARAMS,     FAMILY##_POSITIONS, FAMILY##_FACTORS,     FAMILY##_FC_INTERLEAVED,                           \
     FAMILY##_FC_FACTORS, FAMILY##_FC_TABLE,  FAMILY##_FC_POSITIONS}
constexpr RopeArguments ROPE = ROPE_ARGUMENTS(SMELT_ROPE);

// The frequencies of a launch: the ratio of neighbouring pairs' (1 with a table), and
// their divisors, or null.
struct Frequencies {
    double ratio;
    const float *factors;
};
template <class P> static Frequencies rope_frequencies(const smelt_launch *l, const P &p, const RopeArguments &of) {
    const bool table = constant(l, of.fc_table) != 0;
    Frequencies f = {1, nullptr};
    if (table || constant(l, of.fc_factors) != 0)
        f.factors = buffer<const float>(l, of.factors);
    if (!table && p.rotated != 0)
        f.ratio = __builtin_exp2(-2.0 * static_cast<double>(p.log2_theta) / p.rotated);
    return f;
}
// Reports whether sizes are supported, and positions and factors bound if enabled.
template <class P> static bool rope_holds(const smelt_launch *l, const P &p, const RopeArguments &of) {
    if (p.rotated % 2 != 0 || p.rotated > p.head || p.head > MAX_HEAD)
        return false;
    if ((constant(l, of.fc_table) != 0 || constant(l, of.fc_factors) != 0) &&
        !holds(l, of.factors, uint64_t{p.rotated} * 2))
        return false;
    return constant(l, of.fc_positions, 1) == 0 || holds(l, of.positions, uint64_t{p.tokens} * 4);
}
template <class P>
static int32_t rope_position(const smelt_launch *l, const P &p, const RopeArguments &of, uint64_t token) {
    return constant(l, of.fc_positions, 1) != 0 ? buffer<const int32_t>(l, of.positions)[token]
                                                : static_cast<int32_t>(p.first + static_cast<uint32_t>(token));
}

// Rotates the first `rotated` elements of a head; x and out may be the same.
static void rope_head(const float *x, float *out, uint32_t head, uint32_t rotated, bool interleaved,
                      const float *cosines, const float *sines) {
    uint32_t pairs = rotated / 2;
    if (interleaved) {
        for (uint32_t i = 0; i < pairs; i++) {
            float a = x[2 * i], b = x[2 * i + 1];
            out[2 * i] = a * cosines[i] - b * sines[i];
            out[2 * i + 1] = a * sines[i] + b * cosines[i];
        }
    } else {
        auto rotate = [&](uint32_t i, int n) __attribute__((always_inline)) {
            F a = load_n(x + i, n), b = load_n(x + pairs + i, n), c = load_n(cosines + i, n), s = load_n(sines + i, n);
            store_n(out + i, a * c - b * s, n);
            store_n(out + pairs + i, a * s + b * c, n);
        };
        uint32_t i = 0;
        for (; i + W <= pairs; i += W)
            rotate(i, W);
        if (i < pairs)
            rotate(i, static_cast<int>(pairs - i));
    }
    if (x != out)
        memcpy(out + rotated, x + rotated, (head - rotated) * 4);
}

static uint64_t rope_units(const smelt_launch *l) { return params<RopeParams>(l, SMELT_ROPE_PARAMS).tokens; }
static int rope_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_ROPE_PARAMS, sizeof(RopeParams)))
        return 0;
    const RopeParams &p = params<RopeParams>(l, SMELT_ROPE_PARAMS);
    uint64_t width = uint64_t{p.heads} * p.head;
    return rope_holds(l, p, ROPE) && holds(l, SMELT_ROPE_X, span(p.tokens, p.x_stride, width, 4)) &&
           holds(l, SMELT_ROPE_OUT, uint64_t{p.tokens} * width * 4);
}
static void rope(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const RopeParams &p = params<RopeParams>(l, SMELT_ROPE_PARAMS);
    const Frequencies f = rope_frequencies(l, p, ROPE);
    float cosines[MAX_HEAD / 2], sines[MAX_HEAD / 2];
    for (uint64_t t = begin; t < end; t++) {
        rope_table(p.rotated / 2, rope_position(l, p, ROPE, t), f.ratio, p.freq_scale, p.magnitude, f.factors, cosines,
                   sines);
        const float *x = buffer<const float>(l, SMELT_ROPE_X) + t * p.x_stride;
        float *out = buffer<float>(l, SMELT_ROPE_OUT) + t * p.heads * p.head;
        for (uint32_t h = 0; h < p.heads; h++)
            rope_head(x + h * p.head, out + h * p.head, p.head, p.rotated, constant(l, ROPE.fc_interleaved) != 0,
                      cosines, sines);
    }
}

// A token's row in the K or V cache for one KV head, or null where the slot is
// negative or outside the cache.
static uint8_t *cache_row(const smelt_launch *l, const Cache &c, uint32_t cache, int32_t slot, uint32_t kv_heads,
                          uint32_t kv, uint32_t block, uint32_t head) {
    if (slot < 0)
        return nullptr;
    uint64_t at = static_cast<uint32_t>(slot);
    uint64_t row = (at / block * kv_heads + kv) * block + at % block, bytes = c.row_bytes(head);
    return (row + 1) * bytes <= l->buffer_bytes[cache] ? buffer<uint8_t>(l, cache) + row * bytes : nullptr;
}

static uint64_t cache_write_units(const smelt_launch *l) {
    return params<CacheWriteParams>(l, SMELT_CACHE_WRITE_PARAMS).tokens;
}
static int cache_write_supports(const smelt_launch *l, const Cache &c) {
    if (!holds(l, SMELT_CACHE_WRITE_PARAMS, sizeof(CacheWriteParams)))
        return 0;
    const CacheWriteParams &p = params<CacheWriteParams>(l, SMELT_CACHE_WRITE_PARAMS);
    uint64_t width = uint64_t{p.kv_heads} * p.head;
    return p.block != 0 && c.whole_blocks(p.head) &&
           holds(l, SMELT_CACHE_WRITE_K, span(p.tokens, p.k_stride, width, 4)) &&
           holds(l, SMELT_CACHE_WRITE_V, span(p.tokens, p.v_stride, width, 4)) &&
           holds(l, SMELT_CACHE_WRITE_SLOTS, uint64_t{p.tokens} * 4) && holds(l, SMELT_CACHE_WRITE_K_CACHE, 1) &&
           holds(l, SMELT_CACHE_WRITE_V_CACHE, 1);
}
static void cache_write(const smelt_launch *l, uint64_t begin, uint64_t end, const Cache &c) {
    const CacheWriteParams &p = params<CacheWriteParams>(l, SMELT_CACHE_WRITE_PARAMS);
    for (uint64_t t = begin; t < end; t++) {
        int32_t slot = buffer<const int32_t>(l, SMELT_CACHE_WRITE_SLOTS)[t];
        for (uint32_t kv = 0; kv < p.kv_heads; kv++) {
            uint8_t *k = cache_row(l, c, SMELT_CACHE_WRITE_K_CACHE, slot, p.kv_heads, kv, p.block, p.head);
            uint8_t *v = cache_row(l, c, SMELT_CACHE_WRITE_V_CACHE, slot, p.kv_heads, kv, p.block, p.head);
            if (k == nullptr || v == nullptr)
                continue;
            c.narrow(buffer<const float>(l, SMELT_CACHE_WRITE_K) + t * p.k_stride + kv * p.head, k, p.head);
            c.narrow(buffer<const float>(l, SMELT_CACHE_WRITE_V) + t * p.v_stride + kv * p.head, v, p.head);
        }
    }
}

// Whole blocks of both caches, copied. A unit is the keys of a pair or its values; those that lie
// outside of the cache are left out.
static uint64_t copy_blocks_units(const smelt_launch *l) {
    return uint64_t{params<CopyBlocksParams>(l, SMELT_COPY_BLOCKS_PARAMS).pairs} * 2;
}
static int copy_blocks_supports(const smelt_launch *l, const Cache &c) {
    if (!holds(l, SMELT_COPY_BLOCKS_PARAMS, sizeof(CopyBlocksParams)))
        return 0;
    const CopyBlocksParams &p = params<CopyBlocksParams>(l, SMELT_COPY_BLOCKS_PARAMS);
    return p.width != 0 && p.width <= p.block_stride && c.whole_blocks(p.width) && c.whole_blocks(p.block_stride) &&
           holds(l, SMELT_COPY_BLOCKS_PAIRS, uint64_t{p.pairs} * 8);
}
static void copy_blocks(const smelt_launch *l, uint64_t begin, uint64_t end, const Cache &c) {
    const CopyBlocksParams &p = params<CopyBlocksParams>(l, SMELT_COPY_BLOCKS_PARAMS);
    const uint64_t stride = c.row_bytes(p.block_stride);
    for (uint64_t u = begin; u < end; u++) {
        const uint32_t *pair = buffer<const uint32_t>(l, SMELT_COPY_BLOCKS_PAIRS) + u / 2 * 2;
        const uint32_t from = u % 2 == 0 ? SMELT_COPY_BLOCKS_K_FROM : SMELT_COPY_BLOCKS_V_FROM;
        const uint32_t to = u % 2 == 0 ? SMELT_COPY_BLOCKS_K_CACHE : SMELT_COPY_BLOCKS_V_CACHE;
        if (pair[0] < l->buffer_bytes[from] / stride && pair[1] < l->buffer_bytes[to] / stride)
            memcpy(buffer<uint8_t>(l, to) + pair[1] * stride, buffer<const uint8_t>(l, from) + pair[0] * stride,
                   c.row_bytes(p.width));
    }
}

// What the kernels that rotate and write the cache take. Without q_norm and k_norm heads
// are not normalised.
struct RopeWriteArguments {
    RopeArguments rope;
    uint32_t qkv, slots, q_out, k_cache, v_cache, k, v, q_norm, k_norm;
    uint32_t fc_slots, fc_separate, fc_all_heads, fc_norm_values;
};
#define ROPE_WRITE_ARGUMENTS(FAMILY, Q_NORM, K_NORM, ALL_HEADS, NORM_VALUES)                                           \
    {ROPE_ARGUMENTS(FAMILY), FAMILY##_QKV,         FAMILY##_SLOTS, FAMILY##_Q_OUT, FAMILY##_K_CACHE,                   \
     FAMILY##_V_CACHE,       FAMILY##_K,           FAMILY##_V,     Q_NORM,         K_NORM,                             \
     FAMILY##_FC_SLOTS,      FAMILY##_FC_SEPARATE, ALL_HEADS,      NORM_VALUES}
constexpr RopeWriteArguments ROPE_QKV_WRITE =
    ROPE_WRITE_ARGUMENTS(SMELT_ROPE_QKV_WRITE, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN);
constexpr RopeWriteArguments HEAD_NORM_ROPE_KV_WRITE = ROPE_WRITE_ARGUMENTS(
    SMELT_HEAD_NORM_ROPE_KV_WRITE, SMELT_HEAD_NORM_ROPE_KV_WRITE_Q_NORM, SMELT_HEAD_NORM_ROPE_KV_WRITE_K_NORM,
    SMELT_HEAD_NORM_ROPE_KV_WRITE_FC_ALL_HEADS, SMELT_HEAD_NORM_ROPE_KV_WRITE_FC_NORM_VALUES);

// Where K and V are: in buffers of their own, or behind Q.
struct RopeRows {
    uint32_t k, v;       // buffers
    uint64_t k_at, v_at; // elements before the first token's
};
static RopeRows rope_rows(const smelt_launch *l, const RopeWriteParams &p, const RopeWriteArguments &of) {
    if (constant(l, of.fc_separate) != 0)
        return {of.k, of.v, 0, 0};
    uint64_t queries = uint64_t{p.heads} * p.head;
    return {of.qkv, of.qkv, queries, queries + uint64_t{p.kv_heads} * p.head};
}

template <const RopeWriteArguments &OF> static uint64_t rope_write_units(const smelt_launch *l) {
    return params<RopeWriteParams>(l, OF.rope.params).tokens;
}
static int rope_write_supports(const smelt_launch *l, const Cache &c, const RopeWriteArguments &of) {
    if (!holds(l, of.rope.params, sizeof(RopeWriteParams)))
        return 0;
    const RopeWriteParams &p = params<RopeWriteParams>(l, of.rope.params);
    if (p.block == 0 || !c.whole_blocks(p.head) || !rope_holds(l, p, of.rope))
        return 0;
    if (constant(l, of.fc_slots, 1) != 0 && !holds(l, of.slots, uint64_t{p.tokens} * 4))
        return 0;
    const bool all_heads = constant(l, of.fc_all_heads) != 0;
    const uint32_t weights[] = {of.q_norm, of.k_norm}, heads[] = {p.heads, p.kv_heads};
    for (int i = 0; i < 2; i++)
        if (weights[i] != NOT_TAKEN && !holds(l, weights[i], (all_heads ? heads[i] : uint64_t{1}) * p.head * 4))
            return 0;
    const RopeRows rows = rope_rows(l, p, of);
    uint64_t queries = uint64_t{p.heads} * p.head, keys = uint64_t{p.kv_heads} * p.head;
    return holds(l, of.qkv, span(p.tokens, p.q_stride, queries, 4)) &&
           holds(l, rows.k, rows.k_at * 4 + span(p.tokens, p.k_stride, keys, 4)) &&
           holds(l, rows.v, rows.v_at * 4 + span(p.tokens, p.v_stride, keys, 4)) &&
           holds(l, of.q_out, uint64_t{p.tokens} * queries * 4) && holds(l, of.k_cache, 1) && holds(l, of.v_cache, 1);
}
static void rope_write(const smelt_launch *l, uint64_t begin, uint64_t end, const Cache &c,
                       const RopeWriteArguments &of) {
    const RopeWriteParams &p = params<RopeWriteParams>(l, of.rope.params);
    const bool interleaved = constant(l, of.rope.fc_interleaved) != 0, slotted = constant(l, of.fc_slots, 1) != 0;
    const bool all_heads = constant(l, of.fc_all_heads) != 0, norm_values = constant(l, of.fc_norm_values) != 0;
    const Frequencies f = rope_frequencies(l, p, of.rope);
    const RopeRows rows = rope_rows(l, p, of);
    float cosines[MAX_HEAD / 2], sines[MAX_HEAD / 2];
    alignas(64) float normalised[MAX_HEAD], rotated[MAX_HEAD];
    for (uint64_t t = begin; t < end; t++) {
        const int32_t position = rope_position(l, p, of.rope, t);
        rope_table(p.rotated / 2, position, f.ratio, p.freq_scale, p.magnitude, f.factors, cosines, sines);
        // A head of the next token, which other threads have written in tiles of rows.
        const auto expect = [&](const float *head) __attribute__((noinline)) {
            if (t + 1 < end)
                prefetch_lines(head, p.head * sizeof(float));
        };
        // Head h of a row, whose scale is that of all of its heads where they have one.
        auto turn = [&](const float *row, uint32_t h, float scale, uint32_t weight, float *to) {
            const float *from = row + h * p.head;
            if (weight != NOT_TAKEN) {
                const float *gain = buffer<const float>(l, weight) + (all_heads ? h * p.head : 0);
                scale_weighted(from, all_heads ? scale : rms_scale(from, p.head, p.eps), gain, normalised, p.head);
                from = normalised;
            }
            rope_head(from, to, p.head, p.rotated, interleaved, cosines, sines);
        };
        const float *q = buffer<const float>(l, of.qkv) + t * p.q_stride;
        float *out = buffer<float>(l, of.q_out) + t * p.heads * p.head;
        const float q_scale = all_heads ? rms_scale(q, p.heads * p.head, p.eps) : 0.0f;
        for (uint32_t h = 0; h < p.heads; h++) {
            expect(q + p.q_stride + h * p.head);
            expect(out + (p.heads + h) * p.head);
            turn(q, h, q_scale, of.q_norm, out + h * p.head);
        }
        const int32_t slot = slotted ? buffer<const int32_t>(l, of.slots)[t] : position;
        const float *keys = buffer<const float>(l, rows.k) + rows.k_at + t * p.k_stride;
        const float *values = buffer<const float>(l, rows.v) + rows.v_at + t * p.v_stride;
        const float k_scale = all_heads ? rms_scale(keys, p.kv_heads * p.head, p.eps) : 0.0f;
        for (uint32_t kv = 0; kv < p.kv_heads; kv++) {
            uint8_t *k = cache_row(l, c, of.k_cache, slot, p.kv_heads, kv, p.block, p.head);
            uint8_t *v = cache_row(l, c, of.v_cache, slot, p.kv_heads, kv, p.block, p.head);
            if (k == nullptr || v == nullptr)
                continue;
            expect(keys + p.k_stride + kv * p.head);
            expect(values + p.v_stride + kv * p.head);
            turn(keys, kv, k_scale, of.k_norm, rotated);
            c.narrow(rotated, k, p.head);
            const float *value = values + kv * p.head;
            if (norm_values) {
                const float scale = rms_scale(value, p.head, p.eps);
                map1(value, normalised, p.head, [=](F x) { return x * set1(scale); });
                value = normalised;
            }
            c.narrow(value, v, p.head);
        }
    }
}

// What latent_write takes that rotates.
constexpr RopeArguments LATENT_WRITE = {SMELT_LATENT_WRITE_PARAMS,
                                        SMELT_LATENT_WRITE_POSITIONS,
                                        SMELT_LATENT_WRITE_FACTORS,
                                        SMELT_LATENT_WRITE_FC_INTERLEAVED,
                                        SMELT_LATENT_WRITE_FC_FACTORS,
                                        SMELT_LATENT_WRITE_FC_TABLE,
                                        NOT_TAKEN};

static uint64_t latent_write_units(const smelt_launch *l) {
    return params<LatentWriteParams>(l, LATENT_WRITE.params).tokens;
}
static int latent_write_supports(const smelt_launch *l, const Cache &c) {
    if (!holds(l, LATENT_WRITE.params, sizeof(LatentWriteParams)))
        return 0;
    const LatentWriteParams &p = params<LatentWriteParams>(l, LATENT_WRITE.params);
    if (p.head > MAX_HEAD || p.rotated % 2 != 0 || p.rotated >= p.head || p.rotated > p.q_head || p.block == 0 ||
        !c.whole_blocks(p.head))
        return 0;
    if ((constant(l, LATENT_WRITE.fc_table) != 0 || constant(l, LATENT_WRITE.fc_factors) != 0) &&
        !holds(l, LATENT_WRITE.factors, uint64_t{p.rotated} * 2))
        return 0;
    const uint64_t rows = uint64_t{p.tokens} * p.heads, latent = p.head - p.rotated;
    return holds_rows(l, SMELT_LATENT_WRITE_ABSORBED, rows, latent * 4) &&
           holds_rows(l, SMELT_LATENT_WRITE_Q, rows, uint64_t{p.q_head} * 4) &&
           holds(l, SMELT_LATENT_WRITE_ALL, uint64_t{p.all_from} * 4 + span(p.tokens, p.all_stride, p.head, 4)) &&
           holds(l, SMELT_LATENT_WRITE_GAIN, latent * 4) && holds(l, LATENT_WRITE.positions, uint64_t{p.tokens} * 4) &&
           holds(l, SMELT_LATENT_WRITE_SLOTS, uint64_t{p.tokens} * 4) &&
           holds_rows(l, SMELT_LATENT_WRITE_Q_OUT, rows, uint64_t{p.head} * 4) &&
           holds(l, SMELT_LATENT_WRITE_K_CACHE, 1);
}
static void latent_write(const smelt_launch *l, uint64_t begin, uint64_t end, const Cache &c) {
    const LatentWriteParams &p = params<LatentWriteParams>(l, LATENT_WRITE.params);
    const bool interleaved = constant(l, LATENT_WRITE.fc_interleaved) != 0;
    const Frequencies f = rope_frequencies(l, p, LATENT_WRITE);
    const uint32_t latent = p.head - p.rotated;
    float cosines[MAX_HEAD / 2], sines[MAX_HEAD / 2];
    alignas(64) float row[MAX_HEAD];
    for (uint64_t t = begin; t < end; t++) {
        rope_table(p.rotated / 2, buffer<const int32_t>(l, LATENT_WRITE.positions)[t], f.ratio, p.freq_scale,
                   p.magnitude, f.factors, cosines, sines);
        const auto turn = [&](const float *from, float *to) {
            rope_head(from, to, p.rotated, p.rotated, interleaved, cosines, sines);
        };
        for (uint64_t h = t * p.heads; h < (t + 1) * p.heads; h++) {
            float *to = buffer<float>(l, SMELT_LATENT_WRITE_Q_OUT) + h * p.head;
            memcpy(to, buffer<const float>(l, SMELT_LATENT_WRITE_ABSORBED) + h * latent, latent * sizeof(float));
            turn(buffer<const float>(l, SMELT_LATENT_WRITE_Q) + (h + 1) * p.q_head - p.rotated, to + latent);
        }
        uint8_t *to = cache_row(l, c, SMELT_LATENT_WRITE_K_CACHE, buffer<const int32_t>(l, SMELT_LATENT_WRITE_SLOTS)[t],
                                1, 0, p.block, p.head);
        if (to == nullptr)
            continue;
        const float *from = buffer<const float>(l, SMELT_LATENT_WRITE_ALL) + t * p.all_stride + p.all_from;
        rms_normalise(from, buffer<const float>(l, SMELT_LATENT_WRITE_GAIN), row, latent, p.eps);
        turn(from + latent, row + latent);
        c.narrow(row, to, p.head);
    }
}
