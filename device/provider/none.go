//go:build !(cgo && ((linux && (amd64 || arm64)) || (darwin && arm64)))

package provider

import (
	"unsafe"

	"github.com/smelt-ml/smelt/device"
)

// Open returns device.ErrUnavailable: this build has no provider.
func Open(unsafe.Pointer, Options) (device.Driver, error) { return nil, device.ErrUnavailable }
