//go:build cgo && (linux || darwin)

// Package plugin opens emulated kernels that were compiled on their own, as a shared
// library: a kernel under development, or one with a deliberate fault, without a new
// build of package emulated.
package plugin

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

static const void *call(void *function) { return ((const void *(*)(void))function)(); }
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/kernels/emulated/internal/host"
)

// Symbol is what the shared library must be built with as MSL_LIBRARY.
const Symbol = "smelt_plugin"

// Open loads the shared library at a path. It stays loaded.
func Open(path string) (emulated.Library, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	symbol := C.CString(Symbol)
	defer C.free(unsafe.Pointer(symbol))
	library := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if library == nil {
		return emulated.Library{}, fmt.Errorf("plugin %s: %s", path, C.GoString(C.dlerror()))
	}
	function := C.dlsym(library, symbol)
	if function == nil {
		return emulated.Library{}, fmt.Errorf("plugin %s: no function %s: it was not built with that as MSL_LIBRARY", path, Symbol)
	}
	return host.Open(unsafe.Pointer(C.call(function))), nil
}
