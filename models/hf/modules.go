package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/smelt-ml/smelt/models/mapped"
)

// Module is one of the modules of an embedding model, as sentence-transformers lists them in
// modules.json.
type Module struct {
	Kind string // the last word of its class: "Transformer", "Pooling", "Dense", "Normalize"
	Path string // its folder relative to the model's; "": the model's own

	Pooling string // of a Pooling: "mean", "cls" or "last"
	In, Out int    // of a Dense: elements of its input and output
}

const modulesName = "modules.json"

// LoadModules reads the modules of a folder; none if it has no modules.json.
func LoadModules(dir string) ([]Module, error) {
	path := filepath.Join(dir, modulesName)
	text, err := mapped.ReadFile(path, maxFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	modules, err := parseModules(text, path)
	if err != nil {
		return nil, err
	}
	for i := range modules {
		m := &modules[i]
		if m.Kind != "Pooling" && m.Kind != "Dense" {
			continue
		}
		path := filepath.Join(dir, m.Path, configName)
		text, err := mapped.ReadFile(path, maxFile)
		if err != nil {
			return nil, err
		}
		if err := m.describe(text, path); err != nil {
			return nil, err
		}
	}
	return modules, nil
}

func parseModules(text []byte, name string) ([]Module, error) {
	var list []struct{ Type, Path string }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: not a list of modules: %w", name, err)
	}
	modules := make([]Module, len(list))
	for i, m := range list {
		if m.Path != "" && !filepath.IsLocal(m.Path) {
			return nil, fmt.Errorf("%s: the path %q leaves the folder", name, m.Path)
		}
		modules[i] = Module{Kind: m.Type[strings.LastIndexByte(m.Type, '.')+1:], Path: m.Path}
	}
	return modules, nil
}

// poolingModes are the ways of pooling: the flag of each, its name in newer files, and smelt's
// name, "" if it is not supported.
var poolingModes = []struct{ flag, name, pooling string }{
	{"pooling_mode_mean_tokens", "mean", "mean"}, {"pooling_mode_cls_token", "cls", "cls"}, {"pooling_mode_lasttoken", "lasttoken", "last"},
	{"pooling_mode_max_tokens", "max", ""}, {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", ""}, {"pooling_mode_weightedmean_tokens", "weightedmean", ""},
}

// describe reads a module's config.json; name is that of the file in errors.
func (m *Module) describe(text []byte, name string) error {
	f, err := parse(text, name)
	if err != nil {
		return err
	}
	if m.Kind == "Dense" {
		m.In, m.Out = f.size("in_features", 0), f.size("out_features", 0)
		if f.flag("bias") {
			f.fail("bias", errors.New("true; biases are not supported"))
		}
		if a := f.text("activation_function"); a != "" && !strings.HasSuffix(a, ".Identity") {
			f.fail("activation_function", fmt.Errorf("%q is not supported", a))
		}
		return f.err
	}
	mode := f.text("pooling_mode")
	for _, p := range poolingModes {
		if !f.flag(p.flag) && mode != p.name {
			continue
		}
		if p.pooling == "" || m.Pooling != "" {
			f.fail(p.flag, errors.New("only one of the mean, the first and the last token is supported"))
		}
		m.Pooling = p.pooling
	}
	if m.Pooling == "" {
		f.fail("pooling_mode", ErrMissing)
	}
	return f.err
}
