package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/models/tokenizer"
)

// builtin is a template for models whose file has none.
type builtin struct {
	name     string
	families []string // as GGUF files name them (general.architecture)
	needs    []string // control tokens that the vocabulary must have
	source   string
}

// builtins are tried in this order: the first that lists the family and whose control tokens the
// vocabulary has is taken.
var builtins = []builtin{
	{"phi4", []string{"phi3"}, []string{"<|im_start|>", "<|im_sep|>", "<|im_end|>"},
		`{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}`},
	{"chatml", []string{"qwen2", "qwen3", "llama", "smollm3", "stablelm", "starcoder2", "olmo2"}, []string{"<|im_start|>", "<|im_end|>"},
		`{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`},
	{"llama3", []string{"llama"}, []string{"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
		`{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>

{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}`},
	{"mistral", []string{"llama"}, []string{"[INST]", "[/INST]"},
		`{{ bos_token }}{% for m in messages %}{% if m.role == "assistant" %}{{ m.content }}{{ eos_token }}{% elif m.role == "user" %}[INST]{{ m.content }}[/INST]{% else %}{{ raise_exception("there is no place for the role " ~ m.role) }}{% endif %}{% endfor %}`},
	{"gemma", []string{"gemma2", "gemma3"}, []string{"<start_of_turn>", "<end_of_turn>"},
		`{{ bos_token }}{% for m in messages %}{% if m.role not in ["user", "assistant"] %}{{ raise_exception("there is no place for the role " ~ m.role) }}{% endif %}<start_of_turn>{{ "model" if m.role == "assistant" else "user" }}
{{ m.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}`},
	{"phi3", []string{"phi3"}, []string{"<|user|>", "<|assistant|>", "<|end|>"},
		`{% for m in messages %}{% if m.role == "user" %}<|user|>
{% elif m.role == "assistant" %}<|assistant|>
{% else %}<|system|>
{% endif %}{{ m.content }}<|end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}`},
	{"granite", []string{"granite"}, []string{"<|start_of_role|>", "<|end_of_role|>"},
		`{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>
{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}`},
	{"command-r", []string{"command-r", "cohere2"}, []string{"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>"},
		`{{ bos_token }}{% for m in messages %}<|START_OF_TURN_TOKEN|>{% if m.role == "assistant" %}<|CHATBOT_TOKEN|>{% elif m.role == "user" %}<|USER_TOKEN|>{% else %}<|SYSTEM_TOKEN|>{% endif %}{{ m.content | trim }}<|END_OF_TURN_TOKEN|>{% endfor %}{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}`},
	{"glm4", []string{"glm4"}, []string{"[gMASK]", "<sop>", "<|user|>", "<|assistant|>"},
		`[gMASK]<sop>{% for m in messages %}{% if m.role == "user" %}<|user|>
{% elif m.role == "assistant" %}<|assistant|>
{% else %}<|system|>
{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}`},
	{"exaone4", []string{"exaone4"}, []string{"[|user|]", "[|assistant|]", "[|endofturn|]"},
		`{% for m in messages %}{% if m.role == "user" %}[|user|]
{% elif m.role == "assistant" %}[|assistant|]
{% else %}[|system|]
{% endif %}{{ m.content }}[|endofturn|]
{% endfor %}{% if add_generation_prompt %}[|assistant|]
{% endif %}`},
}

// ErrNoTemplate is wrapped where a model's file has no template and no built-in one fits.
var ErrNoTemplate = errors.New("the model has no chat template")

// Builtins returns the names of the built-in templates.
func Builtins() []string {
	names := make([]string, len(builtins))
	for i, b := range builtins {
		names[i] = b.name
	}
	return names
}

// Builtin returns the source of the built-in template of that name.
func Builtin(name string) (source string, ok bool) {
	i := slices.IndexFunc(builtins, func(b builtin) bool { return b.name == name })
	if i < 0 {
		return "", false
	}
	return builtins[i].source, true
}

// ForFamily returns the first built-in template for a family whose control tokens are all in the
// vocabulary. The error wraps ErrNoTemplate.
func ForFamily(family string, t *tokenizer.Tokenizer) (name, source string, err error) {
	for _, b := range builtins {
		if slices.Contains(b.families, family) && hasControls(t, b.needs) {
			return b.name, b.source, nil
		}
	}
	return "", "", fmt.Errorf("%w, and its vocabulary lacks the control tokens of every template for %s (built in: %s)", ErrNoTemplate, family, strings.Join(Builtins(), ", "))
}

// hasControls reports whether each text is a control token.
func hasControls(t *tokenizer.Tokenizer, texts []string) bool {
	return !slices.ContainsFunc(texts, func(text string) bool {
		_, ok := control(t, text)
		return !ok
	})
}

// control returns the id of the control token that is written as text.
func control(t *tokenizer.Tokenizer, text string) (id int32, ok bool) {
	ids := t.Encode(text, true)
	if len(ids) != 1 || t.Type(ids[0]) != tokenizer.Control {
		return 0, false
	}
	return ids[0], true
}
