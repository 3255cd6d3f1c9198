package smelt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sort"

	"github.com/smelt-ml/smelt/lower"
)

const (
	samplePages = 64
	samplePage  = 4096
)

// ErrOtherModel is wrapped where a Plan is run with weights it was not made for.
var ErrOtherModel = errors.New("the plan belongs to another model")

// identify describes a model file so that a Plan can recognise its weights
// without reading them all.
func identify(m *Model) (lower.ModelID, error) {
	id := lower.ModelID{}
	if m.file == nil {
		return id, nil
	}
	if !m.HasWeights() {
		id.Arch = m.name
		return id, nil
	}
	id.Base = filepath.Base(filepath.Clean(m.path))
	tensors := m.file.Tensors()
	header := sha256.New()
	ends := make([]int64, len(tensors)) // of each tensor in the concatenation of all
	for i, t := range tensors {
		fmt.Fprintf(header, "%q %s %v %d\n", t.Name, t.Stored, t.Shape, t.Offset)
		id.Size += int64(len(t.Data))
		ends[i] = id.Size
	}
	header.Sum(id.Header[:0])

	samples := sha256.New()
	for k := range int64(samplePages) {
		at := k * max(0, id.Size-samplePage) / (samplePages - 1)
		_ = binary.Write(samples, binary.LittleEndian, at)
		end := min(at+samplePage, id.Size)
		for i := sort.Search(len(ends), func(i int) bool { return ends[i] > at }); at < end; i++ {
			data := tensors[i].Data
			data = data[at-(ends[i]-int64(len(data))):]
			n := min(int64(len(data)), end-at)
			samples.Write(data[:n])
			at += n
		}
	}
	samples.Sum(id.Samples[:0])

	if tok, err := m.file.Tokenizer(); err == nil { // without a vocabulary there are still logits
		id.Tokenizer = tok.Hash()
	}
	return id, nil
}

// matches says in which way a model is not the one that a Plan was made for.
func matches(f *lower.File, m *Model) error {
	have, err := identify(m)
	if err != nil {
		return err
	}
	for _, t := range f.Plan.Tensors {
		d, shape, ok := m.weights.Weight(t.Name, t.Shape)
		if !ok {
			return fmt.Errorf("%s: %w: it has no tensor %q", m.path, ErrOtherModel, t.Name)
		}
		if d != t.DType || fmt.Sprint(shape) != fmt.Sprint(t.Shape) {
			return fmt.Errorf("%s: %w: tensor %q is %s %v, the plan wants %s %v", m.path, ErrOtherModel, t.Name, d, shape, t.DType, t.Shape)
		}
	}
	want := f.Model
	if want.Arch != "" { // a shape fits any file whose tensors fit
		return nil
	}
	for _, part := range []struct {
		name string
		same bool
	}{
		{"size of its data", have.Size == want.Size},
		{"layout of its tensors", bytes.Equal(have.Header[:], want.Header[:])},
		{"content of its tensors", bytes.Equal(have.Samples[:], want.Samples[:])},
		{"tokenizer", bytes.Equal(have.Tokenizer[:], want.Tokenizer[:])},
	} {
		if !part.same {
			return fmt.Errorf("%s: %w: the %s differs", m.path, ErrOtherModel, part.name)
		}
	}
	return nil
}
