// The table of a library that has one unit of kernels.
#include "../runtime.h"

#ifndef MSL_UNIT
#error "define MSL_UNIT: unit_ and the name of the source"
#endif

namespace msl {
inline namespace MSL_VARIANT {
extern const Unit MSL_UNIT;
const Unit *const units[] = {&MSL_UNIT, nullptr};
} // namespace MSL_VARIANT
} // namespace msl
