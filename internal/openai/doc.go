// Package openai is the HTTP API that clients of language models know: OpenAI's chat
// completions, completions, embeddings and models, as streams and whole.
//
// A request goes through four hands. [params] reads its members, each once, and refuses by name
// what nobody read: a parameter that is not honoured would change the answer. A conversation
// becomes a prompt by the model's template (package chat). A [question] asks the engine for
// answers and makes events of what comes: text, reasoning, calls of tools, up to a text that
// stops it. A [form] writes events as one protocol has them.
//
// Errors keep OpenAI's form, {"error": {"message", "type", "param", "code"}}, and their status
// until the first token has come; in a stream that has begun they are its last event.
//
// Who is served, and how many at once, is package serve's.
package openai
