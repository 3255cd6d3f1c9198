package smelt_test

import (
	"bytes"
	"cmp"
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
		got, err := device.TargetOf(cmp.Or(name, "auto"))
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	require.Equal(t, smelt.Device{Name: on}, smelt.DefaultOptions().Device)
	m, err := smelt.Open("arch:qwen3-0.6b", "")
	require.NoError(t, err)
	var plans [][]byte
	for _, o := range []smelt.Options{smelt.DefaultOptions(), {}, {Device: smelt.Device{Name: on}, Level: 1}} {
		p, err := m.Compile(o)
		require.NoError(t, err)
		require.Equal(t, target, p.Options().Target)
		require.Equal(t, on == "metal", p.Options().Chip != "", "a GPU has a chip")
		var b bytes.Buffer
		require.NoError(t, p.Save(&b))
		plans = append(plans, b.Bytes())
	}
	require.Equal(t, plans[0], plans[1], "zero fields are those of DefaultOptions")
	require.Equal(t, plans[0], plans[2])
	opened, err := device.Open("auto", device.Options{})
	require.NoError(t, err)
	require.Equal(t, on, opened.Info().Name)
	require.NoError(t, opened.Close())

	_, err = smelt.Resolve(smelt.Device{Name: "gpu"})
	require.ErrorIs(t, err, device.ErrDevice)
	_, err = device.TargetOf("gpu")
	require.ErrorIs(t, err, device.ErrDevice)
}

// TestOtherTarget runs programs of both targets on every device: one of its own target
// runs, another is refused, by both names.
func TestOtherTarget(t *testing.T) {
	m, err := smelt.Open(testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf"), "")
	require.NoError(t, err)
	defer m.Close()
	device, runs := here()
	devices := map[string]struct{ name, runs string }{
		"cpu": {"cpu", "cpu"}, "emu": {"emu", "metal"}, "": {device, runs}, "auto": {device, runs},
	}
	for _, target := range []string{"cpu", "metal"} {
		p, err := m.Compile(smelt.Options{Target: target, Level: 1, Context: 64})
		require.NoError(t, err)
		for name, want := range devices {
			l, err := p.Load(smelt.Device{Name: name})
			if want.runs == target {
				require.NoError(t, err, "%s on %q", target, name)
				require.Equal(t, want.name, l.Info().Name)
				require.NoError(t, l.Close())
				continue
			}
			require.ErrorIs(t, err, smelt.ErrTarget, "%s on %q", target, name)
			require.ErrorContains(t, err, "compiled for "+target+", and the device "+want.name+" runs plans for "+want.runs)
		}
	}
}
