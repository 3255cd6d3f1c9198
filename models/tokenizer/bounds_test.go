package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// hfFolder is a copy of a model's folder with one file made by create.
func hfFolder(t *testing.T, name string, create func(path string)) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		if file == name {
			create(filepath.Join(dir, file))
			continue
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), read(t, testfiles.Model(t, "tiny-qwen3/hf/"+file)), 0o600))
	}
	return dir
}

// TestEndlessFiles: what has no end, or no disk behind its length, is refused before it is read.
func TestEndlessFiles(t *testing.T) {
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		for want, create := range map[string]func(path string){
			"more than": func(path string) {
				require.NoError(t, os.WriteFile(path, nil, 0o600))
				require.NoError(t, os.Truncate(path, 8<<30))
			},
			"not a regular file": func(path string) { require.NoError(t, os.Symlink("/dev/zero", path)) },
			name + ": not a reg": func(path string) { require.NoError(t, unix.Mkfifo(path, 0o600)) },
		} {
			_, err := FromHF(hfFolder(t, name, create))
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, name)
		}
	}
}

// edited is a model's tokenizer.json with other members.
func edited(t *testing.T, members map[string]any) ([]byte, error) {
	t.Helper()
	var file map[string]any
	require.NoError(t, json.Unmarshal(read(t, testfiles.Model(t, "tiny-llama/hf/tokenizer.json")), &file))
	for name, v := range members {
		file[name] = v
	}
	return json.Marshal(file)
}

type object = map[string]any

// TestMultiplyingNormalizers: normalizers may make a text longer, but not without a bound.
func TestMultiplyingNormalizers(t *testing.T) {
	replace := func(old, new string) object {
		return object{"type": "Replace", "pattern": object{"String": old}, "content": new}
	}
	repeat := func(n int, parts ...object) (list []object) {
		for range n {
			list = append(list, parts...)
		}
		return list
	}
	for _, c := range []struct {
		parts []object
		want  string
	}{
		{repeat(40, replace("a", "aa")), "256 times"},
		{repeat(12, replace("a", strings.Repeat("a", 10))), "256 times"},
		{repeat(1, replace("a", strings.Repeat("b", 900_000))), "256 times"},
		{repeat(3, object{"type": "NFKD"}), "256 times"},
		{repeat(1, object{"type": "Prepend", "prepend": strings.Repeat("b", 900_000)}), "256 times"},
		{repeat(40_000, object{"type": "Lowercase"}), "40000 normalizers"},
		{repeat(8, replace("a", "aa")), ""},
		{[]object{replace("``", `"`), {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}}, ""},
	} {
		data, err := edited(t, object{"normalizer": object{"type": "Sequence", "normalizers": c.parts}})
		require.NoError(t, err)
		spec, err := ParseHF(data, nil)
		if c.want != "" {
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, ErrSpec)
			continue
		}
		made(t, spec, err)
	}
}

// TestGrowth holds each normalizer to its own bound, character by character.
func TestGrowth(t *testing.T) {
	everyVocabulary(t, func(t *testing.T, tok *Tokenizer) {
		for i, n := range tok.spec.Normalize {
			most := normalizers[n.Kind].growth(n)
			for r := rune(0); r < 0x20000; r++ {
				text := strings.Repeat(string(r), 40)
				if got := tok.normalize[i](text); float64(len(got)) > most*float64(len(text)) {
					require.Fail(t, "too long", "%s makes %d bytes of %q; bound %v", n.Kind, len(got), text, most)
				}
			}
		}
	})
}

func TestManySteps(t *testing.T) {
	digits := make([]object, 40_000)
	for i := range digits {
		digits[i] = object{"type": "Digits"}
	}
	data, err := edited(t, object{"pre_tokenizer": object{"type": "Sequence", "pretokenizers": digits}})
	require.NoError(t, err)
	_, err = ParseHF(data, nil)
	require.ErrorContains(t, err, "40000 steps")
}

// TestManyAllowedSteps takes the most steps that a file may have over a text that none of them
// cuts.
func TestManyAllowedSteps(t *testing.T) {
	s := Spec{Algorithm: WordPiece, Tokens: []string{"[UNK]"}, BOS: None, EOS: None, PAD: None}
	for range maxParts {
		s.Steps = append(s.Steps, Step{Kind: stepCut, Pattern: "number", Behavior: "Isolated"})
	}
	tok := made(t, s, nil)
	text := strings.Repeat("a", 100_000)
	requireFast(t, func() { require.Len(t, tok.Encode(text, false), 1) }, "steps")
}

