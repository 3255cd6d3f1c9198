#include "portable.h"

#include "../src/unit_rows.h"
