//go:build cgo && ((darwin && arm64) || (fakemetal && linux))

package apple

/*
#cgo CFLAGS: -I../.. -O2
#cgo fakemetal CFLAGS: -std=gnu17 -I../internal/fakemetal/include
#cgo darwin CFLAGS: -mmacosx-version-min=14.0
// Without CoreGraphics a process has no default device. IOKit has the number of cores.
#cgo darwin LDFLAGS: -framework Metal -framework Foundation -framework CoreGraphics -framework IOKit -framework CoreFoundation
#include <stdlib.h>
#include "device/provider/device.h"

const smelt_provider *smelt_apple_provider(void);
*/
import "C"

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"unsafe"

	_ "github.com/smelt-ml/smelt/device/provider" // whose device.h the sources include
	"github.com/smelt-ml/smelt/kernels"
)

// Provider returns a const smelt_provider*.
func Provider() unsafe.Pointer { return unsafe.Pointer(C.smelt_apple_provider()) }

// Kernels returns the sources of all kernels, for Metal's compiler.
func Kernels() Sources { return all() }

var all = sync.OnceValue(func() Sources {
	names, table := kernels.Files(), kernels.All()
	files := unsafe.Slice((*C.smelt_source)(C.calloc(C.size_t(len(names)), C.sizeof_smelt_source)), len(names))
	functions := unsafe.Slice((*C.smelt_function)(C.calloc(C.size_t(len(table)), C.sizeof_smelt_function)), len(table))
	at := map[string]C.uint32_t{}
	for i, name := range names {
		at[name] = C.uint32_t(i)
		text := kernels.Single(name)
		hash := sha256.Sum256([]byte(text))
		files[i] = C.smelt_source{name: C.CString(name), text: C.CString(text), hash: C.CString(hex.EncodeToString(hash[:8]))}
	}
	for i, k := range table {
		f := C.smelt_function{name: C.CString(k.Name), source: at[k.File], max_threads: C.uint32_t(k.MaxThreads)}
		if m := k.InstanceMacro(); m != "" {
			f.instance = C.CString(m)
		}
		for _, c := range k.Constants {
			f.macros[c.Index] = C.CString(c.Macro())
			if c.Type == "bool" {
				f.booleans |= 1 << c.Index
			}
		}
		functions[i] = f
	}
	return Sources{
		Files: unsafe.Pointer(&files[0]), FileCount: len(files),
		Functions: unsafe.Pointer(&functions[0]), FunctionCount: len(functions),
	}
})
