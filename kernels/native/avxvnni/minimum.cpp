//go:build amd64

#include "avxvnni.h"

#include "../src/unit_minimum.h"
