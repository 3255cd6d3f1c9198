package smelt

import (
	"fmt"

	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// ChatTemplate returns the template that turns conversations into this model's texts: its own,
// that for conversations with tools where tools is set and it has one, or that of its family. An
// error wraps [chat.ErrNoTemplate] where there is none; [chat.NewTemplate] takes any.
func (m *Model) ChatTemplate(tools bool) (*chat.Template, error) {
	if m.file == nil {
		return nil, fmt.Errorf("%s: %w", m.name, checkpoint.ErrNoTokenizer)
	}
	t, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	source, err := m.file.ChatTemplate(tools)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	if source == "" {
		if _, source, err = chat.ForFamily(m.file.Config.Family, t); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	template, err := chat.NewTemplate(source, t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	return template, nil
}
