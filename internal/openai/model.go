package openai

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Model is a model that requests name.
type Model struct {
	ID         string
	Created    time.Time
	Engine     *smelt.Engine   // nil for an embedding model
	Embedder   *smelt.Embedder // nil for a generative model
	SaltByUser bool            // prefix caching only among requests with the same "user"
	Sampling   smelt.Sampling  // defaults of requests

	ToolsInPrompt bool // tools that the template has no place for become system text

	tokenizer       *tokenizer.Tokenizer
	texts           [][]byte // texts of tokens; nil for tokens without text
	plain, withTool *chat.Template
	templateErr     error
	fingerprint     string
	embedding       sync.Mutex // locks the embedder, which serves one request at a time
}

// NewModel returns a generative model.
func NewModel(id string, e *smelt.Engine) (*Model, error) {
	p := e.Loaded().Program()
	m := &Model{ID: id, Created: time.Now(), Engine: e, Sampling: smelt.Sampling{Temperature: 1}} // temperature as in OpenAI's API
	var err error
	if m.tokenizer, err = e.Loaded().Tokenizer(); err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	m.texts = m.tokenizer.Texts()
	if m.plain, m.templateErr = p.Model().ChatTemplate(false); m.templateErr == nil {
		m.withTool, m.templateErr = p.Model().ChatTemplate(true)
	}
	hash := m.tokenizer.Hash()
	m.fingerprint = fmt.Sprintf("smelt-%x", hash[:6])
	return m, nil
}

// NewEmbeddings returns an embedding model.
func NewEmbeddings(id string, e *smelt.Embedder) *Model {
	return &Model{ID: id, Created: time.Now(), Embedder: e}
}

// answers returns an error if the model has no engine.
func (m *Model) answers() error {
	if m.Engine == nil {
		return invalid("model", "%s is an embedding model and generates no answers", m.ID)
	}
	return nil
}

// template returns the chat template, for conversations with or without tools.
func (m *Model) template(tools bool) (*chat.Template, error) {
	if m.templateErr != nil {
		return nil, m.templateErr
	}
	if tools {
		return m.withTool, nil
	}
	return m.plain, nil
}

// thinking returns the template's variables that control reasoning.
func (m *Model) thinking() (variables []string) {
	t, err := m.template(false)
	if err != nil {
		return nil
	}
	for _, name := range []string{"enable_thinking", "reasoning_effort"} {
		if strings.Contains(t.Source(), name) {
			variables = append(variables, name)
		}
	}
	return variables
}

// bytesOf returns the bytes of a token's text, which can be part of a character; for a control
// token those of its name.
func (m *Model) bytesOf(id int32) []byte {
	if int(id) < len(m.texts) && m.texts[id] != nil {
		return m.texts[id]
	}
	return m.tokenizer.Piece(id)
}

// embed returns embeddings of texts, for one request at a time.
func (m *Model) embed(ctx context.Context, texts [][]int32) ([][]float32, error) {
	m.embedding.Lock()
	defer m.embedding.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return m.Embedder.Embed(ctx, texts)
}
