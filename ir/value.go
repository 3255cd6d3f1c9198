package ir

import (
	"fmt"
	"slices"
	"strings"
)

// ID identifies a value within its Func; IDs start at 1, and 0 is no value.
type ID int32

// Value is one operation and its result. Args are ordered and owned by the
// value, and are the only dependences of a graph.
type Value struct {
	ID    ID
	Op    Op
	Type  Type
	Args  []*Value
	Attr  any // one of the structs in attr.go, by value, or nil
	Layer int // transformer layer, or NoLayer
}

// NoLayer is the Layer of values outside the layers.
const NoLayer = -1

// String returns "v12", or "nil".
func (v *Value) String() string {
	if v == nil {
		return "nil"
	}
	return fmt.Sprintf("v%d", v.ID)
}

// LongString returns the value's line of the text form.
func (v *Value) LongString() string {
	var b strings.Builder
	writeValue(&b, v)
	return b.String()
}

// Name returns the name of an input or weight, or "".
func (v *Value) Name() string {
	if a, ok := v.Attr.(NameAttr); ok {
		return a.Name
	}
	return ""
}

// Matrices returns the weights that v reads in their stored format: those of its products, and
// the table of an embed. Other weights are float vectors.
func (v *Value) Matrices() []*Value {
	var list []*Value
	switch v.Op {
	case OpEmbed:
		list = v.Args[1:2]
	case OpLinear, OpFusedLinear:
		_, o := AsFusedLinear(v)
		list = o.Weights
	case OpExpertLinear, OpRoutedLinear:
		_, o := AsRoutedLinear(v)
		list = o.Weights
	}
	return slices.DeleteFunc(slices.Clone(list), func(w *Value) bool { return w.Op != OpWeight })
}

// Matrices returns the set of weights that values read in their stored format, see
// [Value.Matrices].
func (f *Func) Matrices() map[*Value]bool {
	of := make(map[*Value]bool)
	for _, v := range f.Values {
		for _, w := range v.Matrices() {
			of[w] = true
		}
	}
	return of
}
