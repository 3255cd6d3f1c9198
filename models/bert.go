package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// bertFamily is BERT and what was made of it to embed texts, such as BGE, E5, GTE and MiniLM;
// nomicBertFamily has heads that rotate in place of positions with embeddings, a gate, and
// products without biases.
var (
	bertFamily = Family{
		Title: "BERT, BGE, E5, MiniLM (embeddings)",
		Name:  "bert", HF: "BertModel", Alias: []string{"BertForMaskedLM"}, Define: bert, Encodes: true,
		Fields: slices.Concat(encoderFields, []Field{activation("gelu"), {HF: "position_embedding_type", Only: "absolute"}}),
		Given: func(c *Config) {
			c.Rope, c.Positions, c.Biases = Rope{}, true, Biases{QKV: true, Output: true, FFN: true}
			c.Both, c.Tied = true, true
		},
		Layer:  withoutRope,
		Prefix: "bert.",
		Tensors: map[string]Stored{
			"token_embd.weight":              as("embeddings.word_embeddings.weight"),
			"position_embd.weight":           as("embeddings.position_embeddings.weight"),
			"token_types.weight":             as("embeddings.token_type_embeddings.weight"),
			"token_embd_norm.weight":         as("embeddings.LayerNorm.weight"),
			"blk.#.attn_q.weight":            as("encoder.layer.#.attention.self.query.weight"),
			"blk.#.attn_k.weight":            as("encoder.layer.#.attention.self.key.weight"),
			"blk.#.attn_v.weight":            as("encoder.layer.#.attention.self.value.weight"),
			"blk.#.attn_output.weight":       as("encoder.layer.#.attention.output.dense.weight"),
			"blk.#.attn_output_norm.weight":  as("encoder.layer.#.attention.output.LayerNorm.weight"),
			"blk.#.ffn_up.weight":            as("encoder.layer.#.intermediate.dense.weight"),
			"blk.#.ffn_down.weight":          as("encoder.layer.#.output.dense.weight"),
			"blk.#.layer_output_norm.weight": as("encoder.layer.#.output.LayerNorm.weight"),
		},
		Ignorable: []string{"bert.pooler.*", "pooler.*", "cls.*", "bert.embeddings.position_ids", "embeddings.position_ids"},
	}
	nomicBertFamily = Family{
		Title: "nomic-embed-text (embeddings)",
		Name:  "nomic-bert", HF: "NomicBertModel", Define: bert, Encodes: true,
		Fields: slices.Concat(renamed(encoderFields, map[string]string{"max_position_embeddings": "n_positions", "hidden_size": "n_embd", "num_hidden_layers": "n_layer",
			"intermediate_size": "n_inner", "num_attention_heads": "n_head", "layer_norm_eps": "layer_norm_epsilon"}), []Field{{Read: nomicRope},
			{HF: "activation_function", Only: "swiglu"}, {HF: "causal", Only: false}, {HF: "prenorm", Only: false}, {HF: "qkv_proj_bias", Only: false},
			{HF: "mlp_fc1_bias", Only: false}, {HF: "mlp_fc2_bias", Only: false}, {HF: "use_rms_norm", Only: false}, {HF: "rotary_emb_interleaved", Only: false}}),
		Given:  func(c *Config) { c.Both, c.Tied = true, true },
		Joined: []string{"attn_qkv"}, Prefix: "bert.",
		Tensors: lo.Assign(cut("attn_qkv", as("encoder.layers.#.attn.Wqkv.weight")), map[string]Stored{
			"token_embd.weight":              as("embeddings.word_embeddings.weight"),
			"token_types.weight":             as("embeddings.token_type_embeddings.weight"),
			"token_embd_norm.weight":         as("emb_ln.weight"),
			"blk.#.attn_output.weight":       as("encoder.layers.#.attn.out_proj.weight"),
			"blk.#.attn_output_norm.weight":  as("encoder.layers.#.norm1.weight"),
			"blk.#.ffn_up.weight":            as("encoder.layers.#.mlp.fc11.weight"),
			"blk.#.ffn_gate.weight":          as("encoder.layers.#.mlp.fc12.weight"),
			"blk.#.ffn_down.weight":          as("encoder.layers.#.mlp.fc2.weight"),
			"blk.#.layer_output_norm.weight": as("encoder.layers.#.norm2.weight"),
		}),
	}
)

// encoderFields are those of BERT and what was made of it.
var encoderFields = slices.Concat(shapeFields(widthByHeads), []Field{layerEps("layer_norm_eps", 1e-12), {Read: tokenTypes}})

// nomicRope reads RoPE as these folders call it. Texts are no longer than those of the training:
// beyond, the models' own code changes the base.
func nomicRope(d description, c *Config) {
	d.rope(c)
	if d.form() == GGUF {
		return
	}
	c.Rope.Theta = d.number("rotary_emb_base", 10000)
	if part := d.number("rotary_emb_fraction", 1); part != 1 {
		d.fail(configError("rotary_emb_fraction is %g", part))
	}
	c.Context = min(c.Context, d.size("max_trained_positions", c.Context))
}

const keyTokenTypes = "tokenizer.ggml.token_type_count" // is in files beside their tensor

// tokenTypes reads how many types of tokens have an embedding: parts of a pair of texts.
func tokenTypes(d description, c *Config) {
	if k, ok := d.(*keys); ok {
		if t, ok := k.file.Tensor("token_types.weight"); ok && len(t.Shape) == 2 {
			c.TokenTypes = int(min(t.Shape[0], maxExtent))
		}
		return
	}
	c.TokenTypes = d.size("type_vocab_size", 2)
}

// bert is
//
//	x = norm(token + type + position)
//	x = norm(x + Wo · attention(Wq·x, Wk·x, Wv·x))
//	x = norm(x + Wdown · gelu(Wup·x))
//
// with LayerNorm, biases in all products, and attention both ways; all tokens are of the first
// type. Heads rotate where positions have no embedding, and the feed-forward layer is SwiGLU
// then.
func bert(b *ir.Builder, c *Config) {
	m := newModel(b, c, layerNorm)
	layers := m.layers()
	x := b.Embed(b.Input(ir.Tokens), m.table)
	if c.TokenTypes > 0 {
		x = b.Add(x, b.Embed(b.Input(ir.TokenTypes), b.Weight("token_types.weight", c.TokenTypes, c.Width)))
	}
	if c.Positions {
		x = b.Add(x, b.Embed(b.Input(ir.Positions), b.Weight("position_embd.weight", c.Context, c.Width)))
	}
	x = m.normalize(b, "token_embd_norm", x, c.Eps)
	for i, l := range layers {
		b.Layer(i, func() {
			x = l.norm("attn_output_norm", b.Add(x, attention(l, x, asItIs)))
			var y *ir.Value
			if c.Positions {
				y = ungated(l, x, ir.GELU)
			} else {
				y = gated(l, x, ir.SiLU)
			}
			x = l.norm("layer_output_norm", b.Add(x, y))
		})
	}
	b.Return(Embeddings, b.GatherRows(x))
}
