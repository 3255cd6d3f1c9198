//go:build cgo && linux && (amd64 || arm64)

package device_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// mutations are ways in which a Plan from a file may lie.
var mutations = []func(r *rand.Rand, p *plan.Plan){
	func(r *rand.Rand, p *plan.Plan) { anyBinding(r, p).Offset = number(r) },
	func(r *rand.Rand, p *plan.Plan) { anyBinding(r, p).Buffer = int32(r.IntN(12) - 2) },
	func(r *rand.Rand, p *plan.Plan) { anyBinding(r, p).Index = uint32(r.IntN(36)) },
	func(r *rand.Rand, p *plan.Plan) { anyBinding(r, p).Bytes = expression(r) },
	func(r *rand.Rand, p *plan.Plan) { anyDispatch(r, p).ParamsAt = uint32(r.IntN(36)) },
	func(r *rand.Rand, p *plan.Plan) { anyDispatch(r, p).Params[0] = expression(r) },
	func(r *rand.Rand, p *plan.Plan) { anyDispatch(r, p).Params = nil },
	func(r *rand.Rand, p *plan.Plan) {
		anyDispatch(r, p).Grid[r.IntN(3)] = plan.Number(int64(r.IntN(50) - 3))
	},
	func(r *rand.Rand, p *plan.Plan) { anyDispatch(r, p).Group[r.IntN(3)] = uint32(r.IntN(3000)) },
	func(r *rand.Rand, p *plan.Plan) {
		anyDispatch(r, p).Constants = []plan.Constant{{Index: uint32(r.IntN(40))}}
	},
	func(r *rand.Rand, p *plan.Plan) { p.Phases[0].CommandBuffers = []int{r.IntN(3) - 1, r.IntN(12)} },
	func(r *rand.Rand, p *plan.Plan) { p.Phases[0].Bounds[r.IntN(sym.Count)] = number(r) },
	func(r *rand.Rand, p *plan.Plan) { p.Phases[0].Least[r.IntN(sym.Count)] = number(r) },
	func(r *rand.Rand, p *plan.Plan) { p.Phases[0].Longest.Max = number(r) },
	func(r *rand.Rand, p *plan.Plan) { anyBuffer(r, p).Bytes = expression(r) },
	func(r *rand.Rand, p *plan.Plan) { anyBuffer(r, p).Kind = plan.Kind(r.IntN(9)) },
	func(r *rand.Rand, p *plan.Plan) { anyBuffer(r, p).DType = dtype.Type(r.IntN(20)) },
	func(r *rand.Rand, p *plan.Plan) { p.Phases[0].Dispatches = p.Phases[0].Dispatches[:r.IntN(3)] },
	func(r *rand.Rand, p *plan.Plan) { p.Buffers = p.Buffers[:r.IntN(len(p.Buffers))] },
}

func anyDispatch(r *rand.Rand, p *plan.Plan) *plan.Dispatch {
	return &p.Phases[0].Dispatches[r.IntN(len(p.Phases[0].Dispatches))]
}

func anyBinding(r *rand.Rand, p *plan.Plan) *plan.Binding {
	d := anyDispatch(r, p)
	return &d.Bindings[r.IntN(len(d.Bindings))]
}

func anyBuffer(r *rand.Rand, p *plan.Plan) *plan.Buffer { return &p.Buffers[r.IntN(len(p.Buffers))] }

func number(r *rand.Rand) int64 {
	return []int64{0, 1, -1, 4, 64, 4096, math.MaxInt32, math.MaxUint32, math.MaxInt64, math.MinInt64}[r.IntN(10)]
}

func expression(r *rand.Rand) plan.Expr {
	e := plan.Number(number(r))
	for range r.IntN(3) {
		t := plan.Term{Mul: number(r), Add: number(r), Div: number(r)}
		t.Pow[r.IntN(sym.Count)] = uint8(r.IntN(6))
		e.Terms = append(e.Terms, t)
	}
	return e
}

// A Plan that lies is refused, or runs within its buffers: under AddressSanitizer
// (go test -asan) this would show.
func FuzzLyingPlan(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := sumSketch(8, 2)
		for range 1 + r.IntN(2) {
			func() {
				defer func() { _ = recover() }() // of a mutation of what another took away
				mutations[r.IntN(len(mutations))](r, &s.plan)
			}()
		}
		d, err := device.Open("trial-cpu", device.Options{Threads: 2, MemoryLimit: 64 << 20})
		require.NoError(t, err)
		defer d.Close()
		p, err := load(d, &s.plan, noTensors)
		if err != nil {
			return
		}
		instance, err := p.NewInstance(1)
		if err != nil {
			return
		}
		for _, n := range []int64{1, 8} {
			step := device.Step{Sizes: sizes(n), Inputs: map[string][]int32{"tokens": make([]int32, n)}}
			if instance.Run(t.Context(), &step) == nil {
				_, _ = instance.Output("sums")
			}
		}
	})
}
