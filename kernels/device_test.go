//go:build cgo && ((darwin && arm64) || fakemetal)

package kernels_test

import (
	"os"
	"sync"

	"github.com/smelt-ml/smelt/device"
	_ "github.com/smelt-ml/smelt/device/cpu"
	_ "github.com/smelt-ml/smelt/device/emu"
	"github.com/smelt-ml/smelt/kernels/emulated"
	_ "github.com/smelt-ml/smelt/metal"
)

// onDevice runs launches on the device that SMELT_KERNELS_DEVICE names instead of on the
// emulator; nil where it names none. Only tests of kernels may know of devices, and only
// in builds that have a GPU or a stand-in for one.
var onDevice = sync.OnceValue(func() func(emulated.Launch) error {
	name := os.Getenv("SMELT_KERNELS_DEVICE")
	if name == "" {
		return nil
	}
	d, err := device.Open(name, device.Options{})
	if err != nil {
		panic(err)
	}
	return func(l emulated.Launch) error {
		return d.Launch(device.Launch{Kernel: l.Kernel, Buffers: l.Buffers, Constants: l.Constants, Grid: l.Grid, Group: l.Group})
	}
})
