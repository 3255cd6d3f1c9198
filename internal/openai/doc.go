// Package openai serves the HTTP APIs of OpenAI (chat completions, responses, completions,
// embeddings, models) and of Anthropic (messages), streamed and whole.
//
// A request passes through four types. [params] reads its members, each once; a member that nobody
// reads is an error with its name, since ignoring it could change the answer. A conversation
// renders the prompt with the model's template (package chat). A [question] generates answers on
// the engine and turns tokens into events: text, reasoning and tool calls, up to a stop text. A
// [encoder] writes events in one protocol.
//
// Errors have OpenAI's form, {"error": {"message", "type", "param", "code"}}, or Anthropic's under
// its path. Before the first token they have a status of their own; in a stream that has begun they
// are the last event.
//
// Authorization and admission are in package serve.
package openai
