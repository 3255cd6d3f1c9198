package smelt

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/lower/predict"
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
// itself, and whether there is such a device shows when it is opened. Programs run on
// devices of the target that they were compiled for, so a device is resolved before
// compiling:
//
//	d, err := smelt.Resolve(smelt.Device{})
//	target, err := smelt.TargetOf(d.Name)
//	p, err := m.Compile(smelt.Options{Target: target, Level: 1})
//	l, err := p.Load(d)
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

// TargetOf returns the target of the programs that a device of that name runs, named as in
// [Device]: "metal" or "cpu".
func TargetOf(name string) (string, error) { return device.TargetOf(cmp.Or(name, "auto")) }

// ChipOf returns the chip of a device that is a GPU, with the cores that the system counts; nil
// for another, and where there is none to ask. d is resolved.
func ChipOf(d Device) *predict.Chip {
	if device := d.Name; device != "metal" {
		return nil
	}
	info, err := device.Describe(d.Name, 1)
	if err != nil {
		return nil
	}
	c, _ := predict.FindGPU(info.GPU, info.Family, info.Cores)
	return c
}

// ErrTarget is matched by errors about a program for one target and a device for another.
var ErrTarget = errors.New("compiled for another target")

// TargetError tells that a device refuses a program of another target. It matches
// [ErrTarget].
type TargetError struct {
	Target string // that the program was compiled for
	Device string // the resolved name
	Runs   string // the target of the programs that the device runs
}

func (e *TargetError) Error() string {
	return fmt.Sprintf("it was compiled for %s, and the device %s runs plans for %s", e.Target, e.Device, e.Runs)
}

// Is reports whether target is ErrTarget.
func (e *TargetError) Is(target error) bool { return target == ErrTarget }

// accept returns an error where a device does not run programs of that target.
func (d Device) accept(target string) error {
	runs, err := TargetOf(d.Name)
	if err == nil && runs != target {
		err = &TargetError{Target: target, Device: d.Name, Runs: runs}
	}
	return err
}
