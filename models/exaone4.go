package models

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models/gguf"
)

// exaone4Family is EXAONE 4.0. In its large model, which is known by its 64 layers, three
// layers of four see a window, and only these rotate.
var exaone4Family = Family{
	Title: "EXAONE 4.0",
	Name:  "exaone4", HF: "Exaone4ForCausalLM", Define: exaone4,
	Fields: slices.Concat(shapeFields(widthByHeads), []Field{rmsEps, ropes, tied(false), activation("silu"), {Read: exaoneWindow},
		{Write: func(c *Config) (string, gguf.Value, bool) {
			return "attention.sliding_window", gguf.Uint32(uint32(c.Window)), c.Window != 0
		}}, windowed(4)}),
	Layer: func(c *Config, i int, l *Layer) {
		switch {
		case c.seesWindow(i):
			l.Window = c.Window
		case c.Windowed != nil:
			l.Rope = nil
		}
	},
	Tensors: afterTensors(),
}

// exaoneWindow reads the window, which GGUF files of the small models name and do not mean.
func exaoneWindow(d description, c *Config) {
	if d.form() == Folder || c.Layers == 64 {
		window.read(d, c)
	}
}

// exaone4 is olmo2 with heads of Q and K that are normalised one by one.
func exaone4(b *ir.Builder, c *Config) {
	decode(b, c, rmsNorm, func(l *layer, x *ir.Value) *ir.Value { return normedAfter(l, x, l.normHeads) })
}
