//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

package device

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
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
		device, err := Open(name, Options{})
		require.NoError(t, err)
		defer device.Close()
		from, to := floatsOf(1, -2, 3, 9), floatsOf(0, 0, 0, 7)
		buffers, _, err := kernels.Bind("scale_f32", map[string][]byte{"a": from, "out": to},
			kernels.ElementParams{Rows: 1, Width: 3, AStride: 3, BStride: 3, Value: 2}, nil)
		require.NoError(t, err)
		k, _ := kernels.Lookup("scale_f32")
		launch := Launch{Kernel: k.Name, Buffers: buffers, Grid: [3]uint32{1, 1, 1}, Group: [3]uint32{256, 1, 1}}
		require.NoError(t, device.Launch(launch))
		require.Equal(t, floatsOf(1, -2, 3, 9), from)
		require.Equal(t, floatsOf(2, -4, 6, 7), to)
		require.Zero(t, device.reserved)

		for want, change := range map[string]func(l *Launch){
			"no such kernel": func(l *Launch) { l.Kernel = "scale" },
			fmt.Sprintf("no parameters at buffer %d", k.ParamsIndex): func(l *Launch) { l.Buffers = l.Buffers[:k.ParamsIndex] },
			"function constant 32":                       func(l *Launch) { l.Constants = map[uint32]uint32{32: 1} },
			"threadgroups of 512 threads":                func(l *Launch) { l.Group[0] = 512 },
			"launching scale_f32 on " + device.info.Name: func(l *Launch) { l.Group[0] = 512 },
		} {
			wrong := launch
			change(&wrong)
			require.ErrorContains(t, device.Launch(wrong), want)
		}
		require.NoError(t, device.Close())
		require.ErrorIs(t, device.Launch(launch), ErrClosed)
	}
}
