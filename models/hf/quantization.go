package hf

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

// Quantization is the member "quantization" of a folder written by MLX: the packing of the matrices
// that have scales beside them.
type Quantization struct {
	GroupSize int    // elements that share a scale
	Bits      int    // of an element
	Mode      string // "affine": each group has a bias too
	modules   map[string]*Quantization
}

// Of returns the packing of a module's matrix, such as "model.layers.0.mlp.down_proj": the file's
// entry for the module, else the general one. It is nil for a matrix that is not packed.
func (q *Quantization) Of(module string) *Quantization {
	if own, ok := q.modules[module]; ok {
		return own
	}
	return q
}

// Quantization returns nil if the folder has none.
func (c *Config) Quantization() (*Quantization, error) {
	const name = "quantization"
	if !c.Has(name) {
		return nil, nil
	}
	members, err := parse(c.members.values[name], c.members.file)
	if err != nil {
		return nil, &FieldError{c.members.file, name, err}
	}
	read := func(f *fields, of string) (*Quantization, error) {
		q := &Quantization{GroupSize: f.size("group_size", 0), Bits: f.size("bits", 0), Mode: "affine"}
		if f.has("mode") {
			q.Mode = f.text("mode")
		}
		if wrong := (*FieldError)(nil); errors.As(f.err, &wrong) {
			return nil, &FieldError{wrong.File, of + "." + wrong.Field, wrong.Err}
		}
		return q, f.err
	}
	q, err := read(members, name)
	if err != nil {
		return nil, err
	}
	q.modules = make(map[string]*Quantization)
	for _, module := range slices.Sorted(maps.Keys(members.values)) {
		text := members.values[module]
		var on bool
		switch {
		case module == "group_size" || module == "bits" || module == "mode" || !members.has(module):
			continue
		case json.Unmarshal(text, &on) == nil:
			if !on {
				q.modules[module] = nil
			}
			continue
		}
		own, err := parse(text, c.members.file)
		if err != nil {
			return nil, &FieldError{c.members.file, name + "." + module, err}
		}
		if q.modules[module], err = read(own, name+"."+module); err != nil {
			return nil, err
		}
	}
	return q, nil
}
