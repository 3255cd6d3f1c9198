package models

import "slices"

// qwen2Family is Qwen2 and Qwen2.5: Llama with biases on Q, K and V.
var qwen2Family = Family{
	Title: "Qwen2, Qwen2.5",
	Name:  "qwen2", HF: "Qwen2ForCausalLM", Define: llama,
	Fields: slices.Concat(shapeFields(widthByHeads), []Field{rmsEps, ropes, tied(false), activation("silu"), noWindow, noExperts,
		{Read: refuseWindow}}),
	Given:   func(c *Config) { c.Biases.QKV = true },
	Tensors: decoderTensors(nil),
}
