//go:build !(cgo && ((darwin && arm64) || (fakemetal && linux)))

package apple

import "unsafe"

// Provider returns nil: this build has no bridge to Apple's GPUs.
func Provider() unsafe.Pointer { return nil }

// Kernels returns none.
func Kernels() Sources { return Sources{} }

// DefaultArchives returns "off".
func DefaultArchives() string { return "off" }

// SystemBuild returns "unknown".
func SystemBuild() string { return "unknown" }
