package compiler

import (
	"errors"
	"fmt"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower/predict"
)

// ErrTarget is matched by errors about a program for one target and a device for another.
var ErrTarget = errors.New("compiled for another target")

// targetError reports that a device refuses a program of another target.
type targetError struct {
	target string // that the program was compiled for
	device string // the resolved name
	runs   string // the target of the programs that the device runs
}

func (e *targetError) Error() string {
	return fmt.Sprintf("it was compiled for %s, and the device %s runs plans for %s", e.target, e.device, e.runs)
}

func (e *targetError) Is(target error) bool { return target == ErrTarget }

// Accept returns an error, of [ErrTarget], where a device does not run programs of a target.
func Accept(target, name string) error {
	runs, err := device.TargetOf(name)
	if err == nil && runs != target {
		err = &targetError{target, name, runs}
	}
	return err
}

// ChipOf returns the chip of a device that is a GPU, with the cores that the system counts; nil
// for another, and where there is none to ask. The device is resolved.
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

// Fetch gives a device the bytes of the weights of a model.
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
