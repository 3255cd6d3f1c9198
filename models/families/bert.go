package families

import (
	"cmp"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/models"
)

// bertFamily is BERT and its descendants that embed texts, such as BGE, E5, GTE and MiniLM.
// nomicBertFamily has RoPE in place of position embeddings, a gate, and products without biases.
var (
	bertFamily = models.Family{
		Title: "BERT, BGE, E5, MiniLM, XLM-RoBERTa (embeddings, reranking)",
		Name:  "bert", HF: "BertModel", Alias: []string{"BertForMaskedLM", "BertForSequenceClassification", "XLMRobertaModel", "XLMRobertaForSequenceClassification"},
		Define: bert, Encodes: true,
		Fields: slices.Concat(encoderFields, []models.Field{models.Activation("gelu"), {HF: "position_embedding_type", Only: "absolute"},
			models.ClassifierField, {Read: bertFolder}, {GGUFTensor: "cls.output.bias", Flag: func(c *models.Config) *bool { return &c.Biases.Classifier }}}),
		Given: func(c *models.Config) {
			c.Rope, c.Positions = models.Rope{}, true
			c.Biases.QKV, c.Biases.Output, c.Biases.FFN = true, true, true
			c.Both, c.Tied = true, true
		},
		Layer:    withoutRope,
		Prefixes: []string{"bert.", "roberta."},
		Tensors: map[string]models.Stored{
			"token_embd.weight":              models.As("embeddings.word_embeddings.weight"),
			"position_embd.weight":           {Names: []string{"embeddings.position_embeddings.weight"}, Rows: func(c *models.Config) (int, int) { return c.FirstPosition, -1 }},
			"token_types.weight":             models.As("embeddings.token_type_embeddings.weight"),
			"token_embd_norm.weight":         models.As("embeddings.LayerNorm.weight"),
			"blk.#.attn_q.weight":            models.As("encoder.layer.#.attention.self.query.weight"),
			"blk.#.attn_k.weight":            models.As("encoder.layer.#.attention.self.key.weight"),
			"blk.#.attn_v.weight":            models.As("encoder.layer.#.attention.self.value.weight"),
			"blk.#.attn_output.weight":       models.As("encoder.layer.#.attention.output.dense.weight"),
			"blk.#.attn_output_norm.weight":  models.As("encoder.layer.#.attention.output.LayerNorm.weight"),
			"blk.#.ffn_up.weight":            models.As("encoder.layer.#.intermediate.dense.weight"),
			"blk.#.ffn_down.weight":          models.As("encoder.layer.#.output.dense.weight"),
			"blk.#.layer_output_norm.weight": models.As("encoder.layer.#.output.LayerNorm.weight"),
			"cls.weight":                     {Names: []string{"classifier.dense.weight"}, Or: new(models.As("pooler.dense.weight"))},
			"cls.output.weight":              {Names: []string{"classifier.out_proj.weight"}, Or: new(models.As("classifier.weight"))},
		},
		Ignorable: []string{"bert.pooler.*", "roberta.pooler.*", "pooler.*", "cls.*", "bert.embeddings.position_ids", "roberta.embeddings.position_ids", "embeddings.position_ids"},
		Shapes: []models.Shape{
			// The pooler, a layer behind the first token that embeddings do not use, is left out.
			{Parameters: 33_360_000 - 384*385, Config: models.Config{Name: "bge-small-en", Layers: 12, Width: 384, Heads: 12, KVHeads: 12, Head: 32, FFN: 1536, Vocab: 30522, Context: 512, Eps: 1e-12,
				TokenTypes: 2, Pooling: "cls"}},
			{Parameters: 109_482_240 - 768*769, Config: models.Config{Name: "bge-base-en", Layers: 12, Width: 768, Heads: 12, KVHeads: 12, Head: 64, FFN: 3072, Vocab: 30522, Context: 512, Eps: 1e-12,
				TokenTypes: 2, Pooling: "cls"}},
			// Two of XLM-RoBERTa's positions are never used, and left out.
			{Parameters: 567_755_777 - 2*1024, Config: models.Config{Name: "bge-reranker-v2-m3", Layers: 24, Width: 1024, Heads: 16, KVHeads: 16, Head: 64, FFN: 4096, Vocab: 250002, Context: 8192, Eps: 1e-5,
				TokenTypes: 1, Pooling: "rank", Classifier: models.Classifier{Classes: 1, Dense: true}, Biases: models.Biases{Classifier: true}}},
		},
	}
	nomicBertFamily = models.Family{
		Title: "nomic-embed-text (embeddings)",
		Name:  "nomic-bert", HF: "NomicBertModel", Define: bert, Encodes: true,
		Fields: slices.Concat(models.Renamed(encoderFields, map[string]string{"max_position_embeddings": "n_positions", "hidden_size": "n_embd", "num_hidden_layers": "n_layer",
			"intermediate_size": "n_inner", "num_attention_heads": "n_head", "layer_norm_eps": "layer_norm_epsilon"}), []models.Field{{Read: nomicRope},
			{HF: "activation_function", Only: "swiglu"}, {HF: "causal", Only: false}, {HF: "prenorm", Only: false}, {HF: "qkv_proj_bias", Only: false},
			{HF: "mlp_fc1_bias", Only: false}, {HF: "mlp_fc2_bias", Only: false}, {HF: "use_rms_norm", Only: false}, {HF: "rotary_emb_interleaved", Only: false}}),
		Given:  func(c *models.Config) { c.Both, c.Tied = true, true },
		Joined: []string{"attn_qkv"}, Prefixes: []string{"bert."},
		Tensors: lo.Assign(models.Cut("attn_qkv", models.As("encoder.layers.#.attn.Wqkv.weight")), map[string]models.Stored{
			"token_embd.weight":              models.As("embeddings.word_embeddings.weight"),
			"token_types.weight":             models.As("embeddings.token_type_embeddings.weight"),
			"token_embd_norm.weight":         models.As("emb_ln.weight"),
			"blk.#.attn_output.weight":       models.As("encoder.layers.#.attn.out_proj.weight"),
			"blk.#.attn_output_norm.weight":  models.As("encoder.layers.#.norm1.weight"),
			"blk.#.ffn_up.weight":            models.As("encoder.layers.#.mlp.fc11.weight"),
			"blk.#.ffn_gate.weight":          models.As("encoder.layers.#.mlp.fc12.weight"),
			"blk.#.ffn_down.weight":          models.As("encoder.layers.#.mlp.fc2.weight"),
			"blk.#.layer_output_norm.weight": models.As("encoder.layers.#.norm2.weight"),
		}),
		Shapes: []models.Shape{
			{Parameters: 136_731_648, Config: models.Config{Name: "nomic-embed-text", Layers: 12, Width: 768, Heads: 12, KVHeads: 12, Head: 64, FFN: 3072, Vocab: 30528, Context: 2048, Eps: 1e-12,
				Rope: models.Rope{Theta: 1000}, TokenTypes: 2, Pooling: "mean"}},
		},
	}
)

