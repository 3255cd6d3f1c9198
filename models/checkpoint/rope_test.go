package checkpoint_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/gguf"
)

// rotation returns what a graph for sequences of that many tokens takes for its heads: the
// attribute, and the tensor or the constant that the factors come from, or "".
func rotation(t *testing.T, m *checkpoint.Checkpoint, context int) (ir.RopeAttr, string) {
	f, err := m.Build(ir.Options{Block: 16, Context: context})
	require.NoError(t, err)
	for _, v := range f.Values {
		if v.Op != ir.OpRope {
			continue
		}
		if len(v.Args) < 3 {
			return v.Attr.(ir.RopeAttr), ""
		}
		return v.Attr.(ir.RopeAttr), v.Args[2].LongString()
	}
	t.Fatal("nothing rotates")
	return ir.RopeAttr{}, ""
}

// TestLongRope: how long sequences may become says which factors a graph takes, of a file with
// both as tensors and of a folder.
func TestLongRope(t *testing.T) {
	c := small("phi3")
	plain := c
	c.Rope.Long = long(4)
	shape := synthetic(t, c, "f32")
	file := open(t, fileOf(shape).write(t))
	for context, want := range map[int]string{1: "rope_factors_short", 64: "rope_factors_short", 65: "rope_factors_long", 1 << 20: "rope_factors_long"} {
		attr, from := rotation(t, file, context)
		require.Contains(t, from, want)
		require.InDelta(t, 1.25, attr.Magnitude, 0)
	}

	loaded := open(t, folder(t, plain, randomWeights(synthetic(t, plain, "f32")), map[string]any{"original_max_position_embeddings": 64,
		"rope_scaling": map[string]any{"type": "su", "short_factor": long(4).Short, "long_factor": long(4).Long}}))
	attr, near := rotation(t, loaded, 64)
	_, far := rotation(t, loaded, 65)
	require.NotEqual(t, near, far)
	require.InDelta(t, math.Sqrt(1+math.Log(2)/math.Log(64)), attr.Magnitude, 1e-12)
}

// TestRopeMetadata: a file says each thing once, and what was written is read again, a LongRoPE
// whose positions are divided too included.
func TestRopeMetadata(t *testing.T) {
	for name, change := range map[string]func(r *models.Rope){
		"none":   func(*models.Rope) {},
		"linear": func(r *models.Rope) { r.Linear = 4 },
		"yarn": func(r *models.Rope) {
			r.YaRN = &models.YaRNRope{Factor: 4, FastBeta: 32, SlowBeta: 1, OldContext: 64, Magnitude: 1.5}
		},
		"longrope":            func(r *models.Rope) { r.Long = long(4) },
		"longrope and linear": func(r *models.Rope) { r.Long, r.Linear = long(4), 2 },
	} {
		t.Run(name, func(t *testing.T) {
			c := small("llama")
			change(&c.Rope)
			shape := synthetic(t, c, "f32")
			keys := lo.Map(checkpoint.Metadata(&shape.Config), func(kv gguf.KV, _ int) string { return kv.Key })
			require.Empty(t, lo.FindDuplicates(keys))
			got, want := open(t, fileOf(shape).write(t)).Config.Rope, shape.Config.Rope
			if want.Long != nil { // whose factors are tensors
				require.Equal(t, want.Long.OldContext, got.Long.OldContext)
				got.Long, want.Long = nil, nil
			}
			if want.YaRN != nil {
				require.InEpsilon(t, want.YaRN.Magnitude, got.YaRN.Magnitude, 1e-6)
				got.YaRN.Magnitude = want.YaRN.Magnitude
			}
			require.Equal(t, want, got)
		})
	}
}

// TestDynamicRope: the base is that of the longest sequence, and the file's within the context
// that the model was trained for.
func TestDynamicRope(t *testing.T) {
	c := small("qwen3")
	m := open(t, folder(t, c, randomWeights(synthetic(t, c, "f32")), map[string]any{
		"rope_scaling": map[string]any{"rope_type": "dynamic", "factor": 2}}))
	for context, stretch := range map[int]float64{16: 1, 128: 1, 256: 3, 512: 7} { // 2·context/128 − 1
		attr, _ := rotation(t, m, context)
		require.InEpsilon(t, models.NTKTheta(1e4, stretch, 8), attr.Theta, 1e-12)
		require.Equal(t, 1e4, models.NTKTheta(1e4, 1, 8))
	}
}

