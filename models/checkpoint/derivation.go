package checkpoint

import (
	"fmt"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// Tensor is a stored weight. Rows are contiguous, in GGUF's block formats.
type Tensor struct {
	Name   string     // as in GGUF files
	DType  dtype.Type // dtype.Invalid where we cannot read it; Stored tells its name
	Stored string     // the element type as the file calls it
	Shape  []int      // outermost extent first
	File   string     // that holds it, "" without weights
	Offset int64      // in File, in bytes
	Data   []byte     // valid until Close, not to be written; nil without weights

	Derived *Derivation // how it comes about; nil: a file has it
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

// Way is one of the ways in which a weight is put together of what is stored, or taken apart.
type Way string

// The ways. A derivation with rows, columns or elements that no file has in that order is Made,
// whatever else it does.
const (
	Stored   Way = "stored"   // a file has it, under this name or another
	Joined   Way = "joined"   // of several tensors: their rows follow each other, or they are a stack
	Parted   Way = "parted"   // rows of a tensor that holds several weights
	Made     Way = "made"     // in another order, transposed or computed
	Unpacked Way = "unpacked" // blocks, of codes and scales that are apart
	Tied     Way = "tied"     // the tensor of another weight
)

// verbs stand before the names of what a tensor is derived from.
var verbs = map[Way]string{Stored: "stored as", Joined: "joined of", Parted: "part of", Made: "made of", Unpacked: "unpacked from", Tied: "tied to"}

// Derivation is how a tensor comes about that no file has as it is.
type Derivation struct {
	Way   Way
	From  []Tensor // stored, or derived themselves
	Steps []string // what is done to them, in order: "rows 0 to 4095", "transposed"

	to        Tensor                 // Name, DType, Stored and Shape of what comes about
	fill      func(out []byte) error // writes all bytes of to; nil: they are a view of the first of From
	at, bytes int64                  // where the view begins in its data, and its length
}

// How returns the way in which the tensor comes about.
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

// mostNames bounds how many tensors a history names one by one.
const mostNames = 4

// History says how the tensor comes about, down to what is stored: "part of
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

// rule plans derivations and emits them one by one, by the tensors that there are.
type rule func(tensors []Tensor, emit func(Derivation) error) error

// derive applies rules one after the other. What a rule derives takes the place of the first of
// the tensors that it is derived from; tensors of which nothing is derived stay.
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

// run makes what a rule derives, one tensor after the other. A view takes no memory; what is
// filled lies in the arena. Tensors derived from those of a shape have no data either.
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
