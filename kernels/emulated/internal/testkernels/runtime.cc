#include "../../runtime.cc"
