//go:build cgo

package native

import (
	"unsafe"

	"github.com/smelt-ml/smelt/kernels/native/neon"
	"github.com/smelt-ml/smelt/kernels/native/portable"
)

func sets() []unsafe.Pointer { return []unsafe.Pointer{neon.Set(), portable.Set()} }
