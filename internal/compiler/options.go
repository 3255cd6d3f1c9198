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

// Options configure how a definition is compiled. The zero value with a Target compiles an
// unoptimised program. Options of package smelt have the same fields except for Knobs.
type Options struct {
	Target     string     // "metal" or "cpu"
	Chip       string     // for which choices by size are made; "": none in particular
	Act        dtype.Type // activations between matrix products; Invalid: the target's default
	KV         dtype.Type // element type of the KV cache; Invalid: F16
	Context    int        // slots of the cache; 0: the model's context, at most DefaultContext
	Prefill    int        // maximum tokens of a prefill step; 0: DefaultPrefill
	Sequences  int        // maximum of a step; 0: one, or DefaultTexts with Embeddings
	Rows       int        // maximum rows of logits of a step; 0: DefaultRows
	Embeddings bool       // the program embeds texts
	Block      int        // slots of a cache block; 0: Context
	Level      int        // 0: the source graph as it is; 1: optimised
	SameBits   bool       // a token's logits are bit-identical in every step that computes them
	// Observer, if not nil, is called with the graph of each phase before the first pass, with
	// an empty name, and after each pass. It must Clone a graph to keep it.
	Observer func(phase, pass string, f *ir.Func)

	Knobs
}

// Knobs are the options that only smelt's own tool and tests set.
type Knobs struct {
	// Family and Cores are those of a device's GPU; 0 if unknown. A Chip with a Family need not
	// be known to predict.FindChip.
	Family, Cores int
	// Tuning holds choices that were measured on the program's device; nil: none.
	Tuning   *lower.Tuning
	Disabled []string // passes and fusion rules to leave out, by name
	// Products places matrix products of target "metal" on the CPU; nil: none. For target
	// "cpu" it is an error, [ErrPlacement].
	Products    lower.Placement
	Debug       passes.Debug
	DebugOutput io.Writer
}

// KnobsOf returns the knobs of a *smelt.Options, to be read and set. Package smelt, which imports
// this one, sets the function.
var KnobsOf func(options any) *Knobs

// Of returns the Program of a *smelt.Program. Package smelt sets the function.
var Of func(program any) *Program

// Defaults of Options, and of a program for an engine. Of blocks of 16, 32 and 64 tokens, 64 slow
// decoding at depth 4,096 least on the CPU; smaller blocks share more prefixes.
const (
	DefaultContext   = 4096
	DefaultPrefill   = 512
	DefaultRows      = 64
	DefaultSequences = 16
	DefaultBlock     = 64

	DefaultTexts       = 64   // sequences of a step with Embeddings
	DefaultTextContext = 2048 // tokens of a text, or the model's context if that is smaller
)

// Guesses is the minimum number of rows of logits of a step for speculative tokens.
const Guesses = 32

// GuessedRows returns the Rows of steps with speculative decoding, of that number of sequences.
func GuessedRows(sequences int) int { return max(DefaultRows, sequences+Guesses) }

// ErrPlacement is the error of Knobs.Products in a program without a GPU.
var ErrPlacement = errors.New("there is no GPU to share products with")

// ChooseFor sets the chip for which choices by size are made; nil: none in particular.
func (o *Options) ChooseFor(chip *predict.Chip) {
	o.Chip, o.Family, o.Cores = "", 0, 0
	if chip != nil {
		o.Chip, o.Family, o.Cores = chip.Name, chip.Family, chip.Cores
	}
}

// fill sets the defaults, reports what does not go together, and returns the target.
func (o *Options) fill(d Definition) (*lower.Target, error) {
	if o.Embeddings {
		o.fillEmbeddings(d)
	}
	if o.Context == 0 {
		o.Context = DefaultContext
		if d.Context > 0 {
			o.Context = min(d.Context, DefaultContext)
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
	if d.Bounded && o.Context > d.Context {
		return nil, fmt.Errorf("%s has embeddings for %d positions, too few for a context of %d", d.Name, d.Context, o.Context)
	}
	if o.Context < 1 || o.Prefill < 1 {
		return nil, fmt.Errorf("a context of %d and prefill steps of %d tokens: want 1 or more", o.Context, o.Prefill)
	}
	if o.Sequences < 1 || o.Rows < 1 || o.Block < 1 {
		return nil, fmt.Errorf("steps of %d sequences and %d rows of logits, cache blocks of %d slots: want 1 or more", o.Sequences, o.Rows, o.Block)
	}
	return target, nil
}

// fillEmbeddings sets the defaults of a program that embeds texts. A text must fit one step,
// since with bidirectional attention every token needs those after it.
func (o *Options) fillEmbeddings(d Definition) {
	if o.Context == 0 {
		o.Context = DefaultTextContext
		if d.Context > 0 {
			o.Context = min(d.Context, DefaultTextContext)
		}
	}
	o.Sequences, o.Block = cmp.Or(o.Sequences, DefaultTexts), cmp.Or(o.Block, min(DefaultBlock, o.Context))
	o.Prefill = max(cmp.Or(o.Prefill, DefaultPrefill), o.Context)
	o.Rows = o.Prefill
}
