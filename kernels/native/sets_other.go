//go:build cgo && !amd64 && !arm64 && !loaded

package native

import (
	"unsafe"

	"github.com/smelt-ml/smelt/kernels/native/portable"
)

func sets() []unsafe.Pointer { return []unsafe.Pointer{portable.Set()} }
