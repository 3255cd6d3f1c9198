package lower

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Exactly the ops that lower selects a kernel for have rows, and each row has the kernels that its
// types name.
func TestInstances(t *testing.T) {
	for op := range ir.Op(ir.NumOps) {
		if op == ir.OpInvalid || op.IsLeaf() || op.IsAlias() {
			require.Empty(t, instances[op], op)
			continue
		}
		_, selected := selectors[op]
		require.Equal(t, selected, len(instances[op]) > 0, op)
	}
	for op, want := range map[ir.Op]ir.Types{
		ir.OpEmbed:               {In: dtype.I32, Out: dtype.F32},
		ir.OpLinear:              {In: dtype.F16, Out: dtype.F32},
		ir.OpFusedLinear:         {In: dtype.F32, Out: dtype.F16},
		ir.OpRoutedLinear:        {In: dtype.F16, Out: dtype.F32},
		ir.OpRMSNorm:             {In: dtype.F32, Out: dtype.F16},
		ir.OpArgmax:              {In: dtype.F32, Out: dtype.I32},
		ir.OpRouter:              {In: dtype.F32, Out: dtype.F32},
		ir.OpCast:                {In: dtype.F16, Out: dtype.F32},
		ir.OpSlice:               {In: dtype.F32, Out: dtype.F32},
		ir.OpCacheWrite:          {In: dtype.F16, Cache: dtype.Q8_0},
		ir.OpCacheRead:           {In: dtype.I32, Out: dtype.F32, Cache: dtype.Q8_0},
		ir.OpAttention:           {In: dtype.F16, Out: dtype.F16, Cache: dtype.F32},
		ir.OpRopeQKVWrite:        {In: dtype.BF16, Out: dtype.BF16, Cache: dtype.BF16},
		ir.OpHeadNormRopeKVWrite: {In: dtype.F32, Out: dtype.F32, Cache: dtype.Q8_0},
		ir.OpRepeatKVPair:        {In: dtype.F16, Out: dtype.F16},

		ir.OpRopeQKVWriteAttention:        {In: dtype.F16, Out: dtype.F16, Cache: dtype.F16},
		ir.OpHeadNormRopeKVWriteAttention: {In: dtype.F32, Out: dtype.F32, Cache: dtype.Q8_0},
		ir.OpHeadNormRopeAttention:        {In: dtype.F16, Out: dtype.F16, Cache: dtype.F16},
	} {
		require.True(t, has(instances[op], want), "%s %v", op, want)
	}
	for op, lacks := range map[ir.Op]ir.Types{
		ir.OpRMSNorm:    {In: dtype.F16, Out: dtype.F32},
		ir.OpAdd:        {In: dtype.F32, Out: dtype.F16},
		ir.OpAttention:  {In: dtype.BF16, Out: dtype.BF16, Cache: dtype.F16},
		ir.OpCacheWrite: {In: dtype.F16, Out: dtype.F16, Cache: dtype.F16},
	} {
		require.False(t, has(instances[op], lacks), "%s %v", op, lacks)
	}
	for op, rows := range instances {
		for _, row := range rows {
			reads := slices.Contains([]ir.Op{ir.OpLinear, ir.OpFusedLinear, ir.OpEmbed, ir.OpExpertLinear, ir.OpRoutedLinear}, ir.Op(op))
			require.Equal(t, reads, row.Weights == dtype.SetOf(weightTypes...) && row.Weights != 0, ir.Op(op))
		}
	}
}

func has(rows []ir.Instance, want ir.Types) bool {
	return slices.ContainsFunc(rows, func(row ir.Instance) bool { return row.Types == want })
}

// A CPU has kernels of its own for floats, and emulates the rest; a GPU emulates none.
func TestNative(t *testing.T) {
	cpu, err := NewTarget("cpu")
	require.NoError(t, err)
	metal, err := NewTarget("metal")
	require.NoError(t, err)
	require.True(t, cpu.Native(dtype.F32))
	require.False(t, cpu.Native(dtype.F16))
	require.True(t, metal.Native(dtype.F32) && metal.Native(dtype.F16))
	require.True(t, Emulated("cpu", "linear_vec_f16_f16"))
	require.False(t, Emulated("cpu", "linear_vec_f32_f32"))
	require.False(t, Emulated("metal", "linear_vec_f16_f16"))

	cpu.Kernels[ir.OpAdd][0].Weights = 1
	again, err := NewTarget("cpu")
	require.NoError(t, err)
	require.Zero(t, again.Kernels[ir.OpAdd][0].Weights, "targets share rows")
	_, err = NewTarget("vulkan")
	require.ErrorContains(t, err, `"vulkan" (cpu, metal)`)
}

