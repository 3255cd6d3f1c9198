package smelt_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
)

// here is the device that auto stands for, and the target that it runs.
func here() (device, target string) {
	if fixture.Bounds["metal"] != 0 {
		return "metal", "metal"
	}
	return "cpu", "cpu"
}

// TestResolve: one meaning of auto, for resolving, for the target to compile for, and
// for opening.
func TestResolve(t *testing.T) {
	on, target := here()
	for name, want := range map[string]string{
		"": on, "auto": on, "Auto": on, "cpu": "cpu", "CPU": "cpu", "emu": "emu", "metal": "metal",
	} {
		d, err := smelt.Resolve(smelt.Device{Name: name, Threads: 3, Options: device.Options{Poison: true}})
		require.NoError(t, err, name)
		require.Equal(t, smelt.Device{Name: want, Threads: 3, Options: device.Options{Poison: true}}, d, name)
	}
	for name, want := range map[string]string{"": target, "auto": target, "cpu": "cpu", "emu": "metal", "EMU": "metal", "metal": "metal"} {
		got, err := smelt.TargetOf(name)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	want := smelt.Options{Target: target, Level: 1}
	want.ChooseFor(smelt.ChipOf(smelt.Device{Name: on}))
	require.Equal(t, on == "metal", want.Chip != "", "a GPU has a chip")
	require.Equal(t, want, smelt.DefaultOptions())
	opened, err := device.Open("auto", device.Options{})
	require.NoError(t, err)
	require.Equal(t, on, opened.Info().Name)
	require.NoError(t, opened.Close())

	_, err = smelt.Resolve(smelt.Device{Name: "gpu"})
	require.ErrorIs(t, err, device.ErrDevice)
	_, err = smelt.TargetOf("gpu")
	require.ErrorIs(t, err, device.ErrDevice)
}

// TestOtherTarget runs programs of both targets on every device: one of its own target
// runs, another is refused, by both names.
func TestOtherTarget(t *testing.T) {
	m, err := smelt.Open(testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf"), "")
	require.NoError(t, err)
	defer m.Close()
	device, runs := here()
	devices := map[string]smelt.TargetError{
		"cpu": {Device: "cpu", Runs: "cpu"}, "emu": {Device: "emu", Runs: "metal"},
		"": {Device: device, Runs: runs}, "auto": {Device: device, Runs: runs},
	}
	for _, target := range []string{"cpu", "metal"} {
		p, err := m.Compile(smelt.Options{Target: target, Level: 1, Context: 64})
		require.NoError(t, err)
		for name, want := range devices {
			l, err := p.Load(smelt.Device{Name: name})
			if want.Runs == target {
				require.NoError(t, err, "%s on %q", target, name)
				require.Equal(t, want.Device, l.Info().Name)
				require.NoError(t, l.Close())
				continue
			}
			want.Target = target
			require.ErrorIs(t, err, smelt.ErrTarget, "%s on %q", target, name)
			var refused *smelt.TargetError
			require.True(t, errors.As(err, &refused))
			require.Equal(t, want, *refused)
			require.ErrorContains(t, err, "compiled for "+target+", and the device "+want.Device+" runs plans for "+want.Runs)
		}
	}
}
