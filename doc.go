// Package smelt compiles transformer models into scheduled command buffers and
// runs them.
//
// Five types lead from a file to text:
//
//   - A [Model] is a graph definition with weights. [Open] reads a GGUF file or a
//     Hugging Face folder; [Define] takes a definition written in Go.
//   - A [Program] is a compiled Model. [Model.Compile] builds the source graph, fuses
//     it, and lowers it to a Plan of kernel dispatches.
//   - A [Loaded] is a Program on a [Device], with one copy of the weights for all
//     sequences. [Program.Load] makes it; [Load] does all of the above.
//   - A [Session] is one sequence with a KV cache of its own.
//   - An [Engine] runs many sequences in batches over one paged KV cache, in which
//     requests share the blocks of common prefixes.
//
// The first example loads a file and generates text in a Session.
//
// A program is compiled for a target, and a device runs the programs of one target. The
// device "metal" is Apple's GPU and "emu" emulates its kernels on the CPU, from the same
// Metal sources; both run programs of the target "metal". The device "cpu" runs native
// kernels, of the target "cpu". The zero [Device] selects a device of this machine, which
// [Resolve] returns, and the zero [Options] compile for it.
//
// Behind the package, models and ir hold definitions and graphs, fusion and passes
// rewrite graphs, lower makes Plans, kernels holds the kernels, and device and metal
// execute Plans; docs/imports.svg draws the imports.
package smelt
