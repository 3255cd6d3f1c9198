#include "runtime/runtime.cc"
