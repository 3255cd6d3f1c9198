package ir

import (
	"fmt"
	"slices"
)

// Stage determines which ops a Func may hold.
type Stage uint8

// The stages of a graph. A source graph holds the ops of a paper's formulas, a fused
// one also ops that a target computes in one dispatch each.
const (
	Source Stage = iota + 1
	Fused
)

var stageNames = map[Stage]string{Source: "source", Fused: "fused"}

// String returns "source" or "fused".
func (s Stage) String() string { return stageNames[s] }

// Result is a named value that a Func returns.
type Result struct {
	Name  string
	Value *Value
}

// Func is one graph. Values are in program order: operands before their users.
type Func struct {
	Name    string
	Stage   Stage
	Values  []*Value
	Results []Result
	lastID  ID
}

// NewFunc returns an empty graph.
func NewFunc(name string, stage Stage) *Func { return &Func{Name: name, Stage: stage} }

// Append adds a value of the given type at the end of the program order, unchecked.
func (f *Func) Append(op Op, t Type, attr any, layer int, args ...*Value) *Value {
	v := f.newValue(op, t, attr, layer, args)
	f.Values = append(f.Values, v)
	return v
}

// Emit infers the type of a value from its operands and appends it to the program
// order. After a rewrite, Sort restores the order.
func (f *Func) Emit(op Op, attr any, layer int, args ...*Value) (*Value, error) {
	t, err := op.Infer(args, attr)
	if err != nil {
		return nil, err
	}
	return f.Append(op, t, attr, layer, args...), nil
}

func (f *Func) newValue(op Op, t Type, attr any, layer int, args []*Value) *Value {
	f.lastID++
	return &Value{ID: f.lastID, Op: op, Type: t, Attr: attr, Layer: layer, Args: slices.Clone(args)}
}

// Replace substitutes with[v] for v in every operand and result. It deletes nothing;
// Sweep does.
func (f *Func) Replace(with map[*Value]*Value) {
	for _, v := range f.Values {
		for i, a := range v.Args {
			if n := with[a]; n != nil && n != v {
				v.Args[i] = n
			}
		}
	}
	for i, r := range f.Results {
		if n := with[r.Value]; n != nil {
			f.Results[i].Value = n
		}
	}
}

// MaxID returns an exclusive upper bound of the IDs in use, for tables indexed by ID.
func (f *Func) MaxID() ID { return f.lastID + 1 }

// Uses returns the number of operands and results that refer to each value, indexed by ID.
func (f *Func) Uses() []int32 {
	n := make([]int32, f.MaxID())
	for _, v := range f.Values {
		for _, a := range v.Args {
			n[a.ID]++
		}
	}
	for _, r := range f.Results {
		n[r.Value.ID]++
	}
	return n
}

// Sweep removes values that no result depends on and returns their number.
func (f *Func) Sweep() int {
	live := make([]bool, f.MaxID())
	var stack []*Value
	mark := func(v *Value) {
		if !live[v.ID] {
			live[v.ID] = true
			stack = append(stack, v)
		}
	}
	for _, r := range f.Results {
		mark(r.Value)
	}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, a := range v.Args {
			mark(a)
		}
	}
	before := len(f.Values)
	f.Values = slices.DeleteFunc(f.Values, func(v *Value) bool { return !live[v.ID] })
	return before - len(f.Values)
}

// Sort restores program order after a rewrite: a stable topological sort that also
// inserts operands which the list lacks. A cycle is an error that names its
// members.
func (f *Func) Sort() error {
	const (
		open = 1 + iota
		done
	)
	state := make([]uint8, f.MaxID())
	order := make([]*Value, 0, len(f.Values))
	type frame struct {
		v    *Value
		next int
	}
	var stack []frame
	for _, root := range f.Values {
		if state[root.ID] != 0 {
			continue
		}
		state[root.ID] = open
		stack = append(stack[:0], frame{v: root})
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if top.next == len(top.v.Args) {
				state[top.v.ID] = done
				order = append(order, top.v)
				stack = stack[:len(stack)-1]
				continue
			}
			a := top.v.Args[top.next]
			top.next++
			switch state[a.ID] {
			case 0:
				state[a.ID] = open
				stack = append(stack, frame{v: a})
			case open:
				err := f.cycleError()
				if err == nil { // its members are not all in the list
					err = fmt.Errorf("%s depends on itself", a.LongString())
				}
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
	}
	f.Values = order
	return nil
}

// Clone returns a deep copy with the same IDs. Every operand must be in f.Values, in any
// order.
func (f *Func) Clone() *Func {
	c := &Func{Name: f.Name, Stage: f.Stage, lastID: f.lastID, Values: make([]*Value, len(f.Values))}
	copies := make([]*Value, f.MaxID())
	for i, v := range f.Values {
		n := *v
		copies[v.ID] = &n
		c.Values[i] = &n
	}
	for _, n := range c.Values {
		n.Args = slices.Clone(n.Args)
		for j, a := range n.Args {
			n.Args[j] = copies[a.ID]
		}
	}
	c.Results = make([]Result, len(f.Results))
	for i, r := range f.Results {
		c.Results[i] = Result{r.Name, copies[r.Value.ID]}
	}
	return c
}

// Result returns the value of the result of that name, or nil.
func (f *Func) Result(name string) *Value {
	for _, r := range f.Results {
		if r.Name == name {
			return r.Value
		}
	}
	return nil
}

// Layers returns the number of layers: one more than the highest layer of any value.
func (f *Func) Layers() int {
	n := 0
	for _, v := range f.Values {
		n = max(n, v.Layer+1)
	}
	return n
}

// OpCounts returns the number of values of each op.
func (f *Func) OpCounts() map[Op]int {
	n := make(map[Op]int)
	for _, v := range f.Values {
		n[v.Op]++
	}
	return n
}
