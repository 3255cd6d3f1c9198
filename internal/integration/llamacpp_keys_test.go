package integration_test

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// keyBound bounds the difference from llama.cpp's results in F32, in deviations of them.
const keyBound = 5e-3

// exception is a change of which smelt makes something else than llama.cpp does, and why.
type exception struct {
	families, change, does, why string
	used                        bool
}

// exceptions reads testdata/parity/keys/exceptions.tsv.
func exceptions(t *testing.T) []*exception {
	text, err := os.ReadFile(testfiles.Path(t, "testdata/parity/keys/exceptions.tsv"))
	require.NoError(t, err)
	var out []*exception
	for line := range strings.Lines(string(text)) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		require.Len(t, words, 4, line)
		require.Contains(t, []string{"refuses", "differs"}, words[1], line)
		out = append(out, &exception{families: words[0], does: words[1], change: words[2], why: words[3]})
	}
	return out
}

// covers reports whether the exception, families with commas between them and patterns of path.Match,
// is of that family and change.
func (e *exception) covers(family, change, does string) bool {
	matches := func(pattern, name string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	}
	return e.does == does && matches(e.change, change) && slices.ContainsFunc(strings.Split(e.families, ","), func(f string) bool { return matches(f, family) })
}

// TestKeys changes small files one key or one tensor at a time: what changes llama.cpp's results
// changes smelt's in the same way, or smelt refuses the file by the name of what was changed, and
// exceptions.tsv says why; what changes nothing in llama.cpp does not in smelt. In a slice it makes
// one change in 250.
func TestKeys(t *testing.T) {
	except, bases, whole := exceptions(t), parity.Bases(), 0
	for f, c := range bases {
		family, _, _ := strings.Cut(c.Name, "/")
		t.Run(family, func(t *testing.T) {
			k := newKeyed(t, c)
			answers, err := parity.ReadAnswers(testfiles.Path(t, "testdata/parity/keys/"+family+".txt"), k.changes)
			require.NoError(t, err)
			if testfiles.Full("models") {
				require.LessOrEqual(t, k.off(answers[""], k.results()), keyBound, "the unchanged file")
				whole++
			}
			for i, change := range k.changes {
				want, has := answers[change.Name]
				if (i+97*f)%250 != 0 && !testfiles.Full("models") {
					continue
				}
				fault, does := k.compare(t, change, want, has)
				if fault == "" {
					continue
				}
				if e, ok := lo.Find(except, func(e *exception) bool { return e.covers(family, change.Name, does) }); ok && does != "" {
					e.used = true
					t.Logf("%s %s: %s", change.Name, does, e.why)
					continue
				}
				t.Errorf("%s: %s", change.Name, fault)
			}
		})
	}
	for _, e := range except {
		if whole == len(bases) && !e.used {
			t.Errorf("exceptions.tsv: %s %s is no exception", e.families, e.change)
		}
	}
}

// keyed is an unchanged file, with smelt's results for it.
type keyed struct {
	*parity.Base
	changes []parity.Change
	config  func() models.Config
	results func() []float32
	folder  string
}

func newKeyed(t *testing.T, c parity.Case) *keyed {
	base, err := c.Base()
	require.NoError(t, err)
	k := &keyed{Base: base, changes: base.Changes(), folder: t.TempDir()}
	k.config = sync.OnceValue(func() models.Config {
		m, err := k.open(parity.Change{})
		require.NoError(t, err)
		defer m.Close()
		return m.Config
	})
	k.results = sync.OnceValue(func() []float32 {
		m, err := k.open(parity.Change{})
		require.NoError(t, err)
		defer m.Close()
		results, err := k.compute(m)
		require.NoError(t, err)
		return results
	})
	return k
}

func (k *keyed) open(change parity.Change) (*checkpoint.Checkpoint, error) {
	name := filepath.Join(k.folder, lo.Ternary(change.Name == "", "unchanged.gguf", "changed.gguf")) // of which both may be open
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(k.Write(f, change), f.Close()); err != nil {
		return nil, err
	}
	return checkpoint.Open(name)
}

// compute returns the results of the source graph in float64 for the text.
func (k *keyed) compute(m *checkpoint.Checkpoint) ([]float32, error) {
	text := parity.Text()
	f, err := m.Build(ir.Options{KV: dtype.F32, Block: len(text), Context: 256, Embeddings: k.Embeds()})
	if err != nil {
		return nil, err
	}
	inputs := batch.Pack(len(text), len(text), batch.Piece{Tokens: text, Blocks: []int32{0}, Rows: batch.All}).Inputs
	out, err := ref.Run(f, ref.Env{Sizes: ref.SizesFor(inputs, len(text)), Inputs: inputs, Weight: ref.NewWeights(m.Data).Load, Caches: ref.CachesFor(f, 1)})
	if err != nil {
		return nil, err
	}
	return lo.Map(out.Tensors[lo.Ternary(k.Embeds(), models.Embeddings, "logits")].Data, func(x float64, _ int) float32 { return float32(x) }), nil
}

// off returns how far results are from llama.cpp's, in deviations of these.
func (k *keyed) off(want parity.Answer, got []float32) float64 {
	return compare.Largest(want.Sample, parity.Sample(got).Sample) / want.Deviation
}

// compare returns what is wrong with what smelt makes of a change, "" if nothing, and whether it
// refuses the file or its results differ.
func (k *keyed) compare(t *testing.T, change parity.Change, want parity.Answer, has bool) (fault, does string) {
	m, err := k.open(change)
	if err == nil {
		defer m.Close()
		if !has && change.Key() && reflect.DeepEqual(k.config(), m.Config) {
			return "", ""
		}
		var got []float32
		if !want.Refused {
			got, err = k.compute(m)
		}
		switch far := 0.0; {
		case err != nil:
		case want.Refused:
			return "", ""
		case !has:
			if far = parity.Largest(k.results(), got); !(far <= parity.Same) {
				return "results change, as llama.cpp's do not", "differs"
			}
			return "", ""
		default:
			if far = k.off(want, got); !(far <= keyBound) {
				return lo.Ternary(parity.Largest(k.results(), got) <= parity.Same, "has no effect", fmt.Sprintf("results differ from llama.cpp's by %.2g deviations", far)), "differs"
			}
			return "", ""
		}
	}
	switch {
	case want.Refused:
		return "", ""
	case !change.Named(err.Error()):
		return "is not named: " + err.Error(), ""
	}
	return "refused: " + err.Error(), "refuses"
}
