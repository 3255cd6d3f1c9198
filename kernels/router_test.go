package kernels_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"

	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

// A routed is a launch of router and its inputs.
type routed struct {
	score               ir.RouterScore
	p                   kernels.RouterParams
	normalised          bool
	logits, bias, gains []float64 // bias and gains may be nil
}

// want returns the experts of a token and their weights by the definition; nil for a row with a NaN.
func (r *routed) want(row int) (experts []int32, weights []float64) {
	n := int(r.p.Experts)
	x := slices.Clone(r.logits[row*n : (row+1)*n])
	for i := range x {
		x[i] *= float64(r.p.Sharpness)
	}
	score, choice := make([]float64, n), make([]float64, n)
	top, sum := slices.Max(x), 0.0
	exp := func(v float64) float64 { // −∞ only gives zeros
		if math.IsInf(v, -1) {
			return 0
		}
		return math.Exp(v - top)
	}
	for _, v := range x {
		sum += exp(v)
	}
	for i, v := range x {
		switch r.score {
		case ir.SoftmaxScore:
			if score[i] = exp(v); sum > 0 {
				score[i] /= sum
			}
		case ir.ChosenSoftmaxScore:
			score[i] = v
		case ir.SigmoidScore:
			score[i] = 1 / (1 + math.Exp(-v))
		case ir.SqrtSoftplusScore:
			score[i] = math.Sqrt(math.Log1p(math.Exp(-math.Abs(v))) + max(v, 0))
		}
		// The kernels add in float, where equals may meet.
		if choice[i] = float64(float32(score[i])); r.bias != nil {
			choice[i] = float64(float32(score[i]) + float32(r.bias[i]))
		}
		if math.IsNaN(choice[i]) {
			return nil, nil
		}
	}
	order := byValue(choice)
	if g := int(r.p.Groups); g > 1 {
		each, sums := n/g, make([]float64, g)
		for i := range sums {
			group := choice[i*each : (i+1)*each]
			for _, e := range byValue(group)[:min(2, each)] {
				sums[i] += group[e]
			}
		}
		used := byValue(sums)[:r.p.UsedGroups]
		order = slices.DeleteFunc(order, func(e int32) bool { return !slices.Contains(used, e/int32(each)) })
	}
	experts, sum = order[:r.p.Chosen], 0
	weights = make([]float64, len(experts))
	top = math.Inf(-1)
	for _, e := range experts {
		top = max(top, score[e])
	}
	for i, e := range experts {
		if weights[i] = score[e]; r.score == ir.ChosenSoftmaxScore {
			weights[i] = exp(score[e])
		}
		sum += weights[i]
	}
	for i, e := range experts {
		if r.score == ir.ChosenSoftmaxScore && sum > 0 {
			weights[i] /= sum
		} else if r.normalised {
			weights[i] /= max(sum, float64(r.p.Floor))
		}
		if weights[i] *= float64(r.p.Scale); r.gains != nil {
			weights[i] *= r.gains[e]
		}
	}
	return experts, weights
}

// byValue returns indices from the largest element on, equals in their order.
func byValue(x []float64) []int32 {
	order := make([]int32, len(x))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(x[b], x[a]) })
	return order
}

// TestRouter has every score, groups, biases that decide, equals, infinities and a NaN.
func TestRouter(t *testing.T) {
	shapes := []kernels.RouterParams{
		{Experts: 1, Chosen: 1}, {Experts: 8, Chosen: 2}, {Experts: 31, Chosen: 31}, {Experts: 64, Chosen: 6},
		{Experts: 256, Chosen: 8, Groups: 8, UsedGroups: 4}, {Experts: 30, Chosen: 7, Groups: 30, UsedGroups: 9},
		{Experts: 96, Chosen: 4, Groups: 32, UsedGroups: 3}, {Experts: 384, Chosen: 8, Groups: 1, UsedGroups: 1},
		{Experts: kernels.MaxExperts, Chosen: kernels.MaxChosen},
	}
	instances(t, "router", func(t *testing.T, name string, types []kernels.Element) {
		for _, score := range ir.RouterScores() {
			for i, p := range shapes {
				for _, with := range []string{"", "bias", "gains normalised", "bias gains normalised"} {
					t.Run(fmt.Sprintf("%s/%d/%s", score, i, with), func(t *testing.T) { checkRouter(t, name, types[0], score, p, with) })
				}
			}
		}
	})
}

func checkRouter(t *testing.T, name string, act kernels.Element, score ir.RouterScore, p kernels.RouterParams, with string) {
	rng, inf := newRand(t.Name()), math.Inf(1)
	cases := []func(i int) float64{
		func(int) float64 { return 3 * rng.NormFloat64() },
		func(int) float64 { return float64(rng.IntN(3)) },
		func(int) float64 { return -1.5 },
		func(i int) float64 { return float64(i%40) / 8 },
		func(int) float64 { return []float64{-inf, 2, 0, math.Copysign(0, -1)}[rng.IntN(4)] },
		func(int) float64 { return -60 - rng.Float64() },
		func(i int) float64 { return []float64{rng.NormFloat64(), math.NaN()}[(i+1)/int(p.Experts)] }, // the last
	}
	p.Rows, p.Scale, p.Floor, p.Stride, p.Sharpness = uint32(len(cases)), 2.5, 1.0/16384, p.Experts+uint32(len(with)%3), 1/float32(1+len(with)%2)
	r := routed{score: score, p: p}
	for _, next := range cases {
		for i := range int(p.Experts) {
			r.logits = append(r.logits, float64(float32(next(i))))
		}
	}
	constants := map[string]uint32{"fc_score": uint32(score)}
	each := int(p.Rows * p.Chosen)
	buffers := map[string]tensor{"weights": result(act, each), "experts": result(kernels.Int, each),
		"logits": filled(act, int(p.Rows*p.Stride), func(i int) float64 {
			if row, e := i/int(p.Stride), i%int(p.Stride); e < int(p.Experts) {
				return r.logits[row*int(p.Experts)+e]
			}
			return math.NaN() // not for the router
		})}
	vector := func(name string, scale float64) []float64 {
		x := random(rng, kernels.Float, int(p.Experts))
		buffers[name], constants["fc_"+name] = x, 1
		return x.values()
	}
	for _, part := range []string{"bias", "gains", "normalised"} {
		switch given := strings.Contains(with, part); {
		case given && part == "bias":
			r.bias = vector(part, 1)
		case given && part == "gains":
			r.gains = vector(part, 1)
		case given:
			constants["fc_normalised"], r.normalised = 1, true
		}
	}
	got := launch{kernel: name, buffers: buffers, params: p, constants: constants, grid: [3]int{int(p.Rows), 1, 1}, group: 32}.run(t)
	for row := range int(p.Rows) {
		experts, weights := r.want(row)
		for j := range int(p.Chosen) {
			at := row*int(p.Chosen) + j
			have := int32(binary.LittleEndian.Uint32(got["experts"].bytes[4*at:]))
			if experts == nil {
				require.Equal(t, int32(-1), have, "row %d", row)
				require.True(t, math.IsNaN(got["weights"].at(at)), "row %d", row)
				continue
			}
			require.Equal(t, experts[j], have, "row %d, place %d", row, j)
			require.InDelta(t, weights[j], got["weights"].at(at), 1e-5*max(1, math.Abs(weights[j])), "row %d, place %d", row, j)
		}
	}
	exact(t)
}
