package checkpoint

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/mapped"
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

// arena is memory for weights that no file holds in the form that the definition wants.
type arena struct{ mappings []*mapped.File }

func (a *arena) take(bytes int64) ([]byte, error) {
	m, err := mapped.New(bytes)
	if err != nil {
		return nil, err
	}
	a.mappings = append(a.mappings, m)
	return m.Bytes(), nil
}

func (a *arena) close() error {
	var err error
	for _, m := range a.mappings {
		err = cmp.Or(err, m.Close())
	}
	a.mappings = nil
	return err
}

// role returns what a tensor of a layer is called within it.
func role(name string) string {
	_, role, _ := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	return role
}

// layerOf returns the layer that a name begins with, or 0.
func layerOf(name string) (layer int) {
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		_, _ = fmt.Sscanf(rest, "%d.", &layer)
	}
	return layer
}
