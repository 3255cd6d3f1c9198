//go:build !cgo

package native

import "unsafe"

// Without cgo there are no native kernels.

// Provider returns nil.
func Provider() unsafe.Pointer { return nil }

// ISA returns "".
func ISA() string { return "" }

// Names returns nothing.
func Names() []string { return nil }
