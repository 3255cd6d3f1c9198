//go:build !cgo

package emulated

import "unsafe"

// Provider returns nil: without cgo there are no emulated kernels.
func Provider() unsafe.Pointer { return nil }
