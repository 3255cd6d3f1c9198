// linear_vec of a mixture of experts: weights are stacks, and each token is multiplied with the
// matrices of a few experts.
//
// A pair is a token and one of its experts. Stage one sorts the pairs by expert and prepares
// their rows of x as if each expert were a launch; stage two multiplies each expert that has
// tokens, with the code of linear.h. A weight is therefore read once for all tokens of its
// expert, and not at all without any. The results of a mixed token are added in the order of
// experts, which does not depend on the batch.

struct Mixture {
    // The pairs of an expert, in their order; of a single token each pair has an entry.
    struct Entry {
        uint32_t expert, first, count;
    };
    Linear all; // whose act, normalised and weights are those of all experts
    uint32_t experts, top;
    bool each, mixed;
    uint64_t tokens, pairs;
    const int32_t *expert; // [pairs]
    const float *share, *x;
    // Results of stage one. Places are rows of out, shares their factors.
    Entry *entries;
    uint32_t *order, *places; // [pairs]
    float *shares;            // [pairs]
    uint64_t scratch;

    Mixture(const smelt_launch *l, const LinearArguments &of, void *shared) : all(l, of, shared) {
        experts = constant(l, of.fc_experts), top = constant(l, of.fc_top);
        each = constant(l, of.fc_each) != 0, mixed = constant(l, of.fc_mixed) != 0;
        pairs = all.p.tokens * uint64_t{mixed ? top : 1}, tokens = pairs / top;
        expert = buffer<const int32_t>(l, of.expert), share = buffer<const float>(l, of.share);
        x = buffer<const float>(l, of.x);
        Scratch room = {static_cast<uint8_t *>(shared), all.scratch};
        entries = static_cast<Entry *>(room.take(count() * sizeof(Entry)));
        order = static_cast<uint32_t *>(room.take(pairs * 4));
        places = mixed ? static_cast<uint32_t *>(room.take(pairs * 4)) : order;
        shares = static_cast<float *>(room.take(pairs * 4));
        scratch = room.end;
    }

    MEMBER uint64_t count() const { return tokens == 1 ? top : experts; } // of entries
    MEMBER uint32_t number(uint64_t pair) const { return static_cast<uint32_t>(expert[pair]); }
    MEMBER const float *row(uint64_t pair) const { return x + (each ? pair : pair / top) * all.p.x_stride; }

    void put(uint64_t at, uint64_t pair) const {
        order[at] = static_cast<uint32_t>(pair);
        if (mixed)
            places[at] = static_cast<uint32_t>(pair / top), shares[at] = share[pair];
    }

    // Writes an entry: of a single token the pair that as many come before, else all of an
    // expert's. A pair without an expert belongs to none.
    Entry collect(uint64_t entry) const {
        if (tokens > 1) {
            Entry e = {static_cast<uint32_t>(entry), 0, 0};
            for (uint64_t i = 0; i < pairs; i++)
                e.first += number(i) < entry;
            for (uint64_t i = 0; i < pairs; i++)
                if (number(i) == entry)
                    put(e.first + e.count++, i);
            return entries[entry] = e;
        }
        Entry e = {0, static_cast<uint32_t>(entry), 0};
        for (uint64_t pair = 0; pair < pairs; pair++) {
            uint64_t before = 0;
            for (uint64_t i = 0; i < pairs; i++)
                before += number(i) < number(pair) || (number(i) == number(pair) && i < pair);
            if (before == entry) {
                e.expert = number(pair), e.count = e.expert < experts;
                put(entry, pair);
            }
        }
        return entries[entry] = e;
    }

    // The product of an entry's tokens, as a launch without experts would have it.
    Linear product(const Entry &e) const {
        Linear job = all;
        const uint64_t at = tokens == 1 && !each ? 0 : e.first, k = all.p.k;
        job.p.tokens = job.act.tokens = job.shorts.tokens = e.count;
        job.act.few = e.count <= all.few;
        if (all.quantized) {
            job.act.q += at * k, job.act.scale += at * k / 32;
            for (int i = 0; i < all.correction_count; i++)
                job.act.extra[i] += at * k / 32 * static_cast<uint64_t>(all.corrections[i].groups);
        }
        if (all.any_shorts)
            job.shorts.q += at * all.shorts.length(), job.shorts.scale += at * all.shorts.length() / Shorts::BLOCK;
        if (all.normalised != nullptr)
            job.x = job.normalised += at * k;
        else
            job.x = row(order[e.first]);
        for (int i = 0; i < all.count; i++) {
            Linear::Weight &w = job.weights[i];
            w.column = 0;
            w.bytes += uint64_t{e.expert} * w.n * w.stride;
            if (w.bias != nullptr)
                w.bias += uint64_t{e.expert} * w.n;
        }
        return job;
    }
};

