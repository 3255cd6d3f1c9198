package smelt

import "io"

// WriteDOT writes a stage ("source", "fused" or "plan") of a phase as a graph in DOT: the layers
// that keep admits, −1 standing for what is outside of them, or all where it is nil.
func (p *Program) WriteDOT(w io.Writer, stage, phase string, keep func(layer int) bool) error {
	return p.compiled.WriteDOT(w, stage, phase, keep)
}
