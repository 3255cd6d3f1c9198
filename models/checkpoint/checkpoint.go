package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Checkpoint is a model in a file or folder: its configuration and its tensors. Those of a
// well-known shape have no data. It implements [ir.Weights].
type Checkpoint struct {
	Path   string // as given to Open, or arch:NAME
	Config models.Config

	family    *models.Family
	tensors   []Tensor
	index     map[string]int
	parts     map[string]Tensor // weights that share a tensor
	made      map[string]Tensor // weights derived from a [models.Source]
	memory    arena             // of derived weights
	tokenizer func() (*tokenizer.Tokenizer, error)
	template  func(name string) (string, error) // chat template by name; nil or "": none
	metadata  func() ([]gguf.KV, error)         // of the GGUF file that Rewrite describes
	reordered bool                              // GGUF files have the tensors and the rows of some in another order
	close     func() error
	intact    func() error // of the files; nil for a shape
}

func newCheckpoint(path string, family *models.Family, config models.Config, tensors []Tensor) (_ *Checkpoint, err error) {
	m := &Checkpoint{Path: path, Config: config, family: family, tensors: tensors,
		index: make(map[string]int, len(tensors)), parts: make(map[string]Tensor), made: make(map[string]Tensor)}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.memory.close())
		}
	}()
	for i, t := range tensors {
		if first, ok := m.index[t.Name]; ok {
			return nil, models.ConfigError("tensor %q is in %s and in %s", t.Name, tensors[first].File, t.File)
		}
		m.index[t.Name] = i
	}
	if err := run(&m.memory, tensors, parts(&config), func(t Tensor, _ []Tensor) { m.parts[t.Name] = t }); err != nil {
		return nil, err
	}
	if err := run(&m.memory, tensors, remade(family, &config), func(t Tensor, _ []Tensor) { m.made[t.Name] = t }); err != nil {
		return nil, err
	}
	return m, nil
}

// ChangeRope overrides the file's RoPE, as [models.Rope.Override] does. Layers with a RoPE of their
// own, such as those with a sliding window in Gemma 3, keep it.
func (m *Checkpoint) ChangeRope(theta float64, scaling models.RopeScaling) error {
	c := m.Config
	if c.Rope.Theta == 0 {
		return fmt.Errorf("%s: %w", m.Path, models.ConfigError("a model of the family %s does not rotate its heads", c.Family))
	}
	if err := c.Rope.Override(theta, scaling, c.Context); err != nil {
		return err
	}
	c.ByLayer = nil
	if err := m.family.Complete(&c); err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	if err := m.family.Verify(&c); err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	m.Config = c
	return nil
}

// With returns the model with the given tensors in place of its own: a shape with weights.
func (m *Checkpoint) With(tensors []Tensor) (*Checkpoint, error) {
	return newCheckpoint(m.Path, m.family, m.Config, tensors)
}

// Close unmaps the file and the derived weights.
func (m *Checkpoint) Close() error {
	err := m.memory.close()
	if m.close == nil {
		return err
	}
	return errors.Join(m.close(), err)
}

// Intact returns an error that wraps [mapped.ErrCut] if a file of the model was cut short while it was
// open: what was read of it may be zeros.
func (m *Checkpoint) Intact() error {
	if m.intact == nil {
		return nil
	}
	return m.intact()
}

// HasWeights reports whether the model has weights; a shape has none.
func (m *Checkpoint) HasWeights() bool { return m.close != nil }

// Tensors returns the stored weights in the order of the file.
func (m *Checkpoint) Tensors() []Tensor { return m.tensors }

// Tensor returns a weight by name: a stored tensor, a part of one that holds several weights, or
// one derived from a source.
func (m *Checkpoint) Tensor(name string) (*Tensor, bool) {
	if w, ok := m.made[name]; ok {
		return &w, true
	}
	return m.stored(name)
}

// stored is Tensor without weights derived from sources.
func (m *Checkpoint) stored(name string) (*Tensor, bool) {
	if p, ok := m.parts[name]; ok {
		return &p, true
	}
	i, ok := m.index[name]
	if !ok {
		return nil, false
	}
	return &m.tensors[i], true
}

// Weight implements [ir.Weights].
func (m *Checkpoint) Weight(name string, want []int) (dtype.Type, []int, bool) {
	t, ok := m.Tensor(name)
	if !ok {
		return dtype.Invalid, nil, false
	}
	if len(want) > 0 && slices.Equal(withoutOnes(t.Shape), withoutOnes(want)) {
		return t.DType, want, true
	}
	if len(want) == 2 && len(t.Shape) == 1 && t.Shape[0] == want[0]*want[1] && !t.DType.IsQuantized() { // folders have its rows in one
		return t.DType, want, true
	}
	return t.DType, t.Shape, true
}

