package engine

import (
	"context"
	"fmt"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Embedder computes the hidden states of texts, with as many texts per step as the Plan allows.
// It keeps nothing of a text after its step. It is used by one goroutine at a time.
type Embedder struct {
	r         *Runner
	tokens    int // maximum number of tokens of a step
	sequences int
	pieces    []batch.Piece
	blocks    []int32

	// Second returns the number of the first token of the second of a text's two texts, 0 if it is
	// one; nil: all are.
	Second func(text []int32) int
}

// NewEmbedder returns an embedder for a Plan that returns [Embeddings].
func NewEmbedder(plan *plan.Plan, executable *device.Executable) (*Embedder, error) {
	e := &Embedder{}
	for i := range plan.Phases {
		bounds := &plan.Phases[i].Bounds
		e.tokens, e.sequences = max(e.tokens, int(min(bounds[sym.T], bounds[sym.R]))), max(e.sequences, int(bounds[sym.B]))
	}
	// Texts start at block boundaries, so each may leave a block almost empty.
	block := plan.Block()
	e.blocks = batch.Contiguous(1, e.tokens/block+e.sequences)
	var err error
	e.r, err = newRunner(plan, executable, Embeddings, len(e.blocks), device.Window{Keys: device.States, Blocks: e.sequences})
	return e, err
}

// Close releases the memory.
func (e *Embedder) Close() error { return e.r.Close() }

// Width returns the number of elements of a hidden state.
func (e *Embedder) Width() int { return e.r.vocab }

// Longest returns the maximum number of tokens of a text.
func (e *Embedder) Longest() int { return min(e.tokens, e.r.plan.Context) }

// Run computes the texts, [tokens] of ids each, in order, and calls use with the hidden states
// of each: of all of its tokens, [tokens, Width], or of the last one, [1, Width]. The states are
// valid during the call.
func (e *Embedder) Run(ctx context.Context, texts [][]int32, rows batch.Rows, use func(i int, states []float32) error) error {
	for first := 0; first < len(texts); {
		last, err := e.pack(texts, first, rows)
		if err != nil {
			return err
		}
		if err := e.r.Run(ctx, e.pieces...); err != nil {
			return err
		}
		states, err := e.r.Logits()
		if err != nil {
			return err
		}
		for i := first; i < last; i++ {
			n := e.Width()
			if rows == batch.All {
				n *= len(texts[i])
			}
			if err := use(i, states[:n]); err != nil {
				return err
			}
			states = states[n:]
		}
		first = last
	}
	return nil
}

// pack packs as many texts as fit into a step, starting at first, and returns the index after
// the last packed text.
func (e *Embedder) pack(texts [][]int32, first int, rows batch.Rows) (last int, err error) {
	e.pieces = e.pieces[:0]
	tokens, blocks, block := 0, 0, e.r.block
	for last = first; last < len(texts) && len(e.pieces) < e.sequences; last++ {
		n := len(texts[last])
		if n == 0 || n > e.Longest() {
			return 0, fmt.Errorf("%w: text %d has %d tokens, want 1 to %d", ErrContext, last, n, e.Longest())
		}
		if tokens += n; tokens > e.tokens {
			break
		}
		own := e.blocks[blocks:][:(n+block-1)/block]
		piece := batch.Piece{Tokens: texts[last], Blocks: own, State: batch.State{Write: int32(len(e.pieces))}, Rows: rows}
		if e.Second != nil {
			piece.Second = e.Second(texts[last])
		}
		e.pieces = append(e.pieces, piece)
		blocks += len(own)
	}
	return last, nil
}
