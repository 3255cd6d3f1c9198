package checkpoint

import (
	"os"

	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Open opens a GGUF file, or a Hugging Face folder with config.json and *.safetensors. Weights are
// mapped, not read: a tensor's Data is a view of a read-only mapping, unless it has a [Derivation]
// that copies.
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

// OpenTokenizer returns the tokenizer of a GGUF file or a Hugging Face folder. Neither needs
// weights or a known family.
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
