package families

import (
	"fmt"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
)

// qwen3nextFamily is the mixtures that preceded Qwen3.5's: qwen35moe whose heads of V that share one
// of Q and K are adjacent, and whose products for β and the decay are one tensor. Older GGUF files
// have the products for Q, K, V and the gate as one, too, as folders have.
var qwen3nextFamily = models.Family{
	Title: "Qwen3-Next, Qwen3-Coder-Next",
	Name:  "qwen3next", HF: "Qwen3NextForCausalLM", Define: qwen35,
	Fields: slices.Concat(mixedDelta(deltaFields), []models.Field{{Read: joinedDelta}}),
	Router: qwen35moeFamily.Router,
	Given: func(c *models.Config) {
		mixedGiven(c)
		c.Delta.Adjacent = c.Delta.Heads > 0
	},
	Layer:   qwen35Family.Layer,
	Check:   qwen35Family.Check,
	Sources: deltaSources,
	Tensors: lo.Assign(lo.OmitByKeys(besideDelta, models.DenseFFN), models.ExpertTensors("mlp", "gate_proj", "up_proj", "down_proj"), gatedShared, map[string]models.Stored{
		"blk.#.attn_qkv.weight": {Names: []string{"model.layers.#.linear_attn.in_proj_qkvz.weight"}, Order: joinedRow, Rows: func(c *models.Config) (first, n int) {
			return 0, gateRow(c)
		}},
		"blk.#.attn_gate.weight": {Names: []string{"model.layers.#.linear_attn.in_proj_qkvz.weight"}, Order: joinedRow, Rows: func(c *models.Config) (first, n int) {
			return gateRow(c), c.Delta.Heads * c.Delta.Head
		}},
		"blk.#.ssm_ba.weight":     models.As("model.layers.#.linear_attn.in_proj_ba.weight"),
		"blk.#.ssm_conv1d.weight": {Names: deltaTensors["blk.#.ssm_conv1d.weight"].Names, Depthwise: true},
		"blk.#.ssm_a":             {Names: deltaTensors["blk.#.ssm_a"].Names, Value: deltaTensors["blk.#.ssm_a"].Value},
		"blk.#.ssm_dt.bias":       models.As("model.layers.#.linear_attn.dt_bias"),
		"blk.#.ssm_norm.weight":   deltaTensors["blk.#.ssm_norm.weight"],
		"blk.#.ssm_out.weight":    models.As("model.layers.#.linear_attn.out_proj.weight"),
	}),
	Stacks:    gateUpStacks,
	Ignorable: []string{"mtp.*"},
	Shapes: []models.Shape{
		{Parameters: 79_674_391_296, Config: models.Config{Name: "qwen3-next-80b-a3b", Layers: 48, Width: 2048, Heads: 16, KVHeads: 2, Head: 256, FFN: 5120, Vocab: 151936, Context: 262144, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e7, Rotated: 64}, Taps: 4, Delta: models.Delta{Heads: 32, KeyHeads: 16, Head: 128}, Recurrent: models.AllButEvery(4, 48),
			Experts: models.Experts{Count: 512, Chosen: 10, FFN: 512, Shared: 512}}},
	},
}

// joinedDelta reads whether a GGUF file has one product for Q, K, V and the gate.
func joinedDelta(d models.Description, c *models.Config) {
	if first := slices.Index(c.Recurrent, true); first >= 0 && d.Format() == models.GGUF {
		_, c.Delta.Joined = d.Rows(fmt.Sprintf("blk.%d.ssm_in.weight", first))
	}
}

// gateRow returns where the gate's rows begin behind those of Q, K and V.
func gateRow(c *models.Config) int { return (2*c.Delta.KeyHeads + c.Delta.Heads) * c.Delta.Head }

// joinedRow returns where the one product has row i of those for Q, K, V and the gate, in this order:
// for each head of K it has a head of Q, that of K, the heads of V that share both, and their gates.
func joinedRow(c *models.Config, i int) int {
	d := &c.Delta
	share, head, e := d.Heads/d.KeyHeads, i/d.Head, i%d.Head
	group, at := head%d.KeyHeads, head/d.KeyHeads // of Q and of K
	if of := head - 2*d.KeyHeads; of >= 0 {       // of V, then of the gate
		group, at = of%d.Heads/share, 2+of/d.Heads*share+of%share
	}
	return (group*(2+2*share)+at)*d.Head + e
}

// deltaSources are the tensors with the rows of several products: beside [querySources], for each head
// of K those of its heads of V.
func deltaSources(c *models.Config) []models.Source {
	d := &c.Delta
	sources := querySources(c)
	if d.KeyHeads == 0 { // all layers have attention
		return sources
	}
	share := d.Heads / d.KeyHeads
	each := func(role string, first int) models.Made {
		return models.Made{Role: role, Rows: d.Heads, Row: func(h int) int { return h/share*2*share + first + h%share }}
	}
	sources = append(sources, models.Source{Role: "ssm_ba.weight", Shape: []int{2 * d.Heads, c.Width}, Makes: []models.Made{each("ssm_beta.weight", 0), each("ssm_alpha.weight", share)}})
	if !d.Joined {
		return sources
	}
	rows, gate := gateRow(c), d.Heads*d.Head
	return append(sources, models.Source{Role: "ssm_in.weight", Shape: []int{rows + gate, c.Width}, Makes: []models.Made{
		{Role: "attn_qkv.weight", Rows: rows, Row: func(i int) int { return joinedRow(c, i) }},
		{Role: "attn_gate.weight", Rows: gate, Row: func(i int) int { return joinedRow(c, rows+i) }},
	}})
}
