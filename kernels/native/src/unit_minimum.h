// Quantized weights whose elements are scale · u + minimum, for one instruction set.

namespace SET {
#include "base.h"
#include SIMD
#include "functions.h"
#include "elements.h"
#include "groups.h"
#include "blocks.h"
#include "products.h"

#ifdef BASE
#define TYPE block_type
#else
#define TYPE stored_block_type
#endif

static const WeightType types[] = {TYPE<Q4_1>(), TYPE<Q5_1>(), TYPE<Q2_K>(), TYPE<Q4_K>(), TYPE<Q5_K>()};

const WeightType *find_minimum_type(uint32_t type) { return find_among(types, type); }
} // namespace SET
