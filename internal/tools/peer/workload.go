//go:build linux

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// cell is a test: tokens after a context, in each of a number of sequences.
type cell struct {
	Test     string `json:"test"` // "pp" or "tg"
	Tokens   int    `json:"tokens"`
	Depth    int    `json:"depth"`
	Parallel int    `json:"parallel,omitempty"` // sequences that generate at once; 0: one, in a cache of its own
}

// all returns the number of tokens of all sequences together.
func (c cell) all() int { return c.Tokens * max(c.Parallel, 1) }

const (
	prompting  = "pp"
	generating = "tg"
)

func (c cell) String() string {
	text := fmt.Sprintf("%s%d", c.Test, c.Tokens)
	if c.Parallel > 0 {
		text += fmt.Sprintf("x%d", c.Parallel)
	}
	if c.Depth > 0 {
		text += fmt.Sprintf("@%d", c.Depth)
	}
	return text
}

var cellForm = regexp.MustCompile(`^(?:(pp|tg)([1-9][0-9]{0,5})|(tg)([1-9][0-9]{0,5})x([1-9][0-9]{0,2}))(?:@([0-9]{1,6}))?$`)

// parseCell parses the output of String.
func parseCell(text string) (cell, error) {
	m := cellForm.FindStringSubmatch(text)
	if m == nil {
		return cell{}, fmt.Errorf("%q is not a cell such as pp512, tg64, tg64@4096 or tg128x16@128", text)
	}
	c := cell{Test: m[1] + m[3]}
	c.Tokens, _ = strconv.Atoi(m[2] + m[4]) // the form leaves only numbers
	c.Parallel, _ = strconv.Atoi(m[5])
	c.Depth, _ = strconv.Atoi(m[6])
	if c.Parallel > 0 && c.Depth == 0 {
		return cell{}, fmt.Errorf("%q: several sequences need a prompt each, such as %v", text, cell{c.Test, c.Tokens, 128, c.Parallel})
	}
	return c, nil
}

// workload is the minimum of bytes and operations that a model's tokens require of any engine.
type workload struct {
	Quantized bool  `json:"quantised"` // whether products can be of bytes
	Weights   int64 `json:"weights"`   // bytes read per token: all weights except the embedding's other rows
	Cached    int64 `json:"cached"`    // cache bytes per token, in F16
	Products  int64 `json:"products"`  // operations per token in the layers' matrix products
	Last      int64 `json:"last"`      // those after the last layer's attention, once per prompt and not in Products
	Head      int64 `json:"head"`      // operations of the output head, once per prompt
	Attention int64 `json:"attention"` // operations per token for each key that it attends to
}

// workloadOf counts the work of a model from its tensors and configuration.
func workloadOf(m *checkpoint.Checkpoint) workload {
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
			if behindAttention(t.Name, c.Layers-1) {
				w.Last += 2 * t.Elements()
			} else {
				w.Products += 2 * t.Elements()
			}
			w.Quantized = w.Quantized || t.DType != dtype.F16 && t.DType != dtype.F32 && t.DType != dtype.BF16
		}
	}
	return w
}

// behindAttention reports whether a weight of a layer comes after its attention.
func behindAttention(name string, layer int) bool {
	in, ok := strings.CutPrefix(name, fmt.Sprintf("blk.%d.", layer))
	return ok && (strings.HasPrefix(in, "attn_output.") || strings.HasPrefix(in, "ffn_"))
}

// keys returns the sum over a cell's tokens of the keys that each attends to, including itself.
func (c cell) keys() float64 {
	n := float64(c.Tokens)
	return n*float64(c.Depth) + n*(n+1)/2
}

// bytesPerToken returns the bytes read to generate one token, on average over the cell: the
// token's share of the weights, and the cache.
func (w *workload) bytesPerToken(c cell) float64 {
	return float64(w.Weights)/float64(max(c.Parallel, 1)) + float64(w.Cached)*c.keys()/float64(c.Tokens)
}

// opsPerToken returns the operations per token, on average over the cell. A prompt needs logits
// of its last token only, and so the operations after the last attention only once.
func (w *workload) opsPerToken(c cell) float64 {
	heads := 1.0
	if c.Test == generating {
		heads = float64(c.Tokens)
	}
	return float64(w.Products) + (float64(w.Attention)*c.keys()+float64(w.Last+w.Head)*heads)/float64(c.Tokens)
}
