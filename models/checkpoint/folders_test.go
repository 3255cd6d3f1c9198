package checkpoint_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/quantize"
	"github.com/smelt-ml/smelt/models/safetensors"
)

// TestOtherClasses: folders of classes that are laid out otherwise than those of their family's first
// class give the results of GGUF files.
func TestOtherClasses(t *testing.T) {
	classifier := func(classes int) func(c *models.Config) {
		return func(c *models.Config) {
			c.Pooling, c.Classifier, c.Biases.Classifier = "rank", models.Classifier{Classes: classes, Dense: true}, true
		}
	}
	xlmr := map[string]any{"architectures": []string{"XLMRobertaModel"}, "pad_token_id": 1, "max_position_embeddings": 130}
	granite := map[string]any{"architectures": []string{"GraniteMoeHybridForCausalLM"}, "layer_types": []string{"attention"}, "position_embedding_type": "rope",
		"shared_intermediate_size": 64, "intermediate_size": 999, "num_local_experts": 0}
	for name, c := range map[string]struct {
		family string
		change func(c *models.Config) // nil: none
		edit   map[string]any         // of config.json
		names  []string               // of tensors, and what they are called instead
		prefix string                 // before all but classifiers
		rows   int                    // before the first position
	}{
		"Granite 4":            {family: "granite", edit: granite, names: []string{".mlp.down_proj.", ".shared_mlp.output_linear."}},
		"Granite 4, still":     {family: "granite", change: func(c *models.Config) { c.Rope = models.Rope{} }, edit: lo.Assign(granite, map[string]any{"position_embedding_type": nil, "rope_theta": 1e4}), names: []string{".mlp.down_proj.", ".shared_mlp.output_linear."}},
		"XLM-R":                {family: "bert", edit: xlmr, rows: 2},
		"XLM-R of no padding":  {family: "bert", edit: lo.Assign(xlmr, map[string]any{"pad_token_id": 0, "max_position_embeddings": 129}), rows: 1},
		"classifier of XLM-R":  {family: "bert", change: classifier(1), edit: lo.Assign(xlmr, map[string]any{"architectures": []string{"XLMRobertaForSequenceClassification"}, "id2label": map[string]string{"0": "LABEL_0"}}), prefix: "roberta.", rows: 2},
		"classifier of BERT":   {family: "bert", change: classifier(2), edit: map[string]any{"architectures": []string{"BertForSequenceClassification"}}, names: []string{"classifier.dense.", "bert.pooler.dense.", "classifier.out_proj.", "classifier."}, prefix: "bert."},
		"BERT with its pooler": {family: "bert", prefix: "bert."},
	} {
		t.Run(name, func(t *testing.T) {
			family, err := families.ByName("family", c.family)
			require.NoError(t, err)
			config := small(c.family)
			if c.change != nil {
				c.change(&config)
			}
			shape := synthetic(t, config, "f32")
			weights := randomWeights(shape)
			var tensors []safetensors.TensorWriter
			for _, s := range inFolder(shape, family, weights) {
				s.Name = strings.NewReplacer(append(slices.Clone(c.names), "@", "@")...).Replace(s.Name)
				if !strings.HasPrefix(s.Name, "classifier") && !strings.HasPrefix(s.Name, c.prefix) {
					s.Name = c.prefix + s.Name
				}
				switch {
				case strings.HasSuffix(s.Name, "position_embeddings.weight"):
					s.Shape = []int64{s.Shape[0] + int64(c.rows), s.Shape[1]}
					s.Write = writer(append(make([]float32, c.rows*config.Width), weights["position_embd.weight"]...))
				case c.family == "granite" && strings.HasSuffix(s.Name, ".mlp.gate_proj.weight"):
					s.Name, s.Shape = strings.Replace(s.Name, ".mlp.gate_proj.", ".shared_mlp.input_linear.", 1), []int64{2 * s.Shape[0], s.Shape[1]}
					s.Write = writer(slices.Concat(weights["blk.0.ffn_gate.weight"], weights["blk.0.ffn_up.weight"]))
				case c.family == "granite" && strings.HasSuffix(s.Name, ".mlp.up_proj.weight"):
					continue
				}
				tensors = append(tensors, s)
			}
			if name == "BERT with its pooler" {
				tensors = append(tensors, safetensors.TensorWriter{Name: "bert.pooler.dense.weight", DType: dtype.F32, Shape: []int64{1}, Write: writer([]float32{1})})
			}
			fromFile := open(t, inFile(shape, family, weights).write(t))
			fromFolder := open(t, replaceTensors(t, folder(t, config, weights, c.edit), tensors))
			sizes := func(m *checkpoint.Checkpoint) []any {
				c := &m.Config
				return []any{c.Classifier, c.Pooling, c.Biases, c.Context, c.FFN}
			}
			require.Equal(t, sizes(fromFile), sizes(fromFolder))
			ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
			requireSame(t, prefill(t, fromFile, ids), prefill(t, fromFolder, ids))
			require.Len(t, fromFolder.Tensors(), len(fromFile.Tensors())+lo.Ternary(name == "BERT with its pooler", 1, 0))
		})
	}
	for want, c := range map[string]struct {
		family string
		edit   map[string]any
	}{
		"mamba_d_state: missing":                {"granite", lo.Assign(granite, map[string]any{"layer_types": []string{"mamba"}})},
		"num_local_experts is 8, not 0":         {"granite", lo.Assign(granite, map[string]any{"num_local_experts": 8})},
		"scale_depth is 2, not 1.4":             {"minicpm3", map[string]any{"scale_depth": 2}},
		"qk_scale_factor is 4, not 3.87":        {"muse-glimmer", map[string]any{"qk_scale_factor": 4}},
		"layer_rope_theta is [0], where layers": {"muse-glimmer", map[string]any{"layer_rope_theta": []float64{0}}},
	} {
		config := small(c.family)
		_, err := checkpoint.Open(folder(t, config, randomWeights(synthetic(t, config, "f32")), c.edit))
		require.ErrorContains(t, err, want)
	}
	// A table of more positions than the folder says is not cut.
	c := small("bert")
	m := open(t, folder(t, c, randomWeights(synthetic(t, c, "f32")), lo.Assign(xlmr, map[string]any{"max_position_embeddings": 129})))
	_, err := m.Build(ir.Options{})
	require.ErrorContains(t, err, "position_embd.weight is [126 48], want [127 48]")
}

