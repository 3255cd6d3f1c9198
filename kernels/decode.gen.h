// clang-format off
// Code generated from ir/dtype by go test ./kernels -run Types -update. DO NOT EDIT.
//
// What differs by the type of a weight. A decoder decode_<type> of quant.h takes the block that
// holds a run and the run's number in it, or, of a type that has lines, codes and scales, which
// in a block are one, with what the codes' addresses are multiples of as a template argument.

static_assert(sizeof(block_f32) == 4, "layout of F32");
static_assert(sizeof(block_f16) == 2, "layout of F16");
static_assert(sizeof(block_bf16) == 2, "layout of BF16");
static_assert(sizeof(block_q8_0) == 34, "layout of Q8_0");
static_assert(sizeof(codes_q8_0) == 32, "layout of Q8_0");
static_assert(sizeof(scales_q8_0) == 2, "layout of Q8_0");
static_assert(sizeof(block_q4_0) == 18, "layout of Q4_0");
static_assert(sizeof(codes_q4_0) == 16, "layout of Q4_0");
static_assert(sizeof(scales_q4_0) == 2, "layout of Q4_0");
static_assert(sizeof(block_q4_1) == 20, "layout of Q4_1");
static_assert(sizeof(block_q5_0) == 22, "layout of Q5_0");
static_assert(sizeof(block_q5_1) == 24, "layout of Q5_1");
static_assert(sizeof(block_q2_k) == 84, "layout of Q2_K");
static_assert(sizeof(codes_q2_k) == 64, "layout of Q2_K");
static_assert(sizeof(scales_q2_k) == 20, "layout of Q2_K");
static_assert(sizeof(block_q3_k) == 110, "layout of Q3_K");
static_assert(sizeof(codes_q3_k) == 96, "layout of Q3_K");
static_assert(sizeof(scales_q3_k) == 14, "layout of Q3_K");
static_assert(sizeof(block_q4_k) == 144, "layout of Q4_K");
static_assert(sizeof(codes_q4_k) == 128, "layout of Q4_K");
static_assert(sizeof(scales_q4_k) == 16, "layout of Q4_K");
static_assert(sizeof(block_q5_k) == 176, "layout of Q5_K");
static_assert(sizeof(codes_q5_k) == 160, "layout of Q5_K");
static_assert(sizeof(scales_q5_k) == 16, "layout of Q5_K");
static_assert(sizeof(block_q6_k) == 210, "layout of Q6_K");
static_assert(sizeof(codes_q6_k) == 192, "layout of Q6_K");
static_assert(sizeof(scales_q6_k) == 18, "layout of Q6_K");
static_assert(sizeof(block_mxfp4) == 17, "layout of MXFP4");
static_assert(sizeof(codes_mxfp4) == 16, "layout of MXFP4");
static_assert(sizeof(scales_mxfp4) == 1, "layout of MXFP4");
static_assert(sizeof(block_iq4_nl) == 18, "layout of IQ4_NL");
static_assert(sizeof(codes_iq4_nl) == 16, "layout of IQ4_NL");
static_assert(sizeof(scales_iq4_nl) == 2, "layout of IQ4_NL");
static_assert(sizeof(block_iq4_xs) == 136, "layout of IQ4_XS");
static_assert(sizeof(block_mlx4) == 36, "layout of MLX4");
static_assert(sizeof(block_mlx8) == 68, "layout of MLX8");

// stored_type is a type without where its scales stand.
inline uint stored_type(uint type) { return type & ~uint(SMELT_LINES); }

// block_elems returns the elements of a block.
inline uint block_elems(uint type) {
    switch (stored_type(type)) {
    case SMELT_F32:
    case SMELT_F16:
    case SMELT_BF16:
        return 1;
    case SMELT_Q8_0:
    case SMELT_Q4_0:
    case SMELT_Q4_1:
    case SMELT_Q5_0:
    case SMELT_Q5_1:
    case SMELT_MXFP4:
    case SMELT_IQ4_NL:
        return 32;
    case SMELT_MLX4:
    case SMELT_MLX8:
        return 64;
    default:
        return 256;
    }
}

// block_bytes returns the bytes of a block.
inline uint block_bytes(uint type) {
    switch (stored_type(type)) {
    case SMELT_F32:
        return 4;
    case SMELT_F16:
    case SMELT_BF16:
        return 2;
    case SMELT_Q8_0:
        return 34;
    case SMELT_Q4_0:
    case SMELT_IQ4_NL:
        return 18;
    case SMELT_Q4_1:
        return 20;
    case SMELT_Q5_0:
        return 22;
    case SMELT_Q5_1:
        return 24;
    case SMELT_Q2_K:
        return 84;
    case SMELT_Q3_K:
        return 110;
    case SMELT_Q4_K:
        return 144;
    case SMELT_Q5_K:
        return 176;
    case SMELT_Q6_K:
        return 210;
    case SMELT_MXFP4:
        return 17;
    case SMELT_IQ4_XS:
        return 136;
    case SMELT_MLX4:
        return 36;
    case SMELT_MLX8:
        return 68;
    default:
        return 0;
    }
}

