#include "../../trace.c"
