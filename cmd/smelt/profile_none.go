//go:build !cgo

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt/device"
)

func (f *profileFlags) run(*cobra.Command, bool) error {
	if err := f.check(); err != nil {
		return err
	}
	return fmt.Errorf("--profile: %w", device.ErrUnavailable)
}
