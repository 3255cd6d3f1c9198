//go:build !(cgo && ((darwin && arm64) || fakemetal))

package kernels_test

import "github.com/smelt-ml/smelt/kernels/emulated"

func onDevice() func(emulated.Launch) error { return nil }