// line_bytes returns the bytes of codes that a block has in lines.
inline uint line_bytes(uint type) {
    switch (stored_type(type)) {
    case SMELT_Q8_0:
        return 32;
    case SMELT_Q4_0:
    case SMELT_MXFP4:
    case SMELT_IQ4_NL:
        return 16;
    case SMELT_Q2_K:
        return 64;
    case SMELT_Q3_K:
        return 96;
    case SMELT_Q4_K:
        return 128;
    case SMELT_Q5_K:
        return 160;
    case SMELT_Q6_K:
        return 192;
    default:
        return 0;
    }
}

// has_offset reports whether weights have offsets.
inline bool has_offset(uint type) {
    switch (stored_type(type)) {
    case SMELT_Q4_0:
    case SMELT_Q4_1:
    case SMELT_Q5_0:
    case SMELT_Q5_1:
    case SMELT_Q2_K:
    case SMELT_Q3_K:
    case SMELT_Q4_K:
    case SMELT_Q5_K:
    case SMELT_Q6_K:
    case SMELT_MLX4:
    case SMELT_MLX8:
        return true;
    default:
        return false;
    }
}

// has_few_bits reports whether a weight has less than four bits.
inline bool has_few_bits(uint type) {
    switch (stored_type(type)) {
    case SMELT_Q2_K:
    case SMELT_Q3_K:
        return true;
    default:
        return false;
    }
}

// second_place returns the factor of the codes of the second group of a run.
inline float second_place(uint type) {
    switch (stored_type(type)) {
    case SMELT_Q4_0:
    case SMELT_Q4_1:
    case SMELT_Q4_K:
    case SMELT_MLX4:
        return 1.0f / 16.0f;
    case SMELT_Q2_K:
    case SMELT_Q6_K:
        return 1.0f / 4.0f;
    case SMELT_Q3_K:
    case SMELT_Q5_K:
        return 1.0f / 2.0f;
    default:
        return 1.0f;
    }
}

