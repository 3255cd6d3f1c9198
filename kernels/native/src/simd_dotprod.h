// NEON with dot products of bytes (FEAT_DotProd), as most processors from 2018 on have it.

constexpr const char *ISA = "dotprod";
constexpr int INT_TOKENS = 4;
constexpr bool DOTS_DIFFER = false; // by Range

#include "vectors_neon.h"

#include "dot_neon.h"

#include "panel.h"
#include "whole_neon.h"
