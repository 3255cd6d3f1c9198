package smelt

import (
	"cmp"
	"io"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// Options choose how a model is compiled. Zero fields take defaults: those of an optimised
// program for Device.
type Options struct {
	// Device is the one that the program shall run on, which [Load] opens: its kind and, of a
	// GPU, its chip decide what is compiled, and so does what smelt tune kept for it.
	Device Device
	// Target, "metal" or "cpu", is that of programs for a machine which need not be this one;
	// "": the one of Device.
	Target string
	Chip   string // with Target: which GPU choices by size are made for, such as "m4-max"; "": none in particular

	Act     dtype.Type // activations between matrix products; Invalid: what the target prefers
	KV      dtype.Type // element type of the KV cache; Invalid: F16
	Context int        // slots of the cache; 0: the model's context, at most 4096
	Prefill int        // most tokens of a prefill step; 0: 512
	// Sequences is how many sequences a step may pack; 0: one. Of two and more, steps that
	// bring one token each have phases of their own.
	Sequences int
	// Rows is how many rows of logits a step may compute, where that is more than one for
	// each sequence; 0: 64. Logits for more tokens take several steps.
	Rows int
	// Embeddings compiles a program that embeds texts, for [Loaded.NewEmbedder]: of up to
	// Context tokens each (0: 2048), Sequences of them (0: 64) and Prefill tokens a step.
	Embeddings bool
	Block      int // slots of a cache block; 0: Context, so that a sequence has one
	Level      int // 1 or 0: optimised; [Unoptimised]: the source graph as it is

	// SameBits makes a token's logits the same, bit by bit, in whatever step computes them:
	// beside whom, however its prompt is cut and whatever of it was cached. Kernels of one
	// family then serve all rows, which costs time. On target "cpu" they always are.
	SameBits bool

	// Observer, if set, sees the graph of each phase before the first pass, with an
	// empty name, and after each pass. It must not keep it; Clone does that.
	Observer func(phase, pass string, f *ir.Func)

	knobs compiler.Knobs
}

// Unoptimised is the Level of programs that run the source graph as it is: slowly.
const Unoptimised = -1

// DefaultOptions returns those of an optimised program for the machine's own device: the
// one that the zero [Device] stands for.
func DefaultOptions() Options {
	d, err := Resolve(Device{})
	if err != nil {
		panic(err) // it is on the list of names
	}
	return Options{Device: d, Prefill: compiler.DefaultPrefill, Sequences: 1, Rows: compiler.DefaultRows, Level: 1}
}

func init() {
	compiler.KnobsOf = func(options any) *compiler.Knobs { return &options.(*Options).knobs }
	compiler.Of = func(program any) *compiler.Program { return program.(*Program).compiled }
}

// full returns the options as the compiler takes them. Where no target is given they are made for
// the device.
func (o *Options) full() (compiler.Options, error) {
	full := compiler.Options{
		Target: o.Target, Chip: o.Chip, Act: o.Act, KV: o.KV, Context: o.Context, Prefill: o.Prefill, Sequences: o.Sequences,
		Rows: o.Rows, Embeddings: o.Embeddings, Block: o.Block, Level: max(cmp.Or(o.Level, 1), 0), SameBits: o.SameBits, Observer: o.Observer,
		Knobs: o.knobs,
	}
	if o.Target != "" {
		return full, nil
	}
	d, err := Resolve(o.Device)
	if err != nil {
		return full, err
	}
	if full.Target, err = device.TargetOf(d.Name); err != nil {
		return full, err
	}
	if full.Chip == "" {
		full.ChooseFor(compiler.ChipOf(d.Name))
	}
	if full.Tuning == nil {
		full.Tuning, _ = compiler.LoadTuning(d.Name, d.Threads) // without it a program is slower, and the same
	}
	return full, nil
}

// optionsOf returns the options that the compiler has filled in, for a device.
func optionsOf(d Device, full *compiler.Options) Options {
	level := full.Level
	if level == 0 {
		level = Unoptimised
	}
	return Options{
		Device: d, Target: full.Target, Chip: full.Chip, Act: full.Act, KV: full.KV, Context: full.Context, Prefill: full.Prefill,
		Sequences: full.Sequences, Rows: full.Rows, Embeddings: full.Embeddings, Block: full.Block, Level: level, SameBits: full.SameBits,
		Observer: full.Observer, knobs: full.Knobs,
	}
}

// silent returns the options with nobody who watches: they have seen the program.
func (o Options) silent() Options {
	o.Observer, o.knobs.DebugOutput = nil, io.Discard
	return o
}
