#include "portable.h"

#include "../src/unit_attention.h"
