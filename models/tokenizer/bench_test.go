package tokenizer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

func BenchmarkEncode(b *testing.B) {
	text := string(read(b, testfiles.Data(b, "corpora/war-and-peace.txt")))
	for _, name := range ggmlVocabularies {
		tok := ggmlVocabulary(b, name)
		benchmarkEncode(b, name, tok, text)
	}
	hf, err := FromHF(testfiles.Model(b, "tiny-llama/hf"))
	require.NoError(b, err)
	benchmarkEncode(b, "tiny-llama-hf", hf, text)
}

func benchmarkEncode(b *testing.B, name string, tok *Tokenizer, text string) {
	b.Run(name, func(b *testing.B) {
		tok.Encode("", false)
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			tok.Encode(text, true)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	text := string(read(b, testfiles.Data(b, "corpora/tinyshakespeare.txt")))
	for _, name := range ggmlVocabularies {
		tok := ggmlVocabulary(b, name)
		ids := tok.Encode(text, false)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Decode(ids, true)
			}
		})
	}
}

// BenchmarkNew is the cost of a vocabulary: checking it, which every command
// pays, and the tables that the first text needs.
func BenchmarkNew(b *testing.B) {
	for _, name := range ggmlVocabularies {
		tok := ggmlVocabulary(b, name)
		spec := tok.Spec()
		b.Run(name+"/check", func(b *testing.B) {
			for b.Loop() {
				_, err := New(spec)
				require.NoError(b, err)
			}
		})
		b.Run(name+"/tables", func(b *testing.B) {
			for b.Loop() {
				newTables(&spec, tok.types)
			}
		})
		b.Run(name+"/hash", func(b *testing.B) {
			for b.Loop() {
				spec.sum()
			}
		})
	}
}
