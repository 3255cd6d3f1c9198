package smelt

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// costOf is what the largest step of a phase costs, from its plan.
func costOf(t *testing.T, p *Program, phase, chip string) compiler.Saving {
	ph, _, err := p.Phase(phase)
	require.NoError(t, err)
	timeline, err := compiler.Of(p).Simulate(phase, chip)
	require.NoError(t, err)
	s := compiler.Saving{Dispatches: len(ph.Dispatches), Seconds: timeline.Total / 1e6}
	for i := range ph.Dispatches {
		c := predict.CostOf(p.Plan, &ph.Dispatches[i], compiler.StepSizes(ph))
		s.BytesRead += c.Read
		s.BytesWritten += c.Written
	}
	s.Bytes = s.BytesRead + s.BytesWritten
	return s
}

// What a CPU would emulate is listed: halves, and nothing of what it computes by itself.
func TestEmulatedKernels(t *testing.T) {
	m, err := Open("arch:qwen3-0.6b", "q4_0")
	require.NoError(t, err)
	defer m.Close()
	for _, c := range []struct {
		target, phase string
		act           dtype.Type
		want          []string
	}{
		{"cpu", "prefill", dtype.F32, nil},
		{"cpu", "decode", dtype.F32, nil},
		{"cpu", "prefill", dtype.F16, []string{"attention_tile_f16_f16", "head_norm_rope_kv_write_f16_f16", "linear_mat_f16_f16", "linear_mat_f16_f32", "rms_norm_f32_f16"}},
		{"cpu", "decode", dtype.F16, nil}, // in float
		{"metal", "prefill", dtype.F16, nil},
	} {
		p, err := m.Compile(Options{Target: c.target, Act: c.act, Level: 1, Context: 512})
		require.NoError(t, err)
		e, err := p.Explain(c.phase)
		require.NoError(t, err)
		require.Equal(t, c.want, e.Emulated, "%s of %s in %s", c.phase, c.target, c.act)
	}
}

// Each saving is the difference of two plans as Compile makes them, with and without
// the rule, and all of them together that to a plan without rules.
func TestSavings(t *testing.T) {
	for _, tt := range []struct {
		arch, phase, chip string
		opts              Options
	}{
		{"qwen3-0.6b", "decode", "m4-max", Options{Target: "metal", Level: 1, Context: 512}},
		{"qwen3-0.6b", "prefill", "m1", Options{Target: "metal", Level: 1, Context: 512, Chip: "m1"}},
		{"llama3.2-1b", "decode", "m2-pro", Options{Target: "metal", Level: 1, Context: 8192}},
		{"llama3.2-1b", "decode", "m4-max", Options{Target: "cpu", Level: 1, Context: 512}},
		{"llama3.2-1b", "prefill", "m4-max", Options{Target: "metal", Level: 1, Context: 512, knobs: compiler.Knobs{Disabled: []string{"gate_up"}}}},
	} {
		t.Run(tt.arch+" "+tt.phase+" "+tt.opts.Target, func(t *testing.T) {
			m, err := Open("arch:"+tt.arch, "q4_0")
			require.NoError(t, err)
			defer m.Close()
			var seen bytes.Buffer
			tt.opts.knobs.DebugOutput = &seen
			compile := func(off ...string) *Program {
				opts := tt.opts
				opts.knobs.Disabled = append(slices.Clone(opts.knobs.Disabled), off...)
				p, err := m.Compile(opts)
				require.NoError(t, err)
				return p
			}
			p := compile()
			e, err := p.Explain(tt.phase)
			require.NoError(t, err)
			with := costOf(t, p, tt.phase, tt.chip)
			got, err := compiler.Of(p).Savings(tt.phase, tt.chip)
			require.NoError(t, err)
			require.Equal(t, tt.chip, got.Chip)
			var rules []string
			for rule := range e.Fusions {
				rules = append(rules, rule)
				require.Equal(t, costOf(t, compile(rule), tt.phase, tt.chip).Less(with), got.ByRule[rule], rule)
				if e.Fusions[rule] == 0 {
					require.Zero(t, got.ByRule[rule], rule)
				} else if rule != "gated_activation" || !slices.Contains(tt.opts.knobs.Disabled, "gate_up") {
					require.Positive(t, got.ByRule[rule].Dispatches, rule)
				} else { // linear_activation stands in: an activation as an epilogue, and a product
					require.Zero(t, got.ByRule[rule].Dispatches, rule)
				}
			}
			require.Len(t, got.ByRule, len(rules))
			require.Equal(t, costOf(t, compile(rules...), tt.phase, tt.chip).Less(with), got.Together)
		})
	}
}

