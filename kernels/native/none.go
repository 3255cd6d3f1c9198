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
