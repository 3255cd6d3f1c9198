// Package page writes the compiler's work on one phase as a self-contained HTML page without
// scripts: the changes of each pass, the graph of each stage, the schedule as a timeline, and the
// arena as a chart.
//
// Layers of a model are alike, so the page shows layer 0 and what is outside of the layers, and
// lists the layers that are equal to layer 0.
//
//	var trace page.Trace // its Observe method watches the passes
//	…
//	page.Write(w, &page.Input{Plan: plan, Phase: phase, Trace: &trace, Timeline: timeline, Draw: draw})
package page

import (
	"errors"
	"fmt"
	"io"

	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
	"github.com/smelt-ml/smelt/passes"
)

// Input is the content of a page.
type Input struct {
	Plan     *plan.Plan
	Phase    *plan.Phase
	Trace    *Trace
	Timeline *predict.Timeline // of a step of Sizes
	Sizes    *sym.Sizes

	Fusions     []Fusion
	WeightBytes int64
	CacheBytes  int64

	// Draw lays out a graph in DOT and returns it in a format of Graphviz: "svg" or "json0".
	Draw func(dot []byte, format string) ([]byte, error)
}

// Fusion is the effect of one rule: its matches, and the cost that a step has without it; see
// Savings of package smelt. The last Fusion is of all rules together and has no name.
type Fusion struct {
	Rule                string
	Matches, Dispatches int
	Read, Written       int64
	Micros              float64 // on the chip of the timeline
}

// docs returns the documentation of passes and rules by name.
func docs() map[string]string {
	docs := map[string]string{}
	for _, p := range passes.Passes() {
		docs[p.Name] = p.Doc
	}
	return docs
}

// ErrNoTrace is returned if the passes of the phase were not observed.
var ErrNoTrace = errors.New("the page needs the graphs between the passes: a compiled model, not a plan")

// Write writes the page. Equal inputs give equal bytes.
func Write(w io.Writer, in *Input) error {
	if in.Trace == nil || len(in.Trace.steps) == 0 {
		return ErrNoTrace
	}
	paint := in.Trace.paint()
	pictures, err := in.pictures(paint)
	if err != nil {
		return fmt.Errorf("drawing %s: %w", in.Plan.Model, err)
	}
	prediction := in.Timeline.Predict()
	v := view{
		model: in.Plan.Model, phase: in.Phase.Name, target: in.Plan.Target,
		prediction: prediction,
		facts:      in.facts(&prediction),
		counts:     in.counts(),
		columns:    in.columns(),
		pictures:   pictures,
		fused:      paint.legend,
		kernels:    in.legend(),
		schedule:   in.schedule(),
		arena:      in.arena(),
	}
	return v.document().Render(w)
}

// fact is a headline figure.
type fact struct{ Label, Value, Note string }

func (in *Input) facts(p *predict.Prediction) []fact {
	ph := in.Phase
	barriers, outside := 0, 0
	layers := map[int]int{}
	for i := range ph.Dispatches {
		d := &ph.Dispatches[i]
		if d.Barrier {
			barriers++
		}
		if d.Layer < 0 {
			outside++
		} else {
			layers[d.Layer]++
		}
	}
	predicted := "Predicted on "
	if t, err := lower.NewTarget(in.Plan.Target); err != nil || !t.GPU {
		predicted = "If it ran on "
	}
	most := 0
	for _, n := range layers {
		most = max(most, n)
	}
	return []fact{
		{"Dispatches", fmt.Sprint(len(ph.Dispatches)), fmt.Sprintf("%d a layer in %d layers, %d outside", most, len(layers), outside)},
		{"Barriers", fmt.Sprint(barriers), fmt.Sprintf("%d command buffers", len(ph.CommandBuffers))},
		{"Weights", size(in.WeightBytes), "as stored"},
		{"KV cache", size(in.CacheBytes), fmt.Sprintf("for %d tokens", in.Plan.Context)},
		{"Arena", size(ph.ArenaBytes), fmt.Sprintf("lower bound %s; %s if nothing shared memory", size(ph.MinArenaBytes), size(ph.UnplannedBytes))},
		{predicted + p.Chip, fmt.Sprintf("%s tokens/s", digits(p.TokensPerSecond)),
			fmt.Sprintf("%.2f ms a step, %.0f %% of the bandwidth, bound by %s; not measured", p.MS, 100*p.BandwidthShare, p.Bound)},
	}
}

// digits formats a number with three digits, or all digits of a whole number.
func digits(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// size formats a number of bytes with three digits.
func size(n int64) string {
	if n < 0 {
		return "−" + size(-n)
	}
	x := float64(n)
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if x < 1000 || unit == "GB" {
			if unit == "B" {
				return fmt.Sprintf("%d B", n)
			}
			return fmt.Sprintf("%.3g %s", x, unit)
		}
		x /= 1000
	}
	return ""
}
