package device

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

func TestPipelineLimits(t *testing.T) {
	k := &kernels.Kernel{Name: "wide", MaxThreads: 256, ThreadgroupBytes: 20 << 10}
	for _, c := range []struct {
		group   [3]uint32
		dynamic int
		want    string
	}{
		{[3]uint32{256, 1, 1}, 0, ""},
		{[3]uint32{8, 4, 8}, 12 << 10, ""},
		{[3]uint32{257, 1, 1}, 0, "257 threads; it runs with 1 to 256"},
		{[3]uint32{1 << 31, 1 << 31, 4}, 0, "threads; it runs with"},
		{[3]uint32{256, 0, 1}, 0, "0 threads"},
		{[3]uint32{32, 1, 1}, 12<<10 + 1, "32769 bytes of threadgroup memory (20480 its own, 12289 by the launch); an Apple GPU has 32768"},
	} {
		got := refuses(k, c.group, c.dynamic)
		if c.want == "" {
			require.Empty(t, got)
		} else {
			require.Contains(t, got, c.want)
		}
	}
	for _, k := range kernels.All() {
		require.Empty(t, refuses(&k, [3]uint32{uint32(k.MaxThreads), 1, 1}, 0), k.Name)
	}
}

func TestPipelinesAreChecked(t *testing.T) {
	plan := &plan.Plan{Phases: []plan.Phase{{Name: "decode", Dispatches: []plan.Dispatch{
		{Kernel: "linear_vec_f16_f32", Group: [3]uint32{256, 1, 1}},
		{Kernel: "not in the table", Group: [3]uint32{4096, 1, 1}},
		{Kernel: "linear_mat_f16_f32", Op: ir.OpLinear.String(), Value: 9, Layer: 3, Group: [3]uint32{128, 2, 1}},
	}}}}
	err := checkPipelines(plan)
	require.ErrorIs(t, err, ErrPipeline)
	var at *DispatchError
	require.ErrorAs(t, err, &at)
	require.Equal(t, "linear_mat_f16_f32", at.Kernel)
	require.ErrorContains(t, err, "decode dispatch 2 (layer 3: linear v9, kernel linear_mat_f16_f32): threadgroups of 256 threads; it runs with 1 to 128")

	plan.Phases[0].Dispatches[2].Group = [3]uint32{128, 1, 1}
	require.NoError(t, checkPipelines(plan))
}
