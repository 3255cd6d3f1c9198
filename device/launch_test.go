//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

package device_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	_ "github.com/smelt-ml/smelt/device/cpu"
	_ "github.com/smelt-ml/smelt/device/emu"
	"github.com/smelt-ml/smelt/kernels"
	_ "github.com/smelt-ml/smelt/metal"
)

// TestLaunch doubles numbers on every device that is there.
func TestLaunch(t *testing.T) {
	floatsOf := func(values ...float32) []byte {
		var data []byte
		for _, v := range values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		return data
	}
	for _, name := range []string{"emu", "cpu", "auto"} {
		d, err := device.Open(name, device.Options{})
		require.NoError(t, err)
		defer d.Close()
		from, to := floatsOf(1, -2, 3, 9), floatsOf(0, 0, 0, 7)
		buffers, _, err := kernels.Bind("scale_f32", map[string][]byte{"a": from, "out": to},
			kernels.ElementParams{Rows: 1, Width: 3, AStride: 3, BStride: 3, Value: 2}, nil)
		require.NoError(t, err)
		k, _ := kernels.Lookup("scale_f32")
		launch := device.Launch{Kernel: k.Name, Buffers: buffers, Grid: [3]uint32{1, 1, 1}, Group: [3]uint32{256, 1, 1}}
		require.NoError(t, d.Launch(launch))
		require.Equal(t, floatsOf(1, -2, 3, 9), from)
		require.Equal(t, floatsOf(2, -4, 6, 7), to)
		require.Zero(t, d.Reserved())

		for want, change := range map[string]func(l *device.Launch){
			"no such kernel": func(l *device.Launch) { l.Kernel = "scale" },
			fmt.Sprintf("no parameters at buffer %d", k.ParamsIndex): func(l *device.Launch) { l.Buffers = l.Buffers[:k.ParamsIndex] },
			"function constant 32":                              func(l *device.Launch) { l.Constants = map[uint32]uint32{32: 1} },
			"threadgroups of 512 threads":                       func(l *device.Launch) { l.Group[0] = 512 },
			"device " + d.Info().Name + ": launching scale_f32": func(l *device.Launch) { l.Group[0] = 512 },
		} {
			wrong := launch
			change(&wrong)
			require.ErrorContains(t, d.Launch(wrong), want)
		}
		require.NoError(t, d.Close())
		require.ErrorIs(t, d.Launch(launch), device.ErrClosed)
	}
}
