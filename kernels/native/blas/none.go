//go:build !(cgo && ((darwin && arm64) || openblas))

package blas

import "unsafe"

// Set returns nil: this build uses no BLAS.
func Set() unsafe.Pointer { return nil }
