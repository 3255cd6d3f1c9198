package smelt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/engine/pages"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Explanation reports the compilation of one phase of a model. Its counts are those
// of one step of the phase.
type Explanation struct {
	Phase  string `json:"phase"`
	Target string `json:"target"`
	Layers int    `json:"layers"`
	// Stages counts the ops of the graphs "source" and "fused", and the kernels of "plan".
	Stages []struct {
		Name   string         `json:"name"`
		Values int            `json:"values"`
		Ops    map[string]int `json:"ops"`
	} `json:"stages"`
	// Fusions counts the rewrites of each rule.
	Fusions map[string]int `json:"fusions"`

	Dispatches              int `json:"dispatches"`
	DispatchesPerLayer      int `json:"dispatches_per_layer"` // maximum over layers
	DispatchesOutsideLayers int `json:"dispatches_outside_layers"`
	Barriers                int `json:"barriers"`
	CommandBuffers          int `json:"command_buffers"`

	ArenaBytes     int64 `json:"arena_bytes"`
	MinArenaBytes  int64 `json:"min_arena_bytes"` // lower bound: the largest sum of values live at one dispatch
	UnplannedBytes int64 `json:"unplanned_bytes"` // size without reuse: the sum of all values
	WeightBytes    int64 `json:"weight_bytes"`
	CacheBytes     int64 `json:"cache_bytes"`
	// Keeps lists what layers keep of a sequence at its full context while the step runs; layers alike
	// share a row.
	Keeps []keeps `json:"keeps"`
	// ScratchBytes is the part of the arena that holds widened weights of products on the CPU.
	ScratchBytes int64 `json:"scratch_bytes"`

	Kernels map[string]int `json:"kernels"`
	// Emulated lists the Kernels without a native version, which the device runs slowly from
	// their Metal source.
	Emulated []string `json:"emulated,omitempty"`

	// Choices lists the kernel variants chosen by size, one for each kind of dispatch.
	Choices []plan.Decision `json:"choices"`
}

// keeps is what each of some layers keeps of a sequence.
type keeps struct {
	Layers []int  `json:"layers"`
	What   string `json:"what"`
	Bytes  int64  `json:"bytes"` // of each layer
}

// Explain reports on the phase that [Program.Phase] returns: "prefill", "decode" or
// "copy".
func (p *Program) Explain(phase string, sequences ...int) (*Explanation, error) {
	ph, stages, err := p.Phase(phase, sequences...)
	if err != nil {
		return nil, err
	}
	e := &Explanation{
		Phase: phase, Target: p.Plan.Target, Layers: len(p.Plan.Caches), Fusions: map[string]int{},
		Dispatches: len(ph.Dispatches), CommandBuffers: len(ph.CommandBuffers),
		ArenaBytes: ph.ArenaBytes, MinArenaBytes: ph.MinArenaBytes, UnplannedBytes: ph.UnplannedBytes, Kernels: map[string]int{},
		Choices: append([]plan.Decision{}, ph.Choices...),
	}
	if stages != nil {
		e.stage("source", len(stages.Source.Values), opNames(stages.Source))
		e.stage("fused", len(stages.Fused.Values), opNames(stages.Fused))
		e.Fusions = stages.Report.Fusions
		e.Layers = max(e.Layers, stages.Source.Layers())
	}
	perLayer := make([]int, e.Layers)
	for i := range ph.Dispatches {
		d := &ph.Dispatches[i]
		e.Kernels[d.Kernel]++
		for _, b := range d.Bindings {
			if b.Index == kernels.HostScratch {
				e.ScratchBytes = max(e.ScratchBytes, b.Bytes.Eval(&ph.Bounds))
			}
		}
		if d.Barrier {
			e.Barriers++
		}
		if d.Layer == ir.NoLayer || d.Layer >= len(perLayer) {
			e.DispatchesOutsideLayers++
			continue
		}
		perLayer[d.Layer]++
		e.DispatchesPerLayer = max(e.DispatchesPerLayer, perLayer[d.Layer])
	}
	for _, k := range slices.Sorted(maps.Keys(e.Kernels)) {
		if lower.Emulated(e.Target, k) {
			e.Emulated = append(e.Emulated, k)
		}
	}
	e.stage("plan", len(ph.Dispatches), e.Kernels)
	for i := range p.Plan.Tensors {
		t := &p.Plan.Tensors[i]
		e.WeightBytes += t.DType.Bytes(t.Elements())
	}
	each := keptBytes(p.Plan, ph)
	e.Keeps = keptBy(p.Plan, ph, each, e.Layers)
	e.CacheBytes = lo.Sum(each) * max(ph.Bounds[sym.B], ph.Bounds[sym.C])
	return e, nil
}

