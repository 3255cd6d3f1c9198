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

// Model is what requests name.
type Model struct {
	ID         string
	Created    time.Time
	Engine     *smelt.Engine   // nil for one that makes embeddings
	Embedder   *smelt.Embedder // nil for one that answers
	SaltByUser bool            // prefixes are shared only among requests with the same "user"
	Sampling   smelt.Sampling  // of requests that do not say how

	tokenizer       *tokenizer.Tokenizer
	texts           [][]byte // of tokens; nil for those that are no text
	plain, withTool *chat.Template
	templateErr     error
	fingerprint     string
	embedding       sync.Mutex // of the embedder, which serves one at a time
}

// NewModel returns a model that answers by an engine.
func NewModel(id string, e *smelt.Engine) (*Model, error) {
	p := e.Loaded().Program()
	m := &Model{ID: id, Created: time.Now(), Engine: e, Sampling: smelt.Sampling{Temperature: 1}} // as in OpenAI's API
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

// NewEmbeddings returns a model that makes embeddings.
func NewEmbeddings(id string, e *smelt.Embedder) *Model {
	return &Model{ID: id, Created: time.Now(), Embedder: e}
}

// answers refuses a model that has no engine.
func (m *Model) answers() error {
	if m.Engine == nil {
		return invalid("model", "%s makes embeddings, and answers nothing", m.ID)
	}
	return nil
}

// template is the one for conversations with tools or without.
func (m *Model) template(tools bool) (*chat.Template, error) {
	if m.templateErr != nil {
		return nil, m.templateErr
	}
	if tools {
		return m.withTool, nil
	}
	return m.plain, nil
}

// thinking lists what a conversation can tell the template of how much the model shall think.
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

// bytesOf are those of a token's text, which need not be whole characters; of a control token,
// those of its name.
func (m *Model) bytesOf(id int32) []byte {
	if int(id) < len(m.texts) && m.texts[id] != nil {
		return m.texts[id]
	}
	return m.tokenizer.Piece(id)
}

// embed makes embeddings, for one request after the other.
func (m *Model) embed(ctx context.Context, texts [][]int32) ([][]float32, error) {
	m.embedding.Lock()
	defer m.embedding.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return m.Embedder.Embed(ctx, texts)
}
