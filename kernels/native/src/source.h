// Kernels of the source stage: what attention is made of before it is fused.

static uint64_t cache_read_units(const smelt_launch *l) {
    const CacheReadParams &p = params<CacheReadParams>(l, SMELT_CACHE_READ_PARAMS);
    return uint64_t{p.seqs} * p.context;
}
static int cache_read_supports(const smelt_launch *l, const Cache &c) {
    if (!holds(l, SMELT_CACHE_READ_PARAMS, sizeof(CacheReadParams)))
        return 0;
    const CacheReadParams &p = params<CacheReadParams>(l, SMELT_CACHE_READ_PARAMS);
    return p.block != 0 && c.whole_blocks(p.head) && holds(l, SMELT_CACHE_READ_CACHE, 1) &&
           holds(l, SMELT_CACHE_READ_CONTEXT_LENS, uint64_t{p.seqs} * 4) &&
           holds(l, SMELT_CACHE_READ_BLOCK_TABLE, uint64_t{p.seqs} * p.table_stride * 4) &&
           holds(l, SMELT_CACHE_READ_OUT, uint64_t{p.seqs} * p.context * p.kv_heads * p.head * 4);
}
static void cache_read(const smelt_launch *l, uint64_t begin, uint64_t end, const Cache &c) {
    const CacheReadParams &p = params<CacheReadParams>(l, SMELT_CACHE_READ_PARAMS);
    for (uint64_t unit = begin; unit < end; unit++) {
        uint64_t seq = unit / p.context, j = unit % p.context;
        bool held = static_cast<int64_t>(j) < buffer<const int32_t>(l, SMELT_CACHE_READ_CONTEXT_LENS)[seq] &&
                    j / p.block < p.table_stride;
        int64_t block =
            held ? buffer<const int32_t>(l, SMELT_CACHE_READ_BLOCK_TABLE)[seq * p.table_stride + j / p.block] : -1;
        float *out = buffer<float>(l, SMELT_CACHE_READ_OUT) + unit * p.kv_heads * p.head;
        for (uint32_t kv = 0; kv < p.kv_heads; kv++, out += p.head) {
            int64_t slot = block * p.block + static_cast<int64_t>(j % p.block);
            const uint8_t *row = block < 0 || slot > INT32_MAX
                                     ? nullptr
                                     : cache_row(l, c, SMELT_CACHE_READ_CACHE, static_cast<int32_t>(slot), p.kv_heads,
                                                 kv, p.block, p.head);
            if (row == nullptr)
                memset(out, 0, p.head * 4);
            else
                c.widen_rows(row, 0, 1, p.head, out, p.head);
        }
    }
}

static uint64_t transpose_units(const smelt_launch *l) {
    const TransposeParams &p = params<TransposeParams>(l, SMELT_TRANSPOSE_PARAMS);
    return uint64_t{p.size[0]} * p.size[1];
}
static int transpose_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_TRANSPOSE_PARAMS, sizeof(TransposeParams)))
        return 0;
    const TransposeParams &p = params<TransposeParams>(l, SMELT_TRANSPOSE_PARAMS);
    uint64_t count = uint64_t{p.size[0]} * p.size[1] * p.size[2], last = 1;
    if (count == 0)
        return 1;
    for (int i = 0; i < 3; i++)
        last += uint64_t{p.size[i] - 1} * p.stride[i];
    return holds(l, SMELT_TRANSPOSE_X, last * 4) && holds(l, SMELT_TRANSPOSE_OUT, count * 4);
}
static void transpose(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const TransposeParams &p = params<TransposeParams>(l, SMELT_TRANSPOSE_PARAMS);
    float *out = buffer<float>(l, SMELT_TRANSPOSE_OUT) + begin * p.size[2];
    for (uint64_t unit = begin; unit < end; unit++, out += p.size[2]) {
        const float *x =
            buffer<const float>(l, SMELT_TRANSPOSE_X) + unit / p.size[1] * p.stride[0] + unit % p.size[1] * p.stride[1];
        for (uint64_t i = 0; i < p.size[2]; i++)
            out[i] = x[i * p.stride[2]];
    }
}

