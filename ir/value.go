package ir

import (
	"fmt"
	"strings"
)

// ID numbers the values of a Func from 1; 0 is no value.
type ID int32

// Value is one operation and its result. Args are ordered and owned by the
// value; nothing else in a Func says what depends on what.
type Value struct {
	ID    ID
	Op    Op
	Type  Type
	Args  []*Value
	Attr  any // one of the structs in attr.go, by value, or nil
	Layer int // which transformer layer it belongs to, NoLayer outside
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

// LongString returns the value as a line of the text form.
func (v *Value) LongString() string {
	var b strings.Builder
	writeValue(&b, v)
	return b.String()
}

// Name returns the name of an input or weight, "" for others.
func (v *Value) Name() string {
	if a, ok := v.Attr.(NameAttr); ok {
		return a.Name
	}
	return ""
}

// IsMatrix reports whether v is a weight that is multiplied with, of one product or of many
// experts, and read as it is stored. Others are vectors, or one for each expert: few floats.
func (v *Value) IsMatrix() bool {
	return v.Op == OpWeight && len(v.Type.Shape) > 1 && !strings.HasSuffix(v.Name(), ".bias")
}
