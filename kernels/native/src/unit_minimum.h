// Quantized weights whose elements are scale · u + minimum, for one instruction set.

namespace SET {
#include "base.h"
#include SIMD
#include "functions.h"
#include "elements.h"
#include "groups.h"
#include "blocks.h"
#include "products.h"
#include "heads.h"
#include "affine.h"

#ifdef BASE
#define TYPE block_type
#define HEADED headed_type
#else
#define TYPE stored_block_type
#define HEADED stored_headed_type
#endif

static const WeightType types[] = {
    TYPE<Q5_1>(),         TYPE<Q2_K>(), TYPE<Q4_K>(), TYPE<Q5_K>(), HEADED<Nibbles, Q4_1>(), HEADED<Nibbles, MLX4>(),
    HEADED<Bytes, MLX8>()};

const WeightType *find_minimum_type(uint32_t type) { return find_among(types, type); }
} // namespace SET
