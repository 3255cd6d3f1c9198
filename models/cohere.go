package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// commandRFamily is Command-R, cohere2Family Command-R7B and Command A, in which three
// layers of four see a window and only these rotate.
var (
	commandRFamily = Family{
		Title: "Command-R, Command-R+, Aya 23",
		Name:  "command-r", HF: "CohereForCausalLM", Define: cohere,
		Fields: slices.Concat(cohereFields(true), []Field{headNorms("use_qk_norm")}),
		Tensors: lo.Assign(cohereTensors(), map[string]Stored{
			"blk.#.attn_q_norm.weight": as("model.layers.#.self_attn.q_norm.weight"),
			"blk.#.attn_k_norm.weight": as("model.layers.#.self_attn.k_norm.weight"),
		}), Interleaved: true, FolderInterleaved: true,
	}
	cohere2Family = Family{
		Title: "Command-R7B, Command A",
		Name:  "cohere2", HF: "Cohere2ForCausalLM", Define: cohere,
		Fields: slices.Concat(cohereFields(false), []Field{window, windowed(4)}),
		Layer: func(c *Config, i int, l *Layer) {
			if c.seesWindow(i) {
				l.Window = c.Window
			} else {
				l.Rope = nil
			}
		},
		Tensors: cohereTensors(), Interleaved: true, FolderInterleaved: true,
	}
)

func cohereFields(optional bool) []Field {
	return slices.Concat(shapeFields(widthByHeads), []Field{layerEps("layer_norm_eps", 1e-5), ropes, tied(true), activation("silu"),
		{GGUF: "logit_scale", HF: "logit_scale", Number: func(c *Config) *float64 { return &c.LogitScale }, Optional: optional}}, biased)
}

func cohereTensors() map[string]Stored { return decoderTensors(nil, "blk.#.ffn_norm.weight") }

// cohere is x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n) + Wdown · (silu(Wgate·n) ∘ Wup·n)
// with n = LayerNorm(x), which has a gain and no shift.
func cohere(b *ir.Builder, c *Config) {
	decode(b, c, gainNorm, func(l *layer, x *ir.Value) *ir.Value {
		n := l.norm("attn_norm", x)
		return b.Add(b.Add(x, attention(l, n, l.normedHeads())), gated(l, n, ir.SiLU))
	})
}