// A sequence of Qwen3.6-35B-A3B at 8,192 tokens, one of 16, takes at most 1.3 times the memory that it
// takes in llama.cpp: keys and values of 10 layers, and in 30 a matrix for each head and 3 rows of the
// convolution (n_embd_s and n_embd_r in llama-hparams.cpp).
func TestMemoryOfStates(t *testing.T) {
	const context = 8192
	m, err := Open("arch:qwen3.6-35b-a3b", "")
	require.NoError(t, err)
	defer m.Close()
	p, err := m.Compile(Options{Target: "cpu", Level: 1, Context: context, Sequences: 16, Block: 64})
	require.NoError(t, err)
	e, err := p.Explain("decode", 16)
	require.NoError(t, err)
	own := int64(0)
	for _, k := range e.Keeps {
		own += k.Bytes * int64(len(k.Layers))
	}
	llama := int64(10*2*2*256*2*context + 30*4*(32*128*128+3*(2*16+32)*128))
	require.LessOrEqual(t, float64(own), 1.3*float64(llama), "%d bytes, llama.cpp %d", own, llama)
}

// ROCmForge's design of replication kernels counts, for a step of 2,048 tokens with 2 KV
// heads for 32 query heads of 128 floats, 2·2048·2·128·4 bytes read and 16 times as many
// written. The plan without the rule that makes copies needless has just these in the
// launches that copy, and the rule saves them; one launch for K and V instead of two
// saves the launch and no bytes.
func TestSavingsOfReplication(t *testing.T) {
	const tokens, kvHeads, heads, head, layers = 2048, 2, 32, 128, 3
	shape, err := checkpoint.Arch("llama3.2-1b", "f32")
	require.NoError(t, err)
	c := shape.Config
	c.Heads, c.KVHeads, c.Head, c.Layers = heads, kvHeads, head, layers
	file, err := checkpoint.Synthetic(c, "f32")
	require.NoError(t, err)
	m := fromFile("replication", "", file)
	compile := func(off ...string) *Program {
		p, err := m.Compile(Options{Target: "metal", Level: 1, Context: tokens, Prefill: tokens, KV: dtype.F32, Act: dtype.F32, knobs: compiler.Knobs{Disabled: off}})
		require.NoError(t, err)
		return p
	}
	copies := func(p *Program) (launches int, cost predict.Cost) {
		ph, _, err := p.Phase("prefill")
		require.NoError(t, err)
		for i := range ph.Dispatches {
			d := &ph.Dispatches[i]
			k, ok := kernels.Lookup(d.Kernel)
			require.True(t, ok)
			if k.Family == "repeat_kv" || k.Family == "repeat_kv_pair" {
				launches++
				cost = cost.Plus(predict.CostOf(p.Plan, d, compiler.StepSizes(ph)))
			}
		}
		return launches, cost
	}
	const read, written = 2 * tokens * kvHeads * head * 4, 2 * tokens * heads * head * 4
	want := predict.Cost{Read: layers * read, Written: layers * written}

	launches, cost := copies(compile("kv_replication_elimination", "repeat_kv_pair"))
	require.Equal(t, 2*layers, launches)
	require.Equal(t, want, cost)
	pairs := compile("kv_replication_elimination")
	launches, cost = copies(pairs)
	require.Equal(t, layers, launches)
	require.Equal(t, want, cost)
	s, err := compiler.Of(pairs).Savings("prefill", "m1")
	require.NoError(t, err)
	require.Equal(t, layers, s.ByRule["repeat_kv_pair"].Dispatches)
	require.Zero(t, s.ByRule["repeat_kv_pair"].Bytes)

	p := compile()
	launches, _ = copies(p)
	require.Zero(t, launches)
	s, err = compiler.Of(p).Savings("prefill", "m1")
	require.NoError(t, err)
	saved := s.ByRule["kv_replication_elimination"]
	t.Logf("kv_replication_elimination saves %+v, of which copies %+v", saved, want)
	require.GreaterOrEqual(t, saved.BytesWritten, want.Written)
	require.GreaterOrEqual(t, saved.BytesRead, want.Read+want.Written) // the copies are read back
}

