// Quantized weights as plain loops, in place of unit_offset.h and unit_minimum.h.

namespace SET {
#include "base.h"
#include SIMD
#include "functions.h"
#include "groups.h"
#include "values.h"
#include "plain.h"

const WeightType *find_offset_type(uint32_t type) { return find_among(types, type); }
const WeightType *find_minimum_type(uint32_t) { return nullptr; }
} // namespace SET
