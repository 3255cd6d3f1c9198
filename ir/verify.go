package ir

import (
	"errors"
	"fmt"
)

// ErrInvalid is wrapped by every error of Verify.
var ErrInvalid = errors.New("invalid graph")

// Verify checks the laws of a graph:
//
//   - the graph's name is one word of the text form,
//   - values have distinct IDs from 1 and come after their operands,
//   - every op is legal at the graph's stage, has the operands and attribute that
//     the op table requires, and the type that the table infers,
//   - inputs and weights of one name have one type, each layer has one cache,
//   - a version of a cache is replaced at most once, and then by its only reader, so that
//     data dependence alone orders accesses.
//
// The error quotes the offending value. Where operands come after their users it
// names the members of a cycle, if there is one.
func (f *Func) Verify() error {
	if err := f.verify(); err != nil {
		return fmt.Errorf("%s: %w: %w", f.Name, ErrInvalid, err)
	}
	return nil
}

func (f *Func) verify() error {
	if f.Stage != Source && f.Stage != Fused {
		return fmt.Errorf("stage %d", f.Stage)
	}
	if !isWord(f.Name) {
		return fmt.Errorf("%q cannot be a graph's name", f.Name)
	}
	n := int(f.MaxID())
	byID := make([]*Value, 3*n)
	seen := byID[:n]
	writer := byID[n : 2*n] // the value that replaces each state
	reader := byID[2*n:]    // a value that reads each state
	named := make(map[identity]*Value, n/3)
	for _, v := range f.Values {
		if v.ID < 1 || v.ID >= f.MaxID() {
			return fmt.Errorf("%s: the ID is outside [1,%d)", v.LongString(), f.MaxID())
		}
		if seen[v.ID] != nil {
			return fmt.Errorf("%s: the ID is taken by %s", v.LongString(), seen[v.ID].LongString())
		}
		for _, a := range v.Args {
			if a == nil {
				return fmt.Errorf("%s: an operand is missing", v.LongString())
			}
			if a.ID < 1 || a.ID >= f.MaxID() || seen[a.ID] != a {
				return f.orderError(v, a)
			}
			if w := writer[a.ID]; w != nil {
				return fmt.Errorf("%s: uses %s, which %s has replaced", v.LongString(), a, w)
			}
		}
		seen[v.ID] = v
		if err := v.verify(f.Stage); err != nil {
			return fmt.Errorf("%s: %w", v.LongString(), err)
		}
		for i, a := range v.Args {
			if i != v.Op.Writes() {
				reader[a.ID] = v
			}
		}
		if i := v.Op.Writes(); i >= 0 {
			state := v.Args[i]
			if r := reader[state.ID]; r != nil {
				return fmt.Errorf("%s: replaces %s, which %s reads", v.LongString(), state, r)
			}
			writer[state.ID] = v
		}
		if key, ok := v.identity(); ok {
			if first := named[key]; first != nil {
				return fmt.Errorf("%s: %s is %s already", v.LongString(), key, first.LongString())
			}
			named[key] = v
		}
	}
	if len(f.Results) == 0 {
		return errors.New("no results")
	}
	names := make(map[string]bool)
	for _, r := range f.Results {
		if r.Value == nil || r.Value.ID < 1 || r.Value.ID >= f.MaxID() || seen[r.Value.ID] != r.Value {
			return fmt.Errorf("result %q is no value of the graph", r.Name)
		}
		if w := writer[r.Value.ID]; w != nil {
			return fmt.Errorf("result %q is %s, which %s has replaced", r.Name, r.Value, w)
		}
		if r.Name == "" || names[r.Name] {
			return fmt.Errorf("two results are named %q, or one has no name", r.Name)
		}
		names[r.Name] = true
	}
	return nil
}

// maxLayers bounds tables indexed by layer.
const maxLayers = 1 << 16

// identity is the key of a leaf, unique within a graph: the name of an input or weight, the
// layer of a cache, both of a state.
type identity struct {
	op    Op
	name  string
	layer int
}

func (v *Value) identity() (id identity, ok bool) {
	switch a := v.Attr.(type) {
	case NameAttr:
		return identity{op: v.Op, name: a.Name}, true
	case CacheAttr:
		return identity{op: v.Op, layer: a.Layer}, true
	case StateAttr:
		return identity{op: v.Op, name: a.Name, layer: a.Layer}, true
	}
	return identity{}, false
}

func (id identity) String() string {
	switch {
	case id.op == OpCache:
		return fmt.Sprintf("cache of layer %d", id.layer)
	case id.op == OpState:
		return fmt.Sprintf("state %q of layer %d", id.name, id.layer)
	}
	return id.op.String() + " " + id.name
}

func (v *Value) verify(stage Stage) error {
	if v.Op <= OpInvalid || v.Op >= numOps {
		return errors.New("no such op")
	}
	if v.Layer < NoLayer || v.Layer >= maxLayers {
		return fmt.Errorf("layer %d", v.Layer)
	}
	row := &opTable[v.Op]
	if row.stage > stage {
		return fmt.Errorf("%s belongs to the %s stage", v.Op, row.stage)
	}
	want, err := v.Op.check(v.Args, v.Attr, v.Type)
	if err != nil {
		return err
	}
	if !v.Type.Equal(want) && !(row.free && v.Type.SameButPrecision(want)) {
		return fmt.Errorf("the type should be %s", want)
	}
	return nil
}

// orderError returns the reason why v cannot use a: a cycle, a later definition, or none.
func (f *Func) orderError(v, a *Value) error {
	if err := f.cycleError(); err != nil {
		return err
	}
	for _, w := range f.Values {
		if w == a {
			return fmt.Errorf("%s: uses %s before it is defined", v.LongString(), a)
		}
	}
	return fmt.Errorf("%s: uses %s, which is no value of the graph", v.LongString(), a)
}
