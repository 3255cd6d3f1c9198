// Package hf reads the JSON files that describe a model in a Hugging Face folder:
// config.json (the architecture), generation_config.json (the tokens that end a text) and
// modules.json (the modules of embedding models). Package safetensors reads weights, and
// package tokenizer reads tokenizer.json.
//
// A [Config] holds the members that every folder has and returns the others by name, since
// only model families know which ones there are. A member must have the right JSON type
// and a valid value; null counts as absent, as in transformers. The first invalid member
// stays as the Config's error, which names the file and the member:
//
//	config, err := hf.Load("Qwen3-0.6B")
//	layers := config.Size("num_hidden_layers", 0) // 0: there is no default
//	err = config.Err()
package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/smelt-ml/smelt/models/mapped"
)

// ErrMissing is wrapped when a required field is absent or null.
var ErrMissing = errors.New("missing")

// FieldError reports a field of a JSON file.
type FieldError struct {
	File  string
	Field string // "hidden_size", "rope_scaling.factor", …
	Err   error
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s: %v", e.File, e.Field, e.Err) }

func (e *FieldError) Unwrap() error { return e.Err }

const (
	configName     = "config.json"
	generationName = "generation_config.json"
	// maxFile bounds the bytes read; files in use have a few kilobytes.
	maxFile = 16 << 20
)

// Config is config.json. Fields are named after its members.
type Config struct {
	Architectures []string // of the classes in transformers: "LlamaForCausalLM"
	ModelType     string   // "llama", "qwen3"
	TorchDType    string   // "bfloat16", …; empty where the file has none
	BOSTokenIDs   []int
	EOSTokenIDs   []int
	Generation    Generation // of generation_config.json, if there is one

	members fields
}

// Generation is generation_config.json.
type Generation struct {
	BOSTokenIDs []int
	EOSTokenIDs []int
	PadTokenIDs []int
	Suppressed  []int // tokens that are never generated
}

// Rope is a model's rotary position embedding.
type Rope struct {
	Theta               float64      // rope_theta; 10000 where the file has none
	PartialRotaryFactor float64      // the part of a head that rotates; 1 where the file has none
	Scaling             *RopeScaling // nil where positions are not scaled
	Sections            []int        // mrope_section: pairs of a head for each axis of an image; nil where the file has none
}

// RopeScaling is the change of rotary angles for contexts beyond the original one. The file calls
// it rope_scaling or, since transformers 5, rope_parameters, in which the kind "default" means
// none.
type RopeScaling struct {
	Kind    string             // rope_type (or type) as it is: "linear", "llama3", "yarn", "dynamic", "longrope", …
	Numbers map[string]float64 // every field that is a number, by its name: "factor", "low_freq_factor", …
	Raw     json.RawMessage    // the object as it is

	file, field string
}

// Number returns a number that the kind requires; it must be positive.
func (r *RopeScaling) Number(name string) (float64, error) {
	x, ok := r.Numbers[name]
	switch {
	case !ok:
		return 0, &FieldError{r.file, r.field + "." + name, fmt.Errorf("%w; kind %q needs it", ErrMissing, r.Kind)}
	case x <= 0:
		return 0, &FieldError{r.file, r.field + "." + name, fmt.Errorf("%v is not positive", x)}
	}
	return x, nil
}

// StopTokenIDs returns the tokens that end a text: those of
// generation_config.json, else those of config.json.
func (c *Config) StopTokenIDs() []int {
	if len(c.Generation.EOSTokenIDs) > 0 {
		return c.Generation.EOSTokenIDs
	}
	return c.EOSTokenIDs
}

// Load reads the files of a folder. The folder may lack generation_config.json.
func Load(dir string) (*Config, error) {
	path := filepath.Join(dir, configName)
	text, err := mapped.ReadFile(path, maxFile)
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(text, path)
	if err != nil {
		return nil, err
	}
	path = filepath.Join(dir, generationName)
	text, err = mapped.ReadFile(path, maxFile)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	c.Generation, err = ParseGeneration(text, path)
	if err != nil {
		return nil, err
	}
	return c, nil
}
