//go:build !(cgo && ((linux && (amd64 || arm64)) || (darwin && arm64)))

package device

import "unsafe"

func standardSuppliers() (emulator, native unsafe.Pointer) { return nil, nil }

func newHostDriver(bool, Options, suppliers) (driver, error) { return nil, ErrUnavailable }

func newAppleDriver(Options, suppliers) (driver, error) { return nil, errNoBridge }
