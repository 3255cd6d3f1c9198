// Package smelt compiles transformer models into scheduled command buffers and
// runs them.
//
// A [Model] is a graph definition with weights: [Open] reads a GGUF file or a
// Hugging Face folder, [Define] takes a definition written in Go. [Model.Compile]
// builds the source graph, fuses it, and lowers it to a Plan: a [Program].
// [Program.Load] binds it to a [Device] with its weights, once: [Loaded]. Each [Session]
// of that is a sequence, and continues texts; the first example goes from a file to one.
// An [Engine] continues many at once, over one cache in which they share what they begin
// with.
//
// A program is compiled for a target, and a device runs programs of its own: "metal"
// is Apple's GPU, and "emu" runs the sources of the same Metal kernels on the CPU;
// "cpu" runs native kernels, of the target that is also called so. [DefaultOptions]
// and the zero Device belong together; [Resolve] tells what the latter is here.
//
// The rooms behind it: models and ir hold definitions and graphs, fusion and
// passes rewrite them, lower makes Plans, kernels holds what Plans launch, and
// metal executes them; docs/imports.svg draws which of them know which.
package smelt
