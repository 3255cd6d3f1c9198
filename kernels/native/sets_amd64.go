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

// sets lists what the processor has, and the system saves the registers of: all that the
// compiler may emit for a set, which is what its -march names.
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
