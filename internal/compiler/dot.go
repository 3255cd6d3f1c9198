package compiler

import (
	"fmt"
	"io"

	"github.com/smelt-ml/smelt/internal/picture"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower/plan"
)

// WriteDOT writes a stage ("source", "fused" or "plan") of a phase as a graph in DOT. It contains the
// layers for which keep returns true, where −1 stands for nodes outside of layers; all if keep is
// nil.
func (p *Program) WriteDOT(w io.Writer, stage, phase string, keep func(layer int) bool) error {
	ph, stages, err := p.Phase(phase)
	if err != nil {
		return err
	}
	if keep == nil {
		keep = func(int) bool { return true }
	}
	value := func(v *ir.Value) bool { return keep(v.Layer) }
	switch stage {
	case "source":
		return picture.Graph(w, stages.Source, value)
	case "fused":
		return picture.Graph(w, stages.Fused, value)
	case "plan":
		return picture.Dispatches(w, p.Plan, ph, func(d *plan.Dispatch) bool { return keep(d.Layer) })
	}
	return fmt.Errorf("no stage is called %q (source, fused, plan)", stage)
}
