package integration_test

import (
	"math"
	"slices"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/fusion"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/npy"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/passes"
)

// Bounds for what llama.cpp computes, in standard deviations of its logits.
const parityBound = 0.02

// parityWays are the devices, with the arithmetic in float: what halves do is for other tests.
var parityWays = []string{"cpu", "emu"}

func parityOptions(t *testing.T, device string) smelt.Options {
	opts := fixture.Options(t, device, dtype.F32)
	if device == "emu" {
		opts.Act = dtype.F32
	}
	opts.Context, opts.Prefill = 60, 32
	return opts
}

// parityOracle returns llama.cpp's logits of each case of a family, and how far its own are
// off in other types of weights.
func parityOracle(t *testing.T, family string) (logits [][]float32, far map[[2]string]float64) {
	array, err := npy.ReadFile[float32](testfiles.Path(t, "testdata/parity/"+family+".npy"))
	require.NoError(t, err)
	require.Equal(t, []int{len(parity.Cases(family)), parity.Tokens, parity.Vocab}, array.Shape)
	far, err = parity.ReadDistances(testfiles.Path(t, "testdata/parity/"+family+".txt"))
	require.NoError(t, err)
	return slices.Collect(slices.Chunk(array.Data, parity.Tokens*parity.Vocab)), far
}

// TestParity compares every family with llama.cpp, as a prompt and token by token: in a
// slice every second geometry in F32 on cpu and one on emu, and every fourth of the other types of
// weights, so that four families in a row have all of them.
func TestParity(t *testing.T) {
	for f, family := range parity.Families() {
		want, far := parityOracle(t, family)
		var compared, leftOut int // tokens, in types other than F32
		for i, c := range parity.Cases(family) {
			for k, typ := range parity.Types(family) {
				others := k > 4 && i == 4 // whose rows are whole blocks of any type
				if (k == 0 && (i+f)%2 != 0 && i != f%5 || k > 0 && (k%5 != i && !others || (k+f)%4 != 0)) && !testfiles.Full("models") {
					continue
				}
				for _, device := range parityWays {
					if device == "emu" && (i != f%5 || k > 0) && !others && !testfiles.Full("models") {
						continue
					}
					t.Run(c.Name+"/"+typ+"/"+device, func(t *testing.T) {
						path := fixture.Case(t, c, typ)
						s := fixture.Session(t, path, device, parityOptions(t, device))
						compare := func(got []float32) {
							if typ == "f32" {
								closeTo(t, want[i], got, 0, typ)
								return
							}
							compared += parity.Tokens
							leftOut += closeButTies(t, want[i], got, far[[2]string{c.Name, typ}], path)
						}
						compare(fixture.Logits(t, s, parity.Text()))
						s.Reset()
						var single []float32
						for _, id := range parity.Text() {
							l, err := s.Feed(t.Context(), []int32{id})
							require.NoError(t, err)
							single = append(single, l...)
						}
						compare(single)
					})
				}
			}
		}
		require.LessOrEqual(t, 10*leftOut, compared, "%s: %d of %d tokens are left out", family, leftOut, compared)
	}
}

func closeTo(t *testing.T, want, got []float32, far float64, weightType string) {
	t.Helper()
	if weightType == "f32" {
		require.LessOrEqual(t, parity.Largest(want, got), parityBound)
		return
	}
	require.Positive(t, far)
	require.LessOrEqual(t, parity.Spread(want, got), far+parityBound)
}

// closeButTies is closeTo for types other than F32, in which activations are rounded. Where two experts are as good as each other, rounding
// decides which one a token goes to, and its logits are another expert's: such tokens may be left
// out, those first that are off most. It tells how many were.
func closeButTies(t *testing.T, want, got []float32, far float64, path string) (leftOut int) {
	t.Helper()
	require.Positive(t, far)
	var ties []bool
	for parity.Spread(want, got) > far+parityBound {
		if ties == nil {
			ties = routerTies(t, path)
		}
		row := func(of []float32, i int) []float32 { return of[i*parity.Vocab:][:parity.Vocab] }
		worst, off := -1, 0.0
		for i, tie := range ties {
			if far := parity.Spread(row(want, i), row(got, i)); tie && far > off {
				worst, off = i, far
			}
		}
		require.GreaterOrEqual(t, worst, 0, "off by %g, with no router in doubt", parity.Spread(want, got))
		ties, leftOut = slices.Delete(ties, worst, worst+1), leftOut+1
		want = slices.Concat(want[:worst*parity.Vocab], want[(worst+1)*parity.Vocab:])
		got = slices.Concat(got[:worst*parity.Vocab], got[(worst+1)*parity.Vocab:])
	}
	return leftOut
}

// tieBound is how close the logits of two experts are between which rounding may choose, in
// standard deviations of a token's logits: what activations in 8 bits are off by adds up to some
// hundredths of one over a few layers.
const tieBound = 0.1

