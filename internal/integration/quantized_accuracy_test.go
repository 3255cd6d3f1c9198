package integration_test

import (
	"math"
	"os"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// Accuracy of quantized files: what a type costs against F16, and what a device's
// arithmetic adds to that against float64. The default run scores a little text, on
// one model for each type; SMELT_FULL=accuracy scores the whole text on both models
// and logs the table of types.

// deviceBound is how far a device may be from float64 on the same weights.
const deviceBound = 3e-3

// scored says how much of the held-out text is scored: windows of that width, some of
// them by the interpreter too, and the first of these by the emulator. On the cpu
// alone, wide windows follow; 0 is all.
type scored struct{ width, interpreted, emu, wideWidth, wide int }

// scoredWindows cuts the held-out text into windows as Perplexity does and returns n
// of them, spread evenly, or all for n = 0.
func scoredWindows(t testing.TB, m *smelt.Model, width, n int) [][]int32 {
	text, err := os.ReadFile(testfiles.Model(t, "valid.txt"))
	require.NoError(t, err)
	tok, err := m.Tokenizer()
	require.NoError(t, err)
	ids := tok.Encode(string(text), false)
	var start []int32
	if bos, ok := tok.BOS(); ok {
		start = []int32{bos}
	}
	step := width - len(start)
	total := len(ids) / step
	if n == 0 {
		n = total
	}
	windows := make([][]int32, n)
	for i := range windows {
		at := i * total / n * step
		windows[i] = append(start[:len(start):len(start)], ids[at:at+step]...)
	}
	return windows
}

// windowNLLs returns the mean negative log-likelihood of each window on a device.
func windowNLLs(t testing.TB, s *smelt.Session, windows [][]int32) (means []float64) {
	for _, ids := range windows {
		s.Reset()
		sum := 0.0
		require.NoError(t, s.Score(t.Context(), ids, func(i int, logits []float32) error {
			if i+1 < len(ids) {
				sum -= logLikelihood(logits, ids[i+1])
			}
			return nil
		}))
		means = append(means, sum/float64(len(ids)-1))
	}
	return means
}

// float64NLLs is windowNLLs with the interpreter: the weights as they are stored, and
// everything else in float64.
func float64NLLs(t testing.TB, m *smelt.Model, windows [][]int32) (means []float64) {
	file := m.File()
	weights := ref.NewWeights(file.Data)
	for _, ids := range windows {
		sum := 0.0
		f, err := file.Build(ir.Options{KV: dtype.F32, Block: len(ids)})
		require.NoError(t, err)
		inputs := batch.Pack(len(ids), len(ids), batch.Piece{Tokens: ids, Blocks: []int32{0}, Rows: batch.All}).Inputs
		out, err := ref.Run(f, ref.Env{Sizes: ref.SizesFor(inputs, len(ids)), Inputs: inputs, Weight: weights.Load, Caches: ref.CachesFor(f, 1)})
		require.NoError(t, err)
		logits := out.Tensors["logits"]
		vocab := logits.Shape[1]
		for i := range len(ids) - 1 {
			row := logits.Data[i*vocab : (i+1)*vocab]
			sum -= logLikelihood(row, ids[i+1])
		}
		means = append(means, sum/float64(len(ids)-1))
	}
	return means
}

// logLikelihood is the logarithm of the softmax of logits at id.
func logLikelihood[F float32 | float64](logits []F, id int32) float64 {
	top, total := math.Inf(-1), 0.0
	for _, l := range logits {
		top = max(top, float64(l))
	}
	for _, l := range logits {
		total += math.Exp(float64(l) - top)
	}
	return float64(logits[id]) - top - math.Log(total)
}

// perplexity of windows of the same width.
func perplexity(nlls []float64) float64 { return math.Exp(lo.Sum(nlls) / float64(len(nlls))) }

func TestAccuracy(t *testing.T) {
	if testing.Short() {
		t.Skip("the interpreter takes seconds")
	}
	full := testfiles.Full("accuracy")
	some := scored{width: 128, interpreted: 1, emu: 1, wideWidth: 512, wide: 2}
	if full {
		some.interpreted, some.emu, some.wide = 4, 2, 0
	}
	baseline := map[string]float64{}
	for i, typ := range append([]string{"f16"}, checkpoint.WeightTypes()...) {
		for k, name := range fixture.Trained {
			if i > 0 && (typ == "f16" || !full && i%4 != 2*k) {
				continue
			}
			t.Run(typ+"/"+name, func(t *testing.T) {
				path, q := quantizedTo(t, fixture.Open(t, testfiles.Model(t, name+"/gguf/"+name+"-F16.gguf")), typ)
				require.Zero(t, q.Narrow)
				m := fixture.Open(t, path)
				windows := scoredWindows(t, m, some.width, some.interpreted)
				nlls := float64NLLs(t, m, windows)
				cpu := fixture.SessionOf(t, m, "cpu", fixture.Options(t, "cpu", dtype.F16))
				want, got := perplexity(nlls), perplexity(windowNLLs(t, cpu, windows))
				require.InEpsilon(t, want, got, deviceBound, "cpu")
				emulated := windowNLLs(t, fixture.SessionOf(t, m, "emu", fixture.Options(t, "emu", dtype.F16)), windows[:some.emu])
				wantEmulated, gotEmulated := perplexity(nlls[:some.emu]), perplexity(emulated)
				require.InEpsilon(t, wantEmulated, gotEmulated, deviceBound, "emu")

				whole := perplexity(windowNLLs(t, cpu, scoredWindows(t, m, some.wideWidth, some.wide)))
				if typ == "f16" {
					baseline[name] = whole
				}
				t.Logf("| %s | %s | %d | %.4f | %+.2f %% | %+.3f %% | %+.3f %% |", typ, name, q.After, whole,
					100*(whole/baseline[name]-1), 100*(got/want-1), 100*(gotEmulated/wantEmulated-1))
				if full && typ == "q4_0" {
					require.Less(t, whole, baseline[name]*1.01)
				}
			})
		}
	}
}
