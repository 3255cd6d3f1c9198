// Code generated from kernels/params.go by go test ./kernels -run Params -update. DO NOT EDIT.

// Of embed.
struct EmbedParams {
    uint32_t tokens;
    uint32_t width; // elements of a row of the table and of the output
    uint32_t vocab; // rows of the table; ids outside give zeros
};

// Of rms_norm, norm_residual and layer_norm.
struct NormParams {
    uint32_t rows;
    uint32_t width;
    uint32_t x_stride; // elements between rows of the input
    float eps;
    uint32_t groups; // rows of the weight of rms_norm; 1 in the others
};

// Of linear_vec and linear_mat.
struct LinearParams {
    uint32_t tokens;
    uint32_t k;              // input features
    uint32_t n0, n1, n2, n3; // output features of the weights bound side by side; 0 where unbound
    uint32_t x_stride;
    uint32_t out_stride;
    float eps; // of the norm prologue
    uint32_t gate_stride;
    uint32_t gate_from; // the element of a row of the gate
};

// Of rope.
struct RopeParams {
    uint32_t tokens;
    uint32_t heads;
    uint32_t head;    // elements of a head
    uint32_t rotated; // leading elements of a head that rotate, even
    uint32_t x_stride;
    uint32_t first; // position of token 0 where no buffer holds positions
    float log2_theta;
    float freq_scale; // multiplies every angle: 1/factor under linear scaling
    float magnitude;  // multiplies cosine and sine: 1 but for YaRN
};

// Of cache_write.
struct CacheWriteParams {
    uint32_t tokens;
    uint32_t kv_heads;
    uint32_t head;
    uint32_t block; // slots of a cache block
    uint32_t k_stride;
    uint32_t v_stride;
};

// Of cache_read.
struct CacheReadParams {
    uint32_t seqs;
    uint32_t context; // Smax: rows of the output for each sequence
    uint32_t kv_heads;
    uint32_t head;
    uint32_t block;
    uint32_t table_stride; // NB
};

// Of rope_qkv_write and head_norm_rope_kv_write.
struct RopeWriteParams {
    uint32_t tokens;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head;
    uint32_t rotated;
    uint32_t q_stride; // elements between tokens of Q, K and V: one number where they are joined
    uint32_t k_stride;
    uint32_t v_stride;
    uint32_t block; // slots of a cache block: all of them where slots are positions
    uint32_t first;
    float log2_theta;
    float freq_scale;
    float magnitude;
    float eps; // of the head norms
};

// Of attention_vec and attention_tile.
struct AttentionParams {
    uint32_t tokens;
    uint32_t seqs;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head;
    uint32_t block;
    uint32_t table_stride; // NB
    uint32_t block_stride; // of both caches: from a block to the next,
    uint32_t head_stride;  // from a KV head to the next,
    uint32_t row_stride;   // and from a slot to the next
    float scale;
    uint32_t window; // keys that a token sees, its own among them; 0: all up to its own
    float soft_cap;  // scores become soft_cap · tanh(score / soft_cap); 0: as they are
    uint32_t gate_stride;
    uint32_t gate_from; // where the gate begins in a row
};

// Of attention_write.
struct AttentionWriteParams {
    uint32_t tokens;
    uint32_t seqs;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head;
    uint32_t block;
    uint32_t table_stride; // NB
    uint32_t block_stride; // of both caches, as of attention_vec
    uint32_t head_stride;
    uint32_t row_stride;
    float scale;
    uint32_t window;
    float soft_cap;
    uint32_t gate_stride;
    uint32_t gate_from;
    uint32_t rotated;
    float log2_theta;
    float freq_scale;
    float magnitude;
    float eps; // of the head norms
    uint32_t qkv_stride;
};

// Of flash_attention.
struct FlashParams {
    uint32_t batch;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t seq_q;
    uint32_t seq_kv;
    uint32_t head;
    uint32_t offset;        // keys before those of query row 0
    uint32_t q_head_stride; // of q and out
    uint32_t q_row_stride;
    uint32_t kv_head_stride; // of k and v
    uint32_t kv_row_stride;
    float scale;
};

// Of attention_reduce.
struct ReduceParams {
    uint32_t tokens;
    uint32_t heads;
    uint32_t head;
    uint32_t partitions;
    uint32_t gate_stride;
    uint32_t gate_from; // where the gate begins in a row
};

// Of paged_attention_v1, paged_attention_v2 and paged_attention_reduce.
struct PagedAttentionParams {
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head;
    uint32_t block;        // slots of a cache block: 8, 16 or 32
    uint32_t table_stride; // entries of the block table for a sequence
    uint32_t q_stride;     // from a sequence's query to the next
    uint32_t block_stride; // of both caches: from a block to the next
    uint32_t head_stride;  // and from a KV head to the next
    uint32_t partitions;   // of 512 keys, as the grid has them; 1 for paged_attention_v1
    float scale;
    uint32_t window; // keys that a query sees; 0: all
    float soft_cap;
};

