package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// requireMatch checks a dispatch against the table of kernels: everything that is
// not optional is bound, with the access that the kernel has.
func requireMatch(t *testing.T, d *plan.Dispatch) {
	k, ok := kernels.Lookup(d.Kernel)
	require.True(t, ok, d.Kernel)
	require.Equal(t, k.ParamsIndex, int(d.ParamsAt), d.Label())
	require.Len(t, d.Params, k.ParamWords, d.Label())
	threads := int(d.Group[0] * d.Group[1] * d.Group[2])
	require.LessOrEqual(t, threads, k.MaxThreads, d.Label())

	bound := map[int]bool{}
	for _, b := range d.Bindings {
		a, ok := k.Arg(int(b.Index))
		require.True(t, ok, "%s binds %d of %s", d.Label(), b.Index, k.Name)
		require.Equal(t, a.Access == kernels.Read, b.Read, "%s: %s", d.Label(), a.Name)
		require.Equal(t, a.Access == kernels.Write, b.Write, "%s: %s", d.Label(), a.Name)
		bound[a.Index] = true
	}
	for _, a := range k.Args {
		require.True(t, a.Optional || bound[a.Index], "%s leaves %s of %s unbound", d.Label(), a.Name, k.Name)
	}
	set := map[uint32]bool{}
	for _, c := range d.Constants {
		set[c.Index] = true
	}
	for _, c := range k.Constants {
		require.True(t, c.Optional || set[uint32(c.Index)], "%s leaves constant %s of %s unset", d.Label(), c.Name, k.Name)
	}
}

// TestBindingsMatchKernels checks every dispatch of Plans for known shapes.
func TestBindingsMatchKernels(t *testing.T) {
	for _, arch := range []string{"qwen3-0.6b", "llama3.2-1b", "llama2-7b"} {
		m, err := smelt.Open("arch:"+arch, "q4_k_m")
		require.NoError(t, err)
		for _, target := range []string{"metal", "cpu"} {
			for level := range 2 {
				p, err := m.Compile(smelt.Options{Target: target, Level: fixture.Level(level), KV: dtype.F16, Context: 1024})
				require.NoError(t, err)
				for i := range p.Plan.Phases {
					for j := range p.Plan.Phases[i].Dispatches {
						requireMatch(t, &p.Plan.Phases[i].Dispatches[j])
					}
				}
			}
		}
	}
}
