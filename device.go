package smelt

import (
	"cmp"

	"github.com/smelt-ml/smelt/device"
	_ "github.com/smelt-ml/smelt/device/cpu" // the devices that programs have
	_ "github.com/smelt-ml/smelt/device/emu"
	"github.com/smelt-ml/smelt/internal/compiler"
	_ "github.com/smelt-ml/smelt/metal"
)

// Device names where a program runs and how. The name is "cpu", "emu", "metal" or
// "auto", in any case; none at all is "auto", which [Resolve] explains.
type Device struct {
	Name    string
	Threads int // 0: one for each processor
	// Options are for tests and measurements. Threads in it do not count.
	Options device.Options
}

func (d Device) options() device.Options {
	o := d.Options
	o.Threads = d.Threads
	return o
}

// Resolve returns the device that d stands for on this machine: where its name is
// "auto" or empty, "metal" if there is one, else "cpu". Any other name stands for
// itself, and whether there is such a device shows when it is opened.
//
// Errors wrap [device.ErrDevice].
func Resolve(d Device) (Device, error) {
	name, err := device.Resolve(cmp.Or(d.Name, "auto"))
	if err != nil {
		return d, err
	}
	d.Name = name
	return d, nil
}

// ErrTarget is matched by errors about a program for one target and a device for another.
var ErrTarget = compiler.ErrTarget
