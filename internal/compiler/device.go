package compiler

import (
	"errors"
	"fmt"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower/predict"
)

// ErrTarget matches errors about a device that runs another target's programs.
var ErrTarget = errors.New("compiled for another target")

// targetError reports that a device does not run programs of a target.
type targetError struct {
	target string // of the program
	device string // its resolved name
	runs   string // the device's target
}

func (e *targetError) Error() string {
	return fmt.Sprintf("it was compiled for %s, and the device %s runs plans for %s", e.target, e.device, e.runs)
}

func (e *targetError) Is(target error) bool { return target == ErrTarget }

// Accept returns an error that matches [ErrTarget] if a device does not run programs of a target.
func Accept(target, name string) error {
	runs, err := device.TargetOf(name)
	if err == nil && runs != target {
		err = &targetError{target, name, runs}
	}
	return err
}

// ChipOf returns the chip of a GPU, with its number of cores; nil for other devices, and if the GPU
// is absent. name is a resolved one.
func ChipOf(name string) *predict.Chip {
	if name != "metal" {
		return nil
	}
	info, err := device.Describe(name, 1)
	if err != nil {
		return nil
	}
	c, _ := predict.FindGPU(info.GPU, info.Family, info.Cores)
	return c
}

// Fetch returns the device.Fetch of a model's weights.
func Fetch(model string, weights interface {
	Data(name string) (t dtype.Type, data []byte, ok bool)
}) device.Fetch {
	return func(name string) ([]byte, dtype.Type, error) {
		t, data, ok := weights.Data(name)
		if !ok {
			return nil, dtype.Invalid, fmt.Errorf("%s has no such tensor", model)
		}
		return data, t, nil
	}
}
