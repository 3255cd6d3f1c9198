package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/mapped"
)

// maxTemplateFile bounds the bytes read from a file that holds a chat template.
const maxTemplateFile = 16 << 20

// toolTemplate is the name of the template for conversations with tools, in files with a separate
// one.
const toolTemplate = "tool_use"

// rerankTemplate is the name of the text that a reranker is given.
const rerankTemplate = "rerank"

// ChatTemplate returns the Jinja template that formats conversations for this model, or "". If
// tools is set and there is a separate template for conversations with tools, it returns that one.
func (m *Checkpoint) ChatTemplate(tools bool) (string, error) {
	if m.template == nil {
		return "", nil
	}
	if tools {
		if text, err := m.template(toolTemplate); text != "" || err != nil {
			return text, err
		}
	}
	return m.template("default")
}

// RerankTemplate returns the text that a reranker is given, with {query} and {document} in it; "" if the
// file has none.
func (m *Checkpoint) RerankTemplate() (string, error) {
	if m.template == nil {
		return "", nil
	}
	return m.template(rerankTemplate)
}

// templateKey returns the GGUF key of a template.
func templateKey(name string) string {
	if name == "default" {
		return "tokenizer.chat_template"
	}
	return "tokenizer.chat_template." + name
}

func ggufTemplate(f *gguf.File) func(name string) (string, error) {
	return func(name string) (string, error) {
		if key := templateKey(name); f.Has(key) {
			return f.String(key)
		}
		return "", nil
	}
}

// hfTemplate looks templates up in a folder: in files of their own, or in the tokenizer's settings,
// as one text or as a list.
func hfTemplate(dir string) func(name string) (string, error) {
	return func(name string) (string, error) {
		file := filepath.Join(dir, "chat_template.jinja")
		if name != "default" {
			file = filepath.Join(dir, "additional_chat_templates", name+".jinja")
		}
		if text, err := readTemplate(file); text != nil || err != nil {
			return string(text), err
		}
		for _, file := range []string{"chat_template.json", "tokenizer_config.json"} {
			file = filepath.Join(dir, file)
			raw, err := readTemplate(file)
			if err != nil {
				return "", err
			}
			text, err := templateIn(raw, name)
			if text != "" || err != nil {
				return text, wrapFile(file, err)
			}
		}
		return "", nil
	}
}

func wrapFile(file string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: chat_template: %w", file, err)
}

func readTemplate(file string) ([]byte, error) {
	raw, err := mapped.ReadFile(file, maxTemplateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

// templateIn returns the template of that name from the member chat_template.
func templateIn(raw []byte, name string) (string, error) {
	if raw == nil {
		return "", nil
	}
	var settings struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(raw, &settings); err != nil {
		return "", err
	}
	if len(settings.Template) == 0 || string(settings.Template) == "null" {
		return "", nil
	}
	if settings.Template[0] == '"' {
		var text string
		err := json.Unmarshal(settings.Template, &text)
		if name != "default" {
			text = ""
		}
		return text, err
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(settings.Template, &list); err != nil {
		return "", err
	}
	for _, t := range list {
		if t.Name == name {
			return t.Template, nil
		}
	}
	return "", nil
}
