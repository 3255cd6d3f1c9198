package smelt_test

import (
	"cmp"
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// TestTurns continues a prompt of the reference in turns of a few tokens: they are what
// a float64 implementation gives in one. It takes the first prompt whose best logits are
// so far apart that the arithmetic decides nothing.
func TestTurns(t *testing.T) {
	const n = 12
	for _, model := range fixture.Trained {
		prompts := fixture.ReadReference(t, model).Prompts
		for device, bound := range fixture.Bounds {
			t.Run(model+"/"+device, func(t *testing.T) {
				i := 0
				for slices.Min(prompts[i].Margins[:n]) < 2*bound {
					i++
				}
				p := prompts[i]
				opts := fixture.Options(t, device, dtype.F16)
				opts.Context = 128
				s := fixture.Session(t, testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf"), device, opts)
				text, got, prompt := "", []int32(nil), p.Text
				for _, turn := range []int{0, 1, 2, n} {
					out, err := fixture.Generate(t.Context(), s, prompt, smelt.Generation{N: cmp.Or(min(turn, n-len(got)), -1), IgnoreStop: true})
					require.NoError(t, err)
					got, text, prompt = append(got, out.Tokens...), text+out.Text, ""
					require.Equal(t, append(slices.Clone(p.IDs), got...), s.Tokens())
				}
				require.Equal(t, p.Greedy[:n], got)

				s.Reset()
				out, err := fixture.Generate(t.Context(), s, p.Text, smelt.Generation{N: n, IgnoreStop: true})
				require.NoError(t, err)
				require.Equal(t, out.Text, text)
			})
		}
	}
}

// TestPromptsInTurns gives a model a text, lets it go on, and gives it more: that is the
// text in one, token for token, and so is what follows.
func TestPromptsInTurns(t *testing.T) {
	const first, second = "Once upon a time, there was a little fox", " The fox was very happy. One day"
	for _, model := range fixture.Trained {
		for device := range fixture.Bounds {
			t.Run(model+"/"+device, func(t *testing.T) {
				opts := fixture.Options(t, device, dtype.F32)
				opts.Context, opts.Act = 128, dtype.F32
				path := testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf")
				s := fixture.Session(t, path, device, opts)
				one, err := fixture.Generate(t.Context(), s, first, smelt.Generation{N: 5})
				require.NoError(t, err)
				two, err := fixture.Generate(t.Context(), s, second, smelt.Generation{N: 8})
				require.NoError(t, err)

				whole := fixture.Session(t, path, device, opts)
				text := first + one.Text + second
				ids, err := whole.Encode(text)
				require.NoError(t, err)
				require.Equal(t, len(ids), one.Prompt+len(one.Tokens)+two.Prompt)
				same, err := fixture.Generate(t.Context(), whole, text, smelt.Generation{N: 8})
				require.NoError(t, err)
				require.Equal(t, whole.Tokens(), s.Tokens())
				require.Equal(t, same.Tokens, two.Tokens)
				require.Equal(t, same.Text, two.Text)
			})
		}
	}
}

// TestAfterFull: a context that fills up ends a text, and there is no going on.
func TestAfterFull(t *testing.T) {
	opts := fixture.Options(t, "cpu", dtype.F16)
	opts.Context = 6
	s := fixture.Session(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), "cpu", opts)
	out, err := fixture.Generate(t.Context(), s, "Once upon a time", smelt.Generation{N: 9})
	require.NoError(t, err)
	require.Len(t, out.Tokens, 6-out.Prompt+1)
	for _, prompt := range []string{"", " x"} {
		_, err = fixture.Generate(t.Context(), s, prompt, smelt.Generation{N: 1})
		require.ErrorIs(t, err, smelt.ErrContext)
	}
	require.Equal(t, 7, s.Length())
	s.Truncate(4)
	again, err := fixture.Generate(t.Context(), s, "", smelt.Generation{N: 9})
	require.NoError(t, err)
	require.Equal(t, out.Tokens, again.Tokens, "the last token of the prompt is computed again")
}

// TestAfterCancel goes on after a text that was broken off.
func TestAfterCancel(t *testing.T) {
	s := fixture.Session(t, testfiles.Model(t, "tiny-llama/gguf/tiny-llama-F16.gguf"), "cpu", fixture.Options(t, "cpu", dtype.F16))
	whole, err := fixture.Generate(t.Context(), s, "Once upon a time", smelt.Generation{N: 10})
	require.NoError(t, err)
	s.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	pieces := 0
	broken, err := fixture.Generate(ctx, s, "Once upon a time", smelt.Generation{N: 10}, func(smelt.Token) {
		if pieces++; pieces == 3 {
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, len(broken.Tokens), 10)
	rest, err := fixture.Generate(t.Context(), s, "", smelt.Generation{N: 10 - len(broken.Tokens)})
	require.NoError(t, err)
	require.Equal(t, whole.Tokens, append(broken.Tokens, rest.Tokens...))
	require.Equal(t, whole.Text, broken.Text+rest.Text)
}
