package models

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/samber/lo"

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
		err = config.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "config.json"), err)
	}
	modules, err := readModules(dir, &config)
	if err != nil {
		return nil, err
	}
	packed, err := described.Quantization()
	if err != nil {
		return nil, err
	}
	tensors, closeFiles, err := openFiles(dir, modules)
	if err != nil {
		return nil, err
	}
	memory := &arena{}
	closeAll := func() error { return errors.Join(memory.close(), closeFiles()) }
	tensors, err = unpackMLX(packed, tensors, memory)
	if err == nil && family.Unpack != nil {
		tensors, err = family.Unpack(tensors, memory)
	}
	if err == nil {
		tensors, err = family.arrange(&config, tensors, memory)
	}
	if config.Tied {
		tie(tensors)
	}
	var m *Checkpoint
	if err == nil {
		m, err = newCheckpoint(dir, family, config, tensors)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, errors.Join(err, closeAll()))
	}
	m.close = closeAll
	m.tokenizer = func() (*tokenizer.Tokenizer, error) { return tokenizer.FromHF(dir) }
	m.template = hfTemplate(dir)
	m.metadata, m.reordered = func() ([]gguf.KV, error) { return folderMetadata(dir, config) }, true
	return m, nil
}

// tie gives the table of a model whose head is its embedding the name of the
// embedding. Folders may store it once, under the name of the head.
func tie(tensors []Tensor) {
	const embedding, head = "token_embd.weight", "output.weight"
	if slices.ContainsFunc(tensors, func(t Tensor) bool { return t.Name == embedding }) {
		return
	}
	for i := range tensors {
		if tensors[i].Name == head {
			tensors[i].Name = embedding
		}
	}
}

// configFromHF reads what the family's fields ask for.
func configFromHF(h *hf.Config) (c Config, family *Family, err error) {
	if len(h.Architectures) > 0 {
		family, err = familyBy("architectures", hfName, h.Architectures[0])
	} else {
		family, err = familyBy("model_type", ggufName, h.ModelType)
	}
	if err != nil {
		return c, nil, err
	}
	d := &folder{Config: h}
	c.Rope.Interleaved = family.FolderInterleaved
	family.describe(d, &c)
	if err := h.Err(); err != nil { // before what follows from it
		return c, nil, err
	}
	return c, family, d.err
}

// folder is the description of a model by its config.json.
type folder struct {
	*hf.Config
	err error
}

func (d *folder) form() Form                                { return Folder }
func (d *folder) has(key string) bool                       { return d.Has(key) }
func (d *folder) size(key string, absent int) int           { return d.Size(key, absent) }
func (d *folder) number(key string, absent float64) float64 { return d.Number(key, absent) }
func (d *folder) flag(key string) bool                      { return d.Flag(key) }
func (d *folder) text(key string) string                    { return d.Text(key) }
func (d *folder) fullName(key string) string                { return key }

func (d *folder) sizes(key string) []int { return d.Sizes(key) }

func (d *folder) flags(string) []bool { return nil }

func (d *folder) texts(key string) []string { return d.Texts(key) }
func (d *folder) holds(string) bool         { return false }

// windowed reads the kind of each layer, or what stood for it before there were kinds.
func (d *folder) windowed(every, layers int) []bool {
	if !d.has("layer_types") {
		if d.has("sliding_window_pattern") {
			every = d.size("sliding_window_pattern", every)
		}
		return patterned(every, layers)
	}
	return lo.Map(d.Texts("layer_types"), func(kind string, _ int) bool {
		if kind != "sliding_attention" && kind != "full_attention" {
			d.fail(configError("a layer is of type %q", kind))
		}
		return kind == "sliding_attention"
	})
}

func (d *folder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}
