package smelt

import (
	"context"
	"slices"
	"testing"

	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/engine/draft"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// Shape is Open for a shape that has no name.
func Shape(c models.Config, weightType string) (*Model, error) {
	file, err := checkpoint.Synthetic(c, weightType)
	if err != nil {
		return nil, err
	}
	return fromFile(c.Name, "", file), nil
}

// JoinPair and FillPair are what Embedder.EncodePair does.
var JoinPair, FillPair = joinPair, fillPair

// GuessBy makes engines of this test verify what a function chooses.
func GuessBy(t *testing.T, choose func(decoding int, guesses []draft.Guess, most int) (taken int)) {
	guessing.Choose = choose
	t.Cleanup(func() { guessing.Choose = nil })
}

// GuessEagerly makes engines of this test verify all guesses, whatever these cost.
func GuessEagerly(t *testing.T) { GuessBy(t, engine.Eagerly) }

// Dictate continues a sequence by an answer that is given, whatever the model says: what it
// takes is what it takes a model that says so.
func (e *Engine) Dictate(ctx context.Context, prompt, answer []int32) error {
	over, size := make(chan error, 1), len(prompt)
	err := e.engine.Submit(ctx, engine.Request{
		Tokens: slices.Clone(prompt),
		Next: func(row engine.Row) (int32, bool, error) {
			n := row.Length - size
			return answer[n], n+1 < len(answer), nil
		},
		Ended: func(_ engine.Usage, err error) { over <- err },
	})
	if err != nil {
		return err
	}
	return <-over
}
