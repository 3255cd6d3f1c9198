package families

import (
	"slices"

	"github.com/smelt-ml/smelt/models"
)

// ernie45Family is the dense models of ERNIE 4.5, which equal Llama.
var ernie45Family = models.Family{
	Title: "ERNIE 4.5",
	Name:  "ernie4_5", HF: "Ernie4_5ForCausalLM", Define: llama,
	Fields:  slices.Concat(models.DecoderFields(models.WidthByHeads), []models.Field{{HF: "use_bias", Only: false}}),
	Tensors: models.DecoderTensors(nil), GGUFInterleaved: true, FolderInterleaved: true,
	Shapes: []models.Shape{
		{Parameters: 360_748_032, Config: models.Config{Name: "ernie4.5-0.3b", Layers: 18, Width: 1024, Heads: 16, KVHeads: 2, Head: 128, FFN: 3072, Vocab: 103424, Context: 131072, Eps: 1e-5,
			Rope: models.Rope{Theta: 5e5}, Tied: true}},
	},
}
