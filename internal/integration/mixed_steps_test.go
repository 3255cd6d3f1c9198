package integration_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// mixture is a random schedule: in each step some sequences bring a prompt, a piece of
// one or a single token, over a cache of small blocks that are handed out in any order.
type mixture struct {
	block, context, blocks int
	ids, tables            [][]int32 // by sequence: all its tokens, and its blocks
	steps                  [][]piece
}

// piece is what a step brings of a sequence.
type piece struct {
	sequence, start, end int
	rows                 batch.Rows
}

const mixedPrefill = 40 // most tokens of a step

// newMixture makes one over blocks of one of some sizes; any, where none is given.
func newMixture(r *rand.Rand, sequences, vocab int, blocks ...int) *mixture {
	if len(blocks) == 0 {
		blocks = []int{1, 4, 7, 16, 48}
	}
	m := &mixture{block: blocks[r.IntN(len(blocks))], context: 48}
	each := (m.context + m.block - 1) / m.block
	m.blocks = each*sequences + r.IntN(3)
	all := r.Perm(m.blocks)
	for i := range sequences {
		ids, table := make([]int32, 4+r.IntN(m.context-4)), make([]int32, each)
		for k := range ids {
			ids[k] = int32(r.IntN(vocab))
		}
		for k := range table {
			table[k] = int32(all[i*each+k])
		}
		m.ids, m.tables = append(m.ids, ids), append(m.tables, table)
	}
	at := make([]int, sequences)
	for slices.ContainsFunc(r.Perm(sequences), func(i int) bool { return at[i] < len(m.ids[i]) }) {
		var step []piece
		room, single, absent := mixedPrefill, r.IntN(2) == 0, r.IntN(3)
		for _, i := range r.Perm(sequences) {
			n := min(len(m.ids[i])-at[i], room)
			if n == 0 || r.IntN(4) < absent {
				continue
			}
			if n = 1 + r.IntN(min(n, 12)); single || r.IntN(6) == 0 {
				n = 1
			}
			step = append(step, piece{i, at[i], at[i] + n, batch.Rows(r.IntN(3))})
			at[i], room = at[i]+n, room-n
		}
		if len(step) > 0 {
			m.steps = append(m.steps, step)
		}
	}
	return m
}

func (m *mixture) sequence(p piece, blocks []int32) batch.Piece {
	own := int32(p.sequence)
	return batch.Piece{Tokens: m.ids[p.sequence][p.start:p.end], Start: p.start, Blocks: blocks, State: batch.State{Read: own, Write: own}, Rows: p.rows}
}

// executor runs steps of sequences over one cache. It returns a row of logits for each
// that they ask for, and which kernels the step took. damage, if given, changes the
// inputs first.
type executor func(damage func(*batch.Step), sequences ...batch.Piece) (rows [][]float64, kernels string, err error)

// kernelsOf names the kernels of a phase in their order.
func kernelsOf(ph *plan.Phase) string {
	names := make([]string, len(ph.Dispatches))
	for i := range ph.Dispatches {
		names[i] = ph.Dispatches[i].Kernel
	}
	return strings.Join(names, " ")
}

func split(flat []float64, width int) (rows [][]float64) {
	return slices.Collect(slices.Chunk(flat, width))
}

// onDevice executes a loaded program's Plan.
func onDevice(t *testing.T, l *smelt.Loaded, blocks int) executor {
	plan := l.Program().Plan
	r, err := engine.NewRunner(plan, l.OnDevice(), blocks, device.Window{Keys: device.States, Blocks: blocks})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return func(damage func(*batch.Step), sequences ...batch.Piece) ([][]float64, string, error) {
		if damage == nil {
			if err := r.Run(t.Context(), sequences...); err != nil {
				return nil, "", err
			}
		} else {
			s := batch.Pack(plan.Block(), plan.Context, sequences...)
			damage(s)
			step := device.Step{Phase: plan.PhaseFor(&s.Sizes, s.Longest), Sizes: s.Sizes, Inputs: s.Inputs}
			if err := r.Instance().Run(t.Context(), &step); err != nil {
				return nil, "", err
			}
		}
		logits, err := r.Logits()
		if err != nil {
			return nil, "", err
		}
		wide := make([]float64, len(logits))
		for i, x := range logits {
			wide[i] = float64(x)
		}
		return split(wide, r.Vocab()), kernelsOf(&plan.Phases[r.Instance().Counters().Phase]), nil
	}
}

// byInterpreter executes the graphs that a program's Plan was lowered from, in float64:
// the graph of the phase that the Plan has for a step.
func byInterpreter(p *smelt.Program, blocks int) executor {
	return byInterpreterOf(p, p.Model().File().Data, blocks)
}

