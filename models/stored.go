package models

import (
	"fmt"
	"strings"

	"github.com/samber/lo"
)

// Stored locates a weight of the definition in a Hugging Face folder, and describes the form it has
// there. A vector's rows have one element each.
type Stored struct {
	// Names are one tensor, or several whose rows are concatenated. # stands for the number of the
	// layer. % stands for the number of each expert, or of whatever Each counts; the tensors of all
	// numbers form a stack.
	Names []string
	Each  func(c *Config) int
	// Transposed marks tensors [K, N] of a weight [N, K].
	Transposed bool
	// Order returns the stored row that becomes the given row of the weight; nil: the same.
	Order func(c *Config, row int) int
	// Rows returns the range of rows, counted after Order, that are the weight; nil: all, n < 0: those
	// from first on. Other weights may use the other rows.
	Rows func(c *Config) (first, n int)
	// Depthwise marks kernels of convolutions stored with an axis of one between rows and columns.
	Depthwise bool
	// Columns returns the stored column that becomes the given column of the weight; nil: the same.
	Columns func(c *Config, column int) int
	// Value maps each stored element, in F32; nil: elements are taken as they are.
	Value func(x float32) float32
	// Times returns what the elements of a row of the weight are multiplied by; nil: nothing. Products are
	// rounded to the stored type, as llama.cpp's converter does.
	Times func(c *Config, row int) float64
	// When reports whether a model has the weight, where files may not tell; nil: it does.
	When func(c *Config) bool
	// Or is where folders have the weight that lack these tensors; nil: none do.
	Or *Stored
}

// As returns a weight that a folder stores as one tensor, unchanged.
func As(name string) Stored { return Stored{Names: []string{name}} }

// PlusOne is the Value of norm gains that folders store minus one.
func PlusOne(x float32) float32 { return x + 1 }

// Gain returns a norm's gain, which the folder stores minus one.
func Gain(name string) Stored { return Stored{Names: []string{name}, Value: PlusOne} }

// Whole reports whether the weight is a single stored tensor, unchanged.
func (s *Stored) Whole() bool {
	return len(s.Names) == 1 && !s.Stacked() && !s.Transposed && s.Rows == nil && s.Order == nil && !s.Changes()
}

// Changes reports whether elements within rows are permuted, mapped or multiplied.
func (s *Stored) Changes() bool { return s.Value != nil || s.Columns != nil || s.Times != nil }

// Stacked reports whether each expert has a tensor of its own.
func (s *Stored) Stacked() bool { return len(s.Names) == 1 && strings.Contains(s.Names[0], "%") }

// TensorNames returns the names of the weight's tensors within a layer.
func (s *Stored) TensorNames(c *Config) []string {
	if !s.Stacked() {
		return s.Names
	}
	count := c.Experts.Count
	if s.Each != nil {
		count = s.Each(c)
	}
	return lo.Times(count, func(i int) string { return strings.Replace(s.Names[0], "%", fmt.Sprint(i), 1) })
}

// Joins lists tensors of layers that concatenate the rows of several weights. A definition asks for
// the parts.
var Joins = map[string][]string{
	"attn_qkv": {"attn_q", "attn_k", "attn_v"},
	"ffn_up":   {"ffn_gate", "ffn_up"},
}

// Rows returns the number of rows of a projection of the layer.
func (l *Layer) Rows(role string) int {
	switch role {
	case "attn_q":
		return l.Heads * l.Head
	case "attn_k", "attn_v":
		return l.KVHeads * l.Head
	default:
		return l.FFN
	}
}

// InLayer splits the name of a layer's tensor: "blk.3.attn_q.bias".
func InLayer(name string) (layer int, role, kind string, ok bool) {
	words := strings.Split(name, ".")
	if len(words) != 4 || words[0] != "blk" {
		return 0, "", "", false
	}
	n, err := fmt.Sscan(words[1], &layer)
	return layer, words[2], words[3], n == 1 && err == nil
}

// Cut returns the entries for a tensor of a folder that holds all parts of a join.
func Cut(joined string, stored Stored) map[string]Stored {
	out := make(map[string]Stored)
	for i, role := range Joins[joined] {
		s := stored
		s.Rows = func(c *Config) (first, n int) {
			l := c.Layer(0)
			return lo.SumBy(Joins[joined][:i], l.Rows), l.Rows(role)
		}
		out["blk.#."+role+".weight"] = s
	}
	return out
}

// Source is a tensor of a layer in GGUF files from whose rows, in another order, weights of a
// definition are derived. Unlike the parts of a join they are copied, unless their rows are
// contiguous.
type Source struct {
	Role  string // "attn_kv_b.weight"
	Shape []int
	Makes []Made
}

// Made is a weight of a definition, [Rows, K] or [Stack, Rows/Stack, K], derived from a source.
type Made struct {
	Role  string
	Stack int // matrices; 0: one, without an axis of its own
	Rows  int
	Row   func(i int) int // the source's row that becomes row i, counted over all matrices; −1: zeros
	// Turned marks weights each of whose matrices is transposed at the end, to [Stack, K, Rows/Stack].
	// Block formats, which lie along rows, are converted to F16.
	Turned bool
}

// Stack is a tensor of folders that holds several weights of all experts of a layer, their rows
// interleaved or apart. Rows are packed as MXFP4 or stored as floats. MXFP4 has codes, [E, rows, K/32, 16],
// two neighbours a byte with the first in the lower half, in a tensor whose name ends in _blocks,
// and exponents, [E, rows, K/32], in one whose name ends in _scales. Floats have the rows
// innermost: [E, K, rows]. A bias, [E, rows], is in a tensor whose name ends in _bias.
type Stack struct {
	Name  string   // behind that of the layer or of a module in it
	Roles []string // of the weights; row i belongs to role i mod len(Roles) unless apart
	// Apart is set for stacks with the rows of the first role before those of the next, instead of by
	// turns.
	Apart bool
	// RowMajor is set for stacks of floats of shape [E, rows, K], which are apart. Either is set where
	// some folders have them so: the width of the model tells.
	RowMajor, Either bool
}
