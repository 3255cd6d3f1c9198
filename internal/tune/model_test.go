package tune_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tune"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
)

// privately gives the test a cache folder of its own, in which tunings count.
func privately(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	t.Setenv("SMELT_TUNED", "")
	t.Setenv("XDG_CACHE_HOME", folder)
	t.Setenv("HOME", folder)
	return folder
}

// TestTune measures a model on the CPU, in as few rounds as there can be, and has later
// programs for it use what was kept.
func TestTune(t *testing.T) {
	folder := privately(t)
	d := smelt.Device{Name: "cpu", Threads: 1}
	none, err := compiler.LoadTuning(d.Name, d.Threads)
	require.NoError(t, err)
	require.Nil(t, none)

	m, err := smelt.Open(testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"), "")
	require.NoError(t, err)
	defer m.Close()
	o := smelt.Options{Target: "cpu", Level: 1, Context: 64, Prefill: 16}
	var told []string
	found, err := tune.Model(t.Context(), m, tune.Job{
		Program: o, Device: d, Sequences: 3, Options: tune.Options{Tokens: 2, Rounds: 1, Progress: func(what string) { told = append(told, what) }},
	})
	require.NoError(t, err)
	require.NotEmpty(t, found.Sites)
	keys := map[string]bool{}
	for _, s := range found.Sites {
		require.NotContains(t, keys, s.Key(), "nothing is measured twice")
		keys[s.Key()] = strings.HasPrefix(s.Shape, "T ≤ 3 ")
	}
	require.Contains(t, slices.Collect(maps.Values(keys)), true, "a token of each of three sequences")
	require.Contains(t, told, "streams: streams 1")
	for _, s := range found.Sites {
		require.Positive(t, s.Micros)
		require.NotEmpty(t, s.Tried, s.Shape)
		for _, tried := range s.Tried {
			require.True(t, tried.Same, "%s changes bits: %v", s.Choice, tried.Setting)
		}
	}
	path, err := compiler.KeepTuning(d.Name, d.Threads, found.Winners()...)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(path, filepath.Join(folder, "smelt", "tuned")), path)
	kept, err := os.ReadFile(path)
	require.NoError(t, err)

	tuning, err := compiler.LoadTuning(d.Name, d.Threads)
	require.NoError(t, err)
	require.Len(t, tuning.Winners, len(found.Sites))
	plain, err := m.Compile(o)
	require.NoError(t, err)
	compiler.KnobsOf(&o).Tuning = tuning
	p, err := m.Compile(o)
	require.NoError(t, err)
	require.Empty(t, plain.Plan.Tuned)
	require.Equal(t, tuning.Hash(), p.Plan.Tuned)
	e, err := p.Explain("decode")
	require.NoError(t, err)
	marked := 0
	for _, c := range e.Choices {
		if c.Measured {
			marked += c.Dispatches
		}
	}
	require.Positive(t, marked)

	// Other shapes join, the same ones take the place of what was there.
	again := &tune.Result{Sites: []*tune.SiteResult{{Choice: "linear_mat", Kernel: "k", Shape: "s", Exact: true, Winner: plan.Setting{"tile": 64}}}}
	_, err = compiler.KeepTuning(d.Name, d.Threads, again.Winners()...)
	require.NoError(t, err)
	more, err := compiler.LoadTuning(d.Name, d.Threads)
	require.NoError(t, err)
	require.Len(t, more.Winners, len(found.Sites)+1)
	require.NoError(t, os.WriteFile(path, kept, 0o644))

	ctx, stop := context.WithCancel(t.Context())
	_, err = tune.Model(ctx, m, tune.Job{Program: o, Device: d, Options: tune.Options{Progress: func(string) { stop() }}})
	require.ErrorIs(t, err, context.Canceled)

	// Nothing is left beside the file, and what is of no use is said to be.
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, files, 1)
	for name, text := range map[string]string{
		"cut off":         string(kept[:len(kept)/2]),
		"nothing":         "",
		"another device":  strings.Replace(string(kept), "1 threads", "3 threads", 1),
		"another version": strings.Replace(string(kept), `"version": "`, `"version": "0`, 1),
	} {
		require.NotEqual(t, string(kept), text)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		tuning, err := compiler.LoadTuning(d.Name, d.Threads)
		require.ErrorIs(t, err, lower.ErrTuning, name)
		require.ErrorContains(t, err, path, name)
		require.Nil(t, tuning, name)
		o := fixture.For(t, d)
		require.Nil(t, compiler.KnobsOf(&o).Tuning)
	}
	stale := filepath.Join(filepath.Dir(path), "0123456789ab.json")
	require.NoError(t, os.Rename(path, stale))
	_, err = compiler.LoadTuning(d.Name, d.Threads)
	require.ErrorIs(t, err, lower.ErrTuning)
	require.ErrorContains(t, err, stale)
	t.Setenv("SMELT_TUNED", "off")
	_, err = compiler.LoadTuning(d.Name, d.Threads)
	require.NoError(t, err)
}