// Where many query heads share a KV head, attention of several sequences is bound by a small
// chip's arithmetic, and what each threadgroup repeats adds to it: the write stays a dispatch of
// its own there, and the choices say why. The timeline of a step agrees. Where four query heads
// share a threadgroup, it repeats too little, and up to eight sequences, whose Q, K and V are
// floats, a dispatch of its own moves too much.
func TestWriteApartOnSmallChips(t *testing.T) {
	shape, err := checkpoint.Arch("llama3.2-1b", "f16")
	require.NoError(t, err)
	c := shape.Config
	c.KVHeads, c.Layers = 1, 3
	of := func(heads, head int) *Model {
		c.Heads, c.Head = heads, head
		file, err := checkpoint.Synthetic(c, "f16")
		require.NoError(t, err)
		return fromFile("one KV head", "", file)
	}
	narrow, m := of(64, 64), of(128, 128)
	for _, tt := range []struct {
		*Model
		chip      string
		sequences int
		apart     int // dispatches a layer
	}{{m, "m1", 16, 1}, {m, "m1", 8, 0}, {m, "m1", 1, 0}, {m, "m4-max", 16, 0}, {m, "", 16, 0}, {narrow, "m1", 16, 0}} {
		m := tt.Model
		p, err := m.Compile(Options{Target: "metal", Level: 1, Context: 512, Chip: tt.chip, Sequences: tt.sequences})
		require.NoError(t, err)
		e, err := p.Explain("decode", tt.sequences)
		require.NoError(t, err)
		require.Equal(t, c.Layers, e.Fusions["rope_qkv_write"])
		require.Equal(t, c.Layers*(1-tt.apart), e.Fusions["attention_write"], "%s, %d sequences", tt.chip, tt.sequences)
		said := slices.ContainsFunc(e.Choices, func(c plan.Decision) bool {
			return c.Op == "rope_qkv_write" && strings.Contains(c.Reason, "µs longer")
		})
		require.Equal(t, tt.apart == 1, said, "%v", e.Choices)
	}

	seconds := func(chip string, sequences int, off ...string) float64 {
		p, err := m.Compile(Options{Target: "metal", Level: 1, Context: 256, Sequences: sequences, knobs: compiler.Knobs{Disabled: off}})
		require.NoError(t, err)
		timeline, err := compiler.Of(p).Simulate("decode", chip, sequences)
		require.NoError(t, err)
		return timeline.Total
	}
	require.Less(t, seconds("m1", 16, "attention_write"), seconds("m1", 16))
	require.Greater(t, seconds("m1", 8, "attention_write"), seconds("m1", 8))
	require.Greater(t, seconds("m4-max", 8, "attention_write"), seconds("m4-max", 8))
}

// TestNormApart: without a chip short prompts normalise in tiles. On a chip where every tile
// of a wide product would take longer over it than a dispatch does, the norm is one, and
// explain says why.
func TestNormApart(t *testing.T) {
	m, err := Open("arch:llama3.1-8b", "q4_0")
	require.NoError(t, err)
	for _, tt := range []struct {
		chip              string
		perLayer, outside int
	}{{"", 6, 3}, {"m1", 8, 3}, {"m3-ultra", 7, 3}} {
		p, err := m.Compile(Options{Target: "metal", Level: 1, Context: 512, Chip: tt.chip, Prefill: 32})
		require.NoError(t, err)
		e, err := p.Explain("prefill")
		require.NoError(t, err)
		require.Equal(t, []int{tt.perLayer, tt.outside}, []int{e.DispatchesPerLayer, e.DispatchesOutsideLayers}, tt.chip)
		said := slices.ContainsFunc(e.Choices, func(c plan.Decision) bool {
			return c.Op == "rms_norm" && strings.Contains(c.Reason, "µs longer")
		})
		require.Equal(t, tt.chip != "", said, "%v", e.Choices)
	}
}
