//go:build cgo && (linux || darwin)

package mapped

// #include "faults.h"
import "C"

import (
	"sync"
	"unsafe"
)

// watching guards the list of watched views.
var watching sync.Mutex

// watch is the record of faults in a view, nil where none is kept.
type watch struct{ view *C.smelt_view }

// watchFaults makes pages that cannot be read zeros, which faulted then reports. Without it the
// signal ends the process, in native code for certain.
func watchFaults(view []byte) watch {
	watching.Lock()
	defer watching.Unlock()
	return watch{C.smelt_watch(unsafe.Pointer(unsafe.SliceData(view)), C.size_t(len(view)))}
}

func (w watch) faulted() bool { return w.view != nil && C.smelt_faulted(w.view) != 0 }

func (w watch) end() {
	if w.view != nil {
		watching.Lock()
		defer watching.Unlock()
		C.smelt_unwatch(w.view)
	}
}
