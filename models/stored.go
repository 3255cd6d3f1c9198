package models

import (
	"fmt"
	"strings"

	"github.com/samber/lo"
)

// Stored says where a Hugging Face folder has a weight of the definition, and in what
// form. A vector's rows have one element each.
type Stored struct {
	// Names are one tensor, or several whose rows follow each other. # stands for the
	// number of the layer, and % for that of each expert, or of whatever Each counts, whose
	// tensors make a stack.
	Names []string
	Each  func(c *Config) int
	// Transposed tensors are [K, N] where the weight is [N, K].
	Transposed bool
	// Order says which row of the tensors comes at that place; nil: the same one.
	Order func(c *Config, row int) int
	// Rows says which rows, in this order, are the weight; nil: all. Other weights may take
	// the others.
	Rows func(c *Config) (first, n int)
	// Depthwise kernels of convolutions have an axis of one between rows and columns.
	Depthwise bool
	// Columns says which column of the tensors comes at that place; nil: the same one.
	Columns func(c *Config, column int) int
	// Value makes an element of what is stored, in F32; nil: nothing is made of it.
	Value func(x float32) float32
}

// As is a weight that a folder has as one tensor, as it is.
func As(name string) Stored { return Stored{Names: []string{name}} }

// PlusOne is the value of gains of which folders have the distance from one.
func PlusOne(x float32) float32 { return x + 1 }

// Gain is that of a norm, which folders have less one.
func Gain(name string) Stored { return Stored{Names: []string{name}, Value: PlusOne} }

// Whole reports whether the tensor itself is the weight.
func (s *Stored) Whole() bool {
	return len(s.Names) == 1 && !s.Stacked() && !s.Transposed && s.Rows == nil && s.Order == nil && !s.Changes()
}

// Changes reports whether a weight has other elements than rows of what is stored.
func (s *Stored) Changes() bool { return s.Value != nil || s.Columns != nil }

// Stacked reports whether each expert has a tensor.
func (s *Stored) Stacked() bool { return len(s.Names) == 1 && strings.Contains(s.Names[0], "%") }

// TensorNames lists the tensors of a layer.
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

// Joins lists weights of layers that files may have as one, whose rows are those of its parts,
// one after the other. A definition asks for the parts.
var Joins = map[string][]string{
	"attn_qkv": {"attn_q", "attn_k", "attn_v"},
	"ffn_up":   {"ffn_gate", "ffn_up"},
}

// Rows is how many a product of the layer has.
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

// InLayer takes the name of a layer's tensor apart: "blk.3.attn_q.bias".
func InLayer(name string) (layer int, role, kind string, ok bool) {
	words := strings.Split(name, ".")
	if len(words) != 4 || words[0] != "blk" {
		return 0, "", "", false
	}
	n, err := fmt.Sscan(words[1], &layer)
	return layer, words[2], words[3], n == 1 && err == nil
}

// Cut says that a tensor of a folder holds all parts of a join.
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

// Source is a tensor of a layer in GGUF files whose rows lie otherwise than in the weights that a
// definition asks for. Unlike the parts of a join they are copied, unless they follow each other.
type Source struct {
	Role  string // "attn_kv_b.weight"
	Shape []int
	Makes []Made
}

// Made is a weight of a definition, [rows, K], made of a source.
type Made struct {
	Role string
	Rows int
	Row  func(i int) int // which row of the source is row i, counted over all its matrices; −1: zeros
	// Turned marks sources each of whose matrices is transposed. Of blocks, which lie along rows,
	// that makes halves.
	Turned bool
}

// Stack is a tensor of folders that has the experts of a layer as one stack of rows, where the
// rows of several weights take turns. Rows are packed as MXFP4: codes, [E, rows, K/32, 16], a byte
// of which has two neighbours, the first in its lower half, and exponents, [E, rows, K/32], in
// tensors whose names end in _blocks and _scales. Or they are floats, which lie with the rows
// innermost: [E, K, rows]. A bias, [E, rows], is in a tensor whose name ends in _bias.
type Stack struct {
	Name  string   // from "experts." on
	Roles []string // what the rows become, by turns
}
