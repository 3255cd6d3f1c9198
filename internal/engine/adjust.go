package engine

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Adjustments change logits before a token is chosen from them. Zero fields change nothing.
// Penalties count generated tokens only, not the prompt's.
type Adjustments struct {
	Bias             map[int32]float32 // added to the logits of tokens, by id
	FrequencyPenalty float64           // subtracted from a token's logit for each time that it was generated
	PresencePenalty  float64           // subtracted once from each token that was generated
}

func (a *Adjustments) none() bool {
	return len(a.Bias) == 0 && a.FrequencyPenalty == 0 && a.PresencePenalty == 0
}

func (a *Adjustments) check() error {
	for _, p := range []float64{a.FrequencyPenalty, a.PresencePenalty} {
		if math.IsNaN(p) || math.IsInf(p, 0) {
			return fmt.Errorf("a penalty of %g: want a number", p)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(a.Bias)) {
		if by := a.Bias[id]; id < 0 || by != by || by > math.MaxFloat32 {
			return fmt.Errorf("a bias of %g for token %d: want a number, or -Inf, for a token of the vocabulary", by, id)
		}
	}
	return nil
}

// before returns a sampler of one generation that adjusts the logits before choose sees them.
func (a *Adjustments) before(choose func(logits []float32) (int32, error)) func(logits []float32) (int32, error) {
	if a.none() {
		return choose
	}
	said := map[int32]int{}
	return func(logits []float32) (int32, error) {
		for id, by := range a.Bias {
			if int(id) < len(logits) {
				logits[id] += by
			}
		}
		for id, times := range said {
			logits[id] -= float32(a.FrequencyPenalty*float64(times) + a.PresencePenalty)
		}
		id, err := choose(logits)
		if err == nil && id >= 0 && int(id) < len(logits) {
			said[id]++
		}
		return id, err
	}
}
