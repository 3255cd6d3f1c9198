//go:build !(cgo && ((linux && (amd64 || arm64)) || (darwin && arm64)))

package host

import "unsafe"

// Provider returns nil: this build executes nothing.
func Provider() unsafe.Pointer { return nil }

// Half returns nil.
func Half() unsafe.Pointer { return nil }
