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
		{"GET", "/v1/models", "lists the models, with their context lengths", false, (*API).models},
		{"GET", "/v1/models/{model...}", "describes one model", false, (*API).oneModel},
		{"POST", "/v1/chat/completions", "answers a conversation, rendered by the model's template ([conversations](chat.md))", false, (*API).chat},
		{"POST", "/v1/completions", "continues texts or lists of tokens, without a template", false, (*API).completions},
		{"POST", "/v1/responses", "answers a conversation in the form of OpenAI's Responses API; stores nothing", false, (*API).responses},
		{"POST", messagesPath, "answers a conversation in Anthropic's form", false, (*API).messages},
		{"POST", messagesPath + "/count_tokens", "counts the tokens of such a conversation", true, (*API).countTokens},
		{"POST", "/v1/embeddings", "embeds texts; embeddings have length 1", false, (*API).embeddings},
		{"POST", "/tokenize", "`{\"content\", \"add_special\", \"parse_special\"}` → `{\"tokens\"}`", true, (*API).tokenize},
		{"POST", "/detokenize", "`{\"tokens\"}` → `{\"content\"}`", false, (*API).detokenize},
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
