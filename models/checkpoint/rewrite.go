package checkpoint

import (
	"fmt"
	"io"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// Rewritten is a tensor of the GGUF file that Rewrite describes.
type Rewritten struct {
	Name  string
	DType dtype.Type // in the new file
	Shape []int
	From  []*Tensor // whose rows it concatenates; nil where Data is set
	Data  []byte
	// Narrow marks a tensor that gets another type than the mixture's, since its rows are not whole
	// blocks of that one.
	Narrow bool

	row func(i int) int // the row of a single From that becomes row i; nil: the same
}

// Elements returns the number of elements.
func (r *Rewritten) Elements() int64 { return (&Tensor{Shape: r.Shape}).Elements() }

// Width returns the elements of a row. It is one for vectors that are concatenated or reordered.
func (r *Rewritten) Width() int {
	if len(r.Shape) == 1 && (len(r.From) > 1 || r.row != nil) {
		return 1
	}
	return r.Shape[len(r.Shape)-1]
}

// Row returns the stored row that becomes row i. llama.cpp's files reorder the rows of some tensors
// of Hugging Face folders, and concatenate others.
func (r *Rewritten) Row(i int) (from *Tensor, row int) {
	if r.row != nil {
		return r.From[0], r.row(i)
	}
	for _, from := range r.From {
		rows := int(from.Elements()) / r.Width()
		if i < rows {
			return from, i
		}
		i -= rows
	}
	panic("a tensor has fewer rows than its parts")
}

// Kept reports whether all stored tensors have the new type already.
func (r *Rewritten) Kept() bool {
	return lo.EveryBy(r.From, func(t *Tensor) bool { return t.DType == r.DType })
}

// Writer returns the tensor for package gguf; write writes its bytes.
func (r *Rewritten) Writer(write func(w io.Writer) error) (gguf.TensorWriter, error) {
	typ, ok := gguf.TypeOf(r.DType)
	if !ok {
		return gguf.TensorWriter{}, fmt.Errorf("tensor %q: GGUF has no type %s", r.Name, r.DType)
	}
	shape := lo.Map(r.Shape, func(n, _ int) int64 { return int64(n) })
	return gguf.TensorWriter{Name: r.Name, Type: typ, Shape: shape, Write: write}, nil
}

// Rewrite describes a GGUF file of this model with another type of weights: "q4_k_m" is llama.cpp's
// mixture of types, see [WeightTypes]. The metadata of a GGUF file are kept except for the type;
// those of a folder or a shape are created. Like Build, it reports all tensors that do not fit.
func (m *Checkpoint) Rewrite(weightType string) ([]gguf.KV, []Rewritten, error) {
	mix, err := mixtureOf(weightType)
	if err != nil {
		return nil, nil, err
	}
	if _, ok := mix.base.GGUF(); !ok {
		return nil, nil, models.ConfigError("GGUF files have no weights of type %s", mix.base)
	}
	if _, err := m.Build(ir.Options{Block: 1}); err != nil {
		return nil, nil, err
	}
	metadata, err := m.metadata()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	metadata = lo.Reject(metadata, func(kv gguf.KV, _ int) bool { return strings.HasPrefix(kv.Key, gguf.PartKeys) }) // the new file is whole
	metadata = set(metadata, keyFileType, mix.fileType)
	metadata = set(metadata, keyQuantVersion, quantVersion)
	tensors, err := m.rewritten(&mix)
	return metadata, tensors, err
}

const (
	keyFileType     = "general.file_type"
	keyQuantVersion = "general.quantization_version"
	quantVersion    = 2 // GGUF's version of the block formats
)

// set replaces an entry of the metadata in place, or appends it.
func set(list []gguf.KV, key string, n uint32) []gguf.KV {
	entry := gguf.KV{Key: key, Value: gguf.Uint32(n)}
	out := append([]gguf.KV(nil), list...)
	if _, at, ok := lo.FindIndexOf(out, func(kv gguf.KV) bool { return kv.Key == key }); ok {
		out[at] = entry
		return out
	}
	return append(out, entry)
}

// rewritten returns the tensors of the new file, in the order of the present one or, for a folder,
// in that of the definition, which includes RoPE factors.
func (m *Checkpoint) rewritten(mix *mixture) ([]Rewritten, error) {
	if !m.reordered {
		return lo.Map(m.tensors, func(t Tensor, i int) Rewritten {
			return m.rewrite(mix, &t, []*Tensor{&m.tensors[i]})
		}), nil
	}
	shapes, err := weightsOf(m.family, &m.Config, mix)
	return lo.Map(shapes, func(t Tensor, _ int) Rewritten {
		if t.Data != nil {
			return Rewritten{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: t.Data}
		}
		r := m.rewrite(mix, &t, m.found(&t))
		switch role(t.Name) {
		case "attn_q.weight", "attn_k.weight", "attn_q.bias", "attn_k.bias":
			if m.family.GGUFInterleaved && !m.family.FolderInterleaved {
				r.row = func(i int) int { return interleaved(i, m.Config.Head) }
			}
		}
		return r
	}), err
}

// found returns the folder's tensors that a tensor of a GGUF file is concatenated from. Build has
// checked that they exist.
func (m *Checkpoint) found(t *Tensor) []*Tensor {
	names := lo.Map(partsOf(&m.Config, t), func(p Derivation, _ int) string { return p.to.Name })
	if len(names) == 0 {
		names = []string{t.Name}
	}
	return lo.Map(names, func(name string, _ int) *Tensor {
		from, _ := m.stored(name)
		return from
	})
}

func (m *Checkpoint) rewrite(mix *mixture, t *Tensor, from []*Tensor) Rewritten {
	want := mix.want(t.Name, layerOf(t.Name), t.Shape, &m.Config)
	r := Rewritten{Name: t.Name, DType: fitting(want, t.Shape[len(t.Shape)-1]), Shape: t.Shape, From: from}
	r.Narrow = r.DType != want
	return r
}

// interleaved returns the stored row that becomes row i of a projection where the two elements of a
// RoPE pair are adjacent, not half a head apart.
func interleaved(i, head int) int {
	first, at := i/head*head, i%head
	return first + at/2 + at%2*(head/2)
}