// TestChangeRope overrides what files say, that of a scaling in tensors included.
func TestChangeRope(t *testing.T) {
	scaling := func(text string) models.RopeScaling {
		s, err := models.ParseRopeScaling(text)
		require.NoError(t, err)
		return s
	}
	original := map[string]*checkpoint.Checkpoint{}
	for name, edit := range map[string]func(c *models.Config){
		"plain": func(*models.Config) {}, "linear": func(c *models.Config) { c.Rope.Linear = 3 },
		"llama3": func(c *models.Config) { c.Rope.Llama3 = stretched() }, "long": func(c *models.Config) { c.Rope.Long = long(4) },
	} {
		c := small("llama")
		edit(&c)
		original[name] = synthetic(t, c, "f32")
	}
	for name, m := range original {
		t.Run(name, func(t *testing.T) {
			f := open(t, fileOf(m).write(t))
			before, from := rotation(t, f, 128)
			require.NoError(t, f.ChangeRope(500, models.RopeScaling{}))
			attr, still := rotation(t, f, 128)
			require.Equal(t, from, still)
			before.Theta = 500
			require.Equal(t, before, attr)

			require.NoError(t, f.ChangeRope(0, scaling("linear:4")))
			attr, from = rotation(t, f, 128)
			require.Equal(t, ir.RopeAttr{Interleaved: true, Rotated: 8, Theta: 500, FreqScale: 0.25, Magnitude: 1}, attr)
			require.Empty(t, from)
			require.NoError(t, f.ChangeRope(0, scaling("none")))
			attr, from = rotation(t, f, 128)
			require.Equal(t, ir.RopeAttr{Interleaved: true, Rotated: 8, Theta: 500, FreqScale: 1, Magnitude: 1}, attr)
			require.Empty(t, from)
		})
	}

	// The same as a file that says it.
	c := small("llama")
	c.Rope.YaRN = &models.YaRNRope{Factor: 4, FastBeta: 32, SlowBeta: 1, OldContext: 128}
	want, factors := rotation(t, open(t, fileOf(synthetic(t, c, "f32")).write(t)), 128)
	f := open(t, fileOf(original["plain"]).write(t))
	require.NoError(t, f.ChangeRope(0, scaling("yarn:4")))
	attr, from := rotation(t, f, 128)
	require.Equal(t, want, attr)
	require.Equal(t, factors, from)

	for text, want := range map[string]string{"longrope:4": `no RoPE scaling is called "longrope"; known are dynamic, linear, none, yarn`, "yarn": "want none, or a kind and a factor",
		"yarn:0.5": "want none, or", "yarn:x": "want none, or", "linear:NaN": "want none, or", "linear:Inf": "want none, or", "none:2": "want none, or", "": "no RoPE scaling is called"} {
		_, err := models.ParseRopeScaling(text)
		require.ErrorContains(t, err, want, text)
	}
	require.ErrorContains(t, f.ChangeRope(-1, models.RopeScaling{}), "the base of RoPE's frequencies is -1")
	require.ErrorContains(t, open(t, fileOf(synthetic(t, small("mpt"), "f32")).write(t)).ChangeRope(500, models.RopeScaling{}),
		"a model of the family mpt does not rotate its heads")
}

// TestTemperature: within the context of the first training queries stay as they are.
func TestTemperature(t *testing.T) {
	c := small("mistral3")
	c.Temperature = 0.1
	c.Rope.YaRN = &models.YaRNRope{Factor: 16, FastBeta: 32, SlowBeta: 1, OldContext: 64, Magnitude: 1}
	m := open(t, fileOf(synthetic(t, c, "f32")).write(t))
	require.InDelta(t, 0.1, m.Config.Temperature, 1e-9)
	for context, grows := range map[int]bool{64: false, 65: true} {
		f, err := m.Build(ir.Options{Block: 16, Context: context})
		require.NoError(t, err)
		require.Equal(t, grows, strings.Contains(f.String(), `input {name="positions/64"}`), context)
	}
}

// TestTextModel reads the text model out of the folder of one that sees images, too.
func TestTextModel(t *testing.T) {
	c := small("mistral3")
	weights := randomWeights(synthetic(t, c, "f32"))
	want := folder(t, c, weights, map[string]any{"rope_parameters": map[string]any{"rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 64,
		"mscale": 1, "mscale_all_dim": 1, "rope_theta": 500, "llama_4_scaling_beta": 0.1}})
	text, err := os.ReadFile(filepath.Join(want, "config.json"))
	require.NoError(t, err)
	nested, err := json.Marshal(map[string]any{"architectures": []string{"Mistral3ForConditionalGeneration"}, "model_type": "mistral3",
		"hidden_size": 7, "text_config": json.RawMessage(text)})
	require.NoError(t, err)
	got := t.TempDir()
	require.NoError(t, os.CopyFS(got, os.DirFS(want)))
	require.NoError(t, os.WriteFile(filepath.Join(got, "config.json"), nested, 0o644))
	a, b := open(t, want), open(t, got)
	require.Equal(t, a.Config, b.Config)
	require.InDelta(t, 0.1, a.Config.Temperature, 0)
	require.InDelta(t, 1, a.Config.Rope.YaRN.Magnitude, 0)
	require.Equal(t, prefill(t, a, []int32{1, 2, 3}), prefill(t, b, []int32{1, 2, 3}))
}
