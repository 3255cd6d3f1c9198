// Quantized weights as plain loops, in place of unit_offset.h and unit_minimum.h.

namespace SET {
#include "base.h"
#include SIMD
#include "functions.h"
#include "groups.h"
#include "values.h"
#include "plain.h"

static const WeightType offsets[] = {
    plain_type<PlainQ8_0>(),
    plain_type<PlainNibbles<SMELT_Q4_0, false, false>>(),
    plain_type<PlainNibbles<SMELT_Q5_0, false, true>>(),
    plain_type<PlainQ3_K>(),
    plain_type<PlainQ6_K>(),
    plain_type<PlainCodes<SMELT_IQ4_NL, IQ4_VALUES>>(),
    plain_type<PlainCodes<SMELT_IQ4_XS, IQ4_VALUES>>(),
    plain_type<PlainCodes<SMELT_MXFP4, MXFP4_VALUES>>(),
};
static const WeightType minima[] = {
    plain_type<PlainNibbles<SMELT_Q4_1, true, false>>(),
    plain_type<PlainNibbles<SMELT_Q5_1, true, true>>(),
    plain_type<PlainMLX<SMELT_MLX4>>(),
    plain_type<PlainMLX<SMELT_MLX8>>(),
    plain_type<PlainQ2_K>(),
    plain_type<PlainK4<SMELT_Q4_K, false>>(),
    plain_type<PlainK4<SMELT_Q5_K, true>>(),
};

const WeightType *find_offset_type(uint32_t type) { return find_among(offsets, type); }
const WeightType *find_minimum_type(uint32_t type) { return find_among(minima, type); }
} // namespace SET
