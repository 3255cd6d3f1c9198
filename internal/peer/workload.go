//go:build linux

package main

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// cell is a test: so many tokens after so many others.
type cell struct {
	Test   string `json:"test"` // "pp" or "tg"
	Tokens int    `json:"tokens"`
	Depth  int    `json:"depth"`
}

const (
	prompting  = "pp"
	generating = "tg"
)

func (c cell) String() string {
	if c.Depth == 0 {
		return fmt.Sprintf("%s%d", c.Test, c.Tokens)
	}
	return fmt.Sprintf("%s%d@%d", c.Test, c.Tokens, c.Depth)
}

var cellForm = regexp.MustCompile(`^(pp|tg)([1-9][0-9]{0,5})(?:@([0-9]{1,6}))?$`)

// parseCell reads what String writes.
func parseCell(text string) (cell, error) {
	m := cellForm.FindStringSubmatch(text)
	if m == nil {
		return cell{}, fmt.Errorf("%q is no cell: want pp512, tg64, tg64@4096 or the like", text)
	}
	c := cell{Test: m[1]}
	c.Tokens, _ = strconv.Atoi(m[2]) // the form leaves only numbers
	c.Depth, _ = strconv.Atoi(m[3])
	return c, nil
}

// workload is what the tokens of a model ask of any engine: the least bytes and
// operations, whatever the engine makes of them.
type workload struct {
	Quantized bool  `json:"quantised"` // products can be of bytes
	Weights   int64 `json:"weights"`   // bytes that a token reads: all but the embedding's other rows
	Cached    int64 `json:"cached"`    // bytes of a token in the cache, in F16
	Products  int64 `json:"products"`  // operations of a token in the layers' matrix products
	Head      int64 `json:"head"`      // operations of the output head, once a prompt
	Attention int64 `json:"attention"` // operations of a token for each key that it sees
}

// workloadOf counts from a model's tensors and configuration.
func workloadOf(m *models.Checkpoint) workload {
	c := &m.Config
	w := workload{
		Cached:    int64(2 * c.Layers * c.KVHeads * c.Head * 2),
		Head:      int64(2 * c.Vocab * c.Width),
		Attention: int64(4 * c.Layers * c.Heads * c.Head), // a multiply-add with K and one with V
	}
	for _, t := range m.Tensors() {
		embedding, head := t.Name == "token_embd.weight", t.Name == "output.weight"
		if !embedding || c.Tied {
			w.Weights += t.Bytes()
		}
		if len(t.Shape) > 1 && !embedding && !head {
			w.Products += 2 * t.Elements()
			w.Quantized = w.Quantized || t.DType != ir.F16 && t.DType != ir.F32 && t.DType != ir.BF16
		}
	}
	return w
}

// keys adds up the keys that the tokens of a cell see, each itself included.
func (c cell) keys() float64 {
	n := float64(c.Tokens)
	return n*float64(c.Depth) + n*(n+1)/2
}

// bytesPerToken is what generating one token reads, on average over the cell: weights
// and cache.
func (w *workload) bytesPerToken(c cell) float64 {
	return float64(w.Weights) + float64(w.Cached)*c.keys()/float64(c.Tokens)
}

// opsPerToken is what a token of a prompt computes, on average over the cell.
func (w *workload) opsPerToken(c cell) float64 {
	return float64(w.Products) + (float64(w.Attention)*c.keys()+float64(w.Head))/float64(c.Tokens)
}
