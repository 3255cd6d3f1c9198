//go:build cgo && loaded

package native

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

static const void *call(void *f) { return ((const void *(*)(void))f)(); }
*/
import "C"

import (
	"os"
	"path/filepath"
	"strings"
	"unsafe"
)

// sets loads the set that `make native` compiled from the shared library that SMELT_NATIVE_SET
// names. A build with the tag loaded has no other set, and no C++ to compile.
func sets() []unsafe.Pointer {
	path := os.Getenv("SMELT_NATIVE_SET")
	file, entry := C.CString(path), C.CString("smelt_native_"+strings.TrimSuffix(filepath.Base(path), ".so"))
	defer C.free(unsafe.Pointer(file))
	defer C.free(unsafe.Pointer(entry))
	library := C.dlopen(file, C.RTLD_NOW)
	if library == nil {
		panic("native: SMELT_NATIVE_SET=" + path + ": " + C.GoString(C.dlerror()))
	}
	function := C.dlsym(library, entry)
	if function == nil {
		panic("native: SMELT_NATIVE_SET=" + path + ": " + C.GoString(C.dlerror()))
	}
	return []unsafe.Pointer{unsafe.Pointer(C.call(function))}
}
