//go:build amd64

#include "avx2.h"

#include "../src/unit_minimum.h"