// routerTies tells which tokens of the text have in some layer a tie between the last expert
// that is chosen and the next one, by what the model computes in float64.
func routerTies(t *testing.T, path string) []bool {
	m, err := smelt.Open(path, "")
	require.NoError(t, err)
	defer m.Close()
	file, text := m.File(), parity.Text()
	f, err := file.Build(ir.Options{KV: dtype.F32, Block: len(text)})
	require.NoError(t, err)
	chosen := make(map[*ir.Value]int) // experts of a token, by the router's logits
	for _, v := range f.Values {
		if v.Op == ir.OpRouter {
			chosen[v.Args[0]] = v.Attr.(ir.RouterAttr).Chosen
		}
	}
	ties := make([]bool, len(text))
	inputs := batch.Pack(len(text), len(text), batch.Piece{Tokens: text, Blocks: []int32{0}, Rows: batch.All}).Inputs
	_, err = ref.Run(f, ref.Env{Sizes: ref.SizesFor(inputs, len(text)), Inputs: inputs, Weight: ref.NewWeights(file.Data).Load, Caches: ref.CachesFor(f, 1),
		Watch: func(v *ir.Value, x *ref.Tensor) {
			n, k := x.Shape[len(x.Shape)-1], chosen[v]
			if k == 0 || k == n {
				return
			}
			for i := range ties {
				logits := slices.Sorted(slices.Values(x.Data[i*n : (i+1)*n]))
				mean, squares := lo.Sum(logits)/float64(n), 0.0
				for _, l := range logits {
					squares += (l - mean) * (l - mean)
				}
				ties[i] = ties[i] || logits[n-k]-logits[n-k-1] <= tieBound*math.Sqrt(squares/float64(n))
			}
		}})
	require.NoError(t, err)
	return ties
}

// TestParityWithoutRules has every geometry computed without each of the fusion rules, in a
// slice one of each family without one.
func TestParityWithoutRules(t *testing.T) {
	rules := fusion.All()
	for f, family := range parity.Families() {
		want, _ := parityOracle(t, family)
		for i, c := range parity.Cases(family) {
			for k, rule := range rules {
				if (i != f%5 || f%len(rules) != k) && !testfiles.Full("models") {
					continue
				}
				for _, device := range parityWays {
					t.Run(c.Name+"/"+rule.Name+"/"+device, func(t *testing.T) {
						opts := parityOptions(t, device)
						var err error
						compiler.KnobsOf(&opts).Debug, err = passes.ParseDebug(rule.Name + "/off")
						require.NoError(t, err)
						s := fixture.Session(t, fixture.Case(t, c, "f32"), device, opts)
						closeTo(t, want[i], fixture.Logits(t, s, parity.Text()), 0, "f32")
					})
				}
			}
		}
	}
}

// TestParityInCompany has three sequences in pages bring the same text in other pieces.
func TestParityInCompany(t *testing.T) {
	const sequences, block, blocks = 3, 5, (parity.Tokens + 4) / 5
	text := parity.Text()
	steps := [][sequences]int{{5, 1, 0}, {1, 1, 7}, {6, 1, 1}, {0, 1, 4}} // tokens that each brings
	for range parity.Tokens - 4 {
		steps = append(steps, [sequences]int{0, 1, 0})
	}
	for f, family := range parity.Families() {
		want, _ := parityOracle(t, family)
		for i, c := range parity.Cases(family) {
			if i != f%5 && !testfiles.Full("models") {
				continue
			}
			for _, device := range parityWays {
				if device == "emu" && f%2 != 0 && !testfiles.Full("models") {
					continue
				}
				t.Run(c.Name+"/"+device, func(t *testing.T) {
					opts := parityOptions(t, device)
					opts.Sequences, opts.Block, opts.Rows = sequences, block, parity.Tokens
					run := onDevice(t, fixture.Load(t, fixture.Case(t, c, "f32"), opts, smelt.Device{Name: device}), sequences*blocks)
					var got [sequences][]float32
					var at [sequences]int
					for _, step := range steps {
						var pieces []batch.Piece
						for s, n := range step {
							if n > 0 {
								pages := lo.Times(blocks, func(i int) int32 { return int32(s + sequences*i) })
								pieces = append(pieces, batch.Piece{Tokens: text[at[s]:][:n], Start: at[s], Blocks: pages[:(at[s]+n+block-1)/block], State: batch.State{Read: int32(s), Write: int32(s)}, Rows: batch.All})
							}
						}
						rows, _, err := run(nil, pieces...)
						require.NoError(t, err)
						for s, n := range step {
							for _, row := range rows[:n] {
								got[s] = append(got[s], lo.Map(row, func(x float64, _ int) float32 { return float32(x) })...)
							}
							rows, at[s] = rows[n:], at[s]+n
						}
					}
					for s := range got {
						closeTo(t, want[i], got[s], 0, "f32")
					}
				})
			}
		}
	}
}

