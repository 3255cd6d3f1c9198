//go:build linux

package main

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
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
	Quantized bool  `json:"quantised"`       // whether products can be of bytes
	Weights   int64 `json:"weights"`         // bytes read per step: all weights except experts and the embedding's other rows
	State     int64 `json:"state,omitempty"` // bytes of recurrent states per token, read and written
	Products  int64 `json:"products"`        // operations per token in the layers' matrix products
	Last      int64 `json:"last"`            // those after the last layer's attention, once per prompt and not in Products
	Head      int64 `json:"head"`            // operations of the output head, once per prompt

	Cached    int64    `json:"cached"`    // cache bytes per token, in F16, of layers without a window
	Attention int64    `json:"attention"` // operations of these layers per token for each key that it attends to
	Windowed  windowed `json:"windowed,omitzero"`
	Experts   experts  `json:"experts,omitzero"`
}

// windowed is the same of layers with a sliding window.
type windowed struct {
	Window    int   `json:"window"` // keys that a token attends to, its own included
	Cached    int64 `json:"cached"`
	Attention int64 `json:"attention"`
}

// experts are the routed experts of all layers together.
type experts struct {
	Bytes  int64 `json:"bytes"`
	Count  int   `json:"count"`  // of a layer
	Chosen int   `json:"chosen"` // by each token
}

// workloadOf counts the work of a model from its tensors and configuration.
func workloadOf(m *checkpoint.Checkpoint) workload {
	c := &m.Config
	w := workload{Head: int64(2 * c.Vocab * c.Width), Experts: experts{Count: c.Experts.Count, Chosen: c.Experts.Chosen}}
	for i := range c.Layers {
		l := c.Layer(i)
		value := cmp.Or(c.Latent.Value, l.Head)
		cached := int64(2 * l.KVHeads * (l.Head + value))
		attention := int64(2 * l.Heads * (l.Head + value))                    // a multiply-add with K and one with V
		if l.Recurrent || c.Recurrent == nil && l.Kind == models.WholeLayer { // beside attention
			w.State += int64(2 * 4 * c.Mamba.Inner() * c.Mamba.States)
		}
		switch {
		case l.Kind == models.NetworkAlone:
		case l.Recurrent:
			w.State += int64(2 * 4 * c.Delta.Heads * c.Delta.Head * c.Delta.Head)
		case l.Window > 0:
			w.Windowed.Window = l.Window
			w.Windowed.Cached += cached
			w.Windowed.Attention += attention
		default:
			w.Cached += cached
			w.Attention += attention
		}
	}
	for _, t := range m.Tensors() {
		embedding, head, routed := t.Name == "token_embd.weight", t.Name == "output.weight", strings.Contains(t.Name, "_exps.")
		switch {
		case routed:
			w.Experts.Bytes += t.Bytes()
		case !embedding || c.Tied:
			w.Weights += t.Bytes()
		}
		if len(t.Shape) > 1 && !embedding && !head {
			operations := 2 * t.Elements()
			if routed {
				operations = operations * int64(c.Experts.Chosen) / int64(c.Experts.Count)
			}
			if behindAttention(t.Name, c.Layers-1) {
				w.Last += operations
			} else {
				w.Products += operations
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

// keysWithin is keys where a token attends to no more than a window.
func (c cell) keysWithin(window int) float64 {
	growing := min(max(window-c.Depth, 0), c.Tokens) // tokens that attend to all before them
	return cell{Tokens: growing, Depth: c.Depth}.keys() + float64(window)*float64(c.Tokens-growing)
}

// bytesPerToken returns the bytes read to generate one token, on average over the cell: the
// token's share of the weights, its state, and the cache. Sequences that generate at once read
// the experts that any of them chose, where choices are independent and all experts as likely.
func (w *workload) bytesPerToken(c cell) float64 {
	sequences := float64(max(c.Parallel, 1))
	weights := float64(w.Weights)
	if w.Experts.Count > 0 {
		unread := math.Pow(1-float64(w.Experts.Chosen)/float64(w.Experts.Count), sequences)
		weights += float64(w.Experts.Bytes) * (1 - unread)
	}
	cached := float64(w.Cached)*c.keys() + float64(w.Windowed.Cached)*c.keysWithin(w.Windowed.Window)
	return weights/sequences + float64(w.State) + cached/float64(c.Tokens)
}

// opsPerToken returns the operations per token, on average over the cell. A prompt needs logits
// of its last token only, and so the operations after the last attention only once.
func (w *workload) opsPerToken(c cell) float64 {
	heads := 1.0
	if c.Test == generating {
		heads = float64(c.Tokens)
	}
	attention := float64(w.Attention)*c.keys() + float64(w.Windowed.Attention)*c.keysWithin(w.Windowed.Window)
	return float64(w.Products) + (attention+float64(w.Last+w.Head)*heads)/float64(c.Tokens)
}