// byInterpreterOf is byInterpreter for weights that are no file's.
func byInterpreterOf(p *smelt.Program, data func(string) (dtype.Type, []byte, bool), blocks int) executor {
	weights, caches := ref.NewWeights(data), ref.CachesFor(p.Stages[0].Fused, blocks)
	return func(damage func(*batch.Step), sequences ...batch.Piece) ([][]float64, string, error) {
		s := batch.Pack(p.Plan.Block(), p.Plan.Context, sequences...)
		phase := p.Plan.PhaseFor(&s.Sizes, s.Longest)
		if damage != nil {
			damage(s)
		}
		out, err := ref.Run(p.Stages[phase].Fused, ref.Env{Sizes: s.Sizes, Inputs: s.Inputs, Weight: weights.Load, Caches: caches})
		if err != nil {
			return nil, "", err
		}
		logits := out.Tensors[engine.Logits]
		return split(logits.Data, logits.Shape[1]), kernelsOf(&p.Plan.Phases[phase]), nil
	}
}

// compared is how many rows a mixture has that must have the bits of the sequence alone,
// as they and all before them come from the same kernels, and how many a bound, with the
// largest difference of these.
type compared struct {
	same, close int
	largest     float64
	kernels     map[string]bool // what steps took
}

// compare runs each sequence alone, in the pieces that the mixture cuts it into, then the
// mixture, and compares the rows of logits. fault, if given, damages its steps.
func (m *mixture) compare(alone, mixed executor, bound float64, fault func(*batch.Step)) (c compared, err error) {
	type sight struct {
		row     []float64
		kernels string
	}
	want := make([][]sight, len(m.ids)) // by sequence and token
	for i := range want {               // one after the other in the same blocks
		for _, p := range slices.Concat(m.steps...) {
			if p.sequence != i {
				continue
			}
			p.rows = batch.All
			rows, kernels, err := alone(nil, m.sequence(p, batch.Contiguous(m.block, m.context)))
			if err != nil {
				return c, fmt.Errorf("sequence %d alone: %w", i, err)
			}
			for _, row := range rows {
				want[i] = append(want[i], sight{row, kernels})
			}
		}
	}
	c.kernels = make(map[string]bool)
	other := make([]bool, len(m.ids)) // whether a sequence has met other kernels than alone
	for n, step := range m.steps {
		sequences := make([]batch.Piece, len(step))
		for i, p := range step {
			sequences[i] = m.sequence(p, m.tables[p.sequence])
		}
		rows, kernels, err := mixed(fault, sequences...)
		if err != nil {
			return c, fmt.Errorf("step %d: %w", n, err)
		}
		c.kernels[kernels] = true
		for _, p := range step {
			other[p.sequence] = other[p.sequence] || want[p.sequence][p.start].kernels != kernels
			first := map[batch.Rows]int{batch.All: p.start, batch.Last: p.end - 1, batch.None: p.end}[p.rows]
			for at := first; at < p.end; at++ {
				difference := 0.0
				for i, x := range want[p.sequence][at].row {
					difference = math.Max(difference, math.Abs(x-rows[0][i])) // NaN stays
				}
				rows = rows[1:]
				if !other[p.sequence] {
					if c.same++; difference != 0 {
						return c, fmt.Errorf("step %d, token %d of sequence %d is %g off with the same kernels", n, at, p.sequence, difference)
					}
					continue
				}
				c.close++
				c.largest = max(c.largest, difference)
				if !(difference <= bound) {
					return c, fmt.Errorf("step %d, token %d of sequence %d is %g off: want %g", n, at, p.sequence, difference, bound)
				}
			}
		}
	}
	return c, nil
}

// mixedBounds is how far a token's logits may be off where others in the step make it take
// other kernels: of prompts rather than single tokens, say. In float64 that is the order of
// sums; halves round what lies between. On the CPU all kernels have the same bits.
var mixedBounds = map[string]float64{"interpreter": 1e-9, "cpu": 0, "emu": fixture.Bounds["emu"]}

// mixing compiles a model for mixtures of many sequences, and returns an executor with a
// cache of its own at each call.
func mixing(t *testing.T, model, format, on string, m *mixture) (fresh func(blocks int) executor) {
	device := on
	if on == "interpreter" {
		device = "cpu"
	}
	opts := fixture.Options(t, device, dtype.F16)
	opts.Context, opts.Block, opts.Sequences, opts.Prefill = m.context, m.block, len(m.ids), mixedPrefill
	l := fixture.Load(t, testfiles.Model(t, model+"/gguf/"+model+"-"+format+".gguf"), opts, smelt.Device{Name: device, Threads: 2})
	return func(blocks int) executor {
		if on == "interpreter" {
			return byInterpreter(l.Program(), blocks)
		}
		return onDevice(t, l, blocks)
	}
}