// Of reshape_and_cache.
struct PagedWriteParams {
    uint32_t tokens;
    uint32_t kv_heads;
    uint32_t head;
    uint32_t block;
    uint32_t k_stride;
    uint32_t v_stride;
    uint32_t block_stride; // of both caches
    uint32_t head_stride;
};

// Of copy_blocks.
struct CopyBlocksParams {
    uint32_t pairs;
    uint32_t width;        // elements of a block, a multiple of 4
    uint32_t block_stride; // of both caches
};

// Of short_conv.
struct ShortConvParams {
    uint32_t tokens;
    uint32_t seqs;
    uint32_t width;
    uint32_t taps; // tokens that a result is a sum over, its own the last: 2 to 8
    uint32_t x_stride;
};

// Of delta_net.
struct DeltaNetParams {
    uint32_t tokens;
    uint32_t seqs;
    uint32_t heads; // of V, and of the state
    uint32_t key_heads;
    uint32_t head;        // elements of a head
    uint32_t share;       // adjacent heads of V with the same head of Q and K
    uint32_t gate_stride; // of alpha and beta
    uint32_t beta_from;   // where beta begins in a row
    uint32_t z_stride;    // of the gate of the result
    uint32_t z_from;      // where the gate begins in a row
    float eps;            // of the lengths of Q and K
    float norm_eps;       // of the norm of the result
};

// Of mamba2.
struct Mamba2Params {
    uint32_t tokens;
    uint32_t seqs;
    uint32_t heads;
    uint32_t groups; // of B and C, which divide the heads
    uint32_t head;   // elements of a head
    uint32_t states; // elements of a group of B and of C
    uint32_t dt_stride;
    uint32_t dt_from;  // where dt begins in a row
    uint32_t z_stride; // of the gate of the result
};

// Of the element-wise kernels, gather_rows, softmax and argmax.
struct ElementParams {
    uint32_t rows;
    uint32_t width;
    uint32_t a_stride;
    uint32_t b_stride; // of softmax with sinks: rows that share one
    float value;       // of scale and soft_cap
};

// Of concat.
struct ConcatParams {
    uint32_t rows;
    uint32_t width;          // columns of the result
    uint32_t n0, n1, n2, n3; // columns of each part, 0 where unbound
};

// Of weighted_sum.
struct WeightedSumParams {
    uint32_t rows;
    uint32_t width;
    uint32_t each; // rows of x that make a row of the result
};

// Of router.
struct RouterParams {
    uint32_t rows;
    uint32_t experts; // 1 to 1024
    uint32_t stride;  // elements between rows of logits
    uint32_t chosen;  // experts of a token, 1 to 32
    uint32_t groups;  // 0 to 32; 0 or 1: no groups
    uint32_t used_groups;
    float scale;
    float floor;
    float sharpness; // of the logits
};

// Of group_by_expert.
struct GroupByExpertParams {
    uint32_t rows;
    uint32_t groups; // experts, and one for the rows without
};

// Of indices.
struct IndicesParams {
    uint32_t rows;
    uint32_t width;
};

// Of latent_write.
struct LatentWriteParams {
    uint32_t tokens;
    uint32_t heads;
    uint32_t kv_heads; // 1
    uint32_t head;     // elements of a row of the cache
    uint32_t block;    // slots of a cache block
    uint32_t q_head;   // elements of a head of q
    uint32_t all_stride;
    uint32_t all_from; // where the latent vector begins in a row of all
    uint32_t rotated;  // elements at the end of a head of q, and of a row of the cache
    uint32_t rows;     // heads, and the row of the cache
    float log2_theta;
    float freq_scale;
    float magnitude;
    float eps;
};

// Of latent_attention.
struct LatentAttentionParams {
    uint32_t tokens;
    uint32_t seqs;
    uint32_t heads;
    uint32_t kv_heads; // 1
    uint32_t head;     // elements of a row of the cache
    uint32_t block;
    uint32_t table_stride; // NB
    uint32_t block_stride; // as of attention_vec
    uint32_t head_stride;
    uint32_t row_stride;
    float scale;
    uint32_t window;
    float soft_cap;
    uint32_t q_head; // as of latent_write
    uint32_t all_stride;
    uint32_t all_from;
    uint32_t rotated;
    float log2_theta;
    float freq_scale;
    float magnitude;
    float eps;
};

// Of repeat_kv.
struct RepeatParams {
    uint32_t tokens;
    uint32_t kv_heads;
    uint32_t head;
    uint32_t repeats; // query heads that share one KV head
};

// Of transpose.
struct TransposeParams {
    uint32_t size[3];   // of the output
    uint32_t stride[3]; // of the input, in the output's axis order
};

// Of matmul.
struct MatmulParams {
    uint32_t batch;
    uint32_t m, n, k;
};

// Of mask.
struct MaskParams {
    uint32_t heads;
    uint32_t tokens;
    uint32_t seqs;
    uint32_t context; // Smax; a row of scores has seqs × context columns
    uint32_t window;  // keys that a token sees, its own among them; 0: all up to its own
};
