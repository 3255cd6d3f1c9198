//go:build amd64

#include "avx512.h"

#include "../src/unit_linear.h"
