// Quantized weights whose elements are scale · (u − offset), or scale · values[code], for one
// instruction set.

namespace SET {
#include "base.h"
#include SIMD
#include "functions.h"
#include "elements.h"
#include "groups.h"
#include "blocks.h"
#include "products.h"
#include "heads.h"
#include "values.h"
#include "codes.h"

static const WeightType types[] = {OFFSET_BLOCKS(BLOCK) NAMED_FORMATS(HEAD)};

const WeightType *find_offset_type(uint32_t type) { return find_among(types, type); }
} // namespace SET
