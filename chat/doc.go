// Package chat converts between conversations and a model's text: a [Template] renders messages
// into a prompt, and a [Parser] splits the model's output into reasoning, answer and tool calls.
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
// # Prompt injection
//
// Text from users, tools and documents, names and schemas included, is never encoded as a control
// token; only marks that the template itself writes are. Each byte of a prompt carries its origin
// from the conversation through the template to the tokenizer ([jinja.Text]), so nothing is escaped
// or searched for afterwards. A role in [Roles] counts as the template's text, any other role as
// foreign text. Text between two control tokens is encoded in one piece, which gives the tokens
// that the model was trained with.
package chat
