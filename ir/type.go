package ir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// Kind selects which fields of a Type are set.
type Kind uint8

// The kinds of value.
const (
	Tensor Kind = iota + 1
	State       // a version of one layer's KV cache or recurrent state: writes take one and return the next
	Tuple       // several results, each returned by a select
)

// Shape lists extents, outermost first.
type Shape []Dim

// String returns "[T,8,128]".
func (s Shape) String() string {
	parts := make([]string, len(s))
	for i, d := range s {
		parts[i] = d.String()
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// Last returns the innermost extent if it is a constant, else 0.
func (s Shape) Last() int64 {
	if len(s) == 0 {
		return 0
	}
	n, _ := s[len(s)-1].IsConst()
	return n
}

// Rows returns the product of all extents but the innermost.
func (s Shape) Rows() (Dim, bool) {
	if len(s) == 0 {
		return Dim{}, false
	}
	return s[:len(s)-1].Elements()
}

// Elements returns the product of all extents; ok is false where no Dim represents it.
func (s Shape) Elements() (n Dim, ok bool) {
	n, ok = Const(1), true
	for _, d := range s {
		if n, ok = n.Times(d); !ok {
			return Dim{}, false
		}
	}
	return n, true
}

// Cache is the shape of one layer's KV cache: K and V are each
// [blocks, KVHeads, Block, Head] of DType. The number of blocks belongs to the
// session, not to the graph.
type Cache struct {
	DType   dtype.Type
	KVHeads int
	Head    int // elements of one head
	Block   int // tokens per block; a contiguous cache is one block
	// Window is the number of keys up to its own that any token sees, at most; blocks before may hold
	// something else by then. 0: all keys.
	Window int
	// Latent is set where a token has one row that is read as its key and as its value: V is K.
	Latent bool
}

// Recurrent is the shape of the recurrent states of one layer, [states, Rows, Width] floats. A step
// names for each sequence the state that it reads and the one that it writes, so that any sequence
// with the same tokens can continue from a state. The number of states belongs to the session.
type Recurrent struct {
	Rows, Width int
	Block       int // tokens of a block, as in the KV cache: sequences share states at the ends of blocks
}

// Type is the type of a Value; Kind selects the fields that are set.
type Type struct {
	Kind      Kind
	DType     dtype.Type // Tensor
	Shape     Shape      // Tensor
	Cache     Cache      // State, of a KV cache
	Recurrent Recurrent  // State, recurrent
	Elems     []Type     // Tuple
}

// TensorOf returns a tensor type.
func TensorOf(t dtype.Type, shape ...Dim) Type { return Type{Kind: Tensor, DType: t, Shape: shape} }

// StateOf returns the type of a KV cache.
func StateOf(c Cache) Type { return Type{Kind: State, Cache: c} }

// RecurrentOf returns the type of a recurrent state.
func RecurrentOf(r Recurrent) Type { return Type{Kind: State, Recurrent: r} }

// IsRecurrent reports whether t is a recurrent state rather than a KV cache.
func (t Type) IsRecurrent() bool { return t.Kind == State && t.Recurrent != (Recurrent{}) }

// TupleOf returns a tuple type.
func TupleOf(elems ...Type) Type { return Type{Kind: Tuple, Elems: elems} }

// Equal reports whether two types are the same.
func (t Type) Equal(u Type) bool {
	return t.Kind == u.Kind && t.DType == u.DType && t.Cache == u.Cache && t.Recurrent == u.Recurrent &&
		slices.Equal(t.Shape, u.Shape) && slices.EqualFunc(t.Elems, u.Elems, Type.Equal)
}

// SameButPrecision reports whether t and u are equal except for the floating-point type of
// their elements.
func (t Type) SameButPrecision(u Type) bool {
	if t.Kind == Tuple && u.Kind == Tuple {
		return slices.EqualFunc(t.Elems, u.Elems, Type.SameButPrecision)
	}
	if t.DType.IsFloat() && u.DType.IsFloat() {
		u.DType = t.DType
	}
	return t.Equal(u)
}

// Bytes returns the size in bytes of a tensor under the given sizes.
func (t Type) Bytes(sizes *sym.Sizes) int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d.Eval(sizes)
	}
	return t.DType.Bytes(n)
}

// String returns the text form, which Parse reads.
func (t Type) String() string {
	switch t.Kind {
	case Tensor:
		return t.DType.String() + t.Shape.String()
	case State:
		if r := t.Recurrent; t.IsRecurrent() {
			return fmt.Sprintf("state<%d,%d,%d>", r.Rows, r.Width, r.Block)
		}
		c := t.Cache
		text := fmt.Sprintf("cache<%s,%d,%d,%d", c.DType, c.KVHeads, c.Head, c.Block)
		if c.Window > 0 {
			text += fmt.Sprintf(",%d", c.Window)
		}
		if c.Latent {
			text += ",latent"
		}
		return text + ">"
	case Tuple:
		parts := make([]string, len(t.Elems))
		for i, e := range t.Elems {
			parts[i] = e.String()
		}
		return "(" + strings.Join(parts, ", ") + ")"
	}
	return "invalid"
}
