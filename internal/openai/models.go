package openai

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"strconv"
)

// Info describes a model in the list of models.
type Info struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Owner   string `json:"owned_by"`
	Context int    `json:"context_length"`
	// Variables are the template's variables that control reasoning.
	Variables []string `json:"template_variables,omitempty"`
}

// Info returns the model's description.
func (m *Model) Info() Info {
	i := Info{ID: m.ID, Object: "model", Created: m.Created.Unix(), Owner: "smelt"}
	if m.Engine != nil {
		i.Context, i.Variables = m.Engine.Context(), m.thinking()
	} else {
		i.Context = m.Embedder.Longest()
	}
	return i
}

// models serves GET /v1/models: https://platform.openai.com/docs/api-reference/models.
func (a *API) models(w http.ResponseWriter, _ *http.Request) error {
	reply(w, http.StatusOK, struct {
		Object string `json:"object"`
		Data   []Info `json:"data"`
	}{"list", append([]Info{}, a.List()...)})
	return nil
}

func (a *API) oneModel(w http.ResponseWriter, r *http.Request) error {
	info, err := a.Describe(r.PathValue("model"))
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, info)
	return nil
}

// tokenize serves a text's tokens.
func (a *API) tokenize(w http.ResponseWriter, r *http.Request) error {
	p, m, err := a.begin(r, true)
	if err != nil {
		return err
	}
	text, start, special := "", false, true
	p.read("content", &text)
	p.read("add_special", &start)
	p.read("parse_special", &special)
	if err := p.done(); err != nil {
		return err
	}
	var opening []int32
	if start {
		opening = m.tokenizer.Opening()
	}
	replyTokens(w, opening, m.tokenizer.Encode(text, special))
	return nil
}

// replyTokens writes lists of tokens as one, without the answer in memory, which would be as large.
func replyTokens(w http.ResponseWriter, lists ...[]int32) {
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriter(w) // keeps its first error: the client may have disconnected
	var number []byte
	before := `{"tokens":[`
	for _, ids := range lists {
		for _, id := range ids {
			out.WriteString(before)
			number = strconv.AppendInt(number[:0], int64(id), 10)
			out.Write(number)
			before = ","
		}
	}
	if before != "," {
		out.WriteString(before)
	}
	out.WriteString("]}\n")
	_ = out.Flush()
}

// detokenize serves the text of tokens.
func (a *API) detokenize(w http.ResponseWriter, r *http.Request) error {
	p, m, err := a.begin(r, true)
	if err != nil {
		return err
	}
	var ids []int32
	p.read("tokens", &ids)
	if err := p.done(); err != nil {
		return err
	}
	reply(w, http.StatusOK, struct {
		Content string `json:"content"`
	}{shown(m.tokenizer.Decode(ids, true))})
	return nil
}

// embeddings serves POST /v1/embeddings: https://platform.openai.com/docs/api-reference/embeddings.
func (a *API) embeddings(w http.ResponseWriter, r *http.Request) error {
	p, m, err := a.begin(r, false)
	if err != nil {
		return err
	}
	raw, _ := p.take("input")
	format := "float"
	p.read("encoding_format", &format)
	p.ignore("user", "metadata")
	if m.Embedder != nil {
		var width int
		if p.whole("dimensions", &width, 1, 1<<20) && width != m.Embedder.Width() {
			p.fail(refused("dimensions", "truncated embeddings are not supported"))
		}
	}
	if format != "float" && format != "base64" {
		p.fail(invalid("encoding_format", "encoding_format is %q: want float or base64", format))
	}
	if err := p.done(); err != nil {
		return err
	}
	if m.Embedder == nil {
		return invalid("model", "%s is not an embedding model", m.ID)
	}
	list, err := texts("input", raw, mostTexts, m.Embedder.Vocab(), m.Embedder.Encode)
	if err != nil {
		return err
	}
	tokens := 0
	for i, ids := range list {
		if tokens += len(ids); len(ids) > m.Embedder.Longest() {
			e := invalid("input", "text %d of input has %d tokens: the model takes %d", i, len(ids), m.Embedder.Longest())
			e.Code = "context_length_exceeded"
			return e
		}
	}
	release, err := a.admit(m, 1)
	if err != nil {
		return err
	}
	defer release()
	vectors, err := m.embed(r.Context(), list)
	if err != nil {
		return err
	}
	type entry struct {
		Object    string `json:"object"`
		Index     int    `json:"index"`
		Embedding any    `json:"embedding"`
	}
	data := []entry{}
	for i, v := range vectors {
		m.Embedder.Normalize(v)
		e := entry{"embedding", i, v}
		if format == "base64" {
			e.Embedding = packed(v)
		}
		data = append(data, e)
	}
	reply(w, http.StatusOK, struct {
		Object string         `json:"object"`
		Data   []entry        `json:"data"`
		Model  string         `json:"model"`
		Usage  map[string]int `json:"usage"`
	}{"list", data, m.ID, map[string]int{"prompt_tokens": tokens, "total_tokens": tokens}})
	return nil
}

// packed encodes float32 values in little-endian order as base64.
func packed(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// mostTexts is the maximum number of texts of a request, as in OpenAI's API.
const mostTexts = 2048
