//go:build arm64

#include "dotprod.h"

#include "../src/unit_offset.h"
