package smelt

import "io"

// WriteDOT writes the graph of a stage ("source", "fused" or "plan") of a phase in DOT. It draws
// the layers for which keep returns true, where −1 means values outside the layers; a nil keep
// draws all.
func (p *Program) WriteDOT(w io.Writer, stage, phase string, keep func(layer int) bool) error {
	return p.compiled.WriteDOT(w, stage, phase, keep)
}
