#include "../runtime.cc"