// TestAlpha: Hunyuan's alpha scales RoPE's base, in a folder for the context that its models have.
func TestAlpha(t *testing.T) {
	c := small("hunyuan-dense")
	shape := synthetic(t, c, "f32")
	base := models.NTKTheta(1e4, 1000, c.Head)
	m := open(t, folder(t, c, randomWeights(shape), map[string]any{"rope_scaling": map[string]any{"type": "dynamic", "alpha": 1000, "factor": 1}}))
	require.Equal(t, models.Rope{Theta: base, Rotated: c.Head, Linear: 1}, m.Config.Rope)
	require.Equal(t, 256<<10, m.Config.Context)
	f := fileOf(shape)
	for alpha, want := range map[float32]float64{0: 1e4, 1000: base} {
		f.set("hunyuan-dense.rope.scaling.alpha", gguf.Float32(alpha))
		require.InEpsilon(t, want, open(t, f.write(t)).Config.Rope.Theta, 1e-6)
	}
}

// TestMultipliers: a folder of Falcon-H1 has beside its weights what GGUF files have in them.
func TestMultipliers(t *testing.T) {
	edit := map[string]any{"embedding_multiplier": 4, "lm_head_multiplier": 0.5, "attention_in_multiplier": 2, "attention_out_multiplier": 0.25, "key_multiplier": 8, "ssm_in_multiplier": 0.5,
		"ssm_out_multiplier": 2, "mlp_multipliers": []float64{4, 0.125}, "ssm_multipliers": []float64{2, 4, 8, 0.5, 16}, "mamba_norm_before_gate": false}
	by := map[string]float32{"token_embd": 4, "output": 0.5, "attn_q": 2, "attn_k": 16, "attn_v": 2, "attn_output": 0.25, "ffn_gate": 4, "ffn_down": 0.125, "ssm_out": 2}
	family, err := families.ByName("family", "falcon-h1")
	require.NoError(t, err)
	for _, tied := range []bool{false, true} {
		c := small("falcon-h1")
		c.GateNorm = tied
		shape := synthetic(t, c, "f32")
		weights := randomWeights(shape)
		if tied {
			weights["output.weight"] = weights["token_embd.weight"]
		}
		multiplied := map[string][]float32{}
		for name, data := range weights {
			role := strings.TrimSuffix(strings.TrimPrefix(name, "blk.0."), ".weight")
			multiplied[name] = lo.Map(data, func(x float32, i int) float32 {
				if role != "ssm_in" {
					return x * lo.CoalesceOrEmpty(by[role], 1)
				}
				const inner, shared = 64, 24 // rows of z and x, of B and C
				switch row := i / c.Width; {
				case row < inner:
					return x
				case row < 2*inner:
					return x * 2
				case row < 2*inner+shared:
					return x * 4
				case row < 2*inner+2*shared:
					return x * 0.25
				}
				return x * 8
			})
		}
		tensors := slices.DeleteFunc(inFolder(shape, family, weights), func(w safetensors.TensorWriter) bool { return tied && w.Name == "lm_head.weight" })
		fromFolder := open(t, replaceTensors(t, folder(t, c, weights, lo.Assign(edit, map[string]any{"tie_word_embeddings": tied})), tensors))
		ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
		file := fileOf(shape)
		for i, w := range file.tensors {
			file.tensors[i].Write = writer(multiplied[w.Name])
		}
		requireSame(t, prefill(t, open(t, file.write(t)), ids), prefill(t, fromFolder, ids))
	}
	for want, edit := range map[string]map[string]any{
		"mamba_norm_before_gate is true":           {"mamba_rms_norm": true},
		"ssm_multipliers are [1 2], not 5 numbers": {"ssm_multipliers": []float64{1, 2}},
		"mamba_d_ssm is 65, not 64":                {"mamba_d_ssm": 65},
	} {
		c := small("falcon-h1")
		_, err := checkpoint.Open(folder(t, c, randomWeights(synthetic(t, c, "f32")), edit))
		require.ErrorContains(t, err, want)
	}
}

