package smelt

import (
	"cmp"

	"github.com/smelt-ml/smelt/device"
	_ "github.com/smelt-ml/smelt/device/cpu" // the devices that programs have
	_ "github.com/smelt-ml/smelt/device/emu"
	"github.com/smelt-ml/smelt/internal/compiler"
	_ "github.com/smelt-ml/smelt/metal"
)

// Device selects the device that runs a program. The name is "cpu", "emu", "metal" or
// "auto", in any letter case; "" means "auto", see [Resolve].
type Device struct {
	Name    string
	Threads int // worker threads on the CPU; 0: one per processor
	// Options are for tests and measurements; Options.Threads is ignored.
	Options device.Options
}

func (d Device) options() device.Options {
	o := d.Options
	o.Threads = d.Threads
	return o
}

// Resolve replaces the name "auto" or "" by "metal" if this machine has a Metal GPU, else by
// "cpu". It keeps any other known name, without a check that the device exists, which
// [Program.Load] makes.
//
// The error about an unknown name wraps [device.ErrDevice].
func Resolve(d Device) (Device, error) {
	name, err := device.Resolve(cmp.Or(d.Name, "auto"))
	if err != nil {
		return d, err
	}
	d.Name = name
	return d, nil
}

// ErrTarget is wrapped by errors about a program and a device of different targets.
var ErrTarget = compiler.ErrTarget