// withoutOnes returns a shape without the outermost extents of 1, which some files add.
func withoutOnes(shape []int) []int {
	for len(shape) > 1 && shape[0] == 1 {
		shape = shape[1:]
	}
	return shape
}

// Data returns a weight's element type and stored bytes.
func (m *Checkpoint) Data(name string) (dtype.Type, []byte, bool) {
	t, ok := m.Tensor(name)
	if !ok || t.Data == nil {
		return dtype.Invalid, nil, false
	}
	return t.DType, t.Data, true
}

// ErrNoWeights is wrapped by operations that need weights, on a shape.
var ErrNoWeights = errors.New("there are no weights to run with")

// ErrNoTokenizer is wrapped where a model without a vocabulary is asked for its tokenizer.
var ErrNoTokenizer = errors.New("the model has no vocabulary")

// Tokenizer returns the model's tokenizer.
func (m *Checkpoint) Tokenizer() (*tokenizer.Tokenizer, error) {
	if m.tokenizer == nil {
		return nil, fmt.Errorf("%s: %w", m.Path, ErrNoTokenizer)
	}
	t, err := m.tokenizer()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	if t.Len() > m.Config.Vocab { // ids would lie outside the embedding table
		return nil, fmt.Errorf("%s: %w", m.Path, models.ConfigError("the tokenizer has %d tokens, the model %d", t.Len(), m.Config.Vocab))
	}
	return t, nil
}

// TensorError lists tensors of a file that models of its family do not have, or whose type is not
// supported.
type TensorError struct {
	Surplus    []string // names
	Unreadable []string // "name is IQ3_S"
}

// Error lists all of them, one a line.
func (e *TensorError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d tensors of the file cannot be used:", len(e.Surplus)+len(e.Unreadable))
	for _, name := range e.Surplus {
		b.WriteString("\n  " + name + " is not part of such a model")
	}
	for _, text := range e.Unreadable {
		b.WriteString("\n  " + text + ", a type that is not supported")
	}
	return b.String()
}

// Build returns the source graph. It reports all tensors that do not fit together, as an
// [ir.WeightError], a [TensorError], or both. Block defaults to the context that the model was
// trained for.
func (m *Checkpoint) Build(opts ir.Options) (*ir.Func, error) {
	if opts.Block == 0 {
		opts.Block = m.Config.Context
	}
	config := m.Config.At(cmp.Or(opts.Context, opts.Block), opts.Embeddings)
	asked := &askedFor{Checkpoint: m, names: make(map[string]bool)}
	whole := false // a definition that stopped midway has not bound all its weights
	f, err := ir.Build(m.family.Name, asked, opts, func(b *ir.Builder) {
		m.family.Define(b, config)
		whole = true
	})
	if whole {
		err = errors.Join(err, m.misfits(asked.names, opts))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	return f, nil
}

// askedFor records which weights a definition binds.
type askedFor struct {
	*Checkpoint
	names map[string]bool
}

// Weight returns F32 for tensors of unsupported types, so that the definition completes; misfits
// reports them.
func (a *askedFor) Weight(name string, want []int) (dtype.Type, []int, bool) {
	t, shape, ok := a.Checkpoint.Weight(name, want)
	if want != nil {
		a.names[name] = true
	}
	if ok && !readable(t) {
		t = dtype.F32
	}
	return t, shape, ok
}

func (m *Checkpoint) misfits(asked map[string]bool, opts ir.Options) error {
	var e TensorError
	sources := sourcesOf(m.family, &m.Config)
	for i := range m.tensors {
		t := &m.tensors[i]
		used := asked[t.Name]
		if parts := partsOf(&m.Config, t); parts != nil {
			used = lo.EveryBy(parts, func(p Derivation) bool { return asked[p.to.Name] })
		}
		if s, ok := sourceOf(sources, t.Name, m.Config.Layers); ok {
			used = lo.EveryBy(s.Makes, func(w models.Made) bool { return asked[madeName(&w, t.Name)] })
		}
		switch {
		case !used:
			spare := t.Name == "output.weight" && m.Config.Tied || // a copy of the table
				m.Config.Rope.Spare(t.Name) || m.Config.Unread(t.Name) || m.Config.Guesses(m.family.Bare(t.Name)) || opts.Embeddings && slices.Contains(models.HeadTensors, t.Name) ||
				!opts.Embeddings && m.Config.Classifier.Classes > 0 && slices.Contains(models.ClassifierTensors, t.Name)
			if !spare && !m.family.Ignores(t.Name) {
				e.Surplus = append(e.Surplus, t.Name)
			}
		case !readable(t.DType):
			e.Unreadable = append(e.Unreadable, t.Name+" is "+t.Stored)
		}
	}
	if len(e.Surplus)+len(e.Unreadable) == 0 {
		return nil
	}
	slices.Sort(e.Surplus)
	return &e
}
