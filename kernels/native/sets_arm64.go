//go:build cgo && !loaded

package native

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/smelt-ml/smelt/kernels/native/dotprod"
	"github.com/smelt-ml/smelt/kernels/native/i8mm"
	"github.com/smelt-ml/smelt/kernels/native/neon"
	"github.com/smelt-ml/smelt/kernels/native/portable"
)

// sets returns the sets that this processor can run, the best first. The first two are
// compiled for Armv8.2, whose atomics and rounding multiplies every processor with dot
// products has, too.
func sets() []unsafe.Pointer {
	a := &cpu.ARM64
	v82 := a.HasASIMDDP && a.HasATOMICS && a.HasASIMDRDM
	return having(
		set{v82 && a.HasI8MM, i8mm.Set},
		set{v82, dotprod.Set},
		set{true, neon.Set},
		set{true, portable.Set},
	)
}
