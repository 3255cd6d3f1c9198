//go:build cgo && !loaded

package native

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/smelt-ml/smelt/kernels/native/avx2"
	"github.com/smelt-ml/smelt/kernels/native/avx512"
	"github.com/smelt-ml/smelt/kernels/native/avxvnni"
	"github.com/smelt-ml/smelt/kernels/native/portable"
)

// sets returns the sets that this machine can run, the best first: the processor has every
// extension of the set's -march, which the compiler may use, and the system saves its registers.
func sets() []unsafe.Pointer {
	x := &cpu.X86
	v3 := x.HasAVX2 && x.HasFMA && x.HasF16C && x.HasBMI1 && x.HasBMI2 && x.HasLZCNT && x.HasMOVBE
	v4 := v3 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512CD && x.HasAVX512DQ && x.HasAVX512VL
	return having(
		set{v4 && x.HasAVX512VNNI, avx512.Set},
		set{v3 && x.HasAVXVNNI, avxvnni.Set},
		set{v3, avx2.Set},
		set{true, portable.Set},
	)
}
