package predict

import (
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Times in µs that are assumed to be the same on all chips.
const (
	issue  = 0.5 // between the starts of concurrent dispatches
	encode = 1.0 // of one dispatch, by the CPU
	commit = 5.0 // of a command buffer, by the CPU
	submit = 15  // from a commit until an idle GPU starts
	gap    = 3.0 // between command buffers that follow each other
	wake   = 40  // from the end of a step until the CPU goes on
)

// efficiency is the share of the peak rate of operations that a family of kernels
// reaches where operations bound it. Engines measured in prefill reach 0.5 to 0.75
// of the peak in products of large matrices.
var efficiency = map[string]float64{
	"linear_mat": 0.6, "norm_linear_mat": 0.6, "attention_tile": 0.4, "matmul": 0.3,
}

const otherEfficiency = 0.25 // decoding weights and reductions across lanes cost the rest

// shiftEfficiency is the share of its peak rate that the pipe for shifts and conversions reaches
// where it bounds a product, since simdgroups wait for memory too.
const shiftEfficiency = 0.8

// cacheBytes is the number of bytes per clock that a core reads from the cache that the cores share:
// the width of its bus (philipturner/metal-benchmarks). Chips and Cheese measured 38 on M1 (iGPU
// Cache Setups Compared, 2022).
const cacheBytes = 32

// coreReach is the maximum bandwidth of one core, in equal shares of the chip's bandwidth per core.
// A few threadgroups cannot keep the memory busy.
const coreReach = 3.0

// Timeline is the simulated run of a step on a chip. It is a prediction: nothing of it was measured.
// Times are in µs from the moment at which the CPU starts to encode the step.
type Timeline struct {
	Chip    *Chip
	Spans   []Span       // by dispatch
	Buffers []BufferSpan // by command buffer
	Total   float64      // until the CPU goes on
	Cost    Cost         // of the step
	Tokens  int64        // of the step

	// The parts of Total: the time in which memory or arithmetic bound the dispatches, and the
	// rest, in which the GPU is idle.
	Memory, Compute, Overhead float64
}

// Span holds the times at which a dispatch starts and ends.
type Span struct{ Start, End float64 }

// BufferSpan holds the times at which a command buffer is encoded and runs. In a Plan without
// command buffers, all dispatches count as one.
type BufferSpan struct {
	First, Count           int // dispatches
	EncodeStart, EncodeEnd float64
	Start, End             float64
}

// Prediction is the summary of a Timeline.
type Prediction struct {
	Chip            string  `json:"chip"`
	MS              float64 `json:"ms"` // of a step
	TokensPerSecond float64 `json:"tokens_per_second"`
	BandwidthShare  float64 `json:"bandwidth_share"` // of the chip's stated bandwidth
	Bound           string  `json:"bound"`           // the largest part of the time: "memory", "compute" or "overhead"
}

// Predict returns the summary of the timeline.
func (t *Timeline) Predict() Prediction {
	p := Prediction{
		Chip: t.Chip.Name, MS: t.Total / 1e3, TokensPerSecond: float64(t.Tokens) / t.Total * 1e6,
		BandwidthShare: float64(t.Cost.Bytes()) / (t.Total * t.Chip.Bandwidth * 1e3), Bound: "memory",
	}
	if t.Compute > t.Memory {
		p.Bound = "compute"
	}
	if t.Overhead > max(t.Memory, t.Compute) {
		p.Bound = "overhead"
	}
	return p
}

// demand holds the times that a dispatch needs of a chip's resources when it runs alone.
type demand struct {
	memory, compute    float64 // µs at the rates that the dispatch reaches with its threadgroups
	bytes, cached, ops float64 // µs at the rates of the whole chip
}

// Rates returns the rates of dispatches that leave no core idle.
func (c *Chip) Rates() Rates {
	return Rates{Byte: 1 / (c.Bandwidth * c.Reach * 1e3), Cached: 1 / c.cacheRate(), Op: 1 / (c.TFLOPS() * otherEfficiency * 1e6),
		Tile: 1 / (c.TFLOPS() * efficiency["norm_linear_mat"] * 1e6), Wait: c.Barrier}
}

// cacheRate returns the bytes per µs that all cores together read from the cache that they share.
func (c *Chip) cacheRate() float64 { return cacheBytes * float64(c.Cores) * c.Clock * 1e3 }

func (d demand) alone() float64 { return max(d.memory, d.compute, 1e-3) }

func (c *Chip) demand(cost Cost, d *plan.Dispatch, sizes *sym.Sizes) demand {
	groups := 1.0
	for _, g := range d.Grid {
		groups *= float64(g.Eval(sizes))
	}
	share, family := otherEfficiency, d.Kernel
	if k, ok := kernels.Lookup(d.Kernel); ok {
		family = k.Family
	}
	if e, ok := efficiency[family]; ok {
		share = e
	}
	var out demand
	out.bytes = float64(cost.Bytes()) / (c.Bandwidth * c.Reach * 1e3)
	out.ops = max(float64(cost.Ops)/(c.TFLOPS()*share*1e6), float64(cost.Shifts)/(c.TFLOPS()/2*shiftEfficiency*1e6))
	busy := groups / float64(c.Cores)
	if groups == 0 {
		return demand{}
	}
	out.cached = float64(cost.Bytes()+cost.Reread) / c.cacheRate()
	out.memory = max(out.bytes/min(1, coreReach*busy), out.cached/min(1, busy))
	out.compute = out.ops / min(1, busy)
	return out
}

// Time returns the µs of reading bytes bytes and computing flops operations at once.
func (c *Chip) Time(bytes, flops float64) float64 {
	return max(bytes/(c.Bandwidth*c.Reach*1e3), flops/(c.TFLOPS()*1e6))
}

// Alone returns the µs of a dispatch with the given cost that runs alone, in a step of these sizes.
func (c *Chip) Alone(cost Cost, d *plan.Dispatch, sizes *sym.Sizes) float64 {
	return c.demand(cost, d, sizes).alone()
}

// Simulate simulates a step of a phase on a chip: dispatches between two barriers share memory and
// cores, a barrier waits for all dispatches before it, and command buffers run in order while the
// CPU encodes the next. It fails if the phase does not hold the sizes.
func Simulate(p *plan.Plan, ph *plan.Phase, sizes *sym.Sizes, chip *Chip) (*Timeline, error) {
	if !ph.Holds(sizes) {
		return nil, fmt.Errorf("%s takes no step of %d tokens over %d keys", ph.Name, sizes[sym.T], sizes[sym.Smax])
	}
	t := &Timeline{Chip: chip, Spans: make([]Span, len(ph.Dispatches)), Tokens: sizes[sym.T]}
	demands := make([]demand, len(ph.Dispatches))
	for i := range ph.Dispatches {
		d := &ph.Dispatches[i]
		cost := CostOf(p, d, sizes)
		t.Cost = t.Cost.Plus(cost)
		demands[i] = chip.demand(cost, d, sizes)
	}
	var cpu, gpu float64
	pieces := ph.Pieces()
	for b, first := range pieces[:len(pieces)-1] {
		end := pieces[b+1]
		s := BufferSpan{First: first, Count: end - first, EncodeStart: cpu}
		cpu += encode*float64(s.Count) + commit
		s.EncodeEnd = cpu
		gpu = max(gpu+gap, cpu+submit)
		s.Start = gpu
		for first < end {
			next := first + 1
			for next < end && !ph.Dispatches[next].Barrier {
				next++
			}
			gpu = t.epoch(gpu+chip.Barrier, demands[first:next], t.Spans[first:next])
			first = next
		}
		s.End = gpu
		t.Buffers = append(t.Buffers, s)
	}
	t.Total = gpu + wake
	t.Overhead = t.Total - t.Memory - t.Compute
	return t, nil
}

// epoch simulates independent dispatches from time now on and returns the time at which all are
// done. Each runs as fast as alone while their sum of demands is within the chip's resources; beyond
// that, all slow down by the same factor.
func (t *Timeline) epoch(now float64, demands []demand, spans []Span) float64 {
	left := make([]float64, len(demands)) // µs that each would take alone
	for i, d := range demands {
		left[i] = d.alone()
		spans[i].Start = now + issue*float64(i)
	}
	for started := 0; ; {
		for started < len(spans) && spans[started].Start <= now {
			started++
		}
		var memory, cached, compute float64 // asked for, in shares of the chip
		soonest := math.Inf(1)
		for i, d := range demands[:started] {
			if left[i] > 0 {
				memory += d.bytes / d.alone()
				cached += d.cached / d.alone()
				compute += d.ops / d.alone()
				soonest = min(soonest, left[i])
			}
		}
		slow := max(1, memory, cached, compute)
		next := now + soonest*slow
		if started < len(spans) && spans[started].Start < next {
			next = spans[started].Start
			soonest = (next - now) / slow
		}
		if math.IsInf(next, 1) {
			return now
		}
		for i := range demands[:started] {
			if left[i] <= 0 {
				continue
			}
			if left[i] -= soonest; left[i] <= 1e-9 {
				left[i], spans[i].End = 0, next
			}
		}
		switch {
		case memory == 0 && compute == 0: // waiting for the next start
		case max(memory, cached) >= compute:
			t.Memory += next - now
		default:
			t.Compute += next - now
		}
		now = next
	}
}
