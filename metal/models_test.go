//go:build fakemetal && linux

package metal_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
)

// sessionOn starts the only sequence of a program on a device; closing what is loaded
// releases all of it.
func sessionOn(t *testing.T, program *smelt.Program, on string, opts device.Options) *smelt.Session {
	loaded, err := program.Load(smelt.Device{Name: on, Threads: opts.Threads, Options: opts})
	require.NoError(t, err)
	session, err := loaded.NewSession()
	require.NoError(t, err)
	return session
}

// feed returns the logits after a prompt and two more tokens.
func feed(t *testing.T, program *smelt.Program, on string, opts device.Options) []float32 {
	session := sessionOn(t, program, on, opts)
	defer session.Loaded().Close()
	return feedTo(t, session)
}

func feedTo(t *testing.T, session *smelt.Session) []float32 {
	var all []float32
	for _, ids := range [][]int32{{1, 100, 33, 7, 250}, {12}, {400}} {
		logits, err := session.Feed(t.Context(), ids)
		require.NoError(t, err)
		all = append(all, logits...)

		c := session.OnDevice().Counters()
		ph := &session.Loaded().OnDevice().Plan().Phases[c.Phase]
		barriers := 0
		kernels := map[string]int{}
		for i := range ph.Dispatches {
			kernels[ph.Dispatches[i].Kernel]++
			if ph.Dispatches[i].Barrier {
				barriers++
			}
		}
		require.Equal(t, len(ph.Dispatches), c.Dispatches)
		require.Equal(t, barriers, c.Barriers)
		require.Equal(t, len(ph.CommandBuffers), c.CommandBuffers)
		require.Len(t, c.Kernels, len(kernels))
		for _, k := range c.Kernels {
			require.Equal(t, kernels[k.Kernel], k.Dispatches)
		}
	}
	require.NotEqual(t, slices.Min(all), slices.Max(all))
	return all
}
