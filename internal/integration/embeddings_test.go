package integration_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/fusion"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/npy"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/passes"
)

// leastCosine is to llama.cpp's embeddings, of weights in F32 and in other types.
const leastCosine = 0.9999

// embedder opens a case for embeddings of that pooling, "" being its own.
func embedder(t *testing.T, c parity.Case, weightType, device, pooling string, edit func(o *smelt.Options)) *smelt.Embedder {
	opts := parityOptions(t, device)
	opts.Embeddings = true
	if edit != nil {
		edit(&opts)
	}
	e, err := fixture.Load(t, fixture.Case(t, c, weightType), opts, smelt.Device{Name: device}).NewEmbedder(pooling)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func embed(t *testing.T, e *smelt.Embedder, texts ...[]int32) [][]float32 {
	out, err := e.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.Len(t, out, len(texts))
	return out
}

// closeStates compares the hidden states of all tokens of the text with llama.cpp's.
func closeStates(t *testing.T, want parity.Embeddings, got []float32, far float64, weightType string) {
	t.Helper()
	closeTo(t, want.States, got, far, weightType)
	width := len(want.Pooled)
	for i := range parity.Tokens {
		if weightType == "f32" {
			require.GreaterOrEqual(t, parity.Cosine(want.States[i*width:][:width], got[i*width:][:width]), leastCosine, "token %d", i)
		}
	}
}

// TestEmbeddingParity compares the embeddings of every family that makes them with llama.cpp's:
// those of each token, and what the file's pooling makes of them.
func TestEmbeddingParity(t *testing.T) {
	for f, family := range parity.Embedders() {
		array, err := npy.ReadFile[float32](testfiles.Path(t, "testdata/parity/"+family+".npy"))
		require.NoError(t, err)
		want, err := parity.SplitEmbeddings(family, array.Data)
		require.NoError(t, err)
		far, err := parity.ReadDistances(testfiles.Path(t, "testdata/parity/"+family+".txt"))
		require.NoError(t, err)
		for i, c := range parity.Cases(family) {
			for k, typ := range parity.Types(family) {
				if k > 0 && k%len(parity.Types(family)) != i && !testfiles.Full("models") {
					continue
				}
				for _, device := range parityWays {
					if device == "emu" && i != f%5 && !testfiles.Full("models") {
						continue
					}
					t.Run(strings.Join([]string{c.Name, typ, device}, "/"), func(t *testing.T) {
						states := embed(t, embedder(t, c, typ, device, "none", nil), parity.Text())[0]
						closeStates(t, want[i], states, far[[2]string{c.Name, typ}], typ)
						if typ == "f32" {
							pooled := embed(t, embedder(t, c, typ, device, "", nil), parity.Text())[0]
							require.GreaterOrEqual(t, parity.Cosine(want[i].Pooled, pooled), leastCosine)
						}
					})
				}
			}
			if i != f%5 && !testfiles.Full("models") {
				continue
			}
			t.Run(c.Name+"/source", func(t *testing.T) {
				e := embedder(t, c, "f32", "cpu", "none", func(o *smelt.Options) { o.Level = smelt.Unoptimised })
				closeStates(t, want[i], embed(t, e, parity.Text())[0], 0, "f32")
			})
			for r, rule := range fusion.All() {
				if (r+f)%4 != 0 && !testfiles.Full("models") {
					continue
				}
				t.Run(c.Name+"/"+rule.Name, func(t *testing.T) {
					e := embedder(t, c, "f32", "cpu", "none", func(o *smelt.Options) {
						compiler.KnobsOf(o).Debug, err = passes.ParseDebug(rule.Name + "/off")
						require.NoError(t, err)
					})
					closeStates(t, want[i], embed(t, e, parity.Text())[0], 0, "f32")
				})
			}
			t.Run(c.Name+"/halves", func(t *testing.T) {
				halves := func(o *smelt.Options) { o.Act, o.KV = dtype.F16, dtype.F16 }
				states := embed(t, embedder(t, c, "f16", "emu", "none", halves), parity.Text())[0]
				closeStates(t, want[i], states, far[[2]string{c.Name, "f16"}], "f16")
			})
			for _, device := range parityWays {
				t.Run(c.Name+"/company/"+device, func(t *testing.T) {
					// Texts of many lengths, in as many steps as it takes.
					e := embedder(t, c, "f32", device, "none", func(o *smelt.Options) { o.Sequences, o.Block, o.Context, o.Prefill = 5, 4, 20, 40 })
					text := parity.Text()
					var texts [][]int32
					for n := range 2 * parity.Tokens {
						texts = append(texts, text[:1+n*5%parity.Tokens])
					}
					texts = append(texts, text)
					for n, got := range embed(t, e, texts...) {
						alone := embed(t, e, texts[n])[0]
						require.LessOrEqual(t, parity.Largest(alone, got), 1e-4, "text %d", n)
						if len(texts[n]) == len(text) {
							closeStates(t, want[i], got, 0, "f32")
						}
					}
				})
			}
		}
	}
}

// TestRankParity compares the scores of every family with a classifier with llama.cpp's, whose GELU is
// a table of halves, and those of weights in F16 with them: in a slice every second geometry.
func TestRankParity(t *testing.T) {
	for _, family := range parity.Rankers() {
		array, err := npy.ReadFile[float32](testfiles.Path(t, "testdata/parity/"+family+".npy"))
		require.NoError(t, err)
		want := array.Data
		for i, c := range parity.Cases(family) {
			classes := c.Config.Classifier.Classes
			for _, device := range parityWays {
				if (device == "emu" || i%2 != 0) && i != 0 && !testfiles.Full("models") {
					continue
				}
				for typ, bound := range map[string]float64{"f32": 1e-3, "f16": 5e-3} {
					t.Run(strings.Join([]string{c.Name, typ, device}, "/"), func(t *testing.T) {
						e := embedder(t, c, typ, device, "", nil)
						require.Equal(t, "rank", e.Pooling())
						require.Equal(t, classes, e.Width())
						short := parity.Text()[:5]
						got := embed(t, e, short, parity.Text()) // in one step
						require.InDeltaSlice(t, want[:classes], got[1], bound)
						require.Equal(t, embed(t, e, short)[0], got[0])
					})
				}
			}
			want = want[classes:]
		}
		require.Empty(t, want)
	}
}

// TestSecondText: of a pair, the tokens behind the first end of a text have the second type, where a
// model has two.
func TestSecondText(t *testing.T) {
	c := parity.Cases("bert-rank")[0]
	c.Config.TokenTypes = 2
	const end = 257 // of the placeholder's vocabulary
	pair := []int32{1, 2, end, 3, 4, 5, end}
	got := embed(t, embedder(t, c, "f32", "cpu", "", nil), pair)[0]

	m := fixture.Open(t, fixture.Case(t, c, "f32"))
	f, err := m.File().Build(ir.Options{Block: len(pair), Embeddings: true})
	require.NoError(t, err)
	score := func(second int) []float32 {
		inputs := batch.Pack(len(pair), len(pair), batch.Piece{Tokens: pair, Blocks: []int32{0}, Second: second, Rows: batch.All}).Inputs
		out, err := ref.Run(f, ref.Env{Sizes: ref.SizesFor(inputs, len(pair)), Inputs: inputs, Weight: ref.NewWeights(m.File().Data).Load, Caches: ref.CachesFor(f, 1)})
		require.NoError(t, err)
		return lo.Map(out.Tensors[engine.Embeddings].Data[:1], func(x float64, _ int) float32 { return float32(x) })
	}
	require.InDeltaSlice(t, score(3), got, 1e-3)
	require.Greater(t, math.Abs(float64(score(0)[0]-got[0])), 1e-2)
}

// TestPooling makes embeddings of the hidden states that "none" gives.
func TestPooling(t *testing.T) {
	c := parity.Cases("bert")[0]
	texts := [][]int32{{1, 2, 3, 4, 5}, {7}, {9, 8}}
	states := embed(t, embedder(t, c, "f32", "cpu", "none", nil), texts...)
	width := c.Config.Width
	for pooling, pool := range map[string]func(rows [][]float32) []float32{
		"cls":  func(rows [][]float32) []float32 { return rows[0] },
		"last": func(rows [][]float32) []float32 { return rows[len(rows)-1] },
		"mean": func(rows [][]float32) []float32 {
			return lo.Times(width, func(i int) float32 {
				return lo.SumBy(rows, func(row []float32) float32 { return row[i] }) / float32(len(rows))
			})
		},
	} {
		e := embedder(t, c, "f32", "cpu", pooling, nil)
		require.Equal(t, pooling, e.Pooling())
		require.Equal(t, width, e.Width())
		for i, got := range embed(t, e, texts...) {
			require.Len(t, states[i], width*len(texts[i]))
			require.InDeltaSlice(t, pool(slices.Collect(slices.Chunk(states[i], width))), got, 1e-5)
			engine.Normalize(got)
			require.InDelta(t, 1, parity.Cosine(got, got), 1e-6)
			require.InDelta(t, 1, lo.SumBy(got, func(x float32) float64 { return float64(x) * float64(x) }), 1e-5)
		}
	}
	e := embedder(t, c, "f32", "cpu", "", nil)
	require.Equal(t, "mean", e.Pooling())
	_, err := e.Embed(t.Context(), [][]int32{{1}, {}})
	require.ErrorContains(t, err, "text 1 has 0 tokens, want 1 to 60")
	_, err = e.Embed(t.Context(), [][]int32{make([]int32, 61)})
	require.ErrorContains(t, err, "text 0 has 61 tokens, want 1 to 60")
	_, err = e.Embed(t.Context(), [][]int32{{1, parity.Vocab}})
	require.ErrorContains(t, err, "token 1 has the id 264; the vocabulary has 264")
	zeros := make([]float32, 3)
	engine.Normalize(zeros)
	require.Equal(t, make([]float32, 3), zeros)
}

// TestEmbeddingsAndLogits: a program makes one or the other.
func TestEmbeddingsAndLogits(t *testing.T) {
	encoder := fixture.Load(t, fixture.Case(t, parity.Cases("bert")[0], "f32"), parityOptions(t, "cpu"), smelt.Device{Name: "cpu"})
	_, err := encoder.NewSession()
	require.ErrorContains(t, err, `returns no "logits": it embeds texts`)
	_, err = encoder.NewEngine(smelt.EngineOptions{})
	require.ErrorContains(t, err, `returns no "logits": it embeds texts`)
	decoder := fixture.Load(t, fixture.Case(t, parity.Cases("qwen3-embedding")[0], "f32"), parityOptions(t, "cpu"), smelt.Device{Name: "cpu"})
	_, err = decoder.NewEmbedder("")
	require.ErrorContains(t, err, `returns no "embeddings": it is for making text`)
	_, err = decoder.NewEmbedder("median")
	require.ErrorContains(t, err, `no pooling is called "median"; known are none, mean, cls, last`)
	m, err := smelt.Open(fixture.Case(t, parity.Case{Name: "rank", Config: func() (c models.Config) {
		c = parity.Cases("bert")[0].Config
		c.Pooling = "rank"
		return c
	}()}, "f32"), "")
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, "rank", m.Pooling())
}
