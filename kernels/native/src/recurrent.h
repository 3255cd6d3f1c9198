// Kernels of recurrent states, of which each block of the KV cache has one.

// Where a sequence's tokens lie in a step, and its states.
struct Steps {
    const int32_t *positions, *starts, *table;
    uint32_t block, table_stride;
    uint64_t elements; // of a state
    uint64_t blocks;   // that the buffer has

    // state_of returns where the state of the block that holds a position begins, or -1 where
    // the table names no block of the buffer.
    MEMBER int64_t state_of(uint64_t seq, uint64_t position) const {
        uint64_t at = position / block;
        int64_t page = at < table_stride ? table[seq * table_stride + at] : -1;
        return page < 0 || static_cast<uint64_t>(page) >= blocks ? -1 : page * static_cast<int64_t>(elements);
    }
};

// A unit is a CHANNELS-th of the elements of one sequence. It reads what it goes on from
// before it writes, which may be the same state.
constexpr uint32_t CHANNELS = 64, TAPS = 8;

static uint64_t short_conv_units(const smelt_launch *l) {
    const ShortConvParams &p = params<ShortConvParams>(l, SMELT_SHORT_CONV_PARAMS);
    return p.seqs * ceil_div(p.width, CHANNELS);
}
static int short_conv_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_SHORT_CONV_PARAMS, sizeof(ShortConvParams)))
        return 0;
    const ShortConvParams &p = params<ShortConvParams>(l, SMELT_SHORT_CONV_PARAMS);
    if (p.taps < 2 || p.taps > TAPS || p.block == 0)
        return 0;
    uint64_t rows = span(p.tokens, p.x_stride, p.width, 4), state = uint64_t{p.taps - 1} * p.width * 4;
    return holds(l, SMELT_SHORT_CONV_X, rows) && holds(l, SMELT_SHORT_CONV_W, uint64_t{p.width} * p.taps * 4) &&
           holds(l, SMELT_SHORT_CONV_STATE, state) && holds(l, SMELT_SHORT_CONV_STATE_OUT, state) &&
           holds(l, SMELT_SHORT_CONV_POSITIONS, uint64_t{p.tokens} * 4) &&
           holds(l, SMELT_SHORT_CONV_CU_SEQLENS, (uint64_t{p.seqs} + 1) * 4) &&
           holds(l, SMELT_SHORT_CONV_BLOCK_TABLE, uint64_t{p.seqs} * p.table_stride * 4) &&
           holds(l, SMELT_SHORT_CONV_OUT, uint64_t{p.tokens} * p.width * 4) &&
           (constant(l, SMELT_SHORT_CONV_FC_GATED) == 0 ||
            (holds(l, SMELT_SHORT_CONV_IN_GATE, rows) && holds(l, SMELT_SHORT_CONV_OUT_GATE, rows)));
}
static void short_conv(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const ShortConvParams &p = params<ShortConvParams>(l, SMELT_SHORT_CONV_PARAMS);
    const float *in_gate = optional<const float>(l, SMELT_SHORT_CONV_FC_GATED, SMELT_SHORT_CONV_IN_GATE);
    const float *out_gate = optional<const float>(l, SMELT_SHORT_CONV_FC_GATED, SMELT_SHORT_CONV_OUT_GATE);
    const uint32_t past = p.taps - 1;
    const uint64_t elements = uint64_t{past} * p.width;
    const Steps steps = {buffer<const int32_t>(l, SMELT_SHORT_CONV_POSITIONS),
                         buffer<const int32_t>(l, SMELT_SHORT_CONV_CU_SEQLENS),
                         buffer<const int32_t>(l, SMELT_SHORT_CONV_BLOCK_TABLE),
                         p.block,
                         p.table_stride,
                         elements,
                         l->buffer_bytes[SMELT_SHORT_CONV_STATE_OUT] / (elements * 4)};
    const uint64_t across = ceil_div(p.width, CHANNELS);
    for (uint64_t unit = begin; unit < end; unit++) {
        uint64_t seq = unit / across, e0 = unit % across * CHANNELS;
        int64_t first = steps.starts[seq], count = steps.starts[seq + 1] - first;
        if (count <= 0)
            continue;
        const uint64_t n = least(CHANNELS, p.width - e0);
        float w[TAPS][CHANNELS], last[TAPS][CHANNELS]; // the latest x, the oldest first
        for (uint32_t j = 0; j < p.taps; j++)
            for (uint64_t e = 0; e < n; e++)
                w[j][e] = buffer<const float>(l, SMELT_SHORT_CONV_W)[(e0 + e) * p.taps + j];
        memset(last, 0, sizeof last);
        int64_t start = steps.positions[first];
        int64_t from = start > 0 ? steps.state_of(seq, static_cast<uint64_t>(start) - 1) : -1;
        for (uint32_t r = 0; from >= 0 && r < past; r++)
            memcpy(last[r], buffer<const float>(l, SMELT_SHORT_CONV_STATE) + from + uint64_t{r} * p.width + e0, n * 4);
        for (int64_t t = 0; t < count; t++) {
            uint64_t at = static_cast<uint64_t>(first + t);
            const float *x = buffer<const float>(l, SMELT_SHORT_CONV_X) + at * p.x_stride + e0;
            for (uint64_t e = 0; e < n; e++)
                last[past][e] = in_gate != nullptr ? in_gate[at * p.x_stride + e0 + e] * x[e] : x[e];
            float sum[CHANNELS] = {};
            for (uint32_t j = 0; j < p.taps; j++)
                for (uint64_t e = 0; e < n; e++)
                    sum[e] += w[j][e] * last[j][e];
            if (out_gate != nullptr)
                for (uint64_t e = 0; e < n; e++)
                    sum[e] *= out_gate[at * p.x_stride + e0 + e];
            memcpy(buffer<float>(l, SMELT_SHORT_CONV_OUT) + at * p.width + e0, sum, n * 4);
            memmove(last[0], last[1], uint64_t{past} * sizeof last[0]);
            uint64_t position = static_cast<uint64_t>(start + t);
            if ((position + 1) % p.block != 0 && t + 1 < count)
                continue;
            int64_t to = steps.state_of(seq, position);
            for (uint32_t r = 0; to >= 0 && r < past; r++)
                memcpy(buffer<float>(l, SMELT_SHORT_CONV_STATE_OUT) + to + uint64_t{r} * p.width + e0, last[r], n * 4);
        }
    }
}
