// Package compiler compiles a definition, a [Definition], with [Options] to a [Program]: it builds the
// source graph, runs the passes for each phase of steps, and lowers the result to a Plan. It also
// compares programs: [Program.Savings] of fusion rules, and the cost of [Program.SameBits].
//
// Package smelt passes its Options on to this one. [Knobs] are the options that only the tool and
// tests set; [KeepTuning] stores measured choices of a device:
//
//	opts := smelt.DefaultOptions()
//	compiler.KnobsOf(&opts).Disabled = []string{"rope_qkv_write"}
//	p, err := m.Compile(opts)
//	savings, err := compiler.Of(p).Savings("decode", "m4-max")
package compiler
