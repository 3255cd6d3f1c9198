#include "../../../runtime.cc"
