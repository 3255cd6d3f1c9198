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

#ifdef BASE
#define TYPE block_type
#define HEADED headed_type
#else
#define TYPE stored_block_type
#define HEADED stored_headed_type
#endif

static const WeightType types[] = {TYPE<Q8_0>(),
                                   TYPE<Q4_0>(),
                                   TYPE<Q5_0>(),
                                   TYPE<Q3_K>(),
                                   TYPE<Q6_K>(),
                                   HEADED<Named, IQ4_NL>(),
                                   HEADED<Named, IQ4_XS>(),
                                   HEADED<Named, MXFP4>()};

const WeightType *find_offset_type(uint32_t type) { return find_among(types, type); }
} // namespace SET
