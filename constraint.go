package smelt

import (
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/internal/engine"
)

// Vocabulary is the model's tokens as constraints take them: v.JSONSchema and the like make
// one for [Generation]. It is made once.
func (l *Loaded) Vocabulary() (*constrain.Vocabulary, error) { return l.vocabulary() }

// constrained lets a sampler choose among the tokens that a constraint allows. The mask of
// the next token is made while the device computes.
type constrained struct {
	state constrain.State
	mask  []uint64
	ready chan error
	inner func(logits []float32) (int32, error)
}

func newConstrained(g *Generation) *constrained {
	c := &constrained{state: g.Constraint.Start(), mask: make([]uint64, g.Constraint.Words()), ready: make(chan error, 1), inner: g.Sampler}
	if c.inner == nil {
		c.inner = engine.NewSampler(engine.Sampling(g.Sampling)).Next
	}
	c.look()
	return c
}

func (c *constrained) look() { go func() { c.ready <- c.state.Mask(c.mask) }() }

func (c *constrained) sample(logits []float32) (int32, error) {
	if err := <-c.ready; err != nil {
		return 0, err
	}
	least, any := float32(math.Inf(-1)), false
	for i := range logits {
		if i>>6 >= len(c.mask) || c.mask[i>>6]>>(i&63)&1 == 0 {
			logits[i] = least
		} else {
			any = true
		}
	}
	if !any {
		return 0, fmt.Errorf("the text has the form that it is kept to, and the model has no token that ends it")
	}
	id, err := c.inner(logits)
	if err != nil {
		return 0, err
	}
	if ok, err := c.state.Accept(id); err != nil || !ok {
		if err == nil {
			err = fmt.Errorf("the sampler chose token %d, which the constraint does not allow", id)
		}
		return 0, err
	}
	c.look()
	return id, nil
}
