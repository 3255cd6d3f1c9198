package models

import "slices"

// ernie45Family is the dense models of ERNIE 4.5: Llama, by another name.
var ernie45Family = Family{
	Title: "ERNIE 4.5",
	Name:  "ernie4_5", HF: "Ernie4_5ForCausalLM", Define: llama,
	Fields:  slices.Concat(decoderFields(widthByHeads), []Field{{HF: "use_bias", Only: false}}),
	Tensors: decoderTensors(nil), Interleaved: true, FolderInterleaved: true,
}
