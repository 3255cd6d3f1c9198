package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/hf"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

func openHF(dir string) (*Checkpoint, error) {
	described, err := hf.Load(dir)
	if err != nil {
		return nil, err
	}
	config, family, err := configFromHF(described)
	if err == nil {
		err = family.Verify(&config)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "config.json"), err)
	}
	modules, err := readModules(dir, &config)
	if err != nil {
		return nil, err
	}
	judge, err := judgeOf(dir, family, &config)
	if err != nil {
		return nil, err
	}
	packed, err := described.Quantization()
	if err != nil {
		return nil, err
	}
	tensors, files, err := openFiles(dir, modules)
	if err != nil {
		return nil, err
	}
	memory := &arena{}
	closeAll := func() error { return errors.Join(memory.close(), files.close()) }
	rules := []rule{unpackMLX(packed), unstack(family.Stacks, config.Width), arrange(family, &config)}
	if config.Tied {
		rules = append(rules, tie)
	}
	if judge != nil {
		rules = append(rules, judged(dir, judge, config.Tied))
	}
	tensors, err = derive(tensors, memory, rules...)
	var m *Checkpoint
	if err == nil {
		m, err = newCheckpoint(dir, family, config, tensors)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, errors.Join(err, closeAll()))
	}
	m.close, m.intact = closeAll, files.intact
	m.tokenizer = func() (*tokenizer.Tokenizer, error) { return tokenizer.FromHF(dir) }
	m.template = hfTemplate(dir)
	if judge != nil {
		m.template = judgeTemplate(judge, m.template)
	}
	m.metadata, m.reordered = func() ([]gguf.KV, error) { return folderMetadata(dir, config, m.template) }, true
	return m, nil
}

// tie gives the embedding table of a tied model its name: folders may store the table only as the
// head.
func tie(tensors []Tensor, emit func(Derivation) error) error {
	const embedding, head = "token_embd.weight", "output.weight"
	if slices.ContainsFunc(tensors, func(t Tensor) bool { return t.Name == embedding }) {
		return nil
	}
	for _, t := range tensors {
		if t.Name != head {
			continue
		}
		d := Derivation{Way: Tied, From: []Tensor{t}, to: t, bytes: int64(len(t.Data))}
		d.to.Name = embedding
		return emit(d)
	}
	return nil
}

// configFromHF reads the family's fields.
func configFromHF(h *hf.Config) (c models.Config, family *models.Family, err error) {
	if len(h.Architectures) > 0 {
		family, err = families.ByClass("architectures", h.Architectures[0])
	} else {
		family, err = families.ByName("model_type", h.ModelType)
	}
	if err != nil {
		return c, nil, err
	}
	d := &folder{Config: h}
	if family.Variant != nil {
		if name := family.Variant(d); name != "" {
			family, err = families.ByName("the variant", name)
			if err != nil {
				return c, nil, err
			}
		}
	}
	c.Rope.Interleaved = family.FolderInterleaved
	c.Suppressed = h.Generation.Suppressed
	family.Describe(d, &c)
	if err := h.Err(); err != nil { // before what follows from it
		return c, nil, err
	}
	return c, family, d.err
}

// folder implements [models.Description] by config.json.
type folder struct {
	*hf.Config
	err error
}

// Format implements [models.Description].
func (d *folder) Format() models.Format      { return models.Folder }
func (d *folder) FullName(key string) string { return key }

// Flags and Rows are for GGUF files only.
func (d *folder) Flags(string) []bool     { return nil }
func (d *folder) Rows(string) (int, bool) { return 0, false }

// Scaling returns a number of rope_scaling, 0 if absent.
func (d *folder) Scaling(name string) float64 {
	if s := d.Rope().Scaling; s != nil {
		return s.Numbers[name]
	}
	return 0
}

// Sections returns as many axes as GGUF files have.
func (d *folder) Sections() []int {
	if s := d.Rope().Sections; s != nil {
		return append(s, 0)
	}
	return nil
}

// Windowed reads the type of each layer, or the member that preceded layer types.
func (d *folder) Windowed(every, layers int) []bool {
	if !d.Has("layer_types") {
		if d.Has("sliding_window_pattern") {
			every = d.Size("sliding_window_pattern", every)
		}
		return models.AllButEvery(every, layers)
	}
	return lo.Map(d.Texts("layer_types"), func(kind string, _ int) bool {
		if kind != "sliding_attention" && kind != "full_attention" {
			d.Fail(models.ConfigError("layer_types has the unsupported type %q", kind))
		}
		return kind == "sliding_attention"
	})
}

func (d *folder) Fail(err error) {
	if d.err == nil {
		d.err = err
	}
}