// TestMixtures runs random mixtures of sequences through the phases of real Plans: each
// sequence has what it has alone, in bits where the same kernels compute it. On the
// emulator there are few.
func TestMixtures(t *testing.T) {
	for _, model := range fixture.Trained {
		for on, bound := range mixedBounds {
			t.Run(model+"/"+on, func(t *testing.T) {
				if testing.Short() && on != "cpu" {
					t.Skip("it takes seconds")
				}
				sum := compared{kernels: map[string]bool{}}
				seeds := map[string]uint64{"interpreter": 1, "cpu": 6, "emu": 1}[on]
				if testfiles.Full("models") {
					seeds *= 4
				}
				for seed := range seeds {
					r := rand.New(rand.NewPCG(seed, 11))
					m := newMixture(r, 10-int(seed%3)*4, 200)
					if on == "emu" && !testfiles.Full("models") {
						m.steps = m.steps[:min(len(m.steps), 9)]
					}
					format := "F16"
					if on == "cpu" && seed%3 == 2 {
						format = "Q4_0"
					}
					fresh := mixing(t, model, format, on, m)
					c, err := m.compare(fresh(len(batch.Contiguous(m.block, m.context))), fresh(m.blocks), bound, nil)
					require.NoError(t, err, "seed %d", seed)
					maps.Copy(sum.kernels, c.kernels)
					sum = compared{sum.same + c.same, sum.close + c.close, max(sum.largest, c.largest), sum.kernels}
				}
				t.Logf("%d rows with the same bits, %d at most %.2g off", sum.same, sum.close, sum.largest)
				require.Positive(t, sum.same)
				require.Positive(t, sum.close)
				require.Len(t, sum.kernels, 3, "those of prompts, of few sequences and of many")
			})
		}
	}
}

// TestMixturesNotice damages the inputs of every step, as a fault in packing, in a mask or
// in the look-up of blocks would: the comparison must see each.
func TestMixturesNotice(t *testing.T) {
	faults := map[string]func(s *batch.Step){
		"a token goes to another slot": func(s *batch.Step) {
			slots := s.Inputs[sym.Slots]
			slots[0] = slots[len(slots)-1]
		},
		"a token is not stored": func(s *batch.Step) { s.Inputs[sym.Slots][0] = -1 },
		"a neighbour's context": func(s *batch.Step) {
			table, width := s.Inputs[sym.BlockTable], int(s.Sizes[sym.NB])
			copy(table[:width], table[(s.Sizes[sym.B]-1)*s.Sizes[sym.NB]:])
		},
		"a token of the neighbour's": func(s *batch.Step) {
			if starts := s.Inputs[sym.CuSeqlens]; len(starts) > 2 && starts[1] > 1 {
				starts[1]--
			}
		},
		"the last key is not seen": func(s *batch.Step) { s.Inputs[sym.ContextLens][0]-- },
		"the positions of another": func(s *batch.Step) {
			positions := s.Inputs[sym.Positions]
			positions[0] = positions[len(positions)-1]
		},
		"logits of another row": func(s *batch.Step) {
			if rows := s.Inputs[sym.LogitRows]; len(rows) > 0 {
				rows[0] = int32(s.Sizes[sym.T] - 1)
			}
		},
	}
	for _, on := range []string{"interpreter", "cpu"} {
		r := rand.New(rand.NewPCG(3, 11))
		m := newMixture(r, 4, 200)
		m.steps = m.steps[:min(len(m.steps), 6)]
		fresh := mixing(t, "tiny-llama", "F16", on, m)
		_, err := m.compare(fresh(len(batch.Contiguous(m.block, m.context))), fresh(m.blocks), mixedBounds[on], nil)
		require.NoError(t, err)
		for name, fault := range faults {
			t.Run(on+"/"+name, func(t *testing.T) {
				_, err := m.compare(fresh(len(batch.Contiguous(m.block, m.context))), fresh(m.blocks), mixedBounds[on], fault)
				require.ErrorContains(t, err, " off")
			})
		}
	}
}

// What explain says of a step of several sequences is what such a step executes.
func TestExplainCountsOfSequences(t *testing.T) {
	for _, sequences := range []int{3, 9} { // whose products are of vectors, and of tiles
		t.Run(fmt.Sprint(sequences), func(t *testing.T) { explainCounts(t, sequences) })
	}
}

func explainCounts(t *testing.T, sequences int) {
	const block, context = 16, 64
	m, err := smelt.Open(testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), "")
	require.NoError(t, err)
	defer m.Close()
	p, err := m.Compile(smelt.Options{Target: "metal", Level: 1, Context: context, Block: block, Sequences: sequences})
	require.NoError(t, err)
	l, err := p.Load(smelt.Device{Name: "emu"})
	require.NoError(t, err)
	defer l.Close()
	each := batch.Contiguous(block, context)
	r, err := engine.NewRunner(p.Plan, l.OnDevice(), sequences*len(each))
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	pieces := make([]batch.Piece, sequences)
	for i := range pieces {
		for _, at := range each {
			pieces[i].Blocks = append(pieces[i].Blocks, int32(sequences)*at+int32(i))
		}
		pieces[i].Tokens, pieces[i].Rows = []int32{1, 2, 3, 4, int32(i)}[:3+i%2], batch.Last
		require.NoError(t, r.Run(t.Context(), pieces[i]))
		pieces[i].Start, pieces[i].Tokens = len(pieces[i].Tokens), []int32{7}
	}
	require.NoError(t, r.Run(t.Context(), pieces...))
	c := r.Instance().Counters()
	e, err := p.Explain("decode", sequences)
	require.NoError(t, err)
	require.Equal(t, []int{e.Dispatches, e.Barriers, e.CommandBuffers}, []int{c.Dispatches, c.Barriers, c.CommandBuffers})
	require.Equal(t, 5*e.Layers+3, c.Dispatches)
}
