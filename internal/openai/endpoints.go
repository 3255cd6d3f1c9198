package openai

import "net/http"

// Endpoint is one row of the API's table of endpoints, from which routes, help and documents are
// made.
type Endpoint struct {
	Method string
	Path   string // a pattern of [http.ServeMux]
	Doc    string // its answer, in one line of Markdown

	serve func(*API, http.ResponseWriter, *http.Request) error
}

// messagesPath is the path at and below which errors have Anthropic's form.
const messagesPath = "/v1/messages"

// Endpoints returns the table of endpoints.
func Endpoints() []Endpoint {
	return []Endpoint{
		{"GET", "/v1/models", "the models, with the length of their context", (*API).models},
		{"GET", "/v1/models/{model...}", "one of them", (*API).oneModel},
		{"POST", "/v1/chat/completions", "conversations, by the model's template ([conversations](chat.md))", (*API).chat},
		{"POST", "/v1/completions", "texts and lists of tokens, continued as they are", (*API).completions},
		{"POST", "/v1/responses", "conversations in OpenAI's newer form; nothing is kept", (*API).responses},
		{"POST", messagesPath, "conversations in Anthropic's form", (*API).messages},
		{"POST", messagesPath + "/count_tokens", "how many tokens such a conversation has", (*API).countTokens},
		{"POST", "/v1/embeddings", "embeddings, of length one", (*API).embeddings},
		{"POST", "/tokenize", "`{\"content\", \"add_special\", \"parse_special\"}` → `{\"tokens\"}`", (*API).tokenize},
		{"POST", "/detokenize", "`{\"tokens\"}` → `{\"content\"}`", (*API).detokenize},
	}
}

// Register adds the endpoints to a mux.
func (a *API) Register(mux *http.ServeMux) {
	for _, e := range Endpoints() {
		mux.HandleFunc(e.Method+" "+e.Path, func(w http.ResponseWriter, r *http.Request) {
			a.bounded(w, r, e.serve)
		})
	}
}