// TestPositions: a model with an embedding for each position takes no longer context.
func TestPositions(t *testing.T) {
	m, err := smelt.Open(fixture.Case(t, parity.Cases("gpt2")[0], "f32"), "")
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	opts := fixture.Options(t, "cpu", dtype.F16)
	p, err := m.Compile(opts)
	require.NoError(t, err)
	require.Equal(t, 128, p.Plan.Context)
	opts.Context = 129
	_, err = m.Compile(opts)
	require.ErrorContains(t, err, "model has embeddings for 128 positions, too few for a context of 129")
}

// TestHalves has every family computed with activations and cache in halves, as a prompt and
// token by token: in a slice one geometry of each, and those with what few models have, norms
// with weights for each head and queries that grow. Where the bridge to Metal is, or a stand-in
// behind it, it gives the emulator's bits, in a slice of every third family.
func TestHalves(t *testing.T) {
	more := map[string]int{"stablelm": 2, "mistral3": 0}
	for f, family := range parity.Families() {
		if fixture.Bounds["metal"] != 0 && f%3 != 0 && !testfiles.Full("models") {
			continue
		}
		want, far := parityOracle(t, family)
		var compared, leftOut int // tokens
		for i, c := range parity.Cases(family) {
			if also, ok := more[family]; i != f%5 && !(ok && i == also) && !testfiles.Full("models") {
				continue
			}
			t.Run(c.Name, func(t *testing.T) {
				path := fixture.Case(t, c, "f16")
				opts := parityOptions(t, "emu")
				opts.Act, opts.KV = dtype.F16, dtype.F16
				on := func(device string) (prompt, single []float32) { return promptAndTokens(t, path, device, opts) }
				prompt, single := on("emu")
				for _, got := range [][]float32{prompt, single} {
					compared += parity.Tokens
					leftOut += closeButTies(t, want[i], got, far[[2]string{c.Name, "f16"}], path)
				}
				if fixture.Bounds["metal"] != 0 {
					bridgePrompt, bridgeSingle := on("metal")
					require.Equal(t, prompt, bridgePrompt)
					require.Equal(t, single, bridgeSingle)
				}
			})
		}
		require.LessOrEqual(t, 10*leftOut, compared, "%s: %d of %d tokens are left out", family, leftOut, compared)
	}
}

// promptAndTokens returns the logits of the text at once and token by token.
func promptAndTokens(t *testing.T, path, device string, opts smelt.Options) (prompt, single []float32) {
	s := fixture.Session(t, path, device, opts)
	prompt = fixture.Logits(t, s, parity.Text())
	s.Reset()
	for _, id := range parity.Text() {
		l, err := s.Feed(t.Context(), []int32{id})
		require.NoError(t, err)
		single = append(single, l...)
	}
	return prompt, single
}

// TestTokensKeepFloats: a plan with half activations computes steps of few tokens in float. In every
// family such steps have the dispatches of a plan with float activations. Deep models, and one with
// latent attention, whose halves would add up to more than a cache in halves costs, give its bits.
func TestTokensKeepFloats(t *testing.T) {
	deep := map[string]int{"gemma2": 46, "exaone4": 64} // layers of the largest ones
	for f, family := range parity.Families() {
		i := f % 5
		if family == "deepseek2" {
			i = 3 // keys and values of unequal sizes
		}
		c := parity.Cases(family)[i]
		if layers := deep[family]; layers > 0 {
			c.Config.Layers = layers
			if c.Config.Windowed != nil {
				c.Config.Windowed = models.AllButEvery(2, layers)
			}
		}
		t.Run(c.Name, func(t *testing.T) {
			path := fixture.Case(t, c, "f16")
			opts := parityOptions(t, "emu")
			opts.KV, opts.Sequences = dtype.F16, 16
			var plans [2]*plan.Plan
			for i, act := range []dtype.Type{dtype.F16, dtype.F32} {
				opts.Act = act
				p, err := fixture.Open(t, path).Compile(opts)
				require.NoError(t, err)
				plans[i] = p.Plan
			}
			for _, n := range []int64{1, 8, 9} {
				s := step{n, n, n, 1, 32}
				half, float := s.phase(plans[0]), s.phase(plans[1])
				if n > 8 {
					require.NotEqual(t, kernelsOf(float), kernelsOf(half))
					continue
				}
				require.Equal(t, named(plans[1], float), named(plans[0], half))
			}
			if deep[family] == 0 && family != "deepseek2" {
				return
			}
			opts.Sequences = 1
			_, want := promptAndTokens(t, path, "emu", opts)
			opts.Act = dtype.F16
			_, got := promptAndTokens(t, path, "emu", opts)
			require.Equal(t, want, got)
		})
	}
}