// decode_run decodes run r of a row, all of whose elements exist.
inline Run decode_run(uint type, thread const Stored &row, uint r) {
    switch (type) {
#if SMELT_DECODES(SMELT_F32)
    case SMELT_F32:
        return decode_plain((device const block_f32 *)row.at, r);
#endif
#if SMELT_DECODES(SMELT_F16)
    case SMELT_F16:
        return decode_plain((device const block_f16 *)row.at, r);
#endif
#if SMELT_DECODES(SMELT_BF16)
    case SMELT_BF16:
        return decode_plain((device const block_bf16 *)row.at, r);
#endif
#if SMELT_DECODES(SMELT_Q8_0)
    case SMELT_Q8_0:
        return decode_q8_0<2>(block<block_q8_0, 2>(row.at, r), block<block_q8_0, 2>(row.at, r), r % 2);
#endif
#if SMELT_DECODES(SMELT_Q8_0 + SMELT_LINES)
    case SMELT_Q8_0 + SMELT_LINES:
        return decode_q8_0<8>(block<codes_q8_0, 2>(row.at, r), block<scales_q8_0, 2>(row.scales, r), r % 2);
#endif
#if SMELT_DECODES(SMELT_Q4_0)
    case SMELT_Q4_0:
        return decode_q4_0<2>(block<block_q4_0, 2>(row.at, r), block<block_q4_0, 2>(row.at, r), r % 2);
#endif
#if SMELT_DECODES(SMELT_Q4_0 + SMELT_LINES)
    case SMELT_Q4_0 + SMELT_LINES:
        return decode_q4_0<8>(block<codes_q4_0, 2>(row.at, r), block<scales_q4_0, 2>(row.scales, r), r % 2);
#endif
#if SMELT_DECODES(SMELT_Q4_1)
    case SMELT_Q4_1:
        return decode_q4_1(block<block_q4_1, 2>(row.at, r), r % 2);
#endif
#if SMELT_DECODES(SMELT_Q5_0)
    case SMELT_Q5_0:
        return decode_q5_0(block<block_q5_0, 2>(row.at, r), r % 2);
#endif
#if SMELT_DECODES(SMELT_Q5_1)
    case SMELT_Q5_1:
        return decode_q5_1(block<block_q5_1, 2>(row.at, r), r % 2);
#endif
#if SMELT_DECODES(SMELT_Q2_K)
    case SMELT_Q2_K:
        return decode_q2_k<4>(block<block_q2_k, 16>(row.at, r), block<block_q2_k, 16>(row.at, r), r % 16);
#endif
#if SMELT_DECODES(SMELT_Q2_K + SMELT_LINES)
    case SMELT_Q2_K + SMELT_LINES:
        return decode_q2_k<8>(block<codes_q2_k, 16>(row.at, r), block<scales_q2_k, 16>(row.scales, r), r % 16);
#endif
#if SMELT_DECODES(SMELT_Q3_K)
    case SMELT_Q3_K:
        return decode_q3_k<2>(block<block_q3_k, 16>(row.at, r), block<block_q3_k, 16>(row.at, r), r % 16);
#endif
#if SMELT_DECODES(SMELT_Q3_K + SMELT_LINES)
    case SMELT_Q3_K + SMELT_LINES:
        return decode_q3_k<8>(block<codes_q3_k, 16>(row.at, r), block<scales_q3_k, 16>(row.scales, r), r % 16);
#endif
#if SMELT_DECODES(SMELT_Q4_K)
    case SMELT_Q4_K:
        return decode_q4_k<4>(block<block_q4_k, 16>(row.at, r), block<block_q4_k, 16>(row.at, r), r % 16);
#endif
#if SMELT_DECODES(SMELT_Q4_K + SMELT_LINES)
    case SMELT_Q4_K + SMELT_LINES:
        return decode_q4_k<8>(block<codes_q4_k, 16>(row.at, r), block<scales_q4_k, 16>(row.scales, r), r % 16);
#endif
#if SMELT_DECODES(SMELT_Q5_K)
    case SMELT_Q5_K:
        return decode_q5_k<4>(block<block_q5_k, 16>(row.at, r), block<block_q5_k, 16>(row.at, r), r % 16);
#endif
#if SMELT_DECODES(SMELT_Q5_K + SMELT_LINES)
    case SMELT_Q5_K + SMELT_LINES:
        return decode_q5_k<8>(block<codes_q5_k, 16>(row.at, r), block<scales_q5_k, 16>(row.scales, r), r % 16);
#endif
#if SMELT_DECODES(SMELT_Q6_K)
    case SMELT_Q6_K:
        return decode_q6_k<2>(block<block_q6_k, 16>(row.at, r), block<block_q6_k, 16>(row.at, r), r % 16);
#endif
#if SMELT_DECODES(SMELT_Q6_K + SMELT_LINES)
    case SMELT_Q6_K + SMELT_LINES:
        return decode_q6_k<8>(block<codes_q6_k, 16>(row.at, r), block<scales_q6_k, 16>(row.scales, r), r % 16);
#endif
#if SMELT_DECODES(SMELT_MXFP4)
    case SMELT_MXFP4:
        return decode_mxfp4<1>(block<block_mxfp4, 2>(row.at, r), block<block_mxfp4, 2>(row.at, r), r % 2);
#endif
#if SMELT_DECODES(SMELT_MXFP4 + SMELT_LINES)
    case SMELT_MXFP4 + SMELT_LINES:
        return decode_mxfp4<8>(block<codes_mxfp4, 2>(row.at, r), block<scales_mxfp4, 2>(row.scales, r), r % 2);
#endif
#if SMELT_DECODES(SMELT_IQ4_NL)
    case SMELT_IQ4_NL:
        return decode_iq4_nl<2>(block<block_iq4_nl, 2>(row.at, r), block<block_iq4_nl, 2>(row.at, r), r % 2);
#endif
#if SMELT_DECODES(SMELT_IQ4_NL + SMELT_LINES)
    case SMELT_IQ4_NL + SMELT_LINES:
        return decode_iq4_nl<8>(block<codes_iq4_nl, 2>(row.at, r), block<scales_iq4_nl, 2>(row.scales, r), r % 2);
#endif
#if SMELT_DECODES(SMELT_IQ4_XS)
    case SMELT_IQ4_XS:
        return decode_iq4_xs(block<block_iq4_xs, 16>(row.at, r), r % 16);
#endif
#if SMELT_DECODES(SMELT_MLX4)
    case SMELT_MLX4:
        return decode_mlx4(block<block_mlx4, 4>(row.at, r), r % 4);
#endif
#if SMELT_DECODES(SMELT_MLX8)
    case SMELT_MLX8:
        return decode_mlx8(block<block_mlx8, 4>(row.at, r), r % 4);
#endif
    default:
        break;
    }
    Run none;
    same(0.0f, 0.0f, none);
    return none;
}
