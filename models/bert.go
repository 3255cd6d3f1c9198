package models

import (
	"slices"

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
		Name:  "nomic-bert", Define: bert, Encodes: true,
		Fields: slices.Concat(encoderFields, []Field{ropes}),
		Given:  func(c *Config) { c.Both, c.Tied = true, true },
		Joined: []string{"attn_qkv"},
	}
)

// encoderFields are those of BERT and what was made of it.
var encoderFields = slices.Concat(shapeFields(widthByHeads), []Field{layerEps("layer_norm_eps", 1e-12), {Read: tokenTypes}})

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
