package models

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models/gguf"
)

// qwen2vlFamily and qwen3vlFamily are the text models of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: what
// sees images is a file of its own, which is not read.
var (
	qwen2vlFamily = Family{
		Title: "Qwen2-VL, Qwen2.5-VL (text)",
		Name:  "qwen2vl", Define: llama,
		Fields: slices.Concat(qwen2Family.Fields, []Field{sections}),
		Given:  qwen2Family.Given,
	}
	qwen3vlFamily = Family{
		Title: "Qwen3-VL (text)",
		Name:  "qwen3vl", Define: qwen3,
		Fields: slices.Concat(qwen3Family.Fields, []Field{sections,
			// What images add to the first layers.
			{GGUF: "n_deepstack_layers", Size: func(c *Config) *int { return new(int) }, Optional: true}}),
	}
)

// sections share the pairs of a head out among three axes of an image, along each of which a
// token has a position. Those of a text are equal, and its angles what they are without.
var sections = Field{
	Read: func(d description, c *Config) {
		if d.form() == Folder { // which need not say, as texts do without
			pairs := c.Rope.Rotated / 2
			c.Sections = []int{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0}
			return
		}
		c.Sections = d.sizes(keySections)
		if lo.Sum(c.Sections) < 1 {
			d.fail(configError("%s is %v", d.fullName(keySections), c.Sections))
		}
	},
	Write: func(c *Config) (string, gguf.Value, bool) {
		list := lo.Map(c.Sections, func(n, _ int) int32 { return int32(n) })
		return keySections, gguf.Int32Array(list), true
	},
}