static void mixture_prepare(const smelt_launch *l, const Mixture &m, uint64_t begin, uint64_t end) {
    for (uint64_t entry = begin; entry < end; entry++) {
        const Mixture::Entry e = m.collect(entry);
        if (e.count == 0 || (m.tokens == 1 && !m.each && entry > 0))
            continue;
        const Linear job = m.product(e);
        for (uint32_t t = 0; t < e.count; t++)
            prepare_row(l, job, m.row(m.order[e.first + t]), t);
    }
    if (begin > 0 || m.mixed)
        return;
    float *out = buffer<float>(l, m.all.of.out);
    for (uint64_t pair = 0; pair < m.pairs; pair++)
        for (uint64_t i = 0; m.number(pair) >= m.experts && i < m.all.p.n0; i++)
            out[pair * m.all.p.out_stride + i] = __builtin_nanf("");
}

// Of rows that are mixed, groups of all experts; else groups of each that may have tokens.
static uint64_t mixture_units(const Mixture &m) { return m.all.groups() * (m.mixed ? 1 : least(m.count(), m.pairs)); }

static void mixture_multiply(const smelt_launch *l, const Mixture &m, uint64_t begin, uint64_t end) {
    float *out = buffer<float>(l, m.all.of.out);
    if (!m.mixed) {
        const uint64_t groups = m.all.groups();
        uint64_t used = 0;
        for (uint64_t i = 0; i < m.count(); i++) {
            const Mixture::Entry e = m.entries[i];
            const uint64_t first = used * groups;
            used += e.count > 0;
            if (e.count == 0 || first + groups <= begin || first >= end)
                continue;
            const uint64_t from = begin > first ? begin - first : 0, to = least(end - first, groups);
            multiply_run(m.product(e), 0, from, to - from, out, nullptr, {m.places + e.first, nullptr});
        }
        return;
    }
    const float *residual = m.all.residual ? buffer<const float>(l, m.all.of.residual) : nullptr;
    const uint64_t row = begin * ROWS, rows = least(end * ROWS, m.all.p.n0) - row;
    for (uint64_t t = 0; t < m.tokens; t++) {
        float *to = out + t * m.all.p.out_stride + row;
        bool lost = false;
        for (uint64_t i = 0; i < m.top; i++)
            lost |= m.number(t * m.top + i) >= m.experts;
        if (lost)
            for (uint64_t i = 0; i < rows; i++)
                to[i] = __builtin_nanf("");
        else if (residual == nullptr)
            memset(to, 0, rows * 4);
        else if (residual != out)
            memcpy(to, residual + (to - out), rows * 4);
    }
    for (uint64_t i = 0; i < m.count(); i++)
        if (const Mixture::Entry e = m.entries[i]; e.count > 0)
            multiply_run(m.product(e), 0, begin, end - begin, out, out, {m.places + e.first, m.shares + e.first});
}

// Which units of `multiply` read a weight in the order of its rows: groups of rows, of all weights
// one after the other but of a gate's two at once. Those of experts are read by each unit as its
// tokens want, unless all experts' are mixed.
static smelt_units readers(const smelt_launch *l, const LinearArguments &of, uint32_t argument) {
    if (constant(l, of.fc_experts) != 0 && constant(l, of.fc_mixed) == 0)
        return {0, 0};
    const LinearParams &p = params<LinearParams>(l, of.params);
    const uint32_t n[4] = {p.n0, p.n1, p.n2, p.n3};
    uint64_t first = 0;
    for (int i = 0; i < 4; i++) {
        const uint64_t groups = ceil_div(n[i], ROWS);
        if (of.w[i] == argument)
            return {first, groups};
        if (constant(l, of.fc_gated) == 0)
            first += groups;
    }
    return {0, 0};
}

// What the table of a set has for a family of products.
template <const LinearArguments &OF> static int linear_supports(const smelt_launch *l) {
    return linear_supports(l, OF);
}
template <const LinearArguments &OF> INLINE bool is_mixture(const smelt_launch *l) {
    return constant(l, OF.fc_experts) != 0;
}
template <const LinearArguments &OF> static size_t linear_shared(const smelt_launch *l) {
    return is_mixture<OF>(l) ? Mixture(l, OF, nullptr).scratch : Linear(l, OF, nullptr).scratch;
}
template <const LinearArguments &OF> static uint64_t prepare_units(const smelt_launch *l) {
    return is_mixture<OF>(l) ? Mixture(l, OF, nullptr).count() : prepare_units(Linear(l, OF, nullptr));
}
template <const LinearArguments &OF>
static void prepare(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    if (is_mixture<OF>(l))
        mixture_prepare(l, Mixture(l, OF, shared), begin, end);
    else
        prepare(l, Linear(l, OF, shared), begin, end);
}
template <const LinearArguments &OF> static smelt_units readers(const smelt_launch *l, uint32_t argument) {
    return readers(l, OF, argument);
}
template <const LinearArguments &OF> static uint64_t multiply_units(const smelt_launch *l) {
    return is_mixture<OF>(l) ? mixture_units(Mixture(l, OF, nullptr)) : multiply_units(Linear(l, OF, nullptr));
}
template <const LinearArguments &OF>
static void multiply(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    if (is_mixture<OF>(l))
        mixture_multiply(l, Mixture(l, OF, shared), begin, end);
    else
        multiply(l, Linear(l, OF, shared), begin, end);
}
