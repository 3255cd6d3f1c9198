package integration_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// lawful is a model on a device with a cache whose first tokens are made up, so that
// sequences stand deep in their contexts without anybody having computed those.
type lawful struct {
	t         *testing.T
	l         *smelt.Loaded
	block     int
	sequences int
	context   int
	ids       [][]int32
	tables    [][]int32
}

const lawfulContext = 1100

// newLawful compiles a model for four sequences over a context that is cut in parts.
func newLawful(t *testing.T, m *smelt.Model, vocab int, opts smelt.Options, device smelt.Device) *lawful {
	opts.Level, opts.Context, opts.Block, opts.Sequences, opts.Prefill = 1, lawfulContext, 16, 4, 48
	p, err := m.Compile(opts)
	require.NoError(t, err)
	l, err := p.Load(device)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	law := &lawful{t: t, l: l, block: 16, sequences: 4, context: lawfulContext}
	r := rand.New(rand.NewPCG(3, 4))
	each := len(batch.Contiguous(law.block, law.context))
	all := r.Perm(each * law.sequences)
	for i := range law.sequences {
		ids, table := make([]int32, law.context), make([]int32, each)
		for j := range ids {
			ids[j] = int32(r.IntN(vocab))
		}
		for j := range table {
			table[j] = int32(all[i*each+j])
		}
		law.ids, law.tables = append(law.ids, ids), append(law.tables, table)
	}
	return law
}

// fresh returns an executor over a cache of the same made-up contents each time.
func (law *lawful) fresh() func(pieces ...batch.Piece) [][]float32 {
	r, err := engine.NewRunner(law.l.Program().Plan, law.l.OnDevice(), law.sequences*len(law.tables[0]), device.Window{Keys: device.States, Blocks: law.sequences})
	require.NoError(law.t, err)
	law.t.Cleanup(func() { require.NoError(law.t, r.Close()) })
	require.NoError(law.t, r.Instance().RandomiseCaches(law.sequences*len(law.tables[0]), rand.New(rand.NewPCG(5, 6))))
	return func(pieces ...batch.Piece) [][]float32 {
		require.NoError(law.t, r.Run(law.t.Context(), pieces...))
		logits, err := r.Logits()
		require.NoError(law.t, err)
		return slices.Collect(slices.Chunk(slices.Clone(logits), r.Vocab()))
	}
}

// piece is some tokens of a sequence from a position on, with a row of logits for each.
func (law *lawful) piece(sequence, start, n int) batch.Piece {
	own := int32(sequence)
	return batch.Piece{Tokens: law.ids[sequence][start : start+n], Start: start, Blocks: law.tables[sequence], State: batch.State{Read: own, Write: own}, Rows: batch.All}
}

const drafted = "with drafts, most of them wrong"

// ways to compute 24 tokens of sequence 0 that end a prompt or were generated: each returns
// a row for every token.
var ways = map[string]func(law *lawful, start int) [][]float32{
	"one by one": func(law *lawful, start int) (rows [][]float32) {
		run := law.fresh()
		for i := range 24 {
			rows = append(rows, run(law.piece(0, start+i, 1))...)
		}
		return rows
	},
	"cut anywhere": func(law *lawful, start int) (rows [][]float32) {
		run := law.fresh()
		for i := 0; i < 24; {
			n := min([]int{1, 5, 2, 9, 3}[i%5], 24-i)
			rows = append(rows, run(law.piece(0, start+i, n))...)
			i += n
		}
		return rows
	},
	"beside prompts and others that decode": func(law *lawful, start int) (rows [][]float32) {
		run := law.fresh()
		for i := 0; i < 24; i += 3 {
			n := 3
			mine := law.piece(0, start+i, n)
			others := []batch.Piece{law.piece(1, 1060+i, 1), law.piece(2, 2*i, 2+i%4), law.piece(3, 500+i, 1)}
			got := run(append(slices.Clone(others), mine)...)
			rows = append(rows, got[len(got)-n:]...)
		}
		return rows
	},
	"beside others that decode": func(law *lawful, start int) (rows [][]float32) {
		run := law.fresh()
		for i := range 24 {
			rows = append(rows, run(law.piece(0, start+i, 1), law.piece(1, 1060+i, 1), law.piece(2, i, 1))[0])
		}
		return rows
	},
	drafted: func(law *lawful, start int) (rows [][]float32) {
		run := law.fresh()
		for i := range 24 {
			mine := law.piece(0, start+i, 1)
			for d := range i % 6 { // of no sequence: they are written over later
				mine.Tokens = append(slices.Clone(mine.Tokens), int32(d))
			}
			rows = append(rows, run(mine)[0])
		}
		return rows
	},
	"behind a cached prefix": func(law *lawful, start int) (rows [][]float32) {
		run := law.fresh()
		keep := (start + 15) / law.block * law.block // whole blocks, which another sequence has written
		for i := start; i < keep; i++ {
			rows = append(rows, run(law.piece(0, i, 1))...)
		}
		other := law.piece(0, keep, start+24-keep)
		other.Blocks = slices.Concat(law.tables[0][:keep/law.block], law.tables[3][keep/law.block:])
		other.State.Write = 3
		return append(rows, run(other)...)
	},
}

