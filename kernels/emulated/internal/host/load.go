package host

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

static const void *call(void *function) { return ((const void *(*)(void))function)(); }
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Load loads a shared library, which is never unloaded, and returns the result of one of its
// functions, which has no parameters.
func Load(path, function string) (unsafe.Pointer, error) {
	name, symbol := C.CString(path), C.CString(function)
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(symbol))
	library := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if library == nil {
		return nil, errors.New(C.GoString(C.dlerror()))
	}
	f := C.dlsym(library, symbol)
	if f == nil {
		return nil, fmt.Errorf("%s has no function %s", path, function)
	}
	return unsafe.Pointer(C.call(f)), nil
}
