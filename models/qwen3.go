package models

import (
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir"
)

// qwen3 is the family of the dense Qwen3 models. It differs from Llama in that
// every head of Q and K is normalised by itself before it rotates, which keeps
// scores in bounds, and in that Heads·Head need not be Width:
//
//	x += Wo · attention(rope(norm(Wq·n)), rope(norm(Wk·n)), Wv·n)   n = RMSNorm(x)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)                            n = RMSNorm(x)
func qwen3(b *ir.Builder, c *Config) {
	table := b.Weight("token_embd.weight", c.Vocab, c.Width)
	rope, factors := c.rope(b)

	x := b.Embed(b.Input(ir.Tokens), table)
	for i := range c.Layers {
		b.Layer(i, func() {
			weight := func(name string, shape ...int) *ir.Value {
				return b.Weight(fmt.Sprintf("blk.%d.%s.weight", i, name), shape...)
			}

			// Project the normalised input to queries, keys and values, [T,heads,Head].
			n := b.RMSNorm(x, weight("attn_norm", c.Width), c.Eps)
			q := b.SplitHeads(b.Linear(n, weight("attn_q", c.Heads*c.Head, c.Width)), c.Heads)
			k := b.SplitHeads(b.Linear(n, weight("attn_k", c.KVHeads*c.Head, c.Width)), c.KVHeads)
			v := b.SplitHeads(b.Linear(n, weight("attn_v", c.KVHeads*c.Head, c.Width)), c.KVHeads)
			q = b.Rope(b.RMSNorm(q, weight("attn_q_norm", c.Head), c.Eps), rope, factors)
			k = b.Rope(b.RMSNorm(k, weight("attn_k_norm", c.Head), c.Eps), rope, factors)

			// Attend to all that the cache holds of the sequence, this step included.
			keys, values := b.CacheRead(b.CacheWrite(b.Cache(c.KVHeads, c.Head), k, v))
			keys = b.RepeatKV(keys, c.Heads/c.KVHeads)
			values = b.RepeatKV(values, c.Heads/c.KVHeads)
			headFirst := [3]int{1, 0, 2}
			scores := b.MatmulT(b.Transpose(q, headFirst), b.Transpose(keys, headFirst))
			scores = b.Mask(b.Scale(scores, 1/math.Sqrt(float64(c.Head))))
			mixed := b.Matmul(b.Softmax(scores), b.Transpose(values, headFirst))
			merged := b.MergeHeads(b.Transpose(mixed, headFirst))
			x = b.Add(x, b.Linear(merged, weight("attn_output", c.Width, c.Heads*c.Head)))

			// The feed-forward layer, SwiGLU.
			n = b.RMSNorm(x, weight("ffn_norm", c.Width), c.Eps)
			gate := b.Linear(n, weight("ffn_gate", c.FFN, c.Width))
			up := b.Linear(n, weight("ffn_up", c.FFN, c.Width))
			x = b.Add(x, b.Linear(b.Mul(b.SiLU(gate), up), weight("ffn_down", c.Width, c.FFN)))
		})
	}

	// The head runs on the rows that were asked for.
	x = b.RMSNorm(b.GatherRows(x), b.Weight("output_norm.weight", c.Width), c.Eps)
	head := table
	if !c.Tied {
		head = b.Weight("output.weight", c.Vocab, c.Width)
	}
	b.Return("logits", b.Linear(x, head))
}
