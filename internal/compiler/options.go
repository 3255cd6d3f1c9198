package compiler

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/predict"
	"github.com/smelt-ml/smelt/passes"
)

// Options choose how a definition is compiled. The zero value, with a Target, gives the
// unoptimised program. Those of package smelt have the same fields but for Knobs.
type Options struct {
	Target     string     // "metal" or "cpu"
	Chip       string     // which choices by size are made for; "": none in particular
	Act        dtype.Type // activations between matrix products; Invalid: what the target prefers
	KV         dtype.Type // element type of the KV cache; Invalid: F16
	Context    int        // slots of the cache; 0: the model's context, at most DefaultContext
	Prefill    int        // most tokens of a prefill step; 0: DefaultPrefill
	Sequences  int        // of a step; 0: one, or DefaultTexts of a program that embeds texts
	Rows       int        // of logits of a step; 0: DefaultRows
	Embeddings bool       // the program embeds texts
	Block      int        // slots of a cache block; 0: Context
	Level      int        // 0: the source graph as it is; 1: optimised
	SameBits   bool       // a token's logits have the same bits in whatever step computes them
	// Observer, if set, sees the graph of each phase before the first pass, with an
	// empty name, and after each pass. It must not keep it; Clone does that.
	Observer func(phase, pass string, f *ir.Func)

	Knobs
}

// Knobs are the options that smelt's own tool and tests set, and Go programs do not.
type Knobs struct {
	// Family and Cores are those of the chip's GPU where a device tells them. A chip with a
	// family need not be one that predict.FindChip knows.
	Family, Cores int
	// Tuning is what was measured on the device that the program is for; nil: nothing.
	Tuning   *lower.Tuning
	Disabled []string // passes and fusion rules to leave out, by name
	// Products places matrix products of target "metal" on the CPU; nil: none. For target
	// "cpu" it is an error, [ErrPlacement].
	Products    lower.Placement
	Debug       passes.Debug
	DebugOutput io.Writer
}

// KnobsOf returns the knobs of a *smelt.Options, to be read and set. Package smelt sets the
// function: this one lies below it.
var KnobsOf func(options any) *Knobs

// Of returns the program that a *smelt.Program consists of. Package smelt sets the function.
var Of func(program any) *Program

// Defaults of Options, and of a program for an engine. Of blocks of 16, 32 and 64 tokens the last
// slow decoding at depth 4,096 least on the CPU; smaller ones share more.
const (
	DefaultContext   = 4096
	DefaultPrefill   = 512
	DefaultRows      = 64
	DefaultSequences = 16
	DefaultBlock     = 64

	DefaultTexts       = 64   // of a step of a program that embeds them
	DefaultTextContext = 2048 // tokens of a text, where the model was trained for as many
)

// Guesses is how many rows of logits steps have for guesses at least, where these are wanted.
const Guesses = 32

// GuessedRows returns the Rows of steps of that many sequences where tokens shall be guessed.
func GuessedRows(sequences int) int { return max(DefaultRows, sequences+Guesses) }

// ErrPlacement is wrapped where products shall be shared out in a program without a GPU.
var ErrPlacement = errors.New("there is no GPU to share products with")

// ChooseFor has choices by size made for a chip; nil: for none in particular.
func (o *Options) ChooseFor(chip *predict.Chip) {
	o.Chip, o.Family, o.Cores = "", 0, 0
	if chip != nil {
		o.Chip, o.Family, o.Cores = chip.Name, chip.Family, chip.Cores
	}
}

// fill sets the defaults, reports what does not go together, and returns the target.
func (o *Options) fill(s Source) (*lower.Target, error) {
	if o.Embeddings {
		o.fillEmbeddings(s)
	}
	if o.Context == 0 {
		o.Context = DefaultContext
		if s.Context > 0 {
			o.Context = min(s.Context, DefaultContext)
		}
	}
	if o.Prefill == 0 {
		o.Prefill = DefaultPrefill
	}
	block := o.Context
	if o.Debug.XSplit {
		block = lower.XSplitBlock
	}
	o.Sequences, o.Rows, o.Block = cmp.Or(o.Sequences, 1), cmp.Or(o.Rows, DefaultRows), cmp.Or(o.Block, block)
	if o.KV == dtype.Invalid {
		o.KV = dtype.F16
	}
	target, err := o.target()
	if err != nil {
		return nil, err
	}
	if o.Debug.XSplit {
		if err := lower.CheckXSplit(target.Act, o.KV, o.Block); err != nil {
			return nil, err
		}
		if o.Level == 0 {
			return nil, errors.New("the x-split layout needs the attention that optimising makes: -O 1")
		}
	}
	if o.Products != nil && !target.GPU {
		return nil, fmt.Errorf("%w in a plan for %s", ErrPlacement, target.Name)
	}
	if o.Products != nil && o.SameBits {
		return nil, errors.New("the same bits in every step: products on the CPU have others than the GPU's")
	}
	if s.Bounded && o.Context > s.Context {
		return nil, fmt.Errorf("%s has embeddings for %d positions, too few for a context of %d", s.Name, s.Context, o.Context)
	}
	if o.Context < 1 || o.Prefill < 1 {
		return nil, fmt.Errorf("a context of %d and prefill steps of %d tokens: want 1 or more", o.Context, o.Prefill)
	}
	if o.Sequences < 1 || o.Rows < 1 || o.Block < 1 {
		return nil, fmt.Errorf("steps of %d sequences and %d rows of logits, cache blocks of %d slots: want 1 or more", o.Sequences, o.Rows, o.Block)
	}
	return target, nil
}

// fillEmbeddings sets the defaults of a program that embeds texts. A text comes in one step,
// since of attention both ways no token can do without those after it.
func (o *Options) fillEmbeddings(s Source) {
	if o.Context == 0 {
		o.Context = DefaultTextContext
		if s.Context > 0 {
			o.Context = min(s.Context, DefaultTextContext)
		}
	}
	o.Sequences, o.Block = cmp.Or(o.Sequences, DefaultTexts), cmp.Or(o.Block, min(DefaultBlock, o.Context))
	o.Prefill = max(cmp.Or(o.Prefill, DefaultPrefill), o.Context)
	o.Rows = o.Prefill
}