// TestWordPieceDefinition compares with the definition: the longest piece at the start, then at the
// start of what is left.
func TestWordPieceDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	letters := func(n int) string {
		b := make([]byte, 1+r.IntN(n))
		for i := range b {
			b[i] = "ab#"[r.IntN(3)]
		}
		return string(b)
	}
	known := 0
	for range 2000 {
		s := Spec{Algorithm: WordPiece, Tokens: []string{"[UNK]"}, Types: []Type{Unknown}, BOS: None, EOS: None, PAD: None}
		mark, start := "##", ""
		if r.IntN(2) == 0 {
			mark, start, s.Pre = "", Space, preSpaces
		}
		s.Continuing = mark
		for range 1 + r.IntN(12) {
			if text := []string{start, mark}[r.IntN(2)] + letters(5); s.find(text) == None {
				s.special(text, Normal)
			}
		}
		tok := made(t, s, nil)
		for range 20 {
			word := letters(12)
			want, rest, before := []int32{}, start+word, ""
			for rest != "" {
				n, id := len(rest), None
				for ; n > 0 && id == None; n-- {
					if id = s.find(before + rest[:n]); id == 0 {
						id = None
					}
				}
				if id == None {
					want = []int32{0}
					break
				}
				want, rest, before = append(want, id), rest[n+1:], mark
			}
			got := tok.Encode(word, false)
			require.Equal(t, want, got, "%q by %q", word, s.Tokens)
			if got[0] != 0 {
				known++
			}
		}
	}
	require.Greater(t, known, 1500)
}

// TestLongPieces: the time for a text does not depend on how long the pieces of a vocabulary are.
func TestLongPieces(t *testing.T) {
	words := Spec{Algorithm: WordPiece, Continuing: "##", BOS: None, EOS: None, PAD: None,
		Tokens: []string{"[UNK]", "a", "##a", "##" + strings.Repeat("a", 500_000)}}
	tok := made(t, words, nil)
	requireFast(t, func() {
		require.Equal(t, []int32{0}, tok.Encode(strings.Repeat("a", 400_000)+"b", false))
		require.Len(t, tok.Encode(strings.Repeat("a", 400_000), false), 400_000)
	}, "word pieces")

	unigrams := Spec{Algorithm: Unigram, Tokens: []string{"<unk>"}, Scores: []float32{0}, Types: []Type{Unknown}, BOS: None, EOS: None, PAD: None}
	for n := 1; n <= maxSearched; n++ {
		unigrams.special(strings.Repeat("a", n), Normal)
		unigrams.Scores = append(unigrams.Scores, -float32(n))
	}
	tok = made(t, unigrams, nil)
	requireFast(t, func() { tok.Encode(strings.Repeat("a", 50_000), false) }, "unigrams")
	unigrams.special(strings.Repeat("a", maxSearched+1), Normal)
	unigrams.Scores = append(unigrams.Scores, 0)
	_, err := New(unigrams)
	require.ErrorContains(t, err, fmt.Sprintf("token %d has %d bytes", maxSearched+1, maxSearched+1))

	for _, leftmost := range []bool{false, true} {
		special := byteLevelSpec("gpt-2")
		special.LeftmostSpecial = leftmost
		special.special(strings.Repeat("a", maxSearched), UserDefined)
		special.special("b", UserDefined)
		special.StripLeft = []int32{special.find(strings.Repeat("a", maxSearched))}
		tok = made(t, special, nil)
		requireFast(t, func() { tok.Encode(strings.Repeat(strings.Repeat("a", maxSearched-1)+"b", 100), true) }, "special tokens")
	}
}

// TestLargeIDs: ids beyond the type of ids, and types of tokens beyond theirs, are errors.
func TestLargeIDs(t *testing.T) {
	for _, id := range []string{"9223372036854775807", "9223372036854775808", "4294967296", "2147483648", "-9223372036854775808"} {
		for _, member := range []string{`"ab": 2`, `"id": 3`, `"ids": [3]`} {
			name, _, _ := strings.Cut(member, ":")
			value := id
			if name == `"ids"` {
				value = "[" + id + "]"
			}
			_, err := ParseHF([]byte(strings.Replace(smallHF, member, name+": "+value, 1)), nil)
			require.ErrorIs(t, err, ErrSpec, "%s: %s", name, value)
		}
		s := Spec{Tokens: []string{"a"}}
		require.Error(t, s.addGenerationConfig([]byte(`{"eos_token_id": `+id+`}`)), id)
	}
	s := byteLevelSpec("gpt-2")
	entries, err := s.Metadata()
	require.NoError(t, err)
	for i := range entries {
		if entries[i].Key == keyTypes {
			types := entries[i].Value.([]int32)
			types[5] = 7
		}
	}
	_, err = SpecFromGGUF(write(t, entries))
	require.ErrorContains(t, err, keyTypes+": 7 is no type")

	u := unigramSpec()
	u.Scores[3] = float32(math.Inf(-1))
	_, err = New(u)
	require.ErrorContains(t, err, "score of token 3 is -Inf")
}

// TestSameErrors: of several faults of a vocabulary the same one is named each time.
func TestSameErrors(t *testing.T) {
	twice := []byte(strings.Replace(smallHF, `"vocab": {"a": 0, "b": 1, "ab": 2}`, `"vocab": {"a": 0, "b": 1, "c": 0, "d": 1, "e": 0, "f": 1}`, 1))
	s := charSpec()
	for _, text := range []string{"<", "/s", "s>", "</s"} { // no merges make these
		s.Types[s.find(text)] = Unused
	}
	for _, text := range []string{"ab", "ba", "de", "ed", "hl", "lh", "ow", "wo"} { // merges make none of these
		s.special(text, Normal)
	}
	tok := made(t, s, nil)
	for range 50 {
		_, err := ParseHF(twice, nil)
		require.ErrorContains(t, err, `id 0 of "c" is negative or taken`)
		_, err = tok.Metadata()
		require.ErrorContains(t, err, `cannot keep "a" and "b" from merging`)
	}
}