// matmul: a unit is COLUMNS columns of the output of one member of the batch.
constexpr uint32_t COLUMNS = TILE_VECTORS * W;
static uint64_t matmul_units(const smelt_launch *l) {
    const MatmulParams &p = params<MatmulParams>(l, SMELT_MATMUL_PARAMS);
    return p.m == 0 ? 0 : p.batch * ceil_div(p.n, COLUMNS);
}
static int matmul_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_MATMUL_PARAMS, sizeof(MatmulParams)))
        return 0;
    const MatmulParams &p = params<MatmulParams>(l, SMELT_MATMUL_PARAMS);
    uint64_t batch = p.batch;
    return holds(l, SMELT_MATMUL_A, batch * p.m * p.k * 4) && holds(l, SMELT_MATMUL_B, batch * p.n * p.k * 4) &&
           holds(l, SMELT_MATMUL_OUT, batch * p.m * p.n * 4);
}
static void matmul(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const MatmulParams &p = params<MatmulParams>(l, SMELT_MATMUL_PARAMS);
    const bool transposed = constant(l, SMELT_MATMUL_FC_TRANSPOSED) != 0;
    constexpr uint32_t DEPTH = 256, HEIGHT = 64; // of the packed parts of b and, as its columns, of a
    alignas(64) float packed[DEPTH * COLUMNS], sums[HEIGHT * COLUMNS], lines[DEPTH * HEIGHT + SPARE];
    float ones[HEIGHT]; // later depths add to the sums
    for (float &one : ones)
        one = 1;
    uint64_t across = ceil_div(p.n, COLUMNS);
    for (uint64_t unit = begin; unit < end; unit++) {
        uint64_t member = unit / across, column = unit % across * COLUMNS;
        uint32_t columns = static_cast<uint32_t>(least(COLUMNS, p.n - column));
        const float *a = buffer<const float>(l, SMELT_MATMUL_A) + member * p.m * p.k;
        const float *b = buffer<const float>(l, SMELT_MATMUL_B) + member * p.n * p.k;
        float *out = buffer<float>(l, SMELT_MATMUL_OUT) + member * p.m * p.n + column;
        for (uint32_t r0 = 0; r0 < p.m; r0 += HEIGHT) {
            uint32_t rows = static_cast<uint32_t>(least(HEIGHT, p.m - r0));
            memset(sums, 0, sizeof sums);
            for (uint32_t k0 = 0; k0 < p.k; k0 += DEPTH) {
                uint32_t depth = static_cast<uint32_t>(least(DEPTH, p.k - k0));
                memset(packed, 0, sizeof packed);
                for (uint64_t i = 0; i < depth; i++)
                    for (uint64_t j = 0; j < columns; j++)
                        packed[i * COLUMNS + j] =
                            transposed ? b[(column + j) * p.k + k0 + i] : b[(k0 + i) * p.n + column + j];
                for (uint32_t r = 0; r < rows; r++)
                    for (uint32_t i = 0; i < depth; i++)
                        lines[i * HEIGHT + r] = a[uint64_t{r0 + r} * p.k + k0 + i];
                matrix_product(
                    rows, COLUMNS, [=](uint32_t) { return depth; }, lines, HEIGHT, packed, COLUMNS, sums, COLUMNS,
                    ones);
            }
            for (uint64_t r = 0; r < rows; r++)
                memcpy(out + (r0 + r) * p.n, sums + r * COLUMNS, uint64_t{columns} * 4);
        }
    }
}

static uint64_t mask_units(const smelt_launch *l) {
    const MaskParams &p = params<MaskParams>(l, SMELT_MASK_PARAMS);
    return uint64_t{p.heads} * p.tokens;
}
static int mask_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_MASK_PARAMS, sizeof(MaskParams)))
        return 0;
    const MaskParams &p = params<MaskParams>(l, SMELT_MASK_PARAMS);
    uint64_t bytes = uint64_t{p.heads} * p.tokens * p.seqs * p.context * 4;
    return holds(l, SMELT_MASK_SCORES, bytes) && holds(l, SMELT_MASK_POSITIONS, uint64_t{p.tokens} * 4) &&
           holds(l, SMELT_MASK_CU_SEQLENS, (uint64_t{p.seqs} + 1) * 4) &&
           holds(l, SMELT_MASK_CONTEXT_LENS, uint64_t{p.seqs} * 4) && holds(l, SMELT_MASK_OUT, bytes) &&
           (constant(l, SMELT_MASK_FC_SLOPES) == 0 || holds(l, SMELT_MASK_SLOPES, uint64_t{p.heads} * 4));
}
static void mask(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const MaskParams &p = params<MaskParams>(l, SMELT_MASK_PARAMS);
    const int32_t *starts = buffer<const int32_t>(l, SMELT_MASK_CU_SEQLENS);
    const float *slopes = optional<const float>(l, SMELT_MASK_FC_SLOPES, SMELT_MASK_SLOPES);
    uint64_t width = uint64_t{p.seqs} * p.context;
    for (uint64_t unit = begin; unit < end; unit++) {
        int64_t token = static_cast<int64_t>(unit % p.tokens);
        int64_t position = buffer<const int32_t>(l, SMELT_MASK_POSITIONS)[token];
        const float *x = buffer<const float>(l, SMELT_MASK_SCORES) + unit * width;
        float *out = buffer<float>(l, SMELT_MASK_OUT) + unit * width;
        for (uint32_t seq = 0; seq < p.seqs; seq++, x += p.context, out += p.context) {
            int64_t seen = token >= starts[seq] && token < starts[seq + 1] ? position + 1 : 0;
            int64_t length = buffer<const int32_t>(l, SMELT_MASK_CONTEXT_LENS)[seq];
            seen = seen < length ? seen : length;
            int64_t first = p.window != 0 ? position + 1 - int64_t{p.window} : 0;
            for (int64_t j = 0; j < p.context; j++)
                out[j] = j >= first && j < seen ? x[j] : -__builtin_inff();
            if (slopes != nullptr)
                for (int64_t j = 0; j < p.context; j++)
                    out[j] += slopes[unit / p.tokens] * static_cast<float>(j - position);
        }
    }
}
