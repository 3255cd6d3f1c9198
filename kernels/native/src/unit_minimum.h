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

static const WeightType types[] = {MINIMUM_BLOCKS(BLOCK) AFFINE_FORMATS(HEAD)};

const WeightType *find_minimum_type(uint32_t type) { return find_among(types, type); }
} // namespace SET
