// Package chat stands between a conversation and a model's texts: a [Template] makes a prompt
// of messages, and a [Parser] finds reasoning, answer and tool calls in what the model says.
//
//	t, err := model.ChatTemplate(false) // its own, or that of its family
//	conversation := chat.Conversation{Messages: messages, Tools: tools, Answer: true}
//	prompt, err := t.Render(conversation)
//
//	p := t.NewParser(conversation, prompt)
//	for token := range engine.Generate(ctx, smelt.Request{Tokens: prompt.Tokens()}) {
//		show(p.Token(token.ID))
//	}
//	show(p.End())
//	messages = append(messages, p.Message())
//
// # What others say stays text
//
// What users, tools and documents say, names and schemas included, is never taken for a control
// token of the model, whatever it says; the template's own marks are. Each byte of a prompt
// knows who wrote it, from the conversation through the template to the tokenizer
// ([jinja.Text]); nothing is searched for afterwards. The roles of [Roles] count as the
// template's words, others as somebody's. Text between two control tokens is encoded as a
// whole, so that the tokens are those that the model was trained with.
package chat