// Plans for a CPU have no command buffers, note no choices of launches, and rearrange matrices.
func TestSchedules(t *testing.T) {
	for machine, buffers := range map[string]bool{"metal": true, "cpu": false} {
		compiled := compiledFor(t, machine, "qwen3-0.6b", "q4_0", 1, 512)
		for i := range compiled.Phases {
			ph := &compiled.Phases[i]
			require.Equal(t, buffers, len(ph.CommandBuffers) > 1, machine)
			require.Equal(t, buffers, len(ph.CommandBuffers) > 0, machine)
			require.Equal(t, buffers, len(ph.Choices) > 0, machine)
			for j := range ph.Dispatches {
				require.Equal(t, machine == "cpu" && !nativeOf(t, ph.Dispatches[j].Kernel), Emulated(machine, ph.Dispatches[j].Kernel))
			}
		}
		rearranged := slices.ContainsFunc(compiled.Buffers, func(b plan.Buffer) bool { return b.Rearrange })
		require.Equal(t, !buffers, rearranged, machine)
		compiled.Phases[0].CommandBuffers = nil
		if buffers {
			require.ErrorContains(t, compiled.Validate(), "no command buffer")
		} else {
			require.NoError(t, compiled.Validate())
		}
	}
}

// Matrices of target metal have separate scales and codes ([kernels.Lines]) where that was measured
// to be faster, if every dispatch that reads them supports it.
func TestLinesAreMeasured(t *testing.T) {
	plain := compiledFor(t, "metal", "qwen3-0.6b", "q4_0", 1, 512)
	tuning := &Tuning{}
	for i := range plain.Phases {
		for _, s := range plain.Phases[i].Sites {
			if s.Choice == "layout" {
				require.Equal(t, plan.Setting{"rearranged": 0}, s.Taken)
				require.True(t, s.Exact)
				tuning.Keep(Winner{Choice: s.Choice, Kernel: s.Kernel, Shape: s.Shape, Setting: plan.Setting{"rearranged": 1}})
			}
		}
	}
	for _, b := range plain.Buffers {
		require.False(t, b.Lines, b.Name)
	}
	lined := func(place Placement) *plan.Plan {
		return compiledWith(t, "metal", "qwen3-0.6b", "q4_0", 1, Options{Context: 512, Tuning: tuning, Products: place})
	}
	compiled := lined(nil)
	read := 0
	for i := range compiled.Phases {
		for j := range compiled.Phases[i].Dispatches {
			d := &compiled.Phases[i].Dispatches[j]
			for k := range d.Bindings {
				b := &compiled.Buffers[d.Bindings[k].Buffer]
				c := d.TypeOf(&d.Bindings[k])
				if c == nil {
					require.False(t, b.Lines)
					continue
				}
				require.Equal(t, kernels.HasLines(uint32(b.DType)), b.Lines, b.Name)
				if b.Lines {
					read++
					require.Equal(t, uint32(b.DType)+kernels.Lines, c.Bits)
				}
			}
		}
		require.True(t, slices.ContainsFunc(compiled.Phases[i].Choices, func(c plan.Decision) bool { return c.Measured && c.Choice == "rearranged 1" }))
	}
	require.Greater(t, read, 28*7)

	at := slices.IndexFunc(compiled.Buffers, func(b plan.Buffer) bool { return b.Lines })
	compiled.Buffers[at].Lines = false
	require.ErrorContains(t, compiled.Validate(), "another type or order")
	compiled.Buffers[at].Lines, compiled.Buffers[at].DType = true, dtype.F32
	require.ErrorContains(t, compiled.Validate(), "in lines")

	for _, b := range lined(AtLeast(1)).Buffers { // a CPU reads all of them
		require.False(t, b.Lines, b.Name)
	}
}

func nativeOf(t *testing.T, kernel string) bool {
	k, ok := kernels.Lookup(kernel)
	require.True(t, ok, kernel)
	return k.Native
}
