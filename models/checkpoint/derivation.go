package checkpoint

import (
	"fmt"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// Tensor is a stored or derived weight. Rows are contiguous, in GGUF's block formats.
type Tensor struct {
	Name   string     // as in GGUF files
	DType  dtype.Type // dtype.Invalid where the type is not supported; see Stored
	Stored string     // element type as named in the file
	Shape  []int      // outermost extent first
	File   string     // that holds it; "" without weights or where it is derived
	Offset int64      // in File, in bytes
	Data   []byte     // valid until Close, read-only; nil without weights

	Derived *Derivation // its derivation; nil: a file has it
}

// Elements returns the number of elements.
func (t *Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// Bytes returns the size of the stored form.
func (t *Tensor) Bytes() int64 { return t.DType.Bytes(t.Elements()) }

func readable(t dtype.Type) bool { return t.IsFloat() || t.IsQuantized() }

// Way is how a weight is derived from stored tensors.
type Way string

// The ways. A derivation that reorders rows or columns, or computes elements, is Made, whatever
// else it does.
const (
	Stored   Way = "stored"   // a file has it, possibly under another name
	Joined   Way = "joined"   // several tensors are concatenated by rows or stacked
	Parted   Way = "parted"   // a range of rows of a tensor that holds several weights
	Made     Way = "made"     // reordered, transposed or computed
	Unpacked Way = "unpacked" // separate codes and scales become blocks
	Tied     Way = "tied"     // another weight's tensor is shared
)

// verbs precede the names of the tensors that one is derived from.
var verbs = map[Way]string{Stored: "stored as", Joined: "joined of", Parted: "part of", Made: "made of", Unpacked: "unpacked from", Tied: "tied to"}

// Derivation describes how a tensor that no file has is derived.
type Derivation struct {
	Way   Way
	From  []Tensor // stored or derived
	Steps []string // operations in order: "rows 0 to 4095", "transposed"

	to        Tensor                 // Name, DType, Stored and Shape of the result
	fill      func(out []byte) error // writes all bytes of the result; nil: it is a view of From[0]
	at, bytes int64                  // offset and length of the view in its data
}

// How returns the way in which the tensor is derived; [Stored] if it is not.
func (t *Tensor) How() Way {
	switch d := t.Derived; {
	case d == nil:
		return Stored
	case d.Way == Stored:
		return d.From[0].How()
	default:
		return d.Way
	}
}

// mostNames bounds the tensors that a history names.
const mostNames = 4

// History describes the tensor's derivation, down to stored tensors: "part of
// blk.0.attn_qkv.weight: rows 0 to 63".
func (t *Tensor) History() string {
	d := t.Derived
	switch {
	case d == nil:
		return string(Stored)
	case d.Way == Stored && d.From[0].Derived != nil:
		return d.From[0].History()
	}
	names := lo.Map(d.From, func(f Tensor, _ int) string {
		if f.Derived != nil && len(d.From) <= mostNames {
			return f.Name + " (" + f.History() + ")"
		}
		return f.Name
	})
	if len(names) > mostNames {
		names = []string{names[0], names[1], "…", names[len(names)-1], fmt.Sprintf("%d in all", len(names))}
	}
	text := verbs[d.Way] + " " + strings.Join(names, ", ")
	if len(d.Steps) > 0 {
		text += ": " + strings.Join(d.Steps, ", ")
	}
	return text
}

// A rule plans derivations from the given tensors and emits them one by one.
type rule func(tensors []Tensor, emit func(Derivation) error) error

// derive applies rules in order. Derived tensors take the place of the first tensor that they are
// derived from; tensors that nothing is derived from stay.
func derive(tensors []Tensor, memory *arena, rules ...rule) ([]Tensor, error) {
	for _, plan := range rules {
		at := make(map[string]int, len(tensors))
		for i := range tensors {
			at[tensors[i].Name] = i
		}
		derived, used := make(map[int][]Tensor), make(map[int]bool)
		err := run(memory, tensors, plan, func(t Tensor, from []Tensor) {
			first := len(tensors)
			for _, f := range from {
				used[at[f.Name]], first = true, min(first, at[f.Name])
			}
			derived[first] = append(derived[first], t)
		})
		if err != nil {
			return nil, err
		}
		if len(derived) == 0 {
			continue
		}
		var out []Tensor
		for i, t := range tensors {
			out = append(out, derived[i]...)
			if !used[i] {
				out = append(out, t)
			}
		}
		tensors = out
	}
	return tensors, nil
}

// run executes a rule's derivations one by one. Views take no memory; filled tensors lie in the
// arena. Tensors derived from those of a shape have no data either.
func run(memory *arena, tensors []Tensor, plan rule, done func(t Tensor, from []Tensor)) error {
	return plan(tensors, func(d Derivation) error {
		t, first := d.to, &d.From[0]
		switch {
		case first.Data == nil || d.fill == nil:
			t.File, t.Offset, t.Data = first.File, first.Offset+d.at, nil
			if first.Data != nil {
				t.Data = first.Data[d.at:][:d.bytes]
			}
		default:
			data, err := memory.take(t.Bytes())
			if err != nil {
				return fmt.Errorf("tensor %q: %w", first.Name, err)
			}
			if err := d.fill(data); err != nil {
				return err
			}
			t.File, t.Offset, t.Data = "", 0, data
		}
		t.Derived = &Derivation{Way: d.Way, From: d.From, Steps: d.Steps}
		done(t, d.From)
		return nil
	})
}
