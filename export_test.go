package smelt

import (
	"testing"

	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/models"
)

// Shape is Open for a shape that has no name.
func Shape(c models.Config, weightType string) (*Model, error) {
	file, err := models.Synthetic(c, weightType)
	if err != nil {
		return nil, err
	}
	return fromFile(c.Name, "", file), nil
}

// LogLikelihood is for tests of its arithmetic.
var LogLikelihood = logLikelihood

// GuessEagerly makes engines of this test verify all guesses, whatever these cost.
func GuessEagerly(t *testing.T) {
	guessing.Choose = engine.Eagerly
	t.Cleanup(func() { guessing.Choose = nil })
}
