package lower

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/passes"
)

// measured compiles a shape for steps of up to maxT tokens with a tuning.
func measured(t testing.TB, on string, maxT int64, context int, tuning *Tuning) *plan.Plan {
	t.Helper()
	m, err := checkpoint.Arch("qwen3-0.6b", "q4_0")
	require.NoError(t, err)
	f, err := m.Build(ir.Options{KV: dtype.F16, Block: context})
	require.NoError(t, err)
	target, err := NewTarget(on)
	require.NoError(t, err)
	_, err = passes.Compile(f, &target.Target, ir.StepsOf(maxT), passes.Options{Level: 1})
	require.NoError(t, err)
	plan, err := Lower("qwen3-0.6b", []Range{{Name: "step", Func: f, MinT: 1, MaxT: maxT}}, target, Options{Context: context, Tuning: tuning})
	require.NoError(t, err)
	return plan
}

// others returns a tuning with, for every site of a choice, the first setting that lower does not
// choose by size.
func others(p *plan.Phase, choice string) *Tuning {
	tuning := &Tuning{Device: "a chip", Version: "1"}
	for _, s := range p.Sites {
		if s.Choice != choice {
			continue
		}
		i := slices.IndexFunc(s.Settings, func(o plan.Setting) bool { return !maps.Equal(o, s.Taken) })
		tuning.Keep(Winner{s.Choice, s.Kernel, s.Shape, s.Settings[i], 1, 2})
	}
	return tuning
}

// TestTuned checks, for each choice of the table, that Plans use the measured setting, note it and
// hold the tuning's hash, and that only the dispatches of the choice's sites change.
func TestTuned(t *testing.T) {
	for _, row := range []struct {
		choice, on string
		maxT       int64
		context    int
	}{
		{"linear_vec", "metal", 1, 512},
		{"linear_mat", "metal", 512, 512},
		{"product", "metal", 16, 512},
		{"partition", "metal", 1, 8192},
		{"shared_heads", "metal", 1, 512},
		{"streams", "cpu", 1, 512},
		{"ahead", "cpu", 1, 512},
		{"piece", "cpu", 512, 512},
		{"pairs", "cpu", 1, 512},
		{"layout", "cpu", 512, 512},
	} {
		t.Run(row.choice, func(t *testing.T) {
			plain := measured(t, row.on, row.maxT, row.context, nil)
			require.Empty(t, plain.Tuned)
			by := &plain.Phases[0]
			tuning := others(by, row.choice)
			require.NotEmpty(t, tuning.Winners)
			compiled := measured(t, row.on, row.maxT, row.context, tuning)
			require.Equal(t, tuning.Hash(), compiled.Tuned)
			ph := &compiled.Phases[0]
			require.Len(t, ph.Dispatches, len(by.Dispatches))
			touched := 0
			for i := range ph.Dispatches {
				of := slices.ContainsFunc(by.Sites, func(s plan.Site) bool { return s.Choice == row.choice && s.Reads(&by.Dispatches[i]) })
				if !of {
					require.Equal(t, inPlace(by.Dispatches[i]), inPlace(ph.Dispatches[i]))
				} else if row.choice != "layout" { // whose matrices are the buffers'
					require.NotEqual(t, inPlace(by.Dispatches[i]), inPlace(ph.Dispatches[i]), by.Dispatches[i].Kernel)
				}
				if of {
					touched++
				}
			}
			require.Positive(t, touched)
			require.Equal(t, row.choice != "layout", slices.EqualFunc(plain.Buffers, compiled.Buffers, func(a, b plan.Buffer) bool { return a.Rearrange == b.Rearrange }))
			noted := 0
			for _, c := range ph.Choices {
				if c.Measured {
					require.Equal(t, "measured: 1.0 µs a step, 2.0 by default", c.Reason)
					noted += c.Dispatches
				}
			}
			if row.choice != "product" { // which shows in the kernel
				require.Positive(t, noted)
			}
			require.Equal(t, fileOf(t, compiled), fileOf(t, measured(t, row.on, row.maxT, row.context, tuning)))

			// What no one would try today does not count.
			for i := range tuning.Winners {
				for name := range tuning.Winners[i].Setting {
					tuning.Winners[i].Setting[name] = 1 << 20
				}
			}
			compiled = measured(t, row.on, row.maxT, row.context, tuning)
			require.Equal(t, by.Dispatches, compiled.Phases[0].Dispatches)
		})
	}
	require.Len(t, choices, 10, "each is in the table above")
}

// inPlace returns a dispatch without the offsets of its operands.
func inPlace(d plan.Dispatch) plan.Dispatch {
	d.Bindings = slices.Clone(d.Bindings)
	for i := range d.Bindings {
		d.Bindings[i].Offset = 0
	}
	return d
}

func fileOf(t *testing.T, compiled *plan.Plan) []byte {
	var b bytes.Buffer
	require.NoError(t, (&plan.File{Plan: compiled}).Write(&b))
	return b.Bytes()
}