// waysOf are those that the model can be computed in: of one with recurrent states nothing is
// guessed.
func waysOf(law *lawful) map[string]func(law *lawful, start int) [][]float32 {
	list := maps.Clone(ways)
	if law.l.Program().Plan.Stateful() {
		delete(list, drafted)
	}
	return list
}

// TestSameBits: with Options.SameBits a token has the same logits, bit by bit, in whatever
// step computes it; without, it has not. Contexts are below, across and above where they are
// cut.
func TestSameBits(t *testing.T) {
	if testing.Short() {
		t.Skip("runs models on the emulator")
	}
	models := map[string]*smelt.Model{}
	vocab := map[string]int{}
	for _, name := range fixture.Trained {
		m, err := smelt.Open(testfiles.Model(t, name+"/gguf/"+name+"-F16.gguf"), "")
		require.NoError(t, err)
		defer m.Close()
		models[name], vocab[name] = m, 200
	}
	models["sinks"], _ = featured{sinks: true, rope: true, headNorms: true}.model()
	models["everything"], _ = featured{window: 90, softCap: 2, sinks: true, slopes: true, rope: true, biases: true, layerNorms: true}.model()
	models["states"], _ = featured{rope: true, mlp: convolved}.model()
	models["rule"], _ = featured{rope: true, mlp: ruled}.model()
	models["scan"], _ = featured{rope: true, mlp: scanned}.model()
	models["latent"], vocab["latent"] = latentModel(t), parity.Vocab-8
	for name, m := range models {
		if vocab[name] == 0 {
			vocab[name] = featuredVocab
		}
		for _, act := range []dtype.Type{dtype.F16, dtype.F32} {
			t.Run(name+"/"+act.String(), func(t *testing.T) {
				if (vocab[name] != featuredVocab || act == dtype.F32) && !testfiles.Full("models") {
					t.Skip("it takes seconds")
				}
				starts := []int{3, 500, 1040}
				emu := smelt.Device{Name: "emu", Threads: 2}
				law := newLawful(t, m, vocab[name], smelt.Options{Target: "metal", Act: act, SameBits: true}, emu)
				without := newLawful(t, m, vocab[name], smelt.Options{Target: "metal", Act: act}, emu)
				for _, start := range starts {
					want := law.fresh()(law.piece(0, start, 24))
					for way, rows := range waysOf(law) {
						require.Equal(t, want, rows(law, start), "%s from %d on", way, start)
					}
					require.NotEqual(t, without.fresh()(without.piece(0, start, 24)), ways["one by one"](without, start),
						"whole and one by one from %d on, without it", start)
				}
			})
		}
	}
}