// TestJudges: a folder whose name, or whose README's title, is that of Qwen3's rerankers has a
// classifier of two rows of the head, and the GGUF file made of it has the same.
func TestJudges(t *testing.T) {
	const tokens = `{"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
		"model": {"type": "BPE", "vocab": {"n": 0, "o": 1, "y": 2, "e": 3, "s": 4, "no": 5, "ye": 6, "yes": 7}, "merges": ["n o", "y e", "ye s"]}}`
	for name, c := range map[string]struct {
		path, readme string
		tied         bool
		want         string // the table that is the head; "": no reranker
	}{
		"by its folder":       {path: "Qwen3-Reranker-0.6B", tied: true, want: "token_embd.weight"},
		"of a snapshot":       {path: "models--Qwen--Qwen3-Reranker-8B/snapshots/5e8d", want: "output.weight"},
		"by its README":       {path: "model", readme: "---\n---\n# Qwen3-Reranker-4B\n", want: "output.weight"},
		"of another name":     {path: "Qwen3-0.6B"},
		"in a folder of them": {path: "qwen3-rerankers/Qwen3-0.6B", readme: "# Qwen3\nbeside Qwen3-Reranker"},
	} {
		t.Run(name, func(t *testing.T) {
			config := small("qwen3")
			config.Tied = c.tied
			weights := randomWeights(synthetic(t, config, "f32"))
			dir := filepath.Join(t.TempDir(), c.path)
			require.NoError(t, os.MkdirAll(dir, 0o755))
			require.NoError(t, os.CopyFS(dir, os.DirFS(folder(t, config, weights, nil))))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(tokens), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte(c.readme), 0o600))
			m := open(t, dir)
			template, err := m.RerankTemplate()
			require.NoError(t, err)
			if c.want == "" {
				require.Empty(t, template)
				require.Zero(t, m.Config.Classifier)
				return
			}
			require.Contains(t, template, "<Query>: {query}\n<Document>: {document}<|im_end|>")
			require.Equal(t, models.Classifier{Classes: 2, Softmax: true}, m.Config.Classifier)
			require.Equal(t, "rank", m.Config.Pooling)
			head, ok := m.Tensor("cls.output.weight")
			require.True(t, ok)
			require.Equal(t, "made of "+c.want+": row 7, row 5", strings.NewReplacer(" (stored as model.embed_tokens.weight)", "", " (stored as lm_head.weight)", "").Replace(head.History()))
			row := func(i int) []float32 { return weights[c.want][i*config.Width:][:config.Width] }
			require.Equal(t, slices.Concat(row(7), row(5)), widened(t, head))

			path := filepath.Join(t.TempDir(), "model.gguf")
			var b bytes.Buffer
			_, err = quantize.Write(t.Context(), &b, m, "f32", nil)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
			again := open(t, path)
			require.Equal(t, m.Config.Classifier, again.Config.Classifier)
			same, err := again.RerankTemplate()
			require.NoError(t, err)
			require.Equal(t, template, same)
			scores := func(m *checkpoint.Checkpoint) string {
				f, err := m.Build(ir.Options{Embeddings: true})
				require.NoError(t, err)
				return f.String()
			}
			require.Equal(t, scores(again), scores(m))
			ids := []int32{3, 1, 4, 1, 5}
			requireSame(t, prefill(t, again, ids), prefill(t, m, ids))
		})
	}
}
