package ref

import (
	"math"

	"github.com/smelt-ml/smelt/ir"
)

// routes are the pairs of a token and one of its experts, in the order of tokens.
type routes struct {
	experts []int32
	each    int // experts chosen for a token
	stack   int // experts in all
}

func (r *run) routesOf(o ir.RoutedOperands) (routes, error) {
	index := r.results[o.Experts.ID].tensor
	shape, err := r.shape(o.Weights[0].Type.Shape)
	return routes{experts: index.Ints, each: index.last(), stack: shape[0]}, err
}

// inputs returns the input row of each pair: its own, or the one that all experts of a token share.
func (p *routes) inputs(x *Tensor) *Tensor {
	if x.rows() == len(p.experts) && len(x.Shape) == 3 {
		return &Tensor{Shape: []int{x.rows(), x.last()}, Data: x.Data}
	}
	out := &Tensor{Shape: []int{len(p.experts), x.last()}, Data: make([]float64, len(p.experts)*x.last())}
	for i := range p.experts {
		copy(out.row(i), x.row(i/p.each))
	}
	return out
}

// of groups the pairs of the given tokens by expert; lost are those without a valid expert.
func (p *routes) of(tokens []int) (pairs [][]int, lost []int) {
	pairs = make([][]int, p.stack)
	for _, t := range tokens {
		for i := t * p.each; i < (t+1)*p.each; i++ {
			if e := p.experts[i]; e >= 0 && int(e) < p.stack {
				pairs[e] = append(pairs[e], i)
			} else {
				lost = append(lost, i)
			}
		}
	}
	return pairs, lost
}

// routedLinear computes expert_linear and routed_linear.
func (r *run) routedLinear(v *ir.Value) (result, error) {
	a, o := ir.AsRoutedLinear(v)
	p, err := r.routesOf(o)
	if err != nil {
		return result{}, err
	}
	in := r.linearInputs(a.Linear, o.LinearOperands)
	in.x = p.inputs(in.x)
	tokens := all(len(p.experts) / p.each)
	if r.Followed != nil {
		tokens = r.Followed.pick(len(tokens))
	}
	return r.each(v, func(out *Tensor) error {
		each := out // results of pairs, before the mix
		if a.Mixed {
			each = &Tensor{Shape: []int{len(p.experts), out.last()}, Data: make([]float64, len(p.experts)*out.last())}
		}
		pairs, lost := p.of(tokens)
		if r.Followed != nil {
			if err := r.deviceExperts(v, a.Linear, o, &in, pairs, each); err != nil {
				return err
			}
		} else {
			for e, rows := range pairs {
				in.expert(a.Linear, e, rows, each)
			}
		}
		for _, i := range lost {
			for j := range each.row(i) {
				each.row(i)[j] = math.NaN()
			}
		}
		if a.Mixed {
			out.mix(each, r.results[o.Mix.ID].tensor, in.residual, tokens)
		}
		if r.Followed != nil {
			out.store(v.Type.DType)
		}
		return nil
	})
}

func all(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// expert computes the given rows of out from the same rows of x with expert e.
func (in *linearInputs) expert(a ir.LinearAttr, e int, rows []int, out *Tensor) {
	k, n := in.x.last(), out.last()
	normed := make([]float64, k)
	for _, i := range rows {
		x := in.x.row(i)
		if a.Norm != ir.NoNorm {
			in.normalise(a, normed, x)
			x = normed
		}
		parts := [2][]float64{out.row(i), make([]float64, n)}
		for j, w := range in.weights {
			product2D(parts[j], n, 0, x, 1, w.Data[e*n*k:(e+1)*n*k], n, k)
			if b := in.biases[j]; b != nil {
				for c := range parts[j] {
					parts[j][c] += b.Data[e*n+c]
				}
			}
		}
		for c, y := range parts[0] {
			if a.Gated {
				parts[0][c] = Gate(a.Activation, y, parts[1][c])
			} else {
				parts[0][c] = Activate(a.Activation, y)
			}
		}
	}
}

// mix adds up the weighted results of the given tokens' experts, and the residual. If the results
// have slack, so has out, with infinity for other tokens.
func (out *Tensor) mix(each, weights, residual *Tensor, tokens []int) {
	n, top := out.last(), weights.last()
	if each.Slack != nil {
		out.Slack = make([]float64, len(out.Data))
		for i := range out.Slack {
			out.Slack[i] = math.Inf(1)
		}
	}
	for _, t := range tokens {
		for c := range n {
			var sum, size, slack float64
			for s := range top {
				i := t*top + s
				term := weights.Data[i] * each.Data[i*n+c]
				sum, size = sum+term, size+math.Abs(term)
				if each.Slack != nil {
					slack += math.Abs(weights.Data[i]) * each.Slack[i*n+c]
				}
			}
			if residual != nil {
				sum, size = sum+residual.Data[t*n+c], size+math.Abs(residual.Data[t*n+c])
			}
			if out.Data[t*n+c] = sum; each.Slack != nil {
				out.Slack[t*n+c] = slack + roundoff(top+1)*size
			}
		}
	}
}

// weightedSum returns Σ weights[t,s] · x[t,s].
func (r *run) weightedSum(v *ir.Value) (result, error) {
	x, weights := r.tensor(v, 0), r.tensor(v, 1)
	return r.each(v, func(out *Tensor) error {
		out.mix(&Tensor{Shape: []int{x.rows(), x.last()}, Data: x.Data}, weights, nil, all(weights.Shape[0]))
		return nil
	})
}
