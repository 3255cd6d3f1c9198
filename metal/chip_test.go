//go:build fakemetal && linux

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/metal/internal/fakemetal"
)

// TestDescribe has the name, the family and the cores of a GPU, and leaves nothing behind.
func TestDescribe(t *testing.T) {
	for _, o := range []fakemetal.Options{
		{Name: "Apple M4 Max", Cores: 32},
		{Name: "Apple M5", Cores: 10, Family: 10},
		{Name: "Apple M1", Family: 7}, // the registry says nothing of cores
	} {
		fake(t, o)
		info, err := device.Describe("auto", 0)
		require.NoError(t, err)
		family := o.Family
		if family == 0 {
			family = 9
		}
		require.Equal(t, []any{"metal", o.Name, family, o.Cores}, []any{info.Name, info.GPU, info.Family, info.Cores})
		nothingLeft(t)
	}
	info, err := device.Describe("cpu", 3)
	require.NoError(t, err)
	require.Equal(t, []any{"cpu", 3, ""}, []any{info.Name, info.Threads, info.GPU})
	require.NotEmpty(t, info.Processor)
	_, err = device.Describe("gpu", 0)
	require.ErrorIs(t, err, device.ErrDevice)
}

// TestOptionsOfTheDevice compiles for the GPU that there is.
func TestOptionsOfTheDevice(t *testing.T) {
	fake(t, fakemetal.Options{Name: "Apple M4 Max", Cores: 32})
	compiled := func() []any {
		m, err := smelt.Open("arch:qwen3-0.6b", "")
		require.NoError(t, err)
		p, err := m.Compile(smelt.DefaultOptions())
		require.NoError(t, err)
		o := p.Options()
		k := compiler.KnobsOf(&o)
		return []any{o.Target, o.Level, o.Chip, k.Family, k.Cores}
	}
	require.Equal(t, []any{"metal", 1, "m4-max", 9, 32}, compiled())
	fake(t, fakemetal.Options{NoDevice: true})
	require.Equal(t, []any{"cpu", 1, "", 0, 0}, compiled())
}