// encoderFields are the fields of BERT and its descendants.
var encoderFields = slices.Concat(models.ByWidth, []models.Field{models.LayerEps("layer_norm_eps", 1e-12), {Read: tokenTypes}})

// nomicRope reads RoPE by the names in these folders. Texts are bounded by the trained context,
// since the models' own code changes the base beyond it.
func nomicRope(d models.Description, c *models.Config) {
	d.ReadRope(c)
	if d.Format() == models.GGUF {
		return
	}
	c.Rope.Theta = d.Number("rotary_emb_base", 10000)
	if part := d.Number("rotary_emb_fraction", 1); part != 1 {
		d.Fail(models.ConfigError("rotary_emb_fraction is %g, want 1", part))
	}
	c.Context = min(c.Context, d.Size("max_trained_positions", c.Context))
}

// bertFolder reads what a folder's class says of it. XLM-RoBERTa's positions begin behind that of
// the padding. A classifier has a dense layer, which BERT calls its pooler, and two classes unless it
// names them.
func bertFolder(d models.Description, c *models.Config) {
	if d.Format() == models.GGUF {
		return
	}
	class := lo.FirstOr(d.Texts("architectures"), "")
	if strings.HasPrefix(class, "XLMRoberta") {
		const padding = 1
		if c.FirstPosition = padding + 1; d.Has("pad_token_id") {
			c.FirstPosition = d.Size("pad_token_id", models.Unset) + 1
		}
		c.Context -= c.FirstPosition
	}
	if strings.HasSuffix(class, "ForSequenceClassification") {
		c.Pooling, c.Biases.Classifier = "rank", true
		c.Classifier = models.Classifier{Classes: cmp.Or(len(d.Names("id2label")), 2), Dense: true}
	}
}

// tokenTypes reads the number of token types (the halves of a pair of texts), each of which has an
// embedding.
func tokenTypes(d models.Description, c *models.Config) {
	if d.Format() == models.GGUF {
		c.TokenTypes, _ = d.Rows("token_types.weight")
		return
	}
	c.TokenTypes = d.Size("type_vocab_size", 2)
}

// bert is
//
//	x = norm(token + type + position)
//	x = norm(x + Wo · attention(Wq·x, Wk·x, Wv·x))
//	x = norm(x + Wdown · gelu(Wup·x))
//
// with LayerNorm, biases in all products, and bidirectional attention; all tokens are of the first
// type. Models without position embeddings use RoPE and SwiGLU.
func bert(b *ir.Builder, c *models.Config) {
	m := models.NewModel(b, c, models.LayerNorm)
	layers := m.Layers()
	x := b.Embed(b.Input(sym.Tokens), m.Table)
	if c.TokenTypes > 0 {
		x = b.Add(x, b.Embed(b.Input(sym.TokenTypes), b.Weight("token_types.weight", c.TokenTypes, c.Width)))
	}
	if c.Positions {
		x = b.Add(x, b.Embed(b.Input(sym.Positions), b.Weight("position_embd.weight", c.Context, c.Width)))
	}
	x = m.Norm(b, "token_embd_norm", x, c.Eps)
	for i, l := range layers {
		b.Layer(i, func() {
			x = l.Norm("attn_output_norm", b.Add(x, models.Attention(l, x, models.AsIs)))
			var y *ir.Value
			if c.Positions {
				y = models.Ungated(l, x, ir.GELU)
			} else {
				y = models.Gated(l, x, ir.SiLU)
			}
			x = l.Norm("layer_output_norm", b.Add(x, y))
		})
	}
	b.Return(models.Embeddings, models.Classified(b, c, b.GatherRows(x)))
}