func (e *Explanation) stage(name string, values int, ops map[string]int) {
	e.Stages = append(e.Stages, struct {
		Name   string         `json:"name"`
		Values int            `json:"values"`
		Ops    map[string]int `json:"ops"`
	}{name, values, ops})
}

// opNames counts the ops of a graph by their names.
func opNames(f *ir.Func) map[string]int {
	ops := map[string]int{}
	for op, n := range f.OpCounts() {
		ops[op.String()] = n
	}
	return ops
}

// keptBytes returns the bytes that each layer keeps of a sequence at its full context, while the step
// runs: layers with a window have room for that and for its tokens in the step.
func keptBytes(p *plan.Plan, ph *plan.Phase) []int64 {
	each := make([]int64, len(p.Caches))
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if !b.Kind.Kept() {
			continue
		}
		blocks, window := ph.Bounds[sym.NB], p.Caches[b.Layer].Window
		if b.Kind == plan.State {
			blocks = int64(pages.States(1))
		} else if window > 0 {
			blocks = min(blocks, int64(engine.BlocksOf(p, window, int(ph.Longest.Max))))
		}
		each[b.Layer] += b.Bytes.Eval(&ph.Bounds) * blocks
	}
	return each
}

// keptBy describes what each layer keeps.
func keptBy(p *plan.Plan, ph *plan.Phase, each []int64, layers int) (list []keeps) {
	what := make([]string, layers)
	for i, c := range p.Caches {
		if c.Block == 0 {
			continue
		}
		if what[i] = fmt.Sprintf("%d KV heads of %d, %s", c.KVHeads, c.Head, c.DType); c.Latent {
			what[i] = fmt.Sprintf("latent vectors of %d, which are key and value, %s", c.Head, c.DType)
		}
		if c.Window > 0 {
			what[i] += fmt.Sprintf(", of the last %d tokens", c.Window)
		}
	}
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Kind == plan.State {
			state := fmt.Sprintf("%d states of %d × %d", pages.States(1), b.Recurrent.Rows, b.Recurrent.Width)
			what[b.Layer] = strings.Join(lo.Compact([]string{what[b.Layer], state}), "; ")
		}
	}
	for i := range ph.Dispatches {
		d := &ph.Dispatches[i]
		for _, x := range d.Bindings {
			if b := &p.Buffers[x.Buffer]; b.Kind == plan.CacheK && d.Layer >= 0 && d.Layer < layers && b.Layer != d.Layer && what[d.Layer] == "" {
				what[d.Layer] = fmt.Sprintf("nothing: it reads layer %d's", b.Layer)
			}
		}
	}
	for i, is := range what {
		if is == "" {
			is = "nothing"
		}
		var bytes int64
		if i < len(each) {
			bytes = each[i]
		}
		at := slices.IndexFunc(list, func(k keeps) bool { return k.What == is && k.Bytes == bytes })
		if at < 0 {
			at, list = len(list), append(list, keeps{What: is, Bytes: bytes})
		}
		list[at].Layers = append(list[at].Layers, i)
	}
	return list
}
