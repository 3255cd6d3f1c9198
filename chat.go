package smelt

import (
	"fmt"

	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// ChatTemplate returns the template that renders conversations for this model: the file's own,
// its template for tools if tools is set and there is one, or else that of the model's family.
// If none of them exists, the error wraps [chat.ErrNoTemplate]; [chat.NewTemplate] parses any
// other template.
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
