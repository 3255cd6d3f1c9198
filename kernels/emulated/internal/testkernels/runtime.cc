#include "../../runtime/runtime.cc"
