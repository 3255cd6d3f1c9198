package checkpoint

import (
	"errors"
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
	open := openGGUF
	if info.IsDir() {
		open = openHF
	}
	m, err := open(path)
	if err != nil {
		return nil, err
	}
	if err := m.Intact(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
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
