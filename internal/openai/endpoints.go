package openai

import "net/http"

// Endpoint is one row of the API's table of endpoints, from which routes, help and documents are
// made.
type Endpoint struct {
	Method string
	Path   string // a pattern of [http.ServeMux]
	Doc    string // what it does or returns, in one line of Markdown

	// unbounded marks a text that is encoded although no context has room for it, which takes many
	// times its size in memory.
	unbounded bool

	serve func(*API, http.ResponseWriter, *http.Request) error
}

// messagesPath is the path at and below which errors have Anthropic's form.
const messagesPath = "/v1/messages"

// Endpoints returns the table of endpoints.
func Endpoints() []Endpoint {
	return []Endpoint{
		{Method: "GET", Path: "/v1/models", Doc: "lists the models, with their context lengths", serve: (*API).models},
		{Method: "GET", Path: "/v1/models/{model...}", Doc: "describes one model", serve: (*API).oneModel},
		{Method: "POST", Path: "/v1/chat/completions", Doc: "answers a conversation, rendered by the model's template ([conversations](chat.md))", serve: (*API).chat},
		{Method: "POST", Path: "/v1/completions", Doc: "continues texts or lists of tokens, without a template", serve: (*API).completions},
		{Method: "POST", Path: "/v1/responses", Doc: "answers a conversation in the form of OpenAI's Responses API; stores nothing", serve: (*API).responses},
		{Method: "POST", Path: messagesPath, Doc: "answers a conversation in Anthropic's form", serve: (*API).messages},
		{Method: "POST", Path: messagesPath + "/count_tokens", Doc: "counts the tokens of such a conversation", unbounded: true, serve: (*API).countTokens},
		{Method: "POST", Path: "/v1/embeddings", Doc: "embeds texts; embeddings have length 1", serve: (*API).embeddings},
		{Method: "POST", Path: "/tokenize", Doc: "`{\"content\", \"add_special\", \"parse_special\"}` → `{\"tokens\"}`", unbounded: true, serve: (*API).tokenize},
		{Method: "POST", Path: "/detokenize", Doc: "`{\"tokens\"}` → `{\"content\"}`", serve: (*API).detokenize},
	}
}

// Register adds the endpoints to a mux.
func (a *API) Register(mux *http.ServeMux) {
	for _, e := range Endpoints() {
		mux.HandleFunc(e.Method+" "+e.Path, func(w http.ResponseWriter, r *http.Request) {
			a.bounded(w, r, &e)
		})
	}
}
