package chat_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/chat/jinja"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// sentencePiece reads a vocabulary from SentencePiece's file: field 1 of a ModelProto is a piece,
// whose fields are text (1), score (2) and type (3).
func sentencePiece(t testing.TB, file string) tokenizer.Spec {
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	s := tokenizer.Spec{Algorithm: tokenizer.Llama, BOS: 1, EOS: 2, UNK: 0, PAD: tokenizer.None, Prefix: tokenizer.NoPrefix}
	fields(t, raw, func(field int, value []byte, _ uint64) {
		if field != 1 {
			return
		}
		text, score, kind := "", float32(0), tokenizer.Normal
		fields(t, value, func(field int, value []byte, n uint64) {
			switch field {
			case 1:
				text = string(value)
			case 2:
				score = math.Float32frombits(uint32(n))
			case 3:
				kind = tokenizer.Type(n)
			}
		})
		s.Tokens, s.Scores, s.Types = append(s.Tokens, text), append(s.Scores, score), append(s.Types, kind)
	})
	return s
}

// fields goes over a message of protocol buffers.
func fields(t testing.TB, raw []byte, yield func(field int, value []byte, n uint64)) {
	for len(raw) > 0 {
		key, n := binary.Uvarint(raw)
		require.Positive(t, n)
		raw = raw[n:]
		switch key & 7 {
		case 0:
			v, n := binary.Uvarint(raw)
			require.Positive(t, n)
			yield(int(key>>3), nil, v)
			raw = raw[n:]
		case 2:
			size, n := binary.Uvarint(raw)
			require.Positive(t, n)
			yield(int(key>>3), raw[n:n+int(size)], 0)
			raw = raw[n+int(size):]
		case 5:
			yield(int(key>>3), nil, uint64(binary.LittleEndian.Uint32(raw)))
			raw = raw[4:]
		default:
			t.Fatalf("wire type %d", key&7)
		}
	}
}

// beyondTemplates are the samples whose text the templates that mistral-common publishes cannot
// give: a tool's answer that is JSON stands in them as JSON, where the templates know integers,
// floats and text; and answers of several tools stand in one list.
var beyondTemplates = []string{
	"v2 get_weather_full", "v2 get_weather_no_history", "v2 get_weather_no_system_prompt", "v2 parallel_calls",
	"v3 get_weather_full", "v3 get_weather_no_history", "v3 get_weather_no_system_prompt",
}

var toolAnswer = regexp.MustCompile(`"content": ("(?:[^"\\]|\\.)*")`)

// beyond makes a template's text one of mistral-common's, as beyondTemplates says.
func beyond(t *testing.T, text string) string {
	written, err := jinja.Parse("{{ x | tojson }}")
	require.NoError(t, err)
	text = strings.ReplaceAll(text, "}][/TOOL_RESULTS][TOOL_RESULTS] [{", "}, {")
	return toolAnswer.ReplaceAllStringFunc(text, func(match string) string {
		var said string
		require.NoError(t, json.Unmarshal([]byte(toolAnswer.FindStringSubmatch(match)[1]), &said))
		value, err := jinja.FromJSON([]byte(said), jinja.Plain)
		if err != nil {
			return match
		}
		x := &jinja.Dict{}
		x.Set(jinja.Plain("x"), value)
		out, err := written.Render(x, jinja.Options{})
		require.NoError(t, err)
		return `"content": ` + out.String()
	})
}

// TestMistral compares with mistral-common's texts and ids.
func TestMistral(t *testing.T) {
	samples := testfiles.Shared(t, "data/chat/mistral-common/samples")
	for version, vocabulary := range map[string]string{
		"v1": "tokenizer.model.v1", "v2": "mistral_instruct_tokenizer_240216.model.v2", "v3": "mistral_instruct_tokenizer_240323.model.v3",
	} {
		tok, err := tokenizer.New(sentencePiece(t, testfiles.Shared(t, "data/tokenizers/mistral/"+vocabulary)))
		require.NoError(t, err)
		source, err := os.ReadFile(testfiles.Shared(t, "data/chat/mistral-common/chat_templates/"+version+"_spm.jinja"))
		require.NoError(t, err)
		template, err := chat.NewTemplate(string(source), tok)
		require.NoError(t, err)
		files, err := filepath.Glob(filepath.Join(samples, "*", "tokens_"+version+".json"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			dir := filepath.Dir(file)
			t.Run(version+" "+filepath.Base(dir), func(t *testing.T) {
				var sample struct {
					Messages []chat.Message
					Tools    []json.RawMessage
				}
				var want struct{ Tokens []int32 }
				read(t, filepath.Join(dir, "sample.json"), &sample)
				read(t, file, &want)
				text, err := os.ReadFile(filepath.Join(dir, "text_"+version+".txt"))
				require.NoError(t, err)
				expected := strings.NewReplacer(tokenizer.Space, " ", "<0x0A>", "\n").Replace(strings.TrimSpace(string(text)))
				require.Equal(t, want.Tokens, tok.EncodeQuoted(expected, nil))
				prompt, err := template.Render(chat.Conversation{Messages: sample.Messages, Tools: sample.Tools, Answer: true})
				require.NoError(t, err)
				if slices.Contains(beyondTemplates, version+" "+filepath.Base(dir)) {
					require.NotEqual(t, expected, prompt.String())
					require.Equal(t, expected, beyond(t, prompt.String()))
					return
				}
				require.Equal(t, expected, prompt.String())
				require.Equal(t, want.Tokens, prompt.Tokens())
			})
		}
	}
}

func read(t testing.TB, file string, v any) {
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, v))
}
