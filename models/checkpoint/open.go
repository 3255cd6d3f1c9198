package checkpoint

import (
	"os"

	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Open opens a GGUF file, or a Hugging Face folder with config.json and
// *.safetensors. Weights are mapped, not read: the Data of all tensors are views of
// read-only mappings, but for matrices that MLX packed, which become blocks in memory.
func Open(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openHF(path)
	}
	return openGGUF(path)
}

// OpenTokenizer makes the tokenizer of a GGUF file or a Hugging Face folder,
// which need hold nothing else: the model's family may be unknown.
func OpenTokenizer(path string) (*tokenizer.Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return tokenizer.FromHF(path)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // metadata outlive the mapping
	return tokenizer.FromGGUF(f)
}
