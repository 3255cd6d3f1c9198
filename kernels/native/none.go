//go:build !cgo

package native

import "unsafe"

// A build without cgo has no native kernels.

// Provider returns nil.
func Provider() unsafe.Pointer { return nil }

// ISA returns "".
func ISA() string { return "" }

// Names returns nil.
func Names() []string { return nil }

// Library is a set of kernels, of which there are none.
type Library struct{}

// Provider returns nil.
func (Library) Provider() unsafe.Pointer { return nil }

// BLAS reports that there is none.
func BLAS() (Library, bool) { return Library{}, false }