// TestSameBitsByDefault: on the CPU a token has the same logits, bit by bit, in whatever step
// computes it, on any threads, whatever the cache holds.
func TestSameBitsByDefault(t *testing.T) {
	models := map[string]*smelt.Model{}
	vocab := map[string]int{}
	for _, name := range fixture.Trained {
		for _, format := range []string{"F16", "Q4_0"} {
			m, err := smelt.Open(testfiles.Model(t, name+"/gguf/"+name+"-"+format+".gguf"), "")
			require.NoError(t, err)
			defer m.Close()
			models[name+"-"+format], vocab[name+"-"+format] = m, 200
		}
	}
	for name, f := range map[string]featured{
		"sinks":      {sinks: true, rope: true, headNorms: true},
		"everything": {window: 90, softCap: 2, sinks: true, slopes: true, rope: true, biases: true, layerNorms: true},
		"states":     {rope: true, mlp: convolved},
		"rule":       {rope: true, mlp: ruled},
		"scan":       {rope: true, mlp: scanned},
	} {
		models[name], _ = f.model()
		vocab[name] = featuredVocab
	}
	models["latent"], vocab["latent"] = latentModel(t), parity.Vocab-8
	for name, m := range models {
		for _, kv := range []dtype.Type{dtype.F16, dtype.F32, dtype.Q8_0} {
			if kv == dtype.Q8_0 && (vocab[name] == featuredVocab || name == "latent") {
				continue // whose heads are not whole blocks
			}
			t.Run(name+"/"+kv.String(), func(t *testing.T) {
				if kv == dtype.F32 && !testfiles.Full("models") {
					t.Skip("it takes seconds")
				}
				on := func(threads int) *lawful {
					return newLawful(t, m, vocab[name], smelt.Options{Target: "cpu", KV: kv}, smelt.Device{Name: "cpu", Threads: threads})
				}
				one, others := on(1), []*lawful{on(2), on(3), on(8)}
				for i, start := range []int{3, 500, 1015} { // contexts around where they are cut
					want := one.fresh()(one.piece(0, start, 24))
					for way, compute := range waysOf(one) {
						require.Equal(t, want, compute(one, start), "%s from %d on", way, start)
					}
					for k, law := range others {
						require.Equal(t, want, law.fresh()(law.piece(0, start, 24)), "from %d on, other threads: %d", start, k)
						if k == i || testfiles.Full("models") {
							for way, compute := range waysOf(law) {
								require.Equal(t, want, compute(law, start), "%s from %d on, other threads: %d", way, start, k)
							}
						}
					}
				}
			})
		}
	}
}

// TestNeighbours: by default, of sequences that bring a token each, none has other bits for who
// the others are, how many keys they have, in which order they come or how many threads
// there are, alone among them.
func TestNeighbours(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a model on the emulator")
	}
	for name, f := range map[string]featured{
		"plain":      {rope: true, headNorms: true},
		"everything": {window: 700, softCap: 2, sinks: true, slopes: true, rope: true, biases: true},
	} {
		m, _ := f.model()
		for _, start := range []int{40, 511, 512, 800, 1023, 1024} {
			var want []float32
			for _, threads := range []int{1, 2, 8} {
				law := newLawful(t, m, featuredVocab, smelt.Options{Target: "metal", Act: dtype.F32}, smelt.Device{Name: "emu", Threads: threads})
				mine := law.piece(0, start, 1)
				others := []batch.Piece{law.piece(1, 1090, 1), law.piece(2, 0, 1), law.piece(3, 600, 1)}
				alone := law.fresh()(mine)[0]
				if want == nil {
					want = alone
				}
				require.Equal(t, want, alone, "%s at %d, %d threads", name, start, threads)
				require.Equal(t, want, law.fresh()(mine, others[1])[0], "%s at %d, %d threads", name, start, threads)
				require.Equal(t, want, law.fresh()(others[0], others[1], mine, others[2])[2], "%s at %d, %d threads", name, start, threads)
				require.Equal(t, want, law.fresh()(others[2], mine)[1], "%s at %d, %d threads", name, start, threads)
			}
		}
	}
}

// latentModel returns a model with multi-head latent attention.
func latentModel(t *testing.T) *smelt.Model {
	m, err := smelt.Open(fixture.Case(t, parity.Cases("deepseek2")[0], "f16"), "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}
