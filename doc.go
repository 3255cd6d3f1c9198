// Package smelt compiles transformer models into scheduled command buffers and
// runs them.
//
// A [Model] is a graph definition with weights: [Open] reads a GGUF file or a
// Hugging Face folder, [Define] takes a definition written in Go. [Model.Compile]
// builds the source graph, fuses it, and lowers it to a Plan: a [Program]. A
// [Session] runs it on a device:
//
//	m, err := smelt.Open("model.gguf", "")
//	p, err := m.Compile(smelt.DefaultOptions())
//	s, err := p.NewSession(smelt.Device{Name: "cpu"})
//	err = s.Generate(ctx, "Once upon a time", smelt.Generation{N: 100}, func(piece string) bool {
//		fmt.Print(piece)
//		return true
//	})
//
// The rooms behind it: models and ir hold definitions and graphs, fusion and
// passes rewrite them, lower makes Plans, kernels holds what Plans launch, and
// metal executes them. On a machine without Metal the device "cpu" runs native
// kernels, and "emu" runs the Metal kernels' own sources on the CPU.
package smelt
