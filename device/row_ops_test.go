//go:build cgo && linux && (amd64 || arm64)

package device_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	oracle "github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/passes"
)

// TestRowOps runs LayerNorm with and without its vectors, both forms of GELU and router,
// whose two tensors are results, and one of which the graph goes on with.
func TestRowOps(t *testing.T) {
	const width, vocab, k, maxT = 24, 40, 5, 6
	build := func() *ir.Func {
		f, err := ir.Build("rows", floatWeights{}, ir.Options{Block: 64}, func(b *ir.Builder) {
			x := b.Embed(b.Input(sym.Tokens), b.Weight("table", vocab, width))
			x = b.LayerNorm(x, b.Weight("gain", width), b.Weight("bias", width), 1e-5)
			x = b.GELU(b.Linear(x, b.Weight("up", 2*width, width)))
			x = b.LayerNorm(b.GELUTanh(b.Linear(x, b.Weight("down", width, 2*width))), nil, nil, 1e-5)
			values, indices := b.Router(b.Linear(b.GatherRows(x), b.Weight("head", vocab, width)), nil, nil, ir.RouterAttr{Score: ir.SigmoidScore, Chosen: k})
			b.Return("values", values)
			b.Return("indices", indices)
			again, _ := b.Router(b.Scale(values, -1), nil, nil, ir.RouterAttr{Score: ir.SigmoidScore, Chosen: 2})
			b.Return("least", again)
		})
		require.NoError(t, err)
		return f
	}
	r := rand.New(rand.NewPCG(3, 4))
	raw, numbers := map[string][]byte{}, map[string][]float32{}
	for name, n := range map[string]int{"table": vocab * width, "gain": width, "bias": width, "up": 2 * width * width,
		"down": 2 * width * width, "head": vocab * width} {
		raw[name] = randomFloats(r, n)
		numbers[name] = floats(raw[name])
	}
	ids := []int32{3, 39, 0, 7, 7}
	inputs := map[string][]int32{sym.Tokens: ids, sym.LogitRows: {0, 1, 2, 3, 4}}
	source := build()
	want, err := oracle.Run(source, oracle.Env{Sizes: oracle.SizesFor(inputs, 1), Inputs: inputs, Weight: oracle.Of(numbers)})
	require.NoError(t, err)
	for _, c := range []struct {
		target, device string
		bound          float64
	}{{"cpu", "cpu", 1e-4}, {"cpu", "emu", 1e-4}, {"metal", "emu", 0.05}} {
		target, err := lower.NewTarget(c.target)
		require.NoError(t, err)
		f := build()
		_, err = passes.Compile(f, &target.Target, ir.StepsOf(maxT), passes.Options{Level: 1})
		require.NoError(t, err)
		plan, err := lower.Lower("rows", []lower.Range{{Name: "step", Func: f, MinT: 1, MaxT: maxT}}, target, lower.Options{Context: 64})
		require.NoError(t, err)
		on, err := device.Open(c.device, device.Options{Threads: 2, Poison: true})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, on.Close()) })
		executable, err := on.Load(plan, func(name string) ([]byte, dtype.Type, error) {
			return raw[name], dtype.F32, nil
		})
		require.NoError(t, err)
		instance, err := executable.NewInstance(1)
		require.NoError(t, err)
		step := device.Step{Sizes: sym.Sizes(oracle.SizesFor(inputs, 1)), Inputs: inputs}
		require.NoError(t, instance.Run(t.Context(), &step))
		for _, name := range []string{"values", "least"} {
			got, err := instance.Output(name)
			require.NoError(t, err)
			for i, v := range want.Tensors[name].Data {
				require.InDelta(t, v, got[i], c.bound*max(1, math.Abs(v)), "%+v: %s[%d]", c, name, i)
			}
		}
		indices, err := instance.OutputInts("indices")
		require.NoError(t, err)
		for i, v := range want.Tensors["indices"].Ints {
			if c.target == "cpu" { // halves may exchange neighbours
				require.Equal(t, v, indices[i], "%+v: place %d", c, i)
			}
		}
	}
}
