//go:build !(cgo && ((darwin && arm64) || (fakemetal && linux)))

package apple

import "unsafe"

// Provider returns nil: this build has no bridge to Apple's GPUs.
func Provider() unsafe.Pointer { return nil }

// Kernels returns none.
func Kernels() Sources { return Sources{} }

// DefaultArchives is no folder.
func DefaultArchives() string { return "off" }

// SystemBuild is unknown.
func SystemBuild() string { return "unknown" }
