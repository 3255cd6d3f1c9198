//go:build cgo && ((darwin && arm64) || fakemetal)

package kernels_test

import (
	"os"
	"sync"

	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/metal"
)

// onDevice runs launches on the device that SMELT_KERNELS_DEVICE names instead of on the
// emulator; nil where it names none. Only tests of kernels may know of devices, and only
// in builds that have a GPU or a stand-in for one.
var onDevice = sync.OnceValue(func() func(emulated.Launch) error {
	name := os.Getenv("SMELT_KERNELS_DEVICE")
	if name == "" {
		return nil
	}
	device, err := metal.Open(name, metal.Options{})
	if err != nil {
		panic(err)
	}
	return func(l emulated.Launch) error {
		return device.Launch(metal.Launch{Kernel: l.Kernel, Buffers: l.Buffers, Constants: l.Constants, Grid: l.Grid, Group: l.Group})
	}
})
