package checkpoint

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// judgeOf returns the family's judge if the folder is of one, and completes the configuration. A
// folder is one if its name says so, that of its model in a folder of snapshots, or the title of its
// README.
func judgeOf(dir string, family *models.Family, c *models.Config) (*models.Judge, error) {
	judge := family.Judge
	if judge == nil {
		return nil, nil
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if parent := filepath.Dir(path); filepath.Base(parent) == "snapshots" {
		path = filepath.Dir(parent)
	}
	readme, err := readTemplate(filepath.Join(dir, "README.md"))
	if err != nil {
		return nil, err
	}
	if !strings.Contains(strings.ToLower(filepath.Base(path)), judge.Name) && !strings.Contains(strings.ToLower(string(readme)), "# "+judge.Name) {
		return nil, nil
	}
	c.Classifier.Classes, c.Pooling = len(judge.Words), "rank"
	return judge, family.Complete(c)
}

// judgeTemplate looks templates up as template does, but for the judge's own.
func judgeTemplate(judge *models.Judge, template func(name string) (string, error)) func(name string) (string, error) {
	return func(name string) (string, error) {
		if name == rerankTemplate {
			return judge.Template, nil
		}
		return template(name)
	}
}

// judged derives a classifier from the rows of the head, or of the table that is the head, that belong
// to the judge's words.
func judged(dir string, judge *models.Judge, tied bool) rule {
	return func(tensors []Tensor, emit func(Derivation) error) error {
		head := "output.weight"
		if tied {
			head = "token_embd.weight"
		}
		for _, t := range tensors {
			if t.Name != head {
				continue
			}
			d := Derivation{Way: Made, From: []Tensor{t}, to: Tensor{Name: "cls.output.weight", DType: t.DType, Stored: t.Stored, Shape: []int{len(judge.Words), t.Shape[len(t.Shape)-1]}}}
			ids, err := wordsOf(dir, judge.Words)
			if err != nil {
				return err
			}
			size := int(t.DType.Bytes(int64(d.to.Shape[1])))
			for _, id := range ids {
				if (id+1)*size > len(t.Data) {
					return models.ConfigError("tensor %q has no row %d", t.Name, id)
				}
				d.Steps = append(d.Steps, fmt.Sprintf("row %d", id))
			}
			d.fill = func(out []byte) error {
				for i, id := range ids {
					copy(out[i*size:], t.Data[id*size:][:size])
				}
				return nil
			}
			if err := emit(d); err != nil {
				return err
			}
			return emit(Derivation{Way: Stored, From: []Tensor{t}, to: t, bytes: int64(len(t.Data))})
		}
		return nil
	}
}

// wordsOf returns the token of each word. A word of several tokens is an error.
func wordsOf(dir string, words []string) (ids []int, err error) {
	t, err := tokenizer.FromHF(dir)
	if err != nil {
		return nil, err
	}
	for _, word := range words {
		tokens := t.Encode(word, false)
		if len(tokens) != 1 {
			return nil, models.ConfigError("the word %q has %d tokens, where a reranker needs one", word, len(tokens))
		}
		ids = append(ids, int(tokens[0]))
	}
	return ids, nil
}
