//go:build arm64

#include "i8mm.h"

#include "../src/unit_overlay.h"
