package perplexity_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/perplexity"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
)

type perplexityReference struct {
	Perplexity struct {
		Window int       `json:"window"`
		Tokens int       `json:"tokens_scored"`
		NLL    float64   `json:"mean_nll"`
		PPL    float64   `json:"ppl"`
		Each   []float64 `json:"window_nll"`
	} `json:"perplexity"`
	Quantized map[string]struct {
		PPL float64 `json:"ppl"`
	} `json:"quantised"`
}

// TestPerplexity scores the held-out text as the float64 references were: the
// unquantized model window by window, its first windows unless all are asked for;
// quantized ones as a whole.
func TestPerplexity(t *testing.T) {
	text, err := os.ReadFile(testfiles.Model(t, "valid.txt"))
	require.NoError(t, err)
	for _, model := range fixture.Trained {
		data, err := os.ReadFile(testfiles.Model(t, model+"/reference/reference.json"))
		require.NoError(t, err)
		var ref perplexityReference
		require.NoError(t, json.Unmarshal(data, &ref))
		full := testfiles.Full("accuracy")
		score := func(t *testing.T, format, text string) *perplexity.Result {
			opts := fixture.Options(t, "cpu", dtype.F16)
			opts.Context = ref.Perplexity.Window
			s := fixture.Session(t, tiny.GGUF(t, model, format), "cpu", opts)
			p, err := perplexity.Of(t.Context(), s, text, ref.Perplexity.Window, nil)
			require.NoError(t, err)
			require.InEpsilon(t, math.Exp(p.NLL), p.Perplexity, 1e-12)
			return p
		}
		t.Run(model+"/F16", func(t *testing.T) {
			some := text
			if !full {
				some = text[:bytes.LastIndexByte(text[:len(text)/5], ' ')]
			}
			p := score(t, "F16", string(some))
			t.Logf("%.6f nats a token, %.6f in float64 for all", p.NLL, ref.Perplexity.NLL)
			each := ref.Perplexity.Each
			if full {
				require.Equal(t, ref.Perplexity.Tokens, p.Tokens)
				require.InEpsilon(t, ref.Perplexity.NLL, p.NLL, 1e-3)
				require.InEpsilon(t, ref.Perplexity.PPL, p.Perplexity, 1e-3)
				require.Len(t, p.Windows, len(each))
			} else {
				require.Greater(t, len(p.Windows), len(each)/6)
				each = each[:len(p.Windows)-1] // where the text ends, so may a token
			}
			for i, want := range each {
				require.InEpsilon(t, want, p.Windows[i], 1e-3, "window %d", i)
			}
		})
		unquantized := ref.Perplexity.PPL
		formats := []string{"Q4_K_M"}
		if model == "tiny-qwen3" { // the slower of the two
			formats = nil
		}
		if full {
			formats = []string{"Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q3_K_M", "Q2_K"}
		}
		for _, format := range formats {
			t.Run(model+"/"+format, func(t *testing.T) {
				if testing.Short() {
					t.Skip("the whole text takes seconds")
				}
				want, p := ref.Quantized[format].PPL, score(t, format, string(text))
				require.Equal(t, ref.Perplexity.Tokens, p.Tokens)
				t.Logf("perplexity %.5f, %.5f in float64", p.Perplexity, want)
				require.InEpsilon(t, want, p.Perplexity, 3e-3)
				if format != "Q2_K" {
					require.Less(t, p.Perplexity, 1.01*unquantized)
				}
			})
		}
	}
}

func TestPerplexityWindows(t *testing.T) {
	s := fixture.Session(t, testfiles.Model(t, "tiny-llama/gguf/tiny-llama-F16.gguf"), "cpu", fixture.Options(t, "cpu", dtype.F16))
	const text = "Once upon a time there was a little fox. It was happy and had many friends in the wood."
	var done []int
	p, err := perplexity.Of(t.Context(), s, text, 8, func(n, total int) {
		require.Less(t, n, total+1)
		done = append(done, n)
	})
	require.NoError(t, err)
	require.Equal(t, 7*len(p.Windows), p.Tokens)
	require.Len(t, done, len(p.Windows))
	require.Greater(t, len(p.Windows), 2)

	for window, want := range map[int]string{1: "window of 1", s.Context() + 1: "slots of the cache"} {
		_, err = perplexity.Of(t.Context(), s, text, window, nil)
		require.ErrorContains(t, err, want)
	}
	_, err = perplexity.Of(t.Context(), s, text, 400, nil)
	require.ErrorIs(t, err, perplexity.ErrShortText)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = perplexity.Of(ctx, s, text, 8, func(int, int) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, errors.Is(err, context.Canceled))
}

// TestPerplexityNaN scores with a model whose weights are no numbers.
func TestPerplexityNaN(t *testing.T) {
	path := tiny.Spoilt(t, "tiny-llama/gguf/tiny-llama-F16.gguf", "blk.1.ffn_down.weight", 3)
	s := fixture.Session(t, path, "cpu", fixture.Options(t, "cpu", dtype.F16))
	_, err := perplexity.Of(t.Context(), s, "Once upon a time there was a fox.", 4, nil)
	require.ErrorContains(t, err, "log-likelihood of NaN")
}

func TestLogLikelihood(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		logits := make([]float32, 1+rng.IntN(300))
		shift := rng.NormFloat64() * 1e4
		for i := range logits {
			logits[i] = float32(shift + rng.NormFloat64()*5)
		}
		sum := 0.0
		for id := range logits {
			sum += math.Exp(perplexity.LogLikelihood(logits, int32(id)))
		}
		require.InDelta(t, 1, sum, 1e-9)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	require.True(t, math.IsNaN(perplexity.LogLikelihood([]float32{1, nan}, 0)))
	require.True(t, math.IsInf(perplexity.LogLikelihood([]float32{1, inf}, 1), -1))
	require.Zero(t, perplexity.LogLikelihood([]float32{1, inf}, 0))
}
