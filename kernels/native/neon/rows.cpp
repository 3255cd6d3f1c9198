//go:build arm64

#include "neon.h"

#include "../src/unit_rows.h"
