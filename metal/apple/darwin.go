//go:build cgo && darwin && arm64

package apple

// #include <stdlib.h>
// #include <sys/sysctl.h>
import "C"

import (
	"os"
	"path/filepath"
	"unsafe"
)

// DefaultArchives returns the folder for compiled kernels in the user's cache folder; "off" if the
// user has no home folder.
func DefaultArchives() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "off"
	}
	if _, err := os.Stat(filepath.Dir(cache)); err != nil {
		return "off"
	}
	return filepath.Join(cache, "smelt", "metal")
}

// SystemBuild returns the build number of macOS. Pipelines of one build are useless to another.
func SystemBuild() string {
	name := C.CString("kern.osversion")
	defer C.free(unsafe.Pointer(name))
	var build [64]C.char
	bytes := C.size_t(len(build) - 1)
	if C.sysctlbyname(name, unsafe.Pointer(&build[0]), &bytes, nil, 0) != 0 {
		return "unknown"
	}
	return C.GoString(&build[0])
}
