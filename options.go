package smelt

import (
	"cmp"
	"io"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// Options configure the compilation of a model. Zero fields take defaults, those of an
// optimised program for Device.
type Options struct {
	// Device is the device to compile for, which [Load] also opens. Its target, a GPU's chip and
	// the results of smelt tune for it select the kernels.
	Device Device
	// Target, "metal" or "cpu", compiles for another machine in place of Device; "": the target
	// of Device.
	Target string
	Chip   string // with Target: GPU to select kernel variants for, such as "m4-max"; "": no particular one

	// Act is the element type of activations between matrix products; Invalid: the target's
	// default. Those of steps of up to eight tokens are F32 where the kernels take it.
	Act     dtype.Type
	KV      dtype.Type // element type of the KV cache; Invalid: F16
	Context int        // maximum tokens of a sequence; 0: the model's context, at most 4096
	Prefill int        // maximum tokens of a prefill step; 0: 512
	// Sequences is the maximum number of sequences of a step; 0: one. Above one, the program has
	// a further phase for decode steps of one token per sequence.
	Sequences int
	// Rows is the maximum number of rows of logits of a step, at least Sequences; 0: 64. Logits
	// for more tokens take several steps.
	Rows int
	// Embeddings compiles a program for [Loaded.NewEmbedder], which returns embeddings in place
	// of logits. The defaults are then a Context of 2048 tokens per text and 64 Sequences; a step
	// has at most Prefill tokens.
	Embeddings bool
	Block      int // tokens per block of the KV cache; 0: Context, a contiguous cache
	Level      int // 0 or 1: optimised; [Unoptimised]: the source graph unchanged

	// SameBits makes logits batch-invariant: a token's logits are bit-identical whatever other
	// sequences its step holds, and however its prompt is chunked or cached. One family of
	// kernels then serves all batch sizes, which costs time. Target "cpu" is always
	// batch-invariant.
	SameBits bool

	// Observer, if set, is called with the graph of each phase before the first pass, with an
	// empty pass name, and after each pass. To keep the graph, it must Clone it.
	Observer func(phase, pass string, f *ir.Func)

	knobs compiler.Knobs
}

// Unoptimised is the Level that skips optimisation: the program runs the source graph, slowly.
const Unoptimised = -1

// DefaultOptions returns the options of an optimised program for the device that the zero
// [Device] selects on this machine.
func DefaultOptions() Options {
	d, err := Resolve(Device{})
	if err != nil {
		panic(err) // "auto" always resolves
	}
	return Options{Device: d, Prefill: compiler.DefaultPrefill, Sequences: 1, Rows: compiler.DefaultRows, Level: 1}
}

func init() {
	compiler.KnobsOf = func(options any) *compiler.Knobs { return &options.(*Options).knobs }
	compiler.Of = func(program any) *compiler.Program { return program.(*Program).compiled }
}

// full returns the options in the compiler's form, completed for the device if Target is empty.
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
		full.Tuning, _ = compiler.LoadTuning(d.Name, d.Threads) // optional: it changes speed alone
	}
	return full, nil
}

// optionsOf returns the compiler's completed options as Options for a device.
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

// silent returns the options without an observer or debug output, for a second compilation.
func (o Options) silent() Options {
	o.Observer, o.knobs.DebugOutput = nil, io.Discard
	return o
}
