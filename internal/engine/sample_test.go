package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func randomLogits(rng *rand.Rand, n int) []float32 {
	l := make([]float32, n)
	for i := range l {
		l[i] = float32(rng.NormFloat64() * 4)
	}
	return l
}

func TestTopKKeepsTheBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		l := randomLogits(rng, 1+rng.IntN(500))
		k := 1 + rng.IntN(60)
		s := NewSampler(Sampling{Temperature: 1, TopK: k})
		want := slices.Clone(l)
		slices.SortFunc(want, func(a, b float32) int { return int(math.Copysign(1, float64(b-a))) })
		var got []float32
		for _, c := range s.rank(l, nil) {
			got = append(got, c.logit)
		}
		if k < len(l) {
			require.Equal(t, want[:k], got)
		} else {
			require.ElementsMatch(t, want, got)
		}
	}
}

func TestSampling(t *testing.T) {
	logits := []float32{0, 3, 2.9, 1, float32(math.Inf(-1))}
	allowed := func(s Sampling) map[int32]bool {
		seen := map[int32]bool{}
		for seed := range uint64(300) {
			s.Seed = seed
			id, err := NewSampler(s).Next(logits)
			require.NoError(t, err)
			seen[id] = true
		}
		return seen
	}
	for _, tt := range []struct {
		name string
		s    Sampling
		want map[int32]bool
	}{
		{"greedy", Sampling{}, map[int32]bool{1: true}},
		{"top-k 1", Sampling{Temperature: 2, TopK: 1}, map[int32]bool{1: true}},
		{"top-k 2", Sampling{Temperature: 2, TopK: 2}, map[int32]bool{1: true, 2: true}},
		{"top-p", Sampling{Temperature: 2, TopP: 0.6}, map[int32]bool{1: true, 2: true}},
		{"min-p", Sampling{Temperature: 2, MinP: 0.5}, map[int32]bool{1: true, 2: true}},
		{"all", Sampling{Temperature: 5}, map[int32]bool{0: true, 1: true, 2: true, 3: true}},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, allowed(tt.s)) })
	}
}

func TestSameSeed(t *testing.T) {
	l := randomLogits(rand.New(rand.NewPCG(3, 4)), 1000)
	draw := func() (ids []int32) {
		s := NewSampler(Sampling{Temperature: 1, TopK: 50, TopP: 0.9, MinP: 0.01, Seed: 7})
		for range 50 {
			id, err := s.Next(l)
			require.NoError(t, err)
			ids = append(ids, id)
		}
		return ids
	}
	require.Equal(t, draw(), draw())
}

func TestFrequencies(t *testing.T) {
	logits := []float32{0, float32(math.Log(3))} // 1 : 3
	s := NewSampler(Sampling{Temperature: 1, Seed: 9})
	n := 0
	for range 20000 {
		id, err := s.Next(logits)
		require.NoError(t, err)
		n += int(id)
	}
	require.InDelta(t, 0.75, float64(n)/20000, 0.01)
}

func TestNotANumber(t *testing.T) {
	_, err := NewSampler(Sampling{Temperature: 1}).Next([]float32{1, float32(math.NaN())})
	require.ErrorContains(t, err, "logit 1")
	require.Error(t, Sampling{Temperature: -1}.Validate())
	require.Error(t, Sampling{TopP: 2}.Validate())
	require.Error(t, Sampling{MinP: math.NaN()}.Validate())
	require.NoError(t, Sampling{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05}.Validate())
}