// TestHints checks that a CPU's dispatches hold the measured hints, indexed by kernels.Hint.
func TestHints(t *testing.T) {
	plain := measured(t, "cpu", 1, 512, nil)
	both := others(&plain.Phases[0], "ahead")
	both.Keep(others(&plain.Phases[0], "streams").Winners...)
	plan := measured(t, "cpu", 1, 512, both)
	found := 0
	for i, d := range plan.Phases[0].Dispatches {
		if k, _ := kernels.Lookup(d.Kernel); k.Family == linearVec {
			require.Equal(t, []uint32{kernels.HintStreams: 1, kernels.HintAhead: 64, kernels.HintPiece: 0, kernels.HintPairs: 0}, d.Hints)
			found++
		}
		require.Nil(t, plain.Phases[0].Dispatches[i].Hints)
	}
	require.Positive(t, found)
}

// TestSites checks that the setting chosen by size is one of the site's settings.
func TestSites(t *testing.T) {
	for _, row := range []struct {
		on   string
		maxT int64
	}{{"metal", 1}, {"metal", 3}, {"metal", 512}, {"cpu", 1}, {"cpu", 512}} {
		seen := map[string]bool{}
		for _, s := range measured(t, row.on, row.maxT, 8192, nil).Phases[0].Sites {
			require.True(t, slices.ContainsFunc(s.Settings, func(o plan.Setting) bool { return maps.Equal(o, s.Taken) }), "%s: %v", s.Key(), s.Taken)
			require.False(t, seen[s.Key()])
			seen[s.Key()] = true
			for _, o := range s.Settings {
				w := Winner{s.Choice, s.Kernel, s.Shape, o, 1, 1}
				require.Equal(t, s.Exact, w.validate() == nil, s.Key())
			}
		}
		require.NotEmpty(t, seen)
	}
}

const oneWinner = `{"format":"smelt tuning","format_version":1,"device":"d","version":"v","winners":[` +
	`{"choice":"linear_vec","kernel":"k","shape":"s","setting":{"rows":4,"simdgroups":8},"us":1.5,"default_us":2}]}`

func TestReadTuning(t *testing.T) {
	got, err := ReadTuning(strings.NewReader(oneWinner))
	require.NoError(t, err)
	require.Equal(t, &Tuning{"d", "v", []Winner{{"linear_vec", "k", "s", plan.Setting{"rows": 4, "simdgroups": 8}, 1.5, 2}}}, got)
	require.Equal(t, &got.Winners[0], got.Find("linear_vec|k|s"))
	require.Nil(t, got.Find("linear_vec|k|t"))
	require.Nil(t, (*Tuning)(nil).Find("linear_vec|k|s"))
	require.Empty(t, (*Tuning)(nil).Hash())

	change := func(from, to string) string {
		require.Contains(t, oneWinner, from)
		return strings.Replace(oneWinner, from, to, 1)
	}
	winner := oneWinner[strings.Index(oneWinner, `{"choice"`) : len(oneWinner)-2]
	for name, text := range map[string]string{
		"nothing":         "",
		"another format":  change("smelt tuning", "smelt plan"),
		"another version": change(`"format_version":1`, `"format_version":2`),
		"no object":       "[]",
		"unknown key":     change(`"device"`, `"divice"`),
		"unknown choice":  change(`"linear_vec"`, `"linear_vac"`),
		"other bits":      change(`"linear_vec"`, `"partition"`),
		"unknown field":   change(`"rows"`, `"columns"`),
		"too few fields":  change(`"rows":4,`, ``),
		"negative time":   change(`1.5`, `-1.5`),
		"fraction":        change(`"rows":4`, `"rows":4.5`),
		"twice":           change(winner, winner+","+winner),
		"more behind it":  oneWinner + "{}",
	} {
		_, err := ReadTuning(strings.NewReader(text))
		require.ErrorIs(t, err, ErrTuning, name)
	}
	for n := range len(oneWinner) {
		_, err := ReadTuning(strings.NewReader(oneWinner[:n]))
		require.ErrorIs(t, err, ErrTuning, "cut off after %d bytes", n)
	}
}

// Keep replaces and sorts, so that the order of measurements does not matter.
func TestKeep(t *testing.T) {
	var a, b Tuning
	w := func(shape string, us float64) Winner {
		return Winner{"linear_mat", "k", shape, plan.Setting{"tile": 64}, us, 1}
	}
	a.Keep(w("x", 1), w("y", 2))
	b.Keep(w("y", 3))
	b.Keep(w("y", 2), w("x", 1))
	require.Equal(t, a, b)
	require.Equal(t, a.Hash(), b.Hash())
	b.Keep(w("y", 4))
	require.NotEqual(t, a.Hash(), b.Hash())
}

// FuzzReadTuning checks that any text gives an error, or a tuning that survives writing and reading.
func FuzzReadTuning(f *testing.F) {
	f.Add([]byte(oneWinner))
	f.Add([]byte(`{"format":"smelt tuning","format_version":1,"device":"","version":"","winners":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tuning, err := ReadTuning(bytes.NewReader(data))
		if err != nil {
			require.ErrorIs(t, err, ErrTuning)
			return
		}
		var first bytes.Buffer
		require.NoError(t, tuning.Write(&first))
		again, err := ReadTuning(bytes.NewReader(first.Bytes()))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(tuning), fmt.Sprint(again))
		require.Equal(t, tuning.Hash(), again.Hash())
	})
}
