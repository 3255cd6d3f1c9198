// Package compiler makes programs: of a definition, a [Source], and [Options] it builds the source
// graph, runs the passes for each phase of steps, and lowers the result to a Plan. It also tells
// programs apart that are compiled in two ways: what a fusion rule saves, what the same bits in
// every step cost.
//
// Package smelt hands its Options on to this one. What only the tool and tests set has the name
// [Knobs], and what a device was measured to prefer is kept by [KeepTuning]:
//
//	opts := smelt.DefaultOptions()
//	compiler.KnobsOf(&opts).Disabled = []string{"rope_qkv_write"}
//	p, err := m.Compile(opts)
//	savings, err := compiler.Of(p).Savings("decode", "m4-max")
package compiler
