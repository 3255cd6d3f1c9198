#include "portable.h"

#include "../src/unit_linear.h"
