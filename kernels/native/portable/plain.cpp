#include "portable.h"

#include "../src/unit_plain.h"
